"""The sweep over k, the path it leaves, and the decision."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.bottlenecks import Bottlenecks
from specialk_gpu.bounds import attainable_log_p, largest_bounds
from specialk_gpu.graph import affinity_matrix
from specialk_gpu.kmeans import KMeans, kmeans_batch, warn_of_shortcomings
from specialk_gpu.progress import logger

__all__ = [
    "CalibrationWarning",
    "LimitWarning",
    "Path",
    "PowerWarning",
    "Step",
    "Sweep",
    "decide",
    "sweep",
]


SELECTIONS = ("calibrated", "first", "watershed")
NO_POWER = "rejected: the test has no power on these data"
RUN_BYTES = 128  # of a run of k-means, for each row
TRIED_ROWS, TRIED_ENTRIES = 60, 10  # least, of a graph, and in the mean row of it


class PowerWarning(UserWarning):
    """Too few rows, or columns, for a clear split to be accepted: k = 1 may say nothing."""


class LimitWarning(UserWarning):
    """The search ended at `max_clusters`, or with clusters of very few rows: look at the path."""


class CalibrationWarning(UserWarning):
    """The graph is of a kind for which the calibrated p has not been tried: it may be too small."""


class Step(NamedTuple):
    """One k of the path.

    Attributes
    ----------
    k : int
        Clusters asked for.
    log_p : float
        Natural logarithm of the largest bound over the pairs tested; -inf for k = 1, where
        there is no pair.
    pair : tuple of two int, or None
        The labels of the pair with the largest bound, or the largest calibrated p.
    accepted : bool
        Whether what decides is at most alpha for every pair: the bound, or the calibrated p.
    reason : str
        Why, in words.
    inertia : float
        Of the best k-means restart.
    labels : int32 array of shape (m,)
        In 0, ..., k - 1, by falling size of the cluster.
    log_p_calibrated : float or None
        Natural logarithm of the probability of such a split where there is nothing to split (see
        ``specialk_gpu.bottlenecks``); None for k = 1, and where it was not asked for.
    """

    k: int
    log_p: float
    pair: tuple[int, int] | None
    accepted: bool
    reason: str
    inertia: float
    labels: Any
    log_p_calibrated: float | None = None

    @property
    def decisive_log_p(self) -> float:
        """The calibrated p where there is one, else the bound."""
        return self.log_p if self.log_p_calibrated is None else self.log_p_calibrated


class Path(tuple):
    """The steps of a sweep, by rising k."""

    __slots__ = ()

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per k, without the labels.

        `log_p` is of the bound, `log_p_calibrated` is there where that decides; each has its
        `log10_p` beside it. Needs pandas.
        """
        import pandas as pd

        frame = pd.DataFrame([step._asdict() for step in self], columns=Step._fields)
        frame.insert(2, "log10_p", frame["log_p"] / math.log(10))
        if all(step.log_p_calibrated is None for step in self):
            frame = frame.drop(columns="log_p_calibrated")
        else:
            own = frame["log_p_calibrated"].astype(float)
            frame["log10_p_calibrated"] = own / math.log(10)
        return frame.drop(columns="labels")

    def __str__(self) -> str:
        """Lay the path out as a table: log10 of the p that decides, and of the bound beside it."""
        calibrated = any(step.log_p_calibrated is not None for step in self)
        bound = f" {'bound':>8}" if calibrated else ""
        start = f"{'k':>4} {'log10 p':>9}{bound} {'pair':>9} {'accepted':>9} {'inertia':>12}"
        lines = [f"{start}  reason"]
        for step in self:
            pair = "" if step.pair is None else f"{step.pair[0]}, {step.pair[1]}"
            log10_p = format(step.decisive_log_p / math.log(10), ".2f")
            if calibrated:
                bound = (
                    f" {'' if step.pair is None else format(step.log_p / math.log(10), '.2f'):>8}"
                )
            lines.append(
                f"{step.k:>4} {log10_p:>9}{bound} {pair:>9} "
                f"{'yes' if step.accepted else 'no':>9} {step.inertia:>12.6g}  {step.reason}"
            )
        return "\n".join(lines)


