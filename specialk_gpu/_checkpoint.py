"""The checkpoint of a fit: finished steps in a folder, from which a killed fit goes on.

Each fit has a folder of its own inside the one that is given, named by a hash of its data and
parameters. A step is a folder of arrays. It is written under another name, which changes when all
of it is on the disk, and is never changed after that. A fit that comes to its end takes its folder
away.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import RandomState

from specialk_gpu._progress import announce_with_progress
from specialk_gpu._time_limit import time_limit_was_reached
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.typing import Array, Backend

__all__ = ["Checkpoint", "checkpoint", "checkpointed", "fingerprint", "kept_step", "rounds_to_keep"]

CHUNK = 2**26  # bytes that are hashed at once
COUNT = "count"  # the file in a step that says how many arrays it has
PARTIAL = ".partial"  # ends the name of a step that is being written


class Checkpoint:
    """The finished steps of one fit.

    Parameters
    ----------
    folder : path
        Of this fit alone.
    bk : Backend
        Where arrays are read to.
    """

    def __init__(self, folder: Path, bk: Backend) -> None:
        self.folder, self.bk = folder, bk

    def has(self, step: str) -> bool:
        """Return whether a step is finished."""
        return (self.folder / step).is_dir()

    def read(self, step: str) -> list[Array] | None:
        """Return the arrays of a step; None if it was not finished.

        Raises
        ------
        ValueError
            If a file of it is damaged.
        """
        place = self.folder / step
        if not self.has(step):
            return None
        try:
            count = int((place / COUNT).read_text(encoding="ascii"))
            on_host = [np.load(place / f"{i}.npy", mmap_mode="r") for i in range(count)]
        except (OSError, ValueError, EOFError) as error:
            msg = f"the checkpoint {place} is damaged ({error}). Remove it, and fit again."
            raise ValueError(msg) from error
        return [self._on_backend(x) for x in on_host]

    def write(self, step: str, arrays: list[Array]) -> None:
        """Write the arrays of a finished step."""
        partial = self.folder / (step + PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for i, x in enumerate(arrays):
            with (partial / f"{i}.npy").open("wb") as stream:
                np.save(stream, self.bk.to_numpy(x), allow_pickle=False)
                stream.flush()
                os.fsync(stream.fileno())
        (partial / COUNT).write_text(str(len(arrays)), encoding="ascii")
        partial.replace(self.folder / step)

    def remove(self, pattern: str) -> None:
        """Remove the steps whose names match."""
        for place in list(self.folder.glob(pattern)):
            shutil.rmtree(place, ignore_errors=True)

    def _on_backend(self, x: np.ndarray) -> Array:
        """Copy a mapped array to the backend; text, and numbers alone, stay on the host."""
        if x.ndim == 0:
            return np.array(x)
        if self.bk.name != "numpy" or x.ndim != 2:
            return self.bk.asarray(np.array(x))
        out = large_array(self.bk, x.shape, x.dtype)
        out[...] = x
        return out


class Rounds:
    """The rounds of an iteration inside a step: each takes the place of the one before.

    Parameters
    ----------
    kept : Checkpoint
    name : str
        Of the iteration.
    """

    def __init__(self, kept: Checkpoint, name: str) -> None:
        self.kept, self.name = kept, name

    def last(self, rng: RandomState) -> tuple[int, list[Array]] | None:
        """Return the number of the next round, and the arrays of the last; set the generator."""
        places = self.kept.folder.glob(f"{self.name}.round-*[0-9]")
        numbers = [int(place.name.rpartition("-")[2]) for place in places]
        if not numbers:
            return None
        keys, others, *arrays = self.kept.read(self._step(max(numbers))) or []
        position, has_gauss, cached = others.tolist()
        rng.set_state(("MT19937", keys, int(position), int(has_gauss), cached))
        return max(numbers) + 1, arrays

    def keep(self, number: int, rng: RandomState, arrays: list[Array]) -> None:
        """Write a round, and then remove the one before."""
        state: Any = rng.get_state(legacy=True)
        self.kept.write(self._step(number), [state[1], np.array(state[2:]), *arrays])
        self.kept.remove(self._step(number - 1))

    def _step(self, number: int) -> str:
        return f"{self.name}.round-{number}"


checkpoint: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)
_iterations: ContextVar[Iterator[Rounds] | None] = ContextVar("iterations", default=None)


@contextmanager
def checkpointed(kept: Checkpoint | None) -> Iterator[None]:
    """Keep the steps of the fit that runs inside; remove them when it has come to its end.

    A fit that ends at its time limit has not: its steps are left for one with more time.

    Raises
    ------
    BlockingIOError
        If another fit uses the same checkpoint.
    """
    if kept is None:
        yield
        return
    is_known = kept.folder.is_dir()
    kept.folder.mkdir(parents=True, exist_ok=True)
    with _locked(kept.folder):
        if is_known:
            steps = sorted(x.name for x in kept.folder.iterdir() if x.suffix != PARTIAL)
            known = ", ".join(steps) or "no finished step"
            announce_with_progress(f"going on from the checkpoint: {known}")
        token = checkpoint.set(kept)
        try:
            yield
        finally:
            checkpoint.reset(token)
        if not time_limit_was_reached():
            shutil.rmtree(kept.folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other fits from a folder; the system frees it if this process is killed."""
    try:
        import fcntl
    except ImportError:  # Windows has no lock of folders
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(place)
        msg = (
            f"checkpoint {folder} is in use by another fit of the same data and parameters. Wait "
            "for it, or give another folder."
        )
        raise BlockingIOError(msg) from error
    try:
        yield
    finally:
        os.close(place)  # and frees it


