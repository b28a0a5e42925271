"""Spike selection on tiles: flags, worker scans and two combines, then a dense row where the next layer reads one."""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import spikes as codelets
from mimdsim.codelets.dense import RANDOM_OFFSETS
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.compiler.layout import WORD_BYTES, Where, entries_on
from mimdsim.compiler.place.layer_partition import LayerPlacement
from mimdsim.graph import Layer, Operation
from mimdsim.graph.names import INPUT
from mimdsim.graph.records import Carry
from mimdsim.program import Codelet, Hits, TileMapping
from mimdsim.program.loops import Recorded

WHICH = ("spikes", "gradient")  # flag rows
ROWS = len(WHICH)


# scan, join of workers, join of tiles: from neuron 0, or from a neuron drawn for each sample
PUBLISHED = codelets.SCAN_FLAGS, codelets.COMBINE_WORKERS, codelets.COMBINE_TILES
FROM_A_START = codelets.SCAN_FLAGS_FROM, codelets.COMBINE_WORKERS_FROM, codelets.COMBINE_TILES_FROM


def declare_random(low: Lowering, carry: Carry, layer: str) -> None:
    """The generator of a layer, one number per sample where its list is joined; the host sets it before a batch."""
    random = low.variable(
        carry.leaves,
        (low.network.batch,),
        "int64",
        _by_list(low, layer),
        "spike selection",
        persistent=True,
        stored_bytes=WORD_BYTES,
    )
    low.inputs[carry.leaves] = random
    low.storage[carry.enters] = (random,)


def lower_next_random(low: Lowering, op: Operation) -> None:
    """next_random: the generators one number on, and the neurons that their scans start at."""
    layer = low.layer(op.layer)
    (random,) = low.storage[op.inputs[0]]
    starts = low.variable(
        f"starts.{layer.name}", (low.network.batch,), "int32", _by_list(low, layer.name), "spike selection"
    )
    low.storage[op.outputs[0]] = (random, starts)
    where, operands = _per_list(low, layer.name), {"random": random, "starts": starts}
    constants = {"neurons": layer.neurons}
    low.compute("draw starts", op, codelets.DRAW_STARTS, *where, operands, constants=constants, mergeable=False)


def _by_list(low: Lowering, layer: str) -> TileMapping:
    return entries_on(low.placed(layer).combine_tiles)


def _per_list(low: Lowering, layer: str) -> Where:
    """Tiles and columns of one vertex per sample, where its list is joined."""
    return low.placed(layer).combine_tiles, {"sample": np.arange(low.network.batch)}


def lower_selection(low: Lowering, op: Operation) -> None:
    """select_spikes: dense flags on the neuron tiles -> scans and combines on the selection tiles -> ids and counts."""
    layer = low.layer(op.layer)
    placed = low.placed(layer.name)
    name, batch = layer.name, low.network.batch
    v = low.storage[op.inputs[0]][0]
    flags = low.variable(
        f"flags.{name}", (ROWS, batch, layer.neurons), "int32", low.on_neurons(name, 2), "spike selection"
    )
    drawn = layer.selection.truncation == "random"  # then the state of the generators is the last input
    second = low.storage[op.inputs[1]][0] if len(op.inputs) > 1 + drawn else None
    _emit_flags(low, op, {"v": v, "flags": flags}, second)
    scan, join, combine = FROM_A_START if drawn else PUBLISHED
    starts = {"starts": low.storage[op.inputs[-1]][1]} if drawn else {}
    if not drawn:
        _emit_random_offsets(low, op)
    edges, part_edges = _runs(layer.neurons, placed)
    part_of_worker = np.searchsorted(part_edges, np.arange(placed.workers), side="right") - 1
    operands = _emit_lists(low, op, "worker", "scan flags", scan, edges, part_of_worker, {"flags": flags, **starts})
    ends, parts = edges[part_edges], np.arange(placed.spread)
    operands |= starts
    tile_lists = _emit_lists(low, op, "tile", "combine workers", join, ends, parts, operands, joined=part_edges)
    ids, counts = list_variables(low, name)
    low.storage[op.outputs[0]] = (ids, counts)
    per_sample = ROWS * placed.spread
    tiles, columns = _per_list(low, name)
    first = columns["sample"] * per_sample
    low.compute(
        "combine tiles",
        op,
        combine,
        tiles,
        {**columns, "first": first, "middle": first + placed.spread, "last": first + per_sample},
        {**tile_lists, "ids": ids, "counts": counts, **starts},
        follows=Recorded(layer=name),
    )
    read = name != low.network.layers[-1].name or low.network.is_read(len(low.network.layers) - 1)
    if low.options.spike_exchange == "dense" and read:
        (row,) = handed_on(low, name)  # of zeros and ones, where the final list lies
        operands, where = {"row": row, "ids": ids, "counts": counts}, _per_list(low, name)
        low.compute("spikes to dense", op, codelets.SPIKES_TO_DENSE, *where, operands, follows=Recorded(layer=name))


def _emit_flags(low: Lowering, op: Operation, operands: dict[str, str], second: str | None) -> None:
    """One vertex per neuron and sample (as published), samples outermost; or one per tile and worker context."""
    layer, placed, above = low.layer(op.layer), low.placed(op.layer), second is not None
    if second is not None:
        operands["second_threshold"] = second
    constants: dict[str, object] = {
        "threshold": np.float32(layer.selection.threshold),
        "second_threshold": np.float32(layer.selection.second_threshold),
    }
    if "coarse_flags" in low.options.rules:
        codelet, where = codelets.FLAG_ROWS_ABOVE if above else codelets.FLAG_ROWS, low.by_context(op.layer)
    else:
        codelet = codelets.FLAG_SPIKES_ABOVE if above else codelets.FLAG_SPIKES
        tile_of_neuron = np.repeat(placed.homes, placed.stops - placed.starts, axis=1)
        sample, neuron = (column.ravel() for column in np.indices((low.network.batch, layer.neurons)))
        where = tile_of_neuron[placed.copy_of].ravel(), {"sample": sample, "neuron": neuron}
    low.compute("flag spikes", op, codelet, *where, operands, constants=constants)


