"""Codelets of spike selection and of the gradients that follow listed ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mimdsim.codelets.dense import UNIFORM_FORMULA
from mimdsim.codelets.neurons import SUM_SPIKES, vectors_of
from mimdsim.codelets.recurrence_and_bias import IDS, KEEP_SUM
from mimdsim.codelets.vertex_costs import (
    A_ROW,
    LAUNCH_BUNDLES,
    LOOK_AT_FLAG,
    SOURCE,
    SUBWORD_STORE,
    SUBWORD_STORE_SOURCE,
    add_bundles,
    by_item_bytes,
    cpp_cost,
    on_elements,
    on_loops,
    overhead_bundles,
    vectors_each,
)
from mimdsim.numerics.sparse import spikes as numerics
from mimdsim.program import (
    Codelet,
    Hits,
    Length,
    Listed,
    Lists,
    Size,
    Spikes,
    SpikesOver,
    Within,
    WorkerBundles,
    fields_of,
    terms_of,
)
from mimdsim.program.codelet import Counted
from mimdsim.program.loops import Mix

FLAG_SPIKES = Codelet(
    name="FlagSpikes",
    fields=fields_of("read v[sample, neuron]; write flags[:, sample, neuron]"),
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
    fields=(*FLAG_SPIKES.fields, *fields_of("read second_threshold[:]")),
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

FLAG_ROWS_COST = cpp_cost(
    # samples: three pointers of the row, loop
    {"samples neurons": (Mix(load=1, compare=2, integer=3, store=2, loop=1), 2), "samples": A_ROW},
    "instruction count of our own: load, two compares, and-not, two ands, two stores, loop; 6 per row",
    unpacked=(4, 2),
)
FLAG_ROWS = Codelet(
    name="FlagRows",
    fields=fields_of("read v[row_start:row_stop, start:stop]; write flags[:, row_start:row_stop, start:stop]"),
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
    fields=(*FLAG_ROWS.fields, *fields_of("read second_threshold[:]")),
    constants=("threshold",),
    compute=numerics.flag_rows_above,
    cost=replace(FLAG_ROWS_COST, fixed=overhead_bundles(scalars=3, vectors=3) + 1),
)

ROW_HITS = Lists(Hits, ("spikes", "gradient"), by="row")  # by the row of flags: true spikes, gradient entries

SCAN_FLAGS = Codelet(
    name="ScanFlags",
    fields=fields_of(
        "read flags[row, sample, start:stop] as one row; write worker_ids[slot, :]; write worker_counts[slot]"
    ),
    constants=("capacity",),
    compute=numerics.scan_flags,
    cost=cpp_cost(
        # states: load flag, branch, increment; hits: store the id, increment
        {"states": LOOK_AT_FLAG, "hits": Mix(store=1, integer=2)},
        f"{SOURCE}; 4-5 per flag and 3 per hit, early exit at capacity left out",
        unpacked=(3, 2),
    ),
    code_bytes=320,
    extents={"states": Length("flags", 2), "hits": ROW_HITS},
)

MOVE_ID = Mix(load=1, store=1, integer=0.5, loop=1)
COMBINE_WORKERS = Codelet(
    name="CombineWorkers",
    fields=fields_of(
        "read worker_ids[first:last, :]; read worker_counts[first:last]; write tile_ids[slot, :]; "
        "write tile_counts[slot]"
    ),
    compute=numerics.combine_workers,
    cost=cpp_cost(
        {"hits": MOVE_ID, "workers": A_ROW}, f"{SOURCE}; 3-4 per id, about 6 per worker list", unpacked=(2, 3)
    ),
    code_bytes=320,
    extents={"workers": Length("worker_ids", 0), "hits": ROW_HITS},
)

COMBINE_TILES = on_loops(
    "CombineTiles",
    "read tile_ids[first:last, :]; read tile_counts[first:last]; write ids[sample, :]; write counts[sample, :]",
    numerics.combine_tiles,
    {"listed": MOVE_ID, "lists": A_ROW},
    f"{SOURCE}; 3-4 per id, about 6 per tile list",
    scalars=2,
    columns=("sample", "first", "middle", "last"),
    code_bytes=384,
    extents={"lists": Length("tile_ids", 0), "listed": Lists(Listed)},
)

ROW_VECTOR = 8  # neurons of a dense row that one 64-bit store clears

SPIKES_TO_DENSE = on_loops(
    "SpikesToDense",
    "write row[sample, :]; read ids[sample, :]; read counts[sample, :]",
    numerics.spikes_to_dense,
    # vectors: store, next address, branch; spikes: load id, count, branch, then a byte into its word
    {"vectors": Mix(store=1, integer=1, loop=1), "spikes": Mix(load=1, integer=1, store=1, loop=1) + SUBWORD_STORE},
    f"instruction count of our own: 3 per 64 bits cleared, 4 per spike and {SUBWORD_STORE_SOURCE}",
    scalars=1,
    code_bytes=320,
    extents={"spikes": Lists(Spikes), "vectors": Length("row", 1, per=ROW_VECTOR)},
)

ADD_GRADIENT: Counted = Mix(load=4, add=1, store=1, loop=1), 1
WEIGHT_GRADIENT = on_loops(
    "WeightGradient",
    "update dw[replica, :, start:stop]; read q[sample_start:sample_stop, start:stop]; "
    "read ids[sample_start:sample_stop, :]; read counts[sample_start:sample_stop, :]",
    numerics.weight_gradient,
    # spikes: load id, load, add, store, and the loop reloads
    {"spikes pairs": ADD_GRADIENT, "samples": A_ROW + Mix(load=2)},
    f"{SOURCE}; about 7 per spike and neuron pair where aliasing cannot be excluded",
    scalars=3,
    columns=("replica", "sample_start", "sample_stop", "start", "stop"),
    joinable=True,
    flops={"spikes neurons": 1},
    code_bytes=512,
    extents={"spikes": Lists(SpikesOver), "samples": Length("q", 0), **vectors_of("q", 1)},
)

ADD_PRODUCT: Counted = Mix(load=3, multiply=1, add=1, store=1, loop=1), 2
INPUT_GRADIENT = on_loops(
    "InputGradient",
    "write partial[part, sample, :]; read w[:, start:stop]; read q[sample, start:stop]; read ids[sample, :]; "
    "read counts[sample, :]",
    numerics.input_gradient,
    # load id, load, multiply, add, store
    {"listed pairs": ADD_PRODUCT},
    f"{SOURCE}; about 7 per listed id and neuron pair where aliasing cannot be excluded",
    scalars=2,
    flops={"listed neurons": 2},
    code_bytes=512,
    extents={"listed": Lists(Listed), **vectors_of("q", 1)},
)

REDUCE_PARTS = on_loops(
    "ReduceParts",
    "read partial[part_start:part_stop, sample, slot]; read counts[sample, :]; write stage[group, sample, slot]",
    numerics.reduce_parts,
    # a pair of parts: load, add
    {"listed parts": (Mix(load=0.5, add=0.5), 0.5)},
    f"{SOURCE}; load and add per pair of parts, vectorised by the compiler; nothing when not listed",
    scalars=2,
    columns=("part_start", "part_stop", "group", "sample", "slot"),
    flops={"listed parts": 1},
    code_bytes=256,
    extents={"listed": Lists(Within), "parts": Length("partial", 0)},
)


@by_item_bytes(
    "derived", "PopLibs popops strided reduction per worker (commit 7eac0f2), spread over the contexts, 11 to launch"
)
def reduce_groups_formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
    """Strided reduction (PopLibs STRIDED estimate per worker) with the outputs of the vertex over the contexts."""
    store = {4: 5, 2: 8}[item_bytes]
    # 16 to set up; per vector of outputs: 3 + store + 3 to start the inner loop + one add per further partial
    each = 3 + store + 3 + (extents["groups"] - 1)
    vectors = vectors_each(extents["outputs"], item_bytes, contexts, vector_bytes)
    return 11 + contexts * (16 + vectors * each)  # 11: supervisor part of a popops vertex


REDUCE_GROUPS = Codelet(
    name="ReduceGroups",
    fields=fields_of("read stage[:, sample, slot_start:slot_stop]; write g[sample, slot_start:slot_stop]"),
    compute=numerics.reduce_groups,
    joinable=True,
    cost=reduce_groups_formula(4),
    flops=terms_of({"outputs groups": 1}),
    code_bytes=320,
    extents={"outputs": Size("g"), "groups": Length("stage", 0)},
)


# ---- a part of the weights of neurons: of the ids in a range of inputs, `start` to `stop`

LOOKED_AT = Mix(load=1, integer=2, branch=1, loop=1)  # load the id, two compares, branch, next
OWN = f"instruction count of our own: {LOOKED_AT.bundles} to see whether an id is in range"

SYNAPSE_CURRENT_PART = on_loops(
    "SynapseCurrentPart",
    (*fields_of("write current[fan_in_part, sample, first:last]; read w[start:stop, first:last]"), *IDS),
    numerics.synapse_current_part,
    # hits: as in the sum of all weights
    {"spikes": LOOKED_AT, "hits pairs": SUM_SPIKES, "pairs": KEEP_SUM},
    f"{SOURCE}; the sum of the fused update, 4 per spike in range and neuron pair; {OWN}",
    scalars=2,
    columns=("fan_in_part", "sample", "start", "stop", "first", "last"),
    flops={"hits neurons": 1},
    code_bytes=576,
    extents={"spikes": Lists(Spikes), "hits": Lists(Hits, ("spikes",)), **vectors_of("current", 2)},
)

WEIGHT_GRADIENT_PART = on_loops(
    "WeightGradientPart",
    (
        *fields_of("update dw[replica, start:stop, first:last]; read q[sample_start:sample_stop, first:last]"),
        *WEIGHT_GRADIENT.fields[2:],
    ),
    numerics.weight_gradient_part,
    {"spikes": LOOKED_AT, "hits pairs": ADD_GRADIENT, "samples": A_ROW + Mix(load=2)},
    f"{SOURCE}; about 7 per spike in range and neuron pair where aliasing cannot be excluded; {OWN}",
    scalars=5,
    columns=("replica", "sample_start", "sample_stop", "start", "stop", "first", "last"),
    flops={"hits neurons": 1},
    code_bytes=576,
    extents={
        "spikes": Lists(SpikesOver),
        "hits": Lists(Hits, ("spikes",)),
        "samples": Length("q", 0),
        **vectors_of("q", 1),
    },
)

INPUT_GRADIENT_PART = replace(
    INPUT_GRADIENT,
    name="InputGradientPart",
    fields=(
        INPUT_GRADIENT.fields[0],
        *fields_of("read w[start:stop, first:last]; read q[sample, first:last]"),
        *INPUT_GRADIENT.fields[3:],
    ),
    columns=("part", "sample", "start", "stop", "first", "last"),
    compute=numerics.input_gradient_part,
    cost=cpp_cost(
        # listed: and a zero where it is not in range
        {"listed": LOOKED_AT + Mix(store=1), "hits pairs": ADD_PRODUCT},
        f"{SOURCE}; about 7 per listed id in range and neuron pair where aliasing cannot be excluded; {OWN}",
        unpacked=(4, 5),
    ),
    flops=terms_of({"hits neurons": 2}),
    extents={"listed": Lists(Listed), "hits": Lists(Hits, ("listed",)), **vectors_of("q", 1)},
)


# ---- selection with random truncation: a sample's scan runs once round from a neuron drawn for it

DRAW_STARTS = on_elements(
    "DrawStarts",
    "update random[sample]; write starts[sample]",
    numerics.draw_starts,
    UNIFORM_FORMULA,
    "random",
    flops=0,
    constants=("neurons",),
    code_bytes=256,
)


def _from_a_start(plain: Codelet, compute: Any, columns: tuple[str, ...], bundles: WorkerBundles) -> Codelet:
    reads = tuple(item for item in plain.fields if not item.writes)
    writes = tuple(item for item in plain.fields if item.writes)
    return replace(
        plain,
        name=f"{plain.name}From",
        fields=(*reads, *fields_of("read starts[sample]"), *writes),
        columns=columns,
        compute=compute,
        cost=bundles,
    )


def _with_a_second_lap(plain: Codelet, lists: str, ids: str) -> WorkerBundles:
    """Every list is read twice: 6 more to start again, 3 more to skip an id that belongs to the other lap."""
    return add_bundles(
        plain.cost,
        "once more for the lap below the start, 6 per list and 3 per id",
        2,
        {lists: A_ROW, ids: Mix(load=1, integer=1, branch=1)},
    )


SCAN_FLAGS_FROM = _from_a_start(
    SCAN_FLAGS,
    numerics.scan_flags_from,
    SCAN_FLAGS.columns,
    add_bundles(SCAN_FLAGS.cost, "10 to load the start, clamp it and set up the lap below it", 10, {}),
)
COMBINE_WORKERS_FROM = _from_a_start(
    COMBINE_WORKERS,
    numerics.combine_workers_from,
    ("sample", *COMBINE_WORKERS.columns),
    _with_a_second_lap(COMBINE_WORKERS, "workers", "hits"),
)
COMBINE_TILES_FROM = _from_a_start(
    COMBINE_TILES,
    numerics.combine_tiles_from,
    COMBINE_TILES.columns,
    _with_a_second_lap(COMBINE_TILES, "lists", "listed"),
)
