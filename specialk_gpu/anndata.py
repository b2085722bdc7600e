"""Single-cell data: cluster the neighbour graph that an AnnData object holds."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from specialk_gpu._estimator import SpecialK
from specialk_gpu._storage import on_host
from specialk_gpu.backend import backend_of
from specialk_gpu.graph.affinity import affinity_matrix, normalised

__all__ = ["cluster"]


def cluster(
    adata: Any,
    obsp: str = "connectivities",
    key_added: str = "specialk",
    *,
    normalize: bool = True,
    **parameters: Any,
) -> SpecialK:
    """Find the number of clusters of the cells, from their neighbour graph, and the clusters.

    Parameters
    ----------
    adata : AnnData
        With a graph in ``.obsp``, as `scanpy.pp.neighbors` leaves it, or rapids-singlecell's on
        the device. Scanpy is not needed.
    obsp : str
        Name of the graph: similarities, (m, m).
    key_added : str
        ``.obs[key_added]`` takes the labels, a categorical of "0", "1", ..., by falling size;
        ``.uns[key_added]`` a dict of "params", "n_clusters", "criterion" (the rule that decided),
        and "path", a DataFrame with one row for each k.
    normalize : bool
        Whether to divide each entry by the roots of the degrees of its two cells, as in W_C
        [HD19, section 4]; else the graph is taken as it is.
    **parameters
        Of `specialk_gpu.SpecialK`, but `affinity`.

    Returns
    -------
    SpecialK
        The fitted model. `adata` is changed in place.

    Raises
    ------
    KeyError
        If there is no such graph.
    ValueError, TypeError
        As `specialk_gpu.SpecialK.fit`.
    """
    import pandas as pd

    if obsp not in adata.obsp:
        known = ", ".join(sorted(adata.obsp)) or "none"
        msg = f"adata.obsp has no {obsp!r}, only: {known}. Run scanpy.pp.neighbors first."
        raise KeyError(msg)
    if "affinity" in parameters:
        msg = "affinity is 'precomputed' here, the graph in adata.obsp; it cannot be chosen."
        raise TypeError(msg)
    W = affinity_matrix(adata.obsp[obsp])
    with backend_of(W).device_of(W):
        W = normalised(W) if normalize else W
    model = SpecialK(affinity="precomputed", **parameters).fit(W)
    names = [str(label) for label in range(model.n_clusters_)]
    labels = pd.Categorical.from_codes(on_host(model.labels_), categories=names)
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
