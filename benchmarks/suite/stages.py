"""The stages apart: contenders, the checks of their answers, and the comparison between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.suite import clusters, fits, neighbors, pairs
from benchmarks.suite.cases import Case, Inputs
from benchmarks.suite.measure import Contender

__all__ = ["STAGE", "Stage"]


class Stage(NamedTuple):
    """Who solves a stage, and what is right.

    Attributes
    ----------
    contenders : tuple of Contender
        Ours first.
    check : callable
        Takes the name of the contender, the case, the inputs and the answer. Returns what was
        found out; "wrong" says why an answer is.
    compare : callable
        Takes what was found out, by contender; returns why some are wrong after all.
    """

    contenders: tuple[Contender, ...]
    check: Callable[[str, Case, Inputs, Any], dict[str, Any]]
    compare: Callable[[dict[str, dict[str, Any]]], dict[str, str]] = lambda _rows: {}


STAGE = {
    "knn": Stage(neighbors.CONTENDERS, neighbors.check),
    "spmm": Stage(pairs.PRODUCTS, pairs.check_product),
    "eigenpairs": Stage(pairs.PAIRS, pairs.check_pairs, pairs.compare_pairs),
    "kmeans": Stage(clusters.KMEANS, clusters.check_kmeans, fits.compare_inertia),
    "sweep": Stage(clusters.SWEEP, clusters.check_sweep, fits.compare_inertia),
    "merging": Stage(clusters.CLUSTERS, clusters.check_clusters),
    "fit": Stage(fits.CONTENDERS, fits.check, fits.compare_inertia),
}
