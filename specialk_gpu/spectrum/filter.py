"""The Chebyshev filter: its interval, its degree, and its application to a block of vectors."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from specialk_gpu._workers import Loop, workers
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend, Dtype, Operator
from specialk_gpu.spectrum.tall import map_panels, panels_of, slabs

__all__ = ["DRIFT", "GROWTH", "NARROW", "apply_filter", "filter_degree", "filter_interval"]

MAX_DEGREE = 1000
DRIFT = 0.05  # if locked pairs have residual δ, growth beyond (DRIFT / δ)² spoils the block
NARROW = 0.02  # times the scale: a filter for a narrower interval needs float64
GROWTH = {"float32": 10.0, "float64": 27.0}  # log of the largest ratio a filter may cause


class _FilterInterval(NamedTuple):
    """The part of the spectrum, centre ± half, that the filter T_q((A - centre)/half) damps."""

    centre: float
    half: float

    def growth(self, value: float) -> float:
        """Return g such that |T_q| ≈ e^(q g)/2 at `value`; g is 0 inside the interval."""
        return math.acosh(max(abs(value - self.centre) / self.half, 1.0))


def filter_interval(low: float, high: float, scale: float) -> _FilterInterval:
    """Return the interval to damp, [low, high], which may be empty or a point."""
    return _FilterInterval((high + low) / 2, max((high - low) / 2, 1e-4 * scale))


def filter_degree(
    interval: _FilterInterval,
    scale: float,
    top: float,
    last: float,
    reduction: float,
    bearable: tuple[float, float],
) -> int:
    """Choose the degree: enough to converge, within the growth allowed, and at most 1000.

    `top` is the largest Ritz value that is not locked, `last` is the n-th, `reduction` is the
    factor by which residuals must still shrink, and `bearable` holds the logarithms of the growth
    allowed at `top` and at `scale`. Locked vectors come back with the growth at `scale`, from
    rounding and from their own errors. If a locked vector is off by δ, a block orthogonal to it
    contains δ of the true eigenvector. The filter lets this part grow, and projecting the result
    out leaves δ of it.
    """
    limits = [
        growth / max(interval.growth(value), 1e-6)
        for growth, value in zip(bearable, (top, scale), strict=True)
    ]
    needed = math.log(20 * max(reduction, 1.0)) / max(interval.growth(last), 1e-6)
    return max(1, int(min(*limits, needed + 1, MAX_DEGREE)))


def apply_filter(
    bk: Backend,
    A: Operator,
    V: Array,
    residuals: Array | None,
    theta: np.ndarray,
    degree: int,
    interval: _FilterInterval,
) -> None:
    """Replace V by T_degree((A - centre)/half) V, with columns scaled to unit length.

    The recurrence runs in the dtype of A. If `residuals` (A - theta) V are given, the filter is
    applied to them alone; otherwise it is applied to V itself. If there are workers of a cluster,
    they share the panels of many rows.
    """
    x = (theta - interval.centre) / interval.half
    weights, heads = _filter_weights_of_residuals(x, degree, interval.half)
    weights, heads = bk.asarray(weights, A.dtype), bk.asarray(heads, V.dtype)

    def arguments(columns: slice) -> tuple[Any, ...]:
        v = V[:, columns]
        if residuals is None:
            return v, None, None, None, degree, interval
        return v, residuals[:, columns], weights[:, columns], heads[columns], degree, interval

    def store(columns: slice, found: Array) -> None:
        V[:, columns] = found

    m, panels, cluster = V.shape[0], panels_of(bk, *V.shape), workers.get()
    if cluster is not None and len(slabs(bk, m)) > 1:
        given = [partial(arguments, columns) for columns in panels]
        loop = Loop("eigenpairs", filtered_panel, A, given, lambda i, x: store(panels[i], x))
        cluster.run(loop)
        return

    def run(columns: slice) -> None:
        store(columns, filtered_panel(A, *arguments(columns)))

    map_panels(bk, run, m, panels)


def filtered_panel(
    A: Operator,
    v: Array,
    residuals: Array | None,
    weights: Array | None,
    heads: Array | None,
    degree: int,
    interval: _FilterInterval,
) -> Array:
    """Return what takes the place of some columns of V; see `apply_filter`."""
    bk = backend_of(v)
    xp = bk.xp
    if residuals is None or weights is None or heads is None:
        before = _filled_up_for_filter(bk, v, A.dtype)
        now, source = xp.empty_like(before), None
        bk.spmm(A, before, now, 1 / interval.half, interval.centre, 0.0)
    else:
        source = _filled_up_for_filter(bk, residuals, A.dtype)
        own = _filled_up_for_filter(bk, weights, A.dtype)
        before, now = xp.zeros_like(source), source * own[0]
    for j in range(1, degree):
        scale = own[j] if source is not None else None
        bk.spmm(A, now, before, 2 / interval.half, interval.centre, -1.0, source, scale)
        before, now = now, before
    now = now[:, : v.shape[1]]
    if source is not None:
        del before, source
        filtered, now = now, v * heads
        now += filtered
    norm = xp.sqrt(bk.column_dots(now, now))
    now /= xp.where(norm > 0, norm, 1)
    return now


def _filled_up_for_filter(bk: Backend, v: Array, dtype: Dtype) -> Array:
    """Pad columns (m, w) with zero columns, so that each row starts where memory reads start."""
    width = -(-v.shape[1] // bk.panel_multiple) * bk.panel_multiple
    if width == v.shape[1]:
        return bk.xp.ascontiguousarray(v, dtype=dtype)
    whole = bk.xp.zeros((v.shape[0], width), dtype=dtype)
    whole[:, : v.shape[1]] = v
    return whole


def _filter_weights_of_residuals(
    x: np.ndarray, degree: int, half: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of r, (degree, w), and of v, (w,), in the recurrence for residuals.

    They are 2T_j(x)/half, half as much for j = 0, and T_degree(x). Where T_degree(x) grows, all
    are divided by it.
    """
    j = np.arange(degree + 1)[:, None]
    inside, outside = np.clip(x, -1, 1), np.arccosh(np.maximum(np.abs(x), 1))
    decay = np.exp((j - degree) * outside) * (1 + np.exp(-2 * j * outside))
    decay = decay / (1 + np.exp(-2 * degree * outside)) * np.where(x < 0, -1.0, 1.0) ** (j - degree)
    values = np.where(np.abs(x) > 1, decay, np.cos(j * np.arccos(inside)))
    weights = 2 * values[:-1] / half
    weights[0] /= 2
    return weights, values[-1]
