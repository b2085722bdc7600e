"""Valleys along the line between two means: counts by definition, where there is one, or none."""

import math

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.stats import binom, kstest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from specialk_gpu import SpecialK
from specialk_gpu.selection import valleys
from specialk_gpu.selection.bent_valleys import is_valley_bent
from specialk_gpu.selection.discrete import spread_discrete_columns
from specialk_gpu.selection.null_distribution import local_dimension
from specialk_gpu.selection.valleys import (
    MARGIN,
    SHALLOW,
    Valleys,
    halves_for_valleys,
    rows_in_valleys,
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
    return Valleys(X, halves_for_valleys(X), bk.asarray(y, dtype=np.int32), int(y.max()) + 1)


def log_p(bk, X, y, pair=(0, 1), deep=NEVER):
    return log_p_of(bk, valleys_of(bk, X, y), pair, np.arange(y.max() + 1), deep)


def log_p_of(bk, found, pair, nodes, deep=NEVER):
    counts = found.counts(np.array([pair]), nodes)
    return float(valley_log_p(bk.to_numpy(rows_in_valleys(counts)), deep)[0])


def is_bent(bk, X, y, pair=(0, 1)):
    return bool(valleys_of(bk, X, y).are_bent(np.array([pair]), np.arange(y.max() + 1))[0])


def test_halves_are_of_one_size_and_do_not_depend_on_the_order(bk):
    X = np.random.default_rng(0).standard_normal((101, 3))
    half = bk.to_numpy(halves_for_valleys(bk.asarray(X)))
    assert half.sum() == 50
    order = np.random.default_rng(1).permutation(101)
    np.testing.assert_array_equal(
        bk.to_numpy(halves_for_valleys(bk.asarray(X[order]))), half[order]
    )
    np.testing.assert_array_equal(bk.to_numpy(halves_for_valleys(bk.asarray(X), chunk=7)), half)


def counts_by_definition(X, y, half, a, b):
    """Count rows on the line from mean a to mean b of the other half, in the region around it."""
    counts, names = np.zeros((2, 96)), np.arange(y.max() + 1)
    known = [c for c in names if np.bincount(half[y == c].astype(int), minlength=2).min() >= 3]
    if a not in known or b not in known:
        return counts
    mean = np.array([[X[(half == h) & (y == c)].sum(axis=0) for c in names] for h in (0, 1)])
    for h in (0, 1):
        mean[h] /= np.maximum(np.bincount(y[half == h], minlength=len(names)), 1)[:, None]
    inner = (mean[0] @ mean[1].T + mean[1] @ mean[0].T) / 2
    middle = (inner[a, a] + inner[b, b] + 2 * inner[a, b]) / 4
    apart = inner[a, a] + inner[b, b] - 2 * inner[a, b]
    for x, h in zip(X, half.astype(int), strict=True):
        to = mean[1 - h] @ x
        score = to - np.diag(inner) / 2
        own = (to[a] + to[b]) / 2
        inside = True
        for c in set(known) - {a, b}:
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
    half = bk.to_numpy(halves_for_valleys(bk.asarray(X)))
    found = Valleys(bk.asarray(X), bk.asarray(half), bk.asarray(y, dtype=np.int32), k)
    counts = bk.to_numpy(found.counts(np.array([[0, 1], [1, 0]]), np.arange(k)))
    np.testing.assert_array_equal(counts[0], counts_by_definition(X, y, half, 0, 1))
    np.testing.assert_array_equal(counts[1], counts_by_definition(X, y, half, 1, 0))


@pytest.mark.parametrize(("n_first", "n_second"), [(2, 9), (9, 2), (3, 3), (0, 9)])
def test_clusters_of_fewer_than_three_rows_in_a_half_do_not_count(bk, n_first, n_second):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3], [60, 60, 60, n_first + n_second])
    X = rng.standard_normal((y.size, 3)) + 4 * np.eye(4, 3)[y]
    X -= X.mean(axis=0)
    half = np.r_[np.arange(180) % 2, np.zeros(n_first), np.ones(n_second)].astype(bool)
    found = Valleys(bk.asarray(X), bk.asarray(half), bk.asarray(y, dtype=np.int32), 4)
    pairs = np.array([(0, 1), (2, 0), (3, 1), (0, 3)])
    counts = bk.to_numpy(found.counts(pairs, np.arange(4)))
    for own, pair in zip(counts, pairs, strict=True):
        np.testing.assert_array_equal(own, counts_by_definition(X, y, half, *pair))
    assert counts[2:].any() == (n_first == 3)


