"""Run many tasks over the cores, keep each result as a line of JSON, and go on where a run ended.

A file of results has a line with the stamp for every start of a run, and a line for every task that
is done. What a killed run left of a line is cut off.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from specialk_gpu._environment import describe_environment

__all__ = ["read", "run", "stamps"]

Task = dict[str, Any]
Row = dict[str, Any]


def run(
    function: Callable[[Task], Row], tasks: Iterable[Task], path: Path, *, jobs: int
) -> list[Row]:
    """Run function(task) for all tasks that `path` has no result of; return the rows of all.

    Parameters
    ----------
    function : callable
        Of a module, so that another process finds it. Takes a task and returns a dict for JSON.
    tasks : iterable of dict
        Each without a second like it.
    path : path
        The file of results, JSON lines.
    jobs : int
        Processes. Each has its share of the cores; one runs in this process, with all of them.

    Returns
    -------
    list of dict
        {"task": ..., "result": ..., "seconds": ...} in the order of the tasks. A task that failed
        has "error" instead of "result", and is tried again in the next run.
    """
    from tqdm import tqdm

    tasks = list(tasks)
    done = {_key(row["task"]): row for row in read(path) if "result" in row}
    todo = [task for task in tasks if _key(task) not in done]
    progress = tqdm(total=len(tasks), initial=len(tasks) - len(todo), desc=path.stem, smoothing=0.1)
    with progress, _opened(path, bool(todo)) as lines:
        for row in _results(function, todo, jobs):
            lines.write(json.dumps(row, allow_nan=False) + "\n")
            lines.flush()
            done[_key(row["task"])] = row
            progress.update()
    return [done[_key(task)] for task in tasks]


def read(path: Path) -> list[Row]:
    """Return the rows of a file of results, of each task the last."""
    if not path.exists():
        return []
    rows = _lines(path)
    return list({_key(row["task"]): row for row in rows if "task" in row}.values())


def stamps(path: Path) -> list[dict[str, Any]]:
    """Return the stamps of all runs that wrote to a file of results."""
    return [row["stamp"] for row in _lines(path) if "stamp" in row]


def _lines(path: Path) -> list[Row]:
    """Return what the lines hold; ValueError names one that is damaged."""
    out = []
    for number, line in enumerate(_whole(path).split(b"\n")[:-1], start=1):
        try:
            out.append(json.loads(line))
        except ValueError as error:
            msg = f"{path}, line {number} is damaged: {error}. Take it out to do its task again."
            raise ValueError(msg) from error
    return out


def _key(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def _whole(path: Path) -> bytes:
    """Return the content up to the last line that was written to its end."""
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _opened(path: Path, more: bool) -> Any:  # noqa: FBT001 - a private function
    """Open the file to append to it, less a broken line, and with the stamp of this run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        with path.open("rb+") as file:
            file.truncate(len(_whole(path)))
    lines = path.open("a", encoding="utf-8", newline="\n")
    if more:
        lines.write(json.dumps({"stamp": describe_environment()}) + "\n")
        lines.flush()
    return lines


def _results(function: Callable[[Task], Row], tasks: list[Task], jobs: int) -> Iterable[Row]:
    """Yield the row of each task as it ends."""
    if jobs == 1:
        yield from (_attempt(function, task) for task in tasks)
        return
    share = str(max(1, (os.cpu_count() or 1) // jobs))
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    os.environ.update(dict.fromkeys(before, share))  # read by the processes as they start
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_end_with_parent)
    try:
        futures = {pool.submit(_attempt, function, task): task for task in tasks}
        for future in as_completed(futures):
            try:
                yield future.result()
            except BrokenProcessPool as error:  # a process was killed: perhaps for its memory
                yield {"task": futures[future], "error": f"BrokenProcessPool: {error}"}
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _end_with_parent() -> None:
    """End this process when the one that started it does, even if that was killed."""

    def watch() -> None:
        parent_process().join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _attempt(function: Callable[[Task], Row], task: Task) -> Row:
    began = time.perf_counter()
    try:
        row = {"task": task, "result": function(task)}
        json.dumps(row, allow_nan=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one task's failure is a result
        row = {"task": task, "error": f"{type(error).__name__}: {error}"}
    return row | {"seconds": time.perf_counter() - began}
