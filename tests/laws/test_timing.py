"""Timing: the fast path against a slow per-vertex recomputation, its laws, the event path, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.costs.chip_links import host_exposed_seconds
from mimdsim.costs.fabric.endpoint import Endpoint
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.numerics.columns.worker_load import order_by, places_among
from mimdsim.pipeline import Run, compile_workload, retime, simulate
from mimdsim.profile import TiledProfile
from mimdsim.program import (
    Hits,
    Listed,
    Program,
    Recorded,
    RecordedActivity,
    Repeat,
    Spikes,
    SpikesOver,
    Superstep,
    TileFormula,
    VertexTable,
    Within,
    extents_of,
)
from mimdsim.timing import program_loads, stream_training_steps
from mimdsim.timing.recording import Recording
from mimdsim.timing.static_plan import straight_line_plans, superstep_placements
from mimdsim.timing.tile_classes import PlacedTable, _refine_classes
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.tile_work import work_of_tile
from mimdsim.workload import load_workload

TINY: dict[str, Any] = {
    "data.inputs": 20,
    "data.classes": 3,
    "data.timesteps": 4,
    "data.input_capacity": 6,
    "data.activity": 0.2,
    "data.train_samples": 20,
    "data.test_samples": 5,
    "network.hidden": [24, 18],
    "network.capacity": [5, 4, 3],
    "training.batch": 5,
    "training.max_training_steps": 2,
}
ISSUE = TileIssue(contexts=6, issue_cycles=6, vector_bytes=8, arrange_fragment_bundles=24)


def machine(name: str = "tiny", **changes: Any) -> MimdMachine:
    found = load_machine(name, {key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(found, MimdMachine)
    return found


@lru_cache(maxsize=1)
def tiny_run() -> Run:
    """A tiny network trained for two steps: its program, its recorded spikes."""
    run = simulate(load_workload("nmnist-2-random", TINY), machine())
    assert all(run.log.activity.counts[layer][..., 1].sum() for layer in ("input", "hidden0", "hidden1", "output"))
    assert run.log.activity.counts["hidden1"][..., 0].sum() > 0
    return run


def timed(activity: RecordedActivity | None = None, **changes: Any) -> TiledProfile:
    run = tiny_run()
    return retime(run.compiled, machine(**changes), activity or run.log.activity)


def made_activity(fill: float) -> RecordedActivity:
    """Every list filled to the share `fill` of its capacity with true spikes, lowest ids first."""
    recorded = tiny_run().log.activity
    ids, counts = {}, {}
    for layer, lists in recorded.ids.items():
        capacity = lists.shape[2]
        ids[layer] = np.broadcast_to(np.arange(capacity, dtype=np.int32), lists.shape).copy()
        counts[layer] = np.full_like(recorded.counts[layer], round(fill * capacity))
    return RecordedActivity(ids=ids, counts=counts, dropped={})


# ---- the fast path, vertex by vertex


Extents = dict[str, np.ndarray | Recorded]


def extent_at(
    table: VertexTable, extent: np.ndarray | Recorded, vertex: int, t: int, activity: RecordedActivity
) -> float:
    """How often a loop of one vertex runs at timestep t."""
    if isinstance(extent, np.ndarray):
        return int(extent[vertex])
    when = t + extent.shift
    if when < 0:
        return 0  # nothing has spiked before the first timestep
    counts, ids = activity.counts[extent.layer][when], activity.ids[extent.layer][when]
    column = {key: int(values[vertex]) for key, values in table.columns.items()}
    if isinstance(extent, Spikes):
        return int(counts[column["sample"]][0])
    if isinstance(extent, Listed):
        return int(counts[column["sample"]][1])
    if isinstance(extent, SpikesOver):
        return sum(int(counts[sample][0]) for sample in range(column["sample_start"], column["sample_stop"]))
    if isinstance(extent, Within):
        return column["slot"] < int(counts[column["sample"]][1])
    assert isinstance(extent, Hits)
    samples = range(column["sample_start"], column["sample_stop"]) if "sample" not in column else [column["sample"]]
    found = 0
    for sample in samples:
        spikes, listed = (int(number) for number in counts[sample])
        first, last = {"listed": (0, listed), "spikes": (0, spikes), "gradient": (spikes, listed)}[extent.which]
        found += sum(column["start"] <= int(ids[sample][k]) < column["stop"] for k in range(first, last))
    return found


def vertex_cost(
    table: VertexTable, extents: Extents, vertex: int, t: int, activity: RecordedActivity, issue: TileIssue
) -> float:
    """Bundles of a vertex that a context runs; cycles of a library vertex."""
    cost = table.codelet.cost
    if isinstance(cost, TileFormula):
        own = {name: column[vertex : vertex + 1] for name, column in extents.items() if isinstance(column, np.ndarray)}
        working = min(issue.contexts, issue.issue_cycles)  # a library starts no context that adds no throughput
        once = float(np.asarray(cost.cycles(own, working, issue.vector_bytes)).reshape(-1)[0])
        return once * issue.issue_cycles / working
    total = cost.fixed
    for term in cost.terms:
        turns = 1.0
        for name in term.extents:
            turns *= extent_at(table, extents[name], vertex, t, activity)
        total += (term.bundles - issue.compiled_dual_issue * term.pairable) * turns
    return total


def tile_cycles(
    program: Program, superstep: Superstep, t: int, activity: RecordedActivity, issue: TileIssue
) -> list[float]:
    """max(issue * longest context, all bundles) plus library cycles, per tile."""
    bundles = [[0.0] * issue.contexts for _ in range(program.tiles)]
    library = [0.0] * program.tiles
    if superstep.exchange is not None:
        shared = issue.issue_cycles / min(issue.contexts, issue.issue_cycles)
        pieces = superstep.exchange.fragments_arranged * issue.arrange_fragment_bundles
        library = ((pieces + superstep.exchange.bytes_arranged / issue.copy_bytes_per_cycle) * shared).tolist()
    dealt = [0] * program.tiles
    for table in superstep.tables:
        extents = extents_of(program, table)
        for vertex, tile in enumerate(table.tiles.tolist()):
            cost = vertex_cost(table, extents, vertex, t, activity, issue)
            if isinstance(table.codelet.cost, TileFormula):
                library[tile] += cost
            else:
                bundles[tile][dealt[tile] % issue.contexts] += cost
                dealt[tile] += 1
    return [
        extra + max(issue.issue_cycles * max(contexts), sum(contexts))
        for extra, contexts in zip(library, bundles, strict=True)
    ]


def slow_cycles(program: Program, activity: RecordedActivity, issue: TileIssue) -> list[list[int]]:
    """Cycles by execution of every superstep, in program order; tiles run ahead of each other between syncs."""
    found: list[list[int]] = []
    since = [0.0] * program.tiles
    before = 0
    for item in program.body:
        body = item.body if isinstance(item, Repeat) else (item,)
        rows: list[list[int]] = [[] for _ in body]
        for t in range(item.times if isinstance(item, Repeat) else 1):
            if isinstance(item, Repeat):
                since, before = [0.0] * program.tiles, 0
            for row, superstep in zip(rows, body, strict=True):
                if superstep.exchange is not None:
                    since, before = [0.0] * program.tiles, 0
                own = tile_cycles(program, superstep, t, activity, issue)
                since = [done + more for done, more in zip(since, own, strict=True)]
                after = round(max(since))
                row.append(after - before)
                before = after
        if isinstance(item, Repeat):
            since, before = [0.0] * program.tiles, 0
        found += rows
    return found


@pytest.mark.first(3)
@pytest.mark.parametrize(
    "issue",
    [
        ISSUE,
        TileIssue(contexts=4, issue_cycles=4, vector_bytes=16, arrange_fragment_bundles=7, copy_bytes_per_cycle=3),
        TileIssue(contexts=6, issue_cycles=6, vector_bytes=8, arrange_fragment_bundles=24, compiled_dual_issue=0.5),
        TileIssue(contexts=1, issue_cycles=6, vector_bytes=8, arrange_fragment_bundles=24),
        TileIssue(contexts=8, issue_cycles=3, vector_bytes=8, arrange_fragment_bundles=24),
    ],
)
def test_fast_path_equals_the_slow_one_to_the_cycle(issue: TileIssue) -> None:
    assert_timed_as_slowly(tiny_run().compiled.program, issue)


@pytest.mark.parametrize("parts", [{"batch": 2, "inputs": 3, "neurons": 3}, {"batch": 5, "inputs": 2, "neurons": 2}])
def test_layers_in_parts_are_timed_like_the_slow_path(parts: dict[str, int]) -> None:
    """Several vertices of a part of the fan-in count the same spikes."""
    split = {f"mapping.split.{layer}": {**parts, "replicas": 1} for layer in ("hidden0", "hidden1", "output")}
    workload = load_workload("nmnist-2-random", {**TINY, **split, "mapping.program": "best"})
    assert_timed_as_slowly(compile_workload(workload, machine(chip__tiles=100)).program, ISSUE)


def assert_timed_as_slowly(program: Program, issue: TileIssue) -> None:
    activity = tiny_run().log.activity
    loads = program_loads(program, activity, issue)
    slow = slow_cycles(program, activity, issue)
    names = [superstep.name for superstep, _, _ in program.supersteps()]
    assert len(loads) == len(slow) == len(names)
    for name, load, expected in zip(names, loads, slow, strict=True):
        assert load.cycles_by_execution.tolist() == [[cycles] for cycles in expected], name
    assert sum(load.cycles for load in loads) > 0


def test_busy_cycles_are_those_of_every_tile() -> None:
    program, activity = tiny_run().compiled.program, tiny_run().log.activity
    for (superstep, times, _), load in zip(program.supersteps(), program_loads(program, activity, ISSUE), strict=True):
        own = np.sum([tile_cycles(program, superstep, t, activity, ISSUE) for t in range(times)], axis=0)
        np.testing.assert_array_equal(load.busy, np.rint(own).astype(np.int64))
        assert load.slowest_tile == int(load.busy.argmax())


@pytest.mark.parametrize("contexts", [6, 1])
def test_operations_have_shares_of_the_cycles_of_their_tiles(contexts: int) -> None:
    """Those of a tile's turn by the bundles that each issues in it, as an explanation of the tile counts them: to a
    thousandth, as spikes are taken to be spread evenly over the vertices of a table."""
    program, issue = tiny_run().compiled.program, replace(ISSUE, contexts=contexts)
    recording = Recording(tiny_run().log.activity)
    loads, shared = program_loads(program, recording.activity, issue), 0
    for (superstep, times, _), load in zip(program.supersteps(), loads, strict=True):
        placement, expected = superstep_placements(program)[superstep], Counter[str]()
        for tile in range(placement.first, placement.first + placement.tiles):
            work = work_of_tile(superstep, placement, tile, times, recording, issue)
            issued = np.zeros((times, issue.contexts))
            for one in work:
                np.add.at(
                    issued.T, one.place % issue.contexts, np.broadcast_to(one.bundles().T, (len(one.rows), times))
                )
            cycles = np.maximum(issue.issue_cycles * issued.max(axis=1), issued.sum(axis=1))
            for one in work:
                own = one.bundles().sum(axis=1) * cycles / np.maximum(issued.sum(axis=1), 1)
                expected[one.table.layer] += np.broadcast_to(own, times).sum()
        if any(isinstance(table.codelet.cost, TileFormula) for table in superstep.tables) or len(expected) < 2:
            continue
        shared += 1
        whole = sum(share for *_, share in load.operations) / sum(expected.values())
        found = {layer: share / whole for _, layer, share in load.operations}
        assert found == pytest.approx(expected, abs=1e-3 * sum(expected.values())), superstep.name
    assert shared > 5


def test_every_kind_of_recorded_extent_was_exercised() -> None:
    kinds = {
        type(extent)
        for superstep, _, _ in tiny_run().compiled.program.supersteps()
        for table in superstep.tables
        for extent in table.extents.values()
    }
    assert {Spikes, Listed, SpikesOver, Hits, Within} <= kinds


def test_the_profile_takes_its_compute_from_the_loads() -> None:
    run = tiny_run()
    loads = program_loads(run.compiled.program, run.log.activity, ISSUE)
    spans = timed().spans
    assert [span.compute_cycles for span in spans[: len(loads)]] == [load.cycles for load in loads]
    assert [span.flops for span in spans[: len(loads)]] == [load.flops for load in loads]
    assert all(span.compute_cycles == 0 for span in spans[len(loads) :])  # loop control
    assert run.profile.tiled == timed()


# ---- laws


def test_doubling_the_clock_halves_device_seconds() -> None:
    slow, fast = timed(), timed(chip__clock_hz="2 GHz")
    assert fast.cycles == slow.cycles
    assert fast.seconds(fast.cycles) == slow.seconds(slow.cycles) / 2
    assert fast.host_seconds == slow.host_seconds  # the link to the host has a clock of its own


def test_sync_is_linear() -> None:
    none, once, twice = (timed(sync__internal_cycles=cycles, sync__loop_cycles=0) for cycles in (0, 100, 200))
    executions = sum(span.times for span in none.spans if span.exchange_cycles or span.op == "repeat")
    assert none.sync_cycles == 0
    assert once.sync_cycles == 100 * executions
    assert twice.sync_cycles == 2 * once.sync_cycles
    assert (once.compute_cycles, once.exchange_cycles) == (none.compute_cycles, none.exchange_cycles)
    loops = timed(sync__internal_cycles=0, sync__loop_cycles=7)
    assert loops.sync_cycles == 7 * 2 * 4  # forward and backward, four timesteps


def test_waiting_for_the_last_tile_is_a_share_of_the_exchange() -> None:
    """Of every exchange by itself, beside the barrier's own cycles."""
    none, tenth = (timed(sync__internal_cycles=7, sync__exchange_share=share) for share in (0.0, 0.1))
    for before, after in zip(none.spans, tenth.spans, strict=True):
        assert (after.compute_cycles, after.exchange_cycles) == (before.compute_cycles, before.exchange_cycles)
        more = 0 if after.op == "repeat" else round(0.1 * after.exchange_cycles / after.times) * after.times
        assert after.sync_cycles == before.sync_cycles + more
    assert tenth.sync_cycles > none.sync_cycles


