"""Exact neighbours: every index and every bit of every distance, against brute force."""

import gc
import math
import os
import re
import subprocess
import sys
import warnings
import weakref
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles import nearest, readonly, sq_distances
from scipy.spatial import cKDTree

from specialk_gpu import DuplicateRowsWarning, SpecialK
from specialk_gpu.backend import cpu
from specialk_gpu.backend.cpu.pairs import pair_products
from specialk_gpu.graph import cells, host_search
from specialk_gpu.graph import neighbor_search as exact
from specialk_gpu.graph import rows as found_rows
from specialk_gpu.graph.distances import (
    _cheapest_ranks,
    distance_bounds,
    has_integer_distances,
    principal_axes_for_distances,
)
from specialk_gpu.graph.duplicates import duplicate_groups
from specialk_gpu.graph.features import features_within_range, values_of_constant_features
from specialk_gpu.graph.neighbors import nearest_neighbors, neighbors_among
from specialk_gpu.graph.pair_bounds import PairBounds
from specialk_gpu.graph.radius import count_within_radius, list_within_radius, pairs_within_radius
from specialk_gpu.graph.representatives import representatives_of
from specialk_gpu.graph.rows import Rows

normal = np.random.default_rng(0).normal


def search(bk, X, k):
    x = readonly(bk, X)
    found = nearest_neighbors(x, k)
    np.testing.assert_array_equal(bk.to_numpy(x), X)
    for array, dtype in ((found.distances, np.float64), (found.indices, np.int64)):
        assert isinstance(array, bk.xp.ndarray)
        assert array.dtype == dtype
        assert array.shape == (X.shape[0], k)
    return bk.to_numpy(found.distances), bk.to_numpy(found.indices), found.n_redone


def check_against_brute_force(bk, X, k):
    distances, indices, n_redone = search(bk, X, k)
    expected_distances, expected_indices = nearest(X, k)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_array_equal(distances, expected_distances)
    return n_redone


def grid(side):
    return np.stack(np.divmod(np.arange(side * side), side), axis=1).astype(float)


def with_outlier(X):
    X = X.copy()
    X[17] = 1e8
    return X


def one_ulp_apart():
    X = np.repeat(normal(size=(40, 5)), 3, axis=0)
    X[1::3] = np.nextafter(X[1::3], np.inf)
    X[2::3, 0] = np.nextafter(X[2::3, 0], -np.inf)
    return X


CASES = {
    "normal float64": (normal(size=(700, 30)), 10),
    "normal float32": (normal(size=(700, 30)).astype(np.float32), 10),
    "one column": (normal(size=(300, 1)), 7),
    "784 columns": (normal(size=(150, 784)).astype(np.float32), 5),
    "33 columns": (normal(size=(200, 33)), 5),
    "grid": (grid(6), 3),
    "grid float32": (grid(6).astype(np.float32), 3),
    "large grid": (grid(20), 12),
    "binary": ((np.arange(256)[:, None] >> np.arange(8) & 1).astype(float), 10),
    "one-hot": (np.eye(100), 10),
    "one-hot, repeated": (np.eye(40)[np.arange(200) % 40], 7),
    "each row 12 times": (np.repeat(normal(size=(25, 4)), 12, axis=0), 10),
    "copies of one row": (np.r_[normal(size=(100, 3)), np.repeat(normal(size=(1, 3)), 100, 0)], 10),
    "all rows equal": (np.full((30, 3), 1.5), 10),
    "all zero": (np.zeros((20, 2)), 5),
    "signed zeros": (np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0], [-0.0, 2.5]]), 2),
    "C02": (np.array([[0, 0]] * 4 + [[5, 5], [6, 6], [7, 7]], dtype=float), 2),
    "far from the origin": (normal(size=(300, 10)) + 1e6, 10),
    "far from the origin, float32": ((normal(size=(300, 10)) + 1e4).astype(np.float32), 10),
    "very far from the origin": (normal(size=(100, 3)) + 1e15, 5),
    "an outlier": (with_outlier(normal(size=(300, 10))), 10),
    "an outlier, float32": (with_outlier(normal(size=(300, 10))).astype(np.float32), 10),
    "one ulp apart": (one_ulp_apart(), 5),
    "on a sphere": (normal(size=(200, 3)) * [1, 1, 1e-9], 8),
    "many neighbours": (normal(size=(400, 3)), 300),
    "two rows": (normal(size=(2, 3)), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_neighbours_and_distances_are_those_of_brute_force(bk, case):
    X, k = CASES[case]
    check_against_brute_force(bk, X, k)


def choose(monkeypatch, search):
    """Let the host search in this way, whatever the size."""
    columns, rows = {"tree": (10**6, 10**9), "pairs": (0, 2), "products": (0, 10**9)}[search]
    monkeypatch.setattr(exact, "FEW_ROWS_COLUMNS", columns)
    for name in ("FEW_COLUMNS", "SOME_COLUMNS"):
        monkeypatch.setattr(exact, name, 0)
    monkeypatch.setattr(exact, "PAIRS_ROWS", rows)


@pytest.mark.parametrize("search", ["tree", "pairs", "products"])
@pytest.mark.parametrize("case", CASES)
def test_the_way_of_searching_does_not_matter(monkeypatch, case, search):
    choose(monkeypatch, search)
    X, k = CASES[case]
    check_against_brute_force(cpu, X, k)


def test_a_tree_serves_few_columns_and_ties_beyond_its_reach_are_done_again(monkeypatch):
    sizes, tree = [], exact.host_search_by_tree
    monkeypatch.setattr(
        exact, "host_search_by_tree", lambda X, k: sizes.append(X.shape) or tree(X, k)
    )
    line = np.arange(300.0)[:, None]  # every row but the ends has two nearest, and two next
    assert check_against_brute_force(cpu, line, 9) == 0
    assert sizes == [(300, 1)]
    star = np.concatenate([np.zeros((1, 8)), np.eye(8), -np.eye(8), 9 + normal(size=(40, 8))])
    assert check_against_brute_force(cpu, star, 3) >= 1  # sixteen at the same distance
    check_against_brute_force(cpu, normal(size=(300, 9)), 3)
    assert len(sizes) == 2


def asked_of_the_tree(monkeypatch):
    """Record how many neighbours of how many rows trees are asked for."""
    asked = []

    class Tree(cKDTree):
        def query(self, x, k):
            asked.append((len(x), k))
            return super().query(x, k)

    monkeypatch.setattr(host_search, "cKDTree", Tree)
    return asked


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", ["normal", "clusters", "integers", "outlier", "far"])
def test_few_columns_are_searched_exactly_in_a_tree(monkeypatch, kind, d, dtype):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(400, d))
    if kind == "clusters":
        X = 100 * X[rng.integers(9, size=400)] + 1e-3 * X
    elif kind == "integers":
        X = np.rint(2 * X)
    elif kind == "outlier":
        X[3] = 1e12
    elif kind == "far":
        X += 1e8 if dtype is np.float64 else 1e4
    asked = asked_of_the_tree(monkeypatch)
    check_against_brute_force(cpu, X.astype(dtype), 10)
    assert asked


