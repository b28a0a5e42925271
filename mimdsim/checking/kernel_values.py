"""Inputs of a kernel, the results of its reference, and the first wrong element."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, suggest
from mimdsim.base.user_code import call_users
from mimdsim.checking.comparison import first_mismatch, last_writer, way_to
from mimdsim.execution.execute import HALF_BYTES
from mimdsim.program import Program, Variable

KINDS_OF_DRAWS = 5  # the first of `_random`, each compared strictly too
OFF, MANY = 0.01, 0.01  # of an element; of all elements
ROUNDINGS = 4  # assumed: of numbers as large as the largest, in an element that is all that is left of them


def draw_inputs(
    program: Program,
    inputs: Callable[[np.random.Generator], dict[str, Any]] | None,
    draw: np.random.Generator,
    kind: int,
) -> dict[str, np.ndarray]:
    """Arrays by input name: those that `inputs(draw)` gives, and the others at random, one kind after another: about 1
    to either side; small whole numbers with many zeros and ties; from 0 to 1; about 100 to either side; all below -1;
    then far from zero; every other row below zero; near the largest half, or 10,000; mostly zeros.

    Raises DescriptionError for an unknown name, another shape, numbers that the input cannot hold, and for whole
    numbers that are not given.
    """
    given = {} if inputs is None else call_users("inputs(rng)", inputs, draw)
    if not isinstance(given, dict):
        raise DescriptionError("inputs(rng)", [f"must return a dict of arrays, returned {type(given).__name__}"])
    problems = [f"no input '{name}'{suggest(name, program.inputs)}" for name in given if name not in program.inputs]
    made: dict[str, np.ndarray] = {}
    for name, variable in program.inputs.items():
        held = program.variables[variable]
        if name in given:
            value = np.asarray(given[name])
            if problem := _misfit(name, value, held.shape, np.dtype(held.dtype)):
                problems.append(problem)
            made[name] = value
        elif np.dtype(held.dtype).kind == "f":
            largest = 65504.0 if held.item_bytes == HALF_BYTES else 1e4
            made[name] = _random(held.shape, draw, kind, largest).astype(held.dtype)
        else:
            problems.append(
                f"input '{name}' holds {held.dtype}: define inputs(rng) that returns it, because only you know which "
                "numbers are indices or counts"
            )
    if problems:
        raise DescriptionError("inputs(rng)", problems)
    return made


def _random(shape: tuple[int, ...], draw: np.random.Generator, kind: int, largest: float) -> np.ndarray:
    normal = draw.standard_normal(shape)
    kinds = (
        lambda: normal,
        lambda: draw.integers(-2, 3, shape),
        lambda: draw.random(shape),
        lambda: 100 * normal,
        lambda: -1 - 3 * np.abs(normal),
        lambda: 50 + normal,
        lambda: np.abs(normal) * np.where(np.arange(shape[0]) % 2, -1, 1).reshape(-1, *[1] * (len(shape) - 1)),
        lambda: largest * draw.uniform(-0.95, 0.95, shape),
        lambda: normal * (draw.random(shape) < 0.1),
    )
    return np.asarray(kinds[kind % len(kinds)]())


def _misfit(name: str, value: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    if value.shape != shape:
        return f"input '{name}' has shape {value.shape}, the program takes {shape}"
    if value.dtype.kind not in "fiub":
        return f"input '{name}' is {value.dtype}, the program takes {dtype}"
    if dtype.kind != "f" and not np.array_equal(value.astype(dtype), value):
        return f"input '{name}' has numbers that {dtype} cannot hold"
    return ""


def expected_outputs(
    program: Program, reference: Callable[..., Any], given: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The reference's outputs by name; raises DescriptionError if they do not fit."""
    what = f"{getattr(reference, '__name__', 'reference')}({', '.join(program.inputs)})"
    returned = call_users(what, reference, **_arguments(what, reference, given))
    outputs = tuple(program.outputs)
    if not isinstance(returned, dict):
        if len(outputs) != 1:
            raise DescriptionError(what, [f"must return a dict of the outputs {', '.join(outputs)} by name"])
        returned = {outputs[0]: returned}
    problems = [f"returns no output '{name}'" for name in outputs if name not in returned]
    problems += [
        f"returns '{name}', which is not an output{suggest(name, outputs)}" for name in returned if name not in outputs
    ]
    wanted = {name: np.asarray(returned[name]) for name in outputs if name in returned}
    for name, value in wanted.items():
        shape = program.variables[program.outputs[name]].shape
        if value.shape != shape:
            problems.append(f"output '{name}' has shape {value.shape}, the program's has {shape}")
        elif value.dtype.kind not in "fiub":
            problems.append(f"output '{name}' is {value.dtype}, not numbers")
        elif not np.isfinite(value).all():
            at = tuple(np.argwhere(~np.isfinite(value))[0].tolist())
            problems.append(f"output '{name}' is {value[at]} at {list(at)}: give inputs for which it is a number")
        elif problem := _beyond(name, value, program.variables[program.outputs[name]]):
            problems.append(problem)
    if problems:
        raise DescriptionError(what, problems)
    return wanted


