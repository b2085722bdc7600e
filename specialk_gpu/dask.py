"""SpecialK on a cluster of Dask: the same fit, whose long loops are shared by workers.

The process that calls `fit`, the client, holds the rows, the graph and the vectors, in files if
they do not fit (`memory_limit`). Workers search for neighbours, strip by strip, and filter the
vectors, panel by panel. A task is a function of its arguments alone, so that it can be repeated
where a worker is lost; and the client keeps all that tasks are made of.
"""

from __future__ import annotations

import functools
import inspect
import math
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from specialk_gpu import _estimator
from specialk_gpu._dask_rows import (
    by_blocks,
    check_collection,
    gathered,
    in_chunks,
    in_memory,
    is_dask,
)
from specialk_gpu._fit_limits import memory_limit_of_fit
from specialk_gpu._parameters import check_parameter_limits, checked_parameters
from specialk_gpu._progress import report_progress
from specialk_gpu._time_limit import check_time_limit
from specialk_gpu._units import size_in_units
from specialk_gpu._workers import Arguments, Store, with_workers
from specialk_gpu.backend import cpu

__all__ = ["SpecialK"]

REPEATS = 5  # times that a task, or data, are sent, where a worker that has them is lost
KEPT = 2  # shared objects that workers keep: the matrix in both precisions
PATIENCE = 60.0  # seconds without any worker
WAIT = 2.0  # seconds that the scheduler waits for a worker that takes data
PAUSE = 0.002  # seconds between two looks at what is done


