"""Eigenpairs of a graph, solved for each connected component separately."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.spectrum.chebyshev import Known
from specialk_gpu.spectrum.memory import require_memory
from specialk_gpu.spectrum.solvers import (
    SolvedPart,
    SolverSettings,
    csr_of,
    dense_solver,
    entries_in_order,
    run_solver,
    solved_values_on_host,
    takes_dense_solver,
)

__all__ = ["solve_components"]

SMALL = 64  # components up to this size are solved densely in batches


class _ComponentBlocks(NamedTuple):
    """A matrix whose rows are sorted by the size of their component, then by component.

    The first four arrays are on the host and list the components in this order: number, size, and
    where rows and entries begin, with the last end appended. The others are on the device: the
    rows in this order (m,), and the value, row and column (nnz,) of each entry.
    """

    component: np.ndarray
    size: np.ndarray
    row_begin: np.ndarray
    entry_begin: np.ndarray
    order: Array
    data: Array
    row: Array
    column: Array


def solve_components(
    bk: Backend,
    W: Sparse,
    n: int,
    count: int,
    component: Array,
    settings: SolverSettings,
    known: dict[int, Known],
) -> tuple[list[SolvedPart], list[np.ndarray]]:
    """Solve every component for as many eigenpairs as can be among the n largest of all.

    Returns the parts, and the eigenvalues of each part on the host.
    """
    m = W.shape[0]
    if count == 1:
        own = np.zeros(1, dtype=np.int64), bk.xp.arange(m), W, n, settings, known.get(0)
        parts = [run_solver(bk, *own)]
        return parts, solved_values_on_host(bk, parts)
    blocks = _components_by_size(bk, W, count, component)
    parts = _solve_small_components(bk, blocks)
    large = np.flatnonzero(blocks.size > SMALL)
    large = large[np.argsort(blocks.component[large])].tolist()
    # request a share of n from each, and more while all it returned is among the n largest
    sizes = blocks.size[large].tolist()
    spare = min(16, max(2, n // count))
    asked = [min(size, n, math.ceil(1.3 * n * size / m) + spare) for size in sizes]
    solved = [
        _solve_large_component(bk, blocks, i, wanted, settings, known)
        for i, wanted in zip(large, asked, strict=True)
    ]
    while True:
        values = solved_values_on_host(bk, parts + solved)
        magnitudes = [np.abs(x) for x in values]
        together = np.concatenate(magnitudes)
        cut = np.sort(together)[::-1][n - 1]  # at least n were asked for
        short = False
        for j, found in enumerate(magnitudes[len(parts) :]):
            limit = min(sizes[j], n)
            if asked[j] < limit and float(found.min()) >= cut * (1 - 1e-9):
                asked[j] = min(limit, 2 * asked[j])
                solved[j] = _solve_large_component(bk, blocks, large[j], asked[j], settings, known)
                short = True
        if not short:
            return parts + solved, values


def _components_by_size(bk: Backend, W: Sparse, count: int, component: Array) -> _ComponentBlocks:
    """Sort the rows of a matrix so that components of equal size are next to each other."""
    xp, m = bk.xp, W.shape[0]
    order = xp.argsort(component, kind="stable")  # rows, sorted by component
    component = component[order]
    end = xp.searchsorted(component, xp.arange(count), side="right")
    entry_end = xp.cumsum(xp.diff(W.indptr)[order], dtype=np.int64)[end - 1]
    end, entry_end = bk.to_numpy(xp.stack([end, entry_end]))  # host waits
    size, n_entries = np.diff(end, prepend=0), np.diff(entry_end, prepend=0)
    by_size = np.argsort(size, kind="stable")
    row_begin, entry_begin = (
        np.concatenate([[0], np.cumsum(x[by_size])]) for x in (size, n_entries)
    )
    shift = np.empty(count, dtype=np.int64)
    shift[by_size] = row_begin[:-1] - (end - size)[by_size]
    rows = xp.empty_like(order)
    rows[xp.arange(m) + bk.asarray(shift)[component]] = order
    content = rows, *entries_in_order(bk, W, rows)
    return _ComponentBlocks(by_size, size[by_size], row_begin, entry_begin, *content)


def _dense_components(
    bk: Backend, blocks: _ComponentBlocks, first: int, stop: int
) -> tuple[Array, Array]:
    """Return the rows (g, s) and dense matrices (g, s, s) of g components of equal size s."""
    size, begin = int(blocks.size[first]), int(blocks.row_begin[first])
    entries = slice(int(blocks.entry_begin[first]), int(blocks.entry_begin[stop]))
    row, column = blocks.row[entries] - begin, blocks.column[entries] - begin
    dense = bk.xp.zeros((stop - first) * size * size, dtype=blocks.data.dtype)
    dense[row * size + column % size] = blocks.data[entries]
    rows = blocks.order[begin : int(blocks.row_begin[stop])]
    return rows.reshape(-1, size), dense.reshape(-1, size, size)


def _solve_small_components(bk: Backend, blocks: _ComponentBlocks) -> list[SolvedPart]:
    """Solve the small components by dense decompositions, one batch for each size."""
    xp = bk.xp
    parts = []
    for size in np.unique(blocks.size[blocks.size <= SMALL]).tolist():
        first, stop = np.searchsorted(blocks.size, [size, size + 1]).tolist()
        step = max(1, 2**24 // size**2)
        for begin in range(first, stop, step):
            end = min(begin + step, stop)
            rows, dense = _dense_components(bk, blocks, begin, end)
            if size == 1:
                values, vectors = dense[:, 0], xp.ones_like(dense)
            else:
                values, vectors = xp.linalg.eigh(dense)
            parts.append(
                SolvedPart(blocks.component[begin:end], rows, values, vectors, "dense", "")
            )
    return parts


def _solve_large_component(
    bk: Backend,
    blocks: _ComponentBlocks,
    i: int,
    n: int,
    settings: SolverSettings,
    known: dict[int, Known],
) -> SolvedPart:
    """Solve one large component."""
    component, size = blocks.component[i : i + 1], int(blocks.size[i])
    if takes_dense_solver(size, n, settings.solver):
        require_memory(bk, size, n, "dense")
        rows, dense = _dense_components(bk, blocks, i, i + 1)
        return dense_solver(bk, component, rows[0], dense[0], n)
    begin, end = int(blocks.row_begin[i]), int(blocks.row_begin[i + 1])
    entries = slice(int(blocks.entry_begin[i]), int(blocks.entry_begin[i + 1]))
    row, column = blocks.row[entries] - begin, blocks.column[entries] - begin
    A = csr_of(bk, blocks.data[entries], row, column, size)
    rows, own = blocks.order[begin:end], known.get(int(component[0]))
    own = None if own is None else own._replace(vectors=own.vectors[rows])
    return run_solver(bk, component, rows, A, n, settings, own)
