"""The seam: both backends have the same names, and each name does what it says."""

import ast
import os
import subprocess
import sys
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from oracles import csr, readonly, sq_distance
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from threadpoolctl import threadpool_info, threadpool_limits

import specialk_gpu
from specialk_gpu.backend import backend_of, cpu, describe_backends, driver, get_backend
from specialk_gpu.backend.cpu import arrays
from specialk_gpu.backend.cpu import threads as host_threads
from specialk_gpu.backend.driver import DriverVerdict
from specialk_gpu.backend.tiles import map_tiles

PACKAGE = Path(specialk_gpu.__file__).parent
COMPILER = Path(__file__).with_name("compile_kernels.py")


# The contract, read from the sources --------------------------------------------------------------


def signatures(name):
    """Return {function: names and defaults of its parameters} and the names in __all__."""
    files = sorted((PACKAGE / "backend" / name).glob("*.py"))
    trees = {file.stem: ast.parse(file.read_text()).body for file in files}
    body = [statement for tree in trees.values() for statement in tree]
    functions = {f.name: f.args for f in body if isinstance(f, ast.FunctionDef)}
    assigned = {t.id: a.value for a in body if isinstance(a, ast.Assign) for t in a.targets}
    own = {t.id: a.value for a in trees["__init__"] if isinstance(a, ast.Assign) for t in a.targets}
    names = set(ast.literal_eval(own["__all__"]))
    parameters = {
        name: ([p.arg for p in args.args + args.kwonlyargs], [ast.dump(d) for d in args.defaults])
        for name, args in functions.items()
        if name in names
    }
    return parameters, names, set(assigned) | set(functions) | {"xp", "sparse"}


def test_both_backends_have_the_same_names_and_parameters():
    host, host_names, host_defined = signatures("cpu")
    device, device_names, device_defined = signatures("gpu")
    assert device_names - host_names == {"probe"}
    assert host_names <= device_names
    assert host_names <= host_defined
    assert device_names <= device_defined
    del device["probe"]
    assert device == host


# Choosing a backend -------------------------------------------------------------------------------


def run_python(code, **environment):
    command = [sys.executable, "-W", "error", "-c", code]
    path = os.pathsep.join([*filter(None, [environment.pop("first", "")]), str(PACKAGE.parent)])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


WITHOUT_CUDA = """
import sys, warnings, specialk_gpu
from specialk_gpu.backend import get_backend
assert "cupy" not in sys.modules
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert get_backend("auto").name == "numpy"
print(len(caught))
try:
    get_backend("cuda")
except RuntimeError as error:
    print(error)
"""


def test_without_a_visible_device_auto_is_numpy_and_cuda_says_why():
    n_warnings, message = run_python(WITHOUT_CUDA, CUDA_VISIBLE_DEVICES="").split("\n", 1)
    assert n_warnings == "0"
    assert message.startswith("backend='cuda' cannot run: ")
    assert "backend='numpy'" in message


@pytest.mark.parametrize(
    ("error", "n_warnings"),
    [
        ("ModuleNotFoundError", 0),  # not installed: nothing to warn of
        ("ImportError", 1),
        ("OSError", 1),
        ("RuntimeError", 1),
        ("AttributeError", 1),
    ],
)
def test_a_cupy_that_fails_on_import_does_no_harm(tmp_path, error, n_warnings):
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").write_text(f"raise {error}('no such library')")
    found, message = run_python(WITHOUT_CUDA, first=str(tmp_path)).split("\n", 1)
    assert found == str(n_warnings)
    assert message.startswith("backend='cuda' cannot run: CuPy cannot be imported")
    assert "no such library" in message
    assert message.count("\n") == 1


def test_unknown_names_and_misplaced_arrays_are_refused():
    with pytest.raises(ValueError, match=r"backend must be one of .* got 'gpu'"):
        get_backend("gpu")

    class OnDevice:
        __cuda_array_interface__ = {"version": 3}

    with pytest.raises(ValueError, match="Copy it to the host"):
        get_backend("numpy", OnDevice())


