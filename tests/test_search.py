"""The search for clusters: path, limits, nested levels, polishing, sets whose answer is known."""

import math
import re
import warnings
from types import SimpleNamespace

import fits
import numpy as np
import pytest
import sklearn
from scipy import sparse
from scipy.stats import norm
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from specialk_gpu import (
    CalibrationWarning,
    LimitWarning,
    PowerWarning,
    SpecialK,
    cut_test,
    knn_graph,
)
from specialk_gpu._result import NO_POWER, TIME_IS_UP, Candidate
from specialk_gpu._time_limit import OutOfTime, TimeLimit
from specialk_gpu.graph.rows import Rows
from specialk_gpu.inspection.verdict import verdict
from specialk_gpu.selection import polishing
from specialk_gpu.selection import search as search_module
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.cut_test import Gap
from specialk_gpu.selection.fragments import (
    RESOLUTIONS,
    FragmentResolution,
    finer_fragment_resolutions,
    fragment_resolutions,
    fragments,
    n_fragment_eigenvectors,
)
from specialk_gpu.selection.merging import Tree
from specialk_gpu.selection.null_distribution import log_p_under_null
from specialk_gpu.selection.polishing import polished, polished_shares, polished_tree
from specialk_gpu.selection.reasons_and_warnings import (
    reason_by_bound,
    reason_by_cut,
    reason_by_sweep,
    warn_of_many_clusters,
    warn_of_the_test,
)
from specialk_gpu.selection.walks import prepare_walks
from specialk_gpu.spectrum.eigenpairs import eigenpairs

QUIET = SimpleNamespace(stop=lambda *_: None)  # a clock that nobody reads

FOUR, FOUR_Y = make_blobs(
    240, centers=[(0, 0), (9, 0), (0, 9), (9, 9)], cluster_std=1.2, random_state=0
)


def fit(X, **settings):
    """Fit, on the backend of X."""
    settings = {"random_state": 0, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(**settings).fit(X)


def fit_on(bk, X, **settings):
    return fit(bk.asarray(X), backend=bk.name, **settings)


def on_host(X, **settings):
    return fits.fit(X, **settings)


def four():
    return on_host(FOUR)


def is_refined_by(coarse, fine):
    """Say whether each cluster of one clustering is a union of clusters of the other."""
    return len(set(zip(coarse.tolist(), fine.tolist(), strict=True))) == len(set(fine.tolist()))


# -- the path -------------------------------------------------------------------------------------


@pytest.mark.parametrize("full_path", [False, True])
def test_p_rises_with_k_and_no_k_between_accepted_ones_is_rejected(bk, full_path):
    model = fit_on(bk, FOUR, full_path=full_path)
    path = model.path_
    assert path.criterion == "cut"
    assert [step.k for step in path] == list(range(1, len(path) + 1))
    last = model.tree_.n_leaves if full_path else min(10, model.tree_.n_leaves)
    assert len(path) == last
    log_p = np.array([step.log_p for step in path])
    assert log_p[0] == -math.inf
    assert (log_p[1:] >= log_p[:-1]).all()
    assert (log_p[1:] <= 0).all()
    np.testing.assert_array_equal([step.accepted for step in path], log_p <= math.log(0.01))
    assert sum(step.accepted for step in path) == model.n_clusters_ == 4
    for step in path:
        assert step.log_p_level == model.tree_.log_p[step.k - 1]
        assert step.log_p <= step.log_p_level
        assert step.log_zz_top is None
        assert step.inertia is None
        np.testing.assert_array_equal(
            bk.to_numpy(step.labels), bk.to_numpy(model.labels_at(step.k))
        )


@pytest.mark.parametrize("k", [2, 4])
def test_p_of_the_answer_is_that_of_its_labels(bk, k):
    centers = [(0, 0), (9, 0), (0, 9), (9, 9)][:k]
    X, _ = make_blobs(60 * k, centers=centers, cluster_std=1.7, random_state=1)
    model = fit_on(bk, X)
    assert model.n_clusters_ == k
    gap = cut_test(model.affinity_matrix_, model.labels_, X=bk.asarray(X))
    assert model.tree_.log_p[k - 1] == gap.log_p < math.log(0.01)


def test_every_step_says_why():
    model = four()
    for step in model.path_:
        if step.k == 1:
            assert step.reason == "start: one cluster, nothing to test"
        elif not step.accepted:
            a, b = step.pair
            assert step.reason == f"rejected: no clear gap between clusters {a} and {b}"
        elif step.log_p_level <= math.log(0.01):
            assert step.reason == "accepted: a clear gap between every two clusters"
        else:
            assert step.reason == "accepted: a finer clustering has clear gaps"


@pytest.mark.parametrize(
    ("level", "k", "log_p", "n_clusters", "min_clusters", "reason"),
    [
        (3, 3, 0.0, 3, 1, "fixed by n_clusters: not tested"),
        (3, 3, -9.0, 4, 1, "only 3 clusters can be distinguished: no more are possible"),
        (3, 3, -9.0, None, 4, "only 3 clusters can be distinguished: no more are possible"),
        (1, 3, -math.inf, None, 1, "start: one cluster, nothing to test"),
        (3, 3, 0.0, None, 3, "accepted: fixed by min_clusters"),
        (3, 5, 0.0, None, 3, "accepted: fixed by min_clusters"),
        (4, 5, 0.0, None, 3, "accepted: a finer clustering has clear gaps"),
        (4, 5, -4.9, None, 3, "accepted: a finer clustering has clear gaps"),
        (4, 5, -5.0, None, 3, "accepted: a clear gap between every two clusters"),
        (5, 5, -5.1, None, 3, "accepted: a clear gap between every two clusters"),
        (6, 5, -9.0, None, 3, "rejected: no clear gap between clusters 1 and 2"),
        (2, 1, -9.0, None, 1, "rejected: no clear gap between clusters 1 and 2"),
    ],
)
def test_a_level_is_explained(level, k, log_p, n_clusters, min_clusters, reason):
    pair = (1, 2) if level > 1 else None
    assert reason_by_cut(level, k, log_p, pair, -5.0, n_clusters, min_clusters) == reason


@pytest.mark.parametrize(
    ("k", "n_found", "log_p", "n_clusters", "powerless", "reason"),
    [
        (3, 3, 0.0, 3, False, "fixed by n_clusters: not tested"),
        (4, 3, 0.0, None, False, "only 3 clusters can be distinguished: no more are possible"),
        (1, 1, 0.0, None, True, "start: one cluster, nothing to test"),
        (2, 2, 0.0, None, True, "accepted: fixed by min_clusters"),
        (3, 3, -4.9, None, True, NO_POWER),
        (3, 3, -5.0, None, True, "accepted: every pair's bound is at most alpha"),
        (3, 3, -5.0, None, False, "accepted: every pair's bound is at most alpha"),
        (3, 3, -4.9, None, False, "rejected: the bound of this pair is above alpha; "),
    ],
)
def test_a_step_of_the_sweep_is_explained(k, n_found, log_p, n_clusters, powerless, reason):
    step = Candidate(k, log_p, None, accepted=True, reason="", labels=None)
    found = reason_by_bound(step, n_found, -5.0, n_clusters, 2, powerless=powerless)
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("k", "before", "stopping", "after"),
    [
        (3, "accepted: every pair", "first", None),
        (4, "accepted: every pair", "first", "rejected: a smaller k was rejected"),
        (4, "rejected: the bound", "first", None),
        (4, "accepted: fixed by min_clusters", "first", None),
        (3, "rejected: the bound", "watershed", "accepted: certainty .* after k = 3"),
        (4, "accepted: every pair", "watershed", "rejected: certainty .* after k = 3"),
        (3, "start: one cluster", "watershed", None),
        (3, NO_POWER, "watershed", "accepted: certainty .* after k = 3"),
        (4, NO_POWER, "watershed", None),
    ],
)
def test_once_k_is_chosen_as_3_steps_of_the_sweep_are_explained_by_it(k, before, stopping, after):
    step = Candidate(k, 0.0, None, accepted=True, reason=before, labels=None)
    assert re.match(after or f"{before}$", reason_by_sweep(step, 3, stopping))


