"""The table of neuron models: one short record each, which turns parameters into the arrays of the linear family.

To add a model, write it next to similar ones; docs/neurons.md shows one. Membrane potentials are relative to the
resting potential, where the frameworks start them, so that every state starts at zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, near, suggest
from mimdsim.graph.cell_catalogue import CELL_MODELS
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.neuron_catalogue import CATALOGUE
from mimdsim.graph.neuron_parts import RESETS, Model, compose, parts_of


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


def model_of(name: str) -> Model:
    """The record of a model; raises MappingError listing the known names."""
    if name not in MODELS:
        known = [*MODELS, *CELL_MODELS]
        raise MappingError(
            f"network.neuron = {name!r} is not known{near(name, known)}; write one of {', '.join(known)}"
        )
    return MODELS[name]


def neuron_of(
    name: str,
    parameters: dict[str, Any] | None = None,
    *,
    reset: str | None = None,
    reset_by: str = "state",
    reset_gradient: str | None = None,
) -> LinearNeuron:
    """The neurons of a layer from a model's name and parameters, each a number or an array [neurons].

    reset, reset_gradient: the model's default if not given. Raises MappingError for what the model does not know or
    allow.
    """
    model = model_of(name)
    reset = model.resets[0] if reset is None else reset
    if reset not in model.resets:
        raise MappingError(
            f"network.reset = {reset!r}: model '{name}' offers {', '.join(model.resets)}; write one of them"
        )
    values = checked_parameters(model, parameters or {})
    gradient = model.reset_gradient if reset_gradient is None else reset_gradient
    return compose(model, parts_of(model, values), reset=reset, reset_by=reset_by, reset_gradient=gradient)


def checked_parameters(model: Model, given: dict[str, Any]) -> dict[str, Any]:
    """All parameters of a model, defaults filled in; raises MappingError for unknown names and values out of range."""
    known = {parameter.name: parameter for parameter in model.parameters}
    for name in given:
        if name not in known:
            raise MappingError(
                f"network.neuron_parameters.{name}: model '{model.name}' has no such parameter"
                f"{suggest(name, list(known))}; it has {', '.join(known)}"
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
