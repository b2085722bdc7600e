"""The CUDA backend: the names of the seam for arrays on a device, through CuPy.

Documented in `specialk_gpu.backend.cpu`. This is the one file that imports CuPy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import cupy as cp
import cupyx.scipy.sparse as sparse
import numpy as np

from specialk_gpu._progress import told

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
    "probe",
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

name = "cuda"
xp = cp

panel_width = 2048
panel_multiple = 8  # of float32 are 32 bytes, what the L2 cache hands out
tile_bytes = 2**31
center_order = "F"
sweep_window = 8
sweep_bytes = 2**63
nearest_by_pairs = nearest_by_tree = None  # products of all rows are faster

FAILURES = (RuntimeError, OSError, ImportError, MemoryError, cp.cuda.compiler.CompileException)
WARPS = 8  # per block
SELECT_THREADS = 256
SELECT_MOST = 128  # that are selected from the minima of as many groups as there are threads
DENSE_FROM = 0.02  # density from which tensor cores outrun gathering, by their data sheets
CENTER_ROWS = 128  # of a block of `nearest_center`
CENTER_GROUP = 64  # centres of a block, and those of the run that ends there
SUM_THREADS = 64
SUM_SLOTS = 48  # labels of a block of `segment_sum`
SUM_PARTS = 64  # of the rows at most, with sums of their own
SUM_BYTES = 2**29
MAX_THREADS = 128  # of a segment whose largest entry is sought
STEP_THREADS = 128
DRAW_THREADS = 256
MAX_ENTRIES = 2**31 - 1  # of a matrix that `spmm` multiplies
DRAW_ROWS = 16  # of a piece, at least, where a thread has several
DRAW_PIECES = 64  # of a thread at most


@cache
def _module(source: str) -> cp.RawModule:
    """Compile kernels/`source`.cu at first use; CuPy keeps the binary on disk."""
    code = files("specialk_gpu.backend").joinpath("kernels", f"{source}.cu").read_text()
    return cp.RawModule(code=code, options=("-std=c++17",))


@cache
def _kernel(source: str, function: str, dtype: Any) -> Any:
    return _module(source).get_function(f"{function}_{np.dtype(dtype).name}")


def probe() -> tuple[str | None, bool]:
    """Run a kernel and CUDA's libraries, as a fit does, on next to nothing.

    Return why CUDA cannot be used, or None, and whether it should.
    """
    try:
        if cp.cuda.runtime.getDeviceCount() == 0:
            return "no CUDA device was found", False
    except cp.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device answers ({error})", False
    hint = "cupy.show_config() shows the installation"
    try:
        x = cp.arange(6, dtype=np.float64).reshape(3, 2)
        pairs = cp.asarray([0, 0], dtype=np.int64), cp.asarray([1, 2], dtype=np.int64)
        found = to_numpy(pair_sq_distances(x, *pairs)).tolist()
    except FAILURES as error:
        return f"a first kernel failed ({type(error).__name__}: {error}); {hint}", True
    if found != [8.0, 32.0]:
        return f"a first kernel returned {found} instead of [8, 32]; {hint}", True
    extra = f"cuda{cp.cuda.runtime.runtimeGetVersion() // 1000}"
    remedy = (
        "CuPy's wheels come without CUDA's libraries, which are installed with: "
        f"pip install 'specialk-gpu[{extra}]' (that is, cupy-{extra}x[ctk])"
    )
    for library, is_right in LIBRARIES.items():
        try:
            if not is_right():
                return f"a first call of {library} returned wrong numbers; {hint}", True
        except FAILURES as error:
            cause = f"{type(error).__name__}: {error}"
            return f"{library} is missing or fails ({cause}); {remedy}; {hint}", True
    return None, False


def _cublas_is_right() -> bool:
    """Multiply in float64, and as neighbours are proposed."""
    X = cp.ones((8, 8))
    found = [X @ X, *(products(X.astype(dtype), X.astype(dtype)) for dtype in product_dtypes())]
    wanted = [8.0] + [-16.0] * (len(found) - 1)
    return all((to_numpy(x) == y).all() for x, y in zip(found, wanted, strict=True))


def _cusolver_is_right() -> bool:
    """Factorise a matrix and find its eigenvalues."""
    A = cp.asarray([[4.0, 2.0], [2.0, 5.0]])
    roots, values = to_numpy(cp.linalg.cholesky(A)), to_numpy(cp.linalg.eigh(A)[0])
    expected = [[2, 0], [1, 2]], [(9 - 17**0.5) / 2, (9 + 17**0.5) / 2]
    return np.allclose(roots, expected[0]) and np.allclose(values, expected[1])


def _cusparse_is_right() -> bool:
    """Compress a matrix, transpose it and add both, as with a given graph."""
    A = sparse.csr_matrix(cp.asarray([[0.0, 2.0], [1.0, 0.0]]))
    return to_numpy((A + A.T).toarray()).tolist() == [[0, 3], [3, 0]]


LIBRARIES = {
    "cuBLAS": _cublas_is_right,
    "cuSOLVER": _cusolver_is_right,
    "cuSPARSE": _cusparse_is_right,
}


def asarray(x: Any, dtype: Any = None) -> cp.ndarray:
    """See `cpu.asarray`; arrays of other libraries on a device are taken without a copy."""
    if sparse.issparse(x):
        return x
    if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | cp.ndarray):
        x = cp.from_dlpack(x)
    return cp.asarray(x, dtype=dtype)


def to_numpy(x: Any) -> np.ndarray:
    """See `cpu.to_numpy`."""
    return cp.asnumpy(x)


def device_of(x: Any) -> AbstractContextManager:
    """See `cpu.device_of`."""
    if sparse.issparse(x):
        x = x.data  # CuPy's sparse matrices do not say where they are
    if isinstance(x, cp.ndarray):
        return x.device
    kind, index = getattr(x, "__dlpack_device__", lambda: (1, 0))()
    return cp.cuda.Device(index) if int(kind) in (2, 13) else nullcontext()  # not the host's


def narrow_block(width: int = 1) -> AbstractContextManager:  # noqa: ARG001
    """See `cpu.narrow_block`; on the device nothing changes."""
    return nullcontext()


def panels(width: int) -> list[slice]:
    """See `cpu.panels`; here a panel is as wide as memory allows."""
    return [slice(j, min(j + panel_width, width)) for j in range(0, width, panel_width)]


def all_true(x: cp.ndarray) -> bool:
    """See `cpu.all_true`; `min` of integers comes compiled, `all` takes seconds to compile."""
    return not x.size or bool(cp.ascontiguousarray(x).view(np.int8).min())


def column_dots(X: cp.ndarray, Y: cp.ndarray) -> cp.ndarray:
    """See `cpu.column_dots`; CuPy sums along the first axis in one block for 32 columns."""
    return cp.ones(X.shape[0], dtype=X.dtype) @ (X * Y)


def inverse_lower(L: cp.ndarray) -> cp.ndarray:
    """See `cpu.inverse_lower`."""
    from cupyx.scipy.linalg import solve_triangular

    return solve_triangular(L, cp.eye(L.shape[0], dtype=L.dtype), lower=True)


def synchronize() -> None:
    """See `cpu.synchronize`."""
    cp.cuda.get_current_stream().synchronize()


def free_memory() -> int:
    """See `cpu.free_memory`; counts what CuPy's pool holds unused, and its limit."""
    pool = cp.get_default_memory_pool()
    free = cp.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
    limit = pool.get_limit()
    return min(free, limit - pool.used_bytes()) if limit else free


