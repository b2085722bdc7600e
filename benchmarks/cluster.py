"""A fit on workers of Dask: its tasks and bytes, and what more workers would make of it.

    SPECIALK_MNIST=folder python -m benchmarks.cluster

Fits of rows in 16 columns (20 Gaussian clusters) run in one process, and on clusters of 2 and 4
workers on this machine. Each task is recorded: its seconds on the worker, and the bytes it gets and
returns. Workers are killed in each stage, and samples are clustered instead of all rows. Results
are JSON lines in benchmarks/results/cluster.jsonl, of which `benchmarks.cluster_page` makes
docs/cluster.md. Needs Linux, for the memory.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large import Peak
from benchmarks.paper.runner import run
from benchmarks.stamp import RESULTS
from specialk_gpu import SpecialK, _dask_workers
from specialk_gpu import dask as on_dask
from specialk_gpu._workers import Loop
from specialk_gpu.datasets import load_mnist
from specialk_gpu.spectrum import tall

FILE = RESULTS / "cluster.jsonl"
ROWS, COLUMNS, CLUSTERS = 200_000, 16, 20
WORKERS = (2, 4)
SIZES = (100_000, ROWS, 400_000)  # for the memory of 2 workers
SETTINGS: dict[str, Any] = {"backend": "numpy", "random_state": 0}
# stages, and the number of results before which a worker is killed
KILLED_IN = {"neighbours": 15, "eigenpairs": 30, "merging": 6}
KILLED_ROWS, KILLS = 20_000, 10
SAMPLES = {"clusters": (10_000, 50_000), "MNIST": (10_000, 30_000)}
# Dask gives freed memory back at once; to get it again, tasks take three times as long
OF_MEMORY = "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"
_PEAKS: list[Peak] = []  # of this process


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


class Recorded(_dask_workers.DaskWorkers):
    """A cluster that keeps a record of its tasks."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.loops: list[dict[str, Any]] = []

    def run(self, loop: Loop) -> None:
        """Record the bytes and seconds of each task."""
        tasks: list[list[float]] = [[0, 0, 0] for _ in loop.arguments]

        def counted(i: int) -> tuple[Any, ...]:
            given = loop.arguments[i]()
            tasks[i][0] = size_of(given)
            return (loop.function, *given)

        def keep(i: int, found: tuple[Any, float]) -> None:
            tasks[i][1:] = size_of(found[0]), found[1]
            loop.store(i, found[0])

        began = time.perf_counter()
        given = [lambda i=i: counted(i) for i in range(len(tasks))]
        size = 0 if id(loop.shared) in self._shared else size_of(loop.shared)
        super().run(loop._replace(function=timed, arguments=given, store=keep))
        record = {"stage": loop.stage, "function": loop.function.__name__, "shared": size}
        self.loops.append(record | {"tasks": tasks, "seconds": time.perf_counter() - began})


def size_of(x: Any) -> int:
    """Return the bytes that are sent for an object."""
    buffers: list[Any] = []
    head = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Do a task; return what is measured."""
    kind = task["kind"]
    return {"fit": fit, "killed": killed, "sample": sampled}[kind](task)


def fit(task: dict[str, Any]) -> dict[str, Any]:
    """Fit in one process, or on a cluster; return seconds, labels and the record of the tasks."""
    X, made = rows(task["m"]), []
    if not task["workers"]:
        return fitted(SpecialK(**SETTINGS), X)

    def recorded(client: Any) -> Recorded:
        made.append(Recorded(client))
        return made[-1]

    with clients(task["workers"], 0) as client:
        client.run(watch)
        with replaced_by(recorded):
            before = loopback_bytes()
            found = fitted(on_dask.SpecialK(client=client, **SETTINGS), X)
            sent = loopback_bytes() - before
        peaks = client.run(watched)
    loops = [loop for each in made for loop in each.loops]
    return found | {"loops": loops, "network_bytes": sent, "worker_bytes": list(peaks.values())}


@contextmanager
def clients(n_workers: int, allowed_failures: int) -> Iterator[Any]:
    """Return a client of workers with one thread each."""
    import dask
    from distributed import Client, LocalCluster

    options = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    settings = {
        "distributed.scheduler.allowed-failures": allowed_failures,
        "distributed.deploy.lost-worker-timeout": "1 hour",  # so that a second death is no end
        OF_MEMORY: None,
    }
    with (
        dask.config.set(settings),
        LocalCluster(**options) as cluster,
        Client(cluster, direct_to_workers=True) as client,
    ):
        yield client


@contextmanager
def replaced_by(make: Callable[[Any], Any]) -> Iterator[None]:
    """Let fits use another kind of cluster."""
    before = _dask_workers.DaskWorkers
    _dask_workers.DaskWorkers = make  # type: ignore[assignment, misc] # stands in for it
    try:
        yield
    finally:
        _dask_workers.DaskWorkers = before  # type: ignore[misc] # it was a class before


def loopback_bytes() -> int:
    """Return the bytes that this machine has sent to itself."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split()[1])


