"""Other methods that cluster rows, each a function of the rows, and of k where it must be told.

`rivals` counts how often they find the right k, `compare` measures their time, memory and agreement
with known classes. Every method has its defaults, but for what has to be chosen: `MANY` lists the k
that are tried where k is chosen from a list; a cluster of HDBSCAN has one row in a hundred, or
five; graphs have 10 neighbours. Labels of rows in no cluster are -1.
"""

from __future__ import annotations

import random
import time
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import sparse
from sklearn.cluster import HDBSCAN, KMeans, SpectralClustering
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import kneighbors_graph

from benchmarks.baselines import eigengap, stsc
from benchmarks.selection import fitted
from specialk_gpu import eigenpairs, knn_graph
from specialk_gpu.spectrum import chebyshev, solvers

MANY = (*range(2, 21), 25, 30, 35, 40, 45, 50, 55, 60)  # numbers of clusters that are tried
MOST_OF_STSC = 20
REFERENCES = 10  # sets of the gap statistic
LOOKED_AT = 1000  # rows of the silhouette
COLUMNS = 10  # principal components, where a method is not meant for many columns
N_NEIGHBORS = 10
SAMPLES = 10  # rows from which HDBSCAN estimates a density, in `compare`

Rows = np.ndarray
Labels = np.ndarray


def specialk(X: Rows, seed: int = 0, **settings: Any) -> Labels:
    """Fit this library, by the default rule where no other is named."""
    return fitted(X, random_state=seed, **settings).labels_


def specialk_told_k(X: Rows, k: int, seed: int = 0) -> Labels:
    """Fit this library with a given k."""
    return specialk(X, seed, n_clusters=k)


def seconds_of_verification(W: sparse.sparray, k: int) -> float:
    """Fit a graph with a given k; return the seconds of the search for missed eigenpairs."""
    search, spent = chebyshev.find_missed_by_chebyshev, [0.0]

    def timed(*arguments: Any, **named: Any) -> str:
        began = time.perf_counter()
        found = search(*arguments, **named)
        spent.append(time.perf_counter() - began)
        return found

    solver, bare = (patch.object(x, search.__name__, timed) for x in (chebyshev, solvers))
    with solver, bare:
        specialk_told_k(W, k)
    return sum(spent)


def clustpys_specialk(X: Rows, seed: int = 0) -> Labels:
    """Fit ClustPy's SpecialK with as many eigenvectors as the paper has, or as the rows allow."""
    from clustpy.spectral import SpecialK

    n = min(200, len(X) - 2)
    settings = {"n_dimensions": n, "n_neighbors": N_NEIGHBORS, "random_state": seed}
    return SpecialK(similarity_matrix="SAM", **settings).fit(X).labels_


def columns(X: Rows) -> Rows:
    """Return ten principal components where there are more columns."""
    return PCA(COLUMNS, random_state=0).fit_transform(X) if X.shape[1] > COLUMNS else X


# -- density --------------------------------------------------------------------------------------


