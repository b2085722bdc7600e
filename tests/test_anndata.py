"""Single-cell data: the graph is read, labels and path are written, and survive a file."""

import subprocess
import sys
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs
from sklearn.neighbors import kneighbors_graph

from specialk_gpu import SpecialK, knn_graph
from specialk_gpu.anndata import cluster

BLOBS, _ = make_blobs(240, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)


def cells():
    adata = anndata.AnnData(BLOBS, obs=pd.DataFrame(index=[f"cell{i}" for i in range(240)]))
    A = kneighbors_graph(BLOBS, 10)
    adata.obsp["connectivities"] = (A + A.T) / 2
    return adata


def run(adata, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return cluster(adata, **{"backend": "numpy", "random_state": 0, **settings})


def test_labels_and_path_are_written(tmp_path):
    adata = cells()
    model = run(adata)
    assert isinstance(model, SpecialK)
    assert model.n_clusters_ == 3
    labels = adata.obs["specialk"]
    assert labels.cat.categories.tolist() == ["0", "1", "2"]
    assert labels.astype(int).tolist() == model.labels_.tolist()
    path = adata.uns["specialk"]["path"]
    assert path["k"].tolist() == [step.k for step in model.path_]
    assert path[["pair_0", "pair_1"]].iloc[0].tolist() == [-1, -1]
    assert tuple(path[["pair_0", "pair_1"]].iloc[1]) == model.path_[1].pair
    assert adata.uns["specialk"]["params"]["obsp"] == "connectivities"
    assert adata.uns["specialk"]["criterion"] == "cut"
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert again.obs["specialk"].tolist() == labels.tolist()
    pd.testing.assert_frame_equal(again.uns["specialk"]["path"], path, check_dtype=False)


def test_the_graph_is_normalised_as_that_of_the_neighbours():
    expected = SpecialK(backend="numpy", random_state=0, affinity="precomputed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected.fit(knn_graph(BLOBS))
    adata = cells()
    before = adata.obsp["connectivities"].copy()
    model = run(adata, key_added="k")
    assert abs(model.affinity_matrix_ - expected.affinity_matrix_).max() < 1e-14
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert abs(adata.obsp["connectivities"] - before).nnz == 0
    plain = run(adata, normalize=False)
    assert abs(plain.affinity_matrix_ - before).max() < 1e-14
    assert {"k", "specialk"} <= set(adata.obs)


def test_a_generator_as_random_state_can_be_written(tmp_path):
    adata = cells()
    model = run(adata, random_state=np.random.RandomState(0))
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert again.uns["specialk"]["n_clusters"] == model.n_clusters_
    assert again.uns["specialk"]["params"]["random_state"] == str(model.random_state)


def test_what_is_not_there_is_named():
    adata = cells()
    with pytest.raises(KeyError, match="has no 'other', only: connectivities"):
        run(adata, obsp="other")
    with pytest.raises(TypeError, match="affinity is 'precomputed' here"):
        run(adata, affinity="nearest_neighbors")


def test_scanpy_is_not_imported():
    code = "import specialk_gpu.anndata, sys; assert not {'scanpy', 'anndata'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
