"""Jumps: clusterings that pass the test although one of fewer clusters does not.

Clusters that touch cause jumps: if two of three are merged, the union may have no clear gap to the
third. But pieces of one cluster may pass the test too, if it is cut into so many that other pieces
lie between every two of them. Heavy tails in many dimensions cause this: all pieces meet in the
middle, and any two share few edges.

So a jump counts only if the graph is thinner at the border of one piece with all the others
together than inside; or else if there may be a valley between every two pieces. The test of valleys
counts the rows between two pieces, whichever cluster these rows are in (`valleys`).
"""

from __future__ import annotations

import math

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.cuts import Cuts
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.null_distribution import z_under_null
from specialk_gpu.selection.parts import Parts, touching_parts

__all__ = ["log_p_without_jumps"]

SEEN = math.log(0.2)  # there may be a valley if its log p is at most this


def log_p_without_jumps(graphs: CutGraphs, tree: Tree, k: int, log_alpha: float) -> float:
    """Return the log p of k ≥ 2 clusters of a tree; 0 for a jump that does not count.

    For a jump, it costs ten products of the graph with three columns for each piece.
    """
    passed = np.flatnonzero(tree.log_p[: k - 1] <= log_alpha)  # a single cluster always does
    before, after = tree.clusters(int(passed[-1]) + 1), tree.clusters(k)
    labels, parts = tree.labels(k), None
    for cluster in range(before.max() + 1):
        pieces = np.unique(after[before == cluster])
        if len(pieces) < 3 or _jump_sets_one_apart(graphs, labels, pieces):
            continue
        parts = parts or Parts(graphs, labels, k)
        if not _jump_may_have_valleys(parts, pieces):
            return 0.0
    return float(tree.log_p[k - 1])


def _jump_sets_one_apart(graphs: CutGraphs, labels: Array, pieces: np.ndarray) -> bool:
    """Return whether one piece has a lighter cut at its border with all others than inside."""
    xp = backend_of(labels).xp
    member = xp.isin(labels, xp.asarray(pieces))
    for piece in pieces.tolist():
        three = xp.where(labels == piece, 0, xp.where(member, 1, 2)).astype(np.int32)
        cuts = Cuts(graphs.near, three, 2 if bool(member.all()) else 3)
        between, within = cuts.measure(np.array([[0, 1]]))
        if z_under_null(between, within)[0] > 0:
            return True
    return False


def _jump_may_have_valleys(parts: Parts, pieces: np.ndarray) -> bool:
    """Return whether there may be a valley between every two pieces that touch."""
    nodes = parts.of_clusters()
    pairs = touching_parts(parts, nodes[np.isin(parts.owner[nodes], pieces)])
    return bool((parts.valleys_of_short(pairs, nodes) <= SEEN).all())
