"""K-means iterations on the host: nearest centres with margins, cluster sums, random draws."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import numpy as np
from scipy.sparse._sparsetools import coo_matmat_dense

from specialk_gpu.backend.cpu.centers import (
    CHUNK_BYTES,
    _stacked_centers,
    map_rows_to_centers,
    nearest_center,
    two_nearest_centers,
)
from specialk_gpu.backend.cpu.threads import map_chunks

__all__ = ["assign", "draw_rows", "largest", "segment_sum", "sums_of_minima"]

THREAD_ROWS = 2**18  # rows, over all runs, that are worth a thread
MARGIN_ROWS = 2**13  # from this many rows on, margins pay
FEW_ROWS = 2**8  # with fewer rows, one pass over all is faster than a search in each run
PARTS = 64  # at most this many parts of the rows have sums of their own


class _LloydMemory(NamedTuple):
    """What `assign` remembers of the runs from one call to the next."""

    labels: np.ndarray  # (R, m)
    # (m,) for each run: lower bounds on how much farther the second nearest centre is, or None
    margins: list[np.ndarray | None]
    centers: np.ndarray  # (R, k, d)
    counts: np.ndarray  # (R, k)
    sums: np.ndarray  # (R, k, d)

    def of(self, runs: np.ndarray) -> _LloydMemory:
        """Return what is remembered of some of the runs."""
        margins = [self.margins[r] for r in runs]
        labels, *others = (x[runs] for x in (self.labels, *self[2:]))
        return _LloydMemory(labels, margins, *others)

    def relabelled(self, run: int, row: int) -> None:
        """Record that a row has changed its cluster; labels, counts and sums show it already."""
        margins = self.margins[run]
        if margins is not None:
            margins[row] = -np.inf


def sums_of_minima(first: np.ndarray, second: np.ndarray, owner: np.ndarray, n: int) -> np.ndarray:
    """Sum the minima of a row of `first` and a row of `second` over all columns.

    Parameters
    ----------
    first : float64 array of shape (C, m)
    second : float64 array of shape (P n, m)
    owner : int64 array of shape (C,)
        Which of P owners each row of `first` belongs to.
    n : int
        Number of rows of `second` that belong to each owner, one owner after another.

    Returns
    -------
    float64 array of shape (C, n)
        One sum for each row of `first` and each row of `second` with the same owner.
    """
    sums = np.empty((len(first), n))
    for c, p in enumerate(owner.tolist()):
        sums[c] = np.minimum(first[c], second[p * n : (p + 1) * n]).sum(axis=1)
    return sums


def largest(x: np.ndarray, n: int) -> np.ndarray:
    """Return the places (r, n) of the n largest entries in each row of x (r, m), ties in order."""
    places = np.empty((len(x), n), dtype=np.int64)
    for r, row in enumerate(x):
        some = np.flatnonzero(row >= np.partition(row, row.size - n)[row.size - n])
        places[r] = some[np.argsort(-row[some], kind="stable")[:n]]
    return places


def remember(X: np.ndarray, labels: np.ndarray, centers: np.ndarray) -> _LloydMemory:
    """Return `last` for `assign`, for runs with these labels (R, m) and centres (R, k, d)."""
    counts, sums = segment_sum(X, labels, centers.shape[1])
    return _LloydMemory(labels, [None] * len(labels), centers, counts, sums)


def assign(
    X: np.ndarray,
    columns: np.ndarray,
    sq_norms: np.ndarray,
    centers: np.ndarray,
    sizes: np.ndarray,
    last: _LloydMemory | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, _LloydMemory, bool]:
    """Do one k-means iteration for several runs: nearest centres, and sums of the clusters.

    The margin of a row is how much farther its second nearest centre is than the nearest. With
    many rows, only those are searched whose centres have moved further than the margin (after
    Hamerly, Making k-means even faster, 2010). Margins leave room for rounding. Sums are updated
    from the rows that changed.

    Parameters
    ----------
    X, columns : float64 arrays of shape (m, d)
        The rows, and the same rows in `center_order`.
    sq_norms, centers, sizes
        See `nearest_center`.
    last
        What the last call for these runs returned, what `remember` returned for such runs, or
        None. Its method `of(runs)` returns the part for some of the runs, given by an array like
        X. Call `relabelled(run, row)` if labels, counts and sums are changed in place.

    Returns
    -------
    labels : int32 array of shape (R, m)
    state : float64 array of shape (3, R)
        The inertia of these centres; a number that is positive if labels differ from those of
        `last`, if any; and the number of clusters that have rows.
    means : float64 array of shape (R, k, d)
        Means of the clusters. A cluster without rows keeps its centre.
    counts, sums : float64 arrays of shape (R, k) and (R, k, d)
    last
        For the next call.
    exact : bool
        Whether the inertia comes from its definition. If False, it comes from the sums and is
        subject to cancellation.
    """
    if exact := X.shape[0] < MARGIN_ROWS:
        labels, sq = nearest_center(columns, sq_norms, centers, sizes)
        margins: list[np.ndarray | None] = [None] * sizes.size
    else:
        labels, margins = _lloyd_labels(X, sq_norms, centers, sizes, last)
    counts, sums = _lloyd_sums(X, labels, centers.shape[1], last)
    inertia = sq.sum(axis=1) if exact else _lloyd_inertias(sq_norms, centers, sizes, counts, sums)
    changed = np.zeros(sizes.size) if last is None else (labels != last.labels).any(axis=1)
    state = np.stack([inertia, changed, (counts > 0).sum(axis=1)])
    means = np.where(counts[:, :, None] > 0, sums / np.maximum(counts, 1)[:, :, None], centers)
    return (
        labels,
        state,
        means,
        counts,
        sums,
        _LloydMemory(labels, margins, centers, counts, sums),
        exact,
    )


def _lloyd_labels(
    X: np.ndarray,
    sq_norms: np.ndarray,
    centers: np.ndarray,
    sizes: np.ndarray,
    last: _LloydMemory | None,
) -> tuple[np.ndarray, list[np.ndarray | None]]:
    """Return the labels (R, m) and the margins (m,) of each run, from as few rows as possible."""
    m, R = X.shape[0], sizes.size
    own = [centers[r, :size] for r, size in enumerate(sizes.tolist())]
    error = np.array([_lloyd_score_error(sq_norms, C) for C in own])
    labels, margins = np.empty((R, m), dtype=np.int32), np.empty((R, m))

    def look(r: int, last: _LloydMemory) -> bool:
        """Find the nearest centres of run r, unless more than a quarter of the rows need it."""
        known = last.margins[r]
        if known is None:
            return False
        moved = np.sqrt(((own[r] - last.centers[r, : sizes[r]]) ** 2).sum(axis=1)) * (1 + 1e-9)
        labels[r] = last.labels[r]
        rows = _doubtful_rows_of_lloyd(known, moved, error[r], labels[r], margins[r])
        if 4 * rows.size > m:
            return False
        stack = _stacked_centers(own[r][None], sizes[r : r + 1])
        step = max(1, CHUNK_BYTES // (8 * X.shape[1]))
        for start in range(0, rows.size, step):
            some = rows[start : start + step]
            labels[r, some], best, second = two_nearest_centers(X.take(some, axis=0), stack)
            margins[r, some] = _lloyd_margins(sq_norms[some], best, second, error[r])[0]
        return True

    rest = np.arange(R)
    if last is not None:
        done = map_chunks(
            lambda runs: [look(r, last) for r in range(R)[runs]], _slices_of_lloyd_runs(R, m)
        )
        rest = np.flatnonzero(~np.array(sum(done, [])))

    def search(rows: slice) -> None:
        labels[rest, rows], best, second = two_nearest_centers(X[rows], stack)
        margins[rest, rows] = _lloyd_margins(sq_norms[rows], best, second, error[rest, None])

    if rest.size:
        stack = _stacked_centers(centers[rest], sizes[rest])
        map_rows_to_centers(search, m, len(stack.centers))
    return labels, list(margins)


def _lloyd_sums(
    X: np.ndarray, labels: np.ndarray, k: int, last: _LloydMemory | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sizes (R, k) and sums (R, k, d) of the clusters, from those of `last` if given."""
    if last is None:
        counts, sums = segment_sum(X, labels, k)
        return counts, sums
    counts, sums = last.counts[:, :k].copy(), last.sums[:, :k].copy()

    def update(runs: slice) -> None:
        count, total = _lloyd_moves(X, last.labels[runs], labels[runs], k)
        counts[runs] += count
        sums[runs] += total

    map_chunks(update, _slices_of_lloyd_runs(*labels.shape))
    return counts, sums


