"""Rows of dask arrays and data frames: brought to the client, and results in their chunks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from specialk_gpu.backend import cpu
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.typing import Array

__all__ = ["by_blocks", "check_collection", "gathered", "in_chunks", "in_memory", "is_dask"]


def is_dask(X: Any) -> bool:
    """Return whether X is a collection of dask."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def in_memory(X: Any) -> Any:
    """Return what a collection of dask holds; any other object is returned unchanged."""
    return X.compute() if is_dask(X) else X


def check_collection(X: Any) -> None:
    """Raise an error unless X is a dask array with chunks of whole rows, or a data frame."""
    if not (_is_frame(X) or hasattr(type(X), "chunks")):
        msg = (
            f"X must be a dask array or data frame, got a dask {type(X).__name__}. "
            "dask.array.from_delayed and dask.dataframe.from_delayed make one."
        )
        raise TypeError(msg)
    if X.ndim != 2:
        got = f"a {type(X).__name__}" if _is_frame(X) else f"shape {X.shape}"
        msg = f"X must have shape (m, d), rows and columns, got {got}."
        raise ValueError(msg)
    if not _is_frame(X) and len(X.chunks[1]) > 1:
        msg = (
            f"X must have chunks of whole rows, got {len(X.chunks[1])} chunks of columns. Use "
            "X.rechunk({1: -1})."
        )
        raise ValueError(msg)


def gathered(X: Any, client: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the rows of a checked collection, and the numbers of rows of its chunks."""
    if _is_frame(X):
        import pandas as pd

        parts = client.gather(client.compute(X.to_delayed()))
        return pd.concat(parts), tuple(map(len, parts))
    if any(math.isnan(size) for size in X.shape):
        msg = "X must have chunks of known sizes: call X.compute_chunk_sizes() first."
        raise ValueError(msg)
    X = X.persist(scheduler=client)
    of_graph: list[Any] = []
    out, begin = None, 0
    for size, place in zip(X.chunks[0], X.blocks, strict=True):
        block = place.compute(scheduler=client)
        _check_block(block, (size, X.shape[1]))
        if sparse.issparse(block):
            of_graph.append(block)
            continue
        out = large_array(cpu, X.shape, X.dtype) if out is None else out
        out[begin : begin + size] = block
        begin += size
    if begin and of_graph:
        msg = "X must have chunks of one kind, got both sparse and dense ones."
        raise TypeError(msg)
    return sparse.vstack(of_graph, format="csr") if of_graph else out, X.chunks[0]


def by_blocks(X: Any, method: str, model: Any, n_columns: int | None) -> Any:
    """Return, as a dask array, what a method of a model gives for each block of a collection.

    The method returns labels, if `n_columns` is None, and otherwise float64 rows.
    """
    from dask import delayed

    check_collection(X)
    model = delayed(model, pure=False)  # part of each task: no worker can lose it
    columns = () if n_columns is None else (n_columns,)
    found = np.empty((0, *columns), np.float64 if columns else np.int32)
    if _is_frame(X):
        parts = X.map_partitions(_found_by, method, model, found, meta=_frame_of(found))
        return parts.to_dask_array()
    chunks = (X.chunks[0], *((n,) for n in columns))
    kind = {"chunks": chunks, "dtype": found.dtype, "meta": found}
    axes = {} if columns else {"drop_axis": 1}
    return X.map_blocks(_found_by, method, model, found, **kind, **axes)


def in_chunks(values: Array, chunks: tuple[int, ...]) -> Any:
    """Return a dask array with these chunks of rows."""
    from dask.array import from_array

    return from_array(values, chunks=(chunks, *values.shape[1:]))


def _is_frame(X: Any) -> bool:
    """Return whether X is a data frame of dask, or a column or an index of one."""
    return hasattr(type(X), "to_dask_array")


def _check_block(block: Any, shape: tuple[int, int]) -> None:
    """Raise a ValueError if a block of rows is not what its array promises, or has a mask."""
    if block.shape != shape:
        msg = f"X must have chunks of the shapes in X.chunks, got {block.shape} for {shape}."
        raise ValueError(msg)
    if np.ma.is_masked(block):
        msg = "X must have no masked entries: fill or drop them first."
        raise ValueError(msg)


def _found_by(rows: Any, method: str, model: Any, none: Array) -> Any:
    """Return what a method of a model gives for a block; a block without rows has none."""
    found = getattr(model, method)(rows) if rows.shape[0] else none
    return _frame_of(found, rows.index) if hasattr(rows, "index") else found


def _frame_of(values: Array, index: Any = None) -> Any:
    """Return values as a series or a data frame."""
    import pandas as pd

    return (pd.Series if values.ndim == 1 else pd.DataFrame)(values, index=index)
