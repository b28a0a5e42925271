"""Where a superstep's cycles come from, on one tile: from its vertices to the figures of the profile, as exact sums.

`str(explain(...))` is a table. Its rows of compute sum to the busy cycles of the tile over all executions; with
those of waiting, to the compute cycles of the superstep; exchange and sync likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.base.units import counted
from mimdsim.costs.fabric import Row, fabric_of
from mimdsim.costs.isa_costs import with_machine_costs
from mimdsim.machine import Given, MimdMachine, tiled_machine
from mimdsim.profile import Span, SpanPart
from mimdsim.profile.operations import find_supersteps
from mimdsim.program import Program, RecordedActivity, Superstep, TileFormula
from mimdsim.program.records import NO_SPIKES
from mimdsim.timing.analytic import refuse_other_machine
from mimdsim.timing.critical_path import PathPart, critical_path, exchange_waits, loop_spans
from mimdsim.timing.explanation import Context, Explanation, Work, cycles_text, formula_text
from mimdsim.timing.recording import Recording
from mimdsim.timing.static_plan import SuperstepPlacement, SuperstepPlan, straight_line_plans
from mimdsim.timing.tile_cycles import TileIssue, arranging_parts, library_cycles, tile_cycles, worker_cycles
from mimdsim.timing.tile_work import Level, TableWork, work_of_tile
from mimdsim.timing.worker_cycles import SuperstepLoad, machine_loads


class Workers:
    """The worker contexts of the tile; cycles float64[executions], a single entry if all are equal."""

    def __init__(self, work: Sequence[TableWork], times: int, issue: TileIssue):
        self.tables, self.times, self.issue = work, times, issue
        self.executions = max((len(each.turns) for one in work for each in one.levels), default=1)
        self.bundles = np.zeros((self.executions, issue.contexts))
        for one in work:
            context = one.place % issue.contexts
            for of_vertex, vertex in zip(context.tolist(), one.bundles().T, strict=True):
                self.bundles[:, of_vertex] += vertex
        self.deciding = self.bundles.argmax(axis=1)
        longest, whole = issue.issue_cycles * self.bundles.max(axis=1), self.bundles.sum(axis=1)
        self.by_longest = longest >= whole
        self.cycles = worker_cycles(self.bundles, issue)

    def rows(self) -> list[Row]:
        """Every loop level of the decisive vertices: those of the longest context, or all if issue slots are the
        limit."""
        found = []
        for by_longest in (True, False):
            chosen = self.by_longest == by_longest
            factor = self.issue.issue_cycles if by_longest else 1
            for one in self.tables if chosen.any() else ():
                context = one.place % self.issue.contexts
                runs = (context == self.deciding[:, None]) if by_longest else np.ones((1, len(context)), bool)
                counts = chosen[:, None] & runs
                for level in one.levels:
                    each = (level.turns * counts).sum(axis=1)
                    if not (level.bundles * each).any():
                        continue
                    found.append(
                        Row(
                            what=f"{one.table.title}, {level.title}",
                            how=self._how(level, each, factor),
                            cycles=float(each.sum()) * level.bundles * factor * self.times / self.executions,
                            note="in the longest context" if by_longest else "in all contexts",
                        )
                    )
        return found

    def _how(self, level: Level, each: np.ndarray, factor: int) -> str:
        """How a level's cycles come about; each float64[executions]: turns."""
        alike = bool((each == each[0]).all())
        turns = each[0] if alike else each.sum()
        one, several = ("turn", "turns") if level.extents else ("vertex", "vertices")
        said = f"{level.bundles:g} bundles" + (f" ({level.paired:g} paired away)" if level.paired else "")
        said += f" x {turns:,.10g} {one if turns == 1 else several}" + (
            f" x {factor} issue cycles" if factor > 1 else ""
        )
        if alike:
            return said + (f" x {self.times:,} executions" if self.times > 1 else "")
        return f"{said}, in {counted(int(np.count_nonzero(each)), 'execution')}"

    def contexts(self, execution: int) -> tuple[Context, ...]:
        """The vertices that every context runs, round after round."""
        at = min(execution, self.executions - 1)
        ran: list[list[tuple[int, str]]] = [[] for _ in range(self.issue.contexts)]
        for one in self.tables:
            for place, row in zip(one.place.tolist(), one.rows.tolist(), strict=True):
                ran[place % self.issue.contexts].append((place, f"{row} of {one.table.title}"))
        return tuple(
            Context(number=number, vertices=tuple(name for _, name in sorted(names)), bundles=float(bundles))
            for number, (names, bundles) in enumerate(zip(ran, self.bundles[at], strict=True))
            if names
        )

    def work(self, execution: int) -> tuple[Work, ...]:
        """The cost of each vertex, with equal ones grouped."""
        at = min(execution, self.executions - 1)
        alike: dict[tuple[str, str], list[int]] = {}
        for one in self.tables:
            bundles = one.bundles()
            for column, row in enumerate(one.rows.tolist()):
                terms = " + ".join(level.at(at, column) for level in one.levels)
                said = f"{terms} = {bundles[min(at, len(bundles) - 1), column]:,g} bundles"
                alike.setdefault((one.table.title, said), []).append(row)
        return tuple(Work(codelet=name, vertices=tuple(rows), how=how) for (name, how), rows in alike.items())


