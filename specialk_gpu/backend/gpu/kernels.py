"""The CUDA kernels of this package, compiled at first use."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import cupy as cp
import numpy as np

from specialk_gpu.backend.typing import Dtype

__all__ = ["SUM_THREADS", "WARPS", "kernel_of"]

WARPS = 8  # per block
SUM_THREADS = 64


@cache
def _module_of_kernels(source: str) -> cp.RawModule:
    """Compile kernels/`source`.cu at first use; CuPy keeps the binary on disk."""
    code = files("specialk_gpu.backend").joinpath("kernels", f"{source}.cu").read_text()
    return cp.RawModule(code=code, options=("-std=c++17",))


@cache
def kernel_of(source: str, function: str, dtype: Dtype) -> cp.RawKernel:
    """Return the kernel `function` of kernels/`source`.cu for a dtype."""
    return _module_of_kernels(source).get_function(f"{function}_{np.dtype(dtype).name}")
