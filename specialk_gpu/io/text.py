"""Readers of numbers in text: delimited tables and Matrix Market, plain or compressed."""

import csv
import gzip
import itertools
import math
import warnings

import numpy as np
from scipy import sparse

__all__ = ["read_delimited", "read_matrix_market"]


def read_delimited(path, delimiter, header=None):
    """Read numbers between delimiters, see `specialk_gpu.io.files.read_matrix`.

    Parameters
    ----------
    path : Path
        The file, decompressed if it ends in ``.gz``.
    delimiter : str
        What stands between two cells.
    header : bool, optional
        Whether the first row holds names; found out by default.

    Returns
    -------
    X : ndarray of shape (n_rows, n_columns), float64
        The numbers.
    names : list of str, or None
        What the first row holds, if that is names.

    Raises
    ------
    ValueError
        If a row is too long or too short, or a cell is no number.
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
        except ValueError as error:  # names the cell, but not the line of the file
            message = str(error)
        else:
            if len(X) and X.shape[1] == len(cells):
                return X, cells if header else None
            message = "it holds no data"
    names = cells if header else range(1, len(cells) + 1)
    with _open_text(path) as stream:
        problem = _first_problem(_rows(stream, delimiter), names, skipped)
    raise ValueError(problem or message)


def _numbers(lines, **options):
    """Return lines of numbers as a matrix: 10 s for 60,000 x 784 of them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no data", category=UserWarning)
        return np.loadtxt(lines, ndmin=2, **options)


def _open_text(path):
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def _rows(stream, delimiter):
    """Yield (line number, cells) of every row that is not empty."""
    reader = csv.reader(stream, delimiter=delimiter)
    for cells in reader:
        if cells:
            yield reader.line_num, cells


def _is_header(cells):
    numbers = [_is_number(cell) for cell in cells]
    if any(numbers) and not all(numbers):
        name = cells[numbers.index(False)]
        msg = f"its first row mixes numbers and names (such as {name!r}); "
        msg += "say whether it is a header with header=True or False (--header yes or no)"
        raise ValueError(msg)
    return not any(numbers)


def _is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _first_problem(rows, names, skipped):
    """Say in words which row has too few or too many cells, or which cell is no number."""
    for line, cells in rows:
        if line <= skipped:
            continue
        if len(cells) != len(names):
            return f"line {line} has {len(cells)} columns, expected {len(names)}"
        for name, cell in zip(names, cells, strict=True):
            if not _is_number(cell):
                return f"line {line}, column {name!r} holds {cell!r}, expected a number"
    return None


def read_matrix_market(path):
    """Read a real matrix in the Matrix Market format.

    SciPy 1.17's `scipy.io.mmread` reads on behind the end of a file that was cut within a line,
    and crashes the process; hence a reader of our own.

    Parameters
    ----------
    path : Path
        The file, decompressed if it ends in ``.gz``.

    Returns
    -------
    csr_array or ndarray of shape (n_rows, n_columns), float64
        Sparse for the layout "coordinate", dense for "array".

    Raises
    ------
    ValueError
        If the file is damaged, complex, skew-symmetric or Hermitian.
    """
    with _open_text(path) as stream:
        banner = stream.readline().lower().split()
        if banner[:2] != ["%%matrixmarket", "matrix"] or len(banner) != 5:
            msg = "not a Matrix Market file, its first line lacks the banner"
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


def _sizes(line, layout, symmetry):
    """Return the shape and the number of entries that the file must hold."""
    numbers = tuple(map(int, line.split()))
    oblong = symmetry == "symmetric" and len(set(numbers[:2])) > 1
    if len(numbers) != (3 if layout == "coordinate" else 2) or oblong:
        msg = f"the line {line!r} states no sizes of a {symmetry} matrix in layout {layout}"
        raise ValueError(msg)
    if layout == "coordinate":
        return numbers[:2], numbers[2]
    n_rows, n_columns = numbers
    return numbers, n_rows * (n_rows + 1) // 2 if symmetry == "symmetric" else n_rows * n_columns


def _dense(values, shape, symmetry):
    if symmetry == "general":
        return values.reshape(shape, order="F")
    X = np.zeros(shape)
    X[np.triu_indices(shape[0])] = values  # the lower triangle by columns is the upper by rows
    return X + np.triu(X, 1).T


def _sparse(entries, shape, symmetry):
    i, j = entries[:, :2].T.astype(np.int64) - 1
    outside = np.flatnonzero((i < 0) | (j < 0) | (i >= shape[0]) | (j >= shape[1]))
    if outside.size:
        msg = f"entry {i[outside[0]] + 1}, {j[outside[0]] + 1} lies outside of the shape {shape}"
        raise ValueError(msg)
    values = entries[:, 2] if entries.shape[1] == 3 else np.ones(len(entries))
    if symmetry == "symmetric":
        mirrored = i != j
        values = np.concatenate([values, values[mirrored]])
        i, j = np.concatenate([i, j[mirrored]]), np.concatenate([j, i[mirrored]])
    return sparse.coo_array((values, (i, j)), shape=shape).tocsr()
