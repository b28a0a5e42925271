"""Codelets of currents that are not summed in the neuron's own vertex: synapses, a neuron onto itself, a bias.

With a separate current per source, a layer can have several, all in the same superstep, before its neurons
integrate their sum.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from mimdsim.codelets.neurons import LIF_UPDATE, LIF_UPDATE_DENSE, by_neuron, scale_cycles, vectors_of
from mimdsim.codelets.vertex_overhead import SOURCE, overhead_bundles
from mimdsim.costs.library.elementwise import binary_1d_cycles
from mimdsim.numerics.sparse import recurrence_and_bias as numerics
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
    Vectors,
    WorkerBundles,
)

OWN = "instruction count of our own in the manner of the published codelets"
IDS = (
    Field(name="ids", access="read", box=("sample", ":"), in_part=True),
    Field(name="counts", access="read", box=("sample", ":")),
)
CURRENT = Field(name="current", access="write", box=("sample", "start:stop"))

SYNAPSE_CURRENT = Codelet(
    name="SynapseCurrent",
    fields=(CURRENT, LIF_UPDATE.field("w"), *IDS),
    compute=numerics.synapse_current,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=0, vectors=4),
        terms=(
            # load id, load a weight pair, add; the loop reloads: as in the fused update
            Term(bundles=4, extents=("spikes", "pairs"), pairable=1),
            Term(bundles=4, extents=("pairs",), pairable=1),  # clear the sums, store them, next address, branch
        ),
        kind="derived",
        source=f"{SOURCE}; the sum of the fused update, 4 per spike and neuron pair; {OWN}: 4 per pair to store it",
    ),
    flops=(Term(bundles=1, extents=("spikes", "neurons")),),
    code_bytes=512,
    extents={"spikes": Lists(Spikes), **vectors_of("current", 1)},
)

SYNAPSE_CURRENT_DENSE = replace(
    SYNAPSE_CURRENT,
    name="SynapseCurrentDense",
    fields=(CURRENT, LIF_UPDATE.field("w"), LIF_UPDATE_DENSE.field("row")),
    compute=numerics.synapse_current_dense,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=0, vectors=3),
        terms=(
            Term(bundles=4.5, extents=("inputs",)),  # load the byte, branch, count
            Term(bundles=4, extents=("spikes", "pairs"), pairable=1),
            Term(bundles=4, extents=("pairs",), pairable=1),
        ),
        kind="derived",
        source=f"{SOURCE}; the sum of the update from a row of bytes; {OWN}: 4 per pair to store it",
    ),
    extents={**SYNAPSE_CURRENT.extents, "inputs": Length("row", 1)},
)

SELF_SYNAPSE = Codelet(
    name="SelfSynapse",
    fields=(CURRENT, Field(name="r", access="read", box=(":", "start:stop")), *IDS),
    compute=numerics.self_synapse,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=4),
        terms=(
            Term(bundles=3, extents=("pairs",)),  # store zeros, next address, branch
            Term(bundles=4, extents=("spikes",)),  # load id, subtract the tile's start, compare, branch
            Term(bundles=2, extents=("hits",)),  # load the weight, store it
        ),
        kind="derived",
        source=f"{OWN}: 3 per pair cleared, 4 per spike as in the state gradient, 2 per spike of the tile's neurons",
    ),
    code_bytes=384,
    extents={
        "spikes": Lists(Spikes),
        "hits": Lists(Hits, ("spikes",)),
        "pairs": Vectors("current", 1, per=2),
    },
)

SELF_SYNAPSE_DENSE = replace(
    SELF_SYNAPSE,
    name="SelfSynapseDense",
    fields=(*SELF_SYNAPSE.fields[:2], Field(name="row", access="read", box=("sample", "start:stop"))),
    compute=numerics.self_synapse_dense,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=0, vectors=3),
        terms=(
            Term(bundles=6, extents=("neurons",)),
        ),  # load the byte, load the weight, compare, select, store, branch
        kind="derived",
        source=f"{OWN}: 6 per neuron",
    ),
    extents={"neurons": Length("current", 1)},
)


@lru_cache(maxsize=8)
def bias_formula(item_bytes: int) -> TileFormula:
    """One number per neuron added to all samples, elements of `item_bytes`."""
    return TileFormula(
        cycles=lambda extents, contexts, _: scale_cycles(extents, contexts, item_bytes),
        kind="published",
        source="PopLibs popops BroadcastVectorInner1D<ADD> cycle estimator (commit 7eac0f2), samples as blocks",
    )


@lru_cache(maxsize=8)
def add_formula(item_bytes: int) -> TileFormula:
    """Element-wise addition in place of elements of `item_bytes`."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        return binary_1d_cycles(
            extents["elements"],
            dtype={4: "f32", 2: "f16"}[item_bytes],
            in_place=True,
            worker_contexts=worker_contexts,
            vector_bytes=vector_bytes,
        )

    return TileFormula(
        cycles=cycles, kind="published", source="PopLibs popops BinaryOp1DInPlace ADD cycle estimator (commit 7eac0f2)"
    )


