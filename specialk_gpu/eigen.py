r"""Eigenpairs of largest magnitude of a sparse symmetric matrix, each verified from its definition.

Connected components are solved apart, so that eigenvectors live on single components and
eigenvalues that repeat between components never reach an iterative solver. Whatever the solver,
the result ends with the true residuals :math:`\|Wv - \lambda v\|`, the loss of orthogonality, and a
search for pairs that were missed.
"""

from __future__ import annotations

import math
from numbers import Integral
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.chebyshev import chebyshev, find_missed, product

__all__ = ["Eigenpairs", "eigenpairs"]

SOLVERS = ("auto", "dense", "lanczos", "chebyshev")
SMALL = 64  # components up to this size are solved densely in batches
CROWD = 1e-5  # part of the largest magnitude: closer, one vector hardly tells eigenvalues apart
FLOOR = {"float32": 1e-5, "float64": 1e-13}  # tolerances below this are out of reach


class Eigenpairs(NamedTuple):
    """Eigenpairs and the evidence for them.

    Attributes
    ----------
    values : array of shape (n,)
        By falling magnitude.
    vectors : array of shape (m, n)
        Orthonormal columns; of each, the entry of largest magnitude is positive.
    residuals : array of shape (n,)
        ``‖W v - λ v‖₂ / max |λ|``, computed from this definition.
    orthogonality : float
        ``max |VᵀV - I|``.
    converged : bool
        Whether all residuals are within the tolerance, the vectors orthonormal, and no pair of
        larger magnitude was found missing.
    complete : bool
        Whether no pair of larger magnitude was found missing and the solver did not give up.
    message : str
        "" if converged; otherwise the cause and the remedy.
    solver : str
        The solver of the largest component.
    n_components : int
        Connected components of the graph.
    """

    values: Any
    vectors: Any
    residuals: Any
    orthogonality: float
    converged: bool
    complete: bool
    message: str
    solver: str
    n_components: int


class _Part(NamedTuple):
    """Eigenpairs of one component: rows (s,), values (p,), vectors (s, p)."""

    rows: Any
    values: Any
    vectors: Any
    solver: str
    failure: str


@on_its_device
def eigenpairs(
    W: Any,
    n: int,
    /,
    *,
    solver: str = "auto",
    tol: float = 1e-8,
    max_iter: int | None = None,
    random_state: Any = None,
) -> Eigenpairs:
    r"""Compute the `n` eigenpairs of largest magnitude of a **symmetric** matrix.

    Parameters
    ----------
    W : csr_matrix of shape (m, m), float32 or float64
        SciPy's or CuPy's.
    n : int
        1 <= n <= m.
    solver : {"auto", "dense", "lanczos", "chebyshev"}
        "lanczos" is ARPACK or its counterpart in CuPy; "chebyshev" a Chebyshev-filtered
        subspace iteration, made for hundreds of pairs. "auto" takes "dense" for components up
        to 300 rows, up to 1000 where a fifth of all pairs is wanted, and where half is; "lanczos"
        on the host where W has n entries in a row, in the mean; and "chebyshev" elsewhere, or
        where "lanczos" did not converge or the last eigenvalues crowd. "lanczos" may miss copies of
        a repeated eigenvalue, or take neighbours within 1e-5 for it, unseen.
    tol : float
        Largest residual allowed, relative to the largest magnitude. Not below 1e-13 for
        float64 and 1e-5 for float32.
    max_iter : int, optional
        Limit on the iterations of the solver; by default 100 filters for "chebyshev" and
        the library's own limit for "lanczos".
    random_state : int, RandomState or None
        Draws the start vectors, on the host.

    Returns
    -------
    Eigenpairs
        Check `converged`: pairs that could not be verified are returned, and marked.

    Raises
    ------
    ValueError
        If an argument is out of range, or `W` is not square or not finite.
    TypeError
        If `W` is not sparse, or `n` no integer.

    Notes
    -----
    "chebyshev" takes :math:`O(m n^2)` operations in matrix products per filter, a handful of
    filters, and memory for about five blocks of m × 1.15 n. Method: Zhou, Saad, Tiago &
    Chelikowsky, Self-consistent-field calculations using Chebyshev-filtered subspace
    iteration, 2006.
    """
    bk = backend_of(W)
    W = _checked(bk, W, n, solver, tol)
    tol = max(tol, FLOOR[np.dtype(W.dtype).name])
    rng = check_random_state(random_state)
    W, exponent = _within_range(bk, W)
    count, component = bk.connected_components(W)
    parts = _solve_components(bk, W, n, count, component, solver, tol, max_iter, rng)
    values, vectors = _merge(bk, W.shape[0], n, parts)
    residuals, orthogonality = _verify(bk, W, values, vectors)
    message = " ".join(part.failure for part in parts if part.failure)
    complete = not message
    loose = int((residuals > tol).astype(np.int64).sum())
    if loose:
        message += (
            f" {loose} of {n} eigenpairs have a residual above tol={tol:g} "
            f"(largest {float(residuals.max()):.2g})."
        )
    if orthogonality > 1e3 * FLOOR[np.dtype(W.dtype).name]:
        message += f" The eigenvectors are not orthonormal: max |VᵀV - I| = {orthogonality:.2g}."
    largest = max(parts, key=lambda part: part.rows.shape[-1])
    if message:
        other = "lanczos" if largest.solver == "chebyshev" else "chebyshev"
        message = message.strip() + (
            f" Try solver={other!r} or 'dense', a larger max_iter or tol, fewer eigenpairs, "
            "or float64."
        )
    values = _times_power(values, exponent)
    if not bool(bk.xp.isfinite(values).all()):
        msg = f"the eigenvalues of W do not fit into {W.dtype}. Divide W, or take float64."
        raise ValueError(msg)
    return Eigenpairs(
        values,
        vectors,
        residuals,
        orthogonality,
        not message,
        complete,
        message,
        largest.solver,
        count,
    )


