"""What is wrong in a table: one message of all columns that are no numbers, and what helps."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NoReturn

import numpy as np

from specialk_gpu.tables.table import MOST_CATEGORIES, Fault, Table, listed, option

__all__ = ["refuse_faults", "refuse_to_drop_all", "told_blank_faults"]

FEW = 10  # one of so many cells that is no number is a slip, not what the column is
MINUS_SIGNS = "\N{MINUS SIGN}\N{EN DASH}\N{FIGURE DASH}\N{NON-BREAKING HYPHEN}\N{HYPHEN}"
_DAY = r"\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/.])\d{1,2}\2(?:\d{4}|\d{2})"
_TIME = r"[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AaPp][Mm])?(?:Z|[+-]\d{2}:?\d{2})?"
_DATE = re.compile(f"(?:{_DAY})(?:{_TIME})?")
CATEGORIES = "--one-hot may make a cluster of each category, so compare with a fit without it"
UNITS = "if the columns have different units, take --scale standard too"
_WITH_MINUS = str.maketrans(MINUS_SIGNS, "-" * len(MINUS_SIGNS))


def told_blank_faults(counts: Mapping[str, int]) -> str:
    """Return how many blanks each column has.

    Parameters
    ----------
    counts : dict of str to int
        The number of blanks, by the name of the column.

    Returns
    -------
    str
        Such as ``1 in column 'a', 2 in column 'b'``.
    """
    return ", ".join(f"{count} in column {name!r}" for name, count in counts.items())


def refuse_to_drop_all(empty: Collection[str]) -> NoReturn:
    """Raise an error where each row has a blank, and rows with blanks are to be dropped.

    Parameters
    ----------
    empty : collection of str
        The columns that are blank throughout.

    Raises
    ------
    ValueError
        Always.
    """
    msg = "every row has a blank, so --missing drop leaves no row; "
    if empty:
        verb = "is" if len(empty) == 1 else "are"
        msg += f"{listed(empty)} {verb} blank throughout: add {option('--drop', empty)}"
    else:
        msg += "take --missing median"
    raise ValueError(msg)


def refuse_faults(
    table: Table,
    *,
    filled: bool,
    advise: bool = True,
    categories: Collection[str] = (),
    scaled: bool = False,
) -> None:
    """Raise an error that lists all columns that are not numbers, all blanks, or all infinities.

    Parameters
    ----------
    table : Table
        The table.
    filled : bool
        Whether blanks are allowed, because they will be filled or dropped.
    advise : bool
        Whether the message ends with what helps: edits of the file, and options of the command
        line.
    categories : collection of str
        Columns of text that are used.
    scaled : bool
        Whether the columns will be scaled.

    Raises
    ------
    ValueError
        If there are any.
    """
    wrong = {name: fault for name, fault in table.faults.items() if fault.wrong}
    blanks = {name: f.blanks for name, f in table.faults.items() if f.blanks and name not in wrong}
    told = []
    for name, fault in wrong.items():
        cells = "1 such cell" if fault.wrong == 1 else f"{fault.wrong} such cells"
        told.append(
            f"{fault.where}column {name!r} holds {fault.example!r}, expected a number ({cells})"
        )
    if blanks and not filled:
        told.append(f"there are blanks, {told_blank_faults(blanks)}")
    if told and advise:
        blanks = {} if filled else blanks
        told += _advice_on_faults(
            table, wrong, blanks, filled=filled, categories=categories, scaled=scaled
        )
    if told:
        raise ValueError("; ".join(told))
    if table.X.dtype.kind == "f":
        _refuse_infinite_faults(table, advise=advise)


def _refuse_infinite_faults(table: Table, *, advise: bool) -> None:
    infinite = np.isinf(table.X)
    wrong = [table.names[j] for j in np.flatnonzero(infinite.any(axis=0))]
    if wrong:
        row = int(infinite[:, table.names.index(wrong[0])].argmax()) + 1
        msg = f"column {wrong[0]!r} is infinite, or too large for float64, in data row {row}"
        if len(wrong) > 1:
            msg += f", and so are entries of {listed(wrong[1:])}"
        if advise and len(wrong) < len(table.names):
            msg += f"; correct the file, or add {option('--drop', wrong)}"
        raise ValueError(msg)


def _advice_on_faults(
    table: Table,
    wrong: dict[str, Fault],
    blanks: dict[str, int],
    *,
    filled: bool,
    categories: Collection[str],
    scaled: bool,
) -> list[str]:
    """Return edits of the file, and options that do without the columns that stay wrong."""
    edits, edited, few = _edits_of_faults(table, wrong)
    wrong = {name: fault for name, fault in wrong.items() if name not in edited}
    n = table.X.shape[0]
    dates = [name for name, fault in wrong.items() if _is_fault_of_dates(fault)]
    if dates:
        noun, them = ("column", "it") if len(dates) == 1 else ("columns", "them")
        verb = "holds" if len(dates) == 1 else "hold"
        edits.append(
            f"{noun} {listed(dates)} {verb} dates: leave {them} out, or write {them} into the file "
            "as numbers, such as days since the first"
        )
    ids = [name for name, fault in wrong.items() if fault.distinct and name not in dates][:1]
    empty = [name for name, count in blanks.items() if count == n]
    drops = [name for name in (*wrong, *empty) if name not in ids]
    groups = [
        name
        for name, fault in wrong.items()
        if name not in {*ids, *dates}
        and len(fault.values) <= MOST_CATEGORIES
        and 2 * fault.wrong > n
    ]
    first = _options_against_faults(ids, drops, [])
    second = _options_against_faults(ids, [name for name in drops if name not in groups], groups)
    if not categories and len(drops) + len(ids) == len(table.names):
        if not groups:
            return [*edits, "without these columns none is left"]
        first = second
    if not filled and (few or len(blanks) > len(empty)):
        first, second = [*first, "--missing median"], [*second, "--missing drop"]
    advice = f"add {' '.join(first)}" + (f" (or {' '.join(second)})" if second != first else "")
    notes = [CATEGORIES] if "--one-hot" in advice else []
    if wrong and not scaled and len(table.names) - len(drops) - len(ids) > 1:
        notes.append(UNITS)
    return [*edits, *notes, advice] if first else edits


def _options_against_faults(ids: list[str], drops: list[str], groups: list[str]) -> list[str]:
    flags = {"--id-column": ids, "--drop": drops, "--one-hot": groups}
    return [option(flag, names) for flag, names in flags.items() if names]


def _edits_of_faults(table: Table, wrong: dict[str, Fault]) -> tuple[list[str], set[str], bool]:
    """Return what to edit in the file, the columns that this mends, and if it leaves blanks."""
    edits = []
    signs = {name for name, fault in wrong.items() if _is_fault_of_minus_signs(fault)}
    if signs:
        edits.append(
            f"write '-' in {_faults_of(table, signs)}, where another character stands for minus"
        )
    second = {name for name, fault in wrong.items() if fault.wrong == 1} - signs
    if len(second) < 2 or table.X.shape[0] < 2 or not np.isnan(table.X[0]).all():
        second = set()
    if second:  # each has its only text in the first row, which has no number at all
        line = wrong[min(second)].where.rstrip(", ") or "the first row"
        edits.append(f"remove {line} if it is a second header")
    few = {name for name, fault in wrong.items() if FEW * fault.wrong <= table.X.shape[0]}
    few -= signs | second
    if few:
        edits.append(f"leave the cells of {_faults_of(table, few)} empty that hold no number")
    return edits, signs | second | few, bool(few)


def _is_fault_of_dates(fault: Fault) -> bool:
    return bool(fault.values) and all(map(_DATE.fullmatch, fault.values))


def _faults_of(table: Table, names: Collection[str]) -> str:
    return listed(name for name in table.names if name in names)


def _is_fault_of_minus_signs(fault: Fault) -> bool:
    """Return whether all texts are numbers, but for the character of their minus sign."""
    try:
        for text in fault.values:
            float(text.translate(_WITH_MINUS).replace(",", "."))
    except ValueError:
        return False
    return all(set(text) & set(MINUS_SIGNS) for text in fault.values)
