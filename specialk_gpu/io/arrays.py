"""Readers for binary arrays: .npy, .npz, sparse matrices of SciPy, and idx.

Each reader compares what the header promises with what the file can hold before it asks for
memory, and reads no more than that.
"""

from __future__ import annotations

import gzip
import math
import os
import tokenize
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from scipy import sparse

__all__ = ["check_sizes_of_sparse_array", "read_idx_array", "read_npy", "read_npz"]

GZIP_RATIO = 1032  # no byte of deflate gives more
_IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PICKLED = (
    "it holds pickled Python objects, which are refused because loading them can run any code; "
    "save a numeric array instead"
)
_PARTS = {
    "csr": ("indices", "indptr"),
    "csc": ("indices", "indptr"),
    "bsr": ("indices", "indptr"),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}


KINDS = {"buif": "real numbers", "iu": "whole numbers", "SU": "text"}  # of arrays, by dtype


def read_npy(stream: IO[bytes], size: int, kinds: str = "buif") -> np.ndarray:
    """Read one array in NumPy's format.

    Parameters
    ----------
    stream : binary file
        At the start of the array.
    size : int
        How many bytes the stream holds.
    kinds : str
        The kinds of dtype to accept.

    Returns
    -------
    ndarray
        The array.

    Raises
    ------
    ValueError
        If the header is damaged, states another size, or another kind of array.
    """
    magic = np.lib.format.MAGIC_PREFIX
    head = stream.read(len(magic))
    if head.startswith(b"\x80"):  # the first byte of every pickle since protocol 2
        raise ValueError(_PICKLED)
    if head != magic:
        msg = f"not an .npy file, its first bytes are {head!r}"
        raise ValueError(msg)
    stream.seek(-len(magic), 1)
    shape, in_columns, dtype = _npy_header(stream)
    if dtype.hasobject:
        raise ValueError(_PICKLED)
    if dtype.kind not in kinds:
        msg = f"expected {KINDS[kinds]}, got dtype {dtype}"
        raise ValueError(msg)
    promised, held = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if promised != held or any(side < 0 for side in shape):
        msg = f"its header states shape {shape}, {promised} bytes, but {held} follow"
        raise ValueError(msg)
    values = np.frombuffer(_bytes_of_array(stream, promised), dtype)
    return values.reshape(shape, order="F" if in_columns else "C")


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, whether columns come first, and dtype."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers from Python 2, which are read
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                return np.lib.format.read_array_header_1_0(stream)
            if version == (2, 0):
                return np.lib.format.read_array_header_2_0(stream)
    # What Python's parsers and NumPy's dtypes raise about a damaged header.
    except (
        SyntaxError,
        tokenize.TokenError,
        TypeError,
        LookupError,
        ArithmeticError,
        RuntimeError,
        MemoryError,
    ) as error:
        msg = f"its header is damaged: {error}"
        raise ValueError(msg) from error
    msg = f"its format has version {version[0]}.{version[1]}, expected 1.0 or 2.0"
    raise ValueError(msg)


def _bytes_of_array(stream: IO[bytes], size: int) -> bytearray:
    """Read `size` bytes; memory grows with what is there, not with what was promised."""
    content = bytearray()
    while len(content) < size:
        block = stream.read(min(size - len(content), 1 << 24))
        if not block:
            msg = f"it ends after {len(content)} of {size} bytes"
            raise ValueError(msg)
        content += block
    return content


def read_npz(path: Path, key: str | None) -> np.ndarray | sparse.csr_array:
    """Read one array of an .npz file, or the sparse matrix that it holds.

    Parameters
    ----------
    path : Path
        The file.
    key : str or None
        Which of several arrays.

    Returns
    -------
    ndarray or csr_array
        As stored.

    Raises
    ------
    ValueError
        If the file is damaged or encrypted, or `key` does not choose one array.
    """
    with zipfile.ZipFile(path) as archive:
        members = {x.filename.removesuffix(".npy"): x for x in archive.infolist()}
        names = list(members)
        if key is None and {"format", "shape", "data"} <= set(names):
            layout = _layout_of_sparse_array(_npz_member(archive, members["format"], "SU"))
            if layout in _PARTS:
                arrays = _parts_of_sparse_array(archive, members, layout)
                return _sparse_array(
                    layout, _shape_of_array(_npz_member(archive, members["shape"], "iu")), arrays
                )
        if key is None and len(names) != 1:
            held = f"it holds {len(names)} arrays ({', '.join(names)})"
            msg = f"{held}; choose one with key= (--key on the command line)" if names else held
            raise ValueError(msg.removesuffix(" ()"))
        if key is not None and key not in names:
            msg = f"it has no array {key!r}, only {', '.join(names)}"
            raise ValueError(msg)
        return _npz_member(archive, members[key or names[0]])