def test_ties_are_asked_again_with_twice_as_many_before_they_are_done_again(monkeypatch):
    asked, redone, redo = asked_of_the_tree(monkeypatch), [], exact.search_neighbors_again
    monkeypatch.setattr(
        exact,
        "search_neighbors_again",
        lambda bk, X, rows, *out: redone.append(rows) or redo(bk, X, rows, *out),
    )
    check_against_brute_force(cpu, normal(size=(500, 3)), 10)
    assert asked == [(500, 13)]
    assert check_against_brute_force(cpu, grid(30), 10) > 300  # twelve within 2, as far as the last
    assert [n for _, n in asked[1:]] == [13, 26]
    assert not redone
    corners = 2.0 * (np.arange(256)[:, None] >> np.arange(8) & 1) - 1
    hub = np.r_[corners, np.zeros((1, 8))]  # whose 256 nearest are equally far
    assert check_against_brute_force(cpu, hub, 3) == 257
    assert [rows.tolist() for rows in redone] == [[256]]
    check_against_brute_force(cpu, 12 * hub, 3)  # integers of another size
    assert len(redone) == 2


def test_squares_that_underflow_leave_a_tree_in_doubt():
    X = np.r_[normal(size=(200, 2)) * 1e-161, np.ones((40, 2)) + normal(size=(40, 2))]
    assert check_against_brute_force(cpu, X, 5) >= 200


def test_a_far_outlier_costs_no_other_row_its_certificate(bk, monkeypatch):
    X = (normal(size=(1500, 6)) @ normal(size=(6, 64))).astype(np.float32)
    X[7] *= 1e12
    pairs, measure = [], bk.pair_sq_distances
    monkeypatch.setattr(
        bk, "pair_sq_distances", lambda X, i, j: pairs.append(i.size) or measure(X, i, j)
    )
    check_against_brute_force(bk, X, 10)
    assert sum(pairs) < 100 * 1500  # of 1500²


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float16",)])
@pytest.mark.parametrize("case", CASES)
def test_the_precision_of_the_proposals_does_not_matter(monkeypatch, case, dtypes):
    choose(monkeypatch, "products")
    monkeypatch.setattr(cpu, "product_dtypes", lambda: dtypes)
    X, k = CASES[case]
    check_against_brute_force(cpu, X, k)


@pytest.mark.parametrize(("rank", "n_coarse"), [(1, None), (4, None), (4, 1), (30, None), (30, 3)])
@pytest.mark.parametrize(
    "case", ["normal float64", "784 columns", "one-hot", "large grid", "spread"]
)
def test_bounds_from_a_few_axes_do_not_change_the_result(monkeypatch, case, rank, n_coarse):
    X, k = CASES.get(case, (normal(size=(500, 40)) * 0.8 ** np.arange(40), 10))
    axes = np.linalg.qr(normal(size=(X.shape[1], min(rank, X.shape[1]))))[0]
    choose(monkeypatch, "pairs")
    monkeypatch.setattr(exact, "principal_axes_for_distances", lambda *_: (axes, n_coarse))
    n_coarse = n_coarse and min(n_coarse, axes.shape[1])
    for sizes in (
        (128, 1024, 1024, 512, 0.75, 2**20, 2**20),
        (16, 40, 30, 17, 0, 512, 1000),
        (16, 40, 30, 17, 1, 512, 1000),
    ):
        monkeypatch.setattr(cells, "CELL_ROWS", sizes[0])
        monkeypatch.setattr(host_search, "NEAR_ROWS", sizes[1])
        monkeypatch.setattr(host_search, "TILE_ROWS", sizes[2])
        monkeypatch.setattr(host_search, "TILE_COLUMNS", sizes[3])
        monkeypatch.setattr(host_search, "MOST_REACHED", sizes[4])
        monkeypatch.setattr(cells, "TILE_ENTRIES", sizes[5])
        monkeypatch.setattr(host_search, "SORTED_PAIRS", sizes[6])
        check_against_brute_force(cpu, X, k)


@pytest.mark.parametrize("n_coarse", [None, 0, 3, 11])
@pytest.mark.parametrize("case", ["normal", "far", "short", "outlier"])
def test_coarse_bounds_are_below_close_ones_and_these_below_the_distances(case, n_coarse):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 40)) * 0.8 ** np.arange(40)
    X = {
        "normal": X,
        "far": X + 1e4,
        "short": X * 2.0 ** rng.integers(-30, 1, size=300)[:, None],
        "outlier": np.r_[X[1:], 1e6 * X[:1]],
    }[case]
    axes = np.linalg.qr(rng.normal(size=(40, 11)))[0]
    found = distance_bounds(cpu, X, "float32", axes)
    low = (found.sq_norms - 2 * found.loss - found.floor).astype(np.float32)
    bounds = PairBounds(found.base, low, found.scale, n_coarse)
    order = rng.permutation(300)
    bounds.sort(order)
    square = sq_distances(X[order]) / found.scale**2
    i, j = np.divmod(np.arange(300**2), 300)
    coarse = bounds.coarse(slice(0, 300), np.arange(300))
    close = bounds.close(coarse.ravel(), i, j).reshape(300, 300)
    assert (close <= square).all()
    assert (coarse <= square).all()
    rounding = 2 * (found.loss[order][:, None] + found.loss[order])
    assert (coarse <= close + rounding).all()
    if n_coarse in (None, 11):  # the remainder is one column, and its norm is the column
        assert (close <= coarse + rounding).all()
    elif case == "normal":
        assert (coarse < close - 0.01).mean() > 0.3


