"""The benchmarks: who is right gets a time, and everybody is listed."""

import functools
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.suite import OURS, SIZES, STAGES, suite
from benchmarks.suite.cases import Case, Inputs, cases, mixture, prepare
from benchmarks.suite.fits import cluster_inertia, compare_inertia, plain_log_p
from benchmarks.suite.measure import ENOUGH, Contender, measure
from benchmarks.suite.neighbors import exact_neighbors
from benchmarks.suite.stages import STAGE
from specialk_gpu import knn_graph, zz_top
from specialk_gpu.backend import cpu, get_backend
from specialk_gpu.cli import main

pytestmark = pytest.mark.pages

TINY = (
    Case("knn", "mixture", 300, 8),
    Case("spmm", "mixture", 300, 8, n=20, dtype="float32"),
    Case("eigenpairs", "mixture", 300, 8, n=10),
    Case("kmeans", "mixture", 300, 8, n=10, k=3),
    Case("sweep", "mixture", 300, 8, n=10, k=3),
    Case("merging", "mixture", 300, 8),
    Case("fit", "digits", 300, 64, n=20, k=3),
)
NEED_MORE = {"ClustPy", "FAISS", "FAISS, flat", "PRIMME", "leidenalg", "pynndescent"}
PEERS = {
    "knn": ["scikit-learn", "FAISS, flat", "pynndescent", "SciPy's cKDTree"],
    "spmm": ["SciPy"],
    "eigenpairs": ["SciPy eigsh", "SciPy LOBPCG", "PRIMME"],
    "kmeans": ["scikit-learn", "FAISS"],
    "sweep": ["scikit-learn"],
    "merging": ["igraph's Leiden", "leidenalg"],
    "fit": ["scikit-learn + SciPy", "ClustPy"],
}
quiet = {"backend": "numpy", "tell": str}


def ours(case):
    return STAGE[case.stage].contenders[0]


# What a contender may do wrong; by name, since another process has to find it.


def shift_neighbors(case, data):
    return (ours(case).run(case, data) + 1) % case.m


def raise_error(_case, _data):
    msg = "no\nluck"
    raise ValueError(msg)


def end_abruptly(_case, _data):
    os._exit(3)


def sleep_for_long(_case, _data):
    time.sleep(600)


def sleep_after_the_first_call(case, data, *, mark):
    if mark.exists():
        time.sleep(600)
    mark.touch()
    return ours(case).run(case, data)


def measure_beside_ours(tmp_path, *contenders, **settings):
    """Measure ours and others on the tiny case of nearest neighbours; return the rows."""
    case = TINY[0]
    stage = STAGE["knn"]._replace(contenders=(ours(case), *contenders))
    return suite.run_case(case, folder=tmp_path, stage=stage, **quiet, **settings)


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", TINY, ids=STAGES)
def test_every_contender_is_timed_or_listed(case, tmp_path):
    rows = suite.run_case(case, folder=tmp_path, repeats=1, **quiet)
    assert [row["contender"] for row in rows] == [OURS, *PEERS[case.stage]]
    for row in rows:
        assert Case(**row["case"]) == case
        if row["contender"] in NEED_MORE and row["status"] == "not installed":
            continue
        assert row["status"] == "ok"
        assert row["cold_seconds"] > 0
        # others are not called again, but for one that compiles in its first call
        quick = row["cold_seconds"] < ENOUGH or row["contender"] == "pynndescent"
        assert row["seconds"] == ([row["warm_seconds"]] if quick else [])
        assert row["contender"] == OURS or row["times_ours"] > 0
        assert row["peak_bytes"] >= 0
    if case.stage == "fit":
        for row in rows[:2]:
            stages = ("neighbours", "graph", "eigenpairs", "embedding", "sweep")
            assert set(stages) <= set(row["stages"])
            assert all(set(warm) == set(row["stages"]) for warm in row["warm_stages"])
            assert all(row["stages"][name]["peak_bytes"] >= 0 for name in stages)
            total = sum(x["seconds"] for x in row["stages"].values())
            assert total == pytest.approx(row["cold_seconds"], rel=0.1)
    json.dumps(rows, allow_nan=False)


