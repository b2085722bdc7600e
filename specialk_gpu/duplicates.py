"""Groups of equal rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of

__all__ = ["duplicate_groups", "first_members"]


def duplicate_groups(X: Any) -> tuple[Any, Any] | None:
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
    integer = np.uint32 if X.dtype == np.float32 else np.uint64
    step = max(1, bk.tile_bytes // (24 * d))
    for seed in range(8):
        draws = np.random.default_rng(seed).integers(2**63, size=d, dtype=np.int64)
        factors = bk.asarray(draws.astype(np.uint64) * 2 + 1)
        keys = xp.empty(m, dtype=np.uint64)
        for start in range(0, m, step):
            bits = xp.ascontiguousarray(X[start : start + step] + 0).view(integer)  # no -0.0
            bits = bits.astype(np.uint64)
            bits ^= bits >> 32
            bits *= factors
            keys[start : start + step] = bits.sum(axis=1)
        _, first, group = xp.unique(keys, return_index=True, return_inverse=True)
        if first.size == m:
            return None
        if all(
            bool((X[start : start + step] == X[first[group[start : start + step]]]).all())
            for start in range(0, m, step)
        ):
            order = xp.argsort(first)
            rank = xp.empty(first.size, dtype=np.int64)
            rank[order] = xp.arange(first.size)
            return first[order], rank[group]
    msg = "eight different hashes of the rows collided; this should not be possible."
    raise RuntimeError(msg)


def first_members(xp: Any, group: Any, n_groups: int, width: int) -> Any:
    """List the first `width` rows of each group, padded with the number of rows."""
    m = group.size
    order = xp.argsort(group, kind="stable")
    start = xp.searchsorted(group[order], xp.arange(n_groups))
    place = xp.arange(m) - start[group[order]]
    members = xp.full((n_groups, width), m, dtype=np.int64)
    keep = place < width
    members[group[order][keep], place[keep]] = order[keep]
    return members
