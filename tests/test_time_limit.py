"""The time limit of a fit, by a clock that stands still until a stage of the fit moves it on."""

import json
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError

from specialk_gpu import SpecialK, TimeLimitWarning, _time_limit, eigenpairs, knn_graph
from specialk_gpu._result import TIME_IS_UP
from specialk_gpu._time_limit import OutOfTime, TimeLimit, check_time_limit, stops_when
from specialk_gpu.backend import cpu
from specialk_gpu.cli import main
from specialk_gpu.inspection.verdict import doubts_about_verdict, verdict
from specialk_gpu.selection import search
from specialk_gpu.selection.cut_graphs import CutGraphs
from specialk_gpu.selection.fragments import (
    FragmentResolution,
    finest_resolutions,
    fragment_resolutions,
)
from specialk_gpu.selection.merging import merge
from specialk_gpu.selection.polishing import polished
from specialk_gpu.selection.walks import prepare_walks

LIMIT = 10.0
CENTERS = 8 * np.array([(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)])
rng = np.random.default_rng(0)
NOISE = rng.normal(size=(400, 2))
BLOBS = CENTERS[np.arange(300) % 5] + rng.normal(size=(300, 2))


class Clock:
    """A clock that shows 0 until it is moved on."""

    def __init__(self, monkeypatch):
        self.now, self.patch = 0.0, monkeypatch.setattr
        self.patch(_time_limit.time, "monotonic", lambda: self.now)

    def move_on_at(self, module, name, call=1):
        """Let the limit pass when a function of a module begins for the `call`-th time."""
        module = sys.modules[f"specialk_gpu.{module}"]
        function, n_calls = getattr(module, name), 0

        def late(*arguments, **settings):
            nonlocal n_calls
            n_calls += 1
            if n_calls == call:
                self.now = LIMIT + 2.5
            return function(*arguments, **settings)

        self.patch(module, name, late)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def fit(bk, X=BLOBS, **settings):
    settings = {"backend": bk.name, "random_state": 0, "time_limit": LIMIT, **settings}
    return SpecialK(**settings).fit(X)


def fit_warned(bk, match, **settings):
    with pytest.warns(TimeLimitWarning, match=match):
        return fit(bk, **settings)


def assert_same_fits(one, other):
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.membership_, other.membership_)
    assert one.path_ == other.path_


# -- before anything is known ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "module", "name", "stage"),
    [
        ("cut", "_graph_of_fit", "knn_graph_of", "graph"),
        ("zz_top", "_graph_of_fit", "knn_graph_of", "graph"),
        ("cut", "_fit", "eigenpairs", "eigenpairs"),
        ("zz_top", "_fit", "eigenpairs", "eigenpairs"),
        ("cut", "selection.trees", "fragments", "fragments"),
        ("cut", "selection.trees", "merge", "merging"),
        ("zz_top", "selection.sweep", "kmeans_batch", "kmeans"),
    ],
)
def test_nothing_is_known_before_a_test(bk, clock, criterion, module, name, stage):
    clock.move_on_at(module, name)
    model = SpecialK(time_limit=LIMIT)
    settings = {"criterion": criterion, "backend": bk.name, "random_state": 0, "n_components": 60}
    model.set_params(**settings, eigen_solver="chebyshev")
    words = f"time_limit=10 in the stage '{stage}', after 12.5 s, before any .* Raise time_limit"
    with pytest.raises(TimeoutError, match=words):
        model.fit(BLOBS)
    assert not any(name.endswith("_") for name in vars(model))


@pytest.mark.parametrize("solver", ["lanczos", "chebyshev"])
def test_both_solvers_ask_if_they_have_to_stop(solver):
    n_checks, last = 0, 5

    def count():
        nonlocal n_checks
        n_checks += 1
        if n_checks == last:
            raise OutOfTime(TimeLimit(1.0))

    W = knn_graph(BLOBS, 20)
    with stops_when(count), pytest.raises(OutOfTime):
        eigenpairs(W, 40, solver=solver, random_state=0)
    assert n_checks == last


# -- the cut test ---------------------------------------------------------------------------------


def test_each_round_of_polishing_and_of_merging_asks_if_it_has_to_stop(bk):
    graph, n_checks = bk.sparse.csr_matrix(knn_graph(BLOBS)), []
    labels = bk.asarray((np.arange(300) % 5).astype(np.int32))
    walks = prepare_walks(graph)
    with stops_when(lambda: n_checks.append(1)):
        polished(walks, labels, 5, rounds=3)
    assert len(n_checks) >= 3
    with stops_when(TimeLimit(-1.0)), pytest.raises(OutOfTime):
        merge(CutGraphs(graph), labels, 5)


