"""Valleys along the line between two means: counts by definition, where there is one, or none."""

import math

import numpy as np
import pytest
from scipy.stats import binom, kstest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from specialk_gpu import SpecialK
from specialk_gpu.selection import valleys
from specialk_gpu.selection.discrete import spread_values
from specialk_gpu.selection.null_distribution import local_dimension
from specialk_gpu.selection.valleys import (
    MARGIN,
    SHALLOW,
    Valleys,
    halves,
    rows_in_windows,
    valley_log_p,
)

NEVER, EVER = np.array([False]), np.array([True])


def two(d, apart, m=500, seed=0):
    """Return two round Gaussians, and which row is of which."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((m, d)), np.arange(m) % 2
    X[:, 0] += apart * y
    return X, y


def valleys_of(bk, X, y):
    X = bk.asarray(X)
    return Valleys(X, halves(X), bk.asarray(y, dtype=np.int32), int(y.max()) + 1)


def log_p(bk, X, y, pair=(0, 1), deep=NEVER):
    return log_p_of(bk, valleys_of(bk, X, y), pair, np.arange(y.max() + 1), deep)


def log_p_of(bk, found, pair, nodes, deep=NEVER):
    counts = found.counts(np.array([pair]), nodes)
    return float(valley_log_p(bk.to_numpy(rows_in_windows(counts)), deep)[0])


def is_bent(bk, X, y, pair=(0, 1)):
    return bool(valleys_of(bk, X, y).are_bent(np.array([pair]), np.arange(y.max() + 1))[0])


def test_halves_are_of_one_size_and_do_not_depend_on_the_order(bk):
    X = np.random.default_rng(0).standard_normal((101, 3))
    half = bk.to_numpy(halves(bk.asarray(X)))
    assert half.sum() == 50
    order = np.random.default_rng(1).permutation(101)
    np.testing.assert_array_equal(bk.to_numpy(halves(bk.asarray(X[order]))), half[order])
    np.testing.assert_array_equal(bk.to_numpy(halves(bk.asarray(X), chunk=7)), half)


def counts_by_definition(X, y, half, a, b):
    """Count rows on the line from mean a to mean b of the other half, in the region around it."""
    k, counts = y.max() + 1, np.zeros((2, 96))
    mean = np.array([[X[(half == h) & (y == c)].mean(axis=0) for c in range(k)] for h in (0, 1)])
    inner = (mean[0] @ mean[1].T + mean[1] @ mean[0].T) / 2
    middle = (inner[a, a] + inner[b, b] + 2 * inner[a, b]) / 4
    apart = inner[a, a] + inner[b, b] - 2 * inner[a, b]
    for x, h in zip(X, half.astype(int), strict=True):
        to = mean[1 - h] @ x
        score = to - np.diag(inner) / 2
        own = (to[a] + to[b]) / 2
        inside = True
        for c in set(range(k)) - {a, b}:
            between = (inner[a, c] + inner[b, c]) / 2
            way = to[c] - own - between + middle  # (x - middle) (c - middle)
            inside &= way <= MARGIN * (inner[c, c] - 2 * between + middle)
            inside &= own - middle / 2 >= score[c]
        place = math.floor(((to[b] - to[a] - (inner[b, b] - inner[a, a]) / 2) / apart + 1.5) * 32)
        if inside and 0 <= place < 96:
            counts[h, place] += 1
    return counts


@pytest.mark.parametrize("k", [2, 3, 5])
def test_counts_are_their_definition(bk, k):
    rng = np.random.default_rng(k)
    X, y = rng.standard_normal((300, 4)), rng.integers(k, size=300)
    X += 4 * np.eye(5, 4)[y]
    X -= X.mean(axis=0)
    half = bk.to_numpy(halves(bk.asarray(X)))
    found = Valleys(bk.asarray(X), bk.asarray(half), bk.asarray(y, dtype=np.int32), k)
    counts = bk.to_numpy(found.counts(np.array([[0, 1], [1, 0]]), np.arange(k)))
    np.testing.assert_array_equal(counts[0], counts_by_definition(X, y, half, 0, 1))
    np.testing.assert_array_equal(counts[1], counts_by_definition(X, y, half, 1, 0))


def test_rows_beyond_the_ends_of_the_line_are_not_counted(bk):
    rng, y = np.random.default_rng(0), np.repeat([0, 1], 750)
    X = np.c_[rng.normal(size=1500) + 4 * y, np.zeros(1500)]
    X[::5, 0] = rng.permutation(np.linspace(-28, 32, 300))
    y[::5] = X[::5, 0] > 2
    X -= X.mean(axis=0)
    half = bk.to_numpy(halves(bk.asarray(X)))
    found = Valleys(bk.asarray(X), bk.asarray(half), bk.asarray(y, dtype=np.int32), 2)
    counts = bk.to_numpy(found.counts(np.array([[0, 1], [1, 0]]), np.arange(2)))
    assert counts.sum() < 2 * 1500
    assert (counts[:, :, [0, -1]].sum(axis=(0, 1)) > 0).all()
    np.testing.assert_array_equal(counts[0], counts_by_definition(X, y, half, 0, 1))
    np.testing.assert_array_equal(counts[1], counts_by_definition(X, y, half, 1, 0))


def test_windows_of_one_half_count_the_other_and_p_is_binomial():
    counts = np.zeros((1, 2, 96))
    counts[0, :, 25:41] = [[5], [2]]  # of 16 bins: 80 rows of the first half, 32 of the second
    counts[0, :, 55:71] = 3  # 48 rows of each
    counts[0, 1, 43:53] = 1
    p = math.exp(valley_log_p(rows_in_windows(counts), NEVER)[0])
    n_rows = n_beside = 0
    for half in (0, 1):
        (valley,), (left,), (right,) = valleys._valley_windows(counts[:, half])
        sides = [counts[0, 1 - half, start : start + 16].sum() for start in (left, right)]
        n_beside += int(min(sides))
        n_rows += int(counts[0, 1 - half, valley : valley + 10].sum())
    chance = 10 * SHALLOW / (10 * SHALLOW + 16)
    assert 70 < n_beside <= 48 + 32
    assert p == pytest.approx(binom.cdf(n_rows, n_rows + n_beside, chance), rel=1e-9)


def test_a_peak_of_each_half_on_another_side_is_no_valley():
    counts = np.zeros((1, 2, 96))
    counts[0, 0, 20:36] = counts[0, 1, 60:76] = 10
    assert valley_log_p(rows_in_windows(counts), NEVER)[0] == 0


def test_an_outlier_does_not_split_the_cluster_whose_mean_it_moves(bk):
    X, y = two(2, 0, 100)
    y = (X[:, 0] > 0).astype(int)
    assert log_p(bk, np.concatenate([X, [[-1000, 0]]]), np.append(y, 0)) > math.log(0.05)


@pytest.mark.parametrize(("d", "apart"), [(2, 5), (10, 4), (50, 4), (500, 6)])
def test_two_gaussians_have_a_valley(bk, d, apart):
    assert log_p(bk, *two(d, apart)) < math.log(0.01)


@pytest.mark.parametrize("d", [1, 2, 10, 100])
@pytest.mark.parametrize("kind", ["normal", "exponential", "random"])
def test_one_cluster_cut_in_two_has_none(d, kind):
    """Each p is at most the level with that probability; here they are far above it."""
    from specialk_gpu.backend import get_backend

    n_small = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = getattr(rng, kind)(size=(200, d))
        y = (X[:, 0] > np.median(X[:, 0])).astype(int)
        n_small += log_p(get_backend("numpy"), X, y) <= math.log(0.05)
    assert n_small <= 6  # of 40 at 5 %, more than that once in 100


def test_where_a_third_cluster_was_cut_out_between_two_there_is_none(bk):
    X = np.random.default_rng(0).standard_normal((4000, 3))
    y = np.digitize(X[:, 0], [-0.3, 0.3])
    assert log_p(bk, X, y, (0, 2)) > math.log(0.5)
    outside = y != 1
    assert log_p(bk, X[outside], (y[outside] > 1).astype(int)) < math.log(1e-6)  # without it


@pytest.mark.parametrize("height", [0, 4])
@pytest.mark.parametrize("angle", [np.pi, 2 * np.pi])
def test_arcs_rings_and_cylinders_are_bent(bk, angle, height):
    rng = np.random.default_rng(0)
    t = angle * rng.random(3000)
    X = np.stack([np.cos(t), np.sin(t), height * rng.random(3000)], axis=1)
    X += 0.1 * rng.standard_normal((3000, 3))
    y = (X[:, 0] > 0).astype(int)
    assert log_p(bk, X, y) < math.log(0.01)
    assert is_bent(bk, X, y)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_two_gaussians_are_not_bent(bk, d):
    for seed in range(5):
        assert not is_bent(bk, *two(d, 4, seed=seed))


def test_a_valley_that_has_to_be_deeper_is_less_probable(bk):
    X, y = two(2, 4)
    assert log_p(bk, X, y) < log_p(bk, X, y, deep=EVER)
    assert SHALLOW < 1


def test_neither_place_nor_unit_matters_nor_the_order_of_rows(bk):
    X, y = two(5, 4)
    order = np.random.default_rng(1).permutation(len(X))
    expected = log_p(bk, X, y)
    for other in (X + 1e3, 1e-6 * X, 1e6 * X):
        assert log_p(bk, other, y) == pytest.approx(expected, rel=1e-9)
    assert log_p(bk, X[order], y[order]) == pytest.approx(expected, rel=1e-9)
    assert log_p(bk, X, 1 - y) == pytest.approx(expected, rel=0.5)  # places are rounded down


def test_a_union_is_as_if_its_parts_were_one(bk):
    X, y = two(5, 5, 400)
    parts = 2 * y + np.arange(400) // 2 % 2
    X = bk.asarray(X)
    found = Valleys(X, halves(X), bk.asarray(parts, dtype=np.int32), 4)
    found.unite(0, 1)
    found.unite(2, 3)
    united = log_p_of(bk, found, (4, 5), np.array([4, 5]))
    assert united == pytest.approx(log_p(bk, bk.to_numpy(X), y), rel=1e-9)


def test_clusters_of_too_few_rows_and_of_one_mean_are_not_told_apart(bk):
    X, y = two(3, 9, 100)
    y[:] = np.arange(100) < 4
    assert log_p(bk, X, y) == 0
    assert not is_bent(bk, X, y)
    assert log_p(bk, np.ones((100, 3)), np.arange(100) % 2) == 0


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_local_dimension_of_a_ball_is_not_above_its_own(d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    X *= rng.random((2000, 1)) ** (1 / d)
    near = np.argsort(np.linalg.norm(X, axis=1))[:31]
    distances = np.linalg.norm(X[near][:, None] - X[near], axis=2)
    assert d / 2 < local_dimension(distances, most=9.0) < 1.1 * d
    assert local_dimension(distances) <= 1.5
    assert local_dimension(np.zeros((5, 5))) == 1


@pytest.mark.parametrize("scale", [2.0**-830, 2.0**660])
def test_valleys_do_not_depend_on_the_unit(scale):
    X, _ = make_blobs(300, centers=np.eye(8)[:3] * 5, random_state=0)  # short: valleys are asked
    fits = [SpecialK(backend="numpy", random_state=0).fit(x) for x in (X, X * scale)]
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)
    np.testing.assert_allclose(*([step.log_p for step in model.path_] for model in fits), rtol=1e-6)


# -- discrete columns -----------------------------------------------------------------------------


def test_the_values_of_discrete_columns_are_spread_over_their_room(bk):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.choice([0, 1, 5], 2000, p=[0.6, 0.3, 0.1]), rng.normal(size=2000)])
    found = bk.to_numpy(spread_values(bk.asarray(X)))
    np.testing.assert_array_equal(found[:, 1], X[:, 1])  # not discrete
    for value, low, high in ((0, -0.5, 0.5), (1, 0.5, 3), (5, 3, 7)):
        own = found[X[:, 0] == value, 0]
        assert kstest(own, "uniform", (low, high - low)).pvalue > 0.001
    order = rng.permutation(2000)
    np.testing.assert_array_equal(bk.to_numpy(spread_values(bk.asarray(X[order]))), found[order])
    np.testing.assert_array_equal(bk.to_numpy(spread_values(bk.asarray(X * 4))), found * 4)


def test_rows_without_discrete_columns_are_not_copied(bk):
    for X in (np.random.default_rng(0).normal(size=(300, 5)), np.zeros((50, 2))):
        x = bk.asarray(X)
        assert spread_values(x) is x


@pytest.mark.filterwarnings("ignore::specialk_gpu.DuplicateRowsWarning")
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_independent_bits_are_one_cluster(share):
    rng = np.random.default_rng(0)
    for _ in range(2):
        X = (rng.random((600, 15)) < share).astype(float)
        assert SpecialK(backend="numpy", random_state=0).fit(X).n_clusters_ == 1


@pytest.mark.filterwarnings("ignore::specialk_gpu.DuplicateRowsWarning")
def test_classes_of_bits_are_several_clusters():
    rng = np.random.default_rng(0)
    kinds = rng.random((3, 30)) < 0.5
    y = rng.integers(3, size=600)
    X = (kinds[y] ^ (rng.random((600, 30)) < 0.08)).astype(float)
    model = SpecialK(backend="numpy", random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.95
