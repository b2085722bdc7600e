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
    parent.postMessage(JSON.stringify({name: window.name, out}), "*");
  }, 200);
}, 50));
</script>
"""
FRAMES = """<!DOCTYPE html><pre id="probes"></pre>
<script>
const found = {};
window.addEventListener("message", event => {
  const {name, out} = JSON.parse(event.data);
  found[name] = out;
  document.getElementById("probes").textContent = JSON.stringify(found);
});
</script>
"""
FRAME = '<iframe src="%s.html" name="%s" style="width: %dpx; height: 900px; border: 0"></iframe>\n'


@pytest.fixture(scope="module", params=["cut", "zz_top"])
def model(request):
    settings = {"full_path": True, "max_clusters": 6, "criterion": request.param}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SpecialK(backend="numpy", random_state=0, **settings).fit(DIGITS)


def command(folder, *options):
    start = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    return [*start, f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", *options]


def probe(page, scripts, *options):
    """Return what each script finds on a page in a frame of its own; by name, a script and a width.

    The console must stay empty. A window cannot be narrower than 500 pixels, a frame can.
    """
    text, frames = page.read_text(encoding="utf-8"), FRAMES
    for name, (script, width) in scripts.items():
        copy = text.replace("<style>", f"{START % script}<style>", 1)
        page.with_name(f"{name}.html").write_text(copy, encoding="utf-8")
        frames += FRAME % (name, name, width)
    (page.parent / "frames.html").write_text(frames, encoding="utf-8")
    options = (*options, "--window-size=1400,900", "--virtual-time-budget=5000", "--dump-dom")
    asked = command(page.parent, *options, (page.parent / "frames.html").as_uri())
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(html.unescape(re.search(r'<pre id="probes">(.*?)</pre>', done.stdout)[1]))
    assert set(found) == set(scripts)
    assert all(out["errors"] == [] for out in found.values())
    refused = any(out["refused"] for out in found.values())
    assert refused or ":CONSOLE" not in done.stderr
    return found


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "page.html"
    model.report(path, X=DIGITS, image_shape=(8, 8), source="digits")
    return path


WIDTHS = [320, 375, 768, 769, 1280]


@pytest.fixture(scope="module")
def found(page):
    """What all scripts find that one start of the browser can serve."""
    scripts = {"actions": (ACTIONS, 1280), "colors": (COLORS, 1280), "paper": (PAPER, 1280)}
    scripts |= {f"width-{width}": (WIDE, width) for width in WIDTHS}
    return probe(page, scripts, LIGHT)


@pytest.fixture(scope="module")
def found_in_the_dark(page):
    """The console tells what was refused, so this is apart from the others."""
    return probe(page, {"colors": (COLORS, 1280), "fetches": (FETCHES, 1280)}, DARK)


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


def test_what_can_be_selected_is_shown(model, found):
    out = found["actions"]
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


FETCHES = """
  const image = new Image(); image.src = "https://example.org/x.png"; document.body.append(image);
  fetch("https://example.org/x").catch(() => {});
  document.body.append(Object.assign(document.createElement("script"),
    {src: "https://example.org/x.js"}));
"""


def test_the_page_may_fetch_nothing(found_in_the_dark):
    out = found_in_the_dark["fetches"]
    assert sorted(out["refused"]) == [f"https://example.org/x{end}" for end in ("", ".js", ".png")]


WIDE = """
  document.querySelector("#path tr:last-child button").click();
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


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(model, found, width):
    """What can be scrolled by itself has a hint."""
    out = found[f"width-{width}"]
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


DARK, LIGHT = (f"--blink-settings=preferredColorScheme={scheme}" for scheme in (0, 1))


@pytest.mark.parametrize("is_dark", [True, False])
def test_text_can_be_read_in_the_light_and_in_the_dark(found, found_in_the_dark, is_dark):
    """The contrast of text is at least 4.5, as WCAG 2 asks for."""
    out = found_in_the_dark["colors"] if is_dark else found["colors"]
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
  out.broken = [...document.querySelectorAll("thead th")].filter(head => {
    const words = head.textContent.trim().split(/\\s+/).length;
    range.selectNodeContents(head.querySelector("button") || head);
    return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > words;
  }).map(head => head.textContent);
  out.hints = [...document.querySelectorAll(".screen")]
    .filter(node => node.getClientRects().length).length;
  out.matrices = [...document.querySelectorAll(".matrix")]
    .filter(table => table.getBoundingClientRect().right > right).length;
"""


def test_no_reason_is_clipped_on_paper(model, found):
    out = found["paper"]
    assert out["reasons"] == len(model.path_)
    assert out["clipped"] == out["broken"] == []
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
