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
    from specialk_gpu.selection.bounds import attainable_log_p, cluster_stats, zz_top
    from specialk_gpu.selection.cut_test import cut_test
    from specialk_gpu.selection.path import CalibrationWarning, LimitWarning, PowerWarning
    from specialk_gpu.selection.sweep import decide, sweep
    from specialk_gpu.specialk import SpecialK

__version__ = "0.1.0"

_HOME = {
    "SpecialK": "specialk",
    "CalibrationWarning": "selection.path",
    "ConvergenceError": "chebyshev",
    "CopiesWarning": "duplicates",
    "GraphWarning": "graph",
    "LimitWarning": "selection.path",
    "PowerWarning": "selection.path",
    "affinity_matrix": "graph",
    "attainable_log_p": "selection.bounds",
    "cluster_stats": "selection.bounds",
    "cut_test": "selection.cut_test",
    "decide": "selection.sweep",
    "eigenpairs": "eigen",
    "embed": "embedding",
    "kmeans": "kmeans",
    "knn_graph": "graph",
    "nearest_neighbors": "neighbors",
    "neighbors_among": "neighbors",
    "neighbors_graph": "graph",
    "radius_graph": "graph",
    "sweep": "selection.sweep",
    "zz_top": "selection.bounds",
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
    "cut_test",
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
    """Keeps `kmeans` the function when the module of that name is loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOME or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
