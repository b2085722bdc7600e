"""Run cases, compare the contenders, and lay out the results."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.suite import STAGES
from benchmarks.suite.cases import Case, cases, points
from benchmarks.suite.measure import measure, prepare_apart
from benchmarks.suite.stages import STAGE, Stage
from specialk_gpu import _environment as environment
from specialk_gpu.backend import get_backend

__all__ = ["best_seconds", "run", "run_case", "run_cases", "table"]

Row = dict[str, Any]
TIMES = ("cold_seconds", "warm_seconds", "seconds", "stages", "warm_stages", "import_seconds")


def run(
    size: str = "small",
    *,
    stages: Iterable[str] = STAGES,
    backend: str = "auto",
    mnist: str | None = None,
    repeats: int = 3,
    time_limit: float = 300.0,
    alone: bool = False,
    out: Path | None = None,
    tell: Callable[[str], None] = print,
) -> list[Row]:
    """Measure the cases of one size; write the rows to `out` after each.

    Parameters
    ----------
    size : {"small", "medium", "large"}
    stages : iterable of str
        Of STAGES.
    backend : {"auto", "numpy", "cuda"}
    mnist : str, optional
        Folder of MNIST's idx files; by default SPECIALK_MNIST. A mixture of its size without.
    repeats : int
        Warm calls at most; none once a contender's calls have taken ten seconds.
    time_limit : float
        Seconds for each contender, loading included; then it is killed.
    alone : bool
        Leave out all contenders but this library.
    out : path, optional
        JSON file.
    tell : callable
        Takes a line as each measurement ends.

    Returns
    -------
    list of dict
        One for each contender and case; see `measure`.

    Raises
    ------
    ValueError
        If `size` is unknown.
    OSError
        If MNIST's files are not there.
    """
    name = get_backend(backend).name
    mnist = mnist or os.environ.get("SPECIALK_MNIST")
    chosen = [case for case in cases(size, mnist=mnist is not None) if case.stage in stages]
    for case in {(x.data, x.m): x for x in chosen if x.data == "mnist"}.values():
        points(case, mnist)  # an error now, not after an hour

    def keep(rows: list[Row]) -> None:
        if out:
            environment.write_with_environment(out, {"size": size, "backend": name, "rows": rows})

    return run_cases(
        chosen,
        backend=name,
        keep=keep,
        mnist=mnist,
        repeats=repeats,
        time_limit=time_limit,
        alone=alone,
        tell=tell,
    )


def run_cases(
    chosen: Iterable[Case],
    *,
    backend: str,
    kept: Sequence[Row] = (),
    keep: Callable[[list[Row]], None] = lambda _rows: None,
    tell: Callable[[str], None] = print,
    **settings: Any,
) -> list[Row]:
    """Measure all contenders on each case that is for this backend.

    Rows in `kept` are taken over; `keep` gets all rows so far after each measurement.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="specialk-bench-") as folder:
        for case in chosen:
            if case.backend not in ("", backend):
                tell(f"{case.stage} {case}: on {case.backend} only")
                continue
            mine = {x["contender"]: x for x in kept if x["case"] == case._asdict()}
            rows += run_case(
                case,
                backend=backend,
                folder=Path(folder),
                kept=mine,
                keep=lambda found, before=tuple(rows): keep([*before, *found]),
                tell=tell,
                **settings,
            )
    return rows


def run_case(
    case: Case,
    *,
    backend: str,
    folder: Path,
    mnist: str | None = None,
    repeats: int = 3,
    time_limit: float = 300.0,
    alone: bool = False,
    tell: Callable[[str], None] = print,
    kept: dict[str, Row] | None = None,
    keep: Callable[[list[Row]], None] = lambda _rows: None,
    stage: Stage | None = None,
) -> list[Row]:
    """Measure all contenders on one case; those whose answer is wrong have no times."""
    stage, kept = stage or STAGE[case.stage], kept or {}
    contenders = [x for x in stage.contenders if backend in x.backends]
    contenders = contenders[:1] if alone else contenders
    made: Row = {"status": "ok"}
    if any(x.name not in kept for x in contenders):
        made = prepare_apart(case, backend, mnist, folder, time_limit=10 * time_limit)
    rows: list[Row] = []
    for contender in contenders:
        row = {"case": case._asdict(), "backend": backend, "contender": contender.name}
        if contender.name in kept:
            row = dict(kept[contender.name])
        elif made["status"] == "ok":
            check = partial(stage.check, contender.name)
            limits = {"repeats": repeats, "time_limit": time_limit}
            row |= measure(contender, check, case, backend=backend, folder=folder, **limits)
        else:
            row |= {**made, "detail": f"no inputs: {made.get('detail', '')}"}
        rows.append(row)
        tell(f"{case.stage} {case}: {contender.name}: {_in_words(row)}")
        keep(rows)
    right = {row["contender"]: row for row in rows if row["status"] == "ok"}
    for name, reason in (stage.compare(right) if right else {}).items():
        row = right.pop(name)
        row |= {"status": "wrong", "detail": reason}
        for key in TIMES:
            row.pop(key, None)
        tell(f"{case.stage} {case}: {name}: {_in_words(row)}")
    ours = right.pop(contenders[0].name, None)
    for row in right.values():
        row.pop("times_ours", None)
        if ours:
            row["times_ours"] = best_seconds(row) / best_seconds(ours)
    keep(rows)
    return rows


def best_seconds(row: Row) -> float:
    """Return the warm seconds, or the cold ones where no call was repeated."""
    return row["cold_seconds"] if row["warm_seconds"] is None else row["warm_seconds"]


def _in_words(row: Row) -> str:
    if row["status"] != "ok":
        return ": ".join(x for x in (row["status"], row.get("detail", "")) if x)
    warm = row["warm_seconds"]
    return f"cold {row['cold_seconds']:.4g} s" + ("" if warm is None else f", warm {warm:.4g} s")


def table(rows: Iterable[Row]) -> str:
    """Lay out the rows; `times ours` is a contender's seconds divided by ours."""
    lines = [["stage", "problem", "contender", "cold s", "warm s", "peak MB", "times ours", ""]]
    for row in rows:
        case = Case(**row["case"])
        cells = [case.stage, str(case), row["contender"]]
        if row["status"] == "ok":
            warm, peak = row["warm_seconds"], row.get("device_peak_bytes", row.get("peak_bytes"))
            cells += [f"{row['cold_seconds']:.4g}", "-" if warm is None else f"{warm:.4g}"]
            cells.append("-" if peak is None else f"{peak / 1e6:.0f}")
            cells += [f"{row['times_ours']:.2f}" if "times_ours" in row else "-", _note(row)]
        else:
            cells += ["-", "-", "-", "-", _in_words(row)]
        lines.append(cells)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = "<<<>>>><"
    return "\n".join(
        "  ".join(f"{x:{side}{w}}" for x, side, w in zip(line, sides, widths, strict=True)).rstrip()
        for line in lines
    )


def _note(row: Row) -> str:
    if row.get("wrong_rows"):
        return f"{row['wrong_rows']} of {row['checked_rows']} rows wrong"
    stages = ", ".join(f"{name} {x['seconds']:.3g} s" for name, x in row["stages"].items())
    return row.get("note", stages)
