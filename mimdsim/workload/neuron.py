"""The neurons that a workload describes: the published one, or a model of the linear family."""

from __future__ import annotations

from mimdsim.base.errors import MappingError
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.neuron_models import MODELS, model_of, neuron_of
from mimdsim.graph.neurons import Lif
from mimdsim.graph.surrogates import known_surrogate
from mimdsim.workload.sections import Network

OF_LIF_ONLY = ("decay", "current_gain", "threshold")


def neurons_of(network: Network) -> Lif | LinearNeuron:
    """The neurons of every layer; raises MappingError for inconsistent keys."""
    known_surrogate(network.surrogate)
    if network.neuron == "lif":
        return _published(network)
    model = model_of(network.neuron)
    if not model.spiking:
        raise MappingError(
            f'network.neuron = "{model.name}" never fires; hidden layers need one of '
            f"{', '.join(name for name, record in MODELS.items() if record.spiking)}"
        )
    for key in OF_LIF_ONLY:
        if getattr(network, key) != type(network).model_fields[key].default:
            raise MappingError(
                f'network.{key} is for neuron = "lif"; leave it out and write network.neuron_parameters with '
                f"{', '.join(parameter.name for parameter in model.parameters)}"
            )
    neuron = neuron_of(
        model.name,
        dict(network.neuron_parameters),
        reset=network.reset or None,
        reset_by=network.reset_by,
        reset_gradient=network.reset_gradient or "mask",
    )
    for key in ("second_threshold", "output_second_threshold"):
        if getattr(network, key) >= neuron.threshold:
            raise MappingError(
                f"network.{key}: {getattr(network, key):g} must be below the threshold of '{model.name}', which lies "
                f"{neuron.threshold:g} above the resting potential: lower it"
            )
    return neuron


def _published(network: Network) -> Lif:
    if network.neuron_parameters:
        raise MappingError(
            'network.neuron_parameters is for models; neuron = "lif" takes network.decay, current_gain and threshold'
        )
    if network.reset not in ("", "zero") or network.reset_by != "state" or network.reset_gradient == "full":
        raise MappingError(
            'network.neuron = "lif" resets to zero by state, with a reset gradient of "pass" or "mask"; for others '
            f"write network.neuron = one of {', '.join(MODELS)}"
        )
    return Lif(
        decay=network.decay,
        gain=network.current_gain,
        threshold=network.threshold,
        reset_gradient=network.reset_gradient or "pass",
    )
