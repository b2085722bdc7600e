"""The stages of a fit: graph, eigenpairs, and one of two rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState
from sklearn.exceptions import ConvergenceWarning

from specialk_gpu._parameters import Parameters, significance_level
from specialk_gpu._progress import Clock
from specialk_gpu._result import ScaleWarning, SelectionPath
from specialk_gpu._warn import warn
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend, Seed, Sparse
from specialk_gpu.graph.knn import GraphWarning, knn_graph_of
from specialk_gpu.graph.radius import radius_graph_of
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection.cut_graphs import NEAR, WIDE, CutGraphs
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.polishing import membership
from specialk_gpu.selection.search import search
from specialk_gpu.selection.sweep import labels_by_size, sweep
from specialk_gpu.spectrum.chebyshev import refuse_block
from specialk_gpu.spectrum.convergence import ConvergenceError
from specialk_gpu.spectrum.eigenpairs import Eigenpairs, eigenpairs
from specialk_gpu.spectrum.embedding import embed

__all__ = [
    "Fit",
    "fit_by_cut",
    "fit_by_zz_top",
    "graphs_to_cut",
    "explain_memory_error",
    "neighbour_graph",
    "refuse_eigenpairs",
    "warn_of_graph",
    "warn_of_hubs",
    "warn_of_scales",
]

APART, MOST_SCALED = 100, 100  # ratio of spreads that is too large, in so many columns at most
SAMPLED, CENTRED = 2**13, 0.05  # rows that are measured; the largest mean, in deviations
REMEDIES = {
    "graph": "Cluster a sample of the rows, or pass X in float32.",
    "eigenpairs": "Ask for fewer eigenvectors (n_components), or cluster a sample of the rows.",
    "sweep": "Lower n_init, n_kmeans_components or max_clusters.",
    "search": "Cluster a sample of the rows.",
}


def fit_by_cut(
    model: Parameters,
    bk: Backend,
    graphs: CutGraphs,
    W: Sparse,
    rng: RandomState,
    clock: Clock,
) -> Fit:
    """Find clusters by the cut test."""
    m = W.shape[0]
    seeds = rng.randint(np.iinfo(np.int32).max, size=2).tolist()
    known: dict[int, Eigenpairs] = {}

    def pairs_of(n: int) -> Eigenpairs:
        n = n if model.n_components == "auto" else int(model.n_components)
        n = max(1, min(n, m - 1))
        if n not in known:
            fewer = known.popitem()[1] if known else None
            with explain_memory_error(bk, "eigenpairs"):
                known[n] = verified_eigenpairs(model, W, n, seeds[0], fewer)
                clock.stop("eigenpairs", f"{n} by {known[n].solver}")
        return known[n]

    with explain_memory_error(bk, "search"):
        found = search(
            graphs,
            pairs_of,
            clock,
            alpha=significance_level(model),
            n_clusters=model.n_clusters,
            min_clusters=model.min_clusters,
            max_clusters=model.max_clusters,
            full_path=model.full_path,
            seed=seeds[1],
        )
    pairs = found.eigenpairs
    D = embed(pairs.values, pairs.vectors, drop_correlated=model.drop_correlated)
    return Fit(
        found.n_clusters,
        found.labels,
        found.membership,
        found.tree,
        found.path,
        found.limit_reached,
        # a Fit keeps no eigenvectors: D has what is needed of them
        pairs._replace(vectors=None),  # type: ignore[arg-type]
        D,
    )


def fit_by_zz_top(model: Parameters, bk: Backend, W: Sparse, rng: RandomState, clock: Clock) -> Fit:
    """Find clusters by the paper's algorithm [HD19, Algorithm 1]."""
    n = n_eigenpairs(model, W.shape[0])
    with explain_memory_error(bk, "eigenpairs"):
        pairs = verified_eigenpairs(model, W, n, rng)
        clock.stop("eigenpairs", f"{pairs.values.size} by {pairs.solver}")
        D = embed(pairs.values, pairs.vectors, drop_correlated=model.drop_correlated)
        # D replaces the eigenvectors, so their memory can be freed
        pairs = pairs._replace(vectors=None)  # type: ignore[arg-type]
        clock.stop("embedding", f"{D.shape[1]} columns")
    warn_of_components(bk, W, pairs)
    with explain_memory_error(bk, "sweep"):
        found = sweep(
            D,
            alpha=significance_level(model),
            n_clusters=model.n_clusters,
            min_clusters=model.min_clusters,
            max_clusters=50 if model.max_clusters is None else model.max_clusters,
            full_path=model.full_path,
            stopping=model.stopping,
            n_pairs=model.n_pairs,
            n_kmeans_components=model.n_kmeans_components,
            n_init=model.n_init,
            random_state=rng,
        )
    clock.timings.update(found.timings)
    shares = membership(W, found.labels, found.n_clusters)
    return Fit(
        found.n_clusters,
        found.labels,
        shares,
        None,
        found.path,
        found.limit_reached,
        pairs,
        D,
    )


