"""The paper's rule: k-means on D for rising k, until the ZZ Top Bound rejects a split [HD19]."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from specialk_gpu._checks import checked_integer
from specialk_gpu._progress import logger
from specialk_gpu._result import TIME_IS_UP, Candidate, SelectionPath
from specialk_gpu._time_limit import OutOfTime, during, lift_time_limit
from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.typing import Array, Backend, Seed
from specialk_gpu.lloyd.kmeans import KMeans, kmeans_batch, warn_of_kmeans_shortcomings
from specialk_gpu.selection.reasons_and_warnings import (
    reason_by_bound,
    reason_by_sweep,
    warn_of_few_columns,
    warn_of_many_clusters,
    warn_of_the_limit,
    warn_of_the_time,
)
from specialk_gpu.selection.zz_top import attainable_log_p, largest_zz_top

__all__ = ["STOPPING", "Sweep", "decide", "labels_by_size", "sweep"]


STOPPING = ("first", "watershed")
T = TypeVar("T")
RUN_BYTES = 128  # memory of one run of k-means, for each row


class Sweep(NamedTuple):
    """The result of `specialk_gpu.sweep`.

    Attributes
    ----------
    n_clusters : int
        The chosen k.
    labels : int32 array of shape (m,)
    path : SelectionPath
    limit_reached : bool
        Whether the search ended at `max_clusters` while the split was still accepted.
    timings : dict
        Seconds spent in "kmeans" and "bounds".
    """

    n_clusters: int
    labels: Array
    path: SelectionPath
    limit_reached: bool
    timings: dict[str, float]


def decide(
    ks: Sequence[int], log_p: Iterable[float], *, alpha: float = 0.01, stopping: str = "first"
) -> int:
    r"""Choose k from the logarithms of the largest bound at each k.

    Parameters
    ----------
    ks : sequence of int
        Consecutive numbers of clusters. If they start at 2, the answer can also be 1. Otherwise
        the smallest is accepted without a test.
    log_p : sequence of float
        Natural logarithms of the bounds, one for each k.
    alpha : float
        Significance level.
    stopping : {"first", "watershed"}
        "first" is [HD19, Alg. 1]: the k before the first one whose bound exceeds `alpha`.
        "watershed" makes a rule of the paper's closing remark: the last k before the largest drop
        in certainty, 1 - p. It ignores `alpha`. If drops are equal, the last one counts.

    Returns
    -------
    int
        The chosen k.

    Raises
    ------
    ValueError
        If an argument is out of range.
    FloatingPointError
        If a bound is not a number.
    """
    if stopping not in STOPPING:
        msg = f"stopping must be one of {STOPPING}, got {stopping!r}."
        raise ValueError(msg)
    if not 0 < alpha < 1:
        msg = f"alpha must lie in (0, 1), got {alpha}."
        raise ValueError(msg)
    ks, log_p = list(ks), np.asarray(list(log_p), dtype=np.float64)
    if not ks or ks != list(range(ks[0], ks[0] + len(ks))) or log_p.shape != (len(ks),):
        msg = f"ks must be consecutive, with a log_p for each, got {ks} and {log_p.tolist()}."
        raise ValueError(msg)
    if np.isnan(log_p).any():
        msg = f"the bound is not a number at k = {ks[int(np.argmax(np.isnan(log_p)))]}."
        raise FloatingPointError(msg)
    if ks[0] == 2:
        ks, log_p = [1, *ks], np.concatenate([[-np.inf], log_p])
    if stopping != "watershed":
        rejected = np.flatnonzero(log_p[1:] > math.log(alpha))
        return ks[int(rejected[0])] if rejected.size else ks[-1]
    if len(ks) == 1:
        return ks[0]
    certainty = -np.expm1(log_p)
    drops = certainty[:-1] - certainty[1:]
    if drops.max() <= 0:
        return ks[-1]
    return ks[int(np.flatnonzero(drops == drops.max())[-1])]


@on_its_device
def sweep(
    D: ArrayLike,
    *,
    alpha: float = 0.01,
    n_clusters: int | None = None,
    min_clusters: int = 1,
    max_clusters: int = 50,
    full_path: bool = False,
    stopping: str = "first",
    n_pairs: int | None = None,
    n_kmeans_components: int | None = 50,
    n_init: int = 10,
    random_state: Seed = None,
) -> Sweep:
    """Cluster D for increasing k until the bound rejects a split [HD19, Algorithm 1].

    Parameters
    ----------
    D : array-like of shape (m, n)
        An embedding, or any data whose columns are comparable.
    alpha : float
        Significance level, in (0, 1).
    n_clusters : int, optional
        Cluster for this k only and skip the decision.
    min_clusters, max_clusters : int
        Bounds on k. The smallest is accepted without a test; ending at the largest warns.
    full_path : bool
        Continue up to `max_clusters` after the decision, so that a person can read the path.
    stopping : {"first", "watershed"}
        See `decide`. "watershed" implies `full_path`.
    n_pairs : int, optional
        Compute the bound only for this many pairs of highest cut (10 in the authors' code);
        None uses all pairs.
    n_kmeans_components : int, optional
        Cluster on this many columns of largest norm; None uses all. The bound uses all columns.
    n_init : int
        Restarts of k-means for each k; each round of swaps makes a third as many, and none for 1.
    random_state : int, RandomState or None
        Seeds k-means for each k.

    Returns
    -------
    Sweep
        The chosen k, its labels, and the path.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range, or `D` is not finite.

    Warns
    -----
    TimeLimitWarning
        If the time limit of a fit ended the search.
    PowerWarning
        If two perfectly separated clusters, each with its share of the columns, would not be
        accepted at this `alpha`.
    LimitWarning
        If the search ends at `max_clusters`, or with more clusters than the square root of the
        number of rows.
    """
    bk = backend_of(D)
    D = bk.asarray(D)
    n_pairs, n_clusters = (
        _checked_count_for_sweep("n_pairs", n_pairs),
        _checked_count_for_sweep("n_clusters", n_clusters),
    )
    n_kmeans_components = _checked_count_for_sweep("n_kmeans_components", n_kmeans_components)
    n_init = checked_integer("n_init", n_init, 1)
    min_clusters = checked_integer("min_clusters", min_clusters, 1)
    max_clusters = checked_integer("max_clusters", max_clusters, 1)
    _check_sweep_arguments(D, alpha, n_clusters, min_clusters, max_clusters, stopping)
    m, n = D.shape
    rng = check_random_state(random_state)
    log_alpha = math.log(alpha)
    first = n_clusters or min_clusters
    last = n_clusters or min(max_clusters, m)
    timings = {"kmeans": 0.0, "bounds": 0.0}
    powerless = attainable_log_p(m, n) > log_alpha
    if powerless and first < last:
        warn_of_few_columns(m, n, alpha)
    to_the_end = full_path or stopping == "watershed"
    window = _sweep_window(bk, m, n_init, last - first + 1 if to_the_end else 1)
    windows = (range(k, min(k + window, last + 1)) for k in range(first, last + 1, window))
    # each k has its own seed, in every window; the first seed is that of the sample
    seeds = rng.randint(np.iinfo(np.int32).max, size=last + 1)
    columns = _columns_to_sweep(bk, D, n_kmeans_components)
    steps: list[Candidate] = []
    tries = _sweep_ks(D, columns, windows, seeds, n_init, n_pairs, timings)
    for k, found, labels, bound in _sweep_until_time_is_up(tries, steps):
        warn_of_kmeans_shortcomings(found, k)
        n_found = int(found.centers.shape[0])
        step = _candidate_of_sweep(k, found, labels, bound)
        log_p = step.log_p
        accepted = log_p <= log_alpha or k == first
        if k > first and log_p <= log_alpha:
            powerless = False
        limits = log_alpha, n_clusters, min_clusters
        reason = reason_by_bound(step, n_found, *limits, powerless=powerless)
        steps.append(step._replace(accepted=accepted, reason=reason))
        logger.info("k = %d: log10 p = %.2f, %s", k, log_p / math.log(10), reason)
        if n_found < k or not (accepted or to_the_end):
            break  # larger k of this window are not used
    lift_time_limit()
    return _conclude_sweep(steps, alpha, stopping, n_clusters, min(max_clusters, m), timings)


def _sweep_until_time_is_up(tries: Iterator[T], steps: list[Candidate]) -> Iterator[T]:
    """Yield the tries until the time limit, if any; if it ends them, the last step says so."""
    try:
        yield from tries
    except OutOfTime as end:
        if not steps:
            raise
        steps[-1] = steps[-1]._replace(reason=steps[-1].reason + TIME_IS_UP)
        warn_of_the_time(end, f"No k above {steps[-1].k} was tested.")


def _candidate_of_sweep(
    k: int, found: KMeans, labels: Array, bound: tuple[float, tuple[int, int] | None]
) -> Candidate:
    """Return the row of the path for k, with its bound but without the decision."""
    log_p, pair = bound
    if math.isnan(log_p):
        msg = f"the bound is not finite at k = {k}: the embedding has entries that are not."
        raise FloatingPointError(msg)
    step = Candidate(k, log_p, pair, False, "", labels, None, log_p, found.inertia)  # noqa: FBT003
    if int(found.centers.shape[0]) < k:  # fewer distinct rows than k
        return step._replace(log_p=0.0, log_zz_top=0.0)
    return step


def _checked_count_for_sweep(name: str, value: int | None) -> int | None:
    """Return a checked count, or None."""
    return None if value is None else checked_integer(name, value, 1)


def _check_sweep_arguments(
    D: Array,
    alpha: float,
    n_clusters: int | None,
    min_clusters: int,
    max_clusters: int,
    stopping: str,
) -> None:
    if D.ndim != 2 or 0 in D.shape:
        msg = f"D must have rows and columns, got shape {D.shape}."
        raise ValueError(msg)
    if D.dtype.kind not in "biuf":
        msg = f"D must hold real numbers, got {D.dtype}."
        raise TypeError(msg)
    if not bool(backend_of(D).xp.isfinite(D).all()):
        msg = "D must be finite, got entries that are infinite or not a number."
        raise ValueError(msg)
    if not 0 < alpha < 1:
        msg = f"alpha must lie in (0, 1), got {alpha}."
        raise ValueError(msg)
    if stopping not in STOPPING:
        msg = f"stopping must be one of {STOPPING}, got {stopping!r}."
        raise ValueError(msg)
    if not 1 <= min_clusters <= max_clusters:
        msg = (
            "min_clusters must be at least 1 and at most max_clusters, got "
            f"min_clusters={min_clusters}, max_clusters={max_clusters}."
        )
        raise ValueError(msg)
    m = D.shape[0]
    smallest = min_clusters if n_clusters is None else n_clusters
    if not 1 <= smallest <= m:
        name = "min_clusters" if n_clusters is None else "n_clusters"
        msg = f"{name} must lie between 1 and the number of rows ({m}), got {smallest}."
        raise ValueError(msg)


def _columns_to_sweep(bk: Backend, D: Array, n_columns: int | None) -> Array:
    """Return the columns of largest norm, in their original order, in float64."""
    xp = bk.xp
    if n_columns is None or n_columns >= D.shape[1]:
        return xp.ascontiguousarray(D, dtype=np.float64)
    norms = xp.empty(D.shape[1])
    for start in range(0, D.shape[1], bk.panel_width):
        panel = D[:, start : start + bk.panel_width].astype(np.float64)
        norms[start : start + bk.panel_width] = bk.column_dots(panel, panel)
    chosen = xp.sort(xp.argsort(-norms, kind="stable")[:n_columns])
    return D[:, chosen].astype(np.float64)


def _sweep_window(bk: Backend, m: int, n_init: int, n_wanted: int) -> int:
    """Return how many k to try at once: the backend's number or `n_wanted`, if memory allows."""
    fitting = min(bk.free_memory() // 2, bk.sweep_bytes) // (RUN_BYTES * m * n_init)
    return max(1, min(max(bk.sweep_window, n_wanted), fitting))


def _sweep_ks(
    D: Array,
    columns: Array,
    windows: Iterable[range],
    seeds: np.ndarray,
    n_init: int,
    n_pairs: int | None,
    timings: dict[str, float],
) -> Iterator[tuple[int, KMeans, Array, tuple[float, tuple[int, int] | None]]]:
    """Yield k, its clustering, labels by size, and largest bound, window by window."""
    bk = backend_of(D)
    for ks in windows:
        clock = time.perf_counter()
        own = {"seeds": [seeds[k] for k in ks], "sample_seed": seeds[0]}
        with during("kmeans"):
            tried = kmeans_batch(columns, ks, **own, n_init=n_init)
        sizes = [int(found.centers.shape[0]) for found in tried]
        labels = labels_by_size(bk.xp, bk.xp.stack([found.labels for found in tried]), max(sizes))
        bk.synchronize()
        timings["kmeans"] += time.perf_counter() - clock
        clock = time.perf_counter()
        with during("bounds"):
            bounds = largest_zz_top(D, labels, sizes, n_pairs)
        timings["bounds"] += time.perf_counter() - clock
        yield from zip(ks, tried, labels, bounds, strict=True)


def labels_by_size(xp: ModuleType, labels: Array, k: int) -> Array:
    """Renumber the clusters by decreasing size; ties by first row, empty clusters last.

    `labels` has shape (m,), or (P, m) for several clusterings of at most k clusters each.
    """
    given, labels = labels, labels.reshape(-1, labels.shape[-1])
    P, m = labels.shape
    offsets = xp.arange(0, P * k, k)[:, None]
    small = labels.astype(np.int16) if k <= np.iinfo(np.int16).max else labels  # sorts faster
    order = xp.argsort(small, axis=1, kind="stable")
    labels = labels + offsets  # so that clusterings share no number
    in_order = xp.take_along_axis(labels, order, axis=1).ravel()
    start = xp.searchsorted(in_order, xp.arange(P * k + 1))
    first = order.ravel()[xp.minimum(start[:-1], P * m - 1)]
    slot = xp.arange(P * k)
    by_size = xp.lexsort(xp.stack([first, start[:-1] - start[1:], slot // k]))
    rank = xp.empty(P * k, dtype=np.int32)
    rank[by_size] = (slot % k).astype(np.int32)
    return rank[labels].reshape(given.shape)


def _conclude_sweep(
    steps: list[Candidate],
    alpha: float,
    stopping: str,
    n_clusters: int | None,
    max_clusters: int,
    timings: dict[str, float],
) -> Sweep:
    """Choose k, and warn if the limit on k ended the search."""
    log_p = [-math.inf]  # the first is accepted without a test
    log_p += [step.log_p for step in steps[1:]]
    chosen = decide([step.k for step in steps], log_p, alpha=alpha, stopping=stopping)
    for i, step in enumerate(steps):
        reason = reason_by_sweep(step, chosen, stopping)
        if step.reason.endswith(TIME_IS_UP) and not reason.endswith(TIME_IS_UP):
            reason += TIME_IS_UP
        steps[i] = step._replace(accepted=step.k <= chosen, reason=reason)
    step = next(step for step in steps if step.k == chosen)
    limit_reached = n_clusters is None and chosen == max_clusters and len(steps) > 1
    if limit_reached:
        place = steps.index(step)
        steps[place] = step._replace(reason=step.reason + "; max_clusters reached")
        warn_of_the_limit(max_clusters, "its split was accepted: there may be more clusters")
    n_labels = int(step.labels.max()) + 1
    if n_labels < step.k:  # fewer distinct rows than k
        steps[steps.index(step)] = step._replace(k=n_labels)
    if n_clusters is None:
        warn_of_many_clusters(n_labels, int(step.labels.shape[0]))
    return Sweep(n_labels, step.labels, SelectionPath(steps, "zz_top"), limit_reached, timings)
