"""Programs over several chips: the same values, whole layers, what crosses the links, and the time of it all."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import (
    ADAM,
    SEEDS,
    SMALL,
    assert_same_bits,
    assert_same_spikes,
    executed,
    given_values,
    interpreted,
    networks,
    relative_error,
    small_network,
)

import mimdsim
from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.compiler import Compiled, compile_graph, measure_memory, place, plan_exchanges
from mimdsim.compiler.place.collectives import best_trees, by_neighbours, direct, in_groups
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.machine.topology import route_lengths, topology_graph
from mimdsim.numerics.columns import exchange_fragments
from mimdsim.pipeline import memory_profile
from mimdsim.profile import TiledProfile
from mimdsim.program import Copy, Program, Repeat, Superstep, TileMapping, Variable, verify
from mimdsim.program.vertex_boxes import spatial_mapping
from mimdsim.timing import time_program
from mimdsim.timing.discrete_event import run_chips
from mimdsim.timing.static_plan import synchronised_chips
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.workload import MappingOptions, filled_activity
from mimdsim.workload.description.mapping import Split

TOLERANCE = 1e-5


def machine(chips: int, tiles: int, **changes: Any) -> MimdMachine:
    """The tiny machine with `chips` chips of `tiles` tiles."""
    given = {"links.chips": chips, "chip.tiles": tiles} | {
        key.replace("__", "."): value for key, value in changes.items()
    }
    made = load_machine("tiny", given)
    assert isinstance(made, MimdMachine)
    return made


def compiled(network: SpikingNetwork, chips: int, tiles: int, **options: Any) -> Compiled:
    return compile_graph(training_graph(network), network, machine(chips, tiles), MappingOptions(**options))


def timed(made: Compiled, on: MimdMachine, share: float = 0.5) -> TiledProfile:
    activity = filled_activity(made.network, share)
    return time_program(made.program, on, activity, memory_profile(made.program, made.memory, on))


def chips_of(made: Compiled) -> list[int]:
    return [layer.chips[0] for layer in made.placement.layers]


# ---- parts of layers


def on_copies(chips: int, on_each: int, replicas: int = 2, **changes: Any) -> Compiled:
    """Three layers in copies, some on each chip, which each have two samples."""
    batch = 2 * chips * on_each
    network = small_network((24, 16, 16, 4), timesteps=3, batch=batch, capacities=(8, 8, 4))
    split = {
        layer.name: Split(batch=chips * on_each, neurons=4, replicas=replicas, chips=chips) for layer in network.layers
    }
    on = machine(chips, 60, **changes)
    return compile_graph(training_graph(network), network, on, MappingOptions(split=split, program="best"))


@pytest.mark.parametrize("on_each", [1, 2])
def test_copies_on_chips_meet_only_before_and_after_the_timesteps(on_each: int) -> None:
    made = on_copies(4, on_each)
    assert made.placement.chips == 4
    over_links = {
        superstep.name: times
        for superstep, times, _ in made.program.supersteps()
        if superstep.exchange is not None and superstep.exchange.link_bytes is not None
        if superstep.exchange.link_bytes.sum()
    }
    assert set(over_links.values()) == {1}
    assert any("share weights" in name for name in over_links)
    assert any("sum" in name for name in over_links)


def test_links_to_hosts_carry_what_their_chips_need() -> None:
    copies, layers = on_copies(4, 1), two_chips()
    whole = timed(copies, machine(4, 60)).host_seconds - machine(4, 60).host.request_seconds
    for chips, share in ((0, 1.0), (8, 1.0), (4, 1.0), (3, 0.75), (2, 0.5), (1, 0.25)):
        on = machine(4, 60, host__chips=chips)
        assert timed(copies, on).host_seconds - on.host.request_seconds == pytest.approx(share * whole, rel=1e-9)
    # whole layers: the input is on the first chip, the labels on the last
    alone, shared = (timed(layers, machine(2, 6, host__chips=chips)).host_seconds for chips in (1, 2))
    labels = 4 * layers.network.batch / machine(2, 6).host.bytes_per_second
    assert shared - alone == pytest.approx(labels, rel=1e-6)


@pytest.mark.parametrize(("chips", "on_each", "replicas"), [(2, 1, 2), (2, 4, 1), (4, 2, 2), (8, 2, 1)])
def test_gradients_and_weights_cross_links_as_often_as_they_must(chips: int, on_each: int, replicas: int) -> None:
    """Reduce-scatter and all-gather: every chip sends each other one its sums of that chip's share of the weights, and
    its own share of the weights."""
    made = on_copies(chips, on_each, replicas)
    weights = sum(4 * layer.inputs * layer.neurons for layer in made.network.layers)
    sent = {"sum": np.zeros(chips, np.int64), "share": np.zeros(chips, np.int64)}
    for superstep, _, _ in made.program.supersteps():
        if superstep.exchange is not None and superstep.exchange.link_bytes is not None:
            sent["share" if "share weights" in superstep.name else "sum"] += superstep.exchange.link_bytes.sum(axis=1)
    for of_chips in sent.values():
        assert of_chips.sum() == (chips - 1) * weights


@pytest.mark.parametrize("left_out", ["side by side", "apart"])
def test_exchanges_are_counted_alike_without_what_makes_counting_fast(
    left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies side by side and pieces known to be apart: without either, band by band and element by element."""
    program = on_copies(4, 2).program
    if left_out == "apart":
        monkeypatch.setattr(exchange_fragments, "are_apart", lambda _: False)
    else:
        monkeypatch.setattr(TileMapping, "side_by_side", lambda *_: None)
    slowly = plan_exchanges(program)
    assert not verify(slowly, slowly.tiles)
    for (one, _, _), (other, _, _) in zip(program.supersteps(), slowly.supersteps(), strict=True):
        assert (one.exchange is None) == (other.exchange is None)
        if one.exchange is not None and other.exchange is not None:
            assert np.array_equal(one.exchange.tiles, other.exchange.tiles)
            assert np.array_equal(one.exchange.columns, other.exchange.columns)
            assert np.array_equal(one.exchange.link_bytes, other.exchange.link_bytes)


