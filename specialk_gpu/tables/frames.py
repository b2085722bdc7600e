"""Tables from rows in memory: data frames by the names of their columns, arrays by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specialk_gpu.tables.table import FEWEST_ROWS, AsText, Fault, Table, listed

__all__ = ["table_of_frame", "table_of_rows"]

MOST_VALUES = 10_000  # different texts of a column that are remembered


def table_of_frame(names: Sequence[str], column: Callable[[str], Any], as_text: AsText) -> Table:
    """Return a table of columns of pandas, polars or pyarrow.

    Parameters
    ----------
    names : sequence of str
        The names of the columns.
    column : callable
        Returns the column of a name: a Series, or an array of pyarrow.
    as_text : callable
        Tells which columns to read as text; see `AsText`.

    Returns
    -------
    Table
        Cells that are no numbers are faults of the table.

    Raises
    ------
    ValueError
        If there are no columns, or two of one name.
    """
    order = list(names)
    twice = [name for name, count in Counter(order).items() if count > 1]
    if twice:
        msg = f"its columns must have different names, got {listed(twice)} more than once"
        raise ValueError(msg)
    if not order:
        msg = "it has no columns"
        raise ValueError(msg)
    text = {name: _texts_in_frame(column(name)) for name in as_text(order, header=True)}
    numbers: dict[str, np.ndarray] = {}
    faults: dict[str, Fault] = {}
    for name in order:
        if name not in text:
            numbers[name], fault = _numbers_in_frame(column(name))
            if fault:
                faults[name] = fault
    n_rows = len(column(order[0]))
    X = np.column_stack(list(numbers.values())) if numbers else np.empty((n_rows, 0))
    return Table(X, list(numbers), order, header=True, text=text, faults=faults)


def table_of_rows(X: Any, as_text: AsText) -> Table:
    """Return rows in memory as a table.

    Parameters
    ----------
    X : DataFrame, table of pyarrow, or array-like of shape (q, d)
        The rows. Columns whose names are not text count as unnamed.
    as_text : callable
        Tells which columns to read as text; see `AsText`.

    Returns
    -------
    Table
        Its header says whether the columns have names.

    Raises
    ------
    ValueError
        If X is not two-dimensional, or needs names.
    """
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is not None and len(names) and all(isinstance(name, str) for name in names):
        if hasattr(X, "infer_objects"):  # of pandas
            X = X.infer_objects()
        return table_of_frame(names, X.__getitem__, as_text)
    kind, X = type(X).__name__, np.asarray(X)
    if X.ndim != 2:
        msg = f"expected a data frame or an array of shape (q, d), got shape {X.shape}"
        raise ValueError(msg)
    numbered = [str(i + 1) for i in range(X.shape[1])]
    if as_text(numbered, header=False):
        msg = f"columns of text need a data frame with names of columns, got a {kind}"
        raise ValueError(msg)
    if X.dtype.kind not in "buif":
        msg = f"expected numbers, got dtype {X.dtype}"
        raise ValueError(msg)
    return Table(X, numbered, numbered)


def _texts_in_frame(column: Any) -> list[str]:
    values = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    blanks = column.isna() if hasattr(column, "isna") else [x is None or x != x for x in values]
    return ["" if b else str(x).strip() for x, b in zip(values, blanks, strict=True)]


def _numbers_in_frame(column: Any) -> tuple[np.ndarray, Fault | None]:
    """Return a column as numbers, and what is wrong in it."""
    kind = str(column.type if hasattr(column, "type") else column.dtype)
    values = None
    if kind.lower().startswith(("int", "uint", "float", "double", "half", "bool")):
        if hasattr(column, "isna") and column.isna().any():  # of pandas
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = column.to_numpy()
    if values is not None and values.dtype.kind == "O":
        values = np.array([np.nan if value is None else value for value in values], dtype=float)
    if values is not None and values.dtype.kind in "buif":
        blanks = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
        return values, Fault(blanks) if blanks else None
    texts = _texts_in_frame(column)
    filled = [text for text in texts if text]
    fault = Fault(
        blanks=len(texts) - len(filled), wrong=len(filled), values=set(filled[:MOST_VALUES])
    )
    fault.example = filled[0] if filled else kind
    fault.wrong = max(1, fault.wrong)
    fault.distinct = len(filled) >= FEWEST_ROWS and len(fault.values) == min(
        len(filled), MOST_VALUES
    )
    return np.full(len(texts), np.nan), fault
