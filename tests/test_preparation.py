"""Columns of files become numbers: blanks, categories and scales by their definitions."""

import math
import re
import sys

import numpy as np
import pandas as pd
import pytest

from specialk_gpu._warnings import ScaleWarning
from specialk_gpu.io.rows import read_new_rows, read_rows
from specialk_gpu.tables import frames
from specialk_gpu.tables.choice import Choice
from specialk_gpu.tables.preparation import Preparation

TEXT = "a,b,kind\n1,10,red\n2,,blue\n4,30,\n9,20,red\n"


def prepared(path, text=TEXT, *, graph=False, **choice):
    path.write_text(text)
    return read_rows(path, Choice(**choice), key=None, header=None, graph=graph)


def test_blanks_become_medians_and_categories_columns(tmp_path):
    path = tmp_path / "x.csv"
    preparation, found = prepared(path, one_hot=("kind",), missing="median")
    expected = [[1, 10, 0, 1], [2, 20, 1, 0], [4, 30, 0, 0], [9, 20, 0, 1]]
    np.testing.assert_array_equal(found.X, expected)
    again = read_new_rows(path, preparation, key=None, header=None)
    np.testing.assert_array_equal(again.X, expected)
    path.write_text("a,b,kind\n5,,green\n,7,blue\n")
    with pytest.warns(UserWarning, match="green"):
        new = read_new_rows(path, preparation, key=None, header=None)
    np.testing.assert_array_equal(new.X, [[5, 20, 0, 0], [3, 7, 1, 0]])


def test_rows_with_blanks_are_left_out_and_labelled_minus_one(tmp_path):
    with pytest.warns(UserWarning, match="^2 rows with blanks are left out"):
        _, found = prepared(tmp_path / "x.csv", one_hot=("kind",), missing="drop")
    assert found.X[:, :2].tolist() == [[1, 10], [9, 20]]
    assert found.for_all_rows(np.array([7, 5])).tolist() == [7, -1, -1, 5]
    with pytest.warns(UserWarning, match="^1 row with blanks is left out"):
        _, found = prepared(tmp_path / "x.csv", drop=("kind",), missing="drop")
    assert found.X.tolist() == [[1, 10], [4, 30], [9, 20]]


def test_columns_of_text_are_found_by_place_where_there_are_no_names(tmp_path):
    path = tmp_path / "x.csv"
    preparation, _ = prepared(path, drop=("b",), one_hot=("kind",), missing="median")
    for text in ("5,7,red\n6,8,blue\n", "5,red\n6,blue\n"):  # all columns, or those in use
        path.write_text(text)
        new = read_new_rows(path, preparation, key=None, header=False)
        np.testing.assert_array_equal(new.X, [[5, 0, 1], [6, 1, 0]])


@pytest.mark.parametrize(
    ("scale", "center", "width"),
    [("standard", 3.0, math.sqrt(5.2)), ("robust", 2.0, 3.0)],
)
def test_scales_are_those_of_the_fit(tmp_path, scale, center, width):
    path, values = tmp_path / "x.csv", np.array([1.0, 1, 2, 4, 7])
    text = "a,b\n" + "".join(f"{x:g},5\n" for x in values)
    preparation, found = prepared(path, text, scale=scale)
    np.testing.assert_allclose(found.X[:, 0], (values - center) / width, rtol=1e-15)
    np.testing.assert_array_equal(found.X[:, 1], 0)
    path.write_text("a,b\n8,6\n")
    new = read_new_rows(path, preparation, key=None, header=None).X
    np.testing.assert_allclose(new, [[(8 - center) / width, 1]], rtol=1e-15)


def test_equal_quartiles_leave_the_standard_deviation(tmp_path):
    _, found = prepared(tmp_path / "x.csv", "a\n" + "0\n" * 9 + "10\n", scale="robust")
    np.testing.assert_allclose(found.X[:, 0], [0] * 9 + [10 / 3], rtol=1e-15)


def test_unequal_scales_are_told_of_unless_columns_are_scaled(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 2)) * [1, 1000]
    text = "a,b\n" + "".join(f"{a},{b}\n" for a, b in rows.tolist())
    with pytest.warns(ScaleWarning, match="in 'b', and of .* in 'a'"):
        prepared(tmp_path / "x.csv", text)
    prepared(tmp_path / "x.csv", text, scale="standard")  # a warning would be an error


