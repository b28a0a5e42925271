"""The law of lowering: execute(lower(graph)) = interpret(graph), on any machine, fast or strict, and again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from networks import (
    ADAM,
    MAPPINGS,
    SEEDS,
    SGD,
    SMALL,
    Outcome,
    assert_same_bits,
    assert_same_spikes,
    compiled,
    executed,
    given_values,
    interpreted,
    machine,
    networks,
    relative_error,
    small_network,
)

from mimdsim.base.errors import MappingError
from mimdsim.compiler import compile_graph
from mimdsim.execution import Executor, TrainingPlan, initial_weights, train
from mimdsim.execution.activity import dropped_spikes
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.workload import MappingOptions

TOLERANCE = 1e-5


def gradient_error(one: Outcome, other: Outcome) -> float:
    """The largest over the layers."""
    return max(relative_error(one.gradients[name], other.gradients[name]) for name in one.gradients)


@pytest.mark.parametrize("examples", [15, 40])
def test_execution_is_interpretation_on_dyadic_weights(examples: int) -> None:
    @settings(SMALL, max_examples=examples)
    @given(network=networks(), options=MAPPINGS, seed=SEEDS)
    def law(network: SpikingNetwork, options: MappingOptions, seed: int) -> None:
        values = given_values(network, seed)
        expected = interpreted(network, values)
        found = executed(compiled(network, options=options), values)
        assert_same_spikes(found, expected)
        np.testing.assert_array_equal(found.counts, expected.counts)
        for name, potential in expected.potentials.items():
            np.testing.assert_array_equal(found.potentials[name], potential)
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        assert gradient_error(found, expected) < TOLERANCE
        for name, updated in expected.updated.items():
            assert relative_error(found.updated[name], updated) < TOLERANCE

    law()


def flips(network: SpikingNetwork, one: Outcome, other: Outcome) -> np.ndarray:
    """|potential - threshold| where the two are on different sides of it, at the first timestep that has any."""
    distances: list[tuple[int, float]] = []
    for layer in network.layers:
        for threshold in (layer.selection.threshold, layer.selection.second_threshold):
            a, b = one.potentials[layer.name], other.potentials[layer.name]
            limit = np.float32(threshold)
            for place in np.argwhere((a > limit) != (b > limit)):
                distances.append((int(place[0]), float(abs(a[tuple(place)] - limit))))
    first = min((t for t, _ in distances), default=0)
    return np.array([distance for t, distance in distances if t == first])


def assert_close_but_for_rounding(network: SpikingNetwork, found: Outcome, expected: Outcome) -> int:
    """Spikes differ first only where a potential is within rounding of a threshold; returns how many do there."""
    distances = flips(network, found, expected)
    if not len(distances):
        assert_same_spikes(found, expected)
        assert gradient_error(found, expected) < TOLERANCE
        return 0
    highest = max(float(np.abs(potential).max()) for potential in expected.potentials.values())
    assert distances.max() <= 64 * np.finfo(np.float32).eps * max(1.0, highest)
    one, other = (np.concatenate([g.ravel() for g in o.gradients.values()]) for o in (found, expected))
    assert one @ other / (np.linalg.norm(one) * np.linalg.norm(other)) > 0.999
    return len(distances)


@pytest.mark.slow
@SMALL
@given(network=networks(), options=MAPPINGS, seed=SEEDS)
def test_execution_is_interpretation_within_rounding_on_ordinary_weights(
    network: SpikingNetwork, options: MappingOptions, seed: int
) -> None:
    values = given_values(network, seed, dyadic=False)
    found = executed(compiled(network, options=options), values)
    assert_close_but_for_rounding(network, found, interpreted(network, values))


def test_a_potential_on_the_threshold_may_flip_and_little_else_changes() -> None:
    """One hidden neuron sums 40 weights of 0.1 once: in the order of ids on tiles, by BLAS in the dense interpreter."""
    network = small_network((40, 300, 6), timesteps=8, batch=8, gain=5.0, second_threshold=-100.0)
    values = given_values(network, 5, dyadic=False, activity=0.2)
    values.arrays["w.hidden0"][:, 7] = 0.1
    values.arrays["w.output"] *= 0.5
    values.spikes.ids[0, 0] = np.arange(40)
    values.spikes.counts[0, 0] = 40
    values.dense[0, 0] = 1.0
    dense = replace(network, spikes="dense")
    reached = interpreted(dense, values).potentials["hidden0"][0, 0, 7]
    other = executed(compiled(network), values).potentials["hidden0"][0, 0, 7]
    if reached == other:
        pytest.skip("this machine's BLAS sums in the order of ids")
    hidden, output = network.layers
    threshold = float(min(reached, other))  # one of the two is above it
    changed = replace(
        hidden,
        neuron=replace(hidden.neuron, threshold=threshold),
        selection=replace(hidden.selection, threshold=threshold),
    )
    network = replace(network, layers=(changed, output))
    expected = interpreted(replace(network, spikes="dense"), values)
    assert assert_close_but_for_rounding(network, executed(compiled(network), values), expected) > 0


@pytest.mark.parametrize("optimiser", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("reset_gradient", ["pass", "mask"])
def test_strict_execution_gives_the_same_bits(optimiser: Any, reset_gradient: str) -> None:
    network = small_network(
        (5, 5, 3), timesteps=2, batch=3, capacities=(3, 3), reset_gradient=reset_gradient, optimiser=optimiser
    )
    values = given_values(network, 6, dyadic=False)
    made = compiled(network, options=MappingOptions(neurons_per_tile=2, weight_gradient_replicas=2))
    fast = executed(made, values)
    assert max(np.abs(gradient).max() for gradient in fast.gradients.values()) > 0
    assert_same_bits(executed(made, values, strict=True), fast)


@pytest.mark.parametrize("tiles", [40, 1472])
def test_machines_of_other_sizes_give_the_same_spikes(tiles: int) -> None:
    network = small_network((20, 33, 18, 5), timesteps=6, batch=7, capacities=(9, 18, 5))
    values = given_values(network, 7)
    one = executed(compiled(network, tiles=24), values)
    other = executed(compiled(network, tiles=tiles), values)
    assert one.counts.sum() > 0
    assert_same_spikes(other, one)
    assert gradient_error(other, one) < TOLERANCE


class Samples:
    """Random input spikes, fixed by a seed."""

    def __init__(self, network: SpikingNetwork, samples: int):
        many = given_values(replace(network, batch=samples), 8)
        self.spikes, self.labels = many.spikes, many.labels

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.spikes.ids[:, indices], self.spikes.counts[:, indices, 0], self.labels[indices]


def test_the_same_seed_gives_the_same_bytes() -> None:
    network = small_network((8, 9, 4), timesteps=4, batch=4, optimiser=ADAM)
    logs = []
    for _ in range(2):
        weights = initial_weights(network, seed=3, scale=2.0, offset=0.2)
        data = Samples(network, 12)
        made = compiled(network)
        logs.append(train(made.program, network, data, data, TrainingPlan(epochs=2, seed=3), weights=weights))
    one, other = logs
    assert len(one.loss) == 6
    assert one.loss == other.loss
    assert one.test_accuracy_by_epoch == other.test_accuracy_by_epoch
    assert one.activity.counts["output"].any()
    for name in one.weights:
        assert one.weights[name].tobytes() == other.weights[name].tobytes()
        assert not np.array_equal(one.weights[name], initial_weights(network, 3, 2.0, 0.2)[name])
    for name in one.activity.ids:
        assert one.activity.ids[name].tobytes() == other.activity.ids[name].tobytes()


def test_a_second_training_step_starts_from_clean_states() -> None:
    """Memory left by one training step must not reach the next, but for weights and moments."""
    network = small_network((8, 7, 6, 4), timesteps=5, batch=4, capacities=(5, 4, 4), optimiser=ADAM)
    made, values = compiled(network), given_values(network, 9)
    executor = Executor(made.program)
    executor.write(given_values(network, 10).for_program(network))
    executor.run()
    executor.write(values.for_program(network))
    executor.run()
    fresh = Executor(made.program)
    fresh.write(values.for_program(network))
    fresh.run()
    for name in ("losses", "totals", *(f"gradient.{layer.name}" for layer in network.layers)):
        np.testing.assert_array_equal(executor.arrays[name], fresh.arrays[name])


def test_a_graph_of_the_other_form_of_spikes_is_refused_with_the_operation_named() -> None:
    sparse = small_network()
    dense = training_graph(replace(sparse, spikes="dense"))
    refusal = r"operation 'current\.hidden0' of kind 'matmul' \(layer 'hidden0'\) has no lowering of sparse spikes"
    with pytest.raises(MappingError, match=refusal):
        compile_graph(dense, sparse, machine(), MappingOptions())


def test_selection_keeps_the_lowest_ids_and_counts_what_it_drops() -> None:
    network = small_network((8, 20, 4), timesteps=4, batch=3, capacities=(5, 2), second_threshold=0.5)
    values = given_values(network, 11)
    values.arrays["w.hidden0"] += 0.5
    made = compiled(network)
    executor = Executor(made.program)
    executor.write(values.for_program(network))
    executor.run()
    activity = executor.activity()
    dropped = dropped_spikes(executor, network, activity)
    for layer in network.layers:
        name, capacity, lost = layer.name, layer.capacity, 0
        for place in np.ndindex(network.timesteps, network.batch):
            v = executor.arrays[f"v.{name}.sequence"][place]
            fired, near = np.flatnonzero(v > 1.0), np.flatnonzero((v > 0.5) & (v <= 1.0))
            true, listed = activity.counts[name][place]
            expected = np.concatenate([fired, near])[:capacity]
            np.testing.assert_array_equal(activity.ids[name][place][:listed], expected)
            assert (true, listed) == (min(len(fired), capacity), len(expected))
            lost += max(0, len(fired) - capacity)
        assert dropped[name] == lost
    assert dropped["hidden0"] > 0


def test_inputs_of_another_shape_or_name_are_refused() -> None:
    network = small_network()
    executor = Executor(compiled(network).program)
    with pytest.raises(MappingError, match=r"input 'labels' has shape \(2,\), the program takes \(3,\)"):
        executor.write({"labels": np.zeros(2, np.int32)})
    with pytest.raises(MappingError, match="the program has no input 'lables'; it has"):
        executor.write({"lables": np.zeros(3, np.int32)})


def test_a_batch_of_one_whose_first_layer_lies_on_the_sample_tile() -> None:
    network = small_network((8, 2), batch=1)
    values = given_values(network, 12)
    assert_same_spikes(executed(compiled(network), values), interpreted(network, values))


@pytest.mark.parametrize(("neurons", "states_per_worker"), [(16, 2), (482, 64)])
def test_every_neuron_is_listed_when_selection_is_spread_over_tiles(neurons: int, states_per_worker: int) -> None:
    network = small_network((4, neurons, 3), timesteps=2, batch=2, second_threshold=-100.0)
    values = given_values(network, 13)
    values.arrays["w.hidden0"][:] = -1.0  # nothing fires, everything is a gradient entry
    options = MappingOptions(states_per_worker=states_per_worker)
    found = executed(compiled(network, options=options), values)
    assert_same_spikes(found, interpreted(network, values))


@pytest.mark.parametrize("neurons", [481, 500, 700])
def test_selection_spread_over_tiles_lists_the_lowest_ids(neurons: int) -> None:
    """Several selection tiles per sample, capacities as in use (well below the neurons)."""
    network = small_network((6, neurons, 3), timesteps=3, batch=2, capacities=(60, 3))
    values = given_values(network, 14)
    found = executed(compiled(network, tiles=60), values)
    assert found.listed["hidden0"][..., 0].max() == 60
    assert_same_spikes(found, interpreted(network, values))


def test_a_potential_beyond_float32_is_reset_as_any_other() -> None:
    network = small_network((4, 3), timesteps=3, batch=2, gain=1e30)
    values = given_values(network, 1)
    values.arrays["w.output"][:] = 1e38
    with np.errstate(over="ignore"):
        expected = interpreted(network, values)
    assert np.isinf(expected.potentials["output"]).any()
    assert_same_spikes(executed(compiled(network), values), expected)
