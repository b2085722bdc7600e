"""A fit on workers of Dask: its tasks and bytes, and what more workers would make of it.

    python -m benchmarks.cluster

A fit of 200,000 rows in 16 columns (20 Gaussian clusters) runs in one process, and on clusters of
2 and 4 workers on this machine. Each task is recorded: its seconds on the worker, and the bytes it
gets and returns. From this record, a simulation says how long the loops would take on more workers.
Results are JSON lines in benchmarks/results/cluster.jsonl; docs/cluster.md is made of them.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.large import Peak
from benchmarks.markdown import machine, seconds, table
from benchmarks.paper.runner import read, run, stamps
from benchmarks.stamp import RESULTS
from specialk_gpu import SpecialK
from specialk_gpu import dask as on_dask
from specialk_gpu._units import size_in_units
from specialk_gpu._workers import Arguments, Store

FILE = RESULTS / "cluster.jsonl"
ROWS, COLUMNS, CLUSTERS = 200_000, 16, 20
WORKERS = (2, 4)
SIMULATED = (1, 2, 4, 8, 16, 64)
BANDWIDTH = 1e9  # bytes a second, from the client and to it
LATENCY = 0.002  # seconds of the scheduler for a task


PAGE = """# Past one machine

This page is written by `python -m benchmarks.tables`.