def test_a_wrong_answer_gets_no_time(tmp_path):
    rows = measure_beside_ours(tmp_path, Contender("shifted", shift_neighbors))
    assert rows[1]["status"] == "wrong"
    assert rows[1]["wrong_rows"] == 200
    assert not {"cold_seconds", "warm_seconds", "seconds", "times_ours"} & set(rows[1])
    assert "shifted" in suite.table(rows)


def test_ours_must_be_exact_where_others_are_counted():
    X = mixture(300, 8)
    found = exact_neighbors(cpu, X, np.arange(300), 10)[0]
    found[0, 9] = next(i for i in range(1, 300) if i not in found[0])
    check = functools.partial(STAGE["knn"].check, case=TINY[0], data=Inputs(cpu, X=X), found=found)
    rows = np.random.default_rng(1).choice(300, 200, replace=False)
    found[rows[0]] = found[0]
    assert "wrong" in check(OURS)
    other = check("other")
    assert other["wrong_rows"] >= 1
    assert 0.99 < other["recall"] < 1
    assert "wrong" not in other
    found[:, 9] = found[0, 9]
    assert check("other")["wrong"].startswith("recall 0.8")


def test_exact_neighbors_of_equal_distance_go_by_number():
    X = np.array([[0.0], [1.0], [-1.0], [2.0], [0.0], [-2.0]])
    indices, sq_distances = exact_neighbors(cpu, X, np.array([0, 3]), 3)
    assert indices.tolist() == [[4, 1, 2], [1, 0, 4]]
    assert sq_distances.tolist() == [[0, 1, 1], [1, 4, 4]]


def test_plain_bound_is_that_of_the_library():
    rng = np.random.default_rng(0)
    D = np.abs(rng.standard_normal((60, 61))) / 9
    D[:30, :20] += 1  # each cluster has columns of its own
    D[30:50, 20:40] += 1
    D[50:, 40:60] += 1
    D[:, 60] = 0
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    log_p = zz_top(D, labels)
    assert (log_p < 0).sum() == 6
    expected = log_p[np.triu_indices(3, 1)].max()
    assert plain_log_p(D, labels, 3) == pytest.approx(expected, rel=1e-10)
    assert plain_log_p(D[:50], labels[:50], 2) == pytest.approx(log_p[0, 1], rel=1e-10)


def test_inertia_is_measured_from_the_means():
    X = np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 1.0]])
    assert cluster_inertia(X, np.array([0, 0, 1]), 2) == 2.0


def test_products_and_pairs_are_checked():
    W = knn_graph(mixture(100, 8))
    Y = np.random.default_rng(0).standard_normal((100, 4))
    product = Case("spmm", "mixture", 100, 8, n=4)
    check = STAGE["spmm"].check
    assert "wrong" not in check(OURS, product, Inputs(cpu, W=W, Y=Y), W @ Y)
    assert "wrong" in check(OURS, product, Inputs(cpu, W=W, Y=Y), W @ Y * (1 + 1e-9))
    pairs = Case("eigenpairs", "mixture", 100, 8, n=4)
    values, V = np.linalg.eigh(W.toarray())
    order = np.argsort(-np.abs(values))[:4]
    check = STAGE["eigenpairs"].check
    found = check(OURS, pairs, Inputs(cpu, W=W), (values[order], V[:, order]))
    assert "wrong" not in found
    assert found["magnitudes"][-1] == pytest.approx(abs(values[order[-1]]))
    assert "wrong" in check(OURS, pairs, Inputs(cpu, W=W), (values[order], V[:, order[::-1]]))


def test_a_missed_pair_is_found_by_comparison():
    rows = {"a": {"magnitudes": [1.0, 0.9, 0.8]}, "b": {"magnitudes": [1.0, 0.8, 0.7]}}
    assert list(STAGE["eigenpairs"].compare(rows)) == ["b"]
    assert STAGE["eigenpairs"].compare({"a": rows["a"], "c": rows["a"]}) == {}


