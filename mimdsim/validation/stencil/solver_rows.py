"""Predicted steps of the published solvers on Mk2 chips: `references/stencil_mk2_chips.csv` and `devito_ipu.csv`.

Both tables time a loop on the device from the host; a step is the time over the iterations, with its share of the
host's request. A program that was measured more than once, in whichever table, is judged by the nearer end of the
range of its measurements, as far as they are alike; each row shows its own measurement beside. Nothing is fitted to a
row.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from mimdsim.base.csv_table import numbered, parse_table
from mimdsim.base.errors import DataFileError, MappingError, MimdsimError, shortened
from mimdsim.base.files import read_bounded_text
from mimdsim.base.search_path import files_of
from mimdsim.base.units import show_bytes
from mimdsim.machine import MimdMachine
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, refused
from mimdsim.validation.sensitivity import Bearing
from mimdsim.validation.stencil.solver_times import Timed, mk2, solver_cycles, solver_times, triad_times

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


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a row measures; elements: of a context, for the triad, which has no grid. seconds: of an iteration."""

    problem: str
    order: int
    vertex: str
    grid: tuple[int, ...]
    chips: int
    seconds: float | None
    iterations: float | None
    author: str
    sdk: str
    fits: bool = True

    @property
    def program(self) -> tuple[object, ...]:
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
        return solver_times(self.problem, self.order, self.vertex, self.grid, self.chips, chip)

    def launch_seconds(self, request_seconds: float) -> float:
        """An iteration's share of the host's request."""
        return request_seconds / self.iterations if self.iterations else 0.0

    def microseconds(self, chip: MimdMachine, described: MimdMachine) -> float:
        """Predicted, of an iteration of the program for a chip on another description of it."""
        if self.problem == "stream_triad":
            cycles = self.timed(described).cycles
        else:
            where = self.problem, self.order, self.vertex, self.grid, self.chips
            cycles = solver_cycles(*where, chip, described)
        return 1e6 * (cycles / described.chip.clock_hz + self.launch_seconds(described.host.request_seconds))


def solver_rows(lines: list[Cells], asked: Asked) -> Iterator[Fields]:
    """Fields of one row per published figure, of Mk2 chips unless a machine is asked for."""
    chip = asked.machine or mk2()
    cases = [_case_or_refusal(row) for row in lines]
    measured = _measured([case for case in cases if isinstance(case, Case)])
    for number, (case, row) in enumerate(zip(cases, lines, strict=True)):
        asked.progress("solvers", number, len(lines))
        if not isinstance(case, Case):
            yield case
            continue
        fields = _row(case, row, measured, chip)
        if case.fits and case.seconds is not None:
            fields["bearing"] = Bearing(
                line=row.line,
                machine=chip.name,
                measured=1e6 * case.seconds,
                again=partial(case.microseconds, chip),
                formula=case.codelet,
            )
        yield fields


def _case_or_refusal(row: Cells) -> Case | Fields:
    try:
        case = _case(row)
    except MimdsimError as problem:
        return refused(row, problem)
    return _refused(row, case) if isinstance(case, str) else case


def _row(case: Case, row: Cells, measured: dict[tuple[object, ...], list[float]], chip: MimdMachine) -> Fields:
    fields = _fields(row, case.name)
    fields["kind"] = f"{case.author}, SDK {case.sdk}"
    try:
        timed = case.timed(chip)
    except MimdsimError as refusal:
        return fields | {"published": _us(case.seconds), "note": str(refusal)}
    if not case.fits:
        return fields | _memory(timed, row)
    launch = case.launch_seconds(timed.request_seconds)
    predicted, low, high = (cycles / timed.clock_hz + launch for cycles in (timed.cycles, timed.low, timed.high))
    fields |= {"predicted": _us(predicted), "low": _us(low), "high": _us(high)}
    if case.seconds is None:
        return fields | {"note": "no time is given"}
    own = case.seconds
    every = [one for one in measured[case.program] if own / ALIKE <= one <= own * ALIKE]
    nearest = min(every, key=lambda seconds: abs(predicted / seconds - 1))
    fields["published"] = _us(nearest)
    if max(every) > (1 + 1e-3) * min(every):
        fields |= {"second": _us(case.seconds), "second_name": "this measurement"}
    if abs(predicted / case.seconds - 1) > FAR:
        slots = timed.slots_of((case.seconds - launch) * timed.clock_hz)
        fields["note"] = (
            f"counted are {timed.slots:g} issue slots a turn of the inner loop; {slots:.1f} would take the "
            f"{1e6 * case.seconds:.4g} us of this measurement"
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
        "note": f"{fits}: {show_bytes(peak)} of {show_bytes(limit)}{published}",
        "kind": "does not fit",
    }


