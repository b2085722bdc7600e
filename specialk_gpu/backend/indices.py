"""The integers that number the entries of a sparse matrix."""

from __future__ import annotations

import numpy as np

from specialk_gpu.backend.typing import Dtype

__all__ = ["index_dtype"]

MAX_INT32_ENTRIES = 2**31 - 1


def index_dtype(n_entries: int) -> Dtype:
    """Return the dtype of the indices of a CSR matrix with so many entries.

    SciPy wants one dtype for the numbers of columns and of entries.
    """
    return np.int32 if n_entries <= MAX_INT32_ENTRIES else np.int64