def _slices_of_lloyd_runs(n_runs: int, m: int) -> list[slice]:
    """Split the runs into parts that have enough rows to be worth a thread."""
    step = max(1, THREAD_ROWS // m)
    return [slice(i, min(i + step, n_runs)) for i in range(0, n_runs, step)]


def _lloyd_score_error(sq_norms: np.ndarray, centers: np.ndarray) -> float:
    """Bound the rounding error of the scores of `two_nearest`."""
    d, reach = centers.shape[1], math.sqrt(sq_norms.max())
    reach += math.sqrt((centers * centers).sum(axis=1).max())
    return max((d + 4) * float(np.finfo(np.float64).eps) * reach**2, sys.float_info.min)


def _lloyd_margins(
    sq_norms: np.ndarray, best: np.ndarray, second: np.ndarray, error: np.ndarray
) -> np.ndarray:
    """Bound from below how much farther the second nearest centre is than the nearest."""
    distances = np.sqrt(np.maximum(best + sq_norms, 0) + error)
    distances += np.sqrt(np.maximum(second + sq_norms, 0) + error)
    with np.errstate(invalid="ignore"):
        margins = (second - best - 2 * error) / distances
    return np.where(np.isinf(second), np.inf, margins)


def _doubtful_rows_of_lloyd(
    last: np.ndarray, moved: np.ndarray, error: float, labels: np.ndarray, margins: np.ndarray
) -> np.ndarray:
    """Update the margins (m,) after centres `moved` (k,); return rows whose label may be wrong."""
    farthest = moved.argmax()
    others = np.full(moved.size, moved[farthest])
    others[farthest] = np.delete(moved, farthest).max(initial=0)
    np.subtract(last, (moved + others).take(labels), out=margins)
    return np.flatnonzero(margins <= 2 * math.sqrt(2 * error))  # else scores differ by > 2 error


def _lloyd_moves(
    X: np.ndarray, old: np.ndarray, new: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the changes of the sizes (R, k) and sums (R, k, d) if labels (R, m) change."""
    d, R = X.shape[1], len(new)
    run, row = np.nonzero(old != new)
    place = np.concatenate([new[run, row] + k * run, old[run, row] + k * run])
    sign, row = np.repeat([1.0, -1.0], run.size), np.concatenate([row, row])
    counts = np.bincount(place, sign, minlength=R * k).reshape(R, k)
    return counts, _sums_of_rows(X, row, place, R * k, sign).reshape(R, k, d)


def _sums_of_rows(
    X: np.ndarray, row: np.ndarray, place: np.ndarray, n: int, sign: np.ndarray | None = None
) -> np.ndarray:
    """Add rows of X, times a sign, to the sums (n, d) at the given places, one after another."""
    sums = np.zeros((n, X.shape[1]))
    sign = np.ones(row.size) if sign is None else sign
    X = np.ascontiguousarray(X)
    # a product with a coo_array calls this too, after checks that take longer with few rows
    coo_matmat_dense(row.size, X.shape[1], place, row, sign, X.ravel(), sums.ravel())
    return sums


def _lloyd_inertias(
    sq_norms: np.ndarray,
    centers: np.ndarray,
    sizes: np.ndarray,
    counts: np.ndarray,
    sums: np.ndarray,
) -> np.ndarray:
    """Return the inertia of each run (R,), computed from the sums of its clusters."""
    products = []
    for r, size in enumerate(sizes.tolist()):
        C = centers[r, :size]
        products.append((C * (2 * sums[r, :size] - counts[r, :size, None] * C)).sum())
    return np.maximum(sq_norms.sum() - np.array(products), 0)


@np.errstate(over="ignore", invalid="ignore")  # sums show what is not finite
def segment_sum(
    X: np.ndarray, labels: np.ndarray, n_segments: int, *, squares: bool = False
) -> tuple[np.ndarray, ...]:
    """Sum the rows of each label in float64, in a fixed order, for several labellings at once.

    Parameters
    ----------
    X : array of shape (m, d)
    labels : int32 array of shape (R, m)
        Rows whose label is not in 0, ..., n_segments - 1 are ignored.
    n_segments : int
        Number of labels k.
    squares : bool
        Whether to sum the squares too.

    Returns
    -------
    counts : float64 array of shape (R, k)
    sums : float64 array of shape (R, k, d)
    squares : float64 array of shape (R, k, d), if asked for
    """
    (m, d), R, k = X.shape, labels.shape[0], n_segments
    offsets = np.arange(0, R * k, k, dtype=np.int32)[:, None]

    @np.errstate(over="ignore", invalid="ignore")  # each thread has its own state
    def add(part: slice) -> list[np.ndarray]:
        counts, totals = np.zeros(R * k), np.zeros((1 + squares, R * k, d))
        for start in range(part.start, part.stop, step):
            rows = slice(start, min(start + step, part.stop))
            label = labels[:, rows]
            place = np.where((label >= 0) & (label < k), label + offsets, np.int32(R * k))  # (R, t)
            row = np.arange(place.shape[1], dtype=place.dtype).repeat(R)
            place, n = place.T.ravel(), R * k + 1  # the last sum takes the ignored
            counts += np.bincount(place, minlength=n)[:-1]
            x = X[rows].astype(np.float64, copy=squares)
            totals[0] += _sums_of_rows(x, row, place, n)[:-1]
            if squares:
                x *= x
                totals[1] += _sums_of_rows(x, row, place, n)[:-1]
        return [counts.reshape(R, k), *totals.reshape(-1, R, k, d)]

    step = max(1, CHUNK_BYTES // (8 * d))
    part = max(step, -(-m // PARTS))
    parts = map_chunks(add, (slice(i, min(i + part, m)) for i in range(0, m, part)))
    return tuple(np.sum(total, axis=0) for total in zip(*parts, strict=True))


def draw_rows(weights: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Draw rows with probabilities proportional to their weights.

    Parameters
    ----------
    weights : float64 array of shape (R, m)
        Not negative.
    draws : float64 array of shape (R, T)
        In [0, 1).

    Returns
    -------
    int64 array of shape (R, T)
        The first row at which the running sum of weights[r] reaches draws[r, t] times the total.
    """
    running = np.cumsum(weights, axis=1)
    draws = draws * running[:, -1:]
    if weights.shape[1] < FEW_ROWS:
        rows = (running[:, None] < draws[:, :, None]).sum(axis=2)
    else:
        rows = np.stack([np.searchsorted(*pair) for pair in zip(running, draws, strict=True)])
    return np.minimum(rows, weights.shape[1] - 1)
