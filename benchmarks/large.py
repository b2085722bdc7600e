"""Large data: the search for neighbours beside others, and whole fits, up to a million rows.

    SPECIALK_MNIST=folder python -m benchmarks.large

Each task runs in a process of its own, on all cores, one after another: the machine should do
nothing else. The rows are 20 Gaussian clusters in 10 columns, whose centres are about 8 deviations
apart, in float32; or MNIST's images. Results are JSON lines in benchmarks/results/large.jsonl; a
run that was stopped goes on where it was. docs/large.md is made of them. Needs Linux, for the
memory, and pynndescent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import machine, seconds, table
from benchmarks.paper.runner import read, run, stamps
from benchmarks.stamp import RESULTS
from specialk_gpu import SpecialK, nearest_neighbors
from specialk_gpu.datasets import load_mnist

ROOT = Path(__file__).parents[1]
FILE = RESULTS / "large.jsonl"
COLUMNS, CLUSTERS, N_NEIGHBORS = 10, 20, 10
ROWS = (25_000, 100_000, 300_000, 1_000_000)
MOST_ROWS = {"SciPy's tree": 300_000}
WAYS = ("exact", "SciPy's tree", "pynndescent")
WAYS_OF_FIT = ("exact", "approximate")


def rows_of(name: str, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and their true clusters."""
    if name == "MNIST":
        X, y = load_mnist()
        return X[:m].astype(np.float32), y[:m]
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((CLUSTERS, COLUMNS)) * 8 / np.sqrt(2 * COLUMNS)
    y = np.arange(m) % CLUSTERS
    return (centers[y] + rng.standard_normal((m, COLUMNS))).astype(np.float32), y


