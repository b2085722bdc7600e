"""Fits of random inputs: each ends with a documented error, or with a sound result.

    python tests/fuzz.py --inputs 20000 --first 0

Input number i is drawn from seed i, so a fault can be seen again with `--inputs 1 --first i`.
After each thousand inputs, a line says which seeds are done.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from functools import partial

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import specialk_gpu
from specialk_gpu import SpecialK, knn_graph

DOCUMENTED = (ValueError, TypeError, MemoryError)
OURS = (ConvergenceWarning,) + tuple(
    value
    for value in (getattr(specialk_gpu, name) for name in specialk_gpu.__all__)
    if isinstance(value, type) and issubclass(value, Warning)
)
IDLE = "without criterion='zz_top', this has no effect: "  # a UserWarning
DTYPES = ["f8", "f8", "f4", "f2", "i1", "u2", "i8", "?", "O", "c16", "U3"]
PARAMETERS = {
    "alpha": [None, 0.05, 0.5, 1e-9, 0, 1, "a", np.float32(0.1)],
    "n_clusters": [None, None, None, 1, 2, 3, 7, 50, 0, -1, 2.5, True, np.uint8(2)],
    "min_clusters": [1, 1, 1, 2, 5, 0],
    "max_clusters": [None, None, 1, 2, 10, np.int16(4)],
    "criterion": ["cut", "cut", "zz_top", "other"],
    "stopping": ["first", "watershed"],
    "affinity": ["nearest_neighbors"] * 3 + ["radius_neighbors", "precomputed"],
    "n_neighbors": [10, 10, 1, 3, 12, 30, 100, np.uint8(10), 0],
    "coverage": [0.99, 0.5, 1, 0],
    "weights": ["connectivity", "distance"],
    "metric": ["euclidean", "euclidean", "cosine"],
    "n_components": ["auto", "auto", 1, 5, 40, 10**6],
    "n_kmeans_components": [50, 3, None],
    "drop_correlated": [None, 0.9],
    "full_path": [False, True],
    "n_pairs": [None, 2],
    "n_init": [10, 1, 3],
    "eigen_solver": ["auto", "dense", "lanczos", "chebyshev"],
    "tol": [1e-8, 1e-3, 1e-300],
    "random_state": [0, 1, np.int64(3)],
}


def values(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    """Draw rows of one of many kinds."""
    kinds = [
        lambda: rng.normal(size=(m, d)),
        lambda: rng.normal(size=(m, d)) + 20 * rng.integers(3, size=(m, 1)),
        lambda: rng.integers(0, 3, size=(m, d)).astype(float),
        lambda: np.repeat(rng.normal(size=(-(-m // 4), d)), 4, axis=0)[:m],
        lambda: np.ones((m, d)),
        lambda: rng.normal(size=(m, d)) * 10.0 ** rng.integers(-320, 305),
        lambda: rng.normal(size=(m, d)) * 10.0 ** rng.integers(-9, 9, size=d),
        lambda: rng.standard_cauchy(size=(m, d)) ** 3,
        lambda: np.eye(max(m, d))[:m, :d],
    ]
    X = kinds[rng.integers(len(kinds))]()
    if X.size and rng.random() < 0.15:
        strange = [np.nan, np.inf, -np.inf, 1e308, 5e-324, -0.0]
        X[rng.integers(m), rng.integers(d)] = strange[rng.integers(len(strange))]
    return X


def graph(rng: np.random.Generator, m: int) -> object:
    """Draw a matrix of similarities, of some kind and format, sound or not."""
    kinds = [
        lambda: knn_graph(rng.normal(size=(max(m, 3), 2)), 2),
        lambda: sparse.block_diag([np.ones((k, k)) for k in rng.integers(1, 9, size=4)]),
        lambda: sparse.random(m, m, 0.2, rng=rng),
        lambda: sparse.csr_matrix((m, m)),
        lambda: np.abs(rng.normal(size=(m, m))),
        lambda: rng.normal(size=(m, m + 1)),
    ]
    W = kinds[rng.integers(len(kinds))]()
    if rng.random() < 0.7 and W.shape[0] == W.shape[1]:
        W = W + W.T
    if sparse.issparse(W):
        W = W.asformat(str(rng.choice(["csr", "csc", "coo", "lil"])))
    scale = 10.0 ** rng.integers(-300, 300) if rng.random() < 0.2 else 1.0
    return W * scale


def draw(seed: int) -> tuple[object, dict[str, object]]:
    """Draw an input and parameters."""
    rng = np.random.default_rng(seed)
    settings = {
        name: choices[rng.integers(len(choices))]
        for name, choices in PARAMETERS.items()
        if rng.random() < 0.25
    }
    m = int(
        rng.choice([0, 1, 2, 3, 12, 30, 60, 100], p=[0.02, 0.03, 0.05, 0.1, 0.2, 0.2, 0.2, 0.2])
    )
    if settings.get("affinity") == "precomputed":
        return graph(rng, max(m, 1)), settings
    X = values(rng, m, int(rng.choice([0, 1, 2, 5, 40], p=[0.02, 0.18, 0.4, 0.3, 0.1])))
    if rng.random() < 0.3:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            X = X.astype(DTYPES[rng.integers(len(DTYPES))])
    return X, settings


def content(X: object) -> bytes:
    """Return what an input holds, to see if it was changed."""
    if sparse.issparse(X):
        X = X.tocsr(copy=True)
        return X.data.tobytes() + X.indices.tobytes() + X.indptr.tobytes()
    return repr(X.tolist()).encode() if X.dtype == object else X.tobytes()


def fault(seed: int) -> str:
    """Return what is wrong with the fit of one input, or ""."""
    X, settings = draw(seed)
    before = content(X)
    fit = partial(SpecialK(backend="numpy", **({"random_state": 0} | settings)).fit, X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = fit()
        except DOCUMENTED as error:
            text = str(error)
            return "" if text and len(text) < 2000 else f"an error without words: {error!r}"
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            return f"{type(error).__name__}: {error}"
        first = model.labels_
        refit = fit().labels_
    told = [w for w in caught if not str(w.message).startswith(IDLE)]
    others = [w for w in told if not issubclass(w.category, OURS)]
    if others:
        return f"a warning of another kind: {others[0].category.__name__}: {others[0].message}"
    if content(X) != before:
        return "the input was changed"
    return unsound(model, first, refit)


def unsound(model: SpecialK, labels: np.ndarray, refit: np.ndarray) -> str:
    """Return what is wrong with a fitted model, or ""."""
    k = model.n_clusters_
    sizes = np.bincount(labels, minlength=k)
    shares = model.membership_
    numbers = (model.embedding_, model.eigenvalues_, shares, model.residuals_)
    checks = {
        "labels are not those of k clusters": sizes.size == k and sizes.min() > 0,
        "labels are not by falling size": (np.diff(sizes) <= 0).all(),
        "a refit differs": np.array_equal(labels, refit),
        "a number is not finite": all(np.isfinite(x).all() for x in numbers),
        "shares do not sum to 1": np.allclose(shares.sum(axis=1), 1),
        "the path has no row for the answer": k in [step.k for step in model.path_],
        "a p of the path is not a number": not any(np.isnan(s.log_p) for s in model.path_),
    }
    return "; ".join(text for text, is_right in checks.items() if not is_right)


def main() -> int:
    """Print each fault with its seed, and their number."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    faults = Counter()
    for seed in range(given.first, given.first + given.inputs):
        found = fault(seed)
        if found:
            print(f"seed {seed}: {found}", flush=True)
            faults[found[:60]] += 1
        done = seed + 1 - given.first
        if done % 1000 == 0:
            print(f"{done} inputs, to seed {seed}: {faults.total()} faults", flush=True)
    print(f"{given.inputs} inputs from seed {given.first}: {faults.total()} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
