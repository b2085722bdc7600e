"""Where k-means starts: groups keep what they stand for, and their clusterings are the best."""

from itertools import product

import numpy as np
import pytest

from specialk_gpu.backend import cpu
from specialk_gpu.lloyd import seeding
from specialk_gpu.lloyd.points import kmeans_points
from specialk_gpu.lloyd.seeding import (
    distinct_starts,
    joined_starts,
    starting_centers,
    starts_from_groups,
)

NOISE = np.random.default_rng(1).normal(size=(300, 4))


def optimum(X, weights, k):
    """Inertia of the best of all partitions."""
    best = np.inf
    for labels in product(range(k), repeat=len(X) - 1):
        labels = np.array((0, *labels))
        inertia = 0.0
        for c in set(labels.tolist()):
            own, w = X[labels == c], weights[labels == c, None]
            inertia += (w * (own - (w * own).sum(axis=0) / w.sum()) ** 2).sum()
        best = min(best, inertia)
    return best


def inertia_of(X, weights, centers):
    return (weights * ((X[:, None] - centers) ** 2).sum(axis=2).min(axis=1)).sum()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [2, 3])
def test_the_first_start_from_groups_is_their_optimum(seed, k):
    rng = np.random.default_rng(seed)
    groups, weights = rng.normal(size=(9, 2)), rng.integers(1, 30, size=9).astype(float)
    points, rng = kmeans_points(cpu, groups, weights), np.random.RandomState(seed)
    centers, sizes = starts_from_groups(points, [k], 1000, 4, [rng])
    found = [inertia_of(groups, weights, own) for own in centers]
    assert found[0] == pytest.approx(optimum(groups, weights, k))
    assert len(found) <= 4
    assert sizes.tolist() == [k] * len(found)
    assert found == sorted(found)
    assert len(set(np.round(found, 9))) == len(found)


@pytest.mark.parametrize("n_rows", [20, 300])
def test_groups_stand_for_all_rows(bk, n_rows):
    X = NOISE[:n_rows]
    found = seeding._seeding_groups(kmeans_points(bk, bk.asarray(X)), np.random.RandomState(0))
    groups, weights = found.X, found.weights
    assert groups.shape == (min(n_rows, 48), 4)
    assert weights.sum() == n_rows
    np.testing.assert_allclose(weights @ groups / n_rows, X.mean(axis=0), atol=1e-14)


def test_groups_that_have_lost_their_rows_are_left_out(bk):
    X = np.random.default_rng(1).normal(size=(102, 1)) ** 3
    X -= X.mean(axis=0)
    found = seeding._seeding_groups(kmeans_points(bk, bk.asarray(X)), np.random.RandomState(1))
    assert len(found.X) == len(found.weights) < 48
    assert found.weights.min() >= 1
    assert found.weights.sum() == 102
    np.testing.assert_allclose(found.weights @ found.X, [0], atol=1e-12)


def test_groups_of_one_row_can_be_centres_themselves():
    X, rng = np.array([[0.0, 1], [4, 9], [8, 8], [60, 3]]), np.random.RandomState(0)
    for weights in (np.ones(4), np.array([1.0, 7, 1, 2])):
        groups = kmeans_points(cpu, X, weights)
        centers, sizes = starts_from_groups(groups, [3, 4], 60, 1, [rng, rng])
        assert sizes.tolist() == [3, 4]
        assert inertia_of(X, weights, centers[1]) == pytest.approx(0, abs=1e-12)
        best = optimum(X, weights, 3)
        assert inertia_of(X, weights, centers[0, :3]) == pytest.approx(best, abs=1e-12)
        assert not centers[0, 3].any()


@pytest.mark.parametrize("rounding", [0, 1e-9])
def test_copies_of_one_row_are_one_group(bk, rounding):
    X = np.repeat([[0.0, 1.0], [5.0, 5.0]], [90, 10], axis=0)
    X += rounding * np.random.default_rng(0).normal(size=X.shape)
    found = seeding._seeding_groups(kmeans_points(bk, bk.asarray(X)), np.random.RandomState(0))
    groups, weights = found.X, found.weights
    order = groups[:, 0].argsort()
    np.testing.assert_allclose(groups[order], [[0, 1], [5, 5]], atol=1e-8)
    assert weights[order].tolist() == [90, 10]