@pytest.mark.parametrize(
    ("k", "n_rows", "many"),
    [(2, 1, False), (3, 4, True), (3, 8, True), (3, 9, False), (4, 15, True), (5, 25, False)],
)
def test_more_clusters_than_the_root_of_the_rows_bring_a_warning(k, n_rows, many):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_many_clusters(k, n_rows)
    assert [w.category for w in caught] == [LimitWarning] * many


@pytest.mark.parametrize(
    ("m", "n_neighbors", "tried"), [(60, 10, True), (59, 10, False), (60, 9, False)]
)
def test_the_test_was_tried_on_graphs_of_60_rows_with_10_entries(m, n_neighbors, tried):
    near = np.arange(1, n_neighbors // 2 + 1)
    W = sparse.lil_matrix((m, m))
    for i in range(m):
        W[i, (i + near) % m] = W[i, (i - near) % m] = 1
        if n_neighbors % 2:
            W[i, (i + m // 2) % m] = 1
    graphs = CutGraphs(sparse.csr_matrix(W))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_the_test(graphs, 0.01, powerless=False)
    assert [w.category for w in caught] == [CalibrationWarning] * (not tried)
    with pytest.warns(PowerWarning, match=f"{m} rows are too few .* alpha=0.01") as caught:
        warn_of_the_test(graphs, 0.01, powerless=True)
    within = m / 8  # of two clusters, each a complete graph of half the rows, in two halves
    log_p = float(log_p_under_null(0, within, 8, "graph"))
    assert f"would reach log10 p = {log_p / math.log(10):.2f}." in str(caught[0].message)
    assert f"joined to {n_neighbors} others" in str(caught[0].message)


def test_p_below_a_thousandth_is_printed_as_that():
    model = four()
    header, *lines = str(model.path_).splitlines()
    assert header.split() == ["k", "p", "own", "p", "pair", "accepted", "reason", "(cut", "test)"]
    assert len(lines) == len(model.path_)
    for step, line in zip(model.path_, lines, strict=True):
        if step.k == 1:
            assert line.split()[:2] == ["1", "yes"]
        elif step.log_p < math.log(0.001):
            assert f"{step.k:>4}   < 0.001" in line
        else:
            assert line.split()[1] == f"{math.exp(step.log_p):.3f}"
        assert line.endswith(step.reason)
    assert sum("< 0.001" in line for line in lines) >= 3


def test_the_path_becomes_a_frame():
    model = four()
    frame = model.path_.to_frame()
    names = ["k", "log_p", "log10_p", "pair", "accepted", "reason", "log_p_level"]
    assert frame.columns.tolist() == names
    np.testing.assert_allclose(frame["log10_p"], frame["log_p"] / np.log(10))
    assert frame["accepted"].sum() == 4


def test_stages_are_timed():
    assert set(four().timings_) == {
        "graph", "eigenpairs", "fragments", "merging", "polishing"
    }  # fmt: skip


def test_min_clusters_holds_where_polishing_would_merge(bk, monkeypatch):
    gap = Gap(0.0, (0, 1), 1.0, 1.0, 1.0)
    monkeypatch.setattr(
        polishing, "gap_by_cut_test", lambda *_: gap
    )  # no two are separate any more
    for least in (1, 3):
        model = fit_on(bk, FOUR, min_clusters=least)
        assert model.n_clusters_ == least
        assert [step.k for step in model.path_ if step.accepted] == list(range(least, least + 1))


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_numbers_of_numpy_are_numbers(tmp_path, criterion):
    model = on_host(FOUR, n_clusters=np.int64(3), criterion=criterion)
    assert type(model.n_clusters_) is type(model.path_[0].k) is int
    model.report(tmp_path / "report.html")


@pytest.mark.parametrize("settings", [{"min_clusters": 5, "max_clusters": 5}, {"n_clusters": 5}])
def test_fewer_clusters_than_asked_for_are_explained(settings):
    star = np.zeros((101, 101))
    star[0, 1:] = star[1:, 0] = 1
    model = on_host(star, affinity="precomputed", **settings)
    assert model.n_clusters_ < 5
    assert "can be distinguished: no more are possible" in model.path_[-1].reason


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_a_number_fixed_by_both_limits_is_no_limit_reached(bk, k):
    with warnings.catch_warnings():
        warnings.simplefilter("error", LimitWarning)
        model = SpecialK(min_clusters=k, max_clusters=k, backend=bk.name, random_state=0)
        model.fit(bk.asarray(FOUR))
    assert (model.n_clusters_, model.limit_reached_) == (k, False)


@pytest.mark.parametrize("least", [1, 3, 4, 6, 11])
def test_there_are_at_least_min_clusters(bk, least):
    model = fit_on(bk, FOUR, min_clusters=least)
    assert model.n_clusters_ == max(4, least)
    assert len(np.unique(bk.to_numpy(model.labels_))) == model.n_clusters_
    assert model.path_[0].k == least
    assert model.path_[0].accepted
    if least > 1:
        assert model.path_[0].reason == "accepted: fixed by min_clusters"
    assert not model.limit_reached_


@pytest.mark.parametrize("most", [1, 2, 3])
def test_max_clusters_ends_the_search_with_a_warning(bk, most):
    model = SpecialK(max_clusters=most, backend=bk.name, random_state=0)
    if most == 1:
        model.fit(bk.asarray(FOUR))  # nothing is tested, and nothing said
    else:
        with pytest.warns(LimitWarning, match=f"ended at max_clusters={most}, and there are more"):
            model.fit(bk.asarray(FOUR))
        assert model.path_[-1].reason.endswith("; max_clusters reached")
        assert sum(step.reason.endswith("reached") for step in model.path_) == 1
    assert model.n_clusters_ == most
    assert model.limit_reached_ == (most > 1)
    assert [step.k for step in model.path_] == list(range(1, most + 1))
    assert len(np.unique(bk.to_numpy(model.labels_))) == most


@pytest.mark.parametrize("most", [4, 5, 1000])
def test_max_clusters_that_is_not_in_the_way_is_not_spoken_of(most):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SpecialK(max_clusters=most, backend="numpy", random_state=0).fit(FOUR)
    assert model.n_clusters_ == 4
    assert not model.limit_reached_
    assert len(model.path_) == min(10, most, model.tree_.n_leaves)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 30])
def test_a_fixed_number_is_given_exactly_and_not_tested(bk, k):
    model = fit_on(bk, FOUR, n_clusters=k)
    counts = np.bincount(bk.to_numpy(model.labels_))
    assert len(counts) == model.n_clusters_ == k
    assert counts.min() > 0
    assert (np.diff(counts) <= 0).all()
    assert [step.k for step in model.path_] == [k]
    assert model.path_[0].reason == "fixed by n_clusters: not tested"
    if k == 4:
        assert adjusted_rand_score(bk.to_numpy(model.labels_), FOUR_Y) == 1


@pytest.mark.parametrize("settings", [{"n_clusters": 2}, {"max_clusters": 1}])
def test_power_does_not_matter_where_nothing_is_tested(settings):
    X = np.random.default_rng(0).normal(size=(15, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PowerWarning)
        warnings.simplefilter("error", CalibrationWarning)
        model = SpecialK(backend="numpy", random_state=0, **settings).fit(X)
    assert model.n_clusters_ == max(settings.values())


def test_no_power_is_told_apart_from_one_cluster():
    X, _ = make_blobs(14, centers=[(0, 0)], random_state=0)
    model = SpecialK(backend="numpy", random_state=0)
    with pytest.warns(PowerWarning, match="14 rows are too few for a split to be accepted"):
        model.fit(X)
    assert model.n_clusters_ == 1
    assert {step.reason for step in model.path_[1:]} == {NO_POWER}


def test_what_is_found_needs_no_warning_that_nothing_can_be():
    X = np.random.default_rng(0).normal(size=(20, 3)) + np.repeat([0, 50], 10)[:, None]
    model = SpecialK(backend="numpy", random_state=0)
    with pytest.warns(CalibrationWarning) as warned:
        model.fit(X)
    assert model.n_clusters_ == 2
    assert not [w for w in warned if issubclass(w.category, PowerWarning)]


@pytest.mark.parametrize(("m", "n_neighbors"), [(200, 5), (40, 12)])
def test_graphs_that_were_not_tried_bring_a_warning(m, n_neighbors):
    X = np.random.default_rng(0).normal(size=(m, 2))
    model = SpecialK(backend="numpy", affinity="precomputed", random_state=0)
    with pytest.warns(CalibrationWarning, match=f"This graph has {m} rows with"):
        model.fit(knn_graph(X, n_neighbors))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        model.fit(knn_graph(FOUR))
        model.set_params(affinity="nearest_neighbors", n_neighbors=5).fit(FOUR)


# -- what a fit holds -----------------------------------------------------------------------------


MOONS, MOONS_Y = make_moons(300, noise=0.08, random_state=1)


@pytest.mark.parametrize(
    ("X", "settings"),
    [
        (FOUR, {}),
        (MOONS, {}),
        (FOUR, {"n_clusters": 9}),
        (FOUR, {"max_clusters": 2}),
        (FOUR, {"min_clusters": 6}),
        (np.repeat(FOUR[:120], 9, axis=0), {}),
        (np.concatenate([FOUR, FOUR[:90]]), {}),
    ],
)
def test_shares_sum_to_one_and_the_largest_names_the_cluster(bk, X, settings):
    model = fit_on(bk, X, **settings)
    shares, labels = bk.to_numpy(model.membership_), bk.to_numpy(model.labels_)
    assert shares.shape == (len(X), model.n_clusters_)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(shares.argmax(axis=1), labels)
    counts = np.bincount(labels, minlength=model.n_clusters_)
    assert counts.min() > 0
    assert (np.diff(counts) <= 0).all()


@pytest.mark.parametrize(
    ("X", "settings"), [(FOUR, {}), (MOONS, {}), (np.repeat(FOUR[:120], 9, axis=0), {})]
)
def test_levels_below_are_unions_and_levels_above_divisions(bk, X, settings):
    model = fit_on(bk, X, **settings)
    labels, tree = bk.to_numpy(model.labels_), model.tree_
    np.testing.assert_array_equal(bk.to_numpy(model.labels_at(model.n_clusters_)), labels)
    for k in range(1, tree.n_leaves + 1):
        level = bk.to_numpy(model.labels_at(k))
        assert len(np.unique(level)) == k
        pair = (level, labels) if k <= model.n_clusters_ else (labels, level)
        assert is_refined_by(*pair)
    most = tree.n_leaves
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        model.labels_at(0)
    said = (
        rf"the number of leaves of tree_ \({most}\), got {most + 1}\. .*\(n_clusters={most + 1}\)"
    )
    with pytest.raises(ValueError, match=said):
        model.labels_at(most + 1)


@pytest.mark.parametrize(
    ("settings", "k"),
    [
        ({}, 13),
        ({"criterion": "zz_top", "n_components": 60, "min_clusters": 5, "max_clusters": 6}, 3),
        ({"criterion": "zz_top", "n_components": 60, "max_clusters": 6}, 55),
    ],
)
def test_where_labels_at_has_no_level_its_message_is_a_call_that_works(bk, settings, k):
    X = bk.asarray(
        make_blobs(
            144, centers=[(i, j) for i in range(0, 40, 10) for j in (0, 10, 20)], random_state=0
        )[0]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = SpecialK(backend=bk.name, random_state=0, **settings).fit(X)
        with pytest.raises(ValueError, match=rf"got {k}\. This finds {k} clusters") as refused:
            model.labels_at(k)
        call = str(refused.value).rpartition(": ")[2]
        labels = eval(call, {"sklearn": sklearn, "model": model, "X": X})
    assert np.unique(bk.to_numpy(labels)).tolist() == list(range(k))
    with pytest.raises(ValueError, match="got 145: there are only 144 different rows"):
        model.labels_at(145)
    if not settings:
        assert (
            "The tree of clusters ends there; for 13, fit with n_clusters=13." in verdict(model)[1]
        )


def test_by_the_paper_s_rule_there_is_no_tree_and_levels_are_those_of_the_path(bk):
    model = fit_on(bk, FOUR, criterion="zz_top", n_components=40, n_init=2)
    with pytest.raises(AttributeError, match='no tree_ for criterion="zz_top": k-means starts'):
        _ = model.tree_
    assert not hasattr(model, "tree_")
    for step in model.path_:
        assert bool((model.labels_at(step.k) == step.labels).all())
    with pytest.raises(ValueError, match=r"on the path, \[1, 2.*, got 99"):
        model.labels_at(99)
    shares = bk.to_numpy(model.membership_)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)


def test_before_a_fit_there_is_no_tree():
    with pytest.raises(NotFittedError):
        _ = SpecialK().tree_
    with pytest.raises(NotFittedError):
        SpecialK().labels_at(2)


def test_copies_of_a_row_are_in_one_cluster(bk):
    model = fit_on(bk, np.repeat(FOUR, 15, axis=0))
    labels = bk.to_numpy(model.labels_).reshape(-1, 15)
    assert (labels == labels[:, :1]).all()
    assert adjusted_rand_score(labels[:, 0], FOUR_Y) == 1


def test_after_a_search_the_graphs_are_free_and_made_again_if_asked_for(bk):
    W = knn_graph(FOUR)
    graphs = CutGraphs(bk.sparse.csr_matrix(W), Rows(bk.asarray(FOUR)))
    near, wide, nearest = graphs.near, graphs.wide, graphs.nearest
    search_module.search(
        graphs, lambda n: eigenpairs(bk.sparse.csr_matrix(W), n), QUIET, alpha=0.01
    )
    assert not {"near", "wide", "nearest", "_spread", "_halves"} & set(vars(graphs))
    assert graphs.near is not near
    np.testing.assert_array_equal(bk.to_numpy(graphs.near.S.data), bk.to_numpy(near.S.data))
    np.testing.assert_array_equal(bk.to_numpy(graphs.wide.S.data), bk.to_numpy(wide.S.data))
    np.testing.assert_array_equal(bk.to_numpy(graphs.nearest), bk.to_numpy(nearest))


# -- polishing ------------------------------------------------------------------------------------


def polished_with_shares(graph, labels, k, **settings):
    """Return the labels after polishing, and the shares of walks that they follow."""
    labels, before = polished(graph, labels, k, **settings)
    return labels, polished_shares(graph, labels, before, k)


@pytest.mark.parametrize("k", [2, 7, 40, 200])
def test_polishing_empties_no_cluster(bk, k):
    graph = prepare_walks(bk.sparse.csr_matrix(knn_graph(FOUR)))
    rng = np.random.default_rng(k)
    y = rng.permutation(np.concatenate([np.arange(k), rng.integers(k, size=len(FOUR) - k)]))
    labels, shares = polished_with_shares(graph, bk.asarray(y, dtype=np.int32), k)
    labels, shares = bk.to_numpy(labels), bk.to_numpy(shares)
    assert np.bincount(labels, minlength=k).min() > 0
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(shares.argmax(axis=1), labels)


def test_polishing_gives_rows_to_the_cluster_around_them(bk):
    graph = prepare_walks(bk.sparse.csr_matrix(knn_graph(FOUR)))
    y = FOUR_Y.copy()
    y[::17] = (y[::17] + 1) % 4
    y = bk.asarray(y, dtype=np.int32)
    np.testing.assert_array_equal(bk.to_numpy(polished(graph, y, 4)[0]), FOUR_Y)
    kept, _ = polished(graph, y, 4, kept=1.0)  # no cluster may lose a row
    assert (bk.to_numpy(kept) != FOUR_Y).any()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_polishing_does_not_pull_touching_clusters_together(seed):
    rng, y = np.random.default_rng(seed), np.repeat([0, 1, 2], 200)
    edges = np.triu(rng.random((600, 600)) < np.where(y[:, None] == y, 0.1, 0.01), 1)
    W = sparse.csr_matrix(edges + edges.T, dtype=float)
    model = SpecialK(affinity="precomputed", backend="numpy", random_state=0)
    with pytest.warns(LimitWarning, match="the search ended at max_clusters=2"):
        model.set_params(max_clusters=2).fit(W)
    kept = model.labels_
    assert max(adjusted_rand_score(kept, y == c) for c in range(3)) > 0.98
    last = model.path_[-1]
    gap = cut_test(W, kept)
    assert last.log_p_level == pytest.approx(gap.log_p, rel=1e-9)
    sizes = np.bincount(model.set_params(max_clusters=None, n_clusters=2).fit(W).labels_)
    assert sizes.min() >= 150


def test_a_row_from_which_no_walk_leads_keeps_its_cluster(bk):
    W = sparse.block_diag([np.ones((30, 30)), np.ones((20, 20)), np.zeros((2, 2))], format="csr")
    y = np.repeat([0, 1, 0, 1], [30, 20, 1, 1])
    labels, shares = polished_with_shares(
        prepare_walks(bk.sparse.csr_matrix(W)), bk.asarray(y, dtype=np.int32), 2
    )
    np.testing.assert_array_equal(bk.to_numpy(labels), y)
    np.testing.assert_allclose(bk.to_numpy(shares), np.eye(2)[y], rtol=1e-12)


def dense_walks(W):
    """Return the probabilities of lazy walks of ten steps."""
    S = W / np.sqrt(np.outer(W.sum(axis=1), W.sum(axis=1)))
    return np.linalg.matrix_power((np.eye(len(W)) + S / S.sum(axis=1)[:, None]) / 2, 10)


@pytest.mark.parametrize("seed", range(8))
def test_polishing_ends_with_the_round_that_would_take_too_many_rows_of_a_cluster(bk, seed):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((40, 40)) * (rng.random((40, 40)) < 0.2), 1)
    W += W.T + np.eye(40, k=1) + np.eye(40, k=-1)
    y, ends = np.arange(40) % 5 if seed == 4 else np.arange(40) // 8, dense_walks(W)
    sizes = np.bincount((ends @ np.eye(5)[y]).argmax(axis=1), minlength=5)
    settings = [{}, {"kept": sizes.min() / 8}, {"kept": 0.5}, {"kept": 0.9}][seed % 4]
    graph = prepare_walks(bk.sparse.csr_matrix(sparse.csr_matrix(W)))
    labels, shares = y, np.eye(5)[y]
    for rounds in range(5):
        found = polished_with_shares(
            graph, bk.asarray(y, dtype=np.int32), 5, rounds=rounds, **settings
        )
        np.testing.assert_array_equal(bk.to_numpy(found[0]), labels)
        np.testing.assert_allclose(bk.to_numpy(found[1]), shares, rtol=1e-6)
        if rounds == 3:
            usual = polished_with_shares(graph, bk.asarray(y, dtype=np.int32), 5, **settings)
            np.testing.assert_array_equal(bk.to_numpy(usual[1]), bk.to_numpy(found[1]))
        moved = ends @ np.eye(5)[labels]
        sizes = np.bincount(moved.argmax(axis=1), minlength=5)
        if sizes.min() > 0 and (sizes >= settings.get("kept", 0) * 8).all():
            labels, shares = moved.argmax(axis=1), moved


def strayed():
    """Return the graph of four blobs, and eight leaves, two of each blob but for some rows."""
    leaf = 2 * FOUR_Y + np.random.default_rng(0).integers(2, size=240)
    leaf[::17] = (leaf[::17] + 2) % 8
    return knn_graph(FOUR), leaf


def polished_with(bk, monkeypatch, gaps, least, own=-9.0, **settings):
    """Polish four clusters where the gap of k clusters is `gaps[k]`, at a log alpha of -5."""
    W, leaf = strayed()
    children = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13)]
    log_p = np.array([-math.inf, -30, -20, own, -0.4, -0.3, -0.2, -0.1])
    tree = Tree.of(bk.asarray(leaf, dtype=np.int32), children, log_p, np.zeros(8))
    tested = {}

    def gap_of(_, labels, k):
        tested[k] = bk.to_numpy(labels)
        return Gap(*gaps[k], 0.0, 0.0, 0.0)

    monkeypatch.setattr(polishing, "gap_by_cut_test", gap_of)
    graphs = CutGraphs(bk.sparse.csr_matrix(W))
    found = polished_tree(graphs, tree, 4, least, -5.0, **settings)
    return tree, tested, *found


