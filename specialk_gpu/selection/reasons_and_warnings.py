"""The reasons that a path gives for each number of clusters, and the warnings of a search."""

from __future__ import annotations

import math

from specialk_gpu._result import NO_POWER, Candidate
from specialk_gpu._time_limit import OutOfTime
from specialk_gpu._warnings import (
    CalibrationWarning,
    LimitWarning,
    PowerWarning,
    TimeLimitWarning,
    warn,
)
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.zz_top import attainable_log_p

__all__ = [
    "reason_by_bound",
    "reason_by_cut",
    "warn_of_few_columns",
    "warn_of_many_clusters",
    "warn_of_the_limit",
    "warn_of_the_test",
    "warn_of_the_time",
]

TRIED_ROWS, TRIED_ENTRIES = 60, 10  # the smallest graphs that the test was calibrated on
NO_MORE = "only {} clusters can be distinguished: no more are possible"
FIXED = "fixed by n_clusters: not tested"
FIRST = "start: one cluster, nothing to test"
LEAST = "accepted: fixed by min_clusters"


def reason_by_cut(
    level: int,
    k: int,
    own: float,
    pair: tuple[int, int] | None,
    log_alpha: float,
    n_clusters: int | None,
    min_clusters: int,
) -> str:
    """Return why a level was accepted or not, if the cut test chose k clusters.

    `own` is the log p of the level, and `pair` its least separate pair.
    """
    if n_clusters is not None:
        return FIXED if level == n_clusters else NO_MORE.format(level)
    if level == k < min_clusters:
        return NO_MORE.format(level)
    if level == 1:
        return FIRST
    if level == min_clusters:
        return LEAST
    if level > k:
        assert pair is not None
        return f"rejected: no clear gap between clusters {pair[0]} and {pair[1]}"
    if own <= log_alpha:
        return "accepted: a clear gap between every two clusters"
    return "accepted: a finer clustering has clear gaps"


def reason_by_bound(
    step: Candidate,
    n_found: int,
    log_alpha: float,
    n_clusters: int | None,
    min_clusters: int,
    *,
    powerless: bool,
) -> str:
    """Return why a clustering was accepted or not by the ZZ Top Bound.

    `n_found` is the number of clusters that k-means found; `powerless` says that no split could
    have been accepted.
    """
    if n_clusters is not None:
        return FIXED
    if n_found < step.k:
        return NO_MORE.format(n_found)
    if step.k == 1:
        return FIRST
    if step.k == min_clusters:
        return LEAST
    if powerless and step.log_p > log_alpha:
        return NO_POWER
    if step.log_p <= log_alpha:
        return "accepted: every pair's bound is at most alpha"
    return "rejected: the bound of this pair is above alpha; the two may be one cluster"


def reason_by_sweep(step: Candidate, chosen: int, stopping: str) -> str:
    """Return the reason of a row of the paper's sweep, once k is chosen."""
    tested = step.reason.startswith(("accepted: every", "rejected:"))
    if not tested or (step.reason == NO_POWER and step.k > chosen):
        return step.reason
    if stopping == "watershed":
        verdict = "accepted" if step.k <= chosen else "rejected"
        return f"{verdict}: certainty (1 minus the bound) drops most after k = {chosen}"
    if step.k > chosen and step.reason.startswith("accepted"):
        return "rejected: a smaller k was rejected, though every pair's bound is at most alpha"
    return step.reason


def warn_of_the_test(graphs: CutGraphs, alpha: float, *, powerless: bool) -> None:
    """Warn that no split can be accepted, and what would help; or that p may be wrong."""
    m, n_entries = graphs.n_distinct, graphs.near.S.nnz / graphs.n_distinct
    if not powerless:
        if m < TRIED_ROWS or n_entries < TRIED_ENTRIES:
            warn(
                f"the cut test was calibrated on graphs of at least {TRIED_ROWS} rows with "
                f"{TRIED_ENTRIES} entries each. This graph has {m} rows with {n_entries:.1f} on "
                "average: p may be too small, or too large.",
                CalibrationWarning,
            )
        return
    warn(
        f"{graphs.n_distinct} rows are too few for a split to be accepted at alpha={alpha:g}: each "
        f"is joined to {graphs.least_neighbors:.0f} others or more, and two perfectly separated "
        f"clusters would reach log10 p = {graphs.attainable_log_p() / math.log(10):.2f}. 'One "
        "cluster' then means 'not enough evidence'. Use more rows, a graph with fewer edges, or "
        "n_clusters=k.",
        PowerWarning,
    )


def warn_of_few_columns(m: int, n: int, alpha: float) -> None:
    """Warn that no split can be accepted, and say what would help."""
    warn(
        f"{m} rows in {n} columns are too few for a split to be accepted at alpha={alpha:g}: two "
        "perfectly separated clusters, each with its share of the columns, would reach log10 p = "
        f"{attainable_log_p(m, n) / math.log(10):.2f}. 'One cluster' then means 'not enough "
        "evidence'. Use more eigenvectors (n_components), more rows, or n_clusters=k.",
        PowerWarning,
    )


def warn_of_the_limit(limit: int, cause: str) -> None:
    """Warn that `max_clusters` ended the search, although `cause`."""
    warn(
        f"the search ended at max_clusters={limit}, and {cause}. Raise max_clusters.", LimitWarning
    )


def warn_of_the_time(end: OutOfTime, known: str) -> None:
    """Warn that the time limit ended the search, and say what is `known`."""
    warn(f"{end}. {known} Raise time_limit, or cluster a sample of the rows.", TimeLimitWarning)


def warn_of_many_clusters(k: int, n_rows: int) -> None:
    """Warn if there are more clusters than the square root of the number of rows."""
    if k > max(2, math.isqrt(n_rows)):
        warn(
            f"{k} clusters are more than the square root of the {n_rows} rows: look at the path "
            "before you trust them.",
            LimitWarning,
        )
