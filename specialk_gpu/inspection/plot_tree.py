"""Plots of the clusterings for other k: the tree of clusters, and how levels are related."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specialk_gpu._checks import checked_integer
from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu.inspection.axes import axes_or_new, cluster_colors
from specialk_gpu.inspection.diagnostics import settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["levels", "tree"]

MOST = 3.0  # -log10 of the smallest p that is told apart; beyond it only the order is drawn
STEP = 0.06  # least height of a union above its nodes, so that unions with p = 1 can be seen
GREY = "0.55"
MOST_NUMBERED = 20  # clusters of a level whose circles have their number
BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue


def tree(model: Fitted, ax: Axes | None = None) -> Axes:
    """Draw the tree of clusters, for criterion="cut".

    Each leaf is a fragment; each union is drawn at the p of the gap that it closed. Branches below
    the decision have the colour of their cluster.

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

    Raises
    ------
    AttributeError
        For criterion="zz_top", which has no tree; see `levels`.
    """
    check_is_fitted(model)
    found = model.tree_
    ax = axes_or_new(ax)
    K, k = found.n_leaves, model.n_clusters_
    height = _heights_in_tree(found.to_linkage())
    x, cluster = np.zeros(2 * K - 1), np.full(2 * K - 1, -1)
    cluster[:K] = found.clusters(k)
    x[_leaves_of_tree(found.children, K)] = np.arange(K)
    colors = cluster_colors(k)
    for i, (a, b) in enumerate(found.children.tolist()):
        node = K + i
        x[node] = (x[a] + x[b]) / 2
        cluster[node] = cluster[a] if cluster[a] == cluster[b] else -1
        for end in (a, b):
            color = GREY if cluster[end] < 0 else colors[cluster[end]]
            ax.plot([x[end], x[end]], [height[end], height[node]], color=color, linewidth=1.5)
        color = GREY if cluster[node] < 0 else colors[cluster[node]]
        ax.plot([x[a], x[b]], [height[node]] * 2, color=color, linewidth=1.5)
    if K == 1:
        ax.plot([0, 0], [0, STEP], color=colors[0], linewidth=1.5)
    alpha = settings(model).alpha
    if settings(model).n_clusters is None:
        ax.axhline(-math.log10(alpha), color="0.3", linestyle="--", label=f"alpha = {alpha:g}")
        ax.legend(loc="upper right")
    for c in range(k):
        own = x[:K][cluster[:K] == c]
        ax.text(own.mean(), -0.08, str(c), ha="center", va="top", color=colors[c])
    top = max(float(height.max()), MOST)
    ax.set_yticks(range(int(MOST) + 1), [f"{10.0**-i:g}" for i in range(int(MOST) + 1)])
    if top > MOST:
        ax.axhspan(MOST, top + 0.3, color="0.95", zorder=0)
        ax.text(
            0.01, top + 0.25, "p < 0.001, in order", va="top", transform=ax.get_yaxis_transform()
        )
    ax.set_ylim(-0.35, top + 0.3)
    ax.set(xticks=[], xlabel="cluster", ylabel="p of the gap between the two branches")
    ax.set_title(f"k = {k}")
    return ax


def _heights_in_tree(linkage: np.ndarray) -> np.ndarray:
    """Return the height of each node of a tree (2 K - 1,), for drawing."""
    K = len(linkage) + 1
    height = np.zeros(2 * K - 1)
    beyond = 0
    for i, (a, b, own, _) in enumerate(linkage):
        beyond += own > MOST
        own = min(own, MOST) + (0.35 * beyond if own > MOST else 0.0)
        height[K + i] = max(own, height[int(a)] + STEP, height[int(b)] + STEP)
    return height


def _leaves_of_tree(children: np.ndarray, K: int) -> list[int]:
    """Return the leaves such that those of each node stand together."""
    order, todo = [], [2 * K - 2]
    while todo:
        node = todo.pop()
        if node < K:
            order.append(node)
        else:
            todo += children[node - K].tolist()[::-1]
    return order


def levels(model: Fitted, ax: Axes | None = None, *, max_clusters: int | None = None) -> Axes:
    """Draw the clusters for k = 1, 2, ..., one line for each k, and how they divide.

    Circles are clusters, by their number of rows; lines join clusters with rows in common. From the
    decision on, clusters have the colour of the cluster in `labels_` that they are part of.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.
    max_clusters : int, optional
        The largest k; by default three more than `n_clusters_`, or as many as there are.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Raises
    ------
    ValueError
        If there is no clustering into `max_clusters` clusters.
    """
    check_is_fitted(model)
    known = [step.k for step in model.path_]
    if model.path_.criterion == "cut":
        known = list(range(1, model.tree_.n_leaves + 1))
    most = min(model.n_clusters_ + 3, known[-1])
    if max_clusters is not None:
        most = checked_integer(
            "max_clusters", max_clusters, known[0], known[-1], "those of the model"
        )
    ax = axes_or_new(ax)
    ks = [k for k in known if k <= most]
    labels = [on_host(model._level(k)) for k in ks]
    answer = on_host(model._level(model.n_clusters_))
    colors = cluster_colors(model.n_clusters_)
    before: np.ndarray | None = None
    for i, (k, own) in enumerate(zip(ks, labels, strict=True)):
        sizes = np.bincount(own, minlength=k)
        shared = _rows_shared_in_tree(labels[i - 1], own, ks[i - 1], k) if i else np.ones((1, k))
        above = np.zeros(1) if before is None else before
        x = _places_in_tree(shared.T @ above / sizes if i else np.arange(k), sizes)
        for a, b in np.argwhere(shared > 0) if i else ():
            share = shared[a, b] / sizes[b]
            ax.plot(
                [above[a], x[b]], [k - 1, k], color="0.4", linewidth=0.5 + 3 * share, alpha=share
            )
        of = _rows_shared_in_tree(answer, own, model.n_clusters_, k).argmax(axis=0)
        fill = colors[of] if k >= model.n_clusters_ else np.full((k, 4), [0.75, 0.75, 0.75, 1])
        area = np.maximum(900 * sizes / sizes.sum(), 130)
        ax.scatter(x, np.full(k, k), s=area, color=fill, edgecolor="white", zorder=2)
        for c in range(k if k <= MOST_NUMBERED else 0):
            color = "black" if fill[c, :3] @ BRIGHTNESS > 0.5 else "white"
            place = {"ha": "center", "va": "center", "fontsize": 8, "zorder": 3}
            ax.text(x[c], k, str(c), color=color, **place)
        before = x
    ax.axhspan(model.n_clusters_ - 0.4, model.n_clusters_ + 0.4, color="C2", alpha=0.15, zorder=0)
    ax.set_yticks(ks)
    ax.set(xticks=[], ylabel="number of clusters k", xlim=(-0.05, 1.05))
    ax.set_ylim(ks[-1] + 0.7, ks[0] - 0.7)
    ax.set_title(f"k = {model.n_clusters_}")
    return ax


def _rows_shared_in_tree(first: np.ndarray, second: np.ndarray, k: int, n: int) -> np.ndarray:
    """Return the number of rows that clusters of two clusterings share: (k, n)."""
    return np.bincount(first.astype(np.int64) * n + second, minlength=k * n).reshape(k, n)


def _places_in_tree(wanted: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return places in (0, 1) for clusters, in the order wanted, with room by size."""
    room = np.maximum(sizes / sizes.sum(), 0.5 / sizes.size)
    order = np.argsort(wanted, kind="stable")
    ends = np.cumsum(room[order]) / room.sum()
    out = np.empty(sizes.size)
    out[order] = ends - room[order] / room.sum() / 2
    return out
