"""Fits on a cluster of Dask: rows of all kinds, and clients and workers that come and go."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import time

import numpy as np
import pytest

import specialk_gpu
from specialk_gpu import _dask_rows, _dask_workers
from specialk_gpu._memory_limit import memory_limit
from specialk_gpu._workers import Loop, workers
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
    """Return a client of a worker."""
    with local_cluster(0, 1) as client:
        yield client


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    """Let fits of thousands of rows be shared."""
    for name, value in FEW_ROWS.items():
        monkeypatch.setattr(tall, name, value)


def in_sparse_chunks(W, size):
    """Return a sparse matrix as a dask array of chunks of rows."""
    m, d = W.shape
    return dask_array.concatenate(
        [
            dask_array.from_delayed(
                dask.delayed(W[i : i + size]), (min(size, m - i), d), W.dtype, meta=W[:0]
            )
            for i in range(0, m, size)
        ]
    )


def test_a_graph_in_sparse_chunks_is_joined(client):
    W = specialk_gpu.SpecialK(**SETTINGS).fit(clusters(1200)).affinity_matrix_
    settings = SETTINGS | {"affinity": "precomputed"}
    expected = specialk_gpu.SpecialK(**settings).fit(W)
    found = on_cluster.SpecialK(client=client, **settings).fit(in_sparse_chunks(W, 500))
    assert_same_fit(found, expected)
    assert found.labels_.chunks == ((500, 500, 200),)
    with pytest.raises(TypeError, match="a sparse X of shape"):
        on_cluster.SpecialK(client=client).fit(in_sparse_chunks(W, 500))
    both = dask_array.concatenate([dask_array.ones((1, 1200)), in_sparse_chunks(W, 500)])
    with pytest.raises(TypeError, match="X must have chunks of one kind"):
        on_cluster.SpecialK(client=client, **settings).fit(both)


def test_masks_and_wrong_shapes_of_chunks_are_refused(client):
    X = dask_array.from_array(clusters(100), chunks=(50, -1))
    model = on_cluster.SpecialK(client=client)
    with pytest.raises(ValueError, match="X must have no masked entries"):
        model.fit(dask_array.ma.masked_where(X > 3, X))
    with pytest.raises(ValueError, match=r"got \(1, 4\) for \(50, 4\)"):
        model.fit(X.map_blocks(lambda block: block[:1], dtype=X.dtype))


def test_other_collections_of_dask_are_refused(client):
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    column = frames.from_pandas(pandas.DataFrame({"a": np.zeros(9)}), npartitions=2)["a"]
    model = on_cluster.SpecialK(client=client, **SETTINGS).fit(clusters(60))
    for method in (model.fit, model.predict, model.predict_proba):
        with pytest.raises(TypeError, match="X must be a dask array or data frame, got a dask Del"):
            method(dask.delayed(clusters(60)))
        with pytest.raises(ValueError, match=r"X must have shape \(m, d\), .* got a Series"):
            method(column)


def test_parameters_are_checked_before_rows_are_computed(client):
    X = dask_array.from_array(clusters(60), chunks=(30, -1)).map_blocks(fails, 0, dtype=float)
    with pytest.raises(ValueError, match="alpha"):
        on_cluster.SpecialK(client=client, alpha=7).fit(X)


def test_rows_are_in_a_file_if_they_are_large_for_the_memory_limit(client, monkeypatch):
    X, limits = clusters(1200), []
    large = _dask_rows.large_array

    def watched(*given):
        limits.append(memory_limit.get())
        return large(*given)

    monkeypatch.setattr(_dask_rows, "large_array", watched)
    model = on_cluster.SpecialK(client=client, memory_limit=2**19, **SETTINGS)
    model.fit(dask_array.from_array(X, chunks=(500, -1)))
    assert limits == [2**19]
    assert_same_fit(model, specialk_gpu.SpecialK(**SETTINGS).fit(X))


def test_a_saved_model_and_a_pickle_leave_the_client_out(client, tmp_path):
    X = clusters(600)
    model = on_cluster.SpecialK(client=client, **SETTINGS)
    model.fit(dask_array.from_array(X, chunks=(400, -1))).save(tmp_path / "model.npz")
    for again in (
        on_cluster.SpecialK.load(tmp_path / "model.npz"),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
    ):
        assert type(again) is on_cluster.SpecialK
        assert again.client is None
        assert_same_fit(again, model.to_local())
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert model.client is client


def test_a_summary_of_a_data_frame_of_dask(client):
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    named = pandas.DataFrame(clusters(600), columns=list("abcd"))
    model = on_cluster.SpecialK(client=client, **SETTINGS)
    model.fit(frames.from_pandas(named, npartitions=2))
    found = model.summary(frames.from_pandas(named, npartitions=3)).to_frame()
    assert found.equals(model.to_local().summary(named).to_frame())


def test_closed_and_asynchronous_clients_are_refused(client):
    closed = distributed.Client(client.scheduler.address, set_as_default=False)
    closed.close()
    with pytest.raises(ValueError, match="must be connected .* got one that is closed"):
        on_cluster.SpecialK(client=closed).fit(clusters(60))

    async def fit():
        address, options = client.scheduler.address, {"set_as_default": False}
        async with distributed.Client(address, asynchronous=True, **options) as own:
            on_cluster.SpecialK(client=own).fit(clusters(60))

    with pytest.raises(ValueError, match="not asynchronous, got one that is asynchronous"):
        asyncio.run(fit())


def test_a_client_that_is_closed_during_a_fit_is_an_error():
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as local:
        own = distributed.Client(local, set_as_default=False)
        cluster = _dask_workers.DaskWorkers(own)
        with pytest.raises(RuntimeError, match="stage: the client was closed, or its scheduler"):
            cluster.run(Loop("stage", double, {"factor": 1}, [own.close, lambda: (1,)], print))


def test_nothing_is_left_on_the_workers_after_a_failure(client):
    given = [lambda i=i: (np.full(3, i),) for i in range(25)]

    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, _dask_workers.workers_of(client):
        workers.get().run(Loop("stage", double, {"factor": 2}, given, interrupted))
    assert caught.tb is not None  # all frames live on, as in a notebook
    for _ in range(100):
        if not client.run_on_scheduler(calls_on_scheduler):
            break
        time.sleep(0.05)
    assert not client.run_on_scheduler(calls_on_scheduler)


def calls_on_scheduler(dask_scheduler):
    """Return the keys of tasks, and of objects that all of them share."""
    return [key for key in dask_scheduler.tasks if str(key).startswith(("_call", "dict"))]


def test_an_adaptive_cluster_without_workers_starts_one():
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as local,
        distributed.Client(local, set_as_default=False) as own,
    ):
        local.adapt(minimum=0, maximum=1, interval="100ms")
        cluster, found = _dask_workers.DaskWorkers(own), {}
        cluster.run(Loop("stage", double, {"factor": 2}, [lambda: (3,)], found.setdefault))
        cluster.release()
    assert found == {0: 6}


def test_patience_with_workers_begins_anew_in_each_loop(monkeypatch):
    monkeypatch.setattr(_dask_workers, "PATIENCE", 5.0)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as local,
        distributed.Client(local, set_as_default=False) as own,
    ):
        cluster, found = _dask_workers.DaskWorkers(own), {}
        cluster._seen -= 60.0  # the client was busy on its own
        timer = threading.Timer(0.5, local.scale, [1])
        timer.start()
        cluster.run(Loop("stage", double, {"factor": 2}, [lambda: (3,)], found.setdefault))
        timer.join()
        cluster.release()
    assert found == {0: 6}


def fit_in_task(X):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FEW_ROWS.items():
            patch.setattr(tall, name, value)
        return on_cluster.SpecialK(**SETTINGS).fit(X)


def test_a_task_can_fit_on_the_workers_that_it_runs_on(client):
    X = clusters(3000)
    found = client.submit(fit_in_task, X).result(timeout=120)
    assert_same_fit(found, specialk_gpu.SpecialK(**SETTINGS).fit(X))
