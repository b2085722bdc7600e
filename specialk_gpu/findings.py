"""What a fitted model says: in words, by pairs of clusters, and in the plane."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from specialk_gpu.backend import backend_of
from specialk_gpu.bounds import zz_top
from specialk_gpu.storage import on_host
from specialk_gpu.sweep import NO_POWER, decide

__all__ = [
    "counted",
    "doubts",
    "images",
    "in_the_plane",
    "near_level",
    "pair_matrix",
    "settings",
    "typical",
    "verdict",
    "watershed",
]

LN10 = math.log(10)
DROP = 0.01  # of certainty, from which the watershed is one
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def settings(model: Any) -> SimpleNamespace:
    """Return the parameters that a model was fitted with, whatever was set since."""
    return SimpleNamespace(**model._settings)


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, such as "1 row" and "2 rows"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def pair_matrix(model: Any, k: int | None = None) -> np.ndarray:
    """Return log10 of the bound of every pair of clusters.

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
    bk = backend_of(model.embedding_)
    D, labels = bk.asarray(model.embedding_), bk.asarray(step.labels)
    if model._distinct is not None:  # the bound was of distinct rows
        distinct = bk.asarray(model._distinct)
        D, labels = D[distinct], labels[distinct]
    return on_host(zz_top(D, labels)) / LN10


def watershed(model: Any) -> int:
    """Return the k that the watershed rule takes on the path of a fitted model.

    That is the decision, where certainty hardly drops, or the path does not go beyond it.
    """
    ks, log_p = zip(*((step.k, step.log_p) for step in model.path_), strict=True)
    certainty = -np.expm1(np.array(log_p))
    if ks[-1] <= model.n_clusters_ or (certainty[:-1] - certainty[1:]).max(initial=0) < DROP:
        return model.n_clusters_
    return decide(ks, log_p, alpha=settings(model).alpha, selection="watershed")


def near_level(model: Any) -> list[int]:
    """Return the k where what decides, bound or calibrated p, is within a factor 10 of alpha."""
    log_alpha = math.log(settings(model).alpha)
    return [s.k for s in model.path_ if s.pair and abs(s.decisive_log_p - log_alpha) < LN10]


def _powerless(model: Any) -> bool:
    """Say whether no split could have been accepted, as a PowerWarning does."""
    return any(step.reason == NO_POWER for step in model.path_)


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
    given, k = settings(model), model.n_clusters_
    path = {step.k: step for step in model.path_}
    if given.n_clusters is not None:
        was = "was" if k == 1 else "were"
        return "given", f"{counted(k, 'cluster')} {was} asked for; the number was not tested."
    if model.limit_reached_:
        return "limit", f"The search ended at {k} clusters, the most allowed. There may be more."
    if k == 1 and _powerless(model):
        return "no power", (
            "No split was accepted, but none could have been with so few rows or eigenvectors, or "
            "a graph that joins so many. This is no evidence for one cluster."
        )
    log_alpha, own, beyond = math.log(given.alpha), path.get(k), path.get(k + 1)
    measure, parts = _measure(given), []
    if own is not None and own.pair is not None:
        parts.append(
            f"Of {k} clusters, the two that are most alike have a {measure} of "
            f"{_power(own.decisive_log_p)}; alpha is {given.alpha:g}."
        )
    if k == given.min_clusters > 1 and (own is None or own.decisive_log_p > log_alpha):
        parts.append("Fewer were not allowed (min_clusters), and this number was not tested.")
        return "given", " ".join(parts)
    if beyond is not None and beyond.pair is not None:
        split = f"Of {k + 1} clusters, two have" if k > 1 else "Split in two, the parts have"
        parts.append(f"{split} a {measure} of {_power(beyond.decisive_log_p)}: they may be one.")
    if given.selection == "watershed":
        parts.append("The answer is where certainty drops most, whatever alpha.")
        sure = own is not None and own.accepted and beyond is not None and beyond.log_p > -0.1
        return ("clear" if sure else "close"), " ".join(parts)
    near = [i for i in near_level(model) if i <= k + 1]
    other = k if given.selection == "calibrated" else watershed(model)
    if not near:
        parts.append(f"No {measure} up to there is near alpha.")
    elif near[-1] >= k:
        parts.append(
            f"The {measure} at k = {_listed(near[-1:])} is near alpha: the answer could as well be "
            "another."
        )
    else:
        parts.append(f"But the {measure} at k = {_listed(near)} is near alpha.")
    if other != k:
        parts.append(f"But certainty drops most after k = {other}.")
    return ("close" if near or other != k else "clear"), " ".join(parts)


def _measure(given: Any) -> str:
    """Name what the decision was made by."""
    return "calibrated p" if given.selection == "calibrated" else "bound"


def _listed(ks: list[int]) -> str:
    return ", ".join(map(str, ks))


