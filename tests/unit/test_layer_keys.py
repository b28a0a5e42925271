"""Keys of the network that may be a list with one value per layer, and what is read of the output layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from networks import compiled, executed, given_values, interpreted, relative_error, small_network

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.execution.whole_tensors import WholeTensors
from mimdsim.graph import SpikingNetwork
from mimdsim.graph.losses import Loss
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.workload import network_of

SMALL = {"network.hidden": (12, 9), "network.capacity": (12, 9, 10), "training.max_training_steps": 1}
PER_LAYER = {
    "network.neuron": ("leaky", "synaptic", "rleaky"),
    "network.reset": ("zero", "subtract", "zero"),
    "network.reset_gradient": ("mask", "mask", "full"),
    "network.surrogate": ("arctan", "superspike", "sigmoid"),
    "network.surrogate_slope": (2.0, 25.0, 4.0),
    "network.recurrence": ("all_to_all", "none", "one_to_one"),
    "network.bias": (True, False, True),
}


def test_every_layer_has_its_own() -> None:
    network = network_of(mimdsim.load_workload("digits", SMALL | PER_LAYER))
    assert [layer.neuron.model for layer in network.layers] == ["leaky", "synaptic", "rleaky"]
    assert [layer.neuron.reset_gradient for layer in network.layers] == ["mask", "mask", "full"]
    assert [layer.selection.surrogate for layer in network.layers] == ["arctan", "superspike", "sigmoid"]
    assert [layer.selection.slope for layer in network.layers] == [2.0, 25.0, 4.0]
    assert [layer.recurrence for layer in network.layers] == ["all_to_all", "none", "one_to_one"]
    assert [layer.bias for layer in network.layers] == [True, False, True]


def test_one_value_of_recurrence_is_for_hidden_layers() -> None:
    network = network_of(mimdsim.load_workload("digits", SMALL | {"network.recurrence": "all_to_all"}))
    assert [layer.recurrence for layer in network.layers] == ["all_to_all", "all_to_all", "none"]


def test_one_layer_is_one() -> None:
    with pytest.raises(MimdsimError, match=r"capacity: 3 values given for 1 layer \(0 hidden"):
        mimdsim.load_workload("digits", {"network.hidden": []})


@pytest.mark.parametrize("key", PER_LAYER)
def test_a_list_has_one_value_for_every_layer(key: str) -> None:
    with pytest.raises(MimdsimError, match=rf"{key}: 2 values given for 3 layers"):
        mimdsim.load_workload("digits", SMALL | {key: PER_LAYER[key][:2]})


def test_an_unknown_surrogate_is_said_of_its_layer() -> None:
    with pytest.raises(MimdsimError, match=r"layer 'hidden1': .*'superspyke'"):
        mimdsim.load_workload("digits", SMALL | {"network.surrogate": ("arctan", "superspyke", "arctan")})


def trained(network: SpikingNetwork, seed: int = 5) -> Any:
    """A training step by the program, equal to the interpreter's and to that of whole tensors."""
    given = given_values(network, seed)
    outcome, meant = executed(compiled(network), given), interpreted(network, given)
    tensors = WholeTensors(network)
    tensors.write(given.for_program(network))
    tensors.run()
    for name in meant.gradients:
        assert relative_error(outcome.gradients[name], meant.gradients[name]) < 1e-5, name
    for name in network.parameters:
        short = network.parameters[name].short
        assert relative_error(tensors.read(f"next.{name}"), meant.updated[short]) < 1e-5, name
    assert outcome.loss == pytest.approx(meant.loss, rel=1e-5)
    return outcome


def test_layers_that_differ_train_alike_on_all_engines() -> None:
    network = network_of(
        mimdsim.load_workload("digits", SMALL | PER_LAYER | {"data.timesteps": 6, "training.batch": 3})
    )
    trained(replace(network, optimiser=small_network().optimiser))


@pytest.mark.slow
def test_the_mean_over_timesteps_is_the_sum_divided_by_them() -> None:
    added = small_network(loss=Loss(reading="every"))
    averaged = replace(added, loss=Loss(reading="every", over_timesteps="mean"))
    one, other = trained(added), trained(averaged)
    assert other.loss == pytest.approx(one.loss / added.timesteps, rel=1e-6)
    for name, gradient in one.gradients.items():
        np.testing.assert_allclose(other.gradients[name], gradient / added.timesteps, rtol=2e-6, atol=1e-9)


def read_by_membrane(reset: str, unread: bool, gradient: str = "mask", model: str = "leaky") -> SpikingNetwork:
    network = small_network(loss=Loss(reading="every"), delay=0)
    neuron = neuron_of(model, {"threshold": 0.25}, reset=reset, reset_gradient=gradient)
    last = network.layers[-1]
    selection = replace(last.selection, threshold=neuron.threshold, second_threshold=-100.0)
    last = replace(last, neuron=neuron, selection=selection, spiking=False, reset_unread=unread)
    return replace(network, layers=(*network.layers[:-1], last))


@pytest.mark.parametrize("reset", ["zero", "subtract"])
@pytest.mark.parametrize("gradient", ["mask", "full", "pass"])
@pytest.mark.parametrize("model", ["leaky", "synaptic", "lif"])
def test_an_output_read_by_its_membrane_is_reset_where_it_would_spike(reset: str, gradient: str, model: str) -> None:
    seen = trained(read_by_membrane(reset, True, gradient, model)).potentials["output"]
    quiet = trained(read_by_membrane(reset, False, gradient, model)).potentials["output"]
    assert (quiet > 0.25).any()  # it would have spiked
    assert not np.allclose(seen, quiet)


def test_a_reset_that_nobody_sees_is_by_state() -> None:
    network = read_by_membrane("zero", True)
    neuron = replace(network.layers[-1].neuron, reset_by="emission")
    with pytest.raises(MimdsimError, match="spikes that nobody reads are not listed"):
        replace(network.layers[-1], neuron=neuron)
