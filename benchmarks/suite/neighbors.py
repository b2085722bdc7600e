"""Nearest neighbours: who searches them, and how many are right."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.suite import OURS
from benchmarks.suite.cases import N_NEIGHBORS, Case, Inputs
from benchmarks.suite.measure import Contender

__all__ = ["CONTENDERS", "check", "exact_neighbors"]

N_CHECKED = 200  # rows whose neighbours are searched again
LEAST_RECALL = 0.99  # of others
CUDA = ("cuda",)
NUMPY = ("numpy",)


def _our_neighbors(_case: Case, data: Inputs) -> Any:
    from specialk_gpu.graph.neighbors import nearest_neighbors

    return nearest_neighbors(data.X, N_NEIGHBORS).indices


def _sklearn_neighbors(_case: Case, data: Inputs) -> Any:
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=N_NEIGHBORS, algorithm="brute").fit(data.X)
    return model.kneighbors(return_distance=False)


def _tree_neighbors(_case: Case, data: Inputs) -> Any:
    from scipy.spatial import cKDTree

    return _without_self(data.bk, cKDTree(data.X).query(data.X, N_NEIGHBORS + 1, workers=-1)[1])


def _too_many_columns(case: Case) -> str:
    return "too many columns for a tree" if case.d > 100 else ""


def _approximate_neighbors(_case: Case, data: Inputs) -> Any:
    """Search three times as many as are wanted, for the recall."""
    from pynndescent import NNDescent

    found = NNDescent(data.X, n_neighbors=3 * N_NEIGHBORS, random_state=0).neighbor_graph[0]
    return _without_self(data.bk, found[:, : N_NEIGHBORS + 1])


def _faiss_on_the_host(_case: Case, data: Inputs) -> Any:
    import faiss

    X = np.ascontiguousarray(data.X, dtype=np.float32)
    return _without_self(data.bk, faiss.knn(X, X, N_NEIGHBORS + 1)[1])


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


def check(name: str, case: Case, data: Inputs, found: Any) -> dict[str, Any]:
    """Ours must be exact, ties included; of others wrong distances are counted.

    Recall is the share of their neighbours that are no farther than the last true one.
    """
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
    if name == OURS:
        if wrong_rows:
            result["wrong"] = f"{wrong_rows} of {n_checked} rows are wrong"
        return result
    result["recall"] = float((picked <= sq_distances[:, -1:] * (1 + 1e-9)).mean())
    if result["recall"] < LEAST_RECALL:
        result["wrong"] = f"recall {result['recall']:.4f}, less than {LEAST_RECALL}"
    return result


CONTENDERS = (
    Contender(OURS, _our_neighbors, ("specialk_gpu.graph.neighbors",)),
    Contender("scikit-learn", _sklearn_neighbors, ("sklearn.neighbors",), NUMPY),
    Contender("FAISS, flat", _faiss_on_the_host, ("faiss",), NUMPY),
    Contender("pynndescent", _approximate_neighbors, ("pynndescent",), NUMPY, compiles=True),
    Contender(
        "SciPy's cKDTree", _tree_neighbors, ("scipy.spatial",), NUMPY, refuse=_too_many_columns
    ),
    Contender("torch float32", partial(_torch_neighbors, precision="highest"), ("torch",), CUDA),
    Contender("torch TF32", partial(_torch_neighbors, precision="high"), ("torch",), CUDA),
    Contender("cuVS", _cuvs_neighbors, ("cuvs.neighbors",), CUDA),
    Contender("FAISS", _faiss_neighbors, ("faiss", "torch"), CUDA),
    Contender("cuML", _cuml_neighbors, ("cuml.neighbors",), CUDA),
)
