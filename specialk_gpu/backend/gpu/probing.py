"""A first run of a kernel and of CUDA's libraries, as a fit uses them, on tiny inputs."""

from __future__ import annotations

import cupy as cp
import cupyx.scipy.sparse as sparse
import numpy as np

from specialk_gpu.backend.gpu.arrays import to_numpy
from specialk_gpu.backend.gpu.pairs import pair_sq_distances
from specialk_gpu.backend.gpu.products import product_dtypes, products

__all__ = ["probe"]

FAILURES = (RuntimeError, OSError, ImportError, MemoryError, cp.cuda.compiler.CompileException)


def probe() -> tuple[str | None, bool]:
    """Run a kernel and CUDA's libraries, as a fit does, on tiny inputs.

    Returns the reason why CUDA cannot be used, or None, and whether it should be usable.
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
        f"pip install 'cupy-{extra}x[ctk]'"
    )
    for library, is_right in LIBRARIES.items():
        try:
            if not is_right():
                return f"a first call of {library} returned wrong numbers; {hint}", True
        except FAILURES as error:
            cause = f"{type(error).__name__}: {error}"
            return f"{library} is missing or fails ({cause}); {remedy}; {hint}", True
    return None, False


def _probe_cublas() -> bool:
    """Check products in float64, and in the dtypes that propose neighbours."""
    X = cp.ones((8, 8))
    found = [X @ X, *(products(X.astype(dtype), X.astype(dtype)) for dtype in product_dtypes())]
    wanted = [8.0] + [-16.0] * (len(found) - 1)
    return all((to_numpy(x) == y).all() for x, y in zip(found, wanted, strict=True))


def _probe_cusolver() -> bool:
    """Check a Cholesky factorisation and the eigenvalues of a matrix."""
    A = cp.asarray([[4.0, 2.0], [2.0, 5.0]])
    roots, values = to_numpy(cp.linalg.cholesky(A)), to_numpy(cp.linalg.eigh(A)[0])
    expected = [[2, 0], [1, 2]], [(9 - 17**0.5) / 2, (9 + 17**0.5) / 2]
    return np.allclose(roots, expected[0]) and np.allclose(values, expected[1])


def _probe_cusparse() -> bool:
    """Check the sum of a CSR matrix and its transpose, as for a graph given by the user."""
    A = sparse.csr_matrix(cp.asarray([[0.0, 2.0], [1.0, 0.0]]))
    return to_numpy((A + A.T).toarray()).tolist() == [[0, 3], [3, 0]]


LIBRARIES = {
    "cuBLAS": _probe_cublas,
    "cuSOLVER": _probe_cusolver,
    "cuSPARSE": _probe_cusparse,
}
