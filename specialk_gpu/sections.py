"""A graph cut into sections: pieces of clusters, and the cuts from one of them to another."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.chebyshev import product
from specialk_gpu.eigen import eigenpairs
from specialk_gpu.graph import normalised, rows_of_entries

__all__ = ["Graph", "Sections", "prepare", "profile", "sections_of"]

N_STEPS = 10  # of the walker, each of which stays with probability one half
CERTAIN = 1e-4  # chance of the other cluster from which f tells an order of rows
APART = 0.01  # weight of a cut from which two pieces are joined, as far as a walker can see
PIECE = 0.1  # of a cluster: components that are smaller are no pieces of their own


class Graph(NamedTuple):
    """A graph, ready to be cut.

    Attributes
    ----------
    S : csr_matrix of shape (m, m)
        Divided by the roots of the degrees.
    step : float64 array of shape (m, 1)
        Half the inverse of the sums of its rows.
    row, column, weight : arrays of shape (e,)
        Its edges, each once.
    widths : dict
        The own widths of parts of it, by their rows.
    """

    S: Any
    step: Any
    row: Any
    column: Any
    weight: Any
    widths: dict[bytes, float]


def prepare(W: Any) -> Graph:
    """Prepare a symmetric csr_matrix (m, m) of similarities; those of a row to itself do not count.

    W is not changed, and trusted; `specialk_gpu.affinity_matrix` checks one.
    """
    bk = backend_of(W)
    xp = bk.xp
    W = W.astype(np.float64)  # a copy; CuPy before 14.2 takes no `copy`
    row = rows_of_entries(W, "similarities")
    if bool((row == W.indices).any()):
        other = row != W.indices
        content = W.data[other], (row[other], W.indices[other])
        W = bk.sparse.csr_matrix(content, shape=W.shape)
        row = row[other]
    S = normalised(W)
    # multiples of 2^-31: sums of up to 2^22 of them are exact, in any order, as atomics need it
    S.data = xp.rint(S.data * 2.0**31) * 2.0**-31
    degree = xp.bincount(row, S.data, minlength=S.shape[0]) if row.size else xp.zeros(S.shape[0])
    step = xp.where(degree > 0, 0.5 / xp.where(degree > 0, degree, 1), 0)[:, None]
    once = row < S.indices
    return Graph(S, step, row[once].astype(np.int32), S.indices[once], S.data[once], {})


@on_its_device
def profile(labels: Any, k: int, graph: Graph, pair: tuple[int, int]) -> tuple[Any, Any]:
    """Return the cuts from within one cluster to within another, to be drawn.

    Parameters
    ----------
    labels, k, graph
        See `specialk_gpu.bottlenecks.borders`.
    pair : tuple of two int
        Pieces, which are the labels where no cluster falls apart.

    Returns
    -------
    position : int64 array of shape (c,)
        Rows before the cut, less those of the first piece: 0 is the border.
    weight : float64 array of shape (c,)
    """
    sections = sections_of(graph, labels, k)
    cuts, known = sections.cuts(*pair)
    at = backend_of(labels).xp.flatnonzero(known)
    return at + 1 - sections.rows(pair[0]).size, cuts[at]


def sections_of(graph: Graph, labels: Any, k: int) -> Sections:
    """Return what can be cut."""
    bk = backend_of(labels)
    piece, owner, core = _pieces(bk, graph, labels, k)
    F = _walked(bk, graph, piece, owner.size)
    return Sections(bk, graph, _with_strays(bk, piece, F), F, owner, core)


def _pieces(
    bk: ModuleType, graph: Graph, labels: Any, k: int
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the piece of each row (m,); and of each piece, on the host, its label and its rows.

    A piece is a component of a cluster that holds a tenth of it. What is smaller has strayed, and
    belongs to the piece around it; it is marked by -1 - the largest piece of its label.
    """
    xp, m = bk.xp, labels.size
    inside = labels[graph.row] == labels[graph.column]
    row, column = graph.row[inside], graph.column[inside]
    ends = xp.concatenate([row, column]), xp.concatenate([column, row])
    G = bk.sparse.csr_matrix((xp.ones(2 * row.size), ends), shape=(m, m))
    count, component = bk.connected_components(G)
    sizes = bk.to_numpy(xp.bincount(component, minlength=count))
    if count == k:
        return labels, np.arange(k), bk.to_numpy(xp.bincount(labels, minlength=k))
    label_of = bk.to_numpy(labels[xp.unique(component, return_index=True)[1]])
    piece, owner, core = np.empty(count, dtype=np.int32), [], []
    for label in range(k):
        own = np.flatnonzero(label_of == label)
        own = own[np.argsort(-sizes[own], kind="stable")]
        n_pieces = max(1, int((sizes[own] >= max(2, PIECE * sizes[own].sum())).sum()))
        piece[own] = -1 - len(owner)  # a stray, and where it goes if nowhere else
        piece[own[:n_pieces]] = len(owner) + np.arange(n_pieces)
        owner += [label] * n_pieces
        core += sizes[own[:n_pieces]].tolist()
    return bk.asarray(piece)[component], np.array(owner), np.array(core)


