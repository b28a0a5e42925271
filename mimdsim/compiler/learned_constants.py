"""Constants that neurons learn, on tiles: coefficients with the neurons, gradients back to where the constants lie."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import learned_constants as codelets
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.compiler.layout import entries_on
from mimdsim.compiler.sparse.neurons import flag_threshold
from mimdsim.compiler.sparse.spikes import replica_columns
from mimdsim.graph import Operation
from mimdsim.graph.learned_constants import Coefficients, ConstantGradient, SharedRow
from mimdsim.graph.linear_neurons import RowGradient
from mimdsim.program import Copy, TileMapping


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
    codelet, tiles, columns = low.over_matrix(codelets.shared_constant_part(about), rows[0], op.layer)
    parts, mapping = np.arange(len(tiles)), entries_on(tiles)
    partial = low.variable(f"{op.name}.parts", (len(parts),), "float32", mapping, "weight gradients")
    low.compute("constant parts", op, codelet, tiles, {**columns, "part": parts}, {**given, "partial": partial})
    codelet, operands = codelets.shared_constant_gradient(about), {**operands, "partial": partial}
    low.compute("constant gradient", op, codelet, low.variables[gradient].mapping.tiles, {}, operands)


OF_BOTH: Rules = {("coefficients",): lower_coefficients, ("constant_gradient",): lower_constant_gradient}
RULES: Rules = {
    **OF_BOTH,
    ("coefficient_gradient", "add"): lower_coefficient_gradient,
}
