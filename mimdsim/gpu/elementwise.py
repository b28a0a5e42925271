"""How long an elementwise or fused kernel takes on a GPU: one launch period plus its bytes at the streaming rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from mimdsim.base.errors import MappingError
from mimdsim.base.units import show_bytes
from mimdsim.gpu.gemm import KernelTime, gemm_seconds
from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision

Launching = Literal["stream", "graph", "grid"]
L2_FOOTPRINT_SHARE = 0.6  # kernels whose data fill at most this share of the L2 stream from it

MODEL_SOURCE = (
    "launch period plus bytes at the streaming rate: fit of 'repeated small kernel' of RRZE-HPC/gpu-benches "
    "(largest error 6 to 14 %), DRAM share of NeuSight's torch.add"
)


def launch_seconds(gpu: GpuMachine, launching: Launching) -> float:
    """Shortest period of back-to-back kernels: from a stream, replayed as a graph, or as one whose blocks wait."""
    if launching == "grid":
        return gpu.launch.grid_period_seconds
    return gpu.launch.graph_period_seconds if launching == "graph" else gpu.launch.stream_period_seconds


def elementwise_seconds(
    gpu: GpuMachine,
    bytes_moved: int,
    *,
    launching: Launching,
    footprint_bytes: int | None = None,
    fixed_seconds: float = 0.0,
) -> KernelTime:
    """A kernel that reads and writes `bytes_moved` bytes in all, spread over `footprint_bytes` (default: the same), its
    launch period included.

    The bytes are added to the launch period, or to `fixed_seconds` if that is longer (start and end of a kernel
    that walks the timesteps itself). Raises ValueError when a number of bytes is negative.
    """
    footprint = bytes_moved if footprint_bytes is None else footprint_bytes
    if bytes_moved < 0 or footprint < 0:
        raise ValueError(f"streaming kernel of {bytes_moved} bytes over {footprint}: must not be negative")
    if footprint < L2_FOOTPRINT_SHARE * gpu.memory.l2_bytes:
        rate = gpu.memory.l2_streaming_bytes_per_second
    else:
        rate = gpu.memory.dram_bytes_per_second * gpu.memory.streaming_share
    period, streaming = max(launch_seconds(gpu, launching), fixed_seconds), bytes_moved / rate
    return KernelTime(
        seconds=period + streaming, bound="memory" if streaming > period else "launch", bytes_moved=bytes_moved
    )


def reduction_seconds(gpu: GpuMachine, elements: int, results: int, *, element_bytes: int = 4) -> KernelTime:
    """Sum `elements` numbers to `results`: one kernel from a stream if every result has its own block, else two.

    With fewer results than multiprocessors the elements are cut, and a second kernel adds the parts. Raises
    ValueError when there are fewer elements than results, or no result.
    """
    if not 1 <= results <= elements:
        raise ValueError(f"reduction of {elements} elements to {results}: needs 1 <= results <= elements")
    blocks = gpu.chip.streaming_multiprocessors
    parts = max(1, min(blocks // results, elements // results))
    first = elementwise_seconds(gpu, (elements + results * parts) * element_bytes, launching="stream")
    if parts == 1:
        return first
    second = elementwise_seconds(gpu, results * (parts + 1) * element_bytes, launching="stream")
    both = first.bytes_moved + second.bytes_moved
    return replace(first, seconds=first.seconds + second.seconds, bytes_moved=both)


Direction = Literal["forward", "backward_inputs", "backward_weights"]
REGISTERS_FOR_WEIGHTS = 0.5  # of the register file; the rest works; assumed
# assumed, chosen with the two persistent kernels of FlashRNN's figure (H100) in view
PARTIAL_SUMS = 8  # parts of a reduction that blocks of a doubly tiled kernel exchange
EXCHANGE_L2_SHARE = 0.9  # of the L2's read rate, for state read by all blocks at once
PERSISTENT_PEAK_SHARE = 0.5  # of the peak that so small products reach; assumed
CALL_SECONDS = 5e-6  # a library call from C++, product or kernel; published: 4 to 6 us, susun-blog pegainfer-3


@dataclass(frozen=True, kw_only=True)
class PersistentKernel:
    """waits: grid-wide waits of a timestep. loads: dependent accesses to the L2 in its chain, dram_loads to DRAM.

    Two waits: the reduction is also split over blocks, whose partial sums are exchanged in fp32.
    """

    waits: int
    loads: int
    dram_loads: int
    source: str


CUDNN_PERSISTENT = PersistentKernel(
    waits=1, loads=2, dram_loads=0, source="assumed: state written, all wait, state read; inputs are prefetched"
)
TILED_PERSISTENT = PersistentKernel(
    waits=2, loads=4, dram_loads=1,
    source="derived: counted from FlashRNN's fused kernel: state and partial sums are written and read, each around a "
    "wait for the whole grid; the input of the timestep comes from DRAM",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecurrentLayer:
    """`gates` times `neurons` sums of `neurons` states, over timesteps and samples (LSTM: 4 gates)."""

    neurons: int
    gates: int
    batch: int
    timesteps: int

    @property
    def weights(self) -> int:
        return self.gates * self.neurons**2


def on_chip_bytes(gpu: GpuMachine) -> int:
    """What a persistent kernel can keep on `gpu`: shared memory, and half of the registers."""
    each = (gpu.chip.shared_memory_bytes or 0) + REGISTERS_FOR_WEIGHTS * (gpu.chip.register_bytes or 0)
    return int(gpu.chip.streaming_multiprocessors * each)


def persistent_seconds(
    gpu: GpuMachine, layer: RecurrentLayer, kernel: PersistentKernel, *, precision: Precision, direction: Direction
) -> float:
    """All timesteps of one direction. Raises MappingError when the weights do not fit on the chip."""
    width = ELEMENT_BYTES[precision]
    if direction == "backward_weights":
        # one product whose reduction runs over all timesteps and samples, added to the gradient, and that of the bias
        rows, wide = layer.timesteps * layer.batch, layer.gates * layer.neurons
        product = gemm_seconds(gpu, wide, layer.neurons, rows, precision=precision, accumulate=True)
        bias = reduction_seconds(gpu, rows * wide, wide, element_bytes=ELEMENT_BYTES[precision])
        return product.seconds + bias.seconds
    needed, most = layer.weights * width, on_chip_bytes(gpu)
    if needed > most:
        raise MappingError(
            f"persistent kernel: {layer.weights} recurrent weights take {show_bytes(needed, most)} and {gpu.name} "
            f"keeps at most {show_bytes(most, needed)} on the chip; use the strategy 'graph_replay'"
        )
    blocks, clock = gpu.chip.streaming_multiprocessors, gpu.chip.clock_hz
    read = layer.neurons * (1 if direction == "forward" else layer.gates)
    exchanged = blocks * layer.batch * read * width
    if kernel.waits > 1:
        exchanged += 2 * PARTIAL_SUMS * layer.batch * layer.gates * layer.neurons * 4
    arithmetic = 2 * layer.batch * layer.weights / (PERSISTENT_PEAK_SHARE * gpu.peak_flops_per_second(precision))
    feed = layer.weights * width / (blocks * 128 * clock)  # 128 bytes a cycle from the shared memory
    chain = kernel.waits * gpu.launch.grid_period_seconds
    chain += (kernel.loads * gpu.memory.l2_latency_cycles + kernel.dram_loads * gpu.memory.dram_latency_cycles) / clock
    work = max(arithmetic, feed, exchanged / (EXCHANGE_L2_SHARE * gpu.memory.l2_bytes_per_second))
    return layer.timesteps * (chain + work)


@dataclass(frozen=True, kw_only=True)
class LibraryLoop:
    """A library that launches a product and pointwise work per timestep, and what it does for the weights.

    forward_calls, backward_calls: launches of a timestep. hand_over_seconds: how long a product waits for an event of
    another of the library's streams; once each, and twice in layers of more than `wide_neurons` neurons, but not in the
    backward pass of a timestep. weight_products: the gradient is added to by so many products, the first over the
    initial state alone. biases: vectors of them, each a reduction of its own.
    """

    forward_calls: int
    backward_calls: int
    hand_over_seconds: float
    wide_neurons: float
    weight_products: int
    biases: int
    source: str

    def waits_seconds(self, neurons: int, direction: Direction) -> float:
        """What one product of `direction` waits for other streams."""
        twice = neurons > self.wide_neurons and direction != "backward_inputs"
        return self.hand_over_seconds * (2 if twice else 1)


ALTERNATING = LibraryLoop(
    forward_calls=2, backward_calls=3, hand_over_seconds=0.0, wide_neurons=math.inf, weight_products=1, biases=1,
    source="derived: a product and a pointwise kernel a timestep, one more backwards (FlashRNN alternating, Haste)",
)  # fmt: skip
CUDNN_LOOP = LibraryLoop(
    forward_calls=2, backward_calls=2, hand_over_seconds=22e-6, wide_neurons=512, weight_products=2, biases=2,
    source="derived: seconds calibrated on the backward passes wrt inputs of gpu_snn_measurements.csv (cuDNN 7.6, V100)"
    "; that wide layers wait twice was read off the forward passes of its LSTMs, cause unknown; products and biases of "
    "the weight gradient from cuDNN's documentation: initial state and outputs are two arrays, gradients are added to",
)  # fmt: skip


def library_loop_seconds(
    gpu: GpuMachine,
    layer: RecurrentLayer,
    loop: LibraryLoop,
    *,
    precision: Precision,
    direction: Direction,
    power_limited: bool = True,
) -> float:
    """All timesteps of one direction; weight gradients are summed over all of them."""
    if direction == "backward_weights":
        return _added_weight_gradient_seconds(gpu, layer, loop, precision, power_limited)
    forward = direction == "forward"
    wide, deep = layer.gates * layer.neurons, layer.neurons
    resident = 2 * layer.weights * ELEMENT_BYTES[precision] < gpu.memory.l2_bytes
    product = gemm_seconds(
        gpu,
        layer.batch,
        wide if forward else deep,
        deep if forward else wide,
        precision=precision,
        l2_resident=resident,
        power_limited=power_limited,
    ).seconds
    values = layer.batch * layer.neurons * (layer.gates + 3)
    pointwise = elementwise_seconds(gpu, values * ELEMENT_BYTES[precision], launching="stream").seconds
    device = max(product, launch_seconds(gpu, "stream")) + pointwise + loop.waits_seconds(layer.neurons, direction)
    host = CALL_SECONDS * (loop.forward_calls if forward else loop.backward_calls)
    return layer.timesteps * max(device, host)


def _added_weight_gradient_seconds(
    gpu: GpuMachine, layer: RecurrentLayer, loop: LibraryLoop, precision: Precision, power_limited: bool
) -> float:
    """Products that are added to the gradient. Tiles of a wave read and write it at the same time, when their sums are
    done, so that arithmetic does not hide it."""
    wide, deep, width = layer.gates * layer.neurons, layer.neurons, ELEMENT_BYTES[precision]
    rows = layer.timesteps * layer.batch
    parts = (rows,) if loop.weight_products == 1 else (layer.batch, rows - layer.batch)
    result_written = layer.weights * width / (gpu.memory.dram_bytes_per_second * gpu.memory.streaming_share)
    seconds = 0.0
    for part in parts:
        if part:
            product = gemm_seconds(gpu, wide, deep, part, precision=precision, power_limited=power_limited)
            hidden = result_written if product.bound == "memory" else 0.0  # which the product has counted
            seconds += product.seconds - hidden + 2 * result_written
            seconds += loop.waits_seconds(layer.neurons, "backward_weights")
    # one value a load, so that half precision is no faster
    bias = reduction_seconds(gpu, rows * wide, wide)
    return seconds + loop.biases * bias.seconds
