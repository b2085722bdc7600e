"""The sweep over k and the decision: the paper's tables, limits, reasons in words."""

import importlib
import math
import pickle
import time
import warnings

import numpy as np
import pytest
from oracles import readonly
from sklearn.cluster import AgglomerativeClustering
from sklearn.exceptions import ConvergenceWarning

from specialk_gpu import (
    LimitWarning,
    PowerWarning,
    TimeLimitWarning,
    attainable_log_p,
    decide,
    kmeans,
    sweep,
    zz_top,
)
from specialk_gpu._result import TIME_IS_UP, Candidate, SelectionPath
from specialk_gpu._time_limit import OutOfTime, TimeLimit
from specialk_gpu.lloyd.kmeans import kmeans_batch
from specialk_gpu.selection.sweep import _sweep_until_time_is_up, labels_by_size

# The p columns of [HD19, Tables 2 to 5] for k = 2, 3, ..., and the k of its Table 1.
PAPER = {
    "MNIST W_C": ([1e-6, 1e-4, 0.019, 0.011, 0.004, 1, 1, 1, 1, 1], 3),
    "MNIST W_R": ([1e-23, *[1.0] * 9], 2),
    "Pulsar W_C": ([1e-11, *[1.0] * 8], 2),
    "Pulsar W_R": ([1e-11, *[1.0] * 8], 2),
    "Sloan W_C": ([0.004, *[1.0] * 8], 2),
    "Sloan W_R": ([1e-40, 1e-14, 1e-14, *[1.0] * 6], 4),
    "HMNIST W_C": ([1e-28, 1e-17, 1e-8, 0.307, *[1.0] * 6], 4),
}
HMNIST_W_R = [1e-34, 0.262, 0.060, *[1.0] * 7]


def blobs(k, m=60, n=100, seed=0):
    """Rows of positive columns, those of cluster c raised where column mod k is c."""
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.permutation(m) % k)
    D = 0.05 * np.abs(rng.normal(size=(m, n)))
    return D + (labels[:, None] == np.arange(n) % k), labels


def run(bk, D, **settings):
    """Sweep on the backend with few restarts; return the result with labels on the host."""
    found = sweep(readonly(bk, D), **{"n_init": 3, "random_state": 0, **settings})
    assert isinstance(found.labels, bk.xp.ndarray)
    assert isinstance(found.path, SelectionPath)
    path = found.path.with_labels(bk.to_numpy)
    return found._replace(labels=bk.to_numpy(found.labels), path=path)


def check_labels(labels, n_clusters):
    """Consecutive from 0, by falling size."""
    assert labels.dtype == np.int32
    counts = np.bincount(labels)
    assert len(counts) == n_clusters
    assert counts.min() > 0
    assert (np.diff(counts) <= 0).all()


# -- the decision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("table", PAPER)
def test_first_rejection_decides_as_in_the_paper(table):
    p, k = PAPER[table]
    assert decide(range(2, 2 + len(p)), np.log(p), alpha=0.01) == k


def test_hmnist_radius_graph_contradicts_itself_in_the_paper():
    # Table 1 prints k = 4, but p = 0.262 at k = 3 exceeds alpha, so Algorithm 1 stops at k = 2.
    assert decide(range(2, 12), np.log(HMNIST_W_R), alpha=0.01) == 2


def test_watershed_is_where_certainty_drops_most():
    p, _ = PAPER["MNIST W_C"]  # "at that stage, the p-value suddenly shoots to 1": k = 6
    assert decide(range(2, 12), np.log(p), stopping="watershed") == 6
    assert decide(range(2, 12), np.log(p), alpha=0.05) == 6
    for table in ("MNIST W_R", "Pulsar W_C", "Sloan W_C", "Sloan W_R"):
        p, k = PAPER[table]
        assert decide(range(2, 2 + len(p)), np.log(p), stopping="watershed") == k


