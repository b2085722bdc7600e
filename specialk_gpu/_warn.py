"""Warnings that point at the line of the user's code that calls the library."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn", "warn_deprecated"]

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
