"""Arrays, data frames and graphs of other libraries: results are of the kind that came in."""

import json
import warnings
from pathlib import Path
from types import SimpleNamespace

import fits
import igraph
import networkx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from oracles import to_scipy
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score

from specialk_gpu import (
    DuplicateRowsWarning,
    GraphWarning,
    ScaleWarning,
    SpecialK,
    eigenpairs,
    kmeans,
    knn_graph,
    nearest_neighbors,
    zz_top,
)
from specialk_gpu._scales import unequal_scales
from specialk_gpu._validation import output_converter
from specialk_gpu.backend import cpu, get_backend
from specialk_gpu.graph import rows as found_rows
from specialk_gpu.inspection.diagnostics import pair_matrix

BLOBS, _ = make_blobs(180, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)
SHORT = np.random.default_rng(0).integers(-99, 99, (60, 20), dtype=np.int8)
TEXT = BLOBS.astype(str)


def fit(X, backend="numpy", **settings):
    return SpecialK(backend=backend, random_state=0, **settings).fit(X)


def arrays(model, X):
    """Return all that a fitted model gives out as dense arrays."""
    steps = [step.labels for step in model.path_]
    fitted = [model.labels_, model.embedding_, model.eigenvalues_, model.residuals_]
    return [*steps, *fitted, model.predict(X), model.predict_proba(X)]


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
    np.testing.assert_array_equal(model.labels_, fits.fit(BLOBS).labels_)
    assert isinstance(model.labels_, np.ndarray)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert not hasattr(model.fit(BLOBS), "feature_names_in_")


# -- the rule of kinds ----------------------------------------------------------------------------


def memory_map(tmp_path):
    np.save(tmp_path / "X.npy", BLOBS)
    return np.load(tmp_path / "X.npy", mmap_mode="r")


HOST = {
    "list": lambda _: BLOBS.tolist(),
    "array": lambda _: BLOBS,
    "memory map": memory_map,
    "pandas": lambda _: pd.DataFrame(BLOBS),
    "polars": lambda _: pl.DataFrame(BLOBS, list("abc")),
    "pyarrow": lambda _: pa.table(dict(zip("abc", BLOBS.T, strict=True))),
}


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", HOST)
def test_what_is_on_the_host_gives_numpys_arrays(tmp_path, kind, backend):
    X = HOST[kind](tmp_path)
    model = fit(X, backend)
    assert {type(array) for array in arrays(model, X)} == {np.ndarray}
    assert sparse.issparse(model.affinity_matrix_)


@pytest.mark.parametrize(
    ("X", "dtype"),
    [
        (BLOBS.astype(np.float32), np.float32),
        (pd.DataFrame(BLOBS.astype(np.float32)), np.float32),
        (pl.DataFrame(BLOBS.astype(np.float32), list("abc")), np.float32),
        (pa.table(dict(zip("abc", BLOBS.T.astype(np.float32), strict=True))), np.float32),
        (pl.DataFrame(SHORT, [f"c{i}" for i in range(20)]), np.float32),
        (pd.DataFrame(SHORT), np.float32),
        (BLOBS.astype(np.float16), np.float32),
        (SHORT > 0, np.float32),
        (SHORT.astype(np.int64), np.float64),
        (pd.DataFrame(BLOBS).astype({0: np.float32}), np.float64),
    ],
)
def test_what_fits_into_float32_stays_there(X, dtype):
    assert fit(X)._fit_X.dtype == dtype


def test_what_is_missing_or_to_come_is_refused():
    with pytest.raises(ValueError, match="no masked entries"):
        fit(np.ma.masked_greater(BLOBS, 9))
    with pytest.raises(TypeError, match="got a LazyFrame .* collect"):
        fit(pl.DataFrame(BLOBS, list("abc")).lazy())


class Foreign:
    """An array on a device, of a library of its own."""

    def __init__(self, namespace):
        self.namespace = namespace

    def __dlpack_device__(self):
        return 2, 0

    def __array_namespace__(self):
        return self.namespace


def test_what_is_on_a_device_is_handed_back_to_its_library():
    taken = SimpleNamespace(from_dlpack=lambda x: ("taken", x))
    dense, graph = np.eye(3), sparse.csr_matrix(np.eye(3))
    assert output_converter(Foreign(taken))(dense) == ("taken", dense)
    assert output_converter(Foreign(taken))(graph) is graph  # DLPack has no sparse matrices
    assert output_converter(Foreign(SimpleNamespace()))(dense) is dense  # as CuPy has it