def _fields(row: Cells, name: str) -> Fields:
    return {
        "name": name,
        "unit": "us an iteration",
        "tolerance": TOLERANCE,
        "source": f"{(FIRST if 'mesh' in row else SECOND)[0]}: {row['source_path']}",
    }


def _refused(row: Cells, why: str) -> Fields:
    where = shortened(row.get("processor") or "IPU", 40)
    problem, size, chips = (shortened(row.get(name) or "", 40) for name in ("problem", "mesh", "chips"))
    size = size or shortened(row.get("grid", ""), 40)
    return _fields(row, f"{problem} {size}, {chips} x {where}") | {"note": why, "kind": where}


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else 1e6 * seconds


def _measured(cases: Iterable[Case]) -> dict[tuple[object, ...], list[float]]:
    """Seconds of an iteration by program: of these rows, and of the tables that come with the package."""
    found: dict[tuple[object, ...], list[float]] = {}
    for case in (*cases, *carried_cases()):
        if case.seconds is not None:
            found.setdefault(case.program, []).append(case.seconds)
    return found


@lru_cache(maxsize=1)
def carried_cases() -> tuple[Case, ...]:
    """What the tables that come with the package measure, or in their place those of the same name of the user."""
    files = files_of("references", "")
    cases = []
    for path in (files[name] for name in TABLES if name in files):
        with contextlib.suppress(OSError, ValueError, KeyError, DataFileError):
            rows = parse_table(path, read_bounded_text(path, MOST_TABLE_BYTES)).rows
            cases += [_case_or_refusal(Cells(row, line)) for line, row in numbered(rows)]
    return tuple(case for case in cases if isinstance(case, Case))


def _case(row: Cells) -> Case | str:
    """What a row measures, or why it is not computed."""
    chips = row.number("chips", above=0)
    iterations = row.number("iterations", above=0) if row["iterations"] else None
    if row.get("processor", "IPU") != "IPU":
        return f"processor '{shortened(row['processor'], 40)}': only programs on Mk2 chips are described"
    if row["dtype"] != "float32":
        return f"dtype '{shortened(row['dtype'], 40)}': the published codelets are of float32"
    if chips != int(chips) or row["tiles"] not in ("", str(TILES * int(chips))):
        return f"{shortened(row['tiles'], 40)} tiles on {shortened(row['chips'], 40)} chips: a Mk2 has {TILES}"
    problem = ALSO.get(row["problem"], row["problem"])
    order = row.number("space_order", above=0) if row.get("space_order") else 2.0
    vertex = row.get("vertex") or VERTICES.get(problem, "")
    (author, sdk), column = (FIRST, "mesh") if "mesh" in row else (SECOND, "grid")
    if order != int(order) or order > MOST_ORDER:
        return f"space_order '{shortened(row['space_order'], 40)}' is not a whole number up to {MOST_ORDER}"
    if problem.startswith("stream_triad"):
        problem, vertex = "stream_triad", "TriadVertexAssembly" if problem.endswith("asm") else "TriadVertex"
    note = re.search(r"SDK (\d+\.\d+)", row.get("note", ""))
    if note and note[1] != sdk:
        author, sdk = FIRST if note[1] == FIRST[1] else (author, note[1])
    try:
        grid = _grid(row[column], elements=problem == "stream_triad")
    except MappingError as refusal:
        return str(refusal)
    fits = row.get("fits", "yes") != "no"
    if not fits:  # their sides leave out the cells around the grid
        grid = tuple(extent + int(order) // 2 * 2 for extent in grid)
    seconds = _seconds(row, math.prod(grid), iterations)
    if iterations is None and seconds and row.get("time_s"):
        iterations = row.number("time_s", above=0) / seconds
    return Case(
        problem=problem,
        order=int(order),
        vertex=vertex,
        grid=grid,
        chips=int(chips),
        seconds=seconds,
        iterations=iterations,
        author=author,
        sdk=sdk,
        fits=fits,
    )


def _grid(text: str, *, elements: bool) -> tuple[int, ...]:
    form = r"\d{1,12}(?= elements|$)" if elements else r"\d{1,7}(x\d{1,7}){1,2}$"
    found = re.match(form, text)
    if found is None:
        raise MappingError(f"'{shortened(text, 60)}' is not a number of cells, such as 320x320x320 or '1000 elements'")
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
    ReferenceTable(needed=needed, also=SOLVER_ALSO, ignored=SOLVER_IGNORED, predict_all=solver_rows)
    for needed in (CHIPS_COLUMNS, ORDER_COLUMNS)
)
