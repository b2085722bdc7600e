"""Reader for .parquet files, by pyarrow or polars."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from specialk_gpu.tables.frames import table_of_frame
from specialk_gpu.tables.table import AsText, Table, no_text

__all__ = ["read_parquet"]


def read_parquet(path: Path, as_text: AsText = no_text) -> Table:
    """Read the columns of a .parquet file, without an index stored by pandas.

    Parameters
    ----------
    path : Path
        The file.
    as_text : callable
        Tells which columns to read as text; see `read_delimited_text`.

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
        table, metadata = _parquet_by_pyarrow(path)
    elif importlib.util.find_spec("polars"):
        table, metadata = _parquet_by_polars(path)
    else:
        msg = "reading .parquet files needs pyarrow or polars: pip install pyarrow"
        raise ImportError(msg)
    names = list(table.column_names if hasattr(table, "column_names") else table.columns)
    index = _index_columns_of_parquet(metadata)
    order = [name for name in names if name not in index]
    return table_of_frame(order, table.__getitem__, as_text)


def _parquet_by_pyarrow(path: Path) -> tuple[Any, bytes | None]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path).read()
    # ArrowMemoryError too: the sizes that a damaged file promises.
    except (pyarrow.ArrowException, MemoryError, TypeError, LookupError) as error:
        raise ValueError(str(error)) from error
    return table, (table.schema.metadata or {}).get(b"pandas")


def _parquet_by_polars(path: Path) -> tuple[Any, str | None]:
    import polars

    try:
        table = polars.read_parquet(path, hive_partitioning=False, glob=False)
        metadata = polars.read_parquet_metadata(path).get("pandas")
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        raise ValueError(str(error)) from error
    return table, metadata


def _index_columns_of_parquet(metadata: bytes | str | None) -> list[str]:
    """Return the columns that pandas has stored as the index of its frame."""
    try:
        content = json.loads(metadata) if metadata else {}
    except (ValueError, RecursionError) as error:
        msg = f"what pandas has stored about its index is damaged: {error}"
        raise ValueError(msg) from error
    found = content.get("index_columns", []) if isinstance(content, dict) else []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
