"""Dense spikes on tiles: planned products, neurons element by element, rows of one number per neuron, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import elementwise, losses, products, surrogates
from mimdsim.codelets.learned_constants import coefficient_pieces
from mimdsim.compiler.context import WORD_BYTES
from mimdsim.compiler.dense import cells, planes
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.learned_constants import constants_of_row
from mimdsim.compiler.losses import add_penalty, keep
from mimdsim.compiler.place.products import Blocks, ProductPlace
from mimdsim.graph import Operation
from mimdsim.graph.dropout import Masks
from mimdsim.graph.linear_neurons import RowGradient, constants_of
from mimdsim.graph.spikes import Selection
from mimdsim.program import Codelet, Copy, TileMapping

Operations = tuple[Operation, ...]


def _shape(low: ArrayLowering, matrix: str) -> tuple[int, int]:
    rows, columns = low.variables[matrix].shape
    return rows, columns


def _rows(low: ArrayLowering, matrix: str) -> int:
    return _shape(low, matrix)[0]


def lower_product(low: ArrayLowering, ops: Operations) -> None:
    """matmul: currents of all neurons from all spikes; what does not lie as the product wants it is arranged first."""
    (op,) = ops
    spikes, weights = (low.storage[name][0] for name in op.inputs)
    place = low.arrays.forward(_rows(low, spikes), *_shape(low, weights))
    left = low.arrange(spikes, f"{op.name}.left", place.left, "exchange buffers", op.kind, op.layer)
    right = low.arrange(weights, f"{op.name}.right", place.right, "exchange buffers", op.kind, op.layer)
    _multiply(low, op, "forward", place, left, right, low.result(op, place.result, "neuron states"))


def lower_input_gradient(low: ArrayLowering, ops: Operations) -> None:
    """matmul_input_gradient: by weights that were arranged for it before the timesteps."""
    (op,) = ops
    q, weights = (low.storage[name][0] for name in op.inputs)
    place = low.arrays.input_gradient(_rows(low, q), *_shape(low, weights))
    left = low.arrange(q, f"{op.name}.left", place.left, "exchange buffers", op.kind, op.layer)
    right = backward_weights(low, weights, op.layer)
    _multiply(low, op, "input gradient", place, left, right, low.result(op, place.result, "gradients"))


def backward_weights(low: ArrayLowering, weights: str, layer: str) -> str:
    """Weights as the gradient of the inputs wants them: arranged once, where this is first called."""
    name = f"{weights}.backward"
    if name in low.variables:
        return name
    wanted = low.arrays.input_gradient(low.product_rows(layer), *_shape(low, weights)).right.transposed
    return low.arrange(weights, name, wanted, "weights", "matmul_input_gradient", layer)


def lower_weight_gradient(low: ArrayLowering, ops: Operations) -> None:
    """matmul_weight_gradient + add: the product of a timestep, and then its sum onto those before."""
    gradient, add = ops
    dw = low.accumulate(gradient, add)
    q, spikes = (low.storage[name][0] for name in gradient.inputs)
    place = low.arrays.weight_gradient(_rows(low, q), *_shape(low, dw))
    kind, layer = gradient.kind, gradient.layer
    left = low.arrange(spikes, f"{gradient.name}.left", place.left.transposed, "exchange buffers", kind, layer)
    right = low.arrange(q, f"{gradient.name}.right", place.right, "exchange buffers", kind, layer)
    now = low.result(gradient, place.result, "weight gradients")
    _multiply(low, gradient, "weight gradient", place, left, right, now)
    if low.traced:
        now = low.copied(now, f"{now}.returned", "weight gradients", layer=layer)
    operands, defines = {"target": dw, "more": now}, ((dw, add.outputs[0]),)
    low.on_boxes(
        "add gradient",
        add,
        elementwise.ADD_BOXES,
        low.blocks[dw],
        operands,
        layer=layer,
        defines=defines,
        mergeable=False,
    )


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
    codelet = products.block_product(kind, direct, plan.units, plan.channels, unit.coefficient_load_bytes_per_cycle)
    operands = {"left": left, "right": right, "partial": partial, "total": result}
    tables = place.tables(codelet, products.SUM_PARTS, operands, op.layer)
    for step, (name, table) in enumerate(tables):
        number = f" {step}" if plan.steps > 1 and name == "multiply" else ""
        done = ((result, op.outputs[0]),) if step == len(tables) - 1 else ()
        where, stage = (table.codelet, table.tiles, dict(table.columns)), f"{name} {op.outputs[0]}{number}"
        low.compute(stage, op, *where, dict(table.operands), named=False, defines=done, mergeable=False)


def lower_lif(low: ArrayLowering, ops: Operations) -> None:
    """lif: the state in place."""
    (op,) = ops
    v, current = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (v,)
    constants = constants_of(op.attributes)._asdict()
    low.make("LIF update", op, elementwise.LIF_BOXES, {"v": v, "current": current}, v, **constants)


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
    threshold = np.float32(selection.threshold)
    low.make("spikes", op, elementwise.SPIKE_BOXES, {"v": v, "spikes": spikes}, spikes, threshold=threshold)


def lower_surrogate(low: ArrayLowering, ops: Operations) -> None:
    """spike_gradient: the surrogate of every neuron times the gradient of its spike; with the add after it, added to
    the adjoint in place."""
    gradient, *add = ops
    selection: Selection = gradient.attributes
    constants: dict[str, object] = {"kind": surrogates.kind_of(selection.surrogate)}
    constants |= {"threshold": np.float32(selection.threshold), "slope": np.float32(selection.slope)}
    g, v = (low.storage[name][0] for name in gradient.inputs)
    apart = bool(add) and low.layer(gradient.layer).cell is not None  # others may read what it is added to
    if not add or apart:
        target = low.result(gradient, low.blocks[v], "gradients")
        codelet, operands = elementwise.surrogate_boxes(selection.surrogate), {"target": target, "g": g, "v": v}
        low.make("spike gradient", gradient, codelet, operands, target, **constants)
        if apart:
            lower_sum(low, (add[0],))
        return
    dv = low.accumulate(gradient, add[0])
    codelet, operands = elementwise.add_surrogate(selection.surrogate), {"dv": dv, "g": g, "v": v}
    blocks, defines = low.blocks[dv], ((dv, add[0].outputs[0]),)
    low.on_boxes("state gradient", gradient, codelet, blocks, operands, constants=constants, defines=defines)


def lower_current_gradient(low: ArrayLowering, ops: Operations) -> None:
    """q = dv * (1 - decay) * gain."""
    (op,) = ops
    dv = low.storage[op.inputs[0]][0]
    q = low.result(op, low.blocks[dv], "gradients")
    factor = constants_of(op.attributes).scale
    low.make("scale gradient", op, elementwise.SCALE_BOXES, {"source": dv, "target": q}, q, factor=factor)


def lower_decay_gradient(low: ArrayLowering, ops: Operations) -> None:
    """dv <- decay * dv in place, masked where the neuron was reset when the gradient does not pass resets."""
    (op,) = ops
    dv, *before = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (dv,)
    neuron, operands, codelet = constants_of(op.attributes), {"dv": dv}, elementwise.DECAY_BOXES
    constants: dict[str, object] = {"factor": neuron.decay}
    if before:
        codelet, operands["v_previous"] = elementwise.MASKED_DECAY_BOXES, before[0]
        constants["threshold"] = neuron.threshold
    low.make("decay gradient", op, codelet, operands, dv, **constants)


def lower_sum(low: ArrayLowering, ops: Operations) -> None:
    """add: of two matrices into a third, where the first lies unless the sum has its place already."""
    (op,) = ops
    one, other = (low.storage[name][0] for name in op.inputs)
    target = low.result(op, low.blocks[one], "neuron states" if low.phase == "forward" else "gradients")
    if target in (one, other):
        cells.lower_binary(low, ops)
        return
    low.make("sum", op, elementwise.SUM_BOXES, {"one": one, "other": other, "target": target}, target)


def _lower_with_row(low: ArrayLowering, op: Operation, codelet: Codelet, source: str, row: str) -> None:
    """target = source and a row, one number per neuron, that every tile receives anew."""
    target = low.result(op, low.blocks[source], "neuron states" if low.phase == "forward" else "gradients")
    low.make(op.kind.replace("_", " "), op, codelet, {"source": source, "row": row, "target": target}, target)


def lower_bias(low: ArrayLowering, ops: Operations) -> None:
    """bias_add: the same row for every sample."""
    (op,) = ops
    current, row = (low.storage[name][0] for name in op.inputs)
    _lower_with_row(low, op, elementwise.ADD_ROW, current, row)


def lower_self_synapse(low: ArrayLowering, ops: Operations) -> None:
    """self_synapse, self_synapse_spike_gradient: every neuron's own spike, or q, times its weight."""
    (op,) = ops
    source, *_, row = (low.storage[name][0] for name in op.inputs)
    _lower_with_row(low, op, elementwise.MULTIPLY_ROW, source, row)


