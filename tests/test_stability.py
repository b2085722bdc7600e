"""How steady clusters are: known answers, and Jaccard indices by their definition."""

import warnings

import matplotlib as mpl
import numpy as np
import pytest
from fits import fit
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu.inspection import plot
from specialk_gpu.inspection.stability import Refit, Stability, best_jaccard

mpl.use("agg")

BLOBS, Y = make_blobs([35, 30, 25], centers=[(0, 0), (30, 0), (0, 30)], random_state=0)
ONE = np.random.default_rng(0).normal(size=(90, 2))
KINDS = ["random_state", "order", "n_neighbors", "sample"]


def jaccard(labels, found, c):
    """Return the definition: sets of rows, the largest share of the union in the intersection."""
    own = set(np.flatnonzero(labels == c))
    others = [set(np.flatnonzero(found == d)) for d in np.unique(found) if d >= 0]
    return max((len(own & other) / len(own | other) for other in others), default=0.0)


def test_best_jaccard_is_that_of_sets():
    rng = np.random.default_rng(0)
    for _ in range(50):
        labels, found = rng.integers(-1, 4, size=30), rng.integers(-1, 5, size=30)
        best = best_jaccard(labels, found, 5)
        for c in range(5):
            if (labels == c).any():
                assert best[c] == pytest.approx(jaccard(labels, found, c), abs=1e-15)
            else:
                assert np.isnan(best[c])


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_separate_blobs_are_found_again(criterion):
    X, y = BLOBS, Y
    if criterion == "zz_top":  # its bound needs more rows
        X, y = make_blobs(300, centers=[(0, 0), (20, 0), (0, 20)], random_state=0)
    model = fit(X, criterion=criterion)
    assert adjusted_rand_score(y, model.labels_) == 1
    found = model.stability(X, n_refits=1, random_state=0)
    assert [refit.kind for refit in found.refits] == np.repeat(KINDS, [1, 1, 3, 1]).tolist()
    assert {refit.k for refit in found.refits} == {3}
    assert {refit.ari for refit in found.refits} == {1.0}
    assert found.sizes.tolist() == np.bincount(model.labels_).tolist()
    np.testing.assert_array_equal(found.jaccard, 1.0)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_rows_that_a_model_keeps_are_those_of_the_fit(bk, metric):
    X = bk.asarray(BLOBS + 20)
    model = fit(X, bk, metric=metric)
    settings = {"kinds": ["sample"], "n_refits": 1, "random_state": 0}
    assert str(model.stability(**settings)) == str(model.stability(X, **settings))


@pytest.mark.parametrize(
    ("X", "settings", "what"),
    [
        (knn_graph(BLOBS), {"affinity": "precomputed"}, "the graph"),
        (np.repeat(BLOBS, 12, axis=0), {}, "duplicates"),
    ],
)
def test_rows_that_a_model_does_not_keep_are_asked_for(X, settings, what):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fit(X, **settings)
    with pytest.raises(ValueError, match=f"X must be given, as it was fitted: .* keep {what}"):
        model.stability()


@pytest.mark.parametrize("graph", [False, True])
def test_rows_and_graphs_on_either_backend(bk, graph):
    X = bk.asarray(BLOBS)
    X = knn_graph(X) if graph else X
    affinity = "precomputed" if graph else "nearest_neighbors"
    model = fit(X, backend=bk.name, affinity=affinity)
    found = model.stability(X, kinds=["order", "sample"], n_refits=1, random_state=0, n_jobs=2)
    assert {(refit.k, refit.ari) for refit in found.refits} == {(3, 1.0)}
    np.testing.assert_array_equal(found.jaccard, 1.0)


def test_outliers_are_no_cluster():
    X = np.vstack([BLOBS, [[300.0, 300.0]]])
    model = fit(X, noise=3.0)
    assert model.labels_[-1] == -1
    found = model.stability(X, kinds=["order"], n_refits=1, random_state=0)
    assert found.sizes.sum() == (model.labels_ >= 0).sum()
    assert [(refit.k, refit.ari) for refit in found.refits] == [(3, 1.0)]
    np.testing.assert_array_equal(found.jaccard, 1.0)


def test_one_blob_is_found_again():
    found = fit(ONE).stability(ONE, n_refits=1, random_state=0)
    assert {(refit.k, refit.ari) for refit in found.refits} == {(1, 1.0)}
    assert found.jaccard.tolist() == [1.0]


def test_clusters_that_were_only_asked_for_are_not_found_again():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(120, 20)), rng.normal(size=(40, 20)) + 100])
    model = fit(X, n_clusters=4)  # there are two
    (apart,) = np.unique(model.labels_[120:])
    found = model.stability(X, kinds=["sample"], n_refits=3, random_state=0)
    assert {refit.k for refit in found.refits} == {4}
    assert found.jaccard[apart] == 1
    assert np.delete(found.jaccard, apart).max() < 0.6
    assert str(found).count("unstable") == 3


def test_refits_are_fits_with_the_change_that_is_told():
    model = fit(ONE, n_clusters=3)
    found = model.stability(ONE, kinds=["n_neighbors", "random_state"], n_refits=1, random_state=1)
    assert [refit.setting for refit in found.refits][1:] == [
        "n_neighbors=7",
        "n_neighbors=14",
        "n_neighbors=20",
    ]
    for refit in found.refits:
        name, value = refit.setting.split("=")
        again = fit(ONE, n_clusters=3, **{name: int(value)})
        assert refit.ari == adjusted_rand_score(model.labels_, again.labels_)
        expected = [jaccard(model.labels_, again.labels_, c) for c in range(3)]
        np.testing.assert_allclose(refit.jaccard, expected, rtol=0, atol=1e-15)


