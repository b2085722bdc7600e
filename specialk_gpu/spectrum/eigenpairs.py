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
from specialk_gpu.spectrum.chebyshev import Known, chebyshev, find_missed, product

__all__ = ["Eigenpairs", "eigenpairs"]

SOLVERS = ("auto", "dense", "lanczos", "chebyshev")
QUICK_FILTERS, QUICK_RESTARTS = 5, 20  # rounds of the solvers in which pairs come soon
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


class _Settings(NamedTuple):
    """What every component is solved with."""

    solver: str
    tol: float
    max_iter: int | None
    rng: Any


class _Part(NamedTuple):
    """Eigenpairs of g components of s rows each, p of each.

    component (g,), on the host; rows (g, s), values (g, p), vectors (g, s, p).
    """

    component: np.ndarray
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
    known: Eigenpairs | None = None,
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
    known : Eigenpairs, optional
        What this function has returned for the same W and fewer pairs: "chebyshev" goes on from
        them, if they are as exact as `tol` asks.

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
    _check(bk, W, n, solver, tol)
    W, exponent = _within_range(bk, bk.sparse.csr_matrix(W))
    tol = max(tol, FLOOR[np.dtype(W.dtype).name])
    settings = _Settings(solver, tol, max_iter, check_random_state(random_state))
    count, component = bk.connected_components(W)
    known = _known(bk, W, known, n, component, exponent, tol)
    with bk.narrow_block(n):
        parts, values = _solve_components(bk, W, n, count, component, settings, known)
        values, vectors = _merge(bk, W.shape[0], n, parts, values)
        residuals, orthogonality = _verify(bk, W, values, vectors)
    message = " ".join(part.failure for part in parts if part.failure)
    complete = not message
    loose = int((residuals > tol).sum())
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
    if not np.isfinite(values).all():
        msg = f"the eigenvalues of W do not fit into {W.dtype}. Divide W, or take float64."
        raise ValueError(msg)
    return Eigenpairs(
        bk.asarray(values),
        vectors,
        bk.asarray(residuals),
        orthogonality,
        not message,
        complete,
        message,
        largest.solver,
        count,
    )


def quick_pairs(A: Any, n: int, tol: float) -> tuple[np.ndarray, Any] | None:
    """Return the n pairs of largest magnitude of a connected graph, unverified, if they come soon.

    Values (n,), on the host, by falling magnitude, and vectors (m, n); None where an iterative
    solver has not converged to `tol` after a few rounds.
    """
    bk, m = backend_of(A), A.shape[0]
    if _takes_dense(m, n, "auto"):
        found = _dense(bk, np.zeros(1), bk.xp.arange(m), A.toarray(), n)
        return bk.to_numpy(found.values[0]), found.vectors[0]
    if not bk.is_lanczos_faster(A, n):
        pairs = eigenpairs(A, n, tol=tol, max_iter=QUICK_FILTERS, random_state=0)
        return (bk.to_numpy(pairs.values), pairs.vectors) if pairs.converged else None
    v0 = bk.asarray(np.random.RandomState(0).standard_normal(m), dtype=A.dtype)
    values, vectors, failure = bk.lanczos(A, n, v0, 0.1 * tol, QUICK_RESTARTS)
    if failure:
        return None
    order = np.argsort(-np.abs(bk.to_numpy(values)), kind="stable")
    return bk.to_numpy(values)[order], vectors[:, bk.asarray(order)]


