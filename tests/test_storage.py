"""Fitted models in files: what comes back is what was written, without pickle."""

import io
import json
import pickle
import re
import tracemalloc
import warnings
import zipfile
from collections import Counter
from functools import cache

import damaged_models
import joblib
import numpy as np
import pandas as pd
import pytest
from fits import fit
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu._schema import (
    _check_schema_labels,
    _check_schema_path,
    _check_schema_tree,
    _check_schema_values,
    _is_schema_name,
    check_schema,
)
from specialk_gpu._storage import FORMAT, LONGEST, PARTS, _stored_text_in_one_line
from specialk_gpu.tables.choice import Choice
from specialk_gpu.tables.frames import table_of_rows
from specialk_gpu.tables.preparation import Preparation
from specialk_gpu.tables.table import no_text

BLOBS, _ = make_blobs(200, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)


@cache
def blobs():
    return fit(BLOBS)


def fitted(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def check_equal(one, other):
    assert one.get_params() == other.get_params()
    assert fitted(one).keys() == fitted(other).keys()
    for name, value in fitted(one).items():
        again = fitted(other)[name]
        assert type(again) is type(value), name
        if sparse.issparse(value):
            assert again.dtype == value.dtype
            assert abs(again - value).nnz == 0
        elif name == "path_":
            assert str(again) == str(value)
            assert again.criterion == value.criterion
            for a, b in zip(again, value, strict=True):
                assert a._replace(labels=None) == b._replace(labels=None)
                np.testing.assert_array_equal(a.labels, b.labels)
                assert a.labels.dtype == b.labels.dtype
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(again, value)
            assert again.dtype == value.dtype
        else:
            assert again == value, name


@pytest.mark.parametrize(
    ("X", "settings"),
    [
        (BLOBS, {"full_path": True, "max_clusters": 6}),
        (BLOBS, {"criterion": "zz_top", "full_path": True, "max_clusters": 4}),
        (BLOBS.astype(np.float32), {"random_state": None, "metric": "cosine"}),
        (np.repeat(BLOBS, 12, axis=0), {}),
        (pd.DataFrame(BLOBS, columns=["a", "b", "c"]), {"affinity": "radius_neighbors"}),
        (knn_graph(BLOBS), {"affinity": "precomputed"}),
        (np.ones((30, 2)), {}),
    ],
)
def test_a_model_comes_back_as_it_was(tmp_path, X, settings):
    model = fit(X, **settings)
    model.save(tmp_path / "model.npz")
    again = SpecialK.load(tmp_path / "model.npz")
    check_equal(model, again)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    for step in model.path_:
        np.testing.assert_array_equal(again.labels_at(step.k), model.labels_at(step.k))
    if model.path_.criterion == "cut":
        for field, value in model.tree_._asdict().items():
            np.testing.assert_array_equal(getattr(again.tree_, field), value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_parameters_set_with_numpy_come_back_as_numbers(tmp_path):
    model = fit(BLOBS, alpha=np.float64(0.02), n_neighbors=np.int64(8))
    model.save(tmp_path / "m.npz")
    again = SpecialK.load(tmp_path / "m.npz")
    assert (again.alpha, again.n_neighbors) == (0.02, 8)


def test_the_file_needs_no_pickle(tmp_path):
    blobs().save(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)
        content = json.loads(str(file["content"]))
    assert content["format"] == FORMAT
    assert content["class"] == "SpecialK"


def test_what_cannot_be_saved_is_said_before_a_file_is_touched(tmp_path):
    path = tmp_path / "m.npz"
    with pytest.raises(NotFittedError):
        SpecialK().save(path)
    model = fit(BLOBS, random_state=np.random.RandomState(0))
    with pytest.raises(TypeError, match=r"random_state must be .* got RandomState"):
        model.save(path)
    assert not path.exists()


def test_a_failed_write_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "m.npz"
    model = blobs()
    model.save(path)
    before = path.read_bytes()

    def fail(stream, **_arrays):
        stream.write(b"some")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["m.npz"]


def test_places_that_are_no_file_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere" / "m.npz"):
        with pytest.raises(OSError, match="must name a file in a folder that exists"):
            blobs().save(path)


def test_every_damage_is_a_value_error(tmp_path):
    path = tmp_path / "m.npz"
    fit(BLOBS[:20]).save(path)
    content = path.read_bytes()
    rng, refusals = np.random.default_rng(0), []
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=8):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            SpecialK.load(path)
        except ValueError as error:  # nothing else
            refusals.append(str(error))
    assert len(refusals) > 250
    assert all(str(path) in message for message in refusals)


# -- files that lie -------------------------------------------------------------------------------


def test_a_damaged_model_is_refused_or_is_what_its_file_says(tmp_path):
    models = damaged_models.fitted()
    found = Counter(damaged_models.attempt(models, tmp_path, seed) for seed in range(200))
    assert found.keys() == {"refused", "works"}
    assert found["refused"] > 150


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the arrays and the JSON text of a saved model."""
    path = tmp_path_factory.mktemp("saved") / "m.npz"
    fit(pd.DataFrame(BLOBS, columns=["a", "b", "c"]), max_clusters=4).save(path)
    return damaged_models.parts_of(path)


def refusal(tmp_path, arrays, content):
    """Return why a file is refused, after the words that name the file."""
    path = tmp_path / "m.npz"
    path.write_bytes(damaged_models.written(arrays, content))
    start = f"{path} is not a model that was saved, or is damaged: "
    with pytest.raises(ValueError, match=re.escape(start)) as error:
        SpecialK.load(path)
    assert str(error.value).startswith(start)
    return str(error.value).removeprefix(start)


def test_what_the_damage_starts_from_is_a_model(tmp_path, saved):
    (tmp_path / "m.npz").write_bytes(damaged_models.written(*saved))
    assert SpecialK.load(tmp_path / "m.npz").n_clusters_ == 3


EVIL = "<script>\x1b[2J</script>"
STEP = {"k": 2, "pair": [0, 1], "accepted": True, "reason": "because"}


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("parameters", [], "its parameters must be an object"),
        ("parameters.beta", 3, "parameters must be those of SpecialK, got more or fewer: beta"),
        ("parameters.\x1b[2J\n", 3, r"got more or fewer: \\x1b\[2J\\x0a$"),
        ("parameters.alpha", [0.05], r"The 'alpha' parameter .* Got \[0.05\] instead"),
        ("parameters.alpha", 7, "The 'alpha' parameter of SpecialK must be"),
        ("parameters.criterion", EVIL, r"'criterion' parameter .* Got '<script>\\x1b"),
        ("parameters.n_neighbors", 10.5, "The 'n_neighbors' parameter of SpecialK must be an int"),
        ("state", [], "its state must be an object"),
        ("state.predict", {"value": 1}, "it holds 'predict', which no model has"),
        ("state.note_", {"value": 1}, "it holds 'note_', which no model has"),
        ("state.labels_", {"value": 1}, "it holds 'labels_', which no model has"),
        ("state.backend_", {"value": EVIL}, r"backend_ must be .* got '<script>\\x1b"),
        ("state.backend_", "numpy", "backend_ must be an object, got str"),
        ("state.eigen_solver_", {"value": EVIL}, "eigen_solver_ must be a solver, got"),
        ("state.n_clusters_", {"value": 10**9}, "n_clusters_ must be 3 by the arrays, got 10000"),
        ("state.n_clusters_", {"value": 3.0}, "n_clusters_ must be a positive integer, got 3.0"),
        ("state.n_clusters_", {"value": True}, "n_clusters_ must be a positive integer, got True"),
        ("state.n_features_in_", {"value": 4}, "n_features_in_ must be 3 by the arrays, got 4"),
        ("state.n_graph_components_", {"value": 10**400}, "must be at most 200 rows, got 1000"),
        ("state.radius_", {"value": "wide"}, "radius_ must be null or a number, got 'wide'"),
        ("state.timings_", {"value": {EVIL: 1.0}}, "timings_ must be an object of names and sec"),
        ("state.timings_", {"value": {"graph": 10**400}}, "timings_ must be an object of names"),
        ("state.limit_reached_", {"value": 1}, "limit_reached_ must be true or false, got 1"),
        (
            "state._settings",
            {"value": {"criterion": "cut"}},
            "_settings must be those of SpecialK, got more or fewer",
        ),
        ("state._settings.value.alpha", None, "_settings must have a number for alpha"),
        ("state._settings.value.metric", "l1", "The 'metric' parameter of SpecialK must be a str"),
        ("state._settings.value.affinity", "precomputed", "it has _fit_X"),
        ("state._settings.value.criterion", "zz_top", "path_.criterion must be that of the fit"),
        ("state._fit_X", {"value": None}, "_fit_X must be an array or null, not both"),
        ("state._distinct", {"value": 3}, "_distinct must be an array"),
        ("state._tree", {"value": None}, "_tree.leaf must be an array or null, not both"),
        ("state.affinity_matrix_", {"shape": [10**9, 10**9]}, r"must have shape \[200, 200\]"),
        ("state.path_.criterion", EVIL, "path_.criterion must be 'cut' or 'zz_top'"),
        ("state.path_.steps", [], "path_ must have a list of steps"),
        ("state.path_.steps", [STEP], "path_ must have 4 steps, got 1"),
        ("state.path_.steps", [STEP | {"note": 1}], "a step must have"),
        ("state.path_.steps", [STEP, STEP], "k must rise by one along the path, got 2 in row 1"),
        ("state.path_.steps", [STEP | {"k": "2"}], "k must be a positive integer on the path, got"),
        ("state.path_.steps", [STEP | {"pair": [EVIL, 1]}], "a pair must be two of 2 labels, got"),
        ("state.path_.steps", [STEP | {"pair": [0, 2]}], r"two of 2 labels, got \[0, 2\]"),
        ("state.path_.steps", [STEP | {"reason": EVIL}], "a reason on the path must be plain text"),
        ("state.path_.steps", [STEP | {"reason": 3}], "a reason on the path must be plain text"),
        ("state.path_.steps", [STEP | {"accepted": "yes"}], "accepted must be true or false"),
        (
            "state.path_.steps",
            [STEP | {"k": k} for k in range(10**9, 10**9 + 4)],
            "k on the path must be at most 200 rows, got 1000000003",
        ),
        ("more", 1, "content must be an object of class, format"),
    ],
)
def test_a_wrong_value_is_refused_and_named(tmp_path, saved, place, value, message):
    arrays, content = saved
    content = json.loads(json.dumps(content))
    *way, last = place.split(".")
    node = content
    for name in way:
        node = node[name]
    node[last] = value
    found = refusal(tmp_path, arrays, content)
    assert re.search(message, found)
    assert found.isprintable()


def setting(place, value):
    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("labels_", setting(7, 3), "labels_ must be below k = 3, got 3"),
        ("labels_", setting(7, -2), "labels_ must not go beyond -1, got -2"),
        ("labels_", setting(7, -1), "labels_ must not be negative without noise"),
        ("_spacing", setting(7, -1), "_spacing must not go beyond 0, got -1"),
        ("_spacing", None, "it lacks _spacing"),
        ("labels_", lambda x: x.astype(np.int64), "labels_ must be of i4, got '<i8'"),
        ("labels_", lambda x: x[:0], r"labels_ has shape \(0,\), but m = 0 elsewhere"),
        ("labels_", lambda x: x[:-1], r"membership_ has shape \(200, 3\), but m = 199 elsewhere"),
        ("membership_", setting((0, 0), np.nan), r"membership_ must be finite, got \[nan\]"),
        ("embedding_", lambda x: x.T, "but m = 200 elsewhere"),
        ("embedding_", setting((0, 0), np.inf), r"embedding_ must be finite, got \[inf\]"),
        ("eigenvalues_", lambda x: x[None], r"eigenvalues_ must have shape \(n\), got \(1, "),
        ("residuals_", lambda x: x[1:], r"residuals_ has shape \(\d+,\), but n = \d+ elsewhere"),
        ("_fit_X", setting((3, 1), np.nan), r"_fit_X must be finite, got \[nan\]"),
        ("_fit_X", lambda x: x[:, :2], "but d = 2 elsewhere"),
        ("_fit_X", None, "it does not hold|it lacks _fit_X"),
        ("_fit_labels", setting(0, 99), "_fit_labels must be below k = 3, got 99"),
        ("affinity_matrix_.indices", setting(5, 200), "must be below u = 200, got 200"),
        ("affinity_matrix_.indices", setting(5, -1), "must not go beyond 0, got -1"),
        ("affinity_matrix_.indptr", setting(5, 10**6), "affinity_matrix_ is a damaged CSR matrix"),
        ("affinity_matrix_.data", setting(5, np.nan), r"data must be finite, got \[nan\]"),
        ("affinity_matrix_.data", lambda x: x[1:], r"data has shape .* but e = \d+ elsewhere"),
        ("path_.labels", setting((1, 0), 2), "path_.labels must be below k = 2, got 2"),
        ("path_.log_p", setting(1, np.nan), r"path_.log_p must be finite, got \[nan\]"),
        ("path_.log_p", setting(1, 1e300), r"path_.log_p must not go beyond 0, got 1e\+300"),
        ("_tree.leaf", setting(0, 200), r"_tree.leaf must be below K = \d+, got 200"),
        ("_tree.children", setting((0, 0), 10**6), "_tree.children must be leaves, or unions made"),
        ("_tree.children", lambda x: x[:, ::-1] * 0, "_tree.children must have each node once"),
        ("_tree.sizes", setting(0, 500), "_tree.sizes must add up to 200, got"),
        (
            "_tree.sizes",
            lambda x: np.r_[0, x[0] + x[1], x[2:]],
            "sizes must not go beyond 1, got 0",
        ),
        ("_tree.first", setting(0, 200), "_tree.first must be below m = 200, got 200"),
        ("feature_names_in_", lambda _: np.array(["a", "b"]), "but d = 3 elsewhere"),
        ("feature_names_in_", setting(1, "\x1b"), "feature_names_in_ must have no control chara"),
        ("_distinct", lambda _: np.arange(200), "_distinct must be an array or null, not both"),
        ("predict", lambda _: np.arange(200), "it holds 'predict', which no model has"),
        ("path_.note", lambda _: np.arange(4), "it holds 'path_.note', which no model has"),
        ("residuals_", None, "it does not hold residuals_"),
    ],
)
def test_a_wrong_array_is_refused_and_named(tmp_path, saved, name, change, message):
    arrays, content = saved
    arrays = dict(arrays)
    given = arrays.pop(name, None)
    if change is not None:
        arrays[name] = change(given)
    found = refusal(tmp_path, arrays, content)
    assert re.search(message, found)
    assert found.isprintable()


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("labels_", [0, 2], [-1, 3]),
        ("membership_", [0.0], [-1e-300, np.nan, np.inf]),
        ("residuals_", [0.0], [-1e-300, np.nan]),
        ("affinity_matrix_.data", [0.0], [-1e-300, np.inf]),
        ("path_.labels", [0], [-1]),
        ("path_.log_p", [0.0, -np.inf], [1e-300, np.nan, np.inf]),
        ("path_.log_p_level", [0.0, -np.inf, np.nan], [1e-300, np.inf]),
        ("path_.log_zz_top", [0.0, -np.inf, np.nan], [1e-300, np.inf]),
        ("path_.inertia", [0.0, np.nan], [-1e-300, -np.inf, np.inf]),
        ("_fit_labels", [0, 2], [-1, 3]),
        ("_tree.leaf", [0], [-1]),
        ("_tree.log_p", [0.0, -np.inf], [1e-300, np.nan]),
        ("_tree.ratio", [0.0], [-1e-300, np.inf]),
        ("_tree.first", [0, 199], [-1, 200]),
    ],
)
def test_values_are_taken_up_to_their_bounds(saved, name, taken, refused):
    arrays, content = saved
    for value in taken:
        check_schema(
            arrays | {name: setting((0,) * arrays[name].ndim, value)(arrays[name])}, content
        )
    for value in refused:
        array = setting((0,) * arrays[name].ndim, value)(arrays[name])
        with pytest.raises(ValueError, match=f"^{name} must"):
            check_schema(arrays | {name: array}, content)


@pytest.mark.parametrize(
    ("name", "size", "least", "most"),
    [
        ("affinity_matrix_.indptr", "e", 0, None),
        ("affinity_matrix_.indices", "u", 0, 8),
        ("path_.labels", "m", 0, None),
        ("_fit_labels", "k", 0, 8),
        ("_distinct", "m", 0, 8),
        ("_tree.leaf", "K", 0, 8),
        ("_tree.children", "K", 0, None),
        ("_tree.sizes", "m", 1, None),
        ("_tree.first", "m", 0, 8),
        ("labels_", "k", -1, 8),
    ],
)
def test_whole_numbers_are_taken_up_to_their_bounds(name, size, least, most):
    for value in (least, 8):
        _check_schema_values(name, np.array([value, 3]), {size: 9})
    for value in (least - 1, *((9,) if most else ())):
        with pytest.raises(ValueError, match=f"^{name} must"):
            _check_schema_values(name, np.array([value, 3]), {size: 9})


def test_distances_to_neighbours_are_not_negative():
    _check_schema_values("_spacing", np.array([0.0, 1e300]), {})
    for wrong in (-1e-300, np.nan, np.inf):
        with pytest.raises(ValueError, match="^_spacing must"):
            _check_schema_values("_spacing", np.array([1.0, wrong]), {})


def test_a_path_may_end_with_each_row_alone():
    labels = np.arange(3)[None]
    _check_schema_labels([{"k": 3}], labels)
    with pytest.raises(ValueError, match="k on the path must be at most 3 rows, got 4"):
        _check_schema_labels([{"k": 4}], labels)
    with pytest.raises(ValueError, match="must be below k = 2, got 2"):
        _check_schema_labels([{"k": 2}], labels)
    with pytest.raises(ValueError, match="path_ must have 1 steps, got 2"):
        _check_schema_labels([{"k": 2}, {"k": 3}], labels)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Return the arrays and the JSON text of models with each kind of content, by name."""
    path, found = tmp_path_factory.mktemp("kinds") / "m.npz", {}
    for name, (_, model) in damaged_models.fitted().items():
        model.save(path)
        found[name] = damaged_models.parts_of(path)
    return found


def with_state(content, **changes):
    """Return the JSON text with some of its state changed, or left out where None is given."""
    state = {name: told for name, told in (content["state"] | changes).items() if told is not None}
    return content | {"state": state}


def test_models_of_each_kind_fit_the_schema(kinds):
    for arrays, content in kinds.values():
        check_schema(arrays, content)


NUMBERS = [0, 1, 0.5, 1e300]
NO_NUMBERS = [-1, -1e-300, 1.1e300, 10**400, float("nan"), True, "1", [1]]
NO_COUNTS = [0, -1, 1.0, True, None, "1", 61]


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("n_clusters_", [3], NO_COUNTS),
        ("n_features_in_", [3], NO_COUNTS),
        ("n_graph_components_", [1, 2, 60], NO_COUNTS),
        ("limit_reached_", [True, False], [0, 1, None, "true"]),
        ("radius_", [None, *NUMBERS], NO_NUMBERS),
        ("eigen_solver_", ["dense", "lanczos", "chebyshev"], ["auto", "", None, ["dense"]]),
        ("backend_", ["numpy", "cuda"], ["auto", "", None]),
        ("timings_", [{}, *({"graph": x, "y" * 1000: 0} for x in NUMBERS)], [[], None, "graph"]),
        ("timings_", [], [{"graph": x, "kmeans": 1} for x in [*NO_NUMBERS, None]]),
        ("timings_", [], [{"graph": 1, name: 1} for name in ("a\n", "y" * 1001)]),
        ("_settings", [], [[], None, "cut"]),
    ],
)
def test_a_value_is_one_of_those_that_its_name_allows(kinds, name, taken, refused):
    arrays, content = kinds["cut"]
    for value in taken:
        check_schema(arrays, with_state(content, **{name: {"value": value}}))
    for value in refused:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            check_schema(arrays, with_state(content, **{name: {"value": value}}))
    told = content["state"][name]
    for wrong in ({}, told | {"more": 1}, {"more": 1}):
        with pytest.raises(ValueError, match=f"^{name} must have a value"):
            check_schema(arrays, with_state(content, **{name: wrong}))
    with pytest.raises(ValueError, match=f"^it does not hold {name}$"):
        check_schema(arrays, with_state(content, **{name: None}))


