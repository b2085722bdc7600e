"""The kNN graphs, or the given graph, in which the cut test looks for gaps."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Sparse
from specialk_gpu.graph.knn import knn_graph_of, normalised_graph, symmetric_knn_graph
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection.cuts import heaviest_cut, heaviest_cut_if_mixed
from specialk_gpu.selection.discrete import spread_discrete_columns
from specialk_gpu.selection.null_distribution import (
    isolation_log_p_under_null,
    local_dimension,
    log_p_under_null,
)
from specialk_gpu.selection.valleys import Valleys, halves_for_valleys
from specialk_gpu.selection.walks import WalkGraph, prepare_walks

__all__ = ["NEAR", "WIDE", "CutGraphs"]

NEAR, WIDE = 10, 30  # neighbours of a row in the first graph ("near") and in the second ("wide")
LEAST_ROWS = 3 * WIDE  # with fewer rows there is no second graph: most rows would be neighbours


class CutGraphs:
    """The graphs in which the test looks for gaps between rows; each is built on first use.

    Parameters
    ----------
    W : csr_matrix of shape (m, m), or None
        Symmetric similarities, not checked. With `rows`, their graph of 10 neighbours; None
        builds it.
    rows : Rows, optional
        Duplicate rows are used once.

    Attributes
    ----------
    n_rows : int
        The number of rows, m.
    """

    def __init__(self, W: Sparse | None, rows: Rows | None = None) -> None:
        given: Any = W if rows is None else rows.X
        self._W: Any = W
        self._rows = rows
        self.n_rows: int = given.shape[0]
        self._widths: dict[tuple[bytes, bool, bool], float] = {}

    def forget(self) -> None:
        """Free the graphs and what follows from them; each is made again if it is asked for."""
        for name in ("near", "wide", "nearest", "_spread", "_halves"):
            self.__dict__.pop(name, None)

    @property
    def has_rows(self) -> bool:
        """Whether the rows are known."""
        return self._rows is not None

    @property
    def _groups(self) -> tuple[Array, Array] | None:
        return None if self._rows is None else self._rows.groups

    @property
    def _distinct(self) -> Rows:
        assert self._rows is not None
        return self._rows.distinct

    @property
    def n_distinct(self) -> int:
        """The number of distinct rows."""
        return self.n_rows if self._groups is None else int(self._groups[0].size)

    def one_part(self) -> Array:
        """Return labels that put all distinct rows into cluster 0."""
        bk = backend_of(self._W if self._rows is None else self._rows.X)
        return bk.xp.zeros(self.n_distinct, dtype=np.int32)

    def distinct(self, values: Array) -> Array:
        """Return the values of the distinct rows; copies among these get the value of the first."""
        leaders = None if self._rows is None else self._rows.leaders
        if leaders is not None:
            return values[leaders]
        return values if self._groups is None else values[self._groups[0]]

    def spread(self, values: Array) -> Array:
        """Return values for all rows, each that of the distinct row that it equals."""
        return values if self._groups is None else values[self._groups[1]]

    @cached_property
    def near(self) -> WalkGraph:
        """The first graph: the given one, or the graph of 10 neighbours of the distinct rows."""
        if self._W is not None and self._groups is None:
            return prepare_walks(self._W, twins=self._rows is None)
        return prepare_walks(knn_graph_of(self._distinct, min(NEAR, len(self._distinct) - 1)))

    @cached_property
    def nearest(self) -> Array:
        """The 30 nearest neighbours of each distinct row, or all others if there are fewer."""
        return self._distinct.nearest(min(WIDE, len(self._distinct) - 1))

    @cached_property
    def _spread(self) -> Array:
        return spread_discrete_columns(self._distinct.in_range()[0])

    @cached_property
    def _halves(self) -> Array:
        return halves_for_valleys(self._spread)

    def valleys(self, part: Array, K: int) -> Valleys:
        """Return the valleys between parts. Requires `has_rows`."""
        return Valleys(self._spread, self._halves, part, K)

    @property
    def n_columns(self) -> int:
        """The number of columns of the rows, or 0 if the rows are not known."""
        return 0 if self._rows is None else int(self._rows.X.shape[1])

    @property
    def has_second(self) -> bool:
        """Whether the rows are known and are enough for a graph of 30 neighbours."""
        return self._rows is not None and len(self._distinct) >= LEAST_ROWS

    @cached_property
    def wide(self) -> WalkGraph:
        """The second graph: that of 30 neighbours. Requires `has_second`."""
        return prepare_walks(
            normalised_graph(symmetric_knn_graph(backend_of(self.nearest), self.nearest, None))
        )

    @cached_property
    def least_neighbors(self) -> float:
        """The smallest effective number of neighbours of a row, (Σw)² / Σw²."""
        S, bk = self.near.S, backend_of(self.near.S)
        if not S.nnz:
            return 0.0
        xp, m = bk.xp, self.n_distinct
        squares = bk.sparse.csr_matrix((S.data**2, S.indices, S.indptr), shape=S.shape)
        sums = xp.empty((m, 1)), xp.empty((m, 1))
        for A, out in zip((S, squares), sums, strict=True):  # sums in the order of the entries
            bk.spmm(A, xp.ones((m, 1)), out, 1.0, 0.0, 0.0)
        return float((sums[0] ** 2 / xp.where(sums[1] > 0, sums[1], 1)).min())

    def attainable_log_p(self) -> float:
        """Return the lowest log p that two perfectly separated clusters could reach.

        The two are taken to be complete graphs, whose halves are joined by a cut of an eighth of
        all rows. If each row has so many neighbours that two such clusters have no room, they
        cannot be separate. An exception is twins: with them, cuts are known inside complete graphs
        of any size.
        """
        m = self.n_distinct
        crowded = m < 2 * (self.least_neighbors + 1) - 1e-6
        if not self.near.S.nnz or (crowded and self.near.twins is None):
            return 0.0
        within = m / 8
        return float(
            log_p_under_null(0.0, within, m / within, "rows" if self.has_rows else "graph")
        )

    def width(self, rows: Array, *, wide: bool = False, mixed: bool = False) -> float:
        """Return the weight of the heaviest cut inside isolated rows (s,).

        With `mixed`, return 0 if walks among them mix slowly.
        """
        rows = backend_of(rows).xp.sort(rows)
        key = backend_of(rows).to_numpy(rows).tobytes(), wide, mixed
        if key not in self._widths:
            graph = self.wide if wide else self.near
            A = graph.S[rows][:, rows]
            twins = None if graph.twins is None else graph.twins[rows]
            self._widths[key] = heaviest_cut_if_mixed(A) if mixed else heaviest_cut(A, twins)
        return self._widths[key]

    def log_p_of_isolation(self, rows: Array) -> float:
        """Return the log p of the gap around distinct rows (s,); 0 if the rows are not known."""
        if self._rows is None:
            return 0.0
        bk, nearest = backend_of(rows), self.nearest
        inside = bk.xp.zeros(nearest.shape[0], dtype=bool)
        inside[rows] = True
        across = inside[nearest] != inside[:, None]
        nearer = bk.xp.where(across.any(axis=1), across.argmax(axis=1), nearest.shape[1])
        row = nearer.argmin()[None]
        near = self._distinct.in_range()[0][bk.xp.concatenate([row, nearest[row[0]]])].astype(
            np.float64
        )
        found = bk.to_numpy(bk.xp.concatenate([nearer[row].astype(np.float64), near.ravel()]))
        n_nearer = int(found[0])
        own = found[1:].reshape(near.shape)[: n_nearer + 1]
        return float(
            isolation_log_p_under_null(nearest.shape[0], n_nearer, local_dimension(cdist(own, own)))
        )
