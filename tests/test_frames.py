"""Data frames and graphs of other libraries: names are kept, and text or dates refused."""

import warnings

import igraph
import networkx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.datasets import make_blobs

from specialk_gpu import SpecialK, knn_graph

COMPONENTS = r"the graph has \d connected components"
BLOBS, _ = make_blobs(180, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)
TEXT = BLOBS.astype(str)


def fit(X):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", COMPONENTS, UserWarning)
        return SpecialK(backend="numpy", random_state=0).fit(X)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(BLOBS, columns=["a", "b", "c"]),
        pl.DataFrame(BLOBS, list("abc")),
        pa.table(dict(zip("abc", BLOBS.T, strict=True))),
    ],
)
def test_data_frames_give_equal_labels_and_names(frame):
    model = fit(frame)
    np.testing.assert_array_equal(model.labels_, fit(BLOBS).labels_)
    assert isinstance(model.labels_, np.ndarray)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", COMPONENTS, UserWarning)
        assert not hasattr(model.fit(BLOBS), "feature_names_in_")


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame(TEXT),
        pd.DataFrame(BLOBS).assign(d=TEXT[:, 0]),
        pd.DataFrame({"a": pd.Categorical(TEXT[:, 0])}),
        pd.Series(TEXT[:, 0]),
        pd.Series(TEXT[:, 0], dtype=object),
        pl.DataFrame(TEXT, list("abc")),
        pd.DataFrame(BLOBS).assign(d=pd.date_range("2020", periods=len(BLOBS))),
        pl.DataFrame({"d": pd.date_range("2020", periods=50), "x": np.arange(50.0)}),
    ],
)
def test_text_and_dates_are_refused_even_where_they_look_like_numbers(X):
    with pytest.raises(ValueError, match=r"X must be numeric, got text or dates \(dtype "):
        fit(X)


# -- graphs of other libraries --------------------------------------------------------------------


def edges():
    W = knn_graph(BLOBS).tocoo()
    return [(i, j, w) for i, j, w in zip(W.row.tolist(), W.col.tolist(), W.data, strict=True)]


def networkx_graph():
    graph = networkx.Graph()
    graph.add_nodes_from(range(180))
    graph.add_weighted_edges_from(edges())
    return graph


def igraph_graph():
    once = [edge for edge in edges() if edge[0] < edge[1]]
    graph = igraph.Graph(180, [edge[:2] for edge in once])
    graph.es["weight"] = [edge[2] for edge in once]
    return graph


@pytest.mark.parametrize("build", [networkx_graph, igraph_graph])
def test_graphs_are_their_adjacency(build):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", COMPONENTS, UserWarning)
        model = SpecialK(backend="numpy", random_state=0, affinity="precomputed")
        labels = model.fit(build()).labels_
        W = model.affinity_matrix_
        np.testing.assert_array_equal(model.fit(knn_graph(BLOBS)).labels_, labels)
    assert abs(W - model.affinity_matrix_).max() < 1e-15


@pytest.mark.parametrize("graph", [networkx.Graph(), igraph.Graph(), igraph.Graph(4)])
def test_graphs_without_edges_are_refused(graph):
    with pytest.raises(ValueError, match="must have two nodes and an edge, got"):
        SpecialK(backend="numpy", affinity="precomputed").fit(graph)


@pytest.mark.parametrize("graph", [networkx.path_graph(5), igraph.Graph.Ring(5)])
def test_graphs_are_no_features(graph):
    with pytest.raises(TypeError, match="a graph of .* goes with affinity='precomputed'"):
        SpecialK(backend="numpy").fit(graph)


def test_edges_without_weights_count_one():
    model = SpecialK(backend="numpy", affinity="precomputed", n_clusters=1)
    for graph in (networkx.path_graph(5), igraph.Graph.Ring(5, circular=False)):
        W = model.fit(graph).affinity_matrix_.toarray()
        np.testing.assert_array_equal(W, np.eye(5, k=1) + np.eye(5, k=-1))
