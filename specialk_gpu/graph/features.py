"""Checks of the feature matrix X, and scaling of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend

__all__ = [
    "METRICS",
    "features",
    "features_in_metric",
    "features_of_unit_length",
    "features_within_range",
    "values_of_constant_features",
]

METRICS = ("euclidean", "cosine")
SHORT_DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "float16")  # exact in float32


def features(X: ArrayLike, min_rows: int = 2) -> Array:
    """Check X and return it as an array (m, d) of float32 or float64, on the device where it is.

    Parameters
    ----------
    X : array-like of shape (m, d)
        Real and finite. Integers of up to 16 bits, bool and float16 become float32, which holds
        them exactly. Every other dtype except float32 becomes float64.
    min_rows : int
        Smallest number of rows allowed.

    Raises
    ------
    ValueError
        If X does not hold real numbers, is not two-dimensional, has fewer than `min_rows` rows or
        no column, or is not finite.
    TypeError
        If X is sparse.
    """
    bk = backend_of(X)
    if bk.sparse.issparse(X):
        shape: Any = getattr(X, "shape", ())
        msg = (
            f"X must be an array, got a sparse matrix of shape {tuple(shape)}. Convert it with "
            "X.toarray(), or reduce it first, for instance with sklearn.decomposition.TruncatedSVD."
        )
        raise TypeError(msg)
    X = bk.asarray(X)
    if X.dtype.kind not in "biuf":
        msg = f"X must hold real numbers, got dtype {X.dtype}."
        raise ValueError(msg)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float32 if X.dtype.name in SHORT_DTYPES else np.float64)
    if X.ndim != 2 or X.shape[0] < min_rows or X.shape[1] < 1:
        rows = "two rows" if min_rows == 2 else "a row"
        msg = f"X must have two dimensions, {rows} and a column at least, got shape {X.shape}."
        raise ValueError(msg)
    if not bk.all_true(bk.xp.isfinite(X)):
        kind = "NaN" if bool(bk.xp.isnan(X).any()) else "infinity"
        msg = f"Input X contains {kind}."
        raise ValueError(msg)
    return X


def features_of_unit_length(X: Array) -> Array:
    """Scale rows to length 1, so that Euclidean distances order pairs as the cosine does.

    In float64, entries are rounded to multiples of 2^-40, so that proportional rows are equal.

    Parameters
    ----------
    X : float array of shape (m, d)
        See `features`.

    Returns
    -------
    array of shape (m, d), of the dtype of X

    Raises
    ------
    ValueError
        If a row is zero, because it has no direction.
    """
    bk = backend_of(X)
    xp = bk.xp
    largest = xp.abs(X).max(axis=1)
    if zero := int((largest == 0).sum()):  # host waits
        msg = (
            f"metric='cosine' needs rows that are not zero, got {zero} zero rows, the first at row "
            f"{int(xp.argmax(largest == 0))}. Drop them first."
        )
        raise ValueError(msg)
    out = xp.ascontiguousarray(X / largest[:, None])  # squares stay within range
    out /= xp.sqrt((out * out).sum(axis=1))[:, None]
    if out.dtype == np.float64:  # so that proportional rows are equal, and not but for rounding
        xp.rint(out * 2.0**40, out=out)
        out *= 2.0**-40
    return out


def features_in_metric(X: Array, metric: str) -> Array:
    """Return checked rows X, scaled to length 1 if `metric` is "cosine"."""
    if metric not in METRICS:
        msg = f"metric must be one of {METRICS}, got {metric!r}."
        raise ValueError(msg)
    return features_of_unit_length(X) if metric == "cosine" else X


def features_within_range(bk: Backend, X: Array) -> tuple[Array, float]:
    """Divide data of extreme size by a power of two, so that squares stay finite; return both."""
    largest = float(bk.xp.maximum(X.max(), -X.min()))  # host waits
    if largest == 0 or 1e-100 < largest < 1e100:
        return X, 1.0
    unit = 2.0 ** min(math.frexp(largest)[1], 1023)
    return X.astype(np.float64) / unit, unit


def values_of_constant_features(bk: Backend, X: Array) -> Array | None:
    """Return the value of each constant column, and 0 for the others; None if none is constant.

    Constant columns add nothing to a distance, so large ones may be subtracted, where they would
    make `features_within_range` divide the other columns too.
    """
    xp = bk.xp
    constant = (X[:1] == X).all(axis=0)
    return xp.where(constant, X[0], 0) if bool(constant.any()) else None  # host waits