@pytest.fixture
def fresh(monkeypatch):
    """Forget the verdict on CUDA for the time of a test."""
    monkeypatch.setattr(driver, "_verdicts", {})


@pytest.fixture
def gpu():
    return pytest.importorskip("specialk_gpu.backend.gpu", exc_type=ImportError)


@pytest.mark.usefixtures("fresh")
def test_a_broken_installation_warns_under_auto_and_raises_under_cuda(gpu, monkeypatch):
    probes = []

    def probe():
        probes.append(1)
        return "the driver is too old", True

    monkeypatch.setattr(gpu, "probe", probe)
    with pytest.warns(RuntimeWarning, match="does not work: the driver is too old. Using NumPy"):
        assert get_backend("auto") is cpu
    with pytest.raises(RuntimeError, match="cannot run: the driver is too old"):
        get_backend("cuda")
    assert len(probes) == 1


ERRORS = {
    "wrong value": lambda _: np.array([8.0, 31.0]),
    "CUDARuntimeError": lambda cp: cp.cuda.runtime.CUDARuntimeError(999),
    "CompileException": lambda cp: cp.cuda.compiler.CompileException("no", "", "", ()),
    "OutOfMemoryError": lambda cp: cp.cuda.memory.OutOfMemoryError(512, 0),
    "ImportError": lambda _: ImportError("libnvrtc.so is missing"),
}


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.usefixtures("fresh")
def test_the_probe_believes_only_a_right_result(gpu, monkeypatch, fault):
    result = ERRORS[fault](gpu.cp)

    def measure(*_):
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(gpu.cp.cuda.runtime, "getDeviceCount", lambda: 1)
    monkeypatch.setattr(gpu.cp, "arange", np.arange)
    monkeypatch.setattr(gpu.cp, "asarray", np.asarray)
    monkeypatch.setattr(gpu.probing, "to_numpy", np.asarray)
    monkeypatch.setattr(gpu.probing, "pair_sq_distances", measure)
    cause = r"returned \[8.0, 31.0\] instead" if fault == "wrong value" else fault
    with pytest.warns(RuntimeWarning, match=rf"{cause}.*cupy.show_config.*Using NumPy"):
        assert get_backend("auto") is cpu
    with pytest.raises(RuntimeError, match=cause):
        get_backend("cuda")


MISSING = {
    "cuBLAS": ("_probe_cublas", ImportError('Failure finding "libcublasLt.so.12"')),
    "cuSOLVER": ("_probe_cusolver", RuntimeError("CUSOLVER_STATUS_NOT_INITIALIZED")),
    "cuSPARSE": ("_probe_cusparse", OSError("libnvJitLink.so.12: cannot open")),
}


@pytest.mark.parametrize("version", [12090, 13000])
@pytest.mark.parametrize("library", MISSING)
@pytest.mark.usefixtures("fresh")
def test_a_missing_library_is_named_and_how_to_get_it(gpu, monkeypatch, library, version):
    def missing():
        raise MISSING[library][1]

    for name in gpu.probing.LIBRARIES:
        monkeypatch.setitem(
            gpu.probing.LIBRARIES, name, missing if name == library else lambda: True
        )
    runtime = gpu.cp.cuda.runtime
    monkeypatch.setattr(runtime, "getDeviceCount", lambda: 1)
    monkeypatch.setattr(runtime, "runtimeGetVersion", lambda: version)
    for name in ("arange", "asarray"):
        monkeypatch.setattr(gpu.cp, name, getattr(np, name))
    monkeypatch.setattr(gpu.probing, "to_numpy", np.asarray)
    monkeypatch.setattr(gpu.probing, "pair_sq_distances", lambda *_: np.array([8.0, 32.0]))
    reason, broken = gpu.probe()
    assert broken
    error = MISSING[library][1]
    assert reason.startswith(f"{library} is missing or fails ({type(error).__name__}: {error});")
    extra = f"cuda{version // 1000}"
    assert f"pip install 'cupy-{extra}x[ctk]'" in reason
    monkeypatch.setitem(gpu.probing.LIBRARIES, library, lambda: False)
    assert gpu.probe()[0].startswith(f"a first call of {library} returned wrong numbers")
    monkeypatch.setitem(gpu.probing.LIBRARIES, library, lambda: True)
    assert gpu.probe() == (None, False)