def n_eigenpairs(model: Parameters, m: int) -> int:
    """Return the number of eigenpairs for the paper's rule and m rows."""
    n = model.n_components
    if n == "auto":
        n = 200 if m < 5000 else 1000
    return max(1, min(int(n), m - 1))


def refuse_eigenpairs(model: Parameters, bk: Backend, m: int) -> None:
    """Raise a MemoryError, before any work is done, if the eigenpairs of m rows do not fit."""
    if model.criterion == "zz_top":
        with explain_memory_error(bk, "eigenpairs"):
            refuse_block(bk, m, n_eigenpairs(model, m))


def neighbour_graph(model: Parameters, bk: Backend, rows: Rows) -> tuple[Sparse, float | None]:
    """Build W_C, or W_R; return the graph and the radius (None for W_C)."""
    n_neighbors, m = model.n_neighbors, len(rows)
    if m == 1:  # all rows are equal: one distinct row without neighbours
        return bk.sparse.csr_matrix(bk.xp.ones((1, 1))), None
    if n_neighbors >= m:
        warn(
            f"n_neighbors={n_neighbors} is not below the number of rows to join, {m}: "
            f"using {m - 1}.",
            GraphWarning,
        )
        n_neighbors = m - 1
    if model.affinity == "nearest_neighbors":
        return knn_graph_of(rows, n_neighbors, model.weights), None
    return radius_graph_of(rows, n_neighbors, model.coverage)


def graphs_to_cut(model: Parameters, rows: Rows | None, W: Sparse) -> CutGraphs:
    """Return the graphs for the cut test, which was calibrated on nearest-neighbour graphs."""
    if rows is None or W.shape[0] == 1:
        return CutGraphs(W)
    known = (model.affinity, model.weights) == ("nearest_neighbors", "connectivity")
    return CutGraphs(W if known and NEAR <= model.n_neighbors < WIDE else None, rows)


def warn_of_graph(model: Parameters, W: Sparse) -> None:
    """Warn of isolated rows."""
    m = W.shape[0]
    n_isolated = m - int((W.indptr[1:] > W.indptr[:-1]).astype(np.int64).sum())
    if n_isolated:
        what = "their embedding is zero"
        if model.criterion == "zz_top" or model.affinity == "precomputed":
            what += ", and their labels mean nothing"  # else the cut test's graph has edges there
        warn(
            f"{n_isolated} of {m} rows are isolated: they have no edge in the graph, and {what}.",
            GraphWarning,
        )


def warn_of_hubs(model: Parameters, bk: Backend, W: Sparse) -> None:
    """Warn that the degrees of a given graph differ a hundredfold."""
    if model.normalize or not W.nnz:
        return
    xp = bk.xp
    degree = xp.empty((W.shape[0], 1))
    bk.spmm(W, xp.ones((W.shape[0], 1)), degree, 1.0, 0.0, 0.0)
    degree = degree[degree > 0]
    least, most = bk.to_numpy(xp.stack([degree.min(), degree.max()])).tolist()
    if most > APART * least:
        warn(
            f"the degrees of the graph (sums of similarities) lie between {least:.3g} and "
            f"{most:.3g}, and its eigenvectors may show no more than the largest. Set "
            "normalize=True to divide each similarity by the roots of its two degrees.",
            GraphWarning,
        )


