"""The memory limit of a fit: the arrays that would take much of it live in temporary files.

The largest arrays of a fit have a column for each eigenvector or fragment. `large_array` makes
them. Under a limit, those of more than a sixteenth of it are mapped from files without a name,
which vanish with the array or the process. The system keeps in memory what fits, and results are
the same to the last digit.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specialk_gpu._units import size_in_units

if TYPE_CHECKING:  # the backend itself imports this module
    from specialk_gpu.backend.typing import Array, Backend, Dtype

__all__ = ["MemoryLimit", "bytes_per_share", "large_array", "memory_limit", "memory_limited"]

SHARE = 16  # an array that takes this part of the limit goes into a file


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


def bytes_per_share() -> int | None:
    """Return the size from which on an array goes into a file; None without a limit."""
    limit = memory_limit.get()
    return None if limit is None else limit.size // SHARE


def large_array(bk: Backend, shape: tuple[int, int], dtype: Dtype) -> Array:
    """Return an array whose entries are not set, in memory or, under a limit, in a file.

    Raises
    ------
    MemoryError
        If there is no space for the file.
    """
    size, share = shape[0] * shape[1] * np.dtype(dtype).itemsize, bytes_per_share()
    if bk.name != "numpy" or share is None or size <= share:
        return bk.xp.empty(shape, dtype=dtype)
    limit = memory_limit.get()
    folder = tempfile.gettempdir() if limit is None or limit.folder is None else limit.folder
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # a file that is too large later would be a crash
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            content = mmap.mmap(file.fileno(), size)
    except OSError as error:
        msg = (
            f"an array of {size_in_units(size)} does not fit into the folder {folder} ({error}). "
            "Free space there, set the environment variable TMPDIR to another folder, or raise "
            "memory_limit."
        )
        raise MemoryError(msg) from error
    return np.frombuffer(content, dtype=dtype).reshape(shape)
