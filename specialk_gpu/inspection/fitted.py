"""The attributes of a fitted model that the functions of this package read."""

from __future__ import annotations

from typing import Any, Protocol

from specialk_gpu._result import SelectionPath
from specialk_gpu.backend.typing import Array, Sparse

__all__ = ["Fitted"]


class Fitted(Protocol):
    """A fitted `specialk_gpu.SpecialK`; its attributes are described there."""

    labels_: Array
    n_clusters_: int
    path_: SelectionPath
    limit_reached_: bool
    eigenvalues_: Array
    residuals_: Array
    radius_: float | None
    n_graph_components_: int
    n_features_in_: int
    eigen_solver_: str
    backend_: str
    timings_: dict[str, float]
    _settings: dict[str, Any]
    _distinct: Array | None

    @property
    def embedding_(self) -> Array:
        """The embedding D."""

    @property
    def affinity_matrix_(self) -> Sparse:
        """The graph W."""

    @property
    def membership_(self) -> Array:
        """The shares of the clusters in each row."""

    def labels_at(self, k: int) -> Array:
        """Return the labels of k clusters."""
