"""New rows: the votes of the nearest fitted rows, on both backends."""

import warnings

import numpy as np
import pytest
from fits import fit
from oracles import sq_distances
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from specialk_gpu import GraphWarning, SpecialK, knn_graph
from specialk_gpu.graph import neighbors as module
from specialk_gpu.graph.neighbors import neighbors_among

BLOBS, _ = make_blobs(300, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)
normal = np.random.default_rng(5).normal
CASES = {
    "normal": (normal(size=(150, 5)), normal(size=(40, 5))),
    "float32": tuple(normal(size=(n, 40)).astype(np.float32) for n in (200, 30)),
    "grid": (np.stack(np.divmod(np.arange(36.0), 6), axis=1), normal(size=(20, 2)).round()),
    "far off": (normal(size=(100, 3)), normal(size=(7, 3)) + 1e6),
    "copies": (np.repeat(normal(size=(8, 2)), 20, axis=0), normal(size=(9, 2))),
    "fewer": (normal(size=(6, 2)), normal(size=(1, 2))),
}


# -- neighbours among other rows ------------------------------------------------------------------


@pytest.mark.parametrize("data", CASES)
@pytest.mark.parametrize("k", [1, 3, 6])
def test_neighbors_among_rows_are_their_definition(bk, data, k):
    X, queries = CASES[data]
    found = neighbors_among(bk.asarray(queries), bk.asarray(X), k)
    sq = sq_distances(np.concatenate([X, queries]))[len(X) :, : len(X)]
    expected = np.argsort(sq, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(bk.to_numpy(found.indices), expected)
    lengths = np.sqrt(np.take_along_axis(sq, expected, 1))
    np.testing.assert_allclose(bk.to_numpy(found.distances), lengths, rtol=1e-15)


def test_queries_are_searched_for_in_parts(bk, monkeypatch):
    monkeypatch.setattr(module, "QUERY_ROWS", 7)
    X, queries = normal(size=(5, 3)), normal(size=(40, 3))
    found = neighbors_among(bk.asarray(queries), bk.asarray(X), 5)
    sq = sq_distances(np.concatenate([X, queries]))[5:, :5]
    assert found.indices.shape == (40, 5)
    np.testing.assert_array_equal(bk.to_numpy(found.indices), np.argsort(sq, axis=1))


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (np.ones((2, 4)), 1, r"queries must have as many columns as X \(3\), got 4"),
        (
            np.ones((2, 3)),
            10,
            r"n_neighbors must lie between 1 and the number of rows \(9\), got 10",
        ),
        (np.full((2, 3), np.nan), 1, "contains NaN"),
        (np.ones((0, 3)), 1, "must have two dimensions, a row and a column"),
    ],
)
def test_queries_that_do_not_fit_are_refused(queries, k, message):
    with pytest.raises(ValueError, match=message):
        neighbors_among(queries, normal(size=(9, 3)), k)


@pytest.mark.parametrize("unit", [1e-170, 1.0, 1e120])
def test_a_huge_query_leaves_the_others_alone(bk, unit):
    X = normal(size=(60, 3))
    queries = X[:20] + 0.1
    expected = neighbors_among(queries, X, 5)
    huge = np.array([[1e170 * max(unit, 1), 0, 0]])
    given = np.concatenate([queries * unit, huge])
    found = neighbors_among(bk.asarray(given), bk.asarray(X * unit), 5)
    np.testing.assert_array_equal(bk.to_numpy(found.indices)[:20], expected.indices)
    lengths = bk.to_numpy(found.distances)
    np.testing.assert_allclose(lengths[:20] / unit, expected.distances, rtol=1e-12)
    np.testing.assert_allclose(lengths[20], huge[0, 0])


# -- votes ----------------------------------------------------------------------------------------


def shares_by_definition(model, X, queries, n):
    """Return the mean memberships of neighbours found by scikit-learn, mixed with equal shares."""
    search = NearestNeighbors(n_neighbors=n).fit(X)
    distances, indices = search.kneighbors(queries)
    spacing = search.kneighbors()[0][:, -1]
    far = distances[:, -1] / np.median(spacing[indices], axis=1)
    trust = np.minimum(1, (2 / far) ** 2)[:, None]
    return trust * model.membership_[indices].mean(axis=1) + (1 - trust) / model.n_clusters_


