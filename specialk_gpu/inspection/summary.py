"""A summary of the clusters: how large they are, and in which columns they differ."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu._printable import printable, printable_html_table
from specialk_gpu.backend.typing import Matrix
from specialk_gpu.inspection.columns import ColumnSummary, columns_of, summary_of_column
from specialk_gpu.inspection.diagnostics import counted, fitted_rows, sizes_of_clusters, typical
from specialk_gpu.inspection.outliers import usual_spacings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Summary", "name_in_summary", "summary", "value_in_summary"]

TYPICAL = 3  # rows of each cluster
TOLD = 2  # columns that are told for each cluster
MOST_PRINTED = {"clusters": 8, "columns": 8, "across": 6}
MOST_IN_HTML = {"clusters": 50, "columns": 50, "across": 20}
LONGEST = 24  # characters of a cell
VALUES = "Values are medians, or the most frequent category with its share."
NOTE = (
    " Effect: from 0 (none) to 1.\nIn brackets: difference from the other clusters, from -1 to 1. "
    "No p: clusters always differ in what made them."
)


@dataclass(frozen=True, eq=False)
class Summary:
    """What `SpecialK.summary` returns. Printed, it is a table; in a notebook, too.

    Attributes
    ----------
    sizes : int array of shape (k,)
        The rows of each cluster, without outliers.
    n_outliers : int
        The number of rows with the label -1.
    shares : float array of shape (k,)
        The sizes, divided by the number of all rows.
    spacings : float array of shape (k,), or None
        The median distance of the rows of a cluster to the last of their `n_neighbors` neighbours:
        how spread out it is. None for a given graph.
    stays : float array of shape (k,)
        The share of walks from a cluster that end in it, the mean of its own `membership_`.
    typical : list of int arrays
        For each cluster, the rows nearest to its mean in the embedding.
    columns : tuple of ColumnSummary
        By falling effect.
    """

    sizes: np.ndarray
    n_outliers: int
    shares: np.ndarray
    spacings: np.ndarray | None
    stays: np.ndarray
    typical: list[np.ndarray]
    columns: tuple[ColumnSummary, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each pair of column and cluster; needs pandas.

        Returns
        -------
        DataFrame
            Columns `column, effect, cluster, rows, median, mean, most_frequent, frequency,
            difference, blanks`. ``frame.pivot(index="column", columns="cluster", values="median")``
            has a row for each column. Without columns it has a row for each cluster.
        """
        import pandas as pd

        clusters = [
            {"cluster": c, "rows": int(size), "share": float(self.shares[c])}
            for c, size in enumerate(self.sizes)
        ]
        if not self.columns:
            return pd.DataFrame(clusters)
        rows = []
        for column in self.columns:
            for c, size in enumerate(self.sizes):
                number = column.is_number
                rows.append(
                    {
                        "column": column.name,
                        "effect": column.effect,
                        "cluster": c,
                        "rows": int(size),
                        "median": float(column.values[c]) if number else math.nan,
                        "mean": math.nan if column.means is None else float(column.means[c]),
                        "most_frequent": None if number else column.values[c] or None,
                        "frequency": math.nan
                        if column.frequencies is None
                        else float(column.frequencies[c]),
                        "difference": float(column.differences[c]),
                        "blanks": int(column.blanks[c]),
                    }
                )
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        """Return the summary as two tables, of at most 25 lines together."""
        parts = [self._title()]
        for head, rows, more in self._tables(**MOST_PRINTED):
            parts += [*_aligned_summary([head, *rows]), *([f"and {more}"] if more else []), ""]
        return "\n".join([*parts, self._note()])

    def _repr_html_(self) -> str:
        """Return the summary as two tables of HTML, for notebooks."""
        parts = [f"<p>{html.escape(self._title())}</p>"]
        for head, rows, more in self._tables(**MOST_IN_HTML):
            parts.append(printable_html_table(head, rows))
            parts += [f"<p>and {html.escape(more)}</p>"] if more else []
        return "\n".join([*parts, f"<p>{html.escape(self._note())}</p>"])

    def _title(self) -> str:
        k, m = self.sizes.size, int(self.sizes.sum()) + self.n_outliers
        out = f", {counted(self.n_outliers, 'outlier')} (label -1)" if self.n_outliers else ""
        return f"{counted(k, 'cluster')} of {counted(m, 'row')}{out}"

    def _note(self) -> str:
        if not self.columns:
            return "Pass X to compare its columns: model.summary(X)."
        return f"{VALUES}{NOTE}" if self.sizes.size > 1 else VALUES

    def _tables(self, clusters: int, columns: int, across: int) -> Iterable[Any]:
        """Return the tables as heads, rows of cells, and a text on what was left out."""
        k = self.sizes.size
        head = ["cluster", "rows", "share", "spacing", "stays", "typical rows", "differs most in"]
        rows = [self._cells_of_cluster(c) for c in range(min(k, clusters))]
        keep = [True, True, True, self.spacings is not None, k > 1, True, k > 1]
        keep[-1] = keep[-1] and bool(self.columns)
        rows = [[cell for cell, kept in zip(row, keep, strict=True) if kept] for row in rows]
        head = [cell for cell, kept in zip(head, keep, strict=True) if kept]
        yield head, rows, counted(k - clusters, "other cluster") if k > clusters else ""
        if not self.columns:
            return
        shown = range(min(k, across))
        effects = k > 1
        head = ["column", *["effect"] * effects, "blanks", *(f"cluster {c}" for c in shown)]
        rows = [
            [
                name_in_summary(column.name),
                *["–" if math.isnan(column.effect) else f"{column.effect:.2f}"] * effects,
                str(int(column.blanks.sum())),
                *(value_in_summary(column, c) for c in shown),
            ]
            for column in self.columns[:columns]
        ]
        left = len(self.columns) - columns
        yield head, rows, counted(left, "other column") if left > 0 else ""

    def _cells_of_cluster(self, c: int) -> list[str]:
        """Return the cells of a cluster in the first table."""
        told = []
        strong = sorted(self.columns, key=lambda column: -_strength_in_summary(column, c))
        for column in strong[:TOLD]:
            if _strength_in_summary(column, c) > 0:
                value = f"{value_in_summary(column, c)} ({column.differences[c]:+.2f})"
                told.append(f"{name_in_summary(column.name)} {value}")
        return [
            str(c),
            f"{int(self.sizes[c]):,}",
            f"{100 * self.shares[c]:.1f} %",
            "" if self.spacings is None else f"{self.spacings[c]:.3g}",
            f"{self.stays[c]:.2f}",
            ", ".join(map(str, self.typical[c].tolist())),
            "; ".join(told),
        ]


