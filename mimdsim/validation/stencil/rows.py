"""Predicted phases of the published stencil, one figure a row of `references/stencil_phases.csv`.

Phases of one step, in cycles: compute; pre copies and post copies, what is copied on a tile before and after the blur,
and both together as copies; exchange on the chip; global exchange over links; sync; sum. As in a profile that lists
program steps, compute and each of the copies are those of the tile that takes longest. No factor is fitted to a row,
but these are not blind predictions: `exchange.fixed_cycles` and `links.fixed_seconds` are what an exchange of this
profile takes beyond its bytes, from the difference between 16 and 32 bit elements, `sync.internal_cycles` and
`sync.exchange_share` are its syncs on one chip, a tenth of the exchange, and `sync.external_cycles` and what copies
cost were chosen with the rows in view (references/disagreements.toml).
"""

from __future__ import annotations

from functools import lru_cache

from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.base.units import UNCERTAINTY
from mimdsim.compiler import measure_memory
from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.program import Program, RecordedActivity
from mimdsim.timing import time_program
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, around
from mimdsim.validation.sensitivity import Bearing
from mimdsim.validation.stencil.program import PUBLISHED_COLUMNS, PUBLISHED_ROWS, make_program

STAGES = {"compute": "blur", "pre copies": "pre copies", "post copies": "post copies"}  # phase -> stage of supersteps
PHASES = (*STAGES, "copies", "exchange", "global exchange", "sync", "sum")
# the blur, exchange and sync are derived, what is copied is assumed
WIDTH = {phase: UNCERTAINTY["assumed" if "copies" in phase else "derived"] for phase in PHASES}


def stencil_row(row: Cells, asked: Asked) -> Fields:
    """Fields of a published figure, of Mk1 chips unless a machine is asked for."""
    chip = asked.machine or _mk1()
    chips, published, tolerance = row.whole("chips"), row.number("cycles"), row.number("tolerance")
    fields: Fields = {
        "name": f"blur 2200x1122 {row['type']}, {chips} chip(s): {row['phase']}",
        "unit": "cycles a step",
        "published": published,
        "tolerance": tolerance,
        "source": row["source"],
        "kind": row["phase"],
    }
    if published == 0:
        return fields | {"note": "0 was published; this run does not have that phase: no ratio"}
    if row["phase"] not in PHASES:
        return fields | {"note": f"phase '{row['phase']}' is none of {', '.join(PHASES)}"}
    try:
        predicted = _phases(chip, chip, row["type"], chips)[row["phase"]]
    except MimdsimError as refusal:
        return fields | {"note": str(refusal)}
    bearing = _bearing(chip, row.line, row, chips, published)
    return fields | around(predicted, WIDTH[row["phase"]]) | {"bearing": bearing}


def _mk1() -> MimdMachine:
    machine = load_machine("mk1")
    assert isinstance(machine, MimdMachine)
    return machine


def _bearing(chip: MimdMachine, line: int, row: dict[str, str], chips: int, published: float) -> Bearing | None:
    if row["phase"] in ("copies", "sum"):  # of phases that have rows of their own
        return None
    return Bearing(
        line=line,
        machine=chip.name,
        measured=published,
        again=lambda machine: _phases(machine, chip, row["type"], chips)[row["phase"]],
    )


def published_phases(
    variant: str, chips: int, rows: int = PUBLISHED_ROWS, columns: int = PUBLISHED_COLUMNS
) -> dict[str, float]:
    """Phases of one step of the published image, or of another of rows x columns pixels, on Mk1 chips, by name."""
    return _phases(_mk1(), _mk1(), variant, chips, rows, columns)


@lru_cache(maxsize=64)
def _phases(
    machine: MimdMachine,
    made_for: MimdMachine,
    variant: str,
    chips: int,
    rows: int = PUBLISHED_ROWS,
    columns: int = PUBLISHED_COLUMNS,
) -> dict[str, float]:
    """Of the program for one description of a chip, timed on another."""
    return phases(_program(made_for, variant, chips, rows, columns), changed_machine(machine, {"links.chips": chips}))


@lru_cache(maxsize=8)
def _program(chip: MimdMachine, variant: str, chips: int, rows: int, columns: int) -> Program:
    several = changed_machine(chip, {"links.chips": chips})
    return make_program(several, variant, rows, columns, chips=chips, steps=1)


def phases(program: Program, machine: MimdMachine) -> dict[str, float]:
    """Cycles of one step of `program` by phase, from PHASES; steps of a longer program are averaged."""
    nothing = RecordedActivity(ids={}, counts={}, dropped={})
    memory = memory_profile(program, measure_memory(program, machine), machine)
    spans = time_program(program, machine, nothing, memory).spans
    loads = program_loads(program, nothing, TileIssue.of(machine))
    stages = [superstep.stage for superstep, _, _ in program.supersteps()]
    if "blur" not in stages:
        raise MappingError("phases of a stencil: the program has no superstep of the stage 'blur'; see make_program")
    longest = {
        name: sum(int(load.busy.max()) for load, of in zip(loads, stages, strict=True) if of == stage)
        for name, stage in STAGES.items()
    }
    link = sum(span.link_cycles for span in spans)
    found: dict[str, float] = {
        **longest,
        "copies": longest["pre copies"] + longest["post copies"],
        "exchange": sum(span.exchange_cycles for span in spans) - link,
        "global exchange": link,
        "sync": sum(span.sync_cycles for span in spans),
    }
    found["sum"] = sum(cycles for name, cycles in found.items() if name != "copies")
    return {name: cycles / stages.count("blur") for name, cycles in found.items()}


STENCIL_PHASES = ReferenceTable(
    needed={"chips", "type", "phase", "cycles", "tolerance", "source"}, predict_row=stencil_row
)