@pytest.mark.parametrize("n_coarse", [None, 3])
@pytest.mark.parametrize("ascending", [True, False])
def test_near_pairs_are_those_whose_close_bound_one_of_both_limits_allows(n_coarse, ascending):
    rng = np.random.default_rng(0)
    base = rng.normal(size=(200, 10)).astype(np.float32)
    low = (base**2).sum(axis=1)
    bounds = PairBounds(base, low, 1.0, n_coarse)
    limits = rng.gamma(5, size=200).astype(np.float32)
    limits = np.sort(limits) if ascending else limits
    square = ((base[:, None].astype(float) - base) ** 2).sum(axis=2)
    wanted = np.triu(square <= np.maximum(limits[:, None], limits), 1)
    columns = slice(30, 180) if ascending else rng.permutation(200)[:150]
    i, j, price = bounds.near_pairs(slice(20, 90), columns, limits, ascending=ascending)
    seen = np.zeros((200, 200), dtype=int)
    np.add.at(seen, (i, j), 1)
    tile = np.zeros((200, 200), dtype=bool)
    tile[20:90, columns] = True
    np.testing.assert_array_equal(seen, wanted & tile)
    coarse = bounds.coarse(slice(0, 200), np.arange(200))
    left = np.triu(coarse <= np.maximum(limits[:, None], limits), 1) & tile
    assert price == i.size + (left.sum() // 16 if n_coarse else 0)
    assert i.size > 100


@pytest.mark.parametrize(("m", "rows", "columns"), [(1, 5, 5), (100, 30, 17), (100, 30, 100)])
def test_tiles_of_all_rows_hold_each_pair_once(monkeypatch, m, rows, columns):
    monkeypatch.setattr(host_search, "TILE_ROWS", rows)
    monkeypatch.setattr(host_search, "TILE_COLUMNS", columns)
    seen = np.zeros((m, m), dtype=int)
    for first in range(0, m, rows):
        for own, others in host_search._tiles_from(first, m):
            seen[own, others] += 1
    assert (seen[np.triu_indices(m)] == 1).all()
    assert seen.max() == 1


def clusters(m, d, spread=0.05):
    return (normal(size=(12, d))[np.arange(m) % 12] + spread * normal(size=(m, d))).astype("f4")


@pytest.mark.parametrize("d", [2, 9, 40])
def test_every_row_is_in_one_cell_whose_centre_and_radius_are_its_own(d):
    X = clusters(3000, d)
    found = cells.sort_into_cells(X)
    assert sorted(found.order.tolist()) == [*range(3000)]
    assert found.ends[0] == 0
    assert found.ends[-1] == 3000
    for i in range(len(found)):
        own = X[found.order[found.places(i)]].astype(float)
        assert 0 < len(own) <= cells.CELL_ROWS
        np.testing.assert_allclose(found.centers[i], own.mean(axis=0))
        far = np.linalg.norm(own - own.mean(axis=0), axis=1).max()
        np.testing.assert_allclose(found.radii[i], far)


def test_near_places_are_those_of_the_nearest_cells_and_as_many_as_asked():
    found = cells.sort_into_cells(clusters(3000, 3))
    sizes = np.diff(found.ends)
    for cell, n in product((0, 7, len(found) - 1), (1, 130, 900, 3000)):
        near = found.near_places(cell, n)
        chosen = np.unique(np.searchsorted(found.ends, near, side="right") - 1)
        assert near.size == np.unique(near).size == sizes[chosen].sum() >= n
        distance = np.linalg.norm(found.centers - found.centers[cell], axis=1)
        by_distance = np.argsort(distance, kind="stable")
        assert set(by_distance[: chosen.size]) == set(chosen)
        assert near.size - sizes[by_distance[chosen.size - 1]] < n  # the last one was needed


@pytest.mark.parametrize("n_rows", [1, 100, 300, 5000])
def test_groups_hold_each_cell_once(n_rows):
    found = cells.sort_into_cells(clusters(3000, 3))
    groups = found.groups(n_rows)
    assert sorted(c for group in groups for c in group) == [*range(len(found))]
    assert all(len(group) for group in groups)


@pytest.mark.parametrize("d", [2, 9, 40])
def test_tiles_hold_every_pair_that_the_bounds_do_not_rule_out(d, monkeypatch):
    monkeypatch.setattr(cells, "TILE_ENTRIES", 4000)
    X = clusters(1000, d)
    X[3] *= 50  # an outlier
    found = cells.sort_into_cells(X)
    rows = X[found.order].astype(float)
    sq = ((rows[:, None] - rows) ** 2).sum(axis=2)
    limit = (np.sort(sq, axis=1)[:, 10] * (1 + 1e-6)).astype(np.float32)
    excess = 1e-4 * np.arange(1000) / 1000  # what `low` falls short of the squared norm
    low = (rows**2).sum(axis=1) - excess
    sides = np.concatenate([rows, np.ones((1000, 1)), low[:, None]], axis=1).astype("f4")
    reach = cells.CellReach(found, sides, limit)
    seen = np.zeros((1000, 1000), dtype=int)
    for group in found.groups(150):
        for own, others in reach.tiles(group):
            seen[own, others] += 1
    needed = np.triu(sq - excess[:, None] - excess <= np.maximum(limit[:, None], limit), 1)
    assert (seen[needed] == 1).all()
    assert seen.max() == 1
    if d < 40:
        assert np.count_nonzero(seen) < 0.4 * 1000**2 / 2  # of all pairs
        assert reach.mean() < 0.4 * 1000


def test_with_some_columns_pairs_serve_clusters_and_a_tree_what_is_everywhere(monkeypatch):
    monkeypatch.setattr(exact, "PAIRS_ROWS", 500)
    monkeypatch.setattr(exact, "TREE_REACH", 60)  # 240 rows with ten columns
    asked = asked_of_the_tree(monkeypatch)
    check_against_brute_force(cpu, clusters(1000, 10), 10)
    assert not asked
    check_against_brute_force(cpu, normal(size=(1000, 10)), 10)
    assert asked


def test_data_with_few_leading_axes_are_searched_along_them(monkeypatch):
    choose(monkeypatch, "pairs")
    X = (normal(size=(800, 60)) * 0.7 ** np.arange(60)) @ np.linalg.qr(normal(size=(60, 60)))[0]
    ranks = []

    def spy(X, bounds, *rest):
        ranks.append(bounds.sides.shape[1] - 2)
        return host_search.host_search_by_pairs(X, bounds, *rest)

    monkeypatch.setattr(exact, "host_search_by_pairs", spy)
    for data in (X, X.astype(np.float32), X * 1e-30 + 1e-28):
        check_against_brute_force(cpu, data, 10)
        assert ranks.pop() <= 31


def bounded(bk, X, dtype, axes=None):
    """Return lower and upper bounds on squared distances, and the squares, in units of scale²."""
    found = distance_bounds(bk, bk.asarray(X), dtype, None if axes is None else bk.asarray(axes))
    products = bk.to_numpy(bk.products(found.base, found.base)).astype(np.float64)
    low, loss = bk.to_numpy(found.low_norms), bk.to_numpy(found.loss)
    score = (products + low.astype(dtype if dtype == "float64" else np.float32)).astype(np.float64)
    lower = score + low[:, None]
    upper = lower + 2 * np.add.outer(loss, loss)
    return lower - found.floor, upper + found.floor, sq_distances(X) / found.scale**2, found


@pytest.mark.parametrize("case", ["normal", "short", "far", "outlier", "integers", "tiny"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bounds_hold_and_are_as_close_as_rounding_lets_them_be(bk, dtype, case):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 20)) * np.r_[1, 0.1 * np.ones(19)]
    if case == "short":  # rows of all lengths
        X *= 2.0 ** rng.integers(-30, 1, size=150)[:, None]
    elif case in ("far", "outlier", "integers", "tiny"):
        X = {
            "far": X + 1e4,
            "outlier": np.r_[X, 1e6 * X[:1]],
            "integers": np.rint(20 * X),
            "tiny": 1e-90 * X,
        }[case]
    lower, upper, square, found = bounded(bk, X, dtype)
    assert (lower <= square).all()
    assert (square <= upper).all()
    assert 0.5 <= np.abs(bk.to_numpy(found.base)).max() <= 1
    if case == "normal":  # relative to the norms: 20 terms of a product, 16 of the rest
        eps = float(np.finfo(np.float32 if dtype == "float16" else dtype).eps)
        own = float(np.finfo(dtype).eps) if dtype != "float64" else 0.0
        norms = bk.to_numpy(found.sq_norms)
        error = (24 + 16) * eps / 2 + 2 * own
        assert (bk.to_numpy(found.loss) <= 1.1 * error * norms.max()).all()
    dragged = case in ("outlier", "short")  # the mean is far from most rows, but no median is
    centre = np.sort(X, axis=0)[len(X) // 2] if dragged else X.mean(axis=0)
    centre = np.rint(centre) if case == "integers" else centre
    norms = (((X - centre) / found.scale) ** 2).sum(axis=1)
    np.testing.assert_allclose(bk.to_numpy(found.sq_norms), norms, rtol=1e-9)


def test_bounds_for_the_last_search_hold_and_are_the_squares_of_integers(bk):
    for X, is_exact in ((normal(size=(90, 5)), False), (np.rint(9 * normal(size=(90, 5))), True)):
        found = distance_bounds(bk, bk.asarray(X), "float64")
        rows = bk.asarray(np.array([3, 0, 70]))
        for m in (90, 40):
            lower, slack = exact._bounds_on_neighbors(found, rows, m, exact=is_exact)
            lower, slack = bk.to_numpy(lower), bk.to_numpy(slack)
            square = sq_distances(X)[[3, 0, 70], :m] / found.scale**2
            if is_exact:
                np.testing.assert_array_equal(lower, square)
                assert not slack.any()
            assert (lower <= square).all()
            assert (square <= lower + slack).all()
            assert slack.max() < 1e-12


@pytest.mark.parametrize("m", [100, 255, 511, 512, 600, 2000])
@pytest.mark.parametrize("k", [1, 5, 40, 100])
def test_the_k_th_smallest_is_at_most_its_limit(bk, m, k):
    upper = np.random.default_rng(0).permuted(np.tile(np.arange(float(m)), (6, 1)), axis=1)
    limit = bk.to_numpy(exact._upper_limit_on_neighbors(bk.xp, bk.asarray(upper), k))
    assert limit.shape == (6, 1)
    assert (limit >= k - 1).all()  # the smallest is 0
    if m < 2 * max(8 * k, 256):  # groups of one
        assert (limit == k - 1).all()
    else:  # rarely are two of the k smallest in one group
        assert (limit <= 1.5 * k + 2).all()


@pytest.mark.parametrize("rank", [1, 5, 20])
def test_along_axes_lower_bounds_hold_and_the_remainder_is_a_column(bk, rank):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 20)) * 0.7 ** np.arange(20)
    axes = np.linalg.qr(rng.normal(size=(20, rank)))[0]
    lower, upper, square, found = bounded(bk, X, "float32", axes)
    assert (lower <= square).all()
    centred = (X - X.mean(axis=0)) / found.scale
    along = centred @ axes
    rest = np.sqrt(np.maximum((centred**2).sum(axis=1) - (along**2).sum(axis=1), 0))
    base = bk.to_numpy(found.base)
    np.testing.assert_allclose(base, np.c_[along, rest], rtol=1e-5, atol=1e-6)
    seen = ((along[:, None] - along) ** 2).sum(axis=2) + (rest[:, None] - rest) ** 2
    assert (seen <= upper).all()  # what the coordinates say is bounded from both sides
    assert (upper - lower < 1e-4).all()


