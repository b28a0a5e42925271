"""Where neurons, spike selection and reductions go: the mapping rules of the published system, general in all sizes.

Source: jrfinkbeiner/graphcore_snn (keras_train_util_ipu.py, poplar_code_stateBasedReset.cpp, commit 0d81a25);
two mappings that the authors' program printed are reproduced exactly (references/tile_mapping_golden.json).
"""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.compiler.place.layer_partition import Grid, dealt_tiles, grid_of, neurons_per_tile, room_of, splits_of
from mimdsim.compiler.place.placement import LayerPlacement, Placement
from mimdsim.compiler.place.reductions import reductions_of
from mimdsim.compiler.place.selection import (
    check_last_tiles,
    chips_of_samples,
    last_tiles,
    published_tiles,
    selection_spread,
)
from mimdsim.graph import SpikingNetwork
from mimdsim.workload.description.mapping import MappingOptions, Split

MOST_SHORT_IDS = 2**16 - 1  # neurons whose ids and counts fit two bytes


def place(
    network: SpikingNetwork, tiles: int, worker_contexts: int, options: MappingOptions, chips: int = 1
) -> Placement:
    """Place `network` on `chips` chips of `tiles` tiles; raises DoesNotFit with the numbers when there are too few.

    Layers follow in order, each on as many chips as its split says; one that does not fit into the rest of a chip
    begins the next. Later chips are left out.
    """
    _check_ids(network, options)
    widths = [layer.neurons for layer in network.layers]
    room = room_of(tiles, chips, options)
    splits = splits_of(network, options)
    per_tile = neurons_per_tile(widths, splits, room, chips, options)
    grids = [grid_of(width, split, per_tile) for width, split in zip(widths, splits, strict=True)]
    dealt = dealt_tiles(grids, room, chips, options.reserved_tiles)
    assert dealt is not None
    layers = _layers(network, dealt, grids, room, worker_contexts, options)
    used = max(int(layer.tiles.max()) for layer in layers) // room + 1
    reductions, own_reductions = reductions_of(network, layers, room, options)
    return Placement(
        tiles=tiles * used,
        chips=used,
        neurons_per_tile=per_tile,
        layers=tuple(layers),
        reductions=reductions,
        own_reductions=own_reductions,
        sample_tiles=_sample_tiles(layers[-1], room, options.reserved_tiles),
        reserved_tiles=options.reserved_tiles,
        idle_tiles=tiles - room,
        worker_contexts=worker_contexts,
    )


def _sample_tiles(layer: LayerPlacement, tiles: int, reserved: int) -> np.ndarray:
    """int64[batch]: of the samples of a chip, evenly over its tiles."""
    chips, found = np.array(layer.chips), np.zeros(len(layer.chips), np.int64)
    for chip in sorted(set(layer.chips)):
        samples = np.flatnonzero(chips == chip)
        usable = np.arange(chip * tiles + (reserved if chip == 0 else 0), (chip + 1) * tiles)
        found[samples] = usable[(np.arange(len(samples)) * len(usable)) // len(samples)]
    return found


def _layers(
    network: SpikingNetwork,
    dealt: list[np.ndarray],
    grids: list[Grid],
    tiles: int,
    worker_contexts: int,
    options: MappingOptions,
) -> list[LayerPlacement]:
    """Layers on the tiles dealt to them, and the tiles that select their spikes."""
    widths = [layer.neurons for layer in network.layers]
    on_chip = [
        chips_of_samples(numbers.reshape(grid.copies, -1) // tiles, np.arange(grid.copies + 1) * network.batch)
        for numbers, grid in zip(dealt, grids, strict=True)
    ]
    if options.selection_tiles == "last":
        check_last_tiles(network, on_chip, tiles)
        spreads = [1] * len(widths)
        selecting = last_tiles(on_chip, tiles)
    else:
        spreads = [selection_spread(width, worker_contexts, options.states_per_worker) for width in widths]
        selecting = published_tiles(spreads, on_chip, tiles)
    layers: list[LayerPlacement] = []
    each = zip(network.layers, dealt, grids, on_chip, spreads, selecting, strict=True)
    for layer, numbers, grid, of_samples, spread, selects in each:
        layers.append(
            LayerPlacement(
                name=layer.name,
                chips=tuple(of_samples.tolist()),
                grid=numbers.reshape(grid.copies, grid.fan_in_parts, -1),
                batch_edges=np.arange(grid.copies + 1) * network.batch // grid.copies,
                starts=grid.edges[:-1],
                stops=grid.edges[1:],
                **_replicas(options, options.split.get(layer.name), network.batch, grid, worker_contexts),
                spread=spread,
                workers=min(worker_contexts * spread, layer.neurons),
                selection_tiles=of_samples[:, None, None] * tiles + selects.reshape(network.batch, 2, spread),
            )
        )
    return layers


def _check_ids(network: SpikingNetwork, options: MappingOptions) -> None:
    """Raise MappingError when ids or counts of a layer or of the input do not fit their format."""
    if options.id_bytes != 2:
        return
    widths = {"input": network.inputs} | {f"layer '{layer.name}'": layer.neurons for layer in network.layers}
    for where, width in widths.items():
        if width > MOST_SHORT_IDS:
            raise MappingError(
                f"{where} has {width:,} neurons; ids of two bytes reach {MOST_SHORT_IDS:,}: set mapping.id_bytes = 4"
            )


def _replicas(
    options: MappingOptions, split: Split | None, batch: int, grid: Grid, worker_contexts: int
) -> dict[str, int]:
    """How the contexts of a tile share a weight gradient: by samples as published, and the rest by pairs of neurons."""
    asked = split.replicas if split is not None and split.replicas else options.weight_gradient_replicas
    replicas = asked if grid.copies == 1 else min(asked, -(-batch // grid.copies))
    if split is None:
        return {"replicas": replicas, "sharers": 1}
    pairs = -(-int(np.diff(grid.edges).max()) // 2)
    return {"replicas": replicas, "sharers": max(1, min(worker_contexts // replicas, pairs))}
