"""Numbers in text: tables in every dialect, Matrix Market by its specification."""

import gzip
import re

import numpy as np
import pytest
from scipy import io, sparse

from specialk_gpu.io import matrix_market, text
from specialk_gpu.io.dialect import dialect_of, is_blank, is_number
from specialk_gpu.io.files import read_matrix

X = np.random.default_rng(0).normal(size=(7, 3))
W = sparse.random_array((6, 6), density=0.4, rng=0, format="csr")
BANNER = "%%MatrixMarket matrix"


def write_text(path, text):
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as stream:
        stream.write(text)
    return path


def csv_text(delimiter=",", names=("a", "b", "c")):
    rows = [delimiter.join(names)] if names else []
    rows += [delimiter.join(map(repr, row)) for row in X.tolist()]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("text", "separator", "comma", "header", "row_names"),
    [
        ("", ",", False, False, False),
        ("x,y|1,2", ",", False, True, False),
        ("2,3|4,5", ",", False, False, False),
        ("2;3|4;5", ";", False, False, False),
        ("a;b|1,5;2,5", ";", True, True, False),
        ("a;b|1.5;2.5", ";", False, True, False),
        ("a;b|1,x;2,5", ";", True, True, False),  # one such number is enough
        ("1,5;2,5", ";", True, False, False),
        ("1,5;2,5;3,5|1;2;3|4;5;6", ";", False, True, False),  # rows below the first decide
        ("a;b,c|1;2,3", ";", True, True, False),  # more numbers
        ("a;b,c|1;x,3", ",", False, True, False),  # of equals, the first
        ("a\tb;c|1\t2;3|4\t5;6", ";", False, True, False),
        # a first row that lacks a name
        ("x,y|r,1,2|s,3,4|t,5,6", ",", False, True, True),
        ("x,y|r,1,2|s,3,4", ",", False, True, True),
        ("x,y|r,1,2|r,3,4|t,5,6", ",", False, True, False),  # names of rows differ
        ("x,y|1,2,|3,4,|5,6,", ",", False, True, False),  # each row ends in a separator
        ("x,y|r,1,2|s,3,4,5|t,5,6", ",", False, True, False),
        ("x,5|r,1,2|s,3,4|t,5,6", ",", False, True, True),
        # numbers and blanks in the first row
        (",,|1,2,3", ",", False, False, False),
        (",NA|1,2", ",", False, False, False),
        (",0,1|0,5,6|1,7,8", ",", False, True, False),  # above the numbers of rows
        (",0,1|1,5,6|2,7,8", ",", False, True, False),
        ("1,,3|4,5,6", ",", False, False, False),  # gaps
        ("1,NA,3|4,5,6", ",", False, False, False),
        # a first row of whole numbers that are no names
        ("2,3,4|5,6,7", ",", False, False, False),
        ("1,2,4|5,6,7", ",", False, False, False),
        ("1.0,2.0|5,6", ",", False, False, False),
        ("1,2", ",", False, False, False),
        ("1899,2000|5,6", ",", False, False, False),
        ("1900,2101|5,6", ",", False, False, False),
        ("2000,1999|5,6", ",", False, False, False),
        ("1990,1990|5,6", ",", False, False, False),
        ("1990,1995|1900,2100|1,2", ",", False, False, False),  # half of the others are years too
        ("3,5|1.5,2", ",", False, False, False),
        ('"3","5"|"7",8', ",", False, False, False),
    ],
)
def test_the_first_lines_tell_how_a_table_is_written(text, separator, comma, header, row_names):
    lines = [line + "\n" for line in text.split("|")] if text else []
    found = dialect_of(lines, "csv", None)
    assert found == (separator, comma, header, row_names, 0)
    for stated in (f"sep={separator}\n", f'"SEP={separator}"\r\n'):
        assert dialect_of([stated, *lines], "csv", None) == found._replace(skipped=1)
    for asked in (False, True):
        expected = found._replace(header=asked, row_names=asked and row_names)
        if header or asked is False:
            assert dialect_of(lines, "csv", asked)[:3] == expected[:3]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0,1,2|5,6,7", "they count from 0"),
        ("1,2,3|5,6,7", "they count from 1"),
        ("1900,2000,2100|5,6,7", "they look like years"),
        ("1990,1995|1900,2101|1,2", "they look like years"),
        ("1990,1995|1899,2100|1,2", "they look like years"),
        ("3,5|1.5,2.5|1e3,.5", "they alone have no decimals"),
        ("3;5|1,5;2,5", "they alone have no decimals"),
        ('"3","5"|7,8', "they alone are quoted"),
        ("5,7|r,1,2|s,3,4|t,3,4", "its first row, 5, 7, has one cell fewer than the others"),
        (",5,6|9,1,2|7,1,2", "mixes numbers and blanks"),
        (",5,6|1,1,2|3,1,2", "mixes numbers and blanks"),
        ("a,1|2,3", r"mixes numbers and names \(such as 'a'\)"),
        ("1,b,c|2,3,4", r"mixes numbers and names \(such as 'b'\)"),
        ("1,2,3,4,5,6|7,8,9,7,8,9", "its first row, 1, 2, 3, …, 6, could be names or numbers"),
        ("1,2,3,4,5|7,8,9,7,8", "its first row, 1, 2, 3, 4, 5, could be names or numbers"),
    ],
)
def test_a_first_row_that_could_be_both_is_asked_about(text, why):
    with pytest.raises(ValueError, match=why):
        dialect_of([line + "\n" for line in text.split("|")], "csv", None)