def check_steps(*steps, criterion="cut", **more):
    path = {"steps": [STEP | step for step in steps], "criterion": criterion} | more
    _check_schema_path(path, "cut")


def test_steps_of_a_path_are_of_the_right_types_and_rise():
    for pair in (None, [0, 1], [1, 2], [0, 2]):
        check_steps({"k": 3, "pair": pair})
    for pair in ([1, 0], [1, 1], [0, 3], [-1, 1], [0], [0, 1, 2], [0, 1.0], [True, 2], {}, "01", 0):
        with pytest.raises(ValueError, match="a pair must be two of 3 labels, got"):
            check_steps({"k": 3, "pair": pair})
    check_steps({"k": 1, "pair": None})
    for k in (0, -1, 1.0, True, "1", None):
        with pytest.raises(ValueError, match="k must be a positive integer on the path, got"):
            check_steps({"k": k, "pair": None})
    check_steps({"k": 3}, {"k": 4}, {"k": 5})
    for ks in ((3, 5), (3, 3), (3, 2), (3, 4, 4)):
        with pytest.raises(ValueError, match="k must rise by one along the path"):
            check_steps(*({"k": k} for k in ks))
    for reason in ("", "x" * 1000):
        check_steps({"reason": reason})
    for reason in ("x" * 1001, "a\nb", "\x1b", None, 3):
        with pytest.raises(ValueError, match="a reason on the path must be plain text"):
            check_steps({"reason": reason})
    for accepted in (0, 1, None, "no"):
        with pytest.raises(ValueError, match="accepted must be true or false on the path"):
            check_steps({"accepted": accepted})


