"""Checks that X is a matrix of numbers at all; each message says what came instead."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

__all__ = [
    "refuse_non_numbers_in_matrix",
    "refuse_what_cannot_be_matrix",
    "refuse_what_is_no_matrix",
]

ARRAYS = ("shape", "__array__", "__array_interface__", "__dlpack__")  # what types of arrays have
ADVICE = (
    "Reshape your data: use numpy.reshape(X, (-1, 1)) if it is one column, or (1, -1) if it is one "
    "row."
)


def refuse_what_cannot_be_matrix(X: Any) -> None:
    """Raise an error for an object on the host that is no array, data frame or list.

    Parameters
    ----------
    X : object
        What the user has passed.

    Raises
    ------
    TypeError
        If X is of another type.
    ValueError
        If X is a list whose rows differ in length.
    """
    kind = type(X)
    text_or_path = isinstance(X, (str, bytes, os.PathLike))
    is_array = isinstance(X, (Sequence, memoryview)) or any(hasattr(kind, name) for name in ARRAYS)
    if text_or_path or not is_array:
        msg = f"X must be an array or a data frame of shape (m, d), got {_named_for_matrix(X)}."
        raise TypeError(msg + _remedy_for_matrix(X))
    if not hasattr(X, "shape"):
        try:
            np.asarray(X)
        except ValueError:
            _refuse_ragged_matrix(X)


def refuse_what_is_no_matrix(X: Any) -> None:
    """Raise an error for an array on the host that has no rows and columns.

    Parameters
    ----------
    X : array-like
        What the user has passed.

    Raises
    ------
    ValueError
        If X is not two-dimensional, has no columns, or two columns of one name.
    TypeError
        If it is a data frame with sparse columns.
    """
    shape = X.shape if isinstance(getattr(X, "shape", None), tuple) else np.asarray(X).shape
    if len(shape) != 2:
        msg = f"X must have shape (m, d), rows and columns, got shape {shape}. "
        msg += ADVICE if len(shape) < 2 else "Reshape each row to one dimension."
        raise ValueError(msg)
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is not None:
        _refuse_matrix_columns(X, names)
    if not shape[1]:
        msg = f"X must have columns, got 0 feature(s) (shape={shape}) while a minimum of 1 is "
        msg += "required."
        raise ValueError(msg)


def _named_for_matrix(X: Any) -> str:
    """Return what an object is, in a few words."""
    return "None" if X is None else f"an object of type {type(X).__name__}"


def _remedy_for_matrix(X: Any) -> str:
    """Return a sentence that helps, with a blank before it."""
    if isinstance(X, (str, bytes, os.PathLike)):
        return " Read a file first, for instance by specialk_gpu.io.read_matrix(path)."
    if isinstance(X, Mapping):
        return " Turn a dictionary of columns into a data frame: pandas.DataFrame(X)."
    return " Turn it into a list: list(X)." if isinstance(X, Iterable) else ""


def _refuse_ragged_matrix(X: Sequence[Any]) -> NoReturn:
    lengths = [len(row) if hasattr(row, "__len__") else None for row in X]
    i = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
    if i is None:
        msg = "X must hold a number in each place of its rows, got sequences in some of them."
    else:
        first, other = ("no row" if n is None else f"{n} values" for n in (lengths[0], lengths[i]))
        msg = f"X must have rows of one length, got {first} in place 0, and {other} in place {i}."
    raise ValueError(msg)


def _refuse_matrix_columns(X: Any, names: Iterable[Any]) -> None:
    """Raise an error if columns of a data frame share a name or are sparse."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        msg = f"X must have columns of different names, got {twice[0]!r} more than once."
        raise ValueError(msg)
    if any(str(dtype).startswith("Sparse") for dtype in getattr(X, "dtypes", ())):
        msg = "X must have dense columns, got a data frame with sparse columns. Sparse data was "
        msg += "passed; densify it with X.sparse.to_dense()."
        raise TypeError(msg)


def refuse_non_numbers_in_matrix(X: Any, error: Exception) -> None:
    """Raise an error that shows the first entry that cannot be converted to a number, if any.

    Parameters
    ----------
    X : array-like of shape (m, d)
        What could not be converted.
    error : Exception
        What was said of it.

    Raises
    ------
    TypeError
        With the place of the entry.
    """
    values = np.asarray(X)
    if values.dtype != object or "contains NaN" in str(error):
        return
    for place, value in np.ndenumerate(values):
        try:
            float(value)
        except (TypeError, ValueError) as reason:
            row, column = place
            msg = f"X must hold numbers, got {_named_for_matrix(value)} in row {row}, "
            msg += f"column {column}: {reason}. Fill, convert or drop it first."
            raise TypeError(msg) from error
