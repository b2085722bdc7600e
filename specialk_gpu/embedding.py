"""The embedding D = |V||Λ|^½ of a graph's eigenpairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of, on_its_device

__all__ = ["embed"]


@on_its_device
def embed(values: Any, vectors: Any, *, drop_correlated: float | None = None) -> Any:
    r"""Return :math:`D_{ji} = |V_{ji}|\,|\lambda_i|^{1/2}` [HD19, Algorithm 1, line 2].

    Parameters
    ----------
    values : array of shape (n,)
        Eigenvalues by falling magnitude.
    vectors : array of shape (m, n)
        Their eigenvectors, in columns. Signs do not matter.
    drop_correlated : float, optional
        In (0, 1): of columns of D whose absolute Spearman correlation exceeds it, keep the one
        of larger eigenvalue (the paper takes 0.95 where symmetric clusters bring mirrored
        eigenvectors, [HD19, section 4.1]). Costs a sort of each column.

    Returns
    -------
    array of shape (m, n') with n' <= n, of the dtype of `vectors`

    Raises
    ------
    ValueError
        If `drop_correlated` is out of range.
    """
    xp = backend_of(vectors).xp
    D = xp.abs(vectors)
    D *= xp.sqrt(xp.abs(values)).astype(D.dtype)
    if drop_correlated is None:
        return D
    if not 0 < drop_correlated < 1:
        msg = f"drop_correlated must lie in (0, 1) or be None, got {drop_correlated}."
        raise ValueError(msg)
    above = backend_of(D).to_numpy(xp.abs(_spearman(xp, D)) > drop_correlated)
    kept: list[int] = []
    for column in range(D.shape[1]):
        if not above[column, kept].any():
            kept.append(column)
    return xp.ascontiguousarray(D[:, kept])


def _spearman(xp: Any, D: Any) -> Any:
    """Return the rank correlations of the columns; constant columns correlate with none."""
    ranks = xp.empty(D.shape)
    for column in range(D.shape[1]):  # mean ranks: ties are common where components end
        x = xp.sort(D[:, column])
        low = xp.searchsorted(x, D[:, column], side="left")
        ranks[:, column] = low + xp.searchsorted(x, D[:, column], side="right")
    ranks -= ranks.mean(axis=0)
    norms = xp.sqrt((ranks * ranks).sum(axis=0))
    ranks /= xp.where(norms > 0, norms, np.inf)
    return ranks.T @ ranks
