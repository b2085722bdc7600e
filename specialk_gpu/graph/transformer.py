"""The exact search for neighbours as a transformer, for scikit-learn, scanpy and others."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from specialk_gpu._checks import checked_integer
from specialk_gpu.backend import BACKENDS, get_backend
from specialk_gpu.backend.typing import Array
from specialk_gpu.graph.features import METRICS, features, features_in_metric
from specialk_gpu.graph.neighbors import nearest_neighbors, neighbors_among

__all__ = ["ExactNeighborsTransformer"]


class ExactNeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turn rows into a sparse graph of their exact nearest neighbours among the fitted rows.

    It takes the place of scikit-learn's KNeighborsTransformer: in a pipeline before an estimator
    with ``metric="precomputed"``, or as the ``transformer`` of ``scanpy.pp.neighbors``.

    Parameters
    ----------
    n_neighbors : int, default=10
        Neighbours of each row.
    mode : {"distance", "connectivity"}, default="distance"
        Entries of the graph. As in KNeighborsTransformer, each row has `n_neighbors` + 1 entries
        with "distance", because a fitted row counts as its own neighbour at distance 0, and
        `n_neighbors` entries of 1 with "connectivity".
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine" is 1 minus the cosine of the angle between two rows.
    backend : {"auto", "numpy", "cuda"}, default="auto"
        Where to compute; see `SpecialK`.

    Attributes
    ----------
    n_samples_fit_ : int
        The number of fitted rows, m.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only if X had column names.

    Examples
    --------
    >>> import numpy as np
    >>> from specialk_gpu import ExactNeighborsTransformer
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> ExactNeighborsTransformer(n_neighbors=1, backend="numpy").fit_transform(X).toarray()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 2., 0.]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "mode": [StrOptions({"distance", "connectivity"})],
        "metric": [StrOptions(set(METRICS))],
        "backend": [StrOptions(set(BACKENDS))],
    }

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        mode: str = "distance",
        metric: str = "euclidean",
        backend: str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.metric = metric
        self.backend = backend

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Keep the rows among which neighbours are searched.

        Parameters
        ----------
        X : array-like of shape (m, d)
            Finite numbers.
        y : object
            Ignored; scikit-learn passes it.

        Returns
        -------
        self
            The fitted transformer.

        Raises
        ------
        ValueError, TypeError
            If a parameter or X is not valid.
        """
        self._validate_params()
        self._fit_X = self._rows(X, reset=True)
        self.n_samples_fit_ = self._n_features_out = len(self._fit_X)
        self._n_entries()
        return self

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Return the graph of rows and their nearest fitted rows.

        Parameters
        ----------
        X : array-like of shape (q, d)
            Finite numbers.

        Returns
        -------
        csr_matrix of shape (q, m), float64
            The entries of a row are in the order of distance.

        Raises
        ------
        ValueError, NotFittedError
            If X is not valid, or `fit` has not been called.
        """
        check_is_fitted(self)
        n = self._n_entries()
        bk = get_backend(self.backend)
        queries = self._in_metric(bk.asarray(self._rows(X, reset=False)))
        found = neighbors_among(queries, self._in_metric(bk.asarray(self._fit_X)), n)
        return self._graph(bk.to_numpy(found.indices), bk.to_numpy(found.distances))

    def fit_transform(self, X: Any, y: object = None) -> sparse.csr_matrix:
        """Return the graph of the fitted rows; each is its own first neighbour.

        Parameters
        ----------
        X : array-like of shape (m, d)
            Finite numbers.
        y : object
            Ignored; scikit-learn passes it.

        Returns
        -------
        csr_matrix of shape (m, m), float64
            As from `transform`, but faster than that; see `nearest_neighbors`.

        Raises
        ------
        ValueError, TypeError
            If a parameter or X is not valid.
        """
        self.fit(X, y)
        n, m = self._n_entries(), self.n_samples_fit_
        indices, distances = np.arange(m)[:, None], np.zeros((m, 1))
        if n > 1:
            bk = get_backend(self.backend)
            found = nearest_neighbors(self._in_metric(bk.asarray(self._fit_X)), n - 1)
            indices = np.concatenate([indices, bk.to_numpy(found.indices)], axis=1)
            distances = np.concatenate([distances, bk.to_numpy(found.distances)], axis=1)
        return self._graph(indices, distances)

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        valid: np.ndarray = validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            order="C",
            ensure_min_samples=2 if reset else 1,
        )
        return features(valid, min_rows=1)

    def _in_metric(self, X: Array) -> Array:
        return features_in_metric(X, self.metric)

    def _n_entries(self) -> int:
        """Return the number of entries in a row of the graph, at most that of the fitted rows."""
        own = int(self.mode == "distance")
        m, what = len(self._fit_X), "the number of fitted rows" + " less one" * own
        return checked_integer("n_neighbors", self.n_neighbors, 1, m - own, what) + own

    def _graph(self, indices: np.ndarray, distances: np.ndarray) -> sparse.csr_matrix:
        q, n = indices.shape
        data = distances.ravel() if self.mode == "distance" else np.ones(q * n)
        if self.metric == "cosine" and self.mode == "distance":
            data = data**2 / 2  # of rows of length 1
        ends = np.arange(0, q * n + 1, n)
        return sparse.csr_matrix((data, indices.ravel(), ends), shape=(q, self.n_samples_fit_))
