"""Compiled loops of one worker on every tile: cycles of rows with iterations, unrolling and the tile's counter.

The program (UCL-RITS/pi_examples, commit 6e194e1: codelets.cpp, pi.jl) integrates 4 / (1 + x^2) by midpoints; the
vertex reads the cycle counter before and after its loop, so neither launch nor sync is measured. One of six contexts
works, and a context issues one bundle in `tile.issue_cycles`. Two rows for each of the table:

    whole slots     issue_cycles * n/unroll * (whole number of slots nearest to the measured time): tests the issue
                    rate. If a context issued at another rate, no whole number would fit
    counted slots   issue slots of an element by our own count of the loop, and the range it may have

Counted: every instruction alone, as compiled loops are (`tile.compiled_dual_issue` of the machines). The least: integer
code beside arithmetic and divisions of one slot. The most: divisions of three, and two slots for a vertex field that is
loaded again. Assembly is not published, so the range is what is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from mimdsim.base.errors import MimdsimError
from mimdsim.machine import tiled_machine
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, within_bounds
from mimdsim.validation.silicon.vertices import DIVIDE, DIVIDE_LEAST, DIVIDE_MOST

COLUMNS = {"id", "language", "workers_per_tile", "iterations_per_tile", "unroll_factor", "tile_cycles_max"}
MACHINE = "bow"  # clock of 1.85 GHz, as printed
MOST_ITERATIONS = 1 << 40
CONVERTED = 1  # index to floating point, once a trip
ELEMENT = 5  # subtract a half, multiply by the step, square, add one, accumulate; and a division
OFFSET = 1  # add the number of the copy, where the loop is unrolled
TRIP = 5  # index from integer to arithmetic registers through memory (2), count, compare, branch
RELOADED = 2
# Reading the counter, moving arguments, the first values of loop and sum: outside of the trips, assumed.
AROUND_BUNDLES = 20


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Issue slots of one trip of the loop: as counted, the fewest and the most that the source allows."""

    counted: float
    least: float
    most: float


def slots_of_trip(unroll: int) -> Slots:
    """Slots of one trip in which the body is written `unroll` times."""
    each = ELEMENT + (OFFSET if unroll > 1 else 0)
    return Slots(
        counted=TRIP + CONVERTED + unroll * (each + DIVIDE),
        least=max(TRIP, CONVERTED + unroll * (each + DIVIDE_LEAST)),
        most=TRIP + RELOADED + CONVERTED + unroll * (each + DIVIDE_MOST),
    )


def loop_row(row: Cells, _asked: Asked) -> list[Fields]:
    """Fields of the two figures of a measured loop."""
    machine = tiled_machine(MACHINE, "")
    issue = machine.tile.issue_cycles
    n, unroll, workers = (row.whole(name) for name in ("iterations_per_tile", "unroll_factor", "workers_per_tile"))
    cycles = row.number("tile_cycles_max", above=0)
    if n > MOST_ITERATIONS or unroll > n:
        raise MimdsimError(f"unroll_factor {unroll} of {n} iterations; iterations are at most {MOST_ITERATIONS:,}")
    name = f"{row['id']}, {row['language']}"
    if workers > min(machine.tile.worker_contexts, issue):
        why = f"{workers} workers a tile: a tile has {machine.tile.worker_contexts}"
        return [{"name": name, "unit": "cycles", "published": cycles, "note": why, "kind": "other"}]
    around = issue * AROUND_BUNDLES
    a_slot = issue * n / unroll
    whole = max(1, round((cycles - around) / a_slot))
    slots = slots_of_trip(unroll)
    return [
        {
            "name": f"{name}: whole slots",
            "unit": "cycles",
            **within_bounds(whole * a_slot + around, whole * a_slot, whole * a_slot + 3 * around),
            "published": cycles,
            "tolerance": 0.01,
            "note": "the whole number of slots that is nearest: tests one bundle of a context in "
            f"{issue} cycles, not the number of slots",
            "kind": "one bundle a turn",
            "figures": "",
        },
        {
            "name": f"{name}: counted slots",
            "unit": "issue slots an iteration",
            **within_bounds(slots.counted / unroll, slots.least / unroll, slots.most / unroll),
            "published": cycles / (issue * n),
            "tolerance": 0.25,
            "note": "instruction count of our own; the assembly is not published",
            "kind": "issue slots",
        },
    ]


LOOPS = ReferenceTable(
    needed=COLUMNS,
    also={"source_path"},
    ignored={"tiles", "tile_cycles_per_iteration", "issue_slots_per_iteration", "time_s"},
    read_row=loop_row,
    figures="vertex",
    on="bow",
)
