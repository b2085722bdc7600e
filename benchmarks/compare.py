"""This library beside what else one could take: seconds, memory, k, and agreement with classes.

    python -m benchmarks.compare                      # everything; goes on where it was stopped
    python -m benchmarks.compare --only "1,500"       # the sets with this in their names
    python -m benchmarks.compare --contender KMeans   # the contenders with this in their names

Every contender on every set has a fresh process with two threads (`--threads`). `first` is the
first call in it, its libraries imported, their functions not yet compiled; `warm` the median of
more calls, of which there is one at least if the first took less than five minutes. They go on for
ten seconds, three at most; where the result depends on a seed, for a minute, nine at most, each
with another seed. Memory is the peak of the process in the first call, less what it held before.
Who needs longer than `--time-limit` (20 minutes) is stopped, and not tried on sets with more rows
and no fewer columns; to try it again with another limit, take its line out of the results. One that
fails, or is not installed (`pip install '.[bench]'` installs them), has its error in place of a
result, and is tried again in the next run.

The real sets are those of benchmarks.rivals (SPECIALK_SETS), a contender's all in one process, each
set for two minutes at most. SPECIALK_MNIST and SPECIALK_FASHION_MNIST name the folders of images.
Results are JSON lines in benchmarks/results/compare.jsonl. Needs Linux, for the memory.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from benchmarks import contenders as methods
from benchmarks.compare_sets import SETS
from benchmarks.growth import memory
from benchmarks.paper.data import missing
from benchmarks.paper.runner import read, run
from benchmarks.rivals import tiers
from benchmarks.selection import PATHS, ari, real_set, verdict
from benchmarks.stamp import RESULTS
from specialk_gpu import knn_graph
from specialk_gpu._checks import checked_positive

__all__ = ["CONTENDERS", "FILE", "OURS", "REAL", "TOLD_K_AND_GRAPH"]

ROOT = Path(__file__).parents[1]
FILE = RESULTS / "compare.jsonl"
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA")
LONG = 300.0  # seconds of a first call that is not repeated
WARM = {False: (3, 10.0), True: (9, 60.0)}  # calls and seconds; with one seed, with several
OF_REAL_SET = 120  # seconds, compilation of functions included
REAL = "real sets"


class Contender(NamedTuple):
    """A method that takes part.

    Attributes
    ----------
    run : callable
        Takes the rows, and k if it `must_be_told_k`; returns labels, -1 for rows in no cluster.
    needs : tuple of str
        Modules that are imported before the clock starts.
    must_be_told_k : bool
    on_pca : bool
        Whether it sees ten principal components: it is left out where there are no more columns.
    given_graph : bool
        Whether it sees our graph of the rows, made before the clock starts.
    seeded : bool
        Whether it takes a seed.
    """

    run: Callable[..., np.ndarray]
    needs: tuple[str, ...] = ()
    must_be_told_k: bool = False
    on_pca: bool = False
    given_graph: bool = False
    seeded: bool = True


def on_columns(method: Callable[..., np.ndarray], X: np.ndarray, **seed: int) -> np.ndarray:
    """Cluster principal components."""
    return method(methods.columns(X), **seed)


OURS = "SpecialK"
TOLD_K_AND_GRAPH = "SpecialK, n_clusters=k, our graph given"
HDBSCAN = partial(methods.hdbscan, samples=methods.SAMPLES)
CONTENDERS = {
    OURS: Contender(methods.specialk),
    'SpecialK, criterion="zz_top"': Contender(partial(methods.specialk, criterion="zz_top")),
    "SpecialK, n_clusters=k": Contender(methods.specialk_told_k, must_be_told_k=True),
    "scikit-learn's neighbours, leidenalg": Contender(methods.leidenalg, ("leidenalg",)),
    "scikit-learn's neighbours, igraph's Leiden": Contender(methods.igraphs_leiden, ("igraph",)),
    "pynndescent, igraph's Leiden": Contender(
        methods.approximate_leiden, ("pynndescent", "igraph")
    ),
    "HDBSCAN": Contender(HDBSCAN, seeded=False),
    "HDBSCAN on PCA": Contender(partial(on_columns, HDBSCAN), on_pca=True, seeded=False),
    "fast_hdbscan": Contender(methods.fast_hdbscan, ("fast_hdbscan",), seeded=False),
    "fast_hdbscan on PCA": Contender(
        partial(on_columns, methods.fast_hdbscan), ("fast_hdbscan",), on_pca=True, seeded=False
    ),
    "UMAP, fast_hdbscan": Contender(methods.umap_hdbscan, ("umap", "fast_hdbscan"), seeded=False),
    "SpectralClustering": Contender(methods.spectral_clustering, must_be_told_k=True),
    TOLD_K_AND_GRAPH: Contender(methods.specialk_told_k, must_be_told_k=True, given_graph=True),
    "SpectralClustering, our graph given": Contender(
        partial(methods.spectral_clustering, affinity="precomputed"),
        must_be_told_k=True,
        given_graph=True,
    ),
    "KMeans": Contender(methods.kmeans_told_k, must_be_told_k=True),
    "GaussianMixture by BIC, on PCA": Contender(partial(on_columns, methods.gmm_bic)),
    "ISO-SPLIT, on PCA": Contender(methods.iso_split, ("isosplit6",), seeded=False),
    "ClustPy's SpecialK": Contender(methods.clustpys_specialk, ("clustpy.spectral",)),
    "STSC": Contender(methods.self_tuning),
}


# -- in the process of a contender ----------------------------------------------------------------


def agreement(X: np.ndarray, y: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Count clusters, and compare them with the classes; rows in none are one more cluster."""
    labels = np.asarray(labels)
    if labels.shape != (len(X),):
        msg = f"labels must have shape {(len(X),)}, got {labels.shape}."
        raise ValueError(msg)
    found: dict[str, Any] = {"k": len({*labels.tolist()} - {-1})}
    found["in_none"] = float((labels == -1).mean())
    known = y >= 0
    if known.any():
        ami = adjusted_mutual_info_score(y[known], labels[known])
        found |= {"ari": ari(y, labels), "ami": float(ami)}
    return found


