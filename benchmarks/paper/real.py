"""Tables 1 to 5: k, NMI and bounds on real data, for W_C, W_R, STSC and SpectACl."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.metrics import normalized_mutual_info_score

from benchmarks.baselines import stsc
from benchmarks.paper.data import DATA, load, missing, sha256
from benchmarks.paper.shapes import DEFAULT, GRAPHS, default_fit
from specialk_gpu import SpecialK, decide

__all__ = ["table", "table_tasks"]

MAX_K = 11
N_SPECTACL = 50  # eigenvectors


def table_tasks(*, quick: bool = False, backend: str = "numpy") -> list[dict[str, Any]]:
    """List a task for each data set at hand and method."""
    names = ["digits"] if quick else [name for name in DATA if not missing(name)]
    return [
        {"data": name, "method": method, "backend": backend}
        for name in names
        for method in ("W_C", "W_R", "STSC", "SpectACl", DEFAULT)
    ]


def table(task: dict[str, Any]) -> dict[str, Any]:
    """Cluster one data set by one method, for every k up to eleven."""
    warnings.simplefilter("ignore")
    X, y = load(task["data"])
    about = {"m": X.shape[0], "d": X.shape[1], "classes": len(set(y.tolist()))}
    about["sha256"] = sha256(task["data"])

    def nmi(labels: Any) -> float:
        return float(normalized_mutual_info_score(y, labels))

    if task["method"] == "STSC":
        found = stsc(X, MAX_K, random_state=0)
        path = [{"k": x.k, "nmi": nmi(x.labels), "quality": x.quality} for x in found.path]
        return about | {"k": found.n_clusters, "path": path}
    if task["method"] == DEFAULT:
        fit = default_fit(X, "W_C", task["backend"])
        return about | {"k": fit.n_clusters_, "nmi": nmi(fit.labels_)}
    spectacl = task["method"] == "SpectACl"  # the same D, of a k that is given
    model = SpecialK(
        affinity=GRAPHS["W_C" if spectacl else task["method"]],
        n_components=N_SPECTACL if spectacl else "auto",
        max_clusters=MAX_K,
        full_path=True,
        criterion="zz_top",
        backend=task["backend"],
        random_state=0,
    ).fit(X)
    steps = [step for step in model.path_ if step.k > 1]
    if spectacl:
        return about | {
            "path": [{"k": s.k, "nmi": nmi(s.labels), "inertia": s.inertia} for s in steps]
        }
    log_p = [step.log_p for step in steps]
    return about | {
        "n": int(model.embedding_.shape[1]),
        "k": int(model.n_clusters_),
        "watershed": decide([step.k for step in steps], log_p, stopping="watershed"),
        "path": [
            {"k": s.k, "nmi": nmi(s.labels), "log_p": s.log_p, "inertia": s.inertia} for s in steps
        ],
        "seconds_by_stage": model.timings_,
    }
