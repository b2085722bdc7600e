"""The check of the default decision: its sets are what they are called, and results are counted."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

from benchmarks import selection
from benchmarks.paper.runner import read

pytestmark = pytest.mark.pages

DESIGNS = """
from sklearn.datasets import make_blobs
def draw(rng):
    X, y = make_blobs(200, centers=[(0, 0), (15, 0)], random_state=int(rng.integers(100)))
    y[:5] = -1
    return X, y
C = {"two": (draw, 2), "two, said to be three": (draw, 3)}
"""


@pytest.mark.parametrize("name", selection.KINDS)
def test_kinds_are_drawn_by_seed(name):
    X, y = selection.drawn(name, 0, selection.KINDS[name])
    again, _ = selection.drawn(name, 0, selection.KINDS[name])
    assert X.shape[0] == len(y)
    assert np.unique(y).tolist() == list(range(y.max() + 1))
    if sparse.issparse(X):
        assert X.shape == (len(y), len(y))
        assert (X != X.T).nnz == (again != X).nnz == X.diagonal().sum() == 0
    else:
        np.testing.assert_array_equal(X, again)


def test_cliques_are_joined_by_single_edges():
    for k, n_edges in ((2, 1), (20, 20)):
        A, y = selection.cliques(None, k=k, size=10)
        row, column = A.nonzero()
        assert (y[row] != y[column]).sum() == 2 * n_edges
        assert A.nnz == k * 90 + 2 * n_edges


def test_a_fit_of_its_own_process():
    X, _ = make_blobs(200, centers=[(0, 0), (20, 0)], random_state=0)
    found, labels = selection.fit_alone(X, selection.ROOT, backend="numpy", random_state=0)
    assert found["k"] == labels.max() + 1 == 2
    assert found["seconds"] >= found["stages"]["graph"]
    assert found["peak_bytes"] is None or found["peak_bytes"] > 1e6


def test_designs_are_counted_and_not_done_twice(tmp_path, capsys, monkeypatch):
    file = tmp_path / "designs.py"
    file.write_text(DESIGNS)
    command = ["designs", "--designs", str(file), "--seeds", "0", "1", "--jobs", "1"]
    monkeypatch.setenv("SPECIALK_DESIGNS", "")  # put back when the test ends
    selection.designs_module.cache_clear()
    selection.main([*command, "--results", str(tmp_path)])
    out = capsys.readouterr().out
    assert "two (2): 2 right, k 2 (2), ari 1\n" in out
    assert "two, said to be three (2): 2 too few" in out
    assert "all (4): 2 right, 2 too few" in out
    content = (tmp_path / "selection-designs.jsonl").read_text()
    selection.main([*command, "--results", str(tmp_path), "--only", "two"])
    assert (tmp_path / "selection-designs.jsonl").read_text() == content
    assert len(read(tmp_path / "selection-designs.jsonl")) == 4


def test_real_sets_are_read_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECIALK_SETS", str(tmp_path))
    X, y = make_blobs(150, centers=[(0, 0), (15, 0), (0, 15)], random_state=0)
    y[:3] = -1
    np.savez(tmp_path / "three.npz", X=X, y=y, right=[3, 4])
    task = {"set": "three", "seeds": [0, 1]}
    found = selection.stable(task)
    assert found["random_state"] == [3, 3]
    assert (found["verdict"], found["same"], found["ari"]) == ("right", True, 1.0)
    assert selection.given_k(task) == {"k": 3, "ours": 1.0, "theirs": 1.0}


def test_a_path_that_is_needed_is_asked_for(monkeypatch, capsys):
    monkeypatch.delenv("SPECIALK_OTHER", raising=False)
    with pytest.raises(SystemExit):
        selection.main(["time"])
    assert "--other, or SPECIALK_OTHER, must name a path" in capsys.readouterr().err
