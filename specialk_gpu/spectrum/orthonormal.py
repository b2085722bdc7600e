"""Orthonormal columns of a block, by two Cholesky factorisations."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from specialk_gpu.spectrum.convergence import ConvergenceError

__all__ = ["finish", "orthonormalise", "wide_panels"]


def orthonormalise(
    bk: ModuleType, V: Any, locked: Any, rng: Any, *, foreseen: bool = False
) -> tuple[Any, bool]:
    """Make the columns of V nearly orthonormal, and orthogonal to `locked`, in place.

    Cholesky-QR from the Gram matrix, until that is near the identity. A block of deficient
    rank (a matrix of low rank has such filters) keeps its range and takes fresh random columns
    for the rest. Returns the Gram matrix, and whether the rank was deficient.

    Waits once for the device, and three times where the rank is deficient, twice if that is
    `foreseen`: a step is taken on the condition, known to the device alone, that it is sound and
    still needed, and the next Gram matrix comes with the answer.
    """
    xp, replaced = bk.xp, False
    gram, near = _gram(bk, V, locked)
    for _ in range(5):
        factor, safe = _cholesky(bk, gram)
        go = safe & ~near
        factor = xp.where(go, factor, xp.eye(gram.shape[0], dtype=gram.dtype))
        _multiply_upper(bk, V, bk.inverse_lower(factor).T)
        after, near_after = _gram(bk, V, locked, go)
        flags = xp.stack([near, safe, near_after])
        values = None
        if foreseen:
            values, basis = xp.linalg.eigh(gram.astype(np.float64))
            found = bk.to_numpy(xp.concatenate([flags.astype(np.float64), values]))  # a wait
            flags, on_host = found[:3], found[3:]
        else:
            flags = bk.to_numpy(flags)  # a wait
        if flags[0]:
            return gram, replaced
        if flags[1]:
            if flags[2]:
                return after, replaced
            gram, near = after, near_after
            continue
        if values is None:
            values, basis = xp.linalg.eigh(gram.astype(np.float64))
            on_host = bk.to_numpy(values)  # a wait
        _replace_dependent(bk, V, values, basis, on_host, rng)
        gram, near = _gram(bk, V, locked)
        replaced = True
    msg = "a block of vectors could not be made orthonormal: is the matrix finite and symmetric?"
    raise ConvergenceError(msg)


def _gram(bk: ModuleType, V: Any, locked: Any, go: Any | None = None) -> tuple[Any, Any]:
    """Make V orthogonal to `locked`, in place; return VᵀV and whether it is near the identity.

    `go` is a condition on the device: V stays as it is where that does not hold.
    """
    xp = bk.xp
    if locked.shape[1]:
        along = locked.T @ V
        if go is not None:
            along *= go.astype(V.dtype)
        V -= locked @ along
    gram = V.T @ V
    away = xp.abs(gram - xp.eye(gram.shape[0], dtype=gram.dtype)).max()
    return gram, away.astype(np.float64) < 1e-2


def finish(bk: ModuleType, V: Any, gram: Any) -> None:
    """Make nearly orthonormal columns orthonormal to the last digits, in place."""
    _multiply_upper(bk, V, bk.inverse_lower(bk.xp.linalg.cholesky(gram)).T)


def _multiply_upper(bk: ModuleType, V: Any, T: Any) -> None:
    """Replace V by V T for an upper triangular T, from the last columns to the first."""
    for columns in reversed(wide_panels(bk, V.shape[1])):
        V[:, columns] = V[:, : columns.stop] @ T[: columns.stop, columns]


def wide_panels(bk: ModuleType, width: int) -> list[slice]:
    """Split the columns of a block so that a triangle is worth its half of a product."""
    step = max(bk.panel_width, -(-width // 8))
    return [slice(j, min(j + step, width)) for j in range(0, width, step)]


def _cholesky(bk: ModuleType, gram: Any) -> tuple[Any, Any]:
    """Return the Cholesky factor and whether `gram` is safely positive definite, on the device."""
    xp = bk.xp
    try:
        factor = xp.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        return gram, xp.zeros((), dtype=bool)
    # a pivot near √eps is rounding; CuPy returns a failed factor without a word
    eps = float(np.finfo(gram.dtype).eps)
    error = xp.abs(factor @ factor.T - gram).max().astype(np.float64)
    pivot = xp.diagonal(factor).copy().min().astype(np.float64)
    return factor, (pivot > 10 * math.sqrt(eps * gram.shape[0])) & (error < math.sqrt(eps))


def _replace_dependent(
    bk: ModuleType, V: Any, values: Any, basis: Any, on_host: np.ndarray, rng: Any
) -> None:
    """Replace V by a basis of its numerical range and random columns, in place.

    Given the eigenpairs of its Gram matrix, and their values on the host too, rising.
    """
    xp, width = bk.xp, V.shape[1]
    eps = float(np.finfo(V.dtype).eps)
    rank = int((on_host > 100 * eps * width * on_host[-1]).sum())
    keep = slice(width - rank, None)
    columns = V @ (basis[:, keep] / xp.sqrt(values[keep])).astype(V.dtype)
    fresh = rng.standard_normal((V.shape[0], width - rank)) / math.sqrt(V.shape[0])
    V[:, :rank] = columns[:, ::-1]
    V[:, rank:] = bk.asarray(fresh, dtype=V.dtype)