@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_new_rows_have_the_mean_membership_of_their_neighbours(bk, affinity):
    X, queries = normal(size=(400, 4)), normal(size=(90, 4))
    queries[::9] *= 4  # some are far away
    model = fit(X, bk, affinity=affinity, n_clusters=4, n_neighbors=7)
    expected = shares_by_definition(model, X, queries, 7)
    shares, labels = model.predict_proba(queries), model.predict(queries)
    assert (shares.dtype, labels.dtype) == (np.float64, np.int32)
    np.testing.assert_allclose(shares, expected, rtol=1e-12)
    votes = KNeighborsClassifier(7).fit(X, model.labels_).predict_proba(queries)
    agreed = votes.max(axis=1) == 1
    assert 0 < agreed.sum() < 90
    np.testing.assert_array_equal(labels[agreed], votes[agreed].argmax(axis=1))
    np.testing.assert_array_equal(labels, expected.argmax(axis=1))


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_shares_become_equal_with_distance(bk, criterion):
    X = BLOBS[:, :2]
    model = fit(X, bk, criterion=criterion, n_clusters=3)
    away = X[model.labels_ == 1].mean(axis=0) * [0, 1] - [30, 0]
    rows = np.array([[1e6, 1e6], [1e200, 0], away, 3 * away])
    shares = model.predict_proba(rows)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(shares[:2], 1 / 3, atol=1e-9)
    uneven = shares.max(axis=1) - 1 / 3
    assert uneven[2] > 4 * uneven[3] > 0
    labels = model.predict(rows)
    np.testing.assert_array_equal(labels[2:], shares[2:].argmax(axis=1))
    model.predict_proba(rows[:1] * 0 + 1e308)  # beyond all distances that are numbers


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_the_shares_of_a_fitted_row_are_its_membership(bk, criterion):
    X, _ = make_moons(250, noise=0.15, random_state=0)
    model = fit(X, bk, criterion=criterion, n_clusters=3)
    np.testing.assert_array_equal(model.predict_proba(X), model.membership_)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert (model.membership_.max(axis=1) < 1).any()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fitted_rows_keep_their_labels(bk, metric, dtype):
    X = load_digits().data.astype(dtype)[:400]
    model = fit(X, bk, n_clusters=6, metric=metric)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(X), model.membership_)
    np.testing.assert_array_equal(model.predict(X[5:6]), model.labels_[5:6])


def test_unit_rows_do_not_depend_on_layout_or_precision(bk):
    X = np.abs(normal(size=(250, 30)))
    model = fit(X, bk, metric="cosine", n_clusters=8)
    np.testing.assert_array_equal(model.predict(np.asfortranarray(X)), model.labels_)
    short = X.astype(np.float32)
    model = fit(short, bk, metric="cosine", n_clusters=8)
    np.testing.assert_array_equal(model.predict(short.astype(np.float64)), model.labels_)


def test_what_is_set_after_the_fit_changes_no_prediction(bk):
    queries = normal(size=(50, 3)) * 5
    model = fit(BLOBS, bk)
    before = model.predict_proba(queries)
    model.set_params(n_neighbors=1, metric="cosine", affinity="precomputed")
    np.testing.assert_array_equal(model.predict_proba(queries), before)


def test_copies_vote_once_and_keep_their_label(bk):
    X = np.repeat(BLOBS, 12, axis=0)
    model = fit(X, bk)
    assert model.n_clusters_ == 3
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(X), model.membership_)
    once = fit(BLOBS, bk)
    queries = BLOBS[:50] + 0.3
    expected = shares_by_definition(once, BLOBS, queries, 10)
    np.testing.assert_allclose(model.predict_proba(queries), expected, rtol=1e-9)


def test_equal_rows_with_several_labels_share_the_vote(bk):
    X = np.concatenate([BLOBS, BLOBS[:1]])
    model = fit(X, bk)
    labels = np.r_[model.labels_[:-1], (model.labels_[0] + 1) % 3]
    model._fit_labels, model.membership_ = bk.asarray(labels), bk.asarray(np.eye(3)[labels])
    shares = model.predict_proba(X[:1])
    assert sorted(shares[0].tolist()) == [0, 0.5, 0.5]
    assert model.predict(X[:1])[0] == np.flatnonzero(shares[0])[0]


def test_similarities_vote_in_proportion(bk):
    W = knn_graph(BLOBS)
    model = fit(W, bk, affinity="precomputed")
    assert model.n_clusters_ == 3
    new = np.zeros((2, 300))
    new[0, np.flatnonzero(model.labels_ == 2)[:3]] = 1.0
    new[0, np.flatnonzero(model.labels_ == 1)[0]] = 5.0
    new[1, np.flatnonzero(model.labels_ == 0)[7]] = 0.1
    expected = [[0, 5 / 8, 3 / 8], [1, 0, 0]]
    for S in (new, sparse.csr_array(new), sparse.coo_matrix(new)):
        np.testing.assert_allclose(model.predict_proba(S), expected)
        assert model.predict(S).tolist() == [1, 0]
    np.testing.assert_array_equal(model.predict(W), model.labels_)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (-1.0, "finite and not negative, got -1.0 at row 1, column 4"),
        (np.nan, "finite and not negative, got nan at row 1, column 4"),
    ],
)
def test_similarities_that_mean_nothing_are_refused(bk, entry, message):
    model = fit(knn_graph(BLOBS), bk, affinity="precomputed")
    S = np.zeros((2, 300))
    S[0, 3], S[1, 4] = 1, entry
    with pytest.raises(ValueError, match=message):
        model.predict(S)


def test_huge_similarities_stay_finite(bk):
    model = fit(knn_graph(BLOBS), bk, affinity="precomputed")
    S = np.full((2, 300), 1.7e308)
    shares = model.predict_proba(S)
    np.testing.assert_allclose(shares, np.full((2, 3), 1 / 3))


