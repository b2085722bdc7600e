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
are known: its cuts weigh more, and are fewer. One that weighs far more has edges which leap from
one part of a set to another, as between the turns of a roll, and then the first graph decides. That
no edge of 30 neighbours joins a piece to the rest is evidence by itself: along a line, a gap is
wider than the r spacings before it with probability 2^-r, in more dimensions more seldom, and there
are m gaps.
"""

from __future__ import annotations

import json
import math
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.duplicates import duplicate_groups
from specialk_gpu.graph import normalised, symmetric_graph
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
        cluster and of the largest other one.
    """

    log_p: float
    pair: tuple[int, int]
    between: float
    within: float
    length: float


class Bottlenecks:
    """The graphs of a set of rows, in which to look for bottlenecks between clusters.

    Parameters
    ----------
    W : csr_matrix of shape (m, m)
        Symmetric similarities, trusted; `specialk_gpu.affinity_matrix` checks them.
    X : float array of shape (m, d), optional
        The rows, of which W is the graph of 10 neighbours, and that of 30 is made if it is needed.

    Attributes
    ----------
    near : Graph
        Of W.
    """

    def __init__(self, W: Any, X: Any = None) -> None:
        self.near = prepare(W)
        self._X = X

    @cached_property
    def wide(self) -> Graph | None:
        """The graph of 30 neighbours, where the rows are known, and enough."""
        if self._X is None or self._X.shape[0] < LEAST_ROWS:
            return None
        bk, indices = backend_of(self._X), nearest_neighbors(self._X, WIDE).indices
        W = normalised(symmetric_graph(bk, indices, None))
        return prepare(W, _n_distinct(bk.xp, indices, duplicate_groups(self._X)))

    def attainable_log_p(self) -> float:
        """Return the lowest log p that two perfectly separated clusters could reach.

        They are complete graphs, halves of which are joined by an eighth of all rows. Where each
        row has more neighbours than that leaves room for, they cannot be separate.
        """
        m, starts = self.near.S.shape[0], self.near.S.indptr
        if m < 2 * (int((starts[1:] - starts[:-1]).min()) + 1):
            return 0.0
        return log_p_of(0.0, m / 8, 8.0, "graph" if self._X is None else "rows")

    def widest(self, labels: Any, k: int) -> Bottleneck:
        """Find the border that is least of a bottleneck.

        Parameters
        ----------
        labels : int32 array of shape (m,)
            In 0, ..., k - 1, k at least 2.
        k : int

        Returns
        -------
        Bottleneck
        """
        found = borders(labels, k, self.near, "graph")
        if self._X is not None:
            found = self._looked_at_again(labels, k, found)
        worst = max(found)
        a, b = worst.pair
        return worst._replace(pair=(a, b) if a < b else (0, a or 1))

    def _looked_at_again(self, labels: Any, k: int, found: list[Bottleneck]) -> list[Bottleneck]:
        """Judge borders by the law of rows, those of thin cuts in the wide graph."""
        sure = {one for one in found if one.within < THIN and one.log_p <= SURE}
        thin = {one.pair for one in found if one.within < THIN and one not in sure}
        certain = any(one.log_p == 0 and one.within >= THIN for one in found)
        again = []
        if thin and not certain and self.wide is not None:
            again = borders(labels, k, self.wide, "rows", thin)
        return [one if one in sure else _by_rows(one, again) for one in found]


def _by_rows(one: Bottleneck, again: list[Bottleneck]) -> Bottleneck:
    """Judge a border by the law of rows: as the wide graph has it, if that is the same place."""
    if one.within < THIN:
        a, b = one.pair
        same = [other for other in again if other.pair == (a, b) or (a == b and a in other.pair)]
        other = max(same, default=None)
        if other and not leaps(one.within, other.within):
            return other
    return one._replace(log_p=log_p_of(one.between, one.within, one.length, "rows"))


def leaps(near: float, wide: float) -> bool:
    """Say whether a cut weighs more in the wide graph than its length in the near one explains.

    Across a plane that is 1.7 times as much, across a line three times.
    """
    return wide > 2 * near + 6


@on_its_device
def borders(
    labels: Any, k: int, graph: Graph, law: str, wanted: set[tuple[int, int]] | None = None
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
    sections, owner = sections_of(graph, labels, k)
    found, joined = [], set()
    for i, j in sections.touching():
        joined |= {i, j}
        a, b = sorted((int(owner[i]), int(owner[j])))
        if wanted is None or wanted & {(a, b), (a, a), (b, b)}:
            between, within, size = sections.measure(i, j)
            found.append(_bottleneck((a, b), between, within, size, law))
    if wanted is None and any(one.log_p == 0 and one.within >= THIN for one in found):
        return found
    rows = np.bincount(owner, np.diff(sections.ends), minlength=k)  # of each label
    for i in sorted(set(range(owner.size)) - joined):
        a = int(owner[i])
        if wanted is None or any(a in pair for pair in wanted):
            size = rows[a] + np.delete(rows, a).max()
            one = _bottleneck((a, a), 0.0, sections.own_width(i), size, law)
            log_p = min(one.log_p, log_p_of_gap(labels.size, sections.gap(i)))
            found.append(one._replace(log_p=log_p))
    return found


def _bottleneck(
    pair: tuple[int, int], between: float, within: float, size: int, law: str
) -> Bottleneck:
    length = float(size) / max(within, 1e-300)
    return Bottleneck(log_p_of(between, within, length, law), pair, between, within, length)


def log_p_of(between: float, within: float, length: float, law: str) -> float:
    """Return the logarithm of the probability of such a bottleneck where there is none."""
    if within <= 0:
        return 0.0
    lengths, scales = null_law(law)
    scale = float(np.interp(math.log(length), np.log(lengths), scales))
    return min(0.0, math.log(2) + float(log_ndtr(-z_of(between, within) / scale)))


def log_p_of_gap(n_rows: int, n_nearer: int) -> float:
    """Return the logarithm of the probability of a gap, with so many rows nearer than its far side.

    An upper bound: along a line that of one gap is 2^-r, and there is one after each row.
    """
    return min(0.0, math.log(n_rows) - n_nearer * math.log(2))


def z_of(between: float, within: float) -> float:
    """Return by how much the border is lighter, in units of chance; 0 where it is not."""
    return max(0.0, 2 * (math.sqrt(ROUGH * within) - math.sqrt(max(between, 0.0))))


def _n_distinct(xp: Any, indices: Any, groups: tuple[Any, Any] | None) -> Any:
    """Count the distinct rows among the neighbours (m, r) of each row; groups are of equal rows."""
    m, r = indices.shape
    if groups is None:
        return xp.full(m, r)
    group = xp.sort(groups[1][indices], axis=1)
    return 1 + (group[:, 1:] > group[:, :-1]).sum(axis=1)


@cache
def null_law(law: str) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths in sections, and the scale of z at each where there is nothing to find."""
    laws = json.loads(files("specialk_gpu").joinpath("null.json").read_text(encoding="utf-8"))
    return np.array(laws[law]["length"], dtype=np.float64), np.array(laws[law]["scale"])
