"""Damage to the files of models: whatever is done to a file, it is refused, or the model works.

`python tests/damaged_models.py 3000` tries so many damaged files and prints the seeds of those that
were neither. `python tests/damaged_models.py 1 SEED` tries one again.
"""

import copy
import io
import json
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import make_blobs

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu.tables.choice import Choice
from specialk_gpu.tables.frames import table_of_rows
from specialk_gpu.tables.preparation import Preparation
from specialk_gpu.tables.table import no_text

BLOBS, _ = make_blobs(60, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)
SCRIPT = "</title></script><script>alert(1)</script>"
WRONG = [
    None, True, False, -1, 0, 1, 2, 3, 0.5, -0.5, 1e300, 10**9, 10**400, "", "cut", "numpy",
    SCRIPT, "\x1b[2J", "a\nb", "\ud800", "x" * 5000, [], [1, 2], [SCRIPT, 1], {}, {"value": None},
    {"tree": True}, {"shape": [3, 3]}, {"steps": []},
]  # fmt: skip
NUMBERS = [np.nan, np.inf, -np.inf, -1, 0, 1, 59, 60, 10**6, 2**31 - 1, -(2**31)]
DTYPES = ["f4", "f8", "i4", "i8", "u8", "c16", "?", "U3", "S3", "M8[s]", ">f8"]


