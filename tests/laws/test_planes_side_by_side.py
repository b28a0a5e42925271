"""Convolutions that read planes of several layers, and of the input, side by side: on tiles, as whole tensors and on
GPUs as the interpreter means them, which means one convolution of what PyTorch concatenates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_execution import execute
from networks import Outcome, compiled, executed, given_values, interpreted, relative_error, small_network
from test_array_lowering import assert_agree
from test_convolutions import INPUT, pooled
from test_dropout import drawn, dropping
from test_whole_tensors import assert_alike, outcome, run_whole

from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.convolution import Convolution, Patches, Planes, Pool, Window
from mimdsim.graph.layer import Source
from mimdsim.graph.norms import BatchNorm
from mimdsim.graph.operations import OPERATIONS
from mimdsim.workload.interchange.layers import network_of_layers

KEEPS = Window(kernel=(3, 3), padding=(1, 1))
READ = {"hidden1": ("input",), "hidden2": ("hidden0", "hidden1", "input"), "output": ("hidden1", "hidden2")}
WIDTHS = {"input": INPUT.neurons, "hidden0": 3 * 36, "hidden1": 2 * 36}


def side_by_side(
    before: Pool | None = None,
    norm: BatchNorm | None = None,
    lags: tuple[int | None, ...] = (None, None, None),
    **changes: Any,
) -> SpikingNetwork:
    """hidden2 reads three planes of hidden0, two of hidden1 and two of the input; the output two sources flat."""
    first = Convolution(planes=INPUT, window=KEEPS, channels=3)
    third = Convolution(planes=first.result, window=Window(kernel=(3, 2)), channels=4, before=before)
    convolutions = first, replace(first, channels=2), third
    widths = {**WIDTHS, "hidden2": third.result.neurons}
    shape = {"timesteps": 4, "batch": 3, "spikes": "dense", "gain": 6.0, "delay": 0, "bias": True} | changes
    network = small_network((INPUT.neurons, 108, 72, third.result.neurons, 3), **shape)
    layers = []
    for layer, convolution in zip(network.layers, (*convolutions, None), strict=True):
        read = READ.get(layer.name, ())
        ages = lags if len(read) == len(lags) else (None,) * len(read)
        sources = tuple(Source(name=name, neurons=widths[name], lag=lag) for name, lag in zip(read, ages, strict=True))
        inputs = sources[0].neurons if sources else layer.inputs
        layers.append(replace(layer, inputs=inputs, convolution=convolution, sources=sources))
    layers[2] = replace(layers[2], norm=norm)
    return replace(network, layers=tuple(layers))


def assert_as_meant(found: Outcome, expected: Outcome, network: SpikingNetwork) -> None:
    """Bit for bit but for gradients, as far as potentials are kept, and for sums of norms, rounded in another order."""
    if network.layers[2].norm is None and found.potentials:
        assert_agree(found, expected)
    elif network.layers[2].norm is None:
        assert_alike(replace(found, ids={}, listed={}), expected, network)
    for key, gradient in expected.gradients.items():
        assert relative_error(found.gradients[key], gradient) < 1e-5, key


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "max before": {"before": pooled("max")},
    "average before": {"before": pooled("average")},
    "sum before": {"before": pooled("sum", 2, stride=(1, 1))},
    "a norm": {"norm": BatchNorm(per="timestep")},
    "a norm of the sequence": {"norm": BatchNorm(per="sequence")},
    "ages": {"lags": (2, 0, 1)},
    "delayed": {"delay": 1},
}


@pytest.mark.first(2)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_several_planes_run_as_they_are_meant(case: dict[str, Any]) -> None:
    network = side_by_side(**case)
    values = given_values(network, 3)
    for name in {"gain.hidden2", "variance.hidden2"} & values.arrays.keys():
        values.arrays[name] = 1 + np.abs(values.arrays[name])
    expected = interpreted(network, values)
    assert [each.shape for each in network.layers[2].matrices] == [(18, 4), (12, 4), (12, 4)]
    assert network.layers[2].fan_in == 7 * 6
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-5
    made = compiled(network)
    for strict in (False, True):
        assert_as_meant(executed(made, values, strict=strict), expected, network)
    one, other = (outcome(run_whole(network, values, threads), network) for threads in (1, 3))
    assert_as_meant(one, expected, network)
    for key, gradient in one.gradients.items():
        assert gradient.tobytes() == other.gradients[key].tobytes()


def test_they_are_one_convolution_of_what_is_side_by_side() -> None:
    """Their currents add up to those of a convolution of all planes."""
    draw = np.random.default_rng(3)
    parts = [Convolution(planes=Planes(channels=n, height=6, width=6), window=KEEPS, channels=4) for n in (3, 2, 2)]
    whole = parts[0].with_planes(7)
    spikes = [(draw.random((5, each.planes.neurons)) < 0.3).astype(float) for each in parts]
    weights = [draw.normal(size=(each.fan_in, 4)) for each in parts]

    def currents(convolution: Convolution, values: np.ndarray, of: np.ndarray) -> np.ndarray:
        patches = Patches(planes=convolution.read, window=convolution.window, by_channel=True)
        made: np.ndarray = OPERATIONS["unfold"].evaluate(patches, values)[0] @ of
        return made

    apart = [*map(currents, parts, spikes, weights)]
    joined = currents(whole, np.concatenate(spikes, axis=1), np.concatenate(weights))
    np.testing.assert_allclose(sum(apart), joined, rtol=1e-12, atol=1e-12)


def concatenated(case: str) -> SpikingNetwork:
    """hidden2 reads planes as one source: in groups, without weights, or normalised."""
    network = side_by_side()
    first, second, third, output = network.layers
    of = tuple(Source(name=each.name, neurons=each.neurons) for each in (first, second))
    read = Source(by="concat", of=of, neurons=first.neurons + second.neurons)
    planes = Planes(channels=5, height=6, width=6)
    assert third.convolution is not None
    if case == "groups":
        convolution = replace(third.convolution.with_planes(5), groups=5, channels=5)
        third = replace(third, inputs=180, neurons=100, sources=(read,), convolution=convolution)
    else:
        norm = None if case == "no weights" else BatchNorm(per=case)
        about = {"inputs": 180, "neurons": 180, "sources": (read,), "convolution": None, "unweighted": True}
        third = replace(third, **about, planes=planes, norm=norm, bias=False)
    flat = tuple(replace(each, neurons=third.neurons) if each.name == third.name else each for each in output.sources)
    return replace(network, layers=(first, second, third, replace(output, sources=flat)))


@pytest.mark.first(2)
@pytest.mark.parametrize("case", ["groups", "sequence", "no weights", "timestep"])
def test_planes_side_by_side_are_one_source(case: str) -> None:
    network = concatenated(case)
    values = given_values(network, 3)
    for name in {"gain.hidden2", "variance.hidden2"} & values.arrays.keys():
        values.arrays[name] = 1 + np.abs(values.arrays[name])
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-6
    assert_as_meant(executed(compiled(network), values, strict=True), expected, network)
    graph, inputs = training_graph(network), given_values(network, 4, dtype=np.float64).for_graph(network)
    for strategy in ("as_published", "hoisted"):
        meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
        for value in graph.outputs:
            assert relative_error(np.asarray(made[value]), np.asarray(meant[value])) < 1e-12, (value, strategy)


def test_in_one_timestep_norms_of_the_sequence_are_those_of_the_timestep() -> None:
    """Gradients and penalties, where spikes are normalised and read beside what is behind the norm."""

    def made(per: str) -> dict[str, np.ndarray]:
        network = side_by_side(timesteps=1)
        network = replace(network, loss=replace(network.loss, firing_strength=0.1, firing_target=0.2))
        first, second, third, output = network.layers
        about = {"convolution": None, "unweighted": True, "norm": BatchNorm(per=per), "bias": False}
        read = Source(name="hidden0", neurons=first.neurons)
        second = replace(
            second, inputs=108, neurons=108, sources=(read,), planes=Planes(channels=3, height=6, width=6), **about
        )
        sources = tuple(replace(each, neurons=108) if each.name == "hidden1" else each for each in third.sources)
        flat = tuple(replace(each, neurons=108) if each.name == "hidden1" else each for each in output.sources)
        output = replace(output, sources=flat, inputs=108)
        network = replace(network, layers=(first, second, replace(third, sources=sources), output))
        graph = training_graph(network)
        found = interpret(graph, given_values(network, 3, dtype=np.float64).for_graph(network))
        return {name: np.asarray(found[name]) for name in graph.outputs}

    one, other = made("timestep"), made("sequence")
    assert {"penalty.hidden0", "penalty.hidden1", "penalty.hidden2", "gradient.w.hidden0"} <= one.keys()
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("of", ["neuron", "plane"])
@pytest.mark.parametrize("per", ["timestep", "sequence"])
@pytest.mark.parametrize("case", ["plain", "max before", "average before"])
def test_what_they_read_drops_out(case: str, per: str, of: str) -> None:
    network = dropping(side_by_side(**CASES[case]), 0.5, per, of)
    values = drawn(network, 12)
    expected, plain = interpreted(network, values), interpreted(side_by_side(**CASES[case]), values)
    assert relative_error(expected.gradients["output"], plain.gradients["output"]) > 1e-3
    assert_agree(executed(compiled(network), values, strict=True), expected)
    assert_alike(replace(outcome(run_whole(network, values), network), ids={}, listed={}), expected, network)


@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "scan"])
def test_every_gpu_strategy_reads_them(strategy: str) -> None:
    network = side_by_side()
    graph, inputs = training_graph(network), given_values(network, 4, dtype=np.float64).for_graph(network)
    meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
    for value in graph.outputs:
        assert relative_error(np.asarray(made[value]), np.asarray(meant[value])) < 1e-12, value


def test_planes_of_other_sizes_and_groups_and_files_are_refused() -> None:
    network = side_by_side()
    with pytest.raises(
        MimdsimError, match="a convolution of several sources is not written to files; nearest: a state"
    ):
        network_of_layers(network, given_values(network, 3).arrays, 1e-3)
    *layers, third, output = network.layers
    with pytest.raises(MappingError, match="a convolution with groups, reads hidden0, hidden1, input: one source can"):
        replace(third, convolution=replace(third.convolution.with_planes(3), groups=3, channels=3), neurons=60)
    small = replace(layers[1], convolution=replace(layers[1].convolution, window=Window(kernel=(3, 3))), neurons=32)
    sources = third.sources[0], replace(third.sources[1], neurons=32), third.sources[2]
    flat = tuple(replace(each, neurons=32) if each.name == "hidden1" else each for each in output.sources)
    wrong = (layers[0], small, replace(third, sources=sources), replace(output, sources=flat, inputs=32))
    with pytest.raises(MappingError, match=r"reads planes of 0 x 6 x 6 from 'hidden1', which has 2 x 4 x 4"):
        replace(network, layers=wrong)