@pytest.mark.parametrize(
    ("ks", "log_p", "first", "watershed"),
    [
        ([1], [-math.inf], 1, 1),
        ([2], [-50.0], 2, 2),
        ([2], [0.0], 1, 1),
        ([2, 3], [0.0, -50.0], 1, 1),
        ([1, 2, 3], [-math.inf, -50.0, -49.0], 3, 3),
        ([1, 2, 3], [-math.inf, -math.inf, -math.inf], 3, 3),
        ([4, 5, 6], [0.0, 0.0, 0.0], 4, 6),
        ([4, 5, 6], [-math.inf, -20.0, 0.0], 5, 5),
        ([7], [0.0], 7, 7),
        ([2, 3, 4], [-math.inf, math.log(0.5), 0.0], 2, 3),
        ([2, 3, 4, 5], np.log([0.5, 1, 1e-9, 1]), 1, 4),
    ],
)
def test_decisions_by_hand(ks, log_p, first, watershed):
    assert decide(ks, log_p) == first
    assert decide(ks, log_p, stopping="watershed") == watershed


@pytest.mark.parametrize("alpha", [-0.1, 0.0, 1.0, 1.5, math.nan])
def test_alpha_is_a_probability(alpha):
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\), got"):
        decide([2, 3], [-8.0, -6.0], alpha=alpha)


def test_alpha_is_compared_in_logarithms():
    # C35: p below the smallest double, alpha down to 1e-300.
    assert decide([2, 3], [-800.0, -600.0], alpha=1e-300) == 2
    assert decide([2, 3], [-800.0, -700.0], alpha=1e-300) == 3
    assert decide([2], [math.log(0.01)], alpha=0.01) == 2


@pytest.mark.parametrize("stopping", ["first", "watershed"])
def test_bound_that_is_not_a_number_is_an_error(stopping):
    # C32: every comparison with NaN is false; a rule that stops at p > alpha would never stop.
    with pytest.raises(FloatingPointError, match="not a number at k = 3"):
        decide([2, 3, 4], [-50.0, math.nan, 0.0], stopping=stopping)


# -- the sweep ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_planted_number_of_clusters_is_found(bk, k):
    D, labels = blobs(k, n=60 * k)
    found = run(bk, D)
    assert found.n_clusters == k
    assert len(set(zip(found.labels.tolist(), labels.tolist(), strict=True))) == k
    check_labels(found.labels, k)
    assert [step.k for step in found.path] == list(range(1, k + 2))
    assert [step.accepted for step in found.path] == [True] * k + [False]
    assert not found.limit_reached
    assert set(found.timings) == {"kmeans", "bounds"}


def test_path_holds_the_bound_of_its_labels(bk):
    D, _ = blobs(3)
    for step in run(bk, D, max_clusters=6, full_path=True).path[1:]:
        log_p = bk.to_numpy(zz_top(readonly(bk, D), readonly(bk, step.labels)))
        a, b = step.pair
        assert 0 <= a < b < step.k
        assert step.log_p == log_p[np.triu_indices(step.k, 1)].max() == log_p[a, b]
        check_labels(step.labels, step.k)


def test_a_split_is_accepted_up_to_alpha(bk):
    D, _ = blobs(3)
    p = math.exp(run(bk, D).path[2].log_p)
    for alpha, k in ((p * 1.000001, 3), (p * 0.999999, 2)):
        found = run(bk, D, alpha=alpha)
        assert found.n_clusters == k
        assert [step.accepted for step in found.path] == [True] * k + [False]


def assert_same_step(one, other):
    """Assert that two steps are the same, whatever else was in their batches."""
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.inertia == pytest.approx(other.inertia, rel=1e-12)  # products round by their shape
    assert one._replace(labels=None, inertia=0) == other._replace(labels=None, inertia=0)


@pytest.mark.parametrize("settings", [{"max_clusters": 9}, {"full_path": True}])
def test_path_is_a_prefix_of_a_longer_path(bk, settings):
    D, _ = blobs(3)
    short = run(bk, D, max_clusters=5)
    longer = run(bk, D, **{"max_clusters": 5, **settings})
    assert longer.n_clusters == short.n_clusters
    assert len(short.path) <= len(longer.path)
    for one, other in zip(short.path, longer.path, strict=False):
        assert_same_step(one, other)


def test_full_path_goes_on_after_the_decision(bk):
    D, _ = blobs(2)
    found = run(bk, D, max_clusters=5, full_path=True)
    assert found.n_clusters == 2
    assert [step.k for step in found.path] == [1, 2, 3, 4, 5]
    watershed = run(bk, D, max_clusters=5, stopping="watershed")
    assert watershed.n_clusters == 2
    assert len(watershed.path) == 5


