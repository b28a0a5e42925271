"""Cells from equations as text, one a line, which are read and never run:

    syn = alpha * syn[t-1] + I
    mem = (beta * mem[t-1] + syn) * (1 - detach(output[t-1]))
    output = spike(mem - 1)

`x[t-1]` is what an equation made of x in the timestep before, 0 at first; I is the sum over what a layer reads, I1, I2,
... of cells with several such sums (gates), R or R1, R2, ... those over the layer's own outputs of the timestep before.
Other names are parameters, numbers or, where they are learned, one number per neuron.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, shortened, suggest
from mimdsim.graph import cells, elementwise
from mimdsim.graph.cells import OUTPUT, CellModel, Equations, Term
from mimdsim.graph.neuron_parts import Parameter

MOST_CHARACTERS, MOST_DEPTH, LIMIT = 1000, 40, 1e30
SUMS = re.compile(r"([IR])([1-9]?)")
FUNCTIONS = ("sigmoid", "tanh", "exp", "sqrt", "log", "softplus", "relu", "clamp", "spike", "detach", "damp")


class Arithmetic:
    """What the functions of equations do; operators are those of the values."""

    def __init__(self, spike: Callable[[Any], Any]):
        self.spike = spike

    sigmoid = staticmethod(cells.sigmoid)
    tanh = staticmethod(cells.tanh)
    exp = staticmethod(cells.exponential)
    sqrt = staticmethod(cells.square_root)
    log = staticmethod(cells.logarithm)
    relu = staticmethod(cells.relu)
    detach = staticmethod(cells.detached)
    damp = staticmethod(cells.damped)

    def softplus(self, x: Any) -> Any:
        """log(1 + e^x), which is x beyond 20, as PyTorch has it."""
        beyond = self.relu(x - 20.0)
        return self.log(1.0 + self.exp(x - beyond)) + beyond

    def clamp(self, x: Any, low: float, high: float) -> Any:
        """x from low to high; its gradient is 0 beyond, and 1 at either, as PyTorch's."""
        least = x + self.relu(low - x)
        return least - self.relu(least - high)


@dataclass(frozen=True)
class Equation:
    """name = expression"""

    name: str
    of: ast.expr

    def reads(self) -> Iterator[tuple[str, bool]]:
        """(name, whether that of the timestep before) of all that it reads, functions left out."""
        called = {id(node.func) for node in ast.walk(self.of) if isinstance(node, ast.Call)}
        earlier = {id(node.value) for node in ast.walk(self.of) if isinstance(node, ast.Subscript)}
        for node in ast.walk(self.of):
            if isinstance(node, ast.Name) and id(node) not in called and node.id != "t":
                yield node.id, id(node) in earlier


def _depth(node: ast.AST) -> int:
    deepest, waiting = 0, [(node, 1)]
    while waiting:
        each, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(each)]
    return deepest


