"""Whole tensors of dense spikes and of planes against the interpreter, and with any number of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_networks import CASES, linear_network
from networks import (
    ADAM,
    SEEDS,
    SMALL,
    Given,
    assert_same_spikes,
    given_values,
    interpreted,
    networks,
    relative_error,
    small_network,
)
from test_batch_norm import EVERY, MIXED, mixed, normed
from test_batch_norm import drawn as drawn_with_norms
from test_batch_norm import networks as networks_with_norms
from test_convolutions import AS_WHOLE_TENSORS, CHAINS, INPUT, NEURONS, PLAIN, after, chains, network_of_planes
from test_losses import CASES as JUDGED
from test_whole_tensors import TOLERANCE, assert_alike, outcome, run_whole
from test_wiring import wirings

from mimdsim.base.errors import MappingError
from mimdsim.execution import WholeTensors
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.convolution import Convolution, Planes, Pool, Window
from mimdsim.graph.layer import Source
from mimdsim.graph.names import after as following
from mimdsim.graph.names import gradient_of, random_name
from mimdsim.graph.neuron_models import neuron_of

pytestmark = pytest.mark.slow  # a dozen kernels are compiled for these; test_engines.py has fast ones of each kind


def assert_as_meant(network: SpikingNetwork, seed: int = 3, *, fires: bool = True, **how: Any) -> WholeTensors:
    """A training step is the interpreter's, whose hidden layers fire and whose parameters have gradients."""
    values = given_values(network, seed, **how)
    engine = run_whole(network, values)
    found, expected = outcome(engine, network), interpreted(network, values)
    if fires:
        activity = engine.activity()
        assert all(activity.counts[each.name].any() for each in network.layers if each.spiking)
        assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 0
    assert_alike(replace(found, ids={}, listed={}), expected, network)
    return engine


def draw_norms(network: SpikingNetwork, seed: int) -> Given:
    """Numbers of float64 with which layers with norms fire, and states for dropout."""
    values, draw = drawn_with_norms(network, seed), np.random.default_rng(seed)
    for layer in network.layers:
        if layer.dropout:
            values.arrays[random_name(layer.name)] = draw.integers(0, 1 << 32, network.batch)
    return values


@SMALL
@given(network=networks(), seed=SEEDS, delay=st.sampled_from([0, 1]))
def test_dense_spikes_equal_the_interpreter(network: SpikingNetwork, seed: int, delay: int) -> None:
    assert_as_meant(replace(network, delay=delay, spikes="dense"), seed, fires=False)


DENSE: dict[str, Any] = {"widths": (12, 70, 4), "spikes": "dense"}  # two blocks


@pytest.mark.first(2)
@pytest.mark.parametrize("reset_by", ["state", "emission"])
@pytest.mark.parametrize("reset_gradient", ["mask", "pass", "full"])
@pytest.mark.parametrize(("model", "reset"), CASES)
def test_every_linear_neuron_has_dense_spikes(model: str, reset: str, reset_gradient: str, reset_by: str) -> None:
    assert_as_meant(linear_network(model, reset, reset_by=reset_by, reset_gradient=reset_gradient, **DENSE))


@pytest.mark.first(2)
@pytest.mark.parametrize("reset_gradient", ["mask", "full"])
@pytest.mark.parametrize("model", ["synaptic", "lif"])
@wirings
def test_every_wiring_has_dense_spikes(
    recurrence: str, delay: int, bias: bool, model: str, reset_gradient: str
) -> None:
    more: Any = {"recurrence": recurrence, "delay": delay, "bias": bias, "widths": (12, 70, 66, 4)}
    assert_as_meant(linear_network(model, "zero", reset_gradient=reset_gradient, spikes="dense", **more))


