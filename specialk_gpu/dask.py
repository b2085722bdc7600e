"""SpecialK on a cluster of Dask: the same fit, whose long loops are shared by workers.

The process that calls `fit`, the client, holds the rows, the graph and the vectors, in files if
they do not fit (`memory_limit`). Workers search for neighbours, strip by strip, and filter the
vectors, panel by panel. A task is a function of its arguments alone, so that it can be repeated
where a worker is lost; and the client keeps all that tasks are made of.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
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
from specialk_gpu._dask_workers import client_of, workers_of
from specialk_gpu._fit_limits import memory_limit_of_fit
from specialk_gpu._parameters import check_parameter_limits, checked_parameters
from specialk_gpu.backend import cpu

__all__ = ["SpecialK"]


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
        with workers_of(client_of(self.client)) as client:
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
