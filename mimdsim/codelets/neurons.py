"""Codelets of fused neurons: those of the published leaky integrate-and-fire layer.

To add a neuron that is not linear between spikes: write its operation in graph/, its arithmetic in
numerics/sparse/neurons.py, its record here, and how it is placed on tiles in compiler/sparse/neurons.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.codelets.vertex_costs import (
    A_ROW,
    AT_AN_ID,
    LOOK_AT_FLAG,
    LOOK_AT_ID,
    SOURCE,
    SUPERSPIKE,
    SURROGATE_PAIRABLE,
    SURROGATE_SOURCE,
    by_item_bytes,
    cpp_cost,
    on_loops,
)
from mimdsim.costs.library.elementwise import bias_add_cycles
from mimdsim.numerics.sparse import neurons as numerics
from mimdsim.program import Codelet, Hits, Length, Listed, Lists, Spikes, Vectors, fields_of, terms_of
from mimdsim.program.codelet import Counted
from mimdsim.program.loops import Extent, Mix


def vectors_of(field: str, axis: int) -> dict[str, Extent]:
    """Neurons along an axis of a field's box, and pairs of them, as 64-bit loads take (halves: `formats`; other
    widths: `costs/isa_costs`)."""
    return {"neurons": Length(field, axis), "pairs": Vectors(field, axis, per=2)}


def by_neuron(field: str) -> dict[str, Extent]:
    """Samples and neurons of a field whose box is part of a matrix [samples, neurons]."""
    return {"samples": Length(field, 0), "neurons": Length(field, 1)}


# a spike: load id, load a weight pair, add, close the loop
SUM_SPIKES: Counted = Mix(load=2, add=1, loop=1), 1
# neurons: load the potential, threshold and decay; compare, select, multiply, add, store; addresses and the rest of
# about 15 as compiled
LIF_END = Mix(load=3, compare=2, multiply=2, add=1, store=1, integer=5, loop=1)
LIF_LOOPS = {"spikes pairs": SUM_SPIKES, "neurons": LIF_END}
LIF_UPDATE = on_loops(
    "LifUpdate",
    "update v[sample, start:stop]; read w[:, start:stop]; read ids[sample, :] in part; read counts[sample, :]",
    numerics.lif_update,
    LIF_LOOPS,
    f"{SOURCE}; about 4 per spike and neuron pair, about 15 per neuron",
    scalars=3,
    constants=("decay", "scale", "threshold"),
    joinable=True,
    flops={"spikes neurons": 1, "neurons": 3},
    code_bytes=640,
    extents={"spikes": Lists(Spikes), **vectors_of("v", 1)},
)

LIF_UPDATE_DENSE = replace(
    LIF_UPDATE,
    name="LifUpdateDense",
    fields=(*LIF_UPDATE.fields[:2], *fields_of("read row[sample, :]")),
    compute=numerics.lif_update_dense,
    cost=cpp_cost(
        # inputs: load the byte, branch, count; spikes: the row of weights by the count, load a weight pair, add, and
        # the loop reloads
        {"inputs": LOOK_AT_FLAG, **LIF_LOOPS},
        f"{SOURCE}; the update from listed ids, with 4-5 per byte looked at as in the scan of flags",
        unpacked=(3, 3),
    ),
    extents={**LIF_UPDATE.extents, "inputs": Length("row", 1)},
)

LIF_INTEGRATE = on_loops(
    "LifIntegrate",
    (LIF_UPDATE.fields[0], *fields_of("read current[sample, start:stop]")),
    numerics.lif_integrate,
    # like the end of the fused update, plus loading the current
    {"neurons": LIF_END + Mix(load=1)},
    f"{SOURCE}; about 15 per neuron, and 1 to load the current",
    scalars=3,
    constants=("decay", "scale", "threshold"),
    joinable=True,
    flops={"neurons": 3},
    code_bytes=384,
    extents={"neurons": Length("v", 1)},
)

STATE_GRADIENT = on_loops(
    "StateGradient",
    "update dv[sample, start:stop]; read v[sample, start:stop]; read g[sample, :]; read ids[sample, :]; "
    "read counts[sample, :]",
    numerics.state_gradient,
    # listed: load id, subtract the tile's start, compare, branch; hits: load the state and the threshold of the
    # neuron, then the surrogate
    {"listed": LOOK_AT_ID, "hits": (Mix(load=2) + SUPERSPIKE + AT_AN_ID, SURROGATE_PAIRABLE)},
    f"{SOURCE}; 4 per listed id; per id that lies on the tile: {SURROGATE_SOURCE}",
    scalars=4,
    constants=("threshold", "slope"),
    joinable=True,
    flops={"hits": 6},
    code_bytes=768,
    extents={"listed": Lists(Listed), "hits": Lists(Hits, ("listed",))},
)


STATE_GRADIENT_ROW = on_loops(
    "StateGradientRow",
    "write row[sample, :]; read dv[sample, :] as one row; read v[sample, :] as one row; "
    "read threshold[:] as one row; read g[sample, :]; read ids[sample, :]; read counts[sample, :]",
    numerics.state_gradient_rows,
    # load id, state and threshold, count and branch; then the surrogate
    {"listed": (Mix(load=3, integer=1, loop=1) + SUPERSPIKE + AT_AN_ID, SURROGATE_PAIRABLE)},
    f"{SOURCE}; {SURROGATE_SOURCE}; the row itself arrives by exchange and is updated in place",
    scalars=2,
    constants=("slope",),
    flops={"listed": 6},
    code_bytes=768,
    extents={"listed": Lists(Listed)},
)


def scale_cycles(extents: dict[str, Any], item_bytes: int, contexts: int, _vector_bytes: int) -> Any:
    """Tile cycles to multiply all samples by, or add to them, one number per neuron, in place."""
    samples, neurons = extents["samples"], extents["neurons"]
    if item_bytes == 4:
        return bias_add_cycles(samples, neurons, worker_contexts=contexts)
    samples, neurons = np.broadcast_arrays(samples, neurons)
    cycles = np.zeros(neurons.shape, np.int64)
    for width in np.unique(neurons).tolist():  # the library chooses a different loop for each width of halves
        rows = neurons == width
        cycles[rows] = bias_add_cycles(samples[rows], width, dtype="f16", worker_contexts=contexts)
    return cycles


# one factor per neuron; zero where the neuron was reset
scale_formula = by_item_bytes(
    "published",
    "PopLibs popops BroadcastVectorInner1D cycle estimator (commit 7eac0f2): one factor per neuron, samples as blocks; "
    "a multiply loops like an add",
)(scale_cycles)
masked_scale_formula = by_item_bytes("assumed", "twice a multiply: one pass to compare and select, one to multiply")(
    lambda *given: 2 * scale_cycles(*given)
)

DECAY_GRADIENT = Codelet(
    name="DecayGradient",
    fields=fields_of("update dv[:, start:stop]; read decay[start:stop]"),
    compute=numerics.scale_in_place,
    joinable=True,
    cost=scale_formula(4),
    flops=terms_of({"samples neurons": 1}),
    code_bytes=256,
    extents=by_neuron("dv"),
)
MASKED_DECAY_GRADIENT = replace(
    DECAY_GRADIENT,
    name="MaskedDecayGradient",
    fields=(*DECAY_GRADIENT.fields, *fields_of("read v_previous[:, start:stop]")),
    constants=("threshold",),
    compute=numerics.scale_unless_spiked,
    cost=masked_scale_formula(4),
    flops=terms_of({"samples neurons": 2}),
    code_bytes=320,
)
CURRENT_GRADIENT = replace(
    DECAY_GRADIENT,
    name="CurrentGradient",
    fields=fields_of("update q[:, start:stop]; read gain[start:stop]"),
    extents=by_neuron("q"),
)

ADJOINT_ROWS = on_loops(
    "AdjointRows",
    "update dv[row_start:row_stop, start:stop]; write q[row_start:row_stop, start:stop]",
    numerics.adjoint_rows,
    # pairs: load, multiply, store, multiply, store, branch
    {"samples pairs": (Mix(load=1, multiply=2, store=2, loop=1), 2), "samples": A_ROW},
    "instruction count of our own: a load, two multiplies and two stores of 64 bits, branch; 6 per row",
    scalars=6,
    constants=("decay", "scale"),
    joinable=True,
    flops={"samples neurons": 2},
    code_bytes=256,
    extents={"samples": Length("dv", 0), **vectors_of("dv", 1)},
)

MASKED_ADJOINT_ROWS = replace(
    ADJOINT_ROWS,
    name="MaskedAdjointRows",
    fields=(*ADJOINT_ROWS.fields, *fields_of("read v_previous[row_start:row_stop, start:stop]")),
    constants=("decay", "scale", "threshold"),
    compute=numerics.masked_adjoint_rows,
    cost=cpp_cost(
        # pairs: a load, a compare and an and-not more
        {
            "samples pairs": (Mix(load=2, multiply=2, compare=2, store=2, loop=1), 3),
            "samples": A_ROW + Mix(integer=2),
        },
        "instruction count of our own: two loads, two multiplies, compare, and-not and two stores of 64 bits, "
        "branch; 8 per row",
        unpacked=(7, 3),
    ),
    flops=terms_of({"samples neurons": 3}),
    code_bytes=320,
)
