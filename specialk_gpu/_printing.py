"""The path and the JSON summary of a fitted model, for the command line."""

from __future__ import annotations

import math
import os
import platform
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from specialk_gpu._model import FittedModel

__all__ = ["path_rows", "print_results", "summary"]


def path_rows(model: FittedModel, true_labels: np.ndarray | None = None) -> list[dict[str, Any]]:
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


def summary(
    model: FittedModel, rows: list[dict[str, Any]], seconds: float, warned: list[str]
) -> dict[str, Any]:
    import numpy as np

    from specialk_gpu._environment import package_versions, peak_bytes
    from specialk_gpu.backend import get_backend

    backend = get_backend(model.backend_).describe()
    return {
        "n_clusters": int(model.n_clusters_),
        "criterion": model.path_.criterion,
        "cluster_sizes": np.bincount(model.labels_, minlength=model.n_clusters_).tolist(),
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
        cells += [_shown(row.get(name), name, criterion) for name in columns.values()]
        cells.append("-" if row["pair"] is None else "{}, {}".format(*row["pair"]))
        table.append([*cells, "yes" if row["accepted"] else "no", row["reason"]])
    if rows and "nmi" in rows[0]:
        for cells, nmi in zip(table, ["NMI", *(f"{row['nmi']:.3f}" for row in rows)], strict=True):
            cells.insert(-1, nmi)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        print("  ".join([*padded[:-1], cells[-1]]))


def _shown(number: float | None, name: str, criterion: str) -> str:
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
