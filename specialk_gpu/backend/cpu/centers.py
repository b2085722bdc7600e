"""The nearest centre of each row, and distances to centres."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from specialk_gpu.backend.cpu.threads import map_chunks, one_blas_thread

__all__ = [
    "CHUNK_BYTES",
    "_stacked_centers",
    "map_rows_to_centers",
    "nearest_center",
    "nearest_without",
    "sq_distances",
    "two_nearest_centers",
]

CHUNK_BYTES = 2**21  # of scores, or rows, that stay in cache
THREAD_BYTES = 2**23  # of scores, from which on several threads pay
MANY_SLOTS = 8  # for so many centres of a run, and
FEW_SCORES = 1500  # at most so many scores of all runs, a loop over the centres takes longer


def nearest_center(
    X: np.ndarray, sq_norms: np.ndarray, centers: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest centre of every row, for several sets of centres ("runs") at once.

    All runs share one matrix product, so the rounding of a run may depend on the others.

    Parameters
    ----------
    X : float64 array of shape (m, d)
    sq_norms : float64 array of shape (m,)
        Squared norms of the rows of X.
    centers : float64 array of shape (R, k, d)
    sizes : int array of shape (R,), on the host
        Ascending. Run r has the centres centers[r, :sizes[r]], at least one; the rest is padding.

    Returns
    -------
    labels : int32 array of shape (R, m)
        At equal distances, the smaller label.
    sq_distances : float64 array of shape (R, m)
    """
    m, R = X.shape[0], centers.shape[0]
    labels, sq = np.empty((R, m), dtype=np.int32), np.empty((R, m))
    stack = _stacked_centers(centers, sizes)

    def search(rows: slice) -> None:
        labels[:, rows], best, _ = two_nearest_centers(X[rows], stack, both=False)
        best += sq_norms[rows]
        np.maximum(best, 0, out=sq[:, rows])

    map_rows_to_centers(search, m, len(stack.centers))
    return labels, sq


def nearest_without(
    X: np.ndarray,
    sq_norms: np.ndarray,
    centers: np.ndarray,
    sizes: np.ndarray,
    removed: list[np.ndarray],
) -> np.ndarray:
    """Find the squared distance of every row to its nearest centre after one centre is removed.

    Parameters
    ----------
    X, sq_norms, centers, sizes
        See `nearest_center`. Each run has at least two centres.
    removed : list of int arrays, of length R
        For each run r, the places in centers[r] of the centres to remove, one at a time.

    Returns
    -------
    float64 array of shape (C, m)
        One row for each removed centre: those of the first run, then the second, and so on.
    """
    run = np.repeat(np.arange(sizes.size), [slots.size for slots in removed])
    slot = np.concatenate(removed)
    sq = np.empty((slot.size, X.shape[0]))
    stack = _stacked_centers(centers, sizes)

    def search(rows: slice) -> None:
        label, best, second = two_nearest_centers(X[rows], stack)
        distance = np.where(label[run] == slot[:, None], second[run], best[run])
        distance += sq_norms[rows]
        np.maximum(distance, 0, out=sq[:, rows])

    map_rows_to_centers(search, X.shape[0], len(stack.centers))
    return sq


def sq_distances(X: np.ndarray, sq_norms: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Compute the squared distances of all rows to the given centres.

    Parameters
    ----------
    X, sq_norms
        See `nearest_center`.
    centers : float64 array of shape (r, d)

    Returns
    -------
    float64 array of shape (r, m)
    """
    sq = np.empty((centers.shape[0], X.shape[0]))
    doubled, own = -2 * centers, np.einsum("ij,ij->i", centers, centers)[:, None]

    def compute(rows: slice) -> None:
        scores = doubled @ X[rows].T
        scores += own
        scores += sq_norms[rows]
        np.maximum(scores, 0, out=sq[:, rows])

    map_rows_to_centers(compute, X.shape[0], centers.shape[0])
    return sq


class _StackedCenters(NamedTuple):
    """The centres of all runs, by slot, then run; those of slot c are at ends[c]:ends[c + 1]."""

    centers: np.ndarray  # (sum of sizes, d), times -2
    sq_norms: np.ndarray  # (sum of sizes, 1)
    first: np.ndarray  # (k,), the first run with a centre in each slot
    ends: np.ndarray  # (k + 1,)


def _stacked_centers(centers: np.ndarray, sizes: np.ndarray) -> _StackedCenters:
    """Stack the centres (R, k, d) of runs whose sizes are ascending."""
    slots = np.arange(sizes[-1])
    first = np.searchsorted(sizes, slots, side="right")
    stacked = centers.swapaxes(0, 1)[: slots.size][slots[:, None] < sizes]
    sq_norms = np.einsum("ij,ij->i", stacked, stacked)[:, None]
    ends = np.concatenate([[0], np.cumsum(sizes.size - first)])
    return _StackedCenters(np.multiply(stacked, -2, out=stacked), sq_norms, first, ends)


def map_rows_to_centers(function: Callable[[slice], None], m: int, n_centers: int) -> None:
    """Call function(rows) for chunks of rows whose scores stay in cache."""
    step = max(1, min(m, CHUNK_BYTES // (8 * n_centers)))
    if 8 * m * n_centers < THREAD_BYTES:
        step = m
    with one_blas_thread:  # a small product is slower in several threads
        map_chunks(function, (slice(i, min(i + step, m)) for i in range(0, m, step)))


def two_nearest_centers(
    X: np.ndarray, stack: _StackedCenters, *, both: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the label of the nearest centre in each run, and the two smallest scores.

    All three have shape (R, m). A score is the squared distance to a centre, less the squared norm
    of the row. If there is no second centre, the second score is infinite. It means nothing unless
    `both` is True.
    """
    scores = stack.centers @ X.T
    scores += stack.sq_norms
    n_slots, n_runs, m = len(stack.first), int(stack.ends[1]), X.shape[0]
    same_sizes = n_slots * n_runs == len(scores)
    if not both and same_sizes and n_slots >= MANY_SLOTS and n_runs * m <= FEW_SCORES:
        scores = scores.reshape(n_slots, n_runs, m)
        best = scores.min(axis=0)
        return scores.argmin(axis=0), best, best
    ends, small = stack.ends.tolist(), np.min_scalar_type(len(stack.first))
    best = scores[: ends[1]]  # (R, m)
    second = np.full_like(best, np.inf) if both else best
    label = np.zeros(best.shape, dtype=small)
    for c, r in enumerate(stack.first[1:].tolist(), start=1):
        score = scores[ends[c] : ends[c + 1]]
        np.maximum(label[r:], (score < best[r:]) * small.type(c), out=label[r:])
        if both:
            np.minimum(second[r:], np.maximum(score, best[r:]), out=second[r:])
        np.minimum(best[r:], score, out=best[r:])
    return label, best, second
