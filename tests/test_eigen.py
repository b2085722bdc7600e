"""Eigenpairs of graphs with known spectra: right, or flagged; never silently wrong."""

import math
import sys
import tracemalloc
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from oracles import (
    affine,
    bipartite,
    complete,
    csr,
    cycle,
    gram,
    hypercube,
    largest,
    path,
    product_graph,
    spectrum_of,
    to_scipy,
    union,
)
from scipy import sparse

from specialk_gpu import ConvergenceError, eigenpairs, knn_graph
from specialk_gpu._memory_limit import memory_limited
from specialk_gpu.backend import cpu, get_backend
from specialk_gpu.backend.cpu import matrices
from specialk_gpu.graph.knn import normalised_graph
from specialk_gpu.spectrum import chebyshev, components, filter, memory, orthonormal, solvers, tall
from specialk_gpu.spectrum.chebyshev import find_missed_by_chebyshev
from specialk_gpu.spectrum.memory import needed_memory
from specialk_gpu.spectrum.solvers import takes_dense_solver

module = sys.modules["specialk_gpu.spectrum.eigenpairs"]

SOLVERS = ["dense", "lanczos", "chebyshev"]
ITERATIVE = ["lanczos", "chebyshev"]
VALUE_TOL = {np.float32: 1e-5, np.float64: 1e-10}
ORTHOGONALITY_TOL = {np.float32: 1e-4, np.float64: 1e-9}
RESIDUAL_TOL = {np.float32: 1e-5, np.float64: 1e-8}


def neighbour_graph(m, d, seed=0):
    return knn_graph(np.random.default_rng(seed).normal(size=(m, d)))


def low_rank(m, rank):
    B = np.random.default_rng(0).random((m, rank))
    return sparse.csr_matrix(B @ B.T), np.r_[np.linalg.eigvalsh(B.T @ B), np.zeros(m - rank)]


# More than 300 rows in one component: what an iterative solver gets.
FAMILIES = {
    "path": (lambda: path(700), 20),
    "cycle": (lambda: cycle(701), 21),
    "even cycle, ±λ": (lambda: cycle(700), 20),
    "complete": (lambda: complete(320), 10),
    "hypercube": (lambda: hypercube(9), 30),
    "torus": (lambda: product_graph(cycle(26), cycle(25)), 20),
    "grid": (lambda: product_graph(path(26), path(27)), 25),
    "star": (lambda: bipartite(1, 349), 8),
    "complete bipartite": (lambda: bipartite(300, 330), 8),
    "low rank": (lambda: low_rank(350, 5), 12),
    "mostly negative": (lambda: affine(path(700), 1, -3), 15),
    "positive": (lambda: affine(path(700), 1, 2), 12),
    "tiny entries": (lambda: affine(cycle(701), 1e-12, 0), 15),
    "huge entries": (lambda: affine(cycle(701), 1e12, 0), 15),
    "union of two": (lambda: union(path(350), path(350)), 20),
    "union of three": (lambda: union(cycle(340), path(330), product_graph(path(18), path(19))), 30),
    "neighbour graph": (lambda: spectrum_of(neighbour_graph(800, 5)), 120),
    "small neighbour graph": (lambda: spectrum_of(neighbour_graph(350, 3, seed=1)), 60),
    "one pair": (lambda: hypercube(9), 1),
}


@cache
def family(name):
    make, n = FAMILIES[name]
    return *make(), n


def assert_right_or_flagged(bk, W, spectrum, n, dtype, found):
    """Check a result against the spectrum and its own claims; return whether it converged."""
    V, values = (bk.to_numpy(x).astype(np.float64) for x in (found.vectors, found.values))
    residuals = bk.to_numpy(found.residuals)
    scale = np.abs(spectrum).max()
    A = W.astype(dtype).astype(np.float64)
    true_residuals = np.linalg.norm(A @ V - V * values, axis=0) / (np.abs(values).max() or 1)
    np.testing.assert_allclose(residuals, true_residuals, rtol=1e-3, atol=1e-13)
    assert found.orthogonality == pytest.approx(
        np.abs(V.T @ V - np.eye(V.shape[1])).max(), rel=0.1, abs=100 * float(np.finfo(dtype).eps)
    )
    assert (np.diff(np.abs(values)) <= 1e-9 * scale).all() or dtype == np.float32
    assert (V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])] >= 0).all()
    if not found.converged:
        other = "lanczos" if found.solver == "chebyshev" else "chebyshev"
        assert f"Try solver={other!r} or 'dense'" in found.message
        return False
    assert found.complete
    assert found.message == ""
    assert isinstance(found.vectors, bk.xp.ndarray)
    assert found.vectors.dtype == dtype
    assert found.vectors.shape == (W.shape[0], n)
    assert found.values.shape == found.residuals.shape == (n,)
    assert (residuals <= RESIDUAL_TOL[dtype]).all()
    assert found.orthogonality <= ORTHOGONALITY_TOL[dtype]
    tol = VALUE_TOL[dtype] * scale
    expected = largest(spectrum, n)
    np.testing.assert_allclose(np.sort(np.abs(values))[::-1], expected, rtol=0, atol=tol)
    clear = expected[-1] + 10 * tol  # of several at the edge, any may come
    np.testing.assert_allclose(
        np.sort(values[np.abs(values) > clear]),
        np.sort(spectrum[np.abs(spectrum) > clear]),
        rtol=0,
        atol=tol,
    )
    return True


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", FAMILIES)
def test_pairs_of_known_graphs_are_right_or_flagged(bk, name, solver, dtype):
    W, spectrum, n = family(name)
    found = eigenpairs(csr(bk, W, dtype), n, solver=solver, random_state=0)
    assert found.solver == solver
    converged = assert_right_or_flagged(bk, W, spectrum, n, dtype, found)
    assert converged or solver == "lanczos"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("solver", ITERATIVE)
@pytest.mark.parametrize("name", ["even cycle, ±λ", "hypercube", "torus"])
def test_repeated_values_are_not_missed_from_any_start(bk, name, solver, seed):
    W, spectrum, n = family(name)
    found = eigenpairs(csr(bk, W), n, solver=solver, random_state=seed)
    converged = assert_right_or_flagged(bk, W, spectrum, n, np.float64, found)
    assert converged or solver == "lanczos"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ["auto", *ITERATIVE])
def test_every_number_of_pairs_of_a_gram_matrix_is_found(bk, solver, dtype):
    W, spectrum = gram(50, 100)  # C23
    for n in range(1, 50):
        found = eigenpairs(csr(bk, W, dtype), n, solver=solver, random_state=n)
        assert assert_right_or_flagged(bk, W, spectrum, n, dtype, found) or solver == "lanczos"


# Small graphs, repeated eigenvalues and components ------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_disjoint_cliques_have_all_their_repeated_eigenvalues(bk, solver, dtype):
    W, _ = union(*[complete(20)] * 6)
    W = normalised_graph(W)  # C21
    spectrum = np.r_[np.ones(6), np.full(114, -1 / 19)]
    found = eigenpairs(csr(bk, W, dtype), 7, solver=solver, random_state=0)
    assert assert_right_or_flagged(bk, W, spectrum, 7, dtype, found)
    assert found.n_components == 6
    assert np.abs(bk.to_numpy(found.values)).max() <= 1 + VALUE_TOL[dtype]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_diagonal_matrices_are_solved(bk, solver, dtype):
    two = np.repeat([3.0, -1.0], [50, 150])
    for diagonal, n in ((np.ones(100), 10), (two, 20), (two, 60), (-two, 51), (np.r_[two, 0], 201)):
        W = sparse.csr_matrix(sparse.diags_array(diagonal))
        found = eigenpairs(csr(bk, W, dtype), n, solver=solver)
        assert assert_right_or_flagged(bk, W, diagonal, n, dtype, found)


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 40, 80])
def test_all_pairs_or_nearly_all_are_found(bk, solver, m):
    W, spectrum = path(m)
    for n in {max(1, m - 2), max(1, m - 1), m}:
        found = eigenpairs(csr(bk, W), n, solver=solver)
        assert assert_right_or_flagged(bk, W, spectrum, n, np.float64, found)
        assert found.solver == "dense"


def test_a_given_affinity_of_three_rows_is_solved(bk):
    W = sparse.csr_matrix(np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]]))  # C25
    for n in (1, 2, 3):
        found = eigenpairs(csr(bk, W), n)
        np.testing.assert_allclose(bk.to_numpy(found.values), [1.9, 1, 0.1][:n])


def test_empty_rows_have_eigenvalue_zero(bk):
    W, spectrum = union(path(70), (sparse.csr_matrix((30, 30)), np.zeros(30)))
    found = eigenpairs(csr(bk, W), 80)
    assert assert_right_or_flagged(bk, W, spectrum, 80, np.float64, found)
    assert found.n_components == 31


def many_small(sizes, seed=0):
    """Return random components of these sizes, each a path and more, their rows shuffled."""
    rng = np.random.default_rng(seed)
    begin = np.repeat(np.cumsum(sizes) - sizes, sizes)
    row = np.arange(begin.size)
    other = begin + (rng.random((3, row.size)) * np.repeat(sizes, sizes)).astype(np.int64)
    joined = np.flatnonzero(np.diff(begin) == 0)
    i = np.concatenate([row, row, row, joined])
    j = np.concatenate([*other, joined + 1])
    W = sparse.csr_matrix((rng.random(i.size), (i, j)), shape=(row.size, row.size))
    order = rng.permutation(row.size)
    return sparse.csr_matrix((W + W.T)[order][:, order])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("large", [[], [70, 70, 310]])
