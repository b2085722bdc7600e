"""Large data: the search for neighbours beside others, and whole fits, up to a million rows.

Fits are also made under a memory limit, and killed in each stage, each time to go on.

    SPECIALK_MNIST=folder python -m benchmarks.large

Each task runs in a process of its own, on all cores, one after another: the machine should do
nothing else. The rows are 20 Gaussian clusters in 10 columns, whose centres are about 8 deviations
apart, in float32; or MNIST's images. Results are JSON lines in benchmarks/results/large.jsonl; a
run that was stopped goes on where it was. docs/large.md is made of them. Needs Linux, for the
memory, and pynndescent.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
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
from specialk_gpu.spectrum.tall import NARROW_PANEL

ROOT = Path(__file__).parents[1]
FILE = RESULTS / "large.jsonl"
COLUMNS, CLUSTERS, N_NEIGHBORS = 10, 20, 10
ROWS = (25_000, 100_000, 300_000, 1_000_000)
GROWN = (25_000, 300_000)  # rows between which growth is measured
MOST_ROWS = {"SciPy's tree": 300_000}
WAYS = ("exact", "SciPy's tree", "pynndescent")
WAYS_OF_FIT = ("exact", "approximate")
LIMIT = "1GB"
# The stages in which a fit is killed: when this many of what matches are in its checkpoint.
KILLED_IN = (
    ("graph", "", 1),
    ("eigenpairs", "*.round-2", 1),
    ("fragments", "fragments-*[0-9]", 1),
    ("merging", "tree-*[0-9]", 1),
    ("polishing", "tree-*[0-9]", 6),
)
FIRST_KILLS = ("eigenpairs", "eigenpairs", "its start", "merging", "polishing")  # of a million rows


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
    if task["kind"] == "killed":
        return killed(task)
    settings |= {name: task[name] for name in ("memory_limit", "checkpoint") if name in task}
    if task["kind"] == "search":
        search(X[:: -(-len(X) // 2000)], way)  # what is imported or compiled once is not timed
    else:
        first = settings | {"checkpoint": None}
        SpecialK(neighbors=way, **first).fit(X[:: -(-len(X) // 2000)])
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
        found["labels"] = hashlib.sha256(model.labels_.tobytes()).hexdigest()[:16]
    elif way == "pynndescent":
        from specialk_gpu.graph.neighbor_lists import neighbor_lists
        from specialk_gpu.graph.rows import Rows

        lists = neighbor_lists((indices.astype(np.int64), None), len(X), N_NEIGHBORS)
        found["recall"] = Rows(X, lists).recall([N_NEIGHBORS])[0]
        if task["set"] == "MNIST":
            exact = nearest_neighbors(X, N_NEIGHBORS).indices
            near = sum(np.isin(a, b).sum() for a, b in zip(exact, indices, strict=True))
            found["true_recall"] = float(near / exact.size)
    return found


def killed(task: dict[str, Any]) -> dict[str, Any]:
    """Kill a fit in each stage, let it go on each time, and return the result of the last one."""
    seconds, found = [], {}
    with tempfile.TemporaryDirectory() as folder:
        fit = task | {"kind": "fit", "checkpoint": folder}
        for _, pattern, count in KILLED_IN:
            began, child = time.perf_counter(), start(fit)
            while child.poll() is None and len(list(Path(folder).glob(f"*/{pattern}"))) < count:
                time.sleep(0.05)
            if child.poll() is not None:
                msg = f"the fit ended before there were {count} of {pattern}."
                raise RuntimeError(msg)
            child.kill()
            child.wait()
            seconds.append(time.perf_counter() - began)
        found = in_own_process(fit)
    return found | {"until_killed": seconds, "killed_in": [stage for stage, *_ in KILLED_IN]}


def start(task: dict[str, Any]) -> subprocess.Popen[str]:
    """Begin a task in a process of its own."""
    code = "import json, sys; from benchmarks import large; "
    code += "print(json.dumps(large.measure(json.loads(sys.argv[1]))))"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(task)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def in_own_process(task: dict[str, Any]) -> dict[str, Any]:
    """Do a task in a process of its own."""
    child = start(task)
    told = child.communicate()[0]
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, child.args)
    return json.loads(told.splitlines()[-1])


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
    limited = {"memory_limit": LIMIT}
    largest = {"set": "clusters", "m": ROWS[-1], "way": "exact"}
    found += [{"kind": "fit", **largest, **limited}, {"kind": "killed", **largest}]
    found.append({"kind": "killed", **largest, "m": 100_000})
    return sorted(found, key=lambda task: task["m"])


def page() -> str:
    """Return docs/large.md."""
    done = [row["task"] | row["result"] for row in read(FILE) if "result" in row]
    searches, fits, others, of_clusters = [], [], [], {}
    for row in sorted(done, key=lambda row: (row["set"], row["m"])):
        size = [row["set"], f"{row['m']:,}"]
        gigabytes, recall = f"{row['peak_bytes'] / 1e9:.1f} GB", row.get("recall")
        told = (
            "1 (exact)" if recall is None else f"{recall[0]:.3f} ({recall[1]:.3f}–{recall[2]:.3f})"
        )
        if "true_recall" in row:
            told += f"; of all rows {row['true_recall']:.3f}"
        if row["kind"] == "search":
            searches.append([*size, row["way"], seconds(row["seconds"]), told, gigabytes])
            continue
        stages = [seconds(row["stages"].get(name)) for name in ("graph", "eigenpairs")]
        spent = seconds(row["seconds"])
        if "memory_limit" in row or row["kind"] == "killed":
            others.append(row)
            continue
        if (row["set"], row["way"]) == ("clusters", "exact"):
            of_clusters[row["m"]] = row
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
| the vectors do not fit into memory | `memory_limit="4GB"` |
| the fit takes hours | `checkpoint="folder"` |
| the graph does not fit into memory | cluster a sample, and `predict` the other rows, in batches |

The eigenvectors take most of the memory: 8 bytes for each row and eigenvector, several times.
`estimate(m, d)` says how much ({{doc}}`cost`). {{doc}}`tutorials/large_data` shows samples, fewer
columns and given neighbours.

## The search for neighbours

{{doc}}`method` describes the exact search. *Recall* is the share of the {N_NEIGHBORS} nearest
neighbours that were found, with a 95 % interval.

{table([*head[:2], "search", "time", "recall", "memory at most"], searches)}

"Clusters" are {CLUSTERS} Gaussian clusters in {COLUMNS} columns. pynndescent's functions were
compiled before. Memory is that of the whole process, with the rows.

## Whole fits

{table([*head, "graph", "eigenpairs", "whole fit", "memory at most", "recall", "k", "ARI"], fits)}

{_growth(of_clusters)}

(memory-limit)=
## Vectors in files: `memory_limit`

Under a limit such as `SpecialK(memory_limit="4GB")`, each array with a column for every
eigenvector or fragment that would take more than a sixteenth of it is a temporary file, mapped
into memory; the system keeps in memory what fits. The files vanish when the fit ends or is killed.
They lie in the folder that `tempfile.gettempdir()` names: set the environment variable TMPDIR if
that is on a small disk, or is itself in memory, as /tmp is on some systems. The result is the same
to the last bit, for any number of threads.

It is a limit for these arrays, not for the process. The graph, the rows with the lists of their
neighbours, and panels of {NARROW_PANEL} columns must fit all the same: what that took is at the
end of this page. If `memory_limit` is too small for the panels, the fit raises a `MemoryError`.

X itself can be larger than memory: a memory map (`numpy.load(path, mmap_mode="r")`) is read where
it is, and an array of zarr or HDF5 is read into a temporary file. A large Parquet file becomes a
memory map in batches:

```python
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specialk_gpu import SpecialK
from specialk_gpu.datasets import make_shape

points, _ = make_shape("blobs", noise=0.1, random_state=0)  # in place of millions of rows
pq.write_table(pa.table(list(points.T), names=["x", "y"]), "rows.parquet")

file = pq.ParquetFile("rows.parquet")
shape = file.metadata.num_rows, file.metadata.num_columns
X, end = np.lib.format.open_memmap("rows.npy", "w+", np.float32, shape), 0
for batch in file.iter_batches():
    X[end : end + len(batch)] = np.column_stack(batch.columns)
    end += len(batch)
model = SpecialK(memory_limit="4GB", checkpoint="steps", random_state=0).fit(X)
print(model.n_clusters_)
```

```text
3
```

(checkpoint)=
## Fits that go on: `checkpoint`

With `SpecialK(checkpoint="steps", random_state=0)`, finished steps are kept in that folder. If the
process is killed, call the same fit again: it goes on, and the labels are the same. A fit with
other data or parameters has a folder of its own in there. When a fit has come to its end, its
folder is removed; `time_limit` leaves it. Two fits at once cannot share one.
`random_state` must be an integer.

{_limits_measured(others)}
`python -m benchmarks.large` measures all this, on {machine(stamps(FILE)[-1])}
"""


