"""Parts of the neighbour search on the device: products of rows, the smallest scores, hashes."""

from __future__ import annotations

import os

import cupy as cp
import numpy as np

from specialk_gpu.backend.gpu.kernels import WARPS, kernel_of
from specialk_gpu.backend.typing import Dtype

__all__ = [
    "product_dtypes",
    "product_error",
    "products",
    "products_of_float16",
    "row_hashes",
    "select_smallest",
]

SELECT_THREADS = 256
SELECT_MOST = 128  # up to this n, the minima of one group per thread suffice for the selection


def product_dtypes() -> tuple[str, ...]:
    """See `cpu.product_dtypes`; float16 if the device has tensor cores."""
    has_tensor_cores = int(cp.cuda.Device().compute_capability) >= 70
    return ("float16", "float32") if has_tensor_cores else ("float32",)


def product_error(n_features: int, dtype: Dtype) -> float:
    """See `cpu.product_error`.

    Tensor cores multiply float16 exactly, but align and truncate the terms that they add. This
    costs four units for each term instead of one. CUPY_TF32=1 makes float32 products less exact.
    """
    if np.dtype(dtype) == np.float16:
        return n_features * 2.0**-22
    error = n_features * float(np.finfo(dtype).eps) / 2
    if np.dtype(dtype) == np.float32 and os.environ.get("CUPY_TF32", "0") != "0":
        error += 2.0**-9
    return error


def products(A: cp.ndarray, B: cp.ndarray) -> cp.ndarray:
    """See `cpu.products`; float16 on the tensor cores, fastest for d a multiple of eight."""
    if A.dtype != np.float16:
        return (-2 * A) @ B.T
    out = cp.empty((A.shape[0], B.shape[0]), dtype=np.float32)
    products_of_float16(B, A, out, -2.0, transposed=True)
    return out


def _address_for_products(x: cp.ndarray) -> int:
    return x.data.ptr


def products_of_float16(
    A: cp.ndarray, B: cp.ndarray, out: cp.ndarray, alpha: float, *, transposed: bool
) -> None:
    """Compute out = alpha B Aᵀ, or alpha B A, for row-major float16 A and B and float32 out.

    cuBLAS is column-major and therefore sees the transpose of every matrix.
    """
    from cupy.cuda import cublas  # loads the library

    assert A.flags.c_contiguous
    assert B.flags.c_contiguous
    assert out.flags.c_contiguous
    half, single = cp.cuda.runtime.CUDA_R_16F, cp.cuda.runtime.CUDA_R_32F
    operation = cublas.CUBLAS_OP_T if transposed else cublas.CUBLAS_OP_N
    scalars = np.array([alpha, 0], dtype=np.float32)
    cublas.gemmEx(
        cp.cuda.device.get_cublas_handle(),
        operation,
        cublas.CUBLAS_OP_N,
        out.shape[1],
        out.shape[0],
        B.shape[1],
        scalars.ctypes.data,
        _address_for_products(A),
        half,
        A.shape[1],
        _address_for_products(B),
        half,
        B.shape[1],
        scalars.ctypes.data + 4,
        _address_for_products(out),
        single,
        out.shape[1],
        cublas.CUBLAS_COMPUTE_32F,
        cublas.CUBLAS_GEMM_DEFAULT,
    )


def select_smallest(
    products: cp.ndarray, offsets: cp.ndarray, n: int
) -> tuple[cp.ndarray, cp.ndarray]:
    """See `cpu.select_smallest`."""
    t, m = products.shape
    width, dtype = 4 * n + 32, products.dtype
    places, limits = cp.full((t, width), -1, dtype=np.int64), cp.empty(t, dtype=dtype)
    scores = cp.ascontiguousarray(products), offsets, np.int64(m)
    grid, found = ((t,), (SELECT_THREADS,)), (np.int32(width), places)
    if n <= SELECT_MOST:
        kernel_of("select", "select_smallest", dtype)(*grid, (*scores, np.int32(n), *found, limits))
        return places, limits
    minima = cp.empty((t, 2 * n if 4 * n <= m else m), dtype=dtype)
    kernel_of("select", "group_minima", dtype)(*grid, (*scores, np.int64(minima.shape[1]), minima))
    limits[:] = cp.sort(minima, axis=1)[:, n - 1]
    kernel_of("select", "collect", dtype)(*grid, (*scores, *found, limits))
    return places, limits


def row_hashes(X: cp.ndarray, factors: cp.ndarray) -> cp.ndarray:
    """See `cpu.row_hashes`."""
    m, d = X.shape
    out = cp.empty(m, dtype=np.uint64)
    arguments = (cp.ascontiguousarray(X), np.int64(m), np.int64(d), factors, out)
    blocks = (m + WARPS - 1) // WARPS
    kernel_of("hash", "row_hashes", X.dtype)((blocks,), (32 * WARPS,), arguments)
    return out
