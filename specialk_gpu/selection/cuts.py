"""Cuts of a graph: their weights at the border of two parts and inside the parts."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.cpu.threads import map_chunks
from specialk_gpu.backend.typing import Array, Sparse
from specialk_gpu.graph.affinity import rows_of_affinities
from specialk_gpu.selection.node_rows import NodeRows
from specialk_gpu.selection.walks import WalkGraph, walk_panels
from specialk_gpu.spectrum.eigenpairs import eigenpairs, quick_eigenpairs

__all__ = ["Cuts", "heaviest_cut", "heaviest_cut_if_mixed"]

CERTAIN = 1e-4  # the order of rows is unknown where f, or 1 - f, is below this
TOUCHING = 0.01  # two parts touch if the edges between them weigh more than this
MIXED = 0.004  # lazy walks mix soon if their two leading eigenvalues differ by this or more
FEW = 2**13  # up to this many rows, the order of a part is computed to more digits
CHUNK = 2**17  # rows and edges that are processed together on the host


class Cuts:
    """The cuts between two nodes of a graph; a node is a part, or a union of parts.

    Parts have the numbers 0, ..., K - 1; `unite` gives a union the next number, up to 2 K - 2.

    Parameters
    ----------
    graph : CutGraph
    part : int32 array of shape (m,)
        The part of each row.
    K : int
        The number of parts.

    Attributes
    ----------
    sizes : int64 array of shape (2 K,), on the host
        Number of rows of each node.
    first : int64 array of shape (2 K,), on the host
        The first row of each node.
    weights : float64 array of shape (2 K, 2 K), on the host
        Weight of the edges between two nodes, or, on the diagonal, inside one.
    n_unions : int
        Number of unions so far.
    """

    def __init__(self, graph: WalkGraph, part: Array, K: int) -> None:
        bk = backend_of(part)
        xp, m = bk.xp, part.size
        self.bk, self.K, self.n_unions = bk, K, 0
        self._members = np.zeros((2 * K, K), dtype=bool)
        self._members[:K] = np.eye(K, dtype=bool)
        order = xp.argsort(part, kind="stable")  # from here on, rows are in this order
        self._rows = order
        self._twins = None if graph.twins is None else graph.twins[order]
        self._shares = NodeRows(bk, K, m)
        for parts, own in walk_panels(graph, part, K):
            self._shares.values[parts] = own[order].T
        place = xp.empty(m, dtype=np.int32)
        place[order] = xp.arange(m, dtype=np.int32)
        first_of_part = xp.searchsorted(part[order], xp.arange(K + 1, dtype=part.dtype))
        row, column, weight = graph.edges
        key = _pairs_of_parts(xp, part[row], part[column], K)
        by_key = xp.argsort(key, kind="stable")
        self._edges = xp.empty((2, row.size), dtype=np.int32)  # those of the smaller part first
        ends = place[row], place[column]
        for own, of_ends in zip(self._edges, (xp.minimum, xp.maximum), strict=True):
            own[...] = of_ends(*ends)[by_key]
        self._edge_weights = weight[by_key]
        bounds = xp.searchsorted(key[by_key], xp.arange(K * K + 1).astype(key.dtype))
        weights = bk.bin_sums(key, weight, K * K)
        known = [order[first_of_part[:-1]], first_of_part, bounds, weights]
        known = bk.to_numpy(xp.concatenate(known))  # exact: below 2^53
        pieces = np.split(known, np.cumsum([K, K + 1, K * K + 1]))
        first, ends, bounds = (x.astype(np.int64) for x in pieces[:3])
        self.first = np.concatenate([first, np.zeros_like(first)])
        self._first_row = ends[:-1]
        self.sizes = np.zeros(2 * K, dtype=np.int64)
        self.sizes[:K] = np.diff(ends)
        counts = np.diff(bounds)
        some = np.flatnonzero(counts)  # groups of edges: between two parts, or inside one
        self._ends_of_group = some // K, some % K
        self._first_edge, self._n_edges = bounds[some], counts[some]
        upper = pieces[3].reshape(K, K)
        self.weights = np.zeros((2 * K, 2 * K))
        self.weights[:K, :K] = upper + np.triu(upper, 1).T

    def unite(self, a: int, b: int) -> int:
        """Make the union of two nodes, and return its number."""
        new = self.K + self.n_unions
        self.n_unions += 1
        self._members[new] = self._members[a] | self._members[b]
        self.sizes[new] = self.sizes[a] + self.sizes[b]
        self.first[new] = min(self.first[a], self.first[b])
        self._shares.unite(a, b)
        weights = self.weights
        inside = weights[a, a] + weights[b, b] + weights[a, b]
        weights[new] = weights[a] + weights[b]
        weights[:, new] = weights[new]
        weights[new, new] = inside
        return new

    def release(self, nodes: Iterable[int]) -> None:
        """Free the memory of nodes that no pair will name again; they are parts of unions."""
        self._shares.release(nodes)

    def members(self, node: int) -> np.ndarray:
        """Return the parts of a node."""
        return np.flatnonzero(self._members[node])

    def rows(self, node: int) -> Array:
        """Return the rows of a node."""
        parts = self.members(node)
        return self.bk.xp.concatenate([self._rows[own] for own in self._row_slices(parts)])

    def _row_slices(self, parts: np.ndarray) -> list[slice]:
        """Return a slice for each part: the positions of its rows."""
        starts, stops = self._first_row[parts], self._first_row[parts] + self.sizes[parts]
        return [slice(*ends) for ends in zip(starts.tolist(), stops.tolist(), strict=True)]

    def touching(self, node: int, others: np.ndarray) -> np.ndarray:
        """Return those of the other nodes that edges join to this one."""
        return others[(self.weights[node, others] > TOUCHING) & (others != node)]

    def measure(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Measure the cuts at the borders of pairs of nodes, and inside them.

        Parameters
        ----------
        pairs : int array of shape (p, 2)

        Returns
        -------
        between, within : float64 arrays of shape (p,), on the host
            `between` is the weight of the cut at the border, limited to between half and all of
            the weight of the edges between the two; it is all of it if the walks do not determine
            this cut. `within` is the weight of the lighter of the heaviest cuts on the two sides.

        Notes
        -----
        A walk from a row of the pair (i, j) ends in j, rather than in i, with some probability f.
        Each threshold of f divides their rows in two: inside i, at the border, or inside j. All
        pairs are measured in one pass over their rows and edges, with one wait for the device.
        """
        return self.borders(pairs, self.bk.to_numpy(self.heaviest(pairs)))

    def heaviest(self, pairs: np.ndarray) -> Array:
        """Return the heaviest cuts left of the borders, at them, and right of them: (p, 3)."""
        if not len(pairs):
            return self.bk.xp.empty((0, 3))
        inside, edges = self._inside(pairs)
        chunks = [np.arange(len(pairs))]
        if self.bk.name == "numpy":
            load = self.sizes[pairs].sum(axis=1) + edges @ self._n_edges
            chunks = np.split(chunks[0], np.flatnonzero(np.diff(np.cumsum(load) // CHUNK)) + 1)
        found = map_chunks(lambda own: self._heaviest(pairs[own], inside[own], edges[own]), chunks)
        return found[0] if len(found) == 1 else self.bk.xp.concatenate(found)

    def borders(self, pairs: np.ndarray, heaviest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the result of `measure` from that of `heaviest`, on the host."""
        left, level, right = heaviest.T
        whole = self.weights[pairs[:, 0], pairs[:, 1]]
        between = np.where(level > 0, np.maximum(np.minimum(level, whole), whole / 2), whole)
        return between, np.minimum(left, right)

    def _inside(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the parts (p, K), and of the groups of edges, inside each pair."""
        parts = self._members[pairs[:, 0]] | self._members[pairs[:, 1]]
        return parts, parts[:, self._ends_of_group[0]] & parts[:, self._ends_of_group[1]]

    def _heaviest(self, pairs: np.ndarray, inside: np.ndarray, edges: np.ndarray) -> Array:
        """Return `heaviest` for one chunk of pairs."""
        cuts, known = self._profiles(pairs, inside, edges)
        xp, own = self.bk.xp, cuts[:-1]
        xp.multiply(own, known, out=own)
        n_rows = self.sizes[pairs]
        ends = np.cumsum(n_rows.sum(axis=1))
        first = ends - n_rows.sum(axis=1)
        border = first + n_rows[:, 0] - 1
        start = np.stack([first, border, border], axis=1)
        end = np.stack([border + 1, border + 1, ends], axis=1)
        return self.bk.segment_max(cuts, start.ravel(), end.ravel()).reshape(-1, 3)

    def _profiles(
        self, pairs: np.ndarray, inside: np.ndarray, edges: np.ndarray
    ) -> tuple[Array, Array]:
        """Return the weight of the cut after each row, in the order of f, and if it is known.

        The rows of the first pair come first, then those of the second, and so on. Behind all rows
        of a pair no edge is open: that cut weighs 0, whether it is known or not. There is no entry
        of `known` for the last row of all.
        """
        bk, xp, m = self.bk, self.bk.xp, self._rows.size
        pair, part = np.nonzero(inside)
        counts = self.sizes[part]
        shift = np.zeros(inside.shape, dtype=np.int64)  # from a row to its place in a pair
        shift[pair, part] = np.cumsum(counts) - counts - self._first_row[part]
        start = -shift[pair, part]
        own, other = self._shares.place[pairs[pair]].T * m + start
        rows = bk.repeated(np.stack([own, other, start, pair]), counts)
        rows[:3] += xp.arange(rows.shape[1])
        own, other = self._shares.values.ravel().take(rows[:2])
        f = other / (own + other)  # own + other > 0: a walk reaches one of the two
        twins = None if self._twins is None else self._twins[rows[2]]
        order = _cut_order(xp, f, twins)
        if len(pairs) > 1:
            short = np.min_scalar_type(len(pairs))  # the host sorts short integers faster
            order = order.take(xp.argsort(rows[3].astype(short).take(order), kind="stable"))
        rank = xp.empty(f.size, dtype=np.int64)
        rank[order] = xp.arange(f.size)
        sides, weight = self._ends_of_edges(edges, shift, rank)
        opened = bk.bin_sums(xp.minimum(*sides), weight, f.size)
        closed = bk.bin_sums(xp.maximum(*sides), weight, f.size)
        f, twins = f.take(order), None if twins is None else twins[order]
        known = _clear_cuts(f, twins) & (f[1:] > CERTAIN) & (f[:-1] < 1 - CERTAIN)
        return xp.cumsum(opened - closed), known

    def _ends_of_edges(
        self, edges: np.ndarray, shift: np.ndarray, rank: Array
    ) -> tuple[list[Array], Array]:
        """Return the ranks of the two ends of the edges of `_profiles`, and their weights."""
        pair, group = np.nonzero(edges)
        counts = self._n_edges[group]
        start = self._first_edge[group] - (np.cumsum(counts) - counts)
        of_ends = (shift[pair, ends[group]] for ends in self._ends_of_group)
        at, *places = self.bk.repeated(np.stack([start, *of_ends]), counts)
        at += self.bk.xp.arange(at.size)
        for place, ends in zip(places, self._edges, strict=True):
            place += ends.take(at)
        return [rank.take(place) for place in places], self._edge_weights.take(at)

    def profile(self, pair: tuple[int, int]) -> tuple[Array, Array]:
        """Return the cuts of one pair, for a plot.

        Returns
        -------
        position : int64 array of shape (c,)
            Number of rows before the cut, minus the rows of the first node: 0 is the border.
        weight : float64 array of shape (c,)
        """
        pairs = np.array([pair])
        cuts, known = self._profiles(pairs, *self._inside(pairs))
        at = self.bk.xp.flatnonzero(known)
        return at + 1 - int(self.sizes[pair[0]]), cuts[at]


def _pairs_of_parts(xp: ModuleType, a: Array, b: Array, K: int) -> Array:
    """Return a number for each pair of parts a and b, in 0, ..., K² - 1, in a short integer."""
    dtype = np.uint16 if K * K < 2**16 else np.int64  # the host sorts short integers faster
    return xp.minimum(a, b).astype(dtype) * dtype(K) + xp.maximum(a, b).astype(dtype)


def _cut_order(xp: ModuleType, f: Array, twins: Array | None) -> Array:
    """Return the order of rows by f, with twins next to each other."""
    return xp.argsort(f) if twins is None else xp.lexsort(xp.stack([twins, f]))


def _clear_cuts(f: Array, twins: Array | None) -> Array:
    """Return a mask of the rows but the last, in the order of f: f rises, or the next is a twin.

    The order of twins does not change the weight of the cut between them.
    """
    clear = f[1:] > f[:-1]
    if twins is not None:
        clear |= (f[1:] == f[:-1]) & (twins[1:] == twins[:-1])
    return clear


def heaviest_cut(A: Sparse, twins: Array | None = None) -> float:
    """Return the heaviest cut of the largest component of A, in the order of its eigenvector.

    `twins` has a number for each row that twins share (see `WalkGraph`).
    """
    A, lazy, own = _component_to_cut(A)
    if A.shape[0] < 3:
        return 0.0
    tol = 1e-5 if A.shape[0] <= FEW else 1e-4  # a long thread takes long
    twins = twins if twins is None or own is None else twins[own]
    return _heaviest_cut_along(A, eigenpairs(lazy, 2, tol=tol, random_state=0).vectors, twins)


def heaviest_cut_if_mixed(A: Sparse) -> float:
    """Return `heaviest_cut` if walks mix soon, so that the order is certain; else 0.

    Along a thread walks mix slowly: eigenvalues are close together there, and mixtures of their
    eigenvectors would cut the thread several times.
    """
    A, lazy, _ = _component_to_cut(A)
    if A.shape[0] < 3:
        return 0.0
    pairs = quick_eigenpairs(lazy, 2, tol=1e-6)
    if pairs is None or abs(pairs[0][0]) - abs(pairs[0][1]) < MIXED:
        return 0.0
    return _heaviest_cut_along(A, pairs[1])


def _component_to_cut(A: Sparse) -> tuple[Sparse, Sparse, Array | None]:
    """Return the largest component of a graph, its matrix of lazy walks, and its rows.

    The rows are None if all are in one component.
    """
    bk, own = backend_of(A), None
    count, component = bk.connected_components(A)
    if count > 1:
        own = bk.xp.flatnonzero(component == bk.xp.bincount(component).argmax())
        A = A[own][:, own]
    lazy = bk.sparse.csr_matrix(0.5 * (A + bk.sparse.identity(A.shape[0], format="csr")))
    return A, lazy, own


def _heaviest_cut_along(A: Sparse, vectors: Array, twins: Array | None = None) -> float:
    """Return the heaviest cut in the order of the second eigenvector divided by the first."""
    bk, size = backend_of(A), A.shape[0]
    xp = bk.xp
    f = vectors[:, 1] / xp.where(vectors[:, 0] != 0, vectors[:, 0], 1)
    row = rows_of_affinities(A, "similarities")
    once = row < A.indices
    rank = xp.empty(size, dtype=np.int64)
    order = xp.argsort(f, kind="stable") if twins is None else _cut_order(xp, f, twins)
    rank[order] = xp.arange(size)
    p, q, weight = rank[row[once]], rank[A.indices[once]], A.data[once]
    opened = bk.bin_sums(xp.minimum(p, q), weight, size)
    closed = bk.bin_sums(xp.maximum(p, q), weight, size)
    known = _clear_cuts(f[order], None if twins is None else twins[order])
    return float(xp.where(known, xp.cumsum(opened - closed)[:-1], 0).max())
