"""k in sets of one cluster that the law was not made of, in composites of these, and in stress."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from benchmarks.calibration.families import CHECK, STRESS, composite, draw
from benchmarks.paper.shapes import GRAPHS, figure2_tasks, points
from specialk_gpu import SpecialK

__all__ = ["ALPHAS", "LARGE", "decision", "paper_k", "paper_tasks", "tasks"]

ALPHAS = (0.01, 0.05)
SETS = {300: 100, 1000: 100, 3000: 100}
STRESS_SETS = {1000: 20}
COMPOSITES = {2: 100, 5: 100, 20: 60}
LARGE = {
    "square": 40_000,
    "Gaussian, d = 2": 40_000,
    "Student t of 3, d = 2": 40_000,
    "Student t of 3, d = 10": 20_000,
    "gamma of 2, d = 6": 20_000,
    "skewed factors, d = 10": 20_000,
}


def tasks() -> list[dict[str, Any]]:
    """List the sets."""
    out = [{"J": J, "set": i} for J, n_sets in COMPOSITES.items() for i in range(n_sets)]
    for families, sizes in ((CHECK, SETS), (STRESS, STRESS_SETS)):
        out += [
            {"family": family, "m": m, "set": i}
            for m, n_sets in sizes.items()
            for family in families
            for i in range(n_sets)
        ]
    out += [{"family": family, "m": m, "set": i} for family, m in LARGE.items() for i in range(2)]
    return out


def decision(task: dict[str, Any]) -> dict[str, Any]:
    """Return k at each alpha, and the log p of two clusters or more."""
    X = composite(task["J"], task["set"]) if "J" in task else draw(**_of(task))
    return k_at_each_alpha(X)


def _of(task: dict[str, Any]) -> dict[str, Any]:
    return {"family": task["family"], "m": task["m"], "number": task["set"]}


def k_at_each_alpha(X: np.ndarray, **settings: Any) -> dict[str, Any]:
    """Fit at the largest alpha; at a smaller one only where that may find fewer clusters."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for alpha in sorted(ALPHAS, reverse=True):
        if found.get("k", {}).get(f"{max(ALPHAS)}") != 1:
            model = SpecialK(alpha, backend="numpy", random_state=0, **settings).fit(X)
        found.setdefault("k", {})[f"{alpha}"] = int(model.n_clusters_)
        if alpha == max(ALPHAS):
            found["log10_p"] = [step.log_p / math.log(10) for step in model.path_[1:]]
    return found


def paper_tasks() -> list[dict[str, Any]]:
    """List the sets of the paper's Figure 2."""
    return [task for task in figure2_tasks(rivals=False) if task["method"] == "SpecialK"]


def paper_k(task: dict[str, Any]) -> dict[str, Any]:
    """Return k at each alpha, with both graphs."""
    X = points(task)
    return {name: k_at_each_alpha(X, affinity=affinity) for name, affinity in GRAPHS.items()}
