"""What an operation must declare: shapes, meaning, gradient, flops. One record each; see operations.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mimdsim.graph.records import Operation, Value


class Backward(Protocol):
    """Where a gradient rule writes its operations."""

    def saved(self, name: str) -> str:
        """The name under which a forward value can be read in the backward graph."""

    def forward_value(self, name: str) -> Value:
        """Shape and form of a forward value."""

    def one(self, kind: str, inputs: tuple[str, ...], name: str, *, layer: str = "", attributes: Any = None) -> str:
        """Append an operation with one output."""

    def add(
        self, kind: str, inputs: tuple[str, ...], name: str, *, layer: str = "", attributes: Any = None
    ) -> tuple[str, ...]:
        """Append an operation with several outputs."""


Shapes = Callable[[tuple[Value, ...], Any], tuple[tuple[str, Value], ...]]
Evaluate = Callable[..., tuple[Any, ...]]
Vjp = Callable[[Backward, Operation, tuple[str | None, ...]], tuple[str | None, ...]]


@dataclass(frozen=True, kw_only=True)
class OpDef:
    """An operation.

    shapes(inputs, attributes) -> (suffix, value) per output. evaluate(attributes, *inputs) -> outputs, in plain numpy.
    vjp(backward, operation, cotangents of the outputs) -> cotangents of the inputs; None means no gradient.
    flops(inputs, attributes) -> floating-point operations of the dense meaning.
    recomputed: its outputs are computed again where a gradient rule reads them, and never stashed.
    """

    name: str
    shapes: Shapes
    evaluate: Evaluate
    flops: Callable[[tuple[Value, ...], Any], int]
    vjp: Vjp | None = None
    recomputed: bool = False


def like(value: Value, suffix: str = "") -> tuple[tuple[str, Value], ...]:
    """One output with the shape of `value`, kept as an array."""
    return ((suffix, Value(name="", shape=value.shape)),)


def no_flops(_inputs: tuple[Value, ...], _attributes: Any) -> int:
    return 0


def elements(value: Value) -> int:
    """Number of elements of the dense meaning."""
    count = 1
    for extent in value.shape:
        count *= extent
    return count
