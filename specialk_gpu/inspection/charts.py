"""Charts of a fitted model as SVG, for the report: no network and no script is needed."""

from __future__ import annotations

import html
import math
from typing import NamedTuple

import numpy as np

from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu._result import Candidate
from specialk_gpu.inspection.diagnostics import (
    LN10,
    SUPERSCRIPTS,
    counted,
    in_words,
    settings,
)
from specialk_gpu.inspection.places import Places
from specialk_gpu.selection.merging import Tree

__all__ = ["COLORS", "NAME", "OUTLIER", "as_html", "path_chart", "scatter_chart", "tree_chart"]

COLORS = (  # distinguishable for most people, on a light and on a dark background
    "#3b82c4", "#e07b1f", "#3aa05a", "#cf4545", "#8b66c9",
    "#a0705a", "#d76bb0", "#7f8791", "#a8a52a", "#25a8b5",
)  # fmt: skip
OUTLIER = "#9a9a9a"
NAME = {"cut": "p", "zz_top": "ZZ Top Bound"}  # the number that decides
FLOOR = {"cut": -3.0, "zz_top": -15.0}  # lower end of the chart: log10 of p or of the bound
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 330, 80, 40, 55
MARGIN = 12  # of the picture
MOST_NAMES = 60  # the largest k for which clusters are named in the picture
MOST_LEAVES = 40  # the most branches of the tree that are drawn
ROW, RIGHT = 26, 240  # height of a branch of the tree, and the width of its name