def test_ids_are_told_of_from_ten_rows_and_two_columns_on(tmp_path):
    numbers = [7, 3, 5, 11, 2, 40, 17, 23, 9, 31]
    lines = [f"{number},{i % 3}.5\n" for i, number in enumerate(numbers)]
    with pytest.warns(UserWarning, match="^column 'who' may be ids"):
        prepared(tmp_path / "x.csv", "who,b\n" + "".join(lines))
    for few in (
        "who,b\n" + "".join(lines[:9]),
        "who\n" + "".join(f"{number}\n" for number in numbers),
        "who,b\n" + "".join(lines[:9]) + "7,1.5\n",
        "who,b\n" + "".join(lines[:9]) + "2.5,1.5\n",
    ):
        prepared(tmp_path / "x.csv", few)  # a warning would be an error
    _, found = prepared(tmp_path / "x.csv", "who,b\n" + "".join(lines), columns=("who", "b"))
    assert found.X[:, 0].tolist() == numbers


@pytest.mark.parametrize(
    ("text", "choice", "message"),
    [
        (TEXT, {"one_hot": ("kind",)}, "column 'b'.*blank|blank.*column 'b'"),
        (
            "a,kind\n1,red\n2,\n",
            {"one_hot": ("kind",)},
            "blanks, 1 in column 'kind'; add --missing",
        ),
        ("a,b\n1,\n,2\n", {"missing": "drop"}, "every row has a blank.*take --missing median"),
        ("a,b\n1,\n2,\n", {"missing": "drop"}, "'b' is blank throughout: add --drop b$"),
        ("a,b\n1,\n2,\n", {"missing": "median"}, "column 'b' has no number, so it has no median"),
        ("a\n1\n", {"drop": ("a",)}, "no column is left to use"),
        ("a\n1\n", {"columns": ("c",)}, "--columns names 'c', but the columns are 'a'"),
        (TEXT, {"columns": ("a",), "drop": ("a",)}, "--columns and --drop both name 'a'"),
        (TEXT, {"id_column": "a", "columns": ("a",)}, "the id column 'a' cannot be used"),
        (TEXT, {"graph": True, "drop": ("a",)}, "are for rows of features, not with --affinity"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, text, choice, message):
    with pytest.raises(ValueError, match=message):
        prepared(tmp_path / "x.csv", text, **choice)


NUMBERED = "a,kind,b\n1,3,5\n2,7,5\n4,3,6\n9,7,6\n"


@pytest.mark.parametrize("form", ["{:.0f}", "{:.1f}"])
def test_categories_that_are_whole_numbers_match_whatever_a_blank_makes_of_them(tmp_path, form):
    kinds = [form.format(kind) for kind in (3, 7, 3, 7)]
    rows = [f"{a},{kind}\n" for a, kind in zip((1, 2, 4, 9), kinds, strict=True)]
    preparation, _ = prepared(tmp_path / "x.csv", "a,kind\n" + "".join(rows), one_hot=("kind",))
    preparation.missing = "median"
    preparation.medians = {"a": 0.0}
    frame = pd.DataFrame({"a": [5.0, 6, 7], "kind": [7.0, np.nan, 3]})
    assert preparation.of_rows(frame).X.tolist() == [[5, 0, 1], [6, 0, 0], [7, 1, 0]]
    with pytest.warns(UserWarning, match="column 'kind' holds '3.5', '8.0', which no fitted row"):
        preparation.of_rows(frame.assign(kind=[3.5, 8.0, np.nan]))


def test_columns_of_new_rows_are_found_by_name(tmp_path):
    choice = {"one_hot": ("kind",), "scale": "standard"}
    preparation, found = prepared(tmp_path / "x.csv", NUMBERED, **choice)
    new = pd.read_csv(tmp_path / "x.csv")[["b", "kind", "a"]].assign(more="text")
    np.testing.assert_array_equal(preparation.of_rows(new).X, found.X)
    new.to_csv(tmp_path / "new.csv", index=False)
    again = read_new_rows(tmp_path / "new.csv", preparation, key=None, header=None)
    np.testing.assert_array_equal(again.X, found.X)
    with pytest.raises(ValueError, match="of the fit are 'a', 'kind', 'b', but 'kind' is not amo"):
        preparation.of_rows(new.drop(columns="kind"))


def test_no_rows_are_refused_in_one_line(tmp_path):
    preparation, _ = prepared(tmp_path / "x.csv", NUMBERED, one_hot=("kind",))
    with pytest.raises(ValueError, match="it has no rows. Pass rows as they are in the file"):
        preparation.of_rows(pd.read_csv(tmp_path / "x.csv").iloc[:0])


NUMBERS = "".join(f"{i % 7}.5,{i % 5}.25,{i % 3}\n" for i in range(120))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("a,b,c\nmm,kg,s\n" + NUMBERS, "; remove line 2 if it is a second header"),
        ("a,b,c\nmm,,s\n" + NUMBERS, "; remove line 2 if it is a second header; add --missing med"),
        (
            "a,b\n−1,2\n3,–4.5\n",
            "; write '-' in 'a', 'b', where another character stands for minus",
        ),
        ("a;b\n−1,5;2\n3;x\n", "write '-' in 'a', where another character stands for minus; add -"),
        (
            "a,b,c\n" + NUMBERS + "missing,2,3\n1,(null),4\n",
            "leave the cells of 'a', 'b' empty that hold no number; add --missing median "
            "(or --missing drop)",
        ),
        ("a,b\nu,v\nu,w\nu,v\n", "; add --one-hot a,b"),
        ("a\n1\nu\nu\n2\n", r"; without these columns none is left"),
        (
            "s,x,t,y\nu,1,2,5\nu,,v,4\nu,3,3,6\n",
            "; add --drop s,t --missing median (or --drop t --one-hot s --missing drop)",
        ),
    ],
)
def test_advice_mends_the_file_or_does_without_a_part_of_its_columns(tmp_path, text, advice):
    with pytest.raises(ValueError, match=re.escape(advice)):
        prepared(tmp_path / "x.csv", text)


