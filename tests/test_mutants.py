"""The small errors that `mutants.py` makes are those it promises, one at a time."""

import ast
import collections
import gc
import importlib
import sys
from pathlib import Path

import mutants
import pytest
from mutants import ROOT, all_mutants
from mutations import EXACT, mutants_of, names_of, swap

SOURCE = b'''"""One sentence, 1 + 1."""
__all__ = ["f"]
LIMIT: int = 3


def f(x: int, y=0.5, *, quiet=True):
    """Return 2 < 3."""
    if not x < y and x:
        raise ValueError(f"{x + 1} is no {y}")
    x += 1
    print(
        min(x, -y),
    )
    map_tiles(x, y, zip(x, y, strict=True), 4 * x)
    return sum(x, axis=0).astype(int, copy=False)
'''
CHANGES = {
    ("LIMIT: int = 3", "LIMIT: int = 4"),
    (
        "def f(x: int, y=0.5, *, quiet=True):",
        "def f(x: int, y=0.6, *, quiet=True):",
    ),
    (
        "def f(x: int, y=0.5, *, quiet=True):",
        "def f(x: int, y=0.5, *, quiet=False):",
    ),
    ("if not x < y and x:", "if (not x < y or x):"),
    ("if not x < y and x:", "if (x < y) and x:"),
    ("if not x < y and x:", "if not (x <= y) and x:"),
    ('raise ValueError(f"{x + 1} is no {y}")', "pass"),
    ("x += 1", "x -= 1"),
    ("x += 1", "x += 2"),
    ("x += 1", "pass"),
    ("print( min(x, -y), )", "pass"),
    ("min(x, -y),", "max(x, -y),"),
    ("min(x, -y),", "min(x, y),"),
    ("map_tiles(x, y, zip(x, y, strict=True), 4 * x)", "pass"),
    (
        "return sum(x, axis=0).astype(int, copy=False)",
        "return sum(x, axis=1).astype(int, copy=False)",
    ),
}


def test_every_change_is_made_once_and_no_line_moves():
    found = mutants_of("f.py", SOURCE)
    assert len(found) == len(CHANGES)
    assert {(mutant.before, mutant.after) for mutant in found} == CHANGES
    for mutant in found:
        changed = mutant.apply(SOURCE)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))
        assert changed.count(b"\n") == SOURCE.count(b"\n")
    assert len(mutants_of("f.py", SOURCE, ["LIMIT"])) == len(CHANGES) - 1


def test_numbers_in_capitals_are_tuned_unless_they_are_named():
    source = b"ONE, TWO = 1, 2\nFORMAT: int = 4\nseed = 5\nLOW = [7 for _ in range(8)]\n"
    source += b"def f(x):\n    WIDE = 6\n    return WIDE\n"
    kinds = {m.after: m.kind for m in mutants_of("a/_storage.py", source)}
    tuned = ["ONE, TWO = 2, 2", "ONE, TWO = 1, 3", "LOW = [8 for _ in range(8)]"]
    tuned += ["LOW = [7 for _ in range(9)]"]
    code = ["FORMAT: int = 5", "seed = 6", "WIDE = 7"]
    assert kinds == dict.fromkeys(tuned, "tuned") | dict.fromkeys(code, "constant")
    (found,) = mutants_of("a/other.py", b"FORMAT = 4")
    assert found.kind == "tuned"


def test_exact_numbers_and_equivalent_mutants_are_there():
    rooms, left_out = all_mutants()
    assert left_out < rooms.keys()
    exact = set()
    for path in {mutant.path for mutant in rooms}:
        for statement in ast.parse((ROOT / path).read_text()).body:
            if isinstance(statement, ast.Assign):
                exact |= {f"{Path(path).stem}.{name}" for name in names_of(statement)}
    assert exact >= EXACT


def test_a_loaded_function_gets_the_changed_code_and_a_loaded_constant_does_not(
    tmp_path, monkeypatch
):
    source = b"N = 2\n\n\ndef twice(x):\n    return [N * y for y in x]\n\n\n"
    source += b"both = [lambda x: -x, lambda x: not x]\n"
    (tmp_path / "of_mutants.py").write_bytes(source)
    monkeypatch.syspath_prepend(tmp_path)
    constant, product, sign, no = mutants_of("of_mutants.py", source)

    def after(mutant):
        sys.modules.pop("of_mutants", None)
        gc.collect()  # the functions of the last one
        module = importlib.import_module("of_mutants")
        done = swap(mutant, source)
        return done, module.twice([1, 4]), [f(x=True) for f in module.both]

    assert after(constant) == (False, [2, 8], [-1, False])
    assert after(product) == (True, [2, 0.5], [-1, False])
    assert after(sign) == (True, [2, 8], [1, False])
    assert after(no) == (True, [2, 8], [-1, True])
    del sys.modules["of_mutants"]
    assert swap(constant, source)  # as it will be read when it is loaded


def test_what_runs_on_import_is_tested_by_all_that_reach_its_file():
    (mutant,) = mutants_of("f.py", b"x = 1")
    seconds = {"a::1": 0.3, "a::2": 0.1, "a::3": 0.2, "b::1": 0.1, "c::1": 0.1}
    reaching = collections.defaultdict(set)
    reaching |= {("f.py", 2): {"b::1", "a::1"}, ("g.py", 1): {"c::1"}, ("f.py", 1): {"a::3"}}
    assert list(mutants.tests_for(mutant, seconds, reaching, 9)) == ["a::3", "a::2", "a::1"]
    assert list(mutants.tests_for(mutant, seconds, reaching, 0.35)) == ["a::3", "a::2"]
    reaching["f.py", 1] = {"", "a::3"}  # one test imports it anew
    assert list(mutants.tests_for(mutant, seconds, reaching, 9)) == ["a::3", "b::1", "a::1", "a::2"]
    reaching["f.py", 1] = {""}
    assert list(mutants.tests_for(mutant, seconds, reaching, 9)) == ["b::1", "a::1", "a::2", "a::3"]


@pytest.mark.parametrize(
    ("number", "other"),
    [(0, 1), (99, 100), (100, 200), (0.0, 1.0), (0.5, 0.6), (1e-8, 1e-7), (1e3, 1e4)],
)
def test_numbers_change_by_enough(number, other):
    (found,) = mutants_of("f.py", f"x = {number}".encode())
    assert ast.literal_eval(found.after.removeprefix("x = ")) == pytest.approx(other)