def _within_range(bk: ModuleType, W: Any) -> tuple[Any, int]:
    """Scale a matrix of extreme size by a power of two, so that squares stay finite."""
    largest = float(bk.xp.abs(W.data).max()) if W.nnz else 1.0
    if 1e-15 < largest < 1e15:
        return W, 0
    exponent = math.frexp(largest)[1]
    content = _times_power(W.data, -exponent), W.indices, W.indptr
    return bk.sparse.csr_matrix(content, shape=W.shape), exponent


def _times_power(x: Any, exponent: int) -> Any:
    """Return x times a power of two, which need not be a number of its dtype itself."""
    number, half = x.dtype.type, exponent // 2
    return x * number(2.0**half) * number(2.0 ** (exponent - half))


def _checked(bk: ModuleType, W: Any, n: int, solver: str, tol: float) -> Any:
    """Return W in CSR without stored zeros, if all arguments are in range."""
    if not bk.sparse.issparse(W):
        msg = f"W must be a sparse matrix of SciPy or CuPy, got a {type(W).__name__}."
        raise TypeError(msg)
    if not isinstance(n, Integral):
        msg = f"n must be an integer, got {n!r}."
        raise TypeError(msg)
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        msg = f"W must be a square matrix, got shape {tuple(W.shape)}."
        raise ValueError(msg)
    if np.dtype(W.dtype).name not in FLOOR:
        msg = f"W must be float32 or float64, got {W.dtype}."
        raise ValueError(msg)
    if not 1 <= n <= W.shape[0]:
        msg = f"n must lie between 1 and the number of rows ({W.shape[0]}), got {n}."
        raise ValueError(msg)
    if solver not in SOLVERS:
        msg = f"solver must be one of {SOLVERS}, got {solver!r}."
        raise ValueError(msg)
    if not tol > 0:
        msg = f"tol must be positive, got {tol}."
        raise ValueError(msg)
    W = bk.sparse.csr_matrix(W)
    if W.nnz and not bool(bk.xp.isfinite(W.data).all()):
        msg = "W must be finite, got entries that are infinite or not a number."
        raise ValueError(msg)
    if W.nnz and not bool((W.data != 0).all()):
        W = W.copy()
        W.eliminate_zeros()
    return W


# Components ------------------------------------------------------------------------------------


