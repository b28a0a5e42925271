"""Dense spikes on tiles: execute(lower(graph)) = interpret(graph), strictly too; where products lie; refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_networks import CASES, GRADIENTS, linear_network
from networks import (
    ADAM,
    SEEDS,
    SGD,
    SMALL,
    Outcome,
    assert_same_bits,
    compiled,
    executed,
    given_values,
    interpreted,
    left_in,
    machine,
    relative_error,
    small_network,
)

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.checking.program import check_program
from mimdsim.codelets.elementwise import CALLS, SURROGATE_CALLS, surrogate_boxes
from mimdsim.compiler import compile_graph
from mimdsim.compiler.lower import ARRAY_RULES
from mimdsim.compiler.place.placement import place_arrays
from mimdsim.compiler.place.product_plan import plan_product
from mimdsim.compiler.place.products import Blocks, ProductPlace, grid_of, largest_piece
from mimdsim.execution import Executor
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.surrogates import SURROGATES
from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.pipeline import compile_workload, memory_profile, retime, simulate
from mimdsim.pipeline.warnings import unused_chips
from mimdsim.program import RecordedActivity, TileMapping
from mimdsim.program.mapping import FLAT
from mimdsim.timing import time_program
from mimdsim.timing.analytic import input_bytes
from mimdsim.workload import MappingOptions, load_workload, network_of

TOLERANCE = 1e-5
FORMS = ("calls", "traced")
NOTHING = RecordedActivity(ids={}, counts={}, dropped={})


@st.composite
def dense_networks(draw: Any) -> SpikingNetwork:
    """Layers of any wiring."""
    count = draw(st.integers(2, 4))
    widths = tuple(draw(st.lists(st.integers(1, 40), min_size=count, max_size=count)))
    return small_network(
        widths, timesteps=draw(st.integers(1, 4)), batch=draw(st.integers(1, 20)), spikes="dense",
        reset_gradient=draw(st.sampled_from(["pass", "mask"])), optimiser=draw(st.sampled_from([SGD, ADAM])),
        recurrence=draw(st.sampled_from(["none", "one_to_one", "all_to_all", "one_weight"])),
        delay=draw(st.sampled_from([0, 1])),
        bias=draw(st.booleans()),
    )  # fmt: skip


def assert_agree(found: Outcome, expected: Outcome) -> None:
    """States (and with them spikes) bit for bit; gradients and updated weights within rounding."""
    np.testing.assert_array_equal(found.counts, expected.counts)
    for name, potential in expected.potentials.items():
        np.testing.assert_array_equal(found.potentials[name], potential)
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)  # the interpreter counts in float32
    for name, gradient in expected.gradients.items():
        assert relative_error(found.gradients[name], gradient) < TOLERANCE
        assert relative_error(found.updated[name], expected.updated[name]) < TOLERANCE


@pytest.mark.parametrize("examples", [8, 25])
def test_execution_is_interpretation_on_dyadic_weights(examples: int) -> None:
    @settings(SMALL, max_examples=examples)
    @given(network=dense_networks(), tiles=st.sampled_from([3, 24, 130]), seed=SEEDS, form=st.sampled_from(FORMS))
    def law(network: SpikingNetwork, tiles: int, seed: int, form: Any) -> None:
        values = given_values(network, seed)
        made = compiled(network, tiles=tiles, options=MappingOptions(dense_neurons=form))
        assert_agree(executed(made, values), interpreted(network, values))

    law()


@pytest.mark.first(3)
@pytest.mark.parametrize("optimiser", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize(
    ("reset_gradient", "recurrence", "delay"),
    [("pass", "none", 1), ("mask", "one_to_one", 1), ("pass", "all_to_all", 0)],
)
def test_strict_execution_agrees_too(optimiser: Any, reset_gradient: str, recurrence: str, delay: int) -> None:
    network = small_network(
        (18, 20, 4), timesteps=2, batch=3, spikes="dense", reset_gradient=reset_gradient, optimiser=optimiser,
        recurrence=recurrence, delay=delay, bias=True,
    )  # fmt: skip
    values = given_values(network, 6)
    expected = interpreted(network, values)
    assert max(np.abs(gradient).max() for gradient in expected.gradients.values()) > 0
    assert_agree(executed(compiled(network, tiles=9), values, strict=True), expected)


def test_serial_steps_where_memory_is_short() -> None:
    """A product too large for the memory in one go is cut into steps, with the same values."""
    network = small_network((96, 160, 5), timesteps=2, batch=150, spikes="dense")
    small = load_machine("tiny", {"chip.tiles": 4, "tile.sram_bytes": "170 KiB"})
    assert isinstance(small, MimdMachine)
    made = compile_graph(training_graph(network), network, small, MappingOptions(), must_fit=False)
    assert made.placement.arrays is not None
    assert max(place.plan.steps for place in made.placement.arrays.known.values()) > 1
    values = given_values(network, 3, activity=0.1)
    assert_agree(executed(made, values), interpreted(network, values))


@pytest.mark.slow
def test_sparse_spikes_at_full_capacity_give_the_dense_gradient() -> None:
    """Both as lowered programs: every neuron is listed, so nothing is left out of the sparse gradient."""
    network = small_network((40, 33, 18, 5), timesteps=6, batch=7, second_threshold=-1e9)
    values = given_values(network, 7)
    sparse = executed(compiled(network, tiles=60), values)
    dense = executed(compiled(replace(network, spikes="dense"), tiles=60), values)
    assert sparse.counts.sum() > 0
    np.testing.assert_array_equal(sparse.counts, dense.counts)
    for name, gradient in dense.gradients.items():
        assert np.abs(gradient).max() > 0
        assert relative_error(sparse.gradients[name], gradient) < TOLERANCE


def test_a_second_training_step_starts_from_clean_states() -> None:
    network = small_network((8, 17, 6, 4), timesteps=5, batch=4, spikes="dense", optimiser=ADAM)
    made, values = compiled(network), given_values(network, 9)
    executor, fresh = Executor(made.program), Executor(made.program)
    executor.write(given_values(network, 10).for_program(network))
    executor.run()
    for each in (executor, fresh):
        each.write(values.for_program(network))
        each.run()
    for name in ("losses", "totals", *(f"dw.{layer.name}" for layer in network.layers)):
        np.testing.assert_array_equal(executor.arrays[name], fresh.arrays[name])


def test_recorded_activity_lists_the_spikes() -> None:
    network = small_network((9, 12, 4), timesteps=5, batch=3, spikes="dense")
    values = given_values(network, 11)
    executor = Executor(compiled(network).program)
    executor.write(values.for_program(network))
    executor.run()
    activity = executor.activity()
    np.testing.assert_array_equal(activity.counts["input"][..., 0], values.dense.sum(axis=2))
    for layer in network.layers:
        fired = executor.arrays[f"v.{layer.name}.sequence"] > 1
        assert layer.name == "output" or fired.any()
        for place in np.ndindex(*fired.shape[:2]):
            count = activity.counts[layer.name][place][0]
            np.testing.assert_array_equal(activity.ids[layer.name][place][:count], np.flatnonzero(fired[place]))


@pytest.mark.parametrize("delay", [0, 1])
def test_an_input_that_is_the_same_in_every_timestep_is_held_once(delay: int) -> None:
    repeated = small_network((30, 20, 4), timesteps=5, batch=6, spikes="dense", delay=delay, bias=True)
    network = replace(repeated, encoding="image")
    values = given_values(repeated, 5)
    values = replace(values, dense=np.repeat(values.dense[:1], 5, axis=0))
    made = compiled(network)
    executor = Executor(made.program)
    images = values.dense[0].astype(np.float32)
    executor.write({**values.for_program(network), "input": images})
    executor.run()
    expected = interpreted(repeated, values)
    assert expected.counts.sum() > 0
    assert_agree(left_in(executor, made), expected)
    meaning = interpret(training_graph(network), {**values.for_graph(network), "input": images})
    assert float(meaning["loss"]) == expected.loss
    assert made.program.variables["input.steady"].shape == (6, 30)
    assert not any("slice input" in step.name for step, _, _ in made.program.supersteps())
    np.testing.assert_array_equal(executor.activity().counts["input"][3, :, 0], (images > 0).sum(axis=1))
    assert input_bytes(made.program) == 4 * (6 * 30 + 6)


# ---- linear neurons

FAST = [
    ("leaky", "subtract", "mask", "state"),
    ("leaky", "zero", "full", "state"),
    ("synaptic", "zero", "mask", "emission"),
    ("alpha", "subtract", "full", "state"),
    ("norse_lsnn", "zero", "full", "emission"),
    ("if", "none", "pass", "state"),
]


def assert_linear(model: str, reset: str, gradient: str, by: str, *, strict: bool = False, **more: Any) -> None:
    """Potentials bit for bit, gradients within float32."""
    network = linear_network(model, reset, reset_gradient=gradient, reset_by=by, **more)
    network = replace(network, spikes="dense")
    values = given_values(network, 4)
    expected = interpreted(network, values)
    assert expected.counts.sum() > 0
    assert all(np.abs(gradient).max() > 0 for gradient in expected.gradients.values())
    assert_agree(executed(compiled(network), values, strict=strict), expected)


@pytest.mark.parametrize(("model", "reset", "gradient", "by"), FAST)
def test_linear_neurons_run_with_dense_spikes(model: str, reset: str, gradient: str, by: str) -> None:
    assert_linear(model, reset, gradient, by)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["state", "emission"])
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize(("model", "reset"), CASES)
def test_every_linear_neuron_runs_with_dense_spikes(model: str, reset: str, gradient: str, by: str) -> None:
    assert_linear(model, reset, gradient, by)


@pytest.mark.first(2)
@pytest.mark.parametrize("surrogate", sorted(SURROGATES))
def test_every_surrogate_runs_with_dense_spikes(surrogate: str) -> None:
    assert_linear("leaky", "zero", "full", "state", surrogate=surrogate, slope=1.5)


def test_linear_neurons_run_strictly_with_dense_spikes() -> None:
    assert_linear("alpha", "zero", "full", "state", strict=True, timesteps=6, batch=3, widths=(10, 6, 3))


def test_fused_neurons_give_the_same_bits_and_cost_less_where_starting_is_most() -> None:
    """One vertex by hand instead of a call per operation; by element it is slower, as it takes one after another."""
    network = replace(linear_network("synaptic", "zero", widths=(40, 60, 10), batch=32), spikes="dense")
    values = given_values(network, 5)
    made = [compiled(network, tiles=400, options=MappingOptions(dense_neurons=form)) for form in ("calls", "fused")]
    assert_same_bits(*(executed(each, values) for each in made))
    memory = memory_profile(made[0].program, made[0].memory, machine(400))
    cycles = [
        {span.name: span.compute_cycles for span in time_program(each.program, machine(400), NOTHING, memory).spans}
        for each in made
    ]
    assert 0 < cycles[1]["neuron update"] < cycles[0]["neuron update"]


# ---- timesteps as a framework traces them

TRACED = MappingOptions(dense_neurons="traced")


@pytest.mark.parametrize(
    ("recurrence", "delay"), [("none", 0), ("one_to_one", 1), ("all_to_all", 0), ("one_weight", 1)]
)
def test_traced_timesteps_run_strictly(recurrence: str, delay: int) -> None:
    network = small_network(
        (18, 20, 4), timesteps=3, batch=3, spikes="dense", optimiser=ADAM, recurrence=recurrence, delay=delay, bias=True
    )
    values = given_values(network, 6)
    expected = interpreted(network, values)
    assert all(np.abs(gradient).max() > 0 for gradient in expected.gradients.values())
    assert_agree(executed(compiled(network, tiles=9, options=TRACED), values, strict=True), expected)


def test_traced_timesteps_of_several_states_run_strictly() -> None:
    network = linear_network("alpha", "zero", reset_gradient="full", reset_by="state", timesteps=6, batch=3)
    network = replace(network, spikes="dense")
    values = given_values(network, 4)
    expected = interpreted(network, values)
    assert expected.counts.sum() > 0
    assert_agree(executed(compiled(network, options=TRACED), values, strict=True), expected)


def test_a_traced_timestep_is_a_call_with_copies_and_without_offsets() -> None:
    """Parameters and states go in, what is stashed and weight gradients come out: no exchange, no sync, and the cycles
    of a copy of the fullest tile's bytes; nothing counts timesteps."""
    network = small_network((64, 200, 10), timesteps=4, batch=16, spikes="dense", delay=0, bias=True)
    made = compiled(network, tiles=50, options=TRACED)
    spans = retime(made, machine(50), NOTHING).spans
    kinds = {span.op for span in spans}
    assert "count" not in kinds
    assert "slice" not in kinds
    moved = {span.name.split()[1]: span for span in spans if span.op == "call" or span.name.startswith("stash")}
    every = {"w.hidden0.passed", "w.output.passed", "b.hidden0.passed", "v.hidden0", "v.output", "spikes.hidden0"}
    assert every <= set(moved)
    assert {"hidden0.dw_now.returned", "output.dw_now.returned", "saved.spikes.hidden0"} <= set(moved)
    assert all(span.exchange_cycles == span.sync_cycles == 0 and span.times == 4 for span in moved.values())
    assert made.placement.arrays is not None
    held = made.placement.arrays.forward(made.network.batch, 64, 200).right
    most = int(np.bincount(held.tiles, held.elements).max())
    assert moved["w.hidden0.passed"].compute_cycles == 4 * (288 + 4 * most // 8)


def test_neurons_with_constants_of_their_own_run_with_dense_spikes() -> None:
    beta = np.array([0.5, 0.75, 0.875, 0.625, 0.5, 0.75])
    assert_linear("leaky", "subtract", "mask", "state", parameters={"beta": beta}, widths=(12, 6, 6))


def test_every_surrogate_has_its_calls() -> None:
    assert set(SURROGATE_CALLS) == set(SURROGATES)
    n = np.array([600])
    cycles = {name: int(surrogate_boxes(name, True).cost.cycles({"elements": n}, 6, 8)[0]) for name in SURROGATES}  # type: ignore[union-attr]
    assert cycles["straight_through"] == min(cycles.values())
    calls = (*SURROGATE_CALLS["superspike"], "times", "plus in place")
    by_hand = sum(int(CALLS[call](n, worker_contexts=6)[0]) for call in calls)
    assert cycles["superspike"] == by_hand


# ---- where products lie


def covered(blocks: Blocks, shape: tuple[int, int]) -> np.ndarray:
    times: np.ndarray = np.zeros(shape, np.int64)
    for row, end, first, last in zip(blocks.row_start, blocks.row_stop, blocks.start, blocks.stop, strict=True):
        times[row:end, first:last] += 1
    return times


@settings(SMALL)
@given(m=st.integers(1, 90), k=st.integers(1, 90), n=st.integers(1, 90), tiles=st.sampled_from([4, 40, 300]))
def test_operands_and_results_lie_somewhere_once(m: int, k: int, n: int, tiles: int) -> None:
    placed = place_arrays(small_network(spikes="dense"), machine(tiles), MappingOptions()).arrays
    assert placed is not None
    place = placed.product(m, k, n)
    for blocks, shape in ((place.left, (m, k)), (place.right, (k, n)), (place.result, (m, n))):
        np.testing.assert_array_equal(covered(blocks, shape), 1)
        assert blocks.tiles.min() >= 2  # tile 0 counts, and pairs begin at even tiles
        assert blocks.tiles.max() < tiles
        mapping = blocks.mapping(shape)
        assert int((mapping.stops - mapping.starts).sum()) == shape[0] * shape[1]
    assert int((place.partials.stops - place.partials.starts).sum()) == place.parts * m * n
    assert np.all(place.result.elements <= -(-place.plan.rows * place.plan.columns // place.parts) * 2)


@given(rows=st.integers(1, 60), columns=st.integers(1, 60), parts=st.integers(1, 60))
def test_a_grid_has_no_more_pieces_than_asked_for(rows: int, columns: int, parts: int) -> None:
    down, across = grid_of(rows, columns, parts)
    assert down * across <= parts
    assert 1 <= down <= rows
    assert 1 <= across <= columns
    assert -(-rows // down) * -(-columns // across) <= min(-(-rows // min(parts, rows)) * columns, rows * columns)


def test_boxes_become_intervals_of_elements() -> None:
    bounds = np.array([[[0, 2], [0, 3]], [[0, 2], [3, 5]], [[2, 3], [0, 5]]])
    mapping = TileMapping.of_boxes(np.array([7, 8, 8]), bounds, (3, 5))
    assert mapping.axis == FLAT
    assert mapping.tiles.tolist() == [7, 8, 7, 8]
    assert mapping.starts.tolist() == [0, 3, 5, 8]
    assert mapping.stops.tolist() == [3, 5, 8, 15]
    with pytest.raises(ValueError, match="must ascend and not overlap"):
        TileMapping.of_boxes(np.array([1, 2]), np.array([[[0, 2], [0, 3]], [[1, 3], [0, 3]]]), (3, 5))
    with pytest.raises(ValueError, match="mapping: interval 1, 4:4 on tile 8, is empty; leave out tiles"):
        TileMapping.split(0, np.array([7, 8]), np.array([0, 4]), np.array([4, 4]))


def test_products_take_the_cycles_they_were_planned_with() -> None:
    network = small_network((128, 256, 10), timesteps=2, batch=64, spikes="dense")
    made = compiled(network, tiles=200)
    assert made.placement.arrays is not None
    plan = made.placement.arrays.forward(made.network.batch, 128, 256).plan
    nothing = RecordedActivity(ids={}, counts={}, dropped={})
    memory = memory_profile(made.program, made.memory, machine(200))
    spans = {span.name: span for span in time_program(made.program, machine(200), nothing, memory).spans}
    multiply, add = spans["multiply current.hidden0"], spans["sum current.hidden0"]
    assert multiply.compute_cycles == 2 * plan.multiply_cycles
    assert add.compute_cycles <= 2 * plan.sum_cycles * 1.1
    planned = plan.operand_exchange_cycles + plan.sum_exchange_cycles
    assert planned * 0.9 < (multiply.exchange_cycles + add.exchange_cycles) / 2 < planned * 1.3
    assert multiply.flops == 2 * 2 * 128 * 256 * 64


COUNTED = {
    "fixed": 40, "source": "derived: a test", "terms": [{"bundles": 2, "extents": ["rows", "inner", "positions"]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "counted"),
    [("wormhole", False), ("wormhole", True), pytest.param("spinnaker2", False, marks=pytest.mark.slow)],
)
def test_products_on_cores_of_their_own_take_what_these_say(name: str, counted: bool) -> None:
    """Planned by [costs], as there is no [matrix]; the rate of a unit for products acts."""
    costs: dict[str, Any] = {"costs.codelets": {"BlockProduct<forward>": COUNTED}} if counted else {}
    network, size = small_network((128, 256, 10), timesteps=2, batch=64, spikes="dense"), (64, 128, 256)
    cycles = {}
    for rate in (1.0, 1000.0):
        on = load_machine(name, costs | {"costs.core.matrix_flops_per_cycle": rate, "tile.sram_bytes": "512 KiB"})
        assert isinstance(on, MimdMachine)
        made = compile_graph(training_graph(network), network, on, MappingOptions())
        assert made.placement.arrays is not None
        plan = made.placement.arrays.forward(*size).plan
        nothing = RecordedActivity(ids={}, counts={}, dropped={})
        profile = time_program(made.program, on, nothing, memory_profile(made.program, made.memory, on))
        spans = {span.name: span for span in profile.spans}
        assert spans["multiply current.hidden0"].compute_cycles == pytest.approx(2 * plan.multiply_cycles, rel=0.05)
        assert not profile.unknown
        assert not made.reads.same_on(load_machine(name, {"costs.core.matrix_flops_per_cycle": 7.0}))
        cycles[rate] = profile.cycles
    assert cycles[1.0] > (1 if counted else 2) * cycles[1000.0]


@settings(SMALL)
@given(m=st.integers(1, 300), k=st.integers(1, 600), n=st.integers(1, 300), tiles=st.sampled_from([4, 40, 300]))
def test_sums_are_exchanged_in_the_cycles_they_were_planned_with(m: int, k: int, n: int, tiles: int) -> None:
    """A tile fetches its piece of every partial sum run by run: what the planner counts is what lies there."""
    place = ProductPlace.planned(machine(tiles), m, k, n, "f32")
    even = plan_product(machine(tiles), m, k, n, "f32")
    assert place.plan.cycles >= even.cycles  # even shares of one fragment are the least
    if place.parts == 1:
        return
    elements, fragments = largest_piece(place.plan.rows, place.plan.columns, place.plan.inner_splits)
    assert place.result.elements.max() <= elements
    height = place.result.row_stop - place.result.row_start
    as_wide = np.isin(place.result.start, place.edges["column"]) & np.isin(place.result.stop, place.edges["column"])
    assert np.where(as_wide, 1, height).max() <= fragments


def of_buses(tiles: int, per_bus: int) -> MimdMachine:
    return changed_machine(machine(tiles), {"exchange.tiles_per_bus": per_bus})


@settings(SMALL)
@given(m=st.integers(1, 300), k=st.integers(1, 600), n=st.integers(1, 300), tiles=st.sampled_from([4, 40, 300]))
def test_sharing_buses_never_makes_a_product_slower(m: int, k: int, n: int, tiles: int) -> None:
    own, shared = (ProductPlace.planned(of_buses(tiles, bus), m, k, n, "f32").plan.cycles for bus in (1, 2))
    assert shared <= own


def test_sharing_buses_makes_a_wide_layer_faster() -> None:
    """The layers of nmnist-2: partial sums of single columns took 4.5 times the exchange that was planned."""
    network = small_network((2312, 1466, 10), timesteps=1, batch=48, spikes="dense")
    cycles = []
    for bus in (1, 2):
        of = of_buses(1472, bus)
        made = compile_graph(training_graph(network), network, of, MappingOptions())
        nothing = RecordedActivity(ids={}, counts={}, dropped={})
        profile = time_program(made.program, of, nothing, memory_profile(made.program, made.memory, of))
        add = next(span for span in profile.spans if span.name == "sum current.hidden0")
        assert made.placement.arrays is not None
        assert (
            add.exchange_cycles
            <= 1.05 * made.placement.arrays.forward(network.batch, 2312, 1466).plan.sum_exchange_cycles
        )
        cycles.append(profile.cycles)
    assert cycles[1] < cycles[0]


# ---- what is refused


def test_an_operation_without_a_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ARRAY_RULES, ("spike",))
    with pytest.raises(MappingError, match="has no lowering"):
        compiled(small_network(spikes="dense"))


def test_smooth_spikes_are_refused() -> None:
    with pytest.raises(MappingError, match="layer 'hidden0': smooth spikes are for finite differences"):
        compiled(small_network(spikes="dense", smooth=True))


def test_options_of_sparse_spikes_are_refused() -> None:
    with pytest.raises(MappingError, match=r"mapping.value_bytes = 2 is for sparse spikes; .* leave it at 4"):
        compiled(small_network(spikes="dense"), options=MappingOptions(value_bytes=2))


def test_a_machine_without_matrix_units_is_refused() -> None:
    network = small_network(spikes="dense")
    without = machine().model_copy(update={"matrix": None})
    with pytest.raises(DescriptionError, match=r"has no matrix unit; add a \[matrix\] section"):
        compile_graph(training_graph(network), network, without, MappingOptions())


# ---- a whole run


@pytest.mark.slow
def test_images_are_learnt_and_sent_once() -> None:
    changes = {
        "network.spikes": "dense", "network.hidden": [48], "network.capacity": [], "data.timesteps": 10,
        "data.encoding": "image", "data.train_samples": 480, "data.test_samples": 60, "training.epochs": 6,
        "training.learning_rate": 0.01,
    }  # fmt: skip
    run = simulate(load_workload("digits", changes), machine(40))
    assert np.mean(run.log.loss[-3:]) < 0.5 * np.mean(run.log.loss[:3])
    assert [layer.neurons for layer in run.profile.activity] == [64, 48, 10]


def test_images_are_refused_where_there_are_none_or_spikes_are_listed() -> None:
    with pytest.raises(DescriptionError, match=r"images are not spikes; set network.spikes = 'dense'"):
        load_workload("digits", {"data.encoding": "image"})
    dense = {"data.encoding": "image", "network.spikes": "dense"}
    with pytest.raises(
        DescriptionError, match=r"source 'randman' has no images; write 'events', or take one of digits"
    ):
        load_workload("randman", dense)
    with pytest.raises(DescriptionError, match=r"'data.grid' is 20, but images are used as they are; leave it out"):
        network_of(load_workload("digits", {**dense, "data.grid": 20}))
    with pytest.raises(MappingError, match="an input that is the same in every timestep is an array"):
        replace(small_network(), encoding="image")


@pytest.mark.slow
def test_digits_learn_with_dense_spikes_on_a_small_machine() -> None:
    changes = {
        "network.spikes": "dense", "network.hidden": [48], "network.capacity": [], "data.timesteps": 12,
        "data.train_samples": 240, "data.test_samples": 60, "training.epochs": 6, "training.learning_rate": 0.01,
    }  # fmt: skip
    workload = load_workload("digits", changes)
    run = simulate(workload, machine(40))
    assert np.mean(run.log.loss[-3:]) < 0.5 * np.mean(run.log.loss[:3])
    assert run.profile.training is not None
    assert run.profile.training.test_accuracy is not None
    assert run.profile.training.test_accuracy > 0.5
    assert [layer.capacity for layer in run.profile.activity[1:]] == [48, 10]
    assert run.profile.tiled is not None
    assert run.profile.tiled.cycles > 0
    assert run.profile.tiled.host_seconds * machine().host.bytes_per_second > 4 * 12 * 48 * 512


def test_the_check_of_programs_takes_dense_spikes() -> None:
    workload = load_workload(
        "digits", {"network.spikes": "dense", "network.hidden": [24], "network.capacity": [], "data.timesteps": 2}
    )
    findings = check_program(workload, workload, machine(40))
    assert [finding.name for finding in findings] == ["rules", "memory", "values", "gradients", "time"]
    assert all(finding.passed for finding in findings)


def test_one_chip_of_several_is_used_and_that_is_said() -> None:
    two = machine(24).model_copy(update={"links": machine().links.model_copy(update={"chips": 2})})
    network = small_network(spikes="dense")
    made = compile_graph(training_graph(network), network, two, MappingOptions())
    assert made.program.chips == 1
    (warning,) = unused_chips(made, two)
    assert warning == '1 of 2 chips used: dense spikes take one; only network.spikes = "sparse" takes more'


def test_the_network_of_snntorch_takes_the_whole_chip() -> None:
    mk2 = load_machine("mk2")
    assert isinstance(mk2, MimdMachine)
    made = compile_workload(load_workload("snntorch-mnist"), mk2)
    assert made.network.title == "784-1000-10"
    assert made.memory.peak_bytes < mk2.tile.sram_bytes // 4
    tiled = retime(made, mk2, RecordedActivity(ids={}, counts={}, dropped={}))
    assert tiled.tiles_used > 1400
    products = 3 * 784 * 1000 + 3 * 1000 * 10 - 784 * 1000  # the input needs no gradient
    flops = sum(span.flops for span in tiled.spans if span.name.startswith("multiply"))
    assert flops == 2 * 25 * 128 * products
    assert 25 * made.placement.arrays.forward(made.network.batch, 784, 1000).plan.cycles < tiled.cycles / 3  # type: ignore[union-attr]
