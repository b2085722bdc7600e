"""Groups of equal rows."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from specialk_gpu._warn import warn
from specialk_gpu.backend import backend_of, tile_rows
from specialk_gpu.backend.typing import Array

__all__ = ["DuplicateRowsWarning", "duplicate_groups", "first_members", "without_copies"]

MOST_COPIES = 0.25  # if copies are a larger share of all neighbours, only distinct rows are kept


class DuplicateRowsWarning(UserWarning):
    """Rows are repeated so often that only the distinct ones are clustered."""


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


def first_members(xp: ModuleType, group: Array, n_groups: int, width: int) -> Array:
    """List the first `width` rows of each group; m, the number of rows, fills missing places."""
    m = group.size
    order = xp.argsort(group, kind="stable")
    start = xp.searchsorted(group[order], xp.arange(n_groups))
    place = xp.arange(m) - start[group[order]]
    members = xp.full((n_groups, width), m, dtype=np.int64)
    keep = place < width
    members[group[order][keep], place[keep]] = order[keep]
    return members


def without_copies(X: Array, n_neighbors: int) -> tuple[Array, Array | None]:
    """Keep each distinct row once, if copies crowd other rows out of the neighbourhoods.

    This is so if all neighbours of some row are copies of it, or if copies are more than a
    quarter of all neighbours. The graph would then fall apart into groups of copies. Returns the
    rows to cluster, and the place of each row of X among them, or X and None if nothing changes.
    """
    xp = backend_of(X).xp
    groups = duplicate_groups(X)
    if groups is None:
        return X, None
    first, group = groups
    sizes = xp.bincount(group)
    most = int(sizes.max())
    n_copies = float((sizes * xp.minimum(sizes - 1, n_neighbors)).sum())
    if most <= n_neighbors and n_copies <= MOST_COPIES * X.shape[0] * n_neighbors:
        return X, None
    warn(
        f"X has duplicate rows, one of them {most} times, and they crowd out the "
        f"n_neighbors={n_neighbors} neighbours. Clustering the {first.size} distinct rows of "
        f"{X.shape[0]}; duplicates get the same label.",
        DuplicateRowsWarning,
    )
    return X[first], group
