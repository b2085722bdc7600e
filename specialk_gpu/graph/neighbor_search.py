"""The exact search for nearest neighbours, among distinct rows or of new rows.

All distances come from one function, `pair_sq_distances`, which sums squared differences in
float64. Fast matrix products in low precision only propose candidates. A rigorous bound for each
row certifies that they missed no neighbour; a row that cannot be certified is searched again. The
host has two searches of its own (`host_search`), one for few columns and one for many rows.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from specialk_gpu.backend.tiles import map_tiles
from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.graph.distances import (
    DistanceBounds,
    distance_bounds,
    has_integer_distances,
    principal_axes_for_distances,
)
from specialk_gpu.graph.host_search import host_search_by_pairs, host_search_by_tree
from specialk_gpu.graph.pair_bounds import PairBounds

__all__ = ["search_neighbors", "search_neighbors_again", "search_neighbors_of_new_rows"]

PAIRS_ROWS = 5000  # from this many rows on, taking every pair once saves time
FEW_COLUMNS, SOME_COLUMNS = 6, 10  # with few, a tree is fastest; with some, it depends on the data
FEW_ROWS_COLUMNS = 8  # for so few rows that pairs do not pay, a tree is fastest up to here
TREE_REACH = 60_000  # rows within reach of a row, for each column beyond few: a tree is faster then


def search_neighbors(bk: Backend, X: Array, k: int) -> tuple[Array, Array, int]:
    """Return squared distances, indices (m, k) and `n_redone`, for rows without duplicates."""
    if bk.name == "numpy" and (found := _search_neighbors_on_host(bk, X, k)):
        return found
    return _search_neighbors_by_products(bk, X, k)


def _search_neighbors_on_host(
    bk: Backend, X: Array, k: int
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Search by the tree or over pairs, whichever is faster; None if neither is."""
    m, d = X.shape
    by_pairs = d > FEW_COLUMNS and m >= PAIRS_ROWS
    by_tree = d <= (SOME_COLUMNS if by_pairs else FEW_ROWS_COLUMNS)
    if by_pairs:
        most = TREE_REACH * (d - FEW_COLUMNS) if by_tree else m
        if found := host_search_by_pairs(X, _bounds_of_pairs(bk, X, k), k, most):
            return *found, 0
    if not by_tree:
        return None
    sq, indices, doubtful, n_redone = host_search_by_tree(X, k)
    if doubtful.size:
        search_neighbors_again(bk, X, doubtful, sq, indices)
    return sq, indices, n_redone


def _bounds_of_pairs(bk: Backend, X: np.ndarray, k: int) -> PairBounds:
    axes, n_leading = principal_axes_for_distances(bk, X, k) or (None, None)
    found = distance_bounds(bk, X, "float32", axes)
    low = (found.sq_norms - 2 * found.loss - found.floor).astype(np.float32)
    return PairBounds(found.base, low, found.scale, n_leading)


def search_neighbors_of_new_rows(
    bk: Backend, X: Array, k: int, first: int
) -> tuple[Array, Array, int]:
    """Search neighbours for the rows from `first` on, among the rows before these."""
    return _search_neighbors_by_products(bk, X, k, first)


def _search_neighbors_by_products(
    bk: Backend, X: Array, k: int, first: int = 0
) -> tuple[Array, Array, int]:
    """Search neighbours for all rows, or for the rows from `first` on among the rows before."""
    xp, m = bk.xp, X.shape[0]
    out = xp.empty((m - first, k)), xp.empty((m - first, k), dtype=np.int64)
    n_candidates = min(first or m, k + 1 + (8 if k <= 32 else 16))
    doubtful, n_redone = xp.arange(first, m), []
    for dtype in bk.product_dtypes():
        if doubtful.size:
            doubtful = _propose_neighbors(
                distance_bounds(bk, X, dtype), doubtful, n_candidates, out
            )
            n_redone.append(int(doubtful.size))
    if doubtful.size:
        search_neighbors_again(bk, X, doubtful, *out)
    return *out, n_redone[0]


