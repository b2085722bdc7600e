"""Where k-means starts: groups keep what they stand for, and their clusterings are the best."""

from itertools import product

import numpy as np
import pytest

from specialk_gpu.backend import cpu
from specialk_gpu.lloyd import seeding
from specialk_gpu.lloyd.points import kmeans_points
from specialk_gpu.lloyd.seeding import distinct_starts, starting_centers, starts_from_groups

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


def test_inertias_that_are_alike_count_once():
    assert distinct_starts(np.array([3.0, 1.0, 1.00001, 2.0, 1.0, 5.0]), 3) == [1, 3, 0]
    assert distinct_starts(np.zeros(4), 3) == [0]
