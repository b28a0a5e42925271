"""Parameters that are not trained: nothing is computed for their gradients, and what is trained is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from networks import ADAM, compiled, given_values, interpreted, relative_error
from test_sources import POPULATIONS, SKIP, network_reading
from test_whole_tensors import run_whole
from test_wiring import wired

import mimdsim
from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.execution import Executor
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.graph.names import gradient_of
from mimdsim.workload import load_workload, network_of

RESERVOIR = ("w.hidden0", "r.hidden0", "b.hidden0", "w.hidden1", "r.hidden1", "b.hidden1")
CASES = {
    "reservoir": (wired("all_to_all", 1, True, optimiser=ADAM), RESERVOIR),
    "first layer": (wired("none", 0, False), ("w.hidden0",)),
    "second layer": (wired("one_to_one", 1, True, optimiser=ADAM), ("w.hidden1", "r.hidden1", "b.hidden1")),
    "recurrence alone": (wired("all_to_all", 0, False), ("r.hidden0", "r.hidden1", "r.output")),
    "one of several sources": (network_reading(SKIP), ("w.hidden1.from.input",)),
    "populations": (network_reading(POPULATIONS, optimiser=ADAM), ("w.hidden0", "w.hidden1", "w.hidden1.from.input")),
}
cases = pytest.mark.parametrize(("network", "frozen"), CASES.values(), ids=CASES)


@cases
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
def test_what_is_trained_has_the_gradients_that_it_has_when_all_is(
    network: SpikingNetwork, frozen: tuple[str, ...], spikes: str
) -> None:
    network = replace(network, spikes=spikes)
    some = replace(network, frozen=frozen)
    values = given_values(network, 3)
    every, meant = interpreted(network, values), interpreted(some, given_values(some, 3))
    executor = Executor(compiled(some).program)
    executor.write(given_values(some, 3).for_program(some))
    executor.run()
    trained = {name: parameter.short for name, parameter in some.trained.items()}
    assert sorted(meant.gradients) == sorted(trained.values())
    for name, short in trained.items():
        assert np.abs(every.gradients[short]).max() > 1e-6
        np.testing.assert_array_equal(meant.gradients[short], every.gradients[short])
        assert relative_error(executor.read(gradient_of(name)), every.gradients[short]) < 1e-5


@cases
def test_whole_tensors_leave_them_as_they_are(network: SpikingNetwork, frozen: tuple[str, ...]) -> None:
    some = replace(network, frozen=frozen)
    if network.sources(network.layers[0])[-1].name != "input" or "w.hidden1.from.input" in frozen:
        with pytest.raises(MappingError, match=r"comes after it|some of its weights are frozen"):
            run_whole(some, given_values(some, 3))
        return
    values = given_values(some, 3)
    whole, meant = run_whole(some, values), interpreted(network, given_values(network, 3))
    for name, parameter in some.parameters.items():
        if name in frozen:
            np.testing.assert_array_equal(whole.read(name), values.arrays[name].reshape(parameter.shape))
        else:
            assert relative_error(whole.read(gradient_of(name)), meant.gradients[parameter.short]) < 1e-5


def test_a_reservoir_computes_no_gradient_of_its_layers() -> None:
    network, frozen = CASES["reservoir"]
    graph = training_graph(replace(network, frozen=frozen))
    backward = graph.scan("backward").attributes.body
    assert {op.layer for op in backward.operations if op.layer} == {"output"}
    assert not any(name.startswith("d.") and "hidden" in name for name in backward.inputs)
    program = compiled(replace(network, frozen=frozen)).program
    assert not any(
        "hidden" in table.layer
        for step, _, _ in program.supersteps()
        if step.phase == "backward"
        for table in step.tables
    )
    assert not any(name.startswith("moment") and "hidden" in name for name in program.inputs)
    kernels = lower_to_kernels(graph, STRATEGIES["graph_replay"], precision="fp32").kernels
    assert not any("hidden" in kernel.name for kernel in kernels if kernel.phase in ("backward", "update"))


@pytest.mark.slow
def test_a_workload_says_what_is_frozen() -> None:
    keys = {"network.hidden": (24, 16), "network.capacity": (12, 8, 10), "network.recurrence": "all_to_all"}
    frozen = {"training.frozen": ["hidden0", "hidden0.recurrent"], "training.max_training_steps": 3}
    made = mimdsim.run("digits", "tiny", gpus=(), changes=keys | frozen)
    begun = load_workload("digits", keys | frozen)
    assert network_of(begun).frozen == ("w.hidden0", "r.hidden0")
    assert sorted(made.gradients) == ["hidden1", "hidden1.recurrent", "output"]
    again = mimdsim.run("digits", "tiny", gpus=(), changes=keys | frozen | {"training.max_training_steps": 1})
    for name in ("hidden0", "hidden0.recurrent"):
        np.testing.assert_array_equal(made.weights[name], again.weights[name])
    assert not np.array_equal(made.weights["hidden1"], again.weights["hidden1"])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["hiden0"], "training.frozen: no parameter 'hiden0'; did you mean 'hidden0'"),
        (["hidden0", "hidden1", "output"], "leaves no parameter to train"),
    ],
)
def test_what_cannot_be_frozen_is_refused(names: list[str], said: str) -> None:
    with pytest.raises((DescriptionError, MappingError), match=said):
        network_of(load_workload("digits", {"training.frozen": names}))
