"""Where neurons, spike selection and reductions go: the mapping rules of the published system, general in all sizes.

Source: jrfinkbeiner/graphcore_snn (keras_train_util_ipu.py, poplar_code_stateBasedReset.cpp, commit 0d81a25);
two mappings that the authors' program printed are reproduced exactly (references/tile_mapping_golden.json).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import DoesNotFit
from mimdsim.graph import SpikingNetwork


@dataclass(frozen=True, kw_only=True)
class MappingOptions:
    """Choices of placement and lowering; defaults are the published ones."""

    neurons_per_tile: int = 0  # 0: the smallest multiple of neurons_unit that fits
    neurons_unit: int = 2
    reserved_tiles: int = 1
    weight_gradient_replicas: int = 6
    states_per_worker: int = 64
    reduce_exponent: float = 0.8
    state_gradient: str = "tilewise"  # or "per_batch": one vertex per sample and layer on whole rows, as until 2022


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerPlacement:
    """One layer: neurons start..stop of `tiles[k]`; the tiles that select its spikes, in slots of (sample, row, part).

    spread: tiles per sample and threshold row; workers: scanning workers per sample and row, over all its tiles.
    """

    name: str
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
    """The placement of a network on one chip. sample_tiles: where per-sample data lies, int64[batch]."""

    tiles: int
    neurons_per_tile: int
    layers: tuple[LayerPlacement, ...]
    reductions: tuple[ReducePlacement | None, ...]
    sample_tiles: np.ndarray
    usable_tiles: np.ndarray


def place(network: SpikingNetwork, tiles: int, worker_contexts: int, options: MappingOptions) -> Placement:
    """Place `network` on `tiles` tiles; raises DoesNotFit with the numbers when there are too few."""
    widths = [layer.neurons for layer in network.layers]
    usable = tiles - options.reserved_tiles
    per_tile = _neurons_per_tile(widths, usable, options)
    batch = network.batch
    spreads = [selection_spread(width, worker_contexts, options.states_per_worker) for width in widths]
    slots = batch * 2 * sum(spreads)
    layers = []
    tile, slot = options.reserved_tiles, 0
    for layer, spread in zip(network.layers, spreads, strict=True):
        count = -(-layer.neurons // per_tile)
        starts = np.arange(count) * per_tile
        numbers = slot + np.arange(batch * 2 * spread)
        layers.append(
            LayerPlacement(
                name=layer.name,
                first_tile=tile,
                last_tile=tile + count,
                tiles=tile + np.arange(count),
                starts=starts,
                stops=np.minimum(starts + per_tile, layer.neurons),
                spread=spread,
                workers=min(worker_contexts * spread, layer.neurons),
                selection_tiles=(numbers * tiles // slots).reshape(batch, 2, spread),
            )
        )
        tile, slot = tile + count, slot + len(numbers)
    usable_tiles = np.arange(options.reserved_tiles, tiles)
    return Placement(
        tiles=tiles,
        neurons_per_tile=per_tile,
        layers=tuple(layers),
        usable_tiles=usable_tiles,
        reductions=_reductions(network, layers, usable, options),
        sample_tiles=usable_tiles[(np.arange(batch) * len(usable_tiles)) // batch],
    )


def _neurons_per_tile(widths: list[int], usable: int, options: MappingOptions) -> int:
    """The smallest multiple of the unit for which all layers fit, or the one asked for."""

    def needed(per_tile: int) -> int:
        return sum(-(-width // per_tile) for width in widths)

    asked = options.neurons_per_tile
    if asked:
        if needed(asked) > usable:
            raise DoesNotFit(
                f"with {asked} neurons per tile the {len(widths)} layers need {needed(asked)} tiles, "
                f"{usable} are usable: raise mapping.neurons_per_tile, or set it to 0 to let the compiler choose"
            )
        return asked
    if len(widths) > usable:
        raise DoesNotFit(
            f"{len(widths)} layers need at least one tile each, {usable} tiles are usable: "
            "use a machine with more tiles (chip.tiles) or fewer layers (network.hidden)"
        )
    per_tile = options.neurons_unit
    while needed(per_tile) > usable:
        per_tile += options.neurons_unit
    return per_tile


def selection_spread(neurons: int, worker_contexts: int, states_per_worker: int) -> int:
    """Tiles that scan one sample and threshold row: workers for the target states each, rounded, then tiles of them.

    A remainder of 2 or more workers gets a tile of its own (authors' rule for 6 contexts).
    """
    workers = neurons // states_per_worker + (neurons % states_per_worker > states_per_worker // 2)
    return int(max(1, workers // worker_contexts + (workers % worker_contexts >= min(2, worker_contexts - 1 or 1))))


def _reductions(
    network: SpikingNetwork, layers: list[LayerPlacement], usable: int, options: MappingOptions
) -> tuple[ReducePlacement | None, ...]:
    """For every layer but the first: tiles by work^0.8 of occupied tiles times capacity of the layer before."""
    batch = network.batch
    capacities = [layer.capacity for layer in network.layers[:-1]]
    work = [
        int(layer.occupied**options.reduce_exponent * capacity * batch)
        for layer, capacity in zip(layers[1:], capacities, strict=True)
    ]
    total = sum(work) or 1
    first = options.reserved_tiles
    placed: list[ReducePlacement | None] = [None]
    for layer, capacity, share in zip(layers[1:], capacities, work, strict=True):
        tiles = max(1, share * usable // total)
        group_size = max(1, min(batch // 2, layer.occupied))
        groups = layer.occupied // group_size
        placed.append(
            ReducePlacement(
                tiles=tiles,
                first_tile=min(first, options.reserved_tiles + usable - tiles),
                group_size=group_size,
                groups=groups,
                per_tile=-(-groups * batch * capacity // tiles),
            )
        )
        first += tiles
    return tuple(placed)
