"""How often the host waits for the device, and what it launches and copies, stage by stage.

    python -m benchmarks.counts
    python -m benchmarks.counts --package FOLDER

Counted on the stand-in for CuPy of tests/stand_in: no device is needed, and no times are taken.
FOLDER is another checkout, whose package is counted with this stand-in. Appends a line for each
stage to results/counts.jsonl, but for those that this commit has there already; a stage that the
stand-in refuses has the error in place of counts. The sweep at MNIST's size takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

ROOT = Path(__file__).parents[1]
Stage = tuple[Any, Callable[[Any], object]]  # an input on the host, and what is counted


def points(m: int, d: int) -> np.ndarray:
    """Draw rows (m, d) from 20 Gaussians that overlap."""
    rng = np.random.default_rng(0)
    centres = 1.5 * rng.standard_normal((20, 8))
    X = centres[rng.integers(20, size=m)] + rng.standard_normal((m, 8))
    return X @ rng.standard_normal((8, d)) + 0.3 * rng.standard_normal((m, d))


def graph() -> sparse.csr_matrix:
    """Return the graph of nearest neighbours of some points, built on the host."""
    from specialk_gpu import knn_graph

    return knn_graph(points(1500, 32), 10)


def small_components(count: int) -> sparse.csr_matrix:
    """Return a graph of paths of one to twenty rows, with random weights."""
    rng = np.random.default_rng(0)
    component = np.repeat(np.arange(count), rng.integers(1, 21, count))
    i = np.flatnonzero(np.diff(component) == 0)
    W = sparse.coo_matrix((rng.random(i.size), (i, i + 1)), shape=(component.size,) * 2)
    return sparse.csr_matrix(W + W.T)


def sweep_stage(m: int) -> Stage:
    """Return an embedding (m, 50), and the sweep up to k = 11."""
    from specialk_gpu import sweep

    settings = {"max_clusters": 11, "full_path": True, "random_state": 0}
    if "selection" in signature(sweep).parameters:  # in checkouts of before the default had a home
        settings["selection"] = "first"
    return abs(points(m, 50)), lambda D: sweep(D, **settings)


def knn_stage() -> Stage:
    from specialk_gpu import knn_graph

    return points(5000, 32).astype(np.float32), lambda X: knn_graph(X, 10)


def radius_stage() -> Stage:
    from specialk_gpu import radius_graph

    return points(1500, 32).astype(np.float32), lambda X: radius_graph(X, 10)


def eigenpairs_stage(make: Callable[[], Any], n: int, **settings: Any) -> Stage:
    from specialk_gpu import eigenpairs

    return make(), lambda W: eigenpairs(W, n, random_state=0, **settings)


def kmeans_stage() -> Stage:
    from specialk_gpu import kmeans

    return points(1500, 32), lambda X: kmeans(X, 10, random_state=0)


def bounds_stage() -> Stage:
    from specialk_gpu import zz_top

    def run(D: Any) -> object:
        import cupy as cp

        return zz_top(D, cp.arange(D.shape[0]) % 30)

    return abs(points(1500, 32)), run


def fit_stage(**settings: Any) -> Stage:
    from specialk_gpu import SpecialK

    settings |= {"n_components": 50, "max_clusters": 11, "random_state": 0}
    model = SpecialK(backend="cuda", **settings)
    return points(1500, 32).astype(np.float32), model.fit


STAGES: dict[str, Callable[[], Stage]] = {
    "graph of 10 neighbours, 5,000 x 32": knn_stage,
    "graph of a radius, 1,500 x 32": radius_stage,
    "50 eigenpairs, 1,500 rows": partial(eigenpairs_stage, graph, 50, solver="chebyshev"),
    "100 eigenpairs, 10,000 small components": partial(
        eigenpairs_stage, partial(small_components, 10_000), 100
    ),
    "k-means, k = 10, 1,500 x 32": kmeans_stage,
    "bounds of 30 clusters, 1,500 x 32": bounds_stage,
    "whole fit by the paper's rule, from NumPy, 1,500 x 32": partial(fit_stage, criterion="zz_top"),
    "whole fit by the cut test, from NumPy, 1,500 x 32": fit_stage,
    "sweep, k = 2 to 11, 60,000 x 50": partial(sweep_stage, 60_000),
}


def count(task: dict[str, str]) -> dict[str, Any]:
    """Count one stage: its input is on the device before, but for a fit."""
    from stand_in import counting

    from specialk_gpu.backend import get_backend

    warnings.simplefilter("ignore")  # about the data
    bk = get_backend("cuda")
    make = STAGES[task["stage"]]
    given, run = make()
    if not task["stage"].startswith("whole fit"):
        given = bk.sparse.csr_matrix(given) if sparse.issparse(given) else bk.asarray(given)
    iterations, assign = [], bk.assign

    def counted(*arguments: Any) -> Any:
        iterations.append(1)
        return assign(*arguments)

    bk.assign = counted
    try:
        with counting() as found:
            run(given)
    finally:
        bk.assign = assign
    launches = dict(found.launches)
    products = launches.pop("gemmEx", 0)  # cuBLAS's
    return {
        "waits": found.waits,
        "calls": found.calls + products,
        "launches": sum(launches.values()),
        "h2d": found.by_line["h2d"].total(),
        "h2d_bytes": found.bytes["h2d"],
        "d2h": found.by_line["d2h"].total(),
        "d2h_bytes": found.bytes["d2h"],
        "iterations": len(iterations),
        "kernels": launches,
    }


def main() -> None:
    """Count and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, default=ROOT, help="a checkout (this one)")
    parser.add_argument("--results", type=Path, help="folder (benchmarks/results)")
    parser.add_argument("--without-sweep", action="store_true", help="what takes seconds alone")
    arguments = parser.parse_args()
    sys.path[:0] = [str(arguments.package.resolve()), str(ROOT / "tests")]
    import stand_in

    stand_in.install()
    from benchmarks.paper.runner import run
    from benchmarks.stamp import RESULTS
    from specialk_gpu._environment import COMMIT

    names = list(STAGES)[:-1] if arguments.without_sweep else list(STAGES)
    tasks = [{"commit": COMMIT, "stage": name} for name in names]
    for row in run(count, tasks, (arguments.results or RESULTS) / "counts.jsonl", jobs=1):
        found = row.get("error") or {k: v for k, v in row["result"].items() if k != "kernels"}
        print(f"{row['task']['stage']}: {found}")


if __name__ == "__main__":
    main()
