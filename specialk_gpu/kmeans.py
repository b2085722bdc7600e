"""k-means with all restarts, and several numbers of clusters, in one batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.seeding import (
    Points,
    distinct,
    joined,
    plus_plus,
    points_of,
    starting_centers,
    swaps,
)

__all__ = ["KMeans", "kmeans", "kmeans_batch", "warn_of_shortcomings"]

HOPE = 3.0  # last gains; a run further behind the best is given up
LEAST = 2  # iterations before that
GAIN = 1e-5  # of the inertia, what counts as one
PATIENCE = 2  # rounds of swaps without gain
SAMPLE_ROWS = 2**13  # that are searched first
MANY = 4  # times as many rows, from which on that pays
SAMPLE_CLUSTERS = 64  # at most
SAMPLE_PATIENCE = 7
FAR = 2  # times fewer starts from all rows, beside those from a sample
CANDIDATES = 12  # of a sample, to go on from with all rows
MAX_ENTRY = 1e150  # sums of squares of larger ones may overflow
TINY = 1e-100  # squares of smaller differences lose digits, or vanish


class KMeans(NamedTuple):
    """A clustering.

    Attributes
    ----------
    labels : int32 array of shape (m,)
        In 0, ..., k - 1.
    centers : float64 array of shape (k, d)
    inertia : float
        Sum of squared distances to the nearest centre.
    n_iter : int
        Iterations of the best restart.
    converged : bool
        Whether the best restart ended with labels that no iteration changes, but for rounding.
    inertias : list of float
        Of all restarts, and of the swaps after them, as far as each was followed.
    """

    labels: Any
    centers: Any
    inertia: float
    n_iter: int
    converged: bool
    inertias: list[float]


NONE = KMeans(None, None, math.inf, 0, converged=False, inertias=[])


class _Left(NamedTuple):
    """What a run that has ended, or was given up, leaves."""

    inertia: float
    centers: Any  # (k, d)


class _Assignment(NamedTuple):
    """The nearest centre of every row, for every run, and what follows from it."""

    labels: Any  # (R, m) int32
    inertia: Any  # (R,)
    counts: Any  # (R, k)
    sums: Any  # (R, k, d)
    last: Any  # what the backend remembers
    exact: bool  # whether `inertia` is from its definition


@on_its_device
def kmeans(
    X: Any,
    n_clusters: int,
    *,
    n_init: int = 10,
    init: Any = None,
    max_iter: int = 300,
    random_state: Any = None,
) -> KMeans:
    """Cluster the rows of X by Lloyd's algorithm, best of several restarts.

    Starts come from greedy k-means++ (Arthur & Vassilvitskii 2007) with random numbers drawn on
    the host; a cluster that empties takes the row farthest from its centre. Equal distances
    go to the smaller label. Iterates until no label changes; a restart is given up once it is
    further behind the best than three times what its last iteration gained.

    Then rounds of swaps: a row takes the place of one centre of the best, in the `n_init` / 3 ways
    that promise most, and iterations from these run as one batch, until two rounds have failed to
    lower the inertia (after Fränti, Efficiency of random swap clustering, 2018, and Lattanzi &
    Sohler, A better k-means++ algorithm via local search, 2019).

    Few clusters start from groups as well: the rows are put into 48 groups, the groups clustered by
    their means and sizes 6 `n_init` times, and the best `n_init` / 3 of these clusterings join
    `n_init` / 3 restarts. This is done for k up to a quarter of the groups; others have `n_init`
    restarts.

    Of more than 32,768 rows, and for k up to 64, a sample of 8,192 is searched in this way until
    seven rounds have failed; the best twelve clusterings that it leaves, and `n_init` / 2 starts
    from all rows, are where iterations with all rows begin, and then swaps, until a round has
    failed. n_init=1 does without groups, swaps and sample.

    Parameters
    ----------
    X : array-like of shape (m, d)
        In NumPy or CuPy, real and finite; computed with in float64, near the origin.
    n_clusters : int
        1 <= k <= m.
    n_init : int
        Restarts, run as one batch, and rows drawn for a round of swaps.
    init : array of shape (r, k, d), optional
        Further starts, run in the same batch; with them, no restart is given up.
    max_iter : int
        Limit on the iterations of each restart.
    random_state : int, RandomState or None

    Returns
    -------
    KMeans
        Of the restart of lowest inertia. If X has fewer distinct rows than `n_clusters`, there
        are fewer clusters, and a ConvergenceWarning says so.

    Raises
    ------
    ValueError
        If an argument is out of range, or X is not real and finite.
    TypeError
        If a number that must be an integer is none.

    Notes
    -----
    An iteration costs at most 2 m R k d operations in matrix products, on the host fewer as the
    centres come to rest, and synchronises with the device once. Memory:
    O(m R) beside a chunk.
    """
    rng = check_random_state(random_state)
    settings = {"n_init": n_init, "init": init, "max_iter": max_iter}
    (found,) = kmeans_batch(X, [n_clusters], seeds=[rng], sample_seed=rng, **settings)
    warn_of_shortcomings(found, n_clusters, max_iter)
    return found


def kmeans_batch(
    X: Any,
    ks: Sequence[int],
    *,
    seeds: Sequence[Any],
    sample_seed: Any = 0,
    n_init: int = 10,
    init: Any = None,
    max_iter: int = 300,
) -> list[KMeans]:
    """Cluster the rows of X into each of several numbers of clusters, as `kmeans` does for one.

    Parameters
    ----------
    X, n_init, max_iter
        See `kmeans`.
    ks : sequence of int
        Rising. The result for one does not depend on the others, but for rounding.
    seeds : sequence of int or RandomState
        One for each k.
    sample_seed : int or RandomState
        Draws the sample of many rows and the groups, which are the same for every k.
    init : array of shape (r, k, d), optional
        See `kmeans`; for a single k.

    Returns
    -------
    list of KMeans
        One for each k, with fewer clusters where X has fewer distinct rows, without a warning.
    """
    bk = backend_of(X)
    X = bk.asarray(X)
    xp = bk.xp
    init = None if init is None else xp.asarray(init, dtype=np.float64)
    ks = list(ks)
    if not ks or ks != sorted(set(ks)):
        msg = f"ks must be rising numbers of clusters, got {ks}."
        raise ValueError(msg)
    if len(seeds) != len(ks):
        msg = f"seeds must be one for each of {len(ks)} numbers of clusters, got {len(seeds)}."
        raise ValueError(msg)
    for k in ks:
        _check_arguments(X, k, n_init, init, max_iter)
    many = X.shape[0] > MANY * SAMPLE_ROWS and init is None and n_init > 1
    n_small = sum(k <= SAMPLE_CLUSTERS for k in ks)
    if many and 0 < n_small < len(ks):  # not all are searched in a sample
        settings = {"sample_seed": sample_seed, "n_init": n_init, "max_iter": max_iter}
        few = kmeans_batch(X, ks[:n_small], seeds=seeds[:n_small], **settings)
        return few + kmeans_batch(X, ks[n_small:], seeds=seeds[n_small:], **settings)
    many = many and n_small > 0
    X, shift, unit = _centred(xp, X)
    points = points_of(bk, X)
    rngs, shared_rng = [check_random_state(seed) for seed in seeds], check_random_state(sample_seed)
    parts = []
    if many:
        sample = shared_rng.permutation(X.shape[0])[:SAMPLE_ROWS]
        sample = points_of(bk, X[bk.asarray(np.sort(sample))])
        parts.append(_candidates(sample, ks, n_init, rngs, shared_rng, max_iter))
        parts.append(plus_plus(points, ks, -(-n_init // FAR), rngs))  # the rare are not in a sample
    elif n_init:
        parts.append(starting_centers(points, ks, n_init, rngs, shared_rng))
    if init is not None:
        init = xp.clip((init - shift) / unit, -MAX_ENTRY, MAX_ENTRY)  # farther is no different
        parts.insert(0, (init, np.repeat(ks, len(init))))
    starts, sizes = joined(bk, parts)
    patience = 1 if many else PATIENCE
    hope = HOPE if init is None else np.inf
    best = _lloyd(points, starts, sizes, max_iter, [NONE] * len(ks), hope)
    best = _improved(points, best, n_init, rngs, max_iter, patience)
    return [_in_units(one, shift, unit) for one in _without_empty(points, best)]


def _check_arguments(X: Any, n_clusters: int, n_init: int, init: Any, max_iter: int) -> None:
    if X.ndim != 2 or X.shape[1] < 1:
        msg = f"X must have rows and columns, got shape {X.shape}."
        raise ValueError(msg)
    if X.dtype.kind not in "biuf":
        msg = f"X must hold real numbers, got {X.dtype}."
        raise ValueError(msg)
    integers = {"n_clusters": n_clusters, "n_init": n_init, "max_iter": max_iter}
    for name, value in integers.items():
        if not isinstance(value, Integral):
            msg = f"{name} must be an integer, got {value!r}."
            raise TypeError(msg)
    if not 1 <= n_clusters <= X.shape[0]:
        msg = (
            f"n_clusters must lie between 1 and the number of rows ({X.shape[0]}), "
            f"got {n_clusters}."
        )
        raise ValueError(msg)
    n_given = 0 if init is None else init.shape[0]
    if n_init < 0 or n_init + n_given < 1:
        msg = f"n_init must be at least 1, got {n_init}."
        raise ValueError(msg)
    if init is not None and tuple(init.shape[1:]) != (n_clusters, X.shape[1]):
        msg = f"init must have shape (r, {n_clusters}, {X.shape[1]}), got {tuple(init.shape)}."
        raise ValueError(msg)
    if init is not None and not bool((abs(init) < MAX_ENTRY).all()):
        msg = f"init must be finite and below {MAX_ENTRY:g} in magnitude."
        raise ValueError(msg)
    if max_iter < 1:
        msg = f"max_iter must be at least 1, got {max_iter}."
        raise ValueError(msg)


def _centred(xp: Any, X: Any) -> tuple[Any, Any, float]:
    """Return X less a shift, in a unit in which squares do not underflow; the shift; and the unit.

    Far from the origin, |x|² - 2xc + |c|² cancels. The shift is a multiple of a power of two, so
    that small integers stay exact, and the unit is one.
    """
    X = X.astype(np.float64, copy=False)
    largest = float(xp.maximum(X.max(), -X.min()))  # a sync
    if not largest < MAX_ENTRY:
        msg = f"X must be finite and below {MAX_ENTRY:g} in magnitude, got {largest}."
        raise ValueError(msg)
    spread = xp.ptp(X, axis=0)
    widest = float(spread.max())  # a sync
    spread = 2.0 ** xp.floor(xp.log2(xp.where(spread > 0, spread, 1)))
    shift = xp.rint(X.mean(axis=0) / spread) * spread
    unit = 1.0 if not 0 < widest < TINY else 2.0 ** math.frexp(widest)[1]
    return xp.ascontiguousarray((X - shift) / unit), shift, unit


def _in_units(found: KMeans, shift: Any, unit: float) -> KMeans:
    """Return a clustering of centred rows as one of the rows that were given."""
    inertias = [inertia * unit**2 for inertia in found.inertias]
    inertia, centers = found.inertia * unit**2, found.centers * unit + shift
    return found._replace(centers=centers, inertia=inertia, inertias=inertias)


def _candidates(
    sample: Points,
    ks: Sequence[int],
    n_init: int,
    rngs: list[Any],
    group_rng: Any,
    max_iter: int,
) -> tuple[Any, np.ndarray]:
    """Search a sample of the rows; return promising centres (R, max k, d) and their sizes (R,)."""
    left: list[list[_Left]] = [[] for _ in ks]
    starts, sizes = starting_centers(sample, ks, n_init, rngs, group_rng)
    best = _lloyd(sample, starts, sizes, max_iter, [NONE] * len(ks), left=left)
    _improved(sample, best, n_init, rngs, max_iter, SAMPLE_PATIENCE, left)
    chosen = []
    for runs in left:
        places = distinct(np.array([run.inertia for run in runs]), CANDIDATES)
        chosen += [runs[place] for place in places]
    sizes = np.array([len(run.centers) for run in chosen])
    starts = sample.bk.xp.zeros((sizes.size, ks[-1], sample.X.shape[1]))
    for r, run in enumerate(chosen):
        starts[r, : sizes[r]] = run.centers
    return starts, sizes


def _improved(
    points: Points,
    best: list[KMeans],
    n_init: int,
    rngs: list[Any],
    max_iter: int,
    patience: int,
    left: list[list[_Left]] | None = None,
) -> list[KMeans]:
    """Swap centres of the best of each size until `patience` rounds have failed to lower it."""
    bk = points.bk
    ks = [one.centers.shape[0] for one in best]
    failed = [0 if k >= 2 and n_init > 1 else patience for k in ks]
    while chosen := [p for p in range(len(ks)) if failed[p] < patience and best[p].inertia > 0]:
        given = [best[p] for p in chosen]
        greedy = [failed[p] % 2 == 0 for p in chosen]
        sizes, centers, labels = _stacked(points, given)
        own_rngs = [rngs[p] for p in chosen]
        swapped, run = swaps(points, centers, sizes, greedy, n_init, own_rngs)
        last = bk.remember(points.X, labels, centers)
        last = None if last is None else last.of(run)
        own = None if left is None else [left[p] for p in chosen]
        now = _lloyd(points, swapped, sizes[run], max_iter, given, left=own, last=last)
        for p, found in zip(chosen, now, strict=True):
            failed[p] = 0 if found.inertia < best[p].inertia * (1 - GAIN) else failed[p] + 1
            best[p] = found
    return best


def _lloyd(
    points: Points,
    centers: Any,
    sizes: np.ndarray,
    max_iter: int,
    given: list[KMeans],
    hope: float = HOPE,
    left: list[list[_Left]] | None = None,
    last: Any = None,
    *,
    again: bool = True,
) -> list[KMeans]:
    """Iterate all runs together; those that no longer change leave the batch.

    `centers` is (R, k, d), of which run r has sizes[r], rising; `given` has the best so far of each
    size. Returns the best of each size now. Runs without hope are given up (see HOPE). Of each
    size, `left` takes what all runs leave. `last` is what the backend remembers of where they
    started. See `_settle` for `again`.
    """
    bk, xp = points.bk, points.bk.xp
    group = np.unique(sizes, return_inverse=True)[1]  # (R,)
    inertias = np.full(sizes.size, np.inf)  # of the last iteration of each run
    best, active, before = list(given), np.arange(sizes.size), None
    total = points.sq_norms.sum()  # bounds what rounding does to an inertia
    for i in range(1, max_iter + 1):
        now = _Assignment(*bk.assign(*points[1:4], centers, sizes[active], last))
        changed = xp.ones(active.size, dtype=bool)
        if before is not None:
            changed = (now.labels != before).any(axis=1)
        state = [changed, now.inertia, (now.counts == 0).astype(np.float64).sum(axis=1)]
        state.append(xp.broadcast_to(total, now.inertia.shape))
        state = bk.to_numpy(xp.stack([x.astype(np.float64) for x in state]))  # the one sync
        changed, inertia = state[0] > 0, state[1]
        n_empty = state[2] - (centers.shape[1] - sizes[active])
        gain, inertias[active] = inertias[active] - inertia, inertia
        changed &= abs(gain) > np.finfo(np.float64).eps * state[3]  # else it was rounding
        going = changed & (i < max_iter)
        hopeless = np.zeros_like(going)
        if i >= LEAST and hope < np.inf:
            behind = _behind(inertia, group[active], best)
            hopeless = going & (behind > hope * np.maximum(gain, 0))
            going &= ~hopeless
        ended = np.flatnonzero(~going & ~hopeless)
        if ended.size and not now.exact:
            own = centers[bk.asarray(ended)], sizes[active[ended]]
            _, sq = bk.nearest_center(points.columns, points.sq_norms, *own)
            inertias[active[ended]] = bk.to_numpy(sq.sum(axis=1))  # a sync, at the end of a run
        for r in ended.tolist():
            place, k = group[active[r]], sizes[active[r]]
            if inertias[active[r]] < best[place].inertia:
                own = now.labels[r].copy(), centers[r, :k].copy(), float(inertias[active[r]])
                best[place] = KMeans(*own, i, not changed[r], [])
        for r in np.flatnonzero(~going).tolist() if left is not None else ():
            run = _Left(float(inertia[r]), centers[r, : sizes[active[r]]].copy())
            left[group[active[r]]].append(run)
        if not going.any():
            break
        for r in np.flatnonzero(going & (n_empty > 0)):
            _refill(points, now, centers, int(r), int(sizes[active[r]]))
        means = now.sums / xp.maximum(now.counts, 1)[:, :, None]
        centers = xp.where(now.counts[:, :, None] > 0, means, centers)
        before, last = now.labels, now.last
        if not going.all():
            stay, active = np.flatnonzero(going), active[going]
            last = None if last is None else last.of(stay)
            stay = bk.asarray(stay)
            centers, before = centers[stay][:, : sizes[active].max()], before[stay]
    best = _settle(points, best, given, max_iter, again)
    for p, found in enumerate(best):
        own = np.maximum(inertias[group == p], found.inertia)  # those given up have rough ones
        if found is not given[p]:
            own[np.argmin(own)] = found.inertia
        best[p] = found._replace(inertias=given[p].inertias + own.tolist())
    return best


def _behind(inertia: np.ndarray, group: np.ndarray, best: list[KMeans]) -> np.ndarray:
    """Return how far runs are behind the leader of their group, and a gain over the best so far."""
    goals = np.array([found.inertia for found in best]) * (1 - GAIN)
    np.minimum.at(goals, group, inertia)
    return inertia - goals[group]


def _settle(
    points: Points,
    best: list[KMeans],
    given: list[KMeans],
    max_iter: int,
    again: bool,  # noqa: FBT001 - a private function
) -> list[KMeans]:
    """Compute centres, labels and inertias from their definitions, of what is new among the best.

    Those that prove no better than what was given make way for it. Where this changes labels, they
    are iterated `again`, but once: what changes then, changes by rounding for ever.
    """
    bk, xp = points.bk, points.bk.xp
    new = [p for p in range(len(best)) if best[p] is not given[p]]
    if not new:
        return best
    found, best = [best[p] for p in new], list(best)
    sizes, centers, before = _stacked(points, found)
    counts, sums = bk.segment_sum(points.X, before, centers.shape[1])
    keep = xp.asarray([[not one.converged] for one in found]) | (counts == 0)
    centers = xp.where(keep[:, :, None], centers, sums / xp.maximum(counts, 1)[:, :, None])
    labels, sq = bk.nearest_center(points.columns, points.sq_norms, centers, sizes)
    state = [sq.sum(axis=1), (labels != before).any(axis=1).astype(np.float64)]
    inertias, changed = bk.to_numpy(xp.stack(state))  # a sync
    for r, (p, one) in enumerate(zip(new, found, strict=True)):
        if again and one.converged and changed[r] and one.n_iter < max_iter:
            start, rest = centers[r : r + 1, : sizes[r]], max_iter - one.n_iter
            (more,) = _lloyd(points, start, sizes[r : r + 1], rest, [NONE], again=False)
            one = more._replace(n_iter=one.n_iter + more.n_iter)
        else:
            own = labels[r], centers[r, : sizes[r]], float(inertias[r]), one.n_iter
            one = KMeans(*own, one.converged and not (again and changed[r]), [])
        best[p] = one if one.inertia < given[p].inertia else given[p]
    return best


def _stacked(points: Points, found: list[KMeans]) -> tuple[np.ndarray, Any, Any]:
    """Return the numbers of clusters (P,), the centres (P, k, d) and the labels (P, m)."""
    xp, sizes = points.bk.xp, np.array([one.centers.shape[0] for one in found])
    centers = xp.zeros((sizes.size, sizes.max(), points.X.shape[1]))
    for p, one in enumerate(found):
        centers[p, : sizes[p]] = one.centers
    return sizes, centers, xp.stack([one.labels for one in found])


def _refill(points: Points, now: _Assignment, centers: Any, r: int, k: int) -> None:
    """Give each empty cluster of run r the farthest row, taken from its own cluster."""
    X, xp = points.X, points.bk.xp
    own = centers[r : r + 1], np.array([k])
    sq = points.bk.nearest_center(points.columns, points.sq_norms, *own)[1][0]
    empty = xp.flatnonzero(now.counts[r, :k] == 0).tolist()
    for c in empty:
        far = int(xp.argmax(sq))
        donor = int(now.labels[r, far])
        center = centers[r, donor]
        rounding = 32 * np.finfo(np.float64).eps * float(points.sq_norms[far] + center @ center)
        if not float(sq[far]) > rounding:
            return  # every row sits on a centre, up to rounding: too few distinct rows
        now.counts[r, donor] -= 1
        now.sums[r, donor] -= X[far]
        now.counts[r, c] = 1
        now.sums[r, c] = X[far]
        now.labels[r, far] = c
        if now.last is not None:
            now.last.relabelled(r, far)
        sq[far] = 0
        if not float(now.counts[r, donor]) > 0:
            empty.append(donor)


def _without_empty(points: Points, found: list[KMeans]) -> list[KMeans]:
    """Drop clusters without members, and number the others from 0."""
    bk, k = points.bk, max(one.centers.shape[0] for one in found)
    labels = bk.xp.stack([one.labels for one in found])
    counts = bk.to_numpy(bk.segment_sum(points.X[:, :1], labels, k)[0])  # a sync
    for p, one in enumerate(found):
        used = np.flatnonzero(counts[p])
        if used.size < one.centers.shape[0]:
            number = bk.asarray(np.cumsum(counts[p] > 0, dtype=np.int32) - np.int32(1))
            kept = one.centers[bk.asarray(used)]
            found[p] = one._replace(labels=number[one.labels], centers=kept)
    return found


def warn_of_shortcomings(found: KMeans, k: int, max_iter: int = 300) -> None:
    """Warn where k-means did not converge, or found fewer than k clusters."""
    if not found.converged:
        warnings.warn(
            f"k-means with n_clusters={k} stopped at max_iter={max_iter} with "
            f"{found.centers.shape[0]} clusters: its labels still change.",
            ConvergenceWarning,
            stacklevel=4,
        )
    elif found.centers.shape[0] < k:
        warnings.warn(
            f"k-means found {found.centers.shape[0]} clusters where n_clusters={k} were asked "
            "for: the data have too few distinct rows, up to rounding.",
            ConvergenceWarning,
            stacklevel=4,
        )
