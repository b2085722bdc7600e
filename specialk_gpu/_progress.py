"""Progress and timings of long computations: a listener, the log and progress bars."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, Protocol, TypeVar

from specialk_gpu._time_limit import check_time_limit

__all__ = [
    "ProgressClock",
    "announce_with_progress",
    "expect_progress",
    "logger",
    "report_progress",
    "show_progress_by_minute",
    "show_progress_by_stage",
]
__all__ += ["show_progress", "stages_told", "with_progress", "without_progress"]

T = TypeVar("T")
logger = logging.getLogger("specialk_gpu")

_listener: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("listener", default=None)
_display: ContextVar[_ProgressDisplay | None] = ContextVar("display", default=None)
_hushed: ContextVar[bool] = ContextVar("hushed", default=False)
logger.addFilter(lambda _record: not _hushed.get())
_told: ContextVar[Callable[[str], None] | None] = ContextVar("told", default=None)

WHOLE = "{desc}: {percentage:3.0f}% of the fit |{bar}| {elapsed}<{remaining}"
MINUTE = 60.0  # seconds between two lines
PART_OF = {"neighbours": "graph", "pairs within the radius": "graph"}  # stages of a fit


def report_progress(stage: str, done: int, total: int = 0) -> None:
    """Report that `done` of `total` parts of a stage are done; a `total` of 0 means unknown.

    A stage without a name is not reported. In both cases the computation ends here if it has to
    stop (see `specialk_gpu._time_limit`).
    """
    check_time_limit()
    listener = _listener.get()
    if stage and listener is not None:
        listener(stage, done, total)


def with_progress(results: Iterator[T], total: int, stage: str) -> Iterator[T]:
    """Yield the results; after each, report their number so far, if the stage has a name."""
    for done, result in enumerate(results, start=1):
        report_progress(stage, done, total)
        yield result


@contextmanager
def without_progress() -> Iterator[None]:
    """Tell the listener and the log nothing: of a part of a stage, whose own stages are many."""
    tokens = _listener.set(None), _display.set(None), _hushed.set(True)
    try:
        yield
    finally:
        _listener.reset(tokens[0])
        _display.reset(tokens[1])
        _hushed.reset(tokens[2])


def expect_progress(stages: Mapping[str, float]) -> None:
    """Say how long each stage of a fit will take, in any unit; a second plan is ignored."""
    display = _display.get()
    if display is not None and not display.expected:
        display.expected = dict(stages)


def announce_with_progress(message: str) -> None:
    """Log a message, and show it where progress is shown without the log."""
    logger.info(message)
    display = _display.get()
    if display is not None and not display.in_log:
        display.write(message)


class _Waits(Protocol):
    """A backend, as far as a clock knows it."""

    def synchronize(self) -> None: ...


class ProgressClock:
    """Measures and logs the seconds of one stage after another."""

    def __init__(self, bk: _Waits, timings: dict[str, float]) -> None:
        self.bk, self.timings, self.since = bk, timings, time.perf_counter()

    def stop(self, stage: str, detail: str) -> None:
        """Add the time since the last stop to the timing of `stage`, and log it."""
        self.bk.synchronize()
        now = time.perf_counter()
        self.timings[stage] = self.timings.get(stage, 0.0) + now - self.since
        if (display := _display.get()) is not None:
            display.finish(stage)
        logger.info("%s: %s, %.2f s", stage, detail, now - self.since)
        _tell_progress(stage)
        self.since = time.perf_counter()  # what callbacks take is of no stage

    def add(self, timings: Mapping[str, float]) -> None:
        """Add stages that ended by now, and that were measured elsewhere."""
        self.timings.update(timings)
        for stage in timings:
            _tell_progress(stage)


def _tell_progress(stage: str) -> None:
    if (told := _told.get()) is not None:
        told(stage)


@contextmanager
def stages_told(told: Callable[[str], None]) -> Iterator[None]:
    """Call `told` with the name of each stage that ends."""
    token = _told.set(told)
    try:
        yield
    finally:
        _told.reset(token)


@contextmanager
def show_progress() -> Iterator[None]:
    """Enable INFO messages (on standard error if logging is not set up) and progress bars."""
    with _listening, _progress_shown():
        yield


class _ProgressListening:
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


_listening = _ProgressListening()


@contextmanager
def show_progress_by_minute() -> Iterator[None]:
    """Write a line a minute on standard error, and nothing else: for what is piped."""
    with _progress_displayed(_ProgressLines(_line_to_stderr)):
        yield


@contextmanager
def show_progress_by_stage() -> Iterator[None]:
    """Show a bar on a terminal, if tqdm is installed; else write a line when a stage has ended."""
    with _progress_displayed(_progress_bars() or _ProgressStages(_line_to_stderr)):
        yield


@contextmanager
def _progress_shown() -> Iterator[None]:
    """Show a bar on a terminal or in a notebook, if tqdm is installed; else log a line a minute."""
    on_screen = sys.stderr.isatty() or "ipykernel" in sys.modules
    display = (_progress_bars() if on_screen else None) or _ProgressLines(logger.info)
    display.in_log = True
    with _progress_displayed(display):
        yield


def _line_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _progress_bars() -> _ProgressDisplay | None:
    """Return bars of tqdm, or None if it is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return _ProgressBars(tqdm)


