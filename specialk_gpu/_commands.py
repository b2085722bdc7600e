"""Commands of the command line that fit nothing: compare, estimate, info, and where bench is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specialk_gpu._command_files import (
    chosen_columns,
    input_as_file,
    labels_with_ids,
    reading_of_file,
)
from specialk_gpu._options import add_column_options, add_input_options
from specialk_gpu._printable import printable
from specialk_gpu._printing import print_info

if TYPE_CHECKING:
    import numpy as np

__all__ = ["add_bench", "add_compare", "add_estimate", "add_info"]

MOST_SHOWN = 20  # clusters of a contingency table
COMPARED = ("n_clusters", "criterion", "cluster_sizes", "n_samples", "n_features", "seconds")

Commands = Any  # argparse's sub-parsers


def add_compare(commands: Commands) -> None:
    """Add the command `compare`."""
    compare = commands.add_parser("compare", help="compare two files of labels, or two summaries")
    compare.set_defaults(command=_compare_command)
    for name in ("a", "b"):
        help_text = "labels, as written by fit --output; or a summary, .json"
        compare.add_argument(name, type=Path, metavar=name.upper(), help=help_text)


def _compare_command(options: argparse.Namespace, _warned: list[str]) -> None:
    both = options.a, options.b
    summaries = [path.suffix.lower() == ".json" for path in both]
    if any(summaries) and not all(summaries):
        msg = f"A and B must both be labels, or both summaries (.json), got {both[0]} and {both[1]}"
        raise ValueError(msg)
    if all(summaries):
        _compare_summaries(*map(_summary_to_compare, both))
        return
    (a, ids_a, name_a), (b, ids_b, name_b) = map(labels_with_ids, both)
    how = "by their order"
    if ids_a is not None and ids_b is not None and name_a == name_b:
        place_a, place_b = ({row: i for i, row in enumerate(ids)} for ids in (ids_a, ids_b))
        shared = [row for row in ids_a if row in place_b]
        if not shared:
            msg = f"A and B must label the same rows, but share no {name_a!r}"
            raise ValueError(msg)
        how = f"by {printable(name_a)}"
        for ids, who in ((ids_a, "A"), (ids_b, "B")):
            how += f", {len(ids) - len(shared)} left out of {who}" if len(ids) > len(shared) else ""
        a, b = a[[place_a[row] for row in shared]], b[[place_b[row] for row in shared]]
    elif len(a) != len(b):
        msg = f"A and B must label the same rows, got {len(a)} and {len(b)} labels"
        raise ValueError(msg)
    _compare_labels(a, b, how)


def _compare_labels(a: np.ndarray, b: np.ndarray, how: str) -> None:
    """Print how alike two clusterings are, and how many rows are in each pair of clusters."""
    import numpy as np
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    names = [np.unique(x) for x in (a, b)]
    print(f"rows: {len(a)}, compared {how}")
    print("clusters: {} in A, {} in B".format(*((own >= 0).sum() for own in names)))
    print(f"ARI: {adjusted_rand_score(a, b):.3f}")
    print(f"NMI: {normalized_mutual_info_score(a, b):.3f}")
    counts = contingency_matrix(a, b)[:MOST_SHOWN, :MOST_SHOWN]
    shown = [own[:MOST_SHOWN] for own in names]
    table = [["A \\ B", *map(str, shown[1])]]
    table += [[str(c), *map(str, row)] for c, row in zip(shown[0], counts, strict=True)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))
    for who, own in zip("AB", names, strict=True):
        if len(own) > MOST_SHOWN:
            print(f"and {len(own) - MOST_SHOWN} more clusters of {who}")


def _summary_to_compare(path: Path) -> dict[str, Any]:
    """Read a summary that `fit` has written."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        msg = f"cannot read {path}: {error}"
        raise ValueError(msg) from error
    wanted = {*COMPARED, "parameters"}
    if not isinstance(content, dict) or not wanted <= content.keys():
        msg = f"cannot read {path}: expected a summary, as written by fit --summary"
        raise ValueError(msg)
    return content


