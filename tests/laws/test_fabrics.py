"""Laws of exchange fabrics: networks of routers on any messages, and fabrics of one's own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from by_hand import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from mappings import aims_of
from networks import small_network

from mimdsim.base.errors import DescriptionError
from mimdsim.compiler import compile_graph
from mimdsim.costs.fabric import fabric_of
from mimdsim.costs.fabric.endpoint import Endpoint
from mimdsim.costs.fabric.model import exchanges_of
from mimdsim.costs.fabric.network import Listed, Network
from mimdsim.costs.fabric.routed import Routed, RoutedPhase, Times
from mimdsim.costs.fabric.traffic import Ends, Phase
from mimdsim.graph import training_graph
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.numerics.columns import routes
from mimdsim.pipeline import compile_workload, retime, simulate
from mimdsim.program import Superstep
from mimdsim.program.messages import Messages, all_messages, arrivals_of
from mimdsim.search import search
from mimdsim.search.evaluate import compile_and_time
from mimdsim.search.objective import Case
from mimdsim.timing import program_loads
from mimdsim.timing.recording import Recording
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.workload import MappingOptions, Workload, filled_activity, load_workload

Sent = list[tuple[int, int, list[int]]]  # sender, bytes, readers

WIDE, HIGH = 4, 4
SMALL: dict[str, Any] = {
    "data.inputs": 20, "data.classes": 3, "data.timesteps": 2, "data.input_capacity": 6, "data.activity": 0.2,
    "data.train_samples": 8, "data.test_samples": 2, "network.hidden": [8], "network.capacity": [4, 3],
    "training.batch": 4, "training.max_training_steps": 1,
}  # fmt: skip
OVER_CHIPS: dict[str, Any] = {  # of digits, whose layers need two chips of 64 tiles
    "data.train_samples": 8, "data.test_samples": 2, "data.timesteps": 4, "training.batch": 4,
    "training.max_training_steps": 1,
}  # fmt: skip
FREE: dict[str, Any] = {  # links that are never full and cost nothing
    "exchange_link_bytes_per_cycle": 1e12, "exchange_hop_cycles": 0.0, "exchange_tiles_per_bus": 1,
}  # fmt: skip
messages = st.lists(
    st.tuples(
        st.integers(0, 15), st.integers(1, 5000), st.lists(st.integers(0, 15), min_size=1, max_size=15, unique=True)
    ),
    min_size=1,
    max_size=24,
).map(
    lambda sent: [(tile, size, [r for r in readers if r != tile] or [(tile + 1) % 16]) for tile, size, readers in sent]
)
shapes = st.fixed_dictionaries(
    {
        "chip_grid": st.sampled_from(["mesh", "torus", "crossbar"]),
        "exchange_ways": st.sampled_from(["both", "one", "opposed"]),
        "exchange_multicast": st.sampled_from(["tree", "reserved", "linked", "none"]),
        "exchange_switching": st.sampled_from(["cut-through", "wormhole"]),
        "exchange_link_bytes_per_cycle": st.sampled_from([1.0, 4.0, 30.0]),
        "exchange_hop_cycles": st.sampled_from([0.0, 3.0]),
        "exchange_header_bytes": st.sampled_from([0, 8]),
        "exchange_packet_bytes": st.sampled_from([0, 64]),
        "exchange_acknowledge_bytes": st.sampled_from([0, 8]),
    }
)


def routed(**changes: Any) -> MimdMachine:
    return tiny(**{"exchange_model": "routed", "exchange_link_bytes_per_cycle": 4.0, **changes})


def workload_on(chips: int, **changes: Any) -> Workload:
    """One that fills so many chips of 64 tiles, 1 or 2."""
    name, small = ("nmnist-2-random", SMALL) if chips == 1 else ("digits", OVER_CHIPS)
    return load_workload(name, small | {key.replace("_", ".", 1): value for key, value in changes.items()})


def listed(sent: Sent, fragments: int = 1) -> tuple[Messages, Ends]:
    """The messages, in so many fragments each, and their ends."""
    sender, size = (np.array([one[at] for one in sent], np.int64) for at in (0, 1))
    count = np.array([len(readers) for _, _, readers in sent])
    reader = np.array([tile for _, _, readers in sent for tile in readers], np.int64)
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    made = Messages(sender=sender, size_bytes=size, fragments=np.full_like(size, fragments), first=first, reader=reader)
    tiles = np.unique(np.concatenate([sender, reader]))

    def by(tile: np.ndarray, amount: np.ndarray) -> np.ndarray:
        return np.bincount(np.searchsorted(tiles, tile), weights=amount, minlength=len(tiles))

    got, pieces = np.repeat(size, count), np.full(len(size), float(fragments))
    return made, Ends(tiles, by(sender, size), by(reader, got), by(sender, pieces), by(reader, fragments * (got > 0)))


def phase(machine: MimdMachine, sent: Sent, fragments: int = 1) -> RoutedPhase:
    return Routed(machine).phase_of(*listed(sent, fragments))


def cycles(machine: MimdMachine, sent: Sent, fragments: int = 1) -> int:
    return int(phase(machine, sent, fragments).cycles[0])


# ---- by hand


@pytest.mark.slow
def test_a_row_that_two_messages_share() -> None:
    """Tile 0 sends 40 bytes to tile 2 and tile 1 sends 80 to tile 3, of a row of four: both use the link from 1 to
    2. Ports take 4 bytes a cycle, links 2, a hop 5 cycles, the start 100."""
    plain = {"exchange_link_bytes_per_cycle": 2.0, "exchange_hop_cycles": 5.0, "exchange_send_fragment_cycles": 0.0}
    plain["exchange_receive_fragment_cycles"] = 0.0
    sent = [(0, 40, [2]), (1, 80, [3])]
    found = phase(routed(**plain), sent)
    assert found.loads[0, 0, :4].tolist() == [40, 120, 80, 0]
    assert found.cycles.tolist() == [100 + 60 + 2 * 5]  # the link, and two hops
    # each has one reader, so nobody waits behind a packet that waits
    assert cycles(routed(**plain, exchange_switching="wormhole"), sent) == 100 + 60 + 10
    # held while waited for: the port out, 22 cycles of tile 1, and then the link that both share
    two = [*sent, (1, 8, [0])]
    assert cycles(routed(**plain, exchange_switching="wormhole"), two) == 100 + 22 + 60 + 10
    # one tile's messages queue at its port, not at links
    alone = [(0, 40, [2]), (0, 80, [3])]
    assert cycles(routed(**plain, exchange_switching="wormhole"), alone) == 100 + 60 + 15
    # packets of 16 bytes, each with 4 bytes more: 3 and 5 of them
    packets = routed(**plain, exchange_packet_bytes=16, exchange_header_bytes=4)
    assert phase(packets, sent).loads[0, 0, :4].tolist() == [52, 152, 100, 0]


@pytest.mark.slow
def test_a_tree_carries_once_what_several_want() -> None:
    """Tile 0 of a grid of 4 x 4 sends 8 bytes to tiles 5, 6 and 9: two links of its row, one down to 6, two to 9."""
    sent = [(0, 8, [5, 6, 9])]
    loads = phase(routed(), sent).loads[0]
    assert loads[0].tolist() == [8, 8] + [0] * 14  # east
    assert np.flatnonzero(loads[2]).tolist() == [1, 2, 5]  # south of 1 and 5 to 9, of 2 to 6
    each = phase(routed(exchange_multicast="none"), sent).loads[0]
    assert each[0, :2].tolist() == [24, 8]
    assert each[2, [1, 2, 5]].tolist() == [16, 8, 8]
    # 3 packets on the port take 6 cycles; reserving the tree takes 2 x 3 hops x 1 cycle, one packet 2: not worth it
    reserved = routed(exchange_multicast="reserved", exchange_hop_cycles=1.0, exchange_send_fragment_cycles=0.0)
    assert phase(reserved, sent).loads[0, 0, :2].tolist() == [24, 8]


@pytest.mark.parametrize(
    ("multicast", "each", "expected", "loads"),
    [
        # 4 packets of 24 bytes take 24 cycles, their reservations 4 x 2 x 2 hops x 10; 8 requests would take 240
        ("reserved", 30.0, 24 + 160, [96, 96]),
        # 8 requests of 160 cycles are less than that
        ("reserved", 20.0, 160, [192, 96]),
        # of a series one reservation: 24 + 40 cycles, and 4 requests, for which its links are held beside it
        ("linked", 20.0, 40 + 80, [96, 96]),
        # both readers' requests, whose packets take less
        ("none", 20.0, 160, [192, 96]),
    ],
)
def test_a_message_takes_packets_and_requests_for_each_fragment(
    multicast: str, each: float, expected: int, loads: list[int]
) -> None:
    """Tile 0 sends 64 bytes that lie in four places, as a column of a block does, to tiles 1 and 2."""
    machine = routed(
        exchange_multicast=multicast, exchange_hop_cycles=10.0, exchange_header_bytes=8, exchange_packet_bytes=64,
        exchange_send_fragment_cycles=each, exchange_receive_fragment_cycles=0.0,
    )  # fmt: skip
    found = phase(machine, [(0, 64, [1, 2])], 4)
    assert found.cycles.tolist() == [100 + expected + 2 * 10]
    assert found.loads[0, 0, :2].tolist() == loads
    estimated = Routed(machine).estimate(64, 4, 4)
    assert estimated == 100 + max(24, 4 * each) + 6 * 10  # as far as the chip is wide and high


def test_copies_are_requested_by_fragments_not_bytes() -> None:
    """A fragment of 4,000 bytes for one tile, ten of 4 bytes for each of three: 31 requests of 60 cycles, although few
    bytes are sent three times."""
    machine = routed(exchange_multicast="none", exchange_send_fragment_cycles=60.0)
    (one, ends), (many, more) = listed([(0, 4000, [1])]), listed([(0, 40, [1, 2, 3])], 10)
    first = np.concatenate([one.first, one.first[-1] + many.first[1:]])
    columns = {
        name: np.concatenate([getattr(each, name) for each in (one, many)])
        for name in ("sender", "size_bytes", "fragments", "reader")
    }
    both = [more[at] + np.pad(ends[at], (0, 2)) for at in range(1, 5)]
    found = Routed(machine).phase_of(Messages(first=first, **columns), Ends(more.tiles, *both))
    hops = int(machine.exchange.hop_cycles) * 3
    assert found.cycles.tolist() == [100 + 31 * 60 + hops]


def test_rings_lead_the_shorter_way_or_one_way() -> None:
    sent = [(0, 4, [3])]
    assert phase(routed(), sent).loads[0, 0, :4].tolist() == [4, 4, 4, 0]
    ring = phase(routed(chip_grid="torus"), sent).loads[0]
    assert (ring[0].sum(), ring[1, 0]) == (0, 4)  # one step west
    one = phase(routed(chip_grid="torus", exchange_ways="one"), [(3, 4, [0])]).loads[0]
    assert one[0, 3] == 4
    opposed = phase(routed(chip_grid="torus", exchange_ways="opposed"), sent).loads
    assert (opposed[0].sum(), opposed[1].sum()) == (0, 4)  # on the second network, which leads west
    wider = routed(chip_grid="torus", exchange_ways="one", exchange_ring_columns=6)
    assert phase(wider, [(3, 4, [0])]).loads[0, 0].sum() == 12  # three steps over routers without tiles


def test_a_crossbar_of_clusters() -> None:
    """Four tiles share a router: what stays among them uses no link, the rest one link to the middle and one from
    it."""
    machine = routed(chip_grid="crossbar", exchange_tiles_per_router=4)
    found = phase(machine, [(0, 8, [1]), (0, 12, [5, 6, 9]), (4, 20, [5])])
    assert found.loads[0, 0].tolist() == [12, 0, 0, 0]
    assert found.loads[0, 2].tolist() == [0, 12, 12, 0]


# ---- laws


@settings(max_examples=200, deadline=None)
@given(sent=messages, shape=shapes, factor=st.sampled_from([2, 10]))
def test_wider_links_and_cheaper_hops_are_never_slower(sent: Sent, shape: dict[str, Any], factor: int) -> None:
    before = cycles(routed(**shape), sent)
    wider = shape | {"exchange_link_bytes_per_cycle": factor * shape["exchange_link_bytes_per_cycle"]}
    assert cycles(routed(**wider), sent) <= before
    if shape["exchange_multicast"] in ("tree", "none"):  # else routes are chosen by what a hop costs
        assert cycles(routed(**shape | {"exchange_hop_cycles": 0.0}), sent) <= before
    lighter = shape | {"exchange_header_bytes": 0, "exchange_acknowledge_bytes": 0}
    if shape["exchange_multicast"] in ("tree", "none"):
        assert cycles(routed(**lighter), sent) <= before


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(sent=messages, shape=shapes, multicast=st.sampled_from(["reserved", "linked"]))
def test_trees_are_left_where_others_wait_for_their_links(sent: Sent, shape: dict[str, Any], multicast: str) -> None:
    found = []
    for hop in (0.0, shape["exchange_hop_cycles"]):
        machine = routed(**shape | {"exchange_multicast": multicast, "exchange_hop_cycles": hop})
        network, (given_messages, ends) = Network.of(machine.chip, machine.exchange), listed(sent)
        traffic = Phase.of(Listed.of(given_messages), ends, network, machine.exchange).traffic
        both = [Times.at(traffic, machine.exchange, trees).cycles for trees in (None, False)]
        found.append(Times.faster(traffic, machine.exchange).cycles)
        np.testing.assert_array_equal(found[-1], np.minimum(*both))
    assert (found[0] <= found[1]).all()


@pytest.mark.parametrize("name", ["wormhole", "blackhole"])
def test_programs_on_networks_that_reserve_trees_are_never_faster_with_slower_hops(name: str) -> None:
    changes = {"network.hidden": (64, 32), "network.capacity": (12, 6, 10), "data.timesteps": 2, "training.batch": 8}
    found, compiled = [], None
    for hop in (0.0, 5.0, 10.0, 20.0, 40.0, 160.0):
        machine = load_machine(name, {"exchange.hop_cycles": hop})
        assert isinstance(machine, MimdMachine)
        compiled = compiled or compile_workload(load_workload("digits", changes), machine)
        found.append(retime(compiled, machine, filled_activity(compiled.network, 0.5)).cycles)
    assert found == sorted(found)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(sent=messages, shape=shapes)
def test_waiting_while_holding_links_is_never_faster(sent: Sent, shape: dict[str, Any]) -> None:
    assert cycles(routed(**shape | {"exchange_switching": "cut-through"}), sent) <= cycles(
        routed(**shape | {"exchange_switching": "wormhole"}), sent
    )


@settings(max_examples=200, deadline=None)
@given(sent=messages, grid=st.sampled_from(["mesh", "torus", "crossbar"]))
def test_links_that_cost_nothing_are_the_endpoint_model(sent: Sent, grid: str) -> None:
    """Cut-through; held links make packets wait at ports, too."""
    machine = routed(chip_grid=grid, **FREE)
    _, ends = listed(sent)
    endpoint = Endpoint(machine)
    wire = np.maximum(ends.sent, ends.received)
    expected = endpoint.whole(endpoint.end_cycles(wire, ends.pieces_sent, ends.pieces_received).max())
    assert cycles(machine, sent) == expected


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(sent=messages, shape=shapes)
def test_bytes_are_conserved_at_every_router(sent: Sent, shape: dict[str, Any]) -> None:
    """Without trees, what comes into a router and from its tile goes out of it or to its tile; over all links it is
    bytes times hops. Along a tree a link carries at most what it does without, and at least its largest message."""
    machine = routed(**shape | {"exchange_multicast": "none", "exchange_header_bytes": 0})
    found, network = phase(machine, sent), Network.of(machine.chip, machine.exchange)
    flow = np.zeros(WIDE * HIGH)
    for tile, size, readers in sent:
        flow[tile] += size * len(readers)
        flow[readers] -= size
    if network.kind == routes.CROSSBAR:
        np.testing.assert_array_equal(found.loads[0, 0] - found.loads[0, 2], flow)
    else:
        net = np.zeros((HIGH, WIDE))
        for number, load in enumerate(found.loads):
            square = load.reshape(4, HIGH, WIDE)
            own = np.zeros((HIGH, WIDE))
            for direction, axis, by in ((0, 1, 1), (1, 1, -1), (2, 0, 1), (3, 0, -1)):
                own += square[direction] - np.roll(square[direction], by, axis)
            net += own[::-1, ::-1].T if number else own  # rows and columns of the second change places
        np.testing.assert_array_equal(net.reshape(-1), flow)
    tree = phase(routed(**shape | {"exchange_multicast": "tree", "exchange_header_bytes": 0}), sent).loads
    assert (tree <= found.loads).all()


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(sent=messages)
def test_a_torus_has_never_more_hops_than_its_mesh(sent: Sent) -> None:
    made, _ = listed(sent)
    sender = np.repeat(made.sender, np.diff(made.first))
    hops = []
    for grid in ("torus", "mesh"):
        network = Network.of(routed(chip_grid=grid).chip, routed(chip_grid=grid).exchange)
        hops.append(network.hops(network.places(sender), network.places(made.reader)))
    assert (hops[0] <= hops[1]).all()


@pytest.mark.parametrize("program", ["published", "best"])
def test_a_tile_sends_in_messages_what_it_is_counted_to_send(program: str) -> None:
    """Readers that want parts which overlap get what both want once, as a multicast is counted."""
    network = small_network((16, 40, 40, 40, 5), timesteps=2, batch=6, capacities=(5, 13, 13, 13))
    machine = tiny(chip_tiles=64, chip_grid_columns=8, tile_worker_contexts=1)
    made = compile_graph(training_graph(network), network, machine, MappingOptions(program=program)).program
    for step, _, _ in made.supersteps():
        if step.exchange is not None:
            listed, (sent, pieces) = all_messages(made, step.exchange)[0], np.zeros((2, made.tiles))
            sent[step.exchange.tiles] = step.exchange.column("bytes_sent")
            pieces[step.exchange.tiles] = step.exchange.column("fragments_sent")
            assert np.bincount(listed.sender, listed.size_bytes, made.tiles).tolist() == sent.tolist(), step.name
            found = np.bincount(listed.sender, listed.fragments, made.tiles)
            # pieces that overlap are told one by one, and sent cut apart
            assert (found <= pieces).all() if program == "best" else found.tolist() == pieces.tolist(), step.name


@pytest.mark.parametrize("size", [(4, 4), (5, 3), (8, 8), (7, 5)])
@pytest.mark.parametrize("switching", ["cut-through", "wormhole"])
def test_all_to_all_a_torus_is_never_slower(size: tuple[int, int], switching: str) -> None:
    count = size[0] * size[1]
    sent = [(one, 64, [other]) for one in range(count) for other in range(count) if other != one]
    shape = {"chip_tiles": count, "chip_grid_columns": size[0], "exchange_switching": switching}
    assert cycles(routed(**shape, chip_grid="torus"), sent) <= cycles(routed(**shape), sent)


def test_a_torus_may_be_slower_than_its_mesh() -> None:
    """Tile 3 of a row of four is half way round the ring from tile 1, and sends east: over the link from 0 to 1, which
    tile 0 needs. On the mesh it can only go west."""
    sent = [(0, 100, [1]), (3, 100, [1])]
    narrow = {"exchange_link_bytes_per_cycle": 0.5}
    mesh, torus = phase(routed(**narrow), sent), phase(routed(**narrow, chip_grid="torus"), sent)
    assert (mesh.loads.max(), torus.loads.max(), torus.loads[0, 0, 0]) == (100, 200, 200)
    assert torus.cycles[0] - mesh.cycles[0] == 100 / 0.5


# ---- programs


@pytest.mark.parametrize("chips", [1, 2])
@pytest.mark.parametrize("grid", ["mesh", "torus", "crossbar"])
def test_a_run_on_a_network_of_routers_adds_up(grid: str, chips: int) -> None:
    machine = routed(
        chip_grid=grid, exchange_switching="wormhole", exchange_hop_cycles=2.0, chip_tiles=64, chip_grid_columns=8,
        links_chips=chips,
    )  # fmt: skip
    run = simulate(workload_on(chips), machine)
    profile, fabric = run.tiled, fabric_of(machine)
    program = run.compiled.program
    assert program.chips == chips
    steps = [step for step, _, _ in program.supersteps() if step.exchange is not None]
    every = fabric.cycles(program)
    wide = fabric_of(routed(**FREE, chip_grid=grid, chip_tiles=64, chip_grid_columns=8, links_chips=chips))
    assert (every >= wide.cycles(program)).all()
    assert len(steps) == len(every) > 0
    for step, cycles in zip(steps, every, strict=True):
        assert step.exchange is not None
        np.testing.assert_array_equal(cycles, fabric.cycles(program, [step.exchange])[0])
        own = fabric.tile_cycles(program, step.exchange)
        assert (own <= cycles[step.exchange.tiles // program.tiles_per_chip]).all()
    for number, span in list(enumerate(profile.spans))[::3]:
        assert round(sum(row.cycles for row in run.explain(number).exchange)) == span.exchange_cycles, span.name
    assert profile.exchange_cycles_other_model > 0


def test_a_program_for_a_smaller_chip_keeps_its_messages_on_their_chips() -> None:
    """Tiles are numbered by those that each chip had when the program was compiled."""
    shape = {"chip_grid_columns": 8, "links_chips": 2, "exchange_hop_cycles": 2.0}
    run = simulate(workload_on(2), routed(chip_tiles=64, **shape))
    program = run.compiled.program
    assert program.chips == 2
    expected = fabric_of(routed(chip_tiles=64, **shape)).cycles(program)
    for tiles in (65, 128):
        np.testing.assert_array_equal(fabric_of(routed(chip_tiles=tiles, **shape)).cycles(program), expected)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(sent=messages, shape=shapes)
def test_no_part_of_the_slowest_path_is_negative(sent: Sent, shape: dict[str, Any]) -> None:
    found = phase(routed(**shape | {"exchange_switching": "wormhole"}), sent)
    path = found.paths[0]
    assert path is not None
    parts = path.port_out, path.row, path.column, path.port_in
    assert min(parts) >= 0
    start = shape["exchange_hop_cycles"] * path.hops + 100
    assert np.ceil(sum(parts) + start) == path.cycles == found.cycles[0]


DRAWN: dict[str, tuple[float, ...]] = {
    "exchange_bytes_per_cycle": (2.0, 4.0, 28.1), "exchange_link_bytes_per_cycle": (0.5, 4.0, 32.0),
    "exchange_hop_cycles": (0.0, 1.0, 10.0), "exchange_packet_bytes": (0, 16, 200), "exchange_header_bytes": (0, 8),
    "exchange_acknowledge_bytes": (0, 4, 32), "exchange_send_fragment_cycles": (0.0, 2.5, 23.3),
    "exchange_receive_fragment_cycles": (0.0, 1.5), "exchange_fixed_cycles": (10, 100),
}  # fmt: skip


def _with_own_exchange(step: Superstep) -> Superstep:
    return step if step.exchange is None else replace(step, exchange=replace(step.exchange))


@pytest.mark.slow
@pytest.mark.parametrize("chips", [1, 2])
@pytest.mark.parametrize("grid", ["mesh", "torus", "crossbar"])
def test_at_other_rates_a_program_takes_what_it_takes_anew(grid: str, chips: int) -> None:
    """What is kept of a program for other rates is what a copy that nothing was kept of gives; no link that was left
    out was the fullest."""
    shape: dict[str, Any] = {"chip_grid": grid, "chip_tiles": 64, "chip_grid_columns": 8, "links_chips": chips}
    program = simulate(workload_on(chips), routed(**shape)).compiled.program
    draw, seen = random.Random(0), set()
    for _ in range(60):
        rates: dict[str, Any] = {name: draw.choice(values) for name, values in DRAWN.items()}
        rates["exchange_switching"] = draw.choice(["cut-through", "wormhole"])
        ways = {"exchange_multicast": draw.choice(["reserved", "linked", "tree"]), "exchange_ways": "opposed"}
        machine = routed(**shape, **rates, **ways)
        fabric, copy = Routed(machine), program.map_supersteps(_with_own_exchange)
        kept, anew = fabric.cycles(program), fabric.cycles(copy)
        np.testing.assert_array_equal(kept, anew)
        np.testing.assert_array_equal(fabric.hop_bytes(program), fabric.hop_bytes(copy))
        assert fabric.busiest(program) == fabric.busiest(copy)
        number = draw.randrange(len(kept))
        whole = fabric.link_loads(program, exchanges_of(program)[number])
        np.testing.assert_array_equal(whole.cycles, kept[number])
        seen.add(kept.tobytes())
    assert len(seen) > 40


def test_more_readings_than_are_listed_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a phase is not listed, each tile's bytes go to all that receive: what an all-to-all does."""
    machine = routed(chip_tiles=64, chip_grid_columns=8)
    program = simulate(load_workload("nmnist-2-random", SMALL), machine).compiled.program
    exact = fabric_of(machine).cycles(program)
    monkeypatch.setattr("mimdsim.program.messages.messages_of", lambda *_: None)
    monkeypatch.setattr("mimdsim.program.messages.MOST_PAIRS", 500)
    again = fabric_of(routed(chip_tiles=64, chip_grid_columns=8, exchange_link_bytes_per_cycle=4.000001))
    assert 0.7 < again.cycles(program).sum() / exact.sum() < 2.5


