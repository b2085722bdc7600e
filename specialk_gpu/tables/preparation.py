"""What is done with the columns of a table before they are clustered, and again with new rows.

A `Preparation` is fitted to one table and kept with the model, so that new rows get the same
columns, the fitted medians, the fitted scale and the fitted categories.
"""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np
from scipy import sparse

from specialk_gpu._warnings import warn
from specialk_gpu.tables.choice import Choice
from specialk_gpu.tables.faults import refuse_faults, refuse_to_drop_all, told_blank_faults
from specialk_gpu.tables.frames import table_of_rows
from specialk_gpu.tables.prepared import Prepared
from specialk_gpu.tables.scaling import median_for_scaling, scaling_of
from specialk_gpu.tables.table import Table, leave_row_numbers_out_of_table, listed

__all__ = ["Preparation"]


@dataclass
class Preparation:
    """What was done with the fitted table.

    Attributes
    ----------
    order : list of str
        All columns of the fitted file.
    header : bool
        Whether the file had names.
    columns : list of str
        The columns that were used.
    left_out : list of str
        Columns of the file that were not used.
    id_column : str or None
        The column of ids.
    one_hot : dict of str to list of str
        The values of each column that was replaced by columns of 0 and 1.
    missing : str or None
        What was done with blanks: "drop", "median" or None.
    medians : dict of str to float
        What fills blanks.
    scale : str or None
        "standard", "robust" or None.
    center, width : dict of str to float
        What is subtracted from each column, and by what it is divided.
    """

    order: list[str] = field(default_factory=list)
    header: bool = False
    columns: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    id_column: str | None = None
    one_hot: dict[str, list[str]] = field(default_factory=dict)
    missing: str | None = None
    medians: dict[str, float] = field(default_factory=dict)
    scale: str | None = None
    center: dict[str, float] = field(default_factory=dict)
    width: dict[str, float] = field(default_factory=dict)

    @classmethod
    def fit(cls, table: Table, choice: Choice) -> tuple[Self, Prepared]:
        """Prepare a table, and learn what to do with new rows.

        Parameters
        ----------
        table : Table
            What was read, without its row numbers.
        choice : Choice
            What the user asks for; it was checked.

        Returns
        -------
        preparation : Preparation
        prepared : Prepared

        Raises
        ------
        ValueError
            If no column is left, or columns are not numbers.
        """
        columns = [name for name in choice.used(table.order) if name not in table.left_out]
        table.keep(columns)
        if not columns:
            msg = "no column is left to use"
            raise ValueError(msg)
        refuse_faults(
            table,
            filled=choice.missing is not None,
            categories=choice.one_hot,
            scaled=choice.scale is not None,
        )
        own = cls(
            order=table.order,
            header=table.header,
            columns=columns,
            left_out=[name for name in table.order if name not in columns],
            id_column=choice.id_column,
            missing=choice.missing,
            scale=choice.scale,
        )
        kept = own._rows_to_keep(table, new=False)
        X = table.X if kept is None else table.X[kept]
        for name in choice.one_hot:
            own.one_hot[name] = sorted({x for x in _prepared_cells(table.text[name], kept) if x})
        if choice.missing == "median":
            own.medians = {
                name: median_for_scaling(X[:, j], name) for j, name in enumerate(table.names)
            }
        if choice.scale:
            for j, name in enumerate(table.names):
                own.center[name], own.width[name] = scaling_of(X[:, j], name, choice.scale)
        return own, own._apply(table, kept)

    def _rows_to_keep(self, table: Table, *, new: bool) -> np.ndarray | None:
        """Return the rows without blanks if those with blanks are to be dropped.

        Of new rows none may be left; a fit needs some.
        """
        texts = [name for name in table.text if name in self.columns]
        blanks = {name: np.array([not x for x in table.text[name]], bool) for name in texts}
        counts = {name: int(blank.sum()) for name, blank in blanks.items() if blank.any()}
        if self.missing is None and counts:
            msg = f"there are blanks, {told_blank_faults(counts)}"
            raise ValueError(msg if new else f"{msg}; add --missing median (or --missing drop)")
        if self.missing != "drop":
            return None
        if table.X.dtype.kind == "f":
            blanks |= dict(zip(table.names, np.isnan(table.X).T, strict=True))
        blank = np.any(list(blanks.values()), axis=0) if blanks else np.zeros(0, bool)
        if not blank.any():
            return None
        if blank.all() and not new:
            refuse_to_drop_all([x for x in self.columns if x in blanks and blanks[x].all()])
        count = int(blank.sum())
        noun = "row with blanks is" if count == 1 else "rows with blanks are"
        warn(f"{count} {noun} left out, and labelled -1 in the labels", UserWarning)
        return np.flatnonzero(~blank)

    def apply(self, table: Table) -> Prepared:
        """Prepare new rows as the fitted ones were.

        Parameters
        ----------
        table : Table
            New rows, with the columns of the fit.

        Returns
        -------
        Prepared
            The rows.

        Raises
        ------
        ValueError
            If the columns are not those of the fit, or are not numbers.
        """
        self._match(table)
        if not table.X.shape[0]:
            msg = "it has no rows"
            raise ValueError(msg)
        refuse_faults(table, filled=self.missing is not None, advise=False)
        return self._apply(table, self._rows_to_keep(table, new=True))

    def of_rows(self, X: Any) -> Prepared:
        """Prepare rows in memory as the fitted table was.

        Parameters
        ----------
        X : DataFrame, table of pyarrow, or array-like of shape (q, d)
            Rows as they are in a file: columns by name, or in the order of the fit.

        Returns
        -------
        Prepared
            The rows.

        Raises
        ------
        ValueError
            If the columns are not those of the fit, or are not numbers.
        """
        try:
            table = table_of_rows(X, self.as_text)
            if table.header:
                leave_row_numbers_out_of_table(table, self.columns)
            return self.apply(table)
        except ValueError as error:
            msg = (
                f"X cannot be prepared as the fitted table was: {error}. Pass rows as they are in "
                f"the file, with the columns {listed(self.columns)}."
            )
            raise ValueError(msg) from error

    def _match(self, table: Table) -> None:
        """Give the columns of new rows the names of the fit, and leave out the others."""
        if not (self.header and table.header):
            own = self.order if len(table.order) == len(self.order) else self.columns
            if len(table.order) != len(own):
                msg = f"expected {len(self.columns)} columns, as in the fit, got {len(table.order)}"
                raise ValueError(msg)
            new = dict(zip(table.order, own, strict=True))
            table.names = [new[name] for name in table.names]
            table.faults = {new[name]: fault for name, fault in table.faults.items()}
            table.text = {new[name]: cells for name, cells in table.text.items()}
            table.order = list(own)
        absent = [name for name in self.columns if name not in table.order]
        if absent:
            msg = f"the columns of the fit are {listed(self.columns)}, but {listed(absent)} "
            msg += f"{'is' if len(absent) == 1 else 'are'} not among {listed(table.order)}"
            raise ValueError(msg)
        table.keep(self.columns)
        numbers = [name for name in self.columns if name in table.names]
        if numbers != table.names:
            table.X = table.X[:, [table.names.index(name) for name in numbers]]
            table.names = numbers

    def in_own_units(self, rows: Prepared) -> np.ndarray | sparse.csr_array:
        """Return rows that were prepared here without their scaling, to be shown to people.

        Parameters
        ----------
        rows : Prepared
            The rows.

        Returns
        -------
        array of shape (q, n_prepared)
        """
        if not self.scale or sparse.issparse(rows.X):
            return rows.X
        X, j = rows.X.copy(), 0
        for name in self.columns:
            if name in self.one_hot:
                j += len(self.one_hot[name])
                continue
            X[:, j] = X[:, j] * self.width[name] + self.center[name]
            j += 1
        return X

    def as_text(self, order: list[str], *, header: bool) -> list[str]:
        """Return which columns of new rows are to be read as text.

        Parameters
        ----------
        order : list of str
            The columns of the new file.
        header : bool
            Whether these are names.

        Returns
        -------
        list of str
            Names as in `order`.
        """
        texts = (*self.one_hot, *((self.id_column,) if self.id_column is not None else ()))
        if self.header and header:
            return [name for name in order if name in texts]
        own = self.order if len(order) == len(self.order) else self.columns
        return [given for given, name in zip(order, own, strict=False) if name in texts]

    def _apply(self, table: Table, kept: np.ndarray | None) -> Prepared:
        X = table.X if kept is None else table.X[kept]
        ids = table.text.get(self.id_column) if self.id_column is not None else None
        if self.medians or self.scale:
            X = X.astype(np.float64)  # a copy
            for j, name in enumerate(table.names):
                if self.medians:
                    X[np.isnan(X[:, j]), j] = self.medians[name]
                if self.scale:
                    X[:, j] = (X[:, j] - self.center[name]) / self.width[name]
        names: list[str] = list(table.names)
        if self.one_hot:
            names, X = self._with_categories(table, X, kept)
        return Prepared(X, names if self.header else None, kept, table.X.shape[0], ids)

    def _with_categories(
        self, table: Table, X: np.ndarray, kept: np.ndarray | None
    ) -> tuple[list[str], np.ndarray]:
        """Put columns of 0 and 1 where the columns of text were."""
        names: list[str] = []
        blocks: list[np.ndarray] = []
        for name in self.columns:
            if name not in self.one_hot:
                names.append(name)
                blocks.append(np.asarray(X[:, [table.names.index(name)]], dtype=np.float64))
                continue
            categories = self.one_hot[name]
            alike = {_prepared_text(category): category for category in categories}
            values = [
                value if value in categories else alike.get(_prepared_text(value), value)
                for value in _prepared_cells(table.text[name], kept)
            ]
            unknown = sorted({value for value in values if value and value not in categories})
            if unknown:
                warn(
                    f"column {name!r} holds {listed(unknown)}, which no fitted row has: no "
                    "category is set",
                    UserWarning,
                )
            names += [f"{name}={category}" for category in categories]
            block = np.array([[v == c for c in categories] for v in values], np.float64)
            blocks.append(block.reshape(len(values), len(categories)))
        return names, np.hstack(blocks)

    def to_json(self) -> dict[str, Any]:
        """Return the content as values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """Rebuild a preparation from `to_json`.

        Raises
        ------
        ValueError
            If the content is not that of a preparation.
        """
        expected = {one.name for one in fields(cls)}
        if not isinstance(content, dict) or set(content) != expected or not _is_prepared(content):
            msg = "what the model holds about its columns is damaged, or of another version"
            raise ValueError(msg)
        return cls(**content)

    @property
    def changes(self) -> bool:
        """Whether rows are changed at all."""
        return bool(self.left_out or self.one_hot or self.missing or self.scale)

    @property
    def n_prepared(self) -> int:
        """The number of columns after the preparation."""
        return len(self.columns) - len(self.one_hot) + sum(map(len, self.one_hot.values()))


def _is_prepared(content: dict[str, Any]) -> bool:
    """Return whether all values have the types of a preparation, and agree."""
    order, columns, one_hot = content["order"], content["columns"], content["one_hot"]
    if not (_are_names(order) and _are_names(columns) and isinstance(one_hot, dict)):
        return False
    numbers = set(columns) - set(one_hot)
    scaled = numbers if content["scale"] else set()
    return (
        [name for name in order if name in columns] == columns
        and [name for name in order if name not in columns] == content["left_out"]
        and set(one_hot) <= set(columns)
        and all(map(_are_names, one_hot.values()))
        and isinstance(content["header"], bool)
        and (content["id_column"] is None or content["id_column"] in content["left_out"])
        and content["missing"] in (None, "drop", "median")
        and content["scale"] in (None, "standard", "robust")
        and _are_numbers(content["medians"], numbers if content["missing"] == "median" else set())
        and _are_numbers(content["center"], scaled)
        and _are_numbers(content["width"], scaled)
        and all(width > 0 for width in content["width"].values())
    )


def _are_names(value: Any) -> bool:
    """Return whether a value is a list of different texts."""
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return is_list and len(set(value)) == len(value)


def _are_numbers(value: Any, names: set[str]) -> bool:
    """Return whether a value has a finite number for each of these columns."""
    return (
        isinstance(value, dict)
        and set(value) == names
        and all(isinstance(number, (int, float)) for number in value.values())
        and all(abs(number) <= sys.float_info.max for number in value.values())
    )


def _prepared_text(value: str) -> str:
    """Return a text without the ".0" that pandas adds to 1 in a column with blanks."""
    found = re.fullmatch(r"(-?\d+)\.0+", value)
    return found[1] if found else value


def _prepared_cells(cells: list[str], kept: np.ndarray | None) -> list[str]:
    return cells if kept is None else [cells[i] for i in kept.tolist()]
