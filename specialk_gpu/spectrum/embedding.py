"""The embedding D = |V||Λ|^½, computed from the eigenpairs of a graph."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from specialk_gpu.backend import backend_of, on_its_device
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.typing import Array

__all__ = ["embed"]

CHUNK = 2**20  # entries ranked at once


@on_its_device
def embed(values: Array, vectors: Array, *, drop_correlated: float | None = None) -> Array:
    r"""Return :math:`D_{ji} = |V_{ji}|\,|\lambda_i|^{1/2}` [HD19, Algorithm 1, line 2].

    Parameters
    ----------
    values : array of shape (n,)
        Eigenvalues by decreasing magnitude.
    vectors : array of shape (m, n)
        Their eigenvectors, in columns. Signs do not matter.
    drop_correlated : float, optional
        A threshold in (0, 1). If the absolute Spearman correlation of two columns of D exceeds
        it, only the one with the larger eigenvalue is kept. The paper takes 0.95 for symmetric
        clusters, which bring mirrored eigenvectors [HD19, section 4.1]. Costs a sort of each
        column.

    Returns
    -------
    array of shape (m, n') with n' <= n, of the dtype of `vectors`
        The embedding D.

    Raises
    ------
    ValueError
        If `drop_correlated` is out of range.
    """
    bk = backend_of(vectors)
    xp, (m, n) = bk.xp, vectors.shape
    D, scale = large_array(bk, (m, n), vectors.dtype), xp.sqrt(xp.abs(values)).astype(vectors.dtype)

    def run(rows: slice) -> None:
        part = D[rows]
        xp.abs(vectors[rows], out=part)
        part *= scale

    step = max(1, bk.tile_bytes // max(1, n * D.itemsize))
    bk.map_chunks(run, (slice(i, i + step) for i in range(0, m, step)))
    if drop_correlated is None:
        return D
    if not 0 < drop_correlated < 1:
        msg = f"drop_correlated must lie in (0, 1) or be None, got {drop_correlated}."
        raise ValueError(msg)
    above = backend_of(D).to_numpy(xp.abs(_spearman_of_embedding(xp, D)) > drop_correlated)
    kept: list[int] = []
    for column in range(D.shape[1]):
        if not above[column, kept].any():
            kept.append(column)
    return xp.ascontiguousarray(D[:, kept])


def _spearman_of_embedding(xp: ModuleType, D: Array) -> Array:
    """Return the Spearman correlations of the columns; a constant column correlates with none."""
    (m, n), ranks = D.shape, xp.empty(D.shape)
    step = max(1, CHUNK // m)
    for start in range(0, n, step):  # mean ranks, as ties are common where components end
        x = xp.ascontiguousarray(D[:, start : start + step].T)
        order = xp.argsort(x, axis=1, kind="stable")
        x = xp.take_along_axis(x, order, axis=1)
        begins = xp.ones(x.shape, dtype=np.int64)  # starts of runs of equal entries
        begins[:, 1:] = x[:, 1:] != x[:, :-1]
        group = xp.cumsum(begins.ravel())
        place = xp.arange(0, x.size, m)[:, None]  # of each column in the flat arrays
        twice = xp.searchsorted(group, group, side="left")
        twice += xp.searchsorted(group, group, side="right")
        own = xp.empty(x.size)
        own[(order + place).ravel()] = (twice.reshape(x.shape) - 2 * place).ravel()
        ranks[:, start : start + step] = own.reshape(x.shape).T
    ranks -= ranks.mean(axis=0)
    norms = xp.sqrt((ranks * ranks).sum(axis=0))
    ranks /= xp.where(norms > 0, norms, np.inf)
    return ranks.T @ ranks
