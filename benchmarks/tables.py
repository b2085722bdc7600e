"""Write the pages of docs/ that have figures, and the README's figures, from the files of results.

    python -m benchmarks.tables

Every figure in the documentation comes from here; tests/test_docs.py checks that they are current.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import cluster_page, growth, large
from benchmarks.calibration.page import calibration_page
from benchmarks.markdown import OLD_RULE, machine, seconds, table
from benchmarks.paper.pages import reproduce, sensitivity_page
from benchmarks.paper.runner import read, stamps
from benchmarks.stamp import RESULTS
from benchmarks.suite.cases import Case

KINDS_ARI = ("ari", "ari_given_k")
SHOWN_M, SHOWN_N = (300, 1000, 10_000, 20_000), (50, 200, 500)  # of the eigensolvers
MORE_K = 3  # rows of a path that are shown beyond the answer
LEAST_PATH = 11  # rows of a path that are shown at least
ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- figures: python -m benchmarks.tables -->", "<!-- end of figures -->"


def load(name: str) -> dict[str, Any]:
    """Read results/name.json."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def mnist_path(content: dict[str, Any]) -> str:
    """Lay out the paths of the first fits: by the paper's rule, and by the default."""
    path = content["seeds"][0]["path"]
    if "default" not in content:  # written when the default was another
        names = {f"log10 p, {OLD_RULE}": "log10_p_calibrated", "log10 of the bound": "log10_p"}
        return path_table(path, content["n_clusters"], names | {"inertia": "inertia"})
    default, by_bound = content["default"], {"log10 of the bound": "log10_p", "inertia": "inertia"}
    return f"""By default:

{path_table(default["path"], default["n_clusters"], {"log10 p": "log10_p"})}

Values below -3 only order the borders; they are not probabilities.

By the paper's rule, with $n = 1000$:

{path_table(path, content["n_clusters"], by_bound)}"""


def path_table(path: list[dict[str, Any]], k: int, names: dict[str, str]) -> str:
    """Lay out a path, its decision in bold: k, the fields that are named, NMI."""
    rows = []
    for row in path[: max(k + MORE_K, LEAST_PATH)]:
        star = "**" if row["k"] == k else ""
        cells = [f"{row['k']}"]
        for name in (*names.values(), "nmi"):
            x = row.get(name)
            cells.append("" if x is None else f"{x:.{2 if 'log' in name else 3}f}")
        rows.append([f"{star}{cell}{star}" if cell else "" for cell in cells])
    return table(["k", *names, "NMI"], rows)


def mnist_times(content: dict[str, Any]) -> str:
    """Lay out the seconds by stage of the first fit by default."""
    content = content.get("default", content)
    fit = content["fits"][0]
    head = [*fit["stages"], "whole fit", "peak memory"]
    cells = [f"{seconds:.1f} s" for seconds in fit["stages"].values()]
    peak = f"{content['peak_bytes'] / 1e9:.1f} GB"
    return table(head, [[*cells, f"{fit['seconds']:.0f} s", peak]])


def solvers(content: dict[str, Any]) -> str:
    """Lay out the seconds of the eigensolvers for some sizes."""
    names = ("dense", "lanczos", "chebyshev")
    rows = [
        [
            row["m"],
            row.get("entries", ""),
            row["n"],
            *(f"{row[name]:.2f}" if name in row else "" for name in names),
        ]
        for row in content["rows"]
        if any(name in row for name in names) and row["m"] in SHOWN_M and row["n"] in SHOWN_N
    ]
    return table(["m", "entries a row", "n", *names], rows)


def found_in(part: str) -> list[dict[str, Any]]:
    """Return what benchmarks.selection has found in one part: task and result together."""
    rows = read(RESULTS / f"selection-{part}.jsonl")
    return [row["task"] | row["result"] for row in rows if "result" in row]


def span(numbers: list[float], form: str) -> str:
    """Write the least, the median and the largest of some numbers."""
    return " / ".join(
        f"{x:{form}}" for x in (min(numbers), statistics.median(numbers), max(numbers))
    )