def test_many_components_of_many_sizes_are_solved(bk, large, dtype):
    sizes = np.r_[np.random.default_rng(1).integers(1, 9, 60), np.ones(20, dtype=int), 64, large]
    W = many_small(sizes.astype(np.int64))
    spectrum = np.linalg.eigvalsh(W.toarray())
    for n in (1, 40, W.shape[0] if not large else 90):
        found = eigenpairs(csr(bk, W, dtype), n, random_state=0)
        assert assert_right_or_flagged(bk, W, spectrum, n, dtype, found)
        assert found.n_components == sizes.size


def test_equal_components_come_in_the_order_of_their_rows(bk):
    W, _ = union(*[complete(5), path(1), complete(4)] * 5)
    found = eigenpairs(csr(bk, W), 12, random_state=0)
    np.testing.assert_allclose(bk.to_numpy(found.values), [4] * 5 + [3] * 5 + [-1] * 2)
    first = [int(np.flatnonzero(v)[0]) for v in bk.to_numpy(found.vectors).T]
    assert first[:10] == [0, 10, 20, 30, 40, 6, 16, 26, 36, 46]
    assert max(first[10:]) < 5  # of the first component


def test_of_equal_magnitudes_the_positive_come_first_whatever_their_component(bk):
    W, _ = union(cycle(8), cycle(8))
    found = eigenpairs(csr(bk, W), 12, random_state=0)
    expected = [2] * 2 + [-2] * 2 + [2**0.5] * 4 + [-(2**0.5)] * 4
    np.testing.assert_allclose(bk.to_numpy(found.values), expected, rtol=1e-12)
    first = [int(np.flatnonzero(abs(v) > 1e-12)[0]) for v in bk.to_numpy(found.vectors).T]
    assert [row // 8 for row in first] == [0, 1] * 2 + [0, 0, 1, 1] * 2


@pytest.mark.parametrize("kind", ["path", "falling path", "star", "no edges"])
def test_components_of_long_graphs(bk, kind):
    m = 100_000 if bk.name == "cuda" or kind == "path" else 1000
    ends = np.arange(m - 1), np.arange(1, m)
    if kind == "falling path":
        ends = m - 1 - ends[0], m - 1 - ends[1]
    if kind == "star":
        ends = np.full(m - 1, m // 2), np.delete(np.arange(m), m // 2)
    if kind == "no edges":
        ends = np.zeros((2, 0), dtype=int)
    W = sparse.csr_matrix((np.ones(len(ends[0])), tuple(ends)), shape=(m, m))
    count, component = bk.connected_components(csr(bk, W + W.T))
    assert count == (m if kind == "no edges" else 1)
    expected = np.arange(m) if kind == "no edges" else np.zeros(m)
    np.testing.assert_array_equal(bk.to_numpy(component), expected)


def copies(size, n_copies):
    """A cloud of points and its shifted copies, C22."""
    cloud = np.random.default_rng(0).normal(size=(size, 2))
    return np.concatenate([cloud + 50 * i for i in range(n_copies)])


@pytest.mark.parametrize(("solver", "size"), [("auto", 40), ("chebyshev", 150), ("dense", 150)])
def test_eigenvectors_live_on_single_components(bk, solver, size):
    W = knn_graph(bk.asarray(copies(size, 6)), 10)
    n = 6 * 8
    found = [eigenpairs(W, n, solver=solver, random_state=seed) for seed in range(5)]
    assert found[0].converged
    assert found[0].n_components >= 6
    _, component = bk.connected_components(W)
    component = bk.to_numpy(component)
    V = bk.to_numpy(found[0].vectors)
    supports = [set(component[np.flatnonzero(v)]) for v in V.T]
    assert all(len(support) == 1 for support in supports)
    for other in found[1:]:
        if size <= 64:
            np.testing.assert_array_equal(bk.to_numpy(other.vectors), V)
        np.testing.assert_allclose(
            bk.to_numpy(other.values), bk.to_numpy(found[0].values), atol=1e-12
        )


def test_of_values_that_are_the_same_but_for_rounding_the_first_component_comes_first(bk):
    for more, swapped in ((5e-10, True), (5e-11, False), (0.0, False)):
        for sign in (1, -1):
            W = sparse.csr_matrix(sparse.diags_array(1e3 * np.array([1, sign * (1 + more), 0.1])))
            values = bk.to_numpy(eigenpairs(csr(bk, W), 2).values)
            assert values.tolist() == W.diagonal()[[1, 0] if swapped else [0, 1]].tolist()


def test_of_values_that_hardly_differ_the_larger_comes_first(bk):
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    values = np.array([1 + 1e-12, 1 + 2e-12, 1, 0.5, -0.2, 0.1])
    A = Q * values @ Q.T
    found = eigenpairs(csr(bk, (A + A.T) / 2), 3).values
    np.testing.assert_allclose(bk.to_numpy(found) - 1, [2e-12, 1e-12, 0], atol=1e-14)


def test_shuffled_rows_give_the_same_values(bk):
    W, spectrum, n = family("union of three")
    order = np.random.default_rng(0).permutation(W.shape[0])
    shuffled = sparse.csr_matrix(W[order][:, order])
    found = eigenpairs(csr(bk, shuffled), n, random_state=0)
    assert assert_right_or_flagged(bk, shuffled, spectrum, n, np.float64, found)
    assert found.n_components == 3


# What cannot be verified is flagged ---------------------------------------------------------------


def test_a_path_with_tiny_gaps_is_right_or_flagged_in_bounded_time(bk):
    W, spectrum = path(5000)  # C24
    found = eigenpairs(csr(bk, W), 20, solver="chebyshev", random_state=0)
    assert_right_or_flagged(bk, W, spectrum, 20, np.float64, found)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("max_iter", [1, 2])
@pytest.mark.parametrize("solver", ITERATIVE)
def test_too_few_iterations_are_flagged(bk, solver, max_iter, dtype):
    W, spectrum = path(5000)
    found = eigenpairs(csr(bk, W, dtype), 20, solver=solver, max_iter=max_iter, random_state=0)
    assert not assert_right_or_flagged(bk, W, spectrum, 20, dtype, found)
    assert "a larger max_iter" in found.message


@pytest.mark.parametrize("solver", ITERATIVE)
def test_a_component_without_a_result_is_flagged(bk, solver):
    W, _ = union(path(3000), path(2999), complete(30))
    found = eigenpairs(csr(bk, W), 12, solver=solver, max_iter=1, random_state=0)
    assert not found.converged
    assert found.message


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("name", "n", "dropped"),
    [
        ("small neighbour graph", 60, 3),
        ("grid", 25, 0),
        ("hypercube", 26, 10),
        ("mostly negative", 15, 2),
    ],
)
def test_a_dropped_pair_is_reported_missing(bk, name, n, dropped, dtype):
    W, _, _ = family(name)
    A, rng = csr(bk, W, dtype), np.random.RandomState(0)
    values, V = np.linalg.eigh(W.toarray())
    order = np.argsort(-np.abs(values), kind="stable")[:n]
    for kept, missing in ((order, False), (np.delete(order, dropped), True)):
        given = bk.asarray(values[kept], dtype=dtype), bk.asarray(V[:, kept].copy(), dtype=dtype)
        message = find_missed_by_chebyshev(bk, A, *given, RESIDUAL_TOL[dtype], rng, max_degree=100)
        assert ("is missing" in message) == missing


@pytest.mark.parametrize("n_left", [0, 1, 2])
def test_the_last_rows_of_all_are_searched_too(bk, n_left):
    W, _ = path(12)
    values, V = np.linalg.eigh(W.toarray())
    order = np.argsort(-np.abs(values))
    for kept in (order[n_left:], order[: 12 - n_left]):
        given = bk.asarray(values[kept]), bk.asarray(V[:, kept].copy())
        message = find_missed_by_chebyshev(bk, csr(bk, W), *given, 1e-8, np.random.RandomState(0))
        is_missing = n_left > 0 and kept[0] != order[0]
        assert message.startswith("An eigenvalue of magnitude") == is_missing


def test_a_whole_eigenspace_of_both_signs_is_seen_to_be_missing(bk):
    W, _ = hypercube(9)
    values, V = np.linalg.eigh(W.toarray())
    kept = np.argsort(-np.abs(values))
    kept = kept[np.abs(np.abs(values[kept]) - 7) > 0.5][:60]  # 9, then 5: the 18 of ±7 are gone
    given = bk.asarray(values[kept]), bk.asarray(V[:, kept].copy())
    message = find_missed_by_chebyshev(bk, csr(bk, W), *given, 1e-8, np.random.RandomState(0))
    assert message.startswith("An eigenvalue of magnitude 7 is missing")


def test_a_component_that_no_start_reaches_is_reported_missing(bk, monkeypatch):
    W = sparse.block_diag([path(300)[0], 2 * cycle(60)[0]], "csr")
    random_block, made = chebyshev.random_block, []

    def blind(*given):
        made.append(random_block(*given))
        if len(made) <= 2:  # the estimate's and the iteration's, not those of the search at the end
            made[-1][300:] = 0
        return made[-1]

    monkeypatch.setattr(chebyshev, "random_block", blind)
    found = chebyshev.chebyshev(bk, csr(bk, W), 5, 1e-8, 100, np.random.RandomState(0))
    expected = largest(path(300)[1], 5)
    np.testing.assert_allclose(np.abs(bk.to_numpy(found[0])), expected, rtol=1e-10)
    top = 2 * np.abs(cycle(60)[1]).max()
    assert found[2].startswith(f"An eigenvalue of magnitude {top:.8g} is missing")


def test_a_matrix_that_is_not_finite_raises_or_is_flagged(bk):
    W, _ = path(700)
    W.data[100] = np.nan
    try:
        found = eigenpairs(csr(bk, W), 5, solver="chebyshev", random_state=0)
    except (ConvergenceError, np.linalg.LinAlgError, ValueError):
        return
    assert not found.converged


# Contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_same_seed_gives_the_same_bits(bk, solver):
    W, _, n = family("grid")
    first, second = (eigenpairs(csr(bk, W), n, solver=solver, random_state=3) for _ in range(2))
    rng = np.random.RandomState(3)
    third = eigenpairs(csr(bk, W), n, solver=solver, random_state=rng)
    for other in (second, third):
        if bk.name == "cuda" and solver == "lanczos":  # cuSPARSE may sum in any order
            np.testing.assert_allclose(bk.to_numpy(other.values), bk.to_numpy(first.values))
        else:
            np.testing.assert_array_equal(bk.to_numpy(other.values), bk.to_numpy(first.values))
            np.testing.assert_array_equal(bk.to_numpy(other.vectors), bk.to_numpy(first.vectors))


def test_the_start_vector_is_not_written_to(bk):
    W, _, _ = family("grid")
    v0 = bk.asarray(np.random.default_rng(0).normal(size=W.shape[0]))
    before = v0.copy()
    bk.lanczos(csr(bk, W), 5, v0, 1e-9, None)
    assert bool((v0 == before).all())


@pytest.mark.parametrize(
    ("m", "n", "solver"),
    [(300, 5, "dense"), (900, 5, "chebyshev"), (900, 450, "dense"), (900, 500, "dense")],
)
def test_auto_takes_dense_for_small_problems_only(bk, m, n, solver):
    W, _ = cycle(m)
    assert eigenpairs(csr(bk, W), n, random_state=0).solver == solver


def test_the_solver_told_of_is_that_of_the_largest_component(bk):
    W, _ = union(*[complete(3)] * 400, path(310))
    assert eigenpairs(csr(bk, W), 4, solver="chebyshev", random_state=0).solver == "chebyshev"


def test_the_limits_of_dense_are_those_documented():
    yes = [(1, 1), (300, 1), (301, 151), (900, 180), (1000, 200), (1001, 501), (10_000, 5000)]
    no = [(301, 5), (900, 179), (1000, 199), (1001, 201), (1001, 500), (10_000, 4999)]
    assert [takes_dense_solver(m, n, "auto") for m, n in yes + no] == [True] * 7 + [False] * 6
    assert takes_dense_solver(10_000, 1, "dense")
    assert [takes_dense_solver(10, n, "chebyshev") for n in (1, 7, 8)] == [False, False, True]


def thick_cycle(m, width):
    """Return the graph that joins each of m rows to the `width` before it and after it."""
    one = sparse.csr_matrix(np.eye(m))
    steps = [np.roll(np.arange(m), shift) for shift in range(-width, width + 1) if shift]
    return sum(one[:, step] for step in steps).tocsr()


@pytest.mark.parametrize("width", [10, 40])
def test_auto_multiplies_fewer_vectors_where_rows_are_full(bk, width):
    m, n = 1200, 50
    found = eigenpairs(csr(bk, thick_cycle(m, width)), n, random_state=0)
    assert found.solver == ("lanczos" if bk.name == "numpy" and 2 * width >= n else "chebyshev")
    turns = np.outer(np.arange(m), np.arange(1, width + 1)) * (2 * np.pi / m)
    spectrum = 2 * np.cos(turns).sum(axis=1)
    expected = np.sort(np.abs(spectrum))[::-1][:n]
    np.testing.assert_allclose(np.abs(bk.to_numpy(found.values)), expected, rtol=1e-9)


def test_auto_goes_on_where_lanczos_gave_up(monkeypatch):
    monkeypatch.setattr(cpu, "is_lanczos_faster", lambda *_: True)
    monkeypatch.setattr(cpu, "lanczos", lambda *_: (np.zeros(5), np.zeros((900, 5)), "gave up"))
    W, _ = cycle(900)
    assert eigenpairs(W, 5, random_state=0).converged
    assert "gave up" in eigenpairs(W, 5, solver="lanczos", random_state=0).message


def test_auto_is_right_where_eigenvalues_crowd():
    """Forty dense blocks, weakly joined: 20 of 40 eigenvalues within 1e-5 of each other."""
    block = np.random.default_rng(0).random((20, 20))
    W = np.kron(np.eye(40), block + block.T)
    for i in range(40):
        a, b = 20 * i, 20 * ((i + 1) % 40) + 1
        W[a, b] = W[b, a] = 1e-3
    spectrum = np.sort(np.abs(np.linalg.eigvalsh(W)))[::-1][:20]
    found = eigenpairs(sparse.csr_matrix(W), 20, random_state=0)
    np.testing.assert_allclose(np.abs(found.values), spectrum, rtol=1e-8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bk, bad):
    W = sparse.csr_matrix(np.eye(50))
    W.data[3] = bad
    with pytest.raises(ValueError, match="W must be finite"):
        eigenpairs(csr(bk, W), 5)


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e300])
def test_extreme_units_are_no_error(bk, scale):
    A = np.random.default_rng(0).random((80, 80))
    A += A.T
    found = eigenpairs(csr(bk, sparse.csr_matrix(A * scale)), 5, random_state=0)
    expected = np.sort(np.abs(np.linalg.eigvalsh(A)))[::-1][:5]
    assert found.converged
    np.testing.assert_allclose(np.abs(bk.to_numpy(found.values)) / scale, expected, rtol=1e-7)


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_stored_zeros_are_no_entries(bk, solver):
    row = np.repeat(np.arange(400), 400)
    Z = sparse.csr_matrix((np.zeros(160_000), (row, np.tile(np.arange(400), 400))))
    found = eigenpairs(csr(bk, Z), 5, solver=solver, random_state=0)
    np.testing.assert_array_equal(bk.to_numpy(found.values), 0)


