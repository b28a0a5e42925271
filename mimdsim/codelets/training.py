"""Codelets of the loss and of the optimisers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.launch import overhead_bundles
from mimdsim.numerics import training as numerics
from mimdsim.program import Codelet, Field, Term, TileFormula, WorkerBundles

COUNT_SPIKES = Codelet(
    name="CountSpikes",
    fields=(
        Field(name="ids", access="read", box=(":", "sample", ":")),
        Field(name="counts", access="read", box=(":", "sample", ":")),
        Field(name="totals", access="write", box=("sample", ":")),
    ),
    columns=("sample",),
    compute=numerics.count_spikes,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=3),
        terms=(Term(bundles=8, extents=("timesteps",)), Term(bundles=2, extents=("classes",))),
        kind="assumed",
        source="about 8 bundles per timestep: loop over a short list, one read-modify-write per spike",
    ),
    code_bytes=256,
)

CROSS_ENTROPY = Codelet(
    name="CrossEntropy",
    fields=(
        Field(name="totals", access="read", box=("sample", ":")),
        Field(name="labels", access="read", box=("sample",)),
        Field(name="losses", access="write", box=("sample",)),
        Field(name="gradient", access="write", box=("sample", ":")),
    ),
    columns=("sample",),
    constants=("scale",),
    compute=numerics.cross_entropy,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=4) + 20,
        terms=(Term(bundles=20, extents=("classes",)),),  # max, exponential (3), sum, division (3), stores
        kind="assumed",
        source="three passes over the classes, exponential 3 and division 3 cycles (PopLibs operation tables)",
    ),
    flops=(Term(bundles=6, extents=("classes",)),),
    code_bytes=512,
)

LIST_COUNT_GRADIENT = Codelet(
    name="ListCountGradient",
    fields=(
        Field(name="ids", access="read", box=(":", "sample", ":")),
        Field(name="counts", access="read", box=(":", "sample", ":")),
        Field(name="gradient", access="read", box=("sample", ":")),
        Field(name="g", access="write", box=(":", "sample", ":")),
    ),
    columns=("sample",),
    compute=numerics.list_count_gradient,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=4),
        terms=(Term(bundles=4, extents=("timesteps", "capacity")),),
        kind="assumed",
        source="about 4 bundles per slot: load id, load gradient, select, store",
    ),
    code_bytes=256,
)

UPDATE_FIELDS = (
    Field(name="w", access="update", box=(":", "start:stop")),
    Field(name="gradient", access="read", box=(":", "start:stop")),
)


def _per_vector(bundles: float, item_bytes: int) -> Any:
    """A fused element-wise expression: `bundles` per 64-bit vector and worker, plus prologue and supervisor part."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        vectors = -(-np.asarray(extents["elements"]) // (worker_contexts * (vector_bytes // item_bytes)))
        return np.ceil(11 + worker_contexts * (29 + bundles * vectors)).astype(np.int64)

    return cycles


@lru_cache(maxsize=8)
def sgd_formula(item_bytes: int) -> TileFormula:
    """One scaled add of elements of `item_bytes`."""
    return TileFormula(
        cycles=_per_vector(3, item_bytes),
        kind="derived",
        source="PopLibs scaled add: 3 bundles per 64-bit vector (commit 7eac0f2)",
    )


@lru_cache(maxsize=8)
def adam_formula(item_bytes: int) -> TileFormula:
    """The whole update in one pass; square roots and divisions go one by one, of floats, and halves are converted."""
    elements = 8 // item_bytes
    conversions = 2 * elements if item_bytes == 2 else 0  # under the root and out of the quotient, two at a time
    loads_stores_arithmetic = 4 + 3 + 10
    return TileFormula(
        cycles=_per_vector(loads_stores_arithmetic + elements * 5 + elements * 3 + conversions // 2, item_bytes),
        kind="derived",
        source="fused map: 4 loads, 3 stores, 10 vector operations, square root 5 and division 3 per element"
        " (PopLibs operation tables)" + (", conversions to float and back, two at a time" if conversions else ""),
    )


SGD = Codelet(
    name="Sgd",
    fields=UPDATE_FIELDS,
    columns=("start", "stop"),
    constants=("rate",),
    compute=numerics.sgd,
    cost=sgd_formula(4),
    flops=(Term(bundles=2, extents=("elements",)),),
    code_bytes=320,
)

ADAM = Codelet(
    name="Adam",
    fields=(
        *UPDATE_FIELDS,
        Field(name="m", access="update", box=(":", "start:stop")),
        Field(name="v", access="update", box=(":", "start:stop")),
        Field(name="progress", access="read", box=(":",)),
    ),
    columns=("start", "stop"),
    constants=("rate", "beta1", "beta2", "epsilon"),
    compute=numerics.adam,
    cost=adam_formula(4),
    flops=(Term(bundles=12, extents=("elements",)),),
    code_bytes=640,
)

CODELETS = (COUNT_SPIKES, CROSS_ENTROPY, LIST_COUNT_GRADIENT, SGD, ADAM)
