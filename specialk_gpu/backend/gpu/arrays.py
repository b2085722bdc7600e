"""Arrays on the device: transfers, free memory, and small operations on them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy as cp
import cupyx.scipy.sparse as sparse
import numpy as np

from specialk_gpu.backend.gpu.kernels import SUM_THREADS, kernel_of
from specialk_gpu.backend.typing import Dtype

__all__ = [
    "all_true",
    "asarray",
    "bin_sums",
    "column_dots",
    "device_of",
    "free_memory",
    "inverse_lower",
    "repeated",
    "row_squares",
    "segment_max",
    "tile_bytes",
    "to_numpy",
]

tile_bytes = 2**31
MAX_THREADS = 128  # threads for each segment in `segment_max`


def asarray(x: object, dtype: Dtype | None = None) -> cp.ndarray:
    """See `cpu.asarray`; device arrays of other libraries are used without a copy."""
    if sparse.issparse(x):
        return x
    if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | cp.ndarray):
        x = cp.from_dlpack(x)
    return cp.asarray(x, dtype=dtype)


def to_numpy(x: object) -> np.ndarray:
    """See `cpu.to_numpy`."""
    return cp.asnumpy(x)


def device_of(x: Any) -> AbstractContextManager[object]:
    """See `cpu.device_of`."""
    if sparse.issparse(x):
        x = x.data  # CuPy's sparse matrices do not say where they are
    if isinstance(x, cp.ndarray):
        return x.device
    kind, index = getattr(x, "__dlpack_device__", lambda: (1, 0))()
    return cp.cuda.Device(index) if int(kind) in (2, 13) else nullcontext()  # not the host's


def free_memory() -> int:
    """See `cpu.free_memory`; includes unused memory in CuPy's pool, up to the pool's limit."""
    pool = cp.get_default_memory_pool()
    free = cp.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
    limit = pool.get_limit()
    return min(free, limit - pool.used_bytes()) if limit else free


def all_true(x: cp.ndarray) -> bool:
    """See `cpu.all_true`; `min` of integers is precompiled, `all` takes seconds to compile."""
    return not x.size or bool(cp.ascontiguousarray(x).view(np.int8).min())


def column_dots(X: cp.ndarray, Y: cp.ndarray) -> cp.ndarray:
    """See `cpu.column_dots`; CuPy's sum along the first axis uses one block for 32 columns."""
    return cp.ones(X.shape[0], dtype=X.dtype) @ (X * Y)


def row_squares(X: cp.ndarray) -> cp.ndarray:
    """See `cpu.row_squares`."""
    return (X * X).sum(axis=1)


def inverse_lower(L: cp.ndarray) -> cp.ndarray:
    """See `cpu.inverse_lower`."""
    from cupyx.scipy.linalg import solve_triangular

    return solve_triangular(L, cp.eye(L.shape[0], dtype=L.dtype), lower=True)


def bin_sums(bins: cp.ndarray, weights: cp.ndarray, n_bins: int) -> cp.ndarray:
    """See `cpu.bin_sums`; unlike CuPy's bincount, it does not wait in order to check the bins."""
    sums = cp.zeros(n_bins)
    if bins.size:
        arguments = (bins.astype(np.int64, copy=False), weights, np.int64(bins.size), sums)
        blocks = (-(-bins.size // SUM_THREADS),)
        kernel_of("bins", "add_to_bins", np.float64)(blocks, (SUM_THREADS,), arguments)
    return sums


def repeated(columns: np.ndarray, count: np.ndarray) -> cp.ndarray:
    """See `cpu.repeated`."""
    ends = np.cumsum(count)
    table = cp.asarray(np.vstack([ends, columns]))
    entries = cp.arange(int(ends[-1]) if ends.size else 0)
    return table[1:, cp.searchsorted(table[0], entries, side="right")]


def segment_max(x: cp.ndarray, start: np.ndarray, end: np.ndarray) -> cp.ndarray:
    """See `cpu.segment_max`."""
    out = cp.empty(start.size)
    ends = cp.asarray(np.stack([start, end]))
    arguments = (x, ends[0], ends[1], out)
    kernel_of("maximum", "segment_max", np.float64)((start.size,), (MAX_THREADS,), arguments)
    return out
