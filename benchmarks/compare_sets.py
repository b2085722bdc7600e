"""The sets of benchmarks.compare: cells, round Gaussians, and images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from benchmarks.paper.data import load
from benchmarks.selection import blobs

__all__ = ["APART", "SETS", "Set"]

APART = 6.0  # deviations between the nearest two centres
Rows = tuple[np.ndarray, np.ndarray]  # X, and its classes, -1 unknown


def gaussians(m: int, d: int, k: int) -> Rows:
    """Draw round Gaussians, the nearest two 6 deviations apart."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((k, d))
    return blobs(rng, centers * APART / pdist(centers).min(), k * [m // k])


def images(name: str, m: int) -> Rows:
    """Load images, in float32."""
    X, y = load(name)
    return X[:m].astype(np.float32), y[:m]


def cells() -> Rows:
    """Load 700 cells with 50 principal components and their types, which scanpy has."""
    import scanpy

    data = scanpy.datasets.pbmc68k_reduced()
    return np.asarray(data.obsm["X_pca"]), data.obs["bulk_labels"].cat.codes.to_numpy()


class Set(NamedTuple):
    """Rows and columns of a set, what draws or loads it, and where its images come from."""

    m: int
    d: int
    rows: Callable[[], Rows]
    source: str = ""


SETS = {
    "pbmc68k_reduced": Set(700, 50, cells),
    "Gaussians, 150 x 2": Set(150, 2, partial(gaussians, 150, 2, 3)),
    "Gaussians, 500 x 2": Set(500, 2, partial(gaussians, 500, 2, 5)),
    "Gaussians, 1,500 x 2": Set(1500, 2, partial(gaussians, 1500, 2, 3)),
    "Gaussians, 20,000 x 10": Set(20_000, 10, partial(gaussians, 20_000, 10, 10)),
    "MNIST, 10,000": Set(10_000, 784, partial(images, "MNIST", 10_000), "MNIST"),
    "Fashion-MNIST, 60,000": Set(
        60_000, 784, partial(images, "Fashion-MNIST", 60_000), "Fashion-MNIST"
    ),
    "MNIST, 60,000": Set(60_000, 784, partial(images, "MNIST", 60_000), "MNIST"),
    "Gaussians, 300,000 x 10": Set(300_000, 10, partial(gaussians, 300_000, 10, 20)),
}
