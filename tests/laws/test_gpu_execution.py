"""Every GPU strategy, run on the CPU in its own order of operations, gives the gradients of the interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_dense_meaning import DenseSpikes
from gpu_execution import execute
from hypothesis import given
from hypothesis import strategies as st
from linear_networks import linear_network
from networks import SMALL, given_values, networks, small_network

from mimdsim.base.errors import MappingError
from mimdsim.gpu.dependence import walked_operations
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import SpikingNetwork, interpret, training_graph

LEGAL = sorted(name for name, how in STRATEGIES.items() if not how.persistent)


def assert_same_training_step(network: SpikingNetwork, strategy: str, seed: int) -> None:
    graph = training_graph(network)
    inputs = given_values(network, seed, dtype=np.float64).for_graph(network)
    meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
    assert np.array_equal(made["counts"], meant["counts"])
    for name in graph.outputs[2:]:
        scale = float(np.abs(meant[name]).max()) or 1.0
        assert np.abs(made[name] - meant[name]).max() <= 1e-12 * scale, name


@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("reset_gradient", ["pass", "mask"])
@pytest.mark.parametrize("strategy", LEGAL)
def test_a_strategy_gives_the_gradients_of_the_interpreter(strategy: str, reset_gradient: str, spikes: str) -> None:
    network = small_network(capacities=(4, 3, 2), reset_gradient=reset_gradient, spikes=spikes)
    if STRATEGIES[strategy].lists and spikes == "dense":
        with pytest.raises(MappingError, match="follows lists needs sparse spikes"):
            execute(training_graph(network), given_values(network, 3).for_graph(network), strategy=strategy)
        return
    assert_same_training_step(network, strategy, seed=3)


@pytest.mark.first(4)
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("reset_by", ["state", "emission"])
@pytest.mark.parametrize("strategy", LEGAL)
def test_linear_neurons_too(strategy: str, reset_by: str, spikes: str) -> None:
    if STRATEGIES[strategy].lists and spikes == "dense":
        return
    for gradient in ("mask", "full"):
        network = linear_network(
            "synaptic",
            "zero",
            spikes=spikes,
            reset_by=reset_by,
            reset_gradient=gradient,
            capacities=(6, 3),
            timesteps=6,
        )
        assert_same_training_step(network, strategy, seed=4)


@SMALL
@given(network=networks(), strategy=st.sampled_from(LEGAL), seed=st.integers(0, 99))
def test_whatever_the_network(network: SpikingNetwork, strategy: str, seed: int) -> None:
    assert_same_training_step(network, strategy, seed)


@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("strategy", ["as_published", "graph_replay", "persistent"])
def test_recurrent_layers_too(strategy: str, spikes: str) -> None:
    network = small_network(spikes=spikes)
    layers = tuple(replace(layer, recurrence="all_to_all") for layer in network.layers[:-1])
    network = replace(network, layers=(*layers, network.layers[-1]))
    assert_same_training_step(network, strategy, seed=4)


@pytest.mark.first(3)
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("timesteps", [1, 2, 7, 8])
@pytest.mark.parametrize("model", ["lif", "synaptic", "alpha"])
def test_neurons_that_never_reset_are_scanned_and_spike_alike(
    model: str, timesteps: int, spikes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu_execution

    scanned: list[str] = []
    real = gpu_execution._Walk._scanned

    def watched(walk: Any, ops: Any, start: Any, order: Any) -> Any:
        scanned.append(ops[0].phase)
        return real(walk, ops, start, order)

    monkeypatch.setattr(gpu_execution._Walk, "_scanned", watched)
    for reset in ("none", "zero"):
        scanned.clear()
        network = linear_network(model, reset, spikes=spikes, timesteps=timesteps, reset_gradient="full")
        assert_same_training_step(network, "scan", seed=5)
        layers = len(network.layers)
        resetting = reset == "zero"
        assert (scanned.count("forward"), scanned.count("backward")) == (0 if resetting else layers, layers)


@pytest.mark.parametrize("reset_by", ["state", "emission"])
def test_neurons_that_reset_walk_and_their_gradients_do_not(reset_by: str) -> None:
    graph = training_graph(linear_network("synaptic", "subtract", reset_by=reset_by))
    forward, backward = (walked_operations(op.attributes) for op in graph.operations if op.kind == "scan")
    assert any("hidden0" in name for name in forward)
    assert not backward


def test_a_layer_that_recurs_is_not_scanned() -> None:
    network = small_network()
    layers = tuple(replace(layer, recurrence="all_to_all") for layer in network.layers[:-1])
    graph = training_graph(replace(network, layers=(*layers, network.layers[-1])))
    with pytest.raises(MappingError, match=r"strategy 'scan': the matrix product .* depends on itself"):
        lower_to_kernels(graph, STRATEGIES["scan"], precision="fp32")


def test_hoisted_products_have_the_rows_of_all_timesteps(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_execution

    rows: list[tuple[str, int]] = []
    real = gpu_execution.product

    def watched(kind: str, given: tuple[Any, ...], groups: Any) -> np.ndarray:
        made = real(kind, given, groups)
        rows.append((kind, made.size // made.shape[-1]))
        return made

    monkeypatch.setattr(gpu_execution, "product", watched)
    network = small_network((7, 6, 5, 3), timesteps=5, batch=3)
    execute(training_graph(network), given_values(network, 1).for_graph(network), strategy="hoisted")
    forward = [count for kind, count in rows if kind == "synapse"]
    weights = [kind for kind, _ in rows if kind == "synapse_weight_gradient"]
    assert forward == [15, 15, 15]
    assert len(weights) == 3  # one each, over all timesteps


def test_lists_become_two_arrays() -> None:
    network = small_network((7, 6, 3), second_threshold=0.2)
    made = execute(training_graph(network), given_values(network, 2).for_graph(network), strategy="hoisted")
    spikes = [value for value in made.values() if isinstance(value, DenseSpikes)]
    assert spikes
    assert all((value.fired <= value.listed).all() for value in spikes)


def test_an_operation_on_lists_without_dense_meaning_is_named() -> None:
    from gpu_dense_meaning import evaluate

    from mimdsim.graph.records import Operation

    dense = np.zeros((1, 2))
    op = Operation(name="odd", kind="copy", inputs=("a",), outputs=("b",), phase="forward")
    with pytest.raises(MappingError, match=r"operation 'odd' of kind 'copy' reads spikes and has no dense meaning"):
        evaluate(op, (DenseSpikes(fired=dense, listed=dense),))
