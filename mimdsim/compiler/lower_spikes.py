"""Gradients that follow listed spikes on tiles: of weights, and of the spikes themselves with their sum over tiles."""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import spikes as codelets
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.lower_neurons import neuron_extents, tile_sample_columns
from mimdsim.graph import Operation
from mimdsim.program import Copy, Listed, SpikesOver, TileMapping, VertexTable, Within
from mimdsim.program.mapping import FLAT


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
            **neuron_extents(low, columns),
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
        extents={"listed": Listed(layer=source, shift=-1), **neuron_extents(low, columns)},
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
    tiles, columns = low.slots_of(g, low.chip_of(layer))
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
    ("synapse_weight_gradient", "add"): lower_weight_gradient,
    ("synapse_spike_gradient",): lower_input_gradient,
}
