"""A check of sparse matrices that come from outside.

Compiled code reads where the indices of a matrix point to, without looking. An index out of range
ends the process, or gives a wrong result. So each function that takes a sparse matrix passes it
through `intact_csr` once, in one pass over its entries.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array, Backend, Sparse

__all__ = ["intact_csr"]

COMPRESSED = ("csr", "csc", "bsr")


class NotIntact(ValueError):
    """What is damaged, without the name of the matrix."""


def intact_csr(W: Any, name: str) -> Sparse:
    """Check that a sparse matrix is whole, and return it as CSR in the dtype that it has.

    Parameters
    ----------
    W : sparse matrix or array with two dimensions
        Any format of SciPy or CuPy. `W` is not changed; the result may share its arrays.
    name : str
        What the message calls the matrix.

    Returns
    -------
    csr_matrix
        Its entries are in the order of `W`; they may repeat.

    Raises
    ------
    ValueError
        If `W` has not two dimensions, its entries are not real numbers, or it is damaged: an index
        or a pointer out of range or of a wrong dtype, decreasing pointers, or parts of lengths
        that do not fit.
    """
    bk = backend_of(W)
    if len(W.shape) != 2:
        msg = f"{name} must have two dimensions, got shape {tuple(W.shape)}."
        raise ValueError(msg)
    if W.dtype.kind not in "biuf":
        msg = f"{name} must hold real numbers, got dtype {W.dtype}."
        raise ValueError(msg)
    try:
        return _as_intact_csr(bk, W)
    except NotIntact as damage:
        msg = f"{name} is a damaged {W.format.upper()} matrix: {damage}."
        raise ValueError(msg) from None
    except (AttributeError, IndexError, KeyError, TypeError, OverflowError) as error:
        msg = f"{name} is a damaged {W.format.upper()} matrix: {error}."
        raise ValueError(msg) from error


def _as_intact_csr(bk: Backend, W: Any) -> Sparse:
    """Return W as CSR; raise Damage if it is not whole."""
    if W.format in COMPRESSED:
        n_entries = _check_compressed_is_intact(bk, W)
        if W.format != "csr":
            return bk.sparse.csr_matrix(W.tocsr())
        if bk.name == "cuda" and n_entries == len(W.indices):
            return W
        content = W.data[:n_entries], W.indices[:n_entries], W.indptr
        return bk.sparse.csr_matrix(content, shape=W.shape)
    if W.format == "dia":
        _check_diagonals_are_intact(bk, W)
        return bk.sparse.csr_matrix(W.tocoo().tocsr() if bk.name == "numpy" else W.tocsr())
    if W.format == "lil":
        row, column, data = _intact_entries_of_lists(W)
    elif W.format == "dok":
        keys = list(W.keys())
        pairs = all(isinstance(key, tuple) and len(key) == 2 for key in keys)
        _must_be_intact(pairs, "its keys must be pairs of a row and a column")
        places = np.array(keys or np.zeros((0, 2), dtype=np.int64))
        row, column, data = places[:, 0], places[:, 1], np.array(list(W.values()), dtype=W.dtype)
    else:
        row, column, data = W.row, W.col, W.data
    _check_part_is_intact(bk, "data", data, 1, "biuf")
    for what, part, size in (("row", row, W.shape[0]), ("column", column, W.shape[1])):
        _check_part_is_intact(bk, f"{what} indices", part, 1, "i")
        _must_be_intact(
            part.size == data.size, f"it has {data.size} entries, but {part.size} {what} indices"
        )
        _check_range(bk, f"{what} indices", part, size)
    if W.format not in ("lil", "dok"):
        return bk.sparse.csr_matrix(W.tocsr())
    return bk.sparse.csr_matrix((data, (row, column)), shape=W.shape)


def _check_compressed_is_intact(bk: Backend, W: Any) -> int:
    """Check a CSR, CSC or BSR matrix and return the number of its entries (of BSR, its blocks)."""
    n_pointed, n_indexed = W.shape if W.format != "csc" else W.shape[::-1]
    _check_part_is_intact(bk, "data", W.data, 3 if W.format == "bsr" else 1, "biuf")
    _check_part_is_intact(bk, "indices", W.indices, 1, "i")
    _check_part_is_intact(bk, "indptr", W.indptr, 1, "i")
    if W.format == "bsr":
        height, width = W.data.shape[1:]
        fits = height and width and n_pointed % height == 0 and n_indexed % width == 0
        _must_be_intact(fits, f"blocks of shape {(height, width)} do not fit into shape {W.shape}")
        n_pointed, n_indexed = n_pointed // height, n_indexed // width
    n = len(W.indices)
    _must_be_intact(len(W.data) == n, f"it has {len(W.data)} entries, but {n} indices")
    lengths = f"indptr must have length {n_pointed + 1}, got {W.indptr.size}"
    _must_be_intact(W.indptr.size == n_pointed + 1, lengths)
    falls = bk.xp.any(W.indptr[1:] < W.indptr[:-1])
    facts = [W.indptr[0].astype(np.int64), W.indptr[-1].astype(np.int64), falls.astype(np.int64)]
    first, last, decreases = bk.to_numpy(bk.xp.stack(facts)).tolist()  # host waits
    _must_be_intact(first == 0, f"indptr must begin with 0, got {first}")
    _must_be_intact(not decreases, "indptr must not decrease")
    _must_be_intact(
        last <= n, f"indptr must end with at most the number of indices ({n}), got {last}"
    )
    _check_range(bk, "indices", W.indices[:last], n_indexed)
    return last


def _check_diagonals_are_intact(bk: Backend, W: Any) -> None:
    _check_part_is_intact(bk, "data", W.data, 2, "biuf")
    _check_part_is_intact(bk, "offsets", W.offsets, 1, "i")
    n_data, n_offsets = len(W.data), W.offsets.size
    _must_be_intact(n_data == n_offsets, f"it has {n_data} diagonals, but {n_offsets} offsets")
    _must_be_intact(bk.xp.unique(W.offsets).size == n_offsets, "its offsets must differ")


def _intact_entries_of_lists(W: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row, the column and the value of each entry of a LIL matrix."""
    counts = [len(row) for row in W.rows]
    _must_be_intact(
        len(counts) == W.shape[0], f"it must have {W.shape[0]} lists, got {len(counts)}"
    )
    if counts != [len(row) for row in W.data]:
        msg = "its lists of indices and of entries must be of the same lengths"
        raise NotIntact(msg)
    row = np.repeat(np.arange(len(counts)), counts)
    column = np.array(list(chain.from_iterable(W.rows)) or np.zeros(0, dtype=np.int64))
    return row, column, np.array(list(chain.from_iterable(W.data)), dtype=W.dtype)


def _check_part_is_intact(bk: Backend, what: str, part: Any, ndim: int, kinds: str) -> None:
    """Check that a part of a matrix is an array of the right dimensions and kind of dtype."""
    _must_be_intact(
        isinstance(part, bk.xp.ndarray), f"{what} must be an array, got {type(part).__name__}"
    )
    _must_be_intact(
        part.ndim == ndim, f"{what} must have {ndim} dimensions, got shape {tuple(part.shape)}"
    )
    expected = "integers with sign" if kinds == "i" else "real numbers"
    _must_be_intact(part.dtype.kind in kinds, f"{what} must be {expected}, got dtype {part.dtype}")


def _check_range(bk: Backend, what: str, index: Array, size: int) -> None:
    """Check that all indices lie in 0, ..., size - 1."""
    if index.size:
        extremes = bk.xp.stack([index.min(), index.max()])
        low, high = bk.to_numpy(extremes).tolist()  # host waits
        wrong = low if low < 0 else high
        _must_be_intact(
            low >= 0 and high < size, f"{what} must be from 0 to {size - 1}, got {wrong}"
        )


def _must_be_intact(holds: object, otherwise: str) -> None:
    if not holds:
        raise NotIntact(otherwise)
