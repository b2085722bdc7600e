r"""Eigenpairs of largest magnitude of a sparse symmetric matrix, each verified from its definition.

Each connected component is solved separately. An eigenvector is therefore zero outside a single
component, and an iterative solver never meets an eigenvalue that repeats between components.
Whatever the solver, three checks follow: the true residuals :math:`\|Wv - \lambda v\|`, the loss of
orthogonality, and a search for pairs that were missed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from specialk_gpu._checks import checked_integer, checked_positive
from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.intact import intact_csr
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.typing import Array, Backend, Seed, Sparse
from specialk_gpu.spectrum.chebyshev import Known, product
from specialk_gpu.spectrum.components import solve_components
from specialk_gpu.spectrum.solvers import (
    SolvedPart,
    SolverSettings,
    dense_solver,
    takes_dense_solver,
)
from specialk_gpu.spectrum.tall import gram_of, map_panels, panel_width

__all__ = ["Eigenpairs", "eigenpairs"]

SOLVERS = ("auto", "dense", "lanczos", "chebyshev")
QUICK_FILTERS, QUICK_RESTARTS = 5, 20  # limits on the iterations in `quick_eigenpairs`
FLOOR = {"float32": 1e-5, "float64": 1e-13}  # smallest tolerances within reach


class Eigenpairs(NamedTuple):
    """Eigenpairs and the evidence for them.

    Attributes
    ----------
    values : array of shape (n,)
        By decreasing magnitude.
    vectors : array of shape (m, n)
        Orthonormal columns. In each, the entry of largest magnitude is positive.
    residuals : array of shape (n,)
        ``‖W v - λ v‖₂ / max |λ|``, computed from this definition.
    orthogonality : float
        ``max |VᵀV - I|``.
    converged : bool
        Whether all residuals are within the tolerance, the vectors are orthonormal, and no pair
        of larger magnitude was found missing.
    complete : bool
        Whether no pair of larger magnitude was found missing and the solver did not give up.
    message : str
        "" if converged; otherwise the cause and the remedy.
    solver : str
        The solver of the largest component.
    n_components : int
        Number of connected components of the graph.
    """

    values: Array
    vectors: Array
    residuals: Array
    orthogonality: float
    converged: bool
    complete: bool
    message: str
    solver: str
    n_components: int


@on_its_device
def eigenpairs(
    W: Sparse,
    n: int,
    /,
    *,
    solver: str = "auto",
    tol: float = 1e-8,
    max_iter: int | None = None,
    random_state: Seed = None,
    known: Eigenpairs | None = None,
) -> Eigenpairs:
    r"""Compute the `n` eigenpairs of largest magnitude of a **symmetric** matrix.

    Parameters
    ----------
    W : csr_matrix of shape (m, m), float32 or float64
        From SciPy or CuPy.
    n : int
        Number of eigenpairs, from 1 to m.
    solver : {"auto", "dense", "lanczos", "chebyshev"}
        "lanczos" is ARPACK, or its counterpart in CuPy. "chebyshev" is a Chebyshev-filtered
        subspace iteration, made for hundreds of pairs. "auto" takes "dense" for components of up
        to 300 rows, of up to 1000 rows if a fifth of all pairs is wanted, and of any size if half
        is wanted. On the host, it takes "lanczos" if W has n entries per row on average. It takes
        "chebyshev" otherwise, and if "lanczos" did not converge or the last eigenvalues are very
        close. "lanczos" may, unnoticed, miss copies of a repeated eigenvalue, or mistake
        eigenvalues within 1e-5 of it for copies.
    tol : float
        Largest residual allowed, relative to the largest magnitude. Smaller values are raised to
        1e-13 for float64 and to 1e-5 for float32.
    max_iter : int, optional
        Limit on the iterations of the solver. The default is 100 filters for "chebyshev" and the
        library's own limit for "lanczos".
    random_state : int, RandomState or None
        Seeds the start vectors, on the host.
    known : Eigenpairs, optional
        A result of this function for the same W and fewer pairs. "chebyshev" continues from it
        if it is as exact as `tol` asks.

    Returns
    -------
    Eigenpairs
        Check `converged`: pairs that could not be verified are returned too, and it is False.

    Raises
    ------
    ValueError
        If an argument is out of range, or `W` is damaged, not square or not finite.
    TypeError
        If `W` is not sparse, or `n`, `tol` or `max_iter` is not a number of the right kind.
    MemoryError
        Before any is allocated, if the eigenvectors do not fit into memory.

    Notes
    -----
    "chebyshev" needs a handful of filters, each of :math:`O(m n^2)` operations in matrix
    products, and memory for two and a half blocks of m × 1.15 n, or one more on a device. Method:
    Zhou, Saad, Tiago & Chelikowsky, Self-consistent-field calculations using Chebyshev-filtered
    subspace iteration, 2006.

    Examples
    --------
    >>> from specialk_gpu import eigenpairs, knn_graph
    >>> from specialk_gpu.datasets import make_shape
    >>> X, _ = make_shape("blobs", noise=0.1, random_state=0)
    >>> pairs = eigenpairs(knn_graph(X), 4, random_state=0)
    >>> pairs.values.round(3), pairs.converged
    (array([1.   , 1.   , 1.   , 0.992]), True)
    """
    bk = backend_of(W)
    _check_eigenpairs_arguments(bk, W, solver)
    n, tol = (
        checked_integer("n", n, 1, W.shape[0], "the number of rows"),
        checked_positive("tol", tol),
    )
    max_iter = None if max_iter is None else checked_integer("max_iter", max_iter, 1)
    W, exponent = _scaled_for_eigenpairs(bk, intact_csr(W, "W"))
    tol = max(tol, FLOOR[np.dtype(W.dtype).name])
    settings = SolverSettings(solver, tol, max_iter, check_random_state(random_state))
    count, component = bk.connected_components(W)
    known = _known_eigenpairs(bk, W, known, n, component, exponent, tol)
    with bk.narrow_block(n):
        parts, values = solve_components(bk, W, n, count, component, settings, known)
        values, vectors = _merge_eigenpairs(bk, W.shape[0], n, parts, values)
        residuals, orthogonality = _verify_eigenpairs(bk, W, values, vectors)
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
        msg = f"the eigenvalues of W do not fit into {W.dtype}. Scale W down, or use float64."
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


def quick_eigenpairs(A: Sparse, n: int, tol: float) -> tuple[np.ndarray, Array] | None:
    """Return the n largest eigenpairs of a connected graph, unverified, if a few rounds suffice.

    The values (n,) are on the host, by decreasing magnitude; the vectors have shape (m, n). If an
    iterative solver has not converged to `tol` after a few rounds, the result is None.
    """
    bk, m = backend_of(A), A.shape[0]
    if takes_dense_solver(m, n, "auto"):
        found = dense_solver(bk, np.zeros(1), bk.xp.arange(m), A.toarray(), n)
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


def _known_eigenpairs(
    bk: Backend,
    W: Sparse,
    pairs: Eigenpairs | None,
    n: int,
    component: Array,
    exponent: int,
    tol: float,
) -> dict[int, Known]:
    """Split known pairs by component; an eigenvector is zero outside its component."""
    if pairs is None:
        return {}
    if not isinstance(pairs, Eigenpairs):
        msg = f"known must be a result of eigenpairs, got a {type(pairs).__name__}."
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
    own, values, residuals = bk.to_numpy(content)  # host waits
    values = _times_power(values, -exponent)
    found, orthogonality = _verify_eigenpairs(bk, W, values, vectors)
    residuals = np.maximum(residuals, found)
    if not (residuals.max() <= tol and orthogonality <= 1e3 * FLOOR[np.dtype(W.dtype).name]):
        return {}  # from another W, or not exact enough
    known = {}
    for c in np.unique(own).astype(int).tolist():
        columns = np.flatnonzero(own == c)
        residual = float(residuals[columns].max() * np.abs(values).max())
        scale = float(np.abs(values[columns]).max()) or 1.0
        known[c] = Known(values[columns], vectors[:, bk.asarray(columns)], residual / scale)
    return known


def _scaled_for_eigenpairs(bk: Backend, W: Sparse) -> tuple[Sparse, int]:
    """Return W without stored zeros, and scaled by a power of two if its size is extreme.

    The scaling keeps squares finite. The second result is the exponent.
    """
    if not W.nnz:
        return W, 0
    magnitudes = bk.xp.abs(W.data)
    extremes = bk.xp.stack([magnitudes.max(), magnitudes.min()])
    largest, smallest = bk.to_numpy(extremes).tolist()  # host waits
    if not math.isfinite(largest):
        msg = "W must be finite, got entries that are infinite or not a number."
        raise ValueError(msg)
    if smallest == 0:
        W = W.copy()
        W.eliminate_zeros()
    if 1e-15 < largest < 1e15:
        return W, 0
    exponent = math.frexp(largest)[1]
    content = _times_power(W.data, -exponent), W.indices, W.indptr
    return bk.sparse.csr_matrix(content, shape=W.shape), exponent


def _times_power(x: Array, exponent: int) -> Array:
    """Return x times 2^exponent, even if that power does not fit the dtype of x."""
    number, half = x.dtype.type, exponent // 2
    with np.errstate(over="ignore", under="ignore"):
        return x * number(2.0**half) * number(2.0 ** (exponent - half))


def _check_eigenpairs_arguments(bk: Backend, W: Sparse, solver: str) -> None:
    """Raise an error if an argument has the wrong type or is out of range."""
    if not bk.sparse.issparse(W):
        msg = f"W must be a sparse matrix of SciPy or CuPy, got a {type(W).__name__}."
        raise TypeError(msg)
    if tuple(W.shape) != (W.shape[0],) * 2:
        msg = f"W must be a square matrix, got shape {tuple(W.shape)}."
        raise ValueError(msg)
    if np.dtype(W.dtype).name not in FLOOR:
        msg = f"W must be float32 or float64, got {W.dtype}."
        raise ValueError(msg)
    if solver not in SOLVERS:
        msg = f"solver must be one of {SOLVERS}, got {solver!r}."
        raise ValueError(msg)


# Components ------------------------------------------------------------------------------------


def _merge_eigenpairs(
    bk: Backend, m: int, n: int, parts: list[SolvedPart], values: list[np.ndarray]
) -> tuple[np.ndarray, Array]:
    """Pick the n largest pairs of all components; ties go by component, so that runs agree.

    `values` are the eigenvalues of the parts, on the host; the picked values are returned there.
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
    vectors = large_array(bk, (m, order.size), parts[0].vectors.dtype)
    vectors.fill(0)
    for part, begin, end in zip(parts, begins[:-1], begins[1:], strict=True):
        columns = np.flatnonzero((order >= begin) & (order < end))
        block, place = np.divmod(order[columns] - begin, part.values.shape[1])
        if columns.size == order.size and np.array_equal(place, np.arange(part.values.size)):
            _copy_rows_of_eigenpairs(bk, part, vectors)  # takes all, far faster
        elif columns.size and part.component.size == 1:
            _copy_rows_of_eigenpairs(bk, part, vectors, bk.asarray(place), bk.asarray(columns))
        elif columns.size:
            columns, block, place = bk.asarray(np.stack([columns, block, place]))
            picked = part.vectors.transpose(0, 2, 1)[block, place]
            vectors[part.rows[block], columns[:, None]] = picked

    def fix_signs(columns: slice) -> None:
        panel = vectors[:, columns]
        largest = xp.argmax(xp.abs(panel), axis=0)
        panel *= xp.where(panel[largest, xp.arange(panel.shape[1])] < 0, -1, 1).astype(panel.dtype)

    map_panels(bk, fix_signs, m, _panels_of_eigenpairs(bk, *vectors.shape))
    return values[order], vectors


