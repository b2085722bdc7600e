"""Parts of the neighbour search on the host: products of rows, the smallest scores, hashes."""

from __future__ import annotations

import numpy as np

from specialk_gpu.backend.cpu.threads import map_chunks
from specialk_gpu.backend.typing import Dtype

__all__ = ["product_dtypes", "product_error", "products", "row_hashes", "select_smallest"]


def product_dtypes() -> tuple[str, ...]:
    """Return the dtypes in which products may propose neighbours, the fastest first."""
    return ("float32",)


def product_error(n_features: int, dtype: Dtype) -> float:
    """Bound the relative error of `products`: |fl(x·y) - x·y| <= error ‖x‖‖y‖."""
    sums = np.float32 if np.dtype(dtype) == np.float16 else dtype
    return n_features * float(np.finfo(sums).eps) / 2


def products(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return -2 A Bᵀ (t, m) for A (t, d) and B (m, d); float16 is summed in float32."""
    if A.dtype == np.float16:
        A, B = A.astype(np.float32), B.astype(np.float32)
    return (-2 * A) @ B.T


def select_smallest(
    products: np.ndarray, offsets: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Collect the places of at least the `n` smallest scores of each row.

    Parameters
    ----------
    products : array of shape (t, m)
    offsets : array of shape (m,)
        Scores are products + offsets.
    n : int
        1 <= n <= m.

    Returns
    -------
    places : int64 array of shape (t, width)
        Column numbers. Rows with fewer are filled up with -1.
    thresholds : array of shape (t,)
        No score outside of `places` is below the threshold of its row. A row with more ties than
        fit is cut short, and its threshold is -inf.
    """
    t, m = products.shape
    width = 4 * n + 32
    places = np.full((t, width), -1, dtype=np.int64)
    thresholds = np.empty(t, dtype=products.dtype)

    def select(rows: slice) -> None:
        block = products[rows] + offsets
        limit = _bound_on_nth_product(block, n)
        flat = np.flatnonzero(block <= limit[:, None])
        row, column = np.divmod(flat, m)
        counts = np.bincount(row, minlength=block.shape[0])
        position = np.arange(flat.size) - np.repeat(np.cumsum(counts) - counts, counts)
        keep = position < width
        places[rows][row[keep], position[keep]] = column[keep]
        thresholds[rows] = np.where(counts <= width, limit, -np.inf)

    step = max(1, 2**20 // m)
    map_chunks(select, (slice(i, i + step) for i in range(0, t, step)))
    return places[:, : int((places >= 0).sum(axis=1).max())], thresholds


def _bound_on_nth_product(block: np.ndarray, n: int) -> np.ndarray:
    """Bound the n-th smallest value of each row from above, by the n-th smallest group minimum."""
    t, m = block.shape
    groups = max(8 * n, 256)
    size = m // groups
    if size < 2:
        return np.partition(block, n - 1, axis=1)[:, n - 1]
    minima = block[:, : groups * size].reshape(t, size, groups).min(axis=1)
    return np.partition(minima, n - 1, axis=1)[:, n - 1]


def row_hashes(X: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Hash the bits of each row with odd `factors` (d,): uint64 array (m,). -0 counts as 0."""
    m, d = X.shape
    integer = np.uint32 if X.dtype == np.float32 else np.uint64
    out = np.empty(m, dtype=np.uint64)

    def run(rows: slice) -> None:
        bits = np.ascontiguousarray(X[rows] + 0).view(integer).astype(np.uint64)
        bits ^= bits >> 32
        bits *= factors
        out[rows] = bits.sum(axis=1)

    step = max(1, 2**18 // d)
    map_chunks(run, (slice(i, i + step) for i in range(0, m, step)))
    return out