def _emit_random_offsets(low: Lowering, op: Operation) -> None:
    """A random offset per selecting tile, drawn every timestep. The published scan draws and ignores it."""
    tiles = low.placed(op.layer).selection_tiles.ravel()
    name, mapping, columns = f"offsets.{op.layer}", entries_on(tiles), {"slot": np.arange(len(tiles))}
    operands = {"offsets": low.variable(name, (len(tiles),), "int32", mapping, "spike selection")}
    low.compute("random offsets", op, RANDOM_OFFSETS, tiles, columns, operands, mergeable=False)


def list_variables(low: Lowering, layer: str) -> tuple[str, str]:
    """Final ids and counts of a layer, each sample on its combine tile."""
    mapping, batch, dtype = _by_list(low, layer), low.network.batch, low.options.id_dtype
    ids = low.variable(f"ids.{layer}", (batch, low.layer(layer).capacity), dtype, mapping, "spike ids")
    counts = low.variable(f"counts.{layer}", (batch, 2), dtype, mapping, "spike ids")
    return ids, counts


def handed_on(low: Lowering, layer: str) -> tuple[str, ...]:
    """What a layer's spikes are read from by others and itself: ids and counts, or a row of one byte per neuron."""
    if low.options.spike_exchange == "ids":
        return list_variables(low, layer)
    shape = (low.network.batch, low.layer(layer).neurons)
    return (low.variable(f"row.{layer}", shape, "uint8", _by_list(low, layer), "spike ids"),)


def received(low: Lowering, spikes: str) -> tuple[str, ...]:
    """From where vertices read `spikes`: handed on or, when the layer has just emitted them, where it left them."""
    origin = low.origin(spikes)
    if origin.layer == INPUT or origin.shift or spikes in low.carried:
        return low.storage[spikes]
    return handed_on(low, origin.layer)


def _runs(neurons: int, placed: LayerPlacement) -> tuple[np.ndarray, np.ndarray]:
    """Neurons in runs: worker w scans edges[w]..edges[w + 1] - 1; part p of a sample's tiles has the workers
    part_edges[p]..part_edges[p + 1] - 1. The first N mod workers get one neuron more."""
    workers, spread = placed.workers, placed.spread
    counts = np.full(workers, neurons // workers) + (np.arange(workers) < neurons % workers)
    return np.concatenate([[0], np.cumsum(counts)]), (np.arange(spread + 1) * workers) // spread


def _emit_lists(
    low: Lowering,
    op: Operation,
    level: str,
    stage: str,
    codelet: Codelet,
    edges: np.ndarray,
    part_of: np.ndarray,
    operands: dict[str, str],
    joined: np.ndarray | None = None,
) -> dict[str, str]:
    """Lists in slots (sample, row, number), of neurons edges[number]..edges[number + 1] - 1 each, on the tile `part_of`
    number of those of a sample and row; joined: list k is of lists joined[k]..joined[k + 1] - 1 of `operands`.

    A superstep with a table for each row of flags, whose vertices find other numbers of ids. Returns the operands of
    the lists.
    """
    layer, placed = low.layer(op.layer), low.placed(op.layer)
    every = np.indices((low.network.batch, ROWS, len(part_of)))
    sample, row, number = (column.ravel() for column in every)
    tiles = placed.selection_tiles[sample, row, part_of[number]]
    lists = _lists(low, layer, level, tiles, int(np.diff(edges).max()))
    slot, base = {"slot": np.arange(len(tiles))}, sample * ROWS + row
    columns = {"row": row, "sample": sample, "start": edges[number], "stop": edges[number + 1]}
    if joined is None:
        columns |= slot
    else:
        first, last = (base * joined[-1] + ends[number] for ends in (joined, joined[1:]))
        columns = {"first": first, "last": last, **slot, **columns}
    operands, constants = {**operands, **lists}, {"capacity": layer.capacity}
    with low.superstep(stage, op.kind, layer=op.layer):
        for which in range(ROWS):
            chosen = np.flatnonzero(row == which)
            some = {name: column[chosen] for name, column in columns.items()}
            follows = Hits(layer=op.layer, which=WHICH[which])
            low.compute(stage, op, codelet, tiles[chosen], some, operands, follows=follows, constants=constants)
    return lists


def _lists(low: Lowering, layer: Layer, level: str, tiles: np.ndarray, most: int) -> dict[str, str]:
    """Operands: ids and counts of lists in slots, of at most `most` ids each, slot by slot on `tiles`."""
    mapping, dtype, category = entries_on(tiles), low.options.id_dtype, "spike selection"
    # in whole words: what two contexts of a tile write must not share one (nor may their counts)
    word = WORD_BYTES // low.options.id_bytes
    room = -(-min(layer.capacity, most) // word) * word
    ids = low.variable(f"{level}_ids.{layer.name}", (len(tiles), room), dtype, mapping, category)
    counts = low.variable(
        f"{level}_counts.{layer.name}", (len(tiles),), dtype, mapping, category, stored_bytes=WORD_BYTES
    )
    return {f"{level}_ids": ids, f"{level}_counts": counts}


RULES: Rules = {
    ("select_spikes",): lower_selection,
    ("next_random",): lower_next_random,
}