@pytest.fixture(params=["cupy", "torch", "jax"])
def on_a_device(request):
    """Return what brings an array to a device, and the library that it is of there."""
    library = pytest.importorskip(request.param)
    if request.param == "torch" and not library.cuda.is_available():
        pytest.skip("PyTorch without CUDA")
    if request.param == "jax":
        if library.default_backend() != "gpu":
            pytest.skip("JAX without CUDA")
        library.config.update("jax_enable_x64", val=True)  # else all its arrays are of 32 bits
    bring = {
        "cupy": lambda x: library.asarray(x),
        "torch": lambda x: library.from_numpy(x).cuda(),
        "jax": lambda x: library.device_put(x),
    }
    return bring[request.param], request.param


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_on_a_device_give_arrays_of_their_library_there(on_a_device, dtype, tmp_path):
    bring, library = on_a_device
    bk, host = get_backend("cuda"), BLOBS.astype(dtype)
    X = bring(host)
    model = fit(X, "auto")
    expected = fit(np.asarray(host, dtype=str(X.dtype).rpartition(".")[2]), "cuda")
    found = arrays(model, X)
    assert {type(array).__module__.partition(".")[0].removesuffix("lib") for array in found} == {
        library
    }
    for ours, theirs in zip(found, arrays(expected, host), strict=True):
        assert ours.dtype.itemsize == theirs.dtype.itemsize
        np.testing.assert_allclose(bk.to_numpy(bk.asarray(ours)), theirs, atol=1e-12)
    np.testing.assert_allclose(pair_matrix(model), pair_matrix(expected), rtol=1e-12)
    model.save(tmp_path / "model.npz")
    model.report(tmp_path / "report.html")
    loaded = SpecialK.load(tmp_path / "model.npz").set_params(backend="numpy")
    np.testing.assert_array_equal(loaded.predict(host), expected.labels_)


@pytest.mark.gpu
def test_arrays_on_a_device_are_not_copied_to_the_host(tmp_path):
    """Counted by CUDA's own profiler, whoever copies."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch without CUDA")
    bk = get_backend("cuda")
    X = np.tile(BLOBS, (20, 20))  # 1.7 MB
    X = bk.asarray(X + 1e-3 * np.random.default_rng(0).standard_normal(X.shape))  # no duplicates
    fit(X, "cuda").predict(X)  # compiles
    bk.synchronize()

    def copied(call):
        """Return the bytes of each copy from the device."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            call()
            bk.synchronize()
        seen.export_chrome_trace(str(tmp_path / "trace.json"))
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        return [e["args"]["bytes"] for e in events if "DtoH" in e["name"] and "args" in e]

    if X.nbytes not in copied(X.get):
        pytest.skip("the profiler does not see a copy that was made")
    assert max(copied(lambda: fit(X, "cuda").predict(X)), default=0) < X.nbytes / 4


# -- text -----------------------------------------------------------------------------------------


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
        pa.table({"d": pd.date_range("2020", periods=50), "x": np.arange(50.0)}),
        pd.DataFrame({"d": pd.period_range("2020", periods=50), "x": np.arange(50.0)}),
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
    with pytest.raises(TypeError, match="a graph of .* needs affinity='precomputed'"):
        SpecialK(backend="numpy").fit(graph)