def lower_row_gradient(low: ArrayLowering, ops: Operations) -> None:
    """A gradient of a row and its sum over time: samples added up where they lie, then over tiles."""
    gradient, add = ops
    total = low.accumulate(gradient, add)
    names, about = [low.storage[name][0] for name in gradient.inputs], gradient.attributes
    blocks = low.blocks[names[0]]
    piece, (pieces,) = _pieces(low, blocks, f"pieces.{gradient.name}")
    constants: dict[str, object] | None = None
    if isinstance(about, RowGradient):
        codelet, constants = coefficient_pieces(about), constants_of_row(about)
        operands = dict(zip(about.reads, names, strict=True)) | {"pieces": pieces}
    else:  # of a bias, or of own spikes
        codelet = elementwise.SUM_SAMPLES if len(names) == 1 else elementwise.SUM_PRODUCTS
        operands = dict(zip((item.name for item in codelet.fields), (*names, pieces), strict=True))
    how: dict[str, Any] = {"constants": constants, "mergeable": False}
    low.on_boxes("sum samples", gradient, codelet, blocks, operands, {"piece": piece}, **how)
    pieces = _sum_some(low, gradient, pieces)
    operands, defines = {"total": total, "pieces": pieces}, ((total, add.outputs[0]),)
    ends = low.blocks[total]
    low.on_boxes("add pieces", gradient, elementwise.ADD_PIECES, ends, operands, defines=defines, mergeable=False)


