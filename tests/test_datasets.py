"""The synthetic sets are the paper's; the loaders read what is there and never pass it over."""

import gzip
import re

import numpy as np
import pytest
from sklearn import datasets

from specialk_gpu.datasets import (
    NOISE_LEVELS,
    SHAPES,
    load_fashion_mnist,
    load_mnist,
    make_shape,
)

LOADERS = [
    (load_mnist, "SPECIALK_MNIST", "mnist_784"),
    (load_fashion_mnist, "SPECIALK_FASHION_MNIST", "Fashion-MNIST"),
]
ALL_LOADERS = pytest.mark.parametrize(("load", "variable", "name"), LOADERS)


# -- shapes ---------------------------------------------------------------------------------------


def test_noise_levels_are_the_papers():
    np.testing.assert_allclose(NOISE_LEVELS, np.arange(10) * 0.025, rtol=1e-15)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [("random", [1500]), ("blobs", [500] * 3), ("moons", [750] * 2), ("circles", [750] * 2)],
)
@pytest.mark.parametrize("noise", NOISE_LEVELS)
def test_shapes_fill_their_square_with_the_clusters_they_promise(shape, sizes, noise):
    X, y = make_shape(shape, noise, random_state=0)
    assert (X.shape, X.dtype, y.shape, y.dtype) == ((1500, 2), np.float64, (1500,), np.int32)
    np.testing.assert_allclose([X.min(axis=0), X.max(axis=0)], [[0, 0], [3, 3]], atol=1e-12)
    assert np.bincount(y).tolist() == sizes


@pytest.mark.parametrize("shape", SHAPES)
def test_the_seed_decides_the_points(shape):
    first, again, other = (make_shape(shape, 0.1, random_state=seed)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert make_shape(shape, n_samples=60, random_state=np.random.RandomState(0))[0].shape[0] == 60


@pytest.mark.parametrize("noise", [0, 0.2])
def test_blobs_have_the_authors_centres_and_deviations(noise):
    """Undo the scaling by least squares on the known centres, then measure the deviations."""
    X, y = make_shape("blobs", noise, n_samples=30_000, random_state=0)
    centres = np.array([[1, 1], [4, 9], [6, 4]])
    deviations = np.array([[0.5], [1.25], [0.25]]) + noise
    means = np.array([X[y == label].mean(axis=0) for label in range(3)])
    for axis in range(2):
        slope, offset = np.polyfit(means[:, axis], centres[:, axis], 1)
        np.testing.assert_allclose(slope * means[:, axis] + offset, centres[:, axis], atol=0.03)
        measured = [slope * X[y == label, axis].std() for label in range(3)]
        np.testing.assert_allclose(measured, deviations[:, 0], rtol=0.03)


def test_circles_have_the_papers_ratio_and_noise():
    X, y = make_shape("circles", 0.0, random_state=0)
    radius = np.linalg.norm(X - 1.5, axis=1)
    np.testing.assert_allclose(radius, np.where(y == 0, 1.5, 0.75), rtol=1e-4)


def test_noise_does_not_change_the_uniform_square():
    quiet, noisy = (make_shape("random", noise, random_state=0)[0] for noise in (0, 0.2))
    np.testing.assert_array_equal(quiet, noisy)


@pytest.mark.parametrize(
    ("shape", "noise", "message"),
    [
        ("spirals", 0, "shape must be one of random, blobs, moons, circles, got 'spirals'"),
        ("moons", -0.1, "noise must be a finite number of at least 0, got -0.1"),
        ("blobs", np.nan, "noise must be a finite number of at least 0, got nan"),
    ],
)
def test_unknown_shapes_and_impossible_noise_are_refused(shape, noise, message):
    with pytest.raises(ValueError, match=message):
        make_shape(shape, noise)


# -- loaders --------------------------------------------------------------------------------------


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_images(folder, prefix="train", m=5, seed=0, suffix=""):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (m, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, m, dtype=np.uint8)
    for name, array in ((f"{prefix}-images-idx3", images), (f"{prefix}-labels-idx1", labels)):
        content = idx_bytes(array)
        content = gzip.compress(content) if suffix else content
        (folder / f"{name}-ubyte{suffix}").write_bytes(content)
    return images.reshape(m, 784), labels


@pytest.fixture
def no_openml(monkeypatch):
    def fetch(*_args, **_kwargs):
        pytest.fail("a loader went to OpenML although a folder was named")

    monkeypatch.setattr(datasets, "fetch_openml", fetch)


@pytest.mark.usefixtures("no_openml")
@ALL_LOADERS
@pytest.mark.parametrize(("subset", "prefix"), [("train", "train"), ("test", "t10k")])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_named_folder_is_read(
    tmp_path, monkeypatch, load, variable, name, subset, prefix, suffix
):
    del name
    X, y = write_images(tmp_path, prefix, suffix=suffix)
    monkeypatch.delenv(variable, raising=False)
    for found in (load(tmp_path, subset=subset), load(str(tmp_path), subset=subset)):
        np.testing.assert_array_equal(found[0], X)
        np.testing.assert_array_equal(found[1], y)
        assert found[0].dtype == found[1].dtype == np.uint8


@pytest.mark.usefixtures("no_openml")
@ALL_LOADERS
def test_the_variable_names_a_folder_and_the_argument_overrides_it(
    tmp_path, monkeypatch, load, variable, name
):
    monkeypatch.setenv(variable, str(tmp_path))
    X, _ = write_images(tmp_path)
    np.testing.assert_array_equal(load()[0], X)
    (tmp_path / name).mkdir()
    other, _ = write_images(tmp_path / name, seed=1)
    np.testing.assert_array_equal(load(tmp_path / name)[0], other)


@pytest.mark.usefixtures("no_openml")
@ALL_LOADERS
def test_a_folder_without_the_files_is_an_error_that_says_what_is_there(
    tmp_path, monkeypatch, load, variable, name
):
    del name
    (tmp_path / "notes.txt").touch()
    expected = "train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or .gz; it holds notes"
    with pytest.raises(
        FileNotFoundError, match=rf"folder='{re.escape(str(tmp_path))}' must hold {expected}"
    ):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="it is not a folder"):
        load(tmp_path / "absent")
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"{variable}='.*' must hold {expected}"):
        load()


