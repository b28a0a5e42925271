"""Codelets of currents that are not summed in the neuron's own vertex: synapses, a neuron onto itself, a bias.

With a separate current per source, a layer can have several, all in the same superstep, before its neurons
integrate their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mimdsim.codelets.dense import FORMATS
from mimdsim.codelets.neurons import (
    DECAY_GRADIENT,
    LIF_UPDATE,
    LIF_UPDATE_DENSE,
    SUM_SPIKES,
    by_neuron,
    scale_cycles,
    vectors_of,
)
from mimdsim.codelets.vertex_costs import (
    A_ROW,
    LOOK_AT_FLAG,
    LOOK_AT_ID,
    SOURCE,
    by_item_bytes,
    by_runs,
    by_vectors,
    cpp_cost,
    on_elements,
    on_loops,
)
from mimdsim.costs.library.elementwise import binary_1d_cycles
from mimdsim.numerics.sparse import recurrence_and_bias as numerics
from mimdsim.program import Codelet, Hits, Length, Listed, Lists, Spikes, SpikesOver, Vectors, fields_of
from mimdsim.program.codelet import Counted
from mimdsim.program.loops import Mix

OWN = "instruction count of our own in the manner of the published codelets"
IDS = (*fields_of("read ids[sample, :] in part; read counts[sample, :]"),)
CURRENT = fields_of("write current[sample, start:stop]")

KEEP_SUM: Counted = Mix(store=2, integer=1, loop=1), 1  # clear the sum, store it, next address, branch
SYNAPSE_CURRENT = on_loops(
    "SynapseCurrent",
    (*CURRENT, LIF_UPDATE.field("w"), *IDS),
    numerics.synapse_current,
    # spikes: as in the fused update
    {"spikes pairs": SUM_SPIKES, "pairs": KEEP_SUM},
    f"{SOURCE}; the sum of the fused update, 4 per spike and neuron pair; {OWN}: 4 per pair to store it",
    scalars=0,
    joinable=True,
    flops={"spikes neurons": 1},
    code_bytes=512,
    extents={"spikes": Lists(Spikes), **vectors_of("current", 1)},
)

SYNAPSE_CURRENT_DENSE = replace(
    SYNAPSE_CURRENT,
    name="SynapseCurrentDense",
    fields=(*CURRENT, LIF_UPDATE.field("w"), LIF_UPDATE_DENSE.field("row")),
    compute=numerics.synapse_current_dense,
    cost=cpp_cost(
        {"inputs": LOOK_AT_FLAG, "spikes pairs": SUM_SPIKES, "pairs": KEEP_SUM},
        f"{SOURCE}; the sum of the update from a row of bytes; {OWN}: 4 per pair to store it",
        unpacked=(0, 3),
    ),
    extents={**SYNAPSE_CURRENT.extents, "inputs": Length("row", 1)},
)

SELF_SYNAPSE = on_loops(
    "SelfSynapse",
    (*CURRENT, *fields_of("read r[:, start:stop]"), *IDS),
    numerics.self_synapse,
    # pairs: store zeros, next address, branch; spikes: load id, subtract the tile's start, compare, branch; hits:
    # load the weight, store it
    {"pairs": Mix(store=1, integer=1, loop=1), "spikes": LOOK_AT_ID, "hits": Mix(load=1, store=1)},
    f"{OWN}: 3 per pair cleared, 4 per spike as in the state gradient, 2 per spike of the tile's neurons",
    scalars=2,
    joinable=True,
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
    fields=(*SELF_SYNAPSE.fields[:2], *fields_of("read row[sample, start:stop]")),
    compute=numerics.self_synapse_dense,
    cost=cpp_cost(
        # load the byte, load the weight, compare, select, store, branch
        {"neurons": Mix(load=2, compare=2, store=1, loop=1)},
        f"{OWN}: 6 per neuron",
        unpacked=(0, 3),
    ),
    extents={"neurons": Length("current", 1)},
)


# one number per neuron added to all samples
bias_formula = by_item_bytes(
    "published", "PopLibs popops BroadcastVectorInner1D<ADD> cycle estimator (commit 7eac0f2), samples as blocks"
)(scale_cycles)


@by_item_bytes("published", "PopLibs popops BinaryOp1DInPlace ADD cycle estimator (commit 7eac0f2)")
def add_formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
    """Element-wise addition in place."""
    dtype = FORMATS[item_bytes]
    machine: dict[str, Any] = {"worker_contexts": contexts, "vector_bytes": vector_bytes}
    return binary_1d_cycles(extents["elements"], dtype=dtype, in_place=True, **machine)


BIAS_ADD = replace(
    DECAY_GRADIENT,
    name="BiasAdd",
    fields=fields_of("update current[:, start:stop]; read bias[:, start:stop]"),
    compute=numerics.add_columns,
    cost=bias_formula(4),
    extents=by_neuron("current"),
)

ADD_COLUMNS = on_elements(
    "AddColumns",
    "update total[:, start:stop]; read other[:, start:stop]",
    numerics.add_columns,
    add_formula(4),
    "total",
    joinable=True,
    code_bytes=256,
)
ADD_SLOTS = replace(
    ADD_COLUMNS,
    name="AddSlots",
    fields=fields_of("update total[sample, slot_start:slot_stop]; read other[sample, slot_start:slot_stop]"),
    columns=("sample", "slot_start", "slot_stop"),
    compute=numerics.add_slots,
)

REPLICA = ("replica", "sample_start", "sample_stop", "start", "stop")
SAMPLES = "sample_start:sample_stop"

SELF_WEIGHT_GRADIENT = on_loops(
    "SelfWeightGradient",
    "update dw[replica, :, start:stop]; read q[sample_start:sample_stop, start:stop]; "
    "read ids[sample_start:sample_stop, :]; read counts[sample_start:sample_stop, :]",
    numerics.self_weight_gradient,
    # spikes: load id, subtract the tile's start, compare, branch; hits: load the gradient, load the sum, add,
    # store, two pointers reloaded because the store may alias
    {"spikes": LOOK_AT_ID, "hits": (Mix(load=4, add=1, store=1), 1), "samples": A_ROW + Mix(load=2)},
    f"{OWN}: 4 per spike and 8 per sample as there, 6 per spike of the tile's neurons",
    scalars=3,
    columns=REPLICA,
    joinable=True,
    flops={"hits": 1},
    code_bytes=448,
    extents={"spikes": Lists(SpikesOver), "hits": Lists(Hits, ("spikes",)), "samples": Length("q", 0)},
)

SELF_INPUT_GRADIENT = on_loops(
    "SelfInputGradient",
    (
        *fields_of("write partial[part, sample, :]; read r[:, start:stop]; read q[sample, start:stop]"),
        *IDS,
    ),
    numerics.self_input_gradient,
    # listed: load id, subtract the tile's start, compare, branch, store zero; hits: load weight and gradient,
    # multiply
    {"listed": LOOK_AT_ID + Mix(store=1), "hits": (Mix(load=2, multiply=1), 1)},
    f"{OWN}: 5 per listed id, 3 more per id of the tile's neurons",
    scalars=3,
    flops={"hits": 1},
    code_bytes=448,
    extents={"listed": Lists(Listed), "hits": Lists(Hits, ("listed",))},
)

BIAS_GRADIENT = on_loops(
    "BiasGradient",
    "update db[replica, :, start:stop]; read q[sample_start:sample_stop, start:stop]",
    numerics.bias_gradient,
    # samples: load a pair, add, branch; pairs: load the sums, add, store, next address, branch
    {"samples pairs": (Mix(load=1, add=1, loop=1), 1), "pairs": (Mix(load=1, add=1, store=1, integer=1, loop=1), 1)},
    f"{OWN}: 3 per sample and neuron pair, 5 per pair",
    scalars=3,
    columns=REPLICA,
    joinable=True,
    flops={"samples neurons": 1},
    code_bytes=320,
    extents={"samples": Length("q", 0), **vectors_of("q", 1)},
)


def names(count: int) -> tuple[str, ...]:
    """The fields of biases that are added up."""
    return tuple(f"bias{number}" for number in range(1, count + 1))


@cache
def bias_sum(count: int) -> Codelet:
    """The sum of so many biases, a neuron each."""

    def compute(acting: np.ndarray, first: np.ndarray, *more: np.ndarray) -> None:
        acting[:] = sum(more, first)

    return _on_biases("BiasSum", "acting", names(count), compute)


@cache
def bias_sum_gradient(count: int) -> Codelet:
    """The gradient of their sum for each of so many biases."""

    def compute(*arrays: np.ndarray) -> None:
        for target in arrays[:-1]:
            target[:] = arrays[-1]

    return _on_biases("BiasSumGradient", names(count), "gradient", compute)


def _on_biases(
    kind: str, written: str | tuple[str, ...], read: str | tuple[str, ...], compute: Callable[..., None]
) -> Codelet:
    made, given = ((each,) if isinstance(each, str) else each for each in (written, read))
    fields = [*(f"write {name}[:, start:stop]" for name in made), *(f"read {name}[:, start:stop]" for name in given)]
    count = max(len(made), len(given))
    source = (
        f"library loops over 64 bits, {len(given)} loads, {len(given) - 1} additions and {len(made)} stores; assumed"
    )
    formula = by_vectors(lambda _: len(fields) + len(given) - 1, source)
    return on_elements(
        f"{kind}({count})", "; ".join(fields), by_runs(compute, [True] * len(fields)), formula(4), made[0],
        flops=len(given) - 1, code_bytes=128,
    )  # fmt: skip