class Peak(threading.Thread):
    """The largest anonymous memory of this process: what it asked for, without files."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = 0, False
        self.start()

    def run(self) -> None:
        while not self.ended:
            lines = Path("/proc/self/status").read_text().splitlines()
            now = 1024 * next(int(x.split()[1]) for x in lines if x.startswith("RssAnon:"))
            self.most = max(self.most, now)
            time.sleep(0.02)


def search(X: np.ndarray, way: str) -> np.ndarray:
    """Return the neighbours of each row."""
    if way == "exact":
        return nearest_neighbors(X, N_NEIGHBORS).indices
    if way == "SciPy's tree":
        from scipy.spatial import cKDTree

        return cKDTree(X).query(X, N_NEIGHBORS + 1, workers=-1)[1]
    from pynndescent import NNDescent

    return NNDescent(X, n_neighbors=N_NEIGHBORS + 1, random_state=0).neighbor_graph[0]


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Do a task; return its seconds, memory and result."""
    from sklearn.metrics import adjusted_rand_score

    X, y = rows_of(task["set"], task["m"])
    settings: dict[str, Any] = {"backend": "numpy", "random_state": 0}
    way = task["way"]
    if task["kind"] == "search":
        search(X[:: -(-len(X) // 2000)], way)  # what is imported or compiled once is not timed
    else:
        SpecialK(neighbors=way, **settings).fit(X[:: -(-len(X) // 2000)])
    peak, began = Peak(), time.perf_counter()
    if task["kind"] == "search":
        indices = search(X, way)
        found: dict[str, Any] = {}
    else:
        model = SpecialK(neighbors=way, **settings).fit(X)
        found = {"k": int(model.n_clusters_), "stages": model.timings_}
    found["seconds"] = time.perf_counter() - began
    peak.ended = True
    found["peak_bytes"] = peak.most
    if task["kind"] == "fit":
        found["ari"] = float(adjusted_rand_score(y, model.labels_))
        found["recall"] = model.recall_
    elif way == "pynndescent":
        from specialk_gpu.graph.neighbor_lists import neighbor_lists
        from specialk_gpu.graph.rows import Rows

        lists = neighbor_lists((indices.astype(np.int64), None), len(X), N_NEIGHBORS)
        found["recall"] = Rows(X, lists).recall([N_NEIGHBORS])[0]
    return found


def in_own_process(task: dict[str, Any]) -> dict[str, Any]:
    """Do a task in a process of its own."""
    code = "import json, sys; from benchmarks import large; "
    code += "print(json.dumps(large.measure(json.loads(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(task)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def tasks() -> list[dict[str, Any]]:
    """List what is measured, small sizes first."""
    sizes = [("MNIST", 60_000), *(("clusters", m) for m in ROWS)]
    found = [
        {"kind": "search", "set": name, "m": m, "way": way}
        for name, m in sizes
        for way in WAYS
        if m <= MOST_ROWS.get(way, m) and not (name == "MNIST" and way == "SciPy's tree")
    ]
    found += [{"kind": "fit", "set": "MNIST", "m": 60_000, "way": w} for w in WAYS_OF_FIT]
    found += [{"kind": "fit", "set": "clusters", "m": m, "way": "exact"} for m in ROWS]
    return sorted(found, key=lambda task: task["m"])


def page() -> str:
    """Return docs/large.md."""
    done = [row["task"] | row["result"] for row in read(FILE) if "result" in row]
    searches, fits = [], []
    for row in sorted(done, key=lambda row: (row["set"], row["m"])):
        size = [row["set"], f"{row['m']:,}"]
        gigabytes, recall = f"{row['peak_bytes'] / 1e9:.1f} GB", row.get("recall")
        told = (
            "1 (exact)" if recall is None else f"{recall[0]:.3f} ({recall[1]:.3f}–{recall[2]:.3f})"
        )
        if row["kind"] == "search":
            searches.append([*size, row["way"], seconds(row["seconds"]), told, gigabytes])
            continue
        stages = [seconds(row["stages"].get(name)) for name in ("graph", "eigenpairs")]
        spent = seconds(row["seconds"])
        fits.append(
            [*size, row["way"], *stages, spent, gigabytes, told, row["k"], f"{row['ari']:.3f}"]
        )
    head = ["set", "rows", "neighbours"]
    return f"""# Large data

This page is written by `python -m benchmarks.tables` from `benchmarks/results/large.jsonl`.

## Which way for which size

| rows | what to do |
|---|---|
| up to 100,000 | nothing: all defaults |
| up to a million | nothing but patience: `verbose=1` tells what takes long |
| more, or many columns | PCA to 10 to 50 columns; `neighbors="approximate"`; see `recall_` |
| more than fit into memory | cluster a sample of the rows, and `predict` the others, in batches |

The eigenvectors take most of the memory: 8 bytes for each row and eigenvector, several times.
`estimate(m, d)` says how much ([more on it](cost.md)). {{doc}}`tutorials/large_data` shows
samples, fewer columns and given neighbours at work.

## The search for neighbours

The exact search sorts rows into small cells. It leaves out rows that are, by the triangle
inequality, too far from a cell to be among its neighbours, so that clusters that lie apart are
hardly compared. For what is left, fast products in float32 bound the distances, and pairs that
may be near are measured. With up to six columns, a k-d tree is faster; with up to ten, it is used
if most rows are near to all others. *Recall* is the share of the {N_NEIGHBORS} nearest neighbours
that were found, with a 95 % interval.

{table([*head[:2], "search", "time", "recall", "memory at most"], searches)}

"Clusters" are {CLUSTERS} Gaussian clusters in {COLUMNS} columns. pynndescent's functions were
compiled before. Memory is that of the whole process, with the rows.

## Whole fits

{table([*head, "graph", "eigenpairs", "whole fit", "memory at most", "recall", "k", "ARI"], fits)}

`python -m benchmarks.large` measures all this, on {machine(stamps(FILE)[-1])}
"""


if __name__ == "__main__":
    run(in_own_process, tasks(), FILE, jobs=1)
