"""Every format makes the round trip; every broken file is refused by name."""

import gzip
import pickle
import sys
import tracemalloc
import zipfile

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from pyarrow import parquet
from scipy import io, sparse

from specialk_gpu.cli import main
from specialk_gpu.io import arrays, text
from specialk_gpu.io.arrays import check_sizes_of_sparse_array
from specialk_gpu.io.files import read_idx, read_labels, read_matrix, write_labels

X = np.random.default_rng(0).normal(size=(7, 3))
W = sparse.random_array((6, 6), density=0.4, rng=0, format="csr")
IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def idx_bytes(array, code=0x08):
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, code, array.ndim]) + sizes + array.tobytes()


# -- round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i8", "?", ">f8"])
def test_npy_keeps_values_and_dtype(tmp_path, dtype):
    np.save(tmp_path / "x.npy", X.astype(dtype))
    found = read_matrix(tmp_path / "x.npy")
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, X.astype(dtype))


def test_npz_with_one_array_needs_no_key(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", points=X)
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.npz"), X)
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.npz", key="points"), X)


def test_npz_with_several_arrays_names_them_unless_one_is_chosen(tmp_path):
    np.savez(tmp_path / "x.npz", first=X, second=2 * X)
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.npz", key="second"), 2 * X)
    with pytest.raises(ValueError, match=r"x\.npz: it holds 2 arrays \(first, second\).*key="):
        read_matrix(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=r"no array 'third', only first, second"):
        read_matrix(tmp_path / "x.npz", key="third")


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "dia", "bsr"])
def test_sparse_npz_comes_back_as_csr(tmp_path, layout):
    sparse.save_npz(tmp_path / "w.npz", W.asformat(layout))
    found = read_matrix(tmp_path / "w.npz")
    assert found.format == "csr"
    np.testing.assert_array_equal(found.toarray(), W.toarray())


def parts_of(layout, **changed):
    """Return what SciPy writes of W in a layout, with some arrays changed."""
    matrix = W.asformat(layout)
    names = {"coo": ("row", "col"), "dia": ("offsets",)}.get(layout, ("indices", "indptr"))
    parts = {name: getattr(matrix, name) for name in ("data", *names)}
    return parts | {"format": np.array(layout.encode()), "shape": np.array(W.shape)} | changed


