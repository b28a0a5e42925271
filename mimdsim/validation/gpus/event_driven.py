"""EventProp training as GeNN's generated kernels run it, and Spyx on the same networks: a table's rows in microseconds.

Two kernels a timestep: one updates all neurons of all samples, one follows the spikes of the timestep, forward and (of
the batch before) backward. After the last timestep one kernel adds up the gradients of the samples and one is Adam.
What they move is counted from the code: genn-team/genn (neuronUpdateGroupMerged.cc, presynapticUpdateStrategySIMT.cc,
backendSIMT.cc) and genn-team/ml_genn (event_prop_compiler.py, spike_input.py, adam.py). Every sample has weight
gradients and rings of spike times of its own.

Kernels are given per launch, sums and whole trainings per batch. Spikes are not recorded, but the training drives every
hidden neuron to a number of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.gpu import time_on_gpu
from mimdsim.gpu.elementwise import launch_seconds
from mimdsim.graph import training_graph
from mimdsim.machine.gpu import GpuMachine
from mimdsim.validation.gpus.products import described, device_of
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, whole_numbers, within_bounds
from mimdsim.workload import load_workload, network_of

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


def _launch(gpu: GpuMachine) -> float:
    return EVENTS_SECONDS + launch_seconds(gpu, "stream")


def _dram(gpu: GpuMachine) -> float:
    return gpu.memory.dram_bytes_per_second * gpu.memory.streaming_share


COLUMNS = {
    "what", "device", "dataset", "inputs", "hidden_recurrent", "outputs", "timesteps", "batch", "epochs",
    "batches_per_epoch", "quantity", "value",
}  # fmt: skip
# Rows name no device. The optimiser's kernel reads and writes 50 MB in 76 us, 660 GB/s, which is 0.86 of the DRAM of a
# card with 768 GB/s; no other card that is described here is near.
UNNAMED, UNNAMED_IS = ("gpu not named", "not stated"), "rtx-a5000"
# Of a sample of SHD. Kind: derived. reg_nu_upper = 14 in neworderofjamie/ml_genn_netx_paper, classifier.py, drives
# hidden neurons to 14 spikes a sample; input spikes are what the two sums of synaptic operations in the table (2,264
# samples, 256 and 1024 neurons) leave with it: 8,480 and 8,420.
HIDDEN_SPIKES, INPUT_SPIKES, DATASET = 14.0, 8450.0, "shd"
OTHER_SPIKES = (0.5, 1.5)  # how far a run may be from them: bounds of the interval
UNROLLED = 32  # timesteps that one turn of Spyx's loop holds: hk.dynamic_unroll(..., unroll=32) in its documentation
WORKLOAD = "shd-2"
LARGEST = 1 << 20  # of any extent in a row
Seconds = Callable[[GpuMachine, EventDrivenNetwork], float]
SMALL = (*(f"custom_update_batch_softmax_{part}" for part in (1, 2, 3)), "custom_update_zero_out_post")
EACH_TIMESTEP: dict[str, tuple[Seconds, str]] = {
    "neuron_update": (neuron_update_seconds, "neuron update"),
    "presynaptic_update": (synapse_seconds, "synapses"),
}
EACH_BATCH: dict[str, tuple[Seconds, str]] = {
    "custom_update_gradient_learn": (optimiser_seconds, "optimiser"),
    "custom_update_gradient_batch_reduce": (batch_sum_seconds, "gradients summed over the batch"),
    # state of all neurons for the next batch
    "custom_update_reset": (
        lambda gpu, one: _launch(gpu) + one.batch * (one.hidden + one.inputs) * RESET_BYTES / _dram(gpu),
        "small kernels",
    ),
    # spike counts of the samples added up, a thread per neuron, a few loads at a time
    "custom_update_spike_count_reduce": (
        lambda gpu, one: _launch(gpu) + one.batch / LOADS_AHEAD * gpu.memory.dram_latency_cycles / gpu.chip.clock_hz,
        "small kernels",
    ),
} | dict.fromkeys(SMALL, (lambda gpu, _one: _launch(gpu), "small kernels"))  # of a few values per sample
TOLERANCE, SYNAPSES_TOLERANCE = 0.25, 0.35
NOT_MODELLED = {
    "wall": "the host's part (callbacks, spikes that are recorded and copied) is not modelled",
    "memory": "memory is not modelled",
    "synaptic_operations": "a count, from which input spikes were inferred",
    "build_and_load": "compilation is not modelled",
}


def event_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of a measured quantity, predicted in microseconds of a launch or of a batch."""
    published, quantity = row.number("value"), row["quantity"]
    if published < 0:
        raise MimdsimError(f"column 'value': '{shortened(row['value'])}' is not a number from 0")
    name = f"{shortened(row['hidden_recurrent'])} x {shortened(row['timesteps'])} {shortened(row['dataset'])} "
    name += f"{shortened(row.get('augmentation', ''))}, {shortened(row['what'].removesuffix('_train'))} "
    yield row.figure(name + shortened(quantity.removeprefix("custom_update_")), "as given", published, TOLERANCE)
    whole = row["what"] == "spyx_train" and quantity == "wall_training"
    if not whole:
        for word, why in NOT_MODELLED.items():
            if word in quantity:
                raise MimdsimError(why)
        if row["what"] != "genn_eventprop_train":
            known = "known: genn_eventprop_train, spyx_train"
            raise MimdsimError(f"no program '{shortened(row['what'])}' was counted; {known}")
    gpu, network, batches = _read(row)
    if whole:
        seconds, low, high, kind = *_spyx(gpu.name, network), "Spyx, a training step"
    else:
        seconds, low, high, kind = _kernel(quantity, row["dataset"], gpu, network)
    launches = batches * (network.timesteps if quantity in EACH_TIMESTEP else 1)
    yield {
        **within_bounds(1e6 * seconds, 1e6 * low, 1e6 * high),
        "unit": "us",
        "published": 1e6 * published / launches,
        "tolerance": SYNAPSES_TOLERANCE if kind == "synapses" else TOLERANCE,
        "kind": kind,
        "figures": "GPU training step" if whole else "GPU kernel",
        "note": f"on {gpu.title}",
    }


