"""The attributes of a fitted estimator, which the report, the plots and the diagnostics read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._checks import checked_integer
from specialk_gpu._host import OnDevice, on_host
from specialk_gpu._result import SelectionPath
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array
from specialk_gpu.selection.merging import Tree

__all__ = ["Fitted"]


class LateFitted:
    """A fitted attribute that is copied from the device to the host when it is first read.

    Its value is stored in the instance's dictionary under its own name, like any attribute.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Fitted | None, owner: type) -> Any:
        found = {} if model is None else vars(model)
        if self.name not in found:
            msg = f"{owner.__name__!r} object has no attribute {self.name!r}"
            raise AttributeError(msg)
        if isinstance(found[self.name], OnDevice):
            found[self.name] = on_host(found[self.name])
        return found[self.name]

    def __set__(self, model: Fitted, value: object) -> None:
        vars(model)[self.name] = value


class Fitted:
    """The attributes of a fitted estimator, described in `specialk_gpu.SpecialK`, and its tree."""

    get_params: Callable[..., dict[str, Any]]  # of BaseEstimator
    backend: str
    labels_: Array
    n_clusters_: int
    path_: SelectionPath
    limit_reached_: bool
    eigenvalues_: Array
    residuals_: Array
    radius_: float | None
    n_graph_components_: int
    n_features_in_: int
    eigen_solver_: str
    backend_: str
    timings_: dict[str, float]
    _settings: dict[str, Any]  # the parameters at the time of the fit
    _distinct: Array | OnDevice | None  # the row that each row of the graph equals, if not itself
    _tree: Tree | None
    _fit_X: Array | OnDevice | None  # the fitted rows
    _fit_labels: Array | OnDevice  # the labels of these rows

    embedding_ = LateFitted()
    affinity_matrix_ = LateFitted()
    membership_ = LateFitted()
    _spacing = LateFitted()  # the distance of each row to its last neighbour; None for given graphs

    @property
    def tree_(self) -> Tree:
        """The tree of clusters; described under the attributes of `SpecialK`."""
        check_is_fitted(self, "labels_")
        if self._tree is None:
            msg = (
                'there is no tree_ for criterion="zz_top": k-means starts anew for each k, so its '
                'clusters are not nested. Use labels_at(k), or criterion="cut".'
            )
            raise AttributeError(msg)
        return self._tree

    def labels_at(self, k: int) -> Array:
        """Return the labels of a clustering into k clusters.

        Parameters
        ----------
        k : int
            At most the number of leaves of ``tree_``; for criterion="zz_top" a k of the path. For
            others the error names the fit to make.

        Returns
        -------
        int32 array of shape (m,)
            Cluster 0 is the largest. Levels of the tree are nested: below `n_clusters_` the
            clusters are unions of those in `labels_`, above it they are parts of them. Outliers
            that are -1 in `labels_` are -1 for every k.

        Raises
        ------
        TypeError
            If k is not an integer.
        ValueError
            If there is no clustering into k clusters.
        NotFittedError
            Before `fit`.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from specialk_gpu import SpecialK
        >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
        >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
        >>> [int((model.labels_at(2) == c).sum()) for c in range(2)]
        [200, 100]
        """
        check_is_fitted(self, "labels_")
        labels = self._level(k)
        if self._settings["noise"] is not None:
            bk = backend_of(labels)
            outlier = bk.asarray(self.labels_) < 0
            labels = bk.xp.where(outlier, np.int32(-1), bk.asarray(labels))
        return labels

    def _level(self, k: int) -> Array:
        """Return the labels of k clusters, in which outliers have the label of a cluster, too."""
        k = checked_integer("k", k, 1)
        if self._tree is not None:
            most = self._tree.n_leaves
            if k > most:
                self._refuse_level(k, f"at most the number of leaves of tree_ ({most})")
            return self._tree.labels(k)
        step = next((step for step in self.path_ if step.k == k), None)
        if step is None:
            known = [step.k for step in self.path_]
            self._refuse_level(k, f"a number of clusters on the path, {known}")
        return step.labels

    def _refuse_level(self, k: int, expected: str) -> NoReturn:
        """Raise a ValueError that names the call that returns labels of k clusters, if any does."""
        n_rows = self.affinity_matrix_.shape[0]
        if k > n_rows:
            msg = f"k must be {expected}, got {k}: there are only {n_rows} different rows."
            raise ValueError(msg)
        given = self.get_params(deep=False)
        settings: dict[str, int | None] = {"n_clusters": k}
        if given["min_clusters"] > k:
            settings["min_clusters"] = 1
        if given["max_clusters"] is not None and given["max_clusters"] < k:
            settings["max_clusters"] = None
        listed = ", ".join(f"{name}={value}" for name, value in settings.items())
        msg = (
            f"k must be {expected}, got {k}. This finds {k} clusters, not nested in those: "
            f"sklearn.base.clone(model).set_params({listed}).fit(X).labels_"
        )
        raise ValueError(msg)
