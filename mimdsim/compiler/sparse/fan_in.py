"""Weights of a neuron on several tiles: currents summed in parts, and gradients of the part of the weights each has.

A part works on the listed ids in its range of inputs; which these are is known only when the spikes are, so it looks at
every id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from mimdsim.codelets.dense import SUM_REPLICAS
from mimdsim.codelets.fan_in import SYNAPSE_CURRENT_PART
from mimdsim.compiler.context import Lowering
from mimdsim.program import Hits, Spikes, TileMapping, VertexTable
from mimdsim.program.mapping import Band

Columns = tuple[np.ndarray, dict[str, np.ndarray]]


def parts_of(low: Lowering, layer: str, rows: int, columns_of: Callable[..., Columns] | None = None) -> Columns:
    """Tiles and columns of a table for every part of weights of so many rows, one part after another: `start` and
    `stop` are the part's range of inputs, `first` and `last` its neurons, `part` its number among a sample's tiles.

    columns_of(low, layer, part): of one part, by default one vertex per sample and tile.
    """
    found = list(_each_part(low, layer, rows, columns_of or _by_sample))
    tiles = np.concatenate([tiles for tiles, _ in found])
    return tiles, {name: np.concatenate([columns[name] for _, columns in found]) for name in found[0][1]}


def _each_part(low: Lowering, layer: str, rows: int, columns_of: Callable[..., Columns]) -> Iterator[Columns]:
    for part, (begin, end) in enumerate(pairwise(low.placed(layer).cut_rows(rows).tolist())):
        tiles, columns = columns_of(low, layer, part)
        columns["first"], columns["last"] = columns["start"], columns["stop"]
        columns["start"], columns["stop"] = np.full(len(tiles), begin), np.full(len(tiles), end)
        yield tiles, columns


def _by_sample(low: Lowering, layer: str, part: int) -> Columns:
    placed, batch = low.placed(layer), low.network.batch
    run = np.arange(len(placed.starts))
    columns = {
        "sample": np.repeat(np.arange(batch), len(run)),
        "start": np.tile(placed.starts, batch),
        "stop": np.tile(placed.stops, batch),
        "part": np.tile(part * len(run) + run, batch),
        "fan_in_part": np.full(batch * len(run), part),
    }
    return placed.grid[placed.copy_of, part].ravel(), columns


def emit_current(
    low: Lowering, layer: str, held: tuple[str, str], weights: str, name: str, origin: tuple[str, int]
) -> str:
    """The current [batch, neurons] from listed ids, in parts on their tiles and then summed with the states."""
    placed, (source, shift) = low.placed(layer), origin
    shape = (placed.fan_in_parts, low.network.batch, low.layer(layer).neurons)
    mapping = TileMapping.banded(
        tuple(Band(axis=0, start=part, stop=part + 1, mapping=_of_part(low, layer, part)) for part in range(shape[0]))
    )
    partial = low.variable(f"{name}.parts", shape, "float32", mapping, "neuron states")
    tiles, columns = parts_of(low, layer, low.variables[weights].shape[0])
    table = VertexTable(
        codelet=SYNAPSE_CURRENT_PART,
        layer=layer,
        tiles=tiles,
        operands={"current": partial, "w": weights, "ids": held[0], "counts": held[1]},
        columns=columns,
        extents={
            "spikes": Spikes(layer=source, shift=shift),
            "hits": Hits(layer=source, shift=shift, which="spikes"),
        },
    )
    low.emit("synapse current", "synapse", tables=(table,), layer=layer)
    current = low.plane(name, layer, "neuron states")
    codelet, tiles, columns = low.over_neurons(SUM_REPLICAS, layer)
    operands = {"replicas": partial, "total": current}
    table = VertexTable(codelet=codelet, layer=layer, tiles=tiles, operands=operands, columns=columns)
    low.emit("sum parts", "synapse", tables=(table,), layer=layer)
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