def kept_step(
    step: str | Callable[[], str],
    make: Callable[[], list[Array]],
    kept: Checkpoint | None = None,
    *,
    with_rounds: bool = False,
) -> list[Array]:
    """Return the arrays of a step: those in the checkpoint, or those made now, which are kept.

    Parameters
    ----------
    step : str or callable
        The name of the step, or a function that makes it, if that takes time.
    make : callable
        Returns the arrays.
    kept : Checkpoint, optional
        The checkpoint, for a thread that does not know it.
    with_rounds : bool
        Whether iterations in `make` keep their rounds (see `rounds_to_keep`). They must begin in
        the same order each time, so all in one thread.
    """
    kept = kept or checkpoint.get()
    if kept is None:
        return make()
    step = step if isinstance(step, str) else step()
    found = kept.read(step)
    if found is None:
        rounds = (Rounds(kept, f"{step}.{i}") for i in itertools.count())
        token = _iterations.set(rounds if with_rounds else None)
        try:
            found = make()
        finally:
            _iterations.reset(token)
        kept.write(step, found)
        kept.remove(f"{step}.*")
    return found


def rounds_to_keep() -> Rounds | None:
    """Return where the iteration that begins now keeps its rounds; None if it is not to do so.

    The iterations of a step have numbers in the order in which they begin.
    """
    iterations = _iterations.get()
    return None if iterations is None else next(iterations)


def fingerprint(*content: Any) -> str:
    """Return a hash of arrays, sparse matrices and of the text of everything else."""
    found = hashlib.sha256()
    for x in content:
        if hasattr(x, "indptr"):
            found.update(fingerprint(x.data, x.indices, x.indptr).encode())
        elif isinstance(x, np.ndarray):
            found.update(f"{x.dtype.str}{x.shape}".encode())
            step = max(1, CHUNK // max(1, x[:1].nbytes))
            for i in range(0, len(x), step):
                found.update(np.ascontiguousarray(x[i : i + step]).data)
        elif isinstance(x, tuple):
            found.update(fingerprint(*x).encode())
        else:
            found.update(repr(x).encode())
    return found.hexdigest()[:20]
