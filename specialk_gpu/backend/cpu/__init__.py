"""The NumPy backend: the names of the seam for arrays on the host."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sparse
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
    nearest_by_pairs,
    nearest_by_tree,
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
    "nearest_by_pairs",
    "nearest_by_tree",
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
xp = np

THREAD_ROWS = 2**12  # from which products are worth threads of BLAS
THREAD_COLUMNS = 2**8  # of a block of vectors, from which they are
panel_width = 64  # columns that stay in cache while a sparse matrix runs over them
panel_multiple = 1  # of columns, to which a panel is filled up with zeros
tile_bytes = 2**27  # scores of a block of rows, where memory allows
center_order = "C"  # of the rows that `nearest_center` reads fastest
sweep_window = 1  # numbers of clusters that a sweep tries at once, though it may stop at the first
sweep_bytes = 2**29  # of the runs of a sweep in one batch


def asarray(x: Any, dtype: Any = None) -> np.ndarray:
    """Bring an array-like to the host; arrays already there are not copied."""
    return np.asarray(x, dtype=dtype)


def to_numpy(x: Any) -> np.ndarray:
    """Return `x` as a NumPy array."""
    return np.asarray(x)


def device_of(x: Any) -> AbstractContextManager:
    """Return a context in which the device of `x` is the current one.

    On the host: in which products take one thread, if `x` has so few rows that more only wait.
    """
    few = getattr(x, "shape", None) and x.shape[0] < THREAD_ROWS
    return one_blas_thread if few else nullcontext()


def narrow_block(width: int = 1) -> AbstractContextManager:
    """Return a context for work on a block of `width` vectors.

    On the host, products of a narrow block take one thread in it: those of BLAS would gain little,
    and wait on cores that `map_chunks` could use.
    """
    return one_blas_thread if width < THREAD_COLUMNS else nullcontext()


def panels(width: int) -> list[slice]:
    """Split the columns of a block into panels of equal width, some for each core."""
    n = n_threads()
    n_panels = -(-width // panel_width)
    if width >= n * LEAST_COLUMNS:
        n_panels = -(-n_panels // n) * n
    step = -(-width // n_panels)
    return [slice(j, min(j + step, width)) for j in range(0, width, step)]


def all_true(x: np.ndarray) -> bool:
    """Say whether all entries of a boolean array are true."""
    return bool(x.all())


def column_dots(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return the products of the columns of X with those of Y: (w,) for two arrays (m, w)."""
    return (X * Y).sum(axis=0)


def inverse_lower(L: np.ndarray) -> np.ndarray:
    """Return the inverse of a lower triangular matrix."""
    return solve_triangular(L, np.eye(L.shape[0], dtype=L.dtype), lower=True, check_finite=False)


def synchronize() -> None:
    """Wait for pending work; on the host there is none."""


def free_memory() -> int:
    """Return the bytes that this process may still take, as far as the system tells."""
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
    """Return the bytes of memory in this machine; 8 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**33


def describe() -> dict[str, Any]:
    """Name the versions and the processor."""
    versions = {"numpy": np.__version__, "scipy": scipy.__version__}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = platform.processor() or platform.machine()
    return {
        "versions": versions,
        "devices": [{"name": f"{processor}, {cores} cores", "memory": _total_memory()}],
    }


def bin_sums(bins: np.ndarray, weights: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the sums (n_bins,) of weights by bin; they must be exact in any order."""
    return np.bincount(bins, weights, n_bins) if bins.size else np.zeros(n_bins)


def repeated(count: np.ndarray) -> np.ndarray:
    """Return 0 so many times as count says, then 1, ..."""
    return np.repeat(np.arange(count.size), count)


def segment_max(x: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the largest of x[start], ..., x[end - 1] for each start and end, of rising starts."""
    bounds = np.stack([start, end], axis=1).ravel()
    return np.maximum.reduceat(x, bounds[:-1] if bounds[-1] == x.size else bounds)[::2]
