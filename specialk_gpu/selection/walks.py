"""A graph prepared for cuts, lazy walks on it, and what follows: parts and memberships."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    "largest_in_panels",
    "membership_by_walks",
    "parts_joined_by_walks",
    "prepare_walks",
    "walk",
    "walk_panels",
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
    twins : float64 array of shape (m,), or None
        A number for each row. Twins, rows with the same neighbours, share it. None if few rows have
        twins.
    """

    S: Sparse
    twins: Array | None = None

    @property
    def entry_row(self) -> Array:
        """The row of each entry of `S`: int32 array of shape (nnz,)."""
        return backend_of(self.S).entry_rows(self.S.indptr, self.S.nnz)

    @property
    def edges(self) -> tuple[Array, Array, Array]:
        """The edges, each listed once: row, column and weight, arrays of shape (e,).

        The host finds them each time, to save memory. A device keeps them, to save the wait.
        """
        on_device = backend_of(self.S).name == "cuda"
        return self._kept_edges if on_device else self._found_edges()

    @cached_property
    def _kept_edges(self) -> tuple[Array, Array, Array]:
        return self._found_edges()

    def _found_edges(self) -> tuple[Array, Array, Array]:
        S, row = self.S, self.entry_row
        once = row < S.indices
        return row[once], S.indices[once], S.data[once]

    @cached_property
    def steps(self) -> LazySteps:
        """The steps of walks on the graph."""
        S, row, bk = self.S, self.entry_row, backend_of(self.S)
        xp = bk.xp
        degree = bk.bin_sums(row, S.data, S.shape[0])
        data = (0.5 / xp.where(degree > 0, degree, 1))[row]
        data *= S.data
        steps = bk.sparse.csr_matrix((data, S.indices, S.indptr), shape=S.shape)
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
    row = rows_of_affinities(W, "similarities")
    content = W.data.astype(np.float64), W.indices, W.indptr  # only the data are a copy
    if bool((row == W.indices).any()):
        other = row != W.indices
        row = row[other]
        content = content[0][other], (row, W.indices[other])
    S = normalised_graph(bk.sparse.csr_matrix(content, shape=W.shape))
    # multiples of 2^-31: sums of up to 2^22 of them are exact in any order, as atomics require
    S.data *= 2.0**31
    xp.rint(S.data, out=S.data)
    S.data *= 2.0**-31
    return WalkGraph(S, _twins_for_walks(bk, S, row) if twins else None)


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
    shares = backend_of(labels).xp.empty((labels.size, k))
    for parts, own in walk_panels(graph, labels, k):
        shares[:, parts] = own
    return shares


def walk_panels(graph: WalkGraph, labels: Array, k: int) -> Iterator[tuple[slice, Array]]:
    """Yield slices of parts, and the shares (m, w) of `walk` for these parts.

    All shares together may take much more memory than a few columns of them.
    """
    width = backend_of(labels).walk_width
    width = -(-k // -(-k // width))  # panels of equal width
    for first in range(0, k, width):
        parts = slice(first, min(first + width, k))
        yield parts, _walk_to_parts(graph, labels, parts)


def _walk_to_parts(graph: WalkGraph, labels: Array, parts: slice) -> Array:
    """Return the shares (m, w) of lazy walks from each row that end in some parts."""
    bk = backend_of(labels)
    steps, order, place = graph.steps
    labels = labels if order is None else labels[order]
    names = bk.xp.arange(parts.start, parts.stop, dtype=labels.dtype)
    F = (labels[:, None] == names).astype(np.float64)
    after = bk.xp.empty_like(F)
    for _ in range(N_STEPS):
        bk.spmm(steps, F, after, 1.0, -0.5, 0.0)
        F, after = after, F
    return F if place is None else F[place]


def largest_in_panels(panels: Iterable[tuple[slice, Array]]) -> tuple[Array, Array]:
    """Return the largest entry of each row (m,) and its column (m,); the first if some are equal.

    `panels` are slices of columns, in their order, and the entries (m, w) in these columns.
    """
    all_panels = iter(panels)
    largest, column = _largest_in_panel(*next(all_panels))
    for columns, own in all_panels:
        value, place = _largest_in_panel(columns, own)
        xp, larger = backend_of(own).xp, value > largest
        largest, column = xp.where(larger, value, largest), xp.where(larger, place, column)
    return largest, column


def _largest_in_panel(columns: slice, own: Array) -> tuple[Array, Array]:
    """Return the result of `largest_in_panels` for one panel."""
    place = own.argmax(axis=1)
    value = backend_of(own).xp.take_along_axis(own, place[:, None], axis=1)[:, 0]
    return value, (place + columns.start).astype(np.int32)


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
    share, best = largest_in_panels(walk_panels(graph, part, n_parts))
    best = xp.where(share > 0, best, -1 - part)
    return xp.where(part < 0, best, part)


def membership_by_walks(W: Sparse, labels: Array, k: int) -> Array:
    """Return the share (m, k) of lazy walks from each row that end in each cluster."""
    return walk_shares(prepare_walks(W), labels, k)


def walk_shares(graph: WalkGraph, labels: Array, k: int) -> Array:
    """Return the share (m, k) of lazy walks from each row that end in each cluster."""
    shares = walk(graph, labels, k)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