def test_clusters_are_merged_while_a_gap_is_not_clear_and_rows_get_the_leaf_near_them(
    bk, monkeypatch
):
    gaps = {4: (-1.0, (1, 3)), 3: (-4.9, (0, 1)), 2: (-5.0, (0, 1))}
    before, tested, tree, shares, given_up = polished_with(bk, monkeypatch, gaps, 1)
    assert given_up == [-1.0, -4.9]
    np.testing.assert_array_equal(tree.log_p, [-math.inf, -5.0, -4.9, -1.0, -0.4, -0.3, -0.2, -0.1])
    cluster = before.clusters(4)
    for k in (
        3,
        2,
    ):  # the two on the sides of the gap are one then, and the others keep their order
        a, b = gaps[k + 1][1]
        united, of_leaf = (np.where(x == b, a, x) for x in (tested[k + 1], cluster))
        np.testing.assert_array_equal(tested[k], united - (united > b))
        cluster = of_leaf - (of_leaf > b)
    assert sorted(tested) == [2, 3, 4]
    labels = bk.to_numpy(tree.labels(2))
    assert adjusted_rand_score(labels, tested[2]) == 1
    np.testing.assert_array_equal(bk.to_numpy(shares).argmax(axis=1), labels)
    W, leaf = strayed()
    ends = dense_walks(W.toarray()) @ np.eye(8)[leaf]
    inside = cluster == tested[2][:, None]
    moved = ~inside[np.arange(240), leaf]
    assert 0 < moved.sum() < 20
    expected = np.where(moved, np.where(inside, ends, -1).argmax(axis=1), leaf)
    np.testing.assert_array_equal(bk.to_numpy(tree.leaf), expected)


