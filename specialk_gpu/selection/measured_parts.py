"""Measurements of pairs of nodes, and of isolated nodes; a node is a part, or a union of parts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specialk_gpu.selection.null_distribution import (
    SHORTEST,
    decisive_log_p_under_null,
    log_p_under_null,
)

__all__ = ["LonePart", "MeasuredParts"]


class MeasuredParts(NamedTuple):
    """Measurements of pairs of nodes: arrays of shape (p,), on the host.

    Attributes
    ----------
    log_p
        Log p of the pair, without its factor k - 1.
    isolation
        Log p of the gap around one of the two, which needs no factor; mostly 0.
    between, within, length
        See `Gap`.
    doubtful
        Whether the pair needs a second test.
    density
        Weight of the edges between the two, divided by the number of rows of the smaller.
    law
        Where `log_p` comes from, as in `Gap`.
    cut
        Log p of the cut in the first graph.
    thin
        Whether the cut in the second graph decides.
    valley
        Log p of a valley between the two; NaN if none was looked for.
    """

    log_p: np.ndarray
    isolation: np.ndarray
    between: np.ndarray
    within: np.ndarray
    length: np.ndarray
    doubtful: np.ndarray
    density: np.ndarray
    law: np.ndarray
    cut: np.ndarray
    thin: np.ndarray
    valley: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """√(between / within), by which pairs of equal p are ranked."""
        between = np.maximum(self.between, 0.0)
        return np.sqrt(between / np.where(self.within > 0, self.within, np.inf))


class LonePart(NamedTuple):
    """Measurements of an isolated node, which no edge joins to others.

    Attributes
    ----------
    isolation : float
        Log p of the gap around it; 0 if its own cut is clear enough.
    within : float
        Weight of its own heaviest cut; 0 if its isolation decides.
    law : {"rows", "graph"}
        The null distribution of its cut.
    """

    isolation: float
    within: float
    law: str

    def log_p(self, n_rows: int, k: int) -> float:
        """Return its log p beside one of the other k - 1 clusters; together they have `n_rows`."""
        log_p = log_p_under_null(0.0, self.within, n_rows / max(self.within, SHORTEST), self.law)
        return float(decisive_log_p_under_null(log_p, self.isolation, k))
