"""How steady clusters are: fits with other seeds, orders of rows, neighbours, samples of rows."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils import check_random_state

from specialk_gpu._affinities import is_graph
from specialk_gpu._checks import checked_integer
from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu._printable import printable_html_table
from specialk_gpu._progress import show_progress, with_progress, without_progress
from specialk_gpu.backend import backend_of, is_device_array
from specialk_gpu.backend.typing import Seed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KINDS", "Refit", "Stability", "stability"]

KINDS = ("random_state", "order", "n_neighbors", "sample")
FACTORS = (0.7, 1.4, 2.0)  # of n_neighbors
SAMPLED = 0.8  # share of the rows
STABLE, DOUBTFUL = 0.75, 0.6  # least mean Jaccard indices
MOST_CLUSTERS = 10  # in a printed table


@dataclass(frozen=True)
class Refit:
    """Another fit, compared with the model.

    Attributes
    ----------
    kind : str
        What was changed: "random_state", "order" of the rows, "n_neighbors", or "sample" of the
        rows.
    setting : str
        How it was changed, such as "n_neighbors=14".
    k : int
        The number of clusters that was found.
    ari : float
        The adjusted Rand index between its labels and `labels_`, over the rows of both.
    jaccard : float array of shape (k,)
        For each cluster of the model the largest Jaccard index with a cluster of this fit, over the
        rows of both. NaN if the sample has no row of the cluster.
    """

    kind: str
    setting: str
    k: int
    ari: float
    jaccard: np.ndarray


@dataclass(frozen=True, eq=False)
class Stability:
    """How steady the clusters of a model are. Printed, it is a table; in a notebook, too.

    Attributes
    ----------
    k : int
        The number of clusters of the model.
    sizes : int array of shape (k,)
        The rows of each cluster.
    refits : tuple of Refit
        The other fits.
    """

    k: int
    sizes: np.ndarray
    refits: tuple[Refit, ...]

    @property
    def jaccard_by_kind(self) -> dict[str, np.ndarray]:
        """For each kind of change the mean Jaccard index of each cluster: arrays of shape (k,).

        A cluster of which no sample has a row has NaN.
        """
        means = {}
        for kind in dict.fromkeys(refit.kind for refit in self.refits):
            found = np.stack([refit.jaccard for refit in self.refits if refit.kind == kind])
            known = ~np.isnan(found)
            with np.errstate(invalid="ignore"):
                means[kind] = np.where(known, found, 0).sum(axis=0) / known.sum(axis=0)
        return means

    @property
    def jaccard(self) -> np.ndarray:
        """For each cluster the mean Jaccard index under the change that it bears least: (k,).

        By [Hen07], a cluster with 0.75 or more is stable. With less than 0.6 it should not be
        trusted; in between there is a pattern, but which rows belong to it is doubtful.
        """
        return np.fmin.reduce(list(self.jaccard_by_kind.values()))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row for each refit; this needs pandas.

        Returns
        -------
        DataFrame
            Columns ``kind, setting, k, ari``, and ``jaccard``, the mean over the clusters.
        """
        import pandas as pd

        names = ["kind", "setting", "k", "ari", "jaccard"]
        rows = [(r.kind, r.setting, r.k, r.ari, np.nanmean(r.jaccard)) for r in self.refits]
        return pd.DataFrame(rows, columns=names)

    def clusters_to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row for each cluster; this needs pandas.

        Returns
        -------
        DataFrame
            Columns ``cluster, rows``, the mean Jaccard index for each kind of change, and
            ``jaccard``, the least of these.
        """
        import pandas as pd

        table = {"cluster": range(self.k), "rows": self.sizes, **self.jaccard_by_kind}
        return pd.DataFrame(table | {"jaccard": self.jaccard})

    def __str__(self) -> str:
        """Return two tables, of at most 20 lines together."""
        lines = [self._title()]
        for head, rows in (self._by_kind(), self._by_cluster(MOST_CLUSTERS)):
            widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
            for cells in (head, *rows):
                padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
                padded[0] = cells[0].ljust(widths[0])
                lines.append("  ".join(padded).rstrip())
        return "\n".join([*lines, *self._left_out(MOST_CLUSTERS)])

    def _repr_html_(self) -> str:
        """Return two tables of HTML, for notebooks."""
        tables = [
            printable_html_table(*self._by_kind()),
            printable_html_table(*self._by_cluster(self.k)),
        ]
        return "\n".join([f"<p>{self._title()}</p>", *tables])

    def _title(self) -> str:
        n, same = len(self.refits), sum(refit.k == self.k for refit in self.refits)
        noun = "cluster" if self.k == 1 else "clusters"
        return f"{self.k} {noun}; the same number in {same} of {n} other fits"

    def _by_kind(self) -> tuple[list[str], list[list[str]]]:
        """Return a head and a row for each kind of change."""
        rows = []
        for kind in dict.fromkeys(refit.kind for refit in self.refits):
            own = [refit for refit in self.refits if refit.kind == kind]
            aris = [refit.ari for refit in own]
            found = Counter(refit.k for refit in own)
            ks = ", ".join(f"{k} ({n})" for k, n in found.most_common(5))
            more = ", ..." if len(found) > 5 else ""
            means = [f"{np.mean(aris):.3f}", f"{min(aris):.3f}"]
            rows.append([_stability_in_words(kind), str(len(own)), f"{ks}{more}", *means])
        return ["changed", "fits", "k (fits)", "mean ARI", "least ARI"], rows

    def _by_cluster(self, most: int) -> tuple[list[str], list[list[str]]]:
        """Return a head and a row for each cluster; of more than `most`, for the least stable."""
        means, least = self.jaccard_by_kind, self.jaccard
        rows = []
        for c in sorted(np.argsort(least, kind="stable")[:most].tolist()):
            cells = ["" if math.isnan(own[c]) else f"{own[c]:.3f}" for own in means.values()]
            rows.append([str(c), f"{self.sizes[c]}", *cells, _verdict_on_stability(least[c])])
        return ["Jaccard of cluster", "rows", *map(_stability_in_words, means), ""], rows

    def _left_out(self, most: int) -> list[str]:
        return [f"and {self.k - most} clusters that are more stable"] if self.k > most else []


def _stability_in_words(kind: str) -> str:
    return {"order": "order of rows", "sample": f"{100 * SAMPLED:g} % of the rows"}.get(kind, kind)


def _verdict_on_stability(jaccard: float) -> str:
    if math.isnan(jaccard):
        return "in no sample"
    return "stable" if jaccard >= STABLE else "doubtful" if jaccard >= DOUBTFUL else "unstable"


def stability(
    model: Fitted,
    X: Any,
    *,
    kinds: Sequence[str] | None = None,
    n_refits: int = 5,
    random_state: Seed = None,
    n_jobs: int | None = None,
) -> Stability:
    """Fit again with small changes, and compare; described as ``SpecialK.stability``.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    X : array of shape (m, d), or (m, m), dense or CSR
        The fitted rows, or the fitted graph, validated.
    kinds, n_refits, random_state, n_jobs
        See ``SpecialK.stability``.
    """
    labels = on_host(model.labels_)
    if X.shape[0] != len(labels):
        msg = f"X must be the {len(labels)} rows of the fit, got {X.shape[0]}."
        raise ValueError(msg)
    graph = is_graph(str(model._settings["affinity"]))
    listed = isinstance(model.get_params(deep=False)["neighbors"], tuple)
    chosen = _checked_kinds_of_stability(kinds, graph=graph, listed=listed)
    n_refits = checked_integer("n_refits", n_refits, 1)
    plans = list(_stability_plans(model, chosen, n_refits, check_random_state(random_state)))
    if not plans:
        msg = "kinds leaves nothing to change: with so few rows, there are no other n_neighbors."
        raise ValueError(msg)
    on_device = model.backend_ == "cuda"  # one device, one fit at a time
    found = Parallel(None if on_device else n_jobs, return_as="generator")(
        delayed(_labels)(type(model), X, plan, graph=graph) for plan in plans
    )
    with show_progress() if model.get_params()["verbose"] else nullcontext():
        refits = tuple(
            _compared_for_stability(plan, labels, own, model.n_clusters_)
            for plan, own in zip(plans, with_progress(found, len(plans), "other fits"), strict=True)
        )
    sizes = np.bincount(labels[labels >= 0], minlength=model.n_clusters_)
    return Stability(model.n_clusters_, sizes, refits)


def _checked_kinds_of_stability(
    kinds: Sequence[str] | None, *, graph: bool, listed: bool
) -> list[str]:
    """Return which kinds of changes to make; lists of neighbours allow no other order of rows."""
    possible = [kind for kind in KINDS if not (graph and kind == "n_neighbors")]
    if listed:
        possible = [kind for kind in possible if kind not in ("order", "sample")]
    if kinds is None:
        return possible
    if isinstance(kinds, str) or not kinds or not set(kinds) <= set(possible):
        of_what = " for a given graph" if graph else " for given neighbours" if listed else ""
        msg = f"kinds must be a list of {', '.join(possible)}{of_what}, got {kinds!r}."
        raise ValueError(msg)
    return [kind for kind in possible if kind in kinds]


@dataclass(frozen=True)
class _StabilityPlan:
    """What is changed: parameters of the fit, and which rows it gets (None: all, as they are)."""

    kind: str
    setting: str
    parameters: dict[str, Any]
    rows: np.ndarray | None = None


def _stability_plans(
    model: Fitted, kinds: Iterable[str], n_refits: int, rng: np.random.RandomState
) -> Iterable[_StabilityPlan]:
    """Say what to change for each refit; whatever is drawn is drawn here."""
    m, parameters = len(model.labels_), model.get_params(deep=False)
    given = model._settings | {"backend": model.backend_}
    if given["neighbors"] == "given":  # the settings say no more than that
        given |= {"neighbors": parameters["neighbors"]}
    seed = parameters["random_state"]
    if not isinstance(seed, Integral):
        seed = int(rng.randint(2**31 - 1))
    given |= {"random_state": int(seed), "verbose": False}
    for kind in kinds:
        if kind == "n_neighbors":
            was = given["n_neighbors"]
            others = {max(1, min(round(factor * was), m - 1)) for factor in FACTORS} - {was}
            for n in sorted(others):
                yield _StabilityPlan(kind, f"n_neighbors={n}", given | {"n_neighbors": n})
            continue
        for i in range(1, n_refits + 1):
            if kind == "random_state":
                seed = int(rng.randint(2**31 - 1))
                yield _StabilityPlan(kind, f"random_state={seed}", given | {"random_state": seed})
            else:
                order = rng.permutation(m)
                rows = order if kind == "order" else np.sort(order[: max(2, round(SAMPLED * m))])
                yield _StabilityPlan(kind, f"{kind} {i}", given, rows)


def _labels(kind: type, X: Any, plan: _StabilityPlan, *, graph: bool) -> np.ndarray:
    """Fit by a plan; return the labels on the host. Warnings were those of the first fit."""
    if plan.rows is not None:
        rows = plan.rows if not is_device_array(X) else backend_of(X).asarray(plan.rows)
        X = X[rows][:, rows] if graph else X[rows]
    with warnings.catch_warnings(), without_progress():
        warnings.simplefilter("ignore")
        return on_host(kind(**plan.parameters).fit(X).labels_)


def _compared_for_stability(
    plan: _StabilityPlan, labels: np.ndarray, found: np.ndarray, k: int
) -> Refit:
    """Compare the labels of a refit with those of the model."""
    common = labels if plan.rows is None else labels[plan.rows]
    ari = float(adjusted_rand_score(common, found))
    n_found = np.unique(found[found >= 0]).size
    return Refit(plan.kind, plan.setting, n_found, ari, best_jaccard(common, found, k))


def best_jaccard(labels: np.ndarray, found: np.ndarray, k: int) -> np.ndarray:
    """Return for each of k clusters the largest Jaccard index with a found one; -1 is no cluster.

    Parameters
    ----------
    labels, found : int arrays of shape (m,)
        Two clusterings of the same rows.
    k : int
        The number of clusters in the first.

    Returns
    -------
    float array of shape (k,)
        NaN for a cluster without rows.
    """
    names, names_found = np.unique(labels), np.unique(found)
    both = contingency_matrix(labels, found).astype(np.float64)
    either = both.sum(axis=1)[:, None] + both.sum(axis=0) - both
    index = np.where(names_found >= 0, both / either, 0).max(axis=1)
    best = np.full(k, np.nan)
    best[names[names >= 0]] = index[names >= 0]
    return best