def test_blanks_of_arrays_are_filled_or_told_of(tmp_path):
    path, X = tmp_path / "x.npy", np.array([[1, 2.0], [np.nan, 4], [3, 9]])
    np.save(path, X)

    def read(**choice):
        return read_rows(path, Choice(**choice), key=None, header=None, graph=False)

    for choice in ({}, {"scale": "standard"}):
        with pytest.raises(ValueError, match="1 in column '1'; add --missing median .or --missing"):
            read(**choice)
    preparation, found = read(missing="median")
    assert found.X.tolist() == [[1, 2], [2, 4], [3, 9]]
    assert read_new_rows(path, preparation, key=None, header=None).X.tolist() == found.X.tolist()
    with pytest.raises(ValueError, match="there are blanks, 1 in column '1'$"):
        read_new_rows(path, None, key=None, header=None)


def test_a_graph_is_given_on_as_it_is(tmp_path):
    np.save(tmp_path / "w.npy", [[0, np.nan], [np.nan, 0]])  # graphs are checked later
    preparation, found = read_rows(tmp_path / "w.npy", Choice(), key=None, header=None, graph=True)
    assert preparation is None
    np.testing.assert_array_equal(found.X, [[0, np.nan], [np.nan, 0]])


def test_row_numbers_of_new_rows_are_left_out(tmp_path):
    preparation, _ = prepared(tmp_path / "x.csv", "a,b\n5,1\n3,2\n4,9\n", scale="standard")
    (tmp_path / "new.csv").write_text(",a,b\n0,5,1\n1,3,2\n")
    with pytest.warns(UserWarning, match="column 1 counts the rows and is left out"):
        new = read_new_rows(tmp_path / "new.csv", preparation, key=None, header=None)
    assert new.X.shape == (2, 2)


@pytest.mark.parametrize("scale", ["standard", "robust"])
def test_widths_beyond_float64_are_refused(tmp_path, scale):
    text = "a,b\n" + "".join(f"{x},1\n" for x in ("1e308", "-1e308", "1.1e308", "-1.1e308"))
    with pytest.raises(ValueError, match="column 'a' has entries that are infinite, or too large"):
        prepared(tmp_path / "x.csv", text, scale=scale)


@pytest.mark.parametrize(
    ("texts", "distinct"),
    [("abcdefghij", True), ("abcdefghi", False), ("abcdefghia", False), ("abcdefghi?", True)],
)
def test_ten_texts_of_a_frame_or_more_that_all_differ_are_ids(texts, distinct):
    _, fault = frames._numbers_in_frame(pd.Series([*texts, None]))
    assert (fault.distinct, fault.wrong, fault.blanks) == (distinct, len(texts), 1)
    assert fault.values == set(texts)


def test_one_column_alone_is_advised_for_ids(tmp_path):
    text = "a,b,x\n" + "".join(f"k{i},l{i},{i % 5}\n" for i in range(12))
    with pytest.raises(ValueError, match=r"add --drop b --id-column a|add --id-column a --drop b"):
        prepared(tmp_path / "x.csv", text)


