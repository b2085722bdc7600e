"""Polishing: each row goes to the cluster where most walks from it end."""

from __future__ import annotations

from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.selection.walks import CutGraph, prepare, walk

__all__ = ["membership", "polished"]

POLISHES = 3


def polished(graph: CutGraph, labels: Any, k: int, rounds: int = POLISHES) -> tuple[Any, Any]:
    """Give each row to the cluster where most walks from it end, several times.

    Parameters
    ----------
    graph : CutGraph
    labels : int32 array of shape (m,)
        In 0, ..., k - 1.
    k : int
    rounds : int

    Returns
    -------
    labels : int32 array of shape (m,)
        A round that would leave a cluster without rows is not made, and is the last.
    shares : float64 array of shape (m, k)
        Of the walks; a row from which none leads anywhere is in its own cluster.
    """
    bk = backend_of(labels)
    xp = bk.xp
    shares = (labels[:, None] == xp.arange(k, dtype=np.int32)).astype(np.float64)
    for _ in range(rounds):
        found = _walk_or_stay(graph, labels, k)
        new = found.argmax(axis=1).astype(np.int32)
        if int(xp.bincount(new, minlength=k).min()) == 0:
            break
        labels, shares = new, found / found.sum(axis=1, keepdims=True)
    return labels, shares


def membership(W: Any, labels: Any, k: int) -> Any:
    """Return the share (m, k) of lazy walks from each row that end in each cluster."""
    shares = _walk_or_stay(prepare(W), labels, k)
    return shares / shares.sum(axis=1, keepdims=True)


def _walk_or_stay(graph: CutGraph, labels: Any, k: int) -> Any:
    """Return what `walk` does; a row from which no walk leads is in its own cluster."""
    xp = backend_of(labels).xp
    found = walk(graph, labels, k)
    own = labels[:, None] == xp.arange(k, dtype=labels.dtype)
    return xp.where(found.any(axis=1)[:, None], found, own)