def test_integers_are_small_if_sums_of_their_products_are_exact(bk):
    def small(X):
        return has_integer_distances(bk, bk.asarray(X))

    X = np.rint(10 * normal(size=(300, 4)))
    assert small(X)
    for row, value in ((3, 0.5), (250, 0.5), (250, 1e-9)):
        other = X.copy()
        other[row, 2] = value
        assert not small(other)
    for d in (1, 4, 16):  # largest² d 16 < 2^53
        for largest, expected in ((2.0**24, d == 1), (2.0**23, d < 8), (2.0**22, True)):
            X = np.zeros((70, d))
            X[66, -1] = -largest
            assert small(X) == expected


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_multiplied_is_at_most_one_and_above_a_quarter(bk, monkeypatch, dtype):
    X = normal(size=(300, 4))
    X[150] = 1e9  # in one of many tiles
    monkeypatch.setattr(bk, "tile_bytes", 4096)
    found = distance_bounds(bk, bk.asarray(X), dtype)
    assert 0.25 < np.abs(bk.to_numpy(found.base)).max() <= 1
    assert math.frexp(found.scale)[0] == 0.5


def test_axes_are_chosen_where_they_save_products_and_measured_pairs():
    X = normal(size=(4000, 4)) @ normal(size=(4, 64))  # the bounds of 8 axes are the distances
    axes, n_coarse = principal_axes_for_distances(cpu, X, 10)
    assert axes.shape == (64, 8)
    assert n_coarse is None
    assert (
        principal_axes_for_distances(cpu, normal(size=(1000, 64)), 10) is None
    )  # bounds say nothing
    assert (
        principal_axes_for_distances(cpu, X[:, :47], 10) is None
    )  # products are short as they are