def test_edges_without_weights_count_one():
    model = SpecialK(backend="numpy", affinity="precomputed", n_clusters=1)
    for graph in (networkx.path_graph(5), igraph.Graph.Ring(5, circular=False)):
        W = model.fit(graph).affinity_matrix_.toarray()
        np.testing.assert_array_equal(W, np.eye(5, k=1) + np.eye(5, k=-1))


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.uint8, np.int16, np.uint64])
def test_short_integers_of_numpy_are_integers(number):
    X, _ = make_blobs(600, 3, centers=3, random_state=0)
    plain = fit(X, n_neighbors=12, n_init=6, criterion="zz_top")
    short = fit(X, n_neighbors=number(12), n_init=number(6), criterion="zz_top")
    assert short.path_ == plain.path_
    assert (nearest_neighbors(X, number(12)).indices == nearest_neighbors(X, 12).indices).all()
    one, other = (kmeans(X, k, n_init=k, random_state=0) for k in (number(5), 5))
    assert (one.labels == other.labels).all()
    W = knn_graph(X)
    one, other = (eigenpairs(W, k, random_state=0).values for k in (number(7), 7))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda W, _: eigenpairs(W, 3, max_iter=0), ValueError, "max_iter must be at least 1"),
        (lambda W, _: eigenpairs(W, 3, max_iter="a"), TypeError, "max_iter must be an integer"),
        (lambda W, _: eigenpairs(W, 3, tol="a"), TypeError, "tol must be a number, got 'a'"),
        (lambda W, _: eigenpairs(W, 3, tol=np.nan), ValueError, "tol must be positive, got nan"),
        (lambda W, _: eigenpairs(W, 2.5), TypeError, "n must be an integer, got 2.5"),
        (lambda _, X: kmeans(X, 2, n_init=True), TypeError, "n_init must be an integer, got True"),
        (
            lambda _, X: nearest_neighbors(X, n_neighbors=True),
            TypeError,
            "n_neighbors must be an integer",
        ),
        (lambda _, X: SpecialK(n_clusters=True).fit(X), TypeError, "n_clusters must be an integer"),
        (lambda _, X: zz_top(X, [0.5, 1.5] * 30), TypeError, "labels must hold integers, got"),
        (lambda _, X: zz_top(X + 0j, [0, 1] * 30), TypeError, "D must hold real numbers, got"),
    ],
)
def test_what_is_no_number_of_the_right_kind_is_refused(call, error, message):
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(error, match=message):
        call(knn_graph(X), X)


def test_paths_are_equal_if_all_their_candidates_are():
    X, _ = make_blobs(300, 2, centers=3, random_state=0)
    one, same, other = (fit(x) for x in (X, X, X[:200]))
    assert one.path_ == same.path_
    assert one.path_ != other.path_
    assert one.path_[0] != 3


def test_a_subclass_of_a_networkx_graph_is_a_graph():
    X, _ = make_blobs(200, 2, centers=2, random_state=0)
    graph = networkx.from_scipy_sparse_array(knn_graph(X))
    own = type("Own", (networkx.Graph,), {"__module__": "elsewhere"})(graph)
    fits = [fit(g, affinity="precomputed") for g in (graph, own)]
    assert (fits[0].labels_ == fits[1].labels_).all()


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_where_only_distinct_rows_are_clustered_all_rows_count_for_the_sizes(criterion):
    X, y = make_blobs(180, 2, centers=[(0, 0), (15, 0), (0, 15)], random_state=0)
    times = np.array([12, 30, 20])[y]
    with pytest.warns(DuplicateRowsWarning):
        model = fit(np.repeat(X, times, axis=0), criterion=criterion)
    np.testing.assert_array_equal(np.bincount(model.labels_), [1800, 1200, 720])
    for step in model.path_:
        assert (np.diff(np.bincount(step.labels)) <= 0).all()
        np.testing.assert_array_equal(model.labels_at(step.k), step.labels)
        if step.pair and "clusters" in step.reason and "between clusters" in step.reason:
            assert f"clusters {step.pair[0]} and {step.pair[1]}" in step.reason
    np.testing.assert_array_equal(model.membership_.argmax(axis=1), model.labels_)
    np.testing.assert_array_equal(model.predict(X), model.labels_[np.cumsum(times) - 1])


class Lent:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, X):
        self._X = X

    def __dlpack__(self, **settings):
        return self._X.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self._X.__dlpack_device__()


def test_what_speaks_dlpack_alone_is_read():
    found = SpecialK(backend="numpy", random_state=0, n_clusters=3).fit(Lent(BLOBS))
    expected = SpecialK(backend="numpy", random_state=0, n_clusters=3).fit(BLOBS)
    np.testing.assert_array_equal(found.labels_, expected.labels_)


def test_numbers_that_are_not_real_make_no_graph():
    with pytest.raises(ValueError, match=r"X must hold real numbers, got dtype complex128"):
        knn_graph(BLOBS + 0j)


def test_a_fraction_is_no_number_of_neighbours():
    with pytest.raises(TypeError, match=r"n_neighbors must be an integer, got 2\.5"):
        knn_graph(BLOBS, 2.5)


# -- scales, sizes --------------------------------------------------------------------------------