@pytest.mark.parametrize(("W", "n"), [(np.eye(30), 5), (sparse.eye(30, format="csr"), 5.0)])
def test_other_types_are_named(W, n):
    with pytest.raises(TypeError, match="must be a sparse matrix|must be an integer"):
        eigenpairs(W, n)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_products_shared_by_threads_have_the_same_bits(monkeypatch, threads):
    monkeypatch.setattr(matrices, "SHARED_ENTRIES", 0)
    monkeypatch.setattr(matrices, "n_threads", lambda: threads)
    A = sparse.random(300, 300, 0.05, "csr", random_state=0)
    A.data[A.indptr[40] : A.indptr[90]] = A.data[A.indptr[280] :] = 0
    A.eliminate_zeros()  # rows without entries, the last of all among them
    x = np.random.default_rng(0).normal(size=300)
    np.testing.assert_array_equal(matrices._matrix_shared_by_threads(A) @ x, A @ x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, r"n must lie between 1 and the number of rows \(30\), got 0"),
        ({"n": 31}, "got 31"),
        ({"solver": "qr"}, "solver must be one of .* got 'qr'"),
        ({"tol": 0.0}, "tol must be positive, got 0.0"),
        ({"tol": float("nan")}, "tol must be positive, got nan"),
        ({"W": (3, 4)}, r"square matrix, got shape \(3, 4\)"),
        ({"dtype": np.int64}, "float32 or float64, got int64"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    W = path(30)[0] if "W" not in arguments else sparse.csr_matrix(arguments.pop("W"))
    W = W.astype(arguments.pop("dtype", np.float64))
    with pytest.raises(ValueError, match=message):
        eigenpairs(W, arguments.pop("n", 3), **arguments)


@pytest.mark.parametrize("spread", [1e-5, 1e-7, 1e-9])
def test_a_cluster_across_the_cut_that_is_wider_than_the_guard_is_resolved(bk, spread):
    rng = np.random.default_rng(0)
    cluster = 0.8 + spread * rng.random(40)
    spectrum = np.concatenate([np.linspace(1, 0.9, 90), cluster, np.linspace(0.7, 0, 490)])
    Q = np.linalg.qr(rng.standard_normal((620, 620)))[0]
    A = (Q * spectrum) @ Q.T
    A = bk.sparse.csr_matrix(bk.asarray((A + A.T) / 2))
    found = eigenpairs(A, 100, solver="chebyshev", random_state=0)
    assert found.converged, found.message
    expected = np.sort(spectrum)[::-1][:100]
    assert np.abs(bk.to_numpy(found.values) - expected).max() < 1e-8


@pytest.mark.parametrize("unit", [2.0**-600, 2.0**600])
@pytest.mark.parametrize("solver", ["dense", "lanczos", "chebyshev"])
def test_the_size_of_the_entries_does_not_matter(bk, solver, unit):
    W = knn_graph(bk.asarray(np.random.default_rng(0).random((700, 3))))
    expected = eigenpairs(W, 12, solver=solver, random_state=0)
    found = eigenpairs(W * unit, 12, solver=solver, random_state=0)
    assert found.converged
    assert bk.to_numpy(found.values / unit) == pytest.approx(bk.to_numpy(expected.values), abs=1e-9)


def test_the_remedy_names_the_other_solver(bk):
    W = knn_graph(bk.asarray(np.random.default_rng(0).random((700, 3))))
    assert "solver='lanczos'" in eigenpairs(W, 30, solver="chebyshev", max_iter=1).message


# Loose tolerances, narrow spectra -----------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("seed", range(3))
def test_what_locked_vectors_lack_does_not_spoil_the_rest(bk, tol, seed):
    B = sparse.random_array((300, 250), density=0.05, rng=seed)
    W = sparse.csr_matrix(sparse.block_array([[None, B], [B.T, None]]))
    for n in (41, 60):
        pairs = eigenpairs(csr(bk, W), n, solver="chebyshev", tol=tol, random_state=0, max_iter=30)
        assert pairs.converged, pairs.message
        expected = np.sort(np.abs(np.linalg.eigvalsh(W.toarray())))[::-1][:n]
        found = np.abs(bk.to_numpy(pairs.values))
        np.testing.assert_allclose(found, expected, atol=tol * expected[0])


@pytest.mark.parametrize("width", [1e-3, 1e-4])
def test_a_spectrum_in_a_narrow_band_is_filtered_in_float64(bk, width):
    A = sparse.random_array((600, 600), density=0.02, rng=2)
    W = sparse.csr_matrix(sparse.eye_array(600) + width * (A + A.T) / 2)
    pairs = eigenpairs(csr(bk, W), 20, solver="chebyshev", random_state=0, max_iter=30)
    assert pairs.converged, pairs.message
    expected = np.sort(np.linalg.eigvalsh(W.toarray()))[::-1][:20]
    np.testing.assert_allclose(bk.to_numpy(pairs.values), expected, atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1e30])
