"""Lloyd's iterations of many runs in one batch, and the refilling of empty clusters.

A run is one k-means fit: a number of clusters and one set of starting centres.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specialk_gpu._time_limit import check_time_limit
from specialk_gpu.backend.typing import Array, Backend, Memory
from specialk_gpu.lloyd.points import Points
from specialk_gpu.lloyd.seeding import upload_together

__all__ = ["GAIN", "GIVE_UP", "BestRuns", "EndedRun", "lloyd_runs"]

GIVE_UP = 3.0  # a run is given up if it is behind the best by more than this many of its last gains
LEAST_ITERATIONS = 2  # iterations, at least, before a run is given up
GAIN = 1e-5  # relative decrease of the inertia that counts as a gain


class BestRuns(NamedTuple):
    """A clustering for each of P numbers of clusters."""

    sizes: np.ndarray  # (P,), ascending numbers of clusters
    labels: Array  # (P, m) int32
    centers: Array  # (P, max k, d)
    used: np.ndarray  # (P, max k), whether each cluster has rows
    inertia: np.ndarray  # (P,)
    n_iter: np.ndarray  # (P,)
    converged: np.ndarray  # (P,)


ON_HOST = ("sizes", "used", "inertia", "n_iter", "converged")


class EndedRun(NamedTuple):
    """The result of a run that has ended or was given up."""

    inertia: float
    centers: Array  # (R, k, d), of all runs in its batch
    run: int  # its place in `centers`


class _AssignmentOfRuns(NamedTuple):
    """The nearest centre of every row for every run, and the sums that follow from it."""

    labels: Array  # (R, m) int32
    state: Array  # (3, R): the inertia, whether labels changed, how many clusters have rows
    means: Array  # (R, k, d)
    counts: Array  # (R, k)
    sums: Array  # (R, k, d)
    last: Memory
    exact: bool  # whether the inertia is computed from its definition


def lloyd_runs(
    points: Points,
    centers: Array,
    sizes: np.ndarray,
    max_iter: int | np.ndarray,
    goals: np.ndarray | None = None,
    give_up: float = GIVE_UP,
    left: list[list[EndedRun]] | None = None,
    last: Memory = None,
    *,
    again: bool = True,
) -> tuple[BestRuns, list[list[float]]]:
    """Iterate all runs together; a run that no longer changes leaves the batch.

    `centers` has shape (R, k, d). Run r uses the first sizes[r] of its centres, and `sizes` is
    ascending. `max_iter` limits the iterations of all runs, or of each run if it is an array.
    `goals` holds an inertia to beat for each size. A run too far behind is given up (see GIVE_UP).
    Returns the best clustering of each size that beats its goal, and the inertias of the runs by
    size. `left`, if given, collects the results of all runs by size. `last` is what the backend
    remembers of the clusterings that the runs start from. For `again`, see `_settle_runs`. Waits
    for the device once per iteration, and once more if a cluster is empty.
    """
    bk, xp = points.bk, points.bk.xp
    ks, group = np.unique(sizes, return_inverse=True)  # (P,), (R,)
    goals = np.full(ks.size, np.inf) if goals is None else goals
    inertias = np.full(sizes.size, np.inf)  # of the last iteration of each run
    limit, active = np.broadcast_to(max_iter, sizes.size), np.arange(sizes.size)
    best, winner, n_iter = goals.copy(), np.full(ks.size, -1), np.zeros(ks.size, dtype=np.int64)
    left_centers = xp.zeros(centers.shape)  # of all runs, at their ends
    labels = xp.empty((ks.size, points.X.shape[0]), dtype=np.int32)  # of the winners
    converged, total = np.zeros(ks.size, dtype=bool), points.sq_norms.sum()  # scale of rounding
    for i in range(1, int(limit.max()) + 1):
        check_time_limit()
        now = _AssignmentOfRuns(*bk.assign(*points[1:4], centers, sizes[active], last))
        if i == 1:
            total, state = _first_transfer_of_runs(bk, total, now.state)
        else:
            state = bk.to_numpy(now.state)  # host waits, once per iteration
        inertia, n_empty = state[0], sizes[active] - state[2]
        changed = (state[1] > 0) | (i == 1)
        gain, inertias[active] = inertias[active] - inertia, inertia
        changed &= abs(gain) > np.finfo(np.float64).eps * total  # else rounding
        going = changed & (i < limit[active])
        limits = give_up if i >= LEAST_ITERATIONS else np.inf, gain
        given_up = going & _are_runs_far_behind(inertia, group[active], best, *limits)
        going &= ~given_up
        ended = np.flatnonzero(~going & ~given_up)
        if ended.size and not now.exact:
            inertias[active[ended]] = _inertias(points, centers, ended, sizes[active[ended]])
        won: dict[int, int] = {}
        for r, place in zip(ended.tolist(), group[active[ended]].tolist(), strict=True):
            if inertias[active[r]] < best[place]:
                best[place], winner[place], won[place] = inertias[active[r]], active[r], r
                n_iter[place], converged[place] = i, not changed[r]
        stay, stopped = np.flatnonzero(going), np.flatnonzero(~going)
        if stopped.size:
            lists = stay, stopped, active[stopped], [*won.values()], [*won]
            stay, stopped_here, out, won_here, places = upload_together(bk, *lists)
            left_centers[out, : centers.shape[1]] = centers[stopped_here]
            if won:
                labels[places] = now.labels[won_here]
        if left is not None:
            for r, run in zip(stopped.tolist(), active[stopped].tolist(), strict=True):
                left[group[run]].append(EndedRun(float(inertia[r]), left_centers, run))
        if not going.any():
            break
        if (emptied := np.flatnonzero(going & (n_empty > 0))).size:
            _refill_empty_clusters_of_runs(points, now, centers, emptied, sizes[active[emptied]])
        centers, last = now.means, now.last
        if stopped.size:
            active = active[going]
            last, centers = last.of(stay), centers[stay][:, : sizes[active].max()]
    new = np.flatnonzero(winner >= 0)
    none = np.zeros((new.size, 0), dtype=bool)
    found = BestRuns(ks[new], labels, left_centers, none, best[new], n_iter[new], converged[new])
    found = _settle_runs(points, found, new, winner[new], int(limit.max()), again)
    better = found.inertia < goals[new]
    best[new] = np.minimum(found.inertia, goals[new])
    ends = final_inertias_of_runs(inertias, group, best, goals)
    return found if better.all() else _best_runs_at(bk, found, np.flatnonzero(better)), ends


def _best_runs_at(bk: Backend, found: BestRuns, places: np.ndarray) -> BestRuns:
    """Return the clusterings at the given `places` only."""
    own = bk.asarray(places)
    on_host = {name: getattr(found, name)[places] for name in ON_HOST}
    return found._replace(labels=found.labels[own], centers=found.centers[own], **on_host)


def _first_transfer_of_runs(bk: Backend, total: Any, state: Array) -> tuple[float, np.ndarray]:
    """Copy `total` and the `state` (3, R) of the runs to the host in one transfer."""
    both = bk.to_numpy(bk.xp.concatenate([total.reshape(1), state.ravel()]))
    return float(both[0]), both[1:].reshape(state.shape)


def _inertias(points: Points, centers: Array, runs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the inertias of some runs, from their definition; waits for the device."""
    bk = points.bk
    _, sq = bk.nearest_center(points.columns, points.sq_norms, centers[bk.asarray(runs)], sizes)
    return bk.to_numpy(sq.sum(axis=1))


