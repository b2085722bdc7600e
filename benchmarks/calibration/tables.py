"""Counts and tables of what decides by default, from the files of results.

Files that were measured before fragments and merging have "calibrated", k for each n, where later
ones have "cut"; "log_p_graph", of the split in two, where later ones have "graph", a k; and for the
paper's sets log p alone.
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

from benchmarks.calibration.families import CLUSTERED, STRUCTURELESS
from benchmarks.calibration.study import ALPHA, METHODS, N_COMPONENTS, decision_tasks
from benchmarks.markdown import OLD_RULE, table
from benchmarks.paper.runner import read
from benchmarks.paper.shapes import TRUE_K
from benchmarks.stamp import RESULTS
from specialk_gpu import decide

__all__ = [
    "all_false_splits",
    "cost",
    "false_splits",
    "false_splits_of_graphs",
    "gaps",
    "paper_sets",
    "paper_verdict",
    "right_k",
    "rows_of",
    "stability",
]

TESTS = ("bottlenecks", "fragments", "merging", "polishing")  # stages; the first in old results
LOW_NOISE = 0.1  # up to which two moons, or circles, are two


def rows_of(part: str) -> list[dict[str, Any]]:
    """Return the rows of a part that have a result, of the sets that belong to it."""
    rows = [row for row in read(RESULTS / f"calibration-{part}.jsonl") if "result" in row]
    if part not in ("check", "develop"):
        return rows
    asked = [json.dumps(task, sort_keys=True) for task in decision_tasks(part, everything=True)]
    return [row for row in rows if json.dumps(row["task"], sort_keys=True) in set(asked)]


def share(found: list[bool]) -> str:
    """Write how many of how many."""
    return f"{sum(found):,} of {len(found):,}"


def ours(result: dict[str, Any], place: int) -> int:
    """Return the k that was found by default; of old results that for one n."""
    return result["cut"] if "cut" in result else result["calibrated"][place]


def rule_of(results: list[dict[str, Any]]) -> str:
    """Name the rule that was the default when these were measured."""
    return "the default" if all("cut" in result for result in results) else OLD_RULE


def false_splits(part: str, families: tuple[str, ...]) -> str:
    """Count false splits by family and size: ours, and in brackets the paper's with n = 200."""
    rows = [row for row in rows_of(part) if "d" in row["task"]]
    sizes = sorted({row["task"]["m"] for row in rows})
    lines = []
    for family in families:
        for d in STRUCTURELESS[family][1]:
            own = [r for r in rows if (r["task"]["family"], r["task"]["d"]) == (family, d)]
            cells = []
            for m in sizes:
                found = [r["result"] for r in own if r["task"]["m"] == m]
                theirs = sum(r["first"][0] > 1 for r in found)
                cells.append(f"{share([ours(r, 0) > 1 for r in found])} ({theirs})")
            lines.append([family, d, *cells])
    rule = rule_of([row["result"] for row in rows])
    return table([f"family, by {rule}", "d", *(f"m = {m:,}" for m in sizes)], lines)


def all_false_splits(part: str, alpha: float) -> str:
    """Count the structureless sets that were split."""
    rows = [row["result"] for row in rows_of(part) if "d" in row["task"]]
    return share([min(row["log_p"][:1], default=0.0) <= math.log(alpha) for row in rows])


def false_splits_of_graphs() -> str:
    """Count those whose graph alone would be split."""
    rows = [r["result"] for part in ("check", "develop") for r in rows_of(part) if "d" in r["task"]]
    split = [r["graph"] > 1 if "graph" in r else r["log_p_graph"] <= math.log(ALPHA) for r in rows]
    return share(split)


def gaps() -> str:
    """Count the sets for the table with a gap whose bound is at most a level."""
    p = [r["task"]["m"] * 2.0 ** -r["result"]["gap"] for r in rows_of("null")]
    return " and ".join(
        f"at most {level} in {sum(x <= level for x in p)}" for level in (0.2, ALPHA)
    )


def stability() -> dict[str, str]:
    """Count the sets whose k is within one of itself for all n, by rule; of old results."""
    rows = [r for part in ("check", "develop") for r in rows_of(part)]
    rows = [r["result"] for r in rows if r["task"]["method"] == "SpecialK"]
    rows = [row for row in rows if len(row["n"]) > 1 and "calibrated" in row]
    return {
        rule: share([max(row[rule]) - min(row[rule]) <= 1 for row in rows])
        for rule in ("calibrated", "first")
    }


