"""Sets of rows without clusters: what alpha is promised for, what it is tried on, and stress.

H0, "one cluster", is here a distribution without a gap whose rows are drawn independently. Three
classes were named before the law was made:

- promised: convex, skewed, heavy-tailed, curved, discrete with one mode, high-dimensional. The law
  is made of some families, LAW, and checked on others, CHECK.
- stress: necks, rolls, heaped values, densities that rise at their corners, exact grids, one-hot.
  They are reported one by one, and nothing is promised.
- out of scope: rows that depend on each other, as random walks, near-copies, colours of an image.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn import datasets

__all__ = ["CHECK", "LAW", "STRESS", "composite", "draw"]

Draw = Callable[[np.random.Generator, int], np.ndarray]
GAP = 30.0  # between members of a composite, in units of their spread


def _unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1)[:, None]


def _normal(d: int) -> Draw:
    return lambda rng, m: rng.standard_normal((m, d))


def _cube(d: int) -> Draw:
    return lambda rng, m: rng.random((m, d))


def _stretched(d: int, by: float) -> Draw:
    return lambda rng, m: rng.standard_normal((m, d)) * np.r_[by, np.ones(d - 1)]


def _band(d: int) -> Draw:
    return lambda rng, m: rng.random((m, d)) * np.r_[20, np.ones(d - 1)]


def _sphere(d: int) -> Draw:
    return lambda rng, m: _unit(rng.standard_normal((m, d + 1)))


def _ball(rng: np.random.Generator, m: int, d: int = 2) -> np.ndarray:
    return _unit(rng.standard_normal((m, d))) * rng.random((m, 1)) ** (1 / d)


def _student(d: int, df: float) -> Draw:
    return lambda rng, m: rng.standard_normal((m, d)) / np.sqrt(rng.chisquare(df, (m, 1)) / df)


def _torus(rng: np.random.Generator, m: int) -> np.ndarray:
    angle = 2 * np.pi * rng.random((m, 2))
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)


def _wave(rng: np.random.Generator, m: int, length: float, noise: float) -> np.ndarray:
    """Draw from a sine curve."""
    x = length * rng.random(m)
    return np.stack([x, np.sin(x)], axis=1) + noise * rng.standard_normal((m, 2))


def _arc(rng: np.random.Generator, m: int, angle: float, noise: float) -> np.ndarray:
    """Draw from an arc of the circle of radius 1."""
    t = angle * rng.random(m)
    return np.stack([np.cos(t), np.sin(t)], axis=1) + noise * rng.standard_normal((m, 2))


def _spiral(rng: np.random.Generator, m: int) -> np.ndarray:
    angle = 3 * np.pi * np.sqrt(rng.random(m))
    X = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1)
    return X + 0.3 * rng.standard_normal((m, 2))


def _inside(rng: np.random.Generator, m: int, is_inside: Callable[..., np.ndarray]) -> np.ndarray:
    """Draw from a part of the square from -1 to 1."""
    X = np.empty((0, 2))
    while len(X) < m:
        new = 2 * rng.random((4 * m, 2)) - 1
        X = np.concatenate([X, new[is_inside(*new.T)]])
    return X[:m]


def _pentagon(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    angles = 2 * np.pi * np.arange(5) / 5
    return (np.multiply.outer(np.cos(angles), x) + np.multiply.outer(np.sin(angles), y) < 0.8).all(
        axis=0
    )


def _sector(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw from a quarter of a ring of radii 1 and 2."""
    t, radius = np.pi / 2 * rng.random(m), np.sqrt(1 + 3 * rng.random(m))
    return np.stack([radius * np.cos(t), radius * np.sin(t)], axis=1)


def _paraboloid(rng: np.random.Generator, m: int) -> np.ndarray:
    X = _ball(rng, m)
    return np.concatenate([X, (X**2).sum(axis=1, keepdims=True)], axis=1)


def _cylinder(rng: np.random.Generator, m: int) -> np.ndarray:
    t = 2 * np.pi * rng.random(m)
    return np.stack([np.cos(t), np.sin(t), 3 * rng.random(m)], axis=1)