@pytest.mark.parametrize("exponent", [-1000, -300, 0, 300])
def test_shares_do_not_depend_on_the_order_in_which_similarities_are_added(bk, exponent):
    rng = np.random.default_rng(5)
    model = fit(knn_graph(BLOBS), bk, affinity="precomputed")
    S = 10.0 ** rng.uniform(-9, 0, size=(7, 300))
    shares = model.predict_proba(np.ldexp(S, exponent))
    for _ in range(3):
        np.testing.assert_array_equal(model.predict_proba(np.ldexp(S, exponent)), shares)
    expected = np.stack([S[:, model.labels_ == c].sum(axis=1) for c in range(3)], axis=1)
    np.testing.assert_allclose(shares, expected / S.sum(axis=1)[:, None], rtol=1e-12)


@pytest.mark.parametrize("isolated", [True, False])
def test_rows_without_similarity_go_where_isolated_rows_go(bk, isolated):
    W = knn_graph(BLOBS).toarray()
    if isolated:
        W[4] = W[:, 4] = 0
    model = fit(W, bk, affinity="precomputed")
    with pytest.warns(GraphWarning, match="1 of 2 rows have no similarity"):
        label, other = model.predict(np.stack([0 * W[0], W[9]]))
    with pytest.warns(GraphWarning, match="1 of 1 rows have no similarity"):
        shares = model.predict_proba(0 * W[:1])
    np.testing.assert_array_equal(shares, np.full((1, model.n_clusters_), 1 / model.n_clusters_))
    assert other == model.labels_[9]
    means = [model.embedding_[model.labels_ == c].mean(axis=0) for c in range(model.n_clusters_)]
    nearest = np.argmin(np.linalg.norm(means, axis=1))
    assert label == (model.labels_[4] if isolated else nearest)


# -- scikit-learn's rules -------------------------------------------------------------------------


def test_the_model_must_be_fitted():
    for method in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError, match="SpecialK instance is not fitted yet"):
            getattr(SpecialK(), method)(BLOBS)


def test_columns_must_be_those_of_the_fit():
    model = fit(BLOBS)
    with pytest.raises(ValueError, match="X has 2 features, but SpecialK is expecting 3"):
        model.predict(BLOBS[:, :2])
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(np.full((1, 3), np.nan))
    with pytest.raises(ValueError, match="must be numeric, got text"):
        model.predict([["a", "b", "c"]])


def test_pipelines_scale_new_rows_too():
    pipeline = make_pipeline(StandardScaler(), SpecialK(backend="numpy", random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        labels = pipeline.fit_predict(BLOBS * [1, 100, 1])
    np.testing.assert_array_equal(pipeline.predict(BLOBS * [1, 100, 1]), labels)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_grid_search_takes_a_scorer_without_labels():
    def agreement(model, X):
        return model.predict_proba(X).max(axis=1).mean()

    X, _ = make_moons(300, noise=0.05, random_state=0)
    model = SpecialK(backend="numpy", random_state=0, n_components=40)
    search = GridSearchCV(model, {"alpha": [1e-4, 0.01]}, scoring=agreement, cv=KFold(3))
    search.fit(X)
    assert search.best_params_["alpha"] in (1e-4, 0.01)
    assert search.best_score_ > 0.9
    assert search.predict(X).shape == (300,)


def test_cosine_does_not_see_lengths(bk):
    directions = np.random.default_rng(2).normal(size=(3, 20))
    X = np.repeat(directions, 100, axis=0) + 0.1 * normal(size=(300, 20))
    lengths = 10.0 ** np.random.default_rng(3).uniform(-3, 3, size=(300, 1))
    model = fit(X * lengths, bk, metric="cosine")
    assert model.n_clusters_ == 3
    assert np.unique(model.labels_.reshape(3, 100), axis=1).shape == (3, 1)
    np.testing.assert_array_equal(model.predict(7 * directions), model.labels_[::100])
    unit = X / np.linalg.norm(X, axis=1)[:, None]
    np.testing.assert_array_equal(fit(X, bk, metric="cosine").labels_, fit(unit, bk).labels_)
    with pytest.raises(ValueError, match="rows that are not zero, got 1 zero rows, .* row 2"):
        fit(np.r_[X[:2], np.zeros((1, 20)), X], bk, metric="cosine")


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1.0, 1e300])
def test_shares_of_a_row_do_not_depend_on_the_other_rows(bk, scale):
    X = np.random.default_rng(0).random((40, 2))
    W = knn_graph(X, 8)
    settings = {"affinity": "precomputed", "n_clusters": 3, "random_state": 0}
    model = SpecialK(backend=bk.name, **settings).fit(W)
    row = W[:1].toarray()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as that no row of the fit is like it
        alone, together = (model.predict_proba(S) for S in (row, np.r_[row * scale, row * 1e300]))
    np.testing.assert_allclose(together, np.r_[alone, alone], rtol=1e-12)
