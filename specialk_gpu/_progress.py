"""How far a long computation has come, and how long it took, for whoever asks to be told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from types import ModuleType
from typing import Any

__all__ = ["Clock", "followed", "logger", "tell", "told"]

logger = logging.getLogger("specialk_gpu")

_listener: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("listener", default=None)


def tell(stage: str, done: int, total: int = 0) -> None:
    """Say that `done` of `total` parts of a stage are done; a total of 0 is not known."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)


def told(results: Iterator[Any], total: int, stage: str) -> Iterator[Any]:
    """Hand the results through, and tell how many there are by now, if the stage has a name."""
    for done, result in enumerate(results, start=1):
        if stage:
            tell(stage, done, total)
        yield result


class Clock:
    """Takes the seconds of one stage after another, and logs them."""

    def __init__(self, bk: ModuleType, timings: dict[str, float]) -> None:
        self.bk, self.timings, self.since = bk, timings, time.perf_counter()

    def stop(self, stage: str, detail: str) -> None:
        """Book the time since the last stop under `stage`, beside what is booked there."""
        self.bk.synchronize()
        now = time.perf_counter()
        self.timings[stage] = self.timings.get(stage, 0.0) + now - self.since
        logger.info("%s: %s, %.2f s", stage, detail, now - self.since)
        self.since = now


@contextmanager
def followed() -> Iterator[None]:
    """Let INFO through, to standard error if nobody listens, and show bars."""
    with _listening, _shown():
        yield


class _Listening:
    """Lets INFO through while at least one thread is inside."""

    def __init__(self) -> None:
        self.lock, self.users, self.level, self.handler = Lock(), 0, 0, None

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
    """Show a bar for each stage that takes long, with the time left, if tqdm is installed.

    On a terminal's standard error, or in a notebook; elsewhere nothing is shown.
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
    """One bar after another."""

    def __init__(self, tqdm: Any) -> None:
        self.tqdm, self.stage, self.bar = tqdm, "", None

    def show(self, stage: str, done: int, total: int) -> None:
        """Bring the bar of a stage up to date, or begin it."""
        if self.bar is None or stage != self.stage or done < self.bar.n:
            self.close()
            settings = {"leave": False, "delay": 0.5, "disable": None}
            self.bar = self.tqdm(desc=stage, total=total or None, **settings)
            self.stage = stage
        self.bar.update(done - self.bar.n)
        if done >= total > 0:
            self.close()  # before the log says something

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None