def watch() -> None:
    """Begin to watch the memory of this process."""
    from benchmarks import cluster  # the module, not a copy of it that was sent

    cluster._PEAKS.append(Peak())


def watched() -> int:
    """Return the largest memory of this process, in bytes."""
    from benchmarks import cluster

    return cluster._PEAKS[-1].most


class Killing(_dask_workers.DaskWorkers):
    """A cluster one of whose workers is killed, before some result of a stage."""

    def __init__(self, client: Any, stage: str, when: int) -> None:
        super().__init__(client)
        self.stage, self.when, self.pid = stage, when, 0

    def run(self, loop: Loop) -> None:
        """Count the results of the stage, and kill."""

        def counted(i: int, found: Any) -> None:
            if loop.stage == self.stage and not self.pid:
                self.when -= 1
                if self.when < 0:
                    self.kill()
            loop.store(i, found)

        super().run(loop._replace(store=counted))

    def kill(self) -> None:
        """Kill one of the workers."""
        address = sorted(self.client.scheduler_info(n_workers=-1)["workers"])[0]
        (self.pid,) = self.client.run(os.getpid, workers=[address]).values()
        os.kill(self.pid, signal.SIGKILL)


def killed(task: dict[str, Any]) -> dict[str, Any]:
    """Fit again and again, and kill a worker in a stage each time; count the same labels."""
    X, rng = rows(KILLED_ROWS), np.random.default_rng(0)
    sizes = tall.MANY_ROWS, tall.SLAB
    tall.MANY_ROWS, tall.SLAB = 1000, 4096  # so that workers take part
    try:
        expected = fitted(SpecialK(eigen_solver="chebyshev", **SETTINGS), X)["labels"]
        same, deaths = 0, 0
        for when in rng.integers(0, KILLED_IN[task["stage"]], KILLS):
            made: list[Killing] = []

            def killing(client: Any, when: int = int(when), made: list[Any] = made) -> Killing:
                made.append(Killing(client, task["stage"], when))
                return made[0]

            with clients(2, 3) as client, replaced_by(killing):
                model = on_dask.SpecialK(client=client, eigen_solver="chebyshev", **SETTINGS)
                same += fitted(model, X)["labels"] == expected
            deaths += made[0].pid != 0
        return {"fits": KILLS, "killed": deaths, "same": same}
    finally:
        tall.MANY_ROWS, tall.SLAB = sizes


def sampled(task: dict[str, Any]) -> dict[str, Any]:
    """Cluster all rows, and samples whose models predict all rows."""
    from sklearn.metrics import adjusted_rand_score

    if task["set"] == "MNIST":
        X, y = load_mnist()
        X = X.astype(np.float32)
    else:
        X, y = rows(ROWS), np.arange(ROWS) % CLUSTERS
    order, out = np.random.default_rng(0).permutation(len(X)), []
    whole = np.zeros(0)
    for size in (len(X), *SAMPLES[task["set"]]):
        began = time.perf_counter()
        model = SpecialK(**SETTINGS).fit(X[order[:size]] if size < len(X) else X)
        labels = model.labels_ if size == len(X) else model.predict(X)
        spent = time.perf_counter() - began
        whole = labels if size == len(X) else whole
        found = {"to_whole": adjusted_rand_score(whole, labels), "k": int(model.n_clusters_)}
        out.append(found | {"rows": size, "seconds": spent, "ari": adjusted_rand_score(y, labels)})
    return {"samples": out}


def fitted(model: Any, X: np.ndarray) -> dict[str, Any]:
    """Fit a model; return what is measured of it."""
    peak, began = Peak(), time.perf_counter()
    model.fit(X)
    spent = time.perf_counter() - began
    peak.ended = True
    labels = hashlib.sha256(np.asarray(model.labels_).tobytes()).hexdigest()[:16]
    result = {"seconds": spent, "k": int(model.n_clusters_), "labels": labels}
    return result | {"stages": model.timings_, "peak_bytes": peak.most}


def tasks() -> list[dict[str, Any]]:
    """List what is measured."""
    fits = [(m, 2) for m in SIZES if m != ROWS] + [(ROWS, n) for n in (0, *WORKERS)]
    return [
        *({"kind": "killed", "stage": stage} for stage in KILLED_IN),
        *({"kind": "fit", "m": m, "workers": n} for m, n in fits),
        *({"kind": "sample", "set": name} for name in SAMPLES),
    ]


if __name__ == "__main__":
    run(measure, tasks(), FILE, jobs=1)
