"""Distances of pairs of rows on the host, and a search among all pairs that takes each once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement, pairwise

import numpy as np
from scipy.spatial import cKDTree

from specialk_gpu.backend.cpu.centers import nearest_center
from specialk_gpu.backend.cpu.lloyd import segment_sum
from specialk_gpu.backend.cpu.threads import map_chunks, one_blas_thread

__all__ = ["nearest_by_pairs", "nearest_by_tree", "pair_sq_distances", "rank_candidates"]

LANES = 32  # a squared distance is summed in 32 interleaved lanes, then pairwise over the lanes
CELL_ROWS = 256  # on average
CELL_COLUMNS = 32  # of the base, in which cells are near or far
NEAR_ROWS = 1024  # among which a row's first limit is found
SPARE = 6  # rows measured for it beyond k
TREE_SPARE = 2  # rows that a tree is asked for beyond k and the row itself
DOUBLINGS = 3  # of what a tree is asked for, where ties leave a row in doubt
CELL_ROUNDS = 3  # of k-means
TILE_ROWS = 1024
MOST = 32  # pairs measured, on average, for each neighbour to find


def pair_sq_distances(X: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return ‖X[rows] - X[columns]‖², the definition of distance in this library.

    Differences are taken in float64 and their squares summed in a fixed order (32 interleaved
    lanes, then pairwise over the lanes), so that every backend returns the same bits.

    Parameters
    ----------
    X : float array of shape (m, d)
    rows, columns : int arrays of shape (p,)

    Returns
    -------
    float64 array of shape (p,)
    """
    d = X.shape[1]
    width = min(LANES, 1 << (d - 1).bit_length())  # lanes beyond the columns would add zeros
    out = np.empty(rows.size, dtype=np.float64)

    def measure(pairs: slice) -> None:
        square = np.subtract(X[rows[pairs]], X[columns[pairs]], dtype=np.float64)
        np.multiply(square, square, out=square)
        full = d - d % width
        lanes = (
            square[:, :full].reshape(len(square), full // width, width).sum(axis=1)
        )  # in their order
        lanes[:, : d - full] += square[:, full:]
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        out[pairs] = lanes[:, 0]

    step = max(1, 2**18 // max(d, width))  # stays in the cache
    map_chunks(measure, (slice(i, i + step) for i in range(0, rows.size, step)))
    return out


def rank_candidates(
    X: np.ndarray, rows: np.ndarray, places: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Measure the rows proposed to each row and return the k nearest, ties to the smaller number.

    Parameters
    ----------
    X : float array of shape (m, d)
    rows : int64 array of shape (t,)
        The rows' own numbers.
    places : int64 array of shape (t, width)
        The numbers proposed, all different, at least k beside the own; negative ones are skipped.

    Returns
    -------
    sq_distances, numbers : float64 and int64 arrays of shape (t, k)
        See `pair_sq_distances`; ascending.
    """
    row, column = np.nonzero((places >= 0) & (places != rows[:, None]))
    rough = np.full(places.shape, np.inf, dtype=np.float32)
    rough[row, column] = _rough_sq_distances(X, rows[row], places[row, column])
    limit = _sure_limit(np.partition(rough, k - 1, axis=1)[:, k - 1], X.shape[1])
    row, column = row[near := rough[row, column] <= limit[row]], column[near]
    return _nearest(X, rows.size, k, row, rows[row], places[row, column])


def _nearest(
    X: np.ndarray, n: int, k: int, row: np.ndarray, numbers: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Measure pairs (p,) of `n` rows, by rising `row`, and return the k nearest of each."""
    sq = pair_sq_distances(X, numbers, others)
    best = np.searchsorted(row, np.arange(n))[:, None] + np.arange(k)
    if not ((row[:-1] < row[1:]) | (sq[:-1] < sq[1:])).all():  # as from a tree, but for ties
        best = np.lexsort((others, sq, row))[best]
    return sq[best], others[best]


def _rough_sq_distances(X: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return ‖X[rows] - X[columns]‖² in float32.

    Off by d + 8 units in the last place, or by 2 d times the smallest number.
    """
    out = np.empty(rows.size, dtype=np.float32)

    def measure(pairs: slice) -> None:
        with np.errstate(over="ignore", under="ignore"):
            difference = (X[rows[pairs]] - X[columns[pairs]]).astype(np.float32, copy=False)
            np.einsum("ij,ij->i", difference, difference, out=out[pairs])

    step = max(1, 2**17 // X.shape[1])
    map_chunks(measure, (slice(i, i + step) for i in range(0, rows.size, step)))
    return out


def _sure_limit(rough: np.ndarray, d: int) -> np.ndarray:
    """Bound from above what rough distances of rows no farther than those given may come to."""
    single = np.finfo(np.float32)
    return rough.astype(np.float64) * (1 + 4 * (d + 8) * float(single.eps)) + 8 * d * single.tiny


def nearest_by_tree(X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Propose neighbours from a k-d tree, measure them, and ask for more where that is not enough.

    No row that the tree left out is nearer than the last it returned, up to rounding. The tree and
    the library subtract in float64 and add squares: either is off by d + 8 units at most. The
    distance to a cell grows by at most one addition of a positive number for each level, and two
    units. A split halves the range of a column, which float64 allows 2^11 times at most: d 2^12
    units, below 1e-10 up to d = 100. Squares below the smallest normal number cost d of these.

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
        Rows that are not certain, for the many that are as far as the k-th.
    n_redone : int
        Rows that were not certain at first.
    """
    m, d = X.shape
    points = X.astype(np.float64, copy=False)
    tree = cKDTree(points, balanced_tree=False)  # a median is slow to find among equal numbers
    sq, numbers = np.empty((m, k)), np.empty((m, k), dtype=np.int64)

    def propose(rows: np.ndarray, n: int) -> np.ndarray:
        """Return those of the rows that `n` candidates leave in doubt."""
        far, places = tree.query(points[rows], n)  # the row itself is among them
        row, column = np.nonzero(places != rows[:, None])
        near = places[row, column]
        sq[rows], numbers[rows] = _nearest(X, rows.size, k, row, rows[row], near)
        bounds = far[:, -1] ** 2 * (1 - 1e-10) - d * np.finfo(np.float64).tiny
        return rows[~(sq[rows, -1] < bounds)] if n < m else rows[:0]

    def propose_all(rows: np.ndarray, n: int) -> np.ndarray:
        step = max(1, 2**17 // n)
        parts = [rows[i : i + step] for i in range(0, rows.size, step)]
        return np.concatenate(map_chunks(lambda part: propose(part, n), parts))

    n = min(m, k + 1 + TREE_SPARE)
    doubtful = propose_all(tree.indices, n)  # in the order of the leaves: near rows, near nodes
    n_redone = int(doubtful.size)
    for _ in range(DOUBLINGS):
        if doubtful.size:
            n = min(m, 2 * n)
            doubtful = propose_all(doubtful, n)
    return sq, numbers, doubtful, n_redone


def nearest_by_pairs(
    X: np.ndarray, base: np.ndarray, low: np.ndarray, scale: float, k: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find the k nearest other rows of every row, from lower bounds of all distances.

    The bounds come in tiles, a product each, that serve the rows of either side. A limit for each
    row, from rows close to it, tells which pairs are worth measuring.

    Parameters
    ----------
    X : float array of shape (m, d)
        Without duplicates, m > k.
    base : float32 array of shape (m, r)
    low : float32 array of shape (m,)
        low[i] + low[j] - 2 base[i]·base[j], a single product in float32, is at most
        ‖X[i] - X[j]‖² / scale².
    scale : float
        A power of two.
    k : int

    Returns
    -------
    sq_distances, numbers : float64 and int64 arrays of shape (m, k)
        See `rank_candidates`. None where too many pairs would have to be measured: the bounds are
        of no use, or most distances are alike.
    """
    m, d = X.shape
    given, extreme = X, not 2.0**-40 < scale < 2.0**40
    if extreme:  # squares of differences are to stay within float32
        X, scale = X / scale, 1.0
    order, cells, near_rows = _cells(base, max(NEAR_ROWS, 4 * k))
    ones = np.ones((m, 1), dtype=np.float32)
    sides = np.concatenate([base, ones, low[:, None]], axis=1)[order]
    limits = np.empty(m)  # of the sorted rows, like `sides`

    def lower_bounds(rows: slice, columns: slice | np.ndarray) -> np.ndarray:
        left = -2 * sides[rows]
        left[:, -2], left[:, -1] = sides[rows, -1], 1
        return left @ sides[columns].T

    def limit(cell: int) -> None:
        own, near = cells[cell], near_rows(cell)
        lower = lower_bounds(own, near)
        lower[np.arange(own.start, own.stop)[:, None] == near] = np.inf
        n = min(k + SPARE, near.size - 1)
        places = near[np.argpartition(lower, n - 1, axis=1)[:, :n]]
        rows = np.repeat(order[own], n)
        rough = _rough_sq_distances(X, rows, order[places.ravel()]).reshape(places.shape)
        limits[own] = _sure_limit(np.partition(rough, k - 1, axis=1)[:, k - 1], d)

    with one_blas_thread:
        map_chunks(limit, range(len(cells)))
    bounds = (limits / scale**2 * (1 + 1e-6)).astype(np.float32)

    n_near = [0]

    def measure(tile: tuple[slice, slice]) -> list[np.ndarray]:
        lower = lower_bounds(*tile)
        near = lower <= bounds[tile[0], None]
        near |= lower <= bounds[tile[1]]
        n_near[0] += np.count_nonzero(near)  # of all threads, give or take a tile
        if n_near[0] > MOST * k * m:
            return []
        i, j = np.divmod(np.flatnonzero(near), near.shape[1])
        i, j = i + tile[0].start, j + tile[1].start
        if tile[0] == tile[1]:
            i, j = i[i < j], j[i < j]
        rough = _rough_sq_distances(X, order[i], order[j])
        one, other = rough <= limits[i], rough <= limits[j]
        return [
            np.concatenate([order[i[one]], order[j[other]]]),
            np.concatenate([order[j[one]], order[i[other]]]),
            np.concatenate([rough[one], rough[other]]),
        ]

    parts = [slice(i, min(i + TILE_ROWS, m)) for i in range(0, m, TILE_ROWS)]
    with one_blas_thread:
        found = map_chunks(measure, combinations_with_replacement(parts, 2), "neighbours")
    if not all(found):
        return None
    rows, others, rough = (np.concatenate(part) for part in zip(*found, strict=True))
    by_row = np.lexsort((rough, rows))
    rows, others, rough = rows[by_row], others[by_row], rough[by_row]
    limits = _sure_limit(rough[np.searchsorted(rows, np.arange(m)) + k - 1], d)
    near = rough <= limits[rows]
    return _nearest(given, m, k, rows[near], rows[near], others[near])


def _cells(
    base: np.ndarray, n_near: int
) -> tuple[np.ndarray, list[slice], Callable[[int], np.ndarray]]:
    """Sort the rows into cells of rows that are near each other.

    Returns the order of the rows, the places of each cell in it, and a function from a cell to the
    places of `n_near` rows and more, those of the cells nearest to it and its own.
    """
    x = np.ascontiguousarray(base[:, :CELL_COLUMNS], dtype=np.float64)
    sq_norms, centers = (x * x).sum(axis=1), x[::CELL_ROWS]
    sizes = np.array([len(centers)])
    for _ in range(CELL_ROUNDS):
        labels, _ = nearest_center(x, sq_norms, centers[None], sizes)
        counts, sums = (total[0] for total in segment_sum(x, labels, len(centers)))
        centers = sums[counts > 0] / counts[counts > 0, None]
        sizes = np.array([len(centers)])
    label = np.unique(labels[0], return_inverse=True)[1]
    ends = np.cumsum([0, *np.bincount(label)]).tolist()
    cells = [slice(*pair) for pair in pairwise(ends)]
    places = np.arange(len(x))

    def near_rows(cell: int) -> np.ndarray:
        by_distance = np.argsort(((centers - centers[cell]) ** 2).sum(axis=1), kind="stable")
        filled = np.cumsum([cells[c].stop - cells[c].start for c in by_distance])
        chosen = by_distance[: int(np.searchsorted(filled, min(n_near, len(x)))) + 1]
        return np.concatenate([places[cells[c]] for c in chosen])

    return np.argsort(label, kind="stable"), cells, near_rows
