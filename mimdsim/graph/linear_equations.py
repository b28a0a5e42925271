"""Equations that are affine between spikes, as neurons of the linear family, which run from lists of spikes.

A timestep makes the states s and the output f of those before: with f[t-1] and f[t] given, s[t] is affine in
y = (s[t-1], I[t], 1), and the spike says whether a number u that is affine in y too, with f[t-1] given, is above 0.
Such a number is a pair of rows, one for each f[t-1]. What u needs of the timestep before are other pairs, what these
need still others: a base of them all is the neuron's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from mimdsim.graph.cell_equations import SUMS, Written, equations_of, run
from mimdsim.graph.cells import OUTPUT, CellModel
from mimdsim.graph.linear_neurons import MOST_STATES, Affine, LinearNeuron

BRANCHES = tuple(product((0, 1), (0, 1)))  # f[t-1], f[t]
SAME = 1e-9  # relative: rounding of products of constants


class _NotLinearError(Exception):
    """The equations are no linear neuron's."""


@dataclass(frozen=True, eq=False)
class Form:
    """A number by branch: rows [4, states + 2], of y. spikes: 'live' or 'detached' where those that it is made of let
    their gradient through or not; 'kept ...' of those of the timestep before that are in a state of it."""

    rows: np.ndarray
    spikes: frozenset[str] = frozenset()

    def _constant(self) -> np.ndarray | None:
        return self.rows[:, -1] if not self.rows[:, :-1].any() else None

    def _with(self, other: Any) -> Form:
        if isinstance(other, Form):
            return other
        rows = np.zeros(self.rows.shape)
        rows[:, -1] = other
        return Form(rows)

    def __add__(self, other: Any) -> Form:
        other = self._with(other)
        return Form(self.rows + other.rows, self.spikes | other.spikes)

    def __mul__(self, other: Any) -> Form:
        other = self._with(other)
        if "live" in self.spikes & other.spikes or any(map(_is_square, (self, other), (other, self))):
            raise _NotLinearError  # a square, whose gradient is another one
        for one, factor in ((self, other._constant()), (other, self._constant())):
            if factor is not None:
                return Form(one.rows * factor[:, None], self.spikes | other.spikes)
        raise _NotLinearError

    def __neg__(self) -> Form:
        return self * -1.0

    def __sub__(self, other: Any) -> Form:
        return self + -self._with(other)

    def __truediv__(self, other: float) -> Form:
        if isinstance(other, Form):
            raise _NotLinearError
        return self * (1.0 / other)

    def __rtruediv__(self, other: float) -> Form:
        raise _NotLinearError

    def __rsub__(self, other: float) -> Form:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__


def _is_square(one: Form, other: Form) -> bool:
    """Whether the spike of the timestep before is in both, in a state and by itself."""
    by_itself = "live" in other.spikes and bool((other.rows[:2] != other.rows[2:]).any())
    return by_itself and "kept live" in one.spikes


class _Functions:
    """Those of equations, on forms; holds the number that the spike compares."""

    def __init__(self) -> None:
        self.compared: Form | None = None

    def spike(self, x: Form) -> Form:
        if self.compared is not None:
            raise _NotLinearError
        self.compared = x
        return Form(_fired(x.rows.shape, 1), frozenset({"live"}))

    def detach(self, x: Form) -> Form:
        if x._constant() is None:
            raise _NotLinearError
        return Form(x.rows, frozenset({"detached"}) if x.spikes else x.spikes)

    def __getattr__(self, name: str) -> Any:
        raise _NotLinearError


def _fired(shape: tuple[int, ...], which: int) -> np.ndarray:
    rows = np.zeros(shape)
    rows[:, -1] = [branch[which] for branch in BRANCHES]
    return rows


def linear_neuron_of(model: CellModel, values: Mapping[str, float]) -> LinearNeuron | None:
    """The linear neuron that does, and learns, what the equations say; None where there is none."""
    written = model.equations
    if not isinstance(written, Written) or model.gates > 1 or model.recurrent or model.rows:
        return None
    try:
        return _linear(model, written, values)
    except (_NotLinearError, ZeroDivisionError, OverflowError):
        return None


