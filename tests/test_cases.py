"""Faults that people meet in software of this kind; the numbers are those of the list of cases."""

import gc
import math
import sys
import tracemalloc
import warnings
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

import specialk_gpu
from specialk_gpu import SpecialK, knn_graph
from specialk_gpu._result import NO_POWER
from specialk_gpu.backend import cpu, get_backend
from specialk_gpu.backend.driver import driver_verdict

BLOBS, BLOBS_Y = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
CLOUD = np.random.default_rng(0).normal(size=(40, 2))
COPIES, COPY = np.concatenate([CLOUD + [50 * i, 0] for i in range(6)]), np.arange(240) // 40


def fit(bk, X, **settings):
    """Fit on the backend; return the model and the warnings' messages."""
    X = X if sparse.issparse(X) and bk.name == "numpy" else bk.asarray(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = SpecialK(**{"backend": bk.name, "random_state": 0, **settings}).fit(X)
    return model, [str(warning.message) for warning in caught]


def labels_of(bk, model):
    """Labels on the host, checked to be consecutive from 0."""
    labels = bk.to_numpy(model.labels_)
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(np.unique(labels), np.arange(model.n_clusters_))
    assert bool(bk.xp.isfinite(model.embedding_).all())
    return labels


# -- C01: exact duplicates ------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [5, 10, 12])
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_every_row_repeated_gives_the_clusters_of_one_copy(bk, affinity, copies):
    model, messages = fit(bk, np.repeat(BLOBS, copies, axis=0), affinity=affinity)
    labels = labels_of(bk, model).reshape(-1, copies)
    assert (labels == labels[:, :1]).all()
    assert adjusted_rand_score(labels[:, 0], BLOBS_Y) == 1
    assert model.labels_.shape == (300 * copies,)
    assert model.embedding_.shape[0] == 300 * copies
    told = f"one of them {copies} times"
    assert sum(told in text and "n_neighbors=10" in text for text in messages) == 1


def test_one_row_repeated_often_joins_its_cluster(bk):
    X = np.concatenate([BLOBS, np.repeat(BLOBS[:1], 300, axis=0)])
    labels = labels_of(bk, fit(bk, X)[0])
    assert adjusted_rand_score(labels[:300], BLOBS_Y) == 1
    assert (labels[300:] == labels[0]).all()


@pytest.mark.parametrize("copies", [[11], [400], [400, 300]])
@pytest.mark.parametrize("n_clusters", [None, "all"])
def test_copies_far_from_all_other_rows_are_a_cluster(bk, tmp_path, copies, n_clusters):
    rows = np.random.default_rng(0).normal(size=(300, 2))
    values = np.array([(50.0, 0.0), (60.0, 0.0)])[: len(copies)]
    X = np.concatenate([rows, np.repeat(values, copies, axis=0)])
    y = np.repeat(np.arange(1 + len(copies)), [300, *copies])
    k = 1 + len(copies)
    model, messages = fit(bk, X, n_clusters=k if n_clusters else None)
    labels = labels_of(bk, model)
    assert adjusted_rand_score(labels, y) == 1
    assert model.path_[-1 if n_clusters else k - 1].accepted
    assert sum(f"except for copies of {len(copies)} that are far" in text for text in messages) == 1
    W, kept = model.affinity_matrix_, [min(n, 31) for n in copies]
    assert W.shape[0] == 300 + sum(kept)
    assert model.n_graph_components_ == k
    new = bk.asarray(np.concatenate([values + 1e-3, rows[:5] + 1e-3]))
    expected = np.concatenate([labels[np.cumsum([300, *copies])[:-1]], labels[:5]])
    np.testing.assert_array_equal(bk.to_numpy(model.predict(new)), expected)
    model.save(tmp_path / "model.npz")
    again = SpecialK.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(bk.to_numpy(new)), expected)


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
@pytest.mark.parametrize(("m", "copies"), [(11, 200), (30, 31), (40, 50), (150, 50)])
def test_copies_that_are_kept_stay_together_on_every_level(bk, m, copies, criterion):
    rows = np.random.default_rng(0).normal(size=(m, 2))
    X = np.concatenate([rows, np.full((copies, 2), 100.0)])
    for n_clusters in (None, 4):
        model = fit(bk, X, criterion=criterion, n_clusters=n_clusters, full_path=True)[0]
        for step in (step for step in model.path_ if step.k <= m + 1):
            labels = bk.to_numpy(bk.asarray(step.labels))
            assert len(set(labels[m:].tolist())) == 1
            assert (np.bincount(labels, minlength=step.k) > 0).all()


