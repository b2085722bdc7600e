"""The command line: what it prints, writes and returns, and how it fails in one line."""

import inspect
import json
import re
import subprocess
import sys
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

import specialk_gpu
from specialk_gpu import ConvergenceError, SpecialK, _progress, backend
from specialk_gpu._result import Candidate, SelectionPath
from specialk_gpu.backend.cpu.threads import n_threads
from specialk_gpu.cli import main
from specialk_gpu.datasets import make_shape
from specialk_gpu.io.files import read_labels, write_labels

COMMAND = [sys.executable, "-m", "specialk_gpu.cli"]


@pytest.fixture
def points(tmp_path):
    X, y = make_shape("blobs", n_samples=300, random_state=0)
    np.save(tmp_path / "x.npy", X)
    write_labels(tmp_path / "y.csv", y)
    return tmp_path / "x.npy"


@pytest.fixture
def stand_in(monkeypatch):
    """Put in the estimator's place one whose `fit` does as told; return its parameters."""

    def install(fit=lambda _X: None):
        seen = {}

        class StandIn:
            n_clusters_, backend_, limit_reached_, timings_ = 2, "numpy", False, {"graph": 0.5}

            def __init__(self, **parameters):
                seen.update(parameters)

            def get_params(self):
                return {name: value for name, value in seen.items() if name != "X"}

            def fit(self, X):
                seen["X"] = X
                fit(X)
                self.labels_ = np.arange(X.shape[0], dtype=np.int32) % 2
                self.n_features_in_ = X.shape[1]
                steps = [
                    step(1, -np.inf, None, "one cluster", np.zeros(X.shape[0])),
                    step(2, -46.0517, (0, np.int64(1)), "accepted", self.labels_),
                ]
                self.path_ = SelectionPath(steps, "zz_top")
                return self

        monkeypatch.setattr(specialk_gpu, "SpecialK", StandIn)
        return seen

    def step(k, log_p, pair, reason, labels):
        return Candidate(k, log_p, pair, accepted=True, reason=reason, inertia=1.0, labels=labels)

    return install


def fails(capsys, arguments, code):
    """Run, check the exit code, and return the one line on stderr; nothing is on stdout."""
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("specialk-gpu: error: ")
    assert err.count("\n") == 1
    return err


def strict_json(path):
    def refuse(constant):
        pytest.fail(f"{constant} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


# -- fit ------------------------------------------------------------------------------------------


def test_fit_prints_the_path_and_writes_labels_and_summary(tmp_path, monkeypatch, capsys):
    X, y = make_shape("blobs", 0.0, random_state=0)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",")
    write_labels(tmp_path / "y.npy", y)
    arguments = ["fit", "x.csv", "--output", "l.csv", "--summary", "s.json"]
    arguments += ["--true-labels", "y.npy", "--random-state", "0", "--backend", "numpy"]
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 0

    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    head = "k  p  own p  pair  accepted  NMI  reason (cut test)"
    assert lines[0].split() == head.split()
    ks = [int(line.removeprefix("*").split()[0]) for line in lines[1:-1]]
    assert ks == list(range(1, len(ks) + 1))
    assert [line[0] for line in lines[1:-1]].index("*") == 2
    assert lines[-1].startswith("k = 3 clusters (backend numpy, ")

    labels, summary = read_labels(tmp_path / "l.csv"), strict_json(tmp_path / "s.json")
    assert summary["n_clusters"] == 3
    assert summary["cluster_sizes"] == np.bincount(labels).tolist()
    assert (summary["n_samples"], summary["n_features"]) == (1500, 2)
    assert summary["criterion"] == "cut"
    assert [row["k"] for row in summary["path"]] == ks
    assert summary["path"][0]["log_p"] is None
    assert summary["path"][1]["log_p"] == pytest.approx(summary["path"][1]["log10_p"] * np.log(10))
    assert summary["path"][2]["nmi"] > 0.9
    assert summary["parameters"]["random_state"] == 0
    assert summary["peak_memory_bytes"] > 10_000_000
    assert 0 < sum(summary["timings"].values()) <= summary["seconds"]
    assert summary["backend"] == "numpy"
    assert summary["versions"]["numpy"] == np.__version__
    assert {"python", "scipy", "scikit-learn", "specialk_gpu"} <= set(summary["versions"])
    assert summary["warnings"] == []
    assert summary["n_rows_dropped"] == 0
    assert summary["preparation"]["columns"] == ["1", "2"]
    assert summary["preparation"]["header"] is False


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_fit_writes_what_the_estimator_finds_with_the_parameters_of_the_summary(
    tmp_path, capsys, criterion
):
    X, _ = make_shape("moons", 0.1, n_samples=200, random_state=0)
    np.save(tmp_path / "x.npy", X)
    arguments = ["--n-components", "50", "--max-clusters", "4", "--full-path"]
    arguments += ["--random-state", "7", "--backend", "numpy", "--criterion", criterion]
    if criterion == "zz_top":
        arguments += ["--n-init", "2", "--n-kmeans-components", "all"]
    arguments += ["--output", str(tmp_path / "l.npy"), "--summary", str(tmp_path / "s.json")]
    assert main(["fit", str(tmp_path / "x.npy"), *arguments]) == 0
    assert capsys.readouterr().err == ""
    summary = strict_json(tmp_path / "s.json")
    model = SpecialK(**summary["parameters"]).fit(X)
    np.testing.assert_array_equal(np.load(tmp_path / "l.npy"), model.labels_)
    assert summary["n_clusters"] == model.n_clusters_
    assert [row["log_p"] for row in summary["path"][1:]] == [s.log_p for s in model.path_[1:]]
    assert [row["reason"] for row in summary["path"]] == [step.reason for step in model.path_]