def test_of_many_pairs_each_is_counted_as_if_it_was_alone(bk, monkeypatch):
    rng = np.random.default_rng(1)
    y = rng.integers(5, size=300)
    X = rng.standard_normal((300, 3)) + 3 * np.eye(5, 3)[y]
    found, pairs = valleys_of(bk, X, y), np.array([(i, j) for i in range(5) for j in range(i)])
    nodes = np.array([3, 0, 4, 1, 2])
    counts, bent = bk.to_numpy(found.counts(pairs, nodes)), found.are_bent(pairs, nodes)
    for chunk in (300, 900, 1000, 10**5):
        monkeypatch.setattr(valleys, "CHUNK", chunk)
        monkeypatch.setattr(valleys, "HOST_CHUNK", chunk)
        np.testing.assert_array_equal(bk.to_numpy(found.counts(pairs, nodes)), counts)
        np.testing.assert_array_equal(found.are_bent(pairs, nodes), bent)
    for i in range(len(pairs)):
        own = bk.to_numpy(found.counts(pairs[i : i + 1], nodes))
        np.testing.assert_array_equal(own[0], counts[i])
        assert found.are_bent(pairs[i : i + 1], nodes)[0] == bent[i]
    assert 0 < bent.sum() < len(bent)


def test_of_no_pairs_nothing_is_counted(bk):
    found = valleys_of(bk, *two(2, 4))
    none = np.empty((0, 2), dtype=np.int64)
    assert found.counts(none, np.arange(2)).shape == (0, 2, 96)


def test_rows_beyond_the_ends_of_the_line_are_not_counted(bk):
    rng, y = np.random.default_rng(0), np.repeat([0, 1], 750)
    X = np.c_[rng.normal(size=1500) + 4 * y, np.zeros(1500)]
    X[::5, 0] = rng.permutation(np.linspace(-28, 32, 300))
    y[::5] = X[::5, 0] > 2
    X -= X.mean(axis=0)
    half = bk.to_numpy(halves_for_valleys(bk.asarray(X)))
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
    p = math.exp(valley_log_p(rows_in_valleys(counts), NEVER)[0])
    n_rows = n_beside = 0
    for half in (0, 1):
        (valley,), (left,), (right,) = valleys._valley_windows(counts[:, half])
        sides = [counts[0, 1 - half, start : start + 16].sum() for start in (left, right)]
        n_beside += int(min(sides))
        n_rows += int(counts[0, 1 - half, valley : valley + 10].sum())
    chance = 10 * SHALLOW / (10 * SHALLOW + 16)
    assert 70 < n_beside <= 48 + 32
    assert p == pytest.approx(binom.cdf(n_rows, n_rows + n_beside, chance), rel=1e-9)


def test_rows_in_valleys_are_those_of_each_half_in_the_windows_of_the_other(bk):
    rng = np.random.default_rng(0)
    place = np.arange(96)
    peaks = [np.exp(-(((place - rng.uniform(*x)) / 9) ** 2)) for x in [(10, 40), (55, 90)] * 6]
    counts = rng.poisson(20 * np.reshape(peaks, (3, 2, 2, 96)).sum(axis=2) + 0.5).astype(float)
    expected = np.zeros((2, 3))
    for pair, half in np.ndindex(3, 2):
        starts = [int(x[0]) for x in valleys._valley_windows(counts[pair, half][None])]
        n_valley, *sides = (
            counts[pair, 1 - half, start : start + width].sum()
            for start, width in zip(starts, (10, 16, 16), strict=True)
        )
        expected[:, pair] += n_valley, min(sides)
    np.testing.assert_array_equal(bk.to_numpy(rows_in_valleys(bk.asarray(counts))), expected)


