"""Where k-means starts: centres drawn far apart, and centres swapped for rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist, squareform

__all__ = ["Points", "distinct", "joined", "plus_plus", "points_of", "starting_centers", "swaps"]

FEW = 6  # clusters: fewer take starts from groups of rows too
GROUPS = 64
GROUPING = 5  # iterations that form them
GROUP_TRIALS, GROUP_STARTS = 10, 2  # for each restart
GROUP_ITERATIONS = 12
COPY = 1e-10  # of the mean squared distance, up to which two rows are copies, but for rounding
ALIKE = 1e-4  # relative difference of inertias up to which two clusterings are one


class Points(NamedTuple):
    """The rows to cluster, and what is known of them."""

    bk: ModuleType
    X: Any  # (m, d)
    columns: Any  # (m, d), in the order that `nearest_center` reads fastest
    sq_norms: Any  # (m,)


def points_of(bk: ModuleType, X: Any) -> Points:
    """Take rows X (m, d), near the origin."""
    return Points(bk, X, bk.xp.asarray(X, order=bk.center_order), (X * X).sum(axis=1))


def starting_centers(
    points: Points, ks: Sequence[int], n_init: int, rngs: list[Any], group_rng: Any
) -> tuple[Any, np.ndarray]:
    """Return sets of starting centres (R, max k, d), and their sizes (R,), rising.

    Of each k, `n_init` come from `plus_plus`, and twice as many from `from_groups` where there are
    few clusters and more than one restart.
    """
    xp = points.bk.xp
    starts, sizes = plus_plus(points, ks, n_init, rngs)
    few = [(k, rng) for k, rng in zip(ks, rngs, strict=True) if 1 < k < FEW]
    if n_init < 2 or not few:
        return starts, sizes
    groups, weights = _groups(points, group_rng)
    more = [from_groups(groups, weights, k, n_init, rng) for k, rng in few if k < len(groups)]
    if not more:
        return starts, sizes
    more = [(points.bk.asarray(some), np.full(len(some), some.shape[1])) for some in more]
    return joined(xp, [(starts, sizes), *more])


def joined(xp: ModuleType, parts: Sequence[tuple[Any, np.ndarray]]) -> tuple[Any, np.ndarray]:
    """Join sets of centres, (R, k, d) with their sizes (R,), in the order of their sizes."""
    sizes = np.concatenate([own for _, own in parts])
    out, place = xp.zeros((sizes.size, sizes.max(), parts[0][0].shape[2])), 0
    order = np.argsort(np.argsort(sizes, kind="stable"))
    for centers, own in parts:
        rows = xp.asarray(order[place : place + own.size])
        out[rows, : centers.shape[1]] = centers
        place += own.size
    return out, np.sort(sizes)


def plus_plus(
    points: Points, ks: Sequence[int], n_init: int, rngs: list[Any]
) -> tuple[Any, np.ndarray]:
    """Draw `n_init` sets of k starting centres for each k: (R, max k, d), and their sizes (R,)."""
    bk, xp = points.bk, points.bk.xp
    sizes = np.repeat(ks, n_init)
    chosen = xp.zeros((sizes.size, ks[-1]), dtype=np.int64)
    first = np.concatenate([rng.randint(points.X.shape[0], size=n_init) for rng in rngs])
    chosen[:, 0] = bk.asarray(first)
    draws = bk.asarray(_draws(ks, n_init, rngs))
    nearest = _sq_distances(points, chosen[:, 0])  # (R, m)
    for c in range(1, ks[-1]):
        place = int(np.searchsorted(sizes, c, side="right"))  # the runs from here on need more
        nearest = nearest[nearest.shape[0] - sizes.size + place :]
        chosen[place:, c], nearest = _draw(points, nearest, draws[c - 1, place:])
    return points.X[chosen], sizes


def _groups(points: Points, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the means (at most 64, d) of small groups of rows, and how many rows each has."""
    bk, xp = points.bk, points.bk.xp
    rows = bk.to_numpy(points.X[bk.asarray(rng.permutation(points.X.shape[0])[:GROUPS])])
    sq = _sq_distances_among(rows)
    copies = np.triu(sq <= COPY * sq.mean(), 1).any(axis=0)  # rounding would tell them apart
    centers, last = bk.asarray(rows[~copies])[None], None
    for _ in range(GROUPING):
        assigned = bk.assign(*points[1:], centers, np.array([centers.shape[1]]), last)
        _, _, counts, sums, last, _ = assigned
        means = sums / xp.maximum(counts, 1)[:, :, None]
        centers = xp.where(counts[:, :, None] > 0, means, centers)
    counts, centers = bk.to_numpy(counts[0]), bk.to_numpy(centers[0])
    return centers[counts > 0], counts[counts > 0].astype(np.float64)


