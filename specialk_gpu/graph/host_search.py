"""Two searches for nearest neighbours on the host: by a k-d tree, and over each pair once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.spatial import cKDTree

from specialk_gpu._workers import Loop, workers
from specialk_gpu.backend.cpu.pairs import nearest_of_pairs, rough_pair_sq_distances, sure_limit
from specialk_gpu.backend.cpu.products import select_smallest
from specialk_gpu.backend.cpu.threads import map_chunks, one_blas_thread
from specialk_gpu.graph.cells import MOST_REACHED, CellReach, Cells, sort_into_cells
from specialk_gpu.graph.pair_bounds import PairBounds

__all__ = ["host_search_by_pairs", "host_search_by_tree"]

Tile: TypeAlias = tuple[slice, slice | np.ndarray]
Tiles: TypeAlias = Callable[[Any], Iterator[Tile]]

NEAR_ROWS = 2048  # nearby rows, among which the first limit of a row is found
SPARE = 6  # rows beyond k that are measured for this limit
TREE_SPARE = 2  # rows requested from a tree beyond k and the row itself
DOUBLINGS = 3  # of the number of rows requested, while ties leave a row in doubt
TILE_ROWS = 1024  # rows of a group of cells, on average, or of a tile of all rows
TILE_COLUMNS = 512  # of a tile of all rows: it stays in cache
SORTED_PAIRS = 2**20  # pairs that are sorted together: all at once would take seconds
STAGE = "neighbours"
UNEVEN = 16  # times the mean that a group of tiles may spend on a worker
MOST = 32  # pairs that may be measured, on average, for each neighbour to find and two more


def host_search_by_tree(X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Propose neighbours from a k-d tree, measure them, and request more if they do not suffice.

    Up to rounding, no row that the tree left out is nearer than the last one it returned. The
    tree and the library both subtract in float64 and add squares; each is off by at most d + 8
    units in the last place. For each level of the tree, the distance to a cell grows by at most
    one addition of a positive number, and two units. A split halves the range of a column, which
    float64 allows at most 2^11 times. This makes d 2^12 units, below 1e-10 up to d = 100. Squares
    below the smallest normal number cost at most d of these numbers.

    Parameters
    ----------
    X : float array of shape (m, d)
        Without duplicates, m > k; few columns.
    k : int

    Returns
    -------
    sq_distances, numbers : float64 and int64 arrays of shape (m, k)
        See `rank_candidates`.
    doubtful : int64 array
        Rows that stay uncertain, because many others are as far as the k-th.
    n_redone : int
        Number of rows that were uncertain at first.
    """
    m, d = X.shape
    points = X.astype(np.float64, copy=False)
    tree: Any = cKDTree(points, balanced_tree=False)  # a median is slow to find among equal numbers
    sq, numbers = np.empty((m, k)), np.empty((m, k), dtype=np.int64)

    def propose(rows: np.ndarray, n: int) -> np.ndarray:
        """Search `n` candidates for each row, and return the rows that stay in doubt."""
        far, places = tree.query(points[rows], n)  # the row itself is among them
        row, column = np.nonzero(places != rows[:, None])
        near = places[row, column]
        sq[rows], numbers[rows] = nearest_of_pairs(X, rows.size, k, row, rows[row], near)
        bounds = far[:, -1] ** 2 * (1 - 1e-10) - d * np.finfo(np.float64).tiny
        return rows[~(sq[rows, -1] < bounds)] if n < m else rows[:0]

    def propose_all(rows: np.ndarray, n: int) -> np.ndarray:
        step = max(1, 2**17 // n)
        parts = [rows[i : i + step] for i in range(0, rows.size, step)]
        return np.concatenate(map_chunks(lambda part: propose(part, n), parts))

    n = min(m, k + 1 + TREE_SPARE)
    doubtful = propose_all(tree.indices, n)  # in order of the leaves: near rows visit near nodes
    n_redone = int(doubtful.size)
    for _ in range(DOUBLINGS):
        if doubtful.size:
            n = min(m, 2 * n)
            doubtful = propose_all(doubtful, n)
    return sq, numbers, doubtful, n_redone


def host_search_by_pairs(
    X: np.ndarray, bounds: PairBounds, k: int, most_reached: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find the k nearest other rows of every row, from lower bounds on all distances.

    The bounds come in tiles. A tile is one matrix product and serves the rows of both sides. Each
    row has a limit, found from rows close to it, that tells which pairs are worth measuring. Tiles
    leave out the rows that the triangle inequality shows to be too far; see `CellReach`. If these
    are few, all tiles are taken, of rows sorted by their limits; see `PairBounds.near_pairs`.

    Parameters
    ----------
    X : float array of shape (m, d)
        Without duplicates, m > k.
    bounds : PairBounds
        Of the rows of X. Its rows are sorted.
    k : int
    most_reached : float
        If more rows than this are within reach of a row, on average, the search gives up.

    Returns
    -------
    sq_distances, numbers : float64 and int64 arrays of shape (m, k)
        See `rank_candidates`. None if the search gave up, or if too many pairs would have to be
        measured, because the bounds are useless or most distances are alike.
    """
    m, given, scale = len(X), X, bounds.scale
    if not 2.0**-40 < scale < 2.0**40:  # keeps squares of differences within float32
        X, scale = X / scale, 1.0
    cells = sort_into_cells(bounds.sides[:, :-2])
    bounds.sort(cells.order)
    order, limits = cells.order, _sure_limits(X, cells, bounds, k)
    low_limits = (limits / scale**2 * (1 + 1e-6)).astype(np.float32)
    reach = CellReach(cells, bounds.sides, low_limits)
    if (mean := reach.mean()) > most_reached:
        return None
    if all_tiles := mean > MOST_REACHED * m:
        by_limit = np.argsort(limits)
        bounds.sort(by_limit)
        order, limits, low_limits = order[by_limit], limits[by_limit], low_limits[by_limit]
    tiles: Tiles = partial(_tiles_from, m=m) if all_tiles else reach.tiles
    groups = range(0, m, TILE_ROWS) if all_tiles else cells.groups(TILE_ROWS)
    most = MOST * (k + 2) * m
    search = _PairSearch(X, order, bounds, limits, low_limits, most, all_tiles, tiles)
    if not all(found := _measured_in_groups(search, groups)):
        return None
    rows, others, rough = (np.concatenate(part) for part in zip(*found, strict=True))
    return _rank_measured_pairs(given, k, rows, others, rough)


class _PairSearch(NamedTuple):
    """What all groups of tiles need: the rows, their order and limits, and what all may spend.

    `tiles` returns the tiles of a group.
    """

    X: np.ndarray
    order: np.ndarray
    bounds: PairBounds
    limits: np.ndarray
    low_limits: np.ndarray
    most: int
    ascending: bool
    tiles: Tiles


def _measured_in_groups(search: _PairSearch, groups: Sequence[Any]) -> list[list[np.ndarray]]:
    """Return what `_measured_pairs` finds in each group; the workers of a cluster share them."""
    cluster, spent = workers.get(), [0]
    if cluster is None:
        with one_blas_thread:
            return map_chunks(lambda group: _measured_pairs(search, group, spent), groups, STAGE)
    found: list[list[np.ndarray]] = [[] for _ in groups]
    search = search._replace(most=UNEVEN * search.most // len(groups))
    given = [partial(tuple, (group, [0])) for group in groups]
    cluster.run(Loop(STAGE, _measured_pairs, search, given, found.__setitem__))
    return found


def _measured_pairs(search: _PairSearch, group: Any, spent: list[int]) -> list[np.ndarray]:
    """Return rows, others and rough distances of the pairs in a group that may be near.

    Returns nothing if more was spent than is allowed.
    """
    X, order, bounds, limits, low_limits, most, ascending, tiles = search
    pairs = []
    for tile in tiles(group):
        *found, price = bounds.near_pairs(*tile, low_limits, ascending=ascending)
        pairs.append(found)
        spent[0] += price  # of all threads, roughly
        if spent[0] > most:
            return []
    i, j = (np.concatenate(part) for part in zip(*pairs, strict=True))
    by_row = np.argsort(i, kind="stable")  # a row is read from memory once
    i, j = i[by_row], j[by_row]
    rough = rough_pair_sq_distances(X, order[i], order[j])
    one, other = rough <= limits[i], rough <= limits[j]
    return [
        np.concatenate([order[i[one]], order[j[other]]]),
        np.concatenate([order[j[one]], order[i[other]]]),
        np.concatenate([rough[one], rough[other]]),
    ]


def _tiles_from(first: int, m: int) -> Iterator[Tile]:
    """Yield tiles of rows from `first` on, and of these and all later ones of m rows."""
    own = slice(first, min(first + TILE_ROWS, m))
    for start in range(first, m, TILE_COLUMNS):
        yield own, slice(start, min(start + TILE_COLUMNS, m))


def _sure_limits(X: np.ndarray, cells: Cells, bounds: PairBounds, k: int) -> np.ndarray:
    """Bound the rough distances of the k nearest rows of each sorted row, from rows close to it."""
    limits, none = np.empty(len(X)), np.zeros(1, dtype=np.float32)

    def limit(cell: int) -> None:
        own, near = cells.places(cell), cells.near_places(cell, max(NEAR_ROWS, 4 * k))
        lower = bounds.coarse(own, near)
        lower[np.arange(own.start, own.stop)[:, None] == near] = np.inf
        places, _ = select_smallest(lower, none, min(k + SPARE, near.size - 1))
        row, column = np.nonzero(places >= 0)
        rough = np.full(places.shape, np.inf, dtype=np.float32)
        others = cells.order[near[places[row, column]]]
        rough[row, column] = rough_pair_sq_distances(X, cells.order[own][row], others)
        limits[own] = sure_limit(np.partition(rough, k - 1, axis=1)[:, k - 1], X.shape[1])

    with one_blas_thread:
        map_chunks(limit, range(len(cells)))
    return limits


def _rank_measured_pairs(
    X: np.ndarray, k: int, rows: np.ndarray, others: np.ndarray, rough: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest of each row, of pairs (p,) that hold them, with rough distances."""
    m, d = X.shape
    step = -(-m // -(-rows.size // SORTED_PAIRS))  # rows that are ranked together
    by_block = np.argsort((rows // step).astype(np.int16), kind="stable")  # sorts by radix
    ends = np.cumsum(np.bincount(rows // step))

    def rank(block: int) -> tuple[np.ndarray, np.ndarray]:
        first, stop = block * step, min((block + 1) * step, m)
        own = by_block[ends[block - 1] if block else 0 : ends[block]]
        own = own[np.lexsort((rough[own], rows[own]))]
        row, own_rough = rows[own] - first, rough[own]
        limits = sure_limit(own_rough[np.searchsorted(row, np.arange(stop - first)) + k - 1], d)
        near = own_rough <= limits[row]
        own, row = own[near], row[near]
        return nearest_of_pairs(X, stop - first, k, row, rows[own], others[own])

    sq, numbers = zip(*map_chunks(rank, range(len(ends))), strict=True)
    return np.concatenate(sq), np.concatenate(numbers).astype(np.int64)
