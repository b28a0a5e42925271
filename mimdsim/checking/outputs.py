"""The results of a training step, compared with the interpreter: loss, scores, gradients, weights, moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.checking.lockstep import wrong_elements
from mimdsim.checking.provenance import last_writer
from mimdsim.compiler import Compiled
from mimdsim.execution import Executor
from mimdsim.execution.poison import NO_NUMBER
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
