"""The command ``specialk-gpu bench``. Imports nothing heavy before it runs."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.suite import OURS, SIZES, STAGES


def add_command(commands: Any) -> None:
    """Add the command to the subparsers of an argument parser."""
    bench = commands.add_parser("bench", help="measure against other libraries", allow_abbrev=False)
    bench.set_defaults(command=_bench)
    option = bench.add_argument
    option("--stage", nargs="+", choices=STAGES, default=STAGES, help="(all)")
    option("--size", choices=SIZES, default="small", help="seconds, minutes or hours (small)")
    option("--backend", choices=("auto", "numpy", "cuda"), default="auto", help="(auto)")
    option("--data", metavar="FOLDER", help="MNIST's idx files ($SPECIALK_MNIST, else a mixture)")
    option("--repeats", type=int, metavar="N", default=3, help="warm calls at most (3)")
    limit = "seconds for each contender, which is then stopped (300)"
    option("--time-limit", type=float, metavar="S", default=300.0, help=limit)
    option("--alone", action="store_true", help="this library only, no other")
    option("--out", type=Path, metavar="FILE", help="write the results here, as JSON")


def _bench(options: Namespace, _warned: object) -> None:
    from benchmarks.suite.suite import run, table

    if options.out and not options.out.parent.is_dir():
        msg = f"--out must name a file in a folder that exists, got {options.out}"
        raise ValueError(msg)
    rows = run(
        options.size,
        stages=options.stage,
        backend=options.backend,
        mnist=options.data,
        repeats=options.repeats,
        time_limit=options.time_limit,
        alone=options.alone,
        out=options.out,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(table(rows))
    bad = [row for row in rows if row["contender"] == OURS and row["status"] != "ok"]
    if bad:
        msg = f"{len(bad)} of our own measurements: {bad[0]['status']}, {bad[0]['detail']}"
        raise RuntimeError(msg)
