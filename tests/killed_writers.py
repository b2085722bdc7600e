"""Kill processes that write files, and check that each file is the old one or the whole new one.

Run as `python tests/killed_writers.py 100 [SEED]`: so many kills for each kind of file.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from specialk_gpu import SpecialK
from specialk_gpu._writing import write_text
from specialk_gpu.io import read_labels, write_labels

N = 50_000


def models():
    """Return two models that differ."""
    rng = np.random.default_rng(0)
    for k in (2, 3):
        X = rng.normal(size=(300, 2)) + 20 * (np.arange(300) % k)[:, None]
        yield SpecialK(backend="numpy", n_clusters=k, random_state=0).fit(X)


def kinds():
    """Return for each kind of file its name, two ways to write it, and a way to read it."""
    few, many = models()
    old, new = np.zeros(N, np.int32), np.full(N, 12345, np.int32)
    summaries = [{"k": k, "filler": ["x" * 50] * 20_000} for k in (2, 3)]

    def labels(path):
        found = read_labels(path)
        return len(found), set(found.tolist())

    def model(path):
        found = SpecialK.load(path)
        return found.n_clusters_, found.embedding_.sum(), len(found.labels_)

    return {
        "labels.csv": ([lambda path, y=y: write_labels(path, y) for y in (old, new)], labels),
        "labels.npy": ([lambda path, y=y: write_labels(path, y) for y in (old, new)], labels),
        "summary.json": (
            [lambda path, x=x: write_text(path, json.dumps(x)) for x in summaries],
            lambda path: json.loads(path.read_text()),
        ),
        "report.html": ([few.report, many.report], Path.read_text),
        "model.npz": ([few.save, many.save], model),
    }


def kill_while_writing(path, writers, moment):
    """Write the file again and again in a process of its own, and kill that."""
    child = os.fork()
    if not child:
        while True:
            for write in writers:
                write(path)
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def run(n_kills, seed=0):
    """Return the number of wrong files and of kills in the middle of a write, by name."""
    rng, wrong, inside = np.random.default_rng(seed), {}, {}
    for name, (writers, read) in kinds().items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            allowed = []
            start = time.perf_counter()
            for write in writers:
                write(path)
                allowed.append(read(path))
            lasts = time.perf_counter() - start
            assert allowed[0] != allowed[1]
            wrong[name] = inside[name] = 0
            for _ in range(n_kills):
                kill_while_writing(path, writers, rng.uniform(0, 2 * lasts))
                try:
                    wrong[name] += read(path) not in allowed
                except ValueError as error:
                    print(name, error)
                    wrong[name] += 1
                for left in Path(folder).glob(".*.partial"):  # of the process that was killed
                    inside[name] += 1
                    left.unlink()
                assert [one.name for one in Path(folder).iterdir()] == [name]
    return wrong, inside


if __name__ == "__main__":
    wrong, inside = run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    for name, count in wrong.items():
        print(
            f"{name}: {sys.argv[1]} kills, {inside[name]} in the middle of a write, {count} wrong"
        )
    sys.exit(any(wrong.values()))
