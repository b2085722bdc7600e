"""Neighbours from elsewhere: lists, transformers and graphs of distances, against exact ones."""

import sys
import warnings

import numpy as np
import pytest
from oracles import nearest, sq_distances
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.neighbors import KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from specialk_gpu import (
    DuplicateRowsWarning,
    ExactNeighborsTransformer,
    GraphWarning,
    SpecialK,
    neighbors_graph,
)
from specialk_gpu.backend import cpu
from specialk_gpu.graph.neighbor_lists import NeighborLists, neighbor_lists
from specialk_gpu.graph.recall import Recall, measured_recall

X, _ = make_blobs(400, centers=5, n_features=4, random_state=3)
DISTANCES, INDICES = nearest(X, 30)


def fitted(bk, X=X, **parameters):
    return SpecialK(backend=bk.name, random_state=0, **parameters).fit(X)


def assert_same_fit(one, other):
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.eigenvalues_, other.eigenvalues_)
    difference = abs(one.affinity_matrix_ - other.affinity_matrix_)
    assert difference.max() == 0
    assert one.n_clusters_ == 5


def shuffled_with_gaps(indices):
    """Return longer lists in random order, with the row itself and -1 among them."""
    rng, m = np.random.default_rng(0), len(indices)
    longer = np.concatenate([indices, np.arange(m)[:, None], np.full((m, 3), -1)], axis=1)
    return rng.permuted(longer, axis=1)


class Lists(KNeighborsTransformer):
    """A transformer of another library: it lists the row itself, and misses every fourth row."""

    def fit_transform(self, X, y=None):  # noqa: ARG002
        more = KNeighborsTransformer(n_neighbors=self.n_neighbors + 20)
        graph = more.fit_transform(X).tolil()
        graph[:, ::4] = 0
        return graph.tocsr()


@pytest.mark.parametrize(
    "neighbors",
    [
        (INDICES, DISTANCES),
        (shuffled_with_gaps(INDICES), None),
        KNeighborsTransformer(),
        KNeighborsTransformer(n_neighbors=2, mode="connectivity"),
    ],
    ids=["lists", "shuffled", "transformer", "connectivity"],
)
def test_exact_neighbours_from_elsewhere_give_the_same_fit(bk, neighbors):
    found = fitted(bk, neighbors=neighbors)
    assert_same_fit(found, fitted(bk))
    assert found.recall_ == Recall(1.0, 1.0, 1.0, 400)
    assert fitted(bk).recall_ is None


def test_transformers_get_scaled_rows_for_the_cosine():
    transformer = KNeighborsTransformer()
    rows = X + [30, 0, 0, 0]
    found = fitted(cpu, rows, metric="cosine", neighbors=transformer)
    expected = fitted(cpu, rows, metric="cosine")
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert found.recall_.value == 1
    assert not hasattr(transformer, "n_samples_fit_")  # a clone of it was fitted


@pytest.mark.parametrize("n", [3, 10])
def test_short_lists_are_completed_by_neighbours_of_neighbours(bk, n):
    found = fitted(bk, n_neighbors=n, neighbors=(INDICES[:, :10], None))
    assert_same_fit(found, fitted(bk, n_neighbors=n))
    assert found.recall_.value == 1  # of the neighbours in the graph


def test_a_few_rows_without_lists_are_searched_exactly(bk):
    lists = INDICES.copy()
    lists[::20] = -1
    assert_same_fit(fitted(bk, neighbors=(lists, None)), fitted(bk))


def test_lists_are_measured_by_our_distances_and_ties_go_to_the_smaller_number(bk):
    line = np.arange(40.0)[:, None]
    lists = (np.arange(40)[:, None] + [1, -2, 2, -1, 3, -3]) % 40
    source = NeighborLists(lambda X, n: lists, 4)  # noqa: ARG005
    squares, indices, n_redone = source.search(bk, bk.asarray(line), 2)
    expected, numbers = nearest(line, 4)
    np.testing.assert_array_equal(bk.to_numpy(indices)[3:-3], numbers[3:-3])
    np.testing.assert_array_equal(bk.to_numpy(squares)[3:-3], expected[3:-3] ** 2)
    assert n_redone == 0


