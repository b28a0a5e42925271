"""How one batch reaches the GPU: what the host sends, and the kernel that unfolds ids or bits into a dense array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from mimdsim.base.errors import MappingError
from mimdsim.gpu.kernels import Stream
from mimdsim.graph.definition import elements
from mimdsim.graph.records import Graph, Value

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


def _events_bytes(value: Value) -> int:
    """`capacity` ids and one count for each timestep and sample: a network input has no gradient entries to count."""
    lists = elements(value) // value.shape[-1]
    return lists * (value.capacity + 1) * NUMBER_BYTES


def _bits_bytes(value: Value) -> int:
    """One bit per neuron, whole bytes for each timestep and sample."""
    return elements(value) // value.shape[-1] * -(-value.shape[-1] // 8)


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
    form = _sent_as(name, value, encoding)
    if form == "events":
        return _events_bytes(value)
    return _bits_bytes(value) if form == "bits" else elements(value) * NUMBER_BYTES


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
