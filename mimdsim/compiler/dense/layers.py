"""Dense spikes on tiles: planned products, neurons element by element, counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import array_products, elementwise, surrogates
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.place.products import ProductPlace
from mimdsim.graph import Operation
from mimdsim.graph.neurons import constants_of
from mimdsim.graph.spikes import Selection
from mimdsim.program import VertexTable

Operations = tuple[Operation, ...]


def lower_product(low: ArrayLowering, ops: Operations) -> None:
    """matmul: currents of all neurons from all spikes; what does not lie as the product wants it is arranged first."""
    (op,) = ops
    spikes, weights = (low.storage[name][0] for name in op.inputs)
    inputs, neurons = low.variables[weights].shape
    place = low.arrays.forward(inputs, neurons)
    left = low.arrange(spikes, f"{op.name}.left", place.left, "exchange buffers", op.kind, op.layer)
    right = low.arrange(weights, f"{op.name}.right", place.right, "exchange buffers", op.kind, op.layer)
    _multiply(low, op, "forward", place, left, right, low.result(op, place.result, "neuron states"))


def lower_input_gradient(low: ArrayLowering, ops: Operations) -> None:
    """matmul_input_gradient: by weights that were arranged for it before the timesteps."""
    (op,) = ops
    q, weights = (low.storage[name][0] for name in op.inputs)
    inputs, neurons = low.variables[weights].shape
    place = low.arrays.input_gradient(inputs, neurons)
    left = low.arrange(q, f"{op.name}.left", place.left, "exchange buffers", op.kind, op.layer)
    right = backward_weights(low, weights, op.layer)
    _multiply(low, op, "input gradient", place, left, right, low.result(op, place.result, "gradients"))


def backward_weights(low: ArrayLowering, weights: str, layer: str) -> str:
    """Weights as the gradient of the inputs wants them: arranged once, where this is first called."""
    name = f"{weights}.backward"
    if name in low.variables:
        return name
    inputs, neurons = low.variables[weights].shape
    wanted = low.arrays.input_gradient(inputs, neurons).right.transposed
    return low.arrange(weights, name, wanted, "weights", "matmul_input_gradient", layer)


def lower_weight_gradient(low: ArrayLowering, ops: Operations) -> None:
    """matmul_weight_gradient + add: the product of a timestep, and then its sum onto those before."""
    gradient, add = ops
    held = next(name for name in add.inputs if name not in gradient.outputs)
    dw = low.storage[held][0]
    low.storage[add.outputs[0]] = (dw,)
    q, spikes = (low.storage[name][0] for name in gradient.inputs)
    inputs, neurons = low.variables[dw].shape
    place = low.arrays.weight_gradient(inputs, neurons)
    kind, layer = gradient.kind, gradient.layer
    left = low.arrange(spikes, f"{gradient.name}.left", place.left.transposed, "exchange buffers", kind, layer)
    right = low.arrange(q, f"{gradient.name}.right", place.right, "exchange buffers", kind, layer)
    now = low.result(gradient, place.result, "weight gradients")
    _multiply(low, gradient, "weight gradient", place, left, right, now)
    if low.traced:
        now = low.copied(now, f"{now}.returned", "weight gradients", layer=layer)
    table = low.on_boxes(elementwise.ADD_BOXES, {"target": dw, "more": now}, low.blocks[dw], layer)
    low.emit("add gradient", "add", tables=(table,), defines=((dw, add.outputs[0]),), mergeable=False, layer=layer)


def _multiply(
    low: ArrayLowering, op: Operation, kind: str, place: ProductPlace, left: str, right: str, result: str
) -> None:
    """Partial products, and their sums where the inner dimension is split; serial steps one after the other."""
    plan, unit = place.plan, low.arrays.machine.matrix
    assert unit is not None
    direct = place.parts == 1
    partial = result
    if not direct:
        shape = (place.parts, plan.m, plan.n)
        partial = low.variable(f"partial.{op.name}", shape, "float32", place.partials, "exchange buffers")
    codelet = array_products.block_product(
        kind, direct, plan.units, plan.channels, unit.coefficient_load_bytes_per_cycle
    )
    operands = {"left": left, "right": right, "partial": partial, "total": result}
    tables = place.tables(codelet, array_products.SUM_PARTS, operands, op.layer)
    for step, (name, table) in enumerate(tables):
        number = f" {step}" if plan.steps > 1 and name == "multiply" else ""
        done = ((result, op.outputs[0]),) if step == len(tables) - 1 else ()
        low.emit(f"{name} {op.outputs[0]}{number}", op.kind, tables=(table,), defines=done, mergeable=False)


def lower_lif(low: ArrayLowering, ops: Operations) -> None:
    """lif: the state in place."""
    (op,) = ops
    v, current = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (v,)
    constants = constants_of(op.attributes)._asdict()
    operands = {"v": v, "current": current}
    table = low.on_boxes(elementwise.LIF_BOXES, operands, low.blocks[v], op.layer, constants=constants)
    low.emit("LIF update", op.kind, tables=(table,), defines=((v, op.outputs[0]),), layer=op.layer)


def lower_spike(low: ArrayLowering, ops: Operations) -> None:
    """spike: zeros and ones where the neurons lie."""
    (op,) = ops
    selection: Selection = op.attributes
    if selection.smooth:
        raise MappingError(
            f"layer '{op.layer}': smooth spikes are for finite differences in the interpreter; tiles have no lowering "
            "for them: leave smooth = False"
        )
    v = low.storage[op.inputs[0]][0]
    spikes = low.result(op, low.blocks[v], "neuron states")
    constants: dict[str, object] = {"threshold": np.float32(selection.threshold)}
    operands = {"v": v, "spikes": spikes}
    table = low.on_boxes(elementwise.SPIKE_BOXES, operands, low.blocks[spikes], op.layer, constants=constants)
    low.emit("spikes", op.kind, tables=(table,), defines=((spikes, op.outputs[0]),), layer=op.layer)


def _surrogate_constants(selection: Selection) -> dict[str, object]:
    return {
        "threshold": np.float32(selection.threshold),
        "slope": np.float32(selection.slope),
        "kind": surrogates.kind_of(selection.surrogate),
    }


def lower_added_surrogate(low: ArrayLowering, ops: Operations) -> None:
    """spike_gradient + add: the surrogate of every neuron, added to the adjoint in place."""
    gradient, add = ops
    held = next(name for name in add.inputs if name not in gradient.outputs)
    dv = low.storage[held][0]
    low.storage[add.outputs[0]] = (dv,)
    g, v = (low.storage[name][0] for name in gradient.inputs)
    operands = {"dv": dv, "g": g, "v": v}
    codelet = elementwise.add_surrogate(gradient.attributes.surrogate)
    constants = _surrogate_constants(gradient.attributes)
    table = low.on_boxes(codelet, operands, low.blocks[dv], gradient.layer, constants=constants)
    done = ((dv, add.outputs[0]),)
    low.emit("state gradient", gradient.kind, tables=(table,), defines=done, layer=gradient.layer)


def lower_surrogate(low: ArrayLowering, ops: Operations) -> None:
    """spike_gradient: the surrogate of every neuron times the gradient of its spike."""
    (op,) = ops
    g, v = (low.storage[name][0] for name in op.inputs)
    target = low.result(op, low.blocks[v], "gradients")
    operands = {"target": target, "g": g, "v": v}
    codelet = elementwise.surrogate_boxes(op.attributes.surrogate)
    constants = _surrogate_constants(op.attributes)
    table = low.on_boxes(codelet, operands, low.blocks[target], op.layer, constants=constants)
    low.emit("spike gradient", op.kind, tables=(table,), defines=((target, op.outputs[0]),), layer=op.layer)


def lower_current_gradient(low: ArrayLowering, ops: Operations) -> None:
    """q = dv * (1 - decay) * gain."""
    (op,) = ops
    dv = low.storage[op.inputs[0]][0]
    q = low.result(op, low.blocks[dv], "gradients")
    constants: dict[str, object] = {"factor": constants_of(op.attributes).scale}
    operands = {"source": dv, "target": q}
    table = low.on_boxes(elementwise.SCALE_BOXES, operands, low.blocks[q], op.layer, constants=constants)
    low.emit("scale gradient", op.kind, tables=(table,), defines=((q, op.outputs[0]),), layer=op.layer)


def lower_decay_gradient(low: ArrayLowering, ops: Operations) -> None:
    """dv <- decay * dv in place, masked where the neuron was reset when the gradient does not pass resets."""
    (op,) = ops
    dv = low.storage[op.inputs[0]][0]
    low.storage[op.outputs[0]] = (dv,)
    operands = {"dv": dv}
    constants: dict[str, object] = {"factor": constants_of(op.attributes).decay}
    codelet = elementwise.DECAY_BOXES
    if len(op.inputs) == 2:
        codelet = elementwise.MASKED_DECAY_BOXES
        operands["v_previous"] = low.storage[op.inputs[1]][0]
        constants["threshold"] = constants_of(op.attributes).threshold
    table = low.on_boxes(codelet, operands, low.blocks[dv], op.layer, constants=constants)
    low.emit("decay gradient", op.kind, tables=(table,), defines=((dv, op.outputs[0]),), layer=op.layer)


def lower_sum(low: ArrayLowering, ops: Operations) -> None:
    """add: of two matrices into a third, where the first lies unless the sum has its place already."""
    (op,) = ops
    one, other = (low.storage[name][0] for name in op.inputs)
    target = low.result(op, low.blocks[one], "gradients")
    operands = {"one": one, "other": other, "target": target}
    table = low.on_boxes(elementwise.SUM_BOXES, operands, low.blocks[target], op.layer)
    low.emit("sum", op.kind, tables=(table,), defines=((target, op.outputs[0]),), layer=op.layer)


def lower_steady(low: ArrayLowering, ops: Operations) -> None:
    """steady: nothing is repeated; every timestep reads the same matrix."""
    (op,) = ops
    low.steady[op.outputs[0]] = op.inputs[0]


def lower_counts(low: ArrayLowering, ops: Operations) -> None:
    """spike_counts: every sample's spikes of all timesteps, gathered on the tile of the sample."""
    (op,) = ops
    if op.attributes.first:
        raise MappingError(
            'training.reading = "last" of dense spikes has no lowering to tiles; it runs on the GPU side and in the '
            'interpreter: set network.spikes = "sparse", or training.reading = "sum"'
        )
    batch, classes = low.network.batch, op.attributes.neurons
    totals = low.variable("totals", (batch, classes), "int32", low.by_sample(0), "gradients")
    low.storage[op.outputs[0]] = (totals,)
    low.outputs[op.outputs[0]] = totals
    table = VertexTable(
        codelet=array_products.COUNT_ARRAY,
        layer=op.layer,
        tiles=low.placement.sample_tiles,
        operands={"spikes": low.storage[op.inputs[0]][0], "totals": totals},
        columns={"sample": np.arange(batch)},
    )
    low.emit("count spikes", op.kind, tables=(table,), defines=((totals, op.outputs[0]),))


