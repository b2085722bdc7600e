"""Types of the data that the algorithms pass on, and the interface of a backend.

For a type checker, every array is one of NumPy and every graph is one of SciPy. Those of CuPy
have the same attributes and methods, but a type checker knows nothing about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse as _sparse

__all__ = ["Array", "Backend", "Dtype", "Matrix", "Memory", "Operator", "Seed", "Sparse"]

Array: TypeAlias = np.ndarray
"""A dense array of either backend; one that is always on the host is an `np.ndarray`."""

Sparse: TypeAlias = _sparse.csr_matrix
"""A sparse matrix of either backend, in CSR."""

Matrix: TypeAlias = ArrayLike | _sparse.sparray | _sparse.spmatrix
"""Data as users give them, before any check: an array, a table or a graph."""

Dtype: TypeAlias = np.dtype | type | str
"""Anything that names the dtype of an array."""

Seed: TypeAlias = int | np.random.RandomState | None
"""The `random_state` of scikit-learn."""

Memory: TypeAlias = Any
"""What `assign` remembers of its runs; only the backend can read it (see `cpu.assign`)."""

T = TypeVar("T")
R = TypeVar("R")


class Operator(Protocol):
    """A matrix in the form that `spmm` multiplies fastest; only `spmm` can use it."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> np.dtype: ...


class Backend(Protocol):
    """The names that both backend modules define; they are documented in `cpu`."""

    name: str
    xp: ModuleType
    sparse: ModuleType
    panel_width: int
    panel_multiple: int
    tile_bytes: int
    sweep_window: int
    sweep_bytes: int
    walk_width: int
    max_entries: int

    @property
    def center_order(self) -> str: ...

    # arrays
    def asarray(self, x: object, dtype: Dtype | None = None) -> Array: ...
    def to_numpy(self, x: object) -> np.ndarray: ...
    def device_of(self, x: object) -> AbstractContextManager[object]: ...
    def free_memory(self) -> int: ...
    def synchronize(self) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def map_chunks(
        self, function: Callable[[T], R], chunks: Iterable[T], stage: str = ""
    ) -> list[R]: ...
    def all_true(self, x: Array) -> bool: ...
    def repeated(self, columns: np.ndarray, count: np.ndarray) -> Array: ...
    def bin_sums(self, bins: Array, weights: Array, n_bins: int) -> Array: ...
    def segment_max(self, x: Array, start: np.ndarray, end: np.ndarray) -> Array: ...

    # neighbours
    def product_dtypes(self) -> tuple[str, ...]: ...
    def product_error(self, n_features: int, dtype: Dtype) -> float: ...
    def products(self, A: Array, B: Array) -> Array: ...
    def select_smallest(self, products: Array, offsets: Array, n: int) -> tuple[Array, Array]: ...
    def rank_candidates(
        self, X: Array, rows: Array, places: Array, k: int
    ) -> tuple[Array, Array]: ...
    def row_hashes(self, X: Array, factors: Array) -> Array: ...
    def pair_sq_distances(self, X: Array, rows: Array, columns: Array) -> Array: ...

    # sparse matrices and blocks of vectors
    def connected_components(self, W: Sparse) -> tuple[int, Array]: ...
    def components_of(self, indptr: Array, indices: Array) -> tuple[int, Array]: ...
    def entry_rows(self, indptr: Array, n_entries: int) -> Array: ...
    def locality_order(self, W: Sparse) -> Array | None: ...
    def operator(self, A: Sparse) -> Operator: ...
    def as_float32(self, A: Operator) -> Operator: ...
    def spmm(
        self,
        A: Operator,
        X: Array,
        out: Array,
        alpha: float,
        shift: float,
        beta: float,
        source: Array | None = None,
        weights: Array | None = None,
    ) -> None: ...
    def is_lanczos_faster(self, A: Sparse, n: int) -> bool: ...
    def lanczos(
        self, A: Sparse, n: int, v0: Array, tol: float, max_iter: int | None
    ) -> tuple[Array, Array, str]: ...
    def narrow_block(self, width: int = 1) -> AbstractContextManager[object]: ...
    def panels(self, width: int) -> list[slice]: ...
    def column_dots(self, X: Array, Y: Array) -> Array: ...
    def row_squares(self, X: Array) -> Array: ...
    def inverse_lower(self, L: Array) -> Array: ...

    # k-means
    def nearest_center(
        self, X: Array, sq_norms: Array, centers: Array, sizes: np.ndarray
    ) -> tuple[Array, Array]: ...
    def nearest_without(
        self,
        X: Array,
        sq_norms: Array,
        centers: Array,
        sizes: np.ndarray,
        removed: list[np.ndarray],
    ) -> Array: ...
    def sq_distances(self, X: Array, sq_norms: Array, centers: Array) -> Array: ...
    def sums_of_minima(self, first: Array, second: Array, owner: Array, n: int) -> Array: ...
    def largest(self, x: Array, n: int) -> Array: ...
    def remember(self, X: Array, labels: Array, centers: Array) -> Memory: ...
    def assign(
        self,
        X: Array,
        columns: Array,
        sq_norms: Array,
        centers: Array,
        sizes: np.ndarray,
        last: Memory,
    ) -> tuple[Array, Array, Array, Array, Array, Memory, bool]: ...
    def segment_sum(
        self, X: Array, labels: Array, n_segments: int, *, squares: bool = False
    ) -> tuple[Array, ...]: ...
    def draw_rows(self, weights: Array, draws: Array) -> Array: ...
