"""Dense spikes on tiles: planned products, neurons element by element, rows of one number per neuron, counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import elementwise, losses, products, surrogates
from mimdsim.codelets.derived import coefficient_pieces
from mimdsim.compiler.context import Rules
from mimdsim.compiler.dense import cells, planes, sample_norms
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.derived import constants_of_row
from mimdsim.compiler.layout import WORD_BYTES, entries_on
from mimdsim.compiler.losses import add_penalty
from mimdsim.compiler.place.products import Blocks, ProductPlace
from mimdsim.graph import Operation
from mimdsim.graph.dropout import Masks
from mimdsim.graph.linear_neurons import RowGradient, constants_of
from mimdsim.graph.spikes import Selection
from mimdsim.program import Codelet, Copy, TileMapping


def _shape(low: ArrayLowering, matrix: str) -> tuple[int, int]:
    rows, columns = low.variables[matrix].shape
    return rows, columns


def lower_product(low: ArrayLowering, op: Operation) -> None:
    """matmul: currents of all neurons from all spikes; what does not lie as the product wants it is arranged first."""
    spikes, weights = (low.storage[name][0] for name in op.inputs)
    place = low.arrays.forward(_shape(low, spikes)[0], *_shape(low, weights), op.attributes or 1)
    left = low.arrange(spikes, f"{op.name}.left", place.left, "exchange buffers", op.kind, op.layer)
    right = low.arrange(weights, f"{op.name}.right", place.right, "exchange buffers", op.kind, op.layer)
    _multiply(low, op, "forward", place, left, right, low.result(op, place.result, "neuron states"))


def lower_input_gradient(low: ArrayLowering, op: Operation) -> None:
    """matmul_input_gradient: by weights that were arranged for it before the timesteps."""
    q, weights = (low.storage[name][0] for name in op.inputs)
    place = low.arrays.input_gradient(_shape(low, q)[0], *_shape(low, weights), op.attributes or 1)
    left = low.arrange(q, f"{op.name}.left", place.left, "exchange buffers", op.kind, op.layer)
    right = backward_weights(low, weights, op.layer)
    _multiply(low, op, "input gradient", place, left, right, low.result(op, place.result, "gradients"))


def backward_weights(low: ArrayLowering, weights: str, layer: str) -> str:
    """Weights as the gradient of the inputs wants them: arranged once, where this is first called."""
    name = f"{weights}.backward"
    if name in low.variables:
        return name
    place = low.arrays.input_gradient(low.product_rows(layer), *_shape(low, weights), low.groups_of(layer))
    return low.arrange(weights, name, place.right.transposed, "weights", "matmul_input_gradient", layer)


def lower_weight_gradient(low: ArrayLowering, gradient: Operation, add: Operation) -> None:
    """matmul_weight_gradient + add: the product of a timestep, and then its sum onto those before."""
    dw = low.accumulate(gradient, add)
    q, spikes = (low.storage[name][0] for name in gradient.inputs)
    place = low.arrays.weight_gradient(_shape(low, q)[0], *_shape(low, dw), gradient.attributes or 1)
    kind, layer = gradient.kind, gradient.layer
    left = low.arrange(spikes, f"{gradient.name}.left", place.left.transposed, "exchange buffers", kind, layer)
    right = low.arrange(q, f"{gradient.name}.right", place.right, "exchange buffers", kind, layer)
    now = low.result(gradient, place.result, "weight gradients")
    _multiply(low, gradient, "weight gradient", place, left, right, now)
    if low.traced:
        now = low.copied(now, f"{now}.returned", "weight gradients", layer=layer)
    low.element_wise("add gradient", add, elementwise.ADD_BOXES, dw, now, layer=layer, mergeable=False)


def _multiply(
    low: ArrayLowering, op: Operation, kind: str, place: ProductPlace, left: str, right: str, result: str
) -> None:
    """Partial products, and their sums where the inner dimension is split; serial steps one after the other."""
    plan, unit = place.plan, low.arrays.machine.product_unit
    assert unit is not None
    direct = place.parts == 1
    partial = result
    if not direct:
        shape = (place.parts, *_shape(low, result))
        partial = low.variable(f"partial.{op.name}", shape, "float32", place.partials, "exchange buffers")
    unit_of = plan.units, plan.channels, unit.coefficient_load_bytes_per_cycle
    codelet = products.block_product(kind, direct, *unit_of, place.groups > 1, place.turned)
    operands = {"left": left, "right": right, "partial": partial, "total": result}
    supersteps = place.supersteps(codelet, products.SUM_PARTS)
    for step, (name, made, tiles, columns) in enumerate(supersteps):
        number = f" {step}" if place.steps > 1 and name == "multiply" else ""
        done = ((result, op.outputs[0]),) if step == len(supersteps) - 1 else ()
        stage = f"{name} {op.outputs[0]}{number}"
        low.compute(stage, op, made, tiles, columns, operands, named=False, defines=done, mergeable=False)


def lower_lif(low: ArrayLowering, op: Operation) -> None:
    """lif: the state in place."""
    low.element_wise("LIF update", op, elementwise.LIF_BOXES, constants=constants_of(op.attributes)._asdict())


def lower_spike(low: ArrayLowering, op: Operation) -> None:
    """spike: zeros and ones where the neurons lie."""
    selection: Selection = op.attributes
    if selection.smooth:
        raise MappingError(
            f"layer '{op.layer}': smooth spikes are for finite differences in the interpreter; tiles have no lowering "
            "for them: leave smooth = False"
        )
    v, constants = low.storage[op.inputs[0]][0], {"threshold": np.float32(selection.threshold)}
    low.element_wise("spikes", op, elementwise.SPIKE_BOXES, v, constants=constants)


def lower_surrogate(low: ArrayLowering, gradient: Operation, *add: Operation) -> None:
    """spike_gradient: the surrogate of every neuron times the gradient of its spike; with the add after it, added to
    the adjoint in place."""
    selection: Selection = gradient.attributes
    constants: dict[str, object] = {"kind": surrogates.kind_of(selection.surrogate)}
    constants |= {"threshold": np.float32(selection.threshold), "slope": np.float32(selection.slope)}
    g, v = (low.storage[name][0] for name in gradient.inputs)
    added = bool(add) and low.layer(gradient.layer).cell is None  # of a cell others may read what it is added to
    codelet = elementwise.surrogate_boxes(selection.surrogate, added)
    if added:
        dv = low.accumulate(gradient, add[0])
        operands = {"dv": dv, "g": g, "v": v}
        low.on_boxes("state gradient", gradient, codelet, low.blocks[dv], operands, constants=constants)
        return
    low.element_wise("spike gradient", gradient, codelet, g, v, blocks=low.blocks[v], constants=constants)
    if add:
        lower_sum(low, add[0])


def lower_current_gradient(low: ArrayLowering, op: Operation) -> None:
    """q = dv * (1 - decay) * gain."""
    constants = {"factor": constants_of(op.attributes).scale}
    low.element_wise("scale gradient", op, elementwise.SCALE_BOXES, constants=constants)


def lower_decay_gradient(low: ArrayLowering, op: Operation) -> None:
    """dv <- decay * dv in place, masked where the neuron was reset when the gradient does not pass resets."""
    neuron = constants_of(op.attributes)
    codelet = elementwise.DECAY_BOXES if len(op.inputs) == 1 else elementwise.MASKED_DECAY_BOXES
    known = {"factor": neuron.decay, "threshold": neuron.threshold}
    constants = {name: known[name] for name in codelet.constants}
    low.element_wise("decay gradient", op, codelet, constants=constants)


def lower_sum(low: ArrayLowering, op: Operation) -> None:
    """add: of two matrices into a third, where the first lies unless the sum has its place already."""
    given = [low.storage[name][0] for name in op.inputs]
    if low.result(op, low.blocks[given[0]]) in given:
        cells.lower_binary(low, op)
    else:
        low.element_wise("sum", op, elementwise.SUM_BOXES)


def lower_with_row(low: ArrayLowering, op: Operation) -> None:
    """bias_add, self_synapse, self_synapse_spike_gradient: a matrix, of spikes or their gradients, and a row with one
    number per neuron, that every tile receives anew."""
    codelet = elementwise.ADD_ROW if op.kind == "bias_add" else elementwise.MULTIPLY_ROW
    source, *_, row = (low.storage[name][0] for name in op.inputs)
    low.element_wise(op.kind.replace("_", " "), op, codelet, source, row)


def lower_row_gradient(low: ArrayLowering, gradient: Operation, add: Operation) -> None:
    """A gradient of a row and its sum over time: samples added up where they lie, then over tiles."""
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
    operands, ends = {"total": total, "pieces": pieces}, low.blocks[total]
    low.on_boxes("add pieces", gradient, elementwise.ADD_PIECES, ends, operands, mergeable=False)


PIECES_AT_ONCE = 128  # assumed: more rows are first added up in groups, as many as there are rows in each


def _pieces(low: ArrayLowering, blocks: Blocks, *names: str, rows: int = 1) -> tuple[np.ndarray, tuple[str, ...]]:
    """For sums over the rows of each box: which row of the pieces it makes, and the variables of these rows; rows: how
    many numbers each column has in them."""
    spans, piece = np.unique(np.stack([blocks.row_start, blocks.row_stop], axis=1), axis=0, return_inverse=True)
    piece = piece.ravel()
    columns = np.stack([blocks.start, blocks.stop], axis=1) * rows
    bounds = np.stack([np.stack([piece, piece + 1], axis=1), columns], axis=1)
    shape = (len(spans), int(columns.max()))
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


def _in_turn(blocks: Blocks, rows: int) -> dict[str, np.ndarray]:
    """Columns of vertices: where the numbers of each box's columns are in a row of column after column."""
    return {"begin": blocks.start * rows, "end": blocks.stop * rows} if rows > 1 else {}