@pytest.mark.gpu
def test_the_libraries_are_asked_for_what_they_return(monkeypatch):
    gpu = get_backend("cuda")
    assert all(is_right() for is_right in gpu.probing.LIBRARIES.values())
    monkeypatch.setattr(gpu.probing, "to_numpy", lambda x: gpu.cp.asnumpy(x) + 1)
    assert not any(is_right() for is_right in gpu.probing.LIBRARIES.values())


class Driver:
    """Stands for libcuda."""

    def __init__(self, version, status=0):
        self.version, self.status = version, status

    def __call__(self, _name):
        if self.version is None:
            raise OSError(2, "cannot open shared object file")
        return self

    def cuDriverGetVersion(self, place):
        place._obj.value = self.version
        return self.status


ADVICE = [  # version of the driver, what it returns, whether Linux tells of it, advice, text
    (None, 0, False, "this machine has no NVIDIA driver, which CUDA needs", "none"),
    (0, 0, False, "this machine has no NVIDIA driver, which CUDA needs", "none"),
    (12090, 100, False, "this machine has no NVIDIA driver, which CUDA needs", "none"),
    (
        None,
        0,
        True,
        "'cupy-cuda12x[ctk]' (or cupy-cuda13x[ctk])",
        "installed, but libcuda was not found",
    ),
    (11080, 0, True, "CUDA 11.8, too old: CuPy 14 needs", "CUDA 11.8, too old: CuPy 14 needs"),
    (12000, 0, True, "pip install 'cupy-cuda12x[ctk]'", "CUDA 12.0, extra cuda12"),
    (12090, 0, False, "pip install 'cupy-cuda12x[ctk]'", "CUDA 12.9, extra cuda12"),
    (13010, 0, True, "pip install 'cupy-cuda13x[ctk]'", "CUDA 13.1, extra cuda13"),
]


@pytest.mark.parametrize(("version", "status", "told", "advice", "text"), ADVICE)
@pytest.mark.usefixtures("fresh")
def test_cupy_is_recommended_where_a_driver_could_run_it(
    monkeypatch, tmp_path, version, status, told, advice, text
):
    monkeypatch.setitem(sys.modules, "cupy", None)  # its import fails
    monkeypatch.delitem(sys.modules, "specialk_gpu.backend.gpu", raising=False)
    monkeypatch.setattr(driver.ctypes, "CDLL", Driver(version, status))
    monkeypatch.setattr(driver, "DRIVER", tmp_path if told else tmp_path / "absent")
    assert driver.driver_version() == (version if version and not status else None)
    reason, broken = driver.driver_verdict()
    assert not broken
    assert reason.startswith("CuPy cannot be imported (import of cupy halted; ")
    assert advice in reason
    assert ("pip install" in reason) == ("pip install" in advice or "cupy-cuda" in advice)
    assert driver.driver_text().startswith(text)


@pytest.mark.usefixtures("fresh")
def test_a_forked_child_is_told_how_to_start_workers(monkeypatch):
    monkeypatch.setitem(driver._verdicts, os.getpid() + 1, DriverVerdict(None))
    with pytest.raises(RuntimeError, match="'spawn' method or with joblib's loky"):
        get_backend("cuda")


def test_both_backends_are_described():
    host, device = describe_backends()
    assert (host["name"], host["available"], host["reason"]) == ("numpy", True, None)
    assert {"numpy", "scipy"} <= set(host["versions"])
    assert host["devices"][0]["memory"] > 0
    assert device["name"] == "cuda"
    assert device["available"] == (device["reason"] is None)