def from_groups(
    groups: np.ndarray, weights: np.ndarray, k: int, n_init: int, rng: Any
) -> np.ndarray:
    """Cluster groups of rows by their means, many times over; return centres of the best.

    Ten runs from k-means++ for each restart cost less than the restart, so few that there are of
    groups. `groups` is (g, d), `weights` (g,), on the host; returns at most 2 `n_init` sets, which
    differ in inertia: (r, k, d).
    """
    (g, d), n_runs = groups.shape, GROUP_TRIALS * n_init
    sq = _sq_distances_among(groups)
    chosen = np.empty((n_runs, k), dtype=np.int64)
    chosen[:, 0] = np.searchsorted(weights.cumsum(), rng.random_sample(n_runs) * weights.sum())
    nearest = sq[chosen[:, 0]]
    for c in range(1, k):
        total = (nearest * weights).cumsum(axis=1)
        drawn = (total < rng.random_sample((n_runs, 1)) * total[:, -1:]).sum(axis=1)
        chosen[:, c] = np.minimum(drawn, g - 1)
        nearest = np.minimum(nearest, sq[chosen[:, c]])
    centers, before, weighted = groups[chosen], None, groups * weights[:, None]
    for _ in range(GROUP_ITERATIONS):
        products = (centers.reshape(-1, d) @ groups.T).reshape(n_runs, k, g)
        scores = (centers * centers).sum(axis=2)[:, :, None] - 2 * products
        labels = scores.argmin(axis=1)
        if before is not None and (labels == before).all():
            break
        before = labels
        members = (labels[:, None] == np.arange(k)[:, None]).astype(np.float64)
        counts = (members @ weights)[:, :, None]
        means = (members.reshape(-1, g) @ weighted).reshape(centers.shape) / np.maximum(counts, 1)
        centers = np.where(counts > 0, means, centers)
    sq_norms = (groups * groups).sum(axis=1)
    inertia = (weights * (sq_norms + scores.min(axis=1))).sum(axis=1)
    return centers[distinct(inertia, GROUP_STARTS * n_init)]


def _sq_distances_among(rows: np.ndarray) -> np.ndarray:
    """Return the squared distances of all pairs, on the host."""
    return squareform(pdist(rows, "sqeuclidean"))


def distinct(inertias: np.ndarray, n: int) -> list[int]:
    """Return the places of the n smallest inertias that differ."""
    chosen: list[int] = []
    for place in np.argsort(inertias, kind="stable").tolist():
        if not chosen or inertias[place] > inertias[chosen[-1]] * (1 + ALIKE):
            chosen.append(place)
    return chosen[:n]


def _draws(ks: Sequence[int], n_init: int, rngs: list[Any]) -> np.ndarray:
    """Return numbers in [0, 1) for several candidates a centre and run: (max k - 1, R, trials).

    A smaller k has fewer candidates: its last is repeated.
    """
    trials = [2 + int(math.log(k)) for k in ks]
    draws = np.zeros((ks[-1] - 1, len(ks), n_init, trials[-1]))
    for i, (k, t, rng) in enumerate(zip(ks, trials, rngs, strict=True)):
        own = rng.random_sample((k - 1, n_init, t))
        draws[: k - 1, i] = np.pad(own, [(0, 0), (0, 0), (0, trials[-1] - t)], "edge")
    return draws.reshape(ks[-1] - 1, len(ks) * n_init, trials[-1])


def _draw(points: Points, nearest: Any, draws: Any) -> tuple[Any, Any]:
    """Draw one more centre for each run: the best of several, by squared distance.

    `nearest` (R, m) holds squared distances to the centres there are, `draws` (R, trials)
    numbers in [0, 1). Returns the rows (R,) and the new distances.
    """
    xp = points.bk.xp
    trial = points.bk.draw_rows(nearest, draws)
    candidate = _sq_distances(points, trial.ravel()).reshape(*trial.shape, -1)
    xp.minimum(candidate, nearest[:, None, :], out=candidate)
    run, best = xp.arange(trial.shape[0]), xp.argmin(candidate.sum(axis=2), axis=1)
    return trial[run, best], candidate[run, best]


def swaps(
    points: Points,
    centers: Any,
    sizes: np.ndarray,
    greedy: list[bool],
    n_init: int,
    rngs: list[Any],
) -> tuple[Any, np.ndarray]:
    """Put a row in the place of a centre, in several copies of each of P sets of centres.

    Of each set, `n_init` rows are drawn as in k-means++, each after a centre was removed. Those
    pairs of a centre removed and a row are taken, a third as many as rows, that leave the least
    inertia before any iteration: of all pairs where the search is greedy, else of a row and the
    centre removed for it. `centers` is (P, k, d), `sizes` (P,) rising and at least 2. Returns the
    copies, (R, k, d), and which set each is of, (R,).
    """
    bk, xp = points.bk, points.bk.xp
    removed = [rng.permutation(k)[:n_init] for k, rng in zip(sizes, rngs, strict=True)]
    without = bk.nearest_without(points.columns, points.sq_norms, centers, sizes, removed)  # (C, m)
    draws = np.concatenate([rng.random_sample((n_init, 1)) for rng in rngs])
    # Of each k, the centres removed are a slice of the C, the rows drawn one of the N.
    slices = _slices([len(slots) for slots in removed])
    after = np.concatenate([c.start + np.arange(n_init) % (c.stop - c.start) for c in slices])
    rows = bk.draw_rows(without[bk.asarray(after)], bk.asarray(draws))[:, 0]
    to_row = _sq_distances(points, rows)  # (N, m)
    inertia = xp.empty((without.shape[0], n_init))
    for p, own in enumerate(slices):
        drawn = to_row[p * n_init : (p + 1) * n_init]
        for c in range(own.start, own.stop):
            inertia[c] = xp.minimum(without[c], drawn).sum(axis=1)
    inertia = bk.to_numpy(inertia)  # a sync
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
    run, slot, row = (np.concatenate(some) for some in (run, slot, row))
    swapped = centers[bk.asarray(run)]
    swapped[xp.arange(run.size), bk.asarray(slot)] = points.X[rows[bk.asarray(row)]]
    return swapped, run


def _slices(lengths: Sequence[int]) -> list[slice]:
    """Return the slices of these lengths that follow each other."""
    ends = np.cumsum(lengths).tolist()
    return [slice(end - n, end) for end, n in zip(ends, lengths, strict=True)]


def _sq_distances(points: Points, rows: Any) -> Any:
    """Return the squared distances of all rows to some rows: (r, m)."""
    sq = points.bk.sq_distances(points.columns, points.sq_norms, points.X[rows])
    sq[points.bk.xp.arange(rows.size), rows] = 0
    return sq