@pytest.mark.parametrize(
    ("n_left", "chosen"),
    [
        ([15, 14], (8, None)),  # few axes leave little more than the neighbours
        ([200, 15], (64, 8)),  # they leave some that more axes rule out
        ([60_000, 15], (64, None)),  # they rule out nothing
        ([60_000, 60_000], (0, None)),  # nor do more
    ],
)
def test_axes_are_as_many_as_the_pairs_that_they_leave_pay_for(n_left, chosen):
    assert _cheapest_ranks([8, 64], n_left, 60_000, 784, 10) == chosen


def test_products_of_pairs_are_those_of_their_rows():
    A = normal(size=(50, 3000)).astype(np.float32)  # 43 pairs at once
    i, j = np.random.default_rng(0).integers(50, size=(2, 200))
    expected = np.einsum("ij,ij->i", A[i].astype(float), A[j])
    np.testing.assert_allclose(pair_products(A, i, j), expected, atol=1e-3)
    assert pair_products(A, i[:0], j[:0]).shape == (0,)


def test_bounds_that_say_nothing_and_cells_of_equal_centres_do_not_change_the_result():
    X, none = normal(size=(600, 3)), np.zeros(600, dtype=np.float32)  # 0 is below all distances
    found = host_search.host_search_by_pairs(X, PairBounds(none[:, None], none, 1.0), 40, 600)
    distances, indices = nearest(X, 40)
    np.testing.assert_array_equal(found[1], indices)
    np.testing.assert_allclose(np.sqrt(found[0]), distances)


@pytest.mark.parametrize("first", ["constant", "rare"])
def test_cells_are_small_where_many_rows_are_equal_in_the_first_columns(monkeypatch, first):
    X = np.zeros((700, 40))
    X[:, 32:] = normal(size=(700, 8))
    if first == "rare":
        X[::50, :32] = 30 * normal(size=(14, 32))  # these columns vary most
    sizes, sort = [], cells.sort_into_cells
    monkeypatch.setattr(cells, "CELL_ROWS", 16)
    monkeypatch.setattr(cells, "TILE_ENTRIES", 16)
    monkeypatch.setattr(
        host_search,
        "sort_into_cells",
        lambda base: sizes.append(np.diff(sort(base).ends)) or sort(base),
    )
    choose(monkeypatch, "pairs")
    check_against_brute_force(cpu, X, 10)
    assert sizes[0].max() <= 16
    assert sizes[0].sum() == 700


def test_cells_are_made_from_the_columns_that_vary_most():
    base = normal(size=(500, 40)).astype(np.float32) * 1.2 ** np.arange(40, dtype=np.float32)
    np.testing.assert_array_equal(cells.widest_columns_first(base), base[:, ::-1])
    np.testing.assert_array_equal(cells.widest_columns_first(base[:, :32]), base[:, :32])


def test_a_distance_beyond_the_largest_number_is_infinite_without_a_warning(bk):
    X = np.array([[1.5e308], [1.4e308], [-1.5e308]])
    distances, indices, _ = search(bk, X, 2)
    np.testing.assert_array_equal(indices, [[1, 2], [0, 2], [1, 0]])
    np.testing.assert_array_equal(np.isinf(distances), [[False, True], [False, True], [True] * 2])


def test_where_most_distances_are_alike_the_other_search_serves(monkeypatch):
    choose(monkeypatch, "pairs")
    found, by_pairs = [], exact.host_search_by_pairs
    monkeypatch.setattr(
        exact, "host_search_by_pairs", lambda *a: found.append(by_pairs(*a)) or found[-1]
    )
    check_against_brute_force(cpu, np.eye(300), 2)
    check_against_brute_force(cpu, normal(size=(300, 20)), 2)
    assert found[0] is None
    assert found[1] is not None


def test_what_float16_does_not_certify_is_done_again_and_counted(monkeypatch):
    X = normal(size=(1000, 20)).astype(np.float32)
    spoilt = with_outlier(X)
    monkeypatch.setattr(cpu, "product_dtypes", lambda: ("float16", "float32"))
    assert check_against_brute_force(cpu, X, 10) < 10
    assert check_against_brute_force(cpu, np.rint(20 * X), 10) < 10
    assert check_against_brute_force(cpu, spoilt, 10) >= 999


@pytest.mark.parametrize("m", [2, 3, 5, 6, 100])
def test_all_other_rows_can_be_asked_for(bk, m):
    check_against_brute_force(bk, normal(size=(m, 4)), m - 1)


