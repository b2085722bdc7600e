"""The estimator `SpecialK`: its parameters and `fit`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags, check_random_state

from specialk_gpu._affinities import is_graph
from specialk_gpu._callbacks import WithCallbacks
from specialk_gpu._fit import (
    fit_by_cut,
    fit_by_zz_top,
    graphs_to_cut,
)
from specialk_gpu._fit_limits import checkpoint_of_fit, memory_limit_of_fit
from specialk_gpu._graph_of_fit import graph_of_fit, warn_of_graph
from specialk_gpu._host import OnDevice, on_host
from specialk_gpu._model import NOT_OF_THE_FIT, FittedModel
from specialk_gpu._parameters import (
    CONSTRAINTS,
    check_parameter_limits,
    checked_parameters,
    significance_level,
    warn_of_idle_parameters,
)
from specialk_gpu._progress import ProgressClock, show_progress
from specialk_gpu._time_limit import time_limited
from specialk_gpu._validation import output_converter, validate_input, validated_on_backend
from specialk_gpu.backend import get_backend
from specialk_gpu.backend.typing import Backend, Matrix, Seed
from specialk_gpu.graph.neighbor_lists import word_for_neighbors

__all__ = ["SpecialK"]


class SpecialK(FittedModel, WithCallbacks, ClusterMixin, BaseEstimator):
    r"""Spectral clustering that finds the number of clusters k; k = 1 is a possible answer.

    `fit` builds a neighbour graph W of the m rows and computes its n leading eigenpairs. One of
    two rules then finds k. By default the graph is cut into fragments (parts smaller than any
    cluster), and the two least separate are merged until the cut test finds a clear gap between
    every two clusters. ``criterion="zz_top"`` is the paper's algorithm, SpecialK [HD19]: k-means
    on the embedding :math:`D = |V||\Lambda|^{1/2}` for k = 2, 3, ..., until the ZZ Top Bound of
    a pair of clusters exceeds `alpha`.

    Parameters
    ----------
    alpha : float, default=None
        Significance level, in (0, 1). None means 0.05 for the cut test and 0.01, as in [HD19], for
        the ZZ Top Bound. For the cut test, `alpha` is meant to be the largest share of data sets
        of one cluster that are split.
    n_clusters : int, default=None
        If given, find exactly this many clusters and skip the test.
    min_clusters, max_clusters : int, default=1 and None
        Bounds on k. None means as many as the rows allow; for criterion="zz_top" it means 50. If
        the search ends at `max_clusters`, it warns and sets `limit_reached_`.
    criterion : {"cut", "zz_top"}, default="cut"
        The rule that decides: the cut test (see ``specialk_gpu.selection.cut_test``), or the ZZ
        Top Bound with all settings of the paper.
    stopping : {"first", "watershed"}, default="first"
        For criterion="zz_top". "first" takes the k before the first rejected one; "watershed"
        takes the last k before the largest drop in certainty (1 minus the bound).
    affinity : str, default="nearest_neighbors"
        The graph: "nearest_neighbors" is the normalised graph W_C of nearest neighbours,
        "radius_neighbors" the graph W_R of all pairs within a radius. "precomputed" means that X is
        a symmetric matrix of similarities, and "precomputed_nearest_neighbors" that it is a sparse
        matrix of distances, as scikit-learn's KNeighborsTransformer returns it: W_C is built from
        the `n_neighbors` nearest of each row.
    n_neighbors : int, default=10
        Neighbours of each row; for W_R the number that `coverage` of the rows must have. The cut
        test looks for gaps in W_C if that has 10 to 29 neighbours, otherwise in a graph of 10; and
        also in a graph of 30.
    neighbors : {"exact", "approximate"}, tuple or transformer, default="exact"
        Where the neighbours come from. "approximate" searches with pynndescent. A tuple is
        (indices, distances), each of shape (m, n), from any library; a negative index means none.
        A transformer, such as scikit-learn's KNeighborsTransformer, gets X as a NumPy array; its
        n_neighbors is set. Lists may be in any order and hold the row itself. Distances are
        computed again. Lists that are too short are completed by the neighbours of the neighbours.
    min_recall : float, default=0.95
        If `recall_`, or the recall of the 30 neighbours for the cut test, is smaller, a
        GraphWarning says so.
    coverage : float, default=0.99
        For W_R: the share of rows that have `n_neighbors` other rows within the radius.
    weights : {"connectivity", "distance"}, default="connectivity"
        Entries of W_C before it is normalised: ones or distances.
    normalize : bool, default=False
        For affinity="precomputed": divide each similarity by the square roots of the degrees (sums
        of similarities) of its two rows. Do so if degrees differ much, as in a graph with hubs.
    metric : {"euclidean", "cosine"}
        Distance between rows. "cosine" first scales each row to length 1. For other metrics, pass
        a precomputed graph.
    n_components : int or "auto", default="auto"
        The number of eigenpairs, n, at most m - 1. "auto" takes as many as there are fragments;
        for criterion="zz_top" it takes 200 below 5,000 rows and 1,000 from there on. The more
        eigenpairs, the finer the splits that the ZZ Top Bound accepts.
    n_kmeans_components : int or None, default=50
        For criterion="zz_top": k-means uses this many columns of D, those of largest norm; None
        means all. The bound always uses all columns.
    drop_correlated : float, default=None
        If given, drop each column of D whose absolute Spearman correlation with a column of larger
        eigenvalue exceeds this number.
    full_path : bool, default=False
        Whether the path continues to `max_clusters` after the decision.
    n_pairs : int, default=None
        For criterion="zz_top": compute the bound only for this many pairs, those of highest cut.
        None means all pairs.
    n_init : int, default=10
        For criterion="zz_top": restarts of k-means for each k. Each round of swaps after them
        tries a third as many swaps; 1 means no swaps.
    noise : float or bool, default=None
        Rows whose `outlier_scores_` exceed this number (at least 1; True means 4) are labelled -1,
        also by `predict`. They take part in the fit: nothing but the labels changes.
    eigen_solver : {"auto", "dense", "lanczos", "chebyshev"}, default="auto"
        See `specialk_gpu.eigenpairs`.
    tol : float, default=1e-8
        Largest residual of an eigenpair, relative to the largest magnitude of an eigenvalue.
    backend : {"auto", "numpy", "cuda"}, default="auto"
        Where to compute. "auto" uses CUDA if a device is available, otherwise NumPy. `backend_`
        says which one was used.
    time_limit : float, default=None
        If given, `fit` ends soon after this many seconds with the clusters that it has tested by
        then. A `TimeLimitWarning` and the path say so. If none were tested, it raises a
        TimeoutError. Below the limit, it changes nothing.
    memory_limit : int or str, default=None
        Bytes, or a size such as "4GB", on the host. Arrays with a column for each eigenvector or
        fragment that would take more than a sixteenth of it are kept in temporary files, and the
        result is the same. It does not limit the graph and the rest of a fit, which must fit.
    checkpoint : str or path, default=None
        A folder for finished steps of `fit`. If a fit is killed, the same fit (same data,
        parameters and `random_state`, which must be an integer) goes on after the last one. Vectors
        are kept after each round of "chebyshev". They are removed when the fit has come to its end,
        not if `time_limit` cut it short. Two fits at once cannot share them.
    random_state : int, RandomState or None, default=None
        Seed for the start vectors and starting centres, which are drawn on the host.
    verbose : int, default=0
        Above 0, each stage is logged at level INFO by the logger "specialk_gpu" (to standard error
        if logging is not set up), with a bar for the whole fit (needs tqdm) or a line a minute.

    Attributes
    ----------
    labels_ : int32 array of shape (m,)
        Labels 0, ..., `n_clusters_` - 1; cluster 0 is the largest; with `noise`, outliers are -1.
        If duplicates crowd out a row's neighbours, they share one label and count once in the size
        of a cluster, and a warning says so. The label of an isolated row means nothing; for
        criterion="zz_top" it is that of the centre nearest to the origin of D.
    n_clusters_ : int
    path_ : SelectionPath of Candidate
        One row for each k: `k, log_p, pair, accepted, reason, labels`; also `log_p_level` for
        criterion="cut", or `log_zz_top, inertia` for "zz_top". `path_.to_frame()` returns a
        DataFrame, and `print(model.path_)` prints a table.
    tree_ : Tree
        For criterion="cut": `leaf` (m,), `children` (K - 1, 2) and `log_p` (K,), laid out as in
        AgglomerativeClustering. ``tree_.to_linkage()`` returns scipy's linkage matrix.
    membership_ : float64 array of shape (m, k)
        For each row, the share of lazy random walks of ten steps that end in each cluster.
    outlier_scores_ : float64 array of shape (m,)
        The distance of each row to the last of its `n_neighbors` neighbours, over the median of
        this distance in its cluster: 1 is usual. Computed when read; not for a given graph.
    eigenvalues_ : float64 array of shape (n,)
        In order of falling magnitude.
    embedding_ : float64 array of shape (m, n)
        The embedding D.
    affinity_matrix_ : csr_matrix of shape (m, m), or (u, u)
        The graph W. If duplicates crowd out neighbours, it has the u distinct rows only, and some
        copies of those that are far from all others.
    residuals_ : float64 array of shape (n,)
        ``‖Wv - λv‖ / max |λ|`` of each eigenpair.
    radius_ : float or None
        The radius ε of W_R.
    recall_ : Recall or None
        The share of each row's `n_neighbors` nearest that `neighbors` holds: `value`, a 95 %
        interval from `low` to `high`, and the number of rows `n_rows` on which it was measured by
        an exact search. None if the search was exact, or X is a graph.
    n_graph_components_ : int
        The number of connected components of W.
    limit_reached_ : bool
        Whether the search ended at `max_clusters`.
    timings_ : dict of str to float
        The seconds that each stage took.
    backend_ : str
        "numpy" or "cuda".
    eigen_solver_ : str
        The solver used for the largest component.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only if X had column names.

    Notes
    -----
    For a PyTorch, JAX or CuPy array on a device, fitted arrays are of the same library; for any
    other input they are NumPy arrays. Costs: O(m² d) for the graph and O(m n²) for the eigenpairs.
    The cut test adds O(m K²) for K fragments and O(K) sorts of their rows for merging;
    criterion="zz_top" adds O(m (k n_init d' + n)) for each k instead, where d' is
    `n_kmeans_components`. Memory: O(m (d + n)).

    References
    ----------
    [HD19] S. Hess, W. Duivesteijn: k is the Magic Number. ECML PKDD 2019.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from specialk_gpu import SpecialK
    >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
    >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
    >>> model.n_clusters_
    3
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS

    def __init__(
        self,
        *,
        alpha: float | None = None,
        n_clusters: int | None = None,
        min_clusters: int = 1,
        max_clusters: int | None = None,
        criterion: str = "cut",
        stopping: str = "first",
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 10,
        neighbors: Any = "exact",
        min_recall: float = 0.95,
        coverage: float = 0.99,
        weights: str = "connectivity",
        normalize: bool = False,
        metric: str = "euclidean",
        n_components: int | str = "auto",
        n_kmeans_components: int | None = 50,
        drop_correlated: float | None = None,
        full_path: bool = False,
        n_pairs: int | None = None,
        n_init: int = 10,
        noise: float | bool | None = None,
        eigen_solver: str = "auto",
        tol: float = 1e-8,
        backend: str = "auto",
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        checkpoint: Any = None,
        random_state: Seed = None,
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
        self.neighbors = neighbors
        self.min_recall = min_recall
        self.coverage = coverage
        self.weights = weights
        self.normalize = normalize
        self.metric = metric
        self.n_components = n_components
        self.n_kmeans_components = n_kmeans_components
        self.drop_correlated = drop_correlated
        self.full_path = full_path
        self.n_pairs = n_pairs
        self.n_init = n_init
        self.noise = noise
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.backend = backend
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        """Describe the estimator to scikit-learn."""
        tags = super().__sklearn_tags__()
        graph = is_graph(self.affinity)
        tags.input_tags.sparse = tags.input_tags.pairwise = tags.input_tags.positive_only = graph
        return tags

    def fit(self, X: Matrix, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Find the number of clusters in X, and the clusters.

        Parameters
        ----------
        X : array-like of shape (m, d), or of shape (m, m) for a graph
            A NumPy or CuPy array, a list, a data frame, or a CUDA array of another library.
            float32 and float64 are kept; short integers become float32, everything else
            float64. A sparse matrix is accepted only for a graph. X is not changed.
        y : object
            Ignored; scikit-learn passes it.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            If a parameter or X is not valid; the message names it.
        MemoryError
            If the eigenvectors or W_R do not fit into memory.
        TimeoutError
            If `time_limit` passed before any number of clusters was tested.
        OSError
            If a checkpoint cannot be written, or another fit uses it.
        ConvergenceError
            If the eigenpairs could not be verified.
        RuntimeError
            If backend="cuda" but CUDA cannot run.
        """
        self._validate_params()
        check_parameter_limits(parameters := checked_parameters(self))
        warn_of_idle_parameters(self)
        before = dict(vars(self))
        try:
            shown = show_progress() if self.verbose else nullcontext()
            with shown, time_limited(parameters.time_limit):
                return self._tell_callbacks(self._fit, X)
        except BaseException:  # any failure or interruption leaves the estimator as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Matrix) -> Self:
        bk = get_backend(self.backend, X)
        parameters = checked_parameters(self)
        with bk.device_of(X), memory_limit_of_fit(parameters, bk):
            given = validate_input(self, bk, X, precomputed=is_graph(self.affinity))
            with checkpoint_of_fit(parameters, bk, given):
                return self._fit_checked(bk, given, output_converter(X))

    def _fit_checked(self, bk: Backend, given: Any, out: Callable[[Any], Any]) -> Self:
        """Run the stages on checked input; set the fitted attributes, converted by `out`."""
        X, parameters = validated_on_backend(bk, given), checked_parameters(self)
        rng = check_random_state(self.random_state)
        timings: dict[str, float] = {}
        clock = ProgressClock(bk, timings)

        W, radius, rows, first, group, spacing, recall = graph_of_fit(parameters, bk, X)
        X = X if rows is None else rows.X
        clock.stop("graph", f"{W.shape[0]} rows, {W.nnz} edges")
        warn_of_graph(parameters, W)
        if self.criterion == "cut":
            found = fit_by_cut(parameters, bk, graphs_to_cut(parameters, rows, W), W, rng, clock)
        else:
            found = fit_by_zz_top(parameters, bk, rows, W, rng, clock)
        self.__dict__.pop("preparation_", None)  # of an earlier fit, by the command line
        late = OnDevice if out is on_host and bk.name == "cuda" else out
        given_to_fit = vars(parameters).items()
        self._settings = {name: v for name, v in given_to_fit if name not in NOT_OF_THE_FIT}
        self._settings["neighbors"] = word_for_neighbors(self.neighbors)
        self._settings["alpha"] = significance_level(parameters)
        self._distinct, own = None, found.labels
        if group is not None:
            self._distinct = OnDevice(first, out(first)) if late is OnDevice else out(first)
            given = given[on_host(self._distinct)] if late is OnDevice else X
            found, spacing = found.spread(group), None if spacing is None else spacing[group]
            own = found.labels[first]
        self._fit_labels = OnDevice(own, out(own)) if late is OnDevice else out(own)
        self._fit_X = self._rows_for_predict(given, X, late)
        self.labels_ = out(found.labels)
        self.n_clusters_ = int(found.n_clusters)
        self.path_ = out(found.path) if out is on_host else found.path.with_labels(out)
        self._tree = None if found.tree is None else found.tree._replace(leaf=out(found.tree.leaf))
        self.membership_ = late(found.membership)
        self._spacing = None if spacing is None else late(spacing)
        self.limit_reached_ = found.limit_reached
        self.eigenvalues_ = out(found.pairs.values)
        self.residuals_ = out(found.pairs.residuals)
        self.embedding_ = late(found.D)
        self.affinity_matrix_ = late(W)
        self.radius_, self.n_graph_components_ = radius, found.pairs.n_components
        self.recall_ = recall
        self.eigen_solver_, self.backend_ = found.pairs.solver, bk.name
        self.timings_ = timings
        self._mark_outliers()
        return self
