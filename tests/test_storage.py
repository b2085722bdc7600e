"""Fitted models in files: what comes back is what was written, without pickle."""

import json
import pickle
import warnings
import zipfile
from functools import cache

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu._storage import FORMAT

BLOBS, _ = make_blobs(200, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)


def fit(X, **settings):
    settings = {"backend": "numpy", "random_state": 0, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(**settings).fit(X)


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


def test_files_that_hold_no_model_are_refused(tmp_path):
    path = tmp_path / "m.npz"
    with pytest.raises(FileNotFoundError):
        SpecialK.load(path)
    path.write_text("k = 3")
    with pytest.raises(ValueError, match="m.npz is not a model that was saved, or is damaged"):
        SpecialK.load(path)
    np.savez(path, X=BLOBS)
    with pytest.raises(ValueError, match="m.npz is not a model that was saved, or is damaged"):
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
