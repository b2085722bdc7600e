"""The memory limit and the checkpoint of a fit, from its parameters."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from specialk_gpu._checkpoint import Checkpoint, checkpointed, fingerprint
from specialk_gpu._host import on_host
from specialk_gpu._memory_limit import memory_limited
from specialk_gpu._parameters import Parameters
from specialk_gpu._version import __version__
from specialk_gpu._warnings import warn
from specialk_gpu.backend.typing import Backend

__all__ = ["checkpoint_of_fit", "memory_limit_of_fit"]

# parameters that do not change the result
OF_NO_EFFECT = ("verbose", "time_limit", "memory_limit", "checkpoint", "backend", "client")


def memory_limit_of_fit(parameters: Parameters, bk: Backend) -> AbstractContextManager[None]:
    """Return a context for a fit within `memory_limit`; warn if a device does not heed it."""
    size = parameters.memory_limit
    if size is not None and bk.name != "numpy":
        warn("memory_limit has no effect on a device: it is for the host.", UserWarning)
        size = None
    return memory_limited(size)


def checkpoint_of_fit(parameters: Parameters, bk: Backend, X: Any) -> AbstractContextManager[None]:
    """Return a context for a fit of X, the checked input, with `checkpoint`.

    The folder of the fit has the hash of all that decides the result.

    Raises
    ------
    ValueError
        If `checkpoint` is not in a folder that exists.
    TypeError
        If `random_state` is not an integer.
    """
    if parameters.checkpoint is None:
        return nullcontext()
    folder = Path(parameters.checkpoint)
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
    name = fingerprint(__version__, bk.name, on_host(X), *content)
    return checkpointed(Checkpoint(folder / name, bk))


def _content_of(value: Any) -> Any:
    """Return a parameter in a form that has the same hash in another process."""
    if hasattr(value, "get_params"):
        return type(value).__name__, str(sorted(value.get_params().items()))
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(on_host, value)) if isinstance(value, tuple) else value
