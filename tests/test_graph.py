"""W_C, W_R and given affinities, against their dense definitions."""

import math

import numpy as np
import pytest
from oracles import csr, nearest, readonly, sq_distances, to_scipy
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from specialk_gpu import SpecialK, affinity_matrix, knn_graph, neighbors_graph, radius_graph
from specialk_gpu.backend import get_backend
from specialk_gpu.graph import knn as graph
from specialk_gpu.graph import radius as radius_module
from specialk_gpu.graph.features import features_of_unit_length
from specialk_gpu.graph.knn import normalised_graph
from specialk_gpu.graph.radius import refuse_radius_graph

normal = np.random.default_rng(0).normal
DATA = {
    "normal": normal(size=(200, 5)),
    "float32": normal(size=(200, 5)).astype(np.float32),
    "grid": np.stack(np.divmod(np.arange(36.0), 6), axis=1),
    "duplicates": np.repeat(normal(size=(30, 2)), 4, axis=0),
    "far apart": np.r_[normal(size=(40, 2)), normal(size=(40, 2)) + 1e4],
    "all equal": np.ones((20, 3)),
}


def check_csr(bk, W, m):
    """Return W in SciPy's format, sorted, without duplicates, symmetric to the bit."""
    W = to_scipy(bk, W)
    assert W.shape == (m, m)
    assert W.dtype == np.float64
    assert W.has_canonical_format
    dense = W.toarray()
    np.testing.assert_array_equal(dense, dense.T)
    assert (np.diag(dense) == 0).all()
    assert (W.data > 0).all()
    return dense


# W_C ----------------------------------------------------------------------------------------------


def dense_knn_graph(X, k, weights):
    distances, indices = nearest(X, k)
    A = np.zeros((len(X), len(X)))
    np.put_along_axis(A, indices, distances if weights == "distance" else 1.0, axis=1)
    G = (A + A.T) / 2
    degree = G.sum(axis=1)
    scale = 1 / np.sqrt(np.where(degree > 0, degree, np.inf))
    return scale[:, None] * G * scale


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("weights", ["connectivity", "distance"])
def test_the_knn_graph_is_its_definition(bk, data, k, weights):
    X = DATA[data]
    dense = check_csr(bk, knn_graph(readonly(bk, X), k, weights=weights), len(X))
    np.testing.assert_allclose(dense, dense_knn_graph(X, k, weights), rtol=1e-14, atol=0)


@pytest.mark.parametrize("weights", ["connectivity", "distance"])
@pytest.mark.parametrize("itself", ["first", "nowhere"])
def test_neighbors_found_elsewhere_give_the_same_graph(bk, weights, itself):
    X = DATA["normal"]
    search = NearestNeighbors(n_neighbors=7 + (itself == "first")).fit(X)
    distances, indices = search.kneighbors(X if itself == "first" else None)
    given = bk.asarray(indices), bk.asarray(distances)
    dense = check_csr(bk, neighbors_graph(*given, weights=weights), len(X))
    np.testing.assert_allclose(dense, dense_knn_graph(X, 7, weights), rtol=1e-9, atol=0)


def test_neighbors_that_were_not_found_are_left_out(bk):
    indices = np.array([[1, -1], [0, 2], [3, 1], [2, -1]])
    dense = to_scipy(bk, neighbors_graph(bk.asarray(indices))).toarray()
    np.testing.assert_array_equal(dense > 0, np.eye(4, k=1) + np.eye(4, k=-1) > 0)


@pytest.mark.parametrize(
    ("indices", "settings", "error", "message"),
    [
        ([[0.5, 1], [0, 1]], {}, TypeError, "indices must be integers, got dtype float64"),
        ([1, 0], {}, ValueError, r"two rows and a column at least, got shape \(2,\)"),
        ([[1], [2]], {}, ValueError, r"below the number of rows \(2\), got 2"),
        ([[1, 1], [0, -1]], {}, ValueError, "each neighbour of a row once, got the same one twice"),
        ([[1], [0]], {"weights": "distance"}, ValueError, r"shape of indices, \(2, 1\), got \(\)"),
        ([[1], [0]], {"weights": "distance", "distances": [[-1], [1]]}, ValueError, "not negative"),
        ([[0], [1]], {}, ValueError, "must name neighbours, got none beside the rows themselves"),
        ([[1], [0]], {"weights": "other"}, ValueError, "weights must be one of .* got 'other'"),
    ],
)
def test_neighbors_that_are_none_are_refused(indices, settings, error, message):
    with pytest.raises(error, match=message):
        neighbors_graph(np.array(indices), **settings)


