"""The page about a fitted model: what it says, and what it does in a browser."""

import html
import json
import os
import re
import shutil
import subprocess
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError

from specialk_gpu import SpecialK, knn_graph, zz_top
from specialk_gpu.inspection.diagnostics import (
    doubts,
    headline,
    in_words,
    pair_matrix,
    typical,
    verdict,
    watershed,
)

BLOBS, _ = make_blobs(300, centers=[(0, 0, 0), (9, 0, 0), (0, 9, 9)], random_state=0)
DIGITS = load_digits().data[:600]
VOID = {"meta", "link", "br", "hr", "img", "input"}


def fit(X, **settings):
    settings = {"backend": "numpy", "random_state": 0, "full_path": True, **settings}
    settings = {"max_clusters": 6, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(**settings).fit(X)


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
    assert "http" not in text
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
    assert set(data["plane"]["cluster"]) == {0, 1, 2}
    for axis in "xy":
        assert (min(data["plane"][axis]), max(data["plane"][axis])) == (0, 1)


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
    return [[html.unescape(cell) for cell in re.findall(r"<td>([^<]*)", row)] for row in rows]


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
    nearest = re.findall(r'<td data-value="(\d)">\d</td><td data-value="([^"]*)">', text)
    assert len(nearest) == 3
    for c, (place, share) in enumerate(nearest):
        mean = model.membership_[model.labels_ == c].mean(axis=0)
        mean[c] = -1
        assert (int(place), float(share)) == (mean.argmax(), pytest.approx(100 * mean.max()))


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


def test_images_need_both_rows_and_shape(tmp_path):
    model = fit(DIGITS, n_clusters=2)
    for wrong in ({"X": DIGITS}, {"image_shape": (8, 8)}):
        with pytest.raises(ValueError, match="X and image_shape go together"):
            written(model, tmp_path, **wrong)
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
        assert "clearly" not in headline(model)
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
    assert not any("Certainty drops" in found for found, _ in doubts(model))


def test_what_is_set_after_the_fit_changes_no_finding(tmp_path):
    model = fit(BLOBS)
    before = verdict(model), doubts(model), written(model, tmp_path)
    model.set_params(n_clusters=7, affinity="precomputed", alpha=0.5, criterion="zz_top")
    assert (verdict(model), doubts(model), written(model, tmp_path)) == before


def test_isolated_rows_and_a_p_near_alpha_are_doubts():
    W = knn_graph(BLOBS).toarray()
    W[:2] = W[:, :2] = 0
    model = fit(W, affinity="precomputed", alpha=0.01)
    assert any("No edge joins 2 rows" in found for found, _ in doubts(model))
    near = [
        s._replace(log_p=np.log(model.alpha) - 1) if s.k == model.n_clusters_ else s
        for s in model.path_
    ]
    model.path_ = type(model.path_)(near, "cut")
    assert any("within a factor of 10 of alpha" in found for found, _ in doubts(model))
    assert verdict(model)[0] == "close"


def test_the_watershed_is_that_of_the_estimator():
    model = fit(DIGITS, criterion="zz_top", stopping="watershed", max_clusters=15)
    assert watershed(model) == model.n_clusters_


def test_the_model_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        SpecialK().report(tmp_path / "out.html")
    with pytest.raises(ValueError, match=r"on the path, \[1, 2, 3, 4, 5, 6\], got 9"):
        pair_matrix(fit(BLOBS, criterion="zz_top"), 9)
    with pytest.raises(ValueError, match=r"k must lie between 1 and .*, got 999"):
        pair_matrix(fit(BLOBS), 999)


# -- what it does in a browser --------------------------------------------------------------------

BROWSER = os.environ.get("SPECIALK_BROWSER") or shutil.which("chromium")
browser = pytest.mark.skipif(not BROWSER, reason="no chromium, nor SPECIALK_BROWSER naming one")
PROBE = """<script>
const errors = [];
window.addEventListener("error", event => errors.push(event.message));
const out = {};
window.addEventListener("load", () => {
  const detail = () => document.querySelector("#status h3").textContent;
  out.first = detail();
  document.querySelector('#path tr[data-k="2"] button').click();
  out.clicked = detail();
  out.chosen = [...document.querySelectorAll("#path tr.chosen")].map(row => row.dataset.k);
  document.querySelector('svg .dot[data-k="4"]').focus();
  out.focused = detail();
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
  out.arrow = detail();
  out.pressed = [...document.querySelectorAll('svg .dot[aria-pressed="true"]')]
    .map(dot => dot.dataset.k);
  out.cells = document.querySelectorAll("#detail .matrix td").length;
  const sizes = () => [...document.querySelectorAll("#sizes tbody tr")]
    .map(row => Number(row.children[1].dataset.value));
  const rows = document.querySelectorAll("#sizes thead button")[1];
  rows.click(); out.rising = sizes();
  rows.click(); out.falling = sizes();
  out.sorted = rows.closest("th").getAttribute("aria-sort");
  const pixels = [...document.querySelectorAll("canvas")].map(canvas => {
    const own = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return own.some(value => value !== 0);
  });
  out.drawn = pixels.length > 0 && pixels.every(Boolean);
  out.wide = document.documentElement.scrollWidth <= window.innerWidth;
  out.errors = errors;
  document.body.append(Object.assign(document.createElement("pre"),
    {id: "probe", textContent: JSON.stringify(out)}));
});
</script>
"""


@browser
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize(("criterion", "n_cells"), [("cut", 0), ("zz_top", 25)])
def test_the_page_works_in_a_browser(tmp_path, width, criterion, n_cells):
    model = fit(DIGITS, criterion=criterion)
    text = written(model, tmp_path, X=DIGITS, image_shape=(8, 8))
    page = tmp_path / "probe.html"
    page.write_text(text.replace("<style>", f"{PROBE}<style>", 1), encoding="utf-8")
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900"]
    command += ["--virtual-time-budget=5000", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    out = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)[1]))
    assert out["errors"] == []
    assert out["first"] == f"k = {model.n_clusters_}"
    assert (out["clicked"], out["chosen"]) == ("k = 2", ["2"])
    assert (out["focused"], out["arrow"], out["pressed"]) == ("k = 4", "k = 5", ["5"])
    assert out["cells"] == n_cells
    sizes = np.bincount(model.labels_).tolist()
    assert out["rising"] == sorted(sizes)
    assert out["falling"] == sorted(sizes, reverse=True)
    assert out["sorted"] == "descending"
    assert out["drawn"]
    assert out["wide"]
