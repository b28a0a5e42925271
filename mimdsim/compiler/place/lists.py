"""Where neurons, spike selection and reductions go: the mapping rules of the published system, general in all sizes.

Source: jrfinkbeiner/graphcore_snn (keras_train_util_ipu.py, poplar_code_stateBasedReset.cpp, commit 0d81a25);
two mappings that the authors' program printed are reproduced exactly (references/tile_mapping_golden.json).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import DoesNotFit, MappingError, suggest
from mimdsim.compiler.place.array_products import ArrayPlacement
from mimdsim.graph import SpikingNetwork
from mimdsim.workload.mapping import MappingOptions, Split

MOST_SHORT_IDS = 2**16 - 1  # neurons whose ids and counts fit two bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerPlacement:
    """One layer in parts of the batch, of the weights of a neuron, and of its neurons: `grid[b, f, k]` has a copy of
    part f of the weights of neurons starts[k]..stops[k] for samples batch_edges[b]..batch_edges[b + 1]. Their states
    lie on `homes[b, k]`. And the tiles that select its spikes, in slots of (sample, row, part).

    Tile numbers run on over the chips. spread: tiles per sample and threshold row; workers: scanning workers per sample
    and row, over all its tiles.
    """

    name: str
    chip: int
    first_tile: int
    last_tile: int  # one past
    grid: np.ndarray  # int64[batch parts, fan-in parts, neuron parts]
    batch_edges: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    replicas: int  # of a weight gradient, on a tile
    sharers: int  # contexts that share the neurons of a replica
    spread: int
    workers: int
    selection_tiles: np.ndarray  # [batch, 2, spread]

    @property
    def tiles(self) -> np.ndarray:
        """Every tile of the layer, copy by copy."""
        return self.grid.ravel()

    @property
    def copies(self) -> int:
        """Of its weights: parts of the batch."""
        return len(self.grid)

    @property
    def homes(self) -> np.ndarray:
        """int64[batch parts, neuron parts]: the tiles of the neurons' states."""
        chosen: np.ndarray = self.grid[:, 0]
        return chosen

    @property
    def fan_in_parts(self) -> int:
        return self.grid.shape[1]

    @property
    def parts(self) -> int:
        """Tiles that share the weights of a sample."""
        return self.grid[0].size

    def cut_rows(self, rows: int) -> np.ndarray:
        """int64[fan-in parts + 1]: part f has rows edges[f]..edges[f + 1] of a matrix of weights; of one row the first
        part has it."""
        edges: np.ndarray = -(-np.arange(self.fan_in_parts + 1) * rows // self.fan_in_parts)
        return edges

    @property
    def occupied(self) -> int:
        return self.grid.size

    @property
    def copy_of(self) -> np.ndarray:
        """int64[batch]: the copy that a sample belongs to."""
        return np.repeat(np.arange(self.copies), np.diff(self.batch_edges))

    def rows(self, edges: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of one vertex per tile: its neurons, and the rows edges[b]..edges[b + 1] of copy b."""
        return {
            "row_start": np.repeat(edges[:-1], len(self.starts)),
            "row_stop": np.repeat(edges[1:], len(self.starts)),
            "start": np.tile(self.starts, self.copies),
            "stop": np.tile(self.stops, self.copies),
        }

    @property
    def combine_tiles(self) -> np.ndarray:
        """int64[batch]: where the final list of each sample is put together."""
        chosen: np.ndarray = self.selection_tiles[:, 0, 0]
        return chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducePlacement:
    """Sum of input gradients over the tiles of a layer: groups of `group_size` tiles, then over groups.

    vertices are numbered (group, sample, slot); `per_tile` consecutive ones share a tile, from `first_tile` on.
    """

    tiles: int
    first_tile: int
    group_size: int
    groups: int
    per_tile: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """The placement of a network: `tiles` over all `chips` up to the last one that holds a layer.

    reductions: of the gradients that a layer gives the one before it; own_reductions: of those it gives itself.
    sample_tiles: int64[batch], where per-sample data lies. arrays: of dense spikes. worker_contexts: that help.
    idle_tiles: the last ones of each chip, which get nothing.
    """

    tiles: int
    chips: int
    neurons_per_tile: int
    layers: tuple[LayerPlacement, ...]
    reductions: tuple[ReducePlacement | None, ...]
    sample_tiles: np.ndarray
    reserved_tiles: int
    worker_contexts: int
    idle_tiles: int = 0
    own_reductions: tuple[ReducePlacement | None, ...] = ()
    arrays: ArrayPlacement | None = None

    @property
    def tiles_per_chip(self) -> int:
        return self.tiles // self.chips

    @property
    def what_fills_chips(self) -> str:
        """Why the network takes no more chips, and what to type for more."""
        if self.arrays is not None:
            return 'dense spikes take one; set network.spikes = "sparse" for more'
        return (
            f"the layers fit, in order, with {self.neurons_per_tile} neurons a tile; to spread them further lower "
            "mapping.neurons_unit or mapping.neurons_per_tile, or widen the network"
        )

    @property
    def usable_tiles(self) -> np.ndarray:
        """Every tile but the reserved and idle ones."""
        return np.concatenate([self.usable_on(chip) for chip in range(self.chips)])

    def usable_on(self, chip: int) -> np.ndarray:
        """The tiles of a chip that may hold data; the first chip reserves some for control."""
        first = chip * self.tiles_per_chip + (self.reserved_tiles if chip == 0 else 0)
        return np.arange(first, (chip + 1) * self.tiles_per_chip - self.idle_tiles)


def place(
    network: SpikingNetwork, tiles: int, worker_contexts: int, options: MappingOptions, chips: int = 1
) -> Placement:
    """Place `network` on `chips` chips of `tiles` tiles; raises DoesNotFit with the numbers when there are too few.

    Layers follow in order; one that does not fit into the rest of a chip begins the next. Later chips are left out.
    """
    _check_ids(network, options)
    widths = [layer.neurons for layer in network.layers]
    room = _room(tiles, chips, options)
    splits = _splits(network, options)
    per_tile = _neurons_per_tile(widths, splits, room, chips, options)
    grids = [_grid_of(width, split, per_tile) for width, split in zip(widths, splits, strict=True)]
    firsts = _first_tiles(grids, room, chips, options.reserved_tiles)
    assert firsts is not None
    layers = _layers(network, firsts, grids, room, worker_contexts, options)
    last = layers[-1].chip
    reductions, own_reductions = _reductions(network, layers, room, options)
    usable = np.arange(last * room + (options.reserved_tiles if last == 0 else 0), (last + 1) * room)
    return Placement(
        tiles=tiles * (last + 1),
        chips=last + 1,
        neurons_per_tile=per_tile,
        layers=tuple(layers),
        reductions=reductions,
        own_reductions=own_reductions,
        sample_tiles=usable[(np.arange(network.batch) * len(usable)) // network.batch],
        reserved_tiles=options.reserved_tiles,
        idle_tiles=tiles - room,
        worker_contexts=worker_contexts,
    )


def _room(tiles: int, chips: int, options: MappingOptions) -> int:
    """Tiles of a chip that anything is placed on."""
    if options.tiles and chips > 1:
        raise MappingError(f"mapping.tiles = {options.tiles} is for one chip, and there are {chips}: leave it out")
    if options.tiles > tiles:
        raise DoesNotFit(f"mapping.tiles = {options.tiles} and the chip has {tiles} tiles: lower it, or leave it out")
    room = options.tiles or tiles
    if options.reserved_tiles >= room:
        raise DoesNotFit(
            f"mapping.reserved_tiles = {options.reserved_tiles} leaves none of the {room} tiles of the first chip: "
            "lower it"
        )
    return room


def _layers(
    network: SpikingNetwork,
    firsts: list[int],
    grids: list[Grid],
    tiles: int,
    worker_contexts: int,
    options: MappingOptions,
) -> list[LayerPlacement]:
    """Layers from their first tiles on, and the tiles that select their spikes."""
    widths = [layer.neurons for layer in network.layers]
    on_chip = [first // tiles for first in firsts]
    if options.selection_tiles == "last":
        _check_last_tiles(network, on_chip, tiles)
        spreads = [1] * len(widths)
        selecting = _last_tiles(network.batch, on_chip, tiles)
    else:
        spreads = [selection_spread(width, worker_contexts, options.states_per_worker) for width in widths]
        selecting = _published_tiles(network.batch, spreads, on_chip, tiles)
    layers: list[LayerPlacement] = []
    each = zip(network.layers, firsts, grids, on_chip, spreads, selecting, strict=True)
    for layer, first, grid, chip, spread, selects in each:
        layers.append(
            LayerPlacement(
                name=layer.name,
                chip=chip,
                first_tile=first,
                last_tile=first + grid.tiles,
                grid=first + np.arange(grid.tiles).reshape(grid.copies, grid.fan_in_parts, -1),
                batch_edges=np.arange(grid.copies + 1) * network.batch // grid.copies,
                starts=grid.edges[:-1],
                stops=grid.edges[1:],
                **_replicas(options, options.split.get(layer.name), network.batch, grid, worker_contexts),
                spread=spread,
                workers=min(worker_contexts * spread, layer.neurons),
                selection_tiles=(chip * tiles + selects).reshape(network.batch, 2, spread),
            )
        )
    return layers


def _published_tiles(batch: int, spreads: list[int], on_chip: list[int], tiles: int) -> list[np.ndarray]:
    """Of every layer, where on its chip the slots (sample, row, part) lie: all of a chip evenly over its tiles."""
    slots = [batch * 2 * spread for spread in spreads]
    found = []
    for index, chip in enumerate(on_chip):
        of_chip = [count for count, other in zip(slots, on_chip, strict=True) if other == chip]
        before = sum(count for count, other in zip(slots[:index], on_chip, strict=False) if other == chip)
        found.append((before + np.arange(slots[index])) * tiles // sum(of_chip))
    return found


def _last_tiles(batch: int, on_chip: list[int], tiles: int) -> list[np.ndarray]:
    """The same where both rows of a sample have one tile, layer after layer from the end of the chip."""
    turns = [on_chip[:index].count(chip) + 1 for index, chip in enumerate(on_chip)]
    return [np.repeat(tiles - turn * batch + np.arange(batch), 2) for turn in turns]


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


def _check_last_tiles(network: SpikingNetwork, on_chip: list[int], tiles: int) -> None:
    """Raise DoesNotFit when one tile per sample and layer are more than a chip has (authors' rule: L*B < tiles)."""
    most = max(on_chip.count(chip) for chip in on_chip)
    if most * network.batch >= tiles:
        raise DoesNotFit(
            f"{most} layers times {network.batch} samples select spikes on {most * network.batch} tiles of their own, "
            f"and a chip of {tiles} must have more than these: "
            'set mapping.selection_tiles = "published", or lower training.batch'
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Copies of a layer, parts of the weights of a neuron, and where the neurons are cut."""

    copies: int
    fan_in_parts: int
    edges: np.ndarray

    @property
    def tiles(self) -> int:
        return self.copies * self.fan_in_parts * (len(self.edges) - 1)


def _grid_of(width: int, split: Split, per_tile: int) -> Grid:
    """As the split says or, of a split that leaves it open, with so many neurons a tile and the rest on the last."""
    edges = np.minimum(np.arange(-(-width // per_tile) + 1) * per_tile, width)
    if split.neurons:
        edges = np.arange(split.neurons + 1) * width // split.neurons
    return Grid(copies=split.batch, fan_in_parts=split.inputs, edges=edges)


def _splits(network: SpikingNetwork, options: MappingOptions) -> list[Split]:
    """Of every layer; raises MappingError for layers that do not exist and for more parts than there is to share."""
    names = [layer.name for layer in network.layers]
    if options.state_gradient == "per_batch" and any(split.batch > 1 for split in options.split.values()):
        raise MappingError(
            'mapping.state_gradient = "per_batch" has one vertex per sample for all neurons: it takes no copies of a '
            'layer (mapping.split.LAYER.batch); write "tilewise"'
        )
    if options.spike_exchange == "dense" and any(split.inputs > 1 for split in options.split.values()):
        raise MappingError(
            'mapping.spike_exchange = "dense" sends whole rows of spikes: it takes no parts of the weights of a neuron '
            '(mapping.split.LAYER.inputs); write "ids"'
        )
    for name, split in options.split.items():
        if name not in names:
            raise MappingError(f"mapping.split.{name}: no such layer{suggest(name, names)}")
        layer = network.layers[names.index(name)]
        there = {
            "batch": (network.batch, "samples of the batch"),
            "inputs": (layer.inputs, f"inputs of '{name}'"),
            "neurons": (layer.neurons, f"neurons of '{name}'"),
        }
        for key, (of, what) in there.items():
            parts = getattr(split, key)
            if parts > of:
                raise MappingError(f"mapping.split.{name}.{key}: {parts} parts of {of} {what}; take at most {of}")
    return [options.split.get(name, Split()) for name in names]


def _first_tiles(grids: list[Grid], tiles: int, chips: int, reserved: int) -> list[int] | None:
    """The first tile of every layer, or None when the layers do not fit."""
    firsts, tile = [], reserved
    for count in (grid.tiles for grid in grids):
        if tile % tiles + count > tiles:
            tile = (tile // tiles + 1) * tiles
        if count > tiles - (reserved if tile == reserved else 0) or tile + count > tiles * chips:
            return None
        firsts.append(tile)
        tile += count
    return firsts


def _neurons_per_tile(widths: list[int], splits: list[Split], tiles: int, chips: int, options: MappingOptions) -> int:
    """The smallest multiple of the unit for which all layers fit, or the one asked for."""

    def grids(per_tile: int) -> list[Grid]:
        return [_grid_of(width, split, per_tile) for width, split in zip(widths, splits, strict=True)]

    reserved = options.reserved_tiles
    usable = tiles * chips - reserved
    asked = options.neurons_per_tile
    where = f"{usable} are usable" + (f" on {chips} chips, and no layer may straddle two" if chips > 1 else "")
    if asked:
        if _first_tiles(grids(asked), tiles, chips, reserved) is None:
            needed = sum(grid.tiles for grid in grids(asked))
            raise DoesNotFit(
                f"with {asked} neurons per tile the {len(widths)} layers need {needed} tiles, "
                f"{where}: raise mapping.neurons_per_tile, or set it to 0 to let the compiler choose"
            )
        return asked
    least = sum(grid.tiles for grid in grids(max(widths)))
    if len(widths) > usable and not options.split:
        raise DoesNotFit(
            f"{len(widths)} layers need at least one tile each, {usable} tiles are usable: "
            "use a machine with more tiles (chip.tiles) or fewer layers (network.hidden)"
        )
    if least > usable:
        raise DoesNotFit(f"the parts of mapping.split need at least {least} tiles, {where}: lower its batch or neurons")
    per_tile = options.tile_unit
    while _first_tiles(grids(per_tile), tiles, chips, reserved) is None:
        if per_tile > max(widths):  # a grid of the split is too large for a chip
            raise DoesNotFit(f"the parts of mapping.split do not fit, {where}: lower its batch or neurons")
        per_tile += options.tile_unit
    return per_tile


def selection_spread(neurons: int, worker_contexts: int, states_per_worker: int) -> int:
    """Tiles that scan one sample and threshold row: workers for the target states each, rounded, then tiles of them.

    A remainder of 2 or more workers gets a tile of its own (authors' rule for 6 contexts).
    """
    workers = neurons // states_per_worker + (neurons % states_per_worker > states_per_worker // 2)
    return int(max(1, workers // worker_contexts + (workers % worker_contexts >= min(2, worker_contexts - 1 or 1))))


def _reductions(
    network: SpikingNetwork, layers: list[LayerPlacement], tiles: int, options: MappingOptions
) -> tuple[tuple[ReducePlacement | None, ...], tuple[ReducePlacement | None, ...]]:
    """For every layer, on its own chip, of what it gives the layer before it and of what it gives itself: tiles by
    work^0.8 of occupied tiles times capacity of the spikes, or as many for each. A tile gets whole words of sums: with
    halves an even number of vertices.
    """
    word, batch, even = 4 // options.value_bytes, network.batch, options.reduce_rule == "even"
    placed: dict[tuple[int, int], ReducePlacement] = {}
    work: dict[tuple[int, int], int] = {}  # by (layer, layer whose spikes they are)
    for index, layer in enumerate(network.layers):
        for source in [index - 1] * (index > 0) + [index] * layer.gives_itself_gradients:
            capacity = network.layers[source].capacity
            occupied = layers[index].parts
            work[index, source] = 1 if even else int(occupied**options.reduce_exponent * capacity * batch)
    for chip in sorted({layer.chip for layer in layers}):
        on_chip = [pair for pair in work if layers[pair[0]].chip == chip]
        total = sum(work[pair] for pair in on_chip) or 1
        first = begin = chip * tiles + (options.reserved_tiles if chip == 0 else 0)
        usable = (chip + 1) * tiles - begin
        for index, source in on_chip:
            count = max(1, work[index, source] * usable // total)
            group_size = max(1, min(options.reduce_group or batch // 2, layers[index].parts))
            groups = layers[index].parts // group_size
            placed[index, source] = ReducePlacement(
                tiles=count,
                first_tile=min(first, begin + usable - count),
                group_size=group_size,
                groups=groups,
                per_tile=-(-groups * batch * network.layers[source].capacity // (count * word)) * word,
            )
            first += count
    numbers = range(len(layers))
    return tuple(placed.get((n, n - 1)) for n in numbers), tuple(placed.get((n, n)) for n in numbers)
