"""What a row of a table tells of the machine that it was measured on, for `mimdsim calibrate` (`check/narrow/`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mimdsim.machine import MimdMachine
from mimdsim.machine.calibrated import CODELET
from mimdsim.profile import Doubt


@dataclass(frozen=True, kw_only=True)
class Bearing:
    """Of a figure that was measured, not derived from others of its table.

    line: of the table; machine: whose description predicts it; measured: in the row's unit, at least as exact as
    published. again: the same prediction for another description of that machine, of the same program where there is
    one; raises MimdsimError if it has none. parts: (codelet as "codelet NAME", kind of source, its part of the
    prediction, in the row's unit) for every codelet whose cost the prediction has in proportion. formula: rows of a
    table with the same are off alike, beyond what they have from the machine and those codelets ("": those of a kind).
    """

    line: int
    machine: str
    measured: float
    again: Callable[[MimdMachine], float]
    parts: tuple[tuple[str, str, float], ...] = ()
    formula: str = ""


def codelet_parts(doubts: Iterable[Doubt], of_a_cycle: float) -> tuple[tuple[str, str, float], ...]:
    """The codelets among what a profile's interval is made of; of_a_cycle: a cycle in the row's unit."""
    return tuple(
        (doubt.name, doubt.kind, of_a_cycle * doubt.cycles) for doubt in doubts if doubt.name.startswith(CODELET)
    )
