"""The CUDA kernels, and what backend/gpu.py does around them, against the NumPy backend."""

from importlib import import_module
from inspect import isfunction, signature
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from scipy.spatial.distance import cdist

from specialk_gpu import eigenpairs, embed, radius_graph, sweep
from specialk_gpu.backend import cpu, get_backend
from specialk_gpu.datasets import make_shape
from specialk_gpu.graph import neighbors
from specialk_gpu.graph.knn import knn_graph

pytestmark = pytest.mark.gpu

ON_HOST = ("sizes", "removed", "last")  # arguments that the seam takes as they are


class HostArrays:
    """A backend whose functions take and return arrays of the host."""

    def __init__(self, bk):
        self.bk = bk

    def __getattr__(self, name):
        function = getattr(self.bk, name)
        if not isfunction(function):
            return function

        def run(*args, **kwargs):
            host = signature(function).bind(*args, **kwargs).arguments
            given = {key: x if key in ON_HOST else self.to_device(x) for key, x in host.items()}
            found = function(**given)
            if "out" in given:
                host["out"][...] = self.bk.to_numpy(given["out"])
            return self.to_host(found)

        return run

    def to_device(self, x):
        if scipy.sparse.issparse(x):
            return self.bk.sparse.csr_matrix(x)
        return self.bk.asarray(x) if isinstance(x, np.ndarray) else x

    def to_host(self, x):
        if type(x) is tuple:
            return tuple(self.to_host(one) for one in x)
        return self.bk.to_numpy(x) if isinstance(x, self.bk.xp.ndarray) else x


def part(name):
    """Return a part of the CUDA backend."""
    return import_module(f"specialk_gpu.backend.gpu.{name}")


@pytest.fixture
def gpu():
    return HostArrays(get_backend("cuda"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("t", "m", "n"),
    [(3, 1000, 19), (2, 256, 256), (2, 5, 5), (1, 7000, 1), (3, 1300, 300), (2, 2000, 1000)],
)
def test_select_finds_all_the_smallest(gpu, dtype, t, m, n):
    rng = np.random.default_rng(m)
    products, offsets = (rng.standard_normal(shape).astype(dtype) for shape in ((t, m), (m,)))
    places, limits = gpu.select_smallest(products, offsets, n)
    scores = products + offsets
    for row in range(t):
        inside = np.sort(places[row][places[row] >= 0])
        assert inside.tolist() == np.flatnonzero(scores[row] <= limits[row]).tolist()
        assert inside.size >= n


@pytest.mark.parametrize("n", [128, 129, 256, 300])
def test_select_of_many_sorts_no_rows_and_cuts_none_short(waits, n):
    bk = get_backend("cuda")
    scores = np.random.default_rng(n).standard_normal((20, 7000)).astype(np.float32)
    given = bk.asarray(scores), bk.xp.zeros(7000, dtype=np.float32)
    with waits() as count:
        places, limits = map(bk.to_numpy, bk.select_smallest(*given, n))
    assert count.launches["collect"] == (n > 128)
    assert not any("partition" in line or "argsort" in line for line in count.by_line["call"])
    assert count.waits == 2, str(count)  # places and limits
    chosen = (places >= 0).sum(axis=1)
    assert (limits > -np.inf).all()
    assert (chosen >= n).all()
    assert chosen.mean() < 2 * n


def test_select_marks_rows_with_too_many_ties(gpu):
    zeros = np.zeros((1, 500), dtype=np.float32)
    places, limits = gpu.select_smallest(zeros, zeros[0], 3)
    assert limits[0] == -np.inf
    assert (places >= 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 31, 32, 33, 784])
def test_distances_have_the_bits_of_the_host(gpu, dtype, d):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((20, d)).astype(dtype)
    rows, columns = rng.integers(20, size=(2, 13))
    expected = cpu.pair_sq_distances(X, rows, columns)
    assert gpu.pair_sq_distances(X, rows, columns).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("width", "k"), [(12, 10), (1, 1), (70, 3), (300, 40)])
def test_ranking_is_that_of_the_host(gpu, dtype, width, k):
    rng = np.random.default_rng(width)
    X = rng.integers(3, size=(width + 5, 4)).astype(dtype)  # many ties
    rows = rng.integers(width + 5, size=3)
    places = np.stack([rng.permutation(np.delete(np.arange(width + 5), r))[:width] for r in rows])
    if width > k:
        places[0, ::7] = -1
        places[1, 0] = rows[1]
    expected = cpu.rank_candidates(X, rows, places, k)
    found = gpu.rank_candidates(X, rows, places, k)
    assert [x.tolist() for x in found] == [x.tolist() for x in expected]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "d"), [(1, 1), (9, 33), (20, 100)])
