"""Distances of pairs of rows on the host, and the nearest of given candidates."""

from __future__ import annotations

import numpy as np

from specialk_gpu.backend.cpu.threads import map_chunks

__all__ = [
    "nearest_of_pairs",
    "pair_products",
    "pair_sq_distances",
    "rank_candidates",
    "rough_pair_sq_distances",
    "sure_limit",
]

LANES = 32  # a squared distance is summed in 32 interleaved lanes, then pairwise over the lanes


def pair_sq_distances(X: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return ‖X[rows] - X[columns]‖², the definition of distance in this library.

    Differences are taken in float64 and their squares summed in a fixed order (32 interleaved
    lanes, then pairwise over the lanes), so that every backend returns the same bits.

    Parameters
    ----------
    X : float array of shape (m, d)
    rows, columns : int arrays of shape (p,)

    Returns
    -------
    float64 array of shape (p,)
    """
    d = X.shape[1]
    width = min(LANES, 1 << (d - 1).bit_length())  # lanes beyond the columns would add zeros
    out = np.empty(rows.size, dtype=np.float64)

    def measure(pairs: slice) -> None:
        square = X.take(rows[pairs], axis=0).astype(np.float64, copy=False)
        square -= X.take(columns[pairs], axis=0)
        square *= square
        full = d - d % width
        lanes = (
            square[:, :full].reshape(len(square), full // width, width).sum(axis=1)
        )  # in their order
        lanes[:, : d - full] += square[:, full:]
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        out[pairs] = lanes[:, 0]

    step = max(1, 2**18 // max(d, width))  # stays in the cache
    map_chunks(measure, (slice(i, i + step) for i in range(0, rows.size, step)))
    return out


def rank_candidates(
    X: np.ndarray, rows: np.ndarray, places: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Measure the candidates of each row and return the k nearest; ties go to the smaller number.

    Parameters
    ----------
    X : float array of shape (m, d)
    rows : int64 array of shape (t,)
        The numbers of the rows.
    places : int64 array of shape (t, width)
        The numbers of the candidates: all different, and at least k beside the row itself.
        Negative numbers are skipped.

    Returns
    -------
    sq_distances, numbers : float64 and int64 arrays of shape (t, k)
        Ascending by distance (see `pair_sq_distances`).
    """
    row, column = np.nonzero((places >= 0) & (places != rows[:, None]))
    rough = np.full(places.shape, np.inf, dtype=np.float32)
    rough[row, column] = rough_pair_sq_distances(X, rows[row], places[row, column])
    limit = sure_limit(np.partition(rough, k - 1, axis=1)[:, k - 1], X.shape[1])
    row, column = row[near := rough[row, column] <= limit[row]], column[near]
    return nearest_of_pairs(X, rows.size, k, row, rows[row], places[row, column])


def nearest_of_pairs(
    X: np.ndarray, n: int, k: int, row: np.ndarray, numbers: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Measure pairs (p,) of `n` rows, sorted by `row`, and return the k nearest of each row."""
    sq = pair_sq_distances(X, numbers, others)
    best = np.searchsorted(row, np.arange(n))[:, None] + np.arange(k)
    if not ((row[:-1] < row[1:]) | (sq[:-1] < sq[1:])).all():  # a tree's are sorted, but for ties
        best = np.lexsort((others, sq, row))[best]
    return sq[best], others[best]


def rough_pair_sq_distances(X: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return ‖X[rows] - X[columns]‖² in float32.

    The error is at most d + 8 units in the last place, or 2 d times the smallest number.
    """
    out = np.empty(rows.size, dtype=np.float32)

    def measure(pairs: slice) -> None:
        with np.errstate(over="ignore", under="ignore"):
            difference = X.take(rows[pairs], axis=0)
            difference -= X.take(columns[pairs], axis=0)
            difference = difference.astype(np.float32, copy=False)
            np.vecdot(difference, difference, out=out[pairs])

    step = max(1, 2**17 // X.shape[1])
    map_chunks(measure, (slice(i, i + step) for i in range(0, rows.size, step)))
    return out


def pair_products(A: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return A[rows]·A[columns] for pairs (p,), in the dtype of A."""
    out = np.empty(rows.size, dtype=A.dtype)

    def multiply(pairs: slice) -> None:
        np.vecdot(A.take(rows[pairs], axis=0), A.take(columns[pairs], axis=0), out=out[pairs])

    step = max(1, 2**17 // A.shape[1])
    map_chunks(multiply, (slice(i, i + step) for i in range(0, rows.size, step)))
    return out


def sure_limit(rough: np.ndarray, d: int) -> np.ndarray:
    """Bound from above the rough distances of rows that are no farther than the given ones."""
    single = np.finfo(np.float32)
    return rough.astype(np.float64) * (1 + 4 * (d + 8) * float(single.eps)) + 8 * d * single.tiny
