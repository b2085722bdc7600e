"""k-means with all restarts, and several numbers of clusters, in one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from specialk_gpu._checks import checked_integer
from specialk_gpu._warnings import warn
from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.typing import Array, Backend, Seed
from specialk_gpu.lloyd.points import Points, kmeans_points
from specialk_gpu.lloyd.runs import GAIN, GIVE_UP, BestRuns, EndedRun, lloyd_runs
from specialk_gpu.lloyd.seeding import (
    distinct_starts,
    joined_starts,
    kmeans_plus_plus,
    padded_starts,
    starting_centers,
    swap_starting_centers,
    upload_together,
)

__all__ = ["KMeans", "kmeans", "kmeans_batch", "warn_of_kmeans_shortcomings"]

IDLE_ROUNDS = 2  # rounds of swaps without a gain, after which the search stops
SAMPLE_ROWS = 2**13  # rows of the sample that is searched first
MANY = 4  # the sample pays if there are more than this many times its rows
SAMPLE_CLUSTERS = 64  # the sample is used for at most this many clusters
IDLE_ROUNDS_IN_SAMPLE = 7  # `IDLE_ROUNDS` in the sample
FAR = 2  # in addition to the starts from the sample, `n_init` / FAR starts come from all rows
MORE = 2  # the best `n_init` + MORE clusterings of the sample go on with all rows
MAX_ENTRY = 1e150  # sums of squares of larger entries may overflow
TINY = 1e-100  # squares of smaller differences lose digits, or vanish


class KMeans(NamedTuple):
    """The result of k-means.

    Attributes
    ----------
    labels : int32 array of shape (m,)
        From 0 to k - 1.
    centers : float64 array of shape (k, d)
    inertia : float
        Sum of the squared distances of the rows to their nearest centres.
    n_iter : int
        Iterations of the best restart.
    converged : bool
        Whether the best restart ended with labels that only rounding could still change.
    inertias : list of float
        Inertias of all restarts, and of the swaps after them, as far as each was followed.
    """

    labels: Array
    centers: Array
    inertia: float
    n_iter: int
    converged: bool
    inertias: list[float]


@on_its_device
def kmeans(
    X: ArrayLike,
    n_clusters: int,
    *,
    n_init: int = 10,
    init: Array | None = None,
    max_iter: int = 300,
    random_state: Seed = None,
) -> KMeans:
    """Cluster the rows of X by Lloyd's algorithm and return the best of several restarts.

    Starting centres come from greedy k-means++ (Arthur & Vassilvitskii 2007), with random numbers
    drawn on the host. Iterations run until no label changes. At equal distances, a row gets the
    smaller label. An empty cluster takes the row that is farthest from its nearest centre. A
    restart is given up once it is behind the best by more than three times the gain of its last
    iteration.

    Rounds of swaps follow. In a swap, a row replaces one centre of the best clustering. Each round
    picks the `n_init` / 3 most promising swaps and iterates from them in one batch. The search
    stops once two rounds have failed to lower the inertia (after Fränti, Efficiency of random swap
    clustering, 2018, and Lattanzi & Sohler, A better k-means++ algorithm via local search, 2019).

    For few clusters, some starts come from groups. The rows are put into 48 groups, and the groups
    are clustered 6 `n_init` times by their means and sizes. The best `n_init` / 3 of these
    clusterings join `n_init` / 3 restarts. This holds for k up to a quarter of the number of
    groups; a larger k has `n_init` restarts.

    If there are more than 32,768 rows and k is at most 64, a sample of 8,192 rows is first
    searched in this way, until seven rounds have failed. Iterations with all rows then begin from
    the best `n_init` + 2 clusterings of the sample and from `n_init` / 2 starts from all rows.
    Swaps follow until one round has failed. n_init=1 uses no groups, no swaps and no sample.

    Parameters
    ----------
    X : array-like of shape (m, d)
        From NumPy or CuPy, real and finite. Computations use float64, near the origin.
    n_clusters : int
        The number of clusters k, from 1 to m.
    n_init : int
        Number of restarts, run as one batch, and of rows drawn for a round of swaps.
    init : array of shape (r, k, d), optional
        Additional starting centres, run in the same batch. With them, no restart is given up.
    max_iter : int
        Limit on the iterations of each restart.
    random_state : int, RandomState or None
        Seeds the starting centres and the swaps, on the host.

    Returns
    -------
    KMeans
        The result of the restart with the lowest inertia. If X has fewer distinct rows than
        `n_clusters`, there are fewer clusters, and a ConvergenceWarning says so.

    Raises
    ------
    ValueError
        If an argument is out of range, or X is not real and finite.
    TypeError
        If a number that must be an integer is not one.

    Notes
    -----
    With R runs in the batch, an iteration costs at most 2 m R k d operations in matrix products,
    and waits for the device once. On the host, the cost falls as the centres come to rest. Memory
    is O(m R), in addition to a chunk.

    Examples
    --------
    >>> import numpy as np
    >>> from specialk_gpu import kmeans
    >>> fit = kmeans(np.array([[0.0], [1.0], [10.0], [11.0]]), 2, random_state=0)
    >>> fit.labels.tolist(), float(fit.inertia)
    ([1, 1, 0, 0], 1.0)
    """
    rng = check_random_state(random_state)
    settings: dict[str, Any] = {"n_init": n_init, "init": init, "max_iter": max_iter}
    (found,) = kmeans_batch(X, [n_clusters], seeds=[rng], sample_seed=rng, **settings)
    warn_of_kmeans_shortcomings(found, n_clusters, max_iter)
    return found


def kmeans_batch(
    X: ArrayLike,
    ks: Sequence[int],
    *,
    seeds: Sequence[Seed],
    sample_seed: Seed = 0,
    n_init: int = 10,
    init: Array | None = None,
    max_iter: int = 300,
    overwrite: bool = False,
) -> list[KMeans]:
    """Cluster the rows of X into each of several numbers of clusters, as `kmeans` does for one.

    Parameters
    ----------
    X, n_init, max_iter
        See `kmeans`.
    ks : sequence of int
        Ascending numbers of clusters. Apart from rounding, the result for one does not depend on
        the others.
    seeds : sequence of int or RandomState
        One for each k.
    sample_seed : int or RandomState
        Seed of the sample of many rows and of the groups, which are the same for every k.
    init : array of shape (r, k, d), optional
        See `kmeans`. Only for a single k.
    overwrite : bool
        Whether X may be overwritten, if it is of float64; this saves a copy.

    Returns
    -------
    list of KMeans
        One for each k. If X has fewer than k distinct rows, it has fewer clusters, and there is
        no warning.
    """
    bk = backend_of(X)
    X = bk.asarray(X)
    xp = bk.xp
    init = None if init is None else xp.asarray(init, dtype=np.float64)
    ks = list(ks)
    if not ks or ks != sorted(set(ks)):
        msg = f"ks must be ascending numbers of clusters, got {ks}."
        raise ValueError(msg)
    if len(seeds) != len(ks):
        msg = f"seeds must have one entry for each of {len(ks)} values in ks, got {len(seeds)}."
        raise ValueError(msg)
    ks = [checked_integer("n_clusters", k, 1, X.shape[0], "the number of rows") for k in ks]
    n_init = checked_integer("n_init", n_init, 1 if init is None or not len(init) else 0)
    max_iter = checked_integer("max_iter", max_iter, 1)
    for k in ks:
        _check_kmeans_arguments(X, k, init)
    many = X.shape[0] > MANY * SAMPLE_ROWS and init is None and n_init > 1
    n_small = sum(k <= SAMPLE_CLUSTERS for k in ks)
    if many and 0 < n_small < len(ks):  # only some are searched in a sample
        settings: dict[str, Any] = {
            "sample_seed": sample_seed,
            "n_init": n_init,
            "max_iter": max_iter,
        }
        few = kmeans_batch(X, ks[:n_small], seeds=seeds[:n_small], **settings)
        return few + kmeans_batch(X, ks[n_small:], seeds=seeds[n_small:], **settings)
    many = many and n_small > 0
    X, init, shift, unit = _centred_for_kmeans(bk, X, init, overwrite=overwrite)
    points = kmeans_points(bk, X)
    rngs, shared_rng = [check_random_state(seed) for seed in seeds], check_random_state(sample_seed)
    parts = []
    if many:
        sample = shared_rng.permutation(X.shape[0])[:SAMPLE_ROWS]
        sample = kmeans_points(bk, X[bk.asarray(np.sort(sample))])
        parts.append(_kmeans_candidates(sample, ks, n_init, rngs, shared_rng, max_iter))
        parts.append(
            kmeans_plus_plus(points, ks, -(-n_init // FAR), rngs)
        )  # a sample has no rare rows
    elif n_init:
        parts.append(starting_centers(points, ks, n_init, rngs, shared_rng))
    if init is not None:
        parts.insert(0, (init, np.repeat(ks, len(init))))
    starts, sizes = joined_starts(bk, parts)
    idle_rounds = 1 if many else IDLE_ROUNDS
    give_up = GIVE_UP if init is None else np.inf
    best, inertias = lloyd_runs(points, starts, sizes, max_iter, give_up=give_up)
    _improved_kmeans(points, best, inertias, n_init, rngs, max_iter, idle_rounds)
    return _kmeans_results(points, best, inertias, shift, unit)


def _check_kmeans_arguments(X: Array, n_clusters: int, init: Array | None) -> None:
    if X.ndim != 2 or X.shape[1] < 1:
        msg = f"X must have rows and columns, got shape {X.shape}."
        raise ValueError(msg)
    if X.dtype.kind not in "biuf":
        msg = f"X must hold real numbers, got {X.dtype}."
        raise ValueError(msg)
    if init is not None and tuple(init.shape[1:]) != (n_clusters, X.shape[1]):
        msg = f"init must have shape (r, {n_clusters}, {X.shape[1]}), got {tuple(init.shape)}."
        raise ValueError(msg)


def _centred_for_kmeans(
    bk: Backend, X: Array, init: Array | None, *, overwrite: bool = False
) -> tuple[Array, Array | None, Array, float]:
    """Shift and scale X and `init`; return them with the shift and the unit. It may overwrite X.

    Far from the origin, |x|² - 2xc + |c|² cancels. The shift is a multiple of a power of two, so
    that small integers stay exact. The unit is a power of two in which squares do not underflow.
    """
    xp, given = bk.xp, X
    X = X.astype(np.float64, copy=False)
    high, low = X.max(axis=0), X.min(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        spread = high - low
    sizes = [xp.maximum(high.max(), -low.min()), spread.max()]
    sizes += [] if init is None or not init.size else [abs(init).max()]
    largest, widest, *largest_start = bk.to_numpy(xp.stack(sizes)).tolist()  # host waits
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
        init = xp.clip((init - shift) / unit, -MAX_ENTRY, MAX_ENTRY)  # farther is the same
    X = xp.subtract(X, shift, out=X if overwrite or X is not given else None)
    X /= unit
    return xp.ascontiguousarray(X), init, shift, unit


def _kmeans_candidates(
    sample: Points,
    ks: Sequence[int],
    n_init: int,
    rngs: list[RandomState],
    group_rng: RandomState,
    max_iter: int,
) -> tuple[Array, np.ndarray]:
    """Search a sample of the rows; return promising centres (R, max k, d) and their sizes (R,)."""
    left: list[list[EndedRun]] = [[] for _ in ks]
    starts, sizes = starting_centers(sample, ks, n_init, rngs, group_rng)
    best, inertias = lloyd_runs(sample, starts, sizes, max_iter, left=left)
    _improved_kmeans(sample, best, inertias, n_init, rngs, max_iter, IDLE_ROUNDS_IN_SAMPLE, left)
    chosen, n_runs = [], []
    for runs in left:
        places = distinct_starts(np.array([run.inertia for run in runs]), n_init + MORE)
        chosen += [runs[place] for place in places]
        n_runs.append(len(places))
    batches = list({id(run.centers): run.centers for run in chosen}.values())
    first = dict(zip(map(id, batches), np.cumsum([0, *map(len, batches)]).tolist(), strict=False))
    rows = np.array([first[id(run.centers)] + run.run for run in chosen])
    starts = padded_starts(sample.bk, batches, ks[-1])[sample.bk.asarray(rows)]
    return starts, np.repeat(ks, n_runs)


def _improved_kmeans(
    points: Points,
    best: BestRuns,
    inertias: list[list[float]],
    n_init: int,
    rngs: list[RandomState],
    max_iter: int,
    idle_rounds: int,
    left: list[list[EndedRun]] | None = None,
) -> None:
    """Swap centres of the best clustering of each size, until `idle_rounds` rounds bring no gain.

    Changes `best`, and appends to the `inertias` of each size.
    """
    bk, sizes = points.bk, best.sizes
    failed = np.where((sizes >= 2) & (n_init > 1), 0, idle_rounds)
    while (chosen := np.flatnonzero((failed < idle_rounds) & (best.inertia > 0))).size:
        centers, labels = best.centers[:, : sizes[chosen[-1]]], best.labels
        if chosen.size < sizes.size:
            own = bk.asarray(chosen)
            centers, labels = centers[own], labels[own]
        greedy, own_rngs = (failed[chosen] % 2 == 0).tolist(), [rngs[p] for p in chosen]
        swapped, run = swap_starting_centers(
            points, centers, sizes[chosen], greedy, n_init, own_rngs
        )
        last = bk.remember(points.X, labels, centers).of(run)
        own = None if left is None else [left[p] for p in chosen]
        goals = best.inertia[chosen]
        now, found = lloyd_runs(
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


def _kmeans_results(
    points: Points, best: BestRuns, inertias: list[list[float]], shift: Array, unit: float
) -> list[KMeans]:
    """Convert the clusterings of the centred rows to clusterings of the given rows.

    Clusters without members are dropped, and the others are numbered from 0.
    """
    bk, (n, k) = points.bk, best.centers.shape[:2]
    labels, centers, used = best.labels, best.centers * unit + shift, best.used
    sizes = used.sum(axis=1)
    if (sizes < best.sizes).any():
        offsets = k * np.arange(n)
        order = np.argsort(~used, axis=1, kind="stable") + offsets[:, None]
        number = used.cumsum(axis=1) - 1
        order, number, offsets = upload_together(bk, order.ravel(), number.ravel(), offsets)
        labels = number.astype(np.int32)[labels + offsets[:, None]]
        centers = centers.reshape(n * k, -1)[order].reshape(centers.shape)
    found = []
    for p, size in enumerate(sizes.tolist()):
        own = labels[p], centers[p, :size], float(best.inertia[p]) * unit**2, int(best.n_iter[p])
        all_own = [inertia * unit**2 for inertia in inertias[p]]
        found.append(KMeans(*own, bool(best.converged[p]), all_own))
    return found


def warn_of_kmeans_shortcomings(found: KMeans, k: int, max_iter: int = 300) -> None:
    """Warn if k-means did not converge, or found fewer than k clusters."""
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
