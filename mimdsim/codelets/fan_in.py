"""Codelets for a part of the weights of neurons: of the ids in a range of inputs, `start` to `stop`."""

from __future__ import annotations

from dataclasses import replace

from mimdsim.codelets.neurons import SUM_SPIKES, vectors_of
from mimdsim.codelets.recurrence_and_bias import IDS, KEEP_SUM
from mimdsim.codelets.spikes import ADD_GRADIENT, ADD_PRODUCT, INPUT_GRADIENT, WEIGHT_GRADIENT
from mimdsim.codelets.vertex_costs import A_ROW, SOURCE, cpp_cost, on_loops
from mimdsim.numerics.sparse import spikes as numerics
from mimdsim.program import Hits, Length, Listed, Lists, Spikes, SpikesOver, fields_of, terms_of
from mimdsim.program.instruction_mix import Mix

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
