"""What the user asks for: which columns of a table, and what to do with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specialk_gpu.tables.table import listed

__all__ = ["Choice"]


@dataclass(frozen=True)
class Choice:
    """What the user asks for.

    Attributes
    ----------
    columns : tuple of str
        The only columns to use; empty for all.
    drop : tuple of str
        Columns to leave out.
    id_column : str or None
        A column of ids, which is not used.
    one_hot : tuple of str
        Columns to replace by one column of 0 and 1 for each value.
    missing : {"drop", "median"} or None
        What to do with rows that have blanks.
    scale : {"standard", "robust"} or None
        How to scale the columns of numbers.
    """

    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    id_column: str | None = None
    one_hot: tuple[str, ...] = ()
    missing: str | None = None
    scale: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that are used because the user named them."""
        return self.columns + self.one_hot

    def as_text(self, order: list[str], *, header: bool) -> tuple[str, ...]:  # noqa: ARG002
        """Return the columns that are read as text; raise a ValueError if any is not there."""
        self.check(order)
        return self.one_hot + ((self.id_column,) if self.id_column is not None else ())

    def __bool__(self) -> bool:
        """Return whether anything is asked for."""
        return self != Choice()

    def check(self, order: Sequence[str]) -> None:
        """Raise a ValueError if a column is not in the table, or has two uses."""
        uses = {"--columns": self.columns, "--drop": self.drop, "--one-hot": self.one_hot}
        uses["--id-column"] = (self.id_column,) if self.id_column is not None else ()
        for flag, names in uses.items():
            absent = [name for name in names if name not in order]
            if absent:
                msg = f"{flag} names {listed(absent)}, but the columns are {listed(order)}"
                raise ValueError(msg)
        for flag in ("--columns", "--one-hot", "--id-column"):
            both = [name for name in uses[flag] if name in self.drop]
            if both:
                msg = f"{flag} and --drop both name {listed(both)}"
                raise ValueError(msg)
        if self.id_column is not None and self.id_column in self.named:
            msg = f"the id column {self.id_column!r} cannot be used as a column of numbers too"
            raise ValueError(msg)

    def used(self, order: Iterable[str]) -> list[str]:
        """Return the columns to use, in the order of the file."""
        return [
            name
            for name in order
            if (not self.columns or name in self.named)
            and name not in self.drop
            and name != self.id_column
        ]