@pytest.mark.parametrize("n_parts", [1, 3])
def test_more_pairs_go_on_from_those_there_are(bk, monkeypatch, n_parts, factor):
    W = sparse.block_diag([neighbour_graph(500 + 100 * i, 3, i) for i in range(n_parts)], "csr")
    W = csr(bk, W * factor)
    settings = {"solver": "chebyshev", "random_state": 0}
    few, all_of = eigenpairs(W, 12, **settings), eigenpairs(W, 60, **settings)
    started = []
    monkeypatch.setattr(
        sys.modules["specialk_gpu.spectrum.solvers"],
        "chebyshev",
        lambda *given: started.append(given[-1]) or chebyshev.chebyshev(*given),
    )
    more = eigenpairs(W, 60, known=few, **settings)
    assert [known is None for known in started] == n_parts * [False]
    assert sum(known.values.size for known in started) == 12
    assert more.converged
    assert float(more.residuals.max()) <= 1e-8
    assert more.orthogonality <= 1e-9
    values = bk.to_numpy(more.values)
    np.testing.assert_allclose(values, bk.to_numpy(all_of.values), rtol=0, atol=1e-10 * factor)
    np.testing.assert_allclose(values[:12], bk.to_numpy(few.values), rtol=1e-12)
    eigenpairs(W, 12, known=few, **settings)
    assert started[n_parts:] == n_parts * [None]  # no more than are known: from the start


def test_pairs_that_are_known_are_split_by_component(bk):
    parts = [neighbour_graph(50, 3).toarray(), 1e-3 * neighbour_graph(40, 3, 1).toarray()]
    W, rough, values = csr(bk, scipy.linalg.block_diag(*parts)), np.zeros((90, 9)), np.empty(9)
    slices = (slice(0, 50), slice(0, 5)), (slice(50, 90), slice(5, 9))
    for part, (rows, columns) in zip(parts, slices, strict=True):
        own, V = np.linalg.eigh(part)
        some = np.argsort(-np.abs(own))[: columns.stop - columns.start]
        values[columns] = own[some]
        rough[rows, columns] = V[:, some]
        rough[rows, columns] += 1e-12 * np.random.default_rng(0).normal(size=V[:, some].shape)
    content = bk.asarray(values), bk.asarray(rough), bk.xp.zeros(9), 0.0
    given = module.Eigenpairs(
        *content, converged=True, complete=True, message="", solver="", n_components=2
    )
    _, component = bk.connected_components(W)
    known = module._known_eigenpairs(bk, W, given, 20, component, 0, 1e-6)
    assert known.keys() == {0, 1}
    for c, (_, columns) in enumerate(slices):
        assert known[c].values.tolist() == values[columns].tolist()
        np.testing.assert_array_equal(bk.to_numpy(known[c].vectors), rough[:, columns])
        V, own = rough[:, columns], values[columns]
        exact = np.linalg.norm(to_scipy(bk, W) @ V - V * own, axis=0).max() / np.abs(own).max()
        assert known[c].residual == pytest.approx(exact, rel=0.01)
    assert module._known_eigenpairs(bk, W, given, 20, component, 0, 1e-13) == {}
    assert module._known_eigenpairs(bk, W, given, 9, component, 0, 1e-6) == {}
    worse = given._replace(residuals=bk.xp.full(9, 1e-5))
    assert module._known_eigenpairs(bk, W, worse, 20, component, 0, 1e-6) == {}
    failed = given._replace(converged=False)
    assert module._known_eigenpairs(bk, W, failed, 20, component, 0, 1e-6) == {}


def test_what_is_said_to_be_known_is_checked(bk):
    W, other = csr(bk, neighbour_graph(700, 3)), csr(bk, neighbour_graph(700, 3, 1))
    settings = {"solver": "chebyshev", "random_state": 0}
    right = bk.to_numpy(eigenpairs(W, 30, **settings).values)
    for known in (eigenpairs(other, 10, **settings), eigenpairs(W, 10, tol=1e-2, **settings)):
        found = eigenpairs(W, 30, known=known, **settings)  # of no use, and no harm
        assert found.converged
        np.testing.assert_allclose(bk.to_numpy(found.values), right, atol=1e-10)
    with pytest.raises(TypeError, match="known must be a result of eigenpairs, got a tuple"):
        eigenpairs(W, 30, known=(1, 2))
    smaller = eigenpairs(csr(bk, neighbour_graph(600, 3)), 10, **settings)
    with pytest.raises(ValueError, match=r"known must have vectors of shape \(700, 10\)"):
        eigenpairs(W, 30, known=smaller)


def test_lanczos_is_the_same_every_time_where_an_eigenvalue_repeats():
    star = sparse.lil_array((65, 65))
    star[0, 1:] = star[1:, 0] = 1
    W = sparse.csr_matrix(star)
    first, again = (eigenpairs(W, 20, solver="lanczos", random_state=0) for _ in range(2))
    np.testing.assert_array_equal(again.vectors, first.vectors)


# Waits for the device -----------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", ["one to twenty", "twelve", "one", "isolated rows", "float32"])
def test_ten_thousand_components_take_ten_waits(waits, sizes):
    bk, count = get_backend("cuda"), 10_000
    each = {"twelve": np.full(count, 12), "one": np.ones(count, dtype=np.int64)}
    mixed = np.random.default_rng(0).integers(1, 21, count)
    W = many_small(each.get(sizes, mixed))
    if sizes == "isolated rows":
        W = sparse.csr_matrix((count, count))
    A = csr(bk, W, np.float32 if sizes == "float32" else np.float64)
    with waits() as counted:
        found = eigenpairs(A, 100)
    assert counted.waits <= 10
    assert found.converged
    assert found.n_components == count


WAITS = {
    (): 2,
    ("_expanded_chebyshev_block",): 3,
    ("_replace_dependent",): 4,
}  # of a round, by what it needs


@pytest.mark.gpu
def test_components_of_equal_size_are_decomposed_at_once(waits):
    sizes = np.repeat(np.arange(1, 21), 20)
    A = csr(get_backend("cuda"), many_small(sizes))
    with waits() as counted:
        found = eigenpairs(A, 60, random_state=0)
    assert found.n_components == sizes.size
    calls = counted.by_line["call"].items()
    assert sum(n for line, n in calls if line.endswith(" eigh")) == 19  # single rows need none
    assert counted.waits <= 10, str(counted)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_filter_round_takes_two_to_six_waits(waits, monkeypatch, name, dtype):
    bk = get_backend("cuda")
    W, _, n = family(name)
    rounds, special = [], set()

    def wrap(module, function, before, after):
        run = getattr(module, function)

        def wrapped(*args, **kwargs):
            before()
            found = run(*args, **kwargs)
            after()
            return found

        monkeypatch.setattr(module, function, wrapped)

    def end_round():
        rounds.append((counted.waits, tuple(sorted(special))))
        special.clear()

    for module, function in (
        (chebyshev, "_expanded_chebyshev_block"),
        (orthonormal, "_replace_dependent"),
    ):
        wrap(module, function, partial(special.add, function), int)
    for function in ("_spectrum_for_chebyshev", "_chebyshev_rayleigh_ritz"):
        wrap(chebyshev, function, int, end_round)
    A, rng = bk.operator(csr(bk, W, dtype)), np.random.RandomState(0)
    with waits() as counted:
        chebyshev.chebyshev(bk, A, n, RESIDUAL_TOL[dtype], 100, rng)
    for (before, _), (after, kind) in pairwise(rounds):
        assert after - before <= WAITS.get(kind, 6)
    assert counted.waits <= rounds[-1][0] + 10  # the search for what was missed


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_stuck_round_of_deficient_blocks_takes_six_waits(waits, dtype):
    bk = get_backend("cuda")
    A, rng = csr(bk, low_rank(650, 5)[0], dtype), np.random.RandomState(0)
    V = chebyshev.product(bk, A, bk.asarray(rng.standard_normal((650, 28)), dtype=dtype))
    locked = bk.xp.empty((650, 0), dtype=dtype)
    with waits() as counted:
        gram, replaced = orthonormal.orthonormalise(bk, V, locked, rng)
        assert replaced
        V = chebyshev._expanded_chebyshev_block(bk, A, V, gram, locked, rng, foreseen=True)
        chebyshev._chebyshev_rayleigh_ritz(bk, A, V, V.T @ V)
    assert counted.waits <= 6
    away = bk.to_numpy(V.T @ V) - np.eye(56)
    assert np.abs(away).max() < 100 * np.finfo(dtype).eps * 56


