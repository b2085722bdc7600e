"""The trees of a search: at each resolution, fragments are made and merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from specialk_gpu._checkpoint import checkpoint, kept_step
from specialk_gpu._progress import ProgressClock
from specialk_gpu._time_limit import during
from specialk_gpu._workers import Loop, workers
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.fragments import FragmentResolution, fragments
from specialk_gpu.selection.merging import Tree, merge
from specialk_gpu.selection.polishing import polished
from specialk_gpu.spectrum.eigenpairs import Eigenpairs

__all__ = ["grow_trees"]

T = TypeVar("T")
R = TypeVar("R")
SHARED_ROWS = 2**11  # number of rows from which resolutions run in parallel threads
SENT_ROWS = 2**14  # number of rows from which workers of a cluster merge the fragments


def grow_trees(
    graphs: CutGraphs,
    eigenpairs: Callable[[int], Eigenpairs],
    wanted: list[FragmentResolution],
    n_vectors: int,
    seed: int,
    clock: ProgressClock,
    pairs: list[Eigenpairs],
    trees: dict[FragmentResolution, Tree],
) -> None:
    """Add `n_vectors` eigenpairs, and the tree of each wanted resolution.

    If the time limit ends this, `trees` holds those that are complete. If there are workers of a
    cluster, they merge the fragments.
    """
    m, kept = graphs.n_distinct, checkpoint.get()
    found = eigenpairs(n_vectors)
    vectors = graphs.distinct(found.vectors)
    bk = backend_of(vectors)

    def cut(one: FragmentResolution) -> tuple[Array, int]:
        def make() -> list[Array]:
            fragment, k = _fragments_with_thin_borders(graphs, found.values, vectors, seed, one)
            return [fragment, np.array(k)]

        fragment, k = kept_step(f"fragments-{one.name}", make, kept)
        return fragment, int(k)

    with during("fragments"):
        parts = _side_by_side(bk, cut, wanted, m)
    clock.stop("fragments", ", ".join(str(k) for _, k in parts))
    pairs[:] = [found]

    def keep(place: int, make: Callable[[], list[Any]]) -> None:
        one = wanted[place]
        trees[one] = Tree(*kept_step(f"tree-{one.name}", make, kept))

    def grow(place: int) -> None:
        keep(place, partial(tree_of_fragments, graphs, *parts[place]))

    with during("merging"):
        cluster, places = workers.get(), range(len(parts))
        if cluster is None or m < SENT_ROWS or bk.name != "numpy":
            _side_by_side(bk, grow, places, m)
            return
        new = [x for x in places if kept is None or not kept.has(f"tree-{wanted[x].name}")]
        new = new[::-1]  # the last ones take longest
        given = [partial(tuple, parts[place]) for place in new]

        def store(i: int, tree: list[Any]) -> None:
            keep(new[i], lambda: tree)

        cluster.run(Loop("merging", tree_of_fragments, graphs, given, store))
        for place in set(places) - set(new):
            grow(place)  # reads it


def _side_by_side(bk: Backend, function: Callable[[T], R], all_of: Sequence[T], m: int) -> list[R]:
    """Return the results of a function for each argument; many rows use all cores."""
    if m >= SHARED_ROWS:
        return bk.map_chunks(function, all_of[::-1])[::-1]  # the last ones take longest
    with bk.narrow_block():
        return [function(one) for one in all_of]


def _fragments_with_thin_borders(
    graphs: CutGraphs, values: Array, vectors: Array, seed: int, wanted: FragmentResolution
) -> tuple[Array, int]:
    """Make fragments at one resolution; their borders move to where the graph is thin."""
    fragment, k = fragments(values, vectors, wanted, seed)
    return polished(graphs.near, fragment, k, rounds=1)[0], k


def tree_of_fragments(graphs: CutGraphs, fragment: Array, k: int) -> list[Any]:
    """Merge fragments, and return the fields of the tree."""
    return list(merge(graphs, fragment, k) if k > 1 else Tree.of_one(graphs.one_part()))
