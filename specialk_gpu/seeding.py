"""Where k-means starts: centres drawn far apart, and centres swapped for rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Points", "plus_plus", "points_of", "swaps"]


class Points(NamedTuple):
    """The rows to cluster, and what is known of them."""

    bk: ModuleType
    X: Any  # (m, d)
    columns: Any  # (m, d), in the order that `nearest_center` reads fastest
    sq_norms: Any  # (m,)


def points_of(bk: ModuleType, X: Any) -> Points:
    """Take rows X (m, d), near the origin."""
    return Points(bk, X, bk.xp.asarray(X, order=bk.center_order), (X * X).sum(axis=1))


def plus_plus(points: Points, ks: Sequence[int], n_init: int, rngs: list[Any]) -> Any:
    """Draw `n_init` sets of k starting centres for each k: (len(ks) n_init, max k, d)."""
    bk, xp = points.bk, points.bk.xp
    sizes = np.repeat(ks, n_init)
    chosen = xp.zeros((sizes.size, ks[-1]), dtype=np.int64)
    first = [rng.randint(points.X.shape[0], size=n_init) for rng in rngs]
    chosen[:, 0] = bk.asarray(np.concatenate(first))
    draws = bk.asarray(_draws(ks, n_init, rngs))
    nearest = _sq_distances(points, chosen[:, 0])  # (R, m)
    for c in range(1, ks[-1]):
        place = int(np.searchsorted(sizes, c, side="right"))  # the runs from here on need more
        nearest = nearest[nearest.shape[0] - sizes.size + place :]
        chosen[place:, c], nearest = _draw(points, nearest, draws[c - 1, place:])
    return points.X[chosen]


def _draws(ks: Sequence[int], n_init: int, rngs: list[Any]) -> np.ndarray:
    """Return numbers in [0, 1) for several candidates a centre and run: (max k - 1, R, trials).

    A smaller k has fewer candidates: its last is repeated.
    """
    trials = [2 + int(math.log(k)) for k in ks]
    draws = np.zeros((ks[-1] - 1, len(ks), n_init, trials[-1]))
    for p, (k, rng) in enumerate(zip(ks, rngs, strict=True)):
        own = rng.random_sample((k - 1, n_init, trials[p]))
        draws[: k - 1, p] = np.pad(own, [(0, 0), (0, 0), (0, trials[-1] - trials[p])], "edge")
    return draws.reshape(-1, len(ks) * n_init, trials[-1])


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
    points: Points, centers: list[Any], greedy: list[bool], n_init: int, rngs: list[Any]
) -> Any:
    """Put a row in the place of a centre, in half of `n_init` copies of each k: (R, k, d).

    Rows are drawn as in k-means++, each after a centre was removed, `n_init` in all. Those pairs of
    a centre removed and a row are taken that leave the least inertia before any iteration: of all
    pairs where the search is greedy, else of a row and the centre removed for it.
    """
    bk, xp = points.bk, points.bk.xp
    sizes = np.array([len(own) for own in centers])
    removed = [rng.permutation(k)[:n_init] for k, rng in zip(sizes, rngs, strict=True)]
    owner = np.repeat(np.arange(sizes.size), [len(some) for some in removed])  # (C,)
    fewer = xp.zeros((owner.size, sizes[-1], points.X.shape[1]))
    first = np.searchsorted(owner, np.arange(sizes.size))
    for p, (k, some) in enumerate(zip(sizes.tolist(), removed, strict=True)):
        kept = np.stack([np.delete(np.arange(k), c) for c in some])  # (c, k - 1)
        fewer[first[p] : first[p] + len(some), : k - 1] = centers[p][bk.asarray(kept)]
    _, without = bk.nearest_center(points.columns, points.sq_norms, fewer, sizes[owner] - 1)
    draws = np.concatenate([rng.random_sample((n_init, 1)) for rng in rngs])
    after = first[:, None] + np.arange(n_init) % [[len(some)] for some in removed]
    rows = bk.draw_rows(without[bk.asarray(after.ravel())], bk.asarray(draws))[:, 0]
    to_row = _sq_distances(points, rows)  # (P n_init, m)
    inertia = xp.empty((owner.size, n_init))
    for c, p in enumerate(owner.tolist()):
        inertia[c] = xp.minimum(without[c], to_row[p * n_init : (p + 1) * n_init]).sum(axis=1)
    inertia = bk.to_numpy(inertia)  # a sync
    chosen = []
    for p in range(sizes.size):
        own = inertia[owner == p]
        pairs = np.arange(own.size)
        if not greedy[p]:  # each row in the place of the centre that was removed for it
            pairs = np.arange(n_init) % len(own) * n_init + np.arange(n_init)
        order = pairs[np.argsort(own.ravel()[pairs], kind="stable")][: -(-n_init // 2)]
        chosen += [(first[p] + i // n_init, p * n_init + i % n_init) for i in order.tolist()]
    c, row = np.array(chosen).T
    swapped = fewer[bk.asarray(c)]
    swapped[xp.arange(len(c)), bk.asarray(sizes[owner[c]] - 1)] = points.X[rows[bk.asarray(row)]]
    return swapped


def _sq_distances(points: Points, rows: Any) -> Any:
    """Return the squared distances of all rows to some rows: (r, m)."""
    centers, sizes = points.X[rows][:, None, :], np.ones(rows.size, dtype=np.int64)
    _, sq = points.bk.nearest_center(points.columns, points.sq_norms, centers, sizes)
    sq[points.bk.xp.arange(rows.size), rows] = 0
    return sq
