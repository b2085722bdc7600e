"""Graphs of distances, as scikit-learn's transformers of neighbours return them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from specialk_gpu.graph.affinity import rows_of_affinities

__all__ = [
    "entries_by_distance",
    "lists_of_entries",
    "nearest_in_graph",
    "similarities_in_graph",
]


class GraphNeighbors(NamedTuple):
    """The nearest neighbours in a graph of distances.

    Attributes
    ----------
    indices : int64 array of shape (m, n_neighbors)
    distances : float64 array of shape (m, n_neighbors)
        Ascending.
    """

    indices: np.ndarray
    distances: np.ndarray


def nearest_in_graph(graph: Any, n_neighbors: int) -> GraphNeighbors:
    """Return the nearest neighbours of each row in a graph of distances.

    Parameters
    ----------
    graph : csr_matrix of shape (m, m)
        As scikit-learn's KNeighborsTransformer returns it: entry (i, j) is the distance of row j
        from row i, if j is among its neighbours; zeros are stored. The row itself does not count.
    n_neighbors : int

    Raises
    ------
    ValueError
        If the graph is not sparse and square, has distances that are negative or not finite, or
        has too few neighbours of a row.
    """
    _refuse_distances(graph)
    m = graph.shape[0]
    if graph.shape[1] != m:
        msg = f"X must be a square graph of distances, got shape {tuple(graph.shape)}."
        raise ValueError(msg)
    row, column, data = entries_by_distance(graph)
    lengths = np.bincount(row, minlength=m)
    if lengths.min() < n_neighbors:
        worst = int(lengths.argmin())
        msg = (
            f"X must hold the distances of each row to n_neighbors={n_neighbors} others, got "
            f"{int(lengths[worst])} for row {worst}. Lower n_neighbors, or search for more."
        )
        raise ValueError(msg)
    lists = lists_of_entries(row, column, m, -1)
    distances = lists_of_entries(row, data, m, np.inf)
    return GraphNeighbors(lists[:, :n_neighbors], distances[:, :n_neighbors])


def similarities_in_graph(graph: Any, n_neighbors: int) -> sparse.csr_matrix:
    """Return 1 for the nearest neighbours of new rows, given distances (q, m) to fitted rows."""
    _refuse_distances(graph)
    row, column, _ = entries_by_distance(graph, rows_differ=True)
    place = np.arange(row.size) - np.searchsorted(row, row)
    near = place < n_neighbors
    entries = np.ones(np.count_nonzero(near)), (row[near], column[near])
    return sparse.csr_matrix(entries, shape=graph.shape)


def _refuse_distances(graph: Any) -> None:
    if not sparse.issparse(graph):
        msg = (
            "affinity='precomputed_nearest_neighbors' expects a sparse matrix of distances, as "
            f"KNeighborsTransformer(mode='distance') returns it, got a {type(graph).__name__} of "
            f"shape {tuple(graph.shape)}."
        )
        raise TypeError(msg)
    checked: Any = graph
    rows_of_affinities(checked, "distances")


def entries_by_distance(
    graph: Any, *, rows_differ: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows, columns and values of all entries, by row and distance.

    Stored zeros are entries too. Entries of the diagonal are left out, unless `rows_differ`.
    Entries that repeat are one, their sum, as for SciPy.
    """
    graph = sparse.csr_matrix(graph)
    if not graph.has_canonical_format:
        graph = graph.copy()
        graph.sum_duplicates()
    row = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    order = np.lexsort((graph.indices, graph.data, row))
    row, column, data = row[order], graph.indices[order].astype(np.int64), graph.data[order]
    kept = (row != column) | rows_differ
    return row[kept], column[kept], data[kept]


def lists_of_entries(row: np.ndarray, values: np.ndarray, m: int, fill: float) -> np.ndarray:
    """Return the values of the entries of each of m rows as an array; `fill` fills up."""
    lengths = np.bincount(row, minlength=m)
    lists = np.full((m, max(1, int(lengths.max(initial=0)))), fill, dtype=values.dtype)
    lists[row, np.arange(row.size) - (np.cumsum(lengths) - lengths)[row]] = values
    return lists