@pytest.mark.parametrize("with_residuals", [False, True])
@pytest.mark.parametrize("width", [3, 150, 1150])
def test_panels_are_filled_up_to_rows_of_32_bytes_and_the_bits_stay(
    bk, monkeypatch, width, with_residuals
):
    rng, A, widths = np.random.default_rng(0), csr(bk, neighbour_graph(60, 3)), []
    single, spmm = bk.as_float32(A), bk.spmm
    monkeypatch.setattr(
        bk, "spmm", lambda A, X, *rest: widths.append(X.shape[1]) or spmm(A, X, *rest)
    )
    V, residuals = (rng.normal(size=(60, width)).astype(np.float32) for _ in range(2))
    residuals = bk.asarray(residuals) if with_residuals else None
    theta, interval = np.linspace(1, 0.5, width), filter.filter_interval(-0.4, 0.4, 1.0)
    found = []
    for multiple in (1, 8) if bk.name == "numpy" else (1, bk.panel_multiple):
        monkeypatch.setattr(bk, "panel_multiple", multiple)
        widths.clear()
        found.append(bk.asarray(V.copy()))
        filter.apply_filter(bk, single, found[-1], residuals, theta, 4, interval)
    assert widths
    assert all(4 * own % 32 == 0 for own in widths)
    np.testing.assert_array_equal(*map(bk.to_numpy, found))


@pytest.mark.parametrize("lowest", [-0.5, -1.0])
@pytest.mark.parametrize("n_block", [100, 600])
def test_the_spectrum_is_estimated_before_it_is_filtered(bk, n_block, lowest):
    values = np.linspace(lowest, 2.0, 3000)
    A = bk.as_float32(csr(bk, sparse.diags(values)))
    rng = np.random.RandomState(0)
    low, scale, density = chebyshev._spectrum_for_chebyshev(bk, A, rng)
    assert scale == pytest.approx(2, rel=0.01)
    assert 1.01 * lowest - 0.1 < low <= lowest + 1e-4
    assert density.magnitude(n_block) == pytest.approx(np.sort(abs(values))[-n_block], rel=0.05)


def test_the_estimate_of_few_rows_is_exact(bk):
    values = np.r_[np.linspace(-0.9, 1, 12), [0.0] * 8]
    A = csr(bk, sparse.diags(values))
    low, scale, density = chebyshev._spectrum_for_chebyshev(bk, A, np.random.RandomState(0))
    np.testing.assert_allclose([low, scale], [-0.9, 1], rtol=1e-6)
    assert 0.8 < density.magnitude(1) <= 1 + 1e-6
    assert density.counted[-1] == pytest.approx(20)


def test_a_density_counts_magnitudes():
    density = chebyshev._Density(np.array([0.9, 0.7, 0.7, 0.2]), np.array([1.5, 3.0, 6.0, 9.0]))
    assert [density.magnitude(n) for n in (1, 1.5, 1.6, 3.1, 9, 99)] == [
        *(0.9, 0.9, 0.7, 0.7, 0.2, 0.2)
    ]
    assert [density.number_above(x) for x in (1.0, 0.9, 0.8, 0.7, 0.1)] == [0, 1.5, 1.5, 6, 9]


def test_a_cut_above_the_wanted_values_is_lowered_by_what_was_counted_too_many():
    density = chebyshev._Density(np.arange(128, -1, -1) / 128, np.arange(129.0))
    theta = np.array([0.95, -0.93, 0.92, 0.1, 0.05])
    lower = chebyshev._lower_chebyshev_cut
    assert lower(theta, 3, 112 / 128, density) == 112 / 128  # three are above it
    # 16 are counted where 3 are: so 5 are where 18 are counted
    assert lower(theta, 4, 112 / 128, density) == 110 / 128
    assert lower(theta, 4, 120 / 128, density) == 116 / 128  # 8 where 1 is: 12
    few = density._replace(counted=density.counted / 100)
    assert lower(theta, 4, 112 / 128, few) == 0  # none is counted so often
    assert lower(theta, 4, 0.0, few) == 0  # it is never raised


def test_a_cut_that_was_estimated_too_high_costs_few_rounds(bk, monkeypatch):
    W, n, edges = neighbour_graph(2000, 3), 40, []
    expected = np.sort(abs(np.linalg.eigvalsh(W.toarray())))[::-1]
    apply, estimate = chebyshev.apply_filter, chebyshev._spectrum_for_chebyshev

    def recorded(bk, A, V, residuals, theta, degree, interval):
        if residuals is not None:
            edges.append(interval.centre + interval.half)
        apply(bk, A, V, residuals, theta, degree, interval)

    def thrice(*arguments):
        """Count three times as many eigenvalues as there are."""
        density = chebyshev._Density(expected, 3.0 * np.arange(1, 2001))
        return *estimate(*arguments)[:2], density

    monkeypatch.setattr(chebyshev, "apply_filter", recorded)
    monkeypatch.setattr(chebyshev, "_spectrum_for_chebyshev", thrice)
    A, found = bk.operator(csr(bk, W)), []
    for lower in (chebyshev._lower_chebyshev_cut, lambda *given: given[2]):
        monkeypatch.setattr(chebyshev, "_lower_chebyshev_cut", lower)
        edges.clear()
        rng = np.random.RandomState(0)
        values, _, message = chebyshev.chebyshev(bk, A, n, 1e-8, 100, rng)
        assert not message
        np.testing.assert_allclose(abs(bk.to_numpy(values)), expected[:n], atol=1e-8)
        found.append(list(edges))
    corrected, left = found
    assert corrected[0] == left[0] > expected[n - 1]
    assert corrected[1] < corrected[0]
    assert len(corrected) < len(left)


def test_copies_below_a_cut_that_is_lowered_do_not_hide_a_larger_eigenvalue(bk):
    # The block holds fewer vectors than there are copies. Only A times the block shows -0.5.
    spectrum = np.r_[np.ones(6), -0.5, np.full(65, 0.4995), np.linspace(-0.005, 0.005, 228)]
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((300, 300)))[0]
    W = csr(bk, Q * spectrum @ Q.T)
    found = eigenpairs((W + W.T) / 2, 12, solver="chebyshev", random_state=0)
    expected = np.r_[np.ones(6), -0.5, np.full(5, 0.4995)]
    np.testing.assert_allclose(bk.to_numpy(found.values), expected, atol=1e-7)
    assert found.converged


def test_values_that_are_known_bound_the_next():
    theta, cut = chebyshev._known_magnitudes(4, 2.0, 0.7, None)
    assert (theta.tolist(), cut) == ([2.0, 0.7, 0.7, 0.7], 0.7)
    known = chebyshev.Known(np.array([1.5, -0.6]), None, 0.0)
    theta, cut = chebyshev._known_magnitudes(4, 2.0, 0.7, known)
    assert (theta.tolist(), cut) == ([1.5, -0.6, 0.6, 0.7], 0.999 * 0.6)
    assert chebyshev._known_magnitudes(4, 2.0, 0.3, known)[1] == 0.3


def test_the_filter_cuts_below_the_last_settled_value():
    theta, norms = np.array([1.0, -0.9, 0.8, -0.7, 0.6, 0.5]), np.zeros(6)

    def cut(*open_norms, scale=1.0):
        norms[3:] = open_norms
        return chebyshev._chebyshev_cut(theta, norms[2:], 3, scale, 0.65)

    assert cut(1, 1, 1) == 0.65
    assert cut(0.019, 1, 1) == 0.7  # a fifth of the gap to the third
    assert cut(0.021, 0.039, 1) == 0.6
    assert cut(0.021, 0.041, 0.059) == 0.5
    assert cut(0.019, 0.041, 1, scale=2.0) == 0.65


def test_what_a_filter_damps_and_lets_grow():
    interval = filter.filter_interval(-0.2, 0.6, 1.0)
    assert interval == pytest.approx((0.2, 0.4))
    assert filter.filter_interval(0.3, 0.3, 5.0) == pytest.approx((0.3, 5e-4))  # a point
    T = np.polynomial.Chebyshev.basis(40)
    for value in (1.0, -0.7, 0.65):
        expected = math.log(2 * abs(T((value - 0.2) / 0.4)))
        assert 40 * interval.growth(value) == pytest.approx(expected)
    assert interval.growth(0.3) == interval.growth(-0.2) == interval.growth(0.6) == 0