def test_no_fewer_than_the_least_clusters_are_left(bk, monkeypatch):
    gaps = {4: (-1.0, (1, 3)), 3: (-0.5, (0, 1))}
    _, tested, tree, shares, given_up = polished_with(bk, monkeypatch, gaps, 3)
    assert given_up == [-1.0]
    assert tree.log_p[2:4].tolist() == [-0.5, -1.0]
    assert adjusted_rand_score(bk.to_numpy(tree.labels(3)), tested[3]) == 1
    assert shares.shape == (240, 3)


def test_a_single_cluster_has_no_p(bk, monkeypatch):
    gaps = dict.fromkeys((2, 3, 4), (-1.0, (0, 1)))
    _, _, tree, shares, given_up = polished_with(bk, monkeypatch, gaps, 1)
    assert given_up == [-1.0] * 3
    assert tree.log_p[:4].tolist() == [-math.inf, -1.0, -1.0, -1.0]
    np.testing.assert_array_equal(bk.to_numpy(shares), np.ones((240, 1)))


@pytest.mark.parametrize(
    ("own", "gap", "stay"),
    [(-9.0, -5.0, False), (-9.0, -4.9, True), (-1.0, -1.0, False), (-1.0, -0.9, True)],
)
def test_clusters_stay_where_polishing_takes_a_clear_gap_away(bk, monkeypatch, own, gap, stay):
    gaps = {4: (gap, (0, 1))}
    before, tested, tree, shares, given_up = polished_with(bk, monkeypatch, gaps, 4, own)
    labels = bk.to_numpy(before.labels(4)) if stay else tested[4]
    assert given_up == []
    assert tree.log_p[3] == (own if stay else gap)
    assert adjusted_rand_score(bk.to_numpy(tree.labels(4)), labels) == 1
    assert (adjusted_rand_score(FOUR_Y, labels) == 1) == (not stay)
    own_share = bk.to_numpy(shares)[np.arange(240), bk.to_numpy(tree.labels(4))]
    assert (own_share > 0.5).all()
    if stay:
        np.testing.assert_array_equal(own_share, 1)  # whatever is around them