`specialk_gpu.dask.SpecialK` fits on the workers of a [Dask](https://distributed.dask.org) cluster
(`pip install 'specialk-gpu[dask]'`). It has the parameters of `SpecialK`, and `client=`.

```python
import dask.array as da
from distributed import Client

from specialk_gpu.dask import SpecialK
from specialk_gpu.datasets import make_shape

client = Client(processes=False, dashboard_address=None)  # or the address of a scheduler
points, _ = make_shape("blobs", noise=0.1, n_samples=6000, random_state=0)
X = da.from_array(points, chunks=(2000, -1))
model = SpecialK(random_state=0).fit(X)
print(model.n_clusters_, model.labels_.chunks)
local = model.to_local()  # a SpecialK that needs no cluster
client.close()
```

```text
3 ((2000, 2000, 2000),)
```

X is a dask array with chunks of whole rows, a dask data frame, or in memory. For dask data,
`labels_` and `membership_` are dask arrays with its chunks, and `predict` is lazy.

## Who does what

The process that calls `fit` is the *client*. It holds the rows, the graph and the vectors, and
decides. Workers do what takes longest:

| stage | a task | it gets | it returns |
|---|---|---|---|
| graph | compares groups of rows with all within reach | the rows, once | pairs |
| eigenpairs | filters or multiplies 16 vectors | the graph, once; a panel | a panel |
| merging | merges fragments | the graphs and the rows, once; fragments | a tree |

Eigenpairs of fewer than 65,536 rows are computed by the client, because sending them would take
longer. A worker needs memory for the rows and the graphs and, for each of its threads, a panel with
its work space. The client needs as much as a fit in one process: [files](large.md#memory-limit)
help there too.

**The result is that of one process**, to the last bit, for any number of workers with the same
processor and libraries: a task is a function of what it gets, and sums are taken by the client in
one order.

## When something is lost

- *A worker*: its tasks are sent again, and what all tasks share, if no other worker has it.
- *Workers, again and again*: a `MemoryError` names the stage and what a task needs. Give workers
  more memory, or fewer threads.
- *The client*: with `checkpoint=`, the fit [goes on](large.md#checkpoint) where it was.
- *All workers*: a `RuntimeError`, and again the checkpoint.

## What to do instead

A cluster pays where one machine takes hours. Before, try `neighbors="approximate"` with many rows
or columns, and fewer columns (PCA). If clusters are large, cluster a sample, and let `predict`
label the other rows, which takes a search for neighbours and nothing else.
"""


def rows(m: int) -> np.ndarray:
    """Return the rows."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((CLUSTERS, COLUMNS)) * 8 / np.sqrt(2 * COLUMNS)
    noise = rng.standard_normal((m, COLUMNS))
    return (centers[np.arange(m) % CLUSTERS] + noise).astype(np.float32)


def timed(
    shared: Any, function: Callable[..., Any], *given: Any
) -> tuple[Any, float]:  # a task of the cluster
    """Return the result of a task, and its seconds."""
    began = time.process_time()
    return function(shared, *given), time.process_time() - began


class Recorded(on_dask._Cluster):
    """A cluster that keeps a record of its tasks."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.loops: list[dict[str, Any]] = []

    def map(
        self,
        function: Callable[..., Any],
        shared: Any,
        arguments: Arguments,
        store: Store,
        stage: str,
    ) -> None:
        """Record the bytes and seconds of each task."""
        tasks: list[list[float]] = [[0, 0, 0] for _ in arguments]

        def counted(i: int) -> tuple[Any, ...]:
            given = arguments[i]()
            tasks[i][0] = size_of(given)
            return (function, *given)

        def keep(i: int, found: tuple[Any, float]) -> None:
            tasks[i][1:] = size_of(found[0]), found[1]
            store(i, found[0])

        began = time.perf_counter()
        given = [lambda i=i: counted(i) for i in range(len(arguments))]
        size = 0 if id(shared) in self._shared else size_of(shared)
        super().map(timed, shared, given, keep, stage)
        loop = {"stage": stage, "function": function.__name__, "shared": size}
        self.loops.append(loop | {"tasks": tasks, "seconds": time.perf_counter() - began})


def size_of(x: Any) -> int:
    """Return the bytes that are sent for an object."""
    buffers: list[Any] = []
    head = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Fit in one process, or on a cluster; return seconds, labels and the record of the tasks."""
    X, settings = rows(task["m"]), {"backend": "numpy", "random_state": 0}
    if not task["workers"]:
        return fitted(SpecialK(**settings), X)
    from distributed import Client, LocalCluster

    options = {"n_workers": task["workers"], "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        made: list[Recorded] = []

        def recorded(client: Any) -> Recorded:
            made.append(Recorded(client))
            return made[-1]

        on_dask._Cluster = recorded  # type: ignore[assignment, misc] # stands in for it
        found = fitted(on_dask.SpecialK(client=client, **settings), X)
        memory = client.run(worker_peak)
    loops = [loop for each in made for loop in each.loops]
    return found | {"loops": loops, "worker_peak_bytes": max(memory.values())}


def worker_peak() -> int:
    """Return the largest memory of this process, in bytes."""
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def fitted(model: Any, X: np.ndarray) -> dict[str, Any]:
    """Fit a model; return what is measured of it."""
    peak, began = Peak(), time.perf_counter()
    model.fit(X)
    spent = time.perf_counter() - began
    peak.ended = True
    labels = hashlib.sha256(np.asarray(model.labels_).tobytes()).hexdigest()[:16]
    result = {"seconds": spent, "k": int(model.n_clusters_), "labels": labels}
    return result | {"stages": model.timings_, "peak_bytes": peak.most}


def simulated(loops: list[dict[str, Any]], n_workers: int) -> float:
    """Return the seconds of the loops on so many workers, by the record of their tasks.

    The client sends one thing after another, and receives one after another. A worker has at most
    two tasks at a time: it works on one, and waits for the other.
    """
    whole = 0.0
    for loop in loops:
        hops = 1 + math.ceil(math.log2(n_workers))  # workers pass on what all need
        link_out, link_in = hops * loop["shared"] / BANDWIDTH, 0.0
        free = [(0.0, worker) for worker in range(n_workers)]
        ends = [0.0] * n_workers
        for sent, returned, spent in loop["tasks"]:
            slot, worker = heapq.heappop(free)
            link_out = max(link_out, slot) + sent / BANDWIDTH + LATENCY
            begin = max(link_out, ends[worker])
            ends[worker] = begin + spent
            link_in = max(link_in, ends[worker]) + returned / BANDWIDTH
            heapq.heappush(free, (begin, worker))  # the next may be sent when this one begins
        whole += link_in
    return whole


def tasks() -> list[dict[str, Any]]:
    """List the fits."""
    return [{"m": ROWS, "workers": n} for n in (0, *WORKERS)]


def page() -> str:
    """Return docs/cluster.md."""
    return PAGE + _measured()


def _measured() -> str:
    """Return the part of the page that is measured."""
    done = {row["task"]["workers"]: row["result"] for row in read(FILE) if "result" in row}
    if not done:
        return ""
    alone, fits = done[0], []
    for n, found in done.items():
        same = "–" if n == 0 else "yes" if found["labels"] == alone["labels"] else "NO"
        fits.append([n or "one process", seconds(found["seconds"]), same, found["k"]])
    record = done[WORKERS[0]]["loops"]
    sums: dict[str, list[Any]] = {}
    for loop in record:
        entry = sums.setdefault(loop["function"], [0, 0, 0, 0.0])
        sent, returned, spent = np.sum(loop["tasks"], axis=0)
        for i, x in enumerate((len(loop["tasks"]), sent, returned, spent)):
            entry[i] += x
    loops = [
        [f"`{name}`", n, size_in_units(int(a)), size_in_units(int(b)), seconds(float(t))]
        for name, (n, a, b, t) in sums.items()
    ]
    client = done[WORKERS[0]]["seconds"] - sum(loop["seconds"] for loop in record)
    more = [[n, seconds(simulated(record, n)), seconds(client)] for n in SIMULATED]
    return f"""
## Measured

{ROWS:,} rows in {COLUMNS} columns, {CLUSTERS} clusters, on a machine with two cores, which more
than two workers share.

{table(["workers", "whole fit", "same labels", "k"], fits)}

The tasks of that fit, on {WORKERS[0]} workers:

{table(["loop", "tasks", "sent", "returned", "seconds on workers"], loops)}

What a simulation makes of this record, with a network of {size_in_units(int(BANDWIDTH))} a second
at the client. What the client does alone is the same for any number of workers: it is the limit.

{table(["workers", "the loops", "the client alone"], more)}

`python -m benchmarks.cluster` measures all this, on {machine(stamps(FILE)[-1])}
"""


if __name__ == "__main__":
    run(measure, tasks(), FILE, jobs=1)
