"""Whole fits: the backends find the same, and a fit that is repeated finds it bit by bit."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs, make_moons

from specialk_gpu import SpecialK, knn_graph, radius_graph
from specialk_gpu.backend import get_backend, indices
from specialk_gpu.backend.indices import index_dtype

# Graphs and cuts have the same bits on both backends, and the same labels the same calibrated p.
# Inertia and the bound are sums over D. Its columns agree within the residuals, 1e-12 at most, over
# the gaps between eigenvalues: on the host the dense solver and the filter agree to 3e-13 here.
RTOL = 1e-10
SETTINGS = {"n_components": 30, "n_init": 3, "max_clusters": 4, "random_state": 0}

DIGITS, DIGIT = load_digits(return_X_y=True)
ROWS = {
    "blobs": make_blobs(120, centers=[(0, 0), (6, 0), (0, 6)], random_state=0)[0],
    "moons": make_moons(200, noise=0.08, random_state=0)[0],
    "digits": DIGITS[DIGIT < 4][:120],
}
GRAPHS = {"W_C": {}, "W_R": {"affinity": "radius_neighbors", "coverage": 0.9}}


def fit(X, backend, **settings):
    """Return the fitted model and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = SpecialK(**SETTINGS | {"backend": backend} | settings).fit(X)
    return model, [str(warning.message) for warning in caught]


def on_host(x):
    return x.get() if hasattr(x, "get") else np.asarray(x)


def midpoints(X):
    """Return rows that are new, some of them between clusters."""
    return (X[:-1:3] + X[1::3]) / 2


def assert_same(found, expected):
    """Compare what two fits, each with its warnings, have found."""
    (found, told), (expected, foretold) = found, expected
    assert told == foretold
    assert found.n_clusters_ == expected.n_clusters_
    assert found.n_graph_components_ == expected.n_graph_components_
    assert found.radius_ == expected.radius_
    np.testing.assert_array_equal(on_host(found.labels_), expected.labels_)
    for one, other in zip(found.path_, expected.path_, strict=True):
        exact = ("k", "accepted", "reason", "pair")
        assert [getattr(one, name) for name in exact] == [getattr(other, name) for name in exact]
        np.testing.assert_array_equal(on_host(one.labels), other.labels)
        for name in ("log_p", "log_p_level", "log_zz_top", "inertia"):
            own, other_own = getattr(one, name), getattr(other, name)
            assert (own is None) == (other_own is None)
            if own is not None:
                np.testing.assert_allclose(own, other_own, rtol=RTOL, atol=0)


# -- the backends ---------------------------------------------------------------------------------


def check_both(X, k, **settings):
    """Compare a fit on CUDA with that on the host, and what both predict."""
    expected = fit(X, "numpy", **settings)
    assert expected[0].n_clusters_ == k
    found = fit(X, "cuda", **settings)
    assert (found[0].backend_, expected[0].backend_) == ("cuda", "numpy")
    assert_same(found, expected)
    shares = [model.predict_proba(midpoints(X)) for model, _ in (found, expected)]
    np.testing.assert_allclose(*shares, rtol=RTOL, atol=1e-14)  # means of memberships
    new = [model.predict(midpoints(X)) for model, _ in (found, expected)]
    np.testing.assert_array_equal(*new)
    return found[0]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("rows", "k"), [("blobs", 3), ("moons", 2), ("digits", 3)])
def test_cuda_finds_what_the_host_finds(rows, k, graph, dtype):
    check_both(ROWS[rows].astype(dtype), k, **GRAPHS[graph])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("settings", "k"),
    [
        ({"metric": "cosine", "weights": "distance"}, 3),
        ({"criterion": "zz_top", "n_components": 60}, 2),
        ({"criterion": "zz_top", "stopping": "watershed", "n_pairs": 3}, 2),
        ({"drop_correlated": 0.9, "full_path": True}, 3),
        ({"eigen_solver": "lanczos", "tol": 1e-12}, 3),
    ],
    ids=str,
)
def test_cuda_finds_what_the_host_finds_with_other_settings(settings, k):
    model = check_both(ROWS["digits"], k, **settings)
    assert model.eigen_solver_ == settings.get("eigen_solver", "dense")


@pytest.mark.gpu
@pytest.mark.parametrize("graph", GRAPHS)
def test_cuda_finds_what_the_host_finds_by_filtered_eigenpairs(graph):
    settings = {"eigen_solver": "chebyshev", "n_components": 20, "tol": 1e-12}
    model = check_both(ROWS["digits"], 3, **settings, **GRAPHS[graph])
    assert model.eigen_solver_ == "chebyshev"


@pytest.mark.gpu
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("copies", [3, 12])
def test_cuda_finds_what_the_host_finds_where_rows_are_copies(graph, copies):
    """Of twelve copies each has ten nearest rows that are equal to it; of three it has two."""
    X = make_blobs(60, centers=[(0, 0), (8, 0), (0, 8)], random_state=0)[0]
    check_both(np.repeat(X, copies, axis=0), 3, **GRAPHS[graph])