@pytest.mark.parametrize(
    ("X", "k"),
    [
        (np.concatenate([BLOBS[:100], np.repeat([[1.5, 1.5]], 400, axis=0)]), 3),
        (np.repeat(np.indices((20, 20)).reshape(2, -1).T.astype(float), 15, axis=0), 1),
        (np.repeat([[0.0], [1.0], [1e6]], 50, axis=0), 1),  # so few values that nothing is usual
    ],
    ids=["beside", "grid", "values"],
)
def test_copies_that_are_not_far_are_no_cluster_of_their_own(bk, X, k):
    model, messages = fit(bk, X)
    assert model.n_clusters_ == k
    assert not any("far from all others" in text for text in messages)
    assert model.affinity_matrix_.shape[0] == len(np.unique(X, axis=0))


@pytest.mark.parametrize("m", [2, 5, 11, 12, 50])
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_equal_rows_are_one_cluster_with_one_warning(bk, m, affinity):
    model, messages = fit(bk, np.full((m, 3), 0.1), affinity=affinity)
    assert model.n_clusters_ == 1
    assert not labels_of(bk, model).any()
    assert len(messages) == 1
    assert f"one of them {m} times" in messages[0]


def test_a_few_copies_of_each_row_keep_finite_answers(bk):
    labels = labels_of(bk, fit(bk, np.repeat(BLOBS, 2, axis=0))[0]).reshape(-1, 2)
    assert (labels[:, 0] == labels[:, 1]).all()
    assert adjusted_rand_score(labels[:, 0], BLOBS_Y) == 1


# -- C05: ties ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grid", "binary"])
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_ties_give_the_same_graph_on_every_backend_and_run(bk, name, affinity):
    X = np.stack(np.meshgrid(np.arange(6), np.arange(6)), axis=-1).reshape(-1, 2)
    if name == "binary":
        X = (np.arange(256)[:, None] >> np.arange(8)) & 1
    settings = {"n_neighbors": 3, "affinity": affinity, "n_components": 20}
    first, again = (fit(bk, X, **settings)[0] for _ in range(2))
    host = first if bk is cpu else fit(cpu, X, **settings)[0]
    for name in ("data", "indices", "indptr"):
        expected = getattr(host.affinity_matrix_, name)
        for model in (first, again):
            found = bk.to_numpy(getattr(model.affinity_matrix_, name))
            np.testing.assert_array_equal(found, expected)
    assert not first.affinity_matrix_.diagonal().any()
    np.testing.assert_array_equal(labels_of(bk, first), labels_of(bk, again))


# -- C06, C25: a handful of points ----------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 6])
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_n_neighbors_is_clamped_to_the_other_points_with_one_warning(bk, n, more, affinity):
    X = np.random.default_rng(0).normal(size=(n, 2))
    model, messages = fit(bk, X, n_neighbors=n + more, affinity=affinity)
    assert labels_of(bk, model).shape == (n,)
    assert model.n_clusters_ == 1
    assert model.eigenvalues_.shape == (n - 1,)
    assert model.affinity_matrix_.nnz == n * (n - 1)
    assert not model.affinity_matrix_.diagonal().any()
    clamped = [text for text in messages if f"using {n - 1}" in text]
    assert len(clamped) == (more >= 0)


def test_a_single_point_is_refused(bk):
    with pytest.raises(ValueError, match="minimum of 2|two rows and a column at least, got"):
        fit(bk, [[1.0, 2.0]])


@pytest.mark.parametrize("n_components", [200, 1, 2, 3])
@pytest.mark.parametrize("n_clusters", [None, 1, 2])
def test_more_pairs_than_there_are_is_no_error(bk, n_components, n_clusters):
    W = np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]])
    settings = {"affinity": "precomputed", "n_components": n_components, "n_clusters": n_clusters}
    model, _ = fit(bk, W, **settings)
    assert len(np.unique(labels_of(bk, model))) == (n_clusters or 1)
    assert model.eigenvalues_.shape == (min(n_components, 2),)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("solver", ["auto", "lanczos", "chebyshev"])
def test_tiny_data_are_one_cluster_by_every_solver(bk, n, solver):
    X = np.random.default_rng(1).normal(size=(n, 2))
    model, messages = fit(bk, X, n_components=200, eigen_solver=solver)
    assert model.n_clusters_ == 1
    assert any("too few for a split to be accepted" in text for text in messages)


