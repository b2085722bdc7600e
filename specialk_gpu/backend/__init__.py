"""The interface between the algorithms and the hardware.

A backend is a module: `cpu` (NumPy) or `gpu` (CuPy). Both modules define the same names.
`backend_of` finds the backend of an array, so no algorithm takes a device argument. Only the
estimator and the command line choose a backend, with `get_backend`. CuPy is imported in `gpu`
alone, and only if that module is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from specialk_gpu._warnings import warn
from specialk_gpu.backend import cpu
from specialk_gpu.backend.driver import driver_verdict
from specialk_gpu.backend.typing import Backend

if TYPE_CHECKING:
    from specialk_gpu.backend import gpu

    BOTH: tuple[Backend, Backend] = cpu, gpu  # a type checker compares both with the interface

BACKENDS = ("auto", "numpy", "cuda")
DLPACK_CUDA = (2, 13)  # device memory, managed memory
P = ParamSpec("P")
R = TypeVar("R")


def is_device_array(x: object) -> bool:
    """Return whether `x` lives on a CUDA device."""
    if type(x).__module__.partition(".")[0] in ("cupy", "cupyx"):
        return True
    if getattr(x, "__cuda_array_interface__", None) is not None:
        return True
    device = getattr(x, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in DLPACK_CUDA


def _gpu_backend() -> Backend:
    """Import the CUDA backend, and CuPy with it."""
    return cast("Backend", import_module("specialk_gpu.backend.gpu"))


def backend_of(x: object) -> Backend:
    """Return the backend module that the array or sparse matrix `x` belongs to."""
    return _gpu_backend() if is_device_array(x) else cpu


def on_its_device(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate `function` to run with the device of its first argument as the current one."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        x = args[0] if args else next(iter(kwargs.values()), None)
        with backend_of(x).device_of(x):
            return function(*args, **kwargs)

    return run


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
    reason, broken = driver_verdict()
    if reason is None:
        return _gpu_backend()
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
    reason = driver_verdict().reason
    found: dict[str, Any] = {"versions": {}, "devices": []}
    if reason is None:
        found = _gpu_backend().describe()
    rows.append({"name": "cuda", "available": reason is None, "reason": reason, **found})
    return rows
