"""The nonzero coefficients of linear neurons, packed for vertices, and the cost of applying them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.graph.linear_neurons import Affine, LinearNeuron
from mimdsim.program.loops import Mix

Place = tuple[int, tuple[int, ...]]  # array of a neuron, and the index within it
CLOSE_LOOP = Mix(integer=2, loop=1)  # next address, compare, branch
SELECT = Mix(compare=2)  # compiled: a branch and a move


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One coefficient as a vertex sees it. target: index of the state it contributes to (number of states: u); column:
    states, then the current, then one. unit: needs no multiply; differs: changes after a spike; loads: from memory,
    because every neuron has its own."""

    target: int
    column: int
    unit: bool
    differs: bool
    loads: int


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What the code of a vertex depends on: two neurons with the same structure share a codelet."""

    model: str
    states: int
    terms: tuple[Shape, ...]
    readout: tuple[Shape, ...]
    own: int  # rows of per-neuron coefficients

    def load_mix(self) -> Mix:
        """Every state and the current, read once per neuron."""
        return Mix(load=len({term.column for term in self.terms if term.column <= self.states}))

    def apply_mix(self, *, transposed: bool = False) -> Mix:
        """Multiply, add (except the first of a sum), select between two coefficients, load those kept per neuron."""
        return sum_mix([term for term in self.terms if not transposed or term.column <= self.states], transposed)

    def read_states(self) -> list[Shape]:
        """What the read-out has of the states: not of the current, nor the constant."""
        return [item for item in self.readout if item.column < self.states]

    def readout_mix(self) -> Mix:
        return sum_mix(list(self.readout), False)

    def change_mix(self) -> Mix:
        """The coefficients that a spike changes, times their operands, summed, and times the adjoint of their row."""
        changed = [term for term in self.terms if term.differs]
        rows = len({term.target for term in changed})
        read = {term.column for term in changed if term.column <= self.states}
        loads = len(read) + sum(term.loads for term in changed)
        return Mix(load=loads, multiply=len(changed) + rows, add=len(changed) + rows)


def sum_mix(terms: list[Shape], transposed: bool) -> Mix:
    into = {term.column if transposed else term.target for term in terms}
    return Mix(
        multiply=sum(not term.unit for term in terms),
        add=len(terms) - len(into),
        load=sum(term.loads for term in terms),
    ) + SELECT * sum(term.differs for term in terms)


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """Arrays of the kernels in numerics/sparse/neurons.py; own float64[rows, neurons], or None."""

    structure: Structure
    terms: np.ndarray
    uniform: np.ndarray
    readout: np.ndarray
    weights: np.ndarray
    own: np.ndarray | None


def _row_of(rows: list[np.ndarray], values: np.ndarray, neurons: int) -> int:
    """The row of `values` among per-neuron coefficients, added if it is new, or -1 if one number holds for all."""
    if (values == values[0]).all():
        return -1
    whole = np.broadcast_to(values, (neurons,))
    for index, row in enumerate(rows):
        if np.array_equal(row, whole):
            return index
    rows.append(whole)
    return len(rows) - 1


def pack_terms(neuron: LinearNeuron, neurons: int, *, switched: bool) -> Packed:
    """The terms of a layer's neurons in the order in which they are added; switched: two coefficients each."""
    learned = {place: row for row, places in enumerate(neuron.rows) for place in places}
    rows: list[np.ndarray] = []  # of neurons that learn none: their values follow from constants

    def row_at(place: Place, values: np.ndarray) -> int:
        """Where a coefficient of every neuron its own lies, -1: one number holds for all."""
        return learned.get(place, -1) if learned else _row_of(rows, values, neurons)

    states, last = len(neuron.states), len(neuron.arrays) - 1
    second = switched and neuron.fired is not None
    fired = neuron.fired if switched and neuron.fired is not None else neuron.quiet
    places: list[tuple[int, int, int, int]] = []
    uniform: list[tuple[float, float]] = []
    shapes: list[Shape] = []
    for target in range(states):
        pairs = zip(_row(neuron.quiet, target), _row(fired, target), strict=True)
        for column, (one, other) in enumerate(pairs):
            kind, within = (0, (target, column)) if column < states else (column - states + 1, (target,))
            at = row_at((kind, within), one), row_at((kind + 3 * second, within), other)
            if one.any() or other.any() or (learned and max(at) >= 0):
                places.append((target, column, *at))
                uniform.append((float(one[0]), float(other[0])))
                shapes.append(_shape(target, column, one, other, at, bool(learned) and max(at) >= 0))
    readout, weights, reading = [], [], []
    offset = [neuron.offset] if neuron.offset.any() or (last, ()) in learned else []
    for column, values in enumerate([*neuron.readout, *offset]):
        place = row_at((last - 1, (column,)) if column < states else (last, ()), values)
        if values.any() or (learned and place >= 0):
            readout.append((column, place))
            weights.append((float(values[0]), float(values[0])))
            reading.append(_shape(states, column, values, values, (place, place), bool(learned) and place >= 0))
    structure = Structure(
        model=neuron.model,
        states=states,
        terms=tuple(shapes),
        readout=tuple(reading),
        own=len(set(learned.values())) or len(rows),
    )
    return Packed(
        structure=structure,
        terms=np.array(places, np.int64).reshape(-1, 4),
        uniform=np.array(uniform).reshape(-1, 2),
        readout=np.array(readout, np.int64).reshape(-1, 2),
        weights=np.array(weights).reshape(-1, 2),
        own=np.stack(rows) if rows else None,
    )


def _row(affine: Affine, target: int) -> list[np.ndarray]:
    """Coefficients of one row: of the states, of the current, the constant."""
    return [*affine.matrix[target], affine.drive[target], affine.constant[target]]


def _shape(target: int, column: int, one: np.ndarray, other: np.ndarray, at: tuple[int, int], learned: bool) -> Shape:
    differs = bool(np.any(one != other)) or at[0] != at[1]
    loads = len({place for place in at if place >= 0})
    unit = not learned and bool(np.isin(one, (0.0, 1.0)).all() and np.isin(other, (0.0, 1.0)).all())
    return Shape(target=target, column=column, unit=unit, differs=differs, loads=loads)
