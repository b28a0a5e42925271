"""Records of a placement: which tiles hold and select what of every layer, and which ones add partial sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.compressed_columns import TILES, compact
from mimdsim.compiler.place.array_products import ArrayPlacement


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
