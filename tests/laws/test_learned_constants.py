"""Constants of neurons that are learned: their gradients, on tiles as they are meant, and in frameworks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import (
    ADAM,
    Given,
    assert_same_spikes,
    central_difference,
    compiled,
    executed,
    given_values,
    interpreted,
    relative_error,
    small_network,
)
from test_batch_norm import normed
from test_convolutions import CHAINS, network_of_planes
from test_whole_tensors_dense import assert_as_exact, draw_norms

import mimdsim
from mimdsim.base.errors import MappingError
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.layer import Source
from mimdsim.graph.names import gradient_of
from mimdsim.graph.neuron_models import MODELS, neuron_of
from mimdsim.workload import MappingOptions, load_workload, network_of
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_walk import network_of_nir
from mimdsim.workload.interchange.nir_writing import export_nir
from mimdsim.workload.interchange.weights_file import write_safetensors

LEARNING: dict[str, tuple[str, dict[str, Any], tuple[str, ...], str]] = {
    "decay": ("leaky", {"beta": 0.75}, ("beta",), "subtract"),
    "decays": ("leaky", {"beta": [0.75, 0.5, 0.875, 0.625, 0.25]}, ("beta",), "zero"),
    "threshold": ("leaky", {"beta": 0.75, "threshold": 0.5}, ("threshold",), "subtract"),
    "both": ("rleaky", {"beta": 0.75, "threshold": [0.5, 0.75, 1.0, 0.5, 0.625]}, ("beta", "threshold"), "subtract"),
    "two decays": ("synaptic", {"alpha": 0.5, "beta": 0.75}, ("alpha", "beta"), "subtract"),
    "a share": ("spikingjelly_plif", {"share": 0.5, "v_threshold": 0.25}, ("share",), "zero"),
    "a share alone": ("spikingjelly_plif", {"share": 0.25, "decay_input": 0.0}, ("share",), "subtract"),
    "adaptive": ("adaptive", {"beta": 0.75, "kappa": 0.25}, ("beta",), "subtract"),
}


def learning(case: str, *, gradient: str = "full", reset_by: str = "state", **how: Any) -> SpikingNetwork:
    """A network of 6 inputs and layers of 5, 5 and 4, of which the hidden ones learn constants."""
    model, parameters, names, reset = LEARNING[case]
    network = small_network((6, 5, 5, 4), optimiser=ADAM, **({"timesteps": 7, "batch": 3} | how))
    neuron = neuron_of(model, parameters, reset=reset, reset_by=reset_by, reset_gradient=gradient, learned=names)
    layers = [
        replace(layer, neuron=neuron, selection=replace(layer.selection, threshold=neuron.threshold, slope=5.0))
        for layer in network.layers[:-1]
    ]
    return replace(network, layers=(*layers, network.layers[-1]))


@pytest.mark.first(2)
@pytest.mark.parametrize("case", LEARNING)
def test_gradients_are_those_of_finite_differences(case: str) -> None:
    network = learning(case, spikes="dense", smooth=True, gain=0.3, delay=0)
    values = given_values(network, 5, dyadic=False, dtype=np.float64)
    graph, given = training_graph(network), values.for_graph(network)
    found = interpret(graph, given)
    learned = [name for name, parameter in network.trained.items() if parameter.constant]
    assert len(learned) == 2 * len(LEARNING[case][2])
    for name in (*learned, "w.hidden0"):
        expected = central_difference(graph, given, name, (0, -1))
        assert found[f"gradient.{name}"][0, -1] == pytest.approx(expected, rel=1e-4, abs=1e-9)
        assert expected


def agrees(made: Any, network: SpikingNetwork, values: Given, *, strict: bool = False) -> None:
    """A program leaves what the interpreter says: spikes bit for bit, gradients and updates but for rounding."""
    meant, found = interpreted(network, values), executed(made, values, strict=strict)
    assert_same_spikes(meant, found)
    np.testing.assert_array_equal(meant.counts, found.counts)
    for name, gradient in meant.gradients.items():
        shared = gradient.shape == (1, 1)  # a sum over all neurons, whose terms may cancel
        assert relative_error(found.gradients[name], gradient) < (1e-4 if shared else 1e-5)
        assert relative_error(found.updated[name], meant.updated[name]) < 1e-5
    assert any(np.abs(found.gradients[each.short]).max() > 0 for each in network.trained.values() if each.constant)


@pytest.mark.slow
@pytest.mark.first(2)
@pytest.mark.parametrize("gradient", ["mask", "full", "pass"])
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("case", LEARNING)
def test_tiles_learn_what_is_meant(case: str, spikes: str, gradient: str) -> None:
    network = learning(case, spikes=spikes, gradient=gradient)
    agrees(compiled(network), network, given_values(network, 3))


WHOLE: dict[str, dict[str, Any]] = {
    "dense": {"spikes": "dense"},
    "dense recurrent": {"spikes": "dense", "recurrence": "all_to_all", "bias": True, "delay": 0},
    "lists": {},
    "lists by emission": {"reset_by": "emission", "capacities": (3, 3, 4)},
    "lists at random": {"truncation": "random", "capacities": (3, 3, 4), "delay": 0},
    "lists recurrent": {"recurrence": "all_to_all", "bias": True},
}


@pytest.mark.first(2)
@pytest.mark.parametrize("how", WHOLE)
@pytest.mark.parametrize("gradient", ["full", "mask", "pass"])
@pytest.mark.parametrize("case", LEARNING)
def test_whole_tensors_learn_what_is_meant(case: str, gradient: str, how: str) -> None:
    network = learning(case, gradient=gradient, **WHOLE[how])
    values = given_values(network, 3, dtype=np.float64)
    engine, other = (assert_as_exact(network, values, threads) for threads in (1, 3))
    for each in network.trained.values():
        found = engine.read(gradient_of(each.name))
        assert np.abs(found).max() > 0
        assert found.tobytes() == other.read(gradient_of(each.name)).tobytes()


def learning_elsewhere(name: str) -> SpikingNetwork:
    """Constants of layers of several blocks, of channels, behind norms, of layers that read each other, of an output
    that is read by its potential."""
    wide = small_network((12, 70, 6, 4), spikes="dense" if "dense" in name else "sparse", delay=0, bias=True)
    planes = network_of_planes(*CHAINS["two" if "norm" in name else "max after"], delay=0, gain=10.0, bias=True)
    network = {"planes": planes, "planes, norm": normed(planes, "timestep")}.get(name, wide)
    first, *others, last = network.layers
    constants = {"beta": np.linspace(0.25, 0.75, first.columns).tolist(), "threshold": 0.5}
    how: dict[str, Any] = {"reset": "subtract", "reset_gradient": "full"}
    neuron = neuron_of("leaky", constants, learned=("beta", "threshold"), **how)
    learned = replace(first, neuron=neuron, selection=replace(first.selection, threshold=neuron.threshold))
    if "loop" in name:
        learned = replace(learned, sources=(Source(name="input", neurons=12), Source(name="hidden1", neurons=6)))
    read = neuron_of("synaptic", {}, learned=("alpha", "beta"), **how)
    last = replace(last, neuron=read, spiking=False, reset_unread="reset" in name)
    return replace(network, layers=(learned, *others, last))


@pytest.mark.parametrize("name", ["planes", "planes, norm", *(
    f"{form}{how}" for form in ("lists", "dense") for how in ("", " in a loop", " with a reset")
)])  # fmt: skip
def test_whole_tensors_learn_constants_elsewhere(name: str) -> None:
    network = learning_elsewhere(name)
    values = draw_norms(network, 3) if network.averages else given_values(network, 3, dtype=np.float64)
    engine, other = (assert_as_exact(network, values, threads) for threads in (1, 3))
    for each in network.trained.values():
        found = engine.read(gradient_of(each.name))
        assert np.abs(found).max() > 0, each.name
        assert found.tobytes() == other.read(gradient_of(each.name)).tobytes()
    some = replace(network, frozen=("c.hidden0.beta", "c.output.alpha"))
    assert_as_exact(some, values)
    engine.write({"c.hidden0.beta": np.full((1, network.layers[0].columns), 1.25, np.float32)})
    engine.run()
    assert not engine.read("gradient.c.hidden0.beta").any(), "beyond its bounds"


HOW: dict[str, dict[str, Any]] = {
    "strictly": {"strict": True},
    "two copies": {"options": MappingOptions(split={"hidden0": {"batch": 2, "neurons": 2}})},
    "parts of the fan-in": {"options": MappingOptions(split={"hidden0": {"inputs": 2, "neurons": 2}})},
    "two chips": {"chips": 2},
    "copies on chips": {"chips": 2, "options": MappingOptions(split={"hidden1": {"chips": 2, "neurons": 2}})},
    "stash": {"options": MappingOptions(stash="every:2")},
    "rows": {"options": MappingOptions(spike_exchange="dense")},
    "replicas": {"options": MappingOptions(weight_gradient_replicas=3, neurons_per_tile=2)},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", ["both", "a share"])
def test_however_a_layer_is_laid_out(case: str, how: str) -> None:
    network = learning(case, batch=4, timesteps=4)
    strict, given = HOW[how].get("strict", False), {k: v for k, v in HOW[how].items() if k != "strict"}
    agrees(compiled(network, **given), network, given_values(network, 3), strict=strict)


@pytest.mark.parametrize("neurons", ["calls", "fused"])
def test_dense_spikes_strictly(neurons: str) -> None:
    network = learning("both", spikes="dense", timesteps=4)
    made = compiled(network, options=MappingOptions(dense_neurons=neurons))
    agrees(made, network, given_values(network, 3), strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["both", "two decays"])
def test_a_reset_by_emission_and_recurrence(case: str) -> None:
    network = learning(case, reset_by="emission", gradient="full", recurrence="all_to_all", bias=True)
    agrees(compiled(network), network, given_values(network, 3))


def test_coefficients_that_are_equal_are_one() -> None:
    """A decay stands in both maps, a threshold in the reset and in the comparison."""
    neuron = neuron_of("leaky", {}, reset="subtract", learned=("beta", "threshold"))
    assert [len(places) for places in neuron.rows] == [2, 1, 1]
    assert neuron_of("synaptic", {"alpha": 0.5, "beta": 0.5}, learned=("alpha",)).rows != neuron_of("synaptic", {}).rows


def test_neurons_that_learn_otherwise_are_others() -> None:
    """A share is learned through a sigmoid, or as it is, within bounds."""
    neuron = neuron_of("spikingjelly_plif", {}, learned=("share",))
    for change in ({"link": "clamp"}, {"high": 0.75}, {"name": "other"}, {"lift": np.ones(1)}):
        other = replace(neuron, learned=(replace(neuron.learned[0], **change),))
        assert other != neuron


def test_a_decay_is_used_within_its_bounds_and_learns_nothing_beyond() -> None:
    network = learning("decay", spikes="dense")
    values = given_values(network, 3)
    beyond = {"c.hidden0.beta": np.array([[1.25]], np.float32)}
    at_one = {"c.hidden0.beta": np.array([[1.0]], np.float32)}
    graph, given = training_graph(network), values.for_graph(network)
    outside, edge = interpret(graph, given | beyond), interpret(graph, given | at_one)
    assert outside["loss"] == edge["loss"]
    assert not outside["gradient.c.hidden0.beta"].any()
    assert edge["gradient.c.hidden0.beta"].any()


REFUSED = {
    "beta, beta; name each once": ("leaky", ("beta", "beta")),
    "model 'leaky' has no parameter 'bta'; did you mean 'beta'?": ("leaky", ("bta",)),
    "do not grow linearly with tau": ("spikingjelly_lif", ("tau",)),
    "do not grow linearly with decay and current_gain": ("lif", ("decay", "current_gain")),
    "kappa changes what is read from the states": ("adaptive", ("kappa",)),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_learned_is_refused_by_name(said: str) -> None:
    model, names = REFUSED[said]
    with pytest.raises(MappingError, match=r"network\.learned") as refused:
        neuron_of(model, {}, learned=names)
    assert said in str(refused.value)


def test_no_constant_is_called_as_a_parameter_of_layers() -> None:
    """'hidden0.bias' is one thing in results and in training.frozen."""
    (beta, *others), parts = MODELS["leaky"].parameters, MODELS["leaky"].parts
    parameters = (replace(beta, name="bias"), *others)
    own = replace(MODELS["leaky"], parameters=parameters, parts=lambda p: parts({**p, "beta": p["bias"]}))
    assert neuron_of(own) == neuron_of("leaky")
    with pytest.raises(MappingError, match="'bias' is a parameter that layers have"):
        neuron_of(own, learned=("bias",))


def test_other_numbers_per_neuron_have_to_be_learned_too() -> None:
    network = learning("decay", spikes="dense")
    neuron = neuron_of("leaky", {"beta": [0.5, 0.6, 0.7, 0.8, 0.9]}, learned=("threshold",))
    network = replace(network, layers=(replace(network.layers[0], neuron=neuron), *network.layers[1:]))
    with pytest.raises(MappingError, match=r"learn it too and name it in training\.frozen"):
        compiled(network)
    whole = neuron_of("leaky", {"beta": [0.5, 0.6, 0.7, 0.8, 0.9]}, learned=("threshold", "beta"))
    network = replace(network, layers=(replace(network.layers[0], neuron=whole), *network.layers[1:]))
    some = replace(network, frozen=("c.hidden0.beta",))
    agrees(compiled(some), some, given_values(some, 3))
    for of, known in ((network, (2, 3)), (some, (1, 2))):
        graph = training_graph(of)
        summed = [op.kind for op in graph.scan("backward").attributes.body.operations if op.layer == "hidden0"]
        learned = [op for op in graph.operations if op.kind == "constant_gradient" and op.layer == "hidden0"]
        assert (len(learned), summed.count("coefficient_gradient")) == known, "nothing of what is frozen"


def test_a_membrane_that_is_read_has_no_threshold() -> None:
    """Thresholds of single neurons, or learned ones, are no part of the potential of an output without reset."""
    layer = small_network((6, 5, 4)).layers[-1]
    neuron = neuron_of("leaky", {"threshold": [0.5, 1.0, 1.5, 2.0]}, learned=("beta", "threshold"))
    last = replace(layer, neuron=neuron, spiking=False)
    assert not last.acting_neuron.offset.any()
    assert [parameter.constant for parameter in last.parameters if parameter.constant] == ["beta"]
    with pytest.raises(MappingError, match="nearest: one fixed threshold for the layer"):
        replace(last, reset_unread=True)


@pytest.mark.slow
def test_a_workload_says_what_is_learned(tmp_path: Path) -> None:
    """Its weights, in results and NIR files, are what it learned."""
    changes = {
        "network.neuron": "leaky",
        "network.hidden": [12, 8],
        "network.capacity": [12, 8, 10],
        "network.learned": {"hidden0": ["beta", "threshold"], "output": ["beta"]},
        "training.frozen": ["output.beta"],
        "training.max_training_steps": 4,
        "training.learning_rate": 0.01,
        "training.evaluate": "never",
    }
    workload = load_workload("digits", changes)
    result = mimdsim.run(workload, "tiny", gpus=("a100",))
    assert result.profile.training is not None
    assert result.profile.training.engine == "whole_tensors"
    assert result.weights["hidden0.beta"].shape == (1, 1)
    assert result.weights["hidden0.beta"] != pytest.approx(0.9, abs=1e-4)
    assert result.weights["output.beta"] == pytest.approx(0.9)
    path = tmp_path / "made.nir"
    names = {parameter.public: name for name, parameter in network_of(workload).parameters.items()}
    write_safetensors(tmp_path / "w.safetensors", {names[name]: each for name, each in result.weights.items()})
    export_nir(workload, tmp_path / "w.safetensors", path)
    first = network_of_nir(path, read_nir(path)).populations[0].dynamics
    np.testing.assert_allclose(first.threshold, result.weights["hidden0.threshold"].item(), rtol=1e-5)
    np.testing.assert_allclose(first.decay, result.weights["hidden0.beta"].item(), rtol=1e-5)
