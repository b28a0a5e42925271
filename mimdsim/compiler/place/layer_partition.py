"""Into how many parts each layer is cut, and which tiles the parts get, over all chips."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mimdsim.base.compressed_columns import TILES, compact
from mimdsim.base.errors import DoesNotFit, MappingError, suggest
from mimdsim.base.shown import Sheet, Shown
from mimdsim.base.units import counted
from mimdsim.compiler.place.products import ArrayPlacement
from mimdsim.graph import SpikingNetwork
from mimdsim.workload.description.mapping import MappingOptions, Split


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


def grid_of(width: int, split: Split, per_tile: int) -> Grid:
    """As the split says or, of a split that leaves it open, with so many neurons a tile and the rest on the last."""
    edges = np.minimum(np.arange(-(-width // per_tile) + 1) * per_tile, width)
    if split.neurons:
        edges = np.arange(split.neurons + 1) * width // split.neurons
    return Grid(copies=split.batch, fan_in_parts=split.inputs, edges=edges, chips=split.chips)


def splits_of(network: SpikingNetwork, options: MappingOptions, chips: int) -> list[Split]:
    """Of every layer; raises MappingError for layers that do not exist and for more parts than there is to share, and
    DoesNotFit for more chips than there are."""
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
        if split.chips > chips:
            raise DoesNotFit(
                f"mapping.split.{name}.chips = {split.chips} and the machine has {counted(chips, 'chip')}: lower it, "
                "or raise links.chips"
            )
    return [options.split.get(name, Split()) for name in names]


def dealt_tiles(grids: list[Grid], tiles: int, chips: int, reserved: int) -> list[np.ndarray] | None:
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


def neurons_per_tile(widths: list[int], splits: list[Split], tiles: int, chips: int, options: MappingOptions) -> int:
    """The smallest multiple of the unit for which all layers fit, or the one asked for."""

    def grids(per_tile: int) -> list[Grid]:
        return [grid_of(width, split, per_tile) for width, split in zip(widths, splits, strict=True)]

    reserved = options.reserved_tiles
    usable = tiles * chips - reserved
    asked = options.neurons_per_tile
    where = f"{usable} are usable" + (f" on {chips} chips, and no layer may straddle two" if chips > 1 else "")
    if asked:
        if dealt_tiles(grids(asked), tiles, chips, reserved) is None:
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
        raise DoesNotFit(f"mapping.split: its parts need at least {least} tiles, {where}: lower its batch or neurons")
    per_tile = options.tile_unit
    while dealt_tiles(grids(per_tile), tiles, chips, reserved) is None:
        if per_tile > max(widths):  # a grid of the split is too large for a chip
            raise DoesNotFit(f"mapping.split: its parts do not fit, {where}: lower its batch or neurons")
        per_tile += options.tile_unit
    return per_tile


def room_of(tiles: int, chips: int, options: MappingOptions) -> int:
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


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerPlacement(Shown):
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
        return int(self.grid.shape[1])

    @property
    def parts(self) -> int:
        """Tiles that share the weights of a sample."""
        return int(self.grid[0].size)

    def cut_rows(self, rows: int) -> np.ndarray:
        """int64[fan-in parts + 1]: part f has rows edges[f]..edges[f + 1] of a matrix of weights; of one row the first
        part has it."""
        edges: np.ndarray = -(-np.arange(self.fan_in_parts + 1) * rows // self.fan_in_parts)
        return edges

    @property
    def copy_of(self) -> np.ndarray:
        """int64[batch]: the copy that a sample belongs to."""
        return np.repeat(np.arange(self.copies), np.diff(self.batch_edges))

    def rows(self, edges: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of one vertex for every run of rows edges[k]..edges[k + 1] and its tiles: the rows, and the tile's
        neurons."""
        runs = len(edges) - 1
        return {
            "row_start": np.repeat(edges[:-1], len(self.starts)),
            "row_stop": np.repeat(edges[1:], len(self.starts)),
            "start": np.tile(self.starts, runs),
            "stop": np.tile(self.stops, runs),
        }

    def cut_batch(self, parts: np.ndarray | int) -> np.ndarray:
        """int64: where the samples of every copy are cut into so many parts, copy after copy."""
        edges = zip(pairwise(self.batch_edges.tolist()), np.broadcast_to(parts, self.copies).tolist(), strict=True)
        cuts = [begin + np.arange(count) * (end - begin) // count for (begin, end), count in edges]
        return np.append(np.concatenate(cuts), self.batch_edges[-1])

    @property
    def combine_tiles(self) -> np.ndarray:
        """int64[batch]: where the final list of each sample is put together."""
        chosen: np.ndarray = self.selection_tiles[:, 0, 0]
        return chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducePlacement(Shown):
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

    def tiles_of_vertices(self, groups: int) -> np.ndarray:
        """int[groups * batch * slots], `compact`: the tile of every vertex of the first groups."""
        chips = self.chip_of[:groups].ravel()
        found = np.empty(len(chips) * self.slots, np.int64)
        for chip, first in self.first_tiles.items():
            here = np.repeat(chips == chip, self.slots)
            number = np.arange(np.count_nonzero(here))
            number //= self.per_tile
            number += first
            found[here] = number
        return compact(found, TILES)


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement(Shown):
    """The placement of a network: `tiles` over all `chips` up to the last one that holds a layer.

    reductions: of the gradients that a layer gives another or itself, by both names.
    sample_tiles: int64[batch], where per-sample data lies. arrays: of dense spikes. worker_contexts: that help.
    idle_tiles: the last ones of each chip, which get nothing.
    """

    tiles: int
    chips: int
    neurons_per_tile: int
    layers: tuple[LayerPlacement, ...]
    reductions: dict[tuple[str, str], ReducePlacement]
    sample_tiles: np.ndarray
    reserved_tiles: int
    worker_contexts: int
    idle_tiles: int = 0
    arrays: ArrayPlacement | None = None

    def _sheet(self) -> Sheet:
        rows = [
            (each.name, f"{np.unique(each.homes).size:,}", " x ".join(map(str, each.grid.shape)), f"{each.replicas}")
            for each in self.layers
        ]
        title = f"Placement on {counted(self.tiles, 'tile')} of {counted(self.chips, 'chip')}"
        return Sheet(title, rows, ("layer", "tiles", "parts of batch x inputs x neurons", "replicas"))

    @property
    def tiles_per_chip(self) -> int:
        return self.tiles // self.chips

    @property
    def what_fills_chips(self) -> str:
        """Why the network takes no more chips, and what to type for more."""
        if self.arrays is not None:
            return 'dense spikes take one; only network.spikes = "sparse" takes more'
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