@contextmanager
def _progress_displayed(display: _ProgressDisplay) -> Iterator[None]:
    tokens = _listener.set(display.show), _display.set(display)
    try:
        yield
    finally:
        _listener.reset(tokens[0])
        _display.reset(tokens[1])
        display.close()


class _ProgressDisplay:
    """What shows progress; knows how much of a fit is done, if its stages are expected."""

    in_log = False  # whether the log is shown too

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write  # shows a line
        self.expected: dict[str, float] = {}
        self.shares: dict[str, float] = {}

    def percent(self, stage: str, done: int, total: int) -> float | None:
        """Return how much of the fit is done, in percent; None for what is no stage of a fit."""
        own = PART_OF.get(stage, stage)
        if own not in self.expected:
            return None
        share = done / total if total else 0.0
        self.shares[own] = max(self.shares.get(own, 0.0), min(share, 1.0))
        spent = sum(self.expected[x] * share for x, share in self.shares.items())
        return 100 * spent / max(sum(self.expected.values()), 1e-300)

    def finish(self, stage: str) -> None:
        """Take note that a stage has ended; it may begin again, which then counts as done."""
        if stage in self.expected:
            self.show(stage, 1, 1)

    def show(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of a stage are done."""
        raise NotImplementedError  # each display has its own

    def close(self) -> None:
        """End the display."""


class _ProgressLines(_ProgressDisplay):
    """Says once a minute, in a line, how far a stage is."""

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__(write)
        self.last = time.monotonic()

    def show(self, stage: str, done: int, total: int) -> None:
        """Write a line if the last one is a minute ago."""
        percent, now = self.percent(stage, done, total), time.monotonic()
        if now - self.last < MINUTE:
            return
        self.last = now
        parts = f"{done:,} of {total:,}" if total else f"{done:,}"
        whole = "" if percent is None else f"; about {percent:.0f} % of the fit"
        self.write(f"{stage}: {parts}{whole}")


class _ProgressStages(_ProgressLines):
    """Says in a line that a stage of a fit has ended, and once a minute how far it is."""

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__(write)
        self.ended: set[str] = set()

    def finish(self, stage: str) -> None:
        """Write a line, once for each stage."""
        if stage in self.expected and stage not in self.ended:
            self.ended.add(stage)
            percent = self.percent(stage, 1, 1) or 0.0
            self.last = time.monotonic()
            self.write(f"{stage}: done; about {percent:.0f} % of the fit")


class _ProgressBars(_ProgressDisplay):
    """Shows one bar for a whole fit with its stages, or for a stage that is called on its own."""

    def __init__(self, tqdm: Any) -> None:
        super().__init__(_line_to_stderr)
        self.tqdm, self.stage = tqdm, ""
        self.bar: Any = None

    def show(self, stage: str, done: int, total: int) -> None:
        """Update the bar, or start it."""
        percent = self.percent(stage, done, total)
        name, settings = stage, {"total": total or None}
        if percent is not None:
            name, done, settings = "fit", round(percent), {"total": 100, "bar_format": WHOLE}
        if self.bar is None or name != self.stage:
            self.close()
            self.bar = self.tqdm(leave=False, delay=0.5, disable=None, desc=name, **settings)
            self.stage = name
        if percent is not None:
            self.bar.set_description(PART_OF.get(stage, stage), refresh=False)
        self.bar.update(max(0, done - self.bar.n))
        if percent is None and done >= total > 0:
            self.close()  # before the next log message

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None
