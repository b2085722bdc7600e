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
from specialk_gpu.backend.typing import Array

__all__ = ["spread_values"]

LEVELS, REPEATS = (
    20,
    3,
)  # a column is discrete with so many values at most, each so often on average
WIDE_STEP = 0.5  # and if a step between two of them is so many deviations wide, on average
MOST_COLUMNS = 100  # with more columns, a line between two means is made of many of them
SAMPLED = 2**10  # rows from which the values of a column are taken
MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # odd numbers of splitmix64


def spread_values(X: Array) -> Array:
    """Return rows (m, d) with spread values in discrete columns; X itself if no column is discrete.

    Where a value lies within its room depends on the whole row alone, neither on the order of the
    rows nor on a power of two as their unit.
    """
    bk = backend_of(X)
    xp, (m, d) = bk.xp, X.shape
    if d > MOST_COLUMNS:
        return X
    sample = xp.sort(X[:: -(-m // SAMPLED)].astype(np.float64), axis=0)
    changes = (sample[1:] != sample[:-1]).sum(axis=0).astype(np.float64)
    found = xp.stack([changes, sample[-1] - sample[0], sample.std(axis=0)])
    changes, width, deviation = bk.to_numpy(found)  # host waits
    few = (changes > 0) & (changes < LEVELS) & ((changes + 1) * REPEATS <= len(sample))
    discrete = np.flatnonzero(few & (width >= WIDE_STEP * deviation * changes))
    if not discrete.size:
        return X
    out = X.astype(np.float64)  # makes a copy
    unit = 2.0 ** -math.frexp(float(xp.abs(out).max()))[1]
    draws = np.random.default_rng(0).integers(2**63, size=d, dtype=np.int64)
    keys = bk.row_hashes(out * unit, bk.asarray(draws.astype(np.uint64) * 2 + 1))
    for j in discrete.tolist():
        values = xp.unique(sample[:, j])
        middle = (values[1:] + values[:-1]) / 2
        low = xp.concatenate([2 * values[:1] - middle[:1], middle])
        high = xp.concatenate([middle, 2 * values[-1:] - middle[-1:]])
        place = xp.searchsorted(middle, out[:, j])
        out[:, j] = low[place] + (high - low)[place] * _uniform(keys, j)
    return out


def _uniform(keys: Array, j: int) -> Array:
    """Return a number in [0, 1) for each key (m,) of uint64 and column j."""
    first, second, third = (np.uint64(x) for x in MIX)
    z = keys ^ np.uint64((j + 1) * MIX[0] % 2**64)
    z = z * first
    z ^= z >> np.uint64(30)
    z *= second
    z ^= z >> np.uint64(27)
    z *= third
    return (z ^ (z >> np.uint64(31))) * 2.0**-64
