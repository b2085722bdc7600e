"""Single-cell data: cluster the neighbour graph of an AnnData object."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from specialk_gpu._estimator import SpecialK
from specialk_gpu._storage import on_host
from specialk_gpu.backend import backend_of
from specialk_gpu.graph.knn import normalised_graph
from specialk_gpu.graph.precomputed import affinity_matrix

__all__ = ["cluster"]


def cluster(
    adata: Any,
    obsp: str = "connectivities",
    key_added: str = "specialk",
    *,
    normalize: bool = True,
    **parameters: Any,
) -> SpecialK:
    """Cluster the cells by their neighbour graph, and find the number of clusters.

    Parameters
    ----------
    adata : AnnData
        Must hold a graph in ``.obsp``, as `scanpy.pp.neighbors` writes it, or rapids-singlecell
        on the device. Scanpy is not needed.
    obsp : str
        Name of the graph in ``.obsp``: a matrix of similarities of shape (m, m).
    key_added : str
        The labels are written to ``.obs[key_added]``, as a categorical of "0", "1", ..., of which
        "0" is the largest cluster. ``.uns[key_added]`` becomes a dict of "params", "n_clusters",
        "criterion" (the rule that decided) and "path" (a DataFrame with one row for each k).
    normalize : bool
        Whether to divide each entry by the square roots of the degrees of its two cells, as in
        W_C [HD19, section 4]. If False, the graph is used as it is.
    **parameters
        Parameters of `specialk_gpu.SpecialK`, except `affinity`.

    Returns
    -------
    SpecialK
        The fitted model. `adata` is changed in place.

    Raises
    ------
    KeyError
        If ``.obsp`` has no graph of that name.
    ValueError, TypeError
        As in `specialk_gpu.SpecialK.fit`.
    """
    import pandas as pd

    if obsp not in adata.obsp:
        known = ", ".join(sorted(adata.obsp)) or "none"
        msg = f"adata.obsp has no {obsp!r}, only: {known}. Run scanpy.pp.neighbors first."
        raise KeyError(msg)
    if "affinity" in parameters:
        msg = "affinity is 'precomputed' here (the graph in adata.obsp) and cannot be chosen."
        raise TypeError(msg)
    W = affinity_matrix(adata.obsp[obsp])
    with backend_of(W).device_of(W):
        W = normalised_graph(W) if normalize else W
    model = SpecialK(affinity="precomputed", **parameters).fit(W)
    names = [str(label) for label in range(model.n_clusters_)]
    labels = pd.Categorical.from_codes(on_host(model.labels_), categories=pd.Index(names))
    adata.obs[key_added] = pd.Series(labels, index=adata.obs_names)
    given = {"obsp": obsp, "normalize": normalize, **model.get_params()}
    path = model.path_.to_frame()
    first, second = np.array([(-1, -1) if p is None else p for p in path["pair"]]).T
    adata.uns[key_added] = {
        "params": {
            name: value if isinstance(value, (str, Real)) else str(value)
            for name, value in given.items()
            if value is not None
        },
        "n_clusters": model.n_clusters_,
        "criterion": model.path_.criterion,
        "path": path.drop(columns="pair").assign(pair_0=first, pair_1=second),
    }
    return model