def test_without_polishing_clusters_are_neither_changed_nor_tested(bk, monkeypatch):
    before, tested, tree, shares, given_up = polished_with(bk, monkeypatch, {}, 1, polish=False)
    assert not tested
    assert not given_up
    np.testing.assert_array_equal(tree.log_p, before.log_p)
    labels = bk.to_numpy(before.labels(4))
    np.testing.assert_array_equal(bk.to_numpy(tree.labels(4)), labels)
    np.testing.assert_array_equal(bk.to_numpy(tree.leaf), bk.to_numpy(before.leaf))
    ends = dense_walks(strayed()[0].toarray()) @ np.eye(4)[labels]
    np.testing.assert_allclose(bk.to_numpy(shares), ends, rtol=1e-6)


# -- what a search makes of its trees -------------------------------------------------------------


def levels(*log_p, ratio=0.5):
    """Return what a tree says of 2, 3, ... clusters; the ratio is the same at each level."""
    log_p = np.array([-math.inf, *log_p])
    return SimpleNamespace(log_p=log_p, n_leaves=len(log_p), ratio=np.full(len(log_p), ratio))


def test_p_of_k_is_the_least_of_all_trees_and_of_all_finer_levels():
    rng = np.random.default_rng(0)
    for _ in range(20):
        trees = [levels(*np.round(-9 * rng.random(n), 2)) for n in rng.integers(6, size=3)]
        found = search_module._searched_log_p(trees)
        assert found[0] == -math.inf
        assert len(found) == max(tree.n_leaves for tree in trees)
        for k in range(2, len(found) + 1):
            assert found[k - 1] == min(p for tree in trees for p in tree.log_p[k - 1 :])


@pytest.mark.parametrize(
    ("trees", "jumps", "least", "k", "chosen"),
    [
        ([(-9, -1, -5, -4), (-9, -6)], {}, 1, 4, 0),  # at alpha
        ([(-9, -1, -4.9), (-9, -6)], {}, 1, 3, 1),
        ([(-9, -1, -6), (-9, -8, -7)], {}, 1, 4, 1),  # the less p
        ([(-9, -6), (-9, -1, -6)], {4: 0.0}, 1, 3, 0),  # a jump
        ([(-9, -1, -6), (-9, -1, -5.5)], {4: 0.0}, 1, 2, 0),  # in both, one after the other
        ([(-9, -1, -6)], {4: -5.0}, 1, 4, 0),
        ([(-9, -1, -6)], {4: 0.0}, 4, 4, 0),  # so many are asked for
        ([(-1, -1, -1)], {}, 1, 1, 0),
        ([(-9, -1, -1), (-9, -2, -2)], {}, 3, 3, 1),
        ([(-9, -1, -1), (-9, -2)], {}, 9, 4, 0),  # there are no more
    ],
)
def test_the_most_clusters_that_pass_are_taken_unless_that_is_a_jump(
    monkeypatch, trees, jumps, least, k, chosen
):
    trees, asked = [levels(*log_p) for log_p in trees], []

    def without_jumps(_, tree, level, log_alpha):
        assert log_alpha == -5.0
        asked.append(level)
        return jumps.get(level, tree.log_p[level - 1])

    monkeypatch.setattr(search_module, "log_p_without_jumps", without_jumps)
    found = search_module._searched_tree_of_most_clusters(None, trees, least, -5.0)
    assert found[0] is trees[chosen]
    assert found[1] == k
    assert all(level > max(least, 1) for level in asked)


def test_of_trees_of_equal_p_the_one_of_the_least_ratio_is_taken():
    trees = [levels(-9, -6), levels(-9, -6, ratio=0.4), levels(-9, -5.9, ratio=0.1), levels(-20)]
    trees[1].ratio[:2] = 0.9  # of coarser levels
    assert search_module._searched_tree_of_least_p(trees, 3) is trees[1]
    assert search_module._searched_tree_of_least_p(trees, 2) is trees[3]


def test_a_fixed_number_is_that_of_the_first_tree_where_it_is_clear_else_of_the_first():
    trees = [levels(-9), levels(-9, -4), levels(-9, -5), levels(-9, -8)]
    assert search_module._first_clear_tree_of_search(trees, 3, -5.0) is trees[2]
    assert search_module._first_clear_tree_of_search(trees, 3, -7.0) is trees[3]
    assert search_module._first_clear_tree_of_search(trees, 3, -8.1) is trees[1]
    assert search_module._first_clear_tree_of_search(trees, 2, -5.0) is trees[0]


def searched(monkeypatch, log_p, gaps=(), end=None, attainable=-99.0, **settings):
    """Search where the trees, what polishing gives up, and the least p that can be are known.

    `log_p` has that of 2, 3, ... clusters of a tree of thirty rows. Returns the result, what was
    polished, and the warnings.
    """
    n, told, settled = len(log_p) + 1, {}, []
    children = [(0 if i == 1 else n + i - 2, i) for i in range(1, n)]
    leaf = np.arange(30, dtype=np.int32) % n
    tree = Tree.of(leaf, children, np.array([-math.inf, *log_p]), np.zeros(n))
    own = SimpleNamespace(
        n_distinct=30, n_rows=30, attainable_log_p=lambda: attainable, forget=lambda: None
    )

    def settle(_, merged, k, least, log_alpha, *, polish):
        assert log_alpha == -5.0
        settled.append((k, least, polish))
        given_up = list(gaps) if polish and k > least else []
        return (
            merged._replace(log_p=merged.log_p.copy()),
            np.zeros((30, k - len(given_up))),
            given_up,
        )

    for name in ("test", "the_limit", "many_clusters", "the_time"):
        name = f"warn_of_{name}" if name != "test" else "warn_of_the_test"
        monkeypatch.setattr(
            search_module, name, lambda *a, name=name, **b: told.update({name: (a, b)})
        )
    monkeypatch.setattr(search_module, "_search_trees", lambda *_: ([tree], "pairs", end, "known"))
    monkeypatch.setattr(search_module, "polished_tree", settle)
    monkeypatch.setattr(search_module, "log_p_without_jumps", lambda _, t, k, __: t.log_p[k - 1])
    clock = QUIET
    found = search_module.search(own, None, clock, alpha=math.exp(-5.0), **settings)
    return found, settled, told


MANY = [-9.0, -7.0, -1.0, *[-0.5] * 30][:24]  # of 2, 3, ... 25 clusters


@pytest.mark.parametrize(
    ("settings", "k", "levels", "settled"),
    [
        ({}, 3, (1, 10), [(3, 1, True)]),
        ({"gaps": [-3.0]}, 2, (1, 10), [(3, 1, True)]),
        ({"gaps": [-3.0, -2.0]}, 1, (1, 10), [(3, 1, True)]),
        ({"full_path": True}, 3, (1, 25), [(3, 1, True)]),
        ({"max_clusters": 8}, 3, (1, 8), [(3, 1, True)]),
        ({"max_clusters": 8, "full_path": True}, 3, (1, 8), [(3, 1, True)]),
        ({"max_clusters": 3}, 3, (1, 3), [(3, 1, True)]),
        ({"max_clusters": 2}, 2, (1, 2), [(3, 1, True), (2, 2, True)]),
        ({"min_clusters": 2}, 3, (2, 10), [(3, 2, True)]),
        ({"min_clusters": 3}, 3, (3, 10), [(3, 3, True)]),
        ({"min_clusters": 7}, 7, (7, 14), [(7, 7, True)]),
        ({"min_clusters": 26}, 25, (25, 25), [(25, 25, True)]),
        ({"min_clusters": 2, "max_clusters": 2}, 2, (2, 2), [(3, 2, True), (2, 2, True)]),
        ({"n_clusters": 4}, 4, (4, 4), [(4, 4, True)]),
        ({"n_clusters": 1}, 1, (1, 1), [(1, 1, True)]),
        ({"n_clusters": 26}, 25, (25, 25), [(25, 25, True)]),
    ],
)
def test_the_answer_and_its_path_keep_to_the_limits(monkeypatch, settings, k, levels, settled):
    found, asked, told = searched(monkeypatch, MANY, **settings)
    assert found.n_clusters == k == len(np.unique(found.labels))
    assert asked == settled
    assert (found.path[0].k, found.path[-1].k) == levels
    assert found.membership.shape == (30, k)
    assert found.eigenpairs == "pairs"
    limited = settings == {"max_clusters": 2}
    assert found.limit_reached == limited
    assert ("warn_of_the_limit" in told) == limited
    assert [step.k for step in found.path if step.reason.endswith("reached")] == [2] * limited
    assert ("warn_of_many_clusters" in told) == ("n_clusters" not in settings)
    fixed = "n_clusters" in settings or settings.get("max_clusters") == settings.get(
        "min_clusters", 0
    )
    assert ("warn_of_the_test" in told) == (not fixed)
    for step in found.path:
        assert step.accepted == (step.k <= k)
        assert step.log_p_level == found.tree.log_p[step.k - 1]
        assert step.pair == (found.tree.next_pair(step.k) if step.k > 1 else None)