def test_arrays_know_their_backend(bk):
    x = bk.xp.zeros((3, 2))
    assert backend_of(x) is bk
    assert backend_of(bk.sparse.csr_matrix(x)) is bk
    assert bk.asarray(x) is x
    np.testing.assert_array_equal(bk.to_numpy(bk.asarray([[1, 2]])), [[1, 2]])
    for given in (x, bk.sparse.csr_matrix(x)):
        with bk.device_of(given):
            bk.synchronize()
    assert bk.free_memory() > 0


# What the names do --------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 5, 31, 32, 33, 100, 784])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squared_distances_have_the_bits_of_their_definition(bk, d, dtype):
    rng = np.random.default_rng(d)
    X = (rng.normal(size=(30, d)) * 10.0 ** rng.integers(-6, 6, size=(30, d))).astype(dtype)
    rows, columns = rng.integers(30, size=(2, 40))
    found = bk.pair_sq_distances(readonly(bk, X), readonly(bk, rows), readonly(bk, columns))
    assert isinstance(found, bk.xp.ndarray)
    assert found.dtype == np.float64
    expected = [sq_distance(X[i], X[j]) for i, j in zip(rows, columns, strict=True)]
    np.testing.assert_array_equal(bk.to_numpy(found), expected)


def test_squared_distances_are_nearly_exact(bk):
    X = np.random.default_rng(0).normal(loc=1e6, size=(4, 50))
    rows, columns = np.triu_indices(4, 1)
    found = bk.to_numpy(bk.pair_sq_distances(bk.asarray(X), bk.asarray(rows), bk.asarray(columns)))
    for sq, i, j in zip(found, rows, columns, strict=True):
        pairs = zip(X[i].tolist(), X[j].tolist(), strict=True)
        exact = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
        assert abs(Fraction(float(sq)) - exact) <= exact * Fraction(1, 2**50)


@pytest.mark.parametrize("sizes", [[7], [8], [8, 8], [12, 12, 12], [3, 9], [60]])
@pytest.mark.parametrize("m", [1, 150, 751, 1600])
def test_nearest_centers_are_those_of_the_definition_and_the_first_of_equal_ones(bk, sizes, m):
    rng, sizes = np.random.default_rng(m), np.array(sizes)
    X = rng.integers(5, size=(m, 2)).astype(float)  # products of integers are exact
    centers = rng.integers(5, size=(sizes.size, sizes.max(), 2)).astype(float)
    given = bk.xp.asarray(X, order=bk.center_order), (X * X).sum(axis=1), centers
    labels, sq = bk.nearest_center(*map(bk.asarray, given), sizes)
    assert labels.dtype == np.int32
    for r, size in enumerate(sizes):
        expected = ((X[:, None] - centers[r, :size]) ** 2).sum(axis=2)
        np.testing.assert_array_equal(bk.to_numpy(labels[r]), expected.argmin(axis=1))
        np.testing.assert_array_equal(bk.to_numpy(sq[r]), expected.min(axis=1))


def test_no_pairs_have_no_distances(bk):
    none = bk.xp.empty(0, dtype=np.int64)
    assert bk.pair_sq_distances(bk.xp.ones((2, 3)), none, none).shape == (0,)


