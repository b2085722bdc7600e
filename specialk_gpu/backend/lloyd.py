"""Iterations of k-means on the host: nearest centres with margins, sums of clusters, draws."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from specialk_gpu.backend.threads import map_chunks, one_blas_thread

__all__ = ["assign", "draw_rows", "nearest_center", "segment_sum"]

CHUNK_BYTES = 2**21  # scores, or rows, that stay in cache
THREAD_ROWS = 2**16  # rows, over all runs, that are worth a thread
MARGIN_ROWS = 2**13  # from which margins pay
PARTS = 64  # of the rows at most, with sums of their own


def nearest_center(
    X: np.ndarray, sq_norms: np.ndarray, centers: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest centre of every row, for several sets of centres ("runs") at once.

    Runs of equal size share a product; runs of other sizes do not change a bit of the result.

    Parameters
    ----------
    X : float64 array of shape (m, d)
    sq_norms : float64 array of shape (m,)
        Of the rows of X.
    centers : float64 array of shape (R, k, d)
    sizes : int array of shape (R,), on the host
        Run r has the centres centers[r, :sizes[r]], at least one; the others are padding.

    Returns
    -------
    labels : int32 array of shape (R, m)
        Of equal distances the smaller label.
    sq_distances : float64 array of shape (R, m)
    """
    m, R = X.shape[0], centers.shape[0]
    labels, sq = np.empty((R, m), dtype=np.int32), np.empty((R, m))

    def search(runs: np.ndarray, rows: slice) -> None:
        own = centers[runs, : sizes[runs[0]]]
        labels[runs, rows], best, _ = _two_nearest(X[rows], own, both=False)
        sq[runs, rows] = np.maximum(best + sq_norms[rows], 0)

    _map_rows(search, m, sizes, np.arange(R))
    return labels, sq


