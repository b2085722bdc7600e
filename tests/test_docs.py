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
import tomllib
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


@pytest.mark.pages
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


CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = re.compile(r"\A(---\n.*?^---\n|(:.*\n)+)", re.MULTILINE | re.DOTALL)  # of a cell
NOTEBOOKS = {  # by name, what they print that their text relies on
    "gallery": (),
    "tutorials/coarser_finer": (
        "9 clusters\n",
        "alpha = 0.001: k = 9\n",
        "n = 200: 1\n",
        "cut: 1\n",
    ),
    "tutorials/customers": (
        "3 segments\n",
        "add --id-column customer --drop channel --missing median",
        "k = 3 clusters ",
        "\n   K0000      0\n",
    ),
    "tutorials/first_steps": (
        "3 clusters\n",
        "random_state = 1: k = 3\n1 cluster\n",
        "labels: True\n",
    ),
    "tutorials/from_hdbscan": ("SpecialK: 1 cluster\n", "SpecialK: 2 clusters and "),
    "tutorials/from_spectral_clustering": ("k = 2\nagreement (ARI): 1.000\n", "\nk = 2\n"),
    "tutorials/graphs": (
        "3 communities\n",
        "SpecialK: 1\nSpecialK: 1\nits four clusters: ARI 0.99\n",
    ),
    "tutorials/images": ("9 clusters of 1797 images\n", "\nNMI with the digits: 0.89\n"),
    "tutorials/large_data": (
        "sample: 8 - all rows: 8\n",
        "8 of 20 dimensions: 8\n8 Recall(value=1.0, ",
    ),
}


@pytest.mark.pages
@pytest.mark.filterwarnings("ignore::UserWarning")  # they are shown on the pages
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run_and_print_what_they_say(name, tmp_path, monkeypatch, capsys):
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPECIALK_MNIST", raising=False)
    cells = CELL.findall((ROOT / f"docs/{name}.md").read_text(encoding="utf-8"))
    namespace = {}
    try:
        for cell in cells:
            exec(compile(OPTIONS.sub("", cell), name, "exec"), namespace)
    finally:
        pyplot.close("all")
    out = "".join(capsys.readouterr())
    assert cells
    for words in NOTEBOOKS[name]:
        assert words in out


def test_no_notebook_is_left_out():
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    names = {path for path, text in pages.items() if "{code-cell}" in text}
    assert names == {ROOT / f"docs/{name}.md" for name in NOTEBOOKS}


@pytest.mark.pages
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_single_cell_tutorial_prints_what_it_says(tmp_path, monkeypatch, capsys):
    pytest.importorskip("scanpy", reason="needs scanpy, which no extra installs")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "docs/tutorials/single_cell.py"))
    assert "\ncluster 3: CD79A, CD79B" in capsys.readouterr().out


@pytest.mark.pages
def test_the_picture_of_the_readme_shows_the_true_numbers(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from benchmarks.pictures import PANELS, found

    assert {title: found(title)[1].n_clusters_ for title in PANELS} == {
        title: k for title, (k, _) in PANELS.items()
    }


# -- length and constants -------------------------------------------------------------------------

MOST_WORDS = 20_000
WORD = re.compile(r"[A-Za-z][\w'’-]*")


def prose(text):
    """Return the lines outside of fenced blocks and tables."""
    outside, fenced = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith("|"):
            outside.append(line)
    return "\n".join(outside)


def test_prose_leaves_out_tables_and_code():
    text = "One's two.\n\n| no | no |\n\n```python\nno = no\n| no\n```\nthree-fold 4\n"
    assert WORD.findall(prose(text)) == ["One's", "two", "three-fold"]


def test_the_pages_have_at_most_20_000_words_of_prose():
    words = {}
    for pattern in ("README.md", "docs/*.md", "docs/tutorials/*.md"):
        for page in ROOT.glob(pattern):
            words[page.relative_to(ROOT)] = len(WORD.findall(prose(page.read_text("utf-8"))))
    longest = sorted(words, key=words.get, reverse=True)[:5]
    assert sum(words.values()) <= MOST_WORDS, (
        f"README.md and docs have {sum(words.values()):,} words of prose, expected at most "
        f"{MOST_WORDS:,}: state each fact on one page and link to it from others, leave to "
        "docstrings what they say, and cut history. The longest pages: "
        + ", ".join(f"{page} {words[page]:,}" for page in longest)
    )


def test_the_method_states_the_constants_of_the_code():
    from specialk_gpu.lloyd import kmeans
    from specialk_gpu.selection import cut_graphs, fragments, parts, valleys

    signed = sorted(one.n_fragments for one in fragments.RESOLUTIONS if one.signed)
    text = " ".join((ROOT / "docs/method.md").read_text("utf-8").split())
    for said in (
        f"into {', '.join(map(str, signed[:-1]))} and {signed[-1]} fragments",
        f"within is less than {parts.THIN_WEIGHT}",
        f"in the graph of {cut_graphs.WIDE} neighbours",
        f"at least {cut_graphs.LEAST_ROWS} distinct rows",
        f"{parts.SHORTCUTS} times as wide",
        f"a length up to {parts.SHORT_LENGTH}",
        f"its density were {valleys.SHALLOW}",
        f"{valleys.DEEP} takes the place of {valleys.SHALLOW}",
        f"at most {valleys.MARGIN} of the way",
        f"$k$ up to {kmeans.SAMPLE_CLUSTERS}, the search runs on a random sample of "
        f"{kmeans.SAMPLE_ROWS:,} rows",
    ):
        assert said in text, said


# -- the README -----------------------------------------------------------------------------------


def test_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    assert "`make demo`" in text
    assert "`make test`" in text


def test_a_package_index_gets_the_readme_without_links_that_lead_nowhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert any(not target.startswith("https:") for target in LINK.findall(text))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert LINK.findall(text)
    assert all(target.startswith("https://") for target in LINK.findall(text))


def test_demo_prints_what_the_home_page_shows(capsys):
    home = blocks("docs/index.md")
    shown = next(content for _, content in home if content.startswith("blobs: "))
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


@pytest.mark.pages
@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_docstrings_print_what_they_show(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed
