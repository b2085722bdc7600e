"""K-means, alone and in the sweep, and clusters of a graph: who finds them, and what is right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.suite import OURS, fits
from benchmarks.suite.cases import Case, Inputs
from benchmarks.suite.fits import Split, cluster_inertia, largest_columns, plain_log_p
from benchmarks.suite.measure import Contender

__all__ = ["CLUSTERS", "KMEANS", "SWEEP", "check_clusters", "check_kmeans", "check_sweep"]

CUDA = ("cuda",)
NUMPY = ("numpy",)


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


def _our_kmeans(case: Case, data: Inputs) -> list[Split]:
    from specialk_gpu import kmeans

    labels = kmeans(largest_columns(data.D), case.k, random_state=0).labels
    return [Split(case.k, labels, 0.0)]


def _library_kmeans(case: Case, data: Inputs, *, cluster: Callable[[Any, int], Any]) -> list[Split]:
    labels = data.bk.asarray(cluster(largest_columns(data.D), case.k))
    return [Split(case.k, labels, 0.0)]


def check_kmeans(_name: str, case: Case, data: Inputs, found: list[Split]) -> dict[str, Any]:
    """Compute the inertia."""
    labels = found[0].labels
    return {"inertia": [cluster_inertia(largest_columns(data.D), labels, case.k)]}


def _faiss_kmeans(X: Any, k: int) -> Any:
    import faiss

    X = np.ascontiguousarray(X, dtype=np.float32)
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(X)}
    model = faiss.Kmeans(X.shape[1], k, niter=300, nredo=10, seed=1, **limits)
    model.train(X)
    return model.index.search(X, 1)[1].ravel()


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


def check_sweep(_name: str, case: Case, data: Inputs, found: list[Split]) -> dict[str, Any]:
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


# Merging -----------------------------------------------------------------------------------------


def _our_clusters(_case: Case, data: Inputs) -> Any:
    from specialk_gpu import SpecialK

    model = SpecialK(affinity="precomputed", backend=data.bk.name, random_state=0).fit(data.W)
    return model.labels_


def _communities(_case: Case, data: Inputs) -> Any:
    from benchmarks.contenders import communities, igraph_of

    return communities(*igraph_of(data.W, weighted=True))


def _leidenalg_communities(_case: Case, data: Inputs) -> Any:
    from leidenalg import ModularityVertexPartition, find_partition

    from benchmarks.contenders import igraph_of

    graph, weights = igraph_of(data.W, weighted=True)
    settings = {"weights": weights, "n_iterations": -1, "seed": 0}
    return np.array(find_partition(graph, ModularityVertexPartition, **settings).membership)


def check_clusters(_name: str, case: Case, data: Inputs, found: Any) -> dict[str, Any]:
    """Count the clusters: there is no one right answer."""
    labels = data.bk.to_numpy(found)
    k = len(np.unique(labels))
    wrong = {} if labels.shape == (case.m,) else {"wrong": f"shape {labels.shape}"}
    return {"n_clusters": k, "note": f"k = {k}"} | wrong


KMEANS_OF = {  # how each clusters rows into k, what it needs, and where
    "scikit-learn": (fits.sklearn_kmeans, ("sklearn.cluster",), ("numpy", "cuda")),
    "FAISS": (_faiss_kmeans, ("faiss",), NUMPY),
    "cuML": (_cuml_kmeans, ("cuml.cluster",), CUDA),
    "flash-kmeans": (_flash_kmeans, ("flash_kmeans", "torch"), CUDA),
}


def _others(run: Callable[..., Any]) -> tuple[Contender, ...]:
    return tuple(
        Contender(name, partial(run, cluster=cluster), needs, where, host=name == "scikit-learn")
        for name, (cluster, needs, where) in KMEANS_OF.items()
    )


SWEEP = (
    Contender(OURS, _our_sweep, ("specialk_gpu.selection.sweep",)),
    *(x for x in _others(_library_sweep) if x.name != "FAISS"),
)
KMEANS = (Contender(OURS, _our_kmeans, ("specialk_gpu.lloyd.kmeans",)), *_others(_library_kmeans))
CLUSTERS = (
    Contender(OURS, _our_clusters, ("specialk_gpu._estimator",)),
    Contender("igraph's Leiden", _communities, ("igraph",), NUMPY),
    Contender("leidenalg", _leidenalg_communities, ("leidenalg",), NUMPY),
)
