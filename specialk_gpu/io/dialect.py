"""What kind of text table a file is: separator, decimal sign, and whether it has a header.

Everything is decided from the text alone, by counting, so that the same file is always read alike.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Dialect", "dialect_of", "is_blank", "is_number", "parse_rows"]

# The separators to consider, the most usual first.
SEPARATORS = {"csv": ",;\t|", "tsv": "\t;,|", "txt": "\t;,| "}
NAMES = {"\t": "tab", " ": "blank"}
_BLANKS = frozenset(
    ["", "na", "n/a", "#n/a", "<na>", "#nv", "nan", "null", "none", "?", "-", "--", "."]
)
_COMMA = re.compile(r"\s*[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?\s*")
_STATED = re.compile(r'"?sep=([^\w"\r\n])"?\s*', re.IGNORECASE)  # the first line, for Excel
_INTEGER = re.compile(r"\s*\d{1,9}\s*")
_FRACTION = re.compile(r"\s*[+-]?(\d+\.\d*|\d*\.\d+|\d+(\.\d*)?[eE][+-]?\d+)([eE][+-]?\d+)?\s*")


class Dialect(NamedTuple):
    """How to read a table.

    Attributes
    ----------
    separator : str
        What stands between two cells.
    comma : bool
        Whether decimals follow a comma.
    header : bool
        Whether the first row holds names.
    row_names : bool
        Whether the header has no cell for the first column, as `write.table` of R writes it.
    skipped : int
        The number of lines before the first row: 1 if a line ``sep=;`` states the separator.
    """

    separator: str
    comma: bool
    header: bool
    row_names: bool
    skipped: int


def parse_rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Split lines into cells; empty lines are left out.

    Parameters
    ----------
    lines : list of str
        Lines of the file.
    separator : str
        What stands between two cells.

    Returns
    -------
    list of list of str
        The cells of each row.
    """
    if separator == " ":
        lines = [line.strip(" \t") for line in lines]
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=separator == " ")
    return [cells for cells in reader if cells]


def dialect_of(lines: Sequence[str], ending: str, header: bool | None) -> Dialect:  # noqa: FBT001
    """Find out separator, decimal sign and header from the first lines of a file.

    Parameters
    ----------
    lines : list of str
        The first lines.
    ending : {"csv", "tsv", "txt"}
        The ending of the file's name, which decides where the text does not.
    header : bool or None
        Whether the first row holds names; None to find out.

    Returns
    -------
    Dialect
        How to read the file.

    Raises
    ------
    ValueError
        If the first row could be names as well as numbers.
    """
    stated = _STATED.fullmatch(lines[0]) if lines else None
    if stated:
        lines = lines[1:]
    separators = stated[1] if stated else SEPARATORS[ending]
    if not stated and all(line.startswith('"') for line in lines if line.strip()):
        separators += " "  # names of columns and rows in quotes: `write.table` of R
    candidates = {separator: parse_rows(lines, separator) for separator in separators}
    scores = {separator: _dialect_score(rows, separator) for separator, rows in candidates.items()}
    separator = max(separators, key=scores.__getitem__)  # the first of equals
    rows = candidates[separator]
    lacks_one = _header_lacks_one(rows)
    comma = separator != "," and any(
        _COMMA.fullmatch(cell) for row in rows[1:] or rows for cell in row
    )
    if header is None:
        header = bool(rows) and _dialect_has_header(rows, lines, comma=comma, lacks_one=lacks_one)
    return Dialect(separator, comma, header, header and lacks_one, int(stated is not None))


def _header_lacks_one(rows: list[list[str]]) -> bool:
    """Return whether the first row has one cell fewer than the others, which begin with names.

    At least two others are needed to tell. Where all end in a separator, no name is lacking.
    """
    body = rows[1:-1]  # the last row may be cut off
    names = {row[0] for row in body}
    return (
        len(body) == len(names) > 0
        and all(len(row) == len(rows[0]) + 1 for row in body)
        and any(row[-1].strip() for row in body)
    )


