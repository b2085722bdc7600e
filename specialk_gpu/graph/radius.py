"""The radius graph W_R: all pairs within a radius, counted first, then listed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specialk_gpu._units import size_in_units
from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.indices import index_dtype
from specialk_gpu.backend.tiles import map_tiles
from specialk_gpu.backend.typing import Array, Sparse
from specialk_gpu.graph.distances import DistanceBounds, distance_bounds
from specialk_gpu.graph.features import features, features_in_metric
from specialk_gpu.graph.rows import Rows

__all__ = [
    "PairsWithinRadius",
    "RadiusGraph",
    "count_within_radius",
    "list_within_radius",
    "pairs_within_radius",
    "radius_graph",
    "radius_graph_of",
    "refuse_radius_graph",
]


class RadiusGraph(NamedTuple):
    """The radius graph W_R, and the radius ε that it was built with."""

    affinity: Sparse
    radius: float


@on_its_device
def radius_graph(
    X: ArrayLike,
    n_neighbors: int = 10,
    *,
    coverage: float = 0.99,
    radius: float | None = None,
    metric: str = "euclidean",
) -> RadiusGraph:
    r"""Build W_R, the binary adjacency matrix of the ε-neighbourhood graph.

    ε is the smallest radius at which at least :math:`\lceil coverage \cdot m \rceil` rows have
    `n_neighbors` other rows within ε [HD19, section 4]. An isolated row becomes a row of zeros.

    Parameters
    ----------
    X : array-like of shape (m, d)
        See `features`.
    n_neighbors : int
        Neighbours that define ε, from 1 to m - 1.
    coverage : float
        Share of the rows that must have them within ε, in (0, 1].
    radius : float, optional
        Use this ε instead of the computed one.
    metric : {"euclidean", "cosine"}
        See `knn_graph`. With "cosine", ε is a distance between rows of length 1.

    Returns
    -------
    RadiusGraph
        The csr_matrix (m, m) of float64 ones, from SciPy or CuPy, and ε.

    Raises
    ------
    MemoryError
        If the edges, which are counted first, do not fit. The message names edges, memory and ε.

    Notes
    -----
    Costs two passes of :math:`2 m^2 d` operations, in addition to the search for ε.
    """
    if not 0 < coverage <= 1:
        msg = f"coverage must lie in (0, 1], got {coverage}."
        raise ValueError(msg)
    return radius_graph_of(
        Rows(features_in_metric(features(X), metric)), n_neighbors, coverage, radius
    )


def radius_graph_of(
    rows: Rows, n_neighbors: int, coverage: float, radius: float | None = None
) -> RadiusGraph:
    """Return the graph W_R of rows, as `radius_graph` does."""
    bk, m = backend_of(rows.X), len(rows)
    xp = bk.xp
    if radius is None:
        kth = xp.sort(rows.neighbors(n_neighbors).distances[:, -1])
        radius = float(kth[math.ceil(coverage * m) - 1])  # host waits
    elif not (radius > 0 and math.isfinite(radius)):
        msg = f"radius must be a positive number, got {radius}."
        raise ValueError(msg)
    X, unit = rows.in_range()
    pairs = pairs_within_radius(X, _largest_sq_radius(radius / unit))
    ends = xp.zeros(m + 1, dtype=np.int64)
    ends[1:] = xp.cumsum(count_within_radius(pairs))
    on_host = bk.to_numpy(ends)  # host waits
    n_edges = int(on_host[-1])
    refuse_radius_graph(n_edges, bk.max_entries, bk.free_memory(), radius)
    indices, indptr = list_within_radius(pairs, on_host), ends.astype(index_dtype(n_edges))
    data = xp.ones(indices.size)
    return RadiusGraph(bk.sparse.csr_matrix((data, indices, indptr), shape=(m, m)), radius)


def _largest_sq_radius(radius: float) -> float:
    """Return the largest number whose rounded square root is at most `radius`."""
    radius = min(radius, 1e150)  # no pair within range is farther apart
    square = radius * radius
    while math.sqrt(math.nextafter(square, math.inf)) <= radius:
        square = math.nextafter(square, math.inf)
    return square


def refuse_radius_graph(n_edges: int, most: int, free: int, radius: float) -> None:
    """Raise MemoryError if a graph of `n_edges` stored entries, at `most` so many, does not fit."""
    needed = (8 + np.dtype(index_dtype(n_edges)).itemsize) * n_edges
    remedy = (
        "Lower `coverage` or `n_neighbors`, or use affinity='nearest_neighbors', "
        "whose graph has at most 2 m n_neighbors edges."
    )
    if n_edges > most:
        msg = (
            f"the radius graph has {n_edges:,} edges ({size_in_units(needed)}) at "
            f"ε = {radius:.6g}, more than the {most:,} that 32-bit indices can number. "
            f"{remedy}"
        )
        raise MemoryError(msg)
    if needed > 0.8 * free:
        msg = (
            f"the radius graph has {n_edges:,} edges at ε = {radius:.6g} and needs "
            f"{size_in_units(needed)}, but {size_in_units(free)} are free. {remedy}"
        )
        raise MemoryError(msg)


class PairsWithinRadius(NamedTuple):
    """The inputs of `count_within_radius` and `list_within_radius`."""

    search: DistanceBounds
    sq_radius: float
    limit: float  # the squared radius in the units of the search


def pairs_within_radius(X: Array, sq_radius: float) -> PairsWithinRadius:
    """Choose the fastest products that bound distances well enough for the functions below.

    Parameters
    ----------
    X : float array of shape (m, d)
    sq_radius : float
        The squared radius. A row at exactly this squared distance is within the radius.
    """
    bk = backend_of(X)
    for dtype in bk.product_dtypes():
        search = distance_bounds(bk, X, dtype)
        limit = min(sq_radius / search.scale**2, 8.0 * X.shape[1])  # no pair is farther apart
        if 4 * float(search.loss.mean()) <= 0.05 * limit:
            break  # few pairs will have to be measured
    return PairsWithinRadius(search, sq_radius, limit)


def count_within_radius(pairs: PairsWithinRadius) -> Array:
    """Count the other rows within the radius of each row: int64 array of shape (m,)."""
    return _tile_within_radius(pairs, None)


def list_within_radius(pairs: PairsWithinRadius, ends: np.ndarray) -> Array:
    """List the other rows within the radius of each row, given the running sums of the counts.

    Parameters
    ----------
    pairs : PairsWithin
    ends : int array of shape (m + 1,)
        Running sums of `count_within_radius`, starting with 0, on the host.

    Returns
    -------
    int32 or int64 array of shape (ends[-1],)
        Row numbers, ascending within each row.
    """
    n_edges = int(ends[-1])
    indices = pairs.search.bk.xp.empty(n_edges, dtype=index_dtype(n_edges))
    _tile_within_radius(pairs, (ends, indices))
    return indices


def _tile_within_radius(pairs: PairsWithinRadius, out: tuple[np.ndarray, Array] | None) -> Array:
    """Count the rows within the radius of each row, or write their numbers into `out`.

    `out` holds the running sums of the counts, on the host, and the indices to fill.
    """
    search, sq_radius, limit = pairs
    bk, X = search.bk, search.X
    xp, m = bk.xp, X.shape[0]
    offsets = search.low_norms.astype(np.float32)
    counts = xp.empty(m, dtype=np.int64)

    def run(rows: slice) -> None:
        scores = bk.products(search.base[rows], search.base)
        scores += offsets
        own_norms, own_loss = search.low_norms[rows], search.loss[rows]
        # a pair with a score above `high` is certainly outside, whatever the partner's norm
        high = limit + search.floor - own_norms
        inside = scores <= (high + 1e-6 * xp.abs(high))[:, None].astype(np.float32)
        inside[xp.arange(rows.stop - rows.start), xp.arange(rows.start, rows.stop)] = False
        row, column = xp.nonzero(inside)
        lower = scores[row, column].astype(np.float64) + own_norms[row]
        upper = lower + 2 * (own_loss[row] + search.loss[column])
        unsure = xp.flatnonzero(upper + 2 * search.floor > limit * (1 - 1e-12))
        near = bk.pair_sq_distances(X, row[unsure] + rows.start, column[unsure]) <= sq_radius
        keep = xp.ones(row.size, dtype=bool)
        keep[unsure] = near
        if out is None:
            before = xp.zeros(row.size + 1, dtype=np.int64)
            before[1:] = xp.cumsum(keep)
            ends = xp.arange(rows.stop - rows.start + 1)
            counts[rows] = xp.diff(before[xp.searchsorted(row, ends)])  # `row` is sorted
        else:
            ends, indices = out
            indices[ends[rows.start] : ends[rows.stop]] = column[keep]

    map_tiles(bk, run, m, 16 * m, "pairs within the radius")
    return counts
