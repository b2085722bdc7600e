"""Cells of rows that are near each other, and which rows are within reach of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from specialk_gpu.backend.cpu.centers import nearest_center
from specialk_gpu.backend.cpu.lloyd import segment_sum

__all__ = ["CellReach", "Cells", "sort_into_cells", "widest_columns_first"]

COARSE = 64  # centres of k-means: rows of different centres share no cell
COARSE_ROWS = 256  # rows of the sample, for each centre
COARSE_ROUNDS = 3
CELL_ROWS = 128  # at most
CELL_COLUMNS = 32  # columns of `base` that decide which rows share a cell
TILE_ENTRIES = 2**20  # of a product, which stay in cache
SPREAD_ROWS = 2**13  # rows that show how much each column varies
SAMPLE = 32  # cells from which the mean reach is estimated
MOST_REACHED = 0.75  # if a larger share of rows is within reach, all are taken: it saves a copy


class Cells(NamedTuple):
    """Rows sorted into cells.

    Attributes
    ----------
    order : int32 array of shape (m,)
        The rows; those of a cell follow each other. Positions in it are called places.
    ends : int array of shape (c + 1,)
        The places of cell i are ends[i], ..., ends[i + 1] - 1.
    centers : float64 array of shape (c, r)
        The mean of each cell.
    radii : float64 array of shape (c,)
        The distance of each centre to the row of its cell that is farthest from it.
    """

    order: np.ndarray
    ends: np.ndarray
    centers: np.ndarray
    radii: np.ndarray

    def __len__(self) -> int:
        return len(self.centers)

    def places(self, cell: int) -> slice:
        """Return the places of the rows of a cell."""
        return slice(int(self.ends[cell]), int(self.ends[cell + 1]))

    def near_places(self, cell: int, n: int) -> np.ndarray:
        """Return the places of at least n rows: of the cell, and of the cells nearest to it."""
        centers = self.centers[:, :CELL_COLUMNS]
        sq = ((centers - centers[cell]) ** 2).sum(axis=1)
        sizes, wanted = np.diff(self.ends), 1 + n // CELL_ROWS
        while True:
            wanted = min(2 * wanted, len(sq))
            by_distance = np.argpartition(sq, wanted - 1)[:wanted]
            by_distance = by_distance[np.argsort(sq[by_distance], kind="stable")]
            filled = np.cumsum(sizes[by_distance])
            if filled[-1] >= n or wanted == len(sq):
                break
        chosen = by_distance[: int(np.searchsorted(filled, n)) + 1]
        return np.concatenate([np.arange(self.ends[c], self.ends[c + 1]) for c in chosen])

    def groups(self, n_rows: int) -> list[range]:
        """Return groups of successive cells with about n rows each, the first and last by turns.

        A group is compared with what comes after it, so that the two together are a fair share.
        """
        first = np.searchsorted(self.ends, np.arange(0, self.ends[-1], n_rows))
        found = [range(*pair) for pair in pairwise(np.unique([*first, len(self)]).tolist())]
        half = -(-len(found) // 2)
        turns = [*zip(found[:half], found[: half - 1 : -1], strict=False)]
        return [group for pair in turns for group in pair] + found[len(turns) : half]


def widest_columns_first(base: np.ndarray) -> np.ndarray:
    """Return `base` with the columns that vary most first, because these decide on the cells."""
    if base.shape[1] <= CELL_COLUMNS:
        return base
    sample = base[:: max(1, len(base) // SPREAD_ROWS)]
    return base[:, np.argsort(-sample.std(axis=0, dtype=np.float64), kind="stable")]


def sort_into_cells(base: np.ndarray) -> Cells:
    """Sort rows into cells: the leaves of k-d trees, one for each of a few rough clusters."""
    x = np.ascontiguousarray(base[:, :CELL_COLUMNS], dtype=np.float64)
    label = _rough_clusters(x)
    order = np.argsort(label, kind="stable").astype(np.int32)
    ends = [0]
    for start, stop in pairwise(np.cumsum([0, *np.bincount(label)]).tolist()):
        if start == stop:
            continue
        own = order[start:stop]
        tree: Any = cKDTree(x[own], leafsize=CELL_ROWS, compact_nodes=False, balanced_tree=False)
        order[start:stop] = own[tree.indices]
        for end in _ends_of_leaves(tree.tree):  # a leaf of equal rows may be large
            ends += [*range(ends[-1] + CELL_ROWS, start + end, CELL_ROWS), start + end]
    n_cells = len(ends) - 1
    centers, radii = np.empty((n_cells, base.shape[1])), np.empty(n_cells)
    for i, (start, stop) in enumerate(pairwise(ends)):
        rows = base[order[start:stop]].astype(np.float64)
        centers[i] = rows.mean(axis=0)
        radii[i] = np.sqrt(((rows - centers[i]) ** 2).sum(axis=1).max())
    return Cells(order, np.array(ends), centers, radii)


def _rough_clusters(x: np.ndarray) -> np.ndarray:
    """Return the nearest of a few centres for each row; k-means finds them in a sample."""
    sample = x[:: max(1, len(x) // (COARSE * COARSE_ROWS))]
    centers = sample[:: max(1, len(sample) // COARSE)][:COARSE]
    for _ in range(COARSE_ROUNDS):
        labels = _nearest(sample, centers)
        counts, sums = (total[0] for total in segment_sum(sample, labels, len(centers)))
        centers = sums[counts > 0] / counts[counts > 0, None]
    return _nearest(x, centers)[0]


def _nearest(x: np.ndarray, centers: np.ndarray) -> np.ndarray:
    return nearest_center(x, (x * x).sum(axis=1), centers[None], np.array([len(centers)]))[0]


def _ends_of_leaves(node: Any) -> list[int]:
    """Return where the leaves of a k-d tree end, in order."""
    ends, stack = [], [node]
    while stack:
        node = stack.pop()
        if node.split_dim == -1:
            ends.append(int(node.end_idx))
        else:
            stack += [node.greater, node.lesser]
    return ends


class CellReach:
    """Which rows may be as near to a row of a cell as the bound of one of the two allows.

    Write b_i for the rows of `base`, and e_i for ‖b_i‖² - low_i; ‖b_i - b_j‖² - e_i - e_j is a
    lower bound on the squared distance. Let c be the centre of a cell and r its radius. If that
    lower bound is at most B for a row i of the cell, then by the triangle inequality
    ‖b_j - c‖ ≤ r + √(B + e_i + e_j) ≤ r + √B + √e_i + √e_j.

    Parameters
    ----------
    cells : Cells
    sides : float32 array of shape (m, r + 2)
        The sorted rows of `base`, a column of ones, and `low`.
    bounds : float32 array of shape (m,)
        B for each of the sorted rows.
    """

    def __init__(self, cells: Cells, sides: np.ndarray, bounds: np.ndarray) -> None:
        self.cells, self.sides = cells, sides
        sq_norms = np.einsum("ij,ij->i", sides[:, :-2], sides[:, :-2], dtype=np.float64)
        excess = np.maximum(sq_norms - sides[:, -1], 0) + 1e-6 * sq_norms
        starts = cells.ends[:-1]
        self.excess = np.maximum.reduceat(excess, starts)  # of a cell
        self.own = cells.radii * (1 + 1e-6) + np.sqrt(self.excess)
        self.bound = np.sqrt(np.maximum.reduceat(bounds.astype(np.float64), starts))
        self.others = np.sqrt(excess).astype(np.float32)
        self.other_bounds = np.sqrt(bounds)

    def mean(self) -> float:
        """Estimate from some cells how many rows are within reach of a cell, on average."""
        step = max(1, len(self.cells) // SAMPLE)
        some = [self._reached(range(c, c + 1), 0) for c in range(0, len(self.cells), step)]
        return float(np.mean([np.count_nonzero(reached) for reached in some]))

    def tiles(self, group: range) -> Iterator[tuple[slice, slice | np.ndarray]]:
        """Yield places of a group of cells, and places from there on that may be near to them."""
        first, m = self.cells.places(group[0]).start, len(self.sides)
        reached = self._reached(group, first)
        if np.count_nonzero(reached) > MOST_REACHED * reached.size:
            own = slice(first, self.cells.places(group[-1]).stop)
            step = max(1, TILE_ENTRIES // (own.stop - own.start))
            yield from ((own, slice(i, min(i + step, m))) for i in range(first, m, step))
            return
        for cell, row in zip(group, reached, strict=True):
            own = self.cells.places(cell)
            columns = np.flatnonzero(row[own.start - first :]) + own.start
            step = TILE_ENTRIES // (own.stop - own.start)
            for i in range(0, columns.size, step):
                yield own, columns[i : i + step]

    def _reached(self, group: range, first: int) -> np.ndarray:
        """Return which rows, from place `first` on, are within reach of each cell of a group."""
        cells = slice(group.start, group.stop)
        centers = self.cells.centers[cells]
        left = np.concatenate([-2 * centers, np.ones((len(group), 2))], axis=1)
        left[:, -2] = (centers**2).sum(axis=1)
        left = left.astype(np.float32)
        least = np.float32(1 + 1e-5) * self.excess[cells, None].astype(np.float32)
        own = (self.own[cells, None] * (1 + 1e-5)).astype(np.float32)
        bound = (self.bound[cells, None] * (1 + 1e-5)).astype(np.float32)
        reached = np.empty((len(group), len(self.sides) - first), dtype=bool)
        step = max(1, TILE_ENTRIES // (4 * len(group)))
        for start in range(first, len(self.sides), step):
            rows = slice(start, start + step)
            sq = left @ self.sides[rows].T  # ‖b_j - c‖² - e_j
            sq -= least
            np.sqrt(np.maximum(sq, 0, out=sq), out=sq)
            limit = np.maximum(bound, self.other_bounds[rows])
            limit += self.others[rows]
            limit += own
            np.less_equal(sq, limit, out=reached[:, start - first : start - first + sq.shape[1]])
        return reached
