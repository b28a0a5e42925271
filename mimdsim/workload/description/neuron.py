"""The neurons that a workload describes: rows of the table of models with their parameters, and models and cells of a
user's own, from the Python file that `network.models` names.

A description may come from anywhere, so the file is run only in a process in which running code is allowed: by
`mimdsim --allow-code`, or by `allow_code`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.base.files import with_home
from mimdsim.base.user_code import call_users, load_file, require_allowed
from mimdsim.graph.cell_catalogue import CELL_MODELS, cell_of
from mimdsim.graph.cell_equations import Written, cell_from_equations
from mimdsim.graph.cells import Cell, CellModel
from mimdsim.graph.linear_equations import linear_neuron_of
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.neuron_catalogue import LIF
from mimdsim.graph.neuron_models import MODELS, model_of, neuron_of
from mimdsim.graph.neuron_parts import RESETS, Model, Parts
from mimdsim.graph.surrogates import known_surrogate
from mimdsim.workload.description.sections import PER_LAYER, Network

OF_LIF_ONLY = tuple(parameter.name for parameter in LIF.parameters)  # keys of their own in the description
Models = Mapping[str, Model | CellModel]
SHIPPED: Models = {**MODELS, **CELL_MODELS}


def neurons_of(network: Network) -> tuple[LinearNeuron | Cell, ...]:
    """The neurons of every layer, output layer last; raises MappingError for inconsistent keys."""
    found: list[LinearNeuron | Cell] = []
    for index in range(len(network.hidden) + 1):
        try:
            known_surrogate(network.of_layer("surrogate", index))
            found.append(_neuron(network, index))
        except MappingError as problem:
            several = any(isinstance(getattr(network, key), tuple) for key in PER_LAYER if key != "capacity")
            if not several and not network.learned:
                raise
            layer = f"hidden{index}" if index < len(network.hidden) else "output"
            raise MappingError(f"layer '{layer}': {problem}") from None
    return tuple(found)


def change_neuron(network: dict[str, Any], neurons: Any) -> None:
    """Remove from a [network] table the constants that none of `neurons`, a name or one per layer, has."""
    names = neurons if isinstance(neurons, (list, tuple)) else [neurons]
    if not all(isinstance(name, str) for name in names):
        return  # refused where the table is checked
    if LIF.name not in names:
        for key in OF_LIF_ONLY:
            network.pop(key, None)
    if neurons == network.get("neuron", LIF.name) or not all(name in SHIPPED for name in names):
        return  # the same, or of a file
    known = {parameter.name for name in names for parameter in SHIPPED[name].parameters}
    given = network.pop("neuron_parameters", {})
    if isinstance(given, dict) and (kept := {key: value for key, value in given.items() if key in known}):
        network["neuron_parameters"] = kept


def _written(network: Network) -> dict[str, CellModel]:
    """The cells that the description has equations of, by name."""
    found = {}
    for name, keys in network.cells.items():
        if name in SHIPPED:
            raise MappingError(f"network.cells.{name}: there is such a model already; give it another name")
        try:
            found[name] = cell_from_equations(
                name, keys.equations, keys.parameters, keys.learned, keys.shared, keys.recurrent_of
            )
        except MappingError as problem:
            raise MappingError(f"network.cells.{name}: {problem}") from None
    return found


def _cell(network: Network, model: CellModel, index: int) -> LinearNeuron | Cell:
    """The cells of one layer; of equations that are affine between spikes the linear neurons that do the same."""
    last, unread = index == len(network.hidden), ""
    for key in ("reset", "reset_gradient"):
        unread = unread or (key if network.of_layer(key, index) else "")
    model = model.learning(network.learned.get(network.layers[index], ()))
    cell = cell_of(model, _parameters(network, model, index))
    linear = linear_neuron_of(model, cell.values) if model.spiking or last else None  # others send what they read
    if network.spikes != "dense" and linear is None:
        raise MappingError(f'network.neuron = "{model.name}": cells send no lists: set network.spikes = "dense"')
    if unread or network.reset_by != "state":
        raise MappingError(
            f'network.{unread or "reset_by"} is for linear neurons; the equations of "{model.name}" say what a spike '
            "resets: leave it out, or give one value per layer"
        )
    if last and network.output != "membrane" and not (network.output == "spikes" and model.spiking):
        raise MappingError(
            f'network.neuron = "{model.name}" of the output layer sends no spikes: set network.output = "membrane", '
            "which reads what it sends"
        )
    if last and network.output != "spikes" and model.spiking and isinstance(model.equations, Written):
        raise MappingError(
            f'network.neuron = "{model.name}" of the output layer sends spikes: set network.output = "spikes", or let '
            "an equation of the last layer say that its output is the potential"
        )
    if linear is not None and model.spiking:
        _check_second_threshold(network, linear, last)
    return cell if linear is None else linear


def _check_second_threshold(network: Network, neuron: LinearNeuron, last: bool) -> None:
    key = "output_second_threshold" if last else "second_threshold"
    if network.spikes == "sparse" and getattr(network, key) >= neuron.threshold:
        raise MappingError(
            f"network.{key}: {getattr(network, key):g} must be below the threshold of '{neuron.model}', which lies "
            f"{neuron.threshold:g} above the resting potential, or no neuron between them gets a gradient: lower it"
        )


def _neuron(network: Network, index: int) -> LinearNeuron | Cell:
    """The neurons of one layer."""
    last, name = index == len(network.hidden), network.of_layer("neuron", index)
    models = {**models_with(network.models), **_written(network)}
    found = models.get(name) or model_of(name, models)
    if isinstance(found, CellModel):
        return _cell(network, found, index)
    model = found
    if not model.spiking and not (last and network.output == "membrane"):
        raise MappingError(
            f'network.neuron = "{model.name}" never fires; hidden layers need one of '
            f"{', '.join(name for name, record in MODELS.items() if record.spiking)}, and so does the output layer "
            'without output = "membrane"'
        )
    neuron = neuron_of(
        model,
        _parameters(network, model, index),
        reset=network.of_layer("reset", index) or None,
        reset_by=network.reset_by,
        reset_gradient=network.of_layer("reset_gradient", index) or None,
        learned=network.learned.get(network.layers[index], ()),
    )
    _check_second_threshold(network, neuron, last)
    return neuron


def _parameters(network: Network, model: Model | CellModel, index: int) -> dict[str, float | tuple[float, ...]]:
    """What is given of the model's parameters, those of "lif" also by keys of their own."""
    given = dict(network.of_layer("neuron_parameters", index))
    keys = [key for key in OF_LIF_ONLY if key in network.model_fields_set]
    if model is LIF:
        twice = [key for key in keys if key in given]
        if twice:
            raise MappingError(f"network.{twice[0]} is given in network.neuron_parameters too; leave one of them out")
        return {key: network.of_layer(key, index) for key in OF_LIF_ONLY} | given
    # one number for all layers is for those of lif among them
    names = (network.neuron,) if isinstance(network.neuron, str) else network.neuron
    unread = [key for key in keys if LIF.name not in names or isinstance(getattr(network, key), tuple)]
    if unread:
        raise MappingError(
            f'network.{unread[0]} is for neuron = "lif"; leave it out and write network.neuron_parameters with '
            f"{', '.join(parameter.name for parameter in model.parameters) or 'nothing'}"
        )
    return given


