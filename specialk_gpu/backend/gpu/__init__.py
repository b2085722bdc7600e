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

from specialk_gpu._progress import with_progress
from specialk_gpu.backend.gpu.arrays import (
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
    tile_bytes,
    to_numpy,
)
from specialk_gpu.backend.gpu.centers import nearest_center, nearest_without, sq_distances
from specialk_gpu.backend.gpu.lloyd import (
    assign,
    draw_rows,
    largest,
    remember,
    segment_sum,
    sums_of_minima,
)
from specialk_gpu.backend.gpu.matrices import (
    MAX_ENTRIES,
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
from specialk_gpu.backend.gpu.pairs import pair_sq_distances, rank_candidates
from specialk_gpu.backend.gpu.probing import probe
from specialk_gpu.backend.gpu.products import (
    product_dtypes,
    product_error,
    products,
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
    "probe",
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

name = "cuda"
xp: ModuleType = cp
sparse: ModuleType = cupyx.scipy.sparse

panel_width = 2048
panel_multiple = 8  # 8 numbers of float32 are 32 bytes, the unit of reads from the L2 cache
center_order = "F"
sweep_window = 8
sweep_bytes = 2**63
max_entries = MAX_ENTRIES
walk_width = 2048

T = TypeVar("T")
R = TypeVar("R")


def narrow_block(width: int = 1) -> AbstractContextManager[object]:  # noqa: ARG001
    """See `cpu.narrow_block`; on the device nothing changes."""
    return nullcontext()


def panels(width: int) -> list[slice]:
    """See `cpu.panels`; here a panel is as wide as memory allows."""
    return [slice(j, min(j + panel_width, width)) for j in range(0, width, panel_width)]


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