def counts_of(values: list[Any]) -> str:
    """Write how often each value occurs."""
    return ", ".join(f"{value} ({n})" for value, n in sorted(Counter(values).items()))


def images() -> str:
    """Lay out fits of images by random_state, and of samples of them."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for row in found_in("mnist"):
        name = row["set"] + (", samples" if "sample" in row else "") + f", {row['m']:,} rows"
        sets.setdefault(name, []).append(row)
    rows = []
    for name, own in sets.items():
        cells = [name, len(own), counts_of([row["k"] for row in own])]
        cells += [span([row[key] for row in own], ".3f") for key in ("nmi", "ari")]
        cells += [span([row["seconds"] for row in own], ".0f")]
        rows.append([*cells, f"{max(row['peak_bytes'] for row in own) / 1e9:.2f} GB"])
    return table(["set", "fits", "k (fits)", "NMI", "ARI", "seconds", "peak memory"], rows)


def against_another() -> str:
    """Lay out the seconds of two commits, measured in turns."""
    rows = []
    for row in found_in("time"):
        cells = [row["set"]]
        for who in ("ours", "other"):
            cells.append(f"{statistics.median(fit['seconds'] for fit in row[who]):.1f} s")
            cells.append(counts_of([fit["k"] for fit in row[who]]))
        rows.append([*cells, f"{row['ratio']:.2f}"])
    newer = stamps(RESULTS / "selection-time.jsonl")[-1]["commit"][:7]
    return table(["set", newer, "k (fits)", "edbaa53", "k (fits)", "ratio"], rows)


def verdicts(rows: list[dict[str, Any]]) -> str:
    """Say of how many sets the right k was found."""
    n = Counter(row["verdict"] for row in rows)
    right = f"{n['right']} of {len(rows)} right ({100 * n['right'] / len(rows):.0f} %)"
    return f"{right}, {n['too few']} too few, {n['too many']} too many"


def kinds_of_sets() -> str:
    """Lay out how often k was right, and the clusters where it is given."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for row in found_in("kinds"):
        sets.setdefault(row["set"], []).append(row)
    rows = []
    for name, own in sets.items():
        rows.append([name, len(own), counts_of([row["k"] for row in own])])
        rows[-1] += [f"{statistics.mean(row[key] for row in own):.3f}" for key in KINDS_ARI]
    return table(["set", "draws", "k (draws)", "mean ARI", "mean ARI with n_clusters"], rows)


def moving(row: dict[str, Any]) -> str:
    """Name a set whose k is not always the same, with all that were found."""
    ks = sorted({k for name in ("random_state", "order", "float32") for k in row[name]})
    return f"{row['set']} ({', '.join(map(str, ks))})"


def default_rule() -> str:
    """Lay out what benchmarks.selection has found."""
    designs, stable, given = (found_in(part) for part in ("designs", "stable", "given_k"))
    many = [row for row in designs if row["set"].startswith(("k10 ", "k20 ", "k50 "))]
    n_draws = len({row["seed"] for row in designs})
    moved = [moving(row) for row in stable if not row["same"]]
    ours, theirs = (statistics.mean(row[who] for row in given) for who in ("ours", "theirs"))
    return f"""{images()}

NMI, ARI and seconds: least / median / largest.

{against_another()}

Two commits: medians of three fits each, in turns. The default of edbaa53 was {OLD_RULE}.

{len(designs) // n_draws} designs, {n_draws} draws of each: {verdicts(designs)}; mean ARI
{statistics.mean(row["ari"] for row in designs):.2f}. Of these with 10, 20 or 50 clusters:
{verdicts(many)}.

{kinds_of_sets()}

{len(stable)} real sets: {verdicts(stable)}. Ten values of `random_state`, five orders of the
rows and float32 give the same k in {len(stable) - len(moved)}. They do not in
{", ".join(moved) or "none"}.

With `n_clusters` the number of classes, on {len(given)} labelled sets: mean ARI {ours:.3f};
scikit-learn's `SpectralClustering` on the same graphs {theirs:.3f}.

Measured on {machine(stamps(RESULTS / "selection-mnist.jsonl")[-1])}"""