def test_few_clusters_start_from_groups_too(bk):
    ks = [1, 2, 5, 12, 13]
    rngs = [np.random.RandomState(k) for k in ks]
    points = kmeans_points(bk, bk.asarray(NOISE))
    starts, sizes = starting_centers(points, ks, 6, rngs, np.random.RandomState(0))
    n_starts = dict(zip(*np.unique(sizes, return_counts=True), strict=True))
    assert sizes.tolist() == sorted(sizes)
    assert starts.shape == (sizes.size, 13, 4)
    assert n_starts == {1: 6, 2: 4, 5: 4, 12: 4, 13: 6}
    starts = bk.to_numpy(starts)
    rows = set(map(tuple, NOISE))
    means = [own[:k] for own, k in zip(starts, sizes, strict=True) if tuple(own[0]) not in rows]
    assert [len(own) for own in means] == [2, 2, 5, 5, 12, 12]
    assert all(np.unique(own, axis=0).shape == own.shape for own in means)


def test_one_start_alone_is_from_rows(bk):
    points, rng = kmeans_points(bk, bk.asarray(NOISE)), np.random.RandomState(0)
    starts, sizes = starting_centers(points, [3], 1, [rng], rng)
    assert sizes.tolist() == [3]
    assert set(map(tuple, bk.to_numpy(starts)[0])) <= set(map(tuple, NOISE))


def sq_to(X, rows):
    return ((X[rows][:, None] - X) ** 2).sum(axis=2)


def first_reached(weights, draw):
    """Return the first row at which the running sum reaches this share of the total."""
    return int(np.argmax(np.cumsum(weights) >= draw * weights.sum()))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_centre_is_the_best_of_rows_drawn_by_squared_distance(bk, weighted):
    rng, X = np.random.default_rng(0), NOISE[:30]
    weights = rng.integers(1, 9, size=30).astype(float) if weighted else np.ones(30)
    given = bk.asarray(weights) if weighted else None
    nearest, draws = sq_to(X, rng.integers(30, size=8)), rng.random((8, 4))
    points = kmeans_points(bk, bk.asarray(X), given)
    rows, left = seeding._draw_starting_centers(points, bk.asarray(nearest), bk.asarray(draws))
    for own, us, row, sq in zip(nearest, draws, bk.to_numpy(rows), bk.to_numpy(left), strict=True):
        drawn = [first_reached(own * weights, u) for u in us]
        sums = [(np.minimum(own, to_row) * weights).sum() for to_row in sq_to(X, drawn)]
        assert row == drawn[int(np.argmin(sums))]
        np.testing.assert_allclose(sq, np.minimum(own, sq_to(X, [row])[0]), atol=1e-12)
        assert sq[row] == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_every_run_of_every_size_draws_by_numbers_of_its_own(bk, weighted):
    ks, n_init, X = [1, 2, 4, 8, 21], 3, NOISE[:40]
    weights = np.random.default_rng(0).integers(1, 9, size=40).astype(float)
    points = kmeans_points(bk, bk.asarray(X), bk.asarray(weights) if weighted else None)
    rngs = [np.random.RandomState(k) for k in ks]
    found = bk.to_numpy(seeding._kmeans_plus_plus_batch(points, ks, n_init, rngs))
    assert found.shape == (15, 21)
    for i, k in enumerate(ks):
        rng = np.random.RandomState(k)
        firsts = rng.random_sample(n_init) if weighted else rng.randint(40, size=n_init)
        draws = rng.random_sample((k - 1, n_init, 2 + int(np.log(k))))
        for r, first in enumerate(firsts):
            rows = [first_reached(weights, first)] if weighted else [first]
            for c in range(k - 1):
                sq = sq_to(X, rows).min(axis=0)
                own = weights if weighted else np.ones(40)
                drawn = [first_reached(own * sq, u) for u in draws[c, r]]
                left = [(own * np.minimum(sq, to_row)).sum() for to_row in sq_to(X, drawn)]
                rows.append(drawn[int(np.argmin(left))])
            assert found[i * n_init + r].tolist() == rows + [0] * (21 - k)


