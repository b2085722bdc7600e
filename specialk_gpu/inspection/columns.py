"""Columns of a table, and how much they differ between clusters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import rankdata

from specialk_gpu._host import on_host

__all__ = ["ColumnSummary", "columns_of", "summary_of_column"]


class ColumnSummary(NamedTuple):
    """One column, compared between the k clusters; blanks and outliers are left out.

    Attributes
    ----------
    name : str
    is_number : bool
        Whether the column holds numbers; otherwise its values are taken as categories.
    effect : float
        How much the column differs between the clusters, from 0 (not at all) to 1. For numbers the
        share of the variance of their ranks that lies between the clusters (η² of the ranks), for
        categories the square of Cramér's V; both without what chance adds on average. NaN if there
        are no two clusters with values.
    values : array of shape (k,)
        The median of each cluster, or its most frequent value, as text. NaN or "" if there is none.
    means : float array of shape (k,), or None
        Of numbers.
    frequencies : float array of shape (k,), or None
        Of categories: the share of the most frequent value in each cluster.
    differences : float array of shape (k,)
        From -1 to 1. For numbers, Cliff's delta: the chance that a row of the cluster has a larger
        value than one of the other clusters, less the chance that it has a smaller one. For
        categories, the share of the cluster's most frequent value, less its share in the others.
    blanks : int array of shape (k,)
        The number of blanks in each cluster.
    """

    name: str
    is_number: bool
    effect: float
    values: np.ndarray
    means: np.ndarray | None
    frequencies: np.ndarray | None
    differences: np.ndarray
    blanks: np.ndarray


def columns_of(X: Any, names: np.ndarray | None = None) -> tuple[int, Iterator[tuple[str, Any]]]:
    """Return the number of rows of a table, and its columns with their names, one after another.

    Parameters
    ----------
    X : array-like of shape (m, d) or (m,), data frame, series, or sparse matrix
    names : array of str, optional
        Names for an array of so many columns.

    Raises
    ------
    ValueError
        If X has no rows and columns.
    """
    if hasattr(X, "iloc"):  # pandas
        frame = X.to_frame() if X.ndim == 1 else X
        columns = ((str(name), frame.iloc[:, j].to_numpy()) for j, name in enumerate(frame.columns))
        return len(frame), columns
    if hasattr(X, "get_columns"):  # polars
        return len(X), ((column.name, column.to_numpy()) for column in X.get_columns())
    if hasattr(X, "column_names"):  # pyarrow
        columns = ((str(name), X[name].to_numpy()) for name in X.column_names)
        return len(X), columns
    X = on_host(X)
    if sparse.issparse(X):
        by_column: Any = sparse.csc_array(X)  # type: ignore[call-overload] # of any dtype
        m, d = by_column.shape
        found = (by_column[:, [j]].toarray()[:, 0] for j in range(d))
    else:
        X = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
        X = X[:, None] if X.ndim == 1 else X
        if X.ndim != 2:
            msg = f"X must have rows and columns, got shape {X.shape}."
            raise ValueError(msg)
        m, d = X.shape
        found = iter(X.T)
    if names is None or len(names) != d:
        names = np.array([f"column {j}" for j in range(d)], dtype=object)
    return m, ((str(name), column) for name, column in zip(names, found, strict=True))


def summary_of_column(name: str, column: Any, labels: np.ndarray, k: int) -> ColumnSummary:
    """Compare a column (m,) between clusters; rows of a negative label are left out."""
    values, blank = _parsed_column(name, np.asarray(column)[labels >= 0])
    labels = labels[labels >= 0]
    blanks = np.bincount(labels[blank], minlength=k)
    values, labels = values[~blank], labels[~blank]
    counts = np.bincount(labels, minlength=k)
    compare = _column_of_numbers if values.dtype.kind == "f" else _column_of_categories
    found = compare(values, labels, counts)
    is_number = values.dtype.kind == "f"
    # `found` has the fields in between; its type does not say how many they are
    return ColumnSummary(name, is_number, *found, blanks)  # type: ignore[call-arg] # see above


def _parsed_column(name: str, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a column as float64 or as text, and where it is blank."""
    kind = column.dtype.kind
    if kind in "iuf":
        values = column.astype(np.float64)
        return values, np.isnan(values)
    if kind in "cV":
        msg = f"{name} must hold numbers, text or categories, got dtype {column.dtype}."
        raise ValueError(msg)
    if kind in "Mm":
        return column.astype(str), np.isnat(column)
    cells = column.tolist()
    blank = np.array([_is_blank_in_column(cell) for cell in cells], dtype=bool)
    if all(
        isinstance(cell, Real) and not isinstance(cell, (bool, np.bool))
        for cell, empty in zip(cells, blank, strict=True)
        if not empty
    ):
        full = zip(cells, blank, strict=True)
        return np.array([math.nan if empty else float(cell) for cell, empty in full]), blank
    return np.array([str(cell) for cell in cells]), blank


