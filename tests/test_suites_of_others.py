"""Tests that others wrote for what this library does too, run from their installed packages.

Nothing is copied: a test of scikit-learn is a function of its package, called once for each of its
parameters, with our class in place of theirs. A shim translates the parameters. `LEFT_OUT` and
`WITH_OTHERS` name what is not run, `FAIL` what does not pass, with the reasons; a new test of
theirs is run, and must call ours.

scikit-learn's run in `make test`, those of ClustPy and scanpy in `make others`. The installed
packages of these two come without tests: of ClustPy there is the check of estimators that its tests
call; scanpy's own transformers are what ours is compared with.
"""

import functools
import inspect
import itertools
import warnings

import numpy as np
import pytest
from sklearn.cluster.tests import test_spectral as spectral
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.neighbors import sort_graph_by_row_values
from sklearn.neighbors.tests import test_neighbors_pipeline as pipelines
from sklearn.utils._param_validation import InvalidParameterError

from specialk_gpu import ExactNeighborsTransformer, SpecialK

pytestmark = pytest.mark.filterwarnings("ignore")  # of few rows, and of graphs in pieces

SEEDS = (0, 1)  # in place of scikit-learn's fixture
IGNORED = ("assign_labels",)  # parameters that we do not have: one value is enough
DEFAULTS = vars(spectral.SpectralClustering())
KERNELS_PARAMETERS = ("gamma", "degree", "coef0")


class Spectral:
    """SpecialK with the parameters of SpectralClustering, and its defaults."""

    def __init__(self, **given):
        assert set(given) <= set(DEFAULTS)
        self.__dict__.update(DEFAULTS | given)

    def fit(self, X):
        settings = {"n_clusters": self.n_clusters, "random_state": self.random_state}
        settings |= {"affinity": "precomputed", "backend": "numpy"}
        if self.affinity == "nearest_neighbors":
            n = self.n_neighbors - 1  # theirs count the row itself
            settings |= {"affinity": self.affinity, "n_neighbors": n}
        elif self.affinity == "precomputed_nearest_neighbors":
            X = nearest_of(X, self.n_neighbors)
        elif self.affinity != "precomputed":
            X = self.kernel(X)
        model = SpecialK(**settings).fit(X)
        if model.n_graph_components_ > 1:  # in the words that the tests look for
            warnings.warn("Graph is not fully connected", UserWarning, stacklevel=2)
        self.labels_ = model.labels_
        return self

    def kernel(self, X):
        """Return the affinities by a kernel."""
        if callable(self.affinity):
            return pairwise_kernels(X, metric=self.affinity)
        settings = {name: getattr(self, name) for name in KERNELS_PARAMETERS}
        return pairwise_kernels(X, metric=self.affinity, filter_params=True, **settings)


def nearest_of(graph, n_neighbors):
    """Return a symmetric graph of the nearest of given neighbours."""
    graph = sort_graph_by_row_values(graph, copy=True, warn_when_not_sorted=False)
    m = graph.shape[0]
    given = np.diff(graph.indptr)
    place = np.arange(graph.nnz) - np.repeat(graph.indptr[:-1], given)
    graph.data = (place < n_neighbors).astype(float)
    graph.eliminate_zeros()
    assert graph.nnz == m * n_neighbors
    return (graph + graph.T) / 2


def spectral_function(affinity, *, n_clusters=8, eigen_solver=None, random_state=None):
    """Cluster a graph, as the function of scikit-learn does."""
    names = {None: "auto", "arpack": "lanczos"}
    settings = {"n_clusters": n_clusters, "random_state": random_state, "backend": "numpy"}
    solver = names.get(eigen_solver, eigen_solver)
    return SpecialK(affinity="precomputed", eigen_solver=solver, **settings).fit(affinity).labels_


def calls(module, left_out, fail):
    """List the tests of a module with all their parameters, but for those that are left out."""
    found = []
    for name, function in vars(module).items():
        if not name.startswith("test_") or name in left_out:
            continue
        axes = [[{}]]
        for mark in getattr(function, "pytestmark", ()):
            if mark.name == "parametrize":
                names, values = mark.args
                names = [x.strip() for x in names.split(",")] if isinstance(names, str) else names
                rows = [value if len(names) > 1 else (value,) for value in values]
                rows = rows[:1] if names[0] in IGNORED else rows
                axes.append([dict(zip(names, row, strict=True)) for row in rows])
        if "global_random_seed" in inspect.signature(function).parameters:
            axes.append([{"global_random_seed": seed} for seed in SEEDS])
        for parts in itertools.product(*axes):
            given = {key: value for part in parts for key, value in part.items()}
            words = ", ".join(str(getattr(x, "__name__", x)) for x in given.values())
            error = fail.get(name)
            marks = [pytest.mark.xfail(raises=error[0], reason=error[1])] if error else []
            found.append(pytest.param(function, given, id=f"{name}[{words}]", marks=marks))
    return found


