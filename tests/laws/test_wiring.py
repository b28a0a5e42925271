"""Recurrence, bias and delay: on tiles as in the interpreter, in every combination, on one chip and on several."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_bytes import bytes_of
from networks import (
    ADAM,
    MAPPINGS,
    SEEDS,
    SGD,
    SMALL,
    Given,
    Outcome,
    assert_same_bits,
    assert_same_spikes,
    compiled,
    executed,
    given_values,
    interpreted,
    left_in,
    machine,
    networks,
    parameter_keys,
    relative_error,
    small_network,
)
from test_chips import compiled as compiled_on_chips
from test_gpu_execution import assert_same_training_step
from test_timing import ISSUE, slow_cycles

from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.checking.program import check_program
from mimdsim.execution import Executor, initial_weights
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.machine import load_machine
from mimdsim.pipeline import compile_workload, simulate
from mimdsim.program import Hits, SpikesOver
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.workload import MappingOptions, filled_activity, load_workload, network_of
from mimdsim.workload.description.mapping import Split

TOLERANCE = 1e-5
WIRINGS = list(product(("none", "one_to_one", "all_to_all", "one_weight"), (0, 1), (False, True)))
wirings = pytest.mark.parametrize(("recurrence", "delay", "bias"), WIRINGS)


def wired(recurrence: str, delay: int, bias: bool, **changes: object) -> SpikingNetwork:
    """Three layers that all fire; capacities below the widths so that spikes are dropped."""
    shape = {"timesteps": 5, "batch": 3, "gain": 20.0, "capacities": (6, 4, 3), "reset_gradient": "mask"} | changes
    widths = shape.pop("widths", (9, 8, 6, 4))
    return small_network(widths, recurrence=recurrence, delay=delay, bias=bias, **shape)  # type: ignore[arg-type]


def assert_agrees(found: Outcome, expected: Outcome) -> None:
    """Spikes and potentials bit for bit, gradients and updates of every parameter within rounding."""
    assert_same_spikes(found, expected)
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)
    for name, potential in expected.potentials.items():
        np.testing.assert_array_equal(found.potentials[name], potential)
    assert found.gradients.keys() == expected.gradients.keys() == expected.updated.keys()
    for name, gradient in expected.gradients.items():
        assert relative_error(found.gradients[name], gradient) < TOLERANCE, name
        assert relative_error(found.updated[name], expected.updated[name]) < TOLERANCE, name


def assert_copies_agree(network: SpikingNetwork, values: Given) -> None:
    """Layers over two chips, and copies of a layer, make what the interpreter does, and strictly the same bits."""
    for made in (
        compiled_on_chips(network, 2, 30),
        compiled(network, tiles=200, options=MappingOptions(split={"hidden0": Split(batch=3, inputs=2)})),
    ):
        found = executed(made, values)
        assert_agrees(found, interpreted(network, values))
        assert_same_bits(executed(made, values, strict=True), found)


@pytest.mark.first(2)
@pytest.mark.parametrize("exchange", ["ids", "dense"])
@wirings
def test_every_wiring_runs_on_tiles_as_it_is_meant(recurrence: str, delay: int, bias: bool, exchange: str) -> None:
    network = wired(recurrence, delay, bias, optimiser=ADAM)
    values = given_values(network, 3)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-6
    made = compiled(network, options=MappingOptions(spike_exchange=exchange))
    found = executed(made, values)
    assert_agrees(found, expected)
    if exchange == "ids" and bias:
        assert_same_bits(executed(made, values, strict=True), found)


@st.composite
def any_wiring(draw: st.DrawFn) -> SpikingNetwork:
    """Every layer wired on its own."""
    network = draw(networks())
    layers = tuple(
        replace(
            layer,
            recurrence=draw(st.sampled_from(["none", "one_to_one", "all_to_all", "one_weight"])),
            bias=draw(st.booleans()),
        )
        for layer in network.layers
    )
    return replace(network, layers=layers, delay=draw(st.sampled_from([0, 1])))


@pytest.mark.slow
@settings(SMALL, max_examples=12)
@given(network=any_wiring(), options=MAPPINGS, short=st.booleans(), seed=SEEDS)
def test_whatever_the_wiring_execution_is_interpretation(
    network: SpikingNetwork, options: MappingOptions, short: bool, seed: int
) -> None:
    if short:
        per_tile = options.neurons_per_tile // 4 * 4
        options = options.model_copy(update={"id_bytes": 2, "value_bytes": 2, "neurons_per_tile": per_tile})
    values, made = given_values(network, seed), compiled(network, options=options)
    found = executed(made, values)
    assert_agrees(found, interpreted(network, values))
    alone = Executor(made.program)  # superstep by superstep; otherwise several share a pass and adjoining slices a row
    alone.write(values.for_program(network))
    alone.run(observe=lambda *_: None)
    assert_same_bits(left_in(alone, made), found)


@pytest.mark.parametrize("recurrence", ["one_to_one", "all_to_all", "one_weight"])
@pytest.mark.parametrize("delay", [0, 1])
def test_layers_on_several_chips(recurrence: str, delay: int) -> None:
    network = wired(recurrence, delay, True, widths=(12, 10, 8, 4))
    made = compiled_on_chips(network, 3, 6, neurons_per_tile=2)
    assert made.placement.chips == 2
    values = given_values(network, 3)
    found = executed(made, values)
    assert_agrees(found, interpreted(network, values))


def test_without_a_delay_a_spike_passes_all_layers_in_its_timestep() -> None:
    network = small_network((2, 2, 2, 2), timesteps=3, batch=2, decay=0.5, gain=2.0, delay=0)
    for delay, first in ((0, 0), (1, 2)):  # two delays to the third layer
        chain = replace(network, delay=delay)
        values = given_values(chain, 1, activity=1.0)
        for layer in chain.layers:
            values.arrays[f"w.{layer.name}"][:] = 2.0
        listed = executed(compiled(chain), values).listed["output"]
        assert [bool(counts[:, 0].any()) for counts in listed] == [t >= first for t in range(3)]


def test_a_neuron_that_drives_itself_goes_on_firing() -> None:
    alone = small_network((1, 1), timesteps=4, batch=2, decay=0.5, gain=2.0, recurrence="one_to_one")
    for own, fired in ((2.0, [True] * 4), (0.0, [True, False, False, False])):
        values = given_values(alone, 1, activity=1.0)
        values.arrays["w.output"][:], values.arrays["r.output"][:] = 2.0, own
        values.spikes.counts[1:] = 0  # input in the first timestep only
        listed = executed(compiled(alone), values).listed["output"]
        assert [bool(counts[:, 0].all()) for counts in listed] == fired


def test_a_bias_above_the_threshold_fires_without_input() -> None:
    network = small_network((2, 3), timesteps=3, batch=2, decay=0.5, gain=2.0, bias=True)
    values = given_values(network, 1, activity=0.0)
    values.arrays["b.output"][:] = [[2.0, 0.5, -1.0]]
    made = executed(compiled(network), values)
    np.testing.assert_array_equal(made.counts, [[3, 0, 0]] * 2)


@pytest.mark.first(2)
@pytest.mark.parametrize(("recurrence", "delay"), list(product(("one_to_one", "all_to_all"), (0, 1))))
def test_cycles_of_own_spikes_are_counted_as_recorded(recurrence: str, delay: int) -> None:
    network = wired(recurrence, delay, True, widths=(5, 6, 3), capacities=(4, 2))
    program = compiled(network).program
    activity = filled_activity(network, 0.5)
    loads = program_loads(program, activity, ISSUE)
    assert [load.cycles_by_execution[:, 0].tolist() for load in loads] == slow_cycles(program, activity, ISSUE)
    extents = [
        extent for step, _, _ in program.supersteps() for table in step.tables for extent in table.extents.values()
    ]
    assert (recurrence == "one_to_one") == any(
        isinstance(extent, Hits) and extent.shift == -1 and extent.which == "spikes" for extent in extents
    )
    assert any(isinstance(extent, SpikesOver) and extent.layer == "hidden0" for extent in extents)


def test_a_layer_of_one_source_without_bias_stays_fused() -> None:
    names = {
        table.codelet.name
        for step, _, _ in compiled(wired("none", 0, False)).program.supersteps()
        for table in step.tables
    }
    assert "LifUpdate" in names
    assert not names & {"SynapseCurrent", "LifIntegrate", "AddSlots", "BiasAdd"}


def test_synapses_of_both_sources_share_a_superstep_and_the_rest_exchanges_nothing() -> None:
    program = compiled(wired("all_to_all", 1, True)).program
    steps = {step.stage: step for step, _, _ in program.supersteps() if step.phase == "forward"}
    assert len(steps["synapse current"].tables) == 6
    for stage in ("add currents", "add bias", "integrate"):
        assert steps[stage].exchange is None, stage


def test_initial_weights_of_all_parameters() -> None:
    network = wired("all_to_all", 1, True)
    weights = initial_weights(network, 3, 2.0, 0.5)
    plain = initial_weights(wired("none", 1, False), 3, 2.0, 0.5)
    assert weights.keys() == network.parameters.keys()
    for name, array in weights.items():
        assert array.shape == network.shapes[name]
        assert array.dtype == np.float32
    for name, array in plain.items():  # what else is trained changes no weight
        np.testing.assert_array_equal(weights[name], array)
    limit = 0.2 * (6 / 8) ** 0.5
    own = weights["r.hidden0"]
    assert own.min() < -0.9 * limit
    assert 0.9 * limit < own.max() < limit
    assert not any(array.any() for name, array in weights.items() if name.startswith("b."))


def test_a_program_trains_every_parameter() -> None:
    network = wired("all_to_all", 0, True, optimiser=SGD)
    made, values = compiled(network), given_values(network, 2)
    executor = Executor(made.program)
    executor.write(values.for_program(network))
    before = {name: executor.arrays[name].copy() for name in network.parameters}
    executor.run()
    for key, name in parameter_keys(network).items():
        assert not np.array_equal(executor.arrays[name], before[name]), key


# ---- workloads


def test_workload_keys_reach_the_layers_and_the_output_layer_has_no_recurrence() -> None:
    network = network_of(
        load_workload("digits", {"network.recurrence": "all_to_all", "network.delay": 0, "network.bias": True})
    )
    assert [layer.recurrence for layer in network.layers] == ["all_to_all", "all_to_all", "none"]
    assert all(layer.bias for layer in network.layers)
    assert network.delay == 0
    plain = network_of(load_workload("digits"))
    assert [(layer.recurrence, layer.bias) for layer in plain.layers] == [("none", False)] * 3
    assert plain.delay == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("recurrence", "all", "one_to_one"), ("delay", 2, "0 or 1"), ("bias", "perhaps", "boolean")],
)
def test_a_wrong_key_is_refused(key: str, value: object, message: str) -> None:
    with pytest.raises(DescriptionError, match=rf"(?s){key}.*{message}"):
        load_workload("digits", {f"network.{key}": value})


@pytest.mark.slow
def test_a_recurrent_layer_takes_the_memory_of_its_own_weights() -> None:
    plain, own = (
        compile_workload(load_workload("digits", {"network.recurrence": kind}), machine(1472))
        for kind in ("none", "all_to_all")
    )
    first = int(plain.placement.layers[0].tiles[0])
    for name, copies in (("r.hidden0", 1), ("moment1.r.hidden0", 1), ("dr.hidden0", 6)):
        assert bytes_of(own.memory, name)[first] == copies * 256 * 2 * 4
    assert own.memory.peak_bytes > plain.memory.peak_bytes


@pytest.mark.slow
def test_synapses_one_to_one_are_advised_where_all_to_all_do_not_fit() -> None:
    workload = load_workload("digits", {"network.recurrence": "all_to_all", "network.hidden": [1024, 128]})
    with pytest.raises(DoesNotFit, match=r'network.recurrence = "one_to_one" instead of "all_to_all": saves'):
        compile_workload(workload, machine(100))


@pytest.mark.parametrize(("recurrence", "delay"), [("one_to_one", 1), ("all_to_all", 1), ("all_to_all", 0)])
def test_the_check_compares_every_value_of_a_wired_program(recurrence: str, delay: int) -> None:
    changes = {"network.hidden": [24, 16], "network.recurrence": recurrence, "network.bias": True}
    workload = load_workload("digits", {**changes, "network.delay": delay, "data.timesteps": 3, "training.batch": 4})
    findings = check_program(workload, workload, machine(60))
    assert all(finding.passed for finding in findings), findings
    compared = next(finding.text for finding in findings if finding.name == "gradients")
    for parameter in ("hidden0: ", "r.hidden0: ", "r.hidden1: ", "b.output: "):
        assert parameter in compared


@pytest.mark.slow
@pytest.mark.parametrize("recurrence", ["one_to_one", "all_to_all"])
def test_digits_with_recurrence_bias_and_no_delay_learn(recurrence: str) -> None:
    workload = load_workload(
        "digits",
        {"network.recurrence": recurrence, "network.delay": 0, "network.bias": True, "training.epochs": 3},
    )
    tiles = load_machine("mk2")
    run = simulate(workload, tiles)  # type: ignore[arg-type]
    assert run.profile.training.test_accuracy is not None
    assert run.profile.training.test_accuracy > 0.7
    weights = run.log.weights
    assert all(np.abs(weights[f"b.hidden{index}"]).max() > 0 for index in (0, 1))


@pytest.mark.slow
@wirings
def test_wide_layers_on_many_tiles(recurrence: str, delay: int, bias: bool) -> None:
    network = wired(
        recurrence, delay, bias, widths=(60, 90, 70, 11), capacities=(20, 16, 6), timesteps=12, batch=9, optimiser=ADAM
    )
    values = given_values(network, 5, activity=0.1)
    assert_agrees(executed(compiled(network, tiles=64), values), interpreted(network, values))


# ---- GPUs


@pytest.mark.first(2)
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@wirings
def test_gpu_strategies_give_the_gradients_of_the_interpreter(
    recurrence: str, delay: int, bias: bool, spikes: str
) -> None:
    network = wired(recurrence, delay, bias, spikes=spikes, timesteps=4, batch=3)
    for strategy in sorted(STRATEGIES):
        refused = recurrence == "all_to_all" and STRATEGIES[strategy].hoisted
        if not refused and (STRATEGIES[strategy].lists is None or spikes == "sparse"):
            assert_same_training_step(network, strategy, seed=3)


def test_products_that_feed_themselves_are_not_hoisted_and_all_others_are() -> None:
    for recurrence, delay in product(("none", "one_to_one"), (0, 1)):
        graph = training_graph(wired(recurrence, delay, True))
        kernels = lower_to_kernels(graph, STRATEGIES["hoisted"], precision="fp32").kernels
        assert sum(kernel.op == "synapse" for kernel in kernels) == 3
    graph = training_graph(wired("all_to_all", 0, False))
    with pytest.raises(
        MappingError, match=r"'recurrent.hidden0' \(synapse\) of scan 'time' depends on itself .*recurr"
    ):
        lower_to_kernels(graph, STRATEGIES["hoisted"], precision="fp32")
    replayed = lower_to_kernels(graph, STRATEGIES["graph_replay"], precision="fp32").kernels
    assert sum(kernel.op == "synapse" for kernel in replayed) == 6
