"""All one-place changes of a source file: constants, operators, min and max, bounds, conditions, arguments, statements.

What only people read is left alone: docstrings, messages (f-strings and everything in a `raise`), annotations and
`__all__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitXor: ast.BitAnd,
}  # fmt: skip
EXTREMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin",
}  # fmt: skip
SYMMETRIC = (*EXTREMES, "gcd", "lcm", "logical_and", "logical_or", "array_equal")  # in two arguments
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change: bytes `start` to `stop` of the file become `after`. block: the line its innermost block begins on, or
    0 outside functions, where `names` are what the statement defines."""

    path: str
    line: int
    operator: str
    block: int
    names: tuple[str, ...]
    start: int
    stop: int
    before: str
    after: str

    @property
    def package(self) -> str:
        parts = Path(self.path).parts
        return parts[1] if len(parts) > 2 else "commands"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.stop :]


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    source = path.read_bytes()
    tree = ast.parse(source)
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    found = []
    for node, block, names in _nodes(tree.body, 0, ()):
        for operator, at, after in _changes(node):
            start = starts[at.lineno - 1] + at.col_offset
            stop = starts[at.end_lineno - 1] + at.end_col_offset
            before = source[start:stop].decode()
            place = {"path": str(path.relative_to(root)), "line": at.lineno, "block": block, "names": names}
            found.append(Mutant(operator=operator, start=start, stop=stop, before=before, after=after, **place))
    return found


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statement lists of a statement."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
            yield body
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _nodes(body: list[ast.stmt], block: int, names: tuple[str, ...]) -> Iterator[tuple[ast.AST, int, tuple[str, ...]]]:
    """Nodes that may change, with the block they are in and the names that a statement outside functions defines."""
    for statement in body:
        if isinstance(statement, ast.Raise | ast.Import | ast.ImportFrom | ast.Assert):
            continue
        defined = names if block else (*names, *_defined(statement))
        if "__all__" in defined:
            continue
        yield statement, block, defined
        heads = [part for part in ast.iter_child_nodes(statement) if not isinstance(part, ast.stmt)]
        if isinstance(statement, ast.AnnAssign):
            heads = [statement.value] if statement.value else []
        if isinstance(statement, FUNCTIONS):
            defaults = statement.args
            heads = [*statement.decorator_list, *defaults.defaults, *filter(None, defaults.kw_defaults)]
        for head in heads:
            if not isinstance(head, ast.ExceptHandler | ast.match_case):
                yield from ((node, block, defined) for node in _expressions(head))
        for inner in blocks_of(statement):
            within = inner[0].lineno if block or isinstance(statement, FUNCTIONS) else 0
            yield from _nodes(inner, within, defined)


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name)]


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr):
        return
    yield node
    for part in ast.iter_child_nodes(node):
        yield from _expressions(part)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """(operator, what is replaced, text) of each change of one node."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            yield "constant", node, f"({value + 1})"
            if value:
                yield "constant", node, f"({value - 1})"
                yield "constant", node, f"({value * 2})"
        case ast.Compare(ops=[ast.cmpop() as op, *rest]):
            changed = ast.Compare(node.left, [COMPARISONS[type(op)](), *rest], node.comparators)
            yield "comparison", node, f"({ast.unparse(changed)})"
        case ast.BinOp(op=op) if type(op) in ARITHMETIC and not _text(node):
            yield "arithmetic", node, f"({ast.unparse(ast.BinOp(node.left, ARITHMETIC[type(op)](), node.right))})"
        case ast.AugAssign(op=op) if type(op) in ARITHMETIC and not _text(node.value):
            yield "arithmetic", node, ast.unparse(ast.AugAssign(node.target, ARITHMETIC[type(op)](), node.value))
            yield "statement", node, "pass"
        case ast.Name(id=name) if name in EXTREMES:
            yield "min and max", node, EXTREMES[name]
        case ast.Attribute(attr=name) if name in EXTREMES:
            yield "min and max", node, f"{ast.unparse(node.value)}.{EXTREMES[name]}"
        case ast.Slice():
            for bound in (node.lower, node.upper):
                if bound is not None and not isinstance(bound, ast.Constant):
                    yield "bound", bound, f"({ast.unparse(bound)}) + 1"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "condition", node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
        case ast.Call(args=[first, second, *rest]) if not {type(first), type(second)} & {ast.Starred}:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if ast.dump(first) != ast.dump(second) and (rest or called not in SYMMETRIC):
                yield "arguments", node, ast.unparse(ast.Call(node.func, [second, first, *rest], node.keywords))
        case ast.Expr(value=ast.Call()):
            yield "statement", node, "pass"
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield "statement", node, "pass"


def _text(node: ast.AST) -> bool:
    return any(isinstance(n, ast.JoinedStr) or isinstance(getattr(n, "value", 0), str) for n in ast.walk(node))


def users(names: tuple[str, ...], root: Path) -> set[str]:
    """Blocks (path:line) of the functions, in any module, that name what `names` define or what is defined from it."""
    assignments, functions = _names(root)
    wanted = set(names[:1])
    for _ in range(3):  # a table from a constant, a list of tables, and so on
        wanted.update(*(defined for named, defined in assignments if wanted & named))
    return {place for place, named in functions if wanted & named}


@cache
def _names(root: Path) -> tuple[list[tuple[set[str], list[str]]], list[tuple[str, set[str]]]]:
    """What each assignment of a module names and defines; what each function names, itself and its class with it."""
    assignments, functions = [], []
    for path in sorted((root / "mimdsim").rglob("*.py")):
        tree = ast.parse(path.read_bytes())
        assignments += [(_named(node), _defined(node)) for node in tree.body if _assigns(node)]
        classes = {
            id(node): outer.name for outer in ast.walk(tree) if isinstance(outer, ast.ClassDef) for node in outer.body
        }
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                named = {node.name, classes.get(id(node), node.name), *_named(node)}
                functions.append((f"{path.relative_to(root)}:{node.body[0].lineno}", named))
    return assignments, functions


def _assigns(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign)


def _named(node: ast.AST) -> set[str]:
    return {getattr(part, "id", None) or getattr(part, "attr", "") for part in ast.walk(node)} - {""}
