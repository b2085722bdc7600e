"""Sets of points with and without clusters, some for development and some to check with."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import pdist
from sklearn import datasets
from sklearn.preprocessing import scale

from specialk_gpu.datasets import load_fashion_mnist, load_mnist, make_shape

__all__ = [
    "CHECKED",
    "CLUSTERED",
    "DEVELOPED",
    "HARD",
    "SEEN",
    "STRUCTURELESS",
    "at_hand",
    "clustered",
    "structureless",
]

Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def _unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1)[:, None]


def _stretch(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    X = rng.standard_normal((m, d))
    X[:, 0] *= 10
    return X


def _band(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    X = rng.random((m, d))
    X[:, 0] *= 20
    return X


def _ball(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    return _unit(rng.standard_normal((m, d))) * rng.random((m, 1)) ** (1 / d)


def _torus(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    angle = 2 * np.pi * rng.random((m, d))
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)


def _student(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    return rng.standard_normal((m, d)) / np.sqrt(rng.chisquare(5, (m, 1)) / 5)


def _curve(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    angle = 2 * np.pi * rng.random(m)
    X = 0.1 * rng.standard_normal((m, d))
    X[:, 0] += angle
    X[:, 1] += np.sin(angle)
    return X


def _spiral(rng: np.random.Generator, m: int, _d: int) -> np.ndarray:
    angle = 3 * np.pi * np.sqrt(rng.random(m))
    X = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1)
    return X + 0.3 * rng.standard_normal((m, 2))


def _cross(rng: np.random.Generator, m: int, _d: int) -> np.ndarray:
    """Draw from a cross whose arms are a third as wide as it is long."""
    X = rng.random((4 * m, 2))
    return X[(np.abs(X - 0.5) < 1 / 6).any(axis=1)][:m]


def _hexagon(rng: np.random.Generator, m: int, _d: int) -> np.ndarray:
    """Draw from a hexagon with a round hole half as wide."""
    X = 2 * rng.random((4 * m, 2)) - 1
    turned = X @ np.stack([[1, 0], [0.5, 0.75**0.5], [-0.5, 0.75**0.5]]).T
    inside = (np.abs(turned) < 0.75**0.5).all(axis=1) & (np.linalg.norm(X, axis=1) > 0.43)
    return X[inside][:m]


def _roll(rng: np.random.Generator, m: int, _d: int) -> np.ndarray:
    return datasets.make_swiss_roll(m, random_state=int(rng.integers(2**31)))[0]


def _triangle(rng: np.random.Generator, m: int, _d: int) -> np.ndarray:
    X = rng.random((m, 2))
    return np.where(X.sum(axis=1, keepdims=True) > 1, 1 - X, X)


def _helix(rng: np.random.Generator, m: int, _d: int) -> np.ndarray:
    angle = 4 * np.pi * rng.random(m)
    X = np.stack([np.cos(angle), np.sin(angle), angle / 4], axis=1)
    return X + 0.1 * rng.standard_normal((m, 3))


def _annulus(rng: np.random.Generator, m: int, _d: int) -> np.ndarray:
    """Draw from a ring of radii 1 and 2."""
    return _unit(rng.standard_normal((m, 2))) * np.sqrt(1 + 3 * rng.random((m, 1)))


def _autoregressive(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    """Draw Gaussians whose neighbouring columns correlate by 0.9."""
    X = rng.standard_normal((m, d))
    for j in range(1, d):
        X[:, j] = 0.9 * X[:, j - 1] + 0.19**0.5 * X[:, j]
    return X


def _saddle(rng: np.random.Generator, m: int, _d: int) -> np.ndarray:
    X = 2 * rng.random((m, 2)) - 1
    return np.concatenate([X, X[:, :1] ** 2 - X[:, 1:] ** 2], axis=1)


STRUCTURELESS: dict[str, tuple[Draw, tuple[int, ...]]] = {
    "cube": (lambda rng, m, d: rng.random((m, d)), (1, 2, 3, 5, 10, 30)),
    "Gaussian": (lambda rng, m, d: rng.standard_normal((m, d)), (1, 2, 3, 5, 20)),
    "sphere": (lambda rng, m, d: _unit(rng.standard_normal((m, d + 1))), (1, 2, 5)),
    "stretched Gaussian": (_stretch, (2, 5, 20)),
    "band": (_band, (2, 3)),
    "ball": (_ball, (2, 3, 10, 50)),
    "torus": (_torus, (2, 3)),
    "Student t": (_student, (1, 2, 5, 20)),
    "thick curve": (_curve, (2, 3, 5)),
    "spiral": (_spiral, (2,)),
    "cross": (_cross, (2,)),
    "hexagon with a hole": (_hexagon, (2,)),
    "beta(0.5, 0.5)": (lambda rng, m, d: rng.beta(0.5, 0.5, (m, d)), (2, 3)),
    "Swiss roll": (_roll, (2,)),
    "triangle": (_triangle, (2,)),
    "Laplace": (lambda rng, m, d: rng.laplace(size=(m, d)), (2, 10)),
    "log-normal": (lambda rng, m, d: np.exp(rng.standard_normal((m, d))), (1, 2, 5)),
    "helix": (_helix, (3,)),
    "annulus": (_annulus, (2,)),
    "autoregressive Gaussian": (_autoregressive, (10, 50)),
    "saddle": (_saddle, (3,)),
}
DEVELOPED = ("cube", "Gaussian", "sphere", "stretched Gaussian", "band")
SEEN = ("ball", "torus", "Student t", "thick curve", "spiral")  # in passing
CHECKED = (
    "triangle",
    "Laplace",
    "log-normal",
    "helix",
    "annulus",
    "autoregressive Gaussian",
    "saddle",
)
HARD = ("cross", "hexagon with a hole", "beta(0.5, 0.5)", "Swiss roll")  # thin of themselves


def _mixture(k: int, d: int, apart: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Draw from k round Gaussians, the two nearest centres `apart` deviations apart."""

    def draw(rng: np.random.Generator, m: int) -> np.ndarray:
        centers = rng.standard_normal((k, d))
        centers *= apart / pdist(centers).min()
        return centers[rng.integers(k, size=m)] + rng.standard_normal((m, d))

    return draw


