"""Starting centres for k-means: drawn far apart (k-means++), from groups, and by swaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist, squareform

from specialk_gpu._time_limit import check_time_limit
from specialk_gpu.backend import cpu
from specialk_gpu.backend.cpu.threads import one_blas_thread
from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.lloyd.points import Points, kmeans_points

__all__ = [
    "distinct_starts",
    "joined_starts",
    "kmeans_plus_plus",
    "padded_starts",
    "starting_centers",
    "swap_starting_centers",
    "upload_together",
]

GROUPS = 48
GROUPING = 5  # iterations that form the groups
FEW = 4  # starts come from groups too, for k up to the number of groups / FEW
FEWER = 3  # then `n_init` / FEWER starts come from k-means++, and as many from groups
GROUP_TRIALS = 6  # clusterings of the groups, for each restart
GROUP_ITERATIONS = 5
COPY = 1e-10  # times the mean squared distance: up to it, two rows are copies, but for rounding
ALIKE = 1e-4  # up to this relative difference of inertias, two clusterings count as one


def starting_centers(
    points: Points,
    ks: Sequence[int],
    n_init: int,
    rngs: list[RandomState],
    group_rng: RandomState,
) -> tuple[Array, np.ndarray]:
    """Return sets of starting centres (R, max k, d), and their sizes (R,), ascending.

    For each k, `n_init` sets come from `kmeans_plus_plus`. For few clusters and more than one
    restart, a third as many come from it, and up to a third from `starts_from_groups`.
    """
    few: dict[int, RandomState] = {}
    if n_init > 1 and ks[-1] > 1 and FEW * ks[0] <= GROUPS:
        groups = _seeding_groups(points, group_rng)
        few = {k: r for k, r in zip(ks, rngs, strict=True) if 1 < k <= len(groups.X) // FEW}
    parts = []
    if few:
        few_ks, few_rngs, n_starts = list(few), list(few.values()), -(-n_init // FEWER)
        parts.append(kmeans_plus_plus(points, few_ks, n_starts, few_rngs))
        with one_blas_thread:  # products are small
            parts.append(
                starts_from_groups(groups, few_ks, GROUP_TRIALS * n_init, n_starts, few_rngs)
            )
    rest = {k: r for k, r in zip(ks, rngs, strict=True) if k not in few}
    if rest:
        parts.append(kmeans_plus_plus(points, list(rest), n_init, list(rest.values())))
    return joined_starts(points.bk, parts)


def joined_starts(
    bk: Backend, parts: Sequence[tuple[Array, np.ndarray]]
) -> tuple[Array, np.ndarray]:
    """Join sets of centres (R, k, d), sorted by their sizes (R,)."""
    sizes = np.concatenate([own for _, own in parts])
    order = np.argsort(sizes, kind="stable")
    whole = padded_starts(bk, [centers for centers, _ in parts], int(sizes.max()))
    return whole if len(parts) == 1 else whole[bk.asarray(order)], sizes[order]


def padded_starts(bk: Backend, batches: Sequence[Array], k: int) -> Array:
    """Join sets of at most k centres (R, k', d), padded with zeros; some may be on the host."""
    ends = np.cumsum([len(centers) for centers in batches]).tolist()
    whole = bk.xp.zeros((ends[-1], k, batches[0].shape[2]))
    for centers, end in zip(batches, ends, strict=True):
        whole[end - len(centers) : end, : centers.shape[1]] = bk.asarray(centers)
    return whole


def upload_together(bk: Backend, *lists: ArrayLike) -> list[Array]:
    """Copy lists of integers from the host to the device in one transfer, as int64 arrays."""
    lists = [np.asarray(own, dtype=np.int64) for own in lists]
    whole = bk.asarray(np.concatenate(lists))
    return [whole[own] for own in _slices([own.size for own in lists])]


def kmeans_plus_plus(
    points: Points, ks: Sequence[int], n_init: int, rngs: list[RandomState]
) -> tuple[Array, np.ndarray]:
    """Draw `n_init` sets of k-means++ centres for each k: (R, max k, d), and their sizes (R,)."""
    return points.X[_kmeans_plus_plus_batch(points, ks, n_init, rngs)], np.repeat(ks, n_init)


def _kmeans_plus_plus_batch(
    points: Points, ks: Sequence[int], n_init: int, rngs: list[RandomState]
) -> Array:
    """Draw the rows that are starting centres of `n_init` runs for each k: (R, max k)."""
    bk, xp = points.bk, points.bk.xp
    sizes = np.repeat(ks, n_init)
    chosen = xp.zeros((sizes.size, ks[-1]), dtype=np.int64)
    chosen[:, 0] = _first_starting_centers(points, n_init, rngs)
    draws = bk.asarray(_seeding_draws(ks, n_init, rngs))
    nearest = _seeding_sq_distances(points, chosen[:, 0])  # (R, m)
    for c in range(1, ks[-1]):
        check_time_limit()
        place = int(np.searchsorted(sizes, c, side="right"))  # runs from here on have more centres
        nearest = nearest[nearest.shape[0] - sizes.size + place :]
        chosen[place:, c], nearest = _draw_starting_centers(points, nearest, draws[c - 1, place:])
    return chosen


def _first_starting_centers(points: Points, n_init: int, rngs: list[RandomState]) -> Array:
    """Draw the first row of `n_init` runs from each of several generators: (R,)."""
    bk, m = points.bk, points.X.shape[0]
    if points.weights is None:
        return bk.asarray(np.concatenate([rng.randint(m, size=n_init) for rng in rngs]))
    draws = np.concatenate([rng.random_sample(n_init) for rng in rngs])
    return bk.draw_rows(points.weights[None], bk.asarray(draws)[None])[0]


def _seeding_groups(points: Points, rng: RandomState) -> Points:
    """Return the means of at most 48 groups of rows, weighted by their sizes, on the host."""
    bk, xp = points.bk, points.bk.xp
    rows = bk.to_numpy(points.X[bk.asarray(rng.permutation(points.X.shape[0])[:GROUPS])])
    sq = squareform(pdist(rows, "sqeuclidean"))
    copies = np.triu(sq <= COPY * sq.mean(), 1).any(axis=0)  # they differ by rounding
    centers, last = bk.asarray(rows[~copies])[None], None
    for _ in range(GROUPING):
        sizes = np.array([centers.shape[1]])
        _, _, centers, counts, _, last, _ = bk.assign(*points[1:4], centers, sizes, last)
    both = bk.to_numpy(xp.concatenate([counts[0][:, None], centers[0]], axis=1))  # host waits
    counts, centers = both[:, 0], both[:, 1:]
    return kmeans_points(cpu, centers[counts > 0], counts[counts > 0].astype(np.float64))


def starts_from_groups(
    groups: Points,
    ks: Sequence[int],
    n_trials: int,
    n_starts: int,
    rngs: list[RandomState],
) -> tuple[np.ndarray, np.ndarray]:
    """Cluster groups of rows `n_trials` times for each k; return the centres of the best trials.

    `groups` are on the host. For each k, returns at most `n_starts` sets, which differ in inertia:
    the centres (R, max k, d), and their sizes (R,). There are so few groups that six trials cost
    less than one restart.
    """
    chosen = _kmeans_plus_plus_batch(groups, ks, n_trials, rngs)
    gram, slots = groups.X @ groups.X.T, np.arange(ks[-1])[:, None]
    parts = []
    for i, k in enumerate(ks):
        # A centre is a weighted mean of groups, so products of groups are all that is needed.
        share = np.eye(len(gram))[chosen[i * n_trials : (i + 1) * n_trials, :k]]  # (r, k, g)
        for _ in range(GROUP_ITERATIONS):
            products = (share.reshape(-1, len(gram)) @ gram).reshape(share.shape)
            scores = np.einsum("rkg,rkg->rk", share, products)[:, :, None] - 2 * products
            member = (scores.argmin(axis=1)[:, None] == slots[:k]) * groups.weights
            sizes = member.sum(axis=2, keepdims=True)
            share = np.where(sizes > 0, member / np.maximum(sizes, 1), share)
        inertia = (groups.sq_norms + scores.min(axis=1)) @ groups.weights
        centers = share[distinct_starts(inertia, n_starts)] @ groups.X
        parts.append((centers, np.full(len(centers), k)))
    return joined_starts(cpu, parts)


def distinct_starts(inertias: np.ndarray, n: int) -> list[int]:
    """Return the places of the n smallest inertias that differ from each other."""
    chosen: list[int] = []
    for place in np.argsort(inertias, kind="stable").tolist():
        if not chosen or inertias[place] > inertias[chosen[-1]] * (1 + ALIKE):
            chosen.append(place)
    return chosen[:n]


def _seeding_draws(ks: Sequence[int], n_init: int, rngs: list[RandomState]) -> np.ndarray:
    """Return numbers in [0, 1), one per candidate for a centre of a run: (max k - 1, R, trials).

    A smaller k has fewer candidates; its last number is repeated.
    """
    trials = [2 + int(math.log(k)) for k in ks]
    draws = np.zeros((ks[-1] - 1, len(ks), n_init, trials[-1]))
    for i, (k, t, rng) in enumerate(zip(ks, trials, rngs, strict=True)):
        own = rng.random_sample((k - 1, n_init, t))
        draws[: k - 1, i] = np.pad(own, [(0, 0), (0, 0), (0, trials[-1] - t)], "edge")
    return draws.reshape(ks[-1] - 1, len(ks) * n_init, trials[-1])


def _draw_starting_centers(points: Points, nearest: Array, draws: Array) -> tuple[Array, Array]:
    """Draw one more centre for each run: the best of several rows, drawn by squared distance.

    `nearest` (R, m) holds the squared distances to the present centres, and `draws` (R, trials)
    numbers in [0, 1). Returns the rows (R,) and the new distances.
    """
    xp, weights = points.bk.xp, points.weights
    trial = points.bk.draw_rows(nearest if weights is None else nearest * weights, draws)
    candidate = _seeding_sq_distances(points, trial.ravel()).reshape(*trial.shape, -1)
    xp.minimum(candidate, nearest[:, None, :], out=candidate)
    inertia = candidate.sum(axis=2) if weights is None else candidate @ weights
    run, best = xp.arange(trial.shape[0]), xp.argmin(inertia, axis=1)
    return trial[run, best], candidate[run, best]


def swap_starting_centers(
    points: Points,
    centers: Array,
    sizes: np.ndarray,
    greedy: list[bool],
    n_init: int,
    rngs: list[RandomState],
) -> tuple[Array, np.ndarray]:
    """Replace a centre by a row, in several copies of each of P sets of centres.

    For each set, `n_init` rows are drawn as in k-means++, each after one centre was removed. A
    swap is a pair of a removed centre and a row. A third as many swaps as rows are taken: those
    with the lowest inertia before any iteration. If the search is greedy, they are chosen from all
    pairs; otherwise, a row is paired only with the centre that was removed for it. `centers` has
    shape (P, k, d); `sizes` (P,) is ascending and at least 2. Returns the copies (R, k, d), and
    the set that each comes from (R,).
    """
    bk = points.bk
    removed = [rng.permutation(k)[:n_init] for k, rng in zip(sizes, rngs, strict=True)]
    without = bk.nearest_without(points.columns, points.sq_norms, centers, sizes, removed)  # (C, m)
    draws = np.concatenate([rng.random_sample((n_init, 1)) for rng in rngs])
    # For each k, the removed centres are a slice of the C, and the drawn rows a slice of the N.
    slices = _slices([len(slots) for slots in removed])
    after = np.concatenate([c.start + np.arange(n_init) % (c.stop - c.start) for c in slices])
    owner = np.repeat(np.arange(sizes.size), [len(slots) for slots in removed])
    after, owner = upload_together(bk, after, owner)
    rows = bk.draw_rows(without[after], bk.asarray(draws))[:, 0]
    to_row = _seeding_sq_distances(points, rows)  # (N, m)
    inertia = bk.to_numpy(bk.sums_of_minima(without, to_row, owner, n_init))  # host waits
    run, slot, row = [], [], []
    for p, slots in enumerate(removed):
        own = inertia[slices[p]].ravel()
        pairs = np.arange(own.size)
        if not greedy[p]:  # each row in the place of the centre that was removed for it
            pairs = np.arange(n_init) % len(slots) * n_init + np.arange(n_init)
        order = pairs[np.argsort(own[pairs], kind="stable")][: -(-n_init // 3)]
        run.append(np.full(order.size, p))
        slot.append(slots[order // n_init])
        row.append(p * n_init + order % n_init)
    run = np.concatenate(run)
    lists = np.arange(run.size), run, np.concatenate(slot), np.concatenate(row)
    copy, own, slot, row = upload_together(bk, *lists)
    swapped = centers[own]
    swapped[copy, slot] = points.X[rows[row]]
    return swapped, run


def _slices(lengths: Sequence[int]) -> list[slice]:
    """Return consecutive slices of the given lengths."""
    ends = np.cumsum(lengths).tolist()
    return [slice(end - n, end) for end, n in zip(ends, lengths, strict=True)]


def _seeding_sq_distances(points: Points, rows: Array) -> Array:
    """Return the squared distances of all rows to the given `rows`: (r, m)."""
    sq = points.bk.sq_distances(points.columns, points.sq_norms, points.X[rows])
    sq[points.bk.xp.arange(rows.size), rows] = 0
    return sq
