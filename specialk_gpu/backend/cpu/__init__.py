"""The NumPy backend: the names of the seam for arrays on the host."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sparse
from scipy.linalg import solve_triangular
from scipy.sparse._sparsetools import csr_matvecs
from scipy.sparse.csgraph import connected_components as _connected_components
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from specialk_gpu.backend.cpu.lloyd import (
    assign,
    draw_rows,
    largest,
    nearest_center,
    nearest_without,
    remember,
    segment_sum,
    sq_distances,
    sums_of_minima,
)
from specialk_gpu.backend.cpu.pairs import (
    nearest_by_pairs,
    nearest_by_tree,
    pair_sq_distances,
    rank_candidates,
)
from specialk_gpu.backend.cpu.threads import map_chunks, n_threads, one_blas_thread

__all__ = [
    "all_true",
    "as_float32",
    "asarray",
    "assign",
    "bin_sums",
    "center_order",
    "column_dots",
    "components_of",
    "connected_components",
    "describe",
    "device_of",
    "draw_rows",
    "free_memory",
    "inverse_lower",
    "is_lanczos_faster",
    "lanczos",
    "largest",
    "locality_order",
    "map_chunks",
    "name",
    "narrow_block",
    "nearest_by_pairs",
    "nearest_by_tree",
    "nearest_center",
    "nearest_without",
    "operator",
    "pair_sq_distances",
    "panel_multiple",
    "panel_width",
    "panels",
    "product_dtypes",
    "product_error",
    "products",
    "rank_candidates",
    "remember",
    "repeated",
    "row_hashes",
    "segment_max",
    "segment_sum",
    "select_smallest",
    "sparse",
    "spmm",
    "sq_distances",
    "sums_of_minima",
    "sweep_bytes",
    "sweep_window",
    "synchronize",
    "tile_bytes",
    "to_numpy",
    "xp",
]

name = "numpy"
xp = np

THREAD_ROWS = 2**12  # from which products are worth threads of BLAS
THREAD_COLUMNS = 2**8  # of a block of vectors, from which they are
SHARED_ENTRIES = 2**20  # from which a product of a sparse matrix with a vector is worth threads
panel_width = 64  # columns that stay in cache while a sparse matrix runs over them
LEAST_COLUMNS = 8  # of a panel that is worth a thread
panel_multiple = 1  # of columns, to which a panel is filled up with zeros
tile_bytes = 2**27  # scores of a block of rows, where memory allows
center_order = "C"  # of the rows that `nearest_center` reads fastest
sweep_window = 1  # numbers of clusters that a sweep tries at once, though it may stop at the first
sweep_bytes = 2**29  # of the runs of a sweep in one batch


def asarray(x: Any, dtype: Any = None) -> np.ndarray:
    """Bring an array-like to the host; arrays already there are not copied."""
    return np.asarray(x, dtype=dtype)


def to_numpy(x: Any) -> np.ndarray:
    """Return `x` as a NumPy array."""
    return np.asarray(x)


def device_of(x: Any) -> AbstractContextManager:
    """Return a context in which the device of `x` is the current one.

    On the host: in which products take one thread, if `x` has so few rows that more only wait.
    """
    few = getattr(x, "shape", None) and x.shape[0] < THREAD_ROWS
    return one_blas_thread if few else nullcontext()


def narrow_block(width: int = 1) -> AbstractContextManager:
    """Return a context for work on a block of `width` vectors.

    On the host, products of a narrow block take one thread in it: those of BLAS would gain little,
    and wait on cores that `map_chunks` could use.
    """
    return one_blas_thread if width < THREAD_COLUMNS else nullcontext()


def panels(width: int) -> list[slice]:
    """Split the columns of a block into panels of equal width, some for each core."""
    n = n_threads()
    n_panels = -(-width // panel_width)
    if width >= n * LEAST_COLUMNS:
        n_panels = -(-n_panels // n) * n
    step = -(-width // n_panels)
    return [slice(j, min(j + step, width)) for j in range(0, width, step)]


def all_true(x: np.ndarray) -> bool:
    """Say whether all entries of a boolean array are true."""
    return bool(x.all())


def column_dots(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return the products of the columns of X with those of Y: (w,) for two arrays (m, w)."""
    return (X * Y).sum(axis=0)


