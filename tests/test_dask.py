"""Fits on a cluster of Dask: the labels of one process, whatever happens to the workers."""

from __future__ import annotations

import functools
import os
import pickle
import signal

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import specialk_gpu
from specialk_gpu import _dask_workers
from specialk_gpu._workers import Loop, with_workers, workers
from specialk_gpu.backend import cpu
from specialk_gpu.spectrum import tall

dask = pytest.importorskip("dask")
dask_array = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
on_cluster = pytest.importorskip("specialk_gpu.dask")

from dask_fits import (  # noqa: E402 - after what may be absent
    FEW_ROWS,
    MARKS,
    SETTINGS,
    assert_same_fit,
    clusters,
    double,
    fails,
    local_cluster,
)

pytestmark = MARKS


@pytest.fixture(scope="module")
def client():
    """Return a client of workers none of which may die."""
    with local_cluster(0) as client:
        yield client


@pytest.fixture(scope="module")
def mortal():
    """Return a client of workers that may be killed."""
    with local_cluster(3) as client:
        yield client


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    """Let fits of thousands of rows be shared."""
    for name, value in FEW_ROWS.items():
        monkeypatch.setattr(tall, name, value)


@pytest.fixture
def sent(monkeypatch):
    """Return the names of the functions of all tasks that are sent."""
    names, place_of = [], _dask_workers.DaskWorkers._place_of

    def counted(self, shared):
        names.append(type(shared).__name__)
        return place_of(self, shared)

    monkeypatch.setattr(_dask_workers.DaskWorkers, "_place_of", counted)
    return names


def test_a_fit_on_workers_is_that_of_one_process(client, sent):
    X = clusters(3000)
    expected = specialk_gpu.SpecialK(**SETTINGS).fit(X)
    for chunks in (700, 3000):
        model = on_cluster.SpecialK(client=client, **SETTINGS)
        found = model.fit(dask_array.from_array(X, chunks=(chunks, -1)))
        assert_same_fit(found, expected)
        assert "csr_matrix" in sent
        assert found.labels_.chunks[0] == dask_array.from_array(X, chunks=(chunks, -1)).chunks[0]
        assert found.membership_.shape == (3000, found.n_clusters_)


@functools.cache
def fit_of_20_000_rows():
    """Return rows, and the fit in one process."""
    X = clusters(20_000, 8)
    return X, specialk_gpu.SpecialK(**SETTINGS).fit(X)


def test_a_fit_of_20_000_rows(client, monkeypatch, sent):
    monkeypatch.setattr(tall, "SLAB", 2**12)
    X, expected = fit_of_20_000_rows()
    found = on_cluster.SpecialK(client=client, **SETTINGS).fit(X)
    assert_same_fit(found, expected)
    assert set(sent) == {"csr_matrix", "_PairSearch", "CutGraphs"}


def test_data_frames_and_arrays_of_numpy(client):
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    X = clusters(1200)
    expected = specialk_gpu.SpecialK(**SETTINGS).fit(X)
    named = pandas.DataFrame(X, columns=list("abcd"))
    frame = frames.from_pandas(named, npartitions=3)
    found = on_cluster.SpecialK(client=client, **SETTINGS).fit(frame)
    assert_same_fit(found, expected)
    assert found.labels_.chunks == ((400, 400, 400),)
    assert list(found.feature_names_in_) == list("abcd")
    np.testing.assert_array_equal(found.predict(frame).compute(), expected.predict(X))
    shares = found.predict_proba(frame)
    np.testing.assert_array_equal(shares.compute(), expected.predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[list("dcba")]).compute()
    found = on_cluster.SpecialK(client=client, **SETTINGS).fit(X)
    assert isinstance(found.labels_, np.ndarray)
    assert_same_fit(found, expected)


