"""Truncation at random: no id is preferred, the program drops whom the interpreter drops, and runs repeat."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_execution import execute
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import (
    ADAM,
    MAPPINGS,
    SEEDS,
    SMALL,
    assert_same_spikes,
    compiled,
    executed,
    given_values,
    interpreted,
    networks,
    relative_error,
    small_network,
)

from mimdsim.base.errors import MappingError
from mimdsim.base.rng import stream
from mimdsim.execution import Executor, TrainingPlan, initial_weights, train
from mimdsim.execution.trainer import Evaluation, draw_randomness, evaluate
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import OPERATIONS, SpikingNetwork, interpret, training_graph
from mimdsim.graph.spikes import STATE_BITS, Selection, ThresholdSchedule, from_start, next_state, scan_starts
from mimdsim.machine import GpuMachine, load_machine
from mimdsim.pipeline import time_on_gpus
from mimdsim.workload import MappingOptions, load_workload, open_dataset
from mimdsim.workload.description.sections import Data

RANDOM = Selection(threshold=1.0, second_threshold=0.5, capacity=4, slope=10.0, truncation="random")


def at_random(network: SpikingNetwork) -> SpikingNetwork:
    return replace(
        network,
        layers=tuple(
            replace(layer, selection=replace(layer.selection, truncation="random")) for layer in network.layers
        ),
    )


def selected(v: np.ndarray, state: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    lowest = replace(RANDOM, truncation="lowest")
    given = (lowest, v) if state is None else (RANDOM, v, state)
    (spikes,) = OPERATIONS["select_spikes"].evaluate(*given)
    return spikes.ids, spikes.counts


def test_a_scan_goes_once_round() -> None:
    ids = np.array([1, 3, 4, 8])
    assert from_start(ids, 0).tolist() == [1, 3, 4, 8]
    assert from_start(ids, 4).tolist() == [4, 8, 1, 3]
    assert from_start(ids, 9).tolist() == [1, 3, 4, 8]


def test_starts_are_spread_evenly() -> None:
    state = stream(1, "starts").integers(0, 1 << STATE_BITS, 20_000)
    for _ in range(3):  # drawn, and one and two numbers on
        counts = np.bincount(scan_starts(state, 7), minlength=7)
        # seven standard deviations of a binomial of chance 1/7
        assert np.abs(counts - 20_000 / 7).max() < 7 * (20_000 * 6 / 49) ** 0.5
        state = next_state(state)
    assert state.min() >= 0
    assert state.max() < 1 << STATE_BITS


def test_every_neuron_is_kept_equally_often_where_the_lowest_were() -> None:
    """Twelve neurons fire, four slots: over the twelve starts each neuron is listed a third of the time."""
    v = np.full((12, 12), 2.0)
    state = (np.arange(12) << STATE_BITS) // 12 + 1  # the starts 0 to 11
    assert scan_starts(state, 12).tolist() == list(range(12))
    ids, counts = selected(v, state)
    assert counts.tolist() == [[4, 4]] * 12
    assert np.bincount(ids.ravel(), minlength=12).tolist() == [4] * 12
    lowest, _ = selected(v)
    assert lowest.tolist() == [[0, 1, 2, 3]] * 12


def test_spikes_come_before_gradient_entries() -> None:
    v = np.array([[2.0, 0.7, 0.7, 2.0, 2.0, 0.7]])
    ids, counts = selected(v, np.array([(3 << STATE_BITS) // 6 + 1]))  # the scan starts at neuron 3
    assert counts.tolist() == [[3, 4]]
    assert ids.tolist() == [[3, 4, 0, 5]]


@pytest.mark.slow
@settings(SMALL, max_examples=30)
@given(network=networks(), options=MAPPINGS, seed=SEEDS, moving=st.booleans())
def test_the_program_drops_whom_the_interpreter_drops(
    network: SpikingNetwork, options: MappingOptions, seed: int, moving: bool
) -> None:
    network = at_random(network)
    if moving:
        network = replace(network, threshold_schedule=ThresholdSchedule(start=-1.0))
    values = given_values(network, seed)
    expected = interpreted(network, values)
    found = executed(compiled(network, options=options), values)
    assert_same_spikes(found, expected)
    for name in expected.gradients:
        assert relative_error(found.gradients[name], expected.gradients[name]) < 1e-5


@pytest.mark.slow
def test_strictly_too() -> None:
    network = at_random(small_network((9, 20, 12, 4), capacities=(3, 2, 2), second_threshold=-100.0))
    values = given_values(network, 4)
    options = MappingOptions(states_per_worker=3)
    assert_same_spikes(executed(compiled(network, options=options), values, strict=True), interpreted(network, values))


def test_what_fits_is_the_same_in_another_order() -> None:
    """With room for all spikes nothing is dropped: the same sums, and the same gradients but for their rounding."""
    network = small_network((9, 20, 12, 4), second_threshold=-100.0)
    values = given_values(network, 4)
    plain, drawn = interpreted(network, values), interpreted(at_random(network), given_values(at_random(network), 4))
    np.testing.assert_array_equal(plain.counts, drawn.counts)
    for name in plain.gradients:
        assert relative_error(plain.gradients[name], drawn.gradients[name]) < 1e-5


DATA = Data(
    source="random", timesteps=12, input_capacity=20, inputs=50, classes=4, activity=0.1,
    train_samples=32, test_samples=16,
)  # fmt: skip


def test_training_repeats_and_does_not_depend_on_evaluations() -> None:
    network = at_random(small_network((50, 40, 4), timesteps=12, batch=8, capacities=(4, 4), input_capacity=20))
    network = replace(network, optimiser=ADAM)
    program = compiled(network).program
    data, held = open_dataset(DATA, 3)
    weights = initial_weights(network, 1, 2.0, 0.01)

    def trained(when: str, seed: int = 5) -> tuple[float, ...]:
        plan = TrainingPlan(epochs=2, seed=seed, evaluation=Evaluation(when=when))
        log = train(program, network, data, held, plan, weights=weights)
        assert log.activity.dropped["hidden0"] > 0
        return log.loss

    assert trained("each epoch") == trained("each epoch") == trained("never")
    assert trained("each epoch") != trained("each epoch", seed=6)
    executor = Executor(program)
    executor.write(weights)
    assert evaluate(executor, network, held) == evaluate(executor, network, held)


def test_the_seed_decides_and_nothing_that_ran_before() -> None:
    network = at_random(small_network((9, 20, 4)))
    executor = Executor(compiled(network).program)
    drawn = []
    for number in (1, 2, 1):
        draw_randomness(executor, 7, number)
        drawn.append(executor.arrays["random.hidden0"].copy())
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[0] != drawn[1]).any()


def test_the_key_in_a_workload_and_its_cost() -> None:
    tiled = load_machine("tiny")
    workload = load_workload("digits", {"network.truncation": "random"})
    assert workload.network.truncation == "random"
    network = at_random(small_network((9, 200, 4), batch=6, capacities=(8, 4)))
    program = compiled(network).program
    assert not any("random offsets" in step.name for step, _, _ in program.supersteps())
    assert any("draw starts" in step.name for step, _, _ in program.supersteps())
    assert tiled.chip.tiles == 16  # type: ignore[union-attr]
    for name in ("ScanFlags", "CombineWorkers", "CombineTiles"):
        costs = [
            table.codelet.cost
            for step, _, _ in program.supersteps()
            for table in step.tables
            if table.codelet.name.startswith(name)
        ]
        assert costs
        assert all("lap below" in cost.source for cost in costs)


def test_a_gpu_draws_too() -> None:
    gpu = load_machine("a100")
    assert isinstance(gpu, GpuMachine)
    profiles, warnings = time_on_gpus(training_graph(at_random(small_network())), (gpu,))
    assert profiles
    assert not warnings
    network = at_random(small_network((9, 20, 12, 4), capacities=(3, 2, 2)))
    graph = training_graph(network)
    inputs = given_values(network, 3, dtype=np.float64).for_graph(network)
    meant = interpret(graph, inputs)
    for strategy in STRATEGIES:
        made = execute(graph, inputs, strategy=strategy)
        for name in graph.outputs[1:]:
            np.testing.assert_allclose(made[name], meant[name], rtol=1e-10, atol=1e-12)


def test_another_truncation_is_refused() -> None:
    with pytest.raises(MappingError, match=r"network\.truncation = 'highest' is not a valid choice; "):
        replace(RANDOM, truncation="highest")
