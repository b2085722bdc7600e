"""The nearest neighbours of every row, or of new rows, as public functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specialk_gpu._checks import checked_integer
from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.graph.features import features, features_within_range, values_of_constant_features
from specialk_gpu.graph.neighbor_search import search_neighbors_of_new_rows
from specialk_gpu.graph.rows import Neighbors, Rows

__all__ = ["Neighbors", "nearest_neighbors", "neighbors_among"]

QUERY_ROWS = 2**14  # queries in a batch, or m if that is larger
FAR = 1e100  # queries that are this many times larger than the data are searched separately


@on_its_device
def nearest_neighbors(X: ArrayLike, n_neighbors: int = 10) -> Neighbors:
    r"""Find the exact nearest neighbours of every row of `X` among the other rows.

    A row is never its own neighbour, but a duplicate of it is, at distance 0. At equal distances,
    the smaller row number comes first. Both backends return the same bits.

    Parameters
    ----------
    X : array-like of shape (m, d)
        See `features`.
    n_neighbors : int
        From 1 to m - 1; TypeError if it is not an integer.

    Returns
    -------
    Neighbors
        Arrays on the same device as `X`.

    Raises
    ------
    ValueError
        If `n_neighbors` is out of range, `features` refuses X, or X spans more orders of
        magnitude than squared distances can.

    Notes
    -----
    Costs at most :math:`2 m^2 d` operations in matrix products, and
    :math:`O(m(d + n_{neighbors}))` memory in addition to one tile. On the host, data with few
    columns are searched in a k-d tree, and many rows along leading principal axes if that is
    faster.

    Examples
    --------
    >>> import numpy as np
    >>> from specialk_gpu import nearest_neighbors
    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0]]), 1).indices.ravel()
    array([1, 0, 1])
    """
    return Rows(features(X)).neighbors(n_neighbors)


@on_its_device
def neighbors_among(queries: ArrayLike, X: ArrayLike, n_neighbors: int = 10) -> Neighbors:
    """Find the exact nearest rows of `X` to every row of `queries`.

    A query that equals a row of X has that row at distance 0. At equal distances, the smaller row
    number comes first. Both backends return the same bits.

    Parameters
    ----------
    queries : array-like of shape (q, d)
        See `features`; a single row is enough.
    X : array-like of shape (m, d)
        On the same device as `queries`.
    n_neighbors : int
        From 1 to m.

    Returns
    -------
    Neighbors
        Arrays of shape (q, n_neighbors), on the device of `queries`.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Costs 2 q m d operations in matrix products. Queries are searched in batches of at most
    max(m, 16,384) rows, and each batch copies X.
    """
    queries, X = features(queries, min_rows=1), features(X, min_rows=1)
    bk = backend_of(queries)
    xp, m = bk.xp, X.shape[0]
    if queries.shape[1] != X.shape[1]:
        msg = f"queries must have as many columns as X ({X.shape[1]}), got {queries.shape[1]}."
        raise ValueError(msg)
    n_neighbors = checked_integer("n_neighbors", n_neighbors, 1, m, "the number of rows")
    # The scale comes from X alone, so that a large query does not make other distances vanish.
    near_X, unit = features_within_range(bk, X)
    if unit > 1 and (centre := values_of_constant_features(bk, X)) is not None:
        most = np.finfo(queries.dtype).max
        with np.errstate(over="ignore"):
            queries = xp.clip(queries - centre, -most, most)
        X = X - centre
        near_X, unit = features_within_range(bk, X)
    with np.errstate(over="ignore"):
        scaled = queries if unit == 1 else queries.astype(np.float64) / unit
        far = xp.abs(scaled).max(axis=1) >= FAR
    distances, n_redone = xp.empty((queries.shape[0], n_neighbors)), 0
    indices = xp.empty(distances.shape, dtype=np.int64)
    for rows, base, given, own in ((~far, near_X, scaled, unit), (far, X, queries, 1.0)):
        chosen = xp.flatnonzero(rows)
        for start in range(0, int(chosen.size), max(m, QUERY_ROWS)):
            part = chosen[start : start + max(m, QUERY_ROWS)]
            both, more = features_within_range(bk, xp.concatenate([base, given[part]]))
            sq, indices[part], redone = search_neighbors_of_new_rows(bk, both, n_neighbors, first=m)
            with np.errstate(over="ignore"):
                distances[part] = xp.sqrt(sq) * more * own
            n_redone += redone
    return Neighbors(distances, indices, n_redone)
