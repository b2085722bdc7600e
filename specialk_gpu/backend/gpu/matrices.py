"""Sparse matrices on the device: connected components, products with blocks, Lanczos."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import cupy as cp
import cupyx.scipy.sparse as sparse
import numpy as np

from specialk_gpu.backend.gpu.arrays import free_memory, tile_bytes, to_numpy
from specialk_gpu.backend.gpu.kernels import WARPS, kernel_of
from specialk_gpu.backend.gpu.products import (
    product_dtypes,
    products_of_float16,
)

__all__ = [
    "as_float32",
    "components_of",
    "connected_components",
    "entry_rows",
    "is_lanczos_faster",
    "lanczos",
    "locality_order",
    "operator",
    "spmm",
]

DENSE_FROM = 0.02  # density from which tensor cores beat gathering, by their data sheets
MAX_ENTRIES = 2**31 - 1  # largest number of entries that `spmm` can multiply


def connected_components(W: sparse.csr_matrix) -> tuple[int, cp.ndarray]:
    """See `cpu.connected_components`."""
    return components_of(W.indptr, W.indices)


def components_of(indptr: cp.ndarray, indices: cp.ndarray) -> tuple[int, cp.ndarray]:
    """See `cpu.components_of`; the smallest row number of a component is its root."""
    m = indptr.size - 1
    assert m < 2**31
    if m == 0:
        return 0, cp.zeros(0, dtype=np.int64)
    content = indptr.astype(np.int64, copy=False), indices.astype(np.int32, copy=False)
    rows = cp.arange(m, dtype=np.int32)
    parent, root = rows.copy(), cp.empty_like(rows)
    blocks = (m + WARPS - 1) // WARPS
    arguments: tuple[object, ...] = (*content, np.int32(m), parent)
    kernel_of("components", "hook", np.int32)((blocks,), (32 * WARPS,), arguments)
    blocks, arguments = (m + 255) // 256, (np.int32(m), parent, root)
    kernel_of("components", "find_root", np.int32)((blocks,), (256,), arguments)
    number = cp.cumsum(root == rows, dtype=np.int64) - 1
    return int(number[-1]) + 1, number[root]


def entry_rows(indptr: cp.ndarray, n_entries: int) -> cp.ndarray:
    """See `cpu.entry_rows`; the number of entries is given, so that the host need not wait."""
    row = cp.searchsorted(indptr, cp.arange(n_entries), side="right") - 1
    return row.astype(np.int32)


def locality_order(W: sparse.csr_matrix) -> None:  # noqa: ARG001 - a shared signature
    """See `cpu.locality_order`; the device's L2 cache holds a panel in any order."""
    return


class _IndicatorMatrix(NamedTuple):
    """A matrix of equal entries and zeros, dense in float16, for products on tensor cores.

    A number is split into integers of at most `bits` bits. These are so few that sums over any
    row stay below 2^24, and are therefore exact in float32, in any order.
    """

    ones: cp.ndarray  # (m, m), with columns padded with zeros to a multiple of eight
    weight: float
    bits: int
    shape: tuple[int, int]
    dtype: np.dtype