def _is_step_before(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and ast.unparse(node.slice) == "t - 1"


def _problem(node: ast.expr) -> str:
    """What an expression has that equations have not; '' for nothing."""
    if isinstance(node, ast.BinOp):
        if not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            return "only + - * / stand between values"
        return _problem(node.left) or _problem(node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return _problem(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return "" if abs(node.value) < LIMIT else f"{node.value} is too large"
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name not in FUNCTIONS or node.keywords:
            return f"no function '{name}'{suggest(name, FUNCTIONS)}; there are {', '.join(FUNCTIONS)}"
        takes = {"clamp": 3, "damp": 2}.get(name, 1)
        if len(node.args) != takes:
            return f"{name} takes {takes} values, given {len(node.args)}"
        return next(filter(None, map(_problem, node.args)), "")
    if isinstance(node, ast.Name) or _is_step_before(node):
        return ""
    return f"'{shortened(ast.unparse(node))}' is not expected; write names, x[t-1], numbers, + - * / and functions"


def _read(text: str) -> Equation:
    """Raises MappingError for what is no equation."""
    name, equals, rest = text.partition("=")
    name, where = name.strip(), f"equation '{shortened(text)}'"
    if not equals or not name.isidentifier() or len(text) > MOST_CHARACTERS:
        raise MappingError(f"{where} is not 'name = expression' of up to {MOST_CHARACTERS} characters")
    try:
        made = ast.parse(rest.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise MappingError(f"{where}: what is right of '=' is no expression") from None
    problem = f"nested more than {MOST_DEPTH} deep" if _depth(made) > MOST_DEPTH else _problem(made)
    if problem:
        raise MappingError(f"{where}: {problem}")
    return Equation(name, made)


def _of_numbers(name: str, x: float, *more: float) -> float:
    """What a function makes of numbers, of which there is no gradient."""
    if name == "clamp":
        return min(max(x, more[0]), more[1])
    if name == "softplus":
        return float(np.logaddexp(0.0, x))
    known = elementwise.FUNCTIONS.get("exponential" if name == "exp" else name)
    return float(known.value(np.array(x))) if known else x


def evaluate(node: ast.expr, named: Callable[[str, bool], Any], functions: Any) -> Any:
    """The value of an expression; named: of a name, or of what it was in the timestep before."""
    if isinstance(node, ast.BinOp):
        one, other = (evaluate(each, named, functions) for each in (node.left, node.right))
        if isinstance(node.op, ast.Add):
            return one + other
        if isinstance(node.op, ast.Sub):
            return one - other
        return one * other if isinstance(node.op, ast.Mult) else one / other
    if isinstance(node, ast.UnaryOp):
        value = evaluate(node.operand, named, functions)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Call):
        given = [evaluate(each, named, functions) for each in node.args]
        name = ast.unparse(node.func)
        if all(isinstance(each, float) for each in given):
            if name == "spike":
                raise MappingError(f"'{ast.unparse(node)}' is the spike of a number; it reads a value of every neuron")
            return _of_numbers(name, *given)
        return getattr(functions, name)(*given)
    if isinstance(node, ast.Subscript):
        return named(ast.unparse(node.value), True)
    assert isinstance(node, ast.Name)
    return named(node.id, False)


def run(equations: Sequence[Equation], given: Callable[[str, bool], Any], functions: Any) -> dict[str, Any]:
    """What the equations make, by name; given: other values, and those of the timestep before."""
    made: dict[str, Any] = {}

    def named(name: str, before: bool) -> Any:
        return made[name] if name in made and not before else given(name, before)

    for each in equations:
        made[each.name] = evaluate(each.of, named, functions)
    return made


@dataclass(frozen=True)
class Written:
    """`CellModel.equations` of equations as text; states, and learned names."""

    texts: tuple[str, ...]
    states: tuple[str, ...]
    rows: tuple[str, ...]
    recurrent: bool

    def __call__(self, cell: Equations) -> dict[str, Term]:
        inputs = cell.from_inputs()
        own = cell.from_itself() if self.recurrent else ()

        def given(name: str, before: bool) -> Any:
            if before:
                return cell.before if name == OUTPUT else cell.state(name)
            if sums := SUMS.fullmatch(name):
                return (inputs if sums[1] == "I" else own)[int(sums[2] or 1) - 1]
            return cell.row(name) if name in self.rows else cell.p[name]

        try:
            made = run(equations_of(self.texts), given, Arithmetic(cell.spike))
        except ZeroDivisionError:
            raise MappingError(f"the equations of cell '{cell.model.name}' divide by 0") from None
        for name in (OUTPUT, *self.states):
            if not isinstance(made[name], Term):
                raise MappingError(f"equation '{name}' of cell '{cell.model.name}' makes a number, of no neuron")
        return {name: made[name] for name in (OUTPUT, *self.states)}


def _spikes(node: ast.expr, by_name: Mapping[str, ast.expr], times: bool) -> bool:
    """Whether an expression is a spike, or with `times` a product with one."""
    if isinstance(node, ast.Name) and node.id in by_name:
        rest = {name: each for name, each in by_name.items() if name != node.id}
        return _spikes(by_name[node.id], rest, times)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and times:
        return _spikes(node.left, by_name, times) or _spikes(node.right, by_name, times)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("damp", "detach"):
        return _spikes(node.args[0], by_name, times)
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "spike"


@lru_cache(maxsize=64)
def equations_of(texts: tuple[str, ...]) -> tuple[Equation, ...]:
    """Raises MappingError for what is no equation, for names that are given twice, and where there is no output."""
    found = tuple(map(_read, texts))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise MappingError(f"two equations are of '{name}'; give what is made a name of its own")
        if SUMS.fullmatch(name) or name in FUNCTIONS or name == "t":
            raise MappingError(f"an equation is of '{name}', which has a meaning of its own; take another name")
    if OUTPUT not in names:
        raise MappingError(f"no equation is of '{OUTPUT}', what the layer sends{suggest(OUTPUT, names)}")
    return found


def cell_from_equations(
    name: str,
    texts: Sequence[str],
    parameters: Mapping[str, float],
    learned: Mapping[str, float],
    shared: Sequence[str] = (),
    recurrent_of: str = OUTPUT,
) -> CellModel:
    """A cell of the equations; learned: parameters of which every neuron trains its own, and where they start; shared:
    those of them that are one number for the layer; recurrent_of: the equation of what `R` sums over, a timestep later.

    Raises MappingError, naming the equation, for what cannot be read and for names that nothing has.
    """
    equations = equations_of(tuple(texts))
    names, made, used = [each.name for each in equations], set[str](), set[str]()
    sums: dict[str, set[int]] = {"I": set(), "R": set()}
    states = [recurrent_of] if recurrent_of in names and recurrent_of != OUTPUT else []
    for each in equations:
        for read, before in each.reads():
            if before:
                if read not in names:
                    raise MappingError(f"equation '{each.name}' reads {read}[t-1], of which there is no equation")
                states += [read] if read != OUTPUT and read not in states else []
            elif found := SUMS.fullmatch(read):
                sums[found[1]].add(int(found[2] or 1))
            elif read in parameters or read in learned:
                used.add(read)
            elif read not in made:
                late = "before that is made; order them, or write [t-1]" if read in names else "that nothing has"
                known = suggest(read, [*made, *parameters, *learned])
                raise MappingError(f"equation '{each.name}' reads '{read}' {late}{known if read not in names else ''}")
        made.add(each.name)
    if recurrent_of not in names:
        raise MappingError(
            f"recurrent_of names '{recurrent_of}', of which there is no equation{suggest(recurrent_of, names)}"
        )
    if recurrent_of != OUTPUT and not sums["R"]:
        raise MappingError(f"recurrent_of = '{recurrent_of}', and no equation reads R, a sum over it: leave it out")
    gates = max([1, *sums["I"], *sums["R"]])
    if not sums["I"] or (unread := [at for at in range(1, gates + 1) if at not in sums["I"] | sums["R"]]):
        raise MappingError(
            f"no equation reads {'I' if not sums['I'] else f'I{unread[0]}'}, a sum of what the layer reads"
        )
    both = {**parameters, **learned}
    if idle := [each for each in both if each not in used or each in names]:
        why = "the name of an equation" if idle[0] in names else "read by no equation"
        raise MappingError(f"parameter '{idle[0]}' is {why}; leave it out, or give it another name")
    by_name = {each.name: each.of for each in equations}
    about = (
        Parameter(name=key, default=value, unit="", meaning="of its equations", low=-LIMIT, high=LIMIT)
        for key, value in both.items()
    )
    return CellModel(
        name=name,
        gates=gates,
        equations=Written(tuple(texts), tuple(states), tuple(learned), bool(sums["R"])),
        equation="; ".join(texts),
        source="the workload's own equations",
        recurrent=bool(sums["R"]),
        recurrent_of=recurrent_of,
        states=tuple(states),
        parameters=tuple(about),
        rows=tuple(learned),
        shared=tuple(shared),
        spiking=_spikes(by_name[OUTPUT], by_name, False),
        sparse=_spikes(by_name[OUTPUT], by_name, True),
        reads_itself=any((OUTPUT, True) in each.reads() for each in equations),
    )
