"""Sizes in a unit that suits them."""

from __future__ import annotations

import re

__all__ = ["bytes_of", "size_in_units"]

UNITS = {"b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def bytes_of(size: str) -> int | None:
    """Return the bytes of a size such as "1GB", "1.5 GiB" or "800m"; None if it is not one."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?\s*", size.lower())
    if found is None:
        return None
    number, unit, binary = found.groups()
    return int(float(number) * (BINARY_UNITS if binary else UNITS)[unit or "b"])


def size_in_units(n_bytes: int) -> str:
    """Write a number of bytes in GB, MB or kB, to two digits or so."""
    if n_bytes >= 1e9:
        return f"{n_bytes / 1e9:.1f} GB"
    if n_bytes >= 1e6:
        return f"{n_bytes / 1e6:.0f} MB"
    return f"{n_bytes / 1e3:.0f} kB" if n_bytes >= 1e3 else f"{n_bytes} bytes"