# -- C10 to C13: isolated points and given affinities ---------------------------------------------


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_isolated_points_are_counted_in_one_warning(bk, criterion):
    X = np.concatenate([BLOBS, [[1e3, 1e3], [-1e3, 0], [0, -1e3]]])
    model, messages = fit(bk, X, affinity="radius_neighbors", criterion=criterion)
    assert len(messages) == 1
    assert "3 of 303 rows are isolated" in messages[0]
    labels = labels_of(bk, model)
    assert adjusted_rand_score(labels[:300], BLOBS_Y) == 1
    assert not bool(model.embedding_[300:].any())
    if criterion == "zz_top":
        assert len(set(labels[300:].tolist())) == 1  # all at the origin of D


def test_empty_row_of_a_given_affinity_is_isolated(bk):
    W = np.pad(np.kron(np.eye(2), np.ones((30, 30)) - np.eye(30)), (0, 1))
    model, messages = fit(bk, W, affinity="precomputed", n_clusters=2)
    assert sum("1 of 61 rows are isolated" in text for text in messages) == 1
    assert len(set(labels_of(bk, model)[:60].reshape(2, 30).T.ravel().tolist())) == 2


UNFIT = np.random.default_rng(0).random((60, 60))
HOLE, PIT, PEAK = np.ones((3, 60, 60))
HOLE[7, 3] = HOLE[3, 7] = np.nan
PIT[7, 3] = PIT[3, 7] = -1
PEAK[7, 3] = PEAK[3, 7] = np.inf


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.zeros((5, 5)), r"shape \(5, 5\) has no entries above zero"),
        (UNFIT, r"must be symmetric, got \|W - Wᵀ\| up to 0\.9"),
        (HOLE, "finite and not negative, got nan at row 3, column 7"),
        (PEAK, "finite and not negative, got inf at row 3, column 7"),
        (PIT, "finite and not negative, got -1.0 at row 3, column 7"),
        (np.ones((100, 10)), r"square matrix of similarities, got shape \(100, 10\)"),
        (np.ones((60, 61)), r"square matrix of similarities, got shape \(60, 61\)"),
    ],
    ids=["empty", "asymmetric", "nan", "inf", "negative", "features", "one column more"],
)
def test_unfit_affinities_are_refused(bk, W, message, form):
    W = bk.asarray(W)
    W = bk.sparse.csr_matrix(W) if form == "sparse" else W
    with pytest.raises(ValueError, match=message):
        fit(bk, W, affinity="precomputed")


