"""The pages that show this library beside other methods, from what benchmarks.compare found."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.compare import CONTENDERS, OURS, REAL, TOLD_K_AND_GRAPH
from benchmarks.compare_sets import SETS
from benchmarks.markdown import NOT_YET, machine, megabytes, seconds, table, with_figures
from benchmarks.paper.runner import read, stamps
from benchmarks.stamp import RESULTS

__all__ = ["beside_others", "comparison", "waited"]

SHOWN = ("MNIST, 60,000", "Fashion-MNIST, 60,000")  # on the page about other methods


def compared() -> dict[str, dict[str, dict[str, Any]]]:
    """Return what benchmarks.compare has found, by set and contender; errors too."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in read(RESULTS / "compare.jsonl"):
        task = row["task"]
        result = row.get("result") or {"error": row["error"]}
        found.setdefault(task["set"], {})[task["contender"]] = result
    return found


def named(who: str) -> str:
    """Name a contender, with a star where k is given."""
    return f"{who} *" if CONTENDERS[who].must_be_told_k else who


def state(row: dict[str, Any]) -> str:
    """Say in a word why there are no figures."""
    if "error" in row:
        return "not installed" if "is not installed" in row["error"] else "failed"
    return "stopped" if "stopped" in row else ""


def waited() -> str:
    """Return the time limit of contenders, in brackets; "" if none was stopped."""
    rows = (row for found in compared().values() for row in found.values())
    found = {x for row in rows if (x := row.get("stopped", "").partition("within ")[2])}
    return f" ({' or '.join(sorted(found))})" if found else ""


def first_and_warm(row: dict[str, Any]) -> str:
    """Write the seconds of the first call and of the warm ones."""
    warm = f", {seconds(row['warm'])}" if row["warm"] is not None else ""
    return f"{seconds(row['first'])}{warm}"


def over_seeds(row: dict[str, Any], name: str) -> Any:
    """Return the median of a number over all seeds, and of k the lower median, which occurs."""
    middle = statistics.median_low if name == "k" else statistics.median
    return middle(one[name] for one in [row, *row.get("others", [])])


def agreement(row: dict[str, Any]) -> str:
    """Write k, ARI and AMI."""
    k, ari, ami = (over_seeds(row, name) for name in ("k", "ari", "ami"))
    return f"{k}, {ari:.2f}, {ami:.2f}"


def ks(row: dict[str, Any]) -> str:
    """Write each k that was found, with the number of seeds."""
    found = Counter(one["k"] for one in [row, *row.get("others", [])])
    return ", ".join(f"{k} ({n})" for k, n in sorted(found.items()))


def beside_table(
    found: dict[str, dict[str, dict[str, Any]]], cell: Callable[[dict[str, Any]], str]
) -> str:
    """Lay out contenders by sets."""
    names = [name for name in SETS if name in found]
    lines = []
    for who in CONTENDERS:
        rows = [found[name].get(who) for name in names]
        if any(rows):
            cells = ["" if row is None else state(row) or cell(row) for row in rows]
            lines.append([named(who), *cells])
    return table(["", *names], lines)


def on_real_sets(found: dict[str, dict[str, Any]]) -> str:
    """Lay out what each contender finds on the real sets."""
    lines = []
    for who, result in found.items():
        rows = result.get("sets", [])
        done = [row for row in rows if "k" in row]
        if not done:
            lines.append([named(who), state(result), *5 * [""]])
            continue
        right = Counter(row["verdict"] for row in done if "verdict" in row)
        verdicts = f"{right['right']} of {sum(right.values())}" if right else ""
        apart = [row["ari"] for row in done if "ari" in row and row["tier"] != "overlap"]
        means = [statistics.mean(row[key] for row in done if key in row) for key in ("ari", "ami")]
        cells = [f"{len(done)}", verdicts, *(f"{x:.3f}" for x in means)]
        cells.append(f"{statistics.mean(apart):.3f}" if apart else "")
        spent = statistics.median(row["seconds"] for row in done)
        lines.append([named(who), *cells, seconds(spent)])
    head = ["", "sets", "right k", "mean ARI", "mean AMI", "ARI, no overlap", "median time"]
    return table(head, lines)


def beside_others() -> str:
    """Lay out all that benchmarks.compare has found."""
    found = compared()
    if not found:
        return NOT_YET
    real = found.pop(REAL, {})
    parts = []
    if found:
        parts += ["First call, and warm:", beside_table(found, first_and_warm)]
        parts += ["k, ARI and AMI, medians over seeds:", beside_table(found, agreement)]
        parts += ["Peak memory:", beside_table(found, megabytes)]
    if real:
        parts += [
            "Real sets, whose acceptable k were written down before any method ran. Means are over "
            "the sets with known classes that a contender did, the last ARI over those of them "
            "whose classes do not overlap:",
            on_real_sets(real),
        ]
    parts += [verification(found)] if verification(found) else []
    failed = [
        f"- {who}, {name}: {row['error'].replace('|', '/')}"
        for name, rows in {**found, REAL: real}.items()
        for who, row in rows.items()
        if "error" in row
    ]
    parts += ["Errors:", "\n".join(failed)] if failed else []
    return "\n\n".join([*parts, f"Measured on {machine(stamps(RESULTS / 'compare.jsonl')[-1])}"])


def verification(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Say what part of a fit with a given k is the search for missed eigenpairs."""
    rows = {name: own.get(TOLD_K_AND_GRAPH, {}) for name, own in found.items()}
    spent = [
        f"{seconds(row['verification'])} of {seconds(row['warm'] or row['first'])} ({name})"
        for name, row in rows.items()
        if "verification" in row
    ]
    if not spent:
        return ""
    return (
        "With k and the graph given, a fit searches for eigenpairs that the solver missed, which "
        f"SpectralClustering does not. This takes {', '.join(spent)}."
    )


def ranking(found: dict[str, dict[str, Any]]) -> str:
    """Lay out the contenders on one set by ARI, with their time as a multiple of ours."""
    done = {who: row for who, row in found.items() if "ari" in row}

    def spent(row: dict[str, Any]) -> float:
        return row["first"] if row["warm"] is None else row["warm"]

    ours = spent(done[OURS]) if OURS in done else None
    lines = []
    for who, row in sorted(done.items(), key=lambda one: -over_seeds(one[1], "ari")):
        times = f"{spent(row) / ours:.2f}" if ours else ""
        ari = f"{over_seeds(row, 'ari'):.3f}"
        lines.append([named(who), ks(row), ari, seconds(spent(row)), times])
    none = [f"{who} ({state(row)})" for who, row in found.items() if who not in done]
    left = f"\n\nNo answer: {', '.join(none)}." if none else ""
    return table(["", "k (seeds)", "ARI", "time", "times ours"], lines) + left


def comparison(text: str) -> str:
    """Return docs/comparison.md with its figures replaced."""
    found = compared()
    rankings = [f"{name} rows:\n\n{ranking(found[name])}" for name in SHOWN if name in found]
    if not rankings:
        return with_figures(text, f"\n{NOT_YET}\n")
    about = """
Contenders by agreement with the classes (ARI, the median over seeds). A star: k was given. *Times
ours*: below 1 it is faster than SpecialK. {doc}`benchmarks` has the other sets, and how this was
measured."""
    return with_figures(text, "\n\n".join([about, *rankings]) + "\n")
