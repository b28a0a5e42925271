"""Whole tensors against the interpreter and the compiled program, and with any number of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_networks import CASES, linear_network
from networks import (
    ADAM,
    SEEDS,
    SMALL,
    Given,
    Outcome,
    _only_listed,
    assert_same_spikes,
    compiled,
    every_optimiser,
    executed,
    given_values,
    gradient_names,
    interpreted,
    networks,
    parameter_keys,
    relative_error,
    small_network,
)
from test_losses import CASES as JUDGED
from test_optimisers import OPTIMISERS
from test_wiring import wirings

from mimdsim.base.errors import MappingError
from mimdsim.execution import Executor, WholeTensors
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.losses import Loss
from mimdsim.graph.spikes import ThresholdSchedule
from mimdsim.graph.surrogates import SURROGATES

TOLERANCE = 2e-6  # float32, sums in another order


def run_whole(network: SpikingNetwork, values: Given, threads: int = 1) -> WholeTensors:
    engine = WholeTensors(network, threads)
    engine.write(values.for_program(network))
    engine.run()
    return engine


def outcome(engine: WholeTensors, network: SpikingNetwork) -> Outcome:
    activity = engine.activity()
    names = [layer.name for layer in network.layers if layer.spiking]
    return Outcome(
        loss=float(engine.read("loss").mean()),
        counts=engine.read("counts"),
        ids={name: _only_listed(activity.ids[name], activity.counts[name]) for name in names},
        listed={name: activity.counts[name] for name in names},
        potentials={},
        gradients={name: engine.read(value) for name, value in gradient_names(network).items()},
        updated={key: engine.read(f"next.{name}") for key, name in parameter_keys(network).items()},
    )


def assert_alike(found: Outcome, expected: Outcome, network: SpikingNetwork) -> None:
    assert_same_spikes(found, expected)
    np.testing.assert_allclose(found.counts, expected.counts, rtol=TOLERANCE, atol=TOLERANCE)
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    for key in parameter_keys(network):
        # one number is a sum in which much cancels, and there is no larger one to hold it against
        most = 1e-5 if found.gradients[key].size == 1 else TOLERANCE
        assert relative_error(found.gradients[key], expected.gradients[key]) <= most, key
        assert relative_error(found.updated[key], expected.updated[key]) <= TOLERANCE, key


@SMALL
@given(network=networks(), seed=SEEDS, delay=st.sampled_from([0, 1]))
def test_equals_the_interpreter(network: SpikingNetwork, seed: int, delay: int) -> None:
    network = replace(network, delay=delay)
    values = given_values(network, seed)
    assert_alike(outcome(run_whole(network, values), network), interpreted(network, values), network)


WIDE: dict[str, Any] = {"timesteps": 7, "batch": 5, "capacities": (60, 25, 4)}


@pytest.mark.parametrize("second_threshold", [0.9, -100.0])
def test_layers_of_several_blocks_equal_the_compiled_program(second_threshold: float) -> None:
    network = small_network(
        (90, 150, 129, 4), reset_gradient="mask", optimiser=ADAM, second_threshold=second_threshold, **WIDE
    )
    values = given_values(network, 2, activity=0.15)
    made = executed(compiled(network, tiles=200), values)
    engine = run_whole(network, values)
    assert_alike(outcome(engine, network), made, network)
    assert min(np.abs(gradient).max() for gradient in made.gradients.values()) > 0
    assert engine.activity().dropped["hidden1"] > 0


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    network = small_network((90, 150, 129, 4), reset_gradient="mask", **WIDE)
    values = given_values(network, 4, dyadic=False, activity=0.15)
    one, other = (outcome(run_whole(network, values, count), network) for count in (1, threads))
    assert_same_spikes(one, other)
    for layer in network.layers:
        assert np.abs(one.gradients[layer.name]).max() > 0
        assert one.gradients[layer.name].tobytes() == other.gradients[layer.name].tobytes()
        assert one.updated[layer.name].tobytes() == other.updated[layer.name].tobytes()


def test_a_second_training_step_starts_from_clean_states() -> None:
    network = small_network((90, 150, 129, 4), **WIDE)
    first, values = given_values(network, 5, activity=0.2), given_values(network, 6, activity=0.1)
    engine = run_whole(network, first)
    engine.write(values.for_program(network))
    engine.run()
    again, fresh = outcome(engine, network), outcome(run_whole(network, values), network)
    assert_same_spikes(again, fresh)
    for layer in network.layers:
        assert again.gradients[layer.name].tobytes() == fresh.gradients[layer.name].tobytes()


def test_weights_and_moments_are_read_as_written() -> None:
    network = small_network((9, 70, 4), optimiser=ADAM)
    values, engine = given_values(network, 7), WholeTensors(network)
    engine.write(values.for_program(network))
    for name in ("w.hidden0", "moment1.hidden0", "moment2.output"):
        np.testing.assert_array_equal(engine.read(name), values.arrays[name])
    for name, output in (("w.output", ""), ("moment1.output", ".m"), ("moment2.output", ".v")):
        np.testing.assert_array_equal(engine.read(f"next.w.output{output}"), values.arrays[name])


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", every_optimiser().values(), ids=every_optimiser())
def test_a_scheduled_rate_is_the_one_written(optimiser: Any) -> None:
    network = small_network((9, 70, 4), optimiser=replace(optimiser, scheduled=True))
    values = given_values(network, 7)
    program, engine = Executor(compiled(network).program), WholeTensors(network)
    assert set(engine.inputs) == set(program.inputs)
    for each in (program, engine):
        each.write(values.for_program(network) | {"learning_rate": np.array([0.03], np.float32)})
        each.run()
    for layer in network.layers:
        name = f"w.{layer.name}"
        updated = program.arrays[program.program.inputs[name]]
        assert np.abs(updated - values.arrays[name]).max() > 1e-6
        np.testing.assert_allclose(engine.read(name), updated, rtol=1e-5, atol=1e-6)


def with_selection(network: SpikingNetwork, **changes: Any) -> SpikingNetwork:
    layers = (replace(layer, selection=replace(layer.selection, **changes)) for layer in network.layers)
    return replace(network, layers=tuple(layers))


def assert_as_meant(network: SpikingNetwork, seed: int = 3, **how: Any) -> WholeTensors:
    """A training step is the interpreter's, whose hidden layers fire and whose parameters all have gradients."""
    values = given_values(network, seed, **how)
    expected, engine = interpreted(network, values), run_whole(network, values)
    assert all(listed[..., 0].any() for listed in expected.listed.values())
    assert_alike(outcome(engine, network), expected, network)
    return engine