def least_rows(X: Rows) -> int:
    """Return the rows that a cluster must have."""
    return max(5, len(X) // 100)


def hdbscan(X: Rows, least: int | None = None, samples: int | None = None) -> Labels:
    """Cluster by density, by default estimated from as many rows as a cluster must have."""
    sizes = {"min_cluster_size": least or least_rows(X), "min_samples": samples}
    return HDBSCAN(**sizes, n_jobs=-1, copy=True).fit(X).labels_


def fast_hdbscan(X: Rows, samples: int = SAMPLES) -> Labels:
    """Cluster by density, with the package that computes it on several threads."""
    from fast_hdbscan import HDBSCAN as Fast

    model = Fast(min_cluster_size=least_rows(X), min_samples=samples)
    return model.fit(np.asarray(X, dtype=np.float64)).labels_


def umap_hdbscan(X: Rows) -> Labels:
    """Cluster a map by density, as UMAP's documentation has it.

    UMAP runs on several threads only without a seed, and so it is run.
    """
    from umap import UMAP

    return fast_hdbscan(UMAP(n_neighbors=30, min_dist=0.0, n_components=2).fit_transform(X))


# -- communities of a graph -----------------------------------------------------------------------


def communities(graph: Any, weights: Any = None, n_iterations: int = -1, seed: int = 0) -> Labels:
    """Find communities of the largest modularity, by igraph's Leiden."""
    import igraph

    igraph.set_random_number_generator(random.Random(seed))
    found = graph.community_leiden("modularity", weights=weights, n_iterations=n_iterations)
    return np.array(found.membership)


def igraph_of(A: sparse.sparray, *, weighted: bool = False) -> tuple[Any, Any]:
    """Return an undirected graph with the edges of a symmetric matrix, and their weights."""
    import igraph

    upper = sparse.coo_array(sparse.triu(A, k=1))
    edges = np.stack(upper.coords, axis=1)
    return igraph.Graph(n=A.shape[0], edges=edges), upper.data if weighted else None


def leiden(X: Rows) -> Labels:
    """Find communities of our graph of 10 neighbours, until none changes."""
    return communities(*igraph_of(knn_graph(X), weighted=True))


def nearest(X: Rows) -> sparse.sparray:
    """Join each row to its 10 neighbours of scikit-learn."""
    A = sparse.csr_array(kneighbors_graph(X, N_NEIGHBORS, n_jobs=-1))
    return A.maximum(A.T)


def approximately_nearest(X: Rows, seed: int = 0) -> sparse.sparray:
    """Join each row to its 10 neighbours of pynndescent."""
    from pynndescent import NNDescent

    found = NNDescent(X, n_neighbors=N_NEIGHBORS + 1, random_state=seed).neighbor_graph[0]
    m, q = found.shape
    ends = (np.repeat(np.arange(m), q), found.ravel())
    A = sparse.csr_array((np.ones(m * q), ends), shape=(m, m))
    return A.maximum(A.T)


def leidenalg(X: Rows, seed: int = 0) -> Labels:
    """Find communities of scikit-learn's graph by leidenalg, with its defaults."""
    from leidenalg import ModularityVertexPartition, find_partition

    graph, _ = igraph_of(nearest(X))
    return np.array(find_partition(graph, ModularityVertexPartition, seed=seed).membership)


def igraphs_leiden(X: Rows, seed: int = 0) -> Labels:
    """Find communities of scikit-learn's graph by igraph, in its usual two rounds."""
    return communities(*igraph_of(nearest(X)), n_iterations=2, seed=seed)


def approximate_leiden(X: Rows, seed: int = 0) -> Labels:
    """Find communities of pynndescent's graph by igraph, in its usual two rounds."""
    graph, _ = igraph_of(approximately_nearest(X, seed))
    return communities(graph, n_iterations=2, seed=seed)


# -- k is given, or chosen from a list ------------------------------------------------------------


def kmeans(X: Rows, k: int, n_init: Any = 3, seed: int = 0) -> KMeans:
    """Run k-means."""
    return KMeans(k, n_init=n_init, random_state=seed).fit(X)


def kmeans_told_k(X: Rows, k: int, seed: int = 0) -> Labels:
    """Run k-means once, as by default."""
    return kmeans(X, k, n_init="auto", seed=seed).labels_


def spectral_clustering(
    X: Rows, k: int, affinity: str = "nearest_neighbors", seed: int = 0
) -> Labels:
    """Cluster the eigenvectors of a graph of 10 neighbours, or of one that is given."""
    graph = {"affinity": affinity, "n_neighbors": N_NEIGHBORS, "n_jobs": -1}
    return SpectralClustering(k, random_state=seed, **graph).fit(X).labels_


def silhouette(X: Rows) -> Labels:
    """Take the k-means of the largest mean silhouette; never one cluster."""
    found = [kmeans(X, k).labels_ for k in MANY if k < len(X) / 2]
    size = min(LOOKED_AT, len(X))
    chosen = np.random.default_rng(0).permutation(len(X))[:size]

    def score(labels: np.ndarray) -> float:
        several = len(set(labels[chosen].tolist())) > 1
        return silhouette_score(X[chosen], labels[chosen]) if several else -1.0

    return max(found, key=score)


def gmm_bic(X: Rows, seed: int = 0) -> Labels:
    """Take the mixture of Gaussians, of full or diagonal covariances, of the least BIC."""
    X = X.astype(np.float64)
    m, d = X.shape
    best = None
    for kind in ("full", "diag"):
        for k in (1, *MANY):
            size = d * (d + 1) / 2 if kind == "full" else d
            if k * (size + d) >= m * d / 2 or k > m / 4:
                break  # fewer than two values for each parameter
            model = GaussianMixture(k, covariance_type=kind, random_state=seed).fit(X)
            one = model.bic(X), model
            best = one if best is None or one[0] < best[0] else best
    return best[1].predict(X)


def gap_statistic(X: Rows) -> Labels:
    """Take the least k whose gap is that of the next one, less its error, or larger."""
    rng, before = np.random.default_rng(0), None
    ends = X.min(axis=0), X.max(axis=0)
    for k in (1, *MANY):
        model = kmeans(X, k)
        logs = np.array(
            [np.log(kmeans(rng.uniform(*ends, X.shape), k).inertia_) for _ in range(REFERENCES)]
        )
        gap = logs.mean() - np.log(model.inertia_)
        error = logs.std() * np.sqrt(1 + 1 / REFERENCES)
        if before is not None and before[0] >= gap - error:
            break
        before = gap, model.labels_
    return before[1]


def by_eigengap(X: Rows) -> Labels:
    """Take k before the largest gap between eigenvalues, and spectral clustering for it."""
    pairs = eigenpairs(knn_graph(X), min(max(MANY) + 1, len(X) - 1), random_state=0)
    k = eigengap(pairs.values)
    return specialk(X, n_clusters=k) if k > 1 else np.zeros(len(X), dtype=int)


def self_tuning(X: Rows, seed: int = 0) -> Labels:
    """Turn eigenvectors of the locally scaled graph towards the axes."""
    return stsc(X, MOST_OF_STSC, random_state=seed).labels


# -- tests for one mode ---------------------------------------------------------------------------


def iso_split(X: Rows) -> Labels:
    """Unite and divide by tests for one mode."""
    from isosplit6 import isosplit6

    return isosplit6(np.ascontiguousarray(columns(X), dtype=np.float64))


def dip_means(X: Rows, projected: bool = False) -> Labels:  # noqa: FBT001, FBT002
    """Split where distances, or projections, have more than one mode."""
    from clustpy.centroid import DipMeans, ProjectedDipMeans

    method = ProjectedDipMeans if projected else DipMeans
    return method(random_state=0).fit(columns(X)).labels_