def _known(
    bk: ModuleType,
    W: Any,
    pairs: Eigenpairs | None,
    n: int,
    component: Any,
    exponent: int,
    tol: float,
) -> dict[int, Known]:
    """Return what is known of each component, whose eigenvectors are zero elsewhere."""
    if pairs is None:
        return {}
    if not isinstance(pairs, Eigenpairs):
        msg = f"known must be what eigenpairs has returned, got a {type(pairs).__name__}."
        raise TypeError(msg)
    shape = (W.shape[0], pairs.values.size)
    if tuple(pairs.vectors.shape) != shape or pairs.vectors.dtype != W.dtype:
        msg = (
            f"known must have vectors of shape {shape} and dtype {W.dtype}, as W has, got "
            f"{tuple(pairs.vectors.shape)} and {pairs.vectors.dtype}."
        )
        raise ValueError(msg)
    if not pairs.converged or pairs.values.size >= n:
        return {}
    xp, vectors = bk.xp, pairs.vectors
    own = component[xp.abs(vectors).argmax(axis=0)].astype(np.float64)
    content = xp.stack([own, pairs.values.astype(np.float64), pairs.residuals])
    own, values, residuals = bk.to_numpy(content)  # a wait
    values = _times_power(values, -exponent)
    found, orthogonality = _verify(bk, W, values, vectors)
    residuals = np.maximum(residuals, found)
    if not (residuals.max() <= tol and orthogonality <= 1e3 * FLOOR[np.dtype(W.dtype).name]):
        return {}  # of another W, or not so exact
    known = {}
    for c in np.unique(own).astype(int).tolist():
        columns = np.flatnonzero(own == c)
        residual = float(residuals[columns].max() * np.abs(values).max())
        scale = float(np.abs(values[columns]).max()) or 1.0
        known[c] = Known(values[columns], vectors[:, bk.asarray(columns)], residual / scale)
    return known


def _within_range(bk: ModuleType, W: Any) -> tuple[Any, int]:
    """Return W without stored zeros, and if of extreme size, scaled by a power of two.

    So that squares stay finite.
    """
    if not W.nnz:
        return W, 0
    magnitudes = bk.xp.abs(W.data)
    extremes = bk.xp.stack([magnitudes.max(), magnitudes.min()])
    largest, smallest = bk.to_numpy(extremes).tolist()  # a wait
    if not math.isfinite(largest):
        msg = "W must be finite, got entries that are infinite or not a number."
        raise ValueError(msg)
    if smallest == 0:
        W = W.copy()
        W.eliminate_zeros()
    if largest == 0 or 1e-15 < largest < 1e15:
        return W, 0
    exponent = math.frexp(largest)[1]
    content = _times_power(W.data, -exponent), W.indices, W.indptr
    return bk.sparse.csr_matrix(content, shape=W.shape), exponent


def _times_power(x: Any, exponent: int) -> Any:
    """Return x times a power of two, which need not be a number of its dtype itself."""
    number, half = x.dtype.type, exponent // 2
    return x * number(2.0**half) * number(2.0 ** (exponent - half))


def _check(bk: ModuleType, W: Any, n: int, solver: str, tol: float) -> None:
    """Raise if an argument is of another type or out of range."""
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


# Components ------------------------------------------------------------------------------------


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


def _solve_components(
    bk: ModuleType,
    W: Any,
    n: int,
    count: int,
    component: Any,
    settings: _Settings,
    known: dict[int, Known],
) -> tuple[list[_Part], list[np.ndarray]]:
    """Solve every component for as many pairs as can be among the n largest of all.

    Returns the parts, and the values of each on the host.
    """
    m = W.shape[0]
    if count == 1:
        own = np.zeros(1, dtype=np.int64), bk.xp.arange(m), W, n, settings, known.get(0)
        parts = [_solve(bk, *own)]
        return parts, _values_on_host(bk, parts)
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
        values = _values_on_host(bk, parts + solved)
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


def _values_on_host(bk: ModuleType, parts: list[_Part]) -> list[np.ndarray]:
    """Fetch the values of all parts in one transfer."""
    values = bk.to_numpy(bk.xp.concatenate([part.values.ravel() for part in parts]))  # a wait
    return np.split(values, np.cumsum([part.values.size for part in parts])[:-1])


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
    content = rows, *_entries(bk, W, rows)
    return _Blocks(by_size, size[by_size], row_begin, entry_begin, *content)


def _entries(bk: ModuleType, W: Any, order: Any) -> tuple[Any, Any, Any]:
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


def _csr(bk: ModuleType, data: Any, row: Any, column: Any, m: int) -> Any:
    """Return a matrix of m rows in CSR from its entries, row after row."""
    xp = bk.xp
    indptr = xp.searchsorted(row, xp.arange(m + 1)).astype(np.int32)
    return bk.sparse.csr_matrix((data, column.astype(np.int32), indptr), shape=(m, m))


