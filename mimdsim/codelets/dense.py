"""Codelets of the library's plain work: slices and updates of sequences, fills, sums of replicas."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.costs.library.casts import fill_cycles
from mimdsim.costs.library.slices import dynamic_slice_1d_cycles
from mimdsim.numerics import dense as numerics
from mimdsim.program import Codelet, Field, Term, TileFormula


def _slice_cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
    return dynamic_slice_1d_cycles(
        extents["elements"], 1, dtype="f32", worker_contexts=worker_contexts, vector_bytes=vector_bytes
    )


_SLICE = TileFormula(
    cycles=_slice_cycles,
    kind="published",
    source="PopLibs popops DynamicSlice1D / UpdateSlice1D cycle estimator (commit 7eac0f2)",
)


@lru_cache(maxsize=64)
def slice_codelet(along: str, shift: int) -> Codelet:
    """DynamicSlice of a sequence at t + shift into a variable, split along 'rows' or 'columns'."""
    now = "@t" if shift == 0 else f"@t{shift:+d}"
    box = ("start:stop", ":") if along == "rows" else (":", "start:stop")
    return Codelet(
        name=f"DynamicSlice{along.capitalize()}" + (f"({shift:+d})" if shift else ""),
        fields=(
            Field(name="sequence", access="read", box=(now, *box)),
            Field(name="now", access="write", box=box),
        ),
        columns=("start", "stop"),
        compute=numerics.move_rows if along == "rows" else numerics.move_columns,
        cost=_SLICE,
        code_bytes=320,
    )


@lru_cache(maxsize=64)
def update_codelet(along: str) -> Codelet:
    """DynamicUpdateSlice of a variable into a sequence at t, split along 'rows' or 'columns'."""
    box = ("start:stop", ":") if along == "rows" else (":", "start:stop")
    return Codelet(
        name=f"DynamicUpdate{along.capitalize()}",
        fields=(
            Field(name="now", access="read", box=box),
            Field(name="sequence", access="write", box=("@t", *box)),
        ),
        columns=("start", "stop"),
        compute=numerics.move_rows if along == "rows" else numerics.move_columns,
        cost=_SLICE,
        code_bytes=320,
    )


def _fill_cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
    per_worker = -(-np.asarray(extents["elements"]) // worker_contexts)
    return worker_contexts * fill_cycles(per_worker, dtype="f32", vector_bytes=vector_bytes)


_FILL = TileFormula(
    cycles=_fill_cycles, kind="published", source="PopLibs popops Fill cycle estimator (7eac0f2), one per context"
)


def _fill(name: str, box: tuple[str, ...], compute: Any) -> Codelet:
    return Codelet(
        name=name,
        fields=(Field(name="target", access="write", box=box),),
        columns=("start", "stop"),
        compute=compute,
        cost=_FILL,
        code_bytes=192,
    )


FILL_ROWS = _fill("FillRows", ("start:stop", ":"), numerics.fill_rows)
FILL_COLUMNS = _fill("FillColumns", (":", "start:stop"), numerics.fill_matrix_columns)
FILL_REPLICAS = _fill("FillReplicas", (":", ":", "start:stop"), numerics.fill_columns)

FILL_VECTOR = Codelet(
    name="FillVector",
    fields=(Field(name="target", access="write", box=("start:stop",)),),
    columns=("start", "stop"),
    constants=("value",),
    compute=numerics.fill_vector,
    cost=_FILL,
    code_bytes=192,
)

FILL_SLOTS = Codelet(
    name="FillSlots",
    fields=(Field(name="target", access="write", box=("sample", "slot_start:slot_stop")),),
    columns=("sample", "slot_start", "slot_stop"),
    compute=numerics.fill_slots,
    cost=_FILL,
    code_bytes=192,
)


def _sum_cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
    """Contiguous partials per worker: one 64-bit load-and-add per vector and replica, 3 bundles to store a vector."""
    vectors = -(-np.asarray(extents["elements"]) // (worker_contexts * (vector_bytes // 4)))
    return 11 + worker_contexts * (16 + vectors * (extents["replicas"] + 3))


SUM_REPLICAS = Codelet(
    name="SumReplicas",
    fields=(
        Field(name="replicas", access="read", box=(":", ":", "start:stop")),
        Field(name="total", access="write", box=(":", "start:stop")),
    ),
    columns=("start", "stop"),
    compute=numerics.sum_replicas,
    cost=TileFormula(
        cycles=_sum_cycles,
        kind="derived",
        source="PopLibs inner-loop templates: one accumulate per 64 bits and partial, three bundles per stored vector",
    ),
    flops=(Term(bundles=1, extents=("elements", "replicas")),),
    code_bytes=320,
)

CODELETS = (
    slice_codelet("rows", 0),
    slice_codelet("rows", -1),
    slice_codelet("columns", 0),
    update_codelet("rows"),
    update_codelet("columns"),
    FILL_ROWS,
    FILL_COLUMNS,
    FILL_REPLICAS,
    FILL_SLOTS,
    FILL_VECTOR,
    SUM_REPLICAS,
)
