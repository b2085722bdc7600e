"""Merging: levels of the tree and their p, cuts of unions, linkages, waits."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from scipy.cluster.hierarchy import cut_tree, fcluster, is_valid_linkage
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_moons

from specialk_gpu import knn_graph
from specialk_gpu.backend import get_backend
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection import cuts as cuts_module
from specialk_gpu.selection import merging as merging_module
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.cut_test import gap_by_cut_test
from specialk_gpu.selection.cuts import Cuts
from specialk_gpu.selection.measured_parts import MeasuredParts
from specialk_gpu.selection.merging import Tree, merge
from specialk_gpu.selection.node_rows import NodeRows
from specialk_gpu.selection.parts import Parts, lone_part, touching_parts
from specialk_gpu.selection.walks import prepare_walks


def kmeans_labels(X, k):
    return KMeans(k, n_init=1, random_state=0).fit_predict(X)


def planted(sizes, within, across, seed=0):
    rng, block = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    W = rng.random((block.size,) * 2) < np.where(block[:, None] == block, within, across)
    W = np.triu(W * rng.uniform(0.5, 1, W.shape), 1)  # no two rows are alike
    return sparse.csr_matrix(W + W.T), block


@cache
def given(name):
    """Return W, X or None, and fragments."""
    if name == "blobs":
        X, _ = make_blobs(400, centers=5, cluster_std=1.5, random_state=0)
        return knn_graph(X), X, kmeans_labels(X, 14)
    if name == "moons":
        X, _ = make_moons(500, noise=0.08, random_state=0)
        return knn_graph(X), X, kmeans_labels(X, 12)
    if name == "bands":  # the graph of 30 neighbours joins them, that of 10 does not
        y = np.repeat(np.arange(3), 150)
        X = np.random.default_rng(27).random((450, 2)) * [10, 1] + np.c_[11 * y, 0 * y]
        return knn_graph(X), X, 2 * y + (X[:, 0] - 11 * y > 5)
    if name == "far":  # two components, one of them of two blobs
        X, _ = make_blobs(300, centers=[(0, 0), (6, 0), (300, 0)], random_state=1)
        return knn_graph(X), X, kmeans_labels(X, 9)
    W, block = planted([80, 60, 40, 40], 0.5, 0.01)
    return W, None, 2 * block + np.random.default_rng(1).integers(2, size=block.size)


SETS = ["blobs", "moons", "bands", "far", "graph"]


def merged(bk, name):
    """Return the graphs, the fragments and their tree."""
    W, X, fragment = given(name)
    graphs = CutGraphs(bk.sparse.csr_matrix(W), None if X is None else Rows(bk.asarray(X)))
    fragment = bk.asarray(fragment, dtype=np.int32)
    return graphs, fragment, merge(graphs, fragment, int(fragment.max()) + 1)


def host(bk, x):
    return bk.to_numpy(x)


def same_partition(a, b):
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


def pieces(W, labels):
    """Return the number of pieces into which clusters fall apart, the graph cut between them."""
    W = sparse.coo_matrix(W)
    inside = labels[W.row] == labels[W.col]
    content = W.data[inside], (W.row[inside], W.col[inside])
    return connected_components(sparse.csr_matrix(content, shape=W.shape))[0]


# -- levels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_levels_are_nested_and_by_falling_size(bk, name):
    _, fragment, tree = merged(bk, name)
    K = tree.n_leaves
    assert len(tree.children) == K - 1
    assert tree.labels(K).dtype == np.int32
    fine = host(bk, tree.labels(K))
    assert same_partition(fine, host(bk, tree.leaf))
    assert len(set(zip(fine.tolist(), host(bk, fragment).tolist(), strict=True))) == K  # no strays
    for k in range(K, 0, -1):
        labels = host(bk, tree.labels(k))
        sizes = np.bincount(labels)
        assert len(sizes) == k
        assert sizes.min() > 0
        assert (np.diff(sizes) <= 0).all()
        np.testing.assert_array_equal(tree.clusters(k)[host(bk, tree.leaf)], labels)
        if k > 1:
            a, b = tree.next_pair(k)
            assert 0 <= a < b < k
            coarse = host(bk, tree.labels(k - 1))
            assert same_partition(np.where(labels == b, a, labels), coarse)


@pytest.mark.parametrize("name", SETS)
def test_p_of_a_level_is_that_of_its_clusters(bk, name):
    """It is, where no cluster holds parts that no edge joins."""
    graphs, _, tree = merged(bk, name)
    W, n_tested = given(name)[0], 0
    for k in range(2, tree.n_leaves + 1):
        labels = tree.labels(k)
        if pieces(W, host(bk, labels)) == k:
            n_tested += 1
            gap = gap_by_cut_test(graphs, labels, k)
            np.testing.assert_allclose(tree.log_p[k - 1], gap.log_p, rtol=1e-9)
    assert n_tested >= tree.n_leaves - 3
    assert tree.log_p[0] == -np.inf
    assert np.isfinite(tree.log_p[1:]).all()
    assert (tree.log_p <= 0).all()


@pytest.mark.parametrize("name", SETS)
def test_where_no_pair_looks_like_one_cluster_the_least_separate_is_united(bk, name):
    graphs, _, tree = merged(bk, name)
    for k in range(2, tree.n_leaves + 1):
        gap = gap_by_cut_test(graphs, tree.labels(k), k)
        if np.log(k - 1) + np.log(0.5) < gap.log_p < 0:
            continue
        if gap.log_p < 0 and pieces(given(name)[0], host(bk, tree.labels(k))) == k:
            assert tree.next_pair(k) == gap.pair


@pytest.mark.parametrize("apart", [4.8, 5.4])
def test_two_small_clusters_are_not_united_before_a_large_one_is_whole(bk, apart):
    """They are each other's least separate neighbours from the beginning on."""
    rng = np.random.default_rng(0)
    X = np.concatenate([20 * rng.random((1500, 2)), 0.8 * rng.normal(size=(160, 2)) + [40, 0]])
    X[1580:, 0] += apart
    y = np.repeat([0, 1, 2], [1500, 80, 80])
    fragment = np.concatenate([kmeans_labels(X[:1500], 20), y[1500:] + 19])
    graphs = CutGraphs(bk.sparse.csr_matrix(knn_graph(X)), Rows(bk.asarray(X)))
    tree = merge(graphs, bk.asarray(fragment, dtype=np.int32), 22)
    np.testing.assert_array_equal(host(bk, tree.labels(3)), y)
    assert tree.log_p[2] < np.log(0.01) < tree.log_p[3]


