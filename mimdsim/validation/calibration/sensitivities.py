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
    for name, kind in {name: kind for row in rows if row.bearing for name, kind, _ in row.bearing.parts}.items():
        off = uncertainty(kind)
        known.append(UncertainNumber(name=name, low=1 - off, value=1.0, high=1 + off, source=f"{kind}: its cost"))
        named = [[amount for part, _, amount in row.bearing.parts if part == name] for row in rows if row.bearing]
        effects = np.column_stack([effects, off * np.array([sum(amounts) for amounts in named])])
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


def _formulas(rows: Sequence[Row], explained: np.ndarray) -> dict[str, np.ndarray]:
    """What the rows are doubted for beyond the numbers that they depend on, float64[rows] by name; explained: squares
    of what these make of their doubt."""
    found: dict[str, np.ndarray] = {}
    for at, row in enumerate(rows):
        shared = (row.bearing.formula if row.bearing else "") or row.kind
        name = f"{FORMULA}{row.file}" + (f", {shared}" if shared else "")
        found.setdefault(name, np.zeros(len(rows)))[at] = max(row.propagated**2 - explained[at], 0.0) ** 0.5
    return {name: column for name, column in found.items() if column.any()}


# ---- least squares in a box, and which measurements cannot be met together inside it


MET = 2.0  # spreads by which a measurement may be missed
MISSED = 1e-3  # spreads beyond that count as a miss: the accuracy of the search
MOST_STEPS, MOST_HALVINGS = 200, 60
RIDGE = 1e-9
Derivatives = tuple[float, np.ndarray, np.ndarray]  # value, gradient [n] and matrix of second derivatives [n, n]
Function = Callable[[np.ndarray], Derivatives]


def least_in_box(function: Function, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Where a convex function is least among low <= z <= high, float64[n]; second derivatives may jump.

    Projected Newton: a step of the numbers that are free to move, shortened until the function falls (Bertsekas 1982).
    """

    def moved(direction: np.ndarray) -> tuple[np.ndarray, Derivatives] | None:
        """The first of ever shorter steps that lowers the function enough; None if none does."""
        for halvings in range(MOST_HALVINGS):
            tried = np.clip(z + direction / 2.0**halvings, low, high)
            found = function(tried)
            if found[0] < value and found[0] <= value + 1e-4 * float(gradient @ (tried - z)):
                return tried, found
        return None

    z = np.clip(np.zeros_like(low), low, high)
    value, gradient, curvature = function(z)
    for _ in range(MOST_STEPS):
        held = ((z <= low) & (gradient > 0)) | ((z >= high) & (gradient < 0))
        free = np.flatnonzero(~held)
        if not len(free) or np.abs(gradient[free]).max() < 1e-10 * (1 + abs(value)):
            break
        step = np.zeros_like(z)
        step[free] = -np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        descent = np.where(held, 0.0, -gradient / max(np.trace(curvature), 1.0))
        lower = moved(step) or moved(descent)
        if lower is None:
            break
        z, (value, gradient, curvature) = lower
    return np.asarray(z)


def closest(effects: np.ndarray, distances: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """float64[n]: the z in the box with the least |z|^2 + |effects z - distances|^2; effects float64[rows, n]."""
    curvature = np.eye(len(low)) + effects.T @ effects
    towards = effects.T @ distances

    def squares(z: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        slope = curvature @ z - towards
        return float(z @ (slope - towards)) / 2, slope, curvature

    return least_in_box(squares, low, high)


def misses(effects: np.ndarray, distances: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """float64[rows]: by how many spreads rows are missed beyond MET, where the sum of their squares is least."""
    ridge = RIDGE * np.eye(len(low))

    def beyond(z: np.ndarray) -> np.ndarray:
        off = effects @ z - distances
        return np.asarray(off - np.clip(off, -MET, MET))

    def squares(z: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        off = beyond(z)
        of_missed = effects[off != 0]
        value = (float(off @ off) + RIDGE * float(z @ z)) / 2
        return value, effects.T @ off + RIDGE * z, of_missed.T @ of_missed + ridge

    return np.asarray(np.abs(beyond(least_in_box(squares, low, high))))


def contradictions(
    effects: np.ndarray, distances: np.ndarray, low: np.ndarray, high: np.ndarray
) -> list[tuple[int, ...]]:
    """Sets of rows that no z in the box meets together, though it meets all of a set but any one; disjoint, so that
    all rows outside of them can be met together. A set of one row cannot be met at all."""

    def missed(rows: Sequence[int]) -> np.ndarray:
        chosen = list(rows)
        return misses(effects[chosen], distances[chosen], low, high)

    left, found = list(range(len(distances))), []
    while left:
        off = missed(left)
        if off.max() <= MISSED:
            break
        # those that are missed at the least sum of squares contradict each other alone: its slope is theirs
        order = np.argsort(off, kind="stable")
        core = [left[at] for at in order if off[at] > 0]
        if missed(core).max() <= MISSED:
            core = [left[at] for at in order]
        for row in list(core):
            others = [each for each in core if each != row]
            if others and missed(others).max() > MISSED:
                core = others
        found.append(tuple(sorted(core)))
        left = [row for row in left if row not in core]
    return found
