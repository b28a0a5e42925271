"""The definition of an optimiser: its constants, its equations on whole arrays and on tiles, and its cost there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from mimdsim.base.errors import DescriptionError

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


# ---- what a record must fulfil; checked once, when the records are collected

TAKEN = ("w", "gradient", "progress", "rate", "start", "stop", LEARNING_RATE, TRAINING_STEP)  # by every codelet
LISTS = ("names", "decays", "forms")


def check_records(found: Iterable[type[Optimiser]]) -> None:
    """Raise DescriptionError for the first optimiser whose record is wrong, with all that is wrong with it."""
    names: dict[str, type[Optimiser]] = {}
    kinds: dict[str, tuple[Form, type[Optimiser]]] = {}
    for one in found:
        problems = list(_problems(one))
        if not problems:
            for name in one.names:
                if name in names:
                    problems.append(f"names: {name!r} is already a name of {names[name].__name__}; choose another")
                names[name] = one
            for form in one.forms:
                known, owner = kinds.setdefault(form.kind, (form, one))
                if known is not form:
                    problems.append(f"forms: kind {form.kind!r} is already one of {owner.__name__}; choose another")
        if problems:
            raise DescriptionError(f"optimiser {one.__name__} ({one.__module__})", problems)


def _problems(one: type[Optimiser]) -> Iterator[str]:
    missing = [name for name in LISTS if not isinstance(one.__dict__.get(name), tuple)]
    yield from (f"{name}: missing or no tuple; write one in the class itself" for name in missing)
    if missing:
        return
    if not one.names or not one.forms:
        yield f"{'forms' if one.names else 'names'}: must not be empty"
        return
    if strange := [name for name in one.decays if name not in one.names]:
        yield f"decays: {strange[0]!r} is not among names; list it there too"
    fields = {field.name: field for field in dataclasses.fields(one)}
    if strange := [
        name for name, field in fields.items() if name != LEARNING_RATE and not isinstance(field.default, Real)
    ]:
        yield f"{strange[0]}: needs a number as its default"
        return
    if strange := [name for name in one.bounds if name not in one.parameters()]:
        yield f"bounds: {strange[0]!r} is not a constant of the optimiser, which has {_listed(one.parameters())}"
    before = 0
    for form in one.forms:
        for problem in _of_form(one, form, fields):
            before += 1
            yield f"form {form.kind!r}: {problem}"
    if not before:
        yield from _of_equation(one)


def _of_form(one: type[Optimiser], form: Form, fields: Iterable[str]) -> Iterator[str]:
    for name in form.constants:
        if name not in fields:
            yield f"constants: {name!r} is not a field of {one.__name__}, which has {_listed(fields)}"
    if one.decays and "weight_decay" not in form.constants:
        yield "constants: lacks weight_decay, which the optimiser supports by its decays"
    passed = [*form.state.values(), *form.constants.values()]
    for name in passed:
        if name in TAKEN or passed.count(name) > 1:
            yield f"{name!r} names two arguments of the kernel; rename it in state or constants"
            break
    for name in form.never_negative:
        if name not in form.state:
            yield f"never_negative: {name!r} is not a state, of which there are {_listed(form.state)}"


def _of_equation(one: type[Optimiser]) -> Iterator[str]:
    """Once with the defaults and once with every constant given, which may be another form."""
    for given in ({}, dict.fromkeys(one.parameters(), 0.5)):
        made = one(learning_rate=0.5, **given)  # type: ignore[arg-type]
        form, ones = made.form, np.ones(2, np.float32)
        if form not in one.forms:
            yield f"form: {form.kind!r} is not among forms; list it there"
            continue
        try:
            outputs = made.equation(ones, ones, *(ones for _ in form.state), rate=0.5, number=1)
        except Exception as failure:  # of the record's author
            yield f"equation: fails with {type(failure).__name__}: {failure}; it takes w, gradient and the states"
            continue
        count = len(outputs) if isinstance(outputs, tuple) else 1
        if not isinstance(outputs, tuple) or count != 1 + len(form.state):
            yield (
                f"equation: returns {count} value{'s' if count != 1 else ''} for form {form.kind!r}, must return a "
                f"tuple of {1 + len(form.state)}: w, then every state ({_listed(form.state)})"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