def preparation_of_all_kinds(**changed):
    """Columns a and b are numbers, c has categories, and i holds ids."""
    content = {
        "order": ["i", "a", "b", "c"],
        "header": True,
        "columns": ["a", "b", "c"],
        "left_out": ["i"],
        "id_column": "i",
        "one_hot": {"c": ["x", "y", "z"]},
        "missing": "median",
        "medians": {"a": 1.0, "b": -sys.float_info.max},
        "scale": "standard",
        "center": {"a": 0, "b": 2.5},
        "width": {"a": 1e-300, "b": 2},
    }
    return content | changed


@pytest.mark.parametrize(
    "changed",
    [
        {"id_column": None},
        {"header": False},
        {"one_hot": {}, "scale": None, "center": {}, "width": {}, "missing": None, "medians": {}},
        {"missing": "drop", "medians": {}},
        {"missing": None, "medians": {}},
        {"scale": "robust"},
        {"scale": None, "center": {}, "width": {}},
        {},
    ],
)
def test_a_preparation_is_taken_as_it_was_saved(changed):
    content = preparation_of_all_kinds(**changed)
    found = Preparation.from_json(content)
    assert found.to_json() == content
    assert found.n_prepared == 5 - 2 * (content["one_hot"] == {})


@pytest.mark.parametrize(
    "changed",
    [
        {"order": "iabc"},
        {"order": ["i", "a", "b", "c", "c"]},
        {"order": dict.fromkeys("iabc")},
        {"order": ["i", "a", "b", "c", 1]},
        {"columns": ["b", "a", "c"]},
        {"columns": ["a", "b"]},
        {"columns": ("a", "b", "c")},
        {"left_out": []},
        {"left_out": ["i", "a"]},
        {"header": 1},
        {"header": None},
        {"id_column": "a"},
        {"id_column": "other"},
        {"one_hot": ["c"]},
        {"one_hot": {"c": ["x", "x"]}},
        {"one_hot": {"c": "xy"}},
        {"one_hot": {"c": ["x"], "other": ["y"]}},
        {"missing": "mean"},
        {"missing": None},
        {"missing": "drop"},
        {"medians": {}},
        {"medians": {"a": 1.0}},
        {"medians": {"a": 1.0, "b": 1.0, "c": 1.0}},
        {"medians": {"a": 1.0, "b": "1"}},
        {"medians": {"a": 1.0, "b": math.inf}},
        {"medians": {"a": 1.0, "b": math.nan}},
        {"medians": [1.0, 2.0]},
        {"scale": "much"},
        {"scale": None},
        {"center": {"a": 1.0}},
        {"center": {"a": 1.0, "b": -math.inf}},
        {"width": {"a": 1.0}},
        {"width": {"a": 1.0, "b": 0}},
        {"width": {"a": -1.0, "b": 1.0}},
        {"other": 1},
    ],
)
def test_a_preparation_that_contradicts_itself_is_refused(changed):
    with pytest.raises(ValueError, match="what the model holds about its columns is damaged"):
        Preparation.from_json(preparation_of_all_kinds(**changed))


def test_a_preparation_lacks_nothing():
    whole = preparation_of_all_kinds()
    for wrong in (None, [], *({k: v for k, v in whole.items() if k != name} for name in whole)):
        with pytest.raises(ValueError, match="what the model holds about its columns is damaged"):
            Preparation.from_json(wrong)


@pytest.mark.parametrize(
    ("changed", "changes"),
    [
        ({"left_out": ["x"]}, True),
        ({"one_hot": {"c": []}}, True),
        ({"missing": "drop"}, True),
        ({"scale": "robust"}, True),
        ({}, False),
    ],
)
def test_what_changes_rows_is_told(changed, changes):
    assert Preparation(**changed).changes == changes


def test_infinities_are_told_of_by_column(tmp_path):
    path = tmp_path / "x.csv"
    for cell in ("inf", "-1e400"):
        with pytest.raises(
            ValueError, match=r"x.csv: column 'b' is inf.* in data row 2; .*--drop b"
        ):
            prepared(path, f"a,b\n1,2\n3,{cell}\n")
    with pytest.raises(ValueError, match="data row 1, and so are entries of 'b'$"):
        prepared(path, "a,b\ninf,2\n3,inf\n")
    np.save(tmp_path / "x.npy", [[1, np.inf], [2, 3]])
    with pytest.raises(ValueError, match="column '2' is infinite"):
        read_rows(tmp_path / "x.npy", Choice(), key=None, header=None, graph=False)
