"""The estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from numbers import Integral, Real
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from specialk_gpu import __version__
from specialk_gpu.backend import BACKENDS, get_backend
from specialk_gpu.bottlenecks import NEAR, WIDE, Bottlenecks
from specialk_gpu.chebyshev import ConvergenceError
from specialk_gpu.duplicates import without_copies
from specialk_gpu.eigen import SOLVERS, Eigenpairs, eigenpairs
from specialk_gpu.embedding import embed
from specialk_gpu.graph import (
    METRICS,
    WEIGHTS,
    GraphWarning,
    affinity_matrix,
    in_metric,
    knn_graph,
    radius_graph,
)
from specialk_gpu.inputs import checked, in_kind_of, to_backend
from specialk_gpu.prediction import shares_of_neighbors, shares_of_similarities
from specialk_gpu.progress import Clock, followed
from specialk_gpu.storage import OnDevice, load, on_host, save
from specialk_gpu.sweep import SELECTIONS, sweep

__all__ = ["SpecialK"]

REMEDIES = {
    "graph": "Cluster a sample of the rows, or pass X in float32.",
    "eigenpairs": "Ask for fewer eigenvectors (n_components), or cluster a sample of the rows.",
    "sweep": "Lower n_init, n_kmeans_components or max_clusters.",
}


NOT_OF_THE_FIT = ("random_state", "verbose")  # parameters that say nothing about a result
KEPT = ("_voters", "_votes", "_distinct", "_settings")  # beside what ends in an underscore


class _Late:
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


class SpecialK(ClusterMixin, BaseEstimator):
    r"""Spectral clustering that finds the number of clusters, one included [HD19].

    Builds a neighbour graph W, takes its n eigenpairs of largest magnitude, and clusters the
    rows of :math:`D = |V||\Lambda|^{1/2}` by k-means for k = 1, 2, ... For every pair of clusters
    a p says how likely such a split of one cluster in two is; the first k with a pair above `alpha`
    is one too many. By default it is the calibrated p, of bottlenecks in the graph; the paper's is
    the ZZ Top Bound.

    Parameters
    ----------
    alpha : float, default=0.01
        Level of the test, in (0, 1).
    n_clusters : int, default=None
        Cluster for this k and skip the test.
    min_clusters, max_clusters : int, default=1 and 50
        Bounds on k. Ending at the largest warns and sets `limit_reached_`.
    affinity : {"nearest_neighbors", "radius_neighbors", "precomputed"}
        W_C, the normalised graph of the nearest neighbours (default); W_R, the graph of all
        pairs within a radius; or X is itself a symmetric matrix of similarities.
    n_neighbors : int, default=10
        Neighbours of each row; for W_R those that `coverage` of the rows must have. Bottlenecks are
        looked for in this graph if it is of 10 to 29, else in that of 10, and in that of 30.
    coverage : float, default=0.99
        For W_R: share of the rows with `n_neighbors` others within the radius.
    weights : {"connectivity", "distance"}, default="connectivity"
        Entries of W_C before it is normalised.
    metric : {"euclidean", "cosine"}
        Distance between rows; "cosine" scales them to length 1 first. For others, precompute.
    n_components : int or "auto", default="auto"
        n, the number of eigenpairs: the more, the finer the splits that the bound accepts; to the
        calibrated p it matters little. "auto" is 200 below 5,000 rows and 1,000 from there on;
        never more than m - 1.
    n_kmeans_components : int or None, default=50
        Columns of D, those of largest norm, that k-means sees; None for all. The bound takes all.
    drop_correlated : float, default=None
        Drop columns of D whose Spearman correlation with a larger one exceeds it.
    full_path : bool, default=False
        Go on to `max_clusters` after the decision.
    selection : {"calibrated", "first", "watershed"}, default="calibrated"
        What decides: the calibrated p (see ``specialk_gpu.bottlenecks``); or the bound, which is
        the paper's rule; or the largest drop in the bound's certainty, after the last such k.
    n_pairs : int, default=None
        Compute the bound of the pairs of highest cut only; None for all.
    n_init : int, default=10
        Restarts of k-means for each k, and three times the swaps in each round after them; 1 goes
        without swaps.
    eigen_solver : {"auto", "dense", "lanczos", "chebyshev"}, default="auto"
        See `specialk_gpu.eigenpairs`.
    tol : float, default=1e-8
        Largest residual of an eigenpair, relative to the largest magnitude.
    backend : {"auto", "numpy", "cuda"}, default="auto"
        Where to compute. "auto" takes CUDA when a device answers; `backend_` says which.
    random_state : int, RandomState or None, default=None
        Draws start vectors and starting centres, on the host.
    verbose : int, default=0
        Above 0, log each stage at INFO under the logger "specialk_gpu", to standard error if
        logging is not set up; and show how far a stage has come, with tqdm if that is installed.

    Attributes
    ----------
    labels_ : int32 array of shape (m,)
        In 0, ..., `n_clusters_` - 1, by falling size of the cluster. Copies of a row share
        its label wherever they crowd out its neighbours (a warning says so). Isolated rows are
        labelled by the centre nearest to the origin of D.
    n_clusters_ : int
    path_ : Path of Step
        One row per k tried: `k, log_p, pair, accepted, reason, inertia, labels,
        log_p_calibrated`;
        `path_.to_frame()` gives a DataFrame, `print(model.path_)` a table.
    eigenvalues_ : float64 array of shape (n,)
        By falling magnitude.
    embedding_ : float64 array of shape (m, n)
        D.
    affinity_matrix_ : csr_matrix of shape (m, m), or (u, u)
        W. Where copies of rows crowd out their neighbours, of the u distinct rows only.
    residuals_ : float64 array of shape (n,)
        ``‖Wv - λv‖ / max |λ|`` of each pair.
    radius_ : float or None
        ε of W_R.
    n_graph_components_ : int
        Connected components of W.
    limit_reached_ : bool
        Whether the search ended at `max_clusters`.
    timings_ : dict of str to float
        Seconds by stage.
    backend_ : str
        "numpy" or "cuda".
    eigen_solver_ : str
        The solver used for the largest component.
    n_features_in_ : int
    feature_names_in_ : array of str
        Where X had names.

    Notes
    -----
    Arrays are of the kind that came in: of PyTorch, JAX or CuPy for an array of theirs on a device,
    NumPy for everything else. Costs O(m² d) for the graph, O(m n²) for the eigenpairs, and
    O(m (k n_init d' + n)) for each k, d' being `n_kmeans_components`; memory O(m (d + n)).

    References
    ----------
    [HD19] S. Hess, W. Duivesteijn: k is the Magic Number. ECML PKDD 2019.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from specialk_gpu import SpecialK
    >>> X, _ = make_blobs(600, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
    >>> model = SpecialK(backend="numpy", random_state=0).fit(X)  # doctest: +SKIP
    >>> model.n_clusters_  # doctest: +SKIP
    3
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "min_clusters": [Interval(Integral, 1, None, closed="left")],
        "max_clusters": [Interval(Integral, 1, None, closed="left")],
        "affinity": [StrOptions({"nearest_neighbors", "radius_neighbors", "precomputed"})],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "coverage": [Interval(Real, 0, 1, closed="right")],
        "weights": [StrOptions(set(WEIGHTS))],
        "metric": [StrOptions(set(METRICS))],
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "n_kmeans_components": [Interval(Integral, 1, None, closed="left"), None],
        "drop_correlated": [Interval(Real, 0, 1, closed="neither"), None],
        "full_path": ["boolean"],
        "selection": [StrOptions(set(SELECTIONS))],
        "n_pairs": [Interval(Integral, 1, None, closed="left"), None],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "eigen_solver": [StrOptions(set(SOLVERS))],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "backend": [StrOptions(set(BACKENDS))],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        alpha: float = 0.01,
        *,
        n_clusters: int | None = None,
        min_clusters: int = 1,
        max_clusters: int = 50,
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 10,
        coverage: float = 0.99,
        weights: str = "connectivity",
        metric: str = "euclidean",
        n_components: int | str = "auto",
        n_kmeans_components: int | None = 50,
        drop_correlated: float | None = None,
        full_path: bool = False,
        selection: str = "calibrated",
        n_pairs: int | None = None,
        n_init: int = 10,
        eigen_solver: str = "auto",
        tol: float = 1e-8,
        backend: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.n_clusters = n_clusters
        self.min_clusters = min_clusters
        self.max_clusters = max_clusters
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.coverage = coverage
        self.weights = weights
        self.metric = metric
        self.n_components = n_components
        self.n_kmeans_components = n_kmeans_components
        self.drop_correlated = drop_correlated
        self.full_path = full_path
        self.selection = selection
        self.n_pairs = n_pairs
        self.n_init = n_init
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.backend = backend
        self.random_state = random_state
        self.verbose = verbose

    embedding_ = _Late()
    affinity_matrix_ = _Late()

    def __sklearn_tags__(self) -> Any:
        """Describe the estimator to scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.affinity == "precomputed"
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.input_tags.positive_only = self.affinity == "precomputed"
        return tags

    def fit(self, X: Any, y: Any = None) -> SpecialK:  # noqa: ARG002 - scikit-learn's signature
        """Find the number of clusters of X and the clusters.

        Parameters
        ----------
        X : array-like of shape (m, d), or of shape (m, m) with affinity="precomputed"
            NumPy, lists, data frames, CuPy, CUDA arrays of other libraries. float32 and
            float64 are kept; short integers become float32, all else float64. Sparse
            matrices only as a precomputed affinity. It is not changed.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If a parameter or X is out of range; the message names it.
        MemoryError
            If W_R does not fit.
        ConvergenceError
            If the eigenpairs could not be verified.
        RuntimeError
            If backend="cuda" and CUDA cannot run.
        """
        self._validate_params()
        if self.min_clusters > self.max_clusters:
            msg = (
                "min_clusters must be at most max_clusters, got "
                f"min_clusters={self.min_clusters}, max_clusters={self.max_clusters}."
            )
            raise ValueError(msg)
        before = dict(vars(self))
        try:
            with followed() if self.verbose else nullcontext():
                return self._fit(X)
        except BaseException:  # an interruption, too, leaves the estimator as it was
            vars(self).clear()
            vars(self).update(before)
            raise

    def _fit(self, X: Any) -> SpecialK:
        bk = get_backend(self.backend, X)
        with bk.device_of(X):
            given = checked(self, bk, X, precomputed=self.affinity == "precomputed")
            return self._fit_checked(bk, given, in_kind_of(X))

    def _fit_checked(self, bk: ModuleType, given: Any, out: Callable[[Any], Any]) -> SpecialK:
        """Run the stages on checked input, then set the fitted attributes, brought `out`."""
        X = to_backend(bk, given)
        rng = check_random_state(self.random_state)
        timings: dict[str, float] = {}
        clock = Clock(bk, timings)

        group = None
        if self.affinity == "precomputed":
            W, radius = affinity_matrix(X), None
            self._check_counts(W.shape[0], "rows")
        else:
            with _memory_explained(bk, "graph"):
                X = in_metric(X, self.metric)
                X, group = without_copies(X, min(self.n_neighbors, X.shape[0] - 1))
                self._check_counts(X.shape[0], "distinct rows" if group is not None else "rows")
                W, radius = self._graph(bk, X)
        clock.stop("graph", f"{W.shape[0]} rows, {W.nnz} edges")
        with _memory_explained(bk, "eigenpairs"):
            pairs = self._eigenpairs(W, rng)
            clock.stop("eigenpairs", f"{pairs.values.size} by {pairs.solver}")
            D = embed(pairs.values, pairs.vectors, drop_correlated=self.drop_correlated)
            pairs = pairs._replace(vectors=None)  # D has what is needed of them
            clock.stop("embedding", f"{D.shape[1]} columns")
        with _memory_explained(bk, "sweep"):
            result = sweep(
                D,
                W=self._bottlenecks(X, W) if self.selection == "calibrated" else None,
                alpha=self.alpha,
                n_clusters=self.n_clusters,
                min_clusters=self.min_clusters,
                max_clusters=self.max_clusters,
                full_path=self.full_path,
                selection=self.selection,
                n_pairs=self.n_pairs,
                n_kmeans_components=self.n_kmeans_components,
                n_init=self.n_init,
                random_state=rng,
            )
        timings.update(result.timings)
        late = OnDevice if out is on_host and bk.name == "cuda" else out
        self._votes = out(result.labels)
        kept = self.get_params(deep=False)
        self._settings = {name: kept[name] for name in kept if name not in NOT_OF_THE_FIT}
        self._distinct = None
        if group is not None:
            self._distinct = out(bk.xp.unique(group, return_index=True)[1])
            given = given[self._distinct] if late is OnDevice else X
            D = D[group]
            result = _spread(result, group)
        self._voters = self._rows_to_vote(given, X, late)
        self.labels_ = out(result.labels)
        self.n_clusters_ = result.n_clusters
        self.path_ = type(result.path)(
            step._replace(labels=out(step.labels)) for step in result.path
        )
        self.limit_reached_ = result.limit_reached
        self.eigenvalues_ = out(pairs.values)
        self.residuals_ = out(pairs.residuals)
        self.embedding_ = late(D)
        self.affinity_matrix_ = late(W)
        self.radius_ = radius
        self.n_graph_components_ = pairs.n_components
        self.eigen_solver_ = pairs.solver
        self.backend_ = bk.name
        self.timings_ = timings
        return self

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
            votes, k = _brought(bk, self._votes), self.n_clusters_
            if precomputed:
                D = _brought(bk, vars(self)["embedding_"])
                shares = shares_of_similarities(rows, D, votes, k)
            else:
                voters = _brought(bk, self._voters)
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
            `specialk_gpu.storage`.

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
    def load(cls, path: Any) -> SpecialK:
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
        from specialk_gpu.report import report

        report(self, path, X=X, image_shape=image_shape, source=source)

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle keeps: with all arrays on the host, for machines without a GPU."""
        return {name: on_host(value) for name, value in super().__getstate__().items()}

    def _rows_to_vote(self, given: Any, X: Any, late: Callable[[Any], Any]) -> Any:
        """Return the rows that vote on new ones: `given` on the host, where X has the same."""
        if self.affinity == "precomputed":
            return None
        return given if late is OnDevice and self.metric == "euclidean" else late(X)

    def _check_counts(self, m: int, rows: str) -> None:
        """Refuse more clusters than rows before any work is done."""
        for name in ("n_clusters", "min_clusters"):
            value = getattr(self, name)
            if value is not None and value > m and (name == "n_clusters" or not self.n_clusters):
                msg = f"{name} must lie between 1 and the number of {rows} ({m}), got {value}."
                raise ValueError(msg)

    def _graph(self, bk: ModuleType, X: Any) -> tuple[Any, float | None]:
        """Build W_C, or W_R and its radius."""
        n_neighbors, m = self.n_neighbors, X.shape[0]
        if m == 1:  # all rows are equal: one row, joined to nothing
            return bk.sparse.csr_matrix(bk.xp.ones((1, 1))), None
        if n_neighbors >= m:
            warnings.warn(
                f"n_neighbors={n_neighbors} is not below the number of rows to join, {m}: "
                f"using {m - 1}.",
                GraphWarning,
                stacklevel=5,
            )
            n_neighbors = m - 1
        if self.affinity == "nearest_neighbors":
            return knn_graph(X, n_neighbors, weights=self.weights), None
        return radius_graph(X, n_neighbors, coverage=self.coverage)

    def _bottlenecks(self, X: Any, W: Any) -> Bottlenecks:
        """Return where bottlenecks are looked for: the law of their p knows nearest neighbours."""
        if self.affinity == "precomputed" or W.shape[0] == 1:
            return Bottlenecks(W)
        known = (self.affinity, self.weights) == ("nearest_neighbors", "connectivity")
        return Bottlenecks(W if known and NEAR <= self.n_neighbors < WIDE else None, X)

    def _eigenpairs(self, W: Any, rng: Any) -> Eigenpairs:
        """Compute the eigenpairs, and say what is noteworthy about the graph."""
        m = W.shape[0]
        wanted = self.n_components
        if wanted == "auto":
            wanted = 200 if m < 5000 else 1000
        n = max(1, min(int(wanted), m - 1))
        own = deepcopy(rng)  # so that k-means draws the same, however much a solver draws
        pairs = eigenpairs(W, n, solver=self.eigen_solver, tol=self.tol, random_state=own)
        n_isolated = m - int((W.indptr[1:] > W.indptr[:-1]).astype(np.int64).sum())
        if n_isolated:
            warnings.warn(
                f"{n_isolated} of {m} rows are isolated: they have no edge in the graph, their "
                "embedding is zero, and their labels mean nothing.",
                GraphWarning,
                stacklevel=5,
            )
        elif pairs.n_components > 1:
            warnings.warn(
                f"the graph has {pairs.n_components} connected components. Each is embedded "
                "apart; components smaller than 1/n of the rows may not be told apart.",
                GraphWarning,
                stacklevel=5,
            )
        if not pairs.converged:
            if not pairs.complete or float(pairs.residuals.max()) > 1e3 * self.tol:
                msg = f"the eigenpairs could not be verified. {pairs.message}"
                raise ConvergenceError(msg)
            warnings.warn(pairs.message, ConvergenceWarning, stacklevel=5)
        return pairs


@contextmanager
def _memory_explained(bk: ModuleType, stage: str) -> Iterator[None]:
    """Say of a MemoryError from below where it arose, what is free, and what to change."""
    try:
        yield
    except MemoryError as error:
        if error.args and type(error) is MemoryError and error.__cause__ is None:
            raise  # this library's, before anything was taken: it says all that
        msg = (
            f"{stage}: {error or 'an allocation failed'}. {bk.free_memory():,} bytes are free. "
            f"{REMEDIES[stage]}"
        )
        raise MemoryError(msg) from error


def _brought(bk: ModuleType, fitted: Any) -> Any:
    """Return a fitted array on the backend: what is there already is not moved."""
    if isinstance(fitted, OnDevice) and bk.name == "cuda":
        return fitted.array
    return on_host(fitted) if bk.name == "numpy" else bk.asarray(fitted)


def _in_dtype(X: Any, dtype: Any) -> Any:
    """Return X in the dtype of the fitted rows, if that loses nothing, else as it is."""
    with np.errstate(over="ignore"):
        converted = X.astype(dtype, copy=False)
    return converted if bool((converted == X).all()) else X


def _spread(result: Any, group: Any) -> Any:
    """Give every copy the label of its row."""
    steps = type(result.path)(step._replace(labels=step.labels[group]) for step in result.path)
    return result._replace(labels=result.labels[group], path=steps)
