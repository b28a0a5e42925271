"""Arithmetic element by element, of which cells are made: functions of one matrix, sums and products of two, columns.

The functions of one matrix are those whose derivative follows from their value, which is all that is then stashed.
They are computed in float64 and rounded once: near where they saturate, the last bit of a value is all of a derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.records import (
    Backward,
    OpDef,
    Operation,
    Outputs,
    Value,
    like,
    no_flops,
    per_element,
    pulled_back_by,
    shaped,
)

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Function:
    """value(x), and derivative(y) at y = value(x); flops of each, as instructions of a library count them."""

    value: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    flops: int


def _rounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), by an exponential that cannot overflow."""
    small = np.exp(-np.abs(x))
    result: Array = np.where(x < 0, small, 1.0) / (1.0 + small)
    return result


FUNCTIONS = {
    "sigmoid": Function(value=_rounded(_sigmoid), derivative=lambda y: y * (1 - y), flops=4),
    "tanh": Function(value=_rounded(np.tanh), derivative=lambda y: 1 - y * y, flops=4),
    "exponential": Function(value=_rounded(np.exp), derivative=lambda y: y, flops=1),
    "sqrt": Function(value=_rounded(np.sqrt), derivative=lambda y: y.dtype.type(0.5) / y, flops=1),
    "log": Function(value=_rounded(np.log), derivative=lambda y: _rounded(np.exp)(-y), flops=1),
    "reciprocal": Function(value=_rounded(lambda x: 1 / x), derivative=lambda y: -y * y, flops=1),
    "relu": Function(value=lambda x: np.maximum(x, x.dtype.type(0)), derivative=lambda y: y > 0, flops=1),
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """scale * x + shift."""

    scale: float
    shift: float = 0.0


def _along(line: Line, x: Array) -> tuple[Array]:
    scaled = x if line.scale == 1 else x * x.dtype.type(line.scale)
    return (scaled + x.dtype.type(line.shift) if line.shift else scaled.copy(),)


def scaled(build: Backward, op: Operation, gradient: str, factor: float, name: str) -> str:
    """A gradient times a number; itself times one."""
    if factor == 1:
        return gradient
    return build.one("affine", (gradient,), name, layer=op.layer, attributes=Line(scale=factor))


def _times_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    one, other = op.inputs
    made = (
        build.one("times", (gradient, build.saved(factor)), f"d.{of}", layer=op.layer)
        for of, factor in ((one, other), (other, one))
    )
    return tuple(made)


def _subtract_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    return gradient, scaled(build, op, gradient, -1.0, f"d.{op.inputs[1]}")


Parts = int | tuple[int, ...]  # of columns: so many equal ones, or how wide each is


def _widths(parts: Parts, columns: int) -> tuple[int, ...]:
    return (columns // parts,) * parts if isinstance(parts, int) else parts


def _parts(values: tuple[Value, ...], parts: Parts) -> Outputs:
    rows, columns = values[0].shape
    widths = enumerate(_widths(parts, columns))
    return tuple((str(part), Value(name="", shape=(rows, width))) for part, width in widths)


def _split(parts: Parts, x: Array) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(_widths(parts, x.shape[1]))[:-1], axis=1))


def _split_vjp(build: Backward, op: Operation, *gradients: str | None) -> tuple[str | None, ...]:
    """What no gradient comes to is zero: nothing times one that there is."""
    known = next(each for each in gradients if each is not None)
    nothing = Line(scale=0.0)
    every = tuple(
        each or build.one("affine", (known,), f"{op.layer}.nothing", layer=op.layer, attributes=nothing)
        for each in gradients
    )
    return (build.one("join_columns", every, f"d.{op.inputs[0]}", layer=op.layer, attributes=op.attributes),)


def _join_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    widths = tuple(build.forward_value(name).shape[1] for name in op.inputs)
    names = tuple(f"d.{name}" for name in op.inputs)
    return build.add("split_columns", (gradient,), names[0], layer=op.layer, attributes=widths, names=names)


def _function_gradient(function: str, gradient: Array, y: Array) -> tuple[Any]:
    return (gradient * FUNCTIONS[function].derivative(y),)


ELEMENTWISE = (
    OpDef(
        name="function",  # attributes: a name of FUNCTIONS
        shapes=like(0),
        evaluate=lambda function, x: (FUNCTIONS[function].value(x),),
        vjp=pulled_back_by("function_gradient", "d.{input}", -1),
        flops=lambda values, function: per_element(FUNCTIONS[function].flops)(values, None),
    ),
    OpDef(name="function_gradient", shapes=like(0), evaluate=_function_gradient, flops=per_element(3)),
    OpDef(name="times", shapes=like(0), evaluate=lambda _, a, b: (a * b,), vjp=_times_vjp, flops=per_element(1)),
    OpDef(name="subtract", shapes=like(0), evaluate=lambda _, a, b: (a - b,), vjp=_subtract_vjp, flops=per_element(1)),
    OpDef(
        name="affine",  # attributes: a Line
        shapes=like(0),
        evaluate=_along,
        vjp=lambda build, op, gradient: (scaled(build, op, gradient, op.attributes.scale, f"d.{op.inputs[0]}"),),
        flops=lambda values, line: per_element((line.scale != 1) + (line.shift != 0))(values, line),
    ),
    OpDef(
        name="rescale_gradient",  # the same value; attributes: what its gradient is multiplied by, 0: none goes back
        shapes=like(0),
        evaluate=lambda _, x: (x.copy(),),
        vjp=lambda build, op, gradient: (
            scaled(build, op, gradient, op.attributes, f"d.{op.inputs[0]}") if op.attributes else None,
        ),
        flops=no_flops,
        recomputed=True,
    ),
    OpDef(
        name="split_columns",  # attributes: Parts
        shapes=_parts,
        evaluate=_split,
        vjp=_split_vjp,
        flops=no_flops,
    ),
    OpDef(
        name="join_columns",  # attributes: what the parts are of those of split_columns, None for values side by side
        shapes=shaped(lambda values, _: (values[0].shape[0], sum(each.shape[1] for each in values))),
        evaluate=lambda _, *parts: (np.concatenate(parts, axis=1),),
        vjp=_join_vjp,
        flops=no_flops,
    ),
    OpDef(
        name="repeat_row",  # one number per neuron for every sample; attributes: how many rows
        shapes=shaped(lambda values, rows: (rows, values[0].shape[1])),
        evaluate=lambda rows, row: (np.broadcast_to(row, (rows, row.shape[1])).copy(),),
        vjp=lambda build, op, gradient: (build.one("bias_gradient", (gradient,), f"d.{op.inputs[0]}", layer=op.layer),),
        flops=no_flops,
        recomputed=True,
    ),
)
