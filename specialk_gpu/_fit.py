"""The stages of a fit: graph, eigenpairs, and one of two rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState
from sklearn.exceptions import ConvergenceWarning

from specialk_gpu._checkpoint import kept_step
from specialk_gpu._cost import foretell_cost, n_wanted
from specialk_gpu._parameters import Parameters, significance_level
from specialk_gpu._progress import ProgressClock
from specialk_gpu._result import SelectionPath
from specialk_gpu._time_limit import during
from specialk_gpu._units import size_in_units
from specialk_gpu._warnings import GraphWarning, warn
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend, Seed, Sparse
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection.cut_graphs import NEAR, WIDE, CutGraphs
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.search import search
from specialk_gpu.selection.sweep import labels_by_size, sweep
from specialk_gpu.selection.walks import membership_by_walks
from specialk_gpu.spectrum.convergence import ConvergenceError
from specialk_gpu.spectrum.eigenpairs import Eigenpairs, eigenpairs
from specialk_gpu.spectrum.embedding import embed
from specialk_gpu.spectrum.memory import require_memory
from specialk_gpu.spectrum.solvers import takes_dense_solver

__all__ = [
    "Fit",
    "explain_memory_error_of_fit",
    "fit_by_cut",
    "fit_by_zz_top",
    "foresee_fit",
    "graphs_to_cut",
]

MOST_CLUSTERS = 50  # by the paper's rule, if not told otherwise
REMEDIES = {
    "graph": "Cluster a sample of the rows, or pass X in float32.",
    "eigenpairs": "Ask for fewer eigenvectors (n_components), or cluster a sample of the rows.",
    "sweep": "Lower n_init, n_kmeans_components or max_clusters.",
    "search": "Cluster a sample of the rows.",
}


def fit_by_cut(
    parameters: Parameters,
    bk: Backend,
    graphs: CutGraphs,
    W: Sparse,
    rng: RandomState,
    clock: ProgressClock,
) -> Fit:
    """Find clusters by the cut test."""
    m = W.shape[0]
    foretell_cost(parameters, bk, m, None)  # of a graph; of rows it was told before
    seeds = rng.randint(np.iinfo(np.int32).max, size=2).tolist()
    known: dict[int, Eigenpairs] = {}

    def pairs_of(n: int) -> Eigenpairs:
        n = n if parameters.n_components == "auto" else int(parameters.n_components)
        n = max(1, min(n, m - 1))
        if n not in known:
            fewer = known.popitem()[1] if known else None
            with explain_memory_error_of_fit(bk, "eigenpairs"):
                known[n] = verified_eigenpairs_of_fit(parameters, W, n, seeds[0], fewer)
                clock.stop("eigenpairs", f"{n} by {known[n].solver}")
        return known[n]

    with explain_memory_error_of_fit(bk, "search"):
        found = search(
            graphs,
            pairs_of,
            clock,
            alpha=significance_level(parameters),
            n_clusters=parameters.n_clusters,
            min_clusters=parameters.min_clusters,
            max_clusters=parameters.max_clusters,
            full_path=parameters.full_path,
            seed=seeds[1],
        )
    pairs = found.eigenpairs
    D = embed(pairs.values, pairs.vectors, drop_correlated=parameters.drop_correlated)
    return Fit(
        found.n_clusters,
        found.labels,
        found.membership,
        found.tree,
        found.path,
        found.limit_reached,
        _without_vectors(pairs),
        D,
    )


def fit_by_zz_top(
    parameters: Parameters,
    bk: Backend,
    rows: Rows | None,
    W: Sparse,
    rng: RandomState,
    clock: ProgressClock,
) -> Fit:
    """Find clusters by the paper's algorithm [HD19, Algorithm 1]."""
    n = n_wanted(parameters, W.shape[0])
    foretell_cost(parameters, bk, W.shape[0], None)  # of a graph; of rows it was told before
    with explain_memory_error_of_fit(bk, "eigenpairs"):
        pairs = verified_eigenpairs_of_fit(parameters, W, n, rng)
        clock.stop("eigenpairs", f"{pairs.values.size} by {pairs.solver}")
        D = embed(pairs.values, pairs.vectors, drop_correlated=parameters.drop_correlated)
        if rows is not None and rows.leaders is not None:
            D = D[rows.leaders]  # copies stay together
        pairs = _without_vectors(pairs)
        clock.stop("embedding", f"{D.shape[1]} columns")
    warn_of_components_in_fit(bk, W, pairs)
    with explain_memory_error_of_fit(bk, "sweep"):
        found = sweep(
            D,
            alpha=significance_level(parameters),
            n_clusters=parameters.n_clusters,
            min_clusters=parameters.min_clusters,
            max_clusters=MOST_CLUSTERS
            if parameters.max_clusters is None
            else parameters.max_clusters,
            full_path=parameters.full_path,
            stopping=parameters.stopping,
            n_pairs=parameters.n_pairs,
            n_kmeans_components=parameters.n_kmeans_components,
            n_init=parameters.n_init,
            random_state=rng,
        )
    clock.add(found.timings)
    shares = membership_by_walks(W, found.labels, found.n_clusters)
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


