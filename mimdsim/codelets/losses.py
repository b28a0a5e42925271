"""Codelets of read-outs and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.vertex_overhead import overhead_bundles
from mimdsim.numerics.sparse import losses as numerics
from mimdsim.numerics.sparse.recurrence_and_bias import add_columns
from mimdsim.program import Codelet, Field, Length, Size, Term, TileFormula, WorkerBundles

COUNT_SPIKES = Codelet(
    name="CountSpikes",
    fields=(
        Field(name="ids", access="read", box=(":", "sample", ":")),
        Field(name="counts", access="read", box=(":", "sample", ":")),
        Field(name="totals", access="write", box=("sample", ":")),
    ),
    compute=numerics.count_spikes,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=3),
        terms=(Term(bundles=8, extents=("timesteps",)), Term(bundles=2, extents=("classes",))),
        kind="assumed",
        source="about 8 bundles per timestep: loop over a short list, one read-modify-write per spike",
    ),
    code_bytes=256,
    extents={"timesteps": Length("ids", 0), "classes": Length("totals", 1)},
)

CROSS_ENTROPY = Codelet(
    name="CrossEntropy",
    fields=(
        Field(name="totals", access="read", box=("sample", ":")),
        Field(name="labels", access="read", box=("sample",)),
        Field(name="losses", access="write", box=("sample",)),
        Field(name="gradient", access="write", box=("sample", ":")),
    ),
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
    extents={"classes": Length("totals", 1)},
)

LIST_COUNT_GRADIENT = Codelet(
    name="ListCountGradient",
    fields=(
        Field(name="ids", access="read", box=(":", "sample", ":")),
        Field(name="counts", access="read", box=(":", "sample", ":")),
        Field(name="gradient", access="read", box=("sample", ":")),
        Field(name="g", access="write", box=(":", "sample", ":")),
    ),
    compute=numerics.list_count_gradient,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=4),
        terms=(Term(bundles=4, extents=("timesteps", "capacity")),),
        kind="assumed",
        source="about 4 bundles per slot: load id, load gradient, select, store",
    ),
    code_bytes=256,
    extents={"timesteps": Length("g", 0), "capacity": Length("g", 2)},
)

COUNT_LAST = replace(
    COUNT_SPIKES,
    name="CountLast",
    constants=("first",),
    compute=numerics.count_last,
    extents={**COUNT_SPIKES.extents, "timesteps": Length("ids", 0, after="first")},
)
LIST_LAST_GRADIENT = replace(
    LIST_COUNT_GRADIENT, name="ListLastGradient", constants=("first",), compute=numerics.list_last_gradient
)

EMITTED_ROWS = Codelet(
    name="EmittedRows",
    fields=(
        *COUNT_SPIKES.fields[:2],
        Field(name="rows", access="write", box=(":", "sample", ":")),
    ),
    compute=numerics.emitted_rows,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=3),
        # clear a row, then a load and a store per spike of a short list
        terms=(Term(bundles=8, extents=("timesteps",)), Term(bundles=1, extents=("timesteps", "neurons"))),
        kind="assumed",
        source="about 8 bundles per timestep as for counting spikes, a store per neuron to clear",
    ),
    code_bytes=256,
    extents={"timesteps": Length("rows", 0), "neurons": Length("rows", 2)},
)

LISTED_OF = replace(
    LIST_COUNT_GRADIENT,
    name="ListedOf",
    fields=(
        Field(name="rows", access="read", box=(":", "sample", ":")),
        *LIST_COUNT_GRADIENT.fields[:2],
        LIST_COUNT_GRADIENT.fields[3],
    ),
    compute=numerics.listed_of,
)

CROSS_ENTROPY_BY_TIMESTEP = replace(
    CROSS_ENTROPY,
    name="CrossEntropyByTimestep",
    fields=(
        Field(name="totals", access="read", box=(":", "sample", ":")),
        *CROSS_ENTROPY.fields[1:3],
        Field(name="gradient", access="write", box=(":", "sample", ":")),
    ),
    compute=numerics.cross_entropy_by_timestep,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=4) + 20,
        terms=(Term(bundles=20, extents=("timesteps", "classes")), Term(bundles=20, extents=("timesteps",))),
        kind="assumed",
        source="the cross-entropy of one row, for every timestep",
    ),
    flops=(Term(bundles=6, extents=("timesteps", "classes")),),
    extents={"timesteps": Length("totals", 0), "classes": Length("totals", 2)},
)

MEAN_CROSS_ENTROPY_BY_TIMESTEP = replace(  # the weight is in the factor of the gradient, which is computed anyway
    CROSS_ENTROPY_BY_TIMESTEP,
    name="MeanCrossEntropyByTimestep",
    constants=("scale", "weight"),
    compute=numerics.weighted_by_timestep,
)

SQUARED_ERROR = replace(
    CROSS_ENTROPY,
    name="SquaredError",
    constants=("correct", "incorrect", "timesteps"),
    compute=numerics.squared_error,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=4, vectors=4),
        # load, compare with the label, select, subtract, square and add, scale, store
        terms=(Term(bundles=8, extents=("classes",)),),
        kind="assumed",
        source="one pass over the classes: load, compare, select, subtract, square and add, scale, store, loop",
    ),
    flops=(Term(bundles=4, extents=("classes",)),),
    code_bytes=320,
)

POOLS: dict[tuple[str, bool], Callable[..., None]] = {
    ("Pool", False): numerics.pool_classes,
    ("Pool", True): numerics.pool_classes_by_timestep,
    ("Spread", False): numerics.spread_classes,
    ("Spread", True): numerics.spread_classes_by_timestep,
}


@lru_cache(maxsize=8)
def pool_codelet(what: str, by_timestep: bool) -> Codelet:
    """'Pool': sums over the neurons of each class; 'Spread': a class's number to each of its neurons."""
    box = (":", "sample", ":") if by_timestep else ("sample", ":")
    given, made = ("scores", "pooled") if what == "Pool" else ("gradient", "spread")
    return Codelet(
        name=f"{what}Classes{'ByTimestep' if by_timestep else ''}",
        fields=(Field(name=given, access="read", box=box), Field(name=made, access="write", box=box)),
        constants=("each",),
        compute=POOLS[what, by_timestep],
        cost=WorkerBundles(
            fixed=overhead_bundles(scalars=1, vectors=2),
            terms=(Term(bundles=3, extents=("elements",)),),
            kind="assumed",
            source="load, add or store, next address per neuron and timestep",
        ),
        flops=(Term(bundles=1, extents=("elements",)),) if what == "Pool" else (),
        code_bytes=192,
        extents={"elements": Size(given if what == "Pool" else made)},
    )


