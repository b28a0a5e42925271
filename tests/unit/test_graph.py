"""The graph: gradients against finite differences, dense against sparse, the stash, flops, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from networks import given_values, gradient_names, interpreted, parameter_keys, relative_error, small_network

from mimdsim.base.errors import MappingError
from mimdsim.graph import OPERATIONS, Graph, Scan, SpikingNetwork, Value, differentiate, interpret, training_graph
from mimdsim.graph.losses import Logits
from mimdsim.graph.network_graphs import forward_graph
from mimdsim.graph.operations import builder
from mimdsim.graph.records import Carry, Slice

ALL_LISTED = -100.0  # a second threshold below every membrane potential


def central_differences(graph: Graph, inputs: dict[str, Any], name: str, step: float = 1e-6) -> np.ndarray:
    """d loss / d inputs[name], element by element."""
    slope = np.zeros_like(inputs[name])
    for place in np.ndindex(*slope.shape):
        losses = []
        for sign in (1, -1):
            moved = inputs[name].copy()
            moved[place] += sign * step
            losses.append(float(interpret(graph, inputs | {name: moved})["loss"]))
        slope[place] = (losses[0] - losses[1]) / (2 * step)
    return slope


@pytest.mark.parametrize("widths", [(4, 3), (4, 5, 3), (3, 4, 3, 2)])
def test_gradients_are_finite_differences_of_the_smooth_spike(widths: tuple[int, ...]) -> None:
    network = small_network(
        widths, spikes="dense", smooth=True, reset_gradient="mask", timesteps=6, gain=20.0, slope=1.0
    )
    given = given_values(network, 1, dyadic=False, dtype=np.float64)
    outcome = interpreted(network, given)
    graph, inputs = forward_graph(network), given.for_graph(network)
    resets = sum(int((potential > 1.0).sum()) for potential in outcome.potentials.values())
    assert resets > 0
    for layer in network.layers:
        expected = central_differences(graph, inputs, f"w.{layer.name}")
        assert np.abs(expected).max() > 1e-4
        assert relative_error(outcome.gradients[layer.name], expected) < 1e-6


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("recurrence", ["one_to_one", "all_to_all"])
def test_gradients_of_recurrence_and_bias_are_finite_differences(recurrence: str, delay: int) -> None:
    network = small_network(
        (3, 4, 2), spikes="dense", smooth=True, reset_gradient="mask", timesteps=5, gain=20.0, slope=1.0,
        recurrence=recurrence, delay=delay, bias=True,
    )  # fmt: skip
    given = given_values(network, 1, dyadic=False, dtype=np.float64)
    outcome = interpreted(network, given)
    graph, inputs = forward_graph(network), given.for_graph(network)
    for key, name in parameter_keys(network).items():
        expected = central_differences(graph, inputs, name)
        assert np.abs(expected).max() > 1e-4
        assert relative_error(outcome.gradients[key], expected) < 1e-6


@pytest.mark.parametrize("reset_gradient", ["pass", "mask"])
def test_dense_is_sparse_with_room_for_every_neuron(reset_gradient: str) -> None:
    sparse = small_network((9, 8, 7, 4), batch=4, reset_gradient=reset_gradient, second_threshold=ALL_LISTED)
    given = given_values(sparse, 2, dyadic=False, dtype=np.float64)
    one, other = interpreted(sparse, given), interpreted(replace(sparse, spikes="dense"), given)
    assert one.counts.sum() > 0
    np.testing.assert_array_equal(one.counts, other.counts)
    assert one.loss == pytest.approx(other.loss, rel=1e-12)
    for layer in sparse.layers:
        assert np.abs(one.gradients[layer.name]).max() > 0
        assert relative_error(one.gradients[layer.name], other.gradients[layer.name]) < 1e-12


def test_second_threshold_and_capacity_cut_gradients_only_where_nothing_is_listed() -> None:
    """A neuron that is never listed gets no gradient on its incoming weights in the last layer."""
    network = small_network((9, 8, 4), batch=4, second_threshold=0.8)
    given = given_values(network, 3, dtype=np.float64)
    given.arrays["w.output"][:, 1] = -1.0
    outcome = interpreted(network, given)
    assert np.abs(outcome.gradients["output"][:, 1]).max() == 0
    assert np.abs(outcome.gradients["output"][:, [0, 2, 3]]).max() > 0


def scans(network: SpikingNetwork) -> tuple[Scan, Scan]:
    graph = training_graph(network)
    return graph.scan("forward").attributes, graph.scan("backward").attributes


def test_stash_holds_each_value_once_and_is_read_with_the_shift_of_its_carry() -> None:
    forward, backward = scans(small_network((5, 4, 3)))
    assert sorted(forward.stacked) == ["spikes.hidden0", "spikes.output", "v.hidden0", "v.output"]
    assert forward.stacked[0] == "spikes.output"
    assert not forward.reverse
    assert backward.reverse
    shifts = {item.inside: item.shift for item in backward.slices if item.inside.startswith("saved.")}
    assert shifts == {
        "saved.spikes.output": 0, "saved.v.output": 0, "saved.spikes.hidden0": 0, "saved.v.hidden0": 0,
        "saved.spikes.hidden0.previous": -1, "saved.input.now": 0,
    }  # fmt: skip


def test_the_masked_reset_reads_the_potential_before_the_timestep() -> None:
    _, backward = scans(small_network((5, 4, 3), reset_gradient="mask"))
    shifts = {item.inside: item.shift for item in backward.slices}
    assert shifts["saved.v.hidden0.previous"] == shifts["saved.v.output.previous"] == -1


def test_stashed_sequences_are_shaped_by_timesteps() -> None:
    network = small_network((5, 4, 3), timesteps=7, batch=2, capacities=(2, 3))
    graph = training_graph(network)
    outputs = graph.scan("forward").outputs
    shapes = {name: (graph.value(name).shape, graph.value(name).capacity) for name in outputs}
    assert ((7, 2, 4), 2) in shapes.values()
    assert ((7, 2, 3), 3) in shapes.values()
    assert graph.value(gradient_names(network)["hidden0"]).shape == (5, 4)


def test_flops_of_products_are_two_per_weight_and_sample_in_both_forms() -> None:
    spikes, weights = Value(name="s", shape=(6, 10)), Value(name="w", shape=(10, 4))
    q = Value(name="q", shape=(6, 4))
    dense = {
        "matmul": OPERATIONS["matmul"].flops((spikes, weights), None),
        "weight": OPERATIONS["matmul_weight_gradient"].flops((q, spikes), None),
        "input": OPERATIONS["matmul_input_gradient"].flops((q, weights), None),
    }
    sparse = {
        "matmul": OPERATIONS["synapse"].flops((spikes, weights), None),
        "weight": OPERATIONS["synapse_weight_gradient"].flops((q, spikes), (10, 4)),
        "input": OPERATIONS["synapse_spike_gradient"].flops((q, spikes, weights), 5),
    }
    assert dense == sparse == {"matmul": 480, "weight": 480, "input": 480}


def test_flops_of_a_scan_are_its_timesteps_times_its_body() -> None:
    counted = {}
    for timesteps in (1, 5):
        graph = training_graph(small_network((5, 4, 3), timesteps=timesteps, batch=2))
        for phase in ("forward", "backward"):
            op = graph.scan(phase)
            inputs = tuple(graph.value(name) for name in op.inputs)
            counted[phase, timesteps] = OPERATIONS["scan"].flops(inputs, op.attributes)
    products = 2 * 2 * (5 * 4 + 4 * 3)
    element_wise = 2 * (4 + 3) * (3 + 2)  # lif 3, selection 2
    assert counted["forward", 1] == products + element_wise
    assert counted["forward", 5] == 5 * counted["forward", 1]
    assert counted["backward", 5] == 5 * counted["backward", 1] > 0


def test_every_operation_of_a_training_graph_counts_flops() -> None:
    graph = training_graph(small_network())
    for op in graph.operations:
        inputs = tuple(graph.value(name) for name in op.inputs)
        flops = OPERATIONS[op.kind].flops(inputs, op.attributes)
        assert (flops == 0) == (op.kind == "zeros"), op.name


def test_a_loss_that_does_not_depend_on_a_weight_is_refused() -> None:
    graph = forward_graph(small_network())
    unused = Value(name="w.unused", shape=(3, 3))
    graph = replace(graph, inputs=(*graph.inputs, unused.name), values=graph.values | {unused.name: unused})
    with pytest.raises(MappingError, match=r"'loss' does not depend on \['w.unused'\]"):
        differentiate(graph, "loss", ("w.hidden0", "w.unused"))


def test_a_missing_input_is_named() -> None:
    network = small_network()
    inputs = given_values(network, 1).for_graph(network)
    del inputs["w.output"]
    with pytest.raises(KeyError, match=r"w\.output"):
        interpret(training_graph(network), inputs)


def copying_graph(network: SpikingNetwork) -> Graph:
    """One layer whose current is also carried through 'copy', an operation without a gradient rule."""
    (layer,) = network.layers
    body = builder("forward")
    body.declare(Value(name="input.now", shape=(network.batch, layer.inputs)))
    body.declare(Value(name="v.output.previous", shape=(network.batch, layer.neurons)))
    body.declare(Value(name="w.output", shape=(layer.inputs, layer.neurons)))
    current = body.one("matmul", ("input.now", "w.output"), "current")
    first = body.one("lif", ("v.output.previous", current), "v.first", attributes=layer.neuron)
    again = body.one("copy", (current,), "current.copied")
    v = body.one("lif", (first, again), "v.output", attributes=layer.neuron)
    spikes = body.one("spike", (v,), "spikes.output", attributes=layer.selection)
    scan = Scan(
        body=body.graph((v,)), timesteps=network.timesteps, reverse=False,
        carries=(Carry(enters="v.output.previous", leaves=v),), slices=(Slice(inside="input.now"),),
        constants=("w.output",), stacked=(spikes,),
    )  # fmt: skip
    build = builder("forward")
    build.declare(Value(name="start", shape=(network.batch, layer.neurons)))
    build.declare(Value(name="input", shape=(network.timesteps, network.batch, layer.inputs)))
    build.declare(Value(name="labels", shape=(network.batch,)))
    build.declare(Value(name="w.output", shape=(layer.inputs, layer.neurons)))
    outputs = build.add("scan", ("start", "input", "w.output"), "time", attributes=scan)
    build.phase = "loss"
    counts = build.one("spike_counts", (outputs[-1],), "counts", attributes=layer.neurons)
    build.one("cross_entropy", (counts, "labels"), "loss", attributes=Logits(scale=0.5))
    return build.graph(("loss",))


def test_an_operation_without_a_gradient_rule_is_refused_or_differentiated() -> None:
    network = small_network((4, 3), spikes="dense", smooth=True, reset_gradient="mask", timesteps=3)
    graph = copying_graph(network)
    given = given_values(network, 1, dyadic=False, dtype=np.float64)
    inputs = given.for_graph(network) | {"start": np.zeros((network.batch, 3))}
    try:
        trained, gradients = differentiate(graph, "loss", ("w.output",))
    except ValueError:
        return  # refused: just as good
    found = interpret(trained, inputs)[gradients["w.output"]]
    assert relative_error(found, central_differences(graph, inputs, "w.output")) < 1e-6


def test_an_unknown_recurrence_or_delay_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        MappingError, match=r"'hidden0': network.recurrence = 'all' is not a valid choice; .*all_to_all"
    ):
        small_network((4, 3, 2), recurrence="all")
    with pytest.raises(MappingError, match=r"network.delay = 2 must be 0 or 1 timesteps"):
        small_network(delay=2)


def test_a_hidden_layer_that_does_not_spike_is_refused() -> None:
    network = small_network()
    silent = replace(network, layers=(replace(network.layers[0], spiking=False), *network.layers[1:]))
    with pytest.raises(MappingError, match=r"'hidden0': .* read its spikes"):
        training_graph(silent)