@pytest.mark.parametrize("n_init", [2, 3, 7])
@pytest.mark.parametrize("greedy", [False, True])
def test_the_most_promising_swaps_are_taken(bk, greedy, n_init):
    """Each from its definition: all centres but one, and a row drawn by what is left."""
    X, sizes = NOISE[:40], np.array([2, 3, 6])
    centers = np.random.default_rng(1).normal(size=(3, 6, 4))
    points, rngs = kmeans_points(bk, bk.asarray(X)), [np.random.RandomState(k) for k in sizes]
    given = points, bk.asarray(centers), sizes, [greedy] * 3, n_init, rngs
    swapped, owner = seeding.swap_starting_centers(*given)
    swapped, owner, taken = bk.to_numpy(swapped), np.asarray(owner), 0
    for p, k in enumerate(sizes.tolist()):
        rng = np.random.RandomState(k)
        removed = rng.permutation(k)[:n_init]
        draws = rng.random_sample((n_init, 1))[:, 0]
        sq = ((X[:, None] - centers[p, :k]) ** 2).sum(axis=2)
        without = {slot: np.delete(sq, slot, axis=1).min(axis=1) for slot in removed}
        after = [removed[i % len(removed)] for i in range(n_init)]
        rows = [first_reached(without[slot], u) for slot, u in zip(after, draws, strict=True)]
        pairs = [(slot, row) for slot in removed for row in rows] if greedy else None
        pairs = pairs or list(zip(after, rows, strict=True))
        left = [np.minimum(without[slot], sq_to(X, [row])[0]).sum() for slot, row in pairs]
        for i in np.argsort(left, kind="stable")[: -(-n_init // 3)]:
            expected = centers[p].copy()
            expected[pairs[i][0]] = X[pairs[i][1]]
            np.testing.assert_array_equal(swapped[taken, :k], expected[:k])
            assert owner[taken] == p
            taken += 1
    assert taken == len(swapped) == len(owner)


def test_sets_of_centres_are_joined_by_their_sizes(bk):
    parts = [
        (bk.asarray(np.full((2, 1, 2), 1.0)), np.array([1, 1])),
        (bk.asarray(np.full((2, 4, 2), 2.0)), np.array([1, 4])),
        (np.full((1, 2, 2), 3.0), np.array([2])),  # on the host
    ]
    centers, sizes = joined_starts(bk, parts)
    assert sizes.tolist() == [1, 1, 1, 2, 4]
    found = bk.to_numpy(centers)[:, :, 0].tolist()
    assert found == [[1, 0, 0, 0], [1, 0, 0, 0], [2, 2, 2, 2], [3, 3, 0, 0], [2, 2, 2, 2]]


def test_groups_are_made_where_they_are_used_alone(bk, monkeypatch):
    points, made, groups = kmeans_points(bk, bk.asarray(NOISE)), [], seeding._seeding_groups
    monkeypatch.setattr(seeding, "_seeding_groups", lambda *g: made.append(groups(*g)) or made[-1])
    for ks, n_init, used in [
        ([1], 3, False),
        ([1, 2], 1, False),
        ([1, 2], 2, True),
        ([12, 99], 2, True),
        ([13, 14], 2, False),
    ]:
        made.clear()
        rngs = [np.random.RandomState(k) for k in ks]
        starting_centers(points, ks, n_init, rngs, np.random.RandomState(0))
        assert bool(made) == used


def test_inertias_that_are_alike_count_once():
    assert distinct_starts(np.array([1.0, 1.00009, 1.00011, 1.0003]), 9) == [0, 2, 3]
    assert distinct_starts(np.array([3.0, 1.0, 1.00001, 2.0, 1.0, 5.0]), 3) == [1, 3, 0]
    assert distinct_starts(np.zeros(4), 3) == [0]
