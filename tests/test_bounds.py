"""The ZZ Top Bound: equal to Algorithm 1 row by row, valid where it must be, not vacuous."""

import itertools
import math

import numpy as np
import pytest
from oracles import readonly
from scipy.stats import binom

from specialk_gpu import attainable_log_p, backend, cluster_stats, zz_top
from specialk_gpu.backend.cpu import lloyd
from specialk_gpu.selection.zz_top import largest_zz_top, zz_top_exponents

ALPHA = 0.01


def exponent_by_rows(D, labels, c_1, c_2):
    """Lines 6 to 10 of [HD19, Alg. 1] but for the factor |J|, with Z built row by row."""
    J = [j for j in range(len(D)) if labels[j] in (c_1, c_2)]
    columns = []
    for i in range(D.shape[1]):
        column = np.array([float(D[j, i]) for j in J])
        norm = math.sqrt(math.fsum(column**2))
        centred = column - math.fsum(column) / len(J)
        columns.append(centred / norm if norm > 0 else np.zeros(len(J)))
    Z = np.array(columns).T  # (|J|, n)
    n_sigma_sq = math.fsum((Z**2).ravel()) / len(J)
    t = -math.inf
    for c in (c_1, c_2):
        y = np.array([float(labels[j] == c) for j in J])
        t = max(t, float(((Z.T @ y) ** 2).sum() / y.sum()) - n_sigma_sq)
    return 0.5 * t**2 / (n_sigma_sq + t / 3) if t > 0 else 0.0


def log_p_by_rows(D, labels, c_1, c_2):
    J = np.isin(labels, (c_1, c_2)).sum()
    return min(0.0, math.log(J) - exponent_by_rows(D, labels, c_1, c_2))


def matrix_by_rows(D, labels):
    k = int(max(labels)) + 1
    out = np.zeros((k, k))
    for a, b in itertools.combinations(range(k), 2):
        out[a, b] = out[b, a] = log_p_by_rows(D, labels, a, b)
    return out


def bound(bk, D, labels, dtype=None):
    log_p = zz_top(readonly(bk, D, dtype), readonly(bk, labels, np.int32))
    assert isinstance(log_p, bk.xp.ndarray)
    assert log_p.dtype == np.float64
    return bk.to_numpy(log_p)