@pytest.mark.parametrize(
    ("code", "kind"),
    [(0x08, ">u1"), (0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")],
)
def test_idx_files_hold_numbers_of_six_types(tmp_path, code, kind):
    values = np.array([[1, 2, 3], [100, 5, 6]], kind)
    head = bytes([0, 0, code, 2]) + np.array([2, 3], ">u4").tobytes()
    (tmp_path / "x.idx").write_bytes(head + values.tobytes())
    found = read_idx(tmp_path / "x.idx")
    assert found.dtype == np.dtype(kind).newbyteorder("=")
    np.testing.assert_array_equal(found, values)
    for wrong in (head[:2] + bytes([code + 16]) + head[3:], b"\1" + head[1:], b"\0\1" + head[2:]):
        (tmp_path / "x.idx").write_bytes(wrong + values.tobytes())
        with pytest.raises(ValueError, match="not an idx file, its first bytes are"):
            read_idx(tmp_path / "x.idx")


@pytest.mark.parametrize("n_entries", [0, 7])
def test_a_sparse_matrix_is_at_most_so_large_as_its_entries_allow(n_entries):
    most = 1_000_000 + 100 * n_entries
    for shape in ((most, 3), (3, most)):
        check_sizes_of_sparse_array(shape, n_entries)
    for shape in ((most + 1, 3), (3, most + 1)):
        with pytest.raises(ValueError, match=f"few, a side may be at most {most}"):
            check_sizes_of_sparse_array(shape, n_entries)


def test_what_is_compressed_holds_at_most_what_deflate_can():
    arrays._check_promised_array(1032 * (10 + 64), 10)
    with pytest.raises(ValueError, match="more than its 10 compressed bytes can hold"):
        arrays._check_promised_array(1032 * (10 + 64) + 1, 10)


def test_coordinates_may_be_one_array(tmp_path):
    parts = parts_of("coo", coords=np.stack([W.tocoo().row, W.tocoo().col]))
    np.savez(tmp_path / "w.npz", **{k: v for k, v in parts.items() if k not in ("row", "col")})
    np.testing.assert_array_equal(read_matrix(tmp_path / "w.npz").toarray(), W.toarray())


@pytest.mark.parametrize(
    ("layout", "changed", "message"),
    [
        ("dia", {"offsets": np.array([-W.shape[0]])}, "a diagonal lies outside the shape"),
        ("dia", {"offsets": np.array([W.shape[1]])}, "a diagonal lies outside the shape"),
        ("csr", {"data": np.ones((W.nnz, 1))}, "a csr matrix have the wrong number of dimensions"),
        ("bsr", {"data": np.ones(W.nnz)}, "a bsr matrix have the wrong number of dimensions"),
        ("csr", {"indices": W.indices[None]}, "have the wrong number of dimensions"),
        ("csr", {"indptr": W.indptr[None]}, "have the wrong number of dimensions"),
        ("csr", {"data": W.data[1:]}, f"indptr ends at {W.nnz}, but there are {W.nnz} indices"),
        ("csr", {"indptr": np.r_[1, W.indptr[1:]]}, "indptr ends at"),
        ("csr", {"shape": np.array([3])}, r"of two dimensions, got the shape \[3\]"),
        ("csr", {"shape": np.array([-1, 3])}, r"of two dimensions, got the shape \[-1, 3\]"),
        ("csr", {"shape": np.array([W.shape[0], 10**9])}, "is too large for"),
    ],
)
def test_arrays_that_are_no_sparse_matrix_are_refused(tmp_path, layout, changed, message):
    np.savez(tmp_path / "w.npz", **parts_of(layout, **changed))
    with pytest.raises(ValueError, match=message):
        read_matrix(tmp_path / "w.npz")


def test_headers_of_version_2_are_read_and_those_of_version_3_refused(tmp_path):
    for version in ((1, 0), (2, 0), (3, 0)):
        with (tmp_path / "x.npy").open("wb") as stream:
            np.lib.format.write_array(stream, X, version=version)
        if version < (3, 0):
            np.testing.assert_array_equal(read_matrix(tmp_path / "x.npy"), X)
            continue
        with pytest.raises(ValueError, match=r"format has version 3\.0, expected 1\.0 or 2\.0"):
            read_matrix(tmp_path / "x.npy")


def test_columns_first_and_the_other_byte_order_are_read(tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(X.astype(X.dtype.newbyteorder())))
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.npy"), X)


def test_a_zip_that_is_compressed_otherwise_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write(tmp_path / "x.npy", "x.npy")
    with pytest.raises(
        ValueError, match=r"'x\.npy' is compressed in a way that \.npz files are not"
    ):
        read_matrix(tmp_path / "x.npz")


def test_ids_are_written_beside_labels_and_refused_elsewhere(tmp_path):
    write_labels(tmp_path / "l.csv", [1, 0], ids=["a,b", "c"], id_name="who")
    assert (tmp_path / "l.csv").read_text() == 'who,label\n"a,b",1\nc,0\n'
    for name, ids in (("l.npy", ["a", "b"]), ("m.csv", ["a"])):
        with pytest.raises(ValueError, match="ids need a .csv file, and one for each label"):
            write_labels(tmp_path / name, [1, 0], ids=ids)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("reader", ["pyarrow", "polars"])
@pytest.mark.parametrize("index", [None, "plain", "named"])
def test_parquet_is_read_without_the_index_of_pandas(tmp_path, monkeypatch, reader, index):
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    if index:
        frame.index = pandas.Index(np.arange(7) * 11, name="row" if index == "named" else None)
    frame.to_parquet(tmp_path / "x.parquet")
    if reader == "polars":
        hide(monkeypatch, "pyarrow")
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.parquet"), X)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, bool])
def test_parquet_of_polars_keeps_the_dtype(tmp_path, dtype):
    polars.DataFrame(X.astype(dtype), schema=["a", "b", "c"]).write_parquet(tmp_path / "x.parquet")
    found = read_matrix(tmp_path / "x.parquet")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, X.astype(dtype))


def hide(monkeypatch, *packages):
    find_spec = sys.modules["importlib.util"].find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in packages else find_spec(name)
    )


