"""The results of a training step, compared with the interpreter: loss, scores, gradients, weights, moments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mimdsim.base.errors import near
from mimdsim.checking.lockstep import wrong_elements
from mimdsim.checking.provenance import last_writer
from mimdsim.compiler import Compiled
from mimdsim.execution import Executor
from mimdsim.execution.poison import NO_NUMBER
from mimdsim.program import Program
from mimdsim.program.vertex_boxes import describe_box

ROUNDING = 4 * 2.0**-24  # relative to a number that a small change is added to


def wrong_output(
    subject: Executor, compiled: Compiled, meaning: dict[str, Any], inputs: dict[str, np.ndarray]
) -> tuple[int, str | None]:
    """(outputs compared, the first wrong one in words, None if none is).

    What is changed in place (weights, moments) is compared by its change, which may be far smaller than itself.
    """
    program, count = subject.program, 0
    for value in compiled.graph.outputs:
        if value not in compiled.program.outputs:
            continue
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
        wrong = _wrong(held, expected, _start(compiled, value, inputs))
        if wrong.any():
            where = tuple(int(index) for index in np.argwhere(wrong)[0])
            box = describe_box(name, np.array([[index, index + 1] for index in where]))
            shown = "holds nothing that was written" if NO_NUMBER.found(held)[where] else f"is {held[where]:.7g}"
            return count, (
                f"{last_writer(program, name, where)} leaves output '{value}' wrong: {box} {shown}, should be "
                f"{expected[where]:.7g} (the interpreter's); {int(wrong.sum()):,} of {wrong.size:,} elements are wrong"
            )
    return count, None


def _start(compiled: Compiled, value: str, inputs: dict[str, np.ndarray]) -> np.ndarray | None:
    """The previous value of an output that is changed in place; None if it is newly made."""
    variable = compiled.program.outputs[value]
    given = next((name for name, held in compiled.program.inputs.items() if held == variable), None)
    return inputs.get(given) if given is not None else None


def _wrong(held: np.ndarray, expected: np.ndarray, start: np.ndarray | None) -> np.ndarray:
    if start is None or held.dtype.kind != "f":
        return wrong_elements(held, expected)
    change = float(np.abs(expected - start).max(initial=0.0))
    rounded: np.ndarray = np.abs(held - expected) <= ROUNDING * np.abs(expected)
    # left as it was is not rounded: what changes by two units in the last place cannot come to none
    rounded &= (held != start) | (np.abs(expected - start) < 2 * np.spacing(np.abs(start)))
    return wrong_elements(held, expected, change) & ~rounded


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
