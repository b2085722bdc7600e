"""The points that k-means clusters, with values computed from them."""

from __future__ import annotations

from typing import NamedTuple

from specialk_gpu.backend.typing import Array, Backend

__all__ = ["Points", "kmeans_points"]


class Points(NamedTuple):
    """The rows to cluster, and values computed from them."""

    bk: Backend
    X: Array  # (m, d)
    columns: Array  # (m, d), in the order that `nearest_center` reads fastest
    sq_norms: Array  # (m,)
    weights: Array | None = None  # (m,), or None for equal weights


def kmeans_points(bk: Backend, X: Array, weights: Array | None = None) -> Points:
    """Return the `Points` of rows X (m, d), which are near the origin."""
    return Points(bk, X, bk.xp.asarray(X, order=bk.center_order), bk.row_squares(X), weights)