def test_the_degree_is_what_is_needed_as_far_as_it_is_bearable():
    interval, T = filter.filter_interval(-0.2, 0.6, 1.0), np.polynomial.Chebyshev.basis

    def degree(top=1.0, last=0.8, reduction=1e4, bearable=(1e9, 1e9)):
        return filter.filter_degree(interval, 1.5, top, last, reduction, bearable)

    def grown(value, q):
        return abs(T(q)((value - 0.2) / 0.4))

    for reduction in (1.0, 1e2, 1e4):  # 20 times, at the last value
        q = degree(reduction=reduction)
        assert grown(0.8, q - 2) < 10 * reduction * 1.1 < 11 * grown(0.8, q)
    assert degree(reduction=0.1) == degree(reduction=1)
    for value, limit in ((1.0, (5.0, 1e9)), (1.5, (1e9, 5.0))):  # at the top, and at the scale
        q = degree(bearable=limit)
        assert grown(value, q) < math.exp(5) / 2 * 1.01 < grown(value, q + 1)
    assert degree(last=0.6) == 1000
    assert degree(bearable=(0.1, 0.1)) == 1


FILTERS = {"complete": 3, "torus": 4, "grid": 4, "low rank": 2, "small neighbour graph": 6}


@pytest.mark.parametrize("name", FILTERS)
def test_a_handful_of_filters_is_enough(bk, name):
    W, _, n = family(name)
    settings = {"solver": "chebyshev", "max_iter": FILTERS[name], "random_state": 0}
    assert eigenpairs(csr(bk, W), n, **settings).converged


def test_random_blocks_are_numbers_of_their_place_and_seed(bk):
    whole = bk.to_numpy(chebyshev.random_block(bk, 300, 40, 7, np.float64))
    assert 0.9 < np.abs(whole).max() < 1
    assert abs(whole.mean()) < 0.02
    assert whole.var() == pytest.approx(1 / 3, rel=0.02)
    assert np.unique(whole).size == whole.size
    assert np.abs(np.corrcoef(whole.T) - np.eye(40)).max() < 0.3
    part = bk.to_numpy(chebyshev.random_block(bk, 9, 5, 7, np.float32))
    np.testing.assert_array_equal(part, whole[:9, :5].astype(np.float32))
    other = bk.to_numpy(chebyshev.random_block(bk, 300, 40, 2**32 - 1, np.float64))
    assert abs(np.corrcoef(whole.ravel(), other.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("width", [3, 150])
def test_ritz_pairs_are_those_of_the_range(bk, width, dtype):
    rng, dense = np.random.default_rng(0), neighbour_graph(200, 3).toarray() - 0.1 * np.eye(200)
    V = np.linalg.qr(rng.normal(size=(200, width)))[0] + 1e-3 * rng.normal(size=(200, width))
    V = V.astype(dtype).astype(np.float64)
    expected = scipy.linalg.eigh(V.T @ dense @ V, V.T @ V, eigvals_only=True)
    found = bk.asarray(V, dtype=dtype)
    A = bk.operator(csr(bk, dense, dtype))
    values, norms, residuals = chebyshev._chebyshev_rayleigh_ritz(bk, A, found, found.T @ found)
    found, residuals = bk.to_numpy(found).astype(np.float64), bk.to_numpy(residuals)
    eps = float(np.finfo(dtype).eps)
    assert (np.diff(np.abs(values)) <= eps).all()
    np.testing.assert_allclose(np.sort(values), np.sort(expected), atol=100 * eps)
    np.testing.assert_allclose(found.T @ found, np.eye(width), atol=1e3 * eps)
    np.testing.assert_allclose(V @ np.linalg.lstsq(V, found)[0], found, atol=1e3 * eps)
    exact = dense @ found - found * values
    np.testing.assert_allclose(residuals, exact, atol=100 * eps + 1e-7)
    np.testing.assert_allclose(norms, np.linalg.norm(exact, axis=0), atol=100 * eps)
    assert residuals.dtype == np.float32


@pytest.mark.parametrize("n_locked", [0, 4])
@pytest.mark.parametrize(("m", "width"), [(200, 12), (30, 16)])
def test_a_block_is_expanded_by_its_image(bk, m, width, n_locked):
    rng, dense = np.random.default_rng(0), neighbour_graph(m, 3).toarray()
    Q = np.linalg.qr(rng.normal(size=(m, width + n_locked)))[0]
    locked, V = Q[:, :n_locked], Q[:, n_locked:] + 1e-5 * rng.normal(size=(m, width))
    V -= locked @ (locked.T @ V)
    given = bk.asarray(V), bk.asarray(V.T @ V), bk.asarray(locked), np.random.RandomState(0)
    A = csr(bk, dense)
    found = chebyshev._expanded_chebyshev_block(bk, A, *given, foreseen=False)
    found, room = bk.to_numpy(found), min(width, m - width - n_locked)
    assert found.shape == (m, width + room)
    np.testing.assert_allclose(found.T @ found, np.eye(width + room), atol=1e-12)
    np.testing.assert_allclose(found.T @ locked, 0, atol=1e-12)
    whole = np.concatenate([found, locked], axis=1)
    for inside in (V, dense @ found[:, :room]):
        np.testing.assert_allclose(whole @ (whole.T @ inside), inside, atol=1e-10)


@pytest.mark.parametrize("max_iter", [1, 2])
def test_what_is_found_too_late_is_said_and_the_rest_is_there(bk, max_iter):
    W, spectrum, n = family("small neighbour graph")
    given = bk.operator(csr(bk, W)), n, 1e-8, max_iter, np.random.RandomState(0)
    values, V, failure = chebyshev.chebyshev(bk, *given)
    values, V = bk.to_numpy(values), bk.to_numpy(V)
    assert V.shape == (W.shape[0], n)
    np.testing.assert_allclose(np.linalg.norm(W @ V - V * values, axis=0).max(), 0, atol=0.2)
    residuals = np.linalg.norm(W @ V - V * values, axis=0)
    n_found = int(np.argmax(residuals > 0.5e-8 * np.abs(values[0])))
    assert (
        failure == f"Chebyshev iteration found {n_found} of {n} eigenpairs in {max_iter} filters."
    )
    np.testing.assert_allclose(np.abs(values[:n_found]), largest(spectrum, n_found), atol=1e-12)


# The parts of `eigenpairs` ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 150])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_evidence_is_computed_from_its_definition(bk, n, dtype):
    rng, W = np.random.default_rng(0), neighbour_graph(200, 3).astype(dtype)
    V, values = rng.normal(size=(200, n)).astype(dtype), rng.normal(size=n)
    V[:, 0] *= 30
    for scale in (1.0, 0.0):
        own = values * scale
        found, orthogonality = module._verify_eigenpairs(bk, csr(bk, W, dtype), own, bk.asarray(V))
        exact = W.astype(np.float64) @ V.astype(np.float64) - V * own
        expected = np.linalg.norm(exact, axis=0) / (np.abs(own).max() or 1)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        away = np.abs(V.T.astype(np.float64) @ V - np.eye(n)).max()
        assert orthogonality == pytest.approx(away, rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_powers_that_no_number_holds_can_be_multiplied_by(bk, dtype):
    largest = {np.float64: 1000, np.float32: 120}[dtype]
    for exponent in (0, 1, -1, 7, largest + 51, -largest - 50, 2 * largest - 1, 1 - 2 * largest):
        x = np.array([1.5, -1.0]) * 2.0 ** (-exponent // 2)
        found = module._times_power(bk.asarray(x, dtype=dtype), exponent)
        assert found.dtype == dtype
        expected = [np.ldexp(one, exponent) for one in x]
        np.testing.assert_array_equal(bk.to_numpy(found), expected)


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e9, 1e-250, 1e300])
def test_a_matrix_is_scaled_by_a_power_of_two_if_its_size_is_extreme(bk, size):
    data, places = np.array([size, -size / 3, size / 7, 0.0]), ([0, 1, 2, 2], [1, 0, 2, 0])
    W = bk.sparse.csr_matrix(sparse.csr_matrix((data, places), shape=(3, 3)))
    found, exponent = module._scaled_for_eigenpairs(bk, W)
    assert (found.nnz, W.nnz) == (3, 4)  # zeros are left out, and the matrix is not changed
    back = np.ldexp(to_scipy(bk, found).toarray(), exponent)
    np.testing.assert_array_equal(back, to_scipy(bk, W).toarray())
    largest = abs(found.data).max()
    assert (0.5 <= largest < 1) if exponent else (1e-10 < largest < 1e10)
    empty = bk.sparse.csr_matrix((3, 3))
    assert module._scaled_for_eigenpairs(bk, empty) == (empty, 0)


@pytest.mark.parametrize("rows", [1, 250])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_few_pairs_of_a_small_graph_are_those_of_a_full_decomposition(bk, rows, dtype):
    W = neighbour_graph(rows, 3) if rows > 1 else sparse.csr_matrix([[2.0]])
    n = min(rows, 6)
    values, vectors = module.quick_eigenpairs(csr(bk, W, dtype), n, 1e-6)
    V = bk.to_numpy(vectors)
    assert isinstance(values, np.ndarray)
    np.testing.assert_allclose(np.abs(values), largest(spectrum_of(W)[1], n), atol=1e-5)
    np.testing.assert_allclose(W @ V, V * values, atol=1e-5)


@pytest.mark.parametrize("is_lanczos", [False, True])
def test_a_few_pairs_come_quickly_or_not_at_all(bk, monkeypatch, is_lanczos):
    monkeypatch.setattr(bk, "is_lanczos_faster", lambda *_: is_lanczos)
    W, spectrum = family("small neighbour graph")[:2]
    values, vectors = module.quick_eigenpairs(csr(bk, W), 9, 1e-5)
    V = bk.to_numpy(vectors)
    np.testing.assert_allclose(np.abs(values), largest(spectrum, 9), rtol=1e-8)
    assert np.linalg.norm(W @ V - V * values, axis=0).max() < 1e-5
    np.testing.assert_allclose(V.T @ V, np.eye(9), atol=1e-8)
    monkeypatch.setattr(module, "QUICK_FILTERS", 1)
    monkeypatch.setattr(bk, "lanczos", lambda *_: (None, None, "gave up"))
    assert module.quick_eigenpairs(csr(bk, W), 60, 1e-9) is None


def test_what_is_wrong_is_counted_and_named(bk, monkeypatch):
    W, verify = csr(bk, path(40)[0]), module._verify_eigenpairs
    assert eigenpairs(W, 5).message == ""

    def worse(*given):
        residuals, _ = verify(*given)
        return residuals + np.array([0, 2e-8, 1e-8, 5e-3, 0]), 2e-10

    monkeypatch.setattr(module, "_verify_eigenpairs", worse)
    found = eigenpairs(W, 5)
    assert not found.converged
    assert found.complete
    assert found.message == (
        "3 of 5 eigenpairs have a residual above tol=1e-08 (largest 0.005). The eigenvectors are "
        "not orthonormal: max |VᵀV - I| = 2e-10. Try solver='chebyshev' or 'dense', a larger "
        "max_iter or tol, fewer eigenpairs, or float64."
    )
    monkeypatch.setattr(module, "_verify_eigenpairs", lambda *g: (verify(*g)[0], 0.9e-10))
    assert eigenpairs(W, 5).converged


# Orthonormal blocks -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("foreseen", [False, True])
@pytest.mark.parametrize("rank", [40, 25, 1])
@pytest.mark.parametrize("n_locked", [0, 7])
def test_a_block_becomes_orthonormal_and_keeps_its_range(bk, n_locked, rank, foreseen, dtype):
    rng = np.random.default_rng(rank)
    Q = np.linalg.qr(rng.normal(size=(300, 47)))[0]
    locked, own = Q[:, :n_locked], Q[:, 7 : 7 + rank]
    mixed = np.linalg.qr(rng.normal(size=(40, rank)))[0].T
    V = own @ (np.logspace(0, -1, rank)[:, None] * mixed)
    V += locked @ rng.normal(size=(n_locked, 40))
    block, fixed = bk.asarray(V, dtype=dtype), bk.asarray(locked, dtype=dtype)
    given = block, fixed, np.random.RandomState(0)
    gram, replaced = orthonormal.orthonormalise(bk, *given, foreseen=foreseen)
    assert replaced == (rank < 40)
    found, eps = bk.to_numpy(block).astype(np.float64), float(np.finfo(dtype).eps)
    np.testing.assert_allclose(bk.to_numpy(gram), found.T @ found, atol=100 * eps)
    assert np.abs(found.T @ found - np.eye(40)).max() < 1e-2
    np.testing.assert_allclose(found.T @ locked, 0, atol=1e3 * eps)
    kept = found @ np.linalg.lstsq(found, own)[0]
    np.testing.assert_allclose(kept, own, atol=1e3 * eps)
    orthonormal.finish_orthonormal(bk, block, gram)
    found = bk.to_numpy(block).astype(np.float64)
    np.testing.assert_allclose(found.T @ found, np.eye(40), atol=40 * eps)


def test_a_block_is_multiplied_until_it_is_orthonormal(bk):
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(m, 12)))[0] for m in (300, 12))
    block, none = bk.asarray(left * np.logspace(3, -5, 12) @ right.T), bk.xp.empty((300, 0))
    gram, replaced = orthonormal.orthonormalise(bk, block, none, np.random.RandomState(0))
    assert not replaced
    found = bk.to_numpy(block)
    np.testing.assert_allclose(bk.to_numpy(gram), found.T @ found, atol=1e-13)
    assert np.abs(found.T @ found - np.eye(12)).max() < 1e-2
    np.testing.assert_allclose(found @ np.linalg.lstsq(found, left)[0], left, atol=1e-3)


