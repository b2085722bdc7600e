"""Seconds of each eigensolver over m and n, the evidence for eigen_solver="auto".

    python -m benchmarks.eigen_solvers

W_C graphs of uniform points in three dimensions. A solver is left out where the largest size it
finished took more than a minute. Writes results/eigen_solvers-BACKEND.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.stamp import RESULTS, write
from specialk_gpu import eigenpairs, knn_graph
from specialk_gpu.backend import get_backend

SIZES = (300, 600, 1000, 1500, 2500, 5000, 10000, 20000)
PAIRS = (10, 25, 50, 100, 200, 500)
LIMIT = 60.0


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cuda"))
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    bk = get_backend(arguments.backend)
    rows = []
    slow: dict[tuple[str, int], bool] = {}
    for m in (m for m in SIZES if m <= arguments.largest):
        W = knn_graph(bk.asarray(np.random.default_rng(0).random((m, 3))))
        for n in (n for n in PAIRS if n < m):
            row = {"m": m, "n": n}
            for solver in ("dense", "lanczos", "chebyshev"):
                key = (solver, 0 if solver == "dense" else n)
                if slow.get(key):
                    continue
                began = time.perf_counter()
                found = eigenpairs(W, n, solver=solver, random_state=0)
                bk.synchronize()
                row[solver] = time.perf_counter() - began
                slow[key] = row[solver] > LIMIT / 4
                row[f"{solver}_converged"] = found.converged
            rows.append(row)
            print(row, flush=True)
    print(write(f"eigen_solvers-{arguments.backend}", {"rows": rows}, arguments.results))


if __name__ == "__main__":
    main()