def describe() -> dict[str, Any]:
    """See `cpu.describe`."""
    devices = []
    for i in range(cp.cuda.runtime.getDeviceCount()):
        properties = cp.cuda.runtime.getDeviceProperties(i)
        devices.append(
            {
                "name": properties["name"].decode(),
                "memory": int(properties["totalGlobalMem"]),
                "compute_capability": f"{properties['major']}.{properties['minor']}",
            }
        )
    versions = {
        "cupy": cp.__version__,
        "cuda_runtime": cp.cuda.runtime.runtimeGetVersion(),
        "cuda_driver": cp.cuda.runtime.driverGetVersion(),
    }
    return {"versions": versions, "devices": devices}


def map_chunks(function: Callable[[Any], Any], chunks: Iterable[Any], stage: str = "") -> list[Any]:
    """See `cpu.map_chunks`; the device takes one chunk after another."""
    chunks = list(chunks)
    return list(told(map(function, chunks), len(chunks), stage))


def product_dtypes() -> tuple[str, ...]:
    """See `cpu.product_dtypes`; float16 where there are tensor cores."""
    has_tensor_cores = int(cp.cuda.Device().compute_capability) >= 70
    return ("float16", "float32") if has_tensor_cores else ("float32",)


def product_error(n_features: int, dtype: Any) -> float:
    """See `cpu.product_error`.

    Tensor cores multiply float16 exactly, but align and truncate what they add: four units for
    each term instead of one. CUPY_TF32=1 makes float32 products less exact.
    """
    if np.dtype(dtype) == np.float16:
        return n_features * 2.0**-22
    error = n_features * float(np.finfo(dtype).eps) / 2
    if np.dtype(dtype) == np.float32 and os.environ.get("CUPY_TF32", "0") != "0":
        error += 2.0**-9
    return error


