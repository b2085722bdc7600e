"""A report of a fitted model: one HTML page that needs no network."""

from __future__ import annotations

import base64
import html
import json
import math
from importlib import resources
from inspect import signature
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._environment import package_versions
from specialk_gpu._fitted import Fitted
from specialk_gpu._result import Candidate
from specialk_gpu._storage import on_host
from specialk_gpu._writing import write_text
from specialk_gpu.backend.typing import Matrix
from specialk_gpu.inspection.diagnostics import (
    LN10,
    counted,
    doubts,
    headline,
    images,
    in_the_plane,
    in_words,
    pair_matrix,
    settings,
    sizes_of_clusters,
    typical,
    verdict,
)

__all__ = ["report"]

COLORS = (  # distinguishable for most people, on a light and on a dark background
    "#3b82c4", "#e07b1f", "#3aa05a", "#cf4545", "#8b66c9",
    "#a0705a", "#d76bb0", "#7f8791", "#a8a52a", "#25a8b5",
)  # fmt: skip
NAME = {"cut": "p", "zz_top": "ZZ Top Bound"}  # the number that decides
MEANING = {
    "cut": "The rows are divided into small fragments. The two least separate are merged, again "
    "and again, until one is left. The cut test says how separate two clusters are: it compares "
    "the graph at their border with the graph inside them. p is the chance of a border that thin "
    "inside one cluster. Own p is the p of the least separate pair of the k clusters. The decision "
    "uses p: the smallest own p of k or more clusters, with fragments of several sizes.",
    "zz_top": "For each k, k-means splits the rows into k clusters. For every pair of clusters, "
    "the ZZ Top Bound says how likely such a clear split would be, at most, if the two were really "
    "one cluster. The page shows the largest bound over the pairs.",
}
SOURCE = {
    "cut": "The rule is this library's cut test. Its p is measured on data sets without clusters. "
    "It is not the probability that a cluster exists. Below 0.001 it only says that a border is "
    "thin.",
    "zz_top": "The method: S. Hess, W. Duivesteijn, k is the Magic Number, ECML PKDD 2019. The "
    "bound assumes that the columns of the embedding are independent samples. They are not quite "
    "independent, so read alpha as a threshold, not as an error rate.",
}
MOST_PAIRS = 30  # the largest k for which all pairs are listed
MOST_POINTS = 5000
FLOOR = {"cut": -3.0, "zz_top": -15.0}  # lower end of the chart: log10 of p or of the bound
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 330, 80, 40, 55


def report(
    model: Fitted,
    path: str | Path,
    *,
    X: Matrix | None = None,
    image_shape: tuple[int, int] | None = None,
    source: str = "",
) -> None:
    """Write an HTML page that says how many clusters there are, why, and how clear that is.

    Whatever comes from the model or from an argument is shown as text: it cannot become a tag, an
    attribute or a script of the page.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    path : str or path
        The HTML file.
    X : array of shape (m, height * width), optional
        The fitted rows, to show typical rows as images; needs `image_shape`.
    image_shape : tuple of two int, optional
        Height and width of the images.
    source : str
        A description of the data, shown at the top of the page.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    ValueError
        If the rows of X are not images of that shape.
    OSError
        If the file cannot be written.
    """
    check_is_fitted(model)
    steps = [_step(model, step) for step in model.path_]
    k, (m, n) = model.n_clusters_, model.embedding_.shape
    given = settings(model)
    criterion = model.path_.criterion
    rows = model.n_features_in_ if given.affinity != "precomputed" else None
    n_outliers = sizes_of_clusters(model)[1]
    told = counted(m, "row") + (f" of {counted(rows, 'column')}" if rows else ", given by a graph")
    plane, shown = _plane(model)
    data = {
        "answer": k,
        "first": next((step.k for step in model.path_ if step.pair is not None), k),
        "steps": steps,
        "plane": plane,
        "colors": COLORS,
        "most_pairs": MOST_PAIRS,
        "has_bounds": criterion == "zz_top",
    }
    fields = {
        "title": _text(f"{counted(k, 'cluster')} – specialk_gpu"),
        "source": _text(f"{source}: {told}" if source else told),
        "headline": _text(headline(model)),
        "verdict": _text(verdict(model)[1]),
        "why": _text(f"{MEANING[criterion]} {_rule(model)}"),
        "source_of_the_rule": SOURCE[criterion],
        "chart": _chart(model),
        "choose": "Select a k" + (" in the chart or" if len(steps) > 1 else "") + " in the table",
        "heads": "".join(f'<th scope="col">{name}</th>' for name in HEADS[criterion]),
        "path": "\n".join(_path_row(step, k, criterion) for step in model.path_),
        "nearness": NEARNESS[criterion],
        "clusters": "\n".join(_cluster_rows(model, steps)),
        "plane": f"{shown:,} of {m:,} rows, drawn by the two leading principal components of the "
        f"embedding and coloured by cluster{', outliers in grey' if n_outliers else ''}.",
        "members": _members(model, X, image_shape),
        "doubts": "\n".join(
            f"<li><strong>{_text(found)}</strong> {_text(advice)}</li>"
            for found, advice in doubts(model)
        ),
        "facts": "\n".join(
            f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in _facts(model, n)
        ),
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),  # no tag, no comment
    }
    template = resources.files("specialk_gpu.inspection").joinpath("templates/report.html")
    page = Template(template.read_text(encoding="utf-8")).substitute(fields)
    write_text(path, page)


