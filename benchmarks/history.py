"""What small fits take in each version: counts that do not depend on the machine, and seconds.

    python -m benchmarks.history
    python -m benchmarks.history --package FOLDER   # of another checkout

Draws docs/figures/history.svg too.

Four fits on made-up data, with one thread. Counted are

- products: columns that were multiplied by a graph,
- distances: pairs of rows, and of rows and centres, whose distance was computed, but for those that
  a k-d tree of SciPy looks at by itself,
- calls: of functions of this package, and from it of NumPy and others,
- peak_bytes: the most memory that Python and NumPy had allocated during the fit.

Seconds are those that the process computed for (CPU time), the least of five fits. Appends a line
for each fit to results/history.jsonl, but for those that this commit has there. A release keeps its
lines (RELEASING.md). tests/test_history.py holds the counts of the present code to the last lines.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[1]
NAME = "history.jsonl"
COUNTS = ("products", "distances", "calls", "peak_bytes")
TITLES = {"peak_bytes": "allocated"}
REPEATS = 5
FITS: dict[str, dict[str, Any]] = {
    "default, 1,500 x 2": {"shape": (1500, 2, 3)},
    "n_clusters=3, 1,500 x 2": {"shape": (1500, 2, 3), "n_clusters": 3},
    'criterion="zz_top", 1,500 x 2': {"shape": (1500, 2, 3), "criterion": "zz_top"},
    "default, 2,000 x 20": {"shape": (2000, 20, 10)},
}
# Functions of the package whose arguments say how much work they do, by name, and how much.
PRODUCTS: dict[str, Callable[[dict[str, Any]], int]] = {
    "spmm": lambda given: given["X"].shape[1],
    "multiply": lambda _: 1,
    "multiply_alone": lambda _: 1,
}
DISTANCES: dict[str, Callable[[dict[str, Any]], int]] = {
    "pair_sq_distances": lambda given: given["rows"].size,
    "rough_pair_sq_distances": lambda given: given["rows"].size,
    "sq_distances": lambda given: given["X"].shape[0] * given["centers"].shape[0],
    "two_nearest_centers": lambda given: given["X"].shape[0] * len(given["stack"].centers),
}


def points(m: int, d: int, k: int) -> np.ndarray:
    """Draw round Gaussians, whose centres are about 8 deviations apart."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((k, d)) * 8 / np.sqrt(2 * d)
    return centers[np.arange(m) % k] + rng.standard_normal((m, d))


def fitting(name: str) -> Callable[[], object]:
    """Return a function that makes one of the fits."""
    from specialk_gpu import SpecialK

    settings = dict(FITS[name])
    X = points(*settings.pop("shape"))
    return lambda: SpecialK(backend="numpy", random_state=0, **settings).fit(X)


class Work:
    """Counts what a fit does, from what Python says of each call.

    Calls in other threads are not seen: a fit must have one thread, which does all.
    """

    def __init__(self) -> None:
        import specialk_gpu

        self.found: Counter[str] = Counter(dict.fromkeys(COUNTS[:3], 0))
        self.folder = str(Path(specialk_gpu.__file__).parent)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take note of a call."""
        if event not in ("call", "c_call") or not frame.f_code.co_filename.startswith(self.folder):
            return
        self.found["calls"] += 1
        if event == "call":
            name = frame.f_code.co_name
            for kind, known in (("products", PRODUCTS), ("distances", DISTANCES)):
                if name in known:
                    self.found[kind] += int(known[name](frame.f_locals))


def count(name: str) -> dict[str, int]:
    """Count the work of one fit, whose imports are done."""
    fit = fitting(name)
    work, before = Work(), sys.getprofile()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        fit()
        sys.setprofile(work)
        try:
            fit()
        finally:
            sys.setprofile(before)
        tracemalloc.start()
        try:
            fit()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    return {**work.found, "peak_bytes": peak}


def measure(task: dict[str, str]) -> dict[str, Any]:
    """Count one fit, and time it."""
    found: dict[str, Any] = count(task["fit"])
    fit, seconds = fitting(task["fit"]), []
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for _ in range(REPEATS):
            began = time.process_time()
            fit()
            seconds.append(time.process_time() - began)
    return found | {"cpu_seconds": min(seconds)}


def versions(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the results by commit, in the order of the file, and by fit."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if "result" in row:
            found.setdefault(row["task"]["commit"], {})[row["task"]["fit"]] = row["result"]
    return found


def figure(results: Path) -> Any:
    """Draw the counts of each version as multiples of the first."""
    import matplotlib.pyplot as plt

    from benchmarks.paper.runner import read

    found = versions(read(results / NAME))
    fig, axes = plt.subplots(1, len(COUNTS), figsize=(10, 2.6), sharey=True, layout="constrained")
    for ax, key in zip(axes, COUNTS, strict=True):
        for name in FITS:
            own = [fits[name][key] for fits in found.values() if name in fits]
            ax.plot([x / own[0] for x in own], marker="o", label=name)
        ax.set_title(TITLES.get(key, key), fontsize=9)
        ax.set_xticks(range(len(found)), [commit[:7] for commit in found], rotation=90, fontsize=7)
    axes[0].set_ylim(0, 1.1 * max(x for ax in axes for line in ax.lines for x in line.get_ydata()))
    axes[0].legend(fontsize=6, loc="lower left")
    return fig


def draw(results: Path) -> None:
    """Write docs/figures/history.svg."""
    import matplotlib.pyplot as plt

    settings = {"svg.hashsalt": "history", "svg.fonttype": "none"}
    with plt.rc_context(settings):
        made = figure(results)
        path = ROOT / "docs" / "figures" / "history.svg"
        made.savefig(path, metadata={"Date": None})
        plt.close(made)


def page(results: Path) -> str:
    """Lay out the fits of all versions that were measured, each beside the one before."""
    from benchmarks.markdown import machine, seconds, table
    from benchmarks.paper.runner import read, stamps

    path = results / NAME
    rows = read(path)
    if not rows:
        return "Not measured yet."
    names = {row["task"]["commit"]: row["task"]["version"] for row in rows}
    lines = []
    for name in FITS:
        for commit, fits in versions(rows).items():
            if name in fits:
                own = fits[name]
                cells = [f"{own[key]:,}" for key in COUNTS[:3]]
                cells += [f"{own['peak_bytes'] / 1e6:.1f} MB", seconds(own["cpu_seconds"])]
                lines.append([name, f"{names[commit]}, {commit[:7]}", *cells])
    head = ["fit", "version", "products", "distances", "calls", "allocated", "CPU time"]
    return f"{table(head, lines)}\n\nMeasured on {machine(stamps(path)[-1])}"


def main() -> None:
    """Count, time, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, default=ROOT, help="a checkout (this one)")
    parser.add_argument("--results", type=Path, help="folder (benchmarks/results)")
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.package.resolve()))
    from benchmarks.paper.runner import run
    from benchmarks.stamp import RESULTS
    from specialk_gpu import __version__
    from specialk_gpu._environment import COMMIT

    tasks = [{"version": __version__, "commit": COMMIT, "fit": name} for name in FITS]
    results = arguments.results or RESULTS
    for row in run(measure, tasks, results / NAME, jobs=1):
        print(row["task"]["fit"], row.get("error") or row["result"])
    if results == RESULTS:
        draw(RESULTS)


if __name__ == "__main__":
    main()