def test_fit_of_too_few_points_warns_and_says_one_cluster(tmp_path, capsys):
    (tmp_path / "x.csv").write_text("a,b\n0,0\n0,1\n9,9\n9,8\n")
    assert main(["fit", str(tmp_path / "x.csv"), "--backend", "numpy"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("k = 1 cluster (")
    assert "warning: --n-neighbors 10 is not below the number of rows to join, 4: using 3" in err
    assert "warning: 4 rows are too few for a split to be accepted at --alpha 0.05" in err


@pytest.mark.parametrize("name", ["w.npz", "w.npy"])
def test_fit_takes_a_graph(tmp_path, capsys, name):
    graph = sparse.kron(sparse.eye_array(2), np.ones((30, 30)) - np.eye(30), format="csr") / 29
    if name == "w.npz":
        sparse.save_npz(tmp_path / name, graph)
    else:
        np.save(tmp_path / name, graph.toarray())
    arguments = [tmp_path / name, "--affinity", "precomputed", "--n-clusters", "2", "--quiet"]
    arguments += ["--n-components", "2", "--backend", "numpy", "--output", tmp_path / "l.npy"]
    arguments += ["--model", tmp_path / "m.npz"]
    assert main(["fit", *map(str, arguments)]) == 0
    labels = np.load(tmp_path / "l.npy")
    assert labels.dtype == np.int32
    assert sorted({tuple(labels[:30]), tuple(labels[30:])}) == [(0,) * 30, (1,) * 30]
    out = capsys.readouterr().out
    assert out.startswith("k = 2 clusters")
    assert out.count("\n") == 1
    arguments = [tmp_path / "m.npz", tmp_path / name, "--output", tmp_path / "again.npy"]
    assert main(["predict", *map(str, arguments)]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "again.npy"), labels)


def test_every_option_reaches_the_estimator_under_its_name(points, stand_in):
    given = {
        "affinity": "radius_neighbors",
        "n_neighbors": 7,
        "neighbors": "approximate",
        "min_recall": 0.8,
        "coverage": 0.9,
        "weights": "distance",
        "n_components": 30,
        "alpha": 0.05,
        "n_clusters": 4,
        "min_clusters": 2,
        "max_clusters": 9,
        "criterion": "zz_top",
        "stopping": "watershed",
        "n_init": 3,
        "eigen_solver": "lanczos",
        "drop_correlated": 0.95,
        "n_kmeans_components": 20,
        "n_pairs": 10,
        "noise": 3.5,
        "tol": 1e-6,
        "backend": "numpy",
        "time_limit": 60.5,
        "memory_limit": "4GB",
        "checkpoint": "steps",
        "random_state": 5,
    }
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    seen = stand_in()
    assert main(["fit", str(points), "--full-path", "--normalize", *flags]) == 0
    np.testing.assert_array_equal(seen.pop("X"), np.load(points))
    assert seen == {**given, "full_path": True, "normalize": True}
    offered = set(inspect.signature(SpecialK).parameters) - {"metric", "verbose"}
    assert offered == set(given) | {"full_path", "normalize"}


def test_words_stand_for_values_that_are_no_numbers(points, stand_in):
    seen = stand_in()
    assert main(["fit", str(points), "--n-components", "auto", "--n-kmeans-components=all"]) == 0
    del seen["X"]
    assert seen == {"n_components": "auto", "n_kmeans_components": None}


def test_key_and_header_reach_the_reader(tmp_path, stand_in):
    np.savez(tmp_path / "x.npz", a=np.zeros((4, 2)), b=np.ones((5, 2)))
    (tmp_path / "x.csv").write_text("0,1\n2,3\n4,5\n")
    seen = stand_in()
    assert main(["fit", str(tmp_path / "x.npz"), "--key", "b"]) == 0
    assert seen["X"].shape == (5, 2)
    assert main(["fit", str(tmp_path / "x.csv"), "--header", "yes"]) == 0
    np.testing.assert_array_equal(seen["X"], [[2, 3], [4, 5]])


# -- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "arguments are required: COMMAND (see specialk-gpu --help)"),
        (["fit"], "arguments are required: INPUT (see specialk-gpu fit --help)"),
        (["cluster"], "invalid choice: 'cluster'"),
        (["fti", "x.npy"], "; did you mean fit? (see specialk-gpu --help)"),
        (
            ["fit", "x.npy", "--nosie", "4"],
            "--nosie 4; did you mean --noise? (see specialk-gpu fit",
        ),
        (["fit", "x.npy", "--zzz"], "unrecognized arguments: --zzz (see specialk-gpu fit --help)"),
        (["fit", "x.npy", "--missing", "mean"], "; did you mean median? (see specialk-gpu fit"),
        (["predict", "m", "x.npy", "--ouput", "l.csv"], "; did you mean --output? (see"),
        (["fit", "--noise", "x.npy"], "expected a number, got 'x.npy': write --noise last"),
        (["fit", "x.npy", "--alpha", "small"], "argument --alpha: expected a number, got 'small'"),
        (["fit", "x.npy", "--n-components", "few"], "expected an integer or 'auto', got 'few'"),
        (["fit", "x.npy", "--backend", "tpu"], "argument --backend: invalid choice: 'tpu'"),
        (["fit", "x.npy", "--alp", "0.1"], "unrecognized arguments: --alp"),
        (["fit", "absent.npy"], "absent.npy: No such file or directory"),
        (["fit", "x.npy", "--alpha", "2"], "alpha"),
        (["fit", "x.npy", "--affinity", "precomputed"], "(300, 2)"),
        (["fit", "x.npy", "--key", "a"], "--key a picks an array of an .npz file"),
        (["fit", "bad.csv"], "bad.csv: line 2, column 'b' holds 'x', expected a number"),
        (["fit", "pickled.npy"], "pickled.npy: it holds pickled Python objects, which are refused"),
        (["fit", "x.npy", "--true-labels", "x.npy"], "expected one label for each row"),
        (["fit", "x.npy", "--true-labels", "short.npy"], "short.npy must hold 300 labels, got 2"),
    ],
)
def test_wrong_usage_and_bad_input_return_2(points, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(points.parent)
    (points.parent / "bad.csv").write_text("a,b\n1,x\n")
    np.save("pickled.npy", np.array([{}]), allow_pickle=True)
    np.save("short.npy", [0, 1])
    assert message in fails(capsys, arguments, 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output", "l.txt"], "--output must end in .npy or .csv, got l.txt"),
        (["--output", "absent/l.npy"], "--output must name a file in a folder that exists"),
        (["--summary", "absent/s.json"], "--summary must name a file in a folder that exists"),
        (["--summary", "."], "--summary must name a file in a folder that exists"),
        (["--output", "x.npy"], "--output would overwrite another file of this command"),
        (["--output", "l.csv", "--summary", "l.csv"], "--summary would overwrite another file"),
    ],
)
def test_outputs_are_checked_before_the_work(points, monkeypatch, capsys, stand_in, flags, message):
    seen = stand_in()
    monkeypatch.chdir(points.parent)
    assert message in fails(capsys, ["fit", "x.npy", *flags], 2)
    assert seen == {}


