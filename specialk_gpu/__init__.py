"""Cluster large data sets without knowing how many clusters they have.

`SpecialK` is the estimator. The functions are its stages; they accept NumPy and CuPy arrays.
Each name is loaded when it is first used, so importing the package is cheap, and CuPy is imported
only when CUDA is requested.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from specialk_gpu._version import __version__

if TYPE_CHECKING:
    from specialk_gpu._cost import estimate
    from specialk_gpu._estimator import SpecialK
    from specialk_gpu._warnings import (
        CalibrationWarning,
        DuplicateRowsWarning,
        GraphWarning,
        LimitWarning,
        PowerWarning,
        ScaleWarning,
        TimeLimitWarning,
    )
    from specialk_gpu.graph.affinity import affinity_matrix
    from specialk_gpu.graph.knn import knn_graph, neighbors_graph
    from specialk_gpu.graph.neighbors import nearest_neighbors, neighbors_among
    from specialk_gpu.graph.radius import radius_graph
    from specialk_gpu.graph.transformer import ExactNeighborsTransformer
    from specialk_gpu.lloyd.kmeans import kmeans
    from specialk_gpu.selection.cut_test import cut_test
    from specialk_gpu.selection.sweep import decide, sweep
    from specialk_gpu.selection.zz_top import attainable_log_p, cluster_stats, zz_top
    from specialk_gpu.spectrum.convergence import ConvergenceError
    from specialk_gpu.spectrum.eigenpairs import eigenpairs
    from specialk_gpu.spectrum.embedding import embed

_HOME = {
    "SpecialK": "_estimator",
    "CalibrationWarning": "_warnings",
    "ConvergenceError": "spectrum.convergence",
    "DuplicateRowsWarning": "_warnings",
    "ExactNeighborsTransformer": "graph.transformer",
    "GraphWarning": "_warnings",
    "LimitWarning": "_warnings",
    "PowerWarning": "_warnings",
    "ScaleWarning": "_warnings",
    "TimeLimitWarning": "_warnings",
    "affinity_matrix": "graph.affinity",
    "attainable_log_p": "selection.zz_top",
    "cluster_stats": "selection.zz_top",
    "cut_test": "selection.cut_test",
    "decide": "selection.sweep",
    "eigenpairs": "spectrum.eigenpairs",
    "embed": "spectrum.embedding",
    "estimate": "_cost",
    "kmeans": "lloyd.kmeans",
    "knn_graph": "graph.knn",
    "nearest_neighbors": "graph.neighbors",
    "neighbors_among": "graph.neighbors",
    "neighbors_graph": "graph.knn",
    "radius_graph": "graph.radius",
    "sweep": "selection.sweep",
    "zz_top": "selection.zz_top",
}

__all__ = [
    "CalibrationWarning",
    "ConvergenceError",
    "DuplicateRowsWarning",
    "ExactNeighborsTransformer",
    "GraphWarning",
    "LimitWarning",
    "PowerWarning",
    "ScaleWarning",
    "SpecialK",
    "TimeLimitWarning",
    "__version__",
    "affinity_matrix",
    "attainable_log_p",
    "cluster_stats",
    "cut_test",
    "decide",
    "eigenpairs",
    "embed",
    "estimate",
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
    if name == "tl":  # tools for single-cell data
        return import_module("specialk_gpu.tl")
    if name in _HOME:
        return getattr(import_module(f"specialk_gpu.{_HOME[name]}"), name)
    msg = f"module 'specialk_gpu' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, "tl"})
