"""A fitted model: labels for new rows, saving, a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._fitted import Fitted
from specialk_gpu._prediction import shares_of_neighbors, shares_of_similarities
from specialk_gpu._storage import OnDevice, load, on_host, save
from specialk_gpu._validation import output_converter, to_backend, validate_input
from specialk_gpu._version import __version__
from specialk_gpu.backend import get_backend, is_device_array
from specialk_gpu.backend.typing import Array, Backend, Matrix
from specialk_gpu.graph.features import in_metric
from specialk_gpu.tables.preparation import Preparation, Prepared

__all__ = ["FittedModel"]

NOT_OF_THE_FIT = ("random_state", "verbose")  # parameters that are not kept with a result
# Private attributes that `save` writes, in addition to those whose name ends in an underscore.
KEPT = ("_fit_X", "_fit_labels", "_distinct", "_settings", "_tree")


class FittedModel(Fitted):
    """The methods of a fitted estimator."""

    get_params: Callable[..., dict[str, Any]]  # inherited from BaseEstimator
    set_params: Callable[..., Self]
    _validate_params: Callable[[], None]

    def predict(self, X: Matrix) -> Array:
        """Label new rows by a vote of the fitted rows.

        This is an extension: [HD19] does not define labels for new rows.

        Parameters
        ----------
        X : array-like of shape (q, d), or (q, m) with affinity="precomputed"
            New rows; with affinity="precomputed" their similarities to the m fitted rows. For a
            model with ``preparation_``, which ``specialk-gpu fit`` saves, rows as they are in the
            file: they are scaled, filled and so on as the fitted ones were. Columns of a data
            frame are found by name, others by their order.

        Returns
        -------
        int32 array of shape (q,)
            The label with the largest share in `predict_proba`; in a tie the smaller label. A
            fitted row gets its label in `labels_`, unless equal rows had different labels. Rows
            that ``preparation_`` drops for their blanks get -1.

        Raises
        ------
        ValueError, TypeError
            As in `fit`, or if the columns are not those of the fit.
        NotFittedError
            If `fit` has not been called.
        """
        shares, out = self._shares(X)
        labels = shares.argmax(axis=1).astype(np.int32)
        labels[shares[:, 0] != shares[:, 0]] = -1  # NaN
        return out(labels)

    def predict_proba(self, X: Matrix) -> Array:
        """Return, for new rows, the share of the votes that each cluster gets.

        The `n_neighbors` nearest fitted rows vote; if some of them equal the new row, only these
        vote. With affinity="precomputed" all fitted rows vote, weighted by similarity. A share is
        not the probability that a row belongs to a cluster.

        Parameters
        ----------
        X : array-like of shape (q, d), or (q, m) with affinity="precomputed"
            See `predict`.

        Returns
        -------
        float64 array of shape (q, n_clusters_)
            Each row sums to 1; rows that ``preparation_`` drops for their blanks are NaN. The
            search costs 2 q m d operations.

        Raises
        ------
        ValueError, TypeError, NotFittedError
            See `predict`.
        """
        shares, out = self._shares(X)
        return out(shares)

    def _shares(self, X: Matrix) -> tuple[Array, Callable[[Any], Any]]:
        """Return the shares (q, k), and a function that converts results to the kind of X."""
        check_is_fitted(self)
        bk = get_backend(self.backend, X)
        precomputed = self._fit_X is None
        with bk.device_of(X):
            checker, given = self._prepared(X)
            given_X = X if given is None else given.X
            rows = to_backend(
                bk, validate_input(checker, bk, given_X, precomputed=precomputed, fitted=True)
            )
            votes, k = self._brought(bk, "_fit_labels"), self.n_clusters_
            if precomputed:
                D = self._brought(bk, "embedding_")
                shares = shares_of_similarities(rows, D, votes, k)
            else:
                voters = self._brought(bk, "_fit_X")
                rows = in_metric(_in_dtype(rows, voters.dtype), self._settings["metric"])
                n_voters = min(self._settings["n_neighbors"], voters.shape[0])
                shares = shares_of_neighbors(rows, voters, votes, n_voters, k)
            if given is not None and given.kept is not None:
                kept, shares = shares, bk.xp.full((given.n_rows, k), np.nan)
                shares[bk.asarray(given.kept)] = kept
        return shares, output_converter(X)

    def _prepared(self, X: Matrix) -> tuple[Any, Prepared | None]:
        """Return the rows after `preparation_`, and an estimator without names to check them by.

        For a model without a preparation, these are the model itself and None.
        """
        content = vars(self).get("preparation_")
        preparation = Preparation() if content is None else Preparation.from_json(content)
        if not preparation.changes:
            return self, None
        checker = type(self)()
        checker.n_features_in_ = self.n_features_in_
        return checker, preparation.of_rows(on_host(X))

    def save(self, path: str | Path) -> None:
        """Save the fitted model to a file, without pickle.

        Parameters
        ----------
        path : str or path
            A .npz file. It is as large as the fitted arrays and X together. Its content is listed
            in `specialk_gpu._storage`.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        TypeError
            If `random_state` is neither a number nor None.
        ValueError
            If a parameter is not valid, a name of a column has control characters, or an attribute
            was added or changed, so that `load` would refuse the file.
        OSError
            If the file cannot be written. An existing file is then left unchanged.
        """
        check_is_fitted(self)
        fitted = {
            name: on_host(value)
            for name, value in vars(self).items()
            if name in KEPT or name.endswith("_")
        }
        kind = type(self)
        save(path, kind.__name__, __version__, self.get_params(), fitted, kind._check_parameters)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a model that `save` has written, on any machine; its arrays are NumPy arrays.

        Parameters
        ----------
        path : str or path
            The .npz file.

        Returns
        -------
        SpecialK
            The fitted estimator.

        Raises
        ------
        ValueError
            If the file does not hold a saved model, is damaged, or holds a model of another format.
            The arrays of the file are checked before they are read, and never larger than the file.
        OSError
            If the file cannot be read.
        """
        parameters, fitted = load(path, cls.__name__, cls._check_parameters)
        model = cls(**parameters)
        vars(model).update(fitted)
        return model

    @classmethod
    def _check_parameters(cls, parameters: dict[str, Any], settings: dict[str, Any]) -> None:
        """Raise a ValueError if parameters, or those at the time of the fit, are not valid."""
        names = cls().get_params().keys()
        kept = names - set(NOT_OF_THE_FIT)
        for what, given, expected in (
            ("parameters", parameters, names),
            ("_settings", settings, kept),
        ):
            if given.keys() != expected:
                wrong = ", ".join(sorted(given.keys() ^ expected))
                msg = f"{what} must be those of {cls.__name__}, got more or fewer: {wrong}"
                raise ValueError(msg)
            cls(**given)._validate_params()
        if settings["alpha"] is None:
            msg = "_settings must have a number for alpha"
            raise ValueError(msg)

    def report(
        self,
        path: str | Path,
        *,
        X: Matrix | None = None,
        image_shape: tuple[int, int] | None = None,
        coordinates: Matrix | None = None,
        source: str = "",
    ) -> None:
        """Write an HTML page that says how many clusters there are, why, and how clear that is.

        Parameters
        ----------
        path : str or path
            The HTML file.
        X : array-like of shape (m, d), optional
            The fitted rows, for the picture of the clusters: two columns are drawn as they are, of
            more the two leading principal components. Without X or `coordinates`, each cluster is
            drawn as a disc.
        image_shape : tuple of two int, optional
            Height and width, if rows are images: typical rows of each cluster are then shown as
            images, and X is not used for the picture.
        coordinates : array-like of shape (m, 2), optional
            Where to draw each row in the picture, such as a UMAP or places on a map.
        source : str
            A description of the data, shown at the top of the page.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        ValueError
            If X or `coordinates` do not have a row for each fitted row, `coordinates` are not
            finite numbers, or the rows of X are not images of that shape.
        OSError
            If the file cannot be written.
        """
        from specialk_gpu.inspection.report import report

        given: dict[str, Any] = {"X": X, "image_shape": image_shape, "coordinates": coordinates}
        report(self, path, **given, source=source)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle, with all arrays on the host, for machines without a GPU."""
        state: Any = super().__getstate__()
        return {name: on_host(value) for name, value in state.items()}

    def _brought(self, bk: Backend, name: str) -> Array:
        """Return a fitted array on the backend; an array copied to the device is kept there."""
        fitted = vars(self)[name]
        if bk.name == "numpy":
            return on_host(fitted)
        if not isinstance(fitted, OnDevice):
            on_device = bk.asarray(fitted)
            if is_device_array(fitted):
                return on_device
            fitted = vars(self)[name] = OnDevice(on_device, fitted)
        return fitted.array


def _in_dtype(X: Array, dtype: np.dtype) -> Array:
    """Return X in the dtype of the fitted rows if that loses nothing, otherwise unchanged."""
    with np.errstate(over="ignore"):
        converted = X.astype(dtype, copy=False)
    return converted if bool((converted == X).all()) else X
