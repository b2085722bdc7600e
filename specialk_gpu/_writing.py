"""Writing of files, whole or not at all: labels, summaries, reports and models.

Notes
-----
A file is written beside its target, under a name that nobody can guess, and takes the target's
place in one step at the end. Whoever reads the target finds the old file or the whole new one.
If the process is killed, a file whose name ends in ``.partial`` can stay behind; the target is
unharmed.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["write_text", "writing_whole"]


@contextmanager
def writing_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of `path` if the block ends without an error.

    On an error or an interruption the new file is removed, and `path` stays as it was. A symbolic
    link at `path` is kept: the file to which it points is replaced. The new file has the
    permissions of the old one; without an old one, those that `open` gives. A device or a pipe
    cannot be replaced and is written to directly.

    Parameters
    ----------
    path : str or path-like
        The target.

    Yields
    ------
    binary file
        To write to.

    Raises
    ------
    OSError
        If the file cannot be written. `filename` is `path`.
    """
    path, target = Path(path), Path(os.path.realpath(path))
    try:
        mode = path.stat().st_mode if path.exists() else None
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "Is a directory", str(path))
        if mode is not None and not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied", str(path))
        if mode is None or stat.S_ISREG(mode):
            with _writing_beside(target, mode) as stream:
                yield stream
        else:
            with path.open("wb") as stream:
                yield stream
    except OSError as error:
        if error.filename is None or Path(error.filename).parent == target.parent:
            error.filename = str(path)
            if error.filename2 is not None:
                del error.filename2  # None would be shown as "-> None"
        raise


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all.

    Parameters
    ----------
    path : str or path-like
        The target; see `writing_whole`.
    text : str
        The content. What UTF-8 cannot hold, such as a part of a file name in another encoding, is
        written as an escape.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with writing_whole(path) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))


@contextmanager
def _writing_beside(target: Path, mode: int | None) -> Iterator[IO[bytes]]:
    """Yield a new file in the folder of the target, and move it there at the end."""
    partial = target.with_name(f".{secrets.token_hex(16)}.partial")
    # O_EXCL: the name must be free, and is never that of a link.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(partial, flags, 0o666), "wb") as stream:
            if mode is not None:
                partial.chmod(mode & 0o777)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_after_writing(target.parent)


def _sync_after_writing(folder: Path) -> None:
    """Make the new name last through a power cut, where the system can."""
    if os.name != "posix":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError:  # some file systems cannot; the content of the file is safe already
        pass
    finally:
        os.close(number)
