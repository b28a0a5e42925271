"""The scan on tiles: a repeat whose body slices sequences, hands spikes on, does the work and stashes.

Forward, a carry that is written in place needs nothing; spikes are copied into the slots that the next layer reads, as
the published program does. Backward, every carry lives in place.
"""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import dense as codelets
from mimdsim.compiler.context import LINEAR_BYTES, WORD_BYTES, Lowering, layer_of
from mimdsim.compiler.lower_neurons import declare_constants, declare_thresholds
from mimdsim.compiler.lower_selection import declare_random, handed_on, list_variables
from mimdsim.compiler.lower_spikes import gradient_chip, sum_replicas
from mimdsim.graph import Operation, Scan, Value
from mimdsim.graph.truncation import random_name
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


def _fill_slots(low: Lowering, variable: str, chip: int, stage: str, least_bytes: int = WORD_BYTES) -> None:
    tiles, columns = low.slots_of(variable, chip, least_bytes)
    table = VertexTable(
        codelet=codelets.FILL_SLOTS,
        layer="",
        tiles=tiles,
        operands={"target": variable},
        columns=columns,
        extents={"elements": columns["slot_stop"] - columns["slot_start"]},
    )
    low.emit(stage, "zeros", tables=(table,))


def set_counters(low: Lowering, phase: str, first: int) -> None:
    """The timestep as a variable, one per chip on its first tile, set to `first`; slices read it as their offset."""
    chips = np.arange(low.placement.chips)
    tiles = chips * low.placement.tiles_per_chip
    mapping = TileMapping.split(0, tiles, chips, chips + 1)
    for name in ("timestep", "timestep.previous"):
        low.variable(name, (len(chips),), "int32", mapping, "neuron states")
    table = VertexTable(
        codelet=codelets.FILL_VECTOR,
        layer="",
        tiles=tiles,
        operands={"target": "timestep"},
        columns={"start": chips, "stop": chips + 1},
        extents={"elements": np.ones_like(chips)},
        constants={"value": first},
    )
    low.emit(f"set timestep {phase}", "zeros", tables=(table,))


def count_timestep(low: Lowering, by: int) -> None:
    """One scalar addition per chip on one tile, and a second one backward for the timestep before."""
    chips = np.arange(low.placement.chips)
    tiles = chips * low.placement.tiles_per_chip
    ones = np.ones_like(chips)
    count = VertexTable(
        codelet=codelets.COUNT_TIMESTEP,
        layer="",
        tiles=tiles,
        operands={"timestep": "timestep"},
        columns={"chip": chips},
        extents={"one": ones},
        constants={"by": by},
    )
    low.emit("count timestep", "count", tables=(count,), mergeable=False)
    if by > 0:
        return
    previous = VertexTable(
        codelet=codelets.OFFSET_FROM,
        layer="",
        tiles=tiles,
        operands={"previous": "timestep.previous", "timestep": "timestep"},
        columns={"chip": chips},
        extents={"one": ones},
        constants={"by": -1},
    )
    low.emit("previous timestep", "count", tables=(previous,), mergeable=False)


def _offset(shift: int) -> str:
    return "timestep.previous" if shift else "timestep"