def test_processes_and_seeds_do_not_change_the_answer():
    model = fit(ONE, n_clusters=3, random_state=None)
    kinds = ["order", "sample"]
    one, two = (
        model.stability(ONE, kinds=kinds, n_refits=1, random_state=5, n_jobs=n) for n in (1, 2)
    )
    assert str(one) == str(two)
    assert [refit.ari for refit in one.refits] == [refit.ari for refit in two.refits]


def test_a_graph_is_sampled_by_its_rows_and_columns():
    W = knn_graph(BLOBS)
    model = fit(W, affinity="precomputed")
    found = model.stability(W, n_refits=1, random_state=0)
    assert [refit.kind for refit in found.refits] == ["random_state", "order", "sample"]
    assert {(refit.k, refit.ari) for refit in found.refits} == {(3, 1.0)}
    with pytest.raises(ValueError, match="kinds must be a list of random_state, order, sample for"):
        model.stability(W, kinds=["n_neighbors"])


def test_frames_of_rows_are_taken(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(BLOBS, columns=["x", "y"])
    model = fit(frame)
    model.save(tmp_path / "model.npz")
    loaded = SpecialK.load(tmp_path / "model.npz")
    frames = [
        one.stability(frame, n_refits=1, random_state=0).to_frame() for one in (model, loaded)
    ]
    pd.testing.assert_frame_equal(*frames)
    assert frames[0]["kind"].tolist() == np.repeat(KINDS, [1, 1, 3, 1]).tolist()
    assert list(frames[0].columns) == ["kind", "setting", "k", "ari", "jaccard"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ["seed"]}, "kinds must be a list of random_state, order, n_neighbors, sample, "),
        ({"kinds": "order"}, "kinds must be a list of .*, got 'order'"),
        ({"kinds": []}, r"kinds must be a list of .*, got \[\]"),
        ({"n_refits": 0}, "n_refits must be .*, got 0"),
        ({"random_state": "a"}, "'a' cannot be used to seed"),
        ({"X": BLOBS[:9]}, "X must be the 90 rows of the fit, got 9"),
        ({"X": BLOBS[:, :1]}, "X has 1 features, but SpecialK is expecting 2"),
    ],
)
def test_wrong_arguments_are_named(settings, message):
    model = fit(BLOBS)
    with pytest.raises(ValueError, match=message):
        model.stability(**{"X": BLOBS, **settings})
    with pytest.raises(NotFittedError):
        SpecialK().stability(BLOBS)


def made(k, n_refits=3):
    rng = np.random.default_rng(0)
    refits = tuple(
        Refit(kind, f"{kind} {i}", int(rng.integers(1, 9)), 0.5, rng.random(k))
        for kind in KINDS
        for i in range(n_refits)
    )
    return Stability(k, np.arange(k, 0, -1), refits)


@pytest.mark.parametrize("k", [1, 3, 40])
def test_tables_are_short_and_tell_the_least_stable(k):
    found = made(k)
    lines = str(found).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    least = int(np.argmin(found.jaccard))
    assert any(line.split()[:2] == [str(least), str(found.sizes[least])] for line in lines)
    assert found._repr_html_().count("<tr>") == 2 + len(KINDS) + k
    frame = found.clusters_to_frame()
    means = [frame[kind] for kind in KINDS]
    np.testing.assert_array_equal(frame["jaccard"], np.min(means, axis=0))
    np.testing.assert_allclose(
        frame["sample"], np.mean([r.jaccard for r in found.refits[-3:]], axis=0), rtol=1e-15
    )


def test_a_cluster_that_no_sample_has_is_unknown():
    values = [np.array([1.0, np.nan]), np.array([0.5, np.nan])]
    found = Stability(2, np.array([9, 1]), tuple(Refit("sample", "", 1, 1.0, x) for x in values))
    np.testing.assert_array_equal(found.jaccard, [0.75, np.nan])
    assert "in no sample" in str(found)


@pytest.mark.parametrize("k", [1, 12])
def test_the_plot_shows_every_refit_and_the_least_means(k):
    found = made(k)
    ax = plot.stability(found)
    heights = np.concatenate([dots.get_offsets()[:, 1] for dots in ax.collections[:-1]])
    expected = np.concatenate([refit.jaccard for refit in found.refits])
    np.testing.assert_array_equal(np.sort(heights), np.sort(expected))
    lines = [segment[0, 1] for segment in ax.collections[-1].get_segments()]
    np.testing.assert_array_equal(lines, found.jaccard)
    ax.figure.canvas.draw()
    mpl.pyplot.close(ax.figure)


def test_progress_is_told_by_refits():
    from specialk_gpu import _progress

    said = []
    token = _progress._listener.set(lambda *words: said.append(words))
    try:
        fit(ONE).stability(ONE, kinds=["n_neighbors"], random_state=0)
    finally:
        _progress._listener.reset(token)
    assert [words for words in said if words[0] == "other fits"] == [
        ("other fits", i, 3) for i in (1, 2, 3)
    ]
    assert said[-3:] == [("other fits", i, 3) for i in (1, 2, 3)]
