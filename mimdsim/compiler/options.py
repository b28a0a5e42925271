"""What a user may choose of placement and lowering."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mimdsim.base.errors import MappingError, suggest
from mimdsim.graph.stash import stash_policy

VECTOR_BYTES = 8  # of the published codelets: a pair of floats, or four halves
CHOICES: dict[str, tuple[str | int, ...]] = {
    "state_gradient": ("tilewise", "per_batch"),
    "id_bytes": (4, 2),
    "value_bytes": (4, 2),
    "moment_bytes": (0, 4),
    "spike_exchange": ("ids", "dense"),
    "selection_tiles": ("published", "last"),
    "reduce_rule": ("work", "even"),
    "dense_neurons": ("calls", "fused"),
}


@dataclass(frozen=True, kw_only=True)
class MappingOptions:
    """Choices of placement and lowering; defaults are the published ones. Raises MappingError for an unknown one."""

    neurons_per_tile: int = 0  # 0: the smallest multiple of neurons_unit that fits
    neurons_unit: int = 2
    reserved_tiles: int = 1
    weight_gradient_replicas: int = 6
    states_per_worker: int = 64
    reduce_exponent: float = 0.8
    state_gradient: str = "tilewise"  # or "per_batch": one vertex per sample and layer on whole rows, as until 2022
    id_bytes: int = 4  # of ids and counts of spikes; 2: uint16
    value_bytes: int = 4  # of weights, states, gradients and, where moment_bytes is 0, moments
    moment_bytes: int = 0  # of what the optimiser keeps; 0: as other values
    spike_exchange: str = "ids"  # to the next layer; or "dense": a row of one byte per neuron
    selection_tiles: str = "published"  # spread over the chip; or "last": one tile per sample and layer, from the end
    dense_neurons: str = "calls"  # of dense spikes: calls of the element-wise library; or "fused": one vertex by hand
    reduce_rule: str = "work"  # or "even": every layer but the first gets as many tiles
    stash: str = "everything"  # of the forward pass; or "carry", "every:K" (graph/stash.py)

    def __post_init__(self) -> None:
        stash_policy(self.stash)
        for name, known in CHOICES.items():
            given = getattr(self, name)
            if given not in known:
                hint = suggest(str(given), [str(word) for word in known])
                raise MappingError(f"mapping.{name} = {given!r} is no choice{hint}")
        vector = VECTOR_BYTES // self.value_bytes
        if self.value_bytes == 2 and self.neurons_per_tile % vector:
            raise MappingError(
                f"mapping.neurons_per_tile = {self.neurons_per_tile} must be a multiple of {vector} with "
                "mapping.value_bytes = 2, as vertices work on four halves at a time; 0 lets the compiler choose"
            )

    @property
    def id_dtype(self) -> str:
        """numpy's name of the format of ids and counts."""
        return "int32" if self.id_bytes == 4 else "uint16"

    @property
    def tile_unit(self) -> int:
        """Neurons per tile come in multiples of this: the unit asked for, and whole vectors of halves."""
        return self.neurons_unit if self.value_bytes == 4 else math.lcm(self.neurons_unit, VECTOR_BYTES // 2)
