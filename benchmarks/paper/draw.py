"""The figures of docs/, drawn from the files of results.

python -m benchmarks.paper.draw
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.paper.runner import read
from benchmarks.paper.shapes import DEFAULT, FIGURE3_N, MAX_K, TRUE_K
from benchmarks.stamp import RESULTS
from specialk_gpu.datasets import SHAPES, make_shape

__all__ = ["FIGURES", "main"]

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
COLOURS = {"SpecialK": "#2166ac", DEFAULT: "#3a9a5b", "STSC": "#d6851c", "PGMeans": "#7b7b7b"}
MARKERS = {"SpecialK": "o", DEFAULT: "D", "STSC": "*", "PGMeans": "s"}
BAND = "#f4c7d0"  # where the true k lies
ORDER = ("moons", "circles", "blobs", "random")  # of the paper's rows


def figure1() -> Any:
    """Draw the four shapes at two levels of noise."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, 4, figsize=(10, 5), layout="constrained")
    for row, noise in zip(axes, (0.1, 0.15), strict=True):
        for ax, shape in zip(row, SHAPES, strict=True):
            X, y = make_shape(shape, noise, random_state=0)
            ax.scatter(*X.T, c=y, s=3, cmap="viridis", vmin=0, vmax=3, rasterized=True)
            ax.set_title(f"{shape}, noise {noise}", fontsize=9)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.set_aspect("equal")
    return fig


def figure2(rows: list[dict[str, Any]]) -> Any:
    """Draw how often each k was found, as areas, against the noise."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(4, 2, figsize=(9, 10), sharex=True, sharey=True, layout="constrained")
    for line, shape in zip(axes, ORDER, strict=True):
        for ax, graph in zip(line, ("W_R", "W_C"), strict=True):
            ax.axhspan(TRUE_K[shape] - 0.5, TRUE_K[shape] + 0.5, color=BAND, zorder=0)
            for place, method in enumerate(COLOURS):
                found = counts(rows, method, shape, graph)
                if found:
                    x, k, size = zip(*found, strict=True)
                    x = [noise + 0.005 * (place - 1.5) for noise in x]
                    style = {"c": COLOURS[method], "marker": MARKERS[method], "alpha": 0.75}
                    ax.scatter(x, k, s=[18 * n for n in size], label=method, lw=0, **style)
            ax.set_ylim(0, MAX_K + 0.6)
            ax.set_title(f"{shape}, ${graph[0]}_{graph[2]}$", fontsize=10)
        line[0].set_ylabel("k found")
    for ax in axes[-1]:
        ax.set_xlabel("noise")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(COLOURS), frameon=False)
    return fig


def counts(
    rows: Iterable[dict[str, Any]], method: str, shape: str, graph: str
) -> list[tuple[float, int, int]]:
    """Return (noise, k, how often) of a method; STSC has no graph but its own."""
    found: Counter[tuple[float, int]] = Counter()
    for row in rows:
        task = row["task"]
        if (task["method"], task["shape"]) == (method, shape) and "result" in row:
            result = row["result"].get(graph, row["result"])
            found[task["noise"], min(result["k"], MAX_K)] += 1
    return [(noise, k, n) for (noise, k), n in sorted(found.items())]


def figure3(rows: list[dict[str, Any]]) -> Any:
    """Draw the mean k found against n, for both graphs."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    colours = dict(zip(SHAPES, ("#7b7b7b", "#2166ac", "#d6851c", "#3a9a5b"), strict=True))
    for ax, graph in zip(axes, ("W_R", "W_C"), strict=True):
        for shape, colour in colours.items():
            found = [
                row["result"]["k"]
                for row in rows
                if (row["task"]["shape"], row["task"]["graph"]) == (shape, graph)
            ]
            if found:
                mean = [sum(ks) / len(ks) for ks in zip(*found, strict=True)]
                ax.plot(
                    FIGURE3_N, mean, "o-", ms=3, color=colour, label=f"{shape} ({TRUE_K[shape]})"
                )
        ax.set_title(f"${graph[0]}_{graph[2]}$", fontsize=10)
        ax.set_xlabel("n")
        ax.set_ylim(0.8, MAX_K + 0.2)
    axes[0].set_ylabel("k found, mean of 5")
    axes[1].legend(title="shape (true k)", fontsize=8, frameon=False)
    return fig


def sensitivity(rows: list[dict[str, Any]]) -> Any:
    """Draw the rate of false splits on data without clusters, for each m and n."""
    import matplotlib.pyplot as plt

    from benchmarks.paper.sensitivity import NS, SETS

    fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for ax, rule, title in zip(axes, ("k", "watershed"), ('"first"', '"watershed"'), strict=True):
        for m, colour in zip(SETS, plt.colormaps["viridis"].resampled(6).colors, strict=False):
            rate = []
            for i, n in enumerate(NS):
                ks = [
                    row["result"][rule][i]
                    for row in rows
                    if row["task"]["m"] == m
                    and row["task"]["kind"] in ("uniform", "normal")
                    and i < len(row["result"][rule])
                ]
                rate.append((n, sum(k > 1 for k in ks) / len(ks)) if ks else None)
            if kept := [point for point in rate if point]:
                ax.plot(*zip(*kept, strict=True), "o-", ms=3, color=colour, label=f"m = {m:,}")
        ax.set_title(f"stopping={title}", fontsize=10)
        ax.set_xlabel("n")
        ax.set_ylim(-0.02, 1.02)
    axes[0].set_ylabel("false splits")
    axes[0].legend(fontsize=8, frameon=False)
    return fig


def main() -> None:
    """Draw what there are results of, as SVG and PNG."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams.update({"svg.hashsalt": "specialk", "font.size": 9, "axes.spines.top": False})
    mpl.rcParams["axes.spines.right"] = False
    FIGURES.mkdir(exist_ok=True)
    save(figure1(), "figure1")
    for name, function in (
        ("figure2", figure2),
        ("figure3", figure3),
        ("sensitivity", sensitivity),
    ):
        rows = [row for row in read(RESULTS / f"paper-{name}.jsonl") if "result" in row]
        if rows:
            save(function(rows), name)


def save(fig: Any, name: str) -> None:
    """Write a figure in both formats."""
    fig.savefig(FIGURES / f"{name}.svg", metadata={"Date": None})
    fig.savefig(FIGURES / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
