"""Outliers: rows whose neighbours are farther away than is usual in their cluster."""

from __future__ import annotations

from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array

__all__ = ["outlier_scores", "spacings_for_outliers", "usual_spacings"]


def spacings_for_outliers(spacing: Array, labels: Array, k: int) -> Array:
    """Return the median of the spacings of the rows of each cluster.

    Parameters
    ----------
    spacing : float64 array of shape (m,)
        The distance of each row to its last neighbour. Zeros, of rows that equal all their
        neighbours, are left out.
    labels : int32 array of shape (m,)
        Values 0, ..., k - 1.
    k : int

    Returns
    -------
    float64 array of shape (k,)
        Above zero. A cluster in which all spacings are zero gets the median of all clusters
        together; if that has none either, 1.
    """
    xp = backend_of(spacing).xp
    positive = spacing > 0
    spacing, labels = spacing[positive], labels[positive]
    if not spacing.size:
        return xp.ones(k)
    order = xp.argsort(spacing, kind="stable")
    every = spacing[order]
    spacing = spacing[order[xp.argsort(labels[order], kind="stable")]]
    counts = xp.bincount(labels, minlength=k)
    first = xp.cumsum(counts) - counts
    last = spacing.size - 1
    low = xp.minimum(first + xp.maximum(counts - 1, 0) // 2, last)
    high = xp.minimum(first + counts // 2, last)
    middle = (every[last // 2] + every[(last + 1) // 2]) / 2
    return xp.where(counts > 0, spacing[low] / 2 + spacing[high] / 2, middle)


def usual_spacings(model: Fitted) -> Array:
    """Return the `spacings_for_outliers` of a model fitted to rows; duplicates count once."""
    bk = backend_of(model._spacing)
    spacing, labels = bk.asarray(model._spacing), bk.asarray(model._level(model.n_clusters_))
    once = slice(None) if model._distinct is None else bk.asarray(on_host(model._distinct))
    return spacings_for_outliers(spacing[once], labels[once], model.n_clusters_)


def outlier_scores(model: Fitted) -> Array:
    """Return the scores that `specialk_gpu.SpecialK` describes as `outlier_scores_`.

    Raises
    ------
    AttributeError
        For a given graph, which has no distances.
    """
    if model._spacing is None:
        msg = (
            "there are no outlier_scores_ for a given graph: they compare distances between rows, "
            "which were not given. Isolated rows are those without an entry in affinity_matrix_."
        )
        raise AttributeError(msg)
    bk = backend_of(model._spacing)
    labels = bk.asarray(model._level(model.n_clusters_))
    return bk.asarray(model._spacing) / usual_spacings(model)[labels]
