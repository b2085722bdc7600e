"""Reader for .parquet files, by pyarrow or polars."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from specialk_gpu.io.table import FEWEST_ROWS, AsText, Fault, Table, listed, no_text

__all__ = ["read_parquet"]


def read_parquet(path: Path, as_text: AsText = no_text) -> Table:
    """Read the columns of a .parquet file, without an index stored by pandas.

    Parameters
    ----------
    path : Path
        The file.
    as_text : callable
        Tells which columns to read as text; see `read_delimited`.

    Returns
    -------
    Table
        What the file holds. Cells that are no numbers are faults of the table.

    Raises
    ------
    ImportError
        If neither pyarrow nor polars is installed.
    ValueError
        If the file is damaged, or has no columns, or two of one name.
    """
    if importlib.util.find_spec("pyarrow"):
        table, metadata = _by_pyarrow(path)
    elif importlib.util.find_spec("polars"):
        table, metadata = _by_polars(path)
    else:
        msg = "reading .parquet files needs pyarrow or polars: pip install pyarrow"
        raise ImportError(msg)
    names = list(table.column_names if hasattr(table, "column_names") else table.columns)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        msg = f"its columns must have different names, got {listed(twice)} more than once"
        raise ValueError(msg)
    index = _index_columns(metadata)
    order = [name for name in names if name not in index]
    text = {name: _texts(table[name]) for name in as_text(order, header=True)}
    numbers: dict[str, np.ndarray] = {}
    faults: dict[str, Fault] = {}
    for name in order:
        if name not in text:
            numbers[name], fault = _numbers(table[name])
            if fault:
                faults[name] = fault
    if not order:
        msg = "it has no columns"
        raise ValueError(msg)
    n_rows = len(table[order[0]])
    X = np.column_stack(list(numbers.values())) if numbers else np.empty((n_rows, 0))
    return Table(X, list(numbers), order, header=True, text=text, faults=faults)


def _by_pyarrow(path: Path) -> tuple[Any, bytes | None]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path).read()
    # ArrowMemoryError too: the sizes that a damaged file promises.
    except (pyarrow.ArrowException, MemoryError, TypeError, LookupError) as error:
        raise ValueError(str(error)) from error
    return table, (table.schema.metadata or {}).get(b"pandas")


def _by_polars(path: Path) -> tuple[Any, str | None]:
    import polars

    try:
        table = polars.read_parquet(path, hive_partitioning=False, glob=False)
        metadata = polars.read_parquet_metadata(path).get("pandas")
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        raise ValueError(str(error)) from error
    return table, metadata


def _index_columns(metadata: bytes | str | None) -> list[str]:
    """Return the columns that pandas has stored as the index of its frame."""
    try:
        content = json.loads(metadata) if metadata else {}
    except (ValueError, RecursionError) as error:
        msg = f"what pandas has stored about its index is damaged: {error}"
        raise ValueError(msg) from error
    found = content.get("index_columns", []) if isinstance(content, dict) else []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _texts(column: Any) -> list[str]:
    values = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    return ["" if value is None or value != value else str(value) for value in values]


def _numbers(column: Any) -> tuple[np.ndarray, Fault | None]:
    """Return a column as numbers, and what is wrong in it."""
    blanks = int(column.null_count() if callable(column.null_count) else column.null_count)
    kind = str(column.type if hasattr(column, "type") else column.dtype)
    values = column.to_numpy() if _is_numeric(kind) else None
    if values is not None and values.dtype.kind == "O":
        values = np.array([np.nan if value is None else value for value in values], dtype=float)
    if values is not None and values.dtype.kind in "buif":
        if values.dtype.kind == "f":
            blanks = int(np.isnan(values).sum())
        return values, Fault(blanks) if blanks else None
    texts = _texts(column)
    filled = [text for text in texts if text]
    fault = Fault(blanks=len(texts) - len(filled), wrong=len(filled), values=set(filled[:10_000]))
    fault.example = filled[0] if filled else kind
    fault.wrong = max(1, fault.wrong)
    fault.distinct = len(filled) >= FEWEST_ROWS and len(fault.values) == min(len(filled), 10_000)
    return np.full(len(texts), np.nan), fault


def _is_numeric(kind: str) -> bool:
    return kind.lower().startswith(("int", "uint", "float", "double", "half", "bool"))