SLOW = {"links__bytes_per_second": 1e6}  # so that all that counts is bytes


def test_slow_links_carry_weights_and_sums_between_neighbours_alone() -> None:
    made = on_copies(8, 2, **SLOW)
    graph = topology_graph(machine(8, 60).links)
    crossing = [step.exchange for step, _, _ in made.program.supersteps() if step.exchange is not None]
    rounds = [each for exchange in crossing if exchange.link_bytes is not None for each in exchange.rounds]
    assert len(rounds) == 2 * 4
    assert not [step.name for step, _, _ in made.program.supersteps() if step.name.endswith((" of", ","))]
    for each in rounds:
        sender, reader = np.nonzero(each)
        assert all(graph.has_edge(*edge) for edge in zip(sender.tolist(), reader.tolist(), strict=True))
    weights = sum(4 * layer.inputs * layer.neurons for layer in made.network.layers)
    assert sum(each.sum() for each in rounds) == 2 * 7 * weights


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("chips", "topology", "crossings", "shares"),  # shares: of the weights, over the fullest edge
    [
        *((2, "ladder", 1, 1), (4, "ladder", 1, 2), (16, "ladder", 8, 8), (8, "ring", 4, 4), (16, "torus", 4, 4)),
        *((8, "all_to_all", 1, 1), (8, "switch", 1, 7)),
    ],
)
def test_sums_over_chips_take_what_their_bytes_take(chips: int, topology: str, crossings: int, shares: int) -> None:
    """All-reduce by its closed form where nothing contends: the chip with fewest edges gets what the others have over
    all of them at once, a share of each on an edge at a time, and passes its sums on as fast."""
    network = small_network((600, 504, 18), timesteps=2, batch=2 * chips, capacities=(10, 5))
    split = {layer.name: Split(batch=chips, neurons=6, replicas=1, chips=chips) for layer in network.layers}
    changes = {"links__topology": topology, "tile__sram_bytes": "4 MiB"}
    on = machine(chips, 60, **changes)
    made = compile_graph(training_graph(network), network, on, MappingOptions(split=split, program="best"))
    spans = [span for span in timed(made, on).spans if span.link_cycles]
    weights = sum(4 * layer.inputs * layer.neurons for layer in network.layers)
    edge = on.links.links_per_edge * on.links.bytes_per_second / on.chip.clock_hz
    fixed = (on.links.fixed_seconds + on.links.hop_seconds) * on.chip.clock_hz
    expected = 2 * (shares * weights / chips / edge + crossings * fixed)
    assert sum(span.link_cycles for span in spans) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("topology", ["line", "ring", "ladder", "torus", "all_to_all"])
