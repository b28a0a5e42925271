"""Constants of neurons that are learned: the coefficients that follow from them before the timesteps, and back.

A coefficient grows linearly with every constant, so that what a neuron does with it stays that of the linear family.
What is trained is the constant itself, or its logit (`Learned.link`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.graph.elementwise import FUNCTIONS
from mimdsim.graph.linear_neurons import Learned, LinearNeuron, shortest
from mimdsim.graph.records import Backward, OpDef, Operation, Value, per_element, shaped


def linked(learned: Learned, trained: np.ndarray) -> np.ndarray:
    """The constant, from the number that is trained in its place."""
    if not learned.link:
        return trained
    if learned.link == "sigmoid":
        return FUNCTIONS["sigmoid"].value(trained)
    made: np.ndarray = np.clip(trained, trained.dtype.type(learned.low), trained.dtype.type(learned.high))
    return made


def link_slope(learned: Learned, trained: np.ndarray) -> np.ndarray:
    """The derivative of `linked`; within both bounds of a clamp, included, it is one."""
    if not learned.link:
        return np.ones_like(trained)
    if learned.link == "sigmoid":
        return FUNCTIONS["sigmoid"].derivative(linked(learned, trained))
    inside: np.ndarray = (trained >= trained.dtype.type(learned.low)) & (trained <= trained.dtype.type(learned.high))
    return inside.astype(trained.dtype)


def first_value(learned: Learned) -> np.ndarray:
    """float64[1, neurons]: what is trained, before the first training step."""
    value = learned.value[None]
    if learned.link != "sigmoid":
        return value
    if not ((value > 0) & (value < 1)).all():
        raise MappingError(f"constant '{learned.name}' is learned through a sigmoid, so it must lie between 0 and 1")
    logit: np.ndarray = np.log(value) - np.log1p(-value)
    return logit


@dataclass(frozen=True, kw_only=True, eq=False)
class Coefficients:
    """Attributes of 'coefficients': the neuron, and how many neurons have them."""

    neuron: LinearNeuron
    neurons: int

    @property
    def model(self) -> str:
        return self.neuron.model

    @property
    def learned(self) -> tuple[Learned, ...]:
        return self.neuron.learned

    @property
    def count(self) -> int:
        """How many coefficients there are."""
        return len(self.neuron.rows)

    def slope(self, row: int, constant: int) -> np.ndarray:
        """float64[1 or neurons]: how much a coefficient grows with a constant."""
        number, at = self.neuron.rows[row][0]
        return shortest(self.neuron.learned[constant].slopes[number][at])

    def base(self, row: int) -> np.ndarray:
        """float64[1 or neurons]: a coefficient where all learned constants are 0."""
        number, at = self.neuron.rows[row][0]
        base: np.ndarray = self.neuron.arrays[number][at]
        for index, learned in enumerate(self.neuron.learned):
            base = base - self.slope(row, index) * learned.value
        return shortest(base)


def plain_number(name: str, value: float = 0.0) -> Learned:
    """One that is learned as it is; value: where it begins."""
    bounds = {"low": -np.inf, "high": np.inf}
    return Learned(name=name, value=np.array([value]), link="", slopes=(), lift=np.zeros(1), **bounds)


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedRow:
    """Attributes of 'coefficients' of cells and of synapses onto themselves: one learned number, as it is, for each of
    so many neurons."""

    model: str
    learned: tuple[Learned]
    neurons: int
    count: int = 1

    @classmethod
    def of(cls, name: str, neurons: int) -> SharedRow:
        return cls(model=name, learned=(plain_number(name),), neurons=neurons)

    def slope(self, _row: int, _constant: int) -> np.ndarray:
        return np.ones(1)

    def base(self, _row: int) -> np.ndarray:
        return np.zeros(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class ConstantGradient:
    """Attributes of 'constant_gradient': of which constant."""

    coefficients: Coefficients | SharedRow
    constant: int

    @property
    def learned(self) -> Learned:
        return self.coefficients.learned[self.constant]

    @property
    def rows(self) -> tuple[int, ...]:
        """The coefficients that grow with it, whose gradients are read in this order."""
        every = range(self.coefficients.count)
        return tuple(row for row in every if self.coefficients.slope(row, self.constant).any())


def coefficients_of(
    about: Coefficients | SharedRow, neurons: int, trained: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """The coefficients, each [1, neurons], from what is trained, each [1, neurons] or [1, 1]."""
    kind, made = trained[0].dtype, []
    constants = [linked(each, given) for each, given in zip(about.learned, trained, strict=True)]
    for row in range(about.count):
        total = np.array(np.broadcast_to(about.base(row).astype(kind), (1, neurons)))
        for index, constant in enumerate(constants):
            slope = about.slope(row, index).astype(kind)
            if slope.any():
                total += slope * constant
        made.append(total)
    return tuple(made)


def settled(neuron: LinearNeuron, neurons: int, trained: Sequence[np.ndarray]) -> LinearNeuron:
    """The neurons with what was trained of their constants, in order, which are fixed then."""
    about = Coefficients(neuron=neuron, neurons=neurons)
    return neuron.with_rows(coefficients_of(about, neurons, [np.asarray(each, np.float64) for each in trained]))


def _coefficients_vjp(build: Backward, op: Operation, *rows: str | None) -> tuple[str | None, ...]:
    made: list[str | None] = []
    for index, constant in enumerate(op.inputs):
        about = ConstantGradient(coefficients=op.attributes, constant=index)
        given = tuple(name for row in about.rows if (name := rows[row]) is not None)
        if len(given) < len(about.rows):
            made.append(None)
            continue
        name = f"d.{constant}"
        made.append(build.one("constant_gradient", (constant, *given), name, layer=op.layer, attributes=about))
    return tuple(made)


def _grown_with(op: Operation, constants: set[str]) -> set[str]:
    """The coefficients that grow with some of the constants."""
    learned = [index for index, name in enumerate(op.inputs) if name in constants]
    every = (row for index in learned for row in ConstantGradient(coefficients=op.attributes, constant=index).rows)
    return {op.outputs[row] for row in every}


def grown(about: ConstantGradient, rows: Sequence[np.ndarray]) -> np.ndarray:
    """What gradients of coefficients are for the constant that they grow with, neuron by neuron."""
    total = np.zeros_like(rows[0])
    for row, gradient in zip(about.rows, rows, strict=True):
        total += about.coefficients.slope(row, about.constant).astype(total.dtype) * gradient
    return total


def _constant_gradient(about: ConstantGradient, trained: np.ndarray, *rows: np.ndarray) -> tuple[np.ndarray]:
    total = grown(about, rows)
    if trained.shape[1] == 1:
        total = total.sum(axis=1, keepdims=True)
    return (link_slope(about.learned, trained) * total,)


LEARNED_CONSTANTS = (
    OpDef(
        name="coefficients",
        shapes=lambda _, about: tuple(
            (str(row), Value(name="", shape=(1, about.neurons))) for row in range(about.count)
        ),
        evaluate=lambda about, *trained: coefficients_of(about, about.neurons, trained),
        vjp=_coefficients_vjp,
        through=_grown_with,
        flops=lambda _, about: 2 * about.neurons * about.count * len(about.learned),
    ),
    OpDef(
        name="constant_gradient",
        shapes=shaped(lambda values, _: values[0].shape),
        evaluate=_constant_gradient,
        flops=per_element(2, operand=1),
    ),
)
