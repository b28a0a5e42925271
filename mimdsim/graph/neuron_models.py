"""The table of neuron models: one short record each, which turns parameters into the arrays of the linear family.

To add a model, write it next to similar ones; docs/neurons.md shows one. Membrane potentials are relative to the
resting potential, where the frameworks start them, so that every state starts at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.graph.cell_catalogue import CELL_MODELS
from mimdsim.graph.linear_neurons import Learned, LinearNeuron
from mimdsim.graph.names import ROLES
from mimdsim.graph.neuron_catalogue import CATALOGUE
from mimdsim.graph.neuron_parts import RESETS, Model, Parameter, compose, parts_of


def by_name(records: Iterable[Model]) -> dict[str, Model]:
    """Models by name; raises MappingError for duplicate names and unknown resets."""
    models: dict[str, Model] = {}
    for record in records:
        if record.name in models:
            raise MappingError(f"two neuron models are called '{record.name}': give the new one another name")
        for reset in record.resets:
            if reset not in RESETS:
                known = ", ".join(RESETS)
                raise MappingError(f"neuron model '{record.name}': reset '{reset}' is not one of {known}")
        models[record.name] = record
    return models


MODELS = by_name(CATALOGUE)
SAME = 1e-9  # of coefficients: what is linear but for rounding


def model_of(model: str | Model, own: Collection[str] = ()) -> Model:
    """The record of a model, by its name; raises MappingError listing the known names, and those of the user's `own`
    file."""
    if isinstance(model, Model):
        return model
    name = model
    if name not in MODELS:
        known = list(dict.fromkeys((*own, *MODELS, *CELL_MODELS)))
        raise MappingError(
            f"network.neuron = {name!r} is not known{near(name, known)}; write one of {', '.join(known)}"
        )
    return MODELS[name]


def neuron_of(
    name: str | Model,
    parameters: dict[str, Any] | None = None,
    *,
    reset: str | None = None,
    reset_by: str = "state",
    reset_gradient: str | None = None,
    learned: Collection[str] = (),
) -> LinearNeuron:
    """The neurons of a layer from a model, or its name, and parameters, each a number or an array [neurons].

    reset, reset_gradient: the model's default if not given. learned: parameters that are trained, from what is given of
    them on; a number is shared by the layer. Raises MappingError for what the model does not know or allow.
    """
    model = model_of(name)
    reset = model.resets[0] if reset is None else reset
    if reset not in model.resets:
        raise MappingError(
            f"network.reset = {reset!r}: model '{model.name}' offers {', '.join(model.resets)}; write one of them"
        )
    values = checked_parameters(model, parameters or {})
    gradient = model.reset_gradient if reset_gradient is None else reset_gradient

    def made(values: dict[str, Any], reference: float | None = None) -> LinearNeuron:
        how: dict[str, Any] = {"reset": reset, "reset_by": reset_by, "reset_gradient": gradient}
        return compose(model, parts_of(model, values), **how, reference=reference)

    neuron = made(values)
    return _learning(model, neuron, values, learned, made) if learned else neuron


def _learnable(model: Model, names: Collection[str]) -> dict[str, Parameter]:
    """The model's parameters by name; raises MappingError for names that cannot be learned."""
    known = {parameter.name: parameter for parameter in model.parameters}
    if unknown := [name for name in names if name not in known]:
        raise MappingError(
            f"network.learned: model '{model.name}' has no parameter '{unknown[0]}'{near(unknown[0], known)}; it "
            f"has {', '.join(known)}"
        )
    if taken := [name for name in names if name in ROLES]:
        raise MappingError(
            f"network.learned: '{taken[0]}' is a parameter that layers have: give that of '{model.name}' another name"
        )
    if len(set(names)) < len(names):
        raise MappingError(f"network.learned: {', '.join(names)}; name each once")
    return known


def _learning(
    model: Model,
    neuron: LinearNeuron,
    values: dict[str, Any],
    names: Collection[str],
    made: Callable[[dict[str, Any], float | None], LinearNeuron],
) -> LinearNeuron:
    """The neuron with parameters that are learned; raises MappingError where its coefficients do not grow linearly with
    them."""
    known = _learnable(model, names)

    def arrays(constants: dict[str, Any]) -> tuple[np.ndarray, ...]:
        """Of the neuron, and its lift, with these numbers for what is learned."""
        with np.errstate(all="ignore"):
            found = made(values | constants, neuron.threshold)
        return (*found.arrays, found.lift)

    given = {name: values[name] for name in names}
    zeros = dict.fromkeys(names, np.float64(0.0))  # which divide without being refused
    # what grows otherwise may agree where it begins, with a product of which one factor is 0
    between = {name: np.float64((place + 1) / (len(zeros) + 1)) for place, name in enumerate(names)}
    try:
        base = arrays(zeros)
        slopes = {
            name: tuple(b - a for a, b in zip(base, arrays({**zeros, name: np.float64(1.0)}), strict=True))
            for name in names
        }
        linear = all(_is_linear(base, slopes, each, arrays(each)) for each in (given, between))
    except MappingError:  # not finite somewhere
        slopes, linear = {}, False
    if not linear:
        raise MappingError(
            f"network.learned: the coefficients of model '{model.name}' ({model.equation}) do not grow linearly with "
            f"{' and '.join(names)}, which only then can be learned; learn fewer of them, or take another model"
        )
    if any(each[-3].any() for each in slopes.values()):
        raise MappingError(
            f"network.learned: {', '.join(names)} changes what is read from the states of '{model.name}'"
        )
    learned = tuple(
        Learned(
            name=name,
            value=np.atleast_1d(np.asarray(values[name], np.float64)),
            link=known[name].link,
            low=known[name].low,
            high=known[name].high,
            slopes=slopes[name][:-1],
            lift=slopes[name][-1],
        )
        for name in names
    )
    return replace(neuron, learned=learned)


def _is_linear(
    base: tuple[np.ndarray, ...],
    slopes: Mapping[str, tuple[np.ndarray, ...]],
    constants: Mapping[str, Any],
    found: tuple[np.ndarray, ...],
) -> bool:
    """Whether what was found with these constants is what `base` grows to along the slopes."""
    linear = base
    for name, each in slopes.items():
        linear = tuple(a + s * np.atleast_1d(constants[name]) for a, s in zip(linear, each, strict=True))
    pairs = zip(linear, found, strict=True)
    return all(np.abs(a - b).max() <= SAME * max(1.0, np.abs(b).max()) for a, b in pairs)


def checked_parameters(model: Model, given: dict[str, Any]) -> dict[str, Any]:
    """All parameters of a model, defaults filled in; raises MappingError for unknown names and values out of range."""
    known = {parameter.name: parameter for parameter in model.parameters}
    for name in given:
        if name not in known:
            raise MappingError(
                f"network.neuron_parameters.{name}: model '{model.name}' has no such parameter"
                f"{near(name, known)}; it has {', '.join(known)}"
            )
    values: dict[str, Any] = {}
    for name, parameter in known.items():
        value = np.asarray(given.get(name, parameter.default), np.float64)
        if value.ndim > 1 or not value.size:
            raise MappingError(f"network.neuron_parameters.{name} must be a number or one number per neuron")
        every = value.reshape(-1)
        outside = every[~((every >= parameter.low) & (every <= parameter.high))]
        if outside.size:
            raise MappingError(
                f"network.neuron_parameters.{name} = {outside[0]:g} must be {parameter.low:g} to "
                f"{parameter.high:g} ({parameter.unit}: {parameter.meaning})"
            )
        values[name] = value if value.ndim else float(value)
    return values
