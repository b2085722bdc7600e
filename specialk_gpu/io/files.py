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

import codecs
import csv
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from specialk_gpu._printable import printable
from specialk_gpu._writing import writing_whole
from specialk_gpu.io.arrays import read_idx_array, read_npy, read_npz
from specialk_gpu.io.matrix_market import read_matrix_market
from specialk_gpu.io.parquet import read_parquet
from specialk_gpu.io.text import read_delimited_text
from specialk_gpu.tables.faults import refuse_faults
from specialk_gpu.tables.table import AsText, Table, leave_row_numbers_out_of_table, no_text

__all__ = ["LABEL_FORMATS", "MATRIX_FORMATS"]
__all__ += [
    "is_table_file",
    "naming_file",
    "read_idx",
    "read_labels",
    "read_matrix",
    "read_table_file",
    "write_labels",
]

MATRIX_FORMATS = (".npy", ".npz", ".csv[.gz]", ".tsv[.gz]", ".txt[.gz]", ".parquet", ".mtx[.gz]")
MATRIX_FORMATS += ("-idx3-ubyte[.gz]",)
LABEL_FORMATS = (".npy", ".csv")
TEXT = ("csv", "tsv", "txt")


def read_matrix(
    path: str | Path, *, key: str | None = None, header: bool | None = None
) -> np.ndarray | sparse.csr_array:
    """Read a data matrix or a sparse graph.

    The ending of the file name decides the format: ``.npy``, ``.npz`` (one dense array, or a file
    from `scipy.sparse.save_npz`), ``.csv``, ``.tsv`` and ``.txt`` (also ``.gz``), ``.parquet``
    (needs pyarrow or polars), ``.mtx`` (also ``.gz``), and the idx files of MNIST
    (``-idx3-ubyte``, also ``.gz``), whose images are flattened to rows.

    In text, the separator (comma, semicolon, tab, ``|``; in ``.txt`` blanks too) and the decimal
    sign are found out; a first line ``sep=;`` states the separator. Row names and row numbers are
    left out, with a warning: a column that counts the rows and has no name or one such as "index"
    or "id", and a first column that alone has no name and holds whole numbers or text.

    Parameters
    ----------
    path : str or path-like
        The file.
    key : str, optional
        The array to read from an ``.npz`` file that holds several.
    header : bool, optional
        Whether the first row of a text file holds names. By default it does if none of its cells
        is a number. If it has both names and numbers, or its numbers look like names, `header`
        must be given.

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
        two-dimensional. For a table the message lists all columns that are not numbers, and all
        blanks.
    """
    with naming_file(Path(path)):
        found = read_table_file(path, key=key, header=header)
        if not isinstance(found, Table):
            return found
        if is_table_file(Path(path)):
            leave_row_numbers_out_of_table(found, ())
            refuse_faults(found, filled=False)
        return found.X


def read_table_file(
    path: str | Path,
    *,
    key: str | None = None,
    header: bool | None = None,
    as_text: AsText = no_text,
) -> Table | sparse.csr_array:
    """Read a data matrix with the names of its columns, and with what is wrong in it.

    Parameters
    ----------
    path, key, header
        As in `read_matrix`.
    as_text : callable
        Tells from the names of all columns, and whether they stand in the file, which columns to
        read as text.

    Returns
    -------
    Table or csr_array
        The content. In a table, row numbers are still in `X`, and cells that are no numbers are
        its faults.

    Raises
    ------
    FileNotFoundError, ImportError, ValueError
        As in `read_matrix`.
    """
    path = Path(path)
    with naming_file(path):
        X = _read_file(path, key, header, as_text)
        if isinstance(X, Table):
            return X
        if _kind_of_file(path) == "idx" and isinstance(X, np.ndarray) and X.ndim > 1:
            X = X.reshape(len(X), math.prod(X.shape[1:]))
        if X.ndim != 2:
            msg = f"expected an array of shape (n_samples, n_features), got shape {X.shape}"
            raise ValueError(msg)
        if not isinstance(X, np.ndarray):
            return X
        names = [str(i + 1) for i in range(X.shape[1])]
        if as_text(names, header=False):
            msg = "columns of text, --one-hot and --id-column, need a table: .csv, .tsv, .txt "
            msg += "or .parquet"
            raise ValueError(msg)
        return Table(X, names, names)


