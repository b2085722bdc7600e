"""Progress: told to who listens, shown on terminals, silent otherwise; and interruptions."""

import io
import logging
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu import _progress as progress
from specialk_gpu._progress import logger, report_progress, show_progress, with_progress
from specialk_gpu.backend import cpu

CLOUD = np.random.default_rng(0).normal(size=(1500, 12))


def fit(bk=None, X=CLOUD, **settings):
    settings = {"backend": "numpy" if bk is None else bk.name, "random_state": 0, **settings}
    settings = {"max_clusters": 4, "n_components": 60, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(**settings).fit(X)


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_stages_tell_how_far_they_are(bk, criterion):
    said = {}
    token = progress._listener.set(
        lambda stage, done, total: said.setdefault(stage, []).append((done, total))
    )
    try:
        fit(bk, criterion=criterion)
    finally:
        progress._listener.reset(token)
    assert {"neighbours", "eigenpairs"} <= set(said)
    for told_of in said.values():
        while told_of:  # a stage may run again, as with more neighbours: then it begins anew
            done, total = zip(*told_of, strict=True)
            end = done.index(total[0])
            assert list(done[: end + 1]) == sorted(done[: end + 1])
            assert len(set(total[: end + 1])) == 1
            told_of = told_of[end + 1 :]


def test_nobody_listening_is_silent(capfd):
    fit(X=CLOUD[:300])
    assert capfd.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_bars_are_for_terminals(monkeypatch, terminal):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress():
        for done in range(4):
            report_progress("a stage", done, 3)
            time.sleep(0.2)
        report_progress("another", 1)
    out = stream.getvalue()
    assert ("a stage" in out) == terminal
    assert ("3/3" in out) == terminal
    report_progress("a stage", 1, 2)
    assert stream.getvalue() == out


def test_a_fit_has_one_bar_that_never_goes_back():
    shown = []

    class Bar:
        def __init__(self, **settings):
            self.n, self.settings = 0, settings
            shown.append([])

        def update(self, n):
            assert n >= 0
            self.n += n
            shown[-1].append(self.n)

        def set_description(self, stage, **_settings):
            shown[-1].append(stage)

        def close(self):
            pass

    bars = progress._ProgressBars(Bar)
    with progress._progress_displayed(bars):
        fit(X=np.vstack([CLOUD[:400], CLOUD[:400] + 50]))  # two components
    (one,) = shown
    stages = [word for word in one if isinstance(word, str)]
    assert list(dict.fromkeys(stages)) == [
        "graph",
        "eigenpairs",
        "fragments",
        "merging",
        "polishing",
    ]
    percents = [number for number in one if not isinstance(number, str)]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert sum(bars.expected.values()) > 0


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_a_given_graph_has_a_bar_too(criterion):
    display = progress._ProgressLines(str)
    with progress._progress_displayed(display):
        fit(X=knn_graph(CLOUD[:300]), affinity="precomputed", criterion=criterion)
    assert display.expected["graph"] == 0
    told = set(display.expected) - {"graph", "kmeans", "bounds"}  # the sweep has no known end
    assert {x for x, share in display.shares.items() if share == 1} == told


def test_what_is_piped_gets_a_line_a_minute(monkeypatch, capsys):
    clock = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.show_progress_by_minute():
        progress.expect_progress({"graph": 1.0, "eigenpairs": 3.0})
        progress.expect_progress({"graph": 1.0})  # a second plan is ignored
        for done in range(1, 11):
            clock[0] += 20
            report_progress("neighbours", done, 10)
        clock[0] += 61
        report_progress("eigenpairs", 1_500, 3_000)
        clock[0] += 61
        report_progress("alone", 7)
        progress.announce_with_progress("hear")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "neighbours: 3 of 10; about 8 % of the fit",
        "neighbours: 6 of 10; about 15 % of the fit",
        "neighbours: 9 of 10; about 22 % of the fit",
        "eigenpairs: 1,500 of 3,000; about 62 % of the fit",
        "alone: 7",
        "hear",
    ]
    progress.announce_with_progress("unheard")
    assert capsys.readouterr().err == ""


