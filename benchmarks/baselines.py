"""What others say about the number of clusters, from the same graph and eigenpairs.

Self-tuning spectral clustering (STSC; Zelnik-Manor & Perona, Self-tuning spectral clustering,
NIPS 2004) and the eigengap heuristic (von Luxburg, A tutorial on spectral clustering, 2007), the
rivals of [HD19] that no well-kept library has.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.graph.features import features, features_within_range
from specialk_gpu.graph.knn import normalised_graph, symmetric_knn_graph
from specialk_gpu.graph.neighbors import nearest_neighbors
from specialk_gpu.selection.sweep import labels_by_size
from specialk_gpu.spectrum.convergence import ConvergenceError
from specialk_gpu.spectrum.eigenpairs import eigenpairs

__all__ = ["Alignment", "SelfTuning", "eigengap", "local_scaling_graph", "self_tuning", "stsc"]

ANGLE_TOLERANCE = 1e-4  # of the derivative of the cost by an angle, for each row


class Alignment(NamedTuple):
    """How well k eigenvectors can be turned towards the axes.

    Attributes
    ----------
    k : int
    quality : float
        1 - (J/m - 1)/k with the alignment cost J, m <= J <= k m: 1 where every row lies on an axis.
    labels : int32 array of shape (m,)
        The axis nearest to each row: in 0, ..., k - 1, by falling size of the cluster. The last
        are without rows where an axis is nearest to none.
    """

    k: int
    quality: float
    labels: Any


class SelfTuning(NamedTuple):
    """The result of `self_tuning`.

    Attributes
    ----------
    n_clusters : int
        How many clusters there are: the k that was chosen, less axes that are nearest to no row.
        The method knows no k = 1.
    labels : int32 array of shape (m,)
    path : list of Alignment
        For k = 2, 3, ...
    """

    n_clusters: int
    labels: Any
    path: list[Alignment]


@on_its_device
def local_scaling_graph(X: Any, n_neighbors: int = 15, *, scale_neighbor: int = 7) -> Any:
    r"""Build the locally scaled, normalised affinity of STSC, between nearest neighbours.

    :math:`A_{ij} = \exp(-d_{ij}^2 / (\sigma_i \sigma_j))`, where :math:`\sigma_i` is the distance
    of row i to its neighbour number `scale_neighbor`, for j among the neighbours of i or the other
    way round, then :math:`\mathrm{diag}(A1)^{-1/2} A\, \mathrm{diag}(A1)^{-1/2}`.

    Parameters
    ----------
    X : array-like of shape (m, d)
        In NumPy or CuPy, real and finite.
    n_neighbors : int
        [HD19] takes 15 for STSC, whose original has an affinity between all rows.
    scale_neighbor : int
        The original takes 7.

    Returns
    -------
    csr_matrix of shape (m, m), float64
        SciPy's or CuPy's, as `X` is. Zero diagonal, eigenvalues in [-1, 1]. Where `scale_neighbor`
        duplicates make a scale zero, other rows have no affinity.

    Raises
    ------
    ValueError
        If an argument is out of range, or X is not finite.
    """
    X = features(X)
    bk = backend_of(X)
    xp, m = bk.xp, X.shape[0]
    for name, value in (("n_neighbors", n_neighbors), ("scale_neighbor", scale_neighbor)):
        if not 1 <= value < m:
            msg = f"{name} must lie between 1 and the number of rows less 1 ({m - 1}), got {value}."
            raise ValueError(msg)
    X, _ = features_within_range(bk, X)  # a common factor does not matter
    found = nearest_neighbors(X, max(n_neighbors, scale_neighbor))
    scale = found.distances[:, scale_neighbor - 1]
    W = symmetric_knn_graph(bk, found.indices[:, :n_neighbors], None)
    row = xp.searchsorted(W.indptr, xp.arange(W.nnz), side="right") - 1
    sq = bk.pair_sq_distances(X, row, W.indices.astype(np.int64))
    product = xp.maximum(scale[row] * scale[W.indices], np.finfo(np.float64).tiny)
    W.data = xp.exp(-sq / product)
    W.eliminate_zeros()
    return normalised_graph(W)


@on_its_device
def stsc(
    X: Any, max_clusters: int = 10, *, n_neighbors: int = 15, random_state: Any = None
) -> SelfTuning:
    """Cluster by self-tuning spectral clustering: `local_scaling_graph`, then `self_tuning`.

    Parameters
    ----------
    X : array-like of shape (m, d)
        In NumPy or CuPy, real and finite.
    max_clusters : int
        The largest k to try; from 2 to m - 1.
    n_neighbors : int
        See `local_scaling_graph`.
    random_state : int, RandomState or None
        Draws the start vectors of the eigensolver.

    Returns
    -------
    SelfTuning

    Raises
    ------
    ValueError
        If an argument is out of range, or X is not finite.
    ConvergenceError
        If the eigenpairs could not be verified.
    """
    W = local_scaling_graph(X, n_neighbors)
    m = W.shape[0]
    if not 2 <= max_clusters < m:
        msg = f"max_clusters must lie between 2 and the number of rows less 1 ({m - 1}), "
        msg += f"got {max_clusters}."
        raise ValueError(msg)
    shifted = W + backend_of(W.data).sparse.identity(m, format="csr")  # the largest come first
    pairs = eigenpairs(shifted, max_clusters, random_state=random_state)
    if not pairs.converged:
        raise ConvergenceError(pairs.message)
    return self_tuning(pairs.values - 1, pairs.vectors, max_clusters)


@on_its_device
def self_tuning(
    values: Any, vectors: Any, max_clusters: int = 10, *, tolerance: float = 1e-3
) -> SelfTuning:
    r"""Choose k, and clusters, by how well k eigenvectors can be turned towards the axes.

    For each k the eigenvectors of the k largest eigenvalues are rotated by Givens angles so that
    :math:`J = \sum_i \sum_j Z_{ij}^2 / \max_j Z_{ij}^2` is least, starting from the rotation for
    k - 1. The largest k whose quality is within `tolerance` of the best is chosen.

    Parameters
    ----------
    values : array of shape (n,)
        Eigenvalues of a normalised affinity, in any order.
    vectors : array of shape (m, n)
        Their eigenvectors, in columns.
    max_clusters : int
        The largest k to try; from 2 to n.
    tolerance : float
        Difference in quality that counts as none; the authors' code takes 0.001.

    Returns
    -------
    SelfTuning

    Raises
    ------
    ValueError
        If an argument is out of range, or not real and finite.

    Notes
    -----
    Descends by L-BFGS over the k (k - 1)/2 angles, from the gradient by all of them: a step costs
    4 m k² operations and one transfer of a k × k matrix. The cost has a kink where a row changes
    its axis, and may have several minima.
    """
    bk = backend_of(vectors)
    values, vectors = _real(bk, "values", values, 1), _real(bk, "vectors", vectors, 2)
    n = vectors.shape[1]
    if not tolerance >= 0:
        msg = f"tolerance must not be negative, got {tolerance}."
        raise ValueError(msg)
    if not 2 <= max_clusters <= n:
        msg = f"max_clusters must lie between 2 and the number of eigenvectors ({n}), "
        msg += f"got {max_clusters}."
        raise ValueError(msg)
    if tuple(values.shape) != (n,):
        msg = f"values must have shape ({n},), one for each column of vectors, got {values.shape}."
        raise ValueError(msg)
    leading = np.argsort(-bk.to_numpy(values), kind="stable")[:max_clusters]
    V = bk.xp.ascontiguousarray(vectors[:, bk.asarray(leading)])
    V /= float(bk.xp.abs(V).max()) or 1.0  # squares stay within range
    path, Z = [], V[:, :1]
    for k in range(2, max_clusters + 1):
        Z, cost = _aligned(bk, bk.xp.concatenate([Z, V[:, k - 1 : k]], axis=1))
        labels = bk.xp.argmax(bk.xp.abs(Z), axis=1).astype(np.int32)
        quality = 1 - (cost - 1) / k
        path.append(Alignment(k, quality, labels_by_size(bk.xp, labels, k)))
    best = max(one.quality for one in path)
    chosen = [one for one in path if one.quality >= best - tolerance][-1]
    return SelfTuning(int(chosen.labels.max()) + 1, chosen.labels, path)


def _real(bk: ModuleType, name: str, x: Any, n_dimensions: int) -> Any:
    """Return an array of float64, checked."""
    x = bk.asarray(x)
    if x.dtype.kind not in "biuf" or x.ndim != n_dimensions or 0 in x.shape:
        msg = f"{name} must be real numbers in {n_dimensions} dimensions, not empty, got "
        msg += f"{x.dtype} of shape {tuple(x.shape)}."
        raise ValueError(msg)
    if not bk.all_true(bk.xp.isfinite(x)):
        msg = f"{name} must be finite, got NaN or infinity."
        raise ValueError(msg)
    return x.astype(np.float64)


def _aligned(bk: ModuleType, X: Any) -> tuple[Any, float]:
    """Rotate the rows of X (m, k) towards the axes; return them, and the cost for each row."""
    k = X.shape[1]

    def evaluate(angles: np.ndarray) -> tuple[float, np.ndarray]:
        cost, by_rotation = _cost(bk, X, _rotation(k, angles))
        return cost, _by_angles(k, angles, by_rotation)

    start = np.zeros(k * (k - 1) // 2)
    settings = {"gtol": ANGLE_TOLERANCE, "ftol": 1e-9, "maxiter": 500}
    found = minimize(evaluate, start, jac=True, method="L-BFGS-B", options=settings)
    return X @ bk.asarray(_rotation(k, found.x)), float(found.fun)


def _cost(bk: ModuleType, X: Any, rotation: np.ndarray) -> tuple[float, np.ndarray]:
    """Return J/m of X rotated, and its derivative by the rotation (k, k).

    Rows of zeros, which lie on every axis, cost nothing.
    """
    xp, m = bk.xp, X.shape[0]
    Z = X @ bk.asarray(rotation)
    axis = xp.argmax(xp.abs(Z), axis=1)
    largest = Z[xp.arange(m), axis]
    used = largest != 0
    largest = xp.where(used, largest, 1)
    Z /= largest[:, None]
    costs = (Z * Z).sum(axis=1)
    by_Z = Z * (2 / largest)[:, None]
    by_Z[xp.arange(m), axis] -= 2 * costs / largest
    by_rotation = bk.to_numpy(X.T @ by_Z) / m
    return float(costs.sum() + (~used).astype(np.float64).sum()) / m, by_rotation


def _givens(k: int, i: int, j: int, angle: float) -> np.ndarray:
    """Return the rotation by `angle` in the plane of the axes i and j."""
    G = np.eye(k)
    G[i, i] = G[j, j] = np.cos(angle)
    G[i, j], G[j, i] = -np.sin(angle), np.sin(angle)
    return G


def _rotation(k: int, angles: np.ndarray) -> np.ndarray:
    """Return the product of the Givens rotations of all pairs of axes."""
    R = np.eye(k)
    for i, j, angle in zip(*np.triu_indices(k, 1), angles, strict=True):
        R = R @ _givens(k, i, j, angle)
    return R


def _by_angles(k: int, angles: np.ndarray, by_rotation: np.ndarray) -> np.ndarray:
    """Return the derivatives by the angles from that by the rotation (k, k)."""
    planes = list(zip(*np.triu_indices(k, 1), strict=True))
    after, out = np.eye(k), np.empty(len(planes))
    before = _rotation(k, angles)
    for p in range(len(planes) - 1, -1, -1):  # R = before G after
        (i, j), angle = planes[p], angles[p]
        G = _givens(k, i, j, angle)
        before = before @ G.T
        slope = np.zeros((k, k))
        slope[i, i] = slope[j, j] = -np.sin(angle)
        slope[i, j], slope[j, i] = -np.cos(angle), np.cos(angle)
        out[p] = ((before.T @ by_rotation @ after.T) * slope).sum()
        after = G @ after
    return out


def eigengap(values: Any, max_clusters: int | None = None) -> int:
    """Choose the k after which the eigenvalues fall most: the eigengap heuristic.

    Parameters
    ----------
    values : array of shape (n,)
        Eigenvalues of a normalised affinity, in any order.
    max_clusters : int, optional
        The largest k to consider; at most, and by default, n - 1.

    Returns
    -------
    int
        At least 1; of equal gaps the first.

    Raises
    ------
    ValueError
        If there are fewer than two eigenvalues, or they are not real and finite, or
        `max_clusters` is out of range.
    """
    bk = backend_of(values)
    values = -np.sort(-bk.to_numpy(_real(bk, "values", values, 1)))
    if values.size < 2:
        msg = f"values must hold at least two eigenvalues, got shape {values.shape}."
        raise ValueError(msg)
    if max_clusters is None:
        max_clusters = values.size - 1
    if not 1 <= max_clusters < values.size:
        msg = "max_clusters must lie between 1 and the number of eigenvalues less 1 "
        msg += f"({values.size - 1}), got {max_clusters}."
        raise ValueError(msg)
    return int(np.argmax(values[:max_clusters] - values[1 : max_clusters + 1])) + 1
