"""Which values of a machine something was made from, so that it can be used for every machine that has the same ones.

A compiler that is given `Reads.watch(machine)` leaves in `Reads.values` all that it asked the machine for. It is
deterministic, so another machine with the same values makes it take the same path to the same result: no list of keys
that change a program has to be kept up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, cast

from mimdsim.base.schema import Section
from mimdsim.machine.mimd import MimdMachine

GIVEN = "a section"  # of a section, only whether the description has it is recorded; its values follow one by one


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What was asked of a machine: values by dotted path ('chip.tiles'); properties count as asked for themselves."""

    values: dict[str, Any] = field(default_factory=dict)

    def watch(self, machine: MimdMachine) -> MimdMachine:
        """A stand-in for the machine that records here what is read through it, in its methods and copies too."""
        return cast(MimdMachine, _TrackedSection(machine, "", self.values, {}))

    def same_on(self, machine: MimdMachine) -> bool:
        """Whether the machine gives the same answer to everything that was asked."""
        return all(_answer(machine, path) == value for path, value in self.values.items())


class _TrackedSection:
    """A section seen through a watch; `changed` fields, of a copy, come from values that were read before."""

    def __init__(self, section: Section, path: str, values: dict[str, Any], changed: Mapping[str, Any]):
        self._section, self._path, self._values, self._changed = section, path, values, changed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copying and pickling look for
            raise AttributeError(name)
        if name in self._changed:
            return self._changed[name]
        of_class = getattr(type(self._section), name, None)
        if isinstance(of_class, FunctionType):
            return MethodType(of_class, self)
        if isinstance(of_class, property) and self._changed:  # the copy has its own answer
            return cast(Any, of_class.fget)(self)
        value, path = getattr(self._section, name), f"{self._path}{name}"
        self._values[path] = _record(value)
        return _TrackedSection(value, f"{path}.", self._values, {}) if isinstance(value, Section) else value

    def model_copy(self, update: Mapping[str, Any]) -> _TrackedSection:
        """As of the section; fields that are not updated are still watched."""
        return _TrackedSection(self._section, self._path, self._values, {**self._changed, **update})


def _record(value: Any) -> Any:
    return GIVEN if isinstance(value, Section) else value


def _answer(machine: MimdMachine, path: str) -> Any:
    """What a machine has at a path; None where it lacks the section."""
    found: Any = machine
    for name in path.split("."):
        found = getattr(found, name, None)
    return _record(found)