LINEAR: dict[str, Any] = {"widths": (12, 70, 4), "capacities": (20, 4)}  # two blocks, spikes dropped


@pytest.mark.first(2)
@pytest.mark.parametrize("reset_by", ["state", "emission"])
@pytest.mark.parametrize("reset_gradient", ["mask", "pass", "full"])
@pytest.mark.parametrize(("model", "reset"), CASES)
def test_every_linear_neuron_is_run_as_meant(model: str, reset: str, reset_gradient: str, reset_by: str) -> None:
    network = linear_network(model, reset, reset_by=reset_by, reset_gradient=reset_gradient, **LINEAR)
    assert_as_meant(network)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_every_surrogate_is_run_as_meant(surrogate: str) -> None:
    assert_as_meant(linear_network("synaptic", "zero", reset_gradient="full", surrogate=surrogate, slope=2.0, **LINEAR))
    assert_as_meant(with_selection(small_network((12, 70, 4)), surrogate=surrogate, slope=2.0))


@pytest.mark.parametrize("reset_gradient", ["full", "mask", "pass"])
def test_neurons_may_have_constants_of_their_own(reset_gradient: str) -> None:
    each = np.arange(70) / 128
    own = {"alpha": 0.25 + each, "beta": 0.875 - each, "threshold": 1.0 + each}
    network = linear_network("synaptic", "subtract", reset_gradient=reset_gradient, parameters=own, widths=(12, 70, 70))
    engine = assert_as_meant(network)
    assert np.abs(engine.read("gradient.w.hidden0")).max() > 0


