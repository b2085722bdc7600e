"""Chebyshev-filtered subspace iteration, and the search for eigenpairs that were missed.

A block of vectors is filtered with a Chebyshev polynomial that is small on the unwanted part of
the spectrum, orthonormalised by Cholesky-QR, and projected (Rayleigh-Ritz), until its leading
vectors have converged. No QR decomposition, no host arithmetic beyond the projected problem.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal

__all__ = ["ConvergenceError", "chebyshev", "find_missed", "product"]

MAX_DEGREE = 1000
GROWTH = {"float32": 10.0, "float64": 27.0}  # log of the largest ratio that a filter may make


class ConvergenceError(RuntimeError):
    """An iterative method ended without a usable result; the message says why and what helps."""


def product(bk: ModuleType, A: Any, X: Any) -> Any:
    """Return A X for X of shape (m, w), C-contiguous."""
    out = bk.xp.empty_like(X)
    bk.spmm(A, X, out, 1.0, 0.0, 0.0)
    return out


class _Interval(NamedTuple):
    """The part of the spectrum that the filter damps: T_d((A - centre)/half)."""

    centre: float
    half: float

    def growth(self, value: float) -> float:
        """Return g with |T_d| ≈ e^(d g)/2 at `value`; 0 inside the interval."""
        return math.acosh(max(abs(value - self.centre) / self.half, 1.0))


def _interval(low: float, high: float, scale: float) -> _Interval:
    """Damp [low, high], which may be empty or a point."""
    return _Interval((high + low) / 2, max((high - low) / 2, 1e-4 * scale))


def chebyshev(
    bk: ModuleType, A: Any, n: int, tol: float, max_iter: int, rng: Any
) -> tuple[Any, Any, str]:
    """Return the n pairs of largest magnitude and "" or what went wrong.

    V holds Ritz vectors by falling magnitude. Each round filters those not yet converged,
    orthonormalises, and projects; the longest prefix within the tolerance is locked.
    """
    xp, m = bk.xp, A.shape[0]
    dtype = np.dtype(A.dtype)
    n_guard = max(16, math.ceil(0.15 * n))
    n_block = min(m, n + n_guard)
    low, scale, cut = _spectrum(bk, A, n_block, rng)
    V = xp.empty((m, n_block), dtype=dtype)
    V[...] = bk.asarray(rng.standard_normal((m, n_block)), dtype=dtype)
    theta = np.full(n_block, cut)
    theta[0] = scale
    worst, n_locked, stuck = 1.0, 0, False
    for i in range(max_iter):
        # The way out of a cluster of eigenvalues wider than the block, and of the rounding of a
        # high degree, is to cut clearly below, to add what A does to the block, and to widen it.
        edge = 0.98 * abs(float(theta[n - 1])) if stuck else cut
        interval = _interval(max(low, -edge), edge, scale)
        degree = _degree(interval, scale, theta[n_locked], theta[n - 1], worst / tol, dtype.name)
        if i == 0:  # random columns all turn towards the top: their Gram matrix squares the ratio
            degree = max(1, degree // 2)
        active = V[:, n_locked:]
        _filter(bk, A, active, degree, interval)
        _orthonormalise(bk, active, V[:, :n_locked], rng)
        block = _expanded(bk, A, V, n_locked, rng) if stuck else active
        values, norms = _rayleigh_ritz(bk, A, block)
        if stuck:
            n_block = min(n_block + n_guard, n_locked + block.shape[1], 2 * n + 64)
            width = n_block - n_locked
            V = xp.concatenate([V[:, :n_locked], block[:, :width]], axis=1)
            values, norms = values[:width], norms[:width]
        del block, active
        theta = np.concatenate([theta[:n_locked], values])
        scale = max(scale, float(np.abs(theta).max()))
        norms = norms / float(np.abs(theta).max() or 1.0)
        good = norms[: n - n_locked] <= 0.5 * tol
        new = good.size if good.all() else int(np.argmin(good))
        n_locked += new
        if n_locked >= n:
            order = np.argsort(-np.abs(theta[:n]), kind="stable")
            V, theta = V[:, bk.asarray(order)], theta[order]
            missed = find_missed(bk, A, bk.asarray(theta), V, tol, rng)
            return bk.asarray(theta.astype(dtype)), V, missed
        before, worst = worst, float(norms[new : new + n - n_locked].max())
        stuck = not stuck and new == 0 and worst > 0.5 * before and n_block < m
        low = min(low, float(theta.min()))
        gaps = (abs(theta[n - 1]) - np.abs(theta[n:])) / scale
        settled = np.flatnonzero(norms[n - theta.size :] <= 0.2 * gaps)
        if settled.size:
            cut = float(abs(theta[n + settled[-1]]))
    failure = f"Chebyshev iteration locked {n_locked} of {n} eigenpairs in {max_iter} filters."
    return bk.asarray(theta[:n].astype(dtype)), V[:, :n], failure


def _spectrum(bk: ModuleType, A: Any, n_block: int, rng: Any) -> tuple[float, float, float]:
    """Estimate the lowest eigenvalue, the largest magnitude, and that of pair `n_block`.

    Forty Lanczos steps from eight vectors at once: their Ritz values and weights estimate the
    density of the spectrum (Lin, Saad & Yang, SIAM Review 2016).
    """
    xp, m = bk.xp, A.shape[0]
    n_vectors, n_steps = 8, min(40, m)
    start = rng.standard_normal((m, n_vectors))
    v = bk.asarray(start / np.linalg.norm(start, axis=0), dtype=A.dtype)
    previous = xp.zeros_like(v)
    alphas, betas = [], [xp.zeros(n_vectors, dtype=A.dtype)]
    for _ in range(n_steps):
        w = product(bk, A, v) - betas[-1] * previous
        alphas.append((w * v).sum(axis=0))
        w -= alphas[-1] * v
        betas.append(xp.sqrt((w * w).sum(axis=0)))
        previous, v = v, w / xp.where(betas[-1] > 0, betas[-1], 1)
    alpha = bk.to_numpy(xp.stack(alphas)).astype(np.float64)
    beta = bk.to_numpy(xp.stack(betas[1:])).astype(np.float64)
    values, weights, lowest = [], [], []
    for i in range(n_vectors):
        ends = np.flatnonzero(beta[:, i] <= 1e-6 * np.abs(alpha[:, i]).max())
        steps = int(ends[0]) + 1 if ends.size else n_steps  # an invariant subspace was reached
        nodes, basis = eigh_tridiagonal(alpha[:steps, i], beta[: steps - 1, i])
        values.append(nodes)
        weights.append(basis[0] ** 2 / n_vectors)
        lowest.append(nodes[0] - abs(beta[steps - 1, i] * basis[-1, 0]))
    values, weights = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(-np.abs(values))
    counted = m * np.cumsum(weights[order])
    cut = float(np.abs(values[order])[min(np.searchsorted(counted, n_block), order.size - 1)])
    scale = float(np.abs(values).max())
    return max(min(lowest), -1.01 * scale), scale, min(cut, 0.999 * scale)


def _degree(
    interval: _Interval, scale: float, top: float, last: float, reduction: float, dtype: str
) -> int:
    """Choose the degree: enough to converge, no more than rounding bears, at most 1000.

    `top` is the largest Ritz value not locked, `last` the n-th, `reduction` the factor still
    missing. Locked vectors return from rounding with the growth of `scale`: a little more of
    that is bearable, since they are projected out again.
    """
    bearable = min(
        GROWTH[dtype] / max(interval.growth(top), 1e-6),
        1.2 * GROWTH[dtype] / max(interval.growth(scale), 1e-6),
    )
    needed = math.log(20 * max(reduction, 1.0)) / max(interval.growth(last), 1e-6)
    return max(1, int(min(bearable, needed + 1, MAX_DEGREE)))


def _filter(bk: ModuleType, A: Any, V: Any, degree: int, interval: _Interval) -> None:
    """Replace V by T_degree((A - centre)/half) V, columns scaled to unit length."""
    xp = bk.xp

    def run(columns: slice) -> None:
        before = xp.ascontiguousarray(V[:, columns])
        now = xp.empty_like(before)
        bk.spmm(A, before, now, 1 / interval.half, interval.centre, 0.0)
        for _ in range(degree - 1):
            bk.spmm(A, now, before, 2 / interval.half, interval.centre, -1.0)
            before, now = now, before
        norm = xp.sqrt((now * now).sum(axis=0))
        V[:, columns] = now / xp.where(norm > 0, norm, 1)

    step = bk.panel_width
    bk.map_chunks(run, (slice(j, min(j + step, V.shape[1])) for j in range(0, V.shape[1], step)))


def _orthonormalise(bk: ModuleType, V: Any, locked: Any, rng: Any) -> None:
    """Make the columns of V orthonormal, and orthogonal to `locked`, in place.

    Cholesky-QR, once from the Gram matrix as it is and once more for the last digits. A block of
    deficient rank (a matrix of low rank has such filters) keeps its range and takes fresh
    random columns for the rest.
    """
    xp = bk.xp
    for _ in range(5):
        if locked.shape[1]:
            V -= locked @ (locked.T @ V)
        gram = V.T @ V
        factor = _cholesky(xp, gram)
        if factor is None:
            _replace_dependent(bk, V, gram, rng)
            continue
        V[...] = V @ xp.linalg.inv(factor).T
        error = float(xp.abs(gram - xp.eye(gram.shape[0], dtype=gram.dtype)).max())
        if error < 1e-2:  # the Gram matrix before the step: afterwards it is at round-off
            return
    msg = "a block of vectors could not be made orthonormal: is the matrix finite and symmetric?"
    raise ConvergenceError(msg)


def _cholesky(xp: Any, gram: Any) -> Any | None:
    """Return the Cholesky factor, or None if `gram` is not safely positive definite."""
    try:
        factor = xp.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        return None
    # a pivot near √eps is rounding; CuPy returns a failed factor without a word
    eps = float(np.finfo(gram.dtype).eps)
    safe = bool((xp.diagonal(factor) > 10 * math.sqrt(eps * gram.shape[0])).all())
    safe = safe and float(xp.abs(factor @ factor.T - gram).max()) < math.sqrt(eps)
    return factor if safe else None


def _replace_dependent(bk: ModuleType, V: Any, gram: Any, rng: Any) -> None:
    """Replace V by a basis of its numerical range and random columns, in place."""
    xp = bk.xp
    values, basis = xp.linalg.eigh(gram.astype(np.float64))
    eps = float(np.finfo(gram.dtype).eps)
    keep = values > 100 * eps * gram.shape[0] * values[-1]
    columns = V @ (basis[:, keep] / xp.sqrt(values[keep])).astype(V.dtype)
    rank = columns.shape[1]
    fresh = rng.standard_normal((V.shape[0], V.shape[1] - rank)) / math.sqrt(V.shape[0])
    V[:, :rank] = columns[:, ::-1]
    V[:, rank:] = bk.asarray(fresh, dtype=V.dtype)


def _expanded(bk: ModuleType, A: Any, V: Any, n_locked: int, rng: Any) -> Any:
    """Return V[:, n_locked:] and, orthonormal to V, what A adds to its range.

    Eigenvalues ±λ turn as one in every even or odd polynomial: where more of them come together
    than the block holds, it converges to a mixture, whose range A leaves in one direction only.
    """
    xp, (m, width) = bk.xp, V.shape
    active = V[:, n_locked:]
    image = product(bk, A, xp.ascontiguousarray(active[:, : m - width]))
    image /= xp.sqrt((image * image).sum(axis=0).max())
    _orthonormalise(bk, image, V, rng)
    return xp.concatenate([active, image], axis=1)


def _rayleigh_ritz(bk: ModuleType, A: Any, V: Any) -> tuple[np.ndarray, np.ndarray]:
    """Turn V into Ritz vectors by falling magnitude; return values and residual norms."""
    xp, width = bk.xp, V.shape[1]
    AV = xp.empty_like(V)

    def apply(columns: slice) -> None:
        AV[:, columns] = product(bk, A, xp.ascontiguousarray(V[:, columns]))

    step = bk.panel_width
    panels = [slice(j, min(j + step, width)) for j in range(0, width, step)]
    bk.map_chunks(apply, panels)
    H = V.T @ AV
    values, basis = xp.linalg.eigh((H + H.T) / 2)
    order = xp.argsort(-xp.abs(values))
    values, basis = values[order], xp.ascontiguousarray(basis[:, order])
    V[...] = V @ basis
    AV = AV @ basis
    norms = xp.empty(width)

    def measure(columns: slice) -> None:
        r = AV[:, columns] - V[:, columns] * values[columns]
        norms[columns] = xp.sqrt((r.astype(np.float64) ** 2).sum(axis=0))

    bk.map_chunks(measure, panels)
    return bk.to_numpy(values), bk.to_numpy(norms)


def find_missed(
    bk: ModuleType, A: Any, values: Any, V: Any, tol: float, rng: Any, *, max_degree: int = 30
) -> str:
    """Search the complement of V for eigenvalues larger than the smallest of `values`.

    Filters sixteen random vectors, kept orthogonal to V, and looks at what A does to them. Finds
    with near certainty what lies clearly above; pairs within about 3 / `max_degree`² of the
    smallest can escape (Kuczynski & Wozniakowski 1992 give the probabilities).
    """
    xp, m = bk.xp, A.shape[0]
    width = min(16, m - V.shape[1])
    if width < 1:
        return ""
    magnitudes = np.abs(bk.to_numpy(values))
    scale, cut = float(magnitudes.max()), float(magnitudes.min())
    interval = _interval(-cut, cut, scale or 1.0)
    limit = 0.5 * GROWTH[np.dtype(A.dtype).name] / max(interval.growth(scale), 1e-6)
    degree = max(1, min(max_degree, int(limit)))
    block = xp.empty((m, width), dtype=A.dtype)
    block[...] = bk.asarray(rng.standard_normal((m, width)), dtype=A.dtype)
    for _ in range(max(2, min(8, 3 * max_degree // degree))):
        block -= V @ (V.T @ block)
        _filter(bk, A, block, degree, interval)
        _orthonormalise(bk, block, V, rng)
    image = product(bk, A, block)  # its norm sees ±λ even where the block mixes them
    largest = float(np.linalg.norm(bk.to_numpy(image.T @ image).astype(np.float64), 2)) ** 0.5
    if largest > cut + 10 * tol * scale:
        return (
            f"An eigenvalue of magnitude {largest:.8g} is missing: the smallest returned has "
            f"{cut:.8g}."
        )
    return ""
