"""The Chebyshev filter: its interval, its degree, and its use on a block."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["DRIFT", "GROWTH", "NARROW", "apply_filter", "filter_degree", "interval_of"]

MAX_DEGREE = 1000
DRIFT = 0.05  # with δ the residual of what is locked, growth beyond (DRIFT / δ)² spoils the block
NARROW = 0.02  # a filter for a narrower interval, relative to the scale, needs float64
GROWTH = {"float32": 10.0, "float64": 27.0}  # log of the largest ratio that a filter may make


class _Interval(NamedTuple):
    """The part of the spectrum that the filter damps: T_d((A - centre)/half)."""

    centre: float
    half: float

    def growth(self, value: float) -> float:
        """Return g with |T_d| ≈ e^(d g)/2 at `value`; 0 inside the interval."""
        return math.acosh(max(abs(value - self.centre) / self.half, 1.0))


def interval_of(low: float, high: float, scale: float) -> _Interval:
    """Damp [low, high], which may be empty or a point."""
    return _Interval((high + low) / 2, max((high - low) / 2, 1e-4 * scale))


def filter_degree(
    interval: _Interval,
    scale: float,
    top: float,
    last: float,
    reduction: float,
    bearable: tuple[float, float],
) -> int:
    """Choose the degree: enough to converge, no more than can be borne, at most 1000.

    `top` is the largest Ritz value not locked, `last` the n-th, `reduction` the factor still
    missing, `bearable` the logarithms of the growth allowed at `top` and at `scale`. Locked
    vectors return with the growth at `scale`, from rounding and from what they lack: orthogonal
    to a vector that is off by δ, the block holds δ of the eigenvector, and projecting out what
    that has grown to leaves δ of it.
    """
    limits = [
        growth / max(interval.growth(value), 1e-6)
        for growth, value in zip(bearable, (top, scale), strict=True)
    ]
    needed = math.log(20 * max(reduction, 1.0)) / max(interval.growth(last), 1e-6)
    return max(1, int(min(*limits, needed + 1, MAX_DEGREE)))


def apply_filter(
    bk: ModuleType,
    A: Any,
    V: Any,
    residuals: Any | None,
    theta: np.ndarray,
    degree: int,
    interval: _Interval,
) -> None:
    """Replace V by T_degree((A - centre)/half) V, columns scaled to unit length.

    The recurrence runs in the dtype of A. With `residuals` (A - theta) V the filter is applied to
    them alone; without, to V itself.
    """
    xp = bk.xp
    x = (theta - interval.centre) / interval.half
    weights, heads = _residual_weights(x, degree, interval.half)
    weights, heads = bk.asarray(weights, A.dtype), bk.asarray(heads, V.dtype)

    def run(columns: slice) -> None:
        v = V[:, columns]
        if residuals is None:
            before = _filled_up(bk, v, A.dtype)
            now, source = xp.empty_like(before), None
            bk.spmm(A, before, now, 1 / interval.half, interval.centre, 0.0)
        else:
            source = _filled_up(bk, residuals[:, columns], A.dtype)
            own = _filled_up(bk, weights[:, columns], A.dtype)
            before, now = xp.zeros_like(source), source * own[0]
        for j in range(1, degree):
            scale = own[j] if source is not None else None
            bk.spmm(A, now, before, 2 / interval.half, interval.centre, -1.0, source, scale)
            before, now = now, before
        now = now[:, : v.shape[1]]
        if source is not None:
            del before, source
            filtered, now = now, v * heads[columns]
            now += filtered
        norm = xp.sqrt(bk.column_dots(now, now))
        now /= xp.where(norm > 0, norm, 1)
        V[:, columns] = now

    bk.map_chunks(run, bk.panels(V.shape[1]))


def _filled_up(bk: ModuleType, v: Any, dtype: Any) -> Any:
    """Return columns (m, w), and zeros beside them so that all rows begin where memory is read."""
    width = -(-v.shape[1] // bk.panel_multiple) * bk.panel_multiple
    if width == v.shape[1]:
        return bk.xp.ascontiguousarray(v, dtype=dtype)
    whole = bk.xp.zeros((v.shape[0], width), dtype=dtype)
    whole[:, : v.shape[1]] = v
    return whole


def _residual_weights(x: np.ndarray, degree: int, half: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of r, (degree, w), and of v, (w,), divided by T_degree(x) where it grows.

    That is 2T_j(x)/half, half as much for j = 0, and T_degree(x).
    """
    j = np.arange(degree + 1)[:, None]
    inside, outside = np.clip(x, -1, 1), np.arccosh(np.maximum(np.abs(x), 1))
    decay = np.exp((j - degree) * outside) * (1 + np.exp(-2 * j * outside))
    decay = decay / (1 + np.exp(-2 * degree * outside)) * np.where(x < 0, -1.0, 1.0) ** (j - degree)
    values = np.where(np.abs(x) > 1, decay, np.cos(j * np.arccos(inside)))
    weights = 2 * values[:-1] / half
    weights[0] /= 2
    return weights, values[-1]
