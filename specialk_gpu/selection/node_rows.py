"""Values of all rows of the data for each node: a part, or a union of parts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.typing import Array, Backend

__all__ = ["NodeRows"]


class NodeRows:
    """A value of each row for each node; that of a union is the sum over its two nodes.

    A union takes the memory of a node that was released, if there is one.

    Parameters
    ----------
    bk : Backend
    K : int
        Number of parts, the nodes 0, ..., K - 1. Unions get the next numbers, up to 2 K - 2.
    m : int
        Number of rows.

    Attributes
    ----------
    values : float64 array of shape (2 K, m)
        Those of the parts come first, and are for the caller to write. The host holds memory only
        for what was written.
    place : int array of shape (2 K,), on the host
        Where in `values` each node is.
    """

    def __init__(self, bk: Backend, K: int, m: int) -> None:
        self.values: Array = large_array(bk, (2 * K, m), np.float64)
        self._add = bk.xp.add
        self.place = np.full(2 * K, -1)
        self.place[:K] = np.arange(K)
        self._n_nodes = K
        self._free = list(range(2 * K - 1, K - 1, -1))  # the last is taken first

    def unite(self, a: int, b: int) -> None:
        """Make the union of two nodes; it gets the next number."""
        to, (first, second) = self._free.pop(), self.place[[a, b]]
        values = self.values
        self._add(values[first], values[second], out=values[to])
        self.place[self._n_nodes] = to
        self._n_nodes += 1

    def release(self, nodes: Iterable[int]) -> None:
        """Let unions take the memory of nodes that are not needed again."""
        for node in nodes:
            if self.place[node] >= 0:
                self._free.append(int(self.place[node]))
                self.place[node] = -1
