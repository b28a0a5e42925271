"""Predicted phases of the published stencil, one figure a row of `references/stencil_phases.csv`.

Phases of one step, in cycles: compute; copies (the published pre and post copies together: only their sum is computed);
exchange on the chip; global exchange over links; sync; sum. Nothing is fitted to these rows, but three numbers of
the machine come from the same profile: `exchange.fixed_cycles` and `links.fixed_seconds` are what an exchange takes
beyond its bytes, from the difference between 16 and 32 bit elements, `sync.internal_cycles` is the middle of its syncs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from mimdsim.base.errors import DataFileError, MimdsimError
from mimdsim.check.stencil_program import make_program
from mimdsim.compiler import measure_memory
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.program import Program, RecordedActivity
from mimdsim.run import memory_profile
from mimdsim.timing import time_program

PHASES = ("compute", "copies", "exchange", "global exchange", "sync", "sum")
NOT_SPLIT = "pre and post copies are computed together: see the row 'copies'"


def stencil_rows(path: Path, given: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Fields of one row per published figure, without the file's name. Raises DataFileError for bad numbers."""
    rows = []
    for line, row in enumerate(given, start=2):
        try:
            chips, published, tolerance = int(row["chips"]), float(row["cycles"]), float(row["tolerance"])
        except ValueError:
            raise DataFileError(path, f"line {line}: chips, cycles and tolerance must be numbers") from None
        predicted: float | None = None
        note = f"phase '{row['phase']}' is none of {', '.join(PHASES)}"
        if row["phase"] in ("pre copies", "post copies"):
            note = NOT_SPLIT
        elif published == 0:
            note = "0 was published, a phase that this run has not: no ratio"
        elif row["phase"] in PHASES:
            try:
                predicted, note = published_phases(row["type"], chips)[row["phase"]], ""
            except MimdsimError as refusal:
                note = str(refusal)
        rows.append(
            {
                "name": f"blur 2200x1122 {row['type']}, {chips} chip(s): {row['phase']}",
                "unit": "cycles a step",
                "predicted": predicted,
                "published": published,
                "tolerance": tolerance,
                "low": None,
                "high": None,
                "source": row["source"],
                "note": note,
                "kind": row["phase"],
            }
        )
    return rows


@lru_cache(maxsize=8)
def published_phases(variant: str, chips: int) -> dict[str, float]:
    """Phases of one step of the published image on Mk1 chips, by name."""
    machine = load_machine("mk1", {"links.chips": chips})
    assert isinstance(machine, MimdMachine)
    return phases(make_program(machine, variant, chips=chips, steps=1), machine)


def phases(program: Program, machine: MimdMachine) -> dict[str, float]:
    """Cycles of one step of `program` by phase, from PHASES; steps of a longer program are averaged."""
    whole, bare = _timed(program, machine), _timed(program, _without_copies(machine))
    steps = sum(1 for _ in program.supersteps())
    link = sum(span.link_cycles for span in whole)
    found = {
        "compute": sum(span.compute_cycles for span in bare),
        "copies": sum(span.compute_cycles for span in whole) - sum(span.compute_cycles for span in bare),
        "exchange": sum(span.exchange_cycles for span in whole) - link,
        "global exchange": link,
        "sync": sum(span.sync_cycles for span in whole),
    }
    found["sum"] = sum(found.values())
    return {name: cycles / steps for name, cycles in found.items()}


def _timed(program: Program, machine: MimdMachine) -> tuple[Any, ...]:
    memory = memory_profile(program, measure_memory(program, machine), machine)
    profile = time_program(program, machine, RecordedActivity(ids={}, counts={}, dropped={}), memory)
    return profile.spans


def _without_copies(machine: MimdMachine) -> MimdMachine:
    """The machine with copies that take no time, to tell them from the blur."""
    exchange = machine.exchange.model_copy(update={"arrange_fragment_bundles": 0.0})
    tile = machine.tile.model_copy(update={"copy_bytes_per_cycle": math.inf})
    return machine.model_copy(update={"exchange": exchange, "tile": tile})
