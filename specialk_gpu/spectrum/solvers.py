"""The choice of solver for one component of a graph."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from specialk_gpu.spectrum.chebyshev import Known, chebyshev, find_missed

__all__ = ["Part", "Settings", "solve", "takes_dense", "csr_of", "dense_pairs", "entries_of"]

CROWD = 1e-5  # part of the largest magnitude: closer, one vector hardly tells eigenvalues apart


class Settings(NamedTuple):
    """What every component is solved with."""

    solver: str
    tol: float
    max_iter: int | None
    rng: Any


class Part(NamedTuple):
    """Eigenpairs of g components of s rows each, p of each.

    component (g,), on the host; rows (g, s), values (g, p), vectors (g, s, p).
    """

    component: np.ndarray
    rows: Any
    values: Any
    vectors: Any
    solver: str
    failure: str


def entries_of(bk: ModuleType, W: Any, order: Any) -> tuple[Any, Any, Any]:
    """Return value, row and column of the entries of W[order][:, order], row after row."""
    xp, m = bk.xp, W.shape[0]
    place = xp.empty(m, dtype=np.int64)
    place[order] = xp.arange(m)
    row = xp.searchsorted(W.indptr, xp.arange(W.nnz), side="right") - 1
    keys = place[row] * m + place[W.indices]
    by_key = xp.argsort(keys)
    keys = keys[by_key]
    row = keys // m
    return W.data[by_key], row, keys - row * m


def csr_of(bk: ModuleType, data: Any, row: Any, column: Any, m: int) -> Any:
    """Return a matrix of m rows in CSR from its entries, row after row."""
    xp = bk.xp
    indptr = xp.searchsorted(row, xp.arange(m + 1)).astype(np.int32)
    return bk.sparse.csr_matrix((data, column.astype(np.int32), indptr), shape=(m, m))


def solve(
    bk: ModuleType,
    component: np.ndarray,
    rows: Any,
    A: Any,
    n: int,
    settings: Settings,
    known: Known | None,
) -> Part:
    """Solve one component with the solver asked for, or chosen by size."""
    m, (solver, tol, max_iter, rng) = A.shape[0], settings
    if takes_dense(m, n, solver):
        return dense_pairs(bk, component, rows, A.toarray(), n)
    if solver == "lanczos" or (solver == "auto" and bk.is_lanczos_faster(A, n)):
        v0 = bk.asarray(rng.standard_normal(m), dtype=A.dtype)
        values, vectors, failure = bk.lanczos(A, n, v0, 0.1 * tol, max_iter)
        failure = failure or find_missed(bk, A, values, vectors, tol, rng, max_degree=100)
        if solver == "lanczos" or not (failure or _is_crowded(bk, values)):
            return Part(component, rows[None], values[None], vectors[None], "lanczos", failure)
    order = bk.locality_order(A)
    if order is not None:
        A, rows = csr_of(bk, *entries_of(bk, A, order), m), rows[order]
    if known is not None:
        known = known._replace(vectors=known.vectors if order is None else known.vectors[order])
        known = known if known.values.size < n else None
    found = chebyshev(bk, bk.operator(A), n, tol, max_iter or 100, rng, known)
    values, vectors, failure = found
    return Part(component, rows[None], values[None], vectors[None], "chebyshev", failure)


def _is_crowded(bk: ModuleType, values: Any) -> bool:
    """Say whether the smallest magnitudes lie so close that Lanczos may have taken wrong ones."""
    magnitudes = np.abs(bk.to_numpy(values))
    return int((magnitudes <= magnitudes.min() + CROWD * magnitudes.max()).sum()) >= 3


def takes_dense(m: int, n: int, solver: str) -> bool:
    """Say whether a full decomposition is asked for, or best."""
    return solver == "dense" or n >= m - 2 or (solver == "auto" and _is_dense_faster(m, n))


def _is_dense_faster(m: int, n: int) -> bool:
    """Say whether a full decomposition beats the filter: see benchmarks/eigen_solvers.py."""
    return m <= 300 or (m <= 1000 and 5 * n >= m) or 2 * n >= m


def dense_pairs(bk: ModuleType, component: np.ndarray, rows: Any, A: Any, n: int) -> Part:
    """Return the n pairs of largest magnitude from a full decomposition in float64."""
    xp = bk.xp
    values, vectors = xp.linalg.eigh(A.astype(np.float64, copy=False))
    order = xp.argsort(-xp.abs(values))[:n]
    values, vectors = values[order].astype(A.dtype), vectors[:, order].astype(A.dtype)
    return Part(component, rows[None], values[None], vectors[None], "dense", "")


def values_on_host(bk: ModuleType, parts: list[Part]) -> list[np.ndarray]:
    """Fetch the values of all parts in one transfer."""
    values = bk.to_numpy(bk.xp.concatenate([part.values.ravel() for part in parts]))  # a wait
    return np.split(values, np.cumsum([part.values.size for part in parts])[:-1])
