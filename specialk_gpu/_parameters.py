"""The parameters of an estimator: their types, their limits, and alpha by default."""

from __future__ import annotations

from numbers import Integral, Real
from os import PathLike
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from specialk_gpu._affinities import AFFINITIES, is_graph
from specialk_gpu._checks import checked_integer, checked_number, checked_positive
from specialk_gpu._units import bytes_of
from specialk_gpu._warnings import warn
from specialk_gpu.backend import BACKENDS
from specialk_gpu.graph.features import METRICS
from specialk_gpu.graph.knn import WEIGHTS
from specialk_gpu.selection.sweep import STOPPING
from specialk_gpu.spectrum.eigenpairs import SOLVERS

__all__ = [
    "CONSTRAINTS",
    "Parameters",
    "check_parameter_counts",
    "check_parameter_limits",
    "checked_parameters",
    "significance_level",
    "warn_of_idle_parameters",
]

NUMBERS = ("alpha", "coverage", "drop_correlated", "noise", "tol", "time_limit")
FAR = 4.0  # rows of a larger outlier score are outliers with noise=True
OF_ZZ_TOP = ("stopping", "n_kmeans_components", "n_pairs", "n_init")
LEVELS = {"cut": 0.05, "zz_top": 0.01}  # alpha by default


class _Affinities(StrOptions):
    """The values of `affinity`, with advice on kernels and distances for those who give others."""

    def __str__(self) -> str:
        """Return the values, and the advice."""
        return (
            f"{super().__str__()} (for a kernel such as 'rbf', compute its matrix and fit that "
            "with affinity='precomputed'; for a sparse matrix of distances, with "
            "'precomputed_nearest_neighbors')"
        )


CONSTRAINTS: dict[str, list[Any]] = {
    "alpha": [Interval(Real, 0, 1, closed="neither"), None],
    "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
    "min_clusters": [Interval(Integral, 1, None, closed="left")],
    "max_clusters": [Interval(Integral, 1, None, closed="left"), None],
    "criterion": [StrOptions({"cut", "zz_top"})],
    "stopping": [StrOptions(set(STOPPING))],
    "affinity": [_Affinities(set(AFFINITIES))],
    "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    "neighbors": [
        StrOptions({"exact", "approximate", "given"}),
        tuple,
        HasMethods(["fit_transform", "set_params"]),
    ],
    "min_recall": [Interval(Real, 0, 1, closed="both")],
    "coverage": [Interval(Real, 0, 1, closed="right")],
    "weights": [StrOptions(set(WEIGHTS))],
    "normalize": ["boolean"],
    "metric": [StrOptions(set(METRICS))],
    "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "n_kmeans_components": [Interval(Integral, 1, None, closed="left"), None],
    "drop_correlated": [Interval(Real, 0, 1, closed="neither"), None],
    "full_path": ["boolean"],
    "n_pairs": [Interval(Integral, 1, None, closed="left"), None],
    "n_init": [Interval(Integral, 1, 2**31 - 1, closed="both")],
    "noise": [Interval(Real, 1, None, closed="left"), "boolean", None],
    "eigen_solver": [StrOptions(set(SOLVERS))],
    "tol": [Interval(Real, 0, None, closed="neither")],
    "backend": [StrOptions(set(BACKENDS))],
    "time_limit": [Interval(Real, 0, None, closed="neither"), None],
    "memory_limit": [Interval(Integral, 1, None, closed="left"), str, None],
    "checkpoint": [str, PathLike, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


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
    neighbors: Any
    min_recall: float
    coverage: float
    weights: str
    normalize: bool
    metric: str
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
    memory_limit: int | None
    checkpoint: str | PathLike[str] | None


def checked_parameters(model: BaseEstimator) -> Any:
    """Return the parameters of an estimator; NumPy's integers become Python's, and `noise` a level.

    Raises
    ------
    TypeError
        If a number is given as a truth value.
    ValueError
        If `memory_limit` is text that is not a size.
    """
    given = model.get_params(deep=False)
    for name, value in given.items():
        if name in ("full_path", "normalize", "verbose", "random_state"):
            continue
        if name == "noise" and isinstance(value, (bool, np.bool)):
            given[name] = FAR if value else None
        elif name == "memory_limit" and isinstance(value, str):
            given[name] = bytes_of(value)
            if not given[name]:
                msg = f"memory_limit must be a size such as '1GB', or bytes, got {value!r}."
                raise ValueError(msg)
        elif name in NUMBERS and value is not None:
            given[name] = checked_positive(name, value)
        elif name == "min_recall":
            given[name] = checked_number(name, value)  # 0 never warns
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
    exact = isinstance(model.neighbors, str) and model.neighbors == "exact"
    if model.affinity != "nearest_neighbors" and not exact:
        msg = (
            f"neighbors must be 'exact' with affinity={model.affinity!r}: only the graph of "
            "nearest neighbours can be built from lists."
        )
        raise ValueError(msg)
    if model.noise and is_graph(model.affinity):
        msg = (
            f"noise must be None with affinity={model.affinity!r}, because outliers are found by "
            f"their distances, got {model.noise:g} (True means {FAR:g})."
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


def warn_of_idle_parameters(model: BaseEstimator) -> None:
    """Warn of parameters that are not at their defaults, though the cut test does not use them."""
    given, usual = model.get_params(deep=False), type(model)().get_params(deep=False)
    if given["criterion"] == "zz_top":
        return
    idle = [f"{name}={given[name]!r}" for name in OF_ZZ_TOP if given[name] != usual[name]]
    if idle:
        named = ", ".join(idle)
        warn(f"without criterion='zz_top', this has no effect: {named}.", UserWarning)