@pytest.mark.parametrize(
    ("cell", "number", "with_comma", "blank"),
    [
        ("1", True, True, False),
        (" -1.5e3 ", True, True, False),
        ("inf", True, True, False),
        ("1_000", False, False, False),
        ("1,5", False, True, False),
        (" +,5e-3 ", False, True, False),
        ("1,", False, True, False),
        (",", False, False, False),
        ("1,5,6", False, False, False),
        ("x", False, False, False),
        ("", False, False, True),
        (" N/A ", False, False, True),
        ("NaN", True, True, True),
        ("--", False, False, True),
    ],
)
def test_cells_are_numbers_or_blanks(cell, number, with_comma, blank):
    assert (is_number(cell), is_number(cell, comma=True), is_blank(cell)) == (
        number,
        with_comma,
        blank,
    )


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.tsv", "x.tsv.gz", "X.CSV"])
@pytest.mark.parametrize("names", [("a", "b", "c"), None])
def test_text_is_read_exactly_with_and_without_a_header(tmp_path, name, names):
    delimiter = "\t" if "tsv" in name else ","
    path = write_text(tmp_path / name, csv_text(delimiter, names))
    found = read_matrix(path)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize(
    "text",
    [
        '"a","b"\n"1","2"\n"3","4"\n',
        "a,b\r\n1,2\r\n3,4\r\n",
        "\ufeffa,b\n1,2\n3,4",
        "\n\na,b\n\n1,2\n\n3,4\n\n",
        " a , b\n 1, 2\n3 ,4e0\n",
        '"first\nname",b\n1,2\n3,4\n',
    ],
    ids=["quoted", "crlf", "byte order mark", "empty lines", "blanks", "line break in a name"],
)
def test_dialects_of_csv_are_read_alike(tmp_path, text):
    (tmp_path / "x.csv").write_bytes(text.encode())
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.csv"), [[1, 2], [3, 4]])


