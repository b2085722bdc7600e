"""Polishing: each row moves to the cluster where most lazy walks from it end."""

from __future__ import annotations

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Sparse
from specialk_gpu.selection.walks import CutGraph, prepare_walks, walk

__all__ = ["membership", "polished"]

POLISHES = 3  # rounds


def polished(
    graph: CutGraph, labels: Array, k: int, rounds: int = POLISHES, kept: float = 0.0
) -> tuple[Array, Array]:
    """Move each row to the cluster where most walks from it end, in several rounds.

    Parameters
    ----------
    graph : CutGraph
    labels : int32 array of shape (m,)
        Values 0, ..., k - 1.
    k : int
    rounds : int
        The largest number of rounds.
    kept : float
        If a round would leave a cluster without rows, or with less than this share of the rows that
        it had at first, it is not made, and polishing ends.

    Returns
    -------
    labels : int32 array of shape (m,)
    shares : float64 array of shape (m, k)
        Shares of the walks. A row from which no walk leads anywhere stays in its own cluster.
    """
    bk = backend_of(labels)
    xp = bk.xp
    shares = (labels[:, None] == xp.arange(k, dtype=np.int32)).astype(np.float64)
    at_first = xp.bincount(labels, minlength=k) if kept else 0
    for _ in range(rounds):
        found = _walk_or_stay(graph, labels, k)
        new = found.argmax(axis=1).astype(np.int32)
        counts = xp.bincount(new, minlength=k)
        if bool(((counts == 0) | (counts < kept * at_first)).any()):
            break
        labels, shares = new, found / found.sum(axis=1, keepdims=True)
    return labels, shares


def membership(W: Sparse, labels: Array, k: int) -> Array:
    """Return the share (m, k) of lazy walks from each row that end in each cluster."""
    shares = _walk_or_stay(prepare_walks(W), labels, k)
    return shares / shares.sum(axis=1, keepdims=True)


def _walk_or_stay(graph: CutGraph, labels: Array, k: int) -> Array:
    """Return the result of `walk`; a row from which no walk leads stays in its own cluster."""
    xp = backend_of(labels).xp
    found = walk(graph, labels, k)
    own = labels[:, None] == xp.arange(k, dtype=labels.dtype)
    return xp.where(found.any(axis=1, keepdims=True), found, own)