def draw(seed, sizes, n, effect=0.0):
    """Positive rows, the columns of cluster c raised where column mod k equals c."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    raised = labels[:, None] == np.arange(n) % len(sizes)
    return np.abs(rng.normal(size=(len(labels), n))) + effect * raised, labels


# -- the definition -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("sizes", "n", "effect"),
    [
        ((20, 30), 40, 0.0),
        ((20, 30), 40, 2.0),
        ((5, 1, 17, 40), 60, 3.0),
        ((30, 30, 30, 30, 30), 25, 10.0),
        ((1, 500), 200, 30.0),
        ((500, 1), 3, 1.0),
        ((1, 1), 50, 9.0),
    ],
)
def test_equals_the_definition_row_by_row(bk, sizes, n, effect, dtype):
    D, labels = draw(0, sizes, n, effect)
    D = D.astype(dtype)
    np.testing.assert_allclose(bound(bk, D, labels), matrix_by_rows(D, labels), 1e-10, 1e-12)


@pytest.mark.parametrize(("sizes", "effect"), [((1, 1, 2, 1), 0.5), ((3, 2, 9), 0.3)])
def test_exponents_equal_their_definition_however_small(bk, sizes, effect):
    D, labels = draw(3, sizes, 12, effect)
    stats = cluster_stats(readonly(bk, D), readonly(bk, labels), len(sizes))
    a, b = np.triu_indices(len(sizes), 1)
    expected = [exponent_by_rows(D, labels, *pair) for pair in zip(a, b, strict=True)]
    found = bk.to_numpy(zz_top_exponents(stats, bk.asarray(a), bk.asarray(b)))
    np.testing.assert_allclose(found, expected, 1e-9, 1e-13)
    assert (np.array(expected) < math.log(2)).any()  # where the bound is 1, whatever they are


def test_clear_clusters_are_told_apart_and_halves_of_one_are_not(bk):
    D, labels = draw(1, (40, 40, 40), 90, 5.0)
    log_p = bound(bk, D, labels)
    assert (log_p[np.triu_indices(3, 1)] < math.log(ALPHA)).all()
    halves = np.where(labels == 2, np.arange(120) % 2 + 2, labels)
    log_p = bound(bk, D, halves)
    assert log_p[2, 3] == 0
    assert log_p[0, 1] < math.log(ALPHA)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_that_are_zero_on_a_pair_add_nothing(bk, dtype):
    D, labels = draw(2, (15, 15, 15), 30, 4.0)
    D[labels != 2, :10] = 0
    found = bound(bk, D.astype(dtype), labels)
    np.testing.assert_allclose(found, matrix_by_rows(D.astype(dtype), labels), 1e-10, 1e-12)
    assert found[0, 1] == pytest.approx(bound(bk, D[:, 10:].astype(dtype), labels)[0, 1], rel=1e-10)
    assert not bound(bk, np.zeros((6, 4), dtype), [0, 0, 0, 1, 1, 1]).any()


def test_perfect_blocks_by_hand(bk):
    # Columns constant on one cluster, zero on the other: R = n/4 and n σ² = n/(2m) for halves.
    m, n = 8, 40
    labels = np.arange(m) % 2
    D = (labels[:, None] == np.arange(n) % 2).astype(float)
    n_sigma_sq, t = n / 2 / m, n / 4 - n / 2 / m
    by_hand = math.log(m) - t**2 / 2 / (n_sigma_sq + t / 3)
    assert bound(bk, D, labels)[0, 1] == pytest.approx(by_hand, rel=1e-12)


# -- properties -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_is_symmetric_with_zero_diagonal_and_never_positive(bk, seed):
    D, labels = draw(seed, (3, 9, 27, 30), 20 + 40 * seed, effect=seed)
    log_p = bound(bk, D, labels)
    np.testing.assert_array_equal(log_p, log_p.T)
    assert not np.diag(log_p).any()
    assert (log_p <= 0).all()


def test_p_is_one_where_t_is_not_positive(bk):
    D = np.tile([[1.0, 2, 3]], (10, 1)) + np.eye(10, 3) * 0.1
    D[5:] = D[:5]  # equal sums in both halves: R = 0 < n σ²
    assert bound(bk, D, np.arange(10) // 5)[0, 1] == 0.0


def test_scale_of_a_column_and_sign_do_not_matter(bk):
    D, labels = draw(3, (20, 25), 40, 2.0)
    scale = 10.0 ** np.random.default_rng(0).integers(-80, 80, size=40)
    expected = bound(bk, D, labels)
    assert expected[0, 1] < -1
    np.testing.assert_allclose(bound(bk, D * scale, labels), expected, 1e-10)
    np.testing.assert_allclose(bound(bk, -D, labels), expected, 1e-12)


def test_order_of_rows_and_columns_does_not_matter(bk):
    D, labels = draw(4, (20, 25, 9), 40, 2.0)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(54), rng.permutation(40)
    expected = bound(bk, D, labels)
    np.testing.assert_allclose(bound(bk, D[rows][:, columns], labels[rows]), expected, 1e-10, 1e-12)
    renamed = np.array([2, 0, 1])
    np.testing.assert_allclose(
        bound(bk, D, renamed[labels])[np.ix_(renamed, renamed)], expected, 1e-10, 1e-12
    )


def test_only_the_rows_of_the_pair_count(bk):
    D, labels = draw(5, (20, 25, 30), 40, 2.0)
    pair = labels < 2
    alone = bound(bk, D[pair], labels[pair])
    assert bound(bk, D, labels)[0, 1] == pytest.approx(alone[0, 1], rel=1e-10)


def test_logarithms_do_not_underflow(bk):
    # C35: two blobs in 20,000 columns are far below the smallest positive double, e^-745.
    D, labels = draw(6, (40, 40), 20_000, 50.0)
    log_p = bound(bk, D, labels)[0, 1]
    assert -20_000 < log_p < -2_000
    assert np.isfinite(log_p)


def test_backends_agree(bk):
    D, labels = draw(7, (50, 3, 80, 20), 70, 1.5)
    np.testing.assert_allclose(bound(bk, D, labels), bound(backend.cpu, D, labels), 1e-10, 1e-12)


# -- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_statistics_equal_their_definition(bk, dtype):
    D, labels = draw(0, (7, 11, 4), 9)
    D = D.astype(dtype)
    stats = cluster_stats(readonly(bk, D), readonly(bk, labels), 3)
    for c, (count, sums, squares) in enumerate(zip(*map(bk.to_numpy, stats), strict=True)):
        rows = D[labels == c].astype(np.float64)
        assert count == len(rows)
        np.testing.assert_allclose(sums, rows.sum(axis=0), 1e-13)
        np.testing.assert_allclose(squares, (rows**2).sum(axis=0), 1e-13)
    assert all(x.dtype == np.float64 for x in stats)


def test_statistics_of_a_split_add_up(bk):
    D, labels = draw(1, (30, 20, 25), 12)
    whole = cluster_stats(readonly(bk, D), readonly(bk, labels), 3)
    split = np.where((labels == 0) & (np.arange(75) % 2 == 0), 3, labels)
    parts = cluster_stats(readonly(bk, D), readonly(bk, split), 4)
    for one, four in zip(map(bk.to_numpy, whole), map(bk.to_numpy, parts), strict=True):
        np.testing.assert_allclose(one[0], four[0] + four[3], 1e-13)
        np.testing.assert_allclose(one[1:], four[1:3], 1e-13)


def test_chunks_do_not_matter(bk, monkeypatch):
    D, labels = draw(2, (20, 10, 15, 8), 30, 2.0)
    whole = bound(bk, D, labels)
    monkeypatch.setattr("specialk_gpu.selection.zz_top.CHUNK", 64)
    np.testing.assert_allclose(bound(bk, D, labels), whole, 1e-12, 1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_several_labellings_in_one_pass_have_the_bounds_of_each(bk, dtype):
    D, labels = draw(8, (20, 12, 30, 9, 4), 40, 3.0)
    D = readonly(bk, (100 * D).astype(dtype))
    ks = [3, 1, 5, 2]
    several = readonly(bk, [np.minimum(labels, k - 1) for k in ks], np.int32)
    for n_pairs in (None, 99):
        found = largest_zz_top(D, several, ks, n_pairs)
        assert found[1] == (-math.inf, None)
        for k, some, (value, (a, b)) in [
            (k, some, one) for k, some, one in zip(ks, several, found, strict=True) if k > 1
        ]:
            log_p = bk.to_numpy(zz_top(D, some))
            assert a < b
            assert value == log_p[a, b] == log_p[np.triu_indices(k, 1)].max()


def test_of_the_pairs_of_highest_cut_the_largest_bound_is_taken(bk):
    D, labels = draw(9, (8, 6, 5, 9, 3), 12, 0.8)
    pairs = list(itertools.combinations(range(5), 2))
    log_p = matrix_by_rows(D, labels)
    cuts = []
    for pair in pairs:
        a, b = (labels == c for c in pair)
        cuts.append((D[a] @ D[b].T).sum() * (1 / a.sum() + 1 / b.sum()))
    for n_pairs in range(1, 12):
        highest = [pairs[i] for i in np.argsort(cuts)[::-1][:n_pairs]]
        expected = max(log_p[pair] for pair in highest)
        given = readonly(bk, D), readonly(bk, labels[None], np.int32), [5], n_pairs
        ((value, pair),) = largest_zz_top(*given)
        assert value == pytest.approx(expected, rel=1e-9)
        assert pair == next(p for p in pairs if p in highest and log_p[p] >= expected - 1e-12)


@pytest.mark.parametrize("n_pairs", [None, 2])
def test_a_bound_that_is_not_finite_is_not_a_number_for_its_labelling_alone(bk, n_pairs):
    D = np.arange(12.0).reshape(6, 2)
    D[5, 1] = np.inf
    labels = readonly(bk, [[0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 9]], np.int32)
    with np.errstate(all="ignore"):
        (broken, of_none), (value, pair) = largest_zz_top(readonly(bk, D), labels, [3, 2], n_pairs)
    assert math.isnan(broken)
    assert of_none is None
    assert value == pytest.approx(log_p_by_rows(D, [0, 0, 0, 1, 1, 9], 0, 1))
    assert pair == (0, 1)


def test_sums_that_overflow_are_infinite_without_a_warning(bk, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(lloyd, "CHUNK_BYTES", 8 * 64)  # a row at a time, in threads
    D = np.full((256, 64), 1e200)
    D[5] = np.inf
    D[200] = -np.inf
    stats = cluster_stats(bk.asarray(D), bk.xp.zeros(256, dtype=np.int32), 1)  # warnings are errors
    assert np.isposinf(bk.to_numpy(stats.squares)).all()
    assert np.isnan(bk.to_numpy(stats.sums)).all()


def test_labels_beyond_32_bits_are_no_clusters(bk):
    D = np.arange(10.0).reshape(5, 2)
    labels = np.array([0, 1, 2**32, 2**32 + 1, -(2**32)])
    stats = cluster_stats(bk.asarray(D), bk.asarray(labels), 2)
    np.testing.assert_array_equal(bk.to_numpy(stats.counts), [1, 1])
    np.testing.assert_array_equal(bk.to_numpy(stats.sums), D[:2])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int64])
def test_labels_of_any_integer_type_are_counted(bk, dtype):
    D, labels = draw(1, (7, 4, 5), 9)
    stats = cluster_stats(readonly(bk, D), readonly(bk, labels, dtype), 2)  # the third is left out
    np.testing.assert_array_equal(bk.to_numpy(stats.counts), [7, 4])
    np.testing.assert_allclose(bk.to_numpy(stats.sums[1]), D[labels == 1].sum(axis=0), 1e-13)


# -- the test -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, ALPHA])
@pytest.mark.parametrize("m", [2, 6, 40])
@pytest.mark.parametrize("law", ["sign", "normal", "skewed"])
def test_level_holds_on_null_data_with_fixed_labels(law, m, alpha):
    """Columns of independent entries with mean zero and equal variance meet the assumption."""
    rng = np.random.default_rng(0)
    draws, n, wrong = 300, 60, 0
    labels = np.arange(m) * 3 // m > 0  # a third against the rest, whatever the data
    for _ in range(draws):
        if law == "sign":
            D = rng.choice([-1.0, 1.0], size=(m, n))
        elif law == "normal":
            D = rng.normal(size=(m, n))
        else:
            D = rng.exponential(size=(m, n)) - 1
        wrong += zz_top(D, labels.astype(np.int32))[0, 1] <= math.log(alpha)
    assert wrong <= binom.ppf(1 - 1e-6, draws, alpha)


def test_level_holds_on_null_data_with_a_common_mean():
    rng = np.random.default_rng(1)
    labels = np.arange(30) % 2
    wrong = sum(
        zz_top(rng.normal(size=(30, 100)) + rng.normal(size=100) * 3, labels)[0, 1]
        <= math.log(ALPHA)
        for _ in range(200)
    )
    assert wrong <= binom.ppf(1 - 1e-6, 200, ALPHA)


@pytest.mark.parametrize("seed", range(5))
def test_planted_split_is_accepted(seed):
    D, labels = draw(seed, (30, 30), 100, 4.0)
    assert zz_top(D, labels)[0, 1] < math.log(ALPHA)


# -- what can be attained -------------------------------------------------------------------------


def separated(sizes, columns):
    """Columns that are constant on one cluster and zero on the other, `columns` for each."""
    return np.kron(np.eye(2), np.ones((1, 1)))[
        np.repeat([0, 1], sizes)[:, None], np.repeat([0, 1], columns)
    ], np.repeat([0, 1], sizes)


@pytest.mark.parametrize(("m", "copies"), [(2, 30), (7, 3), (12, 4), (30, 2), (41, 1)])
def test_attainable_is_the_minimum_over_perfect_splits(m, copies):
    """With n a multiple of m, columns are in proportion to sizes for every split into two."""
    n = copies * m
    reached = [
        log_p_by_rows(*separated((a, m - a), (copies * a, copies * (m - a))), 0, 1)
        for a in range(1, m)
    ]
    assert attainable_log_p(m, n) == pytest.approx(min(reached), rel=1e-10)
    assert min(reached) < 0 or m == 2  # two points are never two clusters


def test_attainable_falls_with_columns_and_peaks_at_a_third():
    values = [attainable_log_p(600, n) for n in (1, 10, 20, 50, 200, 1000)]
    assert values == sorted(values, reverse=True)
    assert values[0] == values[1] == 0
    assert attainable_log_p(60_000, 10_000) / 10_000 == pytest.approx(-4 / 9, rel=0.01)
    assert attainable_log_p(1, 10) == attainable_log_p(10, 0) == 0
    assert attainable_log_p(2, 1) == attainable_log_p(2, 1000) == attainable_log_p(3, 1) == 0


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        ([0, 0, 2, 2], {}, r"every cluster must have a member, got none for labels \[1\]"),
        ([0, 0, 1, 1], {"n_clusters": 4}, r"got none for labels \[2, 3\]"),
        ([0, 0, 1, 2], {"n_clusters": 2}, r"labels must lie in 0, ..., 1, got 0, ..., 2"),
        ([0, -1, 1, 1], {}, r"labels must lie in 0, ..., 1, got -1, ..., 1"),
        ([0, 1, 1], {}, r"labels must have shape \(4,\) for D of shape \(4, 3\), got \(3,\)"),
        ([[0, 1, 1, 1]], {}, r"got \(1, 4\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused(bk, labels, settings, message):
    D = bk.asarray(np.ones((4, 3)))
    with pytest.raises(ValueError, match=message):
        zz_top(D, bk.asarray(labels), **settings)


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int16, np.float32])
def test_real_numbers_of_any_type_have_a_bound(bk, kind):
    D = np.eye(4)[:, [0, 1, 2, 3, 1]]
    for labels in ([0, 0, 1, 1], np.array([0, 0, 1, 1], np.uint8)):
        found = zz_top(bk.asarray(D.astype(kind)), bk.asarray(labels))
        np.testing.assert_allclose(bk.to_numpy(found), matrix_by_rows(D, labels), atol=1e-12)


@pytest.mark.parametrize(
    ("D", "labels", "message"),
    [
        (np.ones((4, 3), complex), [0, 0, 1, 1], "D must hold real numbers, got dtype complex128"),
        (np.ones((4, 3)), [0.0, 0, 1, 1], "labels must hold integers, got dtype float64"),
        (np.ones((4, 3)), [True, False, True, True], "labels must hold integers, got dtype bool"),
    ],
)
def test_other_types_are_refused(bk, D, labels, message):
    with pytest.raises(TypeError, match=message):
        zz_top(bk.asarray(D), bk.asarray(labels))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_entries_that_are_not_finite_are_refused(bk, value):
    D = np.ones((4, 3))
    D[2, 1] = value
    with pytest.raises(ValueError, match="D must be finite"):
        zz_top(bk.asarray(D), bk.asarray([0, 0, 1, 1]))


def test_one_dimensional_data_is_refused(bk):
    with pytest.raises(ValueError, match=r"D must have rows and columns, got shape \(4,\)"):
        zz_top(bk.asarray(np.ones(4)), bk.asarray([0, 0, 1, 1]))


@pytest.mark.gpu
@pytest.mark.parametrize("n_pairs", [None, 10])
def test_the_host_waits_no_more_for_many_labellings_than_for_one(waits, n_pairs):
    bk, rng, ks = backend.get_backend("cuda"), np.random.default_rng(0), list(range(2, 31))
    D = bk.asarray(np.abs(rng.normal(size=(600, 20))))
    labels = bk.asarray(np.stack([rng.permutation(600) % k for k in ks]).astype(np.int32))
    with waits() as count:
        found = largest_zz_top(D, labels, ks, n_pairs)
    assert count.waits <= 3
    assert count.launches["segment_sum"] == 1
    assert all(value <= 0 for value, _ in found)
    with waits() as count:
        zz_top(D, labels[3])
    assert count.waits <= 2