@pytest.mark.parametrize(("closed", "exists"), [("", True), ("s.json", True), ("", False)])
def test_a_folder_or_a_file_that_is_not_to_be_written_is_told_of_before_the_work(
    points, monkeypatch, capsys, stand_in, closed, exists
):
    seen = stand_in()
    folder = points.parent
    if exists:
        (folder / "s.json").touch()
    monkeypatch.setattr("os.access", lambda path, _mode: str(path) != str(folder / closed))
    line = fails(capsys, ["fit", points, "--summary", folder / "s.json"], 2)
    assert "--summary must name a file that can be written" in line
    assert seen == {}


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConvergenceError("3 of 5 pairs\nconverged"), 1, "3 of 5 pairs converged"),
        (MemoryError("W needs 9 GB"), 1, "out of memory: W needs 9 GB"),
        (MemoryError(), 1, "out of memory"),
        (np.linalg.LinAlgError("singular matrix"), 1, "singular matrix"),
        (ValueError("alpha must be small"), 2, "--alpha must be small"),
        (TypeError("X must be real"), 2, "INPUT must be real"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_fit_raises_decides_the_exit_code(points, capsys, stand_in, error, code, message):
    def fit(_X):
        raise error

    stand_in(fit)
    output = points.parent / "l.npy"
    line = fails(capsys, ["fit", points, "--output", output], code)
    assert line == f"specialk-gpu: error: {message}\n"
    assert not output.exists()


def test_cuda_that_is_not_there_is_bad_usage(points, capsys, monkeypatch):
    def get_backend(name):
        msg = f"backend={name!r} cannot run: no device"
        raise RuntimeError(msg)

    monkeypatch.setattr(backend, "get_backend", get_backend)
    line = fails(capsys, ["fit", points, "--backend", "cuda"], 2)
    assert "--backend cuda cannot run: no device" in line


def test_mistakes_of_the_program_keep_their_traceback(points, stand_in):
    def fit(_X):
        raise AssertionError

    stand_in(fit)
    with pytest.raises(AssertionError):
        main(["fit", str(points)])


# -- stderr ---------------------------------------------------------------------------------------


def test_warnings_take_one_line_each_and_enter_the_summary(points, capsys, stand_in):
    def fit(_X):
        for text in ("the graph has\n3 components", "the limit is reached", "the limit is reached"):
            warnings.warn(text, UserWarning, stacklevel=1)
        warnings.warn("old name", DeprecationWarning, stacklevel=1)

    stand_in(fit)
    summary = points.parent / "s.json"
    assert main(["fit", str(points), "--summary", str(summary)]) == 0
    texts = ["the graph has 3 components", "the limit is reached"]
    assert capsys.readouterr().err == "".join(f"specialk-gpu: warning: {text}\n" for text in texts)
    assert strict_json(summary)["warnings"] == texts


@pytest.mark.parametrize(
    ("terminal", "flags", "shown"),
    [(True, [], True), (True, ["--quiet"], False), (False, [], False)],
)
def test_stages_are_told_on_terminals_without_tqdm(
    points, capsys, caplog, monkeypatch, terminal, flags, shown
):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert main(["fit", str(points), "--backend", "numpy", *flags]) == 0
    lines = capsys.readouterr().err.splitlines()
    stages = ["graph", "eigenpairs", "fragments", "merging", "polishing"]
    assert [line.partition(":")[0] for line in lines] == (stages if shown else [])
    assert all(re.fullmatch(r"\w+: done; about \d+ % of the fit", line) for line in lines)
    assert not caplog.records


@pytest.mark.parametrize("terminal", [True, False])
def test_other_fits_tell_how_many_are_done_and_no_more(tmp_path, capsys, monkeypatch, terminal):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr("specialk_gpu.inspection.stability.KINDS", ("n_neighbors",))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(_progress, "MINUTE", 0.0)  # a line for every report
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 2)))
    command = ["fit", str(tmp_path / "x.npy"), "--backend", "numpy", "--n-clusters", "2"]
    assert main([*command, "--random-state", "0", "--stability"]) == 0
    told = capsys.readouterr().err.splitlines()
    begun = [line.startswith("other fits") for line in told].index(True)
    assert told[begun:] == [f"other fits: {i} of 3" for i in (1, 2, 3)]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_of_columns_are_kept_and_found_in_new_files(tmp_path, capsys, ending):
    rows = np.random.default_rng(0).normal(size=(60, 2)).round(3)
    fitted, turned, model = (tmp_path / name for name in (f"a.{ending}", f"b.{ending}", "m.npz"))
    for path, names in ((fitted, ["x", "y"]), (turned, ["y", "x"])):
        frame = pd.DataFrame(rows, columns=["x", "y"])[names]
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    assert main(["fit", str(fitted), "--model", str(model)]) == 0
    assert SpecialK.load(model).feature_names_in_.tolist() == ["x", "y"]
    labels = SpecialK.load(model).labels_.tolist()
    for path in (fitted, turned):
        output = tmp_path / "labels.npy"
        assert main(["predict", str(model), str(path), "--output", str(output)]) == 0
        assert np.load(output).tolist() == labels
    frame[["x"]].to_csv(tmp_path / "c.csv", index=False)
    capsys.readouterr()
    assert main(["predict", str(model), str(tmp_path / "c.csv")]) == 2
    assert "of the fit are 'x', 'y', but 'y' is not among 'x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("criterion", "head", "fields"),
    [
        ("cut", "k  p  own p  pair  accepted  reason (cut test)", ["log_p_level"]),
        (
            "zz_top",
            "k  log10 p  inertia  pair  accepted  reason (ZZ Top Bound)",
            ["log_zz_top", "inertia"],
        ),
    ],
)
def test_the_table_and_the_summary_name_the_rule(points, tmp_path, capsys, criterion, head, fields):
    arguments = ["fit", points, "--criterion", criterion, "--summary", tmp_path / "s.json"]
    assert main([str(x) for x in arguments]) == 0
    header, *rows = capsys.readouterr().out.splitlines()[:-1]
    assert header.split() == head.split()
    summary = strict_json(tmp_path / "s.json")
    assert summary["criterion"] == criterion
    kept = summary["path"]
    assert len(rows) == len(kept)
    shared = ["k", "log_p", "log10_p", "pair", "accepted", "reason"]
    assert all(list(row) == shared + fields for row in kept)
    if criterion == "cut":
        assert rows[1].split()[1:3] == ["<", "0.001"]
    else:
        assert all(row["log_zz_top"] == row["log_p"] for row in kept)


