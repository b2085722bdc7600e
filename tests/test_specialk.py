"""The estimator: scikit-learn's rules, every kind of input, the fitted attributes."""

import copy
import importlib
import inspect
import logging
import pickle
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import specialk_gpu
from specialk_gpu import (
    CalibrationWarning,
    ConvergenceError,
    DuplicateRowsWarning,
    GraphWarning,
    LimitWarning,
    PowerWarning,
    SpecialK,
    eigenpairs,
    knn_graph,
)
from specialk_gpu._host import OnDevice
from specialk_gpu._options import PARAMETERS
from specialk_gpu._result import SelectionPath
from specialk_gpu._validation import validate_input
from specialk_gpu.backend import cpu, get_backend
from specialk_gpu.lloyd.kmeans import kmeans_batch

BLOBS, BLOBS_Y = make_blobs(180, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)


def fit(X, bk=None, **settings):
    """Fit on a backend, host arrays by default; the blobs' graph falls apart into three."""
    settings = {"backend": "numpy" if bk is None else bk.name, "random_state": 0, **settings}
    return SpecialK(**settings).fit(X)


@cache
def labels_of_blobs():
    return fit(BLOBS).labels_


def host(bk, x):
    return bk.to_numpy(x)


# -- scikit-learn's rules -------------------------------------------------------------------------


