"""Predicted steps of the published solvers and of the STREAM triad on Mk2 chips: `references/stencil_mk2_chips.csv` and
`devito_ipu.csv`.

Both tables time a loop on the device from the host; a step is the time over the iterations, with its share of the
host's request. A program that was measured more than once, in whichever table, is judged by the nearer end of the
range of its measurements, as far as they are alike; each row shows its own measurement beside. Nothing is fitted to a
row.

In the triad, a = b + q c, every context has its own elements and nothing is exchanged. As in simehaa/IPU, STREAMTriad:
a compiled loop over single elements, or one of two elements a bundle in assembly.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial

import numpy as np

from mimdsim.base.csv_table import parse_table
from mimdsim.base.errors import DataFileError, MappingError, MimdsimError, shortened
from mimdsim.base.files import read_bounded_text
from mimdsim.base.residuals import combined
from mimdsim.base.search_path import files_of
from mimdsim.base.units import show_bytes
from mimdsim.compiler import measure_memory
from mimdsim.machine import MimdMachine, changed_machine, tiled_machine
from mimdsim.pipeline import memory_profile
from mimdsim.program import (
    Codelet,
    Column,
    Field,
    Program,
    ProgramBuilder,
    Superstep,
    Term,
    TileMapping,
    Variable,
    WorkerBundles,
)
from mimdsim.program.records import NO_SPIKES
from mimdsim.timing.critical_path import critical_path, loop_spans
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.uncertainty import uncertain_parts
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, each_row, within_bounds
from mimdsim.validation.stencil.solver_program import SOLVERS, Solver, codelet_of, solver_program

FACTOR = np.float32(3)
STATE_BUNDLES = 16  # three pointers and lengths and the factor are loaded, as of the solvers' vertices
AROUND_LOOP = 7  # three bundles fill the pipeline, two empty it; nop and rpt
MOST_ELEMENTS = 1 << 24  # of a context; a tile of this kind holds less than 2^18 floats


def triad(a: np.ndarray, b: np.ndarray, c: np.ndarray, *_turns: int) -> None:
    """One vertex: each [1, 1, elements]."""
    a[...] = b + FACTOR * c


def turns_of(elements: int, assembly: bool) -> int:
    """Turns of the loop: pairs but for the first two, or single elements."""
    return elements // 2 - 2 if assembly else elements


def turn_bundles(assembly: bool) -> int:
    """Compiled: two loads, a store, two operations, index and branch for one element."""
    return 1 if assembly else 7


def triad_codelet(*, assembly: bool) -> Codelet:
    """The vertex of one context."""
    turn = Term(bundles=turn_bundles(assembly), extents=("turns",), pairable=0 if assembly else 2)
    return Codelet(
        name="TriadVertexAssembly" if assembly else "TriadVertex",
        fields=tuple(
            Field(name=name, access="write" if name == "a" else "read", box=("one", "context", ":")) for name in "abc"
        ),
        columns=("turns",),
        compute=triad,
        form="vertex",
        cost=WorkerBundles(
            fixed=STATE_BUNDLES + (AROUND_LOOP if assembly else 0),
            terms=(turn,),
            kind="derived",
            source="instructions of STREAMTriad in simehaa/IPU (codelets.cpp), the assembly bundle by bundle",
        ),
        flops=(Term(bundles=4 if assembly else 2, extents=("turns",)),),
        extents={"turns": Column("turns")},
    )


def triad_program(machine: MimdMachine, elements: int, *, assembly: bool) -> Program:
    """One pass over `elements` of every context; inputs 'b' and 'c', output 'a', float32[tiles, contexts, elements].

    Raises MappingError for fewer than 4 elements (the assembly's loop needs them) or more than 2^24.
    """
    if not 4 <= elements <= MOST_ELEMENTS:
        raise MappingError(f"{elements} elements for a context; give 4 to {MOST_ELEMENTS:,}")
    tiles, contexts = machine.chip.tiles, machine.tile.worker_contexts
    mapping, shape = TileMapping.evenly(0, tiles, np.arange(tiles)), (tiles, contexts, elements)
    made = ProgramBuilder(tiles=tiles, inputs={"b": "b", "c": "c"}, outputs={"a": "a"})
    for name in "abc":
        made.variables[name] = Variable(
            name=name, shape=shape, dtype="float32", mapping=mapping, category="neuron states"
        )
    number = np.arange(tiles * contexts)
    tile, turns = number // contexts, np.full(len(number), turns_of(elements, assembly))
    columns = {"one": tile, "context": number % contexts, "turns": turns}
    step = Superstep(name="triad", op="triad", phase="forward", stage="triad", mergeable=False)
    with made.repeat(1):
        made.add_vertices(step, triad_codelet(assembly=assembly), tile, {name: name for name in "abc"}, columns)
    return made.program()


MACHINE = "mk2"
MOST_CHIPS = 64  # of the published programs


class Timed:
    """Of one step: cycles, with every instruction a bundle as tile.compiled_dual_issue has it; low: what can share a
    bundle does; high: constants and row pointers are loaded again every turn; both widened by what else is doubted.
    turns: of the inner loop of the context that takes longest, each of `slots` bundles; slot_cycles: in which every
    context issues one; link_cycles: part of cycles.
    """

    def __init__(self, program: Program, machine: MimdMachine, slowest: Codelet, steps: int, turns: int, slots: float):
        """Not verified, as that takes memory for every cell: tests verify smaller grids."""
        paired = machine.model_copy(update={"tile": machine.tile.model_copy(update={"compiled_dual_issue": 1.0})})
        loads = program_loads(program, NO_SPIKES, TileIssue.of(machine))
        path = critical_path(program, machine, loads)
        loops = sum(span.sync_cycles for span in loop_spans(program, machine))
        doubts = uncertain_parts(loads, path, loops, machine)
        aside = combined(doubt.half_width_cycles for doubt in doubts if doubt.name != f"codelet {slowest.name}")
        cycles, reloaded = _cycles(program, machine), program.with_codelet(slowest.name, slowest)
        self.cycles, self.link_cycles = cycles / steps, sum(part.link for part in path) / steps
        self.low = (cycles - combined((cycles - _cycles(program, paired), aside))) / steps
        self.high = (cycles + combined((_cycles(reloaded, machine) - cycles, aside))) / steps
        self.turns, self.slots = turns, slots
        self.slot_cycles = max(machine.tile.issue_cycles, machine.tile.worker_contexts)
        self.memory = memory_profile(program, measure_memory(program, machine), machine)

    def slots_of(self, cycles: float) -> float:
        """Bundles a turn with which a step would take `cycles`."""
        return self.slots + (cycles - self.cycles) / (self.slot_cycles * self.turns)


@lru_cache(maxsize=256)
def solver_times(
    problem: str, order: int, vertex: str, grid: tuple[int, ...], chips: int, chip: MimdMachine | None = None
) -> Timed:
    """One step of the solver SOLVERS[problem, order, vertex] on `chips` chips, Mk2 unless another is described.

    Raises MappingError for a solver that is not there, for chips other than 1 to 64 and as `solver_program`.
    """
    solver, machine = _solver(problem, order, vertex), _machine(chips, chip)
    program = _made(problem, order, vertex, grid, chips, chip)
    loop, extent = (solver.loop, "cells") if solver.pairs is None else (solver.pairs, "pairs")
    table = next(table for step, _, _ in program.supersteps() for table in step.tables if "cells" in table.columns)
    turns, slots = int(table.columns[extent].max()), loop.term(extent).bundles
    return Timed(program, machine, codelet_of(solver, reloaded=True), solver.turning, turns, slots)


@lru_cache(maxsize=8)
def _made(
    problem: str, order: int, vertex: str, grid: tuple[int, ...], chips: int, chip: MimdMachine | None
) -> Program:
    return solver_program(_solver(problem, order, vertex), grid, _machine(chips, chip), chips)


def _solver(problem: str, order: int, vertex: str) -> Solver:
    solver = SOLVERS.get((problem, order, vertex))
    if solver is None:
        alike = [key for key in SOLVERS if key[0] == problem] or SOLVERS
        known = "; ".join(f"{name} of order {number}, {kind}" for name, number, kind in alike)
        given = f"{shortened(problem, 40)} of order {order}, {shortened(vertex, 40)}"
        raise MappingError(f"no program of {given}; known: {known}")
    return solver


@lru_cache(maxsize=64)
def triad_times(elements: int, assembly: bool, chip: MimdMachine | None = None) -> Timed:
    """One pass of the triad over `elements` of every context of one chip; raises MappingError for none."""
    machine, codelet = _machine(1, chip), triad_codelet(assembly=assembly)
    program = triad_program(machine, elements, assembly=assembly)
    return Timed(program, machine, codelet, 1, turns_of(elements, assembly), turn_bundles(assembly))


def _machine(chips: int, chip: MimdMachine | None) -> MimdMachine:
    if not 1 <= chips <= MOST_CHIPS:
        raise MappingError(f"{chips} chips; the published programs run on 1 to {MOST_CHIPS}")
    return changed_machine(chip or tiled_machine(MACHINE, ""), {"links.chips": chips})


def _cycles(program: Program, machine: MimdMachine) -> int:
    path = critical_path(program, machine, program_loads(program, NO_SPIKES, TileIssue.of(machine)))
    loops = sum(span.sync_cycles for span in loop_spans(program, machine))
    return loops + sum(part.compute + part.exchange + part.sync for part in path)


TABLES = ("stencil_mk2_chips.csv", "devito_ipu.csv")
MOST_TABLE_BYTES = 1 << 20
SOLVER_COLUMNS = {"problem", "chips", "tiles", "dtype", "iterations", "source_path"}
CHIPS_COLUMNS = SOLVER_COLUMNS | {"processor", "mesh", "us_per_iteration_from_throughput"}
ORDER_COLUMNS = SOLVER_COLUMNS | {"space_order", "vertex", "grid", "us_per_iteration", "fits"}
SOLVER_ALSO = {"processor", "mesh", "grid", "space_order", "vertex", "fits", "note", "bytes_on_worst_tile"}
SOLVER_ALSO |= {"time_s", "time_s_printed", "GPts_per_s", "us_per_iteration", "us_per_iteration_from_throughput"}
SOLVER_IGNORED = {"TFLOPS_printed", "min_bandwidth_TB_s", "cycles_per_iteration_at_1.33GHz", "tile_splits"}
SOLVER_IGNORED |= {"smallest_tile", "largest_tile", "throughput_TFLOPS", "minimal_bandwidth_TB_s", "flops_per_cell"}
SOLVER_IGNORED |= {"cells_counted", "time_s_from_throughput", "halo_bytes_received_largest_tile"}
SOLVER_IGNORED |= {"interchip_bytes_per_boundary"}
TOLERANCE = 0.2
TILES, CONTEXTS, MOST_ORDER = 1472, 6, 64
ALIKE = 1.5  # times another measurement of a program that is taken for one of the same: published ones reach 1.28
FAR = 0.1  # from which error on a row says which issue slots would explain it
VERTICES = {  # where a row does not name it
    "heat2d": "HeatEquationOptimized",
    "heat3d": "HeatEquationOptimized",
    "aliev_panfilov": "AlievPanfilov",
    "diffusion": "DiffusionEquationSimple",
    "wave": "WaveEquationOptimised",
}
ALSO = {"heat": "heat3d"}  # names of the second table
FIRST, SECOND = ("simehaa/IPU", "2.2"), ("TszwangKo/FYP_IPU_DEVITO", "3.2")  # author and SDK unless a note says other


class NotDescribed(MimdsimError):
    """A row whose program is not described; the message says why."""


class Case:
    """What a row measures; grid: elements of a context for the triad, which has none. seconds: of an iteration.

    Raises NotDescribed for other programs, MimdsimError for cells that cannot be read.
    """

    def __init__(self, row: Cells):
        chips = row.number("chips", above=0)
        iterations = row.number("iterations", above=0) if row["iterations"] else None
        if row.get("processor", "IPU") != "IPU":
            raise NotDescribed(
                f"processor '{shortened(row['processor'], 40)}': only programs on Mk2 chips are described"
            )
        if row["dtype"] != "float32":
            raise NotDescribed(f"dtype '{shortened(row['dtype'], 40)}': the published codelets are of float32")
        if chips != int(chips) or row["tiles"] not in ("", str(TILES * int(chips))):
            raise NotDescribed(
                f"{shortened(row['tiles'], 40)} tiles on {shortened(row['chips'], 40)} chips: a Mk2 has {TILES}"
            )
        problem = ALSO.get(row["problem"], row["problem"])
        order = row.number("space_order", above=0) if row.get("space_order") else 2.0
        vertex = row.get("vertex") or VERTICES.get(problem, "")
        (author, sdk), column = (FIRST, "mesh") if "mesh" in row else (SECOND, "grid")
        if order != int(order) or order > MOST_ORDER:
            text = shortened(row["space_order"], 40)
            raise NotDescribed(f"space_order '{text}' is not a whole number up to {MOST_ORDER}")
        if problem.startswith("stream_triad"):
            problem, vertex = "stream_triad", "TriadVertexAssembly" if problem.endswith("asm") else "TriadVertex"
        note = re.search(r"SDK (\d+\.\d+)", row.get("note", ""))
        if note and note[1] != sdk:
            author, sdk = FIRST if note[1] == FIRST[1] else (author, note[1])
        grid = _grid(row[column], elements=problem == "stream_triad")
        self.fits = row.get("fits", "yes") != "no"
        if not self.fits:  # their sides leave out the cells around the grid
            grid = tuple(extent + int(order) // 2 * 2 for extent in grid)
        self.seconds = _seconds(row, math.prod(grid), iterations)
        if iterations is None and self.seconds and row.get("time_s"):
            iterations = row.number("time_s", above=0) / self.seconds
        self.problem, self.order, self.vertex, self.grid, self.chips = problem, int(order), vertex, grid, int(chips)
        self.iterations, self.author, self.sdk = iterations, author, sdk

    @property
    def program(self) -> tuple[str, int, str, tuple[int, ...], int]:
        return self.problem, self.order, self.vertex, self.grid, self.chips

    @property
    def codelet(self) -> str:
        return f"{self.problem} of order {self.order}, {self.vertex}"

    @property
    def name(self) -> str:
        size = "x".join(map(str, self.grid))
        order = f" order {self.order}" if self.order != 2 else ""
        kind = re.sub(r"^.*(Equation|Vertex)|^AlievPanfilov", "", self.vertex)
        return shortened(
            f"{self.problem}{order} {size} on {self.chips} chip(s), {kind}{', ' * bool(kind)}SDK {self.sdk}", 160
        )

    def timed(self, chip: MimdMachine) -> Timed:
        if self.problem == "stream_triad":
            return triad_times(self.grid[0] // (TILES * CONTEXTS), self.vertex == "TriadVertexAssembly", chip)
        return solver_times(*self.program, chip)

    def launch_seconds(self, request_seconds: float) -> float:
        """An iteration's share of the host's request."""
        return request_seconds / self.iterations if self.iterations else 0.0

    def microseconds(self, chip: MimdMachine, described: MimdMachine) -> float:
        """Predicted, of an iteration of the program for a chip on another description of it."""
        if self.problem == "stream_triad":
            cycles = self.timed(described).cycles
        else:
            program, turning = _made(*self.program, chip), _solver(*self.program[:3]).turning
            cycles = _cycles(program, _machine(self.chips, described)) / turning
        return 1e6 * (cycles / described.chip.clock_hz + self.launch_seconds(described.host.request_seconds))


def solver_rows(lines: list[Cells], asked: Asked) -> Iterator[Fields]:
    """Fields of one row per published figure, of Mk2 chips unless a machine is asked for."""
    chip = asked.machine_or(MACHINE)
    measured: dict[tuple[object, ...], list[float]] = {}  # seconds of an iteration by program
    for case in (*_cases(lines), *carried_cases()):
        if case.seconds is not None:
            measured.setdefault(case.program, []).append(case.seconds)

    def read(row: Cells, _asked: Asked) -> Iterator[Fields]:
        try:
            case = Case(row)
        except NotDescribed as why:
            yield _refused(row, str(why))
            return
        published = None if case.seconds is None else 1e6 * case.seconds
        figures = "several chips" if case.chips > 1 else "solver step"
        kind = f"{case.author}, SDK {case.sdk}"
        yield _named(row, case.name, published, kind, figures=figures, origin=case.author)
        yield _predict(row, case, measured.get(case.program, []), chip)

    yield from each_row(lines, asked, read, "solvers")


def _predict(row: Cells, case: Case, measured: list[float], chip: MimdMachine) -> Fields:
    """measured: seconds of an iteration of the same program."""
    timed = case.timed(chip)
    if not case.fits:
        return _memory(timed, row)
    launch, clock_hz = case.launch_seconds(chip.host.request_seconds), chip.chip.clock_hz
    predicted, low, high = (cycles / clock_hz + launch for cycles in (timed.cycles, timed.low, timed.high))
    fields = within_bounds(1e6 * predicted, 1e6 * low, 1e6 * high)
    own = case.seconds
    if own is None:
        return fields | {"note": "no time is given"}
    every = [one for one in measured if own / ALIKE <= one <= own * ALIKE]
    nearest = min(every, key=lambda seconds: abs(predicted / seconds - 1))
    fields |= {
        "published": 1e6 * nearest,
        "bearing": row.bearing(chip.name, 1e6 * own, partial(case.microseconds, chip), formula=case.codelet),
    }
    if max(every) > (1 + 1e-3) * min(every):
        fields |= {"second": 1e6 * own, "second_name": "this measurement"}
    if abs(predicted / own - 1) > FAR:
        slots = timed.slots_of((own - launch) * clock_hz)
        fields["note"] = (
            f"counted are {timed.slots:g} issue slots a turn of the inner loop; {slots:.1f} would take the "
            f"{1e6 * own:.4g} us of this measurement"
        )
    return fields


def _memory(timed: Timed, row: Cells) -> Fields:
    """A program that its authors could not compile: bytes of the fullest tile, without a verdict."""
    peak, limit = timed.memory.peak_bytes, timed.memory.limit_bytes
    published = f" (published: {shortened(row['bytes_on_worst_tile'], 20)} B)" if row.get("bytes_on_worst_tile") else ""
    fits = "does not fit here either" if peak > limit else "would fit here, against what was published"
    return {
        "unit": "B of the fullest tile",
        "predicted": float(peak),
        "published": None,
        "note": f"{fits}: {show_bytes(peak)} of {show_bytes(limit)}{published}",
        "kind": "does not fit",
    }


def _refused(row: Cells, why: str) -> Fields:
    where = shortened(row.get("processor") or "IPU", 40)
    problem, size, chips = (shortened(row.get(name) or "", 40) for name in ("problem", "mesh", "chips"))
    size = size or shortened(row.get("grid", ""), 40)
    return _named(row, f"{problem} {size}, {chips} x {where}", None, where, note=why)


def _named(row: Cells, name: str, published: float | None, kind: str, **more: str) -> Fields:
    source = f"{(FIRST if 'mesh' in row else SECOND)[0]}: {row['source_path']}"
    return row.figure(name, "us an iteration", published, TOLERANCE, kind, source=source, **more)


def _cases(lines: Iterable[Cells]) -> Iterator[Case]:
    """Of the lines that can be read."""
    for row in lines:
        with contextlib.suppress(MimdsimError):
            yield Case(row)


@lru_cache(maxsize=1)
def carried_cases() -> tuple[Case, ...]:
    """What the tables that come with the package measure, or in their place those of the same name of the user."""
    files = files_of("references", "")
    cases: list[Case] = []
    for path in (files[name] for name in TABLES if name in files):
        with contextlib.suppress(OSError, ValueError, KeyError, DataFileError):
            rows = parse_table(path, read_bounded_text(path, MOST_TABLE_BYTES)).rows
            cases += _cases(Cells(row, row.line) for row in rows)
    return tuple(cases)


def _grid(text: str, *, elements: bool) -> tuple[int, ...]:
    form = r"\d{1,12}(?= elements|$)" if elements else r"\d{1,7}(x\d{1,7}){1,2}$"
    found = re.match(form, text)
    if found is None:
        raise NotDescribed(f"'{shortened(text, 60)}' is not a number of cells, such as 320x320x320 or '1000 elements'")
    return tuple(int(part) for part in found[0].split("x"))


def _seconds(row: Cells, points: int, iterations: float | None) -> float | None:
    """Of an iteration: as given, else from the time of all or from the points a second."""
    for column in ("us_per_iteration_from_throughput", "us_per_iteration"):
        if row.get(column):
            return 1e-6 * row.number(column, above=0)
    for column in ("time_s", "time_s_printed"):
        if row.get(column) and iterations:
            return row.number(column, above=0) / iterations
    return points / (1e9 * row.number("GPts_per_s", above=0)) if row.get("GPts_per_s") else None


SOLVER_STEPS = tuple(
    ReferenceTable(needed=needed, also=SOLVER_ALSO, ignored=SOLVER_IGNORED, read_all=solver_rows)
    for needed in (CHIPS_COLUMNS, ORDER_COLUMNS)
)
