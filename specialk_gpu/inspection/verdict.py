"""The verdict on a fitted model: how clear its answer is, in words, and reasons for doubt."""

from __future__ import annotations

import math

import numpy as np

from specialk_gpu._affinities import is_graph
from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu._result import NO_POWER, Candidate
from specialk_gpu.inspection.diagnostics import LN10, counted, in_words, settings
from specialk_gpu.inspection.stability import DOUBTFUL, STABLE, Stability
from specialk_gpu.selection.sweep import decide

__all__ = [
    "doubts_about_verdict",
    "near_level",
    "verdict",
    "verdict_in_short",
    "verdict_of_other_fits",
    "watershed",
]

DROP = 0.01  # the smallest drop in certainty that counts as a watershed
ADDED = {  # to the headline
    "clear": ", clearly",
    "no power": "?",
    "no split": ": no split found",
    "close to a split": ": no split found, but p is near alpha",
}
CHANGED = {  # by other fits
    "random_state": "seeds",
    "order": "orders of the rows",
    "n_neighbors": "numbers of neighbours",
    "sample": "samples of the rows",
}
NO_SPLIT = (
    "No split was found. That can mean one cluster, but also too few rows, clusters that overlap, "
    "or columns of different units that were not scaled."
)
SETTLE = {
    "bound": "Raise n_components for finer splits, lower it for coarser ones, and see whether k "
    "changes.",
    "rows": "Try another alpha or n_neighbors, and see whether k changes.",
    "graph": "Try another alpha, or a graph of more neighbours, and see whether k changes.",
}
ISOLATED = {
    "nearest_neighbors": "They are duplicates of each other.",
    "radius_neighbors": 'Raise coverage, or use affinity="nearest_neighbors".',
    "precomputed": "Leave them out, or join them to others in the graph.",
    "precomputed_nearest_neighbors": "Leave them out, or search for more neighbours.",
}
APART = {
    "nearest_neighbors": "Raise n_neighbors to join them.",
    "radius_neighbors": "Raise n_neighbors or coverage to join them.",
    "precomputed": "Join them in the graph, or cluster each part separately.",
    "precomputed_nearest_neighbors": "Use more neighbours, or cluster each part separately.",
}


def watershed(model: Fitted) -> int:
    """Return the k that stopping="watershed" takes on the path, for criterion="zz_top".

    If certainty hardly drops, or the path ends at the decision, return the decision.
    """
    ks, log_p = zip(*((step.k, step.log_p) for step in model.path_), strict=True)
    certainty = -np.expm1(np.array(log_p))
    if ks[-1] <= model.n_clusters_ or (certainty[:-1] - certainty[1:]).max(initial=0) < DROP:
        return model.n_clusters_
    return decide(ks, log_p, alpha=settings(model).alpha, stopping="watershed")


def near_level(model: Fitted) -> list[int]:
    """Return each k whose deciding number (p or bound) is within a factor of 10 of alpha."""
    log_alpha = math.log(settings(model).alpha)
    return [s.k for s in model.path_ if s.pair and abs(s.log_p - log_alpha) < LN10]


def _is_powerless(model: Fitted) -> bool:
    """Return whether no split could have been accepted, as a PowerWarning says."""
    return any(step.reason == NO_POWER for step in model.path_)


def _is_out_of_time(model: Fitted) -> bool:
    """Return whether `time_limit` ended the search before it had come to a decision."""
    path = model.path_
    decided = path.criterion == "zz_top" and settings(model).stopping == "first"
    return path.is_cut_short and not (decided and not path[-1].accepted)