def customers(m=150):
    """Age in years, income in dollars and visits of three kinds of customers."""
    rng = np.random.default_rng(0)
    centers = np.array([(25, 30_000, 3), (45, 60_000, 20), (70, 90_000, 8)])
    return np.repeat(centers, m // 3, axis=0) + rng.normal(size=(m, 3)) * (3, 9_000, 1.5)


def test_columns_of_very_different_spreads_bring_a_warning_with_the_remedy(bk):
    X = customers()
    with pytest.warns(ScaleWarning, match=r"in column 1, and of .* in column 2\..*StandardScaler"):
        fit(bk.asarray(X), backend=bk.name)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    images = np.random.default_rng(0).normal(size=(200, 784)) * np.logspace(-6, 0, 784)
    leading = np.random.default_rng(0).normal(size=(200, 6)) * np.logspace(0, -4, 6)
    leading -= leading.mean(axis=0)
    constant = np.column_stack([BLOBS, np.full(len(BLOBS), 1e9)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)
        for quiet in (scaled, images, leading, constant):
            fit(bk.asarray(quiet), backend=bk.name)
        fit(bk.asarray(X), backend=bk.name, metric="cosine")


def test_pixels_share_a_unit_and_columns_of_a_table_do_not(bk):
    pixels = load_digits().data
    spread = pixels.std(axis=0)
    assert spread.max() > 100 * spread[spread > 0].min()  # as by the rule for tables
    whole = np.rint(customers())  # age, income and visits, in whole numbers
    flags = np.random.default_rng(0).integers(2, size=(150, 9))
    assert unequal_scales(bk.asarray(pixels)) is None
    for columns in ([0, 1], [0, 1, 2], [1, 2]):
        found = unequal_scales(bk.asarray(whole[:, columns]))
        assert found.widest == columns.index(1)
    assert unequal_scales(bk.asarray(np.column_stack([flags, whole]))).widest == 10
    assert unequal_scales(bk.asarray(pixels - 1)) is not None
    assert unequal_scales(bk.asarray(pixels / 3)) is not None


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[10**400, 1], [1, 2]], "X must fit into float64, got an integer that is too large"),
        (np.zeros(9, dtype=[("a", "f8"), ("b", "f8")]), "the fields a, b of a structured array"),
    ],
)
def test_what_is_no_matrix_of_floats_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        fit(X)


NO_ARRAY = r"X must be an array or a data frame of shape \(m, d\), got "
NO_MATRIX = r"X must have shape \(m, d\), rows and columns, got shape "
SPARSE = pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 0.0]}).astype(pd.SparseDtype(float, 0))


