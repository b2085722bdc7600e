"""A graph prepared for cuts, lazy walks on it, and what follows: parts and memberships."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import NamedTuple

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.graph.affinity import rows_of_affinities
from specialk_gpu.graph.knn import normalised_graph

__all__ = [
    "WalkGraph",
    "membership_by_walks",
    "parts_joined_by_walks",
    "prepare_walks",
    "walk",
    "walk_shares",
]

N_STEPS = 10  # steps of a lazy walk; each one stays on its row with probability one half
PIECE = 0.1  # a component with at least this share of its cluster is a part of its own
ALIKE = 5  # twins are used only if more rows than this have the same neighbours


class LazySteps(NamedTuple):
    """The moving half of a step of a lazy walk.

    Attributes
    ----------
    matrix : csr_matrix of shape (m, m)
        The similarities with rows scaled to sums of one half. On the host, its rows and columns
        are in an order that keeps neighbours together.
    order, place : int arrays of shape (m,), or None
        The row of the graph at each place of `matrix`, and the place of each row. None if the order
        is the same.
    """

    matrix: Sparse
    order: Array | None
    place: Array | None


@dataclass(frozen=True)
class WalkGraph:
    """A graph prepared for cuts, and for walks when the first of them begins.

    Attributes
    ----------
    S : csr_matrix of shape (m, m)
        Similarities divided by the square roots of the degrees, in multiples of 2^-31.
    row, column, weight : arrays of shape (e,)
        The edges, each listed once.
    twins : float64 array of shape (m,), or None
        A number for each row. Twins, rows with the same neighbours, share it. None if few rows have
        twins.
    """

    S: Sparse
    row: Array
    column: Array
    weight: Array
    twins: Array | None = None

    @property
    def entry_row(self) -> Array:
        """The row of each entry of `S`: int32 array of shape (nnz,)."""
        xp = backend_of(self.S).xp
        row = xp.searchsorted(self.S.indptr, xp.arange(self.S.nnz), side="right") - 1
        return row.astype(np.int32)

    @cached_property
    def steps(self) -> LazySteps:
        """The steps of walks on the graph."""
        S, row, bk = self.S, self.entry_row, backend_of(self.S)
        xp = bk.xp
        degree = bk.bin_sums(row, S.data, S.shape[0])
        step = 0.5 / xp.where(degree > 0, degree, 1)
        steps = bk.sparse.csr_matrix((S.data * step[row], S.indices, S.indptr), shape=S.shape)
        order, place = bk.locality_order(S), None
        if order is not None:
            place = xp.empty_like(order)
            place[order] = xp.arange(order.size, dtype=order.dtype)
            steps = steps[order]  # entries keep their order, so sums are the same to the bit
            content = steps.data, place[steps.indices], steps.indptr
            steps = bk.sparse.csr_matrix(content, shape=S.shape)
        return LazySteps(steps, order, place)


def prepare_walks(W: Sparse, *, twins: bool = False) -> WalkGraph:
    """Prepare a symmetric csr_matrix (m, m) of similarities for cuts; the diagonal is ignored.

    With `twins`, rows with the same neighbours are looked for. This is meant for given graphs,
    because kNN graphs have few of them. `W` is neither changed nor checked;
    `specialk_gpu.affinity_matrix` checks a matrix.
    """
    bk = backend_of(W)
    xp = bk.xp
    W = W.astype(np.float64)  # makes a copy; CuPy before 14.2 has no `copy` argument
    row = rows_of_affinities(W, "similarities")
    if bool((row == W.indices).any()):
        other = row != W.indices
        content = W.data[other], (row[other], W.indices[other])
        W = bk.sparse.csr_matrix(content, shape=W.shape)
        row = row[other]
    S = normalised_graph(W)
    # multiples of 2^-31: sums of up to 2^22 of them are exact in any order, as atomics require
    S.data = xp.rint(S.data * 2.0**31) * 2.0**-31
    once = row < S.indices
    edges = row[once].astype(np.int32), S.indices[once], S.data[once]
    return WalkGraph(S, *edges, _twins_for_walks(bk, S, row) if twins else None)


def _twins_for_walks(bk: Backend, S: Sparse, row: Array) -> Array | None:
    """Return a number for each row that its twins share, or None if few rows have twins.

    Twins have the same neighbours, not counting each other, as the rows of a clique do. Neighbours
    are compared by sums of random integers, which are exact in any order.
    """
    xp, m = bk.xp, S.shape[0]
    number = bk.asarray(np.random.RandomState(0).randint(1, 2**31, size=m).astype(np.float64))
    apart = bk.bin_sums(row, number[S.indices], m)  # for twins that no edge joins
    joined = apart + number
    many = []
    for sums in (apart, joined):
        in_order = xp.sort(sums)
        many.append((in_order[ALIKE:] == in_order[: max(m - ALIKE, 0)]).any())
    if not bool(xp.stack(many).any()):
        return None
    _, group, count = xp.unique(joined, return_inverse=True, return_counts=True)
    return xp.where(count[group] > 1, joined, -apart)


def walk(graph: WalkGraph, labels: Array, k: int) -> Array:
    """Return the share (m, k) of lazy walks from each row that end in each part.

    Rows with labels below 0 are in no part. Costs `N_STEPS` products of the graph with k columns.
    """
    bk = backend_of(labels)
    steps, order, place = graph.steps
    labels = labels if order is None else labels[order]
    F = (labels[:, None] == bk.xp.arange(k, dtype=labels.dtype)).astype(np.float64)
    after = bk.xp.empty_like(F)
    for _ in range(N_STEPS):
        bk.spmm(steps, F, after, 1.0, -0.5, 0.0)
        F, after = after, F
    return F if place is None else F[place]


def parts_joined_by_walks(
    graph: WalkGraph, labels: Array, k: int
) -> tuple[Array, np.ndarray, np.ndarray | None]:
    """Split clusters into connected parts.

    A component with at least a tenth of the rows of its cluster is a part. The rows of smaller
    components are strays: each goes to the part where most walks from it end, or, if its walks
    reach no part, to the largest part of its cluster.

    Returns
    -------
    part : int32 array of shape (m,)
    owner, core : int arrays of shape (n_parts,), on the host
        The cluster of each part, and its number of rows without strays. `core` is None if there
        are no strays and each cluster is one part.
    """
    bk = backend_of(labels)
    xp, m = bk.xp, labels.size
    S, row = graph.S, graph.entry_row
    inside = labels[S.indices] == labels[row]
    indices = xp.where(inside, S.indices, row)
    count, component = bk.components_of(S.indptr, indices)
    if count == k:
        return labels, np.arange(k), None
    found = xp.empty((2, count), dtype=np.int64)
    found[0] = bk.bin_sums(component, xp.ones(m), count)
    found[1, component] = labels
    sizes, label = bk.to_numpy(found)
    whole = np.bincount(label, sizes, minlength=k)
    order = np.lexsort((-np.arange(count), sizes))
    largest = np.zeros(k, dtype=np.int64)
    largest[label[order]] = order  # the largest is written last
    is_part = sizes >= np.maximum(2, PIECE * whole[label])
    is_part[largest[np.unique(label)]] = True
    number = np.cumsum(is_part) - 1
    home = number[largest[label]]
    part = bk.asarray(np.where(is_part, number, -1 - home).astype(np.int32))[component]
    if not is_part.all():
        part = _walk_strays_home(bk.xp, graph, part, int(is_part.sum()))
    return part, label[is_part], sizes[is_part]


def _walk_strays_home(xp: ModuleType, graph: WalkGraph, part: Array, n_parts: int) -> Array:
    """Move the strays, marked by -1 - home, to the part where most walks from them end."""
    near = walk(graph, part, n_parts)
    best = xp.where(near.any(axis=1), near.argmax(axis=1), -1 - part)
    return xp.where(part < 0, best, part).astype(np.int32)


def membership_by_walks(W: Sparse, labels: Array, k: int) -> Array:
    """Return the share (m, k) of lazy walks from each row that end in each cluster."""
    return walk_shares(prepare_walks(W), labels, k)


def walk_shares(graph: WalkGraph, labels: Array, k: int) -> Array:
    """Return the share (m, k) of lazy walks from each row that end in each cluster."""
    shares = walk(graph, labels, k)
    return shares / shares.sum(axis=1, keepdims=True)
