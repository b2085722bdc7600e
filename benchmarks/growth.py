"""How seconds and memory of a fit grow: the figures behind `specialk_gpu.estimate`.

    python -m benchmarks.growth           # measure; goes on where it was stopped
    python -m benchmarks.growth coefficients

Each fit runs in a process of its own, on one thread. Seconds are those that the process computed
for (CPU time), not those that passed: other work on the machine then matters little. The data are
Gaussian, one cluster or ten. Results are JSON lines in benchmarks/results/growth.jsonl. The second
command makes specialk_gpu/cost.json of them: for each stage the power law of rows, columns and
eigenvectors that comes nearest, by least squares of logarithms. Needs Linux, for the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.runner import read, run
from benchmarks.stamp import RESULTS
from specialk_gpu._cost import cost_in_bytes, cost_in_seconds, cost_law
from specialk_gpu.backend import get_backend

ROOT = Path(__file__).parents[1]
FILE = RESULTS / "growth.jsonl"
SIZES = {"cut": (1000, 4000, 16_000, 60_000), "zz_top": (1000, 4000, 8000)}
COLUMNS = {"cut": (2, 10, 50, 200), "zz_top": (10,)}
MOST_CELLS = 1_000_000  # rows times columns of a fit
SIZE = ("rows", "columns", "eigenvectors")
OF_VECTORS = ("eigenpairs", "embedding", "kmeans", "bounds")  # stages that do not read the rows
LEAST = 1e-3  # seconds: less is not told from nothing
CHILD = """
import json, sys, time
from types import SimpleNamespace
from benchmarks.growth import memory, rows
from specialk_gpu import SpecialK, _progress
import specialk_gpu.selection.sweep
from specialk_gpu._cost import machine_rates
task = json.loads(sys.argv[1])
X = rows(task["clusters"], task["m"], task["d"])
settings = {"criterion": task["criterion"], "backend": "numpy", "random_state": 0}
SpecialK(**settings).fit(X[:: -(-len(X) // 200)])  # what is imported once is not timed
rates = machine_rates(clock=time.process_time)
# stages are measured by the time that this process computes
by_cpu = SimpleNamespace(perf_counter=time.process_time, monotonic=time.monotonic)
_progress.time = sys.modules["specialk_gpu.selection.sweep"].time = by_cpu
open("/proc/self/clear_refs", "w").write("5")  # the peak so far is forgotten
before, began = memory("VmRSS"), time.process_time()
model = SpecialK(**settings).fit(X)
seconds = time.process_time() - began
print(json.dumps({
    "cpu_seconds": seconds,
    "stages": model.timings_,
    "n": len(model.eigenvalues_),
    "k": int(model.n_clusters_),
    "peak_bytes": memory("VmHWM"),
    "bytes_before": before,
    "rates": rates,
}))
"""


def rows(clusters: int, m: int, d: int) -> np.ndarray:
    """Draw m rows of Gaussian clusters, whose centres are about 8 deviations apart."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((clusters, d)) * (8 / np.sqrt(2 * d) if clusters > 1 else 0)
    return centers[np.arange(m) % clusters] + rng.standard_normal((m, d))


def memory(name: str) -> int:
    """Return the resident memory of this process in bytes, now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def tasks() -> list[dict[str, Any]]:
    """List the fits, small ones first."""
    found = [
        {"criterion": criterion, "clusters": clusters, "m": m, "d": d}
        for criterion in SIZES
        for m, d, clusters in product(SIZES[criterion], COLUMNS[criterion], (1, 10))
        if m * d <= MOST_CELLS
    ]
    return sorted(found, key=lambda task: task["m"] * task["d"])


def fit(task: dict[str, Any]) -> dict[str, Any]:
    """Fit in a process of its own, on one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, json.dumps(task)],
        cwd=ROOT,
        env=os.environ | threads | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured() -> list[dict[str, Any]]:
    """Return the fits that were measured: task and result together."""
    return [row["task"] | row["result"] for row in read(FILE) if "result" in row]


def laws(fits: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Fit the power laws, each to the exponents of what varies among its fits."""
    points: dict[str, list[tuple[float, ...]]] = {}
    for fit in fits:
        for stage, seconds in fit["stages"].items():
            size = (fit["m"], fit["d"], fit["n"], max(seconds, LEAST))
            points.setdefault(cost_law(stage, fit["d"]), []).append(size)
    found = {}
    for name, sizes in sorted(points.items()):
        *columns, seconds = np.log(np.array(sizes)).T
        unused = "columns" if name in OF_VECTORS else "eigenvectors"
        used = {x: own for x, own in zip(SIZE, columns, strict=True) if x != unused}
        used = {x: own for x, own in used.items() if np.ptp(own) > 0}
        A = np.column_stack([*used.values(), np.ones(len(seconds))])
        exponents = np.linalg.lstsq(A, seconds, rcond=None)[0]
        found[name] = dict(zip([*used, "log_seconds"], exponents.round(4).tolist(), strict=True))
    return found


def coefficients() -> None:
    """Write specialk_gpu/cost.json."""
    fits = measured()
    rates = {x: float(np.median([fit["rates"][x] for fit in fits])) for x in fits[0]["rates"]}
    content = {"rates": rates, "laws": laws(fits)}
    (ROOT / "specialk_gpu" / "cost.json").write_text(json.dumps(content, indent=1) + "\n")


def ratios(fits: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return for each fit the expected seconds and memory as shares of those measured."""
    bk = get_backend("numpy")
    found = []
    for fit in fits:
        size = (fit["m"], fit["d"], fit["n"])
        seconds = sum(cost_in_seconds(*size, fit["criterion"]).values())
        memory = cost_in_bytes(bk, *size) / max(fit["peak_bytes"] - fit["bytes_before"], 1)
        found.append((seconds / fit["cpu_seconds"], memory))
    return found


def unseen_ratios(fits: list[dict[str, Any]]) -> list[float]:
    """Return expected over measured seconds, by laws of the fits of other sizes only."""
    found = []
    for fit in fits:
        size = (fit["m"], fit["d"], fit["n"])
        others = [one for one in fits if (one["m"], one["d"]) != size[:2]]
        expected = cost_in_seconds(*size, fit["criterion"], laws=laws(others))
        found.append(sum(expected.values()) / fit["cpu_seconds"])
    return found


def main() -> None:
    """Measure, or make the coefficients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=("measure", "coefficients"), default="measure")
    if parser.parse_args().part == "measure":
        run(fit, tasks(), FILE, jobs=1)
        return
    coefficients()
    for fit_, (seconds, memory) in zip(measured(), ratios(measured()), strict=True):
        size = f"{fit_['criterion']:7} {fit_['clusters']:3} {fit_['m']:6} {fit_['d']:4}"
        extra = (fit_["peak_bytes"] - fit_["bytes_before"]) / 1e6
        took = f"{fit_['cpu_seconds']:8.2f} s {extra:7.0f} MB"
        print(f"{size} {took}  expected / measured: {seconds:.2f}, {memory:.2f}")


if __name__ == "__main__":
    main()
