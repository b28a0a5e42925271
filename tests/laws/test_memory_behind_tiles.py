"""Laws of the memory behind the tiles: what it saves, what streaming takes, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import timed as timed_by_hand
from networks import small_network

import mimdsim
from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.compiler import Compiled, compile_graph, memory_profile, plan_exchanges
from mimdsim.costs.memory_behind_tiles import transfer_cycles, transfers_of
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline.identity import descriptions_digest
from mimdsim.profile import TiledProfile, load_profile
from mimdsim.program import Codelet, Program, Repeat, Superstep, TileMapping, Variable, VertexTable, WorkerBundles
from mimdsim.program.codelet import fields_of
from mimdsim.report.headline import _bottleneck
from mimdsim.report.trace import write_trace
from mimdsim.timing import explain, time_program
from mimdsim.workload import MappingOptions, filled_activity, load_workload

EVERYTHING = ("stash", "optimiser", "weights")
FREE = {"bytes_per_cycle": 1e15, "latency_cycles": 0}
NETWORKS = {
    "lists": small_network((20, 24, 16, 4), timesteps=6, batch=6, capacities=(8, 6, 4)),
    "dense": replace(small_network((20, 24, 16, 4), timesteps=6, batch=6, capacities=(8, 6, 4)), spikes="dense"),
}


def machine(chips: int = 1, base: str = "bow", tiles: int = 64, without: tuple[str, ...] = (), **memory: Any) -> Any:
    keys: dict[str, Any] = {"capacity_bytes": "1 GiB", "bytes_per_cycle": 8, "latency_cycles": 100} | memory
    if "tiles_per_channel" not in keys:
        keys.setdefault("channels", 4)
    keys["joules_per_byte"] = "50 pJ/B"
    keys["sources"] = dict.fromkeys(keys, "assumed: for tests")
    small = {"chip.tiles": tiles, "chip.grid_columns": 8, "links.chips": chips}
    return mimdsim.Machine(base, small, name="behind", memory=keys)


def compiled(
    on: MimdMachine, kinds: tuple[str, ...], network: SpikingNetwork = NETWORKS["lists"], **options: Any
) -> Compiled:
    given = MappingOptions(behind_tiles=kinds, **options)
    return compile_graph(training_graph(network), network, on, given)


def timed(made: Compiled, on: MimdMachine) -> TiledProfile:
    memory = memory_profile(made.program, made.memory, on)
    return time_program(made.program, on, filled_activity(made.network, 0.5), memory)


@pytest.mark.parametrize("chips", [1, 2])
def test_a_memory_that_nothing_lies_in_changes_nothing(chips: int) -> None:
    with_it = machine(chips)
    without = with_it.model_copy(update={"memory": None})
    one, other = (timed(compiled(on, ()), on) for on in (with_it, without))
    assert replace(one, assumptions=()) == replace(other, assumptions=())
    workload = load_workload("digits")
    assert descriptions_digest(workload, with_it) != descriptions_digest(workload, without)


@pytest.mark.parametrize("chips", [1, 2])
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_free_memory_takes_no_time(kind: str, chips: int) -> None:
    if kind == "dense" and chips > 1:
        pytest.skip("dense spikes are on one chip")
    on = machine(chips, **FREE)
    made, without = (compiled(on, kinds, NETWORKS[kind]) for kinds in (EVERYTHING, ()))
    behind, today = timed(made, on), timed(without, on)
    assert made.program.behind_tiles
    # a transfer takes a cycle if anything, which nothing hides where no tile computes that others wait for
    assert all(span.memory_cycles <= span.times * (span.compute_cycles == 0) for span in behind.spans)
    rest = [
        replace(span, memory_cycles=0, exchange_cycles=span.exchange_cycles - span.memory_cycles)
        for span in behind.spans
    ]
    assert rest == list(today.spans)


@pytest.mark.parametrize("chips", [1, 2])
@pytest.mark.parametrize(
    ("key", "slow_to_fast"),
    [
        ("bytes_per_cycle", (0.5, 1, 3, 8, 100)),
        ("latency_cycles", (1000, 300, 77, 5, 0)),
        ("channels", (1, 2, 3, 12)),
        ("tiles_per_channel", (64, 32, 16, 8, 4, 1)),
    ],
)
def test_a_better_memory_is_never_slower(chips: int, key: str, slow_to_fast: tuple[float, ...]) -> None:
    made = compiled(machine(chips), EVERYTHING)
    cycles = [timed(made, machine(chips, **{key: value})).cycles for value in slow_to_fast]
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[0] > cycles[-1]


def test_one_cluster_is_one_channel() -> None:
    made = compiled(machine(), EVERYTHING)
    one, other = (timed(made, machine(**keys)) for keys in ({"tiles_per_channel": 64}, {"channels": 1}))
    assert one.spans == other.spans


@pytest.mark.parametrize("kinds", [*((kind,) for kind in EVERYTHING), EVERYTHING])
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("stash", ["everything", "every:3"])
def test_tiles_never_hold_more(kind: str, stash: str, kinds: tuple[str, ...]) -> None:
    if kind == "dense" and stash != "everything":
        pytest.skip("dense spikes keep everything")
    on = machine()
    behind, today = (compiled(on, each, NETWORKS[kind], stash=stash).memory for each in (kinds, ()))
    assert (behind.peak_by_tile <= today.peak_by_tile).all()
    assert (behind.fullest_bytes <= today.fullest_bytes).all()
    assert (behind.total_bytes <= today.total_bytes).all()
    if "stash" in kinds:
        assert behind.total_bytes.max() < today.total_bytes.max()


def test_of_a_sequence_two_entries_stay() -> None:
    made, today = (compiled(machine(), kinds).memory for kinds in (("stash",), ()))
    name = "v.hidden0.sequence"
    tiles, held = made.held[name]
    np.testing.assert_array_equal(held, today.held[name][1] * 2 // 6)  # of 6 timesteps
    np.testing.assert_array_equal(tiles, today.held[name][0])


@pytest.mark.parametrize("chips", [1, 2])
def test_explanations_sum_to_the_profile(chips: int) -> None:
    on = machine(chips, bytes_per_cycle=1)
    made = compiled(on, EVERYTHING)
    profile, activity = timed(made, on), filled_activity(made.network, 0.5)
    assert profile.memory_cycles
    told = 0.0
    for number, span in enumerate(profile.spans):
        found = explain(made.program, on, number, activity=activity)
        assert (found.compute_cycles, found.exchange_cycles, found.sync_cycles, found.cycles) == (
            span.compute_cycles, span.exchange_cycles, span.sync_cycles, span.cycles,
        )  # fmt: skip
        told += sum(row.cycles for row in found.exchange if row.what == "memory behind the tile, not hidden")
    assert told == profile.memory_cycles


def test_energy_and_doubts_add_up() -> None:
    on = machine()
    made = compiled(on, EVERYTHING)
    behind, today = timed(made, on), timed(compiled(on, ()), on)
    assert behind.energy is not None
    assert today.energy is not None
    (part,) = (part for part in behind.energy.parts if part.name == "memory behind the tiles")
    times = [times for _, times, _ in made.program.supersteps()]
    moved = sum(int(row.sum()) * each for row, each in zip(transfers_of(made.program).moved, times, strict=True))
    assert part.joules == pytest.approx(50e-12 * moved)
    assert part.kind == "assumed"
    others = [{one.name: one.joules for one in each.energy.parts[1:]} for each in (behind, today) if each.energy]
    assert {name: joules for name, joules in others[0].items() if name != part.name} == others[1]
    (doubt,) = (doubt for doubt in behind.doubts if doubt.name == "memory behind the tiles")
    assert (doubt.cycles, doubt.kind) == (behind.memory_cycles, "assumed")
    assert behind.exchange_cycles - behind.memory_cycles == today.exchange_cycles


def test_a_slow_memory_is_the_bottleneck() -> None:
    on = machine(bytes_per_cycle=0.01)
    assert _bottleneck(timed(compiled(on, EVERYTHING), on)).text.startswith("Memory behind the tiles takes 9")


SCALE = Codelet(
    name="Scale",
    fields=fields_of("update w[start:stop]; read x[@t, :]"),
    columns=("start", "stop"),
    compute=lambda w, x: None,
    cost=WorkerBundles(fixed=7, terms=(), kind="assumed", source="for tests"),
)


def by_hand() -> Program:
    """Two vertices on each of tiles 0 and 1 update 10 numbers each of w, and read the sequence x, an entry of 6 numbers
    on tile 2."""
    tiles, starts = np.array([0, 0, 1, 1]), np.arange(4) * 10
    table = VertexTable(
        codelet=SCALE, tiles=tiles, operands={"w": "w", "x": "x"}, columns={"start": starts, "stop": starts + 10}
    )
    variables = {
        "w": Variable(
            name="w", shape=(40,), dtype="float32", mapping=TileMapping.evenly(0, 40, np.arange(2)), persistent=True
        ),
        "x": Variable(name="x", shape=(3, 6), dtype="float32", mapping=TileMapping.on(2, 1, 6)),
    }
    variables = {name: replace(each, values=np.ones(each.shape, np.float32)) for name, each in variables.items()}
    body = (Repeat(times=3, body=(Superstep(name="scale", tables=(table,)),)),)
    return plan_exchanges(Program(tiles=4, variables=variables, body=body, behind_tiles=("w", "x")))


def test_transfers_of_a_program_by_hand() -> None:
    program = by_hand()
    found = transfers_of(program)
    # 20 floats there and back; 6 floats of the entry that others read, on the tile that sends them
    np.testing.assert_array_equal(found.moved, [[2 * 80, 2 * 80, 24, 0]])
    np.testing.assert_array_equal(found.pieces["w"], [80, 80, 0, 0])
    np.testing.assert_array_equal(found.pieces["x"], [0, 0, 24, 0])
    np.testing.assert_array_equal(found.held, [80, 80, 72, 0])
    assert found.bytes_moved(program) == 3 * (320 + 24)


@pytest.mark.parametrize(
    ("keys", "transfer"),
    [
        ({"channels": 2, "bytes_per_cycle": 1}, 344 / 2),
        ({"tiles_per_channel": 2, "bytes_per_cycle": 1}, 320),
        ({"tiles_per_channel": 1, "bytes_per_cycle": 1}, 160),
        ({"tiles_per_channel": 3, "bytes_per_cycle": 40}, 344 / 40),
    ],
)
def test_cycles_of_a_program_by_hand(keys: dict[str, Any], transfer: float) -> None:
    span, *_ = timed_by_hand(by_hand(), machine(tiles=16, **keys)).spans
    compute = span.compute_cycles / 3
    assert span.memory_cycles == 3 * (max(ceil(transfer) - compute, 0) + 100)


@pytest.mark.parametrize(("rate", "cycles"), [(344, 1), (343, 2), (100, 4), (1e6, 1)])
def test_a_transfer_occupies_the_cycle_that_it_began(rate: float, cycles: int) -> None:
    """As a message does on its way: 344 bytes, 3.44 cycles at 100 bytes each."""
    assert transfer_cycles(by_hand(), machine(tiles=16, channels=1, bytes_per_cycle=rate)).tolist() == [[cycles]]


def test_what_has_no_memory_behind_it_is_refused() -> None:
    on = machine()
    plain = on.model_copy(update={"memory": None})
    with pytest.raises(MappingError, match=r"mapping\.behind_tiles: behind has no memory behind its tiles"):
        compiled(plain, ("weights",))
    made = compiled(on, ("weights",))
    assert made.on(plain) is None
    with pytest.raises(MappingError, match="no memory behind its tiles"):
        timed(made, plain)
    dataflow = on.model_copy(update={"sync": on.sync.model_copy(update={"model": "dataflow"})})
    with pytest.raises(MappingError, match="dataflow"):
        timed(made, dataflow)
    small = machine(capacity_bytes=1024)
    held = int(transfers_of(made.program).held.sum())
    with pytest.raises(DoesNotFit, match=rf"puts {held:,} bytes .* memory\.capacity_bytes is 1,024"):
        compiled(small, ("weights",))
    with pytest.raises(DoesNotFit, match="capacity_bytes"):
        timed(made, small)


def test_a_memory_is_described_in_full() -> None:
    for keys in ({"channels": 4, "tiles_per_channel": 4}, {"channels": None}):
        with pytest.raises(DescriptionError, match="either channels"):
            machine(**keys)
    table = {"capacity_bytes": 1024, "channels": 1, "bytes_per_cycle": 1, "latency_cycles": 0}
    with pytest.raises(DescriptionError, match="has no joules_per_byte"):
        mimdsim.Machine("bow", name="m", memory=table | {"sources": dict.fromkeys(table, "assumed: t")})


@pytest.mark.slow
def test_what_would_fit_from_behind_the_tiles_is_told() -> None:
    network = replace(NETWORKS["lists"], timesteps=400)
    peaks = {kinds: compiled(machine(), kinds, network).memory.peak_bytes for kinds in ((), ("stash",))}
    assert peaks["stash",] < peaks[()]
    on = machine()
    tile = on.tile.model_copy(update={"sram_bytes": peaks["stash",], "executable_bytes": peaks["stash",]})
    on = on.model_copy(update={"tile": tile})
    with pytest.raises(DoesNotFit, match=r'or mapping\.behind_tiles = \["stash"\] would fit: streams [\d,]+ bytes'):
        compiled(on, (), network)
    assert compiled(on, ("stash",), network).memory.peak_bytes == peaks["stash",]
    least = compiled(on, EVERYTHING, network).memory.peak_bytes - 8
    less = on.model_copy(update={"tile": tile.model_copy(update={"sram_bytes": least, "executable_bytes": least})})
    with pytest.raises(DoesNotFit, match=r'mapping\.behind_tiles = .*"weights"] would still be 8 B over'):
        compiled(less, (), network)
    tiny = on.model_copy(update={"tile": tile.model_copy(update={"sram_bytes": 1024, "executable_bytes": 1024})})
    with pytest.raises(DoesNotFit, match=r'neuron states .* behind the tiles \(mapping\.behind_tiles = \["stash"\]'):
        compiled(tiny, (), network)
    with pytest.raises(DoesNotFit, match=r"tile \d+ .* needs"):
        compiled(tiny, ("stash",), network)


@pytest.mark.parametrize(("name", "gigabytes"), [("wormhole", 288), ("blackhole", 512)])
def test_published_bandwidths(name: str, gigabytes: float) -> None:
    on = load_machine(name)
    assert isinstance(on, MimdMachine)
    assert on.memory is not None
    rate = (on.memory.channels or 0) * on.memory.bytes_per_cycle * on.chip.clock_hz
    assert rate == pytest.approx(gigabytes * 1e9, rel=0.001)


@pytest.mark.slow
def test_a_run_tells_what_is_not_hidden(tmp_path: Path) -> None:
    short = {"data.timesteps": 6, "training.batch": 8, "training.max_training_steps": 1, "training.evaluate": "never"}
    behind = {"mapping.behind_tiles": EVERYTHING, "memory.bytes_per_cycle": 0.05}
    run, plain = (
        mimdsim.run("digits", "wormhole", changes=short | more, gpus=(), report=tmp_path / f"{len(more)}")
        for more in (behind, {})
    )
    tiled, today = run.profile.tiled, plain.profile.tiled
    assert tiled is not None
    assert today is not None
    assert tiled.cycles - tiled.memory_cycles + tiled.hidden_cycles == today.cycles + today.hidden_cycles
    assert run.profile.training == plain.profile.training
    assert np.asarray(run.critical_path()["cycles"]).sum() == tiled.cycles
    said = write_trace(tmp_path / "trace.json", run.profile, run.detail)
    assert said
    assert load_profile(tmp_path / "2" / "profile.json").tiled == tiled
    told = "transfers of the memory behind the tiles that compute does not hide"
    pages = [(tmp_path / folder / "report.html").read_text(encoding="utf-8") for folder in ("2", "0")]
    assert [told in page for page in pages] == [True, False]
