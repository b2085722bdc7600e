"""Readers for text files: delimited tables and Matrix Market, plain or compressed."""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
from scipy import sparse

__all__ = ["read_delimited", "read_matrix_market"]


def read_delimited(
    path: Path,
    delimiter: str,
    header: bool | None = None,  # noqa: FBT001 - as it is called
) -> tuple[np.ndarray, list[str] | None]:
    """Read a table of numbers separated by a delimiter; see `specialk_gpu.io.files.read_matrix`.

    Parameters
    ----------
    path : Path
        The file. It is decompressed if its name ends in ``.gz``.
    delimiter : str
        The separator between two cells.
    header : bool, optional
        Whether the first row holds names. By default this is detected.

    Returns
    -------
    X : ndarray of shape (n_rows, n_columns), float64
        The numbers.
    names : list of str, or None
        The first row, if it holds names.

    Raises
    ------
    ValueError
        If a row is too long or too short, or a cell is not a number.
    """
    with _open_text(path) as stream:
        line, cells = next(_rows(stream, delimiter), (0, []))
    if header is None:
        header = _is_header(cells)
    skipped = line if header else 0
    with _open_text(path) as stream:
        body = itertools.islice(stream, skipped, None)
        try:
            X = _numbers(body, delimiter=delimiter, comments=None, quotechar='"')
        except ValueError as error:  # its message names the cell, but not the line of the file
            message = str(error)
        else:
            if len(X) and X.shape[1] == len(cells):
                return X, cells if header else None
            message = "it holds no data"
    names = cells if header else range(1, len(cells) + 1)
    with _open_text(path) as stream:
        problem = _first_problem(_rows(stream, delimiter), names, skipped)
    raise ValueError(problem or message)


def _numbers(lines: Iterable[str], **options: Any) -> np.ndarray:
    """Return lines of numbers as a matrix; this takes 10 s for 60,000 x 784 numbers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no data", category=UserWarning)
        return np.loadtxt(lines, ndmin=2, **options)


def _open_text(path: Path) -> TextIO:
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    return cast("TextIO", opened(path, "rt", encoding="utf-8-sig", newline=""))


def _rows(stream: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) for every row that is not empty."""
    reader = csv.reader(stream, delimiter=delimiter)
    for cells in reader:
        if cells:
            yield reader.line_num, cells


def _is_header(cells: list[str]) -> bool:
    numbers = [_is_number(cell) for cell in cells]
    if any(numbers) and not all(numbers):
        name = cells[numbers.index(False)]
        msg = f"its first row mixes numbers and names (such as {name!r}); "
        msg += "set header=True or False (--header yes or no) to say whether it is a header"
        raise ValueError(msg)
    return not any(numbers)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _first_problem(
    rows: Iterable[tuple[int, list[str]]], names: Sequence[str | int], skipped: int
) -> str | None:
    """Return a message that names the first wrong row or cell, or None if all are right."""
    for line, cells in rows:
        if line <= skipped:
            continue
        if len(cells) != len(names):
            return f"line {line} has {len(cells)} columns, expected {len(names)}"
        for name, cell in zip(names, cells, strict=True):
            if not _is_number(cell):
                return f"line {line}, column {name!r} holds {cell!r}, expected a number"
    return None


def read_matrix_market(path: Path) -> np.ndarray | sparse.csr_array:
    """Read a real matrix in the Matrix Market format.

    This replaces `scipy.io.mmread`: that of SciPy 1.17 reads beyond the end of a file that was cut
    off within a line, and crashes the process.

    Parameters
    ----------
    path : Path
        The file. It is decompressed if its name ends in ``.gz``.

    Returns
    -------
    csr_array or ndarray of shape (n_rows, n_columns), float64
        Sparse for the layout "coordinate", dense for the layout "array".

    Raises
    ------
    ValueError
        If the file is damaged, complex, skew-symmetric or Hermitian.
    """
    with _open_text(path) as stream:
        banner = stream.readline().lower().split()
        if banner[:2] != ["%%matrixmarket", "matrix"] or len(banner) != 5:
            msg = "not a Matrix Market file: its first line is not a Matrix Market banner"
            raise ValueError(msg)
        layout, field, symmetry = banner[2:]
        if (
            layout not in ("coordinate", "array")
            or field not in ("real", "integer", "pattern")
            or symmetry not in ("general", "symmetric")
        ):
            msg = "expected a coordinate or array file, real, integer or pattern, general or "
            msg += f"symmetric, got {layout} {field} {symmetry}"
            raise ValueError(msg)
        sizes = next((line for line in stream if line.strip() and line[0] != "%"), "").strip()
        body = _numbers(stream, comments="%")
    shape, n_entries = _sizes(sizes, layout, symmetry)
    expected = (n_entries, 1 if layout == "array" else 2 if field == "pattern" else 3)
    if body.size != math.prod(expected) or body.shape not in (expected, (0, 1)):
        msg = f"expected {expected[0]} lines of {expected[1]} numbers after the sizes {sizes!r}, "
        msg += f"got {len(body)} of {body.shape[1]}"
        raise ValueError(msg)
    if layout == "array":
        return _dense(body[:, 0], shape, symmetry)
    return _sparse(body.reshape(expected), shape, symmetry)


def _sizes(line: str, layout: str, symmetry: str) -> tuple[tuple[int, int], int]:
    """Return the shape and the number of entries that the file must hold."""
    numbers = tuple(map(int, line.split()))
    oblong = symmetry == "symmetric" and len(set(numbers[:2])) > 1
    if len(numbers) != (3 if layout == "coordinate" else 2) or oblong:
        msg = f"the line {line!r} is not the sizes of a {symmetry} matrix in layout {layout}"
        raise ValueError(msg)
    if layout == "coordinate":
        return (numbers[0], numbers[1]), numbers[2]
    n_rows, n_columns = numbers
    n_entries = n_rows * (n_rows + 1) // 2 if symmetry == "symmetric" else n_rows * n_columns
    return (n_rows, n_columns), n_entries


def _dense(values: np.ndarray, shape: tuple[int, int], symmetry: str) -> np.ndarray:
    if symmetry == "general":
        return values.reshape(shape, order="F")
    X = np.zeros(shape)
    X[np.triu_indices(shape[0])] = values  # the lower triangle by columns = the upper by rows
    return X + np.triu(X, 1).T


def _sparse(entries: np.ndarray, shape: tuple[int, int], symmetry: str) -> sparse.csr_array:
    i, j = entries[:, :2].T.astype(np.int64) - 1
    outside = np.flatnonzero((i < 0) | (j < 0) | (i >= shape[0]) | (j >= shape[1]))
    if outside.size:
        msg = f"entry {i[outside[0]] + 1}, {j[outside[0]] + 1} lies outside the shape {shape}"
        raise ValueError(msg)
    values = entries[:, 2] if entries.shape[1] == 3 else np.ones(len(entries))
    if symmetry == "symmetric":
        mirrored = i != j
        values = np.concatenate([values, values[mirrored]])
        i, j = np.concatenate([i, j[mirrored]]), np.concatenate([j, i[mirrored]])
    return sparse.coo_array((values, (i, j)), shape=shape).tocsr()
