"""Pictures: what is drawn is what the model holds."""

import math

import fits
import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu.inspection import plot
from specialk_gpu.inspection.diagnostics import pair_matrix, typical

mpl.use("agg")
from matplotlib import pyplot  # noqa: E402 - after the backend is chosen
from matplotlib.axes import Axes  # noqa: E402

BLOBS, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
DIGITS = load_digits().data[:400]


def fit(X, **settings):
    return fits.fit(X, **{"full_path": True, "max_clusters": 5, **settings})


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def model():
    return fit(BLOBS)


def test_what_cannot_be_drawn_is_said(model):
    with pytest.raises(TypeError, match=r"what model.stability\(X\) returned, got SpecialK"):
        plot.stability(model)
    with pytest.raises(TypeError, match="ax must be one matplotlib Axes, got ndarray"):
        plot.embedding(model, BLOBS)


DRAWN = ["path", "spectrum", "cluster_sizes", "pairs", "embedding", "tree", "levels", "profile"]
DRAWN += ["outliers"]


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
    assert ax.get_ylabel() or ax.get_xlabel()
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


def heights(ax):
    """Return the crossbars of a tree: their height, and the colours of the tree."""
    bars = [
        line for line in ax.lines if len(set(line.get_ydata())) == 1 and line.get_label()[0] == "_"
    ]
    return [line.get_ydata()[0] for line in bars]


def test_the_tree_is_that_of_the_model(model):
    ax = plot.tree(model)
    found = sorted(heights(ax))
    assert len(found) == model.tree_.n_leaves - 1
    expected = np.sort(-model.tree_.log_p[1:] / np.log(10))  # of the unions, least separate first
    np.testing.assert_array_equal(np.array(found) > 3, np.maximum.accumulate(expected) > 3)
    assert [text.get_text() for text in ax.texts[:3]] == ["0", "1", "2"]
    dashed = next(line for line in ax.lines if line.get_label() == "alpha = 0.05")
    alpha = dashed.get_ydata()[0]
    assert alpha == -math.log10(0.05)
    crossed = [
        line
        for line in ax.lines
        if len(set(line.get_xdata())) == 1 and min(line.get_ydata()) < alpha < max(line.get_ydata())
    ]
    assert len(crossed) == 3  # as many branches as clusters
    assert (
        len(
            {
                line.get_color() if isinstance(line.get_color(), str) else tuple(line.get_color())
                for line in crossed
            }
        )
        == 3
    )
    with pytest.raises(AttributeError, match='no tree_ for criterion="zz_top"'):
        plot.tree(fit(BLOBS, criterion="zz_top"))


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_levels_have_a_circle_for_each_cluster(criterion):
    model = fit(BLOBS, criterion=criterion)
    ax = plot.levels(model, max_clusters=5)
    circles = [np.asarray(c.get_offsets()) for c in ax.collections]
    assert [len(points) for points in circles] == [1, 2, 3, 4, 5]
    for k, points in enumerate(circles, 1):
        assert (points[:, 1] == k).all()
        sizes = np.bincount(model.labels_at(k))
        area = ax.collections[k - 1].get_sizes()
        np.testing.assert_allclose(area, np.maximum(900 * sizes / 300, 130))
        assert (np.diff(np.sort(points[:, 0])) > 0.05).all()
    joined = sum(
        len(set(zip(model.labels_at(k).tolist(), model.labels_at(k + 1).tolist(), strict=True)))
        for k in range(1, 5)
    )
    assert len(ax.lines) == joined
    inside = next(c for c in ax.collections if len(c.get_offsets()) == 3)
    np.testing.assert_allclose(inside.get_facecolor(), plot.cluster_colors(3))
    with pytest.raises(ValueError, match="max_clusters must lie between 1 and"):
        plot.levels(model, max_clusters=300)


def test_the_profile_is_that_of_the_summary(model):
    X = np.column_stack([BLOBS, BLOBS[:, 0] * 1e6])
    ax = plot.profile(model, X=X, max_columns=2)
    columns = model.summary(X).columns[:2]
    shown = ax.images[0].get_array()
    np.testing.assert_array_equal(shown, [column.differences for column in columns])
    assert [text.get_text() for text in ax.get_yticklabels()] == [c.name for c in columns]
    cells = [text.get_text() for text in ax.texts]
    assert cells == [f"{value:.4g}" for column in columns for value in column.values]
    graph = fit(knn_graph(BLOBS), affinity="precomputed")
    with pytest.raises(ValueError, match="X must be given"):
        plot.profile(graph)
    assert plot.profile(graph, X=BLOBS).has_data()


def test_outliers_are_drawn_at_their_scores():
    X = np.concatenate([BLOBS, [[90.0, 90.0], [60.0, 5.0]]])
    model = fit(X, noise=20)
    ax = plot.outliers(model, n_named=2, max_points=50)
    points = np.asarray(ax.collections[0].get_offsets())
    drawn = sorted({*range(0, 302, 7), 300, 301})
    np.testing.assert_array_equal(points[:, 1], model.outlier_scores_[drawn])
    assert [text.get_text() for text in ax.texts] == ["row 300", "row 301"]
    assert points[:, 1].max() == model.outlier_scores_[300]
    lines = {line.get_label(): line for line in ax.lines}
    assert set(lines["noise = 20"].get_ydata()) == {20}
    full = plot.outliers(model)
    points = np.asarray(full.collections[0].get_offsets())
    np.testing.assert_array_equal(np.round(points[:, 0]), model._level(model.n_clusters_))
    with pytest.raises(AttributeError, match="no outlier_scores_"):
        plot.outliers(fit(knn_graph(BLOBS), affinity="precomputed"))
    names = [text.get_text() for text in plot.embedding(model, points=X).get_legend().get_texts()]
    assert names == ["outlier", "0", "1", "2"]
    assert plot.cluster_sizes(model).patches[0].get_height() == np.sum(model.labels_ == 0)


def test_no_points_are_no_plot(model):
    with pytest.raises(ValueError, match="max_points must be at least 1, got 0"):
        plot.embedding(model, max_points=0)
