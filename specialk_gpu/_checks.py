"""Checks of the numbers that a caller passes."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = ["checked_integer", "checked_positive"]


def checked_integer(
    name: str, value: Any, least: int, most: float = np.inf, what: str = "the largest"
) -> int:
    """Return an integer as Python's, which NumPy's short integers are too small for.

    Parameters
    ----------
    name : str
        The parameter, for the message.
    value : int
        An integer of Python or NumPy.
    least, most : int
        The limits, both allowed.
    what : str
        The meaning of `most`, for the message.

    Raises
    ------
    TypeError
        If the value is not an integer; a truth value is none.
    ValueError
        If it is out of range.
    """
    if not isinstance(value, Integral) or isinstance(value, (bool, np.bool)):
        msg = f"{name} must be an integer, got {value!r}."
        raise TypeError(msg)
    number = int(value)
    if not least <= number <= most:
        limits = f"at least {least}" if most == np.inf else f"between {least} and {what} ({most})"
        msg = f"{name} must {'be' if most == np.inf else 'lie'} {limits}, got {number}."
        raise ValueError(msg)
    return number


def checked_number(name: str, value: Any) -> float:
    """Return a real number as a float; raise a TypeError for anything else, and a truth value."""
    if not isinstance(value, Real) or isinstance(value, (bool, np.bool)):
        msg = f"{name} must be a number, got {value!r}."
        raise TypeError(msg)
    return float(value)


def checked_positive(name: str, value: Any) -> float:
    """Return a positive number as a float; raise a TypeError or ValueError for anything else."""
    number = checked_number(name, value)
    if not number > 0:
        msg = f"{name} must be positive, got {number}."
        raise ValueError(msg)
    return number