def test_a_path_has_steps_and_the_criterion_of_the_fit():
    with pytest.raises(ValueError, match=r"path_\.criterion must be that of the fit"):
        check_steps({}, criterion="zz_top")
    with pytest.raises(ValueError, match="a step must have"):
        check_steps({"more": 1})
    with pytest.raises(ValueError, match="path_ must have steps and a criterion"):
        check_steps({}, more=1)
    with pytest.raises(ValueError, match="path_ must have a list of steps"):
        _check_schema_path({"steps": {}, "criterion": "cut"}, "cut")
    for step in ([], {name: STEP[name] for name in STEP if name != "pair"}):
        with pytest.raises(ValueError, match="a step must have"):
            _check_schema_path({"steps": [step], "criterion": "cut"}, "cut")


EITHER = {"_fit_X": "f4 f8"} | {f"affinity_matrix_.{name}": "i4 i8" for name in PARTS[1:]}


@pytest.mark.parametrize("kind", ["cut", "zz_top", "duplicates", "graph"])
def test_every_array_is_needed_with_its_type_and_its_shape(kinds, kind):
    arrays, content = kinds[kind]
    for name, array in arrays.items():
        rest = {other: own for other, own in arrays.items() if other != name}
        if name != "feature_names_in_":
            with pytest.raises(ValueError, match=f"^it (does not hold|lacks) {name}$"):
                check_schema(rest, content)
        for changed in (array[None], array[..., None]):
            with pytest.raises(ValueError, match=f"^{name} must have shape "):
                check_schema(arrays | {name: changed}, content)
        for axis in range(array.ndim):
            shorter = np.delete(array, 0, axis)
            if (name, axis) == ("embedding_", 1):  # nothing else has its columns
                check_schema(arrays | {name: shorter}, content)
                shorter = array[:, :0]
            with pytest.raises(ValueError, match="elsewhere|columns|by the arrays|below k|damaged"):
                check_schema(arrays | {name: shorter}, content)
        own = EITHER.get(name, array.dtype.str[1:]).split()
        for dtype in ("f2", "f4", "f8", "i2", "i4", "i8", "u4", "u8", "?", "c16", "U1", "S1"):
            if dtype in own and array.dtype.kind != "U":
                check_schema(arrays | {name: array.astype(dtype)}, content)
            elif dtype[0] != "U" and array.dtype.kind != "U":
                with pytest.raises(ValueError, match=f"^{name} must be of "):
                    check_schema(arrays | {name: np.zeros(array.shape, dtype)}, content)


