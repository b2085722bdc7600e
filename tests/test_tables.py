"""Tables as people have them: headers, row numbers, blanks, text, scales; predict does the same."""

import gzip
import json
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from scipy import sparse

from specialk_gpu import SpecialK
from specialk_gpu.cli import main
from specialk_gpu.datasets import make_shape
from specialk_gpu.io import read_labels, read_matrix, write_labels
from specialk_gpu.tables.table import listed

ROW_NUMBERS = "counts the rows and is left out"


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1, 2], 100))
    return np.array([[0, 0], [12, 0], [0, 12]])[y] + rng.normal(size=(300, 2)), y


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err.splitlines()

    return call


def write(path, text, encoding="utf-8"):
    path.write_text(text, encoding=encoding)
    return path


def r_csv(path, X):
    """Write what `write.csv` of R does."""
    lines = ['"","x","y"', *(f'"{i + 1}",{a!r},{b!r}' for i, (a, b) in enumerate(X.tolist()))]
    return write(path, "\n".join(lines) + "\n")


def excel_csv(path, X):
    """Write what a German Excel does: semicolons, decimal commas, a byte order mark, blanks."""
    frame = pd.DataFrame({"Kunde": [f"K{i:04d}" for i in range(len(X))], "Größe": X[:, 0]})
    frame["Alter"], frame["Ort"] = X[:, 1], np.resize(["Köln", "Ulm", "Jena, Süd"], len(X))
    frame.loc[[3, 50], "Größe"] = np.nan
    frame.loc[7, "Alter"] = np.nan
    frame.to_csv(path, sep=";", decimal=",", index=False, encoding="utf-8-sig")
    return path


def same_partition(a, b):
    return len({*zip(a.tolist(), b.tolist(), strict=True)}) == len(set(a)) == len(set(b))


# -- three exports --------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["x", "y"], None])
def test_the_csv_of_pandas_gives_three_clusters_without_its_row_numbers(
    tmp_path, run, blobs, names
):
    X, y = blobs
    pd.DataFrame(X, columns=names).to_csv(tmp_path / "x.csv")
    code, out, err = run("fit", tmp_path / "x.csv", "--quiet", "--output", tmp_path / "l.csv")
    assert code == 0
    assert out.startswith("k = 3 clusters")
    assert len(err) == 1
    assert f"column 1 {ROW_NUMBERS}" in err[0]
    assert same_partition(read_labels(tmp_path / "l.csv"), y)


def test_the_csv_of_r_gives_three_clusters_without_its_row_names(tmp_path, run, blobs):
    X, y = blobs
    path = r_csv(tmp_path / "x.csv", X)
    code, _, err = run("fit", path, "--quiet", "--output", tmp_path / "l.csv")
    assert code == 0
    assert len(err) == 1
    assert f"column 1 {ROW_NUMBERS}" in err[0]
    assert same_partition(read_labels(tmp_path / "l.csv"), y)


def test_the_csv_of_a_german_excel_gives_three_clusters_by_the_command_that_the_error_names(
    tmp_path, run, blobs
):
    X, y = blobs
    path = excel_csv(tmp_path / "x.csv", X)
    code, _, err = run("fit", path)
    assert code == 2
    assert len(err) == 1
    assert "line 2, column 'Kunde' holds 'K0000', expected a number (300 such cells)" in err[0]
    assert "column 'Ort' holds 'Köln', expected a number (300 such cells)" in err[0]
    assert "there are blanks, 2 in column 'Größe', 1 in column 'Alter'" in err[0]
    advice, _, instead = err[0].partition("; add ")[2].partition(" (or ")
    assert instead == "--id-column Kunde --one-hot Ort --missing drop)"
    output = ["--output", tmp_path / "l.csv", "--quiet"]
    code, out, err = run("fit", path, *shlex.split(advice), *output)
    assert (code, err) == (0, [])
    assert out.startswith("k = 3 clusters")
    full = np.setdiff1d(np.arange(300), [3, 7, 50])  # a median can lie in another cluster
    assert same_partition(read_labels(tmp_path / "l.csv")[full], y[full])
    lines = (tmp_path / "l.csv").read_text().splitlines()
    assert lines[0] == "Kunde,label"
    assert [line.split(",")[0] for line in lines[1:]] == [f"K{i:04d}" for i in range(300)]


R_FRAME = [[5.1, -0.25, 3], [4.9, 12, 1], [1e-05, 3.5, 2]]  # x, of two words; y; n, whole numbers


@pytest.mark.parametrize("name", ["x.csv", "x.txt", "x.tsv", "x.csv.gz"])
@pytest.mark.parametrize("row_names", [("1", "2", "3"), ("12", "7", "9"), ("Mazda RX4", "b", "c")])
@pytest.mark.parametrize(
    ("separator", "point", "corner", "quote"),
    [
        (" ", ".", None, '"'),  # write.table(x, file)
        ("\t", ".", None, '"'),  # ..., sep = "\t"
        ("\t", ".", None, ""),  # ..., quote = FALSE
        (",", ".", None, '"'),  # ..., sep = ","
        (";", ",", None, '"'),  # ..., sep = ";", dec = ","
        (" ", ".", "", '"'),  # ..., col.names = NA
        (",", ".", "", '"'),  # write.csv(x, file)
        (";", ",", "", '"'),  # write.csv2(x, file)
    ],
)
def test_what_r_writes_is_read_without_its_row_names(
    tmp_path, name, row_names, separator, point, corner, quote
):
    """R puts names of columns and rows in quotes; `write.table` has no name for the row names."""
    header = [quote + cell + quote for cell in ("the x", "y", "n")]
    if corner is not None:
        header.insert(0, quote + corner + quote)
    cells = [["5.1", "-0.25", "3"], ["4.9", "12", "1"], ["1e-05", "3.5", "2"]]
    rows = [
        [f"{quote}{own}{quote}", *(cell.replace(".", point) for cell in row)]
        for own, row in zip(row_names, cells, strict=True)
    ]
    text = "".join(separator.join(row) + "\n" for row in [header, *rows])
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    with pytest.warns(UserWarning, match=r"^column 1 .* is left out \(to keep it"):
        found = read_matrix(path)
    np.testing.assert_array_equal(found, R_FRAME)