def _beyond(name: str, value: np.ndarray, held: Variable) -> str:
    """What of a reference's output its variable cannot hold, in words, or ''."""
    kind = np.dtype("float16" if held.dtype == "float32" and held.item_bytes == HALF_BYTES else held.dtype)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            lost = np.isinf(value.astype(np.float64).astype(kind))
        least = np.finfo(kind).smallest_normal
        under = (value != 0) & (np.abs(value) < float(least))
        if value.size and under.sum() == np.count_nonzero(value) > 0:
            lost = under
        said = f"{kind} holds numbers from {float(least):.3g} to {float(np.finfo(kind).max):.3g}"
    elif kind.kind in "iu":
        information = np.iinfo(kind)
        lost = (value < information.min) | (value > information.max) | (value != np.floor(value))
        said = f"{kind} holds whole numbers from {information.min:,} to {information.max:,}"
    else:
        return ""
    if not lost.any():
        return ""
    at = tuple(np.argwhere(lost)[0].tolist())
    return (
        f"output '{name}' is {value[at]:.7g} at {list(at)}, but {said}: correct the reference, or give inputs for "
        "which it stays within"
    )


def _arguments(what: str, reference: Callable[..., Any], given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs that the reference has parameters for."""
    parameters = inspect.signature(reference).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return given
    wanted = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    missing = [one.name for one in wanted if one.name not in given and one.default is one.empty]
    if missing:
        known = ", ".join(given) or "none"
        raise DescriptionError(
            what, [f"parameter '{name}' is not an input of the program; inputs: {known}" for name in missing]
        )
    return {one.name: given[one.name] for one in wanted if one.name in given}


def floor_of(program: Program, given: dict[str, np.ndarray]) -> float:
    """How far an output of zeros may be off: ROUNDINGS of numbers as large as the largest input (or 1)."""
    numbers = [each for each in given.values() if each.dtype.kind == "f" and each.size]
    largest = max((float(np.abs(each.astype(np.float64)).max()) for each in numbers), default=1.0)
    return ROUNDINGS * _rounding(program) * largest


def _rounding(program: Program) -> float:
    """Relative, in the coarsest format of the outputs."""
    held = [program.variables[variable] for variable in program.outputs.values()]
    return 2.0**-11 if any(each.item_bytes == HALF_BYTES and each.dtype.startswith("f") for each in held) else 2.0**-24


def first_wrong(
    program: Program,
    outputs: dict[str, np.ndarray],
    wanted: dict[str, np.ndarray],
    tolerance: float,
    whose: str,
    floor: float = 0.0,
) -> str:
    """The first wrong element of the first wrong output, with the vertex that wrote it; '' if all are right.

    tolerance: of floats, relative to the largest of an output, of which at most MANY may be off by OFF of their own
    size; floor: what an output that must be all zeros may be off.
    """
    for name, held in outputs.items():
        expected = wanted[name]
        how = ""
        if held.dtype.kind == "f":
            away, size = np.abs(held.astype(np.float64) - expected), np.abs(expected.astype(np.float64))
            largest = float(size.max(initial=0.0))
            wrong = ~(away <= (tolerance * largest if largest or not tolerance else floor))
            hidden = away > np.maximum(OFF * size, ROUNDINGS * _rounding(program) * largest)
            if tolerance and largest and not wrong.any() and hidden.sum() > MANY * hidden.size:
                wrong = hidden
                how = f", off by over {OFF:.0%} of their own size, which the largest, {largest:.7g}, hides"
        else:
            wrong = held != expected
        if wrong.any():
            variable = program.outputs[name]
            where, left, amount = first_mismatch(variable, held, expected, wrong, whose)
            return (
                f"{last_writer(program, variable, where)} leaves {left}; {amount} of '{name}' are wrong{how}"
                f"{way_to(program, variable)}"
            )
    return ""
