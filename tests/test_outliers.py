"""Outliers: their scores, by definition and where they are known, and the label -1."""

import pickle

import numpy as np
import pytest
from fits import fit
from sklearn.datasets import make_blobs
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from specialk_gpu import SpecialK, knn_graph, tl
from specialk_gpu.inspection.diagnostics import pair_matrix, sizes_of_clusters, typical
from specialk_gpu.inspection.outliers import spacings_for_outliers

BLOBS, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
PLANTED = np.random.default_rng(0).uniform(-4, 13, size=(30, 2))
FAR = np.array([[60.0, 60.0], [-40.0, 50.0]])
NOISY = np.concatenate([BLOBS, PLANTED, FAR])


def host(bk, x):
    return bk.to_numpy(bk.asarray(x))


def scores_by_definition(X, labels, n_neighbors):
    spacing = NearestNeighbors(n_neighbors=n_neighbors).fit(X).kneighbors()[0][:, -1]
    return spacing / np.array([np.median(spacing[labels == c]) for c in labels])


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_scores_are_their_definition(bk, criterion, affinity):
    settings = {"criterion": criterion, "affinity": affinity, "n_neighbors": 7}
    model = fit(NOISY, bk, **settings)
    expected = scores_by_definition(NOISY, model.labels_, 7)
    np.testing.assert_allclose(model.outlier_scores_, expected, rtol=1e-12)
    of_device = fit(bk.asarray(NOISY), bk, **settings).outlier_scores_
    assert type(of_device) is type(bk.asarray(NOISY))
    np.testing.assert_array_equal(bk.to_numpy(of_device), model.outlier_scores_)


def test_scores_by_the_cosine_are_those_of_unit_rows(bk):
    X = np.abs(np.random.default_rng(0).normal(size=(200, 8)))
    model = fit(X, bk, metric="cosine", n_clusters=2)
    unit = X / np.linalg.norm(X, axis=1)[:, None]
    expected = scores_by_definition(unit, model.labels_, 10)
    np.testing.assert_allclose(model.outlier_scores_, expected, rtol=1e-9)


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_planted_rows_have_the_largest_scores(criterion, noise):
    rng = np.random.default_rng(1)
    planted = rng.uniform(-4, 13, size=(int(noise * 300), 2))
    centers = np.array([(0, 0), (9, 0), (0, 9)])
    distance = np.linalg.norm(planted[:, None] - centers, axis=2).min(axis=1)
    planted = planted[distance > 4]  # nearer ones are no outliers
    X = np.concatenate([BLOBS, planted, FAR])
    scores = fit(X, criterion=criterion).outlier_scores_
    assert set(np.argsort(scores)[-2:]) == {len(X) - 2, len(X) - 1}
    assert roc_auc_score(np.arange(len(X)) >= 300, scores) > 0.97


def test_clusters_have_a_scale_of_their_own():
    X, y = make_blobs(450, centers=[(0, 0), (60, 0)], cluster_std=[0.1, 5], random_state=0)
    X = np.concatenate([X, [[3.0, 0.0]]])  # 30 deviations from the dense one
    model = fit(X, n_clusters=2)
    assert np.argmax(model.outlier_scores_) == 450
    for c in (0, 1):
        own = model.outlier_scores_[:450][y == c]
        assert np.median(own) == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("unit", [1e-300, 1e-3, 1e150])
def test_scores_have_no_unit(bk, unit):
    model = fit(NOISY * unit, bk)
    np.testing.assert_allclose(model.outlier_scores_, fit(NOISY, bk).outlier_scores_, rtol=1e-6)


def test_duplicates_count_once(bk):
    once, often = fit(BLOBS, bk), fit(np.repeat(BLOBS, 12, axis=0), bk)
    expected = np.repeat(once.outlier_scores_, 12)
    np.testing.assert_allclose(often.outlier_scores_, expected, rtol=1e-12)


def test_rows_that_are_all_equal_have_finite_scores(bk):
    X = np.concatenate([BLOBS, np.full((60, 2), 100.0)])
    for given in (X, np.ones((30, 2))):
        model = fit(given, bk)
        scores = model.outlier_scores_
        assert np.isfinite(scores).all()
        assert (scores >= 0).all()
        assert (scores[-30:] == 0).all()
        assert np.isfinite(model.predict_proba(given[:1] + 1e-3)).all()


def test_medians_of_clusters_are_medians(bk):
    rng = np.random.default_rng(0)
    spacing, labels = rng.random(101), rng.integers(4, size=101).astype(np.int32)
    spacing[:5], labels[labels == 2] = 0, 1
    found = bk.to_numpy(spacings_for_outliers(bk.asarray(spacing), bk.asarray(labels), 4))
    for c in (0, 1, 3):
        own = spacing[(labels == c) & (spacing > 0)]
        assert found[c] == pytest.approx(np.median(own), rel=1e-15)
    assert found[2] == pytest.approx(np.median(spacing[spacing > 0]), rel=1e-15)
    none = spacings_for_outliers(
        bk.asarray(np.zeros(3)), bk.asarray(np.zeros(3, dtype=np.int32)), 2
    )
    assert bk.to_numpy(none).tolist() == [1, 1]


def test_a_given_graph_has_no_scores(bk):
    model = fit(knn_graph(BLOBS), bk, affinity="precomputed")
    assert not hasattr(model, "outlier_scores_")
    with pytest.raises(AttributeError, match="no outlier_scores_ for a given graph"):
        model.outlier_scores_  # noqa: B018


