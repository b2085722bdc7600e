"""The NumPy backend: the backend interface for arrays on the host."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np
import scipy
import scipy.sparse
from scipy.linalg import solve_triangular

from specialk_gpu.backend.cpu.centers import nearest_center, nearest_without, sq_distances
from specialk_gpu.backend.cpu.lloyd import (
    assign,
    draw_rows,
    largest,
    remember,
    segment_sum,
    sums_of_minima,
)
from specialk_gpu.backend.cpu.matrices import (
    LEAST_COLUMNS,
    as_float32,
    components_of,
    connected_components,
    is_lanczos_faster,
    lanczos,
    locality_order,
    operator,
    spmm,
)
from specialk_gpu.backend.cpu.pairs import (
    pair_sq_distances,
    rank_candidates,
)
from specialk_gpu.backend.cpu.products import (
    product_dtypes,
    product_error,
    products,
    row_hashes,
    select_smallest,
)
from specialk_gpu.backend.cpu.threads import map_chunks, n_threads, one_blas_thread
from specialk_gpu.backend.typing import Dtype

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

name = "numpy"
xp: ModuleType = np
sparse: ModuleType = scipy.sparse

THREAD_ROWS = 2**12  # with fewer rows, a product uses one thread of BLAS
THREAD_COLUMNS = 2**8  # with fewer vectors in a block, a product with it does so too
panel_width = 64  # columns that stay in cache while a sparse matrix multiplies them
panel_multiple = 1  # zeros fill up the columns of a panel to a multiple of this
tile_bytes = 2**27  # size of a tile (the scores of a block of rows), if memory allows
center_order = "C"  # memory order of the rows that `nearest_center` reads fastest
sweep_window = 1  # numbers of clusters that a sweep tries at once, even if it stops at the first
sweep_bytes = 2**29  # memory for the runs of a sweep in one batch


def asarray(x: object, dtype: Dtype | None = None) -> np.ndarray:
    """Bring an array-like to the host; arrays already there are not copied."""
    return np.asarray(x, dtype=dtype)


def to_numpy(x: object) -> np.ndarray:
    """Return `x` as a NumPy array."""
    return np.asarray(x)


def device_of(x: object) -> AbstractContextManager[object]:
    """Return a context in which the device of `x` is the current one.

    On the host, products in it use one thread if `x` has so few rows that more would only wait.
    """
    shape = getattr(x, "shape", None)
    few = shape and shape[0] < THREAD_ROWS
    return one_blas_thread if few else nullcontext()


def narrow_block(width: int = 1) -> AbstractContextManager[object]:
    """Return a context for work on a block of `width` vectors.

    On the host, products of a narrow block use one thread in it. More threads of BLAS would gain
    little, and would wait on cores that `map_chunks` could use.
    """
    return one_blas_thread if width < THREAD_COLUMNS else nullcontext()


def panels(width: int) -> list[slice]:
    """Split the columns of a block into panels of equal width, one or more for each core."""
    n = n_threads()
    n_panels = -(-width // panel_width)
    if width >= n * LEAST_COLUMNS:
        n_panels = -(-n_panels // n) * n
    step = -(-width // n_panels)
    return [slice(j, min(j + step, width)) for j in range(0, width, step)]


def all_true(x: np.ndarray) -> bool:
    """Return whether all entries of a boolean array are true."""
    return bool(x.all())


def column_dots(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return the dot product of each column of X with that of Y: (w,) for two arrays (m, w)."""
    return (X * Y).sum(axis=0)


def inverse_lower(L: np.ndarray) -> np.ndarray:
    """Return the inverse of a lower triangular matrix."""
    return solve_triangular(L, np.eye(L.shape[0], dtype=L.dtype), lower=True, check_finite=False)


def synchronize() -> None:
    """Wait for pending work; on the host there is none."""


def free_memory() -> int:
    """Return the bytes that this process may still allocate, as far as the system reports it."""
    limits = []
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError):
        limits.append(_total_memory() // 2)
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            with open("/proc/self/statm", encoding="ascii") as statm:
                used = int(statm.read().split()[0]) * resource.getpagesize()
            limits.append(max(soft - used, 0))
    except (ImportError, OSError):
        pass
    return min(limits)


def _total_memory() -> int:
    """Return the bytes of memory in this machine; 8 GiB if the system does not report them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**33


def describe() -> dict[str, Any]:
    """Describe the versions and the processor."""
    versions = {"numpy": np.__version__, "scipy": scipy.__version__}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = platform.processor() or platform.machine()
    return {
        "versions": versions,
        "devices": [{"name": f"{processor}, {cores} cores", "memory": _total_memory()}],
    }


def bin_sums(bins: np.ndarray, weights: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the sum (n_bins,) of the weights in each bin; sums must be exact in any order."""
    return np.bincount(bins, weights, n_bins) if bins.size else np.zeros(n_bins)


def repeated(count: np.ndarray) -> np.ndarray:
    """Return 0 repeated count[0] times, then 1 repeated count[1] times, and so on."""
    return np.repeat(np.arange(count.size), count)


def segment_max(x: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the maximum of x[start:end] for each start and end; the starts are ascending."""
    bounds = np.stack([start, end], axis=1).ravel()
    return np.maximum.reduceat(x, bounds[:-1] if bounds[-1] == x.size else bounds)[::2]