def products(A: cp.ndarray, B: cp.ndarray) -> cp.ndarray:
    """See `cpu.products`; float16 on the tensor cores, fastest for d a multiple of eight."""
    if A.dtype != np.float16:
        return (-2 * A) @ B.T
    out = cp.empty((A.shape[0], B.shape[0]), dtype=np.float32)
    _multiply_float16(B, A, out, -2.0, transposed=True)
    return out


def _address(x: cp.ndarray) -> int:
    return x.data.ptr


def _multiply_float16(
    A: cp.ndarray, B: cp.ndarray, out: cp.ndarray, alpha: float, *, transposed: bool
) -> None:
    """Compute out = alpha B Aᵀ, or alpha B A, for row-major float16 A and B and float32 out.

    cuBLAS counts columns first and so sees the transpose of everything.
    """
    from cupy.cuda import cublas  # loads the library

    assert A.flags.c_contiguous
    assert B.flags.c_contiguous
    assert out.flags.c_contiguous
    half, single = cp.cuda.runtime.CUDA_R_16F, cp.cuda.runtime.CUDA_R_32F
    operation = cublas.CUBLAS_OP_T if transposed else cublas.CUBLAS_OP_N
    scalars = np.array([alpha, 0], dtype=np.float32)
    cublas.gemmEx(
        cp.cuda.device.get_cublas_handle(),
        operation,
        cublas.CUBLAS_OP_N,
        out.shape[1],
        out.shape[0],
        B.shape[1],
        scalars.ctypes.data,
        _address(A),
        half,
        A.shape[1],
        _address(B),
        half,
        B.shape[1],
        scalars.ctypes.data + 4,
        _address(out),
        single,
        out.shape[1],
        cublas.CUBLAS_COMPUTE_32F,
        cublas.CUBLAS_GEMM_DEFAULT,
    )


def select_smallest(
    products: cp.ndarray, offsets: cp.ndarray, n: int
) -> tuple[cp.ndarray, cp.ndarray]:
    """See `cpu.select_smallest`."""
    t, m = products.shape
    width, dtype = 4 * n + 32, products.dtype
    places, limits = cp.full((t, width), -1, dtype=np.int64), cp.empty(t, dtype=dtype)
    scores = cp.ascontiguousarray(products), offsets, np.int64(m)
    grid, found = ((t,), (SELECT_THREADS,)), (np.int32(width), places)
    if n <= SELECT_MOST:
        _kernel("select", "select_smallest", dtype)(*grid, (*scores, np.int32(n), *found, limits))
        return places, limits
    minima = cp.empty((t, 2 * n if 4 * n <= m else m), dtype=dtype)
    _kernel("select", "group_minima", dtype)(*grid, (*scores, np.int64(minima.shape[1]), minima))
    limits[:] = cp.sort(minima, axis=1)[:, n - 1]
    _kernel("select", "collect", dtype)(*grid, (*scores, *found, limits))
    return places, limits


