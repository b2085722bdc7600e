"""Single-cell data: graphs or rows are read, labels and path written, as scanpy does it."""

import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from fits import fit
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

import specialk_gpu
from specialk_gpu import knn_graph

BLOBS, KINDS = make_blobs(240, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)


def cells(**uns):
    adata = anndata.AnnData(BLOBS, obs=pd.DataFrame(index=[f"cell{i}" for i in range(240)]))
    A = kneighbors_graph(BLOBS, 10)
    adata.obsp["connectivities"] = (A + A.T) / 2
    adata.obsm["X_pca"] = BLOBS[:, ::-1].copy()
    adata.uns["neighbors"] = {"connectivities_key": "connectivities"}
    adata.uns.update(uns)
    return adata


def run(adata, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return specialk_gpu.tl.specialk(adata, backend="numpy", **settings)


def written(adata, tmp_path):
    adata.write_h5ad(tmp_path / "cells.h5ad")
    return anndata.read_h5ad(tmp_path / "cells.h5ad")


def test_labels_and_path_are_written(tmp_path):
    adata = cells()
    assert run(adata) is None
    model = fit(knn_graph(BLOBS), affinity="precomputed")
    labels = adata.obs["specialk"]
    assert labels.cat.categories.tolist() == ["0", "1", "2"]
    assert labels.astype(int).tolist() == model.labels_.tolist()
    noted = adata.uns["specialk"]
    path = noted["path"]
    assert path["k"].tolist() == [step.k for step in model.path_]
    assert path[["pair_0", "pair_1"]].iloc[0].tolist() == [-1, -1]
    assert tuple(path[["pair_0", "pair_1"]].iloc[1]) == model.path_[1].pair
    assert noted["params"]["obsp"] == "connectivities"
    assert noted["params"]["random_state"] == 0
    assert (noted["n_clusters"], noted["criterion"]) == (3, "cut")
    again = written(adata, tmp_path)
    assert again.obs["specialk"].tolist() == labels.tolist()
    assert again.uns["specialk"]["params"] == noted["params"]
    pd.testing.assert_frame_equal(again.uns["specialk"]["path"], path, check_dtype=False)


def test_a_copy_leaves_the_original_as_it_is():
    adata = cells()
    other = run(adata, copy=True, key_added="k")
    assert "k" not in adata.obs
    assert "k" not in adata.uns
    assert other.obs["k"].nunique() == other.uns["k"]["n_clusters"] == 3


def test_the_graph_is_normalised_and_left_as_it_is():
    adata = cells()
    before = adata.obsp["connectivities"].copy()
    run(adata, max_clusters=6, full_path=True)
    assert abs(adata.obsp["connectivities"] - before).nnz == 0
    for normalize in (True, False):
        run(adata, normalize=normalize, key_added="k", max_clusters=6, full_path=True)
        settings = {"max_clusters": 6, "full_path": True, "normalize": normalize}
        model = fit(before, affinity="precomputed", **settings)
        assert adata.obs["k"].astype(int).tolist() == model.labels_.tolist()
        np.testing.assert_array_equal(adata.uns["k"]["path"]["log_p"], model.path_.to_frame().log_p)
        same = adata.uns["k"]["path"].equals(adata.uns["specialk"]["path"])
        assert same == normalize


def test_neighbors_are_found_by_their_key():
    one, two = cells(), cells(mine={"connectivities_key": "other"})
    two.obsp["other"] = two.obsp.pop("connectivities")
    run(one)
    run(two, neighbors_key="mine")
    assert two.obs["specialk"].tolist() == one.obs["specialk"].tolist()
    assert two.uns["specialk"]["params"]["obsp"] == "other"
    run(two, obsp="other", key_added="again")
    assert two.obs["again"].tolist() == one.obs["specialk"].tolist()
    del one.uns["neighbors"]  # a graph by the usual name needs no note
    run(one, key_added="again")
    assert one.obs["again"].tolist() == one.obs["specialk"].tolist()


@pytest.mark.parametrize("kind", ["X_pca", "X", "sparse X", "frame"])
def test_a_representation_is_clustered_by_its_rows(kind):
    adata = cells()
    rep = "X" if "X" in kind.split() else "X_pca"
    if kind == "sparse X":
        adata.X = sparse.csr_matrix(BLOBS)
    if kind == "frame":
        adata.obsm["X_pca"] = pd.DataFrame(adata.obsm["X_pca"], adata.obs_names, ["a", "b", "c"])
    run(adata, use_rep=rep, n_neighbors=12)
    model = fit(BLOBS if rep == "X" else BLOBS[:, ::-1].copy(), n_neighbors=12)
    assert adata.obs["specialk"].astype(int).tolist() == model.labels_.tolist()
    params = adata.uns["specialk"]["params"]
    assert (params["use_rep"], params["n_neighbors"]) == (rep, 12)
    assert "obsp" not in params


@pytest.mark.parametrize("use_rep", [None, "X"])
def test_some_clusters_are_divided_again(use_rep, tmp_path):
    adata = cells()
    adata.obs["kind"] = pd.Categorical([("a", "b", "c")[kind] for kind in KINDS])
    run(adata, restrict_to=("kind", ["b", "c"]), use_rep=use_rep)
    found, inside = adata.obs["specialk_R"], KINDS > 0
    assert found.cat.categories.tolist() == ["a", "b-c,0", "b-c,1"]
    assert (found[~inside] == "a").all()
    assert adjusted_rand_score(found[inside], KINDS[inside]) == 1
    W = adata.obsp["connectivities"].tocsr()[inside][:, inside]
    part = BLOBS[inside] if use_rep else W
    settings = {} if use_rep else {"affinity": "precomputed", "normalize": True}
    labels = fit(part, **settings).labels_
    assert found[inside].tolist() == [f"b-c,{label}" for label in labels]
    assert written(adata, tmp_path).uns["specialk_R"]["params"]["restrict_to"] == "kind: b, c"
    run(adata, restrict_to=("kind", ["a"]), key_added="sub")
    names = adata.obs["sub"].cat.categories.tolist()
    assert names[-2:] == ["b", "c"]
    assert names[:-2] == [f"a,{i}" for i in range(len(names) - 2)]


def test_cells_without_a_category_keep_none():
    adata = cells()
    kinds = pd.Series(pd.Categorical([("a", "b", "c")[kind] for kind in KINDS]), adata.obs_names)
    adata.obs["kind"] = kinds.where(np.arange(240) != 7)
    run(adata, restrict_to=("kind", ["a", "b", "c"]))
    assert adata.obs["specialk_R"].isna().to_numpy().nonzero()[0].tolist() == [7]


def test_a_generator_as_random_state_can_be_written(tmp_path):
    adata, generator = cells(), np.random.RandomState(0)
    run(adata, random_state=generator)
    again = written(adata, tmp_path)
    assert again.uns["specialk"]["n_clusters"] == 3
    assert again.uns["specialk"]["params"]["random_state"] == str(generator)


def without(part):
    adata = cells()
    if part == "graph":
        del adata.obsp["connectivities"]
    if part == "X":
        adata.X = None
    if part == "X_pca":
        del adata.obsm["X_pca"]
    return adata


@pytest.mark.parametrize(
    ("part", "settings", "words"),
    [
        (
            "graph",
            {},
            r"no 'connectivities', nor anything else: run sc.pp.neighbors\(adata\) first",
        ),
        ("", {"obsp": "other"}, "no 'other', only 'connectivities': run sc.pp.neighbors"),
        ("", {"neighbors_key": "n"}, r"no 'n': run sc.pp.neighbors\(adata, key_added='n'\) first"),
        ("", {"neighbors_key": "n", "obsp": "o"}, "obsp takes the place of neighbors_key"),
        ("", {"use_rep": "X", "obsp": "o"}, "use_rep takes the place of a graph"),
        ("", {"use_rep": "X_umap"}, "no use_rep='X_umap', only 'X_pca'; \"X\" names adata.X"),
        ("X_pca", {"use_rep": "X_pca"}, r"nor anything else; .*: run sc.pp.pca\(adata\) first"),
        ("X", {"use_rep": "X"}, "adata.X is empty"),
        ("", {"restrict_to": ("kind", ["0"])}, "no 'kind', which restrict_to names"),
        ("", {"restrict_to": "kind"}, "restrict_to must be a column and some of its categories"),
        ("", {"restrict_to": ("b", ["z"])}, "categories of 'b' as text, 'x', 'y'; got 'z'"),
        ("", {"restrict_to": ("b", [])}, r"categories of 'b' as text, 'x', 'y'; got \[\]"),
    ],
)
def test_what_is_not_there_is_named(part, settings, words):
    adata = without(part)
    adata.obs["b"] = ["x", "y"] * 120
    before = set(adata.obs), set(adata.uns)
    with pytest.raises(ValueError, match=words):
        run(adata, **settings)
    assert (set(adata.obs), set(adata.uns)) == before


def test_the_affinity_of_a_graph_cannot_be_chosen():
    with pytest.raises(TypeError, match="affinity is 'precomputed' for a graph"):
        run(cells(), affinity="nearest_neighbors")


def test_those_who_give_a_resolution_are_told_of_n_clusters_which_works():
    adata = cells()
    with pytest.raises(TypeError, match="no resolution: .* n_clusters; .* labels_at.* n_neighbors"):
        run(adata, resolution=0.5)
    assert "specialk" not in adata.obs
    run(adata, n_clusters=2)
    assert adata.obs["specialk"].nunique() == 2


@pytest.mark.filterwarnings("ignore")
def test_it_goes_with_scanpy(tmp_path):
    scanpy = pytest.importorskip("scanpy", reason="needs scanpy, which no extra installs")
    adata = scanpy.datasets.pbmc68k_reduced()
    scanpy.pp.neighbors(adata, n_neighbors=20)
    run(adata)
    scanpy.pp.neighbors(adata, n_neighbors=20, key_added="twenty")
    run(adata, neighbors_key="twenty", key_added="again")
    assert adata.obs["again"].tolist() == adata.obs["specialk"].tolist()
    assert adjusted_rand_score(adata.obs["specialk"], adata.obs["louvain"]) > 0.5
    scanpy.tl.rank_genes_groups(adata, "specialk")
    names = adata.uns["rank_genes_groups"]["names"].dtype.names
    assert list(names) == adata.obs["specialk"].cat.categories.tolist()
    again = written(adata, tmp_path)
    assert again.obs["specialk"].tolist() == adata.obs["specialk"].tolist()
