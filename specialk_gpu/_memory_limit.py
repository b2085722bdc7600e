"""The memory limit of a fit, in bytes (see `specialk_gpu.backend.large_arrays`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["memory_limit", "memory_limited"]

memory_limit: ContextVar[int | None] = ContextVar("memory limit", default=None)


@contextmanager
def memory_limited(limit: int | None) -> Iterator[None]:
    """Limit the bytes of arrays made by `large_array` in this thread; None lifts a limit."""
    token = memory_limit.set(limit)
    try:
        yield
    finally:
        memory_limit.reset(token)
