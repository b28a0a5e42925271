"""Batch norm as it is trained: as PyTorch means it, on tiles as the interpreter does, its averages kept and folded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from float64_programs import in_float64
from gpu_execution import execute
from linear_networks import by_layer_in_torch
from networks import ADAM, Given, compiled, given_values, relative_error, small_network
from test_convolutions import CHAINS, network_of_planes

from mimdsim.execution import Executor, execute_strictly
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.batch_norm import BatchNorm
from mimdsim.graph.operations import OPERATIONS
from mimdsim.workload import MappingOptions

EPSILON = 2.0**-10  # exact in float32


def normed(network: SpikingNetwork, per: str, **changes: Any) -> SpikingNetwork:
    norm = BatchNorm(**{"per": per, "epsilon": EPSILON, "momentum": 0.25} | changes)
    return replace(network, layers=tuple(replace(layer, norm=norm) for layer in network.layers))


def drawn(network: SpikingNetwork, seed: int) -> Given:
    """Values in float64 with gains around 1 and variances above 0, so that about half of the neurons fire."""
    values, draw = given_values(network, seed, dyadic=False, dtype=np.float64), np.random.default_rng(seed)
    for name, parameter in network.parameters.items():
        if parameter.role in ("gain", "variance"):
            values.arrays[name] = draw.uniform(0.5, 1.5, parameter.shape).astype(np.float32).astype(np.float64)
        else:
            values.arrays[name] = values.arrays[name].astype(np.float32).astype(np.float64)
    return values


def networks(per: str) -> dict[str, SpikingNetwork]:
    dense: dict[str, Any] = {"spikes": "dense", "gain": 20.0, "batch": 6, "delay": 0}
    found = {
        "no delay": small_network((9, 8, 6, 4), **dense),
        "recurrent": small_network((9, 8, 6, 4), recurrence="all_to_all", reset_gradient="mask", **dense),
        "one to one": small_network((9, 8, 4), recurrence="one_to_one", optimiser=ADAM, **dense),
        "planes": network_of_planes(*CHAINS["two"], gain=10.0, delay=0),
        "pooled after": network_of_planes(*CHAINS["max after"], gain=10.0, delay=0),
        "pooled before": network_of_planes(*CHAINS["sum before"], gain=10.0, delay=0),
    }
    if per == "timestep":
        found["a delay"] = small_network((9, 8, 6, 4), **dense | {"delay": 1})
    return {name: normed(network, per) for name, network in found.items()}


PER = ("timestep", "sequence")
CASES = [(per, name) for per in PER for name in networks(per)]


def outputs(network: SpikingNetwork, values: Given) -> dict[str, Any]:
    graph = training_graph(network)
    made = interpret(graph, values.for_graph(network))
    return {name: made[name] for name in graph.outputs}


@pytest.mark.torch
@pytest.mark.parametrize(("per", "name"), [case for case in CASES if case[1][0] != "p"])
def test_values_gradients_and_averages_are_those_of_pytorch(per: str, name: str) -> None:
    pytest.importorskip("torch")
    network = networks(per)[name]
    values = drawn(network, 3)
    loss, gradients, averages = by_layer_in_torch(network, values)
    made = outputs(network, values)
    assert float(made["loss"]) == pytest.approx(loss, rel=1e-9)
    for parameter, gradient in gradients.items():
        assert np.abs(gradient).max() > 1e-6, parameter
        assert relative_error(made[f"gradient.{parameter}"], gradient) < 1e-9, parameter
    assert averages.keys() == network.averages.keys()
    for parameter, left in averages.items():
        assert relative_error(made[f"next.{parameter}"], left) < 1e-12, parameter


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(7, 3), (5, 7, 3)])
def test_the_operation_and_its_gradient_are_those_of_pytorch(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(1)
    norm = BatchNorm(epsilon=EPSILON)
    x, q = draw.normal(1.0, 2.0, shape), draw.normal(size=shape)
    gain, bias = draw.uniform(0.5, 1.5, (1, 3)), draw.normal(size=(1, 3))
    made, mean, variance = OPERATIONS["batch_norm"].evaluate(norm, x, gain, bias)
    d_gain, d_bias = OPERATIONS["batch_norm_sums"].evaluate(norm, q, x, mean, variance)
    (d_x,) = OPERATIONS["batch_norm_input_gradient"].evaluate(norm, q, x, mean, variance, gain, d_gain, d_bias)
    given = [torch.tensor(each, requires_grad=True) for each in (x, gain, bias)]
    wanted = torch.nn.functional.batch_norm(
        given[0].reshape(-1, 3), None, None, given[1][0], given[2][0], training=True, eps=EPSILON
    ).reshape(shape)
    wanted.backward(torch.tensor(q))
    pairs = zip((made, d_x, d_gain, d_bias), (wanted.detach(), *(each.grad for each in given)), strict=True)
    for ours, theirs in pairs:
        assert relative_error(ours, theirs.numpy()) < 1e-13


def on_tiles(network: SpikingNetwork, values: Given, *, strict: bool = False, **how: Any) -> dict[str, np.ndarray]:
    """The outputs of a program on numbers of float64."""
    made = compiled(network, **how)
    executor = Executor(in_float64(made.program))
    executor.write(values.for_program(network))
    (execute_strictly if strict else Executor.run)(executor)
    return {name: executor.read(name) for name in made.program.outputs}


@pytest.mark.parametrize("form", ["calls", "traced", "fused"])
@pytest.mark.parametrize(("per", "name"), CASES)
def test_tiles_compute_what_the_interpreter_does(per: str, name: str, form: str) -> None:
    network = networks(per)[name]
    values = drawn(network, 3)
    expected = outputs(network, values)
    found = on_tiles(network, values, options=MappingOptions(dense_neurons=form))
    assert found.keys() >= {name for name in expected if name.startswith(("gradient.", "next.mean", "next.variance"))}
    for value in found.keys() & expected.keys() - {"loss"}:
        assert relative_error(found[value], expected[value]) < 1e-6, value
    assert found["loss"].mean() == pytest.approx(float(expected["loss"]), rel=1e-6)


@pytest.mark.parametrize(("per", "name"), CASES)
def test_every_vertex_alone_on_its_tile_computes_the_same(per: str, name: str) -> None:
    network = networks(per)[name]
    values = drawn(network, 3)
    plain, alone = on_tiles(network, values), on_tiles(network, values, strict=True)
    for value, found in plain.items():
        np.testing.assert_array_equal(found, alone[value], err_msg=value)


@pytest.mark.parametrize("strategy", ["as_published", "graph_replay", "hoisted", "persistent"])
@pytest.mark.parametrize("name", ["planes", "one to one", "recurrent"])
@pytest.mark.parametrize("per", PER)
def test_every_gpu_strategy_computes_the_same(per: str, name: str, strategy: str) -> None:
    network = networks(per)[name]
    recurs = name == "recurrent"
    if recurs != (strategy == "persistent") and strategy in ("hoisted", "persistent"):
        return
    graph, inputs = training_graph(network), drawn(network, 4).for_graph(network)
    meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
    for value in graph.outputs:
        assert relative_error(np.asarray(made[value]), np.asarray(meant[value])) < 1e-12, value
