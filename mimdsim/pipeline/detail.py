"""Every tile in every superstep of a timed program, as the columns of `mimdsim.profile.detail`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.compiler import Memory
from mimdsim.costs.fabric import LinkLoads, fabric_of
from mimdsim.costs.isa_costs import with_machine_costs
from mimdsim.machine import MimdMachine
from mimdsim.profile.detail import PARTNERS, Detail, as_texts
from mimdsim.program import Program, RecordedActivity
from mimdsim.program.exchange_traffic import Pairs
from mimdsim.program.exchanges import count_pairs
from mimdsim.timing import bytes_accessed, contexts_with_work, cycles_in_timesteps, explain, machine_loads
from mimdsim.timing.critical_path import critical_path
from mimdsim.timing.tile_cycles import TileIssue

GROUPS = 64  # of tiles that lie side by side: at most so many, but FEWEST on every chip
FEWEST, MOST = 4, 32
MOST_CELLS = 1 << 24  # supersteps times tiles of which all is kept
MOST_WINDOW = 1 << 25  # cells of the window
MOST_LINKS = 1 << 25  # supersteps times links between routers
MOST_PAIRS = 1 << 26  # tiles times tiles of a chip that are counted one by one
WINDOW = range(10)  # timesteps that are kept one by one, unless others are chosen


def is_kept(program: Program) -> bool:
    """Whether single tiles of a program are kept: up to some 60 supersteps of 250,000 tiles, or 600 of 25,000."""
    return len(list(program.supersteps())) * program.tiles <= MOST_CELLS


def detail_of(
    program: Program,
    machine: MimdMachine,
    activity: RecordedActivity,
    memory: Memory,
    run: str,
    window: Sequence[int] = WINDOW,
) -> Detail:
    """The columns of a program timed with the counts of `activity`; run: what identifies its profile. The window is
    shorter where it would have over MOST_WINDOW cells, and links are left out over MOST_LINKS. Raises MimdsimError for
    a program too large (`is_kept`)."""
    if not is_kept(program):
        problem = f"over {MOST_CELLS:,} supersteps times tiles: single tiles are not kept; use explain"
        raise MimdsimError(f"a program of {program.tiles:,} tiles has {problem}")
    window = window[: max(1, MOST_WINDOW // (program.tiles * len(list(program.supersteps()))))]
    issue, timed = TileIssue.of(machine), with_machine_costs(program, machine)
    loads = machine_loads(program, machine, activity)
    path = critical_path(timed, machine, loads)
    supersteps = [(superstep, times) for superstep, times, _ in program.supersteps()]
    busy, exchange, sent, received, buffers = np.zeros((5, len(loads), program.tiles), np.int64)
    links = np.zeros((program.chips, program.chips), np.int64)
    codelets, explained = [], []
    for row, ((superstep, times), load) in enumerate(zip(supersteps, loads, strict=True)):
        busy[row] = load.busy
        on_slowest = [table.codelet.name for table in superstep.tables if (table.tiles == load.slowest_tile).any()]
        codelets.append(", ".join(dict.fromkeys(on_slowest)))
        explained.append(str(explain(program, machine, row, load.slowest_tile, activity)))
        moved = superstep.exchange
        if moved is not None:
            takes = fabric_of(machine).tile_cycles(program, moved) * times - path[row].hidden
            exchange[row, moved.tiles] = np.maximum(takes, 0)
            sent[row, moved.tiles] = moved.column("bytes_sent") * times
            received[row, moved.tiles] = moved.column("bytes_received") * times
            links += 0 if moved.link_bytes is None else moved.link_bytes * times
        if row in memory.buffers:
            tiles, size = memory.buffers[row]
            buffers[row, tiles] = size
    timesteps, chosen, by_timestep = cycles_in_timesteps(timed, activity, issue, window)
    return Detail(
        run=run,
        supersteps=as_texts([superstep.name for superstep, _ in supersteps]),
        codelets=as_texts(codelets),
        explained=as_texts(explained),
        busy=busy,
        exchange=exchange,
        sent=sent,
        received=received,
        contexts=contexts_with_work(timed, issue),
        bundles=np.array([load.bundles for load in loads], np.int64),
        flops=np.array([load.flops for load in loads], np.int64),
        accessed=bytes_accessed(program, activity),
        window_timesteps=timesteps,
        window_supersteps=chosen,
        window=by_timestep,
        buffers=buffers,
        links=links,
        **_memory_columns(program, memory),
        **_traffic_columns(program),
        **_link_columns(program, machine),
    )


def _memory_columns(program: Program, memory: Memory) -> dict[str, np.ndarray]:
    """Variables and where they lie; those that lie alike share the entry."""
    places = [memory.held[name] for name in memory.spans]
    different = {id(held): held for held in places}
    number = {key: at for at, key in enumerate(different)}
    nothing = np.zeros(0, np.int64)
    return {
        "variables": as_texts(list(memory.spans)),
        "categories": as_texts([program.variables[name].category for name in memory.spans]),
        "live": np.array(list(memory.spans.values()), np.int64).reshape(-1, 2),
        "holding": np.array([number[id(held)] for held in places], np.int64),
        "holding_begins": np.cumsum([0, *(len(tiles) for tiles, _ in different.values())]),
        "holding_tiles": np.concatenate([nothing, *(tiles for tiles, _ in different.values())]),
        "holding_bytes": np.concatenate([nothing, *(size for _, size in different.values())]),
        "vertices": memory.vertices,
        "code": memory.code,
    }


def bytes_between(program: Program, number: int) -> np.ndarray:
    """int64[tiles, tiles of a chip]: bytes that a tile sends to each tile of its chip in one superstep, over all its
    executions."""
    superstep, times, _ = list(program.supersteps())[number]
    pairs = replace(_pairs(program), times=times)
    if not len(pairs.by_tile):
        raise MimdsimError(f"{program.tiles:,} tiles are too many to count what each sends to each")
    if superstep.exchange is not None:
        count_pairs(program, superstep.exchange, pairs)
    return pairs.by_tile


def _pairs(program: Program) -> Pairs:
    per_chip = program.tiles_per_chip
    groups = min(per_chip, max(FEWEST, min(MOST, GROUPS // program.chips)))
    chip, within = np.divmod(np.arange(program.tiles), per_chip)
    return Pairs(
        by_tile=np.zeros((program.tiles, per_chip) if program.tiles * per_chip <= MOST_PAIRS else (0, 0), np.int64),
        by_group=np.zeros((program.chips * groups, program.chips * groups), np.int64),
        group_of=chip * groups + within * groups // per_chip,
    )


def _traffic_columns(program: Program) -> dict[str, np.ndarray]:
    """Who sends to whom: between groups by superstep, and of every tile those that it exchanges most with."""
    pairs = _pairs(program)
    traffic = [np.zeros((0, 4), np.int64)]
    for row, (superstep, times, _) in enumerate(program.supersteps()):
        if superstep.exchange is not None:
            pairs.by_group[:] = 0
            count_pairs(program, superstep.exchange, replace(pairs, times=times))
            sending, receiving = np.nonzero(pairs.by_group)
            flows = pairs.by_group[sending, receiving]
            traffic.append(np.stack([np.full(len(flows), row), sending, receiving, flows], axis=1))
    senders, sender_bytes = _most(program, pairs.by_tile, to_it=True)
    receivers, receiver_bytes = _most(program, pairs.by_tile, to_it=False)
    return {
        "group_of": pairs.group_of,
        "traffic": np.concatenate(traffic),
        "senders": senders,
        "sender_bytes": sender_bytes,
        "receivers": receivers,
        "receiver_bytes": receiver_bytes,
    }


def _link_columns(program: Program, machine: MimdMachine) -> dict[str, np.ndarray]:
    """Loads of the links between routers by superstep; none where there are no such links."""
    fabric, found = fabric_of(machine), dict[int, tuple[LinkLoads, int]]()
    steps = list(program.supersteps())
    for row, (superstep, times, _) in enumerate(steps):
        loaded = None if superstep.exchange is None else fabric.links(program, superstep.exchange)
        if loaded is not None:
            if len(steps) * loaded.loads.size > MOST_LINKS:
                return {}
            found[row] = loaded, times
    if not found:
        return {}
    one, _ = next(iter(found.values()))
    size, cycles = np.zeros((2, len(steps), one.loads.size), np.int64)
    for row, (loaded, times) in found.items():
        size[row] = np.rint(loaded.loads.reshape(-1) * times)
        cycles[row] = np.rint(loaded.cycles.reshape(-1) * times)
    used = np.flatnonzero((size > 0).any(axis=0))
    if not len(used):
        return {}
    return {
        "router_grid": np.array([*one.loads.shape[2:], one.crossbar], np.int64),
        "router_of": one.router_of,
        "link_number": used,
        "link_bytes": size[:, used],
        "link_cycles": cycles[:, used],
    }


def _most(program: Program, by_tile: np.ndarray, *, to_it: bool) -> tuple[np.ndarray, np.ndarray]:
    """(tiles int64[tiles, PARTNERS], their bytes): those that send most to each tile, or receive most from it, most
    first; -1 where there are fewer, and everywhere if pairs were not counted."""
    tiles, most = np.full((program.tiles, PARTNERS), -1), np.zeros((program.tiles, PARTNERS), np.int64)
    per_chip = program.tiles_per_chip
    count = min(PARTNERS, per_chip)
    for first in range(0, len(by_tile), per_chip):
        on_chip = by_tile[first : first + per_chip]
        for row in range(per_chip):
            size = on_chip[:, row] if to_it else on_chip[row]
            chosen = np.argpartition(-size, count - 1)[:count]
            chosen = chosen[np.lexsort((chosen, -size[chosen]))]
            most[first + row, :count] = size[chosen]
            tiles[first + row, :count] = np.where(size[chosen] > 0, first + chosen, -1)
    return tiles, most
