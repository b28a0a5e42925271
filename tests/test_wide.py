"""Wide slices, passes of several supersteps and threads give the bits of vertex by vertex."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import (
    ADAM,
    MAPPINGS,
    SEEDS,
    SGD,
    SMALL,
    Given,
    assert_same_bits,
    compiled,
    executed,
    given_values,
    left_in,
    networks,
    small_network,
)

from mimdsim.base.errors import MappingError
from mimdsim.codelets.dense import FILL_COLUMNS
from mimdsim.codelets.neurons import DECAY_GRADIENT, LIF_UPDATE
from mimdsim.codelets.spikes import FLAG_SPIKES, SCAN_FLAGS, WEIGHT_GRADIENT
from mimdsim.codelets.wiring import SYNAPSE_CURRENT
from mimdsim.compiler import Compiled
from mimdsim.functional import Executor, adjoints, input_gradients, neurons, stages
from mimdsim.functional.adjoints import take_adjoints
from mimdsim.functional.execute import SHORTCUTS
from mimdsim.functional.selections import take_selections
from mimdsim.functional.shortcuts import Instead
from mimdsim.functional.uses import Uses
from mimdsim.functional.wide import widened
from mimdsim.graph import SpikingNetwork
from mimdsim.program import Codelet, Repeat, Superstep, VertexTable
from mimdsim.workload import MappingOptions

BY_SHORTCUT = {"FillReplicas", "WeightGradient", "SumReplicas", "InputGradient", "ReduceParts", "ReduceGroups"}
KEPT = ("losses", "totals", "d_counts")


def watched(made: Compiled, values: Given) -> Executor:
    """The program superstep by superstep."""
    executor = Executor(made.program)
    executor.write(values.for_program(made.network))
    executor.run(observe=lambda *_: None)
    return executor


def taken(made: Compiled) -> set[str]:
    """Names of the codelets that a shortcut stands in for."""
    uses, instead, executor = Uses(made.program), Instead(), Executor(made.program)
    for shortcut in made.program.shortcuts:
        SHORTCUTS[shortcut.kind](uses, executor, shortcut, instead)
    tables = [table for superstep, _, _ in made.program.supersteps() for table in superstep.tables]
    return {table.codelet.name for table in tables if id(table) in instead.tables}


@pytest.mark.slow
@SMALL
@given(network=networks(), options=MAPPINGS, seed=SEEDS, threads=st.sampled_from([1, 2, 3]))
def test_fewer_passes_leave_the_same_bits(
    network: SpikingNetwork, options: MappingOptions, seed: int, threads: int
) -> None:
    made, values = compiled(network, options=options), given_values(network, seed, dyadic=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(input_gradients, "MOST_PADDING", np.inf)
        patched.setattr(adjoints, "WORTH_A_THREAD", 0)
        executor = Executor(made.program, threads)
        executor.write(values.for_program(network))
        executor.run()
    expected = watched(made, values)
    assert_same_bits(left_in(executor, made), left_in(expected, made))
    for name in KEPT:
        assert executor.arrays[name].tobytes() == expected.arrays[name].tobytes()


@pytest.mark.first(2)
@pytest.mark.parametrize("options", [MappingOptions(neurons_per_tile=2), MappingOptions(neurons_unit=1)])
@pytest.mark.parametrize("optimiser", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("widths", [(203, 139, 10), (192, 144, 16)], ids=["odd", "whole lines"])  # rows past the caches
def test_a_network_of_several_strips_leaves_the_same_bits(
    options: MappingOptions, optimiser: Any, widths: tuple[int, ...]
) -> None:
    network = small_network(
        (150, *widths), timesteps=4, batch=7, capacities=(40, 30, 10), optimiser=optimiser, reset_gradient="mask"
    )
    made = compiled(network, tiles=600, options=options)
    values = given_values(network, 3, dyadic=False, activity=0.1)
    assert taken(made) == BY_SHORTCUT
    expected = left_in(watched(made, values), made)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 0
    assert_same_bits(executed(made, values), expected)


def test_runs_of_both_kinds_may_follow_one_another() -> None:
    """Views of one run must not be written by the next."""
    network = small_network((9, 8, 7, 4), timesteps=4, batch=3)
    made, values = compiled(network), given_values(network, 5, dyadic=False)
    again = watched(made, values)
    again.write(values.for_program(network))
    again.run()
    again.write(values.for_program(network))
    again.run(observe=lambda *_: None)
    assert_same_bits(left_in(again, made), left_in(watched(made, values), made))


def test_every_synapse_brings_its_shortcuts() -> None:
    network = small_network((9, 64, 64, 4), timesteps=3, batch=6)
    made = compiled(network, tiles=100)
    kinds = [shortcut.kind for shortcut in made.program.shortcuts]
    assert sorted(kinds) == ["input gradient"] * 2 + ["weight gradient"] * 3
    assert taken(made) == BY_SHORTCUT


def at_once(made: Compiled) -> list[str]:
    """Layers whose adjoint is made for all timesteps at once, from what their neurons keep."""
    executor = Executor(made.program)
    executor.run()
    return sorted(each.table.layer for each in executor._unread)


def test_adjoints_are_made_in_all_turns_at_once_where_all_that_reads_them_can_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not where the input gradient runs tile by tile, or a layer reads its own spikes."""
    network = small_network((9, 64, 64, 64), timesteps=3, batch=6, reset_gradient="mask")
    assert at_once(compiled(network, tiles=100)) == ["hidden0", "hidden1", "output"]
    few = small_network((9, 64, 64, 4), timesteps=3, batch=6, reset_gradient="mask")
    assert at_once(compiled(few, tiles=100)) == ["hidden0", "hidden1", "output"]
    monkeypatch.setattr(input_gradients, "SHORT_ROW", 0)
    assert at_once(compiled(few, tiles=100)) == ["hidden0", "hidden1"]
    own = small_network((9, 64, 64, 64), timesteps=3, batch=6, recurrence="all_to_all")
    assert not at_once(compiled(own, tiles=100))


