"""The time limit of a fit, and the end of threads whose caller has failed or was interrupted.

Long loops call `check_time_limit`, most of them through `specialk_gpu._progress`. It raises an
exception if the computation has to stop. Each thread has its own list of reasons to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = [
    "Halted",
    "OutOfTime",
    "check_time_limit",
    "during",
    "lift_time_limit",
    "reasons_to_stop",
    "stops_when",
    "time_limit_was_reached",
    "time_limited",
]

reasons_to_stop: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("reasons", default=())


def check_time_limit() -> None:
    """Raise an exception if the computation of this thread has to stop."""
    for reason in reasons_to_stop.get():
        reason()


@contextmanager
def stops_when(*reasons: Callable[[], None]) -> Iterator[None]:
    """Let `check_time_limit` call these functions too, in this thread, which raise to stop it."""
    token = reasons_to_stop.set((*reasons_to_stop.get(), *reasons))
    try:
        yield
    finally:
        reasons_to_stop.reset(token)


class Halted(BaseException):
    """Ends a thread whose results nobody will read."""


class TimeLimit:
    """A time limit in seconds, which begins when it is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.since = seconds, time.monotonic()
        self.is_lifted, self.was_reached = False, False

    def __call__(self) -> None:
        """Raise `OutOfTime` after the limit, unless it was lifted."""
        if not self.is_lifted and self.spent() > self.seconds:
            self.was_reached = True
            raise OutOfTime(self)

    def spent(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.since


class OutOfTime(Exception):  # noqa: N818 - no error where something is known already
    """The time limit has passed; `stage` is the innermost stage that it cut short."""

    def __init__(self, limit: TimeLimit) -> None:
        super().__init__("the time limit has passed")
        self.limit, self.stage = limit, ""

    def __str__(self) -> str:
        """Return the limit, the stage and the seconds."""
        limit, stage = self.limit, f"in the stage {self.stage!r}" if self.stage else "at its start"
        return f"the fit came to time_limit={limit.seconds:g} {stage}, after {limit.spent():.1f} s"


@contextmanager
def during(stage: str) -> Iterator[None]:
    """Name the stage in an `OutOfTime` that has none yet."""
    try:
        yield
    except OutOfTime as end:
        end.stage = end.stage or stage
        raise


@contextmanager
def time_limited(seconds: float | None) -> Iterator[None]:
    """Limit the seconds that a computation takes until something is known; None means no limit."""
    if seconds is None:
        yield
        return
    try:
        with stops_when(TimeLimit(seconds)):
            yield
    except OutOfTime as end:
        msg = (
            f"{end}, before any number of clusters was tested. Raise time_limit "
            "(specialk_gpu.estimate says how long a fit takes), cluster a sample of the rows, or "
            "use fewer eigenvectors (n_components)."
        )
        raise TimeoutError(msg) from None


def time_limit_was_reached() -> bool:
    """Return whether a time limit ended a computation of this thread."""
    return any(getattr(reason, "was_reached", False) for reason in reasons_to_stop.get())


def lift_time_limit() -> None:
    """Lift the time limit: something is known, and what is left to do takes little time."""
    for reason in reasons_to_stop.get():
        if isinstance(reason, TimeLimit):
            reason.is_lifted = True
