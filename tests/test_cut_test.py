"""The cut test: cuts by definition, parts, graphs that are known, the second look, the law."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from oracles import to_scipy
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from scipy.stats import norm
from sklearn.datasets import make_blobs, make_moons, make_swiss_roll

from specialk_gpu import SpecialK, cut_test, knn_graph
from specialk_gpu._fit import graphs_to_cut
from specialk_gpu.backend import get_backend
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection import cut_test as cut_test_module
from specialk_gpu.selection import parts as parts_module
from specialk_gpu.selection.cut_graphs import NEAR, WIDE, CutGraphs
from specialk_gpu.selection.cut_test import gap_by_cut_test
from specialk_gpu.selection.cuts import CERTAIN, Cuts, heaviest_cut, heaviest_cut_if_mixed
from specialk_gpu.selection.measured_parts import LonePart, MeasuredParts
from specialk_gpu.selection.null_distribution import (
    bonferroni_log_p,
    decisive_log_p_under_null,
    isolation_log_p_under_null,
    local_dimension,
    log_p_under_null,
    null_law,
)
from specialk_gpu.selection.parts import (
    CLEAR_LOG_P,
    THIN_WEIGHT,
    Parts,
    has_shortcuts,
    lone_part,
    touching_parts,
)
from specialk_gpu.selection.walks import (
    N_STEPS,
    largest_in_panels,
    membership_by_walks,
    parts_joined_by_walks,
    prepare_walks,
    walk,
    walk_panels,
    walk_shares,
)

CENTERS = np.array([(0, 0), (4, 0), (0, 4)])
BLOBS, _ = make_blobs(240, centers=CENTERS, random_state=3)
BLOBS_Y = np.argmin(((BLOBS[:, None] - CENTERS) ** 2).sum(axis=2), axis=1)  # without strays


def graph_of(bk, W):
    return bk.sparse.csr_matrix(sparse.csr_matrix(W))


def labels_of(bk, y):
    return bk.asarray(np.asarray(y), dtype=np.int32)


def found(bk, W, y, k):
    return gap_by_cut_test(CutGraphs(graph_of(bk, W)), labels_of(bk, y), k)


def of_rows(bk, X):
    return CutGraphs(graph_of(bk, knn_graph(X)), Rows(bk.asarray(X)))


def assert_same_gap(one, other, rtol=1e-9):
    assert one.pair == other.pair
    for name in ("log_p", "between", "within", "length"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol)


def dense_cuts(W, labels, i, j):
    """Return the cuts of a pair, in the order of the share of walks that end in j, densely."""
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
        log_p = log_p_under_null(between, within, length, "graph")
        expected.append((min(0, log_p + math.log(2)), (i, j), between, within, length))
    result = found(bk, W, BLOBS_Y, 3)
    largest = max(expected)
    assert result.pair == largest[1]
    np.testing.assert_allclose(result[2:5], largest[2:], rtol=1e-9)
    assert result.law == "graph"
    np.testing.assert_allclose(result.log_p, largest[0], rtol=1e-6, atol=1e-9)


def test_the_profile_is_cuts_and_where_they_are(bk):
    W = knn_graph(BLOBS)
    cuts_of = Cuts(prepare_walks(graph_of(bk, W)), labels_of(bk, BLOBS_Y), 3)
    position, weight = cuts_of.profile((0, 2))
    cuts, known, _ = dense_cuts(W, BLOBS_Y, 0, 2)
    at = np.flatnonzero(known)
    np.testing.assert_array_equal(bk.to_numpy(position), at + 1 - (BLOBS_Y == 0).sum())
    np.testing.assert_allclose(bk.to_numpy(weight), cuts[at], rtol=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_cuts_between_rows_that_the_walks_do_not_order_do_not_count(bk, seed):
    """Copies of a row have the same neighbours; the border may lie between two of them."""
    rng = np.random.default_rng(seed)
    base = np.triu(rng.random((7, 7)) * (rng.random((7, 7)) < 0.5), 1)
    base[np.arange(6), np.arange(1, 7)] = 1
    copy = np.repeat(np.arange(7), rng.integers(1, 4, size=7))
    labels = np.r_[0, 1, 2, rng.integers(3, size=copy.size - 3)]
    W = (base + base.T)[copy][:, copy]
    cuts_of = Cuts(prepare_walks(graph_of(bk, W)), labels_of(bk, labels), 3)
    pairs = np.array([(0, 1), (2, 0), (1, 2)])
    found = np.transpose(cuts_of.measure(pairs))
    for (i, j), own in zip(pairs.tolist(), found.tolist(), strict=True):
        cuts, known, S = dense_cuts(W, labels, i, j)
        cuts, border = np.where(known, cuts, 0), int((labels == i).sum()) - 1
        between = S[np.ix_(labels == i, labels == j)].sum()
        if cuts[border] > 0:
            between = max(min(between, cuts[border]), between / 2)
        within = min(cuts[: border + 1].max(), cuts[border:].max())
        np.testing.assert_allclose(own, (between, within), rtol=1e-6)
        np.testing.assert_allclose(np.ravel(cuts_of.measure(np.array([[i, j]]))), own, rtol=1e-12)


@pytest.mark.parametrize("factor", [1e-9, 1.0, 1e9])
def test_the_unit_of_the_similarities_does_not_matter(bk, factor):
    W = knn_graph(BLOBS)
    assert_same_gap(found(bk, W * factor, BLOBS_Y, 3), found(bk, W, BLOBS_Y, 3))


def test_the_graph_is_not_changed(bk):
    W = graph_of(bk, knn_graph(BLOBS))
    before = W.data.copy()
    gap_by_cut_test(CutGraphs(W), labels_of(bk, BLOBS_Y), 3)
    assert bool((W.data == before).all())


def test_sums_of_similarities_are_exact_in_any_order(bk):
    W = graph_of(bk, knn_graph(BLOBS))
    graph = prepare_walks(W)
    S = to_scipy(bk, graph.S)
    np.testing.assert_array_equal(S.data * 2.0**31, np.rint(S.data * 2.0**31))
    degrees = [math.fsum(S.data[a:b]) for a, b in itertools.pairwise(S.indptr)]
    steps, place = to_scipy(bk, graph.steps.matrix), graph.steps.place
    if place is not None:
        steps = steps[place][:, place]
    expected = S.multiply((0.5 / np.array(degrees))[:, None])
    np.testing.assert_array_equal(steps.toarray(), expected.toarray())
    assert len({found(bk, knn_graph(BLOBS), BLOBS_Y, 3) for _ in range(3)}) == 1
    assert len({CutGraphs(W).least_neighbors for _ in range(20)}) == 1


def complete(size, bridges):
    """Return two complete graphs with weights around 1, and edges from one to the other."""
    noise = np.random.default_rng(0).random((size, size))
    W = np.kron(np.eye(2), (0.9 + 0.1 * (noise + noise.T)) * (1 - np.eye(size)))
    for i in range(bridges):
        W[i, size:] = W[size:, i] = 1
    return W


def ring(m=400):
    """Return a ring in which each row is joined to three on both sides."""
    return sum(np.roll(np.eye(m), shift, axis=1) for shift in (-3, -2, -1, 1, 2, 3))


def test_a_bridge_between_complete_graphs_is_a_clear_gap(bk):
    labels = np.repeat([0, 1], 40)
    one, many = (found(bk, complete(40, bridges), labels, 2) for bridges in (1, 40))
    assert one.between < 1 < 8 < one.within  # of ten, for halves of forty
    assert one.log_p < math.log(1e-6)
    np.testing.assert_allclose(many.log_p, 0, atol=1e-4)  # all is one graph


def test_no_border_of_a_ring_is_a_gap(bk):
    result = found(bk, ring(), np.arange(400) * 2 // 400, 2)
    np.testing.assert_allclose(result.between, 2 * 6 / 6)  # 1 + 2 + 3 edges at each of two borders
    np.testing.assert_allclose(result.within, result.between, rtol=1e-6)
    np.testing.assert_allclose(result.log_p, 0, atol=1e-4)


def test_p_is_multiplied_by_the_number_of_clusters_less_one(bk):
    W = sparse.block_diag([complete(40, 1)] * 2)
    two = found(bk, complete(40, 1), np.repeat([0, 1], 40), 2)
    four = found(bk, W, np.repeat(range(4), 40), 4)
    assert four.between > 0
    assert four.log_p == pytest.approx(two.log_p + math.log(3), rel=1e-9)


def test_of_pairs_with_p_1_that_with_the_largest_ratio_is_named(bk):
    y = np.random.default_rng(0).integers(4, size=240)
    graphs = CutGraphs(graph_of(bk, knn_graph(BLOBS)))
    result, parts = gap_by_cut_test(graphs, labels_of(bk, y), 4), Parts(graphs, labels_of(bk, y), 4)
    every = np.arange(parts.n_parts)
    pairs = [(i, j) for j in every for i in parts.touching(j, every) if i > j]
    tested = parts.test(np.array(pairs), every)
    sure = tested.log_p + math.log(3) >= 0
    assert sure.sum() > 5
    ratio = np.where(sure, tested.between / tested.within, 0)
    assert result.log_p == 0
    assert result.between / result.within == ratio.max()
    best = pairs[int(ratio.argmax())]
    assert result.pair == tuple(sorted(parts.owner[list(best)]))


# -- parts ----------------------------------------------------------------------------------------


def parts_by_definition(W, labels, walk):
    """Return the part of each row, and for each part its cluster and its rows without strays."""
    inside = W * (labels[:, None] == labels)
    count, component = connected_components(inside)
    rows = [np.flatnonzero(component == c) for c in range(count)]
    owner = [labels[own[0]] for own in rows]
    kept = []
    for c, own in enumerate(rows):
        sizes = [len(x) for x, o in zip(rows, owner, strict=True) if o == owner[c]]
        first = min(x[0] for x, o in zip(rows, owner, strict=True)
                    if o == owner[c] and len(x) == max(sizes))  # fmt: skip
        if own[0] == first or len(own) >= max(2, sum(sizes) / 10):
            kept.append(c)
    part = np.array([kept.index(c) if c in kept else -1 for c in component])
    ends = walk @ (part[:, None] == np.arange(len(kept)))
    for row in np.flatnonzero(part < 0):
        largest = max((c for c in kept if owner[c] == labels[row]), key=lambda c: len(rows[c]))
        part[row] = ends[row].argmax() if ends[row].any() else kept.index(largest)
    return part, [owner[c] for c in kept], [len(rows[c]) for c in kept]


def walks(W):
    """Return the probabilities of walks of ten steps, densely."""
    degree = W.sum(axis=1) + (W.sum(axis=1) == 0)
    S = W / np.sqrt(np.outer(degree, degree))
    step = S / (S.sum(axis=1) + (S.sum(axis=1) == 0))[:, None]
    return np.linalg.matrix_power((np.eye(len(W)) + step) / 2, N_STEPS)


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_components_of_two_rows_or_more_and_a_tenth_of_their_cluster(bk, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 1, 1, 2, 2, 3, 4, 7, 18], size=16)
    piece = rng.permutation(np.repeat(np.arange(16), sizes))
    labels = np.array([0, 1, 2, 0, 0, 1, *rng.integers(3, size=10)])[piece]
    W = np.triu(rng.random((piece.size,) * 2), 1)
    W *= (piece[:, None] == piece) | ((labels[:, None] != labels) & (W < 0.05))
    W += W.T
    graph = prepare_walks(graph_of(bk, W))
    part, owner, core = parts_joined_by_walks(graph, labels_of(bk, labels), 3)
    expected = parts_by_definition(W, labels, walks(W))
    for name in range(len(owner)):  # parts may be numbered in any order
        own = np.flatnonzero(bk.to_numpy(part) == name)
        (number,) = set(expected[0][own])
        np.testing.assert_array_equal(np.flatnonzero(expected[0] == number), own)
        assert (owner[name], core[name]) == (expected[1][number], expected[2][number])
    assert len(owner) == len(expected[1])


def test_parts_of_a_cluster_that_strays_join_are_united(bk):
    """A path in pieces of two clusters, in which the single rows are strays of the other one."""
    pieces = [(0, 6), (1, 1), (0, 6), (1, 1), (0, 6), (1, 8), (0, 6), (1, 8), (0, 6)]
    labels = np.repeat(*np.array(pieces).T)
    W = np.eye(48, k=1) + np.eye(48, k=-1)
    parts = Parts(CutGraphs(graph_of(bk, W)), labels_of(bk, labels), 2)
    assert parts.n_parts == 7
    nodes = parts.of_clusters()
    rows = [sorted(bk.to_numpy(parts.cuts.rows(node)).tolist()) for node in nodes]
    assert sorted(rows) == [[*range(20)], [*range(20, 28)], [*range(28, 34)], [*range(34, 42)],
                            [*range(42, 48)]]  # fmt: skip
    assert [parts.owner[node] for node in nodes] == [labels[own[-1]] for own in rows]
    whole = Parts(CutGraphs(graph_of(bk, W)), labels_of(bk, np.arange(48) // 24), 2)
    assert whole.of_clusters().tolist() == [0, 1]
    assert whole.cuts.n_unions == 0


def test_unions_are_tested_as_if_their_parts_were_one(bk):
    rng, y = np.random.default_rng(0), np.arange(400) % 4
    X = rng.normal(size=(400, 2)) + 3.5 * y[:, None] * [1, 0]
    graphs, union = of_rows(bk, X), {node: node for node in range(4)}
    parts = Parts(graphs, labels_of(bk, y), 4)
    assert parts.owner[:4].tolist() == [0, 1, 2, 3] == list(range(parts.n_parts))
    nodes = np.arange(4)
    for a, b in ((0, 1), (2, 3)):
        parts.test(np.array([[1, 2]]), nodes)  # what was measured by now goes on to be known
        new = parts.unite(a, b)
        union = {part: new if node in (a, b) else node for part, node in union.items()}
        nodes = np.array([*nodes[(nodes != a) & (nodes != b)], new])
        labels = np.searchsorted(nodes, [union[part] for part in range(4)])[y]
        fresh = Parts(graphs, labels_of(bk, labels), len(nodes))
        for pair in itertools.combinations(range(len(nodes)), 2):
            found = parts.test(nodes[list(pair)][None], nodes)
            own = [int(np.flatnonzero(fresh.owner[: len(nodes)] == c)[0]) for c in pair]
            expected = fresh.test(np.array([own]), np.arange(len(nodes)))
            assert found.law == expected.law
            for name in ("log_p", "isolation", "between", "within", "length", "density", "valley"):
                one, other = getattr(found, name), getattr(expected, name)
                np.testing.assert_allclose(one, other, rtol=1e-9)


def test_clusters_that_hold_together_are_their_own_parts(bk):
    W, labels = ring(60), labels_of(bk, np.arange(60) // 20)
    part, owner, core = parts_joined_by_walks(prepare_walks(graph_of(bk, W)), labels, 3)
    assert part is labels
    assert (owner.tolist(), core) == ([0, 1, 2], None)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_the_panels_in_which_walks_are_counted_do_not_matter(bk, monkeypatch, width):
    rng = np.random.default_rng(1)
    W = np.triu(rng.random((60, 60)) * (rng.random((60, 60)) < 0.1), 1)
    graph, labels = (
        prepare_walks(graph_of(bk, W + W.T)),
        labels_of(bk, rng.integers(-1, 7, size=60)),
    )
    expected = bk.to_numpy(walk(graph, labels, 7))
    monkeypatch.setattr(bk, "walk_width", width)
    np.testing.assert_array_equal(bk.to_numpy(walk(graph, labels, 7)), expected)
    panels = list(walk_panels(graph, labels, 7))
    assert max(own.shape[1] for _, own in panels) <= width
    value, column = (bk.to_numpy(x) for x in largest_in_panels(panels))
    np.testing.assert_array_equal(column, expected.argmax(axis=1))  # the first of equal ones
    np.testing.assert_array_equal(value, expected.max(axis=1))


def test_edges_are_the_entries_above_the_diagonal(bk):
    W = knn_graph(BLOBS)
    graph = prepare_walks(graph_of(bk, W + sparse.identity(len(BLOBS))))  # loops are no edges
    row, column, weight = (bk.to_numpy(x) for x in graph.edges)
    S = to_scipy(bk, graph.S)
    expected = sparse.triu(S, 1, format="csr").tocoo()
    np.testing.assert_array_equal(row, expected.row)
    np.testing.assert_array_equal(column, expected.col)
    np.testing.assert_array_equal(weight, expected.data)
    np.testing.assert_array_equal(bk.to_numpy(graph.entry_row), S.tocoo().row)


def test_shares_of_walks_are_powers_of_the_matrix_of_steps(bk):
    rng = np.random.default_rng(0)
    W = np.triu(rng.random((50, 50)) * (rng.random((50, 50)) < 0.1), 1)
    W[:, 7] = W[7] = 0
    W += W.T
    labels = rng.integers(-1, 4, size=50)
    graph, ends = prepare_walks(graph_of(bk, W)), labels[:, None] == np.arange(4)
    found = bk.to_numpy(walk(graph, labels_of(bk, labels), 4))
    np.testing.assert_allclose(found, walks(W) @ ends)
    labels = np.maximum(labels, 0)
    shares = bk.to_numpy(walk_shares(graph, labels_of(bk, labels), 4))
    expected = walks(W) @ (labels[:, None] == np.arange(4))
    expected[7] = labels[7] == np.arange(4)
    np.testing.assert_allclose(shares, expected)
    direct = membership_by_walks(graph_of(bk, W), labels_of(bk, labels), 4)
    np.testing.assert_array_equal(bk.to_numpy(direct), shares)


@pytest.mark.parametrize("n", [4, 5, 6, 9])
@pytest.mark.parametrize("kind", ["clique", "star", "alone"])
def test_twins_have_the_same_neighbours_and_count_if_there_are_more_than_five(bk, n, kind):
    noise = np.random.default_rng(0).random((12, 12)) < 0.4
    W = np.zeros((12 + n, 12 + n))
    W[:12, :12] = np.triu(noise, 1) + np.triu(noise, 1).T
    W[11], W[:, 11] = W[10], W[:, 10]  # twins
    W[10, 11] = W[11, 10] = 1
    if kind == "clique":
        W[12:, 12:] = 1 - np.eye(n)
    elif kind == "star":
        W[0, 12:] = W[12:, 0] = 1
    twins = prepare_walks(graph_of(bk, W), twins=True).twins
    assert prepare_walks(graph_of(bk, W)).twins is None
    if n < 6:
        assert twins is None
        return
    apart, joined = W.astype(bool), W.astype(bool) | np.eye(len(W), dtype=bool)
    expected = [(x[:, None] == x).all(axis=2) for x in (apart, joined)]
    twins = bk.to_numpy(twins)
    np.testing.assert_array_equal(twins[:, None] == twins, expected[0] | expected[1])


def test_a_graph_of_few_rows_has_no_twins(bk):
    for n in (2, 3, 4, 5):
        assert prepare_walks(graph_of(bk, 1 - np.eye(n)), twins=True).twins is None


def test_a_cluster_that_falls_apart_is_tested_part_by_part(bk):
    result = found(bk, ring(), np.arange(400) * 8 // 400 % 2, 2)
    np.testing.assert_allclose(result.between, 1)  # of eight borders, one
    assert result.pair == (0, 1)


def test_strays_go_to_the_part_around_them(bk):
    X, y = make_moons(600, noise=0.05, random_state=0)
    W = knn_graph(X)
    clean, strayed = np.asarray(y), np.array(y)
    deep = np.flatnonzero((y == 0) & (X[:, 1] > 0.9))[::7]
    strayed[deep] = 1
    one, other = found(bk, W, clean, 2), found(bk, W, strayed, 2)
    np.testing.assert_allclose(other.within, one.within, rtol=0.2)
    assert other.between <= one.between + 0.1
    assert other.log_p < math.log(0.05)


def test_strays_that_go_home_change_nothing(bk):
    """Once strays are where the walks from them end, the parts are those without strays."""
    X, y = make_moons(600, noise=0.05, random_state=0)
    strayed = np.array(y)
    strayed[np.flatnonzero((y == 0) & (X[:, 1] > 0.9))[::7]] = 1
    graphs = CutGraphs(graph_of(bk, knn_graph(X)))
    parts = Parts(graphs, labels_of(bk, strayed), 2)
    assert parts.n_parts == 2
    np.testing.assert_array_equal(parts.owner[bk.to_numpy(parts.part)], y)
    clean, again = (gap_by_cut_test(graphs, labels_of(bk, z), 2) for z in (y, strayed))
    assert_same_gap(clean, again, rtol=1e-12)


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


def test_a_part_that_stands_alone_is_compared_with_all_rows_of_its_cluster(bk):
    parts = np.kron(np.eye(20), complete(20, 0)[:20, :20])
    result = found(bk, parts, np.repeat([0, 1], 200), 2)
    np.testing.assert_allclose(result.length, 400 / result.within, rtol=1e-9)


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
    graphs = CutGraphs(graph_of(bk, W))
    parts = [bk.asarray(np.array(rows)) for rows in ((0, 1, 5), (0, 2, 4))]
    widths = [graphs.width(rows, wide=False) for rows in parts]
    for rows, width in zip(parts, widths, strict=True):
        assert CutGraphs(graph_of(bk, W)).width(rows, wide=False) == width
    assert widths[0] != widths[1]


@pytest.mark.parametrize("cut", [heaviest_cut, heaviest_cut_if_mixed])
def test_two_rows_have_no_cut_inside(bk, cut):
    assert cut(graph_of(bk, np.array([[0.0, 1], [1, 0]]))) == 0
    assert cut(graph_of(bk, complete(3, 0))) > 0


def normalised(W):
    degree = W.sum(axis=1)
    return W / np.sqrt(np.outer(degree, degree))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cut", [heaviest_cut, heaviest_cut_if_mixed])
def test_the_own_cut_is_the_heaviest_in_the_order_of_the_second_eigenvector(bk, cut, seed):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((20, 20)) * (rng.random((20, 20)) < 0.3), 1)
    W[np.arange(11), np.arange(1, 12)] = 1
    W[:12, 12:] = 0  # another component, or several, of fewer rows
    S = normalised(W + W.T + 1e-9 * np.eye(20))
    own = S[:12, :12]
    vectors = np.linalg.eigh(own)[1]
    order = np.argsort(vectors[:, -2] / vectors[:, -1])
    expected = max(own[np.ix_(order[:t], order[t:])].sum() for t in range(1, 12))
    place = rng.permutation(20)
    A = (S * (1 - np.eye(20)))[place][:, place]
    assert cut(graph_of(bk, A)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "mixed"), [(25, True), (26, False)])
def test_walks_along_a_thread_of_26_rows_mix_slowly(bk, n, mixed):
    """The two leading eigenvalues of lazy walks differ by (1 - cos π / (n - 1)) / 2."""
    assert ((1 - math.cos(math.pi / (n - 1))) / 2 > 0.004) == mixed
    W = np.eye(n, k=1) + np.eye(n, k=-1)
    S = normalised(W)
    heaviest = math.sqrt(0.5)  # next to an end
    assert heaviest_cut_if_mixed(graph_of(bk, S)) == pytest.approx(heaviest * mixed, rel=1e-9)
    assert heaviest_cut(graph_of(bk, S)) == pytest.approx(heaviest, rel=1e-9)
    graphs, rows = CutGraphs(graph_of(bk, W)), bk.asarray(np.arange(n))
    assert graphs.width(rows) == pytest.approx(heaviest, rel=1e-6)
    assert graphs.width(rows, mixed=True) == pytest.approx(heaviest * mixed, rel=1e-6)


def test_twins_of_the_largest_component_are_cut_apart(bk):
    S = sparse.block_diag([np.zeros((3, 3)), normalised(1 - np.eye(7))]).toarray()
    twins = bk.asarray(np.repeat([1.0, 2, 3, 4], [1, 1, 1, 7]))
    assert heaviest_cut(graph_of(bk, S), twins) == pytest.approx(3 * 4 / 6, rel=1e-9)
    assert heaviest_cut(graph_of(bk, S[3:, 3:]), twins[3:]) == pytest.approx(2, rel=1e-9)


@pytest.mark.parametrize("loop", [0.1, 5.0])
def test_similarities_of_a_row_to_itself_do_not_count(bk, loop):
    W = knn_graph(BLOBS)
    assert_same_gap(found(bk, W + loop * sparse.eye(240), BLOBS_Y, 3), found(bk, W, BLOBS_Y, 3))


def test_rows_without_edges_are_no_cluster(bk):
    W = np.zeros((60, 60))
    W[:40, :40] = np.ones((40, 40)) - np.eye(40)
    assert found(bk, W, np.repeat([0, 1], [40, 20]), 2).log_p == 0


def test_many_small_components_are_all_found(bk):
    W = np.kron(np.eye(20), complete(20, 0)[:20, :20])
    result = found(bk, W, np.repeat(np.arange(20), 20), 20)
    np.testing.assert_allclose(result.length, 2 * 20 / result.within)  # not of all rows
    assert result.log_p < math.log(0.01)


def test_of_few_rows_all_others_are_neighbours(bk):
    X = bk.asarray(np.random.default_rng(0).normal(size=(20, 2)))
    nearest = bk.to_numpy(CutGraphs(knn_graph(X), Rows(X)).nearest)
    for i, others in enumerate(np.sort(nearest, axis=1).tolist()):
        assert others == [j for j in range(20) if j != i]


def test_labels_that_are_not_in_the_graph_are_no_clusters(bk):
    rng = np.random.default_rng(0)
    block = np.repeat([0, 1], 150)
    W = np.triu(rng.random((300, 300)) < np.where(block[:, None] == block, 0.2, 0.01), 1)
    W = (W + W.T).astype(float)
    assert found(bk, W, block, 2).log_p < math.log(1e-4)
    assert found(bk, W, rng.permutation(block), 2).log_p == 0


# -- the second look ------------------------------------------------------------------------------


def test_the_wide_graph_decides_where_cuts_are_of_few_rows(bk):
    X, y = make_moons(1500, noise=0.08, random_state=2)
    near = found(bk, knn_graph(X), y, 2)
    assert near.within < THIN_WEIGHT
    assert near.log_p > CLEAR_LOG_P
    wide = found(bk, knn_graph(X, WIDE), y, 2)
    assert not has_shortcuts(near.within, wide.within)
    expected = log_p_under_null(wide.between, wide.within, wide.length, "rows")
    result = gap_by_cut_test(of_rows(bk, X), labels_of(bk, y), 2)
    assert_same_gap(result, wide._replace(log_p=float(expected)))
    assert result.log_p < near.log_p


def test_the_wide_graph_is_not_made_where_cuts_are_of_many_rows(bk):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 8)), np.repeat([0, 1], 300)
    X[300:, 0] += 8
    graphs = of_rows(bk, X)
    assert gap_by_cut_test(graphs, labels_of(bk, y), 2).log_p < CLEAR_LOG_P
    assert gap_by_cut_test(graphs, labels_of(bk, rng.permutation(y)), 2).log_p == 0
    assert "wide" not in vars(graphs)


@pytest.mark.parametrize("columns", [2, 40])
def test_where_the_own_cut_is_clear_the_isolation_is_not_looked_at(bk, columns):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1400, columns)), np.repeat([0, 1], 700)
    X[700:, 0] += 60
    graphs = of_rows(bk, X)
    result = gap_by_cut_test(graphs, labels_of(bk, y), 2)
    assert result.between == 0
    np.testing.assert_allclose(result.length, 1400 / result.within)
    expected = log_p_under_null(0.0, result.within, result.length, "rows")
    np.testing.assert_allclose(result.log_p, expected)
    assert result.log_p <= math.log(1e-4)
    assert not {"wide", "nearest"} & set(vars(graphs))


def test_where_edges_are_shortcuts_the_law_is_wider(bk):
    X, position = make_swiss_roll(1000, random_state=4)
    y = position > np.median(position)
    near, wide = found(bk, knn_graph(X), y, 2), found(bk, knn_graph(X, WIDE), y, 2)
    assert near.within < THIN_WEIGHT
    assert has_shortcuts(near.within, wide.within)
    result = gap_by_cut_test(of_rows(bk, X), labels_of(bk, y), 2)
    np.testing.assert_allclose(result[2:5], wide[2:5])
    assert result.law == "shortcuts"
    z = 2 * (math.sqrt(0.7 * wide.within) - math.sqrt(wide.between))
    scale = 2.5 * np.interp(
        np.log(wide.length), *(np.log(null_law("rows")[0]), null_law("rows")[1])
    )
    cut = math.log(2) + norm.logsf(z / scale)
    np.testing.assert_allclose(result.log_p, cut)
    assert result.log_p > log_p_under_null(wide.between, wide.within, wide.length, "rows")


def bands(n_bands=2, seed=27):
    """Return bands in a line, which the graph of 30 neighbours joins, and that of 10 does not."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_bands), 150)
    return rng.random((y.size, 2)) * [10, 1] + np.c_[10.6 * y, 0 * y], y


