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

from specialk_gpu.backend.cpu.arrays import (
    all_true,
    asarray,
    bin_sums,
    column_dots,
    device_of,
    free_memory,
    inverse_lower,
    repeated,
    row_squares,
    segment_max,
    to_numpy,
    total_memory,
)
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
    entry_rows,
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
    "entry_rows",
    "free_memory",
    "inverse_lower",
    "is_lanczos_faster",
    "lanczos",
    "largest",
    "locality_order",
    "map_chunks",
    "max_entries",
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
    "row_squares",
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
    "walk_width",
    "xp",
]

name = "numpy"
xp: ModuleType = np
sparse: ModuleType = scipy.sparse

THREAD_COLUMNS = 2**8  # with fewer vectors in a block, a product with it does so too
panel_width = 64  # columns that stay in cache while a sparse matrix multiplies them
panel_multiple = 1  # zeros fill up the columns of a panel to a multiple of this
tile_bytes = 2**27  # size of a tile (the scores of a block of rows), if memory allows
center_order = "C"  # memory order of the rows that `nearest_center` reads fastest
sweep_window = 1  # numbers of clusters that a sweep tries at once, even if it stops at the first
sweep_bytes = 2**29  # memory for the runs of a sweep in one batch
max_entries = 2**63 - 1  # of a sparse matrix
walk_width = 16  # parts in which walks end that are counted together


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


def synchronize() -> None:
    """Wait for pending work; on the host there is none."""


def describe() -> dict[str, Any]:
    """Describe the versions and the processor."""
    versions = {"numpy": np.__version__, "scipy": scipy.__version__}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = platform.processor() or platform.machine()
    return {
        "versions": versions,
        "devices": [{"name": f"{processor}, {cores} cores", "memory": total_memory()}],
    }
