"""Wide slices, passes of several supersteps and threads give the bits of vertex by vertex."""

from __future__ import annotations

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
from mimdsim.codelets.neurons import DECAY_GRADIENT, LIF_UPDATE
from mimdsim.codelets.spikes import FLAG_SPIKES, SCAN_FLAGS, WEIGHT_GRADIENT
from mimdsim.codelets.wiring import SYNAPSE_CURRENT
from mimdsim.compiler import Compiled
from mimdsim.functional import Executor, chains
from mimdsim.functional.uses import Uses
from mimdsim.functional.wide import is_whole, widened
from mimdsim.graph import SpikingNetwork
from mimdsim.program import Codelet, VertexTable
from mimdsim.workload import MappingOptions

KEPT = ("losses", "totals", "d_counts")


def watched(made: Compiled, values: Given) -> Executor:
    """The program superstep by superstep."""
    executor = Executor(made.program)
    executor.write(values.for_program(made.network))
    executor.run(observe=lambda *_: None)
    return executor


def found_chains(made: Compiled) -> tuple[set[str], chains.Chains]:
    """Names of the codelets that are not run as they stand, and all that is done otherwise."""
    executor = Executor(made.program)
    found = chains.find_chains(Uses(made.program), executor)
    tables = [table for superstep, _, _ in made.program.supersteps() for table in superstep.tables]
    return {table.codelet.name for table in tables if id(table) in found.replaced}, found


@pytest.mark.slow
@SMALL
@given(network=networks(), options=MAPPINGS, seed=SEEDS, threads=st.sampled_from([1, 2, 3]))
def test_fewer_passes_leave_the_same_bits(
    network: SpikingNetwork, options: MappingOptions, seed: int, threads: int
) -> None:
    made, values = compiled(network, options=options), given_values(network, seed, dyadic=False)
    kept, chains.MOST_PADDING = chains.MOST_PADDING, np.inf
    try:
        executor = Executor(made.program, threads)
        executor.write(values.for_program(network))
        executor.run()
    finally:
        chains.MOST_PADDING = kept
    expected = watched(made, values)
    assert_same_bits(left_in(executor, made), left_in(expected, made))
    for name in KEPT:
        assert executor.arrays[name].tobytes() == expected.arrays[name].tobytes()


@pytest.mark.first(1)
@pytest.mark.parametrize("options", [MappingOptions(neurons_per_tile=2), MappingOptions(neurons_unit=1)])
@pytest.mark.parametrize("optimiser", [SGD, ADAM], ids=["sgd", "adam"])
def test_a_network_of_several_strips_leaves_the_same_bits(options: MappingOptions, optimiser: Any) -> None:
    network = small_network(
        (150, 203, 139, 10), timesteps=4, batch=7, capacities=(40, 30, 10), optimiser=optimiser, reset_gradient="mask"
    )
    made = compiled(network, tiles=600, options=options)
    values = given_values(network, 3, dyadic=False, activity=0.1)
    names, _ = found_chains(made)
    assert {"InputGradient", "ReduceParts", "ReduceGroups", "WeightGradient", "SumReplicas"} <= names
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


def test_what_may_be_passed_over_is_found() -> None:
    network = small_network((9, 64, 64, 4), timesteps=3, batch=6)
    names, found = found_chains(compiled(network, tiles=100))
    assert {"WeightGradient", "FillReplicas", "SumReplicas", "InputGradient", "ReduceParts", "ReduceGroups"} <= names
    assert {"DynamicSliceColumns", "DynamicSliceSlots", "DynamicSliceRows", "DynamicSliceSlots(-1)"} <= names
    assert "saved.v.hidden0" in found.moving


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
    names, _ = found_chains(other)
    assert "InputGradient" not in names
    assert "WeightGradient" in names
    gradients = executed(other, values).gradients
    assert not np.array_equal(gradients["hidden0"], executed(made, values).gradients["hidden0"])


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


@pytest.mark.parametrize(
    ("columns", "whole"),
    [
        ({"sample": [0, 0, 1], "start": [0, 3, 0], "stop": [3, 6, 6]}, True),
        ({"sample": [0, 0, 1], "start": [0, 4, 0], "stop": [3, 6, 6]}, False),  # 3 is left out
        ({"sample": [0, 1], "start": [0, 0], "stop": [6, 5]}, False),
        ({"sample": [0, 1], "start": [1, 0], "stop": [6, 6]}, False),
        ({"sample": [0], "start": [0], "stop": [7]}, False),
    ],
)
def test_a_table_is_whole_where_its_slices_cover_every_sample(columns: dict[str, Any], whole: bool) -> None:
    assert is_whole(table_of(SYNAPSE_CURRENT, columns), 6) is whole
    assert not is_whole(table_of(replace(SYNAPSE_CURRENT, joinable=False), columns), 6)
    assert not is_whole(
        table_of(FLAG_SPIKES, {"sample": [0], "neuron": [0]}, threshold=1.0, second_threshold=0.5), 1
    )  # one by one, not by ranges


def test_what_is_joinable_must_be_cut_by_columns() -> None:
    whole = (replace(DECAY_GRADIENT.fields[0], box=(":", ":")), *DECAY_GRADIENT.fields[1:])
    with pytest.raises(MappingError, match=r"codelet 'DecayGradient': joinable along .* whose box is \(':', ':'\)"):
        replace(DECAY_GRADIENT, fields=whole)
    with pytest.raises(MappingError, match=r"its columns are \['begin', 'stop'\]"):
        replace(DECAY_GRADIENT, columns=("begin", "stop"))
