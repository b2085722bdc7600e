"""The estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from numbers import Integral, Real
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from specialk_gpu import __version__
from specialk_gpu._prediction import shares_of_neighbors, shares_of_similarities
from specialk_gpu._progress import Clock, followed
from specialk_gpu._storage import OnDevice, load, on_host, save
from specialk_gpu._validation import checked, in_kind_of, to_backend
from specialk_gpu._warn import warn
from specialk_gpu.backend import BACKENDS, get_backend, is_device_array
from specialk_gpu.graph.affinity import (
    METRICS,
    WEIGHTS,
    GraphWarning,
    affinity_matrix,
    in_metric,
    knn_graph,
    radius_graph,
)
from specialk_gpu.graph.duplicates import without_copies
from specialk_gpu.selection.cut_test import NEAR, WIDE, CutGraphs
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.search import membership, search
from specialk_gpu.selection.sweep import STOPPING, sweep
from specialk_gpu.spectrum.chebyshev import ConvergenceError
from specialk_gpu.spectrum.eigenpairs import SOLVERS, Eigenpairs, eigenpairs
from specialk_gpu.spectrum.embedding import embed

__all__ = ["SpecialK"]

REMEDIES = {
    "graph": "Cluster a sample of the rows, or pass X in float32.",
    "eigenpairs": "Ask for fewer eigenvectors (n_components), or cluster a sample of the rows.",
    "sweep": "Lower n_init, n_kmeans_components or max_clusters.",
    "search": "Cluster a sample of the rows.",
}


NOT_OF_THE_FIT = ("random_state", "verbose")  # parameters that say nothing about a result
LEVELS = {"cut": 0.05, "zz_top": 0.01}  # alpha by default
KEPT = ("_voters", "_votes", "_distinct", "_settings", "_tree")  # beside what ends in an underscore


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
    r"""Spectral clustering that finds the number of clusters, one included.

    Builds a neighbour graph W and takes its leading eigenpairs. By default the graph is cut into
    fragments finer than any answer, and the least separate two are merged until a test finds a
    clear gap between every two clusters. ``criterion="zz_top"`` is SpecialK [HD19] whole: k-means
    on :math:`D = |V||\Lambda|^{1/2}` for k = 2, 3, ..., until the ZZ Top Bound of a pair of
    clusters exceeds `alpha`.

    Parameters
    ----------
    alpha : float, default=None
        Level of the test, in (0, 1). None is 0.05 for the cut test, where it is meant to be the
        largest share of sets of one cluster that are split; and 0.01 for the ZZ Top Bound, as in
        [HD19].
    n_clusters : int, default=None
        Find so many clusters and skip the test.
    min_clusters, max_clusters : int, default=1 and None
        Bounds on k. None is as many as the rows allow, for criterion="zz_top" 50. Ending at the
        largest warns and sets `limit_reached_`.
    criterion : {"cut", "zz_top"}, default="cut"
        What decides: the cut test (see ``specialk_gpu.selection.cut_test``), or the ZZ Top Bound
        with all settings of the paper.
    stopping : {"first", "watershed"}, default="first"
        For criterion="zz_top": the k before the first rejected one; or the last k before the
        largest drop in the bound's certainty.
    affinity : {"nearest_neighbors", "radius_neighbors", "precomputed"}
        W_C, the normalised graph of the nearest neighbours (default); W_R, the graph of all
        pairs within a radius; or X is itself a symmetric matrix of similarities.
    n_neighbors : int, default=10
        Neighbours of each row; for W_R those that `coverage` of the rows must have. Gaps are
        looked for in this graph if it is of 10 to 29, else in that of 10, and in that of 30.
    coverage : float, default=0.99
        For W_R: share of the rows with `n_neighbors` others within the radius.
    weights : {"connectivity", "distance"}, default="connectivity"
        Entries of W_C before it is normalised.
    metric : {"euclidean", "cosine"}
        Distance between rows; "cosine" scales them to length 1 first. For others, precompute.
    n_components : int or "auto", default="auto"
        n, the number of eigenpairs. "auto" is as many as there are fragments, and for
        criterion="zz_top" 200 below 5,000 rows and 1,000 from there on: the more, the finer the
        splits that the bound accepts. Never more than m - 1.
    n_kmeans_components : int or None, default=50
        For criterion="zz_top": columns of D, those of largest norm, that k-means sees; None for
        all. The bound takes all.
    drop_correlated : float, default=None
        Drop columns of D whose Spearman correlation with a larger one exceeds it.
    full_path : bool, default=False
        Whether the path goes on to `max_clusters` after the decision.
    n_pairs : int, default=None
        For criterion="zz_top": compute the bound of the pairs of highest cut only; None for all.
    n_init : int, default=10
        For criterion="zz_top": restarts of k-means for each k, and three times the swaps in each
        round after them; 1 goes without swaps.
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
        its label wherever they crowd out its neighbours (a warning says so), and count once in the
        size of the cluster. Labels of isolated
        rows mean nothing: for criterion="zz_top", that of the centre nearest to the origin of D.
    n_clusters_ : int
    path_ : Path of Step
        One row for each k: `k, log_p, pair, accepted, reason, labels`, and `log_p_level` for
        criterion="cut", `log_zz_top, inertia` for "zz_top"; `path_.to_frame()` gives a DataFrame,
        `print(model.path_)` a table.
    tree_ : Tree
        For criterion="cut": `leaf` (m,), `children` (K - 1, 2) and `log_p` (K,), as in
        AgglomerativeClustering; ``tree_.to_linkage()`` is scipy's.
    membership_ : float64 array of shape (m, k)
        Share of the lazy walks of ten steps from each row that end in each cluster.
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
    NumPy for everything else. Costs O(m² d) for the graph, O(m n²) for the eigenpairs, O(m K²) for
    K fragments and O(K) sorts of their rows for merging; for criterion="zz_top" instead
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
        "alpha": [Interval(Real, 0, 1, closed="neither"), None],
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "min_clusters": [Interval(Integral, 1, None, closed="left")],
        "max_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "criterion": [StrOptions({"cut", "zz_top"})],
        "stopping": [StrOptions(set(STOPPING))],
        "affinity": [StrOptions({"nearest_neighbors", "radius_neighbors", "precomputed"})],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "coverage": [Interval(Real, 0, 1, closed="right")],
        "weights": [StrOptions(set(WEIGHTS))],
        "metric": [StrOptions(set(METRICS))],
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "n_kmeans_components": [Interval(Integral, 1, None, closed="left"), None],
        "drop_correlated": [Interval(Real, 0, 1, closed="neither"), None],
        "full_path": ["boolean"],
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
        alpha: float | None = None,
        *,
        n_clusters: int | None = None,
        min_clusters: int = 1,
        max_clusters: int | None = None,
        criterion: str = "cut",
        stopping: str = "first",
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 10,
        coverage: float = 0.99,
        weights: str = "connectivity",
        metric: str = "euclidean",
        n_components: int | str = "auto",
        n_kmeans_components: int | None = 50,
        drop_correlated: float | None = None,
        full_path: bool = False,
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
        self.criterion = criterion
        self.stopping = stopping
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.coverage = coverage
        self.weights = weights
        self.metric = metric
        self.n_components = n_components
        self.n_kmeans_components = n_kmeans_components
        self.drop_correlated = drop_correlated
        self.full_path = full_path
        self.n_pairs = n_pairs
        self.n_init = n_init
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.backend = backend
        self.random_state = random_state
        self.verbose = verbose

    embedding_ = _Late()
    affinity_matrix_ = _Late()
    membership_ = _Late()

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
        self._check_limits()
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
        self._warn_of_graph(W)
        if self.criterion == "cut":
            found = self._by_cut(bk, self._cut_graphs(X, W), W, rng, clock)
        else:
            found = self._by_zz_top(bk, W, rng, clock)
        late = OnDevice if out is on_host and bk.name == "cuda" else out
        self._votes = out(found.labels)
        if late is OnDevice:
            self._votes = OnDevice(found.labels, self._votes)
        kept = self.get_params(deep=False)
        self._settings = {name: kept[name] for name in kept if name not in NOT_OF_THE_FIT}
        self._settings["alpha"] = self._level
        self._distinct = None
        if group is not None:
            self._distinct = out(bk.xp.unique(group, return_index=True)[1])
            given = given[self._distinct] if late is OnDevice else X
            found = found.spread(group)
        self._voters = self._rows_to_vote(given, X, late)
        self.labels_ = out(found.labels)
        self.n_clusters_ = int(found.n_clusters)
        self.path_ = found.path.with_labels(out)
        self._tree = None if found.tree is None else found.tree._replace(leaf=out(found.tree.leaf))
        self.membership_ = late(found.membership)
        self.limit_reached_ = found.limit_reached
        self.eigenvalues_ = out(found.pairs.values)
        self.residuals_ = out(found.pairs.residuals)
        self.embedding_ = late(found.D)
        self.affinity_matrix_ = late(W)
        self.radius_ = radius
        self.n_graph_components_ = found.pairs.n_components
        self.eigen_solver_ = found.pairs.solver
        self.backend_ = bk.name
        self.timings_ = timings
        return self

    def _by_cut(self, bk: ModuleType, graphs: CutGraphs, W: Any, rng: Any, clock: Clock) -> _Fit:
        """Find clusters by the cut test."""
        m = W.shape[0]
        seeds = rng.randint(np.iinfo(np.int32).max, size=2).tolist()
        known: dict[int, Eigenpairs] = {}

        def pairs_of(n: int) -> Eigenpairs:
            n = n if self.n_components == "auto" else int(self.n_components)
            n = max(1, min(n, m - 1))
            if n not in known:
                fewer = known.popitem()[1] if known else None
                with _memory_explained(bk, "eigenpairs"):
                    known[n] = self._eigenpairs(W, n, seeds[0], fewer)
                    clock.stop("eigenpairs", f"{n} by {known[n].solver}")
            return known[n]

        with _memory_explained(bk, "search"):
            found = search(
                graphs,
                pairs_of,
                clock,
                alpha=self._level,
                n_clusters=self.n_clusters,
                min_clusters=self.min_clusters,
                max_clusters=self.max_clusters,
                full_path=self.full_path,
                seed=seeds[1],
            )
        pairs = found.eigenpairs
        D = embed(pairs.values, pairs.vectors, drop_correlated=self.drop_correlated)
        return _Fit(
            found.n_clusters,
            found.labels,
            found.membership,
            found.tree,
            found.path,
            found.limit_reached,
            pairs._replace(vectors=None),
            D,
        )

    @property
    def _level(self) -> float:
        return LEVELS[self.criterion] if self.alpha is None else self.alpha

    def _by_zz_top(self, bk: ModuleType, W: Any, rng: Any, clock: Clock) -> _Fit:
        """Find clusters as [HD19, Algorithm 1] does."""
        m, n = W.shape[0], self.n_components
        if n == "auto":
            n = 200 if m < 5000 else 1000
        with _memory_explained(bk, "eigenpairs"):
            pairs = self._eigenpairs(W, max(1, min(int(n), m - 1)), rng)
            clock.stop("eigenpairs", f"{pairs.values.size} by {pairs.solver}")
            D = embed(pairs.values, pairs.vectors, drop_correlated=self.drop_correlated)
            pairs = pairs._replace(vectors=None)  # D has what is needed of them
            clock.stop("embedding", f"{D.shape[1]} columns")
        self._warn_of_components(W, pairs)
        with _memory_explained(bk, "sweep"):
            found = sweep(
                D,
                alpha=self._level,
                n_clusters=self.n_clusters,
                min_clusters=self.min_clusters,
                max_clusters=50 if self.max_clusters is None else self.max_clusters,
                full_path=self.full_path,
                stopping=self.stopping,
                n_pairs=self.n_pairs,
                n_kmeans_components=self.n_kmeans_components,
                n_init=self.n_init,
                random_state=rng,
            )
        clock.timings.update(found.timings)
        shares = membership(W, found.labels, found.n_clusters)
        return _Fit(
            found.n_clusters,
            found.labels,
            shares,
            None,
            found.path,
            found.limit_reached,
            pairs,
            D,
        )

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

    def _rows_to_vote(self, given: Any, X: Any, late: Callable[[Any], Any]) -> Any:
        """Return the rows that vote on new ones, with those `given` where they are the same."""
        if self.affinity == "precomputed":
            return None
        return OnDevice(X, given) if late is OnDevice and self.metric == "euclidean" else late(X)

    def _check_limits(self) -> None:
        """Refuse numbers of clusters that contradict each other."""
        k, least = self.n_clusters, self.min_clusters
        most = np.inf if self.max_clusters is None else self.max_clusters
        if least > most:
            msg = (
                "min_clusters must be at most max_clusters, got "
                f"min_clusters={least}, max_clusters={most}."
            )
            raise ValueError(msg)
        if k is not None and not least <= k <= most:
            msg = (
                "n_clusters must lie between min_clusters and max_clusters, got "
                f"n_clusters={k}, min_clusters={least}, max_clusters={self.max_clusters}."
            )
            raise ValueError(msg)

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
            warn(
                f"n_neighbors={n_neighbors} is not below the number of rows to join, {m}: "
                f"using {m - 1}.",
                GraphWarning,
            )
            n_neighbors = m - 1
        if self.affinity == "nearest_neighbors":
            return knn_graph(X, n_neighbors, weights=self.weights), None
        return radius_graph(X, n_neighbors, coverage=self.coverage)

    def _cut_graphs(self, X: Any, W: Any) -> CutGraphs:
        """Return where gaps are looked for: the law of their p knows nearest neighbours."""
        if self.affinity == "precomputed" or W.shape[0] == 1:
            return CutGraphs(W)
        known = (self.affinity, self.weights) == ("nearest_neighbors", "connectivity")
        return CutGraphs(W if known and NEAR <= self.n_neighbors < WIDE else None, X)

    def _warn_of_graph(self, W: Any) -> None:
        """Say what is noteworthy about the graph."""
        m = W.shape[0]
        n_isolated = m - int((W.indptr[1:] > W.indptr[:-1]).astype(np.int64).sum())
        if n_isolated:
            what = "their embedding is zero"
            if self.criterion == "zz_top" or self.affinity == "precomputed":
                what += ", and their labels mean nothing"  # else the cut test's own graph has them
            warn(
                f"{n_isolated} of {m} rows are isolated: they have no edge in the graph, and "
                f"{what}.",
                GraphWarning,
            )

    def _warn_of_components(self, W: Any, pairs: Eigenpairs) -> None:
        """Say that the graph falls apart, where D has few columns for each component."""
        if pairs.n_components > 1 and bool((W.indptr[1:] > W.indptr[:-1]).all()):
            warn(
                f"the graph falls into {pairs.n_components} separate components, which is normal "
                "for well-separated clusters. Each is embedded by itself; those smaller than 1/n "
                "of the rows may not be told apart.",
                GraphWarning,
            )

    def _eigenpairs(
        self, W: Any, n: int, random_state: Any, known: Eigenpairs | None = None
    ) -> Eigenpairs:
        """Compute n eigenpairs, and say if they could not be verified."""
        settings = {"solver": self.eigen_solver, "tol": self.tol}
        pairs = eigenpairs(W, n, random_state=random_state, known=known, **settings)
        if not pairs.converged:
            if not pairs.complete or float(pairs.residuals.max()) > 1e3 * self.tol:
                msg = f"the eigenpairs could not be verified. {pairs.message}"
                raise ConvergenceError(msg)
            warn(pairs.message, ConvergenceWarning)
        return pairs