def rank_candidates(
    X: cp.ndarray, rows: cp.ndarray, places: cp.ndarray, k: int
) -> tuple[cp.ndarray, cp.ndarray]:
    """See `cpu.rank_candidates`; all are measured."""
    t, width = places.shape
    X = cp.ascontiguousarray(X)
    rows = cp.ascontiguousarray(rows, dtype=np.int64)
    places = cp.ascontiguousarray(places, dtype=np.int64)
    out_sq, out_index = cp.empty((t, k)), cp.empty((t, k), dtype=np.int64)
    content = (X, np.int64(X.shape[1]), rows, places, np.int32(width), np.int32(k))
    arguments = (*content, cp.empty((t, width)), out_sq, out_index)
    _kernel("distance", "rank_candidates", X.dtype)((t,), (32 * WARPS,), arguments)
    return out_sq, out_index


def row_hashes(X: cp.ndarray, factors: cp.ndarray) -> cp.ndarray:
    """See `cpu.row_hashes`."""
    m, d = X.shape
    out = cp.empty(m, dtype=np.uint64)
    arguments = (cp.ascontiguousarray(X), np.int64(m), np.int64(d), factors, out)
    blocks = (m + WARPS - 1) // WARPS
    _kernel("hash", "row_hashes", X.dtype)((blocks,), (32 * WARPS,), arguments)
    return out


def pair_sq_distances(X: cp.ndarray, rows: cp.ndarray, columns: cp.ndarray) -> cp.ndarray:
    """See `cpu.pair_sq_distances`."""
    out = cp.empty(rows.size)
    if rows.size:
        X = cp.ascontiguousarray(X)
        rows = cp.ascontiguousarray(rows, dtype=np.int64)
        columns = cp.ascontiguousarray(columns, dtype=np.int64)
        arguments = (X, np.int64(X.shape[1]), rows, columns, np.int64(rows.size), out)
        blocks = (rows.size + WARPS - 1) // WARPS
        _kernel("distance", "pair_sq_distances", X.dtype)((blocks,), (32 * WARPS,), arguments)
    return out


def connected_components(W: sparse.csr_matrix) -> tuple[int, cp.ndarray]:
    """See `cpu.connected_components`."""
    return components_of(W.indptr, W.indices)


def components_of(indptr: cp.ndarray, indices: cp.ndarray) -> tuple[int, cp.ndarray]:
    """See `cpu.components_of`; the least row of each is its root."""
    m = indptr.size - 1
    assert m < 2**31
    if m == 0:
        return 0, cp.zeros(0, dtype=np.int64)
    content = indptr.astype(np.int64, copy=False), indices.astype(np.int32, copy=False)
    rows = cp.arange(m, dtype=np.int32)
    parent, root = rows.copy(), cp.empty_like(rows)
    blocks = (m + WARPS - 1) // WARPS
    arguments = (*content, np.int32(m), parent)
    _kernel("components", "hook", np.int32)((blocks,), (32 * WARPS,), arguments)
    blocks, arguments = (m + 255) // 256, (np.int32(m), parent, root)
    _kernel("components", "find_root", np.int32)((blocks,), (256,), arguments)
    number = cp.cumsum(root == rows, dtype=np.int64) - 1
    return int(number[-1]) + 1, number[root]


def locality_order(W: sparse.csr_matrix) -> None:  # noqa: ARG001 - the seam's signature
    """See `cpu.locality_order`; the device's L2 cache holds a panel in any order."""
    return


