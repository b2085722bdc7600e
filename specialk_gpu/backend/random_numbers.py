"""Pseudo-random numbers from hashes: the same on every backend, computed where they are needed."""

from __future__ import annotations

import numpy as np

from specialk_gpu.backend.typing import Array

__all__ = ["ODD", "uniform"]

ODD = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)  # factors that tell columns, and rows, apart
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def uniform(keys: Array) -> Array:
    """Return a float64 number in [0, 1) for each uint64 key; the keys are overwritten.

    This is the finaliser of SplitMix64, but for its last step.
    """
    for shift, factor in zip((30, 27), MIX, strict=True):
        keys ^= keys >> np.uint64(shift)
        keys *= np.uint64(factor)
    return (keys >> np.uint64(11)) * 2.0**-53