def as_html(value: object) -> str:
    """Return a value as text for the page, in an element or in an attribute between quotes."""
    text = str(value).encode("utf-8", "replace").decode("utf-8")  # names of files may be no text
    return html.escape("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text))


def chart_color(cluster: int) -> str:
    """Return the colour of a cluster."""
    return COLORS[cluster % len(COLORS)]


# -- rows in two dimensions -----------------------------------------------------------------------


def scatter_chart(model: Fitted, places: Places) -> str:
    """Return rows in two dimensions, coloured and named by cluster; each cluster is one path."""
    labels = on_host(model.labels_)[places.rows]
    low, spread = places.points.min(axis=0), np.ptp(places.points, axis=0)
    inner = WIDTH - 2 * MARGIN
    height = 0.75 * inner
    if places.to_scale and spread.any():
        height = inner * np.clip(spread[1] / (spread[0] or np.inf), 0.25, 0.85)
        spread[:] = max(spread[0] / inner, spread[1] / height) * np.array([inner, height])
        low = (places.points.max(axis=0) + places.points.min(axis=0) - spread) / 2
    unit = (places.points - low) / np.where(spread > 0, spread, 1)
    x, y = MARGIN + inner * unit[:, 0], MARGIN + height * (1 - unit[:, 1])
    width = 3 if len(labels) > 2000 else 5
    label = f"{counted(model.n_clusters_, 'cluster')} in two dimensions"
    shown = f'<svg class="plane" viewBox="0 0 {WIDTH} {height + 2 * MARGIN:.0f}" role="img"'
    parts, names = [f'{shown} aria-label="{label}">'], []
    for c in range(-1, model.n_clusters_):
        own = labels == c
        if not own.any():
            continue
        drawn, name = (chart_color(c), f"cluster {c}") if c >= 0 else (OUTLIER, "outliers")
        points = "".join(
            f"M{a:.1f} {b:.1f}h0" for a, b in zip(x[own].tolist(), y[own].tolist(), strict=True)
        )
        parts.append(
            f'<path d="{points}" stroke="{drawn}" stroke-width="{width}">'
            f"<title>{name}</title></path>"
        )
        if c < 0:
            continue
        names.append(
            f'<text x="{np.median(x[own]):.1f}" y="{np.median(y[own]) + 5:.1f}" '
            f'text-anchor="middle">{c}</text>'
        )
    return "".join([*parts, *(names if 1 < len(names) <= MOST_NAMES else []), "</svg>"])


# -- the path -------------------------------------------------------------------------------------


class _ChartAxes(NamedTuple):
    """Where the path chart has a k, and a log10 of p."""

    first: int
    last: int
    floor: float

    def x(self, k: float) -> float:
        return LEFT + (k - self.first + 0.5) / (self.last - self.first + 1) * (WIDTH - LEFT - 10)

    def y(self, log10_p: float) -> float:
        return TOP + max(log10_p, self.floor) / self.floor * (HEIGHT - TOP - BOTTOM)


def path_chart(model: Fitted) -> str:
    """Return a chart of p (or of the bound) against k, by its log10, with a dot for each k."""
    steps = [step for step in model.path_ if step.pair is not None]
    if not steps:
        return ""
    criterion = model.path_.criterion
    name = NAME[criterion]
    lowest = min(step.log_p for step in steps) / LN10 - 1
    floor = min(-3.0, max(FLOOR[criterion], lowest))
    axes = _ChartAxes(min(2, steps[0].k), steps[-1].k, floor)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{name} against k">']
    for value in range(0, math.floor(floor) - 1, -max(1, round(-floor / 5))):
        if value >= floor:
            y, mark = axes.y(value), _power_of_ten(value)
            parts.append(
                f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{mark}</text>'
            )
    alpha = axes.y(math.log10(settings(model).alpha))
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{alpha:.1f}" y2="{alpha:.1f}" '
        'stroke="var(--soft)" stroke-dasharray="6 4"/>'
        f'<text x="{WIDTH - 12}" y="{alpha - 5:.1f}" text-anchor="end">alpha</text>'
    )
    if model.n_clusters_ >= axes.first:
        parts.append(
            f'<rect x="{axes.x(model.n_clusters_) - 11:.1f}" y="{TOP - 10}" width="22" rx="5" '
            f'height="{HEIGHT - TOP - BOTTOM + 20}" fill="var(--mark)" opacity=".16"/>'
        )
    line = " ".join(f"{axes.x(step.k):.1f},{axes.y(step.log_p / LN10):.1f}" for step in steps)
    parts.append(f'<polyline points="{line}" fill="none" stroke="var(--line)" stroke-width="2"/>')
    every = max(1, -(-len(steps) // 20))
    for step in steps:
        is_named = (step.k - steps[0].k) % every == 0
        parts += _chart_dots(step, axes, criterion, is_named=is_named)
    middle = (LEFT + WIDTH) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">k</text>')
    parts.append(f'<text x="2" y="18">{name}, by powers of ten</text></svg>')
    return "".join(parts)


def _power_of_ten(exponent: int) -> str:
    """Return 1, 0.1, 0.01 or 0.001 as such, and what is smaller as a power."""
    return f"{10.0**exponent:g}" if exponent >= -3 else f"10{str(exponent).translate(SUPERSCRIPTS)}"


def _chart_dots(step: Candidate, axes: _ChartAxes, criterion: str, *, is_named: bool) -> list[str]:
    """Return the dot of one k, to select, and its number under the axis."""
    k, x = as_html(step.k), axes.x(step.k)
    at = f'cx="{x:.1f}" cy="{axes.y(step.log_p / LN10):.1f}"'
    told = f"{NAME[criterion]} {in_words(step.log_p, criterion)}, "
    told = as_html(told + ("accepted" if step.accepted else "not accepted"))
    parts = [
        f'<g class="dot" data-k="{k}" tabindex="0" role="button" aria-pressed="false" '
        f'aria-label="k = {k}: {told}"><title>k = {k}: {told}</title>'
        f'<circle class="halo" {at} r="11"/>'
        f'<circle {at} r="5.5" fill="var(--{"yes" if step.accepted else "no"})"/></g>'
    ]
    if is_named:
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 24}" text-anchor="middle">{k}</text>'
        )
    return parts


# -- the tree -------------------------------------------------------------------------------------


