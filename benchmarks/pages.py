"""The page of benchmarks: this library beside others, its stages, and what a GPU has to show."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks import history
from benchmarks.compare_page import beside_others, waited
from benchmarks.markdown import NOT_YET, machine, megabytes, seconds, table
from benchmarks.paper.runner import read, stamps
from benchmarks.stamp import RESULTS
from benchmarks.suite.cases import Case

__all__ = ["benchmarks_page"]


# -- stages and whole fits ------------------------------------------------------------------------


def contents(pattern: str) -> list[dict[str, Any]]:
    """Read the files of results with such names."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{pattern}.json"))]


def gpu_so_far() -> str:
    """Say whether anything was measured on a GPU."""
    if contents("*-cuda"):
        return "What was measured on a GPU stands below."
    return (
        "**Nothing has been measured on a GPU yet: what this documentation says about speed there\n"
        "is a claim.**"
    )


def measured(lay_out: Callable[[dict[str, Any]], str], pattern: str) -> str:
    """Lay out every file of results of this name; a GPU's only where there are some."""
    parts = []
    on_gpu = contents(f"{pattern}-cuda")
    for found in (contents(f"{pattern}-numpy"), on_gpu):
        if on_gpu:
            parts.append("### On a GPU" if found is on_gpu else "### On the CPU")
        laid_out = [(lay_out(content), content["stamp"]) for content in found]
        for text, stamp in laid_out:
            parts += [text, f"Measured on {machine(stamp)}"] if text else []
        if found is not on_gpu and not any(text for text, _ in laid_out):
            parts.append(NOT_YET)
    return "\n\n".join(parts)


def stage_rows(content: dict[str, Any]) -> str:
    """Lay out the contenders on each case."""
    rows = []
    for row in content["rows"]:
        case = Case(**row["case"])
        if case.stage == "fit":
            continue
        cells = [case.stage, case, row["contender"]]
        if row["status"] == "ok":
            cells += [seconds(row["cold_seconds"]), seconds(row["warm_seconds"]), megabytes(row)]
            cells += [f"{row['times_ours']:.2f}" if "times_ours" in row else ""]
            cells += [f"recall {row['recall']:.4f}" if "recall" in row else row.get("note", "")]
        else:
            cells += [f"{row['status']}: {row['detail']}", "", "", "", ""]
        rows.append(cells)
    head = ["stage", "problem", "who", "first call", "warm", "memory", "times ours", ""]
    return table(head, rows) if rows else ""


def fit_rows(content: dict[str, Any]) -> str:
    """Lay out seconds and peak memory of the stages of whole fits."""
    names = ("neighbours", "graph", "eigenpairs", "embedding", "sweep")
    rows, fits = [], [row for row in content["rows"] if row["case"]["stage"] == "fit"]
    if not fits:
        return ""
    for row in fits:
        cells = [Case(**row["case"]), row["contender"]]
        if row["status"] == "ok":
            for name in names:
                stage = row["stages"].get(name)
                warm = [x[name] for x in row["warm_stages"] if name in x]
                spent = statistics.median(warm) if warm else (stage or {}).get("seconds")
                cells.append(f"{seconds(spent)}, {megabytes(stage)}" if stage else "")
            warm = seconds(row["warm_seconds"]) if row["seconds"] else ""
            cells += [seconds(row["cold_seconds"]), warm, megabytes(row)]
            cells += [f"{row['times_ours']:.2f}" if "times_ours" in row else ""]
        else:
            cells += [f"{row['status']}: {row['detail']}", *[""] * 8]
        rows.append(cells)
    ours = {row["contender"] for row in fits}
    have = {(str(Case(**row["case"])), row["contender"]) for row in fits}
    missing = [
        f"{case}: {who} was not waited for."
        for case in dict.fromkeys(case for case, _ in have)
        for who in sorted(ours)
        if (case, who) not in have
    ]
    text = table(["problem", "who", *names, "first fit", "warm", "memory", "times ours"], rows)
    return "\n\n".join([text, *sorted(missing)])


def first_call(content: dict[str, Any]) -> str:
    """Lay out where the seconds of a fresh process go."""
    steps = content["processes"].items()
    text = table(["process", "seconds"], [[f"`{name}`", f"{x:.2f}"] for name, x in steps])
    head = ["kernel cache", "import", "backend", "first fit", "compilations", "second fit", "data"]
    rows = []
    for name in ("fresh", "empty_cache", "warm_cache"):
        if name in content:
            x = content[name]
            first, second = x["fits"]
            compiled = (
                f"{first.get('compilations', 0)}, {seconds(first.get('compilation_seconds'))}"
            )
            cells = [name.split("_")[0] if "cache" in name else "", seconds(x["import_seconds"])]
            cells += [seconds(x["backend_seconds"]), seconds(first["seconds"])]
            cells += [compiled, seconds(second["seconds"])]
            rows.append([*cells, f"{x['data']}, n = {x['n_components']}"])
    return f"{text}\n\n{table(head, rows)}"


def repeated(content: dict[str, Any]) -> str:
    """Say what was the same in all fits."""
    same = ", ".join(f"{name}: {'yes' if x else 'no'}" for name, x in content["same"].items())
    return f"The same bit for bit in {len(content['fits'])} fits of {content['data']}: {same}."