# -- other commands -------------------------------------------------------------------------------


def test_demo_finds_three_blobs(capsys):
    assert main(["demo", "--backend", "numpy"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "blobs: 1500 points in the plane, true k = 3"
    assert lines[-1].startswith("k = 3 clusters (backend numpy, ")
    assert err == ""


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, (1500, 2)) for name in ("blobs", "moons", "circles", "random")]
    + [("digits", (1797, 64))],
)
def test_demo_data_are_built_in(capsys, stand_in, name, shape):
    seen = stand_in()
    assert main(["demo", "--data", name, "--random-state", "3"]) == 0
    assert seen["X"].shape == shape
    assert seen["random_state"] == 3
    assert f"{name}: {shape[0]} " in capsys.readouterr().out


def test_info_lists_backends_devices_and_the_reason(capsys, monkeypatch):
    device = {"name": "Card", "memory": 80 * 2**30, "compute_capability": "9.0"}
    rows = [
        {"name": "numpy", "available": False, "reason": "a\nb", "versions": {}, "devices": []},
        {
            "name": "cuda",
            "available": True,
            "reason": None,
            "versions": {"cupy": "14"},
            "devices": [device],
        },
    ]
    monkeypatch.setattr(backend, "describe_backends", lambda: rows)
    monkeypatch.setattr(backend.driver, "driver_version", lambda: 13000)
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "\nNVIDIA driver: CUDA 13.0, extra cuda13\n" in out
    assert f"numpy {np.__version__}" in out
    assert "backend numpy: not available: a b\n" in out
    assert "backend cuda: available (cupy 14)\n" in out
    assert "  device: Card, 80.0 GiB, compute capability 9.0\n" in out


