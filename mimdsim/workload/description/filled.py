"""Artificial spikes: every list filled to the same share, to time a network that was not executed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.base.units import exact_product
from mimdsim.graph import SpikingNetwork
from mimdsim.program import RecordedActivity


def filled_activity(network: SpikingNetwork, share: float) -> RecordedActivity:
    """Every list of the input and of all layers holds `share` (0 to 1) of its capacity, rounded half up, all true.

    Ids are spread evenly over the neurons of a layer, the same in every timestep and sample. Raises MappingError for
    another share.
    """
    if not 0 <= share <= 1:
        raise MappingError(f"lists filled to {share} of their capacity: give a share from 0 to 1")
    sizes = [("input", network.inputs, network.input_capacity)]
    sizes += [(layer.name, layer.neurons, layer.capacity) for layer in network.layers]
    ids, counts = {}, {}
    for name, neurons, capacity in sizes:
        spread = ((np.arange(capacity) * neurons) // capacity).astype(np.int32)
        ids[name] = np.broadcast_to(spread, (network.timesteps, network.batch, capacity)).copy()
        listed = math.floor(exact_product(share, capacity) + Fraction(1, 2))
        counts[name] = np.full((network.timesteps, network.batch, 2), listed, np.int32)
    return RecordedActivity(ids=ids, counts=counts, dropped={})
