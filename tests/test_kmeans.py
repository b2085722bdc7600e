"""k-means: right on cases worked out by hand, and equal to scikit-learn from equal centres."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from specialk_gpu import kmeans
from specialk_gpu.backend import cpu, get_backend
from specialk_gpu.backend.cpu import centers, lloyd
from specialk_gpu.lloyd import runs as rounds
from specialk_gpu.lloyd.kmeans import kmeans_batch
from specialk_gpu.lloyd.points import kmeans_points

module = importlib.import_module("specialk_gpu.lloyd.kmeans")

SQUARE = np.array([[0.0, 0], [0, 2], [10, 0], [10, 2]])
NOISE = np.random.default_rng(0).normal(size=(150, 3))


def starts(k, n, seed=0, X=NOISE):
    rng = np.random.default_rng(seed)
    return np.stack([X[rng.choice(len(X), k, replace=False)] for _ in range(n)])


def nearest(X, centers):
    """Label and squared distance of the nearest centre, from differences."""
    sq = ((X[:, None, :] - centers) ** 2).sum(axis=2)
    return sq.argmin(axis=1), sq.min(axis=1)


def run(bk, X, k, **settings):
    """Fit on the backend; return the result on the host."""
    if settings.get("init") is not None:
        settings["init"] = bk.asarray(settings["init"])
    found = kmeans(bk.asarray(X), k, **settings)
    assert isinstance(found.labels, bk.xp.ndarray)
    assert isinstance(found.centers, bk.xp.ndarray)
    assert found.labels.dtype == np.int32
    assert found.centers.dtype == np.float64
    return found._replace(labels=bk.to_numpy(found.labels), centers=bk.to_numpy(found.centers))


# -- the answer -----------------------------------------------------------------------------------


def test_four_points_by_hand(bk):
    # First labels 0 1 1 1; centres (0,0), (20/3, 4/3); then 0 0 1 1; centres (0,1), (10,1).
    found = run(bk, SQUARE, 2, init=[[[0, 0], [1, 2]]], n_init=0)
    np.testing.assert_array_equal(found.labels, [0, 0, 1, 1])
    np.testing.assert_allclose(found.centers, [[0, 1], [10, 1]])
    assert found.inertia == pytest.approx(4)
    assert (found.n_iter, found.converged) == (3, True)
    assert found.inertias == [found.inertia]


def test_equal_distances_go_to_the_smaller_label(bk):
    found = run(bk, [[0.0], [1], [2]], 2, init=[[[0], [2]]], n_init=0)
    np.testing.assert_array_equal(found.labels, [0, 0, 1])


@pytest.mark.parametrize("k", [1, 2, 7, 20])
@pytest.mark.parametrize("seed", range(3))
def test_equals_scikit_learn_from_equal_centres(bk, k, seed):
    init = starts(k, 1, seed)
    theirs = KMeans(k, init=init[0], n_init=1, tol=0, algorithm="lloyd").fit(NOISE)
    ours = run(bk, NOISE, k, init=init, n_init=0)
    np.testing.assert_array_equal(ours.labels, theirs.labels_)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, atol=1e-12)
    assert ours.inertia == pytest.approx(theirs.inertia_)
    assert ours.converged


@pytest.mark.parametrize("n_init", [1, 10])
def test_planted_clusters_are_found(bk, n_init):
    X, y = make_blobs(300, centers=[(0, 0), (20, 0), (0, 20), (20, 20)], random_state=0)
    found = run(bk, X, 4, n_init=n_init, random_state=0)
    assert len(set(zip(found.labels.tolist(), y.tolist(), strict=True))) == 4
    assert found.inertia == pytest.approx(
        sum(len(X) / 4 * X[y == c].var(axis=0).sum() for c in range(4))
    )


def test_labels_centres_and_inertia_belong_together(bk):
    found = run(bk, NOISE, 6, random_state=0)
    labels, sq = nearest(NOISE, found.centers)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.inertia == pytest.approx(sq.sum())
    means = [NOISE[labels == c].mean(axis=0) for c in range(6)]
    np.testing.assert_allclose(found.centers, means, atol=1e-12)
    assert found.inertia == min(found.inertias)


# -- restarts -------------------------------------------------------------------------------------


def test_restart_of_a_batch_equals_the_same_restart_alone(bk):
    init = starts(5, 8)
    batch = run(bk, NOISE, 5, init=init, n_init=0)
    alone = [run(bk, NOISE, 5, init=init[r : r + 1], n_init=0) for r in range(8)]
    np.testing.assert_allclose(batch.inertias, [found.inertia for found in alone], rtol=1e-12)
    best = alone[int(np.argmin(batch.inertias))]
    np.testing.assert_array_equal(batch.labels, best.labels)
    assert batch.n_iter == best.n_iter


def test_more_restarts_are_not_worse_on_average(bk):
    means = [
        np.mean([run(bk, NOISE, 9, n_init=n, random_state=seed).inertia for seed in range(8)])
        for n in (1, 4, 16)
    ]
    assert means == sorted(means, reverse=True)
    init = starts(9, 3)
    few = run(bk, NOISE, 9, init=init[:1], n_init=0).inertia
    assert run(bk, NOISE, 9, init=init, n_init=0).inertia <= few


@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_restarts_and_swaps_is_returned(bk, seed):
    found = run(bk, NOISE, 9, n_init=4, random_state=seed)
    assert len(found.inertias) in range(4 + 2 * 2, 100, 2)  # restarts, and rounds of two swaps
    assert found.inertia == min(found.inertias)


def test_centres_are_swapped_if_there_are_two_clusters_and_two_starts(bk):
    def n_runs(k, n_init):
        return len(run(bk, NOISE, k, n_init=n_init, random_state=0).inertias)

    assert n_runs(2, 1) == 1
    assert n_runs(1, 3) == 3
    assert n_runs(2, 2) > 2
    assert n_runs(2, 3) > 3


@pytest.mark.parametrize("seed", range(4))
def test_every_start_and_every_swap_draws_from_the_clusters_without_a_centre(bk, seed):
    centers = 1000.0 * np.eye(12)
    X, y = make_blobs(240, centers=centers, random_state=seed)
    optimum = sum(((X[y == c] - X[y == c].mean(axis=0)) ** 2).sum() for c in range(12))
    found = run(bk, X, 12, n_init=10, random_state=seed)
    np.testing.assert_allclose(found.inertias, optimum)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 8), st.integers(1, 4), st.integers(1, 40))
def test_inertia_is_never_above_one_step_from_any_start(seed, k, n_init, m):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(max(m, k), 2)).round(1)
    k = min(k, len(np.unique(X, axis=0)))
    init = rng.normal(size=(n_init, k, 2))
    found = kmeans(X, k, init=init, n_init=0)
    for start in init:
        labels, sq = nearest(X, start)
        step = sum(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum() for c in set(labels))
        assert found.inertia <= min(step, sq.sum()) * (1 + 1e-12) + 1e-12
    assert found.centers.shape[0] == k
    np.testing.assert_array_equal(np.unique(found.labels), np.arange(k))


# -- several k in one batch -----------------------------------------------------------------------


@pytest.mark.parametrize("n_init", [1, 4])
def test_a_number_of_clusters_does_not_see_the_others_of_its_batch(bk, n_init):
    X, ks = bk.asarray(NOISE), [1, 2, 3, 4, 5, 6, 9]
    together = kmeans_batch(X, ks, seeds=[10 * k for k in ks], n_init=n_init)
    for k, found in zip(ks, together, strict=True):
        (alone,) = kmeans_batch(X, [k], seeds=[10 * k], n_init=n_init)
        np.testing.assert_array_equal(bk.to_numpy(found.labels), bk.to_numpy(alone.labels))
        np.testing.assert_array_equal(bk.to_numpy(found.centers), bk.to_numpy(alone.centers))
        assert found.inertia == pytest.approx(alone.inertia, rel=1e-12)
        assert found.inertias == pytest.approx(alone.inertias, rel=1e-12)
        rng = np.random.RandomState(10 * k)
        (alone,) = kmeans_batch(X, [k], seeds=[rng], sample_seed=rng, n_init=n_init)
        public = kmeans(X, k, random_state=10 * k, n_init=n_init)
        assert public.inertias == alone.inertias


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float64, 1.0), (np.float64, 1e-120), (np.float32, 1.0)]
)
def test_rows_are_overwritten_only_if_this_is_allowed(bk, dtype, scale):
    X = bk.asarray((scale * (NOISE + 100)).astype(dtype))
    before = X.copy()
    (expected,) = kmeans_batch(X, [4], seeds=[0])
    assert bool((before == X).all())
    (found,) = kmeans_batch(X, [4], seeds=[0], overwrite=True)
    np.testing.assert_array_equal(bk.to_numpy(found.labels), bk.to_numpy(expected.labels))
    np.testing.assert_array_equal(bk.to_numpy(found.centers), bk.to_numpy(expected.centers))
    assert found.inertias == expected.inertias
    assert bool((before == X).all()) == (dtype == np.float32)  # which is converted to a copy


def test_clusters_too_many_for_a_sample_do_not_change_those_that_are_searched_in_it(
    bk, monkeypatch
):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 30)
    monkeypatch.setattr(module, "SAMPLE_CLUSTERS", 4)
    X, ks = bk.asarray(NOISE), [2, 4, 5, 9]
    assert NOISE.shape[0] > module.MANY * 30
    together = kmeans_batch(X, ks, seeds=ks, n_init=3)
    apart = [one for k in ks for one in kmeans_batch(X, [k], seeds=[k], n_init=3)]
    for found, alone in zip(together, apart, strict=True):
        np.testing.assert_array_equal(bk.to_numpy(found.labels), bk.to_numpy(alone.labels))
        assert found.inertia == pytest.approx(alone.inertia, rel=1e-12)


def test_a_batch_does_not_depend_on_chunks_that_hold_one_k_only(monkeypatch):
    seeds, ks = [0, 1, 2], [2, 3, 8]
    for part in (centers, lloyd):
        monkeypatch.setattr(part, "CHUNK_BYTES", 8 * 50 * 7)
    together = kmeans_batch(NOISE, ks, seeds=seeds)
    for k, seed, found in zip(ks, seeds, together, strict=True):
        (alone,) = kmeans_batch(NOISE, [k], seeds=[seed])
        assert found.inertias == pytest.approx(alone.inertias, rel=1e-12)


def test_a_batch_warns_of_nothing_and_numbers_the_clusters_it_found(bk):
    X = bk.asarray(np.repeat(np.arange(4.0), 5)[:, None])  # four distinct rows
    found = kmeans_batch(X, [3, 4, 5, 8], seeds=range(4))  # a warning would be an error
    assert [one.centers.shape[0] for one in found] == [3, 4, 4, 4]
    for one in found:
        labels = bk.to_numpy(one.labels)
        assert np.unique(labels).tolist() == list(range(one.centers.shape[0]))


def test_what_is_left_of_clusters_is_numbered_anew_if_one_clustering_alone_has_gaps(bk):
    labels, used = np.array([[0, 1, 1], [0, 2, 2]], np.int32), np.array([[1, 1, 0], [1, 0, 1]]) > 0
    others = np.ones(2), np.ones(2, int), np.ones(2, bool)
    centers = bk.asarray([[[1.0], [2.0], [0.0]], [[1.0], [0.0], [2.0]]])
    given = rounds.BestRuns(np.array([2, 3]), bk.asarray(labels), centers, used, *others)
    points = module.kmeans_points(bk, bk.asarray([[1.0], [2.0], [2.0]]))
    for one in module._kmeans_results(points, given, [[1.0], [1.0]], bk.asarray([5.0]), 2.0):
        np.testing.assert_array_equal(bk.to_numpy(one.labels), [0, 1, 1])
        np.testing.assert_array_equal(bk.to_numpy(one.centers), [[7], [9]])
        assert (one.inertia, one.inertias) == (4, [4])


def test_an_inertia_that_is_only_met_is_not_beaten(bk):
    points = module.kmeans_points(bk, bk.asarray(NOISE - NOISE.mean(axis=0)))
    for seed in range(20):  # in some of them, the inertia of the last iteration is rounded down
        init = bk.asarray(starts(6, 1, seed, NOISE - NOISE.mean(axis=0)))
        met = rounds.lloyd_runs(points, init.copy(), np.array([6]), 300)[0].inertia
        for goal, n_found in ((met, 0), (met * (1 + 1e-9), 1)):
            given = init.copy(), np.array([6]), 300, goal.copy(), np.inf
            assert rounds.lloyd_runs(points, *given)[0].sizes.size == n_found


def test_results_repeat_bit_by_bit(bk):
    first, again = (kmeans_batch(bk.asarray(NOISE), [2, 5, 7], seeds=range(3)) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(bk.to_numpy(one.labels), bk.to_numpy(other.labels))
        np.testing.assert_array_equal(bk.to_numpy(one.centers), bk.to_numpy(other.centers))
        assert one[2:] == other[2:]


# -- a sample of many rows -------------------------------------------------------------------------


def separated(n_rows, seed=0):
    """Return seven clusters far apart, of falling size, the last of three rows, and the optimum."""
    shares = np.array([0.4, 0.25, 0.15, 0.1, 0.07, 0.03])
    sizes = [*(n_rows * shares).astype(int), 3]
    X, y = make_blobs(sizes, centers=50.0 * np.eye(7), random_state=seed)
    return X, y, sum(((X[y == c] - X[y == c].mean(axis=0)) ** 2).sum() for c in range(7))


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_leads_to_the_optimum_even_where_it_lacks_a_cluster(bk, monkeypatch, seed):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 112)
    X, y, optimum = separated(2000)
    found = run(bk, X, 7, random_state=seed)
    assert found.inertia == pytest.approx(optimum)
    assert found.converged
    assert len(set(zip(found.labels.tolist(), y.tolist(), strict=True))) == 7


def test_of_many_rows_a_sample_is_searched(bk, monkeypatch):
    searched = []

    def spy(points, *rest):
        searched.append(points.X.shape[0])
        return starting_centers(points, *rest)

    starting_centers = module.starting_centers
    monkeypatch.setattr(module, "starting_centers", spy)
    monkeypatch.setattr(module, "SAMPLE_ROWS", 10)
    monkeypatch.setattr(module, "SAMPLE_CLUSTERS", 4)
    for rows, k, n_init in [(41, 3, 2), (40, 3, 2), (41, 3, 1), (41, 5, 2), (41, 4, 2)]:
        run(bk, NOISE[:rows], k, n_init=n_init, random_state=0)
    assert searched == [10, 40, 41, 41, 10]


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_a_sample_is_searched_as_all_rows_are_and_for_longer(bk, seed):
    points = kmeans_points(bk, bk.asarray(NOISE - NOISE.mean(axis=0)))
    seeds = {"seeds": [seed, seed + 9], "sample_seed": seed}
    rngs = [np.random.RandomState(own) for own in seeds["seeds"]]
    given = points, [5, 9], 4, rngs, np.random.RandomState(seed), 300
    starts, sizes = module._kmeans_candidates(*given)
    assert set(sizes.tolist()) == {5, 9}
    assert sizes.tolist() == sorted(sizes)
    for k, search in zip([5, 9], kmeans_batch(points.X, [5, 9], n_init=4, **seeds), strict=True):
        own = bk.to_numpy(starts)[sizes == k, :k]
        found = [nearest(bk.to_numpy(points.X), centers)[1].sum() for centers in own]
        assert found[0] <= search.inertia * (1 + 1e-9)
        assert 1 < len(found) <= 6
        assert (np.diff(found) > 1e-4 * found[0]).all()
        assert (search.inertia < min(search.inertias[:4])) or k == 5  # swaps were of use


def test_after_a_sample_half_as_many_starts_come_from_all_rows(bk, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 100)
    starts, plus_plus = [], module.kmeans_plus_plus
    monkeypatch.setattr(
        module, "kmeans_plus_plus", lambda *a: starts.append(plus_plus(*a)) or starts[-1]
    )
    for n_init in (2, 7, 10):
        run(bk, separated(2000)[0], 6, n_init=n_init, random_state=0)
    assert [sizes.tolist() for _, sizes in starts] == [[6], [6] * 4, [6] * 5]


def test_a_sample_with_fewer_distinct_rows_than_clusters_will_do(bk, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 80)
    X = np.concatenate([np.zeros((2000, 2)), 10.0 * np.eye(2), -10.0 * np.eye(2)])
    found = run(bk, X, 5, random_state=0)
    assert found.inertia == 0
    assert len(np.unique(found.labels)) == 5


def test_every_number_of_clusters_sees_the_same_sample(bk, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 60)
    X, ks = bk.asarray(NOISE), [2, 3, 65]  # the last is too many for a sample
    for found, k in zip(kmeans_batch(X, ks, seeds=ks, sample_seed=3), ks, strict=True):
        (alone,) = kmeans_batch(X, [k], seeds=[k], sample_seed=3)
        np.testing.assert_array_equal(bk.to_numpy(found.labels), bk.to_numpy(alone.labels))
        assert found.inertia == pytest.approx(alone.inertia, rel=1e-12)


# -- margins ---------------------------------------------------------------------------------------


KINDS = {
    "noise": NOISE,
    "integers": np.random.default_rng(1).integers(4, size=(200, 2)).astype(float),  # many ties
    "an outlier": np.concatenate([NOISE, [[1e7, 0, 0]]]),
    "tiny": NOISE * 1e-150,
    "large": NOISE * 1e140,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [[1, 1], [2, 2, 3], [4, 9, 9]])
def test_margins_never_hide_a_change(bk, monkeypatch, kind, sizes):
    monkeypatch.setattr(lloyd, "MARGIN_ROWS", 0)
    rng, sizes = np.random.default_rng(0), np.array(sizes)
    X = KINDS[kind]
    centers = starts(sizes.max(), sizes.size, X=X)
    X, sq_norms = bk.asarray(X), bk.asarray((X * X).sum(axis=1))
    columns, last = bk.xp.asarray(X, order=bk.center_order), None
    for i in range(12):
        given = columns, sq_norms, bk.asarray(centers), sizes
        before, (labels, state, means, counts, sums, last, _) = last, bk.assign(X, *given, last)
        inertia, changed, n_filled = bk.to_numpy(state)
        expected, sq = bk.nearest_center(*given)
        np.testing.assert_array_equal(bk.to_numpy(labels), bk.to_numpy(expected))
        scale = float(sq_norms.sum())
        np.testing.assert_allclose(inertia, bk.to_numpy(sq.sum(axis=1)), 1e-9, 1e-13 * scale)
        if before is not None:
            differ = (labels != before.labels).any(axis=1)
            np.testing.assert_array_equal(changed > 0, bk.to_numpy(differ))
        np.testing.assert_array_equal(n_filled, bk.to_numpy((counts > 0).sum(axis=1)))
        expected = sums / bk.xp.maximum(counts, 1)[:, :, None]
        expected = bk.xp.where(counts[:, :, None] > 0, expected, given[2])
        np.testing.assert_allclose(*map(bk.to_numpy, (means, expected)), 1e-15)
        fresh = bk.segment_sum(X, labels, int(sizes.max()))
        np.testing.assert_array_equal(bk.to_numpy(counts), bk.to_numpy(fresh[0]))
        atol = 1e-13 * float(abs(X).sum())
        np.testing.assert_allclose(bk.to_numpy(sums), bk.to_numpy(fresh[1]), 1e-9, atol)
        step = rng.normal(size=centers.shape) * float(X.std()) * 10.0 ** rng.integers(-9, 0)
        centers = centers + step * (rng.random(centers.shape[:2]) < 0.5)[:, :, None]
        if i == 6:
            last = None


def test_a_row_that_was_given_to_another_cluster_is_looked_at_again(monkeypatch):
    monkeypatch.setattr(lloyd, "MARGIN_ROWS", 0)
    X, centers = np.array([[0.0], [1], [10], [11]]), np.array([[[0.5], [10.5]]])
    given = X, X, X[:, 0] ** 2, centers, np.array([2])
    labels, _, _, counts, sums, last, _ = lloyd.assign(*given, None)
    labels[0, 1], counts[0], sums[0, :, 0] = 1, [1, 3], [0, 22]
    last.relabelled(0, 1)
    labels, state, _, counts, sums, *_ = lloyd.assign(*given, last.of(np.array([0])))
    assert labels.tolist() == [[0, 0, 1, 1]]
    assert (state[0].tolist(), counts.tolist()) == ([1], [[2, 2]])
    assert sums.tolist() == [[[1], [21]]]


@pytest.mark.parametrize("kind", ["noise", "integers", "an outlier"])
@pytest.mark.parametrize("k", [1, 2, 7, 20])
def test_margins_do_not_matter(monkeypatch, kind, k):
    X = KINDS[kind]
    settings = {"init": starts(min(k, 16), 3, X=np.unique(X, axis=0)), "n_init": 0}
    without = kmeans(X, min(k, 16), **settings)
    monkeypatch.setattr(lloyd, "MARGIN_ROWS", 0)
    found = kmeans(X, min(k, 16), **settings)
    np.testing.assert_array_equal(found.labels, without.labels)
    np.testing.assert_allclose(found.centers, without.centers, rtol=1e-12, atol=1e-12)
    assert (found.n_iter, found.converged) == (without.n_iter, True)
    np.testing.assert_allclose(found.inertias, without.inertias, rtol=1e-9)


def test_with_margins_a_run_does_not_see_the_others_of_its_batch(monkeypatch):
    monkeypatch.setattr(lloyd, "MARGIN_ROWS", 0)
    ks = [2, 5, 9]
    for k, found in zip(ks, kmeans_batch(NOISE, ks, seeds=ks), strict=True):
        (alone,) = kmeans_batch(NOISE, [k], seeds=[k])
        np.testing.assert_array_equal(found.labels, alone.labels)
        np.testing.assert_array_equal(found.centers, alone.centers)
        assert found.inertia == pytest.approx(alone.inertia, rel=1e-12)
        assert found.inertias == pytest.approx(alone.inertias, rel=1e-12)


# -- invariance -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [2.0**-1000, 2.0**-600, 2.0**400])
def test_the_unit_does_not_matter(bk, unit):
    found, other = (run(bk, X, 4, random_state=0) for X in (NOISE, NOISE * unit))
    np.testing.assert_array_equal(other.labels, found.labels)
    np.testing.assert_allclose(other.centers / unit, found.centers, rtol=1e-12)
    assert other.inertia == pytest.approx(found.inertia * unit**2, rel=1e-9)
    init = starts(4, 2)
    found = run(bk, NOISE, 4, init=init, n_init=0)
    other = run(bk, NOISE * unit, 4, init=init * unit, n_init=0)
    np.testing.assert_array_equal(other.labels, found.labels)


def test_order_of_rows_does_not_matter(bk):
    order = np.random.default_rng(1).permutation(len(NOISE))
    init = starts(4, 2)
    found = run(bk, NOISE, 4, init=init, n_init=0)
    permuted = run(bk, NOISE[order], 4, init=init, n_init=0)
    np.testing.assert_array_equal(permuted.labels, found.labels[order])


@pytest.mark.parametrize("shift", [1e8, -3e7, (1e9, 0, 1e5)])
def test_a_common_shift_does_not_matter(bk, shift):
    init = starts(4, 3)
    found = run(bk, NOISE, 4, init=init, n_init=0)
    shifted = run(bk, NOISE + shift, 4, init=init + shift, n_init=0)
    np.testing.assert_array_equal(shifted.labels, found.labels)
    assert shifted.inertia == pytest.approx(found.inertia, rel=1e-5)
    np.testing.assert_allclose(shifted.centers - shift, found.centers, atol=1e-5)


def test_same_seed_same_answer_and_random_state_is_used(bk):
    first, again = (run(bk, NOISE, 5, n_init=2, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(first.labels, again.labels)
    assert first.inertias == again.inertias
    rng = np.random.RandomState(3)
    assert run(bk, NOISE, 5, n_init=2, random_state=rng).inertias == first.inertias
    assert run(bk, NOISE, 5, n_init=2, random_state=rng).inertias != first.inertias


def test_integers_far_from_zero_stay_exact(bk):
    for far in (0, 3 * 2.0**20 + 1, 2.0**45 + 7):
        found = run(bk, SQUARE + [far, -far], 2, random_state=0)
        assert found.inertia == 4
        np.testing.assert_array_equal(np.sort(found.centers[:, 0]) - far, [0, 10])
        np.testing.assert_array_equal(found.centers[:, 1] + far, [1, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_dtype_does_not_matter(bk, dtype):
    X = np.random.default_rng(0).integers(0, 200, size=(80, 3))
    found = run(bk, X.astype(dtype), 4, random_state=0)
    same = run(bk, X.astype(np.float64), 4, random_state=0)
    np.testing.assert_array_equal(found.labels, same.labels)
    assert found.inertia == same.inertia


def test_input_is_not_changed(bk):
    X, init = bk.asarray(NOISE.copy()), bk.asarray(starts(4, 2))
    before = bk.to_numpy(X).copy(), bk.to_numpy(init).copy()
    kmeans(X, 4, init=init, random_state=0)
    np.testing.assert_array_equal(bk.to_numpy(X), before[0])
    np.testing.assert_array_equal(bk.to_numpy(init), before[1])


def test_chunks_of_rows_do_not_matter(monkeypatch):
    whole = kmeans(NOISE, 5, random_state=0)
    for part in (centers, lloyd):
        monkeypatch.setattr(part, "CHUNK_BYTES", 8 * 50 * 7)
    found = kmeans(NOISE, 5, random_state=0)
    np.testing.assert_array_equal(found.labels, whole.labels)
    np.testing.assert_allclose(found.inertias, whole.inertias, rtol=1e-12)


def test_backends_draw_and_find_the_same(bk):
    found, host = run(bk, NOISE, 6, random_state=0), run(cpu, NOISE, 6, random_state=0)
    np.testing.assert_array_equal(found.labels, host.labels)
    np.testing.assert_allclose(found.inertias, host.inertias, rtol=1e-9)


# -- C33: too few distinct rows, empty clusters, endless loops ------------------------------------


@pytest.mark.parametrize(
    ("X", "k", "distinct"),
    [
        ([[0.0, 0], [1, 0], [0, 1], [5, 5], [5, 6], [5, 6]], 6, 5),
        (np.repeat(np.random.default_rng(0).normal(size=(9, 2)), 2, axis=0), 10, 9),
        (np.ones((5, 2)), 3, 1),
        (np.full((4, 1), 0.1), 4, 1),
    ],
    ids=["6 rows, 5 distinct", "9 rows twice", "all equal", "all equal and inexact"],
)
def test_fewer_distinct_rows_than_clusters_warns_and_ends(bk, X, k, distinct):
    with pytest.warns(ConvergenceWarning, match=f"found {distinct} clusters where n_clusters={k}"):
        found = run(bk, X, k, random_state=0)
    assert found.converged
    assert found.centers.shape[0] == distinct
    np.testing.assert_array_equal(np.unique(found.labels), np.arange(distinct))
    np.testing.assert_array_equal(nearest(np.asarray(X), found.centers)[0], found.labels)
    assert found.inertia == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize(
    "init",
    [
        [[1e6, 1e6], [2e6, 1e6], [3e6, 1e6]],
        [[-50, 0], [-50, 0], [-50, 0]],
        [[5, 5], [1e9, 0], [1e9, 1e9]],
    ],
    ids=["far outside", "thrice the same", "two empty"],
)
def test_starts_outside_the_data_still_give_k_clusters(bk, init):
    X, _ = make_blobs(60, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
    found = run(bk, X, 3, init=[init], n_init=0)
    assert found.converged
    labels, sq = nearest(X, found.centers)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(np.unique(labels), [0, 1, 2])
    assert found.inertia == pytest.approx(sq.sum())


def test_a_cluster_robbed_of_its_only_row_is_filled_again(bk):
    found = run(bk, [[0.0], [1], [100]], 3, init=[[[0.5], [150], [1e9]]], n_init=0)
    assert sorted(found.labels) == [0, 1, 2]
    assert found.inertia == 0


@pytest.mark.parametrize("rest", [50, 0])
def test_labels_that_are_not_those_of_their_centres_are_iterated_on(bk, rest):
    points, labels = kmeans_points(bk, bk.asarray(NOISE)), np.arange(150) % 4
    means = np.stack([NOISE[labels == c].mean(axis=0) for c in range(4)])[None]
    wrong = rounds.BestRuns(
        np.array([4]),
        bk.asarray(labels[None], dtype=np.int32),
        bk.asarray(means),
        used=np.zeros((1, 0), dtype=bool),
        inertia=np.array([1.0]),
        n_iter=np.array([5]),
        converged=np.array([True]),
    )
    place = np.array([0])
    found = rounds._settle_runs(points, wrong, place, place, 5 + rest, again=True)
    assert found.converged.tolist() == [rest > 0]
    if not rest:
        assert found.n_iter.tolist() == [5]
        return
    expected = rounds.lloyd_runs(points, bk.asarray(means), np.array([4]), rest)[0]
    assert found.n_iter.tolist() == [5 + int(expected.n_iter[0])]
    np.testing.assert_array_equal(*map(bk.to_numpy, (found.labels, expected.labels)))
    np.testing.assert_array_equal(*map(bk.to_numpy, (found.centers, expected.centers)))
    np.testing.assert_array_equal(found.inertia, expected.inertia)


def test_runs_that_beat_no_goal_leave_no_clustering(bk):
    points, centers = kmeans_points(bk, bk.asarray(NOISE)), NOISE[None, :4]
    found, _ = rounds.lloyd_runs(points, bk.asarray(centers), np.array([4]), 50, np.zeros(1))
    assert [len(x) for x in found] == [0] * len(found)


def test_a_run_is_given_up_if_it_is_behind_by_more_than_its_last_gains():
    inertia, group = np.array([10.0, 16.0, 16.5, 3.0, 3.0]), np.array([0, 0, 0, 1, 1])
    best, gain = np.array([np.inf, 2.0]), np.array([-9.0, 2.0, 2.0, 0.1, 1.0])
    behind = rounds._are_runs_far_behind(inertia, group, best, 3.0, gain)
    assert behind.tolist() == [False, False, True, True, False]
    assert not rounds._are_runs_far_behind(inertia, group, best, np.inf, gain).any()
    best, gain = np.array([100.0]), np.ones(2)  # to be beaten by a hundred-thousandth of it
    behind = rounds._are_runs_far_behind(np.array([103.0, 102.998]), group[:2], best, 3.0, gain)
    assert behind.tolist() == [True, False]


def test_inertias_of_runs_given_up_are_at_least_the_best():
    inertias, group = np.array([5.0, 7.0, 1.5, 1.0, 4.0, 8.0]), np.array([0, 0, 1, 1, 2, 2])
    best, goals = np.array([4.0, 2.0, 6.0]), np.array([np.inf, 2.5, 6.0])
    found = rounds.final_inertias_of_runs(inertias, group, best, goals)
    assert found == [[4, 7], [2, 2], [6, 8]]


def lloyd_by_hand(X, centers, max_iter):
    """Return labels, centres, inertia, iterations, and whether no label changed in the last."""
    i, (labels, sq), converged = 1, nearest(X, centers), False
    while i < max_iter and not converged:
        centers = np.stack([X[labels == c].mean(axis=0) for c in range(len(centers))])
        before, (labels, sq) = labels, nearest(X, centers)
        i, converged = i + 1, (labels == before).all()
    return labels, centers, sq.sum(), i, converged


def test_every_run_of_a_batch_goes_as_far_as_its_limit(bk):
    X, sizes, limits = (
        NOISE - NOISE.mean(axis=0),
        np.arange(2, 9),
        np.array([1, 2, 3, 60, 4, 5, 90]),
    )
    init = starts(8, 7, X=X)
    left = [[] for _ in sizes]
    given = kmeans_points(bk, bk.asarray(X)), bk.asarray(init), sizes, limits
    best, inertias = rounds.lloyd_runs(*given, give_up=np.inf, left=left)
    assert best.sizes.tolist() == sizes.tolist()
    for p, (k, limit) in enumerate(zip(sizes.tolist(), limits.tolist(), strict=True)):
        labels, own, inertia, n_iter, converged = lloyd_by_hand(X, init[p, :k], limit)
        np.testing.assert_array_equal(bk.to_numpy(best.labels[p]), labels)
        np.testing.assert_allclose(bk.to_numpy(best.centers[p, :k]), own, atol=1e-12)
        assert best.used[p].tolist() == [True] * k + [False] * (8 - k)
        assert best.inertia[p] == pytest.approx(inertia, rel=1e-12)
        assert (best.n_iter[p], best.converged[p]) == (n_iter, converged)
        assert inertias[p] == [best.inertia[p]]
        ((its, centers, run),) = left[p]
        assert its == pytest.approx(inertia, rel=1e-12)
        np.testing.assert_allclose(bk.to_numpy(centers[run, :k]), own, atol=1e-12)


@pytest.mark.parametrize("converged", [True, False])
def test_the_best_runs_are_computed_from_their_definitions(bk, converged):
    points = kmeans_points(bk, bk.asarray([[0.0, 7], [1, 7], [10, 7]]))
    given = bk.asarray([[[9.0, 7], [77, 7], [5, 7]]])
    labels = bk.asarray([[0, 0, 2]], dtype=np.int32)
    none, one = np.zeros((1, 0), dtype=bool), np.ones(1)
    found = rounds.BestRuns(np.array([3]), labels, given, none, one, np.array([5]), one < 0)
    found = found._replace(converged=np.array([converged]))
    place = np.array([0])
    found = rounds._settle_runs(points, found, place, place, 9, again=True)
    # means, or the centre of a cluster without rows; or all as they are, and the rows as they lie
    centers, labels, inertia = ([0.5, 77, 10], [0, 0, 2], 0.5)
    if not converged:
        centers, labels, inertia = ([9, 77, 5], [2, 2, 0], 25 + 16 + 1)
    assert bk.to_numpy(found.centers)[0, :, 0].tolist() == centers
    assert bk.to_numpy(found.labels).tolist() == [labels]
    assert found.inertia.tolist() == [inertia]
    assert found.used.tolist() == [[True, False, True]]
    assert (found.n_iter.tolist(), found.converged.tolist()) == ([5], [converged])


def refilled(X, labels, centers):
    """Give clusters without rows, one after another, the rows that are farthest from theirs."""
    labels, k = labels.copy(), len(centers)
    sq = ((X - centers[labels]) ** 2).sum(axis=1)
    empty = [c for c in range(k) if not (labels == c).any()]
    for row in np.argsort(-sq, kind="stable"):
        if not empty or sq[row] <= 1e-13 * (X[row] ** 2).sum():
            break
        donor, labels[row] = labels[row], empty.pop(0)
        empty += [] if (labels == donor).any() else [donor]
    own = [X[labels == c] for c in range(k)]
    means = [rows.mean(axis=0) if len(rows) else centers[c] for c, rows in enumerate(own)]
    return labels, np.stack(means)


@pytest.mark.parametrize("margins", [False, True])
@pytest.mark.parametrize("rows", [8, 40])
def test_clusters_without_rows_are_given_the_farthest(bk, monkeypatch, rows, margins):
    monkeypatch.setattr(lloyd, "MARGIN_ROWS", 0 if margins else 2**13)
    X, sizes = NOISE[:rows] - NOISE[:rows].mean(axis=0), np.array([3, 4, 5, 7, 8])
    centers = 40.0 + np.random.default_rng(5).normal(size=(5, 8, 3))
    centers[:, 0] = X[0] + 0.1
    centers[1:, 2] = X[2] - 0.2
    centers[4, 7] = X[1] + 30  # of one row at most
    if rows == 8:  # most of them on a centre: clusters stay empty
        X[4:] = centers[:, 0] = X[3]
    points, runs = kmeans_points(bk, bk.asarray(X)), np.array([0, 2, 3, 4])
    now = rounds._AssignmentOfRuns(*bk.assign(*points[1:4], bk.asarray(centers), sizes, None))
    before = bk.to_numpy(now.labels).copy(), bk.to_numpy(now.means).copy()
    rounds._refill_empty_clusters_of_runs(points, now, bk.asarray(centers), runs, sizes[runs])
    labels, means, counts, sums = map(bk.to_numpy, (now.labels, now.means, now.counts, now.sums))
    np.testing.assert_array_equal(labels[1], before[0][1])
    np.testing.assert_array_equal(means[1], before[1][1])
    for r in runs.tolist():
        k = sizes[r]
        expected, own = refilled(X, nearest(X, centers[r, :k])[0], centers[r, :k])
        np.testing.assert_array_equal(labels[r], expected)
        np.testing.assert_allclose(means[r, :k], own, rtol=1e-12, atol=1e-12)
        assert counts[r].tolist() == np.bincount(expected, minlength=8).tolist()
        totals = [X[expected == c].sum(axis=0) for c in range(k)]
        np.testing.assert_allclose(sums[r, :k], totals, atol=1e-12)


def test_max_iter_warns_and_leaves_consistent_labels(bk):
    with pytest.warns(ConvergenceWarning, match="n_clusters=5 stopped at max_iter=2"):
        found = run(bk, NOISE, 5, n_init=1, max_iter=2, random_state=0)
    assert not found.converged
    assert found.n_iter == 2
    labels, sq = nearest(NOISE, found.centers)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.inertia == pytest.approx(sq.sum())


def test_more_distinct_rows_than_clusters_found_is_blamed_on_max_iter(bk):
    with pytest.warns(ConvergenceWarning) as caught:
        run(bk, NOISE, 2, init=np.full((1, 2, 3), 1e6), n_init=0, max_iter=1)
    assert any("max_iter=1" in str(warning.message) for warning in caught)
    assert not any("too few distinct rows" in str(warning.message) for warning in caught)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 0}, r"n_clusters must lie between 1 and the number of rows \(4\), got 0"),
        ({"n_clusters": 5}, r"n_clusters must lie between 1 and the number of rows \(4\), got 5"),
        ({"n_clusters": 2, "n_init": 0}, "n_init must be at least 1, got 0"),
        ({"n_clusters": 2, "n_init": -1}, "n_init must be at least 1, got -1"),
        ({"n_clusters": 2, "max_iter": 0}, "max_iter must be at least 1, got 0"),
        (
            {"n_clusters": 2, "init": np.zeros((1, 3, 2))},
            r"init must have shape \(r, 2, 2\), got \(1, 3, 2\)",
        ),
        ({"n_clusters": 2, "init": np.zeros((2, 2))}, r"init must have shape .* got \(2, 2\)"),
    ],
)
def test_arguments_out_of_range_are_named(bk, settings, message):
    with pytest.raises(ValueError, match=message):
        kmeans(bk.asarray(SQUARE), **settings)


@pytest.mark.parametrize("kind", ["near", "tiny", "flat"])
def test_rows_are_moved_near_the_origin_and_none_is_rounded_to_nothing(bk, kind):
    X = np.random.default_rng(0).integers(0, 97, size=(50, 3)) * np.array([1.0, 0.25, 0.0])
    X += {"near": [1e9, 7e4, -6.0], "tiny": 0.0, "flat": [0.0, 3.0, 9.25]}[kind]
    X *= {"near": 1, "tiny": 2.0**-400, "flat": 1}[kind]
    init = X[None, :2] + 1.0
    given = bk.asarray(X), bk.asarray(init)
    found, start, shift, unit = module._centred_for_kmeans(bk, *given)
    found, start, shift = bk.to_numpy(found), bk.to_numpy(start), bk.to_numpy(shift)
    np.testing.assert_array_equal(found * unit + shift, X)  # to the bit
    np.testing.assert_allclose(start * unit + shift, init, rtol=1e-12)
    spread = np.ptp(X, axis=0)
    near = np.where(spread > 0, spread, 1) / unit
    assert (abs(found.mean(axis=0)) <= near / 2).all()
    if kind == "tiny":
        assert 0.5 <= np.ptp(found, axis=0).max() < 1
        return
    assert unit == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200, 1e150])
def test_rows_that_are_not_finite_are_refused(bk, value):
    X = SQUARE.copy()
    X[3, 1] = value
    with pytest.raises(ValueError, match="X must be finite"):
        kmeans(bk.asarray(X), 2)


@pytest.mark.parametrize("seed", range(12))
def test_copies_of_rows_end_the_search_at_once(bk, seed):
    X = np.repeat(np.random.default_rng(seed).normal(size=(9, 2)), 2, axis=0)
    with pytest.warns(ConvergenceWarning, match="too few distinct rows"):
        found = kmeans(bk.asarray(X), 10, random_state=seed)
    assert found.converged
    assert found.n_iter < 20
    assert np.unique(bk.to_numpy(found.labels)).tolist() == list(range(9))


@pytest.mark.parametrize("X", [np.ones(5), np.ones((5, 0))])
def test_kmeans_names_the_shape(X):
    with pytest.raises(ValueError, match="X must have rows and columns"):
        kmeans(X, 1)


def test_kmeans_takes_starts_as_lists_and_refuses_what_is_not_finite():
    X = np.array([[0.0], [1.0], [10.0]])
    assert kmeans(X, 2, n_init=0, init=[[[0.0], [10.0]]]).inertia == 0.5
    with pytest.raises(ValueError, match="init must be finite"):
        kmeans(X, 2, init=[[[0.0], [np.nan]]])


def test_an_outlier_does_not_keep_empty_clusters_from_being_filled(bk):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2)) + 10.0 * rng.integers(4, size=(500, 1))
    X = np.concatenate([X, [[1e10, 1e10]]])
    init = np.concatenate([X[-1:], X[:1], np.full((3, 2), 5e10)])[None]
    assert np.unique(run(bk, X, 5, init=init, n_init=0).labels).size == 5


@pytest.mark.parametrize("name", ["n_clusters", "n_init", "max_iter"])
def test_numbers_that_are_no_integers(bk, name):
    given = {"n_clusters": 2, name: 2.5}
    with pytest.raises(TypeError, match=f"{name} must be an integer, got 2.5"):
        kmeans(bk.asarray(NOISE), **given)


def test_what_is_not_real_or_too_far(bk):
    with pytest.raises(ValueError, match="X must hold real numbers, got complex128"):
        kmeans(bk.asarray(NOISE + 1j), 2)
    with pytest.raises(ValueError, match=r"init must be finite and below 1e\+150"):
        kmeans(bk.asarray(NOISE), 2, init=np.full((1, 2, 3), 1e151), n_init=0)


@pytest.mark.parametrize("ks", [[], [2, 2], [3, 2]])
def test_numbers_of_clusters_must_rise(bk, ks):
    with pytest.raises(ValueError, match="ks must be ascending numbers of clusters, got"):
        kmeans_batch(bk.asarray(NOISE), ks, seeds=ks)


# -- rows that are the same up to rounding, and rows that are far and few --------------------------


@pytest.mark.parametrize("noise", [1e-8, 1e-10, 1e-15])
@pytest.mark.filterwarnings("ignore:k-means found:sklearn.exceptions.ConvergenceWarning")
def test_near_copies_do_not_go_on_for_ever(bk, noise):
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(4, 3)), 30, axis=0)
    X *= 1 + noise * rng.normal(size=X.shape)
    for k, max_iter in ((5, 6000), (8, 300)):
        found = run(bk, X, k, n_init=3, max_iter=max_iter, random_state=0)
        assert found.converged
        assert found.n_iter < 30
        assert found.inertia <= 120 * (1e-7 + 3 * noise) ** 2


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_does_not_hide_what_is_rare_and_far(bk, monkeypatch, seed):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 500)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6000, 3))
    X[rng.choice(6000, 30, replace=False)] += 200 * np.repeat(rng.normal(size=(10, 3)), 3, axis=0)
    expected = KMeans(10, n_init=10, random_state=0).fit(X).inertia_
    assert run(bk, X, 10, random_state=seed).inertia <= 1.06 * expected


def test_every_number_of_clusters_has_a_seed():
    with pytest.raises(ValueError, match="seeds must have one entry for each of 2 .* got 3"):
        kmeans_batch(NOISE, [2, 3], seeds=[0, 1, 2])
    with pytest.raises(ValueError, match="n_clusters must lie between 1"):
        kmeans_batch(NOISE, [0, 3], seeds=[0, 1])


# -- what the device is asked ----------------------------------------------------------------------


COPIES = np.repeat(np.random.default_rng(2).normal(size=(30, 4)), 20, axis=0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("X", "ks"),
    [
        (NOISE, range(1, 12)),
        (KINDS["integers"], [2, 5, 9, 14, 15]),  # empty clusters are filled, or cannot be
        (COPIES, [2, 9, 20, 29, 30, 31, 35]),
    ],
)
def test_the_host_waits_at_most_twice_an_iteration(waits, X, ks):
    X = get_backend("cuda").asarray(X)
    kmeans_batch(X, list(ks), seeds=list(ks))  # compiles
    with waits() as count:
        kmeans_batch(X, list(ks), seeds=list(ks))
    iterations = count.launches["finish_step"]  # one for each `assign`, of all runs together
    assert 0 < iterations <= count.launches["nearest_center"]
    assert count.waits <= 2 * iterations


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:k-means found 30 clusters")
@pytest.mark.parametrize(("X", "k"), [(NOISE, 9), (COPIES, 29), (COPIES, 35)])
def test_given_starts_wait_once_an_iteration_and_filling_and_twice_more(waits, monkeypatch, X, k):
    bk, refill, fillings = get_backend("cuda"), rounds._refill_empty_clusters_of_runs, []
    monkeypatch.setattr(
        rounds, "_refill_empty_clusters_of_runs", lambda *all_own: fillings.append(refill(*all_own))
    )
    init = bk.asarray(np.random.default_rng(0).normal(scale=30.0, size=(40, k, X.shape[1])))
    with waits() as count:
        kmeans(bk.asarray(X), k, init=init, n_init=0)
    iterations = count.launches["finish_step"]
    assert 0 < len(fillings) < iterations
    assert count.waits <= iterations + len(fillings) + 2, str(count)  # checks, and the result


@pytest.mark.gpu
def test_waits_do_not_grow_with_runs_and_numbers_of_clusters(waits):
    bk = get_backend("cuda")
    X, found = bk.asarray(NOISE), []
    for ks in ([4], list(range(2, 30))):
        with waits() as count:
            kmeans_batch(X, ks, seeds=ks, n_init=1, max_iter=4)
        found.append(count.waits)
    assert found[1] <= found[0] + 4
