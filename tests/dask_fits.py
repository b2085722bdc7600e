"""Fits on small clusters of Dask, for tests of `specialk_gpu.dask`."""

from __future__ import annotations

from contextlib import contextmanager

import dask
import distributed
import numpy as np
import pytest

MARKS = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
# of specialk_gpu.spectrum.tall: so fits of thousands of rows are shared
FEW_ROWS = {"MANY_ROWS": 1000, "SLAB": 512, "NARROW_PANEL": 8}
SETTINGS = {"backend": "numpy", "random_state": 0, "eigen_solver": "chebyshev"}


@contextmanager
def local_cluster(allowed_failures, n_workers=2):
    """Return a client of workers; a task may kill so many of them."""
    settings = {
        "distributed.scheduler.allowed-failures": allowed_failures,
        # A cluster drops a worker that is down when this time after an *earlier* death has passed,
        # though it is just being started again.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    options = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def clusters(m, d=4):
    """Return rows whose graph is connected, so that it is solved as a whole."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(6, d))[np.arange(m) % 6] * 3 + rng.normal(size=(m, d))


def assert_same_fit(found, expected):
    for name in ("labels_", "membership_", "embedding_", "eigenvalues_"):
        np.testing.assert_array_equal(np.asarray(getattr(found, name)), getattr(expected, name))
    np.testing.assert_array_equal(found.tree_.log_p, expected.tree_.log_p)


def double(shared, x):
    return shared["factor"] * x


def fails(shared, x):
    msg = f"{shared} {x}"
    raise KeyError(msg)
