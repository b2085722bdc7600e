"""Work in tiles of rows, as large as memory allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from specialk_gpu._progress import report_progress
from specialk_gpu._units import size_in_units
from specialk_gpu.backend.typing import Backend

__all__ = ["map_rows", "map_tiles", "tile_rows"]

CACHE_BYTES = 2**23  # work space of a slice of rows on the host

R = TypeVar("R")


def map_tiles(
    bk: Backend,
    function: Callable[[slice], R],
    n_rows: int,
    bytes_per_row: int,
    stage: str = "",
) -> list[R]:
    """Apply `function` to one slice of rows after another, each as large as memory allows.

    If memory does not suffice after all, the slice is halved and tried again. `function` must
    therefore allow a second call for the same row. Progress is reported under `stage`, if given.

    Raises
    ------
    MemoryError
        If a 64th of the first slice is still too much. The message names the memory needed
        and free.
    """
    step = tile_rows(bk, bytes_per_row)
    smallest = max(1, step // 64)
    results, start = [], 0
    while start < n_rows:
        rows = slice(start, min(start + step, n_rows))
        try:
            results.append(function(rows))
        except MemoryError as error:
            size = rows.stop - rows.start
            if size <= smallest:
                msg = (
                    f"a tile of {size} of {n_rows} rows needs about "
                    f"{size_in_units(size * bytes_per_row)} of work space, but "
                    f"{size_in_units(bk.free_memory())} are free ({error})."
                )
                raise MemoryError(msg) from error
            step = max(smallest, size // 2)
            continue
        start = rows.stop
        report_progress(stage, start, n_rows)
    return results


def map_rows(
    bk: Backend, function: Callable[[slice], R], n_rows: int, bytes_per_row: int
) -> list[R]:
    """Apply `function` to slices of rows: on all cores and in the cache, or in tiles on a device.

    On the host it may run in several threads at once.
    """
    if bk.name != "numpy":
        return map_tiles(bk, function, n_rows, bytes_per_row)
    step = max(1, min(bk.tile_bytes, CACHE_BYTES) // bytes_per_row)
    return bk.map_chunks(
        function, (slice(i, min(i + step, n_rows)) for i in range(0, n_rows, step))
    )


def tile_rows(bk: Backend, bytes_per_row: int) -> int:
    """Return the number of rows in a tile of `bk.tile_bytes`, or of a 16th of the free memory."""
    return max(1, min(bk.tile_bytes, bk.free_memory() // 16) // max(bytes_per_row, 1))
