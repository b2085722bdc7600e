"""The rows to cluster where duplicates would crowd out all other neighbours."""

from __future__ import annotations

from typing import NamedTuple

from specialk_gpu._warnings import DuplicateRowsWarning, warn
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array
from specialk_gpu.graph.neighbors import neighbors_among
from specialk_gpu.graph.rows import Rows

__all__ = ["Representatives", "representatives_of"]

MOST_COPIES = 0.25  # if copies are a larger share of all neighbours, only distinct rows are kept
FAR = 3.0  # times the usual distance of neighbours: copies that are further away stay together
COPIES = 30  # of each of them are kept, or as many as there are neighbours in the graph


class Representatives(NamedTuple):
    """The rows to cluster in place of all rows, of which some are equal.

    Attributes
    ----------
    rows : Rows
        All of them count as distinct.
    first : int64 array of shape (u,), or None
        For each of them, the first row of the data that equals it; None if they are all rows.
    place : int64 array of shape (m,), or None
        For each row of the data, its place among them.
    """

    rows: Rows
    first: Array | None
    place: Array | None


def representatives_of(rows: Rows, n_neighbors: int) -> Representatives:
    """Keep each distinct row once, if copies crowd other rows out of the neighbourhoods.

    This is so if all neighbours of some row are copies of it, or if copies are more than a
    quarter of all neighbours. The graph would then fall apart into groups of copies. But copies
    that are far from all other rows are a group of their own: enough of them are kept.
    """
    if rows.groups is None:
        return Representatives(rows, None, None)
    first, place = rows.groups
    xp = backend_of(rows.X).xp
    sizes = xp.bincount(place)
    most = int(sizes.max())
    limit = MOST_COPIES * len(rows) * n_neighbors
    if most <= n_neighbors and rows.n_equal(n_neighbors) <= limit:
        return Representatives(rows, None, None)
    far = _copies_to_represent(rows.distinct, sizes, n_neighbors)
    also = f", except for copies of {far.size} that are far from all others" if far.size else ""
    warn(
        f"X has duplicate rows, one of them {most} times, and they crowd out the "
        f"n_neighbors={n_neighbors} neighbours. Clustering the {len(rows.distinct)} distinct rows "
        f"of {len(rows)}{also}; duplicates get the same label.",
        DuplicateRowsWarning,
    )
    if not far.size:
        return Representatives(rows.distinct, first, place)
    width = max(n_neighbors, COPIES) + 1
    more = xp.minimum(sizes[far], width) - 1  # copies beside the distinct row
    kept = xp.concatenate([xp.arange(first.size), xp.repeat(far, more.tolist())])
    return Representatives(rows.distinct.with_copies(kept), first[kept], place)


def _copies_to_represent(distinct: Rows, sizes: Array, n_neighbors: int) -> Array:
    """Return which distinct rows have more than `n_neighbors` copies, far from all other rows.

    A row is far from others if the nearest of them is more than three times as far as is usual
    there: as the last of the `n_neighbors` nearest around the nearest row without many copies.
    """
    xp = backend_of(distinct.X).xp
    heavy, light = xp.flatnonzero(sizes > n_neighbors), xp.flatnonzero(sizes <= n_neighbors)
    if not heavy.size or light.size <= n_neighbors:
        return heavy[:0]
    X, own = distinct.X[light], distinct.X[heavy]
    gap = neighbors_among(own, distinct.X, 2).distances[:, 1]
    near = neighbors_among(own, X, 1).indices[:, 0]
    usual = neighbors_among(X[near], X, n_neighbors + 1).distances[:, -1]
    return heavy[gap > FAR * usual]
