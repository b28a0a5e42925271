"""Wide slices and threads give the bits of vertex by vertex."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import MAPPINGS, SEEDS, SMALL, assert_same_bits, compiled, executed, given_values, left_in, networks

from mimdsim.base.errors import MappingError
from mimdsim.codelets.neurons import DECAY_GRADIENT, LIF_UPDATE
from mimdsim.codelets.recurrence_and_bias import SYNAPSE_CURRENT
from mimdsim.codelets.spikes import FLAG_SPIKES, SCAN_FLAGS, WEIGHT_GRADIENT
from mimdsim.execution import Executor
from mimdsim.execution.execute import join_vertices
from mimdsim.graph import SpikingNetwork
from mimdsim.program import Codelet, VertexTable
from mimdsim.workload import MappingOptions


@pytest.mark.slow
@SMALL
@given(network=networks(), options=MAPPINGS, seed=SEEDS, threads=st.sampled_from([2, 3]))
def test_threads_leave_the_same_bits(network: SpikingNetwork, options: MappingOptions, seed: int, threads: int) -> None:
    made, values = compiled(network, options=options), given_values(network, seed, dyadic=False)
    executor = Executor(made.program, threads)
    executor.write(values.for_program(network))
    executor.run()
    assert_same_bits(left_in(executor, made), executed(made, values))


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


@pytest.mark.slow
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
    compute, columns = join_vertices(table)
    assert len(columns[0]) == joined
    compute(*other, *columns, *constants)
    for plain, wide in zip(one, other, strict=True):
        assert plain.tobytes() == wide.tobytes()


def test_slices_apart_stay_apart() -> None:
    table = table_of(DECAY_GRADIENT, {"start": [4, 0, 8], "stop": [6, 4, 9]})
    _, (start, stop) = join_vertices(table)
    assert (start.tolist(), stop.tolist()) == ([0, 8], [6, 9])


def test_slices_of_other_samples_stay_apart() -> None:
    """Sample 1 begins where sample 0 ends: only what agrees in all other columns is joined."""
    columns = {"sample": [1, 0, 0, 1, 2], "start": [8, 4, 0, 4, 2], "stop": [9, 8, 4, 8, 3]}
    table = table_of(SYNAPSE_CURRENT, columns)
    _, joined = join_vertices(table)
    assert [column.tolist() for column in joined] == [[0, 1, 2], [0, 4, 2], [8, 9, 3]]
    two = {"replica": [0, 0, 1, 1], "sample_start": [0, 2, 0, 0], "sample_stop": [2, 4, 2, 2]}
    table = table_of(WEIGHT_GRADIENT, two | {"start": [0, 3, 0, 3], "stop": [3, 6, 3, 6]})
    _, joined = join_vertices(table)
    assert np.stack(joined, axis=1).tolist() == [[0, 0, 2, 0, 3], [0, 2, 4, 3, 6], [1, 0, 2, 0, 6]]
    nothing: dict[str, Any] = {"sample": [], "start": [], "stop": []}
    assert [len(column) for column in join_vertices(table_of(SYNAPSE_CURRENT, nothing))[1]] == [0, 0, 0]


def test_what_is_joinable_must_be_cut_by_columns() -> None:
    whole = (replace(DECAY_GRADIENT.fields[0], box=(":", ":")), *DECAY_GRADIENT.fields[1:])
    with pytest.raises(MappingError, match=r"codelet 'DecayGradient': joinable along .* whose box is \(':', ':'\)"):
        replace(DECAY_GRADIENT, fields=whole)
    with pytest.raises(MappingError, match=r"its columns are \['begin', 'stop'\]"):
        replace(DECAY_GRADIENT, columns=("begin", "stop"))
