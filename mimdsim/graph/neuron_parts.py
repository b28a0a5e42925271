"""From the parts of a neuron model to the two affine maps of the linear family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.graph.linear_neurons import Affine, LinearNeuron

Coefficient = Any  # a float for all neurons of a layer, or an array [neurons]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A number of a model, from `low` to `high` inclusive; one for the layer or one per neuron. link: what is trained
    in its place where it is learned (`Learned.link`)."""

    name: str
    default: float
    unit: str
    meaning: str
    low: float = -1e9
    high: float = 1e9
    link: str = "clamp"


def decay(name: str, default: float, meaning: str) -> Parameter:
    return Parameter(name=name, default=default, unit="per timestep", meaning=meaning, low=0.0, high=1.0)


def positive(name: str, default: float, unit: str, meaning: str) -> Parameter:
    return Parameter(name=name, default=default, unit=unit, meaning=meaning, low=1e-12, high=1e12)


def potential(name: str, default: float, meaning: str) -> Parameter:
    return Parameter(name=name, default=default, unit="of the potential", meaning=meaning)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Coefficients of a model with `n` states, the first the membrane potential relative to the resting potential.

    matrix n rows, drive n, constant n (none: zeros), readout n (none: the first state), offset: added to the read-out.
    zeroed: states that a reset to zero sets to `reset_value`, before the next integration, or after it ('after': the
    input of that timestep is lost). subtracts: what a reset by subtraction takes off the first state (none: the
    threshold); before the integration if subtract_decays, so that it decays, otherwise after it. subtracted: the whole
    map after a spike, where subtraction does more than that. jumps: added to the states by a spike, whatever the reset.
    """

    matrix: Sequence[Sequence[Coefficient]]
    drive: Sequence[Coefficient]
    threshold: Coefficient = 1.0
    constant: Sequence[Coefficient] = ()
    readout: Sequence[Coefficient] = ()
    offset: Coefficient = 0.0
    zeroed: tuple[int, ...] = (0,)
    zero_when: str = "before"
    reset_value: Coefficient = 0.0
    subtracts: Coefficient | None = None
    subtract_decays: bool = False
    subtracted: tuple[Any, Any, Any] | None = None
    jumps: Sequence[Coefficient] = ()


RESETS = ("zero", "subtract", "none")
WHENS = ("before", "after")  # the next integration
SUBTRACTED = ("matrix", "drive", "constant")


@dataclass(frozen=True, kw_only=True)
class Model:
    """One row of the table of models. resets: those it offers, the default first; reset_gradient: the default;
    source: what it reproduces; published: there is published code for it, see `LinearNeuron.fused`."""

    name: str
    states: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    resets: tuple[str, ...]
    parts: Callable[[dict[str, Any]], Parts]
    equation: str
    source: str
    spiking: bool = True
    reset_gradient: str = "mask"
    published: bool = False


def stacked(items: Sequence[Coefficient]) -> np.ndarray:
    """float64[len(items), width]."""
    rows = np.broadcast_arrays(*(np.atleast_1d(np.asarray(item, np.float64)) for item in items))
    return np.stack(rows)


def affine(matrix: Any, drive: Any, constant: Any) -> Affine:
    """An affine map from nested sequences of coefficients."""
    square = stacked([entry for row in matrix for entry in row]).reshape(len(matrix), len(matrix), -1)
    return Affine(matrix=square, drive=stacked(drive), constant=stacked(constant))


def parts_of(model: Model, values: dict[str, Any]) -> Parts:
    """The coefficients of a model with these parameters; raises MappingError for one that the model does not have."""
    try:
        return model.parts(values)
    except KeyError as unknown:
        known = suggest(str(unknown.args[0]), values)
        raise MappingError(
            f"neuron model '{model.name}': parts use a parameter {unknown}, which its parameters lack{known}"
        ) from None


def _misfits(parts: Parts, count: int) -> Iterator[str]:
    """What of the parts does not fit `count` states."""
    maps = [("", parts.matrix, parts.drive, parts.constant or [0.0] * count)]
    if parts.subtracted is not None:
        if len(parts.subtracted) != len(SUBTRACTED):
            yield f"subtracted has {len(parts.subtracted)} entries; give {', '.join(SUBTRACTED)}"
            return
        maps.append(("subtracted: ", *parts.subtracted))
    for where, matrix, drive, constant in maps:
        single = [key for key, each in (("matrix", matrix), ("drive", drive)) if not isinstance(each, Sized)]
        single += ["every row of matrix"] if not single and not all(isinstance(row, Sized) for row in matrix) else []
        if single:
            yield f"{where}{single[0]} must be a list, with one entry per state"
            return
        rows = [len(row) for row in matrix]
        if rows != [count] * count:
            yield f"{where}matrix has {len(rows)} rows of {', '.join(map(str, rows))}; give {count} rows of {count}"
        for name, entries in (("drive", drive), ("constant", constant)):
            if len(entries) != count:
                yield f"{where}{name} has {len(entries)} entries; give one per state"
    for name, entries in (("readout", parts.readout), ("jumps", parts.jumps)):
        if len(entries) not in (0, count):
            yield f"{name} has {len(entries)} entries; give one per state, or none"
    if parts.zero_when not in WHENS:
        yield f"zero_when is {parts.zero_when!r}{suggest(parts.zero_when, WHENS)}"
    if strange := [index for index in parts.zeroed if not 0 <= index < count]:
        yield f"zeroed has {strange[0]}; give numbers of states, 0 to {count - 1}"


def compose(
    model: Model,
    parts: Parts,
    *,
    reset: str,
    reset_by: str,
    reset_gradient: str,
    reference: float | None = None,
) -> LinearNeuron:
    """The neuron of a model with one of its resets; `reference`: the threshold that offsets are counted from, by
    default the highest. Raises MappingError, naming the model and the field, for parts that do not fit its states."""
    count = len(model.states)
    for problem in _misfits(parts, count):
        raise MappingError(f"neuron model '{model.name}' ({', '.join(model.states)}): {problem}")
    quiet = affine(parts.matrix, parts.drive, parts.constant or [0.0] * count)
    thresholds = np.atleast_1d(np.asarray(parts.threshold, np.float64))
    highest = float(thresholds.max()) if reference is None else reference
    lift = highest - thresholds
    return LinearNeuron(
        model=model.name,
        states=model.states,
        quiet=quiet,
        fired=_after_spike(parts, quiet, reset),
        readout=stacked(parts.readout or [1.0] + [0.0] * (count - 1)),
        offset=np.atleast_1d(np.asarray(parts.offset, np.float64)) + lift,
        lift=lift,
        threshold=highest,
        reset_by=reset_by,
        reset_gradient=reset_gradient,
        published=model.published,
    )


def _after_spike(parts: Parts, quiet: Affine, reset: str) -> Affine | None:
    jumps = stacked(parts.jumps) if len(parts.jumps) else None
    if reset == "none" and jumps is None:
        return None
    matrix, drive, constant = quiet.arrays
    if jumps is not None:
        constant = constant + _applied(matrix, jumps)
    if reset == "zero":
        chosen = list(parts.zeroed)
        value = np.atleast_1d(np.asarray(parts.reset_value, np.float64))
        if parts.zero_when == "before":
            constant = constant + matrix[:, chosen].sum(axis=1) * value
            matrix = _without(matrix, (slice(None), chosen))
        else:
            matrix, drive = _without(matrix, (chosen,)), _without(drive, (chosen,))
            constant = np.array(np.broadcast_to(constant, (len(drive), max(constant.shape[1], len(value)))))
            constant[chosen] = value
    elif reset == "subtract":
        if parts.subtracted is not None:
            return affine(*parts.subtracted)
        amount = parts.threshold if parts.subtracts is None else parts.subtracts
        taken = stacked([amount, *([0.0] * (len(drive) - 1))])
        constant = constant - (_applied(matrix, taken) if parts.subtract_decays else taken)
    return Affine(matrix=matrix, drive=drive, constant=constant)


def _applied(matrix: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A x for x [states, width]."""
    made: np.ndarray = (matrix * x[None]).sum(axis=1)
    return made


def _without(array: np.ndarray, index: Any) -> np.ndarray:
    """A copy with zeros at `index`."""
    copied = array.copy()
    copied[index] = 0.0
    return copied
