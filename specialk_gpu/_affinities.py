"""The kinds of graphs that a fit can take or build, by name."""

from __future__ import annotations

__all__ = ["AFFINITIES", "is_graph"]

AFFINITIES = (
    "nearest_neighbors",
    "radius_neighbors",
    "precomputed",
    "precomputed_nearest_neighbors",
)


def is_graph(affinity: str) -> bool:
    """Return whether X is a graph, and not rows."""
    return affinity.startswith("precomputed")
