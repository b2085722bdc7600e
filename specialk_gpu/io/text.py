"""Reader for tables in text: .csv, .tsv and .txt, plain or compressed.

`numpy.loadtxt` reads what is numbers throughout. Other tables go through the `csv` module cell by
cell, because neither NumPy nor pandas says which cells of which columns are no numbers; pandas
also fills up rows that are too short.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import re
import warnings
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from specialk_gpu._warnings import warn
from specialk_gpu.io.dialect import NAMES, Dialect, dialect_of, is_blank, is_number
from specialk_gpu.tables.table import FEWEST_ROWS, AsText, Fault, Table, no_text, unique_table_names

__all__ = ["numbers_of_text", "read_delimited_text", "text_lines"]

LONGEST_LINE = 1 << 26  # characters
MOST_OF_GZIP = 100 << 20, 50  # bytes, and times the size of the file
SAMPLE_LINES = 200
SAMPLE_SIZE = 1 << 20
BLOCK_CELLS = 1 << 17  # cells that are converted at once
MOST_VALUES = 10_000  # different texts of a column that are remembered
_THOUSANDS = r"[1-9]\d{0,2}(?:,\d{3})+"  # 1,149: with a decimal comma, or separated thousands
_SEPARATED = re.compile(rf"\s*[+-]?{_THOUSANDS}\s*")
_TWO_OR_ONE = re.compile(r"[+-]?\d+,\d+")
_SOMEWHERE = re.compile(rf"(?<![\d,]){_THOUSANDS}(?![\d,])")


class UnreadableTextError(ValueError):
    """A text that is not UTF-8, or far larger than it may be."""


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file in UTF-8.

    Parameters
    ----------
    path : Path
        The file. It is decompressed if its name ends in ``.gz``.

    Yields
    ------
    str
        A line with its end.

    Raises
    ------
    ValueError
        If the text is not UTF-8, or holds zero bytes, as UTF-16 does, a line is too long, or far
        more text comes out of a ``.gz`` file than a table of that size holds.
    """
    compressed = path.suffix.lower() == ".gz"
    most = MOST_OF_GZIP[0] + MOST_OF_GZIP[1] * path.stat().st_size
    opened: Any = gzip.open if compressed else open
    total = 0
    stream = cast("TextIO", opened(path, "rt", encoding="utf-8-sig", newline=""))
    with stream:
        for number in itertools.count(1):
            try:
                line = stream.readline(LONGEST_LINE + 1)
            except UnicodeDecodeError as error:
                msg = f"it is not text in UTF-8, from about line {number} on ({error.reason}); "
                msg += "save it as UTF-8"
                raise UnreadableTextError(msg) from error
            if not line:
                return
            total += len(line)
            if "\0" in line:
                msg = f"line {number} holds zero bytes, so it is not text in UTF-8, but perhaps in "
                msg += "UTF-16; save it as UTF-8"
                raise UnreadableTextError(msg)
            if len(line) > LONGEST_LINE:
                msg = f"line {number} is longer than {LONGEST_LINE} characters"
                raise UnreadableTextError(msg)
            if compressed and total > most:
                msg = f"it holds more than {most} characters, far more than tables of its size; "
                msg += "decompress it first if that is right"
                raise UnreadableTextError(msg)
            yield line


