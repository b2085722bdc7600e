"""The same fit ten times: are labels, neighbours and bounds the same bit for bit?

    python -m benchmarks.repeat --folder FOLDER --backend cuda

MNIST with n = 1000, or a mixture without a folder. Writes results/repeat-BACKEND.json.
"""

from __future__ import annotations

import argparse
import hashlib
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stamp import RESULTS, write
from benchmarks.suite.cases import Case, points
from specialk_gpu import SpecialK


def digest(*arrays: Any) -> str:
    """Return a fingerprint of the bits of some arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def same(fits: list[dict[str, Any]]) -> dict[str, bool]:
    """Say what all fits have alike."""
    keys = ("labels", "graph", "log_p")
    return {key: all(row[key] == fits[0][key] for row in fits) for key in keys}


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="folder with MNIST's idx files")
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cuda"))
    parser.add_argument("--fits", type=int, default=10)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--n-components", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # about the data
    data, d = ("mnist", 784) if arguments.folder else ("mixture", 64)
    X = points(Case("fit", data, arguments.rows, d), arguments.folder)
    fits = []
    for _ in range(arguments.fits):
        began = time.perf_counter()
        model = SpecialK(
            n_components=arguments.n_components,
            max_clusters=11,
            full_path=True,
            criterion="zz_top",
            backend=arguments.backend,
            random_state=0,
        ).fit(X)
        row = {
            "seconds": time.perf_counter() - began,
            "n_clusters": model.n_clusters_,
            "labels": digest(model.labels_, *(step.labels for step in model.path_)),
            "graph": digest(model.affinity_matrix_.indices, model.affinity_matrix_.data),
            "log_p": [step.log_p for step in model.path_ if step.pair],
        }
        fits.append(row)
        print(
            f"k = {row['n_clusters']}, labels {row['labels'][:12]}, {row['seconds']:.2f} s",
            flush=True,
        )
        content = {"data": f"{data}, {X.shape[0]} x {X.shape[1]}", "same": same(fits), "fits": fits}
        write(f"repeat-{arguments.backend}", content, arguments.results)
    print(f"the same in all {len(fits)} fits: {content['same']}")


if __name__ == "__main__":
    main()