@pytest.mark.parametrize(
    ("log_p", "gaps", "expected"),
    [
        ([-9, -7, -1, -2], [], [-math.inf, -9, -7, -2, -2]),  # that of finer clusters, if less
        ([-1, -7, -2, -3], [], [-math.inf, -7, -7, -3, -3]),
        ([-9, -7, -1, -2], [-3.0], [-math.inf, -9, -3, -2, -2]),  # no longer clear
        ([-9, -7, -1, -2], [-0.5], [-math.inf, -9, -0.5, -0.5, -0.5]),
        ([-8, -9, -1, -2], [-3.0, -4.0], [-math.inf, -4, -3, -2, -2]),
    ],
)
def test_the_p_that_decides_rises_with_k(monkeypatch, log_p, gaps, expected):
    found, _, _ = searched(monkeypatch, log_p, gaps)
    assert [step.log_p for step in found.path] == expected


@pytest.mark.parametrize(("attainable", "powerless"), [(-4.9, True), (-5.0, False)])
def test_a_search_without_power_says_so_if_it_finds_no_more_than_it_has_to(
    monkeypatch, attainable, powerless
):
    for least, log_p in ((1, [-1.0] * 5), (3, [-9.0, -1.0, -1.0, -1.0])):
        settings = {"min_clusters": least, "attainable": attainable}
        found, _, told = searched(monkeypatch, log_p, **settings)
        assert found.n_clusters == least
        assert told["warn_of_the_test"][1] == {"powerless": powerless}
        rejected = {step.reason for step in found.path if step.k > least}
        assert (rejected == {NO_POWER}) == powerless
        assert NO_POWER not in [step.reason for step in found.path if step.k <= least]
    found, _, told = searched(monkeypatch, [-9.0, -1.0], attainable=attainable)
    assert told["warn_of_the_test"][1] == {"powerless": False}


def test_a_search_that_is_out_of_time_polishes_nothing(monkeypatch):
    found, settled, told = searched(monkeypatch, MANY, end="late", gaps=[-3.0])
    assert settled == [(3, 1, False)]
    assert told["warn_of_the_time"][0] == ("late", "known")
    assert [step.k for step in found.path if step.reason.endswith(TIME_IS_UP)] == [3]


def trees_searched(monkeypatch, m, rounds, n_clusters=None, least=1, most=None):
    """Search trees of which each round's are known; return the result and what was cut."""
    wish = search_module._SearchRequest(-5.0, n_clusters, least, most or n_clusters or m)
    graphs = SimpleNamespace(
        n_distinct=m,
        n_rows=m,
        one_part=lambda: np.zeros(m, dtype=np.int32),
        forget=lambda: None,
    )
    cut, told, rounds = [], [], iter(rounds)

    def grow(_, __, wanted, n_vectors, seed, ___, pairs, trees):
        assert seed == 7
        assert n_vectors >= n_fragment_eigenvectors(wanted, m)
        cut.append(wanted)
        found, ends = next(rounds)
        pairs[:] = [f"pairs {len(cut)}"]
        trees |= {wanted[place]: tree for place, tree in found.items()}
        if ends:
            raise OutOfTime(TimeLimit(1.0))

    monkeypatch.setattr(search_module, "grow_trees", grow)
    clock = SimpleNamespace(stop=lambda *what: told.append(what))
    found = search_module._search_trees(graphs, lambda n: f"pairs of {n}", wish, 7, clock)
    return *found, cut, told


def test_the_graph_is_cut_more_finely_while_many_clusters_pass(monkeypatch):
    few, many, most = (levels(*[-9.0] * (n - 1), -1.0) for n in (3, 31, 61))
    rounds = [({1: many, 0: few}, False), ({0: most}, False), ({0: few}, False)]
    trees, pairs, end, known, cut, told = trees_searched(monkeypatch, 10_000, rounds)
    assert (trees, pairs, end, known) == ([few, many, most, few], "pairs 3", None, "")
    assert cut[0] == list(RESOLUTIONS)
    assert [[one.n_fragments for one in wanted] for wanted in cut[1:]] == [[120], [240]]
    assert [what[1] for what in told] == [f"{n} clusters pass" for n in ("3, 31", 61, 3)]
    for settings in ({"most": 30}, {"least": 2, "most": 15}):
        *_, cut, _ = trees_searched(monkeypatch, 10_000, [({0: many}, False)], **settings)
        assert cut == [fragment_resolutions(10_000, settings.get("least", 1))]


CLEAR = [-9.0, -8.0, *[-0.1] * 17]  # three of twenty clusters pass, and the others look like one


def split_off(order, log_p=CLEAR):
    """Make a tree of twenty leaves; leaf order[i] is split off as cluster i + 1."""
    leaf = np.repeat(np.arange(20, dtype=np.int32), [10, 11, 12, *[10] * 17])
    n, node, children = 20, order[0], []
    for other in order[:0:-1]:
        children.append((node, other))
        node = n + len(children) - 1
    return Tree.of(leaf, children, np.array([-math.inf, *log_p]), np.zeros(n))


PLAIN = [*range(20)]


@pytest.mark.parametrize(
    ("second", "settings", "enough"),
    [
        (PLAIN, {}, True),
        ([0, 1, 2, *range(19, 2, -1)], {}, True),  # which differs in finer levels only
        ([0, 2, 1, *range(3, 20)], {}, True),  # and here in the coarser one
        ([0, 1, 3, 2, *range(4, 20)], {}, False),
        (PLAIN, {"least": 3}, True),
        (PLAIN, {"least": 4}, False),
        (PLAIN, {"most": 2}, True),
    ],
)
@pytest.mark.parametrize("m", [720, 2047, 2048])
def test_other_resolutions_are_left_out_if_the_first_two_end_in_the_same_clusters(
    monkeypatch, m, second, settings, enough
):
    two, rest = [split_off(PLAIN), split_off(second)], levels(-9, -9, -9, -9)
    wanted = fragment_resolutions(m, settings.get("least", 1))
    first = [FragmentResolution(signed=True, n_fragments=n) for n in (20, 60)]
    left = [one for one in wanted if one not in first]
    rounds = [(dict(enumerate(two)), False), (dict.fromkeys(range(len(left)), rest), False)]
    expected = [first] if enough else [first, left]
    if m >= 2048:  # all at once
        enough, expected = False, [wanted]
        grown = dict(zip(wanted, [rest] * len(wanted), strict=True))
        grown |= dict(zip(first, two, strict=True))
        rounds = [(dict(enumerate(grown.values())), False)]
    trees, *_, cut, _ = trees_searched(monkeypatch, m, rounds, **settings)
    assert cut == expected
    for one, tree in zip(first if enough else wanted, trees, strict=True):
        assert tree is (two[first.index(one)] if one in first else rest)


