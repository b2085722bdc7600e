"""Clusters of new rows, by the votes of the rows that were fitted."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from specialk_gpu._warn import warn
from specialk_gpu.backend import backend_of
from specialk_gpu.graph.affinity import GraphWarning, rows_of_entries
from specialk_gpu.graph.neighbors import neighbors_among

__all__ = ["shares_of_neighbors", "shares_of_similarities"]


def shares_of_neighbors(
    queries: Any, X: Any, labels: Any, n_neighbors: int, n_clusters: int
) -> Any:
    """Return the share of the nearest rows of X that each cluster has, for every query.

    Parameters
    ----------
    queries : float array of shape (q, d)
    X : float array of shape (m, d)
    labels : int32 array of shape (m,)
    n_neighbors : int
        Voters, at most m. Where a query equals some of them, these alone vote.
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


def _shares(bk: ModuleType, near: Any, votes: Any, n_clusters: int) -> Any:
    """Add up the votes (q, n) by the labels `near` (q, n)."""
    xp, q = bk.xp, near.shape[0]
    place = xp.arange(q)[:, None] * n_clusters + near
    total = xp.bincount(place.ravel(), votes.ravel(), minlength=q * n_clusters)
    total = total.reshape(q, n_clusters)
    return total / total.sum(axis=1)[:, None]


def shares_of_similarities(S: Any, D: Any, labels: Any, n_clusters: int) -> Any:
    """Return the share of the similarity that each cluster has, for every new row.

    Parameters
    ----------
    S : sparse matrix or array of shape (q, m)
        Similarities of new rows to those that were fitted: finite, not negative.
    D : float array of shape (m, n)
        The embedding. Rows without similarity, whose embedding is zero, go to the cluster of such
        rows, or to that with the mean nearest to the origin; a GraphWarning says so.
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
    S.data = xp.ldexp(S.data, -S.shape[1].bit_length())  # sums of a row stay finite
    place = row * n_clusters + labels[S.indices]
    whole = xp.rint(xp.ldexp(S.data, _growth(bk, S)[row]))  # sums are exact, in any order
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


def _growth(bk: ModuleType, S: Any) -> Any:
    """Return the powers of two (q,) by which the rows of S grow to sums of about 2^50."""
    xp, (q, m) = bk.xp, S.shape
    n = max(q, m)
    indptr = xp.concatenate([S.indptr, xp.full(n - q, S.nnz, dtype=S.indptr.dtype)])
    square = bk.sparse.csr_matrix((S.data, S.indices, indptr), shape=(n, n))
    sums = xp.empty((n, 1))
    bk.spmm(square, xp.ones((n, 1)), sums, 1.0, 0.0, 0.0)
    return 50 - xp.frexp(sums[:q, 0])[1]


def _label_of_zero(bk: ModuleType, D: Any, labels: Any, n_clusters: int) -> int:
    """Return the label of a row whose embedding is zero."""
    zero = bk.xp.flatnonzero(~(D != 0).any(axis=1))
    if zero.size:
        return int(labels[zero[0]])
    counts, sums = bk.segment_sum(D, labels[None], n_clusters)
    means = sums[0] / counts[0][:, None]
    return int(bk.xp.argmin((means * means).sum(axis=1)))
