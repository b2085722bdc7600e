"""Sizes in a unit that suits them."""

from __future__ import annotations

__all__ = ["size_in_units"]


def size_in_units(n_bytes: int) -> str:
    """Write a number of bytes in GB, MB or kB, to two digits or so."""
    if n_bytes >= 1e9:
        return f"{n_bytes / 1e9:.1f} GB"
    if n_bytes >= 1e6:
        return f"{n_bytes / 1e6:.0f} MB"
    return f"{n_bytes / 1e3:.0f} kB" if n_bytes >= 1e3 else f"{n_bytes} bytes"
