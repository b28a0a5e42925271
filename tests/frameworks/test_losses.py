"""Losses and read-outs: the interpreter against PyTorch in float64, tiles and GPU against the interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_execution import execute
from linear_networks import forward_in_torch
from networks import Given, compiled, given_values, relative_error, small_network

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.execution import Executor, execute_strictly
from mimdsim.gpu import STRATEGIES
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.losses import Loss
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import simulate
from mimdsim.workload import load_workload

FLOAT64 = 1e-8
FLOAT32 = 1e-5
CASES: dict[str, tuple[Loss, bool]] = {
    "counts": (Loss(), True),
    "last": (Loss(reading="last"), True),
    "every": (Loss(reading="every"), True),
    "squares": (Loss(kind="mean_squared_error", correct_rate=0.8, incorrect_rate=0.1), True),
    "squares of rates": (Loss(kind="mean_squared_error", reading="mean", correct_rate=0.75), True),
    "squares of population rates": (
        Loss(kind="mean_squared_error", reading="mean", incorrect_rate=0.1, neurons_per_class=2, burn_in=1),
        True,
    ),
    "population": (Loss(neurons_per_class=2), True),
    "population of squares": (Loss(kind="mean_squared_error", correct_rate=0.5, neurons_per_class=2), True),
    "population at every timestep": (Loss(reading="every", neurons_per_class=2), True),
    "firing": (Loss(firing_target=0.05, firing_strength=30.0), True),
    "late counts": (Loss(burn_in=3), True),
    "late squares": (Loss(kind="mean_squared_error", correct_rate=0.7, burn_in=2), True),
    "late population at every timestep": (Loss(reading="every", neurons_per_class=2, burn_in=3), True),
    "late mean of every": (Loss(reading="every", over_timesteps="mean", burn_in=2), True),
    "late potential sum": (Loss(reading="sum", burn_in=1), False),
    "late potential mean": (Loss(reading="mean", burn_in=3), False),
    "late potential max": (Loss(reading="max", burn_in=3), False),
    "late potential softmax": (Loss(reading="softmax", burn_in=1), False),
    "late potential every": (Loss(reading="every", over_timesteps="mean", burn_in=3), False),
    "late potential population at every timestep": (Loss(reading="every", neurons_per_class=2, burn_in=2), False),
    "potential sum": (Loss(reading="sum"), False),
    "potential mean": (Loss(reading="mean"), False),
    "potential last": (Loss(reading="last"), False),
    "potential max": (Loss(reading="max"), False),
    "potential softmax": (Loss(reading="softmax"), False),
    "potential every": (Loss(reading="every"), False),
    "potential population": (Loss(reading="max", neurons_per_class=2), False),
    "potential population at every timestep": (Loss(reading="every", neurons_per_class=2), False),
    "potential squares at every timestep": (
        Loss(kind="mean_squared_error", reading="every", over_timesteps="mean", correct_rate=1.05, incorrect_rate=0.2),
        False,
    ),
    "late potential squares added up": (Loss(kind="mean_squared_error", reading="every", burn_in=2), False),
    "potential squares of a population": (Loss(kind="mean_squared_error", reading="mean", neurons_per_class=2), False),
    "late potential squares of the highest": (
        Loss(kind="mean_squared_error", reading="max", burn_in=1, correct_rate=3.0),
        False,
    ),
    "potential firing": (Loss(reading="max", firing_target=0.2, firing_strength=5.0), False),
}
NAMES = sorted(CASES)


def network_of(name: str, *, spikes: str = "sparse", reset_gradient: str = "pass") -> SpikingNetwork:
    """Full capacity and everything listed, so that sparse spikes have the gradients of dense ones."""
    loss, spiking = CASES[name]
    widths = (12, 10, 8, 4 * loss.neurons_per_class)
    network = small_network(
        widths, timesteps=9, batch=5, spikes=spikes, reset_gradient=reset_gradient, second_threshold=-100.0, loss=loss
    )
    *hidden, output = network.layers
    return replace(network, layers=(*hidden, replace(output, spiking=spiking)))


def by_autograd(network: SpikingNetwork, given: Given) -> tuple[float, dict[str, np.ndarray]]:
    """Total loss and gradient by layer, written down in PyTorch."""
    torch = pytest.importorskip("torch")
    loss, functional = network.loss, torch.nn.functional
    parameters, sent, _ = forward_in_torch(network, given)
    output = torch.stack(sent[-1])[loss.burn_in :]
    pooled = output.reshape(*output.shape[:2], network.classes, loss.neurons_per_class)
    labels = torch.tensor(given.labels, dtype=torch.long)
    scale = network.logit_scale
    if loss.kind == "mean_squared_error" and not network.layers[-1].spiking:
        read = {"mean": output.mean(0), "max": output.max(0).values, "every": output}[loss.reading]
        classes = read.reshape(*read.shape[:-1], network.classes, loss.neurons_per_class).mean(-1)
        hot = functional.one_hot(labels, network.classes).to(classes.dtype)
        wanted = loss.correct_rate * hot + loss.incorrect_rate * (1 - hot)
        turns = len(output) if (loss.reading, loss.over_timesteps) == ("every", "sum") else 1
        total = turns * ((classes - wanted) ** 2).mean()
    elif loss.kind == "mean_squared_error":
        counts = pooled.sum(dim=(0, 3))
        each = len(output) * loss.neurons_per_class
        rates = loss.reading == "mean"
        right, wrong = (
            each * rate if rates else float(int(each * rate)) for rate in (loss.correct_rate, loss.incorrect_rate)
        )
        wanted = torch.full_like(counts, wrong)
        wanted[torch.arange(network.batch), labels] = right
        total = ((counts - wanted) ** 2).mean() / (each**2 if rates else len(output))
    elif loss.reading == "every":
        total = sum(functional.cross_entropy(scale * now, labels) for now in pooled.sum(dim=3))
        total = total / len(output) if loss.over_timesteps == "mean" else total
    else:
        read = {"sum": output.sum(0), "mean": output.mean(0), "last": output[-1], "max": output.max(0).values}
        read["softmax"] = output.softmax(2).sum(0)
        scores = read[loss.reading].reshape(network.batch, network.classes, loss.neurons_per_class).sum(-1)
        total = functional.cross_entropy(scale * scores, labels)
    if loss.firing_strength:
        for spikes in sent[:-1]:
            total = total + loss.firing_strength * (torch.stack(spikes).mean() - loss.firing_target) ** 2
    total.backward()
    return float(total.detach()), {key: parameter.grad.numpy() for key, parameter in parameters.items()}


def meaning(network: SpikingNetwork, given: Given) -> dict[str, Any]:
    return interpret(training_graph(network), given.for_graph(network))


def gradients_of(network: SpikingNetwork, values: dict[str, Any]) -> dict[str, np.ndarray]:
    outputs = training_graph(network).outputs[2:]
    return {layer.name: values[name] for layer, name in zip(network.layers, outputs, strict=False)}


@pytest.mark.torch
@pytest.mark.parametrize("reset_gradient", ["pass", "mask"])
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("name", NAMES)
def test_interpreter_is_autograd_in_float64(name: str, spikes: str, reset_gradient: str) -> None:
    network = network_of(name, spikes=spikes, reset_gradient=reset_gradient)
    given = given_values(network, 4, dyadic=False, dtype=np.float64)
    total, expected = by_autograd(network, given)
    values = meaning(network, given)
    assert float(values["loss"] + sum(values[term] for term in network.penalties)) == pytest.approx(total, rel=FLOAT64)
    for layer, gradient in gradients_of(network, values).items():
        assert np.abs(expected[layer]).max() > 0
        assert relative_error(gradient, expected[layer]) < FLOAT64, layer


def on_tiles(network: SpikingNetwork, given: Given, *, strict: bool = False, **machine: Any) -> Executor:
    executor = Executor(compiled(network, **machine).program)
    executor.write(given.for_program(network))
    if strict:
        execute_strictly(executor)
    else:
        executor.run()
    return executor


@pytest.mark.first(2)
@pytest.mark.parametrize("reset_gradient", ["pass", "mask"])
@pytest.mark.parametrize("name", NAMES)
def test_tiles_do_what_the_interpreter_means(name: str, reset_gradient: str) -> None:
    network = network_of(name, reset_gradient=reset_gradient)
    given = given_values(network, 4)
    expected = meaning(network, given)
    found = on_tiles(network, given)
    assert found.read("loss").mean() == pytest.approx(float(expected["loss"]), rel=1e-6)
    assert relative_error(found.read("counts"), expected["counts"]) < FLOAT32
    for term in network.penalties:
        assert float(found.read(term)[0]) == pytest.approx(float(expected[term]), rel=1e-6)
    outputs = training_graph(network).outputs[2:]
    for value in outputs[: 2 * len(network.layers)]:
        assert relative_error(found.read(value), expected[value]) < FLOAT32, value


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_dense_spikes_on_tiles_are_interpreted(name: str) -> None:
    network = network_of(name, spikes="dense")
    given = given_values(network, 4)
    expected = meaning(network, given)
    for strict in (False, True):
        found = on_tiles(network, given, strict=strict)
        assert found.read("loss").mean() == pytest.approx(float(expected["loss"]), rel=1e-6)
        for value in training_graph(network).outputs[1:]:
            assert relative_error(found.read(value), expected[value]) < FLOAT32, value


@pytest.mark.parametrize("name", NAMES)
def test_strict_execution_gives_the_same_bits(name: str) -> None:
    loss, spiking = CASES[name]
    loss = replace(loss, burn_in=min(loss.burn_in, 1))
    network = small_network((5, 5, 2 * loss.neurons_per_class), timesteps=2, batch=2, loss=loss)
    *hidden, output = network.layers
    network = replace(network, layers=(*hidden, replace(output, spiking=spiking)))
    given = given_values(network, 6)
    one, other = on_tiles(network, given), on_tiles(network, given, strict=True)
    for value in training_graph(network).outputs:
        np.testing.assert_array_equal(one.read(value), other.read(value), err_msg=value)


@pytest.mark.first(28)
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("name", NAMES)
def test_every_gpu_strategy_does_what_the_interpreter_means(name: str, strategy: str) -> None:
    network = network_of(name)
    graph = training_graph(network)
    inputs = given_values(network, 4, dtype=np.float64).for_graph(network)
    meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
    for value in graph.outputs:
        assert relative_error(np.asarray(made[value]), np.asarray(meant[value])) < 1e-12, value


@pytest.mark.parametrize(
    ("changes", "spiking", "message"),
    [
        ({"kind": "hinge"}, True, "training.loss = 'hinge' is not a valid choice"),
        ({"reading": "first"}, True, "training.reading = 'first' is not a valid choice"),
        ({"kind": "mean_squared_error", "reading": "last"}, True, 'set training.reading = "sum"'),
        ({"reading": "max"}, True, 'set network.output = "membrane"'),
        ({"reading": "softmax", "neurons_per_class": 2}, False, "leave network.neurons_per_class at 1"),
        ({"kind": "mean_squared_error", "reading": "every"}, True, 'or network.output = "membrane"'),
        ({"kind": "mean_squared_error", "reading": "softmax"}, False, "reads no softmax"),
        ({"kind": "mean_squared_error", "incorrect_rate": 1.5}, True, "training.incorrect_rate = 1.5 is no share"),
        ({"neurons_per_class": 5}, True, "4 neurons are not a whole number of classes of 5"),
        ({"burn_in": 99, "reading": "every"}, True, "training.burn_in = 99 leaves none of"),
    ],
)
def test_losses_that_cannot_be_are_refused(changes: dict[str, Any], spiking: bool, message: str) -> None:
    *hidden, output = small_network((7, 6, 4)).layers
    layers = (*hidden, replace(output, spiking=spiking))
    with pytest.raises(MappingError, match=message):
        training_graph(replace(small_network((7, 6, 4)), layers=layers, loss=Loss(**changes)))


def test_only_the_last_layer_is_read_by_its_potential() -> None:
    network = small_network((7, 6, 4))
    hidden, output = network.layers
    with pytest.raises(MappingError, match="layer 'hidden0': only the last layer may be read"):
        training_graph(replace(network, layers=(replace(hidden, spiking=False), output)))


@pytest.mark.torch
def test_squares_of_potentials_are_those_of_snntorch() -> None:
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("snntorch.functional")
    network = network_of("potential squares at every timestep", spikes="dense")
    given = given_values(network, 4, dtype=np.float64)
    _, sent, _ = forward_in_torch(network, given)
    theirs = functional.mse_membrane_loss(on_target=1.05, off_target=0.2)
    wanted = theirs(torch.stack(sent[-1]).detach(), torch.tensor(given.labels, dtype=torch.long))
    assert float(meaning(network, given)["loss"]) == pytest.approx(float(wanted), rel=1e-6)


@pytest.mark.torch
def test_squares_of_counts_are_those_of_snntorch() -> None:
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("snntorch.functional")
    for neurons_per_class in (1, 3):
        kind = {"correct_rate": 0.8, "incorrect_rate": 0.2}
        network = small_network(
            (8, 9, 4 * neurons_per_class), timesteps=11, batch=5,
            loss=Loss(kind="mean_squared_error", neurons_per_class=neurons_per_class, **kind),
        )  # fmt: skip
        given = given_values(replace(network, spikes="dense"), 4, dtype=np.float64)
        values = meaning(replace(network, spikes="dense"), given)
        emitted = torch.tensor(values["time.spikes.output"])
        population = {"population_code": True, "num_classes": 4} if neurons_per_class > 1 else {}
        theirs = functional.mse_count_loss(**kind, **population)(emitted, torch.tensor(given.labels, dtype=torch.long))
        assert float(values["loss"]) == pytest.approx(float(theirs), rel=1e-6)


SMALL = {"data.train_samples": 96, "data.test_samples": 48, "training.epochs": 2, "network.hidden": [32, 16]}
WORKLOADS: list[dict[str, Any]] = [
    {"network.output": "membrane", "training.reading": "max", "training.firing_strength": 1.0},
    {"training.loss": "mean_squared_error", "training.correct_rate": 0.5, "network.neurons_per_class": 3},
    {"training.reading": "every"},
]


@pytest.mark.slow
@pytest.mark.parametrize("changes", WORKLOADS, ids=["potential", "squares", "every"])
def test_workloads_learn_with_every_loss(changes: dict[str, Any]) -> None:
    pytest.importorskip("sklearn")
    width = 10 * changes.get("network.neurons_per_class", 1)
    workload = load_workload("digits", {**SMALL, "network.capacity": [8, 8, width], **changes})
    machine = load_machine("bow", {})
    assert isinstance(machine, MimdMachine)
    made = simulate(workload, machine)
    assert made.log.loss[-1] < made.log.loss[0]
    assert np.isfinite(made.log.loss).all()
    assert len(made.log.test_accuracy_by_epoch) == 2
    layers = [activity.layer for activity in made.profile.activity]
    assert layers == ["input", "hidden0", "hidden1", *(["output"] if "network.output" not in changes else [])]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.reading": "max"}, "'max' reads membrane potentials: set network.output = \"membrane\""),
        (
            {"training.loss": "mean_squared_error", "training.correct_rate": 1.05},
            "training.correct_rate = 1.05 is no share of timesteps",
        ),
    ],
)
def test_workloads_whose_loss_and_output_do_not_agree_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        load_workload("digits", changes)
