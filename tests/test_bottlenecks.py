"""The calibrated p: cuts by definition, pieces, graphs that are known, and where nothing is."""

import itertools
import math
import warnings

import numpy as np
import pytest
from oracles import to_scipy
from scipy import sparse
from scipy.stats import norm
from sklearn.datasets import load_digits, make_blobs, make_moons, make_swiss_roll

from specialk_gpu import CalibrationWarning, SpecialK, knn_graph, sweep
from specialk_gpu.bottlenecks import (
    SURE,
    THIN,
    WIDE,
    Bottlenecks,
    borders,
    leaps,
    log_p_of,
    log_p_of_gap,
    null_law,
)
from specialk_gpu.sections import CERTAIN, N_STEPS, prepare, profile, sections_of

CENTERS = np.array([(0, 0), (4, 0), (0, 4)])
BLOBS, _ = make_blobs(240, centers=CENTERS, random_state=3)
BLOBS_Y = np.argmin(((BLOBS[:, None] - CENTERS) ** 2).sum(axis=2), axis=1)  # without strays


def calibrated(X, backend="numpy", **settings):
    settings = {"selection": "calibrated", "random_state": 0, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(backend=backend, **settings).fit(X)


def graph_of(bk, W):
    return bk.sparse.csr_matrix(sparse.csr_matrix(W))


def found(bk, W, labels, k):
    return Bottlenecks(graph_of(bk, W)).widest(bk.asarray(labels, dtype=np.int32), k)


def dense_cuts(W, labels, i, j):
    """Return the cuts of a pair, in the order of the walker's chance of ending in j, densely."""
    W = W.toarray() if sparse.issparse(W) else W
    degree = W.sum(axis=1)
    S = W / np.sqrt(np.outer(degree, degree))
    walk = 0.5 * (np.eye(len(W)) + S / S.sum(axis=1)[:, None])
    F = np.linalg.matrix_power(walk, N_STEPS) @ np.eye(labels.max() + 1)[labels]
    rows = np.flatnonzero((labels == i) | (labels == j))
    f = F[rows, j] / (F[rows, i] + F[rows, j])
    rows, f = rows[np.argsort(f, kind="stable")], np.sort(f)
    cuts = [S[np.ix_(rows[:t], rows[t:])].sum() for t in range(1, rows.size)]
    known = (np.diff(f) > 1e-14) & (f[1:] > CERTAIN) & (f[:-1] < 1 - CERTAIN)
    return np.array(cuts), known, S


# -- the definition -------------------------------------------------------------------------------


def test_cuts_are_their_definition(bk):
    W = knn_graph(BLOBS)
    expected = []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        cuts, known, S = dense_cuts(W, BLOBS_Y, i, j)
        border = int((i == BLOBS_Y).sum()) - 1
        cuts[~known] = 0
        within = min(cuts[: border + 1].max(), cuts[border:].max())
        between = S[np.ix_(i == BLOBS_Y, j == BLOBS_Y)].sum()
        if cuts[border] > 0:
            between = max(min(between, cuts[border]), between / 2)
        length = ((i == BLOBS_Y) | (j == BLOBS_Y)).sum() / within
        log_p = log_p_of(between, within, length, "graph")
        expected.append((min(0, log_p + math.log(2)), (i, j), between, within, length))
    result = found(bk, W, BLOBS_Y, 3)
    largest = max(expected)
    assert result.pair == largest[1]
    np.testing.assert_allclose(result[2:5], largest[2:], rtol=1e-9)
    np.testing.assert_allclose(result.log_p, largest[0], rtol=1e-6, atol=1e-9)


def test_the_profile_is_cuts_and_where_they_are(bk):
    W = knn_graph(BLOBS)
    labels = bk.asarray(BLOBS_Y, dtype=np.int32)
    position, weight = profile(labels, 3, prepare(graph_of(bk, W)), (0, 2))
    cuts, known, _ = dense_cuts(W, BLOBS_Y, 0, 2)
    at = np.flatnonzero(known)
    np.testing.assert_array_equal(bk.to_numpy(position), at + 1 - (BLOBS_Y == 0).sum())
    np.testing.assert_allclose(bk.to_numpy(weight), cuts[at], rtol=1e-9)


@pytest.mark.parametrize("factor", [1e-9, 1.0, 1e9])
def test_the_unit_of_the_similarities_does_not_matter(bk, factor):
    W = knn_graph(BLOBS)
    np.testing.assert_allclose(
        found(bk, W * factor, BLOBS_Y, 3)[2:6], found(bk, W, BLOBS_Y, 3)[2:6], rtol=1e-9
    )


def test_the_graph_is_not_changed(bk):
    W = graph_of(bk, knn_graph(BLOBS))
    before = W.data.copy()
    Bottlenecks(W).widest(bk.asarray(BLOBS_Y, dtype=np.int32), 3)
    assert bool((W.data == before).all())


def test_sums_of_similarities_are_exact_in_any_order(bk):
    W = graph_of(bk, knn_graph(BLOBS))
    graph = prepare(W)
    S = to_scipy(bk, graph.S)
    np.testing.assert_array_equal(S.data * 2.0**31, np.rint(S.data * 2.0**31))
    degrees = [math.fsum(S.data[a:b]) for a, b in itertools.pairwise(S.indptr)]
    np.testing.assert_array_equal(bk.to_numpy(graph.step)[:, 0], 0.5 / np.array(degrees))
    assert len({found(bk, knn_graph(BLOBS), BLOBS_Y, 3) for _ in range(3)}) == 1
    assert len({Bottlenecks(W).least_neighbors for _ in range(20)}) == 1


def complete(size, bridges):
    """Return two complete graphs with weights around 1, and edges from one to the other."""
    noise = np.random.default_rng(0).random((size, size))
    W = np.kron(np.eye(2), (0.9 + 0.1 * (noise + noise.T)) * (1 - np.eye(size)))
    for i in range(bridges):
        W[i, size:] = W[size:, i] = 1
    return W


def test_a_bridge_between_complete_graphs_is_a_bottleneck(bk):
    labels = np.repeat([0, 1], 40)
    one, many = (found(bk, complete(40, bridges), labels, 2) for bridges in (1, 40))
    assert one.between < 1 < 8 < one.within  # of ten, for halves of forty
    assert one.log_p < math.log(1e-6)
    np.testing.assert_allclose(many.log_p, 0, atol=1e-4)  # all is one graph


def test_no_border_of_a_ring_is_a_bottleneck(bk):
    m = 400
    W = sum(np.roll(np.eye(m), shift, axis=1) for shift in (-3, -2, -1, 1, 2, 3))
    result = found(bk, W, np.arange(m) * 2 // m, 2)
    np.testing.assert_allclose(result.between, 2 * 6 / 6)  # 1 + 2 + 3 edges at each of two borders
    np.testing.assert_allclose(result.within, result.between, rtol=1e-6)
    np.testing.assert_allclose(result.log_p, 0, atol=1e-4)


# -- pieces ---------------------------------------------------------------------------------------


def test_a_cluster_that_falls_apart_is_tested_piece_by_piece(bk):
    m = 400
    W = sum(np.roll(np.eye(m), shift, axis=1) for shift in (-3, -2, -1, 1, 2, 3))
    result = found(bk, W, np.arange(m) * 8 // m % 2, 2)
    np.testing.assert_allclose(result.between, 1)  # of eight borders, one
    assert result.pair == (0, 1)


def test_strays_go_to_the_piece_around_them(bk):
    X, y = make_moons(600, noise=0.05, random_state=0)
    W = knn_graph(X)
    clean, strayed = np.asarray(y), np.array(y)
    deep = np.flatnonzero((y == 0) & (X[:, 1] > 0.9))[::7]
    strayed[deep] = 1
    one, other = found(bk, W, clean, 2), found(bk, W, strayed, 2)
    np.testing.assert_allclose(other.within, one.within, rtol=0.2)
    assert other.between <= one.between + 0.1
    assert other.log_p < math.log(0.05)


def test_what_no_edge_joins_is_compared_with_its_own_cut(bk):
    path = np.eye(50, k=1) + np.eye(50, k=-1)
    result = found(bk, np.kron(np.eye(2), path), np.repeat([0, 1], 50), 2)
    assert result.between == 0
    # the heaviest cut of a path is next to an end, whose degree is 1 where others have 2
    np.testing.assert_allclose(result.within, 1 / np.sqrt(2))
    np.testing.assert_allclose(result.length, 100 * np.sqrt(2))
    assert result.log_p > math.log(0.1)  # threads break by chance
    halves = found(bk, complete(40, 0), np.repeat([0, 1], 40), 2)
    np.testing.assert_allclose(halves.within, 400 / 39, rtol=0.05)
    assert halves.log_p < math.log(1e-4)


@pytest.mark.parametrize("weight", [0, 1e-12, 1e-6, 1e-4, 1e-3])
def test_a_weak_bridge_is_no_better_than_a_little_stronger_one(bk, weight):
    W = complete(40, 0)
    W[0, 40] = W[40, 0] = weight
    assert found(bk, W, np.repeat([0, 1], 40), 2).log_p < math.log(1e-3)


def test_the_own_cut_is_of_one_component(bk):
    parts = np.kron(np.eye(6), complete(20, 0)[:20, :20])
    result = found(bk, parts, np.repeat([0, 1], 60), 2)
    np.testing.assert_allclose(result.within, 100 / 19, rtol=0.05)  # of twenty rows, not of sixty


def test_the_own_cuts_of_two_parts_are_not_mixed_up(bk):
    """The rows of both parts are as many, begin alike and have the same sum."""
    W = np.zeros((6, 6))
    for i, j in ((0, 1), (1, 5), (0, 5), (0, 2), (2, 4)):
        W[i, j] = W[j, i] = 1
    graph = prepare(graph_of(bk, W))
    widths = []
    for part in ((0, 1, 5), (0, 2, 4)):
        labels = bk.asarray(np.isin(np.arange(6), part), dtype=np.int32)
        sections = sections_of(graph, labels, 2)
        i = int(np.flatnonzero(sections.owner == 1)[0])
        fresh = sections_of(prepare(graph_of(bk, W)), labels, 2)
        assert sections.own_width(i) == fresh.own_width(i)
        widths.append(sections.own_width(i))
    assert widths[0] != widths[1]


@pytest.mark.parametrize("loop", [0.1, 5.0])
def test_similarities_of_a_row_to_itself_do_not_count(bk, loop):
    W = knn_graph(BLOBS)
    loops = found(bk, W + loop * sparse.eye(240), BLOBS_Y, 3)
    np.testing.assert_allclose(loops[2:6], found(bk, W, BLOBS_Y, 3)[2:6], rtol=1e-9)


def test_rows_without_edges_are_no_cluster(bk):
    W = np.zeros((60, 60))
    W[:40, :40] = np.ones((40, 40)) - np.eye(40)
    assert found(bk, W, np.repeat([0, 1], [40, 20]), 2).log_p == 0


def test_many_small_components_are_all_found(bk):
    sizes = np.repeat(20, 20)
    W = np.kron(np.eye(20), complete(20, 0)[:20, :20])
    labels = np.repeat(np.arange(20), 20)
    result = found(bk, W, labels, 20)
    np.testing.assert_allclose(result.length, 2 * sizes[0] / result.within)  # not of all rows
    assert result.log_p < math.log(0.01)


def test_labels_that_are_not_in_the_graph_are_no_clusters(bk):
    rng = np.random.default_rng(0)
    block = np.repeat([0, 1], 150)
    W = np.triu(rng.random((300, 300)) < np.where(block[:, None] == block, 0.2, 0.01), 1)
    W = (W + W.T).astype(float)
    assert found(bk, W, block, 2).log_p < math.log(1e-4)
    assert found(bk, W, rng.permutation(block), 2).log_p == 0


# -- the second look ------------------------------------------------------------------------------


def worst(found):
    return max(found, key=lambda one: one.log_p)


def of_rows(bk, X, y=None):
    """Return the graphs of rows, and the labels there."""
    graphs = Bottlenecks(graph_of(bk, knn_graph(X)), bk.asarray(X))
    return graphs, None if y is None else bk.asarray(y, dtype=np.int32)


def test_the_wide_graph_decides_where_cuts_are_of_few_rows(bk):
    X, y = make_moons(1500, noise=0.08, random_state=2)
    graphs, labels = of_rows(bk, X, y)
    near = worst(borders(labels, 2, graphs.near, "graph"))
    assert near.within < THIN
    assert near.log_p > SURE
    assert near.rows is None
    wide = worst(borders(labels, 2, prepare(graph_of(bk, knn_graph(X, WIDE))), "rows"))
    assert not leaps(near.within, wide.within)
    result = graphs.widest(labels, 2)
    np.testing.assert_allclose(result[2:6], wide[2:6], rtol=1e-9)
    np.testing.assert_allclose(result.log_p, wide.log_p, rtol=1e-9)
    assert result.log_p < near.log_p


def test_the_wide_graph_is_not_made_where_cuts_are_of_many_rows(bk):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 8)), np.repeat([0, 1], 300)
    X[300:, 0] += 8
    graphs, labels = of_rows(bk, X, y)
    assert graphs.widest(labels, 2).log_p < SURE
    assert graphs.widest(bk.asarray(rng.permutation(y), dtype=np.int32), 2).log_p == 0
    assert "wide" not in vars(graphs)


@pytest.mark.parametrize("columns", [2, 40])
def test_where_a_gap_decides_no_width_is_measured_if_that_takes_longer(bk, columns):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1400, columns)), np.repeat([0, 1], 700)
    X[700:, 0] += 60
    graphs, labels = of_rows(bk, X, y)
    result = graphs.widest(labels, 2)
    if columns == 2:
        assert graphs.near.widths == {}
        np.testing.assert_allclose(result.log_p, log_p_of_gap(1400, WIDE))
    else:
        assert len(graphs.near.widths) == 2
        assert "_nearest" not in vars(graphs)
        assert result.log_p < log_p_of_gap(1400, WIDE)


