"""k-means with all restarts in one batch."""

from __future__ import annotations

import math
import warnings
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from specialk_gpu.backend import backend_of

__all__ = ["KMeans", "kmeans"]

CHUNK_BYTES = 2**22  # scores of a chunk of rows against all centres, on the host
SWAP_ITERATIONS, SWAPS_KEPT = 6, 3  # swaps still behind the best three by then are given up
PATIENCE = 2  # rounds of swaps without gain
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
        Of all restarts, and of the swaps after them.
    """

    labels: Any
    centers: Any
    inertia: float
    n_iter: int
    converged: bool
    inertias: list[float]


class _Assignment(NamedTuple):
    """The nearest centre of every row, for every restart, and what follows from it."""

    labels: Any  # (R, m) int32
    sq_distances: Any  # (R, m)
    counts: Any  # (R, k)
    sums: Any  # (R, k, d)


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
    go to the smaller label. Iterates until no label changes. Then swaps one centre of the best
    for a new row in `n_init` ways, as one batch, until that has failed twice to lower the inertia
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
        Further starts, run in the same batch.
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
    Each iteration costs 2 m R k d operations in matrix products and synchronises with the
    device once. Memory: O(m R) beside a chunk.
    """
    bk = backend_of(X)
    X = bk.asarray(X)
    xp = bk.xp
    init = None if init is None else xp.asarray(init, dtype=np.float64)
    _check_arguments(xp, X, n_clusters, n_init, init, max_iter)
    X, shift = _centred(xp, X)
    sq_norms = (X * X).sum(axis=1)
    rng = check_random_state(random_state)
    starts = [] if init is None else [init - shift]
    if n_init:
        starts.append(_plus_plus(bk, X, sq_norms, n_clusters, n_init, rng))
    best = _lloyd(bk, X, sq_norms, xp.concatenate(starts), max_iter)
    inertias = best.inertias
    failed = 0 if n_clusters >= 2 and n_init > 1 else PATIENCE
    while failed < PATIENCE and best.inertia > 0:
        swapped = _swaps(bk, X, sq_norms, best.centers, n_init, rng)
        found = _lloyd(bk, X, sq_norms, swapped, max_iter, n_kept=SWAPS_KEPT)
        inertias = inertias + found.inertias
        failed = 0 if found.inertia < best.inertia * (1 - 1e-5) else failed + 1
        best = found if found.inertia < best.inertia else best
    best = best._replace(centers=best.centers + shift, inertias=inertias)
    return _checked(bk, best, n_clusters, max_iter)


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


def _plus_plus(bk: ModuleType, X: Any, sq_norms: Any, k: int, n_init: int, rng: Any) -> Any:
    """Draw `n_init` sets of k starting centres: (n_init, k, d)."""
    xp = bk.xp
    chosen = xp.empty((n_init, k), dtype=np.int64)
    chosen[:, 0] = bk.asarray(rng.randint(X.shape[0], size=n_init))
    nearest = _sq_distances(xp, X, sq_norms, chosen[:, 0])  # (R, m)
    for c in range(1, k):
        draws = rng.random_sample((n_init, 2 + int(math.log(k))))
        chosen[:, c], nearest = _draw(bk, X, sq_norms, nearest, draws)
    return X[chosen]


def _draw(
    bk: ModuleType, X: Any, sq_norms: Any, nearest: Any, draws: np.ndarray
) -> tuple[Any, Any]:
    """Draw one more centre for each restart: the best of several, by squared distance.

    `nearest` (R, m) holds squared distances to the centres there are, `draws` (R, trials)
    numbers in [0, 1). Returns the rows (R,) and the new distances.
    """
    xp = bk.xp
    R, m = nearest.shape
    running = xp.cumsum(nearest, axis=1)
    target = bk.asarray(draws) * running[:, -1:]  # (R, trials)
    trial = xp.stack([xp.searchsorted(running[r], target[r]) for r in range(R)])
    trial = xp.minimum(trial, m - 1)
    candidate = _sq_distances(xp, X, sq_norms, trial.ravel()).reshape(*trial.shape, m)
    xp.minimum(candidate, nearest[:, None, :], out=candidate)
    best = xp.argmin(candidate.sum(axis=2), axis=1)
    restart = xp.arange(R)
    return trial[restart, best], candidate[restart, best]


