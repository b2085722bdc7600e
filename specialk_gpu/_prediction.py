"""Labels for new rows, by a vote of the fitted rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specialk_gpu._warnings import GraphWarning, warn
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.graph.affinity import rows_of_affinities
from specialk_gpu.graph.neighbors import neighbors_among

__all__ = ["Voters", "Votes", "predict_by_neighbors", "predict_by_similarities"]

NEAR = 2.0  # up to so many times the spacing of its voters, a new row is as near as fitted rows are


class Votes(NamedTuple):
    """The votes of fitted rows on q new rows.

    Attributes
    ----------
    labels : int32 array of shape (q,)
        The label of all voters if they agree; otherwise the one of the largest share.
    shares : float64 array of shape (q, k)
        Each cluster's share; rows sum to 1.
    """

    labels: Array
    shares: Array

    def among(self, n: int, kept: Array) -> Votes:
        """Return the votes as those on n rows, of which only `kept` had a vote: -1, and NaN."""
        xp = backend_of(self.shares).xp
        labels = xp.full(n, -1, dtype=np.int32)
        shares = xp.full((n, self.shares.shape[1]), np.nan)
        labels[kept], shares[kept] = self.labels, self.shares
        return Votes(labels, shares)


class Voters(NamedTuple):
    """The u fitted rows that vote, on the backend.

    Attributes
    ----------
    X : float array of shape (u, d)
    labels : int32 array of shape (u,)
    membership : float64 array of shape (u, k)
        Rows sum to 1.
    spacing : float64 array of shape (u,)
        The distance of each row to its last neighbour.
    usual : float64 array of shape (k,)
        The spacing that is usual in each cluster, above zero.
    """

    X: Array
    labels: Array
    membership: Array
    spacing: Array
    usual: Array


def predict_by_neighbors(
    queries: Array, voters: Voters, n_neighbors: int, noise: float | None = None
) -> Votes:
    """Return the labels and shares of new rows, by the memberships of the nearest fitted rows.

    Parameters
    ----------
    queries : float array of shape (q, d)
    voters : Voters
    n_neighbors : int
        The number of voters, at most u. If some of them equal the query, only these vote.
    noise : float or None
        If given, a query whose last neighbour is more than so many times as far as is usual in its
        cluster gets the label -1. One that equals a fitted row is judged as that row.

    Returns
    -------
    Votes
        The shares are the mean membership of the voters. If the last of them is more than `NEAR`
        times as far from the query as their own last neighbours are from them, the shares are
        mixed with equal shares, and tend to these with the square of the distance.
    """
    bk = backend_of(queries)
    xp, k = bk.xp, voters.membership.shape[1]
    distances, indices, _ = neighbors_among(queries, voters.X, n_neighbors)
    equal = distances == 0
    known = equal.any(axis=1)
    votes = (equal | ~known[:, None]).astype(np.float64)
    shares = xp.zeros((indices.shape[0], k))
    for voter, vote in zip(indices.T, votes.T, strict=True):  # not at once: (q, n, k) is large
        shares += voters.membership[voter] * vote[:, None]
    shares /= votes.sum(axis=1)[:, None]
    labels = _predicted_labels(_predicted_shares(bk, voters.labels[indices], votes, k), shares)
    spacing = xp.where(voters.spacing > 0, voters.spacing, voters.usual[voters.labels])
    with np.errstate(over="ignore"):
        far = distances[:, -1] / xp.median(spacing[indices], axis=1)
        trust = xp.where(known, 1.0, xp.maximum(far / NEAR, 1.0) ** -2.0)[:, None]
        reach = xp.where(known, voters.spacing[indices[:, 0]], distances[:, -1])
        if noise is not None:
            labels = xp.where(reach / voters.usual[labels] > noise, np.int32(-1), labels)
    return Votes(labels, trust * shares + (1 - trust) / k)


def _predicted_labels(by_label: Array, shares: Array) -> Array:
    """Return the label (q,) that has all votes, or the largest share where voters disagree."""
    xp = backend_of(shares).xp
    agree = by_label.max(axis=1) == 1
    return xp.where(agree, by_label.argmax(axis=1), shares.argmax(axis=1)).astype(np.int32)


def _predicted_shares(bk: Backend, near: Array, votes: Array, n_clusters: int) -> Array:
    """Return the shares (q, k): sums of the votes (q, n) by the voters' labels `near` (q, n)."""
    xp, q = bk.xp, near.shape[0]
    place = xp.arange(q)[:, None] * n_clusters + near
    total = xp.bincount(place.ravel(), votes.ravel(), minlength=q * n_clusters)
    total = total.reshape(q, n_clusters)
    return total / total.sum(axis=1)[:, None]