def test_what_the_settings_ask_for_is_there_and_nothing_else(kinds):
    no_tree = {"_tree": {"value": None}}
    tree = {name: x for name, x in kinds["cut"][0].items() if name.startswith("_tree.")}
    null, fit_X = {"value": None}, np.zeros((60, 3))

    def refused(kind, message, state, more=(), without=()):
        arrays, content = kinds[kind]
        arrays = {n: x for n, x in (arrays | dict(more)).items() if not n.startswith(without)}
        with pytest.raises(ValueError, match=message):
            check_schema(arrays, with_state(content, **state))

    refused("cut", "^it lacks _tree.leaf$", no_tree, without=("_tree.",))
    refused("zz_top", "^it has _tree.leaf$", {"_tree": {"tree": True}}, tree)
    refused("cut", "^_tree.leaf must be an array or null, not both", no_tree)
    refused("zz_top", "^_tree.leaf must be an array or null", {"_tree": {"tree": True}})
    for wrong in ({"tree": False}, {"value": 0}, {}):
        refused("cut", "^_tree must be a tree or null", {"_tree": wrong})
    refused("cut", "^it lacks _fit_X$", {"_fit_X": null}, without=("_fit_X", "feature_names"))
    refused("cut", "^it lacks _spacing$", {"_spacing": null}, without=("_spacing",))
    refused("graph", "^it has _fit_X$", {"_fit_X": None}, {"_fit_X": fit_X})
    refused("graph", "^it has _spacing$", {"_spacing": None}, {"_spacing": fit_X[:, 0]})
    refused("duplicates", "^it lacks _distinct$", {"_distinct": null}, without=("_distinct",))
    for name in ("_fit_X", "_spacing", "_distinct"):
        refused("graph", f"^{name} must be an array or null, not both", {name: None})
        refused("graph", f"^{name} must be an array$", {name: {"value": 0}})
    names = np.array(["a", "b", "c"])
    refused("graph", "^feature_names_in_ must name each column", {}, {"feature_names_in_": names})
    check_schema(
        kinds["cut"][0] | {"_distinct": np.arange(60)},
        with_state(kinds["cut"][1], _distinct=None),
    )


