"""Write docs/results.md and the README's figures from the files of results.

    python -m benchmarks.tables

Every figure in the documentation comes from here; tests/test_docs.py checks that they are current.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.stamp import RESULTS

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- figures: python -m benchmarks.tables -->", "<!-- end of figures -->"
GRAPHS = {"nearest_neighbors": "$W_C$", "radius_neighbors": "$W_R$"}


def load(name: str) -> dict[str, Any]:
    """Read results/name.json."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Lay out a Markdown table."""
    lines = [head, ["---:"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def machine(content: dict[str, Any]) -> str:
    """Say where the results were measured."""
    stamp = content["stamp"]
    versions = ", ".join(f"{name} {version}" for name, version in stamp["versions"].items())
    where = ", ".join([*stamp["gpu"], f"{stamp['processor']}, {stamp['cores']} cores"])
    return f"{where}; Python {stamp['python']}, {versions}; {stamp['date'][:10]}."


def mnist_path(content: dict[str, Any]) -> str:
    """Lay out the path of the first fit."""
    rows = []
    for row in content["seeds"][0]["path"]:
        star = "**" if row["k"] == content["n_clusters"] else ""
        log_p = "" if row["log10_p"] is None else f"{row['log10_p']:.2f}"
        cells = [row["k"], log_p, f"{row['inertia']:.3f}", f"{row['nmi']:.3f}"]
        rows.append([f"{star}{cell}{star}" if cell != "" else "" for cell in cells])
    return table(["k", "log10 p", "inertia", "NMI"], rows)


def mnist_times(content: dict[str, Any]) -> str:
    """Lay out the seconds by stage of the first fit."""
    fit = content["fits"][0]
    head = [*fit["stages"], "whole fit", "peak memory"]
    cells = [f"{seconds:.1f} s" for seconds in fit["stages"].values()]
    peak = f"{content['peak_bytes'] / 1e9:.1f} GB"
    return table(head, [[*cells, f"{fit['seconds']:.0f} s", peak]])


def synthetic(content: dict[str, Any]) -> str:
    """Lay out how often the true k was found."""
    rows = [
        [
            GRAPHS[row["affinity"]],
            row["shape"],
            row["true_k"],
            f"{row['right']} of {row['sets']}",
            f"{row['right_without_noise']} of {len(row['found'][0])}",
        ]
        for row in content["table"]
    ]
    return table(["graph", "shape", "true k", "found", "without noise"], rows)


def solvers(content: dict[str, Any]) -> str:
    """Lay out the seconds of the eigensolvers."""
    names = ("dense", "lanczos", "chebyshev")
    rows = [
        [row["m"], row["n"], *(f"{row[name]:.2f}" if name in row else "" for name in names)]
        for row in content["rows"]
        if any(name in row for name in names)
    ]
    return table(["m", "n", *names], rows)


def results_page() -> str:
    """Return docs/results.md."""
    mnist, sets, eigen = (load(f"{x}-numpy") for x in ("mnist", "synthetic", "eigen_solvers"))
    seeds = mnist["seeds"]
    good = mnist["seeds_within_0.2_percent_and_0.3_in_log10_p"]
    small = [f"{row['log10_p']:.2f} at k = {row['k']}" for row in mnist["n_200"]["path"][1:]]
    return f"""# Results

This page is written by `python -m benchmarks.tables` from the files in `benchmarks/results`, which
the commands named here wrote. There are no figures from a GPU yet.

## MNIST, 60,000 images

`python -m benchmarks.mnist --folder FOLDER --backend numpy`: $W_C$, $n = 1000$, full path to 11.

{mnist_path(mnist)}

{mnist_times(mnist)}

Of {len(seeds)} values of `random_state`, {good} come within 0.2 % of the lowest inertia known
and within 0.3 of its log10 p for every k from 2 to 6. Largest residual of an eigenpair:
{mnist["largest_residual"]:.1e}. With $n = 200$, log10 p is {", ".join(small)}.

Measured on {machine(mnist)}

## The paper's synthetic sets

`python -m benchmarks.synthetic`: 1,500 rows, $n = 200$, $\\alpha = 0.01$, k up to 5, ten levels of
noise, five sets for each.

{synthetic(sets)}

Measured on {machine(sets)}

## Eigensolvers

`python -m benchmarks.eigen_solvers`: seconds for the n largest pairs of a $W_C$ graph of m uniform
points in three dimensions, the evidence for `eigen_solver="auto"`. Blank where a smaller problem
took more than a quarter of a minute.

{solvers(eigen)}

Measured on {machine(eigen)}
"""


def readme(text: str) -> str:
    """Return the README with its figures replaced."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    mnist = load("mnist-numpy")
    figures = f"""
MNIST's path on the CPU, the answer in bold, and the seconds it took:

{mnist_path(mnist)}

{mnist_times(mnist)}

Measured on {machine(mnist)}
[More results](docs/results.md), and the commands that wrote them.
"""
    return f"{before}{BEGIN}{figures}{END}{after}"


def main() -> None:
    """Write both files."""
    (ROOT / "docs" / "results.md").write_text(results_page())
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text()))


if __name__ == "__main__":
    main()