def _turn(low: ArrayLowering, op: Operation, codelet: Codelet, rows: str, row: str) -> None:
    blocks = low.blocks[rows]
    columns = _in_turn(blocks, low.variables[rows].shape[0])
    low.on_boxes("turn", op, codelet, blocks, {"rows": rows, "row": row}, columns, mergeable=False)


def _turned(low: ArrayLowering, op: Operation, rows: str) -> str:
    """Rows of each timestep as one row, column after column: what a box of columns reads of it is one run of every
    tile, and not one of every timestep. Made once, where this is first called."""
    count, width = low.variables[rows].shape
    name = f"{rows}.turned"
    if count == 1 or name in low.variables:
        return rows if count == 1 else name
    low.matrix(name, (1, count * width), low.arrays.row(width).wider(count), "neuron states")
    _turn(low, op, elementwise.TURN_ROWS, rows, name)
    return name


def _average(low: ArrayLowering, op: Operation, output: int, pieces: str, values: int) -> str:
    """The rows of an output of a batch norm: its pieces added up and divided by a number of values; of many rows, by
    as many tiles as have columns of one."""
    rows, width = low.values[op.outputs[output]].shape
    made = average = low.result(op, low.arrays.row(width, rows), "neuron states", output)
    if rows > 1:
        every = 1, rows * width
        average = low.matrix(f"average.{made}", every, low.arrays.row(every[1]), "exchange buffers")
    operands = {"average": average, "pieces": _sum_some(low, op, pieces, f".{output}")}
    constants, codelet = {"values": np.float32(values)}, elementwise.AVERAGE_PIECES
    low.on_boxes("average pieces", op, codelet, low.blocks[average], operands, constants=constants, mergeable=False)
    if rows > 1:
        _turn(low, op, elementwise.TURN_ROW, made, average)
    return made


