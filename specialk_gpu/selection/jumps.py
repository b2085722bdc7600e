"""Jumps: clusterings that pass the test although one of fewer clusters does not.

Clusters that touch make jumps: two of three are united, and the union has no clear gap to the
third. But pieces of one cluster may pass as well, if it is cut into so many that others lie between
every two of them. In many dimensions heavy tails do this: all pieces meet in the middle, and any
two share few edges.

So a jump counts only if one of the pieces that a cluster is cut into is thinner at its border with
all the others together than inside; or else if there may be a valley between every two pieces.
Valleys look at the rows between two, whichever cluster they were put in (`valleys`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.cuts import Cuts
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.null_distribution import z_of
from specialk_gpu.selection.parts import Parts, touching_pairs

__all__ = ["log_p_of_level"]


SEEN = math.log(0.2)  # log p of a valley from which it may be there


def log_p_of_level(graphs: CutGraphs, tree: Tree, k: int, log_alpha: float) -> float:
    """Return the log p of k clusters of a tree, at least two; 0 for a jump that does not count.

    Costs, where it is a jump, ten products of the graph with three columns for each piece.
    """
    passed = np.flatnonzero(tree.log_p[: k - 1] <= log_alpha)  # a single cluster always does
    before, after = tree.clusters(int(passed[-1]) + 1), tree.clusters(k)
    labels, parts = tree.labels(k), None
    for cluster in range(before.max() + 1):
        pieces = np.unique(after[before == cluster])
        if len(pieces) < 3 or _one_is_apart(graphs, labels, pieces):
            continue
        parts = parts or Parts(graphs, labels, k)
        if not _valleys_are_seen(parts, pieces):
            return 0.0
    return float(tree.log_p[k - 1])


def _one_is_apart(graphs: CutGraphs, labels: Any, pieces: np.ndarray) -> bool:
    """Say whether the border of a piece with all the others is lighter than cuts inside."""
    xp = backend_of(labels).xp
    member = xp.isin(labels, xp.asarray(pieces))
    for piece in pieces.tolist():
        three = xp.where(labels == piece, 0, xp.where(member, 1, 2)).astype(np.int32)
        cuts = Cuts(graphs.near, three, 2 if bool(member.all()) else 3)
        between, within = cuts.measure(np.array([[0, 1]]))
        if z_of(between, within)[0] > 0:
            return True
    return False


def _valleys_are_seen(parts: Parts, pieces: np.ndarray) -> bool:
    """Say whether there may be a valley between every two pieces that touch."""
    nodes = parts.of_clusters()
    pairs = touching_pairs(parts, nodes[np.isin(parts.owner[nodes], pieces)])
    return bool((parts.valleys_of_short(pairs, nodes) <= SEEN).all())
