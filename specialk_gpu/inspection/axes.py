"""Axes to draw on, and the colours of clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["axes_or_new", "cluster_colors"]


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the given axes, or new ones; raise a TypeError if something else is given."""
    if hasattr(ax, "scatter"):
        return ax
    if ax is not None:
        msg = f"ax must be one matplotlib Axes, got {type(ax).__name__}."
        raise TypeError(msg)
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def cluster_colors(n: int) -> np.ndarray:
    """Return a colour for each cluster: (n, 4)."""
    from matplotlib import colormaps

    few = colormaps["tab10" if n <= 10 else "tab20"]
    return few(np.arange(n) % few.N)