PIECES_AT_ONCE = 128  # assumed: more rows are first added up in groups, as many as there are rows in each


def _pieces(low: ArrayLowering, blocks: Blocks, *names: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """For sums over the rows of each box: which row of the pieces it makes, and the variables of these rows."""
    spans, piece = np.unique(np.stack([blocks.row_start, blocks.row_stop], axis=1), axis=0, return_inverse=True)
    piece = piece.ravel()
    bounds = np.stack([np.stack([piece, piece + 1], axis=1), np.stack([blocks.start, blocks.stop], axis=1)], axis=1)
    shape = (len(spans), int(blocks.stop.max()))
    mapping = TileMapping.of_boxes(blocks.tiles, bounds, shape)
    return piece, tuple(low.variable(name, shape, "float32", mapping, "exchange buffers") for name in names)


def _sum_some(low: ArrayLowering, gradient: Operation, pieces: str, of: str = "") -> str:
    """The pieces, or where there are many, rows added up in groups, which all tiles share. of: what they are of."""
    rows, width = low.variables[pieces].shape
    if rows <= PIECES_AT_ONCE:
        return pieces
    shape = (round(rows**0.5), width)
    ends = low.arrays.spread(*shape)
    sums = low.matrix(f"sums.{gradient.name}{of}", shape, ends, "exchange buffers")
    if (ends.row_stop - ends.row_start > 1).any():  # fewer tiles than sums: a vertex for each row
        ends = ends.by_row
    edges = np.arange(shape[0] + 1) * rows // shape[0]
    rows_of = {"row_start": edges[ends.row_start], "row_stop": edges[ends.row_stop], "piece": ends.row_start}
    operands = {"source": pieces, "pieces": sums}
    low.on_boxes("add pieces", gradient, elementwise.SUM_SAMPLES, ends, operands, rows_of, mergeable=False)
    return sums


def _average(low: ArrayLowering, op: Operation, output: int, pieces: str, values: int) -> str:
    """The row of an output of a batch norm: its pieces added up and divided by a number of values."""
    name = op.outputs[output]
    if name not in low.storage:
        shape = low.values[name].shape
        low.storage[name] = (low.matrix(name, shape, low.arrays.row(shape[1]), "neuron states"),)
    row = low.storage[name][0]
    pieces = _sum_some(low, op, pieces, f".{output}")
    operands, ends = {"average": row, "pieces": pieces}, low.blocks[row]
    constants, defines = {"values": np.float32(values)}, ((row, name),)
    codelet = elementwise.AVERAGE_PIECES
    low.on_boxes("average pieces", op, codelet, ends, operands, constants=constants, defines=defines, mergeable=False)
    return row


def _normalising(low: ArrayLowering, name: str, of: str) -> tuple[Codelet, Blocks, int]:
    """A codelet of batch norm for what `of` is, its boxes, and the values in a column: of a matrix, or a sequence."""
    *timesteps, rows, _ = low.variables[of].shape
    return elementwise.of_norm(name, bool(timesteps)), low.blocks[of], int(np.prod([*timesteps, rows]))


def _made_like(low: ArrayLowering, op: Operation, output: int, of: str, category: str) -> str:
    """The variable of an output that lies as `of` does."""
    name = op.outputs[output]
    if name not in low.storage:
        *timesteps, rows, columns = low.variables[of].shape
        whole = timesteps[0] if timesteps else 0
        low.storage[name] = (low.matrix(name, (rows, columns), low.blocks[of], category, timesteps=whole),)
    return low.storage[name][0]


def lower_batch_norm(low: ArrayLowering, ops: Operations) -> None:
    """batch_norm: the mean over all rows, then the variance about it, then what is made of both, where the current
    lies; tiles hand on sums over their rows, and get rows of statistics."""
    (op,) = ops
    x, gain, bias = (low.storage[name][0] for name in op.inputs)
    codelet, blocks, values = _normalising(low, "SumRows", x)
    piece, (sums, squares) = _pieces(low, blocks, f"pieces.{op.name}.mean", f"pieces.{op.name}.variance")
    columns = {"piece": piece}
    operands = {"source": x, "pieces": sums}
    low.on_boxes("sum samples", op, codelet, blocks, operands, columns, mergeable=False)
    mean = _average(low, op, 1, sums, values)
    operands = {"source": x, "mean": mean, "pieces": squares}
    codelet, *_ = _normalising(low, "SquaresApart", x)
    low.on_boxes("sum squares", op, codelet, blocks, operands, columns, mergeable=False)
    variance = _average(low, op, 2, squares, values)
    target = _made_like(low, op, 0, x, "neuron states")
    operands = {"source": x, "mean": mean, "variance": variance, "gain": gain, "bias": bias, "target": target}
    codelet, *_ = _normalising(low, "Normalise", x)
    low.make("normalise", op, codelet, operands, target, epsilon=np.float32(op.attributes.epsilon))


def lower_batch_norm_sums(low: ArrayLowering, ops: Operations) -> None:
    """batch_norm_sums: the gradients of gain and bias, as those of other rows."""
    (op,) = ops
    q, x, mean, variance = (low.storage[name][0] for name in op.inputs)
    codelet, blocks, _ = _normalising(low, "SumNormalised", q)
    piece, (gains, biases) = _pieces(low, blocks, f"pieces.{op.name}.gain", f"pieces.{op.name}.bias")
    operands = {"q": q, "x": x, "mean": mean, "variance": variance, "gains": gains, "biases": biases}
    constants = {"epsilon": np.float32(op.attributes.epsilon)}
    low.on_boxes("sum samples", op, codelet, blocks, operands, {"piece": piece}, constants=constants, mergeable=False)
    for output, pieces in enumerate((gains, biases)):
        row = _average(low, op, output, pieces, 1)
        if len(low.variables[q].shape) == 3:  # of all timesteps: the whole gradient
            low.outputs[op.outputs[output]] = row


def lower_batch_norm_gradient(low: ArrayLowering, ops: Operations) -> None:
    """batch_norm_input_gradient: where the gradient of what was normalised lies."""
    (op,) = ops
    names = ("q", "x", "mean", "variance", "gain", "d_gain", "d_bias")
    operands = {name: low.storage[value][0] for name, value in zip(names, op.inputs, strict=True)}
    codelet, _, values = _normalising(low, "NormGradient", operands["q"])
    operands["target"] = target = _made_like(low, op, 0, operands["q"], "gradients")
    constants = {"epsilon": np.float32(op.attributes.epsilon), "values": np.float32(values)}
    low.make("norm gradient", op, codelet, operands, target, **constants)


def lower_running_average(low: ArrayLowering, ops: Operations) -> None:
    """running_average: in place."""
    (op,) = ops
    held, now = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (held,)
    low.outputs[op.outputs[0]] = held
    constants = {name: np.float32(getattr(op.attributes, name)) for name in ("kept", "share")}
    low.make("running average", op, elementwise.RUNNING_AVERAGE, {"held": held, "now": now}, held, **constants)


def lower_steady(low: ArrayLowering, ops: Operations) -> None:
    """steady: nothing is repeated; every timestep reads the same matrix."""
    (op,) = ops
    low.steady[op.outputs[0]] = op.inputs[0]


def lower_masks(low: ArrayLowering, ops: Operations) -> None:
    """dropout_masks: of all timesteps, where the product that reads what is kept wants it, or over all tiles."""
    (op,) = ops
    masks: Masks = op.attributes
    layer, (state, keep) = low.layer(op.layer), op.inputs
    low.inputs[state] = low.variable(
        state, (low.network.batch,), "int64", low.by_sample(0), "optimiser", persistent=True, stored_bytes=WORD_BYTES
    )
    blocks = low.arrays.spread(masks.rows, masks.columns)
    if masks.positions == 1 and not layer.convolution:
        blocks = low.arrays.forward(masks.rows, masks.columns, layer.parameters[0].shape[1]).left
    shape = masks.rows, masks.columns
    made = low.matrix(op.outputs[0], shape, blocks, "neuron states", timesteps=masks.timesteps)
    low.storage[op.outputs[0]] = (made,)
    first, last = blocks.row_start // masks.positions, -(-blocks.row_stop // masks.positions)
    operands = {"states": state, "keep": keep, "masks": made}
    numbers = {"positions": masks.positions, "source": masks.source}
    codelet, samples = elementwise.dropout_masks(bool(masks.timesteps)), {"first": first, "last": last}
    defines = ((made, op.outputs[0]),)
    low.on_boxes("dropout masks", op, codelet, blocks, operands, samples, constants=numbers, defines=defines)


def lower_drop(low: ArrayLowering, ops: Operations) -> None:
    """drop: forward where the mask lies, backward where the gradient does."""
    (op,) = ops
    values, mask = (low.storage[name][0] for name in op.inputs)
    forward = low.phase == "forward"
    target = low.result(op, low.blocks[mask if forward else values], "exchange buffers" if forward else "gradients")
    low.make("dropout", op, elementwise.TIMES_BOXES, {"values": values, "mask": mask, "target": target}, target)


def lower_counts(low: ArrayLowering, ops: Operations) -> None:
    """spike_counts: every sample's spikes of all timesteps, or of the last, gathered on the tile of the sample."""
    (op,) = ops
    shape, first = (low.network.batch, op.attributes.neurons), op.attributes.first
    totals = low.variable("totals", shape, "int32", low.by_sample(0), "gradients")
    keep(low, op, totals)
    operands, defines = {"spikes": low.storage[op.inputs[0]][0], "totals": totals}, ((totals, op.outputs[0]),)
    codelet, constants = (products.COUNT_LAST_ARRAY, {"first": first}) if first else (products.COUNT_ARRAY, None)
    low.compute(
        "count spikes", op, codelet, *low.per_sample, operands, constants=constants, defines=defines, named=False
    )


def lower_emitted(low: ArrayLowering, ops: Operations) -> None:
    """spikes_by_timestep: the spikes of all timesteps on the tiles of the samples."""
    (op,) = ops
    spikes = low.storage[op.inputs[0]][0]
    rows = low.variable("emitted", low.variables[spikes].shape, "float32", low.by_sample(1), "gradients")
    low.storage[op.outputs[0]] = (rows,)
    low.copies("emitted rows", op.kind, Copy(source=spikes, target=rows))


def lower_listed(low: ArrayLowering, ops: Operations) -> None:
    """listed_of: a gradient of every timestep from the tiles of the samples to those of the neurons."""
    (op,) = ops
    rows = low.storage[op.inputs[0]][0]
    g = low.with_neurons("g.output.sequence", low.variables[rows].shape, op.layer, "gradients")
    low.storage[op.outputs[0]] = (g,)
    low.copies("hand out gradient", op.kind, Copy(source=rows, target=g))


def lower_counts_gradient(low: ArrayLowering, ops: Operations) -> None:
    """spike_counts_gradient: the same for every timestep, so held once, where the output neurons lie; of the last
    timestep, a sequence that is zero before."""
    (op,) = ops
    blocks, gradient, about = low.states(op.layer), low.storage[op.inputs[0]][0], op.attributes
    shape = (low.network.batch, about.neurons)
    if about.first:
        g = low.with_neurons("g.output.sequence", (low.network.timesteps, *shape), op.layer, "gradients")
        operands = {"gradient": gradient, "du": g}
        where = low.over_neurons(losses.GIVE_LAST, op.layer)
        low.compute("hand out gradient", op, *where, operands, named=False, defines=((g, op.outputs[0]),))
    else:
        g = low.matrix("g.output", shape, blocks, "gradients")
        operands = {"source": gradient, "target": g}
        low.on_boxes("hand out gradient", op, elementwise.ARRANGE_BOXES, blocks, operands, named=False)
    low.storage[op.outputs[0]] = (g,)


def lower_add_read_out(low: ArrayLowering, ops: Operations) -> None:
    """add_read_out: the read-out's gradient of this timestep added to the adjoint in place."""
    (op,) = ops
    adjoint, now = (low.storage[name][0] for name in op.inputs)
    if low.layer(op.layer).cell:  # whose adjoints others read
        cells.lower_binary(low, ops)
        return
    low.storage[op.outputs[0]] = (adjoint,)
    low.make("add read out", op, elementwise.ADD_BOXES, {"target": adjoint, "more": now}, adjoint)


def lower_penalty(low: ArrayLowering, ops: Operations) -> None:
    """firing_penalty and its gradient: spikes counted where the neurons lie, then added up on one tile."""
    penalty, _ = ops
    spikes = low.storage[penalty.inputs[0]][0]
    blocks = low.blocks[spikes]
    part = np.arange(len(blocks.tiles))
    mapping = TileMapping.split(0, blocks.tiles, part, part + 1)
    counts = low.variable(f"spikes_of.{penalty.layer}", (len(part),), "int32", mapping, "gradients")
    operands = {"spikes": spikes, "counts": counts}
    low.on_boxes("count firing", penalty, elementwise.COUNT_BOXES, blocks, operands, {"part": part})
    add_penalty(low, ops, counts)


def lower_add_even(low: ArrayLowering, ops: Operations) -> None:
    """add_even: one number to the gradients of all spikes of a layer."""
    (op,) = ops
    g, even = (low.storage[name][0] for name in op.inputs)
    total = low.result(op, low.blocks[g], "gradients")
    low.make("add penalty", op, elementwise.ADD_EVEN_BOXES, {"g": g, "even": even, "total": total}, total)


RULES: dict[tuple[str, ...], Callable[[ArrayLowering, Operations], None]] = {
    **planes.RULES,
    **cells.RULES,
    ("matmul",): lower_product,
    ("matmul_input_gradient",): lower_input_gradient,
    ("matmul_weight_gradient", "add"): lower_weight_gradient,
    ("lif",): lower_lif,
    ("spike",): lower_spike,
    ("spike_gradient", "add"): lower_surrogate,
    ("spike_gradient",): lower_surrogate,
    ("lif_current_gradient",): lower_current_gradient,
    ("lif_state_gradient",): lower_decay_gradient,
    ("add",): lower_sum,
    ("steady",): lower_steady,
    ("dropout_masks",): lower_masks,
    ("drop",): lower_drop,
    ("spike_counts",): lower_counts,
    ("spikes_by_timestep",): lower_emitted,
    ("listed_of",): lower_listed,
    ("add_read_out",): lower_add_read_out,
    ("firing_penalty", "firing_penalty_gradient"): lower_penalty,
    ("add_even",): lower_add_even,
    ("spike_counts_gradient",): lower_counts_gradient,
    ("bias_add",): lower_bias,
    ("bias_gradient", "add"): lower_row_gradient,
    ("coefficient_gradient", "add"): lower_row_gradient,
    ("batch_norm",): lower_batch_norm,
    ("batch_norm_sums",): lower_batch_norm_sums,
    ("batch_norm_input_gradient",): lower_batch_norm_gradient,
    ("running_average",): lower_running_average,
    ("self_synapse",): lower_self_synapse,
    ("self_synapse_weight_gradient", "add"): lower_row_gradient,
    ("self_synapse_spike_gradient",): lower_self_synapse,
}
