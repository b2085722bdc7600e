"""Borders of structureless sets, the table made of them, and k in sets of all kinds."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.stats import halfnorm

from benchmarks.calibration.families import (
    CHECKED,
    CLUSTERED,
    DEVELOPED,
    HARD,
    SEEN,
    STRUCTURELESS,
    at_hand,
    clustered,
    structureless,
)
from benchmarks.paper.rivals import RIVALS
from benchmarks.paper.shapes import GRAPHS, figure2_tasks, points
from specialk_gpu import SpecialK, decide, eigenpairs, nearest_neighbors, neighbors_graph
from specialk_gpu.baselines import eigengap, stsc
from specialk_gpu.datasets import load_mnist
from specialk_gpu.selection.cut_test import (
    SHORTCUTS,
    THIN,
    WIDE,
    CutGraphs,
    has_shortcuts,
    touching_pairs,
)
from specialk_gpu.selection.cuts import CutGraph, Cuts, connected_parts, heaviest_cut
from specialk_gpu.selection.null_distribution import log_p_of, z_of

__all__ = [
    "border",
    "border_tasks",
    "cost",
    "cost_tasks",
    "decision",
    "decision_tasks",
    "fitted_laws",
    "paper_k",
    "paper_tasks",
    "second_look",
]

SETS = {60: 100, 150: 100, 300: 100, 1000: 100, 3000: 40, 10000: 15}
LENGTHS = (8, 10, 12, 14, 16, 18, 20, 24, 28, 34, 40, 50, 70, 100, 200, 400, 800, 1600, 3200)
LEVELS = (0.1, 0.05)  # at which no family may exceed the law
N_ROUNDS = 200  # of the fit
LEAST = 0.3  # scale, however short
NOTHING = {"between": 1.0, "within": 0.0, "length": 1.0}
CHECK_SETS = {300: 40, 1000: 40, 3000: 20, 10000: 5, 20000: 2}
HARD_SETS = {150: 40, 300: 40, 1000: 40}
N_CLUSTERED, N_LARGE = 20, 5  # sets of a family that is drawn, and of those of 5,000 rows
N_COMPONENTS = (200, 500, 1000)
ALPHA = 0.05
MAX_K = 16
METHODS = ("SpecialK", "STSC", "PGMeans", "XMeans", "gap statistic")
N_RIVALS = 50  # columns of D, as in the paper's experiments


def border_tasks() -> list[dict[str, Any]]:
    """List the structureless sets for development."""
    return [
        {"family": family, "d": d, "m": m, "set": i}
        for m, n_sets in SETS.items()
        for family in DEVELOPED
        for d in STRUCTURELESS[family][1]
        for i in range(n_sets)
    ]


def border(task: dict[str, Any]) -> dict[str, Any]:
    """Split a set in two, measure the border in both graphs, and how wide the widest gap is."""
    warnings.simplefilter("ignore")
    X = structureless(task["family"], task["d"], task["m"], task["set"])
    # k-means runs on the 50 largest columns: more than so many change no label
    settings = {"criterion": "zz_top", "n_components": 50, "backend": "numpy", "random_state": 0}
    model = SpecialK(n_clusters=2, **settings).fit(X)
    graphs, out = CutGraphs(model.affinity_matrix_, X), {}
    for name, graph in (("near", graphs.near), ("wide", graphs.wide)):
        if graph is not None:
            out[name] = measured_border(graph, model.labels_)
    return out | {"gap": _widest_gap(X)}


def measured_border(graph: CutGraph, labels: np.ndarray) -> dict[str, float]:
    """Measure the border between two clusters; of their parts the one with the largest p.

    A part that no edge joins to others is compared with its own heaviest cut.
    """
    part, owner, core = connected_parts(graph, labels, 2)
    cuts, nodes = Cuts(graph, part, len(owner)), np.arange(len(owner))
    pairs = touching_pairs(cuts, nodes)
    alone = np.setdiff1d(nodes, pairs)
    between, within = cuts.measure(pairs)
    own = [heaviest_cut(graph.S[rows][:, rows]) for rows in map(cuts.rows, alone)]
    between, within = np.append(between, np.zeros(len(own))), np.append(within, own)
    sizes = np.append(cuts.sizes[pairs].sum(axis=1), np.full(len(own), len(labels)))
    length = sizes / np.maximum(within, 1e-300)
    worst = int(log_p_of(between, within, length, "rows").argmax())
    side = np.append(core[pairs].min(axis=1), core[alone])
    names, values = ("between", "within", "length"), (between, within, length)
    found = {name: float(x[worst]) for name, x in zip(names, values, strict=True)}
    return found | {"side": int(side[worst])}


def second_look(result: dict[str, Any]) -> tuple[dict[str, float], float] | None:
    """Return the border that the law of rows judges, and how many times wider; or None.

    Sets that are too small for the wide graph count, though the law of graphs judges them.
    """
    near, wide = result["near"], result.get("wide")
    if near["within"] >= THIN or wide is None:
        return near, 1.0
    if near["side"] <= WIDE:
        return None
    return wide, SHORTCUTS if has_shortcuts(near["within"], wide["within"]) else 1.0


def _widest_gap(X: np.ndarray) -> int:
    """Return the largest number of neighbours with which the graph falls apart."""
    nearest = nearest_neighbors(X, min(WIDE, len(X) - 1)).indices

    def falls_apart(r: int) -> bool:
        return connected_components(neighbors_graph(nearest[:, :r]), directed=False)[0] > 1

    return bisect_left(range(1, nearest.shape[1] + 1), True, key=lambda r: not falls_apart(r))  # noqa: FBT003 - the value that is looked for


def fitted_laws(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Fit the law of borders where the rows are known, and that of graphs alone.

    A border that the first does not judge has z = 0 there.
    """
    near = [(row["result"]["near"], 1.0) for row in rows]
    groups = [f"{row['task']['family']} {row['task']['d']} {row['task']['m']}" for row in rows]
    seen = [second_look(row["result"]) or (NOTHING, 1.0) for row in rows]
    return {"graph": fitted_law(near, groups), "rows": fitted_law(seen, groups)}


