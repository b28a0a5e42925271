"""Dense spikes: which planned products a network takes, and where the matrices between them lie.

Every value is a matrix [batch, neurons] (or a sequence of it) in boxes over all tiles. A layer's neurons lie as the
product that makes their currents leaves them, weights as that product wants them.
"""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.compiler.place.layer_partition import Placement
from mimdsim.compiler.place.products import ArrayPlacement
from mimdsim.graph import SpikingNetwork
from mimdsim.machine import MimdMachine
from mimdsim.workload.description.mapping import MappingOptions


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
        worker_contexts=machine.tile.working_contexts,
        arrays=ArrayPlacement(machine=machine, first_tile=min(first, tiles - 1), batch=network.batch),
    )


def _check(options: MappingOptions) -> None:
    """Number formats and forms of spikes that the products of dense spikes are not written for."""
    standard = MappingOptions()
    for name in (
        "tiles",
        "value_bytes",
        "moment_bytes",
        "id_bytes",
        "spike_exchange",
        "state_gradient",
        "selection_tiles",
    ):
        given, known = getattr(options, name), getattr(standard, name)
        if given != known:
            raise MappingError(
                f"mapping.{name} = {given!r} is for sparse spikes; dense spikes on tiles are float32: leave it at "
                f'{known!r} or set network.spikes = "sparse"'
            )