@pytest.mark.parametrize("n_known", [1, 3])
def test_merged_trees_are_known(bk, clock, monkeypatch, n_known):
    monkeypatch.setattr(search, "_are_enough", lambda *_: False)
    with monkeypatch.context() as patch:  # the answer of those resolutions alone

        def merged_first(*given):
            wanted = fragment_resolutions(*given)
            finest = finest_resolutions(wanted, 2)
            merged = [*finest, *(one for one in wanted if one not in finest)][:n_known]
            return [one for one in wanted if one in merged]

        patch.setattr(search, "fragment_resolutions", merged_first)
        patch.setattr(search, "finer_fragment_resolutions", lambda *_: [])
        late = Clock(patch)
        late.move_on_at("selection.search", "polished_tree")
        alone = fit_warned(bk, "in the stage 'polishing'")
    clock.move_on_at("selection.trees", "merge", n_known + 1)
    found = fit_warned(bk, f"'merging', after 12.5 s. {n_known} of 6 divisions .* may be more")
    assert_same_fits(found, alone)
    assert found.n_clusters_ == 5
    reasons = [step.reason for step in found.path_ if step.reason.endswith(TIME_IS_UP)]
    assert reasons == [found.path_[4].reason]
    assert verdict(found)[0] == "limit"
    assert any(
        finding == "The time limit ended the search." for finding, _ in doubts_about_verdict(found)
    )


def test_an_answer_is_at_most_what_all_resolutions_support(bk, clock):
    whole = fit(bk)
    assert not whole.path_.is_cut_short
    clock.move_on_at("selection.trees", "merge", 2)
    found = fit_warned(bk, "merging")
    assert found.n_clusters_ <= whole.n_clusters_
    assert all(step.log_p_level <= np.log(0.05) for step in found.path_ if step.k == 5)
    counts = np.bincount(found.labels_)
    assert counts.size == found.n_clusters_
    np.testing.assert_allclose(found.membership_.sum(axis=1), 1)
    assert found.labels_at(found.n_clusters_).tolist() == found.labels_.tolist()


def test_finer_fragments_may_be_given_up(bk, clock, monkeypatch):
    finer = [FragmentResolution(signed=True, n_fragments=24)]
    monkeypatch.setattr(search, "finer_fragment_resolutions", lambda *_: finer)
    monkeypatch.setattr(search, "_are_enough", lambda *_: False)
    clock.move_on_at("selection.trees", "fragments", 7)
    found = fit_warned(bk, "in the stage 'fragments', after 12.5 s. 6 of 7 divisions")
    assert found.n_clusters_ == 5


def test_without_time_clusters_are_not_polished(bk, clock):
    clock.move_on_at("selection.search", "polished_tree")
    found = fit_warned(bk, "'polishing', after 12.5 s. The clusters were tested, but not polished")
    np.testing.assert_array_equal(found.labels_, found.tree_.labels(found.n_clusters_))
    assert found.path_[4].reason.endswith("clear gap between every two clusters" + TIME_IS_UP)


def test_a_given_k_has_a_limit_too(bk, clock):
    clock.move_on_at("selection.trees", "merge", 2)
    found = fit_warned(bk, "1 of 4 divisions", n_clusters=6)
    assert found.n_clusters_ == 6
    assert found.path_[0].reason == "fixed by n_clusters: not tested" + TIME_IS_UP


# -- the paper's rule -----------------------------------------------------------------------------


def paper(**settings):
    return {"criterion": "zz_top", "n_components": 200, "max_clusters": 7, "n_init": 3, **settings}


@pytest.fixture
def one_k_at_a_time(monkeypatch):
    monkeypatch.setattr("specialk_gpu.selection.sweep._sweep_window", lambda *_: 1)


@pytest.mark.usefixtures("one_k_at_a_time")
@pytest.mark.parametrize("stopping", ["first", "watershed"])
def test_the_path_so_far_is_known(bk, clock, stopping):
    whole = fit(bk, **paper(stopping=stopping, full_path=True))
    clock.move_on_at("selection.sweep", "kmeans_batch", 4)
    words = "in the stage 'kmeans', after 12.5 s. No k above 3 was tested"
    found = fit_warned(bk, words, **paper(stopping=stopping, full_path=True))
    assert [step.k for step in found.path_] == [1, 2, 3]
    for step, same in zip(found.path_, whole.path_.with_reason(3, TIME_IS_UP), strict=False):
        assert step.accepted == (step.k <= found.n_clusters_)
        if stopping == "watershed":  # decides by all k that were tested
            step = step._replace(accepted=same.accepted, reason=same.reason)  # noqa: PLW2901
        assert step == same
    assert found.path_[2].reason.endswith(TIME_IS_UP)
    assert found.n_clusters_ <= 3
    assert not found.limit_reached_
    assert verdict(found)[0] == "limit"


