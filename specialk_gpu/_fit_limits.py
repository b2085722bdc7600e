"""The memory limit and the checkpoint of a fit, from its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

from specialk_gpu._checkpoint import Checkpoint, checkpointed, fingerprint
from specialk_gpu._host import on_host
from specialk_gpu._memory_limit import MemoryLimit, memory_limited
from specialk_gpu._parameters import Parameters
from specialk_gpu._version import __version__
from specialk_gpu._warnings import warn
from specialk_gpu.backend.typing import Backend

__all__ = ["limits_of_fit"]

# parameters that do not change the result
OF_NO_EFFECT = ("verbose", "time_limit", "memory_limit", "checkpoint", "backend", "min_recall")


@contextmanager
def limits_of_fit(parameters: Parameters, bk: Backend, X: Any) -> Iterator[None]:
    """Fit inside with `memory_limit` and `checkpoint`; X is the checked input.

    Raises
    ------
    ValueError
        If `checkpoint` is not in a folder that exists.
    TypeError
        If `random_state` is not an integer with `checkpoint`.

    Warns
    -----
    UserWarning
        If `memory_limit` has no effect, because the fit runs on a device.
    """
    size = parameters.memory_limit
    if size is not None and bk.name != "numpy":
        warn("memory_limit has no effect on a device: it is for the host.", UserWarning)
        size = None
    kept = None if parameters.checkpoint is None else _checkpoint_of(parameters, bk, X)
    folder = None if kept is None else str(kept.folder)
    limit = None if size is None else MemoryLimit(size, folder)
    with checkpointed(kept), memory_limited(limit):
        yield


def _checkpoint_of(parameters: Parameters, bk: Backend, X: Any) -> Checkpoint:
    """Return the checkpoint of this fit; its folder has the hash of all that decides the result."""
    folder = Path(parameters.checkpoint or "")
    if not folder.parent.is_dir() or (folder.exists() and not folder.is_dir()):
        msg = f"checkpoint must be a folder, or one to make in a folder that exists, got {folder}."
        raise ValueError(msg)
    given = vars(parameters)
    if not isinstance(given["random_state"], Integral):
        msg = (
            "random_state must be an integer with checkpoint, so that a fit that goes on is the "
            f"same, got {given['random_state']!r}."
        )
        raise TypeError(msg)
    decisive = sorted((x, given[x]) for x in given if x not in OF_NO_EFFECT)
    content = [(name, _content_of(value)) for name, value in decisive]
    return Checkpoint(folder / fingerprint(__version__, bk.name, on_host(X), *content), bk)


def _content_of(value: Any) -> Any:
    """Return a parameter in a form that has the same hash in another process."""
    if hasattr(value, "get_params"):
        return type(value).__name__, str(sorted(value.get_params().items()))
    return tuple(map(on_host, value)) if isinstance(value, tuple) else value
