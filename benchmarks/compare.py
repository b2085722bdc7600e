"""Whole fits against the plain pipeline and ClustPy: seconds and peak memory of every stage.

    python -m benchmarks.compare --folder FOLDER --backend numpy

1,500 points in the plane, 1,797 digits, 10,000 and 60,000 images of MNIST, each with n = 200 and
n = 1000. Writes results/compare-BACKEND.json after each fit; fits that the file already has from
the same commit are not done again, so a run that was cut short can go on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.stamp import RESULTS, write
from benchmarks.suite.cases import cases
from benchmarks.suite.suite import run_cases, table
from specialk_gpu._environment import COMMIT


def done(path: Path) -> list[dict[str, Any]]:
    """Return the rows with a time that the file has from this commit."""
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    same = COMMIT and content["stamp"]["commit"] == COMMIT
    return [row for row in content["rows"] if row["status"] == "ok"] if same else []


def joined(rows: list[dict[str, Any]], kept: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, and those kept of other fits."""
    have = [(row["case"], row["contender"]) for row in rows]
    return rows + [row for row in kept if (row["case"], row["contender"]) not in have]


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="folder with MNIST's idx files; a mixture without")
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cuda"))
    parser.add_argument("--largest", type=int, default=60_000, help="rows at most")
    parser.add_argument("--repeats", type=int, default=15, help="warm calls at most (15)")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="of each contender")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    name = f"compare-{arguments.backend}"
    chosen = [
        case
        for size in ("medium", "large")
        for case in cases(size, mnist=bool(arguments.folder))
        if case.stage == "fit" and case.m <= arguments.largest
    ]
    kept = done(arguments.results / f"{name}.json")
    rows = run_cases(
        chosen,
        backend=arguments.backend,
        mnist=arguments.folder,
        repeats=arguments.repeats,
        time_limit=arguments.time_limit,
        kept=kept,
        keep=lambda rows: write(name, {"rows": joined(rows, kept)}, arguments.results),
        tell=lambda line: print(line, flush=True),
    )
    print(table(rows))


if __name__ == "__main__":
    main()
