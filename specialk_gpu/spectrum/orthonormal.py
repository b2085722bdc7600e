"""Orthonormalisation of the columns of a block, by two Cholesky factorisations (Cholesky-QR)."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import RandomState

from specialk_gpu._time_limit import check_time_limit
from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.spectrum.convergence import ConvergenceError

__all__ = ["finish_orthonormal", "gram_of", "orthonormalise", "wide_panels"]

LONG_PRODUCT = 2**33  # multiplications, which may take half a second on the host


def orthonormalise(
    bk: Backend, V: Array, locked: Array, rng: RandomState, *, foreseen: bool = False
) -> tuple[Array, bool]:
    """Make the columns of V nearly orthonormal, and orthogonal to `locked`, in place.

    Cholesky-QR repeats until the Gram matrix VᵀV is near the identity. A block of deficient rank,
    as a matrix of low rank produces, keeps its range, and random columns replace the rest. Returns
    the Gram matrix, and whether the rank was deficient.

    Waits for the device once. If the rank is deficient, it waits three times, or twice if that is
    `foreseen`. The device itself decides whether a step is sound and still needed; the host learns
    this together with the next Gram matrix.
    """
    xp, replaced = bk.xp, False
    gram, near = _gram_matrix(bk, V, locked)
    for _ in range(5):
        factor, safe = _cholesky(bk, gram)
        go = safe & ~near
        factor = xp.where(go, factor, xp.eye(gram.shape[0], dtype=gram.dtype))
        _multiply_upper(bk, V, bk.inverse_lower(factor).T)
        after, near_after = _gram_matrix(bk, V, locked, go)
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
        gram, near = _gram_matrix(bk, V, locked)
        replaced = True
    msg = "a block of vectors could not be made orthonormal: is the matrix finite and symmetric?"
    raise ConvergenceError(msg)


def _gram_matrix(
    bk: Backend, V: Array, locked: Array, go: Array | None = None
) -> tuple[Array, Array]:
    """Make V orthogonal to `locked`, in place; return VᵀV and whether it is near the identity.

    `go` is a condition on the device: if it does not hold, V is not changed.
    """
    xp = bk.xp
    if locked.shape[1]:
        for columns in _stoppable(bk, V, locked.shape[1]):
            along = locked.T @ V[:, columns]
            if go is not None:
                along *= go.astype(V.dtype)
            V[:, columns] -= locked @ along
    gram = gram_of(bk, V)
    away = xp.abs(gram - xp.eye(gram.shape[0], dtype=gram.dtype)).max()
    return gram, away.astype(np.float64) < 1e-2


def gram_of(bk: Backend, V: Array) -> Array:
    """Return VᵀV."""
    width = V.shape[1]
    panels = _stoppable(bk, V, width)
    if len(panels) == 1:
        return V.T @ V
    gram = bk.xp.empty((width, width), dtype=V.dtype)
    for columns in panels:
        gram[: columns.stop, columns] = V[:, : columns.stop].T @ V[:, columns]
        check_time_limit()
    return bk.xp.triu(gram) + bk.xp.triu(gram, 1).T


def _stoppable(bk: Backend, V: Array, width: int) -> list[slice]:
    """Split the columns of V for products with `width` others, so that each takes a short time."""
    if bk.name != "numpy" or V.size * width < LONG_PRODUCT:
        return [slice(None)]
    return wide_panels(bk, V.shape[1])


def finish_orthonormal(bk: Backend, V: Array, gram: Array) -> None:
    """Make nearly orthonormal columns orthonormal to the last digits, in place."""
    _multiply_upper(bk, V, bk.inverse_lower(bk.xp.linalg.cholesky(gram)).T)


def _multiply_upper(bk: Backend, V: Array, T: Array) -> None:
    """Replace V by V T for an upper triangular T, from the last columns to the first."""
    for columns in reversed(wide_panels(bk, V.shape[1])):
        V[:, columns] = V[:, : columns.stop] @ T[: columns.stop, columns]


def wide_panels(bk: Backend, width: int) -> list[slice]:
    """Split the columns so that a product with a triangular matrix costs half of a full one."""
    step = max(bk.panel_width, -(-width // 8))
    return [slice(j, min(j + step, width)) for j in range(0, width, step)]


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
