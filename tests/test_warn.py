"""Warnings point at the caller's line, however deep in the package they arise."""

import inspect
import warnings

from specialk_gpu._warnings import warn_deprecated


def test_a_deprecation_names_both_names_the_version_and_the_line_of_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = inspect.currentframe().f_lineno + 1
        warn_deprecated("old()", "new()", "version 1.0")
    (warning,) = caught
    assert warning.category is FutureWarning  # DeprecationWarning is not shown to users
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert str(warning.message) == (
        "old() is deprecated and will be removed in version 1.0: use new()."
    )