def test_header_option_decides_where_the_first_row_could_be_both(tmp_path):
    path = write_text(tmp_path / "x.csv", "0,1\n5,6\n7,80\n")
    with pytest.raises(ValueError, match=r"its first row, 0, 1, could be names .* header=True"):
        read_matrix(path)
    assert read_matrix(path, header=False).shape == (3, 2)
    np.testing.assert_array_equal(read_matrix(path, header=True), [[5, 6], [7, 80]])
    path = write_text(tmp_path / "y.csv", "id,0,1\n5,6,7\n")
    with pytest.raises(ValueError, match=r"mixes numbers and names \(such as 'id'\).*header=True"):
        read_matrix(path)
    np.testing.assert_array_equal(read_matrix(path, header=True), [[5, 6, 7]])


def test_decimal_commas_become_points_where_they_are_sure_to_be_decimal():
    assert text._text_with_points("1,5;-2,25;3") == "1.5;-2.25;3"
    for mixed in ("1,5;2.5", "1,234,567;2"):
        with pytest.raises(ValueError, match="commas and points are mixed, or commas could"):
            text._text_with_points(mixed)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["0,1,2", "5,6,7"], "they count from 0"),
        (["1,2,3", "5,6,7"], "they count from 1"),
        (["2,3,4", "5,6,7"], ""),
        (["0,2", "5,6"], ""),
        (["1900,2100", "1,2", "3,4"], "they look like years"),
        (["1899,2100", "1,2", "3,4"], ""),
        (["1900,2101", "1,2", "3,4"], ""),
        (["2100,1900", "1,2", "3,4"], ""),
        (["1900,1900", "1,2", "3,4"], ""),
        (["1900,2000", "1950,1", "2,3"], "they look like years"),  # one cell of four below them
        (["1900,2000", "1900,2100", "2,3"], ""),  # half of the cells
        (["1900,2000", "1899,2101", "2,3"], "they look like years"),
        (["3,5", "1.5,2.5"], "they alone have no decimals"),
        (["3,5", "1.5,2"], ""),
        (["3.5,5", "1.5,2.5"], ""),
        (['"3","7"', "1,2", "5,6"], "they alone are quoted"),
        (['"3","7"', '"1",2', "5,6"], ""),
        (["3,7", "1,2"], ""),
        (["0,1"], ""),
    ],
)
def test_numbers_that_could_be_names_are_asked_about(lines, why):
    if why:
        with pytest.raises(ValueError, match=f"could be names or numbers: {why}; set header="):
            dialect_of(lines, "csv", None)
    else:
        assert not dialect_of(lines, "csv", None).header
    assert dialect_of(lines, "csv", header=True).header
    assert not dialect_of(lines, "csv", header=False).header


def column_of(*cells, commas=True):
    column = text._TextColumn()
    column.add(cells, [*range(1, len(cells) + 1)], commas=commas)
    return column, np.concatenate(column.blocks).tolist()


def test_cells_of_a_column_become_numbers():
    column, values = column_of("7", "1.5", "2.5")
    assert (values, column.point, column.fault) == ([7, 1.5, 2.5], "1.5", text.Fault())
    column, values = column_of("7", "1,5", "-2,25")
    assert (values, column.point, column.comma, column.thousands) == (
        [7, 1.5, -2.25],
        "",
        "1,5",
        "",
    )
    column, values = column_of("1,234", "1,234,567", "2,345")
    assert (values, column.comma) == ([1.234, 1.234567, 2.345], "")
    assert column.thousands == "1,234,567"  # of most commas
    column, values = column_of("x", "1.5", "", "y ", "x")
    np.testing.assert_array_equal(values, [np.nan, 1.5, np.nan, np.nan, np.nan])
    fault = column.fault
    assert (fault.blanks, fault.wrong, fault.values) == (1, 3, {"x", "y"})
    assert (fault.where, fault.example) == ("line 1, ", "x")
    assert column_of("nan", "1")[0].fault.blanks == 1
    assert column_of("1_000", "1")[0].fault.wrong == 1  # a number for Python alone
    assert column_of("1,5", "2", commas=False)[0].fault.wrong == 1


