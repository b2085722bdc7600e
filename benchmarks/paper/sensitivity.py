"""What n does: false splits where there are no clusters, and k found where there are.

A k-means path does not depend on n from fifty columns on, for the columns of largest norm are those
of the largest eigenvalues: it is taken once, and bounded with the first n columns for every n.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_blobs

from specialk_gpu import decide, eigenpairs, embed, knn_graph, sweep, zz_top
from specialk_gpu.datasets import make_shape

__all__ = ["NS", "TRUE_K", "map_n", "map_tasks"]

NS = (50, 100, 200, 300, 500, 700, 1000, 1400)
SETS = {500: 5, 1000: 5, 2000: 5, 5000: 3, 10_000: 2}  # by number of rows
DIMENSIONS = (2, 5, 10, 20, 50)
TRUE_K = {"uniform": 1, "normal": 1, "blobs": 3, "moons": 2, "circles": 2, "mixture": 5}
MAX_K = 11


def map_tasks(*, quick: bool = False) -> list[dict[str, Any]]:
    """List a task for every set, small ones first."""
    tasks = []
    for m, n_sets in {500: 1}.items() if quick else SETS.items():
        for i in range(n_sets):
            tasks += [
                {"kind": kind, "d": d, "m": m, "set": i}
                for kind in ("uniform", "normal")
                for d in DIMENSIONS
            ]
            tasks += [{"kind": kind, "d": 2, "m": m, "set": i} for kind in list(TRUE_K)[2:5]]
            tasks += [{"kind": "mixture", "d": 10, "m": m, "set": i}]
    digits = [] if quick else [{"kind": "digits", "d": 64, "m": 1797, "set": 0}]
    return tasks + digits


def draw(kind: str, d: int, m: int, seed: int) -> Any:
    """Draw points: without clusters, of a shape of the paper at noise 0.1, or of five normals."""
    rng = np.random.default_rng([seed, d, m])
    match kind:
        case "uniform":
            return rng.uniform(size=(m, d))
        case "normal":
            return rng.normal(size=(m, d))
        case "mixture":
            centers = 4.0 * np.eye(5, d)  # 5.7 standard deviations apart
            return make_blobs(m, centers=centers, random_state=seed)[0]
        case "digits":
            return load_digits().data
        case shape:
            return make_shape(shape, 0.1, n_samples=m, random_state=seed)[0]


def map_n(task: dict[str, Any]) -> dict[str, Any]:
    """Find k by both rules, and the bounds, for every n below m."""
    warnings.simplefilter("ignore")
    X = draw(task["kind"], task["d"], task["m"], task["set"])
    ns = [n for n in NS if n < X.shape[0]]
    pairs = eigenpairs(knn_graph(X), max(ns), random_state=0)
    if not pairs.converged:
        raise RuntimeError(pairs.message)
    D = embed(pairs.values, pairs.vectors)
    path = sweep(D, max_clusters=MAX_K, full_path=True, random_state=0).path[1:]
    out: dict[str, Any] = {"n": ns, "k": [], "watershed": [], "log_p": []}
    for n in ns:
        part = np.ascontiguousarray(D[:, :n])
        log_p = [largest_bound(part, step.labels, step.k) for step in path]
        ks = [step.k for step in path]
        out["k"].append(decide(ks, log_p))
        out["watershed"].append(decide(ks, log_p, stopping="watershed"))
        out["log_p"].append(log_p)
    return out


def largest_bound(D: Any, labels: Any, k: int) -> float:
    """Return the largest log p over the pairs."""
    log_p = zz_top(D, labels)[np.triu_indices(k, 1)]
    return float(max(log_p.max(), -math.log(10) * 1e6))