def _strength_in_summary(column: ColumnSummary, c: int) -> float:
    difference = abs(float(column.differences[c]))
    return 0.0 if math.isnan(difference) else difference


def name_in_summary(text: str, longest: int = LONGEST) -> str:
    """Return a text fit for a cell: printable, and not too long."""
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def value_in_summary(column: ColumnSummary, c: int, longest: int = LONGEST) -> str:
    """Return the value of a cluster: a median, or the most frequent value with its share."""
    if column.frequencies is None:
        return _number_in_summary(column.values[c])
    if math.isnan(column.frequencies[c]):
        return "–"
    return f"{name_in_summary(column.values[c], longest)} {100 * column.frequencies[c]:.0f} %"


def _number_in_summary(value: float) -> str:
    """Return a number with four digits or more, as people write it."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _aligned_summary(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column and words to the left, others to the right."""
    worded = table[0][-1] in ("differs most in", "typical rows")
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    lines = []
    for cells in table:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        padded[0] = cells[0].ljust(widths[0])
        lines.append("  ".join([*padded[:-1], cells[-1]] if worded else padded))
    return lines


def summary(model: Fitted, X: Matrix | None = None) -> Summary:
    """Return the summary that `SpecialK.summary` describes.

    Raises
    ------
    ValueError
        If X does not have as many rows as the fit.
    """
    labels, k = on_host(model.labels_), model.n_clusters_
    sizes, n_outliers = sizes_of_clusters(model)
    shares = on_host(model.membership_)
    spacings = None if model._spacing is None else on_host(usual_spacings(model))
    names = getattr(model, "feature_names_in_", None)
    columns: list[ColumnSummary] = []
    table = fitted_rows(model) if X is None else X
    if table is not None:
        m, found = columns_of(table, names)
        if m != labels.size:
            msg = f"X must have as many rows as the fit, {labels.size}, got {m}."
            raise ValueError(msg)
        columns = [summary_of_column(name, column, labels, k) for name, column in found]
        columns.sort(key=lambda column: -np.nan_to_num(column.effect))
    return Summary(
        sizes,
        n_outliers,
        sizes / labels.size,
        spacings,
        np.array([shares[labels == c, c].mean() for c in range(k)]),
        typical(model, TYPICAL),
        tuple(columns),
    )