def test_a_block_is_not_changed_where_a_step_failed(bk):
    rng = np.random.default_rng(0)
    V, locked = rng.normal(size=(60, 4)), np.linalg.qr(rng.normal(size=(60, 3)))[0]
    for go in (True, False):
        found = bk.asarray(V.copy())
        gram, near = orthonormal._gram_matrix(bk, found, (bk.asarray(locked),), bk.xp.asarray(go))
        expected = V - locked @ (locked.T @ V) if go else V
        np.testing.assert_allclose(bk.to_numpy(found), expected, atol=1e-13 if go else 0)
        np.testing.assert_allclose(bk.to_numpy(gram), expected.T @ expected, atol=1e-12)
        assert not near


def test_a_block_that_is_no_number_cannot_be_made_orthonormal(bk):
    V = np.random.default_rng(0).normal(size=(50, 4))
    V[3, 2] = np.nan
    with pytest.raises((ConvergenceError, np.linalg.LinAlgError)):
        orthonormal.orthonormalise(
            bk, bk.asarray(V), bk.xp.empty((50, 0)), np.random.RandomState(0)
        )


def test_columns_are_split_into_at_most_eight_panels(bk):
    least = bk.panel_width
    for width in (1, least, least + 1, 8 * least, 8 * least + 1, 20 * least):
        panels = tall.wide_panels(bk, 100, width)
        stops = [part.stop for part in panels]
        assert [part.start for part in panels] == [0, *stops[:-1]]
        assert stops[-1] == width
        assert len(panels) == min(8, math.ceil(width / least))


def test_whether_a_factor_can_be_trusted(bk):
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    for smallest, expected in ((1.0, True), (1e-8, True), (1e-15, False), (-1e-3, False)):
        gram = Q * np.r_[np.ones(5), smallest] @ Q.T
        factor, safe = orthonormal._cholesky(bk, bk.asarray((gram + gram.T) / 2))
        assert bool(safe) == expected
        if expected:
            np.testing.assert_allclose(bk.to_numpy(factor @ factor.T), gram, atol=1e-14)


# One component ------------------------------------------------------------------------------------


def test_entries_of_a_permuted_matrix_come_by_row_and_column(bk):
    W, order = neighbour_graph(60, 3), np.random.default_rng(1).permutation(60)
    entries = solvers.entries_in_order(bk, csr(bk, W), bk.asarray(order))
    expected = W[order][:, order].tocsr()
    expected.sort_indices()
    rows = np.repeat(np.arange(60), np.diff(expected.indptr))
    for found, own in zip(entries, (expected.data, rows, expected.indices), strict=True):
        np.testing.assert_array_equal(bk.to_numpy(found), own)
    again = to_scipy(bk, solvers.csr_of(bk, *entries, 60))
    assert again.indptr.dtype == again.indices.dtype == np.int32
    np.testing.assert_array_equal(again.toarray(), expected.toarray())


def test_three_smallest_magnitudes_within_a_hundred_thousandth_are_a_crowd(bk):
    for values, crowded in [
        ([2, 1, 1], False),
        ([2, 1, -1, 1], True),
        ([2, 1, -1 - 1.9e-5, 1 + 1.9e-5], True),
        ([2, 1, -1 - 2.1e-5, 1 + 1.9e-5], False),
        ([1, 1, 1], True),
        ([-1, 1], False),
    ]:
        given = bk.asarray(np.array(values, dtype=float))
        assert solvers._is_crowded_for_solver(bk, given) == crowded


def test_a_hundred_filters_are_the_limit_if_none_is_given(bk, monkeypatch):
    W, limits = csr(bk, path(320)[0]), []

    def spy(*given):
        limits.append(given[4])
        return chebyshev.chebyshev(*given)

    monkeypatch.setattr(solvers, "chebyshev", spy)
    for max_iter in (None, 7):
        eigenpairs(W, 3, max_iter=max_iter, random_state=0)
    assert limits == [100, 7]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_full_decomposition_gives_the_largest_magnitudes(bk, dtype):
    dense = neighbour_graph(40, 2).toarray() - 0.3 * np.eye(40)
    expected = np.linalg.eigvalsh(dense)
    expected = expected[np.argsort(-np.abs(expected))]
    given = np.array([5]), bk.xp.arange(40), bk.asarray(dense, dtype=dtype)
    for n in (1, 7, 40):
        part = solvers.dense_solver(bk, *given, n)
        (values,), (V,) = bk.to_numpy(part.values), bk.to_numpy(part.vectors)
        assert values.dtype == V.dtype == dtype
        np.testing.assert_allclose(values, expected[:n], atol=VALUE_TOL[dtype])
        np.testing.assert_allclose(dense @ V, V * values, atol=10 * VALUE_TOL[dtype])
        (host,) = solvers.solved_values_on_host(bk, [part])
        np.testing.assert_array_equal(host, values)


