"""Self-tuning spectral clustering and the eigengap, on problems whose answer is known."""

import numpy as np
import pytest
from oracles import readonly
from scipy.optimize import approx_fprime
from scipy.spatial.distance import cdist
from scipy.stats import ortho_group
from sklearn.metrics import adjusted_rand_score

from benchmarks import baselines
from benchmarks.baselines import eigengap, local_scaling_graph, self_tuning, stsc
from specialk_gpu import eigenpairs
from specialk_gpu.datasets import make_shape

pytestmark = pytest.mark.pages

rng = np.random.default_rng(0)
TRUTH = np.repeat([0, 1, 2, 3], [40, 30, 20, 10])
INDICATORS = np.eye(4)[TRUTH] / np.sqrt([40, 30, 20, 10])  # orthonormal columns


def points(shape, noise, m=300):
    return make_shape(shape, noise, n_samples=m, random_state=1)


# -- alignment ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_indicators_in_any_rotation_are_found_again(bk, seed):
    V = INDICATORS @ ortho_group.rvs(4, random_state=seed)
    V = np.concatenate([V, np.random.default_rng(seed).normal(size=(100, 2)) / 10], axis=1)
    found = self_tuning(readonly(bk, [1, 1, 1, 1, 0.5, 0.4]), readonly(bk, V), 6)
    assert [one.k for one in found.path] == [2, 3, 4, 5, 6]
    assert found.n_clusters == 4
    assert found.path[2].quality == pytest.approx(1, abs=1e-6)
    assert bk.to_numpy(found.labels).tolist() == TRUTH.tolist()
    assert isinstance(found.labels, bk.xp.ndarray)
    assert found.labels.dtype == np.int32


def test_the_quality_is_its_definition(bk):
    V = rng.normal(size=(50, 3))
    found = self_tuning(readonly(bk, [3.0, 2, 1]), readonly(bk, V), 3)
    for one in found.path:
        assert 0 <= one.quality <= 1
        assert set(bk.to_numpy(one.labels)) <= set(range(one.k))
    start = V[:, :2]  # no rotation in the plane does better, of a thousand
    costs = []
    for angle in np.linspace(0, np.pi, 1000):
        Z = start @ baselines._rotation(2, np.array([angle]))
        costs.append((Z**2 / (Z**2).max(axis=1, keepdims=True)).sum() / 50)
    assert found.path[0].quality <= 1 - (min(costs) - 1) / 2 + 1e-4
    assert found.path[0].quality >= 1 - (np.median(costs) - 1) / 2


def test_vectors_are_taken_by_their_eigenvalue_and_their_signs_do_not_matter(bk):
    V = INDICATORS @ ortho_group.rvs(4, random_state=0)
    values, order = np.array([1, 0.9, 0.8, 0.7]), [2, 0, 3, 1]
    found = self_tuning(readonly(bk, values), readonly(bk, V), 4)
    other = self_tuning(readonly(bk, values[order]), readonly(bk, -V[:, order]), 4)
    qualities = [[one.quality for one in x.path] for x in (found, other)]
    np.testing.assert_allclose(*qualities, atol=1e-6)
    assert bk.to_numpy(other.labels).tolist() == bk.to_numpy(found.labels).tolist()


