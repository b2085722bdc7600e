"""Pictures: what is drawn is what the model holds."""

import math
import warnings

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError

from specialk_gpu import SpecialK
from specialk_gpu.inspection import plot
from specialk_gpu.inspection.diagnostics import pair_matrix, typical

mpl.use("agg")
from matplotlib import pyplot  # noqa: E402 - after the backend is chosen
from matplotlib.axes import Axes  # noqa: E402

BLOBS, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
DIGITS = load_digits().data[:400]


def fit(X, **settings):
    settings = {"backend": "numpy", "random_state": 0, "max_clusters": 5, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(full_path=True, **settings).fit(X)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def model():
    return fit(BLOBS)


DRAWN = ["path", "spectrum", "cluster_sizes", "pairs", "embedding"]


@pytest.mark.parametrize("name", DRAWN)
def test_axes_are_taken_and_returned(model, name):
    draw = getattr(plot, name)
    ax = pyplot.subplots()[1]
    assert draw(model, ax) is ax
    assert ax.has_data()
    assert isinstance(draw(model), Axes)
    ax.figure.canvas.draw()
    with pytest.raises(NotFittedError):
        draw(SpecialK())


@pytest.mark.parametrize("name", DRAWN)
def test_one_cluster_can_be_drawn(name):
    model = fit(np.random.default_rng(0).normal(size=(60, 2)), max_clusters=1)
    ax = getattr(plot, name)(model)
    ax.figure.canvas.draw()
    assert ax.get_xlabel()
    assert ax.has_data()


def test_the_path_shows_each_p_the_level_and_the_decision(model):
    ax = plot.path(model)
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    points = points[points[:, 0].argsort()]
    expected = [(s.k, max(s.log_p / np.log(10), plot.FLOOR["cut"])) for s in model.path_ if s.pair]
    np.testing.assert_allclose(points, expected)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"accepted", "rejected", "alpha = 0.05", "decision"} <= set(names)
    assert "watershed" not in names
    assert ax.get_ylabel() == "log10 p of the cut test, worst pair"
    assert "< 0.001" in [text.get_text() for text in ax.texts]
    lines = {line.get_label(): line for line in ax.lines}
    assert set(lines["alpha = 0.05"].get_ydata()) == {math.log10(0.05)}
    assert set(lines["decision"].get_xdata()) == {3}


def test_the_watershed_is_marked_where_it_differs():
    model = fit(BLOBS, alpha=1e-12, criterion="zz_top")
    ax = plot.path(model)
    assert "watershed" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert ax.get_ylabel() == "log10 of the ZZ Top Bound, worst pair"


def test_sizes_eigenvalues_and_pairs_are_the_models(model):
    bars = plot.cluster_sizes(model).patches
    assert [bar.get_height() for bar in bars] == np.bincount(model.labels_).tolist()
    points = np.concatenate([c.get_offsets() for c in plot.spectrum(model).collections])
    points = points[points[:, 0].argsort()]
    np.testing.assert_allclose(points[:, 1], np.abs(model.eigenvalues_))
    image = plot.pairs(model, k=4).images[0].get_array()
    np.testing.assert_allclose(image, np.maximum(pair_matrix(model, 4), plot.FLOOR["zz_top"]))


def test_rows_are_drawn_where_they_are_told_to_be(model):
    ax = plot.embedding(model, points=BLOBS)
    for c, drawn in enumerate(ax.collections):
        np.testing.assert_array_equal(drawn.get_offsets(), BLOBS[model.labels_ == c])
    few = plot.embedding(model, max_points=50)
    assert sum(len(c.get_offsets()) for c in few.collections) == 50
    with pytest.raises(ValueError, match=r"points must have shape \(300, 2\), got \(2, 2\)"):
        plot.embedding(model, points=BLOBS[:2])


def test_members_are_the_typical_rows():
    model = fit(DIGITS, n_clusters=3)
    board = plot.members(model, DIGITS, (8, 8), n_members=4).images[0].get_array()
    for c, rows in enumerate(typical(model, 4)):
        for i, row in enumerate(rows):
            own = board[9 * c : 9 * c + 8, 9 * i : 9 * i + 8]
            np.testing.assert_array_equal(own, DIGITS[row].reshape(8, 8))
    with pytest.raises(ValueError, match=r"images of shape=\(9, 8\), of shape \(400, 72\)"):
        plot.members(model, DIGITS, (9, 8))


def test_no_points_are_no_plot(model):
    with pytest.raises(ValueError, match="max_points must be at least 1, got 0"):
        plot.embedding(model, max_points=0)
