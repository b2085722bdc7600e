"""Levels that pass though coarser ones do not: what is kept, and what is not."""

import math

import numpy as np
from sklearn.datasets import make_blobs

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu.graph.rows import Rows
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


def test_a_large_skewed_set_is_one_cluster():
    X = np.random.default_rng(0).exponential(size=(12_000, 20))  # was 20 before jumps were
    assert SpecialK(backend="numpy", random_state=0).fit(X).n_clusters_ == 1
