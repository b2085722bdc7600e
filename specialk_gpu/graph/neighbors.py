"""Exact nearest neighbours of every row.

All distances come from one function, `pair_sq_distances`, which sums squared differences in
float64. Fast matrix products in low precision only propose candidates. A rigorous bound for each
row certifies that they missed no neighbour; a row that cannot be certified is searched again. The
host has two searches of its own, one for few columns and one for many rows.
"""

from __future__ import annotations

import math
from numbers import Integral
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specialk_gpu._progress import logger
from specialk_gpu.backend import backend_of, map_tiles, on_its_device
from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.graph.distances import Search, is_integral, prepare, reduction
from specialk_gpu.graph.duplicates import duplicate_groups, first_members
from specialk_gpu.graph.features import features

__all__ = ["Neighbors", "nearest_in_range", "nearest_neighbors", "neighbors_among", "within_range"]


TREE_COLUMNS = 8  # at most; on 60,000 rows a tree wins 4 to 1 on clusters, loses 3 to 2 on a normal
PAIRS_ROWS = 5000  # from this many rows on, taking every pair once saves time
QUERY_ROWS = 2**14  # queries in a batch, or m if that is larger
FAR = 1e100  # queries that are this many times larger than the data are searched separately


class Neighbors(NamedTuple):
    """The nearest neighbours of every row.

    Attributes
    ----------
    distances : float64 array of shape (m, n_neighbors)
        Euclidean distances, ascending.
    indices : int64 array of shape (m, n_neighbors)
        Row numbers. At equal distances, the smaller number comes first.
    n_redone : int
        Number of rows whose first candidates could not be certified. They were searched again,
        in a higher precision or with more candidates.
    """

    distances: Array
    indices: Array
    n_redone: int


@on_its_device
def nearest_neighbors(X: ArrayLike, n_neighbors: int = 10) -> Neighbors:
    r"""Find the exact nearest neighbours of every row of `X` among the other rows.

    A row is never its own neighbour, but a duplicate of it is, at distance 0. At equal distances,
    the smaller row number comes first. Both backends return the same bits.

    Parameters
    ----------
    X : array-like of shape (m, d)
        See `features`.
    n_neighbors : int
        From 1 to m - 1; TypeError if it is not an integer.

    Returns
    -------
    Neighbors
        Arrays on the same device as `X`.

    Raises
    ------
    ValueError
        If `n_neighbors` is out of range, `features` refuses X, or X spans more orders of
        magnitude than squared distances can.

    Notes
    -----
    Costs at most :math:`2 m^2 d` operations in matrix products, and
    :math:`O(m(d + n_{neighbors}))` memory in addition to one tile. On the host, data with few
    columns are searched in a k-d tree, and many rows along leading principal axes if that is
    faster.

    Examples
    --------
    >>> import numpy as np
    >>> from specialk_gpu import nearest_neighbors
    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0]]), 1).indices.ravel()
    array([1, 0, 1])
    """
    X = features(X)
    return nearest_in_range(*within_range(backend_of(X), X), n_neighbors)


def nearest_in_range(X: Array, unit: float, n_neighbors: int) -> Neighbors:
    """Do what `nearest_neighbors` does, for the rows and the unit that `within_range` returned."""
    m = X.shape[0]
    _check_n_neighbors(n_neighbors, m - 1, "the number of rows less one")
    bk = backend_of(X)
    groups = duplicate_groups(X)
    if groups is None:
        distances, indices, n_redone = _search_neighbors(bk, X, n_neighbors)
        n_equal = 0
    else:
        distances, indices, n_redone = _neighbors_of_duplicates(bk, X, groups, n_neighbors)
        sizes = bk.xp.bincount(groups[1])
        n_equal = int((sizes * bk.xp.minimum(sizes - 1, n_neighbors)).sum())
    logger.info("neighbours: %d rows, %d searched again", m, n_redone)
    if unit != 1 and int((distances == 0).sum()) > n_equal:
        msg = (
            f"X has entries as large as {unit:.3g}, so that the distances between some rows "
            "vanish by rounding. Rescale X, or remove the outliers."
        )
        raise ValueError(msg)
    return Neighbors(bk.xp.sqrt(distances) * unit, indices, n_redone)


