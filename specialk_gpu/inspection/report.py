"""A report of a fitted model: one HTML page that needs no network."""

from __future__ import annotations

import json
from importlib import resources
from inspect import signature
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._affinities import is_graph
from specialk_gpu._environment import package_versions
from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu._result import Candidate
from specialk_gpu._writing import write_text
from specialk_gpu.backend.typing import Matrix
from specialk_gpu.inspection.charts import as_html, path_chart, tree_chart
from specialk_gpu.inspection.diagnostics import (
    counted,
    in_words,
    pair_matrix,
    settings,
    sizes_of_clusters,
)
from specialk_gpu.inspection.places import is_graph_of_fit
from specialk_gpu.inspection.report_clusters import report_clusters
from specialk_gpu.inspection.report_tables import (
    check_reported_stability,
    report_table_of_columns,
    report_tables_of_stability,
)
from specialk_gpu.inspection.stability import Stability
from specialk_gpu.inspection.summary import summary
from specialk_gpu.inspection.verdict import (
    doubts_about_verdict,
    verdict,
    verdict_in_short,
    verdict_of_other_fits,
)
from specialk_gpu.tables.preparation import Preparation
from specialk_gpu.tables.table import listed

__all__ = ["report"]

MEANING = {
    "cut": "k is the number of clusters. The rows are divided into small fragments. The two least "
    "separate are merged, again and again, until one is left. The cut test says how separate two "
    "clusters are. It looks at the graph, which joins each row to its nearest neighbours: it "
    "compares the edges at the border of the two with those inside them. p is the chance of a "
    "border that thin inside one cluster. The worst pair are the two least separate of the k "
    "clusters, and own p is their p. The decision uses p: the smallest own p of k or more "
    "clusters, with fragments of several sizes.",
    "zz_top": "k is the number of clusters. For each k, k-means splits the rows into k clusters, "
    "in coordinates that come from the graph of neighbours, called the embedding. For every pair "
    "of clusters, the ZZ Top Bound says how likely such a clear split would be, at most, if the "
    "two were really one cluster. The page shows the largest bound over the pairs, that of the "
    "worst pair. Inertia is the sum of the squared distances of the rows to the means of their "
    "clusters.",
}
SOURCE = {
    "cut": "The rule is this library's cut test. Its p is measured on data sets without clusters. "
    "It is not the probability that a cluster exists. Below 0.001 it only says that a border is "
    "thin.",
    "zz_top": "The method: S. Hess, W. Duivesteijn, k is the Magic Number, ECML PKDD 2019. The "
    "bound assumes that the columns of the embedding are independent samples. They are not quite "
    "independent, so read alpha as a threshold, not as an error rate.",
}
MISSING = {
    "drop": "rows with blanks were left out, and are not counted here",
    "median": "blanks were filled with the median of their column",
}
SCALED = {
    "standard": "the mean was subtracted, and the result divided by the standard deviation",
    "robust": "the median was subtracted, and the result divided by the distance of the quartiles",
}
MOST_PAIRS = 30  # the largest k for which all pairs are listed


class _GivenToReport(NamedTuple):
    """What the caller hands over, to be shown beside the model: see `SpecialK.report`."""

    X: Matrix | None
    image_shape: tuple[int, int] | None
    coordinates: Matrix | None
    stability: Stability | None


def report(
    model: Fitted,
    path: str | Path,
    *,
    X: Matrix | None = None,
    image_shape: tuple[int, int] | None = None,
    coordinates: Matrix | None = None,
    stability: Stability | None = None,
    source: str = "",
) -> None:
    """Write the page that `SpecialK.report` describes.

    Whatever comes from the model or from an argument is shown as text: it cannot become a tag, an
    attribute or a script of the page.
    """
    check_is_fitted(model)
    check_reported_stability(model, stability)
    given = _GivenToReport(X, image_shape, coordinates, stability)
    steps = [_report_step(model, step) for step in model.path_]
    k, m = model.n_clusters_, len(model.labels_)
    columns = model.n_features_in_ if not is_graph(settings(model).affinity) else None
    told = f" of {counted(columns, 'column')}" if columns else ", given by a graph"
    told = counted(m, "row") + told
    data = {
        "answer": k,
        "first": next((step.k for step in model.path_ if step.pair is not None), k),
        "steps": steps,
        "most_pairs": MOST_PAIRS,
        "has_bounds": model.path_.criterion == "zz_top",
    }
    fields = {
        "title": as_html(f"{counted(k, 'cluster')} – specialk_gpu"),
        "source": as_html(f"{source}: {told}" if source else told),
        "headline": as_html(verdict_in_short(model, stability)),
        "verdict": as_html(_report_verdict(model, stability)),
        "preparation": as_html(_report_preparation(model)),
        "sections": "\n\n".join(_report_sections(model, steps, given)),
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),  # no tag, no comment
    }
    template = resources.files("specialk_gpu.inspection").joinpath("templates/report.html")
    page = Template(template.read_text(encoding="utf-8")).substitute(fields)
    write_text(path, page)


