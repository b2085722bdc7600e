"""The memory that eigenpairs need, which is asked for before any is allocated."""

from __future__ import annotations

import math

from specialk_gpu._memory_limit import memory_limit
from specialk_gpu._units import size_in_units
from specialk_gpu.backend.cpu.threads import n_threads
from specialk_gpu.backend.typing import Backend
from specialk_gpu.spectrum.tall import panel_width, slabs

__all__ = ["guard_size", "needed_memory", "require_memory"]

SQUARES = 3  # arrays of n × n


def needed_memory(bk: Backend, m: int, n: int, solver: str, itemsize: int = 8) -> int:
    """Return the bytes that n eigenpairs of m rows need at most, beside the matrix.

    The solvers need: "chebyshev", two blocks of n and the guard vectors, and their residuals in
    float32, or three blocks for many rows and on a device, where a filter takes three panels more;
    "lanczos", two blocks for its basis and three of n. The verification needs two blocks of n, and
    four panels in float64 for each thread. "dense" needs four arrays of m × m and two of m × n,
    also those that LAPACK makes. "auto" stands for the solver that needs least, unless that is
    "dense". Under a memory limit the blocks of "chebyshev" live in files, and panels are left.
    """
    if solver == "auto":
        return min(needed_memory(bk, m, n, own, itemsize) for own in ("chebyshev", "lanczos"))
    if solver == "dense":
        return (4 * m + 2 * n) * m * 8
    n_block = min(m, n + guard_size(n))
    panel, many = min(n_block, panel_width(bk, m)), len(slabs(bk, m)) > 1
    if bk.name != "numpy":
        return m * (n_block * (3 * itemsize + 4) + 3 * panel * itemsize)
    columns = (5 * n + 1) * itemsize
    if solver != "lanczos":
        columns = n_block * ((3 if many else 2) * itemsize + 4)
    n_panels = 1 if many else min(n_threads(), -(-n // panel))
    work = 4 * n_panels * panel * 8
    verified = 2 * n * itemsize + work
    if solver == "chebyshev" and memory_limit.get() is not None:
        columns, verified = 0, work
    return m * max(columns, verified) + SQUARES * n_block**2 * itemsize


def require_memory(bk: Backend, m: int, n: int, solver: str, itemsize: int = 8) -> None:
    """Raise MemoryError, before any is allocated, if n eigenvectors of m rows do not fit."""
    needed, free = needed_memory(bk, m, n, solver, itemsize), bk.free_memory()
    there, limit = f"{size_in_units(free)} are free", memory_limit.get()
    if limit is not None and limit < free:
        free, there = limit, f"memory_limit is {size_in_units(limit)}"
    if needed > free:
        msg = (
            f"{n} eigenvectors of {m} rows need about {size_in_units(needed)} of work space, but "
            f"{there}. Ask for fewer (n_components), or cluster a sample of the rows."
        )
        if limit is None:
            msg += " Or keep them in files (memory_limit)."
        raise MemoryError(msg)


def guard_size(n: int) -> int:
    """Return how many vectors a block of "chebyshev" has beyond the n that are asked for."""
    return max(16, math.ceil(0.15 * n))