def _are_runs_far_behind(
    inertia: np.ndarray, group: np.ndarray, best: np.ndarray, give_up: float, gain: np.ndarray
) -> np.ndarray:
    """Return whether each run is more than `give_up` of its last gains behind its group's best.

    That is the lowest inertia now, or `best`, the lowest of ended runs and goals, less one gain.
    """
    if give_up == np.inf:
        return np.zeros(inertia.size, dtype=bool)
    goals = best * (1 - GAIN)
    np.minimum.at(goals, group, inertia)
    return inertia - goals[group] > give_up * np.maximum(gain, 0)


def _settle_runs(
    points: Points,
    found: BestRuns,
    places: np.ndarray,
    runs: np.ndarray,
    max_iter: int,
    again: bool,  # noqa: FBT001 - a private function
) -> BestRuns:
    """Compute the centres, labels and inertias of the best runs from their definitions.

    `places` says where their labels are in `found`, and `runs` where their centres are. If this
    changes the labels of a run and `again` is true, the run is iterated again, but only once:
    labels that change even then would change for ever, by rounding.
    """
    bk, xp, sizes = points.bk, points.bk.xp, found.sizes
    if not sizes.size:
        return found._replace(labels=found.labels[:0], centers=found.centers[:0])
    places, runs, loose = upload_together(bk, places, runs, ~found.converged)
    before, centers = found.labels[places], found.centers[runs, : sizes[-1]]
    counts, sums = bk.segment_sum(points.X, before, sizes[-1])
    keep = (loose > 0)[:, None] | (counts == 0)
    centers = xp.where(keep[:, :, None], centers, sums / xp.maximum(counts, 1)[:, :, None])
    labels, sq = bk.nearest_center(points.columns, points.sq_norms, centers, sizes)
    counts = bk.segment_sum(points.X[:, :1], labels, sizes[-1])[0]
    state = xp.stack([sq.sum(axis=1), (labels != before).any(axis=1)], axis=1)
    state = bk.to_numpy(xp.concatenate([state, counts], axis=1))  # host waits
    inertia, changed, used = state[:, 0].copy(), state[:, 1], state[:, 2:] > 0
    unsettled = again & found.converged & (changed > 0)
    rest = max_iter - found.n_iter
    redo = np.flatnonzero(unsettled & (rest > 0))
    n_iter, converged = found.n_iter.copy(), found.converged & ~unsettled
    if redo.size:
        own = bk.asarray(redo)
        start = centers[own][:, : sizes[redo[-1]]]
        more, _ = lloyd_runs(points, start, sizes[redo], rest[redo], again=False)
        labels[own], centers[own, : start.shape[1]] = more.labels, more.centers
        used[redo, : start.shape[1]] = more.used
        inertia[redo], converged[redo] = more.inertia, more.converged
        n_iter[redo] += more.n_iter
    return BestRuns(sizes, labels, centers, used, inertia, n_iter, converged)