@pytest.mark.parametrize(
    "name", ["train-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz", "a.idx3-ubyte"]
)
def test_idx_images_become_rows(tmp_path, name):
    content = idx_bytes(IMAGES)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    np.testing.assert_array_equal(read_matrix(tmp_path / name), IMAGES.reshape(2, 12))
    np.testing.assert_array_equal(read_idx(tmp_path / name), IMAGES)


@pytest.mark.parametrize(
    ("code", "dtype"), [(8, "u1"), (9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]
)
def test_idx_types_are_read_in_native_byte_order(tmp_path, code, dtype):
    (tmp_path / "x.idx").write_bytes(idx_bytes(np.array([[1, -2], [3, 4]]).astype(dtype), code))
    found = read_idx(tmp_path / "x.idx")
    assert found.dtype.isnative
    assert found.flags.writeable
    np.testing.assert_array_equal(found, np.array([[1, -2], [3, 4]]).astype(dtype))


# -- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["labels.npy", "labels.csv"])
def test_labels_make_the_round_trip(tmp_path, name):
    labels = np.array([2, 0, 1, -1], np.int32)
    write_labels(tmp_path / name, labels)
    np.testing.assert_array_equal(read_labels(tmp_path / name), labels)


def test_written_labels_have_the_documented_form(tmp_path):
    write_labels(tmp_path / "labels.csv", np.array([1, 0]))
    assert (tmp_path / "labels.csv").read_text() == "label\n1\n0\n"
    write_labels(tmp_path / "labels.npy", np.array([1, 0], np.int32))
    assert np.load(tmp_path / "labels.npy").dtype == np.int32


def test_labels_are_read_from_idx_and_from_whole_floats(tmp_path):
    (tmp_path / "l-idx1-ubyte").write_bytes(idx_bytes(np.array([3, 1], np.uint8)))
    np.testing.assert_array_equal(read_labels(tmp_path / "l-idx1-ubyte"), [3, 1])
    np.save(tmp_path / "l.npy", [[1.0], [2.0]])
    np.testing.assert_array_equal(read_labels(tmp_path / "l.npy"), [1, 2])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([0.0, 0.5], "expected integer labels, got 0.5 for sample 1"),
        ([np.nan], "got nan for sample 0"),
        (np.array([0, 2**64 - 1], np.uint64), "got 18446744073709551615 for sample 1; they may be"),
        ([1.0, 1e300], r"got 1e\+300 for sample 1; they may be at most 9007199254740992"),
        ([-1e300, 0.0], r"got -1e\+300 for sample 0"),
        ([[1, 2], [3, 4]], r"shape \(n_samples,\), got shape \(2, 2\)"),
        (5, r"got shape \(\)"),
        (["a"], "expected real numbers, got dtype <U1"),
    ],
)
def test_what_is_no_labels_is_refused(tmp_path, array, message):
    np.save(tmp_path / "l.npy", array)
    with pytest.raises(ValueError, match=rf"l\.npy: .*{message}"):
        read_labels(tmp_path / "l.npy")


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("l.txt", [0, 1], r"written as \.npy or \.csv, got .*l\.txt"),
        ("l.npy", [0.5], "must be integers"),
        ("l.csv", [[0], [1]], r"must be integers of shape \(n_samples,\), got int64 \(2, 1\)"),
    ],
)
def test_unfit_labels_are_not_written(tmp_path, name, labels, message):
    with pytest.raises(ValueError, match=message):
        write_labels(tmp_path / name, labels)
    assert not (tmp_path / name).exists()


# -- refusals -------------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_are_refused_without_being_loaded(tmp_path):
    np.save(tmp_path / "object.npy", np.array([Bomb()]), allow_pickle=True)
    np.savez(tmp_path / "object.npz", x=np.array([Bomb()]))
    (tmp_path / "raw.npy").write_bytes(pickle.dumps(Bomb()))
    for name in ("object.npy", "object.npz", "raw.npy"):
        with pytest.raises(ValueError, match=rf"{name}: it holds pickled .* refused") as caught:
            read_matrix(tmp_path / name)
        assert "\n" not in str(caught.value)