@pytest.mark.parametrize(
    "log_p",
    [
        [-9.0, *[-0.1] * 18],  # two clusters
        [-9.0, -8.0, -0.7, *[-0.1] * 16],  # p is less than one half with four
        [-9.0, -8.0, *[-0.1] * 16, -0.7],  # or with more
        [-0.1] * 19,
    ],
)
def test_resolutions_do_not_agree_if_one_has_other_clusters_or_a_sign_of_more(monkeypatch, log_p):
    rest = levels(-9, -9, -9, -9)
    for first in ([CLEAR, log_p], [log_p, CLEAR], [log_p, log_p]):
        two = [split_off(PLAIN, own) for own in first]
        if log_p[0] == -9 and log_p[1] == -0.1 and first[0] is first[1]:
            continue  # these agree
        rounds = [(dict(enumerate(two)), False), (dict.fromkeys(range(4), rest), False)]
        trees, *_, cut, _ = trees_searched(monkeypatch, 1000, rounds)
        assert trees == [rest, rest, *two, rest, rest]
        assert [len(wanted) for wanted in cut] == [2, 4]
        assert {*cut[0], *cut[1]} == {*RESOLUTIONS}


@pytest.mark.parametrize("n_leaves", [3, 30])
def test_for_a_given_k_other_resolutions_follow_if_gaps_of_the_first_are_not_clear(
    monkeypatch, n_leaves
):
    clear, unclear = levels(*[-9.0] * 30), levels(*[-1.0] * (n_leaves - 1))
    first, *others = fragment_resolutions(10_000, 30, 30)
    trees, *_, cut, _ = trees_searched(monkeypatch, 10_000, [({0: clear}, False)], n_clusters=30)
    assert (trees, cut) == ([clear], [[first]])
    rounds = [({0: unclear}, False), ({2: clear, 0: unclear}, False)]
    trees, pairs, end, _, cut, _ = trees_searched(monkeypatch, 10_000, rounds, n_clusters=30)
    assert (trees, pairs, end) == ([unclear, unclear, clear], "pairs 2", None)
    assert cut == [[first], others]


@pytest.mark.parametrize("settings", [{"most": 1}, {"n_clusters": 1}, {"m": 1}])
def test_one_cluster_needs_no_fragments(monkeypatch, settings):
    settings = {"m": 40, "rounds": []} | settings
    trees, pairs, end, _, cut, _ = trees_searched(monkeypatch, **settings)
    assert ([tree.n_leaves for tree in trees], pairs, end, cut) == ([1], "pairs of 1", None, [])


def test_out_of_time_the_trees_that_are_complete_are_known(monkeypatch):
    few, many = (levels(*[-9.0] * (n - 1), -1.0) for n in (3, 31))
    rounds = [({0: few, 2: many}, False), ({}, True)]
    trees, pairs, end, known, *_ = trees_searched(monkeypatch, 10_000, rounds)
    assert trees == [few, many]
    assert (pairs, type(end)) == ("pairs 2", OutOfTime)
    assert known.startswith("2 of 7 divisions into fragments were merged")
    trees, _, _, known, *_ = trees_searched(monkeypatch, 10_000, [({4: few, 1: many}, True)])
    assert trees == [many, few]
    assert known.startswith("2 of 6 divisions into fragments were merged")
    with pytest.raises(OutOfTime):
        trees_searched(monkeypatch, 10_000, [({}, True)])


# -- resolutions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [3, 30, 100, 500, 10_000])
@pytest.mark.parametrize("least", [1, 2, 25, 300])
def test_fragments_are_at_least_so_many_as_clusters_and_of_twelve_rows(m, least):
    found = fragment_resolutions(m, least)
    assert len(set(found)) == len(found)
    for one in found:
        assert least <= one.n_fragments <= min(m, max(2, m // 12, least))
    if m >= 10_000:
        assert max(one.n_fragments for one in found) >= 2 * least
        assert set(found) <= {*RESOLUTIONS, *found[-3:]}
    if m >= least:
        assert found or least == 1


@pytest.mark.parametrize(
    ("m", "least", "exactly", "signed", "unsigned"),
    [
        (720, 1, None, [8, 15, 20, 60, 5], [30]),
        (719, 1, None, [8, 15, 20, 59, 5], [30]),
        (359, 1, None, [8, 15, 20, 29, 5], [29]),
        (36, 1, None, [3], [3]),
        (35, 1, None, [2], [2]),
        (2, 1, None, [2], [2]),
        (1, 1, None, [], []),
        (720, 9, None, [15, 20, 60], [30]),
        (720, 8, None, [8, 15, 20, 60], [30]),
        (2000, 30, None, [60], [30]),
        (2000, 31, None, [60, 120], []),
        (720, 31, None, [60], []),
        (720, 61, None, [61], []),
        (61, 61, None, [61], []),
        (720, 3, 3, [3, 6, 12], [3]),
        (60, 3, 3, [3, 5], [3]),
        (12, 3, 3, [3], [3]),
        (720, 1, 1, [], []),
    ],
)
def test_resolutions_suit_the_rows_and_the_clusters_wanted(m, least, exactly, signed, unsigned):
    found = fragment_resolutions(m, least, exactly)
    assert [one.n_fragments for one in found if one.signed] == signed
    assert [one.n_fragments for one in found if not one.signed] == unsigned
    assert {one.n_columns for one in found if not one.signed} <= {min(50, 4 * (exactly or 50))}


def test_signed_fragments_need_as_many_eigenvectors_and_others_their_columns():
    few, many, unsigned = (
        FragmentResolution(signed=signed, n_fragments=n)
        for signed, n in ((True, 8), (True, 60), (False, 30))
    )
    assert n_fragment_eigenvectors([few], 1000) == 8
    assert n_fragment_eigenvectors([many, few], 1000) == 60
    assert n_fragment_eigenvectors([few, unsigned], 1000) == 50
    assert n_fragment_eigenvectors([few, unsigned._replace(n_columns=12)], 1000) == 12
    assert [n_fragment_eigenvectors([few], m) for m in (9, 8, 2, 1)] == [8, 7, 1, 1]
    assert n_fragment_eigenvectors([], 1000) == 1


def test_fragments_are_directions_if_signed_and_else_magnitudes_of_coordinates(bk):
    rng = np.random.default_rng(0)
    angle = np.repeat([0.2, 1.3, 0.2 + np.pi, 1.3 + np.pi], 25) + rng.uniform(-0.05, 0.05, 100)
    length = np.tile([0.01, 1.0], 50)
    vectors = np.c_[length * np.cos(angle), length * np.sin(angle), np.zeros((100, 58))]
    vectors[:, 50] = rng.choice([-5, 5], size=100)  # beyond those that are used
    values = bk.asarray(np.r_[1.0, -1.0, np.ones(58)])
    vectors, side = bk.asarray(vectors), np.repeat(range(4), 25)

    def cut(n, *, signed, **columns):
        wanted = FragmentResolution(signed, n, **columns)
        labels, k = fragments(values, vectors, wanted, seed=0)
        assert k == n
        return bk.to_numpy(labels)

    assert adjusted_rand_score(cut(4, signed=True), side) == 1
    magnitudes = np.where(length < 0.5, 2, side % 2)
    assert adjusted_rand_score(cut(3, signed=False), magnitudes) == 1
    halves = np.abs(np.cos(angle)) * length > 0.5 * np.cos(0.2)
    assert adjusted_rand_score(cut(2, signed=False, n_columns=1), halves) == 1


def test_columns_count_by_the_root_of_their_eigenvalues_magnitude(bk):
    sides = np.array([np.repeat([-1.0, 1], 50), np.tile([-1.0, 1], 50)])
    vectors = bk.asarray(np.array([[1], [3]]) * sides).T  # so the second is wider from 1/9 on
    wanted = FragmentResolution(signed=True, n_fragments=2)
    for value, widest in ((0.0, 0), (0.07, 0), (-0.07, 0), (0.2, 1), (-0.2, 1)):
        labels, _ = fragments(bk.asarray(np.array([-1.0, value])), vectors, wanted, seed=0)
        assert adjusted_rand_score(bk.to_numpy(labels), sides[widest]) == 1
    zero = fragments(bk.asarray(np.array([1.0, 0.0])), 0 * vectors, wanted, seed=0)
    assert zero[1] == 1  # all rows are at 0


def test_where_many_clusters_are_found_the_graph_is_cut_finer():
    done = list(RESOLUTIONS)
    while more := finer_fragment_resolutions(done, 100_000, 500):
        assert len(more) == 1
        assert more[0].n_fragments == 2 * max(one.n_fragments for one in done)
        done = more
    assert done[0].n_fragments >= 2 * 500
    assert finer_fragment_resolutions(list(RESOLUTIONS), 100_000, 30) == []
    assert finer_fragment_resolutions(list(RESOLUTIONS), 12 * 60, 60) == []
    two = FragmentResolution(signed=True, n_fragments=2)
    assert finer_fragment_resolutions([two], 35, 2) == []
    assert finer_fragment_resolutions([two], 36, 2) == [two._replace(n_fragments=3)]


# -- sets whose answer is known -------------------------------------------------------------------


def test_more_than_fifty_clusters_are_found():
    rng = np.random.default_rng(0)
    centers = 12 * np.stack(np.meshgrid(range(11), range(5)), axis=-1).reshape(-1, 2)
    y = np.repeat(np.arange(55), 25)
    model = on_host(centers[y] + rng.normal(size=(y.size, 2)))
    assert model.n_clusters_ == 55
    assert adjusted_rand_score(model.labels_, y) == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_small_clusters_beside_a_large_one_are_found(seed):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(9), [1500, *[25] * 8])
    angle = 2 * np.pi * np.arange(8) / 8
    centers = np.concatenate([[[0, 0]], 14 * np.c_[np.cos(angle), np.sin(angle)]])
    model = on_host(centers[y] + rng.normal(size=(y.size, 2)) * np.where(y > 0, 0.8, 1)[:, None])
    assert model.n_clusters_ == 9
    assert adjusted_rand_score(model.labels_, y) > 0.99


def test_clusters_smaller_than_a_wide_neighbourhood_are_found():
    rng = np.random.default_rng(0)
    centers = 12 * np.stack(np.meshgrid(range(3), range(3)), axis=-1).reshape(-1, 2)
    model = on_host(np.repeat(centers, 24, axis=0) + rng.standard_normal((216, 2)))
    assert model.n_clusters_ == 9


@pytest.mark.parametrize("apart", [4, 6])
def test_two_clusters_that_are_mirror_images_are_two(apart):
    """The second eigenvector has the same magnitudes in both."""
    half = np.random.default_rng(apart).normal(size=(400, 20))
    half[:, 0] += apart / 2
    model = on_host(np.concatenate([half, -half]))
    assert model.n_clusters_ == 2
    same = (model.labels_ == np.repeat([0, 1], 400)).mean()
    assert max(same, 1 - same) > norm.cdf(apart / 2) - 0.02  # of the best rule there is


def test_a_set_beside_its_negative_is_two_of_each():
    X = np.abs(FOUR + 12)
    model = on_host(np.concatenate([X, -X]))
    assert model.n_clusters_ == 8
    assert adjusted_rand_score(model.labels_, np.concatenate([FOUR_Y, FOUR_Y + 4])) == 1


def planted(k, size, within, across, seed):
    rng, block = np.random.default_rng(seed), np.repeat(np.arange(k), size)
    W = np.triu(rng.random((k * size,) * 2) < np.where(block[:, None] == block, within, across), 1)
    return sparse.csr_matrix((W + W.T).astype(float)), block


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("k", "within", "across"), [(3, 0.5, 0.05), (5, 0.3, 0.01)])
def test_planted_parts_of_a_graph_are_found(k, within, across, seed):
    W, block = planted(k, 100, within, across, seed)
    model = on_host(W, affinity="precomputed")
    assert model.n_clusters_ == k
    assert adjusted_rand_score(model.labels_, block) > 0.98


