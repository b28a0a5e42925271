"""Into how many parts each layer is cut, and which tiles the parts get, over all chips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import DoesNotFit, MappingError, suggest
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


def splits_of(network: SpikingNetwork, options: MappingOptions) -> list[Split]:
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
        raise DoesNotFit(f"the parts of mapping.split need at least {least} tiles, {where}: lower its batch or neurons")
    per_tile = options.tile_unit
    while dealt_tiles(grids(per_tile), tiles, chips, reserved) is None:
        if per_tile > max(widths):  # a grid of the split is too large for a chip
            raise DoesNotFit(f"the parts of mapping.split do not fit, {where}: lower its batch or neurons")
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
