"""The graph W_C of nearest neighbours, and the normalisation of graphs."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.indices import index_dtype
from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.graph.features import features, features_in_metric
from specialk_gpu.graph.neighbor_lists import checked_lists
from specialk_gpu.graph.rows import Rows

__all__ = [
    "WEIGHTS",
    "knn_graph",
    "knn_graph_of",
    "neighbors_graph",
    "normalised_graph",
    "symmetric_knn_graph",
]

WEIGHTS = ("connectivity", "distance")
BLOCK_ENTRIES = 2**22  # of the neighbours, or the graph, that are processed together
HOST_BLOCK_ENTRIES = 2**19  # the same on the host, where more blocks cost less
HUGE = 2.0**960  # sums of more than 2^63 larger numbers may be infinite


@on_its_device
def knn_graph(
    X: ArrayLike, n_neighbors: int = 10, *, weights: str = "connectivity", metric: str = "euclidean"
) -> Sparse:
    r"""Build W_C, the symmetrically normalised graph of the k nearest neighbours.

    Let A be the adjacency matrix of the exact nearest neighbours (see `nearest_neighbors`), and
    :math:`G = (A + A^\top)/2`. The graph is
    :math:`W = \mathrm{diag}(G1)^{-1/2} G\, \mathrm{diag}(G1)^{-1/2}` [HD19, section 4].

    Parameters
    ----------
    X : array-like of shape (m, d)
        See `features`.
    n_neighbors : int
        Neighbours of each row, from 1 to m - 1.
    weights : {"connectivity", "distance"}
        With "connectivity", the entries of A are 1. With "distance", they are the distances, as
        in the authors' notebook; a duplicate then has weight 0, which means no edge.
    metric : {"euclidean", "cosine"}
        "cosine" first scales the rows to length 1.

    Returns
    -------
    csr_matrix of shape (m, m), float64
        A SciPy matrix, or a CuPy matrix if `X` is on a device. The diagonal is zero, and the
        eigenvalues lie in [-1, 1].

    Raises
    ------
    ValueError
        If an argument is out of range, or a row is zero with metric="cosine".

    Examples
    --------
    >>> import numpy as np
    >>> from specialk_gpu import knn_graph
    >>> knn_graph(np.array([[0.0], [1.0], [3.0]]), 1).toarray().round(3)
    array([[0.   , 0.816, 0.   ],
           [0.816, 0.   , 0.577],
           [0.   , 0.577, 0.   ]])
    """
    if weights not in WEIGHTS:
        msg = f"weights must be one of {WEIGHTS}, got {weights!r}."
        raise ValueError(msg)
    return knn_graph_of(Rows(features_in_metric(features(X), metric)), n_neighbors, weights)


def knn_graph_of(rows: Rows, n_neighbors: int, weights: str = "connectivity") -> Sparse:
    """Return the graph W_C of rows, as `knn_graph` does."""
    bk = backend_of(rows.X)
    if weights == "connectivity":
        return normalised_graph(symmetric_knn_graph(bk, rows.nearest(n_neighbors), None))
    found = rows.neighbors(n_neighbors, in_units=True)  # the graph has no unit
    return normalised_graph(symmetric_knn_graph(bk, found.indices, found.distances))


@on_its_device
def neighbors_graph(
    indices: Array, distances: Array | None = None, *, weights: str = "connectivity"
) -> Sparse:
    """Build W_C, as `knn_graph` does, from neighbours that another library has found.

    They may come from scikit-learn's `kneighbors`, pynndescent or UMAP, and need not be exact.

    Parameters
    ----------
    indices : int array of shape (m, k)
        Row numbers of the neighbours of each row. The row itself may be among them; it is
        ignored. A negative number marks a neighbour that was not found.
    distances : float array of shape (m, k), optional
        Distances to these neighbours. Required if weights="distance".
    weights : {"connectivity", "distance"}
        See `knn_graph`.

    Returns
    -------
    csr_matrix of shape (m, m), float64
        A SciPy matrix, or a CuPy matrix if `indices` is on a device. Cluster it with
        affinity="precomputed".

    Raises
    ------
    ValueError, TypeError
        If `indices` are not row numbers or name a row twice, or `distances` do not match them.
    """
    if weights not in WEIGHTS:
        msg = f"weights must be one of {WEIGHTS}, got {weights!r}."
        raise ValueError(msg)
    bk = backend_of(indices)
    xp, indices = bk.xp, checked_lists(indices)
    m, k = indices.shape
    row, column = xp.arange(m * k) // k, indices.ravel()
    keep = (column >= 0) & (column != row)
    row, column, length = row[keep], column[keep], None
    if not int(row.size):
        msg = "indices must name neighbours, got none beside the rows themselves."
        raise ValueError(msg)
    if weights == "distance":
        length = bk.asarray(np.nan if distances is None else distances, dtype=np.float64)
        if length.shape != (m, k):
            msg = f"distances must have the shape of indices, {(m, k)}, got {length.shape}."
            raise ValueError(msg)
        length = length.ravel()[keep]
        if not bk.all_true(xp.isfinite(length) & (length >= 0)):
            msg = "distances must be finite and not negative."
            raise ValueError(msg)
    return normalised_graph(_symmetric_knn_csr(bk, m, row, column, length))


def symmetric_knn_graph(bk: Backend, indices: Array, distances: Array | None) -> Sparse:
    """Return (A + Aᵀ)/2 as sorted CSR, given the neighbours `indices` (m, k) of each row."""
    m, k = indices.shape
    row = bk.xp.repeat(bk.xp.arange(m, dtype=np.int32), k)
    data = None if distances is None else distances.ravel()
    return _symmetric_knn_csr(bk, m, row, indices.ravel(), data)


def _symmetric_knn_csr(
    bk: Backend, m: int, row: Array, column: Array, data: Array | None
) -> Sparse:
    """Return (A + Aᵀ)/2 as sorted CSR from the entries (p,) of A by row; all are 1 without `data`.

    A block of rows is assembled at a time, so that all but the result takes little memory.
    """
    xp, column = bk.xp, column.astype(np.int32, copy=False)
    step = _rows_in_block(bk, m, int(row.size))
    parts, n_edges = [], 0
    for start in range(0, m, step):
        own = other = slice(None)  # one block needs no wait
        if step < m:
            own = slice(*xp.searchsorted(row, xp.asarray([start, start + step])).tolist())
            other = xp.flatnonzero((column >= start) & (column < start + step))
        keys = xp.concatenate(
            [
                row[own].astype(np.int64) * m + column[own],
                column[other].astype(np.int64) * m + row[other],
            ]
        )  # each pair once or twice
        if data is None:
            keys, counts = _counts_of_knn_keys(xp, keys)
            values = counts * 0.5
        else:
            values = xp.concatenate([data[own], data[other]]) * 0.5
            order = xp.argsort(keys, kind="stable")
            keys, values = keys[order], values[order]
            same = keys[1:] == keys[:-1]
            values[:-1] += xp.where(same, values[1:], 0)
            keep = xp.concatenate([xp.ones(1, dtype=bool), ~same])[: keys.size] & (values > 0)
            keys, values = keys[keep], values[keep]
        n_edges += int(keys.size)
        if n_edges > bk.max_entries:
            msg = (
                f"the graph of {m:,} rows has more than the {bk.max_entries:,} edges that 32-bit "
                "indices can number. Lower `n_neighbors`, or cluster a sample of the rows."
            )
            raise MemoryError(msg)
        own_row = keys // m
        n_rows = min(step, m - start)
        ends = xp.searchsorted(own_row - start, xp.arange(1, n_rows + 1)) + (n_edges - keys.size)
        parts.append((values, (keys - own_row * m).astype(np.int32), ends))
    values, indices, ends = (xp.concatenate(part) for part in zip(*parts, strict=True))
    dtype = index_dtype(n_edges)
    indices, indptr = indices.astype(dtype, copy=False), xp.zeros(m + 1, dtype=dtype)
    indptr[1:] = ends
    return bk.sparse.csr_matrix((values, indices, indptr), shape=(m, m))


def _rows_in_block(bk: Backend, m: int, n_entries: int) -> int:
    """Return how many of m rows with so many entries are processed together."""
    size = BLOCK_ENTRIES if bk.name == "cuda" else min(BLOCK_ENTRIES, HOST_BLOCK_ENTRIES)
    return max(1, m * size // max(size, n_entries))


def _counts_of_knn_keys(xp: ModuleType, keys: Array) -> tuple[Array, Array]:
    """Return the distinct keys in ascending order, and how often each occurs."""
    keys = xp.sort(keys)
    is_first = xp.concatenate([xp.ones(1, dtype=bool), keys[1:] != keys[:-1]])[: keys.size]
    start = xp.flatnonzero(is_first)
    counts = xp.diff(xp.concatenate([start, xp.full(1, keys.size, dtype=start.dtype)]))
    return keys[is_first], counts


def normalised_graph(G: Sparse) -> Sparse:
    """Return diag(G1)^-½ G diag(G1)^-½, which overwrites G; rows without entries stay empty.

    Numbers are multiplied as fractions and powers of two, so that the result does not depend on
    the size of the entries. This changes no bit where nothing is too large or too small.
    """
    if not G.nnz:
        return G
    bk = backend_of(G)
    xp = bk.xp
    m = G.shape[0]
    xp.ldexp(G.data, xp.where(G.data.max() > HUGE, -64, 0), out=G.data)  # keeps degrees finite
    degree = xp.empty((m, 1))
    bk.spmm(G, xp.ones((m, 1)), degree, 1.0, 0.0, 0.0)
    degree = degree[:, 0]
    scale = xp.where(degree > 0, 1 / xp.sqrt(xp.where(degree > 0, degree, 1)), 0)
    scale, power = xp.frexp(scale)
    step = _rows_in_block(bk, m, G.nnz)
    inner = [] if step >= m else bk.to_numpy(G.indptr[step:-1:step]).tolist()
    places = pairwise([0, *inner, G.nnz])
    for start, (first, stop) in zip(range(0, m, step), places, strict=True):
        ends = G.indptr[start : start + step + 1]
        row = start + bk.entry_rows(ends - first, stop - first)
        own, column = slice(first, stop), G.indices[first:stop]
        fraction, own_power = xp.frexp(G.data[own])
        fraction *= scale[row] * scale[column]
        G.data[own] = xp.ldexp(fraction, own_power + power[row] + power[column])
    return G
