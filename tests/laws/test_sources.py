"""Layers that read several others, the input, or a layer after them: on tiles and as whole tensors as it is meant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import (
    ADAM,
    MAPPINGS,
    SEEDS,
    SMALL,
    assert_same_bits,
    compiled,
    executed,
    given_values,
    interpreted,
    networks,
    small_network,
)
from test_array_lowering import assert_agree as assert_dense_agree
from test_chips import compiled as compiled_on_chips
from test_gpu_execution import assert_same_training_step
from test_stash import assert_policy
from test_timing import ISSUE, slow_cycles
from test_whole_tensors import assert_as_meant
from test_wiring import assert_agrees

from mimdsim.base.errors import MappingError
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.graph.layer import Source
from mimdsim.graph.network import INPUT
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.workload import MappingOptions, filled_activity

SKIP = {"hidden1": ("hidden0", "input"), "output": ("hidden1", "hidden0")}
FEEDBACK = {"hidden0": ("input", "hidden1"), "hidden1": ("hidden0", "output")}
POPULATIONS = {"hidden0": ("input", "hidden1"), "hidden1": ("hidden0", "input"), "output": ("hidden0",)}  # E and I
PARALLEL = {"hidden1": ("input",), "output": ("hidden0", "hidden1")}
GRAPHS = {"skip": SKIP, "feedback": FEEDBACK, "populations": POPULATIONS, "parallel": PARALLEL}


def reading(network: SpikingNetwork, sources: dict[str, tuple[str, ...]]) -> SpikingNetwork:
    """The network with layers that read `sources` by name."""
    widths = {INPUT: network.inputs} | {layer.name: layer.neurons for layer in network.layers}
    layers = tuple(
        replace(
            layer,
            inputs=widths[sources[layer.name][0]],
            reads=sources[layer.name][0],
            also_reads=tuple(Source(name=name, neurons=widths[name]) for name in sources[layer.name][1:]),
        )
        if layer.name in sources
        else layer
        for layer in network.layers
    )
    return replace(network, layers=layers)


def network_reading(sources: dict[str, tuple[str, ...]], **changes: object) -> SpikingNetwork:
    """Three layers that all fire; capacities below the widths so that spikes are dropped."""
    shape = {"timesteps": 5, "batch": 3, "gain": 20.0, "capacities": (6, 4, 3), "reset_gradient": "mask"} | changes
    widths = shape.pop("widths", (9, 8, 6, 4))
    return reading(small_network(widths, **shape), sources)  # type: ignore[arg-type]


@pytest.mark.first(2)
@pytest.mark.parametrize("exchange", ["ids", "dense"])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_every_graph_of_layers_runs_on_tiles_as_it_is_meant(
    sources: dict[str, tuple[str, ...]], delay: int, exchange: str
) -> None:
    network = network_reading(sources, delay=delay, optimiser=ADAM)
    values = given_values(network, 3)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-6
    made = compiled(network, options=MappingOptions(spike_exchange=exchange))
    found = executed(made, values)
    assert_agrees(found, expected)
    if exchange == "ids" and delay == 0:
        assert_same_bits(executed(made, values, strict=True), found)


@st.composite
def any_graph(draw: st.DrawFn) -> SpikingNetwork:
    """Every layer reads what it likes, itself too; one that nobody reads is read by the output layer."""
    network = draw(networks())
    names = [layer.name for layer in network.layers]
    sources = {}
    for index, name in enumerate(names):
        before = (INPUT, *names)[index]
        others = [one for one in (INPUT, *names) if one not in (name, before)]
        sources[name] = (before, *draw(st.lists(st.sampled_from(others), unique=True, max_size=2)))
    network = reading(network, sources)
    recurrence = st.sampled_from(["none", "none", "one_to_one", "all_to_all"])
    layers = tuple(replace(layer, recurrence=draw(recurrence), bias=draw(st.booleans())) for layer in network.layers)
    return replace(network, layers=layers, delay=draw(st.sampled_from([0, 1])))


@pytest.mark.slow
@settings(SMALL, max_examples=25)
@given(network=any_graph(), options=MAPPINGS, seed=SEEDS)
def test_whatever_a_layer_reads_execution_is_interpretation(
    network: SpikingNetwork, options: MappingOptions, seed: int
) -> None:
    values, made = given_values(network, seed), compiled(network, options=options)
    assert_agrees(executed(made, values), interpreted(network, values))


@pytest.mark.parametrize("stash", ["carry", "every:2"])
@pytest.mark.parametrize("delay", [0, 1])
def test_what_is_made_anew_reads_all_sources(delay: int, stash: str) -> None:
    for sources in (SKIP, POPULATIONS):
        assert_policy(network_reading(sources, timesteps=6, delay=delay), stash)


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("delay", [0, 1])
def test_copies_and_parts_of_layers_with_several_sources(delay: int, inputs: int) -> None:
    network = network_reading(SKIP, delay=delay)
    split = {layer.name: {"batch": 3, "neurons": 2, "inputs": inputs} for layer in network.layers}
    values = given_values(network, 3)
    found = executed(compiled(network, tiles=48, options=MappingOptions(split=split)), values)
    assert_agrees(found, interpreted(network, values))


@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_layers_with_several_sources_on_two_chips(sources: dict[str, tuple[str, ...]]) -> None:
    network = network_reading(sources, widths=(12, 10, 8, 4))
    made = compiled_on_chips(network, 3, 6, neurons_per_tile=2)
    assert made.placement.chips == 2
    values = given_values(network, 3)
    assert_agrees(executed(made, values), interpreted(network, values))


def test_cycles_of_all_sources_are_counted_as_recorded() -> None:
    network = network_reading(POPULATIONS)
    program, activity = compiled(network).program, filled_activity(network, 0.5)
    loads = program_loads(program, activity, ISSUE)
    assert [load.cycles_by_execution[:, 0].tolist() for load in loads] == slow_cycles(program, activity, ISSUE)


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_dense_spikes_of_several_sources(sources: dict[str, tuple[str, ...]], delay: int) -> None:
    network = network_reading(sources, spikes="dense", capacities=None, delay=delay)
    values = given_values(network, 3)
    assert_dense_agree(executed(compiled(network), values), interpreted(network, values))


@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "persistent"])
def test_gpu_kernels_take_all_sources(strategy: str) -> None:
    network = network_reading(SKIP, spikes="dense", capacities=None, delay=0)
    assert_same_training_step(network, strategy, 3)


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", [SKIP, PARALLEL], ids=["skip", "parallel"])
def test_whole_tensors_take_all_sources(sources: dict[str, tuple[str, ...]], delay: int) -> None:
    assert_as_meant(network_reading(sources, delay=delay, optimiser=ADAM))


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"hidden0": ("hidden1",)}, "layer 'hidden0', the first, must read 'input' first"),
        ({"hidden1": ("input",), "output": ("hidden1",)}, "no layer that leads to the output reads 'hidden0'"),
        ({"output": ("hidden1", "hidden1")}, "layer 'output' reads hidden1, hidden1; name each once"),
        ({"output": ("hidden1", "output")}, "layer 'output' cannot read 'output'"),
    ],
)
def test_sources_that_make_no_network_are_refused(sources: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(MappingError, match=said):
        network_reading(sources)


def test_weights_of_every_source_have_a_name_of_their_own() -> None:
    network = network_reading(SKIP)
    assert [parameter.public for parameter in network.parameters.values()] == [
        "hidden0", "hidden1", "hidden1.from.input", "output", "output.from.hidden0",
    ]  # fmt: skip
    assert network.parameters["w.hidden1.from.input"].shape == (9, 6)
    assert "gradient.w.hidden1.from.input" in training_graph(network).outputs