def _walked(bk: ModuleType, graph: Graph, piece: Any, k: int) -> Any:
    """Return the probability (m, k) that a walk from each row ends in each piece."""
    F = (piece[:, None] == bk.xp.arange(k)).astype(np.float64)
    for _ in range(N_STEPS):
        F = 0.5 * F + graph.step * product(bk, graph.S, F)
    return F


def _with_strays(bk: ModuleType, piece: Any, F: Any) -> Any:
    """Return the pieces (m,), strays in the one around them; mend F, in place, for the lost."""
    stray = bk.xp.flatnonzero(piece < 0)
    if not stray.size:
        return piece
    piece, near = piece.copy(), F[stray]
    lost = bk.xp.flatnonzero(~near.any(axis=1))
    near[lost, -1 - piece[stray[lost]]] = 1
    piece[stray], F[stray] = near.argmax(axis=1), near
    return piece


class Sections:
    """The rows and edges of a graph, sorted by pieces, and the cuts through pairs of pieces.

    Attributes
    ----------
    owner : int array of shape (n_pieces,), on the host
        The label of each piece.
    core : int array of shape (n_pieces,), on the host
        Its rows without strays.
    """

    def __init__(
        self,
        bk: ModuleType,
        graph: Graph,
        piece: Any,
        F: Any,
        owner: np.ndarray,
        core: np.ndarray,
    ) -> None:
        xp, k = bk.xp, F.shape[1]
        self.bk, self.k, self.F, self.graph = bk, k, F, graph
        self.owner, self.core = owner, core
        self.order = xp.argsort(piece, kind="stable")
        ends = xp.searchsorted(piece[self.order], xp.arange(k + 1, dtype=piece.dtype))
        a, b = piece[graph.row], piece[graph.column]
        key = xp.minimum(a, b).astype(np.int64) * k + xp.maximum(a, b)
        by_key = xp.argsort(key, kind="stable")
        self.edges = [x[by_key] for x in (graph.row, graph.column, graph.weight)]
        self.bounds = bk.to_numpy(xp.searchsorted(key[by_key], xp.arange(k * k + 1)))
        weights = xp.bincount(key, graph.weight, minlength=k * k) if key.size else xp.zeros(k * k)
        self.weights = bk.to_numpy(weights)  # of all edges of each pair
        self.ends = bk.to_numpy(ends)
        self.place = xp.empty(piece.size, dtype=np.int64)

    def rows(self, i: int) -> Any:
        """Return the rows of a piece."""
        return self.order[self.ends[i] : self.ends[i + 1]]

    def size(self, i: int, j: int) -> int:
        """Return the rows of two pieces."""
        return int(sum(self.ends[x + 1] - self.ends[x] for x in (i, j)))

    def _between(self, i: int, j: int) -> slice:
        """Return where the edges between two pieces i <= j are."""
        return slice(*self.bounds[i * self.k + j : i * self.k + j + 2])

    def touching(self) -> list[tuple[int, int]]:
        """List the pairs of pieces that are joined."""
        pairs = (divmod(key, self.k) for key in np.flatnonzero(self.weights > APART).tolist())
        return [(i, j) for i, j in pairs if i < j]

    def own_width(self, i: int) -> float:
        """Return the heaviest cut of the largest component of a piece, by its eigenvector."""
        rows, widths = self.rows(i), self.graph.widths
        key = self.bk.to_numpy(rows).tobytes()
        if key not in widths:
            widths[key] = _heaviest_cut(self.bk, self.graph.S[rows][:, rows])
        return widths[key]

    def cuts(self, i: int, j: int) -> tuple[Any, Any]:
        """Return the cuts through two pieces in the order of f, and where f says."""
        rows = self.bk.xp.concatenate([self.rows(i), self.rows(j)])
        own, other = self.F[rows, i], self.F[rows, j]  # not both 0: in one of them, or reached
        parts = [self._between(i, i), self._between(i, j), self._between(j, j)]
        edges = [self.bk.xp.concatenate([x[part] for part in parts]) for x in self.edges]
        return _profile(self.bk.xp, other / (own + other), rows, edges, self.place)

    def measure(self, i: int, j: int) -> tuple[float, float]:
        """Return the cut between two pieces, and the lighter of the heaviest within them."""
        xp = self.bk.xp
        cuts, known = self.cuts(i, j)
        cuts = xp.where(known, cuts, 0)
        border = int(self.ends[i + 1] - self.ends[i]) - 1
        weights = xp.stack([cuts[: border + 1].max(), cuts[border:].max(), cuts[border]])
        left, right, level = self.bk.to_numpy(weights).tolist()
        whole = float(self.weights[i * self.k + j])
        return (max(min(level, whole), whole / 2) if level > 0 else whole), min(left, right)


