"""The cycles of a run by operation, layer and phase, however its supersteps are merged: so runs can be compared."""

from __future__ import annotations

import re
from typing import NamedTuple

from mimdsim.profile.records import Span, SpanPart, TiledProfile

MERGED = re.compile(r" and \d+ more$")  # ends the name of a superstep that was merged from several


class Operation(NamedTuple):
    """An operation of the program on a layer ('' for several layers, or none), in a phase."""

    name: str
    layer: str
    phase: str


class Cycles(NamedTuple):
    """Of an operation, over all its executions."""

    compute: int = 0
    exchange: int = 0
    sync: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    def plus(self, *others: int) -> Cycles:
        return Cycles(*(one + other for one, other in zip(self, others, strict=True)))


def has_parts(tiled: TiledProfile) -> bool:
    """Whether the profile says what its supersteps consist of; older ones do not."""
    return any(span.parts for span in tiled.spans)


def cycles_by_operation(tiled: TiledProfile, *, by_part: bool = True) -> dict[Operation, Cycles]:
    """Cycles that sum to those of the run. A merged superstep counts with each of its parts, its exchange and sync with
    the one that computes most; by_part: unless supersteps are to count as a whole, by their names."""
    found: dict[Operation, Cycles] = {}
    for span in tiled.spans:
        parts = parts_of(span) if by_part else (_whole(span),)
        heaviest = max(parts, key=lambda part: part.compute_cycles)
        for part in parts:
            key = Operation(part.operation, part.layer, span.phase)
            waits = (span.exchange_cycles, span.sync_cycles) if part is heaviest else (0, 0)
            found[key] = found.get(key, Cycles()).plus(part.compute_cycles, *waits)
    return found


def parts_of(span: Span) -> tuple[SpanPart, ...]:
    """The parts of a superstep; itself as one part where it has none."""
    return span.parts or (_whole(span),)


def _whole(span: Span) -> SpanPart:
    return SpanPart(operation=MERGED.sub("", span.name), layer="", compute_cycles=span.compute_cycles)