def slice_slots(low: Lowering, sequence: str, now: str, shift: int, chip: int) -> None:
    """now <- sequence[t + shift] on the tiles of a chip that hold both."""
    tiles, columns = low.slots_of(now, chip)
    table = VertexTable(
        codelet=codelets.slice_codelet("slots", shift),
        layer="",
        tiles=tiles,
        operands={"sequence": sequence, "now": now, "timestep": _offset(shift)},
        columns={**columns, "chip": np.full(len(tiles), chip)},
        extents={"elements": columns["slot_stop"] - columns["slot_start"]},
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def slice_rows(low: Lowering, sequence: str, now: str, shift: int, tiles: np.ndarray, chip: int) -> None:
    """now <- sequence[t + shift], one vertex per sample."""
    rows, width = low.variables[now].shape
    index = np.arange(rows)
    table = VertexTable(
        codelet=codelets.slice_codelet("rows", shift),
        layer="",
        tiles=tiles,
        operands={"sequence": sequence, "now": now, "timestep": _offset(shift)},
        columns={"start": index, "stop": index + 1, "chip": np.full(rows, chip)},
        extents={"elements": np.full(rows, width)},
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def _along(low: Lowering, variable: str) -> str:
    """How a variable that is split by neurons is moved: [batch, neurons], or [states, batch, neurons]."""
    return "states" if len(low.variables[variable].shape) == 3 else "columns"


def slice_neurons(low: Lowering, sequence: str, now: str, shift: int, layer: str) -> None:
    """now <- sequence[t + shift], one vertex per tile of the layer."""
    placed = low.placed(layer)
    table = VertexTable(
        codelet=codelets.slice_codelet(_along(low, now), shift),
        layer=layer,
        tiles=placed.tiles,
        operands={"sequence": sequence, "now": now, "timestep": _offset(shift)},
        columns={"start": placed.starts, "stop": placed.stops, "chip": np.full(placed.occupied, placed.chip)},
        extents={"elements": (placed.stops - placed.starts) * int(np.prod(low.variables[now].shape[:-1]))},
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def lower_forward(low: Lowering, op: Operation, lower_body: object) -> None:
    """The forward scan: initial carries, the repeat, the sequences it leaves behind."""
    scan: Scan = op.attributes
    network = low.network
    low.values = scan.body.values
    low.carried = frozenset(carry.enters for carry in scan.carries)
    for constant in scan.constants:
        low.storage.setdefault(constant, (constant,))
    previous: list[tuple[str, str]] = []  # (carry enters, layer) of spikes
    for carry in scan.carries:
        value = scan.body.value(carry.enters)
        layer = carry.leaves.split(".", 1)[1]
        if value.form == "sparse":
            _declare_carried_spikes(low, carry.enters, value, layer)
            previous.append((carry.enters, layer))
        elif carry.leaves == random_name(layer):
            declare_random(low, carry)
        else:
            mapping = low.by_neuron(layer, len(value.shape) - 1)
            v = low.variable(carry.leaves, value.shape, "float32", mapping, "neuron states")
            low.storage[carry.enters] = (v,)
            fill_neurons(low, v, layer, "zero states")
    home = low.chip_of("input")
    sequence = low.spikes("input.sequence", network.input_capacity, home, timesteps=network.timesteps)
    low.inputs["input.ids"], low.inputs["input.counts"] = sequence
    low.storage["input"] = sequence
    low.recorded["input"] = sequence
    now = low.spikes("input", network.input_capacity, home)
    low.storage["input.now"] = now
    set_counters(low, "forward", -1)
    low.open_repeat()
    count_timestep(low, 1)
    for whole, part in zip(sequence, now, strict=True):
        slice_slots(low, whole, part, 0, home)
    for enters, layer in previous:
        for source, target in zip(handed_on(low, layer), low.storage[enters], strict=True):
            low.emit("hand on spikes", "carry", copies=(Copy(source=source, target=target),), layer=layer)
    lower_body(low, scan)  # type: ignore[operator]
    finals = len(scan.carries)
    for name, outer in zip(scan.stacked, op.outputs[finals:], strict=True):
        low.storage[outer] = _stash(low, scan.body.value(name))
        if scan.body.value(name).form == "sparse":
            low.recorded[name.split(".", 1)[1]] = (low.storage[outer][0], low.storage[outer][1])
    low.close_repeat(scan.timesteps, scan.reverse)


def _declare_carried_spikes(low: Lowering, enters: str, value: Value, layer: str) -> None:
    """Slots that the next layer reads, and what a layer leaves for them, known before the body writes it because the
    carry reads it first; no spikes have been emitted before the first timestep."""
    chip = gradient_chip(low, layer)
    if low.options.spike_exchange == "dense":
        width = low.layer(layer).neurons
        row = low.spread(f"row.{layer}.in", width, "uint8", "spike ids", chip, least_bytes=LINEAR_BYTES)
        low.storage[enters] = (row,)
    else:
        low.storage[enters] = low.spikes(f"{layer}.in", value.capacity, chip, least_bytes=LINEAR_BYTES)
    # of ids and counts, only the counts need a value
    _fill_slots(low, low.storage[enters][-1], chip, "zero spikes", LINEAR_BYTES)
    list_variables(low, layer)
    leaves = handed_on(low, layer)
    _fill_rows(low, leaves[-1], low.placed(layer).combine_tiles, "zero spikes")


def _stash(low: Lowering, value: Value) -> tuple[str, ...]:
    """Store a body value into its sequence at t; the sequence's variables."""
    network = low.network
    layer = layer_of(network, value.name)
    if value.form == "sparse":
        chip = low.chip_of(layer)
        sequence = low.spikes(f"{layer}.sequence", value.capacity, chip, timesteps=network.timesteps)
        for now, whole in zip(low.storage[value.name], sequence, strict=True):
            tiles, columns = low.slots_of(now, chip)
            table = VertexTable(
                codelet=codelets.update_codelet("slots"),
                layer=layer,
                tiles=tiles,
                operands={"now": now, "sequence": whole, "timestep": "timestep"},
                columns={**columns, "chip": np.full(len(tiles), chip)},
                extents={"elements": columns["slot_stop"] - columns["slot_start"]},
            )
            low.emit(f"stash {now}", "stash", tables=(table,), mergeable=False)
        return sequence
    shape = (network.timesteps, *value.shape)
    mapping = low.by_neuron(layer, len(shape) - 1)
    whole = low.variable(f"{value.name}.sequence", shape, "float32", mapping, "neuron states")
    now = low.storage[value.name][0]
    placed = low.placed(layer)
    table = VertexTable(
        codelet=codelets.update_codelet(_along(low, now)),
        layer=layer,
        tiles=placed.tiles,
        operands={"now": now, "sequence": whole, "timestep": "timestep"},
        columns={"start": placed.starts, "stop": placed.stops, "chip": np.full(placed.occupied, placed.chip)},
        extents={"elements": (placed.stops - placed.starts) * int(np.prod(value.shape[:-1]))},
    )
    low.emit(f"stash {value.name}", "stash", tables=(table,), mergeable=False)
    return (whole,)


def lower_backward(low: Lowering, op: Operation, lower_body: object) -> None:
    """The reversed scan: adjoints in place, stash sliced per timestep, weight gradients summed in replicas."""
    scan: Scan = op.attributes
    low.values = scan.body.values
    low.carried = frozenset(carry.enters for carry in scan.carries)
    for carry in scan.carries:
        value = scan.body.value(carry.enters)
        kind, parameter, layer = carry.enters.split(".", 2)
        if kind == "sum":
            replicas = low.options.weight_gradient_replicas
            name = low.variable(
                f"d{parameter}.{layer}",
                (replicas, *value.shape),
                "float32",
                low.by_neuron(layer, 2),
                "weight gradients",
            )
            fill_neurons(low, name, layer, "zero weight gradients")
        elif value.capacity:
            chip = gradient_chip(low, layer)
            name = low.spread(f"g.{layer}", value.capacity, "float32", "gradients", chip)
            _fill_slots(low, name, chip, "zero adjoints")
        else:
            mapping = low.by_neuron(layer, len(value.shape) - 1)
            name = low.variable(f"d{parameter}.{layer}", value.shape, "float32", mapping, "gradients")
            fill_neurons(low, name, layer, "zero adjoints")
            declare_constants(low, layer)
            if low.options.state_gradient == "per_batch":
                declare_thresholds(low, layer)
        low.storage[carry.enters] = (name,)
        low.storage[carry.leaves] = (name,)
        _add_in_place(low, scan, carry.leaves)
    offset = len(scan.carries)
    set_counters(low, "backward", scan.timesteps)
    low.open_repeat()
    count_timestep(low, -1)
    for item, outer in zip(scan.slices, op.inputs[offset:], strict=False):
        _slice_saved(low, scan.body.value(item.inside), low.storage[outer], item.shift)
    for inside, outer in zip(scan.constants, op.inputs[offset + len(scan.slices) :], strict=True):
        low.storage[inside] = low.storage.get(outer, (outer,))
    lower_body(low, scan)  # type: ignore[operator]
    low.close_repeat(scan.timesteps, scan.reverse)
    for outer, carry in zip(op.outputs, scan.carries, strict=True):
        low.storage[outer] = low.storage[carry.leaves]
        if carry.enters.startswith("sum."):
            sum_replicas(low, outer, carry.enters.removeprefix("sum."))


def _add_in_place(low: Lowering, scan: Scan, leaves: str) -> None:
    """A gradient at listed ids that is added to another one to leave the body is made where the sum lies."""
    maker = scan.body.producer(leaves)
    while maker is not None and maker.kind == "add" and scan.body.value(leaves).capacity:
        low.storage[maker.inputs[0]] = low.storage[leaves]
        maker = scan.body.producer(maker.inputs[0])


def _slice_saved(low: Lowering, value: Value, sequence: tuple[str, ...], shift: int) -> None:
    """The current timestep of a stashed sequence, in variables of its own."""
    if value.form == "sparse":
        chip = low.chip_of(sequence[0].split(".")[1])
        now = low.spikes(value.name, value.capacity, chip)
        low.storage[value.name] = now
        for whole, part in zip(sequence, now, strict=True):
            slice_slots(low, whole, part, shift, chip)
    elif value.capacity:
        batch = low.network.batch
        now_g = low.variable(value.name, (batch, value.capacity), "float32", low.by_sample(0), "gradients")
        low.storage[value.name] = (now_g,)
        slice_rows(low, sequence[0], now_g, shift, low.placement.sample_tiles, low.placement.layers[-1].chip)
    else:
        layer = layer_of(low.network, sequence[0])
        mapping = low.by_neuron(layer, len(value.shape) - 1)
        now_v = low.variable(value.name, value.shape, "float32", mapping, "neuron states")
        low.storage[value.name] = (now_v,)
        slice_neurons(low, sequence[0], now_v, shift, layer)
