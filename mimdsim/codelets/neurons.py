"""Codelets of fused neurons: those of the published leaky integrate-and-fire layer.

To add a neuron that is not linear between spikes: write its operation in graph/, its arithmetic in
numerics/sparse/neurons.py, its record here, and how it is placed on tiles in compiler/sparse/neurons.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.dense import BOX
from mimdsim.codelets.vertex_overhead import (
    SOURCE,
    SURROGATE_BUNDLES,
    SURROGATE_PAIRABLE,
    SURROGATE_SOURCE,
    overhead_bundles,
)
from mimdsim.costs.library.elementwise import bias_add_cycles
from mimdsim.numerics.sparse import neurons as numerics
from mimdsim.program import (
    Codelet,
    Field,
    Hits,
    Length,
    Listed,
    Lists,
    Spikes,
    Term,
    TileFormula,
    Vectors,
    WorkerBundles,
)
from mimdsim.program.loop_extents import Extent


def vectors_of(field: str, axis: int) -> dict[str, Extent]:
    """Neurons along an axis of a field's box, and pairs of them, as 64-bit loads take (halves: `formats`; other
    widths: `costs/isa_costs`)."""
    return {"neurons": Length(field, axis), "pairs": Vectors(field, axis, per=2)}


def by_neuron(field: str) -> dict[str, Extent]:
    """Samples and neurons of a field whose box is part of a matrix [samples, neurons]."""
    return {"samples": Length(field, 0), "neurons": Length(field, 1)}


LIF_UPDATE = Codelet(
    name="LifUpdate",
    fields=(
        Field(name="v", access="update", box=("sample", "start:stop")),
        Field(name="w", access="read", box=(":", "start:stop")),
        Field(name="ids", access="read", box=("sample", ":"), in_part=True),
        Field(name="counts", access="read", box=("sample", ":")),
    ),
    constants=("decay", "scale", "threshold"),
    compute=numerics.lif_update,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=4),
        terms=(
            # load id, load a weight pair, add; the loop reloads
            Term(bundles=4, extents=("spikes", "pairs"), pairable=1),
            Term(bundles=15, extents=("neurons",)),  # compare, select, multiply, add, store
        ),
        kind="derived",
        source=f"{SOURCE}; about 4 per spike and neuron pair, about 15 per neuron",
    ),
    flops=(Term(bundles=1, extents=("spikes", "neurons")), Term(bundles=3, extents=("neurons",))),
    code_bytes=640,
    extents={"spikes": Lists(Spikes), **vectors_of("v", 1)},
)

LIF_UPDATE_DENSE = replace(
    LIF_UPDATE,
    name="LifUpdateDense",
    fields=(*LIF_UPDATE.fields[:2], Field(name="row", access="read", box=("sample", ":"))),
    compute=numerics.lif_update_dense,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=3),
        terms=(
            Term(bundles=4.5, extents=("inputs",)),  # load the byte, branch, count
            # the row of weights by the count, load a weight pair, add; the loop reloads
            Term(bundles=4, extents=("spikes", "pairs"), pairable=1),
            Term(bundles=15, extents=("neurons",)),
        ),
        kind="derived",
        source=f"{SOURCE}; the update from listed ids, with 4-5 per byte looked at as in the scan of flags",
    ),
    extents={**LIF_UPDATE.extents, "inputs": Length("row", 1)},
)

LIF_INTEGRATE = Codelet(
    name="LifIntegrate",
    fields=(LIF_UPDATE.fields[0], Field(name="current", access="read", box=("sample", "start:stop"))),
    constants=("decay", "scale", "threshold"),
    compute=numerics.lif_integrate,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=2),
        terms=(Term(bundles=16, extents=("neurons",)),),  # like the end of the fused update, plus loading the current
        kind="derived",
        source=f"{SOURCE}; about 15 per neuron, and 1 to load the current",
    ),
    flops=(Term(bundles=3, extents=("neurons",)),),
    code_bytes=384,
    extents={"neurons": Length("v", 1)},
)

STATE_GRADIENT = Codelet(
    name="StateGradient",
    fields=(
        Field(name="dv", access="update", box=("sample", "start:stop")),
        Field(name="v", access="read", box=("sample", "start:stop")),
        Field(name="g", access="read", box=("sample", ":")),
        Field(name="ids", access="read", box=("sample", ":")),
        Field(name="counts", access="read", box=("sample", ":")),
    ),
    constants=("threshold", "slope"),
    compute=numerics.state_gradient,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=4, vectors=5),
        terms=(
            Term(bundles=4, extents=("listed",)),  # load id, subtract the tile's start, compare, branch
            # load the state and the threshold of the neuron, then the surrogate
            Term(bundles=2 + SURROGATE_BUNDLES, extents=("hits",), pairable=SURROGATE_PAIRABLE),
        ),
        kind="derived",
        source=f"{SOURCE}; 4 per listed id; per id that lies on the tile: {SURROGATE_SOURCE}",
    ),
    flops=(Term(bundles=6, extents=("hits",)),),
    code_bytes=768,
    extents={"listed": Lists(Listed), "hits": Lists(Hits, ("listed",))},
)


STATE_GRADIENT_ROW = Codelet(
    name="StateGradientRow",
    fields=(
        Field(name="row", access="write", box=("sample", ":")),
        Field(name="dv", access="read", box=("sample", ":"), one_row=True),
        Field(name="v", access="read", box=("sample", ":"), one_row=True),
        Field(name="threshold", access="read", box=(":",), one_row=True),
        Field(name="g", access="read", box=("sample", ":")),
        Field(name="ids", access="read", box=("sample", ":")),
        Field(name="counts", access="read", box=("sample", ":")),
    ),
    constants=("slope",),
    compute=numerics.state_gradient_rows,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=7),
        terms=(
            # load id, state and threshold, count and branch; then the surrogate
            Term(bundles=5 + SURROGATE_BUNDLES, extents=("listed",), pairable=SURROGATE_PAIRABLE),
        ),
        kind="derived",
        source=f"{SOURCE}; {SURROGATE_SOURCE}; the row itself arrives by exchange and is updated in place",
    ),
    flops=(Term(bundles=6, extents=("listed",)),),
    code_bytes=768,
    extents={"listed": Lists(Listed)},
)


def scale_cycles(extents: dict[str, Any], worker_contexts: int, item_bytes: int) -> Any:
    """Tile cycles to multiply all samples by, or add to them, one number per neuron, in place."""
    samples, neurons = extents["samples"], extents["neurons"]
    if item_bytes == 4:
        return bias_add_cycles(samples, neurons, worker_contexts=worker_contexts)
    samples, neurons = np.broadcast_arrays(samples, neurons)
    cycles = np.zeros(neurons.shape, np.int64)
    for width in np.unique(neurons).tolist():  # the library chooses a different loop for each width of halves
        rows = neurons == width
        cycles[rows] = bias_add_cycles(samples[rows], width, dtype="f16", worker_contexts=worker_contexts)
    return cycles


SCALE_SOURCE = (
    "PopLibs popops BroadcastVectorInner1D cycle estimator (commit 7eac0f2): one factor per neuron, samples as blocks; "
    "a multiply loops like an add"
)


@lru_cache(maxsize=8)
def scale_formula(item_bytes: int) -> TileFormula:
    """One factor per neuron, values of `item_bytes`."""
    return TileFormula(
        cycles=lambda extents, contexts, _: scale_cycles(extents, contexts, item_bytes),
        kind="published",
        source=SCALE_SOURCE,
    )


@lru_cache(maxsize=8)
def masked_scale_formula(item_bytes: int) -> TileFormula:
    """One factor per neuron, zero where the neuron was reset."""
    return TileFormula(
        cycles=lambda extents, contexts, _: 2 * scale_cycles(extents, contexts, item_bytes),
        kind="assumed",
        source="twice a multiply: one pass to compare and select, one to multiply",
    )


DECAY_GRADIENT = Codelet(
    name="DecayGradient",
    fields=(
        Field(name="dv", access="update", box=(":", "start:stop")),
        Field(name="decay", access="read", box=("start:stop",)),
    ),
    compute=numerics.scale_in_place,
    joinable=True,
    cost=scale_formula(4),
    flops=(Term(bundles=1, extents=("samples", "neurons")),),
    code_bytes=256,
    extents=by_neuron("dv"),
)

MASKED_DECAY_GRADIENT = Codelet(
    name="MaskedDecayGradient",
    fields=(
        Field(name="dv", access="update", box=(":", "start:stop")),
        Field(name="decay", access="read", box=("start:stop",)),
        Field(name="v_previous", access="read", box=(":", "start:stop")),
    ),
    constants=("threshold",),
    compute=numerics.scale_unless_spiked,
    joinable=True,
    cost=masked_scale_formula(4),
    flops=(Term(bundles=2, extents=("samples", "neurons")),),
    code_bytes=320,
    extents=by_neuron("dv"),
)

CURRENT_GRADIENT = Codelet(
    name="CurrentGradient",
    fields=(
        Field(name="q", access="update", box=(":", "start:stop")),
        Field(name="gain", access="read", box=("start:stop",)),
    ),
    compute=numerics.scale_in_place,
    joinable=True,
    cost=scale_formula(4),
    flops=(Term(bundles=1, extents=("samples", "neurons")),),
    code_bytes=256,
    extents=by_neuron("q"),
)

ADJOINT_ROWS = Codelet(
    name="AdjointRows",
    fields=(
        Field(name="dv", access="update", box=BOX),
        Field(name="q", access="write", box=BOX),
    ),
    constants=("decay", "scale"),
    compute=numerics.adjoint_rows,
    joinable=True,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=6, vectors=2),
        terms=(
            Term(bundles=6, extents=("samples", "pairs"), pairable=2),  # load, multiply, store, multiply, store, branch
            Term(bundles=6, extents=("samples",)),
        ),
        kind="derived",
        source="instruction count of our own: a load, two multiplies and two stores of 64 bits, branch; 6 per row",
    ),
    flops=(Term(bundles=2, extents=("samples", "neurons")),),
    code_bytes=256,
    extents={"samples": Length("dv", 0), **vectors_of("dv", 1)},
)

MASKED_ADJOINT_ROWS = replace(
    ADJOINT_ROWS,
    name="MaskedAdjointRows",
    fields=(*ADJOINT_ROWS.fields, Field(name="v_previous", access="read", box=BOX)),
    constants=("decay", "scale", "threshold"),
    compute=numerics.masked_adjoint_rows,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=7, vectors=3),
        terms=(
            Term(bundles=9, extents=("samples", "pairs"), pairable=3),  # a load, a compare and an and-not more
            Term(bundles=8, extents=("samples",)),
        ),
        kind="derived",
        source="instruction count of our own: two loads, two multiplies, compare, and-not and two stores of 64 bits, "
        "branch; 8 per row",
    ),
    flops=(Term(bundles=3, extents=("samples", "neurons")),),
    code_bytes=320,
)

CODELETS = (
    ADJOINT_ROWS,
    MASKED_ADJOINT_ROWS,
    LIF_UPDATE,
    LIF_UPDATE_DENSE,
    LIF_INTEGRATE,
    STATE_GRADIENT,
    STATE_GRADIENT_ROW,
    DECAY_GRADIENT,
    MASKED_DECAY_GRADIENT,
    CURRENT_GRADIENT,
)