@pytest.fixture(scope="module")
def fitted():
    return fit(BLOBS)


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (None, TypeError, NO_ARRAY + "None"),
        ({}, TypeError, NO_ARRAY + "an object of type dict. Turn a dictionary .* pandas.DataFrame"),
        (
            "file.csv",
            TypeError,
            NO_ARRAY + "an object of type str. Read .* by specialk_gpu.io.read",
        ),
        (Path("x.csv"), TypeError, NO_ARRAY + "an object of type .*Path. Read a file first"),
        ({1, 2}, TypeError, NO_ARRAY + r"an object of type set. Turn it into a list: list\(X\)"),
        (iter([[1, 2]]), TypeError, NO_ARRAY + "an object of type list_iterator. Turn it into a"),
        (3, TypeError, NO_ARRAY + r"an object of type int\.$"),
        ([], ValueError, NO_MATRIX + r"\(0,\)"),
        ([1, 2], ValueError, NO_MATRIX + r"\(2,\). Reshape your data: .* if it is one column"),
        (pd.Series([1.0, 2.0]), ValueError, NO_MATRIX + r"\(2,\)"),
        (np.zeros((4, 3, 2)), ValueError, NO_MATRIX + r"\(4, 3, 2\). Reshape each row to one dim"),
        (
            [[1, 2], [3]],
            ValueError,
            "rows of one length, got 2 values in place 0, and 1 values in ",
        ),
        ([[1, 2], 3], ValueError, "rows of one length, got 2 values in place 0, and no row in pl"),
        ([[1, 2], [3, [4]]], ValueError, "X must hold a number in each place of its rows, got seq"),
        (
            [[1, 2], [3, {}]],
            TypeError,
            "X must hold numbers, got an object of type dict in row 1, ",
        ),
        (
            [[1, pd.NA], [3, 4]],
            TypeError,
            "got an object of type NAType in row 0, column 1: .*Fill",
        ),
        (
            pl.DataFrame({"a": [[1, 2]] * 3, "b": [1] * 3}),
            TypeError,
            "of type ndarray in row 0, column 0",
        ),
        (pd.DataFrame({"a": pd.array([1, None, 3])}), ValueError, "X contains NaN"),
        ([[1, None], [3, 4]], ValueError, "X contains NaN"),
        (pd.DataFrame(BLOBS)[[]], ValueError, r"X must have columns, got 0 feature\(s\)"),
        (pd.DataFrame(BLOBS)[[0, 0]], ValueError, "X must have columns of different names, got 0 "),
        (np.zeros((4, 2), "V4"), ValueError, r"X must be numeric, got .* \(dtype \|V4\)"),
        (SPARSE, TypeError, r"X must have dense columns, .*densify it with X.sparse.to_dense\(\)"),
        (
            sparse.eye_array(5),
            TypeError,
            r"a sparse X of shape \(5, 5\) is .*reduce .*TruncatedSVD",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_is_no_matrix_is_refused_with_what_came_instead(fitted, X, error, message):
    with pytest.raises(error, match=message):
        fit(X)
    with pytest.raises(error, match=message):
        fitted.predict(X)


@pytest.mark.skipif(
    np.finfo(np.longdouble).max == np.finfo(float).max, reason="a long double is a float64 here"
)
def test_a_long_double_beyond_float64_is_refused_without_a_warning_of_numpy():
    with pytest.raises(ValueError, match="infinity or a value too large"):
        fit(BLOBS.astype(np.longdouble) * np.longdouble("1e400"))


def test_memory_for_eigenvectors_is_asked_for_before_the_graph_is_built(monkeypatch):
    searched = []
    monkeypatch.setattr(found_rows, "search_neighbors", lambda *a: searched.append(a))
    monkeypatch.setattr(cpu, "free_memory", lambda: 10**6)
    X = np.random.default_rng(0).normal(size=(2000, 3))
    with pytest.raises(MemoryError, match=r"500 eigenvectors of 2000 rows need about .*n_comp"):
        fit(X, criterion="zz_top", n_components=500)
    assert not searched


def test_given_graphs_with_hubs_are_normalised_on_request_and_left_unchanged(bk):
    rng, y = np.random.default_rng(1), np.repeat([0, 1, 2], 60)
    edges = np.triu(rng.random((180, 180)) < np.where(y[:, None] == y, 0.4, 0.02), 1)
    A = (edges + edges.T).astype(float)
    W = sparse.block_diag([A, 0.005 * A], format="csr")
    given = bk.sparse.csr_matrix(W)
    settings = {"affinity": "precomputed", "backend": bk.name}
    with pytest.warns(GraphWarning, match="degrees of the graph .* Set normalize=True"):
        fit(given, **settings)
    model = fit(given, normalize=True, **settings)
    assert model.n_clusters_ == 6
    truth = np.repeat(np.arange(6), 60)
    assert adjusted_rand_score(truth, bk.to_numpy(model.labels_)) == 1
    assert (to_scipy(bk, given) != W).nnz == 0


def test_the_warning_of_scales_does_not_turn_on_the_order_of_columns():
    X = customers()
    for order in ([0, 1, 2], [1, 0, 2], [2, 0, 1], [1, 2, 0]):
        with pytest.warns(ScaleWarning):
            fit(X[:, order])


@pytest.mark.parametrize("value", [1e200, -1.7e308])
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_a_constant_column_changes_nothing_however_large_it_is(bk, value, affinity):
    def with_column(value):
        return bk.asarray(np.column_stack([BLOBS, np.full(len(BLOBS), value)]))

    X = with_column(value)
    expected = fit(with_column(0), bk.name, affinity=affinity)
    model = fit(X, bk.name, affinity=affinity)
    for one, other in zip(arrays(model, X), arrays(expected, with_column(0)), strict=True):
        np.testing.assert_array_equal(bk.to_numpy(one), bk.to_numpy(other))
    new = with_column(-value)  # another value there is as far from all fitted rows
    assert model.predict(new).shape == (len(BLOBS),)


def test_an_outlier_that_hides_all_distances_is_refused_with_its_place():
    X = np.column_stack([BLOBS, np.full(len(BLOBS), 1e200)])
    X[7, 3] = 2e200
    with pytest.raises(ValueError, match=r"as large as .* \(column 3, row 7\), so that .* Rescale"):
        fit(X)
