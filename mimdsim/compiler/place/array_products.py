"""The products that a network with dense spikes takes on one chip, and where the matrices between them lie."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mimdsim.compiler.place.products import Blocks, ProductPlace
from mimdsim.machine import MimdMachine

LINEAR_BYTES, ITEM_BYTES = 128, 4  # the library maps linearly in runs of at least 128 bytes a tile (poputil)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayPlacement:
    """Products of a network on one chip, planned as they are asked for; tiles before `first_tile` are left out."""

    machine: MimdMachine
    first_tile: int
    batch: int
    known: dict[tuple[int, int, int], ProductPlace] = field(default_factory=dict)
    rows: dict[int, Blocks] = field(default_factory=dict)

    def product(self, m: int, k: int, n: int) -> ProductPlace:
        """C[m, n] = A[m, k] B[k, n] in float32, A held by the matrix units; raises DoesNotFit or DescriptionError."""
        key = m, k, n
        if key not in self.known:
            tiles = self.machine.chip.tiles - self.first_tile
            smaller = self.machine.model_copy(
                update={"chip": self.machine.chip.model_copy(update={"tiles": max(tiles, 1)})}
            )
            self.known[key] = ProductPlace.planned(smaller, m, k, n, "f32", first_tile=self.first_tile)
        return self.known[key]

    def row(self, width: int) -> Blocks:
        """One number for each of `width` neurons, in runs as the library maps linearly."""
        if width not in self.rows:
            usable = self.machine.chip.tiles - self.first_tile
            run = max(LINEAR_BYTES // ITEM_BYTES, -(-width // usable))
            start = np.arange(0, width, run)
            self.rows[width] = Blocks(
                tiles=self.first_tile + np.arange(len(start)),
                row_start=np.zeros_like(start),
                row_stop=np.ones_like(start),
                start=start,
                stop=np.minimum(start + run, width),
                fastest=1,
            )
        return self.rows[width]

    def forward(self, inputs: int, neurons: int) -> ProductPlace:
        """Currents [batch, neurons] from spikes [batch, inputs] and weights [inputs, neurons]."""
        return self.product(self.batch, inputs, neurons)

    def input_gradient(self, inputs: int, neurons: int) -> ProductPlace:
        """Gradient of spikes [batch, inputs] from that of currents [batch, neurons] and the transposed weights."""
        return self.product(self.batch, neurons, inputs)

    def weight_gradient(self, inputs: int, neurons: int) -> ProductPlace:
        """Gradient of weights [inputs, neurons] from the transposed spikes and the gradient of currents."""
        return self.product(inputs, self.batch, neurons)
