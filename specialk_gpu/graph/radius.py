"""Pairs of rows within a radius."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specialk_gpu.backend import backend_of, map_tiles
from specialk_gpu.backend.typing import Array
from specialk_gpu.graph.distances import Search, prepare

__all__ = ["PairsWithin", "count_within", "list_within", "pairs_within"]


class PairsWithin(NamedTuple):
    """The inputs of `count_within` and `list_within`."""

    search: Search
    sq_radius: float
    limit: float  # the squared radius in the units of the search


def pairs_within(X: Array, sq_radius: float) -> PairsWithin:
    """Choose the fastest products that bound distances well enough for the functions below.

    Parameters
    ----------
    X : float array of shape (m, d)
    sq_radius : float
        The squared radius. A row at exactly this squared distance is within the radius.
    """
    bk = backend_of(X)
    for dtype in bk.product_dtypes():
        search = prepare(bk, X, dtype)
        limit = min(sq_radius / search.scale**2, 8.0 * X.shape[1])  # no pair is farther apart
        if 4 * float(search.loss.mean()) <= 0.05 * limit:
            break  # few pairs will have to be measured
    return PairsWithin(search, sq_radius, limit)


def count_within(pairs: PairsWithin) -> Array:
    """Count the other rows within the radius of each row: int64 array of shape (m,)."""
    return _within(pairs, None)


def list_within(pairs: PairsWithin, ends: np.ndarray) -> Array:
    """List the other rows within the radius of each row, given the running sums of the counts.

    Parameters
    ----------
    pairs : PairsWithin
    ends : int array of shape (m + 1,)
        Running sums of `count_within`, starting with 0, on the host.

    Returns
    -------
    int32 array of shape (ends[-1],)
        Row numbers, ascending within each row.
    """
    indices = pairs.search.bk.xp.empty(int(ends[-1]), dtype=np.int32)
    _within(pairs, (ends, indices))
    return indices


def _within(pairs: PairsWithin, out: tuple[np.ndarray, Array] | None) -> Array:
    """Count the rows within the radius of each row, or write their numbers into `out`.

    `out` holds the running sums of the counts, on the host, and the indices to fill.
    """
    search, sq_radius, limit = pairs
    bk, X = search.bk, search.X
    xp, m = bk.xp, X.shape[0]
    offsets = search.low_norms.astype(np.float32)
    counts = xp.empty(m, dtype=np.int64)

    def run(rows: slice) -> None:
        scores = bk.products(search.base[rows], search.base)
        scores += offsets
        own_norms, own_loss = search.low_norms[rows], search.loss[rows]
        # a pair with a score above `high` is certainly outside, whatever the partner's norm
        high = limit + search.floor - own_norms
        inside = scores <= (high + 1e-6 * xp.abs(high))[:, None].astype(np.float32)
        inside[xp.arange(rows.stop - rows.start), xp.arange(rows.start, rows.stop)] = False
        row, column = xp.nonzero(inside)
        lower = scores[row, column].astype(np.float64) + own_norms[row]
        upper = lower + 2 * (own_loss[row] + search.loss[column])
        unsure = xp.flatnonzero(upper + 2 * search.floor > limit * (1 - 1e-12))
        near = bk.pair_sq_distances(X, row[unsure] + rows.start, column[unsure]) <= sq_radius
        keep = xp.ones(row.size, dtype=bool)
        keep[unsure] = near
        if out is None:
            before = xp.zeros(row.size + 1, dtype=np.int64)
            before[1:] = xp.cumsum(keep)
            ends = xp.arange(rows.stop - rows.start + 1)
            counts[rows] = xp.diff(before[xp.searchsorted(row, ends)])  # `row` is sorted
        else:
            ends, indices = out
            indices[ends[rows.start] : ends[rows.stop]] = column[keep]

    map_tiles(bk, run, m, 16 * m, "pairs within the radius")
    return counts
