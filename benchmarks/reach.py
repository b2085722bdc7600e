"""Hold the results of a GPU to the figures that the design wants reached.

    python -m benchmarks.reach RESULTS

Reads what benchmarks/device.sh wrote: MNIST train and a million points, warm unless it says cold.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.suite import OURS
from benchmarks.suite.suite import best_seconds

Found = float | bool | None


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """Read folder/name.json if it is there."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def figures(folder: Path) -> list[tuple[str, float, str, Found]]:
    """Return for each figure its name, the limit, the unit, and what was measured."""

    def fit(value: Callable[[dict[str, Any]], float]) -> Found:
        """Take the lowest of the warm fits of MNIST."""
        content = read(folder, "mnist-cuda")
        return min(map(value, content["fits"][1:]), default=None) if content else None

    def stage(name: str, value: Callable[[dict[str, Any]], float], **case: Any) -> Found:
        """Take our row of a case."""
        content = read(folder, f"bench-{name}-cuda") or {"rows": []}
        for row in content["rows"]:
            ours = row["contender"] == OURS and row["status"] == "ok"
            if ours and case.items() <= row["case"].items():
                return value(row)
        return None

    def graph(run: dict[str, Any]) -> float:
        return sum(run["stages"].get(name, 0.0) for name in ("neighbours", "graph"))

    def first(cache: str) -> Found:
        content = read(folder, "first_call-cuda") or {}
        return content[cache]["to_first_answer"] if cache in content else None

    def radius() -> Found:
        content = read(folder, "radius-cuda")
        return sum(content["timings"].values()) if content else None

    million = {"m": 1_000_000, "d": 128}
    return [
        ("exact kNN, MNIST", 0.03, "s", stage("knn", best_seconds, m=60_000)),
        ("exact kNN graph in a fit", 0.03, "s", fit(graph)),
        ("200 eigenpairs", 0.05, "s", stage("eigenpairs", best_seconds, m=60_000, n=200)),
        ("1000 eigenpairs", 0.35, "s", stage("eigenpairs", best_seconds, m=60_000, n=1000)),
        ("k-means and bounds, k = 2..11", 0.1, "s", stage("sweep", best_seconds, m=60_000)),
        ("whole fit, n = 1000", 0.6, "s", stage("fit", best_seconds, m=60_000, n=1000)),
        ("whole fit, from host memory", 0.6, "s", fit(lambda x: x["seconds"])),
        ("first fit, empty kernel cache", 6, "s", first("empty_cache")),
        ("first fit, warm kernel cache", 6, "s", first("warm_cache")),
        ("W_R of MNIST, n = 1000, cold", 20, "s", radius()),
        ("a million points, n = 200", 15, "s", stage("fit", best_seconds, **million)),
        (
            "its memory on the device",
            40,
            "GB",
            stage("fit", lambda row: row["device_bytes"] / 1e9, **million),
        ),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    folder = parser.parse_args().results
    print(f"{'figure':32} {'reach':>9} {'measured':>12}")
    for name, limit, unit, found in figures(folder):
        measured = "not measured" if found is None else f"{found:.3f} {unit}"
        verdict = "" if found is None else "reached" if found <= limit else "MISSED"
        print(f"{name:32} {f'{limit:g} {unit}':>9} {measured:>12}  {verdict}".rstrip())
    if repeated := read(folder, "repeat-cuda"):
        print(f"{len(repeated['fits'])} fits the same bit for bit: {repeated['same']}")


if __name__ == "__main__":
    main()