def test_gradients_of_currents_that_are_read_before_they_are_made_are_kept() -> None:
    """Such a reader takes those of the turn before."""
    network = small_network((9, 64, 64, 64), timesteps=4, batch=6, reset_gradient="mask")
    made, values = compiled(network, tiles=100), given_values(network, 7, dyadic=False, activity=0.4)
    own = [
        table
        for superstep, _, _ in made.program.supersteps()
        for table in superstep.tables
        if (table.codelet.name, table.layer) == ("WeightGradient", "hidden0")
    ]

    def earlier(superstep: Superstep) -> Superstep:
        kept = tuple(table for table in superstep.tables if table not in own)
        return replace(superstep, tables=(*own, *kept) if superstep.name == "state gradient" else kept)

    other = changed(made, earlier)
    assert at_once(other) == ["hidden1", "output"]
    expected = left_in(watched(other, values), other)
    assert_same_bits(executed(other, values), expected)
    assert not np.array_equal(expected.gradients["hidden0"], executed(made, values).gradients["hidden0"])


def test_potentials_that_only_an_observer_reads_may_stay_unwritten() -> None:
    made = compiled(a_network(), tiles=300)
    values = given_values(made.network, 2, dyadic=False, activity=0.3)
    expected = watched(made, values)
    executor = Executor(made.program)
    for potentials in (False, True, False):
        executor.write(values.for_program(made.network))
        executor.run(potentials=potentials)
        for name in made.program.outputs:
            assert executor.read(name).tobytes() == expected.read(name).tobytes(), name
        sequence = executor.arrays[made.program.observables.potentials["hidden0"].sequence]
        kept = expected.arrays[made.program.observables.potentials["hidden0"].sequence]
        assert np.array_equal(sequence, kept) == potentials
        sequence[...] = 0


def test_a_backward_pass_of_its_own_takes_what_the_program_keeps() -> None:
    """Not what an earlier run of all phases has left beside the tiles."""
    made = compiled(a_network(), tiles=300)
    first, second = (given_values(made.network, seed, dyadic=False, activity=0.3) for seed in (2, 3))
    executor = Executor(made.program)
    executor.write(first.for_program(made.network))
    executor.run(potentials=False)
    executor.write(second.for_program(made.network))
    executor.run(phases=("forward", "loss"), observe=lambda *_: None)
    executor.run(phases=("backward", "update"))
    assert_same_bits(left_in(executor, made), left_in(watched(made, second), made))


