"""Values compared with what they should be: which elements are wrong, and which vertex left the first of them there.

What is compared at the end of a training step: loss, scores, gradients, weights, moments (`wrong_output`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mimdsim.base.errors import near
from mimdsim.base.units import distinct_texts
from mimdsim.compiler import Compiled
from mimdsim.compiler.merge import touched
from mimdsim.execution import Executor
from mimdsim.execution.scratch import NO_NUMBER
from mimdsim.graph import Graph
from mimdsim.program import Program, Superstep
from mimdsim.program.codelet import now_shift
from mimdsim.program.records import vertex_name
from mimdsim.program.vertex_boxes import boxes_of, describe_element

RELATIVE_TOLERANCE = 1e-5
LEAST = 1e-8  # values all below this are the rounding remains of sums that cancel
ROUNDING = 4 * 2.0**-24  # relative to a number that a small change is added to
MOST_NAMED = 8  # supersteps on the way to a value


def wrong_elements(held: np.ndarray, expected: np.ndarray, scale: float = 0.0, term: float = 0.0) -> np.ndarray:
    """bool: which elements are off by more than RELATIVE_TOLERANCE of the largest (or of `scale`), and of a `term` of
    theirs, or not numbers."""
    if held.dtype.kind != "f":
        return np.asarray(held != expected)
    largest = float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))) or 1.0
    with np.errstate(invalid="ignore"):
        near = (np.abs(held - expected) <= RELATIVE_TOLERANCE * max(scale or largest, term, LEAST)) | (held == expected)
    return np.asarray(~(near | (np.isnan(held) & np.isnan(expected))))


def first_mismatch(
    variable: str, held: np.ndarray, expected: np.ndarray, wrong: np.ndarray, whose: str = "should be"
) -> tuple[tuple[int, ...], str, str]:
    """Where the first wrong element is; what is there and what should be, in enough digits; how many are wrong."""

    def say(number: Any, digits: int) -> str:
        return f"{number:.{digits}g}" if isinstance(number, np.floating) else str(number)

    where = tuple(np.argwhere(wrong)[0].tolist())
    one, other = distinct_texts((held[where], expected[where]), say, (7, 9, 17))
    shown = f"= {one}"
    if NO_NUMBER.found(held)[where]:  # which a float may become in other ways too
        shown += " (never written, or made by 0 / 0 or the like)" if held.dtype.kind == "f" else " (never written)"
    amount = f"{int(wrong.sum()):,} of {wrong.size:,} elements"
    return where, f"{describe_element(variable, where)} {shown}, {whose} {other}", amount


def difference(
    executor: Executor, superstep: Superstep, variable: str, expected: np.ndarray, t: int, term: float = 0.0
) -> str | None:
    """The difference of a variable from its expected value after a superstep in words, with the vertex that writes it.
    term: the largest one of a sum, which rounds by it."""
    held = executor.arrays[variable]
    if held.shape != expected.shape:
        return f"superstep '{superstep.name}': '{variable}' has shape {held.shape}, should be {expected.shape}"
    wrong = wrong_elements(held, expected, term=term)
    if not wrong.any():
        return None
    where, left, amount = first_mismatch(variable, held, expected, wrong)
    vertex = _writer(executor.program, superstep, variable, where, t)
    vertex = vertex or "no vertex of it (a copy, or an element that is never written)"
    return f"superstep '{superstep.name}', timestep {t}: {vertex} leaves {left}; {amount} are wrong"


def no_terms(_value: str) -> float:
    """Of values that are no sums."""
    return 0.0


def wrong_output(
    subject: Executor,
    compiled: Compiled,
    meaning: dict[str, Any],
    inputs: dict[str, np.ndarray],
    term_of: Callable[[str], float] = no_terms,
) -> tuple[int, str | None]:
    """(outputs compared, the first wrong one in words, None if none is). term_of: the largest term of a sum.

    What is changed in place (weights, moments) is compared by its change, which may be far smaller than itself.
    """
    program, count = subject.program, 0
    for value in compiled.program.outputs:  # sums that outputs of the graph are made of among them
        count += 1
        name = program.outputs[value]
        held, expected = subject.arrays[name], np.asarray(meaning[value])
        if held.shape != expected.shape:  # a loss per sample, reported as its mean
            held, expected = held.mean(axis=0, keepdims=True), expected.reshape(1)
        if held.dtype.kind == "f" and (nan := np.isnan(expected)).any():
            return count, (
                f"the interpreter's output '{value}' is NaN in {int(nan.sum()):,} of {nan.size:,} elements: correct "
                "its equation; of an optimiser, also say in its form which states are never negative"
            )
        doubt = _doubt(compiled.graph, value, meaning, term_of)
        wrong = _wrong(held, expected, _start(compiled, value, inputs), term_of(value), doubt)
        if wrong.any():
            where, left, amount = first_mismatch(name, held, expected, wrong)
            writer = last_writer(program, name, where)
            return count, f"{writer} leaves output '{value}' wrong: {left} (the interpreter's); {amount} are wrong"
    return count, None


def _start(compiled: Compiled, value: str, inputs: dict[str, np.ndarray]) -> np.ndarray | None:
    """The previous value of an output that is changed in place; None if it is newly made."""
    variable = compiled.program.outputs[value]
    given = next((name for name, held in compiled.program.inputs.items() if held == variable), None)
    return inputs.get(given) if given is not None else None


def _doubt(graph: Graph, value: str, meaning: dict[str, Any], term_of: Callable[[str], float]) -> float:
    """How many times further than others an update may be off: a gradient whose terms cancel is as uncertain."""
    op = graph.producer(value)
    if op is None or op.phase != "update" or len(op.inputs) < 2:
        return 1.0
    gradient = op.inputs[1]
    largest = float(np.abs(meaning[gradient]).max(initial=0.0))
    return max(1.0, term_of(gradient) / largest) if largest else 1.0


def _wrong(
    held: np.ndarray, expected: np.ndarray, start: np.ndarray | None, term: float = 0.0, doubt: float = 1.0
) -> np.ndarray:
    if start is None or held.dtype.kind != "f":
        return wrong_elements(held, expected, term=term)
    change = doubt * float(np.abs(expected - start).max(initial=0.0))
    rounded: np.ndarray = np.abs(held - expected) <= ROUNDING * np.abs(expected)
    # left as it was is not rounded: what changes by two units in the last place cannot come to none
    rounded &= (held != start) | (np.abs(expected - start) < 2 * np.spacing(np.abs(start)))
    return np.asarray(wrong_elements(held, expected, change, term) & ~rounded)


def misfit(executor: Executor) -> str:
    """The first variable with a whole number that its bytes cannot hold, in words; '' if there is none."""
    for name, variable in executor.program.variables.items():
        held = executor.arrays[name]
        bits = 8 * variable.item_bytes
        if held.dtype.kind in "iu" and variable.item_bytes < held.dtype.itemsize and held.size:
            most, least = int(held.max()), int(held.min())
            wrong = most if most >= 1 << bits else least
            if most >= 1 << bits or least < -(1 << bits - 1):
                return (
                    f"variable '{name}' holds {wrong:,}, which the {variable.item_bytes} bytes it is stored in cannot"
                )
    return ""


def interface_problems(program: Program, compiled: Program) -> Iterator[str]:
    """Inputs and outputs of the compiled program that are missing or have another format, in words."""
    if program is compiled:
        return
    for kind, ours, theirs in (
        ("input", program.inputs, compiled.inputs),
        ("output", program.outputs, compiled.outputs),
    ):
        for value, name in theirs.items():
            if value not in ours:
                yield f"{kind} '{value}' of the compiled program is missing{near(value, ours)}; add it to the {kind}s"
                continue
            held, known = program.variables[ours[value]], compiled.variables[name]
            what = f"{kind} '{value}', held in '{held.name}',"
            if held.shape != known.shape:
                yield f"{what} has shape {list(held.shape)}, the compiled program's has {list(known.shape)}"
            elif known.persistent and not held.persistent:
                yield f"{what} does not persist: the next training step would find other values; make it persistent"
    read_by = {name: value for value, name in compiled.inputs.items()}
    for value, name in compiled.outputs.items():
        given = read_by.get(name)
        if given in program.inputs and program.outputs.get(value, program.inputs[given]) != program.inputs[given]:
            yield (
                f"output '{value}' is left in '{program.outputs[value]}', but the next training step begins with what "
                f"'{program.inputs[given]}' holds (input '{given}'): leave it there, as the compiled program does"
            )
    for name, known in compiled.variables.items():
        held = program.variables.get(name, known)
        if (held.dtype, held.item_bytes) != (known.dtype, known.item_bytes):
            yield (
                f"variable '{name}' is {held.dtype} in {held.item_bytes} bytes, the compiled program's is "
                f"{known.dtype} in {known.item_bytes}, for which its codelets and costs are made: give a variable of "
                "another format another name"
            )


# ---- where a value comes from


def last_writer(program: Program, variable: str, where: tuple[int, ...]) -> str:
    """`superstep 'sum', timestep 3: vertex 17 of Sum on tile 5`, or that nothing writes the element."""
    for superstep, t in reversed(list(program.turns())):
        if writer := _writer(program, superstep, variable, where, t):
            at = f", timestep {t}" if program.timesteps > 1 else ""
            return f"superstep '{superstep.name}'{at}: {writer}"
    return "no superstep of the program"


def _writer(program: Program, superstep: Superstep, variable: str, where: tuple[int, ...], t: int) -> str:
    """The vertex or copy of the superstep that writes an element in timestep t, '' if none does."""
    held = program.variables[variable]
    for table in superstep.tables:
        for item in table.codelet.fields:
            shift = now_shift(item.box[0])
            entry = where[0] if shift is None else held.entry(t, shift)
            if not item.writes or table.operands[item.name] != variable or entry != where[0]:
                continue
            boxes = boxes_of(table, item, held)
            element = np.array(where[len(where) - boxes.shape[1] :])
            rows = np.flatnonzero(((boxes[:, :, 0] <= element) & (element < boxes[:, :, 1])).all(axis=1))
            if len(rows):
                return vertex_name(table, int(rows[0]))
    for copy in superstep.copies:
        if copy.target == variable and (copy.target_shift is None or held.entry(t, copy.target_shift) == where[0]):
            return f"the copy of '{copy.source}'"
    return ""


def way_to(program: Program, variable: str) -> str:
    """`; made of what 'multiply 0' and 'add' write`: the supersteps that a variable's values come from, last first.

    Empty if it is made of inputs alone, by the superstep that is named anyway.
    """
    wanted, names = {variable}, []
    for superstep in reversed([superstep for superstep, _, _ in program.supersteps()]):
        reads, writes = touched(superstep)
        if not wanted.isdisjoint(writes):
            wanted |= reads
            names.append(superstep.name)
    before = [f"'{name}'" for name in dict.fromkeys(names[1:])]
    more = " and earlier ones" if len(before) > MOST_NAMED else ""
    return f"; made of what {', '.join(before[:MOST_NAMED])}{more} left" if before else ""
