"""The choice of solver for one component of a graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import RandomState

from specialk_gpu.backend.indices import index_dtype
from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.spectrum.chebyshev import Known, chebyshev, find_missed_by_chebyshev
from specialk_gpu.spectrum.memory import require_memory

__all__ = [
    "SolvedPart",
    "SolverSettings",
    "csr_of",
    "dense_solver",
    "entries_in_order",
    "run_solver",
    "takes_dense_solver",
]

CROWD = 1e-5  # of the largest magnitude: one vector hardly separates eigenvalues closer than this


class SolverSettings(NamedTuple):
    """Settings of the solver, the same for every component."""

    solver: str
    tol: float
    max_iter: int | None
    rng: RandomState


class SolvedPart(NamedTuple):
    """The p eigenpairs of each of g components with s rows each.

    Shapes: component (g,), on the host; rows (g, s), values (g, p), vectors (g, s, p).
    """

    component: np.ndarray
    rows: Array
    values: Array
    vectors: Array
    solver: str
    failure: str


def entries_in_order(bk: Backend, W: Sparse, order: Array) -> tuple[Array, Array, Array]:
    """Return the values, rows and columns of the entries of W[order][:, order], by row."""
    xp, m = bk.xp, W.shape[0]
    place = xp.empty(m, dtype=np.int64)
    place[order] = xp.arange(m)
    row = xp.searchsorted(W.indptr, xp.arange(W.nnz), side="right") - 1
    keys = place[row] * m + place[W.indices]
    by_key = xp.argsort(keys)
    keys = keys[by_key]
    row = keys // m
    return W.data[by_key], row, keys - row * m


def csr_of(bk: Backend, data: Array, row: Array, column: Array, m: int) -> Sparse:
    """Assemble a CSR matrix of shape (m, m) from its entries, which are sorted by row."""
    xp = bk.xp
    dtype = index_dtype(int(data.size))
    indptr = xp.searchsorted(row, xp.arange(m + 1)).astype(dtype)
    return bk.sparse.csr_matrix((data, column.astype(dtype), indptr), shape=(m, m))


def run_solver(
    bk: Backend,
    component: np.ndarray,
    rows: Array,
    A: Sparse,
    n: int,
    settings: SolverSettings,
    known: Known | None,
) -> SolvedPart:
    """Solve one component with the requested solver, or with one chosen by size."""
    m, (solver, tol, max_iter, rng) = A.shape[0], settings
    itemsize = np.dtype(A.dtype).itemsize
    if takes_dense_solver(m, n, solver):
        require_memory(bk, m, n, "dense")
        return dense_solver(bk, component, rows, A.toarray(), n)
    if solver == "lanczos" or (solver == "auto" and bk.is_lanczos_faster(A, n)):
        require_memory(bk, m, n, "lanczos", itemsize)
        v0 = bk.asarray(rng.standard_normal(m), dtype=A.dtype)
        values, vectors, failure = bk.lanczos(A, n, v0, 0.1 * tol, max_iter)
        failure = failure or find_missed_by_chebyshev(
            bk, A, values, vectors, tol, rng, max_degree=100
        )
        if solver == "lanczos" or not (failure or _is_crowded_for_solver(bk, values)):
            return SolvedPart(
                component, rows[None], values[None], vectors[None], "lanczos", failure
            )
    require_memory(bk, m, n, "chebyshev", itemsize)
    order = bk.locality_order(A)
    if order is not None:
        A, rows = csr_of(bk, *entries_in_order(bk, A, order), m), rows[order]
    if known is not None:
        known = known._replace(vectors=known.vectors if order is None else known.vectors[order])
        known = known if known.values.size < n else None
    found = chebyshev(bk, bk.operator(A), n, tol, max_iter or 100, rng, known)
    values, vectors, failure = found
    return SolvedPart(component, rows[None], values[None], vectors[None], "chebyshev", failure)


def _is_crowded_for_solver(bk: Backend, values: Array) -> bool:
    """Return whether the smallest magnitudes are so close that Lanczos may have picked wrong."""
    magnitudes = np.abs(bk.to_numpy(values))
    return int((magnitudes <= magnitudes.min() + CROWD * magnitudes.max()).sum()) >= 3


def takes_dense_solver(m: int, n: int, solver: str) -> bool:
    """Return whether to use a full decomposition, because it is requested or best."""
    return solver == "dense" or n >= m - 2 or (solver == "auto" and _is_dense_solver_faster(m, n))


def _is_dense_solver_faster(m: int, n: int) -> bool:
    """Return whether a full decomposition beats the filter (see benchmarks/eigen_solvers.py)."""
    return m <= 300 or (m <= 1000 and 5 * n >= m) or 2 * n >= m


def dense_solver(bk: Backend, component: np.ndarray, rows: Array, A: Array, n: int) -> SolvedPart:
    """Return the n eigenpairs of largest magnitude from a full decomposition in float64."""
    xp = bk.xp
    values, vectors = xp.linalg.eigh(A.astype(np.float64, copy=False))
    order = xp.argsort(-xp.abs(values))[:n]
    values, vectors = values[order].astype(A.dtype), vectors[:, order].astype(A.dtype)
    return SolvedPart(component, rows[None], values[None], vectors[None], "dense", "")


def solved_values_on_host(bk: Backend, parts: list[SolvedPart]) -> list[np.ndarray]:
    """Copy the eigenvalues of all parts to the host in one transfer."""
    values = bk.to_numpy(bk.xp.concatenate([part.values.ravel() for part in parts]))  # host waits
    return np.split(values, np.cumsum([part.values.size for part in parts])[:-1])