@pytest.mark.parametrize("m", [600, 1000, 1500])
def test_recall_is_the_share_of_exact_neighbours_in_the_lists(bk, m):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(m, 3))
    exact = np.sort(sq_distances(rows), axis=1)[:, 1:16]
    chosen = np.sort(np.argsort(rng.random((m, 15)), axis=1)[:, :12], axis=1)  # twelve of fifteen
    squares = np.take_along_axis(exact, chosen, axis=1)
    found = measured_recall(bk, bk.asarray(rows), bk.asarray(squares), [5, 12])
    for k, recall in zip((5, 12), found, strict=True):
        truth = (chosen[:, :k] < k).mean()
        assert recall.low - 1e-12 <= truth <= recall.high + 1e-12
        if m <= 1000:
            assert recall == (pytest.approx(truth, abs=1e-12),) * 3 + (m,)
        else:
            assert recall.n_rows == 1000
            assert abs(recall.value - truth) < 0.02
            assert 0.005 < recall.high - recall.low < 0.06


def test_a_row_as_near_as_the_last_exact_neighbour_counts_as_one(bk):
    grid = np.stack(np.divmod(np.arange(400), 20), axis=1).astype(float)
    squares = np.sort(sq_distances(grid), axis=1)[:, 1:4]  # any of those as near as the last
    (recall,) = measured_recall(bk, bk.asarray(grid), bk.asarray(squares), [3])
    assert recall.value == 1


def test_a_low_recall_is_told_with_its_interval_and_only_below_the_limit():
    with pytest.warns(GraphWarning, match=r"of the \d+ nearest .* hold \d\d\.\d% \(95 % interval"):
        found = fitted(cpu, neighbors=Lists())
    truth = (INDICES[:, :10] % 4 != 0).mean()  # the rows in between are found, and no others
    assert found.recall_.value == pytest.approx(truth, abs=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(cpu, neighbors=Lists(), min_recall=0.5)
        fitted(cpu, neighbors=(INDICES[:, ::-1][:, :12], None), criterion="zz_top", min_recall=0)


def test_lists_serve_duplicates_and_their_representatives(bk):
    twice = np.concatenate([X, X[:100]])
    lists = nearest(twice, 30)[1]
    assert_same_fit(fitted(bk, twice, neighbors=(lists, None)), fitted(bk, twice))
    crowded = np.concatenate([X, np.repeat(X[:3], 100, axis=0)])
    lists = nearest(crowded, 300)[1]
    with pytest.warns(DuplicateRowsWarning):
        found = fitted(bk, crowded, neighbors=(lists, None))
    with pytest.warns(DuplicateRowsWarning):
        assert_same_fit(found, fitted(bk, crowded))
    with pytest.warns(DuplicateRowsWarning):
        found = fitted(bk, crowded, neighbors=KNeighborsTransformer())
    assert found.n_clusters_ == 5


def test_copies_far_from_all_others_stay_a_cluster_with_lists():
    rows = np.concatenate([X, np.full((80, 4), 500.0)])
    with pytest.warns(DuplicateRowsWarning):
        expected = fitted(cpu, rows)
    with pytest.warns(DuplicateRowsWarning):
        found = fitted(cpu, rows, neighbors=(nearest(rows, 100)[1], None))
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert expected.n_clusters_ == 6


def test_numbers_too_large_to_square_are_searched_in_lists_too():
    found = fitted(cpu, X * 1e200, neighbors=(INDICES, None))
    np.testing.assert_array_equal(found.labels_, fitted(cpu).labels_)
    assert found.recall_.value == 1


@pytest.mark.parametrize(
    ("neighbors", "error", "message"),
    [
        ((INDICES[:-1], None), ValueError, "must name neighbours of 400 rows, those of X, got 399"),
        (
            (INDICES * 1.0, None),
            TypeError,
            "the indices in neighbors must be integers, got dtype float64",
        ),
        ((INDICES + 1, None), ValueError, r"below the number of rows \(400\), got 400"),
        ((INDICES[:, 0], None), ValueError, r"two rows and a column at least, got shape \(400,\)"),
        ((INDICES[:, [0, 1, 0]], None), ValueError, "each neighbour of a row once"),
        ((INDICES,), ValueError, r"must be \(indices, distances\), got a tuple of 1"),
        (
            (INDICES[:, :2], None),
            ValueError,
            r"list 30 others of each row.* suffice for \d+ of 400",
        ),
        (([[1, 2], [0]], None), ValueError, "indices in neighbors must be an array; fill up"),
        (StandardScaler(), ValueError, "transformer with a parameter n_neighbors, got a StandardS"),
        (KNeighborsTransformer, TypeError, "neighbors must be a transformer with a parameter"),
        ("given", ValueError, "lists that a saved model does not hold"),
        ("nearest", ValueError, "neighbors"),
        (3, ValueError, "neighbors"),
    ],
)
def test_lists_that_are_none_are_refused(neighbors, error, message):
    with pytest.raises(error, match=message):
        fitted(cpu, neighbors=neighbors)


def test_a_transformer_that_returns_no_graph_is_refused():
    class Dense(KNeighborsTransformer):
        def fit_transform(self, X, y=None):
            return super().fit_transform(X, y).toarray()

    with pytest.raises(ValueError, match=r"sparse graph of shape \(400, 400\), got a ndarray"):
        fitted(cpu, neighbors=Dense())


class Odd(KNeighborsTransformer):
    """A transformer that changes the columns of a graph of `n_neighbors` + 1 entries a row."""

    def fit_transform(self, X, y=None):  # noqa: ARG002
        graph = KNeighborsTransformer(n_neighbors=self.n_neighbors).fit_transform(X)
        columns = self.changed(graph.indices.reshape(len(X), -1))
        ends = np.arange(0, columns.size + 1, columns.shape[1])
        data = np.ones(columns.size)
        return sparse.csr_matrix((data, columns.ravel(), ends), shape=graph.shape)


class Repeats(Odd):
    def changed(self, columns):
        return np.concatenate([columns, columns[:, 1:4]], axis=1)


class FillsUp(Odd):
    def changed(self, columns):
        return np.concatenate([columns, np.full((len(columns), 3), -1)], axis=1)


class OutOfRange(Odd):
    def changed(self, columns):
        return columns + 1


@pytest.mark.parametrize("transformer", [Repeats(), FillsUp()])
def test_entries_that_repeat_count_once_and_minus_one_means_none(bk, transformer):
    source = neighbor_lists(transformer, 400, 30)
    squares, indices, n_redone = source.search(bk, bk.asarray(X), 30)
    np.testing.assert_array_equal(bk.to_numpy(indices), INDICES)
    np.testing.assert_array_equal(np.sqrt(bk.to_numpy(squares)), DISTANCES)
    assert n_redone == 0


def test_a_graph_that_names_rows_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"from neighbors \(OutOfRange\) .* 0 to 399, got 400"):
        fitted(cpu, neighbors=OutOfRange())


