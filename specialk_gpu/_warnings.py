"""The warnings of the library, which point at the line of the user's code that calls it."""

from __future__ import annotations

import sys
import warnings

__all__ = [
    "CalibrationWarning",
    "DuplicateRowsWarning",
    "GraphWarning",
    "LimitWarning",
    "PowerWarning",
    "ScaleWarning",
    "TimeLimitWarning",
    "warn",
    "warn_deprecated",
]

INSIDE = {__name__.partition(".")[0], "sklearn", "joblib"}  # the latter two, e.g. in a pipeline


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning for the nearest caller outside the package and scikit-learn."""
    frame, level = sys._getframe(), 1  # noqa: SLF001 - warnings itself does so
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in INSIDE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_deprecated(old: str, new: str, removed_in: str) -> None:
    """Warn that `old` still works, that `new` replaces it, and when it will be removed."""
    warn(f"{old} is deprecated and will be removed in {removed_in}: use {new}.", FutureWarning)


class PowerWarning(UserWarning):
    """Too few rows or columns to accept even a clear split: k = 1 is no evidence."""


class LimitWarning(UserWarning):
    """The search ended at `max_clusters`, or with more clusters than √m: check the path."""


class ScaleWarning(UserWarning):
    """The spreads of the columns differ a hundredfold: the widest alone decide the clusters."""


class TimeLimitWarning(UserWarning):
    """The fit came to `time_limit` and ended with what was known: there may be more clusters."""


class CalibrationWarning(UserWarning):
    """The cut test was not calibrated on this kind of graph, so its p may be too small."""


class GraphWarning(UserWarning):
    """The graph has isolated rows, several components, or fewer neighbours than requested."""


class DuplicateRowsWarning(UserWarning):
    """Rows are repeated so often that only the distinct ones are clustered."""
