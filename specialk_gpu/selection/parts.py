"""The connected parts of clusters, unions of parts, and the test of pairs of these nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.selection.cut_graphs import WIDE, CutGraphs
from specialk_gpu.selection.cuts import Cuts
from specialk_gpu.selection.measured_parts import LonePart, MeasuredParts
from specialk_gpu.selection.null_distribution import (
    SHORTEST,
    bonferroni_log_p,
    log_p_under_null,
)
from specialk_gpu.selection.valleys import Valleys, rows_in_valleys, valley_log_p
from specialk_gpu.selection.walks import parts_joined_by_walks

__all__ = ["Parts", "has_shortcuts", "lone_part", "touching_parts"]

THIN_WEIGHT = 15  # in the first graph, cuts of a smaller weight are thin: weak evidence
SHORTCUTS = 2.5  # factor on the scale of the null distribution for shortcut edges
SHORT_LENGTH = 25  # valleys are looked for between all pairs up to this length
# lengths divided by the root of the rows: of two round clusters; the longest with a valley test
ROUND_SCALED, LONGEST_SCALED = 3, 5
FEW_COLUMNS = 10  # up to this many columns, valleys are looked for between longer pairs too
LIGHT_LOG_P = math.log(0.5)  # below this log p, a cut is lighter at the border than inside
CLEAR_LOG_P = math.log(
    1e-4
)  # up to this log p, a thin border or isolated part needs no second test


class Parts:
    """The connected parts of clusters, unions of parts, and the test of two of these nodes.

    Parameters
    ----------
    graphs : CutGraphs
    labels : int32 array of shape (m,), of distinct rows
        Values 0, ..., k - 1.
    k : int
        Clusters are split into connected parts. Rows of components with less than a tenth of their
        cluster (strays) go to the part where most walks from them end.

    Attributes
    ----------
    part : int32 array of shape (m,)
    owner : int array of shape (2 n_parts,), on the host
        The cluster of each part, and of each union inside a cluster.
    cuts : Cuts
        The cuts of the first graph.
    """

    def __init__(self, graphs: CutGraphs, labels: Array, k: int) -> None:
        self._graphs = graphs
        self.part, self.owner, core = parts_joined_by_walks(graphs.near, labels, k)
        self.n_parts = len(self.owner)
        self.cuts = Cuts(graphs.near, self.part, self.n_parts)
        self._wide: Cuts | None = None
        self._valleys: Valleys | None = None
        self._unions: list[tuple[int, int]] = []
        self._done: set[int] = set()  # nodes that are not asked for again
        core = self.cuts.sizes[: self.n_parts] if core is None else core
        self.owner, self._core = (np.concatenate([x, np.zeros_like(x)]) for x in (self.owner, core))
        self._in_wide = np.zeros(2 * self.n_parts, dtype=bool)  # joined to others only there
        self._width = np.full(2 * self.n_parts, np.inf)  # of these, in the first graph
        self._isolation = np.zeros(2 * self.n_parts)
        self._ahead: dict[tuple[int, int], np.ndarray] = {}  # measured in advance
        self._seeks_valleys = True  # whether the last test looked for any

    def unite(self, a: int, b: int) -> int:
        """Make the union of two nodes, and return its number."""
        new = self.cuts.unite(a, b)
        self.owner[new] = self.owner[a]
        self._core[new] = self._core[a] + self._core[b]
        self._unions.append((a, b))
        return new

    def release(self, nodes: Iterable[int]) -> None:
        """Free the memory of united nodes that no pair will name again."""
        self._done.update(nodes)
        self.cuts.release(self._done)
        for known in (self._wide, self._valleys):
            if known is not None:
                self._follow(known)
                known.release(self._done)

    def _follow(self, known: Cuts | Valleys) -> None:
        """Make the unions that `known` lacks."""
        for a, b in self._unions[known.n_unions :]:
            known.unite(a, b)
            known.release(self._done.intersection((a, b)))

    def of_clusters(self) -> np.ndarray:
        """Unite parts of a cluster that touch, which strays can cause, and return the nodes."""
        nodes = np.arange(self.n_parts)
        if nodes.size == self.owner[: nodes.size].max() + 1:
            return nodes
        for node in range(2 * self.n_parts):  # unions have higher numbers
            own = nodes[(self.owner[nodes] == self.owner[node]) & (nodes != node)]
            joined = self.cuts.touching(node, own) if node in nodes else own[:0]
            if joined.size:
                new = self.unite(int(joined[0]), node)
                self.release([int(joined[0]), node])
                nodes = np.append(nodes[(nodes != joined[0]) & (nodes != node)], new)
        return nodes

    def inherit(self, node: int, new: int) -> None:
        """Let the union `new` of `node` and an isolated node touch what `node` touches."""
        for known in (self._in_wide, self._width, self._isolation):
            known[new] = known[node]

    def touching(self, node: int, others: np.ndarray) -> np.ndarray:
        """Return the nodes that edges join to a node; of the second graph too, where it counts."""
        joined = self.cuts.touching(node, others)
        if not self._in_wide.any():
            return joined
        wide = self.wide.touching(node, others)
        return np.union1d(joined, wide[self._in_wide[wide] | self._in_wide[node]])

    @property
    def wide(self) -> Cuts:
        """The cuts of the second graph, that of 30 neighbours."""
        if self._wide is None:
            self._wide = Cuts(self._graphs.wide, self.part, self.n_parts)
        self._follow(self._wide)
        return self._wide

    @property
    def valleys(self) -> Valleys:
        """The valleys between nodes."""
        if self._valleys is None:
            self._valleys = self._graphs.valleys(self.part, self.n_parts)
        self._follow(self._valleys)
        return self._valleys

    def test(self, pairs: np.ndarray, nodes: np.ndarray) -> MeasuredParts:
        """Test pairs (p, 2) of nodes that touch; test doubtful pairs a second time."""
        found = self.look(pairs, nodes)
        again = np.flatnonzero(found.doubtful)
        if again.size:
            second = self.look_again(pairs[again], nodes, MeasuredParts(*(x[again] for x in found)))
            for known, new in zip(found, second, strict=True):
                known[again] = new
        return found

    def look(self, pairs: np.ndarray, nodes: np.ndarray, below: float = math.inf) -> MeasuredParts:
        """Test pairs of nodes in the first graph, and their valleys.

        Thick cuts are decided here. A pair is doubtful in three cases: its cut is thin and not
        clear, its log p is less than `below`, and each side has more rows than a neighbourhood;
        only the second graph joins the two; or, in few dimensions, a valley decides, because the
        pair may be bent.
        """
        bk, n, (in_wide, small) = self.cuts.bk, len(pairs), self._kinds(pairs)
        may_be = pairs[in_wide | ~small]
        ahead = bk.name == "cuda"  # a wait costs more than results that are not needed
        valleys_ahead = ahead and self._graphs.has_rows and self._seeks_valleys
        found = [self.cuts.heaviest(pairs)]
        found += [self.wide.heaviest(may_be)] if ahead and self._wide is not None else []
        found += [rows_in_valleys(self.valleys.counts(pairs, nodes))] if valleys_ahead else []
        found = _together(bk, found)
        if ahead and self._wide is not None:
            second = np.stack(self.wide.borders(may_be, found[1]), axis=1)
            self._ahead |= dict(zip(map(tuple, may_be.tolist()), second, strict=True))
        between, within = self.cuts.borders(pairs, found[0])
        length = self.cuts.sizes[pairs].sum(axis=1) / np.maximum(within, SHORTEST)
        log_p = log_p_under_null(between, within, length, "graph")
        law, thin = np.full(n, "graph", dtype=object), np.zeros(n, dtype=bool)
        if self._graphs.has_rows:
            thick = within >= THIN_WEIGHT
            log_p = np.where(thick, log_p_under_null(between, within, length, "rows"), log_p)
            law[thick] = "rows"
            if self._graphs.has_second:
                thin = in_wide | (~thick & (log_p > CLEAR_LOG_P) & (log_p < below) & ~small)
        rows = found[-1] if valleys_ahead else None
        valley = self._valley(pairs, nodes, log_p, length, rows)
        within = np.where(in_wide, self._width[pairs].min(axis=1), within)
        first = log_p, thin, valley
        log_p, law = _better_test_of_parts(log_p, law, valley)
        doubtful = thin | (self._may_be_bent & (law == "valley") & (log_p < LIGHT_LOG_P))
        return self._measured(pairs, log_p, between, within, length, doubtful, law, *first)

    def _kinds(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the pairs joined only in the second graph, and of those with few rows."""
        in_wide = self._in_wide[pairs].any(axis=1)
        return in_wide, self._core[pairs].min(axis=1) <= WIDE

    def look_again(
        self, pairs: np.ndarray, nodes: np.ndarray, first: MeasuredParts
    ) -> MeasuredParts:
        """Test thin borders in the second graph, and whether pairs with a valley are bent."""
        cut, valley, thin = first.cut.copy(), first.valley.copy(), np.flatnonzero(first.thin)
        between, within, length = first.between.copy(), first.within.copy(), first.length.copy()
        law = np.where(within >= THIN_WEIGHT, "rows", "graph").astype(object)
        if thin.size:
            between[thin], within[thin] = self._in_second(pairs[thin])
            length[thin] = self.cuts.sizes[pairs[thin]].sum(axis=1)
            length[thin] /= np.maximum(within[thin], SHORTEST)
            shortcuts = has_shortcuts(first.within[thin], within[thin])
            wider = np.where(shortcuts, SHORTCUTS, 1.0)
            cut[thin] = log_p_under_null(between[thin], within[thin], length[thin], "rows", wider)
            law[thin] = np.where(shortcuts, "shortcuts", "rows")
        if self._may_be_bent:
            asked = np.flatnonzero((valley < cut) & (valley < LIGHT_LOG_P))
            if asked.size:
                bent = self.valleys.are_bent(pairs[asked], nodes)
                valley[asked] = np.where(bent, 0.0, valley[asked])
        log_p, law = _better_test_of_parts(cut, law, valley)
        doubtful = np.zeros(len(pairs), dtype=bool)
        kept = first.cut, first.thin, valley
        return self._measured(pairs, log_p, between, within, length, doubtful, law, *kept)

    def _in_second(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return cuts in the second graph, measured now if the first test did not do so."""
        if all(pair in self._ahead for pair in map(tuple, pairs.tolist())):
            return tuple(np.array([self._ahead[tuple(x)] for x in pairs.tolist()]).T)
        return self.wide.measure(pairs)

    @property
    def _may_be_bent(self) -> bool:
        """Whether there are few columns: clusters may be curved, and this can be detected."""
        return 0 < self._graphs.n_columns <= FEW_COLUMNS

    def _valley(
        self,
        pairs: np.ndarray,
        nodes: np.ndarray,
        log_p: np.ndarray,
        length: np.ndarray,
        rows: np.ndarray | None,
    ) -> np.ndarray:
        """Return the log p of valleys; NaN if the cut is clear or no valley is looked for.

        `log_p` and `length` are those of cuts in the first graph. If `rows` is None, the rows are
        counted now.
        """
        found = np.full(len(pairs), np.nan)
        if not self._graphs.has_rows:
            return found
        spread = np.sqrt(self.cuts.sizes[pairs].sum(axis=1))
        asked = length <= SHORT_LENGTH
        if self._may_be_bent:
            asked |= (length <= LONGEST_SCALED * spread) & (log_p < LIGHT_LOG_P)
        asked = np.flatnonzero(asked & (length > 0) & (log_p > CLEAR_LOG_P))
        self._seeks_valleys = asked.size > 0
        if asked.size:
            deep = length[asked] > np.maximum(SHORT_LENGTH, ROUND_SCALED * spread[asked])
            if rows is None:
                counts = self.valleys.counts(pairs[asked], nodes)
                rows = self.cuts.bk.to_numpy(rows_in_valleys(counts))
            else:
                rows = rows[:, asked]
            found[asked] = valley_log_p(rows, deep)
        return found

    def valleys_of_short(self, pairs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return the log p of valleys of short pairs, even with a clear cut; NaN for others."""
        within = self.cuts.measure(pairs)[1]
        length = self.cuts.sizes[pairs].sum(axis=1) / np.maximum(within, SHORTEST)
        return self._valley(pairs, nodes, np.zeros(len(pairs)), length, None)

    def _measured(self, pairs: np.ndarray, log_p: np.ndarray, *found: np.ndarray) -> MeasuredParts:
        between, within, length, doubtful, law, cut, thin, valley = found
        density = self.cuts.weights[pairs[:, 0], pairs[:, 1]] / self.cuts.sizes[pairs].min(axis=1)
        isolation = self._isolation[pairs].min(axis=1)
        return MeasuredParts(
            log_p,
            isolation,
            between,
            within,
            length,
            doubtful,
            density,
            law,
            cut,
            thin,
            valley,
        )

    def alone(self, node: int, others: np.ndarray) -> LonePart | None:
        """Measure a node that no edge of the first graph joins to others.

        Returns None if edges of the second graph join it and decide: then its pairs are tested.
        """
        graphs, core = self._graphs, self._core[node]
        rows = self.cuts.rows(node)
        if graphs.has_rows:
            within = graphs.width(rows, mixed=True)
            found = LonePart(0.0, within, "rows" if within >= THIN_WEIGHT else "graph")
            if found.log_p(self.part.size, self.n_parts + 1) <= CLEAR_LOG_P:
                return found  # the neighbours of all rows are not needed
        isolation = graphs.log_p_of_isolation(rows)
        if isolation <= CLEAR_LOG_P:
            return LonePart(isolation, 0.0, "rows")
        within = graphs.width(rows)
        thick = graphs.has_rows and within >= THIN_WEIGHT
        found = LonePart(isolation, within, "rows" if thick else "graph")
        if thick or core <= WIDE or not graphs.has_second:
            return found
        if found.log_p(self.part.size, 2) <= CLEAR_LOG_P:
            return found
        if self.wide.touching(node, others).size:
            self._in_wide[node], self._isolation[node] = True, isolation
            self._width[node] = within
            return None
        return LonePart(isolation, graphs.width(rows, wide=True), "rows")


def _together(bk: Backend, arrays: list[Array]) -> list[np.ndarray]:
    """Move arrays to the host with one wait."""
    flat = bk.to_numpy(bk.xp.concatenate([x.ravel() for x in arrays]))
    ends = np.cumsum([x.size for x in arrays])[:-1]
    return [x.reshape(y.shape) for x, y in zip(np.split(flat, ends), arrays, strict=True)]


def _better_test_of_parts(
    log_p: np.ndarray, law: np.ndarray, valley: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log p of the cut and the valley together, and which of the two is smaller."""
    best = np.where(np.isnan(valley), log_p, bonferroni_log_p(log_p, valley))
    return best, np.where(valley < log_p, "valley", law)


def has_shortcuts(near: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """Return whether a cut weighs more in the second graph than its length in the first explains.

    Across a plane it weighs 1.7 times as much; across a line, of two or three rows, three times.
    """
    return wide > 2 * near + 6


def lone_part(parts: Parts, node: int, others: np.ndarray) -> dict[int, LonePart]:
    """Return the measurements of a node if no edge joins it to others; else an empty dict."""
    if not (others != node).any() or parts.cuts.touching(node, others).size:
        return {}
    found = parts.alone(node, others)
    return {} if found is None else {node: found}


def touching_parts(parts: Parts, nodes: np.ndarray) -> np.ndarray:
    """Return the pairs (p, 2) of nodes that edges join, each with the smaller number first."""
    pairs = [(i, j) for i in nodes.tolist() for j in parts.touching(i, nodes).tolist() if i < j]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
