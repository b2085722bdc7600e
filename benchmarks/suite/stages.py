"""The stages apart: contenders, the checks of their answers, and the comparison between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.suite import OURS, fits
from benchmarks.suite.cases import N_NEIGHBORS, Case, Inputs
from benchmarks.suite.fits import Split, cluster_inertia, largest_columns, plain_log_p
from benchmarks.suite.measure import Contender

__all__ = ["STAGE", "Stage"]

N_CHECKED = 200  # rows whose neighbours are searched again
CUDA = ("cuda",)
NUMPY = ("numpy",)


class Stage(NamedTuple):
    """Who solves a stage, and what is right.

    Attributes
    ----------
    contenders : tuple of Contender
        Ours first.
    check : callable
        Takes the name of the contender, the case, the inputs and the answer. Returns what was
        found out; "wrong" says why an answer is.
    compare : callable
        Takes what was found out, by contender; returns why some are wrong after all.
    """

    contenders: tuple[Contender, ...]
    check: Callable[[str, Case, Inputs, Any], dict[str, Any]]
    compare: Callable[[dict[str, dict[str, Any]]], dict[str, str]] = lambda _rows: {}


# Neighbours --------------------------------------------------------------------------------------


def _our_neighbors(_case: Case, data: Inputs) -> Any:
    from specialk_gpu.graph.neighbors import nearest_neighbors

    return nearest_neighbors(data.X, N_NEIGHBORS).indices


def _sklearn_neighbors(_case: Case, data: Inputs) -> Any:
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=N_NEIGHBORS, algorithm="brute").fit(data.X)
    return model.kneighbors(return_distance=False)


def _torch_neighbors(_case: Case, data: Inputs, *, precision: str) -> Any:
    import torch

    torch.set_float32_matmul_precision(precision)
    X = torch.as_tensor(data.X, device="cuda")
    m = X.shape[0]
    sq_norms = (X * X).sum(1)
    found = torch.empty((m, N_NEIGHBORS), dtype=torch.int64, device="cuda")
    step = max(1, 2**29 // m)
    for start in range(0, m, step):
        rows = torch.arange(start, min(start + step, m), device="cuda")
        scores = torch.addmm(sq_norms, X[rows], X.T, alpha=-2)
        scores[rows - start, rows] = torch.inf
        found[rows] = scores.topk(N_NEIGHBORS, largest=False).indices
    return data.bk.asarray(found)


def _cuvs_neighbors(_case: Case, data: Inputs) -> Any:
    from cuvs.neighbors import brute_force

    index = brute_force.build(data.X, metric="sqeuclidean")
    _, found = brute_force.search(index, data.X, N_NEIGHBORS + 1)
    return _without_self(data.bk, found)


def _faiss_neighbors(_case: Case, data: Inputs) -> Any:
    import faiss
    import faiss.contrib.torch_utils
    import torch

    X = torch.as_tensor(data.X, device="cuda")
    _, found = faiss.knn_gpu(faiss.StandardGpuResources(), X, X, N_NEIGHBORS + 1)
    return _without_self(data.bk, found)


def _cuml_neighbors(_case: Case, data: Inputs) -> Any:
    from cuml.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=N_NEIGHBORS + 1, algorithm="brute", output_type="cupy")
    return _without_self(data.bk, model.fit(data.X).kneighbors(data.X, return_distance=False))


def _without_self(bk: ModuleType, found: Any) -> Any:
    """Drop each row's own number from its neighbours, or the last where that is missing."""
    found = bk.asarray(found)
    keep = found != bk.xp.arange(found.shape[0])[:, None]
    keep[keep.all(axis=1), -1] = False
    return found[keep].reshape(found.shape[0], -1)