def verdict(model: Fitted) -> tuple[str, str]:
    """Return how clear the answer is, and a summary in words.

    Parameters
    ----------
    model : SpecialK
        A fitted model.

    Returns
    -------
    sureness : {"given", "limit", "no power", "no split", "clear", "close"}
        "no split" means that one cluster was found because no split was accepted. That is no
        evidence for one cluster, so it is never "clear".
    words : str
    """
    given, k = settings(model), model.n_clusters_
    path = {step.k: step for step in model.path_}
    if given.n_clusters is not None:
        was = "was" if k == 1 else "were"
        return "given", f"{counted(k, 'cluster')} {was} asked for; the number was not tested."
    if model.limit_reached_:
        return "limit", f"The search ended at {k} clusters, the most allowed. There may be more."
    if _is_out_of_time(model):
        found = f"{counted(k, 'cluster')} {'was' if k == 1 else 'were'} found"
        return "limit", f"{found} when the time limit ended the search. There may be more."
    if k == 1 and _is_powerless(model):
        return "no power", (
            "No split was accepted, but no split could have been accepted: there are too few rows "
            "or eigenvectors, or too many edges. This is no evidence for one cluster."
        )
    own, beyond = path.get(k), path.get(k + 1)
    clear = "clear" if k > 1 else "no split"  # one cluster is never clear
    if k == given.min_clusters > 1 and (own is None or own.log_p > math.log(given.alpha)):
        return "given", "min_clusters does not allow fewer clusters; this number was not tested."
    if model.path_.criterion == "zz_top" and given.stopping == "watershed":
        words = f"Certainty (1 minus the ZZ Top Bound) drops most after k = {k}."
        sure = own is not None and own.log_p <= math.log(given.alpha)
        sure = sure and beyond is not None and beyond.log_p > -0.1
        words = f"{words} {NO_SPLIT}" if k == 1 else words
        return (clear if sure else "close"), words
    words = NO_SPLIT if k == 1 else _verdict_on_decision(model, own)
    words += f" {_verdict_on_more(model, beyond)}"
    near = [i for i in near_level(model) if i <= k + 1]
    if near:
        limit = f"alpha = {given.alpha:g}, the limit"
        words += f" At k = {_listed(near)} the {_measure(model)} is near {limit}."
    other = watershed(model) if model.path_.criterion == "zz_top" else k
    if other != k:
        words += f" But certainty (1 minus the bound) drops most after k = {other}."
    return ("close" if near or other != k else clear), words


def verdict_in_short(model: Fitted, stability: Stability | None = None) -> str:
    """Return the number of clusters, and how clear it is, in a few words.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    stability : Stability, optional
        Other fits. The answer is not called clear if they contradict it.
    """
    sureness, words = verdict(model)
    if sureness == "close" and NO_SPLIT in words:
        sureness = "close to a split"
    if stability is not None and sureness != "given":
        n, same = len(stability.refits), _same_number(stability)
        if same < STABLE * n:
            agree = f"only {same} of {n} other fits agree" if same else "no other fit agrees"
            return f"{counted(model.n_clusters_, 'cluster')}, but {agree}"
        if sureness == "clear" and (_kind_that_disagrees(stability) or _n_unstable(stability)):
            sureness = "close"
    return counted(model.n_clusters_, "cluster") + ADDED.get(sureness, "")


def verdict_of_other_fits(model: Fitted, stability: Stability) -> str:
    """Return in words how many other fits found as many clusters, and which ones are unstable."""
    told = []
    if verdict(model)[0] != "given":  # of fits that were told k, this says nothing
        kinds = [CHANGED[kind] for kind in dict.fromkeys(fit.kind for fit in stability.refits)]
        listed = " and ".join([*([", ".join(kinds[:-1])] if kinds[1:] else []), kinds[-1]])
        found = f"{_same_number(stability)} of {counted(len(stability.refits), 'fit')} with other "
        told.append(f"{found}{listed} found {counted(stability.k, 'cluster')} too.")
        if kinds[1:] and (kind := _kind_that_disagrees(stability)):
            own, n = _same_number(stability, kind), sum(f.kind == kind for f in stability.refits)
            told.append(f"Of those with other {CHANGED[kind]}, {own} of {n} did.")
    if n_unstable := _n_unstable(stability):
        is_so = "is" if n_unstable == 1 else "are"
        of_all = f"{n_unstable} of {counted(stability.k, 'cluster')} {is_so} unstable"
        told.append(f"{of_all}: other fits put other rows together.")
    return " ".join(told)


def _same_number(stability: Stability, kind: str | None = None) -> int:
    """Return how many fits, of one kind or of all, found as many clusters as the model."""
    return sum(fit.k == stability.k for fit in stability.refits if kind in (None, fit.kind))


def _kind_that_disagrees(stability: Stability) -> str | None:
    """Return the change under which the fewest fits found as many clusters, if these are few."""
    kinds = [fit.kind for fit in stability.refits]
    shares = {kind: _same_number(stability, kind) / kinds.count(kind) for kind in kinds}
    least = min(shares, key=shares.__getitem__)
    return least if shares[least] < STABLE else None


def _n_unstable(stability: Stability) -> int:
    return int((stability.jaccard < DOUBTFUL).sum())


def _verdict_on_decision(model: Fitted, step: Candidate | None) -> str:
    """Return a sentence on how separate the clusters of the decision are."""
    if step is None:
        return "More clusters cannot be distinguished."
    two = "the two" if step.k == 2 else "even the two most similar"
    return f"With {step.k} clusters, {two} are clearly separate ({_value(model, step)})."