def test_p_of_a_valley_is_binomial_down_to_1e_300():
    rows = np.array([[0, 3, 3, 10, 0, 0, 5], [0, 40, 40, 5, 1000, 10**5, 9]], dtype=float)
    deep = np.array([False, False, True, False, True, False, True])
    for p, valley, side, depth in zip(
        np.exp(valley_log_p(rows, deep)), *rows, np.where(deep, 0.5, 0.93), strict=True
    ):
        chance = 10 * depth / (10 * depth + 16)
        assert p == pytest.approx(max(binom.cdf(valley, valley + side, chance), 1e-300), rel=1e-9)
    assert valley_log_p(rows, deep)[0] == 0


def windows_by_definition(counts, width):
    """Rows in windows, averaged over those moved by up to 7 bins; the ends are repeated."""
    found = [counts[i : i + width].sum() for i in range(97 - width)]
    near = [np.clip(np.arange(i - 7, i + 8), 0, 96 - width) for i in range(97 - width)]
    return np.array([np.mean([found[j] for j in own]) for own in near])


@pytest.mark.parametrize("seed", range(12))
def test_windows_are_where_a_valley_is_deepest_below_its_lower_side(bk, seed):
    rng = np.random.default_rng(seed)
    peaks = rng.uniform([10, 40], [50, 86])
    counts = rng.poisson(sum(30 * np.exp(-(((np.arange(96) - p) / 8) ** 2)) for p in peaks) + 0.2)
    side, valley = (windows_by_definition(counts, width) for width in (16, 10))
    depth = {
        i: math.sqrt(10 / 16 * min(side[: i - 15].max(), side[i + 10 :].max()))
        - math.sqrt(valley[i])
        for i in range(32, 55)  # the valley lies between the means, from bin 32 to bin 64
    }
    start = max(depth, key=depth.get)
    expected = [start, side[: start - 15].argmax(), start + 10 + side[start + 10 :].argmax()]
    xp_counts = bk.asarray(counts[None].astype(float))
    found = [int(x[0]) for x in valleys._valley_windows(xp_counts)]
    np.testing.assert_allclose(bk.to_numpy(valleys._rows_in_valley_window(xp_counts, 16))[0], side)
    assert found == expected


def bent_by_definition(Y, place, sizes):
    """The offset by the inverse of the covariance, the widest direction by a pencil."""
    line = [np.polyval(np.polyfit(place, column, 1), place) for column in Y.T]
    valley, left, right = np.split(Y - np.transpose(line), np.cumsum(sizes)[:-1])
    cov = [np.atleast_2d(np.cov(x.T, bias=True)) for x in (valley, left, right)]
    both = cov[0] + (cov[1] + cov[2]) / 2
    offset = valley.mean(axis=0) - (left.mean(axis=0) + right.mean(axis=0)) / 2
    squared = offset @ np.linalg.solve(both, offset) - Y.shape[1] / (2 * len(valley))
    shares, directions = eigh(cov[0], both)
    along = (valley - valley.mean(axis=0) + offset) @ directions[:, -1]
    n_near = (abs(along) <= 0.5 * math.sqrt(shares[-1])).sum()
    return squared > 0.8**2, n_near < 0.15 * len(valley) - 1


def test_a_pair_is_bent_by_its_definition():
    told = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        d, sizes = int(rng.integers(1, 4)), rng.integers(20, 60, size=3)
        Y, place = rng.normal(size=(sizes.sum(), d)), np.repeat([0.0, -1.0, 1.2], sizes)
        place += rng.uniform(-0.3, 0.3, size=len(place))
        Y += np.outer(place, rng.normal(size=d)) + 3
        Y[: sizes[0], 0] += rng.uniform(0.5, 2)  # to one side
        if seed % 2:  # all around
            Y[: sizes[0], 0] -= 1.2
            Y[: sizes[0], 0] += rng.uniform(1, 4) * rng.choice([-1, 1], size=sizes[0])
        told.append(bent_by_definition(Y, place, sizes))
        assert is_valley_bent(Y, place, sizes) == any(told[-1])
    assert {tuple(map(bool, x)) for x in told} == {(a, b) for a in (0, 1) for b in (0, 1)}


