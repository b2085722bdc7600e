"""How far the Nyström extension of the embedding to new rows is from a fit with these rows.

    python -m benchmarks.extension

A fifth of scikit-learn's digits is held out. D of the rest is extended to them by their neighbours
among the rest, v(x) = Σ_j w(x, j) v_j / λ, and compared with the rows that a fit of all has for
them: ‖extension - refit‖ / ‖refit‖ over the n leading columns, each scaled to its best. Beside it
stands the same ratio for rows that were fitted both times, which an extension can hardly better.
Writes results/extension-numpy.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.stamp import RESULTS, write
from specialk_gpu import eigenpairs, embed, knn_graph, neighbors_among

SIZES = (5, 10, 20, 50, 200)
N_NEIGHBORS = 10


def difference(D: np.ndarray, reference: np.ndarray) -> float:
    """Return ‖D a - reference‖ / ‖reference‖ with the best factor a for each column."""
    factor = (D * reference).sum(axis=0) / np.maximum((D * D).sum(axis=0), 1e-300)
    return float(np.linalg.norm(D * factor - reference) / np.linalg.norm(reference))


def measure(X: np.ndarray, n: int, seed: int) -> dict[str, float]:
    """Return both ratios for one set of rows held out."""
    held = np.zeros(len(X), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(X))[: len(X) // 5]] = True
    part = eigenpairs(knn_graph(X[~held], N_NEIGHBORS), n, random_state=seed)
    whole = eigenpairs(knn_graph(X, N_NEIGHBORS), n, random_state=seed)
    refit = embed(whole.values, whole.vectors)
    near = neighbors_among(X[held], X[~held], N_NEIGHBORS).indices
    # The weights are those of W_C up to a factor for each row, which the mean takes out.
    vectors = part.vectors[near].mean(axis=1) / part.values
    return {
        "n": n,
        "seed": seed,
        "extended": difference(embed(part.values, vectors), refit[held]),
        "fitted": difference(embed(part.values, part.vectors), refit[~held]),
    }


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    X = load_digits().data
    rows = [measure(X, n, seed) for n in SIZES for seed in range(5)]
    for n in SIZES:
        means = [
            np.mean([row[key] for row in rows if row["n"] == n]) for key in ("extended", "fitted")
        ]
        print(f"n = {n}: extended {means[0]:.2f}, fitted both times {means[1]:.2f}")
    write("extension-numpy", {"rows": rows}, arguments.results)


if __name__ == "__main__":
    main()
