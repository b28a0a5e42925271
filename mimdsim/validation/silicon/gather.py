"""Planned gathers on one chip and a copy of their result to a layout of the program's own: rows in milliseconds.

The program (nmjfry/ipu-3dgs, commit d517743, tools/multislice_bench.cpp) gathers rows of a table by PopLibs' plan,
`repeats_amortised` times in a loop on the device; the copy gives every tile `lookups_per_tile` whole rows. The plan
that was used is not recorded; here it is searched for as the library does (gather_plan.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.units import UNCERTAINTY
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, each_row
from mimdsim.validation.sensitivity import Bearing
from mimdsim.validation.silicon.gather_plan import ITEM_BYTES, GatherPlan, gather_phases, plan_gather

COLUMNS = {"id", "operation", "table_rows", "row_floats", "dtype", "lookups", "tiles", "lookups_per_tile", "time_ms"}
MACHINE = "c600"
GATHER, COPY = "popops::multiSlice", "copy"


Shape = tuple[int, int, int, int, int]  # rows and floats of the table, look-ups, tiles, look-ups of a tile


def gather_rows(lines: list[Cells], asked: Asked) -> Iterator[Fields]:
    """Fields of one row per measured gather, and of the copy where gathers with and without it are given; on C600 chips
    unless a machine is asked for."""
    machine = asked.machine or _machine()
    plain: dict[Shape, list[float]] = {}
    copied: dict[Shape, list[tuple[float, str]]] = {}

    def gather(row: Cells, _asked: Asked) -> Fields:
        published = row.number("time_ms", above=0)
        operation, _, more = (part.strip() for part in row["operation"].partition("+"))
        source = row.get("source_path", "")
        fields = _fields(row["id"], published, "gather and copy" if more else "gather", source)
        try:
            if operation != GATHER or (more and not more.startswith(COPY)):
                given_one = shortened(row["operation"])
                raise MimdsimError(f"no program for '{given_one}'; known: {GATHER}, alone or with '+ {COPY}'")
            if row["dtype"] not in ("float32", "float"):
                raise MimdsimError(f"dtype '{shortened(row['dtype'])}': only float32 is planned")
            shape = _shape(row, machine)
            plan = _plan(machine, *shape[:3])
            cycles = _cycles(machine, plan, shape, bool(more))
        except MimdsimError as refusal:
            return fields | {"note": str(refusal)}
        if more:
            copied.setdefault(shape, []).append((published, source))
        else:
            plain.setdefault(shape, []).append(published)
        remark = (
            f"plan of our own search: width in {plan.width_parts}, table in {plan.table_parts}, look-ups in "
            f"{plan.lookup_parts} parts"
        )
        bearing = Bearing(
            line=row.line, machine=machine.name, measured=published, again=partial(_again, plan, shape, bool(more))
        )
        return {**fields, **_predicted(machine, cycles, "derived"), "note": remark, "bearing": bearing}

    yield from each_row(lines, asked, gather)
    for shape in sorted(copied.keys() & plain.keys()):
        without = sum(plain[shape]) / len(plain[shape])
        for time, source in copied[shape]:
            if time <= without:
                continue
            fields = _fields("copy alone: with it less without", time - without, "copy", source)
            cycles = copy_cycles(machine, _plan(machine, *shape[:3]), shape[1], shape[4])
            yield {**fields, **_predicted(machine, cycles, "derived"), "note": "difference of two rounded times"}


@lru_cache(maxsize=1)
def _machine() -> MimdMachine:
    machine = load_machine(MACHINE)
    assert isinstance(machine, MimdMachine)
    return machine


@lru_cache(maxsize=32)
def _plan(machine: MimdMachine, rows: int, width: int, lookups: int) -> GatherPlan:
    return plan_gather(machine, rows, width, lookups)


def _cycles(machine: MimdMachine, plan: GatherPlan, shape: Shape, copied: bool) -> float:
    cycles = sum(gather_phases(machine, plan, shape[2]).values())
    return cycles + (copy_cycles(machine, plan, shape[1], shape[4]) if copied else 0.0)


def _again(plan: GatherPlan, shape: Shape, copied: bool, machine: MimdMachine) -> float:
    """Milliseconds of the same plan."""
    return 1e3 * _cycles(machine, plan, shape, copied) / machine.chip.clock_hz


def copy_cycles(machine: MimdMachine, plan: GatherPlan, width: int, each: int) -> float:
    """Cycles until every tile has `each` whole rows: their bytes, or a message for every piece of a row.

    A plan that cuts rows leaves their pieces on different tiles, so every piece is a fragment at either end, as
    exchanges of programs count them; whole rows of a tile lie together.
    """
    fabric = machine.exchange
    pieces = each * plan.width_parts if plan.width_parts > 1 else 1
    wire = each * width * ITEM_BYTES / fabric.bytes_per_cycle
    control = pieces * fabric.receive_fragment_cycles + pieces * fabric.send_fragment_cycles
    return machine.sync.internal_cycles + fabric.fixed_cycles + fabric.route_cycles + max(wire, control)


def _fields(name: str, published: float, kind: str, source: str) -> dict[str, Any]:
    return {
        "name": name,
        "unit": "ms",
        "predicted": None,
        "published": published,
        "tolerance": 0.25,
        "low": None,
        "high": None,
        "source": source,
        "kind": kind,
    }


def _predicted(machine: MimdMachine, cycles: float, kind: str) -> dict[str, float]:
    milliseconds = 1e3 * cycles / machine.chip.clock_hz
    off = UNCERTAINTY[kind]
    return {"predicted": milliseconds, "low": (1 - off) * milliseconds, "high": (1 + off) * milliseconds}


def _shape(row: dict[str, str], machine: MimdMachine) -> Shape:
    names = ("table_rows", "row_floats", "lookups", "tiles", "lookups_per_tile")
    try:
        rows, width, lookups, tiles, each = (int(row[name]) for name in names)
    except ValueError:
        texts = ", ".join(f"{name} '{shortened(row[name])}'" for name in names)
        raise MimdsimError(f"{texts}: must be whole numbers") from None
    if each < 1 or not 1 <= tiles <= machine.chip.tiles:
        raise MimdsimError(f"{each} look-ups on each of {tiles} tiles: the chip has {machine.chip.tiles}")
    return rows, width, lookups, tiles, each


GATHERS = ReferenceTable(
    needed=COLUMNS,
    also={"source_path"},
    ignored={"row_bytes", "repeats_amortised", "bytes_gathered"},
    predict_all=gather_rows,
)
