"""What is made of parameters before the timesteps, on tiles: weights and their gradients are worked out where the
parameters lie."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from mimdsim.codelets import delays, weight_functions
from mimdsim.codelets import recurrence_and_bias as biases
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.compiler.layout import entries_on
from mimdsim.graph import Operation
from mimdsim.graph.weight_functions import WeightFunction
from mimdsim.program import Codelet, TileMapping


def lower_delays(low: Lowering, op: Operation) -> None:
    """delayed_weights: a matrix for every age; and their gradients from the sums over the timesteps."""
    about, ages = op.attributes, tuple(f"at{age}" for age in range(op.attributes.ages))
    if op.kind == "delayed_weights":
        _make_weights(low, op, "delayed weights", delays.delayed_weights(about.ages, about.epsilon), ages, delays.GIVEN)
    else:
        codelet = delays.delayed_weights_gradient(about.ages, about.epsilon)
        _make_gradients(low, op, "delay gradients", codelet, ("dw", "ddelay"), (*delays.GIVEN, *ages))


def lower_weight_function(low: Lowering, op: Operation) -> None:
    """weight_function: of a matrix, or a row."""
    about: WeightFunction = op.attributes
    codelet, scale = weight_functions.weight_function(about), {}
    if weight_functions.scaled(about):
        scale = {"largest": _largest(low, op)}
    _make_weights(low, op, "functions of weights", codelet, ("acting",), ("w",), about.format, scale)


def _largest(low: Lowering, op: Operation) -> str:
    """The largest of all numbers of a parameter: of each tile, then of these, on the first."""
    w = low.storage[op.inputs[0]][0]
    codelet, tiles, columns = low.over_matrix(weight_functions.LARGEST, w, op.layer)
    parts = low.variable(f"{op.name}.parts", (len(tiles),), "float32", entries_on(tiles), "weights")
    columns = {**columns, "part": np.arange(len(tiles))}
    low.compute("largest weights", op, codelet, tiles, columns, {"w": w, "partial": parts}, defines=())
    home = TileMapping.on(int(tiles[0]), 0, 1)
    largest = low.variable(f"{op.name}.largest", (1,), "float32", home, "weights")
    columns, operands = {"which": np.zeros(1, np.int64)}, {"partial": parts, "largest": largest}
    low.compute("largest weight", op, weight_functions.LARGEST_OF, tiles[:1], columns, operands, defines=())
    return largest


def lower_weight_gradient(low: Lowering, op: Operation) -> None:
    """weight_function_gradient: from the sum over the timesteps."""
    codelet = weight_functions.weight_function_gradient(op.attributes)
    _make_gradients(low, op, "gradients of functions", codelet, ("dw",), ("gradient", "w"))


def lower_biases(low: Lowering, op: Operation) -> None:
    """bias_sum: of the biases of a layer; and its gradient, the same for every bias."""
    about, names = op.attributes, biases.names(op.attributes)
    if op.kind == "bias_sum":
        _make_weights(low, op, "biases", biases.bias_sum(about), ("acting",), names)
    else:
        _make_gradients(low, op, "gradients of biases", biases.bias_sum_gradient(about), names, ("gradient",))


def _make_weights(
    low: Lowering,
    op: Operation,
    stage: str,
    codelet: Codelet,
    fields: tuple[str, ...],
    given: tuple[str, ...],
    number_format: str = "",
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Of several copies of the layer each makes its share, which goes to all. more: operands beside `given`."""
    shape, role = low.values[op.outputs[0]].shape, "weights"
    made = {
        field: _like_weights(low, name, op.layer, role, number_format)
        for field, name in zip(fields, op.outputs, strict=True)
    }
    read = {field: low.storage[name][0] for field, name in zip(given, op.inputs, strict=True)}
    _compute(low, op, codelet, stage, fields[0], made | read | dict(more))
    for name in op.outputs:
        low.storage[name] = (low.on_every_copy(name, (shape[0], shape[1]), role, op.layer),)


def _make_gradients(
    low: Lowering, op: Operation, stage: str, codelet: Codelet, fields: tuple[str, ...], given: tuple[str, ...]
) -> None:
    read = {field: low.storage[name][0] for field, name in zip(given, op.inputs, strict=True)}
    made = dict(zip(fields, op.outputs, strict=True))
    for name in made.values():
        low.outputs[name] = _like_weights(low, name, op.layer, "weight gradients")
    _compute(low, op, codelet, stage, fields[0], made | read)


def _compute(low: Lowering, op: Operation, codelet: Codelet, stage: str, first: str, operands: dict[str, str]) -> None:
    """Vertices over the matrix in field `first`; those that work on boxes are told the rows."""
    matrix = operands[first]
    chosen, tiles, columns = low.over_matrix(codelet, matrix, op.layer)
    if "row_start" in codelet.columns:
        none = np.zeros_like(columns["start"])
        whole = {"row_start": none, "row_stop": none + low.variables[matrix].shape[0]}
        chosen, columns = codelet, whole | dict(columns)
    low.compute(stage, op, chosen, tiles, columns, operands)


def _like_weights(low: Lowering, name: str, layer: str, category: str, number_format: str = "") -> str:
    rows, neurons = low.values[name].shape
    low.storage[name] = (low.numbers(name, (rows, neurons), category, layer, number_format=number_format),)
    return name


RULES: Rules = {
    ("delayed_weights",): lower_delays,
    ("delayed_weights_gradient",): lower_delays,
    ("bias_sum",): lower_biases,
    ("bias_sum_gradient",): lower_biases,
    ("weight_function",): lower_weight_function,
    ("weight_function_gradient",): lower_weight_gradient,
}
