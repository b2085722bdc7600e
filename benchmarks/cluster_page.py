"""The page docs/cluster.md, and a simulation of more workers from the record of a fit."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from benchmarks.cluster import CLUSTERS, COLUMNS, FILE, KILLED_ROWS, ROWS, WORKERS
from benchmarks.markdown import machine, seconds, table
from benchmarks.paper.runner import read, stamps
from specialk_gpu._units import size_in_units

SIMULATED = (1, 2, 4, 8, 16, 64)
MANY = 10_000_000  # rows that are only simulated
BANDWIDTH = 1e9  # bytes a second, from the client and to it
LATENCY = 0.002  # seconds of the scheduler for a task
# the memory of a worker with one thread, without and with the rows
WORKER_BASE, WORKER_ROW = 140e6, 2800

PAGE = """# Past one machine

This page is written by `python -m benchmarks.tables`.

`specialk_gpu.dask.SpecialK` fits on the workers of a [Dask](https://distributed.dask.org) cluster
(`pip install 'specialk-gpu[dask]'`). It has the parameters of `SpecialK`, and `client=`.

```python
import dask.array as da
from distributed import Client

from specialk_gpu.dask import SpecialK
from specialk_gpu.datasets import make_shape

client = Client(processes=False, dashboard_address=":0")  # or the address of a scheduler
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

X is a dask array with chunks of whole rows, a dask data frame, or in memory. Of dask data,
`labels_` and `membership_` are dask arrays with the chunks of X, all other results NumPy arrays;
`predict` and `predict_proba` are lazy. Workers need this package in the same version.

On Linux, Dask has workers give freed memory back at once, by which tasks take up to three times as
long. Before a `LocalCluster` is made, or in Dask's configuration for `dask worker`, set
`dask.config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None})`.

If the client can reach the workers, make it by `Client(address, direct_to_workers=True)`:
otherwise all vectors pass through the scheduler. The size of chunks matters little: the fit reads
each once. Dask's dashboard (`client.dashboard_link`) shows the tasks.

## Who does what

The process that calls `fit` is the *client*. It holds the rows, the graph and the vectors, and
decides. Workers do what takes longest:

| stage | a task | each worker gets once | the task gets | it returns |
|---|---|---|---|---|
| graph | measures distances of some rows to those near them | the rows | which rows | near rows |
| eigenpairs | filters 16 vectors | the graph | the vectors | the vectors |
| merging | merges one set of fragments | the rows and their graphs | fragments | a tree |

The client does the rest: fragments, sums over all rows, and products with the graph, because
sending vectors takes longer than one product. It also computes all eigenpairs of fewer than 65,536
rows. A client with a GPU (`backend="cuda"`) computes eigenpairs and merges by itself; workers use
no GPU, because vectors would arrive more slowly than it filters them.

The client needs as much memory as a fit in one process: [files](large.md#memory-limit) help there
too. A worker with one thread needs about 140 MB + 2.8 kB a row, most of it for merging. While a
dask X is read, the workers together hold it as well.

**The result is that of one process**, to the last bit, for any number of workers with the same
processor and libraries: a task is a function of what it gets, and sums are taken by the client in
one order.

## When something is lost

- *One worker*: its tasks are sent again. What each worker gets once is fetched from another worker
  or, if none has it, sent again.
- *One worker after another*: a `MemoryError` names the stage and what a task needs. Give workers
  more memory, or fewer threads. How often a task may lose its worker is Dask's setting
  `distributed.scheduler.allowed-failures` (3). A `LocalCluster` may not start a worker again that
  dies twice within 15 seconds; a longer `distributed.deploy.lost-worker-timeout` mends that.
- *All workers*, for a minute: a `RuntimeError`. Where workers take long to start, call
  `client.wait_for_workers(1)` before `fit`.
- *The client*: with `checkpoint=`, the same fit [goes on](large.md#checkpoint) where it was.

## What to do instead

A cluster pays where one machine takes hours. Before, try `neighbors="approximate"` with many rows
or columns, and fewer columns (PCA). If clusters are large, cluster a sample, and let `predict`
label the other rows, which takes a search for neighbours and nothing else.
"""


def simulated(loops: list[dict[str, Any]], n_workers: int, scale: float = 1) -> float:
    """Return the seconds of the loops on so many workers, by the record of their tasks.

    `scale` multiplies the rows, and with them the bytes and seconds. The client sends one thing
    after another, and receives one after another. A worker has at most two tasks at a time: it
    works on one, and waits for the other.
    """
    whole = 0.0
    for loop in loops:
        hops = 1 + math.ceil(math.log2(n_workers))  # workers pass on what all need
        link_out, link_in = scale * hops * loop["shared"] / BANDWIDTH, 0.0
        free = [(0.0, worker) for worker in range(n_workers)]
        ends = [0.0] * n_workers
        for sent, returned, spent in loop["tasks"]:
            slot, worker = heapq.heappop(free)
            link_out = max(link_out, slot) + scale * sent / BANDWIDTH + LATENCY
            begin = max(link_out, ends[worker])
            ends[worker] = begin + scale * spent
            link_in = max(link_in, ends[worker]) + scale * returned / BANDWIDTH
            heapq.heappush(free, (begin, worker))  # the next may be sent when this one begins
        whole += link_in
    return whole


def page() -> str:
    """Return docs/cluster.md."""
    found = [(row["task"], row["result"]) for row in read(FILE) if "result" in row]
    kinds = [[x for x in found if x[0]["kind"] == kind] for kind in ("fit", "killed", "sample")]
    return PAGE + (_measured(*kinds) if all(kinds) else "")


Found = list[tuple[dict[str, Any], dict[str, Any]]]


def _measured(fits: Found, killed: Found, samples: Found) -> str:
    """Return the part of the page that is measured."""
    runs = {task["workers"]: result for task, result in fits if task["m"] == ROWS}
    record = runs[WORKERS[0]]["loops"]
    client = runs[WORKERS[0]]["seconds"] - sum(loop["seconds"] for loop in record)
    more = [
        [n, seconds(simulated(record, n)), seconds(simulated(record, n, MANY / ROWS))]
        for n in SIMULATED
    ]
    deaths = ", ".join(f"{x['same']} of {x['killed']} in {task['stage']}" for task, x in killed)
    given = [
        [task["set"], f"{x['rows']:,}", seconds(x["seconds"]), x["k"], f"{x['ari']:.3f}"]
        + [f"{x['to_whole']:.3f}"]
        for task, result in samples
        for x in result["samples"]
    ]
    return f"""
{table(["set", "rows clustered", "seconds", "k", "ARI", "ARI to all rows"], given)}

The first line of each set clusters all rows; the others cluster a sample and predict the rest.

## Measured

{ROWS:,} rows in {COLUMNS} columns, {CLUSTERS} clusters, on a machine with two cores, which one
process uses as well, and which the client and its workers share.

{_table_of_fits(runs)}

{_table_of_loops(record, runs[WORKERS[0]])}

Workers were killed at drawn moments, in fits of {KILLED_ROWS:,} rows: the same labels {deaths}.

{_table_of_memory(fits)}

## More workers

A simulation of the recorded loops, with a network of {size_in_units(int(BANDWIDTH))} a second at
the client, and {1000 * LATENCY:g} ms for a task. The client alone needs {seconds(client)} more,
with any number of workers. In the last column, bytes and seconds are in proportion to the rows, as
is the client's own time, {seconds(client * MANY / ROWS)}, and its memory. The exact search takes
longer than in proportion, above all in many columns; `neighbors="approximate"` runs on the client.

{table(["workers", f"{ROWS:,} rows", f"{MANY:,} rows"], more)}

A filter has a task for every 16 vectors, fewer as eigenpairs converge, and merging has six: more
workers have nothing to do.

`python -m benchmarks.cluster` measures all this, on {machine(stamps(FILE)[-1])}
"""


def _table_of_fits(runs: dict[int, dict[str, Any]]) -> str:
    """Return the table of whole fits."""
    lines, alone = [], runs[0]["labels"]
    for n, found in runs.items():
        same = "–" if n == 0 else "yes" if found["labels"] == alone else "NO"
        loops = sum(loop["seconds"] for loop in found.get("loops", ()))
        guess = simulated(found["loops"], n) if n else 0
        shared = [seconds(loops), seconds(guess)] if n else ["–", "–"]
        lines.append([n or "one process", seconds(found["seconds"]), *shared, same, found["k"]])
    head = ["workers", "whole fit", "its loops", "simulated", "same labels", "k"]
    return table(head, lines)


def _table_of_loops(record: list[dict[str, Any]], found: dict[str, Any]) -> str:
    """Return the table of the tasks, and what was sent."""
    sums: dict[str, list[Any]] = {}
    for loop in record:
        entry = sums.setdefault(loop["function"], [0, 0, 0, 0, 0.0])
        sent, returned, spent = np.sum(loop["tasks"], axis=0)
        parts = (len(loop["tasks"]), loop["shared"], sent, returned, spent)
        for i, x in enumerate(parts):
            entry[i] += x
    lines = [
        [f"`{name}`", n, *(size_in_units(int(x)) for x in sizes), seconds(float(spent))]
        for name, (n, *sizes, spent) in sums.items()
    ]
    counted = sum(sum(x[2:4]) + WORKERS[0] * x[1] for x in sums.values())
    ratio = found["network_bytes"] / counted
    head = ["loop", "tasks", "shared", "sent", "returned", "seconds on workers"]
    return (
        f"The tasks of the fit on {WORKERS[0]} workers:\n\n{table(head, lines)}\n\n"
        "In a round, each vector costs 20 bytes a row: 8 there and 8 back, and 4 for its residual. "
        f"The network carried {size_in_units(found['network_bytes'])}, {ratio:.2f} times what "
        "tasks get, return and share."
    )


def _table_of_memory(fits: Found) -> str:
    """Return the table of the memory of workers."""
    lines = []
    for task, found in sorted(fits, key=lambda x: x[0]["m"]):
        if task["workers"] == WORKERS[0]:
            most, guess = max(found["worker_bytes"]), WORKER_BASE + WORKER_ROW * task["m"]
            sizes = [size_in_units(int(x)) for x in (most, guess, found["peak_bytes"])]
            lines.append([f"{task['m']:,}", *sizes[:2], f"{most / guess:.2f}", sizes[2]])
    head = ["rows", "largest worker", "140 MB + 2.8 kB a row", "ratio", "client"]
    return table(head, lines)