def results_page() -> str:
    """Return docs/results.md."""
    mnist, eigen = (load(f"{name}-numpy") for name in ("mnist", "eigen_solvers"))
    seeds = mnist["seeds"]
    good = mnist["seeds_within_0.2_percent_and_0.3_in_log10_p"]
    small = [f"{row['log10_p']:.2f} at k = {row['k']}" for row in mnist["n_200"]["path"][1:]]
    return f"""# Results

This page is written by `python -m benchmarks.tables` from the files in `benchmarks/results`, which
the commands named here wrote. There are no figures from a GPU yet. Compare seconds within a table
only: machines, versions and rules differ. {{doc}}`reproduce` has the paper's experiments.

## MNIST, 60,000 images

`python -m benchmarks.mnist --folder FOLDER --backend numpy`: $W_C$, $n = 1000$.

{mnist_path(mnist)}

{mnist_times(mnist)}

Of {len(seeds)} values of `random_state`, {good} come within 0.2 % of the lowest inertia known
and within 0.3 of its log10 p for every k from 2 to 6. Largest residual of an eigenpair:
{mnist["largest_residual"]:.1e}. With $n = 200$, log10 p is {", ".join(small)}.

Measured on {machine(mnist["stamp"])}

## The default rule

`python -m benchmarks.selection PART` (mnist, time, designs, kinds, stable, given_k).

{default_rule()}

## Eigensolvers

`python -m benchmarks.eigen_solvers`: seconds for the n largest pairs of a $W_C$ graph of m uniform
points in three dimensions, the evidence for `eigen_solver="auto"`. Blank where a smaller problem
took more than a quarter of a minute. `benchmarks/results/eigen_solvers-numpy.json` has more sizes.

{solvers(eigen)}

Measured on {machine(eigen["stamp"])}
"""


def measured(lay_out: Callable[[dict[str, Any]], str], pattern: str) -> str:
    """Lay out every file of results of this name on either backend, or say that there is none."""
    parts = []
    for backend, title in (("numpy", "On the CPU"), ("cuda", "On a GPU")):
        parts.append(f"### {title}")
        found = sorted(RESULTS.glob(f"{pattern}-{backend}.json"))
        for content in (json.loads(path.read_text()) for path in found):
            parts += [lay_out(content), f"Measured on {machine(content['stamp'])}"]
            if other := content.get("rows_of_another_commit"):
                parts.append(f"Of an earlier commit, {other['commit'][:7]}: {other['rows']}.")
        parts += [] if found else ["Not measured yet."]
    return "\n\n".join(parts)


def stage_rows(content: dict[str, Any]) -> str:
    """Lay out the contenders on each case."""
    rows = []
    for row in content["rows"]:
        case = Case(**row["case"])
        cells = [case.stage, case, row["contender"]]
        if row["status"] == "ok":
            cells += [seconds(row["cold_seconds"]), seconds(row["warm_seconds"]), megabytes(row)]
            cells += [f"{row['times_ours']:.2f}" if "times_ours" in row else ""]
            cells += [f"{row['wrong_rows']}" if "wrong_rows" in row else ""]
        else:
            cells += [f"{row['status']}: {row['detail']}", "", "", "", ""]
        rows.append(cells)
    head = ["stage", "problem", "who", "first call", "warm", "memory", "times ours", "wrong rows"]
    return table(head, rows)