def right_k(half: str) -> str:
    """Count by family how often each method finds a right k."""
    rows = rows_of("develop" if half == "developed" else "check")
    ours_of = [row["result"] for row in rows if row["task"]["method"] == "SpecialK"]
    head = ["family", rule_of(ours_of), *(f"paper, n = {n}" for n in N_COMPONENTS), "watershed"]
    head += [*METHODS[1:], "eigengap"]
    lines, total = [], [[] for _ in head[1:]]
    for family, (_, right, _, own_half) in CLUSTERED.items():
        own = [row for row in rows if row["task"]["family"] == family]
        if own_half != half or not own:
            continue
        of_ours = [row["result"] for row in own if row["task"]["method"] == "SpecialK"]
        found = [[ours(r, -1) for r in of_ours]]
        found += [[r["first"][min(i, len(r["n"]) - 1)] for r in of_ours] for i in range(3)]
        found.append([r["watershed"][-1] for r in of_ours])
        for method in METHODS[1:]:
            found.append([r["result"]["k"] for r in own if r["task"]["method"] == method])
        found.append([r["eigengap"] for r in of_ours])
        cells = []
        for ks, everything in zip(found, total, strict=True):
            good = [k in right for k in ks]
            everything.append(sum(good) / max(len(good), 1))
            cells.append(share(good) if len(ks) > 1 else f"{ks[0] if ks else ''}")
        lines.append([f"{family} ({', '.join(map(str, right))})", *cells])
    means = [f"**{100 * statistics.mean(x):.0f} %**" if x else "" for x in total]
    return table(head, [*lines, ["**mean of the families**", *means]])


def paper_counts() -> list[tuple[str, str, float, list[int], int]]:
    """Count the right k on the sets of the paper's Figure 2, by both rules.

    Returns graph, shape, most noise, counts of the default with both levels and the paper's, of.
    """
    theirs = {
        json.dumps(row["task"], sort_keys=True): row["result"]
        for row in read(RESULTS / "paper-figure2.jsonl")
        if row["task"]["method"] == "SpecialK" and "result" in row
    }
    rows, out = rows_of("paper"), []
    for graph in ("W_C", "W_R"):
        for shape, k in TRUE_K.items():
            for most in (LOW_NOISE, 1.0):
                own = [
                    row
                    for row in rows
                    if row["task"]["shape"] == shape and row["task"]["noise"] <= most
                ]
                counts = [
                    sum(default_k(log_p_of(row["result"][graph]), alpha) == k for row in own)
                    for alpha in (ALPHA, 0.01)
                ]
                keys = [json.dumps(row["task"], sort_keys=True) for row in own]
                counts.append(sum(theirs[key][graph]["k"] == k for key in keys))
                out.append((graph, shape, most, counts, len(own)))
    return out


def paper_sets() -> str:
    """Lay these out."""
    lines, counts = [], paper_counts()
    for low, everything in zip(counts[::2], counts[1::2], strict=True):
        graph, shape = low[:2]
        cells = [f"{n} of {row[4]}" for row in (low, everything) for n in row[3]]
        lines.append([f"${graph[0]}_{graph[2]}$", f"{shape} ({TRUE_K[shape]})", *cells])
    found = [row["result"]["W_C"] for row in rows_of("paper")]
    rule = rule_of(found)
    names = [f"{rule}, {ALPHA}", f"{rule}, 0.01", "paper, 0.01"]
    head = ["graph", "set", *(f"noise to {LOW_NOISE}: {name}" for name in names)]
    return table(head + [f"all: {name}" for name in names], lines)


def paper_verdict() -> str:
    """Say where the paper's rule was right more often."""
    worse = [
        f"{shape} with ${graph[0]}_{graph[2]}$ and {'noise to 0.1' if most < 1 else 'any noise'} "
        f"({counts[1]} against {counts[2]})"
        for graph, shape, most, counts, _ in paper_counts()
        if counts[1] < counts[2]
    ]
    return f"in all but {', '.join(worse)}" if worse else "in all"


def log_p_of(found: dict[str, Any] | list[float]) -> list[float]:
    """Return the log p of k = 2, 3, ..., which old results hold alone."""
    return found["log_p"] if isinstance(found, dict) else found


def default_k(log_p: list[float], alpha: float) -> int:
    """Decide by the p of k = 2, 3, ..."""
    return decide(range(2, len(log_p) + 2), log_p, alpha=alpha) if log_p else 1


def cost() -> str:
    """Lay out what the calibrated p takes of a fit."""
    lines = []
    for row in rows_of("cost"):
        spent = row["result"]["timings"]
        total, own = sum(spent.values()), sum(spent.get(name, 0.0) for name in TESTS)
        found = row["result"]
        name = f"{row['task']['family']} (m = {found['m']:,})"
        lines.append([name, found["k"], f"{total:.2f}", f"{own:.3f}", f"{100 * own / total:.1f} %"])
    old = any("bottlenecks" in row["result"]["timings"] for row in rows_of("cost"))
    return table(
        [f"set, by {OLD_RULE if old else 'the default'}", "k", "fit, s", "the test, s", "share"],
        lines,
    )
