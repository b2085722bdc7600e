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
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specialk_gpu._checks import checked_integer
from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.typing import Array

__all__ = [
    "ClusterStats",
    "attainable_log_p",
    "cluster_stats",
    "largest_zz_top",
    "zz_top",
    "zz_top_exponents",
    "zz_top_pairs",
]

CHUNK = 2**24  # largest number of entries of a temporary array


class ClusterStats(NamedTuple):
    """Counts, column sums and column sums of squares of each cluster, in float64.

    Attributes
    ----------
    counts : array of shape (k,)
    sums : array of shape (k, n)
    squares : array of shape (k, n)
    """

    counts: Array
    sums: Array
    squares: Array


@on_its_device
def cluster_stats(D: Array, labels: Array, n_clusters: int) -> ClusterStats:
    """Accumulate the statistics that `zz_top` needs, in one pass over D.

    Parameters
    ----------
    D : array of shape (m, n)
        The embedding.
    labels : int array of shape (m,)
        Values 0, ..., n_clusters - 1, on the device of `D`.
    n_clusters : int
        The number of clusters, k. Rows with other labels count for no cluster.

    Returns
    -------
    ClusterStats
        On the device of `D`.
    """
    bk = backend_of(D)
    labels = labels[None].astype(np.int64, copy=False)
    labels = bk.xp.where((labels >= 0) & (labels < n_clusters), labels, -1).astype(np.int32)
    stats = bk.segment_sum(D, labels, n_clusters, squares=True)
    return ClusterStats(*(x[0] for x in stats))