def models_with(path: str) -> Models:
    """All models and cells by name: those that come with mimdsim, and those of the file, if one is named.

    Raises DescriptionError where code is not allowed, where the file cannot be run or has none, and for names that are
    taken.
    """
    if not path:
        return SHIPPED
    require_allowed(f"network.models = '{path}'", "workloads")
    file = with_home(path)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        changed = 0  # loading says what is wrong
    return {**SHIPPED, **_of_file(file, changed)}


def _told(path: Path, record: Model | CellModel) -> Model | CellModel:
    """The record, of which a mistake is told with the user's line."""
    what = f"{path}, model '{record.name}'"
    try:
        record = TypeAdapter(type(record)).validate_python(vars(record))
    except ValidationError as wrong:
        found = [(".".join(map(str, each["loc"])), each["msg"]) for each in wrong.errors()]
        problems = [
            f"'{key}': {said.replace('Input should be', 'must be').replace(' valid', '')}" for key, said in found
        ]
        raise DescriptionError(what, problems) from None
    if isinstance(record, Model):
        unknown = [reset for reset in record.resets if reset not in RESETS]
        if unknown or not record.resets:
            said = f"reset '{unknown[0]}' is not one of" if unknown else "'resets' is empty; give one or more of"
            raise DescriptionError(what, [f"{said} {', '.join(RESETS)}"])
        return replace(record, parts=partial(_result, what, record.parts, Parts, "'parts'"))
    if record.gates < 1:
        raise DescriptionError(what, [f"'gates' is {record.gates}; give 1 or more"])
    return replace(record, equations=partial(_result, what, record.equations, dict, "'equations'"))


def _result(what: str, function: Callable[..., Any], wanted: type, field: str, *given: Any) -> Any:
    """What the user's function returns, which must be of this type."""
    found = call_users(what, function, *given)
    if not isinstance(found, wanted):
        raise DescriptionError(what, [f"{field} returns {type(found).__name__}; it must return {wanted.__name__}(..)"])
    return found


@lru_cache(maxsize=16)
def _of_file(path: Path, _changed: int) -> dict[str, Model | CellModel]:
    found: dict[str, Model | CellModel] = {}
    module = load_file(path, "defines neuron models (Model) or cells (CellModel)")
    for record in vars(module).values():
        if not isinstance(record, (Model, CellModel)) or record in SHIPPED.values():
            continue
        if record.name in {*SHIPPED, *found}:
            raise DescriptionError(str(path), [f"a model '{record.name}' is there already: give it another name"])
        found[record.name] = _told(path, record)
    if not found:
        raise DescriptionError(str(path), ["defines no neuron model: a Model or CellModel, see docs/neurons.md"])
    return found
