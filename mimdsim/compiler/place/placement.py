"""Where neurons, spike selection and reductions go: the mapping rules of the published system, general in all sizes.

Source: jrfinkbeiner/graphcore_snn (keras_train_util_ipu.py, poplar_code_stateBasedReset.cpp, commit 0d81a25);
two mappings that the authors' program printed are reproduced exactly (references/tile_mapping_golden.json).
"""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.compiler.place.layer_partition import (
    Grid,
    LayerPlacement,
    Placement,
    ReducePlacement,
    dealt_tiles,
    grid_of,
    neurons_per_tile,
    room_of,
    splits_of,
)
from mimdsim.compiler.place.products import ArrayPlacement
from mimdsim.graph import SpikingNetwork
from mimdsim.graph.names import INPUT
from mimdsim.machine import MimdMachine
from mimdsim.workload.description.mapping import MappingOptions, Split


def chips_of_samples(chips: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """int64[batch]: a chip for the lists of every sample, of `chips` int64[copies, tiles] of its copy; if there are
    several, they share the samples. Copy b has samples edges[b] // copies to edges[b + 1] // copies."""
    found = []
    for of_copy, count in zip(chips, np.diff(edges // len(chips)).tolist(), strict=True):
        different = np.unique(of_copy)
        found.append(different[np.arange(count) * len(different) // max(1, count)])
    return np.concatenate(found)


def published_tiles(spreads: list[int], on_chip: list[np.ndarray], tiles: int) -> list[np.ndarray]:
    """Of every layer, where on its chip the slots (sample, row, part) lie: all of a chip evenly over its tiles."""
    chips = [np.repeat(of_samples, 2 * spread) for of_samples, spread in zip(on_chip, spreads, strict=True)]
    every = np.concatenate(chips)
    found = np.zeros(len(every), np.int64)
    for chip in np.unique(every):
        here = np.flatnonzero(every == chip)
        found[here] = np.arange(len(here)) * tiles // len(here)
    return np.split(found, np.cumsum([len(each) for each in chips])[:-1])


def _turns(on_chip: list[np.ndarray]) -> np.ndarray:
    """int64[layers, batch]: how many layers up to this one have the lists of a sample on the same chip."""
    chips = np.array(on_chip)
    return np.array([(chips[: index + 1] == chips[index]).sum(axis=0) for index in range(len(chips))])


def check_last_tiles(network: SpikingNetwork, on_chip: list[np.ndarray], tiles: int) -> None:
    """Raise DoesNotFit when one tile per sample and layer are more than a chip has (authors' rule: L*B < tiles)."""
    most = int(_turns(on_chip).max())
    if most * network.batch >= tiles:
        raise DoesNotFit(
            f"{most} layers times {network.batch} samples select spikes on {most * network.batch} tiles of their own, "
            f"and a chip of {tiles} must have more than these: "
            'set mapping.selection_tiles = "published", or lower training.batch'
        )


def selection_spread(neurons: int, worker_contexts: int, states_per_worker: int) -> int:
    """Tiles that scan one sample and threshold row: workers for the target states each, rounded, then tiles of them.

    A remainder of 2 or more workers gets a tile of its own (authors' rule for 6 contexts).
    """
    workers = neurons // states_per_worker + (neurons % states_per_worker > states_per_worker // 2)
    return int(max(1, workers // worker_contexts + (workers % worker_contexts >= min(2, worker_contexts - 1 or 1))))


def _chips_of_groups(layer: LayerPlacement, group_size: int, tiles: int) -> np.ndarray:
    """int64[groups, batch]: the chip of the first part of a group of parts, for every sample."""
    parts = layer.grid.reshape(layer.copies, -1)
    groups = layer.parts // group_size
    of_copy: np.ndarray = parts[:, np.arange(groups) * group_size] // tiles
    result: np.ndarray = of_copy[layer.copy_of].T
    return result


def reductions_of(
    network: SpikingNetwork, layers: list[LayerPlacement], tiles: int, options: MappingOptions
) -> dict[tuple[str, str], ReducePlacement]:
    """By layer and the layer whose spikes it gives gradients (another or itself), on the chips of the former: tiles by
    work^0.8 of occupied tiles times capacity of the spikes, or as many for each. A tile gets whole words of sums: with
    halves an even number of vertices.
    """
    word, batch, even = 4 // options.item_bytes, network.batch, options.reduce_rule == "even"
    capacities = {layer.name: layer.capacity for layer in network.layers}
    where = {layer.name: layer for layer in layers}
    placed: dict[tuple[str, str], ReducePlacement] = {}
    work: dict[tuple[str, str], int] = {}
    for layer in network.layers:
        read = (each.name for each in network.sources(layer))
        for source in (*read, *[layer.name] * layer.gives_itself_gradients):
            if source != INPUT:
                # whole work, its fraction dropped, as in the authors' program
                load = where[layer.name].parts ** options.reduce_exponent * capacities[source] * batch
                work[layer.name, source] = 1 if even else int(load)
    sizes = {pair: max(1, min(options.reduce_group or batch // 2, where[pair[0]].parts)) for pair in work}
    chip_of = {pair: _chips_of_groups(where[pair[0]], size, tiles) for pair, size in sizes.items()}
    counts: dict[tuple[str, str], int] = {}  # tiles on each of its chips
    firsts: dict[tuple[str, str], dict[int, int]] = {pair: {} for pair in work}
    for chip in sorted({chip for each in chip_of.values() for chip in np.unique(each).tolist()}):
        on_chip = [pair for pair in work if (chip_of[pair] == chip).any()]
        total = sum(work[pair] for pair in on_chip) or 1
        first = begin = chip * tiles + (options.reserved_tiles if chip == 0 else 0)
        usable = (chip + 1) * tiles - begin
        for pair in on_chip:
            count = max(1, work[pair] * usable // total)
            counts[pair] = min(count, counts.get(pair, count))
            firsts[pair][chip] = min(first, begin + usable - count)
            first += count
    for pair, first_tiles in firsts.items():
        chips, slots = chip_of[pair], capacities[pair[1]]
        most = int(np.bincount(chips.ravel()).max()) * slots  # vertices of a chip
        count = counts[pair]
        placed[pair] = ReducePlacement(
            tiles=count,
            first_tiles=first_tiles,
            group_size=sizes[pair],
            groups=len(chips),
            per_tile=-(-most // (count * word)) * word,
            slots=slots,
            chip_of=chips,
        )
    return placed


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
    splits = splits_of(network, options, chips)
    per_tile = neurons_per_tile(widths, splits, room, chips, options)
    grids = [grid_of(width, split, per_tile) for width, split in zip(widths, splits, strict=True)]
    dealt = dealt_tiles(grids, room, chips, options.reserved_tiles)
    assert dealt is not None
    layers = _layers(network, dealt, grids, room, worker_contexts, options)
    used = max(int(layer.tiles.max()) for layer in layers) // room + 1
    return Placement(
        tiles=tiles * used,
        chips=used,
        neurons_per_tile=per_tile,
        layers=tuple(layers),
        reductions=reductions_of(network, layers, room, options),
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
        # the same where both rows of a sample have one tile, layer after layer from the end of the chip
        batch = len(on_chip[0])
        selecting = [np.repeat(tiles - turns * batch + np.arange(batch), 2) for turns in _turns(on_chip)]
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


# ---- dense spikes


def place_arrays(network: SpikingNetwork, machine: MimdMachine, options: MappingOptions) -> Placement:
    """The placement of a network with dense spikes, on the first chip of `machine`.

    Every value is a matrix [batch, neurons] (or a sequence of it) in boxes over all tiles. A layer's neurons lie as the
    product that makes their currents leaves them, weights as that product wants them.
    Raises MappingError for options that only sparse spikes have.
    """
    _check_arrays(options)
    tiles, bus = machine.chip.tiles, machine.exchange.tiles_per_bus
    # neighbours on a bus want the same block: the first of a pair is even
    first = -(-options.reserved_tiles // bus) * bus
    usable = np.arange(min(options.reserved_tiles, tiles - 1), tiles)
    return Placement(
        tiles=tiles,
        chips=1,
        neurons_per_tile=0,
        layers=(),
        reductions={},
        sample_tiles=usable[(np.arange(network.batch) * len(usable)) // network.batch],
        reserved_tiles=options.reserved_tiles,
        worker_contexts=machine.tile.working_contexts,
        arrays=ArrayPlacement(machine=machine, first_tile=min(first, tiles - 1)),
    )


def _check_arrays(options: MappingOptions) -> None:
    """Number formats and forms of spikes that the products of dense spikes are not written for."""
    standard = MappingOptions()
    for name in (
        "tiles",
        "value_bytes",
        "moment_bytes",
        "id_bytes",
        "spike_exchange",
        "state_gradient",
        "selection_tiles",
    ):
        given, known = getattr(options, name), getattr(standard, name)
        if given != known:
            raise MappingError(
                f"mapping.{name} = {given!r} is for sparse spikes; dense spikes on tiles are float32: leave it at "
                f'{known!r} or set network.spikes = "sparse"'
            )
