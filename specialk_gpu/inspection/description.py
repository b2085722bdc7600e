"""A short account of a fitted model, for a terminal and for notebooks."""

from __future__ import annotations

import html
import textwrap

from specialk_gpu._affinities import is_graph
from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu.inspection.diagnostics import counted, in_words, settings, sizes_of_clusters
from specialk_gpu.inspection.verdict import doubts_about_verdict, verdict, verdict_in_short

__all__ = ["description", "description_in_html"]

WIDTH = 100  # characters of a line
MOST_LINES, MOST_WORDS = 10, 3  # in all, and of the verdict
MOST_SIZES = 12
AROUND = 2  # candidates below and above the decision whose p is told


def description(model: Fitted) -> str:
    """Return the account that `SpecialK.describe` describes, of at most ten lines."""
    m, given = len(on_host(model.labels_)), settings(model)
    rows = counted(m, "row")
    if is_graph(given.affinity):
        rows += ", given by a graph"
    else:
        rows += f" of {counted(model.n_features_in_, 'column')}"
    words = textwrap.wrap(verdict(model)[1], WIDTH, max_lines=MOST_WORDS, placeholder=" ...")
    told: list[str] = []
    for doubt in doubts_about_verdict(model):  # whole, as many as there is room for
        lines = textwrap.wrap(f"- {' '.join(doubt)}", WIDTH, subsequent_indent="  ")
        if len(told) + len(lines) <= MOST_LINES - 4 - len(words):
            told += lines
    seconds = sum(model.timings_.values())
    return "\n".join(
        [
            verdict_in_short(model),
            *words,
            f"sizes: {_described_sizes(model)}",
            _described_levels(model),
            *told,
            f"{rows}; backend {model.backend_}, {seconds:.2g} s",
        ]
    )


def description_in_html(model: Fitted) -> str:
    """Return k, sizes and p as a paragraph of HTML."""
    told = f"k = {model.n_clusters_} ({verdict_in_short(model)}); "
    told += f"sizes: {_described_sizes(model)}; {_described_levels(model)}"
    return f"<p>{html.escape(told)}</p>"


def _described_sizes(model: Fitted) -> str:
    sizes, n_outliers = sizes_of_clusters(model)
    told = [f"{size:,}" for size in sizes[:MOST_SIZES].tolist()]
    if sizes.size > MOST_SIZES:
        told.append(f"and {counted(sizes.size - MOST_SIZES, 'smaller cluster')}")
    if n_outliers:
        told.append(f"and {counted(n_outliers, 'outlier')} (label -1)")
    return ", ".join(told)


def _described_levels(model: Fitted) -> str:
    """Return what decided, for the k around the decision."""
    criterion, k = model.path_.criterion, model.n_clusters_
    near = [step for step in model.path_ if step.pair and abs(step.k - k) <= AROUND]
    name = "p" if criterion == "cut" else "ZZ Top Bound"
    if not near:
        return f"{name}: not computed"
    return f"{name}: " + ", ".join(f"{in_words(s.log_p, criterion)} (k = {s.k})" for s in near)
