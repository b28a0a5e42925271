"""Delays that are learned: meant as in PyTorch, on tiles as they are meant, rounded where nothing is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from linear_networks import spike_function
from networks import Given, assert_same_bits, compiled, executed, given_values, interpreted
from test_array_lowering import assert_agree as assert_dense_agree
from test_delays import DENSE, delayed
from test_dropout import drawn, dropping
from test_gpu_execution import assert_same_training_step
from test_wiring import assert_agrees, assert_copies_agree

import mimdsim
from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.execution import initial_weights, scheduled_values
from mimdsim.execution.whole_tensors import refusals
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.derived import Delays, delayed_weights
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.workload import MappingOptions, load_workload, network_of
from mimdsim.workload.interchange.layers import network_of_layers


def learning(ages: int = 3, final_width: float = 0.0625, epsilon: float = 0.0, **changes: Any) -> SpikingNetwork:
    """Three layers, all with delays, whose width is the final one in tests."""
    network = delayed({}, **changes)
    delays = Delays(ages=ages, width=2.0, final_width=final_width, training_steps=10, epsilon=epsilon)
    return replace(network, layers=tuple(replace(layer, delays=delays) for layer in network.layers))


def exact_values(network: SpikingNetwork, seed: int = 3) -> Given:
    """Delays halfway between two ages: at a small width a weight is halved exactly, and sums of spikes do not round."""
    values, draw = drawn(network, seed), np.random.default_rng(seed)
    for layer in network.layers:
        if layer.delays:
            number = draw.integers(0, layer.delays.ages - 1, (layer.inputs, layer.neurons))
            values.arrays[f"delay.{layer.name}"] = (number + 0.5).astype(np.float32)
    return values


@pytest.mark.parametrize("epsilon", [0.0, 1e-7])
def test_gradients_are_those_of_pytorch(epsilon: float) -> None:
    """In float64 all of them; in float32 no further off, over several networks, than PyTorch's own."""
    every = [gradients_off(np.float64, 3, epsilon)]
    assert max(ours for ours, _ in every[0].values()) <= 1e-12
    every = [gradients_off(np.float32, seed, epsilon) for seed in range(3, 11)]
    ours, theirs = ({name: sum(each[name][which] for each in every) for name in every[0]} for which in (0, 1))
    assert sum(ours.values()) <= sum(theirs.values())
    for name in ours:  # sums in another order
        assert ours[name] <= 1.25 * theirs[name], name


