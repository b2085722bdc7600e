"""Affinities given by the user: checked, and made symmetric."""

from __future__ import annotations

from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.intact import intact_csr
from specialk_gpu.backend.typing import Array, Sparse

__all__ = ["affinity_matrix", "rows_of_affinities", "symmetric_affinity"]

LEAST_TOLERANCE, MOST_TOLERANCE = 1e-8, 5e-3  # of asymmetry, relative to the largest entry
MOST = 1e290  # the largest entry: sums of a row stay finite, and those of squares of D


def rows_of_affinities(W: Sparse, name: str) -> Array:
    """Return the row of each entry of a CSR matrix; raise ValueError if one is not a similarity."""
    bk = backend_of(W)
    xp, row = bk.xp, bk.entry_rows(W.indptr, W.nnz)
    wrong = xp.flatnonzero(~(xp.isfinite(W.data) & (W.data >= 0)))
    if wrong.size:
        at = int(wrong[0])
        msg = (
            f"{name} must be finite and not negative, got "
            f"{float(W.data[at])} at row {int(row[at])}, column {int(W.indices[at])}."
        )
        raise ValueError(msg)
    return row


@on_its_device
def affinity_matrix(W: Any) -> Sparse:
    """Check an affinity matrix and return it as a symmetric CSR matrix of float64.

    Parameters
    ----------
    W : sparse matrix or array of shape (m, m)
        Similarities, not distances: finite, not negative, and symmetric up to round-off, which
        is averaged away. Round-off may be 16 ε of the largest entry, where ε is that of the dtype
        of `W`, but at least 1e-8 and at most 0.005 of it. Any format of SciPy or CuPy. `W` is not
        changed.

    Returns
    -------
    csr_matrix of shape (m, m), float64
        With sorted indices, and without explicit zeros or duplicate entries.

    Raises
    ------
    ValueError
        If `W` is damaged, not square, not symmetric or empty, or has an entry that is negative,
        not finite or above 1e290; the message names the first.
    TypeError
        If `W` is neither a sparse matrix nor an array.
    """
    if not hasattr(W, "ndim"):
        msg = f"an affinity matrix must be a sparse matrix or an array, got {type(W).__name__}."
        raise TypeError(msg)
    if backend_of(W).sparse.issparse(W):
        W = intact_csr(W, "the affinity matrix")
    return symmetric_affinity(W)


def symmetric_affinity(W: Any) -> Sparse:
    """Do what `affinity_matrix` does, for an array, or for a CSR matrix known to be whole."""
    bk = backend_of(W)
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        msg = (
            f"affinity='precomputed' expects a square matrix of similarities, got shape "
            f"{tuple(W.shape)}. For features, choose another affinity."
        )
        raise ValueError(msg)
    if W.dtype.kind not in "biuf":
        msg = f"the affinity matrix must hold real numbers, got dtype {W.dtype}."
        raise ValueError(msg)
    epsilon = np.finfo(W.dtype).eps if W.dtype.kind == "f" else 0.0
    tolerance = min(max(LEAST_TOLERANCE, 16 * float(epsilon)), MOST_TOLERANCE)
    if not bk.sparse.issparse(W):
        W = W.astype(np.float64)  # CuPy has no sparse matrices of integers or float16
    W = bk.sparse.csr_matrix(W, dtype=np.float64, copy=True)
    W.sum_duplicates()
    rows_of_affinities(W, "affinity entries")
    W.eliminate_zeros()
    if W.nnz == 0:
        msg = f"the affinity matrix of shape {tuple(W.shape)} has no entries above zero."
        raise ValueError(msg)
    difference = W - W.T
    gap = float(abs(difference).max()) if difference.nnz else 0.0
    largest = float(W.data.max())
    if largest > MOST:
        msg = f"affinity entries must be at most {MOST:g}, got {largest:.3g}. Divide W by a number."
        raise ValueError(msg)
    if gap > tolerance * largest:
        msg = (
            f"the affinity matrix must be symmetric, got |W - Wᵀ| up to {gap:.3g} with entries "
            f"up to {largest:.3g}, of which {tolerance:.2g} may be round-off. Symmetrise it first, "
            "for instance (W + W.T) / 2."
        )
        raise ValueError(msg)
    if gap > 0:
        W = bk.sparse.csr_matrix((W + W.T) * 0.5)
        W.eliminate_zeros()  # half of the smallest number is zero
    W.sort_indices()
    return W