@pytest.mark.parametrize("stopping", ["first", "watershed"])
@pytest.mark.parametrize("max_clusters", [2, 3, 4, 7, 12])
@pytest.mark.parametrize("alpha", [1e-30, 0.01, 0.9])
def test_a_path_accepts_the_chosen_k_and_those_below_it(bk, stopping, max_clusters, alpha):
    D, _ = blobs(4, m=90, n=160, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (LimitWarning, PowerWarning))
        found = run(
            bk, D, stopping=stopping, max_clusters=max_clusters, alpha=alpha, full_path=True
        )
    for step in found.path:
        assert step.accepted == (step.k <= found.n_clusters)
        said = step.reason.partition(":")[0]
        assert said in ({"accepted", "start"} if step.accepted else {"rejected"})
    log_p = [step.log_p for step in found.path[1:]]
    ks = range(2, max_clusters + 1)
    assert decide(ks, log_p, alpha=alpha, stopping=stopping) == found.n_clusters


def test_pairs_of_highest_cut_are_those_tested(bk):
    labels = np.repeat(np.arange(4), (30, 15, 9, 6))
    D = 1.0 * (labels[:, None] == np.arange(100) % 4)
    D[:, :40] += np.linspace(0.5, 0.9, 4)[labels][:, None]  # all share a level, to a degree
    found, all_pairs = run(bk, D, n_clusters=4, n_pairs=1), run(bk, D, n_clusters=4)
    np.testing.assert_array_equal(found.labels, labels)
    cut = np.full((4, 4), -np.inf)
    for a, b in zip(*np.triu_indices(4, 1), strict=True):
        between = (D[labels == a] @ D[labels == b].T).sum()
        cut[a, b] = between / (labels == a).sum() + between / (labels == b).sum()
    assert found.path[0].pair == np.unravel_index(cut.argmax(), cut.shape)
    assert found.path[0].log_p <= all_pairs.path[0].log_p
    assert run(bk, D, n_clusters=4, n_pairs=99).path[0].log_p == all_pairs.path[0].log_p


def test_k_means_sees_the_columns_of_largest_norm(bk):
    D, labels = blobs(3, n=60)
    D = np.concatenate([D, 0.01 * np.random.default_rng(1).normal(size=(60, 200))], axis=1)
    found = run(bk, D, n_clusters=3, n_kmeans_components=60)
    few = kmeans(readonly(bk, D[:, :60]), 3, n_init=3, random_state=0)
    assert found.path[0].inertia == pytest.approx(few.inertia)
    assert len(set(zip(found.labels.tolist(), labels.tolist(), strict=True))) == 3
    everything = run(bk, D, n_clusters=3, n_kmeans_components=None).path[0]
    all_columns = kmeans(readonly(bk, D), 3, n_init=3, random_state=0)
    assert everything.inertia == pytest.approx(all_columns.inertia, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_data_and_any_clusterer_can_be_tested(bk, dtype):
    """The paper's wrapper: no graph, plain data, labels of another method."""
    D, _ = blobs(3)
    labels = AgglomerativeClustering(n_clusters=4).fit_predict(D)
    log_p = bk.to_numpy(zz_top(readonly(bk, D, dtype), readonly(bk, labels)))
    far = log_p < math.log(0.01)
    assert far[np.triu_indices(4, 1)].sum() == 5  # one cluster was split in two
    assert run(bk, D.astype(dtype)).n_clusters == 3


# -- windows of k ---------------------------------------------------------------------------------


def run_in_windows(bk, monkeypatch, window, D, **settings):
    """Return the sweep, and the warnings of it, with so many k tried at once."""
    monkeypatch.setattr(bk, "sweep_window", window)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = run(bk, D, **settings)
    return found, [(w.category, str(w.message)) for w in caught]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"full_path": True, "max_clusters": 7},
        {"stopping": "watershed", "max_clusters": 8, "min_clusters": 2},
        {"min_clusters": 2, "max_clusters": 3},
        {"n_pairs": 2, "full_path": True, "max_clusters": 6},
        {"n_clusters": 4},
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_window_does_not_matter(bk, monkeypatch, settings, dtype):
    D = blobs(4, m=90, n=160, seed=3)[0].astype(dtype)
    one, said = run_in_windows(bk, monkeypatch, 1, D, **settings)
    for window in (3, 50):
        several, also_said = run_in_windows(bk, monkeypatch, window, D, **settings)
        assert also_said == said
        assert several.n_clusters == one.n_clusters
        assert several.limit_reached == one.limit_reached
        np.testing.assert_array_equal(several.labels, one.labels)
        assert len(several.path) == len(one.path)
        for step, other in zip(several.path, one.path, strict=True):
            assert_same_step(step, other)


