"""One contender on one case, in a fresh process: seconds, memory, and whether it is right."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.suite.cases import Case, Inputs, load, prepare
from specialk_gpu.backend import get_backend

__all__ = [
    "Contender",
    "Meter",
    "in_a_process",
    "measure",
    "prepare_apart",
    "resident_bytes",
]

ENOUGH = 10.0  # seconds: no call is repeated once the calls have taken this long
INTERVAL = 0.005  # seconds between two looks at the memory
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def always(_case: Case) -> str:
    """Say that every case may be tried."""
    return ""


class Contender(NamedTuple):
    """A way to solve a case.

    Attributes
    ----------
    name : str
    run : callable
        Takes the case and its inputs; returns the answer. Can be pickled.
    modules : tuple of str
        What it imports, before the clock starts; not installed without the first of them.
    backends : tuple of str
        Where it takes part.
    host : bool
        Whether it gets NumPy arrays on a CUDA machine too.
    refuse : callable
        Takes the case; returns why it is not worth trying, or "".
    compiles : bool
        Whether its first call compiles functions: others follow however long that took.
    """

    name: str
    run: Callable[[Case, Inputs], Any]
    modules: tuple[str, ...] = ()
    backends: tuple[str, ...] = ("numpy", "cuda")
    host: bool = False
    refuse: Callable[[Case], str] = always
    compiles: bool = False

    @property
    def installed(self) -> bool:
        """Whether the packages it needs are there."""
        return all(importlib.util.find_spec(x.partition(".")[0]) for x in self.modules)


def resident_bytes() -> int | None:
    """Return the host memory of this process now; None where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _device_bytes(bk: ModuleType) -> int:
    """Return what is in use on the device, by anyone, but for what CuPy's pool keeps unused."""
    unused = bk.xp.get_default_memory_pool().free_bytes()
    free, total = bk.xp.cuda.runtime.memGetInfo()
    return total - free - unused


class Meter:
    """Takes seconds, and with `memory` peak memory, from one stop to the next.

    Memory is looked at every five milliseconds and counted from what was held at the start: on
    the host the resident size, on a device all that is in use. `device_bytes` is what the device
    has lost in all at the end: the pool has kept what it ever took, and the inputs count too.
    """

    def __init__(self, bk: ModuleType, *, memory: bool) -> None:
        self.stages: dict[str, dict[str, Any]] = {}
        self.gauges: dict[str, Callable[[], int | None]] = {}
        if memory:
            self.gauges["peak_bytes"] = resident_bytes
            if bk.name == "cuda":
                self.gauges["device_peak_bytes"] = partial(_device_bytes, bk)
        self.bk, self.device_bytes = bk, None
        self.base = {name: read() for name, read in self.gauges.items()}
        self.gauges = {name: self.gauges[name] for name, x in self.base.items() if x is not None}
        self.peak = dict.fromkeys(self.gauges, 0)
        self.highest = dict(self.peak)
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _look(self) -> None:
        for name, read in self.gauges.items():
            self.peak[name] = max(self.peak[name], (read() or 0) - self.base[name])

    def _watch(self) -> None:
        while not self.ended.wait(INTERVAL):
            with self.lock:
                self._look()

    def __enter__(self) -> Meter:
        if self.gauges:
            self.thread.start()
        self.began = self.since = time.perf_counter()
        return self

    def stop(self, stage: str) -> None:
        """Book what was spent since the last stop under `stage`."""
        now = time.perf_counter()
        with self.lock:
            self._look()
            self.stages[stage] = {"seconds": now - self.since, **self.peak}
            self.highest = {name: max(x, self.highest[name]) for name, x in self.peak.items()}
            self.peak = dict.fromkeys(self.peak, 0)
        self.since = now

    def __exit__(self, *_: object) -> None:
        self.stop("rest")
        self.seconds = time.perf_counter() - self.began
        self.ended.set()
        if self.bk.name == "cuda":
            free, total = self.bk.xp.cuda.runtime.memGetInfo()
            self.device_bytes = total - free
        if self.gauges:
            self.thread.join()


def _call(contender: Contender, case: Case, inputs: Inputs, *, memory: bool) -> tuple[Any, Meter]:
    with Meter(inputs.bk, memory=memory) as meter:
        answer = contender.run(case, inputs._replace(stop=meter.stop))
        inputs.bk.synchronize()
    if len(meter.stages) == 1:  # no parts
        meter.stages = {}
    return answer, meter


