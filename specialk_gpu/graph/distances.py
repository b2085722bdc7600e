"""Bounds on the distances between all rows, from matrix products in low precision.

One product in float32 or float16, of matrices with few columns, bounds all distances at once.
`pair_sq_distances` then measures the pairs that the bounds do not rule out.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import NamedTuple

import numpy as np

from specialk_gpu.backend.tiles import map_rows
from specialk_gpu.backend.typing import Array, Backend, Dtype

__all__ = [
    "DistanceBounds",
    "distance_bounds",
    "has_integer_distances",
    "principal_axes_for_distances",
]


class DistanceBounds(NamedTuple):
    """The inputs of a tile of scores: centred rows, their squared norms, and error bounds.

    Write s for `sq_norms` and b for `base`. The score of rows i and j is
    (s_j - loss_j) - 2 b_i·b_j. The score plus s_i - loss_i is a lower bound on their squared
    distance in units of scale². Adding 2 (loss_i + loss_j) gives an upper bound. Both hold to
    within `floor`.
    """

    bk: Backend
    X: Array  # (m, d) as given
    scale: float  # a power of two
    base: Array  # (m, d or more) centred, scaled, and rounded to the dtype of the products
    sq_norms: Array  # (m,) float64, before that rounding
    loss: Array  # (m,) float64
    floor: float  # absolute error, from underflow

    @property
    def low_norms(self) -> Array:
        """Return `sq_norms` - `loss`."""
        return self.sq_norms - self.loss


def distance_bounds(
    bk: Backend, X: Array, dtype: Dtype, axes: Array | None = None
) -> DistanceBounds:
    r"""Centre the data, round them to `dtype`, and bound the errors of their scores.

    Let u be a centred row, ũ the same row after rounding, and η = ‖u - ũ‖. The product of rows i
    and j is off by at most :math:`η_i ‖u_j‖ + ‖ũ_i‖ η_j`. Twice this error is at most the sum of
    :math:`η^2/τ + τ (‖u‖ + η)^2` over both rows, for any τ > 0, so that a row that rounds badly
    mostly loosens its own bound. A term β‖ũ‖² is added. In units of half an eps, β consists of the
    error of the product, 4 for the centring, 3 for the norms and the last subtraction, and some
    room for second-order terms.

    If orthonormal `axes` (d, r) are given, u is replaced by its coordinates along them and the
    norm of the remainder. This moves no two rows farther apart, so lower bounds stay valid.
    """
    xp = bk.xp
    m, d = X.shape
    shift = _centre_for_distances(xp, X)
    if has_integer_distances(bk, X):
        shift = xp.rint(shift)
    largest = float(xp.abs(xp.stack([X.min(axis=0), X.max(axis=0)]) - shift).max())
    scale = 2.0 ** math.frexp(largest)[1]  # 1 if all are equal
    sums = np.finfo(np.float32 if dtype == "float16" else dtype)
    width = d if axes is None else axes.shape[1] + 1
    base = xp.zeros((m, -(-width // 8) * 8 if dtype == "float16" else width), dtype=dtype)
    sq_norms, rounding = xp.empty(m), xp.empty(m)

    def run(rows: slice) -> None:
        c = X[rows] - shift
        c /= scale
        sq_norms[rows] = (c * c).sum(axis=1)
        if axes is not None:
            c = c @ axes
            rest = xp.sqrt(xp.maximum(sq_norms[rows] - (c * c).sum(axis=1), 0))
            c = xp.concatenate([c, rest[:, None]], axis=1)
        base[rows, :width] = c
        c -= base[rows, :width]
        rounding[rows] = xp.sqrt((c * c).sum(axis=1))

    map_rows(bk, run, m, 32 * d)
    norms = xp.sqrt(sq_norms)
    if axes is not None:
        rounding += 2e-6 * norms  # more than the rounding of the difference under the root
    tau = xp.maximum(xp.sort(rounding / xp.maximum(norms, 1e-300))[m // 2], 1e-30)
    reach = (norms + rounding) ** 2
    beta = bk.product_error(width, dtype) + 16 * float(sums.eps) / 2
    loss = 1.01 * (beta * reach + rounding**2 / tau + tau * reach)
    floor = (d + 16) * float(sums.tiny) * 4
    return DistanceBounds(bk, X, scale, base, sq_norms, loss, floor)


def _centre_for_distances(xp: ModuleType, X: Array) -> Array:
    """Return a centre (d,) of the rows: their mean, or a median if outliers drag the mean away.

    Any finite point gives valid bounds. The nearer it is to most rows, the tighter they are.
    """
    m = X.shape[0]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = (xp.ones(m, dtype=X.dtype) @ X).astype(np.float64) / m
    sample = X[:: max(1, m // 512)].astype(np.float64)
    middle = sample.shape[0] // 2
    median = xp.sort(sample, axis=0)[middle]
    typical = xp.sort(xp.abs(sample - median).max(axis=1))[middle]
    is_near = xp.abs(mean - median).max() <= typical  # False if the mean is not finite
    return xp.where(is_near, mean, median)


def has_integer_distances(bk: Backend, X: Array) -> bool:
    """Return whether all entries are integers, small enough that products of rows are exact."""
    xp = bk.xp
    sample = X[:64]
    if not bk.all_true(sample == xp.rint(sample)):
        return False

    def extremes(rows: slice) -> Array:
        x = X[rows]
        return xp.stack([xp.abs(x - xp.rint(x)).max(), xp.abs(x).max()])

    found = map_rows(bk, extremes, X.shape[0], 16 * X.shape[1])
    away, largest = bk.to_numpy(xp.stack(found).max(axis=0)).tolist()  # host waits
    return away == 0 and largest**2 * X.shape[1] * 16 < 2.0**53


def principal_axes_for_distances(bk: Backend, X: Array, k: int) -> tuple[Array, int | None] | None:
    """Choose principal axes (d, r) for `PairBounds`, or None if they save no time.

    With them comes the number of axes of the coarse bounds, or None if these need all r. For
    several numbers of axes, samples of rows show how many pairs the bounds would leave.
    """
    xp, (m, d) = bk.xp, X.shape
    if d < 48:
        return None
    shift = _centre_for_distances(xp, X).astype(X.dtype)
    few = X[:: max(1, m // 8192)] - shift
    scale = float(xp.abs(few).max()) or 1.0
    few = (few / scale).astype(np.float32)
    with bk.narrow_block():
        _, axes = xp.linalg.eigh((few.T @ few).astype(np.float64))
    ranks = [r for r in (8, 16, 32, 64, 96, 128, 192, 256) if r <= d // 2]
    axes = xp.ascontiguousarray(axes[:, ::-1][:, : ranks[-1]])
    query = ((X[:: max(1, m // 100)] - shift) / scale).astype(np.float32)
    exact = xp.empty((len(query), m), dtype=np.float32)

    def run(rows: slice) -> None:
        c = X[rows] - shift
        c /= scale
        c = c.astype(np.float32, copy=False)
        exact[:, rows] = bk.products(query, c)
        exact[:, rows] += xp.einsum("ij,ij->i", c, c)

    map_rows(bk, run, m, 12 * d)
    limit = xp.partition(exact, k, axis=1)[:, k : k + 1]  # the row itself is among them
    others = ((X[:: max(1, m // 16384)] - shift) / scale).astype(np.float32)
    sq_norms = (others * others).sum(axis=1), (query * query).sum(axis=1)
    along = [c @ axes.astype(np.float32) for c in (others, query)]
    n_left = []
    for r in ranks:
        part, own = along[0][:, :r], along[1][:, :r]
        rest, own_rest = (
            xp.sqrt(xp.maximum(sq - (p * p).sum(axis=1), 0))
            for sq, p in zip(sq_norms, (part, own), strict=True)
        )
        lower = bk.products(own, part) - 2 * own_rest[:, None] * rest + sq_norms[0]
        n_left.append(float((lower <= limit).mean()) * m)
    width, n_coarse = _cheapest_ranks(ranks, n_left, m, d, k)
    return (axes[:, :width], n_coarse) if width else None


def _cheapest_ranks(
    ranks: list[int], n_left: list[float], m: int, d: int, k: int
) -> tuple[int, int | None]:
    """Choose the numbers of axes of close and coarse bounds, or 0 if products of rows are cheaper.

    Prices are those of one row, in multiply-adds of a matrix product; `n_left` is the number of
    pairs of a row that each rank leaves. Without axes, little more than the neighbours are left.
    """
    measure = 2**12 + 36 * d
    prices: dict[tuple[int, int | None], float] = {(0, None): m * (d + 32) / 2 + measure * (k + 4)}
    for i, r in enumerate(ranks):
        products = m * (r + 32) / 2
        prices[r, None] = products + measure * n_left[i]
        for width, left in zip(ranks[i + 1 :], n_left[i + 1 :], strict=True):
            prices[width, r] = products + (2**12 + 24 * (width - r)) * n_left[i] + measure * left
    return min(prices, key=prices.__getitem__)
