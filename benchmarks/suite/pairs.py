"""Products with a sparse matrix, and its eigenpairs: who computes them, and what is right."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.suite import OURS
from benchmarks.suite.cases import Case, Inputs
from benchmarks.suite.measure import Contender

__all__ = ["PAIRS", "PRODUCTS", "check_pairs", "check_product", "compare_pairs"]

MOST_ROUNDS = 500  # of LOBPCG
CUDA = ("cuda",)
NUMPY = ("numpy",)


def _our_product(_case: Case, data: Inputs) -> Any:
    out = data.bk.xp.empty_like(data.Y)
    data.bk.spmm(data.W, data.Y, out, 1.0, 0.0, 0.0)
    return out


def _library_product(_case: Case, data: Inputs) -> Any:
    return data.W @ data.Y


def check_product(_name: str, case: Case, data: Inputs, found: Any) -> dict[str, Any]:
    """Compare some columns with SciPy's product in float64."""
    to_numpy = data.bk.to_numpy
    W = data.W if data.bk.name == "numpy" else data.W.get()
    some = data.bk.asarray(np.unique(np.linspace(0, case.n - 1, 16, dtype=int)))
    expected = W.astype(np.float64) @ to_numpy(data.Y[:, some]).astype(np.float64)
    difference = np.abs(to_numpy(found[:, some]) - expected)
    error = float(difference.max() / np.abs(expected).max())
    result: dict[str, Any] = {"error": error}
    if not error <= (1e-13 if case.dtype == "float64" else 1e-5):
        result["wrong"] = f"relative error {error:.1e}"
    return result


def _our_pairs(case: Case, data: Inputs) -> Any:
    from specialk_gpu.spectrum.eigenpairs import eigenpairs

    found = eigenpairs(data.W, case.n, random_state=0)
    return found.values, found.vectors


def _library_pairs(case: Case, data: Inputs) -> Any:
    v0 = data.bk.asarray(np.random.default_rng(0).standard_normal(case.m))
    values, vectors, failure = data.bk.lanczos(data.W, case.n, v0, 1e-9, None)
    if failure:
        raise RuntimeError(failure)
    return values, vectors


def _lobpcg_pairs(case: Case, data: Inputs) -> Any:
    """Let LOBPCG find the pairs of the square, and take those of the matrix from their span."""
    from scipy.sparse.linalg import LinearOperator, lobpcg

    square = LinearOperator(data.W.shape, lambda x: data.W @ (data.W @ x), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal((case.m, case.n))
    _, V = lobpcg(square, start, tol=1e-9, maxiter=MOST_ROUNDS, largest=True)
    values, turn = np.linalg.eigh(V.T @ (data.W @ V))
    return values, V @ turn


def _few_rows(case: Case) -> str:
    return "" if 5 * case.n < case.m else "too many pairs for it"


def _primme_pairs(case: Case, data: Inputs) -> Any:
    import primme

    v0 = np.random.default_rng(0).standard_normal((case.m, 1))
    return primme.eigsh(data.W, k=case.n, which="LM", tol=1e-9, v0=v0)


def _hopeless_pairs(case: Case) -> str:
    if case.n >= 1000 and case.m >= 60_000:
        return "known not to end in minutes"
    return ""


def check_pairs(_name: str, case: Case, data: Inputs, found: Any) -> dict[str, Any]:
    """Take residuals and orthogonality from their definitions."""
    values, V = found
    xp, scale = data.bk.xp, float(abs(values).max())
    residual = 0.0
    for start in range(0, case.n, 64):
        panel = xp.ascontiguousarray(V[:, start : start + 64])
        r = data.W @ panel - panel * values[start : start + 64]
        residual = max(residual, float(xp.sqrt((r * r).sum(axis=0)).max()) / scale)
    orthogonality = float(abs(V.T @ V - xp.eye(case.n)).max())
    magnitudes = np.sort(np.abs(data.bk.to_numpy(values)))[::-1]
    sample = magnitudes[np.linspace(0, case.n - 1, 20, dtype=int)].tolist()
    result = {"residual": residual, "orthogonality": orthogonality, "magnitudes": sample}
    if not (residual <= 1e-8 and orthogonality <= 1e-10):
        result["wrong"] = f"residual {residual:.1e}, orthogonality {orthogonality:.1e}"
    return result


def compare_pairs(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Find those that missed a pair which another one has: what follows is then smaller."""
    best = np.max([row["magnitudes"] for row in rows.values()], axis=0)
    short = {name: best - np.array(row["magnitudes"]) > 1e-7 for name, row in rows.items()}
    return {
        name: f"misses a pair of magnitude {best[missing][0]:.6f} or more that another one has"
        for name, missing in short.items()
        if missing.any()
    }


PRODUCTS = (
    Contender(OURS, _our_product),
    Contender("SciPy", _library_product, (), NUMPY),
    Contender("CuPy", _library_product, (), CUDA),
)
PAIRS = (
    Contender(OURS, _our_pairs, ("specialk_gpu.spectrum.eigenpairs",)),
    Contender("SciPy eigsh", _library_pairs, (), NUMPY),
    Contender("SciPy LOBPCG", _lobpcg_pairs, (), NUMPY, refuse=_few_rows),
    Contender("PRIMME", _primme_pairs, ("primme",), NUMPY),
    Contender("CuPy eigsh", _library_pairs, (), CUDA, refuse=_hopeless_pairs),
)
