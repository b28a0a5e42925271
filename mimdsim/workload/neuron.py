"""The neurons that a workload describes: a row of the table of models with its parameters."""

from __future__ import annotations

from mimdsim.base.errors import MappingError
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.neuron_models import MODELS, model_of, neuron_of
from mimdsim.graph.neuron_parts import Model
from mimdsim.graph.neurons import LIF
from mimdsim.graph.surrogates import known_surrogate
from mimdsim.workload.sections import Network

OF_LIF_ONLY = tuple(parameter.name for parameter in LIF.parameters)  # keys of their own in the description


def neurons_of(network: Network) -> LinearNeuron:
    """The neurons of every layer; raises MappingError for keys that do not go together."""
    known_surrogate(network.surrogate)
    model = model_of(network.neuron)
    if not model.spiking:
        raise MappingError(
            f'network.neuron = "{model.name}" never fires; hidden layers need one of '
            f"{', '.join(name for name, record in MODELS.items() if record.spiking)}"
        )
    neuron = neuron_of(
        model.name,
        _parameters(network, model),
        reset=network.reset or None,
        reset_by=network.reset_by,
        reset_gradient=network.reset_gradient or None,
    )
    for key in ("second_threshold", "output_second_threshold"):
        if getattr(network, key) >= neuron.threshold:
            raise MappingError(
                f"network.{key}: {getattr(network, key):g} must be below the threshold of '{model.name}', which lies "
                f"{neuron.threshold:g} above the resting potential, or no neuron between them gets a gradient: lower it"
            )
    return neuron


def _parameters(network: Network, model: Model) -> dict[str, float | tuple[float, ...]]:
    """What is given of the model's parameters, those of "lif" also by keys of their own."""
    given = dict(network.neuron_parameters)
    keys = [key for key in OF_LIF_ONLY if key in network.model_fields_set]
    if model is LIF:
        twice = [key for key in keys if key in given]
        if twice:
            raise MappingError(f"network.{twice[0]} is given in network.neuron_parameters too; leave one of them out")
        return {key: getattr(network, key) for key in OF_LIF_ONLY} | given
    if keys:
        raise MappingError(
            f'network.{keys[0]} is for neuron = "lif"; leave it out and write network.neuron_parameters with '
            f"{', '.join(parameter.name for parameter in model.parameters)}"
        )
    return given
