"""Other methods that find the number of clusters, beside the default rule, on the same sets.

    python -m benchmarks.rivals designs --designs FILE   # drawn sets, as benchmarks.selection has
    python -m benchmarks.rivals sets --sets FOLDER       # real sets
    python -m benchmarks.rivals isolated                 # small clusters far from a large one

FILE and FOLDER are those of benchmarks.selection; the environment variables SPECIALK_DESIGNS and
SPECIALK_SETS may name them too. A table in FOLDER/README.md may say of each set whether its classes
are clear, partly apart, or overlap (column "tier"). Needs ClustPy, igraph and isosplit6
(`pip install -e .[bench]`). Results are JSON lines in benchmarks/results/rivals-PART.jsonl.

Every method has its defaults, but for what has to be chosen: Leiden takes our graph of 10
neighbours; where k is chosen from a list, that goes to 20 one by one, and on to 60 in steps, 20 and
50 among them; ISO-SPLIT and the dip tests see ten principal components at most.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import warnings
from collections.abc import Callable
from functools import cache, partial
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders import (
    by_eigengap,
    dip_means,
    gap_statistic,
    gmm_bic,
    hdbscan,
    iso_split,
    leiden,
    self_tuning,
    silhouette,
    specialk,
)
from benchmarks.paper.runner import run
from benchmarks.selection import PATHS, ari, designs_module, drawn, real_set, verdict
from benchmarks.stamp import RESULTS

__all__ = ["METHODS", "is_unseen"]

ISOLATED = {  # rows of the large cluster, of the small ones, and columns
    f"{n} x {s} rows beside {m:,}, d = {d}": (m, n, s, d)
    for m, n, s in ((1000, 3, 15), (3000, 3, 15), (1000, 4, 20), (3000, 4, 30))
    for d in (2, 5, 10)
}
MAY_HANG, TIME_LIMIT = ("ISO-SPLIT", "DipMeans", "projected DipMeans"), 60
DRAWS = 5  # of sets with small clusters


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "SpecialK": specialk,
    "SpecialK, alpha = 0.01": partial(specialk, alpha=0.01),
    "HDBSCAN, 5 rows": partial(hdbscan, least=5),
    "HDBSCAN, 1 % of rows": hdbscan,
    "Leiden": leiden,
    "ISO-SPLIT": iso_split,
    "GMM, BIC": gmm_bic,
    "silhouette": silhouette,
    "gap statistic": gap_statistic,
    "DipMeans": dip_means,
    "projected DipMeans": partial(dip_means, projected=True),
    "STSC": self_tuning,
    "eigengap": by_eigengap,
}


def in_time(method: str, X: np.ndarray) -> np.ndarray:
    """Run a method in a process of its own, which is stopped after a minute."""
    receiving, sending = Pipe(duplex=False)
    process = get_context("spawn").Process(target=_sent, args=(sending, method, X))
    process.start()
    try:
        if not receiving.poll(TIME_LIMIT):
            msg = f"no answer within {TIME_LIMIT} s"
            raise TimeoutError(msg)
        return receiving.recv()
    finally:
        process.kill()
        process.join()


def _sent(sending: Any, method: str, X: np.ndarray) -> None:
    """Send the labels that a method finds; some print without end."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    sending.send(METHODS[method](X))


def judged(method: str, X: np.ndarray, y: np.ndarray, right: list[int]) -> dict[str, Any]:
    """Cluster, count the clusters, rows in none left out, and compare."""
    warnings.simplefilter("ignore")
    if method in MAY_HANG:
        try:
            labels = in_time(method, X)
        except TimeoutError:
            return {"k": 0, "verdict": "no answer"}
    else:
        labels = np.asarray(METHODS[method](X))
    k = len({*labels.tolist()} - {-1})
    found = {"k": k, "verdict": verdict(k, right)}
    return found | ({"ari": ari(y, labels)} if (y >= 0).any() else {})