def _map_rows(
    function: Callable[[np.ndarray, slice], None], m: int, sizes: np.ndarray, which: np.ndarray
) -> None:
    """Call function(runs, rows) for the runs of each size among `which` and chunks of the rows."""
    for size in np.unique(sizes[which]).tolist():
        runs = which[sizes[which] == size]
        step = max(1, min(m, CHUNK_BYTES // (8 * size * runs.size)))
        with one_blas_thread:  # a small product is slower in several
            map_chunks(partial(function, runs), (slice(i, i + step) for i in range(0, m, step)))


def _two_nearest(
    X: np.ndarray, centers: np.ndarray, *, both: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the label of the nearest of the centres (R, k, d), and the two smallest scores.

    All three are of shape (R, m). A score is a squared distance less that of the row to the
    origin; without a second centre, or unless `both` are asked for, the second is infinite.
    """
    R, k, d = centers.shape
    scores = (-2 * centers).reshape(-1, d) @ X.T
    scores += (centers * centers).sum(axis=2).reshape(-1, 1)
    scores = scores.reshape(R, k, -1)
    best, small = scores[:, 0].copy(), np.min_scalar_type(k)
    second, larger = np.full_like(best, np.inf), np.empty_like(best)
    label = np.zeros(best.shape, dtype=small)
    for c in range(1, k):
        np.maximum(label, (scores[:, c] < best) * small.type(c), out=label)
        if both:
            np.maximum(scores[:, c], best, out=larger)
            np.minimum(second, larger, out=second)
        np.minimum(best, scores[:, c], out=best)
    return label, best, second


class _Run(NamedTuple):
    """What `assign` remembers of a run."""

    labels: np.ndarray  # (m,)
    margins: np.ndarray  # (m,), at most the distance to the second nearest centre less the nearest
    centers: np.ndarray  # (k, d)
    counts: np.ndarray  # (k,)
    sums: np.ndarray  # (k, d)


def assign(
    X: np.ndarray,
    columns: np.ndarray,
    sq_norms: np.ndarray,
    centers: np.ndarray,
    sizes: np.ndarray,
    last: list[Any],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[Any], bool]:
    """Do an iteration of k-means for several runs: nearest centres, and sums of the clusters.

    Of many rows, only those are looked at for which the centres have moved further than the
    second nearest one was behind (after Hamerly, Making k-means even faster, 2010); the margins
    leave room for rounding. Sums are updated by the rows that changed.

    Parameters
    ----------
    X, columns : float64 arrays of shape (m, d)
        The rows, and the same in `center_order`.
    sq_norms, centers, sizes
        See `nearest_center`.
    last : list of length R
        For each run what the last call returned, or None; opaque.

    Returns
    -------
    labels : int32 array of shape (R, m)
    inertia : float64 array of shape (R,)
        Of these centres.
    counts, sums : float64 arrays of shape (R, k) and (R, k, d)
    last : list of length R
    exact : bool
        Whether `inertia` is from its definition, or from the sums and subject to cancellation.
    """
    m, R, k = X.shape[0], len(last), centers.shape[1]
    if m < MARGIN_ROWS:
        labels, sq = nearest_center(columns, sq_norms, centers, sizes)
        return labels, sq.sum(axis=1), *segment_sum(X, labels, k), last, True
    own = [centers[r, :size] for r, size in enumerate(sizes.tolist())]
    error = np.array([_score_error(sq_norms, C) for C in own])
    labels, margins = np.empty((R, m), dtype=np.int32), np.empty((R, m))
    counts, sums = np.zeros((R, k)), np.zeros(centers.shape)

    def search(group: np.ndarray, rows: slice | np.ndarray) -> None:
        x = X[rows] if isinstance(rows, slice) else X.take(rows, axis=0)
        label, *scores = _two_nearest(x, centers[group, : sizes[group[0]]])
        place = (group, rows) if isinstance(rows, slice) else (group[:, None], rows)
        labels[place], margins[place] = label, _margins(sq_norms[rows], *scores, error[group, None])

    def look(r: int) -> bool:
        """Find the nearest centres of run r, unless most rows must be looked at."""
        if last[r] is None:
            return False
        rows = _doubtful(last[r], own[r], error[r], labels[r], margins[r])
        if 4 * rows.size > m:
            return False
        step = max(1, CHUNK_BYTES // (8 * X.shape[1]))
        for start in range(0, rows.size, step):
            search(np.array([r]), rows[start : start + step])
        return True

    def add(r: int) -> None:
        if last[r] is not None:
            size = sizes[r]
            counts[r, :size], sums[r, :size] = last[r].counts, last[r].sums
            _move(X, last[r].labels, labels[r], counts[r, :size], sums[r, :size])

    done = _map_runs(look, R, m)
    _map_rows(search, m, sizes, np.flatnonzero(~np.array(done)))
    _map_runs(add, R, m)
    new = np.flatnonzero([run is None for run in last])
    if new.size:
        counts[new], sums[new] = segment_sum(X, labels[new], k)
    runs = [
        _Run(labels[r], margins[r], C, counts[r, : len(C)], sums[r, : len(C)])
        for r, C in enumerate(own)
    ]
    inertia = np.array([_inertia(sq_norms, run) for run in runs])
    return labels, inertia, counts, sums, runs, False


def _map_runs(function: Callable[[int], Any], n_runs: int, m: int) -> list[Any]:
    """Call `function` for every run, in threads where there are many rows."""
    step = max(1, THREAD_ROWS // m)
    runs = range(n_runs)
    done = map_chunks(
        lambda some: [function(r) for r in runs[some]],
        [slice(i, i + step) for i in range(0, n_runs, step)],
    )
    return sum(done, [])


def _score_error(sq_norms: np.ndarray, centers: np.ndarray) -> float:
    """Bound the rounding error of the scores of `_two_nearest`."""
    d, reach = centers.shape[1], math.sqrt(sq_norms.max())
    reach += math.sqrt((centers * centers).sum(axis=1).max())
    return max((d + 4) * float(np.finfo(np.float64).eps) * reach**2, sys.float_info.min)


def _margins(
    sq_norms: np.ndarray, best: np.ndarray, second: np.ndarray, error: np.ndarray
) -> np.ndarray:
    """Bound from below how much farther than the nearest centre the second nearest is."""
    distances = np.sqrt(np.maximum(best + sq_norms, 0) + error)
    distances += np.sqrt(np.maximum(second + sq_norms, 0) + error)
    with np.errstate(invalid="ignore"):
        margins = (second - best - 2 * error) / distances
    return np.where(np.isinf(second), np.inf, margins)


def _doubtful(
    last: _Run, centers: np.ndarray, error: float, labels: np.ndarray, margins: np.ndarray
) -> np.ndarray:
    """Bring labels and margins to the new centres; return the rows for which these may be wrong."""
    moved = np.sqrt(((centers - last.centers) ** 2).sum(axis=1)) * (1 + 1e-9)
    others = [np.delete(moved, c).max(initial=0) for c in range(moved.size)]
    labels[:] = last.labels
    np.subtract(last.margins, (moved + others).take(labels), out=margins)
    return np.flatnonzero(margins <= 2 * math.sqrt(2 * error))  # scores beyond differ by > 2 error


def _move(
    X: np.ndarray, old: np.ndarray, new: np.ndarray, counts: np.ndarray, sums: np.ndarray
) -> None:
    """Update counts (k,) and sums (k, d) by the rows whose label changed."""
    changed = np.flatnonzero(old != new)
    step = max(1, CHUNK_BYTES // (8 * X.shape[1]))
    for start in range(0, changed.size, step):
        rows = changed[start : start + step]
        places = np.stack([new[rows], old[rows]], axis=1).ravel()
        ends, signs = np.arange(0, places.size + 1, 2), np.tile([1.0, -1.0], rows.size)
        member = sparse.csc_matrix((signs, places, ends), shape=(counts.size, rows.size))
        sums += member @ X.take(rows, axis=0)
        counts += np.bincount(places, signs, minlength=counts.size)


def _inertia(sq_norms: np.ndarray, run: _Run) -> float:
    """Return the sum of squared distances to the centres from the sums of the clusters."""
    products = (run.centers * (2 * run.sums - run.counts[:, None] * run.centers)).sum()
    return max(float(sq_norms.sum() - products), 0.0)


@np.errstate(over="ignore", invalid="ignore")  # what is not finite shows in the sums
def segment_sum(
    X: np.ndarray, labels: np.ndarray, n_segments: int, *, squares: bool = False
) -> tuple[np.ndarray, ...]:
    """Sum the rows of each label in float64, in a fixed order, for several labellings at once.

    Parameters
    ----------
    X : array of shape (m, d)
    labels : int32 array of shape (R, m)
        Rows whose label is not in 0, ..., n_segments - 1 count for nothing.
    n_segments : int
        k.
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

    @np.errstate(over="ignore", invalid="ignore")  # threads have states of their own
    def add(part: slice) -> list[np.ndarray]:
        counts, totals = np.zeros(R * k), np.zeros((1 + squares, R * k, d))
        for start in range(part.start, part.stop, step):
            rows = slice(start, min(start + step, part.stop))
            label = labels[:, rows]
            place = np.where((label >= 0) & (label < k), label + offsets, np.int32(R * k))  # (R, t)
            ones, ends = np.ones(place.size), np.arange(0, place.size + 1, R, dtype=place.dtype)
            shape = R * k + 1, place.shape[1]  # a last row for what counts for nothing
            member = sparse.csc_matrix((ones, place.T.ravel(), ends), shape=shape)
            counts += np.bincount(member.indices, minlength=shape[0])[:-1]
            x = X[rows].astype(np.float64, copy=squares)
            totals[0] += (member @ x)[:-1]
            if squares:
                x *= x
                totals[1] += (member @ x)[:-1]
        return [counts.reshape(R, k), *totals.reshape(-1, R, k, d)]

    step = max(1, CHUNK_BYTES // (8 * d))
    part = max(step, -(-m // PARTS))
    parts = map_chunks(add, (slice(i, min(i + part, m)) for i in range(0, m, part)))
    return tuple(np.sum(total, axis=0) for total in zip(*parts, strict=True))


def draw_rows(weights: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Draw rows with probability in proportion to their weights.

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
    rows = [np.searchsorted(*pair) for pair in zip(running, draws * running[:, -1:], strict=True)]
    return np.minimum(np.stack(rows), weights.shape[1] - 1)
