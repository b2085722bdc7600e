"""Rivals of the default rule: what is counted as a cluster, and the sets they are tried on."""

import importlib.util

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import homogeneity_score

from benchmarks import rivals
from benchmarks.selection import PATHS

pytestmark = pytest.mark.pages

X, Y = make_blobs(
    150, centers=[(0, 0), (14, 0), (0, 14)], n_features=2, cluster_std=1.0, random_state=3
)
FINER = ("Leiden", "eigengap")  # they divide clusters, here too
NEEDS = {  # a package that is not among those of the tests
    "ISO-SPLIT": "isosplit6",
    "DipMeans": "clustpy",
    "projected DipMeans": "clustpy",
}


@pytest.mark.parametrize("method", rivals.METHODS)
def test_methods_find_three_clusters_that_are_far_apart(method):
    if method in NEEDS and importlib.util.find_spec(NEEDS[method]) is None:
        pytest.skip(f"needs {NEEDS[method]}")
    if method in FINER:
        assert homogeneity_score(Y, rivals.METHODS[method](X)) == pytest.approx(1)
        return
    found = rivals.judged(method, X, Y, [3])
    assert found["verdict"] == "right"
    assert found["ari"] >= 0.95  # HDBSCAN leaves rows out


def test_rows_in_no_cluster_are_no_cluster(monkeypatch):
    labels = np.where(np.arange(150) < 20, -1, Y)
    monkeypatch.setitem(rivals.METHODS, "some", lambda _: labels)
    assert rivals.judged("some", X, np.full(150, -1), [2, 3]) == {"k": 3, "verdict": "right"}
    assert rivals.judged("some", X, Y, [2])["verdict"] == "too many"


def test_halves_of_real_sets_are_fixed_by_their_names():
    names = [f"set {i}" for i in range(400)]
    unseen = [rivals.is_unseen(name) for name in names]
    assert unseen == [rivals.is_unseen(name) for name in names]
    assert 160 < sum(unseen) < 240


def test_tiers_are_read_from_the_table_of_the_folder(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text(
        "# Sets\n\n| set | m | tier |\n|---|---|---|\n| one | 5 | clear |\n| two | 6 | overlap |\n"
    )
    monkeypatch.setenv(PATHS["sets"], str(tmp_path))
    rivals.tiers.cache_clear()
    assert rivals.tiers() == {"one": "clear", "two": "overlap"}
    rivals.tiers.cache_clear()


@pytest.mark.parametrize("name", rivals.ISOLATED)
def test_small_clusters_are_isolated(name):
    m, n, s, d = rivals.ISOLATED[name]
    X, y = rivals.small_ones(np.random.default_rng(0), m, n, s, d)
    assert X.shape == (m + n * s, d)
    assert np.bincount(y).tolist() == [m, *n * [s]]
    for own in range(1, n + 1):
        inside, outside = X[y == own], X[y != own]
        extent = np.linalg.norm(inside[:, None] - inside, axis=2).max()
        gap = np.linalg.norm(inside[:, None] - outside, axis=2).min()
        assert gap > extent / 2
