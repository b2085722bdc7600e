"""What the command line prints and writes: path, summary, warnings, and what is installed."""

from __future__ import annotations

import math
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from specialk_gpu._printable import printable

if TYPE_CHECKING:
    import numpy as np

    from specialk_gpu._model import FittedModel

__all__ = [
    "path_for_printing",
    "print_info",
    "print_results",
    "printed_line",
    "summary_for_printing",
]
__all__ += ["warnings_in_one_line"]


def path_for_printing(
    model: FittedModel, true_labels: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Return the path as a list of dicts for JSON; add the NMI if true labels are given."""
    from sklearn.metrics import normalized_mutual_info_score

    rows = []
    for step in model.path_:
        log_p = _finite(step.log_p)
        row: dict[str, Any] = {
            "k": int(step.k),
            "log_p": log_p,
            "log10_p": None if log_p is None else log_p / math.log(10),
            "pair": None if step.pair is None else [int(cluster) for cluster in step.pair],
            "accepted": bool(step.accepted),
            "reason": str(step.reason),
        }
        for name in ("log_p_level", "log_zz_top", "inertia"):
            if getattr(step, name) is not None:
                row[name] = _finite(getattr(step, name))
        if true_labels is not None:
            row["nmi"] = float(normalized_mutual_info_score(true_labels, step.labels))
        rows.append(row)
    return rows


def _finite(number: float | None) -> float | None:
    return float(number) if number is not None and math.isfinite(number) else None


def summary_for_printing(
    model: FittedModel, rows: list[dict[str, Any]], seconds: float, warned: list[str]
) -> dict[str, Any]:
    from specialk_gpu._environment import package_versions, peak_bytes
    from specialk_gpu.backend import get_backend
    from specialk_gpu.inspection.diagnostics import sizes_of_clusters

    sizes, n_outliers = sizes_of_clusters(model)
    backend = get_backend(model.backend_).describe()
    return {
        "n_clusters": int(model.n_clusters_),
        "criterion": model.path_.criterion,
        "cluster_sizes": sizes.tolist(),
        **({"n_outliers": n_outliers} if n_outliers else {}),
        "limit_reached": bool(model.limit_reached_),
        "n_samples": len(model.labels_),
        "n_features": int(model.n_features_in_),
        "parameters": model.get_params(),
        "path": rows,
        "seconds": seconds,
        "timings": {stage: float(spent) for stage, spent in model.timings_.items()},
        "peak_memory_bytes": peak_bytes(),
        "backend": model.backend_,
        "devices": backend["devices"],
        "machine": {"system": platform.platform(), "cpu_count": os.cpu_count()},
        "versions": package_versions() | backend["versions"],
        "warnings": warned,
    }


def _print_path(rows: list[dict[str, Any]], n_clusters: int, criterion: str) -> None:
    """Print the path as a table. The header names the rule; a star marks the answer."""
    if criterion == "cut":
        columns, rule = {"p": "log_p", "own p": "log_p_level"}, "cut test"
    else:
        columns, rule = {"log10 p": "log10_p", "inertia": "inertia"}, "ZZ Top Bound"
    table = [["", "k", *columns, "pair", "accepted", f"reason ({rule})"]]
    for row in rows:
        cells = ["*" if row["k"] == n_clusters else "", str(row["k"])]
        cells += [_printed_number(row.get(name), name, criterion) for name in columns.values()]
        cells.append("-" if row["pair"] is None else "{}, {}".format(*row["pair"]))
        table.append([*cells, "yes" if row["accepted"] else "no", row["reason"]])
    if rows and "nmi" in rows[0]:
        for cells, nmi in zip(table, ["NMI", *(f"{row['nmi']:.3f}" for row in rows)], strict=True):
            cells.insert(-1, nmi)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        print("  ".join([*padded[:-1], cells[-1]]))


def _printed_number(number: float | None, name: str, criterion: str) -> str:
    """Format a number of the path."""
    from specialk_gpu.inspection.diagnostics import in_words

    if number is None:
        return "-"
    if criterion == "cut":
        return in_words(number, criterion)
    return f"{number:.5g}" if name == "inertia" else f"{number:.2f}"


def print_results(
    model: FittedModel, rows: list[dict[str, Any]], seconds: float, *, table: bool
) -> None:
    if table:
        _print_path(rows, model.n_clusters_, model.path_.criterion)
    noun = "cluster" if model.n_clusters_ == 1 else "clusters"
    print(f"k = {model.n_clusters_} {noun} (backend {model.backend_}, {seconds:.1f} s)")


def print_info() -> None:
    """Print the system, the versions, the driver and the backends."""
    from specialk_gpu._environment import optional_versions, package_versions
    from specialk_gpu.backend import describe_backends
    from specialk_gpu.backend.cpu.threads import n_threads
    from specialk_gpu.backend.driver import driver_text

    def listed(versions: Mapping[str, object]) -> str:
        return ", ".join(f"{name} {version}".rstrip() for name, version in versions.items())

    optional = optional_versions()
    print(f"system: {platform.platform()}")
    print("versions:", listed(package_versions()))
    print("optional:", listed({name: found for name, found in optional.items() if found}) or "none")
    print("not installed:", ", ".join(name for name in optional if not optional[name]) or "none")
    print(f"threads: {n_threads()}, OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'not set')}")
    print(f"NVIDIA driver: {driver_text()}")
    for row in describe_backends():
        if not row["available"]:
            print(f"backend {row['name']}: not available: {printed_line(row['reason'])}")
            continue
        print(f"backend {row['name']}: available ({listed(row['versions'])})")
        for device in row["devices"]:
            capability = device.get("compute_capability")
            suffix = f", compute capability {capability}" if capability else ""
            print(f"  device: {device['name']}, {device['memory'] / 2**30:.1f} GiB{suffix}")


def printed_line(message: object) -> str:
    """Return a message in one line, without characters that could steer a terminal."""
    return printable(" ".join(str(message).split()))


@contextmanager
def warnings_in_one_line(worded: Callable[[str], str]) -> Iterator[list[str]]:
    """Print each warning for users once, in one line of other words; yield the list of them."""
    warned: list[str] = []

    def show(message: object, *_args: object, **_kwargs: object) -> None:
        text = printed_line(worded(str(message)))
        if text not in warned:
            warned.append(text)
            print("specialk-gpu: warning:", text, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show
        yield warned