class Sweep(NamedTuple):
    """The result of `specialk_gpu.sweep`.

    Attributes
    ----------
    n_clusters : int
        The decision.
    labels : int32 array of shape (m,)
    path : Path
    limit_reached : bool
        Whether the search ended at `max_clusters` with that split still accepted.
    timings : dict
        Seconds in "kmeans" and "bounds", and in "bottlenecks" where these decide.
    """

    n_clusters: int
    labels: Any
    path: Path
    limit_reached: bool
    timings: dict[str, float]


def decide(
    ks: Sequence[int], log_p: Iterable[float], *, alpha: float = 0.01, selection: str = "first"
) -> int:
    r"""Choose k from the logarithms of the largest bound at each k.

    Parameters
    ----------
    ks : sequence of int
        Consecutive numbers of clusters. Where they start at 2, k = 1 is possible too; the
        smallest is otherwise taken to be right.
    log_p : sequence of float
        Natural logarithms, one for each k: of the bound, or of the calibrated p.
    alpha : float
        Level of the test.
    selection : {"calibrated", "first", "watershed"}
        "first" is [HD19, Alg. 1]: the k before the first one whose bound exceeds alpha, and
        "calibrated" the same by the calibrated p. "watershed" makes a rule of the paper's closing
        remark: the last k before the largest drop in certainty, 1 - p, whatever alpha; of equal
        drops the last.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If an argument is out of range.
    FloatingPointError
        If a bound is not a number.
    """
    if selection not in SELECTIONS:
        msg = f"selection must be one of {SELECTIONS}, got {selection!r}."
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
    if selection != "watershed":
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
    D: Any,
    *,
    W: Any = None,
    alpha: float = 0.01,
    n_clusters: int | None = None,
    min_clusters: int = 1,
    max_clusters: int = 50,
    full_path: bool = False,
    selection: str = "first",
    n_pairs: int | None = None,
    n_kmeans_components: int | None = 50,
    n_init: int = 10,
    random_state: Any = None,
) -> Sweep:
    """Cluster D for rising k until a split is one too many [HD19, Algorithm 1].

    Parameters
    ----------
    D : array-like of shape (m, n)
        An embedding, or any data whose columns are comparable.
    W : sparse matrix of shape (m, m), optional
        The graph that was embedded: symmetric similarities, or what
        ``specialk_gpu.bottlenecks.Bottlenecks`` keeps of them. selection="calibrated" needs it.
    alpha : float
        Level of the test, in (0, 1).
    n_clusters : int, optional
        Cluster for this k alone and skip the decision.
    min_clusters, max_clusters : int
        Bounds on k. The smallest is taken to be right; ending at the largest warns.
    full_path : bool
        Go on to `max_clusters` after the decision, so that a person can read the path.
    selection : {"calibrated", "first", "watershed"}
        See `decide`. "watershed" implies `full_path`.
    n_pairs : int, optional
        Compute the bound of the pairs of highest cut only (10 in the authors' code); by default of
        all. The calibrated p is of all pairs.
    n_kmeans_components : int, optional
        Cluster on the columns of largest norm; None takes all. The bound takes all columns.
    n_init : int
        Restarts of k-means for each k, and three times the swaps in each round after them; 1 goes
        without swaps.
    random_state : int, RandomState or None

    Returns
    -------
    Sweep

    Raises
    ------
    ValueError
        If an argument is out of range.

    Warns
    -----
    CalibrationWarning
        If selection="calibrated" meets fewer than 60 rows, or fewer than 10 entries in a row.
    PowerWarning
        If two perfectly separated clusters, for the bound each with its share of the columns, would
        not be accepted at this alpha.
    LimitWarning
        If the search ends at `max_clusters`, or with more clusters than the square root of the
        rows.
    """
    bk = backend_of(D)
    D = bk.asarray(D)
    counts = {"n_pairs": n_pairs, "n_kmeans_components": n_kmeans_components}
    _check_arguments(D, W, alpha, n_clusters, min_clusters, max_clusters, selection, counts)
    m, n = D.shape
    rng = check_random_state(random_state)
    log_alpha = math.log(alpha)
    first = n_clusters or min_clusters
    last = n_clusters or min(max_clusters, m)
    timings = {"kmeans": 0.0, "bounds": 0.0}
    graph = None
    if selection == "calibrated":
        graph = W if isinstance(W, Bottlenecks) else Bottlenecks(affinity_matrix(W))
    powerless = _powerless(m, n, alpha, graph, timings, warn=first < last)
    to_the_end = full_path or selection == "watershed"
    window = _window(bk, m, n_init, last - first + 1 if to_the_end else 1)
    windows = (range(k, min(k + window, last + 1)) for k in range(first, last + 1, window))
    # a k has its own seed, wherever it is tried; the first is that of the sample
    seeds = rng.randint(np.iinfo(np.int32).max, size=last + 1)
    columns = _largest_columns(bk, D, n_kmeans_components)
    steps: list[Step] = []
    tries = _tries(D, columns, windows, seeds, n_init, n_pairs, timings)
    for k, found, labels, bound in tries:
        warn_of_shortcomings(found, k)
        n_found = int(found.centers.shape[0])
        step = _tested(k, found, labels, bound, graph, log_alpha, timings)
        log_p = step.decisive_log_p
        accepted = log_p <= log_alpha or k == first
        if k > first and log_p <= log_alpha:
            powerless = False
        reason = _reason(step, n_found, log_alpha, powerless, n_clusters, min_clusters)
        steps.append(step._replace(accepted=accepted, reason=reason))
        logger.info("k = %d: log10 p = %.2f, %s", k, log_p / math.log(10), reason)
        if n_found < k or not (accepted or to_the_end):
            break  # what was tried beyond is thrown away
    return _conclude(steps, alpha, selection, n_clusters, min(max_clusters, m), timings)