@pytest.mark.first(2)
@pytest.mark.parametrize("truncation", ["random", "lowest"])
@pytest.mark.parametrize("model", ["synaptic", "lif"])
@wirings
def test_every_wiring_is_run_as_meant(recurrence: str, delay: int, bias: bool, model: str, truncation: str) -> None:
    more: Any = {"recurrence": recurrence, "delay": delay, "bias": bias, "widths": (12, 70, 66, 4)}
    network = with_selection(linear_network(model, "zero", capacities=(30, 20, 4), **more), truncation=truncation)
    engine = assert_as_meant(network)
    assert min(np.abs(engine.read(f"gradient.{name}")).max() for name in network.parameters) > 0
    assert engine.activity().dropped["hidden0"] > 0


@pytest.mark.parametrize("reading", ["every", "sum", "last"])
@pytest.mark.parametrize("burn_in", [1, 2, 3, 4])
def test_a_burn_in_of_lists_leaves_out_whole_timesteps(burn_in: int, reading: str) -> None:
    """Rows of gradients began at the first timestep, wherever those began that are read."""
    network = small_network((12, 20, 10, 4), timesteps=5, loss=Loss(reading=reading, burn_in=burn_in))
    assert_as_meant(network)
    *hidden, output = network.layers
    assert_as_meant(replace(network, layers=(*hidden, replace(output, spiking=False))))


def test_the_last_timestep_is_read_whatever_the_burn_in() -> None:
    network = small_network((12, 20, 10, 4), timesteps=5, loss=Loss(reading="last", burn_in=5))
    *hidden, output = network.layers
    assert_as_meant(replace(network, layers=(*hidden, replace(output, spiking=False))))


@pytest.mark.first(2)
@pytest.mark.parametrize("model", ["leaky", "lif"])
@pytest.mark.parametrize("name", list(reversed(JUDGED)))
def test_every_loss_is_run_as_meant(name: str, model: str) -> None:
    loss, spiking = JUDGED[name]
    widths = (12, 70, 10, 4 * loss.neurons_per_class)
    network = linear_network(model, "zero", widths=widths, loss=loss)
    *hidden, output = network.layers
    network = replace(network, layers=(*hidden, replace(output, spiking=spiking)))
    engine = assert_as_meant(network)
    values = interpret(training_graph(network), given_values(network, 3).for_graph(network))
    for penalty in network.penalties:
        assert engine.read(penalty)[0] == pytest.approx(values[penalty], rel=1e-5)
    assert set(engine.activity().ids) == {"input", *(layer.name for layer in network.layers if layer.spiking)}


@pytest.mark.first(2)
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("largest", [0.05, 0.0, 1e6])
def test_every_optimiser_is_run_as_meant(optimiser: str, scheduled: bool, largest: float) -> None:
    made = replace(OPTIMISERS[optimiser], scheduled=scheduled)
    network = replace(small_network((9, 70, 4), bias=True, recurrence="one_to_one"), optimiser=made)
    network = replace(network, largest_gradient_norm=largest)
    values = given_values(network, 4)
    expected, engine = interpret(training_graph(network), values.for_graph(network)), run_whole(network, values)
    assert_alike(outcome(engine, network), interpreted(network, values), network)
    for name in training_graph(network).outputs[2:]:
        found = engine.read(name)
        assert relative_error(found, expected[name]) <= TOLERANCE, name
    norm = sum(float(np.square(engine.read(f"gradient.{name}")).sum()) for name in network.parameters) ** 0.5
    assert norm == pytest.approx(0.05, rel=1e-4) if largest == 0.05 else norm > 0.1


