"""Orthonormalisation of the columns of a block, by two Cholesky factorisations (Cholesky-QR)."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import RandomState

from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.spectrum.convergence import ConvergenceError
from specialk_gpu.spectrum.tall import gram_of, multiply_upper, project_out

__all__ = ["finish_orthonormal", "orthonormalise"]


def orthonormalise(
    bk: Backend,
    V: Array,
    locked: Array,
    rng: RandomState,
    *,
    also: Array | None = None,
    foreseen: bool = False,
) -> tuple[Array, bool]:
    """Make the columns of V nearly orthonormal, and orthogonal to `locked` and `also`, in place.

    Cholesky-QR repeats until the Gram matrix VᵀV is near the identity. A block of deficient rank,
    as a matrix of low rank produces, keeps its range, and random columns replace the rest. Returns
    the Gram matrix, and whether the rank was deficient.

    Waits for the device once. If the rank is deficient, it waits three times, or twice if that is
    `foreseen`. The device itself decides whether a step is sound and still needed; the host learns
    this together with the next Gram matrix.
    """
    xp, replaced = bk.xp, False
    fixed = (locked,) if also is None else (locked, also)
    gram, near = _gram_matrix(bk, V, fixed)
    for _ in range(5):
        factor, safe = _cholesky(bk, gram)
        go = safe & ~near
        factor = xp.where(go, factor, xp.eye(gram.shape[0], dtype=gram.dtype))
        multiply_upper(bk, V, bk.inverse_lower(factor).T)
        after, near_after = _gram_matrix(bk, V, fixed, go)
        flags = xp.stack([near, safe, near_after])
        values = None
        if foreseen:
            values, basis = xp.linalg.eigh(gram.astype(np.float64))
            found = bk.to_numpy(xp.concatenate([flags.astype(np.float64), values]))  # host waits
            flags, on_host = found[:3], found[3:]
        else:
            flags = bk.to_numpy(flags)  # host waits
        if flags[0]:
            return gram, replaced
        if flags[1]:
            if flags[2]:
                return after, replaced
            gram, near = after, near_after
            continue
        if values is None:
            values, basis = xp.linalg.eigh(gram.astype(np.float64))
            on_host = bk.to_numpy(values)  # host waits
        _replace_dependent(bk, V, values, basis, on_host, rng)
        gram, near = _gram_matrix(bk, V, fixed)
        replaced = True
    msg = "a block of vectors could not be made orthonormal: is the matrix finite and symmetric?"
    raise ConvergenceError(msg)


def _gram_matrix(
    bk: Backend, V: Array, fixed: tuple[Array, ...], go: Array | None = None
) -> tuple[Array, Array]:
    """Make V orthogonal to `fixed`, in place; return VᵀV and whether it is near the identity.

    `go` is a condition on the device: if it does not hold, V is not changed.
    """
    xp = bk.xp
    for U in fixed:
        project_out(bk, V, U, go)
    gram = gram_of(bk, V)
    away = xp.abs(gram - xp.eye(gram.shape[0], dtype=gram.dtype)).max()
    return gram, away.astype(np.float64) < 1e-2


def finish_orthonormal(bk: Backend, V: Array, gram: Array) -> None:
    """Make nearly orthonormal columns orthonormal to the last digits, in place."""
    multiply_upper(bk, V, bk.inverse_lower(bk.xp.linalg.cholesky(gram)).T)


def _cholesky(bk: Backend, gram: Array) -> tuple[Array, Array]:
    """Return the Cholesky factor and whether `gram` is safely positive definite, on the device."""
    xp = bk.xp
    try:
        factor = xp.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        return gram, xp.zeros((), dtype=bool)
    # a pivot near √eps is rounding; CuPy returns a failed factor without an error
    eps = float(np.finfo(gram.dtype).eps)
    error = xp.abs(factor @ factor.T - gram).max().astype(np.float64)
    pivot = xp.diagonal(factor).copy().min().astype(np.float64)
    return factor, (pivot > 10 * math.sqrt(eps * gram.shape[0])) & (error < math.sqrt(eps))


def _replace_dependent(
    bk: Backend, V: Array, values: Array, basis: Array, on_host: np.ndarray, rng: RandomState
) -> None:
    """Replace V by a basis of its numerical range and random columns, in place.

    `values`, ascending, and `basis` are the eigenpairs of VᵀV; `on_host` holds `values` too.
    """
    xp, width = bk.xp, V.shape[1]
    eps = float(np.finfo(V.dtype).eps)
    rank = int((on_host > 100 * eps * width * on_host[-1]).sum())
    keep = slice(width - rank, None)
    columns = V @ (basis[:, keep] / xp.sqrt(values[keep])).astype(V.dtype)
    fresh = rng.standard_normal((V.shape[0], width - rank)) / math.sqrt(V.shape[0])
    V[:, :rank] = columns[:, ::-1]
    V[:, rank:] = bk.asarray(fresh, dtype=V.dtype)
