"""Where a superstep's cycles come from, on one tile: from its vertices to the figures of the profile, as exact sums.

`str(explain(...))` is a table. Its rows of compute sum to the busy cycles of the tile over all executions; with
those of waiting, to the compute cycles of the superstep; exchange and sync likewise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.costs.exchange_batch import busiest_tile
from mimdsim.costs.isa_costs import priced
from mimdsim.machine import Given, MimdMachine, tiled_machine
from mimdsim.profile import Span
from mimdsim.program import Program, RecordedActivity, Superstep
from mimdsim.timing.analytic import refuse_other_machine
from mimdsim.timing.critical_path import PathPart, all_waiting, critical_path
from mimdsim.timing.explain_compute import Workers, arranging_rows, library_row
from mimdsim.timing.explain_exchange import exchange_rows, sync_rows
from mimdsim.timing.explanation import Explanation, Row
from mimdsim.timing.recording import Recording
from mimdsim.timing.spans import loop_spans
from mimdsim.timing.static_plan import SuperstepPlan, program_plan
from mimdsim.timing.tile_cycles import Barrel, tile_cycles
from mimdsim.timing.tile_work import work_of_tile
from mimdsim.timing.worker_cycles import SuperstepLoad, program_loads

ROUNDING = 1e-9  # relative, of sums in another order
TILED = "only programs of tiled machines have supersteps to explain"
NOTHING = RecordedActivity(ids={}, counts={}, dropped={})


def explain(
    program: Program,
    machine: Given,
    superstep: str | int,
    tile: int | None = None,
    activity: RecordedActivity | None = None,
    timestep: int | None = None,
) -> Explanation:
    """Where the cycles of a superstep (given by name or by number among the spans of a profile) come from on a tile.

    machine: a tiled one, itself or by name. tile: by default the one with the most work in it. activity: recorded,
    needed if costs depend on it. timestep: the execution shown vertex by vertex, by default the longest on this tile.
    Raises MappingError for a superstep, tile or timestep that does not exist, and as `time_program` does.
    """
    machine = tiled_machine(machine, TILED)
    refuse_other_machine(program, machine)
    program = priced(program, machine)
    activity = activity or NOTHING
    barrel = Barrel.of(machine)
    loops = loop_spans(program, machine)
    names = [step.name for step, _, _ in program.supersteps()]
    number = _number(names + [span.name for span in loops], superstep)
    if number >= len(names):
        return _loop(loops[number - len(names)], machine)
    loads = program_loads(program, activity, barrel)
    load = loads[number]
    found, plan, times = _planned(program, barrel, number)
    tile = _tile(program, machine, found, load, tile)
    work = work_of_tile(found, plan.deal, tile, times, Recording(activity), barrel)
    workers = Workers([one for one in work if one.levels], times, barrel)
    arranging = arranging_rows(found, tile, barrel)
    libraries = [library_row(one, barrel) for one in work if not one.levels]
    compute = [*workers.rows(), *(row.times(times) for row in (*libraries, *arranging))]
    every = tile_cycles(workers.cycles, plan.beside_of(tile))
    _require_all(compute, int(load.busy[tile]), f"superstep '{found.name}' on tile {tile}")
    shown = _execution(every, times, timestep)
    part = critical_path(program, machine, loads)[number]
    chip = tile // program.tiles_per_chip
    waiting = all_waiting(program, machine)
    here, closes = int(waiting.exchange[number, chip]), bool(waiting.closes[number])
    synced = waiting.sync_of_all[number] if closes else waiting.sync[number, chip]
    return Explanation(
        superstep=found.name,
        phase=found.phase,
        machine=machine.name,
        tile=tile,
        slowest=tile == load.slowest_tile,
        times=times,
        alike=len(every) == 1,
        timestep=shown,
        issue_cycles=barrel.issue_cycles,
        contexts=workers.contexts(shown),
        work=workers.work(shown),
        compute=tuple(compute),
        waiting=_compute_waiting(load, part, np.broadcast_to(every, times), chip),
        exchange=exchange_rows(program, found, machine, part, here, tile, times),
        sync=sync_rows(machine, part, int(synced), closes, times),
    )


def _number(names: list[str], superstep: str | int) -> int:
    """A superstep's position among the spans of a profile, which lists loop control after the supersteps."""
    if isinstance(superstep, str) and not (superstep.isdecimal() and superstep not in names):
        places = [at for at, name in enumerate(names) if name == superstep]
        if not places:
            raise MappingError(f"no superstep '{superstep}' in the program{suggest(superstep, names)}")
        if len(places) > 1:
            raise MappingError(f"{len(places)} supersteps are called '{superstep}': give the number of one, {places}")
        return places[0]
    if not 0 <= int(superstep) < len(names):
        raise MappingError(f"no superstep {superstep} in the program, which has {len(names)}, counted from 0")
    return int(superstep)