class _Indicator(NamedTuple):
    """A matrix of equal entries and zeros, dense in float16, for products on tensor cores.

    A number is split into integers of at most `bits` bits: so few that their sums over any row
    stay below 2^24 and are exact in float32, in any order.
    """

    ones: cp.ndarray  # (m, m), the second padded with zeros to a multiple of eight
    weight: float
    bits: int
    shape: tuple[int, int]
    dtype: Any


def operator(A: sparse.csr_matrix) -> Any:
    """See `cpu.operator`; dense, where few entries are zero and all others equal."""
    m = A.shape[0]
    padded = -(-m // 8) * 8
    if (
        A.nnz < DENSE_FROM * m * m
        or "float16" not in product_dtypes()
        or 2 * m * padded > free_memory() // 3
        or bool(A.data.min() != A.data.max())
    ):
        return A
    degree = int(cp.diff(A.indptr).max())
    ones = cp.zeros((m, padded), dtype=np.float16)
    indptr = to_numpy(A.indptr)
    step = max(1, min(tile_bytes * m // (16 * A.nnz), (2**31 - 1) // padded))
    for start in range(0, m, step):
        low, high = int(indptr[start]), int(indptr[min(start + step, m)])
        row = cp.searchsorted(A.indptr, cp.arange(low, high), side="right") - 1 - start
        ones[start : start + step][row, A.indices[low:high]] = 1  # CuPy < 14.1 flattens in int32
    bits = min(11, 24 - math.ceil(math.log2(degree)))
    return _Indicator(ones, float(A.data[0]), bits, A.shape, A.dtype)


def as_float32(A: Any) -> Any:
    """See `cpu.as_float32`."""
    if isinstance(A, _Indicator):
        return A._replace(dtype=np.dtype(np.float32))
    content = A.data.astype(np.float32, copy=False), A.indices, A.indptr
    return sparse.csr_matrix(content, shape=A.shape)


def spmm(
    A: Any,
    X: cp.ndarray,
    out: cp.ndarray,
    alpha: float,
    shift: float,
    beta: float,
    source: cp.ndarray | None = None,
    weights: cp.ndarray | None = None,
) -> None:
    """See `cpu.spmm`."""
    given = (X, out) if source is None else (X, out, source, weights)
    assert all(x.flags.c_contiguous and x.dtype == A.dtype for x in given)
    m, width = X.shape
    number = np.dtype(A.dtype).type
    scalars = (number(alpha), number(shift), number(beta))
    added = (X, X, np.int32(0)) if source is None else (source, weights, np.int32(1))
    if isinstance(A, _Indicator):
        _spmm_indicator(A, X, out, scalars + added)
        return
    if A.nnz > MAX_ENTRIES:
        msg = (
            f"the matrix has {A.nnz:,} entries, more than the {MAX_ENTRIES:,} that 32-bit indices "
            "can number. Lower `n_neighbors` or `coverage`, or cluster a sample of the rows."
        )
        raise MemoryError(msg)
    indptr, indices = (x.astype(np.int32, copy=False) for x in (A.indptr, A.indices))
    content = (indptr, indices, A.data, X, out, np.int32(m), np.int32(width))
    columns = 64 if X.itemsize == 8 else 128
    grid = ((m + WARPS - 1) // WARPS, (width + columns - 1) // columns)
    _kernel("spmm", "spmm", A.dtype)(grid, (32, WARPS), content + scalars + added)


def _spmm_indicator(A: _Indicator, X: cp.ndarray, out: cp.ndarray, arguments: tuple) -> None:
    """Do `spmm` for the zeros and equal entries of A by exact products of float16 pieces."""
    m, width = X.shape
    exponents = cp.frexp(cp.abs(X).max(axis=0))[1].astype(np.int32)
    n_pieces = math.ceil({4: 24, 8: 48}[X.itemsize] / A.bits)
    panel = min(width, max(1, free_memory() // 4 // (6 * m * n_pieces)))
    stride = -(-panel * n_pieces // 8) * 8
    pieces = cp.zeros((A.ones.shape[1], stride), dtype=np.float16)
    products = cp.empty((m, stride), dtype=np.float32)
    for first in range(0, width, panel):
        columns = min(panel, width - first)
        layout = (np.int32(x) for x in (width, first, columns, A.bits, n_pieces, stride))
        layout = (exponents, np.int64(m), *layout)
        blocks = ((m * columns + 255) // 256,)
        _kernel("split", "split", X.dtype)(blocks, (256,), (X, *layout, pieces))
        _multiply_float16(pieces, A.ones, products, 1.0, transposed=False)
        weight = X.dtype.type(A.weight)
        combine = _kernel("split", "combine", X.dtype)
        combine(blocks, (256,), (products, *layout, X, out, weight, *arguments))


def is_lanczos_faster(A: Any, n: int) -> bool:  # noqa: ARG001 - the seam's signature
    """See `cpu.is_lanczos_faster`; dense graphs are multiplied by blocks, on tensor cores."""
    return False


def lanczos(
    A: Any, n: int, v0: cp.ndarray, tol: float, max_iter: int | None
) -> tuple[cp.ndarray, cp.ndarray, str]:
    """See `cpu.lanczos`; CuPy's solver says nothing about convergence."""
    from cupyx.scipy.sparse.linalg import eigsh

    values, vectors = eigsh(A, k=n, which="LM", v0=v0.copy(), tol=tol, maxiter=max_iter)
    if not bool(cp.isfinite(values).all() & cp.isfinite(vectors).all()):
        zeros = cp.zeros(n, dtype=A.dtype), cp.zeros((A.shape[0], n), dtype=A.dtype)
        return *zeros, "CuPy's eigsh returned values that are not finite."
    return values, vectors, ""


@lru_cache(maxsize=64)
def _center_tables(k: int, sizes: tuple[int, ...], place: tuple[int, int]) -> tuple[Any, Any]:  # noqa: ARG001
    """Upload the lists of centres and of groups that `nearest_center` reads, once for all calls.

    `place` is the device and the stream that they belong to.
    """
    own = np.array(sizes)
    slots = np.append(np.flatnonzero(np.arange(k) < own[:, None]), own.size * k)
    begins = np.cumsum(own) - own  # of the runs, in the list of all centres
    groups = begins[np.unique(begins // CENTER_GROUP, return_index=True)[1]]
    tables = cp.asarray(np.concatenate([slots, groups, [slots.size - 1]]), dtype=np.int64)
    return tables[: slots.size], tables[slots.size :]


def nearest_center(
    X: cp.ndarray, sq_norms: cp.ndarray, centers: cp.ndarray, sizes: np.ndarray
) -> tuple[cp.ndarray, cp.ndarray]:
    """See `cpu.nearest_center`."""
    assert X.dtype == sq_norms.dtype == centers.dtype == np.float64
    (m, d), (R, k) = X.shape, centers.shape[:2]
    X, centers = cp.asfortranarray(X), cp.ascontiguousarray(centers)
    place = cp.cuda.Device().id, cp.cuda.get_current_stream().ptr
    slots, groups = _center_tables(k, tuple(sizes.tolist()), place)
    n_groups = groups.size - 1
    labels, sq = cp.empty((R, m), dtype=np.int32), cp.empty((R, m))
    content = (X, sq_norms, np.int64(m), np.int64(d), centers, np.int64(k), slots, groups)
    arguments = (*content, np.int32(n_groups), labels, sq)
    blocks = n_groups * -(-m // CENTER_ROWS)
    _kernel("center", "nearest_center", X.dtype)((blocks,), (CENTER_ROWS // 2,), arguments)
    return labels, sq


def nearest_without(
    X: cp.ndarray,
    sq_norms: cp.ndarray,
    centers: cp.ndarray,
    sizes: np.ndarray,
    removed: list[np.ndarray],
) -> cp.ndarray:
    """See `cpu.nearest_without`; all others of every centre removed are a run of their own."""
    run = np.repeat(np.arange(sizes.size), [slots.size for slots in removed])
    others = np.arange(centers.shape[1] - 1)[None].repeat(run.size, axis=0)
    others += others >= np.concatenate(removed)[:, None]
    others += centers.shape[1] * run[:, None]
    fewer = centers.reshape(-1, centers.shape[2])[asarray(others)]
    return nearest_center(X, sq_norms, fewer, sizes[run] - 1)[1]


def sq_distances(X: cp.ndarray, sq_norms: cp.ndarray, centers: cp.ndarray) -> cp.ndarray:
    """See `cpu.sq_distances`; every centre is a run of its own."""
    sizes = np.ones(centers.shape[0], dtype=np.int64)
    return nearest_center(X, sq_norms, centers[:, None, :], sizes)[1]


def sums_of_minima(first: cp.ndarray, second: cp.ndarray, owner: cp.ndarray, n: int) -> cp.ndarray:
    """See `cpu.sums_of_minima`."""
    assert first.dtype == second.dtype == np.float64
    first, second = cp.ascontiguousarray(first), cp.ascontiguousarray(second)
    sums = cp.empty((first.shape[0], n))
    arguments = (first, second, np.int64(first.shape[1]), owner, np.int32(n), sums)
    _kernel("step", "sums_of_minima", np.float64)((sums.size,), (STEP_THREADS,), arguments)
    return sums


def largest(x: cp.ndarray, n: int) -> cp.ndarray:
    """See `cpu.largest`."""
    return cp.argsort(-x, axis=1, kind="stable")[:, :n]


def repeated(count: np.ndarray) -> cp.ndarray:
    """See `cpu.repeated`."""
    ends = np.cumsum(count)
    entries = cp.arange(int(ends[-1]) if ends.size else 0)
    return cp.searchsorted(cp.asarray(ends), entries, side="right")


def bin_sums(bins: cp.ndarray, weights: cp.ndarray, n_bins: int) -> cp.ndarray:
    """See `cpu.bin_sums`; does not wait, as CuPy's bincount does to check the bins."""
    sums = cp.zeros(n_bins)
    if bins.size:
        arguments = (bins.astype(np.int64, copy=False), weights, np.int64(bins.size), sums)
        blocks = (-(-bins.size // SUM_THREADS),)
        _kernel("bins", "add_to_bins", np.float64)(blocks, (SUM_THREADS,), arguments)
    return sums


def segment_max(x: cp.ndarray, start: np.ndarray, end: np.ndarray) -> cp.ndarray:
    """See `cpu.segment_max`."""
    out = cp.empty(start.size)
    arguments = (x, cp.asarray(start), cp.asarray(end), out)
    _kernel("maximum", "segment_max", np.float64)((start.size,), (MAX_THREADS,), arguments)
    return out


def remember(X: cp.ndarray, labels: cp.ndarray, centers: cp.ndarray) -> None:  # noqa: ARG001
    """See `cpu.remember`; a first iteration looks at all rows, and its labels are not compared."""


class _Last(NamedTuple):
    """What `assign` remembers of the runs."""

    labels: cp.ndarray  # (R, m)

    def of(self, runs: cp.ndarray) -> _Last:
        """Return what is remembered of some of the runs."""
        return _Last(self.labels[runs])

    def relabelled(self, run: int, row: int) -> None:
        """Take note that a row has changed its cluster: the labels have it."""


def assign(
    X: cp.ndarray,
    columns: cp.ndarray,
    sq_norms: cp.ndarray,
    centers: cp.ndarray,
    sizes: np.ndarray,
    last: _Last | None,
) -> tuple[cp.ndarray, cp.ndarray, cp.ndarray, cp.ndarray, cp.ndarray, _Last, bool]:
    """See `cpu.assign`; the device looks at all rows."""
    centers = cp.ascontiguousarray(centers)
    (m, d), (R, k) = X.shape, centers.shape[:2]
    labels, sq = nearest_center(columns, sq_norms, centers, sizes)
    total = _totals(X, labels, k, 1)
    n_rows, n_parts = _parts(m)
    partial, state, means = cp.empty((n_parts, 3 * R)), cp.empty((3, R)), cp.empty((R, k, d))
    before = labels if last is None else last.labels
    content = (sq, labels, before, np.int64(m), np.int64(R), np.int64(n_rows), np.int64(n_parts))
    arguments = (*content, total, centers, np.int64(k), np.int64(d), means, partial)
    _kernel("step", "finish_step", np.float64)((R * n_parts,), (STEP_THREADS,), arguments)
    _add_parts(partial, state)
    return labels, state, means, total[:, 0, :, d], total[:, 0, :, :d], _Last(labels), True


def _parts(m: int) -> tuple[int, int]:
    """Return how many rows have sums of their own, and how many such parts there are."""
    n_rows = max(SUM_THREADS, -(-m // SUM_PARTS))  # whatever R, so that results do not vary
    return n_rows, -(-m // n_rows)


def _add_parts(partial: cp.ndarray, out: cp.ndarray) -> None:
    """Add the parts (n_parts, size) in their order."""
    arguments = (partial, np.int64(partial.shape[0]), np.int64(out.size), out)
    blocks = (-(-out.size // SUM_THREADS),)
    _kernel("segment", "add_parts", np.float64)(blocks, (SUM_THREADS,), arguments)


def _totals(X: cp.ndarray, labels: cp.ndarray, k: int, n_powers: int) -> cp.ndarray:
    """Return the sums of `segment_sum` (R, n_powers, k, d + 1); the last column are counts."""
    (m, d), R = X.shape, labels.shape[0]
    assert labels.dtype == np.int32
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    X, labels = cp.ascontiguousarray(X, dtype=dtype), cp.ascontiguousarray(labels)
    total = cp.empty((R, n_powers, k, d + 1))
    n_rows, n_parts = _parts(m)
    grid = -(-(d + 1) // SUM_THREADS), -(-k // (SUM_SLOTS // n_powers))
    together = max(1, SUM_BYTES // (8 * n_parts * n_powers * k * (d + 1)))
    for start in range(0, R, together):
        part = labels[start : start + together]
        out = total[start : start + together]
        partial = cp.empty((n_parts, out.size))
        sizes = (np.int64(part.shape[0]), np.int64(k), np.int32(n_powers), np.int64(n_rows))
        arguments = (X, np.int64(m), np.int64(d), part, *sizes, partial)
        blocks = (n_parts * part.shape[0], *grid)
        _kernel("segment", "segment_sum", X.dtype)(blocks, (SUM_THREADS,), arguments)
        _add_parts(partial, out)
    return total


def segment_sum(
    X: cp.ndarray, labels: cp.ndarray, n_segments: int, *, squares: bool = False
) -> tuple[cp.ndarray, ...]:
    """See `cpu.segment_sum`."""
    n_powers, d = 1 + squares, X.shape[1]
    total = _totals(X, labels, n_segments, n_powers)
    return total[:, 0, :, d], *(total[:, power, :, :d] for power in range(n_powers))


def draw_rows(weights: cp.ndarray, draws: cp.ndarray) -> cp.ndarray:
    """See `cpu.draw_rows`."""
    assert weights.dtype == draws.dtype == np.float64
    R, m = weights.shape
    weights, draws = cp.ascontiguousarray(weights), cp.ascontiguousarray(draws)
    rows = cp.full(draws.shape, m - 1, dtype=np.int64)
    per_thread = max(1, min(DRAW_PIECES, m // (DRAW_THREADS * DRAW_ROWS)))
    n_pieces = DRAW_THREADS * per_thread
    size, pieces = np.int64(-(-m // n_pieces)), cp.empty((R, n_pieces))
    arguments = (weights, np.int64(m), size, np.int64(n_pieces), pieces)
    _kernel("draw", "sum_pieces", weights.dtype)((R * per_thread,), (DRAW_THREADS,), arguments)
    arguments = (weights, np.int64(m), draws, np.int32(draws.shape[1]), rows)
    arguments += (pieces, np.int32(per_thread), size)
    _kernel("draw", "draw_rows", weights.dtype)((R,), (DRAW_THREADS,), arguments)
    return rows