def _refill_empty_clusters_of_runs(
    points: Points, now: _AssignmentOfRuns, centers: Array, runs: np.ndarray, sizes: np.ndarray
) -> None:
    """Give each empty cluster of some `runs` the row that is farthest from its own centre.

    All data on the farthest rows are copied to the host in one transfer.
    """
    bk, xp, (k, d) = points.bk, points.bk.xp, centers.shape[1:]
    own = bk.asarray(runs)
    given = centers[own]
    sq = bk.nearest_center(points.columns, points.sq_norms, given, sizes)[1]
    n = min(k, points.X.shape[0])  # no cluster is filled twice
    far = bk.largest(sq, n)
    row, r = far.ravel(), xp.arange(runs.size).repeat(n)
    parts = [far, sq[r, row], now.labels[own[r], row], points.sq_norms[row], points.X[row]]
    parts += [(given * given).sum(axis=2), now.counts[own], now.sums[own]]
    parts = [part.reshape(runs.size, -1).astype(np.float64) for part in parts]
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    packed = np.split(bk.to_numpy(xp.concatenate(parts, axis=1)), ends, axis=1)  # host waits
    (rows, sq, donors, sq_norms), (X, center_sq, counts, sums) = packed[:4], packed[4:]
    X, sums = X.reshape(-1, n, d), sums.reshape(-1, k, d)
    moved = []
    for i, size in enumerate(sizes.tolist()):
        empty = np.flatnonzero(counts[i, :size] == 0).tolist()
        for j, c in enumerate(empty):
            donor = int(donors[i, j])
            rounding = 32 * np.finfo(np.float64).eps * (sq_norms[i, j] + center_sq[i, donor])
            if not sq[i, j] > rounding:
                break  # every row sits on a centre, up to rounding: too few distinct rows
            counts[i, donor] -= 1
            sums[i, donor] -= X[i, j]
            counts[i, c], sums[i, c] = 1, X[i, j]
            moved.append((int(runs[i]), int(rows[i, j]), c))
            if now.last is not None:
                now.last.relabelled(*moved[-1][:2])
            if not counts[i, donor] > 0:
                empty.append(donor)
    if not moved:
        return
    run, row, c = upload_together(bk, *zip(*moved, strict=True))
    now.labels[run, row] = c
    filled = bk.asarray(np.concatenate([counts[:, :, None], sums], axis=2))
    counts, sums = filled[:, :, 0], filled[:, :, 1:]
    now.counts[own], now.sums[own] = counts, sums
    means = sums / xp.maximum(counts, 1)[:, :, None]
    now.means[own] = xp.where(counts[:, :, None] > 0, means, given)


def final_inertias_of_runs(
    inertias: np.ndarray, group: np.ndarray, best: np.ndarray, goals: np.ndarray
) -> list[list[float]]:
    """Return the inertias of the runs by size; those of runs given up are at least the best."""
    ends = []
    for p in range(best.size):
        own = np.maximum(inertias[group == p], best[p])
        if best[p] < goals[p]:
            own[np.argmin(own)] = best[p]
        ends.append(own.tolist())
    return ends