def test_rows_of_zeros_cost_nothing(bk):
    V = np.concatenate([np.repeat(np.eye(2), 20, axis=0), np.zeros((10, 2))])
    (only,) = self_tuning(readonly(bk, [1, 1]), readonly(bk, V), 2).path
    assert only.quality == pytest.approx(1)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_gradient_is_that_of_the_cost(bk, k):
    X, angles = rng.normal(size=(60, k)), rng.normal(size=k * (k - 1) // 2)

    def cost(angles):
        return baselines._cost(bk, bk.asarray(X), baselines._rotation(k, angles))[0]

    by_rotation = baselines._cost(bk, bk.asarray(X), baselines._rotation(k, angles))[1]
    found = baselines._by_angles(k, angles, by_rotation)
    np.testing.assert_allclose(found, approx_fprime(angles, cost, 1e-7), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("values", "k", "words"),
    [
        ([1, 1], 1, r"max_clusters must lie between 2 and the number of eigenvectors \(2\), got 1"),
        ([1, 1], 3, "max_clusters must lie between 2"),
        ([1], 2, r"values must have shape \(2,\).* got \(1,\)"),
    ],
)
def test_what_cannot_be_aligned(bk, values, k, words):
    with pytest.raises(ValueError, match=words):
        self_tuning(bk.asarray(np.array(values, dtype=float)), bk.asarray(np.eye(2)), k)


# -- graph ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "scale"), [(15, 7), (3, 7), (20, 1)])
def test_the_graph_is_its_definition(bk, k, scale):
    X = rng.normal(size=(60, 3))
    W = local_scaling_graph(readonly(bk, X), k, scale_neighbor=scale)
    d = cdist(X, X)
    order = np.argsort(d, axis=1)
    sigma = d[np.arange(60), order[:, scale]]
    near = np.zeros((60, 60), dtype=bool)
    near[np.arange(60)[:, None], order[:, 1 : k + 1]] = True
    A = np.where(near | near.T, np.exp(-(d**2) / np.outer(sigma, sigma)), 0)
    expected = A / np.sqrt(np.outer(A.sum(axis=1), A.sum(axis=1)))
    np.testing.assert_allclose(bk.to_numpy(W.todense()), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("factor", [1e-140, 1e140])
def test_the_unit_does_not_matter(bk, factor):
    X = rng.normal(size=(40, 2))
    W, other = (local_scaling_graph(readonly(bk, x)) for x in (X, X * factor))
    assert abs(W - other).max() <= 1e-10


def test_many_duplicates_are_a_cluster_of_their_own(bk):
    X = np.concatenate([np.zeros((20, 2)), rng.normal(size=(40, 2))])
    W = local_scaling_graph(readonly(bk, X), 10)
    dense = bk.to_numpy(W.todense())
    assert np.isfinite(dense).all()
    assert not dense[:20, 20:].any()
    assert dense[:20, :20].sum(axis=1).min() > 0


@pytest.mark.parametrize("name", ["n_neighbors", "scale_neighbor"])
@pytest.mark.parametrize("value", [0, 10])
def test_numbers_of_neighbours_that_cannot_be(bk, name, value):
    settings = {"n_neighbors": 3, name: value}
    with pytest.raises(ValueError, match=rf"{name} must lie between 1 .*\(9\), got {value}"):
        local_scaling_graph(bk.asarray(rng.normal(size=(10, 2))), **settings)


# -- whole ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "noise", "k"), [("blobs", 0, 3), ("moons", 0.05, 2)])
def test_it_finds_clusters_that_are_apart(bk, shape, noise, k):
    X, y = points(shape, noise)
    found = stsc(readonly(bk, X), 6, random_state=0)
    assert found.n_clusters == k
    assert adjusted_rand_score(y, bk.to_numpy(found.labels)) > 0.95


def test_it_does_not_know_that_there_is_one_cluster(bk):
    X, _ = points("random", 0)
    assert stsc(readonly(bk, X), 5, random_state=0).n_clusters >= 2


# -- eigengap -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "limit", "k"),
    [
        ([1, 0.99, 0.98, 0.5, 0.4], None, 3),
        ([0.5, 1, 0.4, 0.98, 0.99], None, 3),
        ([1, 0.2, -0.9], None, 2),
        ([1, 0.99, 0.98, 0.5, 0.4], 2, 1),
        ([1, 0.5, 0], None, 1),
        ([1, 0], 1, 1),
    ],
)
def test_the_largest_gap_is_taken(bk, values, limit, k):
    assert eigengap(readonly(bk, values), limit) == k


def test_components_are_counted(bk):
    own = np.random.default_rng(0)  # whatever was drawn before
    X = np.concatenate([own.normal(size=(30, 2)) + 100 * i for i in range(4)])
    pairs = eigenpairs(local_scaling_graph(bk.asarray(X), 10), 8, random_state=0)
    assert eigengap(pairs.values) == 4


@pytest.mark.parametrize(
    ("values", "limit", "words"),
    [
        ([1.0], None, "at least two eigenvalues"),
        ([1.0, 0.5], 2, r"max_clusters must lie between 1 .*\(1\), got 2"),
        ([1.0, 0.5], 0, "max_clusters must lie between 1"),
    ],
)
def test_what_has_no_gap(bk, values, limit, words):
    with pytest.raises(ValueError, match=words):
        eigengap(bk.asarray(np.array(values)), limit)


# -- axes without rows, and eigenvalues below zero ------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_an_axis_without_rows_has_no_label(bk, seed):
    h = 0.5**0.5
    V = np.array([[1.0, 0, h], [1, 0, -h], [0, 1, h], [0, 1, -h]]) * h
    found = self_tuning(bk.asarray(np.array([1.0, 0.9, 0.8])), bk.asarray(V), 3)
    labels = bk.to_numpy(found.labels)
    assert found.n_clusters == np.unique(labels).size == labels.max() + 1
    X = make_shape("moons", n_samples=200, random_state=seed)[0]
    for one in stsc(bk.asarray(X), random_state=0).path:
        labels = bk.to_numpy(one.labels)
        sizes = np.bincount(labels, minlength=one.k)
        assert sizes.size == one.k
        assert sizes.tolist() == sorted(sizes, reverse=True)


def test_pairs_of_outliers_do_not_put_negative_eigenvalues_first(bk):
    angle = 1.2 * np.arange(5)
    pairs = 100 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    X = np.concatenate([np.random.default_rng(0).normal(size=(300, 2)), pairs, pairs + [0.1, 0]])
    W = local_scaling_graph(X)
    values, vectors = np.linalg.eigh(W.toarray())
    assert np.sort(np.abs(values))[-10:].min() > 0.99  # five are -1
    expected = self_tuning(values[::-1][:10].copy(), vectors[:, ::-1][:, :10].copy(), 10)
    found = stsc(bk.asarray(X), 10, random_state=0)
    assert found.path[-1].quality == pytest.approx(expected.path[-1].quality, abs=0.02)
    assert found.n_clusters >= 5


@pytest.mark.parametrize("max_clusters", [1, 20])
def test_stsc_says_how_many_clusters_it_may_try(max_clusters):
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=rf"rows less 1 \(19\), got {max_clusters}"):
        stsc(X, max_clusters)