def exact_neighbors(bk: ModuleType, X: Any, rows: Any, n_neighbors: int) -> tuple[Any, Any]:
    """Return the neighbours of some rows and their squared distances, all in float64.

    Products in float64 leave out what is certainly farther; the rest is measured from differences.
    Of equal distances the smaller row number comes first.
    """
    xp, m = bk.xp, X.shape[0]
    query = X[bk.asarray(rows)].astype(np.float64)
    sq = xp.empty((rows.size, m))
    for start in range(0, m, 2**16):
        block = X[start : start + 2**16].astype(np.float64)
        sq[:, start : start + 2**16] = (block * block).sum(axis=1) - 2 * (query @ block.T)
    sq += (query * query).sum(axis=1)[:, None]
    sq[xp.arange(rows.size), bk.asarray(rows)] = np.inf
    slack = 1e-10 * float((X.astype(np.float64) ** 2).sum(axis=1).max())
    limit = xp.partition(sq, n_neighbors - 1, axis=1)[:, n_neighbors - 1] + slack
    indices = np.empty((rows.size, n_neighbors), dtype=np.int64)
    sq_distances = np.empty(indices.shape)
    for i in range(rows.size):
        near = xp.flatnonzero(sq[i] <= limit[i])
        exact = _sq_distances(bk, X, query[i], near)
        near = bk.to_numpy(near)
        order = np.argsort(exact, kind="stable")[:n_neighbors]
        indices[i], sq_distances[i] = near[order], exact[order]
    return indices, sq_distances


def _sq_distances(bk: ModuleType, X: Any, x: Any, rows: Any) -> np.ndarray:
    difference = bk.to_numpy(X[rows].astype(np.float64) - x)
    return (difference * difference).sum(axis=1)


