"""The graph W_C of nearest neighbours, and the normalisation of graphs."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.graph.features import features, features_in_metric
from specialk_gpu.graph.neighbor_lists import checked_lists
from specialk_gpu.graph.rows import Rows

__all__ = [
    "MAX_EDGES",
    "WEIGHTS",
    "knn_graph",
    "knn_graph_of",
    "neighbors_graph",
    "normalised_graph",
    "symmetric_knn_graph",
]

WEIGHTS = ("connectivity", "distance")
MAX_EDGES = 2**31 - 1  # CSR indices are int32
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
    found = rows.neighbors(n_neighbors, in_units=True)  # the graph has no unit
    data = None if weights == "connectivity" else found.distances
    return normalised_graph(symmetric_knn_graph(backend_of(rows.X), found.indices, data))


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
    data = None if distances is None else distances.ravel()
    return _symmetric_knn_csr(bk, m, bk.xp.arange(m * k) // k, indices.ravel(), data)


def _symmetric_knn_csr(
    bk: Backend, m: int, row: Array, column: Array, data: Array | None
) -> Sparse:
    """Return (A + Aᵀ)/2 as sorted CSR from the entries (p,) of A, which are 1 without `data`."""
    xp = bk.xp
    keys = xp.concatenate([row * m + column, column * m + row])  # each pair once or twice
    if data is None:
        keys, counts = _counts_of_knn_keys(xp, keys)
        data = counts * 0.5
    else:
        data = xp.concatenate([data, data]) * 0.5
        order = xp.argsort(keys, kind="stable")
        keys, data = keys[order], data[order]
        same = keys[1:] == keys[:-1]
        data[:-1] += xp.where(same, data[1:], 0)
        is_first = xp.concatenate([xp.ones(1, dtype=bool), ~same])
        keep = is_first & (data > 0)
        keys, data = keys[keep], data[keep]
    return _knn_csr_from_keys(bk, keys, data, m)


def _counts_of_knn_keys(xp: ModuleType, keys: Array) -> tuple[Array, Array]:
    """Return the distinct keys in ascending order, and how often each occurs."""
    keys = xp.sort(keys)
    is_first = xp.concatenate([xp.ones(1, dtype=bool), keys[1:] != keys[:-1]])
    start = xp.flatnonzero(is_first)
    counts = xp.diff(xp.concatenate([start, xp.full(1, keys.size, dtype=start.dtype)]))
    return keys[is_first], counts


def _knn_csr_from_keys(bk: Backend, keys: Array, data: Array, m: int) -> Sparse:
    """Assemble a CSR matrix from sorted `keys`, each of which is row * m + column."""
    xp = bk.xp
    if keys.size > MAX_EDGES:
        msg = (
            f"the graph of {m:,} rows has {keys.size:,} edges, more than the {MAX_EDGES:,} that "
            "32-bit indices can number. Lower `n_neighbors`, or cluster a sample of the rows."
        )
        raise MemoryError(msg)
    row = keys // m
    indptr = xp.searchsorted(row, xp.arange(m + 1)).astype(np.int32)
    return bk.sparse.csr_matrix((data, (keys - row * m).astype(np.int32), indptr), shape=(m, m))


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
    G.data = xp.ldexp(G.data, xp.where(G.data.max() > HUGE, -64, 0))  # keeps the degrees finite
    degree = xp.empty((m, 1))
    bk.spmm(G, xp.ones((m, 1)), degree, 1.0, 0.0, 0.0)
    degree = degree[:, 0]
    scale = xp.where(degree > 0, 1 / xp.sqrt(xp.where(degree > 0, degree, 1)), 0)
    row = xp.searchsorted(G.indptr, xp.arange(G.nnz), side="right") - 1
    scale, power = xp.frexp(scale)
    fraction, own_power = xp.frexp(G.data)
    fraction *= scale[row] * scale[G.indices]
    G.data = xp.ldexp(fraction, own_power + power[row] + power[G.indices])
    return G
