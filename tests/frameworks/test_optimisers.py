"""Optimisers, clipping and scheduled scalars: the lowered program against the interpreter, and both against PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_execution import execute
from networks import (
    Given,
    compiled,
    every_optimiser,
    executed,
    given_values,
    interpreted,
    relative_error,
    small_network,
)

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.execution import Executor
from mimdsim.gpu import STRATEGIES
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.graph import Adam, Sgd, SpikingNetwork, interpret, training_graph
from mimdsim.graph.spikes import ThresholdSchedule
from mimdsim.numerics.optimisers import OPTIMISERS as KNOWN
from mimdsim.numerics.optimisers import Optimiser, TorchAdam
from mimdsim.workload import MappingOptions, load_workload
from mimdsim.workload.description.network import optimiser_of

NAMED = {
    "sgd": Sgd(learning_rate=0.1),
    "sgd with decay": Sgd(learning_rate=0.1, weight_decay=0.05),
    "momentum": Sgd(learning_rate=0.1, momentum=0.9),
    "momentum with decay": Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0.05),
    "adam": Adam(learning_rate=0.02),
    "adamw": Adam(learning_rate=0.02, weight_decay=0.3),
    "torch_adamw": TorchAdam(learning_rate=0.02, weight_decay=0.3, epsilon=1e-3),
}
FAST = every_optimiser()
OPTIMISERS = {
    **{f"every {name}": made for name, made in FAST.items()},
    **{f"default {name}": KNOWN[name](learning_rate=0.02) for name in FAST},
    **NAMED,
}


def scheduled_too(made: dict[str, Optimiser]) -> list[Any]:
    """Each of them, then each with a rate that is scheduled."""
    moving = {f"{name} scheduled": replace(each, scheduled=True) for name, each in made.items()}
    return [pytest.param(each, id=name) for name, each in (made | moving).items()]


CASES = scheduled_too(OPTIMISERS)
TIGHT = 1e-6
FLOAT64 = 1e-8


def trained_network(optimiser: Any, **more: Any) -> SpikingNetwork:
    return small_network((9, 8, 6, 4), timesteps=6, batch=4, optimiser=optimiser, **more)


def state_after(network: SpikingNetwork, values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every output of the update by graph input, from the values or arrays that hold them by the outputs' names."""
    found = {}
    for layer in network.layers:
        weight = f"w.{layer.name}"
        names = (weight, *(layer.parameters[0].kept(slot) for slot in network.optimiser.state))
        slots = ("", *(f".{field}" for field in network.optimiser.form.state.values()))
        outputs = [f"next.{weight}{slot}" for slot in slots]
        found |= {name: values[output] for name, output in zip(names, outputs, strict=True)}
    return found


@pytest.mark.first(len(FAST))
@pytest.mark.parametrize("optimiser", CASES)
@pytest.mark.parametrize("largest_norm", [0.0, 0.01])
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
def test_updates_on_tiles_are_those_of_the_interpreter(optimiser: Any, largest_norm: float, spikes: str) -> None:
    network = trained_network(optimiser, largest_gradient_norm=largest_norm, spikes=spikes)
    values = given_values(network, 3)
    meaning = interpret(training_graph(network), values.for_graph(network))
    made = compiled(network)
    executor = Executor(made.program)
    executor.write(values.for_program(network))
    executor.run()
    expected = state_after(network, meaning)
    for name, value in expected.items():
        assert relative_error(executor.arrays[name], value) < TIGHT, name
        assert not np.array_equal(executor.arrays[name], values.arrays[name])


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", FAST.values(), ids=FAST)
def test_strict_execution_gives_the_same_bits(optimiser: Any) -> None:
    network = small_network(
        (5, 5, 3), timesteps=2, batch=3, optimiser=optimiser, largest_gradient_norm=0.01,
        threshold_schedule=ThresholdSchedule(),
    )  # fmt: skip
    values = given_values(network, 6)
    made = compiled(network, options=MappingOptions(neurons_per_tile=2, weight_gradient_replicas=2))
    one, other = executed(made, values), executed(made, values, strict=True)
    for name in one.updated:
        np.testing.assert_array_equal(one.updated[name], other.updated[name])


