"""The workers of a client of Dask: tasks are sent to them, and again if they are lost."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from specialk_gpu._progress import report_progress
from specialk_gpu._time_limit import check_time_limit
from specialk_gpu._units import size_in_units
from specialk_gpu._workers import Loop, with_workers
from specialk_gpu.backend import cpu

__all__ = ["DaskWorkers", "client_of", "workers_of"]

REPEATS = 5  # times that a task, or data, are sent, where a worker that has them is lost
KEPT = 2  # shared objects that workers keep: the matrix in both precisions
PATIENCE = 60.0  # seconds without any worker
WAIT = 2.0  # seconds that the scheduler waits for a worker that takes data
PAUSE = 0.002  # seconds between two looks at what is done


def client_of(client: Any) -> Any:
    """Return the client that is given, or the current one."""
    from distributed import Client, get_client

    if client is not None and not isinstance(client, Client):
        msg = f"client must be a distributed.Client or None, got {client!r}. Client(address) "
        raise TypeError(msg + "makes one.")
    try:
        client = client or get_client()
    except ValueError as error:
        msg = "client must be a distributed.Client, or one must be current: Client() makes one."
        raise ValueError(msg) from error
    if client.asynchronous or client.status != "running":
        state = "asynchronous" if client.asynchronous else client.status
        msg = f"client must be connected and not asynchronous, got one that is {state}. "
        raise ValueError(msg + "Client(address) makes one.")
    return client


@contextmanager
def workers_of(client: Any) -> Iterator[Any]:
    """Let the workers of a client share the loops that run inside; return the client.

    If this is a task itself, its worker takes others meanwhile, among them those of the loops.
    """
    from distributed import rejoin

    cluster = DaskWorkers(client)
    in_task = _leave_place_of_task()
    try:
        with with_workers(cluster):
            yield client
    finally:
        cluster.release()
        if in_task:
            rejoin()


def _leave_place_of_task() -> bool:
    """Free the thread of a worker that this task runs in; return whether this is a task."""
    from distributed import secede

    try:
        secede()
    except ValueError:  # no worker runs this
        return False
    return True


class DaskWorkers:
    """The workers of a client; see `specialk_gpu._workers.Workers`."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._shared: dict[int, tuple[Any, Any]] = {}  # by id: objects, and where they are
        self._threads, self._looked, self._seen = 0, -math.inf, time.monotonic()
        self._wanted: Any = None  # a task that waits for workers: adaptive clusters heed it

    def release(self) -> None:
        """Let workers forget what they were sent, even if an exception keeps this object."""
        for _, future in self._shared.values():
            future.release()
        self._shared.clear()
        self._wanted = None

    def run(self, loop: Loop) -> None:
        """See `specialk_gpu._workers.Workers`."""
        running: dict[int, Any] = {}
        self._seen = time.monotonic()
        try:
            self._run(loop, running)
        except Exception as error:
            if self.client.status == "running":
                raise
            msg = (
                f"{loop.stage}: the client was closed, or its scheduler was lost. Connect a new "
                "client, and fit again: with checkpoint= the fit goes on where it was."
            )
            raise RuntimeError(msg) from error
        finally:
            for future in running.values():
                future.release()

    def _run(self, loop: Loop, running: dict[int, Any]) -> None:
        """Send tasks, and keep those that run in `running`, until all are done."""
        from distributed import KilledWorker

        n = len(loop.arguments)
        waiting, sent, done = list(range(n))[::-1], [0] * n, 0
        while waiting or running:
            room = 2 * self._n_threads()
            while waiting and len(running) < room:
                i = waiting.pop()
                sent[i] += 1
                if sent[i] > REPEATS:
                    raise _workers_died(loop)
                given, where = self._sent(loop.arguments[i]()), self._place_of(loop.shared)
                running[i] = self.client.submit(_call, loop.function, where, given, pure=False)
            finished = [i for i, future in running.items() if future.done()]
            for i in finished:
                try:
                    found = running.pop(i).result()
                except CancelledError:  # data of the task were lost with a worker
                    waiting.append(i)
                    continue
                except KilledWorker as error:
                    raise _workers_died(loop) from error
                loop.store(i, found)
                done += 1
                report_progress(loop.stage, done, n)
            if not finished:
                check_time_limit()
                time.sleep(PAUSE)

    def _place_of(self, shared: Any) -> Any:
        """Return the future of an object on the workers; send it if it was lost."""
        kept = self._shared.get(id(shared))
        if kept is None or kept[1].status != "finished":
            kept = self._shared[id(shared)] = shared, self._sent(shared)
            for key in list(self._shared)[:-KEPT]:
                del self._shared[key]
        return kept[1]

    def _sent(self, x: Any) -> Any:
        """Return the future of an object that is sent to a worker; others fetch it there."""
        for i in range(REPEATS):
            while not self._n_threads():
                check_time_limit()
                time.sleep(PAUSE)
            try:
                return self.client.scatter([x], hash=False, timeout=WAIT)[0]
            except (KeyError, OSError) as error:  # the worker died meanwhile
                last = error
                check_time_limit()
                time.sleep(0.1 * 2**i)
        msg = f"no worker takes data ({last!r}). Are workers alive? The dashboard shows them."
        raise RuntimeError(msg) from last

    def _n_threads(self) -> int:
        """Return the number of threads of all workers; RuntimeError if there are none for long."""
        now = time.monotonic()
        if now > self._looked + 1:
            self._looked, self._threads = now, sum(self.client.nthreads().values())
            if self._threads:
                self._seen, self._wanted = now, None
            elif self._wanted is None:
                self._wanted = self.client.submit(int, pure=False)
        if now > self._seen + PATIENCE:
            msg = f"no workers for {PATIENCE:.0f} seconds. Start workers, and fit again."
            raise RuntimeError(msg)
        return self._threads


def _call(function: Callable[..., Any], shared: Any, given: tuple[Any, ...]) -> Any:
    with cpu.narrow_block():
        return function(shared, *given)


def _workers_died(loop: Loop) -> MemoryError:
    return MemoryError(
        f"{loop.stage}: workers died again and again, most likely for want of memory. A task "
        f"needs {size_in_units(_bytes_in(loop.shared))} that all tasks share, and its own panel or "
        "strip. Use workers with more memory, or with fewer threads."
    )


def _bytes_in(x: Any) -> int:
    """Return the bytes of the arrays in an object."""
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return sum(buffer.raw().nbytes for buffer in buffers)