def _unequal(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    """Draw two Gaussians eight deviations apart, of sizes 1:50."""
    X = rng.standard_normal((m, d))
    X[: m // 51, 0] += 8
    return X


def _densities(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw three Gaussians in the plane, with deviations 1, 2 and 4."""
    label = rng.integers(3, size=m)
    X = rng.standard_normal((m, 2)) * 2.0 ** label[:, None]
    return X + np.array([[0, 0], [12, 0], [0, 26]])[label]


def _touching(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw two discs of radius 1 whose rims overlap by a tenth."""
    X = _ball(rng, m, 2)
    X[: m // 2, 0] += 1.9
    return X


def _rings(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw three nested rings, of radius 0.5, 1 and 1.5."""
    angle, radius = 2 * np.pi * rng.random(m), 0.5 + 0.5 * rng.integers(3, size=m)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return radius[:, None] * circle + 0.07 * rng.standard_normal((m, 2))


def _heavy(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw from six t distributions of five degrees of freedom."""
    centers = rng.standard_normal((6, 5))
    centers *= 8 / pdist(centers).min()
    return centers[rng.integers(6, size=m)] + _student(rng, m, 5)


def _ellipses(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw from four Gaussians in five dimensions, each stretched 3:1 in a direction of its own."""
    centers = rng.standard_normal((4, 5))
    centers *= 10 / pdist(centers).min()
    axes = _unit(rng.standard_normal((4, 5)))
    label = rng.integers(4, size=m)
    X = rng.standard_normal((m, 5)) + 2.8 * rng.standard_normal((m, 1)) * axes[label]
    return centers[label] + X


def _links(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw from two rings that are linked, as in a chain."""
    angle, second = 2 * np.pi * rng.random(m), rng.random(m) < 0.5
    zero = np.zeros(m)
    one = np.stack([np.cos(angle), np.sin(angle), zero], axis=1)
    other = np.stack([1 + np.cos(angle), zero, np.sin(angle)], axis=1)
    return np.where(second[:, None], other, one) + 0.1 * rng.standard_normal((m, 3))


def _eye(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw from a Gaussian within a ring of radius 4."""
    X = rng.standard_normal((m, 2))
    outside = rng.random(m) < 0.6
    X[outside] = 4 * _unit(X[outside]) + 0.3 * rng.standard_normal((int(outside.sum()), 2))
    return X


def _squares(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw from nine squares of side 1, half a side apart."""
    return rng.random((m, 2)) + 1.5 * rng.integers(3, size=(m, 2))


def _rare(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw from three Gaussians in ten dimensions, of sizes 20:10:1, eight apart."""
    X = rng.standard_normal((m, 10))
    label = np.searchsorted([20 / 31, 30 / 31], rng.random(m))
    X[np.arange(m), label] += 8 / 2**0.5
    return X


def _shape(shape: str, noise: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, m: make_shape(
        shape, noise=noise, n_samples=m, random_state=int(rng.integers(2**31))
    )[0]


def _sample(load: Callable[[], tuple[np.ndarray, np.ndarray]]) -> Callable[..., np.ndarray]:
    return lambda rng, m: (X := load()[0])[rng.choice(len(X), m, replace=False)]


def _whole(load: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Callable[..., np.ndarray]:
    return lambda _rng, _m: scale(load(return_X_y=True)[0])


# Of each family: how it is drawn, the right numbers of clusters, the rows (0: all there are), the
# half it is in.
CLUSTERED = {
    "blobs, noise 0.1": (_shape("blobs", 0.1), (3,), 1500, "developed"),
    "5 Gaussians in 10 dimensions, 6 apart": (_mixture(5, 10, 6.0), (5,), 1500, "developed"),
    "5 Gaussians in 10 dimensions, 4 apart": (_mixture(5, 10, 4.0), (5,), 1500, "developed"),
    "sizes 1:50 in 5 dimensions": (lambda rng, m: _unequal(rng, m, 5), (2,), 2000, "developed"),
    "iris": (_whole(datasets.load_iris), (2, 3), 0, "developed"),
    "breast cancer": (_whole(datasets.load_breast_cancer), (2,), 0, "developed"),
    "MNIST, 5,000": (_sample(load_mnist), (9, 10, 11, 12), 5000, "developed"),
    "moons, noise 0.05": (_shape("moons", 0.05), (2,), 1500, "developed"),
    "moons, noise 0.1": (_shape("moons", 0.1), (2,), 1500, "developed"),
    "circles, noise 0.05": (_shape("circles", 0.05), (2,), 1500, "developed"),
    "circles, noise 0.1": (_shape("circles", 0.1), (2,), 1500, "developed"),
    "8 Gaussians in the plane, 6 apart": (_mixture(8, 2, 6.0), (8,), 1500, "developed"),
    "3 Gaussians in 30 dimensions, 6 apart": (_mixture(3, 30, 6.0), (3,), 1000, "developed"),
    "three rings, noise 0.07": (_rings, (3,), 1500, "developed"),
    "6 Student t in 5 dimensions, 8 apart": (_heavy, (6,), 1500, "developed"),
    "three densities": (_densities, (3,), 1500, "developed"),
    "touching discs": (_touching, (2,), 1500, "developed"),
    "wine": (_whole(datasets.load_wine), (3,), 0, "developed"),
    "digits": (lambda _rng, _m: datasets.load_digits().data, (9, 10, 11, 12), 0, "developed"),
    "Fashion-MNIST, 5,000": (_sample(load_fashion_mnist), (9, 10, 11), 5000, "developed"),
    "4 Gaussians stretched 3:1, 10 apart": (_ellipses, (4,), 1500, "checked"),
    "linked rings": (_links, (2,), 1500, "checked"),
    "a Gaussian in a ring": (_eye, (2,), 1500, "checked"),
    "nine squares": (_squares, (9,), 1500, "checked"),
    "sizes 20:10:1 in 10 dimensions": (_rare, (3,), 2000, "checked"),
    "10 Gaussians in 10 dimensions, 5 apart": (_mixture(10, 10, 5.0), (10,), 2000, "checked"),
    "moons, noise 0.15": (_shape("moons", 0.15), (2,), 1500, "checked"),
    "2 Gaussians in 20 dimensions, 5 apart": (_mixture(2, 20, 5.0), (2,), 300, "checked"),
}


def at_hand(family: str) -> bool:
    """Say whether the data of a family need no file, or its folder is named."""
    variable = {"M": "SPECIALK_MNIST", "F": "SPECIALK_FASHION_MNIST"}
    return "MNIST" not in family or bool(os.environ.get(variable[family[0]]))


def clustered(family: str, number: int) -> np.ndarray:
    """Draw set `number` of a family with clusters; of data that are given whole there is one."""
    draw, _, m, _ = CLUSTERED[family]
    return draw(np.random.default_rng([list(CLUSTERED).index(family), number]), m)


def structureless(family: str, d: int, m: int, number: int) -> np.ndarray:
    """Draw m points of a family without clusters, set `number` of it."""
    key = [list(STRUCTURELESS).index(family), d, m, number]
    return STRUCTURELESS[family][0](np.random.default_rng(key), m, d)