def test_what_the_wide_graph_alone_joins_is_judged_there(bk):
    X, y = bands()
    near, wide = found(bk, knn_graph(X), y, 2), found(bk, knn_graph(X, WIDE), y, 2)
    assert near.between == 0 < wide.between
    assert near.log_p > CLEAR_LOG_P
    assert not has_shortcuts(near.within, wide.within)  # of the own cuts in the first
    graphs = of_rows(bk, X)
    alone = [graphs.log_p_of_isolation(bk.asarray(np.flatnonzero(y == c))) for c in (0, 1)]
    law = float(log_p_under_null(wide.between, wide.within, wide.length, "rows"))
    for labels in (y, 1 - y):
        result = gap_by_cut_test(graphs, labels_of(bk, labels), 2)
        assert_same_gap(result, wide._replace(log_p=min(law, *alone)))


def test_parts_of_one_cluster_are_not_tested_against_each_other(bk):
    X, y = bands(3)
    X[y == 2, 0] += 400
    graphs, labels = of_rows(bk, X), labels_of(bk, np.minimum(y, 2) // 2)
    parts = Parts(graphs, labels, 2)
    assert parts.owner[:3].tolist() == [0, 0, 1]
    assert parts.wide.touching(0, np.arange(3)).tolist() == [1]
    result = gap_by_cut_test(graphs, labels, 2)
    assert result.pair == (0, 1)
    assert result.log_p < math.log(0.001)


def test_a_small_neighbour_in_the_wide_graph_is_no_reason_for_p_1(bk):
    X, y = bands()
    few = np.concatenate([np.arange(150), 150 + np.argsort(X[150:, 0])[:20]])
    X, y = X[few], y[few]
    X[150:] = [11.5, 0.5] + 0.1 * (X[150:] - X[150:].mean(axis=0))
    graphs = of_rows(bk, X)
    for labels in (y, 1 - y):
        parts = Parts(graphs, labels_of(bk, labels), 2)
        assert not parts.touching(0, np.arange(2)).size
        assert parts.wide.touching(0, np.arange(2)).size
        assert gap_by_cut_test(graphs, labels_of(bk, labels), 2).log_p < 0


@pytest.mark.parametrize("factor", [1, 3])
def test_long_threads_are_told_by_the_gap_alone(bk, factor):
    X, y = make_moons(2000)
    graphs = of_rows(bk, np.repeat(X, factor, axis=0))
    labels = graphs.distinct(labels_of(bk, np.repeat(y, factor)))
    expected = math.log(2000) - WIDE * math.log(2)  # of the distinct rows
    np.testing.assert_allclose(gap_by_cut_test(graphs, labels, 2).log_p, expected)
    assert found(bk, knn_graph(X), y, 2).log_p > math.log(0.01)  # by their width


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_bound_of_a_gap_is_the_same_for_every_k(bk, k):
    rng, group = np.random.default_rng(0), np.repeat(np.arange(5), 200)
    X = rng.normal(size=(1000, 2)) + 60 * group[:, None]
    graphs = of_rows(bk, X)
    result = gap_by_cut_test(graphs, labels_of(bk, np.minimum(group, k - 1)), k)
    rows = bk.asarray(np.flatnonzero(group == result.pair[0]))
    assert result.law == "isolation"
    assert (
        isolation_log_p_under_null(1000, WIDE, 1.5)
        <= result.log_p
        <= isolation_log_p_under_null(1000, WIDE)
    )
    assert graphs.log_p_of_isolation(rows) <= isolation_log_p_under_null(1000, WIDE)


@pytest.mark.parametrize("apart", [8, 20])
def test_clusters_that_are_further_apart_are_no_less_found(bk, apart):
    X, y = np.random.default_rng(0).normal(size=(1500, 2)), np.arange(1500) % 2
    X[:, 0] += apart * y
    assert gap_by_cut_test(of_rows(bk, X), labels_of(bk, y), 2).log_p < CLEAR_LOG_P


@pytest.mark.parametrize("size", [13, 20, 28])
def test_the_gap_around_a_small_cluster_is_as_many_rows_as_it_has_left(bk, size):
    """The nearest other row is beyond size - 1 neighbours, on the other side beyond 30."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(800, 2)), (np.arange(800) < size).astype(int)
    X[:size] = [40, 40] + 0.3 * X[:size]
    near, dimension = found(bk, knn_graph(X), y, 2), local_dimension(cdist(X[:size], X[:size]))
    gap = isolation_log_p_under_null(800, size - 1, dimension)
    assert near.between == 0 < near.within < THIN_WEIGHT
    assert 1 < dimension <= 1.5
    expected = gap if gap <= CLEAR_LOG_P else min(near.log_p, gap)
    result = gap_by_cut_test(of_rows(bk, X), labels_of(bk, y), 2)
    np.testing.assert_allclose(result.log_p, expected, rtol=1e-9)


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
    assert apart / n_sets <= math.exp(isolation_log_p_under_null(m, r))
    assert isolation_log_p_under_null(m, 0) == isolation_log_p_under_null(m, 5) == 0


def test_of_equal_rows_one_is_looked_at(bk):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] > 0).astype(int)
    expected = gap_by_cut_test(of_rows(bk, X), labels_of(bk, y), 2)
    order = np.concatenate([np.arange(400), rng.integers(400, size=300)])
    graphs = of_rows(bk, X[order])
    assert (graphs.n_rows, graphs.n_distinct) == (700, 400)
    assert_same_gap(gap_by_cut_test(graphs, graphs.distinct(labels_of(bk, y[order])), 2), expected)
    spread = graphs.spread(graphs.distinct(labels_of(bk, y[order])))
    np.testing.assert_array_equal(bk.to_numpy(spread), y[order])


# -- which test of a pair decides -----------------------------------------------------------------


class Measured:
    """Cuts that are given: (between, within) of the one pair of nodes there is."""

    def __init__(self, bk, found, size, touching=()):
        self.bk, self.found, self.n_unions, self.joined = bk, found, 0, list(touching)
        self.sizes, self.weights = np.array([size - 1, size + 1, 0, 0]), np.full((4, 4), 7.0)

    def heaviest(self, pairs):
        return self.bk.xp.zeros((3, len(pairs)))

    def borders(self, pairs, _):
        return tuple(np.full(len(pairs), x, dtype=float) for x in self.found)

    def measure(self, pairs):
        return self.borders(pairs, None)

    def touching(self, node, others):
        return others[np.isin(others, self.joined) & (others != node)]

    def rows(self, node):
        return node


class Given:
    """Graphs and valleys that are given; `asked` says which tests were made."""

    near, wide = "near", "wide"

    def __init__(self, *, columns=20, second=True, valley=math.nan, bent=False, isolation=0.0,
                 widths=(0.0, 0.0, 0.0)):  # fmt: skip
        self.has_rows, self.n_columns, self.has_second = (
            columns > 0,
            columns,
            second and columns > 0,
        )
        self.valley, self.bent, self.isolation, self.widths = valley, bent, isolation, widths
        self.n_unions, self.asked = 0, []

    def valleys(self, *_):
        return self

    def log_p(self, _, deep):
        self.asked.append("deep" if deep[0] else "valley")
        return np.full(len(deep), self.valley)

    def are_bent(self, pairs, _):
        self.asked.append("bent")
        return np.full(len(pairs), self.bent)

    def width(self, _, *, wide=False, mixed=False):
        return self.widths[2 if wide else 0 if mixed else 1]

    def log_p_of_isolation(self, _):
        return self.isolation


def parts_of(bk, monkeypatch, graphs, near, wide=(9.0, 9.0), size=100, core=None, touching=()):
    """Return the parts of two clusters of `size` rows whose cuts are given."""
    known = {"near": Measured(bk, near, size), "wide": Measured(bk, wide, size, touching)}
    labels = bk.asarray(np.repeat([0, 1], size).astype(np.int32))
    cores = np.array([core or size, size])
    monkeypatch.setattr(parts_module, "Cuts", lambda graph, *_: known[graph])
    monkeypatch.setattr(parts_module, "parts_joined_by_walks",
                        lambda *_: (labels, np.arange(2), cores))  # fmt: skip
    graphs.counts = lambda pairs, _: bk.xp.zeros((len(pairs), 2, 96))
    monkeypatch.setattr(parts_module, "valley_log_p", graphs.log_p)
    return Parts(graphs, labels, 2)


PAIR, NODES = np.array([[0, 1]]), np.arange(2)


def cut_p(found, n_rows, law, wider=1.0):
    between, within = found
    return float(log_p_under_null(between, within, n_rows / within, law, wider))


def together(p, q):
    """Return the log p of two tests: twice the smaller p."""
    return min(0.0, min(p, q) + math.log(2))


@pytest.mark.parametrize(
    ("given", "near", "size", "law"),
    [
        ({"columns": 0}, (1.0, 12.0), 400, "graph"),
        ({"columns": 0}, (1.0, 40.0), 400, "graph"),
        ({}, (6.0, 15.0), 400, "rows"),
        ({"second": False}, (1.0, 14.9), 400, "graph"),
        ({"second": False}, (9.0, 14.9), 400, "graph"),
        ({}, (0.0, 14.9), 200, "graph"),  # clear
        ({}, (5.0, 14.9), 400, "second"),
        ({}, (14.0, 14.9), 400, "second"),
    ],
)
def test_a_cut_is_judged_by_the_law_of_its_graph(bk, monkeypatch, given, near, size, law):
    wide = (5.0, 30.0)
    parts = parts_of(bk, monkeypatch, Given(**given), near, wide, size)
    tested = parts.test(PAIR, NODES)
    decisive, law = (wide, "rows") if law == "second" else (near, law)
    assert tested.law[0] == law
    assert tested.log_p[0] == pytest.approx(cut_p(decisive, 2 * size, law), rel=1e-12)
    assert (tested.between[0], tested.within[0]) == decisive
    assert tested.length[0] == pytest.approx(2 * size / decisive[1])
    assert tested.density[0] == 7 / (size - 1)
    assert not tested.doubtful[0]
    assert tested.isolation[0] == 0
    assert tested.ratio[0] == pytest.approx(math.sqrt(decisive[0] / decisive[1]))


@pytest.mark.parametrize(("core", "second"), [(30, False), (31, True)])
def test_parts_smaller_than_a_wide_neighbourhood_keep_their_p(bk, monkeypatch, core, second):
    parts = parts_of(bk, monkeypatch, Given(), (5.0, 10.0), (5.0, 30.0), core=core)
    assert parts.test(PAIR, NODES).within[0] == (30 if second else 10)


def test_a_thin_cut_is_looked_at_again_if_it_is_not_clear_and_below_the_limit(bk, monkeypatch):
    near = (5.0, 10.0)
    own = cut_p(near, 200, "graph")
    for clear, below, again in (
        (-20.0, math.inf, True),
        (own, math.inf, False),
        (-20.0, own, False),
        (-20.0, own + 1e-9, True),
    ):
        parts = parts_of(bk, monkeypatch, Given(), near)
        monkeypatch.setattr(parts_module, "CLEAR_LOG_P", clear)
        assert parts.look(PAIR, NODES, below).doubtful[0] == again


@pytest.mark.parametrize(("within", "law"), [(26.0, "rows"), (26.1, "shortcuts")])
def test_the_law_is_wider_where_the_second_cut_is_too_heavy(bk, monkeypatch, within, law):
    parts = parts_of(bk, monkeypatch, Given(), (8.0, 10.0), (4.0, within), 400)
    tested = parts.test(PAIR, NODES)
    assert tested.law[0] == law
    wider = 2.5 if law == "shortcuts" else 1.0
    assert tested.log_p[0] == pytest.approx(cut_p((4.0, within), 800, "rows", wider), rel=1e-12)


@pytest.mark.parametrize(
    ("columns", "near", "size", "asked"),
    [
        (20, (20.0, 20.0), 250, ["valley"]),  # a length of 25
        (20, (20.0, 20.0), 251, []),
        (20, (0.0, 20.0), 250, []),  # a clear cut
        (20, (0.0, 0.0), 250, []),
        (10, (8.0, 20.0), 251, ["valley", "bent"]),  # longer than 25, but light
        (11, (8.0, 20.0), 251, []),
        (10, (14.0, 20.0), 251, []),  # not light
        (10, (14.0, 20.0), 250, ["valley", "bent"]),
        (10, (6.0, 16.0), 1152, ["valley", "bent"]),  # 3 √2304 = 144 rows for each of within
        (10, (6.0, 16.0), 1153, ["deep", "bent"]),
        (10, (4.0, 16.0), 3200, ["deep", "bent"]),  # 5 √6400 = 400
        (10, (4.0, 16.0), 3201, []),
        (10, (10.0, 20.0), 400, ["valley", "bent"]),  # 40 is longer than 25, not than 3 √800
    ],
)
def test_valleys_are_looked_for_between_short_pairs_and_light_ones(
    bk, monkeypatch, columns, near, size, asked
):
    graphs = Given(columns=columns, second=False, valley=-7.0)
    tested = parts_of(bk, monkeypatch, graphs, near, size=size).test(PAIR, NODES)
    assert graphs.asked == asked
    assert tested.law[0] == ("valley" if asked else "rows" if near[1] else "graph")
    cut = cut_p(near, 2 * size, "rows") if near[1] else 0.0
    assert tested.log_p[0] == pytest.approx(together(cut, -7.0) if asked else cut, rel=1e-12)


@pytest.mark.parametrize(
    ("near", "valley", "bent", "asked", "decides"),
    [
        ((8.0, 20.0), -7.0, False, True, True),
        ((8.0, 20.0), -7.0, True, True, False),
        ((8.0, 20.0), math.log(0.5), True, False, False),  # the cut is clearer
        ((8.0, 20.0), math.nan, True, False, False),
        ((20.0, 20.0), math.log(0.25), True, False, True),  # p is one half for both together
        ((20.0, 20.0), math.log(0.24), True, True, False),
        ((10.0, 10.0), math.log(0.5), True, False, True),  # thin, so looked at again in any case
        ((10.0, 10.0), math.log(0.49), True, True, False),
    ],
)
def test_a_valley_counts_if_it_is_clearer_than_the_cut_and_not_bent(
    bk, monkeypatch, near, valley, bent, asked, decides
):
    graphs = Given(columns=2, valley=valley, bent=bent)
    thick = near[1] >= 15
    size = 200 if thick else 100
    tested = parts_of(bk, monkeypatch, graphs, near, (20.0, 20.0), size).test(PAIR, NODES)
    cut = cut_p(near if thick else (20.0, 20.0), 2 * size, "rows")
    known = 0.0 if asked and bent else valley
    assert tested.law[0] == ("valley" if decides else "rows")
    assert tested.log_p[0] == pytest.approx(cut if math.isnan(valley) else together(cut, known))
    assert ("bent" in graphs.asked) == asked


@pytest.mark.parametrize(
    ("given", "core", "joined", "expected"),
    [
        ({"widths": (60, 1, 1), "isolation": -99.0}, 100, [], (0, 60, "rows")),  # is clear
        ({"widths": (15, 1, 1), "isolation": -99.0}, 100, [], (0, 15, "rows")),
        ({"widths": (14, 1, 1), "isolation": -99.0}, 100, [], (0, 14, "graph")),
        ({"widths": (4, 4, 1), "isolation": -9.3}, 100, [], (-9.3, 0, "rows")),  # the gap is clear
        ({"widths": (0, 15, 30), "isolation": -1.0}, 100, [1], (-1, 15, "rows")),
        ({"widths": (0, 14, 30), "isolation": -1.0}, 100, [1], (-1, 14, "graph")),
        ({"widths": (0, 4, 30), "isolation": -1.0}, 30, [1], (-1, 4, "graph")),  # few rows
        ({"widths": (0, 4, 30), "isolation": -1.0, "second": False}, 100, [1], (-1, 4, "graph")),
        ({"widths": (60, 4, 30), "columns": 0}, 100, [1], (0, 4, "graph")),
        ({"widths": (0, 60, 30), "columns": 0}, 100, [1], (0, 60, "graph")),
        ({"widths": (0, 4, 30), "isolation": -1.0}, 31, [], (-1, 30, "rows")),
        ({"widths": (0, 4, 30), "isolation": -1.0}, 31, [1], None),
    ],
)
def test_what_no_edge_joins_is_judged_by_its_own_cut_or_the_gap_around_it(
    bk, monkeypatch, given, core, joined, expected
):
    graphs = Given(**given)
    parts = parts_of(bk, monkeypatch, graphs, (0.0, 5.0), core=core, touching=joined)
    assert parts.alone(0, NODES) == expected
    assert parts.touching(0, NODES).tolist() == ([] if expected else [1])
    assert parts.touching(1, NODES).tolist() == []


@pytest.mark.parametrize("within", [14.0, 14.1])
def test_what_the_second_graph_alone_joins_is_judged_there(bk, monkeypatch, within):
    graphs = Given(widths=(0, 4, 30), isolation=-1.0)
    parts = parts_of(bk, monkeypatch, graphs, (0.0, 0.0), (4.0, within), 40, touching=[0, 1])
    assert lone_part(parts, 0, NODES) == {}
    assert touching_parts(parts, NODES).tolist() == [[0, 1]]
    tested = parts.test(PAIR, NODES)
    law, wider = ("shortcuts", 2.5) if within > 2 * 4 + 6 else ("rows", 1.0)
    assert tested.law[0] == law
    assert tested.log_p[0] == pytest.approx(cut_p((4.0, within), 80, "rows", wider), rel=1e-12)
    assert tested.isolation[0] == -1
    parts.inherit(0, 2)
    assert parts.touching(2, np.array([1, 2])).tolist() == [1]


@pytest.mark.parametrize(("mixed", "k"), [(True, 3), (False, 2)])
def test_an_own_cut_is_clear_up_to_the_limit(bk, monkeypatch, mixed, k):
    """Before the neighbours of all rows are asked for, with a factor for one cluster more."""
    graphs = Given(widths=(5 if mixed else 0, 5, 30), isolation=-1.0)
    own = cut_p((0.0, 5), 200, "graph") + math.log(k - 1)
    for shift, clear in ((0.0, True), (-1e-9, False)):
        parts = parts_of(bk, monkeypatch, graphs, (0.0, 5.0))
        monkeypatch.setattr(parts_module, "CLEAR_LOG_P", own + shift)
        expected = (-1.0, 5, "graph") if not mixed else (0.0, 5, "graph")
        assert (parts.alone(0, NODES) == expected) == clear


def test_the_gap_around_rows_is_counted_in_rows_that_are_nearer_than_the_other_side(bk):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        m = int(rng.choice([20, 31, 60]))
        X = rng.normal(size=(m, 2)) * [1, 0.3]
        part = X[:, 0] > np.sort(X[:, 0])[m // 2]
        X[part, 0] += rng.choice([0, 0.5, 3])
        order = cdist(X, X).argsort(axis=1)
        nearer = [min([*np.flatnonzero(part[own] != part[own[0]]), 31, m]) - 1 for own in order]
        row = int(np.argmin(nearer))
        own = X[order[row, : nearer[row] + 1]]
        dimension = local_dimension(cdist(own, own))
        expected = min(0.0, math.log(m) - nearer[row] * dimension * math.log(2))
        graphs = of_rows(bk, X)
        for rows in (part, ~part):
            found = graphs.log_p_of_isolation(bk.asarray(np.flatnonzero(rows)))
            assert found == pytest.approx(expected, rel=1e-9)
    alone = CutGraphs(graph_of(bk, knn_graph(X)))
    assert alone.log_p_of_isolation(bk.asarray(np.flatnonzero(part))) == 0


def test_the_number_of_neighbours_is_effective_and_the_least_of_all_rows(bk):
    W = np.triu(np.random.default_rng(0).random((30, 30)), 1)
    W += W.T
    S = W / np.sqrt(np.outer(W.sum(axis=1), W.sum(axis=1)))
    effective = S.sum(axis=1) ** 2 / (S**2).sum(axis=1)
    assert CutGraphs(graph_of(bk, W)).least_neighbors == pytest.approx(effective.min(), rel=1e-6)
    assert CutGraphs(graph_of(bk, ring(40))).least_neighbors == pytest.approx(6, rel=1e-12)
    W[3] = W[:, 3] = 0
    assert CutGraphs(graph_of(bk, W)).least_neighbors == 0
    assert CutGraphs(graph_of(bk, 0 * W)).least_neighbors == 0


def test_two_clusters_need_room_for_the_neighbours_of_their_rows_unless_rows_are_twins(bk):
    def attainable(W):
        return CutGraphs(graph_of(bk, W)).attainable_log_p()

    assert attainable(ring(13)) == 0
    for m in (14, 15, 60):  # seven in each
        assert attainable(ring(m)) == pytest.approx(cut_p((0.0, m / 8), m, "graph"), rel=1e-12)
    assert attainable(np.zeros((20, 20))) == 0
    assert attainable(1 - np.eye(20)) == pytest.approx(cut_p((0.0, 2.5), 20, "graph"), rel=1e-12)
    X = np.random.default_rng(0).normal(size=(60, 2))
    assert of_rows(bk, X).attainable_log_p() == pytest.approx(
        cut_p((0, 7.5), 60, "rows"), rel=1e-12
    )


@pytest.mark.parametrize(("m", "second"), [(89, False), (90, True)])
def test_there_is_a_second_graph_from_90_distinct_rows_on(bk, m, second):
    X = np.random.default_rng(0).normal(size=(m, 2))
    graphs = of_rows(bk, np.concatenate([X, X[:5]]))
    assert graphs.has_second == second
    assert graphs.n_columns == 2
    alone = CutGraphs(graph_of(bk, knn_graph(X)))
    assert (alone.has_second, alone.has_rows, alone.n_columns) == (False, False, 0)
    wide = to_scipy(bk, graphs.wide.S)
    expected = to_scipy(bk, prepare_walks(graph_of(bk, knn_graph(X, WIDE))).S)
    np.testing.assert_allclose(wide.toarray(), expected.toarray(), rtol=1e-9)


def test_widths_are_of_the_graph_and_the_walks_that_are_asked_for(bk):
    graphs = of_rows(bk, BLOBS)
    rows = np.flatnonzero(BLOBS_Y == 0)
    for wide, mixed in itertools.product([False, True], repeat=2):
        A = (graphs.wide if wide else graphs.near).S
        own = bk.asarray(rows)
        expected = (heaviest_cut_if_mixed if mixed else heaviest_cut)(A[own][:, own])
        assert expected > 0
        for order in (rows, rows[::-1].copy()):
            assert graphs.width(bk.asarray(order), wide=wide, mixed=mixed) == expected
    assert graphs.width(bk.asarray(rows)) == graphs.width(bk.asarray(rows), wide=False, mixed=False)


GAP_3, GAP_4, NO_GAP = ((log_p, 0, "rows") for log_p in (-3, -4, 0))  # around lone parts


def pair_tested(log_p, ratio, law="graph", isolation=0.0):
    """Return what the test of a pair finds: (between, within) is (ratio², 1)."""
    return log_p, isolation, ratio**2, 1.0, 20.0, False, 1.0, law, log_p, False, math.nan


@pytest.mark.parametrize(
    ("sizes", "pairs", "alone", "expected"),
    [
        # the largest p, times the number of clusters less one; then the largest ratio, and pair
        ([9, 8, 7], {(0, 1): (-5, 0.5), (1, 2): (-4, 0.3)}, {}, (-4, (1, 2), 0.09, 1, 20, "graph")),
        ([9, 8, 7], {(0, 1): (0, 0.5), (1, 2): (0, 0.3)}, {}, (0, (0, 1), 0.25, 1, 20, "graph")),
        ([9, 8, 7], {(0, 1): (0, 0.5), (1, 2): (0, 0.5)}, {}, (0, (1, 2), 0.25, 1, 20, "graph")),
        ([9, 8], {(1, 0): (-5, 0.5, "rows", -3)}, {}, (-5, (0, 1), 0.25, 1, 20, "rows")),
        ([9, 8], {(0, 1): (-3, 0.5, "rows", -5)}, {}, (-5, (0, 1), 0.25, 1, 20, "isolation")),
        ([9, 8], {(0, 1): (-5, 0.5, "rows", -5)}, {}, (-5, (0, 1), 0.25, 1, 20, "isolation")),
        ([9, 8], {(0, 1): (0, 0.5, "rows", 0)}, {}, (0, (0, 1), 0.25, 1, 20, "rows")),
        # what no edge joins is paired with the largest other cluster
        ([9, 1], {}, {0: [GAP_3]}, (-3, (0, 1), 0, 0, 0, "isolation")),
        ([9, 1], {}, {1: [NO_GAP]}, (0, (0, 1), 0, 0, 0, "rows")),
        ([5, 8, 7], {}, {2: [GAP_3]}, (-3, (1, 2), 0, 0, 0, "isolation")),
        ([5, 8, 7], {}, {1: [(-0.1, 5, "rows")]}, (None, (1, 2), 0, 5, 3, "rows")),
        # of several parts of a cluster, the most clearly isolated counts
        ([9, 8], {}, {0: [GAP_3, GAP_4]}, (-4, (0, 1), 0, 0, 0, "isolation")),
        ([9, 8], {}, {0: [GAP_4, GAP_3]}, (-4, (0, 1), 0, 0, 0, "isolation")),
        ([9, 8], {}, {0: [GAP_3], 1: [GAP_4]}, (-3, (0, 1), 0, 0, 0, "isolation")),
        # a cluster that borders another one is judged by its borders
        ([9, 8], {(0, 1): (-5, 0.5)}, {0: [GAP_3]}, (-5, (0, 1), 0.25, 1, 20, "graph")),
        ([9, 8, 7], {(0, 1): (0, 0.3)}, {2: [NO_GAP]}, (0, (0, 1), 0.09, 1, 20, "graph")),
    ],
)
def test_the_gap_of_a_clustering_is_that_of_its_least_separate_pair(
    bk, monkeypatch, sizes, pairs, alone, expected
):
    k = len(sizes)
    more = [c for c, parts in alone.items() for _ in parts[1:]]  # the clusters of further parts
    owner, given = np.array([*range(k), *more]), {c: list(parts) for c, parts in alone.items()}
    found = {n: LonePart(*given[c].pop()) for n, c in enumerate(owner.tolist()) if given.get(c)}
    tested = [[pair_tested(*pair)[i] for pair in pairs.values()] for i in range(11)]
    sizes = [*(n - more.count(c) for c, n in enumerate(sizes)), *(1 for _ in more)]
    parts = SimpleNamespace(
        owner=owner, n_parts=len(owner), of_clusters=lambda: np.arange(len(owner))
    )
    parts.cuts = SimpleNamespace(sizes=np.array(sizes))
    parts.test = lambda *_: MeasuredParts(*map(np.array, tested))
    touching, asked = np.array(list(pairs), dtype=np.int64).reshape(-1, 2), {}

    def lone(_, node, others):
        asked[node] = others.tolist()
        return {node: found[node]} if node in found else {}

    monkeypatch.setattr(cut_test_module, "Parts", lambda *_: parts)
    monkeypatch.setattr(cut_test_module, "lone_part", lone)
    monkeypatch.setattr(cut_test_module, "touching_parts", lambda *_: touching)
    gap = gap_by_cut_test(None, labels_of(bk, [0]), k)
    log_p, *rest = expected
    if log_p is None:
        log_p = cut_p((0, rest[2]), 15, "rows")
    factor = math.log(k - 1) if log_p < 0 and gap.law != "isolation" else 0.0
    assert gap.log_p == pytest.approx(log_p + factor, rel=1e-12)
    assert gap[1:] == tuple(rest)
    assert asked == {n: np.flatnonzero(owner != c).tolist() for n, c in enumerate(owner)}


# -- the law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["graph", "rows"])
def test_p_is_half_normal_in_the_difference_of_roots(law):
    for length, scale in zip(*null_law(law), strict=True):
        for between, within in ((1, 4), (0, 9), (2.7, 4), (0, 1e4), (0.1, 0.8), (0, 1)):
            z = 2 * (math.sqrt(0.7 * within) - math.sqrt(between))
            usual = log_p_under_null(between, within, length, law)
            np.testing.assert_allclose(usual, math.log(2) + norm.logsf(z / scale), rtol=1e-12)
            for wider in (1, 2.5):
                expected = math.log(2) + norm.logsf(z / (wider * scale))
                result = log_p_under_null(between, within, length, law, wider)
                np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize("law", ["graph", "rows"])
def test_p_of_many_borders_is_that_of_each(law):
    rng = np.random.default_rng(0)
    between, within, length = rng.random((3, 50)) * np.array([[5], [20], [300]])
    within[7] = 0
    each = [float(log_p_under_null(*one, law)) for one in zip(between, within, length, strict=True)]
    np.testing.assert_allclose(log_p_under_null(between, within, length, law), each, rtol=1e-12)
    assert len(set(each)) > 20


@pytest.mark.parametrize("law", ["graph", "rows"])
def test_p_is_one_where_no_cut_is_heavier(law):
    for between, within, length in ((3.5, 5, 20), (6, 5, 20), (0, 0, 20)):
        assert log_p_under_null(between, within, length, law) == 0
    assert log_p_under_null(800, 1000, 20, law) == 0  # however many rows: that is roughness


def test_p_of_a_pair_among_k_clusters_is_k_less_one_times_as_large_unless_isolation_decides():
    for p, isolation, k, expected in (
        (0.01, 1.0, 2, 0.01),
        (0.01, 1.0, 4, 0.03),
        (0.01, 0.02, 4, 0.02),
        (0.01, 0.02, 2, 0.01),
        (0.4, 1.0, 6, 1.0),
        (0.4, 0.9, 6, 0.9),
    ):
        result = decisive_log_p_under_null(math.log(p), math.log(isolation), k)
        assert math.exp(result) == pytest.approx(expected, rel=1e-12)
    assert decisive_log_p_under_null(-math.inf, 0.0, 3) == -math.inf


def test_p_of_two_tests_is_twice_the_smaller_but_at_most_one():
    p = np.array([[0.1, 0.3], [0.3, 0.1], [0.5, 0.9], [0.6, 0.9], [1, 1]])
    np.testing.assert_allclose(
        np.exp(bonferroni_log_p(*np.log(p.T))), [0.2, 0.2, 1, 1, 1], rtol=1e-12
    )


def test_a_gap_is_half_as_likely_with_each_row_that_is_nearer_in_each_dimension():
    nearer = np.array([0, 6, 7, 10, 30])
    expected = np.minimum(1, 100 / 2.0**nearer)
    np.testing.assert_allclose(np.exp(isolation_log_p_under_null(100, nearer)), expected)
    for dimension in (1.25, 1.5):
        result = np.exp(isolation_log_p_under_null(100, nearer, dimension))
        np.testing.assert_allclose(result, np.minimum(1, 100 / 2.0 ** (nearer * dimension)))


@pytest.mark.parametrize("n", [4, 5, 20])
def test_the_local_dimension_is_a_mean_logarithm_of_distances(n):
    X = np.random.default_rng(n).normal(size=(n, 6)) * [1, 1, 0.5, 0.2, 0.1, 0]
    logarithms = []
    for x in X:
        near = sorted(math.dist(x, y) for y in X)[1:]
        logarithms += [math.log(near[-1] / one) for one in near[:-1]]
    dimension = 1 / np.mean(logarithms)
    assert 1.5 < dimension < 9
    assert local_dimension(cdist(X, X), most=9.0) == pytest.approx(dimension, rel=1e-9)
    assert local_dimension(cdist(X, X)) == 1.5
    assert local_dimension(cdist(X[:3], X[:3]), most=9.0) == 1  # few rows
    apart = np.cumsum(8.0 ** np.arange(n))[:, None]  # each gap is eight times the one before
    assert local_dimension(cdist(apart, apart), most=9.0) == 1


def test_the_laws_rise_with_the_length():
    for name in ("rows", "graph"):
        length, scale = null_law(name)
        assert (np.diff(length) > 0).all()
        assert (np.diff(scale) >= 0).all()
        assert scale.min() > 0


# -- what the estimator and callers hand to it ----------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"affinity": "radius_neighbors"},
        {"n_neighbors": 6},
        {"n_neighbors": 40},
        {"weights": "distance"},
    ],
)
def test_gaps_are_looked_for_among_nearest_neighbours_whatever_is_embedded(settings):
    model = SpecialK(backend="numpy", n_clusters=2, random_state=0, **settings).fit(BLOBS)
    graphs = graphs_to_cut(model, Rows(BLOBS), model.affinity_matrix_)
    expected = CutGraphs(knn_graph(BLOBS), Rows(BLOBS))
    assert (graphs.near.S != expected.near.S).nnz == 0
    assert gap_by_cut_test(graphs, labels_of(get_backend("numpy"), BLOBS_Y), 3) == gap_by_cut_test(
        expected, labels_of(get_backend("numpy"), BLOBS_Y), 3
    )


def test_a_graph_of_ten_neighbours_or_more_is_used_as_it_is():
    for n_neighbors in (NEAR, WIDE - 1):
        W = knn_graph(BLOBS, n_neighbors)
        graphs = graphs_to_cut(SpecialK(n_neighbors=n_neighbors), Rows(BLOBS), W)
        assert (graphs.near.S != prepare_walks(W).S).nnz == 0


def test_a_graph_alone_is_judged_by_its_own_law(bk):
    W, X = graph_of(bk, knn_graph(BLOBS)), bk.asarray(BLOBS)
    alone, with_rows = cut_test(W, bk.asarray(BLOBS_Y)), cut_test(W, bk.asarray(BLOBS_Y), X=X)
    assert_same_gap(alone, found(bk, knn_graph(BLOBS), BLOBS_Y, 3))
    assert_same_gap(with_rows, gap_by_cut_test(of_rows(bk, BLOBS), labels_of(bk, BLOBS_Y), 3))
    assert alone.log_p != with_rows.log_p


@pytest.mark.parametrize("form", ["toarray", "tocoo", "tolil", "tocsc"])
def test_any_form_of_a_graph_will_do(form):
    W = knn_graph(BLOBS)
    assert cut_test(getattr(W, form)(), BLOBS_Y) == cut_test(W, BLOBS_Y)


def test_labels_may_be_any_integers(bk):
    W = graph_of(bk, knn_graph(BLOBS))
    expected = cut_test(W, bk.asarray(BLOBS_Y))
    assert cut_test(W, bk.asarray(np.array([-7, 3, 2**40])[BLOBS_Y])) == expected
    if bk.name == "numpy":
        assert cut_test(W, BLOBS_Y.tolist()) == expected
        assert cut_test(W, np.array(["a", "b", "c"])[BLOBS_Y]) == expected


def test_a_cluster_of_copies_alone_is_none(bk):
    X = np.concatenate([BLOBS, BLOBS[:60]])
    W, labels = graph_of(bk, knn_graph(X)), np.repeat([0, 1], [240, 60])
    for y, pair in ((labels, (0, 1)), (1 - labels, (0, 1)), (labels * 2 - (labels == 0), (0, 1))):
        result = cut_test(W, bk.asarray(y), X=bk.asarray(X))
        assert result == (0, pair, 0, 0, 0, "rows")
    labels[:100] = 2  # now those of the copies are the second of three
    assert cut_test(W, bk.asarray(labels), X=bk.asarray(X)) == (0, (0, 1), 0, 0, 0, "rows")
    assert cut_test(W, bk.asarray(-labels), X=bk.asarray(X)) == (0, (0, 1), 0, 0, 0, "rows")
    labels = np.array([1, 2, 0])[labels]
    assert cut_test(W, bk.asarray(labels), X=bk.asarray(X)) == (0, (0, 2), 0, 0, 0, "rows")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda W: sparse.triu(W), "must be symmetric"),
        (lambda W: -W, "must be finite and not negative"),
        (lambda W: W * np.nan, "must be finite and not negative"),
    ],
)
def test_a_graph_given_to_the_test_is_checked(change, message):
    with pytest.raises(ValueError, match=message):
        cut_test(change(knn_graph(BLOBS)), BLOBS_Y)


def test_rows_given_to_the_test_are_checked(bk):
    W, y = graph_of(bk, knn_graph(BLOBS)), bk.asarray(BLOBS_Y)
    with pytest.raises(ValueError, match="X must have 240 rows, as W has, got shape .239, "):
        cut_test(W, y, X=bk.asarray(BLOBS[:-1]))
    with pytest.raises(ValueError, match="X"):
        cut_test(W, y, X=bk.asarray(BLOBS[:, 0]))
    with pytest.raises(ValueError, match="X"):
        cut_test(W, y, X=bk.asarray(np.where(BLOBS[3, 1] == BLOBS, np.nan, BLOBS)))
    integers = np.rint(100 * BLOBS).astype(np.int16)
    found = cut_test(W, y, X=bk.asarray(integers))
    assert_same_gap(found, cut_test(W, y, X=bk.asarray(integers.astype(np.float32))))


def test_labels_given_to_the_test_are_checked(bk):
    W = graph_of(bk, knn_graph(BLOBS))
    with pytest.raises(ValueError, match=r"labels must have shape \(240,\), got \(239,\)"):
        cut_test(W, bk.asarray(BLOBS_Y[:-1]))
    with pytest.raises(ValueError, match=r"labels must have shape \(240,\), got \(240, 1\)"):
        cut_test(W, bk.asarray(BLOBS_Y[:, None]))
    with pytest.raises(ValueError, match="at least two clusters, got one"):
        cut_test(W, bk.asarray(np.zeros(240, dtype=int)))


def test_labels_that_are_not_a_number_name_no_cluster():
    with pytest.raises(ValueError, match="labels must name a cluster for each row, got NaN"):
        cut_test(knn_graph(BLOBS), np.where(BLOBS_Y == 0, np.nan, BLOBS_Y))


def test_what_is_no_matrix_is_named():
    with pytest.raises(TypeError, match="a sparse matrix or an array, got NoneType"):
        cut_test(None, BLOBS_Y)


@pytest.mark.parametrize("size", [30, 50, 80])
def test_the_own_cut_of_a_complete_graph_is_in_its_middle(bk, size):
    two = sparse.block_diag([np.ones((size, size)) - np.eye(size)] * 2)
    gap = found(bk, two, np.repeat([0, 1], size), 2)
    assert gap.within == pytest.approx((size // 2) * ((size + 1) // 2) / (size - 1), rel=1e-6)
