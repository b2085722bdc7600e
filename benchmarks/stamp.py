"""Where results are kept, and how they are written: with the environment they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specialk_gpu import _environment as environment
from specialk_gpu._environment import peak_bytes

__all__ = ["RESULTS", "peak_bytes", "write"]

RESULTS = Path(__file__).parent / "results"


def write(name: str, content: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write folder/name.json with the stamp."""
    return environment.write_with_environment(folder / f"{name}.json", content)