def is_table_file(path: Path) -> bool:
    """Return whether a file is a table of columns, by its name.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bool
        True for text and for ``.parquet``.
    """
    return _kind_of_file(path) in (*TEXT, "parquet")


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
        As in `read_matrix`; also ValueError if the file holds more than one column, none of which
        is named "label", or a number that is not an integer or does not fit into int64.
    """
    path = Path(path)
    with naming_file(path):
        labels = _read_file(path, key, header, no_text)
        if isinstance(labels, Table):
            leave_row_numbers_out_of_table(labels, ())
            if "label" in labels.names:
                labels.keep(["label"])
            for name, fault in labels.faults.items():
                blanks = "1 blank" if fault.blanks == 1 else f"{fault.blanks} blanks"
                got = repr(fault.example) if fault.wrong else blanks
                msg = f"expected integer labels, {fault.where}column {name!r} holds {got}"
                raise ValueError(msg)
            labels = labels.X
        if sparse.issparse(labels) or labels.shape not in ((labels.size,), (labels.size, 1)):
            msg = f"expected labels of shape (n_samples,), got shape {labels.shape}"
            raise ValueError(msg)
        labels = labels.ravel()
        largest = 2**53 if labels.dtype.kind == "f" else 2**63 - 1  # floats skip whole numbers
        with np.errstate(invalid="ignore"):
            fits = (labels == np.trunc(labels)) & (labels <= largest)
            fits &= labels >= -largest if labels.dtype.kind == "f" else True
        wrong = np.flatnonzero(~fits)
        if wrong.size:
            msg = f"expected integer labels, got {labels[wrong[0]]} for sample {wrong[0]}"
            if labels[wrong[0]] == np.trunc(labels[wrong[0]]):
                msg += f"; they may be at most {largest}"
            raise ValueError(msg)
        return labels.astype(np.int64)


def write_labels(
    path: str | Path, labels: ArrayLike, *, ids: Sequence[str] | None = None, id_name: str = "id"
) -> None:
    """Write labels as ``.npy``, or as ``.csv`` with the header "label" and one label per row.

    The file is written whole or not at all: beside `path`, whose place it takes at the end.

    Parameters
    ----------
    path : str or path-like
        The file to write. An existing file is replaced.
    labels : int array-like of shape (n_samples,)
        The labels.
    ids : sequence of str, optional
        The ids of the rows, to write them beside the labels. Only for ``.csv``.
    id_name : str
        The name of the column of ids; "label", the name of the other column, becomes "id".

    Raises
    ------
    ValueError
        If the ending is neither ``.npy`` nor ``.csv``, or `labels` is not a one-dimensional array
        of integers, or `ids` do not fit.
    """
    path = Path(path)
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        msg = f"labels must be integers of shape (n_samples,), got {labels.dtype} {labels.shape}"
        raise ValueError(msg)
    ending = path.suffix.lower()
    if ending not in LABEL_FORMATS:
        msg = f"labels are written as {' or '.join(LABEL_FORMATS)}, got {str(path)!r}"
        raise ValueError(msg)
    if ids is not None and (ending != ".csv" or len(ids) != len(labels)):
        msg = f"ids need a .csv file, and one for each label, got {str(path)!r} and {len(ids)} ids"
        raise ValueError(msg)
    with writing_whole(path) as stream:
        if ending == ".npy":
            np.save(stream, labels, allow_pickle=False)
        elif ids is None:
            np.savetxt(stream, labels, fmt="%d", header="label", comments="")
        else:
            writer = csv.writer(codecs.getwriter("utf-8")(stream), lineterminator="\n")
            writer.writerow(["id" if id_name == "label" else id_name, "label"])
            writer.writerows(zip(ids, labels.tolist(), strict=True))


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
    with naming_file(path):
        return read_idx_array(path)


# -- one reader for each format; `naming_file` adds the file's name to their messages -----------

PREFIX = "cannot read "


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Turn any error that a reader raises about the content into a ValueError with the path.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    ValueError
        In place of the error.
    """
    path.open("rb").close()  # for a missing file or a folder, keep the OSError
    try:
        yield
    except (
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        NotImplementedError,  # of zipfile, for a compression that it does not know
        csv.Error,
        struct.error,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        text = " ".join(str(error).split())
        if text.startswith(PREFIX):  # named already
            raise
        msg = f"{PREFIX}{printable(path)}: {printable(text)}"
        raise ValueError(msg) from error


def _kind_of_file(path: Path) -> str | None:
    name = path.name.lower()
    found = re.search(
        r"(idx)\d-ubyte(\.gz)?$|\.(csv|tsv|txt|mtx)(\.gz)?$|\.(npy|npz|parquet)$", name
    )
    return next(group for group in found.groups() if group) if found else None


def _read_file(
    path: Path,
    key: str | None,
    header: bool | None,  # noqa: FBT001 - a private function
    as_text: AsText,
) -> Table | np.ndarray | sparse.csr_array:
    kind = _kind_of_file(path)
    if key is not None and kind != "npz":
        msg = f"key={key!r} picks an array of an .npz file, but this is not an .npz file"
        raise ValueError(msg)
    if header is not None and kind not in TEXT:
        msg = f"header={header!r} is for .csv, .tsv and .txt files, but this is none"
        raise ValueError(msg)
    match kind:
        case "csv" | "tsv" | "txt":
            return read_delimited_text(path, kind, header, as_text)
        case "parquet":
            return read_parquet(path, as_text)
        case "npy":
            with path.open("rb") as stream:
                return read_npy(stream, path.stat().st_size)
        case "npz":
            return read_npz(path, key)
        case "mtx":
            return read_matrix_market(path)
        case "idx":
            return read_idx_array(path)
        case _:
            msg = f"unknown format, expected a name that ends in one of {', '.join(MATRIX_FORMATS)}"
            raise ValueError(msg)
