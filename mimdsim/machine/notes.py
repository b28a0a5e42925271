"""Notes on the description of a machine: sources of its base that name numbers which it gives otherwise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Self

from pydantic import PrivateAttr

from mimdsim.base.schema import Section, SourcedSection
from mimdsim.base.units import dimension, show_quantity

FEWEST = 100  # smaller counts are found in texts that speak of something else


class NotedMachine(Section):
    """A machine with notes on its description, which its digests leave out."""

    _notes: tuple[str, ...] = PrivateAttr(default=())

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes

    def with_notes(self, notes: Sequence[str]) -> Self:
        """This machine with other notes."""
        made = self.model_copy()
        made._notes = tuple(notes)
        return made


def outdated_sources(base: Section, machine: Section, given: Collection[str]) -> tuple[str, ...]:
    """A sentence on sources of `base` that name a number which `machine` gives otherwise; given: its dotted keys."""
    found = []
    for dotted in sorted(given):
        before, after = _value(base, dotted), _value(machine, dotted)
        if before in (None, after) or isinstance(before, (bool, dict)):
            continue
        key = dotted.rpartition(".")[2]
        named = re.compile("|".join(rf"(?<![\w.,]){re.escape(text)}(?!\w|[.,]\d)" for text in _texts(before, dotted)))
        doubtful = [name for name, source in _sources(machine) if name not in given and named.search(source)]
        if doubtful:
            was, now = (number_text(value, key) for value in (before, after))
            found.append(f"{', '.join(doubtful)} (of {dotted} {was}, here {now})")
    if not found:
        return ()
    return (
        f"numbers of the base whose sources name what differs here: {'; '.join(found)}: give them too if it matters",
    )


def number_text(value: Any, key: str) -> str:
    """What a field holds, for people: '1.85 GHz', '1,472', 'torus'."""
    if isinstance(value, tuple):
        return " to ".join(number_text(each, key) for each in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return show_quantity(value, key) if dimension(key) else f"{value:,}".removesuffix(".0")


def _value(machine: Section, dotted: str) -> Any:
    section, _, key = dotted.partition(".")
    return getattr(getattr(machine, section, None), key, None)


def _texts(value: Any, dotted: str) -> Iterator[str]:
    """How sources write a number: its key, and the number where that is no common one."""
    yield dotted
    if isinstance(value, int | float) and value >= FEWEST:
        yield from (number_text(value, dotted),) if dimension(dotted) else (f"{value:,}", f"{value}")


def _sources(machine: Section) -> Iterator[tuple[str, str]]:
    for section in type(machine).model_fields:
        values = getattr(machine, section)
        for key, source in values.sources.items() if isinstance(values, SourcedSection) else ():
            yield f"{section}.{key}", source
