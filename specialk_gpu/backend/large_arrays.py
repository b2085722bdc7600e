"""The largest arrays of a fit, with a column for each eigenvector or fragment.

Under a memory limit, those of more than a sixteenth of it are mapped from files without a name,
which vanish with the array or the process. The system keeps in memory what fits, and results are
the same to the last digit.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

from specialk_gpu._memory_limit import memory_limit
from specialk_gpu._units import size_in_units
from specialk_gpu.backend.typing import Array, Backend, Dtype

__all__ = ["large_array"]

SHARE = 16  # an array that takes more than this part of the limit goes into a file


def large_array(bk: Backend, shape: tuple[int, int], dtype: Dtype) -> Array:
    """Return an array whose entries are not set, in memory or, under a limit, in a file.

    Raises
    ------
    MemoryError
        If there is no space for the file.
    """
    limit, size = memory_limit.get(), shape[0] * shape[1] * np.dtype(dtype).itemsize
    if bk.name != "numpy" or limit is None or size <= limit // SHARE:
        return bk.xp.empty(shape, dtype=dtype)
    try:
        with tempfile.TemporaryFile() as file:
            if hasattr(os, "posix_fallocate"):  # a file that is too large later would be a crash
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            content = mmap.mmap(file.fileno(), size)
    except OSError as error:
        msg = (
            f"an array of {size_in_units(size)} does not fit into the folder "
            f"{tempfile.gettempdir()} ({error}). "
            "Free space there, set the environment variable TMPDIR to another folder, or raise "
            "memory_limit."
        )
        raise MemoryError(msg) from error
    return np.frombuffer(content, dtype=dtype).reshape(shape)