def _profile(xp: Any, f: Any, rows: Any, edges: list[Any], place: Any) -> tuple[Any, Any]:
    """Return the weight of the cut after each row but the last in the order of f, and where f says.

    `edges` are rows, columns and weights; `place` is work space (m,).
    """
    order = xp.argsort(f, kind="stable")
    place[rows[order]] = xp.arange(rows.size)
    p, q, weight = place[edges[0]], place[edges[1]], edges[2]
    opened = xp.bincount(xp.minimum(p, q), weight, minlength=rows.size)
    closed = xp.bincount(xp.maximum(p, q), weight, minlength=rows.size)
    f = f[order]
    known = (f[1:] > f[:-1]) & (f[1:] > CERTAIN) & (f[:-1] < 1 - CERTAIN)
    return xp.cumsum(opened - closed)[:-1], known


def _heaviest_cut(bk: ModuleType, A: Any) -> float:
    """Return the heaviest cut of the largest component of A, in the order of its eigenvector."""
    xp = bk.xp
    count, component = bk.connected_components(A)
    if count > 1:
        own = xp.flatnonzero(component == xp.bincount(component).argmax())
        A = A[own][:, own]
    size = A.shape[0]
    if size < 3:
        return 0.0
    lazy = bk.sparse.csr_matrix(0.5 * (A + bk.sparse.identity(size, format="csr")))
    vectors = eigenpairs(lazy, 2, tol=1e-4, random_state=0).vectors
    f = vectors[:, 1] / xp.where(vectors[:, 0] != 0, vectors[:, 0], 1)
    row = rows_of_entries(A, "similarities")
    once = row < A.indices
    edges = [row[once], A.indices[once], A.data[once]]
    cuts, _ = _profile(xp, f, xp.arange(size), edges, xp.empty(size, dtype=np.int64))
    return float(cuts.max())