def test_images_and_labels_must_belong_together(tmp_path):
    write_images(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(4, np.uint8)))
    with pytest.raises(ValueError, match=r"got uint8 \(5, 28, 28\) and uint8 \(4,\)"):
        load_mnist(tmp_path)


def test_unknown_subsets_are_refused(tmp_path):
    with pytest.raises(ValueError, match="subset must be one of train, test, got 'validation'"):
        load_mnist(tmp_path, subset="validation")


@ALL_LOADERS
def test_openml_is_split_as_published(monkeypatch, load, variable, name):
    monkeypatch.delenv(variable, raising=False)
    pixels = np.arange(70_000, dtype=np.int64)[:, None] % 256
    digits = (np.arange(70_000) % 10).astype(str).astype(object)
    asked = []

    def fetch(data_name, **options):
        asked.append((data_name, options["version"], options["as_frame"]))
        return pixels, digits

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    (X, y), (X_test, y_test) = load(), load(subset="test")
    assert asked == [(name, 1, False)] * 2
    assert X.dtype == y.dtype == X_test.dtype == y_test.dtype == np.uint8
    np.testing.assert_array_equal(np.concatenate([X, X_test]), pixels)
    np.testing.assert_array_equal(np.concatenate([y, y_test]), np.arange(70_000) % 10)
    assert len(X) == len(y) == 60_000


@ALL_LOADERS
def test_openml_out_of_reach_names_the_alternatives(monkeypatch, load, variable, name):
    def fetch(*_args, **_kwargs):
        msg = "no route"
        raise OSError(msg)

    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    with pytest.raises(
        OSError, match=rf"{name} can't be .* \(no route\).*folder= or by {variable}"
    ):
        load()
