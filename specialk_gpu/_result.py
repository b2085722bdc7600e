"""The path: one row for every number of clusters, with its p and the reason."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = [
    "NO_POWER",
    "CalibrationWarning",
    "LimitWarning",
    "SelectionPath",
    "PowerWarning",
    "Candidate",
]

NO_POWER = "rejected: the test has no power on these data"
SMALL = -3 * math.log(10)  # log p below which the cut test's p is printed as "< 0.001"


class PowerWarning(UserWarning):
    """Too few rows, or columns, for a clear split to be accepted: k = 1 may say nothing."""


class LimitWarning(UserWarning):
    """The search ended at `max_clusters`, or with clusters of very few rows: look at the path."""


class CalibrationWarning(UserWarning):
    """The cut test was not calibrated on graphs of this kind: its p may be too small."""


class Candidate(NamedTuple):
    """One k of the path.

    Attributes
    ----------
    k : int
        Number of clusters.
    log_p : float
        Natural logarithm of the p that decides; -inf for k = 1, where there is no pair. By the cut
        test, the least p of all clusterings into k or more clusters that were looked at; by the
        ZZ Top Bound, the largest bound over the pairs.
    pair : tuple of two int, or None
        The labels of the least separate pair.
    accepted : bool
        Whether the decision is for k clusters, or more.
    reason : str
        Why, in words.
    labels : int32 array of shape (m,)
        In 0, ..., k - 1, by falling size of the cluster.
    log_p_level : float or None
        By the cut test, the p of this clustering itself.
    log_zz_top : float or None
        The largest bound over the pairs, where it was computed.
    inertia : float or None
        Of the best k-means restart, for criterion="zz_top".
    """

    k: int
    log_p: float
    pair: tuple[int, int] | None
    accepted: bool
    reason: str
    labels: Any
    log_p_level: float | None = None
    log_zz_top: float | None = None
    inertia: float | None = None


class SelectionPath(tuple):
    """The steps of a search, by rising k. `criterion` is the rule that decided."""

    def __new__(cls, steps: Any, criterion: str) -> SelectionPath:
        """Make a path of steps."""
        path = super().__new__(cls, steps)
        path.criterion = criterion
        return path

    def __reduce__(self) -> Any:
        """Pickle the steps and the rule."""
        return SelectionPath, (tuple(self), self.criterion)

    def with_labels(self, function: Any) -> SelectionPath:
        """Return a path whose labels are changed by a function."""
        steps = (step._replace(labels=function(step.labels)) for step in self)
        return SelectionPath(steps, self.criterion)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per k, without the labels.

        Beside `log_p`, which decides, stands `log10_p`. Columns that the rule does not have are
        left out. The rule is in ``frame.attrs["criterion"]``. Needs pandas.
        """
        import pandas as pd

        frame = pd.DataFrame([step._asdict() for step in self], columns=Candidate._fields)
        frame = frame.drop(columns="labels")
        frame.insert(2, "log10_p", frame["log_p"] / math.log(10))
        frame = frame.drop(columns=[c for c in Candidate._fields[6:] if frame[c].isna().all()])
        frame.attrs["criterion"] = self.criterion
        return frame

    def __str__(self) -> str:
        """Lay the path out as a table, headed by the name of the rule."""
        cut = self.criterion == "cut"
        if cut:
            columns, rule = f"{'p':>9} {'own p':>9}", "cut test"
        else:
            columns, rule = f"{'log10 p':>9} {'inertia':>12}", "ZZ Top Bound [HD19]"
        lines = [f"{'k':>4} {columns} {'pair':>9} {'accepted':>9}  reason ({rule})"]
        for step in self:
            pair = "" if step.pair is None else f"{step.pair[0]}, {step.pair[1]}"
            if cut:
                values = f"{_p(step.log_p, step.k):>9} {_p(step.log_p_level, step.k):>9}"
            else:
                values = f"{step.log_p / math.log(10):>9.2f} {step.inertia:>12.6g}"
            accepted = "yes" if step.accepted else "no"
            lines.append(f"{step.k:>4} {values} {pair:>9} {accepted:>9}  {step.reason}")
        return "\n".join(lines)


def _p(log_p: float | None, k: int) -> str:
    """Print a p of the cut test: its law is not known far out in the tail."""
    if k == 1 or log_p is None:
        return ""
    return "< 0.001" if log_p < SMALL else f"{math.exp(log_p):.3f}"
