"""Pieces of the pages that are written from results."""

from __future__ import annotations

from typing import Any

__all__ = ["NOT_YET", "OLD_RULE", "machine", "megabytes", "seconds", "table", "with_figures"]

NOT_YET = "Not measured yet."
OLD_RULE = "the rule before fragments and merging"  # what decided by default up to 08bcf73
BEGIN, END = "<!-- figures: python -m benchmarks.tables -->", "<!-- end of figures -->"


def with_figures(text: str, figures: str) -> str:
    """Return a page with new figures between the two marks that it has."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{figures}{END}{rest.split(END)[1]}"


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Lay out a Markdown table."""
    lines = [head, ["---:"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def machine(stamp: dict[str, Any]) -> str:
    """Say where results with this stamp were measured."""
    versions = ", ".join(f"{name} {version}" for name, version in stamp["versions"].items())
    where = ", ".join([*stamp["gpu"], f"{stamp['processor']}, {stamp['cores']} cores"])
    return f"{where}; Python {stamp['python']}, {versions}; {stamp['date'][:10]}."


def seconds(x: float | None) -> str:
    """Write seconds to three digits."""
    if x is None:
        return ""
    return f"{1000 * x:.3g} ms" if x < 0.1 else f"{x:.3g} s" if x < 1000 else f"{x:.0f} s"


def megabytes(row: dict[str, Any]) -> str:
    """Write the peak memory, on the device where it was measured there."""
    peak = row.get("device_peak_bytes", row.get("peak_bytes"))
    return "" if peak is None else f"{peak / 1e6:,.0f} MB"