def test_exchange_is_linear() -> None:
    none = timed(exchange__fixed_cycles=0)
    executions = sum(span.times for span in none.spans if span.exchange_cycles)
    assert executions > 0
    assert timed(exchange__fixed_cycles=50).exchange_cycles == none.exchange_cycles + 50 * executions
    free: dict[str, Any] = {
        "exchange__fixed_cycles": 0,
        "exchange__send_fragment_cycles": 0,
        "exchange__receive_fragment_cycles": 0,
    }
    assert timed(exchange__bytes_per_cycle=2, **free).exchange_cycles == 2 * timed(**free).exchange_cycles
    assert timed(exchange__bytes_per_cycle=1, **free).exchange_cycles == 4 * timed(**free).exchange_cycles
    # so wide that the wire takes one cycle a phase at most, hidden by the fragments
    wire: dict[str, Any] = {"exchange__fixed_cycles": 0, "exchange__bytes_per_cycle": 1e12}
    fragments = [
        timed(exchange__send_fragment_cycles=cost, exchange__receive_fragment_cycles=cost, **wire).exchange_cycles
        for cost in (2, 4, 6)
    ]
    assert fragments == [fragments[0], 2 * fragments[0], 3 * fragments[0]]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"exchange__bytes_per_cycle": 1},
        {"exchange__bytes_per_cycle": 64},
        {"exchange__tiles_per_bus": 1},
        {"exchange__model": "planner"},
    ],
)
def test_exchange_cycles_follow_from_the_tile_that_is_named(changes: dict[str, Any]) -> None:
    bound = set()
    fabric = machine(**changes).exchange
    for span in timed(**changes).spans:
        wire = -(-span.exchange_tile_bytes // fabric.bytes_per_cycle)
        busiest = max(wire, span.exchange_tile_control_cycles)
        fixed = fabric.fixed_cycles + fabric.route_cycles if busiest else 0
        assert span.exchange_cycles == span.times * (busiest + fixed)
        assert (span.exchange_tile >= 0) == (span.exchange_cycles > 0)
        bound |= {"bytes" if wire > span.exchange_tile_control_cycles else "pieces"} if busiest else set()
    assert "pieces" in bound or fabric.bytes_per_cycle < 64
    assert "bytes" in bound or fabric.bytes_per_cycle > 1


def test_more_spikes_cost_more() -> None:
    silent, recorded, full = timed(made_activity(0)), timed(), timed(made_activity(1))
    assert silent.compute_cycles < recorded.compute_cycles < full.compute_cycles
    # moving and waiting do not depend on spikes: lists travel at full capacity
    for part in ("exchange_cycles", "sync_cycles"):
        assert getattr(silent, part) == getattr(recorded, part) == getattr(full, part)
    half = timed(made_activity(0.5))
    assert silent.compute_cycles < half.compute_cycles < full.compute_cycles


@settings(max_examples=15, deadline=None)
@given(layer=st.sampled_from(["input", "hidden0", "hidden1", "output"]), t=st.integers(0, 3), sample=st.integers(0, 4))
def test_one_more_spike_never_costs_less(layer: str, t: int, sample: int) -> None:
    activity = made_activity(0.5)
    counts = {name: values.copy() for name, values in activity.counts.items()}
    counts[layer][t, sample] += 1
    before = sum(load.cycles for load in program_loads(tiny_run().compiled.program, activity, ISSUE))
    more = replace(activity, counts=counts)
    assert sum(load.cycles for load in program_loads(tiny_run().compiled.program, more, ISSUE)) >= before


def test_retiming_on_another_machine_keeps_compute_cycles() -> None:
    compiled = compile_workload(load_workload("nmnist-2-random", TINY), machine("mk2"))
    activity = tiny_run().log.activity
    profiles = [retime(compiled, machine(name), activity) for name in ("mk2", "bow", "c600")]
    assert len({profile.compute_cycles for profile in profiles}) == 1
    assert len({tuple(span.compute_cycles for span in profile.spans) for profile in profiles}) == 1
    assert len({profile.clock_hz for profile in profiles}) == 3
    seconds = [profile.seconds(profile.compute_cycles) for profile in profiles]
    assert seconds[0] / seconds[1] == pytest.approx(1.85 / 1.33)


def test_the_interval_holds_the_result_and_totals_add_up() -> None:
    profile = timed()
    assert profile.seconds_low < profile.seconds_per_training_step < profile.seconds_high
    assert profile.cycles == profile.compute_cycles + profile.exchange_cycles + profile.sync_cycles
    assert sum(profile.tile_columns.busy_cycles) == sum(span.busy_cycles for span in profile.spans)
    assert sum(profile.tile_columns.bytes_received) == sum(span.bytes_received for span in profile.spans)
    assert 0 < profile.time_utilisation <= profile.tile_balance <= 1


# ---- exchange by hand


def test_endpoint_cycles_of_three_tiles() -> None:
    """Tile 0 sends 64 bytes in one piece to tiles 1 and 2; tile 2 also receives 100 bytes in 20 pieces from tile 1."""
    fabric = Endpoint(machine())  # 4 bytes a cycle, 2 cycles a fragment each way, 100 fixed
    cycles = fabric.end_cycles(np.array([64, 100, 164]), np.array([1, 20, 0]), np.array([0, 1, 21]))
    # 0: 64/4 = 16 on the wire. 1: max(100, 64)/4 = 25, but 21 fragments cost 42. 2: 164/4 = 41, but 21 cost 42.
    assert cycles.tolist() == [16, 42, 42]
    assert fabric.whole(cycles.max()) == 142
    faster = Endpoint(machine(exchange__send_fragment_cycles=0, exchange__receive_fragment_cycles=0))
    cycles = faster.end_cycles(np.array([64, 100, 164]), np.array([1, 20, 0]), np.array([0, 1, 21]))
    assert cycles.tolist() == [16, 25, 41]
    assert faster.whole(cycles.max()) == 141
    assert fabric.whole(0) == 0  # nothing moves, nothing is paid
    odd = fabric.end_cycles(np.array([5]), np.array([0]), np.array([0]))
    assert odd.tolist() == [2]  # a part of a cycle is a cycle


# ---- host and chip as processes


@pytest.mark.parametrize("depth", [0, 1, 2, 8])
@pytest.mark.parametrize(("device", "stream"), [(2.0, 0.5), (0.5, 2.0), (1.0, 1.0), (1.0, 0.0)])
def test_event_path_equals_the_closed_form(device: float, stream: float, depth: int) -> None:
    ends = stream_training_steps(10, device, stream, depth)
    assert len(ends) == 10
    assert ends[0] == stream + device  # the first batch is always waited for
    periods = np.diff(ends)
    np.testing.assert_allclose(periods, device + host_exposed_seconds(stream, device, depth), rtol=1e-12)


def test_prefetch_hides_the_stream() -> None:
    assert host_exposed_seconds(0.5, 2.0, 0) == 0.5
    assert host_exposed_seconds(0.5, 2.0, 2) == 0.0
    assert host_exposed_seconds(2.0, 0.5, 2) == 1.5
    hidden, shown = timed(), timed(host__prefetch_depth=0)
    assert shown.host_exposed_seconds == shown.host_seconds == hidden.host_seconds
    assert hidden.host_exposed_seconds == max(0.0, hidden.host_seconds - hidden.seconds(hidden.cycles))


def test_host_stream_by_hand() -> None:
    # 4 timesteps x 5 samples x (6 ids + 1 count) x 4 bytes, 5 labels of 4 bytes; 8 GB/s and 20 us a request
    assert timed().host_seconds == pytest.approx((4 * 5 * 7 * 4 + 20) / 8e9 + 20e-6)


# ---- refusals


def test_activity_without_a_layer_is_refused() -> None:
    activity = tiny_run().log.activity
    lacking = replace(activity, counts={name: counts for name, counts in activity.counts.items() if name != "hidden1"})
    with pytest.raises(MappingError) as caught:
        timed(lacking)
    message = str(caught.value)
    assert "recorded activity has no layer 'hidden1' (it has ['hidden0', 'input', 'output'])" in message
    assert "record it with a run of the same network" in message


def test_activity_of_another_length_is_refused() -> None:
    activity = tiny_run().log.activity
    short = replace(activity, counts={name: counts[:3] for name, counts in activity.counts.items()})
    with pytest.raises(MappingError, match="recorded activity has 3 timesteps, the program repeats 4"):
        timed(short)


def test_ids_and_counts_that_do_not_go_together_are_refused() -> None:
    activity = tiny_run().log.activity
    short = replace(activity, ids={name: ids[:, :3] for name, ids in activity.ids.items()})
    with pytest.raises(MappingError, match=r"has \(4, 5\) counts and \(4, 3\) lists of ids"):
        timed(short)
    with pytest.raises(MappingError, match=r"has \(4, 5\) counts and none lists of ids"):
        timed(replace(activity, ids={}))


def test_tiles_that_are_alike_are_costed_once() -> None:
    stretches = straight_line_plans(tiny_run().compiled.program, ISSUE)
    plans = {step.name: plan for one in stretches for step, plan in zip(one.supersteps, one.plans, strict=True)}
    for name, hits in (("LIF update", False), ("state gradient", True)):
        counting = plans[name].placement.counting
        assert counting is not None
        used = int((counting.row_of < counting.rows).sum())
        assert len(counting.runs) - 1 < used, name  # kinds
        assert counting.rows == used if hits else counting.rows == len(counting.runs) - 1, name


def test_what_no_machine_changes_is_worked_out_once() -> None:
    timed()
    before = superstep_placements.cache_info()
    for change in (
        {"worker_contexts": 3},
        {"issue_cycles": 2},
        {"compiled_dual_issue": 0.5},
        {"copy_bytes_per_cycle": 16},
    ):
        timed(**{f"tile__{name}": value for name, value in change.items()})
    after = superstep_placements.cache_info()
    assert after.misses == before.misses
    assert after.hits > before.hits


def test_places_are_taken_in_the_order_of_the_vertices() -> None:
    tiles = np.array([2, 0, 2, 2, 0])
    turns = np.array([1, 0, 0])
    assert places_among(tiles, turns).tolist() == [0, 1, 1, 2, 2]
    assert turns.tolist() == [3, 0, 3]
    order, begins = order_by(tiles, 4)
    assert order.tolist() == [1, 4, 0, 2, 3]
    assert begins.tolist() == [0, 2, 2, 5, 5]


def test_activity_of_another_batch_is_refused() -> None:
    activity = tiny_run().log.activity
    twice = RecordedActivity(
        ids={name: np.concatenate([ids, ids], axis=1) for name, ids in activity.ids.items()},
        counts={name: np.concatenate([counts, counts], axis=1) for name, counts in activity.counts.items()},
        dropped={},
    )
    with pytest.raises(MappingError):
        timed(twice)


def test_retiming_on_a_machine_of_another_number_of_tiles_is_refused() -> None:
    with pytest.raises(MimdsimError):
        timed(chip__tiles=8)


def test_more_worker_contexts_are_never_slower() -> None:
    """But for a thousandth: vertices are dealt in turn, which is not the best deal for every number of contexts."""
    seconds = [timed(tile__worker_contexts=contexts).seconds_per_training_step for contexts in range(1, 13)]
    assert all(after <= 1.001 * before for before, after in pairwise(seconds))
    assert seconds[0] > 1.5 * seconds[5]


def test_tiles_are_told_apart_as_by_comparing_their_vertices_one_by_one() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        alike, plain = np.zeros(9, np.int64), [()] * 9
        for _ in range(3):
            tile = rng.integers(0, 9, rng.integers(0, 12))
            place, weight, sample, bundles, pairable = (rng.integers(0, 2, len(tile)) for _ in range(5))
            columns = {"sample": sample}
            term = SimpleNamespace(weight=weight.astype(float), columns=columns, extent=Spikes(layer="any"))
            charged: Any = (term,)
            costs = {"bundles": bundles.astype(float), "pairable": pairable.astype(float)}
            _refine_classes(alike, PlacedTable(tiles=tile, first=0, place=place, terms=charged, **costs))
            for number in range(9):
                on = tile == number
                columns_on = (column[on].tolist() for column in (place, weight, sample, bundles, pairable))
                plain[number] += (tuple(zip(*columns_on, strict=True)),)
        same = alike[:, None] == alike
        assert (same == [[one == other for other in plain] for one in plain]).all()