def _power(log_p: float) -> str:
    """Return a probability in words."""
    if log_p > -3 * LN10:
        return f"{math.exp(log_p):.2g}"
    exponent = math.floor(log_p / LN10)
    mantissa = 10 ** (log_p / LN10 - exponent)
    return f"{mantissa:.1f} · 10{str(exponent).translate(SUPERSCRIPTS)}"


def doubts(model: Any) -> list[tuple[str, str]]:
    """Say what speaks against the answer, and what to try.

    Parameters
    ----------
    model : SpecialK
        Fitted.

    Returns
    -------
    list of (finding, advice)
        Those that apply.
    """
    given, k, n = settings(model), model.n_clusters_, model.embedding_.shape[1]
    out = []
    if model.limit_reached_:
        most = given.max_clusters
        out.append((f"The search ended at max_clusters={most}.", "Allow more clusters."))
    if given.n_clusters is None and _powerless(model):
        if given.selection == "calibrated":
            rows = model.labels_ if model._distinct is None else model._distinct
            found = f"{counted(len(rows), 'row')} are too few for any split."
            out.append((found, "Take more rows, or a graph of fewer edges."))
        else:
            found = f"{counted(n, 'eigenvector')} of so many rows are too few for any split."
            out.append((found, "Raise n_components or alpha."))
    if given.selection == "first" and (other := watershed(model)) != k:
        out.append(
            (
                f"Certainty drops most after k = {other}; the decision is k = {k}.",
                "Look at both clusterings: the labels of each k are in path_. "
                'selection="watershed" takes the other.',
            )
        )
    if near := near_level(model):
        out.append(
            (
                f"The {_measure(given)} at k = {_listed(near)} is within a factor of 10 of alpha.",
                SETTLE["graph" if given.affinity == "precomputed" else _measure(given)],
            )
        )
    out += _doubts_of_the_graph(model)
    if given.n_clusters is None and given.selection == "calibrated":
        out.append(
            (
                "The answer is one for this graph, and for the clusters that k-means found.",
                "Fit with another random_state, and with a graph of twice as many neighbours; a k "
                "that stays can be trusted.",
            )
        )
    elif given.n_clusters is None:
        out.append(
            (
                f"k depends on the number of eigenvectors, {n} here, more than on alpha.",
                "Fit with half and with twice as many (n_components); a k that stays can be "
                "trusted.",
            )
        )
    else:
        out.append(
            ("The number of clusters was given.", "Fit without n_clusters to see what is found.")
        )
    return out


SETTLE = {
    "bound": "Raise n_components for finer splits, lower it for coarser ones, and see whether k "
    "stays.",
    "calibrated p": "Take another alpha or n_neighbors, and see whether k stays.",
    "graph": "Take another alpha, or a graph of more neighbours, and see whether k stays.",
}
ISOLATED = {
    "nearest_neighbors": "They are copies of each other.",
    "radius_neighbors": 'Raise coverage, or take affinity="nearest_neighbors".',
    "precomputed": "Leave them out, or join them to others in the graph.",
}
APART = {
    "nearest_neighbors": "Raise n_neighbors to join them.",
    "radius_neighbors": "Raise n_neighbors or coverage to join them.",
    "precomputed": "Join them in the graph, or cluster each by itself.",
}


def _doubts_of_the_graph(model: Any) -> list[tuple[str, str]]:
    affinity, out = settings(model).affinity, []
    indptr = on_host(model.affinity_matrix_.indptr)
    if n_isolated := int((np.diff(indptr) == 0).sum()):
        found = f"No edge joins {counted(n_isolated, 'row')} to others."
        out.append((found, f"Their labels mean nothing. {ISOLATED[affinity]}"))
    if (n_parts := model.n_graph_components_ - n_isolated) > 1:
        advice = "Parts smaller than 1/n of the rows may not be told apart. "
        found = f"The graph falls into {n_parts} parts that no edge joins."
        out.append((found, advice + APART[affinity]))
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


def images(model: Any, X: Any, shape: Any, name: str) -> np.ndarray:
    """Return the rows of X as images: (m, height, width).

    Raises
    ------
    ValueError
        If the shape, a parameter of that name, is none, or X has not that many columns and the rows
        of the fit.
    """
    sizes = np.asarray(shape)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or sizes.min() < 1:
        msg = f"{name} must be a height and a width, such as (28, 28), got {shape!r}."
        raise ValueError(msg)
    X = np.asarray(on_host(X))
    expected = len(model.labels_), int(sizes.prod())
    if X.shape != expected:
        msg = f"X must hold images of {name}={shape}, of shape {expected}, got {X.shape}."
        raise ValueError(msg)
    return X.reshape(-1, *sizes.tolist())


def in_the_plane(model: Any) -> np.ndarray:
    """Return the two leading principal components of D, on the host: (m, 2)."""
    from sklearn.decomposition import PCA

    D = on_host(model.embedding_)
    if D.shape[1] == 1:
        return np.column_stack([D[:, 0], np.zeros(len(D))])
    return PCA(2, svd_solver="covariance_eigh").fit_transform(D)
