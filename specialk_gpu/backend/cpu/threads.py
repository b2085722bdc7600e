"""Threads on the host: their number, and a parallel loop that shares them with BLAS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from threading import Lock, local
from typing import Any, Generic, TypeVar

from threadpoolctl import LibController, ThreadpoolController

from specialk_gpu._memory_limit import memory_limit, memory_limited
from specialk_gpu._progress import report_progress
from specialk_gpu._time_limit import Halted, check_time_limit, reasons_to_stop, stops_when

__all__ = ["map_chunks", "n_threads", "one_blas_thread"]

T = TypeVar("T")
R = TypeVar("R")


def n_threads() -> int:
    """Return the number of threads that OMP_NUM_THREADS, threadpoolctl and the system allow."""
    from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

    allowed = _openmp_effective_n_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(asked), allowed) if asked.isdigit() and int(asked) > 0 else allowed


class _OneBlasThread:
    """A context in which a matrix product uses one thread of BLAS; any thread may enter it."""

    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.before: list[tuple[LibController, int]] = []

    def forget(self) -> None:
        """Reset the state in a child that was forked while its parent was inside the context."""
        users, self.users, self.lock = self.users, 0, Lock()
        for library, n_threads in self.before if users else ():
            library.set_num_threads(n_threads)

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.before = [(library, library.get_num_threads()) for library in _blas_threads()]
                for library in _blas_threads():
                    library.set_num_threads(1)
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                for library, n_threads in self.before:
                    library.set_num_threads(n_threads)


@cache
def _blas_threads() -> list[LibController]:
    return ThreadpoolController().select(user_api="blas").lib_controllers


one_blas_thread = _OneBlasThread()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=one_blas_thread.forget)


class _WorkerThread(local):
    """Thread-local flag: whether the current thread belongs to a pool."""

    busy = False

    def start(self) -> None:
        self.busy = True


_worker = _WorkerThread()


@cache
def _thread_pool(n_workers: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked child's own
    return ThreadPoolExecutor(n_workers, "specialk_gpu", initializer=_worker.start)


class _ChunksForThreads(Generic[T, R]):
    """Chunks that several threads take one by one."""

    def __init__(self, function: Callable[[T], R], chunks: list[T]) -> None:
        self.function, self.chunks = function, chunks
        self.results: list[Any] = [None] * len(chunks)
        self.lock, self.begun, self.done = Lock(), 0, 0
        self.is_halted, self.reasons = False, reasons_to_stop.get()
        self.limit = memory_limit.get()

    def stop(self) -> None:
        """Hand out no more chunks."""
        with self.lock:
            self.begun = len(self.chunks)

    def halt(self) -> None:
        """End the threads that help, at their next check; their results are not needed."""
        self.is_halted = True
        self.stop()

    def _end_if_halted(self) -> None:
        if self.is_halted:
            raise Halted

    def help(self) -> None:
        """Work in another thread, for as long as the thread that waits for it does."""
        with stops_when(*self.reasons, self._end_if_halted), memory_limited(self.limit):
            self.work()

    def work(self, stage: str = "") -> None:
        """Work until no chunk is left or one fails; report progress under `stage`, if given."""
        while True:
            with self.lock:
                i, self.begun = self.begun, self.begun + 1
            if i >= len(self.chunks):
                return
            try:
                self.results[i] = self.function(self.chunks[i])
            except BaseException:
                self.stop()
                raise
            with self.lock:
                self.done += 1
            report_progress(stage, self.done, len(self.chunks))


def map_chunks(function: Callable[[T], R], chunks: Iterable[T], stage: str = "") -> list[R]:
    """Apply `function` to every chunk, on all cores, and return the results in order.

    The calling thread works as well, because waiting for other threads would take longer than a
    short chunk. Progress is reported under `stage`, if given.
    """
    chunks = list(chunks)
    if len(chunks) == 1 and not stage:
        check_time_limit()
        return [function(chunks[0])]
    work = _ChunksForThreads(function, chunks)
    alone = _worker.busy or len(work.chunks) < 2
    n_workers = 1 if alone else min(n_threads(), len(work.chunks))
    if n_workers < 2:
        work.work(stage)
        return work.results
    with one_blas_thread:
        pool = _thread_pool(n_threads(), os.getpid())
        others = [pool.submit(work.help) for _ in range(n_workers - 1)]
        try:
            _worker.busy = True
            try:
                work.work(stage)
            finally:
                _worker.busy = False
            for other in others:
                other.result()
        except BaseException:
            work.halt()
            wait(others)
            raise
    if stage:
        report_progress(stage, len(work.chunks), len(work.chunks))
    return work.results
