"""Workers of a cluster that share the long loops of a fit (see `specialk_gpu.dask`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

__all__ = ["Arguments", "Store", "Workers", "with_workers", "workers"]

Arguments: TypeAlias = Sequence[Callable[[], tuple[Any, ...]]]
"""For each task a function that returns its arguments, which is called whenever they are sent."""

Store: TypeAlias = Callable[[int, Any], None]
"""Takes the number of a task and its result."""


class Workers(Protocol):
    """A cluster, as far as a fit knows it."""

    def map(
        self,
        function: Callable[..., Any],
        shared: Any,
        arguments: Arguments,
        store: Store,
        stage: str,
    ) -> None:
        """Call ``store(i, function(shared, *arguments[i]()))`` for all i, in any order.

        `function` is pure, and known by its name. `shared` is the same object in many calls.
        """
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