def fitted_law(
    found: list[tuple[dict[str, float], float]], names: list[str]
) -> dict[str, list[float]]:
    """Fit the scale of z over the length: the least, rising, that no group of sets exceeds.

    Borders come with how many times wider the law is for them. A group, of one name, exceeds the
    law if more than a share p of it lies beyond the law's quantile of p, for one of the levels.
    """
    length = np.log([border["length"] for border, _ in found])
    z = z_of(*([border[name] for border, _ in found] for name in ("between", "within")))
    z /= [wider for _, wider in found]
    names = np.array(names)
    groups = [names == name for name in np.unique(names)]
    at, scale = np.log(LENGTHS), np.full(len(LENGTHS), LEAST)
    for _ in range(N_ROUNDS):
        worst = np.ones(len(LENGTHS))
        for own in groups:
            ratio = z[own] / np.interp(length[own], at, scale)
            excess = max(np.quantile(ratio, 1 - p) / halfnorm.isf(p) for p in LEVELS)
            # where the sets are that make the excess, the scale has to rise
            beyond = length[own][ratio >= np.quantile(ratio, 1 - max(LEVELS))]
            first = max(0, np.searchsorted(at, beyond.min(), "right") - 1)
            near = slice(first, np.searchsorted(at, beyond.max()) + 1)
            worst[near] = np.maximum(worst[near], min(excess, 1.1))
        if worst.max() <= 1:
            break
        scale = np.maximum.accumulate(scale * worst)
    return {"length": list(LENGTHS), "scale": [round(float(x), 3) for x in scale]}


def decision_tasks(part: str, *, everything: bool = False) -> list[dict[str, Any]]:
    """List the sets whose k is to be found, and by which method; those at hand, or all."""
    families = {"develop": SEEN, "check": CHECKED, "hard": HARD}[part]
    sizes = HARD_SETS if part == "hard" else CHECK_SETS
    out = [
        {"family": family, "d": d, "m": m, "set": i, "method": "SpecialK"}
        for m, n_sets in sizes.items()
        for family in families
        for d in STRUCTURELESS[family][1]
        for i in range(n_sets)
    ]
    for family, (_, _, m, half) in CLUSTERED.items():
        if half.startswith(part) and (everything or at_hand(family)):
            sets = range((N_LARGE if m >= 5000 else N_CLUSTERED) if m else 1)
            out += [
                {"family": family, "set": i, "method": method} for method in METHODS for i in sets
            ]
    return out


