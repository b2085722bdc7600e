r"""The cut test: whether the graph is thinner between two clusters than inside both.

Lazy walks of ten steps end in cluster b, rather than in a, with some probability f. The thresholds
of f cut the two clusters together in two: inside a, at their border, inside b. Where the two are
one cluster, these cuts weigh the same, or fall off on both sides. A gap is a border whose cut is
lighter than cuts on both sides; `null_distribution` says how probable such a border is inside one
cluster.

Cuts of few rows say little in the graph of 10 neighbours. Where the rows are known, the graph of 30
neighbours decides on them: its cuts weigh more. But where its cut weighs far more than the
length of the border explains, it has shortcut edges from one part of a set to another, as between
the turns of a roll, and the null distribution is wider. Parts smaller than their
neighbourhoods keep the p of the first graph.

Where the rows are known, a second test counts them along the line that joins two clusters
(`valleys`), and twice the smaller p counts. It is for short pairs, as those in many dimensions
are, of whose cuts little is known; and in few dimensions for longer ones with a light border, if
they are not bent.

A part that no edge joins to others is compared with its own heaviest cut; and where the rows are
known, its isolation is evidence by itself. Along a line, a gap is wider than the r spacings before
it with probability 2^-r, in more dimensions with a smaller one, and there are m places for it; r is
the least number of rows that a row on either side has nearer than the other side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.graph.affinity import affinity_matrix
from specialk_gpu.graph.features import features
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.null_distribution import (
    decisive_log_p,
)
from specialk_gpu.selection.parts import Parts, lonely, touching_pairs

__all__ = ["Gap", "cut_test"]


class Gap(NamedTuple):
    """The least clear gap between the clusters of a clustering.

    Attributes
    ----------
    log_p : float
        Natural logarithm of the probability of such a gap inside one cluster, times k - 1: one of
        k - 1 clusters was split, the one where the split looked best.
    pair : tuple of two int
        The clusters on its two sides.
    between, within : float
        Weight of the cut at the border, and of the lighter of the heaviest cuts on both sides; both
        0 where the isolation of a part decides.
    length : float
        Rows of the two sides together, divided by ``within``.
    law : {"rows", "graph", "shortcuts", "valley", "isolation"}
        What p is of: a cut, by the law of graphs of rows, of graphs that are given or of those with
        shortcut edges; the rows along a line; or the gap around a part.
    """

    log_p: float
    pair: tuple[int, int]
    between: float
    within: float
    length: float
    law: str = "rows"


def least_gap(graphs: CutGraphs, labels: Any, k: int) -> Gap:
    """Test a clustering.

    Parameters
    ----------
    graphs : CutGraphs
    labels : int32 array of shape (m,), of distinct rows
        In 0, ..., k - 1; each of them has rows.
    k : int
        At least 2.

    Returns
    -------
    Gap
        Of the pair of clusters with the largest p. Clusters that fall apart are tested part by
        part. A cluster that no edge joins to others is paired with the largest other one; if it
        falls apart itself, the part that is most clearly alone counts.
    """
    parts = Parts(graphs, labels, k)
    counts = np.bincount(
        parts.owner[: parts.n_parts], parts.cuts.sizes[: parts.n_parts], minlength=k
    )
    nodes = parts.of_clusters()
    found, alone = [], {}
    for node in nodes.tolist():
        alone |= lonely(parts, node, nodes[parts.owner[nodes] != parts.owner[node]])
    pairs = touching_pairs(parts, nodes)
    pairs = pairs[parts.owner[pairs[:, 0]] != parts.owner[pairs[:, 1]]]  # may touch in the second
    tested = parts.test(pairs, nodes)
    log_p = decisive_log_p(tested.log_p, tested.isolation, k)
    for i, pair in enumerate(np.sort(parts.owner[pairs], axis=1).tolist()):
        measured = (float(x[i]) for x in (tested.between, tested.within, tested.length))
        law = "isolation" if log_p[i] == tested.isolation[i] < 0 else tested.law[i]
        found.append((float(tested.ratio[i]), Gap(float(log_p[i]), tuple(pair), *measured, law)))
    bordering = set(parts.owner[pairs].ravel().tolist())
    by_cluster: dict[int, Gap] = {}
    for node, one in alone.items():
        own = int(parts.owner[node])
        if own in bordering:
            continue
        others = np.where(np.arange(k) == own, -1, counts)
        pair = tuple(sorted((own, int(others.argmax()))))
        n_rows = int(counts[own] + others.max())
        length = n_rows / one.within if one.within else 0.0
        log_p = one.log_p(n_rows, k)
        law = "isolation" if log_p == one.isolation < 0 else one.law
        gap = Gap(log_p, pair, 0.0, one.within, length, law)
        by_cluster[own] = min(gap, by_cluster.get(own, gap))
    found += [(0.0, gap) for gap in by_cluster.values()]
    return max(found, key=lambda one: (one[1].log_p, one[0], one[1].pair))[1]


@on_its_device
def cut_test(W: Any, labels: Any, *, X: Any = None) -> Gap:
    """Test whether the graph is thinner between every two clusters than inside them.

    Parameters
    ----------
    W : sparse matrix of shape (m, m)
        Symmetric, finite, non-negative similarities; of rows X, the graph of 10 neighbours.
    labels : int array of shape (m,)
        Of any clustering into at least two clusters.
    X : float array of shape (m, d), optional
        The rows: valleys between clusters are then looked for, and thin borders looked at in the
        graph of their 30 neighbours as well. Where rows are equal each is used once, and the graph
        of the others' 10 neighbours replaces W.

    Returns
    -------
    Gap
        The largest p over all pairs, and its pair, as places in the sorted distinct labels.

    Raises
    ------
    ValueError
        If there are fewer than two clusters, labels or X do not have one entry or row for each row
        of W, or X is not finite.

    Notes
    -----
    Costs ten products of W with k columns, and a sort of the rows of each touching pair; with X two
    products of X with 2 k columns, and some passes over the rows for each short pair.
    """
    bk = backend_of(W)
    W = affinity_matrix(W)
    labels = bk.asarray(labels)
    if labels.shape != (W.shape[0],):
        msg = f"labels must have shape {(W.shape[0],)}, got {tuple(labels.shape)}."
        raise ValueError(msg)
    names, labels = bk.xp.unique(labels, return_inverse=True)
    if names.size < 2:
        msg = "labels must name at least two clusters, got one."
        raise ValueError(msg)
    if X is not None:
        X = features(bk.asarray(X), 2)
        if X.shape[0] != W.shape[0]:
            msg = f"X must have {W.shape[0]} rows, as W has, got shape {tuple(X.shape)}."
            raise ValueError(msg)
    graphs, k = CutGraphs(W, X), int(names.size)
    labels = graphs.distinct(labels.astype(np.int32))
    counts = bk.to_numpy(bk.xp.bincount(labels, minlength=k))
    if not counts.all():  # a cluster of duplicates alone
        absent = int(np.flatnonzero(counts == 0)[0])
        return Gap(0.0, (0, absent or 1), 0.0, 0.0, 0.0)
    return least_gap(graphs, labels, k)