def test_three_clusters_are_found_in_a_table_of_r_and_new_rows_of_r_are_labelled(
    tmp_path, run, blobs
):
    X, y = blobs
    rows = [f'"{i + 1}" {a!r} {b!r}' for i, (a, b) in enumerate(X.tolist())]
    path = write(tmp_path / "x.csv", "\n".join(['"x" "y"', *rows]) + "\n")
    labels, model = tmp_path / "l.csv", tmp_path / "m.npz"
    code, out, err = run("fit", path, "--quiet", "--output", labels, "--model", model)
    assert code == 0
    assert out.startswith("k = 3 clusters")
    assert len(err) == 1
    assert f"column 1 {ROW_NUMBERS}" in err[0]
    assert same_partition(read_labels(labels), y)
    few = write(tmp_path / "few.csv", "\n".join(['"x" "y"', *rows[40:70]]) + "\n")
    assert run("predict", model, few, "--output", tmp_path / "few_l.csv")[0] == 0
    found = read_labels(tmp_path / "few_l.csv")
    assert found.tolist() == read_labels(labels)[40:70].tolist()


def test_blanks_of_r_are_blanks(tmp_path):
    path = write(tmp_path / "x.txt", '"a" "b"\n"1" 1 NA\n"2" NA 4\n"3" 2 5\n')
    with (
        pytest.warns(UserWarning, match=ROW_NUMBERS),
        pytest.raises(ValueError, match="blanks, 1 in column 'a', 1 in column 'b'; add --missing"),
    ):
        read_matrix(path)


def test_the_index_of_a_shuffled_frame_is_left_out_and_can_be_kept(tmp_path, run, blobs):
    X, y = blobs
    frame = pd.DataFrame(X, columns=["x", "y"]).sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "x.csv")
    labels = tmp_path / "l.csv"
    code, out, err = run("fit", tmp_path / "x.csv", "--quiet", "--output", labels)
    assert code == 0
    assert out.startswith("k = 3 clusters")
    assert len(err) == 1
    assert "column 1 has no name, so that it holds row names, and is left out" in err[0]
    assert same_partition(read_labels(labels), y[frame.index])
    options = ["--id-column", "column 1", "--output", labels]
    assert run("fit", tmp_path / "x.csv", *options)[0] == 0
    assert [int(x.split(",")[0]) for x in labels.read_text().split()[2:]] == frame.index.tolist()
    summary = tmp_path / "s.json"
    assert run("fit", tmp_path / "x.csv", "--columns", "column 1,x", "--summary", summary)[0] == 0
    assert json.loads(summary.read_text())["preparation"]["columns"] == ["column 1", "x"]


def test_the_index_of_two_frames_in_one_is_left_out(tmp_path):
    frame = pd.DataFrame({"x": [0.5, 1.5, 2.5], "y": [3.0, 1.0, 2.0]})
    pd.concat([frame, frame]).to_csv(tmp_path / "x.csv")
    with pytest.warns(UserWarning, match="column 1 has no name, so that it holds row names"):
        assert read_matrix(tmp_path / "x.csv").shape == (6, 2)


@pytest.mark.parametrize(
    "text",
    [
        ",a\n0.5,1\n2,3\n1,2\n",
        ",a\n7,1\nNA,3\n1,2\n",
        ",a\nu,1\n5,3\n1,2\n",
        ",a,\n7,1,2\n5,3,2\n1,2,4\n",
    ],
    ids=["fractions", "a blank", "a stray text", "two columns without a name"],
)
def test_a_column_without_a_name_that_could_be_data_is_kept(tmp_path, run, text):
    path = write(tmp_path / "x.csv", text)
    code, _, err = run("fit", path, "--missing", "median", "--summary", tmp_path / "s.json")
    if code:
        assert "column 'column 1' holds 'u', expected a number (1 such cell)" in err[0]
    else:
        found = json.loads((tmp_path / "s.json").read_text())["preparation"]["columns"]
        assert found[0] == "column 1"


@pytest.mark.parametrize(
    "text",
    [
        "sep=;\na;b\n1,5;2\n3;4,25\n",
        "\ufeffsep=;\r\na;b\r\n1,5;2\r\n3;4,25\r\n",
        '"sep=,"\na,b\n1.5,2\n3,4.25\n',
        "SEP=\t\na\tb\n1.5\t2\n3\t4.25\n",
        "sep=:\n1.5:2\n3:4.25\n",
    ],
)
def test_the_line_that_tells_excel_the_separator_is_no_row(tmp_path, text):
    path = write(tmp_path / "x.csv", text)
    np.testing.assert_array_equal(read_matrix(path), [[1.5, 2], [3, 4.25]])


def test_lines_are_numbered_as_in_the_file_after_the_line_of_the_separator(tmp_path):
    path = write(tmp_path / "x.csv", "sep=;\na;b\n1;2\nx;3\n")
    with pytest.raises(ValueError, match="line 4, column 'a' holds 'x'"):
        read_matrix(path)
    path = write(tmp_path / "x.csv", "sep=;\na;b\n1;2\n\n3;4;5\n")
    with pytest.raises(ValueError, match=r"line 5 has 3 columns, expected 2 \(separated by ';'\)"):
        read_matrix(path)