def _swaps(bk: ModuleType, X: Any, sq_norms: Any, centers: Any, n_init: int, rng: Any) -> Any:
    """Replace one centre in each of `n_init` copies by a row drawn as in k-means++."""
    xp = bk.xp
    k = centers.shape[0]
    removed = np.concatenate([rng.permutation(k) for _ in range(-(-n_init // k))])[:n_init]
    kept = bk.asarray(np.stack([np.delete(np.arange(k), c) for c in removed]))  # (R, k - 1)
    sq = (-2 * centers) @ X.T + (centers * centers).sum(axis=1)[:, None] + sq_norms  # (k, m)
    nearest = xp.stack([xp.maximum(sq[rest].min(axis=0), 0) for rest in kept])
    draws = rng.random_sample((n_init, 2 + int(math.log(k))))
    rows, _ = _draw(bk, X, sq_norms, nearest, draws)
    return xp.concatenate([centers[kept], X[rows][:, None, :]], axis=1)


def _sq_distances(xp: Any, X: Any, sq_norms: Any, rows: Any) -> Any:
    """Return the squared distances of all rows to some rows: (r, m)."""
    sq = (-2 * X[rows]) @ X.T
    sq += sq_norms
    sq += sq_norms[rows][:, None]
    xp.maximum(sq, 0, out=sq)
    sq[xp.arange(rows.size), rows] = 0
    return sq


def _assign(bk: ModuleType, X: Any, sq_norms: Any, centers: Any) -> _Assignment:
    """Assign every row to its nearest centre, for all restarts, and sum up the clusters."""
    xp = bk.xp
    m, d = X.shape
    R, k = centers.shape[:2]
    flat = centers.reshape(R * k, d)
    center_sq = (flat * flat).sum(axis=1)[:, None]
    labels = xp.empty((R, m), dtype=np.int32)
    sq = xp.empty((R, m))
    clusters = xp.arange(k, dtype=np.int32)[:, None]

    def run(rows: slice) -> tuple[Any, Any]:
        x = X[rows]
        scores = ((-2 * flat) @ x.T + center_sq).reshape(R, k, -1)
        best = scores[:, 0].copy()
        label = xp.zeros(best.shape, dtype=np.int32)
        for c in range(1, k):
            label[scores[:, c] < best] = c
            xp.minimum(best, scores[:, c], out=best)
        labels[:, rows] = label
        sq[:, rows] = xp.maximum(best + sq_norms[rows], 0)
        member = (label[:, None, :] == clusters).astype(np.float64)  # (R, k, t)
        return member.sum(axis=2), (member.reshape(R * k, -1) @ x).reshape(R, k, d)

    chunk_bytes = CHUNK_BYTES if bk.name == "numpy" else bk.free_memory() // 8
    step = max(1, min(m, chunk_bytes // (8 * R * k)))
    parts = bk.map_chunks(run, (slice(i, min(i + step, m)) for i in range(0, m, step)))
    counts, sums = parts[0]
    for more_counts, more_sums in parts[1:]:
        counts += more_counts
        sums += more_sums
    return _Assignment(labels, sq, counts, sums)


def _lloyd(
    bk: ModuleType,
    X: Any,
    sq_norms: Any,
    centers: Any,
    max_iter: int,
    n_kept: int | None = None,
) -> KMeans:
    """Iterate all restarts together; those that no longer change leave the batch.

    With `n_kept`, so do all but the best `n_kept` after a few iterations.
    """
    xp = bk.xp
    n_starts, k = centers.shape[:2]
    inertias = np.full(n_starts, np.inf)
    best: tuple[float, Any, Any, int, bool] = (np.inf, None, None, 0, False)
    active = np.arange(n_starts)
    before = None
    coincide = 32 * float(np.finfo(np.float64).eps) * float(sq_norms.max())
    for i in range(1, max_iter + 1):
        now = _assign(bk, X, sq_norms, centers)
        changed = xp.ones(active.size, dtype=bool)
        if before is not None:
            changed = (now.labels != before).any(axis=1)
        n_empty = (now.counts == 0).sum(axis=1).astype(np.float64)
        state = [changed.astype(np.float64), now.sq_distances.sum(axis=1), n_empty]
        state = bk.to_numpy(xp.stack(state))  # the one synchronisation of the iteration
        going = (state[0] > 0) & (i < max_iter)
        hopeless = np.zeros_like(going)
        if n_kept is not None and i == SWAP_ITERATIONS and going.sum() > n_kept:
            hopeless = going & (state[1] > np.sort(state[1][going])[n_kept - 1])
            going &= ~hopeless
        for r in np.flatnonzero(~going):
            inertias[active[r]] = state[1, r]
            if state[1, r] < best[0] and not hopeless[r]:
                best = (state[1, r], now.labels[r].copy(), centers[r].copy(), i, state[0, r] == 0)
        if not going.any():
            break
        for r in np.flatnonzero(going & (state[2] > 0)):
            _refill(xp, X, now, int(r), coincide)
        centers = xp.where(
            now.counts[:, :, None] > 0,
            now.sums / xp.maximum(now.counts, 1)[:, :, None],
            centers,
        )
        before = now.labels
        if not going.all():
            stay = bk.asarray(np.flatnonzero(going))
            active, centers, before = active[going], centers[stay], before[stay]
    inertia, labels, centers, n_iter, converged = best
    return KMeans(labels, centers, float(inertia), n_iter, bool(converged), inertias.tolist())


def _refill(xp: Any, X: Any, now: _Assignment, r: int, coincide: float) -> None:
    """Give each empty cluster of restart r the farthest row, taken from its own cluster.

    Squared distances up to `coincide` are rounding.
    """
    empty = xp.flatnonzero(now.counts[r] == 0).tolist()
    for c in empty:
        far = int(xp.argmax(now.sq_distances[r]))
        if not float(now.sq_distances[r, far]) > coincide:
            return  # every row sits on a centre, up to rounding: too few distinct rows
        donor = int(now.labels[r, far])
        now.counts[r, donor] -= 1
        now.sums[r, donor] -= X[far]
        now.counts[r, c] = 1
        now.sums[r, c] = X[far]
        now.labels[r, far] = c
        now.sq_distances[r, far] = 0
        if not float(now.counts[r, donor]) > 0:
            empty.append(donor)


def _checked(bk: ModuleType, found: KMeans, k: int, max_iter: int) -> KMeans:
    """Drop clusters without members and number the others from 0; warn of shortcomings."""
    used, labels = bk.xp.unique(found.labels, return_inverse=True)
    if not found.converged:
        warnings.warn(
            f"k-means with n_clusters={k} stopped at max_iter={max_iter} with {used.size} "
            "clusters: its labels still change.",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif used.size < k:
        warnings.warn(
            f"k-means found {used.size} clusters where n_clusters={k} were asked for: "
            "the data have too few distinct rows.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return found._replace(labels=labels.astype(np.int32), centers=found.centers[used])