def _dense_blocks(bk: ModuleType, blocks: _Blocks, first: int, stop: int) -> tuple[Any, Any]:
    """Return the rows (g, s) and the matrices (g, s, s) of components of equal size."""
    size, begin = int(blocks.size[first]), int(blocks.row_begin[first])
    entries = slice(int(blocks.entry_begin[first]), int(blocks.entry_begin[stop]))
    row, column = blocks.row[entries] - begin, blocks.column[entries] - begin
    dense = bk.xp.zeros((stop - first) * size * size, dtype=blocks.data.dtype)
    dense[row * size + column % size] = blocks.data[entries]
    rows = blocks.order[begin : int(blocks.row_begin[stop])]
    return rows.reshape(-1, size), dense.reshape(-1, size, size)


def _solve_small(bk: ModuleType, blocks: _Blocks) -> list[_Part]:
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
            parts.append(_Part(blocks.component[begin:end], rows, values, vectors, "dense", ""))
    return parts


def _solve_block(
    bk: ModuleType,
    blocks: _Blocks,
    i: int,
    n: int,
    settings: _Settings,
    known: dict[int, Known],
) -> _Part:
    """Solve one large component."""
    component, size = blocks.component[i : i + 1], int(blocks.size[i])
    if _takes_dense(size, n, settings.solver):
        rows, dense = _dense_blocks(bk, blocks, i, i + 1)
        return _dense(bk, component, rows[0], dense[0], n)
    begin, end = int(blocks.row_begin[i]), int(blocks.row_begin[i + 1])
    entries = slice(int(blocks.entry_begin[i]), int(blocks.entry_begin[i + 1]))
    row, column = blocks.row[entries] - begin, blocks.column[entries] - begin
    A = _csr(bk, blocks.data[entries], row, column, size)
    rows, own = blocks.order[begin:end], known.get(int(component[0]))
    own = None if own is None else own._replace(vectors=own.vectors[rows])
    return _solve(bk, component, rows, A, n, settings, own)


def _solve(
    bk: ModuleType,
    component: np.ndarray,
    rows: Any,
    A: Any,
    n: int,
    settings: _Settings,
    known: Known | None,
) -> _Part:
    """Solve one component with the solver asked for, or chosen by size."""
    m, (solver, tol, max_iter, rng) = A.shape[0], settings
    if _takes_dense(m, n, solver):
        return _dense(bk, component, rows, A.toarray(), n)
    if solver == "lanczos" or (solver == "auto" and bk.is_lanczos_faster(A, n)):
        v0 = bk.asarray(rng.standard_normal(m), dtype=A.dtype)
        values, vectors, failure = bk.lanczos(A, n, v0, 0.1 * tol, max_iter)
        failure = failure or find_missed(bk, A, values, vectors, tol, rng, max_degree=100)
        if solver == "lanczos" or not (failure or _is_crowded(bk, values)):
            return _Part(component, rows[None], values[None], vectors[None], "lanczos", failure)
    order = bk.locality_order(A)
    if order is not None:
        A, rows = _csr(bk, *_entries(bk, A, order), m), rows[order]
    if known is not None:
        known = known._replace(vectors=known.vectors if order is None else known.vectors[order])
        known = known if known.values.size < n else None
    found = chebyshev(bk, bk.operator(A), n, tol, max_iter or 100, rng, known)
    values, vectors, failure = found
    return _Part(component, rows[None], values[None], vectors[None], "chebyshev", failure)


def _is_crowded(bk: ModuleType, values: Any) -> bool:
    """Say whether the smallest magnitudes lie so close that Lanczos may have taken wrong ones."""
    magnitudes = np.abs(bk.to_numpy(values))
    return int((magnitudes <= magnitudes.min() + CROWD * magnitudes.max()).sum()) >= 3


def _takes_dense(m: int, n: int, solver: str) -> bool:
    """Say whether a full decomposition is asked for, or best."""
    return solver == "dense" or n >= m - 2 or (solver == "auto" and _is_dense_faster(m, n))