def test_components_are_sorted_by_size_and_cut_out(bk):
    sizes = [3, 1, 5, 3, 2, 1, 5, 4, 3]
    W = many_small(np.array(sizes))
    count, component = bk.connected_components(csr(bk, W))
    blocks = components._components_by_size(bk, csr(bk, W), count, component)
    assert blocks.size.tolist() == sorted(sizes)
    component, seen = bk.to_numpy(component), []
    for first, stop in [(0, 2), (2, 3), (3, 6), (4, 6), (6, 7), (7, 9), (8, 9)]:
        rows, dense = components._dense_components(bk, blocks, first, stop)
        numbers = blocks.component[first:stop].tolist()
        assert numbers == sorted(numbers)
        seen += numbers
        for c, own, block in zip(numbers, bk.to_numpy(rows), bk.to_numpy(dense), strict=True):
            assert own.tolist() == np.flatnonzero(component == c).tolist()
            np.testing.assert_array_equal(block, W[own][:, own].toarray())
    assert set(seen) == set(range(9))


@pytest.mark.parametrize("degree", [1, 2, 5, 12])
def test_the_weights_of_residuals_are_chebyshev_polynomials(degree):
    x = np.array([-3.0, -1.01, -1, -0.4, 0, 0.7, 1, 1.001, 1.3, 40])
    weights, heads = filter._filter_weights_of_residuals(x, degree, 0.25)
    T = np.stack([np.polynomial.Chebyshev.basis(j)(x) for j in range(degree + 1)])
    T /= np.where(np.abs(x) > 1, T[-1], 1)  # divided by the last where it grows
    np.testing.assert_allclose(heads, T[-1], atol=1e-12)
    np.testing.assert_allclose(weights[0], T[0] / 0.25, rtol=1e-9)
    np.testing.assert_allclose(weights[1:], 2 * T[1:-1] / 0.25, rtol=1e-9, atol=1e-11)
    assert np.isfinite(filter._filter_weights_of_residuals(x, 1000, 0.25)[0]).all()


def test_a_component_with_more_of_the_largest_than_its_share_is_asked_again(bk, monkeypatch):
    large, small = neighbour_graph(320, 3), 1e-3 * neighbour_graph(400, 3, 1)
    W, asked = sparse.block_diag([small, large], "csr"), []
    run_solver = components.run_solver
    monkeypatch.setattr(
        components, "run_solver", lambda *given: asked.append(given[4]) or run_solver(*given)
    )
    found = eigenpairs(csr(bk, W), 60, random_state=0)
    expected = np.concatenate([np.linalg.eigvalsh(part.toarray()) for part in (small, large)])
    assert found.converged
    np.testing.assert_allclose(np.abs(bk.to_numpy(found.values)), largest(expected, 60), rtol=1e-9)
    assert len(asked) == 3
    assert max(asked) == 60


@pytest.mark.parametrize("with_residuals", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_the_filter_is_a_chebyshev_polynomial(bk, degree, with_residuals):
    rng, dense = np.random.default_rng(0), neighbour_graph(30, 3).toarray()
    V, interval = rng.normal(size=(30, 5)), filter.filter_interval(-0.3, 0.5, 1.0)
    V /= np.linalg.norm(V, axis=0)
    theta = np.array([1.0, 0.7, 0.2, -0.1, -0.6])
    values, basis = np.linalg.eigh(dense)
    T = np.polynomial.Chebyshev.basis(degree)
    expected = basis @ (T((values - 0.1) / 0.4)[:, None] * (basis.T @ V))
    expected /= np.linalg.norm(expected, axis=0)
    if with_residuals:  # divided by the value at theta, where this grows
        expected[:, -1] *= np.sign(T((theta[-1] - 0.1) / 0.4))
    residuals = bk.asarray(dense @ V - V * theta) if with_residuals else None
    found = bk.asarray(V)
    filter.apply_filter(bk, csr(bk, dense), found, residuals, theta, degree, interval)
    np.testing.assert_allclose(bk.to_numpy(found), expected, atol=1e-12)


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(2000, 130), (4000, 60)])
@pytest.mark.parametrize("solver", ITERATIVE)
def test_the_memory_asked_for_is_what_is_used(solver, m, n):
    W = neighbour_graph(m, 5)
    graph = W.data.nbytes + W.indices.nbytes + W.indptr.nbytes
    tracemalloc.start()
    pairs = eigenpairs(W, n, solver=solver, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs.solver == solver
    needed = needed_memory(cpu, m, n, solver)
    assert needed / 1.25 < peak < needed + 2 * graph  # a solver's own copies of the graph


@pytest.mark.parametrize("limit", [None, 40_000_000])
def test_the_memory_asked_for_is_what_is_used_by_many_rows(monkeypatch, limit):
    m, n = 20_000, 60
    monkeypatch.setattr(tall, "MANY_ROWS", m)
    monkeypatch.setattr(tall, "SLAB", 2048)
    W = neighbour_graph(m, 5)
    graph = W.data.nbytes + W.indices.nbytes + W.indptr.nbytes
    tracemalloc.start()
    with memory_limited(limit):
        eigenpairs(W, n, solver="chebyshev", random_state=0)
        needed = needed_memory(cpu, m, n, "chebyshev")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert needed / 1.25 < peak < needed + 5 * graph


@pytest.mark.parametrize("solver", SOLVERS)
def test_eigenpairs_that_do_not_fit_are_refused(monkeypatch, bk, solver):
    W = bk.sparse.csr_matrix(neighbour_graph(700, 3))
    needed = needed_memory(bk, 700, 100, solver)
    for free, fits in ((needed - 1, False), (needed, True)):
        monkeypatch.setattr(bk, "free_memory", lambda free=free: free)
        if fits:
            assert eigenpairs(W, 100, solver=solver, random_state=0).converged
            continue
        size = f"{needed / 1e6:.0f} MB"
        with pytest.raises(MemoryError, match=f"100 eigenvectors of 700 rows need about {size} of"):
            eigenpairs(W, 100, solver=solver, random_state=0)


def asked_for(bk, m, n, solver, itemsize, threads):
    """Return the bytes of all arrays that a solver has at once, from a list of them."""
    guard = next(g for g in range(16, n + 17) if 100 * g >= 15 * n)
    block = min(m, n + guard)
    many = bk.name == "numpy" and m >= tall.MANY_ROWS  # slabs of rows, narrow panels
    panel = min(block, tall.NARROW_PANEL if many else bk.panel_width)
    if solver == "dense":
        return 8 * (4 * m * m + 2 * m * n)
    if bk.name == "cuda":  # three blocks, the residuals in float32, and three panels
        return 3 * m * block * itemsize + 4 * m * block + 3 * m * panel * itemsize
    solving = {
        "lanczos": 5 * m * n * itemsize + m * itemsize,  # and the start vector
        "chebyshev": (3 if many else 2) * m * block * itemsize + 4 * m * block,
    }
    at_once = 1 if many else min(threads, math.ceil(n / panel))
    verifying = 2 * m * n * itemsize + at_once * 4 * m * panel * 8
    return max(solving[solver], verifying) + 3 * block * block * itemsize


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("threads", [1, 3, 64])
def test_the_memory_asked_for_is_that_of_all_arrays(bk, monkeypatch, threads, itemsize):
    monkeypatch.setattr(memory, "n_threads", lambda: threads)
    for m, n in [(5, 1), (50, 40), (700, 30), (700, 106), (700, 107), (90_000, 2000), (9000, 3)]:
        of = {solver: asked_for(bk, m, n, solver, itemsize, threads) for solver in SOLVERS}
        of["auto"] = min(of["chebyshev"], of["lanczos"])
        for solver, expected in of.items():
            assert needed_memory(bk, m, n, solver, itemsize) == expected
            assert itemsize == 4 or needed_memory(bk, m, n, solver) == expected
            monkeypatch.setattr(bk, "free_memory", lambda free=expected: free)
            memory.require_memory(bk, m, n, solver, itemsize)
            monkeypatch.setattr(bk, "free_memory", lambda free=expected - 1: free)
            with pytest.raises(MemoryError, match=f"{n} eigenvectors of {m} rows need about"):
                memory.require_memory(bk, m, n, solver, *([itemsize] if itemsize == 4 else []))


def test_a_block_has_15_percent_of_vectors_to_spare_and_at_least_16():
    spare = {1: 16, 106: 16, 107: 17, 120: 18, 200: 30, 1001: 151}
    assert {n: memory.guard_size(n) for n in spare} == spare


def test_long_products_are_taken_in_panels(monkeypatch):
    rng = np.random.default_rng(0)
    V, locked = rng.normal(size=(500, 200)), np.linalg.qr(rng.normal(size=(500, 70)))[0]
    expected = V - locked @ (locked.T @ V)
    monkeypatch.setattr(tall, "LONG_PRODUCT", 0)
    assert len(tall._stoppable(cpu, V, 200)) == 4
    gram = orthonormal._gram_matrix(cpu, V, (locked,))[0]
    np.testing.assert_allclose(V, expected, atol=1e-12)
    np.testing.assert_allclose(gram, expected.T @ expected, atol=1e-11)
    found = eigenpairs(neighbour_graph(700, 3), 150, solver="chebyshev", random_state=0)
    assert found.converged