class SpecialK(_estimator.SpecialK):
    """`specialk_gpu.SpecialK`, fitted with the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client, default=None
        None takes the one that is current. It is no part of a copy, a pickle or a saved model.
    **parameters
        As of `specialk_gpu.SpecialK`. Results are the same as its own, with any number of workers.

    Attributes
    ----------
    labels_, membership_
        As of `specialk_gpu.SpecialK`. For a dask array or data frame they are dask arrays with its
        chunks of rows.

    Notes
    -----
    The client needs the memory of a fit of one process: see the page "Past one machine". For
    pictures of a fit of dask data, take `to_local`.

    Examples
    --------
    >>> from dask.distributed import Client
    >>> from specialk_gpu.dask import SpecialK
    >>> client = Client(n_workers=2)  # doctest: +SKIP
    >>> model = SpecialK(random_state=0).fit(X)  # doctest: +SKIP
    """

    def __init__(self, *, client: Any = None, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.client = client

    def __sklearn_clone__(self) -> Self:
        """Return an estimator that is not fitted, with the same client: it cannot be copied."""
        given = self.get_params(deep=False)
        client = given.pop("client")
        plain = clone(_estimator.SpecialK(**given))
        return type(self)(client=client, **plain.get_params(deep=False))

    def fit(self, X: Any, y: object = None) -> Self:
        """Find the number of clusters in X, and the clusters.

        Parameters
        ----------
        X : dask array or data frame of shape (m, d), or what `specialk_gpu.SpecialK` takes
            A dask array has chunks of whole rows, which may be sparse for a graph. The columns of
            a data frame keep their names.
        y : object
            Ignored; scikit-learn passes it.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            If X has chunks of columns or of unknown sizes, or there is no client.
        MemoryError
            If workers die again and again; otherwise as `specialk_gpu.SpecialK`.
        """
        with _workers_of(_client_of(self.client)) as client:
            if not is_dask(X):
                return super().fit(X, y)
            check_collection(X)
            self._validate_params()
            check_parameter_limits(parameters := checked_parameters(self))
            with memory_limit_of_fit(parameters, cpu):
                rows, chunks = gathered(X, client)
            super().fit(rows, y)
        self.labels_ = in_chunks(self.labels_, chunks)
        self.membership_ = in_chunks(self.membership_, chunks)
        return self

    def predict(self, X: Any) -> Any:
        """Return the cluster of each row of X.

        Parameters
        ----------
        X : dask array or data frame of shape (q, d), or what `specialk_gpu.SpecialK` takes
            New rows.

        Returns
        -------
        int32 array of shape (q,)
            For dask data a dask array, computed block by block when it is asked for.

        Raises
        ------
        ValueError, TypeError, NotFittedError
            As `specialk_gpu.SpecialK.predict`.
        """
        check_is_fitted(self)
        if not is_dask(X):
            return self.to_local().predict(X)
        return by_blocks(X, "predict", self.to_local(), None)

    def predict_proba(self, X: Any) -> Any:
        """Return, for new rows, how much they belong to each cluster.

        Parameters
        ----------
        X : dask array or data frame of shape (q, d), or what `specialk_gpu.SpecialK` takes
            New rows.

        Returns
        -------
        float64 array of shape (q, k)
            As of `specialk_gpu.SpecialK.predict_proba`; for dask data a dask array, computed block
            by block when it is asked for.

        Raises
        ------
        ValueError, TypeError, NotFittedError
            As `specialk_gpu.SpecialK.predict`.
        """
        check_is_fitted(self)
        if not is_dask(X):
            return self.to_local().predict_proba(X)
        return by_blocks(X, "predict_proba", self.to_local(), self.n_clusters_)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle and copies, without the client: it has connections."""
        return super().__getstate__() | {"client": None}

    @classmethod
    def _check_parameters(cls, parameters: dict[str, Any], settings: dict[str, Any]) -> None:
        """Check the parameters of a file: it holds the model without the cluster."""
        _estimator.SpecialK._check_parameters(parameters, settings)

    def save(self, path: str | Path) -> None:
        """Write the model without the cluster to a file; see `specialk_gpu.SpecialK.save`.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        TypeError, OSError
            If a parameter cannot be written, or the file cannot.
        """
        self.to_local().save(path)

    def to_local(self) -> _estimator.SpecialK:
        """Return the fitted model without the cluster.

        Returns
        -------
        specialk_gpu.SpecialK
            With the same parameters and results, which are NumPy arrays.
        """
        local = _estimator.SpecialK()
        local.__dict__.update(self.__dict__)
        del local.client
        for name in ("labels_", "membership_"):
            if hasattr(local, name):
                setattr(local, name, np.asarray(getattr(local, name)))
        return local


def _of_local(name: str) -> Callable[..., Any]:
    """Return a method of a fitted model that works without the cluster."""

    @functools.wraps(getattr(_estimator.SpecialK, name))
    def call(self: SpecialK, *args: Any, **settings: Any) -> Any:
        return getattr(self.to_local(), name)(*map(in_memory, args), **settings)

    return call


for _name in ("describe", "summary", "report", "stability", "_repr_html_"):
    setattr(SpecialK, _name, _of_local(_name))

_PARAMETERS = inspect.signature(_estimator.SpecialK.__init__).parameters
_OWN = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any)
# scikit-learn reads the names of the parameters in this attribute, which types do not know
SpecialK.__init__.__signature__ = inspect.Signature([*_PARAMETERS.values(), _OWN])  # type: ignore[attr-defined] # see above


class _Cluster:
    """The workers of a client; see `specialk_gpu._workers.Workers`."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._shared: dict[int, tuple[Any, Any]] = {}  # by id: objects, and where they are
        self._threads, self._looked, self._seen = 0, -math.inf, time.monotonic()
        self._wanted: Any = None  # a task that waits for workers: adaptive clusters heed it

    def release(self) -> None:
        """Let workers forget what they were sent, even if an exception keeps this object."""
        for _, future in self._shared.values():
            future.release()
        self._shared.clear()
        self._wanted = None

    def map(
        self,
        function: Callable[..., Any],
        shared: Any,
        arguments: Arguments,
        store: Store,
        stage: str,
    ) -> None:
        """See `specialk_gpu._workers.Workers`."""
        running: dict[int, Any] = {}
        self._seen = time.monotonic()
        try:
            self._run(running, function, shared, arguments, store, stage)
        except Exception as error:
            if self.client.status == "running":
                raise
            msg = (
                f"{stage}: the client was closed, or its scheduler was lost. Connect a new client, "
                "and fit again: with checkpoint= the fit goes on where it was."
            )
            raise RuntimeError(msg) from error
        finally:
            for future in running.values():
                future.release()

    def _run(
        self,
        running: dict[int, Any],
        function: Callable[..., Any],
        shared: Any,
        arguments: Arguments,
        store: Store,
        stage: str,
    ) -> None:
        """Send tasks, and keep those that run in `running`, until all are done."""
        from distributed import KilledWorker

        waiting, sent, done = list(range(len(arguments)))[::-1], [0] * len(arguments), 0
        while waiting or running:
            room = 2 * self._n_threads()
            while waiting and len(running) < room:
                i = waiting.pop()
                sent[i] += 1
                if sent[i] > REPEATS:
                    raise _workers_died(stage, shared)
                given, where = self._sent(arguments[i]()), self._place_of(shared)
                running[i] = self.client.submit(_call, function, where, given, pure=False)
            finished = [i for i, future in running.items() if future.done()]
            for i in finished:
                try:
                    found = running.pop(i).result()
                except CancelledError:  # data of the task were lost with a worker
                    waiting.append(i)
                    continue
                except KilledWorker as error:
                    raise _workers_died(stage, shared) from error
                store(i, found)
                done += 1
                report_progress(stage, done, len(arguments))
            if not finished:
                check_time_limit()
                time.sleep(PAUSE)

    def _place_of(self, shared: Any) -> Any:
        """Return the future of an object on the workers; send it if it was lost."""
        kept = self._shared.get(id(shared))
        if kept is None or kept[1].status != "finished":
            kept = self._shared[id(shared)] = shared, self._sent(shared)
            for key in list(self._shared)[:-KEPT]:
                del self._shared[key]
        return kept[1]

    def _sent(self, x: Any) -> Any:
        """Return the future of an object that is sent to a worker; others fetch it there."""
        for i in range(REPEATS):
            while not self._n_threads():
                check_time_limit()
                time.sleep(PAUSE)
            try:
                return self.client.scatter([x], hash=False, timeout=WAIT)[0]
            except (KeyError, OSError) as error:  # the worker died meanwhile
                last = error
                check_time_limit()
                time.sleep(0.1 * 2**i)
        msg = f"no worker takes data ({last!r}). Are workers alive? The dashboard shows them."
        raise RuntimeError(msg) from last

    def _n_threads(self) -> int:
        """Return the number of threads of all workers; RuntimeError if there are none for long."""
        now = time.monotonic()
        if now > self._looked + 1:
            self._looked, self._threads = now, sum(self.client.nthreads().values())
            if self._threads:
                self._seen, self._wanted = now, None
            elif self._wanted is None:
                self._wanted = self.client.submit(int, pure=False)
        if now > self._seen + PATIENCE:
            msg = f"no workers for {PATIENCE:.0f} seconds. Start workers, and fit again."
            raise RuntimeError(msg)
        return self._threads


@contextmanager
def _workers_of(client: Any) -> Iterator[Any]:
    """Let the workers of a client share the loops that run inside; return the client."""
    cluster = _Cluster(client)
    try:
        with with_workers(cluster):
            yield client
    finally:
        cluster.release()


def _call(function: Callable[..., Any], shared: Any, given: tuple[Any, ...]) -> Any:
    with cpu.narrow_block():
        return function(shared, *given)


def _workers_died(stage: str, shared: Any) -> MemoryError:
    return MemoryError(
        f"{stage}: workers died again and again, most likely for want of memory. A task needs "
        f"{size_in_units(_bytes_in(shared))} that all tasks share, and its own panel or strip. Use "
        "workers with more memory, or with fewer threads."
    )


def _bytes_in(x: Any) -> int:
    """Return the bytes of the arrays in an object."""
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return sum(buffer.raw().nbytes for buffer in buffers)


def _client_of(client: Any) -> Any:
    """Return the client that is given, or the current one."""
    from distributed import Client, get_client

    if client is not None and not isinstance(client, Client):
        msg = f"client must be a distributed.Client or None, got {client!r}. Client(address) "
        raise TypeError(msg + "makes one.")
    try:
        client = client or get_client()
    except ValueError as error:
        msg = "client must be a distributed.Client, or one must be current: Client() makes one."
        raise ValueError(msg) from error
    if client.asynchronous or client.status != "running":
        state = "asynchronous" if client.asynchronous else client.status
        msg = f"client must be connected and not asynchronous, got one that is {state}. "
        raise ValueError(msg + "Client(address) makes one.")
    return client
