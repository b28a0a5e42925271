"""How the predictions of measured rows depend on every doubted number, cost and formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mimdsim.base.console import Progress
from mimdsim.base.units import uncertainty
from mimdsim.machine import MimdMachine, with_values
from mimdsim.machine.calibrated import UncertainNumber, uncertain_numbers
from mimdsim.validation.reference_table import Row

FORMULA = "formula of "  # before the file and kind of rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Dependence:
    """effects float64[rows, numbers]: by how much half the width of a number's interval moves a row's prediction, in
    the row's unit, mean over the interval; predicted float64[rows]: by the machine as described.

    numbers: of the machine ("sync.internal_cycles"), factors of codelets ("codelet LifUpdate"), and shared by rows of
    one formula what else widens their intervals, which no machine holds ("formula of FILE, NAME").
    """

    numbers: tuple[UncertainNumber, ...]
    effects: np.ndarray
    predicted: np.ndarray

    def keeping(self, chosen: np.ndarray) -> Dependence:
        """With the numbers at these positions."""
        numbers = tuple(self.numbers[at] for at in chosen)
        return Dependence(numbers=numbers, effects=self.effects[:, chosen], predicted=self.predicted)

    def of_machine(self, values: np.ndarray) -> dict[str, tuple[float, str]]:
        """(value, source) of the numbers that a machine holds, by name, of values float64[numbers]."""
        pairs = zip(self.numbers, values.tolist(), strict=True)
        return {one.name: (value, one.source) for one, value in pairs if not one.name.startswith(FORMULA)}

    @property
    def of_formulas(self) -> np.ndarray:
        """bool[numbers]"""
        return np.array([one.name.startswith(FORMULA) for one in self.numbers], bool)


def again(rows: Sequence[Row], machine: MimdMachine) -> np.ndarray:
    """float64[rows]: predicted on another description of their machine."""
    return np.array([row.bearing.again(machine) for row in rows if row.bearing is not None])


def dependence(machine: MimdMachine, rows: Sequence[Row], progress: Progress) -> Dependence:
    """Of rows that all bear on `machine`; raises MimdsimError where one cannot be predicted within the intervals."""
    known = list(uncertain_numbers(machine).values())
    sections = [_Section(machine, list(one)) for _, one in groupby(known, lambda one: one.name.partition(".")[0])]
    effects = np.zeros((len(rows), len(known)))
    predicted = np.zeros(len(rows))
    for at, row in enumerate(rows):  # what is kept of a program is used for all numbers
        progress("dependence on doubted numbers", at + 1, len(rows))
        assert row.bearing is not None
        predicted[at] = row.bearing.again(machine)
        effects[at] = np.concatenate([section.effects(row.bearing.again, predicted[at]) for section in sections])
    for name, kind in _codelets(rows).items():
        off = uncertainty(kind)
        known.append(UncertainNumber(name=name, low=1 - off, value=1.0, high=1 + off, source=f"{kind}: its cost"))
        effects = np.column_stack([effects, off * np.array([_part(row, name) for row in rows])])
    for formula, column in _formulas(rows, (effects**2).sum(axis=1)).items():
        known.append(
            UncertainNumber(name=formula, low=-1.0, value=0.0, high=1.0, source="assumed: what else is doubted")
        )
        effects = np.column_stack([effects, column])
    return Dependence(numbers=tuple(known), effects=effects, predicted=predicted)


class _Section:
    """The numbers of one section of a machine, and machines with them at the ends of their intervals."""

    def __init__(self, machine: MimdMachine, numbers: list[UncertainNumber]):
        self._numbers = numbers
        self._all = with_values(machine, {one.name: (one.high, one.source) for one in numbers})
        self._ends = [tuple(round(end) if one.whole else end for end in (one.low, one.high)) for one in numbers]
        self._machines = [
            tuple(with_values(machine, {one.name: (end, one.source)}) for end in ends)
            for one, ends in zip(numbers, self._ends, strict=True)
        ]

    def effects(self, again: Callable[[MimdMachine], float], predicted: float) -> np.ndarray:
        """float64[numbers]; all 0 where a prediction is the same with all of them at the high ends."""
        found = np.zeros(len(self._numbers))
        if again(self._all) == predicted:
            return found
        for at, (one, ends, (low, high)) in enumerate(zip(self._numbers, self._ends, self._machines, strict=True)):
            if ends[0] < ends[1]:
                found[at] = (again(high) - again(low)) * one.half_width / (ends[1] - ends[0])
        return found


def _codelets(rows: Sequence[Row]) -> dict[str, str]:
    """Kind of source of every codelet that the rows depend on, by name."""
    return {name: kind for row in rows if row.bearing for name, kind, _ in row.bearing.parts}


def _part(row: Row, name: str) -> float:
    assert row.bearing is not None
    return sum(amount for part, _, amount in row.bearing.parts if part == name)


def _formulas(rows: Sequence[Row], explained: np.ndarray) -> dict[str, np.ndarray]:
    """What the rows are doubted for beyond the numbers that they depend on, float64[rows] by name; explained: squares
    of what these make of their doubt."""
    found: dict[str, np.ndarray] = {}
    for at, row in enumerate(rows):
        shared = (row.bearing.formula if row.bearing else "") or row.kind
        name = f"{FORMULA}{row.file}" + (f", {shared}" if shared else "")
        found.setdefault(name, np.zeros(len(rows)))[at] = max(row.propagated**2 - explained[at], 0.0) ** 0.5
    return {name: column for name, column in found.items() if column.any()}