def test_hashes_are_those_of_the_host(gpu, dtype, m, d):
    rng = np.random.default_rng(d)
    X = np.rint(rng.standard_normal((m, d))).astype(dtype)  # with both zeros
    factors = rng.integers(2**63, size=d).astype(np.uint64) * 2 + 1
    assert gpu.row_hashes(X, factors).tolist() == cpu.row_hashes(X, factors).tolist()


@pytest.mark.parametrize(("t", "m", "d"), [(1, 3, 8), (5, 40, 24), (40, 40, 104)])
def test_float16_products_are_those_of_the_host(gpu, t, m, d):
    A = np.random.default_rng(m).standard_normal((m, d)).astype(np.float16)
    np.testing.assert_allclose(gpu.products(A[:t], A), cpu.products(A[:t], A), atol=d * 2e-6)


@pytest.mark.parametrize("kind", ["normal", "grid", "copies", "an outlier"])
def test_neighbours_by_way_of_the_kernels_are_those_of_the_host(gpu, kind):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 9)).astype(np.float32)
    if kind == "grid":
        X = np.stack(np.divmod(np.arange(64), 8), axis=1).astype(np.float32)
    if kind == "copies":
        X[30:] = X[:30]
    if kind == "an outlier":
        X[7] = 1e6
    expected = neighbors.nearest_neighbors(X, 5)
    found = neighbors.nearest_neighbors(gpu.to_device(X), 5)
    assert found.distances.tolist() == expected.distances.tolist()
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.n_redone == {"normal": 0, "grid": 0, "copies": 0, "an outlier": 1}[kind]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 31, 33, 64, 130])
@pytest.mark.parametrize(("alpha", "shift", "beta"), [(1, 0, 0), (2.5, 0.25, -1)])
@pytest.mark.parametrize("has_source", [False, True])
def test_spmm_is_the_recurrence(gpu, dtype, width, alpha, shift, beta, has_source):
    rng = np.random.default_rng(width)
    A = knn_graph(rng.standard_normal((45, 3)), 4).astype(dtype)
    X = rng.standard_normal((45, width)).astype(dtype)
    before = rng.standard_normal((45, width)).astype(dtype)
    out = before.copy() if beta else np.full_like(before, np.nan)
    source = rng.standard_normal((45, width)).astype(dtype), np.arange(width).astype(dtype) / width
    gpu.spmm(A, X, out, alpha, shift, beta, *(source if has_source else ()))
    expected = alpha * (A.toarray() @ X - shift * X) + (beta * before if beta else 0)
    expected += source[0] * source[1] * has_source
    assert np.abs(out - expected).max() < 20 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [7, 64, 120])
