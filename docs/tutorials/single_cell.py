"""Single-cell data: from a neighbour graph in AnnData to labels in .obs.

The cells here are made up, so that the tutorial runs anywhere; with yours, begin at `cluster`.
"""

import anndata
import numpy as np
from sklearn.neighbors import kneighbors_graph

from specialk_gpu.anndata import cluster

# Three kinds of cells, one of them rare, in 30 principal components.
rng = np.random.default_rng(0)
centers = rng.normal(size=(3, 30)) * 2
kind = np.repeat([0, 1, 2], [900, 500, 100])
adata = anndata.AnnData(np.zeros((1500, 1)))
adata.obsm["X_pca"] = centers[kind] + rng.normal(size=(1500, 30))

# What scanpy.pp.neighbors(adata) does; its connectivities are taken as they are.
graph = kneighbors_graph(adata.obsm["X_pca"], 15)
adata.obsp["connectivities"] = graph.maximum(graph.T)

model = cluster(adata, random_state=0)
print(adata.obs["specialk"].value_counts())
print(adata.uns["specialk"]["path"][["k", "log10_p", "accepted"]])

# Leiden's resolution has no counterpart: k is found, and labels_at has coarser and finer levels.
# A cluster can be looked into by itself, too:
largest = adata[adata.obs["specialk"] == "0"].copy()
inside = cluster(largest, key_added="inside", random_state=0)
print("inside the largest:", inside.n_clusters_)
