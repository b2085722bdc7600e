"""The commands compare and estimate, the package as a program, and messages in shell words."""

import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from specialk_gpu import SpecialK, _command_files, _progress
from specialk_gpu._commands import COMPARED
from specialk_gpu._options import in_words_of_options
from specialk_gpu.cli import main
from specialk_gpu.io import write_labels

A, B = np.array([0, 0, 0, 1, 1, 2]), np.array([1, 1, 0, 0, 0, -1])


@pytest.fixture
def labels(tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.npy"]
    for path, own in zip(paths, (A, B), strict=True):
        write_labels(path, own)
    return list(map(str, paths))


def test_two_files_of_labels_are_compared(labels, capsys):
    assert main(["compare", *labels]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["rows: 6, compared by their order", "clusters: 3 in A, 2 in B"]
    assert lines[2] == f"ARI: {adjusted_rand_score(A, B):.3f}"
    assert lines[3] == f"NMI: {normalized_mutual_info_score(A, B):.3f}"
    assert [line.split() for line in lines[4:]] == [
        ["A", "\\", "B", "-1", "0", "1"],
        ["0", "0", "1", "2"],
        ["1", "0", "2", "0"],
        ["2", "1", "0", "0"],
    ]


def test_labels_with_ids_are_compared_by_them(tmp_path, capsys):
    ids = [f"r{i}" for i in range(6)]
    order = [4, 0, 5, 2, 1]  # of B, without r3
    write_labels(tmp_path / "a.csv", A, ids=ids, id_name="who")
    write_labels(tmp_path / "b.csv", B[order], ids=[ids[i] for i in order], id_name="who")
    assert main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rows: 5, compared by who, 1 left out of A"
    assert lines[2] == f"ARI: {adjusted_rand_score(np.delete(A, 3), np.delete(B, 3)):.3f}"
    write_labels(tmp_path / "c.csv", B, ids=[f"s{i}" for i in range(6)], id_name="who")
    assert main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "c.csv")]) == 2
    assert "A and B must label the same rows, but share no 'who'" in capsys.readouterr().err
    write_labels(tmp_path / "d.csv", A, ids=list("012345"), id_name="id")  # counts the rows
    assert main(["compare", str(tmp_path / "d.csv"), str(tmp_path / "d.csv")]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("rows: 6, compared by id\n")
    assert err == ""


@pytest.mark.parametrize(
    ("ids", "id_name"),
    [(["x", "x", "y", "z", "u", "v"], "who"), (list("abcdef"), "other"), (None, "")],
)
def test_without_the_same_ids_labels_are_compared_by_their_order(tmp_path, capsys, ids, id_name):
    write_labels(tmp_path / "a.csv", A, ids=list("fedcba"), id_name="who")
    write_labels(tmp_path / "b.csv", B, ids=ids, id_name=id_name)
    assert main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rows: 6, compared by their order"
    assert lines[2] == f"ARI: {adjusted_rand_score(A, B):.3f}"


def test_summaries_show_what_was_done_with_the_columns(tmp_path, capsys):
    kept = {"n_clusters": 2, "criterion": "cut", "cluster_sizes": [3, 3], "n_samples": 6}
    kept |= {"n_features": 2, "seconds": 1.0, "parameters": {"alpha": None}}
    own = {"columns": ["a", "b"], "missing": None, "scale": None, "one_hot": {}, "id_column": "k"}
    other = own | {"columns": ["a", "c"], "scale": "standard", "one_hot": {"c": ["x", "y"]}}
    for name, preparation in (("a", own), ("b", other), ("c", None)):
        content = json.dumps(kept | {"preparation": preparation})
        (tmp_path / f"{name}.json").write_text(content)
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    rows = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    assert rows[len(COMPARED) + 1 : -1] == [
        ["--one-hot", "not given", "c"],
        ["--scale", "not given", "standard"],
        ["columns used", "a, b", "a, c"],
    ]
    assert main(["compare", str(tmp_path / "c.json"), str(tmp_path / "a.json")]) == 0
    assert "--id-column    not given  k" in capsys.readouterr().out


def test_large_tables_are_cut(tmp_path, capsys):
    for name in "ab":
        write_labels(tmp_path / f"{name}.npy", np.arange(50))
    assert main(["compare", str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 + 21 + 2
    assert lines[-2:] == ["and 30 more clusters of A", "and 30 more clusters of B"]


def test_two_summaries_are_compared(tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(80, 2))
    np.save(tmp_path / "X.npy", X)
    for k in ("2", "3"):
        command = ["fit", str(tmp_path / "X.npy"), "--n-clusters", k, "--random-state", "0"]
        command += ["--backend", "numpy", "--summary", str(tmp_path / f"{k}.json"), "--quiet"]
        assert main(command) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "2.json"), str(tmp_path / "3.json")]) == 0
    cells = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["n_clusters", "2", "3"] in cells
    assert ["--n-clusters", "2", "3"] in cells
    assert not [row for row in cells if row[0] == "--backend"]