def test_where_all_rows_are_candidates_none_is_in_doubt(bk):
    for X in (normal(size=(9, 12)), np.eye(9), normal(size=(9, 12)) * 2.0 ** np.arange(12)):
        assert check_against_brute_force(bk, X, 3) == 0


@pytest.mark.parametrize("exponent", [-1000, -660, 660, 1015])
def test_scaling_by_a_power_of_two_scales_the_distances(bk, exponent):
    X = normal(size=(120, 6))
    plain, indices, _ = search(bk, X, 5)
    scaled, scaled_indices, _ = search(bk, np.ldexp(X, exponent), 5)
    np.testing.assert_array_equal(scaled_indices, indices)
    np.testing.assert_allclose(np.ldexp(scaled, -exponent), plain, rtol=1e-12)


def test_the_largest_and_the_smallest_numbers_are_finite_data(bk):
    top = np.finfo(np.float64).max
    _, indices, _ = search(bk, np.array([[top], [top / 2], [0.0], [-top / 4]]), 1)
    np.testing.assert_array_equal(indices[:, 0], [1, 0, 3, 2])
    least = 5e-324
    distances, indices, _ = search(bk, np.array([[0.0], [4], [5], [9]]) * least, 1)
    np.testing.assert_array_equal(indices[:, 0], [1, 2, 1, 2])
    np.testing.assert_array_equal(distances[:, 0] / least, [4, 1, 1, 4])


@pytest.mark.parametrize("size", [1e-40, 1e38])
def test_extreme_float32_data_are_searched_exactly(bk, size):
    check_against_brute_force(bk, (normal(size=(200, 6)) * size / 5).astype(np.float32), 10)


def test_ordinary_rows_are_certified_at_once(bk):
    for dtype in (np.float32, np.float64):
        X = normal(size=(2000, 20)).astype(dtype)
        assert search(bk, X, 10)[2] < 20


def test_a_shorter_list_is_a_prefix_of_a_longer_one(bk):
    for X in (CASES["large grid"][0], CASES["each row 12 times"][0], normal(size=(200, 3))):
        longest = search(bk, X, 40)
        for k in (1, 2, 9, 10, 11, 39):
            distances, indices, _ = search(bk, X, k)
            np.testing.assert_array_equal(indices, longest[1][:, :k])
            np.testing.assert_array_equal(distances, longest[0][:, :k])


def test_permuted_rows_have_permuted_neighbours(bk):
    X = normal(size=(300, 5))
    order = np.random.default_rng(1).permutation(300)
    distances, indices, _ = search(bk, X, 10)
    permuted_distances, permuted, _ = search(bk, X[order], 10)
    np.testing.assert_array_equal(order[permuted], indices[order])
    np.testing.assert_array_equal(permuted_distances, distances[order])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_small_integers_are_searched_exactly(bk, data):
    m, d = data.draw(st.integers(2, 60)), data.draw(st.integers(1, 4))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    X = data.draw(arrays(dtype, (m, d), elements=st.integers(-3, 3)))
    check_against_brute_force(bk, X, data.draw(st.integers(1, m - 1)))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_numbers_are_searched_exactly(bk, data):
    m, d = data.draw(st.integers(2, 25)), data.draw(st.integers(1, 3))
    numbers = st.floats(-1e30, 1e30, allow_subnormal=False)
    X = data.draw(arrays(np.float64, (m, d), elements=numbers))
    if np.abs(X).max() > 1e-90:
        check_against_brute_force(bk, X, data.draw(st.integers(1, m - 1)))


@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_the_layout_in_memory_does_not_matter(bk, layout):
    X = normal(size=(100, 8))
    given_X = {"C": X, "F": np.asfortranarray(X), "strided": np.repeat(X, 2, axis=1)[:, ::2]}[
        layout
    ]
    given_X = given_X.view()
    given_X.setflags(write=False)
    x = bk.xp.asarray(given_X, order="F") if layout == "F" else bk.asarray(given_X)
    found = nearest_neighbors(x, 5)
    np.testing.assert_array_equal(bk.to_numpy(found.indices), nearest(X, 5)[1])


@pytest.mark.parametrize("tile_bytes", [2_000, 40_000, 400_000])
def test_the_size_of_the_tiles_does_not_matter(bk, monkeypatch, tile_bytes):
    monkeypatch.setattr(bk, "tile_bytes", tile_bytes)
    for case in ("33 columns", "grid", "each row 12 times", "an outlier", "far from the origin"):
        check_against_brute_force(bk, *CASES[case])


@pytest.mark.parametrize("k", [0, -1, 5, 6])
def test_a_wrong_number_of_neighbours_is_refused_with_both_numbers(bk, k):
    with pytest.raises(ValueError, match=rf"rows less one \(4\), got {k}"):
        nearest_neighbors(bk.xp.ones((5, 2)), k)


# Duplicates ---------------------------------------------------------------------------------------


def groups_of(bk, X):
    found = duplicate_groups(readonly(bk, X))
    return None if found is None else tuple(map(bk.to_numpy, found))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_form_groups_numbered_by_their_first(bk, dtype):
    X = normal(size=(50, 3)).astype(dtype)[np.random.default_rng(0).integers(50, size=200)]
    first, group = groups_of(bk, X)
    _, expected_first, inverse = np.unique(X, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(first, np.sort(expected_first))
    np.testing.assert_array_equal(first[group], expected_first[inverse.ravel()])


def test_different_rows_form_no_groups(bk):
    assert groups_of(bk, normal(size=(500, 1))) is None
    assert groups_of(bk, np.array([[1.0, 2.0], [2.0, 1.0], [1.0, -2.0]])) is None


class Collider:
    """A generator for which all permutations of a row have the same hash."""

    def integers(self, *_, size, dtype):
        return np.zeros(size, dtype=dtype)


@pytest.fixture
def colliding(monkeypatch):
    """Make the first `count[0]` hashes collide."""
    count, default_rng = [0], np.random.default_rng
    monkeypatch.setattr(
        np.random,
        "default_rng",
        lambda seed=None: Collider() if seed in range(count[0]) else default_rng(seed),
    )
    return count


@pytest.mark.parametrize("copies", [0, 60])
@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_after_a_wider_search_fewer_neighbours_are_its_first_columns(bk, copies, scale):
    X = normal(size=(300, 4)) * scale
    rows = Rows(bk.asarray(np.concatenate([X, X[:copies]])))
    for k in (5, 20, 9):  # the last is not searched for again
        found, alone = rows.neighbors(k), nearest_neighbors(rows.X, k)
        for one, other in zip(found[:2], alone[:2], strict=True):
            np.testing.assert_array_equal(bk.to_numpy(one), bk.to_numpy(other))


def test_a_fit_looks_for_duplicates_once_and_for_as_many_neighbours_once(monkeypatch):
    hashed, searched = [], []
    for name, module, seen in (
        ("duplicate_groups", found_rows, hashed),
        ("search_neighbors", found_rows, searched),
    ):
        function = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, seen=seen, function=function: seen.append(a) or function(*a)
        )
    X = np.concatenate([normal(size=(200, 2)), normal(size=(200, 2)) + 6])
    model = SpecialK(backend="numpy", random_state=0)
    for data in (X, np.concatenate([X, X[:50]]), np.repeat(X, 12, axis=0)):
        hashed.clear(), searched.clear()
        if len(data) > 1000:
            with pytest.warns(DuplicateRowsWarning):
                model.fit(data)
        else:
            model.fit(data)
        assert len(hashed) == 1
        assert [k for _, _, k in searched] in ([10], [10, 30])


