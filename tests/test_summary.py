"""The summary of clusters, against pandas and scipy; and accounts for terminals and notebooks."""

import math
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fits import fit
from scipy import sparse
from scipy.stats import chi2_contingency, kruskal, mannwhitneyu
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import NotFittedError

from specialk_gpu import SpecialK, knn_graph

CENTERS = [(0, 0, 0), (9, 0, 0), (0, 9, 0)]
BLOBS, _ = make_blobs([200, 150, 100], centers=CENTERS, random_state=0)


@pytest.fixture(scope="module")
def model():
    return fit(BLOBS)


@pytest.fixture(scope="module")
def table(model):
    """Columns of many kinds, some with blanks, beside those that were clustered."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(BLOBS, columns=["first", "second", "noise"])
    frame["skewed"] = np.exp(frame["first"] / 2) + rng.random(450)
    frame.loc[rng.random(450) < 0.2, "skewed"] = np.nan
    frame["few"] = rng.poisson(1, 450) + (model.labels_ == 1)
    frame["kind"] = np.where(rng.random(450) < 0.8, model.labels_, rng.integers(4, size=450))
    frame["kind"] = frame["kind"].map(dict(enumerate(["oak", "ash", "elm", "fir"])))
    frame.loc[::9, "kind"] = None
    frame["id"] = [f"row {i}" for i in range(450)]
    frame["same"] = 7.0
    return frame


def column(summary, name):
    return next(found for found in summary.columns if found.name == name)


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_sizes_spacings_and_walks_are_the_models(bk, criterion):
    model = fit(BLOBS, bk, criterion=criterion)
    found = model.summary()
    assert found.sizes.tolist() == [200, 150, 100]
    np.testing.assert_allclose(found.shares, np.array([200, 150, 100]) / 450)
    distance = np.sort(np.linalg.norm(BLOBS[:, None] - BLOBS, axis=2), axis=1)[:, 10]
    for c in range(3):
        own = model.labels_ == c
        assert found.spacings[c] == pytest.approx(np.median(distance[own]))
        assert found.stays[c] == pytest.approx(model.membership_[own, c].mean())
        D = model.embedding_
        away = np.linalg.norm(D - D[own].mean(axis=0), axis=1)
        assert own[found.typical[c]].all()
        assert found.typical[c].size == 3
        np.testing.assert_allclose(away[found.typical[c]], np.sort(away[own])[:3])


def test_means_and_medians_are_those_of_pandas(model, table):
    groups = table.groupby(model.labels_)
    found = model.summary(table)
    for name in ("first", "second", "noise", "skewed", "few", "same"):
        one = column(found, name)
        assert one.is_number
        np.testing.assert_allclose(one.means, groups[name].mean(), rtol=1e-12)
        np.testing.assert_allclose(one.values, groups[name].median(), rtol=1e-12)
        np.testing.assert_array_equal(one.blanks, groups[name].apply(lambda x: x.isna().sum()))
    assert column(found, "skewed").blanks.sum() == table["skewed"].isna().sum() > 50


def test_effects_of_numbers_are_those_of_ranks(model, table):
    found = model.summary(table)
    for name in ("first", "second", "noise", "skewed", "few"):
        one, full = column(found, name), table[name].notna()
        parts = [table[name][full & (model.labels_ == c)] for c in range(3)]
        n = int(full.sum())
        share = kruskal(*parts).statistic / (n - 1)  # of the variance of ranks, between clusters
        expected = max(0, 1 - (1 - share) * (n - 1) / (n - 3))
        assert one.effect == pytest.approx(expected, rel=1e-9)
        for c in range(3):
            rest = np.concatenate([part for i, part in enumerate(parts) if i != c])
            larger = mannwhitneyu(parts[c], rest).statistic / (parts[c].size * rest.size)
            assert one.differences[c] == pytest.approx(2 * larger - 1, abs=1e-12)
    assert column(found, "noise").effect < 0.02
    assert column(found, "first").effect > 0.5
    same = column(found, "same")
    assert same.effect == 0
    assert (same.differences == 0).all()


def test_categories_are_those_of_pandas_and_scipy(model, table):
    one = column(model.summary(table), "kind")
    assert not one.is_number
    counts = pd.crosstab(model.labels_, table["kind"])
    np.testing.assert_array_equal(one.values, counts.idxmax(axis=1))
    shares = counts.div(counts.sum(axis=1), axis=0)
    np.testing.assert_allclose(one.frequencies, shares.max(axis=1))
    rest = counts.sum() - counts
    rest = rest.div(rest.sum(axis=1), axis=0)
    expected = [shares.loc[c, top] - rest.loc[c, top] for c, top in enumerate(one.values)]
    np.testing.assert_allclose(one.differences, expected)
    assert one.blanks.sum() == 50
    n, (k, r) = int(counts.to_numpy().sum()), counts.shape
    phi = chi2_contingency(counts, correction=False).statistic / n  # Bergsma 2013, for Cramér's V
    phi = max(0, phi - (k - 1) * (r - 1) / (n - 1))
    least = min(k - (k - 1) ** 2 / (n - 1), r - (r - 1) ** 2 / (n - 1))
    assert one.effect == pytest.approx(phi / (least - 1))
    assert 0.3 < one.effect < 0.8


def test_a_column_of_ids_tells_nothing_apart(model, table):
    ids = column(model.summary(table), "id")
    assert ids.effect == pytest.approx(0, abs=1e-9)
    effects = [found.effect for found in model.summary(table).columns]
    assert effects == sorted(effects, reverse=True)


def test_effects_have_no_unit_and_one_huge_value_changes_little(model):
    X = BLOBS.copy()
    plain = model.summary(X)
    monotone = model.summary(np.exp(X / 3) * [1e-9, 1, 1e9])
    for one, other in zip(plain.columns, monotone.columns, strict=True):
        assert one.name == other.name
        assert one.effect == pytest.approx(other.effect, rel=1e-12)
        np.testing.assert_allclose(one.differences, other.differences, atol=1e-12)
    X[0, 0] = 1e12
    robust = column(model.summary(X), "column 0")
    assert robust.effect == pytest.approx(column(plain, "column 0").effect, abs=0.02)


def test_a_binary_column_has_one_effect_as_numbers_and_as_text(model):
    binary = np.random.default_rng(0).random(450) < np.array([0.1, 0.5, 0.9])[model.labels_]
    found = model.summary(pd.DataFrame({"n": binary.astype(int), "t": binary.astype(str)}))
    assert column(found, "n").effect == pytest.approx(column(found, "t").effect, rel=0.01)
    assert column(found, "n").effect > 0.2


# -- what is taken --------------------------------------------------------------------------------


def test_tables_of_all_libraries_give_the_same(model, table):
    expected = model.summary(table)
    rows = table.astype(object).where(table.notna(), None)
    for given in (
        pl.from_pandas(table),
        pa.Table.from_pandas(table, preserve_index=False),
        rows,
        table.convert_dtypes(),
        table.assign(kind=table["kind"].astype("category")),
    ):
        for one, other in zip(model.summary(given).columns, expected.columns, strict=True):
            assert (one.name, one.is_number) == (other.name, other.is_number)
            assert one.effect == pytest.approx(other.effect, rel=1e-12)
            np.testing.assert_array_equal(one.blanks, other.blanks)
            np.testing.assert_array_equal(one.values, other.values)
    lists = model.summary(rows.to_numpy().tolist())
    assert {f"column {j}" for j in range(8)} == {found.name for found in lists.columns}
    assert [found.effect for found in lists.columns] == [x.effect for x in expected.columns]


def test_arrays_series_and_sparse_matrices_are_taken(bk, model):
    on_device = fit(BLOBS, bk).summary(bk.asarray(BLOBS))
    expected = model.summary()
    dense = np.where(BLOBS > 0, BLOBS, 0)
    zeros = model.summary(dense)
    for pair in (
        (on_device, expected),
        (model.summary(BLOBS.tolist()), expected),
        (model.summary(sparse.csr_matrix(dense)), zeros),
        (model.summary(sparse.coo_array(dense)), zeros),
    ):
        for one, other in zip(*(side.columns for side in pair), strict=True):
            assert one.name == other.name
            np.testing.assert_allclose(one.values, other.values, rtol=1e-12)
            np.testing.assert_allclose(one.differences, other.differences, atol=1e-12)
    one = model.summary(pd.Series(BLOBS[:, 0], name="age")).columns
    assert [found.name for found in one] == ["age"]
    assert model.summary(np.where(BLOBS[:, 0] > 4, "high", "")).columns[0].blanks.sum() > 200
    days = np.datetime64("2026-01-01") + model.labels_.astype("timedelta64[D]")
    assert model.summary(days).columns[0].values.tolist() == [f"2026-01-0{c + 1}" for c in range(3)]


def test_by_default_the_columns_are_those_of_the_fit():
    frame = pd.DataFrame(BLOBS, columns=["a", "b", "c"])
    model = fit(frame)
    assert {found.name for found in model.summary().columns} == {"a", "b", "c"}
    assert model.summary().to_frame().equals(model.summary(frame).to_frame())


@pytest.mark.parametrize(
    ("X", "settings"),
    [
        (knn_graph(BLOBS), {"affinity": "precomputed"}),
        (BLOBS + 20, {"metric": "cosine"}),
        (np.repeat(BLOBS[:60], 12, axis=0), {}),
    ],
)
def test_without_the_rows_as_given_there_are_no_columns(X, settings):
    model = fit(X, **settings)
    assert model.summary().columns == ()
    assert "Pass X to compare its columns" in str(model.summary())
    assert model.summary().sizes.sum() == X.shape[0]
    assert (model.summary().spacings is None) == ("affinity" in settings)
    frame = model.summary().to_frame()
    assert frame["rows"].tolist() == np.bincount(model.labels_).tolist()
    other = np.arange(X.shape[0])
    assert [found.name for found in model.summary(other).columns] == ["column 0"]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (BLOBS[:9], "X must have as many rows as the fit, 450, got 9"),
        (pd.DataFrame({"a": [1, 2]}), "X must have as many rows as the fit, 450, got 2"),
        (BLOBS[None], r"X must have rows and columns, got shape \(1, 450, 3\)"),
        (BLOBS * 1j, "column 0 must hold numbers, text or categories, got dtype complex128"),
    ],
)
def test_tables_that_do_not_fit_are_refused(model, X, message):
    with pytest.raises(ValueError, match=message):
        model.summary(X)


def test_outliers_are_left_out_and_counted():
    X = np.concatenate([BLOBS, [[500.0, 500, 500]]])
    model = fit(X, noise=5)
    assert model.labels_[-1] == -1
    found = model.summary()
    assert found.n_outliers == (model.labels_ == -1).sum()
    assert found.sizes.sum() + found.n_outliers == 451
    own = X[model.labels_ == 0]
    for one in found.columns:
        assert one.values[0] == np.median(own[:, int(one.name[-1])])
    assert "label -1" in str(found)


def test_a_cluster_of_blanks_has_no_value(model):
    X = np.where(model.labels_ == 2, np.nan, BLOBS[:, 0])
    one = model.summary(X).columns[0]
    assert one.blanks.tolist() == [0, 0, 100]
    assert np.isnan([one.values[2], one.means[2], one.differences[2]]).all()
    assert one.effect > 0.5
    words = model.summary(np.where(np.isnan(X), "", "a")).columns[0]
    assert words.values.tolist() == ["a", "a", ""]
    for nothing in (np.full(450, np.nan), np.full(450, None)):
        one = model.summary(nothing).columns[0]
        assert np.isnan(one.effect)
        assert one.blanks.sum() == 450


# -- what is shown --------------------------------------------------------------------------------


class Cells(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):  # noqa: ARG002 - the parser's signature
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_the_table_is_short_and_tells_what_differs_most(model, table):
    text = str(model.summary(table))
    lines = text.splitlines()
    assert lines[0] == "3 clusters of 450 rows"
    assert len(lines) <= 25
    assert "No p" in text
    row = next(line for line in lines if line.startswith("1 "))
    assert "150" in row
    assert "first" in row  # the second cluster lies 9 to the right
    many = fit(BLOBS, n_clusters=12).summary(np.random.default_rng(0).random((450, 60)))
    lines = str(many).splitlines()
    assert len(lines) <= 25
    assert "and 4 other clusters" in lines
    assert "and 52 other columns" in lines


def test_one_cluster_has_a_summary(table):
    model = fit(BLOBS[:200], n_clusters=1)
    found = model.summary(table[:200])
    assert found.sizes.tolist() == [200]
    assert all(np.isnan(one.effect) for one in found.columns)
    text = str(found)
    assert "effect" not in text
    assert "No p" not in text
    assert found._repr_html_().count("<table>") == 2


def test_names_cannot_steer_a_terminal_or_a_page(model):
    names = ["<script>alert(1)</script>", "red\x1b[31m", "x" * 200]
    frame = pd.DataFrame(BLOBS, columns=names).assign(text=np.where(BLOBS[:, 0] > 0, "<b>", "\x1b"))
    found = model.summary(frame)
    assert "\x1b" not in str(found)
    assert "\x1b" not in found._repr_html_()
    cells = Cells(found._repr_html_())
    assert cells.tags <= {"p", "table", "thead", "tbody", "tr", "th", "td"}
    assert any("<script>" in text for text in cells.texts)
    assert max(map(len, str(found).splitlines())) < 200


def test_the_frame_has_a_row_for_each_column_and_cluster(model, table):
    frame = model.summary(table).to_frame()
    assert len(frame) == 8 * 3
    medians = frame.pivot(index="column", columns="cluster", values="median")
    names = ["first", "second", "noise", "skewed", "few"]
    expected = table[names].groupby(model.labels_).median().T
    np.testing.assert_allclose(medians.loc[names], expected)
    kinds = frame[frame["column"] == "kind"]
    assert kinds["most_frequent"].tolist() == column(model.summary(table), "kind").values.tolist()
    assert kinds["median"].isna().all()


def test_only_a_fitted_model_can_be_summed_up():
    for method in ("summary", "describe"):
        with pytest.raises(NotFittedError):
            getattr(SpecialK(), method)()
    with pytest.raises(NotFittedError):
        SpecialK().outlier_scores_  # noqa: B018


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
@pytest.mark.parametrize(
    ("X", "settings"),
    [
        (BLOBS, {}),
        (BLOBS, {"noise": True}),
        (BLOBS[:200], {"max_clusters": 6}),
        (BLOBS[:15], {}),
        (BLOBS, {"n_clusters": 30}),
        (knn_graph(BLOBS), {"affinity": "precomputed"}),
    ],
)
def test_the_account_has_ten_lines_at_most(criterion, X, settings):
    model = fit(X, criterion=criterion, **settings)
    text = model.describe()
    lines = text.splitlines()
    assert 4 <= len(lines) <= 10
    assert max(map(len, lines)) <= 130
    assert lines[0].startswith("1 cluster" if model.n_clusters_ == 1 else f"{model.n_clusters_} cl")
    sizes = np.bincount(model.labels_[model.labels_ >= 0])
    assert f"sizes: {sizes[0]}" in text
    assert f"{X.shape[0]} rows" in lines[-1]
    if model.n_clusters_ == 1:
        assert "clearly" not in lines[0]


def test_a_split_that_was_nearly_accepted_is_told_with_what_to_do():
    model = fit(make_moons(300, noise=0.05, random_state=0)[0])
    p = math.exp(model.path_[1].log_p)
    assert (model.n_clusters_, 0.05 < p < 0.5) == (1, True)
    lines = model.describe().splitlines()
    assert lines[0] == "1 cluster: no split found, but p is near alpha"
    told = " ".join(line.strip() for line in lines)
    assert "see whether k changes. labels_at(2) returns the labels of k = 2." in told
    assert "..." not in told
    assert "no split found, but p is near alpha" in model._repr_html_()


def test_notebooks_show_the_result_below_the_estimator(model):
    plain, fitted = SpecialK()._repr_html_(), model._repr_html_()
    assert "sizes:" not in plain
    assert fitted.endswith("</p>")
    assert "k = 3 (3 clusters, clearly); sizes: 200, 150, 100; p: &lt; 0.001 (k = 2)" in fitted
    assert model._repr_mimebundle_()["text/html"].endswith("</p>")
    assert repr(model) == "SpecialK(backend='numpy', random_state=0)"


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_the_path_is_a_table_everywhere(criterion):
    model = fit(BLOBS, criterion=criterion, full_path=True, max_clusters=6)
    path = model.path_
    assert repr(path) == str(path)
    assert len(str(path).splitlines()) == len(path) + 1
    cells = Cells(path._repr_html_())
    assert path._repr_html_().count("<tr>") == len(path) + 1
    assert path[-1].reason in cells.texts
    long = type(path)([path[0], *[path[1]] * 80], criterion)
    assert long._repr_html_().count("<tr>") == 51
    assert "and 31 more" in long._repr_html_()


def test_trees_and_candidates_print_in_one_line_without_their_arrays(bk):
    model = fit(bk.asarray(BLOBS), bk)
    step, K = model.path_[2], model.tree_.n_leaves
    assert repr(model.tree_) == f"<Tree of {K} leaves, of 450 rows>"
    assert repr(step) == (
        f"Candidate(k=3, log_p={step.log_p:.4g}, pair={step.pair}, accepted=True, "
        f"reason={step.reason!r})"
    )