def _text(value: object) -> str:
    """Return a value as text for the page, in an element or in an attribute between quotes."""
    text = str(value).encode("utf-8", "replace").decode("utf-8")  # names of files may be no text
    return html.escape("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text))


def _step(model: Fitted, step: Candidate) -> dict[str, Any]:
    """Return the data of one k that the page needs."""
    sizes = np.bincount(on_host(step.labels), minlength=step.k).tolist()
    pairs = None
    if model.path_.criterion == "zz_top" and 1 < step.k <= MOST_PAIRS:
        pairs = np.round(np.maximum(pair_matrix(model, step.k), -1e6), 3).tolist()
    return {"k": int(step.k), "sizes": sizes, "log10_zz_top": pairs}


def _rule(model: Fitted) -> str:
    given, criterion = settings(model), model.path_.criterion
    if given.n_clusters is not None:
        return "Here k was given, so no test decided it."
    if criterion == "zz_top" and given.stopping == "watershed":
        return "The answer is the last k before the largest drop in certainty (1 minus the bound)."
    level = f"at most alpha = {given.alpha:g}"
    if criterion == "cut":
        return f"The answer is the largest k whose p is {level}."
    return f"A k is accepted if this is {level}. The answer is the k before the first rejected one."


def _plane(model: Fitted) -> tuple[dict[str, list[float]], int]:
    """Return points of the embedding in the unit square with their clusters, and their number."""
    points, labels = in_the_plane(model), on_host(model.labels_)
    step = max(1, -(-len(points) // MOST_POINTS))
    points, labels = points[::step], labels[::step]
    spread = np.ptp(points, axis=0)
    points = (points - points.min(axis=0)) / np.where(spread > 0, spread, 1)
    x, y = np.round(points, 4).T.tolist()
    return {"x": x, "y": y, "cluster": labels.tolist()}, len(labels)


def _chart(model: Fitted) -> str:
    """Return an SVG chart of log10 p (or of the bound) against k, with one dot to select per k."""
    steps = [step for step in model.path_ if step.pair is not None]
    if not steps:
        return ""
    first, last = min(2, steps[0].k), steps[-1].k
    criterion = model.path_.criterion
    name = f"log10 of the {NAME[criterion]}" if criterion == "zz_top" else "log10 p"
    floor = min(-3.0, max(FLOOR[criterion], min(step.log_p for step in steps) / LN10 - 1))

    def x(k: float) -> float:
        return LEFT + (k - first + 0.5) / (last - first + 1) * (WIDTH - LEFT - 10)

    def y(log10_p: float) -> float:
        return TOP + max(log10_p, floor) / floor * (HEIGHT - TOP - BOTTOM)

    alpha = y(math.log10(settings(model).alpha))
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{name} against k">']
    for value in range(0, math.floor(floor) - 1, -max(1, round(-floor / 5))):
        if value >= floor:
            parts.append(
                f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 10}" y1="{y(value):.1f}" '
                f'y2="{y(value):.1f}"/><text x="{LEFT - 8}" y="{y(value) + 4:.1f}" '
                f'text-anchor="end">{value}</text>'
            )
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{alpha:.1f}" y2="{alpha:.1f}" '
        'stroke="var(--soft)" stroke-dasharray="6 4"/>'
        f'<text x="{WIDTH - 12}" y="{alpha - 5:.1f}" text-anchor="end">alpha</text>'
    )
    if model.n_clusters_ >= first:
        parts.append(
            f'<rect x="{x(model.n_clusters_) - 11:.1f}" y="{TOP - 10}" width="22" rx="5" '
            f'height="{HEIGHT - TOP - BOTTOM + 20}" fill="var(--mark)" opacity=".16"/>'
        )
    line = " ".join(f"{x(step.k):.1f},{y(step.log_p / LN10):.1f}" for step in steps)
    parts.append(f'<polyline points="{line}" fill="none" stroke="var(--line)" stroke-width="2"/>')
    every = max(1, -(-len(steps) // 20))
    for step in steps:
        k = _text(step.k)
        at = f'cx="{x(step.k):.1f}" cy="{y(step.log_p / LN10):.1f}"'
        told = f"{NAME[criterion]} {in_words(step.log_p, criterion)}, "
        told = _text(told + ("accepted" if step.accepted else "not accepted"))
        parts.append(
            f'<g class="dot" data-k="{k}" tabindex="0" role="button" aria-pressed="false" '
            f'aria-label="k = {k}: {told}"><title>k = {k}: {told}</title>'
            f'<circle class="halo" {at} r="11"/>'
            f'<circle {at} r="5.5" fill="var(--{"yes" if step.accepted else "no"})"/></g>'
        )
        if (step.k - steps[0].k) % every == 0:
            parts.append(
                f'<text x="{x(step.k):.1f}" y="{HEIGHT - BOTTOM + 24}" '
                f'text-anchor="middle">{k}</text>'
            )
    middle = (LEFT + WIDTH) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">k</text>')
    parts.append(f'<text x="2" y="18">{name}</text></svg>')
    return "".join(parts)


HEADS = {
    "cut": ("k", "p", "own p", "worst pair", "accepted"),
    "zz_top": ("k", "ZZ Top Bound", "worst pair", "accepted", "inertia"),
}


def _path_row(step: Candidate, answer: int, criterion: str) -> str:
    pair, values = "", []
    if step.pair is not None:
        pair = f"{step.pair[0]}, {step.pair[1]}"
        values = [in_words(step.log_p, criterion)]
        if criterion == "cut" and step.log_p_level is not None:
            values.append(in_words(step.log_p_level, criterion))
    values += [""] * ((2 if criterion == "cut" else 1) - len(values))
    values += [pair, "yes" if step.accepted else "no"]
    if criterion == "zz_top":
        values.append(f"{step.inertia:.6g}")
    cells = "".join(f"<td>{_text(value)}</td>" for value in values)
    k = _text(step.k)
    return (
        f'<tr data-k="{k}"{" class=answer" if step.k == answer else ""}>'
        f'<th scope="row"><button type="button">{k}</button></th>{cells}'
        f'<td class="words">{_text(step.reason)}</td></tr>'
    )


NEARNESS = {"cut": "walks that end in it", "zz_top": "log10 of the ZZ Top Bound with it"}


def _nearness(model: Fitted, steps: list[dict[str, Any]]) -> np.ndarray | None:
    """Return how near each cluster is to each other one, (k, k): larger is nearer.

    For criterion="cut" this is the percentage of walks from the first that end in the second.
    """
    k = model.n_clusters_
    if model.path_.criterion == "zz_top":
        pairs = next(one for one in steps if one["k"] == k)["log10_zz_top"]
        return None if pairs is None else np.array(pairs)
    if k == 1:
        return None
    labels, shares = on_host(model.labels_), on_host(model.membership_)
    return np.stack([100 * shares[labels == c].mean(axis=0) for c in range(k)])


def _cluster_rows(model: Fitted, steps: list[dict[str, Any]]) -> list[str]:
    """Return a table row for each cluster: its size, and the cluster that it is closest to."""
    sizes, n_outliers = sizes_of_clusters(model)
    nearness, unit = _nearness(model, steps), " %" if model.path_.criterion == "cut" else ""
    rows = []
    for c, size in enumerate(sizes.tolist()):
        share = size / (sizes.sum() + n_outliers)
        closest, shown = "–", "–"
        place, height = c, 0.0
        if nearness is not None:
            others = nearness[c].copy()
            others[c] = -np.inf
            place, height = int(others.argmax()), float(others.max())
            closest, shown = str(place), f"{height:.2f}{unit}"
        color = COLORS[c % len(COLORS)]
        rows.append(
            f'<tr><th scope="row" data-value="{c}"><span class="swatch" '
            f'style="background:{color}"></span>{c}</th><td data-value="{size}">{size:,}</td>'
            f'<td data-value="{share}" style="text-align:left"><span class="bar" '
            f'style="background:{color};width:{8 * share:.2f}rem"></span> {100 * share:.1f} %</td>'
            f'<td data-value="{place}">{closest}</td><td data-value="{height}">{shown}</td></tr>'
        )
    return rows


def _members(model: Fitted, X: Matrix | None, shape: tuple[int, int] | None) -> str:
    """Return typical rows of each cluster as images, if X and `shape` are given."""
    if X is None and shape is None:
        return ""
    if X is None or shape is None:
        msg = "X and image_shape go together: give both, or neither."
        raise ValueError(msg)
    X = images(model, X, shape, "image_shape")
    height, width = X.shape[1:]
    chosen = typical(model, 12)
    low = min(float(X[rows].min()) for rows in chosen)
    high = max(float(X[rows].max()) for rows in chosen)
    parts = ["<h3>Typical rows of each cluster</h3>"]
    for c, rows in enumerate(chosen):
        parts.append(f'<p class="soft">cluster {c}</p><div class="images">')
        for row in rows.tolist():
            pixels = (X[row].astype(np.float64) - low) / ((high - low) or 1) * 255
            coded = base64.b64encode(pixels.round().astype(np.uint8).tobytes()).decode()
            parts.append(
                f'<canvas width="{width}" height="{height}" role="img" '
                f'aria-label="row {row}" title="row {row}" data-pixels="{coded}"></canvas>'
            )
        parts.append("</div>")
    return "\n".join(parts)


def _seconds(spent: float) -> str:
    return f"{spent:.3g} s" if spent >= 0.01 else "below 0.01 s"


def _facts(model: Fitted, n: int) -> list[tuple[str, str]]:
    """Return the names and values that a reader needs to repeat the computation."""
    timings = ", ".join(f"{name} {_seconds(spent)}" for name, spent in model.timings_.items())
    residual = float(np.max(on_host(model.residuals_)))
    n_outliers = sizes_of_clusters(model)[1]
    given = settings(model)
    defaults = signature(type(model).__init__).parameters
    changed = [
        f"{name}={value!r}"
        for name, value in vars(given).items()
        if name not in defaults or value != defaults[name].default
    ]
    parameters = ", ".join(changed) or "none"
    graph = (
        f"{model.affinity_matrix_.nnz:,} entries, {counted(model.n_graph_components_, 'component')}"
    )
    if model.radius_ is not None:
        graph += f", radius {model.radius_:.6g}"
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    return [
        ("time", f"{_seconds(sum(model.timings_.values()))}: {timings}"),
        ("backend", model.backend_),
        ("graph", f"{given.affinity}: {graph}"),
        ("eigenvectors", f"{n} by {model.eigen_solver_}, residuals up to {residual:.1e}"),
        *([("outliers", f"{counted(n_outliers, 'row')}, label -1")] if n_outliers else []),
        ("parameters set", parameters),
        ("versions now", versions),
    ]
