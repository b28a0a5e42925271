"""Kernels that follow lists of spikes: the length of the lists, what such a kernel moves, how long it takes.

Two implementations are modelled. As written: one block of 256 threads per sample walks its list, each thread owns
columns of the weights (SparseSpikes, lib/spike_vector_matmul); weight gradients are zeroed, added to by atomics, and
then added whole to the running sum; the gradient of spikes waits for the host. Hoisted: one kernel takes the lists of
all timesteps, gathers rows of weights, or for weight gradients rows of the layer's gradient along lists by neuron;
layers that recur are walked through the timesteps by one block a sample, which waits for no other. It is built and was
timed on an H100: benchmarks/gpu/programs.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.gpu.dependence import MATRIX_PRODUCTS
from mimdsim.graph.records import Operation, Scan
from mimdsim.machine import GpuMachine

BLOCK_THREADS = 256
CYCLES_PER_ENTRY = 80  # a dependent load from the L2 with what hides of it, per entry and 256 columns; estimated
MODEL_SOURCE = {
    "as_written": "read from lib/spike_vector_matmul of jrfinkbeiner/SparseSpikes: memset, atomics, copies and a "
    "stream synchronisation counted; about 80 cycles an entry are an estimate; none of it was timed",
    "hoisted": "kernels of benchmarks/gpu/triton_kernels.py, whose bytes are counted; rates and cycles are those of an "
    "H100 (references/gpu_training_steps.csv), in units of its L2's rate and latency, for all devices",
}
# Measured on an H100 by benchmarks/gpu/measure_steps.py, 2026-11-26, as shares of the L2's read rate
SPIKE_GRADIENT_SHARE = 0.8  # dot products with single rows
MAKING_SHARE = 0.08  # lists by row and by neuron from an array: scans and atomics
# One block that follows its sample's lists through the timesteps: bytes of rows a cycle, and beside them
WALK_BYTES_PER_CYCLE = 16
FORWARD_LOADS, BACKWARD_LOADS = 6, 9  # latencies of the L2 in the chain of a timestep
FORWARD_NEURON_CYCLES, BACKWARD_NEURON_CYCLES = 2.0, 3.5
WORD_BYTES = 4
LIST_PRODUCTS = {"synapse", "synapse_weight_gradient", "synapse_spike_gradient"}
Followed = Literal["as_written", "hoisted"]


def list_lengths(counts: np.ndarray, *, listed: bool) -> tuple[float, float]:
    """Entries of one layer's lists per timestep, of true spikes or of all that is listed: mean over samples and that of
    the longest list, both means over time. counts: int[timesteps, batch, 2]."""
    entries = counts[..., int(listed)]
    return float(entries.mean(axis=(0, 1))), float(entries.max(axis=1).mean())


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What all kernels have: an operation of the graph, or several, that are launched `times` times."""

    name: str
    op: str
    phase: str
    times: int


@dataclass(frozen=True, kw_only=True)
class ListKernel(Launched):
    """`times` rounds of the kernels of one product on lists; amounts are those of one round.

    serial_cycles: of the longest list in its block; l2_bytes: gathered or scattered, at `l2_share` of the L2's rate;
    weight_bytes: streamed completely; launches and host_waits: of a round.
    """

    serial_cycles: float
    l2_bytes: float
    weight_bytes: int
    launches: int
    host_waits: int
    flops: int
    l2_share: float = 1.0


