"""Selection, adjoints and weight gradients in fewer passes: found where they are just that, else left alone."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import (
    SEEDS,
    SMALL,
    assert_same_bits,
    compiled,
    executed,
    given_values,
    left_in,
    small_network,
)

from mimdsim.compiler import Compiled
from mimdsim.functional import Executor, chains
from mimdsim.functional.neuron_chains import _joined_workers
from mimdsim.functional.uses import Uses
from mimdsim.functional.weight_chains import _Replayed
from mimdsim.graph import SpikingNetwork
from mimdsim.numerics.fused import neuron_chains as kernels
from mimdsim.numerics.lists import spikes
from mimdsim.timing import program_loads
from mimdsim.timing.plan import Barrel

SELECTION = {"FlagSpikes", "ScanFlags", "CombineWorkers"}
ADJOINT = {"CopyColumns", "CurrentGradient", "MaskedDecayGradient"}
BARREL = Barrel(contexts=6, issue_cycles=6, vector_bytes=8, arrange_fragment_bundles=1.0)


def a_network(reset_gradient: str = "mask", **changes: Any) -> SpikingNetwork:
    shape: dict[str, Any] = {"timesteps": 5, "batch": 6, "capacities": (20, 16, 4), "reset_gradient": reset_gradient}
    return small_network((30, 150, 70, 4), **(shape | changes))


def found_in(made: Compiled) -> tuple[set[str], int]:
    """Codelets that are not run as they stand, and how many weight gradients are replayed."""
    found = chains.find_chains(Uses(made.program), Executor(made.program))
    tables = [table for superstep, _, _ in made.program.supersteps() for table in superstep.tables]
    owners = {id(getattr(call, "__self__", None)) for call in found.replaced.values() if _replays(call)}
    return {table.codelet.name for table in tables if id(table) in found.replaced}, len(owners)


def _replays(call: Any) -> bool:
    return isinstance(getattr(call, "__self__", None), _Replayed)


def assert_as_watched(made: Compiled, seed: int) -> None:
    """Run at once, twice, and superstep by superstep: the same bits, and gradients that are not all zero."""
    values = given_values(made.network, seed, dyadic=False, activity=0.3)
    watched = Executor(made.program)
    watched.write(values.for_program(made.network))
    watched.run(observe=lambda *_: None)
    expected = left_in(watched, made)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 0
    again = Executor(made.program, 2)
    for _ in range(2):
        again.write(values.for_program(made.network))
        again.run()
        assert_same_bits(left_in(again, made), expected)


@pytest.mark.parametrize("delay", [0, 1])
def test_passes_over_neurons_are_found_and_leave_the_same_bits(delay: int) -> None:
    made = compiled(a_network(delay=delay), tiles=200)
    names, replayed = found_in(made)
    assert names >= SELECTION | ADJOINT | {"StateGradient"}
    assert replayed == 3
    assert_as_watched(made, 1)


def test_a_gradient_that_passes_the_reset_is_kept_not_replayed() -> None:
    made = compiled(a_network("pass"), tiles=200)
    names, replayed = found_in(made)
    assert names >= SELECTION | {"CopyColumns", "CurrentGradient", "WeightGradient"}
    assert replayed == 0
    assert_as_watched(made, 2)


def test_weights_of_the_same_currents_share_what_is_replayed() -> None:
    """Synapses of a layer onto itself have the currents of its input's."""
    made = compiled(a_network(recurrence="all_to_all", bias=True), tiles=300)
    names, replayed = found_in(made)
    assert "WeightGradient" in names
    assert replayed == 6
    assert_as_watched(made, 6)


def changed(made: Compiled, name: str) -> Compiled:
    """With one codelet computed by a function that nobody knows and that does the same."""
    tables = [table for superstep, _, _ in made.program.supersteps() for table in superstep.tables]
    known = next(table.codelet for table in tables if table.codelet.name == name)
    other = replace(known, compute=lambda *given: known.compute(*given))
    return replace(made, program=made.program.with_codelet(name, other))


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("name", "left", "replayed"),
    [
        ("FlagSpikes", SELECTION, 3),
        ("ScanFlags", SELECTION, 3),
        ("CombineWorkers", SELECTION, 3),
        ("CopyColumns", ADJOINT | {"StateGradient"}, 0),
        ("CurrentGradient", ADJOINT | {"StateGradient"}, 0),
        ("MaskedDecayGradient", {"MaskedDecayGradient", "StateGradient"}, 0),
        ("StateGradient", {"StateGradient"}, 0),
    ],
)
def test_an_unknown_member_leaves_its_chain_as_it_is(name: str, left: set[str], replayed: int) -> None:
    made = changed(compiled(a_network(), tiles=200), name)
    names, count = found_in(made)
    assert not names & left
    assert count == replayed
    assert_as_watched(made, 3)


