"""The scan on tiles: a repeat whose body slices sequences, hands spikes on, does the work and stashes.

Forward, a carry that is written in place needs nothing; spikes are copied into the slots that the next layer reads, as
the published program does. Backward, every carry lives in place.
"""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import dense as codelets
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.lower_neurons import declare_thresholds
from mimdsim.compiler.lower_spikes import gradient_slots, gradient_variable
from mimdsim.graph import Operation, Scan, Value
from mimdsim.program import Copy, TileMapping, VertexTable


def fill_neurons(low: Lowering, variable: str, layer: str, stage: str) -> None:
    """Zero a [batch, neurons] or [replicas, fan_in, neurons] variable on the tiles of its neurons."""
    held = low.variables[variable]
    placed = low.placed(layer)
    codelet = codelets.FILL_REPLICAS if len(held.shape) == 3 else codelets.FILL_COLUMNS
    rows = int(np.prod(held.shape[:-1]))
    table = VertexTable(
        codelet=codelet,
        layer=layer,
        tiles=placed.tiles,
        operands={"target": variable},
        columns={"start": placed.starts, "stop": placed.stops},
        extents={"elements": (placed.stops - placed.starts) * rows},
    )
    low.emit(stage, "zeros", tables=(table,), layer=layer)


def _fill_rows(low: Lowering, variable: str, tiles: np.ndarray, stage: str) -> None:
    rows, width = low.variables[variable].shape
    index = np.arange(rows)
    table = VertexTable(
        codelet=codelets.FILL_ROWS,
        layer="",
        tiles=tiles,
        operands={"target": variable},
        columns={"start": index, "stop": index + 1},
        extents={"elements": np.full(rows, width)},
    )
    low.emit(stage, "zeros", tables=(table,))


def _fill_gradient(low: Lowering, variable: str) -> None:
    tiles, columns = gradient_slots(low, low.variables[variable].shape[1])
    table = VertexTable(
        codelet=codelets.FILL_SLOTS,
        layer="",
        tiles=tiles,
        operands={"target": variable},
        columns=columns,
        extents={"elements": columns["slot_stop"] - columns["slot_start"]},
    )
    low.emit("zero adjoints", "zeros", tables=(table,))


