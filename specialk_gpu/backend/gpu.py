"""The CUDA backend: the names of the seam for arrays on a device, through CuPy.

Documented in `specialk_gpu.backend.cpu`. This is the one file that imports CuPy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.resources import files
from typing import Any

import cupy as cp
import cupyx
import cupyx.scipy.sparse as sparse
import numpy as np

__all__ = [
    "asarray",
    "connected_components",
    "describe",
    "device_of",
    "free_memory",
    "lanczos",
    "locality_order",
    "map_chunks",
    "name",
    "pair_sq_distances",
    "panel_width",
    "probe",
    "product_error",
    "select_smallest",
    "sparse",
    "spmm",
    "synchronize",
    "tile_bytes",
    "to_numpy",
    "xp",
]

name = "cuda"
xp = cp

panel_width = 2048
tile_bytes = 2**31

FAILURES = (RuntimeError, OSError, ImportError, MemoryError, cp.cuda.compiler.CompileException)
WARPS = 8  # per block
SELECT_THREADS = 256


@cache
def _module(source: str) -> cp.RawModule:
    """Compile kernels/`source`.cu at first use; CuPy keeps the binary on disk."""
    code = files("specialk_gpu.backend").joinpath("kernels", f"{source}.cu").read_text()
    return cp.RawModule(code=code, options=("-std=c++17",))


def _kernel(source: str, function: str, dtype: Any) -> Any:
    return _module(source).get_function(f"{function}_{np.dtype(dtype).name}")


def probe() -> tuple[str | None, bool]:
    """Run a small kernel; return why CUDA cannot be used, or None, and whether it should."""
    try:
        if cp.cuda.runtime.getDeviceCount() == 0:
            return "no CUDA device was found", False
    except cp.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device answers ({error})", False
    hint = "cupy.show_config() shows the installation"
    try:
        x = cp.arange(6, dtype=np.float64).reshape(3, 2)
        pairs = cp.asarray([0, 0], dtype=np.int64), cp.asarray([1, 2], dtype=np.int64)
        found = to_numpy(pair_sq_distances(x, *pairs)).tolist()
    except FAILURES as error:
        return f"a first kernel failed ({type(error).__name__}: {error}); {hint}", True
    if found != [8.0, 32.0]:
        return f"a first kernel returned {found} instead of [8, 32]; {hint}", True
    return None, False


def asarray(x: Any, dtype: Any = None) -> cp.ndarray:
    """See `cpu.asarray`; arrays of other libraries on a device are taken without a copy."""
    if sparse.issparse(x):
        return x
    if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | cp.ndarray):
        x = cp.from_dlpack(x)
    return cp.asarray(x, dtype=dtype)


def to_numpy(x: Any) -> np.ndarray:
    """See `cpu.to_numpy`."""
    return cp.asnumpy(x)


def device_of(x: Any) -> AbstractContextManager:
    """See `cpu.device_of`."""
    if isinstance(x, cp.ndarray) or sparse.issparse(x):
        return x.device
    kind, index = getattr(x, "__dlpack_device__", lambda: (1, 0))()
    return cp.cuda.Device(index) if int(kind) in (2, 13) else nullcontext()  # not the host's


def synchronize() -> None:
    """See `cpu.synchronize`."""
    cp.cuda.get_current_stream().synchronize()


def free_memory() -> int:
    """See `cpu.free_memory`; counts what CuPy's pool holds unused, and its limit."""
    pool = cp.get_default_memory_pool()
    free = cp.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
    limit = pool.get_limit()
    return min(free, limit - pool.used_bytes()) if limit else free


def describe() -> dict[str, Any]:
    """See `cpu.describe`."""
    devices = []
    for i in range(cp.cuda.runtime.getDeviceCount()):
        properties = cp.cuda.runtime.getDeviceProperties(i)
        devices.append(
            {
                "name": properties["name"].decode(),
                "memory": int(properties["totalGlobalMem"]),
                "compute_capability": f"{properties['major']}.{properties['minor']}",
            }
        )
    versions = {
        "cupy": cp.__version__,
        "cuda_runtime": cp.cuda.runtime.runtimeGetVersion(),
        "cuda_driver": cp.cuda.runtime.driverGetVersion(),
    }
    return {"versions": versions, "devices": devices}


def map_chunks(function: Callable[[slice], Any], chunks: Iterable[slice]) -> list[Any]:
    """See `cpu.map_chunks`; the device takes one chunk after another."""
    return [function(chunk) for chunk in chunks]


