"""The interface between the algorithms and the hardware.

A backend is a module: `cpu` (NumPy) or `gpu` (CuPy). Both modules define the same names.
`backend_of` finds the backend of an array, so no algorithm takes a device argument. Only the
estimator and the command line choose a backend, with `get_backend`. CuPy is imported in `gpu`
alone, and only if that module is needed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from specialk_gpu._progress import report_progress
from specialk_gpu._warn import warn
from specialk_gpu.backend import cpu
from specialk_gpu.backend.typing import Backend

if TYPE_CHECKING:
    from specialk_gpu.backend import gpu

    BOTH: tuple[Backend, Backend] = cpu, gpu  # a type checker compares both with the interface

BACKENDS = ("auto", "numpy", "cuda")
DLPACK_CUDA = (2, 13)  # device memory, managed memory
DRIVER = Path("/proc/driver/nvidia")  # where Linux reports on NVIDIA's driver


class Verdict(NamedTuple):
    """Whether CUDA runs: `reason` is None if it does; `broken` is True if it should but fails."""

    reason: str | None
    broken: bool = False


P = ParamSpec("P")
R = TypeVar("R")
_verdicts: dict[int, Verdict] = {}  # one per process id: a forked child may not use CUDA


def is_device_array(x: object) -> bool:
    """Return whether `x` lives on a CUDA device."""
    if type(x).__module__.partition(".")[0] in ("cupy", "cupyx"):
        return True
    if getattr(x, "__cuda_array_interface__", None) is not None:
        return True
    device = getattr(x, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in DLPACK_CUDA


def _gpu() -> Backend:
    """Import the CUDA backend, and CuPy with it."""
    return cast("Backend", import_module("specialk_gpu.backend.gpu"))


def backend_of(x: object) -> Backend:
    """Return the backend module that the array or sparse matrix `x` belongs to."""
    return _gpu() if is_device_array(x) else cpu


def map_tiles(
    bk: Backend,
    function: Callable[[slice], R],
    n_rows: int,
    bytes_per_row: int,
    stage: str = "",
) -> list[R]:
    """Apply `function` to one slice of rows after another, each as large as memory allows.

    If memory does not suffice after all, the slice is halved and tried again. `function` must
    therefore allow a second call for the same row. Progress is reported under `stage`, if given.

    Raises
    ------
    MemoryError
        If a 64th of the first slice is still too much. The message names the bytes needed and
        free.
    """
    step = tile_rows(bk, bytes_per_row)
    smallest = max(1, step // 64)
    results, start = [], 0
    while start < n_rows:
        rows = slice(start, min(start + step, n_rows))
        try:
            results.append(function(rows))
        except MemoryError as error:
            size = rows.stop - rows.start
            if size <= smallest:
                msg = (
                    f"a tile of {size} of {n_rows} rows needs about {size * bytes_per_row:,} "
                    f"bytes of work space, but {bk.free_memory():,} are free ({error})."
                )
                raise MemoryError(msg) from error
            step = max(smallest, size // 2)
            continue
        start = rows.stop
        if stage:
            report_progress(stage, start, n_rows)
    return results


def tile_rows(bk: Backend, bytes_per_row: int) -> int:
    """Return the number of rows in a tile of `bk.tile_bytes`, or of a 16th of the free memory."""
    return max(1, min(bk.tile_bytes, bk.free_memory() // 16) // max(bytes_per_row, 1))


def on_its_device(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate `function` to run with the device of its first argument as the current one."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        x = args[0] if args else next(iter(kwargs.values()), None)
        with backend_of(x).device_of(x):
            return function(*args, **kwargs)

    return run


def driver_version() -> int | None:
    """Return the newest CUDA that the NVIDIA driver runs (12090 is 12.9), None without a driver."""
    found = ctypes.c_int()
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        failed = driver.cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed or not found.value else found.value


def extra_for(version: int) -> str:
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
    return f"{cuda}, extra {extra_for(version)}"


def _advice() -> str:
    """Return what to do if CuPy is missing."""
    version = driver_version()
    if version is None and not DRIVER.exists():
        return "this machine has no NVIDIA driver, which CUDA needs"
    if version is None:
        return "install it with: pip install 'specialk-gpu[cuda12]' (or [cuda13])"
    if version < 12000:
        return f"NVIDIA driver: {driver_text()}"
    return f"install it with: pip install 'specialk-gpu[{extra_for(version)}]'"


def cuda_verdict() -> Verdict:
    """Test, once per process, whether CUDA can be used, by a small computation."""
    pid = os.getpid()
    if pid not in _verdicts:
        if any(verdict.reason is None for verdict in _verdicts.values()):
            verdict = Verdict(
                "this process was forked from one that had started CUDA; start workers with "
                "the 'spawn' method or with joblib's loky backend",
                broken=True,
            )
        else:
            try:
                verdict = Verdict(*import_module("specialk_gpu.backend.gpu").probe())
            except (ImportError, OSError, RuntimeError, AttributeError) as error:
                verdict = Verdict(
                    f"CuPy cannot be imported ({error}); {_advice()}",
                    broken=not isinstance(error, ModuleNotFoundError),
                )
        _verdicts[pid] = verdict
    return _verdicts[pid]


def get_backend(name: str, x: object = None) -> Backend:
    """Choose the backend for `name` and the input `x`.

    Parameters
    ----------
    name : {"auto", "numpy", "cuda"}
        "auto" takes CUDA if a device answers, and NumPy otherwise.
    x : array, optional
        The input. An array on a device needs the CUDA backend: it is never copied to the host
        without the user's request.

    Returns
    -------
    module
        `specialk_gpu.backend.cpu` or `specialk_gpu.backend.gpu`.

    Raises
    ------
    ValueError
        If `name` is unknown, or if it is "numpy" and `x` is on a device.
    RuntimeError
        If `name` is "cuda" or `x` is on a device, and CUDA cannot run.
    """
    if name not in BACKENDS:
        msg = f"backend must be one of {BACKENDS}, got {name!r}."
        raise ValueError(msg)
    on_device = is_device_array(x)
    if name == "numpy":
        if on_device:
            msg = (
                "backend='numpy' got an array on a CUDA device. Copy it to the host yourself, "
                "for instance with cupy.asnumpy(X), or use backend='cuda'."
            )
            raise ValueError(msg)
        return cpu
    reason, broken = cuda_verdict()
    if reason is None:
        return _gpu()
    if name == "cuda" or on_device:
        msg = f"backend='cuda' cannot run: {reason}. Use backend='numpy' to run on the CPU."
        raise RuntimeError(msg)
    if broken:
        warn(
            f"A CUDA installation was found but does not work: {reason}. Using NumPy.",
            RuntimeWarning,
        )
    return cpu


def describe_backends() -> list[dict[str, Any]]:
    """Describe both backends: name, available, reason, versions and devices."""
    rows = [{"name": "numpy", "available": True, "reason": None, **cpu.describe()}]
    reason = cuda_verdict().reason
    found: dict[str, Any] = {"versions": {}, "devices": []}
    if reason is None:
        found = _gpu().describe()
    rows.append({"name": "cuda", "available": reason is None, "reason": reason, **found})
    return rows
