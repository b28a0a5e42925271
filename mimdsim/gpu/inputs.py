"""How one batch reaches the GPU: what the host sends, and the kernel that unfolds spike ids into a dense array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from mimdsim.base.errors import MappingError
from mimdsim.gpu.kernels import Stream
from mimdsim.graph.definition import elements
from mimdsim.graph.records import Graph, Value

# 'as_graph': in the form the graph's input has, which is also how the tiled machine gets it
InputEncoding = Literal["as_graph", "events", "dense"]
NUMBER_BYTES = 4  # int32 ids, counts and labels; float32 dense input


def streamed_inputs(graph: Graph) -> tuple[str, ...]:
    """The inputs that come anew with every batch: those no update and no scan keeps as weights."""
    kept = {name for op in graph.operations if op.phase == "update" for name in op.inputs}
    for op in graph.operations:
        if op.kind == "scan":
            kept |= set(op.inputs[len(op.inputs) - len(op.attributes.constants) :])
    return tuple(name for name in graph.inputs if name not in kept)


def _events_bytes(value: Value) -> int:
    """`capacity` ids and one count for each timestep and sample: a network input has no gradient entries to count."""
    lists = elements(value) // value.shape[-1]
    return lists * (value.capacity + 1) * NUMBER_BYTES


def _sent_as_events(name: str, value: Value, encoding: InputEncoding) -> bool:
    if encoding == "events" and len(value.shape) > 1 and value.form != "sparse":
        raise MappingError(
            f"input '{name}' {list(value.shape)} of the graph is dense and has no list of ids to send as events; "
            f"use input_encoding 'dense' or a network with spikes = \"sparse\""
        )
    return value.form == "sparse" and encoding != "dense"


def transfer_bytes(graph: Graph, encoding: InputEncoding) -> int:
    """Bytes the host sends for one batch; raises MappingError for 'events' of a dense input."""
    sent = 0
    for name in streamed_inputs(graph):
        value = graph.value(name)
        events = _sent_as_events(name, value, encoding)
        sent += _events_bytes(value) if events else elements(value) * NUMBER_BYTES
    return sent


def expansion_kernels(graph: Graph, element_bytes: int, encoding: InputEncoding) -> Iterator[Stream]:
    """One kernel per input sent as events: reads the ids, writes the dense array of `element_bytes` an element."""
    for name in streamed_inputs(graph):
        value = graph.value(name)
        if _sent_as_events(name, value, encoding):
            moved = _events_bytes(value) + elements(value) * element_bytes
            yield Stream(name=f"{name}.unfold", op="unfold_events", phase="input", times=1, bytes_moved=moved)