def test_where_edges_leap_the_law_is_wider(bk):
    X, position = make_swiss_roll(1000, random_state=4)
    graphs, labels = of_rows(bk, X, position > np.median(position))
    near = worst(borders(labels, 2, graphs.near, "graph"))
    wide = worst(borders(labels, 2, graphs.wide, "rows"))
    assert near.within < THIN
    assert leaps(near.within, wide.within)
    result = graphs.widest(labels, 2)
    np.testing.assert_allclose(result[2:6], wide[2:6])
    z = 2 * (math.sqrt(0.7 * wide.within) - math.sqrt(wide.between))
    scale = 2.5 * np.interp(
        np.log(wide.length), *(np.log(null_law("rows")[0]), null_law("rows")[1])
    )
    np.testing.assert_allclose(result.log_p, math.log(2) + norm.logsf(z / scale))
    assert result.log_p > wide.log_p


@pytest.mark.parametrize("factor", [1, 3])
def test_long_threads_are_told_by_the_gap_alone(bk, factor):
    X, y = make_moons(5000)
    graphs, labels = of_rows(bk, np.repeat(X, factor, axis=0), np.repeat(y, factor))
    assert worst(borders(np.asarray(y, dtype=np.int32), 2, Bottlenecks(knn_graph(X)).near, "graph"))
    expected = math.log(5000) - WIDE * math.log(2)  # of the distinct rows
    assert graphs.widest(labels, 2).log_p <= expected + 1e-9