def _measure(
    send: Callable[[dict[str, Any]], None],
    contender: Contender,
    check: Callable[[Case, Inputs, Any], dict[str, Any]],
    case: Case,
    backend: str,
    folder: Path,
    repeats: int,
) -> None:
    """Send a row with the first call once its answer is checked, and again after each repeat."""
    warnings.simplefilter("ignore")  # about the data, for people who cluster them
    began = time.perf_counter()
    for module in contender.modules:
        importlib.import_module(module)
    row: dict[str, Any] = {"import_seconds": time.perf_counter() - began}
    inputs = load(case, get_backend("numpy" if contender.host else backend), folder)
    answer, meter = _call(contender, case, inputs, memory=True)
    row |= check(case, inputs, answer)
    if "wrong" in row:
        send({"status": "wrong", "detail": row.pop("wrong"), **row})
        return
    del answer
    row |= {"status": "ok", "cold_seconds": meter.seconds, **meter.highest}
    if meter.device_bytes is not None:
        row["device_bytes"] = meter.device_bytes
    row |= {"stages": meter.stages, "warm_seconds": None, "seconds": [], "warm_stages": []}
    send(row)
    spent = 0.0 if contender.compiles else meter.seconds
    while len(row["seconds"]) < repeats and spent + sum(row["seconds"]) < ENOUGH:
        _, warm = _call(contender, case, inputs, memory=False)
        row["seconds"].append(warm.seconds)
        row["warm_stages"].append({name: x["seconds"] for name, x in warm.stages.items()})
        row["warm_seconds"] = statistics.median(row["seconds"])
        send(row)


def _end_with_parent() -> None:
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def _child(connection: Connection, function: Callable[..., None], arguments: tuple) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        function(connection.send, *arguments)
    except FAILURES as error:
        text = " ".join(str(error).split())[:300]
        connection.send({"status": "failed", "detail": f"{type(error).__name__}: {text}"})
    finally:
        connection.close()


def _context() -> Any:
    """Start processes that share nothing but imports: no thread, no device, no first call."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.suite.stages"])
    return context


def in_a_process(
    function: Callable[..., None], *arguments: Any, time_limit: float
) -> dict[str, Any]:
    """Call function(send, *arguments) in a fresh process; return the last row that it sent.

    The process is killed after `time_limit` seconds. A row with times is kept even then.
    """
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, function, arguments))
    process.start()
    sender.close()
    row: dict[str, Any] = {}
    deadline = time.monotonic() + time_limit
    stopped = False
    try:
        while not (stopped := not receiver.poll(max(0.0, deadline - time.monotonic()))):
            row = receiver.recv()
    except EOFError:
        pass
    finally:
        if stopped:
            process.kill()
        process.join()
        receiver.close()
    if stopped and not row:
        return {"status": "stopped", "detail": f"stopped after {time_limit:g} s"}
    if not row and process.exitcode:
        return {"status": "failed", "detail": f"its process ended with {process.exitcode}"}
    return row or {"status": "ok"}


def measure(
    contender: Contender,
    check: Callable[[Case, Inputs, Any], dict[str, Any]],
    case: Case,
    *,
    backend: str,
    folder: Path,
    repeats: int = 3,
    time_limit: float = 300.0,
) -> dict[str, Any]:
    """Measure a contender on a case whose inputs are in `folder`.

    Returns
    -------
    dict
        `status` is "ok", "wrong" (its answer; there are no times then), "not installed",
        "skipped", "stopped" (at the time limit) or "failed"; `detail` says why.
    """
    if not contender.installed:
        return {"status": "not installed", "detail": f"needs {contender.modules[0]}"}
    if reason := contender.refuse(case):
        return {"status": "skipped", "detail": reason}
    arguments = (contender, check, case, backend, folder, repeats)
    return in_a_process(_measure, *arguments, time_limit=time_limit)


def _prepare(_send: object, *arguments: Any) -> None:
    prepare(*arguments)


def prepare_apart(
    case: Case, backend: str, mnist: str | None, folder: Path, *, time_limit: float
) -> dict[str, Any]:
    """Write the inputs of a case, where the backend is needed in a process of its own."""
    if case.stage in ("knn", "fit"):
        prepare(case, "numpy", mnist, folder)
        return {"status": "ok"}
    return in_a_process(_prepare, case, backend, mnist, folder, time_limit=time_limit)
