"""The NumPy backend: the names of the seam for arrays on the host."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import scipy
import scipy.sparse as sparse
from scipy.linalg import solve_triangular
from scipy.sparse._sparsetools import csr_matvecs
from scipy.sparse.csgraph import connected_components as _connected_components
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from threadpoolctl import ThreadpoolController

__all__ = [
    "all_true",
    "as_float32",
    "asarray",
    "assign",
    "center_order",
    "column_dots",
    "connected_components",
    "describe",
    "device_of",
    "draw_rows",
    "free_memory",
    "inverse_lower",
    "lanczos",
    "locality_order",
    "map_chunks",
    "name",
    "nearest_center",
    "operator",
    "pair_sq_distances",
    "panel_width",
    "product_dtypes",
    "product_error",
    "products",
    "rank_candidates",
    "reduces",
    "row_hashes",
    "segment_sum",
    "select_smallest",
    "sparse",
    "spmm",
    "sweep_window",
    "synchronize",
    "tile_bytes",
    "to_numpy",
    "xp",
]

name = "numpy"
xp = np

LANES = 32  # a squared distance is summed in 32 interleaved lanes, then pairwise over the lanes
panel_width = 64  # columns that stay in cache while a sparse matrix runs over them
tile_bytes = 2**27  # scores of a block of rows, where memory allows
center_order = "C"  # of the rows that `nearest_center` reads fastest
sweep_window = 1  # numbers of clusters that a sweep tries at once
CHUNK_BYTES = 2**21  # scores, or rows, that stay in cache
THREAD_ROWS = 2**16  # rows, over all runs, that are worth a thread
MARGIN_ROWS = 2**13  # from which margins pay
PARTS = 64  # of the rows at most, with sums of their own
reduces = True  # products are slow enough here for bounds from principal components to pay


def asarray(x: Any, dtype: Any = None) -> np.ndarray:
    """Bring an array-like to the host; arrays already there are not copied."""
    return np.asarray(x, dtype=dtype)


def to_numpy(x: Any) -> np.ndarray:
    """Return `x` as a NumPy array."""
    return np.asarray(x)


def device_of(x: Any) -> AbstractContextManager:  # noqa: ARG001 - the seam's signature
    """Return a context in which the device of `x` is the current one."""
    return nullcontext()


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


def n_threads() -> int:
    """Return how many threads to use: what OMP_NUM_THREADS, threadpoolctl and the system allow."""
    from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

    allowed = _openmp_effective_n_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(asked), allowed) if asked.isdigit() and int(asked) > 0 else allowed


class _OneBlasThread:
    """A context, to be entered from any thread, in which a product takes one thread."""

    def __init__(self) -> None:
        self.lock, self.users, self.limits = Lock(), 0, None

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.limits = _libraries().limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limits.restore_original_limits()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


_one_blas_thread = _OneBlasThread()


def map_chunks(function: Callable[[slice], Any], chunks: Iterable[slice]) -> list[Any]:
    """Apply `function` to every slice, on all cores; the order of the results is kept."""
    chunks = list(chunks)
    workers = min(n_threads(), len(chunks))
    if workers <= 1:
        return [function(chunk) for chunk in chunks]
    with _one_blas_thread, ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, chunks))


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


def pair_sq_distances(X: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return ‖X[rows] - X[columns]‖², the definition of distance in this library.

    Differences are taken in float64 and their squares summed in a fixed order (32 interleaved
    lanes, then pairwise over the lanes), so that every backend returns the same bits.

    Parameters
    ----------
    X : float array of shape (m, d)
    rows, columns : int arrays of shape (p,)

    Returns
    -------
    float64 array of shape (p,)
    """
    d = X.shape[1]
    out = np.empty(rows.size, dtype=np.float64)

    def measure(pairs: slice) -> None:
        square = np.subtract(X[rows[pairs]], X[columns[pairs]], dtype=np.float64)
        np.multiply(square, square, out=square)
        full = d - d % LANES
        lanes = (
            square[:, :full].reshape(len(square), full // LANES, LANES).sum(axis=1)
        )  # in their order
        lanes[:, : d - full] += square[:, full:]
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        out[pairs] = lanes[:, 0]

    step = max(1, 2**18 // max(d, LANES))  # stays in the cache
    map_chunks(measure, (slice(i, i + step) for i in range(0, rows.size, step)))
    return out


def rank_candidates(
    X: np.ndarray, rows: np.ndarray, places: np.ndarray, k: int, lower: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Measure the rows proposed to each row and return the k nearest, ties to the smaller number.

    Parameters
    ----------
    X : float array of shape (m, d)
    rows : int64 array of shape (t,)
        The rows' own numbers.
    places : int64 array of shape (t, width)
        The numbers proposed, all different, at least k beside the own; negative ones are skipped.
    lower : array of shape (t, width), optional
        Lower bounds of their squared distances: what they rule out is not measured.

    Returns
    -------
    sq_distances, numbers : float64 and int64 arrays of shape (t, k)
        See `pair_sq_distances`; ascending.
    """
    real = (places >= 0) & (places != rows[:, None])
    if lower is None:
        rough = _rough_sq_distances(X, rows, places, real)
    else:
        lower = np.where(real, lower, np.inf)
        first = real & (lower <= np.partition(lower, k - 1, axis=1)[:, k - 1 : k])
        rough = _rough_sq_distances(X, rows, places, first)
        rest = real & ~first & (lower <= _rough_limit(rough, k, X.shape[1]))
        np.minimum(rough, _rough_sq_distances(X, rows, places, rest), out=rough)
    row, column = np.nonzero(real & (rough <= _rough_limit(rough, k, X.shape[1])))
    number = places[row, column]
    sq = pair_sq_distances(X, rows[row], number)
    order = np.lexsort((number, sq, row))
    start = np.searchsorted(row, np.arange(rows.size))
    best = order[start[:, None] + np.arange(k)]
    return sq[best], number[best]


def _rough_limit(rough: np.ndarray, k: int, d: int) -> np.ndarray:
    """Bound the k-th smallest distance of each row from above, and what may pass for it in float32.

    `rough` is off by d + 8 units in the last place, or by 2 d times the smallest number.
    """
    single = np.finfo(np.float32)
    kth = np.partition(rough, k - 1, axis=1)[:, k - 1 : k].astype(np.float64)
    return kth * (1 + 4 * (d + 8) * float(single.eps)) + 8 * d * float(single.tiny)


def _rough_sq_distances(
    X: np.ndarray, rows: np.ndarray, places: np.ndarray, which: np.ndarray
) -> np.ndarray:
    """Return ‖X[rows] - X[places]‖² in float32 where `which` says so, elsewhere infinity."""
    out = np.full(places.shape, np.inf, dtype=np.float32)
    row, column = np.nonzero(which)
    own, other = rows[row], places[row, column]
    found = np.empty(row.size, dtype=np.float32)

    def measure(pairs: slice) -> None:
        with np.errstate(over="ignore", under="ignore"):
            difference = (X[own[pairs]] - X[other[pairs]]).astype(np.float32, copy=False)
            np.einsum("ij,ij->i", difference, difference, out=found[pairs])

    step = max(1, 2**17 // X.shape[1])
    map_chunks(measure, (slice(i, i + step) for i in range(0, row.size, step)))
    out[row, column] = found
    return out


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
    count, labels = _connected_components(W, directed=False)
    _, first = np.unique(labels, return_index=True)
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(count)
    return count, rank[labels]


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
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        part = out[rows]
        if beta:
            part *= number(beta)
        else:
            part[...] = 0
        if source is not None:
            part += source[rows] * weights
        if shift:
            part -= X[rows] * number(alpha * shift)
        indptr = A.indptr[start : rows.stop + 1]
        # what A @ X calls, but adding to what is there
        csr_matvecs(part.shape[0], m, width, indptr, A.indices, data, X.ravel(), part.ravel())


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
        values, vectors = eigsh(A, k=n, which="LM", v0=v0.copy(), tol=tol, maxiter=max_iter)
    except ArpackNoConvergence as error:
        n_found = error.eigenvalues.size
        values, vectors = np.zeros(n, dtype=A.dtype), np.zeros((A.shape[0], n), dtype=A.dtype)
        values[:n_found], vectors[:, :n_found] = error.eigenvalues, error.eigenvectors
        return values, vectors, f"ARPACK found {n_found} of {n} eigenpairs."
    return values, vectors, ""


def nearest_center(
    X: np.ndarray, sq_norms: np.ndarray, centers: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest centre of every row, for several sets of centres ("runs") at once.

    Runs of equal size share a product; runs of other sizes do not change a bit of the result.

    Parameters
    ----------
    X : float64 array of shape (m, d)
    sq_norms : float64 array of shape (m,)
        Of the rows of X.
    centers : float64 array of shape (R, k, d)
    sizes : int array of shape (R,), on the host
        Run r has the centres centers[r, :sizes[r]], at least one; the others are padding.

    Returns
    -------
    labels : int32 array of shape (R, m)
        Of equal distances the smaller label.
    sq_distances : float64 array of shape (R, m)
    """
    m, R = X.shape[0], centers.shape[0]
    labels, sq = np.empty((R, m), dtype=np.int32), np.empty((R, m))

    def search(runs: np.ndarray, rows: slice) -> None:
        labels[runs, rows], best, _ = _two_nearest(X[rows], centers[runs, : sizes[runs[0]]])
        sq[runs, rows] = np.maximum(best + sq_norms[rows], 0)

    _map_rows(search, m, sizes, np.arange(R))
    return labels, sq


def _map_rows(
    function: Callable[[np.ndarray, slice], None], m: int, sizes: np.ndarray, which: np.ndarray
) -> None:
    """Call function(runs, rows) for the runs of each size among `which` and chunks of the rows."""
    for size in np.unique(sizes[which]).tolist():
        runs = which[sizes[which] == size]
        step = max(1, min(m, CHUNK_BYTES // (8 * size * runs.size)))
        with _one_blas_thread:  # a small product is slower in several
            map_chunks(partial(function, runs), (slice(i, i + step) for i in range(0, m, step)))


def _two_nearest(X: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the label of the nearest of the centres (R, k, d), and the two smallest scores.

    All three are of shape (R, m). A score is a squared distance less that of the row to the
    origin; without a second centre it is infinite.
    """
    R, k, d = centers.shape
    scores = (-2 * centers).reshape(-1, d) @ X.T
    scores += (centers * centers).sum(axis=2).reshape(-1, 1)
    scores = scores.reshape(R, k, -1)
    best, small = scores[:, 0].copy(), np.min_scalar_type(k)
    second, larger = np.full_like(best, np.inf), np.empty_like(best)
    label = np.zeros(best.shape, dtype=small)
    for c in range(1, k):
        np.maximum(label, (scores[:, c] < best) * small.type(c), out=label)
        np.maximum(scores[:, c], best, out=larger)
        np.minimum(second, larger, out=second)
        np.minimum(best, scores[:, c], out=best)
    return label, best, second


class _Run(NamedTuple):
    """What `assign` remembers of a run."""

    labels: np.ndarray  # (m,)
    margins: np.ndarray  # (m,), at most the distance to the second nearest centre less the nearest
    centers: np.ndarray  # (k, d)
    counts: np.ndarray  # (k,)
    sums: np.ndarray  # (k, d)


def assign(
    X: np.ndarray,
    columns: np.ndarray,
    sq_norms: np.ndarray,
    centers: np.ndarray,
    sizes: np.ndarray,
    last: list[Any],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[Any]]:
    """Do an iteration of k-means for several runs: nearest centres, and sums of the clusters.

    Of many rows, only those are looked at for which the centres have moved further than the
    second nearest one was behind (after Hamerly, Making k-means even faster, 2010); the margins
    leave room for rounding. Sums are updated by the rows that changed.

    Parameters
    ----------
    X, columns : float64 arrays of shape (m, d)
        The rows, and the same in `center_order`.
    sq_norms, centers, sizes
        See `nearest_center`.
    last : list of length R
        For each run what the last call returned, or None; opaque.

    Returns
    -------
    labels : int32 array of shape (R, m)
    inertia : float64 array of shape (R,)
        Of these centres, up to cancellation.
    counts, sums : float64 arrays of shape (R, k) and (R, k, d)
    last : list of length R
    """
    m, R, k = X.shape[0], len(last), centers.shape[1]
    if m < MARGIN_ROWS:
        labels, sq = nearest_center(columns, sq_norms, centers, sizes)
        return labels, sq.sum(axis=1), *segment_sum(X, labels, k), last
    own = [centers[r, :size] for r, size in enumerate(sizes.tolist())]
    error = np.array([_score_error(sq_norms, C) for C in own])
    labels, margins = np.empty((R, m), dtype=np.int32), np.empty((R, m))
    counts, sums = np.zeros((R, k)), np.zeros(centers.shape)

    def search(group: np.ndarray, rows: slice | np.ndarray) -> None:
        x = X[rows] if isinstance(rows, slice) else X.take(rows, axis=0)
        label, *scores = _two_nearest(x, centers[group, : sizes[group[0]]])
        place = (group, rows) if isinstance(rows, slice) else (group[:, None], rows)
        labels[place], margins[place] = label, _margins(sq_norms[rows], *scores, error[group, None])

    def look(r: int) -> bool:
        """Find the nearest centres of run r, unless most rows must be looked at."""
        if last[r] is None:
            return False
        rows = _doubtful(last[r], own[r], error[r], labels[r], margins[r])
        if 4 * rows.size > m:
            return False
        step = max(1, CHUNK_BYTES // (8 * X.shape[1]))
        for start in range(0, rows.size, step):
            search(np.array([r]), rows[start : start + step])
        return True

    def add(r: int) -> None:
        if last[r] is not None:
            size = sizes[r]
            counts[r, :size], sums[r, :size] = last[r].counts, last[r].sums
            _move(X, last[r].labels, labels[r], counts[r, :size], sums[r, :size])

    done = _map_runs(look, R, m)
    _map_rows(search, m, sizes, np.flatnonzero(~np.array(done)))
    _map_runs(add, R, m)
    new = np.flatnonzero([run is None for run in last])
    if new.size:
        counts[new], sums[new] = segment_sum(X, labels[new], k)
    runs = [
        _Run(labels[r], margins[r], C, counts[r, : len(C)], sums[r, : len(C)])
        for r, C in enumerate(own)
    ]
    return labels, np.array([_inertia(sq_norms, run) for run in runs]), counts, sums, runs


def _map_runs(function: Callable[[int], Any], n_runs: int, m: int) -> list[Any]:
    """Call `function` for every run, in threads where there are many rows."""
    step = max(1, THREAD_ROWS // m)
    runs = range(n_runs)
    done = map_chunks(
        lambda some: [function(r) for r in runs[some]],
        [slice(i, i + step) for i in range(0, n_runs, step)],
    )
    return sum(done, [])


def _score_error(sq_norms: np.ndarray, centers: np.ndarray) -> float:
    """Bound the rounding error of the scores of `_two_nearest`."""
    d, reach = centers.shape[1], math.sqrt(sq_norms.max())
    reach += math.sqrt((centers * centers).sum(axis=1).max())
    return max((d + 4) * float(np.finfo(np.float64).eps) * reach**2, sys.float_info.min)


def _margins(
    sq_norms: np.ndarray, best: np.ndarray, second: np.ndarray, error: np.ndarray
) -> np.ndarray:
    """Bound from below how much farther than the nearest centre the second nearest is."""
    distances = np.sqrt(np.maximum(best + sq_norms, 0) + error)
    distances += np.sqrt(np.maximum(second + sq_norms, 0) + error)
    with np.errstate(invalid="ignore"):
        margins = (second - best - 2 * error) / distances
    return np.where(np.isinf(second), np.inf, margins)


def _doubtful(
    last: _Run, centers: np.ndarray, error: float, labels: np.ndarray, margins: np.ndarray
) -> np.ndarray:
    """Bring labels and margins to the new centres; return the rows for which these may be wrong."""
    moved = np.sqrt(((centers - last.centers) ** 2).sum(axis=1)) * (1 + 1e-9)
    others = [np.delete(moved, c).max(initial=0) for c in range(moved.size)]
    labels[:] = last.labels
    np.subtract(last.margins, (moved + others).take(labels), out=margins)
    return np.flatnonzero(margins <= 2 * math.sqrt(2 * error))  # scores beyond differ by > 2 error


def _move(
    X: np.ndarray, old: np.ndarray, new: np.ndarray, counts: np.ndarray, sums: np.ndarray
) -> None:
    """Update counts (k,) and sums (k, d) by the rows whose label changed."""
    changed = np.flatnonzero(old != new)
    step = max(1, CHUNK_BYTES // (8 * X.shape[1]))
    for start in range(0, changed.size, step):
        rows = changed[start : start + step]
        places = np.stack([new[rows], old[rows]], axis=1).ravel()
        ends, signs = np.arange(0, places.size + 1, 2), np.tile([1.0, -1.0], rows.size)
        member = sparse.csc_matrix((signs, places, ends), shape=(counts.size, rows.size))
        sums += member @ X.take(rows, axis=0)
        counts += np.bincount(places, signs, minlength=counts.size)


def _inertia(sq_norms: np.ndarray, run: _Run) -> float:
    """Return the sum of squared distances to the centres from the sums of the clusters."""
    products = (run.centers * (2 * run.sums - run.counts[:, None] * run.centers)).sum()
    return max(float(sq_norms.sum() - products), 0.0)


@np.errstate(over="ignore", invalid="ignore")  # what is not finite shows in the sums
def segment_sum(
    X: np.ndarray, labels: np.ndarray, n_segments: int, *, squares: bool = False
) -> tuple[np.ndarray, ...]:
    """Sum the rows of each label in float64, in a fixed order, for several labellings at once.

    Parameters
    ----------
    X : array of shape (m, d)
    labels : int32 array of shape (R, m)
        Rows whose label is not in 0, ..., n_segments - 1 count for nothing.
    n_segments : int
        k.
    squares : bool
        Whether to sum the squares too.

    Returns
    -------
    counts : float64 array of shape (R, k)
    sums : float64 array of shape (R, k, d)
    squares : float64 array of shape (R, k, d), if asked for
    """
    (m, d), R, k = X.shape, labels.shape[0], n_segments
    offsets = np.arange(0, R * k, k, dtype=np.int32)[:, None]

    @np.errstate(over="ignore", invalid="ignore")  # threads have states of their own
    def add(part: slice) -> list[np.ndarray]:
        counts, totals = np.zeros(R * k), np.zeros((1 + squares, R * k, d))
        for start in range(part.start, part.stop, step):
            rows = slice(start, min(start + step, part.stop))
            label = labels[:, rows]
            place = np.where((label >= 0) & (label < k), label + offsets, np.int32(R * k))  # (R, t)
            ones, ends = np.ones(place.size), np.arange(0, place.size + 1, R, dtype=place.dtype)
            shape = R * k + 1, place.shape[1]  # a last row for what counts for nothing
            member = sparse.csc_matrix((ones, place.T.ravel(), ends), shape=shape)
            counts += np.bincount(member.indices, minlength=shape[0])[:-1]
            x = X[rows].astype(np.float64, copy=squares)
            totals[0] += (member @ x)[:-1]
            if squares:
                x *= x
                totals[1] += (member @ x)[:-1]
        return [counts.reshape(R, k), *totals.reshape(-1, R, k, d)]

    step = max(1, CHUNK_BYTES // (8 * d))
    part = max(step, -(-m // PARTS))
    parts = map_chunks(add, (slice(i, min(i + part, m)) for i in range(0, m, part)))
    return tuple(np.sum(total, axis=0) for total in zip(*parts, strict=True))


def draw_rows(weights: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Draw rows with probability in proportion to their weights.

    Parameters
    ----------
    weights : float64 array of shape (R, m)
        Not negative.
    draws : float64 array of shape (R, T)
        In [0, 1).

    Returns
    -------
    int64 array of shape (R, T)
        The first row at which the running sum of weights[r] reaches draws[r, t] times the total.
    """
    running = np.cumsum(weights, axis=1)
    rows = [np.searchsorted(*pair) for pair in zip(running, draws * running[:, -1:], strict=True)]
    return np.minimum(np.stack(rows), weights.shape[1] - 1)