def _powerless(
    m: int, n: int, alpha: float, graph: Any, timings: dict[str, float], *, warn: bool
) -> bool:
    """Say whether no split can be accepted; warn of it, or of a graph of a kind not tried."""
    clock = time.perf_counter()
    attainable = attainable_log_p(m, n) if graph is None else graph.attainable_log_p()
    if graph is not None:
        timings["bottlenecks"] = time.perf_counter() - clock
    powerless = attainable > math.log(alpha)
    if powerless and warn:
        _warn_of_no_power(m, n, alpha, attainable, graph)
    elif graph is not None and warn:
        _warn_if_untried(graph.near.S)
    return powerless


def _warn_of_no_power(m: int, n: int, alpha: float, attainable: float, graph: Any) -> None:
    """Say that no split can be accepted, and what would help."""
    few, why, share = f"{m} rows in {n} columns", "", ", each with its share of the columns,"
    cure = "more eigenvectors (n_components), more rows"
    if graph is not None:
        few, share, cure = f"{m} rows", "", "more rows, or a graph of fewer edges"
        why = f"each is joined to {graph.least_neighbors:.0f} others or more, and "
    warnings.warn(
        f"{few} are too few for a split to be accepted at alpha={alpha:g}: {why}two perfectly "
        f"separated clusters{share} would reach log10 p = {attainable / math.log(10):.2f}. 'One "
        f"cluster' then means 'not enough evidence'. Use {cure}, or n_clusters=k.",
        PowerWarning,
        stacklevel=5,
    )


def _warn_if_untried(S: Any) -> None:
    """Warn of a graph for which the calibrated p has not been tried."""
    m = S.shape[0]
    if m < TRIED_ROWS or S.nnz < TRIED_ENTRIES * m:
        warnings.warn(
            f"the calibrated p has been tried on graphs of at least {TRIED_ROWS} rows with "
            f"{TRIED_ENTRIES} entries each, and this one has {m} with {S.nnz / m:.1f} in the mean: "
            "p may be too small, or too large.",
            CalibrationWarning,
            stacklevel=5,
        )