@pytest.mark.parametrize(
    "neighbors", [(np.arange(1, 21)[:, None] % 20, None), KNeighborsTransformer()]
)
def test_equal_rows_need_no_neighbours(neighbors):
    with pytest.warns(DuplicateRowsWarning):
        found = fitted(cpu, np.ones((20, 3)), neighbors=neighbors)
    assert found.n_clusters_ == 1
    assert found.recall_ == Recall(1.0, 1.0, 1.0, 1)


@pytest.mark.parametrize("affinity", ["radius_neighbors", "precomputed"])
def test_only_the_graph_of_nearest_neighbours_takes_lists(affinity):
    with pytest.raises(ValueError, match=r"neighbors must be 'exact' with affinity="):
        fitted(cpu, affinity=affinity, neighbors=(INDICES, None))


@pytest.mark.parametrize("weights", ["connectivity", "distance"])
@pytest.mark.parametrize("given", ["transformer", "kneighbors"])
def test_a_graph_of_distances_gives_the_graph_of_its_nearest_neighbours(bk, given, weights):
    graph = KNeighborsTransformer(n_neighbors=14).fit_transform(X)
    if given == "kneighbors":  # without the rows themselves
        graph = sparse.csr_matrix(graph)
        graph.setdiag(0)
        graph.eliminate_zeros()
    model = fitted(bk, graph, affinity="precomputed_nearest_neighbors", weights=weights)
    expected = neighbors_graph(INDICES[:, :10], DISTANCES[:, :10], weights=weights)
    np.testing.assert_allclose(model.affinity_matrix_.toarray(), expected.toarray(), rtol=1e-12)
    assert model.n_clusters_ == 5
    by_graph = fitted(bk, expected, affinity="precomputed")
    np.testing.assert_array_equal(model.labels_, by_graph.labels_)