def gradients_off(kind_of_ours: Any, seed: int, epsilon: float) -> dict[str, tuple[float, float]]:
    """(ours, PyTorch's in float32) by parameter: how far off gradients are, of the largest. As Hammouamri et al. write
    it: a kernel over time for every synapse, and a convolution of the spikes with it."""
    torch = pytest.importorskip("torch")
    network = learning(final_width=0.75, epsilon=epsilon, **DENSE)
    beta, slope, threshold = 0.75, 10.0, 0.25
    neuron = neuron_of("leaky", {"beta": beta, "threshold": threshold}, reset="subtract", reset_gradient="pass")
    selection = replace(network.layers[0].selection, slope=slope, threshold=threshold)
    layers = [replace(layer, neuron=neuron, selection=selection) for layer in network.layers]
    network = replace(network, layers=tuple(layers))
    values, draw = given_values(network, seed, dyadic=False, dtype=np.float64), np.random.default_rng(1)
    inputs = values.for_graph(network)
    inputs |= {name: inputs[name] / 4 for name in network.parameters}
    inputs |= {name: draw.uniform(0, 2, inputs[name].shape) for name in network.parameters if "delay" in name}
    errors = {}
    for kind in (torch.float64, torch.float32):
        weights = {name: torch.tensor(inputs[name], dtype=kind, requires_grad=True) for name in network.parameters}
        spike = spike_function("superspike", slope)
        sent = torch.tensor(values.dense, dtype=kind)
        for layer in layers:
            age = torch.arange(3, dtype=kind).reshape(3, 1, 1)
            width = float(inputs[f"delay_width.{layer.name}"])
            k = torch.exp(-0.5 * ((age - weights[f"delay.{layer.name}"]) / width) ** 2)
            taps = (weights[f"w.{layer.name}"] * k / (k.sum(0) + epsilon)).permute(2, 1, 0).flip(2)  # [out, in, ages]
            current = torch.nn.functional.conv1d(torch.nn.functional.pad(sent.permute(1, 2, 0), (2, 0)), taps)
            v, out = torch.zeros(network.batch, layer.neurons, dtype=kind), []
            for now in current.permute(2, 0, 1):
                fired = out[-1].detach() if out else 0.0
                v = beta * v + now - threshold * fired
                out.append(spike(v - threshold))
            sent = torch.stack(out)
        loss = torch.nn.functional.cross_entropy(
            network.logit_scale * sent.sum(0), torch.tensor(inputs["labels"].astype(np.int64))
        )
        loss.backward()
        errors[kind] = {name: weight.grad.numpy().astype(np.float64) for name, weight in weights.items()}
    given = {
        name: value.astype(kind_of_ours) if getattr(value, "dtype", None) == np.float64 else value
        for name, value in inputs.items()
    }
    found = interpret(training_graph(network), given)
    distances = {}
    for name, meant in errors[torch.float64].items():
        assert np.abs(meant).max() > 1e-6
        every = (found[f"gradient.{name}"], errors[torch.float32][name])
        ours, theirs = (float(np.abs(each - meant).max() / np.abs(meant).max()) for each in every)
        distances[name] = ours, theirs
    return distances


@pytest.mark.parametrize("delay", [0, 1])
def test_lists_with_delays_run_on_tiles_as_meant(delay: int) -> None:
    network = learning(delay=delay)
    values = exact_values(network)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-7
    made = compiled(network)
    found = executed(made, values)
    assert_agrees(found, expected)
    assert_same_bits(executed(made, values, strict=True), found)


@pytest.mark.parametrize("form", ["calls", "fused"])
def test_dense_spikes_with_delays(form: str) -> None:
    network = learning(recurrence="all_to_all", bias=True, **DENSE)
    values = exact_values(network)
    made = compiled(network, options=MappingOptions(dense_neurons=form))
    found = executed(made, values)
    assert_dense_agree(found, interpreted(network, values))
    assert_same_bits(executed(made, values, strict=True), found)


def test_dropout_of_a_sequence_leaves_out_every_age_of_what_it_drops() -> None:
    network = dropping(learning(**DENSE), 0.5, "sequence")
    values = exact_values(network)
    made = compiled(network)
    found = executed(made, values)
    assert_dense_agree(found, interpreted(network, values))
    assert_same_bits(executed(made, values, strict=True), found)
    graph = training_graph(network)
    made_once = [op.outputs[0] for op in graph.operations if op.kind == "dropout_masks"]
    (scan,) = graph.scans("forward")
    dropped = [op.inputs for op in scan.attributes.body.operations if op.kind == "drop"]
    assert len(made_once) == 3
    assert sorted(mask for _, mask in dropped) == sorted(3 * made_once)
    assert len({spikes for spikes, _ in dropped}) == 9


@pytest.mark.slow
def test_copies_of_a_layer_make_their_share_of_the_weights() -> None:
    network = learning()
    values = exact_values(network)
    assert_copies_agree(network, values)


def test_the_width_shrinks_and_delays_are_rounded_in_the_end() -> None:
    network = learning(final_width=0.5)
    found = [float(scheduled_values(network, None, step, 40)["delay_width.output"][0]) for step in (0, 5, 10, 30)]
    assert found == pytest.approx([2.0, 1.0, 0.5, 0.5])
    assert set(network.without_learning.values()) == {0.0}
    w, delay = np.array([[3.0, 4.0, 5.0, 6.0]]), np.array([[-2.0, 0.6, 1.4, 9.0]])
    np.testing.assert_array_equal(
        np.concatenate(delayed_weights(3, 0.0, w, delay, np.zeros(1))), [[3, 0, 0, 0], [0, 4, 5, 0], [0, 0, 0, 6]]
    )
    first = initial_weights(network, 1, 1.0, 0.0)["delay.hidden1"]
    assert 0 <= first.min() < 0.5
    assert 1.5 < first.max() <= 2