def _kernel(
    quantity: str, dataset: str, gpu: GpuMachine, network: EventDrivenNetwork
) -> tuple[float, float, float, str]:
    """Seconds of a launch, or of all kernels of a batch; their bounds and kind."""
    if dataset != DATASET:
        raise MimdsimError(f"the spikes of dataset '{shortened(dataset)}' are unknown; known: {DATASET}")
    less, more = (
        replace(network, input_spikes=network.input_spikes * share, hidden_spikes=network.hidden_spikes * share)
        for share in OTHER_SPIKES
    )
    known = EACH_TIMESTEP | EACH_BATCH | {"sum_of_kernels": (_all_kernels, "all kernels of a batch")}
    if quantity not in known:
        raise MimdsimError(f"no kernel '{shortened(quantity)}' was counted; known: {', '.join(known)}")
    seconds_of, kind = known[quantity]
    middle, low, high = (seconds_of(gpu, one) for one in (network, less, more))
    return middle, 0.75 * low, high / 0.75, kind


def _all_kernels(gpu: GpuMachine, network: EventDrivenNetwork) -> float:
    looped = sum(seconds_of(gpu, network) for seconds_of, _ in EACH_TIMESTEP.values())
    return network.timesteps * looped + sum(seconds_of(gpu, network) for seconds_of, _ in EACH_BATCH.values())


@lru_cache(maxsize=32)
def _spyx(gpu: str, network: EventDrivenNetwork) -> tuple[float, float, float]:
    """Seconds of a training step: predicted, low, high.

    Predicted: the XLA loop of the GPU model, products in TF32 as JAX takes them, bookkeeping once a turn. Low: one
    graph with neurons fused. High: the host waits for every timestep, products in fp32, and every timestep passes over
    the input of all timesteps once; runs of 1,000 timesteps show such a cost, those of 200 do not.
    """
    machine = described(gpu)
    changes = {
        "data.source": "random",
        "data.inputs": network.inputs,
        "data.classes": network.outputs,
        "data.timesteps": network.timesteps,
        "data.train_samples": network.batch,
        "data.test_samples": 1,
        "network.hidden": [network.hidden],
        "network.recurrence": "all_to_all",
        "training.batch": network.batch,
    }
    graph = training_graph(network_of(load_workload(WORKLOAD, changes)))
    looped = time_on_gpu(graph, machine, strategy="as_published", precision="tf32")
    fused = time_on_gpu(graph, machine, strategy="graph_replay", precision="tf32")
    slowest = time_on_gpu(graph, machine, strategy="as_published_synchronised", precision="fp32")
    bookkeeping = sum(span.seconds for span in looped.spans if span.op in ("slice", "loop"))
    passes = network.timesteps * 4 * network.batch * network.timesteps * network.inputs / _dram(machine)
    return (
        looped.seconds_per_training_step - bookkeeping * (1 - 1 / UNROLLED),
        fused.seconds_low,
        slowest.seconds_per_training_step + passes,
    )


def _read(row: dict[str, str]) -> tuple[GpuMachine, EventDrivenNetwork, int]:
    """Device, network and batches of a row; MimdsimError where they cannot be read."""
    unnamed = row["device"].strip().lower().startswith(UNNAMED)
    gpu = described(UNNAMED_IS) if unnamed else device_of(row["device"])[0]
    names = ("inputs", "hidden_recurrent", "outputs", "timesteps", "batch", "epochs", "batches_per_epoch")
    extents = whole_numbers(row, *names)
    if not all(1 <= extent <= LARGEST for extent in extents):
        raise MimdsimError(f"extents of a network must be 1 to {LARGEST:,}")
    inputs, hidden, outputs, timesteps, batch, epochs, batches = extents
    network = EventDrivenNetwork(
        inputs=inputs,
        hidden=hidden,
        outputs=outputs,
        batch=batch,
        timesteps=timesteps,
        input_spikes=INPUT_SPIKES / timesteps,
        hidden_spikes=HIDDEN_SPIKES * hidden / timesteps,
    )
    return gpu, network, epochs * batches


EVENT_DRIVEN = ReferenceTable(
    needed=COLUMNS,
    also={"source_path"},
    ignored={"augmentation", "dt_ms", "optimiser", "examples", "us_per_timestep_of_a_batch"},
    read_row=event_row,
    on="",
)
