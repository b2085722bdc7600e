"""Labels for new rows, by a vote of the fitted rows."""

from __future__ import annotations

import numpy as np

from specialk_gpu._warn import warn
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.graph.knn import GraphWarning
from specialk_gpu.graph.neighbors import neighbors_among
from specialk_gpu.graph.precomputed import rows_of_entries

__all__ = ["shares_of_neighbors", "shares_of_similarities"]


def shares_of_neighbors(
    queries: Array, X: Array, labels: Array, n_neighbors: int, n_clusters: int
) -> Array:
    """Return, for every query, each cluster's share of the nearest rows of X.

    Parameters
    ----------
    queries : float array of shape (q, d)
    X : float array of shape (m, d)
    labels : int32 array of shape (m,)
    n_neighbors : int
        The number of voters, at most m. If some of them equal the query, only these vote.
    n_clusters : int
        k.

    Returns
    -------
    float64 array of shape (q, k)
        Rows sum to 1.
    """
    bk = backend_of(queries)
    distances, indices, _ = neighbors_among(queries, X, n_neighbors)
    equal = distances == 0
    votes = (equal | ~equal.any(axis=1)[:, None]).astype(np.float64)
    return _shares(bk, labels[indices], votes, n_clusters)


def _shares(bk: Backend, near: Array, votes: Array, n_clusters: int) -> Array:
    """Return the shares (q, k): sums of the votes (q, n) by the voters' labels `near` (q, n)."""
    xp, q = bk.xp, near.shape[0]
    place = xp.arange(q)[:, None] * n_clusters + near
    total = xp.bincount(place.ravel(), votes.ravel(), minlength=q * n_clusters)
    total = total.reshape(q, n_clusters)
    return total / total.sum(axis=1)[:, None]


def shares_of_similarities(S: Sparse, D: Array, labels: Array, n_clusters: int) -> Array:
    """Return, for every new row, each cluster's share of the similarity.

    Parameters
    ----------
    S : sparse matrix or array of shape (q, m)
        Similarities of the new rows to the fitted rows: finite and not negative.
    D : float array of shape (m, n)
        The embedding. A new row without any similarity gets the label of the fitted rows whose
        embedding is zero; without such rows, that of the cluster whose mean is nearest to the
        origin. A GraphWarning says so.
    labels : int32 array of shape (m,)
    n_clusters : int
        k.

    Returns
    -------
    float64 array of shape (q, k)
        Rows sum to 1.

    Raises
    ------
    ValueError
        If an entry is negative or not finite.
    """
    bk = backend_of(S)
    xp = bk.xp
    S = bk.sparse.csr_matrix(S, dtype=np.float64)
    row = rows_of_entries(S, "similarities")
    S.data = xp.ldexp(S.data, -S.shape[1].bit_length())  # keeps the sum of each row finite
    place = row * n_clusters + labels[S.indices]
    whole = xp.rint(xp.ldexp(S.data, _growth(bk, S)[row]))  # whole numbers: their sums are exact
    total = xp.bincount(place, whole, minlength=S.shape[0] * n_clusters).reshape(-1, n_clusters)
    alone = xp.flatnonzero(total.sum(axis=1) == 0)
    if alone.size:
        warn(
            f"{alone.size} of {S.shape[0]} rows have no similarity to a row that was fitted: their "
            "labels mean nothing.",
            GraphWarning,
        )
        total[alone, _label_of_zero(bk, D, labels, n_clusters)] = 1
    return total / total.sum(axis=1)[:, None]


def _growth(bk: Backend, S: Sparse) -> Array:
    """Return the exponents of two (q,) that scale the rows of S to sums of about 2^50."""
    xp, (q, m) = bk.xp, S.shape
    n = max(q, m)
    indptr = xp.concatenate([S.indptr, xp.full(n - q, S.nnz, dtype=S.indptr.dtype)])
    square = bk.sparse.csr_matrix((S.data, S.indices, indptr), shape=(n, n))
    sums = xp.empty((n, 1))
    bk.spmm(square, xp.ones((n, 1)), sums, 1.0, 0.0, 0.0)
    return 50 - xp.frexp(sums[:q, 0])[1]


def _label_of_zero(bk: Backend, D: Array, labels: Array, n_clusters: int) -> int:
    """Return the label for a row whose embedding is zero."""
    zero = bk.xp.flatnonzero(~(D != 0).any(axis=1))
    if zero.size:
        return int(labels[zero[0]])
    counts, sums = bk.segment_sum(D, labels[None], n_clusters)
    means = sums[0] / counts[0][:, None]
    return int(bk.xp.argmin((means * means).sum(axis=1)))
