"""NVIDIA's driver and CuPy: whether CUDA can be used, and what to install."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "DriverVerdict",
    "driver_text",
    "driver_verdict",
    "driver_version",
    "pip_extra_for_driver",
]

DRIVER = Path("/proc/driver/nvidia")  # where Linux reports on NVIDIA's driver


class DriverVerdict(NamedTuple):
    """Whether CUDA runs: `reason` is None if it does; `broken` is True if it should but fails."""

    reason: str | None
    broken: bool = False


_verdicts: dict[int, DriverVerdict] = {}  # one per process id: a forked child may not use CUDA


def driver_version() -> int | None:
    """Return the newest CUDA that the NVIDIA driver runs (12090 is 12.9), None without a driver."""
    found = ctypes.c_int()
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        failed = driver.cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed or not found.value else found.value


def pip_extra_for_driver(version: int) -> str:
    """Return the pip extra whose CuPy runs with a driver for that CUDA version."""
    return "cuda13" if version >= 13000 else "cuda12"


def driver_text() -> str:
    """Describe which CUDA the driver runs, and which pip extra goes with it."""
    version = driver_version()
    if version is None:
        return "installed, but libcuda was not found" if DRIVER.exists() else "none"
    cuda = f"CUDA {version // 1000}.{version % 1000 // 10}"
    if version < 12000:
        return f"{cuda}, too old: CuPy 14 needs a driver for CUDA 12 or newer"
    return f"{cuda}, extra {pip_extra_for_driver(version)}"


def _driver_advice() -> str:
    """Return what to do if CuPy is missing."""
    version = driver_version()
    if version is None and not DRIVER.exists():
        return "this machine has no NVIDIA driver, which CUDA needs"
    if version is None:
        return "install it with: pip install 'cupy-cuda12x[ctk]' (or cupy-cuda13x[ctk])"
    if version < 12000:
        return f"NVIDIA driver: {driver_text()}"
    return f"install it with: pip install 'cupy-{pip_extra_for_driver(version)}x[ctk]'"


def driver_verdict() -> DriverVerdict:
    """Test, once per process, whether CUDA can be used, by a small computation."""
    pid = os.getpid()
    if pid not in _verdicts:
        if any(verdict.reason is None for verdict in _verdicts.values()):
            verdict = DriverVerdict(
                "this process was forked from one that had started CUDA; start workers with "
                "the 'spawn' method or with joblib's loky backend",
                broken=True,
            )
        else:
            try:
                verdict = DriverVerdict(*import_module("specialk_gpu.backend.gpu").probe())
            except (ImportError, OSError, RuntimeError, AttributeError) as error:
                verdict = DriverVerdict(
                    f"CuPy cannot be imported ({error}); {_driver_advice()}",
                    broken=not isinstance(error, ModuleNotFoundError),
                )
        _verdicts[pid] = verdict
    return _verdicts[pid]
