"""Exchange phases scheduled message by message: what travels, laws of a schedule, when it differs from the bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.compiler import plan_exchanges
from mimdsim.costs.fabric import endpoint, fabric_of
from mimdsim.costs.fabric.endpoint import scheduled_cycles
from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.pipeline import compile_workload
from mimdsim.program import Copy, Exchange, Program, Superstep, TileMapping, Variable, messages
from mimdsim.program.mapping import FLAT
from mimdsim.program.messages import messages_of
from mimdsim.validation.stencil.blur import make_program
from mimdsim.workload import load_workload


def machine(**changes: object) -> MimdMachine:
    loaded = load_machine("tiny", {f"exchange.{name}": value for name, value in changes.items()})
    assert isinstance(loaded, MimdMachine)
    return loaded


def moved(source: list[int], target: list[int], words: int = 10, tiles: int = 8, chips: int = 1) -> Program:
    """One copy: row k of `words` words goes from tile source[k] to tile target[k]."""
    edges = np.arange(len(source) + 1) * words

    def variable(name: str, on: list[int]) -> Variable:
        mapping = TileMapping.split(FLAT, np.array(on), edges[:-1], edges[1:])
        return Variable(name=name, shape=(len(on), words), dtype="float32", mapping=mapping, category="neuron states")

    superstep = Superstep(
        name="move", op="move", phase="forward", stage="move", copies=(Copy(source="there", target="here"),)
    )
    program = Program(
        tiles=tiles,
        chips=chips,
        variables={"there": variable("there", source), "here": variable("here", target)},
        body=(superstep,),
        layers=(),
        inputs={},
        outputs={},
    )
    return plan_exchanges(program)


def phase(program: Program) -> Exchange:
    """The one exchange of the program."""
    (exchange,) = (superstep.exchange for superstep, _, _ in program.supersteps() if superstep.exchange is not None)
    return exchange


def phase_cycles(program: Program, exchange: Exchange, of: MimdMachine) -> np.ndarray:
    """Of one exchange, on every chip."""
    one: np.ndarray = fabric_of(of).cycles(program, [exchange])[0]
    return one


def cycles(program: Program, **changes: object) -> list[int]:
    """Of the wire, on every chip."""
    found = scheduled_cycles(program, phase(program), machine(bytes_per_cycle=4, **changes).exchange)
    assert found is not None
    return found.tolist()


def test_two_tiles_that_swap_need_the_time_of_one_message() -> None:
    assert cycles(moved([0, 1], [1, 0])) == [10]


def test_a_reader_hears_one_sender_at_a_time() -> None:
    assert cycles(moved([0, 1, 2], [7, 7, 7]), tiles_per_bus=1) == [30]


def test_neighbours_share_two_buses() -> None:
    assert cycles(moved([0, 1, 2, 3], [6, 6, 6, 6]), tiles_per_bus=2) == [20]  # tile 7 is silent
    assert cycles(moved([0, 1, 2, 3], [6, 7, 6, 7]), tiles_per_bus=2) == [20]


def test_a_sender_sends_one_message_at_a_time_and_what_many_want_once() -> None:
    assert cycles(moved([0, 0, 0], [1, 2, 3])) == [30]
    program = moved([0], [1])
    program = replace(
        program,
        variables=program.variables
        | {"here": replace(program.variables["here"], mapping=TileMapping.replicated(np.arange(1, 8)))},
    )
    program = plan_exchanges(program)
    listed = messages_of(program, phase(program))
    assert listed is not None
    assert listed.sender.tolist() == [0]
    assert listed.reader.tolist() == list(range(1, 8))
    assert cycles(program) == [10]


def test_a_ring_whose_messages_are_tried_in_a_bad_order_takes_longer_than_its_busiest_end() -> None:
    """Three tiles, each of which sends to both others: 20 words in and out, but swaps must be told apart."""
    found = cycles(moved([0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]), tiles_per_bus=1)
    assert 20 <= found[0] <= 40


def test_chips_schedule_their_own_and_links_are_left_out() -> None:
    program = moved([0, 1, 4, 3], [2, 2, 6, 5], tiles=8, chips=2)
    assert cycles(program, tiles_per_bus=1) == [20, 10]  # what goes from tile 3 to 5 crosses chips


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_schedule_is_no_shorter_than_its_busiest_end_and_no_longer_than_all_in_turn(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 24))
    tile = st.integers(0, 7)
    source, target = (data.draw(st.lists(tile, min_size=rows, max_size=rows)) for _ in range(2))
    words = data.draw(st.integers(1, 9))
    program = moved(source, target, words)
    away = [(one, two) for one, two in zip(source, target, strict=True) if one != two]
    if not away:
        assert all(
            superstep.exchange is None or not superstep.exchange.moves for superstep, _, _ in program.supersteps()
        )
        return
    exchange = phase(program)
    listed = messages_of(program, exchange)
    assert listed is not None
    received, sent = np.zeros(8, np.int64), np.zeros(8, np.int64)
    np.add.at(received, listed.reader, np.repeat(listed.size_bytes, np.diff(listed.first)))
    np.add.at(sent, listed.sender, listed.size_bytes)
    np.testing.assert_array_equal(received, exchange.bytes_received)
    np.testing.assert_array_equal(sent, exchange.bytes_sent)
    found = cycles(program, tiles_per_bus=1)[0]
    assert max(received.max(), sent.max()) <= 4 * found <= 4 * words * len(away)
    assert cycles(program, tiles_per_bus=2)[0] <= 4 * words * len(away)


def test_a_phase_takes_the_longer_of_bound_and_schedule_and_the_fixed_part_once() -> None:
    program = moved([0, 1, 2], [7, 7, 7])
    plain = machine(bytes_per_cycle=4, tiles_per_bus=1, fixed_cycles=100, route_cycles=5)
    scheduled = machine(model="scheduled", bytes_per_cycle=4, tiles_per_bus=1, fixed_cycles=100, route_cycles=5)
    assert phase_cycles(program, phase(program), scheduled).tolist() == [135]
    assert phase_cycles(program, phase(program), plain).tolist() == [135]
    slow = machine(
        model="scheduled", bytes_per_cycle=4, tiles_per_bus=1, fixed_cycles=100, route_cycles=0, send_fragment_cycles=70
    )
    assert phase_cycles(program, phase(program), slow).tolist() == [170]  # control decides, as without


def test_too_many_messages_leave_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    program = moved([0, 1, 2], [7, 7, 7])
    scheduled = machine(model="scheduled", bytes_per_cycle=4)
    monkeypatch.setattr(endpoint, "MOST_WORK", 3)
    assert scheduled_cycles(program, phase(program), scheduled.exchange) is None
    other = moved([0, 1, 2], [7, 7, 7])
    monkeypatch.setattr(messages, "MOST_READINGS", 2)
    assert messages_of(other, phase(other)) is None
    bound = machine(model="endpoint", bytes_per_cycle=4)
    assert (phase_cycles(program, phase(program), scheduled) == phase_cycles(program, phase(program), bound)).all()


def test_a_halo_exchange_has_gaps_that_the_bound_does_not_see() -> None:
    """Eight neighbours each way, in an order that nobody chose: 1.2 to 1.6 times the busiest end, not more."""
    changes = {"bytes_per_cycle": 4, "tiles_per_bus": 1, "send_fragment_cycles": 0, "receive_fragment_cycles": 0}
    of = load_machine("mk1", {f"exchange.{name}": value for name, value in changes.items()})
    assert isinstance(of, MimdMachine)
    program = make_program(of, "half4", 240, 250, steps=1)
    exchange = phase(program)
    fixed = of.exchange.fixed_cycles
    endpoint, scheduled = (changed_machine(of, {"exchange.model": model}) for model in ("endpoint", "scheduled"))
    bound = phase_cycles(program, exchange, endpoint)[0] - fixed
    found = phase_cycles(program, exchange, scheduled)[0] - fixed
    assert 1.2 * bound <= found <= 1.6 * bound


def test_a_training_step_takes_as_long_by_bound_as_by_schedule() -> None:
    """Lists travel to all tiles: some tile listens without a gap. What remains is below 1 % of the exchanges."""
    network = load_workload("digits", {"data.timesteps": 4, "training.batch": 8})
    machines = [load_machine("mk2", {"exchange.model": model}) for model in ("endpoint", "scheduled")]
    totals = []
    for of in machines:
        assert isinstance(of, MimdMachine)
        program = compile_workload(network, of).program
        moving = [
            (times, phase_cycles(program, superstep.exchange, of).max())
            for superstep, times, _ in program.supersteps()
            if superstep.exchange is not None
        ]
        totals.append(sum(times * int(each) for times, each in moving))
    assert totals[0] <= totals[1] <= 1.01 * totals[0]


def test_phases_of_too_many_messages_are_not_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four senders of one message each and a reader of four: 4 x 1 + 4 x 4 = 20."""
    for most, scheduled in ((19, False), (20, True)):
        monkeypatch.setattr(endpoint, "MOST_WORK", most)
        program = moved([0, 1, 2, 3], [7, 7, 7, 7])
        found = scheduled_cycles(program, phase(program), machine(tiles_per_bus=1).exchange)
        assert (found is not None) == scheduled