def test_a_window_is_tried_as_one_batch_and_ends_with_the_search(bk, monkeypatch):
    module = importlib.import_module("specialk_gpu.selection.sweep")
    tried = []

    def spy(X, ks, **settings):
        tried.append(list(ks))
        return kmeans_batch(X, ks, **settings)

    monkeypatch.setattr(module, "kmeans_batch", spy)
    D, _ = blobs(3)
    for window, settings, batches in [
        (1, {}, [[1], [2], [3], [4]]),
        (3, {}, [[1, 2, 3], [4, 5, 6]]),
        (3, {"max_clusters": 5}, [[1, 2, 3], [4, 5]]),
        (3, {"max_clusters": 5, "full_path": True}, [[1, 2, 3, 4, 5]]),
        (1, {"max_clusters": 4, "full_path": True}, [[1, 2, 3, 4]]),
    ]:
        tried.clear()
        run_in_windows(bk, monkeypatch, window, D, **settings)
        assert tried == batches
    tried.clear()
    monkeypatch.setattr(bk, "free_memory", lambda: 2 * 2 * 128 * 60 * 3)  # for two k
    run_in_windows(bk, monkeypatch, 3, D)
    assert tried == [[1, 2], [3, 4]]
    tried.clear()
    monkeypatch.setattr(bk, "sweep_bytes", 128 * 60 * 3)  # for one k
    run_in_windows(bk, monkeypatch, 1, D, max_clusters=3, full_path=True)
    assert tried == [[1], [2], [3]]


@pytest.mark.parametrize("window", [1, 50])
def test_what_is_thrown_away_does_not_warn(bk, monkeypatch, window):
    noise = np.abs(np.random.default_rng(0).normal(size=(5, 400)))
    D = np.repeat(1 + 0.01 * noise, 12, axis=0)  # five distinct rows, one cluster
    found, said = run_in_windows(bk, monkeypatch, window, D, max_clusters=9)
    assert len(found.path) < 6
    assert said == []
    found, said = run_in_windows(bk, monkeypatch, window, D, max_clusters=9, full_path=True)
    assert [step.k for step in found.path] == [1, 2, 3, 4, 5, 6]
    assert [category for category, _ in said] == [ConvergenceWarning]


def test_the_seed_of_a_k_is_its_own(bk):
    D = np.abs(np.random.default_rng(0).normal(size=(80, 30)))
    settings = {"full_path": True, "n_kmeans_components": 4, "n_init": 1}
    whole = run(bk, D, max_clusters=6, **settings)
    late = run(bk, D, max_clusters=6, min_clusters=3, **settings)
    longer = run(bk, D, max_clusters=9, **settings)
    for step in late.path:
        assert step.inertia == whole.path[step.k - 1].inertia == longer.path[step.k - 1].inertia


def test_clusters_are_numbered_by_size_and_then_by_first_row(bk):
    labels = np.array([2, 0, 1, 1, 0, 3, 3, 3, 2], dtype=np.int32)
    found = labels_by_size(bk.xp, bk.asarray(labels), 4)
    assert isinstance(found, bk.xp.ndarray)
    assert found.dtype == np.int32
    assert bk.to_numpy(found).tolist() == [1, 2, 3, 3, 2, 0, 0, 0, 1]


def by_size(labels):
    """Number the clusters by falling size and first row, one after the other."""
    clusters = sorted(set(labels), key=lambda c: (-labels.count(c), labels.index(c)))
    return [clusters.index(c) for c in labels]


@pytest.mark.parametrize("m", [1, 2, 5, 9])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_each_of_several_clusterings_is_numbered_for_itself(bk, k, m):
    given = np.random.default_rng(k).integers(k, size=(60, m))
    given[:3, -1] = k - 1
    found = labels_by_size(bk.xp, bk.asarray(given, dtype=np.int32), k)
    assert found.dtype == np.int32
    assert bk.to_numpy(found).tolist() == [by_size(own) for own in given.tolist()]


# -- C30: limits ----------------------------------------------------------------------------------