def tree_chart(tree: Tree, k: int) -> str:
    """Return the top of a tree as a chart in which a column for each number crosses its clusters.

    Parameters
    ----------
    tree : Tree
        The tree of a model.
    k : int
        The number of clusters of the answer, which is marked.

    Returns
    -------
    str
        Empty for a tree without unions.
    """
    K = tree.n_leaves
    shown = min(K, max(k + 4, 6), MOST_LEAVES)  # branches at the right end
    if shown < 2:
        return ""
    sizes, leaf = tree.sizes.tolist(), list(range(K))  # of each node; a leaf below it
    for a, b in tree.children.tolist():
        sizes.append(sizes[a] + sizes[b])
        leaf.append(leaf[a])
    cluster = tree.clusters(min(k, K))[leaf].tolist()  # of each node, if it is inside one
    level = [shown] * (2 * K - shown) + list(range(shown - 1, 0, -1))
    y = _chart_heights(tree, shown)
    step = (WIDTH - RIGHT) / shown

    def x(at: float) -> float:
        return at * step

    height = ROW * (shown + 1)
    parts = [
        f'<svg class="tree" viewBox="0 0 {WIDTH} {height + 4}" role="img" '
        f'aria-label="the tree of clusters, from 1 to {shown}">'
    ]
    if k <= shown:
        parts.append(
            f'<rect x="{x(k - 1):.1f}" y="0" width="{step:.1f}" height="{height}" rx="5" '
            'fill="var(--mark)" opacity=".16"/>'
        )
    every = -(-shown // 12)
    near = range(k - every + 1, k + every)  # no other number is near that of the answer
    for at in (i for i in range(1, shown + 1) if i == k or i % every == 0 and i not in near):
        parts.append(f'<text x="{x(at - 0.5):.1f}" y="16" text-anchor="middle">{at}</text>')
    parts.append(
        _chart_branch(x(0), x(1), y[2 * K - 2], "var(--soft)" if k > 1 else chart_color(0))
    )
    for union in range(2 * K - shown, 2 * K - 1):
        inside = level[union] >= k
        a, b = tree.children[union - K].tolist()
        p = in_words(float(tree.log_p[level[union]]), "cut")
        told = f"{level[union] + 1} clusters become {level[union]}: p {'' if p[0] == '<' else '= '}"
        tone = chart_color(cluster[union]) if inside else "var(--soft)"
        parts.append(f"<g><title>{as_html(told + p)}</title>")
        parts.append(_chart_branch(x(level[union]), x(level[union]), y[a], tone, y[b]))
        for child in (a, b):
            tone = chart_color(cluster[child]) if level[child] >= k else "var(--soft)"
            parts.append(_chart_branch(x(level[union]), x(level[child]), y[child], tone))
        parts.append("</g>")
    whole = np.bincount(tree.clusters(min(k, K)), tree.sizes).astype(int).tolist()
    for node in sorted((n for n in range(2 * K - shown) if n in y), key=y.__getitem__):
        c, size = cluster[node], counted(sizes[node], "row")
        name = f"{c}: {size}" if sizes[node] == whole[c] else f"part of {c}: {size}"
        name = size if sizes[node] > whole[c] else name
        parts.append(f'<text x="{x(shown) + 8:.1f}" y="{y[node] + 5:.1f}">{as_html(name)}</text>')
    return "".join([*parts, "</svg>"])


def _chart_branch(x1: float, x2: float, y1: float, tone: str, y2: float | None = None) -> str:
    y2 = y1 if y2 is None else y2
    return (
        f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" '
        f'stroke="{tone}" stroke-width="2.5" stroke-linecap="round"/>'
    )


def _chart_heights(tree: Tree, shown: int) -> dict[int, float]:
    """Return the height of each node that is drawn, where no branches cross; the root is last."""
    K = tree.n_leaves
    y: dict[int, float] = {}
    order, stack = [], [2 * K - 2]
    while stack:
        node = stack.pop()
        if node < 2 * K - shown:
            order.append(node)
        else:
            stack += tree.children[node - K].tolist()[::-1]
    for i, node in enumerate(order):
        y[node] = ROW * (i + 1.5)
    for union in range(2 * K - shown, 2 * K - 1):
        a, b = tree.children[union - K].tolist()
        y[union] = (y[a] + y[b]) / 2
    return y
