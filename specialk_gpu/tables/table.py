"""Tables: named columns of numbers and text, with what is wrong in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from specialk_gpu._warnings import warn

__all__ = [
    "FEWEST_ROWS",
    "MOST_CATEGORIES",
    "AsText",
    "Fault",
    "Table",
    "leave_row_numbers_out_of_table",
    "listed",
    "option",
]
__all__ += ["no_text", "unique_table_names"]

MOST_CATEGORIES = 20  # a text column with more values is rather a name than a category
FEWEST_ROWS = 10  # from which row numbers are recognised without a name, and ids without order
_ROW_NUMBER_NAMES = frozenset(
    [
        "index",
        "idx",
        "id",
        "ids",
        "row",
        "rows",
        "rowid",
        "rownum",
        "rownumber",
        "rowname",
        "rownames",
        "rowindex",
        "nr",
        "no",
        "num",
        "number",
        "unnamed0",
        "level0",
        "obs",
        "zeile",
        "lfdnr",
    ]
)


class AsText(Protocol):
    """Which columns of a table to read as text."""

    def __call__(self, order: list[str], *, header: bool) -> Collection[str]:
        """Return these columns, given all columns and whether their names stand in the file."""
        ...


def no_text(order: list[str], *, header: bool) -> tuple[str, ...]:  # noqa: ARG001 - an `AsText`
    """Choose no column of a table to be read as text."""
    return ()


@dataclass
class Fault:
    """What keeps a column from being numbers.

    Attributes
    ----------
    blanks : int
        Cells without a value.
    wrong : int
        Cells with something else than a number.
    where, example : str
        Where the first of these is, and its text.
    values : set of str
        The different texts, up to `MOST_CATEGORIES` + 1.
    distinct : bool
        Whether no text occurs twice, as far as that is known.
    """

    blanks: int = 0
    wrong: int = 0
    where: str = ""
    example: str = ""
    values: set[str] = field(default_factory=set)
    distinct: bool = False


@dataclass
class Table:
    """The content of a file.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_columns)
        The columns of numbers. NaN stands for a blank, and for what is no number.
    names : list of str
        The names of these columns; numbers from 1 if the file has no names.
    order : list of str
        The names of all columns in the file.
    header : bool
        Whether the names stand in the file.
    unnamed : set of str
        The columns without a name of their own.
    text : dict of str to list of str
        The columns that were asked for as text.
    faults : dict of str to Fault
        The columns of `X` that are not numbers throughout.
    left_out : list of str
        Columns of row numbers, which were taken out of `X`.
    """

    X: np.ndarray
    names: list[str]
    order: list[str]
    header: bool = False
    unnamed: set[str] = field(default_factory=set)
    text: dict[str, list[str]] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def count_blanks(self) -> None:
        """Count NaN in each column of numbers as blanks, which are faults of the column."""
        if self.X.dtype.kind == "f":
            blanks = np.isnan(self.X).sum(axis=0)
            self.faults = {self.names[j]: Fault(int(blanks[j])) for j in np.flatnonzero(blanks)}

    def keep(self, names: Collection[str]) -> None:
        """Take all columns of numbers out of the table but these.

        Parameters
        ----------
        names : collection of str
            The columns to keep; the order of the file stays.
        """
        if set(self.names) <= set(names):
            return
        chosen = [i for i, name in enumerate(self.names) if name in names]
        self.X = self.X[:, chosen]
        self.names = [self.names[i] for i in chosen]
        self.faults = {name: fault for name, fault in self.faults.items() if name in names}


def unique_table_names(cells: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return a different name for each column, and which of them had none.

    Parameters
    ----------
    cells : list of str
        The names in the file. A second "a" becomes "a.1"; a blank third one, "column 3".

    Returns
    -------
    names : list of str
        The names.
    unnamed : set of str
        Those that were blank.
    """
    names: list[str] = []
    taken: set[str] = set()
    unnamed: set[str] = set()
    for i, cell in enumerate(cells):
        stem = name = cell.strip() or f"column {i + 1}"
        count = 0
        while name in taken:
            count += 1
            name = f"{stem}.{count}"
        if not cell.strip():
            unnamed.add(name)
        names.append(name)
        taken.add(name)
    return names, unnamed


def leave_row_numbers_out_of_table(table: Table, wanted: Collection[str]) -> None:
    """Take row numbers and row names out of a table, and warn of that.

    A column is taken for row numbers if it counts 0, 1, 2, … or 1, 2, 3, …, and has no name or one
    such as "index", "id" or "row". Without a header that holds for the first column only. If the
    first column is the only one without a name, any whole numbers and any texts in it are row
    names: the index of a shuffled frame of pandas, or names of rows in R. The only column of a
    table stays.

    Parameters
    ----------
    table : Table
        The table; it is changed.
    wanted : collection of str
        Columns that the user has named, and that stay.
    """
    found = {}
    for j, name in enumerate(table.names):
        plain = re.sub(r"[^a-z0-9]", "", name.lower())
        if table.header:
            candidate = name in table.unnamed or plain in _ROW_NUMBER_NAMES
        else:
            candidate = name == "1" and table.X.shape[0] >= FEWEST_ROWS
        if name in wanted:
            continue
        if candidate and name not in table.faults and _counts_rows_of_table(table.X[:, j]):
            found[name] = "counts the rows"
        elif table.unnamed == {name} == {table.order[0]} and _are_row_names_of_table(table, j):
            found[name] = "has no name, so that it holds row names,"
    if not found or len(found) + len(table.text) >= len(table.order):
        return
    for name, reason in found.items():
        nameless = name in table.unnamed or not table.header
        shown = f"column {table.order.index(name) + 1}" if nameless else f"column {name!r}"
        warn(
            f"{shown} {reason} and is left out (to keep it, name all columns by --columns)",
            UserWarning,
        )
    table.keep([name for name in table.names if name not in found])
    table.left_out += found


def _are_row_names_of_table(table: Table, j: int) -> bool:
    """Return whether column j holds nothing but whole numbers, or nothing but texts."""
    fault, column = table.faults.get(table.names[j]), table.X[:, j]
    if fault:
        return fault.wrong == len(column)
    return bool((column == np.trunc(column)).all())


def _counts_rows_of_table(column: np.ndarray) -> bool:
    n = len(column)
    return n > 1 and column[0] in (0, 1) and np.array_equal(column, np.arange(n) + column[0])


def listed(names: Iterable[str]) -> str:
    """Return names in quotes, at most five of them.

    Parameters
    ----------
    names : iterable of str
        The names.

    Returns
    -------
    str
        Such as ``'a', 'b'``.
    """
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def option(flag: str, names: Iterable[str]) -> str:
    """Return an option of the command line with a list of names, quoted for the shell.

    Parameters
    ----------
    flag : str
        The option.
    names : iterable of str
        Its value.

    Returns
    -------
    str
        Such as ``--drop a,b``.
    """
    quoted = [
        '"{}"'.format(name.replace('"', '""')) if set(name) & set(',"\r\n') else name
        for name in names
    ]
    return f"{flag} {shlex.quote(','.join(quoted))}"