@pytest.mark.usefixtures("one_k_at_a_time")
def test_a_decision_that_was_made_stays(bk, clock):
    whole = fit(bk, NOISE, **paper(full_path=True))
    assert not whole.path_[3].accepted
    clock.move_on_at("selection.sweep", "kmeans_batch", 5)
    found = fit_warned(bk, "No k above 4 was tested", X=NOISE, **paper(full_path=True))
    assert found.n_clusters_ == whole.n_clusters_
    assert verdict(found)[0] != "limit"


@pytest.mark.parametrize(
    ("criterion", "module", "name"),
    [
        ("zz_top", "_fit", "membership_by_walks"),
        ("cut", "selection.search", "_searched_candidate"),
        ("cut", "_fit", "embed"),
    ],
)
def test_an_answer_that_is_there_is_returned(bk, clock, criterion, module, name):
    settings = paper() if criterion == "zz_top" else {}
    whole = fit(bk, **settings)
    clock.move_on_at(module, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TimeLimitWarning)
        found = fit(bk, **settings)
    assert clock.now > LIMIT
    assert_same_fits(found, whole)


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_a_limit_that_is_not_reached_changes_nothing(bk, criterion):
    settings = paper() if criterion == "zz_top" else {}
    assert_same_fits(fit(bk, **settings, time_limit=1e9), fit(bk, **settings, time_limit=None))


# -- the parameter --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "5", [5], np.bool(True)])
def test_a_limit_is_a_positive_number(value):
    with pytest.raises(InvalidParameterError, match="The 'time_limit' parameter"):
        SpecialK(time_limit=value).fit(BLOBS)


def test_a_truth_value_is_no_limit():
    with pytest.raises(TypeError, match="time_limit must be a number, got True"):
        SpecialK(time_limit=True).fit(BLOBS)


def test_the_limit_is_kept(bk, clock, tmp_path):
    clock.move_on_at("selection.trees", "merge", 2)
    model = fit_warned(bk, "merging", time_limit=np.float32(LIMIT))
    assert clone(model).time_limit == LIMIT
    model.save(tmp_path / "model.npz")
    loaded = SpecialK.load(tmp_path / "model.npz")
    assert loaded.get_params()["time_limit"] == LIMIT
    assert loaded.path_.is_cut_short
    np.testing.assert_array_equal(loaded.predict(BLOBS), model.labels_)


def test_the_command_line_has_the_limit(clock, tmp_path, capsys):
    np.save(tmp_path / "x.npy", BLOBS)
    options = ["--backend", "numpy", "--random-state", "0", "--time-limit", "10"]
    command = ["fit", str(tmp_path / "x.npy"), "--summary", str(tmp_path / "s.json"), *options]
    clock.move_on_at("selection.trees", "merge", 2)
    assert main(command) == 0
    assert "--time-limit 10 in the stage 'merging'" in capsys.readouterr().err
    content = json.loads((tmp_path / "s.json").read_text())
    assert content["parameters"]["time_limit"] == 10
    assert "Raise --time-limit" in content["warnings"][0]
    assert content["path"][content["n_clusters"] - 1]["reason"].endswith(TIME_IS_UP)


def test_a_command_without_an_answer_fails(clock, tmp_path, capsys):
    np.save(tmp_path / "x.npy", BLOBS)
    clock.move_on_at("_fit", "eigenpairs")
    command = ["fit", str(tmp_path / "x.npy"), "--backend", "numpy", "--time-limit", "10"]
    assert main(command) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("specialk-gpu: error: the fit came to --time-limit 10 in the stage")


# -- threads --------------------------------------------------------------------------------------


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr("specialk_gpu.backend.cpu.threads.n_threads", lambda: 2)


def loop_until_stopped():
    for _ in range(10_000):
        check_time_limit()
        time.sleep(0.001)
    return "not stopped"


@pytest.mark.usefixtures("two_threads")
def test_threads_end_with_their_caller():
    others, ended = threading.Event(), []

    def work(_chunk):
        if threading.current_thread() is threading.main_thread():
            others.wait(10)
            raise KeyboardInterrupt
        others.set()
        try:
            # the inner chunks are in the same thread, and end too
            cpu.map_chunks(lambda _: loop_until_stopped(), range(2))
        except BaseException as end:
            ended.append(type(end).__name__)
            raise

    with pytest.raises(KeyboardInterrupt):
        cpu.map_chunks(work, range(2))
    assert ended == ["Halted"]
    cpu.map_chunks(lambda _: check_time_limit(), range(2))  # the pool's threads can be used again


@pytest.mark.usefixtures("two_threads")
def test_the_limit_holds_in_all_threads(clock):
    started, ended = threading.Barrier(2), []

    def work(chunk):
        started.wait(10)
        clock.now = LIMIT + 1
        try:
            loop_until_stopped()
        except OutOfTime:
            ended.append(chunk)
            raise

    with stops_when(TimeLimit(LIMIT)), pytest.raises(OutOfTime):
        cpu.map_chunks(work, range(2))
    assert sorted(ended) == [0, 1]
