"""Weights of a neuron on several tiles: currents summed in parts, and gradients of the part of the weights each has.

A part works on the listed ids in its range of inputs; which these are is known only when the spikes are, so it looks at
every id.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from mimdsim.codelets.dense import SUM_REPLICAS
from mimdsim.codelets.fan_in import SYNAPSE_CURRENT_PART
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.sparse.selection import received
from mimdsim.graph import Operation
from mimdsim.program import Hits, Spikes, TileMapping
from mimdsim.program.loop_extents import Recorded
from mimdsim.program.mapping import Band

Columns = tuple[np.ndarray, dict[str, np.ndarray]]


def parts_of(low: Lowering, layer: str, rows: int, columns_of: Callable[..., Columns] | None = None) -> Columns:
    """Tiles and columns of a table for every part of weights of so many rows, one part after another: `start` and
    `stop` are the part's range of inputs, `first` and `last` its neurons, `part` its number among a sample's tiles.

    columns_of(low, layer, part): of one part, by default one vertex per sample and tile.
    """
    columns_of = columns_of or _by_sample
    tiles, columns = [], []
    for part, (begin, end) in enumerate(pairwise(low.placed(layer).cut_rows(rows).tolist())):
        where, own = columns_of(low, layer, part)
        own["first"], own["last"] = own["start"], own["stop"]
        own["start"], own["stop"] = np.full(len(where), begin), np.full(len(where), end)
        tiles.append(where)
        columns.append(own)
    return np.concatenate(tiles), {name: np.concatenate([own[name] for own in columns]) for name in columns[0]}


def _by_sample(low: Lowering, layer: str, part: int) -> Columns:
    placed = low.placed(layer)
    _, columns = low.by_sample_and_tile(layer, parts=True)
    columns["part"] += part * len(placed.starts)
    columns["fan_in_part"] = np.full(len(columns["part"]), part)
    return placed.grid[placed.copy_of, part].ravel(), columns


def synapse_inputs(low: Lowering, op: Operation) -> tuple[dict[str, str], dict[str, np.ndarray | Recorded]]:
    """Operands and extents of a vertex that sums weights: of listed ids, or by a dense row."""
    spikes, weights = op.inputs
    source, (layer, shift) = received(low, spikes), low.origin(spikes)
    names = ("row",) if len(source) == 1 else ("ids", "counts")
    operands = {"w": low.storage[weights][0], **dict(zip(names, source, strict=True))}
    return operands, {"spikes": Spikes(layer=layer, shift=shift)}


def emit_current(low: Lowering, op: Operation) -> str:
    """The current [batch, neurons] from listed ids, in parts on their tiles and then summed with the states."""
    layer, (name,) = op.layer, op.outputs
    shape = (low.placed(layer).fan_in_parts, low.network.batch, low.layer(layer).neurons)
    mapping = TileMapping.banded(
        tuple(Band(axis=0, start=part, stop=part + 1, mapping=_of_part(low, layer, part)) for part in range(shape[0]))
    )
    partial = low.variable(f"{name}.parts", shape, "float32", mapping, "neuron states")
    operands, extents = synapse_inputs(low, op)
    source, shift = low.origin(op.inputs[0])
    hits = Hits(layer=source, shift=shift, which="spikes")
    tiles, columns = parts_of(low, layer, low.variables[operands["w"]].shape[0])
    operands, extents = {"current": partial, **operands}, {**extents, "hits": hits}
    low.compute("synapse current", op, SYNAPSE_CURRENT_PART, tiles, columns, operands, extents=extents)
    current = low.plane(name, layer, "neuron states")
    operands = {"replicas": partial, "total": current}
    low.compute("sum parts", op, *low.over_neurons(SUM_REPLICAS, layer), operands)
    return current


def _of_part(low: Lowering, layer: str, part: int) -> TileMapping:
    """Of [parts, batch, neurons]: where one part of the weights is."""
    placed = low.placed(layer)
    return TileMapping.banded(
        tuple(
            Band(axis=1, start=begin, stop=end, mapping=TileMapping.split(2, tiles, placed.starts, placed.stops))
            for (begin, end), tiles in zip(pairwise(placed.batch_edges.tolist()), placed.grid[:, part], strict=True)
        )
    )
