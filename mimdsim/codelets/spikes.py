"""Codelets of spike selection and of the gradients that follow listed ids."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.dense import BOX
from mimdsim.codelets.neurons import vectors_of
from mimdsim.codelets.vertex_overhead import (
    LAUNCH_BUNDLES,
    SOURCE,
    SUBWORD_STORE_BUNDLES,
    SUBWORD_STORE_SOURCE,
    overhead_bundles,
)
from mimdsim.numerics.sparse import spikes as numerics
from mimdsim.program import (
    Codelet,
    Field,
    Hits,
    Length,
    Listed,
    Lists,
    Size,
    Spikes,
    SpikesOver,
    Term,
    TileFormula,
    Within,
    WorkerBundles,
)

FLAG_SPIKES = Codelet(
    name="FlagSpikes",
    fields=(
        Field(name="v", access="read", box=("sample", "neuron")),
        Field(name="flags", access="write", box=(":", "sample", "neuron")),
    ),
    constants=("threshold", "second_threshold"),
    compute=numerics.flag_spikes,
    joinable=True,
    cost=WorkerBundles(
        fixed=LAUNCH_BUNDLES + 12,  # two loads, two compares, two stores, little else
        terms=(),
        kind="derived",
        source=f"{SOURCE}; about 12 for the body",
    ),
    flops=(),
    code_bytes=192,
)

FLAG_SPIKES_ABOVE = Codelet(
    name="FlagSpikesAbove",
    fields=(*FLAG_SPIKES.fields, Field(name="second_threshold", access="read", box=(":",))),
    constants=("threshold",),
    compute=numerics.flag_spikes_above,
    cost=WorkerBundles(
        fixed=LAUNCH_BUNDLES + 14,  # plus the pointer to the second threshold and its load
        terms=(),
        kind="derived",
        source=f"{SOURCE}; about 12 for the body, 2 for a threshold that lies in memory",
    ),
    code_bytes=192,
)

FLAG_ROWS_COST = WorkerBundles(
    fixed=overhead_bundles(scalars=4, vectors=2),
    terms=(
        Term(bundles=9, extents=("samples", "neurons"), pairable=2),
        Term(bundles=6, extents=("samples",)),  # three pointers of the row, loop
    ),
    kind="derived",
    source="instruction count of our own: load, two compares, and-not, two ands, two stores, loop; 6 per row",
)
FLAG_ROWS = Codelet(
    name="FlagRows",
    fields=(
        Field(name="v", access="read", box=BOX),
        Field(name="flags", access="write", box=(":", *BOX)),
    ),
    constants=("threshold", "second_threshold"),
    compute=numerics.flag_rows,
    joinable=True,
    cost=FLAG_ROWS_COST,
    code_bytes=256,
    extents={"samples": Length("v", 0), "neurons": Length("v", 1)},
)

FLAG_ROWS_ABOVE = replace(
    FLAG_ROWS,
    name="FlagRowsAbove",
    fields=(*FLAG_ROWS.fields, Field(name="second_threshold", access="read", box=(":",))),
    constants=("threshold",),
    compute=numerics.flag_rows_above,
    cost=replace(FLAG_ROWS_COST, fixed=overhead_bundles(scalars=3, vectors=3) + 1),
)

ROW_HITS = Lists(Hits, ("spikes", "gradient"), by="row")  # by the row of flags: true spikes, gradient entries

SCAN_FLAGS = Codelet(
    name="ScanFlags",
    fields=(
        Field(name="flags", access="read", box=("row", "sample", "start:stop"), one_row=True),
        Field(name="worker_ids", access="write", box=("slot", ":")),
        Field(name="worker_counts", access="write", box=("slot",)),
    ),
    constants=("capacity",),
    compute=numerics.scan_flags,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=2),
        terms=(
            Term(bundles=4.5, extents=("states",)),  # load flag, branch, increment
            Term(bundles=3, extents=("hits",)),  # store the id, increment
        ),
        kind="derived",
        source=f"{SOURCE}; 4-5 per flag and 3 per hit, early exit at capacity left out",
    ),
    code_bytes=320,
    extents={"states": Length("flags", 2), "hits": ROW_HITS},
)

COMBINE_WORKERS = Codelet(
    name="CombineWorkers",
    fields=(
        Field(name="worker_ids", access="read", box=("first:last", ":")),
        Field(name="worker_counts", access="read", box=("first:last",)),
        Field(name="tile_ids", access="write", box=("slot", ":")),
        Field(name="tile_counts", access="write", box=("slot",)),
    ),
    compute=numerics.combine_workers,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=3),
        terms=(Term(bundles=3.5, extents=("hits",)), Term(bundles=6, extents=("workers",))),
        kind="derived",
        source=f"{SOURCE}; 3-4 per id, about 6 per worker list",
    ),
    code_bytes=320,
    extents={"workers": Length("worker_ids", 0), "hits": ROW_HITS},
)

COMBINE_TILES = Codelet(
    name="CombineTiles",
    fields=(
        Field(name="tile_ids", access="read", box=("first:last", ":")),
        Field(name="tile_counts", access="read", box=("first:last",)),
        Field(name="ids", access="write", box=("sample", ":")),
        Field(name="counts", access="write", box=("sample", ":")),
    ),
    columns=("sample", "first", "middle", "last"),
    compute=numerics.combine_tiles,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=4),
        terms=(Term(bundles=3.5, extents=("listed",)), Term(bundles=6, extents=("lists",))),
        kind="derived",
        source=f"{SOURCE}; 3-4 per id, about 6 per tile list",
    ),
    code_bytes=384,
    extents={"lists": Length("tile_ids", 0), "listed": Lists(Listed)},
)

ROW_VECTOR = 8  # neurons of a dense row that one 64-bit store clears

SPIKES_TO_DENSE = Codelet(
    name="SpikesToDense",
    fields=(
        Field(name="row", access="write", box=("sample", ":")),
        Field(name="ids", access="read", box=("sample", ":")),
        Field(name="counts", access="read", box=("sample", ":")),
    ),
    compute=numerics.spikes_to_dense,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=3),
        terms=(
            Term(bundles=3, extents=("vectors",)),  # store, next address, branch
            # load id, count, branch, then a byte into its word
            Term(bundles=4 + SUBWORD_STORE_BUNDLES, extents=("spikes",)),
        ),
        kind="derived",
        source=f"instruction count of our own: 3 per 64 bits cleared, 4 per spike and {SUBWORD_STORE_SOURCE}",
    ),
    code_bytes=320,
    extents={"spikes": Lists(Spikes), "vectors": Length("row", 1, per=ROW_VECTOR)},
)

WEIGHT_GRADIENT = Codelet(
    name="WeightGradient",
    fields=(
        Field(name="dw", access="update", box=("replica", ":", "start:stop")),
        Field(name="q", access="read", box=("sample_start:sample_stop", "start:stop")),
        Field(name="ids", access="read", box=("sample_start:sample_stop", ":")),
        Field(name="counts", access="read", box=("sample_start:sample_stop", ":")),
    ),
    columns=("replica", "sample_start", "sample_stop", "start", "stop"),
    compute=numerics.weight_gradient,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=4),
        terms=(
            Term(bundles=7, extents=("spikes", "pairs"), pairable=1),  # load id, load, add, store; the loop reloads
            Term(bundles=8, extents=("samples",)),
        ),
        kind="derived",
        source=f"{SOURCE}; about 7 per spike and neuron pair where aliasing cannot be excluded",
    ),
    flops=(Term(bundles=1, extents=("spikes", "neurons")),),
    code_bytes=512,
    extents={"spikes": Lists(SpikesOver), "samples": Length("q", 0), **vectors_of("q", 1)},
)

INPUT_GRADIENT = Codelet(
    name="InputGradient",
    fields=(
        Field(name="partial", access="write", box=("part", "sample", ":")),
        Field(name="w", access="read", box=(":", "start:stop")),
        Field(name="q", access="read", box=("sample", "start:stop")),
        Field(name="ids", access="read", box=("sample", ":")),
        Field(name="counts", access="read", box=("sample", ":")),
    ),
    compute=numerics.input_gradient,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=5),
        terms=(Term(bundles=7, extents=("listed", "pairs"), pairable=2),),  # load id, load, multiply, add, store
        kind="derived",
        source=f"{SOURCE}; about 7 per listed id and neuron pair where aliasing cannot be excluded",
    ),
    flops=(Term(bundles=2, extents=("listed", "neurons")),),
    code_bytes=512,
    extents={"listed": Lists(Listed), **vectors_of("q", 1)},
)

REDUCE_PARTS = Codelet(
    name="ReduceParts",
    fields=(
        Field(name="partial", access="read", box=("part_start:part_stop", "sample", "slot")),
        Field(name="counts", access="read", box=("sample", ":")),
        Field(name="stage", access="write", box=("group", "sample", "slot")),
    ),
    columns=("part_start", "part_stop", "group", "sample", "slot"),
    compute=numerics.reduce_parts,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=3),
        terms=(Term(bundles=1, extents=("listed", "parts"), pairable=0.5),),  # a pair of parts: load, add
        kind="derived",
        source=f"{SOURCE}; load and add per pair of parts, vectorised by the compiler; nothing when not listed",
    ),
    flops=(Term(bundles=1, extents=("listed", "parts")),),
    code_bytes=256,
    extents={"listed": Lists(Within), "parts": Length("partial", 0)},
)


@lru_cache(maxsize=8)
def reduce_groups_formula(item_bytes: int) -> TileFormula:
    """Strided reduction (PopLibs STRIDED estimate per worker) with the outputs of the vertex over the contexts."""
    store = {4: 5, 2: 8}[item_bytes]

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        outputs, groups = extents["outputs"], extents["groups"]
        per_worker = -(-outputs // worker_contexts)
        # 16 to set up; per vector of outputs: 3 + store + 3 to start the inner loop + one add per further partial
        worker = 16 + -(-per_worker // (vector_bytes // item_bytes)) * (3 + store + 3 + (groups - 1))
        return 11 + worker_contexts * np.asarray(worker)  # 11: supervisor part of a popops vertex

    return TileFormula(
        cycles=cycles,
        kind="derived",
        source="PopLibs popops strided reduction per worker (commit 7eac0f2), spread over the contexts, 11 to launch",
    )


REDUCE_GROUPS = Codelet(
    name="ReduceGroups",
    fields=(
        Field(name="stage", access="read", box=(":", "sample", "slot_start:slot_stop")),
        Field(name="g", access="write", box=("sample", "slot_start:slot_stop")),
    ),
    compute=numerics.reduce_groups,
    joinable=True,
    cost=reduce_groups_formula(4),
    flops=(Term(bundles=1, extents=("outputs", "groups")),),
    code_bytes=320,
    extents={"outputs": Size("g"), "groups": Length("stage", 0)},
)

CODELETS = (
    FLAG_SPIKES,
    FLAG_SPIKES_ABOVE,
    FLAG_ROWS,
    FLAG_ROWS_ABOVE,
    SCAN_FLAGS,
    COMBINE_WORKERS,
    COMBINE_TILES,
    SPIKES_TO_DENSE,
    WEIGHT_GRADIENT,
    INPUT_GRADIENT,
    REDUCE_PARTS,
    REDUCE_GROUPS,
)