@pytest.mark.parametrize("panels", [1, 3])
def test_an_indicator_is_multiplied_exactly_in_pieces(gpu, monkeypatch, dtype, m, panels):
    rng = np.random.default_rng(m)
    dense = rng.random((m, m)) < 0.3
    dense = 0.75 * (dense | dense.T)
    dense[m // 2] = dense[:, m // 2] = 0
    with monkeypatch.context() as patch:
        patch.setattr(
            part("matrices"), "tile_bytes", 2**31 if panels == 1 else 30 * m
        )  # or row by row
        A = gpu.operator(scipy.sparse.csr_matrix(dense.astype(dtype)))
    assert isinstance(A, part("matrices")._IndicatorMatrix)
    assert (A.shape, A.dtype) == ((m, m), dtype)
    X, before = rng.standard_normal((2, m, 10))
    X = (X * 10.0 ** rng.integers(-9, 9, size=10)).astype(dtype)
    X[:, 4] = 0
    out = before.astype(dtype)
    n_pieces = {np.float32: 3, np.float64: 5}[dtype]
    budget = 4 * 6 * m * n_pieces * 10 // panels + 1
    monkeypatch.setattr(part("matrices"), "free_memory", lambda: budget)
    source, weights = before.astype(dtype)[::-1].copy(), np.arange(10).astype(dtype)
    gpu.spmm(A, X, out, 2.5, 0.25, -1.0, source, weights)
    expected = 2.5 * (dense @ X.astype(float) - 0.25 * X.astype(float)) - before.astype(dtype)
    expected += source * weights
    limit = 30 * np.finfo(dtype).eps * (1 + weights + np.abs(X).max(axis=0))
    assert (np.abs(out - expected) <= np.maximum(limit, 2.0**-46 * np.abs(X).max(axis=0))).all()


def test_integers_are_multiplied_without_any_error(gpu):
    rng = np.random.default_rng(2)
    dense = (rng.random((40, 40)) < 0.4).astype(float)
    X = rng.integers(-(2**40), 2**40, size=(40, 6)).astype(float)
    out = np.empty_like(X)
    gpu.spmm(gpu.operator(scipy.sparse.csr_matrix(dense)), X, out, 1.0, 0.0, 0.0)
    assert out.tolist() == (dense @ X).tolist()


def test_only_dense_matrices_of_equal_entries_become_indicators(gpu, monkeypatch):
    sparse = scipy.sparse.csr_matrix(scipy.sparse.eye_array(100))
    weighted = scipy.sparse.csr_matrix(np.arange(1.0, 17.0).reshape(4, 4))
    ones = scipy.sparse.csr_matrix(np.ones((4, 4)))
    sparse, weighted, ones = (gpu.to_device(A) for A in (sparse, weighted, ones))
    assert gpu.operator(sparse) is sparse
    assert gpu.operator(weighted) is weighted
    assert gpu.operator(ones) is not ones
    monkeypatch.setattr(part("matrices"), "free_memory", lambda: 90)
    assert gpu.operator(ones) is ones


def test_sums_of_pieces_stay_exact_in_the_fullest_row(gpu, monkeypatch):
    m = 8200  # more than 2^13
    row = np.ones(m), (np.zeros(m, dtype=int), np.arange(m))
    monkeypatch.setattr(part("matrices"), "DENSE_FROM", 0)
    bits = gpu.operator(scipy.sparse.csr_matrix(row, shape=(m, m))).bits
    assert 2**23 <= m * 2**bits <= 2**24


@pytest.mark.parametrize("density", [0.002, 0.01, 0.1])
def test_components_are_those_of_the_host(gpu, density):
    rng = np.random.default_rng(3)
    W = scipy.sparse.random_array((300, 300), density=density, rng=rng)
    W = scipy.sparse.csr_matrix(W + W.T)
    count, component = gpu.connected_components(W)
    expected_count, expected = cpu.connected_components(W)
    assert count == expected_count
    assert component.tolist() == expected.tolist()
    path = scipy.sparse.csr_matrix(scipy.sparse.diags_array([np.ones(99)] * 2, offsets=[-1, 1]))
    assert gpu.connected_components(path)[0] == 1


def test_components_are_found_by_threads_that_come_too_late(gpu):
    rng = np.random.default_rng(0)
    for _ in range(20):  # trees, all edges in one block: many threads want the same root
        below = [int(rng.integers(row)) for row in range(1, 8)]
        order = rng.permutation(8)
        W = scipy.sparse.csr_matrix((np.ones(7), (order[1:], order[below])), shape=(8, 8))
        count, component = gpu.connected_components(scipy.sparse.csr_matrix(W + W.T))
        assert (count, component.tolist()) == (1, [0] * 8)


@pytest.mark.filterwarnings("ignore::specialk_gpu.PowerWarning")
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_all_stages_together_give_what_the_host_gives(gpu, affinity):
    X, _ = make_shape("random", n_samples=150, random_state=0)

    def stages(X):
        W = knn_graph(X) if affinity == "nearest_neighbors" else radius_graph(X).affinity
        pairs = eigenpairs(W, 12, solver="chebyshev", random_state=0)
        D = embed(pairs.values, pairs.vectors)
        return W, pairs, sweep(D, max_clusters=4, n_init=3, full_path=True, random_state=0)

    W, pairs, found = stages(X)
    gpu_W, gpu_pairs, gpu_found = stages(gpu.to_device(X))
    assert abs(W - gpu_W.get()).nnz == 0
    assert gpu_pairs.converged
    np.testing.assert_allclose(gpu.to_host(gpu_pairs.values), pairs.values, rtol=1e-12)
    for step, gpu_step in zip(found.path, gpu_found.path, strict=True):
        assert gpu_step.labels.tolist() == step.labels.tolist()
        assert gpu_step.log_p == pytest.approx(step.log_p, rel=1e-9)


# -- k-means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "d", "sizes"),
    [
        (1, 1, [1]),
        (129, 3, [1, 1, 2, 5]),
        (300, 50, [2] * 33),  # in two groups
        (130, 64, [3, 16, 17]),  # more centres than a panel
        (200, 65, [1, 33, 70]),  # more columns than a panel
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_nearest_centers_are_those_of_the_host(gpu, m, d, sizes, order):
    rng = np.random.default_rng(m + d)
    X = rng.standard_normal((m, d)).astype(np.float64, order=order)
    sizes = np.array(sizes)
    centers = rng.standard_normal((sizes.size, sizes.max(), d))
    centers[np.arange(sizes.max()) >= sizes[:, None]] = np.nan  # padding is not read
    sq_norms = (X * X).sum(axis=1)
    labels, sq = gpu.nearest_center(X, sq_norms, centers, sizes)
    expected_labels, expected_sq = cpu.nearest_center(X, sq_norms, centers, sizes)
    assert (labels.dtype, sq.dtype) == (np.int32, np.float64)
    assert labels.tolist() == expected_labels.tolist()
    np.testing.assert_allclose(sq, expected_sq, rtol=1e-12, atol=1e-12)


def test_lists_of_centres_are_uploaded_once_for_each_stream(gpu, waits, monkeypatch):
    X, centers = (gpu.to_device(np.ones(shape)) for shape in ((5, 2), (3, 7, 2)))
    sq_norms, found = X[:, 0] + X[:, 1], []
    for stream in (8, 8, 16, 8):
        current = SimpleNamespace(ptr=stream)
        monkeypatch.setattr(gpu.cp.cuda, "get_current_stream", lambda current=current: current)
        with waits() as count:
            gpu.bk.nearest_center(X, sq_norms, centers, np.array([5, 6, 7]))
        found.append(count.bytes["h2d"] > 0)
    assert found == [True, False, True, False]


@pytest.mark.parametrize("k", [2, 40])
def test_equal_distances_go_to_the_smaller_label(gpu, k):
    X = np.array([[0.0], [1], [2], [-3]])
    centers = np.tile([[2.0], [0]], (1, k // 2, 1))  # 1 is as far from both, each comes k/2 times
    for bk in (gpu, cpu):
        labels, sq = bk.nearest_center(X, X[:, 0] ** 2, centers, np.array([k]))
        assert labels.tolist() == [[1, 0, 0, 1]]
        assert sq.tolist() == [[0, 1, 0, 9]]


@pytest.mark.parametrize("sizes", [[2], [2, 2, 3], [4, 9]])
def test_distances_without_a_centre_are_those_to_all_others(gpu, sizes):
    rng, sizes = np.random.default_rng(0), np.array(sizes)
    X, centers = rng.normal(size=(130, 4)), rng.normal(size=(sizes.size, sizes.max(), 4))
    removed = [rng.permutation(size)[:3] for size in sizes]
    to_all = cdist(centers[0], X, "sqeuclidean")
    expected = [
        cdist(X, np.delete(centers[r, :size], slot, axis=0), "sqeuclidean").min(axis=1)
        for r, size in enumerate(sizes)
        for slot in removed[r]
    ]
    for bk in (gpu, cpu):
        found = bk.nearest_without(X, (X * X).sum(axis=1), centers, sizes, removed)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        found = bk.sq_distances(X, (X * X).sum(axis=1), centers[0])
        np.testing.assert_allclose(found, to_all, rtol=1e-12, atol=1e-12)


def test_an_iteration_is_that_of_the_host(gpu):
    rng = np.random.default_rng(0)
    X, centers, sizes = rng.normal(size=(90, 4)), rng.normal(size=(2, 5, 4)), np.array([3, 5])
    lasts = [None, None]
    for step in range(3):
        given = X, X, (X * X).sum(axis=1), centers, sizes
        *found, lasts[0], exact = gpu.assign(*given, lasts[0])
        assert exact
        *expected, lasts[1], _ = cpu.assign(*given, lasts[1])
        found[1][1] = found[1][1] > 0  # the number of rows that changed
        assert found[1][1].tolist() == [step == 2] * 2
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
        if step == 1:
            centers = centers[:, ::-1] * 2
            centers[0, 1] = 1e3  # has no rows


@pytest.mark.parametrize("m", [1, 130, 9000])
def test_sums_of_minima_are_those_of_the_host(gpu, m):
    rng = np.random.default_rng(m)
    first, second, owner = rng.random((5, m)), rng.random((6, m)), np.array([0, 0, 1, 1, 1])
    found = gpu.sums_of_minima(first, second, owner, 3)
    np.testing.assert_allclose(found, cpu.sums_of_minima(first, second, owner, 3), rtol=1e-12)
    expected = np.minimum(first[3], second[5]).sum()
    assert found[3, 2] == pytest.approx(expected)


def test_the_largest_of_a_row_are_those_of_the_host(gpu):
    x = np.random.default_rng(0).integers(9, size=(4, 300)).astype(float)  # many ties
    for n in (1, 7, 300):
        expected = [sorted(range(300), key=lambda i, row=row: (-row[i], i))[:n] for row in x]
        assert cpu.largest(x, n).tolist() == expected
        assert gpu.largest(x, n).tolist() == expected


@pytest.mark.parametrize(
    ("m", "d", "k", "dtype"),
    [
        (1, 1, 1, np.float32),
        (67, 3, 2, np.float64),
        (130, 63, 5, np.float32),  # with the column of ones, as many as a block has threads
        (257, 64, 50, np.float64),  # more columns, and more labels, than a block holds
        (70, 130, 25, np.float32),
        (4230, 2, 3, np.float64),  # parts of 67 rows, where a thread takes four at a time
    ],
)
@pytest.mark.parametrize("squares", [False, True])
def test_segment_sums_are_those_of_the_host(gpu, m, d, k, dtype, squares):
    rng = np.random.default_rng(m)
    X = rng.standard_normal((m, d)).astype(dtype)
    labels = rng.integers(-1, k + 1, size=(2, m)).astype(np.int32)  # some outside
    labels[0][labels[0] == k // 2] = -7  # a label without rows
    found, again = (gpu.segment_sum(X, labels, k, squares=squares) for _ in range(2))
    expected = cpu.segment_sum(X, labels, k, squares=squares)
    assert len(found) == len(expected) == 2 + squares
    for one, other, same in zip(found, expected, again, strict=True):
        assert one.dtype == other.dtype == np.float64
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
        assert one.tolist() == same.tolist()
        assert not one[0, k // 2].any()
    assert found[0].sum() == ((labels >= 0) & (labels < k)).sum()


def test_segment_sums_of_a_labelling_do_not_depend_on_the_others(gpu, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 7))
    labels = rng.integers(60, size=(3, 150)).astype(np.int32)
    monkeypatch.setattr(part("lloyd"), "SUM_BYTES", 1)  # one labelling after another
    for bk in (gpu, cpu):
        whole = bk.segment_sum(X, labels, 60)
        for r in range(3):
            k = int(labels[r].max()) + 1
            alone = bk.segment_sum(X, labels[r : r + 1], k)
            for one, other in zip(whole, alone, strict=True):
                assert one[r, :k].tolist() == other[0].tolist()


@pytest.mark.parametrize("m", [1, 5, 256, 257, 700, 8200, 20000])
def test_draws_are_those_of_the_host(gpu, m):
    rng = np.random.default_rng(m)
    weights = rng.integers(4, size=(3, m)).astype(float)  # whole numbers: sums are exact
    weights[1] = 0
    draws = rng.integers(64, size=(3, 5)) / 64
    draws[:, 0] = 0
    weights[2, 0] = 64 - weights[2, 1:].sum() % 64  # targets of run 2 are whole numbers too
    rows = gpu.draw_rows(weights, draws)
    assert rows.dtype == np.int64
    assert rows.tolist() == cpu.draw_rows(weights, draws).tolist()
    running = np.cumsum(weights, axis=1)
    for r in range(3):
        for row, target in zip(rows[r], draws[r] * running[r, -1], strict=True):
            assert running[r, row] >= target
            assert row == 0 or running[r, row - 1] < target


@pytest.mark.parametrize("m", [999, 12345])
def test_draws_from_weights_of_any_size_are_in_proportion(gpu, m):
    weights = np.exp(np.random.default_rng(0).normal(scale=9, size=(1, m)))
    draws = (np.arange(200.0)[None] + 0.5) / 200
    rows = gpu.draw_rows(weights, draws)
    expected = cpu.draw_rows(weights, draws)
    assert (weights[0, rows[0]] > 0).all()
    assert rows.tolist() == expected.tolist()


def test_a_sweep_on_the_kernels_is_that_of_the_host(gpu):
    """All that k-means, the bounds and the sweep launch."""
    labels = np.arange(70) % 3
    D = np.abs(np.random.default_rng(0).normal(scale=0.05, size=(70, 90)))
    D += labels[:, None] == np.arange(90) % 3
    settings = {"n_init": 2, "n_kmeans_components": None, "max_clusters": 5, "random_state": 0}
    expected = sweep(D, **settings)
    found = sweep(gpu.to_device(D), **settings)
    assert found.n_clusters == expected.n_clusters == 3
    assert len(found.path) == len(expected.path)
    for step, other in zip(found.path, expected.path, strict=True):
        assert step.labels.tolist() == other.labels.tolist()
        np.testing.assert_allclose([step.log_p, step.inertia], [other.log_p, other.inertia], 1e-9)