def by_torch(network: SpikingNetwork, given: Given, gradients: dict[str, np.ndarray], epsilon: float) -> Any:
    """One update of torch.optim from the same gradients, weights and state."""
    torch = pytest.importorskip("torch")
    optimiser = network.optimiser
    rate = given.scalars(network).get("learning_rate", optimiser.learning_rate)
    weights = {}
    for layer in network.layers:
        weight = torch.tensor(given.arrays[f"w.{layer.name}"], requires_grad=True)
        weight.grad = torch.tensor(gradients[layer.name])
        weights[layer.name] = weight
    if network.largest_gradient_norm:
        torch.nn.utils.clip_grad_norm_(weights.values(), network.largest_gradient_norm)
    decay = optimiser.weight_decay
    if isinstance(optimiser, Adam):
        made = torch.optim.AdamW(weights.values(), lr=rate, weight_decay=decay, eps=epsilon)
    else:
        made = torch.optim.SGD(weights.values(), lr=rate, momentum=optimiser.momentum, weight_decay=decay)
    for name, weight in weights.items():
        state = {slot: torch.tensor(given.arrays[f"{slot}.{name}"]) for slot in optimiser.state}
        if isinstance(optimiser, Adam):
            step = torch.tensor(float(given.training_step - 1))
            made.state[weight] = {"step": step, "exp_avg": state["moment1"], "exp_avg_sq": state["moment2"]}
        elif optimiser.momentum:
            made.state[weight] = {"momentum_buffer": state["momentum"]}
    made.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


@pytest.mark.torch
@pytest.mark.parametrize("optimiser", scheduled_too(NAMED))
@pytest.mark.parametrize("largest_norm", [0.0, 0.01, 100.0])
def test_updates_are_those_of_torch(optimiser: Any, largest_norm: float) -> None:
    epsilon = getattr(optimiser, "epsilon", 0.0)
    if isinstance(optimiser, Adam) and not isinstance(optimiser, TorchAdam):
        epsilon = 1e-300  # Keras and PyTorch add theirs at different places
        optimiser = replace(optimiser, epsilon=epsilon)
    network = trained_network(optimiser, largest_gradient_norm=largest_norm)
    values = given_values(network, 3, dyadic=False, dtype=np.float64)
    raw = interpreted(replace(network, largest_gradient_norm=0.0), values).gradients
    expected = by_torch(network, values, raw, epsilon)
    found = interpreted(network, values).updated
    for name, weight in expected.items():
        assert relative_error(found[name], weight) < FLOAT64


def test_gradients_below_the_bound_stay_as_they_are() -> None:
    network = trained_network(Sgd(learning_rate=0.1))
    values = given_values(network, 3)
    plain = executed(compiled(network), values)
    bounded = replace(network, largest_gradient_norm=1e6)
    loose = executed(compiled(bounded), values)
    for name in plain.gradients:
        np.testing.assert_array_equal(loose.gradients[name], plain.gradients[name])
    bounded = replace(network, largest_gradient_norm=0.001)
    tight = executed(compiled(bounded), values)
    norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in tight.gradients.values()))
    assert norm == pytest.approx(0.001, rel=1e-2)


def test_a_scheduled_second_threshold_decides_what_is_listed() -> None:
    """As run-time input the threshold gives what a constant of the same value gives, bit for bit."""
    network = small_network((9, 8, 6, 4), timesteps=6, batch=4, second_threshold=0.6)
    moving = replace(network, threshold_schedule=ThresholdSchedule())
    values = given_values(network, 3)
    made = compiled(moving)
    assert set(moving.scheduled) == {"second_threshold.hidden0", "second_threshold.hidden1"}
    for threshold in (-100.0, 0.25, 0.6):
        constant = replace(
            network,
            layers=tuple(
                replace(layer, selection=replace(layer.selection, second_threshold=threshold))
                for layer in network.layers[:-1]
            )
            + network.layers[-1:],
        )
        expected = executed(compiled(constant), values)
        executor = Executor(made.program)
        executor.write(values.for_program(moving))
        executor.write({name: np.full(1, threshold, np.float32) for name in moving.scheduled})
        executor.run()
        for layer in network.layers:
            np.testing.assert_array_equal(executor.arrays[f"counts.{layer.name}.sequence"], expected.listed[layer.name])
            np.testing.assert_array_equal(executor.read(f"next.w.{layer.name}"), expected.updated[layer.name])
    with pytest.raises(MappingError, match=r"has no input 'second_threshold\.output'"):
        executor.write({"second_threshold.output": np.zeros(1, np.float32)})