def _is_dense_faster(m: int, n: int) -> bool:
    """Say whether a full decomposition beats the filter: see benchmarks/eigen_solvers.py."""
    return m <= 300 or (m <= 1000 and 5 * n >= m) or 2 * n >= m


def _dense(bk: ModuleType, component: np.ndarray, rows: Any, A: Any, n: int) -> _Part:
    """Return the n pairs of largest magnitude from a full decomposition in float64."""
    xp = bk.xp
    values, vectors = xp.linalg.eigh(A.astype(np.float64, copy=False))
    order = xp.argsort(-xp.abs(values))[:n]
    values, vectors = values[order].astype(A.dtype), vectors[:, order].astype(A.dtype)
    return _Part(component, rows[None], values[None], vectors[None], "dense", "")


def _merge(
    bk: ModuleType, m: int, n: int, parts: list[_Part], values: list[np.ndarray]
) -> tuple[np.ndarray, Any]:
    """Pick the n largest of all components; ties go by component, so that runs agree.

    `values` are those of the parts on the host; those picked are returned there too.
    """
    xp = bk.xp
    component = np.concatenate([p.component.repeat(p.values.shape[1]) for p in parts])
    begins = np.cumsum([0] + [x.size for x in values])
    values = np.concatenate(values)
    by_size = np.argsort(-np.abs(values), kind="stable")
    gaps = -np.diff(np.abs(values)[by_size], prepend=np.inf)
    tie = np.empty(values.size, dtype=np.int64)
    tie[by_size] = np.cumsum(gaps > 1e-10 * max(float(np.abs(values).max()), 1e-300))
    order = np.lexsort((-values, component, values < 0, tie))[:n]
    vectors = xp.zeros((m, order.size), dtype=parts[0].vectors.dtype)
    for part, begin, end in zip(parts, begins[:-1], begins[1:], strict=True):
        columns = np.flatnonzero((order >= begin) & (order < end))
        block, place = np.divmod(order[columns] - begin, part.values.shape[1])
        if columns.size == order.size and np.array_equal(place, np.arange(part.values.size)):
            vectors[part.rows[0]] = part.vectors[0]  # nothing to pick, and far faster
        elif columns.size and part.component.size == 1:
            picked = part.vectors[0][:, bk.asarray(place)]
            vectors[part.rows[0][:, None], bk.asarray(columns)[None, :]] = picked
        elif columns.size:
            columns, block, place = bk.asarray(np.stack([columns, block, place]))
            picked = part.vectors.transpose(0, 2, 1)[block, place]
            vectors[part.rows[block], columns[:, None]] = picked

    def fix_signs(columns: slice) -> None:
        panel = vectors[:, columns]
        largest = xp.argmax(xp.abs(panel), axis=0)
        panel *= xp.where(panel[largest, xp.arange(panel.shape[1])] < 0, -1, 1).astype(panel.dtype)

    step = bk.panel_width
    bk.map_chunks(fix_signs, (slice(j, j + step) for j in range(0, order.size, step)))
    return values[order], vectors


def _verify(bk: ModuleType, W: Any, values: np.ndarray, vectors: Any) -> tuple[np.ndarray, float]:
    """Return the residuals from their definition, in float64, and max |VᵀV - I|; on the host."""
    xp, n = bk.xp, values.shape[0]
    scale = float(np.abs(values).max()) or 1.0
    values = bk.asarray(values)
    found = xp.empty(n + 1)
    if W.dtype != np.float64:
        W = W.astype(np.float64)

    def measure(columns: slice) -> None:
        v = xp.ascontiguousarray(vectors[:, columns], dtype=np.float64)
        r = product(bk, W, v) - v * values[columns]
        found[columns] = xp.sqrt(bk.column_dots(r, r)) / scale

    step = bk.panel_width
    bk.map_chunks(measure, (slice(j, min(j + step, n)) for j in range(0, n, step)))
    gram = vectors.T @ vectors
    gram[xp.arange(n), xp.arange(n)] -= 1
    found[n] = xp.abs(gram).max()
    found = bk.to_numpy(found)  # a wait
    return found[:n], float(found[n])