@pytest.mark.parametrize("weights", ["connectivity", "distance"])
def test_cosine_is_the_distance_of_unit_rows(bk, weights):
    X = DATA["normal"]
    unit = X / np.linalg.norm(X, axis=1)[:, None]
    dense = check_csr(bk, knn_graph(bk.asarray(X), 5, weights=weights, metric="cosine"), len(X))
    np.testing.assert_allclose(dense, dense_knn_graph(unit, 5, weights), rtol=1e-9, atol=0)
    order = NearestNeighbors(n_neighbors=5, metric="cosine").fit(X).kneighbors_graph()
    np.testing.assert_array_equal(dense > 0, (order + order.T).toarray() > 0)
    W, radius = radius_graph(bk.asarray(X), 5, metric="cosine")
    expected = radius_graph(unit, 5)
    assert radius == pytest.approx(expected.radius)
    assert abs(to_scipy(bk, W) - expected.affinity).nnz <= 2  # the pair at the radius
    with pytest.raises(ValueError, match="metric must be one of .*, got 'manhattan'"):
        knn_graph(X, 5, metric="manhattan")


@pytest.mark.parametrize("data", DATA)
def test_the_knn_graph_has_a_spectrum_within_one(bk, data):
    X = DATA[data]
    dense = check_csr(bk, knn_graph(readonly(bk, X), 4), len(X))
    values = np.linalg.eigvalsh(dense)
    assert np.abs(values).max() == pytest.approx(1, abs=1e-12)
    assert ((dense > 0).sum(axis=1) >= 4).all()  # its own neighbours, and those that chose it


def test_few_rows_are_joined_to_all_others(bk):
    for m in (2, 3, 5):
        dense = check_csr(bk, knn_graph(readonly(bk, normal(size=(m, 2))), m - 1), m)
        np.testing.assert_allclose(dense, (1 - np.eye(m)) / (m - 1), rtol=1e-15)


def test_four_copies_and_three_points_keep_two_neighbours_each(bk):
    X = np.array([[0.0, 0]] * 4 + [[5, 5], [6, 6], [7, 7]])  # C02
    dense = check_csr(bk, knn_graph(readonly(bk, X), 2), 7)
    assert (dense[:4, 4:] == 0).all()
    assert ((dense > 0).sum(axis=1) >= 2).all()


def test_unknown_weights_are_refused(bk):
    with pytest.raises(ValueError, match="weights must be one of .*, got 'rbf'"):
        knn_graph(bk.xp.ones((5, 2)), 2, weights="rbf")


def test_rows_without_entries_stay_empty_in_a_normalised_graph(bk):
    G = sparse.csr_matrix(np.array([[0, 2.0, 0], [2, 0, 0], [0, 0, 0]]))
    found = to_scipy(bk, normalised_graph(bk.sparse.csr_matrix(G))).toarray()
    np.testing.assert_allclose(found, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])


# W_R ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(("k", "coverage"), [(1, 1.0), (3, 0.99), (10, 0.5), (10, 0.001)])
def test_the_radius_is_the_smallest_that_covers_and_the_graph_is_its_definition(
    bk, data, k, coverage
):
    X = DATA[data]
    W, radius = radius_graph(readonly(bk, X), k, coverage=coverage)
    distances = np.sqrt(sq_distances(X))
    np.fill_diagonal(distances, np.inf)
    dense = check_csr(bk, W, len(X))
    np.testing.assert_array_equal(dense, distances <= radius)
    needed = math.ceil(coverage * len(X))
    assert ((dense > 0).sum(axis=1) >= k).sum() >= needed
    assert ((distances < radius).sum(axis=1) >= k).sum() < needed
    given = radius_graph(readonly(bk, X), k, radius=radius) if radius > 0 else (W, radius)
    assert given[1] == radius
    assert (to_scipy(bk, given[0]) != to_scipy(bk, W)).nnz == 0


@pytest.mark.parametrize("radius", [1e-170, 1e-3, 0.7, 3.0, 1e30, 1e200])
def test_a_given_radius_is_used(bk, radius):
    X = DATA["normal"]
    W, found = radius_graph(readonly(bk, X), radius=radius)
    assert found == radius
    distances = np.sqrt(sq_distances(X))
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(check_csr(bk, W, len(X)), distances <= radius)


