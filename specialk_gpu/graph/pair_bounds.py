"""Lower bounds on the distances of pairs of rows: coarse ones for all, close ones for some."""

from __future__ import annotations

import numpy as np

from specialk_gpu.backend.cpu.pairs import pair_products
from specialk_gpu.graph.cells import widest_columns_first

__all__ = ["PairBounds"]

CLOSE = 16  # close bounds that take no longer than the measuring of a pair


class PairBounds:
    """Lower bounds on the squared distances of rows, in units of scale².

    The close bound of rows i and j is low[i] + low[j] - 2 base[i]·base[j]. The coarse bound takes
    the leading columns of `base` and, in place of the others, their norm, rounded up. It is no
    larger, by the inequality of Cauchy and Schwarz. One matrix product gives the coarse bounds of
    a tile; a close bound is a coarse one, corrected by a product of the other columns.

    Parameters
    ----------
    base : float32 array of shape (m, w)
    low : float32 array of shape (m,)
        Both bounds, in float32, are at most ‖X[i] - X[j]‖² / scale²; see below.
    scale : float
        A power of two.
    n_leading : int, optional
        Columns of the coarse bound. Without it, both bounds are the same.

    Notes
    -----
    Let u be half an eps of float32, and n the squared norm of a row. The coarse bound is a sum of
    at most w + 2 products, whose magnitudes add up to 2 (n[i] + n[j]). Its correction is a sum of
    at most w - n_leading + 3 products, whose magnitudes add up to n[i] + n[j]. Both together are
    off by at most (2 w + 10) u (n[i] + n[j]). `low` is to be s - 2 loss - floor, in the terms of
    `DistanceBounds`: there, twice the loss allows for (2 w + 32) u n, of which centring takes 7.
    """

    def __init__(
        self, base: np.ndarray, low: np.ndarray, scale: float, n_leading: int | None = None
    ) -> None:
        self.scale, self.rest = scale, None
        parts = [widest_columns_first(base)]
        if n_leading is not None:
            self.rest = np.ascontiguousarray(base[:, n_leading:])
            norms = np.sqrt(np.einsum("ij,ij->i", self.rest, self.rest, dtype=np.float64))
            norms = np.nextafter(norms.astype(np.float32), np.float32(np.inf))
            parts = [base[:, :n_leading], norms[:, None]]
        ones = np.ones((len(base), 1), dtype=np.float32)
        self.sides = np.concatenate([*parts, ones, low[:, None]], axis=1)

    def sort(self, order: np.ndarray) -> None:
        """Put the rows in another order."""
        self.sides = self.sides.take(order, axis=0)
        self.rest = None if self.rest is None else self.rest.take(order, axis=0)

    def coarse(self, rows: slice, columns: slice | np.ndarray) -> np.ndarray:
        """Return the coarse bounds of all pairs of some rows with others."""
        left = -2 * self.sides[rows]
        left[:, -2], left[:, -1] = self.sides[rows, -1], 1
        return left @ self.sides[columns].T

    def close(self, coarse: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the close bounds of pairs (p,), given the coarse ones."""
        if self.rest is None:
            return coarse
        norms = self.sides[:, -3]
        slack = norms[rows] * norms[columns]
        slack -= pair_products(self.rest, rows, columns)
        return coarse + 2 * slack

    def near_pairs(
        self, rows: slice, columns: slice | np.ndarray, limits: np.ndarray, *, ascending: bool
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the pairs of a tile whose bound is at most the larger of the limits of both.

        Parameters
        ----------
        rows, columns : slice, and slice or int array
        limits : float32 array of shape (m,)
        ascending : bool
            Whether the limits ascend. One limit then serves a whole tile at first.

        Returns
        -------
        rows, columns : int64 arrays of shape (p,)
            The row comes before the column.
        price : int
            What these pairs cost. One to measure costs as much as CLOSE close bounds.
        """
        bounds = self.coarse(rows, columns)
        if ascending and isinstance(columns, slice):
            near = bounds <= limits[columns.stop - 1]
        else:
            near = bounds <= limits[rows, None]
            near |= bounds <= limits[columns]
        flat = np.flatnonzero(near)
        i = flat // near.shape[1]
        j = flat - i * near.shape[1]
        i += rows.start
        j = j + columns.start if isinstance(columns, slice) else columns[j]
        bounds = bounds.ravel()[flat]
        keep = i < j
        if ascending:
            keep &= bounds <= limits[j]
        i, j, bounds = i[keep], j[keep], bounds[keep]
        price = 0
        if self.rest is not None:
            price = i.size // CLOSE
            keep = self.close(bounds, i, j) <= np.maximum(limits[i], limits[j])
            i, j = i[keep], j[keep]
        return i, j, price + i.size
