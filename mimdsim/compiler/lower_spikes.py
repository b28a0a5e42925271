"""Spike operations on tiles: flags, worker scans and two combines forward; weight and input gradients backward."""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import spikes as codelets
from mimdsim.codelets.dense import RANDOM_OFFSETS
from mimdsim.compiler.context import Lowering, defines_of
from mimdsim.compiler.lower_neurons import neuron_extents, tile_sample_columns
from mimdsim.compiler.placement import LayerPlacement
from mimdsim.graph import Layer, Operation
from mimdsim.program import Copy, Hits, Listed, SpikesOver, TileMapping, VertexTable, Within
from mimdsim.program.mapping import FLAT

ROWS = 2  # flag rows: true spikes, gradient entries


def lower_selection(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """select_spikes: dense flags on the neuron tiles -> scans and combines on the selection tiles -> ids and counts."""
    (op,) = ops
    layer = low.layer(op.layer)
    placed = low.placed(layer.name)
    name, batch = layer.name, low.network.batch
    v = low.storage[op.inputs[0]][0]
    flags = low.variable(
        f"flags.{name}", (ROWS, batch, layer.neurons), "int32", low.by_neuron(name, 2), "spike selection"
    )
    _emit_flags(low, layer, placed, v, flags)
    _emit_random_offsets(low, layer, placed)
    tile_lists = _emit_scans(low, layer, placed, flags)
    ids, counts = _list_variables(low, layer, placed)
    low.storage[op.outputs[0]] = (ids, counts)
    per_sample = ROWS * placed.spread
    first = np.arange(batch) * per_sample
    table = VertexTable(
        codelet=codelets.COMBINE_TILES,
        layer=name,
        tiles=placed.combine_tiles,
        operands={"tile_ids": tile_lists[0], "tile_counts": tile_lists[1], "ids": ids, "counts": counts},
        columns={
            "sample": np.arange(batch),
            "first": first,
            "middle": first + placed.spread,
            "last": first + per_sample,
        },
        extents={"listed": Listed(layer=name), "lists": np.full(batch, per_sample)},
    )
    value = low.values[op.outputs[0]]
    low.emit("combine tiles", op.kind, tables=(table,), defines=defines_of((ids, counts), value), layer=name)


def _emit_flags(low: Lowering, layer: Layer, placed: LayerPlacement, v: str, flags: str) -> None:
    """One vertex per neuron and sample (as published), samples outermost."""
    batch = low.network.batch
    tile_of_neuron = np.repeat(placed.tiles, placed.stops - placed.starts)
    table = VertexTable(
        codelet=codelets.FLAG_SPIKES,
        layer=layer.name,
        tiles=np.tile(tile_of_neuron, batch),
        operands={"v": v, "flags": flags},
        columns={
            "sample": np.repeat(np.arange(batch), layer.neurons),
            "neuron": np.tile(np.arange(layer.neurons), batch),
        },
        constants={
            "threshold": np.float32(layer.selection.threshold),
            "second_threshold": np.float32(layer.selection.second_threshold),
        },
    )
    low.emit("flag spikes", "select_spikes", tables=(table,), layer=layer.name)


def _emit_random_offsets(low: Lowering, layer: Layer, placed: LayerPlacement) -> None:
    """A random offset per selecting tile, drawn every timestep. The published scan draws and ignores it."""
    tiles = placed.selection_tiles.ravel()
    slots = np.arange(len(tiles))
    mapping = TileMapping.split(0, tiles, slots, slots + 1)
    offsets = low.variable(f"offsets.{layer.name}", (len(slots),), "int32", mapping, "spike selection")
    table = VertexTable(
        codelet=RANDOM_OFFSETS,
        layer=layer.name,
        tiles=tiles,
        operands={"offsets": offsets},
        columns={"slot": slots},
        extents={"one": np.ones_like(slots)},
    )
    low.emit("random offsets", "select_spikes", tables=(table,), mergeable=False, layer=layer.name)


def _list_variables(low: Lowering, layer: Layer, placed: LayerPlacement) -> tuple[str, str]:
    """Final ids and counts, each sample on its combine tile."""
    index = np.arange(low.network.batch)
    mapping = TileMapping.split(0, placed.combine_tiles, index, index + 1)
    ids = low.variable(f"ids.{layer.name}", (len(index), layer.capacity), "int32", mapping, "spike ids")
    counts = low.variable(f"counts.{layer.name}", (len(index), 2), "int32", mapping, "spike ids")
    return ids, counts


def _emit_scans(low: Lowering, layer: Layer, placed: LayerPlacement, flags: str) -> tuple[str, str]:
    """Workers scan runs of neurons; the workers of a tile are then joined. Returns the variables of the tile lists.

    Slots are numbered (sample, row, worker) and (sample, row, part); the first N mod workers get one neuron more.
    """
    name, batch, workers, spread = layer.name, low.network.batch, placed.workers, placed.spread
    edges = np.concatenate(
        [[0], np.cumsum(np.full(workers, layer.neurons // workers) + (np.arange(workers) < layer.neurons % workers))]
    )
    part_edges = (np.arange(spread + 1) * workers) // spread
    part_of_worker = np.searchsorted(part_edges, np.arange(workers), side="right") - 1
    sample, row, worker = (
        column.ravel() for column in np.meshgrid(np.arange(batch), np.arange(ROWS), np.arange(workers), indexing="ij")
    )
    tiles = placed.selection_tiles[sample, row, part_of_worker[worker]]
    slots = np.arange(len(sample))
    per_worker = int(min(layer.capacity, (edges[1:] - edges[:-1]).max()))
    mapping = TileMapping.split(0, tiles, slots, slots + 1)
    selection = "spike selection"
    worker_ids = low.variable(f"worker_ids.{name}", (len(slots), per_worker), "int32", mapping, selection)
    worker_counts = low.variable(f"worker_counts.{name}", (len(slots),), "int32", mapping, selection)
    scans = []
    for chosen, which in ((0, "spikes"), (1, "gradient")):
        keep = row == chosen
        start, stop = edges[worker[keep]], edges[worker[keep] + 1]
        scans.append(
            VertexTable(
                codelet=codelets.SCAN_FLAGS,
                layer=name,
                tiles=tiles[keep],
                operands={"flags": flags, "worker_ids": worker_ids, "worker_counts": worker_counts},
                columns={"row": row[keep], "sample": sample[keep], "start": start, "stop": stop, "slot": slots[keep]},
                extents={"states": stop - start, "hits": Hits(layer=name, which=which)},
                constants={"capacity": layer.capacity},
            )
        )
    low.emit("scan flags", "select_spikes", tables=tuple(scans), layer=name)
    sample, row, part = (
        column.ravel() for column in np.meshgrid(np.arange(batch), np.arange(ROWS), np.arange(spread), indexing="ij")
    )
    tiles = placed.selection_tiles[sample, row, part]
    slots = np.arange(len(sample))
    mapping = TileMapping.split(0, tiles, slots, slots + 1)
    scanned = edges[part_edges[1:]] - edges[part_edges[:-1]]  # neurons per tile; not always ceil(neurons / spread)
    per_tile = int(min(layer.capacity, scanned.max()))
    tile_ids = low.variable(f"tile_ids.{name}", (len(slots), per_tile), "int32", mapping, selection)
    tile_counts = low.variable(f"tile_counts.{name}", (len(slots),), "int32", mapping, selection)
    combines = []
    for chosen, which in ((0, "spikes"), (1, "gradient")):
        keep = row == chosen
        base = (sample[keep] * ROWS + row[keep]) * workers
        first, last = part_edges[part[keep]], part_edges[part[keep] + 1]
        combines.append(
            VertexTable(
                codelet=codelets.COMBINE_WORKERS,
                layer=name,
                tiles=tiles[keep],
                operands={
                    "worker_ids": worker_ids,
                    "worker_counts": worker_counts,
                    "tile_ids": tile_ids,
                    "tile_counts": tile_counts,
                },
                columns={
                    "first": base + first,
                    "last": base + last,
                    "slot": slots[keep],
                    "sample": sample[keep],
                    "start": edges[first],
                    "stop": edges[last],
                },
                extents={"workers": last - first, "hits": Hits(layer=name, which=which)},
            )
        )
    low.emit("combine workers", "select_spikes", tables=tuple(combines), layer=name)
    return tile_ids, tile_counts


def replicate_spikes(low: Lowering, spikes: str, layer: str) -> tuple[str, str]:
    """Ids and counts of `spikes` copied to every tile of `layer`, once per timestep."""
    ids, counts = low.storage[spikes]
    tiles = low.placed(layer).tiles
    mapping = TileMapping.replicated(tiles)
    copies = []
    names = []
    for original in (ids, counts):
        held = low.variables[original]
        name = f"{original}.on.{layer}"
        if name not in low.variables:
            copies.append(Copy(source=original, target=name))
        names.append(low.variable(name, held.shape, held.dtype, mapping, "spike ids"))
    if copies:
        low.emit("replicate ids", "replicate", copies=tuple(copies), layer=layer)
    return names[0], names[1]


def lower_weight_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """synapse_weight_gradient + add: every worker context adds its samples into a replica of its own."""
    gradient, add = ops
    layer = low.layer(gradient.layer)
    placed = low.placed(layer.name)
    held = next(name for name in add.inputs if name not in gradient.outputs)
    dw = low.storage[held][0]
    low.storage[add.outputs[0]] = (dw,)
    q, spikes = gradient.inputs
    ids, counts = replicate_spikes(low, spikes, layer.name)
    batch = low.network.batch
    replicas = low.variables[dw].shape[0]
    edges = (np.arange(replicas + 1) * batch) // replicas
    filled = np.flatnonzero(edges[1:] > edges[:-1])
    replica, tile = (column.ravel() for column in np.meshgrid(filled, np.arange(placed.occupied), indexing="ij"))
    columns = {
        "replica": replica,
        "sample_start": edges[replica],
        "sample_stop": edges[replica + 1],
        "start": placed.starts[tile],
        "stop": placed.stops[tile],
    }
    source = low.source_of(layer.name)
    table = VertexTable(
        codelet=codelets.WEIGHT_GRADIENT,
        layer=layer.name,
        tiles=placed.tiles[tile],
        operands={"dw": dw, "q": low.storage[q][0], "ids": ids, "counts": counts},
        columns=columns,
        extents={
            "spikes": SpikesOver(layer=source, shift=0 if source == "input" else -1),
            "samples": columns["sample_stop"] - columns["sample_start"],
            **neuron_extents(columns),
        },
    )
    low.emit("weight gradient", gradient.kind, tables=(table,), layer=layer.name)


def lower_input_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """synapse_spike_gradient: partial sums on the neuron tiles, added up over groups of tiles and then over groups."""
    (op,) = ops
    layer = low.layer(op.layer)
    placed = low.placed(layer.name)
    q, spikes, weights = op.inputs
    source = low.source_of(layer.name)
    capacity, batch = op.attributes, low.network.batch
    ids, counts = replicate_spikes(low, spikes, layer.name)
    by_tile = np.arange(placed.occupied)
    partial = low.variable(
        f"partial.{layer.name}",
        (placed.occupied, batch, capacity),
        "float32",
        TileMapping.split(0, placed.tiles, by_tile, by_tile + 1),
        "gradients",
    )
    tiles, columns = tile_sample_columns(placed, batch)
    columns["part"] = np.tile(by_tile, batch)
    table = VertexTable(
        codelet=codelets.INPUT_GRADIENT,
        layer=layer.name,
        tiles=tiles,
        operands={
            "partial": partial,
            "w": low.storage[weights][0],
            "q": low.storage[q][0],
            "ids": ids,
            "counts": counts,
        },
        columns=columns,
        extents={"listed": Listed(layer=source, shift=-1), **neuron_extents(columns)},
    )
    low.emit("input gradient", op.kind, tables=(table,), layer=layer.name)
    g = low.storage[op.outputs[0]][0]
    _emit_reduction(low, op, layer.name, source, partial, low.storage[spikes][1], g)


def gradient_chip(low: Lowering, layer: str) -> int:
    """The chip that reads the spikes of `layer` and sums up their gradients: that of the next layer."""
    names = [placed.name for placed in low.placement.layers]
    return low.placement.layers[min(names.index(layer) + 1, len(names) - 1)].chip


def _emit_reduction(low: Lowering, op: Operation, layer: str, source: str, partial: str, counts: str, g: str) -> None:
    index = [placed.name for placed in low.placement.layers].index(layer)
    plan = low.placement.reductions[index]
    assert plan is not None
    occupied, batch, capacity = low.variables[partial].shape
    number = np.arange(plan.groups * batch * capacity)
    group, sample, slot = np.unravel_index(number, (plan.groups, batch, capacity))
    part_start = group * plan.group_size
    part_stop = np.where(group == plan.groups - 1, occupied, part_start + plan.group_size)
    tiles = plan.first_tile + number // plan.per_tile
    mapping = TileMapping.split(FLAT, tiles, number, number + 1)
    stage = low.variable(f"stage.{layer}", (plan.groups, batch, capacity), "float32", mapping, "gradients")
    last_group = (plan.groups - 1) * plan.group_size
    tables = []
    is_last = group == plan.groups - 1
    for chosen, parts in ((~is_last, plan.group_size), (is_last, occupied - last_group)):
        if not chosen.any():
            continue
        tables.append(
            VertexTable(
                codelet=codelets.REDUCE_PARTS,
                layer=layer,
                tiles=tiles[chosen],
                operands={"partial": partial, "counts": counts, "stage": stage},
                columns={
                    "part_start": part_start[chosen],
                    "part_stop": part_stop[chosen],
                    "group": group[chosen],
                    "sample": sample[chosen],
                    "slot": slot[chosen],
                },
                extents={"parts": Within(layer=source, times=int(parts), shift=-1)},
            )
        )
    low.emit("reduce parts", op.kind, tables=tuple(tables), layer=layer)
    tiles, columns = low.slots(capacity, low.chip_of(layer))
    outputs = columns["slot_stop"] - columns["slot_start"]
    table = VertexTable(
        codelet=codelets.REDUCE_GROUPS,
        layer=layer,
        tiles=tiles,
        operands={"stage": stage, "g": g},
        columns=columns,
        extents={"outputs": outputs, "groups": np.full(len(outputs), plan.groups)},
    )
    low.emit("reduce groups", op.kind, tables=(table,), defines=((g, op.outputs[0]),), layer=layer)


RULES = {
    ("select_spikes",): lower_selection,
    ("synapse_weight_gradient", "add"): lower_weight_gradient,
    ("synapse_spike_gradient",): lower_input_gradient,
}
