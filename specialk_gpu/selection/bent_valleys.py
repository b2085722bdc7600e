"""Bent pairs of clusters: the rows in the valley between the two are not spread around the line."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["is_valley_bent"]

BENT = 0.8  # a pair is bent if its valley is further off the line, in standard deviations
HALF_DEVIATION, ON_THE_LINE = 0.5, 0.15  # so near to the line must be this share of the valley


def is_valley_bent(Y: np.ndarray, place: np.ndarray, sizes: np.ndarray) -> bool:
    """Return whether a pair is bent, from the rows (n, d) in its three windows and their places.

    The line is fitted through the rows of all windows, and deviations are measured from it. The
    pair is bent if the rows in the valley lie to one side; or if few of them are in the middle, in
    the direction in which they are widest compared with the rows beside the valley.
    """
    if not sizes.all():
        return bool(sizes[0])  # without rows in the valley nothing is bent
    Y = Y - Y.mean(axis=0)
    t = place - place.mean()
    Y -= np.outer(t, t @ Y / (t @ t))
    valley, *sides = np.split(Y, np.cumsum(sizes)[:-1])
    offset = valley.mean(axis=0) - sum(side.mean(axis=0) for side in sides) / 2
    own, beside = _covariance_at_valley(valley), sum(map(_covariance_at_valley, sides)) / 2
    values, axes = np.linalg.eigh(own + beside)
    known = values > 0.01 * values[-1]
    if not known.any():
        return False  # all rows are on the line
    axes = axes[:, known] / np.sqrt(values[known])  # in which own + beside is the identity
    squared = ((offset @ axes) ** 2).sum()
    shares, turned = np.linalg.eigh(axes.T @ own @ axes)
    widest = (valley - valley.mean(axis=0) + offset) @ axes @ turned[:, -1]
    n_near = (abs(widest) <= HALF_DEVIATION * math.sqrt(max(shares[-1], 0.0))).sum()
    by_chance = known.sum() / (2 * len(valley))
    return bool(squared - by_chance > BENT**2 or n_near < ON_THE_LINE * len(valley) - 1)


def _covariance_at_valley(Y: np.ndarray) -> np.ndarray:
    """Return the covariance (d, d) of rows (n, d)."""
    Y = Y - Y.mean(axis=0)
    return Y.T @ Y / len(Y)
