"""The kernels a graph is lowered to: matrix products, streaming kernels and waits; what they move, not how long they
take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mimdsim.base.errors import MappingError
from mimdsim.gpu.sparse_kernels import Launched, ListKernel
from mimdsim.graph.records import Graph, Value, elements


@dataclass(frozen=True, kw_only=True)
class Product(Launched):
    """`times` launches of `batch` products C[m, n] = A[m, k] B[k, n].

    accumulate: added to what C held. repeated: the same weights come back every timestep. aligned: rows start where
    tensor units read them fastest, which a program that pads its widths sees to.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    accumulate: bool = False
    repeated: bool = False
    aligned: bool = True


@dataclass(frozen=True, kw_only=True)
class Stream(Launched):
    """`times` launches of an elementwise or fused kernel; bytes and flops are those of one launch.

    walks_timesteps: one launch covers all timesteps and keeps what it carries in registers.
    """

    bytes_moved: int
    flops: int = 0
    walks_timesteps: bool = False


@dataclass(frozen=True, kw_only=True)
class HostWait(Launched):
    """`times` waits of the host for the device, between two launches."""

    op: str = "host_wait"


@dataclass(frozen=True, kw_only=True)
class Recurrent(Launched):
    """One persistent kernel that runs through the timesteps of a recurrent layer: its product, and the work in between.

    bytes_moved: of all timesteps, without the weights, which stay on the chip. times is 1. entries: of the list of
    weights' rows that a sample follows at a timestep; None where the product is dense.
    """

    neurons: int
    batch: int
    timesteps: int
    bytes_moved: int
    flops: int
    entries: float | None = None


Kernel = Recurrent | Product | Stream | HostWait | ListKernel


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A training graph as kernels, in order.

    working_set_bytes: weights and summed gradients, which every timestep of a loop touches. bytes_needed: everything
    the device holds, no buffer reused. input_bytes: one batch as the host sends it.
    """

    kernels: tuple[Kernel, ...]
    working_set_bytes: int
    bytes_needed: int
    input_bytes: int


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


def _sent_as(name: str, value: Value, encoding: InputEncoding) -> str:
    """'events', 'bits' or 'dense': what the host sends for one input; an input without timesteps has no spikes."""
    spikes = len(value.shape) == 3
    if encoding == "events" and spikes and value.form != "sparse":
        raise MappingError(
            f"input '{name}' {list(value.shape)} of the graph is dense and has no list of ids to send as events; "
            f"use input_encoding 'bits' or 'dense', or a network with spikes = \"sparse\""
        )
    if encoding == "bits":
        return "bits" if spikes else "dense"
    return "events" if value.form == "sparse" and encoding != "dense" else "dense"


def _sent_bytes(name: str, value: Value, encoding: InputEncoding) -> int:
    rows = elements(value) // value.shape[-1]  # of every timestep and sample
    return {
        # ids and one count: a network input has no gradient entries to count
        "events": rows * (value.capacity + 1) * NUMBER_BYTES,
        "bits": rows * -(-value.shape[-1] // 8),
        "dense": elements(value) * NUMBER_BYTES,
    }[_sent_as(name, value, encoding)]


def transfer_bytes(graph: Graph, encoding: InputEncoding) -> int:
    """Bytes the host sends for one batch; raises MappingError for 'events' of a dense input."""
    return sum(_sent_bytes(name, graph.value(name), encoding) for name in streamed_inputs(graph))


def expansion_kernels(graph: Graph, element_bytes: int, encoding: InputEncoding) -> Iterator[Stream]:
    """One kernel per input sent as events or bits: reads them, writes the dense array, `element_bytes` an element."""
    for name in streamed_inputs(graph):
        value = graph.value(name)
        form = _sent_as(name, value, encoding)
        if form != "dense":
            moved = _sent_bytes(name, value, encoding) + elements(value) * element_bytes
            yield Stream(name=f"{name}.unfold", op=f"unfold_{form}", phase="input", times=1, bytes_moved=moved)
