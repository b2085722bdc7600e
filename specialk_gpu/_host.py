"""Fitted attributes on the host: those on a device are copied."""

from __future__ import annotations

from typing import Any, NamedTuple

from specialk_gpu._result import SelectionPath
from specialk_gpu.backend import backend_of, is_device_array
from specialk_gpu.selection.merging import Tree

__all__ = ["OnDevice", "on_host"]


class OnDevice(NamedTuple):
    """A fitted array on the device, which is copied to the host when it is read."""

    array: Any
    host: Any = None  # its copy on the host, if there is one already


def on_host(value: Any) -> Any:
    """Return a fitted attribute with its arrays on the host; host arrays are not copied."""
    if isinstance(value, OnDevice):
        value = value.array if value.host is None else value.host
    if isinstance(value, SelectionPath):
        return _path_on_host(value)
    if isinstance(value, Tree):
        return value._replace(leaf=on_host(value.leaf))
    if not is_device_array(value):
        return value
    bk = backend_of(value)
    return value.get() if bk.sparse.issparse(value) else bk.to_numpy(bk.asarray(value))


def _path_on_host(path: SelectionPath) -> SelectionPath:
    """Return a path with its labels on the host; those of all candidates are copied at once."""
    labels = [step.labels for step in path]
    if not labels or not all(map(is_device_array, labels)):
        return path.with_labels(on_host)
    copied = iter(on_host(backend_of(labels[0]).xp.stack(labels)))
    return path.with_labels(lambda _: next(copied))