def _loop(span: Span, machine: MimdMachine) -> Explanation:
    """The control of a repeat, which is a separate span in the profile."""
    counting = machine.sync.loop_cycles * span.times
    rows = (
        Row(what="counting on one tile", how=f"{machine.sync.loop_cycles} a turn x {span.times:,}", cycles=counting),
        Row(
            what="barrier that tells all tiles",
            how=f"{(span.sync_cycles - counting) // max(span.times, 1)} a turn x {span.times:,}",
            cycles=span.sync_cycles - counting,
        ),
    )
    return Explanation(
        superstep=span.name, phase=span.phase, machine=machine.name, tile=0, slowest=True, times=span.times,
        alike=True, timestep=0, issue_cycles=machine.tile.issue_cycles, contexts=(), work=(), compute=(), waiting=(),
        exchange=(), sync=rows,
    )  # fmt: skip


def _planned(program: Program, barrel: Barrel, number: int) -> tuple[Superstep, SuperstepPlan, int]:
    for stretch in program_plan(program, barrel):
        if number < len(stretch.plans):
            return stretch.supersteps[number], stretch.plans[number], stretch.times
        number -= len(stretch.plans)
    raise IndexError(number)


def _tile(program: Program, machine: MimdMachine, superstep: Superstep, load: SuperstepLoad, tile: int | None) -> int:
    if tile is not None:
        if not 0 <= tile < program.tiles:
            raise MappingError(f"no tile {tile}: the program has tiles 0 to {program.tiles - 1}")
        return tile
    if not load.busy_cycles and superstep.exchange is not None:
        busiest = busiest_tile(program, superstep.exchange, machine.exchange)
        return load.slowest_tile if busiest is None else busiest.tile
    return load.slowest_tile


def _execution(every: np.ndarray, times: int, timestep: int | None) -> int:
    if timestep is None:
        return int(np.argmax(every))
    if not 0 <= timestep < times:
        raise MappingError(f"no timestep {timestep}: the superstep runs {times} times, counted from 0")
    return timestep


def _require_all(rows: Sequence[Row], busy: int, where: str) -> None:
    """Raise RuntimeError if rows of compute do not sum to what the engine counts, which is a fault of mimdsim."""
    told = sum(row.cycles for row in rows)
    if abs(told - busy) > 0.5 + ROUNDING * busy:
        raise RuntimeError(
            f"{where}: the rows of compute sum to {told:,.10g} cycles, the engine counts {busy:,}: a row is missing or "
            "wrong for what mimdsim.timing.tile_cycles counts; please report it"
        )


def _compute_waiting(load: SuperstepLoad, part: PathPart, every: np.ndarray, chip: int) -> tuple[Row, ...]:
    """The difference between the tile's own cycles and what the superstep adds to the longest sum since the last
    sync."""
    added = load.cycles_by_execution[:, chip]
    more = added - every
    rows = (
        Row(
            what="waits for slower tiles",
            how=f"in {np.count_nonzero(more > 0):,} executions another tile adds more since the last sync",
            cycles=float(more[more > 0].sum()),
        ),
        Row(
            what="done while slower tiles still compute",
            how="earlier supersteps, without a sync since, keep other tiles busy for longer",
            cycles=float(more[more < 0].sum()),
        ),
        Row(
            what="other chips",
            how="between barriers of all chips the slowest chip counts",
            cycles=float(part.compute - added.sum()),
        ),
    )
    return tuple(row for row in rows if row.cycles)
