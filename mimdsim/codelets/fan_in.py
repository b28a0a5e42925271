"""Codelets for a part of the weights of neurons: of the ids in a range of inputs, `start` to `stop`."""

from __future__ import annotations

from dataclasses import replace

from mimdsim.codelets.neurons import vectors_of
from mimdsim.codelets.recurrence_and_bias import IDS
from mimdsim.codelets.spikes import INPUT_GRADIENT, WEIGHT_GRADIENT
from mimdsim.codelets.vertex_overhead import SOURCE, overhead_bundles
from mimdsim.numerics.sparse import spikes as numerics
from mimdsim.program import (
    Codelet,
    Field,
    Hits,
    Length,
    Listed,
    Lists,
    Spikes,
    SpikesOver,
    Term,
    WorkerBundles,
)

LOOKED_AT = 5  # load the id, two compares, branch, next
WEIGHTS = Field(name="w", access="read", box=("start:stop", "first:last"))
OWN = f"instruction count of our own: {LOOKED_AT} to see whether an id is in range"

SYNAPSE_CURRENT_PART = Codelet(
    name="SynapseCurrentPart",
    fields=(Field(name="current", access="write", box=("fan_in_part", "sample", "first:last")), WEIGHTS, *IDS),
    columns=("fan_in_part", "sample", "start", "stop", "first", "last"),
    compute=numerics.synapse_current_part,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=4),
        terms=(
            Term(bundles=LOOKED_AT, extents=("spikes",)),
            Term(bundles=4, extents=("hits", "pairs"), pairable=1),  # as in the sum of all weights
            Term(bundles=4, extents=("pairs",), pairable=1),
        ),
        kind="derived",
        source=f"{SOURCE}; the sum of the fused update, 4 per spike in range and neuron pair; {OWN}",
    ),
    flops=(Term(bundles=1, extents=("hits", "neurons")),),
    code_bytes=576,
    extents={"spikes": Lists(Spikes), "hits": Lists(Hits, ("spikes",)), **vectors_of("current", 2)},
)

WEIGHT_GRADIENT_PART = Codelet(
    name="WeightGradientPart",
    fields=(
        Field(name="dw", access="update", box=("replica", "start:stop", "first:last")),
        Field(name="q", access="read", box=("sample_start:sample_stop", "first:last")),
        *WEIGHT_GRADIENT.fields[2:],
    ),
    columns=("replica", "sample_start", "sample_stop", "start", "stop", "first", "last"),
    compute=numerics.weight_gradient_part,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=5, vectors=4),
        terms=(
            Term(bundles=LOOKED_AT, extents=("spikes",)),
            Term(bundles=7, extents=("hits", "pairs"), pairable=1),
            Term(bundles=8, extents=("samples",)),
        ),
        kind="derived",
        source=f"{SOURCE}; about 7 per spike in range and neuron pair where aliasing cannot be excluded; {OWN}",
    ),
    flops=(Term(bundles=1, extents=("hits", "neurons")),),
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
        WEIGHTS,
        Field(name="q", access="read", box=("sample", "first:last")),
        *INPUT_GRADIENT.fields[3:],
    ),
    columns=("part", "sample", "start", "stop", "first", "last"),
    compute=numerics.input_gradient_part,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=4, vectors=5),
        terms=(
            Term(bundles=LOOKED_AT + 1, extents=("listed",)),  # and a zero where it is not in range
            Term(bundles=7, extents=("hits", "pairs"), pairable=2),
        ),
        kind="derived",
        source=f"{SOURCE}; about 7 per listed id in range and neuron pair where aliasing cannot be excluded; {OWN}",
    ),
    flops=(Term(bundles=2, extents=("hits", "neurons")),),
    extents={"listed": Lists(Listed), "hits": Lists(Hits, ("listed",)), **vectors_of("q", 1)},
)

CODELETS = (SYNAPSE_CURRENT_PART, WEIGHT_GRADIENT_PART, INPUT_GRADIENT_PART)
