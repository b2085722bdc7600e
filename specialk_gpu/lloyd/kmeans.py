"""k-means with all restarts, and several numbers of clusters, in one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from specialk_gpu._warn import warn
from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.lloyd.iterations import GAIN, HOPE, Found, Left, lloyd
from specialk_gpu.lloyd.seeding import (
    Points,
    distinct,
    joined,
    padded,
    plus_plus,
    points_of,
    starting_centers,
    swaps,
    uploaded,
)

__all__ = ["KMeans", "kmeans", "kmeans_batch", "warn_of_shortcomings"]

PATIENCE = 2  # rounds of swaps without gain
SAMPLE_ROWS = 2**13  # that are searched first
MANY = 4  # times as many rows, from which on that pays
SAMPLE_CLUSTERS = 64  # at most
SAMPLE_PATIENCE = 7
FAR = 2  # times fewer starts from all rows, beside those from a sample
MORE = 2  # clusterings of a sample, beside `n_init`, to go on from with all rows
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
    seven rounds have failed; the best `n_init` + 2 clusterings that it leaves, and `n_init` / 2
    starts from all rows, are where iterations with all rows begin, and then swaps, until a round
    has failed. n_init=1 does without groups, swaps and sample.

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
    X, init, shift, unit = _centred(bk, X, init)
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
        parts.insert(0, (init, np.repeat(ks, len(init))))
    starts, sizes = joined(bk, parts)
    patience = 1 if many else PATIENCE
    hope = HOPE if init is None else np.inf
    best, inertias = lloyd(points, starts, sizes, max_iter, hope=hope)
    _improved(points, best, inertias, n_init, rngs, max_iter, patience)
    return _results(points, best, inertias, shift, unit)


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
    if max_iter < 1:
        msg = f"max_iter must be at least 1, got {max_iter}."
        raise ValueError(msg)


def _centred(bk: ModuleType, X: Any, init: Any) -> tuple[Any, Any, Any, float]:
    """Return X and starts less a shift, in a unit in which squares do not underflow, and both.

    Far from the origin, |x|² - 2xc + |c|² cancels. The shift is a multiple of a power of two, so
    that small integers stay exact, and the unit is one.
    """
    xp, X = bk.xp, X.astype(np.float64, copy=False)
    high, low = X.max(axis=0), X.min(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # of what is refused
        spread = high - low
    sizes = [xp.maximum(high.max(), -low.min()), spread.max()]
    sizes += [] if init is None or not init.size else [abs(init).max()]
    largest, widest, *largest_start = bk.to_numpy(xp.stack(sizes)).tolist()  # a sync
    if any(not start < MAX_ENTRY for start in largest_start):
        msg = f"init must be finite and below {MAX_ENTRY:g} in magnitude."
        raise ValueError(msg)
    if not largest < MAX_ENTRY:
        msg = f"X must be finite and below {MAX_ENTRY:g} in magnitude, got {largest}."
        raise ValueError(msg)
    spread = 2.0 ** xp.floor(xp.log2(xp.where(spread > 0, spread, 1)))
    shift = xp.rint(X.mean(axis=0) / spread) * spread
    unit = 1.0 if not 0 < widest < TINY else 2.0 ** math.frexp(widest)[1]
    if init is not None:
        init = xp.clip((init - shift) / unit, -MAX_ENTRY, MAX_ENTRY)  # farther is no different
    return xp.ascontiguousarray((X - shift) / unit), init, shift, unit


def _candidates(
    sample: Points,
    ks: Sequence[int],
    n_init: int,
    rngs: list[Any],
    group_rng: Any,
    max_iter: int,
) -> tuple[Any, np.ndarray]:
    """Search a sample of the rows; return promising centres (R, max k, d) and their sizes (R,)."""
    left: list[list[Left]] = [[] for _ in ks]
    starts, sizes = starting_centers(sample, ks, n_init, rngs, group_rng)
    best, inertias = lloyd(sample, starts, sizes, max_iter, left=left)
    _improved(sample, best, inertias, n_init, rngs, max_iter, SAMPLE_PATIENCE, left)
    chosen, n_runs = [], []
    for runs in left:
        places = distinct(np.array([run.inertia for run in runs]), n_init + MORE)
        chosen += [runs[place] for place in places]
        n_runs.append(len(places))
    batches = list({id(run.centers): run.centers for run in chosen}.values())
    first = dict(zip(map(id, batches), np.cumsum([0, *map(len, batches)]).tolist(), strict=False))
    rows = np.array([first[id(run.centers)] + run.run for run in chosen])
    starts = padded(sample.bk, batches, ks[-1])[sample.bk.asarray(rows)]
    return starts, np.repeat(ks, n_runs)


def _improved(
    points: Points,
    best: Found,
    inertias: list[list[float]],
    n_init: int,
    rngs: list[Any],
    max_iter: int,
    patience: int,
    left: list[list[Left]] | None = None,
) -> None:
    """Swap centres of the best of each size until `patience` rounds have failed to lower it.

    Changes `best`, and adds to the inertias of each size.
    """
    bk, sizes = points.bk, best.sizes
    failed = np.where((sizes >= 2) & (n_init > 1), 0, patience)
    while (chosen := np.flatnonzero((failed < patience) & (best.inertia > 0))).size:
        centers, labels = best.centers[:, : sizes[chosen[-1]]], best.labels
        if chosen.size < sizes.size:
            own = bk.asarray(chosen)
            centers, labels = centers[own], labels[own]
        greedy, own_rngs = (failed[chosen] % 2 == 0).tolist(), [rngs[p] for p in chosen]
        swapped, run = swaps(points, centers, sizes[chosen], greedy, n_init, own_rngs)
        last = bk.remember(points.X, labels, centers)
        last = None if last is None else last.of(run)
        own = None if left is None else [left[p] for p in chosen]
        goals = best.inertia[chosen]
        now, found = lloyd(
            points, swapped, sizes[chosen][run], max_iter, goals, left=own, last=last
        )
        for p, some in zip(chosen.tolist(), found, strict=True):
            inertias[p] += some
        failed[chosen] += 1
        if not now.sizes.size:
            continue
        place = np.searchsorted(sizes, now.sizes)
        failed[place[now.inertia < best.inertia[place] * (1 - GAIN)]] = 0
        own = bk.asarray(place)
        slots = slice(now.centers.shape[1])
        best.labels[own], best.centers[own, slots] = now.labels, now.centers
        best.used[place, slots] = now.used
        for mine, new in zip(best[4:], now[4:], strict=True):
            mine[place] = new


def _results(
    points: Points, best: Found, inertias: list[list[float]], shift: Any, unit: float
) -> list[KMeans]:
    """Return the clusterings of the rows that were given, from those of centred rows.

    Clusters without members are dropped, and the others numbered from 0.
    """
    bk, (n, k) = points.bk, best.centers.shape[:2]
    labels, centers, used = best.labels, best.centers * unit + shift, best.used
    sizes = used.sum(axis=1)
    if (sizes < best.sizes).any():
        offsets = k * np.arange(n)
        order = np.argsort(~used, axis=1, kind="stable") + offsets[:, None]
        number = used.cumsum(axis=1) - 1
        order, number, offsets = uploaded(bk, order.ravel(), number.ravel(), offsets)
        labels = number.astype(np.int32)[labels + offsets[:, None]]
        centers = centers.reshape(n * k, -1)[order].reshape(centers.shape)
    found = []
    for p, size in enumerate(sizes.tolist()):
        own = labels[p], centers[p, :size], float(best.inertia[p]) * unit**2, int(best.n_iter[p])
        all_own = [inertia * unit**2 for inertia in inertias[p]]
        found.append(KMeans(*own, bool(best.converged[p]), all_own))
    return found


def warn_of_shortcomings(found: KMeans, k: int, max_iter: int = 300) -> None:
    """Warn where k-means did not converge, or found fewer than k clusters."""
    if not found.converged:
        warn(
            f"k-means with n_clusters={k} stopped at max_iter={max_iter} with "
            f"{found.centers.shape[0]} clusters: its labels still change.",
            ConvergenceWarning,
        )
    elif found.centers.shape[0] < k:
        warn(
            f"k-means found {found.centers.shape[0]} clusters where n_clusters={k} were asked "
            "for: the data have too few distinct rows, up to rounding.",
            ConvergenceWarning,
        )
