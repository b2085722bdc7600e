"""Arrays on the device: transfers, the current device, and free memory."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy as cp
import cupyx.scipy.sparse as sparse
import numpy as np

from specialk_gpu.backend.typing import Dtype

__all__ = ["asarray", "device_of", "free_memory", "tile_bytes", "to_numpy"]

tile_bytes = 2**31


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
