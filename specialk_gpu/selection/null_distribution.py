"""The null distribution of the cut test: how thin a border looks inside one cluster.

The statistic of a pair of clusters is

    z = 2 (√(0.7 within) - √between),

where `between` is the weight of the cut at their border, and `within` the lighter of the heaviest
cuts on its two sides. Each row of the graph has weight 1, so the weight of a cut is about the
number of rows that lie along it, and its square root varies by about the same amount for every
weight. The factor 0.7 is for cuts away from the border, which are rougher. z was simulated on data
sets without clusters (benchmarks/calibration). It follows a half-normal distribution, or lies below
it. The scale depends on the length of the pair: the rows of the two clusters divided by `within`. A
ball in many dimensions is short and has a small z; a thread is long, and its thinnest place may be
anywhere. There is one null distribution for rows, and a wider one for given graphs (null.json).
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from typing import TypeAlias

import numpy as np
from scipy.special import log_ndtr

__all__ = [
    "bonferroni_log_p",
    "decisive_log_p_under_null",
    "isolation_log_p_under_null",
    "local_dimension",
    "log_p_under_null",
    "null_law",
    "z_under_null",
]

Numbers: TypeAlias = float | np.ndarray
ROUGH = 0.7  # ratio of the weight of a smooth cut to that of a rough one
SHORTEST = 1e-300  # replaces a length of 0


@cache
def null_law(law: str) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths, and the scale of z at each; `law` is the case, "rows" or "graph"."""
    laws = json.loads(
        files("specialk_gpu.selection").joinpath("null.json").read_text(encoding="utf-8")
    )
    return np.array(laws[law]["length"], dtype=np.float64), np.array(laws[law]["scale"])


def z_under_null(between: Numbers, within: Numbers) -> np.ndarray:
    """Return how much thinner a border is, in units of random variation; 0 if it is not."""
    return np.maximum(
        0.0, 2 * (np.sqrt(ROUGH * np.asarray(within)) - np.sqrt(np.maximum(between, 0.0)))
    )


def log_p_under_null(
    between: Numbers,
    within: Numbers,
    length: Numbers,
    law: str,
    wider: Numbers = 1.0,
    laws: dict[str, tuple[np.ndarray, np.ndarray]] | None = None,
) -> np.ndarray:
    """Return the natural logarithm of the probability of such a border inside one cluster.

    Parameters
    ----------
    between, within, length : array-like of shape (p,)
    law : {"rows", "graph"}
        The null distribution: for rows, or for given graphs.
    wider : float or array of shape (p,)
        Factor on the scale of the null distribution.
    laws : dict, optional
        Lengths and scales for each `law`, in place of those in null.json.

    Returns
    -------
    float64 array of shape (p,)
        It is 0 where `within` is 0.
    """
    lengths, scales = null_law(law) if laws is None else laws[law]
    scale = np.interp(np.log(np.maximum(length, SHORTEST)), np.log(lengths), scales)
    return math.log(2) + log_ndtr(-z_under_null(between, within) / (wider * scale))


def decisive_log_p_under_null(log_p: Numbers, isolation: Numbers, k: int) -> np.ndarray:
    """Return the log p of pairs among k clusters.

    One of k - 1 clusters was split, the one where the split looked best. So the p of a border is
    multiplied by k - 1. The p of `isolation` holds for any k without this factor; the smaller of
    the two counts.
    """
    return np.minimum(log_p + math.log(k - 1), isolation)


def bonferroni_log_p(log_p: Numbers, other: Numbers) -> np.ndarray:
    """Return the log p of two tests together: twice the smaller p, but at most 1."""
    return np.minimum(0.0, np.minimum(log_p, other) + math.log(2))


def isolation_log_p_under_null(
    n_rows: int, n_nearer: Numbers, dimension: float = 1.0
) -> np.ndarray:
    """Return the log p of a gap with `n_nearer` rows nearer than its far side.

    Along a line, one given gap among `n_rows` rows has a probability of 2^-n_nearer at most. In
    more dimensions, each of these rows is nearer, rather than in the gap, with a probability below
    one half, down to 2^-dimension: it is 1/e if the gap lies straight across a strip as wide as
    itself, and less if it surrounds a piece of the plane.
    """
    bits = np.asarray(n_nearer) * dimension
    return np.minimum(0.0, math.log(n_rows) - bits * math.log(2))


def local_dimension(distances: np.ndarray, most: float = 1.5) -> float:
    """Estimate the dimension in which rows lie from their distances (s, s), from 1 to `most`.

    Its reciprocal is the mean logarithm of a row's farthest distance divided by its other distances
    [LB05]. If rows are equal, or few, the dimension is taken to be 1.
    """
    D = np.sort(distances, axis=1)[:, 1:]
    if D.shape[1] < 3 or not D.all():
        return 1.0
    mean = np.log(D[:, -1:] / D[:, :-1]).mean()
    return float(np.clip(1 / mean, 1.0, most)) if mean > 0 else 1.0
