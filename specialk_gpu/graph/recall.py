"""The recall of neighbours from elsewhere: which share of the exact ones they hold."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.graph.neighbor_search import search_neighbors_of_new_rows

__all__ = ["Recall", "measured_recall"]

JUDGED = 1000  # rows whose exact neighbours are searched to measure the recall
SURE = 0.95  # probability of the interval


class Recall(NamedTuple):
    """The share of the nearest neighbours that lists hold, measured on some rows.

    Attributes
    ----------
    value : float
        The mean over the measured rows. A row in a list that is as near as the last of the exact
        neighbours counts as one of them.
    low, high : float
        An interval that holds the share over all rows with a probability of 95 % at least.
    n_rows : int
        The number of measured rows.
    """

    value: float
    low: float
    high: float
    n_rows: int


def measured_recall(bk: Backend, X: Array, squares: Array, counts: list[int]) -> list[Recall]:
    """Measure which share of the nearest neighbours lists hold, for some numbers of neighbours.

    Parameters
    ----------
    bk : module
    X : float array of shape (m, d)
        Distinct rows.
    squares : float64 array of shape (m, n)
        Squared distances to the neighbours in the lists, ascending.
    counts : list of int
        Numbers of neighbours, at most n.

    Returns
    -------
    list of Recall
        One for each number. The interval is the empirical Bernstein bound [MP09, Theorem 4].

    Notes
    -----
    Costs an exact search for 1,000 rows: 2,000 m d operations.

    References
    ----------
    [MP09] A. Maurer, M. Pontil: Empirical Bernstein bounds and sample variance penalization.
    COLT 2009.
    """
    m, most = len(X), max(counts)
    drawn = np.arange(m)
    if m > JUDGED:
        drawn = np.sort(np.random.default_rng(0).choice(m, JUDGED, replace=False))
    rows = bk.asarray(drawn)
    both = bk.xp.concatenate([X, X[rows]])
    exact = search_neighbors_of_new_rows(bk, both, most + 1, first=m)[0][:, 1:]  # not the row
    found = []
    for k in counts:
        is_near = squares[rows, :k] <= exact[:, k - 1 : k]
        shares = bk.to_numpy(is_near.mean(axis=1))
        value, n = float(shares.mean()), len(drawn)
        width = 0.0  # if all rows were measured
        if n < m:
            sure = math.log(4 / (1 - SURE))
            width = math.sqrt(2 * shares.var(ddof=1) * sure / n) + 7 * sure / (3 * (n - 1))
        found.append(Recall(value, max(0.0, value - width), min(1.0, value + width), n))
    return found
