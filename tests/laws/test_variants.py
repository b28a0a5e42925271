"""Variants of the sparse layer: values stay those of the interpreter, costs and bytes change where they should."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from codelet_families import CODELETS
from hypothesis import given
from hypothesis import strategies as st
from memory_bytes import bytes_of
from networks import (
    ADAM,
    SEEDS,
    SMALL,
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
from pydantic import ValidationError

import mimdsim
from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.checking.program import check_values
from mimdsim.checking.test_inputs import DRAWS, drawn_inputs
from mimdsim.codelets import formats
from mimdsim.codelets.formats import in_format
from mimdsim.codelets.vertex_costs import SUBWORD_STORE_BUNDLES
from mimdsim.compiler import Compiled
from mimdsim.compiler.place.placement import place
from mimdsim.execution import Executor
from mimdsim.graph import Adam, SpikingNetwork
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.pipeline.warnings import half_warning
from mimdsim.profile import TiledProfile
from mimdsim.program import (
    Program,
    TileFormula,
    TileMapping,
    Variable,
    Vectors,
    VertexTable,
    WorkerBundles,
    extents_of,
)
from mimdsim.program.printer import listing
from mimdsim.workload import MappingOptions, load_workload

VARIANTS: dict[str, dict[str, Any]] = {
    "short ids": {"id_bytes": 2},
    "half": {"value_bytes": 2, "neurons_per_tile": 4},
    "half and short ids, per batch": {
        "value_bytes": 2, "id_bytes": 2, "neurons_per_tile": 0, "state_gradient": "per_batch",
    },
    "dense": {"spike_exchange": "dense"},
    "dense, half and short ids": {"spike_exchange": "dense", "value_bytes": 2, "id_bytes": 2, "neurons_per_tile": 0},
    "last tiles": {"selection_tiles": "last"},
    "even": {"reduce_rule": "even"},
}  # fmt: skip
SHORT_IDS_LAST = sorted(VARIANTS, key=lambda name: "ids" in name)  # they need kernels of their own
FORMATS_AND_ROWS = st.builds(
    MappingOptions,
    neurons_per_tile=st.sampled_from([4, 0]),
    weight_gradient_replicas=st.integers(1, 6),
    states_per_worker=st.sampled_from([1, 3, 64]),
    state_gradient=st.sampled_from(["tilewise", "per_batch"]),
    id_bytes=st.sampled_from([4, 2]),
    value_bytes=st.sampled_from([4, 2]),
    spike_exchange=st.sampled_from(["ids", "dense"]),
    selection_tiles=st.sampled_from(["published", "last"]),
    reduce_rule=st.sampled_from(["work", "even"]),
)
NETWORK = small_network((9, 7, 6, 3), timesteps=4, batch=3, capacities=(4, 5, 3), optimiser=ADAM)


def options(**changes: Any) -> MappingOptions:
    return MappingOptions(**({"neurons_per_tile": 2, "weight_gradient_replicas": 2} | changes))


@pytest.mark.slow
@SMALL
@given(network=networks(), chosen=FORMATS_AND_ROWS, seed=SEEDS)
def test_every_variant_is_interpretation_on_dyadic_weights(
    network: SpikingNetwork, chosen: MappingOptions, seed: int
) -> None:
    values = given_values(network, seed)
    expected = interpreted(network, values)
    found = executed(compiled(network, tiles=48, options=chosen), values)
    assert_same_spikes(found, expected)
    np.testing.assert_array_equal(found.counts, expected.counts)
    for name, potential in expected.potentials.items():
        np.testing.assert_array_equal(found.potentials[name], potential)
    for name, gradient in expected.gradients.items():
        assert relative_error(found.gradients[name], gradient) < 1e-5


@pytest.mark.first(2)
@pytest.mark.parametrize("name", SHORT_IDS_LAST)
def test_strict_execution_of_a_variant_gives_the_same_bits(name: str) -> None:
    network = small_network((5, 5, 4, 3), timesteps=3, batch=3, capacities=(3, 3, 3), optimiser=ADAM)
    values = given_values(network, 6, dyadic=False)
    made = compiled(network, options=options(**VARIANTS[name]))
    fast = executed(made, values)
    assert fast.listed["hidden1"].any()
    assert max(np.abs(gradient).max() for gradient in fast.gradients.values()) > 0
    assert_same_bits(executed(made, values, strict=True), fast)


@pytest.mark.first(2)
@pytest.mark.parametrize("name", ["dense", "last tiles", "short ids"])
def test_what_moves_no_sum_leaves_every_bit(name: str) -> None:
    """Also with ordinary weights: the order of float32 sums is that of the ids, listed or in a row."""
    values = given_values(NETWORK, 3, dyadic=False)
    plain = executed(compiled(NETWORK, options=options()), values)
    assert plain.listed["hidden1"].any()
    assert_same_bits(executed(compiled(NETWORK, options=options(**VARIANTS[name])), values), plain)


@pytest.mark.first(2)
@pytest.mark.parametrize("name", SHORT_IDS_LAST)
def test_lockstep_check_of_a_variant_finds_nothing(name: str) -> None:
    made = compiled(NETWORK, options=options(**VARIANTS[name]))
    findings = check_values(made.program, made, machine())
    assert [finding.passed for finding in findings] == [True, True, True]


def retimed(made: Compiled) -> TiledProfile:
    executor = Executor(made.program)
    inputs = drawn_inputs(made.network, DRAWS[0])
    executor.write({name: value for name, value in inputs.items() if name in made.program.inputs})
    executor.run()
    return retime(made, machine(made.program.tiles), executor.activity())


def test_default_choices_are_the_published_ones() -> None:
    spelt_out = options(
        id_bytes=4, value_bytes=4, spike_exchange="ids", selection_tiles="published", reduce_rule="work"
    )
    one, other = compiled(NETWORK, options=options()), compiled(NETWORK, options=spelt_out)
    assert listing(one.program) == listing(other.program)
    assert asdict(retimed(one)) == asdict(retimed(other))
    assert {variable.stored_bytes for variable in one.program.variables.values()} == {0}
    assert not any("<" in name for name in codelet_names(one.program))


def codelet_names(program: Program) -> set[str]:
    return {table.codelet.name for step, _, _ in program.supersteps() for table in step.tables}


# ---- number formats


def test_short_ids_are_uint16_wherever_ids_and_counts_lie() -> None:
    program = compiled(NETWORK, options=options(id_bytes=2)).program
    short = {name for name, held in program.variables.items() if held.dtype == "uint16"}
    assert {"ids.input.sequence", "counts.hidden0", "ids.hidden0.in"} <= short
    assert {"worker_ids.output", "worker_counts.output", "tile_ids.output", "tile_counts.output"} <= short
    # a count that a context writes alone has a word of its own
    words = {name for name in short if program.variables[name].item_bytes == 4}
    assert words == {f"{kind}_counts.{layer.name}" for kind in ("worker", "tile") for layer in NETWORK.layers}
    assert {program.variables[name].item_bytes for name in short - words} == {2}
    assert program.variables["worker_ids.hidden1"].shape[1] % 2 == 0
    assert {held.category for name, held in program.variables.items() if name in short} == {
        "spike ids",
        "spike selection",
    }
    assert not [name for name in program.variables if name.startswith(("ids.", "counts.")) and name not in short]
    # recorded activity is int32 in any format
    activity = Executor(program).activity()
    assert {ids.dtype for ids in activity.ids.values()} == {np.dtype(np.int32)}


def test_half_values_lie_in_two_bytes_and_are_computed_in_float32() -> None:
    made = compiled(NETWORK, options=options(value_bytes=2, neurons_per_tile=4))
    held = made.program.variables
    assert {v.item_bytes for v in held.values() if v.dtype == "float32"} == {2}
    assert held["w.hidden0"].stored_bytes == 2
    assert held["ids.hidden0"].item_bytes == 4
    assert Executor(made.program).arrays["w.hidden0"].dtype == np.float32
    assert "w.hidden0: float32[9x7] in 2 bytes weights" in listing(made.program)
    assumption = next(item for item in retimed(made).assumptions if item.name == "float32 in 2 bytes")
    assert "computed in float32, rounded where a vertex writes them" in assumption.value
    assert made.placement.neurons_per_tile % 4 == 0


def sent_to(made: Compiled, stage: str) -> int:
    steps = [step for step, _, _ in made.program.supersteps() if step.name.startswith(stage) and step.exchange]
    return sum(int(step.exchange.column("bytes_received").sum()) for step in steps if step.exchange)


def test_two_bytes_halve_what_they_move_and_hold() -> None:
    plain, half = (compiled(NETWORK, options=options(value_bytes=v, neurons_per_tile=4)) for v in (4, 2))
    short = compiled(NETWORK, options=options(id_bytes=2, neurons_per_tile=4))
    # not exactly half: runs of whole words fall on other tiles, and what a tile holds itself does not travel
    assert sent_to(short, "LIF update") == pytest.approx(0.5 * sent_to(plain, "LIF update"), rel=0.05)
    assert sent_to(half, "sum") == sent_to(plain, "sum") == 0
    assert 0 < sent_to(half, "reduce groups") < sent_to(plain, "reduce groups")
    for name in ("w.hidden0", "dw.hidden0", "moment1.hidden0", "v.hidden0.sequence", "gradient.output"):
        np.testing.assert_array_equal(2 * bytes_of(half.memory, name), bytes_of(plain.memory, name))
    np.testing.assert_array_equal(2 * bytes_of(short.memory, "ids.hidden0"), bytes_of(plain.memory, "ids.hidden0"))
    assert half.memory.peak_bytes < plain.memory.peak_bytes


def test_runs_of_short_numbers_are_whole_words() -> None:
    network = replace(NETWORK, batch=2)
    program = compiled(network, tiles=200, options=options(id_bytes=2, value_bytes=2, neurons_per_tile=4)).program
    for name in ("ids.input.sequence", "counts.hidden0.in", "g.hidden0"):
        mapping = program.variables[name].mapping
        width = program.variables[name].shape[-1]
        ends = mapping.stops % width
        assert ((mapping.starts % width) % 2 == 0).all(), name
        assert ((ends % 2 == 0) | (ends == width % width)).all(), name


def test_cycles_of_quads_and_of_stores_into_words() -> None:
    update = CODELETS["LifUpdate"]
    half = in_format(update, id_bytes=4, value_bytes=2, moved_bytes=2)
    assert isinstance(half.cost, WorkerBundles)
    assert isinstance(update.cost, WorkerBundles)
    assert half.name == "LifUpdate<half>"
    assert half.cost.terms[0].extents == ("spikes", "quads")
    assert half.extents["quads"] == Vectors("v", 1, per=4)
    assert "pairs" not in half.extents
    assert half.cost.terms[0].bundles == update.cost.terms[0].bundles
    assert "half" in half.cost.source
    scan = in_format(CODELETS["ScanFlags"], id_bytes=2, value_bytes=4, moved_bytes=4)
    assert isinstance(scan.cost, WorkerBundles)
    assert scan.cost.terms[-1].bundles == SUBWORD_STORE_BUNDLES
    assert in_format(update, id_bytes=2, value_bytes=4, moved_bytes=4) is update
    slices = CODELETS["DynamicSliceColumns"]
    halved = in_format(slices, id_bytes=4, value_bytes=2, moved_bytes=2)
    assert isinstance(halved.cost, TileFormula)
    assert isinstance(slices.cost, TileFormula)
    many = {"elements": np.array([960])}
    assert halved.cost.cycles(many, 6, 8) < slices.cost.cycles(many, 6, 8)


def test_every_library_formula_of_values_is_known_in_two_bytes() -> None:
    names = ("elements", "samples", "neurons", "outputs", "groups", "replicas", "groups_of_outputs", "groups_of_inputs")
    extents = {name: np.full(2, 8) for name in names}
    for known, formula in formats.FORMULAS.items():
        assert known is formula(4)
        for cost in (formula(4), formula(2)):
            assert (np.asarray(cost.cycles(extents, 6, 8)) > 0).all()
            assert cost.source
    assert {*formats.HALF, *formats.SHORT_IDS} <= set(CODELETS)


def test_half_scaling_takes_tiles_of_different_widths() -> None:
    cost = formats.neurons.scale_formula(2)
    samples, widths = np.full(3, 48), np.array([4, 2, 4])
    found = np.asarray(cost.cycles({"samples": samples, "neurons": widths}, 6, 8))
    assert found[0] == found[2] != found[1]


def test_a_library_vertex_without_a_cost_in_two_bytes_is_refused() -> None:
    with pytest.raises(MappingError, match=r"codelet 'CountTimestep' has no cost for elements of 2 byte\(s\)"):
        in_format(CODELETS["CountTimestep"], id_bytes=2, value_bytes=4, moved_bytes=2)


def test_stored_bytes_are_not_negative() -> None:
    with pytest.raises(ValueError, match="stored_bytes -1 must not be negative"):
        Variable(
            name="x", shape=(1,), dtype="float32", mapping=TileMapping.on(0, 0, 1), category="weights", stored_bytes=-1
        )


def test_ids_beyond_two_bytes_are_refused() -> None:
    wide = small_network((70_000, 4, 3), batch=2, capacities=(3, 3), input_capacity=5)
    with pytest.raises(MappingError, match=r"input has 70,000 neurons; ids of two bytes reach 65,535: set mapping.id"):
        place(wide, 24, 6, options(id_bytes=2))
    layer = small_network((4, 65_536, 3), batch=2, capacities=(3, 3))
    with pytest.raises(MappingError, match=r"layer 'hidden0' has 65,536 neurons"):
        place(layer, 24, 6, options(id_bytes=2))
    place(small_network((65_535, 4, 3), batch=2, capacities=(3, 3), input_capacity=5), 24, 6, options(id_bytes=2))
    with pytest.raises(DescriptionError, match=r"ids of two bytes reach 65,535, a hidden layer has 70,000"):
        load_workload("digits", {"mapping.id_bytes": 2, "network.hidden": [70_000], "network.capacity": [3, 3]})


def test_half_without_whole_vectors_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"neurons_per_tile: 2 must be a multiple of 4 with value_bytes = 2"):
        MappingOptions(value_bytes=2, neurons_per_tile=2)
    with pytest.raises(DescriptionError, match=r"neurons_per_tile: 6 must be a multiple of 4 with value_bytes = 2"):
        load_workload("digits", {"mapping.value_bytes": 2, "mapping.neurons_per_tile": 6})
    assert options(value_bytes=2, neurons_per_tile=0, neurons_unit=6).tile_unit == 12


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("id_bytes", 3), ("value_bytes", 1), ("spike_exchange", "rows"), ("selection_tiles", "first"),
        ("reduce_rule", "odd"), ("state_gradient", "tile"),
    ],
)  # fmt: skip
def test_choices_that_are_none_are_refused(field: str, given: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        MappingOptions(**{field: given})
    with pytest.raises(DescriptionError, match=field):
        load_workload("digits", {f"mapping.{field}": given})


# ---- dense rows


def test_a_dense_row_is_handed_on_instead_of_ids() -> None:
    ids, dense = (compiled(NETWORK, options=options(spike_exchange=choice)) for choice in ("ids", "dense"))
    assert {"SpikesToDense", "LifUpdateDense", "LifUpdate"} <= codelet_names(dense.program)
    rows = {name: held for name, held in dense.program.variables.items() if name.startswith("row.")}
    assert set(rows) == {"row.hidden0", "row.hidden0.in", "row.hidden1", "row.hidden1.in"}  # none of the output
    assert {held.dtype for held in rows.values()} == {"uint8"}
    assert "ids.hidden0.in" in ids.program.variables
    assert "ids.hidden0.in" not in dense.program.variables
    handed = [copy for step, _, _ in dense.program.supersteps() for copy in step.copies if copy.source == "row.hidden0"]
    assert [copy.target for copy in handed] == ["row.hidden0.in"]
    # a tile of hidden1 reads a byte for every neuron of hidden0 and sample
    update = next(table for table in tables(dense.program, "LifUpdateDense") if table.layer == "hidden1")
    assert (np.asarray(extents_of(dense.program, update)["inputs"]) == 7).all()


def tables(program: Program, codelet: str) -> list[VertexTable]:
    return [t for step, _, _ in program.supersteps() for t in step.tables if t.codelet.name == codelet]


def test_a_row_holds_the_emitted_spikes_only() -> None:
    """Spikes beyond the capacity are dropped from the row as from the list."""
    network = small_network((8, 20, 4), timesteps=4, batch=3, capacities=(5, 2))
    values = given_values(network, 11)
    values.arrays["w.hidden0"] += 0.5
    made = compiled(network, options=options(spike_exchange="dense"))
    executor = Executor(made.program)
    executor.write(values.for_program(network))
    executor.run()
    activity = executor.activity()
    last = activity.counts["hidden0"][-1, :, 0]
    assert last.max() == 5
    np.testing.assert_array_equal(executor.arrays["row.hidden0"].sum(axis=1), last)
    assert set(np.unique(executor.arrays["row.hidden0"])) <= {0, 1}
    fired = (executor.arrays["v.hidden0.sequence"][-1] > 1.0).sum(axis=1)
    assert (fired > last).any()


def test_a_dense_row_costs_by_neurons_and_ids_by_capacity() -> None:
    """Bytes that a tile receives for one timestep: batch * neurons, or batch * (capacity + 2) * 4."""
    for capacity in (2, 20):
        network = small_network((6, 40, 3), timesteps=3, batch=4, capacities=(capacity, 3))
        ids, dense = (compiled(network, options=options(spike_exchange=c)) for c in ("ids", "dense"))
        more = sent_to(dense, "LIF update") - sent_to(ids, "LIF update")
        assert (more > 0) == (4 * (capacity + 2) < 40)


# ---- mapping rules


def test_last_tiles_select_one_tile_per_sample() -> None:
    network = small_network((6, 500, 480, 4), batch=5)
    placement = place(network, 64, 6, MappingOptions(selection_tiles="last"))
    for number, layer in enumerate(placement.layers, start=1):
        assert layer.spread == 1
        np.testing.assert_array_equal(layer.combine_tiles, 64 - number * 5 + np.arange(5))
        np.testing.assert_array_equal(layer.selection_tiles[:, 0, 0], layer.selection_tiles[:, 1, 0])


def test_last_tiles_of_every_chip_are_its_own() -> None:
    network = small_network((6, 40, 40, 4), batch=5)
    placement = place(network, 32, 6, MappingOptions(selection_tiles="last", neurons_per_tile=2), chips=2)
    assert [layer.chips[0] for layer in placement.layers] == [0, 1, 1]
    firsts = [int(layer.combine_tiles[0]) for layer in placement.layers]
    assert firsts == [32 - 5, 64 - 5, 64 - 10]


def test_last_tiles_must_be_fewer_than_the_chip_has() -> None:
    network = small_network((6, 4, 4, 4), batch=8)
    place(network, 25, 6, MappingOptions(selection_tiles="last"))
    with pytest.raises(
        DoesNotFit, match=r"3 layers times 8 samples select spikes on 24 tiles of their own, and a chip"
    ):
        place(network, 24, 6, MappingOptions(selection_tiles="last"))


def test_even_reduction_gives_every_layer_as_many_tiles() -> None:
    network = small_network((6, 60, 20, 30, 4), batch=4, capacities=(20, 2, 5, 4))
    work, even = (place(network, 97, 6, MappingOptions(reduce_rule=rule)) for rule in ("work", "even"))
    assert [plan.tiles for plan in even.reductions.values()] == [32, 32, 32]
    assert len({plan.tiles for plan in work.reductions.values()}) > 1


# ---- what a user sees


def test_a_workload_carries_its_choices_and_says_what_half_leaves_out() -> None:
    workload = load_workload("digits", {"mapping.value_bytes": 2, "mapping.spike_exchange": "dense"})
    assert workload.mapping == MappingOptions(value_bytes=2, spike_exchange="dense")
    (warning,) = half_warning(workload)
    assert "what a vertex writes is rounded to it; sums inside a vertex are kept in float32" in warning
    assert not [*half_warning(load_workload("digits"))]


@pytest.mark.slow
def test_a_sweep_over_variants(tmp_path: Any) -> None:
    axes: dict[str, Any] = {
        "data.timesteps": (4,),
        "network.hidden": ([24, 16],),
        "training.batch": (6,),
        "chip.tiles": (18, 64),
        "mapping.selection_tiles": ("last", "published"),
        "mapping.value_bytes": (4, 2),
    }
    rows = mimdsim.sweep("digits", "mk2", axes, training_steps=1, processes=1, folder=tmp_path)
    times = [row["ms_per_training_step"] for row in rows]
    assert times[0] is None  # three layers of six samples need more than 18 tiles for selection
    assert "select spikes on 18 tiles of their own" in rows[0]["note"]
    assert len(set(times[4:])) == 4
    assert "what a vertex writes is rounded to it" in rows[-1]["note"]
    assert [row["neurons_per_tile"] % 4 for row in rows if row["mapping.value_bytes"] == 2 and row["fits"]] != []


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_a_published_network_compile(name: str) -> None:
    bow = load_machine("bow")
    assert isinstance(bow, MimdMachine)
    changes = {f"mapping.{field}": value for field, value in VARIANTS[name].items()}
    made = compile_workload(load_workload("nmnist-4", changes), bow)
    assert isinstance(made.network.optimiser, Adam)
