"""Data frames: names are kept, and text or dates refused."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import make_blobs

from specialk_gpu import SpecialK

COMPONENTS = r"the graph has \d connected components"
BLOBS, _ = make_blobs(180, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)
TEXT = BLOBS.astype(str)


def fit(X):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", COMPONENTS, UserWarning)
        return SpecialK(backend="numpy", random_state=0).fit(X)


@pytest.mark.parametrize(
    "frame", [pd.DataFrame(BLOBS, columns=["a", "b", "c"]), pl.DataFrame(BLOBS, list("abc"))]
)
def test_data_frames_give_equal_labels_and_names(frame):
    model = fit(frame)
    np.testing.assert_array_equal(model.labels_, fit(BLOBS).labels_)
    assert isinstance(model.labels_, np.ndarray)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", COMPONENTS, UserWarning)
        assert not hasattr(model.fit(BLOBS), "feature_names_in_")


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame(TEXT),
        pd.DataFrame(BLOBS).assign(d=TEXT[:, 0]),
        pd.DataFrame({"a": pd.Categorical(TEXT[:, 0])}),
        pd.Series(TEXT[:, 0]),
        pd.Series(TEXT[:, 0], dtype=object),
        pl.DataFrame(TEXT, list("abc")),
        pd.DataFrame(BLOBS).assign(d=pd.date_range("2020", periods=len(BLOBS))),
        pl.DataFrame({"d": pd.date_range("2020", periods=50), "x": np.arange(50.0)}),
    ],
)
def test_text_and_dates_are_refused_even_where_they_look_like_numbers(X):
    with pytest.raises(ValueError, match=r"X must be numeric, got text or dates \(dtype "):
        fit(X)
