"""Plots of a fitted model, with matplotlib; each function draws on an Axes and returns it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu.backend.typing import Matrix
from specialk_gpu.inspection.axes import axes_or_new, cluster_colors
from specialk_gpu.inspection.diagnostics import (
    LN10,
    images,
    in_the_plane,
    in_words,
    pair_matrix,
    settings,
    sizes_of_clusters,
    typical,
)
from specialk_gpu.inspection.plot_columns import outliers, profile
from specialk_gpu.inspection.plot_stability import stability
from specialk_gpu.inspection.plot_tree import levels, tree
from specialk_gpu.inspection.verdict import watershed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["cluster_sizes", "embedding", "levels", "members", "outliers", "pairs", "path"]
__all__ += ["profile", "spectrum", "stability", "tree"]

FLOOR = {"cut": -3.0, "zz_top": -20.0}  # lower end of the axis: log10 of p or of the bound


def path(model: Fitted, ax: Axes | None = None) -> Axes:
    """Draw log10 p of the least separate pair against k, with alpha and the decision.

    p is that of the cut test; for criterion="zz_top" it is the ZZ Top Bound.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax)
    steps = [step for step in model.path_ if step.pair is not None]
    ks = np.array([step.k for step in steps])
    log10_p = np.array([step.log_p for step in steps]) / LN10
    criterion = model.path_.criterion
    floor = FLOOR[criterion]
    shown = np.maximum(log10_p, floor)
    ax.plot(ks, shown, color="0.6", zorder=1)
    accepted = np.array([step.accepted for step in steps], dtype=bool)
    for mask, marker, color, name in (
        (accepted, "o", "C0", "accepted"),
        (~accepted, "X", "C3", "rejected"),
    ):
        if mask.any():
            ax.scatter(ks[mask], shown[mask], marker=marker, color=color, label=name, zorder=2)
    below = in_words(-math.inf, "cut") if criterion == "cut" else "below"
    lowest = log10_p < floor
    for k in ks[lowest & ~np.r_[False, lowest[:-1]]]:  # the first of each row of dots
        ax.annotate(below, (k, floor), ha="center", va="bottom", fontsize="small")
    threshold = math.log10(settings(model).alpha)
    ax.axhline(threshold, color="0.3", linestyle="--", label=f"alpha = {settings(model).alpha:g}")
    ax.axvline(model.n_clusters_, color="C2", linewidth=6, alpha=0.25, zorder=0, label="decision")
    if len(steps) > 1 and criterion == "zz_top" and (k := watershed(model)) != model.n_clusters_:
        ax.axvline(k, color="C4", linestyle=":", zorder=0, label="watershed")
    name = "log10 p of the cut test" if criterion == "cut" else "log10 of the ZZ Top Bound"
    ax.set(xlabel="number of clusters k", ylabel=f"{name}, worst pair")
    ax.set_title(f"k = {model.n_clusters_}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend()
    return ax


def spectrum(model: Fitted, ax: Axes | None = None) -> Axes:
    """Draw the magnitudes of the eigenvalues; negative eigenvalues have another colour.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax)
    values = on_host(model.eigenvalues_)
    number = np.arange(1, values.size + 1)
    for mask, color, name in ((values >= 0, "C0", "positive"), (values < 0, "C3", "negative")):
        if mask.any():
            ax.scatter(number[mask], np.abs(values[mask]), s=8, color=color, label=name)
    ax.set(xlabel="eigenpair", ylabel="|eigenvalue|")
    ax.set_ylim(bottom=0)
    ax.legend()
    return ax


def cluster_sizes(model: Fitted, ax: Axes | None = None) -> Axes:
    """Draw the number of rows in each cluster.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax)
    sizes = sizes_of_clusters(model)[0]
    bars = ax.bar(np.arange(sizes.size), sizes, color=cluster_colors(sizes.size))
    if sizes.size <= 20:
        ax.bar_label(bars)
    ax.set(xlabel="cluster", ylabel="rows")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return ax