def test_a_stated_separator_stays_even_if_another_one_fits_better(tmp_path):
    path = write(tmp_path / "x.csv", "sep=;\n1,5\n2,25\n")
    np.testing.assert_array_equal(read_matrix(path), [[1.5], [2.25]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2,\n3,4,\n5,6,\n", "line 2 has 3 columns, expected 2"),
        ("a,b\n1,2,3\n1,5,6\n1,8,9\n", "line 2 has 3 columns, expected 2"),
        ("a,b\n1,2,3\n4,5\n7,8,9\n2,3,4\n", "line 2 has 3 columns, expected 2"),
        ("3,1\n1,2,3\n4,5,6\n7,8,9\n", "3, 1, has one cell fewer than the others; set header="),
    ],
    ids=["separators at the end", "names that repeat", "ragged rows", "numbers"],
)
def test_a_short_first_row_is_no_header_without_row_names(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_matrix(write(tmp_path / "x.csv", text))


def test_blanks_within_numbers_separate_nothing_in_csv(tmp_path):
    path = write(tmp_path / "x.csv", "price\n1 234\n2 500\n3 100\n")
    with pytest.raises(ValueError, match="column 'price' holds '1 234', expected a number"):
        read_matrix(path)


# -- separators, decimals, headers ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", "a;b\n1,5;2\n3;4,25\n"),
        ("x.csv", "\ufeffa;b\n1,5;2\n3;4,25\n"),
        ("x.csv", "a;b\n1.5;2\n3;4.25\n"),
        ("x.csv", "a\tb\n1,5\t2\n3\t4,25\n"),
        ("x.csv", "a|b\n1.5|2\n3|4.25\n"),
        ("x.tsv", "a,b\n1.5,2\n3,4.25\n"),
        ("x.txt", "a b\n1.5 2\n3 4.25\n"),
        ("x.txt", "  a    b\n  1.5  2\n  3    4.25  \n"),
        ("x.txt", "1.5 2\n3   4.25\n"),
        ("x.txt", "a\tb\n1,5\t2\n3\t4,25\n"),
        ("x.csv", '"a";"b"\r\n"1,5";"2"\r\n"3";"4,25"\r\n'),
        ("x.csv", "1,5;2\n3;4,25"),
    ],
)
def test_separator_and_decimal_sign_are_found(tmp_path, name, text):
    path = write(tmp_path / name, text)
    np.testing.assert_array_equal(read_matrix(path), [[1.5, 2], [3, 4.25]])


def test_decimal_commas_far_down_are_found(tmp_path):
    path = write(tmp_path / "x.csv", "a;b\n" + "1;2\n" * 1000 + "1,5;2\n")
    assert read_matrix(path)[-1].tolist() == [1.5, 2]


def test_quoted_decimal_commas_between_commas_are_refused(tmp_path):
    path = write(tmp_path / "x.csv", 'a,b\n"1,5",2\n"2,5",3\n')
    with pytest.raises(ValueError, match="column 'a' holds '1,5', expected a number"):
        read_matrix(path)


def test_commas_and_points_in_one_file_are_refused(tmp_path):
    path = write(tmp_path / "x.csv", "a;b\n1,5;2.5\n3;4\n")
    message = "mixes decimal commas and points: column 'a' holds '1,5', column 'b' holds '2.5'"
    with pytest.raises(ValueError, match=message):
        read_matrix(path)
    path = write(tmp_path / "y.csv", "a;b\n1.234,5;2\n3;4\n")
    with pytest.raises(ValueError, match=r"column 'a' holds '1\.234,5', expected a number"):
        read_matrix(path)


@pytest.mark.parametrize(
    "text",
    [
        "1899,2000,2100\n1,2,3\n4,5,6\n",
        "1900,2000,2101\n1,2,3\n4,5,6\n",
        "2000,1999,2001\n1,2,3\n4,5,6\n",
        "2000,2000,2001\n1,2,3\n4,5,6\n",
        "1900,2100\n1900,2100\n1,9\n",
        "2,3,4\n1,2,3\n4,5,6\n",
        "0,2\n1,2\n4,5\n",
        "17,4\n0.5,1\n2.5,0.25\n",
        '"7","9"\n"7",5\n6,5\n',
        "7,9\n7,5\n",
    ],
)
@pytest.mark.filterwarnings("ignore:lines such as")  # pairs of whole numbers
def test_a_first_row_of_numbers_that_are_no_names_is_a_row(tmp_path, text):
    assert len(read_matrix(write(tmp_path / "x.csv", text))) == text.count("\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0,1,2\n0.5,1.5,2.5\n3.5,4.5,5.5\n", "they count from 0"),
        ("1,2\n7,5\n6,5\n", "they count from 1"),
        ('"0","1"\n7,5\n6,5\n', "they count from 0"),
        ('"7","9"\n7,5\n6,5\n', "they alone are quoted"),
        ("2019,2020,2021\n1,2,3\n4,5,6\n", "they look like years"),
        ("1900,2000,2100\n1,2,3\n4,5,6\n", "they look like years"),
        ("1900,2100\n1899,2101\n1900,2100\n1,9\n", "they look like years"),
        ("1,2,3,4,5,6\n7,5,7,5,7,5\n", "its first row, 1, 2, 3, …, 6, could .* they count from 1"),
        ("1,2,3,4,5\n7,5,7,5,7\n", "its first row, 1, 2, 3, 4, 5, could .* they count from 1"),
        ("17,4\n0.5,1.5\n2.5,0.25\n", "they alone have no decimals"),
        ("0\n0.5\n1.5\n", "they alone have no decimals"),
    ],
)
@pytest.mark.filterwarnings("ignore:lines such as")  # pairs of whole numbers
def test_a_first_row_of_numbers_that_could_be_names_is_asked_about(tmp_path, text, reason):
    path = write(tmp_path / "x.csv", text)
    with pytest.raises(ValueError, match=rf"{reason}; set header=True or False \(--header yes or"):
        read_matrix(path)
    rows = text.count("\n")
    assert len(read_matrix(path, header=False)) == rows
    assert len(read_matrix(path, header=True)) == rows - 1


@pytest.mark.parametrize(
    "text",
    [
        "3,1\n4,2\n5,9\n",
        "0.5,1\n4,2\n5,9\n",
        "2019,2020\n2020,2021\n2018,2022\n",
        "0\n1\n2\n",
        '"3","1"\n"4","2"\n',
    ],
)
@pytest.mark.filterwarnings("ignore:lines such as")  # pairs of whole numbers
def test_a_first_row_that_can_only_be_numbers_is_kept(tmp_path, text):
    assert len(read_matrix(write(tmp_path / "x.csv", text))) == text.count("\n")


