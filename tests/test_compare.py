"""This library beside other methods: what is measured, who is stopped, and what the pages show."""

import argparse
import importlib.util
import json
import time

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, homogeneity_score

from benchmarks import compare, compare_page, contenders, markdown
from benchmarks.compare import CONTENDERS, OURS, REAL, TOLD_K_AND_GRAPH
from benchmarks.compare_sets import APART, SETS, Set
from benchmarks.paper.runner import read
from benchmarks.selection import PATHS
from specialk_gpu import knn_graph

pytestmark = pytest.mark.pages

X, Y = make_blobs(
    150, centers=[(0, 0), (14, 0), (0, 14)], n_features=2, cluster_std=1.0, random_state=3
)
LINUX = pytest.mark.skipif(compare.sys.platform != "linux", reason="reads the memory from /proc")


def given(**others):
    return argparse.Namespace(
        **{"only": "", "contender": "", "threads": 1, "gigabytes": 8.0, "time_limit": 60.0} | others
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two real sets, one without classes."""
    np.savez(tmp_path / "one.npz", X=X, y=Y, right=[3])
    np.savez(tmp_path / "two.npz", X=X, y=np.full(150, -1), right=[2])
    monkeypatch.setenv(PATHS["sets"], str(tmp_path))
    return tmp_path


# -- contenders -----------------------------------------------------------------------------------


@pytest.mark.parametrize("who", CONTENDERS)
@pytest.mark.filterwarnings("ignore")  # of numba and others
def test_contenders_find_clusters_that_are_far_apart(who):
    contender = CONTENDERS[who]
    for name in contender.needs:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            pytest.skip(f"needs {name}")
    _, labels = compare.timed(contender, knn_graph(X) if contender.given_graph else X, 3)
    if "eiden" in who or "UMAP" in who:  # they divide clusters, here too
        assert homogeneity_score(Y, labels) == pytest.approx(1)
    else:
        assert adjusted_rand_score(Y, labels) >= 0.95  # HDBSCAN leaves rows out


def test_verification_is_a_part_of_a_fit_with_a_given_graph():
    rng = np.random.default_rng(0)
    W = knn_graph(rng.standard_normal((1000, 3)))
    began = time.perf_counter()
    assert 0 < contenders.seconds_of_verification(W, 3) < time.perf_counter() - began
    complete = np.ones((30, 30)) - np.eye(30)  # so small that all its eigenpairs are found
    assert contenders.seconds_of_verification(sparse.csr_array(complete), 2) == 0


def test_graphs_of_contenders_are_symmetric_and_have_each_edge_once():
    A = contenders.nearest(X)
    assert (A != A.T).nnz == 0
    graph, weights = contenders.igraph_of(A * 2.0, weighted=True)
    assert graph.vcount() == 150
    assert 2 * graph.ecount() == A.nnz
    assert graph.is_simple()
    assert weights.tolist() == [2.0] * graph.ecount()
    assert all(A[i, j] for i, j in graph.get_edgelist())


@pytest.mark.parametrize("name", [name for name, own in SETS.items() if "Gaussians" in name])
def test_drawn_sets_have_the_size_that_they_say_and_clusters_apart(name):
    m, d, rows, _ = SETS[name]
    points, y = rows()
    assert points.shape == (m, d)
    means = np.stack([points[y == i].mean(axis=0) for i in range(y.max() + 1)])
    apart = np.linalg.norm(means[:, None] - means, axis=2)[np.triu_indices(len(means), 1)]
    assert apart.min() == pytest.approx(APART, abs=0.3)


def test_rows_in_no_cluster_are_counted_and_are_no_cluster():
    labels = np.where(np.arange(150) < 30, -1, Y)
    found = compare.agreement(X, Y, labels)
    assert (found["k"], found["in_none"]) == (3, 0.2)
    assert found["ari"] == adjusted_rand_score(Y, labels) < 1
    assert set(compare.agreement(X, np.full(150, -1), labels)) == {"k", "in_none"}
    with pytest.raises(ValueError, match=r"labels must have shape \(150,\), got \(149,\)"):
        compare.agreement(X, Y, Y[1:])


# -- processes ------------------------------------------------------------------------------------


@LINUX
def test_a_contender_is_measured_on_real_sets_in_one_process(folder):
    out = folder / "compare.jsonl"
    command = ["--only", REAL, "--contender", "KMeans", "--results", str(folder), "--threads", "1"]
    compare.main(command)
    (row,) = read(out)
    one, two = row["result"]["sets"]
    assert row["result"]["threads"] == 1
    assert (one["set"], one["k"], one["ari"], one["tier"]) == ("one", 3, 1.0, "")
    assert "verdict" not in one  # it was told k
    assert "skipped" in two


@LINUX
@pytest.mark.usefixtures("folder")
def test_real_sets_go_on_after_one_that_is_stopped(monkeypatch):
    monkeypatch.setattr(compare, "OF_REAL_SET", 0.0)
    found = compare.on_real_sets({"set": REAL, "contender": OURS, "gigabytes": 8.0}, 1)
    assert [row["set"] for row in found] == ["one", "two"]
    assert all(row["error"] == "no answer within 0 s" for row in found)


def test_a_process_that_fails_after_the_last_real_set_has_measured_all(folder, monkeypatch):
    rows = [{"set": path.stem, "k": 3} for path in sorted(folder.glob("*.npz"))]
    crash = compare.Stopped(late=False, why="its process ended with -11")
    monkeypatch.setattr(compare, "watched", lambda *_: (rows, crash))
    assert compare.on_real_sets({"set": REAL, "contender": OURS}, 1) == rows


def test_options_that_leave_nothing_are_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit):
        compare.main(["--only", "MNITS", "--results", str(tmp_path)])
    assert "must leave something to measure, got 'MNITS' and ''." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--threads", "--time-limit", "--gigabytes"])
def test_a_limit_that_is_not_positive_is_refused(tmp_path, capsys, option):
    with pytest.raises(SystemExit):
        compare.main([option, "0", "--results", str(tmp_path)])
    assert f"{option} must be positive, got 0" in capsys.readouterr().err


@LINUX
def test_a_process_that_fails_says_why():
    rows, ended = compare.watched({"contender": "no such one", "gigabytes": 8.0}, 60, 1)
    assert rows == []
    assert ended == compare.Stopped(late=False, why="KeyError: 'no such one'")


@LINUX
def test_a_set_is_measured_first_and_warm(monkeypatch, tmp_path):
    monkeypatch.setitem(SETS, "tiny", Set(150, 2, lambda: (X, Y)))
    monkeypatch.setattr(compare.resource, "setrlimit", lambda *_: None)
    seeds = []
    kmeans = contenders.kmeans_told_k
    told = CONTENDERS["KMeans"]._replace(run=lambda *x, seed: seeds.append(seed) or kmeans(*x))
    monkeypatch.setitem(CONTENDERS, "KMeans", told)
    alone = told._replace(run=kmeans, seeded=False)
    monkeypatch.setitem(CONTENDERS, "HDBSCAN", alone)
    task = {"set": "tiny", "gigabytes": 8}
    found = {}
    for name in ("KMeans", "HDBSCAN"):
        out = tmp_path / name
        compare.child(task | {"contender": name, "out": str(out)})
        found[name] = [json.loads(line) for line in out.read_text().splitlines()]
    assert seeds == list(range(10))
    assert [len(row["seconds"]) for row in found["HDBSCAN"]] == [0, 1, 2, 3]
    assert found["HDBSCAN"][-1]["others"] == []
    lines = found["KMeans"]
    assert [len(row["seconds"]) for row in lines] == list(range(10))
    assert [len(row["others"]) for row in lines] == list(range(10))
    assert lines[0]["warm"] is None
    assert lines[-1]["warm"] == sorted(lines[-1]["seconds"])[4]
    assert {row["ari"] for row in lines[-1]["others"]} == {1.0}
    assert lines[-1]["first"] > 0
    assert (lines[-1]["k"], lines[-1]["ari"], lines[-1]["ami"]) == (3, 1.0, 1.0)


def test_who_was_stopped_on_a_smaller_set_is_not_tried_on_a_larger_one(tmp_path):
    path = tmp_path / "compare.jsonl"
    small = {"set": "MNIST, 10,000", "contender": "HDBSCAN"}
    path.write_text(json.dumps({"task": small, "result": {"stopped": "no answer"}}) + "\n")
    large = {"set": "MNIST, 60,000", "contender": "HDBSCAN"}
    found = compare.compared(large, path=path, given=given())
    assert found["stopped"] == "not tried: stopped on MNIST, 10,000"
    assert not compare.stopped_before(large | {"contender": "KMeans"}, path)
    narrow = large | {"set": "Gaussians, 300,000 x 10"}
    assert not compare.stopped_before(narrow, path)  # it has fewer columns


def test_who_is_not_installed_is_an_error(tmp_path, monkeypatch):
    absent = CONTENDERS["HDBSCAN"]._replace(needs=("no_such_package.part",))
    monkeypatch.setitem(CONTENDERS, "HDBSCAN", absent)
    task = {"set": "pbmc68k_reduced", "contender": "HDBSCAN"}
    with pytest.raises(ModuleNotFoundError, match=r"no_such_package\.part is not installed"):
        compare.compared(task, path=tmp_path / "x.jsonl", given=given())


@pytest.mark.usefixtures("folder")
def test_tasks_are_of_sets_that_are_there(monkeypatch):
    for name in ("SPECIALK_MNIST", "SPECIALK_FASHION_MNIST"):
        monkeypatch.delenv(name, raising=False)
    found = compare.tasks(given())
    names = list(dict.fromkeys(task["set"] for task in found))
    assert REAL in names
    assert not any("MNIST" in name for name in names)
    assert len({json.dumps(task) for task in found}) == len(found)
    on_pca = {task["set"] for task in found if task["contender"] == "HDBSCAN on PCA"}
    assert on_pca == {"pbmc68k_reduced", REAL}
    monkeypatch.delenv(PATHS["sets"])
    assert [task["set"] for task in compare.tasks(given(only="1,500", contender="KM"))] == [
        "Gaussians, 1,500 x 2"
    ]


# -- pages ----------------------------------------------------------------------------------------


def test_pages_show_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(compare_page, "RESULTS", tmp_path)
    page = f"before {markdown.BEGIN}old{markdown.END} after"
    assert "Not measured yet." in compare_page.comparison(page)
    result = {"first": 2.0, "warm": 1.5, "seconds": [1.5], "peak_bytes": 5e6, "in_none": 0.0}
    result |= {"k": 10, "ari": 0.934, "ami": 0.91}
    seeds = [{"k": 12, "ari": 0.91, "ami": 0.9}, {"k": 12, "ari": 0.1, "ami": 0.1}]
    other = result | {"first": 6.0, "warm": None, "ari": 0.5, "k": 99}
    result["others"] = seeds
    real = [
        {"set": "a", "tier": "overlap", "k": 2, "ari": 0.2, "ami": 0.3, "seconds": 1.0},
        {"set": "b", "tier": "clear", "k": 3, "ari": 1.0, "ami": 1.0, "seconds": 3.0},
        {"set": "c", "tier": "", "error": "no answer within 60 s"},
    ]
    for row, verdict in zip(real, ("right", "too many"), strict=False):
        row["verdict"] = verdict
    stamp = {"versions": {}, "gpu": [], "processor": "P", "cores": 2, "python": "3", "date": "d"}
    name = "MNIST, 60,000"
    rows = [
        {"stamp": stamp},
        {"task": {"set": name, "contender": OURS}, "result": result},
        {"task": {"set": name, "contender": "SpectralClustering"}, "result": other},
        {
            "task": {"set": name, "contender": TOLD_K_AND_GRAPH},
            "result": result | {"verification": 0.25},
        },
        {"task": {"set": name, "contender": "HDBSCAN"}, "result": {"stopped": "no answer"}},
        {"task": {"set": name, "contender": "STSC"}, "error": "MemoryError: a|b"},
        {"task": {"set": REAL, "contender": OURS}, "result": {"sets": real}},
    ]
    (tmp_path / "compare.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = compare_page.beside_others()
    for words in (
        "| SpecialK | 2 s, 1.5 s |",
        "| SpecialK | 12, 0.91, 0.90 |",
        "| SpectralClustering * | 6 s |",
        "| HDBSCAN | stopped |",
        "| SpecialK | 2 | 1 of 2 | 0.600 | 0.650 | 1.000 | 2 s |",
        "- STSC, MNIST, 60,000: MemoryError: a/b",
        "This takes 0.25 s of 1.5 s (MNIST, 60,000).",
    ):
        assert words in text
    filled = compare_page.comparison(page)
    assert filled.startswith(f"before {markdown.BEGIN}\nContenders by agreement")
    assert "\nMNIST, 60,000 rows:\n" in filled
    assert "Fashion" not in filled  # was not measured
    assert filled.endswith(f"{markdown.END} after")
    assert "| SpecialK | 10 (1), 12 (2) | 0.910 | 1.5 s | 1.00 |" in filled
    assert "| SpectralClustering * | 99 (1) | 0.500 | 6 s | 4.00 |" in filled
    assert "No answer: HDBSCAN (stopped), STSC (failed)." in filled