def test_selections_and_adjoints_are_made_in_one_pass_each() -> None:
    made = compiled(small_network((9, 64, 64, 4), timesteps=3, batch=6, reset_gradient="mask"), tiles=100)
    uses, instead, executor = Uses(made.program), Instead(), Executor(made.program)
    take_selections(uses, executor, instead)
    take_adjoints(uses, executor, instead)
    tables = [table for superstep, _, _ in made.program.supersteps() for table in superstep.tables]
    names = Counter(table.codelet.name for table in tables if id(table) in instead.tables)
    selecting = {"FlagSpikes": 3, "ScanFlags": 6, "CombineWorkers": 6, "CombineTiles": 3}
    assert names == selecting | dict.fromkeys(
        ("StateGradient", "CopyColumns", "CurrentGradient", "MaskedDecayGradient"), 3
    )


def test_an_unknown_codelet_is_run_as_it_stands() -> None:
    network = small_network((9, 64, 64, 4), timesteps=3, batch=6)
    made, values = compiled(network, tiles=100), given_values(network, 6, dyadic=False)
    known = next(
        table.codelet
        for superstep, _, _ in made.program.supersteps()
        for table in superstep.tables
        if table.codelet.name == "ReduceParts"
    )

    def doubled(*given: Any) -> None:
        known.compute(*given)
        given[2][...] *= 2

    other = replace(made, program=made.program.with_codelet("ReduceParts", replace(known, compute=doubled)))
    assert "InputGradient" not in taken(other)
    assert "WeightGradient" in taken(other)
    gradients = executed(other, values).gradients
    assert not np.array_equal(gradients["hidden0"], executed(made, values).gradients["hidden0"])


def changed(made: Compiled, change: Callable[[Superstep], Superstep]) -> Compiled:
    return replace(made, program=made.program.map_supersteps(change))


def without_half(superstep: Superstep) -> Superstep:
    """Half of the vertices of the first weight gradient are left out."""

    def cut(table: VertexTable) -> VertexTable:
        if table.codelet.name != "WeightGradient" or table.layer != "hidden0":
            return table
        kept = table.vertices // 2
        columns = {name: column[:kept] for name, column in table.columns.items()}
        return replace(table, tiles=table.tiles[:kept], columns=columns)

    return replace(superstep, tables=tuple(cut(table) for table in superstep.tables))


def with_another_writer(superstep: Superstep) -> Superstep:
    """The gradients of the currents are set to zero between the products and their sums."""
    for table in superstep.tables:
        if table.codelet.name == "ReduceParts" and table.layer == "hidden1":
            fill = VertexTable(
                codelet=FILL_COLUMNS,
                layer="hidden1",
                tiles=table.tiles[:1],
                operands={"target": "q.hidden1"},
                columns={"start": np.array([0]), "stop": np.array([1])},
            )
            return replace(superstep, tables=(*superstep.tables, fill))
    return superstep


@pytest.mark.parametrize("change", [without_half, with_another_writer])
def test_a_changed_program_takes_no_shortcut_past_the_change(change: Callable[[Superstep], Superstep]) -> None:
    network = small_network((9, 64, 64, 4), timesteps=3, batch=6, reset_gradient="mask")
    made, values = compiled(network, tiles=100), given_values(network, 7, dyadic=False, activity=0.4)
    other = changed(made, change)
    assert_same_bits(executed(other, values), left_in(watched(other, values), other))
    if change is without_half:
        found = {name: executed(each, values).gradients["hidden0"] for name, each in (("made", made), ("cut", other))}
        assert not np.array_equal(found["made"], found["cut"])


def test_what_the_host_reads_is_written() -> None:
    made = compiled(small_network((9, 64, 64, 4), timesteps=3, batch=6), tiles=100)
    for name in ("partial.hidden1", "stage.output"):
        uses = Uses(made.program)
        uses.outside.add(name)
        instead = Instead()
        for shortcut in made.program.shortcuts:
            SHORTCUTS[shortcut.kind](uses, Executor(made.program), shortcut, instead)
        layer = name.split(".")[1]
        left = [s for s in made.program.shortcuts if s.kind == "input gradient" and s.tables[0].layer == layer]
        assert not any(id(table) in instead.tables for shortcut in left for table in shortcut.tables)


def a_network(**changes: Any) -> SpikingNetwork:
    shape: dict[str, Any] = {"timesteps": 5, "batch": 6, "capacities": (20, 16, 4), "reset_gradient": "mask"}
    return small_network((30, 150, 70, 4), **(shape | changes))


