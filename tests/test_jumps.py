"""Levels that pass though coarser ones do not: what is kept, and what is not."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu.graph.rows import Rows
from specialk_gpu.selection import jumps
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.cut_test import gap_by_cut_test
from specialk_gpu.selection.jumps import log_p_without_jumps
from specialk_gpu.selection.merging import Tree

LOG_ALPHA = math.log(0.05)


def tree_of(bk, y, log_p):
    """Return a tree whose leaves are united one by one with the first, and whose p are these."""
    k = len(log_p)
    children = [(0 if i == 1 else k + i - 2, i) for i in range(1, k)]
    log_p = np.array([-math.inf, *log_p[1:]])
    return Tree.of(bk.asarray(y.astype(np.int32)), children, log_p, np.zeros(k))


def level(bk, X, y, log_p):
    X = bk.asarray(X)
    graphs = CutGraphs(knn_graph(X), Rows(X))
    return log_p_without_jumps(graphs, tree_of(bk, y, log_p), len(log_p), LOG_ALPHA)


def test_a_skewed_set_cut_into_ten_along_its_axes_is_not_ten_clusters(bk):
    X = np.random.default_rng(0).exponential(size=(1000, 10))
    assert level(bk, X, X.argmax(axis=1), [0.0] * 9 + [-20.0]) == 0.0


def test_a_level_keeps_its_p_where_coarser_ones_pass_one_by_one(bk):
    X = np.random.default_rng(0).exponential(size=(300, 3))
    assert level(bk, X, X.argmax(axis=1), [0.0, -10.0, -20.0]) == -20.0


def test_a_jump_of_clusters_in_a_row_keeps_its_p(bk):
    X, y = make_blobs(600, centers=[(0, 0), (7, 0), (14, 0)], random_state=0)
    assert level(bk, X, y, [0.0, 0.0, -20.0]) == -20.0


def test_a_jump_of_clusters_in_many_dimensions_keeps_its_p_if_there_are_valleys(bk):
    rng = np.random.default_rng(2)
    y = rng.integers(10, size=1500)
    X = rng.standard_normal((1500, 50)) + np.eye(10, 50)[y] * 5 / math.sqrt(2)
    W = knn_graph(bk.asarray(X))
    own = gap_by_cut_test(
        CutGraphs(W, Rows(bk.asarray(X))), bk.asarray(y.astype(np.int32)), 10
    ).log_p
    assert own <= LOG_ALPHA
    assert level(bk, X, y, [0.0] * 9 + [own]) == own


def test_a_jump_in_a_graph_alone_counts_only_if_a_piece_is_apart(bk):
    X = np.random.default_rng(0).exponential(size=(1000, 10))
    W, y = knn_graph(bk.asarray(X)), X.argmax(axis=1)
    tree = tree_of(bk, y, [0.0] * 9 + [-20.0])
    assert log_p_without_jumps(CutGraphs(W), tree, 10, LOG_ALPHA) == 0.0


@pytest.mark.parametrize(
    ("log_p", "one_apart", "valleys", "expected", "asked"),
    [
        # the levels before are those of 2, 3, ... clusters, and 5 clusters are tested
        ([-9, 0, 0, -7], True, False, -7, [(1, 2, 3, 4)]),
        ([-9, 0, 0, -7], False, True, -7, [(1, 2, 3, 4)]),
        ([-9, 0, 0, -7], False, False, 0, [(1, 2, 3, 4)]),
        ([0, 0, 0, -7], False, False, 0, [(0, 1, 2, 3, 4)]),
        ([LOG_ALPHA, 0, 0, -7], False, False, 0, [(1, 2, 3, 4)]),
        ([0, -9, 0, -7], False, False, 0, [(2, 3, 4)]),
        ([0, -9, -9, -7], False, False, -7, []),  # no jump
        ([0, 0, -9, -7], False, False, -7, []),  # two pieces are no jump either
        ([0, 0, -9, 0], False, False, 0, []),
    ],
)
def test_a_jump_counts_if_a_piece_is_apart_or_there_may_be_valleys(
    bk, monkeypatch, log_p, one_apart, valleys, expected, asked
):
    """Leaves 0 to 3 are united one by one, and then with leaf 4, which has more rows."""
    pieces_asked = []

    def is_apart(_, labels, pieces):
        np.testing.assert_array_equal(np.unique(bk.to_numpy(labels)), np.arange(5))
        pieces_asked.append(tuple(pieces.tolist()))
        return one_apart

    monkeypatch.setattr(jumps, "_jump_sets_one_apart", is_apart)
    monkeypatch.setattr(jumps, "_jump_may_have_valleys", lambda *_: valleys)
    y = np.repeat(np.arange(5), [10, 20, 30, 40, 110])
    graphs = CutGraphs(knn_graph(bk.asarray(np.random.default_rng(0).normal(size=(210, 2)))))
    tree = tree_of(bk, y, [0.0, *log_p])
    assert log_p_without_jumps(graphs, tree, 5, LOG_ALPHA) == expected
    assert pieces_asked == asked


@pytest.mark.parametrize("n_outside", [0, 30])
def test_a_piece_is_apart_if_its_border_with_all_others_is_lighter_than_cuts_inside(bk, n_outside):
    """Halves of complete graphs are not apart, but what a few edges join is."""
    clique = 1 - np.eye(30)
    for size, apart in ((0, False), (30, True)):
        W = np.zeros((30 + size + n_outside,) * 2)
        W[:30, :30] = clique
        if size:
            W[30:60, 30:60], W[0, 30], W[30, 0] = clique, 1, 1
        W[30 + size :, 30 + size :] = clique[:n_outside, :n_outside]
        W *= 1 + 0.01 * np.add.outer(np.arange(len(W)), np.arange(len(W))) % 0.1
        labels = np.r_[np.arange(30) % 2, np.full(size, 2), np.full(n_outside, 3)]
        pieces = np.array([0, 1, 2] if size else [0, 1])
        graphs = CutGraphs(bk.sparse.csr_matrix(sparse.csr_matrix(W)))
        labels = bk.asarray(labels.astype(np.int32))
        assert jumps._jump_sets_one_apart(graphs, labels, pieces) == apart


def test_there_may_be_a_valley_between_every_two_pieces_up_to_a_fifth(monkeypatch):
    pairs, found = [], [math.log(0.2), -9.0]
    parts = SimpleNamespace(
        of_clusters=lambda: np.array([0, 1, 4, 3]), owner=np.array([0, 1, 2, 3, 2])
    )
    parts.valleys_of_short = lambda *_: np.array(found)
    monkeypatch.setattr(jumps, "touching_parts", lambda _, nodes: pairs.append(nodes.tolist()))
    assert jumps._jump_may_have_valleys(parts, np.array([0, 2, 3]))
    for log_p in (-1.6, math.nan):
        found[0] = log_p
        assert not jumps._jump_may_have_valleys(parts, np.array([0, 2, 3]))
    assert pairs == [[0, 4, 3]] * 3


def test_a_large_skewed_set_is_one_cluster():
    X = np.random.default_rng(0).exponential(size=(12_000, 20))  # was 20 before jumps were
    assert SpecialK(backend="numpy", random_state=0).fit(X).n_clusters_ == 1