def test_scheduled_and_clipped_interpreted_and_executed() -> None:
    network = trained_network(
        Adam(learning_rate=0.01, scheduled=True), threshold_schedule=ThresholdSchedule(output=True),
        largest_gradient_norm=0.01,
    )  # fmt: skip
    values = given_values(network, 5)
    expected, found = interpreted(network, values), executed(compiled(network), values)
    for name in expected.gradients:
        np.testing.assert_array_equal(found.listed[name], expected.listed[name])
        assert relative_error(found.gradients[name], expected.gradients[name]) < 1e-5


@pytest.mark.parametrize(("training_step", "expected"), [(0, -100.0), (1, -49.55), (2, -24.325), (200, 0.9)])
def test_the_threshold_goes_half_way_every_training_step(training_step: int, expected: float) -> None:
    assert ThresholdSchedule(share=0.5).at(training_step, 0.9) == pytest.approx(expected)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_updates_of_every_gpu_strategy_are_those_of_the_interpreter(strategy: str) -> None:
    network = trained_network(
        Adam(learning_rate=0.01, scheduled=True, weight_decay=0.1), threshold_schedule=ThresholdSchedule(),
        largest_gradient_norm=0.01,
    )  # fmt: skip
    graph = training_graph(network)
    inputs = given_values(network, 3, dtype=np.float64).for_graph(network)
    meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
    for name in graph.outputs[2:]:
        assert relative_error(np.asarray(made[name]), np.asarray(meant[name])) < 1e-12, name


def test_clipping_and_moments_are_kernels_with_their_bytes() -> None:
    plain, more = (
        lower_to_kernels(training_graph(trained_network(optimiser, **fields)), STRATEGIES["hoisted"], precision="fp32")
        for optimiser, fields in (
            (Sgd(learning_rate=0.1), {}),
            (Sgd(learning_rate=0.1, momentum=0.9), {"largest_gradient_norm": 1.0}),
        )
    )
    kinds = [kernel.op for kernel in more.kernels]
    assert [kinds.count(kind) for kind in ("sum_squares", "clip_factor", "scale", "momentum", "sgd")] == [3, 1, 3, 3, 0]
    assert more.bytes_needed > plain.bytes_needed


def test_clipping_takes_supersteps_and_cycles() -> None:
    """Squares on every tile, their sum, one factor for all: five supersteps, and the largest ones are counted."""
    plain, clipped = (
        compiled(trained_network(Sgd(learning_rate=0.1), largest_gradient_norm=norm)).program for norm in (0.0, 1.0)
    )
    names = [step.stage for step, _, _ in clipped.supersteps()]
    more = ["square gradients", "add squares", "gather squares", "clip factor", "clip gradients"]
    assert [stage for stage in names if stage in more] == more
    assert len(names) == len([None for _ in plain.supersteps()]) + 5


def test_a_workload_names_its_optimiser_and_the_constants() -> None:
    for name, made in KNOWN.items():
        constants = {key: sum(made.bounds_of(key)) / 2 for key in made.parameters()}
        given = {f"training.optimiser_parameters.{key}": value for key, value in constants.items()}
        optimiser = optimiser_of(load_workload("digits", {"training.optimiser": name, **given}).training)
        assert type(optimiser) is made
        assert {key: getattr(optimiser, key) for key in constants} == constants


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimiser": "adm"}, r"'adm' is not an optimiser; did you mean 'adam'"),
        ({"optimiser_parameters.beta3": 0.5}, r"optimiser 'adam' has no such parameter; did you mean 'beta2'"),
        ({"optimiser_parameters.beta1": 1.0}, r"optimiser_parameters\.beta1: must be at least 0 and below 1"),
        ({"optimiser": "torch_adam", "weight_decay": 0.1}, r'write optimiser = "torch_adamw"'),
        ({"optimiser": "adamw", "momentum": 0.5}, r'training\.momentum: is for optimiser "sgd"'),
        (
            {"optimiser": "sgd", "momentum": 0.5, "optimiser_parameters.momentum": 0.5},
            r"training\.momentum is given too",
        ),
    ],
)
def test_optimisers_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        load_workload("digits", {f"training.{key}": value for key, value in changes.items()})
