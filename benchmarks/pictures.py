"""Draw the README's picture: what is found in data of different shapes, and in noise.

    python -m benchmarks.pictures

The background is transparent, and the colours can be read on white and on black.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_blobs

from specialk_gpu import SpecialK
from specialk_gpu.datasets import make_shape

__all__ = ["PANELS", "PICTURE", "found", "main"]

PICTURE = Path(__file__).parents[1] / "docs" / "figures" / "clusters.png"
COLOURS = ["#3b8bd4", "#e8833a", "#3fa66b", "#d4537e", "#9b72cf", "#b08d57", "#5bb5b5", "#c9a227"]
GREY = "#7d858d"


def unequal() -> np.ndarray:
    """Draw two small dense clusters beside a wide one."""
    rng = np.random.default_rng(0)
    parts = [((0, 0), 0.3, 300), ((3, 0), 0.3, 300), ((1.5, 6), 1.2, 900)]
    return np.concatenate([rng.normal(place, width, (n, 2)) for place, width, n in parts])


def stretched() -> np.ndarray:
    """Draw three blobs and shear them."""
    X, _ = make_blobs(1500, centers=[(-9, -3), (0, 0), (9, 3)], cluster_std=1.0, random_state=3)
    return X @ np.array([[0.6, -0.6], [-0.4, 0.8]])


PANELS: dict[str, tuple[int, Callable[[], np.ndarray]]] = {  # title: the true k, and the data
    "moons": (2, lambda: make_shape("moons", 0.075, random_state=0)[0]),
    "rings": (2, lambda: make_shape("circles", 0.05, random_state=0)[0]),
    "unequal": (3, unequal),
    "stretched": (3, stretched),
    "noise": (1, lambda: make_shape("random", random_state=1)[0]),
}


def found(title: str) -> tuple[np.ndarray, SpecialK]:
    """Return the data of a panel, and a model that was told nothing about them."""
    X = PANELS[title][1]()
    return X, SpecialK(backend="numpy", random_state=0).fit(X)


def picture() -> Any:
    """Draw all panels in a row."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(PANELS), figsize=(10, 2.9), layout="constrained")
    for ax, title in zip(axes, PANELS, strict=True):
        X, model = found(title)
        ax.scatter(*X.T, s=3, lw=0, c=[COLOURS[c % len(COLOURS)] for c in model.labels_])
        ax.set_title(f"{title}\nk = {model.n_clusters_}", color=GREY, fontsize=18)
        ax.set_axis_off()
        ax.margins(0.02)
    return fig


def main() -> None:
    """Write the picture."""
    picture().savefig(PICTURE, dpi=160, transparent=True)


if __name__ == "__main__":
    main()
