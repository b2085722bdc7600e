"""Valleys: whether rows are rare half-way between two clusters, along the line that joins them.

A cut of a short cluster, as clusters in many dimensions are, says little. But along the line from
the mean of one cluster to that of the other, rows of two clusters lie on two peaks with a valley
between them. Rows of one cluster with a log-concave density have a single peak along any line, and
still have it if only those in a convex region are counted [Pre73].

So that no row is counted by what was made of it, the rows are divided into two halves. The means of
one half give the line and the region; the rows of the other half are counted in three windows: one
where they are rare, and one on either side. Where these are is chosen in the first half. If there
is one peak, the density in the middle is at least the mean density on one of the two sides, and a
row that is in one of these windows is in the middle one with a known probability or a greater. So p
is binomial, with the side of fewer rows. Both halves take both parts, and their counts are added.

The region is what lies nearer to the point half-way than to the mean of any other cluster,
whichever cluster its rows were put in: where a third cluster was cut from between two, they would
have a valley without being two clusters.

Curved clusters have valleys of their own. In few dimensions, where they are met, the rows in a
valley have to be spread about the line (`Valleys.are_bent`), and between long clusters the valley
has to be deeper than that of a ring.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtr

from specialk_gpu.backend import backend_of

__all__ = ["Valleys", "halves", "in_windows", "valley_log_p"]

BINS = 32  # along the line, from one mean to the other; as many on either side of them
VALLEY, SIDE = 10, 16  # bins of the window in the middle, and of those on its sides
SMOOTH = 7  # bins by which windows are moved, and counts averaged, where they are chosen
MARGIN = 0.45  # of the way from the point half-way to another mean, up to which rows are counted
SHALLOW = 0.93  # density of a valley, for each in the lower peak, up to which it is none
DEEP = 0.5  # density of a valley, for each in the lower peak, that bent clusters have of themselves
BENT = 0.8  # deviations between the rows of a valley and the line, from which a pair is bent
HALF_DEVIATION, ON_THE_LINE = 0.5, 0.15  # share of these rows that must be so near to the line
FEWEST = 3  # rows of a cluster in either half
LEAST_P = 1e-300
CHUNK = 2**20  # pairs times rows, or entries of rows, that are looked at together


def halves(X: Any, chunk: int = CHUNK) -> Any:
    """Divide rows (m, d) into two halves, whatever their order, and return a bool array (m,).

    Their projections on a random line are sorted, and every other row is in the second half.
    """
    bk = backend_of(X)
    direction = bk.asarray(np.random.default_rng(0).standard_normal(X.shape[1]))
    place = bk.xp.concatenate([rows @ direction for _, rows in _in_chunks(X, 0.0, chunk)])
    half = bk.xp.empty(X.shape[0], dtype=bool)
    half[bk.xp.argsort(place, kind="stable")] = bk.xp.arange(X.shape[0]) % 2 == 1
    return half


class _Means(NamedTuple):
    """The means of n nodes.

    Attributes
    ----------
    products : array of shape (n, m)
        Of a row with the mean of a node's rows in the other half.
    inner : array of shape (n, n)
        Products of means, of one half with those of the other: so that chance in one half does not
        make them larger.
    known : bool array of shape (n,)
        Whether there are at least 3 rows in either half.
    nearest, who : arrays of shape (3, m)
        The three nodes nearest to each row, and product less half the square of their means; of
        shape (0, m) if there are two nodes.
    """

    products: Any
    inner: Any
    known: Any
    nearest: Any
    who: Any


class Valleys:
    """The means of the parts of a set, and of unions of them, and the valleys between two.

    Parameters
    ----------
    X : float array of shape (m, d)
    half : bool array of shape (m,)
        Of `halves`.
    part : int32 array of shape (m,)
        The part of each row, in 0, ..., K - 1; unions have the numbers that follow.
    K : int

    Notes
    -----
    Holds 2 K m products. Costs two products of X with 2 K columns, and for each pair some passes
    over the rows.
    """

    def __init__(self, X: Any, half: Any, part: Any, K: int) -> None:
        self._bk = bk = backend_of(X)
        xp, (m, d) = bk.xp, X.shape
        self.n_nodes = K
        self._X, self._half, mean = X, half, X.mean(axis=0, dtype=np.float64)
        number = part + K * half
        names = xp.arange(2 * K, dtype=number.dtype)
        sums = xp.zeros((2 * K, d))
        for own, rows in _in_chunks(X, mean):
            sums += (number[own] == names[:, None]).astype(np.float64) @ rows
        first, second = sums[:K], sums[K:]
        self._sums, self._counts = xp.zeros((2, 2 * K, d)), xp.zeros((2, 2 * K))
        self._sums[0, :K], self._sums[1, :K] = first, second
        self._counts[:, :K] = bk.bin_sums(number, xp.ones(m), 2 * K).reshape(2, K)
        self._dots = xp.empty((2 * K, m))  # of a row, and the sum of a node in the other half
        for own, rows in _in_chunks(X, mean):
            self._dots[:K, own] = xp.where(half[own], first @ rows.T, second @ rows.T)

    def unite(self, a: int, b: int) -> None:
        """Make the union of two nodes, with the next number."""
        new = self.n_nodes
        self.n_nodes += 1
        for known in (self._counts, self._sums):
            known[:, new] = known[:, a] + known[:, b]
        self._bk.xp.add(self._dots[a], self._dots[b], out=self._dots[new])

    def counts(self, pairs: np.ndarray, nodes: np.ndarray) -> Any:
        """Count rows by pair (p, 2), half and place on the line.

        Parameters
        ----------
        pairs : int array of shape (p, 2)
        nodes : int array of shape (n,)
            All clusters, these among them; those of fewer than 3 rows in a half do not count.

        Returns
        -------
        float64 array of shape (p, 2, 3 BINS)
        """
        xp, found = self._bk.xp, []
        means, ends = self._means(nodes), self._places(pairs, nodes)
        for own in self._in_chunks(ends):
            pair, row, place, inside = self._region(means, own)
            n_bins = len(own) * 6 * BINS
            key = xp.where(inside, (2 * pair + self._half[row]) * 3 * BINS + place, n_bins)
            found.append(self._bk.bin_sums(key, xp.ones(key.size), n_bins + 1)[:n_bins])
        found = xp.concatenate(found) if found else xp.zeros(0)
        return found.reshape(-1, 2, 3 * BINS)

    def are_bent(self, pairs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Say of pairs (p, 2) whether the rows in the valley are not spread about the line.

        They are not, if they lie to one side of it, as in an arc, or all around it, as in a ring.
        Moves the rows in windows to the host: they should have few columns.
        """
        bk, xp, chosen, done = self._bk, self._bk.xp, [], 0
        means, ends = self._means(nodes), self._places(pairs, nodes)
        for own in self._in_chunks(ends):
            pair, row, place, inside = self._region(means, own)
            n_bins = len(own) * 3 * BINS
            key = xp.where(inside, pair * 3 * BINS + place, n_bins)
            counts = bk.bin_sums(key, xp.ones(key.size), n_bins + 1)[:n_bins]
            group = xp.full(key.size, -1)
            starts = _windows(counts.reshape(len(own), -1))
            for i, (start, width) in enumerate(zip(starts, (VALLEY, SIDE, SIDE), strict=True)):
                within = inside & (place >= start[pair]) & (place < start[pair] + width)
                group = xp.where(within, i, group)
            here = xp.flatnonzero(group >= 0)  # a wait
            pair, group, place = (x[here, None].astype(np.float64) for x in (pair, group, place))
            rows = self._X[row[here]].astype(np.float64)
            chosen.append(xp.concatenate([pair + done, group, place, rows], axis=1))
            done += len(own)
        content = bk.to_numpy(xp.concatenate(chosen))
        content = content[np.lexsort((content[:, 1], content[:, 0]))]
        found = np.zeros(len(pairs), dtype=bool)
        for i, own in enumerate(np.split(content, np.searchsorted(content[:, 0], range(1, done)))):
            sizes = np.bincount(own[:, 1].astype(np.int64), minlength=3)
            found[i] = _is_bent(own[:, 3:], own[:, 2], sizes)
        return found

    def _in_chunks(self, ends: np.ndarray) -> list[np.ndarray]:
        """Divide pairs (p, 2) into some that are looked at together."""
        n_chunks = -(-len(ends) * self._half.size // CHUNK)
        return np.array_split(ends, min(n_chunks, len(ends))) if len(ends) else []

    def _places(self, pairs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return where the ends of pairs are among nodes."""
        place = np.full(self._counts.shape[1], -1)
        place[nodes] = np.arange(nodes.size)
        return place[pairs]

    def _means(self, nodes: np.ndarray) -> _Means:
        """Return what is known of the means of nodes, the products of rows with these, and more."""
        xp = self._bk.xp
        n, m = nodes.size, self._half.size
        counts = self._counts[:, nodes]
        known = counts.min(axis=0) >= FEWEST
        counts = xp.maximum(counts, 1)[:, :, None]
        means = self._sums[:, nodes] / counts
        both = means[0] @ means[1].T
        products = self._dots[nodes] / xp.where(self._half, *counts)
        inner = (both + both.T) / 2
        most = min(3, n) if n > 2 else 0  # in a pair of two clusters all rows are counted
        nearest, who = xp.full((most, m), -np.inf), xp.full((most, m), -1)
        if most:
            score = xp.where(known[:, None], products - xp.diag(inner)[:, None] / 2, -np.inf)
            for i in range(most):
                top = score.argmax(axis=0)[None]
                nearest[i], who[i] = xp.take_along_axis(score, top, axis=0)[0], top[0]
                score[top[0], xp.arange(m)] = -np.inf
        return _Means(products, inner, known, nearest, who)

    def _region(self, means: _Means, ends: np.ndarray) -> tuple[Any, Any, Any, Any]:
        """Return pairs, rows, places on the line, and which of these entries count.

        On the host rows that do not count are mostly left out.
        """
        bk, xp = self._bk, self._bk.xp
        inner, (n, m) = means.inner, means.products.shape
        i, j = (bk.asarray(x) for x in ends.T)
        ii, jj, ij = (inner[x][:, None] for x in ((i, i), (j, j), (i, j)))
        a, b = means.products[i], means.products[j]
        half_way, square = (a + b) / 2, (ii + jj + 2 * ij) / 4
        apart = ii + jj - 2 * ij
        along = (b - a - (jj - ii) / 2) / xp.where(apart > 0, apart, np.inf) + 0.5
        place = xp.floor((along + 1) * BINS)
        inside = (means.known[i] & means.known[j])[:, None] & (apart > 0)
        inside = inside & (place >= 0) & (place < 3 * BINS)
        other = xp.full(a.shape, -np.inf)
        for nearest, who in zip(means.nearest[::-1], means.who[::-1], strict=True):
            other = xp.where((who != i[:, None]) & (who != j[:, None]), nearest, other)
        inside &= half_way - square / 2 >= other
        kept = xp.flatnonzero(inside) if bk.name == "numpy" else xp.arange(inside.size)
        pair, row = kept // m, kept % m
        inside, place = inside.ravel()[kept], place.ravel()[kept]
        half_way = half_way.ravel()[kept]
        for c in range(n if n > 2 else 0):
            to_mean = (inner[i, c] + inner[j, c]) / 2
            limit = to_mean + MARGIN * (inner[c, c] - 2 * to_mean) - (1 - MARGIN) * square[:, 0]
            limit = xp.where(means.known[c] & (i != c) & (j != c), limit, np.inf)
            inside &= means.products[c][row] - half_way <= limit[pair]
        return pair, row, xp.where(inside, place, 0).astype(np.int64), inside


def _in_chunks(X: Any, mean: Any, size: int = CHUNK) -> Iterator[tuple[slice, Any]]:
    """Yield rows as float64, some at a time, with where they are."""
    step = max(1, size // X.shape[1])
    for start in range(0, X.shape[0], step):
        own = slice(start, start + step)
        yield own, X[own].astype(np.float64) - mean


def _is_bent(Y: np.ndarray, place: np.ndarray, sizes: np.ndarray) -> bool:
    """Say it of rows (n, d) in the valley and in the windows on both sides, and their places.

    The line goes through the rows of the windows on both sides, and deviations are those off it of
    all windows. The rows in the valley may lie to one side; or there are none in the middle, in the
    direction in which they are widest beside the others.
    """
    if not sizes.all():
        return bool(sizes[0])  # without rows in the valley nothing is bent
    Y = Y - Y.mean(axis=0)
    t = place - place.mean()
    Y -= np.outer(t, t @ Y / (t @ t))
    valley, *sides = np.split(Y, np.cumsum(sizes)[:-1])
    offset = valley.mean(axis=0) - sum(side.mean(axis=0) for side in sides) / 2
    own, beside = _covariance(valley), sum(map(_covariance, sides)) / 2
    values, axes = np.linalg.eigh(own + beside)
    known = values > 0.01 * values[-1]
    if not known.any():
        return False  # all rows are on the line
    axes = axes[:, known] / np.sqrt(values[known])  # in which own and beside are of one size
    squared = ((offset @ axes) ** 2).sum()
    shares, turned = np.linalg.eigh(axes.T @ own @ axes)
    widest = (valley - valley.mean(axis=0) + offset) @ axes @ turned[:, -1]
    n_near = (abs(widest) <= HALF_DEVIATION * math.sqrt(max(shares[-1], 0.0))).sum()
    by_chance = known.sum() / (2 * len(valley))
    return bool(squared - by_chance > BENT**2 or n_near < ON_THE_LINE * len(valley) - 1)


def _covariance(Y: np.ndarray) -> np.ndarray:
    """Return the covariance (d, d) of rows."""
    Y = Y - Y.mean(axis=0)
    return Y.T @ Y / len(Y)


def in_windows(counts: Any) -> Any:
    """Count the rows in valleys, and beside them: those of one half, in windows of the other.

    Parameters
    ----------
    counts : float64 array of shape (p, 2, 3 BINS)
        Of `Valleys.counts`.

    Returns
    -------
    float64 array of shape (2, p)
        Rows in the valley, and on the side where they are fewer; of both halves together.
    """
    xp = backend_of(counts).xp
    found = xp.zeros((2, counts.shape[0]))
    for half in (0, 1):
        below = _sums_below(counts[:, 1 - half])
        inside = []
        for start, width in zip(_windows(counts[:, half]), (VALLEY, SIDE, SIDE), strict=True):
            ends = xp.take_along_axis(below, xp.stack([start, start + width], axis=1), axis=1)
            inside.append(ends[:, 1] - ends[:, 0])
        found[0] += inside[0]
        found[1] += xp.minimum(*inside[1:])
    return found


def valley_log_p(rows: np.ndarray, deep: np.ndarray) -> np.ndarray:
    """Return the natural logarithm of the p of valleys.

    Parameters
    ----------
    rows : float64 array of shape (2, p), on the host
        Of `in_windows`.
    deep : bool array of shape (p,)
        Whether the valley has to be deeper than that of a bent cluster.

    Returns
    -------
    float64 array of shape (p,)
        0 where no rows were counted.
    """
    depth = np.where(deep, DEEP, SHALLOW)
    valley, side = rows
    chance = depth * VALLEY / (depth * VALLEY + SIDE)
    p = bdtr(valley, (valley + side).astype(np.int64), chance)
    return np.log(np.clip(p, LEAST_P, 1.0))


def _windows(counts: Any) -> tuple[Any, Any, Any]:
    """Return where the valley, and the windows on its left and right, begin in (p, 3 BINS).

    The middle of the valley is between the two means.
    """
    xp = backend_of(counts).xp
    valley, side = _in_window(counts, VALLEY), _in_window(counts, SIDE)
    start, place = xp.arange(BINS, 2 * BINS - VALLEY + 1), xp.arange(side.shape[1])
    before = place <= start[:, None] - SIDE
    after = place >= start[:, None] + VALLEY
    left, right = (xp.where(x, side[:, None], -1).max(axis=2) for x in (before, after))
    best = xp.sqrt(VALLEY / SIDE * xp.minimum(left, right)) - xp.sqrt(
        valley[:, BINS : BINS + start.size]
    )
    start = start[best.argmax(axis=1)]
    before = xp.where(place <= (start - SIDE)[:, None], side, -1).argmax(axis=1)
    after = xp.where(place >= (start + VALLEY)[:, None], side, -1).argmax(axis=1)
    return start, before, after


def _in_window(counts: Any, width: int) -> Any:
    """Return the counts in windows of a width, by where these begin, in the mean of near ones."""
    xp = backend_of(counts).xp
    below = _sums_below(counts)
    found = below[:, width:] - below[:, :-width]
    ends = found[:, :1], found[:, -1:]
    first, last = (xp.repeat(x, SMOOTH, axis=1) for x in ends)
    below = _sums_below(xp.concatenate([first, found, last], axis=1))
    n = 2 * SMOOTH + 1
    return (below[:, n:] - below[:, :-n]) / n


def _sums_below(counts: Any) -> Any:
    """Return the sums of the columns before each, and of all."""
    xp = backend_of(counts).xp
    return xp.concatenate([xp.zeros((counts.shape[0], 1)), xp.cumsum(counts, axis=1)], axis=1)