def test_a_pair_is_bent_from_the_offset_of_its_valley_on_that_the_definition_has():
    n_found = 0
    for seed in range(9):
        rng = np.random.default_rng(seed)
        d, sizes = int(rng.integers(1, 4)), rng.integers(8, 40, size=3)
        place = np.repeat([5.0, 4.0, 6.2], sizes) + rng.uniform(-0.3, 0.3, size=sizes.sum())
        Y = rng.normal(size=(len(place), d)) * np.repeat([1, 2, 0.5], sizes)[:, None]
        Y += np.outer(place, rng.normal(size=d))

        def moved(shift, Y=Y, n=sizes[0]):
            return np.r_[Y[:n] + shift, Y[n:]]

        low, high = 0.0, 5.0
        for _ in range(13):
            middle = (low + high) / 2
            is_beyond = bent_by_definition(moved(middle), place, sizes)[0]
            low, high = (low, middle) if is_beyond else (middle, high)
        if low > 0 and not bent_by_definition(moved(low), place, sizes)[1]:
            n_found += 1
            assert not is_valley_bent(moved(low - 1e-3), place, sizes)
            assert is_valley_bent(moved(high + 1e-3), place, sizes)
    assert n_found >= 6


def test_rows_on_the_line_and_equal_columns_say_nothing_of_a_bend():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(15, 30, size=3)
        place = np.repeat([0.0, -1.0, 1.0], sizes) + rng.uniform(-0.3, 0.3, size=sizes.sum())
        Y = rng.normal(size=(sizes.sum(), 2))
        Y[: sizes[0], 0] += rng.uniform(0, 2)
        bent = is_valley_bent(Y, place, sizes)
        more = np.c_[np.full(len(Y), 7.0), Y, 3 * place + 1]
        assert is_valley_bent(more, place, sizes) == bent
        assert not is_valley_bent(more[:, [0]], place, sizes)
        assert is_valley_bent(1e3 * Y + 5, 2 * place - 9, sizes) == bent


def test_without_rows_beside_it_a_valley_is_bent_and_without_rows_in_it_not():
    rng = np.random.default_rng(0)
    for sizes, bent in (((5, 0, 4), True), ((5, 4, 0), True), ((0, 5, 4), False)):
        Y, place = rng.normal(size=(9, 2)), rng.normal(size=9)
        assert is_valley_bent(Y, place, np.array(sizes)) == bent


def test_a_peak_of_each_half_on_another_side_is_no_valley():
    counts = np.zeros((1, 2, 96))
    counts[0, 0, 20:36] = counts[0, 1, 60:76] = 10
    assert valley_log_p(rows_in_valleys(counts), NEVER)[0] == 0


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
    assert is_bent(bk, X[:, [1, 0, 2]], y)  # the line is along another column


@pytest.mark.parametrize("d", [1, 2, 5])
def test_two_gaussians_are_not_bent(bk, d):
    for seed in range(5):
        assert not is_bent(bk, *two(d, 4, seed=seed))


@pytest.mark.parametrize(("n_near", "bent"), [(13, True), (14, False)])
def test_a_pair_is_bent_if_few_rows_of_the_valley_are_in_its_middle(n_near, bent):
    assert 0.15 * 100 - 1 == 14  # of 100 rows
    valley = np.sign(np.arange(100) - (100 - n_near) // 2 - 0.5)  # on both sides of the line
    valley[:n_near] = 0
    valley[n_near:] = np.tile([-1, 1], 50)[: 100 - n_near]
    side = np.tile([-0.1, 0.1], 25)
    Y = np.concatenate([valley, side, side])[:, None]
    place = np.repeat([0.0, -1, 1], [100, 50, 50])
    assert is_valley_bent(Y, place, np.array([100, 50, 50])) == bent


@pytest.mark.parametrize(("offset", "bent"), [(0.4, True), (0.6, False)])
def test_the_middle_of_a_valley_is_that_of_the_rows_beside_it(offset, bent):
    """Rows at -1 and 1 around an offset: from about one half on, one side is in the middle."""
    side = np.tile([-0.1, 0.1], 25)
    Y = np.concatenate([np.tile([-1, 1], 50) + offset, side, side])[:, None]
    place = np.repeat([0.0, -1, 1], [100, 50, 50])
    assert is_valley_bent(Y, place, np.array([100, 50, 50])) == bent


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
    found = Valleys(X, halves_for_valleys(X), bk.asarray(parts, dtype=np.int32), 4)
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
    assert local_dimension(1 - np.eye(5)) == 1  # all equally far


@pytest.mark.parametrize("scale", [2.0**-830, 2.0**660])
def test_valleys_do_not_depend_on_the_unit(scale):
    X, _ = make_blobs(300, centers=np.eye(8)[:3] * 5, random_state=0)  # short: valleys are asked
    fits = [SpecialK(backend="numpy", random_state=0).fit(x) for x in (X, X * scale)]
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)
    np.testing.assert_allclose(*([step.log_p for step in model.path_] for model in fits), rtol=1e-6)


