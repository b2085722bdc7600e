"""The paper's synthetic sets: k found for every shape, noise level and graph.

    python -m benchmarks.synthetic

For each of the ten noise levels five data sets of 1,500 rows, each with a seed of its own (five
times the level's number plus 0..4), n = 200, alpha = 0.01, k up to 5 [HD19, section 4.1]. Writes
results/synthetic-BACKEND.json.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

from benchmarks.stamp import RESULTS, write
from specialk_gpu import SpecialK
from specialk_gpu.datasets import NOISE_LEVELS, SHAPES, make_shape

TRUE_K = {"random": 1, "blobs": 3, "moons": 2, "circles": 2}


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cuda"))
    parser.add_argument("--sets", type=int, default=5, help="data sets for each noise level")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # components of separated blobs
    table = []
    for affinity in ("nearest_neighbors", "radius_neighbors"):
        for shape in SHAPES:
            began = time.perf_counter()
            found = [
                [
                    SpecialK(
                        affinity=affinity,
                        n_components=200,
                        max_clusters=5,
                        backend=arguments.backend,
                        random_state=0,
                    )
                    .fit(make_shape(shape, noise, random_state=arguments.sets * level + i)[0])
                    .n_clusters_
                    for i in range(arguments.sets)
                ]
                for level, noise in enumerate(NOISE_LEVELS)
            ]
            right = sum(k == TRUE_K[shape] for row in found for k in row)
            row = {
                "affinity": affinity,
                "shape": shape,
                "true_k": TRUE_K[shape],
                "found": found,
                "right": right,
                "right_without_noise": sum(k == TRUE_K[shape] for k in found[0]),
                "sets": arguments.sets * len(NOISE_LEVELS),
                "seconds": time.perf_counter() - began,
            }
            table.append(row)
            print(f"{affinity:18} {shape:8} {right:3} of {row['sets']} right: {found}", flush=True)
    content = {"noise_levels": list(NOISE_LEVELS), "table": table}
    print(write(f"synthetic-{arguments.backend}", content, arguments.results))


if __name__ == "__main__":
    main()