def _tested(
    k: int,
    found: KMeans,
    labels: Any,
    bound: tuple[float, Any],
    graph: Any,
    log_alpha: float,
    timings: dict[str, float],
) -> Step:
    """Return a step with its p, without the decision."""
    log_p, pair = bound
    if math.isnan(log_p):
        msg = f"the bound is not finite at k = {k}: the embedding has entries that are not."
        raise FloatingPointError(msg)
    step = Step(k, log_p, pair, False, "", found.inertia, labels)  # noqa: FBT003 - to come
    if int(found.centers.shape[0]) < k:  # two of the clusters asked for are certainly one
        return step._replace(log_p=0.0, log_p_calibrated=None if graph is None else 0.0)
    if graph is None or k == 1:
        return step
    clock = time.perf_counter()
    border = graph.widest(labels, k, log_alpha)
    timings["bottlenecks"] += time.perf_counter() - clock
    return step._replace(log_p_calibrated=border.log_p, pair=border.pair)


def _check_arguments(
    D: Any,
    W: Any,
    alpha: float,
    n_clusters: int | None,
    min_clusters: int,
    max_clusters: int,
    selection: str,
    counts: dict[str, int | None],
) -> None:
    if D.ndim != 2 or 0 in D.shape:
        msg = f"D must have rows and columns, got shape {D.shape}."
        raise ValueError(msg)
    for name, value in counts.items():
        if value is not None and value < 1:
            msg = f"{name} must be at least 1 or None, got {value}."
            raise ValueError(msg)
    if not 0 < alpha < 1:
        msg = f"alpha must lie in (0, 1), got {alpha}."
        raise ValueError(msg)
    if selection not in SELECTIONS:
        msg = f"selection must be one of {SELECTIONS}, got {selection!r}."
        raise ValueError(msg)
    shape = (W.n_rows,) * 2 if isinstance(W, Bottlenecks) else np.shape(W)
    if selection == "calibrated" and shape != (D.shape[0],) * 2:
        got = "none" if W is None else f"one of shape {shape}"
        msg = f"selection='calibrated' needs the graph W of the {D.shape[0]} rows of D, got {got}."
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


def _largest_columns(bk: Any, D: Any, n_columns: int | None) -> Any:
    """Return the columns of largest norm, in their order, in float64."""
    xp = bk.xp
    if n_columns is None or n_columns >= D.shape[1]:
        return xp.ascontiguousarray(D, dtype=np.float64)
    norms = xp.empty(D.shape[1])
    for start in range(0, D.shape[1], bk.panel_width):
        panel = D[:, start : start + bk.panel_width].astype(np.float64)
        norms[start : start + bk.panel_width] = bk.column_dots(panel, panel)
    chosen = xp.sort(xp.argsort(-norms, kind="stable")[:n_columns])
    return D[:, chosen].astype(np.float64)


