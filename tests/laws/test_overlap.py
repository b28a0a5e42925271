"""Laws of exchange that goes on while tiles compute (`exchange.overlap`): what is sent early, and what that saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import simpy
from by_hand import timed as timed_by_hand
from by_hand import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import given_values, small_network

from mimdsim.compiler import Compiled, compile_graph, measure_memory, plan_exchanges
from mimdsim.costs.fabric import fabric_of
from mimdsim.execution import Executor
from mimdsim.graph import training_graph
from mimdsim.machine import MimdMachine
from mimdsim.pipeline.detail import detail_of
from mimdsim.pipeline.retiming import retime
from mimdsim.profile import TiledProfile
from mimdsim.program import (
    Codelet,
    Copy,
    Exchange,
    Program,
    Repeat,
    Superstep,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
)  # fmt: skip
from mimdsim.program.codelet import fields_of
from mimdsim.program.messages import arrivals_of
from mimdsim.program.overlap import overlaps_of
from mimdsim.timing import explain, program_loads
from mimdsim.timing.recording import Recording
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.workload import MappingOptions, filled_activity


def machine(**changes: Any) -> MimdMachine:
    """64 tiles with hops; `links_chips=2` of them."""
    small = {"chip_tiles": 64, "chip_grid_columns": 8, "exchange_link_bytes_per_cycle": 4.0}
    return tiny(**{**small, **changes})


@cache
def made(kind: str, program: str, chips: int) -> Compiled:
    network = small_network((20, 24, 16, 4), timesteps=4, batch=6, capacities=(8, 6, 4))
    network = replace(network, spikes="dense") if kind == "dense" else network
    on = machine(links_chips=chips)
    return compile_graph(training_graph(network), network, on, MappingOptions(program=program))


@cache
def activity(of: Compiled) -> Any:
    return filled_activity(of.network, 0.5)


def timed(of: Compiled, **changes: Any) -> TiledProfile:
    return retime(of, machine(**changes), activity(of))


POINTS = st.fixed_dictionaries(
    {
        "exchange_model": st.sampled_from(["endpoint", "planner", "scheduled", "routed"]),
        "exchange_bytes_per_cycle": st.sampled_from([0.25, 4.0, 30.0]),
        "exchange_fixed_cycles": st.sampled_from([0, 100, 900]),
        "exchange_switching": st.sampled_from(["cut-through", "wormhole"]),
        "exchange_hop_cycles": st.sampled_from([0.0, 3.0]),
        "exchange_send_fragment_cycles": st.sampled_from([0.0, 2.0, 20.0]),
        "sync_exchange_share": st.sampled_from([0.0, 0.2]),
        "sync_internal_cycles": st.sampled_from([0, 126]),
    }
)
OF = st.sampled_from([("lists", "published", 1), ("lists", "best", 1), ("dense", "published", 1), ("lists", "best", 2)])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(of=OF, point=POINTS, share=st.floats(0, 1), model=st.sampled_from(["dataflow", "participants", "chip"]))
def test_overlap_saves_what_it_hides(of: tuple[str, str, int], point: dict[str, Any], share: float, model: str) -> None:
    """The larger the share the faster; what is hidden is part of both the exchange and the compute before it; and who
    waits for fewer tiles is never slower."""
    compiled, chips = made(*of), of[2]
    on = {**point, "links_chips": chips, "sync_model": model}
    today, now, most = (timed(compiled, **on, exchange_overlap=one) for one in (0.0, share, 1.0))
    assert most.cycles <= now.cycles <= today.cycles
    assert most.memory.peak_bytes >= today.memory.peak_bytes
    if model != "dataflow" and chips == 1:
        _holds_by_superstep(now, today, share)
        _holds_by_superstep(most, today, 1.0)
    waits = [
        now.cycles if each == model else timed(compiled, **{**on, "sync_model": each}, exchange_overlap=share).cycles
        for each in ("dataflow", "participants", "chip")
    ]
    assert waits == sorted(waits)


@pytest.mark.parametrize("chips", [1, 2])
@pytest.mark.parametrize("model", ["dataflow", "participants", "chip"])
def test_without_overlap_nothing_changes(model: str, chips: int) -> None:
    compiled, on = made("lists", "published", chips), {"links_chips": chips, "sync_model": model}
    one, other = (replace(timed(compiled, **on, **more), assumptions=()) for more in ({}, {"exchange_overlap": 0.0}))
    assert one == other
    assert one.hidden_cycles == 0


def _holds_by_superstep(now: TiledProfile, today: TiledProfile, share: float) -> None:
    """hidden cycles are what the exchange lacks, at most the share of it and the compute since the barrier."""
    room = 0
    for span, before in zip(now.spans, today.spans, strict=True):
        same = replace(span, exchange_cycles=before.exchange_cycles, hidden_cycles=0)
        assert same == before
        assert span.exchange_cycles + span.hidden_cycles == before.exchange_cycles
        assert span.hidden_cycles <= share * before.exchange_cycles
        if before.exchange_cycles or before.sync_cycles:
            assert span.hidden_cycles <= room
            room = 0
        room += span.compute_cycles
    assert now.cycles + now.hidden_cycles == today.cycles


@pytest.mark.parametrize("kind", ["lists", "dense"])
@pytest.mark.parametrize("program", ["published", "best"])
def test_what_is_sent_early_is_what_would_be_sent_at_the_barrier(kind: str, program: str) -> None:
    """In a run of the program neither sources of early parts nor targets of early copies change meanwhile."""
    compiled = made(kind, program, 1)
    lowered = compiled.program
    steps = [step for step, _, _ in lowered.supersteps()]
    number = {id(step): at for at, step in enumerate(steps)}
    begins: dict[int, list[int]] = {}
    for at, overlap in enumerate(overlaps_of(lowered)):
        if overlap is not None:
            begins.setdefault(overlap.first, []).append(at)
    executor = Executor(lowered)
    executor.write(given_values(compiled.network, 3).for_program(compiled.network))
    kept: dict[int, list[np.ndarray]] = {}
    run, compared, changed = executor.steps(), 0, 0
    for step, t in lowered.turns():
        at = number[id(step)]
        for before, now in zip(kept.pop(at, ()), _early_values(executor, steps, at, t), strict=False):
            np.testing.assert_array_equal(before, now)
            compared += now.size
            changed += np.count_nonzero(now)
        for later in begins.get(at, ()):
            kept[later] = _early_values(executor, steps, later, t)
        next(run)
    assert compared
    assert changed


def _early_values(executor: Executor, steps: list[Superstep], at: int, t: int) -> list[np.ndarray]:
    """What the parts that are sent early hold now, and what early copies will write to; without what copies of the
    first superstep write, which is there when it computes."""
    exchange, overlap = steps[at].exchange, overlaps_of(executor.program)[at]
    if exchange is None or overlap is None:
        return []
    late = set() if overlap.dependent is None else set(_parts(overlap.dependent))
    fresh = {copy.target for copy in steps[overlap.first].copies}
    found = [
        executor.at(name, ":" if shift is None else f"@t{shift:+d}" if shift else "@t", t)[
            tuple(slice(begin, end) for begin, end in box)
        ].copy()
        for name, shift, target, tile, box in _parts(exchange)
        if (name, shift, target, tile, box) not in late and name not in fresh
    ]
    return found + [executor.arrays[name].copy() for name in sorted(overlap.targets)]


def _parts(exchange: Exchange) -> Iterator[tuple[str, int | None, str, int, tuple[tuple[int, int], ...]]]:
    for one in exchange.deliveries:
        for tile, box in zip(one.tiles.tolist(), one.boxes.tolist(), strict=True):
            yield one.variable, one.shift, one.target, tile, tuple((begin, end) for begin, end in box)


# ---- by hand

FIFTY = WorkerBundles(fixed=50, terms=(), kind="assumed", source="for tests")


def by_hand(writes: str, where: tuple[int, int], reads: str, copied: str = "") -> Program:
    """Three turns: tile 0 writes a part of x or y, or an entry of the sequence s; then tile 1 reads 40 numbers of x, or
    an entry of s. copied: the variable on tile 1 that x is copied to instead."""
    maps = {"x": TileMapping.on(0, 0, 40), "y": TileMapping.on(0, 0, 40), "s": TileMapping.on(0, 1, 40)}
    maps |= {"z": TileMapping.on(1, 0, 40), "w": TileMapping.on(1, 0, 40)}
    variables = {}
    for name, mapping in maps.items():
        shape = (3, 40) if name == "s" else (40,)
        held: dict[str, Any] = {} if name == "w" else {"values": np.ones(shape, np.float32), "persistent": True}
        variables[name] = Variable(name=name, shape=shape, dtype="float32", mapping=mapping, **held)

    def table(tile: int, fields: str, operands: dict[str, str], start: int, stop: int) -> VertexTable:
        columns = {"start": np.array([start]), "stop": np.array([stop])}
        work = Codelet(
            name="Work", fields=fields_of(fields), columns=("start", "stop"), compute=lambda *_: None, cost=FIFTY
        )
        return VertexTable(codelet=work, tiles=np.array([tile]), operands=operands, columns=columns)

    box = "start:stop" if writes != "s" else "@t, start:stop"
    first = table(0, f"write a[{box}]", {"a": writes}, *where)
    name, _, box = reads.partition("[")
    last = Superstep(
        name="read", tables=(table(1, f"read a[{box}; write z[start:stop]", {"a": name, "z": "z"}, 0, 40),)
    )
    if copied:
        last = Superstep(name="copy", copies=(Copy(source="x", target=copied),))
    also = (table(1, "write z[start:stop]", {"z": "z"}, 0, 40),)  # so that z is touched meanwhile
    body = (Superstep(name="work", tables=(first, *also)), last)
    return plan_exchanges(Program(tiles=2, variables=variables, body=(Repeat(times=3, body=body),)))


@pytest.mark.parametrize(
    ("program", "waits"),
    [
        (("y", (0, 40), "x[start:stop]"), False),
        (("x", (0, 40), "x[start:stop]"), True),
        (("x", (39, 40), "x[start:stop]"), True),
        (("s", (0, 40), "x[start:stop]"), False),
        (("s", (0, 40), "s[@t, start:stop]"), True),
        (("s", (0, 40), "s[@t-1, start:stop]"), False),
        (("s", (0, 40), "s[:, start:stop]"), True),
        (("y", (0, 40), "x[start:stop]", "w"), False),
        (("x", (0, 40), "x[start:stop]", "w"), True),
        (("y", (0, 40), "x[start:stop]", "z"), True),
    ],
)
def test_what_a_program_by_hand_hides(program: tuple[Any, ...], waits: bool) -> None:
    """Fifty bundles of six cycles hide an exchange of 160 bytes, but for what they write and the targets they touch."""
    made = by_hand(*program)
    for rate in (4.0, 0.25):
        today, now = (
            timed_by_hand(made, tiny(exchange_bytes_per_cycle=rate, exchange_overlap=share)) for share in (0.0, 1.0)
        )
        each = today.spans[1].exchange_cycles // 3
        expected = 0 if waits else 3 * min(each, 300)
        assert now.hidden_cycles == now.spans[1].hidden_cycles == expected
        assert today.cycles - now.cycles == expected
    held = [measure_memory(made, tiny(exchange_overlap=share)).total_bytes[0] for share in (0.0, 1.0)]
    assert held[1] - held[0] == (0 if waits else 160)  # of the buffer, or of w, which lives for longer


def test_only_the_share_without_the_cores_is_hidden() -> None:
    made = by_hand("y", (0, 40), "x[start:stop]")
    each = timed_by_hand(made, tiny()).spans[1].exchange_cycles // 3
    for share in (0.1, 0.5, 0.99):
        assert timed_by_hand(made, tiny(exchange_overlap=share)).hidden_cycles == 3 * int(share * each)


@pytest.mark.first(2)
@pytest.mark.parametrize("chips", [1, 2])
@pytest.mark.parametrize("model", ["chip", "dataflow"])
def test_explanations_with_overlap_add_up(model: str, chips: int) -> None:
    compiled, on = made("lists", "published", chips), machine(links_chips=chips, sync_model=model, exchange_overlap=1.0)
    profile = retime(compiled, on, activity(compiled))
    assert profile.hidden_cycles
    told = 0.0
    for number, span in enumerate(profile.spans):
        found = explain(compiled.program, on, number, activity=activity(compiled))
        assert (found.compute_cycles, found.exchange_cycles, found.sync_cycles) == (
            span.compute_cycles, span.exchange_cycles, span.sync_cycles,
        )  # fmt: skip
        told -= sum(row.cycles for row in found.exchange if row.what == "hidden behind compute")
    assert told == profile.hidden_cycles


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_tiles_are_shown_without_what_is_hidden(share: float) -> None:
    compiled, on = made("lists", "published", 1), machine(exchange_overlap=share)
    profile = retime(compiled, on, activity(compiled))
    detail = detail_of(compiled.program, on, activity(compiled), measure_memory(compiled.program, on), "")
    spans = profile.spans[: len(detail.exchange)]
    assert detail.exchange.max(axis=1).tolist() == [span.exchange_cycles for span in spans]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_tiles_with_engines_go_on_as_processes_do(share: float) -> None:
    """The longest path is when the last tile ends. Each is a process, its DMA engine another, which begins with early
    parts when the tile and those that it reads begin to compute after the exchange before."""
    on = machine(sync_model="dataflow", exchange_overlap=share, exchange_bytes_per_cycle=1.0)
    compiled = made("lists", "published", 1)
    program, fabric = compiled.program, fabric_of(on)
    log, early = activity(compiled), overlaps_of(program)
    every = program_loads(program, log, TileIssue.of(on))
    number = {id(step): at for at, (step, _, _) in enumerate(program.supersteps())}
    environment = simpy.Environment()
    turns = list(program.turns())
    plan: list[tuple[dict[int, list[int]], np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]] = []
    reached = []
    for place, (step, timestep) in enumerate(turns):
        at = number[id(step)]
        busy = every[at].by_tile(Recording(log))
        cycles, own, late = np.zeros((3, program.tiles), np.int64)
        row = busy[min(timestep, len(busy) - 1)]
        cycles[every[at].first_tile :][: len(row)] = row
        reads: dict[int, list[int]] = {}
        overlap = early[at]
        if step.exchange is not None:
            arrivals = arrivals_of(program, step.exchange)
            for index, reader in enumerate(arrivals.reader.tolist()):
                reads[reader] = arrivals.sender[arrivals.first[index] : arrivals.first[index + 1]].tolist()
            own[step.exchange.tiles] = fabric.tile_cycles(program, step.exchange)
        if overlap is None:
            late = own
        elif overlap.dependent is not None:
            late[overlap.dependent.tiles] = fabric.tile_cycles(program, overlap.dependent)
        begins = place if overlap is None else place - (at - overlap.first)
        moved = [one for one in range(begins, place) if turns[one][0].exchange is not None]
        since = (moved[-1], 1) if moved else (begins, 0)
        plan.append((reads, own, np.floor(share * np.maximum(own - late, 0)).astype(np.int64), cycles, since))
        reached.append([(environment.event(), environment.event()) for _ in range(program.tiles)])

    def engine(tile: int, place: int) -> Iterator[simpy.Event]:
        reads, _, could, _, (before, event) = plan[place]
        yield simpy.AllOf(environment, [reached[before][other][event] for other in (tile, *reads.get(tile, []))])
        yield environment.timeout(int(could[tile]))

    def process(tile: int) -> Iterator[simpy.Event]:
        for place, (reads, own, could, cycles, _) in enumerate(plan):
            arrived, computes = reached[place][tile]
            arrived.succeed()
            yield simpy.AllOf(environment, [reached[place][other][0] for other in reads.get(tile, [])])
            if could[tile]:
                yield engines[tile, place]
            yield environment.timeout(int(own[tile] - could[tile]))
            computes.succeed()
            yield environment.timeout(int(cycles[tile]))

    engines = {
        (tile, place): environment.process(engine(tile, place))
        for place, (_, _, could, _, _) in enumerate(plan)
        for tile in np.flatnonzero(could).tolist()
    }
    for tile in range(program.tiles):
        environment.process(process(tile))
    environment.run()
    profile = retime(compiled, on, log)
    loops = sum(span.cycles for span in profile.spans if span.op == "repeat")
    assert environment.now + loops == profile.cycles
    assert bool(profile.hidden_cycles) == bool(share)
