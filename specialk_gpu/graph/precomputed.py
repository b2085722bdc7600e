"""Affinities given by the user: checked, and made symmetric."""

from __future__ import annotations

from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.typing import Array, Sparse

__all__ = ["affinity_matrix", "rows_of_entries"]


def rows_of_entries(W: Sparse, name: str) -> Array:
    """Return the row of each entry of a CSR matrix; raise ValueError if one is not a similarity."""
    xp = backend_of(W).xp
    row = xp.searchsorted(W.indptr, xp.arange(W.nnz), side="right") - 1
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
        is averaged away. Any format of SciPy or CuPy. `W` is not changed.

    Returns
    -------
    csr_matrix of shape (m, m), float64
        With sorted indices, and without explicit zeros or duplicate entries.

    Raises
    ------
    ValueError
        If `W` is not square, not symmetric or empty, or has an entry that is negative or not
        finite; the message names the first.
    TypeError
        If `W` is neither a sparse matrix nor an array.
    """
    if not hasattr(W, "ndim"):
        msg = f"an affinity matrix must be a sparse matrix or an array, got {type(W).__name__}."
        raise TypeError(msg)
    bk = backend_of(W)
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        msg = (
            f"affinity='precomputed' expects a square matrix of similarities, got shape "
            f"{tuple(W.shape)}. For features, choose another affinity."
        )
        raise ValueError(msg)
    if not bk.sparse.issparse(W):
        W = W.astype(np.float64)  # CuPy has no sparse matrices of integers or float16
    W = bk.sparse.csr_matrix(W, dtype=np.float64, copy=True)
    W.sum_duplicates()
    rows_of_entries(W, "affinity entries")
    W.eliminate_zeros()
    if W.nnz == 0:
        msg = f"the affinity matrix of shape {tuple(W.shape)} has no entries above zero."
        raise ValueError(msg)
    difference = W - W.T
    gap = float(abs(difference).max()) if difference.nnz else 0.0
    largest = float(W.data.max())
    if gap > 1e-8 * largest:
        msg = (
            f"the affinity matrix must be symmetric, got |W - Wᵀ| up to {gap:.3g} with entries "
            f"up to {largest:.3g}. Symmetrise it first, for instance (W + W.T) / 2."
        )
        raise ValueError(msg)
    if gap > 0:
        W = bk.sparse.csr_matrix((W + W.T) * 0.5)
    W.sort_indices()
    return W