@pytest.mark.parametrize("name", SETS)
def test_the_ratio_of_a_level_is_the_largest_of_its_pairs(bk, name):
    graphs, _, tree = merged(bk, name)
    W, n_tested = given(name)[0], 0
    for k in range(2, tree.n_leaves + 1):
        labels = tree.labels(k)
        if pieces(W, host(bk, labels)) == k and tree.log_p[k - 1] < 0:  # else not all are tested
            n_tested += 1
            parts = Parts(graphs, labels, k)
            for node in range(k):
                lone_part(parts, node, np.arange(k))  # finds what the second graph alone joins
            tested = parts.test(touching_parts(parts, np.arange(k)), np.arange(k))
            expected = np.sqrt(tested.between / tested.within).max(initial=0)
            np.testing.assert_allclose(tree.ratio[k - 1], expected, rtol=1e-9)
    assert n_tested >= 1


def test_what_stands_alone_is_united_with_the_largest_the_least_wide_first(bk):
    sizes, rng = (60, 40, 30), np.random.default_rng(0)
    noise = [np.triu(rng.uniform(0.9, 1, (size, size)), 1) for size in sizes]
    W = sparse.block_diag([half + half.T for half in noise], format="csr")
    component = np.repeat(range(3), sizes)
    fragment = bk.asarray(2 * component + np.arange(130) % 2, dtype=np.int32)
    tree = merge(CutGraphs(bk.sparse.csr_matrix(W)), fragment, 6)
    np.testing.assert_array_equal(host(bk, tree.labels(3)), component)
    np.testing.assert_array_equal(host(bk, tree.labels(2)), component % 2)
    assert tree.log_p[3] == 0  # halves of a complete graph are one
    assert tree.log_p[2] < np.log(0.01)


