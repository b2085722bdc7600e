"""Fits that tests share: each is made once in a process, and every test gets a copy of its own."""

import copy
import pickle
import warnings
from functools import cache

from specialk_gpu import SpecialK


def _fitted(X, settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(**settings).fit(X)


@cache
def _shared(X, settings):
    return _fitted(pickle.loads(X), dict(settings))


def fit(X, bk=None, **settings):
    """Return a model fitted to X, with seed 0 and on NumPy if not told otherwise.

    For tests of what follows a fit; a test of the fit itself calls `SpecialK.fit`.
    """
    settings = {"backend": "numpy" if bk is None else bk.name, "random_state": 0, **settings}
    if settings["backend"] != "numpy":  # arrays on a device are not shared
        return _fitted(X, settings)
    return copy.deepcopy(_shared(pickle.dumps(X), tuple(sorted(settings.items()))))
