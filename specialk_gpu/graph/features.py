"""Rows as the search takes them: checked, and scaled to unit length where asked."""

from __future__ import annotations

from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of

__all__ = ["features", "unit_rows"]

SHORT_DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "float16")  # exact in float32


def features(X: Any, min_rows: int = 2) -> Any:
    """Return X as an array (m, d) of float32 or float64, on the device where it is.

    Parameters
    ----------
    X : array-like of shape (m, d)
        Real and finite. Short integers become float32, which holds them exactly; all else that
        is not float32 becomes float64.
    min_rows : int
        How many rows X must have.

    Raises
    ------
    ValueError
        If X is not real numbers, not two-dimensional, has fewer rows or no column, or is not
        finite.
    """
    bk = backend_of(X)
    X = bk.asarray(X)
    if X.dtype.kind not in "biuf":
        msg = f"X must be real numbers, got dtype {X.dtype}."
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


def unit_rows(X: Any) -> Any:
    """Return rows of length 1, whose Euclidean distances order pairs as the cosine does.

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
        If a row is zero, and thus has no direction.
    """
    bk = backend_of(X)
    xp = bk.xp
    largest = xp.abs(X).max(axis=1)
    if zero := int((largest == 0).sum()):  # a sync
        msg = (
            f"metric='cosine' needs rows that are not zero, got {zero} that are, the first at row "
            f"{int(xp.argmax(largest == 0))}. Drop them first."
        )
        raise ValueError(msg)
    out = xp.ascontiguousarray(X / largest[:, None])  # squares stay within range
    out /= xp.sqrt((out * out).sum(axis=1))[:, None]
    return out
