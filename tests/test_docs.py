"""The documentation runs: its Python blocks, and the demo it shows."""

import contextlib
import doctest
import importlib
import io
import json
import math
import re
import runpy
import sys
from pathlib import Path

import pytest

from specialk_gpu.cli import main

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    """Return the fenced blocks as pairs of language and content."""
    return FENCE.findall((ROOT / page).read_text(encoding="utf-8"))


def number(word):
    try:
        return float(word.strip("[](),"))
    except ValueError:
        return None


def assert_same_output(found, shown):
    """Compare word by word: integers and words exactly, other numbers to what rounding may do."""
    found, shown = found.split(), shown.split()
    assert len(found) == len(shown), f"{' '.join(found)}\n{' '.join(shown)}"
    for a, b in zip(found, shown, strict=True):
        if "." in b and number(b) is not None:
            assert math.isclose(number(a), number(b), rel_tol=0.01, abs_tol=0.05), f"{a} for {b}"
        else:
            assert a == b


# -- links ----------------------------------------------------------------------------------------

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
LABEL = re.compile(r"^\(([\w-]+)\)=$", re.MULTILINE)


def anchors(page):
    """Return the anchors of a page: its labels, and its headings as GitHub and MyST name them."""
    text = page.read_text(encoding="utf-8")
    names = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return set(LABEL.findall(text)) | {name.strip().replace(" ", "-") for name in names}


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    """Within the project; those that lead out of it are checked by Sphinx's linkcheck."""
    here = ROOT / page
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", here.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in LINK.findall(prose):
        if re.match(r"\w+:", target):
            assert target.startswith("https://"), target
            continue
        name, _, anchor = target.partition("#")
        there = (here.parent / name).resolve() if name else here
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", PAGES)
def test_what_is_fenced_in_has_an_end(page):
    marks = [line for line in (ROOT / page).read_text("utf-8").splitlines() if "```" in line]
    assert all(line.startswith("```") for line in marks)
    assert all(line == "```" for line in marks[1::2])
    assert len(marks) % 2 == 0


# -- code and figures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(language == "python" for language, _ in blocks(page))]
)
def test_python_blocks_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for what they write
    namespace = {}
    printed = None
    for language, content in blocks(page):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile(content, page, "exec"), namespace)
            printed = stream.getvalue()
        elif language == "text" and printed is not None:
            assert_same_output(printed, content)
            printed = None
        else:
            printed = None


TUTORIALS = {
    "images": "\n9 clusters in ",
    "single_cell": "\ncluster 3: CD79A, CD79B",
    "choosing": "\nzz_top, n = 1000: blobs 3, square 4\ncut: square 1\n",
    "from_spectral_clustering": "k = 3\nagreement: 0.993",
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorials_run_and_print_what_they_say(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPECIALK_MNIST", raising=False)
    if name == "single_cell":
        pytest.importorskip("scanpy", reason="needs scanpy, which no extra installs")
    runpy.run_path(str(ROOT / f"docs/tutorials/{name}.py"))
    assert TUTORIALS[name] in capsys.readouterr().out


def test_no_tutorial_is_left_out():
    assert {path.stem for path in (ROOT / "docs/tutorials").glob("*.py")} == set(TUTORIALS)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_demo_prints_what_the_page_shows(page, capsys):
    shown = next(content for language, content in blocks(page) if content.startswith("blobs: "))
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert_same_output(out.rsplit("(", 1)[0], shown.rsplit("(", 1)[0])


def test_figures_of_the_extension_are_those_of_the_results():
    rows = json.loads((ROOT / "benchmarks/results/extension-numpy.json").read_text())["rows"]
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    for key in ("extended", "fitted"):
        for n in (5, 200):
            mean = sum(row[key] for row in rows if row["n"] == n) / 5
            assert f" {mean:.2f}" in text


def test_the_law_of_nothing_is_that_of_the_results(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from benchmarks.calibration.__main__ import TABLE
    from benchmarks.calibration.law import fitted_laws
    from benchmarks.paper.runner import read
    from benchmarks.stamp import RESULTS

    laws = fitted_laws(read(RESULTS / "calibration-law.jsonl"))
    assert json.loads(TABLE.read_text(encoding="utf-8")) == laws


def test_figures_are_those_of_the_results(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from benchmarks import tables

    for name, page in tables.PAGES.items():
        assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == page()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert tables.readme(text) == text


# -- docstrings -----------------------------------------------------------------------------------


def modules_with_examples():
    names = []
    for path in sorted((ROOT / "specialk_gpu").rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            names.append(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return names


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_docstrings_print_what_they_show(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed
