"""Small errors put into source code, one at a time: what `mutants.py` runs the tests against."""

import ast
import collections
import gc
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
PAIRS = [
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("floor", "ceil"),
    ("any", "all"),
    ("zeros", "ones"),
]
NAMES = dict(PAIRS) | {b: a for a, b in PAIRS}
LARGE = 100
TUNED = "tuned"  # the kind of every change of a number that a module names in capitals, but of
EXACT = {  # these, which have one right value
    "_schema.ARRAYS",
    "_storage.FORMAT",
    "arrays.GZIP_RATIO",
    "arrays._IDX_DTYPES",
    "affinity.MOST",
    "text.MOST_OF_GZIP",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the bytes from `start` to `end` become `text`."""

    path: str
    line: int
    last_line: int
    start: int
    end: int
    text: str
    kind: str
    before: str
    after: str

    def apply(self, source):
        return source[: self.start] + self.text.encode() + source[self.end :]


def changed_number(value):
    """Return a number that differs enough for a test to see it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if abs(value) < LARGE else 2 * value
    return round(1.2 * value, 12) if 1e-2 <= abs(value) <= LARGE else 10 * value or 1.0


def changed_expressions(node):
    """Yield (kind, expression) for every expression that may stand in place of `node`."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            ops = [*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1 :]]
            yield "comparison", ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        if not any(is_text(side) for side in (node.left, node.right)):
            yield "arithmetic", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield "and, or", ast.BoolOp(OPERATORS[type(node.op)](), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield ("not" if isinstance(node.op, ast.Not) else "sign"), node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        kind = "boolean" if isinstance(node.value, bool) else "constant"
        yield kind, ast.Constant(changed_number(node.value))
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield "name", ast.Name(NAMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield "name", ast.Attribute(node.value, NAMES[node.attr])


def is_text(node):
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def names_of(assignment):
    """Return the names that are given a value."""
    targets = getattr(assignment, "targets", None) or [assignment.target]
    return {name.id for target in targets for name in ast.walk(target) if is_stored(name)}


def is_stored(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def removable(statement, *, last):
    """Say whether the function goes on, differently, without the statement."""
    return (
        (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call))
        or isinstance(statement, ast.AugAssign | ast.Raise | ast.Continue | ast.Break)
        or (isinstance(statement, ast.Return) and not last)
    )


class Finder(ast.NodeVisitor):
    """Collect the mutants of one file."""

    def __init__(self, path, source, skipped_names=()):
        self.path, self.source, self.skipped_names = path, source, skipped_names
        self.lines = source.split(b"\n")
        self.offsets = [0]
        for line in self.lines:
            self.offsets.append(self.offsets[-1] + len(line) + 1)
        self.found, self.tuned = [], False
        self.visit(ast.parse(source))

    def add(self, kind, node, text):
        kind = TUNED if self.tuned else kind
        start = self.offsets[node.lineno - 1] + node.col_offset
        end = self.offsets[node.end_lineno - 1] + node.end_col_offset
        first, last = self.offsets[node.lineno - 1], self.offsets[node.end_lineno] - 1
        before = self.source[first:last].decode()
        after = (self.source[first:start] + text.encode() + self.source[end:last]).decode()
        words = [" ".join(side.split()) for side in (before, after)]
        place = node.lineno, node.end_lineno, start, end
        lines = "\n" * (node.end_lineno - node.lineno)  # so that no other line moves
        text = f"{text[:-1]}{lines})" if text.endswith(")") else text + lines
        self.found.append(Mutant(self.path, *place, text, kind, *words))

    def visit(self, node):
        if isinstance(node, ast.expr):
            for kind, expression in changed_expressions(node):
                text = ast.unparse(expression)
                bare = isinstance(expression, ast.Constant | ast.Name | ast.Attribute)
                self.add(kind, node, text if bare else f"({text})")
        super().visit(node)

    def generic_visit(self, node):
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)
            if field in ("body", "orelse", "finalbody"):
                self.remove_statements(node, value)

    def remove_statements(self, node, body):
        of_function = isinstance(node, ast.FunctionDef)
        for statement in body if isinstance(body, list) else []:
            if removable(statement, last=of_function and statement is body[-1]):
                self.add("removed", statement, "pass")

    def visit_keyword(self, node):
        """Change what a keyword is given, except where no result can change.

        That is so for `strict` of `zip`, as lengths agree, and where copies are made in addition.
        """
        without = node.arg == "copy" and ast.unparse(node.value) == "False"
        if node.arg == "strict" or without:
            return
        if node.arg == "axis":
            self.add("axis", node.value, "1" if ast.unparse(node.value) == "0" else "0")
        else:
            self.generic_visit(node)

    def visit_Call(self, node):
        """Leave out how many bytes a row takes: it decides the sizes of tiles alone."""
        place = {"map_tiles": 3, "tile_rows": 1}.get(getattr(node.func, "id", ""))
        without = [] if place is None else node.args[place : place + 1]
        for child in ast.iter_child_nodes(node):
            if child not in without:
                self.visit(child)

    def visit_JoinedStr(self, node):
        """Leave out the words of messages."""

    def visit_Raise(self, node):
        """Leave out what is raised: its words."""

    def visit_AugAssign(self, node):
        if type(node.op) in OPERATORS and not is_text(node.value):
            changed = ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
            self.add("arithmetic", node, ast.unparse(changed))
        self.visit(node.value)

    def visit_Module(self, node):
        for statement in node.body:
            assigns = isinstance(statement, ast.Assign | ast.AnnAssign)
            names = names_of(statement) if assigns else set()
            exact = {name for name in names if f"{Path(self.path).stem}.{name}" in EXACT}
            self.tuned = bool(names) and all(map(str.isupper, names)) and not exact
            self.visit(statement)
        self.remove_statements(node, node.body)

    def visit_Assign(self, node):
        if not names_of(node) & {"__all__", *self.skipped_names}:
            self.generic_visit(node)

    visit_AnnAssign = visit_Assign

    def visit_If(self, node):
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)


def mutants_of(path, source, skipped_names=()):
    """Return all mutants of a file whose content is `source`."""
    return Finder(path, source, skipped_names).found


def codes_of(code):
    """Yield a code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def grouped(codes):
    """Return code objects by what they are called and where they begin."""
    groups = collections.defaultdict(list)
    for code in codes:
        groups[code.co_qualname, code.co_firstlineno].append(code)
    return groups


def own_content(code):
    constants = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, constants, code.co_names


def runs_on_import(code):
    is_function = code.co_flags & inspect.CO_OPTIMIZED
    return not is_function or code.co_qualname in {"<listcomp>", "<genexpr>", "<dictcomp>"}


def swap(mutant, source):
    """Give the functions of a module that is loaded the code of a mutant; return whether it is in.

    It is not if what it changes has run on import already.
    """
    name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if name not in sys.modules:
        return True
    file = sys.modules[name].__file__
    before, after = (
        grouped(codes_of(compile(text, file, "exec"))) for text in (source, mutant.apply(source))
    )
    changes = {}  # from the code that is there to that of the mutant
    for key, codes in before.items():
        if len(after[key]) != len(codes):
            return False
        changes |= zip(codes, after[key], strict=True)
    for old, new in changes.items():
        if own_content(old) != own_content(new) and runs_on_import(old):
            return False
    functions = [
        found
        for found in gc.get_objects()
        if isinstance(found, FunctionType) and found.__code__.co_filename == file
    ]
    for found in functions:
        new = changes.get(found.__code__)
        if new is None or len(new.co_freevars) != len(found.__code__.co_freevars):
            return False
    for found in functions:
        found.__code__ = changes[found.__code__]
    return True
