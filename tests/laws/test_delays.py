"""Layers that read spikes of any age, several of one source too: meant as in PyTorch, and on tiles as it is meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from linear_networks import spike_function
from networks import (
    ADAM,
    assert_same_bits,
    compiled,
    executed,
    given_values,
    interpreted,
)
from test_array_lowering import assert_agree as assert_dense_agree
from test_chips import compiled as compiled_on_chips
from test_convolutions import PLAIN, after, network_of_planes
from test_dropout import drawn
from test_gpu_execution import assert_same_training_step
from test_inference import assert_same_forward
from test_sources import assert_nir_has, network_reading
from test_stash import assert_policy
from test_timing import ISSUE, slow_cycles
from test_whole_tensors import assert_alike, assert_as_meant, outcome, run_whole
from test_wiring import assert_agrees

from mimdsim.base.errors import MappingError
from mimdsim.checking.program import shrunk
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.layer import Source
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.operations import Scan
from mimdsim.machine import load_machine
from mimdsim.pipeline.findings import input_distances
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.workload import MappingOptions, filled_activity, load_workload, network_of

Sources = dict[str, tuple[str, ...]]
OLD: Sources = {"hidden1": ("hidden0@t-3",), "output": ("hidden1@t-2", "hidden0@t-5")}
SYNAPSES: Sources = {  # delays by synapse: one source at several ages
    "hidden0": ("input", "input@t-2", "input@t-4"),
    "hidden1": ("hidden0@t", "hidden0@t-1", "hidden0@t-3"),
}
LATE_INPUT: Sources = {"hidden0": ("input@t-2",), "output": ("hidden1", "input@t-1")}
FEEDBACK: Sources = {"hidden0": ("input", "hidden1@t-3", "output@t-2"), "hidden1": ("hidden0@t-2",)}
GRAPHS = {"old": OLD, "synapses": SYNAPSES, "late input": LATE_INPUT, "feedback": FEEDBACK}
FORWARD = {name: GRAPHS[name] for name in ("old", "synapses", "late input")}
DENSE: dict[str, Any] = {"spikes": "dense", "capacities": None}


def delayed(sources: Sources, **changes: Any) -> SpikingNetwork:
    """Three layers, of which all weights have gradients within the timesteps."""
    return network_reading(sources, **({"timesteps": 9, "delay": 0, "optimiser": ADAM} | changes))


@pytest.mark.first(2)
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_gradients_are_those_of_a_loop_in_pytorch(sources: Sources) -> None:
    torch = pytest.importorskip("torch")
    network = delayed(sources, **DENSE)
    beta, slope, threshold = 0.75, 10.0, 0.25
    neuron = neuron_of("leaky", {"beta": beta, "threshold": threshold}, reset="subtract", reset_gradient="pass")
    selection = replace(network.layers[0].selection, slope=slope, threshold=threshold)
    layers = [replace(layer, neuron=neuron, selection=selection) for layer in network.layers]
    network = replace(network, layers=tuple(layers))
    values = given_values(network, 3, dyadic=False, dtype=np.float64)
    graph = training_graph(network)
    inputs = values.for_graph(network)
    inputs |= {name: inputs[name] / 4 for name in network.parameters}
    found = interpret(graph, inputs)
    weights = {name: torch.tensor(inputs[name], requires_grad=True) for name in network.parameters}
    spike = spike_function("superspike", slope)
    dense = torch.tensor(values.dense.astype(np.float64))
    sent: dict[str, list[Any]] = {"input": list(dense)} | {layer.name: [] for layer in layers}
    v = {layer.name: torch.zeros(network.batch, layer.neurons, dtype=torch.float64) for layer in layers}
    for t in range(network.timesteps):
        for layer in layers:
            current = 0.0
            for source, parameter in zip(network.sources(layer), layer.parameters, strict=True):
                if t >= (source.lag or 0):
                    current = current + sent[source.name][t - (source.lag or 0)] @ weights[parameter.name]
            fired = sent[layer.name][-1].detach() if t else 0.0
            v[layer.name] = beta * v[layer.name] + current - threshold * fired
            sent[layer.name].append(spike(v[layer.name] - threshold))
    logits = network.logit_scale * torch.stack(sent["output"]).sum(0)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(inputs["labels"].astype(np.int64)))
    loss.backward()
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-12)
    for name, weight in weights.items():
        meant = weight.grad.numpy()
        assert np.abs(meant).max() > 1e-6
        np.testing.assert_allclose(found[f"gradient.{name}"], meant, atol=1e-12 * np.abs(meant).max())


@pytest.mark.parametrize("exchange", ["ids", "dense"])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_lists_of_any_age_run_on_tiles_as_it_is_meant(sources: Sources, delay: int, exchange: str) -> None:
    network = delayed(sources, delay=delay)
    values = given_values(network, 3)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-7
    made = compiled(network, options=MappingOptions(spike_exchange=exchange))
    found = executed(made, values)
    assert_agrees(found, expected)
    if exchange == "ids":
        assert_same_bits(executed(made, values, strict=True), found)


@pytest.mark.first(2)
@pytest.mark.parametrize("recurrence", ["one_to_one", "all_to_all"])
@pytest.mark.parametrize("sources", [OLD, FEEDBACK], ids=["old", "feedback"])
def test_layers_that_read_themselves_and_older_spikes(sources: Sources, recurrence: str) -> None:
    network = delayed(sources, recurrence=recurrence, bias=True)
    values = given_values(network, 3)
    assert_agrees(executed(compiled(network), values), interpreted(network, values))


@pytest.mark.first(2)
@pytest.mark.parametrize("recurrence", ["none", "all_to_all"])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_dense_spikes_of_any_age(sources: Sources, delay: int, recurrence: str) -> None:
    network = delayed(sources, delay=delay, recurrence=recurrence, **DENSE)
    values = given_values(network, 3)
    made = compiled(network)
    found = executed(made, values)
    assert_dense_agree(found, interpreted(network, values))
    if delay == 0:
        assert_same_bits(executed(made, values, strict=True), found)


@pytest.mark.first(2)
@pytest.mark.parametrize("stash", ["carry", "every:3"])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_what_is_made_anew_reads_any_age(sources: Sources, stash: str) -> None:
    assert_policy(delayed(sources), stash)


@pytest.mark.first(2)
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_copies_and_parts_of_layers(sources: Sources, inputs: int) -> None:
    network = delayed(sources)
    split = {layer.name: {"batch": 3, "neurons": 2, "inputs": inputs} for layer in network.layers}
    values = given_values(network, 3)
    found = executed(compiled(network, tiles=48, options=MappingOptions(split=split)), values)
    assert_agrees(found, interpreted(network, values))


@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_layers_on_two_chips(sources: Sources) -> None:
    network = delayed(sources, widths=(12, 10, 8, 4))
    made = compiled_on_chips(network, 3, 6, neurons_per_tile=2)
    assert made.placement.chips == 2
    values = given_values(network, 3)
    assert_agrees(executed(made, values), interpreted(network, values))


@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_cycles_are_counted_as_recorded(sources: Sources) -> None:
    network = delayed(sources)
    program, activity = compiled(network).program, filled_activity(network, 0.5)
    loads = program_loads(program, activity, ISSUE)
    assert [load.cycles_by_execution[:, 0].tolist() for load in loads] == slow_cycles(program, activity, ISSUE)


@pytest.mark.first(2)
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "persistent"])
def test_gpu_kernels_take_any_age(strategy: str, spikes: str) -> None:
    for sources in (OLD, SYNAPSES):
        assert_same_training_step(delayed(sources, **(DENSE if spikes == "dense" else {})), strategy, 3)


@pytest.mark.first(2)
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_whole_tensors_take_any_age(sources: Sources, spikes: str) -> None:
    if spikes == "sparse":
        assert_as_meant(delayed(sources))
        return
    network = delayed(sources, **DENSE)
    values = given_values(network, 3)
    found = outcome(run_whole(network, values), network)
    assert_alike(replace(found, ids={}, listed={}), interpreted(network, values), network)


@pytest.mark.first(2)
@pytest.mark.parametrize("sources", FORWARD.values(), ids=FORWARD)
def test_a_nir_file_has_all_ages(sources: Sources) -> None:
    assert_nir_has(delayed(sources, capacities=None))


def test_only_ages_that_somebody_reads_are_carried() -> None:
    network = delayed({"hidden1": ("hidden0", "hidden0@t-3")})
    scan: Scan = training_graph(network).scan("forward").attributes
    spikes = [(carry.enters, carry.leaves) for carry in scan.carries if carry.enters.startswith("spikes")]
    assert spikes == [
        ("spikes.hidden0.previous", "spikes.hidden0"),
        ("spikes.hidden0.t-2", "spikes.hidden0.previous"),
        ("spikes.hidden0.t-3", "spikes.hidden0.t-2"),
    ]
    assert [*network.parameters] == ["w.hidden0", "w.hidden1", "w.hidden1.from.hidden0@t-3", "w.output"]


def test_a_workload_says_ages() -> None:
    keys = {"network.hidden": (24, 16), "network.capacity": (24, 16, 10)}
    sources = {"hidden0": ["input", "input@t-4"], "output": ["hidden1@t-2", "hidden1@t-12"]}
    network = network_of(load_workload("digits", keys | {"network.sources": sources}))
    read = {layer.name: [(each.name, each.lag) for each in network.sources(layer)] for layer in network.layers}
    assert read["hidden0"] == [("input", 0), ("input", 4)]
    assert read["output"] == [("hidden1", 2), ("hidden1", 12)]
    assert input_distances(network)["output"] == 3


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("sources", "changes", "said"),
    [
        ({"hidden0": ("input@t-9",)}, {}, "cannot read 'input' 9 timesteps old: of 9 timesteps"),
        ({"hidden0": ("input", "hidden1@t")}, {}, "cannot read 'hidden1' 0 timesteps old"),
        ({"hidden1": ("hidden0@t-2", "hidden0@t-2")}, {}, "name each once, or with other ages each"),
        ({"hidden1": ("hidden0@t-2", "hidden0")}, {}, "at several ages; write that of the second too, as in"),
        ({"hidden0": ("input@t-1",)}, {"encoding": "image", **DENSE}, "the same in every timestep: leave the age out"),
    ],
)  # fmt: skip
def test_ages_that_make_no_network_are_refused(sources: Sources, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(MappingError, match=said):
        delayed(sources, **changes)


def test_traced_calls_hand_on_no_older_spikes() -> None:
    with pytest.raises(MappingError, match="spikes of 'hidden0' are read 2 timesteps later, which a traced call"):
        compiled(delayed(OLD, **DENSE), options=MappingOptions(dense_neurons="traced"))


@pytest.mark.slow
def test_planes_of_any_age() -> None:
    second = after(PLAIN, 2, 4)
    network = network_of_planes(PLAIN, second, timesteps=7, delay=0)
    first, middle, output = network.layers
    middle = replace(middle, sources=(Source(name="hidden0", neurons=PLAIN.result.neurons, lag=2),))
    read = tuple(
        Source(name=name, neurons=made.result.neurons, lag=lag)
        for name, made, lag in (("hidden1", second, 3), ("hidden1", second, 1), ("hidden0", PLAIN, 3))
    )
    network = replace(network, layers=(first, middle, replace(output, sources=read)))
    values = given_values(network, 3)
    expected, made = interpreted(network, values), compiled(network)
    for strict in (False, True):
        assert_dense_agree(executed(made, values, strict=strict), expected)
    found = outcome(run_whole(network, values), network)
    assert_alike(replace(found, ids={}, listed={}), expected, network)


@pytest.mark.parametrize("per", ["timestep", "sequence"])
def test_every_age_of_a_source_has_dropout_of_its_own(per: str) -> None:
    network = delayed(SYNAPSES, **DENSE)
    layers = tuple(replace(layer, dropout=0.25, dropout_per=per) for layer in network.layers)
    network = replace(network, layers=layers)
    values = drawn(network, 3)
    assert_dense_agree(executed(compiled(network), values), interpreted(network, values))


@pytest.mark.slow
@pytest.mark.first(2)
@pytest.mark.parametrize("exchange", ["ids", "dense"])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_inference_reads_any_age(sources: Sources, exchange: str) -> None:
    assert_same_forward(delayed(sources), MappingOptions(spike_exchange=exchange), 3)


def test_gpu_kernels_copy_no_older_spikes() -> None:
    """A kernel each way zeroes what was before the first timestep; none runs in every timestep."""
    for spikes in ({}, DENSE):
        made = [
            lower_to_kernels(
                training_graph(delayed({"hidden1": (f"hidden0@t-{age}",)}, **spikes)),
                STRATEGIES["as_published"], precision="fp32",
            ).kernels
            for age in (1, 4)
        ]  # fmt: skip
        repeated = [[(kernel.op, kernel.times) for kernel in kernels if kernel.times > 1] for kernels in made]
        assert repeated[0] == repeated[1]


def test_a_check_runs_long_enough_to_read_the_oldest() -> None:
    keys = {"network.hidden": (16, 12), "network.capacity": (8, 6, 10), "network.sources": {"hidden0": ["input@t-7"]}}
    assert shrunk(load_workload("digits", keys), 6, 4, load_machine("bow")).data.timesteps == 10
    assert shrunk(load_workload("digits", keys | {"data.timesteps": 8}), 6, 4, load_machine("bow")).data.timesteps == 8
