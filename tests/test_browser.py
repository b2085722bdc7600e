"""The report in a browser: on a desk and on a phone, in the dark, on paper, without a network."""

import html
import json
import os
import re
import shutil
import subprocess
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

from specialk_gpu import SpecialK

BROWSER = os.environ.get("SPECIALK_BROWSER") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    not BROWSER, reason="needs chromium on PATH (apt-get install chromium), or SPECIALK_BROWSER"
)
DIGITS = load_digits().data[:600]
START = """<script>
const out = {errors: [], refused: []};
window.addEventListener("error", event => out.errors.push(event.message));
document.addEventListener("securitypolicyviolation", event => out.refused.push(event.blockedURI));
window.addEventListener("load", () => setTimeout(() => {
  %s
  setTimeout(() => {
    out.fetched = performance.getEntriesByType("resource").map(entry => entry.name);
    parent.postMessage(JSON.stringify(out), "*");
  }, 200);
}, 50));
</script>
"""
FRAME = """<!DOCTYPE html><pre id="probe"></pre>
<script>
window.addEventListener("message", event => {
  document.getElementById("probe").textContent = event.data;
});
</script>
<iframe src="%s" style="width: %dpx; height: 900px; border: 0"></iframe>
"""


@pytest.fixture(scope="module", params=["cut", "zz_top"])
def model(request):
    settings = {"full_path": True, "max_clusters": 6, "criterion": request.param}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(backend="numpy", random_state=0, **settings).fit(DIGITS)


def command(tmp_path, *options):
    start = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    return [*start, f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", *options]


def probe(page, script, width=1280, *options):
    """Return what a script finds on a page in a frame so wide; the console must stay empty.

    A window cannot be narrower than 500 pixels, a frame can.
    """
    text = page.read_text(encoding="utf-8")
    copy, frame = page.with_name("probe.html"), page.with_name("frame.html")
    copy.write_text(text.replace("<style>", f"{START % script}<style>", 1), encoding="utf-8")
    frame.write_text(FRAME % (copy.name, width), encoding="utf-8")
    options = (*options, "--window-size=1400,900", "--virtual-time-budget=5000", "--dump-dom")
    asked = command(page.parent, *options, frame.as_uri())
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)
    out = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)[1]))
    assert out["errors"] == []
    assert out["refused"] or ":CONSOLE" not in done.stderr
    return out


@pytest.fixture
def page(model, tmp_path):
    model.report(tmp_path / "page.html", X=DIGITS, image_shape=(8, 8), source="digits")
    return tmp_path / "page.html"


ACTIONS = """
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
"""


def test_what_can_be_selected_is_shown(model, page):
    out = probe(page, ACTIONS)
    assert out["fetched"] == [] == out["refused"]
    assert out["first"] == f"k = {model.n_clusters_}"
    assert (out["clicked"], out["chosen"]) == ("k = 2", ["2"])
    assert (out["focused"], out["arrow"], out["pressed"]) == ("k = 4", "k = 5", ["5"])
    assert out["cells"] == (25 if model.path_.criterion == "zz_top" else 0)
    sizes = np.bincount(model.labels_).tolist()
    assert out["rising"] == sorted(sizes)
    assert out["falling"] == sorted(sizes, reverse=True)
    assert out["sorted"] == "descending"
    assert out["drawn"]


def test_the_page_may_fetch_nothing(page):
    script = """
  const image = new Image(); image.src = "https://example.org/x.png"; document.body.append(image);
  fetch("https://example.org/x").catch(() => {});
  document.body.append(Object.assign(document.createElement("script"),
    {src: "https://example.org/x.js"}));
"""
    out = probe(page, script)
    assert sorted(out["refused"]) == [f"https://example.org/x{end}" for end in ("", ".js", ".png")]


