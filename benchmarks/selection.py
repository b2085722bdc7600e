"""The check of the default decision: the clusters it finds, how steadily, and in what time.

    python -m benchmarks.selection mnist                   # ten random_state, samples of 10,000
    python -m benchmarks.selection designs --designs FILE  # drawn sets: right, too many, too few
    python -m benchmarks.selection kinds                   # sizes, copies, graphs, many clusters
    python -m benchmarks.selection stable --sets FOLDER    # k by random_state, order, float32
    python -m benchmarks.selection given_k --sets FOLDER   # ARI beside SpectralClustering's
    python -m benchmarks.selection time --other CHECKOUT   # seconds beside another checkout's

FILE is a module with C[name] = (draw, k), where draw(numpy Generator) returns X and y, -1 for rows
in no cluster. FOLDER has files .npz with X, y (-1: not known) and right, the numbers of clusters
that count as right. CHECKOUT is a folder with another version of the package. The environment
variables SPECIALK_DESIGNS, SPECIALK_SETS and SPECIALK_OTHER may name them too; SPECIALK_MNIST and
SPECIALK_FASHION_MNIST name the folders of the images, which are left out where they are not set.

Results are JSON lines in benchmarks/results/selection-PART.jsonl; a run that was stopped goes on
where it was. `--seeds 0 1 2` takes other seeds than 0 to 9, `--only NAME` one set, `--rows` fewer
rows of the images and the timed sets.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from benchmarks.paper.data import FOLDERS, load, missing
from benchmarks.paper.runner import run
from benchmarks.stamp import RESULTS
from specialk_gpu import SpecialK, knn_graph

Task = dict[str, Any]
Result = dict[str, Any]
Draw = Callable[[np.random.Generator], tuple[Any, np.ndarray]]

ROOT = Path(__file__).parents[1]
PATHS = {"designs": "SPECIALK_DESIGNS", "sets": "SPECIALK_SETS", "other": "SPECIALK_OTHER"}
SAMPLE, N_SAMPLES = 10_000, 5  # rows of a sample of images, and samples
N_ORDERS = 5  # of rows
REPEATS = 3  # of a timed fit, in each checkout
CHILD = """
import json, sys, time
import numpy as np
from specialk_gpu import SpecialK
try:
    from specialk_gpu._environment import COMMIT, peak_bytes
except ImportError:  # in checkouts of before the file had this name
    from specialk_gpu.stamp import COMMIT, peak_bytes
