"""The law of borders: the least p of a search in sets of one cluster, and the scale fitted to it.

Of each set all trees of a search are looked at, and of each tree the least clear gap of 2, 3 and 4
clusters. T is the least p of these. The law of one border is a half-normal one, whose scale depends
on the length of the two clusters; it is fitted so that in no family of one size T is below a level
more often than that level says, rounded up to whole sets.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.calibration.families import LAW, draw
from specialk_gpu import eigenpairs, knn_graph
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.cut_test import gap_by_cut_test
from specialk_gpu.selection.null_distribution import log_p_under_null
from specialk_gpu.selection.parts import SHORTCUTS
from specialk_gpu.selection.search import searched_trees

__all__ = ["fitted_laws", "gaps", "least_log_p", "tail", "tail_tasks", "tasks"]

SETS = {300: 60, 1000: 50, 3000: 24, 10000: 2}
SETS_OF_GRAPHS = {300: 60, 1000: 20}
TAIL = ("square", "Gaussian, d = 2", "Gaussian, d = 5", "exponential, d = 2")  # many small sets
TAIL_ROWS, TAIL_SETS, BATCH = 300, range(1000, 6000), 100  # no set that the law was made of
RECORDED = ("log_p", "between", "within", "length", "law")  # of a gap
WITHOUT_LAW = ("valley", "isolation")
LEVELS = (0.05, 0.01)
LOOKED = (2, 3, 4)  # clusters
LIKELY = math.log(0.5)  # log p from which a level does not matter
LENGTHS = (8, 12, 16, 20, 28, 40, 55, 75, 100, 140, 200, 400, 800, 1600, 3200)
LEAST = 0.3  # scale, however short
STEP, N_STEPS = 1.03, 100  # by which the scale rises where a family exceeds it, and how often


def tasks() -> list[dict[str, Any]]:
    """List the sets; of some their graph alone is looked at."""
    rows = [
        {"family": family, "m": m, "set": i}
        for m, n_sets in SETS.items()
        for family in LAW
        for i in range(n_sets)
    ]
    graphs = [
        {"family": family, "m": m, "set": i, "graph": True}
        for m, n_sets in SETS_OF_GRAPHS.items()
        for family in LAW
        for i in range(n_sets)
    ]
    return rows + graphs


def gaps(task: dict[str, Any]) -> dict[str, Any]:
    """Return the least clear gaps of all trees that a search merges."""
    warnings.simplefilter("ignore")
    X = draw(task["family"], task["m"], task["set"])
    W = knn_graph(X, 10)
    graphs = CutGraphs(W) if task.get("graph") else CutGraphs(W, Rows(X))
    found = []
    for tree in searched_trees(
        graphs, lambda n: eigenpairs(W, min(n, len(X) - 1), random_state=0), max(LEVELS)
    ):
        for k in LOOKED:
            if k > tree.n_leaves or tree.log_p[k - 1] >= LIKELY:
                continue
            gap = gap_by_cut_test(graphs, graphs.distinct(tree.labels(k)), k)
            found.append({"k": k} | {x: getattr(gap, x) for x in RECORDED} | factor_of(gap))
    return {"gaps": found}


def tail_tasks() -> list[dict[str, Any]]:
    """List many small sets, some at a time."""
    return [
        {"family": family, "m": TAIL_ROWS, "first": first}
        for family in TAIL
        for first in TAIL_SETS[::BATCH]
    ]


def tail(task: dict[str, Any]) -> dict[str, Any]:
    """Return log10 T of some small sets, by the law at hand."""
    numbers = range(task["first"], task["first"] + BATCH)
    known = {"family": task["family"], "m": task["m"]}
    found = [least_log_p(gaps(known | {"set": i})["gaps"])[0] for i in numbers]
    return {"log10_T": [round(x / math.log(10), 3) + 0.0 for x in found]}


def factor_of(gap: Any) -> dict[str, float]:
    """Return the log of what the p of a cut was multiplied by, whatever the law."""
    if gap.law in WITHOUT_LAW:
        return {}
    border = gap.between, gap.within, gap.length, *law_of(gap.law)
    return {"log_factor": gap.log_p - float(log_p_under_null(*border))}


def law_of(name: str) -> tuple[str, float]:
    """Return the law that a gap names, and how many times wider it is."""
    return "graph" if name == "graph" else "rows", SHORTCUTS if name == "shortcuts" else 1.0


def least_log_p(found: list[dict[str, Any]], laws: Any = None) -> tuple[float, dict[str, Any]]:
    """Return the least log p of the gaps of a set, by other laws than those at hand, and that gap.

    What else decides than the cut, and what it is multiplied by, stays.
    """
    if not found:
        return 0.0, {}
    log_p = [one["log_p"] if laws is None else _by(one, laws) for one in found]
    least = int(np.argmin(log_p))
    return log_p[least], found[least]


def _by(one: dict[str, Any], laws: Any) -> float:
    if one["law"] in WITHOUT_LAW:
        return one["log_p"]
    border = one["between"], one["within"], one["length"], *law_of(one["law"])
    return min(0.0, float(log_p_under_null(*border, laws=laws)) + one["log_factor"])


def fitted_laws(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Fit the laws of rows and of graphs, together."""
    laws = {
        name: (np.array(LENGTHS, float), np.full(len(LENGTHS), LEAST)) for name in ("rows", "graph")
    }
    groups: dict[tuple[Any, ...], list[list[dict[str, Any]]]] = {}
    for row in rows:
        task = row["task"]
        key = task["family"], task["m"], task.get("graph", False)
        groups.setdefault(key, []).append(row["result"]["gaps"])
    every_least = _every_least([own for sets in groups.values() for own in sets])
    for _ in range(N_STEPS):
        rise = {name: np.zeros(len(LENGTHS), dtype=bool) for name in laws}
        least = iter(every_least(laws))
        for sets in groups.values():
            found = sorted((next(least) for _ in sets), key=lambda one: one[0])
            for level in LEVELS:
                allowed = math.ceil(level * len(sets))
                beyond = [one for log_p, one in found if log_p <= math.log(level)]
                if len(beyond) <= allowed:
                    continue
                for one in beyond:
                    if one["law"] in WITHOUT_LAW:
                        continue
                    at = np.searchsorted(LENGTHS, one["length"])
                    near = slice(max(0, at - 1), at + 1)
                    rise["graph" if one["law"] == "graph" else "rows"][near] = True
        if not any(x.any() for x in rise.values()):
            break
        for name, (length, scale) in laws.items():
            scale = np.maximum.accumulate(np.where(rise[name], STEP * scale, scale))
            laws[name] = length, scale
    return {
        name: {"length": list(LENGTHS), "scale": [round(float(x), 3) for x in scale]}
        for name, (_, scale) in laws.items()
    }


