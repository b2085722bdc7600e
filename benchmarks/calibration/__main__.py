"""What alpha means: the law of a whole search, and how it is kept where there is one cluster.

    python -m benchmarks.calibration law     # the least p of searches in sets of one cluster
    python -m benchmarks.calibration table   # writes specialk_gpu/selection/null.json from these
    python -m benchmarks.calibration tail    # the least p of searches in very many small sets
    python -m benchmarks.calibration check   # k in other families, composites, and stress
    python -m benchmarks.calibration paper   # k in the sets of the paper's Figure 2

Results are JSON lines in benchmarks/results/calibration-PART.jsonl; a run that was stopped goes on
where it was. Results of an older rule are not made anew: take their files away first. `law` takes
about 20 minutes on two cores, `tail` too, `check` about 45, `paper` about 5;
`python -m benchmarks.tables` writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from benchmarks.calibration import check, law
from benchmarks.paper.runner import read, run
from benchmarks.stamp import RESULTS

PARTS = {
    "law": (law.gaps, law.tasks),
    "tail": (law.tail, law.tail_tasks),
    "check": (check.decision, check.tasks),
    "paper": (check.paper_k, check.paper_tasks),
}
TABLE = Path(__file__).parents[2] / "specialk_gpu" / "selection" / "null.json"


def main(arguments: list[str] | None = None) -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "table"])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.part == "table":
        content = law.fitted_laws(read(given.results / "calibration-law.jsonl"))
        TABLE.write_text(json.dumps(content) + "\n", encoding="utf-8")
        print(content)
        return
    function, tasks = PARTS[given.part]
    path = given.results / f"calibration-{given.part}.jsonl"
    for row in run(function, tasks(), path, jobs=given.jobs):
        if "error" in row:
            print(row["task"], row["error"])


if __name__ == "__main__":
    main()