@contextmanager
def _memory_explained(bk: ModuleType, stage: str) -> Iterator[None]:
    """Say of a MemoryError from below where it arose, what is free, and what to change."""
    try:
        yield
    except MemoryError as error:
        if error.args and type(error) is MemoryError and error.__cause__ is None:
            raise  # this library's, before anything was taken: it says all that
        if str(error).startswith(tuple(f"{name}: " for name in REMEDIES)):
            raise  # of a stage within this one
        msg = (
            f"{stage}: {error or 'an allocation failed'}. {bk.free_memory():,} bytes are free. "
            f"{REMEDIES[stage]}"
        )
        raise MemoryError(msg) from error


def _in_dtype(X: Any, dtype: Any) -> Any:
    """Return X in the dtype of the fitted rows, if that loses nothing, else as it is."""
    with np.errstate(over="ignore"):
        converted = X.astype(dtype, copy=False)
    return converted if bool((converted == X).all()) else X


class _Fit(NamedTuple):
    """What a fit has found, on the backend."""

    n_clusters: int
    labels: Any
    membership: Any
    tree: Tree | None
    path: Any
    limit_reached: bool
    pairs: Eigenpairs
    D: Any

    def spread(self, group: Any) -> _Fit:
        """Give every copy what its row has."""
        tree = None if self.tree is None else self.tree.spread(group)
        return self._replace(
            labels=self.labels[group],
            membership=self.membership[group],
            tree=tree,
            path=self.path.with_labels(lambda labels: labels[group]),
            D=self.D[group],
        )