def _normalising(low: ArrayLowering, op: Operation, name: str, of: str) -> tuple[Codelet, Blocks, int]:
    """A codelet of batch norm for what `of` is, its boxes, and the values in a column that have statistics in common:
    of a matrix, or of a sequence, all of it or a timestep."""
    *timesteps, rows, _ = low.variables[of].shape
    values = int(np.prod([*timesteps, rows])) // op.attributes.rows
    return elementwise.of_norm(name, bool(timesteps), op.attributes.rows > 1), low.blocks[of], values


def lower_batch_norm(low: ArrayLowering, op: Operation) -> None:
    """batch_norm: the mean over all rows, then the variance about it, then what is made of both, where the current
    lies; tiles hand on sums over their rows, and get rows of statistics."""
    x, gain, bias = (low.storage[name][0] for name in op.inputs)
    codelet, blocks, values = _normalising(low, op, "SumRows", x)
    names = (f"pieces.{op.name}.{statistic}" for statistic in ("mean", "variance"))
    piece, (sums, squares) = _pieces(low, blocks, *names, rows=op.attributes.rows)
    columns = {"piece": piece, **_in_turn(blocks, op.attributes.rows)}
    low.on_boxes("sum samples", op, codelet, blocks, {"source": x, "pieces": sums}, columns, mergeable=False)
    mean = _average(low, op, 1, sums, values)
    operands = {"source": x, "mean": _turned(low, op, mean), "pieces": squares}
    codelet, *_ = _normalising(low, op, "SquaresApart", x)
    low.on_boxes("sum squares", op, codelet, blocks, operands, columns, mergeable=False)
    variance = _average(low, op, 2, squares, values)
    _normalise(low, op, "Normalise", (x,), (mean, variance, gain, bias))