def _copula(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw ranks of correlated Gaussians, which are uniform."""
    X = 0.6**0.5 * rng.standard_normal((m, 1)) + 0.4**0.5 * rng.standard_normal((m, 3))
    return np.argsort(np.argsort(X, axis=0), axis=0) / m + rng.random((m, 3)) / m


def _factors(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw skewed factors, and noise, in ten columns."""
    loads = np.random.default_rng(5).standard_normal((2, 10))
    return rng.exponential(size=(m, 2)) @ loads + rng.standard_normal((m, 10))


def _contaminated(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw Gaussians, one in ten with three times the deviation."""
    return rng.standard_normal((m, 4)) * np.where(rng.random((m, 1)) < 0.1, 3, 1)


def _unimodal(rng: np.random.Generator, m: int) -> np.ndarray:
    """Draw from two Gaussians so near that they have one mode."""
    X = rng.standard_normal((m, 20))
    X[:, 0] += 1.5 * (rng.random(m) < 0.5)
    return X


LAW: dict[str, Draw] = {
    "segment": _cube(1),
    "square": _cube(2),
    "cube, d = 3": _cube(3),
    "cube, d = 5": _cube(5),
    "Gaussian, d = 1": _normal(1),
    "Gaussian, d = 2": _normal(2),
    "Gaussian, d = 3": _normal(3),
    "Gaussian, d = 5": _normal(5),
    "Gaussian, d = 20": _normal(20),
    "circle": _sphere(1),
    "sphere": _sphere(2),
    "stretched Gaussian, d = 2": _stretched(2, 10),
    "stretched Gaussian, d = 5": _stretched(5, 10),
    "band, d = 2": _band(2),
    "band, d = 3": _band(3),
    "disc": _ball,
    "torus": _torus,
    "Student t of 5, d = 2": _student(2, 5),
    "Laplace, d = 2": lambda rng, m: rng.laplace(size=(m, 2)),
    "exponential, d = 2": lambda rng, m: rng.exponential(size=(m, 2)),
    "log-normal, d = 2": lambda rng, m: np.exp(rng.standard_normal((m, 2))),
    "thick sine curve": lambda rng, m: _wave(rng, m, 2 * np.pi, 0.1),
    "spiral": _spiral,
}
FIRST_CHECK: dict[str, Draw] = {
    "logistic, d = 2": lambda rng, m: rng.logistic(size=(m, 2)),
    "Weibull of 1.5, d = 3": lambda rng, m: rng.weibull(1.5, (m, 3)),
    "gamma of 2, d = 2": lambda rng, m: rng.gamma(2, size=(m, 2)),
    "gamma of 2, d = 6": lambda rng, m: rng.gamma(2, size=(m, 6)),
    "beta(2, 2), d = 2": lambda rng, m: rng.beta(2, 2, (m, 2)),
    "triangular, d = 3": lambda rng, m: rng.triangular(0, 0.3, 1, (m, 3)),
    "Gumbel, d = 2": lambda rng, m: rng.gumbel(size=(m, 2)),
    "inverse Gaussian, d = 4": lambda rng, m: rng.wald(1, 1, (m, 4)),
    "Student t of 3, d = 2": _student(2, 3),
    "Student t of 3, d = 10": _student(10, 3),
    "contaminated Gaussian, d = 4": _contaminated,
    "half disc": lambda rng, m: _inside(rng, m, lambda x, y: (x**2 + y**2 < 1) & (y > 0)),
    "pentagon": lambda rng, m: _inside(rng, m, _pentagon),
    "simplex, d = 5": lambda rng, m: rng.dirichlet(np.ones(6), m),
    "cube, d = 40": _cube(40),
    "Gaussian, d = 200": _normal(200),
    "two Gaussians of one mode, d = 20": _unimodal,
    "skewed factors, d = 10": _factors,
    "uniform copula, d = 3": _copula,
    "binomial of 20, d = 6": lambda rng, m: rng.binomial(20, 0.3, (m, 6)).astype(float),
    "Poisson of 6, d = 5": lambda rng, m: rng.poisson(6, (m, 5)).astype(float),
    "rounded logistic, d = 3": lambda rng, m: np.round(rng.logistic(size=(m, 3)), 1),
    "quarter of a ring": _sector,
    "paraboloid": _paraboloid,
    "cylinder": _cylinder,
    "noisy sine curve": lambda rng, m: _wave(rng, m, 4 * np.pi, 0.3),
    "noisy circle": lambda rng, m: _arc(rng, m, 2 * np.pi, 0.25),
    "noisy arc": lambda rng, m: _arc(rng, m, 2 * np.pi / 3, 0.15),
}
# Added after a rule for discrete columns had been made: composites are not made of them.
CHECK = FIRST_CHECK | {
    "bits of 0.2, d = 15": lambda rng, m: (rng.random((m, 15)) < 0.2).astype(float),
    "Poisson of 0.2, d = 15": lambda rng, m: rng.poisson(0.2, (m, 15)).astype(float),
}


def _cross(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (np.abs(x) < 1 / 3) | (np.abs(y) < 1 / 3)


def _dumbbell(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (np.abs(x) > 0.5) & (np.abs(y) < 0.5) | (np.abs(y) < 0.2)


def _grid(_rng: np.random.Generator, m: int) -> np.ndarray:
    side = int(m**0.5)
    return np.stack(np.divmod(np.arange(side**2), side), axis=1).astype(float)


def _core_and_halo(rng: np.random.Generator, m: int) -> np.ndarray:
    return rng.standard_normal((m, 3)) * np.where(rng.random((m, 1)) < 0.5, 1, 8)


def _one_hot(rng: np.random.Generator, m: int) -> np.ndarray:
    return np.eye(4)[rng.integers(4, size=(m, 5))].reshape(m, 20)


STRESS: dict[str, Draw] = {
    "cross": lambda rng, m: _inside(rng, m, _cross),
    "dumbbell": lambda rng, m: _inside(rng, m, _dumbbell),
    "U": lambda rng, m: _inside(rng, m, lambda x, y: (np.abs(x) > 0.5) | (y < -0.5)),
    "Swiss roll": lambda rng, m: datasets.make_swiss_roll(m, random_state=int(rng.integers(2**31)))[
        0
    ],
    "S-curve": lambda rng, m: datasets.make_s_curve(m, random_state=int(rng.integers(2**31)))[0],
    "moon": lambda rng, m: _arc(rng, m, np.pi, 0.1),
    "beta(0.5, 0.5), d = 2": lambda rng, m: rng.beta(0.5, 0.5, (m, 2)),
    "Dirichlet(0.2), d = 3": lambda rng, m: rng.dirichlet(np.full(4, 0.2), m),
    "Dirichlet(0.2), d = 9": lambda rng, m: rng.dirichlet(np.full(10, 0.2), m),
    "Cauchy columns, d = 2": lambda rng, m: rng.standard_cauchy((m, 2)),
    "rounded Gaussian, d = 2": lambda rng, m: np.round(rng.standard_normal((m, 2)), 1),
    "fair coins, d = 20": lambda rng, m: rng.integers(2, size=(m, 20)).astype(float),
    "exact grid": _grid,
    "one-hot of 5 x 4": _one_hot,
    "core and halo, d = 3": _core_and_halo,
}
FAMILIES = LAW | CHECK | STRESS


def draw(family: str, m: int, number: int) -> np.ndarray:
    """Draw m rows of a family, set `number` of it."""
    key = [sum(map(ord, family)), m, number]
    return FAMILIES[family](np.random.default_rng(key), m)


def composite(J: int, number: int) -> np.ndarray:
    """Draw J far-apart members of the families for the check, of 50 to 1,000 rows."""
    rng = np.random.default_rng([J, number])
    names = rng.choice(list(FIRST_CHECK), J, replace=len(FIRST_CHECK) < J)
    least, most = {2: (300, 1000), 5: (100, 600), 20: (50, 200)}[J]
    parts = []
    for i, name in enumerate(names):
        X = FIRST_CHECK[name](rng, int(rng.integers(least, most + 1)))
        X = X[:, :10] / X[:, :10].std(axis=0).mean()
        X[:, 0] += GAP * i
        parts.append(X)
    out = np.zeros((sum(map(len, parts)), max(X.shape[1] for X in parts)))
    ends = np.cumsum([0, *map(len, parts)])
    for X, start in zip(parts, ends[:-1], strict=True):
        out[start : start + len(X), : X.shape[1]] = X
    return out
