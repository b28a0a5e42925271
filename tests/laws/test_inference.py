"""Inference: the forward program alone makes the scores and spikes of the training program, with less memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_networks import linear_network
from networks import ADAM, MAPPINGS, SEEDS, SMALL, compiled, given_values, machine, networks, small_network

from mimdsim.compiler import Compiled, compile_graph, memory_profile
from mimdsim.execution import Executor, execute_strictly
from mimdsim.execution.activity import run_recorded
from mimdsim.graph import SpikingNetwork, inference_graph, inference_network, interpret
from mimdsim.graph.losses import Loss
from mimdsim.graph.spikes import ThresholdSchedule
from mimdsim.program.checks.spike_provenance import provenance_of
from mimdsim.program.loops import Recorded
from mimdsim.timing import time_program
from mimdsim.workload import MappingOptions
from mimdsim.workload.description.mapping import Split

OPTIONS = MappingOptions(neurons_per_tile=2)
BEST = OPTIONS.model_copy(update={"program": "best"})
STASHED = OPTIONS.model_copy(update={"stash": "every:1"})
TIGHT = (3, 2, 2)  # capacities that drop spikes


def alone(network: SpikingNetwork, options: MappingOptions = OPTIONS) -> Compiled:
    """The forward program of the same batch."""
    made = inference_network(network, network.batch)
    return compile_graph(inference_graph(made), made, machine(), options)


def assert_same_forward(network: SpikingNetwork, options: MappingOptions, seed: int) -> None:
    """Scores, and spikes of every layer and timestep, bit for bit; neither lists entries for gradients."""
    values = given_values(network, seed)
    whole, forward = compiled(network, options=options), alone(network, options)
    written = values.for_program(network)
    trained = Executor(whole.program, rounded=True)
    trained.write(written)
    expected = run_recorded(trained, network, phases=("forward", "loss"))
    ran = Executor(forward.program, rounded=True)
    ran.write({name: value for name, value in written.items() if name in forward.program.inputs})
    found = run_recorded(ran, forward.network)
    np.testing.assert_array_equal(ran.read("counts"), trained.read("counts"))
    assert found.ids.keys() == expected.ids.keys()
    for layer, counts in found.counts.items():
        np.testing.assert_array_equal(counts[..., 0], expected.counts[layer][..., 0], err_msg=layer)
        np.testing.assert_array_equal(counts[..., 0], counts[..., 1], err_msg=layer)
        real = np.arange(found.ids[layer].shape[2]) < counts[..., :1]
        theirs = expected.ids[layer][..., : real.shape[2]]
        np.testing.assert_array_equal(np.where(real, found.ids[layer], 0), np.where(real, theirs, 0), err_msg=layer)
    assert found.dropped == expected.dropped
    on = machine()
    once = time_program(forward.program, on, found, memory_profile(forward.program, forward.memory, on))
    assert (once.run_name, {span.phase for span in once.spans}) == ("run", {"forward"})


LIF = partial(small_network, (9, 8, 6, 4), timesteps=4, batch=4)
MEMBRANE = replace(LIF(), layers=(*LIF().layers[:-1], replace(LIF().layers[-1], spiking=False)))
CASES: dict[str, tuple[SpikingNetwork, MappingOptions]] = {
    "delay 1": (LIF(capacities=TIGHT), OPTIONS),
    "delay 0": (LIF(capacities=TIGHT, delay=0), OPTIONS),
    "recurrent, bias": (LIF(capacities=TIGHT, recurrence="all_to_all", bias=True), OPTIONS),
    "random truncation": (LIF(capacities=TIGHT, truncation="random"), OPTIONS),
    "dense": (LIF(spikes="dense"), OPTIONS),
    "dense, recurrent": (LIF(spikes="dense", recurrence="all_to_all", delay=0), OPTIONS),
    "dense, traced": (LIF(spikes="dense"), OPTIONS.model_copy(update={"dense_neurons": "traced"})),
    "rows exchanged": (LIF(), OPTIONS.model_copy(update={"spike_exchange": "dense"})),
    "last tiles": (LIF(), OPTIONS.model_copy(update={"selection_tiles": "last"})),
    "short ids, halves": (LIF(), MappingOptions(id_bytes=2, value_bytes=2)),
    "all rules": (LIF(capacities=TIGHT), BEST),
    "all rules, dense": (LIF(spikes="dense"), BEST),
    "stash": (LIF(), STASHED),
    "two copies": (LIF(), OPTIONS.model_copy(update={"split": {"hidden0": Split(batch=2, inputs=2, neurons=2)}})),
    "membrane": (replace(MEMBRANE, loss=Loss(reading="max")), OPTIONS),
    "every timestep": (LIF(loss=Loss(reading="every")), OPTIONS),
    "last timestep": (LIF(loss=Loss(reading="last")), OPTIONS),
    "population": (LIF(loss=Loss(neurons_per_class=2, firing_strength=0.1)), OPTIONS),
    "moving threshold": (LIF(capacities=TIGHT, threshold_schedule=ThresholdSchedule(output=True)), OPTIONS),
    "linear neurons": (linear_network("leaky", "zero", reset_by="emission"), OPTIONS),
    "linear neurons, traced": (linear_network("leaky", "zero", spikes="dense"), MappingOptions(dense_neurons="traced")),
}


@pytest.mark.first(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_forward_program_alone_does_as_the_training_program(case: str) -> None:
    network, options = CASES[case]
    assert_same_forward(replace(network, optimiser=ADAM), options, seed=11)


@pytest.mark.slow
@SMALL
@given(network=networks(), options=MAPPINGS, seed=SEEDS, delay=st.sampled_from([0, 1]))
def test_it_does_so_for_any_network(network: SpikingNetwork, options: MappingOptions, seed: int, delay: int) -> None:
    assert_same_forward(replace(network, delay=delay), options, seed)


def test_the_interpreter_makes_the_same_scores() -> None:
    network = inference_network(LIF(capacities=TIGHT), 4)
    values = given_values(network, 3)
    made = alone(network)
    executor = Executor(made.program)
    executor.write({name: each for name, each in values.for_program(network).items() if name in made.program.inputs})
    execute_strictly(executor)
    graph = inference_graph(network)
    assert graph.outputs == ("counts",)
    given_to_it = {name: each for name, each in values.for_graph(network).items() if name in graph.inputs}
    np.testing.assert_array_equal(interpret(graph, given_to_it)["counts"], executor.read("counts"))


def test_memory_holds_nothing_that_only_learning_needs() -> None:
    network = LIF(optimiser=ADAM, threshold_schedule=ThresholdSchedule())
    whole, forward = compiled(network, options=OPTIONS), alone(network)
    weights = {f"w.{layer.name}" for layer in network.layers}
    assert set(forward.program.inputs) == weights | {"input.ids", "input.counts"}
    kept = {name for name, each in forward.program.variables.items() if each.shape[0] == 4 and len(each.shape) == 3}
    sequences = {name for name in kept if name.endswith("sequence")}
    assert sequences == {f"{kind}.{name}.sequence" for kind in ("ids", "counts") for name in ("input", "output")}
    categories = {each.category for each in forward.program.variables.values()}
    assert categories.isdisjoint({"optimiser", "weight gradients"})
    code = machine().tile.code_bytes  # the same for every program
    assert forward.memory.peak_bytes - code < 0.4 * (whole.memory.peak_bytes - code)
    assert forward.program.observables.gradients == {}


def test_what_vertices_count_of_passing_lists_is_checked() -> None:
    """Layers whose spikes no sequence keeps are known to the check, which rejects another layer or timestep."""
    program = alone(LIF()).program
    assert set(program.observables.passing) == {"hidden0", "hidden1"}
    provenance, found = provenance_of(program), 0
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            for read in table.extents.values():
                if not isinstance(read, Recorded) or read.layer != "hidden0":
                    continue
                found += 1
                assert provenance.contradiction(table, read) == ""
                wrong = replace(read, layer="hidden1"), replace(read, shift=read.shift - 1)
                assert all(provenance.contradiction(table, each) for each in wrong)
    assert found > 1