def test_reaching_the_limit_warns_and_sets_the_flag(bk):
    D, _ = blobs(3)
    with pytest.warns(
        UserWarning, match="search ended at max_clusters=2, and its split was accepted"
    ):
        found = run(bk, D, max_clusters=2)
    assert (found.n_clusters, found.limit_reached) == (2, True)
    assert found.path[-1].reason.endswith("; max_clusters reached")
    check_labels(found.labels, 2)


@pytest.mark.parametrize(
    ("settings", "k", "tried"),
    [
        ({"min_clusters": 4}, 4, [4, 5]),
        ({"min_clusters": 3, "max_clusters": 3}, 3, [3]),
        ({"max_clusters": 1}, 1, [1]),
        ({"max_clusters": 10_000}, 3, [1, 2, 3, 4]),
        ({"min_clusters": 2}, 3, [2, 3, 4]),
    ],
)
def test_limits_hold_without_a_warning(bk, settings, k, tried):
    D, _ = blobs(3)
    found = run(bk, D, **settings)
    assert found.n_clusters == k
    assert [step.k for step in found.path] == tried
    assert not found.limit_reached
    check_labels(found.labels, k)


def test_limit_above_the_number_of_rows_is_that_number():
    found = run_on_host(blobs(2, 5)[0], max_clusters=10, full_path=True)
    assert [step.k for step in found.path] == [1, 2, 3, 4, 5]


def run_on_host(D, **settings):
    return sweep(D, n_init=3, random_state=0, **settings)


@pytest.mark.parametrize("k", [1, 2, 7, 60])
def test_fixed_number_is_given_exactly_and_not_tested(bk, k):
    D, _ = blobs(3)
    found = run(bk, D, n_clusters=k, max_clusters=2, min_clusters=2)
    assert found.n_clusters == k
    assert [step.k for step in found.path] == [k]
    assert found.path[0].reason == "fixed by n_clusters: not tested"
    check_labels(found.labels, k)


def test_more_clusters_than_the_root_of_the_rows_warn(bk):
    D, _ = blobs(5, m=20, n=400)
    with pytest.warns(UserWarning, match="5 clusters are more than the square root of the 20 rows"):
        assert run(bk, D).n_clusters == 5


def test_distinct_rows_end_the_path(bk):
    D = np.repeat(np.eye(3), 30, axis=0).repeat(40, axis=1)
    with pytest.warns(ConvergenceWarning, match="found 3 clusters where n_clusters=4"):
        found = run(bk, D, full_path=True)
    assert found.n_clusters == 3
    assert [step.k for step in found.path] == [1, 2, 3, 4]
    assert found.path[-1].reason == "only 3 clusters can be distinguished: no more are possible"
    assert found.path[-1].log_p == 0


# -- C28: power -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(20, 19), (600, 10)])
def test_no_power_is_told_apart_from_one_cluster(bk, m, n):
    D, _ = blobs(2, m, n)
    with pytest.warns(PowerWarning, match=rf"{m} rows in {n} columns.*not enough evidence"):
        found = run(bk, D)
    assert found.n_clusters == 1
    assert found.path[-1].reason == "rejected: the test has no power on these data"
    assert attainable_log_p(m, n) > math.log(0.01)


@pytest.mark.parametrize(
    "settings", [{"n_clusters": 2}, {"max_clusters": 1}, {"min_clusters": 2, "max_clusters": 2}]
)
def test_power_does_not_matter_where_nothing_is_tested(bk, settings):
    D, _ = blobs(2, 20, 10)
    found = run(bk, D, **settings)  # a PowerWarning would be an error
    assert found.n_clusters == max(settings.values())
    assert not any("no power" in step.reason for step in found.path)