def test_labels_below_zero_are_those_of_noise(kinds):
    arrays, content = kinds["cut"]
    arrays = arrays | {"labels_": setting(7, -1)(arrays["labels_"])}
    settings = content["state"]["_settings"]["value"]
    for noise, fits in ((0.05, True), (True, True), (None, False), (False, False)):
        changed = with_state(content, _settings={"value": settings | {"noise": noise}})
        if fits:
            check_schema(arrays, changed)
            continue
        with pytest.raises(ValueError, match="labels_ must not be negative without noise"):
            check_schema(arrays, changed)


def test_a_preparation_gives_the_columns_of_the_fit(kinds):
    arrays, content = kinds["prepared"]
    two = table_of_rows(pd.DataFrame(BLOBS[:, :2], columns=["a", "b"]), no_text)
    fewer = Preparation.fit(two, Choice())[0].to_json()
    with pytest.raises(ValueError, match="^preparation_ gives 2 columns, the fit has 3"):
        check_schema(arrays, with_state(content, preparation_={"value": fewer}))
    for wrong in ([], None, "none"):
        with pytest.raises(ValueError, match="^preparation_ must be an object"):
            check_schema(arrays, with_state(content, preparation_={"value": wrong}))


def test_the_rule_of_the_paper_has_an_inertia_for_every_k(kinds):
    arrays, content = kinds["zz_top"]
    inertia = setting(1, np.nan)(arrays["path_.inertia"])
    with pytest.raises(ValueError, match=r"^path_\.inertia must be numbers"):
        check_schema(arrays | {"path_.inertia": inertia}, content)