# -- the label -1 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_nothing_but_the_labels_of_outliers_changes(bk, criterion):
    plain, model = fit(NOISY, bk, criterion=criterion), fit(NOISY, bk, criterion=criterion, noise=3)
    outlier = plain.outlier_scores_ > 3
    assert 15 < outlier.sum() < 60
    assert outlier[-2:].all()
    np.testing.assert_array_equal(model.labels_, np.where(outlier, -1, plain.labels_))
    assert model.labels_.dtype == np.int32
    np.testing.assert_array_equal(model.outlier_scores_, plain.outlier_scores_)
    np.testing.assert_array_equal(model.membership_, plain.membership_)
    assert model.path_ == plain.path_
    for step in model.path_:
        np.testing.assert_array_equal(
            model.labels_at(step.k), np.where(outlier, -1, plain.labels_at(step.k))
        )
    np.testing.assert_array_equal(model.labels_at(model.n_clusters_), model.labels_)
    np.testing.assert_array_equal(pair_matrix(model), pair_matrix(plain))
    sizes, n_outliers = sizes_of_clusters(model)
    assert n_outliers == outlier.sum()
    np.testing.assert_array_equal(sizes, np.bincount(plain.labels_[~outlier]))
    assert not outlier[np.concatenate(typical(model, 500))].any()


def test_new_rows_that_are_far_away_are_outliers(bk):
    model = fit(NOISY, bk, noise=True)
    np.testing.assert_array_equal(model.predict(NOISY), model.labels_)
    np.testing.assert_array_equal(model.predict(NOISY[-1:]), [-1])
    new = np.array([[0.2, 0.1], [9.1, 0.2], [25.0, 25.0], [1e200, 0.0]])
    labels = model.predict(new)
    nearest = [model.labels_[np.argmin(np.linalg.norm(BLOBS - row, axis=1))] for row in new[:2]]
    np.testing.assert_array_equal(labels, [*nearest, -1, -1])
    np.testing.assert_array_equal(model.predict_proba(NOISY), model.membership_)
    plain = fit(NOISY, bk)
    np.testing.assert_array_equal(model.predict_proba(new), plain.predict_proba(new))
    distance = NearestNeighbors(n_neighbors=10).fit(NOISY).kneighbors(PLANTED + 0.5)[0][:, -1]
    own = plain.predict(PLANTED + 0.5)
    spacing = NearestNeighbors(n_neighbors=10).fit(NOISY).kneighbors()[0][:, -1]
    usual = np.array([np.median(spacing[plain.labels_ == c]) for c in range(3)])
    expected = np.where(distance / usual[own] > 4, -1, own)
    assert len(set(expected.tolist())) == 4
    np.testing.assert_array_equal(model.predict(PLANTED + 0.5), expected)


def test_true_is_four_and_false_is_none():
    labels = fit(NOISY, noise=4.0).labels_
    np.testing.assert_array_equal(fit(NOISY, noise=True).labels_, labels)
    np.testing.assert_array_equal(fit(NOISY, noise=np.float32(4)).labels_, labels)
    assert (labels == -1).any()
    for off in (False, None):
        assert (fit(NOISY, noise=off).labels_ >= 0).all()


def test_at_least_half_of_each_cluster_is_no_outlier():
    model = fit(np.random.default_rng(0).normal(size=(300, 2)), noise=1, n_clusters=4)
    sizes = sizes_of_clusters(model)[0]
    assert (2 * sizes >= np.bincount(model._level(4))).all()


def test_outliers_are_saved_and_loaded(tmp_path):
    model = fit(NOISY, noise=True)
    model.save(tmp_path / "model.npz")
    loaded, pickled = SpecialK.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))
    for again in (loaded, pickled):
        assert again.get_params()["noise"] is True
        np.testing.assert_array_equal(again.labels_, model.labels_)
        np.testing.assert_array_equal(again.outlier_scores_, model.outlier_scores_)
        np.testing.assert_array_equal(again.predict(NOISY + 0.1), model.predict(NOISY + 0.1))
        np.testing.assert_array_equal(again.labels_at(2), model.labels_at(2))
    loaded.set_params(noise=None)  # what is set after the fit changes no result
    np.testing.assert_array_equal(loaded.predict(NOISY), model.labels_)


def test_the_report_tells_of_outliers(tmp_path):
    model = fit(NOISY, noise=True)
    n = int((model.labels_ == -1).sum())
    model.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{n} rows, label -1" in text
    assert "outliers in grey" in text
    plain = fit(BLOBS)
    plain.report(tmp_path / "report.html")
    assert "label -1" not in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("noise", [0.5, -1, 0, "yes", np.nan])
def test_a_level_must_be_one_at_least(noise):
    with pytest.raises(ValueError, match="'noise' parameter of SpecialK must be"):
        fit(BLOBS, noise=noise)


def test_a_given_graph_has_no_outliers():
    W = knn_graph(BLOBS)
    with pytest.raises(
        ValueError, match="noise must be None with affinity='precomputed'.*, got 4 "
    ):
        fit(W, affinity="precomputed", noise=True)
    fit(W, affinity="precomputed", noise=False)
    anndata = pytest.importorskip("anndata")
    with pytest.raises(ValueError, match="noise must be None"):
        tl.specialk(
            anndata.AnnData(BLOBS, obsp={"connectivities": W}), obsp="connectivities", noise=2
        )
