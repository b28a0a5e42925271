"""Vertices that step through a sequence where it lies, in place of a slice before them or an update after them.

Each counts the timesteps in its own state, as every vertex runs once a timestep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from mimdsim.codelets.vertex_costs import add_bundles
from mimdsim.numerics.dense.rows import Kept
from mimdsim.program import Codelet, Field, Length, Size, TileFormula, WorkerBundles
from mimdsim.program.codelet import entry_at
from mimdsim.program.instruction_mix import Mix

STEP_BUNDLES = 7  # load, advance and store the counter, times the bytes of a timestep, added to a pointer unpacked (2)
SOURCE = f"{STEP_BUNDLES} to step through a sequence (instruction count of our own)"
KEPT = "kept"  # the field through which a vertex stores a timestep


def _add_stepping(codelet: Codelet, loops: Mapping[str, Mix]) -> WorkerBundles | TileFormula:
    cost = codelet.cost
    if isinstance(cost, WorkerBundles):
        return add_bundles(cost, SOURCE, STEP_BUNDLES, {name: (mix, mix.bundles) for name, mix in loops.items()})
    formula = cost.cycles

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        more = sum(mix.bundles * extents[name] for name, mix in loops.items())
        return formula(extents, worker_contexts, vector_bytes) + worker_contexts * STEP_BUNDLES + more

    return replace(cost, cycles=cycles, source=f"{cost.source}; {SOURCE}")


@lru_cache(maxsize=256)
def read_in_place(codelet: Codelet, field: str, shift: int) -> Codelet:
    """The codelet with a field that reads a timestep of a sequence, `shift` from the current one."""
    now = entry_at(shift)
    fields = tuple(replace(item, box=(now, *item.box)) if item.name == field else item for item in codelet.fields)
    extents = {
        name: replace(each, axis=each.axis + 1) if isinstance(each, Length) and each.field == field else each
        for name, each in codelet.extents.items()
    }
    name = f"{codelet.name}({field}[{now}])"
    return replace(codelet, name=name, fields=fields, extents=extents, cost=_add_stepping(codelet, {}))


@lru_cache(maxsize=256)
def store_in_place(codelet: Codelet, field: str) -> Codelet:
    """The codelet that stores what it leaves in a field in the current timestep of a sequence too."""
    place = next(index for index, item in enumerate(codelet.fields) if item.name == field)
    box = codelet.fields[place].box
    return replace(
        codelet,
        name=f"{codelet.name}({field} kept)",
        fields=(*codelet.fields, Field(name=KEPT, access="write", box=("@t", *box))),
        compute=Kept(codelet.compute, len(codelet.fields), place, _row_columns(codelet, box)),
        cost=_add_stepping(codelet, {KEPT: Mix(store=1)}),
        extents={**codelet.extents, KEPT: Size(KEPT)},
    )


def _row_columns(codelet: Codelet, box: tuple[str, ...]) -> tuple[int, int, int, int]:
    """Which columns say the rows and columns that a vertex writes; of one row, twice the same."""
    rows, columns = (entry.split(":") for entry in box[-2:])
    names = (rows[0], rows[-1], *columns)
    first, last, start, stop = (codelet.columns.index(name) for name in names)
    return first, last, start, stop


def can_store(codelet: Codelet, field: str) -> bool:
    """Whether `store_in_place` knows the boxes of this field."""
    box = codelet.field(field).box
    leading, ends = box[:-2], [entry for entry in box[-2:] if entry != ":"]
    names = [name for entry in ends for name in entry.split(":")]
    return (
        codelet.form == "table"
        and len(box) >= 2
        and len(ends) == 2
        and ":" in box[-1]
        and all(entry == ":" for entry in leading)
        and all(name in codelet.columns for name in names)
        and KEPT not in [item.name for item in codelet.fields]
    )