def test_a_union_is_made_of_leaves_and_of_unions_before_it():
    sizes = {"K": 3, "m": 6}
    arrays = {"_tree.sizes": np.array([1, 2, 3])}
    for children in ([[0, 1], [2, 3]], [[1, 2], [3, 0]], [[2, 0], [1, 3]]):
        _check_schema_tree(arrays | {"_tree.children": np.array(children)}, sizes)
    for children in ([[0, 3], [2, 1]], [[0, 1], [2, 4]]):
        with pytest.raises(ValueError, match=r"^_tree\.children must be leaves, or unions made"):
            _check_schema_tree(arrays | {"_tree.children": np.array(children)}, sizes)
    for children in ([[0, 1], [2, 0]], [[0, 0], [2, 3]]):
        with pytest.raises(ValueError, match=r"^_tree\.children must have each node once"):
            _check_schema_tree(arrays | {"_tree.children": np.array(children)}, sizes)
    with pytest.raises(ValueError, match=r"^_tree\.sizes must add up to 7, got 6"):
        _check_schema_tree(
            arrays | {"_tree.children": np.array([[0, 1], [2, 3]])}, sizes | {"m": 7}
        )


def test_names_of_columns_may_have_tabs_and_line_breaks_alone():
    for name in ("", "a\tb\r\n", "\u00a0", "\u200b"):
        assert _is_schema_name(name)
    for name in ("\x00", "a\x1b", "\x7f", "\x85", "\ud800", "a\vb"):
        assert not _is_schema_name(name)


def test_leaves_have_one_row_or_more(saved):
    arrays, content = saved
    sizes = arrays["_tree.sizes"]
    for least in (1, 0):
        changed = np.r_[least, sizes[1] + sizes[0] - least, sizes[2:]]
        if least:
            check_schema(arrays | {"_tree.sizes": changed}, content)
            continue
        with pytest.raises(ValueError, match=r"^_tree\.sizes must not go beyond 1, got 0"):
            check_schema(arrays | {"_tree.sizes": changed}, content)