def test_a_read_of_what_is_handed_on_keeps_it() -> None:
    made = compiled(a_network(), tiles=200)
    for name, left in (("flags.hidden0", "FlagSpikes"), ("worker_counts.hidden0", "CombineWorkers")):
        uses = Uses(made.program)
        uses.outside.add(name)
        found = chains.find_chains(uses, Executor(made.program))
        tables = [table for superstep, _, _ in made.program.supersteps() for table in superstep.tables]
        kept = [table.layer for table in tables if table.codelet.name == left and id(table) not in found.replaced]
        assert set(kept) == {"hidden0"}


def test_gradients_are_those_of_unknown_codelets() -> None:
    """Against a program none of whose neurons' supersteps is known."""
    made = compiled(a_network(), tiles=200)
    values = given_values(made.network, 4, dyadic=False, activity=0.3)
    plain = made
    for name in ("FlagSpikes", "CopyColumns", "MaskedDecayGradient", "StateGradient", "WeightGradient"):
        plain = changed(plain, name)
    assert_same_bits(executed(made, values), executed(plain, values))


@SMALL
@given(
    neurons=st.integers(1, 200),
    workers=st.integers(1, 7),
    tiles=st.integers(1, 3),
    slots=st.integers(1, 40),
    room=st.integers(1, 60),
    seed=SEEDS,
)
def test_lists_of_tiles_are_those_of_scans_and_combines(
    neurons: int, workers: int, tiles: int, slots: int, room: int, seed: int
) -> None:
    """With workers and tiles that run full, and workers that have no neuron."""
    draw, batch, single = np.random.default_rng(seed), 2, np.float32
    v = draw.normal(0.5, 0.7, (batch, neurons)).astype(single)
    edges = np.sort(draw.integers(0, neurons + 1, workers * tiles - 1))
    start, stop = np.append(0, edges), np.append(edges, neurons)
    lines = [(row, b, *ends) for b in range(batch) for row in (0, 1) for ends in zip(start, stop, strict=True)]
    row, sample, start, stop = (np.array(column, np.int64) for column in zip(*lines, strict=True))
    slot = np.arange(len(row))
    first = np.arange(0, len(row), workers)
    last, tile = first + workers, np.arange(len(first))

    flags = np.zeros((2, batch, neurons), np.int32)
    every = np.repeat(np.arange(batch), neurons), np.tile(np.arange(neurons), batch)
    spikes.flag_spikes(v, flags, *every, single(1), single(0.4))
    ids, counts = np.zeros((len(row), slots), np.int32), np.zeros(len(row), np.int32)
    capacity = int(draw.integers(1, 50))
    spikes.scan_flags(flags, ids, counts, row, sample, start, stop, slot, capacity)
    expected = np.zeros((len(tile), room), np.int32), np.zeros(len(tile), np.int32)
    spikes.combine_workers(ids, counts, *expected, first, last, tile)

    listed, ends = np.zeros((2, batch, neurons + 1), np.int32), np.zeros((2, batch), np.int64)
    kernels.list_flagged(v, single(1), single(0.4), listed, ends)
    assert ends.sum() == flags.sum()
    by_worker = np.stack([row, sample, start, stop, np.full(len(row), min(slots, capacity))])
    *joined, low, high = _joined_workers(by_worker, first, last)
    found = np.zeros((len(tile), room), np.int32), np.zeros(len(tile), np.int32)
    kernels.deal_to_tiles(listed, ends, tuple(joined), low, high, tile, *found)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])


def test_loads_hold_no_activity_nobody_else_has() -> None:
    made = compiled(a_network(), tiles=200)
    executor = Executor(made.program)
    executor.write(given_values(made.network, 5).for_program(made.network))
    executor.run()
    activity = executor.activity()
    loads = program_loads(made.program, activity, BARREL)
    assert program_loads(made.program, activity, BARREL) is loads
    assert program_loads(made.program, activity, replace(BARREL, issue_cycles=4)) is not loads
    gone = ref(activity)
    del activity
    gc.collect()
    assert gone() is None