def decision(task: dict[str, Any]) -> dict[str, Any]:
    """Find k by one method; by ours, and by the paper's rules for several n beside it."""
    warnings.simplefilter("ignore")
    if task["family"] in STRUCTURELESS:
        X = structureless(task["family"], task["d"], task["m"], task["set"])
        every_n = task["set"] % 10 == 0 and task["m"] <= 3000
        return _ours(X, N_COMPONENTS if every_n else N_COMPONENTS[:1], full_path=False)
    X = clustered(task["family"], task["set"])
    if task["method"] == "SpecialK":
        return _ours(X, N_COMPONENTS, full_path=True)
    if task["method"] == "STSC":
        return {"k": stsc(X, MAX_K, random_state=0).n_clusters}
    settings = {"criterion": "zz_top", "backend": "numpy", "random_state": 0}
    model = SpecialK(n_clusters=1, n_components=N_RIVALS, **settings).fit(X)
    return {"k": RIVALS[task["method"]](model.embedding_, MAX_K)}


def _ours(X: np.ndarray, ns: tuple[int, ...], *, full_path: bool) -> dict[str, Any]:
    """Return k by the cut test, of rows and of their graph alone, and by the paper's rules.

    The paper's for each n below the number of rows; without the full path, from where it stops.
    """
    common = {"backend": "numpy", "random_state": 0}
    model = SpecialK(ALPHA, **common).fit(X)
    W, own = model.affinity_matrix_, common | {"affinity": "precomputed"}
    out: dict[str, Any] = {"n": [n for n in ns if n < X.shape[0]] or [X.shape[0] - 1]}
    out["cut"] = int(model.n_clusters_)
    out["log_p"] = [step.log_p for step in model.path_[1:]]
    out["graph"] = int(SpecialK(ALPHA, **own).fit(W).n_clusters_)
    out |= {"first": [], "watershed": []}
    own |= {"criterion": "zz_top", "max_clusters": MAX_K, "full_path": full_path}
    for n in out["n"]:
        steps = SpecialK(n_components=n, **own).fit(W).path_[1:]
        ks, bounds = [step.k for step in steps], [step.log_p for step in steps]
        for stopping in ("first", "watershed"):
            out[stopping].append(decide(ks, bounds, stopping=stopping))
    if not full_path:
        return out
    lazy = 0.5 * (W + sparse.identity(W.shape[0]))
    values = eigenpairs(sparse.csr_matrix(lazy), min(MAX_K + 1, W.shape[0] - 1), random_state=0)
    out["eigengap"] = eigengap(values.values, min(MAX_K, W.shape[0] - 2))
    return out


def cost_tasks() -> list[dict[str, Any]]:
    """List a set of each family with clusters, and all of MNIST."""
    out = [{"family": family} for family in CLUSTERED if at_hand(family)]
    return out + ([{"family": "MNIST"}] if at_hand("MNIST") else [])


def cost(task: dict[str, Any]) -> dict[str, Any]:
    """Fit with all but alpha as it is by default, and time the second fit."""
    warnings.simplefilter("ignore")
    X = load_mnist()[0] if task["family"] == "MNIST" else clustered(task["family"], 0)
    model = SpecialK(alpha=ALPHA, backend="numpy", random_state=0)
    for _ in range(1 if task["family"] == "MNIST" else 2):
        model.fit(X)
    found = {"k": int(model.n_clusters_), "m": len(X), "timings": model.timings_}
    return found | {"log_p": [step.log_p for step in model.path_[1:]]}


def paper_tasks() -> list[dict[str, Any]]:
    """List the sets of the paper's Figure 2."""
    return [task for task in figure2_tasks(rivals=False) if task["method"] == "SpecialK"]


def paper_k(task: dict[str, Any]) -> dict[str, Any]:
    """Return k and the log p of every level, with both graphs."""
    warnings.simplefilter("ignore")
    out = {}
    for graph, affinity in GRAPHS.items():
        model = SpecialK(affinity=affinity, backend="numpy", random_state=0).fit(points(task))
        log_p = [step.log_p for step in model.path_[1:]]
        out[graph] = {"cut": int(model.n_clusters_), "log_p": log_p}
    return out