def _stream_formula(bundles: int, why: str) -> Callable[[int], TileFormula]:
    """A loop over `elements` of a stack, `bundles` per 64 bits, spread over the contexts."""

    @lru_cache(maxsize=8)
    def formula(item_bytes: int) -> TileFormula:
        def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
            vectors = -(-np.asarray(extents["elements"]) // (worker_contexts * (vector_bytes // item_bytes)))
            return 11 + worker_contexts * (29 + bundles * vectors)

        return TileFormula(
            cycles=cycles,
            kind="derived",
            source=f"{why} per 64 bits; launch 11 and 29 to set up a context as of a PopLibs element-wise vertex"
            " (commit 7eac0f2)",
        )

    return formula


ADD_FORMULA = _stream_formula(2, "load and add")
STORE_FORMULA = _stream_formula(2, "store and next address")
CHOOSE_FORMULA = _stream_formula(5, "load, compare, two selects, store")
SUM_IN_PLACE_FORMULA = _stream_formula(3, "a scaled add: two loads, add, store in 3 bundles")
STREAM_FORMULAS = (ADD_FORMULA, STORE_FORMULA, CHOOSE_FORMULA, SUM_IN_PLACE_FORMULA)
U = Field(name="u", access="read", box=(":", ":", "start:stop"))
SCORES = Field(name="scores", access="write", box=(":", "start:stop"))
GRADIENT = Field(name="gradient", access="read", box=(":", "start:stop"))
DU = Field(name="du", access="write", box=(":", ":", "start:stop"))
FACTOR = ("factor",)


def _columns(
    name: str, fields: tuple[Field, ...], compute: Callable[..., None], formula: Callable[[int], TileFormula],
    elements: str, constants: tuple[str, ...] = (),
) -> Codelet:  # fmt: skip
    """One vertex per tile for the columns of its neurons, over all `elements` of a field."""
    return Codelet(
        name=name,
        fields=fields,
        constants=constants,
        compute=compute,
        cost=formula(4),
        flops=(Term(bundles=1, extents=("elements",)),),
        code_bytes=256,
        extents={"elements": Size(elements)},
    )


ADD_TIMESTEPS = _columns("AddTimesteps", (U, SCORES), numerics.add_timesteps, ADD_FORMULA, "u", FACTOR)
TAKE_LAST = _columns("TakeLast", (U, SCORES), numerics.take_last, ADD_FORMULA, "scores")
HIGHEST = _columns("Highest", (U, SCORES), numerics.highest, ADD_FORMULA, "u")
SPREAD_TIMESTEPS = _columns("SpreadTimesteps", (GRADIENT, DU), numerics.spread_timesteps, STORE_FORMULA, "du", FACTOR)
GIVE_LAST = _columns("GiveLast", (GRADIENT, DU), numerics.give_last, STORE_FORMULA, "du")
GIVE_HIGHEST = _columns("GiveHighest", (GRADIENT, U, DU), numerics.give_highest, CHOOSE_FORMULA, "du")
ADD_ADJOINTS = _columns(
    "AddAdjoints",
    (
        Field(name="adjoint", access="update", box=(":", "start:stop")),
        Field(name="now", access="read", box=(":", "start:stop")),
    ),
    add_columns,
    SUM_IN_PLACE_FORMULA,
    "adjoint",
)

COUNT_LISTED = Codelet(
    name="CountListed",
    fields=(
        Field(name="counts", access="read", box=(":", "sample", ":")),
        Field(name="spikes", access="write", box=("sample",)),
    ),
    compute=numerics.count_listed,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=2),
        terms=(Term(bundles=3, extents=("timesteps",)),),
        kind="assumed",
        source="load, add, next address per timestep",
    ),
    code_bytes=128,
    extents={"timesteps": Length("counts", 0)},
)

