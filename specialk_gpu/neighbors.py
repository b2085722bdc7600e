"""Exact nearest neighbours and neighbours within a radius.

One definition of distance serves everything here: `pair_sq_distances`, summed in float64 from
differences. Matrix products in the precision of the hardware only propose; each row carries a
rigorous bound on what they may have missed and is done again where that bound does not hold.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.duplicates import duplicate_groups, first_members

__all__ = [
    "Neighbors",
    "count_within",
    "features",
    "list_within",
    "nearest_neighbors",
    "within_range",
]


SHORT_DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "float16")  # exact in float32


class Neighbors(NamedTuple):
    """The nearest neighbours of every row.

    Attributes
    ----------
    distances : float64 array of shape (m, n_neighbors)
        Euclidean distances, ascending.
    indices : int64 array of shape (m, n_neighbors)
        Row numbers; of equally distant rows the smaller number comes first.
    n_redone : int
        Rows whose first proposal could not be certified and that were done again in float64.
    """

    distances: Any
    indices: Any
    n_redone: int


class _Search(NamedTuple):
    """What a tile of scores needs: centred rows, their squared norms, and error bounds.

    For rows i, j the score (1-β)s_j - 2 c_i·c_j, plus (1-β)s_i, is a lower bound of the squared
    distance in units of scale², and 2β(s_i + s_j) more is an upper bound.
    """

    bk: ModuleType
    X: Any  # (m, d) as given
    shift: Any  # (d,) float64
    scale: float  # power of two
    dtype: Any  # of the products
    sq_norms: Any  # (m,) float64
    beta: float
    floor: float  # absolute error, from underflow

    def centred(self, rows: slice | Any) -> Any:
        """Return (X[rows] - shift) / scale in the dtype of the products."""
        return ((self.X[rows] - self.shift) / self.scale).astype(self.dtype)


def features(X: Any) -> Any:
    """Return X as an array (m, d) of float32 or float64, on the device where it is.

    Parameters
    ----------
    X : array-like of shape (m, d)
        Real and finite. Short integers become float32, which holds them exactly; all else that
        is not float32 becomes float64.

    Raises
    ------
    ValueError
        If X is not real numbers, not two-dimensional, has fewer than two rows or no column, or is
        not finite.
    """
    bk = backend_of(X)
    X = bk.asarray(X)
    if X.dtype.kind not in "biuf":
        msg = f"X must be real numbers, got dtype {X.dtype}."
        raise ValueError(msg)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float32 if X.dtype.name in SHORT_DTYPES else np.float64)
    if X.ndim != 2 or X.shape[0] < 2 or X.shape[1] < 1:
        msg = f"X must have two dimensions, two rows and a column at least, got shape {X.shape}."
        raise ValueError(msg)
    if not bool(bk.xp.isfinite(X).all()):
        kind = "NaN" if bool(bk.xp.isnan(X).any()) else "infinity"
        msg = f"Input X contains {kind}."
        raise ValueError(msg)
    return X


def nearest_neighbors(X: Any, n_neighbors: int = 10) -> Neighbors:
    r"""Find the exact nearest neighbours of every row of `X` among the other rows.

    A row is never its own neighbour; a duplicate of it, at distance 0, is. Of rows at the same
    distance the smaller row number comes first. Both backends return the same bits.

    Parameters
    ----------
    X : array-like of shape (m, d)
        See `features`.
    n_neighbors : int
        1 <= n_neighbors <= m - 1.

    Returns
    -------
    Neighbors
        Arrays on the same device as `X`.

    Raises
    ------
    ValueError
        If `n_neighbors` or X is out of range, or X spans more orders of magnitude than squared
        distances can.

    Notes
    -----
    Costs :math:`2 m^2 d` operations in matrix products and :math:`O(m(d + n_{neighbors}))`
    memory beside one tile.
    """
    X = features(X)
    m = X.shape[0]
    if not 1 <= n_neighbors <= m - 1:
        msg = (
            f"n_neighbors must lie between 1 and the number of rows less one ({m - 1}), "
            f"got {n_neighbors}."
        )
        raise ValueError(msg)
    bk = backend_of(X)
    X, unit = within_range(bk, X)
    groups = duplicate_groups(X)
    if groups is None:
        distances, indices, n_redone = _search_neighbors(bk, X, n_neighbors)
        n_equal = 0
    else:
        distances, indices, n_redone = _neighbors_of_duplicates(bk, X, groups, n_neighbors)
        sizes = bk.xp.bincount(groups[1])
        n_equal = int((sizes * bk.xp.minimum(sizes - 1, n_neighbors)).sum())
    if unit != 1 and int((distances == 0).sum()) > n_equal:
        msg = (
            f"X has entries as large as {unit:.3g}, and beside them the distances between some "
            "rows vanish. Rescale X, or remove the outliers."
        )
        raise ValueError(msg)
    return Neighbors(bk.xp.sqrt(distances) * unit, indices, n_redone)


def within_range(bk: ModuleType, X: Any) -> tuple[Any, float]:
    """Scale data of extreme size, in float64, by a power of two, so that squares stay finite."""
    largest = float(bk.xp.abs(X).max())  # a sync
    if largest == 0 or 1e-100 < largest < 1e100:
        return X, 1.0
    unit = 2.0 ** min(math.frexp(largest)[1], 1023)
    return X.astype(np.float64) / unit, unit


def _prepare(bk: ModuleType, X: Any, dtype: Any) -> _Search:
    """Centre the data and bound the rounding errors of its scores.

    The terms of β, in units of half an eps: the product's own, 4 for centred coordinates
    rounded to `dtype`, 3 for the norms and the last subtraction, and room for second order.
    """
    xp = bk.xp
    m, d = X.shape
    shift = X.mean(axis=0, dtype=np.float64)
    if _is_integral(bk, X):
        shift = xp.rint(shift)
    rows = _row_step(bk, d * 8)
    chunks = [slice(i, i + rows) for i in range(0, m, rows)]
    largest = max(float(xp.abs(X[c] - shift).max()) for c in chunks)
    scale = 2.0 ** (math.frexp(largest)[1]) if largest > 0 else 1.0
    unit = float(np.finfo(dtype).eps) / 2
    beta = 1.01 * (bk.product_error(d, dtype) + 16 * unit)
    floor = (d + 16) * float(np.finfo(dtype).tiny) * 4
    search = _Search(bk, X, shift, scale, dtype, xp.empty(m), beta, floor)
    for c in chunks:
        centred = search.centred(c).astype(np.float64)
        search.sq_norms[c] = (centred * centred).sum(axis=1)
    return search


def _is_integral(bk: ModuleType, X: Any) -> bool:
    """Say whether all entries are integers so small that products of rows are exact."""
    xp = bk.xp
    sample = X[: min(64, X.shape[0])]
    if not bool((sample == xp.rint(sample)).all()):
        return False
    rows = _row_step(bk, X.shape[1] * 8)
    for start in range(0, X.shape[0], rows):
        part = X[start : start + rows]
        if not bool((part == xp.rint(part)).all()):
            return False
    return float(xp.abs(X).max()) ** 2 * X.shape[1] * 16 < 2.0**53


def _row_step(bk: ModuleType, bytes_per_row: int) -> int:
    """Return how many rows of that size make a tile."""
    return max(1, min(bk.tile_bytes, bk.free_memory() // 16) // max(bytes_per_row, 1))


def _search_neighbors(bk: ModuleType, X: Any, k: int) -> tuple[Any, Any, int]:
    """Return squared distances and indices (m, k), given that no row has a duplicate."""
    xp = bk.xp
    m, d = X.shape
    out_sq = xp.empty((m, k))
    out_index = xp.empty((m, k), dtype=np.int64)
    search = _prepare(bk, X, np.float32)
    base = search.centred(slice(None)).T  # (d, m)
    sq = ((1 - search.beta) * search.sq_norms).astype(np.float32)
    n_candidates = min(m, k + 1 + (8 if k <= 32 else 16))
    doubtful = []
    step = _row_step(bk, 4 * m)
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        scores = (-2 * search.centred(rows)) @ base  # (t, m)
        scores += sq
        places, limits = bk.select_smallest(scores, n_candidates)
        del scores
        out_sq[rows], out_index[rows] = _rank_candidates(bk, X, rows, places, k)
        bound = limits.astype(np.float64) + (1 - search.beta) * search.sq_norms[rows]
        bound = (bound - search.floor) * search.scale**2
        certified = out_sq[rows, -1] < bound * (1 - 1e-12)
        if n_candidates < m:
            doubtful.append(xp.flatnonzero(~certified) + start)
    doubtful = xp.concatenate(doubtful) if doubtful else xp.empty(0, dtype=np.int64)
    if doubtful.size:
        _redo(bk, X, doubtful, out_sq, out_index)
    return out_sq, out_index, int(doubtful.size)


def _rank_candidates(bk: ModuleType, X: Any, rows: slice, places: Any, k: int) -> tuple[Any, Any]:
    """Measure the proposed neighbours and return the k nearest, ties to the smaller index."""
    xp = bk.xp
    t, width = places.shape
    own = xp.arange(rows.start, rows.stop)[:, None]  # (t, 1)
    places = xp.sort(xp.where((places < 0) | (places == own), X.shape[0], places), axis=1)
    real = places < X.shape[0]
    sq = xp.full((t, width), np.inf)
    sq[real] = bk.pair_sq_distances(X, xp.broadcast_to(own, places.shape)[real], places[real])
    order = xp.argsort(sq, axis=1, kind="stable")[:, :k]
    return xp.take_along_axis(sq, order, axis=1), xp.take_along_axis(places, order, axis=1)


def _redo(bk: ModuleType, X: Any, doubtful: Any, out_sq: Any, out_index: Any) -> None:
    """Do the rows numbered `doubtful` again: float64 bounds for all, distances for the rest."""
    xp = bk.xp
    m, d = X.shape
    k = out_sq.shape[1]
    search = _prepare(bk, X, np.float64)
    exact = _is_integral(bk, X)
    step = _row_step(bk, 64 * m)
    width = _row_step(bk, 8 * d)
    for start in range(0, int(doubtful.size), step):
        rows = doubtful[start : start + step]
        lower, slack = _float64_bounds(search, rows, width, exact=exact)
        lower[xp.arange(rows.size), rows] = np.inf
        limit = xp.partition(lower + slack, k - 1, axis=1)[:, k - 1 : k]
        row, column = xp.nonzero(lower <= limit)
        if exact:
            sq = lower[row, column] * search.scale**2
        else:
            sq = bk.pair_sq_distances(X, rows[row], column)
        order = xp.lexsort(xp.stack([column.astype(np.float64), sq, row.astype(np.float64)]))
        first = xp.searchsorted(row, xp.arange(rows.size))  # `row` is sorted
        best = order[first[:, None] + xp.arange(k)]
        out_sq[rows], out_index[rows] = sq[best], column[best]


def _float64_bounds(search: _Search, rows: Any, width: int, *, exact: bool) -> tuple[Any, Any]:
    """Return lower bounds (t, m) of the squared distances and the widths of the bounds."""
    xp, m = search.bk.xp, search.X.shape[0]
    beta = 0.0 if exact else search.beta
    floor = 0.0 if exact else search.floor
    query = search.centred(rows)
    lower = xp.empty((query.shape[0], m))
    for start in range(0, m, width):
        part = slice(start, min(start + width, m))
        lower[:, part] = query @ search.centred(part).T
    lower *= -2
    lower += (1 - beta) * search.sq_norms
    lower += ((1 - beta) * search.sq_norms[rows] - floor)[:, None]
    slack = 2 * (beta * (search.sq_norms[rows][:, None] + search.sq_norms) + floor)
    return lower, slack


def _neighbors_of_duplicates(
    bk: ModuleType, X: Any, groups: tuple[Any, Any], k: int
) -> tuple[Any, Any, int]:
    """Search among the distinct rows, then put their copies back in."""
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
    members = first_members(xp, group, u, k + 1)  # (u, k + 1), m where there are fewer
    out_sq = xp.empty((m, k))
    out_index = xp.empty((m, k), dtype=np.int64)
    step = _row_step(bk, 48 * index_u.shape[1] * (k + 1))
    for start in range(0, m, step):
        own = xp.arange(start, min(start + step, m))
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
    return out_sq, out_index, n_redone


def count_within(X: Any, sq_radius: float) -> Any:
    """Count the other rows within the radius of each row: int64 array of shape (m,)."""
    return _within(_prepare(backend_of(X), X, np.float32), sq_radius, None)


def list_within(X: Any, sq_radius: float, indptr: Any) -> Any:
    """List the other rows within the radius of each row, given the counts' running sums.

    Parameters
    ----------
    X : float array of shape (m, d)
    sq_radius : float
        A row at squared distance `sq_radius` is within.
    indptr : int array of shape (m + 1,)
        Running sums of `count_within`.

    Returns
    -------
    int32 array of shape (indptr[-1],)
        Ascending within each row.
    """
    indices = backend_of(X).xp.empty(int(indptr[-1]), dtype=np.int32)
    _within(_prepare(backend_of(X), X, np.float32), sq_radius, (indptr, indices))
    return indices


def _within(search: _Search, sq_radius: float, out: tuple[Any, Any] | None) -> Any:
    """Count the pairs within the radius by row, or write them into `out` (indptr, indices)."""
    bk, X = search.bk, search.X
    xp, m = bk.xp, X.shape[0]
    base = search.centred(slice(None)).T
    sq = ((1 - search.beta) * search.sq_norms).astype(np.float32)
    limit = min(sq_radius / search.scale**2, 8.0 * X.shape[1])  # no pair is that far apart
    counts = xp.empty(m, dtype=np.int64)
    step = _row_step(bk, 16 * m)
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        scores = (-2 * search.centred(rows)) @ base
        scores += sq
        own_sq = search.sq_norms[rows]
        # out for certain above `high`; in for certain below `low`, whatever the partner's norm
        high = limit + search.floor - (1 - search.beta) * own_sq
        inside = scores <= (high + 1e-6 * xp.abs(high))[:, None].astype(np.float32)
        inside[xp.arange(rows.stop - start), xp.arange(start, rows.stop)] = False
        row, column = xp.nonzero(inside)
        lower = scores[row, column].astype(np.float64) + (1 - search.beta) * own_sq[row]
        upper = lower + 2 * search.beta * (own_sq[row] + search.sq_norms[column])
        unsure = xp.flatnonzero(upper + 2 * search.floor > limit * (1 - 1e-12))
        near = bk.pair_sq_distances(X, row[unsure] + start, column[unsure]) <= sq_radius
        keep = xp.ones(row.size, dtype=bool)
        keep[unsure] = near
        if out is None:
            counts[rows] = xp.bincount(row[keep], minlength=rows.stop - start)
        else:
            indptr, indices = out
            indices[int(indptr[start]) : int(indptr[rows.stop])] = column[keep]
    return counts
