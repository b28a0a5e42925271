"""Codelets of spike selection and of the gradients that follow listed ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.codelets.launch import LAUNCH_BUNDLES, SOURCE, overhead_bundles
from mimdsim.numerics import spikes as numerics
from mimdsim.program import Codelet, Field, Term, TileFormula, WorkerBundles

FLAG_SPIKES = Codelet(
    name="FlagSpikes",
    fields=(
        Field(name="v", access="read", box=("sample", "neuron")),
        Field(name="flags", access="write", box=(":", "sample", "neuron")),
    ),
    columns=("sample", "neuron"),
    constants=("threshold", "second_threshold"),
    compute=numerics.flag_spikes,
    cost=WorkerBundles(
        fixed=LAUNCH_BUNDLES + 12,  # two loads, two compares, two stores, little else
        terms=(),
        kind="derived",
        source=f"{SOURCE}; about 12 for the body",
    ),
    flops=(),
    code_bytes=192,
)

SCAN_FLAGS = Codelet(
    name="ScanFlags",
    fields=(
        Field(name="flags", access="read", box=("row", "sample", "start:stop"), one_row=True),
        Field(name="worker_ids", access="write", box=("slot", ":")),
        Field(name="worker_counts", access="write", box=("slot",)),
    ),
    columns=("row", "sample", "start", "stop", "slot"),
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
)

COMBINE_WORKERS = Codelet(
    name="CombineWorkers",
    fields=(
        Field(name="worker_ids", access="read", box=("first:last", ":")),
        Field(name="worker_counts", access="read", box=("first:last",)),
        Field(name="tile_ids", access="write", box=("slot", ":")),
        Field(name="tile_counts", access="write", box=("slot",)),
    ),
    columns=("first", "last", "slot"),
    compute=numerics.combine_workers,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=3),
        terms=(Term(bundles=3.5, extents=("hits",)), Term(bundles=6, extents=("workers",))),
        kind="derived",
        source=f"{SOURCE}; 3-4 per id, about 6 per worker list",
    ),
    code_bytes=320,
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
    columns=("part", "sample", "start", "stop"),
    compute=numerics.input_gradient,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=5),
        terms=(Term(bundles=7, extents=("listed", "pairs"), pairable=2),),  # load id, load, multiply, add, store
        kind="derived",
        source=f"{SOURCE}; about 7 per listed id and neuron pair where aliasing cannot be excluded",
    ),
    flops=(Term(bundles=2, extents=("listed", "neurons")),),
    code_bytes=512,
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
        terms=(Term(bundles=1, extents=("parts",), pairable=0.5),),  # a pair of parts: load, add
        kind="derived",
        source=f"{SOURCE}; load and add per pair of parts, vectorised by the compiler; nothing when not listed",
    ),
    flops=(Term(bundles=1, extents=("parts",)),),
    code_bytes=256,
)


def _reduce_groups_cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
    """Strided reduction (PopLibs STRIDED estimate per worker) with the outputs of the vertex over the contexts."""
    outputs, groups = extents["outputs"], extents["groups"]
    per_worker = -(-outputs // worker_contexts)
    # 16 to set up; every pair of outputs: 3 + 5 to store + 3 to start the inner loop + one add per further partial
    worker = 16 + -(-per_worker // (vector_bytes // 4)) * (3 + 5 + 3 + (groups - 1))
    return 11 + worker_contexts * np.asarray(worker)  # 11: supervisor part of a popops vertex


REDUCE_GROUPS = Codelet(
    name="ReduceGroups",
    fields=(
        Field(name="stage", access="read", box=(":", "sample", "slot_start:slot_stop")),
        Field(name="g", access="write", box=("sample", "slot_start:slot_stop")),
    ),
    columns=("sample", "slot_start", "slot_stop"),
    compute=numerics.reduce_groups,
    cost=TileFormula(
        cycles=_reduce_groups_cycles,
        kind="derived",
        source="PopLibs popops strided reduction per worker (commit 7eac0f2), spread over the contexts, 11 to launch",
    ),
    flops=(Term(bundles=1, extents=("outputs", "groups")),),
    code_bytes=320,
)

CODELETS = (
    FLAG_SPIKES,
    SCAN_FLAGS,
    COMBINE_WORKERS,
    COMBINE_TILES,
    WEIGHT_GRADIENT,
    INPUT_GRADIENT,
    REDUCE_PARTS,
    REDUCE_GROUPS,
)
