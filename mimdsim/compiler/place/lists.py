"""Where neurons, spike selection and reductions go: the mapping rules of the published system, general in all sizes.

Source: jrfinkbeiner/graphcore_snn (keras_train_util_ipu.py, poplar_code_stateBasedReset.cpp, commit 0d81a25);
two mappings that the authors' program printed are reproduced exactly (references/tile_mapping_golden.json).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.compiler.place.array_products import ArrayPlacement
from mimdsim.graph import SpikingNetwork
from mimdsim.workload.mapping import MappingOptions

MOST_SHORT_IDS = 2**16 - 1  # neurons whose ids and counts fit two bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerPlacement:
    """One layer: neurons start..stop of `tiles[k]`; the tiles that select its spikes, in slots of (sample, row, part).

    Tile numbers run on over the chips. spread: tiles per sample and threshold row; workers: scanning workers per sample
    and row, over all its tiles.
    """

    name: str
    chip: int
    first_tile: int
    last_tile: int  # one past
    tiles: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    spread: int
    workers: int
    selection_tiles: np.ndarray  # [batch, 2, spread]

    @property
    def occupied(self) -> int:
        return len(self.tiles)

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
    """

    tiles: int
    chips: int
    neurons_per_tile: int
    layers: tuple[LayerPlacement, ...]
    reductions: tuple[ReducePlacement | None, ...]
    sample_tiles: np.ndarray
    reserved_tiles: int
    worker_contexts: int
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
        """Every tile but the reserved ones."""
        return np.arange(self.reserved_tiles, self.tiles)

    def usable_on(self, chip: int) -> np.ndarray:
        """The tiles of a chip that may hold data; the first chip reserves some for control."""
        first = chip * self.tiles_per_chip + (self.reserved_tiles if chip == 0 else 0)
        return np.arange(first, (chip + 1) * self.tiles_per_chip)


def place(
    network: SpikingNetwork, tiles: int, worker_contexts: int, options: MappingOptions, chips: int = 1
) -> Placement:
    """Place `network` on `chips` chips of `tiles` tiles; raises DoesNotFit with the numbers when there are too few.

    Layers follow in order; one that does not fit into the rest of a chip begins the next. Later chips are left out.
    """
    _check_ids(network, options)
    widths = [layer.neurons for layer in network.layers]
    if options.reserved_tiles >= tiles:
        raise DoesNotFit(
            f"mapping.reserved_tiles = {options.reserved_tiles} leaves none of the {tiles} tiles of the first chip: "
            "lower it"
        )
    per_tile = _neurons_per_tile(widths, tiles, chips, options)
    firsts = _first_tiles(widths, per_tile, tiles, chips, options.reserved_tiles)
    assert firsts is not None
    layers = _layers(network, firsts, per_tile, tiles, worker_contexts, options)
    last = layers[-1].chip
    reductions, own_reductions = _reductions(network, layers, tiles, options)
    usable = np.arange(last * tiles + (options.reserved_tiles if last == 0 else 0), (last + 1) * tiles)
    return Placement(
        tiles=tiles * (last + 1),
        chips=last + 1,
        neurons_per_tile=per_tile,
        layers=tuple(layers),
        reductions=reductions,
        own_reductions=own_reductions,
        sample_tiles=usable[(np.arange(network.batch) * len(usable)) // network.batch],
        reserved_tiles=options.reserved_tiles,
        worker_contexts=worker_contexts,
    )


def _layers(
    network: SpikingNetwork,
    firsts: list[int],
    per_tile: int,
    tiles: int,
    worker_contexts: int,
    options: MappingOptions,
) -> list[LayerPlacement]:
    """Layers from their first tiles on, `per_tile` neurons each, and the tiles that select their spikes."""
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
    each = zip(network.layers, firsts, on_chip, spreads, selecting, strict=True)
    for layer, first, chip, spread, selects in each:
        count = -(-layer.neurons // per_tile)
        starts = np.arange(count) * per_tile
        layers.append(
            LayerPlacement(
                name=layer.name,
                chip=chip,
                first_tile=first,
                last_tile=first + count,
                tiles=first + np.arange(count),
                starts=starts,
                stops=np.minimum(starts + per_tile, layer.neurons),
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


def _first_tiles(widths: list[int], per_tile: int, tiles: int, chips: int, reserved: int) -> list[int] | None:
    """The first tile of every layer, or None when the layers do not fit."""
    firsts, tile = [], reserved
    for width in widths:
        count = -(-width // per_tile)
        if tile % tiles + count > tiles:
            tile = (tile // tiles + 1) * tiles
        if count > tiles - (reserved if tile == reserved else 0) or tile + count > tiles * chips:
            return None
        firsts.append(tile)
        tile += count
    return firsts


def _neurons_per_tile(widths: list[int], tiles: int, chips: int, options: MappingOptions) -> int:
    """The smallest multiple of the unit for which all layers fit, or the one asked for."""
    reserved = options.reserved_tiles
    usable = tiles * chips - reserved
    asked = options.neurons_per_tile
    where = f"{usable} are usable" + (f" on {chips} chips, and no layer may straddle two" if chips > 1 else "")
    if asked:
        if _first_tiles(widths, asked, tiles, chips, reserved) is None:
            needed = sum(-(-width // asked) for width in widths)
            raise DoesNotFit(
                f"with {asked} neurons per tile the {len(widths)} layers need {needed} tiles, "
                f"{where}: raise mapping.neurons_per_tile, or set it to 0 to let the compiler choose"
            )
        return asked
    if len(widths) > usable:
        raise DoesNotFit(
            f"{len(widths)} layers need at least one tile each, {usable} tiles are usable: "
            "use a machine with more tiles (chip.tiles) or fewer layers (network.hidden)"
        )
    per_tile = options.tile_unit
    while _first_tiles(widths, per_tile, tiles, chips, reserved) is None:
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
            occupied = layers[index].occupied
            work[index, source] = 1 if even else int(occupied**options.reduce_exponent * capacity * batch)
    for chip in sorted({layer.chip for layer in layers}):
        on_chip = [pair for pair in work if layers[pair[0]].chip == chip]
        total = sum(work[pair] for pair in on_chip) or 1
        first = begin = chip * tiles + (options.reserved_tiles if chip == 0 else 0)
        usable = (chip + 1) * tiles - begin
        for index, source in on_chip:
            count = max(1, work[index, source] * usable // total)
            group_size = max(1, min(batch // 2, layers[index].occupied))
            groups = layers[index].occupied // group_size
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
