"""Polishing: each row moves to the cluster where most lazy walks from it end."""

from __future__ import annotations

import numpy as np

from specialk_gpu._time_limit import check_time_limit
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.cut_test import gap_by_cut_test
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.walks import WalkGraph, walk, walk_shares

__all__ = ["polished", "polished_tree"]

POLISHES = 3  # rounds
KEPT_SHARE = 0.5  # polishing leaves each cluster at least this share of its rows


def polished(
    graph: WalkGraph, labels: Array, k: int, rounds: int = POLISHES, kept: float = 0.0
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
        check_time_limit()
        found = walk(graph, labels, k)
        new = found.argmax(axis=1).astype(np.int32)
        counts = xp.bincount(new, minlength=k)
        if bool(((counts == 0) | (counts < kept * at_first)).any()):
            break
        labels, shares = new, found / found.sum(axis=1, keepdims=True)
    return labels, shares


def polished_tree(
    graphs: CutGraphs, tree: Tree, k: int, least: int, log_alpha: float, *, polish: bool = True
) -> tuple[Tree, Array, list[float]]:
    """Polish the k clusters of a tree; merge, down to `least`, while a gap is no longer clear.

    If nothing may be merged, and polishing makes the gaps less clear, the clusters stay as they
    were. Without `polish` they stay so too, and are not tested again.

    Returns the tree of the polished clusters, for all rows; the shares of walks (m, k'), in the
    order of its clusters; and the log p of each level that was given up.
    """
    bk = backend_of(tree.leaf)
    xp = bk.xp
    cluster, own = tree.clusters(k), float(tree.log_p[k - 1])
    gaps: list[float] = []
    before = tree.labels(k)
    if polish:
        labels, shares = polished(graphs.near, before, k, kept=KEPT_SHARE)
    else:
        labels, shares = before, walk_shares(graphs.near, before, k)
    while k > 1 and polish:
        gap = gap_by_cut_test(graphs, labels, k)
        if k == least and not gaps and gap.log_p > max(own, log_alpha):
            labels, shares = polished(graphs.near, before, k, rounds=0)
            break
        own = gap.log_p
        if own <= log_alpha or k == least:
            break
        gaps.append(gap.log_p)
        k -= 1
        united = np.arange(k + 1, dtype=np.int32)
        united[gap.pair[1]] = gap.pair[0]
        united[united > gap.pair[1]] -= 1
        cluster = united[cluster]
        labels, before = (bk.asarray(united)[x] for x in (labels, before))
        labels, shares = polished(graphs.near, labels, k, kept=KEPT_SHARE)
    leaf = tree.leaf
    moved = xp.flatnonzero(labels != before)
    if moved.size:
        near = walk(graphs.near, leaf, tree.n_leaves)[moved]
        inside = bk.asarray(cluster) == labels[moved][:, None]
        leaf = leaf.copy()
        leaf[moved] = xp.where(inside, near, -1.0).argmax(axis=1).astype(np.int32)
    tree, kept = tree.regrouped(graphs.spread(leaf), cluster)
    if k > 1:
        tree.log_p[k - 1] = own
    for level, gap in enumerate(reversed(gaps), start=k + 1):
        tree.log_p[level - 1] = gap
    column = np.empty(k, dtype=np.int64)
    column[tree.clusters(k)] = cluster[kept]
    return tree, graphs.spread(shares)[:, bk.asarray(column)], gaps