def fit_rows(content: dict[str, Any]) -> str:
    """Lay out seconds and peak memory of the stages of whole fits."""
    names = ("neighbours", "graph", "eigenpairs", "embedding", "sweep")
    rows = []
    for row in content["rows"]:
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
    ours = {row["contender"] for row in content["rows"]}
    have = {(str(Case(**row["case"])), row["contender"]) for row in content["rows"]}
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
    rows = {stage: pair for stage, pair in rows.items() if all(pair)}
    names = ("waits", "calls", "launches", "h2d", "d2h")
    lines = []
    for stage, pair in rows.items():
        cells = [[count_cell(row, name) for row in pair] for name in names]
        lines.append([stage, *(f"{old} → {new}" for old, new in cells)])
    head = ["stage", "waits", "calls of CuPy", "own kernels", "to the device", "to the host"]
    largest = [row["result"] for row in list(rows.values())[-1]]
    waits = [f"{x['waits']:,} in {x['iterations']:,} iterations" for x in largest]
    calls = [f"{x['calls']:,}" for x in largest]
    return f"""{table(head, lines)}

The sweep waits about once for each iteration of k-means, and did before: {waits[0]}, now
{waits[1]}. It calls CuPy {calls[1]} times instead of {calls[0]}. Where the commit before
*fails*, it asks sparse matrices for their device, which those of CuPy 14 do not say: it would have
failed on a device too.

Before is {ends[0][:7]}, after {ends[1][:7]}. Counted on {machine(found[ends[1]])}"""


def count_cell(row: dict[str, Any], name: str) -> str:
    """Write a count, of copies with their bytes, or the error in its place."""
    if "error" in row:
        return f"fails: {row['error'].splitlines()[0].strip(': ')}" if name == "waits" else "-"
    n_bytes = row["result"].get(f"{name}_bytes")
    size = f"{n_bytes / 1000:,.0f} kB" if n_bytes and n_bytes >= 1000 else f"{n_bytes} B"
    return f"{row['result'][name]:,}" + (f", {size}" if n_bytes else "")


def megabytes(row: dict[str, Any]) -> str:
    """Write the peak memory, on the device where it was measured there."""
    peak = row.get("device_peak_bytes", row.get("peak_bytes"))
    return "" if peak is None else f"{peak / 1e6:,.0f} MB"


def benchmarks_page() -> str:
    """Return docs/benchmarks.md."""
    return f"""# Benchmarks

This page is written by `python -m benchmarks.tables` from the files in `benchmarks/results`, which
the commands named here wrote. To measure your own machine, run
[`specialk-gpu bench`](cli.md#bench).

Each contender runs in a fresh process and gets the data in memory, on a GPU in the device's. The
first call is the first in that process, its libraries imported; the warm time is the median of
up to three more, of whole fits fifteen. No call is repeated once the calls have taken ten seconds.
Answers are checked before they get a time: a wrong one has none. Memory is the peak during the
first call above what was held before it: resident size on the CPU, all that the device has in use
on a GPU. *Times ours* is a contender's time, warm where there is one, divided by ours: below 1 it
is faster than we are.

## Stages

`specialk-gpu bench --size medium --out benchmarks/results/bench-BACKEND.json`: exact nearest
neighbours (k = 10), the product of $W_C$ with a dense block, the n eigenpairs of largest magnitude
to $10^{{-8}}$, and the sweep (k-means with ten restarts for each k up to 11, and all bounds).
Libraries for nearest neighbours do not promise exact ones; *wrong rows* counts theirs among 200.

{measured(stage_rows, "bench*")}

## Whole fits

`python -m benchmarks.compare --folder FOLDER --backend BACKEND`: against scikit-learn's
`kneighbors_graph`, SciPy's `eigsh`, scikit-learn's `KMeans` and the bound pair by pair, doing the
same work up to k = 11, and against ClustPy's SpecialK, which stops at the first rejection. Ours
decides by the paper's rule here, as theirs does.

{measured(fit_rows, "compare")}

## A fresh process

`python -m benchmarks.first_call --folder FOLDER --backend BACKEND`.

{measured(first_call, "first_call")}

## The same answer every time

`python -m benchmarks.repeat --folder FOLDER --backend BACKEND`.

{measured(repeated, "repeat")}

## Waits, calls and copies

`python -m benchmarks.counts`, and for another commit `--package FOLDER`: how often the host waits
for the device, calls functions of CuPy, launches kernels of ours and copies, before and after the
work on waits. These are counts on the stand-in for CuPy ({{doc}}`contributing`), no times, and the
data are made up. A stage finds its input on the device, but for the whole fit.

{counted()}
"""


