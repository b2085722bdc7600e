"""The parameters of an estimator: their types, their limits, and alpha by default."""

from __future__ import annotations

from numbers import Integral
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from specialk_gpu._checks import checked_integer, checked_positive

__all__ = [
    "Parameters",
    "check_parameter_counts",
    "check_parameter_limits",
    "checked_parameters",
    "significance_level",
]

NUMBERS = ("alpha", "coverage", "drop_correlated", "noise", "tol", "time_limit")
FAR = 4.0  # rows of a larger outlier score are outliers with noise=True
LEVELS = {"cut": 0.05, "zz_top": 0.01}  # alpha by default


class Parameters(Protocol):
    """The parameters of an estimator, which `specialk_gpu.SpecialK` describes."""

    alpha: float | None
    n_clusters: int | None
    min_clusters: int
    max_clusters: int | None
    criterion: str
    stopping: str
    affinity: str
    n_neighbors: int
    coverage: float
    weights: str
    normalize: bool
    n_components: int | str
    n_kmeans_components: int | None
    drop_correlated: float | None
    full_path: bool
    n_pairs: int | None
    n_init: int
    noise: float | None
    eigen_solver: str
    tol: float
    time_limit: float | None


def checked_parameters(model: BaseEstimator) -> Any:
    """Return the parameters of an estimator; NumPy's integers become Python's, and `noise` a level.

    Raises
    ------
    TypeError
        If a number is given as a truth value.
    """
    given = model.get_params(deep=False)
    for name, value in given.items():
        if name in ("full_path", "normalize", "verbose", "random_state"):
            continue
        if name == "noise" and isinstance(value, (bool, np.bool)):
            given[name] = FAR if value else None
        elif name in NUMBERS and value is not None:
            given[name] = checked_positive(name, value)
        elif isinstance(value, Integral):
            given[name] = checked_integer(name, value, 1)
    return SimpleNamespace(**given)


def significance_level(model: Parameters) -> float:
    """Return `alpha`, or the default of the criterion if it is None."""
    return LEVELS[model.criterion] if model.alpha is None else model.alpha


def check_parameter_counts(model: Parameters, m: int, rows: str) -> None:
    """Raise a ValueError if more clusters than rows are requested, before any work is done."""
    for name in ("n_clusters", "min_clusters"):
        value = getattr(model, name)
        if value is not None and value > m and (name == "n_clusters" or not model.n_clusters):
            msg = f"{name} must lie between 1 and the number of {rows} ({m}), got {value}."
            raise ValueError(msg)


def check_parameter_limits(model: Parameters) -> None:
    """Raise a ValueError if the numbers of clusters contradict each other."""
    if model.noise and model.affinity == "precomputed":
        msg = (
            "noise must be None with affinity='precomputed', because outliers are found by their "
            f"distances, got {model.noise:g} (True means {FAR:g})."
        )
        raise ValueError(msg)
    k, least = model.n_clusters, model.min_clusters
    most = np.inf if model.max_clusters is None else model.max_clusters
    if least > most:
        msg = (
            "min_clusters must be at most max_clusters, got "
            f"min_clusters={least}, max_clusters={most}."
        )
        raise ValueError(msg)
    if k is not None and not least <= k <= most:
        msg = (
            "n_clusters must lie between min_clusters and max_clusters, got "
            f"n_clusters={k}, min_clusters={least}, max_clusters={model.max_clusters}."
        )
        raise ValueError(msg)
