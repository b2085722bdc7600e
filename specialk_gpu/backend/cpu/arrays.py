"""Arrays on the host: conversions, free memory, and small operations on them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise

import numpy as np
from scipy.linalg import solve_triangular

from specialk_gpu.backend.cpu.threads import one_blas_thread
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
    "to_numpy",
    "total_memory",
]

TILE_ENTRIES = 2**20  # entries that are squared together
THREAD_ROWS = 2**12  # with fewer rows, a product uses one thread of BLAS


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


def all_true(x: np.ndarray) -> bool:
    """Return whether all entries of a boolean array are true."""
    return bool(x.all())


def column_dots(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return the dot product of each column of X with that of Y: (w,) for two arrays (m, w)."""
    return (X * Y).sum(axis=0)


def row_squares(X: np.ndarray) -> np.ndarray:
    """Return the sum (m,) of the squares of each row of X (m, n)."""
    m, n = X.shape
    n_tiles = max(1, min(m // 2, m * n // TILE_ENTRIES))  # a tile of one row may differ in order
    sums = np.empty(m, dtype=X.dtype)
    for first, stop in pairwise(i * m // n_tiles for i in range(n_tiles + 1)):
        own = X[first:stop]
        np.sum(own * own, axis=1, out=sums[first:stop])
    return sums


def inverse_lower(L: np.ndarray) -> np.ndarray:
    """Return the inverse of a lower triangular matrix."""
    return solve_triangular(L, np.eye(L.shape[0], dtype=L.dtype), lower=True, check_finite=False)


def bin_sums(bins: np.ndarray, weights: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the sum (n_bins,) of the weights in each bin; sums must be exact in any order."""
    return np.bincount(bins, weights, n_bins) if bins.size else np.zeros(n_bins)


def repeated(columns: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Repeat each of the columns (r, n), which are int64 and on the host, `count` (n,) times."""
    return np.repeat(columns, count, axis=1)


def segment_max(x: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the maximum of x[start:end] for each start and end; the starts are ascending."""
    bounds = np.stack([start, end], axis=1).ravel()
    return np.maximum.reduceat(x, bounds[:-1] if bounds[-1] == x.size else bounds)[::2]


def free_memory() -> int:
    """Return the bytes that this process may still allocate, as far as the system reports it."""
    limits = []
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError):
        limits.append(total_memory() // 2)
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


def total_memory() -> int:
    """Return the bytes of memory in this machine; 8 GiB if the system does not report them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**33