@pytest.mark.parametrize("first", ["NA,NA", ",", "?,?", "nan,NULL", " , "])
def test_a_first_row_of_blanks_is_no_header(tmp_path, run, first):
    path = write(tmp_path / "x.csv", f"{first}\n0.5,1\n4,2.5\n")
    with pytest.raises(ValueError, match=r"blanks, 1 in column '1', 1 in column '2'; add --missin"):
        read_matrix(path)
    code, _, err = run("fit", path, "--missing", "drop", "--output", path.with_name("l.csv"))
    assert code == 0
    assert "1 row with blanks is left out, and labelled -1 in the labels" in err[0]
    assert read_labels(path.with_name("l.csv")).tolist() == [-1, 0, 0]


def test_names_that_occur_twice_or_are_blank_become_different(tmp_path, run):
    path = write(tmp_path / "x.csv", "a,a,\n1,2,9\n3,5,8\n")
    assert read_matrix(path).shape == (2, 3)
    assert run("fit", path, "--drop", "a.1,column 3", "--summary", tmp_path / "s.json")[0] == 0
    found = json.loads((tmp_path / "s.json").read_text())["preparation"]
    assert (found["columns"], found["left_out"]) == (["a"], ["a.1", "column 3"])


# -- row numbers and ids --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "id", "ID", "index", "Row", "row_id", "Unnamed: 0", "Nr."])
@pytest.mark.parametrize("start", [0, 1])
def test_a_column_that_counts_the_rows_is_left_out(tmp_path, name, start):
    X = np.random.default_rng(0).normal(size=(30, 2))
    frame = pd.DataFrame(X, columns=["x", "y"])
    frame.insert(0, name, np.arange(30) + start)
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.rename(columns={"": "index"}).to_parquet(tmp_path / "x.parquet", index=False)
    for ending in ("csv", "parquet"):
        with pytest.warns(UserWarning, match=ROW_NUMBERS):
            found = read_matrix(tmp_path / f"x.{ending}")
        np.testing.assert_array_equal(found, X)


def test_row_numbers_without_a_header_are_left_out(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 2))
    pd.DataFrame(X).to_csv(tmp_path / "x.csv", header=False)
    with pytest.warns(UserWarning, match=f"column 1 {ROW_NUMBERS}"):
        np.testing.assert_array_equal(read_matrix(tmp_path / "x.csv"), X)


@pytest.mark.parametrize(
    "text",
    ["id\n1\n2\n3\n", "id,a\n3,5\n1,6\n2,8\n", "id,a\n1,5\n2,6\n4,8\n", "time,a\n0,5\n1,7\n2,6\n"],
    ids=["alone", "in another order", "with a gap", "under another name"],
)
def test_a_column_that_could_be_data_stays(tmp_path, text):
    path = write(tmp_path / "x.csv", text)
    assert read_matrix(path).shape[1] == text.partition("\n")[0].count(",") + 1


def test_named_columns_are_kept_even_if_they_count_the_rows(tmp_path, run):
    frame = pd.DataFrame({"id": np.arange(20), "a": np.linspace(0, 1, 20) ** 2})
    frame.to_csv(tmp_path / "x.csv", index=False)
    summary = tmp_path / "s.json"
    code, _, err = run("fit", tmp_path / "x.csv", "--columns", "id,a", "--summary", summary)
    assert code == 0
    assert not [line for line in err if ROW_NUMBERS in line or "may be ids" in line]
    assert json.loads(summary.read_text())["n_features"] == 2


def test_different_whole_numbers_are_warned_of_and_used(tmp_path, run):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"customer": 1000 + rng.permutation(40), "a": 300 * rng.normal(size=40)})
    frame.to_csv(tmp_path / "x.csv", index=False)
    code, _, err = run("fit", tmp_path / "x.csv", "--summary", tmp_path / "s.json")
    assert code == 0
    assert sum("column 'customer' may be ids" in line for line in err) == 1
    assert "leave out by --drop customer" in err[0]
    assert json.loads((tmp_path / "s.json").read_text())["n_features"] == 2


def test_ids_of_the_name_label_do_not_hide_the_labels(tmp_path):
    write_labels(tmp_path / "l.csv", [1, 0], ids=["7", "8"], id_name="label")
    assert (tmp_path / "l.csv").read_text() == "id,label\n7,1\n8,0\n"
    assert read_labels(tmp_path / "l.csv").tolist() == [1, 0]


def test_labels_are_read_from_a_table_that_names_them(tmp_path):
    path = write(tmp_path / "l.csv", "Kunde,label\nK1,2\nK2,0\n")
    assert read_labels(path).tolist() == [2, 0]
    pd.DataFrame({"class": [2, 0, 1]}).to_csv(tmp_path / "p.csv")
    with pytest.warns(UserWarning, match=ROW_NUMBERS):
        assert read_labels(tmp_path / "p.csv").tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class\nsetosa\nvirginica\n", "labels, line 2, column 'class' holds 'setosa'"),
        ("label\n1\nNA\n", "labels, column 'label' holds 1 blank$"),
    ],
)
def test_labels_that_are_no_numbers_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_labels(write(tmp_path / "l.csv", text))


# -- columns, blanks, categories, scales ----------------------------------------------------------


def fitted(tmp_path, run, frame, *options):
    """Fit a frame; return the fitted rows, their names, and what the summary says was done."""
    frame.to_csv(tmp_path / "x.csv", index=False)
    files = ["--model", tmp_path / "m.npz", "--summary", tmp_path / "s.json"]
    code, _, err = run("fit", tmp_path / "x.csv", *options, *files, "--quiet")
    assert code == 0, err
    model = SpecialK.load(tmp_path / "m.npz")
    found = json.loads((tmp_path / "s.json").read_text())["preparation"]
    assert found == model.preparation_
    return model._fit_X, model.feature_names_in_.tolist(), found


FRAME = pd.DataFrame(
    {"a": [1.0, 2.0, 6.0, 3.0], "b": [10.0, np.nan, 20.0, 60.0], "c": ["u", "v", "u", "v"]}
)


def test_columns_and_drop_choose_the_columns(tmp_path, run):
    X, names, _ = fitted(tmp_path, run, FRAME, "--columns", "a")
    assert (X.tolist(), names) == ([[1], [2], [6], [3]], ["a"])
    X, names, _ = fitted(tmp_path, run, FRAME, "--drop", "c,b")
    assert (X.tolist(), names) == ([[1], [2], [6], [3]], ["a"])