def product_error(n_features: int, dtype: Any) -> float:
    """See `cpu.product_error`; CUPY_TF32=1 makes float32 products less exact."""
    error = n_features * float(np.finfo(dtype).eps) / 2
    if np.dtype(dtype) == np.float32 and os.environ.get("CUPY_TF32", "0") != "0":
        error += 2.0**-9
    return error


def select_smallest(scores: cp.ndarray, n: int) -> tuple[cp.ndarray, cp.ndarray]:
    """See `cpu.select_smallest`."""
    t, m = scores.shape
    if n > SELECT_THREADS:
        order = cp.argpartition(scores, n - 1, axis=1)[:, :n]
        return order.astype(np.int64), cp.take_along_axis(scores, order, axis=1).max(axis=1)
    width = 4 * n + 32
    places = cp.full((t, width), -1, dtype=np.int64)
    limits = cp.empty(t, dtype=scores.dtype)
    scores = cp.ascontiguousarray(scores)
    arguments = (scores, np.int64(m), np.int32(n), np.int32(width), places, limits)
    _kernel("select", "select_smallest", scores.dtype)((t,), (SELECT_THREADS,), arguments)
    return places, limits


def pair_sq_distances(X: cp.ndarray, rows: cp.ndarray, columns: cp.ndarray) -> cp.ndarray:
    """See `cpu.pair_sq_distances`."""
    out = cp.empty(rows.size)
    if rows.size:
        X = cp.ascontiguousarray(X)
        rows = cp.ascontiguousarray(rows, dtype=np.int64)
        columns = cp.ascontiguousarray(columns, dtype=np.int64)
        arguments = (X, np.int64(X.shape[1]), rows, columns, np.int64(rows.size), out)
        blocks = (rows.size + WARPS - 1) // WARPS
        _kernel("distance", "pair_sq_distances", X.dtype)((blocks,), (32 * WARPS,), arguments)
    return out


def connected_components(W: sparse.csr_matrix) -> tuple[int, cp.ndarray]:
    """See `cpu.connected_components`.

    Each round hooks the root of every row to the smallest root next to it and shortens all
    paths; the number of rounds grows with the logarithm of the number of rows.
    """
    m = W.shape[0]
    row = cp.searchsorted(W.indptr, cp.arange(W.nnz), side="right") - 1
    root = cp.arange(m, dtype=np.int32)
    while True:
        hooked = root.copy()
        cupyx.scatter_min(hooked, root[row], root[W.indices])
        while True:
            shorter = hooked[hooked]
            if bool((shorter == hooked).all()):
                break
            hooked = shorter
        if bool((hooked == root).all()):
            break
        root = hooked
    roots, component = cp.unique(root, return_inverse=True)
    return int(roots.size), component


def locality_order(W: sparse.csr_matrix) -> None:  # noqa: ARG001 - the seam's signature
    """See `cpu.locality_order`; the device's L2 cache holds a panel in any order."""
    return


def spmm(A: Any, X: cp.ndarray, out: cp.ndarray, alpha: float, shift: float, beta: float) -> None:
    """See `cpu.spmm`."""
    assert X.flags.c_contiguous
    assert out.flags.c_contiguous
    assert X.dtype == out.dtype == A.dtype
    m, width = X.shape
    number = A.dtype.type
    indptr, indices = (x.astype(np.int32, copy=False) for x in (A.indptr, A.indices))
    content = (indptr, indices, A.data, X, out, np.int32(m), np.int32(width))
    scalars = (number(alpha), number(shift), number(beta))
    grid = ((m + WARPS - 1) // WARPS, (width + 63) // 64)
    _kernel("spmm", "spmm", A.dtype)(grid, (32, WARPS), content + scalars)


def lanczos(
    A: Any, n: int, v0: cp.ndarray, tol: float, max_iter: int | None
) -> tuple[cp.ndarray, cp.ndarray, str]:
    """See `cpu.lanczos`; CuPy's solver says nothing about convergence."""
    from cupyx.scipy.sparse.linalg import eigsh

    values, vectors = eigsh(A, k=n, which="LM", v0=v0.copy(), tol=tol, maxiter=max_iter)
    if not bool(cp.isfinite(values).all() & cp.isfinite(vectors).all()):
        zeros = cp.zeros(n, dtype=A.dtype), cp.zeros((A.shape[0], n), dtype=A.dtype)
        return *zeros, "CuPy's eigsh returned values that are not finite."
    return values, vectors, ""