@on_its_device
def zz_top(D: ArrayLike, labels: ArrayLike, n_clusters: int | None = None) -> Array:
    r"""Bound, for every pair of clusters, the probability that they are one cluster.

    The bound is the logarithm of :math:`|J| \exp(-\frac{1}{2} t^2 / (n\sigma^2 + t/3))` of [HD19,
    Cor. 1 and Alg. 1, lines 6 to 10], at most 0, with the larger t of the two clusters of a pair.
    `D` need not come from a graph: it can be any data whose columns are comparable, with the labels
    of any clustering.

    Parameters
    ----------
    D : array-like of shape (m, n)
        Must be finite. A column that is zero on a pair adds nothing to the bound of this pair.
    labels : array-like of int, of shape (m,)
        Values 0, ..., k - 1; every cluster must have a member.
    n_clusters : int, optional
        The number of clusters, k; by default the largest label plus one.

    Returns
    -------
    float64 array of shape (k, k)
        Natural logarithms, symmetric, 0 on the diagonal; on the device of `D`.

    Raises
    ------
    ValueError
        If shapes or labels do not fit, if a cluster is empty, or if `D` is not finite.

    Examples
    --------
    >>> from specialk_gpu import eigenpairs, embed, knn_graph, zz_top
    >>> from specialk_gpu.datasets import make_shape
    >>> X, y = make_shape("blobs", noise=0.1, random_state=0)
    >>> pairs = eigenpairs(knn_graph(X), 200, random_state=0)
    >>> log_p = zz_top(embed(pairs.values, pairs.vectors), y)  # of each pair of classes
    >>> log_p.shape, bool(log_p[0, 1] < -4.6)  # p < 0.01
    ((3, 3), True)
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
    for name, x, kinds, what in (
        ("D", D, "biuf", "real numbers"),
        ("labels", labels, "iu", "integers"),
    ):
        if x.dtype.kind not in kinds:
            msg = f"{name} must hold {what}, got dtype {x.dtype}."
            raise TypeError(msg)
    low, high = bk.to_numpy(xp.stack([labels.min(), labels.max()])).tolist()  # a sync
    k = high + 1 if n_clusters is None else checked_integer("n_clusters", n_clusters, 1)
    if low < 0 or high >= k:
        msg = f"labels must lie in 0, ..., {k - 1}, got {low}, ..., {high}."
        raise ValueError(msg)
    stats = cluster_stats(D, labels, k)
    extremes = xp.stack([stats.counts.min(), stats.squares.max()])
    smallest, largest = bk.to_numpy(extremes).tolist()  # a sync
    if not smallest > 0:
        empty = np.flatnonzero(bk.to_numpy(stats.counts) == 0)
        msg = f"every cluster must have a member, got none for labels {empty.tolist()}."
        raise ValueError(msg)
    if not math.isfinite(largest):
        msg = "D must be finite, and so must the sums of its squares."
        raise ValueError(msg)
    return zz_top_pairs(stats)


def zz_top_pairs(stats: ClusterStats) -> Array:
    """Return the matrix of `zz_top`, computed from the statistics of the clusters."""
    xp = backend_of(stats.sums).xp
    k = stats.sums.shape[0]
    log_p = xp.zeros((k, k))
    a, b = xp.triu_indices(k, 1)
    log_p[a, b] = log_p[b, a] = _map_zz_top_pairs(_log_zz_top, stats, a, b)
    return log_p


def _map_zz_top_pairs(
    function: Callable[[ClusterStats, Array, Array], Array], stats: ClusterStats, a: Array, b: Array
) -> Array:
    """Return function(stats, a, b), of shape (p,), for pairs (a, b) of clusters, in chunks."""
    step = max(1, CHUNK // (4 * stats.sums.shape[1]))
    out = backend_of(stats.sums).xp.zeros(a.size)
    for start in range(0, int(a.size), step):
        pairs = slice(start, start + step)
        out[pairs] = function(stats, a[pairs], b[pairs])
    return out


def _zz_top_cut_of_pairs(stats: ClusterStats, a: Array, b: Array) -> Array:
    """Return the weights of the cuts between a few pairs of clusters."""
    products = (stats.sums[a] * stats.sums[b]).sum(axis=1)
    return products * (1 / stats.counts[a] + 1 / stats.counts[b])


def _log_zz_top(stats: ClusterStats, a: Array, b: Array) -> Array:
    """Return log p for a few pairs of clusters."""
    xp = backend_of(stats.sums).xp
    N = stats.counts[a] + stats.counts[b]
    return xp.minimum(xp.log(N) - zz_top_exponents(stats, a, b), 0)


def zz_top_exponents(stats: ClusterStats, a: Array, b: Array) -> Array:
    """Return the exponents of the bound, of shape (p,), for a few pairs (a, b) of clusters."""
    xp = backend_of(stats.sums).xp
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
    return 0.5 * t * t / xp.where(t > 0, n_sigma_sq + t / 3, 1)


def largest_zz_top(
    D: Array, labels: Array, ks: list[int], n_pairs: int | None = None
) -> list[tuple[float, tuple[int, int] | None]]:
    """Return the largest log p and its pair for each of several labellings, in one pass over D.

    Waits for the device once.

    Parameters
    ----------
    D : array of shape (m, n)
    labels : int32 array of shape (R, m)
        Each row has values 0, ..., k - 1; every cluster must have a member.
    ks : list of int
        The k of each labelling.
    n_pairs : int, optional
        Use only this many pairs of highest cut.

    Returns
    -------
    list of (float, pair of int or None)
        On the host. The value is NaN if a bound is not finite, and -inf if there is no pair.
    """
    bk = backend_of(D)
    stats = ClusterStats(*bk.segment_sum(D, labels, max(ks), squares=True))
    flat = ClusterStats(stats.counts.ravel(), *(x.reshape(-1, D.shape[1]) for x in stats[1:]))
    pairs = [np.stack(np.triu_indices(k, 1)) for k in ks]  # (2, p) for each labelling
    places = np.concatenate([pair + r * max(ks) for r, pair in enumerate(pairs)], axis=1)
    a, b = bk.asarray(places)
    found = [_map_zz_top_pairs(_log_zz_top, flat, a, b)]
    if n_pairs is not None:
        found.append(_map_zz_top_pairs(_zz_top_cut_of_pairs, flat, a, b))
    found = bk.to_numpy(bk.xp.stack(found))  # the one sync
    ends = np.cumsum([pair.shape[1] for pair in pairs])[:-1]
    largest: list[tuple[float, tuple[int, int] | None]] = []
    for pair, own in zip(pairs, np.split(found, ends, axis=1), strict=True):
        values = own[0]
        if not (values.size and np.isfinite(values).all()):
            largest.append((math.nan if values.size else -math.inf, None))
            continue
        if n_pairs is not None:
            chosen = np.sort(np.argsort(-own[1], kind="stable")[:n_pairs])
            pair, values = pair[:, chosen], values[chosen]
        worst = int(np.argmax(values))
        largest.append((float(values[worst]), (int(pair[0, worst]), int(pair[1, worst]))))
    return largest


def attainable_log_p(n_rows: int, n_columns: int) -> float:
    r"""Return the lowest log p that two perfectly separated clusters could reach.

    All sizes of the smaller cluster are considered. Each column is constant on one of the clusters
    and zero on the other; the numbers of columns are in proportion to the sizes of the clusters.
    The effect :math:`-\log p / n` then peaks near 4/9, with a third of the rows in the smaller
    cluster. If the significance level is below this value, no split of these data can be accepted,
    however clear it is, unless most columns belong to a small cluster.

    Parameters
    ----------
    n_rows : int
        Number of rows of D.
    n_columns : int
        Number of columns of D.

    Returns
    -------
    float
        Natural logarithm; 0 with fewer than two rows, or no column.
    """
    if n_rows < 2 or n_columns < 1:
        return 0.0
    f = np.arange(1, n_rows // 2 + 1) / n_rows
    n_sigma_sq = 2 * n_columns * f * (1 - f) / n_rows
    t = np.maximum(2 * n_columns * f * (1 - f) ** 2 - n_sigma_sq, 0)
    return min(0.0, math.log(n_rows) - float((0.5 * t * t / (n_sigma_sq + t / 3)).max()))
