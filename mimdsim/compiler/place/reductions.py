"""Which tiles add up the partial sums of input gradients."""

from __future__ import annotations

import numpy as np

from mimdsim.compiler.place.placement import LayerPlacement, ReducePlacement
from mimdsim.graph import SpikingNetwork
from mimdsim.workload.description.mapping import MappingOptions


def _chips_of_groups(layer: LayerPlacement, group_size: int, tiles: int) -> np.ndarray:
    """int64[groups, batch]: the chip of the first part of a group of parts, for every sample."""
    parts = layer.grid.reshape(layer.copies, -1)
    groups = layer.parts // group_size
    of_copy: np.ndarray = parts[:, np.arange(groups) * group_size] // tiles
    return of_copy[layer.copy_of].T


def reductions_of(
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
            # whole work, its fraction dropped, as in the authors' program
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