def _report_verdict(model: Fitted, stability: Stability | None) -> str:
    """Return what decided, and what other fits say, if they were made."""
    words = verdict(model)[1]
    return words if stability is None else f"{words} {verdict_of_other_fits(model, stability)}"


def _report_preparation(model: Fitted) -> str:
    """Return in words what the command line did with the columns before the fit."""
    kept = getattr(model, "preparation_", None)
    if kept is None:
        return ""
    own = Preparation.from_json(kept)
    told = []
    if own.left_out:
        was = "was" if len(own.left_out) == 1 else "were"
        left_out = f"{len(own.left_out)} of {counted(len(own.order), 'column')} {was} left out"
        told.append(f"{left_out}: {listed(own.left_out)}")
    if own.one_hot:
        each = "was" if len(own.one_hot) == 1 else "were each"
        told.append(f"{listed(own.one_hot)} {each} replaced by a column of 0 and 1 for every value")
    told += [MISSING[own.missing]] if own.missing else []
    told.append(f"of each column of numbers {SCALED[own.scale]}" if own.scale else "no scaling")
    return f"Before the fit: {'; '.join(told)}."


def _report_sections(
    model: Fitted, steps: list[dict[str, Any]], given: _GivenToReport
) -> list[str]:
    """Return the sections of the page, in order; a new section is a new line here."""
    clusters = report_clusters(model, steps, given.X, given.image_shape, given.coordinates)
    return [
        _report_section("clusters", "What the clusters look like", clusters),
        *_report_columns(model, given),
        _report_why(model, steps),
        *_report_stability(given),
        *_report_tree(model),
        _report_doubts(model),
        _report_how(model),
    ]


def _report_section(name: str, title: str, *content: str) -> str:
    """Return a section of the page from its HTML."""
    body = "\n".join(part for part in content if part)
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{body}\n</section>'


def _report_columns(model: Fitted, given: _GivenToReport) -> list[str]:
    """Return the section with the columns that differ between clusters, if X is a table."""
    if given.X is None or given.image_shape is not None or is_graph_of_fit(model, given.X):
        return []
    table = report_table_of_columns(summary(model, given.X))
    return [_report_section("columns", "In which columns they differ", table)] if table else []


def _report_stability(given: _GivenToReport) -> list[str]:
    """Return the section with other fits, if they were made."""
    if given.stability is None:
        return []
    tables = report_tables_of_stability(given.stability)
    return [_report_section("stability", "How steady they are", tables)]


def _report_why(model: Fitted, steps: list[dict[str, Any]]) -> str:
    """Return the section with the rule and the path."""
    criterion = model.path_.criterion
    choose = "Select a k" + (" in the chart or" if len(steps) > 1 else "") + " in the table"
    heads = "".join(f'<th scope="col">{name}</th>' for name in HEADS[criterion])
    rows = "\n".join(_report_path_row(step, model.n_clusters_, criterion) for step in model.path_)
    return _report_section(
        "why",
        "Why this number",
        f"<p>{as_html(f'{MEANING[criterion]} {_report_rule(model)}')}</p>",
        path_chart(model),
        f'<p class="soft screen">{choose} to see the sizes of its clusters.</p>',
        _report_where_outliers_count(model),
        '<table id="path" class="stack">',
        '<caption class="soft">The path: one row for each k</caption>',
        f'<thead><tr>{heads}<th scope="col" class="words">reason</th></tr></thead>',
        f"<tbody>\n{rows}\n</tbody></table>",
        '<div id="status" aria-live="polite"></div>\n<div id="detail"></div>',
    )


def _report_tree(model: Fitted) -> list[str]:
    """Return the section with the tree of clusters, if there is one."""
    if model._tree is None or not (chart := tree_chart(model._tree, model.n_clusters_)):
        return []
    words = (
        "From right to left, the two least separate clusters are united until one is left. The "
        "column below a number crosses as many branches: the clusters of that k, which "
        "labels_at(k) returns. The answer is marked. Only the last unions are drawn."
    )
    note = _report_where_outliers_count(model)
    return [_report_section("tree", "Coarser and finer clusters", f"<p>{words}</p>", note, chart)]


