"""A plot of how steady clusters are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specialk_gpu.inspection.axes import axes_or_new
from specialk_gpu.inspection.stability import STABLE, Stability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["stability"]


def stability(result: Stability, ax: Axes | None = None) -> Axes:
    """Draw the Jaccard index of each cluster in each refit, and the least mean of a kind of change.

    Parameters
    ----------
    result : Stability
        What ``SpecialK.stability`` returned.
    ax : matplotlib Axes, optional
        The axes to draw on; by default new ones.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Raises
    ------
    TypeError
        If `result` is something else, such as a model.
    """
    if not isinstance(result, Stability):
        msg = f"result must be what model.stability(X) returned, got {type(result).__name__}."
        raise TypeError(msg)
    ax = axes_or_new(ax)
    kinds = list(dict.fromkeys(refit.kind for refit in result.refits))
    for i, kind in enumerate(kinds):
        values = np.stack([refit.jaccard for refit in result.refits if refit.kind == kind])
        at = np.arange(result.k) + (i - (len(kinds) - 1) / 2) * 0.6 / len(kinds)
        x = np.broadcast_to(at, values.shape)
        ax.scatter(x, values, s=14, color=f"C{i}", alpha=0.6, label=kind, linewidths=0)
    middle = np.arange(result.k)
    ax.set_xlim(-0.6, result.k - 0.4)
    ax.hlines(result.jaccard, middle - 0.4, middle + 0.4, color="0.2", label="least mean")
    ax.axhline(STABLE, color="0.6", linestyle="--", zorder=0, label="stable above")
    ax.set(xlabel="cluster", ylabel="Jaccard index", ylim=(-0.02, 1.04))
    ax.set_title(f"k = {result.k}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(fontsize="small", loc="lower right")
    return ax
