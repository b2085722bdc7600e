"""The cut test where there is nothing to find, and elsewhere: its law, and the k that is found.

    python -m benchmarks.calibration null      # borders in the structureless sets for development
    python -m benchmarks.calibration table     # writes specialk_gpu/selection/null.json from these
    python -m benchmarks.calibration develop   # k in the other sets for development
    python -m benchmarks.calibration check     # k in the sets to check with
    python -m benchmarks.calibration hard      # and in shapes that are thin of themselves
    python -m benchmarks.calibration paper     # k in the sets of the paper's Figure 2
    python -m benchmarks.calibration cost      # the time it takes, with nothing beside it

Results are JSON lines in benchmarks/results/calibration-PART.jsonl; a run that was stopped goes on
where it was. Results of an older rule are not made anew: take their files away first. MNIST and
Fashion-MNIST take part where SPECIALK_MNIST and SPECIALK_FASHION_MNIST name their folders. ClustPy
is needed for `develop` and `check`.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from benchmarks.calibration.study import (
    border,
    border_tasks,
    cost,
    cost_tasks,
    decision,
    decision_tasks,
    fitted_laws,
    paper_k,
    paper_tasks,
)
from benchmarks.paper.runner import read, run
from benchmarks.stamp import RESULTS

PARTS = ("null", "table", "develop", "check", "hard", "paper", "cost")
TABLE = Path(__file__).parents[2] / "specialk_gpu" / "selection" / "null.json"


def main(arguments: list[str] | None = None) -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.part == "table":
        content = fitted_laws(read(given.results / "calibration-null.jsonl"))
        TABLE.write_text(json.dumps(content) + "\n", encoding="utf-8")
        print(content)
        return
    path = given.results / f"calibration-{given.part}.jsonl"
    if given.part == "null":
        rows = run(border, border_tasks(), path, jobs=given.jobs)
    elif given.part == "cost":
        rows = run(cost, cost_tasks(), path, jobs=1)
    elif given.part == "paper":
        rows = run(paper_k, paper_tasks(), path, jobs=given.jobs)
    else:
        rows = run(decision, decision_tasks(given.part), path, jobs=given.jobs)
    for row in rows:
        if "error" in row:
            print(row["task"], row["error"])


if __name__ == "__main__":
    main()