def _dialect_score(rows: list[list[str]], separator: str) -> tuple[float, float, int]:
    """Return how well a separator fits: rows of one width, cells that are numbers, and the width.

    A separator that occurs in no row has the worst score.
    """
    width, count = Counter(map(len, rows)).most_common(1)[0] if rows else (1, 0)
    if width == 1:
        return 0.0, 0.0, 0
    count += _header_lacks_one(rows)
    cells = [cell for row in rows[1:] or rows for cell in row]
    numbers = sum(is_blank(cell) or is_number(cell, comma=separator != ",") for cell in cells)
    return count / len(rows), numbers / len(cells), width


def is_blank(cell: str) -> bool:
    """Return whether a cell says that its value is missing.

    Parameters
    ----------
    cell : str
        The text of the cell.

    Returns
    -------
    bool
        True for an empty cell, NA, NaN, null, ? and the like.
    """
    return cell.strip().lower() in _BLANKS


def is_number(cell: str, *, comma: bool = False) -> bool:
    """Return whether a cell is a number.

    Parameters
    ----------
    cell : str
        The text of the cell.
    comma : bool
        Whether a decimal comma is accepted too.

    Returns
    -------
    bool
        Whether it is a number.
    """
    try:
        float(cell)
    except ValueError:
        return comma and _COMMA.fullmatch(cell) is not None
    return "_" not in cell


def _dialect_has_header(
    rows: list[list[str]], lines: Sequence[str], *, comma: bool, lacks_one: bool
) -> bool:
    """Decide whether the first row holds names; raise a ValueError if it could be both."""
    first, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    blanks = [is_blank(cell) for cell in first]
    numbers = [not is_blank(cell) and is_number(cell, comma=comma) for cell in first]
    if all(blanks):
        return False
    if not any(numbers):
        return True
    if lacks_one:
        if not all(numbers):
            return True
        _ask_for_dialect(f"its first row, {_shortened(first)}, has one cell fewer than the others")
    if not all(numbers):
        if not first[0].strip() and all(numbers[1:]) and _dialect_has_row_numbers(body):
            return True  # `,0,1`: the names that pandas gives, above its row numbers
        if all(n or b for n, b in zip(numbers, blanks, strict=True)) and first[0].strip():
            return False  # a row of numbers with gaps
        shown = next((c for c, n in zip(first, numbers, strict=True) if not n and c.strip()), "")
        mixed = f"names (such as {shown!r})" if shown else "blanks"
        _ask_for_dialect(f"its first row mixes numbers and {mixed}")
    reason = _header_of_numbers(first, body, lines)
    if reason:
        _ask_for_dialect(f"its first row, {_shortened(first)}, could be names or numbers: {reason}")
    return False


def _ask_for_dialect(what: str) -> None:
    msg = f"{what}; set header=True or False (--header yes or no) to say whether it is a header"
    raise ValueError(msg)


def _shortened(cells: list[str]) -> str:
    return ", ".join(cells if len(cells) < 6 else [*cells[:3], "…", cells[-1]])


def _dialect_has_row_numbers(body: list[list[str]]) -> bool:
    """Return whether the first cells count the rows, from 0 or from 1."""
    found = [row[0].strip() for row in body]
    return any(found == [str(i + start) for i in range(len(found))] for start in (0, 1))


def _header_of_numbers(first: list[str], body: list[list[str]], lines: Sequence[str]) -> str:
    """Return why a first row of numbers could be names; an empty text if it could not."""
    if not body or not all(_INTEGER.fullmatch(cell) for cell in first):
        return ""
    numbers = [int(cell) for cell in first]
    steps = {after - before for before, after in zip(numbers, numbers[1:], strict=False)}
    if steps == {1} and numbers[0] in (0, 1):
        return f"they count from {numbers[0]}"
    if steps and min(steps) > 0 and numbers[0] >= 1900 and numbers[-1] <= 2100:
        inside = sum(
            _INTEGER.fullmatch(cell) is not None and 1900 <= int(cell) <= 2100
            for row in body
            for cell in row
        )
        if 2 * inside < len(body) * len(first):
            return "they look like years"
    fractions = [_FRACTION.fullmatch(c) or _COMMA.fullmatch(c) for row in body for c in row]
    if all(fractions):
        return "they alone have no decimals"
    filled = [line for line in lines if line.strip()]
    if '"' in filled[0] and not any('"' in line for line in filled[1:]):
        return "they alone are quoted"
    return ""
