"""Lower bounds on the distances of pairs of rows: coarse ones for all, close ones for some."""

from __future__ import annotations

import numpy as np

from specialk_gpu.backend.cpu.pairs import pair_products
from specialk_gpu.graph.cells import widest_columns_first

__all__ = ["PairBounds"]


class PairBounds:
    """Lower bounds on the squared distances of rows, in units of scale².

    The close bound is low[i] + low[j] - 2 base[i]·base[j]. The coarse bound takes the leading
    columns of `base` and, in place of the others, their norm, rounded up: by Cauchy and Schwarz,
    its product is no smaller, except for rounding that `low` allows for. One matrix product gives
    the coarse bounds of a tile.

    Parameters
    ----------
    base : float32 array of shape (m, w)
    low : float32 array of shape (m,)
        The close bounds, and the coarse ones, computed in float32, are at most
        ‖X[i] - X[j]‖² / scale². See `distance_bounds`.
    scale : float
        A power of two.
    n_leading : int, optional
        Columns of the coarse bound. Without it, the coarse bound is the close one.
    """

    def __init__(
        self, base: np.ndarray, low: np.ndarray, scale: float, n_leading: int | None = None
    ) -> None:
        m, self.width = base.shape
        self.scale, self.first = scale, 0
        parts = [widest_columns_first(base)]
        if n_leading is not None:
            rest = base[:, n_leading:]
            norms = np.sqrt(np.einsum("ij,ij->i", rest, rest, dtype=np.float64))
            norms = np.nextafter(norms.astype(np.float32), np.float32(np.inf))
            parts, self.first = [rest, base[:, :n_leading], norms[:, None]], rest.shape[1]
        # the columns of `base`, and from `first` on what the coarse bound multiplies
        self.rows = np.concatenate([*parts, np.ones((m, 1), np.float32), low[:, None]], axis=1)

    @property
    def sides(self) -> np.ndarray:
        """Return what the coarse bounds multiply: columns, ones, and `low`."""
        return self.rows[:, self.first :]

    def sort(self, order: np.ndarray) -> None:
        """Put the rows in another order."""
        self.rows = self.rows.take(order, axis=0)

    def of_tile(self, rows: slice, columns: slice | np.ndarray) -> np.ndarray:
        """Return the coarse bounds of all pairs of some rows with others."""
        left = -2 * self.sides[rows]
        left[:, -2], left[:, -1] = self.sides[rows, -1], 1
        return left @ self.sides[columns].T

    def of_pairs(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the close bounds of pairs (p,)."""
        low = self.rows[:, -1]
        return low[rows] + low[columns] - 2 * pair_products(self.rows, self.width, rows, columns)

    def near_pairs(
        self, rows: slice, columns: slice | np.ndarray, limits: np.ndarray, *, ascending: bool
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the pairs of a tile whose bound is at most the larger of the limits of both.

        Parameters
        ----------
        rows, columns : slice, and slice or int array
        limits : float32 array of shape (m,)
        ascending : bool
            Whether the limits ascend. One limit then serves the whole tile at first.

        Returns
        -------
        rows, columns : int64 arrays of shape (p,)
            The row comes before the column.
        n_left : int
            Pairs that the coarse bounds left.
        """
        lower = self.of_tile(rows, columns)
        if ascending and isinstance(columns, slice):
            near = lower <= limits[columns.stop - 1]
        else:
            near = lower <= limits[rows, None]
            near |= lower <= limits[columns]
        flat = np.flatnonzero(near)
        i = flat // near.shape[1]
        j = flat - i * near.shape[1]
        i += rows.start
        j = j + columns.start if isinstance(columns, slice) else columns[j]
        keep = i < j
        if ascending:
            keep &= lower.ravel()[flat] <= limits[j]
        i, j = i[keep], j[keep]
        if self.first:
            keep = self.of_pairs(i, j) <= np.maximum(limits[i], limits[j])
            i, j = i[keep], j[keep]
        return i, j, flat.size