@pytest.mark.parametrize(
    "changes",
    [{}, {"delay": 0}, {"reset_gradient": "pass"}, {"recurrence": "all_to_all", "bias": True}],
    ids=lambda changes: "-".join(f"{name}={value}" for name, value in changes.items()) or "mask",
)
@pytest.mark.parametrize("short", [False, True], ids=["all turns", "few turns"])
def test_runs_at_once_leave_what_watched_runs_leave(
    changes: dict[str, Any], short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in a row, on two threads; gradients are not all zero. short: few turns at once, and little room at first
    for what neurons list."""
    monkeypatch.setattr(adjoints, "WORTH_A_THREAD", 0)
    if short:
        monkeypatch.setattr(stages, "BLOCK_BYTES", 2000)
        monkeypatch.setattr(neurons, "FEWEST", 0)
    made = compiled(a_network(**changes), tiles=300)
    values = given_values(made.network, 2, dyadic=False, activity=0.3)
    expected = left_in(watched(made, values), made)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 0
    again = Executor(made.program, 2)
    for _ in range(2):
        again.write(values.for_program(made.network))
        again.run()
        assert_same_bits(left_in(again, made), expected)


@pytest.mark.parametrize(("outer", "inner"), [(False, False), (False, True), (True, False), (True, True)])
def test_repeats_within_repeats_go_their_own_way(outer: bool, inner: bool) -> None:
    """Timesteps in two segments, either of which may go from the last to the first: all at once, or turn by turn."""
    made = compiled(a_network(timesteps=6), tiles=300)

    def in_segments(item: Any) -> Any:
        if not isinstance(item, Repeat) or item.reverse:
            return item
        return Repeat(times=2, body=(replace(item, times=3, reverse=inner),), reverse=outer)

    program = replace(made.program, body=tuple(in_segments(item) for item in made.program.body))
    values = given_values(made.network, 2, dyadic=False, activity=0.3).for_program(made.network)
    every, single = Executor(program), Executor(program)
    for executor in (every, single):
        executor.write(values)
    every.run(phases=("forward",))
    if outer or inner:  # the counters of the program count forwards
        with pytest.raises(MappingError, match="was the counter set and counted before"):
            list(single.steps(phases=("forward",)))
        return
    for _ in single.steps(phases=("forward",)):
        pass
    lists = [name for name in program.variables if name.startswith("ids.") and name.endswith(".sequence")]
    assert lists
    for name in lists:
        counts = single.arrays[name.replace("ids.", "counts.")]
        np.testing.assert_array_equal(every.arrays[name.replace("ids.", "counts.")], counts)
        listed = np.arange(single.arrays[name].shape[-1]) < counts[..., 1:]
        assert listed.any()
        np.testing.assert_array_equal(every.arrays[name][listed], single.arrays[name][listed], err_msg=name)


@pytest.mark.parametrize("outer", [1, 2, 3])
def test_a_backward_pass_in_segments_goes_its_own_way(outer: int) -> None:
    """Only one that goes through all timesteps at once takes what neurons keep."""
    made = compiled(a_network(timesteps=6), tiles=300)

    def in_segments(item: Any) -> Any:
        if not isinstance(item, Repeat) or not item.reverse:
            return item
        return Repeat(times=outer, body=(replace(item, times=6 // outer),), reverse=True)

    other = replace(made, program=replace(made.program, body=tuple(in_segments(item) for item in made.program.body)))
    values = given_values(made.network, 2, dyadic=False, activity=0.3)
    assert at_once(other) == (["hidden0", "hidden1", "output"] if outer == 1 else [])
    assert_same_bits(executed(other, values), left_in(watched(made, values), made))


def table_of(codelet: Codelet, columns: dict[str, Any], **constants: Any) -> VertexTable:
    vertices = len(next(iter(columns.values())))
    return VertexTable(
        codelet=codelet,
        layer="hidden0",
        tiles=np.zeros(vertices, np.int64),
        operands={item.name: item.name for item in codelet.fields},
        columns={name: np.asarray(column) for name, column in columns.items()},
        constants=constants,
    )


def cut(extent: int, edges: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and stops of ranges between edges."""
    bounds = np.unique([0, extent, *(edge % extent for edge in edges)])
    return bounds[:-1], bounds[1:]


@SMALL
@given(neurons=st.integers(1, 1100), edges=st.lists(st.integers(0, 2000), max_size=6), seed=SEEDS)
def test_wide_kernels_give_the_bits_of_plain_ones(neurons: int, edges: list[int], seed: int) -> None:
    draw = np.random.default_rng(seed)
    start, stop = cut(neurons, edges)
    batch, inputs = 2, 12
    rows = {
        "sample": np.repeat(np.arange(batch), len(start)),
        "start": np.tile(start, batch),
        "stop": np.tile(stop, batch),
    }
    single = np.float32
    v = draw.normal(0.5, 1, (batch, neurons)).astype(single)
    w = draw.normal(0, 1, (inputs, neurons)).astype(single)
    ids = np.argsort(draw.random((batch, inputs)), axis=1).astype(np.int32)
    counts = draw.integers(0, inputs + 1, (batch, 2)).astype(np.int32)
    lif = table_of(LIF_UPDATE, rows, decay=single(0.95), scale=single(0.5), threshold=single(1))
    assert_joined_alike(lif, (v, w, ids, counts), joined=batch)
    flags = np.zeros((2, batch, neurons), np.int32)
    each = {"sample": np.repeat(np.arange(batch), neurons), "neuron": np.tile(np.arange(neurons), batch)}
    flag = table_of(FLAG_SPIKES, each, threshold=single(1), second_threshold=single(0.9))
    assert_joined_alike(flag, (v, flags), joined=batch)
    flags[:] = draw.random(flags.shape) < 0.05
    slots = np.arange(2 * len(start))
    lists = (flags, np.zeros((len(slots), 40), np.int32), np.zeros(len(slots), np.int32))
    scan = {"row": np.repeat([0, 1], len(start)), **rows, "slot": slots}
    assert_joined_alike(table_of(SCAN_FLAGS, scan, capacity=draw.integers(1, 60)), lists, joined=len(slots))


def assert_joined_alike(table: VertexTable, arrays: tuple[np.ndarray, ...], joined: int) -> None:
    """Run as one wide vertex per sample and vertex by vertex."""
    one, other = ([array.copy() for array in arrays] for _ in range(2))
    constants = [table.constants[name] for name in table.codelet.constants]
    table.codelet.compute(*one, *(table.columns[name].astype(np.int64) for name in table.codelet.columns), *constants)
    compute, columns = widened(table)
    assert len(columns[0]) == joined
    compute(*other, *columns, *constants)
    for plain, wide in zip(one, other, strict=True):
        assert plain.tobytes() == wide.tobytes()


def test_slices_apart_stay_apart() -> None:
    table = table_of(DECAY_GRADIENT, {"start": [4, 0, 8], "stop": [6, 4, 9]})
    _, (start, stop) = widened(table)
    assert (start.tolist(), stop.tolist()) == ([0, 8], [6, 9])


def test_slices_of_other_samples_stay_apart() -> None:
    """Sample 1 begins where sample 0 ends: only what agrees in all other columns is joined."""
    columns = {"sample": [1, 0, 0, 1, 2], "start": [8, 4, 0, 4, 2], "stop": [9, 8, 4, 8, 3]}
    table = table_of(SYNAPSE_CURRENT, columns)
    _, joined = widened(table)
    assert [column.tolist() for column in joined] == [[0, 1, 2], [0, 4, 2], [8, 9, 3]]
    two = {"replica": [0, 0, 1, 1], "sample_start": [0, 2, 0, 0], "sample_stop": [2, 4, 2, 2]}
    table = table_of(WEIGHT_GRADIENT, two | {"start": [0, 3, 0, 3], "stop": [3, 6, 3, 6]})
    _, joined = widened(table)
    assert np.stack(joined, axis=1).tolist() == [[0, 0, 2, 0, 3], [0, 2, 4, 3, 6], [1, 0, 2, 0, 6]]
    nothing: dict[str, Any] = {"sample": [], "start": [], "stop": []}
    assert [len(column) for column in widened(table_of(SYNAPSE_CURRENT, nothing))[1]] == [0, 0, 0]


def test_what_is_joinable_must_be_cut_by_columns() -> None:
    whole = (replace(DECAY_GRADIENT.fields[0], box=(":", ":")), *DECAY_GRADIENT.fields[1:])
    with pytest.raises(MappingError, match=r"codelet 'DecayGradient': joinable along .* whose box is \(':', ':'\)"):
        replace(DECAY_GRADIENT, fields=whole)
    with pytest.raises(MappingError, match=r"its columns are \['begin', 'stop'\]"):
        replace(DECAY_GRADIENT, columns=("begin", "stop"))
