"""Planned gathers on one chip and a copy of their result to a layout of the program's own: rows in milliseconds.

The program (nmjfry/ipu-3dgs, commit d517743, tools/multislice_bench.cpp) gathers rows of a table by PopLibs' plan,
`repeats_amortised` times in a loop on the device; the copy gives every tile `lookups_per_tile` whole rows. The plan
that was used is not recorded; here it is searched for as the library does.

A plan cuts the width of the rows into `width_parts`, the rows of the table into `table_parts` and the look-ups into
`lookup_parts`; every tile holds one combination. In the first stage a tile looks for all its look-ups in its part of
the table, and copies what it finds; if the table is cut, a second stage exchanges the candidates and selects. Source:
the cost model of lib/popops/DynamicSlice.cpp (constructModel), graphcore/poplibs 7eac0f2, with the library's defaults:
a plan for gather and update together, uniform indices, temporary memory up to 0.6 of a tile. Left out: serial splits,
and of the update's reduction all but its exchange and additions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, MimdsimError, shortened
from mimdsim.base.units import UNCERTAINTY
from mimdsim.costs.library.elementwise import binary_1d_cycles, broadcast_scalar_1d_cycles, fill_cycles
from mimdsim.costs.library.reductions import multi_slice_cycles, scatter_add_cycles
from mimdsim.machine import MimdMachine
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, around, each_row, whole_numbers
from mimdsim.validation.sparse.codelets import fewest_parts

ITEM_BYTES = INDEX_BYTES = 4
LEAST_INDICES = 32  # minIndicesPerTile
TEMPORARY_SHARE = 0.6  # availableMemoryProportion
MOST_ROWS = 1 << 26


class GatherPlan:
    """Splits, and per tile: look-ups of either stage, rows of the table, floats of a row. staged: whether a second
    stage selects among candidates."""

    def __init__(self, parts: tuple[int, int, int], rows: int, grains: int, grain: int, lookups: int):
        self.width_parts, self.table_parts, self.lookup_parts = parts
        self.lookups, self.table_rows = -(-lookups // self.lookup_parts), -(-rows // self.table_parts)
        self.second_lookups, self.floats = -(-self.lookups // self.table_parts), -(-grains // self.width_parts) * grain
        self.staged = self.table_parts > 1


def _ceil(a: np.ndarray | int, b: np.ndarray | float) -> np.ndarray:
    return np.asarray(-(-np.asarray(a) // b))


@lru_cache(maxsize=32)
def plan_gather(machine: MimdMachine, rows: int, width: int, lookups: int) -> GatherPlan:
    """The plan with the fewest estimated cycles of gather and update for `lookups` rows of a table [rows, width]."""
    if not (2 <= rows <= MOST_ROWS and 1 <= lookups <= MOST_ROWS and 1 <= width <= MOST_ROWS):
        raise MappingError(f"gather of {lookups} rows from {rows} x {width}: counts up to {MOST_ROWS:,} are planned")
    tiles = machine.chip.tiles
    grain = min(width, machine.tile.vector_bytes // ITEM_BYTES)
    grains = -(-width // grain)

    def estimate(floats: int, table_parts: np.ndarray, lookup_parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(cycles, bytes of temporary memory on a tile) of gather and update as the planner estimates them."""
        contexts, per_cycle = machine.tile.worker_contexts, machine.exchange.bytes_per_cycle
        each: Any = _ceil(lookups, lookup_parts)
        of_table = _ceil(rows, table_parts)
        second, staged, parallel = _ceil(each, table_parts), table_parts > 1, lookup_parts > 1
        base = of_table * floats * ITEM_BYTES
        # Bytes of the table beyond an even share of it; charged even where the table already lies as planned.
        uneven = np.maximum(base - _ceil(rows * grains * grain, tiles) * ITEM_BYTES, 0)
        moved = np.maximum(base * parallel, uneven)

        def looked_up(count: np.ndarray) -> np.ndarray:
            worker: Any = _ceil(count, contexts)
            hits = np.ceil(worker * (of_table / rows)).astype(np.int64)
            more: dict[str, Any] = {"worker_contexts": contexts, "vector_bytes": machine.tile.vector_bytes}
            return np.asarray(worker * 0 + multi_slice_cycles(floats, worker, in_range=hits, **more))

        candidates = staged * each * floats * ITEM_BYTES
        rearranged = staged * table_parts * second * floats * ITEM_BYTES
        gather = _ceil(moved, per_cycle) + looked_up(each) + _ceil(rearranged, per_cycle) + staged * looked_up(second)
        memory = np.maximum(moved + candidates + each * INDEX_BYTES, candidates + rearranged + second * INDEX_BYTES)
        sums = of_table * floats
        hits = np.ceil(each * (_ceil(of_table, contexts) / rows)).astype(np.int64)
        scattered = scatter_add_cycles(floats, each, in_range=hits, scaled=True, worker_contexts=contexts)
        reduced = parallel * (_ceil(sums * ITEM_BYTES, per_cycle) + _ceil(sums, lookup_parts) * lookup_parts // 2)
        update = 2 * _ceil(uneven, per_cycle) + parallel * fill_cycles(sums, dtype="f32")
        update = update + _ceil(candidates, per_cycle) + scattered + reduced
        memory = np.maximum(memory, uneven + candidates + parallel * sums * ITEM_BYTES + each * INDEX_BYTES)
        memory = np.maximum(memory, uneven + 2 * parallel * sums * ITEM_BYTES)
        return (gather + update).astype(float), memory

    best: tuple[float, tuple[int, int, int]] | None = None
    for width_parts in {-(-grains // (-(-grains // parts))) for parts in range(1, min(grains, tiles) + 1)}:
        room = tiles // width_parts
        numbers = fewest_parts(rows, min(room, -(-rows // 2))), fewest_parts(lookups, room)
        table_parts, lookup_parts = (axis.ravel() for axis in np.meshgrid(*numbers))
        fits = table_parts * lookup_parts <= room
        table_parts, lookup_parts = table_parts[fits], lookup_parts[fits]
        cycles, temporary = estimate(-(-grains // width_parts) * grain, table_parts, lookup_parts)
        cycles = np.where(temporary <= TEMPORARY_SHARE * machine.tile.sram_bytes, cycles, np.inf)
        at = int(np.argmin(cycles))
        if np.isfinite(cycles[at]) and (best is None or cycles[at] < best[0]):
            best = float(cycles[at]), (width_parts, int(table_parts[at]), int(lookup_parts[at]))
    if best is None:
        raise MappingError(f"gather of {lookups} rows from {rows} x {width}: needs a serial split; that is not planned")
    return GatherPlan(best[1], rows, grains, grain, lookups)


def gather_phases(machine: MimdMachine, plan: GatherPlan, lookups: int) -> dict[str, float]:
    """Cycles of one gather of `lookups` rows by phase, with the machine's own sync and fixed part of an exchange.

    Counted in addition to the planner's model: the indices that every tile must receive; that every candidate of the
    second stage is in range; and the indices of the second stage, which `multiSlice` computes anew in every gather:
    which part of the table holds the row (a division of integers) times the look-ups of the part, plus a running
    number.
    """
    contexts, fabric = machine.tile.worker_contexts, machine.exchange
    vector_bytes = machine.tile.vector_bytes
    started = machine.sync.internal_cycles + fabric.fixed_cycles + fabric.route_cycles
    table = plan.table_rows * plan.floats * ITEM_BYTES if plan.lookup_parts > 1 else 0
    worker = -(-plan.lookups // contexts)

    def vertex(count: int, found: int) -> float:
        return float(
            multi_slice_cycles(plan.floats, count, in_range=found, worker_contexts=contexts, vector_bytes=vector_bytes)
        )

    phases = {
        "table and indices to tiles": started + (table + plan.lookups * INDEX_BYTES) / fabric.bytes_per_cycle,
        "look-up": vertex(worker, -(-worker // plan.table_parts)),
    }
    if not plan.staged:
        return phases
    # Indices lie evenly over all tiles, at least LEAST_INDICES on each.
    own = min(lookups, max(LEAST_INDICES, -(-lookups // machine.chip.tiles)))
    shared: dict[str, Any] = {"dtype": "u32", "worker_contexts": contexts, "vector_bytes": vector_bytes}
    phases["operands of the second stage's indices"] = started + 2 * own * INDEX_BYTES / fabric.bytes_per_cycle
    phases["indices of the second stage"] = float(
        broadcast_scalar_1d_cycles(own, op="DIVIDE", **shared)
        + binary_1d_cycles(own, op="MULTIPLY", **shared)
        + binary_1d_cycles(own, op="ADD", **shared)
    )
    received = plan.second_lookups * (plan.table_parts * plan.floats * ITEM_BYTES + INDEX_BYTES)
    second = -(-plan.second_lookups // contexts)
    phases["candidates to tiles"] = started + received / fabric.bytes_per_cycle
    phases["selection"] = vertex(second, second)
    return phases


COLUMNS = {"id", "operation", "table_rows", "row_floats", "dtype", "lookups", "tiles", "lookups_per_tile", "time_ms"}
MACHINE = "c600"
GATHER, COPY = "popops::multiSlice", "copy"
OFF = UNCERTAINTY["derived"]
TOLERANCE = 0.25
Shape = tuple[int, ...]  # rows and floats of the table, look-ups, tiles, look-ups of a tile


def gather_rows(lines: list[Cells], asked: Asked) -> Iterator[Fields]:
    """Fields of one row per measured gather, and of the copy where gathers with and without it are given; on C600 chips
    unless a machine is asked for."""
    machine = asked.machine_or(MACHINE)
    plain: dict[Shape, list[float]] = {}
    copied: dict[Shape, list[tuple[float, str]]] = {}

    def gather(row: Cells, _asked: Asked) -> Iterator[Fields]:
        published = row.number("time_ms", above=0)
        operation, _, more = (part.strip() for part in row["operation"].partition("+"))
        yield row.figure(row["id"], "ms", published, TOLERANCE, "gather and copy" if more else "gather")
        if operation != GATHER or (more and not more.startswith(COPY)):
            given_one = shortened(row["operation"])
            raise MimdsimError(f"no program for '{given_one}'; known: {GATHER}, alone or with '+ {COPY}'")
        if row["dtype"] not in ("float32", "float"):
            raise MimdsimError(f"dtype '{shortened(row['dtype'])}': only float32 is planned")
        names = ("table_rows", "row_floats", "lookups", "tiles", "lookups_per_tile")
        rows, width, lookups, tiles, each = shape = tuple(whole_numbers(row, *names))
        if each < 1 or not 1 <= tiles <= machine.chip.tiles:
            raise MimdsimError(f"{each} look-ups on each of {tiles} tiles: the chip has {machine.chip.tiles}")
        plan = plan_gather(machine, rows, width, lookups)
        yield {
            **row.predicted(machine, published, partial(_milliseconds, plan, shape, bool(more)), OFF),
            "note": f"plan of our own search: width in {plan.width_parts}, table in {plan.table_parts}, look-ups "
            f"in {plan.lookup_parts} parts",
        }
        if more:
            copied.setdefault(shape, []).append((published, row.get("source_path", "")))
        else:
            plain.setdefault(shape, []).append(published)

    yield from each_row(lines, asked, gather)
    for shape in sorted(copied.keys() & plain.keys()):
        without = sum(plain[shape]) / len(plain[shape])
        for time, source in copied[shape]:
            if time <= without:
                continue
            name, note = "copy alone: with it less without", "difference of two rounded times"
            fields = Cells.figure(name, "ms", time - without, TOLERANCE, "copy", source=source, note=note, derived=True)
            cycles = copy_cycles(machine, plan_gather(machine, *shape[:3]), shape[1], shape[4])
            yield fields | around(1e3 * cycles / machine.chip.clock_hz, OFF)


def _milliseconds(plan: GatherPlan, shape: Shape, copied: bool, machine: MimdMachine) -> float:
    cycles = sum(gather_phases(machine, plan, shape[2]).values())
    cycles += copy_cycles(machine, plan, shape[1], shape[4]) if copied else 0.0
    return 1e3 * cycles / machine.chip.clock_hz


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


GATHERS = ReferenceTable(
    needed=COLUMNS,
    also={"source_path"},
    ignored={"row_bytes", "repeats_amortised", "bytes_gathered"},
    read_all=gather_rows,
    figures="exchange or copy",
)