def test_prediction_by_blocks_and_without_the_cluster(client, tmp_path):
    X, new = clusters(1200), clusters(500) + 0.1
    plain = specialk_gpu.SpecialK(**SETTINGS).fit(X)
    model = on_cluster.SpecialK(client=client, **SETTINGS)
    model.fit(dask_array.from_array(X, chunks=(400, -1)))
    found = model.predict(dask_array.from_array(new, chunks=(200, -1)))
    assert found.chunks == ((200, 200, 100),)
    np.testing.assert_array_equal(found.compute(), plain.predict(new))
    np.testing.assert_array_equal(model.predict(new), plain.predict(new))
    shares = model.predict_proba(dask_array.from_array(new, chunks=((200, 0, 300), -1)))
    assert shares.chunks == ((200, 0, 300), (plain.n_clusters_,))
    np.testing.assert_array_equal(shares.compute(), plain.predict_proba(new))
    with pytest.raises(NotFittedError):
        on_cluster.SpecialK(client=client).predict(new)
    assert model.summary().to_frame().equals(model.to_local().summary().to_frame())
    assert model.describe() == model.to_local().describe()
    assert clone(model).client is client
    local = model.to_local()
    assert type(local) is specialk_gpu.SpecialK
    assert isinstance(local.labels_, np.ndarray)
    np.testing.assert_array_equal(local.predict(new), plain.predict(new))
    assert pickle.loads(pickle.dumps(local)).get_params() == plain.get_params()
    model.save(tmp_path / "model.npz")
    loaded = specialk_gpu.SpecialK.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.labels_, plain.labels_)


def test_parameters_are_those_of_one_process_and_the_client():
    model = on_cluster.SpecialK(n_neighbors=12, client="a client")
    names = set(model.get_params())
    assert names == set(specialk_gpu.SpecialK().get_params()) | {"client"}
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(TypeError, match="n_neighbours"):
        on_cluster.SpecialK(n_neighbours=3)


def test_chunks_of_columns_and_a_missing_client_are_refused(client):
    X = dask_array.from_array(clusters(100), chunks=(50, 2))
    with pytest.raises(ValueError, match=r"got 2 chunks of columns. Use X.rechunk\(\{1: -1\}\)"):
        on_cluster.SpecialK(client=client).fit(X)
    X = dask_array.from_array(clusters(100), chunks=(50, -1))
    with pytest.raises(ValueError, match="X must have chunks of known sizes: call X.compute_chunk"):
        on_cluster.SpecialK(client=client).fit(X[X[:, 0] > 0])
    with pytest.raises(ValueError, match=r"X must have shape \(m, d\)"):
        on_cluster.SpecialK(client=client).fit(X[:, 0])
    with pytest.raises(TypeError, match="got a dask collection. Use specialk_gpu.dask.SpecialK"):
        specialk_gpu.SpecialK().fit(X)


def test_a_client_that_is_none_is_refused():
    with pytest.raises(TypeError, match="client must be a distributed.Client or None, got 'tcp://"):
        on_cluster.SpecialK(client="tcp://host:8786").fit(clusters(60))


def test_a_fit_without_a_current_client_says_how_to_make_one(monkeypatch):
    def none():
        msg = "No global client found"
        raise ValueError(msg)

    monkeypatch.setattr(distributed, "get_client", none)
    with pytest.raises(ValueError, match="client must be a distributed.Client"):
        on_cluster.SpecialK().fit(clusters(60))


def test_the_cluster_is_used_inside_a_fit_alone(client):
    seen = []
    with with_workers(_dask_workers.DaskWorkers(client)):
        seen.append(workers.get())
    assert seen[0] is not None
    assert workers.get() is None


@pytest.mark.parametrize("stage", ["_PairSearch", "csr_matrix", "CutGraphs"])
def test_a_worker_that_is_killed_costs_no_more_than_its_tasks(mortal, monkeypatch, stage):
    monkeypatch.setattr(tall, "SLAB", 2**12)
    X, expected = fit_of_20_000_rows()
    run, killed = _dask_workers.DaskWorkers.run, []

    def kill(self, loop):
        """Kill a worker, one time, when the stage has one result."""

        def die():
            if not killed and type(loop.shared).__name__ == stage:
                address = sorted(mortal.scheduler_info(n_workers=-1)["workers"])[0]
                (pid,) = mortal.run(os.getpid, workers=[address]).values()
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        def kept(i, found):
            die()
            loop.store(i, found)

        run(self, loop._replace(store=kept))

    monkeypatch.setattr(_dask_workers.DaskWorkers, "run", kill)
    found = on_cluster.SpecialK(client=mortal, **SETTINGS).fit(X)
    assert killed
    assert_same_fit(found, expected)
    mortal.wait_for_workers(2, timeout=60)