@pytest.mark.parametrize(
    ("values", "vectors", "settings", "message"),
    [
        (np.ones(4), np.where(INDICATORS > 0.2, np.nan, 0), {}, "vectors must be finite"),
        ([1, np.nan, 1, 1], INDICATORS, {}, "values must be finite"),
        (np.ones(4), INDICATORS * 1j, {}, "vectors must be real .* got complex128"),
        (np.ones(4), INDICATORS[:0], {}, r"vectors must be .* not empty, got .* \(0, 4\)"),
        (np.ones(4), INDICATORS[:, 0], {}, "vectors must be real numbers in 2 dimensions"),
        (np.ones(4), INDICATORS, {"tolerance": np.nan}, "tolerance must not be negative, got nan"),
    ],
)
def test_what_are_no_eigenpairs_is_refused(bk, values, vectors, settings, message):
    with pytest.raises(ValueError, match=message):
        self_tuning(bk.asarray(values), bk.asarray(vectors), 4, **settings)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_the_length_of_the_vectors_does_not_matter(bk, unit):
    V = INDICATORS @ ortho_group.rvs(4, random_state=0)
    found = self_tuning(bk.asarray(np.ones(4)), bk.asarray(V * unit), 4)
    assert found.n_clusters == 4
    assert adjusted_rand_score(bk.to_numpy(found.labels), TRUTH) == 1


@pytest.mark.parametrize("values", [[np.nan, 1, 0.5], [1, np.inf, 0.2], [1, 1j]])
def test_eigenvalues_that_are_none_have_no_gap(bk, values):
    with pytest.raises(ValueError, match="values must be"):
        eigengap(bk.asarray(values))