def within_range(bk: Backend, X: Array) -> tuple[Array, float]:
    """Divide data of extreme size by a power of two, so that squares stay finite; return both."""
    largest = float(bk.xp.abs(X).max())  # host waits
    if largest == 0 or 1e-100 < largest < 1e100:
        return X, 1.0
    unit = 2.0 ** min(math.frexp(largest)[1], 1023)
    return X.astype(np.float64) / unit, unit


@on_its_device
def neighbors_among(queries: ArrayLike, X: ArrayLike, n_neighbors: int = 10) -> Neighbors:
    """Find the exact nearest rows of `X` to every row of `queries`.

    A query that equals a row of X has that row at distance 0. At equal distances, the smaller row
    number comes first. Both backends return the same bits.

    Parameters
    ----------
    queries : array-like of shape (q, d)
        See `features`; a single row is enough.
    X : array-like of shape (m, d)
        On the same device as `queries`.
    n_neighbors : int
        From 1 to m.

    Returns
    -------
    Neighbors
        Arrays of shape (q, n_neighbors), on the device of `queries`.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Costs 2 q m d operations in matrix products. Queries are searched in batches of at most
    max(m, 16,384) rows, and each batch copies X.
    """
    queries, X = features(queries, min_rows=1), features(X, min_rows=1)
    bk = backend_of(queries)
    xp, m = bk.xp, X.shape[0]
    if queries.shape[1] != X.shape[1]:
        msg = f"queries must have as many columns as X ({X.shape[1]}), got {queries.shape[1]}."
        raise ValueError(msg)
    _check_n_neighbors(n_neighbors, m, "the number of rows")
    # The scale comes from X alone, so that a large query does not make other distances vanish.
    near_X, unit = within_range(bk, X)
    with np.errstate(over="ignore"):
        scaled = queries if unit == 1 else queries.astype(np.float64) / unit
        far = xp.abs(scaled).max(axis=1) >= FAR
    distances, n_redone = xp.empty((queries.shape[0], n_neighbors)), 0
    indices = xp.empty(distances.shape, dtype=np.int64)
    for rows, base, given, own in ((~far, near_X, scaled, unit), (far, X, queries, 1.0)):
        chosen = xp.flatnonzero(rows)
        for start in range(0, int(chosen.size), max(m, QUERY_ROWS)):
            part = chosen[start : start + max(m, QUERY_ROWS)]
            both, more = within_range(bk, xp.concatenate([base, given[part]]))
            sq, indices[part], redone = _search_products(bk, both, n_neighbors, first=m)
            with np.errstate(over="ignore"):
                distances[part] = xp.sqrt(sq) * more * own
            n_redone += redone
    return Neighbors(distances, indices, n_redone)


def _check_n_neighbors(n_neighbors: int, most: int, meaning: str) -> None:
    if not isinstance(n_neighbors, Integral):
        msg = f"n_neighbors must be an integer, got {n_neighbors!r}."
        raise TypeError(msg)
    if not 1 <= n_neighbors <= most:
        msg = f"n_neighbors must lie between 1 and {meaning} ({most}), got {n_neighbors}."
        raise ValueError(msg)


def _search_neighbors(bk: Backend, X: Array, k: int) -> tuple[Array, Array, int]:
    """Return squared distances, indices (m, k) and `n_redone`, for rows without duplicates."""
    m = X.shape[0]
    if bk.nearest_by_tree and X.shape[1] <= TREE_COLUMNS:
        sq, indices, doubtful, n_redone = bk.nearest_by_tree(X, k)
        if doubtful.size:
            _redo(bk, X, doubtful, sq, indices)
        return sq, indices, n_redone
    if bk.nearest_by_pairs and m >= PAIRS_ROWS:
        search = prepare(bk, X, "float32", reduction(bk, X, k))
        low = (search.sq_norms - 2 * search.loss - search.floor).astype(np.float32)
        if found := bk.nearest_by_pairs(X, search.base, low, search.scale, k):
            return *found, 0
    return _search_products(bk, X, k)


