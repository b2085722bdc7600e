"""Text from outside, such as names of files and columns, made fit for a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: object) -> str:
    r"""Return a text in which every character that could steer a terminal is an escape.

    Parameters
    ----------
    text : object
        What to show.

    Returns
    -------
    str
        With ``\x1b`` for the character ESC, and ``\xff`` for a byte 255 in a file name that is not
        UTF-8.

    Examples
    --------
    >>> print(printable("red\x1b[31m"))
    red\x1b[31m
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that Python could not decode
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")
