"""The search for clusters: make fragments, merge them, test, and polish the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from specialk_gpu._progress import ProgressClock
from specialk_gpu._result import (
    NO_POWER,
    TIME_IS_UP,
    Candidate,
    SelectionPath,
)
from specialk_gpu._time_limit import OutOfTime, during, lift_time_limit
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.fragments import (
    FragmentResolution,
    finer_fragment_resolutions,
    finest_resolutions,
    fragment_resolutions,
    n_fragment_eigenvectors,
)
from specialk_gpu.selection.jumps import log_p_without_jumps
from specialk_gpu.selection.merging import ONE_CLUSTER, Tree
from specialk_gpu.selection.polishing import polished_tree
from specialk_gpu.selection.reasons_and_warnings import (
    reason_by_cut,
    warn_of_many_clusters,
    warn_of_the_limit,
    warn_of_the_test,
    warn_of_the_time,
)
from specialk_gpu.selection.trees import grow_trees
from specialk_gpu.spectrum.eigenpairs import Eigenpairs

__all__ = ["SearchResult", "search", "searched_trees"]

AGREEING_ROWS = 2**11  # below so many rows, two resolutions are enough if their clusters are equal
LEVELS_SHOWN = 10  # a path shows this many levels, or twice the answer if that is more


class SearchResult(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    n_clusters : int
    labels : int32 array of shape (m,)
        Clusters are numbered by decreasing size.
    membership : float64 array of shape (m, k)
        Share of the walks from each row that end in each cluster.
    tree : Tree
        Its level of `n_clusters` clusters is `labels`, except for the numbering.
    path : SelectionPath
    limit_reached : bool
        Whether `max_clusters` ended the search.
    eigenpairs : Eigenpairs
        The eigenpairs from which the last fragments were made.
    """

    n_clusters: int
    labels: Array
    membership: Array
    tree: Tree
    path: SelectionPath
    limit_reached: bool
    eigenpairs: Eigenpairs


class _SearchRequest(NamedTuple):
    """The request: the arguments of a search."""

    log_alpha: float
    n_clusters: int | None
    min_clusters: int
    most: int


def search(
    graphs: CutGraphs,
    eigenpairs: Callable[[int], Eigenpairs],
    clock: ProgressClock,
    *,
    alpha: float,
    n_clusters: int | None = None,
    min_clusters: int = 1,
    max_clusters: int | None = None,
    full_path: bool = False,
    seed: int = 0,
) -> SearchResult:
    """Find the largest number of clusters with a clear gap between every two.

    The rows are divided into fragments at several resolutions. At each of these, fragments are
    merged until one is left. If k′ clusters pass the cut test, there are at least k clusters for
    every k up to k′. So the p of k is the least p of all clusterings into k or more clusters, and
    the answer is the largest k whose p is at most `alpha`. Among clusterings into that many
    clusters, the one with the least p is taken. Then each row moves to the cluster where most
    walks from it end, and the clusters are tested again.

    If the graph has few rows, and the two finest resolutions end in the same clusters, none of
    which looks like more than one, then the other resolutions are left out.

    A time limit ends the search with the resolutions that are merged completely; the clusters are
    then not polished.

    Parameters
    ----------
    graphs : CutGraphs
    eigenpairs : callable
        Returns the given number of eigenpairs of the graph.
    clock : Clock
        Records the seconds spent in "fragments", "merging" and "polishing".
    alpha : float
    n_clusters : int, optional
        Find this many clusters. They are the fragments of a resolution with just as many, unless
        these do not pass the test and clusters made of more fragments do.
    min_clusters, max_clusters : int
    full_path : bool
        Whether the path lists all levels of the tree.
    seed : int
        Seed of k-means.

    Returns
    -------
    Found

    Warns
    -----
    CalibrationWarning
        If the graph has fewer than 60 rows, or fewer than 10 entries in a row on average.
    PowerWarning
        If no split is accepted, and the cut of two perfectly separated clusters would not be
        accepted at this `alpha`.
    LimitWarning
        If `max_clusters` ended the search, or if there are more clusters than the
        square root of the number of rows.
    TimeLimitWarning
        If the time limit of the fit ended the search.
    """
    m, log_alpha = graphs.n_distinct, math.log(alpha)
    most = n_clusters or min(m, max_clusters or m)
    wish = _SearchRequest(log_alpha, n_clusters, min_clusters, most)
    trees, pairs, end, known = _search_trees(graphs, eigenpairs, wish, seed, clock)
    if end is None:
        try:
            with during("polishing"):
                chosen = _searched_clusters(graphs, trees, wish)
        except OutOfTime as late:
            end, known = late, "The clusters were tested, but not polished."
    lift_time_limit()
    if end is not None:
        chosen = _searched_clusters(graphs, trees, wish, polish=False)
        warn_of_the_time(end, known)
    k, tree, membership, log_p, limit_reached = chosen
    clock.stop("polishing", f"{k} clusters")
    powerless = False
    if n_clusters is None and min_clusters < most:
        powerless = k <= min_clusters and graphs.attainable_log_p() > log_alpha
        warn_of_the_test(graphs, alpha, powerless=powerless)
    if limit_reached:
        warn_of_the_limit(most, "there are more clusters with clear gaps")
    graphs.forget()  # what follows a search needs the memory
    if n_clusters is None:
        warn_of_many_clusters(k, graphs.n_rows)
    last = tree.n_leaves if full_path else min(tree.n_leaves, max(LEVELS_SHOWN, 2 * k))
    levels = [k] if n_clusters else range(min(min_clusters, k), min(last, most) + 1)
    path = SelectionPath(
        (
            _searched_candidate(
                tree, log_p, level, k, wish, limit_reached=limit_reached, powerless=powerless
            )
            for level in levels
        ),
        "cut",
    )
    if end is not None:
        path = path.with_reason(k, TIME_IS_UP)
    return SearchResult(k, tree.labels(k), membership, tree, path, limit_reached, pairs)