def library_rows(superstep: Superstep, placement: SuperstepPlacement, tile: int, issue: TileIssue) -> Iterator[Row]:
    """Library vertices on the tile by table, each in turn on all contexts."""
    for table, every in zip(superstep.tables, placement.extents, strict=True):
        rows = np.flatnonzero(table.tiles == tile)
        if not len(rows) or not isinstance(table.codelet.cost, TileFormula):
            continue
        extents = {name: column for name, column in every.items() if isinstance(column, np.ndarray)}
        each = np.broadcast_to(library_cycles(table.codelet, extents, issue, table.vertices), table.vertices)
        cycles = float(each[rows].sum())
        longest = int(rows[each[rows].argmax()])
        formula = formula_text(table.codelet, {name: int(column[longest]) for name, column in extents.items()}, issue)
        alike = "each " if (each[rows] == each[longest]).all() and len(rows) > 1 else ""
        one = f"{alike or 'the longest ' * (len(rows) > 1)}{formula} = {cycles_text(float(each[longest]))}"
        many = f"{len(rows)} vertices, one after another" if len(rows) > 1 else "1 vertex"
        cost = table.codelet.cost
        how = f"{many}: {one}"
        yield Row(what=table.title, how=how, cycles=cycles, note=f"{cost.kind}: {cost.source}")


def arranging_rows(superstep: Superstep, tile: int, issue: TileIssue) -> tuple[Row, ...]:
    exchange = superstep.exchange
    if exchange is None:
        return ()
    at = np.flatnonzero(exchange.tiles == tile)
    if not len(at) or not exchange.column("fragments_arranged")[at[0]]:
        return ()
    slots = issue.issue_cycles / issue.working
    pieces, volume = (float(part[at[0]]) * slots for part in arranging_parts(exchange, issue))
    many, size = (int(exchange.column(name)[at[0]]) for name in ("fragments_arranged", "bytes_arranged"))
    shared = f" x {issue.issue_cycles} / {working}" if (working := issue.working) < issue.issue_cycles else ""
    each = f"{many:,} pieces x {issue.arrange_fragment_bundles:g} bundles{shared}"
    rate = f"{size:,} bytes / {issue.copy_bytes_per_cycle:g} a cycle{shared}"
    return (
        Row(what="arranging rows, pieces", how=each, cycles=pieces),
        Row(what="arranging rows, bytes", how=rate, cycles=volume),
    )


def port_row(rows: Sequence[Row], busy: int, port: float) -> Row | None:
    """What the port of the tile's memory adds to its work."""
    more = busy - sum(row.cycles for row in rows)
    if not port or more < 1:
        return None
    return Row(what="memory port", how=f"bytes loaded and stored / {port:g} a cycle take longer", cycles=more)