def inverse_lower(L: np.ndarray) -> np.ndarray:
    """Return the inverse of a lower triangular matrix."""
    return solve_triangular(L, np.eye(L.shape[0], dtype=L.dtype), lower=True, check_finite=False)


def synchronize() -> None:
    """Wait for pending work; on the host there is none."""


def free_memory() -> int:
    """Return the bytes that this process may still take, as far as the system tells."""
    limits = []
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError):
        limits.append(_total_memory() // 2)
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            with open("/proc/self/statm", encoding="ascii") as statm:
                used = int(statm.read().split()[0]) * resource.getpagesize()
            limits.append(max(soft - used, 0))
    except (ImportError, OSError):
        pass
    return min(limits)


def _total_memory() -> int:
    """Return the bytes of memory in this machine; 8 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**33


def describe() -> dict[str, Any]:
    """Name the versions and the processor."""
    versions = {"numpy": np.__version__, "scipy": scipy.__version__}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = platform.processor() or platform.machine()
    return {
        "versions": versions,
        "devices": [{"name": f"{processor}, {cores} cores", "memory": _total_memory()}],
    }


def product_dtypes() -> tuple[str, ...]:
    """Name the dtypes in which products may propose neighbours, the fastest first."""
    return ("float32",)


def product_error(n_features: int, dtype: Any) -> float:
    """Bound the relative error of `products`: |fl(x·y) - x·y| <= error ‖x‖‖y‖."""
    sums = np.float32 if np.dtype(dtype) == np.float16 else dtype
    return n_features * float(np.finfo(sums).eps) / 2


def products(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return -2 A Bᵀ (t, m) for A (t, d) and B (m, d); float16 is summed in float32."""
    if A.dtype == np.float16:
        A, B = A.astype(np.float32), B.astype(np.float32)
    return (-2 * A) @ B.T


def select_smallest(
    products: np.ndarray, offsets: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Collect the places of at least the `n` smallest scores of each row.

    Parameters
    ----------
    products : array of shape (t, m)
    offsets : array of shape (m,)
        The scores are products + offsets.
    n : int
        1 <= n <= m.

    Returns
    -------
    places : int64 array of shape (t, width)
        Column numbers, -1 where a row has fewer.
    thresholds : array of shape (t,)
        No score outside of `places` is below the row's threshold. A row with more ties than
        fit is cut short and has threshold -inf.
    """
    t, m = products.shape
    width = 4 * n + 32
    places = np.full((t, width), -1, dtype=np.int64)
    thresholds = np.empty(t, dtype=products.dtype)

    def select(rows: slice) -> None:
        block = products[rows] + offsets
        limit = _nth_of_group_minima(block, n)
        flat = np.flatnonzero(block <= limit[:, None])
        row, column = np.divmod(flat, m)
        counts = np.bincount(row, minlength=block.shape[0])
        position = np.arange(flat.size) - np.repeat(np.cumsum(counts) - counts, counts)
        keep = position < width
        places[rows][row[keep], position[keep]] = column[keep]
        thresholds[rows] = np.where(counts <= width, limit, -np.inf)

    step = max(1, 2**20 // m)
    map_chunks(select, (slice(i, i + step) for i in range(0, t, step)))
    return places[:, : int((places >= 0).sum(axis=1).max())], thresholds


def _nth_of_group_minima(block: np.ndarray, n: int) -> np.ndarray:
    """Bound each row's n-th smallest value from above by that of its groups' minima."""
    t, m = block.shape
    groups = max(8 * n, 256)
    size = m // groups
    if size < 2:
        return np.partition(block, n - 1, axis=1)[:, n - 1]
    minima = block[:, : groups * size].reshape(t, size, groups).min(axis=1)
    return np.partition(minima, n - 1, axis=1)[:, n - 1]


def row_hashes(X: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Hash each row's bits with odd `factors` (d,): uint64 array of shape (m,); -0 counts as 0."""
    m, d = X.shape
    integer = np.uint32 if X.dtype == np.float32 else np.uint64
    out = np.empty(m, dtype=np.uint64)

    def run(rows: slice) -> None:
        bits = np.ascontiguousarray(X[rows] + 0).view(integer).astype(np.uint64)
        bits ^= bits >> 32
        bits *= factors
        out[rows] = bits.sum(axis=1)

    step = max(1, 2**18 // d)
    map_chunks(run, (slice(i, i + step) for i in range(0, m, step)))
    return out


def connected_components(W: sparse.csr_matrix) -> tuple[int, np.ndarray]:
    """Return the number of connected components and each row's, numbered by first row."""
    return components_of(W.indptr, W.indices)


def components_of(indptr: np.ndarray, indices: np.ndarray) -> tuple[int, np.ndarray]:
    """See `connected_components`; of a symmetric pattern of entries."""
    content = np.ones(indices.size, dtype=np.int8), indices, indptr
    W = sparse.csr_matrix(content, shape=(indptr.size - 1,) * 2)
    count, labels = _connected_components(W, directed=False)
    _, first = np.unique(labels, return_index=True)
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(count)
    return count, rank[labels]


def bin_sums(bins: np.ndarray, weights: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the sums (n_bins,) of weights by bin; they must be exact in any order."""
    return np.bincount(bins, weights, n_bins) if bins.size else np.zeros(n_bins)


def repeated(count: np.ndarray) -> np.ndarray:
    """Return 0 so many times as count says, then 1, ..."""
    return np.repeat(np.arange(count.size), count)


def segment_max(x: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the largest of x[start], ..., x[end - 1] for each start and end, of rising starts."""
    bounds = np.stack([start, end], axis=1).ravel()
    return np.maximum.reduceat(x, bounds[:-1] if bounds[-1] == x.size else bounds)[::2]


def locality_order(W: sparse.csr_matrix) -> np.ndarray | None:
    """Return an order of the rows in which neighbours are near, or None where it is no use.

    On the host it makes the products of `spmm` two to five times as fast.
    """
    return reverse_cuthill_mckee(W, symmetric_mode=True)


def operator(A: Any) -> Any:
    """Return the symmetric matrix A (m, m) in CSR in the form in which `spmm` is fastest.

    It has a shape and a dtype, and is good for `spmm` only.
    """
    return A


def as_float32(A: Any) -> Any:
    """Return what `operator` returned in float32; the places of the entries are shared."""
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

    X, out and source are of shape (m, w), weights of shape (w,), all of the dtype of A.
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
            part += np.multiply(source[rows], weights, out=work)
        if shift:
            part -= np.multiply(X[rows], number(alpha * shift), out=work)
        indptr = A.indptr[start : rows.stop + 1]
        # what A @ X calls, but adding to what is there
        csr_matvecs(part.shape[0], m, width, indptr, A.indices, data, X.ravel(), part.ravel())

    starts = range(0, m, step)
    if A.nnz * width < SHARED_ENTRIES:
        for start in starts:
            run(start)
    else:
        map_chunks(run, starts)


def is_lanczos_faster(A: sparse.csr_matrix, n: int) -> bool:
    """Say whether `lanczos` finds `n` eigenpairs sooner than a filter of a block of vectors.

    It multiplies far fewer vectors, and orthogonalises each against all: where a row has an entry
    for each pair, the products are what counts. See benchmarks/eigen_solvers.py.
    """
    return A.nnz >= n * A.shape[0]


def _shared_by_threads(A: sparse.csr_matrix) -> Any:
    """Return A (m, m) as an operator whose products with a vector take all cores, same bits."""
    if A.nnz < SHARED_ENTRIES:
        return A
    m, indptr = A.shape[0], A.indptr
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


SEEDED = {"rng": 0} if "rng" in signature(eigsh).parameters else {}  # where it starts anew


def lanczos(
    A: Any, n: int, v0: np.ndarray, tol: float, max_iter: int | None
) -> tuple[np.ndarray, np.ndarray, str]:
    """Ask ARPACK for the `n` eigenpairs of largest magnitude, unverified.

    Returns
    -------
    values (n,), vectors (m, n), failure
        `failure` is "" when ARPACK says that it converged; otherwise pairs may be zero.
    """
    try:
        settings = {"v0": v0.copy(), "tol": tol, "maxiter": max_iter, **SEEDED}
        values, vectors = eigsh(_shared_by_threads(A), k=n, which="LM", **settings)
    except ArpackNoConvergence as error:
        n_found = error.eigenvalues.size
        values, vectors = np.zeros(n, dtype=A.dtype), np.zeros((A.shape[0], n), dtype=A.dtype)
        values[:n_found], vectors[:, :n_found] = error.eigenvalues, error.eigenvectors
        return values, vectors, f"ARPACK found {n_found} of {n} eigenpairs."
    return values, vectors, ""