def _propose_neighbors(
    search: DistanceBounds, todo: Array, n_candidates: int, out: tuple[Array, Array]
) -> Array:
    """Find the neighbours of the rows `todo`, and return the rows that could not be certified.

    Results go into `out`, which covers all rows of X or only the last. The last rows have their
    neighbours among the rows before them.
    """
    bk, X = search.bk, search.X
    xp, k = bk.xp, out[0].shape[1]
    first = X.shape[0] - out[0].shape[0]
    m = first or X.shape[0]
    base, offsets = search.base[:m], search.low_norms[:m].astype(np.float32)
    own = search.low_norms[todo] - search.floor
    bounds = xp.empty(todo.size)

    def run(tile: slice) -> None:
        rows = todo[tile]
        products = bk.products(search.base[rows], base)  # (t, m)
        places, limits = bk.select_smallest(products, offsets, n_candidates)
        del products
        found = bk.rank_candidates(X, rows, places, k)
        out[0][rows - first], out[1][rows - first] = found
        bounds[tile] = limits + own[tile]

    map_tiles(bk, run, int(todo.size), 4 * m, "neighbours")
    if n_candidates == m:
        return todo[:0]
    certified = out[0][todo - first, -1] < bounds * search.scale**2 * (1 - 1e-12)
    return todo[~certified]  # host waits


def search_neighbors_again(
    bk: Backend, X: Array, doubtful: Array, out_sq: Array, out_index: Array
) -> None:
    """Search the rows `doubtful` again: bound all distances in float64, measure what is left."""
    xp, k = bk.xp, out_sq.shape[1]
    first = X.shape[0] - out_sq.shape[0]
    m = first or X.shape[0]
    search = distance_bounds(bk, X, "float64")
    exact = has_integer_distances(bk, X)

    def run(tile: slice) -> None:
        rows = doubtful[tile]
        lower, slack = _bounds_on_neighbors(search, rows, m, exact=exact)
        if not first:
            lower[xp.arange(rows.size), rows] = np.inf
        limit = _upper_limit_on_neighbors(xp, lower + slack, k)
        row, column = xp.nonzero(lower <= limit)
        if exact:
            sq = lower[row, column] * search.scale**2
        else:
            sq = bk.pair_sq_distances(X, rows[row], column)
        order = xp.lexsort(xp.stack([column.astype(np.float64), sq, row.astype(np.float64)]))
        begin = xp.searchsorted(row, xp.arange(rows.size))  # `row` is sorted
        best = order[begin[:, None] + xp.arange(k)]
        out_sq[rows - first], out_index[rows - first] = sq[best], column[best]

    map_tiles(bk, run, int(doubtful.size), 64 * m, "neighbours, once more")


def _upper_limit_on_neighbors(xp: ModuleType, upper: Array, k: int) -> Array:
    """Bound the k-th smallest entry of each row from above, by the k-th smallest group minimum.

    The groups are groups of columns. The minima are sorted because CuPy's `partition` shares data
    between the lanes of a warp without a barrier.
    """
    t, m = upper.shape
    groups = max(8 * k, 256)
    size = m // groups
    if size >= 2:
        upper = upper[:, : groups * size].reshape(t, groups, size).min(axis=2)
    return xp.sort(upper, axis=1)[:, k - 1 : k]


def _bounds_on_neighbors(
    search: DistanceBounds, rows: Array, m: int, *, exact: bool
) -> tuple[Array, Array]:
    """Return lower bounds (t, m) on the squared distances, and the gaps up to upper bounds."""
    loss, floor = (0 * search.loss, 0.0) if exact else (search.loss, search.floor)
    lower = search.bk.products(search.base[rows], search.base[:m])
    lower += (search.sq_norms - loss)[:m]
    lower += (search.sq_norms[rows] - loss[rows] - floor)[:, None]
    return lower, 2 * (loss[rows][:, None] + loss[:m] + floor)