def searched_trees(
    graphs: CutGraphs, eigenpairs: Callable[[int], Eigenpairs], alpha: float, seed: int = 0
) -> list[Tree]:
    """Return the trees that a search for clusters at this `alpha` uses."""
    wish = _SearchRequest(math.log(alpha), None, 1, graphs.n_distinct)
    clock = ProgressClock(backend_of(graphs.one_part()), {})
    return _search_trees(graphs, eigenpairs, wish, seed, clock)[0]


def _searched_clusters(
    graphs: CutGraphs, trees: list[Tree], wish: _SearchRequest, *, polish: bool = True
) -> tuple[int, Tree, Array, np.ndarray, bool]:
    """Choose k from the trees.

    Returns k, the tree of the chosen clusters, the shares of walks (m, k), the log p of all k, and
    whether `most` limits k. It may be called again for the same trees.
    """
    log_alpha, n_clusters, min_clusters, most = wish
    if n_clusters is None:
        merged, k = _searched_tree_of_most_clusters(graphs, trees, min_clusters, log_alpha)
        log_p = _searched_log_p(trees)
    else:
        log_p = _searched_log_p(trees)
        k = min(n_clusters, len(log_p))
        merged = _first_clear_tree_of_search(trees, k, log_alpha)
    least = k if n_clusters else min(k, min_clusters)
    with backend_of(merged.leaf).narrow_block():
        settle = partial(polished_tree, graphs, merged, polish=polish)
        tree, membership, gaps = settle(k, least, log_alpha)
        for gap in gaps:  # after polishing, these levels have no clear gaps
            log_p[k - 1] = gap
            k -= 1
        limit_reached = n_clusters is None and min_clusters < most < k
        if k > most:
            k = most
            tree, membership, _ = settle(k, k, log_alpha)
    log_p[k - 1] = min(log_p[k - 1], tree.log_p[k - 1])
    log_p[:k] = np.minimum.accumulate(log_p[:k][::-1])[::-1]
    log_p[k:] = np.maximum.accumulate(log_p[k:])
    return k, tree, membership, log_p, limit_reached


def _search_trees(
    graphs: CutGraphs,
    eigenpairs: Callable[[int], Eigenpairs],
    wish: _SearchRequest,
    seed: int,
    clock: ProgressClock,
) -> tuple[list[Tree], Eigenpairs, OutOfTime | None, str]:
    """Make fragments and merge them at several resolutions; add finer ones if needed.

    Returns the trees and the eigenpairs; and, if a time limit ended the search after the first
    tree, this exception and what is known then.
    """
    m, exactly, log_alpha = graphs.n_distinct, None, wish.log_alpha
    if wish.n_clusters is not None:
        exactly = min(wish.n_clusters, m)
    wanted = fragment_resolutions(m, exactly or min(wish.min_clusters, m), exactly)
    if wish.most == 1 or not wanted:
        return [Tree.of_one(graphs.one_part())], eigenpairs(1), None, ""
    order, later = wanted, []
    trees: dict[FragmentResolution, Tree] = {}
    pairs: list[Eigenpairs] = []
    enough: list[FragmentResolution] = []  # those that may make the others needless
    if exactly is not None:
        enough = order[:1]
    elif m < AGREEING_ROWS:
        enough = finest_resolutions(order, 2)
    if enough:
        wanted, later = enough, [one for one in order if one not in enough]
    while wanted:
        n_vectors = n_fragment_eigenvectors(wanted if exactly else order, graphs.n_rows)
        try:
            grow_trees(graphs, eigenpairs, wanted, n_vectors, seed, clock, pairs, trees)
        except OutOfTime as end:
            if not trees:
                raise
            known = (
                f"{len(trees)} of {len(order)} divisions into fragments were merged and tested: "
                "there may be more clusters."
            )
            return _in_order(trees, order), pairs[-1], end, known
        passed = [str(_n_that_pass(tree.log_p, log_alpha)) for tree in _in_order(trees, wanted)]
        clock.stop("merging", f"{', '.join(passed)} clusters pass")
        if wanted is enough and _are_enough([*trees.values()], exactly, wish):
            order, later = enough, []
        wanted, later = later, []
        if exactly is None and not wanted:
            found = _n_that_pass(_searched_log_p([*trees.values()]), log_alpha)
            wanted = finer_fragment_resolutions(order, m, min(found, wish.most))
            order = order + wanted
    return _in_order(trees, order), pairs[-1], None, ""