def is_unseen(name: str) -> bool:
    """Say whether a real set is in the half that is looked at once, by a hash of its name."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


@cache
def tiers() -> dict[str, str]:
    """Read how far apart the classes of each set are, if the folder has a table that says it."""
    path, found = Path(os.environ[PATHS["sets"]]) / "README.md", {}
    if not path.exists():
        return found
    lines = [x for x in path.read_text(encoding="utf-8").splitlines() if x.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    column = rows[0].index("tier") if rows and "tier" in rows[0] else None
    return {} if column is None else {row[0]: row[column] for row in rows[1:]}


def small_ones(rng: np.random.Generator, m: int, n: int, s: int, d: int) -> tuple[Any, np.ndarray]:
    """Draw a Gaussian of m rows and n of s, of deviation 0.5, 12 from it and from each other."""
    y = np.repeat(np.arange(n + 1), [m, *n * [s]])
    angle = 2 * np.pi * np.arange(n) / n
    centers = np.zeros((n + 1, d))
    centers[1:, :2] = 12 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    X = centers[y] + rng.standard_normal((len(y), d)) * np.where(y > 0, 0.5, 1)[:, None]
    return X, y


def designs_tasks(given: argparse.Namespace) -> list[dict[str, Any]]:
    """List every design with every seed and method."""
    return [
        {"set": name, "seed": seed, "method": method}
        for name in designs_module().C
        for seed in given.seeds
        for method in METHODS
    ]


def of_design(task: dict[str, Any]) -> dict[str, Any]:
    """Judge a method on a drawn set."""
    draw, right = designs_module().C[task["set"]]
    X, y = drawn(task["set"], task["seed"], draw)
    return judged(task["method"], X, y, [right])


def sets_tasks(_given: argparse.Namespace) -> list[dict[str, Any]]:
    """List the files of the folder with every method."""
    names = sorted(path.stem for path in Path(os.environ[PATHS["sets"]]).glob("*.npz"))
    return [{"set": name, "method": method} for name in names for method in METHODS]


def of_real_set(task: dict[str, Any]) -> dict[str, Any]:
    """Judge a method on a real set."""
    X, y, right = real_set(task["set"])
    found = judged(task["method"], X.astype(np.float64), y, right)
    tier = tiers().get(task["set"])
    return found | {"unseen": is_unseen(task["set"])} | ({"tier": tier} if tier else {})


def isolated_tasks(_given: argparse.Namespace) -> list[dict[str, Any]]:
    """List the sets with small clusters, and the methods that know no k."""
    own = [name for name in METHODS if name.startswith(("SpecialK", "HDBSCAN"))]
    return [
        {"set": name, "draw": i, "method": method}
        for name in ISOLATED
        for i in range(DRAWS)
        for method in own
    ]


def of_isolated(task: dict[str, Any]) -> dict[str, Any]:
    """Judge a method on a large cluster and small ones."""
    X, y = drawn(task["set"], task["draw"], lambda rng: small_ones(rng, *ISOLATED[task["set"]]))
    return judged(task["method"], X, y, [int(y.max()) + 1])


PARTS = {
    "designs": (of_design, designs_tasks),
    "sets": (of_real_set, sets_tasks),
    "isolated": (of_isolated, isolated_tasks),
}


def main(arguments: list[str] | None = None) -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--designs", default=os.environ.get(PATHS["designs"]))
    parser.add_argument("--sets", default=os.environ.get(PATHS["sets"]))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.part in PATHS:
        if getattr(given, given.part) is None:
            parser.error(f"--{given.part} or {PATHS[given.part]} must name what is looked at.")
        os.environ[PATHS[given.part]] = getattr(given, given.part)
    function, tasks = PARTS[given.part]
    path = given.results / f"rivals-{given.part}.jsonl"
    for row in run(function, tasks(given), path, jobs=given.jobs):
        if "error" in row:
            print(row["task"], row["error"])


if __name__ == "__main__":
    main()
