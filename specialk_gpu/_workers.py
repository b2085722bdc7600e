"""Workers of a cluster that share the long loops of a fit (see `specialk_gpu.dask`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

__all__ = ["Loop", "Workers", "with_workers", "workers"]


class Loop(NamedTuple):
    """A loop of a fit: tasks that do not depend on each other.

    Attributes
    ----------
    stage : str
        The stage of the fit.
    function : callable
        Does a task. It is pure, and known by its name.
    shared : object
        The first argument of every task. Many loops share the same object.
    arguments : sequence of callable
        For each task a function that returns the other arguments. It is called whenever they are
        sent.
    store : callable
        Takes the number of a task and its result.
    """

    stage: str
    function: Callable[..., Any]
    shared: Any
    arguments: Sequence[Callable[[], tuple[Any, ...]]]
    store: Callable[[int, Any], object]


class Workers(Protocol):
    """A cluster, as far as a fit knows it."""

    def run(self, loop: Loop) -> None:
        """Call ``store(i, function(shared, *arguments[i]()))`` for all i, in any order."""
        ...


workers: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def with_workers(cluster: Workers) -> Iterator[None]:
    """Let a cluster share the loops that run inside, in this thread."""
    token = workers.set(cluster)
    try:
        yield
    finally:
        workers.reset(token)
