"""The files of a command: how its rows are read, also from standard input, and what it writes."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from specialk_gpu._printable import printable
from specialk_gpu._units import size_in_units

if TYPE_CHECKING:
    import numpy as np

    from specialk_gpu.tables.choice import Choice

__all__ = ["STANDARD_INPUT", "check_outputs", "chosen_columns", "input_as_file"]
__all__ += ["labels_with_ids", "reading_of_file"]

STANDARD_INPUT = Path("-")
MOST_PIPED, BLOCK = 1 << 32, 1 << 20  # bytes: the most that is read from a pipe, and at once


@contextmanager
def input_as_file(path: Path) -> Iterator[Path]:
    """Yield a path; for `-`, that of a file with the CSV that stands on standard input.

    Readers of text read it several times, so what is piped is kept in a temporary file.

    Raises
    ------
    ValueError
        If more comes than `MOST_PIPED` bytes. Messages about the file name standard input.
    """
    if path != STANDARD_INPUT:
        yield path
        return
    if sys.stdin is None:
        msg = "standard input is closed, so - cannot be read"
        raise ValueError(msg)
    with TemporaryDirectory() as folder:
        kept, size = Path(folder) / "piped.csv", 0
        with kept.open("wb") as stream:
            while block := sys.stdin.buffer.read(BLOCK):
                size += len(block)
                if size > MOST_PIPED:
                    most = size_in_units(MOST_PIPED)
                    msg = f"standard input holds more than {most}: save it as a file"
                    raise ValueError(msg)
                stream.write(block)
        try:
            yield kept
        except ValueError as error:
            name = "standard input, which is read as CSV"
            raise ValueError(str(error).replace(printable(kept), name)) from error


def chosen_columns(options: argparse.Namespace) -> Choice:
    """Return what the options say about the columns."""
    from specialk_gpu.tables.choice import Choice

    output = getattr(options, "output", None)
    if options.id_column is not None and output and output.suffix.lower() != ".csv":
        msg = f"--id-column writes ids into a .csv file, got --output {output}"
        raise ValueError(msg)
    return Choice(**{one.name: getattr(options, one.name) for one in fields(Choice)})


def reading_of_file(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the options say about the file of rows."""
    return {"key": options.key, "header": {"yes": True, "no": False}.get(options.header)}


def check_outputs(
    options: argparse.Namespace,
    inputs: Iterable[Path | None],
    names: Iterable[str],
    *,
    labels: bool = True,
) -> None:
    """Check, before any work is done, that the results can be written."""
    from specialk_gpu.io.files import LABEL_FORMATS

    output = getattr(options, "output", None)
    if labels and output and output.suffix.lower() not in LABEL_FORMATS:
        msg = f"--output must end in {' or '.join(LABEL_FORMATS)}, got {output}"
        raise ValueError(msg)
    taken = {path.resolve() for path in inputs if path and path != STANDARD_INPUT}
    for name in names:
        flag, path = f"--{name}" if labels else name.upper(), getattr(options, name)
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            msg = f"{flag} must name a file in a folder that exists, got {path}"
            raise ValueError(msg)
        places = [path] if path.exists() else []
        if path.is_file() or not places:  # it will be replaced
            places.append(path.resolve().parent)
        if not all(os.access(place, os.W_OK) for place in places):
            msg = f"{flag} must name a file that can be written, got {path}"
            raise ValueError(msg)
        if path.resolve() in taken:
            msg = f"{flag} would overwrite another file of this command, got {path}"
            raise ValueError(msg)
        taken.add(path.resolve())


def labels_with_ids(path: Path) -> tuple[np.ndarray, list[str] | None, str]:
    """Return labels, with the ids that stand beside them in a table of two columns.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    labels : ndarray of shape (n_samples,), int64
    ids : list of str, or None
        The other column, if the file has a header, its columns are "label" and that one, and no id
        is blank or occurs twice.
    name : str
        The name of that column, or "".

    Raises
    ------
    FileNotFoundError, ImportError, ValueError
        As in `read_labels`.
    """
    from specialk_gpu.io.files import is_table_file, read_labels, read_table_file
    from specialk_gpu.tables.table import Table

    def other(order: list[str], *, header: bool) -> list[str]:
        beside = [name for name in order if name != "label"]
        return beside if header and len(order) == 2 and len(beside) == 1 else []

    table = read_table_file(path, as_text=other) if is_table_file(path) else None
    for name, ids in table.text.items() if isinstance(table, Table) else ():
        if all(ids) and len(set(ids)) == len(ids):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that ids are left out
                return read_labels(path), ids, name
    return read_labels(path), None, ""