def slice_rows(low: Lowering, sequence: str, now: str, shift: int, tiles: np.ndarray) -> None:
    """now <- sequence[t + shift], one vertex per sample."""
    rows, width = low.variables[now].shape
    index = np.arange(rows)
    table = VertexTable(
        codelet=codelets.slice_codelet("rows", shift),
        layer="",
        tiles=tiles,
        operands={"sequence": sequence, "now": now},
        columns={"start": index, "stop": index + 1},
        extents={"elements": np.full(rows, width)},
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def slice_neurons(low: Lowering, sequence: str, now: str, shift: int, layer: str) -> None:
    """now <- sequence[t + shift], one vertex per tile of the layer."""
    placed = low.placed(layer)
    table = VertexTable(
        codelet=codelets.slice_codelet("columns", shift),
        layer=layer,
        tiles=placed.tiles,
        operands={"sequence": sequence, "now": now},
        columns={"start": placed.starts, "stop": placed.stops},
        extents={"elements": (placed.stops - placed.starts) * low.network.batch},
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def lower_forward(low: Lowering, op: Operation, lower_body: object) -> None:
    """The forward scan: initial carries, the repeat, the sequences it leaves behind."""
    scan: Scan = op.attributes
    network = low.network
    low.values = scan.body.values
    for constant in scan.constants:
        low.storage.setdefault(constant, (constant,))
    previous: list[tuple[str, str]] = []  # (carry enters, layer) of spikes
    for carry in scan.carries:
        value = scan.body.value(carry.enters)
        layer = carry.leaves.split(".", 1)[1]
        if value.form == "sparse":
            storage = low.spikes(f"{layer}.in", value.capacity, 0)
            low.storage[carry.enters] = storage
            _fill_rows(low, storage[1], low.placement.sample_tiles, "zero spikes")
            previous.append((carry.enters, layer))
            _declare_final_lists(low, layer)
        else:
            v = low.variable(carry.leaves, value.shape, "float32", low.by_neuron(layer, 1), "neuron states")
            low.storage[carry.enters] = (v,)
            fill_neurons(low, v, layer, "zero states")
    sequence = low.spikes("input.sequence", network.input_capacity, 1, network.timesteps)
    low.inputs["input.ids"], low.inputs["input.counts"] = sequence
    low.storage["input"] = sequence
    low.recorded["input"] = sequence
    now = low.spikes("input", network.input_capacity, 0)
    low.storage["input.now"] = now
    low.open_repeat()
    for whole, part in zip(sequence, now, strict=True):
        slice_rows(low, whole, part, 0, low.placement.sample_tiles)
    for enters, layer in previous:
        for source, target in zip((f"ids.{layer}", f"counts.{layer}"), low.storage[enters], strict=True):
            low.emit("hand on spikes", "carry", copies=(Copy(source=source, target=target),), layer=layer)
    lower_body(low, scan)  # type: ignore[operator]
    finals = len(scan.carries)
    for name, outer in zip(scan.stacked, op.outputs[finals:], strict=True):
        low.storage[outer] = _stash(low, scan.body.value(name))
        if scan.body.value(name).form == "sparse":
            low.recorded[name.split(".", 1)[1]] = (low.storage[outer][0], low.storage[outer][1])
    low.close_repeat(scan.timesteps, scan.reverse)


def _declare_final_lists(low: Lowering, layer: str) -> None:
    """Ids and counts a layer leaves, known before the body writes them because the carry reads them first; no spikes
    have been emitted before the first timestep."""
    placed = low.placed(layer)
    index = np.arange(low.network.batch)
    mapping = TileMapping.split(0, placed.combine_tiles, index, index + 1)
    capacity = low.layer(layer).capacity
    low.variable(f"ids.{layer}", (len(index), capacity), "int32", mapping, "spike ids")
    low.variable(f"counts.{layer}", (len(index), 2), "int32", mapping, "spike ids")
    _fill_rows(low, f"counts.{layer}", placed.combine_tiles, "zero spikes")


def _stash(low: Lowering, value: Value) -> tuple[str, ...]:
    """Store a body value into its sequence at t; the sequence's variables."""
    network = low.network
    layer = value.name.split(".", 1)[1]
    if value.form == "sparse":
        sequence = low.spikes(f"{layer}.sequence", value.capacity, 1, network.timesteps)
        for now, whole in zip(low.storage[value.name], sequence, strict=True):
            rows, width = low.variables[now].shape
            index = np.arange(rows)
            table = VertexTable(
                codelet=codelets.update_codelet("rows"),
                layer=layer,
                tiles=low.placement.sample_tiles,
                operands={"now": now, "sequence": whole},
                columns={"start": index, "stop": index + 1},
                extents={"elements": np.full(rows, width)},
            )
            low.emit(f"stash {now}", "stash", tables=(table,), mergeable=False)
        return sequence
    shape = (network.timesteps, *value.shape)
    whole = low.variable(f"{value.name}.sequence", shape, "float32", low.by_neuron(layer, 2), "neuron states")
    placed = low.placed(layer)
    table = VertexTable(
        codelet=codelets.update_codelet("columns"),
        layer=layer,
        tiles=placed.tiles,
        operands={"now": low.storage[value.name][0], "sequence": whole},
        columns={"start": placed.starts, "stop": placed.stops},
        extents={"elements": (placed.stops - placed.starts) * network.batch},
    )
    low.emit(f"stash {value.name}", "stash", tables=(table,), mergeable=False)
    return (whole,)


def lower_backward(low: Lowering, op: Operation, lower_body: object) -> None:
    """The reversed scan: adjoints in place, stash sliced per timestep, weight gradients summed in replicas."""
    scan: Scan = op.attributes
    low.values = scan.body.values
    for carry in scan.carries:
        value = scan.body.value(carry.enters)
        if carry.enters.startswith("sum."):
            layer = carry.enters.split(".", 2)[2]
            replicas = low.options.weight_gradient_replicas
            name = low.variable(
                f"dw.{layer}", (replicas, *value.shape), "float32", low.by_neuron(layer, 2), "weight gradients"
            )
            fill_neurons(low, name, layer, "zero weight gradients")
        elif value.capacity:
            name = gradient_variable(low, f"g.{carry.enters.split('.', 2)[2]}", value.capacity)
            _fill_gradient(low, name)
        else:
            layer = carry.enters.split(".", 2)[2]
            name = low.variable(f"dv.{layer}", value.shape, "float32", low.by_neuron(layer, 1), "gradients")
            fill_neurons(low, name, layer, "zero adjoints")
            if low.options.state_gradient == "per_batch":
                declare_thresholds(low, layer)
        low.storage[carry.enters] = (name,)
        low.storage[carry.leaves] = (name,)
    offset = len(scan.carries)
    low.open_repeat()
    for item, outer in zip(scan.slices, op.inputs[offset:], strict=False):
        _slice_saved(low, scan.body.value(item.inside), low.storage[outer], item.shift)
    for inside, outer in zip(scan.constants, op.inputs[offset + len(scan.slices) :], strict=True):
        low.storage[inside] = low.storage.get(outer, (outer,))
    lower_body(low, scan)  # type: ignore[operator]
    low.close_repeat(scan.timesteps, scan.reverse)
    for outer, carry in zip(op.outputs, scan.carries, strict=True):
        low.storage[outer] = low.storage[carry.leaves]
        if carry.enters.startswith("sum."):
            _sum_replicas(low, outer, carry.enters.split(".", 2)[2])


def _slice_saved(low: Lowering, value: Value, sequence: tuple[str, ...], shift: int) -> None:
    """The current timestep of a stashed sequence, in variables of its own."""
    if value.form == "sparse":
        now = low.spikes(value.name, value.capacity, 0)
        low.storage[value.name] = now
        for whole, part in zip(sequence, now, strict=True):
            slice_rows(low, whole, part, shift, low.placement.sample_tiles)
    elif value.capacity:
        batch = low.network.batch
        now_g = low.variable(value.name, (batch, value.capacity), "float32", low.by_sample(0), "gradients")
        low.storage[value.name] = (now_g,)
        slice_rows(low, sequence[0], now_g, shift, low.placement.sample_tiles)
    else:
        layer = sequence[0].split(".", 1)[1].removesuffix(".sequence")
        now_v = low.variable(value.name, value.shape, "float32", low.by_neuron(layer, 1), "neuron states")
        low.storage[value.name] = (now_v,)
        slice_neurons(low, sequence[0], now_v, shift, layer)


def _sum_replicas(low: Lowering, outer: str, layer: str) -> None:
    """The gradient of a layer's weights from the replicas of its worker contexts."""
    placed = low.placed(layer)
    dw = low.storage[outer][0]
    replicas, fan_in, neurons = low.variables[dw].shape
    gradient = low.variable(
        f"gradient.{layer}", (fan_in, neurons), "float32", low.by_neuron(layer, 1), "weight gradients"
    )
    elements = (placed.stops - placed.starts) * fan_in
    table = VertexTable(
        codelet=codelets.SUM_REPLICAS,
        layer=layer,
        tiles=placed.tiles,
        operands={"replicas": dw, "total": gradient},
        columns={"start": placed.starts, "stop": placed.stops},
        extents={"elements": elements, "replicas": np.full(len(elements), replicas)},
    )
    low.emit("sum replicas", "add", tables=(table,), defines=((gradient, outer),), layer=layer)
    low.storage[outer] = (gradient,)
    low.outputs[outer] = gradient
