"""Callbacks of scikit-learn hear of a fit and of its stages; without any, nothing changes."""

# ruff: noqa: ARG002 - scikit-learn hands over more than these callbacks use

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV

from specialk_gpu import SpecialK

pytest.importorskip("sklearn.callback", reason="scikit-learn 1.9 has callbacks")
X, _ = make_blobs(200, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)


class Heard:
    """A callback that writes down what it hears."""

    def __init__(self):
        self.tasks, self.fitted = [], []

    def setup(self, estimator, context):
        self.tasks.append("setup")

    def teardown(self, estimator, context):
        self.tasks.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X=None):
        self.tasks.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.tasks.append(f"end {context.task_name}")
        self.fitted.append(fitted_estimator)


def n_found(model, _X):
    return model.n_clusters_


@pytest.fixture(params=["cut", "zz_top"])
def model(request):
    settings = {"criterion": request.param, "max_clusters": 6}
    return SpecialK(backend="numpy", random_state=0, **settings)


def test_each_stage_is_told_once_and_in_turn(model):
    heard = Heard()
    plain = clone(model).fit(X)
    model.set_callbacks(heard).fit(X)
    stages = list(dict.fromkeys(task.split(" ", 1)[-1] for task in heard.tasks[2:-2]))
    assert stages == list(model.timings_) == list(plain.timings_)
    told = [f"{word} {stage}" for stage in stages for word in ("begin", "end")]
    assert list(dict.fromkeys(heard.tasks)) == ["setup", "begin fit", *told, "end fit", "teardown"]
    np.testing.assert_array_equal(model.labels_, plain.labels_)


def test_the_end_of_the_fit_has_a_fitted_model(model):
    heard = Heard()
    model.set_callbacks(heard).fit(X)
    *stages, last = heard.fitted
    assert set(stages) == {None}
    np.testing.assert_array_equal(last.predict(X), model.labels_)


def test_a_fit_that_fails_is_torn_down_and_leaves_the_model(model):
    heard = Heard()
    model.set_callbacks(heard)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((20, 2), np.nan))
    assert heard.tasks == ["setup", "begin fit", "teardown"]
    assert vars(model) == before


def test_an_error_of_a_callback_is_raised(model):
    class Broken(Heard):
        def on_fit_task_end(self, estimator, context):
            msg = f"no {context.task_name}"
            raise RuntimeError(msg)

    broken = Broken()
    with pytest.raises(RuntimeError, match="no graph"):
        model.set_callbacks(broken).fit(X)
    assert broken.tasks[-1] == "teardown"
    assert not hasattr(model, "labels_")


def test_callbacks_are_not_kept_in_files(model, tmp_path):
    model.set_callbacks(Heard()).fit(X).save(tmp_path / "model.npz")
    loaded = SpecialK.load(tmp_path / "model.npz")
    assert not [name for name in vars(loaded) if "callback" in name]


def test_a_search_hands_them_on(model):
    heard = Heard()
    model.set_callbacks(heard)
    search = GridSearchCV(model, {"alpha": [0.01, 0.05]}, cv=2, scoring=n_found)
    search.fit(X)
    assert heard.tasks.count("begin fit") == 5