def pairs(model: Fitted, ax: Axes | None = None, *, k: int | None = None) -> Axes:
    """Draw log10 of the ZZ Top Bound of every pair of clusters, for either criterion.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.
    k : int, optional
        A number of clusters that `labels_at` accepts; by default `n_clusters_`.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Raises
    ------
    ValueError
        If there is no clustering into k clusters.
    """
    check_is_fitted(model)
    matrix = pair_matrix(model, k)
    ax = axes_or_new(ax)
    floor = FLOOR["zz_top"]
    image = ax.imshow(np.maximum(matrix, floor), cmap="viridis_r", vmin=floor, vmax=0)
    n = len(matrix)
    if n <= 12:
        for i, j in np.argwhere(np.isfinite(matrix) & ~np.eye(n, dtype=bool)):
            color = "white" if matrix[i, j] > floor / 2 else "black"
            ax.text(j, i, f"{matrix[i, j]:.1f}", ha="center", va="center", color=color)
    ax.figure.colorbar(image, ax=ax, label="log10 of the ZZ Top Bound", extend="min")
    ax.set(xlabel="cluster", ylabel="cluster")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    return ax


def embedding(
    model: Fitted,
    ax: Axes | None = None,
    *,
    points: ArrayLike | None = None,
    max_points: int = 10_000,
) -> Axes:
    """Draw the rows in two dimensions, coloured by cluster.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.
    points : array of shape (m, 2), optional
        Coordinates of the rows, such as the data themselves or a UMAP of them. By default the
        two leading principal components of the embedding D.
    max_points : int
        The largest number of rows to draw; they are evenly spaced among all rows.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax)
    labels = on_host(model.labels_)
    names = "xy"
    if max_points < 1:
        msg = f"max_points must be at least 1, got {max_points}."
        raise ValueError(msg)
    if points is None:
        points, names = in_the_plane(model), ("component 1", "component 2")
    points = np.asarray(on_host(points))
    if points.shape != (labels.size, 2):
        msg = f"points must have shape {(labels.size, 2)}, got {points.shape}."
        raise ValueError(msg)
    step = max(1, -(-labels.size // max_points))
    colors = cluster_colors(model.n_clusters_)
    outliers = points[::step][labels[::step] < 0]
    if outliers.size:
        ax.scatter(*outliers.T, s=6, color="0.6", label="outlier", linewidths=0)
    for c in range(model.n_clusters_):
        own = points[::step][labels[::step] == c]
        ax.scatter(*own.T, s=6, color=colors[c], label=str(c), linewidths=0)
    ax.set(xlabel=names[0], ylabel=names[1])
    if model.n_clusters_ <= 20:
        ax.legend(title="cluster", markerscale=2)
    return ax


def members(
    model: Fitted,
    X: Matrix,
    shape: tuple[int, int],
    ax: Axes | None = None,
    *,
    n_members: int = 10,
) -> Axes:
    """Draw typical rows of each cluster as images, one line for each cluster.

    Typical rows are those nearest to the mean of their cluster in the embedding D.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    X : array of shape (m, height * width)
        The fitted rows.
    shape : tuple of two int
        Height and width of the images.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.
    n_members : int
        The number of images for each cluster.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Raises
    ------
    ValueError
        If the rows of X are not images of that shape.
    """
    check_is_fitted(model)
    pictures = images(model, X, shape, "shape")
    ax = axes_or_new(ax)
    height, width = shape
    board = np.full((model.n_clusters_ * (height + 1), n_members * (width + 1)), np.nan)
    for c, rows in enumerate(typical(model, n_members)):
        for i, row in enumerate(rows):
            place = slice(c * (height + 1), c * (height + 1) + height)
            board[place, i * (width + 1) : i * (width + 1) + width] = pictures[row]
    ax.imshow(board, cmap="gray_r")
    ax.set_yticks((np.arange(model.n_clusters_) + 0.5) * (height + 1), range(model.n_clusters_))
    ax.set(ylabel="cluster", xticks=[])
    return ax