def timed(contender: Contender, X: Any, k: int, seed: int = 0) -> tuple[float, np.ndarray]:
    """Call once; return the seconds and the labels."""
    given = (X, k) if contender.must_be_told_k else (X,)
    began = time.perf_counter()
    labels = contender.run(*given, **({"seed": seed} if contender.seeded else {}))
    return time.perf_counter() - began, labels


def measure_set(task: dict[str, Any], contender: Contender) -> Iterator[dict[str, Any]]:
    """Yield what the first call shows, and again after each warm one."""
    X, y = SETS[task["set"]].rows()
    k = len({*y.tolist()} - {-1})
    given = knn_graph(X) if contender.given_graph else X
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = memory("VmRSS")
    first, labels = timed(contender, given, k)
    row = {"first": first, "peak_bytes": max(0, memory("VmHWM") - before)}
    row |= {"warm": None, "seconds": [], **agreement(X, y, labels), "others": []}
    yield row
    most, enough = WARM[contender.seeded]
    while first < LONG and len(row["seconds"]) < most and sum(row["seconds"]) < enough:
        spent, labels = timed(contender, given, k, seed=len(row["seconds"]) + 1)
        row["seconds"].append(spent)
        row["warm"] = statistics.median(row["seconds"])
        row["others"] += [agreement(X, y, labels)] if contender.seeded else []
        yield row
    if task["contender"] == TOLD_K_AND_GRAPH:
        yield row | {"verification": methods.seconds_of_verification(given, k)}


def measure_real(names: list[str], contender: Contender) -> Iterator[dict[str, Any]]:
    """Yield what is found on each real set; its errors too."""
    for name in names:
        X, y, right = real_set(name)
        row: dict[str, Any] = {"set": name, "tier": tiers().get(name, "")}
        k = len({*y.tolist()} - {-1})
        if contender.must_be_told_k and k < 2:
            yield row | {"skipped": "without two classes there is no k to tell"}
            continue
        try:
            rows = X.astype(np.float64)
            rows = knn_graph(rows) if contender.given_graph else rows
            row["seconds"], labels = timed(contender, rows, k)
            row |= agreement(X, y, labels)
            row |= {} if contender.must_be_told_k else {"verdict": verdict(row["k"], right)}
        except Exception as error:  # noqa: BLE001 - a failure is a result here
            row["error"] = f"{type(error).__name__}: {error}"[:300]
        yield row


