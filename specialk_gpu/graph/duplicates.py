"""Groups of equal rows."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.tiles import tile_rows
from specialk_gpu.backend.typing import Array

__all__ = ["duplicate_groups", "first_duplicates"]


def duplicate_groups(X: Array) -> tuple[Array, Array] | None:
    """Group equal rows.

    Parameters
    ----------
    X : float array of shape (m, d)

    Returns
    -------
    None if all rows differ, else
    first : int64 array of shape (u,)
        The first row of each group, ascending.
    group : int64 array of shape (m,)
        The group of each row.
    """
    bk = backend_of(X)
    xp = bk.xp
    m, d = X.shape
    step = tile_rows(bk, 24 * d)
    for seed in range(8):
        draws = np.random.default_rng(seed).integers(2**63, size=d, dtype=np.int64)
        factors = bk.asarray(draws.astype(np.uint64) * 2 + 1)
        keys = bk.row_hashes(X, factors)
        _, first, group = xp.unique(keys, return_index=True, return_inverse=True)
        if first.size == m:
            return None
        if all(
            bk.all_true(X[start : start + step] == X[first[group[start : start + step]]])
            for start in range(0, m, step)
        ):
            order = xp.argsort(first)
            rank = xp.empty(first.size, dtype=np.int64)
            rank[order] = xp.arange(first.size)
            return first[order], rank[group]
    msg = "eight different hashes of the rows collided; this should not be possible."
    raise RuntimeError(msg)


def first_duplicates(xp: ModuleType, group: Array, n_groups: int, width: int) -> Array:
    """List the first `width` rows of each group; m, the number of rows, fills missing places."""
    m = group.size
    order = xp.argsort(group, kind="stable")
    start = xp.searchsorted(group[order], xp.arange(n_groups))
    place = xp.arange(m) - start[group[order]]
    members = xp.full((n_groups, width), m, dtype=np.int64)
    keep = place < width
    members[group[order][keep], place[keep]] = order[keep]
    return members