def put_in_place(monkeypatch, module, ours):
    """Put ours in place of what a module of tests calls; return the names that were called."""
    called = []

    def counted(name, *arguments, **given):
        called.append(name)
        return ours[name](*arguments, **given)

    for name in ours:
        monkeypatch.setattr(module, name, functools.partial(counted, name))
    return called


# -- scikit-learn's SpectralClustering ------------------------------------------------------------

LEFT_OUT = {
    "test_cluster_qr": "of a function that we do not have",
    "test_cluster_qr_permutation_invariance": "of a function that we do not have",
    "test_discretize": "of a function that we do not have",
    "test_spectral_clustering_not_infinite_loop": "of a function that we do not have",
    "test_verbose": "looks for lines that its k-means prints",
    "test_n_components": "of its default of 8 clusters",
}


@pytest.mark.parametrize(("test", "given"), calls(spectral, LEFT_OUT, {}))
def test_of_spectral_clustering_passes_with_n_clusters(test, given, monkeypatch):
    ours = {"SpectralClustering": Spectral, "spectral_clustering": spectral_function}
    called = put_in_place(monkeypatch, spectral, ours)
    test(**given)  # asserts on what ours finds
    assert called


# -- scikit-learn's transformers of neighbours ----------------------------------------------------


WITH_OTHERS = {"test_dbscan": "takes neighbours within a radius, not ours"}
FAIL = {
    "test_tsne": (InvalidParameterError, "it asks for squared distances too, which ours has not"),
}


def transformer(n_neighbors=5, mode="distance", metric="minkowski", algorithm="auto"):
    """Make our transformer; by default that of scikit-learn has Minkowski's metric with p = 2."""
    assert algorithm in ("auto", "brute", "kd_tree", "ball_tree")  # how it searches is its own
    metric = "euclidean" if metric == "minkowski" else metric
    return ExactNeighborsTransformer(n_neighbors, mode=mode, metric=metric, backend="numpy")


@pytest.mark.parametrize(("test", "given"), calls(pipelines, WITH_OTHERS, FAIL))
def test_of_pipelines_passes_with_our_transformer(test, given, monkeypatch):
    called = put_in_place(monkeypatch, pipelines, {"KNeighborsTransformer": transformer})
    test(**given)  # asserts on what ours finds
    assert called


def test_what_is_left_out_or_fails_is_there():
    assert all(hasattr(spectral, name) for name in LEFT_OUT)
    assert all(hasattr(pipelines, name) for name in WITH_OTHERS | FAIL)


# -- ClustPy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_check_of_clustpy_passes(criterion, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else the array API check skips all
    checks = pytest.importorskip("clustpy.utils.checks", reason="needs ClustPy: `make others`")
    checks.check_clustpy_estimator(SpecialK(criterion=criterion), checks_to_ignore=())


# -- scanpy ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cells():
    scanpy = pytest.importorskip("scanpy", reason="needs scanpy: `make others`")
    data = scanpy.datasets.pbmc68k_reduced()
    data.obsm["X_pca"] = data.obsm["X_pca"].astype(np.float64)  # theirs rounds in float32
    return data


def test_scanpy_makes_the_same_graph_with_our_transformer_as_with_its_own(cells):
    import scanpy

    for name, chosen in (("ours", ExactNeighborsTransformer(15)), ("theirs", "sklearn")):
        scanpy.pp.neighbors(cells, n_neighbors=15, transformer=chosen, key_added=name)
    both = [cells.obsp[f"{name}_connectivities"].toarray() for name in ("ours", "theirs")]
    np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-7)
    ours, theirs = (cells.obsp[f"{name}_distances"] for name in ("ours", "theirs"))
    near = theirs.toarray() > 0  # without the farthest: theirs count the cell itself
    np.testing.assert_allclose(ours.toarray()[near], theirs.toarray()[near], rtol=1e-6)


def test_leiden_and_paga_of_scanpy_take_our_clusters_and_neighbours(cells):
    import scanpy

    from specialk_gpu import tl

    scanpy.pp.neighbors(cells, n_neighbors=15, transformer=ExactNeighborsTransformer(15))
    scanpy.tl.leiden(cells, flavor="igraph", n_iterations=2, directed=False)
    tl.specialk(cells, random_state=0, backend="numpy")
    scanpy.tl.paga(cells, groups="specialk")
    k = cells.obs["specialk"].cat.categories.size
    assert cells.uns["paga"]["connectivities"].shape == (k, k)
    with_leiden = adjusted_rand_score(cells.obs["specialk"], cells.obs["leiden"])
    assert with_leiden > 0.3  # two methods on the same cells
