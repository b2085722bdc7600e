"""Sparse matrices on the host: connected components, products with blocks of vectors, Lanczos."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse._sparsetools import csr_matvec, csr_matvecs
from scipy.sparse.csgraph import connected_components as _connected_components
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from specialk_gpu._time_limit import check_time_limit
from specialk_gpu.backend.cpu.threads import map_chunks, n_threads
from specialk_gpu.backend.typing import Sparse

__all__ = [
    "LEAST_COLUMNS",
    "as_float32",
    "components_of",
    "connected_components",
    "entry_rows",
    "is_lanczos_faster",
    "lanczos",
    "locality_order",
    "operator",
    "spmm",
]

SHARED_ENTRIES = 2**20  # from this many entries on, threads pay in a product with a vector
LEAST_COLUMNS = 8  # columns of a panel from which on it is worth a thread


def connected_components(W: sparse.csr_matrix) -> tuple[int, np.ndarray]:
    """Return the number of connected components, and each row's, numbered by their first rows."""
    return components_of(W.indptr, W.indices)


def components_of(indptr: np.ndarray, indices: np.ndarray) -> tuple[int, np.ndarray]:
    """See `connected_components`; this takes a symmetric pattern of entries in CSR."""
    content = np.ones(indices.size, dtype=np.int8), indices, indptr
    W = sparse.csr_matrix(content, shape=(indptr.size - 1,) * 2)
    count, labels = _connected_components(W, directed=False)
    _, first = np.unique(labels, return_index=True)
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(count)
    return count, rank[labels]


def entry_rows(indptr: np.ndarray, n_entries: int) -> np.ndarray:
    """Return the row of each of the entries of a CSR matrix: int32 array of shape (n_entries,)."""
    row = np.repeat(np.arange(indptr.size - 1, dtype=np.int32), np.diff(indptr))
    return row[:n_entries]


def locality_order(W: sparse.csr_matrix) -> np.ndarray | None:
    """Return an order of the rows that puts neighbours close together, or None if it is no use.

    On the host, the order makes the products of `spmm` two to five times as fast.
    """
    return reverse_cuthill_mckee(W, symmetric_mode=True)


def operator(A: Sparse) -> Sparse:
    """Convert a symmetric CSR matrix A (m, m) to the form that `spmm` multiplies fastest.

    The result has a shape and a dtype, and only `spmm` can use it.
    """
    return A


def as_float32(A: Any) -> Sparse:
    """Convert a result of `operator` to float32; the positions of the entries are shared."""
    content = A.data.astype(np.float32, copy=False), A.indices, A.indptr
    return sparse.csr_matrix(content, shape=A.shape, copy=False)


def spmm(
    A: Any,
    X: np.ndarray,
    out: np.ndarray,
    alpha: float,
    shift: float,
    beta: float,
    source: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> None:
    """Compute out = alpha (A X - shift X) + beta out + source weights, in place.

    X, out and source have shape (m, w), weights has shape (w,), and all have the dtype of A.
    """
    m, width = X.shape
    number = X.dtype.type
    data = A.data if alpha == 1 else A.data * number(alpha)
    step = max(1, 2**17 // width)  # rows of out that stay in the cache

    def run(start: int) -> None:
        rows = slice(start, min(start + step, m))
        part = out[rows]
        work = np.empty(part.shape, dtype=X.dtype)
        if beta:
            part *= number(beta)
        else:
            part[...] = 0
        if source is not None:
            assert weights is not None
            part += np.multiply(source[rows], weights, out=work)
        if shift:
            part -= np.multiply(X[rows], number(alpha * shift), out=work)
        indptr = A.indptr[start : rows.stop + 1]
        # A @ X calls this too; it adds to `part`
        csr_matvecs(part.shape[0], m, width, indptr, A.indices, data, X.ravel(), part.ravel())

    starts = range(0, m, step)
    if A.nnz * width < SHARED_ENTRIES:
        for start in starts:
            run(start)
    else:
        map_chunks(run, starts)


def is_lanczos_faster(A: sparse.csr_matrix, n: int) -> bool:
    """Return whether `lanczos` finds `n` eigenpairs faster than a filter of a block of vectors.

    Lanczos multiplies far fewer vectors, but orthogonalises each against all others. If rows have
    as many entries as there are pairs, the products dominate. See benchmarks/eigen_solvers.py.
    """
    return A.nnz >= n * A.shape[0]


class _SmallMatrix(LinearOperator):
    """A matrix (m, m) of few entries; a product may be stopped.

    ARPACK takes hundreds of products, and checks in `LinearOperator` would take longer than these.
    """

    def __init__(self, A: Sparse) -> None:
        super().__init__(A.dtype, A.shape)  # type: ignore[call-arg] # not in the stubs
        self._content = *A.shape, A.indptr, A.indices, A.data

    def matvec(self, x: Any) -> Any:
        """Return the product with a vector (m,) of the same dtype, which is not checked."""
        return self._matvec(x)

    def _matvec(self, x: Any) -> Any:
        check_time_limit()
        out = np.zeros(self.shape[0], dtype=self.dtype)
        csr_matvec(*self._content, x, out)  # A @ x calls this too
        return out


def _matrix_shared_by_threads(A: Sparse) -> LinearOperator:
    """Wrap A (m, m): a product may be stopped, uses all cores, and returns the same bits."""
    m, indptr = A.shape[0], A.indptr
    if A.nnz < SHARED_ENTRIES:
        return _SmallMatrix(A)
    bounds = np.searchsorted(indptr, np.linspace(0, A.nnz, n_threads() + 1)).tolist()
    bounds[-1] = m  # rows without entries may come last
    parts = []
    for start, stop in pairwise(bounds):
        entries = slice(indptr[start], indptr[stop])
        content = A.data[entries], A.indices[entries], indptr[start : stop + 1] - indptr[start]
        part = sparse.csr_matrix(content, shape=(stop - start, m), copy=False)
        parts.append((slice(start, stop), part))

    def multiply(x: np.ndarray) -> np.ndarray:
        out = np.empty(m, dtype=A.dtype)

        def run(share: tuple[slice, sparse.csr_matrix]) -> None:
            rows, part = share
            out[rows] = part @ x.ravel()

        map_chunks(run, parts)
        return out

    return LinearOperator(A.shape, matvec=multiply, dtype=A.dtype)


def lanczos(
    A: Sparse, n: int, v0: np.ndarray, tol: float, max_iter: int | None
) -> tuple[np.ndarray, np.ndarray, str]:
    """Compute the `n` eigenpairs of largest magnitude with ARPACK, unverified.

    Returns
    -------
    values (n,), vectors (m, n), failure
        `failure` is "" if ARPACK reports that it converged; otherwise, pairs may be zero.
    """
    try:
        settings: dict[str, Any] = {"v0": v0.copy(), "tol": tol, "maxiter": max_iter, "rng": 0}
        values, vectors = eigsh(_matrix_shared_by_threads(A), k=n, which="LM", **settings)
    except ArpackNoConvergence as error:
        n_found = error.eigenvalues.size
        values, vectors = np.zeros(n, dtype=A.dtype), np.zeros((A.shape[0], n), dtype=A.dtype)
        values[:n_found], vectors[:, :n_found] = error.eigenvalues, error.eigenvectors
        return values, vectors, f"ARPACK found {n_found} of {n} eigenpairs."
    return values, vectors, ""
