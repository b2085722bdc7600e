"""The CUDA backend: the backend interface for arrays on a device, through CuPy.

The functions are documented in `specialk_gpu.backend.cpu`. Only this folder imports CuPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, TypeVar

import cupy as cp
import cupyx.scipy.sparse
import numpy as np

from specialk_gpu._progress import with_progress
from specialk_gpu.backend.gpu.arrays import asarray, device_of, free_memory, tile_bytes, to_numpy
from specialk_gpu.backend.gpu.kernels import kernel_of
from specialk_gpu.backend.gpu.lloyd import (
    SUM_THREADS,
    assign,
    draw_rows,
    largest,
    nearest_center,
    nearest_without,
    remember,
    segment_sum,
    sq_distances,
    sums_of_minima,
)
from specialk_gpu.backend.gpu.matrices import (
    as_float32,
    components_of,
    connected_components,
    is_lanczos_faster,
    lanczos,
    locality_order,
    operator,
    spmm,
)
from specialk_gpu.backend.gpu.products import (
    pair_sq_distances,
    product_dtypes,
    product_error,
    products,
    rank_candidates,
    row_hashes,
    select_smallest,
)

__all__ = [
    "all_true",
    "as_float32",
    "asarray",
    "assign",
    "bin_sums",
    "center_order",
    "column_dots",
    "components_of",
    "connected_components",
    "describe",
    "device_of",
    "draw_rows",
    "free_memory",
    "inverse_lower",
    "is_lanczos_faster",
    "lanczos",
    "largest",
    "locality_order",
    "map_chunks",
    "name",
    "narrow_block",
    "nearest_center",
    "nearest_without",
    "operator",
    "pair_sq_distances",
    "panel_multiple",
    "panel_width",
    "panels",
    "probe",
    "product_dtypes",
    "product_error",
    "products",
    "rank_candidates",
    "remember",
    "repeated",
    "row_hashes",
    "segment_max",
    "segment_sum",
    "select_smallest",
    "sparse",
    "spmm",
    "sq_distances",
    "sums_of_minima",
    "sweep_bytes",
    "sweep_window",
    "synchronize",
    "tile_bytes",
    "to_numpy",
    "xp",
]

name = "cuda"
xp: ModuleType = cp
sparse: ModuleType = cupyx.scipy.sparse

panel_width = 2048
panel_multiple = 8  # 8 numbers of float32 are 32 bytes, the unit of reads from the L2 cache
center_order = "F"
sweep_window = 8
sweep_bytes = 2**63

FAILURES = (RuntimeError, OSError, ImportError, MemoryError, cp.cuda.compiler.CompileException)
T = TypeVar("T")
R = TypeVar("R")
MAX_THREADS = 128  # threads for each segment in `segment_max`


def probe() -> tuple[str | None, bool]:
    """Run a kernel and CUDA's libraries, as a fit does, on tiny inputs.

    Returns the reason why CUDA cannot be used, or None, and whether it should be usable.
    """
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
    extra = f"cuda{cp.cuda.runtime.runtimeGetVersion() // 1000}"
    remedy = (
        "CuPy's wheels come without CUDA's libraries, which are installed with: "
        f"pip install 'specialk-gpu[{extra}]' (that is, cupy-{extra}x[ctk])"
    )
    for library, is_right in LIBRARIES.items():
        try:
            if not is_right():
                return f"a first call of {library} returned wrong numbers; {hint}", True
        except FAILURES as error:
            cause = f"{type(error).__name__}: {error}"
            return f"{library} is missing or fails ({cause}); {remedy}; {hint}", True
    return None, False


def _cublas_is_right() -> bool:
    """Check products in float64, and in the dtypes that propose neighbours."""
    X = cp.ones((8, 8))
    found = [X @ X, *(products(X.astype(dtype), X.astype(dtype)) for dtype in product_dtypes())]
    wanted = [8.0] + [-16.0] * (len(found) - 1)
    return all((to_numpy(x) == y).all() for x, y in zip(found, wanted, strict=True))


def _cusolver_is_right() -> bool:
    """Check a Cholesky factorisation and the eigenvalues of a matrix."""
    A = cp.asarray([[4.0, 2.0], [2.0, 5.0]])
    roots, values = to_numpy(cp.linalg.cholesky(A)), to_numpy(cp.linalg.eigh(A)[0])
    expected = [[2, 0], [1, 2]], [(9 - 17**0.5) / 2, (9 + 17**0.5) / 2]
    return np.allclose(roots, expected[0]) and np.allclose(values, expected[1])


def _cusparse_is_right() -> bool:
    """Check the sum of a CSR matrix and its transpose, as for a graph given by the user."""
    A = sparse.csr_matrix(cp.asarray([[0.0, 2.0], [1.0, 0.0]]))
    return to_numpy((A + A.T).toarray()).tolist() == [[0, 3], [3, 0]]


LIBRARIES = {
    "cuBLAS": _cublas_is_right,
    "cuSOLVER": _cusolver_is_right,
    "cuSPARSE": _cusparse_is_right,
}


def narrow_block(width: int = 1) -> AbstractContextManager[object]:  # noqa: ARG001
    """See `cpu.narrow_block`; on the device nothing changes."""
    return nullcontext()


def panels(width: int) -> list[slice]:
    """See `cpu.panels`; here a panel is as wide as memory allows."""
    return [slice(j, min(j + panel_width, width)) for j in range(0, width, panel_width)]


def all_true(x: cp.ndarray) -> bool:
    """See `cpu.all_true`; `min` of integers is precompiled, `all` takes seconds to compile."""
    return not x.size or bool(cp.ascontiguousarray(x).view(np.int8).min())


def column_dots(X: cp.ndarray, Y: cp.ndarray) -> cp.ndarray:
    """See `cpu.column_dots`; CuPy's sum along the first axis uses one block for 32 columns."""
    return cp.ones(X.shape[0], dtype=X.dtype) @ (X * Y)