@pytest.mark.first(2)
@pytest.mark.parametrize("model", ["leaky", "lif"])
@pytest.mark.parametrize("name", JUDGED)
def test_every_loss_has_dense_spikes(name: str, model: str) -> None:
    loss, spiking = JUDGED[name]
    widths = (12, 70, 10, 4 * loss.neurons_per_class)
    network = linear_network(model, "zero", widths=widths, loss=loss, spikes="dense")
    *hidden, output = network.layers
    network = replace(network, layers=(*hidden, replace(output, spiking=spiking)))
    engine = assert_as_meant(network)
    values = interpret(training_graph(network), given_values(network, 3).for_graph(network))
    for penalty in network.penalties:
        assert engine.read(penalty)[0] == pytest.approx(values[penalty], rel=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_layer_reads_several_dense_ones(threads: int) -> None:
    """Layers of planes and others, a timestep apart, and all of them the input."""
    second = after(PLAIN, 2, 4)
    network = network_of_planes(PLAIN, second, delay=1)
    *hidden, output = network.layers
    plain = replace(output, name="plain", inputs=PLAIN.result.neurons, neurons=7, sources=(
        Source(name="hidden0", neurons=PLAIN.result.neurons, lag=0), Source(name="input", neurons=INPUT.neurons),
    ))  # fmt: skip
    with pytest.raises(MappingError):
        replace(network, layers=(*hidden, replace(output, sources=(Source(name="no", neurons=1),))))
    names = {"hidden1": second.result.neurons, "hidden0": PLAIN.result.neurons, "input": INPUT.neurons, "plain": 7}
    sources = tuple(Source(name=name, neurons=neurons) for name, neurons in names.items())
    network = replace(network, layers=(*hidden, plain, replace(output, sources=sources)))
    values = given_values(network, 6)
    found = outcome(run_whole(network, values, threads), network)
    assert_alike(replace(found, ids={}, listed={}), interpreted(network, values), network)


@pytest.mark.first(2)
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("chain", AS_WHOLE_TENSORS.values(), ids=AS_WHOLE_TENSORS)
def test_convolutions_are_run_as_they_are_meant(chain: tuple[Convolution, ...], delay: int) -> None:
    assert_as_meant(network_of_planes(*chain, delay=delay, optimiser=ADAM, bias=True))


@pytest.mark.parametrize("where", ["after", "before"])
def test_the_largest_may_be_of_one_neuron(where: str) -> None:
    """What a pool makes has as many neurons as a pool that adds up has winners."""
    pair, single = Planes(channels=1, height=1, width=2), Window(kernel=(1, 1))
    pool = Pool(kind="max", window=Window(kernel=(1, 2)))
    first = Convolution(planes=pair, window=single, channels=1, after=pool if where == "after" else None)
    chain = [first]
    if where == "before":
        chain.append(Convolution(planes=first.result, window=single, channels=1, before=pool))
    for seed in (4, 13, 15):  # with which both layers fire
        assert_as_meant(network_of_planes(*chain, bias=True, gain=9.0), seed)


@pytest.mark.parametrize("case", NEURONS.values(), ids=NEURONS)
@pytest.mark.parametrize("chain", ["plain", "average after", "two"])
def test_neurons_of_planes_are_run_as_meant(chain: str, case: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    model, constants, how = case
    network = network_of_planes(*CHAINS[chain], bias=True)
    first, *others = network.layers
    neuron = neuron_of(model, constants, **how)
    selection = replace(first.selection, threshold=neuron.threshold)
    assert_as_meant(replace(network, layers=(replace(first, neuron=neuron, selection=selection), *others)), 5)


@pytest.mark.parametrize("name", JUDGED)
def test_every_loss_of_planes(name: str) -> None:
    loss, spiking = JUDGED[name]
    network = network_of_planes(*CHAINS["two"], classes=3 * loss.neurons_per_class, loss=loss, bias=True)
    *hidden, output = network.layers
    assert_as_meant(replace(network, layers=(*hidden, replace(output, spiking=spiking))))


def single(values: Given) -> Given:
    """The same numbers in float32, but for states of generators."""
    made = {name: each.astype(np.float32) if each.dtype.kind == "f" else each for name, each in values.arrays.items()}
    return replace(values, arrays=made)


def assert_as_exact(network: SpikingNetwork, values: Given, threads: int = 1, *, least: float = 0.0) -> WholeTensors:
    """A training step, from numbers of float64, is the interpreter's but for rounding as in its own float32; gradients
    below `least` may be wrong by as much as those of that size."""
    rounded = single(values)
    engine = run_whole(network, rounded, threads)
    found, expected, meant = outcome(engine, network), interpreted(network, rounded), interpreted(network, values)
    if network.spikes == "sparse":
        assert_same_spikes(found, expected)
    np.testing.assert_allclose(found.counts, expected.counts, rtol=TOLERANCE, atol=TOLERANCE)
    assert found.loss == pytest.approx(meant.loss, rel=1e-5)
    for key, gradient in meant.gradients.items():  # terms may cancel, in the interpreter's float32 as well
        rounding = relative_error(expected.gradients[key], gradient)
        slack = 4 * max(1.0, least / (np.abs(gradient).max() or 1.0))
        assert relative_error(found.gradients[key], gradient) <= slack * max(TOLERANCE, rounding), key
    averages = interpret(training_graph(network), values.for_graph(network)) if network.averages else {}
    for name in map(following, network.averages):
        assert relative_error(engine.read(name), averages[name]) <= TOLERANCE, name
    return engine


@pytest.mark.parametrize("examples", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_any_convolutions_are_run_as_they_are_meant(examples: int) -> None:
    @settings(SMALL, max_examples=examples)
    @given(
        chain=chains(), seed=SEEDS, batch=st.integers(1, 9), delay=st.integers(0, 1), per=st.sampled_from(["", *EVERY])
    )
    def holds(chain: tuple[Convolution, ...], seed: int, batch: int, delay: int, per: str) -> None:
        network = network_of_planes(*chain, batch=max(batch, 2 if per else 1), timesteps=3, bias=True, delay=delay)
        if per:
            network = normed(network, per)  # of one weight, whose scale a norm takes away, little is left
            assert_as_exact(network, draw_norms(network, seed), least=1e-3)
        else:
            assert_as_exact(network, given_values(network, seed, dtype=np.float64))

    holds()


def looping(**how: Any) -> SpikingNetwork:
    """Layers that read each other, the input, and across each other."""
    network = small_network((9, 70, 6, 4), gain=20.0, spikes="dense", delay=0, batch=6)
    widths = {"input": 9, "hidden0": 70, "hidden1": 6}
    read = ("input", "hidden1"), ("hidden0", "input"), ("hidden0", "hidden1")
    sources = (tuple(Source(name=name, neurons=widths[name]) for name in names) for names in read)
    layers = zip(network.layers, sources, strict=True)
    every = (replace(layer, inputs=each[0].neurons, sources=each, **how) for layer, each in layers)
    return replace(network, layers=tuple(every))


NORMED: dict[str, SpikingNetwork] = {
    **{f"{name} per {per}": network for per in EVERY for name, network in networks_with_norms(per).items()},
    **{name: mixed(name) for name in MIXED if name != "steady"},
    **{
        f"{name} per {per}": normed(network_of_planes(*CHAINS[name], gain=10.0, delay=0, optimiser=ADAM), per)
        for per in EVERY
        for name in ("average after", "max before", "average before", "of the input", "overlapping")
    },
    **{
        f"{model} per {per}": normed(linear_network(model, "subtract", reset_gradient="full", **DENSE | how), per)
        for per in EVERY
        for model, how in (("synaptic", {"recurrence": "all_to_all", "delay": 0}), ("leaky", {"delay": 1}))
    },
    "a loop": normed(looping(), "timestep"),
    "dropout in a loop": normed(looping(dropout=0.3), "timestep"),
}  # fmt: skip


@pytest.mark.first(2)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", NORMED)
def test_norms_are_run_as_they_are_meant(name: str, threads: int) -> None:
    network = NORMED[name]
    engine = assert_as_exact(network, draw_norms(network, 3), threads)
    for each in network.trained:
        assert np.abs(engine.read(gradient_of(each))).max() > 0, each
    before = {name: engine.read(name) for name in network.averages}
    engine.run(phases=("forward", "loss"))
    for name, held in before.items():
        assert engine.read(name).tobytes() == held.tobytes()


ALL_KINDS = {
    "recurrent": lambda: linear_network(
        "synaptic", "subtract", reset_gradient="full", recurrence="all_to_all", bias=True, **DENSE
    ),
    "itself": lambda: linear_network("lif", "zero", recurrence="one_to_one", **DENSE),
    "itself, one weight": lambda: linear_network("lif", "zero", recurrence="one_weight", **DENSE),
    **{name: lambda name=name: network_of_planes(*CHAINS[name], bias=True) for name in ("max before", "max after")},
    **{
        f"norm of {name}": lambda name=name: NORMED[name]
        for name in ("pooled after per timestep", "planes per sequence", "a loop")
    },
    "strided": lambda: network_of_planes(
        Convolution(
            planes=Planes(channels=3, height=9, width=7), window=Window(kernel=(3, 2), stride=(2, 1)), channels=20
        )
    ),
}


@pytest.mark.parametrize("name", ALL_KINDS)
def test_threads_change_no_bit_of_dense_spikes(name: str) -> None:
    network = ALL_KINDS[name]()
    values = single(draw_norms(network, 4)) if network.averages else given_values(network, 4, dyadic=False)
    one, other = (outcome(run_whole(network, values, count), network) for count in (1, 3))
    for key, gradient in one.gradients.items():
        assert np.abs(gradient).max() > 0
        assert gradient.tobytes() == other.gradients[key].tobytes()
        assert one.updated[key].tobytes() == other.updated[key].tobytes()


@pytest.mark.parametrize("name", ALL_KINDS)
def test_a_second_training_step_of_dense_spikes_starts_from_clean_states(name: str) -> None:
    network = ALL_KINDS[name]()
    values = given_values(network, 6)
    engine = run_whole(network, given_values(network, 5))
    engine.write(values.for_program(network))
    engine.run()
    again, fresh = outcome(engine, network), outcome(run_whole(network, values), network)
    for key, gradient in again.gradients.items():
        assert gradient.tobytes() == fresh.gradients[key].tobytes()


def test_dense_input_may_be_lists_of_any_length() -> None:
    network = small_network(spikes="dense")
    values = given_values(network, 3)
    spikes = values.spikes
    engine, listed = run_whole(network, values), WholeTensors(network)
    arrays = {name: value for name, value in values.for_program(network).items() if name != "input"}
    longest = int(spikes.counts.max())
    listed.write(arrays | {"input.ids": spikes.ids[..., :longest], "input.counts": spikes.counts})
    listed.run()
    assert longest < network.input_capacity
    assert listed.read("gradient.w.hidden0").tobytes() == engine.read("gradient.w.hidden0").tobytes()
    with pytest.raises(MappingError, match="'input' must be spikes, zeros and ones"):
        engine.write({"input": 0.5 * values.dense})
    with pytest.raises(MappingError, match=r"input 'input' has shape \(2,\)"):
        engine.write({"input": np.zeros(2)})


@pytest.mark.parametrize("chain", ["two", "max before"])
def test_frozen_and_clipped_convolutions(chain: str) -> None:
    network = network_of_planes(*CHAINS[chain], bias=True, largest_gradient_norm=0.05)
    assert_as_meant(network)
    assert_as_meant(replace(network, frozen=("w.hidden0", "b.hidden0")))
    assert_as_meant(replace(network, frozen=("w.hidden1", "w.output"), pruned=("w.hidden0",)))


def test_activity_is_numbered_with_channels_outermost() -> None:
    network = network_of_planes(PLAIN, delay=0)
    values = given_values(network, 7)
    activity, potentials = run_whole(network, values).activity(), interpreted(network, values).potentials["hidden0"]
    fired = potentials.reshape(4, 3, PLAIN.result.positions, 3).transpose(0, 1, 3, 2).reshape(4, 3, -1) > 1
    for t, sample in np.ndindex(4, 3):
        count = activity.counts["hidden0"][t, sample, 0]
        np.testing.assert_array_equal(activity.ids["hidden0"][t, sample, :count], np.flatnonzero(fired[t, sample]))
    assert fired.any()


def numbers_given(network: SpikingNetwork, seed: int = 3) -> Given:
    """Halves and ones of either sign, with which sums do not round; the same in every timestep of a steady input."""
    values, draw = given_values(network, seed), np.random.default_rng(seed)
    shape = (network.timesteps, network.batch, network.inputs)
    numbers = draw.choice([-0.5, 0.0, 0.5, 1.0], shape[network.steady_input :])
    return replace(values, dense=numbers)


@pytest.mark.parametrize("encoding", ["values", "image"])
@pytest.mark.parametrize("how", ["chain", "recurrent", "norm", "late input"])
def test_inputs_of_numbers_are_multiplied_as_meant(encoding: str, how: str) -> None:
    """Sequences and images, by layers that read nothing else."""
    if how == "late input" and encoding == "image":
        return  # which has no ages
    widths = (12, 70, 66, 4)
    recurrence = "all_to_all" if how == "recurrent" else "none"
    network = small_network(widths, spikes="dense", gain=20.0, encoding=encoding, bias=True, recurrence=recurrence)
    first, second, output = network.layers
    if how == "norm":
        network = normed(network, "timestep")
    if how == "late input":
        late = replace(first, sources=(Source(name="input", neurons=12, lag=2),))
        network = replace(network, layers=(late, second, output))
    values = draw_norms(network, 3) if how == "norm" else numbers_given(network)
    values = replace(values, dense=numbers_given(network).dense)
    if how == "norm":
        assert_as_exact(network, values)
        return
    engine = WholeTensors(network, 3)
    engine.write(values.for_program(network))
    for _ in range(2):  # nothing is left of the step before but what it trained
        engine.write({name: values.arrays[name] for name in values.arrays})
        engine.run()
    found, expected = outcome(engine, network), interpreted(network, values)
    assert all(engine.activity().counts[each.name].any() for each in network.layers)
    assert min(np.abs(expected.gradients[each.name]).max() for each in network.layers) > 0
    assert_alike(replace(found, ids={}, listed={}), expected, network)
    reads_more = replace(second, sources=(Source(name="hidden0", neurons=70), Source(name="input", neurons=12)))
    with pytest.raises(MappingError, match=r"layer 'hidden1': an input that is not spikes .* does not run as whole"):
        WholeTensors(replace(network, layers=(network.layers[0], reads_more, output)))
