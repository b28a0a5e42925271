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

    Tile numbers run on over the chips. chips: of every sample, the chip that selects its spikes and holds its lists.
    spread: tiles per sample and threshold row; workers: scanning workers per sample and row, over all its tiles.
    """

    name: str
    chips: tuple[int, ...]
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
    def first_tile(self) -> int:
        return int(self.grid[0, 0, 0])

    @property
    def last_tile(self) -> int:
        """One past the last."""
        return int(self.grid[-1, -1, -1]) + 1

    @property
    def chips_of_copies(self) -> int:
        """Chips that have as many whole copies each; 1 if copies lie over several chips."""
        chips = len(set(self.chips))
        return chips if self.copies % chips == 0 else 1

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

    Vertices are numbered (group, sample, slot). Each is on the chip of the first tile of its group; `per_tile`
    consecutive ones of a chip share a tile, from the chip's first tile in `first_tiles` on. chip_of int64[groups,
    batch]; slots: of a sample.
    """

    tiles: int
    first_tiles: dict[int, int]
    group_size: int
    groups: int
    per_tile: int
    slots: int
    chip_of: np.ndarray

    @property
    def first_tile(self) -> int:
        """On the first chip that adds."""
        return self.first_tiles[min(self.first_tiles)]

    def tiles_of_vertices(self, groups: int) -> np.ndarray:
        """int64[groups * batch * slots]: the tile of every vertex of the first groups."""
        chips = np.repeat(self.chip_of[:groups].ravel(), self.slots)
        found = np.empty(len(chips), np.int64)
        for chip, first in self.first_tiles.items():
            here = chips == chip
            found[here] = first + np.arange(np.count_nonzero(here)) // self.per_tile
        return found


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

    Layers follow in order, each on as many chips as its split says; one that does not fit into the rest of a chip
    begins the next. Later chips are left out.
    """
    _check_ids(network, options)
    widths = [layer.neurons for layer in network.layers]
    room = _room(tiles, chips, options)
    splits = _splits(network, options)
    per_tile = _neurons_per_tile(widths, splits, room, chips, options)
    grids = [_grid_of(width, split, per_tile) for width, split in zip(widths, splits, strict=True)]
    dealt = _dealt(grids, room, chips, options.reserved_tiles)
    assert dealt is not None
    layers = _layers(network, dealt, grids, room, worker_contexts, options)
    used = max(int(layer.tiles.max()) for layer in layers) // room + 1
    reductions, own_reductions = _reductions(network, layers, room, options)
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
        _chips_of_samples(numbers.reshape(grid.copies, -1) // tiles, np.arange(grid.copies + 1) * network.batch)
        for numbers, grid in zip(dealt, grids, strict=True)
    ]
    if options.selection_tiles == "last":
        _check_last_tiles(network, on_chip, tiles)
        spreads = [1] * len(widths)
        selecting = _last_tiles(on_chip, tiles)
    else:
        spreads = [selection_spread(width, worker_contexts, options.states_per_worker) for width in widths]
        selecting = _published_tiles(spreads, on_chip, tiles)
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


def _chips_of_samples(chips: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """int64[batch]: a chip for the lists of every sample, of `chips` int64[copies, tiles] of its copy; if there are
    several, they share the samples. Copy b has samples edges[b] // copies to edges[b + 1] // copies."""
    found = []
    for of_copy, count in zip(chips, np.diff(edges // len(chips)).tolist(), strict=True):
        different = np.unique(of_copy)
        found.append(different[np.arange(count) * len(different) // max(1, count)])
    return np.concatenate(found)


def _published_tiles(spreads: list[int], on_chip: list[np.ndarray], tiles: int) -> list[np.ndarray]:
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


def _last_tiles(on_chip: list[np.ndarray], tiles: int) -> list[np.ndarray]:
    """The same where both rows of a sample have one tile, layer after layer from the end of the chip."""
    batch = len(on_chip[0])
    return [np.repeat(tiles - turns * batch + np.arange(batch), 2) for turns in _turns(on_chip)]


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


def _check_last_tiles(network: SpikingNetwork, on_chip: list[np.ndarray], tiles: int) -> None:
    """Raise DoesNotFit when one tile per sample and layer are more than a chip has (authors' rule: L*B < tiles)."""
    most = int(_turns(on_chip).max())
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
    """Copies of a layer, parts of the weights of a neuron, and where the neurons are cut; on so many chips."""

    copies: int
    fan_in_parts: int
    edges: np.ndarray
    chips: int

    @property
    def tiles(self) -> int:
        return self.copies * self.fan_in_parts * (len(self.edges) - 1)


def _grid_of(width: int, split: Split, per_tile: int) -> Grid:
    """As the split says or, of a split that leaves it open, with so many neurons a tile and the rest on the last."""
    edges = np.minimum(np.arange(-(-width // per_tile) + 1) * per_tile, width)
    if split.neurons:
        edges = np.arange(split.neurons + 1) * width // split.neurons
    return Grid(copies=split.batch, fan_in_parts=split.inputs, edges=edges, chips=split.chips)


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


def _dealt(grids: list[Grid], tiles: int, chips: int, reserved: int) -> list[np.ndarray] | None:
    """The tiles of every layer, copy by copy and in even shares over its chips, or None when the layers do not fit."""
    free = np.array([reserved, *[0] * (chips - 1)])  # the first free tile of each chip
    found: list[np.ndarray] = []
    chip, before = 0, 1  # where the layer before begins, and how many chips it has
    for grid in grids:
        shares = np.diff(np.arange(grid.chips + 1) * grid.tiles // grid.chips)
        for begin in (chip, chip + before):
            chosen = np.arange(begin, begin + grid.chips)
            if chosen[-1] < chips and (free[chosen] + shares <= tiles).all():
                break
        else:
            return None
        chip, before = int(chosen[0]), grid.chips
        each = zip(chosen.tolist(), free[chosen].tolist(), shares.tolist(), strict=True)
        found.append(np.concatenate([one * tiles + first + np.arange(count) for one, first, count in each]))
        free[chosen] += shares
    return found


def _neurons_per_tile(widths: list[int], splits: list[Split], tiles: int, chips: int, options: MappingOptions) -> int:
    """The smallest multiple of the unit for which all layers fit, or the one asked for."""

    def grids(per_tile: int) -> list[Grid]:
        return [_grid_of(width, split, per_tile) for width, split in zip(widths, splits, strict=True)]

    reserved = options.reserved_tiles
    usable = tiles * chips - reserved
    asked = options.neurons_per_tile
    where = f"{usable} are usable" + (f" on {chips} chips, and no layer may straddle two" if chips > 1 else "")
    if asked:
        if _dealt(grids(asked), tiles, chips, reserved) is None:
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
    while _dealt(grids(per_tile), tiles, chips, reserved) is None:
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


def _chips_of_groups(layer: LayerPlacement, group_size: int, tiles: int) -> np.ndarray:
    """int64[groups, batch]: the chip of the first part of a group of parts, for every sample."""
    parts = layer.grid.reshape(layer.copies, -1)
    groups = layer.parts // group_size
    of_copy: np.ndarray = parts[:, np.arange(groups) * group_size] // tiles
    return of_copy[layer.copy_of].T


def _reductions(
    network: SpikingNetwork, layers: list[LayerPlacement], tiles: int, options: MappingOptions
) -> tuple[tuple[ReducePlacement | None, ...], tuple[ReducePlacement | None, ...]]:
    """For every layer, on its own chips, of what it gives the layer before it and of what it gives itself: tiles by
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
    sizes = {pair: max(1, min(options.reduce_group or batch // 2, layers[pair[0]].parts)) for pair in work}
    chip_of = {(index, source): _chips_of_groups(layers[index], size, tiles) for (index, source), size in sizes.items()}
    counts: dict[tuple[int, int], int] = {}  # tiles on each of its chips
    firsts: dict[tuple[int, int], dict[int, int]] = {pair: {} for pair in work}
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
    for (index, source), first_tiles in firsts.items():
        chips, slots = chip_of[index, source], network.layers[source].capacity
        most = int(np.bincount(chips.ravel()).max()) * slots  # vertices of a chip
        count = counts[index, source]
        placed[index, source] = ReducePlacement(
            tiles=count,
            first_tiles=first_tiles,
            group_size=sizes[index, source],
            groups=len(chips),
            per_tile=-(-most // (count * word)) * word,
            slots=slots,
            chip_of=chips,
        )
    numbers = range(len(layers))
    return tuple(placed.get((n, n - 1)) for n in numbers), tuple(placed.get((n, n)) for n in numbers)
