"""Put small errors into the core, one at a time, and count those that the tests notice.

Run as `python tests/mutants.py FOLDER --seed 1 --mutants 300`. A sample of all mutants, which
`mutations.py` makes, is drawn by the seed. Each is run against the tests that reach its line, the
quickest first, until one fails. Everything happens in temporary copies. FOLDER holds which tests
reach which line, measured again for a file of tests when it changes, and a line for each mutant: a
run that was stopped goes on where it was, and `--again` repeats the mutants that lived. Mutants
that no test can notice are listed, each with its reason, in `equivalent_mutants.toml`; they are
not counted.

Two shares are printed. `code` is the one that counts, and that `--least` is about. `tuned` are
the numbers that modules name in capitals: benchmarks have set them, their neighbours are as right,
and tests should rather not fix them. Numbers in capitals that have one right value are code: see
`EXACT` in `mutations.py`.
"""

import argparse
import collections
import functools
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import xml.etree.ElementTree as ET
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import hypothesis  # noqa: F401  what tests import is loaded once, before the processes fork
import numpy as np  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pytest
import scipy.sparse.linalg  # noqa: F401
import sklearn.cluster  # noqa: F401
from coverage import CoverageData
from mutations import TUNED, Mutant, mutants_of, swap

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "specialk_gpu"
ROOMS = {
    "neighbours": ["graph/*.py"],
    "spectrum": ["spectrum/*.py"],
    "bound": ["selection/zz_top.py", "selection/sweep.py"],
    "cut test": ["selection/*.py"],
    "k-means": ["lloyd/*.py"],
    "storage": ["_storage.py", "_schema.py", "_writing.py"],
    "files": ["io/*.py", "tables/*.py"],
}
LEFT_OUT = {"bench", "baselines", "rivals", "selection_check", "docs", "plot", "datasets"}
LEFT_OUT |= {"browser", "compare", "history", "mutants", "suites_of_others"}
EQUIVALENT = "tests/equivalent_mutants.toml"
FIRST_SECONDS = 4.0
NOT_SWAPPED = 71
MOST_MEMORY = 12 << 30
LOADED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
PYTEST = ["-q", "-W", "error", "-W", LOADED, "-p", "no:cacheprovider", "-p", "no:xdist"]
ALONE = [*PYTEST, "-s", "-p", "no:pytest_cov", "--hypothesis-seed=0"]


own = SimpleNamespace()  # what each process of a pool has of its own: see `set_up`


def watch(seconds, item, report):
    """Write down which test runs, and end the process if it takes far longer than it should."""
    report.write_text(item.nodeid)
    signal.setitimer(signal.ITIMER_REAL, 10 + 10 * seconds[item.nodeid])