def readme(text: str) -> str:
    """Return the README with its figures replaced."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path = RESULTS / "selection-mnist.jsonl"
    rows = [row for row in found_in("mnist") if row["set"] == "MNIST" and "sample" not in row]
    seconds, cores = [row["seconds"] for row in rows], stamps(path)[-1]["cores"]
    peak = max(row["peak_bytes"] for row in rows) / 1e9
    ks = Counter(row["k"] for row in rows)
    found = " and ".join(f"{n} find k = {k}" for k, n in sorted(ks.items()))
    figures = f"""
Of {len(rows)} fits of MNIST's {rows[0]["m"]:,} images {found}. One takes {min(seconds):.0f} to
{max(seconds):.0f} s and {peak:.1f} GB on {cores} CPU cores ([results](docs/results.md)).
"""
    return f"{before}{BEGIN}{figures}{END}{after}"


def cost_page() -> str:
    """Return docs/cost.md."""
    fits = growth.measured()
    rows = []
    for fit, (seconds_ratio, memory_ratio) in zip(fits, growth.ratios(fits), strict=True):
        if fit["clusters"] == 1:
            continue
        cells = [f"`{fit['criterion']}`", f"{fit['m']:,}", fit["d"], fit["n"]]
        cells += [seconds(fit["stages"].get(name)) for name in ("graph", "eigenpairs")]
        extra = fit["peak_bytes"] - fit["bytes_before"]
        cells += [seconds(fit["cpu_seconds"]), f"{seconds_ratio:.2f}"]
        rows.append([*cells, f"{extra / 1e6:,.0f} MB", f"{memory_ratio:.2f}"])
    head = ["rule", "rows", "columns", "n", "graph", "eigenpairs", "whole fit"]
    near = sum(0.5 < ratio < 2 for ratio, _ in growth.ratios(fits))
    unseen = sum(0.5 < ratio < 2 for ratio in growth.unseen_ratios(fits))
    return f"""# How long will it take, and how much memory

This page is written by `python -m benchmarks.tables` from `benchmarks/results/growth.jsonl`.

```python
from specialk_gpu import estimate

expected = estimate(60_000, 50)  # rows, columns
print(expected.n_components, list(expected.stages))
```

```text
60 ['graph', 'eigenpairs', 'fragments', 'merging', 'polishing']
```

`print(expected)` is a table of seconds by stage, with the memory at most beyond the data and the
libraries. In a shell, `specialk-gpu estimate 60000 50` or `specialk-gpu estimate points.csv` prints
the same.

The seconds come from power laws of rows, columns and eigenvectors, one for each stage, scaled by
two speeds of this machine: of a matrix product, for the graph of more than six columns, and of a
copy in memory, for all else. Measuring them takes less than 0.3 s.

- On the machine where the fits were measured, {near} of {len(fits)} are within a factor of 2. If
  the laws are made without the fits of the same size, {unseen} are.
- The seconds are those of one thread. More threads make a fit faster.
- The data are Gaussian. Clusters that are hard to tell apart, and more than 30 clusters, take
  longer. Many rows in clusters that lie apart take less ({{doc}}`large` has newer figures).
- Sizes beyond those in the table are extrapolated, and graphs of your own, `radius_neighbors` and
  GPUs are not covered.

## What was measured

`python -m benchmarks.growth`, with ten clusters (`benchmarks/results/growth.jsonl` has one cluster
too); `python -m benchmarks.growth coefficients` makes the laws of it. *Ratio*: expected, divided by
measured.

{table([*head, "ratio", "memory", "ratio"], rows)}

Measured on {machine(stamps(growth.FILE)[-1])}
"""


PAGES = {
    "results": results_page,
    "benchmarks": benchmarks_page,
    "reproduce": reproduce,
    "sensitivity": sensitivity_page,
    "calibration": calibration_page,
    "cost": cost_page,
    "cluster": cluster_page.page,
    "large": large.page,
}


def main() -> None:
    """Write all files."""
    for name, page in PAGES.items():
        (ROOT / "docs" / f"{name}.md").write_text(page())
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text()))


if __name__ == "__main__":
    main()