def _growth(fits: dict[int, dict[str, Any]]) -> str:
    """Lay out the seconds of each stage by the number of rows, and how they grow."""
    sizes = [m for m in sorted(fits) if m <= GROWN[1]]
    if not {*GROWN} <= {*sizes}:
        return ""
    spent = {m: fits[m]["stages"] | {"whole fit": fits[m]["seconds"]} for m in sizes}
    lines = []
    for name, last in spent[GROWN[1]].items():
        exponent = math.log(last / spent[GROWN[0]][name]) / math.log(GROWN[1] / GROWN[0])
        lines.append([name, *(seconds(spent[m][name]) for m in sizes), f"{exponent:.2f}"])
    return f"""How the seconds of each stage grow with the rows of "clusters". *Exponent*: of the
power of the number of rows that joins the fewest and the most here.

{table(["stage", *(f"{m:,}" for m in sizes), "exponent"], lines)}"""


def _limits_measured(rows: list[dict[str, Any]]) -> str:
    """Return what was measured of fits under a limit, and of fits that were killed."""
    done = [row["task"] | row["result"] for row in read(FILE) if "result" in row]
    lines = []
    for row in rows:
        of_rows = [x for x in done if x["kind"] == "fit" and x["m"] == row["m"]]
        usual = next(x for x in of_rows if x["set"] == row["set"] and "memory_limit" not in x)
        same = "the same labels" if row["labels"] == usual["labels"] else "OTHER LABELS"
        if row["kind"] == "killed":
            stages = ", ".join(row.get("killed_in", FIRST_KILLS))
            lines.append(
                f"A fit of {row['m']:,} rows was killed {len(row['until_killed'])} times (in the "
                f"stages {stages}), and went on each time: {same}."
            )
            continue
        lines.append(
            f'With `memory_limit="{row["memory_limit"]}"`, a fit of {row["m"]:,} rows took '
            f"{seconds(row['seconds'])} and {row['peak_bytes'] / 1e9:.1f} GB at most, in place of "
            f"{seconds(usual['seconds'])} and {usual['peak_bytes'] / 1e9:.1f} GB: {same}."
        )
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    run(in_own_process, tasks(), FILE, jobs=1)