@pytest.mark.parametrize(
    ("n", "m"),
    [(n, m) for n in (1, 3, 17, 300) for m in (3, 40, 255, 256, 257, 513, 3000) if n <= m],
)
@pytest.mark.parametrize("kind", ["normal", "integer", "equal", "infinite"])
def test_selection_misses_nothing_below_its_limit(bk, m, n, kind):
    rng = np.random.default_rng(m * n)
    scores = rng.normal(size=(5, m)).astype(np.float32)
    if kind == "integer":
        scores = np.rint(scores)
    if kind == "equal":
        scores[:] = 2
    if kind == "infinite":
        scores[:, rng.permutation(m)[: m // 2]] = np.inf
    offsets = np.rint(rng.normal(size=m)).astype(np.float32)
    products = bk.asarray(scores - offsets)
    places, limits = map(bk.to_numpy, bk.select_smallest(products, bk.asarray(offsets), n))
    scores = (scores - offsets) + offsets
    assert places.dtype == np.int64
    for row, place, limit in zip(scores, places, limits, strict=True):
        chosen = place[place >= 0]
        assert len(set(chosen)) == chosen.size >= n
        assert chosen.max() < m
        outside = np.delete(row, chosen)
        assert not outside.size or outside.min() >= limit
        if (row == row[0]).all() and chosen.size < m and n <= 256:
            assert limit == -np.inf or chosen.size == n
        if limit > -np.inf:
            assert (np.sort(row[chosen])[:n] == np.sort(row)[:n]).all()


def test_selection_says_when_ties_do_not_fit(bk):
    zeros = bk.asarray(np.zeros((2, 1000), np.float32))
    _, limits = bk.select_smallest(zeros, zeros[0].copy(), 3)
    assert (bk.to_numpy(limits) == -np.inf).all()


@pytest.mark.parametrize("density", [0.0, 0.002, 0.006, 0.02])
def test_components_are_those_of_scipy_numbered_by_first_row(bk, density):
    W = sparse.random_array((400, 400), density=density, rng=3, format="csr")
    W = W + W.T
    expected_count, expected = connected_components(W, directed=False)
    count, labels = bk.connected_components(csr(bk, W))
    labels = bk.to_numpy(labels)
    assert count == expected_count
    _, first = np.unique(labels, return_index=True)
    assert (np.diff(first) > 0).all()
    pairs = set(zip(labels.tolist(), expected.tolist(), strict=True))
    assert len(pairs) == count


def test_components_of_a_shuffled_path_are_one(bk):
    order = np.random.default_rng(0).permutation(3000)
    W = sparse.csr_matrix((np.ones(2999), (order[1:], order[:-1])), shape=(3000, 3000))
    assert bk.connected_components(csr(bk, W + W.T))[0] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 32, 33, 64, 150])
@pytest.mark.parametrize(("alpha", "shift", "beta"), [(1, 0, 0), (0.5, -0.3, 0), (2, 0.25, -1)])
@pytest.mark.parametrize("has_source", [False, True])
def test_spmm_is_its_definition(bk, dtype, width, alpha, shift, beta, has_source):
    rng = np.random.default_rng(width)
    A = sparse.random_array((90, 90), density=0.1, rng=rng, format="lil")
    A[7] = 0
    X, out, source = rng.normal(size=(3, 90, width))
    weights = rng.normal(size=width) * has_source
    expected = alpha * (A.toarray() @ X - shift * X) + beta * out + source * weights
    added = [readonly(bk, x, dtype) for x in (source, weights)] if has_source else []
    if beta == 0:
        out[:] = np.nan  # is not read
    target = bk.asarray(out.astype(dtype))
    bk.spmm(csr(bk, A, dtype), readonly(bk, X, dtype), target, alpha, shift, beta, *added)
    assert target.dtype == dtype
    np.testing.assert_allclose(bk.to_numpy(target), expected, atol=50 * np.finfo(dtype).eps)


def test_spmm_takes_indices_of_64_bits(bk):
    A = csr(bk, np.arange(12.0).reshape(3, 4)[:, :3])
    A.indptr, A.indices = A.indptr.astype(np.int64), A.indices.astype(np.int64)
    out = bk.xp.empty((3, 2))
    bk.spmm(A, bk.xp.ones((3, 2)), out, 1.0, 0.0, 0.0)
    np.testing.assert_array_equal(bk.to_numpy(out)[:, 1], [3, 15, 27])