def _compare_summaries(a: dict[str, Any], b: dict[str, Any]) -> None:
    """Print the answers of two fits, and the options in which they differ."""
    rows = [["", "A", "B"]]
    rows += [
        [name, _shortened_to_compare(a[name]), _shortened_to_compare(b[name])] for name in COMPARED
    ]
    mine, other = _options_to_compare(a), _options_to_compare(b)
    for name in sorted({*mine, *other}):
        if mine.get(name) != other.get(name):
            both = map(_shortened_to_compare, (mine.get(name), other.get(name)))
            rows.append([name, *both])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print(printable("  ".join(padded).rstrip()))
    print("Labels are compared by: specialk-gpu compare A.csv B.csv")


def _options_to_compare(summary: dict[str, Any]) -> dict[str, Any]:
    """Return what was chosen for a fit: parameters, and what was done with the columns."""
    found, own = dict(summary["parameters"]), summary.get("preparation")
    columns = None
    if isinstance(own, dict):  # None for what is no table
        columns, one_hot = own.get("columns"), own.get("one_hot")
        found |= {name: own.get(name) for name in ("missing", "scale", "id_column")}
        found["one_hot"] = list(one_hot) if isinstance(one_hot, dict) and one_hot else None
    options = {f"--{name.replace('_', '-')}": value for name, value in found.items()}
    return options | {"columns used": columns}


def _shortened_to_compare(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list) and len(value) > 8:
        return f"{', '.join(map(str, value[:8]))}, ... ({len(value)})"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "not given" if value is None else str(value)


def add_estimate(commands: Commands) -> None:
    """Add the command `estimate`."""
    text = "say how long a fit will take, and how much memory"
    estimate = commands.add_parser("estimate", help=text, allow_abbrev=False)
    estimate.set_defaults(command=_estimate_command)
    sizes = "ROWS and COLUMNS, two numbers; or a file of rows"
    estimate.add_argument("size", nargs="+", metavar="SIZE", help=sizes)
    rule = "the rule that decides (cut)"
    estimate.add_argument("--criterion", choices=("cut", "zz_top"), default="cut", help=rule)
    add_input_options(estimate)
    add_column_options(estimate)


def _estimate_command(options: argparse.Namespace, _warned: list[str]) -> None:
    from specialk_gpu._cost import estimate

    if len(options.size) == 1:
        from specialk_gpu.io.rows import read_rows

        choice, reading = chosen_columns(options), reading_of_file(options)
        with input_as_file(Path(options.size[0])) as path:
            m, d = read_rows(path, choice, graph=False, **reading)[1].X.shape
    elif len(options.size) == 2 and all(size.isdecimal() for size in options.size):
        if chosen_columns(options):
            msg = "options about columns are for a file; ROWS and COLUMNS are counted already"
            raise ValueError(msg)
        m, d = map(int, options.size)
    else:
        msg = f"expected ROWS and COLUMNS, or one file, got {' '.join(options.size)}"
        raise ValueError(msg)
    print(estimate(m, d, criterion=options.criterion))


def add_bench(commands: Commands) -> None:
    """Add the command `bench`; outside the repository it only says where to find it."""
    try:
        from benchmarks.suite import command
    except ModuleNotFoundError:
        # Without a prefix of its own, options are taken, whatever they are.
        bench = commands.add_parser(
            "bench", help="measure against other libraries", add_help=False, prefix_chars="\0"
        )
        bench.set_defaults(command=_missing_bench_command)
        bench.add_argument("options", nargs=argparse.REMAINDER)
    else:
        command.add_command(commands)


def _missing_bench_command(_options: argparse.Namespace, _warned: list[str]) -> None:
    msg = (
        "the benchmarks are not in the installed package: clone the repository, run "
        "pip install -e '.[bench]' in it, and call specialk-gpu bench again."
    )
    raise ValueError(msg)


def add_info(commands: Commands) -> None:
    """Add the command `info`."""
    info = commands.add_parser("info", help="describe backends, devices and versions")
    info.set_defaults(command=lambda _options, _warned: print_info())