folder, settings = sys.argv[1], json.loads(sys.argv[2])
X = np.load(folder + "/X.npy")
SpecialK(**settings).fit(X[:500])  # what is imported or compiled once is not timed
began = time.perf_counter()
model = SpecialK(**settings).fit(X)
found = {"seconds": time.perf_counter() - began, "k": int(model.n_clusters_), "commit": COMMIT}
np.save(folder + "/labels.npy", model.labels_)
print(json.dumps(found | {"stages": model.timings_, "peak_bytes": peak_bytes()}))
"""


def fit_alone(X: Any, checkout: Path, **settings: Any) -> tuple[Result, np.ndarray]:
    """Fit in a process of its own; return k, seconds, stages and peak memory, and the labels."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/X.npy", X)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CHILD, folder, json.dumps(settings)],
            cwd=checkout,  # the first place where Python looks for the package
            env=os.environ | {"PYTHONPATH": str(checkout)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return json.loads(done.stdout.splitlines()[-1]), np.load(f"{folder}/labels.npy")


def ari(y: np.ndarray, labels: np.ndarray) -> float:
    """Return the adjusted Rand index over the rows that have a class."""
    return float(adjusted_rand_score(y[y >= 0], labels[y >= 0]))


def fitted(X: Any, **settings: Any) -> SpecialK:
    """Fit rows, or a sparse graph, on the CPU, without warnings about the data."""
    warnings.simplefilter("ignore")
    affinity = "precomputed" if sparse.issparse(X) else "nearest_neighbors"
    return SpecialK(affinity=affinity, backend="numpy", **settings).fit(X)


# -- MNIST ----------------------------------------------------------------------------------------


def mnist_tasks(given: argparse.Namespace) -> list[Task]:
    """List whole sets, each with every random_state, and samples."""
    rows = {"rows": given.rows} if given.rows else {}
    out = []
    for name in FOLDERS:
        common = {"set": name, "backend": given.backend} | rows
        if missing(name):
            print(f"{name} is left out: {missing(name)} is not set.")
            continue
        out += [common | {"seed": seed} for seed in given.seeds]
        out += [common | {"seed": 0, "sample": i} for i in range(N_SAMPLES)]
    return out


def mnist(task: Task) -> Result:
    """Fit all images or a sample."""
    X, y = load(task["set"])
    most = task.get("rows", len(X))
    if "sample" in task:
        chosen = np.random.default_rng(task["sample"]).permutation(len(X))[: min(SAMPLE, most)]
        X, y = X[chosen], y[chosen]
    X, y = X[:most], y[:most]
    found, labels = fit_alone(X, ROOT, backend=task["backend"], random_state=task["seed"])
    nmi = float(normalized_mutual_info_score(y, labels))
    return found | {"m": len(X), "nmi": nmi, "ari": ari(y, labels)}


# -- drawn sets -----------------------------------------------------------------------------------


@cache
def designs_module() -> Any:
    """Load the module with the designs."""
    spec = importlib.util.spec_from_file_location("designs", os.environ[PATHS["designs"]])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(name: str, seed: int, draw: Draw) -> tuple[Any, np.ndarray]:
    """Draw a set; its generator has the seed and a number made of the name."""
    return draw(np.random.default_rng([seed, sum(map(ord, name))]))


def verdict(k: int, right: list[int]) -> str:
    """Say whether these are too many clusters or too few."""
    return "right" if k in right else "too many" if k > max(right) else "too few"


def designs_tasks(given: argparse.Namespace) -> list[Task]:
    """List every design with every seed."""
    return [{"set": name, "seed": seed} for name in designs_module().C for seed in given.seeds]


def designs(task: Task) -> Result:
    """Find k of a drawn set."""
    draw, right = designs_module().C[task["set"]]
    X, y = drawn(task["set"], task["seed"], draw)
    model = fitted(X, random_state=0)
    k = int(model.n_clusters_)
    return {"k": k, "verdict": verdict(k, [right]), "ari": ari(y, model.labels_)}


# -- kinds ----------------------------------------------------------------------------------------


def blobs(
    rng: np.random.Generator, centers: np.ndarray, sizes: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Draw round Gaussians of deviation 1."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    return centers[y] + rng.standard_normal((len(y), centers.shape[1])), y


def beside(
    rng: np.random.Generator, large: int, k: int, small: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a large cluster and k small ones in five dimensions, the nearest two 12 apart."""
    centers = rng.standard_normal((1 + k, 5))
    return blobs(rng, centers * 12 / pdist(centers).min(), [large] + k * [small])


def copies(rng: np.random.Generator, maps: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Draw three clusters on one side of the origin, and put their images beside each other."""
    X, y = blobs(rng, np.array([(20.0, 5.0), (28.0, 5.0), (24.0, 12.0)]), 3 * [150])
    labels = [y + 3 * i for i in range(len(maps))]
    return np.concatenate([X @ np.array(A) for A in maps]), np.concatenate(labels)


def many(rng: np.random.Generator, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw k clusters of 40 rows, on a grid in the plane whose points are 10 apart."""
    centers = np.stack(np.divmod(np.arange(k), 10), axis=1) * 10.0
    return blobs(rng, centers, k * [40])


def random_graph(
    rng: np.random.Generator, k: int, size: int, p: tuple[float, float], spread: float = 0.0
) -> tuple[Any, np.ndarray]:
    """Draw k blocks of rows that are joined with probability p[0] inside, p[1] between them.

    Expected degrees are log-normal, of deviation `spread`.
    """
    y = np.repeat(np.arange(k), size)
    weight = np.exp(spread * rng.standard_normal(len(y)) - spread**2 / 2)
    joined = np.where(y[:, None] == y, *p) * weight[:, None] * weight
    A = np.triu(rng.random(joined.shape) < joined, 1)
    return sparse.csr_matrix((A | A.T).astype(np.float64)), y


def cliques(_rng: np.random.Generator, k: int, size: int) -> tuple[Any, np.ndarray]:
    """Join k cliques: each by an edge to the next, two by one, more in a ring."""
    y = np.repeat(np.arange(k), size)
    A = (y[:, None] == y) & ~np.eye(k * size, dtype=bool)
    last = np.arange(size - 1, k * size, size)
    ends = last[: 1 if k == 2 else k], np.roll(last - size + 1, -1)[: 1 if k == 2 else k]
    A[ends] = A[ends[::-1]] = True
    return sparse.csr_matrix(A.astype(np.float64)), y


SAME, TURNED = [[1, 0], [0, 1]], [[0, 1], [-1, 0]]
ROTATIONS = [np.linalg.matrix_power(TURNED, i) for i in range(4)]
KINDS: dict[str, Draw] = {
    "1,500 beside 8 of 25": partial(beside, large=1500, k=8, small=25),
    "3,000 beside 2 of 60": partial(beside, large=3000, k=2, small=60),
    "mirrored copies": partial(copies, maps=[SAME, [[-1, 0], [0, 1]]]),
    "rotated copies": partial(copies, maps=ROTATIONS),
    "X beside -X": partial(copies, maps=[SAME, [[-1, 0], [0, -1]]]),
    "55 blobs": partial(many, k=55),
    "100 blobs": partial(many, k=100),
    "barbell": partial(cliques, k=2, size=100),
    "planted 3 x 100, 0.5 and 0.05": partial(random_graph, k=3, size=100, p=(0.5, 0.05)),
    "planted 3 x 100, 0.3 and 0.02": partial(random_graph, k=3, size=100, p=(0.3, 0.02)),
    "planted 5 x 100, 0.3 and 0.01": partial(random_graph, k=5, size=100, p=(0.3, 0.01)),
    "degree-corrected 4 x 150": partial(random_graph, k=4, size=150, p=(0.2, 0.01), spread=0.5),
    "cavemen, reported only": partial(cliques, k=20, size=10),
}


def kinds_tasks(given: argparse.Namespace) -> list[Task]:
    """List every kind with every seed."""
    return [{"set": name, "seed": seed} for name in KINDS for seed in given.seeds]


def kinds(task: Task) -> Result:
    """Find k of a set, and its clusters where k is given."""
    X, y = drawn(task["set"], task["seed"], KINDS[task["set"]])
    right, seed = int(y.max()) + 1, {"random_state": task["seed"]}
    model, told = fitted(X, **seed), fitted(X, n_clusters=right, **seed)
    k = int(model.n_clusters_)
    found = {"k": k, "ari": ari(y, model.labels_), "ari_given_k": ari(y, told.labels_)}
    return found if "reported only" in task["set"] else found | {"verdict": verdict(k, [right])}


# -- real sets ------------------------------------------------------------------------------------


def sets_tasks(given: argparse.Namespace) -> list[Task]:
    """List the files of the folder."""
    names = sorted(path.stem for path in Path(os.environ[PATHS["sets"]]).glob("*.npz"))
    return [{"set": name, "seeds": given.seeds} for name in names]


def real_set(name: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Read the rows of a set, their classes, and which k are right."""
    with np.load(Path(os.environ[PATHS["sets"]]) / f"{name}.npz") as content:
        return content["X"], content["y"], np.atleast_1d(content["right"]).tolist()


def stable(task: Task) -> Result:
    """Find k for every random_state, in other orders of the rows, and in float32."""
    X, y, right = real_set(task["set"])
    model = fitted(X, random_state=task["seeds"][0])

    def others(kind: str, n: int) -> list[int]:
        refits = model.stability(X, kinds=[kind], n_refits=n, random_state=0).refits if n else ()
        return [int(refit.k) for refit in refits]

    found = {
        "random_state": [int(model.n_clusters_), *others("random_state", len(task["seeds"]) - 1)],
        "order": others("order", N_ORDERS),
        "float32": [int(fitted(X.astype(np.float32), random_state=0).n_clusters_)],
    }
    k, known = found["random_state"][0], (y >= 0).any()
    found["same"] = all(one == k for ks in found.values() for one in ks)
    found |= {"k": k, "verdict": verdict(k, right)}
    return found | ({"ari": ari(y, model.labels_)} if known else {})


def given_k_tasks(given: argparse.Namespace) -> list[Task]:
    """List the files of the folder with two classes or more."""
    tasks = sets_tasks(given)
    return [task for task in tasks if len({*real_set(task["set"])[1].tolist()} - {-1}) > 1]


def given_k(task: Task) -> Result:
    """Find as many clusters as there are classes: the mean ARI, ours and scikit-learn's.

    On the same graph, but for rows with many copies, of which ours keeps one.
    """
    X, y, _ = real_set(task["set"])
    k, W, found = len({*y.tolist()} - {-1}), knn_graph(X), {"ours": [], "theirs": []}
    for seed in task["seeds"]:
        found["ours"].append(ari(y, fitted(X, n_clusters=k, random_state=seed).labels_))
        theirs = SpectralClustering(k, affinity="precomputed", random_state=seed)
        found["theirs"].append(ari(y, theirs.fit(W).labels_))
    return {"k": k} | {name: statistics.mean(x) for name, x in found.items()}


# -- time -----------------------------------------------------------------------------------------

BLOBS = {  # rows, dimensions, clusters
    "100,000 x 10, 20 clusters": (100_000, 10, 20),
    "15,000 x 10, 40 clusters": (15_000, 10, 40),
}
TIMED = [*BLOBS, "MNIST", "MNIST, the paper's rule"]
OTHERS = {"100,000 x 10, 20 clusters": {"n_components": 50}}  # its settings, where not the default


def time_tasks(given: argparse.Namespace) -> list[Task]:
    """List the sets to be timed."""
    rows = {"rows": given.rows} if given.rows else {}
    common = {"backend": given.backend, "other": Path(given.other).resolve().name} | rows
    if missing("MNIST"):
        print(f"MNIST is left out: {missing('mnist')} is not set.")
    return [{"set": name} | common for name in TIMED if name in BLOBS or not missing("MNIST")]


def timed_rows(name: str) -> np.ndarray:
    """Load images, or draw round Gaussians, the nearest two 8 apart."""
    if name not in BLOBS:
        return load("MNIST")[0]
    m, d, k = BLOBS[name]
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((k, d))
    return blobs(rng, centers * 8 / pdist(centers).min(), k * [m // k])[0]


def time(task: Task) -> Result:
    """Time fits here and in the other checkout by turns, each in a process of its own.

    The other may name the paper's rule by `selection`, as it was once called.
    """
    X = timed_rows(task["set"])[: task.get("rows")]
    other = Path(os.environ[PATHS["other"]]).resolve()
    ours, theirs = {}, OTHERS.get(task["set"], {})
    if "paper" in task["set"]:
        ours = theirs = {"criterion": "zz_top"}
        if "criterion" not in (other / "specialk_gpu" / "specialk.py").read_text():
            theirs = {"selection": "first"}
    checkouts = {"ours": (ROOT, ours), "other": (other, theirs)}
    fits: dict[str, list[Result]] = {name: [] for name in checkouts}
    for _ in range(REPEATS):
        for name, (checkout, settings) in checkouts.items():
            settings = settings | {"backend": task["backend"], "random_state": 0}
            fits[name].append(fit_alone(X, checkout, **settings)[0])
    seconds = {name: statistics.median(fit["seconds"] for fit in own) for name, own in fits.items()}
    return fits | {"ratio": seconds["ours"] / seconds["other"]}


# -- the command ----------------------------------------------------------------------------------


def report(rows: list[dict[str, Any]]) -> None:
    """Print for each set, and for all, how often each verdict was given, each k, and means."""
    sets: dict[str, list[Result]] = {}
    for row in rows:
        name = row["task"]["set"] + (", samples" if "sample" in row["task"] else "")
        sets.setdefault(name, []).append(row["result"])
    sets["all"] = [row["result"] for row in rows]
    for name, own in sets.items():
        words = Counter(result["verdict"] for result in own if "verdict" in result)
        words["always the same k"] = sum(result.get("same", False) for result in own)
        parts = [f"{n} {word}" for word, n in words.items() if n]
        ks = Counter(result["k"] for result in own if "k" in result)
        if name != "all" and ks:
            parts.append("k " + " ".join(f"{k} ({n})" for k, n in sorted(ks.items())))
        for key in ("ari", "ari_given_k", "nmi", "ours", "theirs", "seconds", "ratio"):
            x = [r[key] for r in own if isinstance(r.get(key), int | float)]
            if x:
                parts.append(f"{key} {statistics.mean(x):.3g}")
        print(f"{name} ({len(own)}): {', '.join(parts)}")


class Part(NamedTuple):
    """What to run: the tasks, the function of one, whether several run side by side, the path."""

    tasks: Callable[[argparse.Namespace], list[Task]]
    function: Callable[[Task], Result]
    side_by_side: bool = True
    path: str | None = None


PARTS = {
    "mnist": Part(mnist_tasks, mnist, side_by_side=False),
    "designs": Part(designs_tasks, designs, path="designs"),
    "kinds": Part(kinds_tasks, kinds),
    "stable": Part(sets_tasks, stable, path="sets"),
    "given_k": Part(given_k_tasks, given_k, path="sets"),
    "time": Part(time_tasks, time, side_by_side=False, path="other"),
}


def main(arguments: list[str] | None = None) -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    for name, variable in PATHS.items():
        parser.add_argument(f"--{name}", default=os.environ.get(variable))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--only", help="of one set")
    parser.add_argument("--rows", type=int, help="at most, of images and timed sets")
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cuda"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    part = PARTS[given.part]
    if part.path and not getattr(given, part.path):
        parser.error(f"--{part.path}, or {PATHS[part.path]}, must name a path")
    chosen = {PATHS[name]: getattr(given, name) for name in PATHS if getattr(given, name)}
    os.environ.update(chosen)  # read by the processes that do the tasks
    tasks = [task for task in part.tasks(given) if given.only in (None, task["set"])]
    path = given.results / f"selection-{given.part}.jsonl"
    rows = run(part.function, tasks, path, jobs=given.jobs if part.side_by_side else 1)
    for row in rows:
        if "error" in row:
            print(row["task"], row["error"])
    report([row for row in rows if "result" in row])


if __name__ == "__main__":
    main()
