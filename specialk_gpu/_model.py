"""A fitted model: labels of other k, labels of new rows, files, a report."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._prediction import shares_of_neighbors, shares_of_similarities
from specialk_gpu._storage import OnDevice, load, on_host, save
from specialk_gpu._validation import checked, in_kind_of, to_backend
from specialk_gpu._version import __version__
from specialk_gpu.backend import get_backend, is_device_array
from specialk_gpu.graph.affinity import (
    in_metric,
)
from specialk_gpu.selection.merging import Tree

__all__ = ["FittedModel", "Late"]

KEPT = ("_voters", "_votes", "_distinct", "_settings", "_tree")  # beside what ends in an underscore


class Late:
    """A fitted attribute that is copied from the device to the host when it is first read.

    The instance's dictionary holds it under its name, as it holds all fitted attributes.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type) -> Any:
        found = {} if model is None else vars(model)
        if self.name not in found:
            msg = f"{owner.__name__!r} object has no attribute {self.name!r}"
            raise AttributeError(msg)
        if isinstance(found[self.name], OnDevice):
            found[self.name] = on_host(found[self.name])
        return found[self.name]

    def __set__(self, model: Any, value: Any) -> None:
        vars(model)[self.name] = value


class FittedModel:
    """What an estimator can do once it is fitted."""

    @property
    def tree_(self) -> Tree:
        """The tree of clusters; see the class."""
        check_is_fitted(self, "labels_")
        if self._tree is None:
            msg = (
                'there is no tree_ for criterion="zz_top": k-means starts anew for each k, and its '
                'clusters are not nested. Use labels_at(k), or criterion="cut".'
            )
            raise AttributeError(msg)
        return self._tree

    def labels_at(self, k: int) -> Any:
        """Return the labels of k clusters.

        Parameters
        ----------
        k : int
            Up to the number of leaves of ``tree_``; for criterion="zz_top" a k of the path.

        Returns
        -------
        int32 array of shape (m,)
            By falling size of the cluster. Levels of the tree are nested: those below
            `n_clusters_` are unions of `labels_`, those above divide them further.

        Raises
        ------
        TypeError
            If k is no integer.
        ValueError
            If there are no k clusters to be had.
        NotFittedError
            Before `fit`.
        """
        check_is_fitted(self, "labels_")
        if not isinstance(k, Integral):
            msg = f"k must be an integer, got {k!r}."
            raise TypeError(msg)
        if self._tree is not None:
            if not 1 <= k <= self._tree.n_leaves:
                msg = f"k must lie between 1 and {self._tree.n_leaves}, got {k}."
                raise ValueError(msg)
            return self._tree.labels(k)
        step = next((step for step in self.path_ if step.k == k), None)
        if step is None:
            known = [step.k for step in self.path_]
            msg = f"k must be a number of clusters on the path, {known}, got {k}."
            raise ValueError(msg)
        return step.labels

    def predict(self, X: Any) -> Any:
        """Find the cluster of new rows, by the vote of the rows that were fitted.

        An extension: the method itself says nothing of new rows [HD19].

        Parameters
        ----------
        X : array-like of shape (q, d), or (q, m) with affinity="precomputed"
            Where similarities were fitted, those of the new rows to the m fitted ones.

        Returns
        -------
        int32 array of shape (q,)
            The label of the largest share in `predict_proba`, of equal ones the smaller. Rows that
            were fitted keep their `labels_`, except where rows were equal and had several.

        Raises
        ------
        ValueError, TypeError
            As in `fit`, or if the columns are not those of the fit.
        NotFittedError
            Before `fit`.
        """
        shares, out = self._shares(X)
        return out(shares.argmax(axis=1).astype(np.int32))

    def predict_proba(self, X: Any) -> Any:
        """Find the share of the votes that each cluster gets for new rows.

        The voters are the `n_neighbors` nearest fitted rows; rows equal to the new one vote alone.
        With affinity="precomputed" all vote, by similarity. Shares are not probabilities that a
        row belongs to a cluster.

        Parameters
        ----------
        X
            See `predict`.

        Returns
        -------
        float64 array of shape (q, n_clusters_)
            Rows sum to 1. Costs 2 q m d operations.

        Raises
        ------
        ValueError, TypeError, NotFittedError
            See `predict`.
        """
        shares, out = self._shares(X)
        return out(shares)

    def _shares(self, X: Any) -> tuple[Any, Callable[[Any], Any]]:
        """Return the shares of the clusters (q, k), and what makes a result of the kind of X."""
        check_is_fitted(self)
        bk = get_backend(self.backend, X)
        precomputed = self._voters is None
        with bk.device_of(X):
            rows = to_backend(bk, checked(self, bk, X, precomputed=precomputed, fitted=True))
            votes, k = self._brought(bk, "_votes"), self.n_clusters_
            if precomputed:
                D = self._brought(bk, "embedding_")
                shares = shares_of_similarities(rows, D, votes, k)
            else:
                voters = self._brought(bk, "_voters")
                rows = in_metric(_in_dtype(rows, voters.dtype), self._settings["metric"])
                n_voters = min(self._settings["n_neighbors"], voters.shape[0])
                shares = shares_of_neighbors(rows, voters, votes, n_voters, k)
        return shares, in_kind_of(X)

    def save(self, path: Any) -> None:
        """Write the fitted model to a file, without pickle.

        Parameters
        ----------
        path : str or path
            A .npz file, of the size of the fitted arrays and of X. What it holds is listed in
            `specialk_gpu._storage`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        TypeError
            If `random_state` is neither a number nor None.
        OSError
            If the file cannot be written; one that is there is left as it is.
        """
        check_is_fitted(self)
        fitted = {
            name: on_host(value)
            for name, value in vars(self).items()
            if name in KEPT or name.endswith("_")
        }
        save(path, type(self).__name__, __version__, self.get_params(), fitted)

    @classmethod
    def load(cls, path: Any) -> FittedModel:
        """Read a model that `save` has written, on any machine; its arrays are NumPy's.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        SpecialK

        Raises
        ------
        ValueError
            If the file holds no such model, or one of another format.
        OSError
            If it cannot be read.
        """
        parameters, fitted = load(path, cls.__name__)
        model = cls(**parameters)
        vars(model).update(fitted)
        return model

    def report(
        self,
        path: Any,
        *,
        X: Any = None,
        image_shape: tuple[int, int] | None = None,
        source: str = "",
    ) -> None:
        """Write a page, as HTML, that says how many clusters there are, why, and how sure that is.

        Parameters
        ----------
        path : str or path
        X : array of shape (m, height * width), optional
            What was fitted, to show typical rows of each cluster as images.
        image_shape : tuple of two int, optional
            Height and width.
        source : str
            What the data are, for the top of the page.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If the rows of X are no images of that shape.
        OSError
            If the file cannot be written.
        """
        from specialk_gpu.inspection.report import report

        report(self, path, X=X, image_shape=image_shape, source=source)

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle keeps: with all arrays on the host, for machines without a GPU."""
        return {name: on_host(value) for name, value in super().__getstate__().items()}

    def _brought(self, bk: ModuleType, name: str) -> Any:
        """Return a fitted array on the backend; what was moved to the device stays there."""
        fitted = vars(self)[name]
        if bk.name == "numpy":
            return on_host(fitted)
        if not isinstance(fitted, OnDevice):
            on_device = bk.asarray(fitted)
            if is_device_array(fitted):
                return on_device
            fitted = vars(self)[name] = OnDevice(on_device, fitted)
        return fitted.array


def _in_dtype(X: Any, dtype: Any) -> Any:
    """Return X in the dtype of the fitted rows, if that loses nothing, else as it is."""
    with np.errstate(over="ignore"):
        converted = X.astype(dtype, copy=False)
    return converted if bool((converted == X).all()) else X