def numbers_of_text(lines: Iterable[str], **options: Any) -> np.ndarray:
    """Return lines of numbers as a matrix; this takes 10 s for 60,000 x 784 numbers.

    Parameters
    ----------
    lines : iterable of str
        The lines.
    **options : object
        Of `numpy.loadtxt`.

    Returns
    -------
    ndarray of shape (n_rows, n_columns), float64
        The numbers.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no data", category=UserWarning)
        return np.loadtxt(lines, ndmin=2, **options)


def read_delimited_text(
    path: Path,
    ending: str,
    header: bool | None = None,  # noqa: FBT001 - as it is called
    as_text: AsText = no_text,
) -> Table:
    """Read a table of text; see `specialk_gpu.io.files.read_matrix`.

    Parameters
    ----------
    path : Path
        The file. It is decompressed if its name ends in ``.gz``.
    ending : {"csv", "tsv", "txt"}
        The ending of its name, without ``.gz``.
    header : bool, optional
        Whether the first row holds names. By default this is detected.
    as_text : callable
        Tells from the names of all columns, and whether they stand in the file, which columns to
        read as text.

    Returns
    -------
    Table
        What the file holds. Cells that are no numbers are faults of the table.

    Raises
    ------
    ValueError
        If the table has no rows, or a row is too long or too short.
    """
    sample = _sample_of_text(text_lines(path))
    dialect = dialect_of(sample, ending, header)
    if dialect.separator == "," and (dialect.row_names or not dialect.header):
        filled = [line.strip() for line in sample if line.strip()]
        _warn_of_one_column_of_text(filled[int(dialect.header) :])
    skipped = dialect.skipped
    line, cells = next(_rows_of_text(text_lines(path), dialect.separator, skipped), (0, []))
    if dialect.header:
        names, unnamed = unique_table_names(["", *cells] if dialect.row_names else cells)
        skipped = line
    else:
        names, unnamed = [str(i + 1) for i in range(len(cells))], set()
    texts = as_text(names, header=dialect.header)
    if not texts:
        X = _text_of_numbers_only(path, dialect, skipped)
        if X is not None and X.shape[1] == len(names):
            table = Table(X, names, names, dialect.header, unnamed)
            table.count_blanks()
            return table
    body = _rows_of_text(text_lines(path), dialect.separator, skipped)
    table = _text_by_cell(body, names, texts, dialect)
    table.header, table.unnamed = dialect.header, unnamed
    return table


def _sample_of_text(lines: Iterable[str]) -> list[str]:
    """Return the first lines: two at least, and no more once they are long."""
    sample: list[str] = []
    size = 0
    for line in itertools.islice(lines, SAMPLE_LINES):
        sample.append(line)
        size += len(line)
        if len(sample) > 1 and size > SAMPLE_SIZE:
            break
    return sample


def _warn_of_one_column_of_text(lines: list[str]) -> None:
    """Warn if two columns of whole numbers could be one of decimal commas: `1,5` in all lines.

    Decimals end in 0 only if all have equally many.
    """
    decimals = [line.partition(",")[2] for line in lines]
    padded = len(set(map(len, decimals))) == 1
    if (
        lines
        and all(map(_TWO_OR_ONE.fullmatch, lines))
        and (padded or not any(digits.endswith("0") and digits != "0" for digits in decimals))
    ):
        warn(
            f"lines such as {lines[0]!r} are read as two whole numbers: if each is one number with "
            "a decimal comma, put the line sep=; before them",
            UserWarning,
        )


def _rows_of_text(
    lines: Iterable[str], separator: str, skipped: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) for every row that is not empty, without the first lines."""
    lines = itertools.islice(lines, skipped, None)
    blank = separator == " "
    if blank:
        lines = (line.strip(" \t\r\n") + "\n" for line in lines)
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=blank)
    for cells in reader:
        if cells:
            yield skipped + reader.line_num, cells


def _text_of_numbers_only(path: Path, dialect: Dialect, skipped: int) -> np.ndarray | None:
    """Return the matrix if all rows are numbers, else None."""
    lines = itertools.islice(text_lines(path), skipped, None)
    separator = None if dialect.separator == " " else dialect.separator
    if dialect.comma:
        lines = (_text_with_points(line) for line in lines)
    try:
        X = numbers_of_text(lines, delimiter=separator, comments=None, quotechar='"')
    except UnreadableTextError:
        raise
    except ValueError:  # its message does not name the line of the file
        return None
    return X if len(X) else None


def _text_with_points(line: str) -> str:
    if "." in line or _SOMEWHERE.search(line):
        msg = "decimal commas and points are mixed, or commas could separate thousands"
        raise ValueError(msg)
    return line.replace(",", ".")


