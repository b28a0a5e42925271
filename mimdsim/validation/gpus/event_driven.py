"""EventProp training as GeNN's generated kernels run it: for validation only.

Two kernels a timestep: one updates all neurons of all samples, one follows the spikes of the timestep, forward and (of
the batch before) backward. After the last timestep one kernel adds up the gradients of the samples and one is Adam.
What they move is counted from the code: genn-team/genn (neuronUpdateGroupMerged.cc, presynapticUpdateStrategySIMT.cc,
backendSIMT.cc) and genn-team/ml_genn (event_prop_compiler.py, spike_input.py, adam.py). Every sample has weight
gradients and rings of spike times of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mimdsim.gpu.elementwise import launch_seconds
from mimdsim.machine.gpu import GpuMachine

WORD = 4
# What a pair of events around a kernel adds to a launch period. Kind: derived, calibrated on the last of the three
# kernels of the softmax (20 outputs of 32 samples), the smallest that were timed.
EVENTS_SECONDS = 3.5e-6
# A neuron's next spike time lies alone in its ring of 1,500: a sector of the L2, two in a burst of the DRAM.
SECTOR, BURST = 32, 64
# Bytes of one neuron of one sample in a timestep besides those. Variables are read and written back, used or not.
# hidden: potential, two adjoints, four places in rings, a spike count; currents and gradients of two projections each;
# a flag, and the batch's spike count, which is read. input: next and last spike, the same places and flag.
HIDDEN_BYTES = 8 * 2 * WORD + 2 * 2 * WORD + 2 * 2 * WORD + 2 + WORD
INPUT_BYTES = 5 * 2 * WORD + WORD + 2
INPUT_SECTORS, HIDDEN_SECTORS = 2, 1
RESET_BYTES = 9 * WORD  # per sample: two places read, three written, potential, adjoints and count set
# Share of the DRAM's rate at which gradients of single samples are read and written, pieces of a row far apart. Kind:
# derived, calibrated on gradient_batch_reduce of 256 neurons.
SCATTERED_SHARE = 0.29
LOADS_AHEAD = 4  # of a loop without stores, as the compiler unrolls it; assumed
WARP_SUM_CYCLES = 125  # five shuffles and sums, one after the other; assumed
ADAM_PASSES = 7  # gradient, weight and two moments read, three of them written; derived


@dataclass(frozen=True, kw_only=True)
class EventDrivenNetwork:
    """inputs -> hidden, which recur -> outputs. Spikes: of one sample in one timestep, means."""

    inputs: int
    hidden: int
    outputs: int
    batch: int
    timesteps: int
    input_spikes: float
    hidden_spikes: float

    @property
    def weights(self) -> int:
        return (self.inputs + self.hidden + self.outputs) * self.hidden

    @property
    def synaptic_events(self) -> float:
        """Weights that the spikes of all samples in one timestep meet."""
        hidden = self.hidden_spikes * (self.hidden + self.outputs)
        return self.batch * (self.input_spikes * self.hidden + hidden)

    def busiest(self, spikes: float) -> float:
        """Spikes of the sample that has most of them in a timestep, were they independent (Poisson)."""
        return spikes + math.sqrt(2 * spikes * math.log(self.batch))

    @property
    def touched_weight_bytes(self) -> float:
        """Rows of weights that any sample's spikes select in a timestep."""
        rows = 0.0
        for neurons, spikes, targets in (
            (self.inputs, self.input_spikes, self.hidden),
            (self.hidden, self.hidden_spikes, self.hidden + self.outputs),
        ):
            idle = max(0.0, 1 - spikes / neurons) ** self.batch
            rows += neurons * (1 - idle) * targets
        return rows * WORD


def kept_share(gpu: GpuMachine, touched_bytes: float) -> float:
    """Of data touched in turn, the share still in the L2 when their turn comes: what exceeds it displaces as much
    again. Assumed."""
    return min(1.0, max(0.0, 2 - touched_bytes / gpu.memory.l2_bytes))


def neuron_update_seconds(gpu: GpuMachine, network: EventDrivenNetwork) -> float:
    """One launch: all neurons of all samples, from the L2 as far as spikes in between leave them there."""
    hidden, inputs = network.batch * network.hidden, network.batch * network.inputs
    streamed = hidden * HIDDEN_BYTES + inputs * INPUT_BYTES
    alone = hidden * HIDDEN_SECTORS + inputs * INPUT_SECTORS
    between = network.synaptic_events * WORD + network.touched_weight_bytes
    kept = kept_share(gpu, streamed + alone * SECTOR + between)
    cached = (streamed + alone * SECTOR) / gpu.memory.l2_streaming_bytes_per_second
    fetched = (streamed + alone * BURST) / _dram(gpu)
    return _launch(gpu) + kept * cached + (1 - kept) * fetched


def synapse_seconds(gpu: GpuMachine, network: EventDrivenNetwork) -> float:
    """One launch: a thread per target and sample follows the sample's spikes one after the other.

    Backward each reads and writes its gradient, which the next may not overtake; forward it adds up weights. The
    sample with most spikes takes longest; then there are the bytes of all.
    """
    memory, clock = gpu.memory, gpu.chip.clock_hz
    waits = memory.dram_latency_cycles + memory.l2_latency_cycles / LOADS_AHEAD
    chain = max(
        network.busiest(network.input_spikes) * waits,
        network.busiest(network.hidden_spikes) * (waits + WARP_SUM_CYCLES),
    )
    met = network.synaptic_events
    back_read = network.batch * network.hidden_spikes * (network.hidden + network.outputs)
    gradients = 2 * WORD * met / (SCATTERED_SHARE * memory.dram_bytes_per_second)
    weights = WORD * (met + back_read) / memory.l2_streaming_bytes_per_second
    return _launch(gpu) + chain / clock + gradients + weights


def batch_sum_seconds(gpu: GpuMachine, network: EventDrivenNetwork) -> float:
    """Gradients of all samples are read and set to zero, their sum is written."""
    scattered = 2 * network.batch * network.weights * WORD / (SCATTERED_SHARE * gpu.memory.dram_bytes_per_second)
    return _launch(gpu) + scattered + network.weights * WORD / _dram(gpu)


def optimiser_seconds(gpu: GpuMachine, network: EventDrivenNetwork) -> float:
    """Adam on all weights, which the sum of gradients before it has driven out of the L2."""
    return _launch(gpu) + ADAM_PASSES * network.weights * WORD / _dram(gpu)


def reset_seconds(gpu: GpuMachine, network: EventDrivenNetwork) -> float:
    """State of all neurons for the next batch."""
    moved = network.batch * (network.hidden + network.inputs) * RESET_BYTES
    return _launch(gpu) + moved / _dram(gpu)


def count_sum_seconds(gpu: GpuMachine, network: EventDrivenNetwork) -> float:
    """Spike counts of the samples added up, a thread per neuron, a few loads at a time."""
    return _launch(gpu) + network.batch / LOADS_AHEAD * gpu.memory.dram_latency_cycles / gpu.chip.clock_hz


def small_kernel_seconds(gpu: GpuMachine, _network: EventDrivenNetwork) -> float:
    """A kernel of a few values per sample."""
    return _launch(gpu)


def _launch(gpu: GpuMachine) -> float:
    return EVENTS_SECONDS + launch_seconds(gpu, "stream")


def _dram(gpu: GpuMachine) -> float:
    return gpu.memory.dram_bytes_per_second * gpu.memory.streaming_share
