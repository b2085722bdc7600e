"""Cluster large data sets without knowing how many clusters they have.

`SpecialK` is the estimator; the functions are its stages, which work on NumPy and CuPy arrays
alike. Names are loaded when they are first used: importing the package is cheap, and CuPy is
imported only when CUDA is asked for.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specialk_gpu.bounds import attainable_log_p, cluster_stats, zz_top
    from specialk_gpu.chebyshev import ConvergenceError
    from specialk_gpu.duplicates import CopiesWarning
    from specialk_gpu.eigen import eigenpairs
    from specialk_gpu.embedding import embed
    from specialk_gpu.graph import (
        GraphWarning,
        affinity_matrix,
        knn_graph,
        neighbors_graph,
        radius_graph,
    )
    from specialk_gpu.kmeans import kmeans
    from specialk_gpu.neighbors import nearest_neighbors, neighbors_among
    from specialk_gpu.specialk import SpecialK
    from specialk_gpu.sweep import CalibrationWarning, LimitWarning, PowerWarning, decide, sweep

__version__ = "0.1.0"

_HOME = {
    "SpecialK": "specialk",
    "CalibrationWarning": "sweep",
    "ConvergenceError": "chebyshev",
    "CopiesWarning": "duplicates",
    "GraphWarning": "graph",
    "LimitWarning": "sweep",
    "PowerWarning": "sweep",
    "affinity_matrix": "graph",
    "attainable_log_p": "bounds",
    "cluster_stats": "bounds",
    "decide": "sweep",
    "eigenpairs": "eigen",
    "embed": "embedding",
    "kmeans": "kmeans",
    "knn_graph": "graph",
    "nearest_neighbors": "neighbors",
    "neighbors_among": "neighbors",
    "neighbors_graph": "graph",
    "radius_graph": "graph",
    "sweep": "sweep",
    "zz_top": "bounds",
}

__all__ = [
    "CalibrationWarning",
    "ConvergenceError",
    "CopiesWarning",
    "GraphWarning",
    "LimitWarning",
    "PowerWarning",
    "SpecialK",
    "__version__",
    "affinity_matrix",
    "attainable_log_p",
    "cluster_stats",
    "decide",
    "eigenpairs",
    "embed",
    "kmeans",
    "knn_graph",
    "nearest_neighbors",
    "neighbors_among",
    "neighbors_graph",
    "radius_graph",
    "sweep",
    "zz_top",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"specialk_gpu.{_HOME[name]}"), name)
    msg = f"module 'specialk_gpu' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


class _Package(ModuleType):
    """Keeps `sweep` and `kmeans` the functions when the modules of those names are loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOME or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
