"""Merging: the least separate pair of parts of a graph is united, until one part is left."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from specialk_gpu._time_limit import check_time_limit
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.measured_parts import LonePart, MeasuredParts
from specialk_gpu.selection.null_distribution import decisive_log_p_under_null
from specialk_gpu.selection.parts import Parts, lone_part, touching_parts

__all__ = ["ONE_CLUSTER", "Tree", "merge"]

LOOKED = 8  # neighbours of a node that are tested first; the others only if they can matter
ONE_CLUSTER = math.log(0.5)  # a pair looks like one cluster from this log p on, without factor


class Tree(NamedTuple):
    """The tree of clusters: its leaves, and the order in which they were united.

    A node of the tree is a leaf, or a union of two nodes.

    Attributes
    ----------
    leaf : int32 array of shape (m,)
        The leaf of each row, in 0, ..., K - 1.
    children : int array of shape (K - 1, 2), on the host
        The two nodes of each union. Numbers below K are leaves; K + i is the i-th union, as in
        scikit-learn's `AgglomerativeClustering`.
    log_p : float64 array of shape (K,), on the host
        For k = 1, ..., K: natural logarithm of the p of the least separate pair of k clusters; -inf
        for k = 1.
    ratio : float64 array of shape (K,), on the host
        For k = 1, ..., K: the largest √(between / within) over the tested pairs of k nodes. All
        pairs are tested, unless p is 1.
    sizes, first : int arrays of shape (K,), on the host
        The number of rows of each leaf, and its first row.
    """

    leaf: Array
    children: np.ndarray
    log_p: np.ndarray
    ratio: np.ndarray
    sizes: np.ndarray
    first: np.ndarray

    @classmethod
    def of(
        cls, leaf: Array, children: list[tuple[int, int]], log_p: np.ndarray, ratio: np.ndarray
    ) -> Tree:
        """Make a tree from its leaves and unions; each leaf must have rows."""
        bk = backend_of(leaf)
        order = bk.xp.argsort(leaf, kind="stable")
        names = bk.xp.arange(len(log_p) + 1, dtype=leaf.dtype)
        ends = bk.xp.searchsorted(leaf[order], names)
        found = bk.to_numpy(bk.xp.concatenate([order[ends[:-1]], ends]))
        first, ends = np.split(found, [len(log_p)])
        sizes = np.diff(ends)
        return cls(
            leaf, np.array(children, dtype=np.int64).reshape(-1, 2), log_p, ratio, sizes, first
        )

    @classmethod
    def of_one(cls, leaf: Array) -> Tree:
        """Make the tree of a single leaf; `leaf` is zeros (m,)."""
        return cls.of(leaf, [], np.array([-math.inf]), np.zeros(1))

    def __repr__(self) -> str:
        """Return the size of the tree, because its arrays have an entry for each row."""
        return f"<Tree of {self.n_leaves} leaves, of {self.leaf.shape[0]:,} rows>"

    @property
    def n_leaves(self) -> int:
        """The number of leaves, K."""
        return len(self.log_p)

    def clusters(self, k: int) -> np.ndarray:
        """Return the cluster of each leaf (K,) at the level of k clusters, numbered by size."""
        K = self.n_leaves
        if not 1 <= k <= K:
            msg = f"k must lie between 1 and {K}, got {k}."
            raise ValueError(msg)
        node = np.arange(K)
        for i, (a, b) in enumerate(self.children[: K - k].tolist()):
            node[(node == a) | (node == b)] = K + i
        cluster = np.unique(node, return_inverse=True)[1]
        first = np.full(k, np.iinfo(np.int64).max)
        np.minimum.at(first, cluster, self.first)
        order = np.lexsort((first, -np.bincount(cluster, self.sizes)))
        rank = np.empty(k, dtype=np.int32)
        rank[order] = np.arange(k)
        return rank[cluster]

    def labels(self, k: int) -> Array:
        """Return the cluster of each row (m,) at the level of k clusters, by decreasing size."""
        return backend_of(self.leaf).asarray(self.clusters(k))[self.leaf]

    def next_pair(self, k: int) -> tuple[int, int]:
        """Return the least separate pair of k clusters: the two that are united next."""
        K, clusters = self.n_leaves, self.clusters(k)
        leaf = list(range(K))  # one leaf of each node
        for union in self.children[: K - k, 0].tolist():
            leaf.append(leaf[union])
        a, b = sorted(int(clusters[leaf[node]]) for node in self.children[K - k].tolist())
        return a, b

    def spread(self, group: Array) -> Tree:
        """Give duplicates of a row (m,) its leaf; clusters are numbered by all their rows."""
        return Tree.of(self.leaf[group], self.children.tolist(), self.log_p, self.ratio)

    def to_linkage(self) -> np.ndarray:
        """Return the tree in the format of `scipy.cluster.hierarchy.linkage`.

        Returns
        -------
        float64 array of shape (K - 1, 4)
            The two nodes of each union; -log10 of the p of the gap that it closed, but at least
            the value of the unions before; and the number of leaves of the union.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from specialk_gpu import SpecialK
        >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
        >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
        >>> linkage = model.tree_.to_linkage()
        >>> int(linkage[-1, 3]) == model.tree_.n_leaves  # the last union holds all leaves
        True
        """
        leaves = [1] * self.n_leaves
        for a, b in self.children.tolist():
            leaves.append(leaves[a] + leaves[b])
        height = np.maximum.accumulate(-self.log_p[:0:-1] / math.log(10)) + 0.0  # avoids -0
        return np.column_stack([self.children, height, leaves[self.n_leaves :]])

    def regrouped(self, leaf: Array, cluster: np.ndarray) -> tuple[Tree, np.ndarray]:
        """Make a tree with other leaves and with given clusters at its level of k clusters.

        Parameters
        ----------
        leaf : int32 array
            The new leaf of each row. Leaves without rows are left out.
        cluster : int array of shape (K,)
            The cluster of each leaf, in 0, ..., k - 1.

        Returns
        -------
        Tree
        kept : int array
            The old number of each leaf of the new tree.
        """
        bk = backend_of(leaf)
        kept = np.flatnonzero(bk.to_numpy(bk.xp.bincount(leaf, minlength=self.n_leaves)))
        K = kept.size
        number = np.full(self.n_leaves, -1, dtype=np.int32)
        number[kept] = np.arange(K)
        children: list[tuple[int, int]] = []
        node = np.arange(K)  # the node of each leaf that is kept
        for group in (cluster[kept], np.zeros(K, dtype=int)):  # inside clusters, then all
            below = [number[[i]][number[[i]] >= 0] for i in range(self.n_leaves)]
            for a, b in self.children.tolist():
                below.append(np.concatenate([below[a], below[b]]))
                for own in np.unique(group[below[-1]]):
                    ends = np.unique(node[below[-1][group[below[-1]] == own]])
                    if ends.size == 2:
                        node[np.isin(node, ends)] = K + len(children)
                        children.append((int(ends[0]), int(ends[1])))
        tree = Tree.of(bk.asarray(number)[leaf], children, self.log_p[:K].copy(), self.ratio[:K])
        return tree, kept


class _MergingGaps:
    """The p of the gaps between nodes, and of isolated nodes, which no edge joins to others."""

    def __init__(self, parts: Parts) -> None:
        shape = (2 * parts.n_parts,) * 2
        self.parts = parts
        self.ratio = np.full(shape, -math.inf)
        kinds = {"doubtful": bool, "thin": bool, "law": object}
        self.measured = MeasuredParts(
            *(np.zeros(shape, kinds.get(x, float)) for x in MeasuredParts._fields)
        )
        self.measured.log_p[:] = -math.inf
        self.measured.density[:] = -math.inf
        self.log_p, self.isolation = self.measured.log_p, self.measured.isolation  # without factor
        self.doubtful, self.density = self.measured.doubtful, self.measured.density
        self.alone: dict[int, LonePart] = {}

    def strongest(self, node: int, others: np.ndarray) -> set[tuple[int, int]]:
        """Return pairs of a node with the `LOOKED` others of most edges to it, if not tested."""
        touching = self.parts.touching(node, others)
        weights = self.parts.cuts.weights[node, touching]
        first = touching[np.argsort(-weights, kind="stable")[:LOOKED]]
        first = first[~np.isfinite(self.log_p[node, first])]
        return {(min(node, other), max(node, other)) for other in first.tolist()}

    def look(self, pairs: set[tuple[int, int]], nodes: np.ndarray, *, again: bool = False) -> None:
        """Test pairs of nodes that touch, in the first graph, or `again` in the second one."""
        if not pairs:
            return
        ends = np.array(sorted(pairs), dtype=np.int64)
        i, j = ends.T
        parts = self.parts
        if again:
            tested = parts.look_again(ends, nodes, MeasuredParts(*(x[i, j] for x in self.measured)))
        else:
            tested = parts.look(ends, nodes, 0.0)
        for table, column in zip(self._tables, (*tested, tested.ratio), strict=True):
            table[i, j] = table[j, i] = column

    @property
    def _tables(self) -> tuple[np.ndarray, ...]:
        return (*self.measured, self.ratio)

    def level(self, nodes: np.ndarray) -> tuple[float, float]:
        """Return the log p of the least separate pair of nodes, and the largest ratio.

        If a pair that was tested already has p = 1, the others do not matter.
        """
        largest = self._largest(nodes)
        if largest < 0:
            self.complete(nodes)
            largest = self._largest(nodes)
        return largest, max(0.0, self.ratio[np.ix_(nodes, nodes)].max())

    def complete(self, nodes: np.ndarray) -> None:
        """Test all pairs of nodes, and test doubtful pairs a second time.

        A pair whose border is no lighter than the cuts inside is not doubtful here.
        """
        pairs = {tuple(pair) for pair in touching_parts(self.parts, nodes).tolist()}
        self.look({pair for pair in pairs if not np.isfinite(self.log_p[pair])}, nodes)
        self.look({pair for pair in pairs if self.doubtful[pair]}, nodes, again=True)

    def _largest(self, nodes: np.ndarray) -> float:
        alone = self.decisive_alone(nodes).values()
        return max(float(self.decisive(nodes).max()), *alone, -math.inf)

    def inherit(self, node: int, new: int) -> None:
        """Give the union `new` of `node` and an isolated node the p of `node`."""
        self.parts.inherit(node, new)
        for table in self._tables:
            table[new] = table[node]
            table[:, new] = table[node]
        if node in self.alone:
            self.alone[new] = self.alone[node]

    def decisive(self, nodes: np.ndarray) -> np.ndarray:
        """Return the log p of each pair of n nodes (n, n), with its factor n - 1.

        It is -inf for pairs that do not touch, are not tested, or are doubtful.
        """
        own = np.ix_(nodes, nodes)
        log_p = decisive_log_p_under_null(self.log_p[own], self.isolation[own], len(nodes))
        return np.where(self.doubtful[own], -math.inf, log_p)

    def decisive_alone(self, nodes: np.ndarray) -> dict[int, float]:
        """Return the log p of isolated nodes, each paired with the largest other node."""
        if not self.alone:
            return {}
        sizes, k = self.parts.cuts.sizes, len(nodes)
        own = [node for node in nodes.tolist() if node in self.alone]
        by_size = nodes[np.lexsort((self.parts.cuts.first[nodes], -sizes[nodes]))[:2]]
        other = {node: by_size[1] if node == by_size[0] else by_size[0] for node in own}
        return {i: self.alone[i].log_p(int(sizes[i] + sizes[other[i]]), k) for i in own}


def merge(graphs: CutGraphs, fragment: Array, k: int) -> Tree:
    """Unite fragments, the least separate pair first.

    Pairs that look like one cluster, and whose sides are each other's least separate neighbours,
    are united in one round. If there are none, the least separate pair of all is united. If the
    largest p of all is that of a part that no edge joins to others, this part is united with the
    largest other one.

    Parameters
    ----------
    graphs : CutGraphs
    fragment : int32 array of shape (m,), of distinct rows
        Values 0, ..., k - 1. A fragment that is not connected becomes several parts.
    k : int

    Returns
    -------
    Tree

    Notes
    -----
    Costs ten products of the graph with K columns, and a sort of their rows for each pair of nodes
    that touch. Waits for the device once or twice in each round.
    """
    parts = Parts(graphs, fragment, k)
    K = parts.n_parts
    alive = np.arange(K)
    children: list[tuple[int, int]] = []
    log_p, ratio = np.full(K, -math.inf), np.zeros(K)
    gaps = _MergingGaps(parts)
    for node in alive.tolist():
        gaps.alone |= lone_part(parts, node, alive)
    gaps.look({pair for node in alive.tolist() for pair in gaps.strongest(node, alive)}, alive)
    while len(alive) > 1:
        check_time_limit()
        log_p[len(alive) - 1], ratio[len(alive) - 1] = gaps.level(alive)
        fresh, levels = set(), []
        for a, b in _merging_round(gaps, alive):
            levels.append(alive)
            new = parts.unite(a, b)
            children.append((a, b))
            alive = np.append(alive[(alive != a) & (alive != b)], new)
            if np.isfinite(gaps.log_p[a, b]):
                gaps.alone |= lone_part(parts, new, alive)
            else:  # a is isolated
                gaps.inherit(b, new)
            fresh |= gaps.strongest(new, alive)
        gaps.look(fresh, alive)
        for nodes in levels[1:]:
            log_p[len(nodes) - 1], ratio[len(nodes) - 1] = gaps.level(nodes)
        parts.release(node for pair in children[-len(levels) :] for node in pair)
    content = np.array(children, dtype=np.int64).reshape(-1, 2), log_p, ratio
    return Tree(parts.part, *content, parts.cuts.sizes[:K], parts.cuts.first[:K])


def _merging_round(gaps: _MergingGaps, alive: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs to unite, the least separate first.

    In a pair with an isolated node, that node comes first.
    """
    sizes, alone = gaps.parts.cuts.sizes, gaps.decisive_alone(alive)
    first_row = gaps.parts.cuts.first
    worst_alone = max(
        alone, key=lambda node: (alone[node], -sizes[node], -first_row[node]), default=-1
    )
    threshold = alone.get(worst_alone, -math.inf)
    log_p, rank = _ranked_for_merging(gaps, alive)
    place, worst = np.arange(len(alive)), rank.argmax(axis=1)
    mutual = (worst[worst] == place) & (place < worst) & (log_p[place, worst] >= threshold)
    ends = alive, alive[worst]
    mutual &= np.minimum(gaps.log_p[ends], gaps.isolation[ends]) >= ONE_CLUSTER
    first = place[mutual]
    if not first.size:  # none look like one cluster: unite the least separate
        gaps.complete(alive)
        log_p, rank = _ranked_for_merging(gaps, alive)
        pair = np.unravel_index(rank.argmax(), rank.shape)
        if log_p[pair] > threshold or not alone:
            return [(int(alive[min(pair)]), int(alive[max(pair)]))]
        others = alive[alive != worst_alone]
        return [(worst_alone, int(others[np.lexsort((first_row[others], -sizes[others]))[0]]))]
    first = first[np.argsort(-rank[first, worst[first]], kind="stable")]
    return list(zip(alive[first].tolist(), alive[worst[first]].tolist(), strict=True))


def _ranked_for_merging(gaps: _MergingGaps, alive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log p of pairs (n, n), and their ranks: the least separate has the highest.

    Pairs are ranked by p, then by ratio, then by density. Pairs that do not count have rank -1.
    """
    log_p = gaps.decisive(alive)
    touch = np.isfinite(log_p)
    keys = (x[np.ix_(alive, alive)] for x in (gaps.density, gaps.ratio))
    order = np.lexsort((*(key.ravel() for key in keys), log_p.ravel()))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    rank = rank.reshape(touch.shape)
    return log_p, np.where(touch, np.maximum(rank, rank.T), -1)  # a pair has one rank
