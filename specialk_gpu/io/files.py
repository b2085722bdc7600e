"""Read data matrices and labels from files; write labels.

If a reader can't read a file, it raises an error with a message of one line that names the file.
No reader unpickles, because a pickle can run any code.

Examples
--------
>>> import tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.csv"
>>> write_labels(path, [0, 0, 1])
>>> read_labels(path)
array([0, 0, 1])
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from specialk_gpu.io import text

__all__ = ["LABEL_FORMATS", "MATRIX_FORMATS"]
__all__ += ["read_idx", "read_labels", "read_matrix", "read_table", "write_labels"]

MATRIX_FORMATS = (".npy", ".npz", ".csv[.gz]", ".tsv[.gz]", ".parquet", ".mtx[.gz]")
MATRIX_FORMATS += ("-idx3-ubyte[.gz]",)
LABEL_FORMATS = (".npy", ".csv")

_IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PICKLED = (
    "it holds pickled Python objects, which are refused because loading them can run any code; "
    "save a numeric array instead"
)


def read_matrix(
    path: str | Path, *, key: str | None = None, header: bool | None = None
) -> np.ndarray | sparse.csr_array:
    """Read a data matrix or a sparse graph.

    The ending of the file name decides the format: ``.npy``, ``.npz`` (one dense array, or a file
    from `scipy.sparse.save_npz`), ``.csv`` and ``.tsv`` (also ``.gz``), ``.parquet`` (needs
    pyarrow or polars), ``.mtx`` (also ``.gz``), and the idx files of MNIST (``-idx3-ubyte``, also
    ``.gz``), whose images are flattened to rows.

    Parameters
    ----------
    path : str or path-like
        The file.
    key : str, optional
        The array to read from an ``.npz`` file that holds several.
    header : bool, optional
        Whether the first row of a ``.csv`` or ``.tsv`` file holds names. By default it does if
        none of its cells is a number. If it has both names and numbers, `header` must be given.

    Returns
    -------
    ndarray or scipy.sparse.csr_array of shape (n_samples, n_features)
        In the numeric type of the file; text files give float64.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ImportError
        If a ``.parquet`` file is read and neither pyarrow nor polars is installed.
    ValueError
        If the format is unknown, or the file is damaged, pickled, not numeric or not
        two-dimensional. For a text file the message names row and column.
    """
    return read_table(path, key=key, header=header)[0]


def read_table(
    path: str | Path, *, key: str | None = None, header: bool | None = None
) -> tuple[np.ndarray | sparse.csr_array, list[str] | None]:
    """Read a data matrix and the names of its columns.

    Parameters
    ----------
    path, key, header
        As in `read_matrix`.

    Returns
    -------
    X
        As from `read_matrix`.
    names : list of str, or None
        For text files with a header, and for ``.parquet``.

    Raises
    ------
    FileNotFoundError, ImportError, ValueError
        As in `read_matrix`.
    """
    path = Path(path)
    with _named(path):
        X, names = _read(path, key, header)
        if _kind(path) == "idx" and isinstance(X, np.ndarray) and X.ndim > 1:
            X = X.reshape(len(X), math.prod(X.shape[1:]))
        if X.ndim != 2:
            msg = f"expected an array of shape (n_samples, n_features), got shape {X.shape}"
            raise ValueError(msg)
        return X, names


def read_labels(
    path: str | Path, *, key: str | None = None, header: bool | None = None
) -> np.ndarray:
    """Read one integer label per sample, in any format that `read_matrix` reads.

    Parameters
    ----------
    path : str or path-like
        The file.
    key : str, optional
        As in `read_matrix`.
    header : bool, optional
        As in `read_matrix`.

    Returns
    -------
    ndarray of shape (n_samples,), int64
        The labels.

    Raises
    ------
    FileNotFoundError, ImportError, ValueError
        As in `read_matrix`; also ValueError if the file holds more than one column, or a number
        that is not an integer.
    """
    path = Path(path)
    with _named(path):
        labels, _ = _read(path, key, header)
        if sparse.issparse(labels) or labels.shape not in ((labels.size,), (labels.size, 1)):
            msg = f"expected labels of shape (n_samples,), got shape {labels.shape}"
            raise ValueError(msg)
        labels = labels.ravel()
        wrong = np.flatnonzero(~np.isfinite(labels) | (labels != np.trunc(labels)))
        if wrong.size:
            msg = f"expected integer labels, got {labels[wrong[0]]} for sample {wrong[0]}"
            raise ValueError(msg)
        return labels.astype(np.int64)


def write_labels(path: str | Path, labels: ArrayLike) -> None:
    """Write labels as ``.npy``, or as ``.csv`` with the header "label" and one label per row.

    Parameters
    ----------
    path : str or path-like
        The file to write. An existing file is replaced.
    labels : int array-like of shape (n_samples,)
        The labels.

    Raises
    ------
    ValueError
        If the ending is neither ``.npy`` nor ``.csv``, or `labels` is not a one-dimensional array
        of integers.
    """
    path = Path(path)
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        msg = f"labels must be integers of shape (n_samples,), got {labels.dtype} {labels.shape}"
        raise ValueError(msg)
    match path.suffix.lower():
        case ".npy":
            with path.open("wb") as stream:
                np.save(stream, labels, allow_pickle=False)
        case ".csv":
            np.savetxt(path, labels, fmt="%d", header="label", comments="")
        case _:
            msg = f"labels are written as {' or '.join(LABEL_FORMATS)}, got {str(path)!r}"
            raise ValueError(msg)


def read_idx(path: str | Path) -> np.ndarray:
    """Read an idx file, the format of MNIST, plain or compressed with gzip.

    Parameters
    ----------
    path : str or path-like
        The file. It is decompressed if its name ends in ``.gz``.

    Returns
    -------
    ndarray
        With the shape and type that the header of the file states, in native byte order.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the first bytes are not an idx header, or the file holds fewer or more bytes than its
        header states.
    """
    path = Path(path)
    with _named(path):
        return _idx(path)


# -- one reader for each format; `_named` adds the file's name to their messages ------------------


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn any error that a reader raises about the content into a ValueError with the path."""
    path.open("rb").close()  # for a missing file or a folder, keep the OSError
    try:
        yield
    except (OSError, EOFError, ValueError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        msg = f"cannot read {path}: {error}"
        raise ValueError(msg) from error


def _kind(path: Path) -> str | None:
    name = path.name.lower()
    found = re.search(r"(idx)\d-ubyte(\.gz)?$|\.(csv|tsv|mtx)(\.gz)?$|\.(npy|npz|parquet)$", name)
    return next(group for group in found.groups() if group) if found else None


def _read(
    path: Path,
    key: str | None,
    header: bool | None,  # noqa: FBT001 - a private function
) -> tuple[np.ndarray | sparse.csr_array, list[str] | None]:
    kind = _kind(path)
    if key is not None and kind != "npz":
        msg = f"key={key!r} picks an array of an .npz file, but this is not an .npz file"
        raise ValueError(msg)
    if header is not None and kind not in ("csv", "tsv"):
        msg = f"header={header!r} is for .csv and .tsv files, but this is neither"
        raise ValueError(msg)
    names = None
    match kind:
        case "npy":
            with path.open("rb") as stream:
                X = _npy(stream)
        case "npz":
            X = _npz(path, key)
        case "csv" | "tsv":
            X, names = text.read_delimited(path, "," if kind == "csv" else "\t", header)
        case "parquet":
            columns = _parquet(path)
            X, names = np.column_stack(list(columns.values())), list(columns)
        case "mtx":
            X = text.read_matrix_market(path)
        case "idx":
            X = _idx(path)
        case _:
            msg = f"unknown format, expected a name that ends in one of {', '.join(MATRIX_FORMATS)}"
            raise ValueError(msg)
    if X.dtype.kind not in "buif":
        msg = f"expected real numbers, got dtype {X.dtype}"
        raise ValueError(msg)
    return X, names


def _npy(stream: IO[bytes]) -> np.ndarray:
    magic = np.lib.format.MAGIC_PREFIX
    head = stream.read(len(magic))
    if head.startswith(b"\x80"):  # the first byte of every pickle since protocol 2
        raise ValueError(_PICKLED)
    if head != magic:
        msg = f"not an .npy file, its first bytes are {head!r}"
        raise ValueError(msg)
    stream.seek(-len(magic), 1)
    try:
        return np.lib.format.read_array(stream, allow_pickle=False)
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise ValueError(_PICKLED) from error
        raise


def _npz(path: Path, key: str | None) -> np.ndarray | sparse.csr_array:
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if key is None and {"format", "shape", "data"} <= set(names):
            return sparse.csr_array(sparse.load_npz(path))
        if key is None and len(names) != 1:
            held = f"it holds {len(names)} arrays ({', '.join(names)})"
            msg = f"{held}; choose one with key= (--key on the command line)"
            raise ValueError(msg)
        if key is not None and key not in names:
            msg = f"it has no array {key!r}, only {', '.join(names)}"
            raise ValueError(msg)
        with archive.open(f"{key or names[0]}.npy") as stream:
            return _npy(stream)


def _idx(path: Path) -> np.ndarray:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as stream:
        head = stream.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_DTYPES or not head[3]:
            msg = f"not an idx file, its first bytes are {head!r}"
            raise ValueError(msg)
        dtype = np.dtype(_IDX_DTYPES[head[2]])
        sizes = stream.read(4 * head[3])
        if len(sizes) < 4 * head[3]:
            msg = "the file ends within its header"
            raise ValueError(msg)
        shape = tuple(np.frombuffer(sizes, ">u4").tolist())
        content = stream.read()
    expected = math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        msg = f"its header states shape {shape}, {expected} bytes, but {len(content)} follow"
        raise ValueError(msg)
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _parquet(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a parquet file by name, without an index stored by pandas."""
    if importlib.util.find_spec("pyarrow"):
        from pyarrow import parquet

        table = parquet.ParquetFile(path).read()
        names, metadata = table.column_names, (table.schema.metadata or {}).get(b"pandas")
        missing = {name: table[name].null_count for name in names}
    elif importlib.util.find_spec("polars"):
        import polars

        try:
            table = polars.read_parquet(path, hive_partitioning=False, glob=False)
            metadata = polars.read_parquet_metadata(path).get("pandas")
        except polars.exceptions.PolarsError as error:
            raise ValueError(str(error)) from error
        names = table.columns
        missing = {name: table[name].null_count() for name in names}
    else:
        msg = "reading .parquet files needs pyarrow or polars: pip install pyarrow"
        raise ImportError(msg)
    index = json.loads(metadata)["index_columns"] if metadata else []
    columns = {name: table[name].to_numpy() for name in names if name not in index}
    for name, column in columns.items():
        if missing[name] or column.dtype.kind not in "buif":
            got = f"{missing[name]} missing values" if missing[name] else column.dtype
            msg = f"column {name!r} must hold numbers, got {got}"
            raise ValueError(msg)
    if not columns:
        msg = "it has no columns"
        raise ValueError(msg)
    return columns
