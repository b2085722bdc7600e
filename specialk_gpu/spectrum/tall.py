"""Work on tall matrices, which have many rows and few columns: by slabs of rows, panels of columns.

The slabs depend on the number of rows alone, and sums are taken in their order. So results are the
same for any number of threads, and for matrices in memory and in files.
"""

from __future__ import annotations

from collections.abc import Callable

from specialk_gpu._time_limit import check_time_limit
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.tiles import map_tiles
from specialk_gpu.backend.typing import Array, Backend

__all__ = [
    "columns_of",
    "gram_of",
    "inner_products",
    "joined",
    "map_panels",
    "multiply_upper",
    "panel_width",
    "panels_of",
    "project_out",
    "rotate",
    "slabs",
    "subtract_product",
    "wide_panels",
]

MANY_ROWS = 2**16  # from this many rows on, the host takes one slab after another
SLAB = 2**15  # rows of a slab
NARROW_PANEL = 16  # columns of a panel of many rows: a cache line of float32
LONG_PRODUCT = 2**33  # multiplications, which may take half a second on the host
BATCH = 16  # partial sums that are kept at once


def slabs(bk: Backend, m: int) -> list[slice]:
    """Split m rows into slabs; a device, and few rows, take all at once."""
    if bk.name != "numpy" or m < MANY_ROWS:
        return [slice(0, m)]
    return [slice(i, min(i + SLAB, m)) for i in range(0, m, SLAB)]


def panels_of(bk: Backend, m: int, width: int) -> list[slice]:
    """Split the columns of an (m, width) matrix into panels."""
    step = panel_width(bk, m)
    if step == bk.panel_width:
        return bk.panels(width)
    return [slice(j, min(j + step, width)) for j in range(0, width, step)]


def panel_width(bk: Backend, m: int) -> int:
    """Return the largest number of columns of a panel of m rows."""
    return NARROW_PANEL if bk.name == "numpy" and m >= MANY_ROWS else bk.panel_width


def map_panels(bk: Backend, function: Callable[[slice], None], m: int, panels: list[slice]) -> None:
    """Apply `function` to panels of m rows, to several at once if the rows are few."""
    if len(slabs(bk, m)) == 1:
        bk.map_chunks(function, panels)
        return
    for columns in panels:  # threads share the rows: faster, and less memory
        function(columns)


def inner_products(bk: Backend, V: Array, U: Array) -> Array:
    """Return VᵀU (v, u) for V (m, v) and U (m, u)."""
    parts = slabs(bk, V.shape[0])
    if len(parts) == 1:
        return V.T @ U
    total = bk.xp.zeros((V.shape[1], U.shape[1]), dtype=V.dtype)

    def multiply(rows: slice) -> Array:
        check_time_limit()
        return V[rows].T @ U[rows]

    for i in range(0, len(parts), BATCH):
        for found in bk.map_chunks(multiply, parts[i : i + BATCH]):
            total += found
    return total


def gram_of(bk: Backend, V: Array) -> Array:
    """Return VᵀV."""
    m, width = V.shape
    panels = _stoppable(bk, V, width)
    if len(panels) == 1:
        return inner_products(bk, V, V)
    gram = bk.xp.empty((width, width), dtype=V.dtype)
    for columns in panels:
        gram[: columns.stop, columns] = V[:, : columns.stop].T @ V[:, columns]
        check_time_limit()
    return bk.xp.triu(gram) + bk.xp.triu(gram, 1).T


def subtract_product(bk: Backend, V: Array, U: Array, B: Array) -> None:
    """Replace V (m, v) by V - U B, for U (m, u) and B (u, v)."""

    def subtract(rows: slice) -> None:
        check_time_limit()
        V[rows] -= U[rows] @ B

    bk.map_chunks(subtract, slabs(bk, V.shape[0]))


def project_out(bk: Backend, V: Array, U: Array, go: Array | None = None) -> None:
    """Make V orthogonal to the orthonormal columns of U, in place.

    `go` is a condition on the device: if it does not hold, V is not changed.
    """
    if not U.shape[1]:
        return
    for columns in _stoppable(bk, V, U.shape[1]):
        along = inner_products(bk, U, V[:, columns])
        if go is not None:
            along *= go.astype(V.dtype)
        subtract_product(bk, V[:, columns], U, along)


def multiply_upper(bk: Backend, V: Array, T: Array) -> None:
    """Replace V by V T for an upper triangular T, from the last columns to the first."""

    def multiply(rows: slice) -> None:
        part = V[rows]
        for columns in reversed(wide_panels(bk, *V.shape)):
            part[:, columns] = part[:, : columns.stop] @ T[: columns.stop, columns]
        check_time_limit()

    bk.map_chunks(multiply, slabs(bk, V.shape[0]))


def rotate(bk: Backend, V: Array, B: Array) -> None:
    """Replace V by V B for a square B."""

    def multiply(rows: slice) -> None:
        V[rows] = V[rows] @ B

    parts = slabs(bk, V.shape[0])
    if len(parts) > 1:
        bk.map_chunks(multiply, parts)
    else:
        map_tiles(bk, multiply, V.shape[0], 2 * V.shape[1] * V.itemsize)


def columns_of(bk: Backend, V: Array, columns: slice | Array) -> Array:
    """Return a copy (m, w) of some columns."""
    m = V.shape[0]
    width = V[:1, columns].shape[1]
    out = large_array(bk, (m, width), V.dtype)

    def copy(rows: slice) -> None:
        out[rows] = V[rows][:, columns]

    bk.map_chunks(copy, slabs(bk, m))
    return out


def joined(bk: Backend, V: Array, U: Array) -> Array:
    """Return the columns of V and then those of U, in a new matrix."""
    m, width = V.shape
    out = large_array(bk, (m, width + U.shape[1]), V.dtype)

    def copy(rows: slice) -> None:
        out[rows, :width], out[rows, width:] = V[rows], U[rows]

    bk.map_chunks(copy, slabs(bk, m))
    return out


def wide_panels(bk: Backend, m: int, width: int) -> list[slice]:
    """Split the columns so that a product with a triangular matrix costs half of a full one."""
    step = max(panel_width(bk, m), -(-width // 8))
    return [slice(j, min(j + step, width)) for j in range(0, width, step)]


def _stoppable(bk: Backend, V: Array, width: int) -> list[slice]:
    """Split the columns of V for products with `width` others, so that each takes a short time."""
    whole = len(slabs(bk, V.shape[0])) > 1  # each slab takes a short time
    if whole or bk.name != "numpy" or V.size * width < LONG_PRODUCT:
        return [slice(None)]
    return wide_panels(bk, *V.shape)
