"""The scan over timesteps of dense spikes: a repeat that slices sequences, hands spikes on, works and stashes.

Where it is traced (`ArrayLowering.traced`), a turn is a call: parameters, states and what was stashed are copied to the
function's own variables, and what it makes from there; nothing counts timesteps.
"""

from __future__ import annotations

from mimdsim.base.errors import MappingError
from mimdsim.codelets import dense as codelets
from mimdsim.codelets.elementwise import TRANSPOSE_BOXES
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.dense.layers import backward_weights
from mimdsim.compiler.time_slices import (
    by_age,
    count_timestep,
    fill,
    set_counters,
    slice_timestep,
    update_timestep,
    waiting,
)
from mimdsim.graph import Graph, Operation, Scan
from mimdsim.graph.names import INPUT
from mimdsim.graph.norms import STATISTICS


def lower_forward(low: ArrayLowering, op: Operation) -> None:
    """The forward scan. What a layer carries lies in place; products arrange what they read of it."""
    scan: Scan = op.attributes
    low.values = scan.body.values
    for constant in scan.constants:
        low.storage.setdefault(constant, (constant,))
    for carry, start in zip(scan.carries, op.inputs, strict=False):
        value = scan.body.value(carry.enters)
        if value.role in STATISTICS:  # running averages stay where the host has put them
            low.storage[carry.leaves] = low.storage[carry.enters] = low.storage[start]
            continue
        if low.traced and value.shift < -1:
            raise MappingError(
                f"spikes of '{value.layer}' are read {-value.shift} timesteps later, which a traced call "
                '(mapping.dense_neurons = "traced") does not hand on: write mapping.dense_neurons = "calls"'
            )
        names = [carry.leaves] * (value.shift == -1) + [carry.enters] * (carry.enters in waiting(scan))
        for name in names:
            held = low.matrix(name, value.shape, low.states(value.layer), "neuron states")
            fill(low, held, "zero spikes" if value.role == "spikes" else "zero states", value.layer)
            low.storage[name] = low.storage[carry.enters] = (held,)
    for item, outer in zip(scan.slices, op.inputs[len(scan.carries) :], strict=False):
        if scan.body.value(item.inside).layer == INPUT and outer not in low.storage:
            _declare_input(low, scan, item.inside, outer)
    _repeat(low, op)


def lower_backward(low: ArrayLowering, op: Operation) -> None:
    """The reversed scan: adjoints and sums of weight gradients in place, stash sliced per timestep."""
    scan: Scan = op.attributes
    low.values = scan.body.values
    offset = len(scan.carries)
    for inside, outer in zip(scan.constants, op.inputs[offset + len(scan.slices) :], strict=True):
        low.storage[inside] = low.storage.get(outer, (outer,))
    for step in scan.body.operations:
        if step.kind == "matmul_input_gradient" and not low.traced:
            backward_weights(low, low.storage[step.inputs[1]][0], step.layer)
    for carry in scan.carries:
        name = _declare_adjoint(low, scan, carry.enters, carry.leaves)
        low.storage[carry.enters] = (name,)
        low.storage[carry.leaves] = (name,)
    _let_wait(low, scan)
    _repeat(low, op)
    for outer, carry in zip(op.outputs, scan.carries, strict=False):
        low.storage[outer] = low.storage[carry.leaves]
        if scan.body.value(carry.enters).role == "gradient":
            low.outputs[outer] = low.storage[outer][0]


def _repeat(low: ArrayLowering, op: Operation) -> None:
    """The turns, with a counter of timesteps unless their addresses are known when the program is compiled; what the
    body reads is where it was again after them."""
    scan: Scan = op.attributes
    phase, first, by = ("backward", scan.timesteps, -1) if scan.reverse else ("forward", -1, 1)
    finals = len(scan.carries)
    if not low.traced:
        set_counters(low, phase, first)
    with low.repeat(scan.timesteps, reverse=scan.reverse):
        if not low.traced:
            count_timestep(low, by, scan.slices)
        _hand_on(low, scan)
        held_outside = _pass_parameters(low, scan)
        carried = _pass_carries(low, scan)
        for item, outer in zip(scan.slices, op.inputs[finals:], strict=False):
            plain = scan.reverse or scan.body.value(item.inside).layer == INPUT
            now = item.inside if plain else f"{item.inside}.now"
            low.storage[item.inside] = (_now(low, low.storage[outer][0], now, item.shift),)
        low.lower_body(low, scan)
        for name, outer in zip(scan.stacked, op.outputs[finals:], strict=True):
            low.storage[outer] = (_stash(low, name, low.storage[name][0], scan.timesteps),)
            if scan.body.value(name).role == "spikes":
                low.recorded[scan.body.value(name).layer] = low.storage[outer]
        _return_carries(low, carried)
    low.storage.update(held_outside)


def _let_wait(low: ArrayLowering, scan: Scan) -> None:
    """Adjoints that wait enter where the one before them leaves, so that the body adds to them in place; the first of
    them, which the body uses up, enters in a variable of its own."""
    values = {name: scan.body.value(name) for name in waiting(scan)}
    left = {(value.layer, value.shift): low.storage[name][0] for name, value in values.items()}
    for name, value in values.items():
        first = left[value.layer, 0]
        low.storage[name] = (
            (left[value.layer, value.shift + 1],)
            if value.shift
            else (low.matrix(f"{name}.taken", value.shape, low.blocks[first], "gradients"),)
        )