def warn_of_scales(bk: Backend, X: Array) -> None:
    """Warn that the spreads of the columns of X differ a hundredfold, by a sample of the rows.

    Data of many columns, such as images, and centred columns by decreasing spread, such as
    principal components, bring no warning.
    """
    xp, (m, d) = bk.xp, X.shape
    if not 2 <= d <= MOST_SCALED:
        return
    few = X[:: -(-m // SAMPLED)].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        found = xp.stack([few.std(axis=0), xp.abs(few).max(axis=0), xp.abs(few.mean(axis=0))])
    spread, size, mean = bk.to_numpy(found)
    spread = np.where(np.isfinite(spread) & (spread > 1e-12 * size), spread, 0)  # 0 if constant
    own = spread[spread > 0]
    are_components = (np.diff(spread) <= 0).all() and (mean <= CENTRED * spread).all()
    if own.size < 2 or own.max() <= APART * own.min() or are_components:
        return
    widest, narrowest = int(np.argmax(spread)), int(np.argmin(np.where(spread > 0, spread, np.inf)))
    warn(
        f"the columns of X have very different spreads: a standard deviation of "
        f"{spread[widest]:.3g} in column {widest}, of {spread[narrowest]:.3g} in column "
        f"{narrowest}. The widest decide alone. Scale X first, for instance with "
        "sklearn.preprocessing.StandardScaler, if the columns have different units.",
        ScaleWarning,
    )


def warn_of_components(bk: Backend, W: Sparse, pairs: Eigenpairs) -> None:
    """Warn of components of the graph that are smaller than 1/n of the rows."""
    m, n = W.shape[0], pairs.values.size
    if pairs.n_components < 2 or bool((W.indptr[1:] == W.indptr[:-1]).any()):
        return  # isolated rows have a warning of their own
    _, component = bk.connected_components(W)
    sizes = bk.to_numpy(bk.xp.bincount(component))
    n_small = int((sizes * n < m).sum())
    if n_small:
        warn(
            f"{n_small} of the {sizes.size} separate components of the graph have fewer than "
            f"1/n of the rows ({m / n:.3g}), so they may not be distinguished. Use more "
            "eigenvectors (n_components).",
            GraphWarning,
        )


def verified_eigenpairs(
    model: Parameters, W: Sparse, n: int, random_state: Seed, known: Eigenpairs | None = None
) -> Eigenpairs:
    """Compute n eigenpairs; raise or warn if they could not be verified."""
    settings: dict[str, Any] = {"solver": model.eigen_solver, "tol": model.tol}
    pairs = eigenpairs(W, n, random_state=random_state, known=known, **settings)
    if not pairs.converged:
        if not pairs.complete or float(pairs.residuals.max()) > 1e3 * model.tol:
            msg = f"the eigenpairs could not be verified. {pairs.message}"
            raise ConvergenceError(msg)
        warn(pairs.message, ConvergenceWarning)
    return pairs


@contextmanager
def explain_memory_error(bk: Backend, stage: str) -> Iterator[None]:
    """Add to a MemoryError the stage, the free memory, and what to change."""
    try:
        yield
    except MemoryError as error:
        if error.args and type(error) is MemoryError and error.__cause__ is None:
            raise  # raised by this library before any allocation: its message is complete
        if str(error).startswith(tuple(f"{name}: " for name in REMEDIES)):
            raise  # already explained by an inner stage
        msg = (
            f"{stage}: {str(error) or 'an allocation failed'}. "
            f"{bk.free_memory():,} bytes are free. {REMEDIES[stage]}"
        )
        raise MemoryError(msg) from error


class Fit(NamedTuple):
    """The result of a fit, on the backend."""

    n_clusters: int
    labels: Array
    membership: Array
    tree: Tree | None
    path: SelectionPath
    limit_reached: bool
    pairs: Eigenpairs
    D: Array

    def spread(self, group: Array) -> Fit:
        """Return the result for all rows: duplicates get the values of their distinct row.

        Clusters are numbered anew, because duplicates count for their sizes.
        """
        steps = []
        for step in self.path:
            labels, number = _labels_by_size(step.labels[group], step.k)
            steps.append(step.renumbered(labels, number))
        labels, number = _labels_by_size(self.labels[group], self.n_clusters)
        return self._replace(
            labels=labels,
            membership=self.membership[group][:, backend_of(labels).asarray(np.argsort(number))],
            tree=None if self.tree is None else self.tree.spread(group),
            path=SelectionPath(steps, self.path.criterion),
            D=self.D[group],
        )


def _labels_by_size(labels: Array, k: int) -> tuple[Array, list[int]]:
    """Return labels by decreasing size of the clusters, and the new number of each cluster."""
    bk = backend_of(labels)
    new, number = labels_by_size(bk.xp, labels, k), bk.xp.empty(k, dtype=np.int64)
    number[labels] = new
    return new, bk.to_numpy(number).tolist()