def child(task: dict[str, Any]) -> None:
    """Write a line of JSON for each thing that was measured."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, 2 * (int(task["gigabytes"] * 1e9),))
    contender = CONTENDERS[task["contender"]]
    for name in contender.needs:
        importlib.import_module(name)
    names = task.get("names")
    rows = measure_set(task, contender) if names is None else measure_real(names, contender)
    with open(task["out"], "a", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")
            out.flush()


# -- the process that waits -----------------------------------------------------------------------


class Stopped(NamedTuple):
    """How a process ended that did not end well."""

    late: bool
    why: str


def watched(task: dict[str, Any], limit: float, threads: int) -> tuple[list[Any], Stopped | None]:
    """Run `child` in a process of its own; return its rows, and how it ended if not well.

    It is killed if it writes no line within the limit.
    """
    code = "import json, sys; from benchmarks import compare; "
    code += "compare.child(json.loads(sys.argv[1]))"
    settings = {f"{name}_NUM_THREADS": str(threads) for name in THREADS}
    settings |= {"LOKY_MAX_CPU_COUNT": str(threads), "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder) / "rows", Path(folder) / "errors"
        out.touch()
        with errors.open("w") as told_errors:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", code, json.dumps(task | {"out": str(out)})],
                cwd=ROOT,
                env=os.environ | settings,
                stdout=subprocess.DEVNULL,  # some print without end
                stderr=told_errors,
            )
        ended, size, since = None, 0, time.monotonic()
        while ended is None and process.poll() is None:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                if out.stat().st_size > size:
                    size, since = out.stat().st_size, time.monotonic()
                elif time.monotonic() - since > limit:
                    ended = Stopped(late=True, why=f"no answer within {limit:g} s")
        process.kill()
        process.wait()
        if ended is None and process.returncode:
            lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            why = lines[-1][:300] if lines else f"its process ended with {process.returncode}"
            ended = Stopped(late=False, why=why)
        whole = out.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in whole], ended


def stopped_before(task: dict[str, Any], path: Path) -> str:
    """Name a smaller set on which this contender was stopped, or ""."""
    own = SETS[task["set"]]
    for row in read(path):
        other = SETS.get(row["task"]["set"])
        smaller = other and other.m < own.m and other.d <= own.d
        own_row = row["task"]["contender"] == task["contender"]
        if smaller and own_row and row.get("result", {}).get("stopped"):
            return row["task"]["set"]
    return ""


def versions(contender: Contender) -> dict[str, str]:
    """Return the versions of the packages that a contender needs."""
    roots = {name.partition(".")[0] for name in contender.needs}
    packages = packages_distributions()
    names = sorted({package for root in roots for package in packages[root]})
    return {name: version(name) for name in names}


def compared(task: dict[str, Any], *, path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure one contender on one set, or on all real sets."""
    contender = CONTENDERS[task["contender"]]
    for name in contender.needs:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            msg = f"{name} is not installed"
            raise ModuleNotFoundError(msg)
    about = {"threads": given.threads, "versions": versions(contender)}
    task = task | {"gigabytes": given.gigabytes}
    if task["set"] == REAL:
        return about | {"sets": on_real_sets(task, given.threads)}
    if where := stopped_before(task, path):
        return about | {"stopped": f"not tried: stopped on {where}"}
    rows, ended = watched(task, given.time_limit, given.threads)
    if rows:
        return about | rows[-1] | ({"ended": ended.why} if ended else {})
    if ended and ended.late:
        return about | {"stopped": ended.why}
    raise RuntimeError(ended.why if ended else "nothing was measured")


def on_real_sets(task: dict[str, Any], threads: int) -> list[dict[str, Any]]:
    """Measure a contender on every real set; one that it does not end is left out."""
    names = sorted(x.stem for x in Path(os.environ[PATHS["sets"]]).glob("*.npz"))
    found: list[dict[str, Any]] = []
    while left := names[len(found) :]:
        rows, ended = watched(task | {"names": left}, OF_REAL_SET, threads)
        found += rows
        if ended and len(found) < len(names):  # some fail as they end, with all sets done
            found.append({"set": names[len(found)], "error": ended.why})
    return found


def tasks(given: argparse.Namespace) -> list[dict[str, Any]]:
    """List contenders by set, small sets first; those that the options leave."""
    names = [name for name, own in SETS.items() if not (own.source and missing(own.source))]
    names[4:4] = [REAL] if os.environ.get(PATHS["sets"]) else []
    found = []
    for name in names:
        for who, contender in CONTENDERS.items():
            if contender.on_pca and name != REAL and SETS[name].d <= methods.COLUMNS:
                continue  # the same as without
            if given.only.lower() in name.lower() and given.contender.lower() in who.lower():
                found.append({"set": name, "contender": who})
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="sets with this in their names")
    parser.add_argument("--contender", default="", help="contenders with this in their names")
    parser.add_argument("--time-limit", type=float, default=1200.0, help="seconds (1200)")
    parser.add_argument("--threads", type=int, default=2, help="of each process (2)")
    parser.add_argument("--gigabytes", type=float, default=16.0, help="of memory at most (16)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    try:
        for name in ("time_limit", "threads", "gigabytes"):
            checked_positive(f"--{name.replace('_', '-')}", getattr(given, name))
    except ValueError as error:
        parser.error(str(error))
    path, chosen = given.results / FILE.name, tasks(given)
    if not chosen:
        got = f"{given.only!r} and {given.contender!r}"
        parser.error(f"--only and --contender must leave something to measure, got {got}.")
    for row in run(partial(compared, path=path, given=given), chosen, path, jobs=1):
        if "error" in row:
            print(row["task"], row["error"])


if __name__ == "__main__":
    main()