def list_kernel(scan: Operation, inner: Operation, counts: Mapping[str, np.ndarray], followed: Followed) -> ListKernel:
    """The kernels of one product on lists, counted as recorded; raises MappingError when the lists of its layer were
    not recorded."""
    attributes: Scan = scan.attributes
    body = attributes.body
    spikes = inner.inputs[0] if inner.kind == "synapse" else inner.inputs[1]
    source = body.value(spikes).layer
    if source not in counts:
        raise MappingError(
            f"a strategy that follows lists needs the spikes of '{source}'; recorded are {sorted(counts)}: "
            "give the activity of a run"
        )
    batch = body.value(spikes).shape[0]
    columns = body.value(inner.outputs[0] if inner.kind == "synapse" else inner.inputs[0]).shape[1]
    by_listed = inner.kind == "synapse_spike_gradient"
    entries, longest = list_lengths(counts[source], listed=by_listed)
    gradient = inner.kind == "synapse_weight_gradient"
    touched = batch * entries * columns * WORD_BYTES * (2 if gradient else 1)
    weights = body.value(spikes).shape[1] * columns * WORD_BYTES
    flops = round((2 if by_listed else 1) * batch * entries * columns)
    if followed == "hoisted":
        rows = attributes.timesteps * batch
        sources = body.value(spikes).shape[1]
        # what a gather writes, or reads beside the rows of its lists: sums, gradients that rows are multiplied with
        beside = rows * columns if not gradient else sources * columns
        beside += rows * sources if by_listed else 0  # zeroed, because lists fill it here and there
        return ListKernel(
            name=f"{scan.name}.{inner.name}",
            op=inner.kind,
            phase=inner.phase,
            times=1,
            serial_cycles=0.0,
            l2_bytes=(rows * entries * columns + beside) * WORD_BYTES,
            weight_bytes=0,
            launches=1 if inner.kind == "synapse" else 2,
            host_waits=0,
            flops=flops * attributes.timesteps,
            l2_share=SPIKE_GRADIENT_SHARE if by_listed else 1.0,
        )
    launches = {"synapse": 1, "synapse_weight_gradient": 3, "synapse_spike_gradient": 3}[inner.kind]
    return ListKernel(
        name=f"{scan.name}.{inner.name}",
        op=inner.kind,
        phase=inner.phase,
        times=attributes.timesteps,
        serial_cycles=math.ceil(columns / BLOCK_THREADS) * longest * CYCLES_PER_ENTRY,
        l2_bytes=touched,
        weight_bytes=4 * weights if gradient else 0,  # zeroed, read twice and written by the addition
        launches=launches,
        host_waits=int(by_listed),
        flops=flops,
    )


def list_kernel_seconds(
    kernel: ListKernel, gpu: GpuMachine, period_seconds: float, resident: bool
) -> tuple[float, str]:
    """Seconds of one round, and what limits them; weights stream from the L2 when they are `resident` there."""
    memory = gpu.memory
    rate = memory.l2_streaming_bytes_per_second if resident else memory.dram_bytes_per_second * memory.streaming_share
    streaming = kernel.weight_bytes / rate
    gathering = kernel.l2_bytes / (kernel.l2_share * memory.l2_bytes_per_second)
    working = max(kernel.serial_cycles / gpu.chip.clock_hz, gathering)
    launching = kernel.launches * period_seconds
    waiting = kernel.host_waits * gpu.launch.host_synchronisation_seconds
    parts = {"launch": launching, "host": waiting, "memory": streaming + working}
    return sum(parts.values()), max(parts, key=lambda name: parts[name])


def list_making(scan: Operation, name: str, layer: str, phase: str) -> ListKernel:
    """The kernel that turns the states of a layer at all timesteps into its lists."""
    attributes: Scan = scan.attributes
    batch, neurons = attributes.body.value(name).shape
    return ListKernel(
        name=f"{scan.name}.lists_of_{layer}",
        op="lists",
        phase=phase,
        times=1,
        serial_cycles=0.0,
        l2_bytes=attributes.timesteps * batch * neurons * WORD_BYTES,
        weight_bytes=0,
        launches=1,
        host_waits=0,
        flops=0,
        l2_share=MAKING_SHARE,
    )


def list_walk_seconds(
    gpu: GpuMachine, *, neurons: int, batch: int, timesteps: int, entries: float, forward: bool
) -> float:
    """A recurrent layer whose samples are walked by one block each, `entries` rows of its weights a timestep."""
    loads, each = (FORWARD_LOADS, FORWARD_NEURON_CYCLES) if forward else (BACKWARD_LOADS, BACKWARD_NEURON_CYCLES)
    cycles = loads * gpu.memory.l2_latency_cycles + each * neurons
    cycles += entries * neurons * WORD_BYTES / WALK_BYTES_PER_CYCLE
    rounds = math.ceil(batch / gpu.chip.streaming_multiprocessors)
    return rounds * timesteps * cycles / gpu.chip.clock_hz


def check_lists(scan: Operation) -> None:
    """Raises MappingError when a scan has no lists of spikes to follow."""
    attributes: Scan = scan.attributes
    dense = [op.name for op in attributes.body.operations if op.kind in MATRIX_PRODUCTS.keys() - LIST_PRODUCTS]
    if dense:
        raise MappingError(
            f"a strategy that follows lists needs sparse spikes; '{dense[0]}' of scan '{scan.name}' is a dense "
            'product: set network.spikes = "sparse"'
        )