class InThisProcess:
    """Workers that are this process: each task is sent twice, as if it was lost once."""

    def __init__(self):
        self.loops = []

    def run(self, loop):
        self.loops.append((loop.stage, loop.function.__name__, len(loop.arguments)))
        for i in range(len(loop.arguments))[::-1]:
            loop.arguments[i]()
            loop.store(i, loop.function(loop.shared, *loop.arguments[i]()))


@pytest.mark.parametrize("d", [8, 60])
def test_tasks_of_the_search_can_be_sent_again(d):
    X = np.random.default_rng(0).normal(size=(6000, d)).astype(np.float32)
    expected = specialk_gpu.nearest_neighbors(X, 12)
    with with_workers(cluster := InThisProcess()):
        found = specialk_gpu.nearest_neighbors(X, 12)
    assert {loop[0] for loop in cluster.loops} == {"neighbours"}
    np.testing.assert_array_equal(found.indices, expected.indices)


def test_each_filter_is_shared_in_panels():
    X = clusters(3000)
    with with_workers(cluster := InThisProcess()):
        found = specialk_gpu.SpecialK(**SETTINGS).fit(X)
    assert_same_fit(found, specialk_gpu.SpecialK(**SETTINGS).fit(X))
    loops = [loop[1:] for loop in cluster.loops if loop[0] == "eigenpairs"]
    assert {name for name, _ in loops} == {"filtered_panel"}
    width = found.eigenvalues_.size
    assert loops[0][1] >= -(-width // tall.NARROW_PANEL) > 1  # the first has all vectors
    assert loops[-1][1] == 2  # the search for missed eigenpairs has 16


@pytest.mark.parametrize("d", [8, 60])
def test_neighbors_found_by_workers_are_those_of_one_process(client, sent, d):
    X = np.random.default_rng(0).normal(size=(6000, d)).astype(np.float32)
    expected = specialk_gpu.nearest_neighbors(X, 12)
    with with_workers(_dask_workers.DaskWorkers(client)):
        found = specialk_gpu.nearest_neighbors(X, 12)
    assert "_PairSearch" in sent
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)


def test_every_task_is_done_once_and_in_its_place(client):
    cluster, found = _dask_workers.DaskWorkers(client), {}
    given = [lambda i=i: (np.full(3, i),) for i in range(25)]
    cluster.run(Loop("stage", double, {"factor": 2}, given, found.setdefault))
    assert sorted(found) == list(range(25))
    assert all((found[i] == 2 * i).all() for i in found)


def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_errors_of_tasks_are_those_of_one_process(client):
    cluster = _dask_workers.DaskWorkers(client)
    with pytest.raises(KeyError, match="a b"):
        cluster.run(Loop("stage", fails, "a", [lambda: ("b",)], print))


def test_workers_that_die_of_a_task_are_a_memory_error():
    A = cpu.sparse.csr_matrix(np.eye(63))  # 63 * (8 + 4) + 64 * 4 bytes
    with (
        local_cluster(3, 1) as own,
        pytest.raises(MemoryError, match=r"stage: workers died .* A task needs 1 kB that all"),
    ):
        _dask_workers.DaskWorkers(own).run(Loop("stage", dies, A, [lambda: (1,)], print))


def test_a_cluster_without_workers_is_an_error(monkeypatch):
    monkeypatch.setattr(_dask_workers, "PATIENCE", 0.5)
    with local_cluster(0, 0) as own:
        cluster = _dask_workers.DaskWorkers(own)
        monkeypatch.setattr(cluster, "_sent", lambda _: own.submit(double, {"factor": 1}, 1))
        with pytest.raises(RuntimeError, match="no workers for 0 seconds"):
            cluster.run(Loop("stage", double, {"factor": 1}, [lambda: (1,)], print))


def test_the_bytes_that_tasks_share():
    nested = {"a": [np.zeros(10)], "b": (np.ones((3, 4), dtype=np.float32), "text")}
    assert _dask_workers._bytes_in(nested) == 80 + 48