def test_repeated_entries_of_a_graph_of_distances_are_summed_and_the_graph_stays_as_it_was():
    graph = KNeighborsTransformer(n_neighbors=14).fit_transform(X)
    row, ends = graph.indices.reshape(400, 15), np.arange(0, 400 * 30 + 1, 30)
    columns, data = np.repeat(row, 2, axis=1).ravel(), np.repeat(graph.data / 2, 2)
    halves = sparse.csr_matrix((data, columns, ends), shape=graph.shape)
    expected = fitted(cpu, graph, affinity="precomputed_nearest_neighbors")
    assert_same_fit(fitted(cpu, halves, affinity="precomputed_nearest_neighbors"), expected)
    np.testing.assert_array_equal(halves.indices, np.repeat(row, 2, axis=1).ravel())
    with pytest.raises(AttributeError, match="no outlier_scores_ for a given graph"):
        expected.outlier_scores_  # noqa: B018


def test_new_rows_are_predicted_by_their_distances_to_the_fitted(bk):
    search = KNeighborsTransformer(n_neighbors=14).fit(X[:300])
    model = SpecialK(affinity="precomputed_nearest_neighbors", backend=bk.name, random_state=0).fit(
        search.transform(X[:300])
    )
    found = model.predict(search.transform(X[300:]))
    labels = nearest_label(X[300:], X[:300], model.labels_)
    np.testing.assert_array_equal(found, labels)
    far = sparse.csr_matrix(np.where(np.arange(300) < 12, np.arange(300) + 1.0, 0)[None])
    shares = model.predict_proba(far)
    np.testing.assert_allclose(shares[0], model.membership_[:10].mean(axis=0))  # the ten nearest


def nearest_label(queries, rows, labels):
    return labels[((queries[:, None] - rows) ** 2).sum(axis=2).argmin(axis=1)]


@pytest.mark.parametrize(
    ("graph", "error", "message"),
    [
        (np.ones((20, 20)), TypeError, "expects a sparse matrix of distances"),
        (sparse.eye(20, format="csr"), ValueError, "to n_neighbors=10 others, got 0 for row 0"),
        (sparse.csr_matrix(-np.ones((20, 20))), ValueError, "distances must be finite"),
        (sparse.csr_matrix(np.full((20, 20), np.inf)), ValueError, "distances must be finite"),
        (sparse.csr_matrix(np.ones((20, 30))), ValueError, r"square .*got shape \(20, 30\)"),
    ],
)
def test_what_is_no_graph_of_distances_is_refused(graph, error, message):
    with pytest.raises(error, match=message):
        fitted(cpu, graph, affinity="precomputed_nearest_neighbors")


def test_a_saved_model_keeps_its_recall_and_says_that_neighbours_were_given(tmp_path):
    model = SpecialK(neighbors=(INDICES, None), backend="numpy", random_state=0).fit(X)
    model.save(tmp_path / "model.npz")
    again = SpecialK.load(tmp_path / "model.npz")
    assert again.recall_ == model.recall_
    assert isinstance(again.recall_, Recall)
    assert again.neighbors == "given"
    np.testing.assert_array_equal(again.predict(X), model.labels_)
    with pytest.raises(ValueError, match="does not hold"):
        again.fit(X)
    assert clone(model).fit(X).recall_ == model.recall_


def test_stability_keeps_the_neighbours_and_the_order_of_given_lists():
    model = SpecialK(neighbors=(INDICES, None), backend="numpy", random_state=0).fit(X)
    found = model.stability(X, n_refits=1)
    assert {refit.kind for refit in found.refits} == {"n_neighbors", "random_state"}
    with pytest.raises(ValueError, match="for given neighbours"):
        model.stability(X, kinds=["sample"])
    model = SpecialK(neighbors=KNeighborsTransformer(), backend="numpy", random_state=0).fit(X)
    assert model.stability(X, kinds=["sample"], n_refits=1).refits[0].k == 5


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("d", [2, 12])
def test_our_transformer_returns_what_that_of_scikit_learn_does(bk, mode, d):
    rows = np.random.default_rng(d).normal(size=(300, d))
    ours = ExactNeighborsTransformer(n_neighbors=7, mode=mode, backend=bk.name)
    theirs = KNeighborsTransformer(n_neighbors=7, mode=mode)
    for one, other in (
        (ours.fit_transform(rows), theirs.fit_transform(rows)),
        (ours.fit(rows[:200]).transform(rows), theirs.fit(rows[:200]).transform(rows)),
    ):
        assert one.shape == other.shape
        np.testing.assert_allclose(one.toarray(), other.toarray(), atol=1e-7)
        np.testing.assert_array_equal(np.diff(one.indptr), np.diff(other.indptr))