def operator(A: sparse.csr_matrix) -> sparse.csr_matrix | _IndicatorMatrix:
    """See `cpu.operator`; dense if at least 2 % of the entries are not zero, and all are equal."""
    m = A.shape[0]
    padded = -(-m // 8) * 8
    if (
        A.nnz < DENSE_FROM * m * m
        or "float16" not in product_dtypes()
        or 2 * m * padded > free_memory() // 3
        or bool(A.data.min() != A.data.max())
    ):
        return A
    degree = int(cp.diff(A.indptr).max())
    ones = cp.zeros((m, padded), dtype=np.float16)
    indptr = to_numpy(A.indptr)
    step = max(1, min(tile_bytes * m // (16 * A.nnz), (2**31 - 1) // padded))
    for start in range(0, m, step):
        low, high = int(indptr[start]), int(indptr[min(start + step, m)])
        row = cp.searchsorted(A.indptr, cp.arange(low, high), side="right") - 1 - start
        ones[start : start + step][row, A.indices[low:high]] = 1  # CuPy < 14.1 flattens in int32
    bits = min(11, 24 - math.ceil(math.log2(degree)))
    return _IndicatorMatrix(ones, float(A.data[0]), bits, A.shape, A.dtype)


def as_float32(A: sparse.csr_matrix | _IndicatorMatrix) -> sparse.csr_matrix | _IndicatorMatrix:
    """See `cpu.as_float32`."""
    if isinstance(A, _IndicatorMatrix):
        return A._replace(dtype=np.dtype(np.float32))
    content = A.data.astype(np.float32, copy=False), A.indices, A.indptr
    return sparse.csr_matrix(content, shape=A.shape)


def spmm(
    A: sparse.csr_matrix | _IndicatorMatrix,
    X: cp.ndarray,
    out: cp.ndarray,
    alpha: float,
    shift: float,
    beta: float,
    source: cp.ndarray | None = None,
    weights: cp.ndarray | None = None,
) -> None:
    """See `cpu.spmm`."""
    given: tuple[Any, ...] = (X, out) if source is None else (X, out, source, weights)
    assert all(x.flags.c_contiguous and x.dtype == A.dtype for x in given)
    m, width = X.shape
    number = np.dtype(A.dtype).type
    scalars = (number(alpha), number(shift), number(beta))
    added = (X, X, np.int32(0)) if source is None else (source, weights, np.int32(1))
    if isinstance(A, _IndicatorMatrix):
        _spmm_indicator_matrix(A, X, out, scalars + added)
        return
    if A.nnz > MAX_ENTRIES:
        msg = (
            f"the matrix has {A.nnz:,} entries, more than the {MAX_ENTRIES:,} that 32-bit indices "
            "can number. Lower `n_neighbors` or `coverage`, or cluster a sample of the rows."
        )
        raise MemoryError(msg)
    indptr, indices = (x.astype(np.int32, copy=False) for x in (A.indptr, A.indices))
    content = (indptr, indices, A.data, X, out, np.int32(m), np.int32(width))
    columns = 64 if X.itemsize == 8 else 128
    grid = ((m + WARPS - 1) // WARPS, (width + columns - 1) // columns)
    kernel_of("spmm", "spmm", A.dtype)(grid, (32, WARPS), content + scalars + added)


def _spmm_indicator_matrix(
    A: _IndicatorMatrix, X: cp.ndarray, out: cp.ndarray, arguments: tuple[object, ...]
) -> None:
    """Do `spmm` for a matrix of zeros and equal entries, by exact products of float16 pieces."""
    m, width = X.shape
    exponents = cp.frexp(cp.abs(X).max(axis=0))[1].astype(np.int32)
    n_pieces = math.ceil({4: 24, 8: 48}[X.itemsize] / A.bits)
    panel = min(width, max(1, free_memory() // 4 // (6 * m * n_pieces)))
    stride = -(-panel * n_pieces // 8) * 8
    pieces = cp.zeros((A.ones.shape[1], stride), dtype=np.float16)
    products = cp.empty((m, stride), dtype=np.float32)
    for first in range(0, width, panel):
        columns = min(panel, width - first)
        sizes = (np.int32(x) for x in (width, first, columns, A.bits, n_pieces, stride))
        layout = (exponents, np.int64(m), *sizes)
        blocks = ((m * columns + 255) // 256,)
        kernel_of("split", "split", X.dtype)(blocks, (256,), (X, *layout, pieces))
        products_of_float16(pieces, A.ones, products, 1.0, transposed=False)
        weight = X.dtype.type(A.weight)
        combine = kernel_of("split", "combine", X.dtype)
        combine(blocks, (256,), (products, *layout, X, out, weight, *arguments))


def is_lanczos_faster(A: sparse.csr_matrix, n: int) -> bool:  # noqa: ARG001 - a shared signature
    """See `cpu.is_lanczos_faster`; never, as tensor cores multiply dense graphs by blocks."""
    return False


def lanczos(
    A: sparse.csr_matrix, n: int, v0: cp.ndarray, tol: float, max_iter: int | None
) -> tuple[cp.ndarray, cp.ndarray, str]:
    """See `cpu.lanczos`; CuPy's solver does not report convergence."""
    from cupyx.scipy.sparse.linalg import eigsh

    values, vectors = eigsh(A, k=n, which="LM", v0=v0.copy(), tol=tol, maxiter=max_iter)
    if not bool(cp.isfinite(values).all() & cp.isfinite(vectors).all()):
        zeros = cp.zeros(n, dtype=A.dtype), cp.zeros((A.shape[0], n), dtype=A.dtype)
        return *zeros, "CuPy's eigsh returned values that are not finite."
    return values, vectors, ""
