"""Text from outside, such as names of files and columns, made fit for a terminal or a page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["printable", "printable_html_table"]


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
    return "".join(char if char.isprintable() else _printable_escape(char) for char in text)


def _printable_escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that Python could not decode
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


def printable_html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of HTML, in which all cells are shown as text."""
    top = "".join(f"<th>{html.escape(printable(cell))}</th>" for cell in head)
    lines = ("".join(f"<td>{html.escape(printable(cell))}</td>" for cell in row) for row in rows)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
