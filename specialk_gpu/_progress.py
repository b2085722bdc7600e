"""Progress and timings of long computations: a listener, the log and progress bars."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, Protocol, TypeVar

from specialk_gpu._deadline import check

__all__ = ["Clock", "show_progress", "logger", "report_progress", "with_progress"]

T = TypeVar("T")
logger = logging.getLogger("specialk_gpu")

_listener: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("listener", default=None)


def report_progress(stage: str, done: int, total: int = 0) -> None:
    """Report that `done` of `total` parts of a stage are done; a `total` of 0 means unknown.

    A stage without a name is not reported. In both cases the computation ends here if it has to
    stop (see `specialk_gpu._deadline`).
    """
    check()
    listener = _listener.get()
    if stage and listener is not None:
        listener(stage, done, total)


def with_progress(results: Iterator[T], total: int, stage: str) -> Iterator[T]:
    """Yield the results; after each, report their number so far, if the stage has a name."""
    for done, result in enumerate(results, start=1):
        report_progress(stage, done, total)
        yield result


class _Waits(Protocol):
    """A backend, as far as a clock knows it."""

    def synchronize(self) -> None: ...


class Clock:
    """Measures and logs the seconds of one stage after another."""

    def __init__(self, bk: _Waits, timings: dict[str, float]) -> None:
        self.bk, self.timings, self.since = bk, timings, time.perf_counter()

    def stop(self, stage: str, detail: str) -> None:
        """Add the time since the last stop to the timing of `stage`, and log it."""
        self.bk.synchronize()
        now = time.perf_counter()
        self.timings[stage] = self.timings.get(stage, 0.0) + now - self.since
        logger.info("%s: %s, %.2f s", stage, detail, now - self.since)
        self.since = now


@contextmanager
def show_progress() -> Iterator[None]:
    """Enable INFO messages (on standard error if logging is not set up) and progress bars."""
    with _listening, _shown():
        yield


class _Listening:
    """Enables INFO messages while at least one thread is inside the context."""

    def __init__(self) -> None:
        self.lock, self.users, self.level = Lock(), 0, 0
        self.handler: logging.Handler | None = None

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.level = logger.level
                logger.setLevel(logging.INFO)
                if not logger.hasHandlers():
                    self.handler = logging.StreamHandler()
                    logger.addHandler(self.handler)
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                logger.setLevel(self.level)
                if self.handler is not None:
                    logger.removeHandler(self.handler)
                    self.handler = None


_listening = _Listening()


@contextmanager
def _shown() -> Iterator[None]:
    """Show a progress bar with the time left for each long stage, if tqdm is installed.

    Bars appear on standard error if it is a terminal, or in a notebook; nowhere else.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield
        return
    bars = _Bars(tqdm)
    token = _listener.set(bars.show)
    try:
        yield
    finally:
        _listener.reset(token)
        bars.close()


class _Bars:
    """Shows one progress bar at a time."""

    def __init__(self, tqdm: Any) -> None:
        self.tqdm, self.stage = tqdm, ""
        self.bar: Any = None

    def show(self, stage: str, done: int, total: int) -> None:
        """Update the bar of a stage, or start it."""
        if self.bar is None or stage != self.stage or done < self.bar.n:
            self.close()
            settings = {"leave": False, "delay": 0.5, "disable": None}
            self.bar = self.tqdm(desc=stage, total=total or None, **settings)
            self.stage = stage
        self.bar.update(done - self.bar.n)
        if done >= total > 0:
            self.close()  # before the next log message

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None
