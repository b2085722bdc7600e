"""Eigenpairs of a graph by its connected components."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from specialk_gpu.spectrum.chebyshev import Known
from specialk_gpu.spectrum.solvers import (
    Part,
    Settings,
    csr_of,
    dense_pairs,
    entries_of,
    solve,
    takes_dense,
    values_on_host,
)

__all__ = ["solve_components"]

SMALL = 64  # components up to this size are solved densely in batches


class _Blocks(NamedTuple):
    """A matrix whose rows are sorted by the size of their component, and by component.

    On the host, of each component in this order, its number and size, and where its rows and
    entries begin, with one end more. On the device, the rows in this order (m,), and value, row and
    column (nnz,) of the entries.
    """

    component: np.ndarray
    size: np.ndarray
    row_begin: np.ndarray
    entry_begin: np.ndarray
    order: Any
    data: Any
    row: Any
    column: Any


def solve_components(
    bk: ModuleType,
    W: Any,
    n: int,
    count: int,
    component: Any,
    settings: Settings,
    known: dict[int, Known],
) -> tuple[list[Part], list[np.ndarray]]:
    """Solve every component for as many pairs as can be among the n largest of all.

    Returns the parts, and the values of each on the host.
    """
    m = W.shape[0]
    if count == 1:
        own = np.zeros(1, dtype=np.int64), bk.xp.arange(m), W, n, settings, known.get(0)
        parts = [solve(bk, *own)]
        return parts, values_on_host(bk, parts)
    blocks = _sorted_by_size(bk, W, count, component)
    parts = _solve_small(bk, blocks)
    large = np.flatnonzero(blocks.size > SMALL)
    large = large[np.argsort(blocks.component[large])].tolist()
    # ask each for its share of n, and for more while all that came is among the n largest
    sizes = blocks.size[large].tolist()
    spare = min(16, max(2, n // count))
    asked = [min(size, n, math.ceil(1.3 * n * size / m) + spare) for size in sizes]
    solved = [
        _solve_block(bk, blocks, i, wanted, settings, known)
        for i, wanted in zip(large, asked, strict=True)
    ]
    while True:
        values = values_on_host(bk, parts + solved)
        magnitudes = [np.abs(x) for x in values]
        together = np.concatenate(magnitudes)
        cut = np.sort(together)[::-1][n - 1] if together.size >= n else 0.0
        short = False
        for j, found in enumerate(magnitudes[len(parts) :]):
            limit = min(sizes[j], n)
            if asked[j] < limit and float(found.min()) >= cut * (1 - 1e-9):
                asked[j] = min(limit, 2 * asked[j])
                solved[j] = _solve_block(bk, blocks, large[j], asked[j], settings, known)
                short = True
        if not short:
            return parts + solved, values


def _sorted_by_size(bk: ModuleType, W: Any, count: int, component: Any) -> _Blocks:
    """Sort a matrix of several components, so that those of equal size lie together."""
    xp, m = bk.xp, W.shape[0]
    order = xp.argsort(component, kind="stable")  # rows, component after component
    component = component[order]
    end = xp.searchsorted(component, xp.arange(count), side="right")
    entry_end = xp.cumsum(xp.diff(W.indptr)[order], dtype=np.int64)[end - 1]
    end, entry_end = bk.to_numpy(xp.stack([end, entry_end]))  # a wait
    size, n_entries = np.diff(end, prepend=0), np.diff(entry_end, prepend=0)
    by_size = np.argsort(size, kind="stable")
    row_begin, entry_begin = (
        np.concatenate([[0], np.cumsum(x[by_size])]) for x in (size, n_entries)
    )
    shift = np.empty(count, dtype=np.int64)
    shift[by_size] = row_begin[:-1] - (end - size)[by_size]
    rows = xp.empty_like(order)
    rows[xp.arange(m) + bk.asarray(shift)[component]] = order
    content = rows, *entries_of(bk, W, rows)
    return _Blocks(by_size, size[by_size], row_begin, entry_begin, *content)


def _dense_blocks(bk: ModuleType, blocks: _Blocks, first: int, stop: int) -> tuple[Any, Any]:
    """Return the rows (g, s) and the matrices (g, s, s) of components of equal size."""
    size, begin = int(blocks.size[first]), int(blocks.row_begin[first])
    entries = slice(int(blocks.entry_begin[first]), int(blocks.entry_begin[stop]))
    row, column = blocks.row[entries] - begin, blocks.column[entries] - begin
    dense = bk.xp.zeros((stop - first) * size * size, dtype=blocks.data.dtype)
    dense[row * size + column % size] = blocks.data[entries]
    rows = blocks.order[begin : int(blocks.row_begin[stop])]
    return rows.reshape(-1, size), dense.reshape(-1, size, size)


def _solve_small(bk: ModuleType, blocks: _Blocks) -> list[Part]:
    """Solve the small components densely, those of equal size in one batch."""
    xp = bk.xp
    parts = []
    for size in np.unique(blocks.size[blocks.size <= SMALL]).tolist():
        first, stop = np.searchsorted(blocks.size, [size, size + 1]).tolist()
        step = max(1, 2**24 // size**2)
        for begin in range(first, stop, step):
            end = min(begin + step, stop)
            rows, dense = _dense_blocks(bk, blocks, begin, end)
            if size == 1:
                values, vectors = dense[:, 0], xp.ones_like(dense)
            else:
                values, vectors = xp.linalg.eigh(dense)
            parts.append(Part(blocks.component[begin:end], rows, values, vectors, "dense", ""))
    return parts


def _solve_block(
    bk: ModuleType,
    blocks: _Blocks,
    i: int,
    n: int,
    settings: Settings,
    known: dict[int, Known],
) -> Part:
    """Solve one large component."""
    component, size = blocks.component[i : i + 1], int(blocks.size[i])
    if takes_dense(size, n, settings.solver):
        rows, dense = _dense_blocks(bk, blocks, i, i + 1)
        return dense_pairs(bk, component, rows[0], dense[0], n)
    begin, end = int(blocks.row_begin[i]), int(blocks.row_begin[i + 1])
    entries = slice(int(blocks.entry_begin[i]), int(blocks.entry_begin[i + 1]))
    row, column = blocks.row[entries] - begin, blocks.column[entries] - begin
    A = csr_of(bk, blocks.data[entries], row, column, size)
    rows, own = blocks.order[begin:end], known.get(int(component[0]))
    own = None if own is None else own._replace(vectors=own.vectors[rows])
    return solve(bk, component, rows, A, n, settings, own)
