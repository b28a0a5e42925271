"""Where spikes are selected: the chip of every sample, and the tiles that scan and combine its lists."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import DoesNotFit
from mimdsim.graph import SpikingNetwork


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


def last_tiles(on_chip: list[np.ndarray], tiles: int) -> list[np.ndarray]:
    """The same where both rows of a sample have one tile, layer after layer from the end of the chip."""
    batch = len(on_chip[0])
    return [np.repeat(tiles - turns * batch + np.arange(batch), 2) for turns in _turns(on_chip)]


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
