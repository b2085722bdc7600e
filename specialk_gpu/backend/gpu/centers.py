"""The nearest centre of each row, and distances to centres, on the device."""

from __future__ import annotations

from functools import lru_cache

import cupy as cp
import numpy as np

from specialk_gpu.backend.gpu.arrays import asarray
from specialk_gpu.backend.gpu.kernels import kernel_of

__all__ = ["nearest_center", "nearest_without", "sq_distances"]

CENTER_ROWS = 128  # rows in a block of `nearest_center`
CENTER_GROUP = 64  # centres in a block, plus the rest of the run that ends there


@lru_cache(maxsize=64)
def _tables_of_centers(
    k: int,
    sizes: tuple[int, ...],
    place: tuple[int, int],  # noqa: ARG001 - what is cached depends on it
) -> tuple[cp.ndarray, ...]:
    """Upload the lists of centres and of groups that `nearest_center` reads, once for all calls.

    `place` is the device and the stream that they belong to.
    """
    own = np.array(sizes)
    slots = np.append(np.flatnonzero(np.arange(k) < own[:, None]), own.size * k)
    begins = np.cumsum(own) - own  # of the runs, in the list of all centres
    groups = begins[np.unique(begins // CENTER_GROUP, return_index=True)[1]]
    tables = cp.asarray(np.concatenate([slots, groups, [slots.size - 1]]), dtype=np.int64)
    return tables[: slots.size], tables[slots.size :]


def nearest_center(
    X: cp.ndarray, sq_norms: cp.ndarray, centers: cp.ndarray, sizes: np.ndarray
) -> tuple[cp.ndarray, cp.ndarray]:
    """See `cpu.nearest_center`."""
    assert X.dtype == sq_norms.dtype == centers.dtype == np.float64
    (m, d), (R, k) = X.shape, centers.shape[:2]
    X, centers = cp.asfortranarray(X), cp.ascontiguousarray(centers)
    place = cp.cuda.Device().id, cp.cuda.get_current_stream().ptr
    slots, groups = _tables_of_centers(k, tuple(sizes.tolist()), place)
    n_groups = groups.size - 1
    labels, sq = cp.empty((R, m), dtype=np.int32), cp.empty((R, m))
    content = (X, sq_norms, np.int64(m), np.int64(d), centers, np.int64(k), slots, groups)
    arguments = (*content, np.int32(n_groups), labels, sq)
    blocks = n_groups * -(-m // CENTER_ROWS)
    kernel_of("center", "nearest_center", X.dtype)((blocks,), (CENTER_ROWS // 2,), arguments)
    return labels, sq


def nearest_without(
    X: cp.ndarray,
    sq_norms: cp.ndarray,
    centers: cp.ndarray,
    sizes: np.ndarray,
    removed: list[np.ndarray],
) -> cp.ndarray:
    """See `cpu.nearest_without`; for each removed centre, the others are a run of their own."""
    run = np.repeat(np.arange(sizes.size), [slots.size for slots in removed])
    others = np.arange(centers.shape[1] - 1)[None].repeat(run.size, axis=0)
    others += others >= np.concatenate(removed)[:, None]
    others += centers.shape[1] * run[:, None]
    fewer = centers.reshape(-1, centers.shape[2])[asarray(others)]
    return nearest_center(X, sq_norms, fewer, sizes[run] - 1)[1]


def sq_distances(X: cp.ndarray, sq_norms: cp.ndarray, centers: cp.ndarray) -> cp.ndarray:
    """See `cpu.sq_distances`; every centre is a run of its own."""
    sizes = np.ones(centers.shape[0], dtype=np.int64)
    return nearest_center(X, sq_norms, centers[:, None, :], sizes)[1]
