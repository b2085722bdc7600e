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
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from specialk_gpu import _estimator
from specialk_gpu._progress import report_progress
from specialk_gpu._time_limit import check_time_limit
from specialk_gpu._units import size_in_units
from specialk_gpu._workers import Arguments, Store, with_workers
from specialk_gpu.backend import cpu
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.typing import Array

__all__ = ["SpecialK"]

REPEATS = 5  # times that a task, or data, are sent, where a worker that has them is lost
KEPT = 2  # shared objects that workers keep: the matrix in both precisions
PATIENCE = 60.0  # seconds without any worker
PAUSE = 0.002  # seconds between two looks at what is done


class SpecialK(_estimator.SpecialK):
    """`specialk_gpu.SpecialK`, fitted with the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client, default=None
        None takes the one that is current.
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
            A dask array has chunks of whole rows. The columns of a data frame keep their names.
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
        client = _client_of(self.client)
        with with_workers(_Cluster(client)):
            if not _is_dask(X):
                return super().fit(X, y)
            rows, chunks = _gathered(X, client)
            super().fit(rows, y)
        self.labels_ = _lazy(self.labels_, chunks)
        self.membership_ = _lazy(self.membership_, chunks)
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
        return self._by_blocks("predict", X)

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
        return self._by_blocks("predict_proba", X)

    def _by_blocks(self, method: str, X: Any) -> Any:
        """Return what a method of the model gives for each block of rows."""
        check_is_fitted(self)
        if not _is_dask(X):
            return getattr(self.to_local(), method)(X)
        from dask import delayed

        model = delayed(self.to_local(), pure=False)  # part of each task: no worker can lose it
        columns = () if method == "predict" else (self.n_clusters_,)
        found = np.empty((0, *columns), np.float64 if columns else np.int32)
        if hasattr(X, "map_partitions"):
            parts = X.map_partitions(_found_by, method, model, found, meta=_frame_of(found))
            return parts.to_dask_array()
        blocks = _row_blocks(X)
        chunks = (blocks.chunks[0], *((n,) for n in columns))
        kind = {"chunks": chunks, "dtype": found.dtype, "meta": found}
        axes = {} if columns else {"drop_axis": 1}
        return blocks.map_blocks(_found_by, method, model, found, **kind, **axes)

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
        return getattr(self.to_local(), name)(*args, **settings)

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

    def map(
        self,
        function: Callable[..., Any],
        shared: Any,
        arguments: Arguments,
        store: Store,
        stage: str,
    ) -> None:
        """See `specialk_gpu._workers.Workers`."""
        from distributed import KilledWorker

        waiting, sent, done = list(range(len(arguments)))[::-1], [0] * len(arguments), 0
        running: dict[int, Any] = {}
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
            try:
                return self.client.scatter([x], hash=False)[0]
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
            self._seen = now if self._threads else self._seen
        if now > self._seen + PATIENCE:
            msg = f"no workers for {PATIENCE:.0f} seconds. Start workers, and fit again."
            raise RuntimeError(msg)
        return max(1, self._threads)


def _call(function: Callable[..., Any], shared: Any, given: tuple[Any, ...]) -> Any:
    with cpu.narrow_block():
        return function(shared, *given)


def _found_by(rows: Any, method: str, model: _estimator.SpecialK, none: Array) -> Any:
    """Return what a method of a model gives for a block; a block without rows has none."""
    found = getattr(model, method)(rows) if len(rows) else none
    return _frame_of(found, rows.index) if hasattr(rows, "index") else found


def _frame_of(values: Array, index: Any = None) -> Any:
    """Return values as a series or a data frame."""
    import pandas as pd

    return (pd.Series if values.ndim == 1 else pd.DataFrame)(values, index=index)


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

    if client is not None:
        if not isinstance(client, Client):
            msg = f"client must be a distributed.Client or None, got {client!r}. Client(address) "
            raise TypeError(msg + "makes one.")
        return client
    try:
        return get_client()
    except ValueError as error:
        msg = "client must be a distributed.Client, or one must be current: Client() makes one."
        raise ValueError(msg) from error


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def _row_blocks(X: Any) -> Any:
    """Return a dask array, if its chunks are whole rows."""
    if X.ndim != 2:
        msg = f"X must have shape (m, d), rows and columns, got shape {X.shape}."
        raise ValueError(msg)
    if len(X.chunks[1]) > 1:
        msg = (
            f"X must have chunks of whole rows, got {len(X.chunks[1])} chunks of columns. Use "
            "X.rechunk({1: -1})."
        )
        raise ValueError(msg)
    return X


def _gathered(X: Any, client: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the rows of a dask array, or a data frame, and the numbers of rows of its chunks."""
    if hasattr(X, "to_delayed") and hasattr(X, "columns"):
        import pandas as pd

        parts = client.gather(client.compute(X.to_delayed()))
        return pd.concat(parts), tuple(map(len, parts))
    X = _row_blocks(X)
    if any(math.isnan(size) for size in X.chunks[0]):
        msg = "X must have chunks of known sizes: call X.compute_chunk_sizes() first."
        raise ValueError(msg)
    X = X.persist(scheduler=client)
    out, begin = large_array(cpu, X.shape, X.dtype), 0
    for size, block in zip(X.chunks[0], X.blocks, strict=True):
        out[begin : begin + size] = block.compute(scheduler=client)
        begin += size
    return out, X.chunks[0]


def _lazy(values: Array, chunks: tuple[int, ...]) -> Any:
    from dask.array import from_array

    return from_array(values, chunks=(chunks, *values.shape[1:]))