def test_warning_ends_where_perfectly_separated_thirds_are_accepted():
    accepted, warned = [], []
    for n in range(15, 61, 3):
        D = np.zeros((60, n))
        D[:20, : n // 3] = D[20:, n // 3 :] = 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            accepted.append(run_on_host(D, max_clusters=2).n_clusters == 2)
        warned.append(any(issubclass(w.category, PowerWarning) for w in caught))
    assert accepted == [not w for w in warned] == sorted(accepted)
    assert len(set(accepted)) == 2


# -- time -----------------------------------------------------------------------------------------


def test_stages_take_parts_of_the_time_that_passes():
    began = time.perf_counter()
    timings = run_on_host(blobs(3)[0]).timings
    assert min(timings.values()) > 0
    assert sum(timings.values()) < time.perf_counter() - began


@pytest.mark.parametrize("n_tried", [1, 2, 5])
def test_the_last_k_before_the_end_of_the_time_says_so(n_tried):
    step, steps = run_on_host(blobs(1)[0], n_clusters=1).path[0], []

    def tries():
        for k in range(1, n_tried + 1):
            steps.append(step._replace(k=k, reason=f"number {k}"))
            yield k
        raise OutOfTime(TimeLimit(1))

    with pytest.warns(TimeLimitWarning, match=f"No k above {n_tried} was tested"):
        assert list(_sweep_until_time_is_up(tries(), steps)) == list(range(1, n_tried + 1))
    expected = [f"number {k}" for k in range(1, n_tried)] + [f"number {n_tried}{TIME_IS_UP}"]
    assert [step.reason for step in steps] == expected


def test_time_that_ends_before_anything_is_known_is_an_error():
    def tries():
        raise OutOfTime(TimeLimit(1))
        yield

    with pytest.raises(OutOfTime):
        list(_sweep_until_time_is_up(tries(), []))


# -- words ----------------------------------------------------------------------------------------


def test_every_step_says_why(bk):
    D, _ = blobs(3)
    one, *accepted, rejected = run(bk, D).path
    assert one.reason == "start: one cluster, nothing to test"
    assert (one.log_p, one.pair) == (-math.inf, None)
    assert {step.reason for step in accepted} == {"accepted: every pair's bound is at most alpha"}
    assert rejected.reason.startswith("rejected: the bound of this pair is above alpha")
    first = run(bk, D, min_clusters=2).path[0]
    assert first.reason == "accepted: fixed by min_clusters"


def test_every_k_is_logged_with_its_bound(caplog):
    with caplog.at_level("INFO", logger="specialk_gpu"):
        path = run_on_host(blobs(3)[0], min_clusters=2).path
    expected = [
        f"k = {s.k}: log10 p = {s.log_p * math.log10(math.e):.2f}, {s.reason}" for s in path
    ]
    assert caplog.messages == expected


def test_what_is_not_given_is_as_documented():
    D = np.abs(np.random.default_rng(0).normal(size=(54, 56)))
    documented = {"alpha": 0.01, "min_clusters": 1, "stopping": "first", "n_kmeans_components": 50}
    documented |= {"n_init": 10, "n_clusters": None, "n_pairs": None, "full_path": False}
    for more in ({}, {"full_path": True}):
        settings = {"random_state": 0, "max_clusters": 2} | more
        found, expected = sweep(D, **settings), sweep(D, **documented | settings)
        assert [step[:2] for step in found.path] == [step[:2] for step in expected.path]
        inertias = [[step.inertia for step in one.path] for one in (found, expected)]
        assert inertias[0] == inertias[1]
    assert decide([2, 3], np.log([0.0099, 0.0101])) == 2


def test_fifty_clusters_are_the_limit_if_none_is_given():
    D = np.abs(np.random.default_rng(0).normal(size=(54, 56)))
    assert len(sweep(D, full_path=True, n_init=1, random_state=0).path) == 50


def test_path_becomes_a_frame_and_a_table():
    path = run_on_host(blobs(2)[0]).path
    frame = path.to_frame()
    names = ["k", "log_p", "log10_p", "pair", "accepted", "reason", "log_zz_top", "inertia"]
    assert frame.columns.tolist() == names
    assert frame["k"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(frame["log10_p"], frame["log_p"] / np.log(10))
    lines = str(path).splitlines()
    assert lines[0].split()[:6] == ["k", "log10", "p", "inertia", "pair", "accepted"]
    assert lines[0].endswith("reason (ZZ Top Bound [HD19])")
    assert len(lines) == 4
    assert lines[1].split()[:2] == ["1", "-inf"]
    for step, line in zip(path, lines[1:], strict=True):
        assert line.endswith(("yes  " if step.accepted else "no  ") + step.reason)
    assert f"{path[1].log_p / math.log(10):.2f}" in lines[2]
    assert "0, 1" in lines[2]
    empty = SelectionPath((), "zz_top").to_frame()
    assert [name for name in names if name not in empty.columns] == ["log_zz_top", "inertia"]


def test_every_step_of_the_sweep_has_all_fields_but_that_of_the_cut_test(bk):
    D, _ = blobs(3)
    found = run(bk, D)
    assert found.path.criterion == "zz_top"
    for step in found.path:
        assert Candidate._fields == tuple(step._asdict())
        assert step.log_p_level is None
        assert step.inertia >= 0
        assert step.labels.dtype == np.int32
        assert step.log_zz_top == step.log_p


def test_a_path_is_kept_by_a_pickle_and_its_labels_can_be_changed():
    path = run_on_host(blobs(2)[0]).path
    again = pickle.loads(pickle.dumps(path))
    assert isinstance(again, SelectionPath)
    assert again.criterion == path.criterion
    assert [step[:5] for step in again] == [step[:5] for step in path]
    doubled = path.with_labels(lambda labels: np.repeat(labels, 2))
    assert doubled.criterion == "zz_top"
    for step, other in zip(path, doubled, strict=True):
        np.testing.assert_array_equal(other.labels[::2], step.labels)
        assert other[:5] == step[:5]


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0}, r"alpha must lie in \(0, 1\), got 0"),
        ({"alpha": 1}, r"alpha must lie in \(0, 1\), got 1"),
        ({"alpha": math.nan}, r"alpha must lie in \(0, 1\), got nan"),
        ({"min_clusters": 4, "max_clusters": 3}, "got min_clusters=4, max_clusters=3"),
        ({"min_clusters": 0}, "min_clusters must be at least 1"),
        ({"min_clusters": 61, "max_clusters": 99}, r"number of rows \(60\), got 61"),
        ({"n_clusters": 61}, r"n_clusters must lie between 1 and the number of rows \(60\)"),
        ({"n_clusters": 0}, "n_clusters must be at least 1, got 0"),
        ({"stopping": "last"}, "stopping must be one of .* got 'last'"),
    ],
)
def test_arguments_out_of_range_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        sweep(blobs(3)[0], **settings)


