"""Codelets of basic library operations: slices and updates of sequences, fills, sums of replicas.

Vertices that step through a sequence where it lies, in place of a slice before them or an update after them.

Each counts the timesteps in its own state, as every vertex runs once a timestep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.vertex_costs import add_bundles, by_item_bytes, on_elements, vectors_each
from mimdsim.costs.library.elementwise import fill_cycles
from mimdsim.costs.library.network import uniform_cycles
from mimdsim.costs.library.reductions import dynamic_slice_1d_cycles
from mimdsim.numerics.dense import dense as numerics
from mimdsim.numerics.dense.dense import Kept
from mimdsim.program import Codelet, Field, Length, Size, TileFormula, WorkerBundles, fields_of, terms_of
from mimdsim.program.codelet import columns_of, entry_at
from mimdsim.program.loops import Mix

MOVE_BYTES = 192  # code of a library codelet that moves or fills (assumed)
FORMATS = {1: "u8", 2: "f16", 4: "f32"}  # the library's cycles depend on the bytes of an element


@by_item_bytes("published", "PopLibs popops DynamicSlice1D / UpdateSlice1D cycle estimator (commit 7eac0f2)")
def slice_formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
    """Slice or update."""
    machine = {"worker_contexts": contexts, "vector_bytes": vector_bytes}
    return dynamic_slice_1d_cycles(extents["elements"], 1, dtype=FORMATS[item_bytes], **machine)


@dataclass(frozen=True, kw_only=True)
class Part:
    """The part of a variable that a vertex moves: its box, and the function that copies it. name: in codelets."""

    name: str
    box: str
    move: Callable[..., None]

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(tuple(self.box.split(", ")))


BOX = "row_start:row_stop, start:stop"
PARTS = {
    "rows": Part(name="Rows", box="start:stop, :", move=numerics.move_rows),
    "columns": Part(name="Columns", box=":, start:stop", move=numerics.move_columns),
    "states": Part(name="States", box=":, :, start:stop", move=numerics.move_columns),
    "slots": Part(name="Slots", box="sample, slot_start:slot_stop", move=numerics.move_slots),
    "boxes": Part(name="Boxes", box=BOX, move=numerics.move_boxes),
    "boxes of states": Part(name="States", box=f":, {BOX}", move=numerics.move_boxes),
}


def _at_timestep(name: str, source: str, target: str, along: str, shift: int) -> Codelet:
    """The offset is a counter that every tile keeps for itself, so a slice exchanges nothing and does not wait."""
    part = PARTS[along]
    box = {"now": part.box, "sequence": f"{entry_at(shift)}, {part.box}"}
    return on_elements(
        f"{name}{part.name}" + (f"({shift:+d})" if shift else ""),
        f"read {source}[{box[source]}]; write {target}[{box[target]}]; read timestep[tile] by entry of sequence",
        part.move,
        slice_formula(4),
        "now",
        flops=0,
        columns=part.columns,
        joinable="boxes" not in along,
        code_bytes=320,
    )


@lru_cache(maxsize=64)
def slice_codelet(along: str, shift: int) -> Codelet:
    """DynamicSlice of a sequence at t + shift into a variable, split as in PARTS."""
    return _at_timestep("DynamicSlice", "sequence", "now", along, shift)


@lru_cache(maxsize=64)
def update_codelet(along: str, shift: int = 0) -> Codelet:
    """DynamicUpdateSlice of a variable into a sequence at t + shift, split as in PARTS."""
    return _at_timestep("DynamicUpdate", "now", "sequence", along, shift)


@by_item_bytes("published", "PopLibs popops Fill cycle estimator (7eac0f2), one per context")
def fill_formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
    """Equal values in all elements."""
    per_worker = -(-np.asarray(extents["elements"]) // contexts)
    return contexts * fill_cycles(per_worker, dtype=FORMATS[item_bytes], vector_bytes=vector_bytes)


def _fill(name: str, box: str, compute: Any, *constants: str, joinable: bool = True) -> Codelet:
    more: dict[str, Any] = {"constants": constants, "joinable": joinable, "code_bytes": MOVE_BYTES}
    return on_elements(name, f"write target[{box}]", compute, fill_formula(4), "target", flops=0, **more)


FILL_ROWS = _fill("FillRows", PARTS["rows"].box, numerics.fill_rows)
FILL_COLUMNS = _fill("FillColumns", PARTS["columns"].box, numerics.fill_columns)
FILL_REPLICAS = _fill("FillReplicas", PARTS["states"].box, numerics.fill_columns)
FILL_OWN_REPLICAS = _fill("FillOwnReplicas", f"first:last, {BOX}", numerics.fill_replicas, joinable=False)
FILL_VECTOR = _fill("FillVector", "start:stop", numerics.fill_vector, "value")
FILL_SLOTS = _fill("FillSlots", PARTS["slots"].box, numerics.fill_slots)
FILL_BOXES = _fill("FillBoxes", BOX, numerics.fill_boxes, joinable=False)
FILL_STATES = _fill("FillStates", f":, {BOX}", numerics.fill_boxes, joinable=False)
# by the names of PARTS
FILLS = dict(zip(PARTS, (FILL_ROWS, FILL_COLUMNS, FILL_REPLICAS, FILL_SLOTS, FILL_BOXES, FILL_STATES), strict=True))


SCALAR_ADD_CYCLES = 11 + 6 * (58 + 7)  # one integer on one tile: launch, prologue, one add
SCALAR_ADD = TileFormula(
    cycles=lambda extents, *_: SCALAR_ADD_CYCLES * extents["elements"],
    kind="published",
    source="PopLibs popops BinaryOp1DInPlace ADD int of one element (commit 7eac0f2), six contexts started",
)

COUNTER: dict[str, Any] = {"constants": ("by",), "flops": 0, "code_bytes": MOVE_BYTES}
COUNT_TIMESTEP = on_elements(
    "CountTimestep", "update timestep[tile]", numerics.count_on, SCALAR_ADD, "timestep", **COUNTER
)
OFFSET_FROM = on_elements(
    "PreviousTimestep",
    "write previous[tile]; read timestep[tile]",
    numerics.offset_from,
    SCALAR_ADD,
    "previous",
    **COUNTER,
)

COPY_CYCLES = 288  # launch and rendezvous of a copy by six contexts


@by_item_bytes(
    "derived", "six-worker copy measured on a C600, 288 cycles and one per 8 bytes (osmarks/ipu-stack cost.rs)"
)
def copy_formula(extents: dict[str, Any], item_bytes: int, _contexts: int, vector_bytes: int) -> Any:
    """Copy on a tile."""
    return COPY_CYCLES + item_bytes * np.asarray(extents["elements"]) // vector_bytes


def copying(name: str, signature: str, compute: Any, target: str = "target", **more: Any) -> Codelet:
    """A vertex that moves what its field `target` holds; more: as of `on_elements`."""
    return on_elements(name, signature, compute, copy_formula(4), target, flops=0, code_bytes=MOVE_BYTES, **more)


@lru_cache(maxsize=16)
def copy_codelet(along: str, source_shift: int | None = None, target_shift: int | None = None) -> Codelet:
    """A copy of boxes between variables, or entries of a sequence at t plus a shift, whose addresses are known when the
    program is compiled: no offset is sent, unlike for a slice. along: "boxes" or "boxes of states" of PARTS."""
    part = PARTS[along]
    source, target = (
        part.box if shift is None else f"{entry_at(shift)}, {part.box}" for shift in (source_shift, target_shift)
    )

    def compute(source: Any, target: Any, *columns: Any) -> None:
        part.move(source, target, source, *columns)  # no array says which timestep it is

    at = "".join(
        f"{word}{shift:+d}" for word, shift in (("From", source_shift), ("To", target_shift)) if shift is not None
    )
    return copying(f"Copy{part.name}{at}", f"read source[{source}]; write target[{target}]", compute)


SPLIT = "read source[:, start:stop]; write target[:, start:stop]"
COPY_COLUMNS = copying("CopyColumns", SPLIT, numerics.copy_columns, joinable=True)

UNIFORM_FORMULA = TileFormula(
    cycles=lambda extents, contexts, vector: uniform_cycles(
        extents["elements"], worker_contexts=contexts, vector_bytes=vector
    ),
    kind="published",
    source="PopLibs poprand Uniform cycle estimator (commit 7eac0f2)",
)
RANDOM_OFFSETS = on_elements(
    "RandomOffsets",
    "write offsets[slot]",
    numerics.random_offsets,
    UNIFORM_FORMULA,
    "offsets",
    flops=0,
    code_bytes=256,
)


@by_item_bytes(
    "derived",
    "PopLibs inner-loop templates: one accumulate per 64 bits and partial, three bundles per stored vector",
    of_halves=", six of halves",
)
def sum_formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
    """Contiguous partials per worker: one 64-bit load-and-add per vector and replica, 3 bundles to store a vector; 6
    for halves, whose accumulators take three more to read and convert (strided reduction: 8 instead of 5)."""
    vectors = vectors_each(extents["elements"], item_bytes, contexts, vector_bytes)
    return 11 + contexts * (16 + vectors * (extents["replicas"] + {4: 3, 2: 6}[item_bytes]))


def _sum_and_add_cycles(extents: dict[str, Any], contexts: int, vector_bytes: int) -> Any:
    """The sum with its total as one replica more."""
    more = vectors_each(extents["elements"], 4, contexts, vector_bytes)
    return sum_formula(4).cycles(extents, contexts, vector_bytes) + contexts * more


SUM_REPLICAS = Codelet(
    name="SumReplicas",
    fields=fields_of("read replicas[:, :, start:stop]; write total[:, start:stop]"),
    compute=numerics.sum_replicas,
    joinable=True,
    cost=sum_formula(4),
    flops=terms_of({"elements replicas": 1}),
    code_bytes=320,
    extents={"elements": Size("total"), "replicas": Length("replicas", 0)},
)

SUM_OWN_REPLICAS = replace(
    SUM_REPLICAS,
    name="SumOwnReplicas",
    fields=fields_of(f"read replicas[first:last, {BOX}]; write totals[copy, {BOX}]"),
    columns=("first", "last", "row_start", "row_stop", "start", "stop", "copy"),
    compute=numerics.sum_own_replicas,
    joinable=False,
    extents={"elements": Size("totals"), "replicas": Length("replicas", 0)},
)

SUM_SOME_REPLICAS = replace(
    SUM_REPLICAS,
    name="SumSomeReplicas",
    fields=fields_of(f"read replicas[first:last, {BOX}]; write total[{BOX}]"),
    columns=("first", "last", "row_start", "row_stop", "start", "stop"),
    compute=numerics.sum_some_replicas,
    joinable=False,
)

ADD_REPLICAS = replace(
    SUM_OWN_REPLICAS,
    name="AddReplicas",
    fields=fields_of(f"read replicas[first:last, {BOX}]; update totals[copy, {BOX}]"),
    compute=numerics.add_replicas,
    cost=replace(sum_formula(4), cycles=_sum_and_add_cycles),
)


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