def _npz_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, kinds: str = "buif") -> np.ndarray:
    if info.flag_bits & 1:
        msg = f"its part {info.filename!r} is encrypted"
        raise ValueError(msg)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        msg = f"its part {info.filename!r} is compressed in a way that .npz files are not"
        raise ValueError(msg)
    _check_promised_array(
        info.file_size, min(info.compress_size, os.stat(archive.filename or "").st_size)
    )
    with archive.open(info) as stream:
        return read_npy(stream, info.file_size, kinds)  # at its end the checksum is compared


def _check_promised_array(promised: int, compressed: int) -> None:
    if promised > GZIP_RATIO * (compressed + 64):
        msg = f"it promises {promised} bytes, more than its {compressed} compressed bytes can hold"
        raise ValueError(msg)


def _layout_of_sparse_array(array: np.ndarray) -> str:
    value = array.item() if array.size == 1 else ""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _shape_of_array(array: np.ndarray) -> tuple[int, int]:
    sides = array.ravel().tolist()
    if len(sides) != 2 or min(sides) < 0:
        msg = f"expected a sparse matrix of two dimensions, got the shape {sides}"
        raise ValueError(msg)
    return sides[0], sides[1]


def _parts_of_sparse_array(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], layout: str
) -> dict[str, np.ndarray]:
    parts = _PARTS[layout]
    if layout == "coo" and "coords" in members:
        parts = ("coords",)
    for part in parts:
        if part not in members:
            msg = f"a sparse matrix in format {layout} needs the array {part!r}, which is missing"
            raise ValueError(msg)
    arrays = {part: _npz_member(archive, members[part], "iu") for part in parts}
    return {"data": _npz_member(archive, members["data"])} | arrays


def _sparse_array(
    layout: str, shape: tuple[int, int], arrays: dict[str, np.ndarray]
) -> sparse.csr_array:
    """Build the matrix and check all its indices: native code trusts them."""
    data = arrays["data"]
    check_sizes_of_sparse_array(shape, data.size)
    if layout == "coo":
        i, j = arrays["coords"] if "coords" in arrays else (arrays["row"], arrays["col"])
        return sparse.csr_array(sparse.coo_array((data, (i, j)), shape=shape))
    if layout == "dia":
        diagonals: Any
        offsets = arrays["offsets"].ravel().tolist()
        if any(not -shape[0] < offset < shape[1] for offset in offsets):
            msg = f"a diagonal lies outside the shape {shape}"
            raise ValueError(msg)
        diagonals = sparse.dia_array((data, offsets), shape=shape)
        return sparse.csr_array(diagonals)
    indices, indptr = arrays["indices"], arrays["indptr"]
    if data.ndim != (3 if layout == "bsr" else 1) or indices.ndim != 1 or indptr.ndim != 1:
        msg = f"the arrays of a {layout} matrix have the wrong number of dimensions"
        raise ValueError(msg)
    if indptr.size and (indptr[0] != 0 or indptr[-1] != len(indices) or len(data) != len(indices)):
        msg = f"indptr ends at {indptr[-1]}, but there are {len(indices)} indices"
        raise ValueError(msg)
    kind: Any = getattr(sparse, f"{layout}_array")
    matrix = kind((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return sparse.csr_array(matrix)


def check_sizes_of_sparse_array(shape: tuple[int, int], n_entries: int) -> None:
    """Refuse a sparse matrix that would take far more memory than its entries.

    Parameters
    ----------
    shape : tuple of two int
        Its shape.
    n_entries : int
        How many entries the file holds.

    Raises
    ------
    ValueError
        If a side is longer than a million and a hundred times the number of entries together.
    """
    most = 1_000_000 + 100 * n_entries
    if max(shape) > most:
        msg = f"a shape of {shape[0]} x {shape[1]} is too large for {n_entries} entries; with so "
        msg += f"few, a side may be at most {most}"
        raise ValueError(msg)


def read_idx_array(path: Path) -> np.ndarray:
    """Read an idx file; see `specialk_gpu.io.read_idx`.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    ndarray
        With the shape and dtype of its header.

    Raises
    ------
    ValueError
        If the file is not what its header says.
    """
    compressed = path.suffix.lower() == ".gz"
    with cast("IO[bytes]", gzip.open(path) if compressed else path.open("rb")) as stream:
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
        promised, size = math.prod(shape) * dtype.itemsize, path.stat().st_size
        wrong = f"its header states shape {shape}, {promised} bytes, but"
        if compressed:
            _check_promised_array(promised, size)
        elif promised != size - stream.tell():
            msg = f"{wrong} {size - stream.tell()} follow"
            raise ValueError(msg)
        try:
            content = _bytes_of_array(stream, promised)
        except ValueError as error:
            msg = f"{wrong} {error}"
            raise ValueError(msg) from error
        if stream.read(1):
            msg = f"{wrong} more follow"
            raise ValueError(msg)
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))
