"""The page about a fitted model: what it says."""

import html
import json
import re
from html.parser import HTMLParser

import fits
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits, make_blobs
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from specialk_gpu import SpecialK, knn_graph, zz_top
from specialk_gpu.inspection.diagnostics import in_words, pair_matrix, typical
from specialk_gpu.inspection.places import places, places_of_discs
from specialk_gpu.inspection.stability import Refit, Stability
from specialk_gpu.inspection.verdict import (
    doubts_about_verdict,
    verdict,
    verdict_in_short,
    watershed,
)
from specialk_gpu.tables.choice import Choice
from specialk_gpu.tables.frames import table_of_rows
from specialk_gpu.tables.preparation import Preparation

BLOBS, _ = make_blobs(300, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)
DIGITS = load_digits().data[:600]
VOID = {"meta", "link", "br", "hr", "img", "input"}


def fit(X, **settings):
    return fits.fit(X, **{"full_path": True, "max_clusters": 6, **settings})


class Page(HTMLParser):
    """The tags, texts and links of a page; fails where tags are not closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.texts, self.ids, self.tags = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, *sorted(name for name, _ in attributes if name != "class")))
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)


def written(model, tmp_path, **settings):
    model.report(tmp_path / "out.html", **settings)
    return (tmp_path / "out.html").read_text(encoding="utf-8")


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


# -- what it says ---------------------------------------------------------------------------------


def test_the_page_is_sound_and_needs_no_network(tmp_path):
    text = written(fit(BLOBS), tmp_path, source="<b>blobs & more</b>")
    page = Page(text)
    assert page.links == ["data:,"]
    assert not re.search("https?:", text)
    assert len(set(page.ids)) == len(page.ids)
    assert "<b>blobs" not in text
    said = " ".join(page.texts)
    assert "<b>blobs & more</b>: 300 rows of 3 columns" in said
    for title in ("Why this number", "What the clusters look like", "If you doubt it"):
        assert title in said


EVIL = "</title></style></script><script>alert(1)</script><svg onload='alert(2)'>\"><img src=x>"


class Crafted(int):
    """A number that is written as a tag."""

    def __repr__(self):
        return EVIL

    def __format__(self, spec):
        return EVIL if not spec else super().__format__(spec)

    __str__ = __repr__


def test_no_value_of_a_crafted_model_becomes_a_tag_or_an_attribute(tmp_path):
    model = fit(BLOBS, criterion="cut")
    plain = Page(written(model, tmp_path))
    steps = [step._replace(k=Crafted(step.k), reason=EVIL) for step in model.path_]
    steps[1:] = [step._replace(pair=(EVIL, 1)) for step in steps[1:]]
    model.path_ = type(model.path_)(steps, "cut")
    model.backend_ = model.eigen_solver_ = EVIL
    model.timings_ = {EVIL: 1.0}
    model._settings = model._settings | {"metric": EVIL, EVIL: EVIL}
    model.n_graph_components_ = Crafted(3)
    model.feature_names_in_ = np.array([EVIL] * 3, dtype=object)
    text = written(model, tmp_path, source=EVIL)
    page = Page(text)
    assert page.links == plain.links
    assert page.tags == plain.tags
    assert EVIL in " ".join(page.texts)
    assert data_of(text)["answer"] == 3


def test_a_source_that_is_no_text_is_shown_as_far_as_it_is(tmp_path):
    said = " ".join(Page(written(fit(BLOBS), tmp_path, source="a\udcff\x1b[2J\x00b.csv")).texts)
    assert "a?\ufffd[2J\ufffdb.csv: 300 rows of 3 columns" in said


def test_the_data_of_the_page_have_no_tag(tmp_path):
    text = written(fit(BLOBS), tmp_path)
    assert "<" not in re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]


def test_a_bound_of_zero_is_told():
    assert in_words(-np.inf, "zz_top") == "0"


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_the_page_holds_the_path_and_its_pairs(tmp_path, criterion):
    model = fit(BLOBS, criterion=criterion)
    text = written(model, tmp_path)
    data = data_of(text)
    assert data["answer"] == model.n_clusters_ == 3
    assert [step["k"] for step in data["steps"]] == [step.k for step in model.path_]
    for step, given in zip(model.path_, data["steps"], strict=True):
        assert given["sizes"] == np.bincount(step.labels).tolist()
        if step.k > 1 and criterion == "zz_top":
            expected = zz_top(model.embedding_, step.labels) / np.log(10)
            np.testing.assert_allclose(given["log10_zz_top"], expected, atol=5e-4)
            off = np.array(given["log10_zz_top"]) - np.diag(np.full(step.k, np.inf))
            assert off.max() == pytest.approx(step.log_p / np.log(10), abs=5e-4)
        else:
            assert given["log10_zz_top"] is None
        assert html.escape(step.reason) in text
    drawn = re.findall(r"<path d=\"([^\"]*)\".*?<title>cluster (\d)", text)
    assert {int(c): d.count("M") for d, c in drawn} == dict(enumerate(np.bincount(model.labels_)))


def test_pairs_are_of_distinct_rows_where_copies_are_left_out(tmp_path):
    model = fit(np.repeat(BLOBS, 12, axis=0), criterion="zz_top")
    for step in model.path_[1:]:
        matrix = pair_matrix(model, step.k)
        matrix[np.diag_indices(step.k)] = -np.inf
        assert matrix.max() == pytest.approx(step.log_p / np.log(10))
    assert data_of(written(model, tmp_path))["answer"] == 3


def test_bounds_are_computed_on_request_whatever_decided():
    model = fit(BLOBS)
    for k in (2, 3, 4):
        expected = zz_top(model.embedding_, model.labels_at(k)) / np.log(10)
        np.testing.assert_array_equal(pair_matrix(model, k), expected)
    np.testing.assert_array_equal(pair_matrix(model), pair_matrix(model, 3))


def cells(text):
    """Return the path on the page: the cells of each row, in the order of the page."""
    rows = re.findall(r'<tr data-k="\d+".*?</tr>', text, re.DOTALL)
    return [
        [html.unescape(cell) for cell in re.findall(r"<td data-label[^>]*>([^<]*)", row)]
        for row in rows
    ]


def test_the_page_of_the_cut_test_speaks_of_it_alone(tmp_path):
    model = fit(BLOBS, alpha=0.05)
    text = written(model, tmp_path)
    words = " ".join(" ".join(Page(text).texts).split())
    assert "The answer is the largest k whose p is at most alpha = 0.05" in words
    assert "walks that end in it" in words
    assert not re.search("inertia|bound|watershed|k-means|calibrated", words, re.IGNORECASE)
    assert verdict(model) == (
        "clear",
        "With 3 clusters, even the two most similar are clearly separate (p < 0.001). With 4, two "
        f"are not (p = {in_words(model.path_[3].log_p, 'cut')}), so the answer is 3.",
    )
    first, *others = cells(text)
    assert first[:3] == ["", "", ""]
    for found, step in zip(others, model.path_[1:], strict=True):
        assert found[:2] == [in_words(x, "cut") for x in (step.log_p, step.log_p_level)]
        assert found[2] == f"{step.pair[0]}, {step.pair[1]}"
    assert others[0][0] == "< 0.001"


NEAREST = r'<td data-value="(\d)" data-label="closest to">(.)</td><td data-value="([^"]*)"'


def test_the_closest_cluster_is_the_one_that_most_walks_end_in(tmp_path):
    model = fit(DIGITS, n_clusters=5)
    nearest = re.findall(NEAREST, written(model, tmp_path))
    assert len(nearest) == 5
    for c, (place, shown, share) in enumerate(nearest):
        mean = model.membership_[model.labels_ == c].mean(axis=0)
        mean[c] = -1
        assert (int(place), float(share)) == (mean.argmax(), pytest.approx(100 * mean.max()))
        assert shown == place
    apart = re.findall(NEAREST, written(fit(BLOBS), tmp_path))
    assert [shown for _, shown, _ in apart] == ["–"] * 3  # no walk leads from one to another


def test_the_page_of_the_paper_speaks_of_the_bound_alone(tmp_path):
    model = fit(BLOBS, criterion="zz_top")
    text = written(model, tmp_path)
    words = " ".join(" ".join(Page(text).texts).split())
    assert "the ZZ Top Bound says how likely such a clear split would be, at most" in words
    assert "log10 of the ZZ Top Bound with it" in words
    assert not re.search("cut test|calibrated|own p", words)
    assert "(ZZ Top Bound " in verdict(model)[1]
    for found, step in zip(cells(text), model.path_, strict=True):
        assert found[0] == ("" if step.k == 1 else in_words(step.log_p, "zz_top"))
        assert found[3] == f"{step.inertia:.6g}"


@pytest.mark.parametrize(
    ("p", "criterion", "words"),
    [
        (0.2494, "cut", "0.249"),
        (1e-3, "cut", "0.001"),
        (9e-4, "cut", "< 0.001"),
        (1e-30, "cut", "< 0.001"),
        (0.2494, "zz_top", "0.25"),
        (2.5e-12, "zz_top", "2.5 · 10⁻¹²"),
    ],
)
def test_a_small_p_is_told_as_such_and_a_small_bound_in_full(p, criterion, words):
    assert in_words(np.log(p), criterion) == words


def test_images_are_those_of_the_typical_rows(tmp_path):
    model = fit(DIGITS, n_clusters=4)
    text = written(model, tmp_path, X=DIGITS, image_shape=(8, 8))
    shown = [int(row) for row in re.findall(r'title="row (\d+)"', text)]
    assert shown == np.concatenate(typical(model, 12)).tolist()
    D, labels = model.embedding_, model.labels_
    for c, rows in enumerate(typical(model, 12)):
        assert (labels[rows] == c).all()
        distance = np.linalg.norm(D - D[labels == c].mean(axis=0), axis=1)
        others = np.setdiff1d(np.flatnonzero(labels == c), rows)
        assert distance[rows].max() <= distance[others].min() + 1e-12
    with pytest.raises(ValueError, match=r"images of image_shape=\(7, 8\), of shape \(600, 56\)"):
        written(model, tmp_path, X=DIGITS, image_shape=(7, 8))


@pytest.mark.parametrize(
    ("X", "settings", "headline", "words", "doubt"),
    [
        (BLOBS, {}, "3 clusters, clearly", "so the answer is 3", "answer is for this graph"),
        (
            BLOBS,
            {"criterion": "zz_top"},
            "3 clusters, clearly",
            "so the answer is 3",
            "k depends on",
        ),
        (BLOBS, {"n_clusters": 5}, "5 clusters", "were asked for", "Fit without n_clusters"),
        (
            BLOBS[:20],
            {"n_components": 5, "criterion": "zz_top"},
            "1 cluster?",
            "no evidence",
            "5 eigenvectors are too few for any split of so many rows",
        ),
        (
            BLOBS[:20],
            {"alpha": 0.01},
            "1 cluster?",
            "no evidence",
            "20 rows are too few for any split",
        ),
        (BLOBS, {"max_clusters": 2}, "2 clusters", "the most allowed", "Allow more clusters"),
        (
            BLOBS,
            {"alpha": 1e-12, "criterion": "zz_top"},
            "2 clusters",
            "But certainty (1 minus the bound) drops most after k = 3",
            "Certainty drops most after",
        ),
        (
            np.ones((30, 2)),
            {},
            "1 cluster: no split found",
            "No split was found. That can mean one cluster, but also too few rows",
            "answer is for this graph",
        ),
        (
            knn_graph(BLOBS),
            {"affinity": "precomputed", "criterion": "zz_top"},
            "3 clusters",
            "",
            "3 parts that no edge",
        ),
    ],
)
def test_the_page_says_how_sure_it_is_and_what_to_try(
    tmp_path, X, settings, headline, words, doubt
):
    model = fit(X, **settings)
    said = " ".join(Page(written(model, tmp_path)).texts)
    assert headline in said
    assert words in said
    assert doubt in said


def test_images_need_rows_and_a_shape(tmp_path):
    model = fit(DIGITS, n_clusters=2)
    with pytest.raises(ValueError, match="image_shape needs X, the images as rows"):
        written(model, tmp_path, image_shape=(8, 8))
    for shape in (8, (8,), (-8, -8), (8.0, 8.0)):
        with pytest.raises(ValueError, match="image_shape must be a height and a width"):
            written(model, tmp_path, X=DIGITS, image_shape=shape)


@pytest.mark.parametrize(
    ("settings", "sure", "words"),
    [
        ({"min_clusters": 5, "max_clusters": 5}, "given", "does not allow fewer clusters"),
        ({"min_clusters": 5, "max_clusters": 7}, "given", "does not allow fewer clusters"),
        ({"stopping": "watershed", "alpha": 1e-14}, "close", "drops most after k = 3"),
        ({"stopping": "watershed"}, "clear", "drops most after k = 3"),
    ],
)
def test_what_alpha_did_not_decide_is_said_so(settings, sure, words):
    found, said = verdict(fit(BLOBS, criterion="zz_top", **settings))
    assert found == sure
    assert words in said


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_neighbors": 20},
        {"criterion": "zz_top"},
        {"criterion": "zz_top", "stopping": "watershed", "max_clusters": 5},
    ],
)
def test_one_cluster_is_never_clear(settings):
    rng = np.random.default_rng(4)
    for X in (rng.normal(size=(300, 3)), rng.random((200, 2)), rng.normal(size=(12, 2))):
        model = fit(X, **settings)
        assert model.n_clusters_ == 1
        sure, words = verdict(model)
        assert sure in ("no split", "no power", "close")
        assert "clearly" not in verdict_in_short(model)
        assert "No split was" in words


def test_power_is_that_of_the_distinct_rows():
    rows = np.linspace(0, 299, 26).astype(int)
    model = fit(np.repeat(BLOBS[rows], 200, axis=0))
    assert model.n_clusters_ == 1
    assert "power" not in model.path_[1].reason
    assert verdict(model)[0] != "no power"


def test_a_search_that_ended_at_the_limit_has_no_watershed():
    model = fit(BLOBS, max_clusters=3, criterion="zz_top")
    assert model.limit_reached_
    assert watershed(model) == 3
    assert not any("Certainty drops" in found for found, _ in doubts_about_verdict(model))


def test_what_is_set_after_the_fit_changes_no_finding(tmp_path):
    model = fit(BLOBS)
    before = verdict(model), doubts_about_verdict(model), written(model, tmp_path)
    model.set_params(n_clusters=7, affinity="precomputed", alpha=0.5, criterion="zz_top")
    assert (verdict(model), doubts_about_verdict(model), written(model, tmp_path)) == before


def test_isolated_rows_and_a_p_near_alpha_are_doubts():
    W = knn_graph(BLOBS).toarray()
    W[:2] = W[:, :2] = 0
    model = fit(W, affinity="precomputed", alpha=0.01)
    assert any("No edge joins 2 rows" in found for found, _ in doubts_about_verdict(model))
    near = [
        s._replace(log_p=np.log(model.alpha) - 1) if s.k == model.n_clusters_ else s
        for s in model.path_
    ]
    model.path_ = type(model.path_)(near, "cut")
    assert any(
        "within a factor of 10 of alpha" in found for found, _ in doubts_about_verdict(model)
    )
    sure, words = verdict(model)
    assert sure == "close"
    assert "the p of the cut test is near alpha = 0.01, the limit." in words


def test_the_watershed_is_that_of_the_estimator():
    model = fit(DIGITS, criterion="zz_top", stopping="watershed", max_clusters=15)
    assert watershed(model) == model.n_clusters_


def test_the_model_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        SpecialK().report(tmp_path / "out.html")
    with pytest.raises(ValueError, match=r"on the path, \[1, 2, 3, 4, 5, 6\], got 9"):
        pair_matrix(fit(BLOBS, criterion="zz_top"), 9)
    with pytest.raises(
        ValueError, match=r"k must be at most the number of leaves of tree_ \(\d+\), got 999"
    ):
        pair_matrix(fit(BLOBS), 999)


def test_no_split_is_not_told_as_evidence_for_one_cluster(tmp_path):
    noise = np.random.default_rng(0).normal(size=(300, 5))
    for criterion in ("cut", "zz_top"):
        model = fit(noise, criterion=criterion)
        assert model.n_clusters_ == 1
        sure, words = verdict(model)
        assert sure == "no split"
        assert words.startswith("No split was found. That can mean one cluster, but also ")
        assert "With 2 clusters, the two are not clearly separate (" in words
        assert "clearly<" not in written(model, tmp_path)


def test_the_seed_is_among_the_parameters(tmp_path):
    for seed in (0, 7):
        said = " ".join(Page(written(fit(BLOBS, random_state=seed), tmp_path)).texts)
        assert f"random_state={seed}" in said


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(), "Before the fit: no scaling."),
        (
            Choice(drop=("id",), one_hot=("<i>",), missing="median", scale="standard"),
            "Before the fit: 1 of 4 columns was left out: 'id'; '<i>' was replaced by a column of "
            "0 and 1 for every value; blanks were filled with the median of their column; of each "
            "column of numbers the mean was subtracted, and the result divided by the standard "
            "deviation.",
        ),
        (
            Choice(columns=("a", "b"), missing="drop", scale="robust"),
            "Before the fit: 2 of 4 columns were left out: 'id', '<i>'; rows with blanks were left "
            "out, and are not counted here; of each column of numbers the median was subtracted, "
            "and the result divided by the distance of the quartiles.",
        ),
    ],
)
def test_the_page_tells_what_was_done_with_the_columns(tmp_path, choice, said):
    model = fit(BLOBS)
    assert "Before the fit" not in written(model, tmp_path)
    frame = pd.DataFrame(BLOBS, columns=["id", "a", "b"])
    frame["<i>"] = "x" if choice.one_hot else 1.0
    table = table_of_rows(frame, choice.as_text)
    model.preparation_ = Preparation.fit(table, choice)[0].to_json()
    assert said in " ".join(Page(written(model, tmp_path)).texts)


@pytest.mark.parametrize(
    ("criterion", "term", "meaning"),
    [
        ("cut", "walks that end in it", "A walk goes from a row to one of its neighbours"),
        ("cut", "worst pair", "The worst pair are the two least separate of the k clusters"),
        ("cut", "alpha", "p is at most alpha = 0.05, the limit of this fit"),
        ("zz_top", "log10 of the ZZ Top Bound with it", "Its log10 is shown: -2 means 0.01"),
        ("zz_top", "inertia", "Inertia is the sum of the squared distances"),
        ("zz_top", "embedding", "coordinates that come from the graph of neighbours, called the"),
    ],
)
def test_terms_are_explained_where_they_are_used(tmp_path, criterion, term, meaning):
    said = " ".join(
        " ".join(Page(written(fit(BLOBS, criterion=criterion), tmp_path)).texts).split()
    )
    assert term in said
    assert meaning in said


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_the_axis_of_the_path_shows_numbers_that_are_those_of_the_dots(tmp_path, criterion):
    model = fit(BLOBS, criterion=criterion)
    chart = re.search(r'<svg viewBox="0 0 720 330".*?</svg>', written(model, tmp_path))[0]
    plain = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    ys, marks = [], []
    for y, mark in re.findall(r'y="([\d.]+)" text-anchor="end">([^<a]+)</text>', chart):
        ys.append(float(y) - 4)
        marks.append(np.log10(float(re.sub("^10⁻", "1e⁻", mark).translate(plain))))
    slope, origin = np.polyfit(ys, marks, 1)
    np.testing.assert_allclose(slope * np.array(ys) + origin, marks, atol=0.02)
    dots = re.findall(r'data-k="(\d+)".*?class="halo" cx="[\d.]+" cy="([\d.]+)"', chart)
    log10_p = {step.k: step.log_p / np.log(10) for step in model.path_}
    assert len(dots) == len(model.path_) - 1
    for k, y in dots:
        expected = log10_p[int(k)]
        assert slope * float(y) + origin == pytest.approx(max(expected, min(marks)), abs=0.05)


# -- the picture ----------------------------------------------------------------------------------

NINE, _ = make_blobs(
    450, centers=[(9 * i, 9 * j, 0) for i in range(3) for j in range(3)], random_state=0
)


def drawn(text):
    """Return the points of each cluster in the picture: a list of arrays (rows, 2)."""
    paths = re.findall(r'<path d="([^"]*)" stroke', text)
    return [np.array(re.findall(r"M([\d.]+) ([\d.]+)", path), dtype=float) for path in paths]


@pytest.mark.parametrize(
    ("X", "settings"),
    [
        (NINE, {"max_clusters": 12}),
        (knn_graph(NINE), {"max_clusters": 12, "affinity": "precomputed"}),
        (DIGITS, {"max_clusters": 15}),
        (DIGITS, {"n_clusters": 30}),
        (DIGITS, {"n_clusters": 6, "criterion": "zz_top"}),
    ],
)
def test_discs_do_not_overlap_and_hold_their_rows(tmp_path, X, settings):
    model = fit(X, **{"max_clusters": None, **settings})
    k, sizes = model.n_clusters_, np.bincount(model.labels_)
    centers, radii = places_of_discs(model)
    np.testing.assert_allclose(radii**2 / radii[0] ** 2, sizes / sizes[0])
    between = np.linalg.norm(centers[:, None] - centers, axis=2) - radii[:, None] - radii
    assert between[~np.eye(k, dtype=bool)].min() > 0
    shown = places(model)
    labels = model.labels_[shown.rows]
    assert (np.linalg.norm(shown.points - centers[labels], axis=1) <= radii[labels]).all()
    points = drawn(written(model, tmp_path))
    assert [len(own) for own in points] == sizes.tolist()


def test_discs_of_many_clusters_do_not_overlap():
    model = fit(BLOBS)
    model.n_clusters_, model.labels_ = 450, np.repeat(np.arange(450), 3).astype(np.int32)
    centers, radii = places_of_discs(model)
    assert pdist(centers).min() > 2 * radii.max()


def test_outliers_are_drawn_in_grey_and_counted(tmp_path):
    model = fit(np.concatenate([BLOBS, np.full((1, BLOBS.shape[1]), 60.0)]), noise=True)
    page = written(model, tmp_path)
    assert "<title>outliers</title>" in page
    assert "coloured by cluster, outliers in grey" in page
    assert "1 row, label -1" in page


@pytest.mark.parametrize(
    ("n", "told"),
    [
        (0, None),
        (1, "the outlier still counts in the cluster that it was taken from"),
        (2, "the 2 outliers still count in the clusters that they were taken from"),
    ],
)
def test_all_rows_are_in_the_table_of_sizes_and_it_is_told_where_outliers_count(tmp_path, n, told):
    model = fit(np.concatenate([BLOBS, *(np.full((1, 3), 60.0 + 40 * i) for i in range(n))]))
    model.labels_ = np.where(np.arange(300 + n) < 300, model.labels_, -1).astype(np.int32)
    text = written(model, tmp_path)
    table = re.search('<table id="sizes".*?</table>', text, re.DOTALL)[0]
    counts = [int(rows) for rows in re.findall(r'data-label="rows">(\d+)<', table)]
    shares = [float(share) for share in re.findall(r"> ([\d.]+) %</td>", table)][: len(counts)]
    sizes = np.bincount(model.labels_ + 1, minlength=4).tolist()
    assert counts == [*sizes[1:], *sizes[:1]][: 4 if n else 3]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert ("outliers</th>" in table) == (n > 0)
    said = " ".join(Page(text).texts)
    assert said.count("still count") == (2 if n else 0)  # at the path and at the tree
    assert told is None or said.count(told) == 2
    path = next(step for step in data_of(text)["steps"] if step["k"] == 3)
    assert sum(path["sizes"]) == 300 + n


def test_own_coordinates_are_drawn(tmp_path):
    model = fit(BLOBS)
    given = np.random.default_rng(0).normal(size=(300, 2)) * (1, 100)
    found = np.concatenate(drawn(written(model, tmp_path, coordinates=given)))
    order = np.argsort(model.labels_, kind="stable")
    low, spread = given.min(axis=0), np.ptp(given, axis=0)
    unit = ((given - low) / spread)[order] * (1, -1) + (0, 1)
    again = (found - found.min(axis=0)) / np.ptp(found, axis=0)
    np.testing.assert_allclose(again, unit, atol=2e-4)
    bad = given.copy()
    bad[7, 1] = np.nan
    for wrong, words in (
        (given[:-1], r"of shape \(300, 2\), a point for each row, got shape \(299, 2\)"),
        (given.astype(str), "coordinates must be numbers"),
        (bad, r"coordinates must be finite, got \[.*nan\] in row 7"),
    ):
        with pytest.raises(ValueError, match=words):
            written(model, tmp_path, coordinates=wrong)


def test_columns_are_drawn_by_their_principal_components(tmp_path):
    model = fit(BLOBS)
    found = np.concatenate(drawn(written(model, tmp_path, X=BLOBS)))
    order = np.argsort(model.labels_, kind="stable")
    expected = PCA(2).fit_transform(BLOBS)[order]
    for axis in (0, 1):
        assert abs(np.corrcoef(found[:, axis], expected[:, axis])[0, 1]) > 1 - 1e-5
    ratio = np.ptp(found, axis=0) / np.ptp(expected, axis=0)
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-2)


def test_the_report_of_a_table_shows_what_can_be_drawn(tmp_path):
    model = fit(BLOBS)
    frame = pd.DataFrame(BLOBS, columns=["a", "b", "<c>"])
    mixed = frame.assign(name="x", empty=np.nan)
    mixed.loc[3, "a"] = np.nan
    said = " ".join(Page(written(model, tmp_path, X=mixed)).texts)
    assert "components of 3 columns" in said
    said = " ".join(Page(written(model, tmp_path, X=frame[["a", "<c>"]])).texts)
    assert "Columns a (to the right) and <c> (upwards)" in said
    for X in (frame[["b"]], mixed[["name"]], pd.DataFrame(BLOBS), np.zeros((300, 3))):
        assert len(drawn(written(model, tmp_path, X=X))) == 3
    with pytest.raises(ValueError, match="X must hold the 300 fitted rows, got 20 rows"):
        written(model, tmp_path, X=frame[:20])
    with pytest.raises(ValueError, match="X must hold the fitted rows as a table"):
        written(model, tmp_path, X=np.zeros(300))


def test_the_picture_is_of_the_rows_as_they_were_fitted(tmp_path):
    raw = BLOBS * [1, 1e4, 1e-4] + 7
    model = fit((raw - raw.mean(axis=0)) / raw.std(axis=0))
    shown = written(model, tmp_path, X=pd.DataFrame(raw, columns=list("abc")))
    fitted = drawn(written(model, tmp_path, X=model._fit_X))
    np.testing.assert_array_equal(np.concatenate(drawn(shown)), np.concatenate(fitted))


def test_the_picture_names_the_columns_that_were_fitted(tmp_path):
    frame = pd.DataFrame(np.c_[BLOBS, BLOBS], columns=list("abcdef"))
    model = fit(BLOBS[:, :2])
    said = " ".join(Page(written(model, tmp_path, X=frame)).texts)
    assert "Columns column 0 (to the right) and column 1 (upwards)" in said
    said = " ".join(Page(written(fit(frame[["b", "d"]]), tmp_path, X=frame)).texts)
    assert "Columns b (to the right) and d (upwards)" in said
    bare = frame[["b", "d"]].to_numpy()
    said = " ".join(Page(written(fit(frame[["b", "d"]]), tmp_path, X=bare)).texts)
    assert "Columns b (to the right) and d (upwards)" in said


def cells_of(text, section):
    """Return the texts of the cells of the rows in a section of the page."""
    body = re.search(f'id="{section}">(.*?)</section>', text, re.DOTALL)[1]
    rows = re.findall("<tr>(.*?)</tr>", body, re.DOTALL)
    return [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in split_cells(r)] for r in rows]


def split_cells(row):
    return re.findall("<t[dh].*?</t[dh]>", row)


def test_the_page_shows_the_columns_that_differ(tmp_path):
    model = fit(BLOBS)
    labels = model.labels_
    frame = pd.DataFrame({"<b>": BLOBS[:, 1] * 1e5, "flat": 1.0})
    frame["who"] = np.array(["x", "y", "<i>"])[labels]
    text = written(model, tmp_path, X=frame)
    Page(text)
    head, *rows = cells_of(text, "columns")
    assert head == ["column", "effect", "cluster 0", "cluster 1", "cluster 2"]
    found = {row[0]: row[1:] for row in rows}
    assert found["who"] == ["1.00", *(f"{name} 100 %" for name in ("x", "y", "<i>"))]
    medians = [np.median(frame["<b>"][labels == c]) for c in range(3)]
    assert [float(cell.replace(",", "")) for cell in found["<b>"][1:]] == pytest.approx(
        medians, rel=1e-3
    )
    assert found["flat"] == ["0.00", "1", "1", "1"]
    highest, lowest = int(np.argmax(medians)), int(np.argmin(medians))
    own = re.search("&lt;b&gt;</th>.*?</tr>", text, re.DOTALL)[0]
    shades = dict(re.findall(r'cluster (\d)" style="background:[^"]*var\(--(\w+)\)', own))
    assert (shades[str(highest)], shades[str(lowest)]) == ("yes", "no")
    assert "In which columns" not in written(model, tmp_path)
    assert "In which columns" not in written(fit(BLOBS[:60], n_clusters=1), tmp_path, X=BLOBS[:60])


def test_the_page_says_what_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.setattr("specialk_gpu.inspection.report_tables.MOST_COLUMNS", 2)
    monkeypatch.setattr("specialk_gpu.inspection.report_tables.MOST_CLUSTERS", 1)
    model = fit(BLOBS)
    steady = model.stability(BLOBS, kinds=["order"], n_refits=1, random_state=0)
    text = written(model, tmp_path, X=BLOBS, stability=steady)
    left_out = "the column that differs least and the clusters from 1 on"
    assert f"Left out: {left_out}." in text
    assert "Left out: 2 clusters, more stable." in text
    assert cells_of(text, "columns")[0] == ["column", "effect", "cluster 0"]


def test_the_columns_of_many_clusters_are_shown_in_several_tables(tmp_path):
    model = fit(NINE, max_clusters=12)
    labels, text = model.labels_, written(model, tmp_path, X=NINE)
    rows = cells_of(text, "columns")
    found = {}
    for row in rows:
        if row[0] == "column":
            head = row
            continue
        for name, cell in zip(head[2:], row[2:], strict=True):
            found[row[0], name] = float(cell)
    assert len(found) == 3 * 9
    for j in range(3):
        for c in range(9):
            median = np.median(NINE[labels == c, j])
            assert found[f"column {j}", f"cluster {c}"] == pytest.approx(median, rel=1e-3)
    said = " ".join(Page(text).texts)
    assert "Clusters 0 to 7 of 9 clusters" in said
    assert "Cluster 8 of 9 clusters" in said
    assert "Left out" not in said


def test_the_page_shows_other_fits_of_this_model_alone(tmp_path):
    model = fit(BLOBS)
    steady = model.stability(BLOBS, n_refits=2, random_state=0)
    text = written(model, tmp_path, stability=steady)
    assert str(steady).splitlines()[0] in text
    rows = cells_of(text, "stability")
    assert [row[2] for row in rows[1:4]] == ["3 (2)", "3 (2)", "3 (3)"]
    assert "its mean Jaccard index</caption>" in text  # also on a phone, without the head
    stable = {row[0]: row[-1] for row in rows[6:]}
    assert stable == {f"cluster {c}": "stable" for c in range(3)}
    for other in (fit(BLOBS[:-1]).stability(BLOBS[:-1], kinds=["order"], n_refits=1), 7, True):
        with pytest.raises(ValueError, match=r"must be what model.stability\(X\) returned"):
            written(model, tmp_path, stability=other)


def other_fits(found, jaccard=1.0):
    """Return the stability of three clusters of 100 rows, by the k that each kind of fit found."""
    refits = [
        Refit(kind, f"{kind} {i}", k, 1.0, np.array([1.0, 1.0, jaccard]))
        for kind, ks in found.items()
        for i, k in enumerate(ks)
    ]
    return Stability(3, np.full(3, 100), tuple(refits))


STEADY_SEEDS = {"random_state": [3] * 5, "order": [3] * 5}


@pytest.mark.parametrize(
    ("steady", "headline", "words"),
    [
        (
            other_fits(STEADY_SEEDS | {"n_neighbors": [3] * 3}),
            "3 clusters, clearly",
            "13 of 13 fits with other seeds, orders of the rows and numbers of neighbours found 3 "
            "clusters too.",
        ),
        (
            other_fits(STEADY_SEEDS | {"n_neighbors": [3] * 3, "sample": [4, 4, 5, 2, 3]}),
            "3 clusters",
            "14 of 18 fits with other seeds, orders of the rows, numbers of neighbours and samples "
            "of the rows found 3 clusters too. Of those with other samples of the rows, 1 of 5 "
            "did.",
        ),
        (
            other_fits({"random_state": [4, 5, 3], "sample": [2, 3, 2]}, jaccard=0.5),
            "3 clusters, but only 2 of 6 other fits agree",
            "2 of 6 fits with other seeds and samples of the rows found 3 clusters too. Of those "
            "with other seeds, 1 of 3 did. 1 of 3 clusters is unstable: other fits put other rows "
            "together.",
        ),
        (
            other_fits({"order": [2]}),
            "3 clusters, but no other fit agrees",
            "0 of 1 fit with other orders of the rows found 3 clusters too.",
        ),
        (other_fits({"order": [3, 3]}, jaccard=0.5), "3 clusters", "1 of 3 clusters is unstable"),
    ],
)
def test_the_headline_is_no_surer_than_other_fits(tmp_path, steady, headline, words):
    text = written(fit(BLOBS), tmp_path, stability=steady)
    assert re.search("<h1>(.*?)</h1>", text)[1] == headline
    lead = re.search('<p class="lead">(.*?)</p>', text)[1]
    assert words in html.unescape(lead)


def test_other_fits_that_were_told_k_do_not_confirm_it(tmp_path):
    model = fit(BLOBS, n_clusters=3)
    text = written(model, tmp_path, stability=other_fits({"order": [3, 3]}, jaccard=0.5))
    assert "<h1>3 clusters</h1>" in text
    assert "found 3 clusters too" not in text
    assert "1 of 3 clusters is unstable" in text


def test_a_graph_is_no_table(tmp_path):
    W = knn_graph(BLOBS)
    model = fit(W, affinity="precomputed")
    plain = written(model, tmp_path)
    assert written(model, tmp_path, X=W) == written(model, tmp_path, X=W.toarray()) == plain


def test_some_rows_of_each_cluster_are_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr("specialk_gpu.inspection.places.MOST_ROWS", 50)
    text = written(fit(BLOBS), tmp_path)
    assert [len(own) for own in drawn(text)] == [17, 17, 17]
    assert "51 of 300 rows" in text


# -- the tree -------------------------------------------------------------------------------------


def branches(text, at):
    """Return how many horizontal branches of the tree cross a place, and the colours of these."""
    tree = re.search(r'<svg class="tree".*?</svg>', text)[0]
    lines = re.findall(r'<line x1="(.*?)" x2="(.*?)" y1="(.*?)" y2="(.*?)" stroke="(.*?)"', tree)
    return [tone for a, b, y, z, tone in lines if y == z and float(a) < at < float(b)], tree


@pytest.mark.parametrize("settings", [{"max_clusters": 15}, {"n_clusters": 2}, {"n_clusters": 50}])
def test_each_column_of_the_tree_crosses_the_clusters_of_its_k(tmp_path, settings):
    model = fit(DIGITS, **{"max_clusters": None, **settings})
    text = written(model, tmp_path)
    k, tree = model.n_clusters_, branches(text, 0)[1]
    ticks = re.findall(r'<text x="([\d.]+)" y="16" text-anchor="middle">(\d+)', tree)
    assert len(ticks) >= min(k, 6)
    for x, number in ticks:
        assert len(branches(text, float(x))[0]) == int(number)
    at = {int(number): float(x) for x, number in ticks}
    assert (k in at) == (k <= 40)
    sizes = [int(size) for size in re.findall(r"(\d+) rows?</text>", tree)]
    assert sorted(sizes) == sorted(np.bincount(model.labels_at(len(sizes))))
    if k in at:
        assert len(set(branches(text, at[k])[0])) == min(k, 10)
        band = re.search(r'<rect x="(.*?)" y="0" width="(.*?)"', tree)
        assert float(band[1]) < at[k] < float(band[1]) + float(band[2])


def test_the_paper_s_rule_has_no_tree(tmp_path):
    assert 'class="tree"' not in written(fit(BLOBS, criterion="zz_top"), tmp_path)
    assert 'class="tree"' in written(fit(BLOBS), tmp_path)