def lower_counts_gradient(low: ArrayLowering, ops: Operations) -> None:
    """spike_counts_gradient: the same for every timestep, so held once, where the output neurons lie."""
    (op,) = ops
    blocks = low.states(op.layer)
    gradient = low.storage[op.inputs[0]][0]
    g = low.matrix("g.output", (low.network.batch, op.attributes.neurons), blocks, "gradients")
    low.storage[op.outputs[0]] = (g,)
    table = low.on_boxes(elementwise.ARRANGE_BOXES, {"source": gradient, "target": g}, blocks, op.layer)
    low.emit("hand out gradient", op.kind, tables=(table,))


RULES: dict[tuple[str, ...], Callable[[ArrayLowering, Operations], None]] = {
    ("matmul",): lower_product,
    ("matmul_input_gradient",): lower_input_gradient,
    ("matmul_weight_gradient", "add"): lower_weight_gradient,
    ("lif",): lower_lif,
    ("spike",): lower_spike,
    ("spike_gradient", "add"): lower_added_surrogate,
    ("spike_gradient",): lower_surrogate,
    ("lif_current_gradient",): lower_current_gradient,
    ("lif_state_gradient",): lower_decay_gradient,
    ("add",): lower_sum,
    ("steady",): lower_steady,
    ("add_read_out",): lower_sum,
    ("spike_counts",): lower_counts,
    ("spike_counts_gradient",): lower_counts_gradient,
}