class Chosen:
    """A plugin of pytest: these tests alone, in this order, each within its time."""

    def __init__(self, seconds, report):
        self.seconds, self.report = seconds, report
        self.order = {test: i for i, test in enumerate(seconds)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid in self.order]
        items.sort(key=lambda item: self.order[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        watch(self.seconds, item, self.report)
        return (yield)


class Collected:
    """A plugin of pytest that collects all tests once, and runs mutants against them in forks."""

    def __init__(self, theirs, requests, report):
        self.theirs, self.requests, self.report = theirs, requests, report

    def pytest_runtestloop(self, session):
        self.theirs.close()  # so that the end of the other process is the end of this one
        items = {item.nodeid: item for item in session.items}
        self.requests.send(len(items))  # all is loaded: files may change from now on
        while True:
            request = self.requests.recv()
            limit = 60 + 10 * sum(request[2].values())
            run = functools.partial(self.run, session, items, *request)
            self.requests.send(in_fork(own.folder, limit, run))

    def run(self, session, items, mutant, source, seconds):
        if not swap(mutant, source):
            return NOT_SWAPPED
        order = [items[test] for test in seconds]
        for item, following in zip(order, [*order[1:], None], strict=True):
            watch(seconds, item, self.report)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return 1
        return 0


def start(folder, function):
    """Call the function in a process of its own, with `folder` as its home; return its number."""
    if child := os.fork():
        return child
    code = 70
    try:
        os.setsid()
        os.chdir(folder / "repo")
        scratch = folder / "scratch"
        scratch.mkdir(exist_ok=True)
        os.environ |= {"TMPDIR": str(scratch), "PYTHONPATH": str(folder / "repo")}
        tempfile.tempdir = None
        sys.path.insert(0, str(folder / "repo"))
        with (folder / "log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        code = int(function())
    except BaseException:  # noqa: BLE001
        (folder / "log").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def in_fork(folder, limit, function):
    """Call the function in a process of its own; return how it ended, at the latest at `limit`."""
    child, stop = start(folder, function), time.monotonic() + limit
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < stop:
        time.sleep(0.01)
        ended, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    return os.waitstatus_to_exitcode(status) if ended else -signal.SIGALRM


def copy_of_repository(parent):
    """Return a temporary folder with a copy of the files that git knows, in `repo`."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (folder / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "repo" / name)
    return folder


def set_up(copies, kills=None, files=()):
    """Prepare a process of the pool: a copy of its own, and a fork that has collected the tests."""
    own.folder, own.kills = copy_of_repository(copies), kills
    own.proven, own.unfit = set(), set()
    if files:
        here, there = multiprocessing.Pipe()
        own.requests = here
        plugin = Collected(here, there, own.folder / "test")
        run = functools.partial(pytest.main, [*files, *ALONE], plugins=[plugin])
        start(own.folder, run)
        there.close()
        here.recv()


def measure(task):
    """Run one file of tests; store which of its tests reach which line, and their seconds."""
    name, target = task
    coverage, report = target.with_suffix(".coverage"), own.folder / "tests.xml"

    def run():
        os.environ["COVERAGE_FILE"] = str(own.folder / "coverage")
        options = [f"--cov={PACKAGE}", "--cov-context=test", "--cov-report="]
        return pytest.main([name, *PYTEST, *options, f"--junitxml={report}"])

    code = in_fork(own.folder, 1800, run)
    if code not in (0, 1, 5):
        message = f"{name}: ended with {code}\n{(own.folder / 'log').read_text()}"
        raise RuntimeError(message)
    seconds = {}
    for case in ET.parse(report).iter("testcase"):
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            test = f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"
            seconds[test] = float(case.get("time"))
        elif any(child.tag != "skipped" for child in case):
            print(f"left out, it fails without a mutant: {name} {case.get('name')}", flush=True)
    if (own.folder / "coverage").exists():
        shutil.move(own.folder / "coverage", coverage)
    target.write_text(json.dumps(seconds))


def digest(*patterns):
    content = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        content.update(path.read_bytes())
    return content.hexdigest()[:16]


def reached(home, pool, modules):
    """Return the seconds of every test, and for each (path, line) the tests that reach it."""
    package = digest(f"{PACKAGE}/**/*.py", "tests/conftest.py")
    names = sorted(
        str(path.relative_to(ROOT))
        for path in ROOT.glob("tests/test_*.py")
        if path.stem.removeprefix("test_") in modules
    )
    maps = {n: home / f"{Path(n).stem}-{digest(n)}-{package}.json" for n in names}
    tasks = [(name, path) for name, path in maps.items() if not path.exists()]
    for i, _ in enumerate(pool.imap_unordered(measure, tasks), 1):
        print(f"lines reached: {i} of {len(tasks)} files of tests", flush=True)
    seconds, tests = {}, collections.defaultdict(set)
    for path in maps.values():
        seconds |= json.loads(path.read_text())
        if not path.with_suffix(".coverage").exists():
            continue
        data = CoverageData(str(path.with_suffix(".coverage")))
        data.read()
        for file in data.measured_files():
            name = file[file.rindex(f"/repo/{PACKAGE}/") + len("/repo/") :]
            for line, contexts in data.contexts_by_lineno(file).items():
                tests[name, line] |= {context.split("|")[0] for context in contexts}
    return seconds, tests


def tests_for(mutant, seconds, reaching, most):
    """Return the tests of a mutant with their seconds: those that reach it, then their neighbours.

    What runs on import is reached by none, or by tests that import it anew: those that reach the
    file at all follow. What a test keeps for later ones is reached by the first of them alone: the
    other tests of the same files follow.
    """
    lines = range(mutant.line, mutant.last_line + 1)
    direct = {t for line in lines for t in reaching[mutant.path, line]} & seconds.keys()
    users = set()
    if any("" in reaching[mutant.path, line] for line in lines):
        users = {t for (p, _), ts in reaching.items() if p == mutant.path for t in ts}
        users = (users & seconds.keys()) - direct
    files = {test.split("::")[0] for test in direct | users}
    others = {test for test in seconds if test.split("::")[0] in files} - direct - users
    chosen, total = {}, 0.0
    for group in (direct, users, others):
        for test in sorted(group, key=lambda test: (seconds[test], test)):
            total += seconds[test]
            if total <= most or not chosen:
                chosen[test] = seconds[test]
    return chosen


def try_mutant(task):
    """Run a mutant against its tests; return its outcome, and what noticed it.

    A test that notices something for the first time is repeated without a mutant, after the same
    tests as before. If it fails again, it is left out.
    """
    mutant, chosen = task
    started, none = time.monotonic(), Mutant(mutant.path, 1, 1, 0, 0, "", "none", "", "")
    while True:
        chosen = {name: s for name, s in chosen.items() if name not in own.unfit}
        tests = sorted(chosen, key=lambda test: (chosen[test] / (1 + own.kills[test]), test))
        order = {test: chosen[test] for test in tests}
        outcome, test = attempt(mutant, order)
        if test not in order or test in own.proven:
            break
        before = {name: order[name] for name in tests[: tests.index(test) + 1]}
        own.proven.add(test)
        if attempt(none, before)[0] == "survived":
            break
        print(f"left out, it fails without a mutant: {test}", flush=True)
        own.unfit.add(test)
    own.kills[test] += 1
    return mutant, outcome, test, time.monotonic() - started


def attempt(mutant, order):
    """Run a mutant against tests in this order; return its outcome, and what noticed it."""
    path, report = own.folder / "repo" / mutant.path, own.folder / "test"
    source = path.read_bytes()
    path.write_bytes(mutant.apply(source))
    forget_compiled(path)
    own.requests.send((mutant, source, order))
    if (code := own.requests.recv()) == NOT_SWAPPED:
        code = run_anew(order, report)
    outcome = {0: "survived", -signal.SIGALRM: "timeout"}.get(code, "killed")
    test = report.read_text() if report.exists() and code else "" if not code else "(on import)"
    path.write_bytes(source)
    forget_compiled(path)
    report.unlink(missing_ok=True)
    return outcome, test


def forget_compiled(path):
    """Remove what Python compiled: files of one second and one size look the same to it."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def run_anew(order, report):
    """Run a mutant in a process that has loaded nothing: some quick tests, then the rest."""
    parts, total = ({}, {}), 0.0
    for test, seconds in order.items():
        total += seconds
        parts[bool(parts[0]) and total > FIRST_SECONDS][test] = seconds
    for part in parts:
        files = list(dict.fromkeys(test.split("::")[0] for test in part))
        plugin = Chosen(part, report)
        run = functools.partial(pytest.main, [*files, "-x", *ALONE], plugins=[plugin])
        if files and (code := in_fork(own.folder, 60 + 10 * sum(part.values()), run)):
            return code
    return 0


def all_mutants():
    """Return the mutants of each room, and those that no test can notice."""
    known = tomllib.loads((ROOT / EQUIVALENT).read_text())
    names = {entry["path"]: entry["names"] for entry in known["constants"]}
    equivalent = {
        (entry["path"], entry[side])
        for kind, side in (("line", "before"), ("mutant", "after"))
        for entry in known[kind]
    }
    rooms, left_out, there = {}, set(), set()
    for room, patterns in ROOMS.items():
        for path in sorted({p for pattern in patterns for p in (ROOT / PACKAGE).glob(pattern)}):
            name = str(path.relative_to(ROOT))
            found = mutants_of(name, path.read_bytes())
            left_out |= {*found} - {*mutants_of(name, path.read_bytes(), names.get(name, ()))}
            for mutant in found:
                rooms.setdefault(mutant, room)
                texts = {(name, mutant.before), (name, mutant.after)}
                there |= texts
                left_out |= {mutant} if texts & equivalent else set()
    if gone := equivalent - there:
        sys.exit(f"{EQUIVALENT} lists what is no mutant: {gone}")
    return rooms, left_out


def draw(rooms, left_out, wanted, seed, number):
    """Return mutants of the wanted rooms; those of a seed are the same whatever is left out."""
    order = sorted(rooms, key=lambda m: (m.path, m.start, m.end, m.text))
    random.Random(seed).shuffle(order)
    return [m for m in order if rooms[m] in wanted and m not in left_out][:number]


def key(entry):
    return entry["path"], entry["line"], entry["before"], entry["after"]


def entry_of(room, mutant, outcome, test, seconds):
    """Return what the file of results says of a mutant."""
    names = "path", "line", "kind", "before", "after"
    of_mutant = {name: getattr(mutant, name) for name in names}
    return (
        {"room": room}
        | of_mutant
        | {"outcome": outcome, "test": test, "seconds": round(seconds, 1)}
    )


def pool_of(processes, *arguments):
    return multiprocessing.get_context("fork").Pool(processes, set_up, arguments)


def summarise(entries):
    """Print how many mutants were killed: in each room, in all code, and of tuned numbers."""
    code, tuned = [], []
    for entry in entries:
        (tuned if entry["kind"] == TUNED else code).append(entry)
    rows = {room: [e for e in code if e["room"] == room] for room in ROOMS}
    rows |= {"code": code, "tuned": tuned}
    shares = {}
    for name, row in rows.items():
        count = collections.Counter(entry["outcome"] for entry in row)
        if count:
            shares[name] = 1 - count["survived"] / count.total()
            print(
                f"{name:12} {count.total():5} mutants {count['killed']:5} killed"
                f" {count['timeout']:4} out of time {count['survived']:4} survived"
                f" {shares[name]:7.1%}"
            )
    return shares.get("code", 1.0)


def main():
    modules = [path.stem.removeprefix("test_") for path in ROOT.glob("tests/test_*.py")]
    default = set(modules) - LEFT_OUT
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--again", action="store_true", help="repeat the mutants that lived")
    parser.add_argument("--tests", nargs="+", choices=modules, default=sorted(default))
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for each mutant")
    parser.add_argument("--least", type=float, default=0.0, help="fail below this share of `code`")
    options = parser.parse_args()
    home = options.folder.resolve()
    (home / "map").mkdir(parents=True, exist_ok=True)
    results = home / f"mutants-{options.seed}.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    done = {key(entry): entry for entry in map(json.loads, lines)}
    room_of, left_out = all_mutants()
    drawn = draw(room_of, left_out, options.rooms, options.seed, options.mutants)
    with tempfile.TemporaryDirectory(prefix="mutants-") as copies:
        with pool_of(options.processes, copies) as pool:
            seconds, reaching = reached(home / "map", pool, set(options.tests))
        tasks = [
            (mutant, tests_for(mutant, seconds, reaching, options.seconds))
            for mutant in drawn
            if (old := done.get(key(vars(mutant)))) is None
            or (options.again and old["outcome"] == "survived")
        ]
        files = sorted({test.split("::")[0] for _, chosen in tasks for test in chosen})
        kills = collections.Counter(entry["test"] for entry in done.values())
        with pool_of(options.processes, copies, kills, files) as pool, results.open("a") as out:
            for mutant, *found in pool.imap_unordered(try_mutant, tasks):
                entry = entry_of(room_of[mutant], mutant, *found)
                done[key(entry)] = entry
                print(json.dumps(entry), file=out, flush=True)
                if entry["outcome"] == "survived":
                    place = f"{mutant.path}:{mutant.line}"
                    print(f"{place}: {mutant.before} -> {mutant.after}", flush=True)
    if summarise([done[key(vars(m))] | {"kind": m.kind} for m in drawn]) < options.least:
        sys.exit(f"fewer than {options.least:.0%} of the code's were noticed")


if __name__ == "__main__":
    main()
