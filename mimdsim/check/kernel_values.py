"""Inputs of a kernel, the results of its reference, and the first wrong element."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, suggest
from mimdsim.check.last_writer import last_writer, way_to
from mimdsim.check.user_code import called
from mimdsim.program import Program
from mimdsim.program.rows import describe_box

RELATIVE_TOLERANCE = 1e-5
OFF, MANY = 0.01, 0.01  # of an element; of all elements


def draw_inputs(
    program: Program,
    inputs: Callable[[np.random.Generator], dict[str, Any]] | None,
    draw: np.random.Generator,
    kind: int,
) -> dict[str, np.ndarray]:
    """Arrays by input name: those that `inputs(draw)` gives, and the others at random, one kind after another: about 1
    to either side; small whole numbers with many zeros and ties; from 0 to 1; about 100 to either side; all below -1.

    Raises DescriptionError for an unknown name, another shape, numbers that the input cannot hold, and for whole
    numbers that are not given.
    """
    given = {} if inputs is None else called("inputs(rng)", inputs, draw)
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
            made[name] = _random(held.shape, draw, kind).astype(held.dtype)
        else:
            problems.append(
                f"input '{name}' holds {held.dtype}: define inputs(rng) that returns it, because only you know which "
                "numbers are indices or counts"
            )
    if problems:
        raise DescriptionError("inputs(rng)", problems)
    return made


def _random(shape: tuple[int, ...], draw: np.random.Generator, kind: int) -> np.ndarray:
    normal = draw.standard_normal(shape)
    kinds = (
        lambda: normal,
        lambda: draw.integers(-2, 3, shape),
        lambda: draw.random(shape),
        lambda: 100 * normal,
        lambda: -1 - 3 * np.abs(normal),
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
    returned = called(what, reference, **_arguments(what, reference, given))
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
    if problems:
        raise DescriptionError(what, problems)
    return wanted


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


def first_wrong(
    program: Program, outputs: dict[str, np.ndarray], wanted: dict[str, np.ndarray], tolerance: float, whose: str
) -> str:
    """The first wrong element of the first wrong output, with the vertex that wrote it; '' if all are right."""
    for name, held in outputs.items():
        expected = wanted[name]
        if held.dtype.kind == "f":
            scale = float(np.max(np.abs(expected), initial=0.0)) or 1.0
            wrong = ~(np.abs(held.astype(np.float64) - expected) <= tolerance * scale)
        else:
            wrong = held != expected
        if wrong.any():
            where = tuple(np.argwhere(wrong)[0].tolist())
            variable = program.outputs[name]
            box = describe_box(variable, np.array([[index, index + 1] for index in where]))
            one, other = _told_apart(held[where], expected[where])
            return (
                f"{last_writer(program, variable, where)} leaves {box} = {one}, {whose} "
                f"{other}; {int(wrong.sum()):,} of {wrong.size:,} elements of '{name}' are wrong"
                f"{way_to(program, variable)}"
            )
    return ""


def _told_apart(one: Any, other: Any) -> tuple[str, str]:
    """Two numbers in seven digits, or in as many as tell them apart."""
    for digits in (7, 9, 17):
        said = [f"{each:.{digits}g}" if isinstance(each, np.floating) else str(each) for each in (one, other)]
        if said[0] != said[1]:
            break
    return said[0], said[1]


def hidden_by_largest(outputs: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> str:
    """What a tolerance of the largest element does not see: many elements far off by their own size; '' if few are."""
    for name, held in outputs.items():
        if held.dtype.kind != "f":
            continue
        expected = wanted[name].astype(np.float64)
        off = np.abs(held - expected) > OFF * np.abs(expected)
        if off.sum() > MANY * off.size:
            where = tuple(np.argwhere(off)[0].tolist())
            one, other = _told_apart(held[where], wanted[name][where])
            return (
                f"; but {int(off.sum()):,} of {off.size:,} elements of '{name}' are off by over {OFF:.0%} of their own "
                f"size, which the largest, {np.abs(expected).max():.7g}, hides: {name}{list(where)} is {one}, the "
                f"reference gives {other}"
            )
    return ""
