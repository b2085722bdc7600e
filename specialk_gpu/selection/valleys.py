"""Valleys: places with few rows half-way between two clusters, on the line that joins them.

Clusters in many dimensions are short, and the cut of a short cluster is weak evidence. But along
the line from the mean of one cluster to that of the other, two clusters have two peaks with a
valley between them. One cluster with a log-concave density has a single peak along any line, even
if only the rows in a convex region are counted [Pre73].

The rows are divided into two halves, so that no row is counted in windows that it helped to choose.
The means of one half give the line and the region, and its rows give three windows: a valley with
few rows, and one on either side. The rows of the other half are counted in these windows. If there
is one peak, the density in the valley is at least the mean density on one of the two sides. Then a
row in these two windows is in the valley with at least a known probability. So p is binomial, with
the side that has fewer rows. Then the halves swap roles, and the counts are added.

The region holds the rows nearer to the midpoint of the two means than to the mean of any other
cluster, whichever cluster the rows are in. Otherwise, if a third cluster was cut out between two
pieces, these would have a valley without being two clusters.

Curved clusters have valleys of their own. They occur in few dimensions. There the rows in a valley
must be spread around the line (`Valleys.are_bent`), and between long clusters the valley must be
deeper than that of a ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.selection.bent_valleys import is_valley_bent
from specialk_gpu.selection.node_rows import NodeRows

__all__ = ["Valleys", "halves_for_valleys", "rows_in_valleys", "valley_log_p"]

BINS = 32  # bins along the line from one mean to the other; as many beyond each mean
VALLEY, SIDE = 10, 16  # widths in bins of the window in the middle, and of those on its sides
SMOOTH = 7  # to choose windows, counts are averaged over windows moved by up to so many bins
MARGIN = 0.45  # rows count up to this share of the way from the midpoint to another mean
SHALLOW = 0.93  # a valley must have a lower density, relative to the lower peak
DEEP = 0.5  # the same if clusters may be bent: the density of the valley of a bent cluster
FEWEST = 3  # smallest number of rows of a cluster in each half
LEAST_P = 1e-300
CHUNK = 2**20  # entries of rows that are processed together
HOST_CHUNK = 2**18  # entries of pairs and rows, or of nodes and rows, on the host: within its cache
DEVICE_CHUNK = 2**22  # entries of pairs and rows on a device, or of a few nodes each


def halves_for_valleys(X: Array, chunk: int = CHUNK) -> Array:
    """Divide rows (m, d) into two halves, independent of their order; return a bool array (m,).

    The projections of the rows on a random line are sorted; every other row is in the second half.
    """
    bk = backend_of(X)
    direction = bk.asarray(np.random.default_rng(0).standard_normal(X.shape[1]))
    place = bk.xp.concatenate([rows @ direction for _, rows in _in_chunks(X, 0.0, chunk)])
    half = bk.xp.empty(X.shape[0], dtype=bool)
    half[bk.xp.argsort(place, kind="stable")] = bk.xp.arange(X.shape[0]) % 2 == 1
    return half


class _ValleyMeans(NamedTuple):
    """The means of n nodes, and their products with a block of b rows.

    Attributes
    ----------
    first : int
        The first row of the block.
    products : array of shape (n, b)
        Products of each row with the mean of a node's rows in the other half.
    inner : array of shape (n, n)
        Products of the means of one half with those of the other, so that chance in one half does
        not make them larger.
    known : bool array of shape (n,)
        Whether the node has at least 3 rows in each half.
    nearest, who : lists of three arrays of shape (b,)
        The three nodes nearest to each row (`who`), and for each the product with its mean minus
        half the square of the mean (`nearest`). With two nodes the lists are empty.
    """

    first: int
    products: Array
    inner: Array
    known: Array
    nearest: list[Array]
    who: list[Array]


class Valleys:
    """The means of parts and of unions of parts (nodes), and the valleys between two nodes.

    Parameters
    ----------
    X : float array of shape (m, d)
    half : bool array of shape (m,)
        The result of `halves_for_valleys`.
    part : int32 array of shape (m,)
        The part of each row, in 0, ..., K - 1. Unions get the next numbers.
    K : int

    Notes
    -----
    Stores K m products, and m for each union. Costs two products of `X` with 2 K columns, and some
    passes over the rows for each pair.
    """

    def __init__(self, X: Array, half: Array, part: Array, K: int) -> None:
        self._bk = bk = backend_of(X)
        xp, (m, d) = bk.xp, X.shape
        self._K, self.n_unions = K, 0
        self._X, self._half, mean = X, half, X.mean(axis=0, dtype=np.float64)
        number = part + K * half
        names = xp.arange(2 * K, dtype=number.dtype)[:, None]
        sums = xp.zeros((2 * K, d))
        width = bk.walk_width
        for own, rows in _in_chunks(X, mean):
            for first in range(0, 2 * K, width):
                some = slice(first, first + width)
                sums[some] += (number[own] == names[some]).astype(np.float64) @ rows
        first, second = sums[:K], sums[K:]
        self._totals = xp.zeros((2, 2 * K, d + 1))  # sums of rows, and how many there are
        self._totals[:, :K, :d] = sums.reshape(2, K, d)
        self._totals[:, :K, d] = bk.bin_sums(number, xp.ones(m), 2 * K).reshape(2, K)
        self._dots = NodeRows(bk, K, m)  # of a row with the sum of a node in the other half
        for own, rows in _in_chunks(X, mean):
            side, out = half[own], self._dots.values[:K, own]
            for some in _blocks_of_rows(bk, len(rows), K):
                products = first @ rows[some].T, second @ rows[some].T
                out[:, some] = xp.where(side[some], *products)

    def unite(self, a: int, b: int) -> None:
        """Make the union of two nodes; it gets the next number."""
        new = self._K + self.n_unions
        self.n_unions += 1
        totals = self._totals
        self._bk.xp.add(totals[:, a], totals[:, b], out=totals[:, new])
        self._dots.unite(a, b)

    def release(self, nodes: Iterable[int]) -> None:
        """Free the memory of nodes that will not be asked for again; they are parts of unions."""
        self._dots.release(nodes)

    def counts(self, pairs: np.ndarray, nodes: np.ndarray) -> Array:
        """Count the rows of pairs by half and by place on the line.

        Parameters
        ----------
        pairs : int array of shape (p, 2)
        nodes : int array of shape (n,)
            All clusters, including those of the pairs. Clusters with fewer than 3 rows in a half
            do not count.

        Returns
        -------
        float64 array of shape (p, 2, 3 BINS)
        """
        xp, ends = self._bk.xp, self._places(pairs, nodes)
        found = xp.zeros((len(pairs), 6 * BINS))
        for means in self._means(nodes):
            for own in self._in_chunks(len(pairs), means):
                pair, row, place, inside = self._region(means, ends[own])
                key, some = (2 * pair + self._half[row]) * (3 * BINS) + place, found[own]
                weights = inside.ravel().astype(np.float64)
                some += self._bk.bin_sums(key.ravel(), weights, some.size).reshape(some.shape)
        return found.reshape(-1, 2, 3 * BINS)

    def are_bent(self, pairs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return for pairs (p, 2) whether the rows in the valley are not spread around the line.

        They are not if they lie to one side of it, as in an arc, or all around it, as in a ring.
        Moves the rows in windows to the host, so they should have few columns.
        """
        bk, xp, chosen = self._bk, self._bk.xp, []
        ends, starts = (
            self._places(pairs, nodes),
            _valley_windows(self.counts(pairs, nodes).sum(axis=1)),
        )
        windows = list(zip(starts, (VALLEY, SIDE, SIDE), strict=True))
        for means in self._means(nodes):
            for own in self._in_chunks(len(pairs), means):
                pair, row, place, inside = self._region(means, ends[own])
                pair += own.start
                group = xp.full(place.shape, -1)
                for i, (start, width) in enumerate(windows):
                    within = inside & (place >= start[pair]) & (place < start[pair] + width)
                    group = xp.where(within, i, group)
                here = xp.nonzero(group >= 0)  # a wait
                pair, row, group, place = (
                    x[here] for x in xp.broadcast_arrays(pair, row, group, place)
                )
                found = (x[:, None].astype(np.float64) for x in (pair, group, place))
                chosen.append(xp.concatenate([*found, self._X[row].astype(np.float64)], axis=1))
        content = bk.to_numpy(xp.concatenate(chosen))
        content = content[np.lexsort((content[:, 1], content[:, 0]))]
        found = np.zeros(len(pairs), dtype=bool)
        for i, own in enumerate(
            np.split(content, np.searchsorted(content[:, 0], range(1, len(pairs))))
        ):
            sizes = np.bincount(own[:, 1].astype(np.int64), minlength=3)
            found[i] = is_valley_bent(own[:, 3:], own[:, 2], sizes)
        return found

    def _in_chunks(self, n_pairs: int, means: _ValleyMeans) -> list[slice]:
        """Divide pairs into chunks that are processed together."""
        size = HOST_CHUNK if self._bk.name == "numpy" else DEVICE_CHUNK
        n_chunks = min(-(-n_pairs * means.products.shape[1] // size), n_pairs)
        bounds = [i * n_pairs // max(n_chunks, 1) for i in range(n_chunks + 1)]
        return [slice(*ends) for ends in pairwise(bounds)]

    def _places(self, pairs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return the positions of the two nodes of each pair in `nodes`."""
        place = np.full(2 * self._K, -1)
        place[nodes] = np.arange(nodes.size)
        return place[pairs]

    def _means(self, nodes: np.ndarray) -> Iterator[_ValleyMeans]:
        """Yield the means of nodes with their products and nearest nodes, for blocks of rows."""
        xp, n = self._bk.xp, nodes.size
        place, own = self._bk.asarray(np.stack([self._dots.place[nodes], nodes]))
        totals = self._totals[:, own]
        sums, counts = totals[:, :, :-1], totals[:, :, -1:]
        known = counts.min(axis=0)[:, 0] >= FEWEST
        counts = xp.maximum(counts, 1)
        means = sums / counts
        both = means[0] @ means[1].T
        inner = (both + both.T) / 2
        half_square = xp.where(known, xp.diag(inner) / 2, np.inf)[:, None]
        for rows in _blocks_of_rows(self._bk, self._half.size, n):
            products = self._dots.values[:, rows][place]
            products /= xp.where(self._half[rows], *counts)
            nearest: list[Array] = []
            who: list[Array] = []
            if n > 2:  # with two clusters, all rows count
                scores, column = (products - half_square).ravel(), xp.arange(products.shape[1])
                for i in range(3):
                    who.append(scores.reshape(products.shape).argmax(axis=0))
                    at = who[i] * column.size + column
                    nearest.append(scores[at])
                    if i < 2:
                        scores[at] = -np.inf
            yield _ValleyMeans(rows.start, products, inner, known, nearest, who)

    def _region(self, means: _ValleyMeans, ends: np.ndarray) -> tuple[Array, Array, Array, Array]:
        """Return pairs, rows, places on the line, and a mask of the entries that count.

        On a device, these are arrays that broadcast to (p, b). On the host, most rows that do not
        count are left out.
        """
        bk, xp = self._bk, self._bk.xp
        (n, m), on_host = means.products.shape, bk.name == "numpy"
        i, j = ends.T
        table = bk.asarray(np.stack([i, j, i * n + i, j * n + j, i * n + j]))
        own, of_inner = table[:2], table[2:]
        ii, jj, ij = means.inner.ravel()[of_inner][:, :, None]
        a, b = means.products[own]
        both, twice = ii + jj, 2 * ij
        half_way, square = (a + b) / 2, (both + twice) / 4
        apart = (both - twice) * means.known[own].all(axis=0)[:, None]
        along = (b - a - (jj - ii) / 2) / xp.where(apart > 0, apart, np.inf) + 0.5
        place = xp.floor((along + 1) * BINS)
        inside = (apart > 0) & (place >= 0) & (place < 3 * BINS)
        if n > 2:
            i, j, other = own[0, :, None], own[1, :, None], means.nearest[2]
            for nearest, who in zip(means.nearest[1::-1], means.who[1::-1], strict=True):
                other = xp.where((who != i) & (who != j), nearest, other)
            inside &= half_way - square / 2 >= other
        pair, row = xp.arange(len(ends))[:, None], xp.arange(m)
        in_products, in_limits = np.s_[:, None], np.s_[:, :, None]
        if on_host:
            kept = np.flatnonzero(inside)
            pair, row = kept // m, kept % m  # rows of this block
            inside, place, half_way = (x.ravel()[kept] for x in (inside, place, half_way))
            in_products, in_limits = np.s_[:, row], np.s_[:, pair]
        if n > 2:
            limits = self._limits(means, ends, own, square[:, 0])
            step = max(1, (HOST_CHUNK if on_host else DEVICE_CHUNK) // max(1, inside.size))
            for first in range(0, n, step):
                some = slice(first, first + step)
                way = means.products[some][in_products] - half_way
                inside &= (way <= limits[some][in_limits]).all(axis=0)
        return pair, row + means.first, xp.where(inside, place, 0).astype(np.int64), inside

    def _limits(self, means: _ValleyMeans, ends: np.ndarray, own: Array, square: Array) -> Array:
        """Return how far rows may lie from the midpoints of pairs towards each node: (n, p).

        `square` (p,) has the squares of the midpoints.
        """
        bk, inner = self._bk, means.inner
        others = (np.arange(len(inner))[:, None, None] != ends).all(axis=2)
        to_mean = inner[:, own]
        to_mean = (to_mean[:, 0] + to_mean[:, 1]) / 2
        limit = (
            to_mean + MARGIN * (bk.xp.diag(inner)[:, None] - 2 * to_mean) - (1 - MARGIN) * square
        )
        return bk.xp.where(bk.asarray(others) & means.known[:, None], limit, np.inf)


def _blocks_of_rows(bk: Backend, m: int, n: int) -> list[slice]:
    """Divide m rows, of n values each, into blocks of equal size; on a device there is one."""
    n_blocks = -(-m * n // HOST_CHUNK) if bk.name == "numpy" else 1
    return [slice(*ends) for ends in pairwise(i * m // n_blocks for i in range(n_blocks + 1))]


def _in_chunks(X: Array, mean: Array | float, size: int = CHUNK) -> Iterator[tuple[slice, Array]]:
    """Yield slices, and their rows in float64 minus the mean."""
    step = max(1, size // X.shape[1])
    for start in range(0, X.shape[0], step):
        own = slice(start, start + step)
        yield own, X[own].astype(np.float64) - mean


def rows_in_valleys(counts: Array) -> Array:
    """Count the rows in valleys and beside them: rows of one half in the windows of the other.

    Parameters
    ----------
    counts : float64 array of shape (p, 2, 3 BINS)
        The result of `Valleys.counts`.

    Returns
    -------
    float64 array of shape (2, p)
        Number of rows in the valley, and on the side that has fewer; both halves together.
    """
    xp, (p, _, n_bins) = backend_of(counts).xp, counts.shape
    below = _sums_below(counts[:, ::-1].reshape(2 * p, n_bins))  # of the other half
    inside = []
    for start, width in zip(
        _valley_windows(counts.reshape(2 * p, n_bins)), (VALLEY, SIDE, SIDE), strict=True
    ):
        ends = xp.take_along_axis(below, xp.stack([start, start + width], axis=1), axis=1)
        inside.append(ends[:, 1] - ends[:, 0])
    found = xp.stack([inside[0], xp.minimum(*inside[1:])])
    return found.reshape(2, p, 2).sum(axis=2)


def valley_log_p(rows: np.ndarray, deep: np.ndarray) -> np.ndarray:
    """Return the natural logarithm of the p of valleys.

    Parameters
    ----------
    rows : float64 array of shape (2, p), on the host
        The result of `rows_in_valleys`.
    deep : bool array of shape (p,)
        Whether the valley must be deeper than that of a bent cluster.

    Returns
    -------
    float64 array of shape (p,)
        It is 0 where no rows were counted.
    """
    depth = np.where(deep, DEEP, SHALLOW)
    valley, side = rows
    chance = depth * VALLEY / (depth * VALLEY + SIDE)
    p = bdtr(valley, (valley + side).astype(np.int64), chance)
    return np.log(np.clip(p, LEAST_P, 1.0))


def _valley_windows(counts: Array) -> tuple[Array, Array, Array]:
    """Return the first bins (p,) of the valley and of the windows on its left and right.

    `counts` has shape (p, 3 BINS). The whole valley lies between the two means.
    """
    xp = backend_of(counts).xp
    valley, side = _rows_in_valley_window(counts, VALLEY), _rows_in_valley_window(counts, SIDE)
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


def _rows_in_valley_window(counts: Array, width: int) -> Array:
    """Return the counts in windows of a width by their first bin, averaged over nearby windows."""
    xp = backend_of(counts).xp
    below = _sums_below(counts)
    found = below[:, width:] - below[:, :-width]
    ends = found[:, :1], found[:, -1:]
    first, last = (xp.repeat(x, SMOOTH, axis=1) for x in ends)
    below = _sums_below(xp.concatenate([first, found, last], axis=1))
    n = 2 * SMOOTH + 1
    return (below[:, n:] - below[:, :-n]) / n


def _sums_below(counts: Array) -> Array:
    """Return, for each column and for the end, the sum of the columns before it."""
    xp = backend_of(counts).xp
    return xp.concatenate([xp.zeros((counts.shape[0], 1)), xp.cumsum(counts, axis=1)], axis=1)