BIAS_ADD = Codelet(
    name="BiasAdd",
    fields=(
        Field(name="current", access="update", box=(":", "start:stop")),
        Field(name="bias", access="read", box=(":", "start:stop")),
    ),
    compute=numerics.add_row,
    joinable=True,
    cost=bias_formula(4),
    flops=(Term(bundles=1, extents=("samples", "neurons")),),
    code_bytes=256,
    extents=by_neuron("current"),
)

ADD_COLUMNS = Codelet(
    name="AddColumns",
    fields=(
        Field(name="total", access="update", box=(":", "start:stop")),
        Field(name="other", access="read", box=(":", "start:stop")),
    ),
    compute=numerics.add_columns,
    joinable=True,
    cost=add_formula(4),
    flops=(Term(bundles=1, extents=("elements",)),),
    code_bytes=256,
    extents={"elements": Size("total")},
)

ADD_SLOTS = Codelet(
    name="AddSlots",
    fields=(
        Field(name="total", access="update", box=("sample", "slot_start:slot_stop")),
        Field(name="other", access="read", box=("sample", "slot_start:slot_stop")),
    ),
    compute=numerics.add_slots,
    joinable=True,
    cost=add_formula(4),
    flops=(Term(bundles=1, extents=("elements",)),),
    code_bytes=256,
    extents={"elements": Size("total")},
)

REPLICA = ("replica", "sample_start", "sample_stop", "start", "stop")
SAMPLES = "sample_start:sample_stop"

SELF_WEIGHT_GRADIENT = Codelet(
    name="SelfWeightGradient",
    fields=(
        Field(name="dw", access="update", box=("replica", ":", "start:stop")),
        Field(name="q", access="read", box=(SAMPLES, "start:stop")),
        Field(name="ids", access="read", box=(SAMPLES, ":")),
        Field(name="counts", access="read", box=(SAMPLES, ":")),
    ),
    columns=REPLICA,
    compute=numerics.self_weight_gradient,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=4),
        terms=(
            Term(bundles=4, extents=("spikes",)),  # load id, subtract the tile's start, compare, branch
            # load the gradient, load the sum, add, store, two pointers reloaded because the store may alias
            Term(bundles=6, extents=("hits",), pairable=1),
            Term(bundles=8, extents=("samples",)),
        ),
        kind="derived",
        source=f"{OWN}: 4 per spike and 8 per sample as there, 6 per spike of the tile's neurons",
    ),
    flops=(Term(bundles=1, extents=("hits",)),),
    code_bytes=448,
    extents={"spikes": Lists(SpikesOver), "hits": Lists(Hits, ("spikes",)), "samples": Length("q", 0)},
)

SELF_INPUT_GRADIENT = Codelet(
    name="SelfInputGradient",
    fields=(
        Field(name="partial", access="write", box=("part", "sample", ":")),
        Field(name="r", access="read", box=(":", "start:stop")),
        Field(name="q", access="read", box=("sample", "start:stop")),
        *IDS,
    ),
    compute=numerics.self_input_gradient,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=5),
        terms=(
            # load id, subtract the tile's start, compare, branch, store zero
            Term(bundles=5, extents=("listed",)),
            Term(bundles=3, extents=("hits",), pairable=1),  # load weight and gradient, multiply
        ),
        kind="derived",
        source=f"{OWN}: 5 per listed id, 3 more per id of the tile's neurons",
    ),
    flops=(Term(bundles=1, extents=("hits",)),),
    code_bytes=448,
    extents={"listed": Lists(Listed), "hits": Lists(Hits, ("listed",))},
)

BIAS_GRADIENT = Codelet(
    name="BiasGradient",
    fields=(
        Field(name="db", access="update", box=("replica", ":", "start:stop")),
        Field(name="q", access="read", box=(SAMPLES, "start:stop")),
    ),
    columns=REPLICA,
    compute=numerics.bias_gradient,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=2),
        terms=(
            Term(bundles=3, extents=("samples", "pairs"), pairable=1),  # load a pair, add, branch
            Term(bundles=5, extents=("pairs",), pairable=1),  # load the sums, add, store, next address, branch
        ),
        kind="derived",
        source=f"{OWN}: 3 per sample and neuron pair, 5 per pair",
    ),
    flops=(Term(bundles=1, extents=("samples", "neurons")),),
    code_bytes=320,
    extents={"samples": Length("q", 0), **vectors_of("q", 1)},
)

CODELETS = (
    SYNAPSE_CURRENT,
    SYNAPSE_CURRENT_DENSE,
    SELF_SYNAPSE,
    SELF_SYNAPSE_DENSE,
    BIAS_ADD,
    ADD_COLUMNS,
    ADD_SLOTS,
    SELF_WEIGHT_GRADIENT,
    SELF_INPUT_GRADIENT,
    BIAS_GRADIENT,
)
