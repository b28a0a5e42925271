"""Links between chips: topology, routes, the closed form of a global exchange, the event path; routes on the chip."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from chip_routes import TILES, mux_cycles, physical_tiles, route_cycles
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import MappingError
from mimdsim.costs.chip_links import edge_bytes, link_phase_seconds, piece_seconds
from mimdsim.machine.mimd import Links
from mimdsim.machine.topology import Edge, next_chips, route_lengths, topology_graph
from mimdsim.timing.discrete_event import global_exchange_seconds, run_chips

TOPOLOGIES = ("line", "ring", "ladder", "torus", "all_to_all")
EVERY = (*TOPOLOGIES, "switch")
COUNTS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 17, 64)


def links(topology: str, chips: int, **changes: Any) -> Links:
    numbers: dict[str, Any] = {"links_per_edge": 2, "bytes_per_second": 16e9, "fixed_seconds": 1e-6}
    numbers |= {"hop_seconds": 15e-9} | changes
    sources = dict.fromkeys(("chips", *numbers), "assumed: test")
    return Links.model_validate({"chips": chips, "topology": topology, **numbers, "sources": sources})


def between(chips: int, *messages: tuple[int, int, int]) -> np.ndarray:
    """Traffic with the given (source, target, bytes)."""
    traffic = np.zeros((chips, chips), np.int64)
    for source, target, nbytes in messages:
        traffic[source, target] = nbytes
    return traffic


def edges(topology: str, chips: int) -> set[tuple[int, int]]:
    return {(min(edge), max(edge)) for edge in topology_graph(links(topology, chips)).edges}


# ---- topology


def test_edges_by_hand() -> None:
    assert edges("line", 4) == {(0, 1), (1, 2), (2, 3)}
    assert edges("ring", 4) == {(0, 1), (1, 2), (2, 3), (0, 3)}
    assert edges("ladder", 6) == {(0, 1), (2, 3), (4, 5), (1, 2), (0, 3), (3, 4), (2, 5)}
    assert edges("ladder", 5) == {(0, 1), (2, 3), (1, 2), (0, 3), (3, 4)}  # the last row lacks a chip
    assert edges("torus", 9) == {
        *((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (6, 7), (7, 8), (6, 8)),  # rows
        *((0, 5), (5, 6), (0, 6), (1, 4), (4, 7), (1, 7), (2, 3), (3, 8), (2, 8)),  # columns
    }
    assert edges("all_to_all", 3) == {(0, 1), (0, 2), (1, 2)}


def test_small_and_prime_counts() -> None:
    for topology in TOPOLOGIES:
        assert edges(topology, 1) == set()
        assert edges(topology, 2) == {(0, 1)}  # the two edges of a ring of two are one
    assert edges("torus", 7) == edges("ring", 7)
    assert edges("ladder", 4) == edges("torus", 4) == edges("ring", 4)


@pytest.mark.parametrize("chips", COUNTS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_topology_is_connected_and_keeps_neighbours_together(topology: str, chips: int) -> None:
    graph = topology_graph(links(topology, chips))
    assert sorted(graph.nodes) == list(range(chips))
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0
    assert all(graph.has_edge(chip, after) for chip, after in pairwise(range(chips)))
    most = {"line": 2, "ring": 2, "ladder": 3, "torus": 4, "all_to_all": chips - 1}[topology]
    assert max(degree for _, degree in graph.degree) <= most


def test_a_switch_is_a_node_of_its_own() -> None:
    made = links("switch", 5)
    assert edges("switch", 5) == {(chip, 5) for chip in range(5)}
    assert (route_lengths(made) == 2 * (1 - np.eye(5))).all()
    assert route(made, 3, 1) == ((3, 5), (5, 1))
    assert edge_bytes(between(5, (0, 4, 10), (1, 4, 20), (4, 1, 5)), made) == {
        **{(0, 5): 10, (1, 5): 20, (4, 5): 5},
        **{(5, 1): 5, (5, 4): 30},
    }


def test_all_to_one_through_a_switch_waits_at_its_edge_and_pairs_do_not() -> None:
    machine = links("switch", 8, fixed_seconds=0, hop_seconds=0, links_per_edge=1, bytes_per_second=1)
    to_one = between(8, *((chip, 0, 10) for chip in range(1, 8)))
    assert link_phase_seconds(to_one, machine) == global_exchange_seconds(to_one, machine) == 70
    pairs = between(8, *((chip, (chip + 3) % 8, 10) for chip in range(8)))
    assert link_phase_seconds(pairs, machine) == global_exchange_seconds(pairs, machine) == 10
    every = np.full((8, 8), 10)
    assert link_phase_seconds(every, machine) == 70  # each chip has seven others to send to over one edge
    assert 70 <= global_exchange_seconds(every, machine) <= 84


def test_edges_of_a_group_have_links_of_their_own() -> None:
    groups = {"group_chips": 2, "group_links_per_edge": 4, "links_per_edge": 1, "bytes_per_second": 1}
    machine = links("line", 4, **groups, fixed_seconds=0, hop_seconds=0)
    inside, across = between(4, (0, 1, 40), (3, 2, 20)), between(4, (1, 2, 40))
    for traffic, seconds in ((inside, 10), (across, 40), (inside + across, 40)):
        assert link_phase_seconds(traffic, machine) == global_exchange_seconds(traffic, machine) == seconds
    through = between(4, (0, 3, 40))  # the slowest edge of its route
    assert link_phase_seconds(through, machine) == global_exchange_seconds(through, machine) == 40
    switched = links("switch", 4, **groups, fixed_seconds=0, hop_seconds=0)
    assert link_phase_seconds(inside, switched) == 40  # no edge to the switch is within a group


# ---- routes


def route(on: Links, source: int, target: int) -> tuple[Edge, ...]:
    """Directed edges of the route from chip `source` to chip `target`; () to itself."""
    if source == target:
        return ()
    after = int(next_chips(on)[source, target])
    return ((source, after), *route(on, after, target))


@pytest.mark.parametrize("chips", COUNTS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_routes_are_shortest_paths_along_edges(topology: str, chips: int) -> None:
    machine = links(topology, chips)
    graph = topology_graph(machine)
    shortest = dict(nx.all_pairs_shortest_path_length(graph))
    for source in range(chips):
        for target in range(chips):
            found = route(machine, source, target)
            assert len(found) == shortest[source][target] == route_lengths(machine)[source, target]
            if found:
                assert (found[0][0], found[-1][1]) == (source, target)
            assert all(graph.has_edge(*edge) for edge in found)
            assert all(before[1] == after[0] for before, after in pairwise(found))


def test_routes_by_hand() -> None:
    assert route(links("line", 4), 3, 1) == ((3, 2), (2, 1))
    assert route(links("ring", 5), 4, 1) == ((4, 0), (0, 1))
    assert route(links("ladder", 6), 0, 5) == ((0, 1), (1, 2), (2, 5))
    assert route(links("ladder", 5), 4, 2) == ((4, 3), (3, 2))  # beside the chip that the last row lacks
    assert route(links("torus", 9), 0, 7) == ((0, 1), (1, 7))
    assert route(links("all_to_all", 9), 8, 2) == ((8, 2),)
    assert route(links("ring", 5), 3, 3) == ()


def test_routes_do_not_depend_on_bandwidth_or_history() -> None:
    slow, fast = links("torus", 12, bytes_per_second=1e9), links("torus", 12)
    assert next_chips(fast) is next_chips(slow)  # from the cache
    with pytest.raises(ValueError, match="read-only"):
        next_chips(fast)[0, 0] = 1


@pytest.mark.parametrize(("topology", "chips"), [("ring", 8), ("torus", 16), ("torus", 64), ("ring", 7)])
def test_everyone_to_everyone_fills_a_closed_topology_evenly(topology: str, chips: int) -> None:
    carried = edge_bytes(np.ones((chips, chips), np.int64), links(topology, chips))
    assert len(set(carried.values())) == 1
    assert len(carried) == 2 * topology_graph(links(topology, chips)).number_of_edges()


# ---- closed form


def test_edge_bytes_by_hand() -> None:
    traffic = between(4, (0, 2, 100), (1, 2, 30), (3, 0, 7), (2, 2, 1_000))
    assert edge_bytes(traffic, links("line", 4)) == {(0, 1): 100, (1, 0): 7, (1, 2): 130, (2, 1): 7, (3, 2): 7}
    assert edge_bytes(traffic, links("all_to_all", 4)) == {(0, 2): 100, (1, 2): 30, (3, 0): 7}
    assert edge_bytes(between(4, (2, 2, 1_000)), links("line", 4)) == {}


def test_phase_by_hand() -> None:
    machine = links("line", 4)  # two links of 16 GB/s: 32 bytes a nanosecond
    traffic = between(4, (0, 2, 64_000), (1, 2, 32_000), (3, 0, 320))
    assert link_phase_seconds(traffic, machine) == pytest.approx(1e-6 + 3 * 15e-9 + 3e-6, rel=1e-14)
    assert link_phase_seconds(between(4), machine) == 0.0
    assert link_phase_seconds(between(4, (1, 1, 64)), machine) == 0.0  # what stays on a chip takes no link
    assert link_phase_seconds(between(1, (0, 0, 64)), links("ladder", 1)) == 0.0


def test_pieces_wait_for_every_hop_of_their_route() -> None:
    cards = links("ladder", 4, piece_seconds=1e-7, group_chips=2, group_links_per_edge=4)
    assert piece_seconds(between(4, (0, 1, 22)), cards) == pytest.approx(22e-7)
    assert piece_seconds(between(4, (1, 2, 22), (0, 1, 43)), cards) == pytest.approx(44e-7)  # one edge, another card
    assert piece_seconds(between(4, (1, 2, 22)), links("ladder", 4, piece_seconds=1e-7)) == pytest.approx(22e-7)
    assert piece_seconds(between(4, (0, 2, 22)), links("line", 4, piece_seconds=1e-7)) == pytest.approx(44e-7)
    assert piece_seconds(between(4, (1, 2, 22)), links("ladder", 4)) == 0.0


@settings(max_examples=30, deadline=None)
@given(topology=st.sampled_from(EVERY), chips=st.integers(1, 20), seed=st.integers(0, 10))
def test_edge_bytes_agree_with_the_routes(topology: str, chips: int, seed: int) -> None:
    machine = links(topology, chips)
    traffic = np.random.default_rng(seed).integers(0, 1_000, (chips, chips))
    slow: dict[tuple[int, int], int] = {}
    for source in range(chips):
        for target in range(chips):
            for edge in route(machine, source, target):
                slow[edge] = slow.get(edge, 0) + int(traffic[source, target])
    assert edge_bytes(traffic, machine) == {edge: slow[edge] for edge in sorted(slow) if slow[edge]}


def test_more_links_never_cost_more() -> None:
    traffic = np.random.default_rng(1).integers(0, 10**6, (16, 16))
    seconds = {topology: link_phase_seconds(traffic, links(topology, 16)) for topology in TOPOLOGIES}
    assert seconds["line"] > seconds["ring"] > seconds["torus"] > seconds["all_to_all"]
    assert seconds["line"] > seconds["ladder"] > seconds["torus"]
    twice = links("torus", 16, links_per_edge=4, fixed_seconds=0, hop_seconds=0)
    once = links("torus", 16, fixed_seconds=0, hop_seconds=0)
    assert link_phase_seconds(traffic, once) == pytest.approx(2 * link_phase_seconds(traffic, twice), rel=1e-14)


def test_256_chips() -> None:
    traffic = np.ones((256, 256), np.int64)
    # a message takes 16/4 hops a dimension on the average: 65,536 * 8 over 1,024 directed edges
    assert set(edge_bytes(traffic, links("torus", 256)).values()) == {512}
    assert link_phase_seconds(traffic, links("ladder", 256)) > link_phase_seconds(traffic, links("torus", 256))


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        (np.zeros((3, 4), np.int64), r"shape \(3, 4\), the machine has 4 chips; .* shape \(4, 4\)"),
        (np.zeros((4, 4)), "traffic is of type float64; give whole bytes as int64"),
        (between(4, (1, 2, -5)), "-5 bytes from chip 1 to chip 2; give 0 or more"),
    ],
)
def test_traffic_that_is_none_is_refused(traffic: np.ndarray, said: str) -> None:
    for ask in (edge_bytes, link_phase_seconds, global_exchange_seconds):
        with pytest.raises(MappingError, match=said):
            ask(traffic, links("line", 4))


# ---- chips as processes


def test_a_global_exchange_by_hand() -> None:
    machine = links("line", 4, fixed_seconds=0, hop_seconds=0, links_per_edge=1, bytes_per_second=1)
    # 0->2 takes both edges at once for 5 s; 1->2 waits for the second; 2->0 goes the other way
    assert global_exchange_seconds(between(4, (0, 2, 5), (1, 2, 3), (2, 0, 7)), machine) == 8
    assert global_exchange_seconds(between(4, (1, 0, 4), (1, 2, 6)), machine) == 6  # over both edges at once
    assert global_exchange_seconds(between(4), links("line", 4)) == 0.0
    # 1->2 first; 0->2 waits for it without holding 0->1, which 0->1 uses meanwhile
    waits = between(4, (1, 2, 4), (0, 2, 2), (0, 1, 1))
    assert link_phase_seconds(waits, machine) == global_exchange_seconds(waits, machine) == 6
    ring = links("ring", 6, fixed_seconds=0, hop_seconds=0, links_per_edge=1, bytes_per_second=1)
    around = between(6, (0, 2, 4), (1, 3, 4), (2, 4, 4), (3, 5, 4), (4, 0, 4), (5, 1, 4))
    assert link_phase_seconds(around, ring) == global_exchange_seconds(around, ring) == 8
    ring = links("ring", 5, fixed_seconds=0, hop_seconds=0, links_per_edge=1, bytes_per_second=1)
    around = between(5, (0, 2, 4), (1, 3, 4), (2, 4, 4), (3, 0, 4), (4, 1, 4))
    assert link_phase_seconds(around, ring) == 8
    assert global_exchange_seconds(around, ring) == 12  # an odd ring cannot be halved: a schedule costs more


@settings(max_examples=60, deadline=None)
@given(topology=st.sampled_from(EVERY), chips=st.integers(1, 9), data=st.data())
def test_the_event_path_is_never_below_the_closed_form(topology: str, chips: int, data: st.DataObject) -> None:
    pair = st.tuples(st.integers(0, chips - 1), st.integers(0, chips - 1), st.integers(0, 10**7))
    traffic = between(chips, *data.draw(st.lists(pair, max_size=25)))
    machine = links(topology, chips)
    assert global_exchange_seconds(traffic, machine) >= link_phase_seconds(traffic, machine) * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(topology=st.sampled_from(EVERY), chips=st.integers(2, 12), data=st.data())
def test_the_event_path_equals_the_closed_form_where_no_edge_is_shared(
    topology: str, chips: int, data: st.DataObject
) -> None:
    machine = links(topology, chips)
    pair = st.tuples(st.integers(0, chips - 1), st.integers(0, chips - 1), st.integers(1, 10**9))
    used: set[tuple[int, int]] = set()
    traffic = between(chips)
    for source, target, nbytes in data.draw(st.lists(pair, max_size=25)):
        taken = set(route(machine, source, target))
        if not taken & used:
            used |= taken
            traffic[source, target] = nbytes
    assert global_exchange_seconds(traffic, machine) == pytest.approx(link_phase_seconds(traffic, machine), rel=1e-12)


@pytest.mark.parametrize("topology", EVERY)
def test_everyone_to_everyone_comes_near_the_closed_form(topology: str) -> None:
    """Two independent views: a schedule by a simple rule costs at most a fifth more than the fullest edge."""
    machine = links(topology, 16)
    for traffic in (np.full((16, 16), 10**6), np.random.default_rng(0).integers(0, 10**6, (16, 16))):
        closed = link_phase_seconds(traffic, machine)
        seconds = global_exchange_seconds(traffic, machine)
        assert closed * (1 - 1e-12) <= seconds <= 1.2 * closed
        assert seconds == global_exchange_seconds(traffic, machine)


SCHEDULED = {
    "line": [12, 9, 18, 15, 32, 25, 40, 34],
    "ring": [6, 5, 10, 9, 16, 15, 20, 19],
    "ladder": [8, 7, 8, 10, 16, 17, 24, 24],
    "torus": [6, 5, 6, 6, 8, 10, 6, 9],
    "all_to_all": [2, 3, 2, 3, 2, 3, 2, 3],
}


@pytest.mark.parametrize("topology", SCHEDULED)
def test_who_goes_first_where_many_wait_is_as_it_was(topology: str) -> None:
    """Figures as they are: everyone sends 2 bytes to everyone, or 1 to 3, on 5, 6, 8 and 9 chips. The rule by which
    messages of the same size go one after the other shows in nothing else."""
    found = []
    for chips in (5, 6, 8, 9):
        machine = links(topology, chips, fixed_seconds=0, hop_seconds=0, links_per_edge=1, bytes_per_second=1)
        source, target = np.indices((chips, chips))
        for traffic in (np.full((chips, chips), 2), 1 + source * target % 3):
            found.append(global_exchange_seconds(traffic * (source != target), machine))
    assert found == SCHEDULED[topology]


def test_neighbours_only_never_contend() -> None:
    for topology in TOPOLOGIES:
        traffic = between(16, *((chip, chip + 1, 1_000 * chip + 1) for chip in range(15)))
        machine = links(topology, 16)
        assert route_lengths(machine)[traffic > 0].max() == 1
        assert global_exchange_seconds(traffic, machine) == pytest.approx(
            link_phase_seconds(traffic, machine), rel=1e-12
        )


def test_chips_that_compute_sync_and_exchange_by_hand() -> None:
    machine = links("line", 2, fixed_seconds=1, hop_seconds=0, links_per_edge=1, bytes_per_second=1)
    run = run_chips(
        compute_seconds=np.array([[3.0, 5.0], [4.0, 1.0]]),
        traffic=np.stack([between(2, (0, 1, 10)), between(2)]),
        links=machine,
        external_sync_seconds=0.5,
    )
    assert run.end_seconds == (5 + 0.5 + 11) + (4 + 0.5 + 0)
    assert run.waiting_seconds == (2.0, 3.0)
    assert (run.sync_seconds, run.exchange_seconds) == (1.0, 11.0)


@settings(max_examples=30, deadline=None)
@given(
    topology=st.sampled_from(TOPOLOGIES), chips=st.integers(1, 8), segments=st.integers(0, 5), seed=st.integers(0, 99)
)
def test_a_run_of_chips_equals_the_sum_over_segments(topology: str, chips: int, segments: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    machine = links(topology, chips)
    compute = rng.uniform(0, 1e-3, (segments, chips))
    traffic = np.zeros((segments, chips, chips), np.int64)
    for chip in range(chips - 1):  # to the next chip and back: no edge is used twice
        traffic[:, chip, chip + 1] = rng.integers(0, 10**6, segments)
        traffic[:, chip + 1, chip] = rng.integers(0, 10**6, segments)
    run = run_chips(compute_seconds=compute, traffic=traffic, links=machine, external_sync_seconds=3e-7)
    phases = [link_phase_seconds(matrix, machine) for matrix in traffic]
    slowest = compute.max(axis=1) if segments else np.zeros(0)
    assert run.end_seconds == pytest.approx(slowest.sum() + 3e-7 * segments + sum(phases), rel=1e-12)
    assert run.exchange_seconds == pytest.approx(sum(phases), rel=1e-9)  # a difference of two instants
    for chip, waiting in enumerate(run.waiting_seconds):
        assert waiting == pytest.approx((slowest - compute[:, chip]).sum(), rel=1e-9, abs=1e-15)
        whole = compute[:, chip].sum() + waiting + run.sync_seconds + run.exchange_seconds
        assert run.end_seconds == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"compute_seconds": np.zeros((2, 3))}, r"compute_seconds has the shape \(2, 3\), the machine has 4 chips"),
        ({"compute_seconds": np.full((2, 4), -1.0)}, "chip 0 computes for -1.0 seconds in segment 0; give 0 or more"),
        ({"compute_seconds": np.full((2, 4), np.nan)}, "chip 0 computes for nan seconds in segment 0"),
        ({"traffic": np.zeros((3, 4, 4), np.int64)}, r"shape \(3, 4, 4\) for 2 segments; .* shape \(2, 4, 4\)"),
        ({"traffic": np.zeros((2, 5, 5), np.int64)}, r"shape \(5, 5\), the machine has 4 chips"),
        ({"external_sync_seconds": -1.0}, "external sync of -1.0 seconds; give 0 or more"),
    ],
)
def test_a_run_of_chips_with_wrong_numbers_is_refused(changes: dict[str, Any], said: str) -> None:
    right: dict[str, Any] = {
        "compute_seconds": np.zeros((2, 4)),
        "traffic": np.zeros((2, 4, 4), np.int64),
        "external_sync_seconds": 0.0,
    }
    with pytest.raises(MappingError, match=said):
        run_chips(links=links("ring", 4), **(right | changes))


# ---- routes on the chip


def test_route_delays_of_all_pairs_are_those_of_the_c600() -> None:
    """Figures over all 1,472 x 1,472 pairs, from the topology of osmarks/ipu-stack."""
    tiles = np.arange(TILES)
    cycles = route_cycles(tiles[:, None], tiles[None, :])
    assert cycles.dtype == np.int64
    assert cycles.shape == (1472, 1472)
    assert (cycles.min(), np.median(cycles), np.percentile(cycles, 95), cycles.max()) == (25, 69, 115, 171)
    assert round(float(cycles.mean()), 1) == 71.1
    physical = physical_tiles(tiles)
    mux = mux_cycles(physical[:, None], physical[None, :])
    assert (mux.min(), mux.max()) == (-78, 112)
    # the rows of the receiver cancel: only that of the sender counts, two cycles a row
    np.testing.assert_array_equal(cycles - 2 * (physical >> 6)[:, None], (cycles - 2 * (physical >> 6)[:, None]))


def test_physical_numbers() -> None:
    physical = physical_tiles(np.arange(TILES))
    assert sorted(physical.tolist()) == list(range(TILES))
    assert physical[:4].tolist() == [0, 2, 64, 66]  # pairs up the first side of the first column
    assert (physical[0::2] ^ physical[1::2] == 2).all()  # partners at the exchange
    assert physical[44:48].tolist() == [22 * 64, 22 * 64 + 2, 22 * 64 + 1, 22 * 64 + 3]  # and down the second side


def test_route_delays_broadcast_and_take_numbers() -> None:
    assert route_cycles(0, np.arange(3)).tolist() == [30, 31, 30]
    assert int(route_cycles(1471, 0)) == 46
    assert route_cycles(np.zeros(0, np.int64), 0).shape == (0,)


def test_route_delay_depends_on_the_row_of_the_sender_only() -> None:
    row = physical_tiles(np.arange(TILES)) >> 6
    first = physical_tiles(np.arange(TILES)) & 63
    same = np.flatnonzero(first == first[0])  # one place in the rows
    cycles = route_cycles(same[:, None], same[None, :]) - 2 * row[same][:, None]
    assert len(set(cycles.ravel().tolist())) == 1


@pytest.mark.parametrize(("tile", "said"), [(1472, "tile 1472"), (-1, "tile -1"), (0.5, "tiles of type float64")])
def test_a_tile_that_does_not_exist_is_refused(tile: Any, said: str) -> None:
    with pytest.raises(MappingError, match=f"{said}; an IPU2 grid has tiles 0 to 1471"):
        route_cycles(tile, 0)
