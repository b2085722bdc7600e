"""Diagnostics of a fitted model: numbers in words, bounds of pairs, typical rows, a projection."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np

from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu._result import SMALL
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Matrix
from specialk_gpu.selection.zz_top import zz_top

__all__ = [
    "counted",
    "fitted_rows",
    "images",
    "in_the_plane",
    "in_words",
    "pair_matrix",
    "settings",
    "sizes_of_clusters",
    "typical",
]

LN10 = math.log(10)
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def settings(model: Fitted) -> SimpleNamespace:
    """Return the parameters of the fit, even if `set_params` was called since."""
    return SimpleNamespace(**model._settings)


def fitted_rows(model: Fitted) -> np.ndarray | None:
    """Return the rows of the fit (m, d), if the model has all of them as they were given."""
    if model._fit_X is None or model._distinct is not None or settings(model).metric == "cosine":
        return None
    return np.asarray(on_host(model._fit_X))


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, such as "1 row" or "2 rows"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def in_words(log_p: float, criterion: str) -> str:
    """Format the number that decides, a p or a ZZ Top Bound, for printing."""
    if criterion == "cut":
        return "< 0.001" if log_p < SMALL else f"{math.exp(log_p):.3f}"
    if log_p > SMALL:
        return f"{math.exp(log_p):.2g}"
    if log_p == -math.inf:
        return "0"
    exponent = math.floor(log_p / LN10)
    mantissa = 10 ** (log_p / LN10 - exponent)
    return f"{mantissa:.1f} · 10{str(exponent).translate(SUPERSCRIPTS)}"


def sizes_of_clusters(model: Fitted) -> tuple[np.ndarray, int]:
    """Return the rows of each cluster (k,), without outliers, and the number of outliers."""
    labels = on_host(model.labels_)
    counts = np.bincount(labels + 1, minlength=model.n_clusters_ + 1)
    return counts[1:], int(counts[0])


def pair_matrix(model: Fitted, k: int | None = None) -> np.ndarray:
    """Return log10 of the ZZ Top Bound of every pair of clusters, for either criterion.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    k : int, optional
        A number of clusters that `labels_at` accepts; by default `n_clusters_`.

    Returns
    -------
    float64 array of shape (k, k), on the host
        Symmetric, with 0 on the diagonal.

    Raises
    ------
    ValueError
        If there is no clustering into k clusters.
    """
    bk = backend_of(model.embedding_)
    D = bk.asarray(model.embedding_)
    labels = bk.asarray(model._level(model.n_clusters_ if k is None else k))
    if model._distinct is not None:  # duplicates are no additional evidence
        distinct = bk.asarray(on_host(model._distinct))
        D, labels = D[distinct], labels[distinct]
    return on_host(zz_top(D, labels)) / LN10


def typical(model: Fitted, n_members: int) -> list[np.ndarray]:
    """Return, for each cluster, the rows nearest to its mean in D, the nearest first."""
    D, labels = on_host(model.embedding_), on_host(model.labels_)
    out = []
    for c in range(model.n_clusters_):
        rows = np.flatnonzero(labels == c)
        sq = ((D[rows] - D[rows].mean(axis=0)) ** 2).sum(axis=1)
        out.append(rows[np.argsort(sq, kind="stable")[:n_members]])
    return out


def images(model: Fitted, X: Matrix, shape: tuple[int, int], name: str) -> np.ndarray:
    """Return the rows of X as images: (m, height, width).

    Raises
    ------
    ValueError
        If `shape` is not a height and a width, or X does not have as many columns as pixels and as
        many rows as the fit. The message calls the shape `name`.
    """
    sizes = np.asarray(shape)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or sizes.min() < 1:
        msg = f"{name} must be a height and a width, such as (28, 28), got {shape!r}."
        raise ValueError(msg)
    X = np.asarray(on_host(X))
    expected = len(model.labels_), int(sizes.prod())
    if X.shape != expected:
        msg = f"X must hold images of {name}={shape}, of shape {expected}, got {X.shape}."
        raise ValueError(msg)
    return X.reshape(-1, *sizes.tolist())


def in_the_plane(model: Fitted) -> np.ndarray:
    """Return the two leading principal components of D, on the host: (m, 2)."""
    from sklearn.decomposition import PCA

    D = on_host(model.embedding_)
    if D.shape[1] == 1:
        return np.column_stack([D[:, 0], np.zeros(len(D))])
    return PCA(2, svd_solver="covariance_eigh").fit_transform(D)
