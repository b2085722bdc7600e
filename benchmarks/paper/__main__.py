"""The paper's experiments, one command each.

    python -m benchmarks.paper figure2|figure3|tables|sensitivity

A run that was stopped goes on where it was when it is started again. Results are JSON lines in
benchmarks/results/paper-NAME.jsonl; `python -m benchmarks.paper.draw` draws the figures of docs/
from them, and `python -m benchmarks.tables` writes the pages. `--quick` takes
few and small tasks, into a folder of its own.
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

from benchmarks.paper import real, sensitivity, shapes
from benchmarks.paper.data import DATA, missing
from benchmarks.paper.runner import run
from benchmarks.stamp import RESULTS

EXPERIMENTS = ("figure2", "figure3", "tables", "sensitivity")


def main(arguments: list[str] | None = None) -> None:
    """Run one experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--quick", action="store_true", help="few and small tasks")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core)")
    parser.add_argument("--no-rivals", action="store_true", help="figure2 without ClustPy")
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cuda"), help="of tables")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder")
    given = parser.parse_args(arguments)
    folder = given.results / "quick" if given.quick else given.results
    jobs = given.jobs or os.cpu_count() or 1
    match given.experiment:
        case "figure2":
            if not given.no_rivals and find_spec("clustpy") is None:
                parser.error("ClustPy is not installed: install the extra bench, or --no-rivals")
            tasks = shapes.figure2_tasks(quick=given.quick, rivals=not given.no_rivals)
            function = shapes.figure2
        case "figure3":
            function, tasks = shapes.figure3, shapes.figure3_tasks(quick=given.quick)
        case "tables":
            function = real.table
            tasks, jobs = real.table_tasks(quick=given.quick, backend=given.backend), 1
            for name in DATA:
                if missing(name):
                    print(f"{name} is left out: {missing(name)} is not set.")
        case "sensitivity":
            function, tasks = sensitivity.map_n, sensitivity.map_tasks(quick=given.quick)
    rows = run(function, tasks, folder / f"paper-{given.experiment}.jsonl", jobs=jobs)
    failed = [row for row in rows if "error" in row]
    for row in failed:
        print(f"{row['task']}: {row['error']}")
    print(f"{len(rows) - len(failed)} of {len(rows)} tasks have a result.")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
