"""All that a description says of a machine: every value with its unit, its source and the sums that it enters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from mimdsim.base.schema import Section, SourcedSection, toml_value
from mimdsim.base.units import dimension
from mimdsim.machine.gpu import GpuMachine
from mimdsim.machine.mimd import MimdMachine
from mimdsim.machine.notes import number_text
from mimdsim.machine.unread import keys_without_effect, machine_notes

WIDTH, KEY, VALUE = 100, 35, 21  # columns of the console; of them for keys, for values
DEFAULT = "by default"  # source of what a description does not give


@dataclass(frozen=True, kw_only=True)
class DescribedValue:
    """A value of a machine. unit: that of `value`, '' for counts and texts; enters: the sums that it goes into."""

    section: str
    key: str
    value: Any
    unit: str
    source: str
    enters: str


def described_values(machine: MimdMachine | GpuMachine) -> Iterator[DescribedValue]:
    """Every value of the machine's sections, in the order of the description's fields; without what is not given and
    would have no effect."""
    idle = keys_without_effect(machine)
    for name, about in type(machine).model_fields.items():
        section = getattr(machine, name)
        for key, field in type(section).model_fields.items() if isinstance(section, Section) else ():
            value = getattr(section, key)
            if key == "sources" or value is None:
                continue
            if f"{name}.{key}" in idle and key not in section.model_fields_set:
                continue
            enters = field.description or about.description or ""
            unit = (dimension(key) or "").replace("_", " ")
            if isinstance(value, SourcedSection):  # a core, with numbers of its own
                yield from _nested(name, key, value, field.description or about.description or "")
                continue
            if isinstance(value, dict):  # costs of codelets, each with a source of its own
                for codelet, cost in value.items():
                    content = cost.model_dump(mode="json", exclude={"source"})
                    yield DescribedValue(
                        section=name, key=f"{key}.{codelet}", value=content, unit="", source=cost.source, enters=enters
                    )
                continue
            source = section.sources.get(key, "" if key in section.model_fields_set else DEFAULT)
            yield DescribedValue(section=name, key=key, value=value, unit=unit, source=source, enters=enters)


def _nested(section: str, key: str, values: SourcedSection, enters: str) -> Iterator[DescribedValue]:
    for field in type(values).model_fields:
        value, name = getattr(values, field), f"{key}.{field}"
        if isinstance(value, SourcedSection):
            yield from _nested(section, name, value, enters)
        elif field in values.sources:
            unit = (dimension(field) or "").replace("_", " ")
            source = values.sources[field]
            yield DescribedValue(section=section, key=name, value=value, unit=unit, source=source, enters=enters)


def machine_table(machine: MimdMachine | GpuMachine) -> Iterator[str]:
    """Lines of at most WIDTH columns: a value and what it enters on one, its source below; notes at the end."""
    yield from (f"{machine.name}: {machine.title}", "", f"  {'':{KEY}}{'':{VALUE}}enters")
    section = ""
    for row in described_values(machine):
        if row.section != section:
            section = row.section
            yield f"[{section}]"
        value = toml_value(row.value) if isinstance(row.value, dict) else number_text(row.value, row.key)
        start, indent = f"  {row.key:{KEY - 1}} {value:{VALUE - 1}} ", " " * (2 + KEY + VALUE)
        if len(start) > len(indent):
            yield from textwrap.wrap(start, WIDTH, subsequent_indent=" " * 6)
            start = indent
        yield from textwrap.wrap(row.enters, WIDTH, initial_indent=start, subsequent_indent=indent)
        yield from textwrap.wrap(row.source, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    for note in machine_notes(machine):
        yield from ("", *textwrap.wrap(note, WIDTH))


def machine_record(machine: MimdMachine | GpuMachine) -> dict[str, Any]:
    """The same as a record for JSON; numbers in the unit that stands beside them."""
    values = [asdict(row) for row in described_values(machine)]
    head = {"name": machine.name, "title": machine.title, "kind": machine.kind}
    return {**head, "values": values, "notes": list(machine_notes(machine))}
