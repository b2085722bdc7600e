"""ClustPy's methods that choose k by themselves, each on the columns that it is given.

ClustPy is needed for nothing else. Each runs with its own defaults, but for the limit on k where
it has one, and PGMeans with the paper's twelve projections at 0.01/12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["RIVALS"]


def _n_labels(labels: Any) -> int:
    """Count the clusters; -1 is noise."""
    return int(np.unique(labels[labels >= 0]).size)


def _pgmeans(X: Any, limit: int) -> int:
    from clustpy.centroid import PGMeans

    settings = {"significance": 0.01 / 12, "n_projections": 12, "random_state": 0}
    return int(PGMeans(max_n_clusters=limit, **settings).fit(X).n_clusters_)


def _gmeans(X: Any, limit: int) -> int:
    from clustpy.centroid import GMeans

    return int(GMeans(max_n_clusters=limit, random_state=0).fit(X).n_clusters_)


def _xmeans(X: Any, limit: int) -> int:
    from clustpy.centroid import XMeans

    found = XMeans(n_clusters_init=1, max_n_clusters=limit, random_state=0).fit(X)
    return int(found.n_clusters_)


def _dipmeans(X: Any, limit: int) -> int:
    from clustpy.centroid import DipMeans

    return int(DipMeans(max_n_clusters=limit, random_state=0).fit(X).n_clusters_)


def _gap(X: Any, limit: int) -> int:
    from clustpy.centroid import GapStatistic

    return int(GapStatistic(max_n_clusters=limit, random_state=0).fit(X).n_clusters_)


def _skinnydip(X: Any, _limit: int) -> int:
    from clustpy.density import SkinnyDip

    return _n_labels(SkinnyDip(random_state=0).fit(X).labels_)


RIVALS: dict[str, Callable[[Any, int], int]] = {
    "PGMeans": _pgmeans,
    "GMeans": _gmeans,
    "SkinnyDip": _skinnydip,
    "DipMeans": _dipmeans,
    "gap statistic": _gap,
    "XMeans": _xmeans,
}