@pytest.mark.parametrize(
    ("cells", "large"),
    [
        (("99.9", "-99.9"), False),
        (("100", "1"), True),
        (("-100", "x"), True),
        (("99.9", "x"), False),
    ],
)
def test_numbers_from_a_hundred_on_are_large(cells, large):
    assert column_of(*cells)[0].large == large


def test_a_first_row_of_numbers_may_have_gaps_but_where_row_numbers_would_be():
    assert not dialect_of(["1,,3", "4,5,6"], "csv", None).header
    assert not dialect_of([",,", "4,5,6"], "csv", None).header
    assert dialect_of([",0,1", "0,5,6", "1,7,8"], "csv", None).header
    with pytest.raises(ValueError, match="its first row mixes numbers and blanks"):
        dialect_of([",2,3", "4,5,6"], "csv", None)
    with pytest.raises(ValueError, match=r"mixes numbers and names \(such as 'x'\)"):
        dialect_of(["1,,x", "4,5,6"], "csv", None)


def test_single_column_and_single_row_stay_two_dimensional(tmp_path):
    assert read_matrix(write_text(tmp_path / "x.csv", "1\n2\n3\n")).shape == (3, 1)
    assert read_matrix(write_text(tmp_path / "y.csv", "1,2,3\n")).shape == (1, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,x\n", "line 3, column 'b' holds 'x', expected a number"),
        ("4,2\n\n3,\n", "there are blanks, 1 in column '2'; add --missing median"),
        ("1,2\n3\n", "line 2 has 1 columns, expected 2"),
        ("a,b\n1,2,3\n", "line 2 has 3 columns, expected 2"),
        ("a,b\n1,1_000\n", "line 2, column 'b' holds '1_000'"),
        ("1#2\n3#4\n", "line 2, column '1#2' holds '3#4'"),
        ("a,b\n", "no data"),
        ("", "no data"),
        ("\n\n", "no data"),
    ],
)
def test_text_that_is_no_matrix_is_refused_by_line_and_column(tmp_path, text, message):
    path = write_text(tmp_path / "x.csv", text)
    with pytest.raises(ValueError, match=rf"x\.csv: .*{message}"):
        read_matrix(path)


def test_one_column_of_decimal_commas_could_be_two_columns(tmp_path):
    lines = "1,5\n2,25\n0,5\n"
    with pytest.warns(UserWarning, match="'1,5' are read as two whole numbers: .* the line sep=;"):
        two = read_matrix(write_text(tmp_path / "x.csv", lines))
    assert two.tolist() == [[1, 5], [2, 25], [0, 5]]
    one = read_matrix(write_text(tmp_path / "x.csv", "sep=;\n" + lines))
    assert one.tolist() == [[1.5], [2.25], [0.5]]
    with (
        pytest.warns(UserWarning, match="'1,5' are read as two whole numbers"),
        pytest.warns(UserWarning, match="it holds row names"),
    ):
        read_matrix(write_text(tmp_path / "x.csv", "x\n" + lines))
    with pytest.raises(ValueError, match="line 2 has 2 columns, expected 1 .*put the line sep=;"):
        read_matrix(write_text(tmp_path / "x.csv", "x\n" + lines + "1,75\n2,5\n"))
    assert read_matrix(write_text(tmp_path / "x.csv", "sep=;\nx\n" + lines)).shape == (3, 1)
    for other in (lines + "-1,-5\n", lines + "7,10\n", lines + "1,2.5\n", "x,y\n" + lines):
        read_matrix(write_text(tmp_path / "x.csv", other))  # a warning would be an error


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_byte_order_mark_is_told_of(tmp_path, encoding):
    (tmp_path / "x.csv").write_bytes("a,b\n1,2\n".encode(encoding))
    with pytest.raises(ValueError, match="line 1 holds zero bytes.* save it as UTF-8$"):
        read_matrix(tmp_path / "x.csv")


