"""Threads on the host: how many, and a loop that shares them with BLAS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock, local
from typing import Any

from threadpoolctl import LibController, ThreadpoolController

from specialk_gpu.progress import told

__all__ = ["map_chunks", "n_threads", "one_blas_thread"]


def n_threads() -> int:
    """Return how many threads to use: what OMP_NUM_THREADS, threadpoolctl and the system allow."""
    from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

    allowed = _openmp_effective_n_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(asked), allowed) if asked.isdigit() and int(asked) > 0 else allowed


class _OneBlasThread:
    """A context, to be entered from any thread, in which a product takes one thread."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = Lock(), 0, []

    def forget(self) -> None:
        """Begin anew in a child that was forked while a thread of its parent was inside."""
        users, self.users, self.lock = self.users, 0, Lock()
        for library, n_threads in self.before if users else ():
            library.set_num_threads(n_threads)

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.before = [(library, library.get_num_threads()) for library in _blas()]
                for library in _blas():
                    library.set_num_threads(1)
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                for library, n_threads in self.before:
                    library.set_num_threads(n_threads)


@cache
def _blas() -> list[LibController]:
    return ThreadpoolController().select(user_api="blas").lib_controllers


one_blas_thread = _OneBlasThread()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=one_blas_thread.forget)


class _Worker(local):
    """Says whether the current thread is one of a pool's."""

    busy = False

    def start(self) -> None:
        self.busy = True


_worker = _Worker()


@cache
def _pool(n_workers: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked child's own
    return ThreadPoolExecutor(n_workers, "specialk_gpu", initializer=_worker.start)


def map_chunks(function: Callable[[Any], Any], chunks: Iterable[Any], stage: str = "") -> list[Any]:
    """Apply `function` to every chunk, on all cores; the order of the results is kept.

    Progress is told under `stage`, if named.
    """
    chunks = list(chunks)
    n_workers = 1 if _worker.busy or len(chunks) < 2 else n_threads()
    if n_workers == 1:
        return list(told(map(function, chunks), len(chunks), stage))
    with one_blas_thread:
        results = _pool(n_workers, os.getpid()).map(function, chunks)
        return list(told(results, len(chunks), stage))