def valid_files(folder):
    np.save(folder / "x.npy", X)
    np.savez_compressed(folder / "x.npz", x=np.arange(1000.0).reshape(100, 10))
    sparse.save_npz(folder / "w.npz", W)
    io.mmwrite(folder / "w.mtx", W)
    (folder / "w.mtx.gz").write_bytes(gzip.compress((folder / "w.mtx").read_bytes()))
    np.savetxt(folder / "x.csv.gz", X, delimiter=",")
    pandas.DataFrame(X, columns=["a", "b", "c"]).to_parquet(folder / "x.parquet")
    (folder / "i-idx3-ubyte").write_bytes(idx_bytes(IMAGES))
    (folder / "i-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(IMAGES)))
    return sorted(folder.iterdir())


def test_cut_files_are_refused_by_name_at_every_length(tmp_path):
    for path in valid_files(tmp_path):
        content = path.read_bytes()
        read_matrix(path)
        end = len(content) - (25 if path.suffix == ".mtx" else 1)  # 1.25 cut is still a number
        for length in sorted({0, 1, 5, end, *range(10, end, max(1, len(content) // 25))}):
            path.write_bytes(content[:length])
            with pytest.raises(ValueError, match="cannot read ") as caught:
                read_matrix(path)
            assert str(path) in str(caught.value)


def test_foreign_content_is_refused_by_name(tmp_path):
    noise = np.random.default_rng(0).bytes(500)
    for path in valid_files(tmp_path):
        for content in (noise, b"hello, world\n", b"\0" * 100):
            path.write_bytes(content)
            with pytest.raises(ValueError, match="cannot read ") as caught:
                read_matrix(path)
            assert str(path) in str(caught.value)


def test_polars_refuses_damaged_parquet_too(tmp_path, monkeypatch):
    hide(monkeypatch, "pyarrow")
    (tmp_path / "x.parquet").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"cannot read .*x\.parquet"):
        read_matrix(tmp_path / "x.parquet")


@pytest.mark.parametrize("reader", ["pyarrow", "polars"])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["u", "v"], r"column 'b' holds 'u', expected a number \(2 such cells\); .*add --drop b"),
        (
            pandas.array([1, None], dtype="Int64"),
            "there are blanks, 1 in column 'b'; add --missing median",
        ),
        (pandas.to_datetime(["2020-01-01", "2021-01-01"]), "column 'b' holds '2020-01-01 00:00:00"),
    ],
    ids=["text", "missing", "dates"],
)
def test_parquet_that_is_no_matrix_is_refused_by_column(
    tmp_path, monkeypatch, reader, column, message
):
    pandas.DataFrame({"a": [1.0, 2.0], "b": column}).to_parquet(tmp_path / "x.parquet")
    if reader == "polars":
        hide(monkeypatch, "pyarrow")
    with pytest.raises(ValueError, match=message):
        read_matrix(tmp_path / "x.parquet")


@pytest.mark.parametrize("reader", ["pyarrow", "polars"])
def test_parquet_without_columns_is_refused(tmp_path, monkeypatch, reader):
    pandas.DataFrame(index=["a", "b"]).to_parquet(tmp_path / "x.parquet")
    if reader == "polars":
        hide(monkeypatch, "pyarrow")
    with pytest.raises(ValueError, match=r"x\.parquet.*it has no columns"):
        read_matrix(tmp_path / "x.parquet")


def test_parquet_without_a_reader_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").touch()
    hide(monkeypatch, "pyarrow", "polars")
    with pytest.raises(ImportError, match="pip install pyarrow"):
        read_matrix(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"expected an array of shape \(n_samples, n_features\), got shape \(3,\)"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        (np.zeros((2, 2), complex), "expected real numbers, got dtype complex128"),
        (np.array([["a"]]), "expected real numbers, got dtype <U1"),
    ],
)
def test_arrays_that_are_no_matrix_are_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match=message):
        read_matrix(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "name", ["x.npy", "x.npz", "x.csv", "x.csv.gz", "x.parquet", "x.mtx", "x-idx3-ubyte", "x.foo"]
)
def test_missing_files_and_folders_are_named(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=name):
        read_matrix(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(OSError, match=name):
        read_matrix(tmp_path / name)


def test_unknown_formats_list_the_known_ones(tmp_path):
    (tmp_path / "x.xlsx").touch()
    with pytest.raises(ValueError, match=r"x\.xlsx: unknown format, .*\.npy, .*\.mtx"):
        read_matrix(tmp_path / "x.xlsx")


def test_options_of_another_format_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match="key='a' picks an array of an .npz file"):
        read_matrix(tmp_path / "x.npy", key="a")
    with pytest.raises(ValueError, match=r"header=True is for \.csv, \.tsv and \.txt"):
        read_matrix(tmp_path / "x.npy", header=True)