def _search_products(bk: Backend, X: Array, k: int, first: int = 0) -> tuple[Array, Array, int]:
    """Search neighbours for all rows, or for the rows from `first` on among the rows before."""
    xp, m = bk.xp, X.shape[0]
    out = xp.empty((m - first, k)), xp.empty((m - first, k), dtype=np.int64)
    n_candidates = min(first or m, k + 1 + (8 if k <= 32 else 16))
    doubtful, n_redone = xp.arange(first, m), []
    for dtype in bk.product_dtypes():
        if doubtful.size:
            doubtful = _propose(prepare(bk, X, dtype), doubtful, n_candidates, out)
            n_redone.append(int(doubtful.size))
    if doubtful.size:
        _redo(bk, X, doubtful, *out)
    return *out, n_redone[0]


def _propose(search: Search, todo: Array, n_candidates: int, out: tuple[Array, Array]) -> Array:
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


def _redo(bk: Backend, X: Array, doubtful: Array, out_sq: Array, out_index: Array) -> None:
    """Search the rows `doubtful` again: bound all distances in float64, measure what is left."""
    xp, k = bk.xp, out_sq.shape[1]
    first = X.shape[0] - out_sq.shape[0]
    m = first or X.shape[0]
    search = prepare(bk, X, "float64")
    exact = is_integral(bk, X)

    def run(tile: slice) -> None:
        rows = doubtful[tile]
        lower, slack = _float64_bounds(search, rows, m, exact=exact)
        if not first:
            lower[xp.arange(rows.size), rows] = np.inf
        limit = _upper_limit(xp, lower + slack, k)
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


def _upper_limit(xp: ModuleType, upper: Array, k: int) -> Array:
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


def _float64_bounds(search: Search, rows: Array, m: int, *, exact: bool) -> tuple[Array, Array]:
    """Return lower bounds (t, m) on the squared distances, and the gaps up to upper bounds."""
    loss, floor = (0 * search.loss, 0.0) if exact else (search.loss, search.floor)
    lower = search.bk.products(search.base[rows], search.base[:m])
    lower += (search.sq_norms - loss)[:m]
    lower += (search.sq_norms[rows] - loss[rows] - floor)[:, None]
    return lower, 2 * (loss[rows][:, None] + loss[:m] + floor)


def _neighbors_of_duplicates(
    bk: Backend, X: Array, groups: tuple[Array, Array], k: int
) -> tuple[Array, Array, int]:
    """Search among the distinct rows, then insert the copies of each."""
    xp = bk.xp
    first, group = groups
    m, u = X.shape[0], first.size
    if u > 1:
        k_distinct = min(k, u - 1)
        sq_u, index_u, n_redone = _search_neighbors(bk, X[first], k_distinct)
    else:
        sq_u, index_u, n_redone = xp.empty((1, 0)), xp.empty((1, 0), dtype=np.int64), 0
    sq_u = xp.concatenate([xp.zeros((u, 1)), sq_u], axis=1)  # a group is nearest to itself
    index_u = xp.concatenate([xp.arange(u)[:, None], index_u], axis=1)
    members = first_members(xp, group, u, k + 1)  # (u, k + 1), filled up with m
    out_sq = xp.empty((m, k))
    out_index = xp.empty((m, k), dtype=np.int64)

    def run(rows: slice) -> None:
        own = xp.arange(rows.start, rows.stop)
        near = index_u[group[own]]  # (t, groups)
        index = members[near].reshape(own.size, -1)
        sq = xp.repeat(sq_u[group[own]], k + 1, axis=1)
        out = (index == m) | (index == own[:, None])
        index = xp.where(out, m, index)
        sq = xp.where(out, np.inf, sq)
        by_index = xp.argsort(index, axis=1, kind="stable")
        index, sq = xp.take_along_axis(index, by_index, 1), xp.take_along_axis(sq, by_index, 1)
        best = xp.argsort(sq, axis=1, kind="stable")[:, :k]
        out_sq[own] = xp.take_along_axis(sq, best, 1)
        out_index[own] = xp.take_along_axis(index, best, 1)

    map_tiles(bk, run, m, 48 * index_u.shape[1] * (k + 1))
    return out_sq, out_index, n_redone