def _linear(model: CellModel, written: Written, values: Mapping[str, float]) -> LinearNeuron:
    states = list(written.states)
    width = len(states) + 2
    if not model.spiking and OUTPUT not in states:
        states.append(OUTPUT)
        width += 1

    def given(name: str, before: bool) -> Form | float:
        if before and name == OUTPUT and model.spiking:
            return Form(_fired((4, width), 0), frozenset({"live"}))
        if not before and not SUMS.fullmatch(name):
            return values[name]
        rows = np.zeros((4, width))
        rows[:, states.index(name) if before else len(states)] = 1.0
        return Form(rows, decided.get(name, frozenset()) if before else frozenset())

    decided: dict[str, frozenset[str]] = {}  # spikes in states of the timestep that decided them
    for _ in range(2):
        functions = _Functions()
        made = run(equations_of(written.texts), given, functions)
        forms = {name: each for name, each in made.items() if isinstance(each, Form)}
        now = {name: each for name, each in forms.items() if (each.rows[::2] != each.rows[1::2]).any()}
        decided = {name: frozenset(f"kept {s}" for s in each.spikes if " " not in s) for name, each in now.items()}
    sent, compared = made[OUTPUT], functions.compared
    if not isinstance(sent, Form) or any(not isinstance(made[name], Form) for name in states):
        raise _NotLinearError
    if model.spiking and (
        compared is None or sent.spikes != {"live"} or (sent.rows != _fired(sent.rows.shape, 1)).any()
    ):
        raise _NotLinearError
    if not model.spiking and compared is not None:
        raise _NotLinearError
    read = compared if compared is not None else sent
    every_spike = frozenset().union(*(made[name].spikes for name in states), read.spikes)
    through = {each.removeprefix("kept ") for each in every_spike}
    if len(through) > 1:
        raise _NotLinearError
    every = np.array([made[name].rows for name in states]).reshape(len(states), 4, width)
    by_branch = {branch: every[:, at] for at, branch in enumerate(BRANCHES)}
    u = np.stack([read.rows[BRANCHES.index((f, 0))] for f in (0, 1)])
    if (read.rows[::2] != read.rows[1::2]).any():
        raise _NotLinearError  # it depends on the spike that it decides
    return _neuron(model, u, by_branch, "full" if through == {"live"} else "mask")


def _neuron(
    model: CellModel, u: np.ndarray, by_branch: Mapping[tuple[int, int], np.ndarray], gradient: str
) -> LinearNeuron:
    """u: a pair of rows [2, columns]; by_branch: the states that a timestep makes, [states, columns]."""
    threshold = -float(u[0, -1]) if model.spiking else 1.0
    offset = 0.0 if model.spiking else float(u[0, -1])
    if not threshold > 0:
        raise _NotLinearError
    u = u - np.eye(u.shape[1])[-1] * u[0, -1]
    if np.abs(u).max() <= SAME:
        raise _NotLinearError  # nothing reaches it
    base, coefficients, drives, constants = [u], [], [], []
    for pair in base:  # which grows
        rows = [_earlier(pair[f], f, by_branch) for f in (0, 1)]
        if abs(rows[0][0, -1]) > SAME:  # there was no timestep before the first, in which the states are 0
            raise _NotLinearError
        found = [_in_base(base, each) for each in rows]
        coefficients.append([each[:-1] for each in found])
        drives.append(pair[:, -2])
        constants.append([pair[f, -1] + found[f][-1] for f in (0, 1)])
    count = len(base)
    maps = []
    for f in (0, 1):
        matrix = np.zeros((count, count, 1))
        for row, each in enumerate(coefficients):
            matrix[row, : len(each[f]), 0] = each[f]
        drive, constant = (np.array(each, np.float64)[:, f, None] for each in (drives, constants))
        maps.append(Affine(matrix=matrix, drive=drive, constant=constant))
    same = all((one == other).all() for one, other in zip(maps[0].arrays, maps[1].arrays, strict=True))
    return LinearNeuron(
        model=model.name,
        states=("potential", *(f"state {number}" for number in range(1, count))),
        quiet=maps[0],
        fired=None if same or not model.spiking else maps[1],
        readout=np.eye(count)[0][:, None],
        offset=np.full(1, offset),
        threshold=threshold,
        reset_gradient=gradient,
    )


def _earlier(row: np.ndarray, f: int, by_branch: Mapping[tuple[int, int], np.ndarray]) -> np.ndarray:
    """What a row has of states, as a pair of rows of the timestep before, in which `f` was decided."""
    weights = row[:-2]
    return np.stack([weights @ by_branch[before, f] for before in (0, 1)])


def _in_base(base: list[np.ndarray], pair: np.ndarray) -> np.ndarray:
    """The factors of a pair in the base, to which what it has left is added, and its constant part."""
    one = np.eye(pair.shape[1])[-1]
    factors, left, scale = [], pair - pair[0, -1] * one, max(1.0, float(np.abs(pair).max()))
    for each in base:
        place = _leading(each)
        factors.append(float(left[place] / each[place]))
        left = left - factors[-1] * each
        left[place] = 0.0
    if np.abs(left).max() > SAME * scale:
        if len(base) == MOST_STATES:
            raise _NotLinearError
        factors.append(float(left[0, -2] if abs(left[0, -2]) > SAME else left[_leading(left)]))
        base.append(left / factors[-1])  # by which a current is added as it is
    return np.array([*factors, pair[0, -1]])


def _leading(pair: np.ndarray) -> tuple[int, int]:
    """Where a pair is taken off others: at the last state that it has, which is mostly its own."""
    places = np.argwhere(np.abs(pair) > SAME)
    states = places[places[:, 1] < pair.shape[1] - 2]
    row, column = states[-1] if len(states) else places[0]
    return int(row), int(column)
