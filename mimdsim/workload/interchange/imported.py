"""The content of a model file, independent of its format: a chain of populations with their discrete equations.

For one population, in timestep t (`current` is the weighted sum of the spikes it receives):

    current[t] = source[t - delay] @ weights + own[t-1] @ recurrent + bias
    i[t] = synapse_decay * i[t-1] + synapse_gain * current[t]        (without a synapse: i[t] = current[t])
    v[t] = rest + decay * (v[t-1] - rest) + gain * i[t]
    own[t] = 1 where v[t] > threshold, else 0                        (a read-out sends v[t] itself)

and a neuron that fired at t-1 is reset before or after it integrates, as `reset` says. It starts with v = rest, i = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mimdsim.workload.interchange.nir_nodes import Reals

Reset = Literal["zero", "zero_after", "subtract", "subtract_decayed", "none"]
# zero: v[t-1] becomes the reset value before integrating (NIR with v_reset, Norse, snnTorch Leaky "zero").
# zero_after: v[t] becomes the reset value, so what came in at t is lost (snnTorch Synaptic and RLeaky "zero").
# subtract: the threshold is subtracted from v[t] and does not decay (snnTorch "subtract", its default).
# subtract_decayed: the threshold is subtracted from v[t-1], so it decays (NIR up to 1.0.4, snnTorch reset_delay=False).
RESETS: tuple[Reset, ...] = ("zero", "zero_after", "subtract", "subtract_decayed", "none")


def layer_names(count: int) -> tuple[str, ...]:
    """'hidden0', 'hidden1', ..., 'output'"""
    return (*(f"hidden{index}" for index in range(count - 1)), "output")


@dataclass(frozen=True, kw_only=True, eq=False)
class Dynamics:
    """Constants of a population, float64[neurons] each. Without `threshold` it never fires; `reset_value` is for
    the resets to zero."""

    decay: Reals
    gain: Reals
    rest: Reals
    synapse_decay: Reals | None = None
    synapse_gain: Reals | None = None
    threshold: Reals | None = None
    reset: Reset = "none"
    reset_value: Reals | None = None

    @property
    def states(self) -> int:
        return 1 if self.synapse_decay is None else 2

    def matrices(self) -> tuple[Reals, Reals]:
        """(A [states, states, neurons], B [states, neurons]) of x[t] = A x[t-1] + B current[t], x[-1] = 0.

        Row 0 is the membrane potential less `rest`, row 1 the synaptic current.
        """
        if self.synapse_decay is None or self.synapse_gain is None:
            return self.decay[None, None], self.gain[None]
        zero = np.zeros_like(self.decay)
        a = np.array([[self.decay, self.gain * self.synapse_decay], [zero, self.synapse_decay]])
        return a, np.array([self.gain * self.synapse_gain, self.synapse_gain])


@dataclass(frozen=True, kw_only=True, eq=False)
class Population:
    """Neurons that read one source. weights [inputs, neurons], bias [neurons], recurrent [neurons, neurons] (from, to)
    for recurrence 'all_to_all', [neurons] for 'one_to_one'; `node` says where in the file it was."""

    node: str
    kind: str
    weights: Reals
    dynamics: Dynamics
    bias: Reals | None = None
    recurrence: Literal["none", "one_to_one", "all_to_all"] = "none"
    recurrent: Reals | None = None
    delay: int = 0

    @property
    def inputs(self) -> int:
        return int(self.weights.shape[0])

    @property
    def neurons(self) -> int:
        return int(self.weights.shape[1])

    @property
    def spiking(self) -> bool:
        return self.dynamics.threshold is not None


@dataclass(frozen=True, kw_only=True, eq=False)
class ImportedNetwork:
    """Populations in order, each reading the one before it; dt_seconds is the length of a timestep (0: unknown).

    `notes` list decisions made while reading where another choice would be possible.
    """

    populations: tuple[Population, ...]
    dt_seconds: float
    notes: tuple[str, ...] = ()

    @property
    def inputs(self) -> int:
        return self.populations[0].inputs

    @property
    def outputs(self) -> int:
        return self.populations[-1].neurons

    @property
    def layers(self) -> tuple[tuple[str, Population], ...]:
        """The populations by the names of layers."""
        return tuple(zip(layer_names(len(self.populations)), self.populations, strict=True))

    @property
    def title(self) -> str:
        """'12-38-7'"""
        return "-".join(str(width) for width in (self.inputs, *(each.neurons for each in self.populations)))
