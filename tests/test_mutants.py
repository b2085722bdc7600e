"""The small errors that `mutants.py` makes are those it promises, one at a time."""

import ast
import gc
import importlib
import sys

import pytest
from mutations import mutants_of, swap

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
    return sum(x, axis=0)
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
    ("return sum(x, axis=0)", "return sum(x, axis=1)"),
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


@pytest.mark.parametrize(
    ("number", "other"),
    [(0, 1), (99, 100), (100, 200), (0.0, 1.0), (0.5, 0.6), (1e-8, 1e-7), (1e3, 1e4)],
)
def test_numbers_change_by_enough(number, other):
    (found,) = mutants_of("f.py", f"x = {number}".encode())
    assert ast.literal_eval(found.after.removeprefix("x = ")) == pytest.approx(other)
