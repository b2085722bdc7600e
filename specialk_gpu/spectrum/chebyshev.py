"""Chebyshev-filtered subspace iteration, and the search for eigenpairs that were missed.

A Chebyshev polynomial of the matrix, small on the unwanted part of the spectrum, filters a block
of vectors. The block is then orthonormalised by Cholesky-QR and projected (Rayleigh-Ritz). This
repeats until the leading vectors have converged. There is no QR decomposition, and the host does
no arithmetic beyond the projected problem.

The filter runs in float32 even for float64 matrices. It is applied to the residuals alone, so its
rounding errors shrink with them. With Wv = θv + ρ, Ŵ = (W - centre)/half and
ξ = (θ - centre)/half,

    T_q(Ŵ)v = T_q(ξ)v + w_q,   w_0 = 0,   w_1 = ρ/half,
    w_(j+1) = 2Ŵw_j - w_(j-1) + 2T_j(ξ)ρ/half.

It runs in float64 if the interval is so narrow that float32 rounds Ŵ too coarsely, or if a round
has made no progress.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import RandomState
from scipy.linalg import eigh_tridiagonal

from specialk_gpu._checkpoint import rounds_to_keep
from specialk_gpu._progress import report_progress
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.random_numbers import ODD, uniform
from specialk_gpu.backend.typing import Array, Backend, Dtype, Operator
from specialk_gpu.spectrum.filter import (
    DRIFT,
    GROWTH,
    NARROW,
    apply_filter,
    filter_degree,
    filter_interval,
)
from specialk_gpu.spectrum.memory import guard_size
from specialk_gpu.spectrum.orthonormal import finish_orthonormal, orthonormalise
from specialk_gpu.spectrum.tall import (
    columns_of,
    gram_of,
    inner_products,
    joined,
    map_panels,
    panels_of,
    project_out,
    rotate,
    wide_panels,
)

__all__ = ["chebyshev", "find_missed_by_chebyshev", "product"]


def product(bk: Backend, A: Operator, X: Array) -> Array:
    """Return A X for a C-contiguous X of shape (m, w)."""
    out = bk.xp.empty_like(X)
    bk.spmm(A, X, out, 1.0, 0.0, 0.0)
    return out


def random_block(bk: Backend, m: int, width: int, seed: int, dtype: Dtype) -> Array:
    """Return uniform numbers in (-1, 1) of shape (m, width), the same on every backend.

    Each is a hash of row, column and seed (the finaliser of SplitMix64), computed where it is
    needed. Drawing a block of start vectors on the host takes longer than finding eigenvectors.
    """
    xp = bk.xp
    out = large_array(bk, (m, width), dtype)
    column = xp.arange(width, dtype=np.uint64) * np.uint64(ODD[0])

    def run(rows: slice) -> None:
        row = xp.arange(rows.start, rows.stop, dtype=np.uint64) * np.uint64(ODD[1])
        keys = (row + np.uint64(seed))[:, None] ^ column
        out[rows] = uniform(keys) * 2 - (1 - 2.0**-53)

    step = max(1, bk.tile_bytes // (512 * width))  # keys and what is made of them: small tiles
    bk.map_chunks(run, (slice(i, min(i + step, m)) for i in range(0, m, step)))
    return out


class Known(NamedTuple):
    """Eigenpairs of a matrix that are known already: the n pairs of largest magnitude.

    Attributes
    ----------
    values : array of shape (n,), on the host
        By decreasing magnitude.
    vectors : array of shape (m, n)
        Orthonormal.
    residual : float
        The largest residual norm, relative to the largest magnitude.
    """

    values: np.ndarray
    vectors: Array
    residual: float


def chebyshev(
    bk: Backend,
    A: Operator,
    n: int,
    tol: float,
    max_iter: int,
    rng: RandomState,
    known: Known | None = None,
) -> tuple[Array, Array, str]:
    """Return the n eigenpairs of largest magnitude, and "" or a message that says what failed.

    Each round filters the vectors that have not converged, orthonormalises and projects them. Of
    the Ritz vectors, sorted by decreasing magnitude, the longest prefix within the tolerance is
    locked: it no longer changes. `known` pairs, fewer than n, are locked from the start.
    """
    xp, m, dtype = bk.xp, A.shape[0], np.dtype(A.dtype)
    n_guard = guard_size(n)
    n_block = min(m, n + n_guard)
    single = bk.as_float32(A)
    low, scale, density = _spectrum_for_chebyshev(bk, single, rng)
    cut = min(density.magnitude(n_block), 0.999 * scale)
    locked = xp.empty((m, 0), dtype=dtype) if known is None else known.vectors
    n_locked = locked.shape[1]
    V, residuals = random_block(bk, m, n_block - n_locked, rng.randint(2**32), dtype), None
    project_out(bk, V, locked)
    theta, cut = _known_magnitudes(n_block, scale, cut, known)
    worst, stuck = 1.0, False  # the largest residual of open pairs, and of locked ones:
    loosest = max(np.finfo(dtype).eps, 0.0 if known is None else known.residual)
    rounds, first = rounds_to_keep(), 0
    if rounds is not None and (found := rounds.last(rng)) is not None:
        first, (locked, V, residuals, theta, numbers) = found
        low, scale, cut, worst, loosest, stuck, n_block = numbers.tolist()
        n_block = int(n_block)
    for i in range(first, max_iter):
        n_locked = locked.shape[1]
        # A round gets stuck on a cluster of eigenvalues wider than the block, or on rounding at a
        # high degree. The next one cuts clearly below, adds A times the block, and widens it.
        edge = 0.98 * abs(float(theta[n - 1])) if stuck else cut
        interval = filter_interval(max(low, -edge), edge, scale)
        bearable = GROWTH[dtype.name], min(1.2 * GROWTH[dtype.name], 2 * math.log(DRIFT / loosest))
        degree = filter_degree(
            interval, scale, theta[n_locked], theta[n - 1], worst / tol, bearable
        )
        if i == 0:  # random columns all turn to the top, and the Gram matrix squares the ratio
            degree = max(1, degree // 2)
        matrix = A if stuck or interval.half < NARROW * scale else single
        apply_filter(bk, matrix, V, residuals, theta[n_locked:], degree, interval)
        residuals = None
        gram, replaced = orthonormalise(bk, V, locked, rng)
        if stuck:
            V = _expanded_chebyshev_block(bk, A, V, gram, locked, rng, foreseen=replaced)
            gram = gram_of(bk, V)
        values, norms, residuals = _chebyshev_rayleigh_ritz(bk, A, V, gram)
        if stuck:
            n_block = min(n_block + n_guard, n_locked + V.shape[1], 2 * n + 64)
        width = n_block - n_locked
        values, norms = values[:width], norms[:width]
        theta = np.concatenate([theta[:n_locked], values])
        scale = max(scale, float(np.abs(theta).max()))
        norms = norms / float(np.abs(theta).max() or 1.0)
        good = norms[: n - n_locked] <= 0.5 * tol
        new = good.size if good.all() else int(np.argmin(good))
        loosest = max(loosest, float(norms[:new].max(initial=0)))
        if new or V.shape[1] > width:
            locked = joined(bk, locked, V[:, :new])
            V, residuals = columns_of(bk, V, slice(new, width)), residuals[:, new:width]
        report_progress("eigenpairs", min(locked.shape[1], n), n)
        if locked.shape[1] >= n:
            order = np.argsort(-np.abs(theta[:n]), kind="stable")
            V, theta = columns_of(bk, locked, bk.asarray(order)), theta[order]
            missed = find_missed_by_chebyshev(bk, A, theta, V, tol, rng)
            return bk.asarray(theta.astype(dtype)), V, missed
        before, worst = worst, float(norms[new : n - n_locked].max())
        stuck = not stuck and new == 0 and worst > 0.5 * before and n_block < m
        low = min(low, float(theta.min()))
        lower = _lower_chebyshev_cut(theta, n, cut, density) if i else cut
        cut = _chebyshev_cut(theta, norms, n, scale, lower)
        if rounds is not None:
            numbers = np.array([low, scale, cut, worst, loosest, stuck, n_block])
            rounds.keep(i, rng, [locked, V, residuals, theta, numbers])
    n_locked = locked.shape[1]
    failure = f"Chebyshev iteration found {n_locked} of {n} eigenpairs in {max_iter} filters."
    V = joined(bk, locked, V[:, : n - n_locked])
    return bk.asarray(theta[:n].astype(dtype)), V, failure


def _known_magnitudes(
    n_block: int, scale: float, cut: float, known: Known | None
) -> tuple[np.ndarray, float]:
    """Return the eigenvalues (n_block,), as far as they are known or bounded, and the cut."""
    theta, n_known = np.full(n_block, cut), 0 if known is None else known.values.size
    theta[n_known] = scale
    if known is not None:
        theta[:n_known] = known.values
        theta[n_known] = abs(theta[n_known - 1])  # an upper bound
        cut = min(cut, 0.999 * float(theta[n_known]))
    return theta, cut


def _chebyshev_cut(theta: np.ndarray, norms: np.ndarray, n: int, scale: float, cut: float) -> float:
    """Return the smallest magnitude below pair n that is settled enough to cut at, else `cut`."""
    gaps = (abs(theta[n - 1]) - np.abs(theta[n:])) / scale
    settled = np.flatnonzero(norms[n - theta.size :] <= 0.2 * gaps)
    return float(abs(theta[n + settled[-1]])) if settled.size else cut


def _lower_chebyshev_cut(theta: np.ndarray, n: int, cut: float, density: _Density) -> float:
    """Return a lower cut if fewer than n magnitudes are above it, else the cut.

    The filter damps what is below its cut, so wanted pairs there would not converge. The estimate
    counts too many eigenvalues above the cut. The new cut is lower by as many.
    """
    above = int((np.abs(theta) > cut).sum())
    if above >= n:
        return cut
    too_many = max(0.0, density.number_above(cut) - above)
    return min(cut, density.magnitude(theta.size + too_many))


class _Density(NamedTuple):
    """An estimate of the number of eigenvalues by magnitude.

    Attributes
    ----------
    magnitudes, counted : float64 arrays of shape (r,), on the host
        Decreasing magnitudes, and how many eigenvalues are as large or larger.
    """

    magnitudes: np.ndarray
    counted: np.ndarray

    def magnitude(self, number: float) -> float:
        """Return the magnitude that so many eigenvalues reach."""
        place = min(int(np.searchsorted(self.counted, number)), self.counted.size - 1)
        return float(self.magnitudes[place])

    def number_above(self, magnitude: float) -> float:
        """Return how many eigenvalues reach a magnitude."""
        place = int(np.searchsorted(-self.magnitudes, -magnitude, side="right"))
        return float(self.counted[place - 1]) if place else 0.0


def _spectrum_for_chebyshev(
    bk: Backend, A: Operator, rng: RandomState
) -> tuple[float, float, _Density]:
    """Estimate the lowest eigenvalue, the largest magnitude, and the density of the spectrum.

    Forty Lanczos steps run from eight vectors at once. Their Ritz values and weights estimate the
    density (Lin, Saad & Yang, SIAM Review 2016).
    """
    xp, m = bk.xp, A.shape[0]
    n_vectors, n_steps = 8, min(40, m)
    v = random_block(bk, m, n_vectors, rng.randint(2**32), A.dtype)
    v /= xp.sqrt(bk.column_dots(v, v))
    previous = xp.zeros_like(v)
    alphas, betas = [], [xp.zeros(n_vectors, dtype=A.dtype)]
    for _ in range(n_steps):
        w = product(bk, A, v) - betas[-1] * previous
        alphas.append(bk.column_dots(w, v))
        w -= alphas[-1] * v
        betas.append(xp.sqrt(bk.column_dots(w, w)))
        previous, v = v, w / xp.where(betas[-1] > 0, betas[-1], 1)
    both = bk.to_numpy(xp.stack(alphas + betas[1:])).astype(np.float64)  # host waits
    alpha, beta = both[:n_steps], both[n_steps:]
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
    density = _Density(np.abs(values[order]), m * np.cumsum(weights[order]))
    scale = float(np.abs(values).max())
    return max(min(lowest), -1.01 * scale), scale, density


def _expanded_chebyshev_block(
    bk: Backend,
    A: Operator,
    V: Array,
    gram: Array,
    locked: Array,
    rng: RandomState,
    *,
    foreseen: bool,
) -> Array:
    """Extend V by what A V adds to its range, orthonormal to V and to `locked`.

    Even and odd polynomials give eigenvalues +λ and -λ the same magnitude. If more of them
    coincide than the block holds, the block converges to a mixture, whose range A leaves in one
    direction only. `foreseen` says that V had deficient rank, so that A V will have it too.
    """
    xp, m = bk.xp, V.shape[0]
    finish_orthonormal(bk, V, gram)
    room = m - V.shape[1] - locked.shape[1]
    image = product(bk, A, columns_of(bk, V, slice(0, room)))
    image /= xp.sqrt(bk.column_dots(image, image).max())
    gram = orthonormalise(bk, image, locked, rng, also=V, foreseen=foreseen)[0]
    finish_orthonormal(bk, image, gram)
    return joined(bk, V, image)


def _chebyshev_rayleigh_ritz(
    bk: Backend, A: Operator, V: Array, gram: Array
) -> tuple[np.ndarray, np.ndarray, Array]:
    """Replace V, whose Gram matrix is `gram`, by its Ritz vectors, by decreasing magnitude.

    Returns the Ritz values, the norms of the residuals, and the residuals (m, w) in float32.
    """
    xp, (m, width) = bk.xp, V.shape
    H = xp.empty_like(gram)
    for columns in wide_panels(bk, m, width):
        image = xp.empty((m, columns.stop - columns.start), dtype=V.dtype)

        def apply(part: slice, first: int = columns.start, image: Array = image) -> None:
            shifted = slice(first + part.start, first + part.stop)
            image[:, part] = product(bk, A, xp.ascontiguousarray(V[:, shifted]))

        map_panels(bk, apply, m, panels_of(bk, *image.shape))
        H[: columns.stop, columns] = inner_products(bk, V[:, : columns.stop], image)
    del image
    H = xp.triu(H) + xp.triu(H, 1).T
    to_orthonormal = bk.inverse_lower(xp.linalg.cholesky(gram))
    H = to_orthonormal @ H @ to_orthonormal.T
    values, basis = xp.linalg.eigh((H + H.T) / 2)
    order = xp.argsort(-xp.abs(values))
    values = values[order]
    basis = xp.ascontiguousarray((to_orthonormal.T @ basis)[:, order])

    rotate(bk, V, basis)
    norms, residuals = xp.empty(width), large_array(bk, (m, width), np.float32)

    def measure(columns: slice) -> None:
        v = xp.ascontiguousarray(V[:, columns])
        r = product(bk, A, v) - v * values[columns]
        residuals[:, columns] = r
        r = r.astype(np.float64, copy=False)
        norms[columns] = xp.sqrt(bk.column_dots(r, r))

    map_panels(bk, measure, m, panels_of(bk, m, width))
    values, norms = bk.to_numpy(xp.stack([values.astype(norms.dtype), norms]))  # host waits
    return values, norms, residuals


def find_missed_by_chebyshev(
    bk: Backend,
    A: Operator,
    values: Array,
    V: Array,
    tol: float,
    rng: RandomState,
    *,
    max_degree: int = 30,
) -> str:
    """Search the complement of V for an eigenvalue larger than the smallest of `values`.

    Sixteen random vectors, kept orthogonal to V, are filtered and multiplied by A. Eigenvalues
    clearly above the smallest are found with near certainty. Those within about 3 / `max_degree`²
    of it can escape (Kuczynski & Wozniakowski 1992 give the probabilities). All are compared by
    magnitude. Returns "" or a message.
    """
    m = A.shape[0]
    width = min(16, m - V.shape[1])
    if width < 1:
        return ""
    magnitudes = np.abs(bk.to_numpy(values))
    scale, cut = float(magnitudes.max()), float(magnitudes.min())
    interval = filter_interval(-cut, cut, scale or 1.0)
    limit = 0.5 * GROWTH[np.dtype(A.dtype).name] / max(interval.growth(scale), 1e-6)
    degree = max(1, min(max_degree, int(limit)))
    block = random_block(bk, m, width, rng.randint(2**32), A.dtype)
    single = bk.as_float32(A)
    for _ in range(max(2, min(8, 3 * max_degree // degree))):
        project_out(bk, block, V)
        apply_filter(bk, single, block, None, np.zeros(width), degree, interval)
    finish_orthonormal(bk, block, orthonormalise(bk, block, V, rng)[0])
    image = product(bk, A, block)  # its norm shows ±λ even if the block mixes them
    largest = float(np.linalg.norm(bk.to_numpy(image.T @ image).astype(np.float64), 2)) ** 0.5
    if largest > cut + 10 * tol * scale:
        return (
            f"An eigenvalue of magnitude {largest:.8g} is missing: the smallest returned has "
            f"{cut:.8g}."
        )
    return ""
