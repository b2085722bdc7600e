"""K-means on the device: iterations and starting centres."""

from __future__ import annotations

from typing import NamedTuple

import cupy as cp
import numpy as np

from specialk_gpu.backend.gpu.centers import nearest_center
from specialk_gpu.backend.gpu.kernels import SUM_THREADS, kernel_of

__all__ = [
    "assign",
    "draw_rows",
    "largest",
    "remember",
    "segment_sum",
    "sums_of_minima",
]

SUM_SLOTS = 48  # labels in a block of `segment_sum`
SUM_PARTS = 64  # at most this many parts of the rows have sums of their own
SUM_BYTES = 2**29
STEP_THREADS = 128
DRAW_THREADS = 256
DRAW_ROWS = 16  # rows in a piece, at least, if a thread has several pieces
DRAW_PIECES = 64  # pieces of a thread, at most


def sums_of_minima(first: cp.ndarray, second: cp.ndarray, owner: cp.ndarray, n: int) -> cp.ndarray:
    """See `cpu.sums_of_minima`."""
    assert first.dtype == second.dtype == np.float64
    first, second = cp.ascontiguousarray(first), cp.ascontiguousarray(second)
    sums = cp.empty((first.shape[0], n))
    arguments = (first, second, np.int64(first.shape[1]), owner, np.int32(n), sums)
    kernel_of("step", "sums_of_minima", np.float64)((sums.size,), (STEP_THREADS,), arguments)
    return sums


def largest(x: cp.ndarray, n: int) -> cp.ndarray:
    """See `cpu.largest`."""
    return cp.argsort(-x, axis=1, kind="stable")[:, :n]


class _LloydMemory(NamedTuple):
    """What `assign` remembers of the runs from one call to the next."""

    labels: cp.ndarray  # (R, m)

    def of(self, runs: cp.ndarray) -> _LloydMemory:
        """Return what is remembered of some of the runs."""
        return _LloydMemory(self.labels[runs])

    def relabelled(self, run: int, row: int) -> None:
        """Do nothing when a row has changed its cluster: the labels show it already."""


def remember(X: cp.ndarray, labels: cp.ndarray, centers: cp.ndarray) -> _LloydMemory:  # noqa: ARG001
    """See `cpu.remember`; only the labels are needed."""
    return _LloydMemory(labels)


def assign(
    X: cp.ndarray,
    columns: cp.ndarray,
    sq_norms: cp.ndarray,
    centers: cp.ndarray,
    sizes: np.ndarray,
    last: _LloydMemory | None,
) -> tuple[cp.ndarray, cp.ndarray, cp.ndarray, cp.ndarray, cp.ndarray, _LloydMemory, bool]:
    """See `cpu.assign`; the device searches all rows."""
    centers = cp.ascontiguousarray(centers)
    (m, d), (R, k) = X.shape, centers.shape[:2]
    labels, sq = nearest_center(columns, sq_norms, centers, sizes)
    total = _lloyd_totals(X, labels, k, 1)
    n_rows, n_parts = _lloyd_parts(m)
    partial, state, means = cp.empty((n_parts, 3 * R)), cp.empty((3, R)), cp.empty((R, k, d))
    before = labels if last is None else last.labels
    content = (sq, labels, before, np.int64(m), np.int64(R), np.int64(n_rows), np.int64(n_parts))
    arguments = (*content, total, centers, np.int64(k), np.int64(d), means, partial)
    kernel_of("step", "finish_step", np.float64)((R * n_parts,), (STEP_THREADS,), arguments)
    _add_lloyd_parts(partial, state)
    return labels, state, means, total[:, 0, :, d], total[:, 0, :, :d], _LloydMemory(labels), True


def _lloyd_parts(m: int) -> tuple[int, int]:
    """Return the number of rows in a part with sums of its own, and the number of parts."""
    n_rows = max(SUM_THREADS, -(-m // SUM_PARTS))  # independent of R, so results do not vary
    return n_rows, -(-m // n_rows)


def _add_lloyd_parts(partial: cp.ndarray, out: cp.ndarray) -> None:
    """Add the parts (n_parts, size) in their order."""
    arguments = (partial, np.int64(partial.shape[0]), np.int64(out.size), out)
    blocks = (-(-out.size // SUM_THREADS),)
    kernel_of("segment", "add_parts", np.float64)(blocks, (SUM_THREADS,), arguments)


def _lloyd_totals(X: cp.ndarray, labels: cp.ndarray, k: int, n_powers: int) -> cp.ndarray:
    """Return the sums of `segment_sum` (R, n_powers, k, d + 1); the last column holds counts."""
    (m, d), R = X.shape, labels.shape[0]
    assert labels.dtype == np.int32
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    X, labels = cp.ascontiguousarray(X, dtype=dtype), cp.ascontiguousarray(labels)
    total = cp.empty((R, n_powers, k, d + 1))
    n_rows, n_parts = _lloyd_parts(m)
    grid = -(-(d + 1) // SUM_THREADS), -(-k // (SUM_SLOTS // n_powers))
    together = max(1, SUM_BYTES // (8 * n_parts * n_powers * k * (d + 1)))
    for start in range(0, R, together):
        part = labels[start : start + together]
        out = total[start : start + together]
        partial = cp.empty((n_parts, out.size))
        sizes = (np.int64(part.shape[0]), np.int64(k), np.int32(n_powers), np.int64(n_rows))
        arguments = (X, np.int64(m), np.int64(d), part, *sizes, partial)
        blocks = (n_parts * part.shape[0], *grid)
        kernel_of("segment", "segment_sum", X.dtype)(blocks, (SUM_THREADS,), arguments)
        _add_lloyd_parts(partial, out)
    return total


def segment_sum(
    X: cp.ndarray, labels: cp.ndarray, n_segments: int, *, squares: bool = False
) -> tuple[cp.ndarray, ...]:
    """See `cpu.segment_sum`."""
    n_powers, d = 1 + squares, X.shape[1]
    total = _lloyd_totals(X, labels, n_segments, n_powers)
    return total[:, 0, :, d], *(total[:, power, :, :d] for power in range(n_powers))


def draw_rows(weights: cp.ndarray, draws: cp.ndarray) -> cp.ndarray:
    """See `cpu.draw_rows`."""
    assert weights.dtype == draws.dtype == np.float64
    R, m = weights.shape
    weights, draws = cp.ascontiguousarray(weights), cp.ascontiguousarray(draws)
    rows = cp.full(draws.shape, m - 1, dtype=np.int64)
    per_thread = max(1, min(DRAW_PIECES, m // (DRAW_THREADS * DRAW_ROWS)))
    n_pieces = DRAW_THREADS * per_thread
    size, pieces = np.int64(-(-m // n_pieces)), cp.empty((R, n_pieces))
    arguments: tuple[object, ...] = (weights, np.int64(m), size, np.int64(n_pieces), pieces)
    kernel_of("draw", "sum_pieces", weights.dtype)((R * per_thread,), (DRAW_THREADS,), arguments)
    arguments = (weights, np.int64(m), draws, np.int32(draws.shape[1]), rows)
    arguments += (pieces, np.int32(per_thread), size)
    kernel_of("draw", "draw_rows", weights.dtype)((R,), (DRAW_THREADS,), arguments)
    return rows