def _normalise(
    low: ArrayLowering, op: Operation, name: str, given: tuple[str, ...], rows: tuple[str, ...], **how: Any
) -> None:
    """The last pass of a norm, over what is `given`, by rows of parameters and statistics."""
    codelet, blocks, values = _normalising(low, op, name, given[0])
    known = {"epsilon": np.float32(op.attributes.epsilon), "values": np.float32(values)}
    how |= {"constants": {each: known[each] for each in codelet.constants}}
    turned = (_turned(low, op, each) for each in rows)
    stage = {"Normalise": "normalise", "NormGradient": "norm gradient"}[name]
    low.element_wise(stage, op, codelet, *given, *turned, columns=_in_turn(blocks, op.attributes.rows), **how)


def lower_fixed_norm(low: ArrayLowering, op: Operation) -> None:
    """batch_norm_fixed: as the last pass of `batch_norm`."""
    x, gain, bias, mean, variance = (low.storage[name][0] for name in op.inputs)
    _normalise(low, op, "Normalise", (x,), (mean, variance, gain, bias))


def lower_batch_norm_sums(low: ArrayLowering, op: Operation) -> None:
    """batch_norm_sums: the gradients of gain and bias, as those of other rows."""
    q, x, *statistics = (low.storage[name][0] for name in op.inputs)
    codelet, blocks, _ = _normalising(low, op, "SumNormalised", q)
    names = f"pieces.{op.name}.gain", f"pieces.{op.name}.bias"
    piece, (gains, biases) = _pieces(low, blocks, *names, rows=op.attributes.rows)
    columns = {"piece": piece, **_in_turn(blocks, op.attributes.rows)}
    mean, variance = (_turned(low, op, each) for each in statistics)
    operands = {"q": q, "x": x, "mean": mean, "variance": variance, "gains": gains, "biases": biases}
    constants = {"epsilon": np.float32(op.attributes.epsilon)}
    low.on_boxes("sum samples", op, codelet, blocks, operands, columns, constants=constants, mergeable=False)
    for output, pieces in enumerate((gains, biases)):
        row = _average(low, op, output, pieces, 1)
        if len(low.variables[q].shape) == 3:  # of all timesteps: the whole gradient
            low.outputs[op.outputs[output]] = row


def lower_batch_norm_gradient(low: ArrayLowering, op: Operation) -> None:
    """batch_norm_input_gradient: where the gradient of what was normalised lies."""
    q, x, *rows = (low.storage[name][0] for name in op.inputs)
    _normalise(low, op, "NormGradient", (q, x), tuple(rows), category="gradients")


def lower_running_average(low: ArrayLowering, op: Operation) -> None:
    """running_average: in place."""
    constants = {name: np.float32(getattr(op.attributes, name)) for name in ("kept", "share")}
    held = low.element_wise("running average", op, elementwise.RUNNING_AVERAGE, constants=constants)
    low.outputs[op.outputs[0]] = held


def lower_steady(low: ArrayLowering, op: Operation) -> None:
    """steady: nothing is repeated; every timestep reads the same matrix."""
    low.steady[op.outputs[0]] = op.inputs[0]


def lower_masks(low: ArrayLowering, op: Operation) -> None:
    """dropout_masks: of all timesteps, where the product that reads what is kept wants it, or over all tiles."""
    masks: Masks = op.attributes
    layer, (state, keep) = low.layer(op.layer), op.inputs
    low.inputs[state] = low.variable(
        state, (low.network.batch,), "int64", low.by_sample(0), "optimiser", persistent=True, stored_bytes=WORD_BYTES
    )
    blocks = low.arrays.spread(masks.rows, masks.columns)
    if masks.positions == 1 and not layer.convolution and not layer.unweighted:
        blocks = low.arrays.forward(masks.rows, masks.columns, layer.parameters[0].shape[1]).left
    shape = masks.rows, masks.columns
    made = low.matrix(op.outputs[0], shape, blocks, "neuron states", timesteps=masks.timesteps)
    low.storage[op.outputs[0]] = (made,)
    first, last = blocks.row_start // masks.positions, -(-blocks.row_stop // masks.positions)
    operands = {"states": state, "keep": keep, "masks": made}
    numbers = {"positions": masks.positions, "source": masks.source}
    numbers |= {"pixels": masks.pixels} if masks.pixels else {}
    codelet, samples = (
        elementwise.dropout_masks(bool(masks.timesteps), masks.pixels > 0),
        {"first": first, "last": last},
    )
    low.on_boxes("dropout masks", op, codelet, blocks, operands, samples, constants=numbers)


def lower_drop(low: ArrayLowering, op: Operation) -> None:
    """drop: forward where the mask lies, backward where the gradient does."""
    values, mask = (low.storage[name][0] for name in op.inputs)
    where, category = (mask, "exchange buffers") if low.phase == "forward" else (values, "gradients")
    low.element_wise("dropout", op, elementwise.TIMES_BOXES, blocks=low.blocks[where], category=category)