def test_our_inertia_is_held_to_that_of_the_others():
    rows = {OURS: {"inertia": [2.0, 1.03]}, "a": {"inertia": [2.2, 1.0]}}
    assert list(compare_inertia(rows)) == [OURS]
    assert compare_inertia(rows | {"a": {"inertia": [2.2, 1.025]}}) == {}
    assert list(compare_inertia(rows | {"a": {"inertia": [2.2, 1.015]}})) == [OURS]
    assert list(compare_inertia(rows | {"a": {"inertia": [1.994, 1.025]}})) == [OURS]
    assert compare_inertia(rows | {"a": {"inertia": [2.2, 1.0], "connected": False}}) == {}
    assert compare_inertia({"a": rows["a"]}) == {}


# -- processes ------------------------------------------------------------------------------------


def test_who_is_missing_or_fails_or_does_not_end_is_listed(tmp_path):
    rows = measure_beside_ours(
        tmp_path,
        Contender("missing", raise_error, ("no_such_package",)),
        Contender("refused", raise_error, refuse=str),
        Contender("raises", raise_error),
        Contender("dies", end_abruptly),
        Contender("elsewhere", raise_error, backends=("cuda",)),
        repeats=0,
    )
    found = {row["contender"]: (row["status"], row.get("detail")) for row in rows}
    assert found.pop(OURS) == ("ok", None)
    assert found == {
        "missing": ("not installed", "needs no_such_package"),
        "refused": ("skipped", str(TINY[0])),
        "raises": ("failed", "ValueError: no luck"),
        "dies": ("failed", "its process ended with 3"),
    }


def test_the_time_limit_ends_a_hopeless_contender(tmp_path):
    case = TINY[0]
    prepare(case, "numpy", None, tmp_path)
    slow = Contender("slow", sleep_for_long)
    check = STAGE["knn"].check
    row = measure(slow, check, case, backend="numpy", folder=tmp_path, time_limit=1)
    assert row == {"status": "stopped", "detail": "stopped after 1 s"}


def test_the_time_limit_keeps_what_was_measured(tmp_path, monkeypatch):
    def limited(contender, *arguments, **limits):  # ours comes first, and loads the modules
        limits |= {"time_limit": 60 if contender.name == OURS else 2}
        return measure(contender, *arguments, **limits)

    monkeypatch.setattr(suite, "measure", limited)
    once = functools.partial(sleep_after_the_first_call, mark=tmp_path / "mark")
    rows = measure_beside_ours(tmp_path, Contender("once", once))
    assert rows[1]["status"] == "ok"
    assert rows[1]["seconds"] == []
    assert rows[1]["times_ours"] > 0


def test_rows_that_are_there_are_kept(tmp_path):
    case = TINY[1]
    rows = suite.run_case(case, folder=tmp_path, repeats=0, **quiet)
    told, seen = [], []
    again = suite.run_cases(
        [case, Case("knn", "mixture", 10, 2, backend="cuda")],
        backend="numpy",
        kept=rows,
        keep=lambda found: seen.append(len(found)),
        tell=told.append,
    )
    assert again == rows
    assert seen == [1, 2, 2]
    assert len(told) == 3


# -- cases and results ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_cases_cover_the_stages_once(size):
    found = cases(size)
    assert {case.stage for case in found} == set(STAGES)
    assert len(set(found)) == len(found)
    assert not any(case.data == "mnist" for case in found)
    assert all(case.data == "mnist" for case in cases("large", mnist=True) if case.m == 60_000)