def test_the_bound_of_a_gap_is_the_same_for_every_k():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2)) + 60 * np.repeat(np.arange(5), 200)[:, None]
    model = calibrated(X)
    found = [step.log_p_calibrated for step in model.path_[1:5]]
    np.testing.assert_allclose(found, log_p_of_gap(1000, WIDE))
    assert model.n_clusters_ == 5


@pytest.mark.parametrize("apart", [8, 20])
def test_clusters_that_are_further_apart_are_no_less_found(apart):
    X = np.random.default_rng(0).normal(size=(1500, 2))
    X[:, 0] += apart * (np.arange(1500) % 2)
    assert calibrated(X, alpha=1e-6, n_components=200).n_clusters_ == 2


@pytest.mark.parametrize("size", [13, 20, 28])
def test_the_gap_around_a_small_cluster_is_as_many_rows_as_it_has_left(bk, size):
    """The nearest other row is beyond size - 1 neighbours, on the other side beyond 30."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(800, 2)), (np.arange(800) < size).astype(int)
    X[:size] = [40, 40] + 0.3 * X[:size]
    graphs, labels = of_rows(bk, X, y)
    near = worst(borders(labels, 2, graphs.near, "graph"))
    assert (near.side, near.pair) == (size, (1, 1))
    expected = min(near.log_p, log_p_of_gap(800, size - 1))
    np.testing.assert_allclose(graphs.widest(labels, 2).log_p, expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_gaps_in_a_line_are_no_likelier_than_the_bound(seed):
    """The chance that a thread falls apart with r neighbours is at most m 2^-r."""
    m, r, n_sets = 60, 8, 200  # the bound is 0.23
    rng, apart = np.random.default_rng(seed), 0
    for _ in range(n_sets):
        x = np.sort(rng.random(m))
        before, after = np.full(m, np.inf), np.full(m, np.inf)  # to the r-th on each side
        before[r:], after[:-r] = x[r:] - x[:-r], x[r:] - x[:-r]
        gap = np.diff(x)
        apart += bool(((gap > before[:-1]) & (gap > after[1:])).any())
    expected = math.exp(log_p_of_gap(m, r))
    assert apart / n_sets <= expected
    assert log_p_of_gap(m, 0) == log_p_of_gap(m, 5) == 0


def test_of_equal_rows_one_is_looked_at(bk):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] > 0).astype(int)
    expected = of_rows(bk, X)[0].widest(bk.asarray(y, dtype=np.int32), 2)
    order = np.concatenate([np.arange(400), rng.integers(400, size=300)])
    graphs, labels = of_rows(bk, X[order], y[order])
    np.testing.assert_allclose(graphs.widest(labels, 2)[2:6], expected[2:6], rtol=1e-9)
    assert graphs.n_rows == 700
    mixed = np.where(np.arange(700) < 400, 0, 1)  # a cluster of second copies alone
    assert graphs.widest(bk.asarray(mixed, dtype=np.int32), 2).log_p == 0


def test_bootstrap_samples_are_seldom_split():
    split = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((1000, 2))[rng.integers(1000, size=1000)]
        split += calibrated(X, alpha=0.05, n_components=60, n_init=3).n_clusters_ > 1
    assert split <= 4  # at 5 %, more than that once in 400


def test_many_clusters_smaller_than_a_wide_neighbourhood_are_found():
    rng = np.random.default_rng(0)
    centers = 12 * np.stack(np.meshgrid(range(3), range(3)), axis=-1).reshape(-1, 2)
    X = np.repeat(centers, 24, axis=0) + rng.standard_normal((216, 2))
    assert calibrated(X).n_clusters_ == 9


@pytest.mark.parametrize(
    "settings",
    [
        {"affinity": "radius_neighbors"},
        {"n_neighbors": 6},
        {"n_neighbors": 40},
        {"weights": "distance"},
    ],
)
def test_p_is_that_of_nearest_neighbours_whatever_is_embedded(bk, settings):
    model = calibrated(bk.asarray(BLOBS), bk.name, full_path=True, max_clusters=4, **settings)
    graphs = Bottlenecks(graph_of(bk, knn_graph(BLOBS)), bk.asarray(BLOBS))
    for step in model.path_[1:]:
        expected = graphs.widest(step.labels, step.k).log_p
        np.testing.assert_allclose(step.log_p_calibrated, expected, rtol=1e-6)


# -- the law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["graph", "rows"])
def test_p_is_half_normal_in_the_difference_of_roots(law):
    for length, scale in zip(*null_law(law), strict=True):
        for between, within in ((1, 4), (0, 9), (2.7, 4), (0, 1e4)):
            z = 2 * (math.sqrt(0.7 * within) - math.sqrt(between))
            expected = math.log(2) + norm.logsf(z / scale)
            np.testing.assert_allclose(log_p_of(between, within, length, law), expected, rtol=1e-12)


@pytest.mark.parametrize("law", ["graph", "rows"])
def test_p_is_one_where_no_cut_is_heavier(law):
    for between, within, length in ((3.5, 5, 20), (6, 5, 20), (0, 0, 20)):
        assert log_p_of(between, within, length, law) == 0
    assert log_p_of(800, 1000, 20, law) == 0  # however many rows: that is roughness


def test_the_laws_rise_with_the_length_and_that_of_graphs_is_wider():
    (length, scale), (same, wider) = null_law("rows"), null_law("graph")
    assert (np.diff(length) > 0).all()
    assert (np.diff(scale) >= 0).all()
    assert (np.diff(wider) >= 0).all()
    assert scale.min() > 0
    np.testing.assert_array_equal(length, same)
    assert (wider >= scale).all()


def test_structureless_sets_are_seldom_split():
    """A binomial test: 60 sets at a level of 5 % have more than 9 false splits once in 700."""
    split = 0
    for seed in range(20):
        rng = np.random.default_rng([7, seed])
        for X in (rng.random((200, 2)), rng.normal(size=(200, 4)), rng.random((200, 1))):
            split += calibrated(X, alpha=0.05, n_components=60).n_clusters_ > 1
    assert split <= 9


# -- the estimator --------------------------------------------------------------------------------


def test_k_does_not_turn_on_the_number_of_eigenvectors():
    X, _ = load_digits(return_X_y=True)
    models = [calibrated(X, alpha=0.05, n_components=n) for n in (60, 200, 500)]
    assert {model.n_clusters_ for model in models} == {models[0].n_clusters_}
    assert models[0].n_clusters_ >= 6
    np.testing.assert_array_equal(models[0].labels_, models[2].labels_)
    moons, y = make_moons(1500, noise=0.1, random_state=0)
    for n in (60, 200, 500):
        model = calibrated(moons, n_components=n)
        assert model.n_clusters_ == 2
        assert abs(np.corrcoef(model.labels_, y)[0, 1]) > 0.95


def test_the_path_has_both(bk):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        settings = {"full_path": True, "max_clusters": 4, "random_state": 0}
        plain = SpecialK(backend=bk.name, selection="first", **settings).fit(bk.asarray(BLOBS))
    model = calibrated(bk.asarray(BLOBS), bk.name, full_path=True, max_clusters=4)
    assert model.path_[0].log_p_calibrated is None
    for own, other in zip(model.path_[1:], plain.path_[1:], strict=True):
        assert own.log_p == other.log_p
        assert own.decisive_log_p == own.log_p_calibrated <= 0
        assert other.decisive_log_p == other.log_p
        assert own.accepted == (own.log_p_calibrated <= math.log(0.01))
        graphs = Bottlenecks(model.affinity_matrix_, bk.asarray(BLOBS))
        expected = graphs.widest(own.labels, own.k).log_p
        np.testing.assert_allclose(own.log_p_calibrated, expected, rtol=1e-6)
    assert "bottlenecks" in model.timings_
    assert "log10 p    bound" in str(model.path_).splitlines()[0]
    assert "bound" not in str(plain.path_).splitlines()[0]
    assert model.path_.to_frame()["log_p_calibrated"].notna().tolist() == [False, True, True, True]


def test_a_graph_alone_is_judged_by_its_own_law():
    W = knn_graph(BLOBS)
    model = calibrated(W, affinity="precomputed", full_path=True, max_clusters=4)
    for step in model.path_[1:]:
        expected = Bottlenecks(W).widest(step.labels, step.k).log_p
        np.testing.assert_allclose(step.log_p_calibrated, expected, rtol=1e-6)


@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_copies_and_other_graphs_are_no_error(bk, affinity):
    X = np.repeat(BLOBS, 15, axis=0)
    model = calibrated(bk.asarray(X), bk.name, affinity=affinity, max_clusters=5)
    labels = bk.to_numpy(model.labels_).reshape(-1, 15)
    assert (labels == labels[:, :1]).all()
    assert np.isfinite([step.decisive_log_p for step in model.path_[1:]]).all()


@pytest.mark.parametrize(("m", "n_neighbors"), [(200, 5), (40, 12)])
def test_graphs_that_were_not_tried_bring_a_warning(m, n_neighbors):
    X = np.random.default_rng(0).normal(size=(m, 2))
    W = knn_graph(X, n_neighbors)
    model = SpecialK(selection="calibrated", backend="numpy", affinity="precomputed")
    with pytest.warns(CalibrationWarning, match=f"this one has {m} with"):
        model.fit(W)
    W = knn_graph(np.random.default_rng(0).normal(size=(200, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        model.fit(W)
        model.set_params(affinity="nearest_neighbors", n_neighbors=5).fit(BLOBS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda W: sparse.triu(W), "must be symmetric"),
        (lambda W: -W, "must be finite and not negative"),
        (lambda W: W * np.nan, "must be finite and not negative"),
    ],
)
def test_a_graph_given_to_the_sweep_is_checked(change, message):
    D = np.random.default_rng(0).normal(size=(240, 4))
    with pytest.raises(ValueError, match=message):
        sweep(D, W=change(knn_graph(BLOBS)), selection="calibrated")


@pytest.mark.parametrize("form", ["toarray", "tocoo", "tolil", "tocsc"])
def test_any_form_of_a_graph_will_do(form):
    W, settings = knn_graph(BLOBS), {"selection": "calibrated", "random_state": 0}
    D = np.eye(3)[BLOBS_Y] + 0.01 * np.random.default_rng(0).normal(size=(240, 3))
    expected = sweep(D, W=W, **settings).path
    found = sweep(D, W=getattr(W, form)(), **settings).path
    assert [step.log_p_calibrated for step in found] == [step.log_p_calibrated for step in expected]


def test_without_a_graph_there_is_no_calibrated_p():
    D = np.random.default_rng(0).normal(size=(30, 4))
    with pytest.raises(ValueError, match="needs the graph W of the 30 rows of D, got none"):
        sweep(D, selection="calibrated")
    with pytest.raises(ValueError, match=r"got one of shape \(20, 20\)"):
        sweep(D, W=sparse.eye(20, format="csr"), selection="calibrated")