def _panels_of_eigenpairs(bk: Backend, m: int, n: int) -> list[slice]:
    step = panel_width(bk, m)
    return [slice(j, min(j + step, n)) for j in range(0, n, step)]


def _copy_rows_of_eigenpairs(
    bk: Backend,
    part: SolvedPart,
    vectors: Array,
    place: Array | None = None,
    columns: Array | None = None,
) -> None:
    """Copy the vectors of a part with one component to its rows of `vectors` (m, n), in chunks.

    All are copied, or those with a `place` in the part to these `columns`.
    """
    rows, own = part.rows[0], part.vectors[0]

    def copy(some: slice) -> None:
        if place is None or columns is None:
            vectors[rows[some]] = own[some]
        else:
            vectors[rows[some][:, None], columns[None, :]] = own[some][:, place]

    step = max(1, bk.tile_bytes // max(1, own.shape[1] * own.itemsize))
    bk.map_chunks(copy, (slice(i, i + step) for i in range(0, int(rows.size), step)))


def _verify_eigenpairs(
    bk: Backend, W: Sparse, values: np.ndarray, vectors: Array
) -> tuple[np.ndarray, float]:
    """Return the residuals by their definition in float64, and max |VᵀV - I|, on the host."""
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

    map_panels(bk, measure, vectors.shape[0], _panels_of_eigenpairs(bk, *vectors.shape))
    gram = gram_of(bk, vectors)
    gram[xp.arange(n), xp.arange(n)] -= 1
    found[n] = xp.abs(gram).max()
    found = bk.to_numpy(found)  # host waits
    return found[:n], float(found[n])
