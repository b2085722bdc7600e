"""Validation of the input, and conversion of results to the kind of array that came in."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from specialk_gpu._host import on_host
from specialk_gpu._matrix import (
    refuse_non_numbers_in_matrix,
    refuse_what_cannot_be_matrix,
    refuse_what_is_no_matrix,
)
from specialk_gpu.backend import cpu, is_device_array
from specialk_gpu.backend.intact import intact_csr
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.typing import Array, Backend, Sparse
from specialk_gpu.graph.features import SHORT_DTYPES, features

__all__ = ["output_converter", "validate_input", "validated_on_backend"]

NOT_NUMBERS = (
    "date",
    "time",
    "duration",
    "period",
    "interval",
    "str",
    "utf8",
    "large_string",
)  # prefixes of dtype names of data frames
NOT_NUMERIC = (str, bytes, datetime.date, datetime.time, datetime.timedelta, np.datetime64)


def validate_input(
    estimator: BaseEstimator, bk: Backend, X: Any, *, precomputed: bool, fitted: bool = False
) -> Any:
    """Validate X on the host or device where it is, without a copy if possible.

    Parameters
    ----------
    estimator : BaseEstimator
        Stores the number and the names of the columns; if `fitted`, compares them instead.
    bk : module
    X : array-like of shape (m, d), or sparse
        A sparse matrix becomes CSR, and is checked whole.
    precomputed : bool
        Whether X holds similarities (which may be sparse) or is a NetworkX or igraph graph.
    fitted : bool
        Whether X holds new rows for `predict`; then one row is enough.

    Raises
    ------
    ValueError, TypeError
        If the estimator does not accept X.
    """
    X = _validated_adjacency(X, precomputed)
    on_device = is_device_array(X)
    if on_device:
        X = bk.asarray(X)
        validate_data(estimator, X, reset=not fitted, skip_check_array=True)  # no names
    if not precomputed and (bk.sparse.issparse(X) or sparse.issparse(X)):
        msg = (
            f"a sparse X of shape {X.shape} is supported as a graph only: of similarities with "
            "affinity='precomputed', of distances with affinity='precomputed_nearest_neighbors'. "
            "Sparse data was passed; densify it with X.toarray(), or reduce it first, for "
            "instance with sklearn.decomposition.TruncatedSVD."
        )
        raise TypeError(msg)
    if bk.sparse.issparse(X) or sparse.issparse(X):
        whole: Any = intact_csr(X, "X")
        X = whole
    min_rows = 1 if fitted else 2
    if on_device and precomputed:
        if X.shape[0] < min_rows:
            msg = f"X must have at least {min_rows} rows, got shape {tuple(X.shape)}."
            raise ValueError(msg)
        return X
    if on_device:
        return features(X, min_rows)
    X = _validated_as_numpy(X)
    refuse_what_cannot_be_matrix(X)
    _refuse_invalid_text(X)
    refuse_what_is_no_matrix(X)
    dtype = _dtype_to_validate(X)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # infinity is refused
            return validate_data(
                estimator,
                X,
                reset=not fitted,
                accept_sparse=precomputed,
                dtype=_valid_dtypes(dtype, precomputed),
                ensure_all_finite=not precomputed,
                ensure_min_samples=min_rows,
            )
    except OverflowError as error:
        msg = "X must fit into float64, got an integer that is too large. Rescale X."
        raise ValueError(msg) from error
    except (TypeError, ValueError) as error:
        if not sparse.issparse(X):
            refuse_non_numbers_in_matrix(X, error)
        raise


def _valid_dtypes(dtype: str, precomputed: bool) -> list[type]:  # noqa: FBT001
    """Return what X may be made of after the check; another dtype becomes the first of these."""
    if precomputed:  # the dtype tells how much round-off to allow
        return [np.float64, np.float32, np.float16]
    return [np.float32 if dtype in ("float32", *SHORT_DTYPES) else np.float64]


def validated_on_backend(bk: Backend, X: Array | Sparse) -> Any:
    """Move what `validate_input` returned to the backend; data already there are not copied."""
    if sparse.issparse(X):
        return X if bk.name == "numpy" else bk.sparse.csr_matrix(sparse.csr_matrix(X))
    return bk.asarray(X)


def output_converter(X: object) -> Callable[[Any], Any]:
    """Return a function that converts a result of any backend into an array of the kind of `X`.

    If `X` is on a device, results are arrays of its library if that library reads DLPack, otherwise
    CuPy arrays; sparse results stay CuPy matrices. If `X` is on the host, results are NumPy arrays.
    """
    if not is_device_array(X):
        return on_host
    library = type(X).__module__.partition(".")[0]
    if library in ("cupy", "cupyx"):
        return lambda result: result
    namespace = getattr(X, "__array_namespace__", lambda: sys.modules[library])()
    if not hasattr(namespace, "from_dlpack"):
        return lambda result: result
    return lambda result: namespace.from_dlpack(result) if hasattr(result, "__dlpack__") else result


def _validated_adjacency(graph: Any, allowed: bool) -> Any:  # noqa: FBT001 - a private function
    """Return the matrix of a NetworkX or igraph graph, in the order of its nodes.

    Edges without an attribute "weight" have weight 1. Any other object is returned unchanged.
    """
    modules = [kind.__module__.partition(".")[0] for kind in type(graph).__mro__]
    library = next((name for name in modules if name in ("networkx", "igraph")), "")
    if library:
        if not allowed:
            msg = f"a graph of {library} needs affinity='precomputed'."
            raise TypeError(msg)
        n_nodes = graph.number_of_nodes() if library == "networkx" else graph.vcount()
        n_edges = graph.number_of_edges() if library == "networkx" else graph.ecount()
        if n_nodes < 2 or not n_edges:
            msg = f"the graph must have two nodes and an edge, got {n_nodes} and {n_edges}."
            raise ValueError(msg)
    if library == "networkx":
        import networkx

        return networkx.to_scipy_sparse_array(graph, dtype=np.float64)
    if library == "igraph":
        weight = "weight" if "weight" in graph.es.attributes() else None
        return graph.get_adjacency_sparse(attribute=weight)
    return graph


def _validated_as_numpy(X: Any) -> Any:
    """Return host tensors of other libraries as NumPy arrays; other input is returned unchanged."""
    library = type(X).__module__.partition(".")[0]
    if library in ("zarr", "h5py") and len(getattr(X, "shape", ())) == 2:
        return _stored_on_disk(X)
    if library in ("dask", "dask_expr"):
        msg = (
            "X must be in memory, got a dask collection. Use specialk_gpu.dask.SpecialK, or pass "
            "X.compute()."
        )
        raise TypeError(msg)
    if library == "torch":
        return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy(force=True)
    if hasattr(X, "__dlpack__") and not hasattr(X, "__array__"):
        return np.from_dlpack(X)
    if np.ma.is_masked(X):
        msg = "X must have no masked entries: fill or drop them first."
        raise ValueError(msg)
    if hasattr(X, "collect") and not hasattr(X, "shape"):
        msg = f"X must hold data, got a {type(X).__name__} that is not computed yet: collect() it."
        raise TypeError(msg)
    return X


def _stored_on_disk(X: Any) -> np.ndarray:
    """Read an array of zarr or HDF5 in slabs; under a memory limit, into a file if it is large."""
    (m, d), dtype = X.shape, np.dtype(X.dtype)
    out = large_array(cpu, (m, d), dtype)
    step = max(1, cpu.tile_bytes // max(1, d * dtype.itemsize))
    for start in range(0, m, step):
        out[start : start + step] = X[start : start + step]
    return out


def _dtype_to_validate(X: Any) -> str:
    """Return the name of the dtype of X as an array, or "" if it is unknown."""
    if hasattr(X, "dtype"):
        return str(getattr(X.dtype, "name", X.dtype))
    if hasattr(X, "shape") and len(X.shape) == 2 and X.shape[0]:
        first = X.iloc[:1] if hasattr(X, "iloc") else X[:1]  # of a data frame
        return np.asarray(first).dtype.name
    return ""


def _refuse_invalid_text(X: Any) -> None:
    """Raise a ValueError for text and dates, which would otherwise be converted to numbers."""
    columns = getattr(X, "dtypes", None)  # of a data frame
    if columns is None and hasattr(X, "schema"):
        columns = X.schema.types  # of a table of pyarrow
    if columns is not None and len(X.shape) == 2:
        wrong = [str(x) for x in columns if str(x).lower().startswith(NOT_NUMBERS)]
        if wrong:
            msg = (
                f"X must be numeric, got text or dates (dtype {wrong[0]} of a column). Convert "
                "or drop it first."
            )
            raise ValueError(msg)
    values = X if hasattr(X, "dtype") else np.asarray(X)  # lists and data frames
    if getattr(values.dtype, "kind", "") == "c":
        msg = f"Complex data not supported: X must hold real numbers, got dtype {values.dtype}."
        raise ValueError(msg)
    fields = getattr(values.dtype, "names", None) or ()
    if fields:
        msg = (
            f"X must have rows and columns, got the fields {', '.join(fields)} of a "
            "structured array. Convert it with numpy.lib.recfunctions.structured_to_unstructured."
        )
        raise ValueError(msg)
    kind = getattr(values.dtype, "kind", "")
    if kind in ("U", "S", "T", "V", "M", "m") or (
        kind == "O" and any(isinstance(x, NOT_NUMERIC) for x in np.asarray(values).ravel())
    ):
        msg = (
            f"X must be numeric, got text or dates (dtype {values.dtype}). Convert it, for "
            "instance with astype."
        )
        raise ValueError(msg)