def exchange_rows(
    program: Program,
    superstep: Superstep,
    machine: MimdMachine,
    part: PathPart,
    here: int,
    tile: int,
    times: int,
) -> tuple[Row, ...]:
    """here: cycles of one exchange on the tile's chip."""
    exchange, rows = superstep.exchange, []
    if exchange is not None and here:
        fabric = fabric_of(machine)
        if machine.sync.model == "dataflow":
            own = fabric.tile_cycles(program, exchange)[exchange.tiles == tile]
            here, said = int(own.sum()), "until it has sent, and what it reads has arrived once all is sent"
            parts = [Row(what="its part of the exchange", how=said, cycles=here)]
        else:
            parts = fabric.explain(program, exchange, tile, here)
        rows = [part.times(times) for part in parts if part.cycles]
    rows.append(Row(what="links between chips", how="bytes over links, by route", cycles=part.link))
    how = "what transfers take longer than compute, and their latency"
    rows.append(Row(what="memory behind the tile, not hidden", how=how, cycles=part.memory))
    hidden = "sent while supersteps before it compute, as none of them writes it"
    rows.append(Row(what="hidden behind compute", how=hidden, cycles=-part.hidden))
    rest = part.exchange + part.hidden - part.link - part.memory - here * times
    return _with_others(rows, rest, machine)


def sync_rows(
    machine: MimdMachine, part: PathPart, cycles: int, late: int, all_chips: bool, times: int
) -> tuple[Row, ...]:
    """cycles: of one sync of the tile's chip, or of all chips, late of them for the last tile of the exchange."""
    rows, barrier = [], cycles - late
    if cycles:
        what = "barrier of all chips" if all_chips else "barrier of the chip"
        rows.append(Row(what=what, how=f"{barrier}", cycles=barrier).times(times))
        share = f"{machine.sync.exchange_share:g} of the exchange"
        rows.append(Row(what="waits for the last tile", how=f"{late:,}", cycles=late, note=share).times(times))
    rest = part.sync - cycles * times
    return _with_others(rows, rest, machine)


ROUNDING = 1e-9  # relative, of sums in another order
TILED = "only programs of tiled machines have supersteps to explain"


def _waits(program: Program, machine: MimdMachine, number: int, chip: int) -> tuple[int, int, int, bool]:
    """Cycles of one exchange of a superstep on a chip, of its sync, and how many of those for the last tile; whether
    that sync is of all chips."""
    waiting = exchange_waits(program, machine)
    closes = bool(waiting.closes[number])
    synced = int(waiting.sync_of_all[number] if closes else waiting.sync[number, chip])
    return int(waiting.exchange[number, chip]), synced, int(waiting.late[number, chip]) if synced else 0, closes