def test_verbose_fits_log_lines_where_there_is_no_terminal(monkeypatch, caplog):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress, "MINUTE", 0.0)
    fit(X=CLOUD[:400], verbose=1)
    told = [record.getMessage() for record in caplog.records]
    assert any(text.endswith(" of the fit") for text in told)
    assert sum(text.startswith("graph: 400 rows") for text in told) == 1


def test_parts_of_a_stage_are_unheard(caplog):
    said = []
    display = progress._ProgressLines(said.append)
    with progress._progress_displayed(display), progress.without_progress():
        progress.expect_progress({"graph": 1})
        report_progress("graph", 1, 1)
    assert not display.expected
    assert not said
    with show_progress(), progress.without_progress():
        logger.info("unheard")
    with show_progress():
        logger.info("heard")
    assert [record.getMessage() for record in caplog.records] == ["heard"]


def test_each_stage_ends_with_one_line_even_if_it_has_said_that_all_is_done():
    said = []
    with progress._progress_displayed(progress._ProgressStages(said.append)):
        progress.expect_progress({"graph": 1.0, "eigenpairs": 3.0})
        clock = progress.ProgressClock(cpu, {})
        report_progress("graph", 10, 10)
        clock.stop("graph", "")
        for _ in range(2):  # two components
            clock.stop("eigenpairs", "")
    assert said == [
        "graph: done; about 25 % of the fit",
        "eigenpairs: done; about 100 % of the fit",
    ]


def test_a_fit_that_may_be_long_says_so_beside_a_bar(capsys):
    with progress._progress_displayed(progress._ProgressBars(None)):
        progress.announce_with_progress("this fit may take 3 h")
    assert capsys.readouterr().err == "this fit may take 3 h\n"


def test_threads_that_overlap_leave_the_logger_as_it_was(monkeypatch):
    monkeypatch.setattr(logger, "hasHandlers", lambda: False)
    level, handlers = logger.level, list(logger.handlers)
    inside, done = threading.Event(), threading.Event()

    def first():
        with show_progress():
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(10)
    with show_progress():
        done.set()
        thread.join(10)
        assert logger.level == logging.INFO
        assert len(logger.handlers) == len(handlers) + 1
    assert (logger.level, logger.handlers) == (level, handlers)


def test_fits_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with show_progress():
        report_progress("a stage", 1, 2)
    assert fit(X=CLOUD[:500], verbose=1).n_clusters_ >= 1


def test_results_are_handed_through():
    assert list(with_progress(iter("abc"), 3, "letters")) == ["a", "b", "c"]
    assert list(with_progress(iter("abc"), 3, "")) == ["a", "b", "c"]


# -- interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["knn_graph_of", "eigenpairs", "embed", "search"])
def test_an_interruption_leaves_the_model_as_it_was(monkeypatch, stage):
    model = fit(X=CLOUD[:200])
    before = dict(vars(model))

    def interrupted(*_args, **_settings):
        raise KeyboardInterrupt

    module = "_graph_of_fit" if stage == "knn_graph_of" else "_fit"
    monkeypatch.setattr(sys.modules[f"specialk_gpu.{module}"], stage, interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(CLOUD[:150, :3])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(model.predict(CLOUD[:200]), model.labels_)


def test_threads_stop_at_the_end_of_their_chunk(monkeypatch):
    monkeypatch.setattr("specialk_gpu.backend.cpu.threads.n_threads", lambda: 2)
    started, go = [], threading.Event()

    def work(chunk):
        started.append(chunk)
        if chunk == 0:
            raise KeyboardInterrupt
        go.wait(0.2)

    with pytest.raises(KeyboardInterrupt):
        cpu.map_chunks(work, range(50))
    go.set()
    time.sleep(0.5)
    assert len(started) < 10
