"""The cycles of a run by operation, layer and phase, however its supersteps are merged: so runs can be compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mimdsim.base.errors import MappingError, suggest
from mimdsim.profile.records import Span, SpanPart, TiledProfile

MERGED = re.compile(r" and \d+ more$")  # ends the name of a superstep that was merged from several
# what programs by one mapping do at once and by another in several operations (the rule "fused_adjoint")
AT_ONCE = {"gradient of currents": ("copy adjoint", "scale gradient", "decay gradient")}
UNSAID = ("and", "at", "in", "of", "the")


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


def under_same_names(*runs: dict[Operation, Cycles]) -> list[dict[Operation, Cycles]]:
    """Cycles of several runs; what one does at once is added up in those that do it in several operations."""
    for whole, several in AT_ONCE.items():
        if any(key.name == whole for cycles in runs for key in cycles):
            runs = tuple(_renamed(cycles, dict.fromkeys(several, whole)) for cycles in runs)
    return list(runs)


def _renamed(cycles: dict[Operation, Cycles], names: dict[str, str]) -> dict[Operation, Cycles]:
    made: dict[Operation, Cycles] = {}
    for key, each in cycles.items():
        key = key._replace(name=names.get(key.name, key.name))
        made[key] = made.get(key, Cycles()).plus(*each)
    return made


def parts_of(span: Span) -> tuple[SpanPart, ...]:
    """The parts of a superstep; itself as one part where it has none."""
    return span.parts or (_whole(span),)


def _whole(span: Span) -> SpanPart:
    return SpanPart(operation=MERGED.sub("", span.name), layer="", compute_cycles=span.compute_cycles)


def find_supersteps(spans: Sequence[Span], text: str) -> list[int]:
    """The numbers of the supersteps that are meant: by name, by number, by an operation ("LIF update"), its layer and
    phase, or words of these, in any case and spelling; raises MappingError, with what comes nearest, for none."""
    names = [span.name for span in spans]
    if text in names:
        return [at for at, name in enumerate(names) if name == text]
    if text.isdecimal() and int(text) < len(names):
        return [int(text)]
    wanted = _words(text)
    told = [_told(span) for span in spans]
    for alike in (lambda wanted, names: wanted in names, _has_all_words):
        found = [at for at, names_of in enumerate(told) if wanted and alike(wanted, names_of)]
        if found:
            return found
    known = [*names, *(part.operation for span in spans for part in span.parts), *(span.phase for span in spans)]
    if text.isdecimal():
        raise MappingError(f"no superstep {text} in the program, which has {len(names)}, counted from 0")
    raise MappingError(f"no superstep '{text}' in the program{suggest(text, list(dict.fromkeys(known)))}")


def longest_superstep(spans: Sequence[Span], text: str) -> int:
    """The number of the longest of the supersteps that are meant; raises MappingError for none."""
    return max(find_supersteps(spans, text), key=lambda at: spans[at].cycles)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[\W_]+", text.casefold()) if word and word not in UNSAID)


def _told(span: Span) -> list[tuple[str, ...]]:
    """What a superstep may be called: its name, its phase, its parts with their layers, and each of these alone."""
    parts = [(part.operation, part.layer) for part in span.parts]
    said = [span.op, span.name, MERGED.sub("", span.name), span.phase]
    return [_words(each) for each in (*said, *(f"{operation} {layer}" for operation, layer in parts), *sum(parts, ()))]


def _has_all_words(wanted: tuple[str, ...], names: list[tuple[str, ...]]) -> bool:
    """Whether each word begins like one of the names: "selection of hidden0", which its gradient is not."""
    gradient = "gradient" in names[0] and "gradient" not in wanted  # the operation comes first
    known = {word for name in names[gradient:] for word in name}
    return all(any(has.startswith(word) or (len(has) > 4 and word.startswith(has)) for has in known) for word in wanted)