def _is_blank_in_column(cell: object) -> bool:
    if isinstance(cell, str):
        return not cell.strip()
    missing = cell is None or type(cell).__name__ in ("NAType", "NaTType")
    return missing or (isinstance(cell, Real) and math.isnan(cell))


def _column_of_numbers(
    values: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> tuple[Any, ...]:
    """Return effect, medians, means, None and differences of numbers."""
    n, k = values.size, counts.size
    ranks = rankdata(values) - (n + 1) / 2
    sums = np.bincount(labels, ranks, minlength=k)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        total = float((ranks**2).sum())
        share = float(np.nansum(sums**2 / counts)) / total if total else 0.0
        means = np.bincount(labels, values, minlength=k) / counts
        # the mean rank of the cluster less that of the others, of at most n / 2
        differences = 2 * (sums / counts + sums / (n - counts)) / n
    used = int((counts > 0).sum())
    effect = 1 - (1 - share) * (n - 1) / (n - used) if n > used else 0.0
    medians = np.full(k, np.nan)
    by_cluster = np.split(values[np.argsort(labels, kind="stable")], np.cumsum(counts)[:-1])
    for c in np.flatnonzero(counts):
        medians[c] = np.median(by_cluster[c])
    return _effect_of_column(effect, used), medians, means, None, differences


def _column_of_categories(
    values: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> tuple[Any, ...]:
    """Return effect, most frequent values, None, their shares and differences of categories."""
    n, k = values.size, counts.size
    names, code = np.unique(values, return_inverse=True)
    total = np.bincount(code)
    pairs, number = np.unique(labels.astype(np.int64) * names.size + code, return_counts=True)
    cluster, category = np.divmod(pairs, names.size)
    order = np.lexsort((category, -number, cluster))
    first = order[np.searchsorted(cluster, np.flatnonzero(counts))]  # of each cluster with values
    top = np.full(k, "", dtype=object)
    shares, differences = np.full(k, np.nan), np.full(k, np.nan)
    own = cluster[first]
    top[own] = names[category[first]]
    shares[own] = number[first] / counts[own]
    with np.errstate(divide="ignore", invalid="ignore"):
        others = (total[category[first]] - number[first]) / (n - counts[own])
    differences[own] = shares[own] - others
    used = own.size
    effect = 0.0
    if names.size > 1 and used > 1 and n > 2:
        chance = (used - 1) * (names.size - 1) / (n - 1)
        dependence = (number**2 / (counts[cluster] * total[category])).sum() - 1 - chance
        least = min(size - (size - 1) ** 2 / (n - 1) for size in (used, names.size))
        effect = dependence / (least - 1) if least > 1 + 1e-9 else 0.0
    return _effect_of_column(effect, used), top, None, shares, differences


def _effect_of_column(effect: float, used: int) -> float:
    """Return an effect in [0, 1], or NaN if fewer than two clusters have values."""
    return float(min(max(effect, 0.0), 1.0)) if used > 1 else math.nan