@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_rows_are_freed_with_their_last_user(scale):
    X = np.concatenate([normal(size=(60, 2)), np.zeros((2, 2))]) * scale
    gc.disable()
    try:
        for data in (X, X[:60]):
            rows = Rows(data)
            rows.neighbors(5)
            rows.distinct.neighbors(3)
            rows.in_range()
            ref = weakref.ref(rows)
            del rows
            assert ref() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("sizes", "n_neighbors", "kept"),
    [
        ([1] * 9, 2, None),
        ([2] * 5 + [1] * 10, 2, "all"),  # a quarter of all neighbours are copies
        ([2] * 6 + [1] * 8, 2, []),
        ([3, *[1] * 21], 3, "all"),
        ([4, *[1] * 20], 3, []),  # all neighbours of some rows are copies
        ([1] * 9 + [3], 2, []),
        # the last row lies alone, and the two nearest of the next one are 1 and 2 away
        ([1] * 9 + [3], 2, [3]),
        ([1] * 9 + [40], 2, [31]),
        ([1] * 9 + [40], 35, []),
        ([2] * 3 + [1] * 6 + [3], 2, [3]),
        ([3] * 8 + [1, 3], 2, []),  # too few without many copies to say what is usual
        ([1] * 3 + [3], 2, [3]),
        ([1] * 2 + [3], 2, []),
    ],
)
def test_copies_are_kept_if_they_are_few_or_far_from_all_others(bk, sizes, n_neighbors, kept):
    at = np.arange(len(sizes), dtype=float)
    if kept:
        at[-1] += 5.1  # 6.1 from the next row: more than three times 2
    elif sizes[-1] > 1:
        at[-1] += 5
    group = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = np.c_[at, 0 * at][group]
    rows = Rows(bk.asarray(X))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = representatives_of(rows, n_neighbors)
    assert [w.category for w in caught] == [DuplicateRowsWarning] * isinstance(kept, list)
    if not isinstance(kept, list):
        assert found == (rows, None, None)
        return
    first, place = bk.to_numpy(found.first), bk.to_numpy(found.place)
    n = len(sizes)
    np.testing.assert_array_equal(X[first[:n]][place], X)
    np.testing.assert_array_equal(bk.to_numpy(found.rows.X), X[first])
    assert (np.diff(first[:n]) > 0).all()
    assert first[:n].tolist() == [int(np.flatnonzero(group == group[i])[0]) for i in first[:n]]
    assert len(first) - n == sum(kept) - len(kept)
    assert (X[first[n:], 0] == at[-1]).all()
    said = f"one of them {max(sizes)} times, .* the {n} distinct rows of {len(X)}"
    assert re.search(
        said + (", except for copies of 1 that" if kept else ";"), str(caught[0].message)
    )


@pytest.mark.parametrize("copies", [1, 2])
def test_neighbours_are_searched_once_unless_more_are_asked_for(bk, monkeypatch, caplog, copies):
    asked, search_them = [], found_rows.search_neighbors
    monkeypatch.setattr(
        found_rows, "search_neighbors", lambda *a: asked.append(a[2]) or search_them(*a)
    )
    rows = Rows(bk.asarray(np.repeat(normal(size=(40, 12)), copies, axis=0)))
    caplog.set_level("INFO", logger="specialk_gpu")
    for k in (3, 3, 2, 5, 5, 4):
        rows.neighbors(k)
    assert asked == [3, 5]
    n_rows = [record.getMessage().split(",")[0] for record in caplog.records]
    assert n_rows.count(f"neighbours: {40 * copies} rows") == 2


def test_neighbours_that_equal_their_row_are_counted(bk):
    X = np.repeat(np.arange(5.0), [1, 2, 3, 4, 1])[:, None]
    rows = Rows(bk.asarray(X))
    for k in (1, 2, 3, 5):
        near = np.argsort(abs(X - X.T) + 9 * np.eye(len(X)), axis=1, kind="stable")[:, :k]
        assert rows.n_equal(k) == (X[near, 0] == X).sum()
    assert Rows(bk.asarray(np.arange(5.0)[:, None])).n_equal(2) == 0


@pytest.mark.parametrize("unit", [1.0, 2.0**600, 2.0**-600])
def test_the_spacing_is_the_distance_to_the_last_neighbour(bk, unit):
    X = normal(size=(30, 3))
    expected = np.sort(np.sqrt(sq_distances(X)), axis=1)
    rows = Rows(bk.asarray(X * unit))
    for k in (4, 2, 9):
        np.testing.assert_allclose(bk.to_numpy(rows.spacing(k)) / unit, expected[:, k], rtol=1e-12)