@pytest.mark.parametrize("chips", [2, 3, 4, 7, 8, 9, 16])
def test_trees_reach_every_chip_from_one_that_has_it(chips: int, topology: str) -> None:
    on = machine(chips, 4, links__topology=topology)
    graph = topology_graph(on.links)
    near = by_neighbours(tuple(tuple(sorted(graph[chip])) for chip in range(chips)))
    assert near is not None
    sizes = [size for size in (2, 4) if chips in (size, size**2, size**3, size**4)]
    for trees in (direct(chips), near, *(in_groups(chips, size) for size in sizes)):
        root, chip = np.nonzero(~np.eye(chips, dtype=bool))
        assert (trees.step[root, trees.parent[root, chip]] < trees.step[root, chip]).all()
        assert (np.diag(trees.step) == 0).all()
        assert (np.diag(trees.parent) == np.arange(chips)).all()
        passed = {
            (root, member)
            for step in range(1, trees.steps + 1)
            for root, _, first, last in trees.passed_on[step]
            for member in trees.order[root, first:last].tolist()
        }
        assert len(passed) == chips * (chips - 1)
    edges = [
        (int(near.parent[root, chip]), chip, int(near.step[root, chip]))
        for root in range(chips)
        for chip in range(chips)
        if chip != root
    ]
    assert len(set(edges)) == len(edges)  # one share at a time in each direction
    assert all(graph.has_edge(giver, taker) for giver, taker, _ in edges)
    fewest = min(degree for _, degree in graph.degree)
    least = max(-(-(chips - 1) // fewest), int(route_lengths(on.links).max()))
    assert least <= near.steps <= least + (chips == 9 and topology == "torus")  # over all edges of a chip at once


def test_the_kind_of_trees_is_the_one_that_takes_least_time() -> None:
    chips = np.arange(16)[:, None]
    on = machine(16, 4)
    sizes = (1_000, 4_000, 16_000_000)
    found = [best_trees(chips, nbytes, on) for nbytes in sizes]
    assert [trees.kind for trees in found] == ["direct", "groups of 4", "neighbours"]
    for trees, nbytes in zip(found, sizes, strict=True):
        for other in (direct(16), in_groups(16, 2), in_groups(16, 4)):
            assert trees.seconds(chips, nbytes, on) <= other.seconds(chips, nbytes, on)
    assert best_trees(chips, 16_000_000, machine(16, 4, links__topology="all_to_all")).kind == "direct"


def test_a_relay_that_passes_on_what_a_chip_does_not_have_is_refused() -> None:
    made = on_copies(8, 1, **SLOW)
    (relay,) = {copy.relay for step, _, _ in made.program.supersteps() for copy in step.copies if copy.relay}
    early = replace(relay, step=tuple(tuple(min(1, step) for step in row) for row in relay.step))

    def changed(superstep: Superstep) -> Superstep:
        return replace(
            superstep, copies=tuple(replace(copy, relay=early) if copy.relay else copy for copy in superstep.copies)
        )

    with pytest.raises(MappingError, match=r"by way of chip \d+ in round 1, before that chip has it"):
        plan_exchanges(made.program.map_supersteps(changed))


def test_layers_on_more_chips_than_there_are_do_not_fit() -> None:
    network = small_network((24, 16, 4), batch=4, capacities=(8, 4))
    with pytest.raises(DoesNotFit, match="chips = 3 and the machine has 2 chips"):
        compiled(network, 2, 60, split={"hidden0": Split(batch=4, neurons=1, chips=3)})
    with pytest.raises(DoesNotFit, match="on 2 chips"):
        compiled(network, 2, 60, split={"hidden0": Split(batch=4, neurons=16, inputs=4, chips=2)})


@pytest.mark.slow
def test_a_run_shows_both_answers_to_who_waits() -> None:
    parts = {"batch": 2, "chips": 2, "neurons": 8}
    changes = {"data.timesteps": 3, "training.batch": 8, "training.max_training_steps": 1, "links.chips": 2}
    changes |= {"chip.tiles": 60, "training.evaluate": "never", "network.hidden": (24,), "network.capacity": (8, 5)}
    for layer in ("hidden0", "output"):
        changes[f"mapping.split.{layer}"] = parts
    profile = mimdsim.run("digits", "bow", changes=changes, gpus=()).profile
    (other,) = profile.tiled_beside
    assert profile.tiled is not None
    assert other.title.startswith("2 chips, each stopped by the exchanges of all: Graphcore Bow")
    assert other.sync_cycles > profile.tiled.sync_cycles
    assert other.device_ends[1] > profile.tiled.device_ends[1]


# ---- values


@st.composite
def machines_for(draw: Any, network: SpikingNetwork) -> tuple[int, int, dict[str, Any]]:
    """(chips, tiles, options) that hold `network`, as few tiles as the layers allow so that chips are needed."""
    per_tile = draw(st.sampled_from([2, 4]))
    needed = [-(-layer.neurons // per_tile) for layer in network.layers]
    tiles = max(needed) + draw(st.integers(0, 3)) + 1
    options = {
        "neurons_per_tile": per_tile,
        "weight_gradient_replicas": draw(st.integers(1, 6)),
        "states_per_worker": draw(st.sampled_from([1, 3, 64])),
        "state_gradient": draw(st.sampled_from(["tilewise", "per_batch"])),
    }
    for chips in (1, 2, 3, 4):
        try:
            place(network, tiles, 6, MappingOptions(**options), chips)
        except DoesNotFit:
            continue
        return draw(st.integers(chips, 4)), tiles, options
    raise AssertionError("a chip for every layer must be enough")


@pytest.mark.slow
@settings(SMALL, max_examples=60)
@given(data=st.data(), network=networks(), seed=SEEDS)
def test_execution_on_several_chips_is_interpretation(data: st.DataObject, network: SpikingNetwork, seed: int) -> None:
    chips, tiles, options = data.draw(machines_for(network))
    made = compiled(network, chips, tiles, **options)
    assert verify(made.program, made.program.tiles) == ()
    values = given_values(network, seed)
    found, expected = executed(made, values), interpreted(network, values)
    assert_same_spikes(found, expected)
    np.testing.assert_array_equal(found.counts, expected.counts)
    for name, potential in expected.potentials.items():
        np.testing.assert_array_equal(found.potentials[name], potential)
        assert relative_error(found.gradients[name], expected.gradients[name]) < TOLERANCE
        assert relative_error(found.updated[name], expected.updated[name]) < TOLERANCE
    for layer in made.placement.layers:  # whole layers, with all that belongs to them on their chip
        assert set((layer.tiles // tiles).tolist()) == {layer.chips[0]}
        assert set((layer.selection_tiles // tiles).ravel().tolist()) == {layer.chips[0]}
    assert chips_of(made) == sorted(chips_of(made))
    chips = {layer.name: layer.chips[0] for layer in made.placement.layers}
    for (name, _), plan in made.placement.reductions.items():
        first = plan.first_tiles[min(plan.first_tiles)]
        assert first // tiles == (first + plan.tiles - 1) // tiles == chips[name]


@pytest.mark.parametrize("chips", [2, 3])
@pytest.mark.parametrize("state_gradient", ["tilewise", "per_batch"])
def test_strict_execution_on_several_chips_gives_the_same_bits(chips: int, state_gradient: str) -> None:
    network = small_network((5, 5, 6, 3), timesteps=4, batch=3, capacities=(3, 3, 3), optimiser=ADAM)
    values = given_values(network, 6, dyadic=False)
    made = compiled(network, chips, {2: 6, 3: 4}[chips], neurons_per_tile=2, state_gradient=state_gradient)
    assert len(set(chips_of(made))) == chips
    fast = executed(made, values)
    assert max(np.abs(gradient).max() for gradient in fast.gradients.values()) > 0
    assert_same_bits(executed(made, values, strict=True), fast)


def test_the_number_of_chips_changes_no_spike() -> None:
    network = small_network((20, 16, 16, 16, 4), timesteps=6, batch=4, capacities=(8, 8, 8, 4))
    values = given_values(network, 7)
    one = executed(compiled(network, 1, 40, neurons_per_tile=2), values)
    assert one.counts.sum() > 0
    for chips, tiles in ((2, 18), (3, 10), (4, 9)):
        made = compiled(network, chips, tiles, neurons_per_tile=2)
        assert max(chips_of(made)) == chips - 1
        assert_same_spikes(executed(made, values), one)


# ---- placement


def test_a_layer_that_needs_a_whole_chip_leaves_the_first_one_empty() -> None:
    network = small_network((6, 8, 3), timesteps=3)
    made = compiled(network, 3, 4, neurons_per_tile=2)  # 4 tiles; the first chip has 3 beside its reserved one
    assert chips_of(made) == [1, 2]
    values = given_values(network, 3)
    assert_same_spikes(executed(made, values), interpreted(network, values))


def test_a_layer_wider_than_a_chip_is_refused() -> None:
    network = small_network((6, 10, 3))
    said = (
        r"with 2 neurons per tile the 2 layers need 7 tiles, 15 are usable on 4 chips, and no layer may straddle two: "
        r"raise mapping.neurons_per_tile, or set it to 0"
    )
    with pytest.raises(DoesNotFit, match=said):
        compiled(network, 4, 4, neurons_per_tile=2)
    assert compiled(network, 4, 4).placement.neurons_per_tile == 4  # let the compiler choose


def test_layers_that_would_straddle_are_refused_though_tiles_would_do() -> None:
    network = small_network((6, 6, 6, 6))  # 3 tiles each: 5 a chip hold only one of them
    with pytest.raises(DoesNotFit, match="the 3 layers need 9 tiles, 9 are usable on 2 chips, and no layer may"):
        compiled(network, 2, 5, neurons_per_tile=2)
    assert chips_of(compiled(network, 3, 5, neurons_per_tile=2)) == [0, 1, 2]


# ---- what crosses the links


@lru_cache(maxsize=4)
def two_chips() -> Compiled:
    """7-6-5-3, capacities 4, 3, 3, batch 3, 5 timesteps: the first hidden layer on one chip, the rest on the other."""
    made = compiled(small_network((7, 6, 5, 3), capacities=(4, 3, 3)), 2, 6, neurons_per_tile=2)
    assert chips_of(made) == [0, 1, 1]
    return made


def linked(program: Program) -> dict[str, np.ndarray]:
    """Link bytes of one execution of every superstep that uses links."""
    return {
        superstep.name: superstep.exchange.link_bytes
        for superstep, _, _ in program.supersteps()
        if superstep.exchange is not None and superstep.exchange.link_bytes is not None
    }


def test_link_bytes_of_two_chips_by_hand() -> None:
    """Batch 3: ids 3 x 4 and counts 3 x 2 go up, twice (forward; for gradients, which then need the counts again);
    3 x 4 gradients come down. All of 4 bytes."""
    lists, counts, gradients = 3 * 4 * 4, 3 * 2 * 4, 3 * 4 * 4
    found = linked(two_chips().program)
    assert {name: matrix.tolist() for name, matrix in found.items()} == {
        "hand on spikes": [[0, lists + counts], [0, 0]],
        "replicate ids": [[0, lists + counts], [0, 0]],
        "state gradient": [[0, 0], [gradients, 0]],
        "reduce parts": [[0, counts], [0, 0]],
    }


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_only_boundary_ids_counts_and_gradients_cross(optimiser: str) -> None:
    network = small_network((7, 6, 6, 6, 3), capacities=(4, 5, 2, 3))
    network = replace(network, optimiser=ADAM) if optimiser == "adam" else network
    made = compiled(network, 4, 4, neurons_per_tile=2)
    assert chips_of(made) == [0, 1, 2, 3]
    crossing: set[str] = set()
    for superstep, _, _ in made.program.supersteps():
        if superstep.exchange is None or superstep.exchange.link_bytes is None:
            continue
        assert superstep.phase in ("forward", "backward")
        sources, targets = np.nonzero(superstep.exchange.link_bytes)
        up = superstep.name != "state gradient"
        assert (targets - sources == (1 if up else -1)).all()  # the next layer is on the next chip
        for delivery in superstep.exchange.deliveries:
            if slow_link_bytes(made.program, superstep, delivery.variable).any():
                crossing.add(delivery.variable.split(".")[0])
    assert crossing == {"ids", "counts", "g"}


def element_tiles(variable: Variable, drop: bool) -> np.ndarray:
    """int64, shape of the variable without time: the tile that holds (or sends) each element."""
    shape = variable.shape[1:] if drop else variable.shape
    mapping = spatial_mapping(variable, drop)
    if mapping.is_replicated:
        return np.full(shape, mapping.tiles[0])
    flat = mapping.axis < 0
    held = np.full(int(np.prod(shape)) if flat else shape[mapping.axis], -1)
    for tile, start, stop in zip(mapping.tiles, mapping.starts, mapping.stops, strict=True):
        held[start:stop] = tile
    if flat:
        return held.reshape(shape)
    beside = [1] * len(shape)
    beside[mapping.axis] = -1
    return np.broadcast_to(held.reshape(beside), shape)


def slow_link_bytes(program: Program, superstep: Superstep, only: str = "") -> np.ndarray:
    """Element by element: what each chip must have from each other chip, once however many of its tiles read it."""
    assert superstep.exchange is not None
    per_chip = program.tiles_per_chip
    total = np.zeros((program.chips, program.chips), np.int64)
    wanted: dict[tuple[str, bool, int], np.ndarray] = {}
    for delivery in superstep.exchange.deliveries:
        if only and delivery.variable != only:
            continue
        variable = program.variables[delivery.variable]
        drop = delivery.boxes.shape[1] < len(variable.shape)
        for tile, box in zip(delivery.tiles.tolist(), delivery.boxes.tolist(), strict=True):
            key = (delivery.variable, drop, tile // per_chip)
            wished = wanted.setdefault(key, np.zeros(variable.shape[1:] if drop else variable.shape, bool))
            wished[tuple(slice(*bounds) for bounds in box)] = True
    for (name, drop, chip), wished in wanted.items():
        holders = element_tiles(program.variables[name], drop)[wished] // per_chip
        for source in range(program.chips):
            if source != chip:
                total[source, chip] += int((holders == source).sum()) * program.variables[name].item_bytes
    return total


@pytest.mark.parametrize("examples", [8, 25])
def test_link_bytes_are_the_elements_another_chip_wants(examples: int) -> None:
    @settings(SMALL, max_examples=examples)
    @given(data=st.data(), network=networks())
    def law(data: st.DataObject, network: SpikingNetwork) -> None:
        chips, tiles, options = data.draw(machines_for(network))
        program = compiled(network, chips, tiles, **options).program
        for superstep, _, _ in program.supersteps():
            exchange = superstep.exchange
            if exchange is None:
                continue
            expected = slow_link_bytes(program, superstep)
            found = np.zeros_like(expected) if exchange.link_bytes is None else exchange.link_bytes
            np.testing.assert_array_equal(found, expected, err_msg=superstep.name)
            assert (exchange.link_bytes is None) == (not expected.any())
            # what a chip sends over links some of its tiles send; what it gets over links some of its tiles receive
            sent = exchange.bytes_sent.reshape(program.chips, -1).sum(axis=1)
            received = exchange.bytes_received.reshape(program.chips, -1).sum(axis=1)
            assert (found.max(axis=1) <= sent).all()
            assert (found.sum(axis=0) <= received).all()
            assert (np.diag(found) == 0).all()

    law()


def test_a_network_that_fits_one_chip_uses_no_links() -> None:
    made = compiled(small_network((7, 6, 5, 3)), 3, 24, neurons_per_tile=2)
    assert set(chips_of(made)) == {0}
    assert linked(made.program) == {}
    assert sum(span.link_cycles for span in timed(made, machine(3, 24)).spans) == 0


# ---- time


def segments_of(made: Compiled, on: MimdMachine, share: float) -> tuple[np.ndarray, np.ndarray]:
    """(float[segments, chips] cycles of each chip alone, int64[segments, chips, chips] bytes at the end of each).

    Turn by turn: a segment ends before a superstep that uses links, and where a turn of a repeat begins.
    """
    program = made.program
    loads = iter(program_loads(program, filled_activity(made.network, share), TileIssue.of(on)))
    size = on.links.chips
    own: list[np.ndarray] = [np.zeros(size)]
    traffic: list[np.ndarray] = []

    def close(matrix: np.ndarray | None) -> None:
        moved = np.zeros((size, size), np.int64)
        if matrix is not None:
            moved[: len(matrix), : len(matrix)] = matrix
        traffic.append(moved)
        own.append(np.zeros(size))

    for item in program.body:
        body = list(item.body) if isinstance(item, Repeat) else [item]
        found = [next(loads) for _ in body]
        for t in range(item.times if isinstance(item, Repeat) else 1):
            if isinstance(item, Repeat):
                close(None)
            for superstep, load in zip(body, found, strict=True):
                exchange = superstep.exchange
                uses_links = exchange is not None and exchange.link_bytes is not None
                if exchange is not None and uses_links:
                    close(exchange.link_bytes)
                for chip in range(program.chips):
                    tiles = slice(chip * program.tiles_per_chip, (chip + 1) * program.tiles_per_chip)
                    own[-1][chip] += load.cycles_by_execution[t, chip]
                    if exchange is None or not (exchange.bytes_sent[tiles] + exchange.bytes_received[tiles]).any():
                        continue
                    wire = np.maximum(exchange.bytes_sent[tiles], exchange.bytes_received[tiles])
                    control = 2 * (exchange.fragments_sent[tiles] + exchange.fragments_received[tiles])
                    own[-1][chip] += np.ceil(np.maximum(wire / on.exchange.bytes_per_cycle, control)).max()
                    own[-1][chip] += on.exchange.fixed_cycles + (0 if uses_links else on.sync.internal_cycles)
        if isinstance(item, Repeat):
            close(None)
    close(None)
    return np.array(own[:-1]), np.array(traffic)


# no bus shared: the test knows how tiles share one only from the tally
BARE: dict[str, Any] = {"exchange__tiles_per_bus": 1, "sync__external_cycles": 0, "sync__loop_cycles": 0}
NETWORKS = {
    "two": ((7, 6, 5, 3), 2, 6),
    "three": ((7, 6, 5, 3), 3, 4),
    "four": ((12, 8, 8, 8, 4), 4, 5),
    "alternating": ((30, 4, 16, 4, 16, 3), 3, 11),  # now one chip is the slowest, now another
}


@pytest.mark.first(2)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_critical_path_is_that_of_chips_as_processes(name: str, share: float) -> None:
    widths, chips, tiles = NETWORKS[name]
    on = machine(chips, tiles, **BARE)
    made = compiled(small_network(widths), chips, tiles, neurons_per_tile=2)
    assert max(chips_of(made)) == chips - 1
    own, traffic = segments_of(made, on, share)
    run = run_chips(compute_seconds=own / on.chip.clock_hz, traffic=traffic, links=on.links, external_sync_seconds=0.0)
    profile = timed(made, on, share)
    exchanges = int((traffic.sum(axis=(1, 2)) > 0).sum())
    assert exchanges == 4 * 5  # four supersteps in each of five timesteps
    assert profile.cycles == pytest.approx(run.end_seconds * on.chip.clock_hz, abs=exchanges)  # links: whole cycles
    assert max(run.waiting_seconds) > 0


def test_external_syncs_are_paid_per_global_exchange_and_turn() -> None:
    made = two_chips()
    none, some = (timed(made, machine(2, 6, sync__external_cycles=cycles)) for cycles in (0, 1000))
    assert some.cycles - none.cycles == 1000 * (4 * 5 + 2 * 5)
    assert some.sync_cycles - none.sync_cycles == some.cycles - none.cycles


def test_all_chips_wait_a_share_of_a_global_exchange() -> None:
    made = two_chips()
    none, some = (timed(made, machine(2, 6, sync__exchange_share=share)) for share in (0.0, 0.5))
    crossed = 0
    for before, after in zip(none.spans, some.spans, strict=True):
        more = after.sync_cycles - before.sync_cycles
        assert after.exchange_cycles == before.exchange_cycles
        assert more == pytest.approx(0.5 * after.exchange_cycles, abs=after.times)
        crossed += after.link_cycles > 0
    assert crossed
    assert some.cycles - none.cycles == some.sync_cycles - none.sync_cycles > 0


def test_one_chip_of_many_is_as_fast_as_the_machine_with_one() -> None:
    network = small_network((7, 6, 5, 3))
    alone = timed(compiled(network, 1, 24, neurons_per_tile=2), machine(1, 24))
    among = timed(compiled(network, 4, 24, neurons_per_tile=2), machine(4, 24))
    for part in ("compute_cycles", "exchange_cycles", "sync_cycles", "host_exposed_seconds"):
        assert getattr(among, part) == getattr(alone, part), part
    assert among.seconds_per_training_step == alone.seconds_per_training_step


@pytest.mark.slow
def test_a_chip_that_is_not_used_changes_nothing() -> None:
    made = two_chips()
    for topology in ("line", "ladder", "all_to_all", "switch"):
        used = timed(made, machine(2, 6, links__topology=topology))
        more = compiled(made.network, 4, 6, neurons_per_tile=2)
        assert timed(more, machine(4, 6, links__topology=topology)).cycles == used.cycles
        # the program of two chips on a machine with more of them
        assert timed(made, machine(4, 6, links__topology=topology)).cycles == used.cycles


def test_when_every_sync_is_one_of_all_chips_library_programs_follow_each_other() -> None:
    made = two_chips()
    own, every = timed(made, machine(2, 6)), timed(made, machine(2, 6, sync__scope="all"))
    assert every.cycles > own.cycles
    one = compiled(small_network((7, 6, 5, 3)), 1, 24, neurons_per_tile=2)
    assert timed(one, machine(1, 24, sync__scope="all")).cycles == timed(one, machine(1, 24)).cycles
    moving = sum(times for step, times, _ in made.program.supersteps() if step.exchange and step.exchange.moves)
    executions = moving + sum(span.times for span in every.spans if span.op == "repeat")
    longer = timed(made, machine(2, 6, sync__scope="all", sync__external_cycles=1200, sync__internal_cycles=0))
    before = timed(made, machine(2, 6, sync__scope="all", sync__external_cycles=200, sync__internal_cycles=0))
    assert longer.sync_cycles - before.sync_cycles == 1000 * executions


def test_fewer_chips_than_the_program_has_are_refused() -> None:
    with pytest.raises(MappingError, match=r"placed on 2 chip\(s\) of 6 tiles, tiny has 1 of 6: compile it for this"):
        timed(two_chips(), machine(1, 6))


def test_more_and_faster_links_are_never_slower() -> None:
    made = two_chips()

    def link_cycles(**changes: Any) -> int:
        return sum(span.link_cycles for span in timed(made, machine(2, 6, **changes)).spans)

    def cycles(**changes: Any) -> int:
        return timed(made, machine(2, 6, **changes)).cycles

    by_number = [cycles(links__links_per_edge=number) for number in (1, 2, 4, 8)]
    assert by_number == sorted(by_number, reverse=True)
    assert by_number[0] > by_number[-1]
    by_rate = [cycles(links__bytes_per_second=rate) for rate in (1e7, 1e8, 1e9, 1e12)]
    assert by_rate == sorted(by_rate, reverse=True)
    for field in ("fixed_seconds", "hop_seconds"):
        slower = [cycles(**{f"links__{field}": seconds}) for seconds in (0, 1e-6, 1e-5)]
        assert slower == sorted(slower)
        assert slower[0] < slower[-1]
    # bytes alone: 72 + 72 + 48 + 24 a timestep at a byte a cycle
    assert link_cycles(links__fixed_seconds=0, links__hop_seconds=0) == 5 * (72 + 72 + 48 + 24)


def copies_between(*moves: tuple[int, int], chips: int = 3, tiles: int = 2, nbytes: int = 4000) -> Program:
    """One superstep that copies `nbytes` from the first tile of a chip to the first tile of another, for every move."""
    variables, copies = {}, []
    for number, ends in enumerate(moves):
        names = [f"{side}{number}" for side in ("source", "target")]
        for name, chip in zip(names, ends, strict=True):
            variables[name] = Variable(
                name=name,
                shape=(nbytes // 4,),
                dtype="float32",
                mapping=TileMapping.on(chip * tiles, 0, nbytes // 4),
                category="gradients",
            )
        copies.append(Copy(source=names[0], target=names[1]))
    step = Superstep(name="move", op="copy", phase="forward", stage="move", copies=tuple(copies))
    given = {copy.source: copy.source for copy in copies}
    program = Program(
        tiles=chips * tiles, variables=variables, body=(step,), layers=(), inputs=given, outputs={}, chips=chips
    )
    return plan_exchanges(program)


def moved(program: Program, **changes: Any) -> TiledProfile:
    on = machine(3, 2, **{"links__topology": "line", "links__hop_seconds": 0, **changes})
    memory = measure_memory(program, on)
    return time_program(program, on, filled_activity(small_network(), 0), memory_profile(program, memory, on))


def moving_cycles(program: Program, **changes: Any) -> int:
    return sum(span.link_cycles for span in moved(program, **changes).spans)


def test_two_messages_over_one_edge_take_longer() -> None:
    fixed = 1270  # 1.27 us at 1 GHz; a byte a cycle over a link
    assert moving_cycles(copies_between((0, 2))) == fixed + 4000
    assert moving_cycles(copies_between((1, 2))) == fixed + 4000
    assert moving_cycles(copies_between((0, 2), (1, 2))) == fixed + 8000  # both over the edge from 1 to 2
    assert moving_cycles(copies_between((0, 1), (1, 2))) == fixed + 4000  # an edge each
    assert moving_cycles(copies_between((0, 2), (2, 0))) == fixed + 4000  # a direction each
    assert moving_cycles(copies_between((0, 2), (1, 2)), links__links_per_edge=2) == fixed + 4000


@pytest.mark.parametrize(("topology", "edges"), [("line", 2), ("ring", 1), ("switch", 2)])
def test_a_byte_costs_energy_on_every_edge_of_its_way(topology: str, edges: int) -> None:
    energy = moved(copies_between((0, 2)), links__topology=topology).energy
    assert energy is not None
    (joules,) = (part.joules for part in energy.parts if part.name == "links between chips")
    assert joules == pytest.approx(edges * 4000 * 40e-12)


def test_pieces_of_one_tile_follow_each_other_beside_the_bytes() -> None:
    twice = copies_between((0, 1), (0, 1))
    assert moving_cycles(twice, links__piece_seconds=1e-6) == 1270 + 8000  # the bytes take longer than two pieces
    assert moving_cycles(twice, links__piece_seconds=1e-5) == 1270 + 20_000
    assert moving_cycles(copies_between((0, 1), (1, 0)), links__piece_seconds=1e-5) == 1270 + 10_000  # of two tiles
    assert moving_cycles(copies_between((0, 2)), links__piece_seconds=1e-5) == 1270 + 20_000  # over two edges
    apart = copies_between((1, 0), (1, 2))  # for two chips, side by side
    assert moving_cycles(apart, links__piece_seconds=1e-5) == 1270 + 10_000


def test_a_chip_that_only_arranges_waits_for_nobody() -> None:
    """Rows put together from what a tile holds itself need no sync, whatever happens on other chips."""
    program = copies_between((0, 1), chips=3)
    (superstep,) = (step for step, _, _ in program.supersteps())
    exchange = superstep.exchange
    assert exchange is not None
    local = np.zeros((len(exchange.columns), 1), np.int64)
    local[5] = 3  # fragments arranged
    inside = replace(
        exchange,
        tiles=np.append(exchange.tiles, 4),
        columns=np.hstack([exchange.columns, local]),
        link_bytes=None,
    )
    waiting = synchronised_chips(program, replace(superstep, exchange=inside))
    assert waiting.tolist() == [True, True, False]
    assert synchronised_chips(program, replace(superstep, exchange=exchange)).all()  # over links: all of them