def test_what_cannot_be_compared_is_refused(labels, tmp_path, capsys):
    write_labels(tmp_path / "few.npy", A[:3])
    (tmp_path / "s.json").write_text(json.dumps({"n_clusters": 2}))
    (tmp_path / "broken.json").write_text("{")
    cases = {
        (labels[0], str(tmp_path / "few.npy")): "A and B must label the same rows, got 6 and 3",
        (labels[0], str(tmp_path / "s.json")): "A and B must both be labels, or both summaries",
        (str(tmp_path / "s.json"),) * 2: "expected a summary, as written by fit --summary",
        (str(tmp_path / "broken.json"),) * 2: "broken.json: Expecting",
        (labels[0], str(tmp_path / "none.npy")): "none.npy: No such file",
    }
    for command, message in cases.items():
        assert main(["compare", *command]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
        assert err.count("\n") == 1


def test_sizes_and_files_are_estimated(tmp_path, capsys):
    np.save(tmp_path / "X.npy", np.zeros((30, 4)) + np.arange(30)[:, None])
    for command, first in (
        (["3000", "20"], "3,000 rows, 20 columns, 60 eigenvectors"),
        (["3000", "20", "--criterion", "zz_top"], "3,000 rows, 20 columns, 200 eigenvectors"),
        ([str(tmp_path / "X.npy")], "30 rows, 4 columns, "),
    ):
        assert main(["estimate", *command]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(first)
        assert [line.split()[0] for line in lines[-2:]] == ["whole", "memory"]
    for wrong in (["3", "x"], ["1", "2", "3"]):
        assert main(["estimate", *wrong]) == 2
        assert "expected ROWS and COLUMNS, or one file" in capsys.readouterr().err


TABLE = "name,a,b\n" + "".join(f"n{i},{i % 7},{i * i % 11}\n" for i in range(40))


def test_a_file_of_which_columns_are_left_out_is_estimated_as_the_error_advises(tmp_path, capsys):
    (tmp_path / "t.csv").write_text(TABLE)
    assert main(["estimate", str(tmp_path / "t.csv")]) == 2
    assert "add --id-column name" in capsys.readouterr().err
    assert main(["estimate", str(tmp_path / "t.csv"), "--id-column", "name"]) == 0
    assert capsys.readouterr().out.startswith("40 rows, 2 columns, ")


def test_columns_are_those_of_a_file(capsys):
    assert main(["estimate", "30", "4", "--drop", "a"]) == 2
    assert "ROWS and COLUMNS are counted already" in capsys.readouterr().err


def pipe(monkeypatch, text):
    raw = text if isinstance(text, bytes) else text.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def test_what_is_piped_is_read_as_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TABLE)
    same = ["--id-column", "name", "--random-state", "0", "--n-clusters", "2", "--quiet"]
    kept = ["--report", "r.html", "--model", "m.npz"]
    assert main(["fit", "t.csv", *same, "--output", "file.csv"]) == 0
    pipe(monkeypatch, TABLE)
    assert main(["fit", "-", *same, "--output", "piped.csv", *kept]) == 0
    expected = (tmp_path / "file.csv").read_text()
    assert (tmp_path / "piped.csv").read_text() == expected
    assert "standard input: 40 rows of 2 columns" in (tmp_path / "r.html").read_text()
    pipe(monkeypatch, TABLE)
    assert main(["predict", "m.npz", "-", "--output", "again.csv"]) == 0
    assert (tmp_path / "again.csv").read_text() == expected
    pipe(monkeypatch, TABLE)
    assert main(["estimate", "-", "--drop", "name"]) == 0
    assert "40 rows, 2 columns" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("piped", "message"),
    [
        (TABLE, "line 2, column 'name' holds 'n0', expected a number (40 such cells)"),
        ("", "it holds no data"),
        (b"\x93NUMPY\x01\x00", "it is not text in UTF-8"),
        ("a,b\n" + "1,2\n" * 500, "standard input holds more than 1 kB"),
    ],
)
def test_errors_name_standard_input(monkeypatch, capsys, piped, message):
    monkeypatch.setattr(_command_files, "MOST_PIPED", 1000)
    pipe(monkeypatch, piped)
    assert main(["fit", "-"]) == 2
    err = capsys.readouterr().err
    assert message in err
    read_as = "cannot read standard input, which is read as CSV: "
    assert (read_as in err) == ("more than" not in message)


def test_a_closed_standard_input_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", "-", "-"]) == 2
    assert main(["fit", "-"]) == 2
    assert "standard input is closed" in capsys.readouterr().err


