"""A fitted model: labels for new rows, and saving."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._account import Account
from specialk_gpu._affinities import is_graph
from specialk_gpu._host import OnDevice, on_host
from specialk_gpu._prediction import Voters, Votes, predict_by_neighbors, predict_by_similarities
from specialk_gpu._storage import load, save
from specialk_gpu._validation import output_converter, validate_input, validated_on_backend
from specialk_gpu._version import __version__
from specialk_gpu.backend import backend_of, get_backend, is_device_array
from specialk_gpu.backend.typing import Array, Backend, Matrix
from specialk_gpu.graph.distance_graph import similarities_in_graph
from specialk_gpu.graph.features import features_in_metric
from specialk_gpu.graph.neighbor_lists import word_for_neighbors
from specialk_gpu.graph.recall import Recall
from specialk_gpu.inspection.outliers import outlier_scores, spacings_for_outliers
from specialk_gpu.inspection.refitting import Refitting
from specialk_gpu.tables.preparation import Preparation
from specialk_gpu.tables.prepared import Prepared

__all__ = ["FittedModel"]

# Parameters that are not kept with a result.
NOT_OF_THE_FIT = ("random_state", "verbose", "memory_limit", "checkpoint", "client")
# Private attributes that `save` writes, in addition to those whose name ends in an underscore.
KEPT = ("_fit_X", "_fit_labels", "_spacing", "_distinct", "_settings", "_tree")


class FittedModel(Refitting, Account):
    """The methods of a fitted estimator."""

    affinity: str
    neighbors: Any
    metric: str
    set_params: Callable[..., Self]
    fit: Callable[..., Self]
    _validate_params: Callable[[], None]

    def fit_predict(self, X: Matrix, y: object = None) -> Array:  # noqa: ARG002
        """Find the clusters in X, and return the labels.

        Parameters
        ----------
        X : array-like of shape (m, d), or of shape (m, m) for a graph
            As in `fit`.
        y : object
            Ignored; scikit-learn passes it.

        Returns
        -------
        int32 array of shape (m,)
            The attribute `labels_`.

        Raises
        ------
        ValueError, TypeError, MemoryError, ConvergenceError, RuntimeError
            As in `fit`.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from specialk_gpu import SpecialK
        >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
        >>> labels = SpecialK(backend="numpy", random_state=0).fit_predict(X)
        >>> int(labels.max()) + 1
        3
        """
        return self.fit(X).labels_

    def predict(self, X: Matrix) -> Array:
        """Label new rows by a vote of the fitted rows.

        This is an extension: [HD19] does not define labels for new rows.

        Parameters
        ----------
        X : array-like of shape (q, d), or (q, m) for a graph
            New rows. For a graph, their similarities to the m fitted rows; with
            affinity="precomputed_nearest_neighbors" a sparse matrix of distances to these. For a
            model with ``preparation_``, which ``specialk-gpu fit`` saves, rows as they are in the
            file: they are scaled, filled and so on as the fitted ones were. Columns of a data
            frame are found by name, others by their order.

        Returns
        -------
        int32 array of shape (q,)
            The label of the voters if they agree, otherwise the one with the largest share in
            `predict_proba`; in a tie the smaller label. A fitted row gets its label in `labels_`,
            unless equal rows had different labels. Rows that ``preparation_`` drops for their
            blanks get -1, and with `noise` those that are far from all fitted rows.

        Raises
        ------
        ValueError, TypeError
            As in `fit`, or if the columns are not those of the fit.
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from specialk_gpu import SpecialK
        >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
        >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
        >>> bool((model.predict(X) == model.labels_).all())
        True
        >>> model.predict([(9, 1), (1, 8)]).shape
        (2,)
        """
        votes, out = self._votes(X)
        return out(votes.labels)

    def predict_proba(self, X: Matrix) -> Array:
        """Return, for new rows, how much they belong to each cluster.

        This is the mean `membership_` of the `n_neighbors` nearest fitted rows; if some of them
        equal the new row, only of these. So a fitted row has its own membership. If the nearest
        rows are more than twice as far from the new row as from their own neighbours, the shares
        tend to 1 / `n_clusters_` with the square of that distance: nothing is known far away.

        For a graph it is the mean membership of all fitted rows, weighted by their
        similarity to the new row; one without any similarity has equal shares. A share is not the
        probability that a row belongs to a cluster.

        Parameters
        ----------
        X : array-like of shape (q, d), or (q, m) for a graph
            See `predict`.

        Returns
        -------
        float64 array of shape (q, k)
            Each row sums to 1; rows that ``preparation_`` drops for their blanks are NaN. The
            search costs 2 q m d operations.

        Raises
        ------
        ValueError, TypeError, NotFittedError
            See `predict`.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from specialk_gpu import SpecialK
        >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
        >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
        >>> model.predict_proba([(9, 1), (4.5, 0)]).sum(axis=1)
        array([1., 1.])
        """
        votes, out = self._votes(X)
        return out(votes.shares)

    def _votes(self, X: Matrix) -> tuple[Votes, Callable[[Any], Any]]:
        """Return the votes on new rows, and a function that converts results to the kind of X."""
        check_is_fitted(self)
        bk = get_backend(self.backend, X)
        precomputed = self._fit_X is None
        with bk.device_of(X):
            checker, given = self._prepared(X)
            if given is not None and not given.X.shape[0]:  # each row has a blank
                shares = bk.xp.empty((0, self.n_clusters_))
                votes = Votes(bk.xp.empty(0, dtype=np.int32), shares)
                return votes.among(given.n_rows, bk.asarray(given.kept)), output_converter(X)
            given_X = X if given is None else given.X
            rows = validated_on_backend(
                bk, validate_input(checker, bk, given_X, precomputed=precomputed, fitted=True)
            )
            labels = self._brought(bk, "_fit_labels")
            membership = self._brought(bk, "membership_")
            if precomputed:
                if self._settings["affinity"] == "precomputed_nearest_neighbors":
                    near = similarities_in_graph(on_host(rows), self._settings["n_neighbors"])
                    rows = validated_on_backend(bk, near)
                D = self._brought(bk, "embedding_")
                votes = predict_by_similarities(rows, D, labels, membership)
            else:
                fitted, spacing = self._brought(bk, "_fit_X"), self._brought(bk, "_spacing")
                if self._distinct is not None:
                    first = self._brought(bk, "_distinct")
                    membership, spacing = membership[first], spacing[first]
                usual = spacings_for_outliers(spacing, labels, self.n_clusters_)
                voters = Voters(fitted, labels, membership, spacing, usual)
                rows = features_in_metric(
                    _in_dtype_of_model(rows, fitted.dtype), self._settings["metric"]
                )
                n_voters = min(self._settings["n_neighbors"], fitted.shape[0])
                votes = predict_by_neighbors(rows, voters, n_voters, self._settings["noise"])
            if given is not None and given.kept is not None:
                votes = votes.among(given.n_rows, bk.asarray(given.kept))
        return votes, output_converter(X)

    def _rows_for_predict(
        self, given: Any, X: Array, late: Callable[[Any], Any]
    ) -> Array | OnDevice | None:
        """Return the fitted rows for `predict`; reuse the host copy `given` if it is the same."""
        if is_graph(self.affinity):
            return None
        return OnDevice(X, given) if late is OnDevice and self.metric == "euclidean" else late(X)

    def _mark_outliers(self) -> None:
        """Give outliers the label -1, if the fit had `noise`."""
        if (noise := self._settings["noise"]) is not None:
            scores = outlier_scores(self)
            bk = backend_of(scores)
            labels = bk.xp.where(scores > noise, np.int32(-1), bk.asarray(self.labels_))
            self.labels_ = output_converter(self.labels_)(labels)

    def _prepared(self, X: Matrix) -> tuple[Any, Prepared | None]:
        """Return the rows after `preparation_`, and an estimator without names to check them by.

        For a model without a preparation, these are the model itself and None; also for an array if
        the preparation changes nothing.
        """
        content = vars(self).get("preparation_")
        preparation = Preparation() if content is None else Preparation.from_json(content)
        named = preparation.header and any(hasattr(X, x) for x in ("columns", "column_names"))
        if not (preparation.changes or named):
            return self, None
        checker = type(self)()
        checker.n_features_in_ = self.n_features_in_
        return checker, preparation.of_rows(on_host(X))

    def save(self, path: str | Path) -> None:
        """Save the fitted model to a file, without pickle.

        Parameters
        ----------
        path : str or path
            A .npz file. It is as large as the fitted arrays and X together.

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

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sklearn.datasets import make_blobs
        >>> from specialk_gpu import SpecialK
        >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
        >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(Path(folder, "model.npz"))
        ...     again = SpecialK.load(Path(folder, "model.npz"))
        >>> again.n_clusters_
        3
        """
        check_is_fitted(self)
        fitted = {
            name: on_host(value)
            for name, value in vars(self).items()
            if name in KEPT or name.endswith("_")
        }
        kind = type(self)
        parameters = self.get_params(deep=False)
        parameters["neighbors"] = word_for_neighbors(self.neighbors)
        save(path, kind.__name__, __version__, parameters, fitted, kind._check_parameters)

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

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sklearn.datasets import make_blobs
        >>> from specialk_gpu import SpecialK
        >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
        >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(Path(folder, "model.npz"))
        ...     again = SpecialK.load(Path(folder, "model.npz"))
        >>> bool((again.predict(X) == model.labels_).all())
        True
        """
        parameters, fitted = load(path, cls.__name__, cls._check_parameters)
        model = cls(**parameters)
        if fitted["recall_"] is not None:
            fitted["recall_"] = Recall(*fitted["recall_"])
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


def _in_dtype_of_model(X: Array, dtype: np.dtype) -> Array:
    """Return X in the dtype of the fitted rows if that loses nothing, otherwise unchanged."""
    with np.errstate(over="ignore"):
        converted = X.astype(dtype, copy=False)
    return converted if bool((converted == X).all()) else X
