"""Tools for single-cell data, called as those in `scanpy.tl`: they write into an AnnData object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from specialk_gpu._estimator import SpecialK
from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Seed
from specialk_gpu.graph.affinity import affinity_matrix

__all__ = ["specialk"]

DEFAULT_KEY = "specialk"


def specialk(
    adata: Any,
    *,
    key_added: str = DEFAULT_KEY,
    neighbors_key: str | None = None,
    obsp: str | None = None,
    use_rep: str | None = None,
    restrict_to: tuple[str, Sequence[str]] | None = None,
    random_state: Seed = 0,
    copy: bool = False,
    **parameters: Any,
) -> Any:
    """Cluster cells and find the number of clusters.

    The arguments are those of `scanpy.tl.leiden` where they mean the same. There is no resolution:
    `n_clusters` is the number of clusters, if you want another than the one that is found. Scanpy
    is not needed.

    Parameters
    ----------
    adata : AnnData
        With a graph of neighbours, as `scanpy.pp.neighbors` writes it, or rapids-singlecell on the
        device; or with the representation `use_rep`.
    key_added : str
        The labels are written to ``adata.obs[key_added]``, as a categorical of "0", "1", ..., of
        which "0" is the largest cluster. ``adata.uns[key_added]`` becomes a dict of "params",
        "n_clusters", "criterion" (the rule that decided) and "path" (a DataFrame with one row for
        each k). With `restrict_to`, "specialk_R" takes the place of "specialk".
    neighbors_key : str, optional
        Name of the neighbours in ``adata.uns``, whose "connectivities_key" names the graph in
        ``adata.obsp``; by default "neighbors".
    obsp : str, optional
        Name of the graph in ``adata.obsp``, in place of `neighbors_key`.
    use_rep : str, optional
        Cluster the rows of this representation in ``adata.obsm``, or "X" for ``adata.X``, in place
        of a graph: their neighbours are then found here, exactly. Prefer this to a graph if you
        can, with 20 or 30 `n_neighbors`: about rows the test knows more. In scanpy's
        ``pbmc68k_reduced``, ``use_rep="X_pca"`` finds 3 clusters with the default of 10
        neighbours, and 4 with 20 or 30, as the graph does; the tutorial on single-cell data takes
        30.
    restrict_to : tuple of str and sequence of str, optional
        A column of ``adata.obs`` and some of its categories: only the cells in these are clustered.
        Their new names begin with the old ones, as "0-1,0"; other cells keep theirs.
    random_state : int, RandomState or None, default=0
        As in `specialk_gpu.SpecialK`.
    copy : bool
        Whether to leave `adata` as it is and return a copy.
    **parameters
        Parameters of `specialk_gpu.SpecialK`. For a graph, `affinity` is "precomputed", and
        `normalize` is True unless given.

    Returns
    -------
    AnnData or None
        The copy, if ``copy=True``.

    Raises
    ------
    ValueError
        If the graph, the representation, the column or a category is missing, or as in
        `specialk_gpu.SpecialK.fit`.
    TypeError
        As in `specialk_gpu.SpecialK.fit`, if `affinity` is given for a graph, or for `resolution`.
    """
    if "resolution" in parameters:
        msg = (
            "there is no resolution: the number of clusters is found. For coarser or finer "
            "clusters, give n_clusters; or fit specialk_gpu.SpecialK, whose labels_at(k) returns "
            "k clusters of one tree. n_neighbors, of sc.pp.neighbors or with use_rep, changes what "
            "is found."
        )
        raise TypeError(msg)
    adata = adata.copy() if copy else adata
    part = None if restrict_to is None else _part_of_cells(adata, restrict_to)
    if part is not None and key_added == DEFAULT_KEY:
        key_added += "_R"
    cells = None if part is None else np.flatnonzero(part.is_in)
    given: dict[str, Any]
    if use_rep is not None:
        if neighbors_key is not None or obsp is not None:
            msg = "use_rep takes the place of a graph: give it, or neighbors_key or obsp."
            raise ValueError(msg)
        given = {"use_rep": use_rep}
        rows = _rows_of_adata(adata, use_rep)
        data = rows if cells is None else rows[cells]
    else:
        if "affinity" in parameters:
            msg = "affinity is 'precomputed' for a graph in adata.obsp; for another, give use_rep."
            raise TypeError(msg)
        obsp = _graph_key_in_adata(adata, neighbors_key, obsp)
        given = {"obsp": obsp}
        data = adata.obsp[obsp] if cells is None else _graph_within_cells(adata.obsp[obsp], cells)
        parameters = {"normalize": True, **parameters, "affinity": "precomputed"}
    model = SpecialK(random_state=random_state, **parameters).fit(data)
    if part is not None:
        given["restrict_to"] = f"{part.key}: {', '.join(part.chosen)}"
    adata.obs[key_added] = _categorical_of_cells(on_host(model.labels_), model.n_clusters_, part)
    adata.uns[key_added] = _record_for_adata(model, {**given, **model.get_params()})
    return adata if copy else None


def _graph_key_in_adata(adata: Any, neighbors_key: str | None, obsp: str | None) -> str:
    """Return the name of the graph in adata.obsp."""
    if obsp is not None and neighbors_key is not None:
        msg = "obsp takes the place of neighbors_key: give one of them."
        raise ValueError(msg)
    found = obsp or "connectivities"
    if obsp is None and (neighbors_key or "neighbors") in adata.uns:
        noted = adata.uns[neighbors_key or "neighbors"]
        if isinstance(noted, Mapping):
            found = str(noted.get("connectivities_key", found))
    elif neighbors_key is not None:
        msg = f"adata.uns has no {neighbors_key!r}: run sc.pp.neighbors(adata, "
        raise ValueError(msg + f"key_added={neighbors_key!r}) first.")
    if found not in adata.obsp:
        msg = f"adata.obsp has no {found!r}, {_known(adata.obsp)}: run sc.pp.neighbors(adata) "
        raise ValueError(msg + "first, or cluster a representation by use_rep.")
    return found


def _known(names: Any) -> str:
    return f"only {', '.join(map(repr, sorted(names)))}" if len(names) else "nor anything else"


def _rows_of_adata(adata: Any, use_rep: str) -> Any:
    """Return the rows to cluster: (cells, columns)."""
    if use_rep == "X":
        if adata.X is None:
            msg = "adata.X is empty: use_rep='X' needs it."
            raise ValueError(msg)
        rows = adata.X
    elif use_rep in adata.obsm:
        rows = adata.obsm[use_rep]
    else:
        known = f'{_known(adata.obsm)}; "X" names adata.X'
        advice = ": run sc.pp.pca(adata) first" if use_rep == "X_pca" else ""
        msg = f"adata.obsm has no use_rep={use_rep!r}, {known}{advice}."
        raise ValueError(msg)
    if hasattr(rows, "toarray"):  # a sparse matrix
        rows = rows.toarray()
    return rows.to_numpy() if hasattr(rows, "to_numpy") else rows


def _graph_within_cells(W: Any, cells: np.ndarray) -> Any:
    """Return the graph of some of the cells."""
    W = affinity_matrix(W)
    bk = backend_of(W)
    with bk.device_of(W):
        rows = bk.asarray(cells)
        return W[rows][:, rows]


class _PartOfCells(NamedTuple):
    """The cells to cluster, and the names of all."""

    key: str
    chosen: list[str]
    is_in: np.ndarray  # of each cell, whether it is to be clustered
    names: np.ndarray  # of each cell, its category today
    categories: list[str]


def _part_of_cells(adata: Any, restrict_to: tuple[str, Sequence[str]]) -> _PartOfCells:
    """Return the cells that `restrict_to` names."""
    try:
        key, chosen = restrict_to
        chosen = [chosen] if isinstance(chosen, str) else list(chosen)
    except (TypeError, ValueError) as error:
        msg = "restrict_to must be a column and some of its categories, such as ('leiden', ['0']), "
        raise ValueError(msg + f"got {restrict_to!r}.") from error
    if key not in adata.obs:
        msg = f"adata.obs has no {key!r}, which restrict_to names, {_known(adata.obs.columns)}."
        raise ValueError(msg)
    column = adata.obs[key].astype("category").cat
    known = column.categories.astype(str).tolist()
    wrong = [name for name in chosen if name not in known]
    if wrong or not chosen:
        msg = (
            f"restrict_to must name categories of {key!r} as text, {', '.join(map(repr, known))}; "
        )
        raise ValueError(msg + f"got {(wrong[0] if wrong else chosen)!r}.")
    names = np.array([*known, "nan"], dtype=object)[column.codes.to_numpy()]
    return _PartOfCells(key, chosen, np.isin(names, chosen), names, known)


def _categorical_of_cells(labels: np.ndarray, k: int, part: _PartOfCells | None) -> Any:
    """Return the names of clusters as a categorical; of parts, between those of other cells."""
    import pandas as pd

    names = [str(c) for c in range(k)]
    if part is None:
        return pd.Categorical.from_codes(labels.tolist(), categories=pd.Index(names))
    names = [f"{'-'.join(part.chosen)},{name}" for name in names]
    values = part.names.copy()
    values[part.is_in] = np.array(names, dtype=object)[labels]
    at = min(part.categories.index(name) for name in part.chosen)
    before = part.categories[:at]
    after = [name for name in part.categories[at:] if name not in part.chosen]
    return pd.Categorical(values, categories=[*before, *names, *after])


def _record_for_adata(model: Fitted, given: dict[str, Any]) -> dict[str, Any]:
    """Return what .uns keeps of a fit; an .h5ad file can hold it."""
    path = model.path_.to_frame()
    first, second = np.array([(-1, -1) if p is None else p for p in path["pair"]]).T
    return {
        "params": {
            name: value if isinstance(value, (str, Real)) else str(value)
            for name, value in given.items()
            if value is not None
        },
        "n_clusters": model.n_clusters_,
        "criterion": model.path_.criterion,
        "path": path.drop(columns="pair").assign(pair_0=first, pair_1=second),
    }