# -- discrete columns -----------------------------------------------------------------------------


def test_the_values_of_discrete_columns_are_spread_over_their_room(bk):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.choice([2, 3, 7], 2000, p=[0.6, 0.3, 0.1]), rng.normal(size=2000)])
    found = bk.to_numpy(spread_discrete_columns(bk.asarray(X)))
    np.testing.assert_array_equal(found[:, 1], X[:, 1])  # not discrete
    for value, low, high in ((2, 1.5, 2.5), (3, 2.5, 5), (7, 5, 9)):
        own = found[X[:, 0] == value, 0]
        assert kstest(own, "uniform", (low, high - low)).pvalue > 0.001
    order = rng.permutation(2000)
    np.testing.assert_array_equal(
        bk.to_numpy(spread_discrete_columns(bk.asarray(X[order]))), found[order]
    )
    np.testing.assert_array_equal(
        bk.to_numpy(spread_discrete_columns(bk.asarray(X * 4))), found * 4
    )


@pytest.mark.parametrize(
    ("column", "discrete"),
    [
        (np.r_[-100, np.arange(-8, 10), 100, np.zeros(40)], True),  # 20 values in 60 rows
        (np.r_[-100, np.arange(-8, 10), 100, np.zeros(39)], False),  # not thrice on average
        (np.r_[-100, np.arange(-9, 10), 100, np.zeros(42)], False),  # 21 values
        (np.repeat(np.arange(7), 3), True),  # steps of half a standard deviation, which is 2
        (np.repeat(np.arange(8), 3), False),
        (np.repeat([0, 1, 5], 2), False),
        (np.repeat([0, 1, 5], 3), True),
        (np.repeat([-3, 4], 3), True),
        (np.full(9, 4), False),
    ],
)
def test_columns_of_few_values_that_are_repeated_and_far_apart_are_discrete(bk, column, discrete):
    noise = np.random.default_rng(0).normal(size=len(column))
    X = np.c_[noise, column]
    found = bk.to_numpy(spread_discrete_columns(bk.asarray(X)))
    assert (found[:, 1] != X[:, 1]).any() == discrete
    np.testing.assert_array_equal(found[:, 0], X[:, 0])


@pytest.mark.parametrize(("d", "is_spread"), [(100, True), (101, False)])
def test_where_columns_are_many_none_is_spread(bk, d, is_spread):
    X = bk.asarray(np.random.default_rng(0).integers(2, size=(40, d)).astype(float))
    assert (spread_discrete_columns(X) is not X) == is_spread


def test_of_1024_rows_all_values_are_seen(bk):
    X = np.tile([0.0, 1], 512)[:, None]
    X[513] = 9
    found = bk.to_numpy(spread_discrete_columns(bk.asarray(X)))[:, 0]
    assert 5 <= found[513] <= 13
    assert 0.5 <= found[1] <= 5


def test_equal_columns_are_spread_each_for_itself(bk):
    rng = np.random.default_rng(0)  # where a value goes depends on the whole row
    c, rows = rng.integers(3, size=2000).astype(float), rng.normal(size=2000)
    moved = (
        bk.to_numpy(spread_discrete_columns(bk.asarray(np.column_stack([c, c, c, rows]))))
        - c[:, None]
    )
    away = np.corrcoef(moved[:, :3].T)[np.triu_indices(3, 1)]
    assert abs(away).max() < 4 / 2000**0.5


def test_rows_without_discrete_columns_are_not_copied(bk):
    for X in (np.random.default_rng(0).normal(size=(300, 5)), np.zeros((50, 2))):
        x = bk.asarray(X)
        assert spread_discrete_columns(x) is x


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
