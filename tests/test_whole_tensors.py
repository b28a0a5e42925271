"""Whole tensors against the interpreter and the compiled program, and with any number of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import (
    ADAM,
    SEEDS,
    SMALL,
    Given,
    Outcome,
    _only_listed,
    assert_same_spikes,
    compiled,
    executed,
    given_values,
    gradient_names,
    interpreted,
    networks,
    relative_error,
    small_network,
)

from mimdsim.base.errors import MappingError
from mimdsim.functional import Executor, WholeTensors
from mimdsim.graph import Sgd, SpikingNetwork
from mimdsim.graph.losses import Loss
from mimdsim.graph.spikes import ThresholdSchedule

TOLERANCE = 2e-6  # float32, sums in another order


def run_whole(network: SpikingNetwork, values: Given, threads: int = 1) -> WholeTensors:
    engine = WholeTensors(network, threads)
    engine.write(values.for_program(network))
    engine.run()
    return engine


def outcome(engine: WholeTensors, network: SpikingNetwork) -> Outcome:
    activity = engine.activity()
    names = [layer.name for layer in network.layers]
    return Outcome(
        loss=float(engine.read("loss").mean()),
        counts=engine.read("counts"),
        ids={name: _only_listed(activity.ids[name], activity.counts[name]) for name in names},
        listed={name: activity.counts[name] for name in names},
        potentials={},
        gradients={name: engine.read(value) for name, value in gradient_names(network).items()},
        updated={name: engine.read(f"next.w.{name}") for name in names},
    )


def assert_alike(found: Outcome, expected: Outcome, network: SpikingNetwork) -> None:
    assert_same_spikes(found, expected)
    np.testing.assert_array_equal(found.counts, expected.counts)
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    for layer in network.layers:
        assert relative_error(found.gradients[layer.name], expected.gradients[layer.name]) <= TOLERANCE
        assert relative_error(found.updated[layer.name], expected.updated[layer.name]) <= TOLERANCE


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


@pytest.mark.parametrize("optimiser", [Sgd(learning_rate=0.1, scheduled=True), replace(ADAM, scheduled=True)])
def test_a_scheduled_rate_is_the_one_written(optimiser: Any) -> None:
    network = small_network((9, 70, 4), optimiser=optimiser)
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


def test_what_it_does_not_know_is_refused_by_name() -> None:
    network = small_network(recurrence="one_to_one", bias=True, smooth=True)
    with pytest.raises(MappingError, match=r"layer 'hidden0': recurrence 'one_to_one' does not run as whole tensors"):
        WholeTensors(network)
    with pytest.raises(MappingError, match="layer 'output': a bias does not run as whole tensors; use the compiled"):
        WholeTensors(network)
    with pytest.raises(MappingError, match='spikes = "dense": only sparse spikes are run as whole tensors'):
        WholeTensors(small_network(spikes="dense"))


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"largest_gradient_norm": 2.0}, r"largest_gradient_norm = 2 is not known to whole tensors; use the compiled"),
        ({"optimiser": Sgd(learning_rate=0.1, momentum=0.9)}, r"momentum = 0\.9 is not known to whole tensors"),
        ({"optimiser": Sgd(learning_rate=0.1, weight_decay=0.1)}, r"weight_decay = 0\.1 is not known to whole tensors"),
        ({"loss": Loss(kind="mean_squared_error")}, "loss Loss.*mean_squared_error.* is not known to whole tensors"),
        ({"threshold_schedule": ThresholdSchedule()}, "network.threshold_schedule ThresholdSchedule.* is not known to"),
    ],
)
def test_what_of_training_it_does_not_know_is_refused(changed: dict[str, Any], refusal: str) -> None:
    with pytest.raises(MappingError, match=refusal):
        WholeTensors(replace(small_network(), **changed))


@pytest.mark.parametrize(("field", "value"), [("surrogate", "arctan"), ("truncation", "random")])
def test_what_of_selection_it_does_not_know_is_refused(field: str, value: str) -> None:
    network = small_network()
    layers = tuple(replace(layer, selection=replace(layer.selection, **{field: value})) for layer in network.layers)
    with pytest.raises(MappingError, match=f"layer 'output': {field} '{value}' .* does not run as whole tensors"):
        WholeTensors(replace(network, layers=layers))


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
    with pytest.raises(MappingError, match=r"input\.counts must be 0 to 7, given"):
        engine.write({"input.ids": values["input.ids"], "input.counts": many})
