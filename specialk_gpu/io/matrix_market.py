"""Reader for the Matrix Market format, plain or compressed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy import sparse

from specialk_gpu.io.arrays import check_sizes_of_sparse_array
from specialk_gpu.io.text import MOST_OF_GZIP, numbers_of_text, text_lines

__all__ = ["read_matrix_market"]

HEADER_LINES = 10_000  # comments included


def read_matrix_market(path: Path) -> np.ndarray | sparse.csr_array:
    """Read a real matrix in the Matrix Market format.

    `scipy.io.mmread` is not used: that of SciPy 1.17 asks for memory by the sizes that the file
    promises, and counts the entries of a symmetric file that lists both triangles twice.

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
    lines = text_lines(path)
    banner = next(lines, "").lower().split()
    if banner[:2] != ["%%matrixmarket", "matrix"] or len(banner) != 5:
        msg = "not a Matrix Market file: its first line is not a Matrix Market banner"
        raise ValueError(msg)
    layout, field, symmetry = banner[2:]
    if (
        layout not in ("coordinate", "array")
        or field not in ("real", "integer", "pattern")
        or symmetry not in ("general", "symmetric")
        or (layout, field) == ("array", "pattern")
    ):
        msg = "expected a coordinate or array file, real, integer or pattern, general or "
        msg += f"symmetric, got {layout} {field} {symmetry}"
        raise ValueError(msg)
    sizes = next((line for line in lines if line.strip() and line[0] != "%"), "").strip()
    shape, n_entries = _matrix_market_sizes(sizes, layout, symmetry)
    expected = (n_entries, 1 if layout == "array" else 2 if field == "pattern" else 3)
    _check_matrix_market_length(path, expected, sizes)
    body = numbers_of_text(lines, comments="%", max_rows=n_entries + 1)
    if body.size != math.prod(expected) or body.shape not in (expected, (0, 1)):
        got = f"{'more' if len(body) > n_entries else len(body)} of {body.shape[1]}"
        msg = f"expected {expected[0]} lines of {expected[1]} numbers after the sizes {sizes!r}, "
        msg += f"got {got}"
        raise ValueError(msg)
    body = body.reshape(expected)
    if field == "integer":
        _check_matrix_market_integers(body[:, -1], "a value of a file of integers")
    if layout == "array":
        return _dense_matrix_market(body[:, 0], shape, symmetry)
    check_sizes_of_sparse_array(shape, n_entries)
    return _sparse_matrix_market(body, shape, symmetry)


def _matrix_market_sizes(line: str, layout: str, symmetry: str) -> tuple[tuple[int, int], int]:
    """Return the shape and the number of entries that the file must hold."""
    words = line.split() if len(line) < 100 else []
    numbers = tuple(int(word) for word in words if word.isascii() and word.isdigit())
    oblong = symmetry == "symmetric" and len(set(numbers[:2])) > 1
    right = len(words) == len(numbers) == (3 if layout == "coordinate" else 2)
    if not right or oblong:
        msg = f"the line {line[:100]!r} is not the sizes of a {symmetry} matrix in layout {layout}"
        raise ValueError(msg)
    if layout == "coordinate":
        return (numbers[0], numbers[1]), numbers[2]
    n_rows, n_columns = numbers
    n_entries = n_rows * (n_rows + 1) // 2 if symmetry == "symmetric" else n_rows * n_columns
    return (n_rows, n_columns), n_entries


def _check_matrix_market_length(path: Path, expected: tuple[int, int], sizes: str) -> None:
    """Refuse sizes for which the file is too short, before any memory is asked for."""
    most = path.stat().st_size
    if path.suffix.lower() == ".gz":
        most = MOST_OF_GZIP[0] + MOST_OF_GZIP[1] * most
    if 2 * math.prod(expected) > most:  # a number and what follows it; its header is longer
        msg = f"it is too short for {expected[0]} lines of {expected[1]} numbers, which the sizes "
        msg += f"{sizes!r} promise"
        raise ValueError(msg)


def _check_matrix_market_integers(values: np.ndarray, what: str) -> None:
    wrong = np.flatnonzero(values != np.trunc(values))  # NaN too
    if wrong.size:
        msg = f"{what} must be a whole number, got {values[wrong[0]]} in entry {wrong[0] + 1}"
        raise ValueError(msg)


def _dense_matrix_market(values: np.ndarray, shape: tuple[int, int], symmetry: str) -> np.ndarray:
    if symmetry == "general":
        return values.reshape(shape, order="F")
    X = np.zeros(shape)
    X[np.triu_indices(shape[0])] = values  # the lower triangle by columns = the upper by rows
    return X + np.triu(X, 1).T


def _sparse_matrix_market(
    entries: np.ndarray, shape: tuple[int, int], symmetry: str
) -> sparse.csr_array:
    rows, columns = entries[:, 0], entries[:, 1]
    _check_matrix_market_integers(rows, "the row of an entry")
    _check_matrix_market_integers(columns, "the column of an entry")
    outside = np.flatnonzero((rows < 1) | (columns < 1) | (rows > shape[0]) | (columns > shape[1]))
    if outside.size:
        first = f"{rows[outside[0]]:.0f}, {columns[outside[0]]:.0f}"
        msg = f"entry {first} lies outside the shape {shape}"
        raise ValueError(msg)
    i, j = rows.astype(np.int64) - 1, columns.astype(np.int64) - 1
    values = entries[:, 2] if entries.shape[1] == 3 else np.ones(len(entries))
    if symmetry == "symmetric":
        off = i != j
        low = np.flatnonzero(off & (i < j))
        if low.size and (i > j).any():
            msg = (
                "a symmetric file must list one triangle, got entries in both, such as "
                f"{i[low[0]] + 1}, {j[low[0]] + 1}"
            )
            raise ValueError(msg)
        values = np.concatenate([values, values[off]])
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
    return sparse.coo_array((values, (i, j)), shape=shape).tocsr()