@dataclass
class _TextColumn:
    """One column while it is read."""

    blocks: list[np.ndarray] = field(default_factory=list)
    fault: Fault = field(default_factory=Fault)
    comma: str = ""  # the first cell with a decimal comma
    thousands: str = ""  # the first whose commas could separate thousands
    point: str = ""
    large: bool = False  # whether a number without a comma is 100 at least

    def add(self, cells: tuple[str, ...], lines: list[int], *, commas: bool) -> None:
        """Convert cells to numbers, and count those that are none."""
        joined = "\n".join(cells)
        if commas and not self.point and "." in joined:
            self.point = next((c for c in cells if "." in c and is_number(c)), "")
        try:
            values = np.array(list(map(float, cells)))
        except ValueError:
            values = None
        if values is None or "_" in joined:
            values = np.array(
                [self._number(c, line, commas=commas) for c, line in zip(cells, lines, strict=True)]
            )
        else:
            self.fault.blanks += int(np.isnan(values).sum())
            self.large = self.large or bool((np.abs(values) >= 100).any())
        self.blocks.append(values)

    def _number(self, cell: str, line: int, *, commas: bool) -> float:
        if is_blank(cell):
            self.fault.blanks += 1
            return np.nan
        if is_number(cell):
            self.large = self.large or abs(float(cell)) >= 100
            return float(cell)
        if commas and _SEPARATED.fullmatch(cell):
            if not self.thousands or self.thousands.count(",") < cell.count(","):
                self.thousands = cell
            return float(cell.replace(",", ".", 1).replace(",", ""))
        if commas and is_number(cell, comma=True):
            self.comma = self.comma or cell
            return float(cell.replace(",", "."))
        fault = self.fault
        if not fault.wrong:
            fault.where, fault.example = f"line {line}, ", cell
        fault.wrong += 1
        if len(fault.values) < MOST_VALUES:
            fault.values.add(cell.strip())
        return np.nan


def _text_by_cell(
    rows: Iterable[tuple[int, list[str]]],
    names: list[str],
    as_text: Collection[str],
    dialect: Dialect,
) -> Table:
    """Return a table of cells that need not be numbers."""
    columns = {name: _TextColumn() for name in names if name not in as_text}
    text: dict[str, list[str]] = {name: [] for name in names if name in as_text}
    commas, n_rows = dialect.separator != ",", 0
    rows = iter(rows)
    while block := list(itertools.islice(rows, max(1, BLOCK_CELLS // max(1, len(names))))):
        for line, cells in block:
            if len(cells) != len(names):
                sign = NAMES.get(dialect.separator, repr(dialect.separator))
                msg = f"line {line} has {len(cells)} columns, expected {len(names)} (separated by "
                msg += f"{sign})"
                if dialect.separator == "," and len(names) == 1:
                    msg += "; if these are decimal commas, put the line sep=; before all others"
                raise ValueError(msg)
        lines = [line for line, _ in block]
        n_rows += len(block)
        for name, cells in zip(names, zip(*(c for _, c in block), strict=True), strict=True):
            if name in text:
                text[name] += ["" if is_blank(cell) else cell.strip() for cell in cells]
            else:
                columns[name].add(cells, lines, commas=commas)
    if not n_rows:
        msg = "it holds no data"
        raise ValueError(msg)
    _refuse_unclear_commas_in_text(columns)
    X = np.empty((n_rows, len(columns)))
    for j, column in enumerate(columns.values()):
        X[:, j] = np.concatenate(column.blocks)
        column.blocks.clear()
        fault = column.fault
        if fault.wrong >= FEWEST_ROWS:
            fault.distinct = len(fault.values) == min(fault.wrong, MOST_VALUES)
    faults = {
        name: column.fault
        for name, column in columns.items()
        if column.fault.blanks or column.fault.wrong
    }
    return Table(X, list(columns), names, text=text, faults=faults)


def _refuse_unclear_commas_in_text(columns: dict[str, _TextColumn]) -> None:
    """Raise a ValueError if commas are decimal commas beside points, or may separate thousands.

    In a column in which each comma could separate thousands, they are decimal commas only if other
    columns have decimal commas, and the column has no number from 100 on without a comma.
    """
    numbers = {name: column for name, column in columns.items() if not column.fault.wrong}
    commas = [(name, c.comma or c.thousands) for name, c in numbers.items()]
    commas = [(name, cell) for name, cell in commas if cell]
    points = [(name, column.point) for name, column in numbers.items() if column.point]
    if commas and points:
        msg = (
            f"it mixes decimal commas and points: column {commas[0][0]!r} holds {commas[0][1]!r}, "
            f"column {points[0][0]!r} holds {points[0][1]!r}; write decimals with points, and "
            "thousands without a separator"
        )
        raise ValueError(msg)
    decimals = any(column.comma for column in numbers.values())
    for name, column in numbers.items():
        cell = column.thousands.strip()
        several = cell.count(",") > 1
        if cell and (several or not (column.comma or (decimals and not column.large))):
            whole = cell.replace(",", "")
            read = f"means {whole}" if several else f"can mean {whole} or {cell.replace(',', '.')}"
            msg = f"column {name!r} holds {cell!r}, which {read}: write thousands without a "
            msg += "separator, and decimals with points"
            raise ValueError(msg)
