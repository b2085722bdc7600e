"""Rows to cluster, and new rows to label: read from a file and prepared."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from scipy import sparse

from specialk_gpu._scales import unequal_scales
from specialk_gpu._warnings import ScaleWarning, warn
from specialk_gpu.io.files import is_table_file, naming_file, read_table_file
from specialk_gpu.tables.choice import Choice
from specialk_gpu.tables.faults import refuse_faults
from specialk_gpu.tables.preparation import Preparation
from specialk_gpu.tables.prepared import Prepared
from specialk_gpu.tables.table import (
    FEWEST_ROWS,
    Table,
    leave_row_numbers_out_of_table,
    listed,
    no_text,
    option,
)

__all__ = ["read_new_rows", "read_rows", "rows_to_show"]

MOST_SHOWN = 100  # columns of a table that a report describes


def read_rows(
    path: Path, choice: Choice, *, key: str | None, header: bool | None, graph: bool
) -> tuple[Preparation | None, Prepared]:
    """Read the rows to fit.

    Parameters
    ----------
    path : Path
        The file.
    choice : Choice
        What the user asks for.
    key, header
        As in `read_matrix`.
    graph : bool
        Whether the file holds similarities.

    Returns
    -------
    preparation : Preparation or None
        What to do with new rows; None for a file without names of which nothing was asked.
    prepared : Prepared
        The rows.

    Raises
    ------
    FileNotFoundError, ImportError, ValueError
        As in `read_matrix`; also if the choice does not fit the columns.
    """
    if graph and choice:
        msg = "--columns, --drop, --id-column, --one-hot, --missing and --scale are for rows of "
        msg += "features, not with --affinity precomputed"
        raise ValueError(msg)
    with naming_file(path):
        table = read_table_file(path, key=key, header=header, as_text=choice.as_text)
        if not isinstance(table, Table):
            if choice:
                msg = "a sparse matrix has no columns to choose or to scale"
                raise ValueError(msg)
            return None, _rows_as_read(table)
        if not is_table_file(path):
            if graph:  # checked as a graph
                return None, _rows_as_read(table.X)
            table.count_blanks()
            if not choice:
                refuse_faults(table, filled=False)
                return None, _rows_as_read(table.X)
        table.keep(choice.used(table.order))
        if is_table_file(path):
            leave_row_numbers_out_of_table(table, choice.named)
        if graph:
            refuse_faults(table, filled=False, advise=False)
            return None, _rows_as_read(table.X)
        preparation, prepared = Preparation.fit(table, choice)
        if is_table_file(path):
            _warn_of_ids_in_rows(table, choice.named)
            if not choice.scale:
                _warn_of_scales_in_rows(table)
        return preparation, prepared


def _rows_as_read(X: np.ndarray | sparse.csr_array) -> Prepared:
    return Prepared(X, None, None, X.shape[0], None)


def read_new_rows(
    path: Path, preparation: Preparation | None, *, key: str | None, header: bool | None
) -> Prepared:
    """Read new rows, and prepare them as the fitted ones were.

    Parameters
    ----------
    path : Path
        The file.
    preparation : Preparation or None
        Of the fit.
    key, header
        As in `read_matrix`.

    Returns
    -------
    Prepared
        The rows.

    Raises
    ------
    FileNotFoundError, ImportError, ValueError
        As in `read_matrix`; also if the columns are not those of the fit.
    """
    with naming_file(path):
        as_text = no_text if preparation is None else preparation.as_text
        table = read_table_file(path, key=key, header=header, as_text=as_text)
        if isinstance(table, Table) and not is_table_file(path):
            table.count_blanks()
        if preparation is None:
            if isinstance(table, Table):
                if is_table_file(path):
                    leave_row_numbers_out_of_table(table, ())
                refuse_faults(table, filled=False, advise=False)
            return _rows_as_read(table.X if isinstance(table, Table) else table)
        if not isinstance(table, Table):
            msg = "expected rows of features as in the fit, got a sparse matrix"
            raise ValueError(msg)  # noqa: TRY004 - about a file
        if is_table_file(path) and table.header:
            leave_row_numbers_out_of_table(table, preparation.columns)
        return preparation.apply(table)


def _warn_of_ids_in_rows(table: Table, wanted: Collection[str]) -> None:
    """Warn of columns that may be ids: whole numbers, no two of them equal.

    Parameters
    ----------
    table : Table
        The table.
    wanted : collection of str
        Columns that the user has named.
    """
    if table.X.shape[0] < FEWEST_ROWS or len(table.names) < 2:
        return
    found = []
    for j, name in enumerate(table.names):
        column = table.X[:, j]
        few = column[:1000]  # enough to see for most columns
        if name in wanted or name in table.faults or len(np.unique(few)) < len(few):
            continue
        with np.errstate(invalid="ignore"):
            whole = bool((column == np.trunc(column)).all())
        if whole and len(np.unique(column)) == len(column):
            found.append(name)
    if found:
        noun = "column" if len(found) == 1 else "columns"
        verb = "is" if len(found) == 1 else "are"
        warn(
            f"{noun} {listed(found)} may be ids, for all values are different whole numbers, but "
            f"{verb} used: leave out by {option('--drop', found)}, or keep by --columns",
            UserWarning,
        )


def _warn_of_scales_in_rows(table: Table) -> None:
    """Warn by name of columns whose spreads differ a hundredfold, by the estimator's rule.

    Parameters
    ----------
    table : Table
        The table, whose columns are not scaled.
    """
    X = table.X.astype(np.float64)
    found = unequal_scales(X[~np.isnan(X).any(axis=1)])
    if found:
        wide, narrow = table.names[found.widest], table.names[found.narrowest]
        warn(
            f"the columns have very different spreads: a standard deviation of {found.largest:,.5g}"
            f" in {wide!r}, and of {found.smallest:,.5g} in {narrow!r}. The clusters are those of "
            f"the widest columns alone: consider --scale standard, or {option('--drop', [wide])}",
            ScaleWarning,
        )


def rows_to_show(
    rows: Prepared,
    preparation: Preparation | None,
    image_shape: tuple[int, int] | None,
    *,
    graph: bool,
) -> np.ndarray | sparse.csr_array | None:
    """Return the rows that a report shows, in their own units; None for a graph or many columns.

    Parameters
    ----------
    rows : Prepared
        The fitted rows.
    preparation : Preparation or None
        What has prepared them.
    image_shape : tuple of two int, or None
        Height and width, if the rows are images; these may have many columns.
    graph : bool
        Whether they are similarities.

    Returns
    -------
    array of shape (m, d), or None
    """
    if image_shape is None and (graph or rows.X.shape[1] > MOST_SHOWN):
        return None
    return rows.X if preparation is None else preparation.in_own_units(rows)