def test_spacings_beyond_the_largest_number_are_that(bk):
    top = np.finfo(np.float64).max
    rows = Rows(bk.asarray(np.array([[-top], [top], [top / 2]])))
    assert bk.to_numpy(rows.spacing(2)).tolist() == [top, top, top]
    np.testing.assert_allclose(bk.to_numpy(rows.spacing(1)), [top, top / 2, top / 2])


@pytest.mark.parametrize(
    ("largest", "unit"),
    [
        (1.0, 1.0),
        (0.0, 1.0),
        (0.99e100, 1.0),
        (1e100, 2.0**333),
        (1.01e-100, 1.0),
        (1e-100, 2.0**-332),
        (2.0**500, 2.0**501),
        (1.5 * 2.0**-500, 2.0**-499),
        (2.0**1023, 2.0**1023),
    ],
)
def test_data_of_extreme_size_are_divided_by_a_power_of_two(bk, largest, unit):
    X = bk.asarray(np.array([[0.0, 0.5], [-1.0, 0.25]]) * largest)
    scaled, found = features_within_range(bk, X)
    assert found == unit
    assert (scaled is X) == (unit == 1)
    np.testing.assert_array_equal(bk.to_numpy(scaled) * unit, bk.to_numpy(X))
    if unit != 1:
        assert 0.5 <= np.abs(bk.to_numpy(scaled)).max() <= 1


def test_constant_columns_are_known_by_their_value(bk):
    X = np.array([[1.0, 2, 3], [1, 5, 3], [1, 2, 4]])
    assert bk.to_numpy(values_of_constant_features(bk, bk.asarray(X))).tolist() == [1, 0, 0]
    assert values_of_constant_features(bk, bk.asarray(X[:, 1:])) is None


def test_rows_of_equal_hash_are_told_apart(bk, colliding):
    rows = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 4.0], [4.0, 3.0]])
    colliding[0] = 3
    assert groups_of(bk, rows) is None
    first, group = groups_of(bk, rows[[0, 1, 0, 3, 1]])
    np.testing.assert_array_equal(first, [0, 1, 3])
    np.testing.assert_array_equal(group, [0, 1, 0, 2, 1])
    colliding[0] = 8
    with pytest.raises(RuntimeError, match="hashes of the rows collided"):
        groups_of(bk, rows)


# Within a radius ----------------------------------------------------------------------------------


RADII = {
    "normal float64": [0.0, 9.0, 60.0, 200.0],
    "normal float32": [9.0, 60.0],
    "grid": [0.5, 1.0, 2.0, 1e9, 1e100],
    "binary": [1.0, 3.0],
    "each row 12 times": [0.0, 1.0],
    "far from the origin": [4.0, 20.0],
    "an outlier": [10.0, 2e17],
    "one ulp apart": [1e-32, 1.0],
    "two rows": [100.0],
}


@pytest.mark.parametrize("case", RADII)
def test_rows_within_a_radius_are_those_of_brute_force(bk, case):
    X = CASES[case][0]
    sq = sq_distances(X)
    np.fill_diagonal(sq, np.inf)
    some_pair = float(np.sort(sq, axis=None)[sq.shape[0] // 2])  # a pair at exactly the radius
    for sq_radius in [*RADII[case], some_pair]:
        pairs = pairs_within_radius(readonly(bk, X), sq_radius)
        counts = count_within_radius(pairs)
        np.testing.assert_array_equal(bk.to_numpy(counts), (sq <= sq_radius).sum(axis=1))
        listed = list_within_radius(pairs, np.r_[0, np.cumsum((sq <= sq_radius).sum(axis=1))])
        assert listed.dtype == np.int32
        np.testing.assert_array_equal(bk.to_numpy(listed), np.nonzero(sq <= sq_radius)[1])


# Size ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.unseen_by_stand_in(reason="tiles of a device's size; the last rows come below")
def test_rows_are_numbered_beyond_32_bits_of_pairs(bk):
    X = np.random.default_rng(0).uniform(size=(46_400, 2))  # C15: m² exceeds 2³¹
    distances, indices, _ = search(bk, X, 4)
    last = slice(X.shape[0] - 50, None)
    expected, expected_indices = cKDTree(X).query(X[last], k=5)
    np.testing.assert_array_equal(indices[last], expected_indices[:, 1:])
    np.testing.assert_allclose(distances[last], expected[:, 1:], rtol=1e-14)


def test_the_last_rows_are_numbered_beyond_32_bits_of_pairs(bk):
    X = np.random.default_rng(0).uniform(size=(46_450, 2))
    queries, X = X[46_400:], X[:46_400]  # numbered after X: only they make numbers so large
    found = neighbors_among(bk.asarray(queries), bk.asarray(X), 4)
    expected, expected_indices = cKDTree(X).query(queries, k=4)
    np.testing.assert_array_equal(bk.to_numpy(found.indices), expected_indices)
    np.testing.assert_allclose(bk.to_numpy(found.distances), expected, rtol=1e-14)


LIMITED = """
import resource, sys
import numpy as np
from specialk_gpu import knn_graph
from specialk_gpu.backend import get_backend

bk, limit = get_backend(sys.argv[1]), 3 * 2**29
if bk.name == "numpy":
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
else:
    bk.xp.get_default_memory_pool().set_limit(size=limit)
X = np.random.default_rng(0).normal(size=(30_000, 10)).astype(np.float32)
W = knn_graph(bk.asarray(X), 10)
assert W.shape == (30_000, 30_000)
assert 300_000 <= W.nnz <= 600_000
"""


@pytest.mark.slow
@pytest.mark.unseen_by_stand_in(reason="memory is limited in a process of its own")
def test_thirty_thousand_rows_fit_into_one_and_a_half_gigabytes(bk):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # C07
    command = [sys.executable, "-c", LIMITED, bk.name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_outlier_beside_which_distances_vanish_is_an_error(bk):
    X = np.concatenate([normal(size=(300, 3)), np.full((1, 3), 1e200)])
    with pytest.raises(ValueError, match="X has entries as large as .* distances .* vanish"):
        nearest_neighbors(bk.asarray(X), 3)
    huge = normal(size=(60, 3)) * 1e200
    found = nearest_neighbors(bk.asarray(np.concatenate([huge, huge[:5]])), 3)
    assert int((found.distances == 0).sum()) == 10
