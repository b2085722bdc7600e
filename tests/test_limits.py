"""Memory limits and checkpoints: the same result from files, and after any interruption."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from numpy.random import RandomState

from specialk_gpu import SpecialK, eigenpairs, knn_graph
from specialk_gpu._checkpoint import (
    Checkpoint,
    Rounds,
    checkpointed,
    fingerprint,
    kept_step,
    rounds_to_keep,
)
from specialk_gpu._memory_limit import memory_limit, memory_limited
from specialk_gpu._time_limit import (
    OutOfTime,
    check_time_limit,
    lift_time_limit,
    time_limited,
)
from specialk_gpu._units import bytes_of
from specialk_gpu._validation import _validated_as_numpy
from specialk_gpu.backend import cpu
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.datasets import make_shape
from specialk_gpu.spectrum import tall

KILLED = """
import glob, os, signal, sys, threading, time
from pathlib import Path
from tests.test_limits import clusters, fitted
folder, wanted = sys.argv[1:]

def kill():
    while True:
        if any(Path(x).match(wanted) for x in glob.glob(f"{folder}/*/*")):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.0005)

threading.Thread(target=kill, daemon=True).start()
fitted(clusters(), checkpoint=folder)
"""


def clusters(m=1500, d=3):
    rng = np.random.default_rng(0)
    return rng.normal(size=(5, d))[np.arange(m) % 5] * 8 + rng.normal(size=(m, d))


def fitted(X, **parameters):
    return SpecialK(backend="numpy", random_state=0, **parameters).fit(X)


def assert_same_fit(found, expected):
    assert found.n_clusters_ == expected.n_clusters_
    for name in ("labels_", "membership_", "embedding_", "eigenvalues_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(found.tree_.children, expected.tree_.children)
    np.testing.assert_array_equal(found.tree_.log_p, expected.tree_.log_p)


def is_in_file(x):
    """Return whether the memory of an array is mapped from a file that has no name any more."""
    place = x.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends = [int(end, 16) for end in line.split()[0].split("-")]
        if ends[0] <= place < ends[1]:
            return line.endswith("(deleted)")
    return False


# Sizes and arrays ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1GB", 10**9),
        ("1.5 gib", 3 * 2**29),
        ("800m", 8 * 10**8),
        (" 2 TB ", 2 * 10**12),
        ("64KiB", 2**16),
        ("512", 512),
        ("12 B", 12),
        ("GB", None),
        ("1 GBB", None),
        ("-1GB", None),
        ("1e9", None),
        ("", None),
    ],
)
def test_sizes_are_read(text, expected):
    assert bytes_of(text) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_arrays_beyond_a_sixteenth_of_the_limit_are_in_files(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with memory_limited(16 * 4000):
        small, large = (large_array(cpu, (m, 5), np.float64) for m in (100, 101))
    assert not is_in_file(small)
    assert is_in_file(large)
    assert large.shape == (101, 5)
    assert large.dtype == np.float64
    large[...] = np.arange(505).reshape(101, 5)
    assert large[100, 4] == 504
    assert not list(tmp_path.iterdir())  # the file has no name
    assert not is_in_file(large_array(cpu, (10**4, 5), np.float64))  # without a limit


def test_threads_know_the_limit():
    with memory_limited(16):
        limits = cpu.map_chunks(lambda _: large_array(cpu, (4, 1), np.float64).base, range(8))
    assert all(type(base).__name__ == "ndarray" for base in limits)  # over a map of a file


def test_an_array_for_which_the_disk_has_no_space_is_refused(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    message = rf"80 kB does not fit into the folder {re.escape(str(tmp_path))} .*No space left.*TMP"
    with (
        memory_limited(16),
        pytest.raises(MemoryError, match=message),
    ):
        large_array(cpu, (1000, 10), np.float64)
    assert not list(tmp_path.iterdir())


# Tall matrices ------------------------------------------------------------------------------------


@pytest.fixture(params=["in memory", "in files"])
def in_slabs(request, monkeypatch):
    """Let 300 rows be many, in slabs of 128, and a panel have 2 columns."""
    for name, value in {"MANY_ROWS": 300, "SLAB": 128, "NARROW_PANEL": 2, "BATCH": 2}.items():
        monkeypatch.setattr(tall, name, value)
    with memory_limited(16 if request.param == "in files" else None):
        yield


@pytest.mark.usefixtures("in_slabs")
def test_many_rows_are_split_into_slabs_and_panels(bk):
    assert tall.slabs(cpu, 299) == [slice(0, 299)]
    assert tall.slabs(cpu, 300) == [slice(0, 128), slice(128, 256), slice(256, 300)]
    assert tall.panels_of(cpu, 300, 5) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert tall.panels_of(cpu, 299, 5) == cpu.panels(5)
    if bk.name == "cuda":
        assert tall.slabs(bk, 10**6) == [slice(0, 10**6)]
        assert tall.panels_of(bk, 10**6, 5) == bk.panels(5)


@pytest.mark.parametrize("m", [299, 300, 513])
@pytest.mark.usefixtures("in_slabs")
def test_products_of_tall_matrices(bk, m):
    rng = np.random.default_rng(0)
    V, U = rng.normal(size=(m, 5)), np.linalg.qr(rng.normal(size=(m, 3)))[0]
    B, T = rng.normal(size=(5, 5)), np.triu(rng.normal(size=(5, 5)))

    def on_backend(x):
        out = large_array(bk, x.shape, x.dtype)
        out[...] = bk.asarray(x)
        return out

    def assert_close(found, expected):
        np.testing.assert_allclose(bk.to_numpy(found), expected, rtol=1e-12, atol=1e-11)

    v, u = on_backend(V), on_backend(U)
    assert_close(tall.inner_products(bk, v, u), V.T @ U)
    assert_close(tall.gram_of(bk, v), V.T @ V)
    assert_close(tall.columns_of(bk, v, slice(1, 4)), V[:, 1:4])
    assert_close(tall.columns_of(bk, v, bk.asarray(np.array([4, 0]))), V[:, [4, 0]])
    assert_close(tall.joined(bk, v, u), np.hstack([V, U]))
    tall.multiply_upper(bk, v, bk.asarray(T))
    assert_close(v, V @ T)
    v = on_backend(V)
    tall.rotate(bk, v, bk.asarray(B))
    assert_close(v, V @ B)
    v = on_backend(V)
    tall.project_out(bk, v, u)
    assert_close(v, V - U @ (U.T @ V))
    tall.subtract_product(bk, v, u, bk.asarray(B[:3]))
    assert_close(v, V - U @ (U.T @ V) - U @ B[:3])


@pytest.mark.usefixtures("in_slabs")
def test_eigenpairs_in_slabs_are_those_of_the_whole():
    W = knn_graph(clusters(900))
    with memory_limited(memory_limit.get() and 10**6):
        found = eigenpairs(W, 20, solver="chebyshev", random_state=0)
    values, vectors = np.linalg.eigh(W.toarray())
    largest = np.argsort(-np.abs(values))[:20]
    assert found.converged
    np.testing.assert_allclose(found.values, values[largest], atol=1e-12)
    gaps = np.abs(found.vectors.T @ vectors[:, largest]).round(6)
    np.testing.assert_allclose(np.linalg.norm(gaps, axis=0), 1, atol=1e-5)


# Fits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_a_limit_changes_no_bit_of_a_fit(monkeypatch, criterion):
    for name, value in {"MANY_ROWS": 500, "SLAB": 256}.items():
        monkeypatch.setattr(tall, name, value)
    X = clusters()
    n = 20 if criterion == "cut" else 150
    settings = {"criterion": criterion, "eigen_solver": "chebyshev", "n_components": n}
    expected, found = fitted(X, **settings), fitted(X, **settings, memory_limit="2MB")
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_array_equal(found.embedding_, expected.embedding_)
    np.testing.assert_array_equal(found.membership_, expected.membership_)


@pytest.mark.parametrize("library", ["zarr", "h5py"])
def test_arrays_on_disk_are_read_in_slabs(monkeypatch, tmp_path, library):
    module, X = pytest.importorskip(library), clusters(400).astype(np.float32)
    if library == "zarr":
        stored = module.create_array(store=str(tmp_path / "X.zarr"), data=X, chunks=(100, 3))
    else:
        stored = module.File(tmp_path / "X.h5", "w").create_dataset("X", data=X, chunks=(100, 3))
    monkeypatch.setattr(cpu, "tile_bytes", 1000)
    with memory_limited(16):
        assert is_in_file(_validated_as_numpy(stored))
    found = fitted(stored)
    np.testing.assert_array_equal(found.labels_, fitted(X).labels_)
    np.testing.assert_array_equal(found.predict(stored), fitted(X).predict(X))


def test_rows_of_a_memory_map_are_not_copied(tmp_path):
    np.save(tmp_path / "X.npy", clusters(400))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    found = fitted(X)
    assert np.shares_memory(found._fit_X, X)
    np.testing.assert_array_equal(found.labels_, fitted(np.array(X)).labels_)


def test_a_limit_that_is_too_small_is_refused():
    message = r"eigenvectors of 1500 rows need about \d+ MB .* but memory_limit is 100 kB"
    with pytest.raises(MemoryError, match=message):
        fitted(clusters(), memory_limit="100kB", eigen_solver="chebyshev")


@pytest.mark.parametrize("size", ["much", "0", "-1GB", 0, -5, 1.5, True])
def test_a_limit_that_is_no_size_is_refused(size):
    with pytest.raises((ValueError, TypeError), match="memory_limit"):
        fitted(clusters(60), memory_limit=size)


class Interruption(BaseException):
    """Stands for the end of a process: nothing is tidied up but what any exit would tidy up."""


@pytest.mark.parametrize("partly", [False, True])
def test_an_interrupted_fit_goes_on_with_the_same_result(monkeypatch, tmp_path, partly):
    X = clusters()
    settings = {"eigen_solver": "chebyshev", "n_components": 20}
    expected = fitted(X, **settings)
    write, steps = Checkpoint.write, []

    def write_once(self, step, arrays):
        if step in steps:
            pytest.fail(f"{step} was made twice")
        if partly and f"{step} partly" not in steps:
            steps.append(f"{step} partly")
            write(self, step + ".partial", arrays)
            raise Interruption
        write(self, step, arrays)
        steps.append(step)
        if not partly:
            raise Interruption

    monkeypatch.setattr(Checkpoint, "write", write_once)
    for _ in range(100):
        try:
            found = fitted(X, **settings, checkpoint=tmp_path)
            break
        except Interruption:
            continue
    assert_same_fit(found, expected)
    kinds = {step.split("-")[0] for step in steps if "partly" not in step}
    assert kinds == {"neighbours", "eigenpairs", "fragments", "tree"}
    assert any(".round-" in step for step in steps)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="a signal of POSIX")
@pytest.mark.parametrize("wanted", ["eigenpairs-*.round-1", "tree-*"])
def test_a_killed_fit_goes_on(tmp_path, wanted):
    root = Path(__file__).parents[1]
    call = [sys.executable, "-c", KILLED, str(tmp_path), wanted]
    done = subprocess.run(call, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, check=False)
    assert done.returncode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    before = {x.name: x.stat().st_mtime_ns for x in folder.iterdir()}
    assert any(Path(name).match(wanted) for name in before)
    assert_same_fit(fitted(clusters(), checkpoint=tmp_path), fitted(clusters()))
    assert not list(tmp_path.iterdir())


def test_another_fit_does_not_go_on_from_a_checkpoint(monkeypatch, tmp_path):
    def stop(*_, **__):
        raise Interruption

    X, _ = make_shape("moons", noise=0.1, n_samples=300, random_state=0)
    monkeypatch.setattr("specialk_gpu._fit.eigenpairs", stop)
    changes = [
        {},
        {"random_state": np.int64(0)},
        {"n_neighbors": 11},
        {"alpha": 0.1},
        {"memory_limit": "1GB", "time_limit": 99.0},
    ]
    for change in changes:
        with pytest.raises(Interruption):
            SpecialK(**({"backend": "numpy", "random_state": 0} | change), checkpoint=tmp_path).fit(
                X
            )
    with pytest.raises(Interruption):
        fitted(X[::-1], checkpoint=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4  # the limits do not change the result


def test_a_checkpoint_needs_a_seed_and_a_folder(tmp_path):
    with pytest.raises(TypeError, match="random_state must be an integer with checkpoint"):
        SpecialK(backend="numpy", checkpoint=tmp_path).fit(clusters(60))
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "none" / "here"):
        with pytest.raises(ValueError, match=f"checkpoint must be a folder.*{wrong.name}"):
            fitted(clusters(60), checkpoint=wrong)
    with pytest.raises(ValueError, match="checkpoint"):
        fitted(clusters(60), checkpoint=3)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    kept = Checkpoint(tmp_path / "own", cpu)
    kept.write("step", [np.arange(5), np.array("text")])
    numbers, text = kept.read("step")
    np.testing.assert_array_equal(numbers, np.arange(5))
    assert text.item() == "text"
    assert kept.read("other") is None
    with (tmp_path / "own" / "step" / "0.npy").open("r+b") as stream:
        stream.truncate(100)
    with pytest.raises(ValueError, match="is damaged .*Remove it"):
        kept.read("step")
    kept.write("other", [np.arange(5), np.ones(2)])
    (tmp_path / "own" / "other" / "foreign").write_text("")
    assert len(kept.read("other")) == 2
    (tmp_path / "own" / "other" / "1.npy").unlink()
    with pytest.raises(ValueError, match="is damaged .*Remove it"):
        kept.read("other")


def test_a_step_is_made_once(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return [np.arange(3) * len(calls)]

    assert kept_step("a", make)[0][1] == 1
    assert kept_step("a", make)[0][1] == 2  # nothing is kept without a checkpoint
    with checkpointed(Checkpoint(tmp_path / "own", cpu)):
        assert kept_step("a", make)[0][1] == 3
        assert kept_step("a", make)[0][1] == 3
        assert kept_step(lambda: "b", make)[0][1] == 4
    assert len(calls) == 4
    assert not list(tmp_path.iterdir())


def test_steps_are_left_for_a_fit_with_more_time(tmp_path):
    kept = Checkpoint(tmp_path / "own", cpu)
    with time_limited(1e-9), checkpointed(kept):
        kept_step("a", lambda: [np.arange(3)])
        with pytest.raises(OutOfTime):
            check_time_limit()
        lift_time_limit()
    with time_limited(60), checkpointed(kept):
        assert kept_step("a", pytest.fail)[0].tolist() == [0, 1, 2]
        check_time_limit()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no lock of folders")
def test_a_checkpoint_is_for_one_fit_at_a_time(tmp_path):
    kept = Checkpoint(tmp_path / "own", cpu)
    with checkpointed(kept):
        kept_step("a", lambda: [np.arange(3)])
        other = checkpointed(Checkpoint(tmp_path / "own", cpu))
        with pytest.raises(BlockingIOError, match="own is in use by another fit"):
            other.__enter__()
        assert kept.has("a")
    with pytest.raises(ZeroDivisionError), checkpointed(kept):
        _ = 1 / 0
    with checkpointed(kept):
        pass


def test_iterations_keep_rounds_in_the_steps_that_allow_it(tmp_path):
    found = []

    def make():
        found.append([rounds_to_keep() for _ in range(2)])
        return [np.zeros(1)]

    with checkpointed(Checkpoint(tmp_path / "own", cpu)):
        kept_step("merging", make)
        kept_step("eigenpairs", make, with_rounds=True)
        found.append([rounds_to_keep()])
    assert found[0] == [None, None]  # its iterations begin in several threads
    assert [rounds.name for rounds in found[1]] == ["eigenpairs.0", "eigenpairs.1"]
    assert found[2] == [None]


def test_rounds_keep_the_last_one_and_the_generator(tmp_path):
    kept, rng = Checkpoint(tmp_path, cpu), RandomState(3)
    rounds = Rounds(kept, "it.0")
    assert rounds.last(rng) is None
    for number in range(12):
        rng.standard_normal(3)  # an odd number leaves one cached
        rounds.keep(number, rng, [np.full((2, 2), number)])
    expected = rng.standard_normal(5)
    assert [x.name for x in tmp_path.iterdir()] == ["it.0.round-11"]
    again = RandomState(0)
    first, (matrix,) = rounds.last(again)
    assert first == 12
    assert (matrix == 11).all()
    np.testing.assert_array_equal(again.standard_normal(5), expected)


def test_a_fingerprint_tells_contents_apart():
    x = np.arange(6.0)
    contents = [
        (x,),
        (x.astype(np.float32),),
        (x.reshape(2, 3),),
        (x + 1,),
        (x, 1),
        (x, "1"),
        ((x, 2),),
        (knn_graph(clusters(60)),),
        (knn_graph(clusters(60)) * 2,),
    ]
    found = [fingerprint(*content) for content in contents]
    assert len(set(found)) == len(found)
    assert fingerprint(np.asfortranarray(x.reshape(2, 3))) == fingerprint(x.reshape(2, 3))
    assert fingerprint(np.zeros((3, 0))) != fingerprint(np.zeros((4, 0)))
