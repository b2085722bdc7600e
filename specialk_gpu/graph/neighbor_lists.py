"""Neighbours from elsewhere: given, or proposed by a transformer; completed and measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.intact import intact_csr
from specialk_gpu.backend.tiles import map_tiles
from specialk_gpu.backend.typing import Array, Backend
from specialk_gpu.graph.distance_graph import entries_by_distance, lists_of_entries
from specialk_gpu.graph.neighbor_search import search_neighbors_again

__all__ = ["NeighborLists", "checked_lists", "neighbor_lists", "word_for_neighbors"]

MOST_SHORT = 0.1  # share of rows whose lists may be too short, and are searched exactly


class NeighborLists:
    """Lists of neighbours that come from elsewhere.

    Parameters
    ----------
    propose : callable
        Maps rows (m, d) and a number n to lists: int64 array of shape (m, any width) of row
        numbers, all different in a row, without the row itself; -1 fills up.
    n_wanted : int
        The number of neighbours that will be needed in the end.
    """

    def __init__(self, propose: Callable[[Array, int], Array], n_wanted: int) -> None:
        self._propose, self._n_wanted = propose, n_wanted

    def among(self, first: Array, group: Array) -> NeighborLists:
        """Return the lists of distinct rows; see `duplicate_groups`."""

        def propose(X: Array, n: int) -> Array:
            lists = self._propose(X, n)
            if len(lists) == len(X):  # found for the distinct rows
                return lists
            bk = backend_of(X)
            xp, own = bk.xp, bk.asarray(lists)[first]
            return _tidied_lists(xp.where(own < 0, -1, group[own]))

        return NeighborLists(propose, self._n_wanted)

    def search(self, bk: Backend, X: Array, k: int) -> tuple[Array, Array, int]:
        """Return squared distances, indices (m, n) and the number of rows searched exactly.

        n is k, or the number that will be needed if that is larger. Lists that are too short are
        completed by the neighbours of their neighbours; a row that lists another counts as its
        neighbour too. Rows for which these do not suffice are searched exactly.

        Raises
        ------
        ValueError
            If that would be more than a tenth of all rows.
        """
        xp, m = bk.xp, len(X)
        k = max(k, min(self._n_wanted, m - 1))
        lists = bk.asarray(self._propose(X, k))
        squares, indices = xp.empty((m, k)), xp.empty((m, k), dtype=np.int64)

        def rank(rows: Array, candidates: Array) -> None:
            squares[rows], indices[rows] = bk.rank_candidates(X, rows, candidates, k)

        def rank_lists(tile: slice) -> Array:
            rows = xp.arange(tile.start, tile.stop)
            enough = (lists[tile] >= 0).sum(axis=1) >= k
            if int(enough.sum()):
                rank(rows[enough], lists[tile][enough])
            return rows[~enough]

        def rank_longer(tile: slice) -> Array:
            rows = short[tile]
            own = joined[rows]
            beyond = xp.where(own[:, :, None] < 0, -1, joined[own]).reshape(len(rows), -1)
            longer = xp.concatenate([own, beyond], axis=1)
            longer = _tidied_lists(xp.where(longer == rows[:, None], -1, longer))
            enough = (longer >= 0).sum(axis=1) >= k
            if int(enough.sum()):
                rank(rows[enough], longer[enough])
            return rows[~enough]

        width = lists.shape[1]
        short = xp.concatenate(map_tiles(bk, rank_lists, m, 64 * width, "neighbours"))
        if short.size:
            joined, width = _lists_both_ways(lists), 2 * width
            size = 64 * width * (width + 1)
            left = map_tiles(bk, rank_longer, int(short.size), size, "neighbours of neighbours")
            short = xp.concatenate(left)
        if short.size > MOST_SHORT * m:
            msg = (
                f"neighbors must list {k} others of each row, where equal rows count once, or "
                "enough to find as many among their neighbours; they do not suffice for "
                f"{int(short.size)} of {m} rows. Give longer lists, or set neighbors='exact'."
            )
            raise ValueError(msg)
        if short.size:
            search_neighbors_again(bk, X, short, squares, indices)
        return squares, indices, int(short.size)


def neighbor_lists(neighbors: Any, m: int, n_wanted: int) -> NeighborLists | None:
    """Return the lists that the parameter `neighbors` asks for; None for an exact search.

    Parameters
    ----------
    neighbors : str, tuple or transformer
        See `SpecialK`.
    m : int
        The number of rows.
    n_wanted : int
        See `NeighborLists`.

    Raises
    ------
    ValueError, TypeError
        If lists are not valid.
    ImportError
        If neighbors="approximate" and pynndescent is not installed.
    """
    if isinstance(neighbors, str):
        if neighbors == "exact":
            return None
        if neighbors == "given":
            msg = (
                "neighbors='given' stands for lists that a saved model does not hold. Pass them "
                "again: (indices, distances), or a transformer."
            )
            raise ValueError(msg)
        neighbors = _approximate_search()
    if not isinstance(neighbors, tuple):
        return NeighborLists(lambda X, n: _proposed_lists(neighbors, X, n), n_wanted)
    if len(neighbors) != 2:
        msg = f"neighbors must be (indices, distances), got a tuple of {len(neighbors)}."
        raise ValueError(msg)
    lists = _without_the_row(checked_lists(neighbors[0], m, "the indices in neighbors"))
    return NeighborLists(lambda X, n: lists, n_wanted)  # noqa: ARG005


def word_for_neighbors(neighbors: Any) -> str:
    """Return what a saved model says of the parameter `neighbors`."""
    return neighbors if isinstance(neighbors, str) else "given"


def checked_lists(indices: Any, m: int | None = None, name: str = "indices") -> Array:
    """Return lists of neighbours of m rows as an int64 array (m, k); refuse what cannot be lists.

    Messages call them `name`.

    Raises
    ------
    ValueError, TypeError
        If they are not row numbers, or name a row twice.
    """
    bk = backend_of(indices)
    try:
        xp, indices = bk.xp, bk.asarray(indices)
    except ValueError as error:
        msg = f"{name} must be an array; fill up shorter lists with -1. {error}"
        raise ValueError(msg) from error
    if indices.dtype.kind not in "iu":
        msg = f"{name} must be integers, got dtype {indices.dtype}."
        raise TypeError(msg)
    if indices.ndim != 2 or indices.shape[0] < 2 or indices.shape[1] < 1:
        msg = f"{name} must have two rows and a column at least, got shape {indices.shape}."
        raise ValueError(msg)
    if m is not None and indices.shape[0] != m:
        msg = f"{name} must name neighbours of {m} rows, those of X, got {indices.shape[0]}."
        raise ValueError(msg)
    m = indices.shape[0]
    if int(indices.max()) >= m:
        msg = f"{name} must be below the number of rows ({m}), got {int(indices.max())}."
        raise ValueError(msg)
    indices = indices.astype(np.int64)
    ordered = xp.sort(indices, axis=1)
    if bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()):
        msg = f"{name} must name each neighbour of a row once, got the same one twice."
        raise ValueError(msg)
    return indices


def _without_the_row(indices: Array) -> Array:
    """Return lists in which -1 takes the place of the row itself and of negative numbers."""
    xp = backend_of(indices).xp
    own = xp.arange(len(indices))[:, None]
    return xp.where((indices == own) | (indices < 0), -1, indices)


def _tidied_lists(lists: Array) -> Array:
    """Return lists in which each row is named once; -1 takes the place of the others."""
    xp = backend_of(lists).xp
    lists = xp.sort(lists, axis=1)
    lists[:, 1:][lists[:, 1:] == lists[:, :-1]] = -1
    return lists


def _lists_both_ways(lists: Array) -> Array:
    """Return lists (m, 2 n): those given (m, n), and up to n of the rows that list each row."""
    xp, (m, n) = backend_of(lists).xp, lists.shape
    row, column = xp.arange(m * n) // n, lists.ravel()
    order = xp.argsort(column, kind="stable")
    row, column = row[order], column[order]
    place = xp.arange(m * n) - xp.searchsorted(column, column)
    kept = (place < n) & (column >= 0)
    listing = xp.full((m, n), -1, dtype=np.int64)
    listing[column[kept], place[kept]] = row[kept]
    return _tidied_lists(xp.concatenate([lists, listing], axis=1))


def _approximate_search() -> Any:
    try:
        from pynndescent import PyNNDescentTransformer
    except ImportError as error:
        msg = (
            "neighbors='approximate' needs pynndescent: pip install 'specialk-gpu[approximate]'. "
            "Or pass a transformer of another library."
        )
        raise ImportError(msg) from error
    return PyNNDescentTransformer(random_state=0)


def _proposed_lists(transformer: Any, X: Array, n: int) -> Array:
    """Return the lists (m, n) of a transformer, which gets the rows on the host."""
    bk = backend_of(X)
    kind = type(transformer).__name__
    try:
        transformer = clone(transformer).set_params(n_neighbors=min(n + 1, len(X) - 1))  # or itself
    except (TypeError, ValueError) as error:
        msg = f"neighbors must be a transformer with a parameter n_neighbors, got a {kind}. {error}"
        raise type(error)(msg) from error
    graph: Any = transformer.fit_transform(bk.to_numpy(X))
    if not sparse.issparse(graph) or getattr(graph, "shape", None) != (len(X), len(X)):
        what = f"{type(graph).__name__} of shape {getattr(graph, 'shape', None)}"
        msg = (
            "neighbors must be a transformer that returns a sparse graph of shape "
            f"{(len(X), len(X))}, got a {what} from {kind}."
        )
        raise ValueError(msg)
    row, column, _ = entries_by_distance(_whole_graph(graph, f"the graph from neighbors ({kind})"))
    return bk.asarray(lists_of_entries(row, column, len(X), -1))


def _whole_graph(graph: Any, name: str) -> Any:
    """Check a graph from a transformer; index -1, for none, becomes the row itself."""
    if graph.format == "csr" and graph.indices.min(initial=0) == -1:
        own = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
        columns = np.where(graph.indices == -1, own, graph.indices)
        graph = sparse.csr_matrix((graph.data, columns, graph.indptr), shape=graph.shape)
    return intact_csr(graph, name)
