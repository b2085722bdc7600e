"""k-means with all restarts, and several numbers of clusters, in one batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from specialk_gpu.backend import backend_of, on_its_device

__all__ = ["KMeans", "kmeans", "kmeans_batch", "warn_of_shortcomings"]

KEPT = {3: 5, 6: 3, 12: 1}  # by iteration; runs still behind the best so many are given up
PATIENCE = 3  # rounds of swaps without gain
MAX_ENTRY = 1e150  # sums of squares of larger ones may overflow


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
        Whether the best restart ended with labels that no iteration changes.
    inertias : list of float
        Of all restarts, and of the swaps after them, as far as each was followed.
    """

    labels: Any
    centers: Any
    inertia: float
    n_iter: int
    converged: bool
    inertias: list[float]


class _Points(NamedTuple):
    """The rows to cluster, and what is known of them."""

    bk: ModuleType
    X: Any  # (m, d)
    columns: Any  # (m, d), in the order that `nearest_center` reads fastest
    sq_norms: Any  # (m,)


class _Assignment(NamedTuple):
    """The nearest centre of every row, for every run, and what follows from it."""

    labels: Any  # (R, m) int32
    inertia: Any  # (R,)
    counts: Any  # (R, k)
    sums: Any  # (R, k, d)
    last: list[Any]  # of length R, what the backend remembers
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
    go to the smaller label. Iterates until no label changes; of several restarts, those behind
    the best after 3, 6 and 12 iterations are given up. Then swaps one centre of the best
    for a new row in `n_init` ways, as one batch, until that has failed thrice to lower the inertia
    (Fränti, Efficiency of random swap clustering, 2018); n_init=1 does without.

    Parameters
    ----------
    X : array-like of shape (m, d)
        In NumPy or CuPy, real and finite; computed with in float64, near the origin.
    n_clusters : int
        1 <= k <= m.
    n_init : int
        Restarts from k-means++, run as one batch.
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
        If an argument is out of range, or X is not finite.

    Notes
    -----
    An iteration costs at most 2 m R k d operations in matrix products, on the host fewer as the
    centres come to rest, and synchronises with the device once. Memory:
    O(m R) beside a chunk.
    """
    settings = {"n_init": n_init, "init": init, "max_iter": max_iter}
    (found,) = kmeans_batch(X, [n_clusters], seeds=[random_state], **settings)
    warn_of_shortcomings(found, n_clusters, max_iter)
    return found


def kmeans_batch(
    X: Any,
    ks: Sequence[int],
    *,
    seeds: Sequence[Any],
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
        Rising. The result for one does not depend on the others.
    seeds : sequence of int or RandomState
        One for each k.
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
    _check_arguments(xp, X, ks[-1], n_init, init, max_iter)
    X, shift = _centred(xp, X)
    points = _Points(bk, X, xp.asarray(X, order=bk.center_order), (X * X).sum(axis=1))
    rngs = [check_random_state(seed) for seed in seeds]
    starts = [] if init is None else [init - shift]
    if n_init:
        starts.append(_plus_plus(points, ks, n_init, rngs))
    sizes = np.repeat(ks, sum(len(some) for some in starts) // len(ks))
    kept = KEPT if init is None else {}
    best = _lloyd(points, xp.concatenate(starts), sizes, max_iter, kept)
    failed = [0 if k >= 2 and n_init > 1 else PATIENCE for k in ks]  # rounds of swaps
    while chosen := [p for p in range(len(ks)) if failed[p] < PATIENCE and best[p].inertia > 0]:
        swapped = _swaps(points, [best[p] for p in chosen], n_init, [rngs[p] for p in chosen])
        sizes = np.repeat([ks[p] for p in chosen], n_init)
        swapped = _lloyd(points, swapped, sizes, max_iter, KEPT)
        for p, found in zip(chosen, swapped, strict=True):
            inertias = best[p].inertias + found.inertias
            failed[p] = 0 if found.inertia < best[p].inertia * (1 - 1e-5) else failed[p] + 1
            better = found if found.inertia < best[p].inertia else best[p]
            best[p] = better._replace(inertias=inertias)
    return [one._replace(centers=one.centers + shift) for one in _without_empty(points, best)]


def _check_arguments(
    xp: Any, X: Any, n_clusters: int, n_init: int, init: Any, max_iter: int
) -> None:
    if X.ndim != 2 or X.shape[1] < 1:
        msg = f"X must have rows and columns, got shape {X.shape}."
        raise ValueError(msg)
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
    if init is not None and not bool(xp.isfinite(init).all()):
        msg = "init must be finite."
        raise ValueError(msg)
    if max_iter < 1:
        msg = f"max_iter must be at least 1, got {max_iter}."
        raise ValueError(msg)


def _centred(xp: Any, X: Any) -> tuple[Any, Any]:
    """Return X less a shift, and the shift; far from the origin, |x|² - 2xc + |c|² cancels.

    The shift is a multiple of a power of two, so that small integers stay exact.
    """
    X = X.astype(np.float64, copy=False)
    largest = float(xp.maximum(X.max(), -X.min()))  # a sync
    if not largest < MAX_ENTRY:
        msg = f"X must be finite and below {MAX_ENTRY:g} in magnitude, got {largest}."
        raise ValueError(msg)
    unit = xp.ptp(X, axis=0)
    unit = 2.0 ** xp.floor(xp.log2(xp.where(unit > 0, unit, 1)))
    shift = xp.rint(X.mean(axis=0) / unit) * unit
    return X - shift, shift


def _plus_plus(points: _Points, ks: Sequence[int], n_init: int, rngs: list[Any]) -> Any:
    """Draw `n_init` sets of k starting centres for each k: (len(ks) n_init, max k, d)."""
    bk, xp = points.bk, points.bk.xp
    sizes = np.repeat(ks, n_init)
    chosen = xp.zeros((sizes.size, ks[-1]), dtype=np.int64)
    first = [rng.randint(points.X.shape[0], size=n_init) for rng in rngs]
    chosen[:, 0] = bk.asarray(np.concatenate(first))
    draws = bk.asarray(_draws(ks, [k - 1 for k in ks], n_init, rngs))
    nearest = _sq_distances(points, chosen[:, 0])  # (R, m)
    for c in range(1, ks[-1]):
        place = int(np.searchsorted(sizes, c, side="right"))  # the runs from here on need more
        nearest = nearest[nearest.shape[0] - sizes.size + place :]
        chosen[place:, c], nearest = _draw(points, nearest, draws[c - 1, place:])
    return points.X[chosen]


def _draws(ks: Sequence[int], rounds: Sequence[int], n_init: int, rngs: list[Any]) -> np.ndarray:
    """Return numbers in [0, 1) for several candidates a round and run: (rounds, R, trials).

    A smaller k has fewer candidates: its last is repeated.
    """
    trials = [2 + int(math.log(k)) for k in ks]
    draws = np.zeros((max(rounds), len(ks), n_init, max(trials)))
    for p, rng in enumerate(rngs):
        own = rng.random_sample((rounds[p], n_init, trials[p]))
        draws[: rounds[p], p] = np.pad(own, [(0, 0), (0, 0), (0, max(trials) - trials[p])], "edge")
    return draws.reshape(max(rounds), len(ks) * n_init, max(trials))


def _draw(points: _Points, nearest: Any, draws: Any) -> tuple[Any, Any]:
    """Draw one more centre for each run: the best of several, by squared distance.

    `nearest` (R, m) holds squared distances to the centres there are, `draws` (R, trials)
    numbers in [0, 1). Returns the rows (R,) and the new distances.
    """
    xp = points.bk.xp
    trial = points.bk.draw_rows(nearest, draws)
    candidate = _sq_distances(points, trial.ravel()).reshape(*trial.shape, -1)
    xp.minimum(candidate, nearest[:, None, :], out=candidate)
    best = xp.argmin(candidate.sum(axis=2), axis=1)
    run = xp.arange(trial.shape[0])
    return trial[run, best], candidate[run, best]


def _swaps(points: _Points, best: list[KMeans], n_init: int, rngs: list[Any]) -> Any:
    """Replace one centre in each of `n_init` copies by a row drawn as in k-means++."""
    bk, xp = points.bk, points.bk.xp
    ks = [found.centers.shape[0] for found in best]
    sizes = np.repeat(ks, n_init)
    centers = xp.zeros((sizes.size, ks[-1], points.X.shape[1]))
    for p, (k, rng) in enumerate(zip(ks, rngs, strict=True)):
        removed = np.concatenate([rng.permutation(k) for _ in range(-(-n_init // k))])[:n_init]
        kept = bk.asarray(np.stack([np.delete(np.arange(k), c) for c in removed]))  # (n_init, k-1)
        centers[p * n_init : (p + 1) * n_init, : k - 1] = best[p].centers[kept]
    draws = bk.asarray(_draws(ks, [1] * len(ks), n_init, rngs)[0])
    _, nearest = bk.nearest_center(points.columns, points.sq_norms, centers, sizes - 1)
    rows, _ = _draw(points, nearest, draws)
    centers[xp.arange(sizes.size), bk.asarray(sizes - 1)] = points.X[rows]
    return centers


def _sq_distances(points: _Points, rows: Any) -> Any:
    """Return the squared distances of all rows to some rows: (r, m)."""
    centers, sizes = points.X[rows][:, None, :], np.ones(rows.size, dtype=np.int64)
    _, sq = points.bk.nearest_center(points.columns, points.sq_norms, centers, sizes)
    sq[points.bk.xp.arange(rows.size), rows] = 0
    return sq


def _lloyd(
    points: _Points, centers: Any, sizes: np.ndarray, max_iter: int, kept: dict[int, int]
) -> list[KMeans]:
    """Iterate all runs together; those that no longer change leave the batch.

    `centers` is (R, k, d), of which run r has sizes[r], rising. Returns the best run of each
    size. After iteration i all but the best kept[i] of a size are given up.
    """
    bk, xp = points.bk, points.bk.xp
    group = np.unique(sizes, return_inverse=True)[1]  # (R,)
    inertias = np.full(sizes.size, np.inf)
    best = [KMeans(None, None, np.inf, 0, converged=False, inertias=[])] * (group[-1] + 1)
    active, before, last = np.arange(sizes.size), None, [None] * sizes.size
    for i in range(1, max_iter + 1):
        now = _Assignment(*bk.assign(*points[1:], centers, sizes[active], last))
        changed = xp.ones(active.size, dtype=bool)
        if before is not None:
            changed = xp.abs(now.labels - before).max(axis=1)
        state = [changed, now.inertia, (now.counts == 0).astype(np.float64).sum(axis=1)]
        state = bk.to_numpy(xp.stack([x.astype(np.float64) for x in state]))  # the one sync
        changed, inertia = state[0] > 0, state[1]
        n_empty = state[2] - (centers.shape[1] - sizes[active])
        going = changed & (i < max_iter)
        hopeless = np.zeros_like(going)
        if i in kept:
            hopeless = _hopeless(inertia, going, group[active], kept[i])
            going &= ~hopeless
        ended = np.flatnonzero(~going & ~hopeless)
        if ended.size and not now.exact:
            given = centers[bk.asarray(ended)], sizes[active[ended]]
            _, sq = bk.nearest_center(points.columns, points.sq_norms, *given)
            inertia[ended] = bk.to_numpy(sq.sum(axis=1))  # a sync, at the end of a run
        for r in np.flatnonzero(~going):
            inertias[active[r]] = inertia[r]
            if inertia[r] < best[group[active[r]]].inertia and not hopeless[r]:
                k = sizes[active[r]]
                own = now.labels[r].copy(), centers[r, :k].copy(), float(inertia[r])
                best[group[active[r]]] = KMeans(*own, i, not changed[r], [])
        if not going.any():
            break
        for r in np.flatnonzero(going & (n_empty > 0)):
            _refill(points, now, centers, int(r), int(sizes[active[r]]))
        means = now.sums / xp.maximum(now.counts, 1)[:, :, None]
        centers = xp.where(now.counts[:, :, None] > 0, means, centers)
        before, last = now.labels, now.last
        if not going.all():
            stay, active = bk.asarray(np.flatnonzero(going)), active[going]
            centers, before = centers[stay][:, : sizes[active].max()], before[stay]
            last = [last[r] for r in np.flatnonzero(going)]
    best = _settle(points, best, max_iter)
    for p, found in enumerate(best):
        own = np.maximum(inertias[group == p], found.inertia)  # those given up have rough ones
        own[np.argmin(own)] = found.inertia
        best[p] = found._replace(inertias=own.tolist())
    return best


def _settle(points: _Points, best: list[KMeans], max_iter: int) -> list[KMeans]:
    """Compute centres, labels and inertias from their definitions, of one run of each size."""
    bk, xp = points.bk, points.bk.xp
    sizes = np.array([found.centers.shape[0] for found in best])
    centers = xp.zeros((sizes.size, sizes.max(), points.X.shape[1]))
    before = xp.stack([found.labels for found in best])
    counts, sums = bk.segment_sum(points.X, before, centers.shape[1])
    for p, found in enumerate(best):
        centers[p, : sizes[p]] = found.centers
    keep = xp.asarray([[not found.converged] for found in best]) | (counts == 0)
    centers = xp.where(keep[:, :, None], centers, sums / xp.maximum(counts, 1)[:, :, None])
    labels, sq = bk.nearest_center(points.columns, points.sq_norms, centers, sizes)
    state = [sq.sum(axis=1), xp.abs(labels - before).max(axis=1).astype(np.float64)]
    inertias, changed = bk.to_numpy(xp.stack(state))  # a sync
    for p, found in enumerate(best):
        if found.converged and changed[p] and found.n_iter < max_iter:
            start, rest = centers[p : p + 1, : sizes[p]], max_iter - found.n_iter
            (again,) = _lloyd(points, start, sizes[p : p + 1], rest, {})
            best[p] = again._replace(n_iter=found.n_iter + again.n_iter)
        else:
            own = labels[p], centers[p, : sizes[p]], float(inertias[p]), found.n_iter
            best[p] = KMeans(*own, found.converged and not changed[p], [])
    return best


def _hopeless(inertia: np.ndarray, going: np.ndarray, group: np.ndarray, n: int) -> np.ndarray:
    """Say which of the runs still going are behind the best n of their group."""
    hopeless = np.zeros_like(going)
    for p in np.unique(group[going]):
        own = going & (group == p)
        if own.sum() > n:
            hopeless |= own & (inertia > np.sort(inertia[own])[n - 1])
    return hopeless


def _refill(points: _Points, now: _Assignment, centers: Any, r: int, k: int) -> None:
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
        now.last[r] = None
        sq[far] = 0
        if not float(now.counts[r, donor]) > 0:
            empty.append(donor)


def _without_empty(points: _Points, found: list[KMeans]) -> list[KMeans]:
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
            "for: the data have too few distinct rows.",
            ConvergenceWarning,
            stacklevel=4,
        )