def _solve_components(
    bk: ModuleType,
    W: Any,
    n: int,
    count: int,
    component: Any,
    solver: str,
    tol: float,
    max_iter: int | None,
    rng: Any,
) -> list[_Part]:
    """Solve every component for as many pairs as can be among the n largest of all."""
    xp, m = bk.xp, W.shape[0]
    if count == 1:
        return [_solve(bk, xp.arange(m), W, n, solver, tol, max_iter, rng)]
    sizes = bk.to_numpy(xp.bincount(component, minlength=count))
    order = xp.argsort(component, kind="stable")  # rows, component after component
    ends = np.cumsum(sizes)
    sorted_W = _permuted(bk, W, order)
    parts = _solve_small(bk, sorted_W, order, ends - sizes, sizes)
    large = [
        (order[end - size : end], _diagonal_block(bk, sorted_W, int(end - size), int(end)))
        for size, end in zip(sizes, ends, strict=True)
        if size > SMALL
    ]
    # ask each for its share of n, and for more while all that came is among the n largest
    asked = [
        min(block.shape[0], n, math.ceil(1.3 * n * block.shape[0] / m) + 16) for _, block in large
    ]
    solved = [
        _solve(bk, rows, block, wanted, solver, tol, max_iter, rng)
        for (rows, block), wanted in zip(large, asked, strict=True)
    ]
    while True:
        magnitudes = np.concatenate([np.abs(bk.to_numpy(p.values)).ravel() for p in parts + solved])
        cut = np.sort(magnitudes)[::-1][n - 1] if magnitudes.size >= n else 0.0
        short = False
        for i, (rows, block) in enumerate(large):
            limit = min(block.shape[0], n)
            if asked[i] < limit and float(abs(solved[i].values).min()) >= cut * (1 - 1e-9):
                asked[i] = min(limit, 2 * asked[i])
                solved[i] = _solve(bk, rows, block, asked[i], solver, tol, max_iter, rng)
                short = True
        if not short:
            return parts + solved


def _permuted(bk: ModuleType, W: Any, order: Any) -> Any:
    """Return W[order][:, order] in CSR."""
    xp, m = bk.xp, W.shape[0]
    place = xp.empty(m, dtype=np.int64)
    place[order] = xp.arange(m)
    row = xp.searchsorted(W.indptr, xp.arange(W.nnz), side="right") - 1
    keys = place[row] * m + place[W.indices]
    by_key = xp.argsort(keys)
    keys = keys[by_key]
    row = keys // m
    indptr = xp.searchsorted(row, xp.arange(m + 1)).astype(np.int32)
    indices = (keys - row * m).astype(np.int32)
    return bk.sparse.csr_matrix((W.data[by_key], indices, indptr), shape=(m, m))


def _diagonal_block(bk: ModuleType, W: Any, start: int, stop: int) -> Any:
    """Return W[start:stop, start:stop], given that these rows have no other entries."""
    low, high = int(W.indptr[start]), int(W.indptr[stop])
    content = (W.data[low:high], W.indices[low:high] - start, W.indptr[start : stop + 1] - low)
    return bk.sparse.csr_matrix(content, shape=(stop - start, stop - start))