def _verdict_on_more(model: Fitted, step: Candidate | None) -> str:
    """Return a sentence on why there are not more clusters."""
    if step is None or step.pair is None:
        k = model.n_clusters_
        if k > 1 and model._tree is not None and settings(model).max_clusters is None:
            return f"The tree of clusters ends there; for {k + 1}, fit with n_clusters={k + 1}."
        return "More clusters could not be tested."
    if step.k == 2:
        return f"With 2 clusters, the two are not clearly separate ({_value(model, step)})."
    value = _value(model, step)
    return f"With {step.k}, two are not ({value}), so the answer is {step.k - 1}."


def _value(model: Fitted, step: Candidate) -> str:
    value = in_words(step.log_p, model.path_.criterion)
    if model.path_.criterion == "zz_top":
        return f"ZZ Top Bound {value}"
    return f"p {value}" if value.startswith("<") else f"p = {value}"


def _measure(model: Fitted) -> str:
    """Return the name of the number that decides."""
    return "p of the cut test" if model.path_.criterion == "cut" else "ZZ Top Bound"


def _listed(ks: list[int]) -> str:
    return ", ".join(map(str, ks))


def doubts_about_verdict(model: Fitted) -> list[tuple[str, str]]:
    """Return the caveats of the answer: reasons for doubt, each with advice.

    Parameters
    ----------
    model : SpecialK
        A fitted model.

    Returns
    -------
    list of (finding, advice)
        The caveats that apply to this model.
    """
    given, k, n = settings(model), model.n_clusters_, model.embedding_.shape[1]
    cut = model.path_.criterion == "cut"
    out = []
    if model.limit_reached_:
        out.append((f"The search ended at max_clusters={k}.", "Allow more clusters."))
    if _is_out_of_time(model):
        found = "The time limit ended the search."
        out.append((found, "Allow more time (time_limit), or cluster a sample of the rows."))
    if given.n_clusters is None and _is_powerless(model):
        if cut:
            rows = model.labels_ if model._distinct is None else on_host(model._distinct)
            found = f"{counted(len(rows), 'row')} are too few for any split to be accepted."
            out.append((found, "Use more rows, or a graph with fewer edges."))
        else:
            found = f"{counted(n, 'eigenvector')} are too few for any split of so many rows."
            out.append((found, "Raise n_components or alpha."))
    if not cut and given.stopping == "first" and (other := watershed(model)) != k:
        out.append(
            (
                f"Certainty drops most after k = {other}; the decision is k = {k}.",
                "Compare both clusterings: labels_at(k) returns their labels. "
                f'stopping="watershed" takes k = {other}.',
            )
        )
    if near := near_level(model):
        found = f"The {_measure(model)} at k = {_listed(near)} is within a "
        found += "factor of 10 of alpha."
        graph = is_graph(given.affinity)
        advice = SETTLE["bound" if not cut else "graph" if graph else "rows"]
        if k + 1 in near:
            advice += f" labels_at({k + 1}) returns the labels of k = {k + 1}."
        out.append((found, advice))
    out += _graph_doubts_about_verdict(model)
    if given.n_clusters is not None:
        found = "The number of clusters was given."
        out.append((found, "Fit without n_clusters to see which k is found."))
    elif cut:
        out.append(
            (
                "The answer is for this graph, and for the fragments that it was cut into.",
                "Fit with another random_state, and with a graph of twice as many neighbours; "
                "trust k if it does not change.",
            )
        )
    else:
        out.append(
            (
                f"k depends on the number of eigenvectors ({n} here) more than on alpha.",
                "Fit with half and with twice as many (n_components); trust k if it does not "
                "change.",
            )
        )
    return out


def _graph_doubts_about_verdict(model: Fitted) -> list[tuple[str, str]]:
    affinity, out = settings(model).affinity, []
    indptr = on_host(model.affinity_matrix_.indptr)
    if n_isolated := int((np.diff(indptr) == 0).sum()):
        found = f"No edge joins {counted(n_isolated, 'row')} to others."
        out.append((found, f"Their labels mean nothing. {ISOLATED[affinity]}"))
    n_parts = model.n_graph_components_ - n_isolated
    if n_parts > 1 and model.path_.criterion == "zz_top":
        found = f"The graph falls into {n_parts} parts that no edge joins."
        out.append((found, f"Several small parts may be found as one. {APART[affinity]}"))
    return out
