"""Dense spikes: which planned products a network takes, and where the matrices between them lie.

Every value is a matrix [batch, neurons] (or a sequence of it) in boxes over all tiles. A layer's neurons lie as the
product that makes their currents leaves them, weights as that product wants them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.compiler.placement import Placement
from mimdsim.compiler.product_place import Blocks, ProductPlace
from mimdsim.compiler.product_plan import plan_product
from mimdsim.graph import SpikingNetwork
from mimdsim.machine import MimdMachine
from mimdsim.workload.mapping import MappingOptions

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
            self.known[key] = ProductPlace(plan=plan_product(smaller, m, k, n, "f32"), first_tile=self.first_tile)
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


def place_arrays(network: SpikingNetwork, machine: MimdMachine, options: MappingOptions) -> Placement:
    """The placement of a network with dense spikes, on the first chip of `machine`.

    Raises MappingError for options that only sparse spikes have.
    """
    _check(options)
    tiles, bus = machine.chip.tiles, machine.exchange.tiles_per_bus
    # neighbours on a bus want the same block: the first of a pair is even
    first = -(-options.reserved_tiles // bus) * bus
    usable = np.arange(min(options.reserved_tiles, tiles - 1), tiles)
    return Placement(
        tiles=tiles,
        chips=1,
        neurons_per_tile=0,
        layers=(),
        reductions=(),
        sample_tiles=usable[(np.arange(network.batch) * len(usable)) // network.batch],
        reserved_tiles=options.reserved_tiles,
        worker_contexts=min(machine.tile.worker_contexts, machine.tile.issue_cycles),
        arrays=ArrayPlacement(machine=machine, first_tile=min(first, tiles - 1), batch=network.batch),
    )


def _check(options: MappingOptions) -> None:
    """Number formats and forms of spikes that the products of dense spikes are not written for."""
    standard = MappingOptions()
    for name in ("value_bytes", "moment_bytes", "id_bytes", "spike_exchange", "state_gradient", "selection_tiles"):
        given, known = getattr(options, name), getattr(standard, name)
        if given != known:
            raise MappingError(
                f"mapping.{name} = {given!r} is for sparse spikes; dense spikes on tiles are float32: leave it at "
                f'{known!r} or set network.spikes = "sparse"'
            )
