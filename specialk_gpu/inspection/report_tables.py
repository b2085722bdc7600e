"""Tables of the report: how the columns differ between clusters, and how steady clusters are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from specialk_gpu._fitted import Fitted
from specialk_gpu.inspection.charts import as_html
from specialk_gpu.inspection.columns import ColumnSummary
from specialk_gpu.inspection.diagnostics import counted, sizes_of_clusters
from specialk_gpu.inspection.stability import DOUBTFUL, STABLE, Stability
from specialk_gpu.inspection.summary import Summary, name_in_summary, value_in_summary

__all__ = ["check_reported_stability", "report_table_of_columns", "report_tables_of_stability"]

MOST_COLUMNS = 20
MOST_CLUSTERS, ACROSS = 40, 8  # in all, and side by side in one table
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
FITS = "All other fits, by what was changed: the k that they found, and their ARI"
JACCARD = "Each cluster, by what was changed: its mean Jaccard index"


def report_table_of_columns(summary: Summary) -> str:
    """Return the columns that differ most between clusters, as HTML; "" if there are none."""
    k, columns = summary.sizes.size, summary.columns[:MOST_COLUMNS]
    if k == 1 or not columns:
        return ""
    shown = min(k, MOST_CLUSTERS)
    tables = [
        _report_table_of_some(columns, range(first, min(first + ACROSS, shown)), of=k)
        for first in range(0, shown, ACROSS)
    ]
    n_left = len(summary.columns) - len(columns)
    least = "column that differs least" if n_left == 1 else f"{n_left} columns that differ least"
    left = [f"the {least}"] if n_left else []
    left += [f"the clusters from {shown} on"] if k > shown else []
    more = f"Left out: {' and '.join(left)}." if left else ""
    return "\n".join([_paragraph(COLUMNS), *tables, _paragraph(more, "soft")])


def _report_table_of_some(columns: Sequence[ColumnSummary], clusters: range, *, of: int) -> str:
    """Return the values of some clusters as HTML; the caption says which, if they are not all."""
    body = []
    for column in columns:
        effect = "–" if math.isnan(column.effect) else f"{column.effect:.2f}"
        cells = [_cell("effect", effect)]
        for c in clusters:
            shown = as_html(value_in_summary(column, c))
            cells.append(_cell(f"cluster {c}", shown, _shade(float(column.differences[c]))))
        body.append(_row(as_html(name_in_summary(column.name)), cells))
    some = f"s {clusters[0]} to {clusters[-1]}" if clusters[1:] else f" {clusters[0]}"
    caption = f"Cluster{some} of {counted(of, 'cluster')}" if len(clusters) < of else ""
    return _report_table(["column", "effect", *(f"cluster {c}" for c in clusters)], body, caption)


def check_reported_stability(model: Fitted, stability: Stability | None) -> None:
    """Raise a ValueError if it is not the stability of this model, nor None."""
    sizes = sizes_of_clusters(model)[0]
    if stability is not None and not np.array_equal(getattr(stability, "sizes", ()), sizes):
        msg = "stability must be what model.stability(X) returned for this model."
        raise ValueError(msg)


def report_tables_of_stability(stability: Stability) -> str:
    """Return how steady the clusters are, as HTML."""
    (head, rows), (kinds, own) = stability._by_kind(), stability._by_cluster(MOST_CLUSTERS)
    tables = [(FITS, head, rows)]
    named = [[f"cluster {row[0]}", *row[1:]] for row in own]
    tables.append((JACCARD, ["cluster", *kinds[1:]], named))
    parts = [_paragraph(f"{stability._title()}. {STEADY}")]
    for caption, head, rows in tables:
        body = [
            _row(
                as_html(row[0]),
                [_cell(name, as_html(cell)) for name, cell in zip(head[1:], row[1:], strict=True)],
            )
            for row in rows
        ]
        parts.append(_report_table(head, body, caption))
    n_left = stability.k - MOST_CLUSTERS
    more = f"Left out: {counted(n_left, 'cluster')}, more stable." if n_left > 0 else ""
    return "\n".join([*parts, _paragraph(more, "soft")])


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


def _report_table(head: Sequence[str], body: Iterable[str], caption: str) -> str:
    """Return a table that becomes paragraphs on a phone."""
    top = "".join(f'<th scope="col">{as_html(name)}</th>' for name in head)
    rows = "\n".join(body)
    titled = f'<caption class="soft">{as_html(caption)}</caption>\n' if caption else ""
    return (
        f'<table class="stack profile">\n{titled}<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table>"
    )
