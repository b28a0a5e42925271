"""The kernels a graph is lowered to: matrix products, streaming kernels, waits and kernels that follow lists of spikes;
what they move, not how long they take.

Two implementations of lists are modelled. As written: one block of 256 threads per sample walks its list, each thread
owns columns of the weights (SparseSpikes, lib/spike_vector_matmul); weight gradients are zeroed, added to by atomics,
and then added whole to the running sum; the gradient of spikes waits for the host. Hoisted: one kernel takes the lists
of all timesteps, gathers rows of weights, or for weight gradients rows of the layer's gradient along lists by neuron;
layers that recur are walked through the timesteps by one block a sample, which waits for no other. It is built and was
timed on an H100: benchmarks/gpu/programs.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.gpu.convolution import ConvolutionPass
from mimdsim.gpu.dependence import MATRIX_PRODUCTS
from mimdsim.gpu.elementwise import RecurrentLayer
from mimdsim.graph.records import Graph, Operation, Scan, Value, elements

BLOCK_THREADS = 256
CYCLES_PER_ENTRY = 80  # a dependent load from the L2 with what hides of it, per entry and 256 columns; estimated
LISTS_SOURCE = {
    "as_written": "read from lib/spike_vector_matmul of jrfinkbeiner/SparseSpikes: memset, atomics, copies and a "
    "stream synchronisation counted; about 80 cycles an entry are an estimate; none of it was timed",
    "hoisted": "kernels of benchmarks/gpu/triton_kernels.py, whose bytes are counted; rates and cycles are those of an "
    "H100 (references/gpu_training_steps.csv), in units of its L2's rate and latency, for all devices",
}
# Measured on an H100 by benchmarks/gpu/measure_steps.py, 2026-11-26, as shares of the L2's read rate
SPIKE_GRADIENT_SHARE = 0.8  # dot products with single rows
MAKING_SHARE = 0.08  # lists by row and by neuron from an array: scans and atomics
WORD_BYTES = 4
LIST_PRODUCTS = {"synapse", "synapse_weight_gradient", "synapse_spike_gradient"}
ListMode = Literal["as_written", "hoisted"]


@dataclass(frozen=True, kw_only=True)
class GpuKernel:
    """What all kernels have: an operation of the graph, or several, that are launched `times` times."""

    name: str
    op: str
    phase: str
    times: int


@dataclass(frozen=True, kw_only=True)
class Product(GpuKernel):
    """`times` launches of `batch` products C[m, n] = A[m, k] B[k, n].

    accumulate: added to what C held. repeated: the same weights come back every timestep. aligned: rows start where
    tensor units read them fastest, which a program that pads its widths sees to. convolution: of what it is a pass,
    where A is gathered from planes while the product runs (implicit GEMM).
    """

    m: int
    n: int
    k: int
    batch: int = 1
    accumulate: bool = False
    repeated: bool = False
    aligned: bool = True
    convolution: ConvolutionPass | None = None


@dataclass(frozen=True, kw_only=True)
class Stream(GpuKernel):
    """`times` launches of an elementwise or fused kernel; bytes and flops are those of one launch.

    walks_timesteps: one launch covers all timesteps and keeps what it carries in registers.
    """

    bytes_moved: int
    flops: int = 0
    walks_timesteps: bool = False


@dataclass(frozen=True, kw_only=True)
class HostWait(GpuKernel):
    """`times` waits of the host for the device, between two launches."""

    op: str = "host_wait"


@dataclass(frozen=True, kw_only=True)
class Recurrent(GpuKernel, RecurrentLayer):
    """One persistent kernel that runs through the timesteps of a recurrent layer: its product, and the work in between.

    bytes_moved: of all timesteps, without the weights, which stay on the chip. times is 1. entries: of the list of
    weights' rows that a sample follows at a timestep; None where the product is dense. gates: sums for each neuron, the
    most of several layers.
    """

    bytes_moved: int
    flops: int
    entries: float | None = None


@dataclass(frozen=True, kw_only=True)
class ListKernel(GpuKernel):
    """`times` rounds of the kernels of one product on lists; amounts are those of one round.

    serial_cycles: of the longest list in its block; l2_bytes: gathered or scattered, at `l2_share` of the L2's rate;
    weight_bytes: streamed completely; launches and host_waits: of a round.
    """

    l2_bytes: float
    serial_cycles: float = 0.0
    weight_bytes: int = 0
    launches: int = 1
    host_waits: int = 0
    flops: int = 0
    l2_share: float = 1.0


Kernel = Recurrent | Product | Stream | HostWait | ListKernel


@dataclass(frozen=True, kw_only=True)
class KernelProgram:
    """A training graph as kernels, in order.

    working_set_bytes: weights and summed gradients, which every timestep of a loop touches. bytes_needed: everything
    the device holds, no buffer reused. input_bytes: one batch as the host sends it.
    """

    kernels: tuple[Kernel, ...]
    working_set_bytes: int
    bytes_needed: int
    input_bytes: int

    @property
    def convolves(self) -> bool:
        return self.most_groups > 0

    @property
    def most_groups(self) -> int:
        """Of a convolution; 0: there is none."""
        products = (kernel.convolution for kernel in self.kernels if isinstance(kernel, Product))
        return max((each.groups for each in products if each is not None), default=0)


# 'as_graph': in the form the graph's input has, which is also how the tiled machine gets it; 'bits': one bit per neuron
# and timestep
InputEncoding = Literal["as_graph", "events", "bits", "dense"]
NUMBER_BYTES = 4  # int32 ids, counts and labels; float32 dense input


def streamed_inputs(graph: Graph) -> tuple[str, ...]:
    """The inputs that change with every batch: those that no update and no scan keeps as weights."""
    kept = {name for op in graph.operations if op.phase == "update" for name in op.inputs}
    for op in graph.operations:
        if op.kind == "scan":
            kept |= set(op.inputs[len(op.inputs) - len(op.attributes.constants) :])
    return tuple(name for name in graph.inputs if name not in kept)


def _sent(name: str, value: Value, encoding: InputEncoding) -> tuple[str, int]:
    """('events', 'bits' or 'dense', bytes): what the host sends for one input; one without timesteps has no spikes."""
    spikes = len(value.shape) == 3
    if encoding == "events" and spikes and value.form != "sparse":
        raise MappingError(
            f"input '{name}' {list(value.shape)} of the graph is dense and has no list of ids to send as events; "
            f"use input_encoding 'bits' or 'dense', or a network with spikes = \"sparse\""
        )
    rows = math.prod(value.shape[:-1])  # of every timestep and sample
    if encoding == "bits" and spikes:
        return "bits", rows * -(-value.shape[-1] // 8)
    if value.form == "sparse" and encoding not in ("bits", "dense"):
        # ids and one count: a network input has no gradient entries to count
        return "events", rows * (value.capacity + 1) * NUMBER_BYTES
    return "dense", elements(value) * NUMBER_BYTES


def transfer_bytes(graph: Graph, encoding: InputEncoding) -> int:
    """Bytes the host sends for one batch; raises MappingError for 'events' of a dense input."""
    return sum(_sent(name, graph.value(name), encoding)[1] for name in streamed_inputs(graph))


def expansion_kernels(graph: Graph, element_bytes: int, encoding: InputEncoding) -> Iterator[Stream]:
    """One kernel per input sent as events or bits: reads them, writes the dense array, `element_bytes` an element."""
    for name in streamed_inputs(graph):
        value = graph.value(name)
        form, sent = _sent(name, value, encoding)
        if form != "dense":
            moved = sent + elements(value) * element_bytes
            yield Stream(name=f"{name}.unfold", op=f"unfold_{form}", phase="input", times=1, bytes_moved=moved)


def list_lengths(counts: np.ndarray, *, listed: bool) -> tuple[float, float]:
    """Entries of one layer's lists per timestep, of true spikes or of all that is listed: mean over samples and that of
    the longest list, both means over time. counts: int[timesteps, batch, 2]."""
    entries = counts[..., int(listed)]
    return float(entries.mean(axis=(0, 1))), float(entries.max(axis=1).mean())


def list_kernel(scan: Operation, inner: Operation, counts: Mapping[str, np.ndarray], followed: ListMode) -> ListKernel:
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
    named: dict[str, Any] = {"name": f"{scan.name}.{inner.name}", "op": inner.kind, "phase": inner.phase}
    if followed == "hoisted":
        rows = attributes.timesteps * batch
        sources = body.value(spikes).shape[1]
        # what a gather writes, or reads beside the rows of its lists: sums, gradients that rows are multiplied with
        beside = rows * columns if not gradient else sources * columns
        beside += rows * sources if by_listed else 0  # zeroed, because lists fill it here and there
        return ListKernel(
            **named,
            times=1,
            l2_bytes=(rows * entries * columns + beside) * WORD_BYTES,
            launches=1 if inner.kind == "synapse" else 2,
            flops=flops * attributes.timesteps,
            l2_share=SPIKE_GRADIENT_SHARE if by_listed else 1.0,
        )
    return ListKernel(
        **named,
        times=attributes.timesteps,
        serial_cycles=math.ceil(columns / BLOCK_THREADS) * longest * CYCLES_PER_ENTRY,
        l2_bytes=touched,
        weight_bytes=4 * weights if gradient else 0,  # zeroed, read twice and written by the addition
        launches=1 if inner.kind == "synapse" else 3,
        host_waits=int(by_listed),
        flops=flops,
    )


def list_making(scan: Operation, name: str, layer: str, phase: str) -> ListKernel:
    """The kernel that turns the states of a layer at all timesteps into its lists."""
    attributes: Scan = scan.attributes
    batch, neurons = attributes.body.value(name).shape
    return ListKernel(
        name=f"{scan.name}.lists_of_{layer}",
        op="lists",
        phase=phase,
        times=1,
        l2_bytes=attributes.timesteps * batch * neurons * WORD_BYTES,
        l2_share=MAKING_SHARE,
    )


def has_lists(graph: Graph) -> bool:
    """Whether some product of a scan follows lists of spikes."""
    scans = (op.attributes for op in graph.operations if op.kind == "scan")
    return any(inner.kind in LIST_PRODUCTS for scan in scans for inner in scan.body.operations)


def check_lists(scan: Operation) -> None:
    """Raises MappingError when a scan has no lists of spikes to follow."""
    attributes: Scan = scan.attributes
    dense = [op.name for op in attributes.body.operations if op.kind in MATRIX_PRODUCTS.keys() - LIST_PRODUCTS]
    if dense:
        raise MappingError(
            f"a strategy that follows lists needs sparse spikes; '{dense[0]}' of scan '{scan.name}' is a dense "
            'product; only networks with network.spikes = "sparse" have lists'
        )
