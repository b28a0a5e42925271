"""The definition of an optimiser: its constants, its equations on whole arrays and on tiles, and its cost there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

LEARNING_RATE = "learning_rate"  # graph input of a scheduled rate
TRAINING_STEP = "training_step"  # graph input that counts from 1


def float32(value: float) -> np.float32:
    """Rounded; a value beyond its range becomes infinite, and the first update then diverges."""
    with np.errstate(over="ignore"):
        return np.float32(value)


@dataclass(frozen=True, kw_only=True, eq=False)
class Form:
    """An update on tiles, with weight decay.

    kind: the operation of the training graph. state: what is kept for every weight: its name in the graph -> the field
    of the codelet; never_negative: those that never are, such as means of squares. counts: whether it takes the number
    of the training step. compute(w, gradient, *state, progress, start, stop, rate, *constants), progress only if it
    counts; at_rate: with the rate in memory, before `start`.
    constants: fields of the optimiser, with the codelet's name for them; passed as `number`. bundles: per 64 bits, by
    bytes per element, as in `counted`. flops: per weight; `plain_flops`: the same without weight decay.
    """

    kind: str
    state: dict[str, str]
    never_negative: tuple[str, ...] = ()
    counts: bool = False
    constants: dict[str, str]
    number: Callable[[float], Any]
    compute: Callable[..., None]
    at_rate: Callable[..., None]
    bundles: Callable[[int], int]
    counted: str
    flops: int
    plain_flops: int
    code_bytes: int


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """scheduled: the rate is a run-time input, `learning_rate` the highest it reaches.

    names: in a workload; decays: those of them that support weight decay; bounds: the least value of a constant and
    what it must stay below, 0 and 1 if not given.
    """

    learning_rate: float
    weight_decay: float = 0.0
    scheduled: bool = False

    names: ClassVar[tuple[str, ...]]
    decays: ClassVar[tuple[str, ...]]
    forms: ClassVar[tuple[Form, ...]]
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}

    @property
    def form(self) -> Form:
        return self.forms[0]

    @property
    def kind(self) -> str:
        """The operation that updates a weight."""
        return self.form.kind

    @property
    def state(self) -> tuple[str, ...]:
        """What is kept per weight from one training step to the next."""
        return tuple(self.form.state)

    @property
    def scalars(self) -> tuple[str, ...]:
        """Run-time inputs that all weights share."""
        return (*((TRAINING_STEP,) if self.form.counts else ()), *((LEARNING_RATE,) if self.scheduled else ()))

    @classmethod
    def parameters(cls) -> dict[str, float]:
        """Constants specific to this optimiser, with their defaults."""
        common = {field.name for field in dataclasses.fields(Optimiser)}
        return {field.name: field.default for field in dataclasses.fields(cls) if field.name not in common}  # type: ignore[misc]

    @classmethod
    def bounds_of(cls, parameter: str) -> tuple[float, float]:
        """The least value of a constant, and what it must stay below."""
        return cls.bounds.get(parameter, (0.0, 1.0))

    def passed(self, names: Iterable[str], rate: float) -> tuple[Any, ...]:
        """The constants of a kernel as numbers, by the codelet's names for them."""
        field_of = {name: field for field, name in self.form.constants.items()}
        values = (getattr(self, field_of[name]) if name in field_of else rate for name in names)
        return tuple(self.form.number(value) for value in values)

    def update(self, w: Any, gradient: Any, *given: Any) -> tuple[Any, ...]:
        """(weights, *state) after one update, on arrays of any float format; given: the state, then `scalars`."""
        count = len(self.form.state)
        state, scalars = given[:count], list(given[count:])
        number = int(scalars.pop(0)) if self.form.counts else 1
        rate = float(np.asarray(scalars[0]).item()) if scalars else self.learning_rate
        return self.equation(w, gradient, *state, rate=rate, number=number)

    def equation(self, w: Any, gradient: Any, *state: Any, rate: float, number: int) -> tuple[Any, ...]:
        """The meaning, in numpy; `form.compute` must give the same result."""
        raise NotImplementedError
