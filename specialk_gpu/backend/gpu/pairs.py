"""Distances of pairs of rows on the device, and the nearest of given candidates."""

from __future__ import annotations

import cupy as cp
import numpy as np

from specialk_gpu.backend.gpu.kernels import WARPS, kernel_of

__all__ = ["pair_sq_distances", "rank_candidates"]


def rank_candidates(
    X: cp.ndarray, rows: cp.ndarray, places: cp.ndarray, k: int
) -> tuple[cp.ndarray, cp.ndarray]:
    """See `cpu.rank_candidates`; all candidates are measured."""
    t, width = places.shape
    X = cp.ascontiguousarray(X)
    rows = cp.ascontiguousarray(rows, dtype=np.int64)
    places = cp.ascontiguousarray(places, dtype=np.int64)
    out_sq, out_index = cp.empty((t, k)), cp.empty((t, k), dtype=np.int64)
    content = (X, np.int64(X.shape[1]), rows, places, np.int32(width), np.int32(k))
    arguments = (*content, cp.empty((t, width)), out_sq, out_index)
    kernel_of("distance", "rank_candidates", X.dtype)((t,), (32 * WARPS,), arguments)
    return out_sq, out_index


def pair_sq_distances(X: cp.ndarray, rows: cp.ndarray, columns: cp.ndarray) -> cp.ndarray:
    """See `cpu.pair_sq_distances`."""
    out = cp.empty(rows.size)
    if rows.size:
        X = cp.ascontiguousarray(X)
        rows = cp.ascontiguousarray(rows, dtype=np.int64)
        columns = cp.ascontiguousarray(columns, dtype=np.int64)
        arguments = (X, np.int64(X.shape[1]), rows, columns, np.int64(rows.size), out)
        blocks = (rows.size + WARPS - 1) // WARPS
        kernel_of("distance", "pair_sq_distances", X.dtype)((blocks,), (32 * WARPS,), arguments)
    return out
