"""Medians, centres and widths of columns."""

from __future__ import annotations

import math

import numpy as np

from specialk_gpu.tables.table import option

__all__ = ["median_for_scaling", "scaling_of"]


def _known_for_scaling(column: np.ndarray) -> np.ndarray:
    return column[~np.isnan(column)] if column.dtype.kind == "f" else column


def median_for_scaling(column: np.ndarray, name: str) -> float:
    """Return the median of the numbers of a column; `name` is for the error if there are none."""
    known = _known_for_scaling(column)
    if not len(known):
        msg = f"column {name!r} has no number, so it has no median: {option('--drop', [name])}"
        raise ValueError(msg)
    return float(np.median(known))


def scaling_of(column: np.ndarray, name: str, how: str) -> tuple[float, float]:
    """Return the centre and the width of a column; a constant column has width 1.

    Parameters
    ----------
    column : ndarray of shape (m,)
        Blanks, as NaN, are left out.
    name : str
        Its name, for the error.
    how : {"standard", "robust"}
        What centre and width are.

    Returns
    -------
    center, width : float

    Raises
    ------
    ValueError
        If the entries are so large or so small that their squares leave float64.
    """
    with np.errstate(all="ignore"):  # such widths are refused
        center, width = _scaling_center_and_width(
            _known_for_scaling(column).astype(np.float64), how
        )
    if not (math.isfinite(center) and 0 < width < math.inf):
        msg = f"column {name!r} has entries that are infinite, or too large or too small to be "
        msg += f"scaled; add {option('--drop', [name])}"
        raise ValueError(msg)
    return center, width


def _scaling_center_and_width(column: np.ndarray, how: str) -> tuple[float, float]:
    if not len(column):
        return 0.0, 1.0
    if column.min() == column.max():  # its standard deviation may be a rounding error
        return float(column[0]), 1.0
    mean, deviation = float(column.mean()), float(column.std())
    if how == "standard":
        return mean, deviation
    low, middle, high = np.percentile(column, [25, 50, 75])
    # Quartiles that are equal say nothing of the other values.
    return float(middle), float(high - low) or deviation