def test_an_unknown_rule_of_stopping_is_refused():
    with pytest.raises(ValueError, match="stopping must be one of .* got 'last'"):
        decide([2], [0.0], stopping="last")


def test_entries_that_are_not_finite_stop_the_sweep(bk):
    # C32: in a column that k-means does not see, as well
    D, _ = blobs(2)
    for entry in (math.nan, math.inf):
        D[3, 5] = entry
        for n in (None, 20):
            with pytest.raises(ValueError, match="D must be finite"):
                run(bk, D, n_kmeans_components=n)


@pytest.mark.parametrize("name", ["n_clusters", "min_clusters", "max_clusters", "n_init"])
def test_numbers_that_are_no_integers_are_named(name):
    with pytest.raises(TypeError, match=rf"{name} must be an integer, got 1\.5"):
        sweep(blobs(2)[0], **{name: 1.5})


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"n_pairs": 0}, "n_pairs"), ({"n_kmeans_components": 0}, "n_kmeans_components")],
)
def test_sweep_names_what_is_out_of_range(settings, named):
    with pytest.raises(ValueError, match=f"{named} must be at least 1"):
        sweep(np.eye(4), **settings)


@pytest.mark.parametrize("D", [np.ones(5), np.ones((5, 0))])
def test_sweep_names_the_shape(D):
    with pytest.raises(ValueError, match="D must have rows and columns"):
        sweep(D)


@pytest.mark.parametrize(
    ("ks", "log_p"), [([], []), ([2, 4], [-1.0, 0.0]), ([2, 3], [-1.0]), ([3, 2], [-1.0, -1.0])]
)
def test_decide_wants_consecutive_k_with_a_bound_for_each(ks, log_p):
    with pytest.raises(ValueError, match="ks must be consecutive"):
        decide(ks, log_p)
    with pytest.raises(ValueError, match="alpha must lie in"):
        decide([2], [-1.0], alpha=2)


def test_a_split_accepted_against_the_forecast_is_not_called_powerless():
    D = np.zeros((300, 15))
    D[:20] = 1 + 0.01 * np.random.default_rng(0).random((20, 15))
    with pytest.warns(PowerWarning, match="each with its share of the columns"):
        found = sweep(D, random_state=0)
    assert found.n_clusters == 2
    assert not any("no power" in step.reason for step in found.path)
