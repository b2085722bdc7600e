"""Threads on the host: how many, and a loop that shares them with BLAS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

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
        self.lock, self.users, self.limits = Lock(), 0, None

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.limits = _libraries().limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limits.restore_original_limits()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


one_blas_thread = _OneBlasThread()


def map_chunks(function: Callable[[slice], Any], chunks: Iterable[slice]) -> list[Any]:
    """Apply `function` to every slice, on all cores; the order of the results is kept."""
    chunks = list(chunks)
    workers = min(n_threads(), len(chunks))
    if workers <= 1:
        return [function(chunk) for chunk in chunks]
    with one_blas_thread, ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, chunks))
