"""What a fitted model says: in words, by pairs of clusters, and in the plane."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specialk_gpu.bounds import attainable_log_p, zz_top
from specialk_gpu.storage import on_host
from specialk_gpu.sweep import decide

__all__ = ["doubts", "in_the_plane", "near_level", "pair_matrix", "typical", "verdict", "watershed"]

LN10 = math.log(10)


def pair_matrix(model: Any, k: int | None = None) -> np.ndarray:
    """Return log10 p of every pair of clusters.

    Parameters
    ----------
    model : SpecialK
        Fitted.
    k : int, optional
        Which k of the path; the decision by default.

    Returns
    -------
    float64 array of shape (k, k), on the host
        Symmetric, 0 on the diagonal.

    Raises
    ------
    ValueError
        If k is not on the path.
    """
    wanted = model.n_clusters_ if k is None else k
    step = next((step for step in model.path_ if step.k == wanted), None)
    if step is None:
        known = [step.k for step in model.path_]
        msg = f"k must be a number of clusters on the path, {known}, got {wanted}."
        raise ValueError(msg)
    D, labels = model.embedding_, step.labels
    if model._distinct is not None:  # the bound was of distinct rows
        D, labels = D[model._distinct], labels[model._distinct]
    return on_host(zz_top(D, labels)) / LN10


def watershed(model: Any) -> int:
    """Return the k that the watershed rule takes on the path of a fitted model."""
    ks, log_p = zip(*((step.k, step.log_p) for step in model.path_), strict=True)
    return decide(ks, log_p, alpha=model.alpha, selection="watershed")


def verdict(model: Any) -> tuple[str, str]:
    """Say how many clusters there are, and how sure that is.

    Parameters
    ----------
    model : SpecialK
        Fitted.

    Returns
    -------
    sureness : {"given", "limit", "no power", "clear", "close"}
    words : str
    """
    k, path = model.n_clusters_, {step.k: step for step in model.path_}
    m, n = model.embedding_.shape
    if model.n_clusters is not None:
        return "given", f"{k} clusters were asked for; their number was not tested."
    if model.limit_reached_:
        return "limit", f"The search ended at {k} clusters, the most allowed. There may be more."
    log_alpha = math.log(model.alpha)
    if k == 1 and attainable_log_p(m, n) > log_alpha:
        return "no power", (
            "No split was accepted, but none could have been: there are too few rows or "
            "eigenvectors for this alpha. This is no evidence for one cluster."
        )
    worst, rejected = path[k], path.get(k + 1)
    near = [i for i in near_level(model) if i <= k + 1]
    other = watershed(model) if len(path) > 1 else k
    parts = []
    if worst.pair is not None:
        parts.append(
            f"Of {k} clusters, the two that are most alike have a bound of {_power(worst.log_p)}, "
            f"where {model.alpha:g} is allowed."
        )
    if rejected is not None and rejected.pair is not None:
        split = f"Of {k + 1} clusters, two have" if k > 1 else "Split in two, the parts have"
        parts.append(f"{split} a bound of {_power(rejected.log_p)}: they may be one.")
    if not near:
        parts.append("That is far from the level.")
    elif near[-1] >= k:
        parts.append("The answer hangs on the level.")
    else:
        parts.append(f"But the bound at k = {_listed(near)} is near the level.")
    if other != k:
        parts.append(f"But the largest drop in certainty is after k = {other}.")
    return ("close" if near or other != k else "clear"), " ".join(parts)


def near_level(model: Any) -> list[int]:
    """Return the k whose bound is within a factor of 10 of alpha."""
    log_alpha = math.log(model.alpha)
    return [s.k for s in model.path_ if s.pair and abs(s.log_p - log_alpha) < LN10]


def _listed(ks: list[int]) -> str:
    return ", ".join(map(str, ks))


def _power(log_p: float) -> str:
    """Return a probability in words."""
    return f"{math.exp(log_p):.2g}" if log_p > -3 * LN10 else f"10^{log_p / LN10:.1f}"


def doubts(model: Any) -> list[tuple[str, str]]:
    """Say what speaks against the answer, and what to try.

    Parameters
    ----------
    model : SpecialK
        Fitted.

    Returns
    -------
    list of (finding, advice)
        Those that apply, and at last what always does.
    """
    out = []
    m, n = model.embedding_.shape
    k = model.n_clusters_
    if model.limit_reached_:
        most = model.max_clusters
        out.append((f"The search ended at max_clusters={most}.", "Allow more clusters."))
    if model.n_clusters is None and attainable_log_p(m, n) > math.log(model.alpha):
        advice = "Raise n_components or alpha, or use more rows."
        out.append((f"{m} rows and {n} eigenvectors are too few for any split.", advice))
    if len(model.path_) > 1 and (other := watershed(model)) != k:
        out.append(
            (
                f"The watershed rule takes k = {other} on this path, the decision is k = {k}.",
                "Look at both clusterings: the labels of each k are in path_. "
                'selection="watershed" takes the other.',
            )
        )
    if near := near_level(model):
        out.append(
            (
                f"The bound at k = {_listed(near)} is within a factor of 10 of alpha.",
                "Raise n_components for finer splits, lower it for coarser ones, and see "
                "whether k stays.",
            )
        )
    indptr = on_host(model.affinity_matrix_).indptr
    if n_isolated := int((np.diff(indptr) == 0).sum()):
        out.append(
            (
                f"{n_isolated} rows are isolated: no edge joins them to others.",
                'Their labels mean nothing. Raise coverage, or take affinity="nearest_neighbors".',
            )
        )
    if model.n_graph_components_ - n_isolated > 1:
        out.append(
            (
                f"The graph falls into {model.n_graph_components_ - n_isolated} parts that no "
                "edge joins.",
                "Parts smaller than 1/n of the rows may not be told apart. Raise n_neighbors to "
                "join them.",
            )
        )
    out.append(
        (
            f"k depends on the number of eigenvectors, {n} here, more than on alpha.",
            "Fit with a half and with twice as many (n_components); a k that stays can be trusted.",
        )
    )
    return out


def typical(model: Any, n_members: int) -> list[np.ndarray]:
    """Return for each cluster the rows nearest to its mean in D, nearest first."""
    D, labels = on_host(model.embedding_), on_host(model.labels_)
    out = []
    for c in range(model.n_clusters_):
        rows = np.flatnonzero(labels == c)
        sq = ((D[rows] - D[rows].mean(axis=0)) ** 2).sum(axis=1)
        out.append(rows[np.argsort(sq, kind="stable")[:n_members]])
    return out


def in_the_plane(model: Any) -> np.ndarray:
    """Return the two leading principal components of D, on the host: (m, 2)."""
    from sklearn.decomposition import PCA

    D = on_host(model.embedding_)
    if D.shape[1] == 1:
        return np.column_stack([D[:, 0], np.zeros(len(D))])
    return PCA(2, svd_solver="covariance_eigh").fit_transform(D)