@pytest.mark.gpu
def test_spmm_refuses_more_entries_than_32_bits_number(monkeypatch):
    gpu, matrices = get_backend("cuda"), import_module("specialk_gpu.backend.gpu.matrices")
    A, X = gpu.sparse.csr_matrix(gpu.xp.ones((4, 4))), gpu.xp.ones((4, 1))
    assert matrices.MAX_ENTRIES == 2**31 - 1
    monkeypatch.setattr(matrices, "MAX_ENTRIES", 15)
    with pytest.raises(MemoryError, match="16 entries, more than the 15 that 32-bit indices can"):
        gpu.spmm(A, X, gpu.xp.empty((4, 1)), 1.0, 0.0, 0.0)
    monkeypatch.setattr(matrices, "MAX_ENTRIES", 16)
    gpu.spmm(A, X, gpu.xp.empty((4, 1)), 1.0, 0.0, 0.0)


@pytest.mark.parametrize("d", [1, 10, 784, 5000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_products_are_within_the_stated_error(bk, d, dtype):
    rng = np.random.default_rng(d)
    X = (rng.normal(size=(60, d)) * np.exp(rng.normal(size=d))).astype(dtype)
    found = bk.to_numpy(bk.products(readonly(bk, X), readonly(bk, X))) / -2
    assert found.dtype == (np.float64 if dtype == np.float64 else np.float32)
    exact = X.astype(np.longdouble) @ X.T.astype(np.longdouble)
    norms = np.sqrt(np.diag(exact))
    error = float((np.abs(found - exact) / (norms[:, None] * norms)).max())
    assert error <= bk.product_error(d, dtype)


@pytest.mark.gpu
def test_less_exact_products_of_float32_have_a_larger_error(monkeypatch):
    bk = get_backend("cuda")
    monkeypatch.setenv("CUPY_TF32", "0")
    exact = [bk.product_error(10, dtype) for dtype in ("float32", "float64")]
    monkeypatch.setenv("CUPY_TF32", "1")
    rounded = [bk.product_error(10, dtype) for dtype in ("float32", "float64")]
    assert rounded == [exact[0] + 2**-9, exact[1]]


@pytest.mark.gpu
@pytest.mark.parametrize(("limit", "free"), [(0, 1050), (900, 600), (5000, 1050)])
def test_free_memory_is_what_the_pool_may_still_take(monkeypatch, limit, free):
    bk = get_backend("cuda")
    held = {"free_bytes": 50, "used_bytes": 300, "get_limit": limit}
    pool = SimpleNamespace(**{name: lambda n=n: n for name, n in held.items()})
    monkeypatch.setattr(bk.cp, "get_default_memory_pool", lambda: pool)
    monkeypatch.setattr(bk.cp.cuda.runtime, "memGetInfo", lambda: (1000, 9000))
    assert bk.free_memory() == free


def test_free_memory_of_the_host_is_what_a_limit_on_the_process_leaves(monkeypatch):
    resource = pytest.importorskip("resource")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + 2**26
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (limit, resource.RLIM_INFINITY))
    assert 0 < cpu.free_memory() < 2**27
    limit = used // 2
    assert cpu.free_memory() == 0


def test_where_the_system_is_silent_about_memory_half_of_it_is_free(monkeypatch):
    def closed(name, **_settings):
        raise OSError(2, "No such file or directory", name)

    monkeypatch.setattr("builtins.open", closed)
    assert 2 * cpu.free_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_reordering_is_a_permutation(bk):
    W = sparse.random_array((50, 50), density=0.05, rng=0, format="csr")
    order = bk.locality_order(csr(bk, W + W.T))
    assert order is None or sorted(bk.to_numpy(order).tolist()) == list(range(50))


@pytest.mark.parametrize("threads", ["1", "3"])
def test_chunks_keep_their_order_on_any_number_of_threads(bk, monkeypatch, threads):
    monkeypatch.setattr(host_threads, "n_threads", lambda: int(threads))
    chunks = [slice(i, i + 1) for i in range(20)]
    assert bk.map_chunks(lambda chunk: chunk.start, iter(chunks)) == list(range(20))


def test_limits_on_threads_are_respected(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    free = host_threads.n_threads()
    assert 1 <= free <= len(os.sched_getaffinity(0))
    with threadpool_limits(limits=1):
        assert host_threads.n_threads() == 1
    assert host_threads.n_threads() == free
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert host_threads.n_threads() == 1


def test_products_in_threads_take_one_thread_each_and_get_theirs_back(monkeypatch):
    def threads():
        return [x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"]

    def inner(_):
        cpu.map_chunks(lambda _: threads(), chunks)
        return threads()

    monkeypatch.setattr(host_threads, "n_threads", lambda: 2)
    chunks = [slice(i, i + 1) for i in range(3)]
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        assert {n for found in cpu.map_chunks(inner, chunks) for n in found} == {1}
        assert threads() == before


def test_products_for_proposals_end_with_float32(bk):
    assert bk.product_dtypes()[-1] == "float32"
    assert set(bk.product_dtypes()) <= {"float16", "float32"}


# Tiles --------------------------------------------------------------------------------------------


def test_tiles_cover_all_rows_and_are_halved_where_memory_runs_out(monkeypatch):
    monkeypatch.setattr(cpu, "tile_bytes", 1000)
    monkeypatch.setattr(cpu, "free_memory", lambda: 10**9)
    sizes = []

    def run(rows):
        sizes.append(rows.stop - rows.start)
        if sizes[-1] > 30:
            raise MemoryError
        return list(range(rows.start, rows.stop))

    done = map_tiles(cpu, run, 130, 10)
    assert sum(done, []) == list(range(130))
    assert sizes == [100, 50, 25, 25, 25, 25, 25, 5]


def test_memory_that_does_not_suffice_for_small_tiles_is_an_error_with_the_bytes(monkeypatch):
    monkeypatch.setattr(cpu, "tile_bytes", 2**20)
    sizes = []

    def run(rows):
        sizes.append(rows.stop - rows.start)
        raise MemoryError

    with pytest.raises(MemoryError, match=r"a tile of 16 of 5000 rows needs about 16 kB of"):
        map_tiles(cpu, run, 5000, 1024)
    assert sizes == [1024, 512, 256, 128, 64, 32, 16]


def test_every_kernel_compiles():
    pytest.importorskip("cupy", exc_type=ImportError)
    command = [sys.executable, str(COMPILER), "90"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("compute_90") == len(list(PACKAGE.rglob("*.cu")))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forks beside threads
def test_a_child_that_was_forked_amid_a_product_starts_anew():
    before = [library.get_num_threads() for library in host_threads._blas_threads()]
    with host_threads.one_blas_thread:
        pid = os.fork()
        if not pid:
            after = [library.get_num_threads() for library in host_threads._blas_threads()]
            os._exit(host_threads.one_blas_thread.users + (after != before))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert host_threads.one_blas_thread.users == 1


def test_the_rows_of_entries_are_those_of_the_coordinates(bk):
    W = sparse.random(40, 30, 0.05, format="csr", random_state=0)  # some rows are empty
    found = bk.entry_rows(bk.asarray(W.indptr), W.nnz)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(bk.to_numpy(found), W.tocoo().row)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(1, 60), (2, 60), (301, 60), (301, 1)])
def test_the_tiles_in_which_rows_are_squared_do_not_matter(monkeypatch, order, shape):
    X = np.asarray(np.random.default_rng(0).standard_normal(shape), order=order)
    expected = (X * X).sum(axis=1)
    for entries in (1, 700, 2**20):
        monkeypatch.setattr(arrays, "TILE_ENTRIES", entries)
        np.testing.assert_array_equal(cpu.row_squares(X), expected)


def test_the_squares_of_rows_are_summed(bk):
    X = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(bk.to_numpy(bk.row_squares(bk.asarray(X))), [5, 50, 149, 302])
