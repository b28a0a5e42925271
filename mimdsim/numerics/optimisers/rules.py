"""What a record of an optimiser must fulfil; checked once, when the records are collected."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from numbers import Real

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.numerics.optimisers.record import LEARNING_RATE, TRAINING_STEP, Form, Optimiser

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
