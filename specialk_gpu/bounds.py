r"""The ZZ Top Bound for all pairs of clusters, from sufficient statistics.

For a pair J of clusters a and b, let :math:`N = N_a + N_b`, and for each column of D
:math:`S = S_a + S_b` and :math:`Q = Q_a + Q_b` be the sums and the sums of squares over J. The
columns of :math:`Z = (D_J - 1\mu^\top)/\|D_J\|` then have squared norms :math:`1 - S^2/(NQ)`, and

.. math::

    R(ZZ^\top, y_a) = \frac{1}{N_a}\sum_i \frac{(N_b S_{ai} - N_a S_{bi})^2}{N^2 Q_i},

so that all pairs together cost :math:`O(k^2 n)` after one pass over D.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from specialk_gpu.backend import backend_of

__all__ = ["ClusterStats", "attainable_log_p", "cluster_stats", "zz_top", "zz_top_pairs"]

CHUNK = 2**24  # entries of a temporary array


class ClusterStats(NamedTuple):
    """Counts, column sums and column sums of squares of each cluster, in float64.

    Attributes
    ----------
    counts : array of shape (k,)
    sums : array of shape (k, n)
    squares : array of shape (k, n)
    """

    counts: Any
    sums: Any
    squares: Any


def cluster_stats(D: Any, labels: Any, n_clusters: int) -> ClusterStats:
    """Accumulate the statistics that `zz_top` needs, in one pass over D.

    Parameters
    ----------
    D : array of shape (m, n)
    labels : int array of shape (m,)
        In 0, ..., n_clusters - 1, on the device of D.
    n_clusters : int
        k; rows with other labels count for no cluster.

    Returns
    -------
    ClusterStats
        On the device of D.
    """
    bk = backend_of(D)
    xp = bk.xp
    m, n = D.shape
    step = max(1, min(CHUNK // max(n, n_clusters), bk.free_memory() // (32 * n)))
    clusters = xp.arange(n_clusters)[:, None]
    counts, sums = xp.zeros(n_clusters), xp.zeros((n_clusters, n))
    squares = xp.zeros((n_clusters, n))
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite shows in the sums
        for start in range(0, m, step):
            member = (labels[start : start + step] == clusters).astype(np.float64)  # (k, t)
            part = D[start : start + step].astype(np.float64)  # (t, n), a copy
            counts += member.sum(axis=1)
            sums += member @ part
            part *= part
            squares += member @ part
    return ClusterStats(counts, sums, squares)


def zz_top(D: Any, labels: Any, n_clusters: int | None = None) -> Any:
    r"""Bound, for every pair of clusters, the probability that they are one cluster.

    The logarithm of :math:`|J| \exp(-\frac12 t^2 / (n\sigma^2 + t/3))` of [HD19, Cor. 1 and
    Alg. 1, lines 6 to 10], at most 0, with the larger t of the two clusters of a pair. D need
    not come from a graph: any data whose columns are comparable will do, with the labels of
    any clustering.

    Parameters
    ----------
    D : array-like of shape (m, n)
        Finite. A column that is zero on a pair adds nothing to it.
    labels : array-like of int, of shape (m,)
        In 0, ..., k - 1; every cluster has a member.
    n_clusters : int, optional
        k; by default the largest label plus one.

    Returns
    -------
    float64 array of shape (k, k)
        Natural logarithms, symmetric, 0 on the diagonal; on the device of D.

    Raises
    ------
    ValueError
        If shapes or labels do not fit, a cluster is empty, or D is not finite.
    """
    bk = backend_of(D)
    xp, D, labels = bk.xp, bk.asarray(D), bk.asarray(labels)
    if D.ndim != 2 or 0 in D.shape:
        msg = f"D must have rows and columns, got shape {D.shape}."
        raise ValueError(msg)
    if labels.shape != D.shape[:1]:
        msg = (
            f"labels must have shape ({D.shape[0]},) for D of shape {D.shape}, got {labels.shape}."
        )
        raise ValueError(msg)
    low, high = int(labels.min()), int(labels.max())
    k = high + 1 if n_clusters is None else n_clusters
    if low < 0 or high >= k:
        msg = f"labels must lie in 0, ..., {k - 1}, got {low}, ..., {high}."
        raise ValueError(msg)
    stats = cluster_stats(D, labels, k)
    if not bool((stats.counts > 0).all()):
        empty = xp.flatnonzero(stats.counts == 0)
        msg = f"every cluster must have a member, got none for labels {empty.tolist()}."
        raise ValueError(msg)
    if not bool(xp.isfinite(stats.squares).all()):
        msg = "D must be finite, and so must the sums of its squares."
        raise ValueError(msg)
    return zz_top_pairs(stats)


def zz_top_pairs(stats: ClusterStats) -> Any:
    """Return the matrix of `zz_top` from the clusters' statistics."""
    xp = backend_of(stats.sums).xp
    k, n = stats.sums.shape
    log_p = xp.zeros((k, k))
    a, b = xp.triu_indices(k, 1)
    step = max(1, CHUNK // (4 * n))
    for start in range(0, int(a.size), step):
        i, j = a[start : start + step], b[start : start + step]
        log_p[i, j] = log_p[j, i] = _log_bound(xp, stats, i, j)
    return log_p


def _log_bound(xp: Any, stats: ClusterStats, a: Any, b: Any) -> Any:
    """Return log p of the pairs (a, b), each of shape (p,)."""
    N_a, N_b = stats.counts[a], stats.counts[b]
    N = N_a + N_b  # (p,)
    Q = stats.squares[a] + stats.squares[b]  # (p, n)
    S = stats.sums[a] + stats.sums[b]
    present = Q > 0  # a column that is zero on the pair contributes nothing
    Q = xp.where(present, Q, 1)
    variance = xp.where(present, xp.maximum(1 - S / Q * S / N[:, None], 0), 0)
    n_sigma_sq = variance.sum(axis=1) / N
    between = N_b[:, None] * stats.sums[a] - N_a[:, None] * stats.sums[b]
    rayleigh = (between / Q * between).sum(axis=1) / N**2 / xp.minimum(N_a, N_b)
    t = xp.maximum(rayleigh - n_sigma_sq, 0)
    exponent = 0.5 * t * t / xp.where(t > 0, n_sigma_sq + t / 3, 1)
    return xp.minimum(xp.log(N) - exponent, 0)


def attainable_log_p(n_rows: int, n_columns: int) -> float:
    r"""Return the lowest log p that two perfectly separated clusters could reach.

    Taken over all sizes of the smaller cluster, with columns that are constant on one of the
    clusters and zero on the other, in proportion to their sizes: the effect :math:`-\log p / n`
    then peaks near 4/9, when a third of the rows is in the smaller one. A significance level
    below this value means that a split of these data cannot be accepted, however clear, unless
    most columns are those of a small cluster.

    Parameters
    ----------
    n_rows : int
        Rows of D.
    n_columns : int
        Columns of D.
    """
    if n_rows < 2 or n_columns < 1:
        return 0.0
    f = np.arange(1, n_rows // 2 + 1) / n_rows
    n_sigma_sq = 2 * n_columns * f * (1 - f) / n_rows
    t = np.maximum(2 * n_columns * f * (1 - f) ** 2 - n_sigma_sq, 1e-300)
    return min(0.0, math.log(n_rows) - float((0.5 * t * t / (n_sigma_sq + t / 3)).max()))
