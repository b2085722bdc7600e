"""Plots of what tells clusters apart, and of rows that are far from all others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._checks import checked_integer
from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu.backend.typing import Matrix
from specialk_gpu.inspection.axes import axes_or_new, cluster_colors
from specialk_gpu.inspection.diagnostics import settings
from specialk_gpu.inspection.outliers import outlier_scores
from specialk_gpu.inspection.summary import name_in_summary, summary, value_in_summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["outliers", "profile"]

MOST_NAMED = 12  # clusters up to which each cell tells its value


def profile(
    model: Fitted, ax: Axes | None = None, *, X: Matrix | None = None, max_columns: int = 20
) -> Axes:
    """Draw how much each cluster differs from the others in the columns of largest effect.

    Red is larger than in the other clusters (or more frequent), blue is smaller; white is alike.
    Each cell tells the median of the cluster, or its most frequent value.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.
    X : array-like or data frame of m rows, optional
        See `SpecialK.summary`.
    max_columns : int
        The largest number of columns to draw.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Raises
    ------
    ValueError
        If there are no columns, or X does not have as many rows as the fit.
    """
    check_is_fitted(model)
    max_columns = checked_integer("max_columns", max_columns, 1)
    columns = summary(model, X).columns[:max_columns]
    if not columns:
        msg = "X must be given: the model does not hold the rows of the fit as they were given."
        raise ValueError(msg)
    k = model.n_clusters_
    cells = [[value_in_summary(column, c, longest=14) for c in range(k)] for column in columns]
    if ax is None:
        from matplotlib import pyplot

        widest = max(len(cell) for row in cells for cell in row) if k <= MOST_NAMED else 0
        size = 3.4 + max(0.5, 0.1 * widest) * min(k, 20), 1.6 + 0.32 * len(columns)
        ax = pyplot.subplots(layout="constrained", figsize=size)[1]
    differences = np.array([column.differences for column in columns])
    image = ax.imshow(differences, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    if k <= MOST_NAMED:
        for i, row in enumerate(cells):
            for c, cell in enumerate(row):
                color = "white" if abs(differences[i, c]) > 0.7 else "black"
                ax.text(c, i, cell, color=color, ha="center", va="center", fontsize="small")
    ax.figure.colorbar(image, ax=ax, label="difference from the other clusters")
    ax.set_yticks(range(len(columns)), [name_in_summary(column.name) for column in columns])
    ax.set(xlabel="cluster", xticks=range(0, k, -(-k // 20)))
    return ax


def outliers(
    model: Fitted, ax: Axes | None = None, *, n_named: int = 5, max_points: int = 10_000
) -> Axes:
    """Draw the outlier scores of the rows, by cluster, and name the largest by their row number.

    Parameters
    ----------
    model : SpecialK
        A fitted model, not of a given graph.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.
    n_named : int
        The number of rows that are named.
    max_points : int
        The largest number of rows to draw: beside those that are named, evenly spaced ones.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Raises
    ------
    AttributeError
        For a given graph, which has no distances.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    check_is_fitted(model)
    scores, k = on_host(outlier_scores(model)), model.n_clusters_
    ax = axes_or_new(ax)
    labels = on_host(model._level(k))
    m, n_named = scores.size, checked_integer("n_named", n_named, 0)
    step = max(1, -(-m // checked_integer("max_points", max_points, 1)))
    named = np.argsort(-scores, kind="stable")[:n_named]
    rows = np.union1d(np.arange(0, m, step), named)
    drawn = rows[scores[rows] > 0]  # a logarithm has no zero
    golden = (math.sqrt(5) - 1) / 2
    x = labels + 0.6 * (np.arange(m) * golden % 1) - 0.45
    ax.scatter(
        x[drawn],
        scores[drawn],
        s=6,
        color=cluster_colors(k)[labels[drawn]],
        linewidths=0,
        alpha=0.7,
    )
    ax.axhline(1, color="0.6", linewidth=1, label="usual in the cluster")
    noise = settings(model).noise
    if noise is not None:
        ax.axhline(noise, color="0.3", linestyle="--", label=f"noise = {noise:g}")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set(xlabel="cluster", ylabel="outlier score", xlim=(-0.6, k - 0.4 + 0.07 * k))
    ax.set_xticks(range(0, k, -(-k // 20)))
    _plot_row_names(ax, named[scores[named] > 0], x, scores, 0.1 * (k + 0.2))
    ax.legend()
    return ax


def _plot_row_names(
    ax: Axes, rows: np.ndarray, x: np.ndarray, scores: np.ndarray, width: float
) -> None:
    """Write the number of each row beside its point, below names that would be in its place."""
    low, high = ax.get_ylim()
    gap = (high / low) ** 0.045
    placed: list[tuple[float, float]] = []
    for row in rows:
        at, y = float(x[row]), float(scores[row])
        for other, height in placed:  # from high to low
            if abs(at - other) < width and height / gap < y < height * gap:
                y = height / gap
        placed.append((at, y))
        place = {"textcoords": "offset points", "va": "center", "fontsize": "small"}
        ax.annotate(f"row {row}", (at, y), (5, 0), **place)
        ax.plot([at, at + 0.03 * width], [scores[row], y], color="0.5", linewidth=0.5)
