"""Discrete columns, spread over the room between their values, so that one mode is one peak.

The test of valleys counts rows half-way between two clusters. A column of few values, such as a
yes or no, has nothing half-way between them, whether there are two clusters or one. So each value
is spread evenly over the room up to the middle between it and its neighbours. A discrete column
with one mode then has a density with a single peak.
"""

from __future__ import annotations

import math

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.random_numbers import ODD, uniform
from specialk_gpu.backend.typing import Array

__all__ = ["spread_discrete_columns"]

# A column is discrete if it has few values, each is repeated, and the steps between them are wide.
FEW_VALUES = 20
REPEATS = 3  # times that a value occurs in the sample, on average
WIDE_STEP = 0.5  # standard deviations, on average
MOST_COLUMNS = 100  # with more columns, a line between two means is made of many of them
SAMPLED = 2**10  # rows from which the values of a column are taken


def spread_discrete_columns(X: Array) -> Array:
    """Return rows (m, d) with spread values in discrete columns; X itself if no column is discrete.

    Where a value lies within its room depends on the whole row alone, neither on the order of the
    rows nor on a power of two as their unit.
    """
    bk = backend_of(X)
    xp, (m, d) = bk.xp, X.shape
    if d > MOST_COLUMNS:
        return X
    sample = xp.sort(X[:: -(-m // SAMPLED)].astype(np.float64), axis=0)
    discrete = _discrete_columns(sample)
    if not discrete:
        return X
    values = [np.unique(column) for column in bk.to_numpy(sample[:, discrete]).T]  # host waits
    out = X.astype(np.float64)  # makes a copy
    unit = 2.0 ** -math.frexp(float(xp.abs(out).max()))[1]  # host waits
    draws = np.random.default_rng(0).integers(2**63, size=d, dtype=np.int64)
    keys = bk.row_hashes(out * unit, bk.asarray(draws.astype(np.uint64) * 2 + 1))
    for j, found in zip(discrete, values, strict=True):
        middle = (found[1:] + found[:-1]) / 2
        first, last = 2 * found[0] - middle[0], 2 * found[-1] - middle[-1]
        edges = np.concatenate([[first], middle, [last]])  # of the rooms
        low, width = bk.asarray(edges[:-1]), bk.asarray(np.diff(edges))
        room = xp.searchsorted(bk.asarray(middle), out[:, j])
        column = np.uint64((j + 1) * ODD[0] % 2**64)
        out[:, j] = low[room] + width[room] * uniform(keys ^ column)
    return out


def _discrete_columns(sample: Array) -> list[int]:
    """Return the discrete columns of rows (s, d) whose columns are sorted, each by itself."""
    bk = backend_of(sample)
    counts = (sample[1:] != sample[:-1]).sum(axis=0) + 1
    steps = (sample[-1] - sample[0]) / bk.xp.maximum(counts - 1, 1)  # on average
    few = (counts > 1) & (counts <= FEW_VALUES) & (counts * REPEATS <= sample.shape[0])
    wide = steps >= WIDE_STEP * sample.std(axis=0)
    return np.flatnonzero(bk.to_numpy(few & wide)).tolist()  # host waits
