"""Where k-means starts: centres drawn far apart, and centres swapped for rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Points", "plus_plus", "points_of", "swaps"]

FEW = 6  # clusters: fewer are cheap, and more often tried


class Points(NamedTuple):
    """The rows to cluster, and what is known of them."""

    bk: ModuleType
    X: Any  # (m, d)
    columns: Any  # (m, d), in the order that `nearest_center` reads fastest
    sq_norms: Any  # (m,)


def points_of(bk: ModuleType, X: Any) -> Points:
    """Take rows X (m, d), near the origin."""
    return Points(bk, X, bk.xp.asarray(X, order=bk.center_order), (X * X).sum(axis=1))


def plus_plus(
    points: Points, ks: Sequence[int], n_init: int, rngs: list[Any]
) -> tuple[Any, np.ndarray]:
    """Draw sets of k starting centres for each k, `n_init` or somewhat more (see `n_trials`).

    Returns them, (R, max k, d), and their sizes (R,).
    """
    bk, xp = points.bk, points.bk.xp
    n_sets = [n_trials(n_init, k) for k in ks]
    sizes = np.repeat(ks, n_sets)
    chosen = xp.zeros((sizes.size, ks[-1]), dtype=np.int64)
    first = [rng.randint(points.X.shape[0], size=n) for n, rng in zip(n_sets, rngs, strict=True)]
    chosen[:, 0] = bk.asarray(np.concatenate(first))
    draws = bk.asarray(_draws(ks, n_sets, rngs))
    nearest = _sq_distances(points, chosen[:, 0])  # (R, m)
    for c in range(1, ks[-1]):
        place = int(np.searchsorted(sizes, c, side="right"))  # the runs from here on need more
        nearest = nearest[nearest.shape[0] - sizes.size + place :]
        chosen[place:, c], nearest = _draw(points, nearest, draws[c - 1, place:])
    return points.X[chosen], sizes


def n_trials(n_init: int, k: int) -> int:
    """Return how many sets of k centres to try for `n_init`."""
    return max(n_init, FEW * n_init // k) if n_init > 1 else n_init


def _draws(ks: Sequence[int], n_sets: list[int], rngs: list[Any]) -> np.ndarray:
    """Return numbers in [0, 1) for several candidates a centre and run: (max k - 1, R, trials).

    A smaller k has fewer candidates: its last is repeated.
    """
    trials = [2 + int(math.log(k)) for k in ks]
    draws = np.zeros((ks[-1] - 1, sum(n_sets), trials[-1]))
    for k, sets, t, rng in zip(ks, _slices(n_sets), trials, rngs, strict=True):
        own = rng.random_sample((k - 1, sets.stop - sets.start, t))
        draws[: k - 1, sets] = np.pad(own, [(0, 0), (0, 0), (0, trials[-1] - t)], "edge")
    return draws


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

    Rows are drawn as in k-means++, each after a centre was removed, `n_init` in all or somewhat
    more (see `n_trials`). Those pairs of a centre removed and a row are taken, half as many as
    rows, that leave the least inertia before any iteration: of all pairs where the search is
    greedy, else of a row and the centre removed for it. `centers` is (P, k, d), `sizes` (P,) rising
    and at least 2. Returns the copies, (R, k, d), and which set each is of, (R,).
    """
    bk, xp = points.bk, points.bk.xp
    removed = [rng.permutation(k)[:n_init] for k, rng in zip(sizes, rngs, strict=True)]
    without = bk.nearest_without(points.columns, points.sq_norms, centers, sizes, removed)  # (C, m)
    n_rows = [n_trials(n_init, k) for k in sizes.tolist()]
    draws = [rng.random_sample((n, 1)) for n, rng in zip(n_rows, rngs, strict=True)]
    # Of each k, the centres removed are a slice of the C, the rows drawn one of the N.
    centre_slices, row_slices = _slices([len(slots) for slots in removed]), _slices(n_rows)
    after = [
        c.start + np.arange(n) % len(slots)
        for c, n, slots in zip(centre_slices, n_rows, removed, strict=True)
    ]
    rows = bk.draw_rows(
        without[bk.asarray(np.concatenate(after))], bk.asarray(np.concatenate(draws))
    )[:, 0]
    to_row = _sq_distances(points, rows)  # (N, m)
    inertia = xp.empty((without.shape[0], max(n_rows)))
    for own, drawn in zip(centre_slices, row_slices, strict=True):
        for c in range(own.start, own.stop):
            leaves = xp.minimum(without[c], to_row[drawn]).sum(axis=1)
            inertia[c, : leaves.size] = leaves
    inertia = bk.to_numpy(inertia)  # a sync
    run, slot, row = [], [], []
    for p, n in enumerate(n_rows):
        own = inertia[centre_slices[p], :n]
        pairs = np.arange(own.size)
        if not greedy[p]:  # each row in the place of the centre that was removed for it
            pairs = np.arange(n) % len(own) * n + np.arange(n)
        order = pairs[np.argsort(own.ravel()[pairs], kind="stable")][: -(-n // 2)]
        run.append(np.full(order.size, p))
        slot.append(removed[p][order // n])
        row.append(row_slices[p].start + order % n)
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