def inverse_lower(L: cp.ndarray) -> cp.ndarray:
    """See `cpu.inverse_lower`."""
    from cupyx.scipy.linalg import solve_triangular

    return solve_triangular(L, cp.eye(L.shape[0], dtype=L.dtype), lower=True)


def synchronize() -> None:
    """See `cpu.synchronize`."""
    cp.cuda.get_current_stream().synchronize()


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


def map_chunks(function: Callable[[T], R], chunks: Iterable[T], stage: str = "") -> list[R]:
    """See `cpu.map_chunks`; the device takes one chunk after another."""
    chunks = list(chunks)
    return list(with_progress(map(function, chunks), len(chunks), stage))


def repeated(count: np.ndarray) -> cp.ndarray:
    """See `cpu.repeated`."""
    ends = np.cumsum(count)
    entries = cp.arange(int(ends[-1]) if ends.size else 0)
    return cp.searchsorted(cp.asarray(ends), entries, side="right")


def bin_sums(bins: cp.ndarray, weights: cp.ndarray, n_bins: int) -> cp.ndarray:
    """See `cpu.bin_sums`; unlike CuPy's bincount, it does not wait in order to check the bins."""
    sums = cp.zeros(n_bins)
    if bins.size:
        arguments = (bins.astype(np.int64, copy=False), weights, np.int64(bins.size), sums)
        blocks = (-(-bins.size // SUM_THREADS),)
        kernel_of("bins", "add_to_bins", np.float64)(blocks, (SUM_THREADS,), arguments)
    return sums


def segment_max(x: cp.ndarray, start: np.ndarray, end: np.ndarray) -> cp.ndarray:
    """See `cpu.segment_max`."""
    out = cp.empty(start.size)
    arguments = (x, cp.asarray(start), cp.asarray(end), out)
    kernel_of("maximum", "segment_max", np.float64)((start.size,), (MAX_THREADS,), arguments)
    return out