def test_isolated_rows_stay_as_empty_rows(bk):
    X = np.r_[normal(size=(200, 2)), [[1e3, 0], [0, 1e3], [-1e3, 0]]]  # C10
    W, radius = radius_graph(readonly(bk, X), 5, coverage=0.95)
    dense = check_csr(bk, W, 203)
    assert radius < 100
    assert (dense[-3:] == 0).all()
    assert dense[:-3].sum() > 0


@pytest.mark.parametrize("exponent", [-900, -400, 400, 900])
def test_the_radius_scales_with_the_data(bk, exponent):
    X = DATA["normal"]
    W, radius = radius_graph(readonly(bk, X), 5)
    scaled_W, scaled = radius_graph(readonly(bk, np.ldexp(X, exponent)), 5)
    assert np.ldexp(scaled, -exponent) == pytest.approx(radius, rel=1e-12)
    assert (to_scipy(bk, scaled_W) != to_scipy(bk, W)).nnz == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"coverage": 0}, r"coverage must lie in \(0, 1\], got 0"),
        ({"coverage": 1.5}, "got 1.5"),
        ({"coverage": float("nan")}, "got nan"),
        ({"radius": 0}, "radius must be a positive number, got 0"),
        ({"radius": -1.0}, "got -1.0"),
        ({"radius": float("nan")}, "got nan"),
        ({"radius": float("inf")}, "got inf"),
        ({"n_neighbors": 9}, r"\(4\), got 9"),
    ],
)
def test_arguments_out_of_range_are_refused(bk, arguments, message):
    with pytest.raises(ValueError, match=message):
        radius_graph(bk.asarray(normal(size=(5, 2))), **{"n_neighbors": 2, **arguments})


def test_too_many_edges_are_refused_before_they_are_listed(bk, monkeypatch):
    monkeypatch.setattr(bk, "free_memory", lambda: 10_000)
    with pytest.raises(MemoryError, match=r"39,800 edges at ε = 100 .* but 10 kB are free"):
        radius_graph(readonly(bk, DATA["normal"]), radius=100)


@pytest.mark.parametrize("n_edges", [2**31, 2**31 + 1, 60_000**2])
def test_edges_beyond_32_bits_are_refused_whatever_the_memory(n_edges):
    with pytest.raises(MemoryError) as caught:
        refuse_radius_graph(n_edges, 2**31 - 1, 2**60, 0.123456789)
    message = str(caught.value)
    for part in (
        f"{n_edges:,} edges",
        f"{16 * n_edges / 1e9:.1f} GB",
        "ε = 0.123457",
        "`coverage`",
    ):
        assert part in message
    assert "-" not in message.replace("32-bit", "")


def test_a_graph_of_neighbours_beyond_32_bits_is_refused_on_a_device(bk, monkeypatch):
    assert bk.max_entries == {"numpy": 2**63 - 1, "cuda": 2**31 - 1}[bk.name]
    monkeypatch.setattr(bk, "max_entries", 1000)
    with pytest.raises(MemoryError, match=r"200 rows has more than the 1,000 edges .*`n_neigh"):
        knn_graph(readonly(bk, DATA["normal"]), 10)