def test_round_off_and_explicit_zeros_are_tolerated_silently(bk):
    W = np.kron(np.eye(2), np.ones((40, 40)))
    rough = W * (1 + 1e-12 * np.random.default_rng(0).normal(size=W.shape))
    for given in (
        rough,
        sparse.csr_matrix((rough.ravel(), np.tile(np.arange(80), 80), np.arange(0, 6401, 80))),
    ):
        if sparse.issparse(given) and bk.name == "cuda":
            given = bk.sparse.csr_matrix(given)
        model, messages = fit(bk, given, affinity="precomputed", n_clusters=2)
        assert messages == []
        assert model.n_graph_components_ == 2
        assert model.affinity_matrix_.nnz == 3200
        assert adjusted_rand_score(labels_of(bk, model), np.arange(80) // 40) == 1


# -- C16: values that are no numbers, or too large ------------------------------------------------


@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_entries_that_are_not_finite_are_refused(bk, value, name, affinity):
    X = BLOBS.copy()
    X[-1, 0] = value
    with pytest.raises(ValueError, match=f"Input X contains {name}"):
        fit(bk, X, affinity=affinity)


@pytest.mark.parametrize(
    ("dtype", "value"), [(np.float32, 3e38), (np.float64, 1e300), (np.float64, 1e-300)]
)
def test_squares_that_overflow_do_not_spoil_distances(bk, dtype, value):
    X = (BLOBS / np.abs(BLOBS).max() * value).astype(dtype)
    model, _ = fit(bk, X)
    assert adjusted_rand_score(labels_of(bk, model), BLOBS_Y) == 1


# -- C22: disconnected graphs ---------------------------------------------------------------------


def test_disjoint_copies_of_a_cloud_give_the_same_k_on_every_run(bk):
    for seed in [0] * 5 + [1, 2, 3, 4]:
        model, messages = fit(bk, COPIES, random_state=seed)
        assert model.n_clusters_ == model.n_graph_components_ == 6
        assert messages == []
        assert adjusted_rand_score(labels_of(bk, model), COPY) == 1


@pytest.mark.parametrize("k", [6, 8])
def test_no_cluster_joins_two_components(bk, k):
    labels = labels_of(bk, fit(bk, COPIES, n_clusters=k)[0])
    assert len(set(zip(labels.tolist(), COPY.tolist(), strict=True))) == k


# -- C24: small graphs on which solvers stumble ---------------------------------------------------


def test_small_blobs_with_few_neighbours_end_with_finite_labels(bk):
    for seed in range(21):
        X, _ = make_blobs(21, centers=3, random_state=seed)
        for solver in ("auto", "lanczos", "chebyshev"):
            settings = {"eigen_solver": solver, "n_components": 10, "n_init": 2}
            model, _ = fit(bk, X, n_neighbors=3, random_state=seed, **settings)
            assert model.n_clusters_ == 1
            assert float(model.residuals_.max()) < 1e-8
            labels_of(bk, model)


# -- C27: precision -------------------------------------------------------------------------------


def test_float32_and_float64_agree_on_separated_data(bk):
    X, y = make_blobs(500, centers=5, n_features=5, cluster_std=0.3, random_state=1)
    for dtype in (np.float32, np.float64):
        model, _ = fit(bk, X.astype(dtype), n_init=2)
        assert model.n_clusters_ == 5
        assert adjusted_rand_score(labels_of(bk, model), y) == 1
        assert model.eigenvalues_.dtype == model.embedding_.dtype == np.float64


# -- C28, C35: power and small levels -------------------------------------------------------------


@pytest.mark.parametrize(("m", "n_components", "n"), [(20, "auto", 19), (600, 10, 10)])
def test_two_far_blobs_without_power_say_so(bk, m, n_components, n):
    X, y = make_blobs(m, centers=[(0, 0), (100, 0)], random_state=0)
    model, messages = fit(bk, X, n_components=n_components, criterion="zz_top")
    assert model.n_clusters_ == 1
    assert sum(f"{m} rows in {n} columns are too few" in text for text in messages) == 1
    assert model.path_[1].reason == NO_POWER
    if m == 600:
        enough, messages = fit(bk, X, n_components=200, criterion="zz_top")
        assert not any("too few" in text for text in messages)
        assert adjusted_rand_score(labels_of(bk, enough), y) == 1


@pytest.mark.parametrize(("m", "neighbors"), [(20, 10), (22, 10), (20, 9)])
def test_two_far_blobs_of_as_many_rows_as_neighbours_are_two(bk, m, neighbors):
    X, y = make_blobs(m, centers=[(0, 0), (100, 0)], random_state=0)
    model, messages = fit(bk, knn_graph(bk.asarray(X), neighbors), affinity="precomputed")
    assert model.n_clusters_ == 2
    assert not any("too few for a split to be accepted" in text for text in messages)
    assert adjusted_rand_score(labels_of(bk, model), y) == 1
    assert sum("calibrated on graphs of at least 60 rows" in text for text in messages) == 1


def test_levels_below_any_double_are_compared_in_logarithms(bk):
    model, messages = fit(bk, BLOBS, alpha=1e-300)
    assert any("too few for a split to be accepted at alpha=1e-300" in text for text in messages)
    assert model.n_clusters_ == 1
    assert math.log(1e-300) < model.path_[1].log_p < math.log(1e-5)
    with pytest.raises(ValueError, match=r"'alpha' .* in the range \(0.0, 1.0\) or None. Got 0"):
        fit(bk, BLOBS, alpha=0)


# -- C40: memory ----------------------------------------------------------------------------------


def test_repeated_fits_keep_no_arrays():
    sizes = []
    arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    tracemalloc.start()
    try:
        for _ in range(3):
            fit(cpu, BLOBS[:150])
            gc.collect()
            traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
            sizes.append(sum(trace.size for trace in traces))
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[0] < 1_000  # D alone holds 60,000 bytes


@pytest.mark.gpu
@pytest.mark.unseen_by_stand_in(reason="its memory pool holds nothing, and always tells so")
def test_repeated_fits_keep_no_device_memory():
    bk = get_backend("cuda")
    pool, sizes = bk.xp.get_default_memory_pool(), []
    X = bk.asarray(BLOBS)
    for _ in range(6):
        fit(bk, X)
        sizes.append(pool.used_bytes())
    assert max(sizes[2:]) <= sizes[1]


def test_an_error_in_the_middle_leaves_nothing_behind(bk, monkeypatch):
    def fail(*_args, **_settings):
        raise MemoryError

    monkeypatch.setattr(sys.modules["specialk_gpu._fit"], "search", fail)
    model = SpecialK(backend=bk.name, affinity="radius_neighbors", coverage=1.0, verbose=1)
    with pytest.raises(MemoryError):
        model.fit(bk.asarray(CLOUD))
    assert [name for name in vars(model) if name.endswith("_")] == []


# -- C42, C45: devices ----------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_stages_run_within_the_device_of_the_input(bk, monkeypatch, fails):
    """Seen through the context that is entered, since few machines have two devices."""
    events, device_of = [], bk.device_of

    @contextmanager
    def recorded(x):
        events.append("enter")
        try:
            with device_of(x):
                yield
        finally:
            events.append("exit")

    monkeypatch.setattr(bk, "device_of", recorded)
    with pytest.raises(ValueError, match="got 301") if fails else nullcontext():
        fit(bk, BLOBS, n_clusters=301 if fails else 2)
    depth = np.cumsum([1 if event == "enter" else -1 for event in events])
    assert depth[-1] == 0
    assert (depth[:-1] > 0).all()  # the estimator's own surrounds those of the stages


@pytest.mark.parametrize("name", ["nearest_neighbors", "knn_graph", "radius_graph", "sweep"])
def test_functions_run_within_the_device_of_their_first_argument(bk, monkeypatch, name):
    seen = []
    monkeypatch.setattr(bk, "device_of", lambda x: seen.append(x) or nullcontext())
    X = bk.asarray(BLOBS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(specialk_gpu, name)(X, **({"max_clusters": 2} if name == "sweep" else {}))
    assert seen[0] is X


@pytest.mark.gpu
def test_outputs_are_on_the_device_of_the_input_and_the_current_one_stays():
    bk = get_backend("cuda")
    if bk.xp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one device only")
    with bk.xp.cuda.Device(1):
        X = bk.xp.asarray(BLOBS)
    with bk.xp.cuda.Device(0):
        model, _ = fit(bk, X)
        assert bk.xp.cuda.runtime.getDevice() == 0
    assert model.labels_.device.id == model.embedding_.device.id == 1


@pytest.mark.parametrize("dispatch", [False, True])
def test_array_api_dispatch_does_not_matter(bk, monkeypatch, dispatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with sklearn.config_context(array_api_dispatch=dispatch):
        model, _ = fit(bk, BLOBS)
    assert isinstance(model.labels_, bk.xp.ndarray)
    assert isinstance(model.embedding_, bk.xp.ndarray)
    assert adjusted_rand_score(labels_of(bk, model), BLOBS_Y) == 1


@pytest.mark.gpu
def test_device_input_takes_no_trip_through_the_host(monkeypatch):
    bk = get_backend("cuda")
    X = bk.asarray(np.tile(BLOBS, 20))
    sizes, asnumpy = [], bk.xp.asnumpy

    def counted(x, *args, **settings):
        sizes.append(x.size)
        return asnumpy(x, *args, **settings)

    monkeypatch.setattr(bk.xp, "asnumpy", counted)
    fit(bk, X)
    assert sizes
    assert max(sizes) < X.size / 4


@pytest.mark.gpu
def test_host_input_gives_host_output_from_the_device():
    model, _ = fit(cpu, BLOBS, backend="cuda")
    assert model.backend_ == "cuda"
    assert isinstance(model.labels_, np.ndarray)
    assert isinstance(model.embedding_, np.ndarray)
    assert sparse.issparse(model.affinity_matrix_)


@pytest.mark.gpu
def test_device_input_on_the_numpy_backend_is_refused_with_the_cure():
    X = get_backend("cuda").asarray(BLOBS)
    with pytest.raises(ValueError, match=r"cupy\.asnumpy\(X\), or use backend='cuda'"):
        SpecialK(backend="numpy").fit(X)


def test_auto_takes_what_answers_and_says_which():
    model, _ = fit(cpu, BLOBS, backend="auto")
    assert model.backend_ == ("numpy" if driver_verdict().reason else "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "int64", "uint8", "bool"])
def test_a_dense_affinity_on_the_device_may_have_any_dtype(dtype):
    cupy = pytest.importorskip("cupy")
    A = np.kron(np.eye(2), 1 - np.eye(20))
    A[0, 20] = A[20, 0] = 1
    settings = {"affinity": "precomputed", "random_state": 0, "n_clusters": 2}
    found = SpecialK(backend="cuda", **settings).fit(cupy.asarray(A.astype(dtype)))
    expected = SpecialK(backend="numpy", **settings).fit(A)
    np.testing.assert_array_equal(found.labels_.get(), expected.labels_)


@pytest.mark.gpu
def test_an_affinity_of_one_row_on_the_device_is_refused():
    cupy = pytest.importorskip("cupy")
    with pytest.raises(ValueError, match="X must have at least 2 rows"):
        SpecialK(backend="cuda", affinity="precomputed").fit(cupy.ones((1, 1)))
