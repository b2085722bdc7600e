"""Write the pages of docs/ that have figures, and the README's figures, from the files of results.

    python -m benchmarks.tables

Every figure in the documentation comes from here; tests/test_docs.py checks that they are current.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import cluster_page, growth, large
from benchmarks.calibration.page import calibration_page
from benchmarks.compare_page import comparison
from benchmarks.markdown import OLD_RULE, machine, seconds, table, with_figures
from benchmarks.pages import benchmarks_page
from benchmarks.paper.pages import reproduce, sensitivity_page
from benchmarks.paper.runner import read, stamps
from benchmarks.stamp import RESULTS

KINDS_ARI = ("ari", "ari_given_k")
SHOWN_M, SHOWN_N = (300, 1000, 10_000, 20_000), (50, 200, 500)  # of the eigensolvers
MORE_K = 3  # rows of a path that are shown beyond the answer
LEAST_PATH = 11  # rows of a path that are shown at least
ROOT = Path(__file__).parents[1]


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


def readme(text: str) -> str:
    """Return the README with its figures replaced."""
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
    return with_figures(text, figures)


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


FILLED = {"README.md": readme, "docs/comparison.md": comparison}  # with figures in their text


def main() -> None:
    """Write all files."""
    for name, page in PAGES.items():
        (ROOT / "docs" / f"{name}.md").write_text(page())
    for name, filled in FILLED.items():
        path = ROOT / name
        path.write_text(filled(path.read_text()))


if __name__ == "__main__":
    main()