def test_a_barbell_is_two(bk):
    side = np.repeat([0, 1], 40)
    W = np.kron(np.eye(2), np.ones((40, 40))) - np.eye(80)
    W[39, 40] = W[40, 39] = 1
    model = fit_on(bk, W, affinity="precomputed", n_clusters=2)
    assert adjusted_rand_score(bk.to_numpy(model.labels_), side) == 1
    noise = np.random.default_rng(0).uniform(0.95, 1, size=(80, 80))  # an order of the rows
    model = fit_on(bk, W * (noise + noise.T) / 2, affinity="precomputed")
    assert model.n_clusters_ == 2
    assert adjusted_rand_score(bk.to_numpy(model.labels_), side) == 1


@pytest.mark.parametrize("X", [FOUR, MOONS], ids=["blobs", "moons"])
def test_k_turns_neither_on_the_seed_nor_on_the_order_of_rows(X):
    expected = on_host(X)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        for model in (on_host(X, random_state=seed), on_host(X[order], random_state=seed)):
            assert model.n_clusters_ == expected.n_clusters_
        assert adjusted_rand_score(model.labels_, expected.labels_[order]) > 0.95


def test_k_does_not_turn_on_the_number_of_eigenvectors():
    X, y = make_moons(450, noise=0.1, random_state=0)
    for n in ("auto", 60, 200):
        model = on_host(X, n_components=n)
        assert model.n_clusters_ == 2
        assert adjusted_rand_score(model.labels_, y) > 0.9


def test_both_backends_find_the_same(bk):
    for X in (FOUR, MOONS):
        model, expected = fit_on(bk, X), on_host(X)
        assert model.n_clusters_ == expected.n_clusters_
        np.testing.assert_array_equal(bk.to_numpy(model.labels_), expected.labels_)
        np.testing.assert_array_equal(model.tree_.children, expected.tree_.children)
        np.testing.assert_allclose(model.tree_.log_p, expected.tree_.log_p, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_structureless_sets_are_seldom_split():
    """A binomial test: 60 sets at a level of 5 % have more than 9 false splits once in 700."""
    split = 0
    for seed in range(20):
        rng = np.random.default_rng([7, seed])
        for X in (rng.random((90, 2)), rng.normal(size=(90, 4)), rng.random((90, 1))):
            split += on_host(X, alpha=0.05).n_clusters_ > 1
    assert split <= 9


@pytest.mark.slow
def test_bootstrap_samples_are_seldom_split():
    split = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((250, 2))[rng.integers(250, size=250)]
        split += on_host(X, alpha=0.05).n_clusters_ > 1
    assert split <= 4  # at 5 %, more than that once in 400


# -- rows that are all alike ----------------------------------------------------------------------


@pytest.mark.parametrize(("k", "size"), [(2, 20), (2, 50), (2, 99), (12, 20)])
def test_cliques_joined_by_single_edges_are_told_apart(bk, k, size):
    W = np.kron(np.eye(k), np.ones((size, size)) - np.eye(size))
    for i in range(k if k > 2 else 1):
        a, b = i * size + size - 1, (i + 1) % k * size
        W[a, b] = W[b, a] = 1
    for seed in range(2):
        model = fit_on(bk, W, affinity="precomputed", random_state=seed)
        assert model.n_clusters_ == k
        truth = np.repeat(np.arange(k), size)
        assert adjusted_rand_score(truth, bk.to_numpy(model.labels_)) > 0.98


@pytest.mark.parametrize("name", ["complete", "star", "hypercube", "bipartite", "multipartite"])
def test_graphs_whose_rows_are_all_alike_are_one_cluster(bk, name):
    if name == "star":
        W = np.zeros((101, 101))
        W[0, 1:] = W[1:, 0] = 1
    elif name == "hypercube":
        number = np.arange(512)
        different = number[:, None] ^ number
        W = ((different > 0) & (different & (different - 1) == 0)).astype(float)
    else:
        side = np.arange(120) // {"complete": 1, "bipartite": 60, "multipartite": 40}[name]
        W = (side[:, None] != side).astype(float)
    assert fit_on(bk, W, affinity="precomputed").n_clusters_ == 1