def _every_least(sets: list[list[dict[str, Any]]]) -> Callable[[Any], Iterator[Any]]:
    """Return `least_log_p` of all sets at once, as a function of the laws."""
    flat = [one for own in sets for one in own]
    fixed = np.array([one["log_p"] for one in flat])
    names = np.array([law_of(one["law"])[0] if "log_factor" in one else "" for one in flat])
    rows = {name: np.flatnonzero(names == name) for name in ("rows", "graph")}
    borders = {
        name: np.array(
            [
                (one["between"], one["within"], one["length"], law_of(one["law"])[1])
                for one in (flat[i] for i in at)
            ]
        ).T
        for name, at in rows.items()
    }
    factors = {name: np.array([flat[i]["log_factor"] for i in at]) for name, at in rows.items()}
    ends = np.cumsum([len(own) for own in sets])

    def every(laws: Any) -> Iterator[tuple[float, dict[str, Any]]]:
        log_p = fixed.copy()
        for name, at in rows.items():
            *border, wider = borders[name]
            found = log_p_under_null(*border, name, wider, laws)
            log_p[at] = np.minimum(0.0, found + factors[name])
        for own, end in zip(sets, ends, strict=True):
            if not own:
                yield 0.0, {}
                continue
            part = log_p[end - len(own) : end]
            least = int(part.argmin())
            yield float(part[least]), own[least]

    return every
