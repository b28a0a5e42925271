"""What is made of parameters before the timesteps, on tiles: weights and their gradients are worked out where the
parameters lie, coefficients with the neurons."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import derived as codelets
from mimdsim.codelets import recurrence_and_bias as biases
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.compiler.sparse.neurons import flag_threshold
from mimdsim.compiler.sparse.spikes import replica_columns
from mimdsim.graph import Operation
from mimdsim.graph.derived import WeightFunction
from mimdsim.graph.learned_constants import Coefficients, ConstantGradient, SharedRow
from mimdsim.graph.linear_neurons import RowGradient
from mimdsim.program import Codelet, Copy, TileMapping


def lower_delays(low: Lowering, op: Operation) -> None:
    """delayed_weights: a matrix for every age; and their gradients from the sums over the timesteps."""
    about, ages = op.attributes, tuple(f"at{age}" for age in range(op.attributes.ages))
    if op.kind == "delayed_weights":
        _make_weights(
            low, op, "delayed weights", codelets.delayed_weights(about.ages, about.epsilon), ages, codelets.DELAYED
        )
    else:
        codelet = codelets.delayed_weights_gradient(about.ages, about.epsilon)
        _make_gradients(low, op, "delay gradients", codelet, ("dw", "ddelay"), (*codelets.DELAYED, *ages))


def lower_weight_function(low: Lowering, op: Operation) -> None:
    """weight_function: of a matrix, or a row."""
    about: WeightFunction = op.attributes
    codelet, scale = codelets.weight_function(about), {}
    if codelets.scaled(about):
        scale = {"largest": _largest(low, op)}
    _make_weights(low, op, "functions of weights", codelet, ("acting",), ("w",), about.format, scale)


def _largest(low: Lowering, op: Operation) -> str:
    """The largest of all numbers of a parameter: of each tile, then of these, on the first."""
    w = low.storage[op.inputs[0]][0]
    parts, tiles = low.by_tile("largest weights", op, codelets.LARGEST, w, {"w": w}, "weights")
    home = TileMapping.on(int(tiles[0]), 0, 1)
    largest = low.variable(f"{op.name}.largest", (1,), "float32", home, "weights")
    columns, operands = {"which": np.zeros(1, np.int64)}, {"partial": parts, "largest": largest}
    low.compute("largest weight", op, codelets.LARGEST_OF, tiles[:1], columns, operands)
    return largest


def lower_weight_gradient(low: Lowering, op: Operation) -> None:
    """weight_function_gradient: from the sum over the timesteps."""
    codelet = codelets.weight_function_gradient(op.attributes)
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


# ---- constants that neurons learn: coefficients with the neurons, gradients back to where the constants lie


def lower_coefficients(low: Lowering, op: Operation) -> None:
    """coefficients: a row for each, where the numbers of single neurons lie."""
    about: Coefficients | SharedRow = op.attributes
    if isinstance(about, Coefficients):
        _check_uniform(about, op.layer)
    shape, (tiles, columns) = (len(op.outputs), about.neurons), low.over_row(op.layer)
    mapping, everywhere = TileMapping.split(1, tiles, columns["start"], columns["stop"]), low.by_neuron(op.layer, 1)
    own = made = low.variable(op.name, shape, "float32", mapping, "neuron states")
    given = {f"constant{index}": low.storage[name][0] for index, name in enumerate(op.inputs)}
    low.compute("coefficients", op, codelets.coefficients(about), tiles, columns, {"own": made, **given})
    if low.copies_of(op.layer) > 1:
        own = low.variable(f"{made}.copies", shape, "float32", everywhere, "neuron states")
        low.copies("share coefficients", "copy", Copy(source=made, target=own), layer=op.layer)
    for name in op.outputs:
        low.storage[name] = (own,)


def _check_uniform(about: Coefficients, layer: str) -> None:
    neuron, held = about.neuron, {place for row in about.neuron.rows for place in row}
    rows, constants = range(len(neuron.rows)), range(len(neuron.learned))
    each = [about.base(row) for row in rows] + [about.slope(row, k) for row in rows for k in constants]
    each += [
        array[at]
        for number, array in enumerate(neuron.arrays)
        for at in np.ndindex(array.shape[:-1])
        if (number, at) not in held
    ]
    if any(np.ptp(one) > 0 for one in each):
        names = ", ".join(one.name for one in neuron.learned)
        raise MappingError(
            f"layer '{layer}': {names} is learned, and another constant of model '{neuron.model}' has a number for "
            "every neuron; tiles take such numbers only where all of them are learned: learn it too and name it in "
            "training.frozen"
        )


def lower_coefficient_gradient(low: Lowering, gradient: Operation, add: Operation) -> None:
    """coefficient_gradient + add, from lists of spikes: every worker context adds its samples into a replica."""
    about: RowGradient = gradient.attributes
    given = dict(zip(about.reads, (low.storage[name][0] for name in gradient.inputs), strict=True))
    operands, where = {"dc": low.accumulate(gradient, add), **given}, replica_columns(low, gradient.layer)
    codelet, constants = codelets.coefficient_gradient(about), constants_of_row(about)
    low.compute("coefficient gradient", gradient, codelet, *where, operands, constants=constants)


def constants_of_row(about: RowGradient) -> dict[str, object]:
    """What the vertices of 'coefficient_gradient' take beside their arrays."""
    places = [(place.target, place.column, codelets.WHENS[place.when]) for place in about.places]
    return {"places": np.array(places, np.int64), "threshold": flag_threshold(about.neuron)}


def lower_constant_gradient(low: Lowering, op: Operation) -> None:
    """constant_gradient: where the constants lie; of one that the layer shares, added up on its tile."""
    about: ConstantGradient = op.attributes
    constant, *rows = (low.kept.get(low.storage[name][0], low.storage[name][0]) for name in op.inputs)
    given = {f"row{row}": name for row, name in zip(about.rows, rows, strict=True)}
    shape, gradient = low.values[op.outputs[0]].shape, op.outputs[0]
    low.numbers(gradient, (shape[0], shape[1]), "weight gradients", op.layer)
    low.storage[op.outputs[0]] = (gradient,)
    low.outputs[op.outputs[0]] = gradient
    operands = {"gradient": gradient, "constant": constant}
    if len(about.learned.value) > 1:
        where = low.over_matrix(codelets.constant_gradient(about), gradient, op.layer)
        low.compute("constant gradient", op, *where, operands | given)
        return
    part = codelets.shared_constant_part(about)
    partial, _ = low.by_tile("constant parts", op, part, rows[0], given, "weight gradients")
    codelet, operands = codelets.shared_constant_gradient(about), {**operands, "partial": partial}
    low.compute("constant gradient", op, codelet, low.variables[gradient].mapping.tiles, {}, operands)


OF_BOTH: Rules = {  # of sparse spikes and dense ones
    ("delayed_weights",): lower_delays,
    ("delayed_weights_gradient",): lower_delays,
    ("bias_sum",): lower_biases,
    ("bias_sum_gradient",): lower_biases,
    ("weight_function",): lower_weight_function,
    ("weight_function_gradient",): lower_weight_gradient,
    ("coefficients",): lower_coefficients,
    ("constant_gradient",): lower_constant_gradient,
}
RULES: Rules = {
    **OF_BOTH,
    ("coefficient_gradient", "add"): lower_coefficient_gradient,
}