@pytest.mark.parametrize("quiet", [False, True])
def test_what_is_piped_shows_progress_in_lines(tmp_path, monkeypatch, capsys, quiet):
    monkeypatch.setattr(_progress, "MINUTE", 0.0)  # a line for every report
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(80, 2)))
    command = ["fit", str(tmp_path / "X.npy"), "--backend", "numpy", "--random-state", "0"]
    assert main([*command, *(["--quiet"] if quiet else [])]) == 0
    lines = capsys.readouterr().err.splitlines()
    stages = list(dict.fromkeys(line.partition(":")[0] for line in lines))
    expected = ["graph", "eigenpairs", "fragments", "merging", "polishing"]
    assert stages == ([] if quiet else expected)
    if not quiet:
        assert lines[-1].endswith("about 100 % of the fit")


def test_the_package_is_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "specialk_gpu", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.startswith("specialk-gpu ")


# -- messages in shell words ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alpha", "2"], "--alpha must be a number above 0 and below 1. Got 2.0 instead."),
        (
            ["--min-clusters", "3", "--max-clusters", "2"],
            "--min-clusters must be at most --max-clusters, got --min-clusters 3, "
            "--max-clusters 2.",
        ),
        (
            ["--n-clusters", "2", "--min-clusters", "3"],
            "got --n-clusters 2, --min-clusters 3, no --max-clusters.",
        ),
        (["--n-clusters", "50"], "--n-clusters must lie between 1 and the number of rows (20)"),
    ],
)
def test_errors_name_options(tmp_path, capsys, options, message):
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(20, 2)))
    assert main(["fit", str(tmp_path / "X.npy"), "--backend", "numpy", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("words", "level"), [(["--noise"], 4.0), (["--noise", "2.5"], 2.5)])
def test_noise_has_a_usual_level(tmp_path, words, level):
    rows, _ = make_blobs(120, centers=[(0, 0), (20, 0)], random_state=0)
    np.save(tmp_path / "x.npy", np.vstack([rows, [[60, 60]]]))
    output = tmp_path / "l.npy"
    command = [
        "fit",
        str(tmp_path / "x.npy"),
        "--n-clusters",
        "2",
        "--random-state",
        "0",
        "--quiet",
    ]
    assert main([*command, "--output", str(output), *words]) == 0
    model = SpecialK(n_clusters=2, random_state=0).fit(np.load(tmp_path / "x.npy"))
    far = model.outlier_scores_ > level
    assert 0 < far.sum() < 60
    np.testing.assert_array_equal(np.load(output) < 0, far)


def test_a_warning_of_scales_names_the_option_that_helps(tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(60, 2)) * [1, 1e4]
    np.save(tmp_path / "x.npy", X)
    command = ["fit", str(tmp_path / "x.npy"), "--n-clusters", "2", "--backend", "numpy"]
    assert main(command) == 0
    assert "different units, add --scale standard." in capsys.readouterr().err


def test_warnings_name_options(tmp_path, capsys):
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(20, 2)))
    command = ["fit", str(tmp_path / "X.npy"), "--backend", "numpy", "--n-neighbors", "25"]
    assert main([*command, "--n-clusters", "2"]) == 0
    assert "--n-neighbors 25 is not below the number of rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "worded"),
    [
        ("Set normalize=True to divide.", "Set --normalize to divide."),
        ("with affinity='precomputed' only.", "with --affinity precomputed only."),
        ('criterion="zz_top" needs', "--criterion zz_top needs"),
        ("Ask for fewer (n_components), or", "Ask for fewer (--n-components), or"),
        ("the fit came to time_limit=2.5 in", "the fit came to --time-limit 2.5 in"),
        ("tol=1e-08.", "--tol 1e-08."),
        (
            "must be an int in the range [1, inf) or a str",
            "must be a whole number of at least 1 or a str",
        ),
        ("a float in the range (0.0, 1.0]. Got", "a number above 0 and at most 1. Got"),
        ("must be a str among {'b', 'a'}. Got", "must be one of 'a', 'b'. Got"),
        ("[0, 9], an instance of 'numpy.bool'. Got", "[0, 9]. Got"),
        ("noise must be None with", "--noise must not be given with"),
        ("choose one with key= (--key on the command line)", "choose one by --key"),
        ("n_rows must be at least 2", "ROWS must be at least 2"),
        ("the columns of X have", "the columns of INPUT have"),
        # these are no parameters
        ("the backend has a metric of weights", "the backend has a metric of weights"),
        ("n_clusters_ and my_n_clusters", "n_clusters_ and my_n_clusters"),
        ("see --n-clusters", "see --n-clusters"),
    ],
)
def test_parameters_become_options(said, worded):
    assert in_words_of_options(said) == worded