def test_fragments_that_fall_apart_are_several_leaves(bk):
    W = sparse.csr_matrix(np.eye(60, k=1) + np.eye(60, k=-1))
    fragment = np.arange(60) // 15 % 2
    tree = merge(CutGraphs(bk.sparse.csr_matrix(W)), bk.asarray(fragment, dtype=np.int32), 2)
    assert tree.n_leaves == 4
    assert same_partition(host(bk, tree.leaf), np.arange(60) // 15)


# -- cuts of unions, and of many pairs ------------------------------------------------------------


def cuts_of(bk, name="blobs"):
    W, _, fragment = given(name)
    graph = prepare_walks(bk.sparse.csr_matrix(W))
    return graph, Cuts(graph, bk.asarray(fragment, dtype=np.int32), int(fragment.max()) + 1)


def pairs_of(cuts, nodes):
    pairs = [(i, int(j)) for i in nodes for j in cuts.touching(i, np.array(nodes)) if i < j]
    return np.array(pairs)


@pytest.mark.parametrize("name", ["blobs", "graph"])
def test_cuts_of_unions_are_those_of_the_merged_labels(bk, name):
    graph, cuts = cuts_of(bk, name)
    K, rng = cuts.K, np.random.default_rng(0)
    label, nodes = np.arange(K), list(range(K))
    while len(nodes) > 3:
        a = int(rng.choice(nodes))
        near = cuts.touching(a, np.array(nodes))
        b = int(rng.choice(near))
        new = cuts.unite(a, b)
        label[np.isin(label, [a, b])] = new
        nodes = [i for i in nodes if i not in (a, b)] + [new]
        assert cuts.sizes[new] == cuts.sizes[a] + cuts.sizes[b]
        np.testing.assert_array_equal(cuts.members(new), np.flatnonzero(label == new))
        own = np.searchsorted(nodes, label)  # nodes rise
        fresh = Cuts(graph, bk.asarray(own[given(name)[2]], dtype=np.int32), len(nodes))
        np.testing.assert_array_equal(cuts.sizes[nodes], fresh.sizes[: len(nodes)])
        np.testing.assert_array_equal(cuts.first[nodes], fresh.first[: len(nodes)])
        assert fresh.first[: len(nodes)].tolist() == [
            int(np.flatnonzero(own[given(name)[2]] == i)[0]) for i in range(len(nodes))
        ]
        n = len(nodes)
        np.testing.assert_array_equal(cuts.weights[np.ix_(nodes, nodes)], fresh.weights[:n, :n])
        assert set(host(bk, cuts.rows(new))) == set(host(bk, fresh.rows(n - 1)))
        pairs = pairs_of(fresh, list(range(n)))
        found, expected = cuts.measure(np.array(nodes)[pairs]), fresh.measure(pairs)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_pairs_measured_together_are_those_measured_one_by_one(bk, monkeypatch):
    _, cuts = cuts_of(bk)
    other = int(cuts.touching(0, np.arange(cuts.K))[0])
    nodes = [i for i in range(1, cuts.K) if i != other] + [cuts.unite(0, other)]
    pairs = pairs_of(cuts, nodes)
    together = cuts.measure(pairs)
    one_by_one = np.concatenate([cuts.measure(pair[None]) for pair in pairs], axis=1)
    np.testing.assert_array_equal(together, one_by_one)
    np.testing.assert_array_equal(cuts.measure(pairs[::-1]), np.array(together)[:, ::-1])
    monkeypatch.setattr(cuts_module, "CHUNK", 500)
    np.testing.assert_array_equal(cuts.measure(pairs), together)


def test_the_order_of_a_pair_does_not_matter(bk):
    _, cuts = cuts_of(bk)
    pairs = pairs_of(cuts, list(range(cuts.K)))
    np.testing.assert_allclose(cuts.measure(pairs[:, ::-1]), cuts.measure(pairs), rtol=1e-9)


def test_of_no_pairs_nothing_is_measured(bk):
    _, cuts = cuts_of(bk)
    between, within = cuts.measure(np.empty((0, 2), dtype=np.int64))
    assert between.shape == within.shape == (0,)


@pytest.mark.parametrize("K", [2, 255, 256, 300])
def test_edges_are_counted_for_any_number_of_parts(bk, K):
    W = sum(np.eye(600, k=k) for k in (-2, -1, 1, 2))
    part = np.arange(600) * K // 600
    graph = prepare_walks(bk.sparse.csr_matrix(sparse.csr_matrix(W)))
    cuts = Cuts(graph, bk.asarray(part, dtype=np.int32), K)
    i, j = np.nonzero(np.triu(W))
    found = dict(zip(map(tuple, np.transpose(cuts._ends_of_group)), cuts._n_edges, strict=True))
    pairs, counts = np.unique(np.c_[part[i], part[j]], axis=0, return_counts=True)
    assert found == dict(zip(map(tuple, pairs), counts, strict=True))
    assert cuts._first_edge.tolist() == (np.cumsum(counts) - counts).tolist()


# -- memory of nodes -----------------------------------------------------------------------------


def test_values_of_a_union_are_the_sums_over_its_nodes(bk):
    X = np.random.default_rng(0).random((5, 7))
    rows = NodeRows(bk, 5, 7)
    rows.values[:5] = bk.asarray(X)
    expected = dict(enumerate(X))
    for new, (a, b) in enumerate([(0, 3), (1, 5), (2, 4), (6, 7)], start=5):
        rows.unite(a, b)
        expected[new] = expected[a] + expected[b]
        del expected[a], expected[b]
        rows.release([a])
        rows.release([a, b])
        for node, values in expected.items():
            np.testing.assert_array_equal(host(bk, rows.values[int(rows.place[node])]), values)
        assert (rows.place >= 0).sum() == len(expected)
    assert rows.place.max() <= 5  # the first union was new, and the others took what was released


@pytest.mark.parametrize("name", SETS)
def test_nothing_that_was_released_is_read(bk, monkeypatch, name):
    _, _, expected = merged(bk, name)
    release, most = NodeRows.release, []

    def spoil(self, nodes):
        nodes = [node for node in nodes if self.place[node] >= 0]
        for node in nodes:
            self.values[int(self.place[node])] = np.nan
        release(self, nodes)
        most.append(int(self.place.max()) + 1)

    monkeypatch.setattr(NodeRows, "release", spoil)
    _, _, tree = merged(bk, name)
    np.testing.assert_array_equal(tree.children, expected.children)
    np.testing.assert_array_equal(tree.log_p, expected.log_p)
    np.testing.assert_array_equal(tree.ratio, expected.ratio)
    assert max(most) <= 1.5 * expected.n_leaves


# -- trees ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_the_linkage_is_one_of_scipy(bk, name):
    tree = merged(bk, name)[2]
    Z, leaf, K = tree.to_linkage(), host(bk, tree.leaf), tree.n_leaves
    assert is_valid_linkage(Z)
    assert Z.shape == (K - 1, 4)
    assert (np.diff(Z[:, 2]) >= 0).all()
    rising = [k for k in range(2, K) if Z[K - k, 2] > Z[K - k - 1, 2]]  # scipy has no order else
    assert rising
    for k in [1, *rising, K]:
        labels = host(bk, tree.labels(k))
        assert same_partition(cut_tree(Z, n_clusters=k).ravel()[leaf], labels)
        if k < K:
            assert same_partition(fcluster(Z, k, criterion="maxclust")[leaf], labels)


@pytest.mark.parametrize("name", SETS)
def test_heights_of_the_linkage_are_the_p_that_was_given_up(bk, name):
    tree = merged(bk, name)[2]
    Z = tree.to_linkage()
    for i, height in enumerate(Z[:, 2]):
        least = tree.log_p[tree.n_leaves - 1 - i :].min()  # of this level and those before
        np.testing.assert_allclose(height, -least / np.log(10), rtol=1e-12, atol=1e-300)


def test_a_tree_regrouped_by_its_own_level_is_the_same_tree(bk):
    tree = merged(bk, "blobs")[2]
    for k in (1, 2, 5, tree.n_leaves):
        again, kept = tree.regrouped(tree.leaf, tree.clusters(k))
        np.testing.assert_array_equal(kept, np.arange(tree.n_leaves))
        np.testing.assert_array_equal(again.children, tree.children)
        np.testing.assert_array_equal(host(bk, again.leaf), host(bk, tree.leaf))


@pytest.mark.parametrize("k", [1, 3, 6])
def test_a_regrouped_tree_keeps_the_level_given_and_leaves_out_what_is_empty(bk, k):
    tree = merged(bk, "blobs")[2]
    K, rng = tree.n_leaves, np.random.default_rng(k)
    cluster = rng.permutation(np.arange(K) % k)
    empty = np.flatnonzero(np.bincount(cluster)[cluster] > 1)[:2]
    leaf = host(bk, tree.leaf).copy()
    for e in empty:
        others = np.flatnonzero((cluster == cluster[e]) & ~np.isin(np.arange(K), empty))
        leaf[leaf == e] = others[0]
    again, kept = tree.regrouped(bk.asarray(leaf), cluster)
    np.testing.assert_array_equal(kept, np.setdiff1d(np.arange(K), empty))
    assert again.n_leaves == K - empty.size == len(again.children) + 1
    np.testing.assert_array_equal(kept[host(bk, again.leaf)], leaf)
    assert same_partition(host(bk, again.labels(k)), cluster[leaf])
    for level in range(2, again.n_leaves + 1):
        fine, coarse = host(bk, again.labels(level)), host(bk, again.labels(level - 1))
        assert len(set(fine.tolist())) == level
        assert len(set(zip(fine.tolist(), coarse.tolist(), strict=True))) == level
    assert is_valid_linkage(again.to_linkage())


def test_copies_are_given_the_leaf_of_their_row(bk):
    tree = merged(bk, "blobs")[2]
    group = np.random.default_rng(0).permutation(np.repeat(np.arange(400), 1 + np.arange(400) % 3))
    spread = tree.spread(bk.asarray(group))
    np.testing.assert_array_equal(spread.children, tree.children)
    np.testing.assert_array_equal(spread.log_p, tree.log_p)
    for k in range(1, tree.n_leaves + 1):  # the same clusters, by the sizes that copies give them
        new, old = host(bk, spread.labels(k)), host(bk, tree.labels(k))[group]
        assert len(np.unique(np.stack([new, old]), axis=1).T) == k
        assert (np.diff(np.bincount(new)) <= 0).all()


def test_the_tree_of_one_leaf_has_one_level(bk):
    tree = Tree.of_one(bk.asarray(np.zeros(7), dtype=np.int32))
    assert tree.n_leaves == 1
    assert host(bk, tree.labels(1)).tolist() == [0] * 7
    assert tree.to_linkage().shape == (0, 4)
    assert tree.ratio.tolist() == [0]


# -- which pairs are united -----------------------------------------------------------------------


class Alone:
    """A part that no edge joins, with a given log p whatever it is paired with."""

    def __init__(self, log_p):
        self.given, self.asked = log_p, []

    def log_p(self, n_rows, k):
        self.asked.append((n_rows, k))
        return self.given


def gaps_of(pairs, sizes, alone=(), first=None):
    """Return the gaps of nodes; of each pair the log p, and perhaps the ratio and the density."""
    n = len(sizes)
    first = np.arange(n) if first is None else np.array(first)
    cuts = SimpleNamespace(sizes=np.array(sizes), first=first)
    gaps = merging_module._MergingGaps(SimpleNamespace(n_parts=n, cuts=cuts))
    for (i, j), (log_p, *more) in pairs.items():
        ratio, density = [*more, *[0.5, 0.5][len(more) :]]
        for table, value in ((gaps.log_p, log_p), (gaps.ratio, ratio), (gaps.density, density)):
            table[i, j] = table[j, i] = value
    gaps.alone = {node: Alone(log_p) for node, log_p in dict(alone).items()}
    gaps.complete = lambda _: None
    return gaps


LEAST = math.log(0.5)  # the least log p of two that look like one cluster


@pytest.mark.parametrize(
    ("pairs", "sizes", "alone", "united"),
    [
        # each other's least separate neighbours, the least separate first, are united in one round
        ({(0, 1): [-0.2, 0.5], (2, 3): [-0.3, 0.6]}, [9] * 4, {}, [(2, 3), (0, 1)]),
        ({(0, 1): [-0.2, 0.6], (2, 3): [-0.3, 0.5]}, [9] * 4, {}, [(0, 1), (2, 3)]),
        ({(0, 1): [-0.1], (1, 2): [-0.1, 0.6], (2, 3): [-0.1]}, [9] * 4, {}, [(1, 2)]),
        ({(0, 1): [LEAST, 0.6], (2, 3): [LEAST, 0.5]}, [9] * 4, {}, [(0, 1), (2, 3)]),
        ({(0, 1): [LEAST, 0.6], (2, 3): [LEAST - 1e-9, 0.5]}, [9] * 4, {}, [(0, 1)]),
        # none looks like one cluster: the least separate pair of all
        ({(0, 1): [-0.7, 0.6], (2, 3): [-0.8, 0.5], (1, 2): [-5.0]}, [9] * 4, {}, [(0, 1)]),
        ({(0, 1): [-7.0], (1, 2): [-6.0]}, [9] * 3, {}, [(1, 2)]),
        # of equal p, the larger ratio; of equal ratios, the larger density
        ({(0, 1): [-7.0, 0.4, 1.0], (1, 2): [-7.0, 0.5, 0.1]}, [9] * 3, {}, [(1, 2)]),
        ({(0, 1): [-7.0, 0.5, 1.0], (1, 2): [-7.0, 0.5, 0.1]}, [9] * 3, {}, [(0, 1)]),
        ({(0, 1): [-7.0, 0.5, 0.1], (1, 2): [-7.0, 0.5, 1.0]}, [9] * 3, {}, [(1, 2)]),
        ({(0, 1): [-7.0, 0.0, 0.0], (1, 2): [-7.1, 0.5, 1.0]}, [9] * 3, {}, [(0, 1)]),
        # a part that no edge joins has the largest p: it is united with the largest other one
        ({(0, 1): [-7.0]}, [9, 8, 3], {2: -6.0}, [(2, 0)]),
        ({(0, 1): [-7.0]}, [8, 9, 3], {2: -6.0}, [(2, 1)]),
        ({(0, 1): [-7.0]}, [9, 9, 3], {2: -6.0}, [(2, 0)]),
        ({(0, 1): [-7.0]}, [8, 9, 30], {2: -6.0}, [(2, 1)]),
        ({(0, 1): [-5.0]}, [9, 8, 3], {2: -6.0}, [(0, 1)]),
        ({(0, 1): [-6.0 - math.log(2)]}, [9, 8, 3], {2: -6.0}, [(2, 0)]),  # times k - 1, the same
        ({(0, 1): [-6.0]}, [9, 8, 3], {2: -6.0}, [(0, 1)]),
        ({(0, 1): [-0.3], (2, 3): [-0.2]}, [9] * 5, {4: 0.0}, [(2, 3), (0, 1)]),  # p is 1 for all
        # of several such parts, the one of the largest p, the fewest rows, the first row
        ({}, [9, 8, 3], {0: -7.0, 1: -6.5, 2: -6.6}, [(1, 0)]),
        ({}, [9, 8, 3], {0: -7.0, 1: -6.5, 2: -6.5}, [(2, 0)]),
        ({}, [9, 3, 3], {0: -7.0, 1: -6.5, 2: -6.5}, [(1, 0)]),
        ({}, [9, 8, 3], {0: -6.0, 1: -6.5, 2: -6.5}, [(0, 1)]),
    ],
)
def test_the_least_separate_are_united(pairs, sizes, alone, united):
    gaps = gaps_of(pairs, sizes, alone)
    assert merging_module._merging_round(gaps, np.arange(len(sizes))) == united


def test_a_pair_that_is_isolated_does_not_look_like_one_cluster():
    gaps = gaps_of({(0, 1): [-0.1], (1, 2): [-0.3], (2, 3): [-0.2]}, [9] * 4)
    gaps.isolation[0, 1] = gaps.isolation[1, 0] = -0.7
    assert merging_module._merging_round(gaps, np.arange(4)) == [(2, 3)]
    gaps = gaps_of({(0, 1): [-0.1]}, [9] * 3, {2: -0.5})
    for isolation, united in ((-0.4, (0, 1)), (-0.5, (0, 1)), (-0.6, (2, 0))):
        gaps.isolation[0, 1] = gaps.isolation[1, 0] = isolation
        assert merging_module._merging_round(gaps, np.arange(3)) == [united]


def test_what_is_doubtful_or_does_not_touch_has_no_rank():
    gaps = gaps_of({(0, 1): [-3.0], (1, 2): [-2.0], (0, 3): [-1.0]}, [9] * 4)
    gaps.doubtful[0, 3] = gaps.doubtful[3, 0] = True
    alive = np.array([0, 1, 2, 3])
    log_p, rank = merging_module._ranked_for_merging(gaps, alive)
    assert log_p[0, 1] == log_p[1, 0] == -3 + math.log(3)
    assert np.isneginf(log_p).sum() == 12
    np.testing.assert_array_equal(rank, rank.T)
    assert rank[1, 2] > rank[0, 1] > -1
    assert (rank == -1).sum() == 12


def test_parts_that_no_edge_joins_are_paired_with_the_largest_other_one():
    gaps = gaps_of({(0, 1): [-7.0]}, [9, 5, 9, 3], {2: -6.0, 0: -5.0, 3: -4.0})
    nodes = np.array([0, 1, 2, 3])
    assert gaps.decisive_alone(nodes) == {0: -5.0, 2: -6.0, 3: -4.0}
    # of the two of nine rows, the first
    assert [gaps.alone[node].asked for node in (0, 2, 3)] == [[(18, 4)], [(18, 4)], [(12, 4)]]
    assert gaps.decisive_alone(np.array([1, 3])) == {3: -4.0}
    assert gaps.alone[3].asked[-1] == (8, 2)
    assert gaps_of({}, [9, 5]).decisive_alone(np.array([0, 1])) == {}


def test_a_level_is_complete_unless_a_pair_has_p_1():
    done = []
    gaps = gaps_of({(0, 1): [-0.5, 0.7], (1, 2): [-9.0, 0.9]}, [9] * 4)
    gaps.complete = done.append
    assert gaps.level(np.array([0, 1, 2])) == (0.0, 0.9)  # half of 2 is 1
    assert not done
    assert gaps.level(np.array([1, 2])) == (-9.0, 0.9)
    assert len(done) == 1
    assert gaps.level(np.array([0, 2, 3])) == (-math.inf, 0.0)
    gaps.alone = {3: Alone(-4.0)}
    assert gaps.level(np.array([1, 2, 3])) == (-4.0, 0.9)
    gaps.alone = {3: Alone(0.0)}
    assert gaps.level(np.array([1, 2, 3])) == (0.0, 0.9)
    assert len(done) == 3


def test_the_neighbours_of_most_edges_are_tested_first():
    gaps = gaps_of({(0, 4): [-1.0], (0, 9): [-1.0]}, [9] * 14)
    weights = np.array([0, 5, 4, 12, 11, 2, 1, 9, 8, 7, 6, 3, 10, 13])
    gaps.parts.cuts.weights = np.tile(weights, (14, 1))
    gaps.parts.touching = lambda node, others: others[others != node]
    heaviest = [i for i in np.argsort(-weights)[:8].tolist() if i not in (4, 9)]
    assert gaps.strongest(0, np.arange(14)) == {(0, i) for i in heaviest}
    assert gaps.strongest(13, np.arange(3)) == {(0, 13), (1, 13), (2, 13)}


def test_pairs_are_tested_once_and_doubtful_ones_a_second_time(monkeypatch):
    gaps, asked = gaps_of({(0, 1): [-3.0]}, [9] * 4), []
    del gaps.complete
    pairs = np.array([[0, 1], [1, 2], [2, 3]])
    monkeypatch.setattr(merging_module, "touching_parts", lambda *_: pairs)

    def first(ends, nodes, below):
        asked.append((ends.tolist(), nodes.tolist(), below))
        numbers = np.array([10.0 * a + b for a, b in ends])
        doubtful, law = ends[:, 0] == 1, np.full(len(ends), "graph", dtype=object)
        columns = (doubtful, numbers / 7, law, numbers / 9, ~doubtful, numbers / 5)
        return MeasuredParts(-numbers, -numbers / 2, numbers, 4 * numbers, numbers / 3, *columns)

    def second(ends, nodes, known):
        asked.append((ends.tolist(), nodes.tolist(), "again"))
        numbers = np.array([10.0 * a + b for a, b in ends])
        for one, other in zip(known, first(ends, nodes, 0.0), strict=True):
            np.testing.assert_array_equal(one, other)
        return known._replace(log_p=-numbers - 1, doubtful=np.zeros(len(ends), dtype=bool))

    gaps.parts.look, gaps.parts.look_again = first, second
    gaps.complete(np.arange(4))
    assert asked[:2] == [([[1, 2], [2, 3]], [0, 1, 2, 3], 0.0), ([[1, 2]], [0, 1, 2, 3], "again")]
    for i, j in ((1, 2), (2, 1)):
        assert (gaps.log_p[i, j], gaps.isolation[i, j], gaps.ratio[i, j]) == (-13, -6, 0.5)
        assert not gaps.doubtful[i, j]
        assert gaps.density[i, j] == 12 / 7
    assert gaps.log_p[2, 3] == gaps.log_p[3, 2] == -23
    assert gaps.log_p[0, 1] == -3
    asked.clear()
    gaps.complete(np.arange(4))
    gaps.look(set(), np.arange(4))
    assert not asked


def test_a_union_with_an_isolated_part_keeps_the_gaps_of_the_other():
    gaps = gaps_of({(0, 1): [-3.0, 0.4, 0.3], (1, 2): [-2.0]}, [9] * 5, {0: -6.0})
    inherited = []
    gaps.parts.inherit = lambda *nodes: inherited.append(nodes)
    gaps.inherit(0, 4)
    assert inherited == [(0, 4)]
    for table in (gaps.log_p, gaps.ratio, gaps.density):
        np.testing.assert_array_equal(table[4, :4], table[0, :4])
        np.testing.assert_array_equal(table[:4, 4], table[:4, 0])
    assert gaps.alone[4] is gaps.alone[0]
    gaps.inherit(1, 3)
    assert 3 not in gaps.alone


# -- waits ----------------------------------------------------------------------------------------


def grid(n_side=7, each=30):
    """Return rows around the points of a grid, each point's near those of the next."""
    centers = 4.0 * np.stack(np.meshgrid(range(n_side), range(n_side)), axis=-1).reshape(-1, 2)
    return np.repeat(centers, each, axis=0) + np.random.default_rng(0).normal(
        size=(each * n_side**2, 2)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("k", [3, 12, 40])
@pytest.mark.parametrize("with_rows", [False, True])
def test_the_test_of_a_clustering_waits_seldom_however_many_pairs_it_has(waits, k, with_rows):
    bk, X = get_backend("cuda"), grid()
    labels = bk.asarray(kmeans_labels(X, k), dtype=np.int32)
    graphs = CutGraphs(
        bk.sparse.csr_matrix(knn_graph(X)), Rows(bk.asarray(X)) if with_rows else None
    )
    first = gap_by_cut_test(graphs, labels, k)  # makes the graphs
    with waits() as count:
        again = gap_by_cut_test(graphs, labels, k)
    assert again == first
    assert count.waits <= 6 + 2 * with_rows, str(count)  # two for pairs that may be bent


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["moons", "blobs", "normal"])
def test_ten_merges_wait_seven_times(waits, name):
    bk = get_backend("cuda")
    X = {
        "moons": make_moons(1500, noise=0.08, random_state=0)[0],
        "blobs": make_blobs(1500, centers=8, random_state=0)[0],
        "normal": np.random.default_rng(0).normal(size=(1500, 8)),
    }[name]
    fragment = bk.asarray(kmeans_labels(X, 40), dtype=np.int32)
    graphs = CutGraphs(bk.sparse.csr_matrix(knn_graph(X)), Rows(bk.asarray(X)))
    tree = merge(graphs, fragment, 40)  # makes the graphs
    with waits() as count:
        again = merge(graphs, fragment, 40)
    np.testing.assert_array_equal(again.children, tree.children)
    assert count.waits <= 0.7 * len(tree.children), str(count)