def test_missing_median_fills_blanks_and_missing_drop_drops_rows(tmp_path, run):
    X, _, found = fitted(tmp_path, run, FRAME, "--drop", "c", "--missing", "median")
    assert X.tolist() == [[1, 10], [2, 20], [6, 20], [3, 60]]
    assert found["medians"] == {"a": 2.5, "b": 20}
    X, _, found = fitted(tmp_path, run, FRAME, "--drop", "c", "--missing", "drop")
    assert X.tolist() == [[1, 10], [6, 20], [3, 60]]
    assert json.loads((tmp_path / "s.json").read_text())["n_rows_dropped"] == 1


def test_one_hot_gives_a_column_for_each_value(tmp_path, run):
    X, names, found = fitted(tmp_path, run, FRAME, "--one-hot", "c", "--drop", "b")
    assert names == ["a", "c=u", "c=v"]
    assert X.tolist() == [[1, 1, 0], [2, 0, 1], [6, 1, 0], [3, 0, 1]]
    assert found["one_hot"] == {"c": ["u", "v"]}


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("standard", [-2 / 3.5**0.5, -1 / 3.5**0.5, 3 / 3.5**0.5, 0]),
        ("robust", [-1.5 / 2, -0.5 / 2, 3.5 / 2, 0.5 / 2]),
    ],
)
def test_scales_follow_their_definitions(tmp_path, run, scale, expected):
    X, _, found = fitted(tmp_path, run, FRAME, "--columns", "a", "--scale", scale)
    np.testing.assert_allclose(X[:, 0], expected, atol=1e-15)
    assert found["scale"] == scale


def test_columns_that_are_constant_or_nearly_so_are_not_divided_by_zero(tmp_path, run):
    frame = pd.DataFrame({"a": [0.1] * 10, "b": [0.0] * 9 + [10.0], "c": np.linspace(0, 1, 10)})
    X, _, found = fitted(tmp_path, run, frame, "--scale", "standard")
    assert (found["center"]["a"], found["width"]["a"]) == (0.1, 1)
    X, _, _ = fitted(tmp_path, run, frame, "--scale", "robust")
    np.testing.assert_allclose(X[:, 0], 0)
    np.testing.assert_allclose(X[:, 1], [0] * 9 + [10 / 3])  # the standard deviation is 3


@pytest.mark.parametrize("size", [1e308, 1e-250])
def test_a_column_whose_squares_leave_float64_is_not_scaled(tmp_path, run, size):
    frame = pd.DataFrame({"a": size * np.linspace(-1, 1, 10), "b": np.arange(10) ** 2})
    frame.to_csv(tmp_path / "x.csv", index=False)
    code, _, err = run("fit", tmp_path / "x.csv", "--scale", "standard")
    assert (code, len(err)) == (2, 1)
    assert "column 'a' has entries that are infinite, or too large or too small" in err[0]
    assert err[0].endswith("add --drop a")


def test_predict_gives_new_rows_the_fitted_columns_medians_scale_and_categories(
    tmp_path, run, blobs
):
    X, y = blobs
    frame = pd.DataFrame({"no": np.arange(300), "a": 1000 * X[:, 0], "b": X[:, 1]})
    frame["kind"], frame["who"] = np.array(["p", "q"])[y % 2], [f"w{i}" for i in range(300)]
    options = ["--scale", "standard", "--missing", "median", "--one-hot", "kind"]
    options += ["--id-column", "who", "--output", tmp_path / "l.csv"]
    rows, _, found = fitted(tmp_path, run, frame, *options)
    assert same_partition(read_labels(tmp_path / "l.csv"), y)

    new = frame.iloc[[5, 2, 9]].copy()  # without row numbers that count from 0
    new.iloc[0, 1] = np.nan
    new.to_csv(tmp_path / "new.csv", index=False)
    out = ["--output", tmp_path / "new_labels.csv"]
    assert run("predict", tmp_path / "m.npz", tmp_path / "new.csv", *out)[0] == 0
    lines = (tmp_path / "new_labels.csv").read_text().splitlines()
    model = SpecialK.load(tmp_path / "m.npz")
    assert model.predict(new).tolist() == [int(line.partition(",")[2]) for line in lines[1:]]
    del model.feature_names_in_, model.preparation_
    expected = rows[[5, 2, 9]].copy()
    expected[0, 0] = (found["medians"]["a"] - found["center"]["a"]) / found["width"]["a"]
    labels = model.predict(expected)
    assert lines == ["who,label", *(f"w{i},{z}" for i, z in zip([5, 2, 9], labels, strict=True))]


def test_predict_finds_the_columns_of_rows_without_names(tmp_path, run, blobs):
    X, y = blobs
    frame = pd.DataFrame({"a": 1000 * X[:, 0], "skip": 0.5, "b": X[:, 1]})
    fitted(tmp_path, run, frame, "--drop", "skip", "--scale", "standard")
    for columns in (["a", "skip", "b"], ["a", "b"]):
        np.save(tmp_path / "new.npy", frame[columns].to_numpy())
        output = ["--output", tmp_path / "l.npy"]
        assert run("predict", tmp_path / "m.npz", tmp_path / "new.npy", *output)[0] == 0
        assert same_partition(read_labels(tmp_path / "l.npy"), y)