FIRING_PENALTY = Codelet(
    name="FiringPenalty",
    fields=(
        Field(name="spikes", access="read", box=(":",)),
        Field(name="penalty", access="write", box=("place",)),
        Field(name="even", access="write", box=("place",)),
    ),
    constants=("target", "strength", "places"),
    compute=numerics.firing_penalty,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=3, vectors=3) + 3 + 8,  # a division; subtract, square, scale, store twice
        terms=(Term(bundles=2, extents=("samples",)),),
        kind="assumed",
        source="load and add per sample, then one division (3) and some eight operations",
    ),
    flops=(Term(bundles=1, extents=("samples",)),),
    code_bytes=192,
    extents={"samples": Length("spikes", 0)},
)

ADD_EVEN = Codelet(
    name="AddEven",
    fields=(
        Field(name="g", access="read", box=("sample", "slot_start:slot_stop")),
        Field(name="even", access="read", box=(":",)),
        Field(name="total", access="write", box=("sample", "slot_start:slot_stop")),
    ),
    compute=numerics.add_even,
    cost=SUM_IN_PLACE_FORMULA(4),
    flops=(Term(bundles=1, extents=("elements",)),),
    code_bytes=192,
    extents={"elements": Size("total")},
)

CODELETS = (
    COUNT_SPIKES,
    COUNT_LAST,
    CROSS_ENTROPY,
    CROSS_ENTROPY_BY_TIMESTEP,
    MEAN_CROSS_ENTROPY_BY_TIMESTEP,
    SQUARED_ERROR,
    LIST_COUNT_GRADIENT,
    LIST_LAST_GRADIENT,
    EMITTED_ROWS,
    LISTED_OF,
    *(pool_codelet(what, by_timestep) for what, by_timestep in POOLS),
    ADD_TIMESTEPS,
    TAKE_LAST,
    HIGHEST,
    SPREAD_TIMESTEPS,
    GIVE_LAST,
    GIVE_HIGHEST,
    ADD_ADJOINTS,
    COUNT_LISTED,
    FIRING_PENALTY,
    ADD_EVEN,
)