@pytest.mark.parametrize("grid", ["mesh", "torus", "crossbar"])
@pytest.mark.parametrize("ways", ["both", "one", "opposed"])
def test_links_on_the_grid_lead_from_sender_to_reader(grid: str, ways: str) -> None:
    """Whichever network a message goes over: from the sender's router along every link that it loads."""
    machine = routed(chip_grid=grid, exchange_ways=ways, exchange_ring_columns=6, exchange_ring_rows=5)
    network = Network.of(machine.chip, machine.exchange)
    columns, rows = network.places(np.arange(16))
    for sender, reader in [(sender, reader) for sender in range(16) for reader in range(16) if sender != reader]:
        loads = network.on_grid(phase(machine, [(sender, 4, [reader])]).loads)[:, 0]
        assert loads.shape[1:] == ((5, 6) if grid == "torus" else (4, 4))
        here, there = (rows[sender], columns[sender]), (rows[reader], columns[reader])
        if grid == "crossbar":
            assert (loads[0][here], loads[2][there], loads.sum()) == (4, 4, 8)
            continue
        for _ in range(int(loads.sum()) // 4):
            (way,) = np.flatnonzero(loads[:, here[0], here[1]])
            loads[way, here[0], here[1]] = 0
            down, across = ((0, 1), (0, -1), (1, 0), (-1, 0))[way]
            here = (here[0] + down) % loads.shape[1], (here[1] + across) % loads.shape[2]
        assert here == there


# ---- a fabric of one's own

MINE = """
import numpy as np
from mimdsim.costs.fabric import FabricModel

class Bus(FabricModel):
    def cycles(self, program, exchanges=None):
        if exchanges is None:
            exchanges = [step.exchange for step, _, _ in program.supersteps() if step.exchange is not None]
        each = [int(one.column("bytes_sent").sum()) // 4 for one in exchanges]
        return np.repeat(np.array(each)[:, None], program.chips, axis=1)

    def estimate(self, wire_bytes, sent, received):
        return np.asarray(wire_bytes) * self.chip.tiles // 4 + 0 * (sent + received)

class Wrong(Bus):
    def cycles(self, program, exchanges=None):
        return 1.5

class Fails(Bus):
    def cycles(self, program, exchanges=None):
        return 1 // 0
"""


def own(path: Path, name: str) -> MimdMachine:
    (path / "mine.py").write_text(MINE)
    return tiny(exchange_model=f"{path / 'mine.py'}:{name}")


def test_a_fabric_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, workload = own(tmp_path, "Bus"), load_workload("nmnist-2-random", SMALL)
    with pytest.raises(DescriptionError, match=r"(?s)exchange\.model = .*run only if you say so"):
        simulate(workload, machine)
    monkeypatch.setenv("MIMDSIM_ALLOW_CODE", "1")
    run = simulate(workload, machine)
    assert run.tiled.exchange_cycles == sum(
        int(step.exchange.column("bytes_sent").sum()) // 4 * times
        for step, times, _ in run.compiled.program.supersteps()
        if step.exchange is not None
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Wrong", r"cycles returns '1.5'; it must return whole cycles from 0, shape \(\d+, 1\)"),
        ("Fails", r"(?s)ZeroDivisionError.*line \d+"),
        ("Bas", r"'Bas' is no class of mimdsim\.costs\.fabric\.FabricModel"),
    ],
)
def test_a_wrong_fabric_is_told(name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIMDSIM_ALLOW_CODE", "1")
    with pytest.raises(DescriptionError, match=said):
        simulate(load_workload("nmnist-2-random", SMALL), own(tmp_path, name))


def test_a_network_of_routers_needs_links() -> None:
    with pytest.raises(DescriptionError, match='"routed" needs link_bytes_per_cycle'):
        load_machine("tiny", {"exchange.model": "routed"})
    with pytest.raises(DescriptionError, match=r"exchange\.model"):
        load_machine("tiny", {"exchange.model": "rooted"})


# ---- who waits for whom

WAITS = st.fixed_dictionaries(
    {
        "links_chips": st.sampled_from([1, 2]),
        "exchange_model": st.sampled_from(["endpoint", "scheduled", "routed"]),
        "exchange_switching": st.sampled_from(["cut-through", "wormhole"]),
        "chip_grid": st.sampled_from(["mesh", "torus", "crossbar"]),
        "exchange_hop_cycles": st.sampled_from([0.0, 3.0]),
        "sync_hop_cycles": st.sampled_from([0.0, 2.0]),
        "sync_exchange_share": st.sampled_from([0.0, 0.2]),
        "mapping": st.sampled_from(["published", "best"]),
    }
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(of=WAITS)
def test_who_waits_for_fewer_is_never_slower(of: dict[str, Any]) -> None:
    """Without barriers, with barriers of those that exchange, and of the chip."""
    shape = {"chip_tiles": 64, "chip_grid_columns": 8, **{key: value for key, value in of.items() if key != "mapping"}}
    chosen = workload_on(of["links_chips"], mapping_program=of["mapping"], data_timesteps=5)
    run = simulate(chosen, routed(**shape))
    cycles = []
    for model in ("dataflow", "participants", "chip"):
        again = run.retime(routed(**shape, sync_model=model))
        assert sum(span.cycles for span in again.tiled.spans) == again.cycles
        cycles.append(again.cycles)
    assert cycles == sorted(cycles)


@pytest.mark.parametrize("chips", [1, 2])
def test_explanations_without_barriers_add_up(chips: int) -> None:
    machine = routed(chip_tiles=64, chip_grid_columns=8, sync_model="dataflow", sync_hop_cycles=2.0, links_chips=chips)
    run = simulate(workload_on(chips, data_timesteps=4), machine)
    assert run.compiled.program.chips == chips
    for number, span in list(enumerate(run.tiled.spans))[::3]:
        told = run.explain(number)
        parts = (*told.compute, *told.waiting), told.exchange, told.sync
        cycles = [round(sum(row.cycles for row in rows)) for rows in parts]
        assert cycles == [span.compute_cycles, span.exchange_cycles, span.sync_cycles], span.name


@pytest.mark.first(2)
@pytest.mark.parametrize("model", ["endpoint", "planner", "scheduled", "routed"])
def test_nothing_has_arrived_before_it_is_sent(model: str) -> None:
    """A tile has what it reads once its senders' ports have carried all that they send; the last one ends the phase."""
    free = {"exchange_send_fragment_cycles": 0.0, "exchange_receive_fragment_cycles": 0.0}  # so that schedules matter
    machine = routed(chip_tiles=64, chip_grid_columns=8, exchange_model=model, **free)
    program, fabric = simulate(workload_on(1, data_timesteps=2), machine).compiled.program, fabric_of(machine)
    start, rate = fabric.fabric.fixed_cycles + fabric.fabric.route_cycles, fabric.fabric.bytes_per_cycle
    longer = 0
    for exchange in exchanges_of(program):
        takes, sends, receives = (np.zeros(program.tiles) for _ in range(3))
        takes[exchange.tiles] = fabric.tile_cycles(program, exchange)
        assert takes.max() == fabric.cycles(program, [exchange]).max()
        sends[exchange.tiles] = start + exchange.column("bytes_sent") / rate
        receives[exchange.tiles] = start + exchange.column("bytes_received") / rate
        arrivals = arrivals_of(program, exchange)
        for at, reader in enumerate(arrivals.reader):
            latest = sends[arrivals.sender[arrivals.first[at] : arrivals.first[at + 1]]].max()
            assert takes[reader] >= latest
            longer += latest > receives[reader]
    assert longer


def test_tiles_go_on_as_processes_do() -> None:
    """The longest path is when the last process ends: one for each tile, which waits for those that it reads."""
    machine = routed(chip_tiles=64, chip_grid_columns=8, sync_model="dataflow", exchange_hop_cycles=2.0)
    run = simulate(load_workload("nmnist-2-random", SMALL | {"data.timesteps": 4}), machine)
    program, fabric = run.compiled.program, fabric_of(machine)
    every = program_loads(program, run.log.activity, TileIssue.of(machine))
    loads = {id(step): load for (step, _, _), load in zip(program.supersteps(), every, strict=True)}
    environment = simpy.Environment()
    order = list(program.turns())
    events, plan = [], []
    for step, timestep in order:
        busy = loads[id(step)].by_tile(Recording(run.log.activity))
        row = busy[min(timestep, len(busy) - 1)]
        cycles = np.zeros(program.tiles, np.int64)
        cycles[loads[id(step)].first_tile :][: len(row)] = row
        reads: dict[int, list[int]] = {}
        own = np.zeros(program.tiles, np.int64)
        if step.exchange is not None:
            arrivals = arrivals_of(program, step.exchange)
            for at, reader in enumerate(arrivals.reader.tolist()):
                reads[reader] = arrivals.sender[arrivals.first[at] : arrivals.first[at + 1]].tolist()
            own[step.exchange.tiles] = fabric.tile_cycles(program, step.exchange)
        plan.append((reads, own, cycles))
        events.append([environment.event() for _ in range(program.tiles)])

    def tile(number: int) -> Iterator[simpy.Event]:
        for (reads, own, cycles), begun in zip(plan, events, strict=True):
            begun[number].succeed()
            yield simpy.AllOf(environment, [begun[other] for other in reads.get(number, [])])
            yield environment.timeout(int(own[number] + cycles[number]))

    for number in range(program.tiles):
        environment.process(tile(number))
    environment.run()
    loops = sum(span.cycles for span in run.tiled.spans if span.op == "repeat")
    assert environment.now + loops == run.tiled.cycles


# ---- where tiles lie


@pytest.mark.parametrize(("tiles", "columns"), [(64, 8), (70, 9), (16, 4), (7, 7), (1472, 64)])
@pytest.mark.parametrize("strip", [0, 1, 2, 3, 8, 100])
def test_strips_are_another_order_of_the_same_places(tiles: int, columns: int, strip: int) -> None:
    chip = routed(chip_tiles=tiles, chip_grid_columns=columns).chip
    column, row = chip.places(strip)
    assert sorted(zip(row.tolist(), column.tolist(), strict=True)) == [divmod(place, columns) for place in range(tiles)]
    if 0 < strip < columns and tiles % columns == 0 and columns % strip == 0:  # near the one before
        assert (np.abs(np.diff(column)) + np.abs(np.diff(row)) <= 2 * strip).all()


def test_tiles_in_strips_are_nearer_to_each_other() -> None:
    """16 tiles of a grid of 8 x 8 that send to each other: two rows, or a block of 4 x 4."""
    machine = routed(chip_tiles=64, chip_grid_columns=8, exchange_hop_cycles=1.0)
    sent = [(one, 64, [other]) for one in range(16) for other in range(16) if other != one]
    made, ends = listed(sent)
    network = Routed(machine)
    rows, block = (network.phase_of(made, ends, Network.of(machine.chip, machine.exchange, strip)) for strip in (0, 4))
    assert block.loads.sum() < 0.9 * rows.loads.sum()
    assert block.loads.max() < rows.loads.max()
    assert block.cycles[0] < rows.cycles[0]


def test_sampled_messages_that_stay_at_a_router_go_along_no_link() -> None:
    """The longer ones leave their router, the last of the classes do not."""
    machine = routed(chip_tiles=16, chip_grid_columns=4, exchange_tiles_per_router=4)
    made, ends = listed([(0, 16, [12]), (1, 32, [0]), (0, 64, [1])])
    network = Network.of(machine.chip, machine.exchange)
    traffic = Phase.of(Listed.of(made), ends, network, machine.exchange, on_links=Listed.of(made)).traffic
    assert len(traffic.option_links) == len(traffic.size)
    assert Times.at(traffic, machine.exchange).cycles[0] > 0


@pytest.mark.slow
def test_a_search_brings_partners_together() -> None:
    """On a mesh with narrow links strips of columns save time in the published mapping, and no strips would be faster
    than those of the mapping that a search finds."""
    machine = routed(chip_tiles=256, chip_grid_columns=16, exchange_link_bytes_per_cycle=1.0)
    changes = SMALL | {"data.inputs": 200, "network.hidden": [128, 64], "network.capacity": [40, 20, 4]}
    workload = load_workload("nmnist-2-random", changes)
    compiled = compile_workload(workload, machine)
    activity = filled_activity(compiled.network, 0.5)
    case = Case.of(compiled.network, machine, activity, workload.mapping)

    def cycles(options: MappingOptions) -> list[int]:
        """In rows of the chip, and in strips of 2, 4 and 8 columns."""
        each = (options.model_copy(update={"strip_columns": strip}) for strip in (0, 2, 4, 8))
        return [compile_and_time(case, one)[1].cycles for one in each]

    rows, *strips = cycles(workload.mapping)
    assert min(strips) < 0.99 * rows
    found = search(case, aims_of(case, objective="time"), candidates=300, processes=1, explained=False)
    assert found.best.figures.cycles == min(cycles(found.best.options))