def test_predict_warns_of_categories_that_the_fit_has_not_seen(tmp_path, run):
    fitted(tmp_path, run, FRAME, "--one-hot", "c", "--drop", "b")
    FRAME.assign(c="w").to_csv(tmp_path / "new.csv", index=False)
    code, _, err = run("predict", tmp_path / "m.npz", tmp_path / "new.csv")
    assert code == 0
    assert "column 'c' holds 'w', which no fitted row has: no category is set" in err[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drop", "z"], "--drop names 'z', but the columns are 'a', 'b', 'c'"),
        (["--columns", "a", "--drop", "a"], "--columns and --drop both name 'a'"),
        (["--id-column", "c", "--one-hot", "c"], "the id column 'c' cannot be used as"),
        (["--drop", "a,b,c"], "no column is left to use"),
        (["--one-hot", "c"], "there are blanks, 1 in column 'b'; add --missing median"),
        ([], "column 'c' holds 'u', expected a number (4 such cells); there are blanks, 1 in"),
        (["--columns", "a", "--affinity", "precomputed"], "not with --affinity precomputed"),
        (["--id-column", "c", "--output", "l.npy"], "--id-column writes ids into a .csv file"),
        (["--scale", "much"], "invalid choice: 'much'"),
    ],
)
def test_choices_that_do_not_fit_are_refused(tmp_path, run, options, message):
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    code, out, err = run("fit", tmp_path / "x.csv", *options)
    assert (code, out, len(err)) == (2, "", 1)
    assert message in err[0]


def test_names_with_commas_and_blanks_are_quoted_in_the_advice(tmp_path, run):
    path = write(tmp_path / "x.csv", '"a, b",c d,e\nx,x,1\ny,y,2\n')
    code, _, err = run("fit", path)
    assert code == 2
    advice = err[0].partition("; add ")[2].partition(" (or ")[0]
    assert advice == """--drop '"a, b",c d'"""
    assert run("fit", path, *shlex.split(advice))[0] == 0


DATES = {
    "2024-03-01": True,
    "1.3.2024": True,
    "03/01/24": True,
    "2024/3/1 09:30": True,
    "2024-03-01T09:30:00.5Z": True,
    "2024-03-01 09:30:00+02:00": True,
    "03/01/2024 9:30 PM": True,
    "2024-03/01": False,
    "March": False,
    "12:30": False,
    "2024-03-01 late": False,
}


@pytest.mark.parametrize(("text", "is_date"), DATES.items())
@pytest.mark.parametrize("distinct", [True, False])
def test_dates_are_neither_ids_nor_categories(tmp_path, run, text, is_date, distinct):
    days = [text.replace("24", f"{10 + i if distinct else 24}") for i in range(30)]
    rows = "".join(f"{day},{i % 7},{i % 5}\n" for i, day in enumerate(days))
    path = write(tmp_path / "x.csv", f"when,a,b\n{rows}")
    (err,) = run("fit", path)[2]
    said = "column 'when' holds dates: leave it out, or write it into the file as numbers, such as"
    assert (said in err) == is_date
    if is_date:
        assert err.endswith("; add --drop when")
    else:
        assert "--id-column when" in err or "--one-hot when" in err


def test_two_columns_of_dates_are_told_in_one_sentence(tmp_path, run):
    rows = "".join(f"2024-01-{i:02},2024-02-{i:02},{i % 7}\n" for i in range(1, 25))
    (err,) = run("fit", write(tmp_path / "x.csv", f"from,to,a\n{rows}"))[2]
    assert "columns 'from', 'to' hold dates: leave them out, or write them into" in err


def test_the_advice_warns_of_categories_and_names_the_scale(tmp_path, run):
    rows = "".join(f"{'xyz'[i % 3]},{i % 7},{i % 5}\n" for i in range(40))
    path = write(tmp_path / "x.csv", f"c,a,b\n{rows}")
    categories, units = "--one-hot may make a cluster of each", "different units, take --scale"
    (err,) = run("fit", path)[2]
    assert categories in err
    assert units in err
    (err,) = run("fit", path, "--scale", "standard")[2]
    assert units not in err
    ids = write(tmp_path / "ids.csv", "k,a\n" + "".join(f"k{i},{i % 7}\n" for i in range(40)))
    (err,) = run("fit", ids)[2]  # one column is left
    assert categories not in err
    assert units not in err


def test_both_ways_that_the_advice_names_work_when_copied(tmp_path, run):
    rows = "u,p,1,2\nv,q,2,\n,p,3,9\nv,q,4,3\n"
    code, _, err = run("fit", write(tmp_path / "x.csv", "s,dec,x,y\n" + rows))
    assert code == 2
    for advice in err[0].removesuffix(")").partition("; add ")[2].split(" (or "):
        assert run("fit", tmp_path / "x.csv", *shlex.split(advice))[0] == 0


def test_the_advice_drops_columns_that_are_blank_or_have_stray_text(tmp_path, run):
    path = write(tmp_path / "x.csv", "a;b;\n1;2;\n3;4;\nx;5;\n")
    code, _, err = run("fit", path)
    assert code == 2
    assert err[0].endswith("3 in column 'column 3'; add --drop 'a,column 3'")
    assert run("fit", path, "--drop", "a,column 3")[0] == 0


def test_a_blank_above_names_of_rows_is_asked_about(tmp_path):
    path = write(tmp_path / "x.csv", ",0,1\nu,0.5,0.25\nv,0.5,0.5\n")
    with pytest.raises(ValueError, match="its first row mixes numbers and blanks; set header="):
        read_matrix(path)


def test_one_column_that_decides_alone_is_warned_of(tmp_path, run, blobs):
    X, y = blobs
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"age": X[:, 0], "income": 23608 * rng.normal(size=300), "n": X[:, 1]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    code, _, err = run("fit", tmp_path / "x.csv", "--quiet")
    assert code == 0
    assert len(err) == 1
    assert "a standard deviation of 21,758 in 'income', and of 5.7288 in 'n'" in err[0]
    assert (
        "those of the widest columns alone: consider --scale standard, or --drop income" in err[0]
    )
    code, out, err = run("fit", tmp_path / "x.csv", "--quiet", "--scale", "standard")
    assert (code, err) == (0, [])
    assert out.startswith("k = 3 clusters")


# -- names that are no text -----------------------------------------------------------------------