# -- what the header promises ---------------------------------------------------------------------


@pytest.fixture
def peak():
    """Return a function that returns the most bytes that were taken since."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def npy_bytes(shape, content=b"", descr="<f8"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def test_no_more_of_a_compressed_idx_file_is_read_than_it_promises(tmp_path, peak):
    path = tmp_path / "x-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros(8, np.uint8)) + bytes(50_000_000)))
    before = peak()
    with pytest.raises(ValueError, match=r"states shape \(8,\), 8 bytes, but more follow"):
        read_idx(path)
    tracemalloc.reset_peak()
    with pytest.raises(ValueError, match="but more follow"):
        read_idx(path)
    assert peak() < 2_000_000 < before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x-idx1-ubyte", b"\0\0\x08\x01\xff\xff\xff\xff12", "4294967295 bytes, but 2 follow"),
        (
            "x-idx1-ubyte.gz",
            gzip.compress(b"\0\0\x08\x01\xff\xff\xff\xff12"),
            "promises 4294967295 bytes, more than its",
        ),
        ("x.npy", npy_bytes((10**12, 3), bytes(8)), "24000000000000 bytes, but 8 follow"),
        ("x.npy", npy_bytes((10**30, 10**30), bytes(8)), "bytes, but 8 follow"),
        ("x.npy", npy_bytes((-1, -1), bytes(8)), "8 bytes, but 8 follow"),
        ("x.npy", npy_bytes((1, 1), bytes(9)), "8 bytes, but 9 follow"),
    ],
    ids=["idx", "idx.gz", "long", "beyond 64 bits", "negative", "too short"],
)
def test_promises_that_a_file_cannot_keep_are_refused_before_memory_is_taken(
    tmp_path, peak, name, content, message
):
    (tmp_path / name).write_bytes(content)
    tracemalloc.reset_peak()
    with pytest.raises(ValueError, match=message):
        read_matrix(tmp_path / name)
    assert peak() < 1_000_000


def test_an_array_in_a_zip_that_promises_more_than_it_holds_is_refused(tmp_path, peak):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_bytes((10**11, 1), bytes(800)))
    with pytest.raises(ValueError, match="800000000000 bytes, but 800 follow"):
        read_matrix(tmp_path / "x.npz")
    assert peak() < 1_000_000


@pytest.mark.parametrize("name", ["x.csv.gz", "x.mtx.gz"])
def test_compressed_text_is_read_within_bounds(tmp_path, monkeypatch, name):
    start = "%%MatrixMarket matrix array real general\n30000 1\n" if "mtx" in name else "a\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress((start + "0.5\n" * 30_000).encode()))
    assert read_matrix(path).shape == (30_000, 1)
    monkeypatch.setattr(text, "MOST_OF_GZIP", (1000, 50))
    monkeypatch.setattr("specialk_gpu.io.matrix_market.MOST_OF_GZIP", (10**6, 50))
    with pytest.raises(ValueError, match=r"far more than tables of its size; decompress it first"):
        read_matrix(path)
    monkeypatch.setattr(text, "LONGEST_LINE", 100)
    path.write_bytes(gzip.compress(b"0" * 1000))
    with pytest.raises(ValueError, match="line 1 is longer than 100 characters"):
        read_matrix(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_one_wrong_byte_in_a_zip_is_seen_by_its_checksum(tmp_path, save):
    save(tmp_path / "x.npz", x=X)
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[content.index(b"PK\x01\x02") - 40] ^= 1  # in the numbers
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read .*x\.npz: "):
        read_matrix(tmp_path / "x.npz")


# -- damaged files --------------------------------------------------------------------------------


def damaged_files(folder):
    """Write files, each damaged in its own way; return messages by name."""
    (folder / "header.npy").write_bytes(npy_bytes("((3, 2)", bytes(48)))
    (folder / "dtype.npy").write_bytes(npy_bytes((3, 2), bytes(48), descr="<q9"))
    (folder / "version.npy").write_bytes(b"\x93NUMPY\x09\x00" + bytes(100))
    with zipfile.ZipFile(folder / "empty.npz", "w"):
        pass
    csr = sparse.csr_array(W)
    parts = {"format": "csr", "shape": (6, 6), "data": csr.data, "indptr": csr.indptr}
    np.savez(folder / "lacks.npz", **parts)
    np.savez(folder / "short.npz", **parts, indices=csr.indices[:-1])
    np.savez(folder / "keys.npz", format=1.5, shape=X, data=X)
    np.savez(folder / "text.npz", **{**parts, "indices": np.array(["a"] * csr.nnz)})
    np.savez(folder / "huge.npz", format="coo", shape=(10**12, 2), data=[1], row=[0], col=[0])
    np.savez(folder / "flat.npz", format="csr", shape=(6,), data=[1], indices=[0], indptr=[0, 1])
    np.savez(folder / "locked.npz", x=X)
    content = bytearray((folder / "locked.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the bit that says it is encrypted
    (folder / "locked.npz").write_bytes(content)
    columns = [pyarrow.array([1.0, 2.0])] * 2
    parquet.write_table(pyarrow.Table.from_arrays(columns, ["a", "a"]), folder / "twice.parquet")
    table = pyarrow.Table.from_arrays(columns, ["a", "b"]).replace_schema_metadata({"pandas": "{"})
    parquet.write_table(table, folder / "pandas.parquet")
    (folder / "latin.csv").write_bytes("Größe,b\n1,2\n".encode("latin-1"))
    (folder / "nul.csv").write_bytes(b"a,b\n1,\0\n")
    return {
        "header.npy": "its header is damaged",
        "dtype.npy": "",
        "version.npy": "version",
        "empty.npz": "it holds 0 arrays",
        "lacks.npz": "a sparse matrix in format csr needs the array 'indices', which is missing",
        "short.npz": f"indptr ends at {csr.nnz}, but there are {csr.nnz - 1} indices",
        "keys.npz": "expected text, got dtype float64",
        "text.npz": "expected",
        "huge.npz": "1000000000000 x 2 is too large for 1 entries",
        "flat.npz": "expected a sparse matrix of two dimensions, got the shape [6]",
        "locked.npz": "its part 'x.npy' is encrypted",
        "twice.parquet": "its columns must have different names, got 'a' more than once",
        "pandas.parquet": "what pandas has stored about its index is damaged",
        "latin.csv": "it is not text in UTF-8, from about line 1 on",
        "nul.csv": "",
    }


def test_damaged_files_are_refused_in_one_line_and_with_exit_code_2(tmp_path, capsys):
    for name, message in damaged_files(tmp_path).items():
        assert main(["fit", str(tmp_path / name), "--affinity", "precomputed"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"specialk-gpu: error: cannot read {tmp_path / name}: ")
        assert message in err
        assert err.count("\n") == 1


def test_parquet_with_empty_notes_of_pandas_is_read(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array([1.5, 2.0])], ["a"])
    parquet.write_table(table.replace_schema_metadata({"pandas": "{}"}), tmp_path / "x.parquet")
    assert read_matrix(tmp_path / "x.parquet").tolist() == [[1.5], [2]]


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "coo", "dia"])
@pytest.mark.parametrize("value", [-1, 6, 2**31 - 1])
def test_indices_out_of_range_are_refused_in_every_layout(tmp_path, layout, value):
    matrix = W.asformat(layout)
    sparse.save_npz(tmp_path / "w.npz", matrix)
    with np.load(tmp_path / "w.npz") as file:
        parts = dict(file)
    name = {"coo": "row", "dia": "offsets"}.get(layout, "indices")
    parts[name] = parts[name].copy()
    parts[name][-1] = -6 if layout == "dia" and value == -1 else value
    np.savez(tmp_path / "w.npz", **parts)
    with pytest.raises(ValueError, match=r"cannot read .*w\.npz: "):
        read_matrix(tmp_path / "w.npz")


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr"])
def test_row_pointers_that_fall_are_refused(tmp_path, layout):
    matrix = W.asformat(layout, copy=True)
    matrix.indptr[2] = matrix.indptr[3] + 1
    sparse.save_npz(tmp_path / "w.npz", matrix)
    with pytest.raises(ValueError, match=r"cannot read .*w\.npz: "):
        read_matrix(tmp_path / "w.npz")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_files_damaged_at_random_are_read_or_refused():
    from damaged_files import run

    told = []
    wrong, counts = run(200, first=100_000, report=told.append)
    assert (wrong, told) == (0, [])
    assert counts.total() == 200
