r"""The cut test: it asks if the graph is thinner at the border of two clusters than inside both.

A lazy walk stays on its row with probability one half at each step, or else goes along an edge. A
walk of ten steps from a row ends in cluster b, rather than in a, with some probability f. Each
threshold of f divides the rows of both clusters in two, and so is a cut: inside a, at the border,
or inside b. If the two are one cluster, these cuts have the same weight, or become lighter towards
both ends. A gap is a border whose cut is lighter than cuts on both sides. The module
`null_distribution` says how probable such a border is inside one cluster.

In the graph of 10 neighbours, a cut of few rows is weak evidence. If the rows are known, the graph
of 30 neighbours decides instead, because its cuts weigh more. If its cut weighs far more than the
length of the border explains, the graph has shortcut edges between distant parts of the data, as
between the turns of a roll. Then the null distribution is wider. Parts smaller than their
neighbourhoods keep the p of the first graph.

If the rows are known, a second test counts them along the line that joins two clusters (`valleys`).
The p of the pair is then twice the smaller of the two p. The second test is used for short pairs,
with few rows for the weight of their cuts, as in many dimensions: these cuts are weak evidence. In
few dimensions it is also used for longer pairs with a light border, if they are not bent.

A part that no edge joins to others is compared with its own heaviest cut. If the rows are known,
its isolation is evidence by itself. Along a line, a gap is wider than the r spacings before it with
probability 2^-r; in more dimensions this probability is smaller. There are m places for the gap.
Here r is the smallest number of rows that a row on either side has nearer than the other side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.typing import Array, Sparse
from specialk_gpu.graph.affinity import affinity_matrix
from specialk_gpu.graph.features import features
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.measured_parts import LonePart
from specialk_gpu.selection.null_distribution import (
    decisive_log_p_under_null,
)
from specialk_gpu.selection.parts import Parts, lone_part, touching_parts

__all__ = ["Gap", "cut_test"]


class Gap(NamedTuple):
    """The gap between the least separate pair of clusters of a clustering.

    Attributes
    ----------
    log_p : float
        Natural logarithm of k - 1 times the probability of such a gap inside one cluster: one of
        k - 1 clusters was split, the one where the split looked best.
    pair : tuple of two int
        The clusters on its two sides.
    between, within : float
        Weight of the cut at the border, and of the lighter of the heaviest cuts on its two sides.
        Both are 0 if the isolation of a part decides.
    length : float
        Number of rows of the two sides together, divided by ``within``.
    law : {"rows", "graph", "shortcuts", "valley", "isolation"}
        Where p comes from: the null distribution of cuts for graphs of rows, for given graphs, or
        for graphs with shortcut edges; the rows along a line; or the gap around a part.
    """

    log_p: float
    pair: tuple[int, int]
    between: float
    within: float
    length: float
    law: str = "rows"


def gap_by_cut_test(graphs: CutGraphs, labels: Array, k: int) -> Gap:
    """Test a clustering and return the gap of its least separate pair.

    Parameters
    ----------
    graphs : CutGraphs
    labels : int32 array of shape (m,), of distinct rows
        Values 0, ..., k - 1; each cluster has at least one row.
    k : int
        At least 2.

    Returns
    -------
    Gap
        The gap of the pair of clusters with the largest p. A cluster that is not connected is
        tested part by part. A cluster that no edge joins to others is paired with the largest other
        one; if it is not connected itself, its most clearly isolated part counts.
    """
    parts = Parts(graphs, labels, k)
    counts = np.bincount(
        parts.owner[: parts.n_parts], parts.cuts.sizes[: parts.n_parts], minlength=k
    )
    nodes = parts.of_clusters()
    found: list[tuple[float, Gap]] = []
    alone: dict[int, LonePart] = {}
    for node in nodes.tolist():
        alone |= lone_part(parts, node, nodes[parts.owner[nodes] != parts.owner[node]])
    pairs = touching_parts(parts, nodes)
    # parts of the same cluster may touch in the second graph
    pairs = pairs[parts.owner[pairs[:, 0]] != parts.owner[pairs[:, 1]]]
    tested = parts.test(pairs, nodes)
    log_p = decisive_log_p_under_null(tested.log_p, tested.isolation, k)
    for i, pair in enumerate(np.sort(parts.owner[pairs], axis=1).tolist()):
        between, within, length = (
            float(x[i]) for x in (tested.between, tested.within, tested.length)
        )
        law = "isolation" if log_p[i] == tested.isolation[i] < 0 else tested.law[i]
        gap = Gap(float(log_p[i]), tuple(pair), between, within, length, law)
        found.append((float(tested.ratio[i]), gap))
    bordering = set(parts.owner[pairs].ravel().tolist())
    by_cluster: dict[int, Gap] = {}
    for node, one in alone.items():
        own = int(parts.owner[node])
        if own in bordering:
            continue
        others = np.where(np.arange(k) == own, -1, counts)
        other = int(others.argmax())
        pair = min(own, other), max(own, other)
        n_rows = int(counts[own] + others.max())
        length = n_rows / one.within if one.within else 0.0
        log_p = one.log_p(n_rows, k)
        law = "isolation" if log_p == one.isolation < 0 else one.law
        gap = Gap(log_p, pair, 0.0, one.within, length, law)
        by_cluster[own] = min(gap, by_cluster.get(own, gap))
    found += [(0.0, gap) for gap in by_cluster.values()]
    return max(found, key=lambda one: (one[1].log_p, one[0], one[1].pair))[1]


@on_its_device
def cut_test(W: Sparse, labels: Array, *, X: Array | None = None) -> Gap:
    """Test whether the graph is thinner between every two clusters than inside them.

    Parameters
    ----------
    W : sparse matrix of shape (m, m)
        Symmetric, finite, non-negative similarities. With `X`, the graph of 10 neighbours.
    labels : int array of shape (m,)
        Any clustering into at least two clusters.
    X : float array of shape (m, d), optional
        The rows. With `X`, the test also looks for valleys between clusters, and tests thin borders
        in the graph of 30 neighbours as well. If `X` has duplicate rows, each distinct row is used
        once, and the graph of their 10 neighbours replaces `W`.

    Returns
    -------
    Gap
        The largest p over all pairs, and that pair, as positions in the sorted distinct labels.

    Raises
    ------
    ValueError
        If there are fewer than two clusters, if `labels` or `X` do not have one entry or row for
        each row of `W`, or if `labels` has NaN or `X` is not finite.

    Notes
    -----
    Costs ten products of `W` with k columns, and a sort of the rows of each touching pair. With `X`
    it also costs two products of `X` with 2 k columns, and some passes over the rows for each short
    pair.

    Examples
    --------
    >>> from specialk_gpu import cut_test, knn_graph
    >>> from specialk_gpu.datasets import make_shape
    >>> X, y = make_shape("blobs", noise=0.1, random_state=0)
    >>> gap = cut_test(knn_graph(X), y, X=X)
    >>> gap.pair, gap.log_p < -7  # even the least separate pair is clearly separate: p < 0.001
    ((0, 1), True)
    """
    bk = backend_of(W)
    W = affinity_matrix(W)
    labels = bk.asarray(labels)
    if labels.shape != (W.shape[0],):
        msg = f"labels must have shape {(W.shape[0],)}, got {tuple(labels.shape)}."
        raise ValueError(msg)
    if labels.dtype.kind == "f" and bool(bk.xp.isnan(labels).any()):
        msg = "labels must name a cluster for each row, got NaN."
        raise ValueError(msg)
    names, labels = bk.xp.unique(labels, return_inverse=True)
    if names.size < 2:
        msg = "labels must name at least two clusters, got one."
        raise ValueError(msg)
    if X is not None:
        X = features(bk.asarray(X))
        if X.shape[0] != W.shape[0]:
            msg = f"X must have {W.shape[0]} rows, as W has, got shape {tuple(X.shape)}."
            raise ValueError(msg)
    graphs, k = CutGraphs(W, None if X is None else Rows(X)), int(names.size)
    labels = graphs.distinct(labels.astype(np.int32))
    counts = bk.to_numpy(bk.xp.bincount(labels, minlength=k))
    if not counts.all():  # a cluster of duplicates alone
        absent = int(np.flatnonzero(counts == 0)[0])
        return Gap(0.0, (0, absent or 1), 0.0, 0.0, 0.0)
    return gap_by_cut_test(graphs, labels, k)