TWO_COMMANDS = """
import sys
from specialk_gpu.cli import main
second = sys.argv.index("then")
print(main(sys.argv[1:second]), main(sys.argv[second + 1 :]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux only")
def test_a_file_name_that_is_no_utf_8_works_in_all_places(tmp_path):
    folder = bytes(tmp_path)
    X, _ = make_shape("blobs", n_samples=100, random_state=0)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",")
    (tmp_path / "x.csv").rename(folder.decode() + "/x\udcff.csv")
    arguments = [b"fit", b"x\xff.csv", b"--report", b"r\xff.html", b"--output", b"l\xff.csv"]
    arguments += [b"--summary", b"s\xff.json", b"--model", b"m\xff.npz", b"--quiet"]
    arguments += [b"then", b"fit", b"n\xff\x1b.csv"]
    command = [sys.executable, "-c", TWO_COMMANDS, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.endswith(b"0 2\n")
    assert b"x\\xff.csv: 100 rows" in (tmp_path / "r\udcff.html").read_bytes()
    assert done.stderr == rb"specialk-gpu: error: n\xff\x1b.csv: No such file or directory" b"\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names of files")
def test_control_characters_in_names_never_reach_the_terminal(tmp_path, run):
    path = write(tmp_path / "x\x1b[31m.csv", "a\x1b[2J,b\nx,1\n2,y\n")
    code, _, err = run("fit", path)
    assert code == 2
    assert len(err) == 1
    assert r"x\x1b[31m.csv: line 2, column 'a\x1b[2J' holds 'x'" in err[0]
    assert err[0].isprintable()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", ["a", 5]),
        ("one_hot", {"c": 5}),
        ("center", {"a": "much"}),
        ("width", {"a": 0.0}),
        ("medians", {}),
        ("scale", "huge"),
        ("more", 1),
    ],
)
def test_a_model_with_damaged_columns_is_refused(tmp_path, run, name, value):
    options = ["--columns", "a", "--missing", "median", "--scale", "standard"]
    fitted(tmp_path, run, FRAME, *options)
    with np.load(tmp_path / "m.npz") as file:
        arrays = dict(file)
    content = json.loads(str(arrays["content"]))
    content["state"]["preparation_"]["value"][name] = value
    np.savez(tmp_path / "m.npz", **arrays | {"content": np.array(json.dumps(content))})
    code, _, err = run("predict", tmp_path / "m.npz", tmp_path / "x.csv")
    assert (code, len(err)) == (2, 1)
    assert "what the model holds about its columns is damaged, or of another version" in err[0]


def test_a_preparation_for_other_columns_than_the_fitted_ones_is_refused(tmp_path, run):
    fitted(tmp_path, run, FRAME, "--drop", "b", "--one-hot", "c")
    model = SpecialK.load(tmp_path / "m.npz")
    model.preparation_ = model.preparation_ | {"one_hot": {"c": ["u", "v", "w"]}}
    with pytest.raises(ValueError, match="preparation_ gives 4 columns, the fit has 3"):
        model.save(tmp_path / "n.npz")


# -- new rows in Python, for a model of the command line ------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory, blobs):
    """A model of scaled columns, saved by the command line, and its table."""
    folder = tmp_path_factory.mktemp("scaled")
    frame = pd.DataFrame({"skip": 0.5, "a": 10_000 * blobs[0][:, 0], "b": blobs[0][:, 1]})
    frame.to_csv(folder / "x.csv", index=False)
    choices = ["--drop", "skip", "--scale", "standard", "--missing", "drop", "--quiet"]
    assert main(["fit", f"{folder / 'x.csv'}", *choices, "--model", f"{folder / 'm.npz'}"]) == 0
    return folder / "m.npz", frame


@pytest.fixture
def scaled(saved, blobs):
    model = SpecialK.load(saved[0])
    assert same_partition(model.labels_, blobs[1])
    return model, saved[1].copy()


FORMS = {
    "pandas": lambda frame: frame,
    "columns used": lambda frame: frame[["a", "b"]],
    "another order": lambda frame: frame[["b", "skip", "a"]],
    "another column": lambda frame: frame.assign(c="text"),
    "Float64": lambda frame: frame.convert_dtypes(),
    "objects": lambda frame: frame.astype(object),
    "polars": lambda frame: polars.from_dict(frame.to_dict("list")),
    "pyarrow": lambda frame: pyarrow.table(frame.to_dict("list")),
    "array": lambda frame: frame.to_numpy(),
    "array of the columns used": lambda frame: frame[["a", "b"]].to_numpy(),
    "list": lambda frame: frame.to_numpy().tolist(),
    "numbered frame": lambda frame: pd.DataFrame(frame.to_numpy()),
}


@pytest.mark.parametrize("form", FORMS)
def test_new_rows_in_python_are_prepared_as_the_fitted_ones(scaled, form):
    model, frame = scaled
    X = FORMS[form](frame)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    shares = model.predict_proba(X)
    np.testing.assert_array_equal(shares.argmax(axis=1), model.labels_)
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_the_index_in_a_data_frame_of_new_rows_is_left_out_with_a_warning(scaled):
    model, frame = scaled
    frame = frame.reset_index(names="Unnamed: 0")  # as pandas reads what it has written
    with pytest.warns(UserWarning, match=f"column 'Unnamed: 0' {ROW_NUMBERS}"):
        np.testing.assert_array_equal(model.predict(frame), model.labels_)


def test_rows_with_blanks_that_the_fit_drops_have_no_label(scaled):
    model, frame = scaled
    frame = frame.copy()
    frame.loc[[3, 9], "a"] = np.nan
    left_out = "2 rows with blanks are left out, and labelled -1"
    for X in (frame, frame.to_numpy()):
        with pytest.warns(UserWarning, match=left_out):
            labels = model.predict(X)
        assert labels[[3, 9]].tolist() == [-1, -1]
        assert np.delete(labels, [3, 9]).tolist() == np.delete(model.labels_, [3, 9]).tolist()
    with pytest.warns(UserWarning, match=left_out):
        shares = model.predict_proba(frame)
    assert np.flatnonzero(np.isnan(shares).all(axis=1)).tolist() == [3, 9]
    for rows in ([3], [3, 9]):
        incomplete = frame.iloc[rows]
        with pytest.warns(UserWarning, match="labelled -1"):
            labels = model.predict(incomplete)
        assert (labels.tolist(), labels.dtype) == ([-1] * len(rows), model.labels_.dtype)
        with pytest.warns(UserWarning, match="labelled -1"):
            shares = model.predict_proba(incomplete)
        assert shares.shape == (len(rows), model.n_clusters_)
        assert np.isnan(shares).all()


def test_a_file_of_incomplete_rows_is_labelled_minus_one(tmp_path, run, saved):
    write(tmp_path / "new.csv", "skip,a,b\n1,,2\n1,3,\n")
    arguments = ["predict", saved[0], tmp_path / "new.csv"]
    code, out, _ = run(*arguments, "--output", tmp_path / "l.csv")
    assert (code, out.split("\n")[0]) == (0, "cluster 0: 0 rows")
    assert read_labels(tmp_path / "l.csv").tolist() == [-1, -1]


def test_columns_are_found_by_name_where_the_fit_has_changed_nothing(tmp_path, run):
    fitted(tmp_path, run, FRAME[["a"]].assign(z=[0.5, 2, 1, 3.5]))
    model, new = SpecialK.load(tmp_path / "m.npz"), pd.DataFrame({"a": [1.0], "z": [0.5]})
    for frame in (new, new[["z", "a"]], new.assign(c="text"), pyarrow.table(new)):
        assert model.predict(frame).tolist() == [model.labels_[0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f[["a"]], "columns of the fit are 'a', 'b', but 'b' is not among 'a'"),
        (lambda f: f.iloc[:0], "it has no rows"),
        (lambda f: f[["a"]].to_numpy(), "expected 2 columns, as in the fit, got 1"),
        (lambda f: f.assign(a="x"), r"column 'a' holds 'x', expected a number \(300 such cells\)"),
        (lambda f: f.to_numpy()[0], r"expected a data frame or an array of .* got shape \(3,\)"),
        (lambda f: f.to_numpy().astype(str), "expected numbers, got dtype <U"),
        (lambda f: sparse.csr_array(f.to_numpy()), "expected a data frame or an array of"),
    ],
)
def test_rows_that_cannot_be_prepared_are_refused_and_not_predicted(scaled, change, message):
    model, frame = scaled
    with pytest.raises(
        ValueError, match=f"X cannot be prepared as the fitted table was: .*{message}"
    ):
        model.predict(change(frame))


def test_categories_need_names_of_columns(tmp_path, run):
    fitted(tmp_path, run, FRAME, "--one-hot", "c", "--drop", "b")
    model = SpecialK.load(tmp_path / "m.npz")
    for frame in (FRAME, FRAME.astype({"c": "category"}), polars.from_dict(FRAME.to_dict("list"))):
        assert model.predict(frame).tolist() == model.labels_.tolist()
    with pytest.raises(ValueError, match="columns of text need a data frame with names of columns"):
        model.predict(FRAME.to_numpy())


def test_a_new_fit_forgets_what_the_command_line_has_prepared(scaled, blobs):
    model, _ = scaled
    X, y = blobs
    model.fit(X)
    assert not hasattr(model, "preparation_")
    assert same_partition(model.predict(X), y)


# -- other kinds of files -------------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["pyarrow", "polars"])
def test_parquet_is_prepared_as_text_is(tmp_path, run, monkeypatch, reader):
    expected, names, _ = fitted(tmp_path, run, FRAME, "--one-hot", "c", "--missing", "median")
    if reader == "polars":
        polars.from_dict(FRAME.to_dict("list")).write_parquet(tmp_path / "x.parquet")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "polars" or None)
    else:
        FRAME.to_parquet(tmp_path / "x.parquet")
    options = ["--one-hot", "c", "--missing", "median", "--model", tmp_path / "p.npz"]
    assert run("fit", tmp_path / "x.parquet", *options)[0] == 0
    model = SpecialK.load(tmp_path / "p.npz")
    np.testing.assert_array_equal(model._fit_X, expected)
    assert model.feature_names_in_.tolist() == names
    code, _, err = run("fit", tmp_path / "x.parquet")
    assert code == 2
    assert "column 'c' holds 'u', expected a number (4 such cells)" in err[0]


def test_arrays_without_names_are_prepared_by_number(tmp_path, run):
    X = np.array([[1.0, 5, 0], [3, np.nan, 0], [8, 7, 1], [4, 9, 3]])
    np.save(tmp_path / "x.npy", X)
    options = ["--drop", "3", "--missing", "median", "--model", tmp_path / "m.npz"]
    assert run("fit", tmp_path / "x.npy", *options)[0] == 0
    model = SpecialK.load(tmp_path / "m.npz")
    assert model._fit_X.tolist() == [[1, 5], [3, 7], [8, 7], [4, 9]]
    assert run("predict", tmp_path / "m.npz", tmp_path / "x.npy")[0] == 0
    np.save(tmp_path / "wide.npy", np.ones((2, 7)))
    code, _, err = run("predict", tmp_path / "m.npz", tmp_path / "wide.npy")
    assert code == 2
    assert "expected 2 columns, as in the fit, got 7" in err[0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("x.npy", ["--one-hot", "1"], "need a table: .csv, .tsv, .txt or .parquet"),
        ("x.npy", ["--drop", "4"], "--drop names '4', but the columns are '1', '2', '3'"),
        ("w.npz", ["--drop", "1"], "a sparse matrix has no columns to choose or to scale"),
    ],
)
def test_what_arrays_cannot_do_is_refused(tmp_path, run, name, options, message):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(4, 3))
    sparse.save_npz(tmp_path / "w.npz", sparse.eye_array(3, format="csr"))
    code, out, err = run("fit", tmp_path / name, *options)
    assert (code, out, len(err)) == (2, "", 1)
    assert message in err[0]


def test_what_is_no_preparation_is_not_saved_with_a_model(tmp_path, run):
    fitted(tmp_path, run, FRAME, "--columns", "a")
    model = SpecialK.load(tmp_path / "m.npz")
    model.preparation_ = ["a"]
    with pytest.raises(ValueError, match="preparation_ must be an object"):
        model.save(tmp_path / "m.npz")


def test_five_names_are_listed_and_the_others_counted():
    assert listed("abcde") == "'a', 'b', 'c', 'd', 'e'"
    assert listed("abcdef") == "'a', 'b', 'c', 'd', 'e' and 1 more"