@pytest.mark.parametrize("weights", ["connectivity", "distance"])
@pytest.mark.parametrize("entries", [1, 7, 300, 2000])
def test_the_blocks_in_which_a_graph_is_assembled_do_not_matter(bk, monkeypatch, weights, entries):
    X = DATA["normal"]
    whole = knn_graph(readonly(bk, X), 10, weights=weights)
    monkeypatch.setattr(
        graph, "BLOCK_ENTRIES" if bk.name == "cuda" else "HOST_BLOCK_ENTRIES", entries
    )
    blocks = knn_graph(readonly(bk, X), 10, weights=weights)
    for part in ("data", "indices", "indptr"):
        one, other = (bk.to_numpy(getattr(W, part)) for W in (whole, blocks))
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_edges_that_fit_are_let_through():
    most = 2**31 - 1
    assert refuse_radius_graph(most, most, 2**40, 1.0) is None
    assert refuse_radius_graph(0, most, 0, 1.0) is None
    assert refuse_radius_graph(2000, most, 30_000, 1.0) is None  # twelve bytes each: four fifths
    with pytest.raises(MemoryError, match="needs 24 kB, but 30 kB are free"):
        refuse_radius_graph(2000, most, 29_999, 1.0)
    wide = 16 * 2**31  # numbers of 64 bits
    assert refuse_radius_graph(2**31, 2**63 - 1, wide * 5 // 4, 1.0) is None
    with pytest.raises(MemoryError, match="needs 34.4 GB, but 42.9 GB are free"):
        refuse_radius_graph(2**31, 2**63 - 1, wide * 5 // 4 - 1, 1.0)


def test_a_square_is_the_largest_whose_root_is_at_most_the_radius():
    for radius in (1.0, 3.0, 0.1, 1e-150, 1e149, *np.random.default_rng(0).random(200)):
        square = radius_module._largest_sq_radius(float(radius))
        assert math.sqrt(square) <= radius < math.sqrt(math.nextafter(square, math.inf))
    assert 1e300 <= radius_module._largest_sq_radius(1e300) < math.inf


# Given affinities ---------------------------------------------------------------------------------


def symmetric(m=60, seed=0):
    W = sparse.random_array((m, m), density=0.1, rng=seed, format="csr")
    return sparse.csr_matrix(W + W.T)


def test_a_symmetric_affinity_is_kept(bk):
    W = symmetric()
    found = affinity_matrix(csr(bk, W))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(to_scipy(bk, found).toarray(), W.toarray())
    np.testing.assert_array_equal(
        to_scipy(bk, affinity_matrix(readonly(bk, W.toarray()))).toarray(), W.toarray()
    )


@pytest.mark.parametrize("format_", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_every_format_of_scipy_is_taken(format_, kind):
    W = symmetric(m=40)
    given = W.asformat(format_) if kind == "matrix" else sparse.csr_array(W).asformat(format_)
    found = affinity_matrix(given)
    assert isinstance(found, sparse.csr_matrix)
    np.testing.assert_array_equal(found.toarray(), W.toarray())


@pytest.mark.parametrize("dtype", [bool, np.int32, np.int64, np.uint8, np.float32])
def test_every_real_type_becomes_float64(bk, dtype):
    W = (symmetric().toarray() > 0).astype(dtype)
    found = to_scipy(bk, affinity_matrix(readonly(bk, W)))
    np.testing.assert_array_equal(found.toarray(), W.astype(np.float64))


def test_indices_of_64_bits_are_taken():
    W = symmetric()
    W.indices, W.indptr = W.indices.astype(np.int64), W.indptr.astype(np.int64)
    np.testing.assert_array_equal(affinity_matrix(W).toarray(), W.toarray())


@pytest.mark.parametrize("format_", ["csr", "coo"])
def test_unsorted_repeated_and_zero_entries_are_cleaned_without_touching_the_given(format_):
    data, column = np.array([2.0, 1, 0, 2, 1, 0, 0]), np.array([1, 1, 0, 0, 0, 2, 0])
    row, indptr = np.array([0, 0, 0, 1, 1, 2, 2]), np.array([0, 3, 5, 7])
    parts = {"csr": (data, column, indptr), "coo": (data, row, column)}[format_]
    given = {
        "csr": lambda: sparse.csr_matrix(parts, shape=(3, 3)),
        "coo": lambda: sparse.coo_matrix((data, (row, column)), shape=(3, 3)),
    }[format_]()
    before = [part.copy() for part in parts]
    found = affinity_matrix(given)
    assert given.nnz == 7
    for part, copy in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part, copy)
    assert found.nnz == 2
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), [[0, 3, 0], [3, 0, 0], [0, 0, 0]])


def test_an_asymmetric_affinity_is_refused_and_round_off_averaged(bk):
    W = sparse.csr_matrix(sparse.random_array((60, 60), density=0.2, rng=1))  # C11
    for given in (csr(bk, W), readonly(bk, W.toarray())):
        with pytest.raises(ValueError, match="must be symmetric, got .* up to 1 with"):
            affinity_matrix(given)
    W = symmetric()
    noisy = W.copy()
    noisy.data *= 1 + 1e-12 * normal(size=W.nnz)
    found = to_scipy(bk, affinity_matrix(csr(bk, noisy))).toarray()
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, W.toarray(), rtol=1e-11)


def test_half_of_the_smallest_number_is_no_entry(bk):
    W = sparse.csr_matrix(np.array([[1.0, 5e-324], [0.0, 1.0]]))
    found = to_scipy(bk, affinity_matrix(csr(bk, W)))
    assert found.nnz == 2
    np.testing.assert_array_equal(found.toarray(), np.eye(2))


