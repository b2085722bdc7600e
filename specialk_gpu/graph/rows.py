"""Rows with what is found of them: duplicates and exact nearest neighbours, each found once."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from specialk_gpu._checkpoint import fingerprint, kept_step
from specialk_gpu._checks import checked_integer
from specialk_gpu._progress import logger
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.tiles import map_tiles
from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.graph.duplicates import duplicate_groups, first_duplicates
from specialk_gpu.graph.features import features_within_range, values_of_constant_features
from specialk_gpu.graph.neighbor_lists import NeighborLists
from specialk_gpu.graph.neighbor_search import search_neighbors
from specialk_gpu.graph.recall import Recall, measured_recall

__all__ = ["Neighbors", "Rows"]


class Neighbors(NamedTuple):
    """The nearest neighbours of every row.

    Attributes
    ----------
    distances : float64 array of shape (m, n_neighbors)
        Euclidean distances, ascending.
    indices : int64 array of shape (m, n_neighbors)
        Row numbers. At equal distances, the smaller number comes first.
    n_redone : int
        Number of rows whose first candidates could not be certified. They were searched again,
        in a higher precision or with more candidates.
    """

    distances: Array
    indices: Array
    n_redone: int


class Rows:
    """The rows of a data set. Their duplicates and neighbours are found on first use, and kept.

    Parameters
    ----------
    X : float array of shape (m, d)
        Checked by `features`.
    lists : NeighborLists, optional
        Neighbours from elsewhere, in place of an exact search.

    Attributes
    ----------
    X : float array of shape (m, d)
    leaders : int64 array of shape (m,), or None
        For rows that all count as distinct though some are equal: the first that equals each row.
    """

    def __init__(self, X: Array, lists: NeighborLists | None = None) -> None:
        self.X, self._lists = X, lists
        self.leaders: Array | None = None
        self._base: Rows | None = None  # of rows with copies: each of them once
        self._found: tuple[Array, Array, int] | None = None  # squares, indices, n_redone

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def with_copies(self, leaders: Array) -> Rows:
        """Return rows that all count as distinct: these, each once, then copies of some.

        Parameters
        ----------
        leaders : int64 array
            0, ..., and then the row that each copy equals.
        """
        rows = Rows(self.X[leaders])
        rows.leaders, rows._base = leaders, self
        return rows

    @cached_property
    def groups(self) -> tuple[Array, Array] | None:
        """The first row of each group of equal rows, and each row's group; None if all differ."""
        return None if self._base is not None else duplicate_groups(self.X)

    # Nothing that is kept refers back to these rows: they are freed with their last user, and not
    # only when Python looks for cycles.

    @property
    def distinct(self) -> Rows:
        """Each distinct row once."""
        return self if self.groups is None else self._distinct

    @cached_property
    def _distinct(self) -> Rows:
        assert self.groups is not None
        lists = None if self._lists is None else self._lists.among(*self.groups)
        distinct = Rows(self.X[self.groups[0]], lists)
        distinct.groups = None
        return distinct

    @cached_property
    def _scaled(self) -> tuple[Rows | None, float]:
        """The rows divided by a power of two, so that squares stay finite, and this number.

        If that number is large, constant columns are subtracted first. The rows are None if
        nothing changes.
        """
        if self._base is not None and self.leaders is not None:
            base, unit = self._base._scaled
            return (None if base is None else base.with_copies(self.leaders)), unit
        bk, centre = backend_of(self.X), None
        X, unit = features_within_range(bk, self.X)
        if unit > 1 and (centre := values_of_constant_features(bk, self.X)) is not None:
            X, unit = features_within_range(bk, self.X - centre)
        return (None if unit == 1 and centre is None else Rows(X, self._lists)), unit

    def in_range(self) -> tuple[Array, float]:
        """Return the result of `features_within_range`."""
        rows, unit = self._scaled
        return (self if rows is None else rows).X, unit

    def neighbors(self, n_neighbors: int, *, in_units: bool = False) -> Neighbors:
        """Return the exact nearest neighbours of every row; see `nearest_neighbors`.

        After a search for more neighbours, these are its first columns. With `in_units`, distances
        are divided by the number that `in_range` returns, so that none of them is infinite.
        """
        squares, indices, n_redone = self._nearest_in_units(n_neighbors)
        distances = backend_of(self.X).xp.sqrt(squares)
        if not in_units:
            with np.errstate(over="ignore"):  # a distance may be beyond the largest number
                distances = distances * self._scaled[1]
        return Neighbors(distances, indices.astype(np.int64), n_redone)

    def nearest(self, n_neighbors: int) -> Array:
        """Return the row numbers of the nearest neighbours: int32 array (m, n_neighbors)."""
        return self._nearest_in_units(n_neighbors)[1]

    def _nearest_in_units(self, n_neighbors: int) -> tuple[Array, Array, int]:
        """Return the result of `_nearest` for rows divided by their unit; refuse lost distances."""
        most = len(self) - 1
        n_neighbors = checked_integer(
            "n_neighbors", n_neighbors, 1, most, "the number of rows less one"
        )
        scaled, unit = self._scaled
        rows = self if scaled is None else scaled
        squares, indices, n_redone = rows._nearest(n_neighbors)
        if unit != 1 and int((squares == 0).sum()) > rows.n_equal(n_neighbors):
            msg = (
                f"X has entries as large as {unit:.3g}{_place_in_rows(rows.X)}, so that the "
                "distances between some rows vanish by rounding. Rescale X, or remove the outliers."
            )
            raise ValueError(msg)
        return squares, indices, n_redone

    def spacing(self, n_neighbors: int) -> Array:
        """Return the distance (m,) of each row to the last of its nearest neighbours."""
        xp, (scaled, unit) = backend_of(self.X).xp, self._scaled
        squares = (self if scaled is None else scaled)._nearest(n_neighbors)[0]
        with np.errstate(over="ignore"):
            spacing = xp.sqrt(squares[:, -1]) * unit
        return xp.minimum(spacing, np.finfo(np.float64).max)

    def _nearest(self, k: int) -> tuple[Array, Array, int]:
        """Return squared distances, int32 indices (m, k) and `n_redone` of rows within range."""
        if self._found is None or self._found[0].shape[1] < k:
            bk, near, groups = backend_of(self.X), self.distinct, self.groups
            if self._base is not None and self.leaders is not None:
                near, groups = self._base, (bk.xp.arange(len(self._base)), self.leaders)
            if groups is not None:
                u = len(near)
                none = bk.xp.empty((1, 0)), bk.xp.empty((1, 0), dtype=np.int32), 0
                squares, indices, n_redone = near._nearest(min(k, u - 1)) if u > 1 else none
                both = _neighbors_with_duplicate_rows(bk, squares, indices, groups, len(self), k)
                self._found = *both, n_redone
            else:
                found = kept_step(lambda: self._step(k), lambda: self._searched(k))
                self._found = found[0], found[1], int(found[2])
            logger.info("neighbours: %d rows, %d searched again", len(self), self._found[2])
        squares, indices, n_redone = self._found
        return squares[:, :k], indices[:, :k], n_redone

    def _step(self, k: int) -> str:
        """Return the name of the search for the k nearest, in a checkpoint."""
        return f"neighbours-{k}-{fingerprint(backend_of(self.X).to_numpy(self.X))}"

    def _searched(self, k: int) -> list[Array]:
        """Search for the k nearest of distinct rows."""
        bk = backend_of(self.X)
        lists = self._lists
        search = search_neighbors if lists is None else lists.search
        squares, indices, n_redone = search(bk, self.X, k)
        return [squares, indices.astype(np.int32), np.array(n_redone)]

    def recall(self, counts: list[int]) -> list[Recall]:
        """Return the recall of lists from elsewhere, for some numbers of neighbours."""
        scaled, _ = self._scaled
        rows = self if scaled is None else scaled
        rows = rows.distinct if rows._base is None else rows._base
        if len(rows) == 1:  # there is nothing to find
            return [Recall(1.0, 1.0, 1.0, 1)] * len(counts)
        squares = rows._nearest(max(counts))[0]
        return measured_recall(backend_of(self.X), rows.X, squares, counts)

    def n_equal(self, k: int) -> int:
        """Return how many of all k nearest neighbours equal their row."""
        if self.groups is None:
            return 0
        xp = backend_of(self.X).xp
        sizes = xp.bincount(self.groups[1])
        return int((sizes * xp.minimum(sizes - 1, k)).sum())