def test_a_graph_may_have_no_entries(saved):
    arrays, content = saved
    empty = {f"affinity_matrix_.{part}": arrays[f"affinity_matrix_.{part}"][:0] for part in PARTS}
    empty["affinity_matrix_.indptr"] = 0 * arrays["affinity_matrix_.indptr"]
    check_schema(arrays | empty, content)


def test_text_that_is_no_json_is_refused(tmp_path, saved):
    for text in ("", "[]", "{", '{"format": NaN}', "[" * 10**5, '{"format": 3}'):
        path = tmp_path / "m.npz"
        np.savez(path, **saved[0], content=np.array(text))
        with pytest.raises(ValueError, match="is not a model that was saved, or is damaged"):
            SpecialK.load(path)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_no_json_are_refused(tmp_path, saved, number):
    arrays, content = saved
    state = content["state"] | {"radius_": {"value": number}}  # null would do
    assert "content must be JSON, got" in refusal(tmp_path, arrays, content | {"state": state})


def test_a_long_message_is_cut():
    assert _stored_text_in_one_line("x" * LONGEST) == "x" * LONGEST
    assert _stored_text_in_one_line("x" * (LONGEST + 1)) == "x" * LONGEST + "..."


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def with_member(path, arrays, name, content, compression=zipfile.ZIP_STORED):
    """Write a file of arrays in which one of them is given by its bytes."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for other, array in arrays.items():
            archive.writestr(f"{other}.npy", content if other == name else npy(array))


def test_a_file_takes_no_more_memory_than_it_is_large(tmp_path, saved):
    path = tmp_path / "m.npz"
    arrays = {**saved[0], "content": np.array(json.dumps(saved[1]))}
    zeros = npy(np.zeros((200, 10**5)))  # 160 MB
    written = {
        "must not be larger than the file": (zeros, zipfile.ZIP_DEFLATED),
        "embedding_ promises 80000000000120 bytes": (shape_of("(9999999999999,)"), 0),
        "no negative shape": (shape_of("(-1, -8)"), 0),
    }
    for message, (content, compression) in written.items():
        with_member(path, arrays, "embedding_", content, compression)
        assert path.stat().st_size < 5e6
        tracemalloc.start()
        with pytest.raises(ValueError, match=message):
            SpecialK.load(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2e7


def test_a_directory_that_promises_more_than_the_file_has_is_refused(tmp_path, saved):
    path = tmp_path / "m.npz"
    content = shape_of("(1000000000000,)")
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in {**saved[0], "content": np.array(json.dumps(saved[1]))}.items():
            archive.writestr(f"{name}.npy", content if name == "embedding_" else npy(array))
        (one,) = (one for one in archive.filelist if one.filename == "embedding_.npy")
        one.file_size = one.compress_size = len(content) + 8 * 10**12
    size = path.stat().st_size
    with pytest.raises(
        ValueError, match=rf"must not be larger than the file \({size} bytes\), got 80000"
    ):
        SpecialK.load(path)


def test_a_file_holds_up_to_a_hundred_arrays(tmp_path, saved):
    path, (arrays, content) = tmp_path / "m.npz", saved
    for count, message in ((99, "which no model has"), (100, "it must hold up to 100 arrays")):
        more = {f"x{i}": np.zeros(1) for i in range(count - len(arrays))}
        path.write_bytes(damaged_models.written(arrays | more, content))  # and the JSON text
        with pytest.raises(ValueError, match=message):
            SpecialK.load(path)


def shape_of(shape, descr="'<f8'"):
    """Return the bytes of an array without content whose header says that it has a shape."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(np.array([1, "a"], dtype=object)), "must have no objects"),
        (shape_of("(0L,)"), "additional header parsing"),  # a warning of NumPy
        (shape_of("(" * 9000), "is not a model"),
        (shape_of("()", "[('a', '<f8')]"), "promises 136 bytes, but there are 128"),
        (shape_of("(0,)", "[('a', '<f8')]"), r"residuals_ must be of f8, got '\|V8'"),
        (npy(np.zeros(50)) + b"more", "promises 528 bytes, but there are 532"),
        (b"", "is not a model"),
        (b"\x93NUMPY\x03\x00", "the header of residuals_ cannot be read"),
    ],
)
def test_an_array_that_is_not_what_its_header_says_is_refused(tmp_path, saved, content, message):
    path = tmp_path / "m.npz"
    arrays = {**saved[0], "content": np.array(json.dumps(saved[1]))}
    with_member(path, arrays, "residuals_", content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever the caller does with warnings
        with pytest.raises(ValueError, match=message):
            SpecialK.load(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused(tmp_path, saved):
    path = tmp_path / "m.npz"
    path.write_bytes(damaged_models.written(*saved))
    for name in ("labels_.npy", "labels_"):
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, npy(saved[0]["labels_"]))
        with pytest.raises(ValueError, match="arrays of different names"):
            SpecialK.load(path)


def test_arrays_of_the_other_byte_order_are_taken(tmp_path, saved):
    arrays, content = saved
    swapped = {name: array.astype(array.dtype.newbyteorder()) for name, array in arrays.items()}
    path = tmp_path / "m.npz"
    path.write_bytes(damaged_models.written(swapped, content))
    model = SpecialK.load(path)
    assert model.labels_.dtype.isnative
    np.testing.assert_array_equal(model.labels_, arrays["labels_"])
    np.testing.assert_array_equal(model.embedding_, arrays["embedding_"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: setattr(model, "n_clusters_", 10**9), "n_clusters_ must be 3 by the arrays"),
        (lambda model: setattr(model, "note_", "mine"), "it holds 'note_', which no model has"),
        (lambda model: setattr(model, "labels_", model.labels_[1:]), "but m = 199 elsewhere"),
        (lambda model: model.set_params(alpha=7), "The 'alpha' parameter of SpecialK must be"),
        (
            lambda model: setattr(model, "feature_names_in_", np.array(["a", "\x1b", "c"])),
            "feature_names_in_ must have no control characters",
        ),
    ],
)
def test_what_load_would_refuse_is_not_saved(tmp_path, change, message):
    model = fit(BLOBS)
    change(model)
    with pytest.raises(ValueError, match=f"the model cannot be saved: .*{message}"):
        model.save(tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_names_of_columns_come_back_as_they_were(tmp_path):
    names = ["height\n(cm)", "Größe\u00a0\u3000\t2", "<b>&"]
    fit(pd.DataFrame(BLOBS, columns=names)).save(tmp_path / "m.npz")
    assert SpecialK.load(tmp_path / "m.npz").feature_names_in_.tolist() == names


def test_files_that_hold_no_model_are_refused(tmp_path):
    path = tmp_path / "m.npz"
    with pytest.raises(FileNotFoundError):
        SpecialK.load(path)
    path.write_text("k = 3")
    with pytest.raises(ValueError, match=r"m.npz is not a model .* it is not an \.npz file$"):
        SpecialK.load(path)
    np.savez(path, X=BLOBS)
    with pytest.raises(ValueError, match="m.npz is not a model .* it does not hold content"):
        SpecialK.load(path)
    np.save(tmp_path / "m.npy", BLOBS)
    with pytest.raises(ValueError, match="m.npy is not a model that was saved, or is damaged"):
        SpecialK.load(tmp_path / "m.npy")
    blobs().save(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match="m.npz is not a model that was saved, or is damaged"):
        SpecialK.load(path)


@pytest.mark.parametrize(("key", "value"), [("format", FORMAT + 1), ("class", "Other")])
def test_other_formats_and_classes_are_named(tmp_path, key, value):
    path = tmp_path / "m.npz"
    blobs().save(path)
    with np.load(path) as file:
        arrays = dict(file)
    content = json.loads(str(arrays["content"])) | {key: value, "version": "9.1"}
    np.savez(path, **arrays | {"content": np.array(json.dumps(content))})
    with pytest.raises(ValueError, match=rf"must hold a SpecialK in format {FORMAT}, got .* 9.1"):
        SpecialK.load(path)
    content |= {key: "\x1b[2J\n", "version": "\r" * 9999}
    np.savez(path, **arrays | {"content": np.array(json.dumps(content))})
    with pytest.raises(ValueError, match=f"must hold a SpecialK in format {FORMAT}") as error:
        SpecialK.load(path)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2000


def test_pickle_and_joblib_keep_what_predicts(tmp_path):
    model = blobs()
    joblib.dump(model, tmp_path / "m.joblib")
    for again in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "m.joblib")):
        check_equal(model, again)
        np.testing.assert_array_equal(again.predict(BLOBS + 0.1), model.predict(BLOBS + 0.1))


@pytest.mark.gpu
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors", "precomputed"])
def test_models_of_a_gpu_predict_on_a_cpu(tmp_path, affinity):
    import cupy

    X = cupy.asarray(BLOBS)
    given = knn_graph(X) if affinity == "precomputed" else X
    model = fit(given, affinity=affinity, backend="auto")
    assert isinstance(model.labels_, cupy.ndarray)
    expected = model.predict(given).get()
    model.save(tmp_path / "m.npz")
    for again in (SpecialK.load(tmp_path / "m.npz"), pickle.loads(pickle.dumps(model))):
        assert isinstance(again.labels_, np.ndarray)
        assert isinstance(again.path_[0].labels, np.ndarray)
        assert isinstance(again.affinity_matrix_, sparse.csr_matrix)
        again.set_params(backend="numpy")
        on_host = given.get()
        np.testing.assert_array_equal(again.predict(on_host), expected)


def test_the_file_is_a_zip_of_arrays(tmp_path):
    blobs().save(tmp_path / "m.npz")
    with zipfile.ZipFile(tmp_path / "m.npz") as file:
        names = {name.removesuffix(".npy") for name in file.namelist()}
    assert {"content", "labels_", "embedding_", "_fit_X", "affinity_matrix_.data"} <= names
