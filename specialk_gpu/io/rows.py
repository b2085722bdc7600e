"""Rows to cluster, and new rows to label: read from a file and prepared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

from specialk_gpu.io.choice import Choice
from specialk_gpu.io.files import is_table, named, read_matrix, read_table
from specialk_gpu.io.preparation import Preparation, Prepared
from specialk_gpu.io.table import (
    Table,
    leave_out_row_numbers,
    refuse_faults,
    warn_of_ids,
    warn_of_scales,
)

__all__ = ["read_new_rows", "read_rows"]


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
    with named(path):
        table = read_table(path, key=key, header=header, as_text=choice.as_text)
        if not isinstance(table, Table):
            if choice:
                msg = "a sparse matrix has no columns to choose or to scale"
                raise ValueError(msg)
            return None, _as_it_is(table)
        if not is_table(path) and not choice:
            return None, _as_it_is(table.X)
        table.keep(choice.used(table.order))
        if is_table(path):
            leave_out_row_numbers(table, choice.named)
        if graph:
            refuse_faults(table, filled=False)
            return None, _as_it_is(table.X)
        preparation, prepared = Preparation.fit(table, choice)
        if is_table(path):
            warn_of_ids(table, choice.named)
            if not choice.scale:
                warn_of_scales(table)
        return preparation, prepared


def _as_it_is(X: np.ndarray | sparse.csr_array) -> Prepared:
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
    with named(path):
        if preparation is None:
            return _as_it_is(read_matrix(path, key=key, header=header))
        table = read_table(path, key=key, header=header, as_text=preparation.as_text)
        if not isinstance(table, Table):
            msg = "expected rows of features as in the fit, got a sparse matrix"
            raise ValueError(msg)  # noqa: TRY004 - about a file
        if is_table(path) and table.header:
            leave_out_row_numbers(table, preparation.columns)
        return preparation.apply(table)
