"""Independent answers, and ways to hand inputs to a backend."""

from functools import cache
from math import comb

import numpy as np
from scipy import sparse

LANES = 32


def readonly(bk, x, dtype=None):
    """Bring a copy of `x` to the backend; on the host it is read-only, to catch writes."""
    x = np.array(x, dtype=dtype)
    x.setflags(write=False)
    return bk.asarray(x)


def csr(bk, W, dtype=np.float64):
    """Bring a copy of the sparse matrix `W` to the backend; on the host it is read-only."""
    W = sparse.csr_matrix(W, dtype=dtype, copy=True)
    W.sort_indices()
    for part in (W.data, W.indices, W.indptr):
        part.setflags(write=False)
    return bk.sparse.csr_matrix(W)


def to_scipy(bk, W):
    """Copy a CSR matrix of the backend into one of SciPy's."""
    assert isinstance(W, bk.sparse.csr_matrix)
    content = bk.to_numpy(W.data), bk.to_numpy(W.indices), bk.to_numpy(W.indptr)
    return sparse.csr_matrix(content, shape=W.shape)


# Distances and neighbours -------------------------------------------------------------------------


def sq_distance(x, y):
    """Sum (x - y)² as documented: 32 interleaved lanes, then pairwise over the lanes."""
    lanes = [0.0] * LANES
    for i, (a, b) in enumerate(zip(x, y, strict=True)):
        difference = float(a) - float(b)
        lanes[i % LANES] += difference * difference
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [a + b for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


def sq_distances(X):
    """Return all squared distances (m, m), with the bits of `sq_distance`."""
    X = np.asarray(X, dtype=np.float64)
    m, d = X.shape
    out = np.empty((m, m))
    for i, x in enumerate(X):
        square = (X - x) ** 2
        lanes = np.zeros((m, LANES))
        for start in range(0, d, LANES):
            part = square[:, start : start + LANES]
            lanes[:, : part.shape[1]] += part
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        out[i] = lanes[:, 0]
    return out


def nearest(X, k):
    """Return distances and indices (m, k) of the nearest other rows, ties to the smaller index."""
    return _nearest(X.tobytes(), X.dtype, X.shape, k)


@cache
def _nearest(content, dtype, shape, k):
    sq = sq_distances(np.frombuffer(content, dtype).reshape(shape))
    np.fill_diagonal(sq, np.inf)
    order = np.argsort(sq, axis=1, kind="stable")[:, :k]
    return np.sqrt(np.take_along_axis(sq, order, axis=1)), order


# Graphs with known spectra: (W, all eigenvalues) --------------------------------------------------


def path(m):
    W = sparse.diags_array([np.ones(m - 1)] * 2, offsets=[-1, 1])
    return sparse.csr_matrix(W), 2 * np.sin(np.pi / 2 * np.arange(m - 1, -m, -2) / (m + 1))


def cycle(m):
    i = np.arange(m)
    W = sparse.csr_matrix((np.ones(m), (i, (i + 1) % m)), shape=(m, m))
    return sparse.csr_matrix(W + W.T), 2 * np.cos(2 * np.pi * i / m)


def complete(m):
    return sparse.csr_matrix(np.ones((m, m)) - np.eye(m)), np.r_[m - 1.0, -np.ones(m - 1)]


def hypercube(d):
    i = np.arange(2**d)
    column = (i[:, None] ^ (1 << np.arange(d))[None, :]).ravel()
    W = sparse.csr_matrix((np.ones(column.size), (np.repeat(i, d), column)))
    return W, np.repeat(d - 2.0 * np.arange(d + 1), [comb(d, j) for j in range(d + 1)])


def bipartite(a, b):
    W = np.zeros((a + b, a + b))
    W[:a, a:] = W[a:, :a] = 1
    return sparse.csr_matrix(W), np.r_[np.sqrt(a * b) * np.array([1, -1]), np.zeros(a + b - 2)]


def product_graph(first, second):
    """The Cartesian product: a grid of two paths, a torus of two cycles."""
    (A, a), (B, b) = first, second
    W = sparse.kron(A, sparse.eye_array(len(b))) + sparse.kron(sparse.eye_array(len(a)), B)
    return sparse.csr_matrix(W), np.add.outer(a, b).ravel()


def union(*graphs):
    W = sparse.block_diag([W for W, _ in graphs], format="csr")
    return sparse.csr_matrix(W), np.concatenate([spectrum for _, spectrum in graphs])


def affine(graph, factor, shift):
    """Return factor W + shift I."""
    W, spectrum = graph
    W = factor * W + shift * sparse.eye_array(W.shape[0])
    return sparse.csr_matrix(W), factor * spectrum + shift


def gram(a, b, seed=0):
    """GᵀG for a normal matrix G of shape (a, b), a < b: rank a."""
    G = np.random.default_rng(seed).normal(size=(a, b))
    singular = np.linalg.svd(G, compute_uv=False)
    return sparse.csr_matrix(G.T @ G), np.r_[singular**2, np.zeros(b - a)]


def spectrum_of(W):
    """Return W and its eigenvalues by a dense decomposition."""
    return W, np.linalg.eigvalsh(W.toarray())


def largest(spectrum, n):
    """Return the n largest magnitudes, falling."""
    return np.sort(np.abs(spectrum))[::-1][:n]