def explain(
    program: Program,
    machine: Given,
    superstep: str | int,
    tile: int | None = None,
    activity: RecordedActivity | None = None,
    timestep: int | None = None,
) -> Explanation:
    """Where the cycles of a superstep come from on a tile.

    program: as the compiler or a kernel makes it. superstep: by name, or by number among the spans of a profile;
    also by what only one is called (`profile.operations.find_supersteps`).
    machine: a tiled one, itself or by name. tile: by default the one with the most work in it. activity: recorded,
    needed if costs depend on it. timestep: the execution shown vertex by vertex, by default the longest on this tile.
    Raises MappingError for a superstep, tile or timestep that does not exist, and as `time_program` does.

        >>> why = mimdsim.explain(made.compiled.program, "tiny", "zero states", activity=made.log.activity)
        >>> why.cycles == made.tiled.spans[0].cycles
        True
    """
    machine = tiled_machine(machine, TILED)
    refuse_other_machine(program, machine)
    activity = activity or NO_SPIKES
    compiled, program = program, with_machine_costs(program, machine)
    issue = TileIssue.of(machine)
    loops = loop_spans(program, machine)
    steps = [_named(step) for step, _, _ in program.supersteps()]
    number = _number([*steps, *loops], superstep)
    if number >= len(steps):
        return _loop(loops[number - len(steps)], machine)
    loads = machine_loads(compiled, machine, activity)
    load = loads[number]
    found, plan, times = _plan_of(program, issue, number)
    tile = _tile(program, machine, found, load, tile)
    work = work_of_tile(found, plan.placement, tile, times, Recording(activity), issue)
    workers = Workers(work, times, issue)
    arranging = arranging_rows(found, tile, issue)
    libraries = library_rows(found, plan.placement, tile, issue)
    compute = [*workers.rows(), *(row.times(times) for row in (*libraries, *arranging))]
    every = tile_cycles(workers.cycles, plan.beside_of(tile))
    if limited := port_row(compute, int(load.busy[tile]), machine.tile.sram_port_bytes_per_cycle):
        compute.append(limited)
        every = load.by_tile(Recording(activity))[:, tile - load.first_tile]
    _require_all(compute, int(load.busy[tile]), f"superstep '{found.name}' on tile {tile}")
    shown = _execution(every, times, timestep)
    part = critical_path(program, machine, loads)[number]
    chip = tile // program.tiles_per_chip
    here, synced, late, closes = _waits(program, machine, number, chip)
    links = fabric_of(machine).links(program, found.exchange) if found.exchange is not None and here else None
    return Explanation(
        superstep=found.name,
        phase=found.phase,
        machine=machine.name,
        tile=tile,
        slowest=tile == load.slowest_tile,
        times=times,
        alike=len(every) == 1,
        timestep=shown,
        issue_cycles=issue.issue_cycles,
        contexts=workers.contexts(shown),
        work=workers.work(shown),
        compute=tuple(compute),
        waiting=_compute_waiting(load, part, np.broadcast_to(every, times), chip, machine),
        exchange=exchange_rows(program, found, machine, part, here, tile, times),
        sync=sync_rows(machine, part, synced, late, closes, times),
        fullest_link="" if links is None else links.fullest(chip, here),
    )


def _number(spans: Sequence[Span], superstep: str | int) -> int:
    """A superstep's position among the spans of a profile, which lists loop control after the supersteps."""
    places = find_supersteps(spans, str(superstep))
    if len(places) > 1:
        raise MappingError(f"{len(places)} supersteps are called '{superstep}': give the number of one, {places}")
    return places[0]


def _named(superstep: Superstep) -> Span:
    """What a superstep is called, without its cycles."""
    stage = superstep.stage or superstep.name
    parts = dict.fromkeys((table.stage or stage, table.layer) for table in superstep.tables)
    return Span(
        name=superstep.name, op=superstep.op, phase=superstep.phase, times=1, compute_cycles=0, exchange_cycles=0,
        sync_cycles=0, busy_cycles=0, bytes_received=0, flops=0, slowest_tile=0,
        parts=tuple(SpanPart(operation=name, layer=layer, compute_cycles=0) for name, layer in parts),
    )  # fmt: skip


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


def _plan_of(program: Program, issue: TileIssue, number: int) -> tuple[Superstep, SuperstepPlan, int]:
    for stretch in straight_line_plans(program, issue):
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
        busiest = fabric_of(machine).busiest(program, [superstep.exchange])[0]
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


def _compute_waiting(
    load: SuperstepLoad, part: PathPart, every: np.ndarray, chip: int, machine: MimdMachine
) -> tuple[Row, ...]:
    """The difference between the tile's own cycles and what the superstep adds to the longest sum since the last
    sync."""
    if machine.sync.model == "dataflow":
        return _with_others((), float(part.compute - every.sum()), machine)
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
    )
    return _with_others(rows, float(part.compute - added.sum()), machine)


def _with_others(rows: Iterable[Row], cycles: float, machine: MimdMachine) -> tuple[Row, ...]:
    """The rows that have cycles, with one for what other chips add, or other tiles on the longest path."""
    others = Row(what="other chips", how="between barriers of all chips the slowest chip counts", cycles=cycles)
    if machine.sync.model == "dataflow":
        how = "the longest path over tiles counts: what it takes here, less this tile's own"
        others = Row(what="longest path", how=how, cycles=cycles)
    return tuple(row for row in (*rows, others) if row.cycles)