def _in_order(trees: dict[FragmentResolution, Tree], order: list[FragmentResolution]) -> list[Tree]:
    """Return the trees in this order of their resolutions."""
    return [trees[one] for one in order if one in trees]


def _n_that_pass(log_p: np.ndarray, log_alpha: float) -> int:
    """Return the largest number of clusters whose log p is small enough."""
    return int(np.flatnonzero(log_p <= log_alpha).max()) + 1


def _are_enough(trees: list[Tree], exactly: int | None, wish: _SearchRequest) -> bool:
    """Return whether no other trees are needed.

    For a given k, one tree with clear gaps is enough. Else, trees are enough that end in the same
    clusters, at least two of them, none of which looks like more than one.
    """
    if exactly is not None:
        return _has_clear_gaps(trees[0], exactly, wish.log_alpha)
    k = _n_that_pass(trees[0].log_p, wish.log_alpha)
    if len(trees) < 2 or k < max(2, wish.min_clusters):
        return False
    for tree in trees:
        if _n_that_pass(tree.log_p, wish.log_alpha) != k or (tree.log_p[k:] < ONE_CLUSTER).any():
            return False
    labels, *others = (tree.labels(k) for tree in trees)
    return all(bool((labels == other).all()) for other in others)


def _searched_log_p(trees: list[Tree]) -> np.ndarray:
    """Return the least log p over all trees and all k′ ≥ k, for k = 1, 2, ..."""
    log_p = np.zeros(max(tree.n_leaves for tree in trees))
    for tree in trees:
        np.minimum(log_p[: tree.n_leaves], tree.log_p, out=log_p[: tree.n_leaves])
    log_p[0] = -math.inf
    return np.minimum.accumulate(log_p[::-1])[::-1]


def _searched_tree_of_most_clusters(
    graphs: CutGraphs, trees: list[Tree], least: int, log_alpha: float
) -> tuple[Tree, int]:
    """Return the tree and the largest number of clusters that passes, at least `least`.

    The p of jumps that do not count (see `jumps`) is changed in the trees.
    """
    while True:
        log_p = _searched_log_p(trees)
        k = min(max(_n_that_pass(log_p, log_alpha), least), len(log_p))
        tree = _searched_tree_of_least_p(trees, k)
        if k <= least or k == 1:
            return tree, k
        tree.log_p[k - 1] = log_p_without_jumps(graphs, tree, k, log_alpha)
        if tree.log_p[k - 1] <= log_alpha:
            return tree, k


def _searched_tree_of_least_p(trees: list[Tree], k: int) -> Tree:
    """Return the tree whose k clusters have the least p; among equal p, the least ratio."""
    able = [tree for tree in trees if tree.n_leaves >= k]
    return min(able, key=lambda tree: (tree.log_p[k - 1], tree.ratio[k - 1]))


def _first_clear_tree_of_search(trees: list[Tree], k: int, log_alpha: float) -> Tree:
    """Return the first tree with clear gaps between k clusters, else the first with k clusters.

    If gaps are not clear, p says little about which clustering is best.
    """
    able = [tree for tree in trees if tree.n_leaves >= k]
    return next((tree for tree in able if _has_clear_gaps(tree, k, log_alpha)), able[0])


def _has_clear_gaps(tree: Tree, k: int, log_alpha: float) -> bool:
    """Return whether a tree has k clusters with a clear gap between every two."""
    return tree.n_leaves >= k and bool(tree.log_p[k - 1] <= log_alpha)


def _searched_candidate(
    tree: Tree,
    log_p: np.ndarray,
    level: int,
    k: int,
    wish: _SearchRequest,
    *,
    limit_reached: bool,
    powerless: bool,
) -> Candidate:
    """Return the row of the path for one level of the tree."""
    own = float(tree.log_p[level - 1])
    pair = tree.next_pair(level) if level > 1 else None
    decisive = float(log_p[level - 1])
    reason = NO_POWER
    if not powerless or level <= k:
        limits = wish.log_alpha, wish.n_clusters, wish.min_clusters
        reason = reason_by_cut(level, k, own, pair, *limits)
    if limit_reached and level == k:
        reason += "; max_clusters reached"
    return Candidate(level, decisive, pair, level <= k, reason, tree.labels(level), own)