def _solve_small(bk: ModuleType, W: Any, order: Any, starts: Any, sizes: Any) -> list[_Part]:
    """Solve the small components densely, those of equal size in one batch."""
    xp = bk.xp
    parts = []
    for size in np.unique(sizes[sizes <= SMALL]):
        first = starts[sizes == size]
        step = max(1, 2**24 // int(size) ** 2)
        for begin in range(0, first.size, step):
            start = bk.asarray(first[begin : begin + step])  # (g,)
            rows = start[:, None] + xp.arange(int(size))  # (g, s)
            counts = W.indptr[rows + 1] - W.indptr[rows]
            dense = xp.zeros((start.size, int(size), int(size)), dtype=W.dtype)
            for extra in range(int(counts.max()) if counts.size else 0):
                g, i = xp.nonzero(counts > extra)
                at = W.indptr[rows[g, i]] + extra
                dense[g, i, W.indices[at] - start[g]] = W.data[at]
            values, vectors = xp.linalg.eigh(dense)
            parts += [
                _Part(order[rows[g]], values[g], vectors[g], "dense", "") for g in range(start.size)
            ]
    return parts


def _solve(
    bk: ModuleType,
    rows: Any,
    A: Any,
    n: int,
    solver: str,
    tol: float,
    max_iter: int | None,
    rng: Any,
) -> _Part:
    """Solve one component with the solver asked for, or chosen by size."""
    m = A.shape[0]
    if solver == "dense" or n >= m - 2 or (solver == "auto" and _is_dense_faster(m, n)):
        values, vectors = _dense(bk, A, n)
        return _Part(rows, values, vectors, "dense", "")
    if solver == "lanczos" or (solver == "auto" and bk.is_lanczos_faster(A, n)):
        v0 = bk.asarray(rng.standard_normal(m), dtype=A.dtype)
        values, vectors, failure = bk.lanczos(A, n, v0, 0.1 * tol, max_iter)
        failure = failure or find_missed(bk, A, values, vectors, tol, rng, max_degree=100)
        if solver == "lanczos" or not (failure or _is_crowded(bk, values)):
            return _Part(rows, values, vectors, "lanczos", failure)
    order = bk.locality_order(A)
    if order is not None:
        A, rows = _permuted(bk, A, order), rows[order]
    values, vectors, failure = chebyshev(bk, bk.operator(A), n, tol, max_iter or 100, rng)
    return _Part(rows, values, vectors, "chebyshev", failure)


def _is_crowded(bk: ModuleType, values: Any) -> bool:
    """Say whether the smallest magnitudes lie so close that Lanczos may have taken wrong ones."""
    magnitudes = np.abs(bk.to_numpy(values))
    return int((magnitudes <= magnitudes.min() + CROWD * magnitudes.max()).sum()) >= 3


def _is_dense_faster(m: int, n: int) -> bool:
    """Say whether a full decomposition beats the filter: see benchmarks/eigen_solvers.py."""
    return m <= 300 or (m <= 1000 and 5 * n >= m) or 2 * n >= m


def _dense(bk: ModuleType, A: Any, n: int) -> tuple[Any, Any]:
    """Return the n pairs of largest magnitude from a full decomposition in float64."""
    xp = bk.xp
    dense = A.toarray() if hasattr(A, "toarray") else A @ xp.eye(A.shape[0], dtype=A.dtype)
    values, vectors = xp.linalg.eigh(dense.astype(np.float64, copy=False))
    order = xp.argsort(-xp.abs(values))[:n]
    return values[order].astype(A.dtype), vectors[:, order].astype(A.dtype)


def _merge(bk: ModuleType, m: int, n: int, parts: list[_Part]) -> tuple[Any, Any]:
    """Pick the n largest of all components; ties go by component, so that runs agree."""
    xp = bk.xp
    values = np.concatenate([bk.to_numpy(part.values) for part in parts])
    first_row = np.concatenate([np.full(p.values.shape[0], int(p.rows[0])) for p in parts])
    part_of = np.concatenate([np.full(p.values.shape[0], i) for i, p in enumerate(parts)])
    place = np.concatenate([np.arange(p.values.shape[0]) for p in parts])
    by_size = np.argsort(-np.abs(values), kind="stable")
    gaps = -np.diff(np.abs(values)[by_size], prepend=np.inf)
    tie = np.empty(values.size, dtype=np.int64)
    tie[by_size] = np.cumsum(gaps > 1e-10 * max(float(np.abs(values).max()), 1e-300))
    order = np.lexsort((-values, first_row, values < 0, tie))[:n]
    vectors = xp.zeros((m, order.size), dtype=parts[0].vectors.dtype)
    for i, part in enumerate(parts):
        columns = np.flatnonzero(part_of[order] == i)
        chosen = place[order][columns]
        if columns.size == order.size and np.array_equal(chosen, np.arange(part.values.size)):
            vectors[part.rows] = part.vectors  # nothing to pick, and far faster
        elif columns.size:
            picked = part.vectors[:, bk.asarray(chosen)]
            vectors[part.rows[:, None], bk.asarray(columns)[None, :]] = picked

    def fix_signs(columns: slice) -> None:
        panel = vectors[:, columns]
        largest = xp.argmax(xp.abs(panel), axis=0)
        panel *= xp.where(panel[largest, xp.arange(panel.shape[1])] < 0, -1, 1).astype(panel.dtype)

    step = bk.panel_width
    bk.map_chunks(fix_signs, (slice(j, j + step) for j in range(0, order.size, step)))
    return bk.asarray(values[order]), vectors


def _verify(bk: ModuleType, W: Any, values: Any, vectors: Any) -> tuple[Any, float]:
    """Return the residuals from their definition, in float64, and max |VᵀV - I|."""
    xp, n = bk.xp, values.shape[0]
    scale = float(xp.abs(values).max()) or 1.0
    norms = xp.empty(n)
    if W.dtype != np.float64:
        W = W.astype(np.float64)

    def measure(columns: slice) -> None:
        v = xp.ascontiguousarray(vectors[:, columns], dtype=np.float64)
        r = product(bk, W, v) - v * values[columns]
        norms[columns] = xp.sqrt(bk.column_dots(r, r)) / scale

    step = bk.panel_width
    bk.map_chunks(measure, (slice(j, min(j + step, n)) for j in range(0, n, step)))
    gram = vectors.T @ vectors
    gram[xp.arange(n), xp.arange(n)] -= 1
    return norms, float(xp.abs(gram).max())