@pytest.mark.parametrize("model", ["leaky", "lif"])
def test_second_thresholds_and_generators_are_those_written(model: str) -> None:
    moving = ThresholdSchedule(output=True)
    network = linear_network(model, "zero", second_threshold=0.5, threshold_schedule=moving, capacities=(8, 3))
    engine = assert_as_meant(network)
    assert set(engine.inputs) == set(Executor(compiled(network).program).inputs)
    drawn = with_selection(network, truncation="random")
    engine = assert_as_meant(drawn)
    assert set(engine.inputs) == set(Executor(compiled(drawn).program).inputs)
    before = engine.activity().ids["hidden0"]
    engine.run()  # the generators have moved on
    assert (engine.activity().ids["hidden0"] != before).any()


@pytest.mark.parametrize("recurrence", ["all_to_all", "one_to_one", "one_weight", "none"])
@pytest.mark.parametrize("reset_by", ["state", "emission"])
def test_threads_change_no_bit_of_linear_neurons(reset_by: str, recurrence: str) -> None:
    more: Any = {"widths": (90, 150, 4), "capacities": (60, 4), "recurrence": recurrence, "bias": True}
    network = linear_network("synaptic", "subtract", reset_by=reset_by, reset_gradient="full", **more)
    values = given_values(network, 4, dyadic=False, activity=0.15)
    one, other = (outcome(run_whole(network, values, count), network) for count in (1, 3))
    assert_same_spikes(one, other)
    for key, gradient in one.gradients.items():
        assert np.abs(gradient).max() > 0
        assert gradient.tobytes() == other.gradients[key].tobytes()
        assert one.updated[key].tobytes() == other.updated[key].tobytes()


@pytest.mark.parametrize("reset_gradient", ["full", "mask"])
def test_a_second_training_step_of_linear_neurons_starts_from_clean_states(reset_gradient: str) -> None:
    how: Any = {"reset_by": "emission", "reset_gradient": reset_gradient, "recurrence": "all_to_all"}
    network = linear_network("norse_lsnn", "zero", **how, **LINEAR)
    values = given_values(network, 6)
    engine = run_whole(network, given_values(network, 5))
    engine.write(values.for_program(network))
    engine.run()
    again, fresh = outcome(engine, network), outcome(run_whole(network, values), network)
    assert_same_spikes(again, fresh)
    for key, gradient in again.gradients.items():
        assert gradient.tobytes() == fresh.gradients[key].tobytes()


def test_what_it_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(MappingError, match="layer 'output': a smooth spike does not run as whole tensors; use the"):
        WholeTensors(small_network(recurrence="one_to_one", bias=True, smooth=True))
    network = small_network(spikes="dense", encoding="image")
    with pytest.raises(MappingError, match=r"an input that is not spikes .* does not run as whole tensors .*; use the"):
        WholeTensors(replace(network, layers=(replace(network.layers[0], dropout=0.5), *network.layers[1:])))


def test_inputs_that_do_not_fit_are_refused() -> None:
    network = small_network()
    engine, values = WholeTensors(network), given_values(network, 8).for_program(network)
    with pytest.raises(MappingError, match=r"input 'labels' has shape \(2,\), the network takes \(3,\)"):
        engine.write({"labels": np.zeros(2, np.int32)})
    with pytest.raises(MappingError, match=r"the network has no input 'w\.hiden0'; it has"):
        engine.write({"w.hiden0": np.zeros((7, 6), np.float32)})
    with pytest.raises(MappingError, match=r"'input\.ids' alone says nothing: write input\.ids and input\.counts at"):
        engine.write({"input.ids": values["input.ids"]})
    far, many = values["input.ids"] + 7, values["input.counts"] + 8
    with pytest.raises(MappingError, match=r"input\.ids must be 0 to 6, given 7 to 1\d"):
        engine.write({"input.ids": far, "input.counts": np.ones_like(many)})
    one = np.zeros_like(far)
    one[0, 0, 0] = 7
    with pytest.raises(MappingError, match=r"input\.ids must be 0 to 6, given 0 to 7"):
        engine.write({"input.ids": one, "input.counts": np.ones_like(many)})
    with pytest.raises(MappingError, match=r"input\.counts must be 0 to 7, given"):
        engine.write({"input.ids": values["input.ids"], "input.counts": many})