@pytest.mark.gpu
def test_cuda_finds_what_the_host_finds_in_all_digits():
    model = check_both(DIGITS, 5, n_components="auto", eigen_solver="dense", max_clusters=5)
    assert model.embedding_.shape == (1797, 60)


# -- graphs that are given ------------------------------------------------------------------------

MADE = {"W_C": knn_graph, "W_R": lambda X: radius_graph(X, coverage=0.9)[0]}
KINDS = {
    "csr of SciPy": lambda bk, W: W,  # noqa: ARG005
    "csr of CuPy": lambda bk, W: bk.sparse.csr_matrix(W),
    "csc of CuPy": lambda bk, W: bk.sparse.csc_matrix(W.tocsc()),
    "dense of CuPy": lambda bk, W: bk.asarray(W.toarray()),
    "dense of NumPy": lambda bk, W: W.toarray(),  # noqa: ARG005
}


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", MADE)
def test_cuda_finds_the_same_in_a_graph_of_any_kind(graph, kind):
    bk = get_backend("cuda")
    W = MADE[graph](ROWS["digits"])
    expected = fit(W, "numpy", affinity="precomputed")
    assert expected[0].n_clusters_ == {"W_C": 3, "W_R": 4}[graph]
    given = KINDS[kind](bk, W)
    found = fit(given, "cuda", affinity="precomputed")
    assert_same(found, expected)
    labels, shares = found[0].predict(given[:7]), found[0].predict_proba(given[:7])
    np.testing.assert_array_equal(on_host(labels), expected[0].predict(W[:7]))
    expected_shares = expected[0].predict_proba(W[:7])
    np.testing.assert_allclose(on_host(shares), expected_shares, rtol=RTOL, atol=1e-14)
    array = bk.xp.ndarray if "CuPy" in kind else np.ndarray
    assert {type(x) for x in (found[0].labels_, labels, shares)} == {array}


# -- the same fit again ---------------------------------------------------------------------------


def bits(model, X):
    """Return all that a fit finds and predicts, and not its times."""
    path = [(*step._replace(labels=None), step.labels.tobytes()) for step in model.path_]
    shares, W = model.predict_proba(midpoints(X)), model.affinity_matrix_
    arrays = model.labels_, model.eigenvalues_, model.embedding_, shares, W.data, W.indices
    return model.n_clusters_, path, [array.tobytes() for array in arrays]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("rows", ["blobs", "digits"])
def test_ten_fits_are_the_same_bit_by_bit(bk, rows, graph):
    X, settings = ROWS[rows][:60], {"n_init": 2, "max_clusters": 3} | GRAPHS[graph]
    first = bits(fit(X, bk.name, **settings)[0], X)
    for _ in range(9):
        assert bits(fit(X, bk.name, **settings)[0], X) == first


@pytest.mark.gpu
def test_the_stand_in_adds_in_an_order_that_differs(request):
    """Else ten fits on it would be the same whatever they add up."""
    if not request.config.getoption("--stand-in"):
        pytest.skip("how a device orders atomic sums is not known")
    xp = get_backend("cuda").xp
    place, weights = xp.zeros(100, dtype=np.int64), 10.0 ** xp.arange(-16, 4, 0.2)
    assert len({float(xp.bincount(place, weights)[0]) for _ in range(20)}) > 1


# -- more entries than 32 bits can number ----------------------------------------------------------


def test_the_indices_of_a_graph_are_as_wide_as_its_entries_need():
    assert index_dtype(2**31 - 1) == np.int32
    assert index_dtype(2**31) == np.int64


@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors", "precomputed"])
@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_a_fit_is_the_same_with_indices_of_64_bits(monkeypatch, tmp_path, affinity, criterion):
    X = ROWS["blobs"] if affinity != "precomputed" else knn_graph(ROWS["blobs"])
    new = midpoints(ROWS["blobs"]) if affinity != "precomputed" else X[:7]
    settings = {"affinity": affinity, "criterion": criterion}
    expected, _ = fit(X, "numpy", **settings)
    labels = expected.predict(new)
    monkeypatch.setattr(indices, "MAX_INT32_ENTRIES", 100)
    wide = []

    def of_64_bits(self, *_, **__):
        wide.append(self)
        return np.int64

    # SciPy makes indices narrow again where the entries are few; here it takes them for many
    monkeypatch.setattr(sparse.csr_matrix, "_get_index_dtype", of_64_bits)
    found, _ = fit(X, "numpy", **settings)
    assert wide
    for W in (
        found.affinity_matrix_,
        knn_graph(ROWS["blobs"]),
        radius_graph(ROWS["blobs"]).affinity,
    ):
        assert W.indices.dtype == W.indptr.dtype == np.int64
    found.save(tmp_path / "model")
    for model in (found, SpecialK.load(tmp_path / "model")):
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        np.testing.assert_array_equal(model.membership_, expected.membership_)
        np.testing.assert_array_equal(model.predict(new), labels)
        assert model.affinity_matrix_.indices.dtype == np.int64
        assert (model.affinity_matrix_ != expected.affinity_matrix_).nnz == 0