def test_parameters_are_given_by_name():
    with pytest.raises(TypeError, match="positional"):
        SpecialK(3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors"])
def test_every_check_of_scikit_learn_passes_and_none_is_skipped(affinity, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else the array API check skips itself
    model = SpecialK() if affinity == "nearest_neighbors" else SpecialK(affinity=affinity)
    results = check_estimator(model, on_skip=None, on_fail=None)
    assert len(results) > 40
    assert {result["check_name"]: result["status"] for result in results} == {
        result["check_name"]: "passed" for result in results
    }


@pytest.mark.filterwarnings("ignore")
def test_given_affinities_pass_all_checks_that_give_one(monkeypatch):
    """Some checks give features or non-square data as the matrix: refused, as they must be."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    results = check_estimator(SpecialK(affinity="precomputed"), on_skip=None, on_fail=None)
    assert {result["check_name"] for result in results if result["status"] != "passed"} == {
        "check_clustering",  # features
        "check_estimators_nan_inf",  # of shape (10, 3)
        "check_positive_only_tag_during_fit",  # our message names the entry instead
        "check_estimator_sparse_array",  # takes what has predict_proba for a classifier
        "check_estimator_sparse_matrix",
    }


def test_clone_and_parameters_keep_what_was_given():
    rng = np.random.RandomState(0)
    model = SpecialK(alpha=0.05, n_components=7, random_state=rng)
    assert model.get_params()["random_state"] is rng
    copy = clone(SpecialK(alpha=0.05, n_clusters=4))
    assert copy.get_params() == SpecialK(alpha=0.05, n_clusters=4).get_params()
    array = np.arange(3)
    model.set_params(n_init=array)  # stored untouched; `==` on arrays has no truth value
    assert model.n_init is array
    with pytest.raises(ValueError, match="'n_init' parameter of SpecialK must be an int"):
        model.fit(BLOBS)
    with pytest.raises(ValueError, match="Invalid parameter 'k'"):
        model.set_params(k=3)


def test_fit_leaves_the_parameters_alone():
    model = SpecialK(n_components=150, n_neighbors=5, random_state=3, backend="auto")
    before = model.get_params()
    model.fit(BLOBS)
    assert model.get_params() == before


def test_pipeline_and_fit_predict_give_the_labels():
    model = SpecialK(random_state=0, backend="numpy")
    labels = make_pipeline(StandardScaler(), model).fit_predict(BLOBS)
    assert adjusted_rand_score(labels, BLOBS_Y) == 1
    np.testing.assert_array_equal(model.fit_predict(BLOBS), model.labels_)


def test_pickle_keeps_the_fitted_model():
    model = fit(BLOBS)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert type(again.path_) is SelectionPath
    assert str(again.path_) == str(model.path_)
    assert again.path_.to_frame().attrs == {"criterion": "cut"}
    assert (again.affinity_matrix_ != model.affinity_matrix_).nnz == 0


def test_loky_workers_give_the_same_labels():
    # C41
    models = [SpecialK(backend="numpy", random_state=seed) for seed in (0, 1)]
    tasks = [joblib.delayed(model.fit_predict)(BLOBS) for model in models]
    for seed, labels in enumerate(joblib.Parallel(n_jobs=2, backend="loky")(tasks)):
        np.testing.assert_array_equal(labels, fit(BLOBS, random_state=seed).labels_)


def test_threads_give_the_same_labels():
    # C41
    expected = labels_of_blobs()
    with ThreadPoolExecutor(4) as pool:
        models = [SpecialK(backend="numpy", random_state=0) for _ in range(4)]
        found = list(pool.map(lambda model: model.fit(BLOBS).labels_, models))
    assert threading.active_count() < 20
    for labels in found:
        np.testing.assert_array_equal(labels, expected)


# -- fitted attributes ----------------------------------------------------------------------------


STAGES = {
    "cut": {"graph", "eigenpairs", "fragments", "merging", "polishing"},
    "zz_top": {"graph", "eigenpairs", "embedding", "kmeans", "bounds"},
}


@pytest.mark.parametrize(
    "settings",
    [{}, {"affinity": "radius_neighbors"}, {"n_components": 120}, {"criterion": "zz_top"}],
)
def test_fitted_attributes_have_their_shapes_and_types(bk, settings):
    model = fit(bk.asarray(BLOBS), bk, **settings)
    criterion = settings.get("criterion", "cut")
    m, n = BLOBS.shape[0], settings.get("n_components", 50 if criterion == "cut" else 179)
    shapes = {
        "labels_": ((m,), np.int32),
        "eigenvalues_": ((n,), np.float64),
        "residuals_": ((n,), np.float64),
        "embedding_": ((m, n), np.float64),
        "membership_": ((m, 3), np.float64),
        "affinity_matrix_": ((m, m), np.float64),
    }
    for name, (shape, dtype) in shapes.items():
        assert getattr(model, name).shape == shape
        assert getattr(model, name).dtype == dtype
    assert isinstance(model.labels_, bk.xp.ndarray)
    assert isinstance(model.embedding_, bk.xp.ndarray)
    assert isinstance(model.membership_, bk.xp.ndarray)
    assert isinstance(model.affinity_matrix_, bk.sparse.csr_matrix)
    assert isinstance(model.path_[1].labels, bk.xp.ndarray)
    assert model.n_clusters_ == 3 == len(np.unique(host(bk, model.labels_)))
    assert float(model.residuals_.max()) <= 1e-8
    assert (np.diff(np.abs(host(bk, model.eigenvalues_))) <= 1e-12).all()
    assert model.n_graph_components_ == 3
    assert model.backend_ == bk.name
    assert model.eigen_solver_ == "dense"
    assert model.limit_reached_ is False
    assert (model.radius_ is None) == ("affinity" not in settings)
    assert model.n_features_in_ == 3
    assert model.path_.criterion == criterion
    assert set(model.timings_) == STAGES[criterion]
    assert min(model.timings_.values()) >= 0
    np.testing.assert_array_equal(
        host(bk, model.labels_), host(bk, model.path_[model.n_clusters_ - 1].labels)
    )


def test_embedding_is_that_of_the_affinity(bk):
    model = fit(bk.asarray(BLOBS), bk)
    W, D = model.affinity_matrix_.toarray(), host(bk, model.embedding_)
    signs_lost = np.abs(np.linalg.eigh(host(bk, W))[0])
    found = np.abs(host(bk, model.eigenvalues_))
    np.testing.assert_allclose(found, np.sort(signs_lost)[::-1][: found.size], atol=1e-10)
    np.testing.assert_allclose((D**2).sum(axis=0), found, atol=1e-10)
    assert (D >= 0).all()


@pytest.mark.parametrize("k", [1, 2, 150])
def test_labels_are_consecutive_by_falling_size(bk, k):
    # C48
    labels = host(bk, fit(bk.asarray(BLOBS), bk, n_clusters=k).labels_)
    assert labels.dtype == np.int32
    assert labels.flags.c_contiguous
    counts = np.bincount(labels)
    assert len(counts) == k
    assert counts.min() > 0
    assert (np.diff(counts) <= 0).all()


def test_solvers_and_copies_of_the_affinity_agree():
    model = fit(BLOBS, n_components=30)
    for solver in ("dense", "lanczos", "chebyshev"):
        np.testing.assert_array_equal(
            fit(BLOBS, n_components=30, eigen_solver=solver).labels_, model.labels_
        )
    W = model.affinity_matrix_
    for given in (W, sparse.coo_array(W), W.toarray(), W.tocsc()):
        given = fit(given, affinity="precomputed", n_components=30)
        np.testing.assert_array_equal(given.labels_, model.labels_)
        assert given.n_features_in_ == 180


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_labels_of_any_k_can_be_had(bk, criterion, k):
    model = fit(bk.asarray(BLOBS), bk, criterion=criterion, full_path=True, max_clusters=5)
    labels = host(bk, model.labels_at(k))
    assert np.bincount(labels).size == k
    assert (np.diff(np.bincount(labels)) <= 0).all()
    if k <= 3:  # both rules find the three blobs, and these merge into fewer
        assert adjusted_rand_score(labels, host(bk, model.path_[k - 1].labels)) == 1
    np.testing.assert_array_equal(host(bk, model.labels_at(3)), host(bk, model.labels_))
    with pytest.raises(ValueError, match="k must "):
        model.labels_at(181)


def test_levels_of_the_tree_are_nested():
    model = fit(BLOBS)
    K = model.tree_.n_leaves
    assert model.tree_.children.shape == (K - 1, 2)
    assert model.tree_.to_linkage().shape == (K - 1, 4)
    for k in range(1, K):
        pairs = set(zip(model.labels_at(k).tolist(), model.labels_at(k + 1).tolist(), strict=True))
        assert len(pairs) == k + 1


def test_there_is_no_tree_where_clusters_are_not_nested():
    with pytest.raises(AttributeError, match=r'there is no tree_ for criterion="zz_top": k-means'):
        fit(BLOBS, criterion="zz_top").tree_  # noqa: B018


def test_membership_is_the_share_of_walks_that_end_in_each_cluster(bk):
    for criterion in ("cut", "zz_top"):
        model = fit(bk.asarray(BLOBS), bk, criterion=criterion)
        shares, labels = (host(bk, x) for x in (model.membership_, model.labels_))
        np.testing.assert_allclose(shares.sum(axis=1), 1)
        np.testing.assert_array_equal(shares.argmax(axis=1), labels)  # of clear blobs
        S = host(bk, model.affinity_matrix_.toarray())
        degrees = S.sum(axis=1)
        step = (np.eye(180) + S / degrees[:, None]) / 2
        expected = np.linalg.matrix_power(step, 10) @ np.eye(3)[labels]
        np.testing.assert_allclose(shares, expected, atol=0.02)


# -- seeds: C37 -----------------------------------------------------------------------------------


def test_separate_clusters_bring_a_warning_only_if_one_is_too_small():
    settings = {"criterion": "zz_top", "n_components": 50}
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        fit(BLOBS, **settings)
    rng = np.random.default_rng(0)
    few = np.concatenate([rng.normal(size=(620, 2)), rng.normal(size=(12, 2)) + 500])
    with pytest.warns(GraphWarning, match="1 of the 2 separate components .* fewer than 1/n"):
        fit(few, **settings)


def test_random_state_instance_is_consumed():
    rng = np.random.RandomState(5)
    settings = {"criterion": "zz_top", "n_clusters": 20, "n_init": 1}
    first = fit(BLOBS, random_state=rng, **settings).path_[0].inertia
    second = fit(BLOBS, random_state=rng, **settings).path_[0].inertia
    assert first == fit(BLOBS, random_state=5, **settings).path_[0].inertia
    assert first != second
    assert rng.get_state()[2] != np.random.RandomState(5).get_state()[2]


def defaults(function):
    found = inspect.signature(function).parameters.values()
    return {own.name: own.default for own in found if own.default is not own.empty}


def test_functions_have_the_defaults_of_the_estimator():
    """What differs with the criterion is what the help of the command line says."""
    own = defaults(SpecialK) | {"alpha": 0.01, "max_clusters": 50}  # of the bound
    assert "zz_top: 0.01)" in PARAMETERS["alpha"]["help"]
    assert "zz_top: 50)" in PARAMETERS["max_clusters"]["help"]
    names = set(specialk_gpu.__all__) - {"SpecialK"}
    shared = [
        {name: (value, own[name]) for name, value in defaults(function).items() if name in own}
        for function in (getattr(specialk_gpu, name) for name in names)
        if inspect.isfunction(function)
    ]
    assert len({name for each in shared for name in each}) > 12
    assert all(ours == theirs for each in shared for ours, theirs in each.values())
    batch = defaults(kmeans_batch)
    assert {name: defaults(specialk_gpu.kmeans)[name] for name in ("n_init", "max_iter")} == {
        name: batch[name] for name in ("n_init", "max_iter")
    }
    for name, option in PARAMETERS.items():  # where the help names a number, it is the default
        number = re.search(r"\((?:zz_top: )?([\d.e-]+)[;)]", option["help"])
        if number and defaults(SpecialK)[name] is not None:
            assert float(number[1]) == defaults(SpecialK)[name]


def test_default_seed_is_none_and_leaves_answers_on_clear_data_alone():
    assert SpecialK().random_state is None
    for _ in range(2):
        assert adjusted_rand_score(fit(BLOBS, random_state=None).labels_, BLOBS_Y) == 1


# -- kinds of input: C08, C17, C18 ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float16", "bool"])
def test_integers_and_short_floats_equal_float64(bk, dtype):
    X = np.random.default_rng(0).integers(0, 256, size=(60, 200))
    X[:20] = X[:20] // 2 + 100
    X = (X > 128) if dtype == "bool" else (X if dtype != "int16" else X - 128)
    X = X.astype(dtype)
    found = fit(bk.asarray(X), bk, n_clusters=2)
    same = fit(bk.asarray(X.astype(np.float64)), bk, n_clusters=2)
    np.testing.assert_array_equal(host(bk, found.labels_), host(bk, same.labels_))
    W, W_same = found.affinity_matrix_, same.affinity_matrix_
    np.testing.assert_array_equal(host(bk, W.indices), host(bk, W_same.indices))
    np.testing.assert_array_equal(host(bk, W.data), host(bk, W_same.data))


@pytest.mark.parametrize(
    "convert",
    [
        np.ndarray.tolist,
        lambda X: X.astype(object),
        lambda X: X.astype(object).tolist(),
        np.asfortranarray,
        lambda X: X[::-1][::-1],
        lambda X: X.astype(np.longdouble),
        lambda X: X.astype(">f8"),
    ],
    ids=["lists", "objects", "lists of floats", "fortran", "strides", "long double", "big endian"],
)
def test_numbers_in_any_container_give_equal_labels(convert):
    np.testing.assert_array_equal(fit(convert(BLOBS)).labels_, labels_of_blobs())


def test_read_only_memory_map_is_read_and_left_alone(tmp_path):
    np.save(tmp_path / "x.npy", BLOBS)
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(fit(X).labels_, labels_of_blobs())


TEXT = BLOBS.astype(str)


@pytest.mark.parametrize(
    "X",
    [
        TEXT,
        TEXT.astype(object),
        TEXT.tolist(),
        TEXT.astype("S"),
        TEXT.astype(np.dtypes.StringDType()),
        BLOBS.astype("M8[D]"),
        BLOBS.astype("m8[s]"),
    ],
)
def test_text_and_dates_are_refused_even_where_they_look_like_numbers(X):
    with pytest.raises(ValueError, match=r"X must be numeric, got text or dates \(dtype "):
        fit(X)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (BLOBS.astype(complex), ValueError, "Complex data not supported"),
        (sparse.csr_matrix(BLOBS), TypeError, r"sparse X of shape \(180, 3\).*Sparse data was"),
        (sparse.csr_array((60_000, 50_000)), TypeError, r"sparse X of shape \(60000, 50000\)"),
        (BLOBS[:, 0], ValueError, r"rows and columns, got shape \(180,\)"),
        (BLOBS[None], ValueError, r"rows and columns, got shape \(1, 180, 3\)"),
        (BLOBS[:1], ValueError, "minimum of 2 is required"),
        (BLOBS[:, :0], ValueError, "minimum of 1 is required"),
        ([[1, 2], [3]], ValueError, "rows of one length, got 2 values in place 0"),
        (None, TypeError, "X must be an array or a data frame"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(X, error, message):
    with pytest.raises(error, match=message):
        fit(X)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("affinity", ["nearest_neighbors", "radius_neighbors", "precomputed"])
def test_caller_keeps_the_same_bytes(bk, order, affinity):
    # C19
    X = knn_graph(BLOBS, 10).toarray() if affinity == "precomputed" else BLOBS
    X = bk.asarray(np.array(X, order=order))
    before = host(bk, X).copy()
    fit(X, bk, affinity=affinity)
    np.testing.assert_array_equal(host(bk, X), before)
    if affinity == "precomputed":
        W = bk.sparse.csr_matrix(X)
        data, indices = host(bk, W.data).copy(), host(bk, W.indices).copy()
        fit(W, bk, affinity=affinity)
        np.testing.assert_array_equal(host(bk, W.data), data)
        np.testing.assert_array_equal(host(bk, W.indices), indices)


# -- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("alpha", 0, r"a float in the range \(0.0, 1.0\)"),
        ("alpha", 1.0, r"a float in the range \(0.0, 1.0\)"),
        ("alpha", np.nan, r"a float in the range \(0.0, 1.0\)"),
        ("n_clusters", 0, r"an int in the range \[1, inf\) or None"),
        ("n_clusters", 2.0, r"an int in the range \[1, inf\) or None"),
        ("min_clusters", 0, r"an int in the range \[1, inf\)"),
        ("max_clusters", 0, r"an int in the range \[1, inf\)"),
        ("affinity", "rbf", "a str among .*'precomputed'"),
        ("n_neighbors", 0, r"an int in the range \[1, inf\)"),
        ("coverage", 0, r"a float in the range \(0.0, 1.0\]"),
        ("weights", "heat", "a str among .*'distance'"),
        ("metric", "manhattan", "a str among .*'cosine'"),
        ("n_components", "all", r"an int in the range \[1, inf\) or a str among {'auto'}"),
        ("n_kmeans_components", 0, r"an int in the range \[1, inf\) or None"),
        ("drop_correlated", 1.0, r"a float in the range \(0.0, 1.0\) or None"),
        ("full_path", "yes", "an instance of 'bool'"),
        ("criterion", "gap", "a str among .*'zz_top'"),
        ("stopping", "last", "a str among .*'watershed'"),
        ("n_pairs", 0, r"an int in the range \[1, inf\) or None"),
        ("n_init", 0, r"an int in the range \[1, 2147483647\]"),
        ("eigen_solver", "arpack", "a str among .*'lanczos'"),
        ("tol", 0, r"a float in the range \(0.0, inf\)"),
        ("backend", "tpu", "a str among .*'cuda'"),
        ("random_state", "zero", "an int in the range"),
        ("verbose", -1, "an int in the range"),
    ],
)
def test_parameters_out_of_range_are_named(name, value, expected):
    with pytest.raises(ValueError, match=f"'{name}' parameter of SpecialK must be {expected}.*Got"):
        SpecialK(**{name: value}).fit(BLOBS)


def test_the_error_about_a_kernel_says_what_to_do_and_that_works(bk):
    advice = r"a kernel such as 'rbf', compute its matrix and fit that with affinity='precomputed'"
    with pytest.raises(ValueError, match=f"{advice}.*distances.*'precomputed_nearest_neighbors'"):
        fit(BLOBS, bk, affinity="rbf")
    model = fit(bk.asarray(rbf_kernel(BLOBS)), bk, affinity="precomputed", n_clusters=3)
    assert adjusted_rand_score(host(bk, model.labels_), host(bk, fit(BLOBS, bk).labels_)) == 1


def test_parameters_of_the_paper_s_rule_bring_a_warning_elsewhere(bk):
    idle = {"stopping": "watershed", "n_pairs": 5, "n_init": 2, "n_kmeans_components": None}
    X = bk.asarray(BLOBS)
    with pytest.warns(
        UserWarning, match="without criterion='zz_top', this has no effect: "
    ) as told:
        fit(X, bk, **idle)
    assert len(told) == 1
    listed = str(told[0].message).rstrip(".").partition(": ")[2].split(", ")
    assert sorted(listed) == sorted(f"{name}={value!r}" for name, value in idle.items())
    assert told[0].filename == __file__
    usual = SpecialK().get_params()
    fit(X, bk, **{name: usual[name] for name in idle})  # a warning would be an error
    fit(X, bk, criterion="zz_top", n_components=20, n_clusters=3, **idle)
    clone(SpecialK(**idle)).set_params(**idle)


def test_limits_that_contradict_are_named():
    with pytest.raises(ValueError, match="got min_clusters=5, max_clusters=4"):
        SpecialK(min_clusters=5, max_clusters=4).fit(BLOBS)
    for given in ({"n_clusters": 5, "max_clusters": 4}, {"n_clusters": 2, "min_clusters": 3}):
        with pytest.raises(ValueError, match="n_clusters must lie between min_clusters and max"):
            fit(BLOBS, **given)
    with pytest.raises(ValueError, match=r"n_clusters must lie between 1 .*\(180\), got 181"):
        fit(BLOBS, n_clusters=181)


def test_names_of_clusters_count_duplicates(bk):
    size = np.array([40, 60, 80])
    X = np.random.default_rng(0).normal(size=(180, 2)) + np.repeat([0, 30, 60], size)[:, None]
    X = np.concatenate([X, np.repeat(X[:3], 70, axis=0)])  # the smallest has most rows now
    with pytest.warns(DuplicateRowsWarning):
        model = SpecialK(backend=bk.name, random_state=0).fit(X)
    assert model.n_clusters_ == 3
    np.testing.assert_array_equal(model.labels_[:180], np.repeat([0, 2, 1], size))
    np.testing.assert_array_equal(model.labels_at(3), model.labels_)
    for step in model.path_:
        np.testing.assert_array_equal(model.labels_at(step.k), step.labels)


def test_rows_too_few_to_be_told_apart_have_a_report(tmp_path):
    model = SpecialK(criterion="zz_top", n_clusters=2, n_neighbors=1, backend="numpy")
    with pytest.warns(ConvergenceWarning, match="1 clusters where n_clusters=2"):
        model.fit(BLOBS[:2])
    assert [step.k for step in model.path_] == [model.n_clusters_] == [1]
    model.report(tmp_path / "report.html")


def test_levels_that_are_no_numbers_are_refused(bk):
    model = fit(BLOBS, bk)
    for k in (1.5, "2", None):
        with pytest.raises(TypeError, match="k must be an integer, got"):
            model.labels_at(k)


# -- logs and warnings ----------------------------------------------------------------------------


def test_verbose_logs_each_stage(caplog, capsys):
    logger = logging.getLogger("specialk_gpu")
    level, handlers = logger.level, list(logger.handlers)
    fit(BLOBS)
    assert not caplog.records
    fit(BLOBS, verbose=1)
    for stage in (
        "graph: 180 rows",
        "eigenpairs: 50 by dense",
        "merging: 3, 3 clusters pass",
    ):
        assert stage in caplog.text
    assert "polishing: 3 clusters" in caplog.text
    fit(BLOBS, verbose=1, criterion="zz_top")
    for stage in ("eigenpairs: 179 by dense", "embedding: 179 columns", "k = 2: log10 p"):
        assert stage in caplog.text
    assert (logger.level, logger.handlers) == (level, handlers)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("X", "settings", "kind"),
    [
        (np.concatenate([BLOBS, [[1e3] * 3]]), {"affinity": "radius_neighbors"}, GraphWarning),
        (np.repeat(BLOBS, 12, axis=0), {}, DuplicateRowsWarning),
        (BLOBS, {"max_clusters": 2}, LimitWarning),
        (BLOBS[:20], {}, CalibrationWarning),
        (BLOBS[:20], {"criterion": "zz_top", "n_components": 4}, PowerWarning),
        (BLOBS[:2], {"criterion": "zz_top", "n_clusters": 2, "n_neighbors": 1}, ConvergenceWarning),
    ],
)
def test_warnings_point_at_the_line_that_called_fit(X, settings, kind):
    model = SpecialK(backend="numpy", random_state=0, **settings)
    with pytest.warns(kind) as caught:
        model.fit(X)
    line = inspect.currentframe().f_lineno - 1
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]
    with pytest.warns(kind) as caught:
        make_pipeline(clone(model)).fit_predict(X)
    assert {warning.filename for warning in caught} == {__file__}


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "function", "remedy"),
    [
        ("graph", "knn_graph_of", "sample of the rows"),
        ("eigenpairs", "eigenpairs", "n_components"),
        ("search", "search", "sample of the rows"),
        ("sweep", "sweep", "n_init"),
    ],
)
def test_memory_that_runs_out_is_named_with_the_stage_and_a_remedy(
    monkeypatch, stage, function, remedy
):
    class OutOfMemoryError(MemoryError):
        """What CuPy raises."""

    error = OutOfMemoryError("512 bytes")

    def run(*_, **__):
        raise error

    module = "_graph_of_fit" if stage == "graph" else "_fit"
    monkeypatch.setattr(importlib.import_module(f"specialk_gpu.{module}"), function, run)
    model = SpecialK(backend="numpy", criterion="zz_top" if stage == "sweep" else "cut")
    with pytest.raises(MemoryError) as caught:
        model.fit(np.random.default_rng(0).normal(size=(60, 3)))
    assert type(caught.value) is MemoryError
    assert str(caught.value).startswith(f"{stage}: 512 bytes. ")
    assert re.search(r" \d+(\.\d)? [GM]B are free\. ", str(caught.value))
    assert remedy in str(caught.value)
    assert not hasattr(model, "labels_")


@pytest.mark.parametrize("solver", ["auto", "chebyshev", "lanczos"])
@pytest.mark.parametrize("n", ["auto", 70])
@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_eigenvectors_that_cannot_fit_are_refused_before_anything_is_computed(
    monkeypatch, criterion, n, solver
):
    module = importlib.import_module("specialk_gpu._graph_of_fit")
    monkeypatch.setattr(cpu, "free_memory", lambda: 10**6)
    monkeypatch.setattr(module, "knn_graph_of", lambda *_: pytest.fail("was called"))
    X = np.random.default_rng(0).normal(size=(1200, 3))
    with pytest.raises(MemoryError, match=r"[0-9]+ eigenvectors of 1200 rows .*n_components"):
        SpecialK(backend="numpy", criterion=criterion, n_components=n, eigen_solver=solver).fit(X)


# What moves between host and device ---------------------------------------------------------------


def wide_blobs(copies):
    """Return rows (m, 1000) in float32, which are more than all that is sent for them."""
    X = make_blobs(1200 // copies, n_features=1000, centers=3, random_state=0)[0]
    return np.repeat(X.astype(np.float32), copies, axis=0)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("copies", "metric"), [(1, "euclidean"), (1, "cosine"), (8, "euclidean")])
def test_rows_of_the_host_go_to_the_device_once_and_the_embedding_comes_when_asked_for(
    waits, copies, metric
):
    X = wide_blobs(copies)
    m, n = X.shape[0], 60
    model = SpecialK(backend="cuda", random_state=0, n_components=n, metric=metric)
    with waits() as count:
        model.fit(X)
    assert count.bytes["h2d"] <= X.nbytes + 3000 * m, str(count.bytes)
    assert count.bytes["d2h"] <= 400 * m, str(count.bytes)  # labels of the path, mostly
    for name, least in (("embedding_", 8 * m * n), ("affinity_matrix_", m)):
        with waits() as count:
            found = getattr(model, name)
        assert count.bytes["d2h"] >= least
        with waits() as count:
            assert getattr(model, name) is found
        assert not count.bytes
    expected = SpecialK(backend="numpy", random_state=0, n_components=n, metric=metric).fit(X)
    assert type(model.embedding_) is type(expected.embedding_)
    assert type(model.affinity_matrix_) is type(expected.affinity_matrix_)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))


@pytest.mark.gpu
@pytest.mark.parametrize("via", ["pickle", "copy", "deepcopy", "file"])
def test_what_is_still_on_the_device_is_kept_by_every_copy(via, tmp_path):
    model = fit(BLOBS, get_backend("cuda"))
    model.save(tmp_path / "model.npz")
    again = {
        "pickle": lambda: pickle.loads(pickle.dumps(model)),
        "copy": lambda: copy.copy(model),
        "deepcopy": lambda: copy.deepcopy(model),
        "file": lambda: SpecialK.load(tmp_path / "model.npz"),
    }[via]()
    assert not any(isinstance(value, OnDevice) for value in vars(again).values())
    assert isinstance(again.embedding_, np.ndarray)
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    assert (again.affinity_matrix_ != model.affinity_matrix_).nnz == 0
    np.testing.assert_array_equal(again.predict(BLOBS), model.labels_)


def test_what_comes_late_is_absent_before_the_fit_and_can_be_set():
    model = SpecialK()
    for name in ("embedding_", "affinity_matrix_", "membership_"):
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match=f"'SpecialK' object has no attribute '{name}'"):
            getattr(model, name)
        setattr(model, name, 1)
        assert vars(model)[name] == getattr(model, name) == 1


@pytest.mark.gpu
def test_new_rows_with_similarities_do_not_move_the_embedding(waits):
    W = knn_graph(BLOBS)
    model = fit(W, get_backend("cuda"), affinity="precomputed")
    with waits() as count:
        model.predict(W[:5])
    assert max(count.bytes.values()) < 20_000, str(count.bytes)


@pytest.mark.gpu
def test_checks_of_rows_on_a_device_wait_once(waits):
    X = get_backend("cuda").asarray(BLOBS)
    with waits() as count:
        validate_input(SpecialK(), get_backend("cuda"), X, precomputed=False)
    assert count.waits == 1, str(count)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("copies", "metric"), [(1, "euclidean"), (1, "cosine"), (8, "euclidean")])
def test_rows_that_vote_stay_on_the_device(waits, copies, metric):
    X = wide_blobs(copies)[:240]
    model = SpecialK(backend="cuda", random_state=0, n_clusters=3, metric=metric).fit(X)
    again = pickle.loads(pickle.dumps(model))
    kept = {name: vars(again)[name] for name in ("_fit_labels", "_fit_X", "embedding_")}
    assert all(isinstance(value, np.ndarray) for value in kept.values())
    again.predict(X[:5])  # moves what votes, once
    for own in (model, again):
        with waits() as count:
            found = own.predict(X[:7])
        assert count.bytes["h2d"] <= X[:7].nbytes + 100, str(count.bytes)
        np.testing.assert_array_equal(found, model.labels_[:7])
    again = pickle.loads(pickle.dumps(again))
    for name, value in kept.items():
        assert isinstance(vars(again)[name], np.ndarray)
        np.testing.assert_array_equal(vars(again)[name], value)


@pytest.mark.gpu
def test_votes_of_similarities_are_moved_once(waits):
    W = knn_graph(BLOBS)
    model = fit(W, get_backend("cuda"), affinity="precomputed")
    again = pickle.loads(pickle.dumps(model))
    expected = again.predict(W[:5])  # moves what votes, once
    for own in (model, again):
        with waits() as count:
            np.testing.assert_array_equal(own.predict(W[:5]), expected)
        moved = sum(part.nbytes for part in (W[:5].data, W[:5].indices, W[:5].indptr))
        assert count.bytes["h2d"] <= moved + 100, str(count.bytes)


# -- what was not verified ------------------------------------------------------------------------


def let_eigenpairs_be(monkeypatch, function):
    monkeypatch.setattr(importlib.import_module("specialk_gpu._fit"), "eigenpairs", function)


@pytest.mark.parametrize("solver", ["lanczos", "chebyshev"])
def test_eigenpairs_that_cannot_be_verified_are_an_error(bk, monkeypatch, solver):
    let_eigenpairs_be(monkeypatch, partial(eigenpairs, max_iter=1))
    X = bk.asarray(np.random.default_rng(0).normal(size=(700, 2)))
    model = SpecialK(backend=bk.name, eigen_solver=solver, n_components=10)
    with pytest.raises(ConvergenceError, match="the eigenpairs could not be verified"):
        model.fit(X)
    assert [name for name in vars(model) if name.endswith("_")] == []


def test_eigenpairs_that_are_nearly_verified_bring_a_warning(bk, monkeypatch):
    def nearly(W, n, **settings):
        return eigenpairs(W, n, **settings)._replace(converged=False, message="Nearly.")

    expected = labels_of_blobs()
    let_eigenpairs_be(monkeypatch, nearly)
    with pytest.warns(ConvergenceWarning, match=r"Nearly\."):
        model = fit(bk.asarray(BLOBS), bk)
    np.testing.assert_array_equal(host(bk, model.labels_), expected)