def _check_neighbors(name: str, case: Case, data: Inputs, found: Any) -> dict[str, Any]:
    """Ours must be exact, ties included; of others, rows with a wrong distance are counted."""
    if tuple(found.shape) != (case.m, N_NEIGHBORS):
        return {"wrong": f"shape {tuple(found.shape)}"}
    n_checked = min(N_CHECKED, case.m)
    rows = np.sort(np.random.default_rng(1).choice(case.m, n_checked, replace=False))
    indices, sq_distances = exact_neighbors(data.bk, data.X, rows, N_NEIGHBORS)
    found = data.bk.to_numpy(data.bk.asarray(found)[data.bk.asarray(rows)])
    if name == OURS:
        right = (found == indices).all(axis=1)
    else:
        picked = np.stack(
            [
                np.sort(_sq_distances(data.bk, data.X, data.X[int(i)].astype(np.float64), row))
                for i, row in zip(rows, data.bk.asarray(found), strict=True)
            ]
        )
        right = np.isclose(picked, sq_distances, rtol=1e-9, atol=0).all(axis=1)
    wrong_rows = n_checked - int(right.sum())
    result: dict[str, Any] = {"wrong_rows": wrong_rows, "checked_rows": n_checked}
    if wrong_rows > (0 if name == OURS else n_checked // 2):
        result["wrong"] = f"{wrong_rows} of {n_checked} rows are wrong"
    return result


# Products ----------------------------------------------------------------------------------------


def _our_product(_case: Case, data: Inputs) -> Any:
    out = data.bk.xp.empty_like(data.Y)
    data.bk.spmm(data.W, data.Y, out, 1.0, 0.0, 0.0)
    return out


def _library_product(_case: Case, data: Inputs) -> Any:
    return data.W @ data.Y


def _check_product(_name: str, case: Case, data: Inputs, found: Any) -> dict[str, Any]:
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


# Eigenpairs --------------------------------------------------------------------------------------


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


def _hopeless_pairs(case: Case) -> str:
    if case.n >= 1000 and case.m >= 60_000:
        return "known not to end in minutes"
    return ""


def _check_pairs(_name: str, case: Case, data: Inputs, found: Any) -> dict[str, Any]:
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


def _compare_pairs(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Find those that missed a pair which another one has: what follows is then smaller."""
    best = np.max([row["magnitudes"] for row in rows.values()], axis=0)
    short = {name: best - np.array(row["magnitudes"]) > 1e-7 for name, row in rows.items()}
    return {
        name: f"misses a pair of magnitude {best[missing][0]:.6f} or more that another one has"
        for name, missing in short.items()
        if missing.any()
    }


# Sweep -------------------------------------------------------------------------------------------


def _our_sweep(case: Case, data: Inputs) -> list[Split]:
    from specialk_gpu.selection.sweep import sweep

    found = sweep(data.D, max_clusters=case.k, full_path=True, random_state=0)
    return [Split(step.k, step.labels, step.log_p) for step in found.path if step.k > 1]


def _library_sweep(case: Case, data: Inputs, *, cluster: Callable[[Any, int], Any]) -> list[Split]:
    columns = largest_columns(data.D)
    found = []
    for k in range(2, case.k + 1):
        labels = data.bk.asarray(cluster(columns, k))
        found.append(Split(k, labels, plain_log_p(data.D, labels, k)))
    return found


def _cuml_kmeans(X: Any, k: int) -> Any:
    from cuml.cluster import KMeans

    return KMeans(n_clusters=k, n_init=10, random_state=0, output_type="cupy").fit(X).labels_


def _flash_kmeans(X: Any, k: int) -> Any:
    import torch
    from flash_kmeans import FlashKMeans

    X = torch.as_tensor(X, device="cuda").float()
    best, lowest = None, np.inf
    for seed in range(10):
        labels = FlashKMeans(X.shape[1], k, niter=300, seed=seed).fit_predict(X)
        member = torch.nn.functional.one_hot(labels.long(), k).to(X.dtype)  # (m, k)
        sums, counts = member.T @ X, member.sum(0).clamp(min=1)
        inertia = float((X * X).sum() - ((sums * sums).sum(1) / counts).sum())
        if inertia < lowest:
            best, lowest = labels, inertia
    return best


def _check_sweep(_name: str, case: Case, data: Inputs, found: list[Split]) -> dict[str, Any]:
    """Recompute every inertia, and one bound pair by pair."""
    if [split.k for split in found] != list(range(2, case.k + 1)):
        return {"wrong": f"clusters for k = {[split.k for split in found]}"}
    columns = largest_columns(data.D)
    inertia = [cluster_inertia(columns, split.labels, split.k) for split in found]
    split = found[min(1, len(found) - 1)]
    expected = plain_log_p(data.D, split.labels, split.k)
    result: dict[str, Any] = {"inertia": inertia, "log_p": [split.log_p for split in found]}
    if not abs(split.log_p - expected) <= 1e-8 * max(1.0, abs(expected)):
        result["wrong"] = f"log p = {split.log_p:.6g} instead of {expected:.6g} at k = {split.k}"
    return result


# Who takes part ----------------------------------------------------------------------------------

STAGE = {
    "knn": Stage(
        (
            Contender(OURS, _our_neighbors, ("specialk_gpu.graph.neighbors",)),
            Contender("scikit-learn", _sklearn_neighbors, ("sklearn.neighbors",), NUMPY),
            Contender(
                "torch float32", partial(_torch_neighbors, precision="highest"), ("torch",), CUDA
            ),
            Contender("torch TF32", partial(_torch_neighbors, precision="high"), ("torch",), CUDA),
            Contender("cuVS", _cuvs_neighbors, ("cuvs.neighbors",), CUDA),
            Contender("FAISS", _faiss_neighbors, ("faiss", "torch"), CUDA),
            Contender("cuML", _cuml_neighbors, ("cuml.neighbors",), CUDA),
        ),
        _check_neighbors,
    ),
    "spmm": Stage(
        (
            Contender(OURS, _our_product),
            Contender("SciPy", _library_product, (), NUMPY),
            Contender("CuPy", _library_product, (), CUDA),
        ),
        _check_product,
    ),
    "eigenpairs": Stage(
        (
            Contender(OURS, _our_pairs, ("specialk_gpu.spectrum.eigenpairs",)),
            Contender("SciPy eigsh", _library_pairs, (), NUMPY),
            Contender("CuPy eigsh", _library_pairs, (), CUDA, refuse=_hopeless_pairs),
        ),
        _check_pairs,
        _compare_pairs,
    ),
    "sweep": Stage(
        (
            Contender(OURS, _our_sweep, ("specialk_gpu.selection.sweep",)),
            Contender(
                "scikit-learn",
                partial(_library_sweep, cluster=fits.sklearn_kmeans),
                ("sklearn.cluster",),
                host=True,
            ),
            Contender(
                "cuML", partial(_library_sweep, cluster=_cuml_kmeans), ("cuml.cluster",), CUDA
            ),
            Contender(
                "flash-kmeans",
                partial(_library_sweep, cluster=_flash_kmeans),
                ("flash_kmeans", "torch"),
                CUDA,
            ),
        ),
        _check_sweep,
        fits.compare_inertia,
    ),
    "fit": Stage(fits.CONTENDERS, fits.check, fits.compare_inertia),
}
