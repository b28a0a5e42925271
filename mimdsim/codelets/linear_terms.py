"""The nonzero coefficients of linear neurons, packed for vertices, and the cost of applying them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.graph.linear_neurons import Affine, LinearNeuron

LOOP_BUNDLES = 3  # next address, compare, branch
SELECT_BUNDLES = 2  # compiled: a branch and a move


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

    def load_bundles(self) -> int:
        """Every state and the current, read once per neuron."""
        return len({term.column for term in self.terms if term.column <= self.states})

    def apply_bundles(self, *, transposed: bool = False) -> int:
        """Multiply, add (except the first of a sum), select between two coefficients, load those kept per neuron."""
        return sum_bundles([term for term in self.terms if not transposed or term.column <= self.states], transposed)

    def readout_bundles(self) -> int:
        return sum_bundles(list(self.readout), False)

    def change_bundles(self) -> int:
        """The coefficients that a spike changes, times their operands, summed, and times the adjoint of their row."""
        changed = [term for term in self.terms if term.differs]
        rows = len({term.target for term in changed})
        read = {term.column for term in changed if term.column <= self.states}
        return len(read) + sum(2 + term.loads for term in changed) + 2 * rows


def sum_bundles(terms: list[Shape], transposed: bool) -> int:
    into = {term.column if transposed else term.target for term in terms}
    each = sum((not term.unit) + 1 + SELECT_BUNDLES * term.differs + term.loads for term in terms)
    return each - len(into)


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
    rows: list[np.ndarray] = []
    states = len(neuron.states)
    fired = neuron.fired if switched and neuron.fired is not None else neuron.quiet
    places: list[tuple[int, int, int, int]] = []
    uniform: list[tuple[float, float]] = []
    shapes: list[Shape] = []
    for target in range(states):
        pairs = zip(_row(neuron.quiet, target), _row(fired, target), strict=True)
        for column, (one, other) in enumerate(pairs):
            if one.any() or other.any():
                at = _row_of(rows, one, neurons), _row_of(rows, other, neurons)
                places.append((target, column, *at))
                uniform.append((float(one[0]), float(other[0])))
                shapes.append(_shape(target, column, one, other, at))
    readout, weights, reading = [], [], []
    for column, values in enumerate([*neuron.readout, *([neuron.offset] if neuron.offset.any() else [])]):
        if values.any():
            place = _row_of(rows, values, neurons)
            readout.append((column, place))
            weights.append((float(values[0]), float(values[0])))
            reading.append(_shape(states, column, values, values, (place, place)))
    structure = Structure(model=neuron.model, states=states, terms=tuple(shapes), readout=tuple(reading), own=len(rows))
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


def _shape(target: int, column: int, one: np.ndarray, other: np.ndarray, at: tuple[int, int]) -> Shape:
    differs = bool(np.any(one != other))
    unit = bool(np.isin(one, (0.0, 1.0)).all() and np.isin(other, (0.0, 1.0)).all())
    loads = len({place for place in at if place >= 0})
    return Shape(target=target, column=column, unit=unit, differs=differs, loads=loads)
