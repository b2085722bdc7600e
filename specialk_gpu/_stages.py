"""The stages of a fit, with the parameters of an estimator: graph, eigenpairs, one of two rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from specialk_gpu._progress import Clock
from specialk_gpu._warn import warn
from specialk_gpu.graph.affinity import (
    GraphWarning,
    knn_graph,
    radius_graph,
)
from specialk_gpu.selection.cut_graphs import NEAR, WIDE, CutGraphs
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.polishing import membership
from specialk_gpu.selection.search import search
from specialk_gpu.selection.sweep import sweep
from specialk_gpu.spectrum.convergence import ConvergenceError
from specialk_gpu.spectrum.eigenpairs import Eigenpairs, eigenpairs
from specialk_gpu.spectrum.embedding import embed

__all__ = [
    "Fit",
    "by_cut",
    "by_zz_top",
    "check_counts",
    "check_limits",
    "graphs_to_cut",
    "level",
    "memory_explained",
    "neighbour_graph",
    "warn_of_graph",
]

REMEDIES = {
    "graph": "Cluster a sample of the rows, or pass X in float32.",
    "eigenpairs": "Ask for fewer eigenvectors (n_components), or cluster a sample of the rows.",
    "sweep": "Lower n_init, n_kmeans_components or max_clusters.",
    "search": "Cluster a sample of the rows.",
}
LEVELS = {"cut": 0.05, "zz_top": 0.01}  # alpha by default


def level(model: Any) -> float:
    """Return alpha, or what it is by default."""
    return LEVELS[model.criterion] if model.alpha is None else model.alpha


def by_cut(model: Any, bk: ModuleType, graphs: CutGraphs, W: Any, rng: Any, clock: Clock) -> Fit:
    """Find clusters by the cut test."""
    m = W.shape[0]
    seeds = rng.randint(np.iinfo(np.int32).max, size=2).tolist()
    known: dict[int, Eigenpairs] = {}

    def pairs_of(n: int) -> Eigenpairs:
        n = n if model.n_components == "auto" else int(model.n_components)
        n = max(1, min(n, m - 1))
        if n not in known:
            fewer = known.popitem()[1] if known else None
            with memory_explained(bk, "eigenpairs"):
                known[n] = verified_pairs(model, W, n, seeds[0], fewer)
                clock.stop("eigenpairs", f"{n} by {known[n].solver}")
        return known[n]

    with memory_explained(bk, "search"):
        found = search(
            graphs,
            pairs_of,
            clock,
            alpha=level(model),
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
        pairs._replace(vectors=None),
        D,
    )


def by_zz_top(model: Any, bk: ModuleType, W: Any, rng: Any, clock: Clock) -> Fit:
    """Find clusters as [HD19, Algorithm 1] does."""
    m, n = W.shape[0], model.n_components
    if n == "auto":
        n = 200 if m < 5000 else 1000
    with memory_explained(bk, "eigenpairs"):
        pairs = verified_pairs(model, W, max(1, min(int(n), m - 1)), rng)
        clock.stop("eigenpairs", f"{pairs.values.size} by {pairs.solver}")
        D = embed(pairs.values, pairs.vectors, drop_correlated=model.drop_correlated)
        pairs = pairs._replace(vectors=None)  # D has what is needed of them
        clock.stop("embedding", f"{D.shape[1]} columns")
    warn_of_components(W, pairs)
    with memory_explained(bk, "sweep"):
        found = sweep(
            D,
            alpha=level(model),
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


def neighbour_graph(model: Any, bk: ModuleType, X: Any) -> tuple[Any, float | None]:
    """Build W_C, or W_R and its radius."""
    n_neighbors, m = model.n_neighbors, X.shape[0]
    if m == 1:  # all rows are equal: one row, joined to nothing
        return bk.sparse.csr_matrix(bk.xp.ones((1, 1))), None
    if n_neighbors >= m:
        warn(
            f"n_neighbors={n_neighbors} is not below the number of rows to join, {m}: "
            f"using {m - 1}.",
            GraphWarning,
        )
        n_neighbors = m - 1
    if model.affinity == "nearest_neighbors":
        return knn_graph(X, n_neighbors, weights=model.weights), None
    return radius_graph(X, n_neighbors, coverage=model.coverage)


def graphs_to_cut(model: Any, X: Any, W: Any) -> CutGraphs:
    """Return where gaps are looked for: the law of their p knows nearest neighbours."""
    if model.affinity == "precomputed" or W.shape[0] == 1:
        return CutGraphs(W)
    known = (model.affinity, model.weights) == ("nearest_neighbors", "connectivity")
    return CutGraphs(W if known and NEAR <= model.n_neighbors < WIDE else None, X)


def warn_of_graph(model: Any, W: Any) -> None:
    """Say what is noteworthy about the graph."""
    m = W.shape[0]
    n_isolated = m - int((W.indptr[1:] > W.indptr[:-1]).astype(np.int64).sum())
    if n_isolated:
        what = "their embedding is zero"
        if model.criterion == "zz_top" or model.affinity == "precomputed":
            what += ", and their labels mean nothing"  # else the cut test's own graph has them
        warn(
            f"{n_isolated} of {m} rows are isolated: they have no edge in the graph, and {what}.",
            GraphWarning,
        )


def warn_of_components(W: Any, pairs: Eigenpairs) -> None:
    """Say that the graph falls apart, where D has few columns for each component."""
    if pairs.n_components > 1 and bool((W.indptr[1:] > W.indptr[:-1]).all()):
        warn(
            f"the graph falls into {pairs.n_components} separate components, which is normal "
            "for well-separated clusters. Each is embedded by itself; those smaller than 1/n "
            "of the rows may not be told apart.",
            GraphWarning,
        )


def verified_pairs(
    model: Any, W: Any, n: int, random_state: Any, known: Eigenpairs | None = None
) -> Eigenpairs:
    """Compute n eigenpairs, and say if they could not be verified."""
    settings = {"solver": model.eigen_solver, "tol": model.tol}
    pairs = eigenpairs(W, n, random_state=random_state, known=known, **settings)
    if not pairs.converged:
        if not pairs.complete or float(pairs.residuals.max()) > 1e3 * model.tol:
            msg = f"the eigenpairs could not be verified. {pairs.message}"
            raise ConvergenceError(msg)
        warn(pairs.message, ConvergenceWarning)
    return pairs


def check_counts(model: Any, m: int, rows: str) -> None:
    """Refuse more clusters than rows before any work is done."""
    for name in ("n_clusters", "min_clusters"):
        value = getattr(model, name)
        if value is not None and value > m and (name == "n_clusters" or not model.n_clusters):
            msg = f"{name} must lie between 1 and the number of {rows} ({m}), got {value}."
            raise ValueError(msg)


def check_limits(model: Any) -> None:
    """Refuse numbers of clusters that contradict each other."""
    k, least = model.n_clusters, model.min_clusters
    most = np.inf if model.max_clusters is None else model.max_clusters
    if least > most:
        msg = (
            "min_clusters must be at most max_clusters, got "
            f"min_clusters={least}, max_clusters={most}."
        )
        raise ValueError(msg)
    if k is not None and not least <= k <= most:
        msg = (
            "n_clusters must lie between min_clusters and max_clusters, got "
            f"n_clusters={k}, min_clusters={least}, max_clusters={model.max_clusters}."
        )
        raise ValueError(msg)


@contextmanager
def memory_explained(bk: ModuleType, stage: str) -> Iterator[None]:
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


class Fit(NamedTuple):
    """What a fit has found, on the backend."""

    n_clusters: int
    labels: Any
    membership: Any
    tree: Tree | None
    path: Any
    limit_reached: bool
    pairs: Eigenpairs
    D: Any

    def spread(self, group: Any) -> Fit:
        """Give every copy what its row has."""
        tree = None if self.tree is None else self.tree.spread(group)
        return self._replace(
            labels=self.labels[group],
            membership=self.membership[group],
            tree=tree,
            path=self.path.with_labels(lambda labels: labels[group]),
            D=self.D[group],
        )