def test_what_cannot_have_delays_is_refused() -> None:
    network = learning()
    layer = network.layers[0]
    with pytest.raises(MappingError, match="dropout would draw for each age"):
        replace(layer, dropout=0.5)
    with pytest.raises(MappingError, match="would be 11 timesteps old, of 9: at most 9 ages"):
        learning(ages=12)
    with pytest.raises(MappingError, match="of an input that is the same in every timestep"):
        learning(encoding="image", **DENSE)


DELAYS = {"ages": 4, "width": 2.0, "training_steps": 20}
KEYS: dict[str, Any] = {
    "network.hidden": (16, 12),
    "network.capacity": (16, 12, 10),
    "network.delays": {"hidden0": DELAYS, "output": DELAYS | {"ages": 3}},
    "network.sources": {"output": ["hidden1@t-2"]},
}
DENSE_KEYS = {**KEYS, "network.spikes": "dense", "network.capacity": ()}


def test_a_workload_says_delays() -> None:
    network = network_of(load_workload("digits", KEYS))
    read = {layer.name: [(each.name, each.lag) for each in network.sources(layer)] for layer in network.layers}
    assert read["hidden0"] == [("input", age) for age in range(4)]
    assert read["output"] == [("hidden1", age) for age in (2, 3, 4)]
    assert [*network.parameters] == ["w.hidden0", "w.hidden1", "w.output", "delay.hidden0", "delay.output"]
    with pytest.raises(MimdsimError, match=r"network\.delays\.hidden7: no such layer"):
        load_workload("digits", {"network.delays": {"hidden7": DELAYS}})


@pytest.mark.slow
@pytest.mark.parametrize("keys", [KEYS, DENSE_KEYS], ids=["lists", "dense"])
def test_the_checker_passes_networks_with_delays(keys: dict[str, Any]) -> None:
    on = "bow" if keys is DENSE_KEYS else "tiny"
    small = keys | {"data.grid": 8}  # a quarter of the pixels
    found = mimdsim.check("digits", on, changes=small, strict=True, batch=4).findings
    assert all(each.passed for each in found), [each.text for each in found if not each.passed]


def test_a_network_trains_its_delays() -> None:
    keys = KEYS | {"training.max_training_steps": 3, "data.timesteps": 10, "training.batch": 8}
    made = mimdsim.run("digits", "bow", changes=keys)
    first = initial_weights(network_of(made.workload), made.workload.seed, 1.0, 0.0)
    assert made.weights["hidden0.delay"].shape == (512, 16)
    assert np.abs(made.weights["hidden0.delay"] - first["delay.hidden0"]).max() > 1e-4
    assert made.profile.training.engine == "program"
    assert "delays that are learned do not run as whole tensors" in refusals(network_of(made.workload))[0]


def test_rounded_delays_are_written_as_weights_at_ages() -> None:
    network = network_of(load_workload("digits", KEYS))
    weights = initial_weights(network, 1, 1.0, 0.0)
    written, _ = network_of_layers(network, weights, 1e-3)
    first = written.populations[0]
    assert [each.lag for each in first.sources] == [0, 1, 2, 3]
    np.testing.assert_array_equal(sum(values for _, values in first.reads), weights["w.hidden0"].astype(np.float64))
    for source, values in first.reads:
        np.testing.assert_array_equal(np.rint(weights["delay.hidden0"])[values != 0], source.lag)


@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "persistent"])
def test_gpus_run_matrices_at_ages_as_meant(strategy: str) -> None:
    assert_same_training_step(learning(final_width=0.75, **DENSE), strategy, 3)
