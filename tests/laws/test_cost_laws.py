"""Laws of cost: more work never costs less, a faster machine never more, and bytes are neither lost nor made."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import MAPPINGS, SMALL, networks, small_network

from mimdsim.compiler import Compiled, compile_graph, plan_exchanges
from mimdsim.costs.fabric.endpoint import Endpoint, Planner
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.profile import TiledProfile
from mimdsim.program import Copy, Exchange, Program, Superstep, TileMapping, Variable
from mimdsim.timing import time_program
from mimdsim.workload import MappingOptions, filled_activity

ONE, TWO = (1, 64), (2, 16)  # chips, tiles of each


def machine(chips: int, tiles: int, **changes: Any) -> MimdMachine:
    fields = {key.replace("__", "."): value for key, value in changes.items()}
    made = load_machine("tiny", {"links.chips": chips, "chip.tiles": tiles, **fields})
    assert isinstance(made, MimdMachine)
    return made


def compiled(network: SpikingNetwork, chips: int, tiles: int, **changes: Any) -> Compiled:
    on = machine(chips, tiles, **changes)
    return compile_graph(training_graph(network), network, on, MappingOptions(neurons_per_tile=2))


def timed(made: Compiled, on: MimdMachine, share: float = 0.5) -> TiledProfile:
    memory = memory_profile(made.program, made.memory, on)
    return time_program(made.program, on, filled_activity(made.network, share), memory)


def network(**changes: Any) -> SpikingNetwork:
    given_fields: dict[str, Any] = {"widths": (20, 24, 16, 4), "timesteps": 4, "batch": 6, "capacities": (8, 6, 4)}
    return small_network(**(given_fields | changes))


# ---- more of anything


DOUBLED: dict[str, list[dict[str, Any]]] = {
    "batch": [{"batch": count} for count in (3, 6, 12, 24)],
    "timesteps": [{"timesteps": count} for count in (1, 2, 4, 8)],
    "inputs": [{"widths": (count, 24, 16, 4)} for count in (10, 20, 40, 80)],
    "first layer": [{"widths": (20, count, 16, 4)} for count in (8, 16, 28)],
    "second layer": [{"widths": (20, 24, count, 4)} for count in (8, 16, 28)],
    "classes": [{"widths": (20, 24, 16, count)} for count in (4, 8, 16)],
    "input capacity": [{"input_capacity": count} for count in (2, 4, 8, 16)],
    "first capacity": [{"capacities": (count, 6, 4)} for count in (3, 6, 12, 24)],
    "second capacity": [{"capacities": (8, count, 4)} for count in (2, 4, 8, 16)],
}


@pytest.mark.parametrize("extent", DOUBLED)
def test_twice_as_much_never_costs_less(extent: str) -> None:
    """By doubling: one more at a time may cost less, where a number of samples or neurons divides better."""
    profiles = [timed(compiled(network(**changes), *ONE), machine(*ONE)) for changes in DOUBLED[extent]]
    for less, more in pairwise(profiles):
        assert less.cycles < more.cycles
        assert less.compute_cycles <= more.compute_cycles
        assert less.exchange_cycles <= more.exchange_cycles
        assert less.sync_cycles <= more.sync_cycles


@pytest.mark.parametrize("extent", [name for name in DOUBLED if "layer" not in name])
def test_twice_as_much_on_several_chips_never_costs_less(extent: str) -> None:
    """The total only: its parts are those of the slowest chip, which may be another one. Layers move between chips as
    they grow, which may make a program faster."""
    made = [compiled(network(**changes), *TWO) for changes in DOUBLED[extent]]
    assert {one.program.chips for one in made} == {2}
    assert all(less.cycles <= more.cycles for less, more in pairwise(timed(one, machine(*TWO)) for one in made))


@pytest.mark.parametrize("of", [ONE, TWO], ids=["one chip", "two chips"])
def test_more_activity_never_costs_less(of: tuple[int, int]) -> None:
    made = compiled(network(), *of)
    profiles = [timed(made, machine(*of), share) for share in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)]
    assert all(less.cycles <= more.cycles for less, more in pairwise(profiles))
    assert profiles[0].cycles < profiles[-1].cycles
    if of == ONE:
        assert all(less.compute_cycles <= more.compute_cycles for less, more in pairwise(profiles))
        assert len({profile.exchange_cycles for profile in profiles}) == 1  # lists travel at full capacity


BYTES = st.lists(st.integers(0, 10_000), min_size=4, max_size=4).map(np.array)


@settings(max_examples=60, deadline=None)
@given(columns=st.lists(BYTES, min_size=4, max_size=4), which=st.integers(0, 3), more=BYTES)
def test_more_bytes_or_fragments_never_cost_a_tile_less(
    columns: list[np.ndarray], which: int, more: np.ndarray
) -> None:
    for model in (Endpoint, Planner):
        fabric = model(machine(*ONE))
        sent, received, pieces_sent, pieces_received = columns
        before = fabric.end_cycles(np.maximum(sent, received), pieces_sent, pieces_received)
        sent, received, pieces_sent, pieces_received = (
            column + more * (index == which) for index, column in enumerate(columns)
        )
        assert (fabric.end_cycles(np.maximum(sent, received), pieces_sent, pieces_received) >= before).all()


# ---- a better machine


@pytest.mark.slow
@pytest.mark.parametrize("of", [ONE, TWO], ids=["one chip", "two chips"])
def test_more_worker_contexts_are_never_slower(of: tuple[int, int]) -> None:
    """But for a thousandth: vertices are dealt in turn, which is not the best deal for every number of contexts."""
    cycles = []
    for contexts in range(1, 9):
        changes = {"tile__worker_contexts": contexts}
        cycles.append(timed(compiled(network(), *of, **changes), machine(*of, **changes)).cycles)
    assert all(after <= 1.001 * before for before, after in pairwise(cycles))
    assert cycles[0] > 1.5 * cycles[5]


@pytest.mark.parametrize("of", [ONE, TWO], ids=["one chip", "two chips"])
def test_a_shared_bus_and_the_planner_are_never_slower(of: tuple[int, int]) -> None:
    made = compiled(network(), *of)

    def cycles(**changes: Any) -> int:
        return timed(made, machine(*of, **changes)).cycles

    for model in ("endpoint", "planner"):
        # without fragments the wire decides
        for fragment in ({}, {"exchange__send_fragment_cycles": 0, "exchange__receive_fragment_cycles": 0}):
            both = [cycles(exchange__model=model, exchange__tiles_per_bus=tiles, **fragment) for tiles in (1, 2)]
            assert both[1] <= both[0]
            assert both[1] < both[0] or (model == "endpoint" and not fragment)
    for tiles in (1, 2):
        endpoint, planner = (
            cycles(exchange__model=model, exchange__tiles_per_bus=tiles) for model in ("endpoint", "planner")
        )
        assert planner < endpoint
    profile = timed(made, machine(*of))
    assert profile.exchange_cycles_other_model <= profile.exchange_cycles


def test_doubling_the_clock_halves_all_seconds_but_those_of_links() -> None:
    made = compiled(network(), *TWO)
    slow, fast = (timed(made, machine(*TWO, chip__clock_hz=clock)) for clock in ("1 GHz", "2 GHz"))
    linked = [sum(span.link_cycles for span in profile.spans) for profile in (slow, fast)]
    assert linked[0] > 0
    assert fast.cycles - linked[1] == slow.cycles - linked[0]
    assert fast.seconds(linked[1]) == pytest.approx(slow.seconds(linked[0]), rel=1e-3)  # whole cycles a phase
    alone = compiled(network(), *ONE)
    slow, fast = (timed(alone, machine(*ONE, chip__clock_hz=clock)) for clock in ("1 GHz", "2 GHz"))
    assert fast.cycles == slow.cycles
    assert fast.seconds(fast.cycles) == slow.seconds(slow.cycles) / 2


# ---- bytes


def exchanged(source: TileMapping, target: TileMapping, chips: int = 2, tiles: int = 4, floats: int = 16) -> Exchange:
    """The exchange of a copy between two variables of `floats` floats."""
    variables = {
        name: Variable(name=name, shape=(floats,), dtype="float32", mapping=mapping, category="gradients")
        for name, mapping in (("source", source), ("target", target))
    }
    step = Superstep(
        name="move", op="copy", phase="forward", stage="move", copies=(Copy(source="source", target="target"),)
    )
    program = Program(
        tiles=chips * tiles, chips=chips, variables=variables, body=(step,), layers=(), inputs={}, outputs={}
    )
    (planned,) = (superstep.exchange for superstep, _, _ in plan_exchanges(program).supersteps())
    assert planned is not None
    return planned


def test_a_multicast_is_sent_once_and_crosses_a_link_once() -> None:
    found = exchanged(TileMapping.on(0, 0, 16), TileMapping.replicated(np.array([0, 1, 2, 5, 6, 7])))
    assert found.bytes_sent.tolist() == [64, 0, 0, 0, 0, 0, 0, 0]
    assert found.bytes_received.tolist() == [0, 64, 64, 0, 0, 64, 64, 64]
    assert found.fragments_sent.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert found.link_bytes is not None
    assert found.link_bytes.tolist() == [[0, 64], [0, 0]]


def test_what_has_one_reader_is_sent_as_often_as_received() -> None:
    turned = np.array([7, 6, 5, 4, 3, 2, 1, 0])
    found = exchanged(TileMapping.evenly(0, 16, np.arange(8)), TileMapping.evenly(0, 16, turned))
    np.testing.assert_array_equal(found.bytes_sent, found.bytes_received)
    assert found.bytes_sent.tolist() == [8] * 8
    assert found.link_bytes is not None
    assert found.link_bytes.tolist() == [[0, 32], [32, 0]]


@pytest.mark.slow
@settings(SMALL, max_examples=25)
@given(of=networks(), options=MAPPINGS, chips=st.integers(1, 4))
def test_bytes_received_are_never_fewer_than_sent(of: SpikingNetwork, options: MappingOptions, chips: int) -> None:
    program = compile_graph(training_graph(of), of, machine(chips, 24), options).program
    for superstep, _, _ in program.supersteps():
        found = superstep.exchange
        if found is None:
            continue
        assert found.bytes_received.sum() >= found.bytes_sent.sum() >= 0
        assert found.fragments_received.sum() >= found.fragments_sent.sum() >= 0
        assert (found.column("bytes_shared") <= found.column("bytes_received")).all()
        assert bool(found.bytes_sent.any()) == bool(found.bytes_received.any())