def counted() -> str:
    """Lay out what counts.jsonl has of its first commit and of its last."""
    path = RESULTS / "counts.jsonl"
    found = {stamp["commit"]: stamp for stamp in stamps(path)} if path.exists() else {}
    if len(found) < 2:
        return "Not counted yet."
    ends = [next(iter(found)), next(reversed(found))]
    rows: dict[str, list[Any]] = {}
    for row in read(path):
        stage, commit = row["task"]["stage"], row["task"]["commit"]
        if commit in ends:
            rows.setdefault(stage, [None, None])[ends.index(commit)] = row
    rows = {stage: pair for stage, pair in rows.items() if pair[1]}
    names = ("waits", "calls", "launches", "h2d", "d2h")
    lines = []
    for stage, pair in rows.items():
        cells = [[count_cell(row, name) for row in pair] for name in names]
        lines.append([stage, *(f"{old} → {new}" for old, new in cells)])
    head = ["stage", "waits", "calls of CuPy", "own kernels", "to the device", "to the host"]
    largest = next([x["result"] for x in rows[name]] for name in rows if name.startswith("sweep"))
    waits = [f"{x['waits']:,} in {x['iterations']:,} iterations" for x in largest]
    calls = [f"{x['calls']:,}" for x in largest]
    return f"""{table(head, lines)}

The sweep waits about once for each iteration of k-means, and did before: {waits[0]}, now
{waits[1]}. It calls CuPy {calls[1]} times instead of {calls[0]}. Where the commit before
*fails*, it asks sparse matrices for their device, which those of CuPy 14 do not say: it would have
failed on a device too.

Before is {ends[0][:7]}, after {ends[1][:7]}. Counted on {machine(found[ends[1]])}"""


def count_cell(row: dict[str, Any] | None, name: str) -> str:
    """Write a count, of copies with their bytes, or the error in its place."""
    if row is None:
        return "-"
    if "error" in row:
        return f"fails: {row['error'].splitlines()[0].strip(': ')}" if name == "waits" else "-"
    n = row["result"].get(f"{name}_bytes")
    size = f"{n / 1000:,.0f} kB" if n and n >= 1000 else f"{n} B"
    return f"{row['result'][name]:,}" + (f", {size}" if n else "")


def benchmarks_page() -> str:
    """Return docs/benchmarks.md."""
    return f"""# Benchmarks

This page is written by `python -m benchmarks.tables` from the files in `benchmarks/results`, which
the commands named here wrote. `pip install '.[bench]'` installs the other libraries. To measure
your own machine, run [`specialk-gpu bench`](cli.md#bench).

Each contender has a fresh process. The *first call* is the first in that process, its libraries
imported; *warm* is the median of more calls. Memory is the peak during the first call above
what was held before it. *Times ours* is a contender's time, warm where there is one, divided by
ours: below 1 it is faster than we are.

## On a GPU

{gpu_so_far()}
These commands fill in the figures, on a machine with one; the first takes eight minutes at most,
and runs the tests of the CUDA half too:

```console
$ bash benchmarks/device.sh RESULTS MNIST_FOLDER
$ cp RESULTS/*-cuda.json benchmarks/results
$ python -m benchmarks.tables
```

## Beside other methods

`python -m benchmarks.compare`: the same rows for all, two threads each. Where there is a star, k
was given. HDBSCAN's clusters have one row in a hundred at least, with `min_samples=10`; graphs have
10 neighbours; *on PCA* is on ten principal components. Rows in no cluster count as one more
cluster. "Gaussians" are 3 to 20 round clusters, the nearest two 6 deviations apart. Methods
that take a seed ran with seeds 0, 1, 2, ...: ten, or as many as took about a minute. A contender
that had no answer within `--time-limit`{waited()} was stopped. STSC tries at most 20 clusters.

{beside_others()}

## Stages

`specialk-gpu bench --size medium --stage knn spmm eigenpairs kmeans sweep merging --out
benchmarks/results/bench-stages-BACKEND.json`: nearest neighbours (10, others' with their recall:
at least 0.99 of 200 rows'), the product of $W_C$ with a dense block, the n eigenpairs of largest
magnitude to $10^{{-8}}$, k-means with ten restarts, the sweep (k-means and all bounds for each k up
to 11), and clusters from a graph (*merging*: ours with the eigenpairs and the test). Answers are
checked before they get a time: a wrong one has none.

{measured(stage_rows, "bench*")}

## Whole fits by the paper's rule

`specialk-gpu bench --size SIZE --stage fit --out benchmarks/results/bench-fit-BACKEND.json`:
against scikit-learn's `kneighbors_graph`, SciPy's `eigsh`, scikit-learn's `KMeans` and the bound
pair by pair, doing the same work up to k = 11, and against ClustPy's SpecialK, which stops at the
first rejection.

{measured(fit_rows, "bench*")}

## A fresh process

`python -m benchmarks.first_call --folder FOLDER --rows 10000 --n-components 200`; all 60,000 rows
and 1,000 eigenvectors by default.

{measured(first_call, "first_call")}

## The same answer every time

`python -m benchmarks.repeat --folder FOLDER --rows 10000 --n-components 200`.

{measured(repeated, "repeat")}

## Of each version

`python -m benchmarks.history`: what four small fits take. *Products*: columns multiplied by a
graph; *distances* computed; *calls* of functions of this package, and from it of others';
*allocated*: the most memory at once. A test fails if a count grows by more than a tenth beyond the
last version here.

{history.page(RESULTS)}

![Counts of each version as multiples of the first](figures/history.svg)

## Waits, calls and copies

`python -m benchmarks.counts`, and for another commit `--package FOLDER`: how often the host waits
for the device, calls functions of CuPy, launches kernels of ours and copies, at the first commit
that was counted and at the last. Counted on the stand-in for CuPy ({{doc}}`contributing`), with
made-up data. A stage finds its input on the device, but for whole fits.

{counted()}
"""