def test_command_prints_a_table_and_writes_what_was_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(suite, "cases", lambda _size, *, mnist: [] if mnist else list(TINY))
    monkeypatch.delenv("SPECIALK_MNIST", raising=False)
    out = tmp_path / "bench.json"
    command = ["bench", "--stage", "spmm", "--backend", "numpy", "--repeats", "1"]
    assert main([*command, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["stage", "spmm", "spmm"]
    assert len(printed.err.splitlines()) == 2
    content = json.loads(out.read_text())
    assert set(content) == {"stamp", "size", "backend", "rows"}
    stamp = content["stamp"]
    assert {"commit", "processor", "cores", "gpu", "threads", "date", "python"} <= set(stamp)
    assert {"numpy", "scipy", "scikit-learn"} <= set(stamp["versions"])
    assert [row["contender"] for row in content["rows"]] == [OURS, "SciPy"]
    assert main([*command, "--alone"]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_command_fails_where_we_are_stopped_and_where_files_are_missing(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(suite, "cases", lambda _size, **_: list(TINY[:1]))
    command = ["bench", "--alone", "--backend", "numpy"]
    assert main([*command, "--time-limit", "0"]) == 1
    assert "stopped after 0 s" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "no" / "x.json")]) == 2
    monkeypatch.setattr(suite, "cases", lambda _size, **_: [Case("knn", "mnist", 10_000, 784)])
    assert main([*command, "--data", str(tmp_path / "no")]) == 2
    assert "is not a folder" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_stage_is_counted(waits, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1]), *sys.path])
    from benchmarks import counts

    stage = "bounds of 30 clusters, 1,500 x 32"
    found = counts.count({"stage": stage})
    given, run = counts.STAGES[stage]()
    given = get_backend("cuda").asarray(given)
    with waits() as expected:
        run(given)
    assert (found["waits"], found["calls"]) == (expected.waits, expected.calls)
    assert found["kernels"] == dict(expected.launches)
    assert found["d2h_bytes"] == expected.bytes["d2h"]
    assert found["iterations"] == 0


def test_pages_and_figures_are_laid_out_from_results(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1]), *sys.path])
    from benchmarks import compare_page, pages, reach, stamp

    for module in (compare_page, pages):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    assert pages.benchmarks_page().count("Not measured yet.") == 6
    assert "**Nothing has been measured on a GPU yet" in pages.benchmarks_page()
    assert "Not counted yet." in pages.benchmarks_page()
    assert all(found is None for *_, found in reach.figures(tmp_path))
    fit = {
        "case": Case("fit", "mixture", 1_000_000, 128, n=200)._asdict(),
        "contender": OURS,
        "status": "ok",
        "cold_seconds": 20.0,
        "warm_seconds": 12.0,
        "seconds": [12.0],
        "peak_bytes": 1,
        "device_peak_bytes": 2e9,
        "device_bytes": 3e9,
        "stages": {name: {"seconds": 5.0, "peak_bytes": 1} for name in ("graph", "sweep")},
        "warm_stages": [{"graph": 3.0, "sweep": 9.0}],
    }
    peer = fit | {"contender": "peer", "times_ours": 2.0}
    missing = {"case": fit["case"], "contender": "x", "status": "stopped", "detail": "late"}
    process = {
        "import_seconds": 1.0,
        "backend_seconds": 1.0,
        "to_first_answer": 5.0,
        "data": "mixture",
        "n_components": 9,
        "fits": [{"seconds": 3.0, "compilations": 4, "compilation_seconds": 2.0}, {"seconds": 1.0}],
    }
    mnist = {"fits": [{"seconds": x, "stages": {"graph": x / 9}} for x in (5.0, 0.9, 0.5)]}
    for name, content in {
        "bench-fit-cuda": {"rows": [fit, peer, missing]},
        "bench-knn-cuda": {"rows": [fit | {"case": TINY[0]._asdict(), "recall": 0.995}]},
        "first_call-cuda": {"processes": {"python": 0.1}, "empty_cache": process},
        "repeat-cuda": {"data": "mixture", "same": {"labels": True}, "fits": [{}, {}]},
        "mnist-cuda": mnist,
    }.items():
        stamp.write(name, content, tmp_path)
    page = pages.benchmarks_page()
    assert page.count("Not measured yet.") == 6  # on the CPU
    assert "Nothing has been measured" not in page
    for text in ("12 s", "2,000 MB", "stopped: late", "4, 2 s", "labels: yes", "2.00", "0.9950"):
        assert text in page
    found = {name: x for name, _, _, x in reach.figures(tmp_path) if x is not None}
    assert found == {
        "exact kNN graph in a fit": 0.5 / 9,
        "whole fit, from host memory": 0.5,
        "first fit, empty kernel cache": 5.0,
        "a million points, n = 200": 12.0,
        "its memory on the device": 3.0,
    }
