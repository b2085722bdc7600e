"""Polishing: each row moves to the cluster where most lazy walks from it end."""

from __future__ import annotations

import numpy as np

from specialk_gpu._time_limit import check_time_limit
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.cut_test import gap_by_cut_test
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.walks import (
    WalkGraph,
    largest_in_panels,
    walk_panels,
    walk_shares,
)

__all__ = ["polished", "polished_shares", "polished_tree"]

POLISHES = 3  # rounds
KEPT_SHARE = 0.5  # polishing leaves each cluster at least this share of its rows


def polished(
    graph: WalkGraph, labels: Array, k: int, rounds: int = POLISHES, kept: float = 0.0
) -> tuple[Array, Array | None]:
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
        A row from which no walk leads anywhere stays in its own cluster.
    before : int32 array of shape (m,), or None
        The labels before the last round; None if no round was made.
    """
    bk = backend_of(labels)
    once = bk.xp.ones(labels.size)
    at_first = bk.bin_sums(labels, once, k) if kept else 0
    before: Array | None = None
    for _ in range(rounds):
        check_time_limit()
        _, new = largest_in_panels(walk_panels(graph, labels, k))
        counts = bk.bin_sums(new, once, k)
        if bool(((counts == 0) | (counts < kept * at_first)).any()):
            break
        labels, before = new, labels
    return labels, before


def polished_shares(graph: WalkGraph, labels: Array, before: Array | None, k: int) -> Array:
    """Return the shares of walks (m, k) that the result of `polished` follows.

    Without a round, each row is wholly in its cluster.
    """
    if before is not None:
        return walk_shares(graph, before, k)
    names = backend_of(labels).xp.arange(k, dtype=np.int32)
    return (labels[:, None] == names).astype(np.float64)


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
    first = labels = before = tree.labels(k)  # shares are those of walks to `before`
    if polish:
        labels, before = polished(graphs.near, first, k, kept=KEPT_SHARE)
    while k > 1 and polish:
        gap = gap_by_cut_test(graphs, labels, k)
        if k == least and not gaps and gap.log_p > max(own, log_alpha):
            labels, before = first, None
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
        labels, first = (bk.asarray(united)[x] for x in (labels, first))
        labels, before = polished(graphs.near, labels, k, kept=KEPT_SHARE)
    leaf = tree.leaf
    moved = xp.flatnonzero(labels != first)
    if moved.size:
        inside = bk.asarray(cluster) == labels[moved][:, None]
        near = walk_panels(graphs.near, leaf, tree.n_leaves)
        near = ((own, xp.where(inside[:, own], x[moved], -1.0)) for own, x in near)
        leaf = leaf.copy()
        leaf[moved] = largest_in_panels(near)[1]
    tree, kept = tree.regrouped(graphs.spread(leaf), cluster)
    if k > 1:
        tree.log_p[k - 1] = own
    for level, gap in enumerate(reversed(gaps), start=k + 1):
        tree.log_p[level - 1] = gap
    column = np.empty(k, dtype=np.int64)
    column[tree.clusters(k)] = cluster[kept]
    shares = polished_shares(graphs.near, labels, before, k)
    return tree, graphs.spread(shares)[:, bk.asarray(column)], gaps