def _place_in_rows(X: Array) -> str:
    """Return where the largest entry is."""
    xp = backend_of(X).xp
    row, column = divmod(int(xp.abs(X).argmax()), X.shape[1])
    return f" (column {column}, row {row})"


def _neighbors_with_duplicate_rows(
    bk: Backend, sq: Array, index: Array, groups: tuple[Array, Array], m: int, k: int
) -> tuple[Array, Array]:
    """Insert the duplicates of each row among the neighbours of the distinct rows."""
    xp, (first, group) = bk.xp, groups
    u = first.size
    sq_u = xp.concatenate([xp.zeros((u, 1)), sq], axis=1)  # a group is nearest to itself
    index_u = xp.concatenate([xp.arange(u)[:, None], index], axis=1)
    members = first_duplicates(xp, group, u, k + 1)  # (u, k + 1), filled up with m
    out_sq = xp.empty((m, k))
    out_index = xp.empty((m, k), dtype=np.int32)

    def run(rows: slice) -> None:
        own = xp.arange(rows.start, rows.stop)
        near = index_u[group[own]]  # (t, groups)
        index = members[near].reshape(own.size, -1)
        sq = xp.repeat(sq_u[group[own]], k + 1, axis=1)
        out = (index == m) | (index == own[:, None])
        index = xp.where(out, m, index)
        sq = xp.where(out, np.inf, sq)
        by_index = xp.argsort(index, axis=1, kind="stable")
        index, sq = xp.take_along_axis(index, by_index, 1), xp.take_along_axis(sq, by_index, 1)
        best = xp.argsort(sq, axis=1, kind="stable")[:, :k]
        out_sq[own] = xp.take_along_axis(sq, best, 1)
        out_index[own] = xp.take_along_axis(index, best, 1)

    map_tiles(bk, run, m, 48 * index_u.shape[1] * (k + 1))
    return out_sq, out_index