def lower_emitted(low: ArrayLowering, op: Operation) -> None:
    """spikes_by_timestep: the spikes of all timesteps on the tiles of the samples."""
    spikes = low.storage[op.inputs[0]][0]
    rows = low.variable("emitted", low.variables[spikes].shape, "float32", low.by_sample(1), "gradients")
    low.storage[op.outputs[0]] = (rows,)
    low.copies("emitted rows", op.kind, Copy(source=spikes, target=rows))


def lower_listed(low: ArrayLowering, op: Operation) -> None:
    """listed_of: a gradient of every timestep from the tiles of the samples to those of the neurons."""
    rows = low.storage[op.inputs[0]][0]
    g = low.with_neurons("g.output.sequence", low.variables[rows].shape, op.layer, "gradients")
    low.storage[op.outputs[0]] = (g,)
    low.copies("hand out gradient", op.kind, Copy(source=rows, target=g))


def lower_counts_gradient(low: ArrayLowering, op: Operation) -> None:
    """spike_counts_gradient: the same for every timestep, so held once, where the output neurons lie; of the last
    timesteps, a sequence that is zero before."""
    blocks, gradient, about = low.states(op.layer), low.storage[op.inputs[0]][0], op.attributes
    shape = (low.network.batch, about.neurons)
    if about.first:
        g = low.with_neurons("g.output.sequence", (low.network.timesteps, *shape), op.layer, "gradients")
        operands = {"gradient": gradient, "du": g}
        of_last = about.first == low.network.timesteps - 1
        codelet, constants = (losses.GIVE_LAST, {}) if of_last else (losses.SPREAD_LATE, {"first": about.first})
        where = low.over_neurons(codelet, op.layer)
        low.compute("hand out gradient", op, *where, operands, constants=constants, named=False)
    else:
        g = low.matrix("g.output", shape, blocks, "gradients")
        operands = {"source": gradient, "target": g}
        low.on_boxes("hand out gradient", op, elementwise.ARRANGE_BOXES, blocks, operands, named=False)
    low.storage[op.outputs[0]] = (g,)


def lower_add_read_out(low: ArrayLowering, op: Operation) -> None:
    """add_read_out: the read-out's gradient of this timestep added to the adjoint in place."""
    if low.layer(op.layer).cell:  # whose adjoints others read
        cells.lower_binary(low, op)
    else:
        low.element_wise("add read out", op, elementwise.ADD_BOXES)


def lower_penalty(low: ArrayLowering, penalty: Operation, gradient: Operation) -> None:
    """firing_penalty and its gradient: spikes counted where the neurons lie, then added up on one tile."""
    spikes = low.storage[penalty.inputs[0]][0]
    blocks = low.blocks[spikes]
    part, mapping = np.arange(len(blocks.tiles)), entries_on(blocks.tiles)
    counts = low.variable(f"spikes_of.{penalty.layer}", (len(part),), "int32", mapping, "gradients")
    operands = {"spikes": spikes, "counts": counts}
    low.on_boxes("count firing", penalty, elementwise.COUNT_BOXES, blocks, operands, {"part": part})
    add_penalty(low, penalty, gradient, counts)


def lower_add_even(low: ArrayLowering, op: Operation) -> None:
    """add_even: one number to the gradients of all spikes of a layer."""
    low.element_wise("add penalty", op, elementwise.ADD_EVEN_BOXES)


RULES: Rules = {
    **planes.RULES,
    **cells.RULES,
    **sample_norms.RULES,
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
    ("batch_norm_fixed",): lower_fixed_norm,
    ("steady",): lower_steady,
    ("dropout_masks",): lower_masks,
    ("drop",): lower_drop,
    ("spikes_by_timestep",): lower_emitted,
    ("listed_of",): lower_listed,
    ("add_read_out",): lower_add_read_out,
    ("firing_penalty", "firing_penalty_gradient"): lower_penalty,
    ("add_even",): lower_add_even,
    ("spike_counts_gradient",): lower_counts_gradient,
    ("bias_add",): lower_with_row,
    ("bias_gradient", "add"): lower_row_gradient,
    ("coefficient_gradient", "add"): lower_row_gradient,
    ("batch_norm",): lower_batch_norm,
    ("batch_norm_sums",): lower_batch_norm_sums,
    ("batch_norm_input_gradient",): lower_batch_norm_gradient,
    ("running_average",): lower_running_average,
    ("self_synapse",): lower_with_row,
    ("self_synapse_weight_gradient", "add"): lower_row_gradient,
    ("self_synapse_spike_gradient",): lower_with_row,
}
