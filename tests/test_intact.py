"""Damaged sparse matrices: each door of the library refuses them, and says what is damaged.

On a library that does not look, some of these end the process. So they are tried in another one.
"""

import functools
import itertools
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from oracles import csr
from scipy import sparse

from specialk_gpu import SpecialK, affinity_matrix, cut_test, eigenpairs, knn_graph
from specialk_gpu.backend.intact import intact_csr
from specialk_gpu.tl import specialk

M = 40
BLOCK = np.kron(np.eye(2), np.ones((M // 2, M // 2))) - np.eye(M)  # two cliques
LABELS = np.repeat([0, 1], M // 2)
KINDS = ["matrix", "array"]  # SciPy's two


def setting(part, place, value):
    """Return a function that sets one number of a part of a matrix."""

    def damage(W):
        array = getattr(W, part).copy()
        array[place] = value
        setattr(W, part, array)

    return damage


def replacing(part, function):
    """Return a function that replaces a part of a matrix."""
    return lambda W: setattr(W, part, function(getattr(W, part)))


def in_lists(part, function):
    """Return a function that changes the first list of a LIL matrix."""
    return lambda W: function(getattr(W, part)[0])


def as_key(key):
    return lambda W: W._dict.update({key: 1.0})


COMPRESSED = {
    "index too large": (
        setting("indices", -1, 2**30),
        "indices must be from 0 to .*, got 10737418",
    ),
    "index off by one": (setting("indices", 0, M), f"indices must be from 0 to .*, got {M}"),
    "index negative": (setting("indices", 3, -1), "indices must be from 0 to .*, got -1"),
    "indices short": (replacing("indices", lambda x: x[:-5]), r"\d+ entries, but \d+ indices"),
    "indices fractions": (replacing("indices", lambda x: x + 0.5), "indices must be integers"),
    "indices a list": (replacing("indices", list), "indices must be an array, got list"),
    "indices square": (replacing("indices", lambda x: x[:, None]), "must have 1 dimensions"),
    "indptr decreasing": (setting("indptr", 1, 10**6), "indptr must not decrease"),
    "indptr negative": (setting("indptr", 1, -7), "indptr must not decrease"),
    "indptr wraps": (
        setting("indptr", [1, 2, 3], [2**31 - 1, -(2**31), -10]),  # all differences wrap
        "indptr must not decrease",
    ),
    "indptr too far": (setting("indptr", -1, 10**6), "must end with at most the number of indices"),
    "indptr from one": (setting("indptr", 0, 1), "indptr must begin with 0, got 1"),
    "indptr short": (replacing("indptr", lambda x: x[:-1]), r"indptr must have length \d+, got"),
    "indptr fractions": (replacing("indptr", lambda x: x * 1.0), "indptr must be integers"),
    "data short": (replacing("data", lambda x: x[:-1]), r"\d+ entries, but \d+ indices"),
    "data text": (
        replacing("data", lambda x: x.astype(str)),
        "must (hold|be) (real numbers|float32)",
    ),
}
COORDINATES = {
    "row too large": (setting("row", 0, 2**30), "row indices must be from 0 to 39, got 1073741824"),
    "column off by one": (setting("col", 5, M), "column indices must be from 0 to 39, got 40"),
    "column negative": (setting("col", 5, -M), "column indices must be from 0 to 39, got -40"),
    "row short": (replacing("row", lambda x: x[:-1]), r"\d+ entries, but \d+ row indices"),
    "data short": (replacing("data", lambda x: x[:-1]), r"\d+ entries, but \d+ row indices"),
    "fractions": (replacing("coords", lambda x: (x[0], x[1] * 0.5)), "column indices must be inte"),
    "no columns": (replacing("coords", lambda x: x[:1]), "a damaged COO matrix: "),
}
DAMAGE = {
    "csr": COMPRESSED,
    "csc": COMPRESSED,
    "bsr": COMPRESSED
    | {
        "blocks of another shape": (
            replacing("data", lambda x: np.ones((len(x), 3, 3))),
            r"blocks of shape \(3, 3\) do not fit",
        ),
        "blocks flat": (replacing("data", np.ravel), "data must have 3 dimensions"),
    },
    "coo": COORDINATES,
    "dia": {
        "offsets short": (
            replacing("offsets", lambda x: x[:-1]),
            r"\d+ diagonals, but \d+ offsets",
        ),
        "offsets twice": (setting("offsets", 1, -M // 2 + 1), "its offsets must differ"),
        "offsets fractions": (replacing("offsets", lambda x: x * 1.0), "offsets must be integers"),
        "data flat": (replacing("data", np.ravel), "data must have 2 dimensions"),
    },
    "lil": {
        "index too large": (in_lists("rows", lambda x: x.append(x.pop() + M)), "from 0 to 39"),
        "index negative": (in_lists("rows", lambda x: x.append(x.pop() - M)), "from 0 to 39"),
        "more indices": (in_lists("rows", lambda x: x.append(3)), "of the same lengths"),
        "more entries": (in_lists("data", lambda x: x.append(3.0)), "of the same lengths"),
        "index text": (in_lists("rows", lambda x: x.append(f"{x.pop()}")), "must be integers"),
        "a list less": (replacing("rows", lambda x: x[:-1]), "it must have 40 lists, got 39"),
        "no list": (setting("rows", 0, None), "has no len"),
    },
    "dok": {
        "index too large": (as_key((0, M)), "column indices must be from 0 to 39, got 40"),
        "index negative": (as_key((-1, 0)), "row indices must be from 0 to 39, got -1"),
        "key of one": (as_key(7), "must be pairs of a row and a column"),
        "key of text": (as_key(("a", "b")), "row indices must be integers"),
    },
}
VALUES = {
    "negative": (-1.0, "must be finite and not negative, got -1.0 at row 0, column 1"),
    "not a number": (np.nan, "must be finite and not negative, got nan at row 0, column 1"),
    "infinite": (np.inf, "must be finite and not negative, got inf at row 0, column 1"),
}


@functools.cache
def fitted():
    model = SpecialK(affinity="precomputed", backend="numpy", n_clusters=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(BLOCK)


class Cells:
    """As much of an AnnData as is read before the graph."""

    def __init__(self, W):
        self.obsp = {"connectivities": W}


DOORS = {
    "affinity_matrix": affinity_matrix,
    "fit": lambda W: SpecialK(affinity="precomputed", backend="numpy").fit(W),
    "predict": lambda W: fitted().predict(W),
    "eigenpairs": lambda W: eigenpairs(W, 3),
    "cut_test": lambda W: cut_test(W, LABELS),
    "tl": lambda W: specialk(Cells(W), obsp="connectivities"),
}


def whole(format_, kind):
    W = sparse.csr_matrix(BLOCK) if kind == "matrix" else sparse.csr_array(BLOCK)
    return W.asformat(format_) if format_ != "bsr" else W.tobsr(blocksize=(2, 2))


def damaged(kind):
    """Return all damaged matrices with what must be said of them."""
    for format_, kinds in DAMAGE.items():
        for name, (damage, message) in kinds.items():
            W = whole(format_, kind)
            damage(W)
            yield f"{format_} {name}", W, message
    for format_ in DAMAGE:
        for name, (value, message) in VALUES.items():
            W = whole(format_, kind).tolil() if format_ in ("dia", "dok") else whole("lil", kind)
            W[0, 1] = W[1, 0] = value
            yield f"{format_} {name}", W.asformat(format_), message


def report():
    """Try all damaged matrices at all doors, and print what each led to, as it happens."""
    for (door, enter), kind in itertools.product(DOORS.items(), KINDS):
        for name, W, _ in damaged(kind):
            print(f"{door}|{kind}|{name}|", end="", flush=True)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    enter(W)
            except Exception as error:  # noqa: BLE001 - its kind is what is tested
                print(json.dumps([type(error).__name__, str(error)]), flush=True)
            else:
                print(json.dumps(["", "no error"]), flush=True)


def test_every_door_refuses_a_damaged_matrix_and_says_what_is_damaged():
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += "import test_intact; test_intact.report()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]} ended the process"
    found = dict(line.rsplit("|", 1) for line in done.stdout.splitlines())
    wrong = {}
    for door, kind in itertools.product(DOORS, KINDS):
        for name, _, message in damaged(kind):
            expected = message
            if door == "eigenpairs":  # its entries may be negative
                if name.endswith("negative"):
                    continue
                expected = "W must be finite" if "finite" in message else message
            told = json.loads(found[f"{door}|{kind}|{name}"])
            if told[0] != "ValueError" or not re.search(expected, told[1]):
                wrong[door, kind, name] = told
    assert not wrong


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format_", DAMAGE)
@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32, np.float64])
def test_a_whole_matrix_is_returned_as_csr_with_its_entries_and_dtype(format_, kind, dtype):
    W = whole(format_, kind).astype(dtype)
    found = intact_csr(W, "W")
    assert type(found) is sparse.csr_matrix
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.toarray(), BLOCK.astype(dtype))


def test_space_beyond_the_last_entry_is_no_damage():
    W = sparse.csr_matrix(BLOCK)
    indices, data = np.r_[W.indices, 10**6].astype(np.int32), np.r_[W.data, np.nan]
    W.indices, W.data = indices, data
    np.testing.assert_array_equal(affinity_matrix(W).toarray(), BLOCK)
    assert W.indices is indices  # the given matrix is as it was
    assert W.data is data


def test_flags_of_a_matrix_whose_parts_were_replaced_are_not_believed():
    W = sparse.csr_matrix(BLOCK)
    assert W.has_canonical_format
    W.indices = np.concatenate([row[::-1] for row in np.split(W.indices, W.indptr[1:-1])])
    W.data = W.data + 0.0
    assert affinity_matrix(W).has_canonical_format
    np.testing.assert_array_equal(affinity_matrix(W).toarray(), BLOCK)


def test_entries_that_are_no_real_numbers_are_refused():
    for given in (BLOCK * 1j, sparse.csr_matrix(BLOCK * 1j), BLOCK.astype(object)):
        with pytest.raises(ValueError, match="must hold real numbers, got dtype (complex|object)"):
            affinity_matrix(given)
    with pytest.raises(ValueError, match=r"must have two dimensions, got shape \(40,\)"):
        affinity_matrix(sparse.coo_array(np.ones(40)))


HURT = {
    "indices": (0, M, "indices must be from 0 to 39, got 40"),
    "indptr": (1, 10**6, "indptr must not decrease"),
}


@pytest.mark.parametrize("part", HURT)
def test_a_matrix_is_checked_where_it_is(bk, part):
    place, value, message = HURT[part]
    for format_ in ("csr_matrix", "csc_matrix"):
        W = getattr(bk.sparse, format_)(csr(bk, sparse.csr_matrix(BLOCK)))
        intact_csr(W, "W")
        content = bk.to_numpy(getattr(W, part)).copy()
        content[place] = value
        setattr(W, part, bk.asarray(content))
        with pytest.raises(ValueError, match=message):
            intact_csr(W, "W")


@pytest.mark.parametrize("part", ["row", "col"])
def test_coordinates_are_checked_where_they_are(bk, part):
    W = bk.sparse.coo_matrix(csr(bk, sparse.csr_matrix(BLOCK)))
    np.testing.assert_array_equal(bk.to_numpy(intact_csr(W, "W").toarray()), BLOCK)
    content = bk.to_numpy(getattr(W, part)).copy()
    content[3] = M
    setattr(W, part, bk.asarray(content))
    with pytest.raises(ValueError, match="indices must be from 0 to 39, got 40"):
        intact_csr(W, "W")


def test_sparse_features_are_refused_with_a_remedy():
    X = sparse.csr_matrix(BLOCK)
    for function in (knn_graph, lambda X: SpecialK(backend="numpy").fit(X)):
        with pytest.raises(TypeError, match=r"X.toarray\(\), or reduce it first.*TruncatedSVD"):
            function(X)
