"""Tables of the report: how the columns differ between clusters, and how steady clusters are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from specialk_gpu._fitted import Fitted
from specialk_gpu.inspection.charts import as_html
from specialk_gpu.inspection.diagnostics import counted, sizes_of_clusters
from specialk_gpu.inspection.stability import DOUBTFUL, STABLE, Stability
from specialk_gpu.inspection.summary import Summary, name_in_summary, value_in_summary

__all__ = ["check_reported_stability", "report_table_of_columns", "report_tables_of_stability"]

MOST_COLUMNS = 20
MOST_CLUSTERS = {"across": 8, "down": 40}
MIXED = 45  # percent of colour in the strongest cell
COLUMNS = (
    "For numbers the median of each cluster is shown, otherwise the most frequent value with its "
    "share. Blue values are larger than in the other clusters, or more frequent; red values are "
    "smaller. The stronger the colour, the clearer the difference. The effect says how much of "
    "the column the clusters explain, from 0 (nothing) to 1 (all). There is no p: clusters always "
    "differ in the columns that they were made from."
)
STEADY = (
    "The rows were clustered again, each time with one small change: of random_state, the seed of "
    "all chance; of the order of the rows; of n_neighbors, the number of neighbours in the graph; "
    "or to a sample of the rows. The adjusted Rand index (ARI) compares all labels with those of "
    "this page: 1 means the same clusters, 0 as alike as by chance. The Jaccard index of a cluster "
    "is the share of rows that it has in common with the most similar cluster of another fit. A "
    f"cluster whose mean is {STABLE:g} or more under each change is stable. Do not trust one with "
    f"less than {DOUBTFUL:g}."
)


def report_table_of_columns(summary: Summary) -> str:
    """Return the columns that differ most between clusters, as HTML; "" if there are none."""
    k, columns = summary.sizes.size, summary.columns[:MOST_COLUMNS]
    if k == 1 or not columns:
        return ""
    across = range(min(k, MOST_CLUSTERS["across"]))
    body = []
    for column in columns:
        effect = "–" if math.isnan(column.effect) else f"{column.effect:.2f}"
        cells = [_cell("effect", effect)]
        for c in across:
            shown = as_html(value_in_summary(column, c))
            cells.append(_cell(f"cluster {c}", shown, _shade(float(column.differences[c]))))
        body.append(_row(as_html(name_in_summary(column.name)), cells))
    left = [
        *_counted_if_any(len(summary.columns) - len(columns), "column"),
        *_counted_if_any(k - len(across), "cluster"),
    ]
    more = f"Left out: {' and '.join(left)}; model.summary(X) has all." if left else ""
    head = ["column", "effect", *(f"cluster {c}" for c in across)]
    return "\n".join(
        [
            _paragraph(COLUMNS),
            _report_table(head, body),
            _paragraph(more, "soft"),
        ]
    )


def check_reported_stability(model: Fitted, stability: Stability | None) -> None:
    """Raise a ValueError if it is not the stability of this model, nor None."""
    sizes = sizes_of_clusters(model)[0]
    if stability is not None and not np.array_equal(getattr(stability, "sizes", ()), sizes):
        msg = "stability must be what model.stability(X) returned for this model."
        raise ValueError(msg)


def report_tables_of_stability(stability: Stability) -> str:
    """Return how steady the clusters are, as HTML."""
    tables = [stability._by_kind(), stability._by_cluster(MOST_CLUSTERS["down"])]
    parts = [_paragraph(f"{stability._title()}. {STEADY}")]
    for head, rows in tables:
        body = [
            _row(
                as_html(row[0]),
                [_cell(name, as_html(cell)) for name, cell in zip(head[1:], row[1:], strict=True)],
            )
            for row in rows
        ]
        parts.append(_report_table(head, body))
    left = _counted_if_any(stability.k - MOST_CLUSTERS["down"], "cluster")
    return "\n".join(
        [
            *parts,
            *(_paragraph(f"Left out: {more}, more stable.", "soft") for more in left),
        ]
    )


def _counted_if_any(count: int, noun: str) -> list[str]:
    return [counted(count, noun)] if count > 0 else []


def _paragraph(text: str, style: str = "") -> str:
    return f"<p{f' class={style}' if style else ''}>{as_html(text)}</p>" if text else ""


def _shade(difference: float) -> str:
    """Return the attribute that colours a cell by a difference from -1 to 1."""
    if math.isnan(difference):
        return ""
    color, share = "yes" if difference > 0 else "no", round(MIXED * min(abs(difference), 1))
    return f' style="background:color-mix(in srgb, var(--{color}) {share}%, transparent)"'


def _cell(name: str, content: str, attributes: str = "") -> str:
    return f'<td data-label="{as_html(name)}"{attributes}>{content}</td>'


def _row(name: str, cells: Iterable[str]) -> str:
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _report_table(head: Sequence[str], body: Iterable[str]) -> str:
    """Return a table that becomes paragraphs on a phone."""
    top = "".join(f'<th scope="col">{as_html(name)}</th>' for name in head)
    rows = "\n".join(body)
    return (
        f'<table class="stack profile">\n<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table>"
    )