def _window(bk: Any, m: int, n_init: int, n_wanted: int) -> int:
    """Return how many k to try at once: what the backend likes, or is wanted anyway, and fits."""
    fitting = min(bk.free_memory() // 2, bk.sweep_bytes) // (RUN_BYTES * m * max(n_init, 1))
    return max(1, min(max(bk.sweep_window, n_wanted), fitting))


def _tries(
    D: Any,
    columns: Any,
    windows: Iterable[range],
    seeds: Any,
    n_init: int,
    n_pairs: Any,
    timings: Any,
) -> Iterator[tuple[int, KMeans, Any, tuple[float, tuple[int, int] | None]]]:
    """Yield k, its clustering, labels by size, and largest bound, once its window is computed."""
    bk = backend_of(D)
    for ks in windows:
        clock = time.perf_counter()
        own = {"seeds": [seeds[k] for k in ks], "sample_seed": seeds[0]}
        tried = kmeans_batch(columns, ks, **own, n_init=n_init)
        sizes = [int(found.centers.shape[0]) for found in tried]
        labels = by_size(bk.xp, bk.xp.stack([found.labels for found in tried]), max(sizes))
        bk.synchronize()
        timings["kmeans"] += time.perf_counter() - clock
        clock = time.perf_counter()
        bounds = largest_bounds(D, labels, sizes, n_pairs)
        timings["bounds"] += time.perf_counter() - clock
        yield from zip(ks, tried, labels, bounds, strict=True)


def by_size(xp: Any, labels: Any, k: int) -> Any:
    """Renumber the clusters by falling size, of equal sizes the one met first, the empty last.

    `labels` are of shape (m,), or (P, m) for several clusterings of at most k clusters each.
    """
    given, labels = labels, labels.reshape(-1, labels.shape[-1])
    P, m = labels.shape
    offsets = xp.arange(0, P * k, k)[:, None]
    small = labels.astype(np.int16) if k <= np.iinfo(np.int16).max else labels  # sorted sooner
    order = xp.argsort(small, axis=1, kind="stable")
    labels = labels + offsets  # the clusterings do not share a number
    in_order = xp.take_along_axis(labels, order, axis=1).ravel()
    start = xp.searchsorted(in_order, xp.arange(P * k + 1))
    first = order.ravel()[xp.minimum(start[:-1], P * m - 1)]
    slot = xp.arange(P * k)
    by_size = xp.lexsort(xp.stack([first, start[:-1] - start[1:], slot // k]))
    rank = xp.empty(P * k, dtype=np.int32)
    rank[by_size] = (slot % k).astype(np.int32)
    return rank[labels].reshape(given.shape)


def _reason(
    step: Step,
    n_found: int,
    log_alpha: float,
    powerless: bool,  # noqa: FBT001 - a private function
    n_clusters: int | None,
    min_clusters: int,
) -> str:
    k, log_p = step.k, step.decisive_log_p
    if n_clusters is not None:
        return "fixed by n_clusters: not tested"
    if n_found < k:
        return f"only {n_found} of the rows can be told apart: no more clusters are possible"
    if k == 1:
        return "accepted: one cluster leaves no pair to test"
    if k == min_clusters:
        return "accepted: fixed by min_clusters"
    if powerless and log_p > log_alpha:
        return NO_POWER
    if step.log_p_calibrated is not None:
        if log_p <= log_alpha:
            return "accepted: the graph is thinner between every pair"
        return (
            "rejected: the graph is hardly thinner between this pair than within, so they may be "
            "one"
        )
    if log_p <= log_alpha:
        return "accepted: every pair's bound is at most alpha"
    return "rejected: the bound of this pair is above alpha, so they may be one cluster"


def _conclude(
    steps: list[Step],
    alpha: float,
    selection: str,
    n_clusters: int | None,
    max_clusters: int,
    timings: dict[str, float],
) -> Sweep:
    """Decide, and say so where the limit on k was what ended the search."""
    log_p = [-math.inf]  # the first is taken to be right
    log_p += [step.decisive_log_p for step in steps[1:]]
    chosen = decide([step.k for step in steps], log_p, alpha=alpha, selection=selection)
    step = next(step for step in steps if step.k == chosen)
    limit_reached = n_clusters is None and chosen == max_clusters and len(steps) > 1
    if limit_reached:
        place = steps.index(step)
        steps[place] = step._replace(reason=step.reason + "; max_clusters reached")
        warnings.warn(
            f"the search ended at max_clusters={max_clusters} with the split still accepted: "
            "there may be more clusters. Raise max_clusters.",
            LimitWarning,
            stacklevel=4,
        )
    n_labels = int(step.labels.max()) + 1
    if n_clusters is None and n_labels > max(2, math.isqrt(int(step.labels.shape[0]))):
        warnings.warn(
            f"{n_labels} clusters are more than the square root of the {step.labels.shape[0]} "
            "rows: look at the path before you trust them.",
            LimitWarning,
            stacklevel=4,
        )
    return Sweep(n_labels, step.labels, Path(steps), limit_reached, timings)
