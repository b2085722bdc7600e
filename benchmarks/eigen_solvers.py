"""Seconds of each eigensolver over m and n, the evidence for eigen_solver="auto".

    python -m benchmarks.eigen_solvers

W_C graphs of uniform points in three dimensions, of ten neighbours and of more. A solver is left
out where a smaller problem took more than a quarter of a minute. Writes
results/eigen_solvers-BACKEND.json.
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
DENSE_SIZES, DENSE_NEIGHBORS, DENSE_PAIRS = (2500, 10000), (40, 160, 640), (50, 200, 500)
LIMIT = 60.0


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cuda"))
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    bk = get_backend(arguments.backend)
    graphs = [(m, 10, PAIRS) for m in SIZES]
    graphs += [(m, k, DENSE_PAIRS) for k in DENSE_NEIGHBORS for m in DENSE_SIZES]
    rows = []
    slow: dict[tuple[str, int, int], bool] = {}
    for m, k, pairs in (graph for graph in graphs if graph[0] <= arguments.largest):
        W = knn_graph(bk.asarray(np.random.default_rng(0).random((m, 3))), k)
        for n in (n for n in pairs if n < m):
            row = {"m": m, "entries": round(W.nnz / m), "n": n}
            for solver in ("dense", "lanczos", "chebyshev"):
                key = (solver, k, 0 if solver == "dense" else n)
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
