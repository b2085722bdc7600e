"""Figures 1 to 3: the four synthetic shapes, k found against noise, and against n."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from benchmarks.baselines import eigengap, stsc
from benchmarks.paper.rivals import RIVALS
from specialk_gpu import SpecialK, decide, eigenpairs, embed, knn_graph, radius_graph, sweep
from specialk_gpu.datasets import NOISE_LEVELS, SHAPES, make_shape
from specialk_gpu.graph.knn import normalised_graph

__all__ = [
    "DEFAULT",
    "GRAPHS",
    "TRUE_K",
    "default_fit",
    "figure2",
    "figure2_tasks",
    "figure3",
    "figure3_tasks",
]

DEFAULT = "the default"  # criterion="cut"
TRUE_K = {"random": 1, "blobs": 3, "moons": 2, "circles": 2}
GRAPHS = {"W_C": "nearest_neighbors", "W_R": "radius_neighbors"}
MAX_K = 5
N_SEEDS = 5
N_COMPONENTS = 200
N_RIVALS = 50  # eigenvectors that the rivals see, as PGMeans in the paper
CORRELATED = 0.95  # above which the paper drops columns of moons
FIGURE3_NOISE = 0.1
FIGURE3_N = (25, 50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400)


def points(task: dict[str, Any]) -> Any:
    """Draw the set of a task: its seed is five times the level of noise and the set's number."""
    level = NOISE_LEVELS.index(task["noise"])
    seed = N_SEEDS * level + task["set"]
    return make_shape(task["shape"], task["noise"], random_state=seed)[0]


def affinity(X: Any, graph: str) -> Any:
    """Build W_C or W_R with the paper's ten neighbours."""
    return knn_graph(X) if graph == "W_C" else radius_graph(X).affinity


def figure2_tasks(*, quick: bool = False, rivals: bool = True) -> list[dict[str, Any]]:
    """List the tasks: our methods first, then STSC, then ClustPy's."""
    levels, sets = (NOISE_LEVELS[::4], 1) if quick else (NOISE_LEVELS, N_SEEDS)
    methods = ["SpecialK", DEFAULT, "STSC", *(["ClustPy's SpecialK", *RIVALS] if rivals else [])]
    return [
        {"method": method, "shape": shape, "noise": noise, "set": i}
        for method in methods
        for shape in SHAPES
        for noise in levels
        for i in range(sets)
    ]


def figure2(task: dict[str, Any]) -> dict[str, Any]:
    """Find k on one set by one method: {"W_C": ..., "W_R": ...}, or "k" for those without a W."""
    warnings.simplefilter("ignore")
    X = points(task)
    match task["method"]:
        case "SpecialK":
            return {graph: _specialk(X, graph) for graph in GRAPHS}
        case method if method == DEFAULT:
            return {graph: {"k": default_fit(X, graph).n_clusters_} for graph in GRAPHS}
        case "STSC":
            found = stsc(X, MAX_K, random_state=0)
            return {"k": found.n_clusters, "quality": [one.quality for one in found.path]}
        case "ClustPy's SpecialK":
            return {graph: {"k": _clustpy(affinity(X, graph))} for graph in GRAPHS}
        case method:
            return {
                graph: {"k": RIVALS[method](_columns(X, graph, N_RIVALS), MAX_K)}
                for graph in GRAPHS
            }


def default_fit(X: Any, graph: str, backend: str = "numpy") -> SpecialK:
    """Fit with the default rule, and everything else by default but the graph."""
    return SpecialK(affinity=GRAPHS[graph], backend=backend, random_state=0).fit(X)


def _specialk(X: Any, graph: str) -> dict[str, Any]:
    """Return k by both rules, k without correlated columns, the eigengap's, and the bounds."""
    model = SpecialK(
        affinity=GRAPHS[graph],
        n_components=N_COMPONENTS,
        max_clusters=MAX_K,
        full_path=True,
        criterion="zz_top",
        random_state=0,
    ).fit(X)
    without = clone(model).set_params(full_path=False, drop_correlated=CORRELATED).fit(X)
    laplacian = normalised_graph(affinity(X, graph)) + sparse.identity(X.shape[0], format="csr")
    laplacian = eigenpairs(laplacian, MAX_K + 1, random_state=0)  # the largest, not the negative
    ks, log_p = [step.k for step in model.path_], [step.log_p for step in model.path_]
    return {
        "k": int(model.n_clusters_),
        "watershed": decide(ks[1:], log_p[1:], stopping="watershed"),
        "without_correlated": int(without.n_clusters_),
        "eigengap": eigengap(laplacian.values, MAX_K),
        "log_p": log_p[1:],
    }


def _columns(X: Any, graph: str, n: int) -> Any:
    pairs = eigenpairs(affinity(X, graph), n, random_state=0)
    return embed(pairs.values, pairs.vectors)


def _clustpy(W: Any) -> int:
    from clustpy.spectral import SpecialK as ClustPys

    settings = {"n_dimensions": N_COMPONENTS, "max_n_clusters": MAX_K, "random_state": 0}
    return int(ClustPys(similarity_matrix=W, **settings).fit(np.zeros((W.shape[0], 1))).n_clusters_)


def figure3_tasks(*, quick: bool = False) -> list[dict[str, Any]]:
    """List a task for every set and graph."""
    return [
        {"shape": shape, "noise": FIGURE3_NOISE, "set": i, "graph": graph}
        for shape in SHAPES
        for graph in GRAPHS
        for i in range(1 if quick else N_SEEDS)
    ]


def figure3(task: dict[str, Any]) -> dict[str, Any]:
    """Find k for every n, from one decomposition."""
    warnings.simplefilter("ignore")
    W = affinity(points(task), task["graph"])
    return {"n": list(FIGURE3_N), **by_n(W, FIGURE3_N, MAX_K)}


def by_n(W: Any, ns: tuple[int, ...], max_clusters: int) -> dict[str, list[Any]]:
    """Find k by both rules for every n, and the bounds at every k, from one decomposition."""
    pairs = eigenpairs(W, max(ns), solver="dense", random_state=0)
    if not pairs.converged:
        raise RuntimeError(pairs.message)
    D = embed(pairs.values, pairs.vectors)
    out: dict[str, list[Any]] = {"k": [], "watershed": [], "log_p": []}
    for n in ns:
        part = np.ascontiguousarray(D[:, :n])
        path = sweep(part, max_clusters=max_clusters, full_path=True, random_state=0).path[1:]
        ks, log_p = [step.k for step in path], [step.log_p for step in path]
        out["k"].append(decide(ks, log_p))
        out["watershed"].append(decide(ks, log_p, stopping="watershed"))
        out["log_p"].append(log_p)
    return out