def _without_vectors(pairs: Eigenpairs) -> Eigenpairs:
    """Return eigenpairs without the vectors: D has what is needed of them, so they can be freed."""
    # everywhere else there are vectors, so the type does not allow for None
    return pairs._replace(vectors=None)  # type: ignore[arg-type] # a fit reads no vectors after this


def foresee_fit(parameters: Parameters, bk: Backend, m: int, d: int) -> None:
    """Log, before any work is done, that a fit of m rows and d columns will take long.

    Raise a MemoryError if its eigenpairs do not fit. How large the components are, and whether a
    full decomposition or "lanczos" needs more, is known with the graph. `eigenpairs` asks again
    then.
    """
    n = n_wanted(parameters, m)
    if not takes_dense_solver(m, n, parameters.eigen_solver):
        with explain_memory_error_of_fit(bk, "eigenpairs"):
            require_memory(bk, m, n, "auto")
    foretell_cost(parameters, bk, m, d)


def graphs_to_cut(parameters: Parameters, rows: Rows | None, W: Sparse) -> CutGraphs:
    """Return the graphs for the cut test, which was calibrated on nearest-neighbour graphs."""
    if rows is None or W.shape[0] == 1:
        return CutGraphs(W)
    known = (parameters.affinity, parameters.weights) == ("nearest_neighbors", "connectivity")
    return CutGraphs(W if known and NEAR <= parameters.n_neighbors < WIDE else None, rows)


def warn_of_components_in_fit(bk: Backend, W: Sparse, pairs: Eigenpairs) -> None:
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


def verified_eigenpairs_of_fit(
    parameters: Parameters, W: Sparse, n: int, random_state: Seed, known: Eigenpairs | None = None
) -> Eigenpairs:
    """Compute n eigenpairs; raise or warn if they could not be verified."""
    settings: dict[str, Any] = {"solver": parameters.eigen_solver, "tol": parameters.tol}

    def make() -> list[Any]:
        found = eigenpairs(W, n, random_state=random_state, known=known, **settings)
        return [x if isinstance(x, type(W.data)) else np.array(x) for x in found]

    kept: list[Any] = kept_step(f"eigenpairs-{n}", make, with_rounds=True)
    pairs = Eigenpairs._make(x if x.ndim else x.item() for x in kept)
    if not pairs.converged:
        if not pairs.complete or float(pairs.residuals.max()) > 1e3 * parameters.tol:
            msg = f"the eigenpairs could not be verified. {pairs.message}"
            raise ConvergenceError(msg)
        warn(pairs.message, ConvergenceWarning)
    return pairs


@contextmanager
def explain_memory_error_of_fit(bk: Backend, stage: str) -> Iterator[None]:
    """Add to a MemoryError the stage, the free memory, and what to change; see also `during`."""
    try:
        with during(stage):
            yield
    except MemoryError as error:
        if error.args and type(error) is MemoryError and error.__cause__ is None:
            raise  # raised by this library before any allocation: its message is complete
        if str(error).startswith(tuple(f"{name}: " for name in REMEDIES)):
            raise  # already explained by an inner stage
        msg = (
            f"{stage}: {str(error) or 'an allocation failed'}. "
            f"{size_in_units(bk.free_memory())} are free. {REMEDIES[stage]}"
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
            labels, number = _fit_labels_by_size(step.labels[group], step.k)
            steps.append(step.renumbered(labels, number))
        labels, number = _fit_labels_by_size(self.labels[group], self.n_clusters)
        return self._replace(
            labels=labels,
            membership=self.membership[group][:, backend_of(labels).asarray(np.argsort(number))],
            tree=None if self.tree is None else self.tree.spread(group),
            path=SelectionPath(steps, self.path.criterion),
            D=self.D[group],
        )


def _fit_labels_by_size(labels: Array, k: int) -> tuple[Array, list[int]]:
    """Return labels by decreasing size of the clusters, and the new number of each cluster."""
    bk = backend_of(labels)
    new, number = labels_by_size(bk.xp, labels, k), bk.xp.empty(k, dtype=np.int64)
    number[labels] = new
    return new, bk.to_numpy(number).tolist()
