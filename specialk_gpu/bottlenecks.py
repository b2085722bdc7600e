r"""Bottlenecks between clusters: where the graph is thinner than on both sides.

A walker on the graph is in cluster b after a few steps with probability f. The thresholds of f cut
clusters a and b in two: from within a, across their border, to within b. Where the two are one
cluster, these cuts weigh the same, or fall off on both sides, as the sections of a band or of a
ball do. A bottleneck is a border whose cut is lighter than cuts on both sides. Each row has weight
1, so that the weight of a cut is about the number of rows it parts, and its root varies by about as
much whatever it is:

    z = 2 (√(0.7 within) - √between).

The discount is for cuts away from the border, which are rougher: the walker knows less of the order
of rows there. Without it, a border as long as its neighbours would be a bottleneck in a set of
enough rows.

How large z is where there is nothing to find has been tried (benchmarks/calibration): it follows
a half-normal law, or one below it, whose scale depends on the length of the two clusters together,
counted in sections: their rows by `within`. A ball of high dimension is short, and has z near 0; a
thread is long, and a split may take the thinnest of its many sections. There are two such laws in
null.json: for rows, and, wider, for graphs alone.

Cuts of a few rows say little in the graph of 10 neighbours. There that of 30 decides, if the rows
are known: its cuts weigh more, and are fewer. But a cut that weighs far more in it has edges which
may leap from one part of a set to another, as between the turns of a roll: for these the law is
wider. And what is smaller than its neighbourhoods is joined to others in it: that is left to the
first graph.

A gap around a piece that no edge joins to others is evidence by itself. Along a line, one is wider
than the r spacings before it with probability 2^-r, in more dimensions more seldom, and there are m
places for it; r is the least number of rows that a row on either side has nearer than the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.duplicates import duplicate_groups
from specialk_gpu.graph import knn_graph, normalised, symmetric_graph
from specialk_gpu.neighbors import nearest_neighbors
from specialk_gpu.sections import Graph, prepare, sections_of

__all__ = [
    "Bottleneck",
    "Bottlenecks",
    "borders",
    "leaps",
    "log_p_of",
    "log_p_of_gap",
    "null_law",
    "z_of",
]

ROUGH = 0.7  # weight of a smooth cut by that of a rough one
NEAR, WIDE = 10, 30  # neighbours of a row in the first graph looked at, and in the second
LEAST_ROWS = 3 * WIDE  # of the second: below, most rows are neighbours of most
THIN = 15  # weight of a cut, below which it says little
LEAP = 2.5  # times that the law is wider for cuts with edges that leap
CHEAP = 5e7  # products of a search for neighbours
SURE = math.log(1e-4)  # of a log p, by the wider law, that needs no second look


class Bottleneck(NamedTuple):
    """The border that is least of a bottleneck among those of a clustering.

    Attributes
    ----------
    log_p : float
        Natural logarithm of the probability of such a bottleneck where there is but one cluster.
    pair : tuple of two int
        The labels on its two sides.
    between, within : float
        Weights of the cut at the border, where the walker sees it, but at least half and at most
        the whole of what joins the labels; and of the lighter of the heaviest cuts on both sides.
    length : float
        Rows of the two sides together by `within`; for what no edge joins to others, those of its
        cluster and of the largest other one. All three are 0 where a gap decides.
    side : int
        Rows of the smaller side, or of what no edge joins to others, that hold together.
    rows : array of int, or None
        Those of what no edge joins to others.
    """

    log_p: float
    pair: tuple[int, int]
    between: float
    within: float
    length: float
    side: int
    rows: Any = None


class Bottlenecks:
    """The graphs of a set of rows, in which to look for bottlenecks between clusters.

    Made when they are needed.

    Parameters
    ----------
    W : csr_matrix of shape (m, m), or None
        Symmetric similarities, trusted; `specialk_gpu.affinity_matrix` checks them. Of rows the
        graph of their 10 neighbours, if it is at hand.
    X : float array of shape (m, d), optional
        The rows. Of equal ones one is looked at.

    Attributes
    ----------
    n_rows : int
        m.
    """

    def __init__(self, W: Any, X: Any = None) -> None:
        self._W, self._X, self._gaps = W, X, {}
        self.n_rows = W.shape[0] if X is None else X.shape[0]

    @cached_property
    def _first(self) -> Any:
        """The first of each group of equal rows; None if all differ."""
        groups = None if self._X is None else duplicate_groups(self._X)
        return None if groups is None else groups[0]

    @cached_property
    def _distinct(self) -> Any:
        return self._X if self._first is None else self._X[self._first]

    @cached_property
    def near(self) -> Graph:
        """The graph that was given, or that of the 10 neighbours of distinct rows."""
        if self._W is not None and self._first is None:
            return prepare(self._W)
        return prepare(knn_graph(self._distinct, min(NEAR, self._distinct.shape[0] - 1)))

    @property
    def _search_is_cheap(self) -> bool:
        """Whether neighbours are found faster than eigenvectors; in few columns by a tree."""
        if self._X is None:
            return False
        m, d = self._X.shape
        return m * d * min(m, 4**d) <= CHEAP

    @cached_property
    def _nearest(self) -> Any:
        """The 30 nearest neighbours of each row, or all others if they are fewer."""
        return nearest_neighbors(self._distinct, min(WIDE, self._distinct.shape[0] - 1)).indices

    @cached_property
    def wide(self) -> Graph | None:
        """The graph of 30 neighbours, where the rows are known, and enough."""
        if self._X is None or self._distinct.shape[0] < LEAST_ROWS:
            return None
        return prepare(normalised(symmetric_graph(backend_of(self._X), self._nearest, None)))

    @cached_property
    def least_neighbors(self) -> float:
        """The effective number of neighbours of the row that has fewest: (Σw)² / Σw²."""
        S, bk = self.near.S, backend_of(self.near.S)
        if not S.nnz:
            return 0.0
        xp, m = bk.xp, S.shape[0]
        squares = bk.sparse.csr_matrix((S.data**2, S.indices, S.indptr), shape=S.shape)
        sums = xp.empty((m, 1)), xp.empty((m, 1))
        for A, out in zip((S, squares), sums, strict=True):  # each row in the order of its entries
            bk.spmm(A, xp.ones((m, 1)), out, 1.0, 0.0, 0.0)
        return float((sums[0] ** 2 / xp.where(sums[1] > 0, sums[1], 1)).min())

    def attainable_log_p(self) -> float:
        """Return the lowest log p that two perfectly separated clusters could reach.

        They are complete graphs, halves of which are joined by an eighth of all rows. Where each
        row has more neighbours than that leaves room for, they cannot be separate.
        """
        m = self.near.S.shape[0]
        if not self.near.S.nnz or m < 2 * (self.least_neighbors + 1) - 1e-6:
            return 0.0
        within = m / 8
        return log_p_of(0.0, within, m / within, "graph" if self._X is None else "rows")

    def widest(self, labels: Any, k: int, enough: float = SURE) -> Bottleneck:
        """Find the border that is least of a bottleneck.

        Parameters
        ----------
        labels : int32 array of shape (m,)
            In 0, ..., k - 1, k at least 2.
        k : int
        enough : float
            Log p from which a gap decides without more; its bound then stands for p.

        Returns
        -------
        Bottleneck
            One of the k - 1 clusters there were before has been split, the one where it looked
            best: p is multiplied by as many.
        """
        if self._first is not None:
            labels = labels[self._first]
            bk = backend_of(labels)
            absent = np.flatnonzero(bk.to_numpy(bk.xp.bincount(labels, minlength=k)) == 0)
            if absent.size:  # a cluster of copies alone
                return Bottleneck(0.0, (0, int(absent[0]) or 1), 0.0, 0.0, 0.0, 0)
        gap = self._log_p_of_gap if self._search_is_cheap else None
        found = borders(labels, k, self.near, "graph", gap=gap, enough=min(enough, SURE))
        more = math.log(k - 1)
        if self._X is None:
            judged = [one._replace(log_p=min(0.0, one.log_p + more)) for one in found]
        else:
            judged = self._judged(labels, k, found, more)
        worst = max(judged, key=lambda one: (one.log_p, one.pair))
        a, b = worst.pair
        return worst._replace(pair=(a, b) if a < b else (0, a or 1), rows=None)

    def _judged(
        self, labels: Any, k: int, found: list[Bottleneck], more: float
    ) -> list[Bottleneck]:
        """Judge borders of rows: heavy cuts by their law, thin ones by a second look.

        Where that cannot be, as in what is smaller than its neighbourhoods, they keep the p of the
        graph alone.
        """
        certain = any(one.log_p == 0 and one.within >= THIN for one in found)
        doubtful = {
            one.pair for one in found if one.within < THIN and one.log_p > SURE and one.side > WIDE
        }
        again = []
        if doubtful and not certain and self.wide is not None:
            again = borders(labels, k, self.wide, "rows", doubtful)
        judged = []
        for one in found:
            if one.within >= THIN:
                log_p = log_p_of(one.between, one.within, one.length, "rows")
                border = one._replace(log_p=log_p)
            else:
                border = _second_look(one, again) if one.pair in doubtful else one
            log_p = min(0.0, border.log_p + more)
            if one.rows is not None and not certain and (log_p > SURE or not one.within):
                log_p = min(log_p, self._log_p_of_gap(one.rows))
            judged.append(border._replace(log_p=log_p))
        return judged

    def _log_p_of_gap(self, rows: Any) -> float:
        """Bound the probability that rows lie so far from the others where there is no cluster."""
        bk, nearest = backend_of(self._X), self._nearest
        key = bk.to_numpy(rows).tobytes()
        if key not in self._gaps:
            inside = bk.xp.zeros(nearest.shape[0], dtype=bool)
            inside[rows] = True
            across = inside[nearest] != inside[:, None]
            nearer = bk.xp.where(across.any(axis=1), across.argmax(axis=1), nearest.shape[1])
            self._gaps[key] = log_p_of_gap(nearest.shape[0], int(nearer.min()))
        return self._gaps[key]


def _second_look(one: Bottleneck, again: list[Bottleneck]) -> Bottleneck:
    """Return a border as the wide graph has it, if that is the same place."""
    a, b = one.pair
    same = [other for other in again if other.pair == (a, b) or (a == b and a in other.pair)]
    if not same:
        return one
    other = max(same, key=lambda other: other.log_p)
    if not leaps(one.within, other.within):
        return other
    log_p = log_p_of(other.between, other.within, other.length, "rows", LEAP)
    return other._replace(log_p=log_p)


def leaps(near: float, wide: float) -> bool:
    """Say whether a cut weighs more in the wide graph than its length in the near one explains.

    Across a plane that is 1.7 times as much, across a line, of two or three rows, three times.
    """
    return wide > 2 * near + 6


@on_its_device
def borders(
    labels: Any,
    k: int,
    graph: Graph,
    law: str,
    wanted: set[tuple[int, int]] | None = None,
    gap: Callable[[Any], float] | None = None,
    enough: float = SURE,
) -> list[Bottleneck]:
    """Measure the borders of a clustering in one graph.

    Parameters
    ----------
    labels : int32 array of shape (m,)
        In 0, ..., k - 1, k at least 2.
    k : int
    graph : Graph
    law : {"graph", "rows"}
    wanted : set of pairs of labels, optional
        Only these; (a, a) stands for all borders of a.
    gap : callable, optional
        Returns log p of the gap around rows.
    enough : float
        Log p of a gap from which nothing else is measured.

    Returns
    -------
    list of Bottleneck
        Of what no edge joins to others the pair is twice its label. These are missing where
        another border is heavy, and no bottleneck at all.

    Notes
    -----
    Clusters that fall apart are tested piece by piece: else a long thread, cut in many places,
    would count all its borders as one. What no edge joins to the rest, or none that a walker would
    take, has no border; it is compared with its own heaviest cut along its second eigenvector.
    """
    sections = sections_of(graph, labels, k)
    owner, core = sections.owner, sections.core
    found, joined = [], set()
    for i, j in sections.touching():
        joined |= {i, j}
        a, b = sorted((int(owner[i]), int(owner[j])))
        if wanted is None or wanted & {(a, b), (a, a), (b, b)}:
            between, within = sections.measure(i, j)
            length = sections.size(i, j) / max(within, 1e-300)
            log_p, side = log_p_of(between, within, length, law), int(min(core[i], core[j]))
            found.append(Bottleneck(log_p, (a, b), between, within, length, side))
    if wanted is None and any(one.log_p == 0 and one.within >= THIN for one in found):
        return found
    n_rows = np.bincount(owner, np.diff(sections.ends), minlength=k)  # of each label
    for i in sorted(set(range(owner.size)) - joined):
        a = int(owner[i])
        if wanted is None or any(a in pair for pair in wanted):
            rows, side = sections.rows(i), int(core[i])
            log_p = 0.0 if gap is None else gap(rows)
            if log_p <= enough:
                found.append(Bottleneck(log_p, (a, a), 0.0, 0.0, 0.0, side, rows))
                continue
            within = sections.own_width(i)
            length = float(n_rows[a] + np.delete(n_rows, a).max()) / max(within, 1e-300)
            log_p = log_p_of(0.0, within, length, law)
            found.append(Bottleneck(log_p, (a, a), 0.0, within, length, side, rows))
    return found


def log_p_of(between: float, within: float, length: float, law: str, wider: float = 1.0) -> float:
    """Return the logarithm of the probability of such a bottleneck where there is none.

    By a law, or one that is so many times wider.
    """
    if within <= 0:
        return 0.0
    lengths, scales = null_law(law)
    scale = float(np.interp(math.log(length), np.log(lengths), scales))
    return min(0.0, math.log(2) + float(log_ndtr(-z_of(between, within) / (wider * scale))))


def log_p_of_gap(n_rows: int, n_nearer: int) -> float:
    """Return the logarithm of the probability of a gap, with so many rows nearer than its far side.

    An upper bound: along a line that of one gap is 2^-r, and there is one after each row.
    """
    return min(0.0, math.log(n_rows) - n_nearer * math.log(2))


def z_of(between: float, within: float) -> float:
    """Return by how much the border is lighter, in units of chance; 0 where it is not."""
    return max(0.0, 2 * (math.sqrt(ROUGH * within) - math.sqrt(max(between, 0.0))))


@cache
def null_law(law: str) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths in sections, and the scale of z at each where there is nothing to find."""
    laws = json.loads(files("specialk_gpu").joinpath("null.json").read_text(encoding="utf-8"))
    return np.array(laws[law]["length"], dtype=np.float64), np.array(laws[law]["scale"])
