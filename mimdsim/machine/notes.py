"""Notes on the description of a machine: sources of its base that name numbers which it gives otherwise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, Self

from pydantic import PrivateAttr

from mimdsim.base.schema import Section, SourcedSection
from mimdsim.base.units import dimension, show_quantity

FEWEST = 100  # smaller counts are found in texts that speak of something else


class Outdated(NamedTuple):
    """`number` has a source of a base that names another one, which is no longer what it was there."""

    number: str
    names: str
    before: str


class NotedMachine(Section):
    """A machine that knows which of its sources are of a base and name other numbers; digests leave this out."""

    _outdated: tuple[Outdated, ...] = PrivateAttr(default=())

    @property
    def outdated(self) -> tuple[Outdated, ...]:
        return self._outdated

    def with_outdated(self, found: Sequence[Outdated]) -> Self:
        """This machine with others of such sources."""
        made = self.model_copy()
        made._outdated = tuple(found)
        return made

    def outdated_texts(self) -> Iterator[str]:
        """A sentence on all of them, if there are any."""
        numbers: dict[str, list[str]] = {}
        for each in self._outdated:
            now = number_text(_value(self, each.names), each.names)
            if now != each.before:
                numbers.setdefault(f"{each.names} {each.before}, here {now}", []).append(each.number)
        if numbers:
            said = "; ".join(f"{', '.join(names)} (of {what})" for what, names in numbers.items())
            yield f"numbers of the base whose sources name what differs here: {said}: give them too if it matters"


def outdated_sources(base: NotedMachine, machine: NotedMachine, given: Collection[str]) -> tuple[Outdated, ...]:
    """Of a machine that is `base` but for `given` dotted keys."""
    found = dict.fromkeys(each for each in base.outdated if each.number not in given)
    for dotted in sorted(given):
        before = _value(base, dotted)
        if before in (None, _value(machine, dotted)) or isinstance(before, (bool, dict)):
            continue
        named = re.compile("|".join(rf"(?<![\w.,]){re.escape(text)}(?!\w|[.,]\d)" for text in _texts(before, dotted)))
        doubtful = [name for name, source in _sources(machine) if name not in given and named.search(source)]
        found |= dict.fromkeys(Outdated(name, dotted, number_text(before, dotted)) for name in doubtful)
    return tuple(found)


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
