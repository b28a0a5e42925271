"""What a pass over several supersteps needs of an executor, and what it puts in their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mimdsim.functional.uses import Use, Uses
from mimdsim.program import VertexTable

Call = Callable[[int], None]
Found = tuple[Use, VertexTable]


def operand(table: VertexTable, place: int) -> str:
    """What a codelet's field is, by its place: names differ from codelet to codelet."""
    return table.operands[table.codelet.fields[place].name]


class Memory(Protocol):
    """What a chain needs of an executor."""

    arrays: dict[str, np.ndarray]

    def taken(self, name: str, shift: int) -> Callable[[int], np.ndarray]:
        """What "@t" and a shift name of a sequence in a timestep."""

    def share(self, count: int, work: Callable[[int, int], None]) -> None:
        """`work(first, last)` on shares of 0..count-1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjoint:
    """An adjoint that is copied, the copy scaled, and then decays for the timestep before."""

    copied: Found
    scaled: Found
    decayed: Found

    @property
    def operands(self) -> tuple[str, str, str, str, str]:
        """Adjoint, its scaled copy, gains, decays, and the potentials that mask it."""
        (_, copied), (_, scaled), (_, decayed) = self.copied, self.scaled, self.decayed
        return operand(copied, 0), operand(copied, 1), operand(scaled, 1), operand(decayed, 1), operand(decayed, 2)

    @property
    def threshold(self) -> Any:
        return self.decayed[1].constants["threshold"]


@dataclass(kw_only=True, eq=False)
class Chains:
    """What is done otherwise: tables left out or replaced by a call, calls before a repeat, and the variables whose
    array changes from turn to turn. adjoints: what is known of the gradient of a layer's currents, by its name."""

    replaced: dict[int, Call | None] = field(default_factory=dict)
    before: dict[int, list[Call]] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)
    adjoints: dict[str, Adjoint] = field(default_factory=dict)


def only_used_by(uses: Uses, name: str, known: list[Use]) -> bool:
    """Whether nobody but these uses the variable, all in one repeat."""
    same = {id(use) for use in known} == {id(use) for use in uses.of[name]}
    return same and name not in uses.outside and len({id(use.repeat) for use in known}) == 1
