"""The embedding: its definition, and the columns it drops."""

import numpy as np
import pytest
from oracles import readonly
from scipy.stats import spearmanr

from specialk_gpu import embed

rng = np.random.default_rng(0)
VALUES = np.array([1.0, -0.9, 0.5, 0.25, -0.1, 0.0])
V = np.linalg.qr(rng.normal(size=(80, 6)))[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_embedding_is_its_definition(bk, dtype):
    D = embed(readonly(bk, VALUES, dtype), readonly(bk, V, dtype))
    assert isinstance(D, bk.xp.ndarray)
    assert D.dtype == dtype
    expected = np.abs(V) * np.sqrt(np.abs(VALUES))
    np.testing.assert_allclose(bk.to_numpy(D), expected, rtol=4 * np.finfo(dtype).eps)


def test_signs_do_not_matter(bk):
    signs = rng.choice([-1.0, 1.0], size=6)
    for values in (VALUES, -VALUES):
        flipped = embed(readonly(bk, values), readonly(bk, V * signs))
        plain = embed(readonly(bk, VALUES), readonly(bk, V))
        np.testing.assert_array_equal(bk.to_numpy(flipped), bk.to_numpy(plain))


def columns():
    """Columns in families of mirrored, monotone, tied, noisy and constant ones."""
    x, y = rng.normal(size=(2, 300))
    tied = np.rint(2 * y)
    split = np.where(np.arange(300) < 150, np.abs(x), 0.0)
    return np.stack(
        [
            x,
            -x,  # the same magnitudes
            np.sign(x) * np.exp(np.abs(x)),  # the same ranks
            x + 0.2 * rng.normal(size=300),
            tied,
            tied + 0.1 * rng.normal(size=300),
            1 / (1 + np.abs(tied)),  # ranks reversed: a correlation of -1
            np.ones(300),
            np.ones(300),
            split,
            split + 0.05 * np.abs(y) * (split > 0),
            np.zeros(300),
        ],
        axis=1,
    )


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_correlated_columns_that_of_the_larger_eigenvalue_is_kept(bk, threshold, dtype):
    vectors = columns().astype(dtype)
    values = np.linspace(1, 0.1, vectors.shape[1]).astype(dtype)
    D = bk.to_numpy(embed(readonly(bk, values), readonly(bk, vectors)))
    kept = []
    for j in range(D.shape[1]):
        varied = [i for i in kept if np.ptp(D[:, i]) > 0 and np.ptp(D[:, j]) > 0]
        if all(abs(spearmanr(D[:, i], D[:, j]).statistic) <= threshold for i in varied):
            kept.append(j)
    found = embed(readonly(bk, values), readonly(bk, vectors), drop_correlated=threshold)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(bk.to_numpy(found), D[:, kept])
    assert 0 < len(kept) < D.shape[1]
    assert kept[0] == 0


def test_uncorrelated_columns_are_all_kept(bk):
    D = embed(readonly(bk, VALUES), readonly(bk, V), drop_correlated=0.95)
    assert D.shape == (80, 6)


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.5, 2, float("nan")])
def test_thresholds_out_of_range_are_refused(bk, threshold):
    with pytest.raises(ValueError, match=rf"drop_correlated must lie in \(0, 1\).* {threshold}"):
        embed(readonly(bk, VALUES), readonly(bk, V), drop_correlated=threshold)