AMBIGUOUS = "column 'a' holds '1,149', which can mean 1149 or 1.149: write thousands without"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tz\n1,149\t3\n994\t5\n1,111\t0\n990\t2\n", AMBIGUOUS),
        ("a\tz\n1,149\t3\n1,111\t5\n", AMBIGUOUS),
        ("a\tz\n1,149\t0,5\n994\t5\n", AMBIGUOUS),
        ("a\tz\n3\t0\n-1,149\t0\n", "holds '-1,149', which can mean -1149 or -1.149: write"),
        ("a\tz\n1,149\t3\n1,149,000\t5\n", "holds '1,149,000', which means 1149000: write"),
        ("a\tz\n1,149\t3.5\n994\t5.5\n", "'3.5'; write decimals with points, and thousands"),
    ],
)
@pytest.mark.parametrize("separator", ["\t", ";"])
def test_commas_that_could_separate_thousands_are_asked_about(tmp_path, text, message, separator):
    path = write_text(tmp_path / "x.tsv", text.replace("\t", separator))
    with pytest.raises(ValueError, match=re.escape(message)):
        read_matrix(path)


@pytest.mark.parametrize("value", ["0,149", "1,14", "11,1490", "1,149e0", ",149"])
def test_one_comma_that_cannot_separate_thousands_makes_all_of_a_column_decimal(tmp_path, value):
    path = write_text(tmp_path / "x.tsv", f"a\tz\n1,149\t3\n994\t5\n{value}\t7\n")
    expected = [1.149, 994, float(value.replace(",", "."))]
    assert read_matrix(path)[:, 0].tolist() == expected


def test_decimal_commas_elsewhere_make_commas_decimal_beside_small_numbers(tmp_path):
    path = write_text(tmp_path / "x.csv", "a;z\n1,149;0,5\n99;2\n-2,001;3\n")
    assert read_matrix(path).tolist() == [[1.149, 0.5], [99, 2], [-2.001, 3]]


def test_names_of_rows_without_a_name_of_their_own_speak_for_a_separator(tmp_path):
    path = write_text(tmp_path / "x.csv", "a;b\nr1;1,5;2,5\nr2;3,5;4,5\nr3;5,5;6,5\n")
    with pytest.warns(UserWarning, match="column 1 "):
        found = read_matrix(path)
    np.testing.assert_array_equal(found, [[1.5, 2.5], [3.5, 4.5], [5.5, 6.5]])


@pytest.mark.parametrize("text", ["a,b\n1,2\n1,2,3\n", "sep=;\na\n1\n1;2\n"])
def test_decimal_commas_are_not_advised_where_there_can_be_none(tmp_path, text):
    with pytest.raises(ValueError, match=r"columns, expected \d \(separated by '[,;]'\)$"):
        read_matrix(write_text(tmp_path / "x.csv", text))


@pytest.mark.parametrize("name", ["w.mtx", "w.mtx.gz"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_sparse_matrix_market_comes_back_as_csr(tmp_path, name, symmetry):
    graph = sparse.csr_array(W + W.T)
    io.mmwrite(tmp_path / "w.mtx", graph, symmetry=symmetry, precision=17)
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "w.mtx").read_bytes()))
    found = read_matrix(tmp_path / name)
    assert found.format == "csr"
    np.testing.assert_array_equal(found.toarray(), graph.toarray())


def test_dense_matrix_market_comes_back_dense(tmp_path):
    io.mmwrite(tmp_path / "x.mtx", X, precision=17)
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.mtx"), X)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{BANNER} coordinate pattern general\n% a\n\n2 3 2\n1 1\n2 3\n", [[1, 0, 0], [0, 0, 1]]),
        (f"{BANNER} Coordinate Integer Symmetric\n2 2 2\n2 1 5\n2 2 1\n", [[0, 5], [5, 1]]),
        (f"{BANNER} coordinate real general\n2 2 0\n", [[0, 0], [0, 0]]),
        (f"{BANNER} array real general\n2 2\n1\n2\n3\n4\n", [[1, 3], [2, 4]]),
        (f"{BANNER} array real symmetric\n2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
    ],
)
def test_matrix_market_follows_the_format(tmp_path, text, expected):
    found = read_matrix(write_text(tmp_path / "x.mtx", text))
    dense = found.toarray() if sparse.issparse(found) else found
    np.testing.assert_array_equal(dense, expected)


