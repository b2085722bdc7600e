"""Callbacks of scikit-learn 1.9 and later: they hear of a fit, and of each stage when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from specialk_gpu._progress import stages_told
from specialk_gpu.backend.typing import Matrix

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9: there is no `set_callbacks`

    class CallbackSupportMixin:  # type: ignore[no-redef] # in place of the one that is absent
        """Nothing to support."""

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is."""
        return method


__all__ = ["WithCallbacks"]

T = TypeVar("T")


class WithCallbacks(CallbackSupportMixin):
    """An estimator that tells the callbacks of `set_callbacks` of its fits.

    The fit is a task, and each stage is a subtask of it with the name of the stage in `timings_`. A
    stage is told of when it has ended. What a callback returns does not end the fit.
    """

    @with_callbacks  # type: ignore[untyped-decorator] # of scikit-learn
    def _tell_callbacks(self, fit: Callable[[Matrix], T], X: Matrix) -> T:
        """Return `fit(X)`; tell the callbacks of it."""
        if not hasattr(self, "_skl_callbacks"):
            return fit(X)
        whole = self._init_callback_context(max_subtasks=None)

        def told(stage: str) -> None:
            own = whole.subcontext(task_name=stage)
            own.call_on_fit_task_begin(estimator=self)
            own.call_on_fit_task_end(estimator=self)

        whole.call_on_fit_task_begin(estimator=self, X=X)
        with stages_told(told):
            done = fit(X)
        whole.call_on_fit_task_end(estimator=self, X=X, reconstruction_attributes=self._fitted)
        return done

    def _fitted(self) -> dict[str, Any]:
        """Return what the fit has set, of which scikit-learn makes a fitted copy."""
        ours = self.get_params()
        own = vars(self).items()
        return {x: value for x, value in own if x not in ours and "callback" not in x}