def _hand_on(low: ArrayLowering, scan: Scan) -> None:
    """Older spikes, and adjoints that wait, a place further: a copy per timestep and age."""
    for carry in by_age(scan):
        (source,), (target,) = low.storage[carry.leaves], low.storage[carry.enters]
        if source != target:
            blocks, held = low.blocks[target], low.blocks[source]
            codelet = codelets.copy_codelet("boxes") if held.fastest == blocks.fastest else TRANSPOSE_BOXES
            operands, layer = {"source": source, "target": target}, scan.body.value(carry.enters).layer
            low.on_boxes("hand on", "carry", codelet, blocks, operands, layer=layer)


def _pass_parameters(low: ArrayLowering, scan: Scan) -> dict[str, tuple[str, ...]]:
    """Matrices of parameters that the body reads, copied for the call; returns where they lie outside of it."""
    if not low.traced:
        return {}
    read = {name for step in scan.body.operations for name in step.inputs}
    found = {name: low.storage[name] for name in scan.constants if name in read and low.storage[name][0] in low.blocks}
    for name, (held,) in found.items():
        layer = scan.body.value(name).layer
        low.storage[name] = (low.copied(held, f"{held}.passed {low.phase}", "weights", layer=layer),)
    return found


def _pass_carries(low: ArrayLowering, scan: Scan) -> dict[str, str]:
    """Carried states and adjoints copied for the call: where they lie outside, by carry on leaving.

    What is stashed anyway is read from there. Sums of gradients are taken outside of the function.
    """
    carried: dict[str, str] = {}
    if not low.traced:
        return carried
    for carry in scan.carries:
        value = scan.body.value(carry.enters)
        (held,) = low.storage[carry.enters]
        if value.role in ("gradient", *STATISTICS):
            continue
        if carry.leaves in scan.stacked:
            whole = _sequence(low, carry.leaves, held, scan.timesteps)
            low.copied(whole, held, "neuron states", source_shift=-1, layer=value.layer)
            continue
        inside = low.copied(held, f"{held}.passed", low.variables[held].category, layer=value.layer)
        low.storage[carry.enters] = low.storage[carry.leaves] = (inside,)
        carried[carry.leaves] = held
    return carried


def _return_carries(low: ArrayLowering, carried: dict[str, str]) -> None:
    for leaves, held in carried.items():
        (inside,) = low.storage[leaves]
        if inside != held:  # else it is left there
            low.copied(inside, held, low.variables[held].category)
            low.storage[leaves] = (held,)


def _declare_input(low: ArrayLowering, scan: Scan, inside: str, source: str) -> None:
    """The network's input as its first product wants it: a sequence, or one matrix for all timesteps."""
    shape = _matrix_shape(scan.body, inside)
    timesteps = 0 if source in low.steady else scan.timesteps
    name = "input.sequence" if timesteps else "input.steady"
    blocks = low.blocks_for_reader(scan.body, inside)
    held = low.matrix(name, shape, blocks, "neuron states", timesteps=timesteps)
    low.inputs[INPUT] = held
    low.storage[source] = (held,)
    low.recorded[INPUT] = (held,)


def _declare_adjoint(low: ArrayLowering, scan: Scan, enters: str, leaves: str) -> str:
    """A zeroed carry of the backward scan, where the operation that makes it on leaving puts it."""
    value = scan.body.value(enters)
    shape, layer = value.shape, value.layer
    if value.role == "gradient":
        shape = _matrix_shape(scan.body, enters)
        blocks = low.arrays.row(shape[1])
        if shape[0] > 1:
            blocks = low.arrays.weight_gradient(low.product_rows(layer), *shape, low.groups_of(layer)).result
        name = f"d{value.of}"  # which a state or a row may have as its own
        name = low.matrix(value.name if name in low.variables else name, shape, blocks, "weight gradients")
        fill(low, name, "zero weight gradients", layer)
        return name
    maker = scan.body.producer(leaves)
    blocks = low.states(layer)
    if maker is not None and maker.kind == "matmul_input_gradient":
        weights = _matrix_shape(scan.body, maker.inputs[1])
        blocks = low.arrays.input_gradient(shape[0], *weights, maker.attributes or 1).result
    name = low.matrix(enters, shape, blocks, "gradients")
    fill(low, name, "zero adjoints", layer)
    return name


def _matrix_shape(body: Graph, value: str) -> tuple[int, int]:
    rows, columns = body.value(value).shape
    return rows, columns


def _now(low: ArrayLowering, sequence: str, value: str, shift: int) -> str:
    """The current timestep of a sequence, in a variable of its own that lies as the sequence does; what is the same in
    every timestep is read where it is."""
    _, *shape = low.variables[sequence].shape
    blocks = low.blocks[sequence]
    if len(shape) == 1:
        return low.copied(sequence, f"{value}.passed", "neuron states") if low.traced else sequence
    if low.traced:
        return low.copied(sequence, value, "neuron states", source_shift=shift)
    now = value if value in low.variables else low.matrix(value, tuple(shape), blocks, "neuron states")
    slice_timestep(low, sequence, now, shift)
    return now


def _sequence(low: ArrayLowering, value: str, now: str, timesteps: int) -> str:
    """The sequence of all timesteps of a value, which lies where the value does."""
    whole = f"{value}.sequence"
    if whole not in low.variables:
        low.matrix(whole, low.variables[now].shape, low.blocks[now], "neuron states", timesteps=timesteps)
    return whole


def _stash(low: ArrayLowering, value: str, now: str, timesteps: int) -> str:
    """Store a value into its sequence at t."""
    whole = _sequence(low, value, now, timesteps)
    if low.traced:
        codelet, operands = codelets.copy_codelet(low.pieces(now)[0], None, 0), {"source": now, "target": whole}
        low.on_boxes(f"stash {value}", "stash", codelet, low.blocks[now], operands, mergeable=False)
    else:
        update_timestep(low, now, whole, name=value)
    low.sequences[value] = whole
    return whole
