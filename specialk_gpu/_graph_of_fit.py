"""The first stage of a fit: the graph W, from rows or given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specialk_gpu._affinities import is_graph
from specialk_gpu._fit import explain_memory_error_of_fit, foresee_fit
from specialk_gpu._host import on_host
from specialk_gpu._parameters import Parameters, check_parameter_counts
from specialk_gpu._scales import APART, warn_of_scales
from specialk_gpu._warnings import GraphWarning, warn
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.graph.affinity import symmetric_affinity
from specialk_gpu.graph.distance_graph import nearest_in_graph
from specialk_gpu.graph.features import features_in_metric
from specialk_gpu.graph.knn import knn_graph_of, normalised_graph, symmetric_knn_graph
from specialk_gpu.graph.neighbor_lists import NeighborLists, neighbor_lists
from specialk_gpu.graph.radius import radius_graph_of
from specialk_gpu.graph.recall import Recall
from specialk_gpu.graph.representatives import representatives_of
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection.cut_graphs import WIDE

__all__ = ["GraphOfFit", "graph_of_fit", "warn_of_graph"]


class GraphOfFit(NamedTuple):
    """The graph of a fit, and what was found of the rows on the way.

    Attributes
    ----------
    W : csr_matrix of shape (m, m)
    radius : float or None
        The radius of W_R.
    rows : Rows or None
        The rows to cluster; None for a given graph.
    first, group : int64 arrays of shape (u,) and (q,), or None
        If `rows` are representatives of q rows: the first row of each group, and each row's group.
    spacing : float64 array of shape (m,), or None
        The distance of each row to the last of its neighbours.
    recall : Recall or None
        Of neighbours that were not searched exactly.
    """

    W: Sparse
    radius: float | None = None
    rows: Rows | None = None
    first: Array | None = None
    group: Array | None = None
    spacing: Array | None = None
    recall: Recall | None = None


def graph_of_fit(parameters: Parameters, bk: Backend, X: Any) -> GraphOfFit:
    """Build the graph of rows X (m, d), or take the one that X holds.

    Raises
    ------
    ValueError, TypeError
        If more clusters than rows are asked for, or `neighbors` does not fit the rows.
    MemoryError
        If the graph or the eigenvectors do not fit into memory.
    """
    if is_graph(parameters.affinity):
        W = given_graph(parameters, bk, X)
        check_parameter_counts(parameters, W.shape[0], "rows")
        return GraphOfFit(W)
    with explain_memory_error_of_fit(bk, "graph"):
        if parameters.metric == "euclidean":
            warn_of_scales(X)
        lists = lists_for_fit(parameters, X.shape[0])
        rows = Rows(features_in_metric(X, parameters.metric), lists)
        n_neighbors = min(parameters.n_neighbors, len(rows) - 1)
        rows, first, group = representatives_of(rows, n_neighbors)
        check_parameter_counts(
            parameters, len(rows), "distinct rows" if group is not None else "rows"
        )
        foresee_fit(parameters, bk, *rows.X.shape)
        W, radius = graph_to_fit(parameters, bk, rows)
        spacing, recall = spacing_in_fit(parameters, rows), recall_in_fit(parameters, rows)
    return GraphOfFit(W, radius, rows, first, group, spacing, recall)


def given_graph(parameters: Parameters, bk: Backend, X: Sparse) -> Sparse:
    """Return the graph W of similarities or of distances that X holds."""
    if parameters.affinity == "precomputed":
        W = symmetric_affinity(X)
        W = normalised_graph(W) if parameters.normalize else W
        warn_of_hubs_to_fit(parameters, bk, W)
        return W
    near = nearest_in_graph(on_host(X), parameters.n_neighbors)
    distances = None if parameters.weights == "connectivity" else bk.asarray(near.distances)
    return normalised_graph(symmetric_knn_graph(bk, bk.asarray(near.indices), distances))


def graph_to_fit(parameters: Parameters, bk: Backend, rows: Rows) -> tuple[Sparse, float | None]:
    """Build W_C, or W_R; return the graph and the radius (None for W_C)."""
    n_neighbors, m = parameters.n_neighbors, len(rows)
    if m == 1:  # all rows are equal: one distinct row without neighbours
        return bk.sparse.csr_matrix(bk.xp.ones((1, 1))), None
    if n_neighbors >= m:
        warn(
            f"n_neighbors={n_neighbors} is not below the number of rows to join, {m}: "
            f"using {m - 1}.",
            GraphWarning,
        )
        n_neighbors = m - 1
    if parameters.affinity == "nearest_neighbors":
        return knn_graph_of(rows, n_neighbors, parameters.weights), None
    return radius_graph_of(rows, n_neighbors, parameters.coverage)


def lists_for_fit(parameters: Parameters, m: int) -> NeighborLists | None:
    """Return the lists of neighbours that `neighbors` asks for; None for an exact search of m rows.

    Raise a ValueError or TypeError if they do not fit the rows.
    """
    wide = WIDE if parameters.criterion == "cut" else 0
    return neighbor_lists(parameters.neighbors, m, max(parameters.n_neighbors, wide))


def recall_in_fit(parameters: Parameters, rows: Rows) -> Recall | None:
    """Return the recall of the neighbours in the graph; warn if they, or the cut test's, miss many.

    It is None if the neighbours are exact.
    """
    if isinstance(parameters.neighbors, str) and parameters.neighbors == "exact":
        return None
    most, counts = len(rows) - 1, [parameters.n_neighbors]
    if parameters.criterion == "cut":
        counts.append(max(WIDE, parameters.n_neighbors))
    found = rows.recall([max(1, min(n, most)) for n in counts])
    worst = min(found, key=lambda recall: recall.value)
    if worst.value < parameters.min_recall:
        n_neighbors = counts[found.index(worst)]
        warn(
            f"of the {n_neighbors} nearest neighbours, the lists hold {worst.value:.1%} (95 % "
            f"interval {worst.low:.1%} to {worst.high:.1%}, measured on {worst.n_rows} rows), less "
            f"than min_recall={parameters.min_recall:g}. Clusters may fall apart, or join. Set the "
            "search to find more, or neighbors='exact'.",
            GraphWarning,
        )
    return found[0]


def spacing_in_fit(parameters: Parameters, rows: Rows) -> Array:
    """Return the distance (m,) of each row to the last of its neighbours, which are known."""
    n_neighbors = min(parameters.n_neighbors, len(rows) - 1)
    return rows.spacing(n_neighbors) if n_neighbors else backend_of(rows.X).xp.zeros(len(rows))


def warn_of_graph(parameters: Parameters, W: Sparse) -> None:
    """Warn of isolated rows."""
    m = W.shape[0]
    n_isolated = m - int((W.indptr[1:] > W.indptr[:-1]).astype(np.int64).sum())
    if n_isolated:
        what = "their embedding is zero"
        if parameters.criterion == "zz_top" or is_graph(parameters.affinity):
            what += ", and their labels mean nothing"  # else the cut test's graph has edges there
        warn(
            f"{n_isolated} of {m} rows are isolated: they have no edge in the graph, and {what}.",
            GraphWarning,
        )


def warn_of_hubs_to_fit(parameters: Parameters, bk: Backend, W: Sparse) -> None:
    """Warn that the degrees of a given graph differ a hundredfold."""
    if parameters.normalize or not W.nnz:
        return
    xp = bk.xp
    degree = xp.empty((W.shape[0], 1))
    bk.spmm(W, xp.ones((W.shape[0], 1)), degree, 1.0, 0.0, 0.0)
    degree = degree[degree > 0]
    least, most = bk.to_numpy(xp.stack([degree.min(), degree.max()])).tolist()
    if most > APART * least:
        warn(
            f"the degrees of the graph (sums of similarities) lie between {least:.3g} and "
            f"{most:.3g}. Its leading eigenvectors may only show the rows of large degree. Set "
            "normalize=True to divide each similarity by the square roots of the degrees of its "
            "two rows.",
            GraphWarning,
        )