def fitted():
    """Return fitted models that have each kind of content, by name."""
    kinds = {
        "cut": (pd.DataFrame(BLOBS, columns=["a", "b", "c"]), {}),
        "zz_top": (BLOBS.astype(np.float32), {"criterion": "zz_top", "max_clusters": 4}),
        "graph": (knn_graph(BLOBS), {"affinity": "precomputed", "n_clusters": 3}),
        "duplicates": (np.repeat(BLOBS, 12, axis=0), {"full_path": True, "max_clusters": 4}),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = {
            name: (X, SpecialK(backend="numpy", random_state=0, **settings).fit(X))
            for name, (X, settings) in kinds.items()
        }
        frame = pd.DataFrame(BLOBS, columns=["a", "b", "c"]).assign(no=1.5)
        choice = Choice(drop=("no",), missing="median", scale="standard")
        preparation, rows = Preparation.fit(table_of_rows(frame, no_text), choice)
        model = SpecialK(backend="numpy", random_state=0).fit(rows.X)
        model.preparation_ = preparation.to_json()
        models["prepared"] = frame, model
        return models


def parts_of(path):
    """Return the arrays of a file and its JSON text as an object."""
    with np.load(path) as file:
        arrays = dict(file)
    return arrays, json.loads(str(arrays.pop("content")))


def written(arrays, content):
    """Return the bytes of a file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays, content=np.array(json.dumps(content)))
    return stream.getvalue()


# -- damage ---------------------------------------------------------------------------------------


def flipped(content, rng):
    damaged = bytearray(content)
    for place in rng.integers(len(content), size=rng.integers(1, 9)):
        damaged[place] = rng.integers(256)
    return bytes(damaged)


def cut(content, rng):
    first, second = sorted(rng.integers(len(content), size=2).tolist())
    kinds = content[:first], content[first:], content[:first] + content[second:]
    return (*kinds, content[:second] + content[first:])[rng.integers(4)]


def edited(arrays, content, rng):
    """Replace, remove or add something at some place of the JSON text."""
    content = copy.deepcopy(content)
    for _ in range(rng.integers(1, 3)):
        node, depth = content, rng.integers(1, 7)
        while True:
            places = list(node) if isinstance(node, dict) else list(range(len(node)))
            place = places[rng.integers(len(places))] if places else None
            below = node[place] if places else None
            depth -= 1
            if depth <= 0 or not isinstance(below, dict | list) or not below:
                break
            node = below
        value = copy.deepcopy(WRONG[rng.integers(len(WRONG))])
        kind = rng.integers(4)
        if isinstance(node, dict) and kind == 0:
            node[["predict", "labels_", "_fit_X", "path_", "x" * 99][rng.integers(5)]] = value
        elif place is not None and kind == 1:
            del node[place]
        elif place is not None:
            node[place] = value
    return written(arrays, content)


def altered(arrays, content, rng):
    """Change the values, the shape, the dtype or the name of an array."""
    arrays = dict(arrays)
    names = sorted(arrays)
    name, other = names[rng.integers(len(names))], names[rng.integers(len(names))]
    array, kind = arrays[name].copy(), rng.integers(8)
    if kind <= 2 and array.size and array.dtype.kind in "if":
        value = NUMBERS[rng.integers(len(NUMBERS))]
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array.flat[rng.integers(array.size)] = np.array(value).astype(array.dtype)
    elif kind == 3:
        array = [array.T, array[:-1], array[None], array.ravel(), array[:0]][rng.integers(5)]
    elif kind == 4:
        array = np.concatenate([array, array[:1]])
    elif kind == 5:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array = array.astype(DTYPES[rng.integers(len(DTYPES))])
        except ValueError:
            array = np.zeros(3)
    elif kind == 6:
        arrays[["predict", "_tree.leaf", "_distinct", "note_", "a.b"][rng.integers(5)]] = array
    else:
        array = arrays[other]
    arrays[name] = array
    if kind == 7 and rng.integers(2):
        del arrays[name]
    return written(arrays, content)


def damaged(original, rng):
    """Return the bytes of a damaged file, and whether what it says was changed."""
    kind = rng.integers(4)
    if kind < 2:
        return (flipped, cut)[kind](original, rng), False
    with tempfile.TemporaryFile() as stream:
        stream.write(original)
        stream.seek(0)
        arrays, content = parts_of(stream)
    return (edited, altered)[kind - 2](arrays, content, rng), True


# -- the judge ------------------------------------------------------------------------------------


def same(one, other):
    """Return whether two files hold the same, where a number may be of another type."""
    (arrays, content), (again, text) = one, other
    return (
        content["parameters"] == text["parameters"]
        and content["state"] == text["state"]
        and arrays.keys() == again.keys()
        and all(np.array_equal(arrays[x], again[x], equal_nan=x[-1] != "_") for x in arrays)
    )


def judge(path, original, X):
    """Return "refused", or "works" for a model that is what the file says.

    Anything else is an error: another exception, a model that is not what the file says, or one
    that has no report, no labels, or a script of its own in the report.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model = SpecialK.load(path)
        except ValueError as error:
            said = str(error)
            assert said.startswith(str(path)), said
            assert len(said.splitlines()) == 1, said
            assert said.isprintable(), said
            return "refused"
    again = path.with_suffix(".again.npz")
    model.save(again)
    assert same(parts_of(again), parts_of(path if original is None else original))
    model.set_params(backend="numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = model.predict(X)
    assert labels.shape == model.labels_.shape
    assert 0 <= labels.min() <= labels.max() < model.n_clusters_
    for step in model.path_:
        assert model.labels_at(step.k).shape == labels.shape
    assert isinstance(str(model.path_), str)
    page = path.with_suffix(".html")
    model.report(page)
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert text.count("<script") == 2
    return "works"


def attempt(models, folder, seed):
    """Damage a model by the seed and judge it."""
    rng = np.random.default_rng(seed)
    names = sorted(models)
    name = names[rng.integers(len(names))]
    X, model = models[name]
    original = folder / f"{name}.npz"
    if not original.exists():
        model.save(original)
    content, changed = damaged(original.read_bytes(), rng)
    path = folder / "damaged.npz"
    path.write_bytes(content)
    return judge(path, None if changed else original, X)


def main(count, seed=0):
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))  # bytes
    models, found = fitted(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        for one in range(seed, seed + count):
            try:
                found[attempt(models, Path(folder), one)] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, it should not be
                found["wrong"] += 1
                print(f"seed {one}: {type(error).__name__}: {error}", flush=True)
                if count == 1:
                    raise
    print(f"{count} damaged models from seed {seed} on: {dict(found)}")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