def test_our_transformer_lists_each_row_first_even_among_equal_rows(bk):
    rows = np.zeros((9, 2))
    graph = ExactNeighborsTransformer(n_neighbors=3, backend=bk.name).fit_transform(rows)
    np.testing.assert_array_equal(graph.indices.reshape(9, 4)[:, 0], np.arange(9))
    assert np.diff(graph.indptr).tolist() == [4] * 9
    one = ExactNeighborsTransformer(1, mode="connectivity", backend=bk.name).fit_transform(X[:5])
    np.testing.assert_array_equal(one.toarray(), np.eye(5))


def test_the_cosine_of_our_transformer_is_that_of_scikit_learn(bk):
    ours = ExactNeighborsTransformer(n_neighbors=5, metric="cosine", backend=bk.name)
    theirs = KNeighborsTransformer(n_neighbors=5, metric="cosine")
    np.testing.assert_allclose(
        ours.fit_transform(X).toarray(), theirs.fit_transform(X).toarray(), atol=1e-12
    )


def test_a_pipeline_of_our_transformer_and_a_graph_of_distances(bk):
    model = make_pipeline(
        ExactNeighborsTransformer(backend=bk.name),
        SpecialK(affinity="precomputed_nearest_neighbors", backend=bk.name, random_state=0),
    )
    labels = model.fit_predict(X)
    direct = SpecialK(affinity="precomputed", backend=bk.name, random_state=0).fit_predict(
        neighbors_graph(INDICES[:, :10])
    )
    np.testing.assert_array_equal(labels, direct)


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_our_transformer_passes_the_checks_of_scikit_learn(mode):
    transformer = ExactNeighborsTransformer(n_neighbors=3, mode=mode, backend="numpy")
    results = check_estimator(transformer, on_skip=None, on_fail=None)
    failed = [one for one in results if one["status"] == "failed"]
    assert not failed
    assert len(results) > 30


@pytest.mark.parametrize(("mode", "most"), [("distance", 4), ("connectivity", 5)])
def test_our_transformer_refuses_more_neighbours_than_there_are(mode, most):
    for n in (0, most + 1):
        with pytest.raises(ValueError, match="n_neighbors"):
            ExactNeighborsTransformer(n, mode=mode, backend="numpy").fit(X[:5])
    assert (
        ExactNeighborsTransformer(most, mode=mode, backend="numpy").fit_transform(X[:5]).nnz == 25
    )


@pytest.mark.parametrize("wrong", [{"mode": "both"}, {"metric": "cityblock"}, {"backend": "tpu"}])
def test_our_transformer_refuses_what_it_does_not_know(wrong):
    with pytest.raises(ValueError, match=f"'{next(iter(wrong))}' parameter of Exact"):
        ExactNeighborsTransformer(3, **wrong).fit(X)


def test_pynndescent_serves_as_the_approximate_search():
    pytest.importorskip("pynndescent")
    model = SpecialK(neighbors="approximate", backend="numpy", random_state=0).fit(X)
    assert model.recall_.value > 0.95
    assert model.n_clusters_ == 5


def test_a_missing_pynndescent_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(ImportError, match=r"pip install 'specialk-gpu\[approximate\]'"):
        SpecialK(neighbors="approximate", backend="numpy").fit(X)


def test_scanpy_takes_our_transformer():
    sc = pytest.importorskip("scanpy", reason="needs scanpy, which no extra installs")
    one, other = sc.AnnData(X.astype(np.float32)), sc.AnnData(X.astype(np.float32))
    ours = ExactNeighborsTransformer(n_neighbors=15, backend="numpy")
    sc.pp.neighbors(one, n_neighbors=15, use_rep="X", transformer=ours)
    sc.pp.neighbors(other, n_neighbors=15, use_rep="X", transformer="sklearn")
    difference = one.obsp["connectivities"] - other.obsp["connectivities"]
    assert abs(difference).max() < 1e-4