def predict_by_similarities(S: Sparse, D: Array, labels: Array, membership: Array) -> Votes:
    """Return the labels and shares of new rows, by the memberships of the fitted rows.

    Parameters
    ----------
    S : sparse matrix or array of shape (q, m)
        Similarities of the new rows to the fitted rows: finite and not negative.
    D : float array of shape (m, n)
        The embedding. A new row without any similarity gets the label of the fitted rows whose
        embedding is zero; without such rows, that of the cluster whose mean is nearest to the
        origin; and equal shares. A GraphWarning says so.
    labels : int32 array of shape (m,)
    membership : float64 array of shape (m, k)
        Rows sum to 1.

    Returns
    -------
    Votes
        The shares are the mean membership of the fitted rows, weighted by similarity.

    Raises
    ------
    ValueError
        If an entry is negative or not finite.
    """
    bk = backend_of(S)
    xp, (q, k) = bk.xp, (S.shape[0], membership.shape[1])
    S = bk.sparse.csr_matrix(S, dtype=np.float64)
    row = rows_of_affinities(S, "similarities")
    S.data = xp.ldexp(S.data, -S.shape[1].bit_length())  # keeps the sum of each row finite
    S.data = xp.ldexp(S.data, _exponents_to_predict(bk, S)[row])  # and near 2^50
    one_hot = (labels[:, None] == xp.arange(k, dtype=np.int32)).astype(np.float64)
    total = _products_to_predict(bk, S, xp.concatenate([one_hot, membership], axis=1))
    by_label, shares = total[:, :k], total[:, k:]
    alone = by_label.sum(axis=1) == 0
    by_label[alone, _predicted_label_of_zero(bk, D, labels, k)] = 1.0
    shares[alone] = 1.0
    if n_alone := int(alone.sum()):  # host waits
        warn(
            f"{n_alone} of {q} rows have no similarity to a row that was fitted: their labels mean "
            "nothing.",
            GraphWarning,
        )
    by_label /= by_label.sum(axis=1)[:, None]
    shares /= shares.sum(axis=1)[:, None]
    return Votes(_predicted_labels(by_label, shares), shares)


def _products_to_predict(bk: Backend, S: Sparse, X: Array) -> Array:
    """Return S X for a sparse matrix (q, m), which is filled up to a square: (q, columns)."""
    xp, (q, m) = bk.xp, S.shape
    n = max(q, m)
    indptr = xp.concatenate([S.indptr, xp.full(n - q, S.nnz, dtype=S.indptr.dtype)])
    square = bk.sparse.csr_matrix((S.data, S.indices, indptr), shape=(n, n))
    X = xp.concatenate([X, xp.zeros((n - m, X.shape[1]))])
    out = xp.empty((n, X.shape[1]))
    bk.spmm(square, X, out, 1.0, 0.0, 0.0)
    return out[:q]


def _exponents_to_predict(bk: Backend, S: Sparse) -> Array:
    """Return the exponents of two (q,) that scale the rows of S to sums of about 2^50."""
    sums = _products_to_predict(bk, S, bk.xp.ones((S.shape[1], 1)))
    return 50 - bk.xp.frexp(sums[:, 0])[1]


def _predicted_label_of_zero(bk: Backend, D: Array, labels: Array, n_clusters: int) -> int:
    """Return the label for a row whose embedding is zero."""
    zero = bk.xp.flatnonzero(~(D != 0).any(axis=1))
    if zero.size:
        return int(labels[zero[0]])
    counts, sums = bk.segment_sum(D, labels[None], n_clusters)
    means = sums[0] / counts[0][:, None]
    return int(bk.xp.argmin((means * means).sum(axis=1)))