def symmetric_but_for_round_off(dtype):
    """Return D^-½ A D^-½ of two groups of 30, computed in `dtype`; the products differ by order."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(30, 3)), rng.normal(size=(30, 3)) + 6]
    A = np.exp(-sq_distances(X) / 8).astype(dtype)
    scale = (1 / np.sqrt(A.sum(axis=1, dtype=dtype))).astype(dtype)
    return scale[:, None] * A * scale


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_round_off_of_the_dtype_that_came_in_is_averaged_away(bk, dtype):
    W = symmetric_but_for_round_off(dtype)
    assert (W != W.T).any()
    forms = [readonly(bk, W)] + ([] if dtype == np.float16 else [csr(bk, W, dtype)])
    mean = (W.astype(np.float64) + W.T.astype(np.float64)) / 2
    for given in forms:
        np.testing.assert_array_equal(to_scipy(bk, affinity_matrix(given)).toarray(), mean)
        model = SpecialK(backend=bk.name, affinity="precomputed", n_clusters=2, random_state=0)
        labels = bk.to_numpy(bk.asarray(model.fit(given).labels_))
        assert labels.tolist() == [labels[0]] * 30 + [labels[-1]] * 30


def test_cosine_similarities_in_row_blocks_are_symmetric_enough(bk):
    X = np.random.default_rng(0).random((200, 3000), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    S = np.vstack([X[i : i + 37] @ X.T for i in range(0, 200, 37)])
    S[3, 5] = np.nextafter(S[5, 3], np.float32(2))  # whatever the products are like here
    found = to_scipy(bk, affinity_matrix(readonly(bk, S))).toarray()
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, S, rtol=2e-6)


@pytest.mark.parametrize(
    ("dtype", "gap"),
    [(np.float16, 0.01), (np.float32, 1e-5), (np.float64, 1e-7), (np.int64, 1), (bool, 1)],
)
def test_an_asymmetry_beyond_the_round_off_of_its_dtype_is_refused(bk, dtype, gap):
    W = np.ones((5, 5), dtype=dtype)
    W[1, 3] = 1 - gap
    with pytest.raises(ValueError, match="must be symmetric, got .* may be round-off"):
        affinity_matrix(readonly(bk, W))
    if dtype != np.float16:  # SciPy has no such sparse matrix
        W = sparse.csr_matrix(W)
        for door in (affinity_matrix, SpecialK(backend="numpy", affinity="precomputed").fit):
            with pytest.raises(ValueError, match="must be symmetric"):
                door(W)


@pytest.mark.parametrize("unit", [2.0**-1060, 1e-310, 1e-200, 1e200, 1e289])
def test_the_clusters_of_a_graph_do_not_depend_on_its_unit(unit):
    W = symmetric_but_for_round_off(np.float64)
    W = (W + W.T) / 2
    W[W < 1e-3] = 0
    settings = {"affinity": "precomputed", "backend": "numpy", "random_state": 0}
    expected = SpecialK(n_clusters=2, **settings).fit(W)
    found = SpecialK(n_clusters=2, **settings).fit(W * unit)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_allclose(found.membership_, expected.membership_, atol=1e-3)
    assert np.isfinite(found.embedding_).all()


def test_entries_whose_sums_may_be_infinite_are_refused(bk):
    with pytest.raises(ValueError, match=r"must be at most 1e\+290, got 1e\+307"):
        affinity_matrix(readonly(bk, np.full((3, 3), 1e307)))


@pytest.mark.parametrize("unit", [1e-310, 1e-250, 1e250, 1e306])
def test_the_graph_of_distances_does_not_depend_on_their_unit(bk, unit):
    X = DATA["normal"]
    expected = to_scipy(bk, knn_graph(bk.asarray(X), weights="distance")).toarray()
    found = to_scipy(bk, knn_graph(bk.asarray(X * unit), weights="distance")).toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    distances, indices = nearest(X, 10)
    given = bk.asarray(indices), bk.asarray(distances * unit)
    found = to_scipy(bk, neighbors_graph(*given, weights="distance")).toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_distances_beyond_the_largest_number_have_a_graph(bk):
    X = np.r_[np.eye(5), -1.01 * np.eye(5)]
    expected = to_scipy(bk, knn_graph(bk.asarray(X), 3, weights="distance")).toarray()
    found = to_scipy(bk, knn_graph(bk.asarray(X * 1.7e308), 3, weights="distance")).toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_normalising_keeps_components_of_any_size(bk):
    tiny, huge = np.array([[0, 3e-310], [3e-310, 0]]), np.array([[0, 1e200], [1e200, 0]])
    G = sparse.csr_matrix(sparse.block_diag([tiny, huge]))
    found = to_scipy(bk, normalised_graph(bk.sparse.csr_matrix(G))).toarray()
    np.testing.assert_allclose(found, [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    near_the_end = bk.sparse.csr_matrix(sparse.csr_matrix(np.full((4, 4), 1.5e308)))
    np.testing.assert_allclose(to_scipy(bk, normalised_graph(near_the_end)).toarray(), 0.25)


@pytest.mark.parametrize(
    ("value", "name"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (-2.0, "-2.0")]
)
def test_the_first_bad_entry_is_named(bk, value, name):
    W = symmetric().toarray()
    W[17, 40] = W[40, 17] = W[30, 31] = value  # C12
    message = f"not negative, got {name} at row 17, column 40"
    for given in (csr(bk, W), readonly(bk, W)):
        with pytest.raises(ValueError, match=message):
            affinity_matrix(given)
    with pytest.raises(ValueError, match="row 0, column 1"):
        affinity_matrix(readonly(bk, np.array([[1.0, value], [value, 1.0]])))


@pytest.mark.parametrize("shape", [(100, 10), (3,), (2, 2, 2)])
def test_features_are_not_taken_for_an_affinity(bk, shape):
    with pytest.raises(ValueError, match=f"square matrix of similarities, got shape .{shape[0]},"):
        affinity_matrix(bk.xp.ones(shape))  # C13


def test_an_affinity_without_entries_is_refused(bk):
    for given in (bk.sparse.csr_matrix((4, 4)), bk.xp.zeros((4, 4))):
        with pytest.raises(ValueError, match=r"\(4, 4\) has no entries above zero"):
            affinity_matrix(given)


def test_an_empty_row_and_a_diagonal_are_kept(bk):
    W = np.diag([1.0, 2, 0, 0])
    np.testing.assert_array_equal(to_scipy(bk, affinity_matrix(readonly(bk, W))).toarray(), W)


# Waits for the device ----------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(("n_outliers", "most"), [(0, 9), (50, 12)])
def test_a_graph_of_neighbours_waits_seldom(waits, n_outliers, most):
    X = np.random.default_rng(1).normal(size=(5000, 12)).astype(np.float32)
    X[:n_outliers] *= 1000  # these are done again in float32
    X = get_backend("cuda").asarray(X)
    with waits() as count:
        knn_graph(X, 10)
    assert count.waits <= most, str(count)
    assert count.bytes["d2h"] == 0


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "most"), [("normal", 17), ("integers", 19), ("cosine", 19)])
def test_a_radius_graph_of_five_thousand_rows_waits_seldom(waits, kind, most):
    X = np.random.default_rng(1).normal(size=(5000, 12)).astype(np.float32)
    X = get_backend("cuda").asarray(np.rint(99 * X) if kind == "integers" else X)
    with waits() as count:
        radius_graph(X, 10, metric="cosine" if kind == "cosine" else "euclidean")
    assert count.waits <= most, str(count)


@pytest.mark.gpu
def test_a_radius_graph_waits_five_times_a_tile_and_a_few_times_more(waits, monkeypatch):
    bk = get_backend("cuda")
    X = bk.asarray(np.random.default_rng(1).normal(size=(900, 12)).astype(np.float32))
    with waits() as one:
        expected = radius_graph(X, 10).affinity
    assert one.waits <= 17, str(one)
    monkeypatch.setattr(bk, "tile_bytes", 16 * 900 * 300)  # 300 rows in each of two passes
    with waits() as three:
        found = radius_graph(X, 10).affinity
    assert three.waits <= one.waits + 2 * 5, str(three)
    assert abs(found - expected).nnz == 0


def test_proportional_rows_are_duplicates_by_the_cosine(bk):
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(150, 4))
    X = np.repeat(directions, 12, axis=0) * rng.integers(1, 9, size=(1800, 1))
    found = bk.to_numpy(features_of_unit_length(bk.asarray(X)))
    assert len(np.unique(found, axis=0)) == 150
    exact = X / np.linalg.norm(X, axis=1)[:, None]
    np.testing.assert_allclose(found, exact, rtol=0, atol=2.0**-40)