def test_matrix_market_has_columns_beyond_32_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(
        matrix_market, "check_sizes_of_sparse_array", lambda *_: None
    )  # it asks for more entries
    text = f"{BANNER} coordinate real general\n1 3000000000 1\n1 3000000000 5\n"
    found = read_matrix(write_text(tmp_path / "x.mtx", text)).tocoo()
    assert (found.shape, found.col.tolist(), found.data.tolist()) == (
        (1, 3_000_000_000),
        [2_999_999_999],
        [5.0],
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1 1\n1 1 1\n", "first line is not a Matrix Market banner"),
        (f"{BANNER} coordinate real\n1 1 0\n", "first line is not a Matrix Market banner"),
        ("%%MatrixMarket vector array real general\n1 1\n1\n", "is not a Matrix Market banner"),
        (f"{BANNER} coordinate complex general\n1 1 0\n", "got coordinate complex general"),
        (f"{BANNER} coordinate real hermitian\n1 1 0\n", "got coordinate real hermitian"),
        (f"{BANNER} coordinate real symmetric\n2 3 0\n", "'2 3 0' is not the sizes of a symmetric"),
        (f"{BANNER} coordinate real general\n2 2\n", "'2 2' is not the sizes"),
        (f"{BANNER} coordinate real general\n2 2 -1\n", "'2 2 -1' is not the sizes"),
        (f"{BANNER} array pattern general\n1 1\n1\n", "got array pattern general"),
        (f"{BANNER} coordinate real general\n3 3 1\n2.7 1 1\n", "row of an entry must be a whole"),
        (f"{BANNER} coordinate real general\n3 3 1\n2 1.5 1\n", "column of an entry must be a"),
        (f"{BANNER} coordinate integer general\n3 3 1\n2 1 0.5\n", "whole number, got 0.5"),
        (f"{BANNER} array integer general\n1 1\n0.5\n", "whole number, got 0.5 in entry 1"),
        (
            f"{BANNER} coordinate real symmetric\n2 2 3\n1 1 1\n1 2 5\n2 1 5\n",
            "must list one triangle, got entries in both, such as 1, 2",
        ),
        (f"{BANNER} coordinate real general\n1 1 1\n1 1 1\n1 1 1\n", "got more of 3"),
        (
            f"{BANNER} coordinate real general\n400000000 400000000 1\n1 1 1\n",
            "400000000 x 400000000 is too large for 1 entries",
        ),
        (
            f"{BANNER} coordinate real general\n3 3 1000000000000\n1 1 1\n",
            "too short for 1000000000000 lines of 3 numbers",
        ),
        (f"{BANNER} array real general\n1000000 1000000\n1\n", "too short for 1000000000000"),
        (f"{BANNER} coordinate real general\n2 2 1\n1 3 1\n", "entry 1, 3 lies outside"),
        (f"{BANNER} coordinate real general\n2 2 1\n0 1 1\n", "entry 0, 1 lies outside"),
        (
            f"{BANNER} coordinate real general\n2 2 2\n1 1 1\n",
            "expected 2 lines of 3 .* got 1 of 3",
        ),
        (f"{BANNER} coordinate real general\n2 2 1\n1 1\n", "expected 1 lines of 3 .* got 1 of 2"),
        (f"{BANNER} array real general\n2 2\n1\n2\n3\n", "expected 4 lines of 1 .* got 3 of 1"),
        (f"{BANNER} array real general\n2 2\n1\nx\n3\n", "could not convert string 'x'"),
    ],
)
def test_matrix_market_that_is_no_real_matrix_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"x\.mtx: .*{message}"):
        read_matrix(write_text(tmp_path / "x.mtx", text))