def test_info_describes_this_machine(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "backend numpy: available (numpy " in out
    assert "backend cuda: " in out
    lines = dict(line.split(": ", 1) for line in out.splitlines())
    assert f"matplotlib {matplotlib.__version__}" in lines["optional"]
    assert lines["not installed"] == "none"  # the tests need them all
    assert lines["threads"].startswith(f"{n_threads()}, OMP_NUM_THREADS ")


def test_info_says_what_is_not_installed(monkeypatch, capsys):
    monkeypatch.setattr("specialk_gpu._environment.OPTIONAL", ("numpy", "no-such-package"))
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert f"optional: numpy {np.__version__}\nnot installed: no-such-package\n" in out


def test_help_and_version_load_nothing_heavy():
    code = (
        "import sys\nfrom specialk_gpu.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(sorted({'numpy', 'scipy', 'sklearn', 'cupy'} & set(sys.modules)))"
    )
    for arguments in (["--help"], ["fit", "--help"], ["--version"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        assert done.stdout.endswith("[]\n")
    assert done.stdout.startswith(f"specialk-gpu {specialk_gpu.__version__}\n")


def test_a_reader_that_leaves_early_is_no_error():
    process = subprocess.Popen(
        [*COMMAND, "info"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0
    process.stderr.close()


# -- models, new rows and reports -----------------------------------------------------------------


def test_a_kept_model_labels_new_rows_and_is_reported(points, tmp_path, capsys):
    model, labels, page = (tmp_path / name for name in ("m.npz", "new.csv", "fit.html"))
    arguments = ["fit", points, "--backend", "numpy", "--random-state", 0, "--quiet"]
    arguments += ["--model", model, "--report", page, "--output", tmp_path / "labels.npy"]
    assert main([str(x) for x in arguments]) == 0
    assert "x.npy: 300 rows of 2 columns" in page.read_text(encoding="utf-8")
    fitted = np.load(tmp_path / "labels.npy")
    capsys.readouterr()

    assert main(["predict", str(model), str(points), "--output", str(labels)]) == 0
    np.testing.assert_array_equal(read_labels(labels), fitted)
    counts = [f"cluster {c}: {n} rows" for c, n in enumerate(np.bincount(fitted))]
    assert capsys.readouterr().out.splitlines() == counts

    assert main(["report", str(model), str(tmp_path / "again.html")]) == 0
    assert "m.npz: 300 rows" in (tmp_path / "again.html").read_text(encoding="utf-8")


def test_the_demo_writes_a_report_with_images(tmp_path, capsys):
    page = tmp_path / "demo.html"
    arguments = ["demo", "--data", "digits", "--backend", "numpy", "--report", str(page)]
    assert main(arguments) == 0
    assert "digits: 1,797 rows of 64 columns" in page.read_text(encoding="utf-8")
    assert "Typical rows of each cluster" in page.read_text(encoding="utf-8")
    assert "digits: 1797 images" in capsys.readouterr().out


def test_outliers_among_new_rows_are_counted(tmp_path, capsys):
    rows, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
    at = [str(tmp_path / name) for name in ("rows.npy", "model.npz", "new.npy", "labels.csv")]
    np.save(at[0], rows)
    np.save(at[2], np.vstack([rows[:5], [[80, 80], [-90, 0]]]))
    assert main(["fit", at[0], "--noise", "4", "--random-state", "0", "--model", at[1]]) == 0
    capsys.readouterr()
    assert main(["predict", at[1], at[2], "--output", at[3]]) == 0
    lines = capsys.readouterr().out.splitlines()
    labels = pd.read_csv(at[3]).to_numpy()[:, -1]
    assert labels[-2:].tolist() == [-1, -1]
    assert lines[0] == f"outliers (label -1): {(labels < 0).sum()} rows"
    counts = [int(line.split(": ")[1].split()[0]) for line in lines[1:]]
    assert counts == [int((labels == c).sum()) for c in range(3)]


def test_a_blank_hides_no_difference_of_scales(tmp_path, capsys):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"wide": rng.normal(4e4, 5e3, 300), "narrow": rng.normal(7, 1, 300)})
    table.loc[7, "narrow"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    for missing in ("median", "drop"):
        assert main(["fit", str(tmp_path / "t.csv"), "--missing", missing]) == 0
        assert "in 'wide', and of" in capsys.readouterr().err


def test_the_report_of_a_table_speaks_in_its_own_units(tmp_path, capsys):
    rng, group = np.random.default_rng(0), np.repeat([0, 1, 2], 100)
    income = 30000 + 9000 * group + rng.normal(0, 500, 300)
    visits = np.array([2, 9, 4])[group] + rng.normal(0, 0.3, 300)
    table = pd.DataFrame({"key": range(7, 307), "income": income, "visits": visits})
    table["city"] = np.array(["Rome", "Oslo", "Rome"])[group]
    table.to_csv(tmp_path / "people.csv", index=False)
    at = str(tmp_path / "people.csv")
    pages, model = [tmp_path / "one.html", tmp_path / "two.html"], str(tmp_path / "model.npz")
    options = ["--id-column", "key", "--one-hot", "city", "--scale", "standard", "--stability"]
    written = ["--report", str(pages[0]), "--model", model]
    assert main(["fit", at, *options, *written]) == 0
    assert "3 clusters; the same number in" in capsys.readouterr().out
    assert main(["report", model, str(pages[1]), "--input", at]) == 0
    one, two = (page.read_text(encoding="utf-8") for page in pages)
    labels = SpecialK.load(model).labels_
    for values in (income, visits):
        for c in range(3):
            median = np.median(values[labels == c])
            shown = f"{median:,.0f}" if median > 1e4 else f"{median:.4g}"
            assert f">{shown}</td>" in one
            assert f">{shown}</td>" in two
    assert "city=Oslo" in two
    assert all("the mean was subtracted" in page for page in (one, two))
    assert ("How steady they are" in one, "How steady they are" in two) == (True, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "X", "--image-shape", "8x8"], "--image-shape is for the report"),
        (["fit", "X", "--image-shape", "8"], "expected height x width, such as 28x28, got '8'"),
        (["fit", "X", "--image-shape", "3x3", "--report", "a.html"], "--image-shape must have as"),
        (["report", "X", "a.html", "--key", "b"], "are about --input, which was not given"),
        (["fit", "X", "--model", "X"], "--model would overwrite another file"),
        (["predict", "X", "X"], "x.npy is not a model that was saved"),
        (["predict", "none.npz", "X"], "none.npz: No such file"),
        (["predict", "X", "X", "--output", "y.txt"], "--output must end in .npy or .csv"),
        (
            ["report", "X", "a.html", "--image-shape", "8x8"],
            "are about --input, which was not given",
        ),
        (["report", "X", "nowhere/out.html"], "OUTPUT must name a file in a folder that exists"),
    ],
)
def test_models_and_reports_that_cannot_be_are_bad_usage(points, capsys, arguments, message):
    arguments = [str(points) if word == "X" else word for word in arguments]
    assert message in fails(capsys, arguments, 2)


def test_without_the_repository_bench_says_where_it_is(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "benchmarks.suite", None)  # as if it could not be imported
    assert main(["bench", "--size", "tiny"]) == 2
    assert "the benchmarks are not in the installed package" in capsys.readouterr().err


def test_a_caller_that_closed_its_streams_gets_the_exit_code(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["info"]) == 0
    sys.stdout.close()
    sys.stderr.close()