def _report_where_outliers_count(model: Fitted) -> str:
    """Return a sentence for the path and the tree, which know no outliers."""
    n = sizes_of_clusters(model)[1]
    if not n:
        return ""
    told = f"the {n:,} outliers still count in the clusters that they were taken from"
    if n == 1:
        told = "the outlier still counts in the cluster that it was taken from"
    return f'<p class="soft">Outliers are set aside at the end: here {told}.</p>'


def _report_doubts(model: Fitted) -> str:
    """Return the section with caveats and advice."""
    found = "\n".join(
        f"<li><strong>{as_html(finding)}</strong> {as_html(advice)}</li>"
        for finding, advice in doubts_about_verdict(model)
    )
    return _report_section("doubts", "If you doubt it", f"<ul>\n{found}\n</ul>")


def _report_how(model: Fitted) -> str:
    """Return the section with what is needed to repeat the computation."""
    facts = "\n".join(
        f"<dt>{as_html(name)}</dt><dd>{as_html(value)}</dd>" for name, value in _report_facts(model)
    )
    return _report_section(
        "how",
        "How it was computed",
        f"<dl>\n{facts}\n</dl>",
        f'<p class="soft">{SOURCE[model.path_.criterion]}</p>',
    )


def _report_step(model: Fitted, step: Candidate) -> dict[str, Any]:
    """Return the data of one k that the page needs."""
    sizes = np.bincount(on_host(step.labels), minlength=step.k).tolist()
    pairs = None
    if model.path_.criterion == "zz_top" and 1 < step.k <= MOST_PAIRS:
        pairs = np.round(np.maximum(pair_matrix(model, step.k), -1e6), 3).tolist()
    return {"k": int(step.k), "sizes": sizes, "log10_zz_top": pairs}


def _report_rule(model: Fitted) -> str:
    given, criterion = settings(model), model.path_.criterion
    if given.n_clusters is not None:
        return "Here k was given, so no test decided it."
    if criterion == "zz_top" and given.stopping == "watershed":
        return "The answer is the last k before the largest drop in certainty (1 minus the bound)."
    level = f"at most alpha = {given.alpha:g}, the limit of this fit"
    if criterion == "cut":
        return f"The answer is the largest k whose p is {level}."
    return f"A k is accepted if this is {level}. The answer is the k before the first rejected one."


HEADS = {
    "cut": ("k", "p", "own p", "worst pair", "accepted"),
    "zz_top": ("k", "ZZ Top Bound", "worst pair", "accepted", "inertia"),
}


def _report_path_row(step: Candidate, answer: int, criterion: str) -> str:
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
    named = zip(HEADS[criterion][1:], values, strict=True)
    cells = "".join(f'<td data-label="{name}">{as_html(value)}</td>' for name, value in named)
    k = as_html(step.k)
    return (
        f'<tr data-k="{k}"{" class=answer" if step.k == answer else ""}>'
        f'<th scope="row"><button type="button">{k}</button></th>{cells}'
        f'<td class="words" data-label="reason">{as_html(step.reason)}</td></tr>'
    )


def _report_seconds(spent: float) -> str:
    return f"{spent:.3g} s" if spent >= 0.01 else "below 0.01 s"


def _report_facts(model: Fitted) -> list[tuple[str, str]]:
    """Return the names and values that a reader needs to repeat the computation."""
    timings = ", ".join(
        f"{name} {_report_seconds(spent)}" for name, spent in model.timings_.items()
    )
    residual = float(np.max(on_host(model.residuals_)))
    given, n_outliers = settings(model), sizes_of_clusters(model)[1]
    defaults = signature(type(model).__init__).parameters
    changed = [
        f"{name}={value!r}"
        for name, value in vars(given).items()
        if name not in defaults or value != defaults[name].default
    ]
    changed.append(f"random_state={vars(model)['random_state']!r}")  # not kept with the result
    graph = (
        f"{model.affinity_matrix_.nnz:,} entries, {counted(model.n_graph_components_, 'component')}"
    )
    if model.radius_ is not None:
        graph += f", radius {model.radius_:.6g}"
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    return [
        ("time", f"{_report_seconds(sum(model.timings_.values()))}: {timings}"),
        ("backend", model.backend_),
        ("graph", f"{given.affinity}: {graph}"),
        (
            "eigenvectors",
            f"{model.embedding_.shape[1]} by {model.eigen_solver_}, residuals up to {residual:.1e}",
        ),
        *([("outliers", f"{counted(n_outliers, 'row')}, label -1")] if n_outliers else []),
        ("parameters set", ", ".join(changed)),
        ("versions now", versions),
    ]