WIDE = """
  const inside = node => node.closest(".scroll") === null;
  out.width = window.innerWidth;
  out.wide = [...document.querySelectorAll("main *")].filter(inside)
    .filter(node => node.getBoundingClientRect().right > window.innerWidth + 0.5)
    .map(node => node.outerHTML.slice(0, 80));
  out.scroll = document.documentElement.scrollWidth;
  out.scrolled = [...document.querySelectorAll(".scroll")]
    .filter(frame => frame.scrollWidth > frame.clientWidth).length;
  out.hinted = [...document.querySelectorAll(".scroll")].every(frame =>
    (frame.scrollWidth > frame.clientWidth) === !frame.previousElementSibling.hidden);
"""


@pytest.mark.parametrize("width", [320, 375, 768, 769, 1280])
def test_nothing_is_wider_than_the_window(model, page, width):
    """What can be scrolled by itself has a hint."""
    click = "document.querySelector('#path tr:last-child button').click();"
    out = probe(page, click + WIDE, width)
    assert out["width"] == width
    assert out["wide"] == []
    assert out["scroll"] <= width
    assert out["hinted"]
    assert out["scrolled"] == (model.path_.criterion == "zz_top" and width < 400)


COLORS = """
  const color = (node, name) => getComputedStyle(node)[name].match(/[\\d.]+/g).map(Number);
  out.paper = color(document.body, "backgroundColor");
  out.inks = [...document.querySelectorAll("h1, p, li, td, th, dt, dd, figcaption, button")]
    .map(node => color(node, "color"));
  out.inks.push(...[...document.querySelectorAll("svg text")].map(node => color(node, "fill")));
"""


def luminance(color):
    """Return the relative luminance of WCAG 2."""
    shares = np.array(color[:3]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize(("scheme", "is_dark"), [(0, True), (1, False)])
def test_text_can_be_read_in_the_light_and_in_the_dark(page, scheme, is_dark):
    """The contrast of text is at least 4.5, as WCAG 2 asks for."""
    out = probe(page, COLORS, 1280, f"--blink-settings=preferredColorScheme={scheme}")
    paper = luminance(out["paper"])
    assert (paper < 0.1) == is_dark
    assert len(out["inks"]) > 50
    for ink in out["inks"]:
        low, high = sorted([luminance(ink), paper])
        assert (high + 0.05) / (low + 0.05) >= 4.5


PAPER = """
  for (const rule of document.styleSheets[0].cssRules) {
    if (!rule.media) continue;
    rule.media.mediaText = rule.media.mediaText === "print" ? "all" : "not all";
  }
  document.documentElement.style.width = "180mm";  // A4 without its margins
  const right = document.documentElement.getBoundingClientRect().right + 0.5;
  const reasons = [...document.querySelectorAll("td.words")];
  const range = document.createRange();
  out.reasons = reasons.length;
  out.clipped = reasons.filter(cell => {
    range.selectNodeContents(cell);
    return range.getBoundingClientRect().right > right || cell.scrollWidth > cell.clientWidth;
  }).map(cell => cell.textContent);
  out.hints = [...document.querySelectorAll(".screen")]
    .filter(node => node.getClientRects().length).length;
  out.matrices = [...document.querySelectorAll(".matrix")]
    .filter(table => table.getBoundingClientRect().right > right).length;
"""


def test_no_reason_is_clipped_on_paper(model, page):
    out = probe(page, PAPER)
    assert out["reasons"] == len(model.path_)
    assert out["clipped"] == []
    assert out["hints"] == out["matrices"] == 0


def test_the_pages_of_print_are_a4(page, tmp_path):
    target = tmp_path / "page.pdf"
    options = ("--no-pdf-header-footer", f"--print-to-pdf={target}", page.as_uri())
    subprocess.run(command(tmp_path, *options), capture_output=True, timeout=120, check=True)
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", target.read_bytes())
    assert 1 < len(boxes) < 8
    for box in boxes:
        np.testing.assert_allclose(
            [float(x) for x in box], [210 / 25.4 * 72, 297 / 25.4 * 72], atol=0.5
        )
