"""The memory limit of a fit (see `specialk_gpu.backend.large_arrays`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["MemoryLimit", "memory_limit", "memory_limited"]


class MemoryLimit(NamedTuple):
    """The bytes allowed for arrays, and the folder for files (None: the system's)."""

    size: int
    folder: str | None = None


memory_limit: ContextVar[MemoryLimit | None] = ContextVar("memory limit", default=None)


@contextmanager
def memory_limited(limit: MemoryLimit | None) -> Iterator[None]:
    """Limit the memory of arrays made by `large_array`; None lifts a limit."""
    token = memory_limit.set(limit)
    try:
        yield
    finally:
        memory_limit.reset(token)
