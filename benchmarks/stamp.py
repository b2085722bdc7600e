"""Where results are kept, and how they are written: with the stamp of `specialk_gpu.stamp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specialk_gpu import stamp
from specialk_gpu.stamp import peak_bytes

__all__ = ["RESULTS", "peak_bytes", "write"]

RESULTS = Path(__file__).parent / "results"


def write(name: str, content: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write folder/name.json with the stamp."""
    return stamp.write(folder / f"{name}.json", content)
