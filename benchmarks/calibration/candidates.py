"""Rules that were tried and not kept: the bound's effect, matched to what has none.

The effect of a split hardly changes with n (docs/method.md). So it can be held against that of sets
without clusters which are alike, in the dimension that the points have from near, or in the length
of the two clusters in sections. A split is accepted if the effect of every pair lies Z deviations
above the mean of these.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.calibration.families import (
    CHECKED,
    CLUSTERED,
    DEVELOPED,
    HARD,
    SEEN,
    STRUCTURELESS,
    clustered,
    structureless,
)
from specialk_gpu import SpecialK, cluster_stats, nearest_neighbors
from specialk_gpu.bottlenecks import Bottlenecks, borders
from specialk_gpu.bounds import exponents

__all__ = ["MATCHES", "candidate", "candidate_tasks", "fitted", "k_of"]

MATCHES = ("dimension", "length")
Z = 2.5  # deviations above the mean from which a split is accepted
SETS = {150: 20, 300: 20, 1000: 20, 3000: 5}
N_COMPONENTS, N_SETS, N_CLUSTERED = 200, 10, 5


def candidate_tasks() -> list[dict[str, Any]]:
    """List structureless sets to fit to, others, and sets with clusters."""
    out = []
    for families, sets in ((DEVELOPED, SETS), (CHECKED + SEEN + HARD, {300: N_SETS, 1000: N_SETS})):
        out += [
            {"family": family, "d": d, "m": m, "set": i}
            for family in families
            for d in STRUCTURELESS[family][1]
            for m, n_sets in sets.items()
            for i in range(n_sets)
        ]
    for family, (_, _, m, _) in CLUSTERED.items():
        if m < 5000:
            out += [{"family": family, "set": i} for i in range(N_CLUSTERED if m else 1)]
    return out


def candidate(task: dict[str, Any]) -> dict[str, Any]:
    """Return for each k the effect, dimension and length of every pair."""
    warnings.simplefilter("ignore")
    if "d" in task:
        X, most = structureless(task["family"], task["d"], task["m"], task["set"]), 2
    else:
        X, most = clustered(task["family"], task["set"]), max(CLUSTERED[task["family"]][1]) + 2
    model = SpecialK(
        n_components=min(N_COMPONENTS, 2 * len(X) // 3),
        max_clusters=most,
        full_path=True,
        selection="first",
        backend="numpy",
        random_state=0,
    ).fit(X)
    distances = nearest_neighbors(X, 10).distances
    shorter = np.where(distances[:, :-1] > 0, distances[:, :-1], np.nan)  # not to copies
    inverse = np.nanmean(np.log(distances[:, -1:] / shorter), axis=1)  # Levina and Bickel
    near, pairs = Bottlenecks(model.affinity_matrix_).near, {}
    for step in model.path_[1:]:
        length = {one.pair: one.length for one in borders(step.labels, step.k, near, "graph")}
        pairs[step.k] = [
            {
                "effect": effect,
                "dimension": 1 / float(inverse[np.isin(step.labels, pair)].mean()),
                "length": length.get(pair),
            }
            for pair, effect in _effects(model.embedding_, step.labels, step.k)
        ]
    return {"m": len(X), "pairs": pairs}


def _effects(D: np.ndarray, labels: np.ndarray, k: int) -> list[tuple[tuple[int, int], float]]:
    """Return the effect of every pair, the exponent of [HD19, Cor. 1] by column."""
    a, b = np.triu_indices(k, 1)
    effects = exponents(cluster_stats(D, labels, k), a, b) / D.shape[1]
    return list(zip(zip(a.tolist(), b.tolist(), strict=True), effects.tolist(), strict=True))


def _features(value: float, m: int) -> list[float]:
    x, y = np.log(value), np.log(m)
    return [1, x, x**2, x**3, y, x * y]


def fitted(rows: list[dict[str, Any]], match: str) -> tuple[np.ndarray, float]:
    """Regress the logarithm of the effect on what it is matched to; return also the deviation."""
    found = [
        (_features(pair[match], row["result"]["m"]), np.log(max(pair["effect"], 1e-6)))
        for row in rows
        if "d" in row["task"] and row["task"]["family"] in DEVELOPED
        for pair in row["result"]["pairs"]["2"]
        if pair[match] is not None
    ]
    A, y = (np.array(x) for x in zip(*found, strict=True))
    solution = np.linalg.lstsq(A, y, rcond=None)[0]
    return solution, float((y - A @ solution).std())


def k_of(result: dict[str, Any], match: str, fit: tuple[np.ndarray, float]) -> int:
    """Return the k before the first that is not accepted."""
    solution, deviation = fit
    for k, pairs in result["pairs"].items():
        for pair in pairs:
            if pair[match] is None:
                continue  # no edge joins the two
            expected = float(np.dot(_features(pair[match], result["m"]), solution))
            if np.log(max(pair["effect"], 1e-6)) <= expected + Z * deviation:
                return int(k) - 1
    return int(k)
