"""Codelets of the optimisers and of clipping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.launch import overhead_bundles
from mimdsim.numerics import training as numerics
from mimdsim.program import Codelet, Field, Length, Size, Term, TileFormula, WorkerBundles

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
    constants=("rate",),
    compute=numerics.sgd,
    joinable=True,
    cost=sgd_formula(4),
    flops=(Term(bundles=2, extents=("elements",)),),
    code_bytes=320,
    extents={"elements": Size("w")},
)

ADAM = Codelet(
    name="Adam",
    fields=(
        *UPDATE_FIELDS,
        Field(name="m", access="update", box=(":", "start:stop")),
        Field(name="v", access="update", box=(":", "start:stop")),
        Field(name="progress", access="read", box=(":",)),
    ),
    constants=("rate", "beta1", "beta2", "epsilon"),
    compute=numerics.adam,
    joinable=True,
    cost=adam_formula(4),
    flops=(Term(bundles=12, extents=("elements",)),),
    code_bytes=640,
    extents={"elements": Size("w")},
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """An optimiser on tiles: what it keeps of every weight, its equations, its cost with weight decay.

    compute: with the rate as the first of its constants, before `constants`; at_rate: with the rate in memory.
    bundles: per 64 bits, of elements of so many bytes; counted: of what. plain: the codelet without weight decay and
    with a constant rate, where it is one of its own.
    """

    kind: str
    state: tuple[Field, ...] = ()
    constants: tuple[str, ...]
    compute: Callable[..., None]
    at_rate: Callable[..., None]
    bundles: Callable[[int], int]
    counted: str
    flops: int
    code_bytes: int
    plain: Codelet | None = None


def _adam_bundles(item_bytes: int) -> int:
    elements = 8 // item_bytes
    return 4 + 3 + 11 + elements * 5 + elements * 3 + (elements if item_bytes == 2 else 0)


UPDATES = {
    update.kind: update
    for update in (
        Update(
            kind="sgd",
            constants=("decay",),
            compute=numerics.sgd_decaying,
            at_rate=numerics.sgd_at_rate,
            bundles=lambda _: 2 + 1 + 4,
            counted="2 loads, 1 store, 4 vector operations per 64 bits",
            flops=4,
            code_bytes=384,
            plain=SGD,
        ),
        Update(
            kind="momentum",
            state=(Field(name="momentum", access="update", box=(":", "start:stop")),),
            constants=("keep", "decay"),
            compute=numerics.momentum,
            at_rate=numerics.momentum_at_rate,
            bundles=lambda _: 3 + 2 + 6,
            counted="3 loads, 2 stores, 6 vector operations per 64 bits",
            flops=6,
            code_bytes=448,
        ),
        Update(
            kind="adam",
            state=ADAM.fields[2:],
            constants=("beta1", "beta2", "epsilon", "decay"),
            compute=numerics.adam_decaying,
            at_rate=numerics.adam_at_rate,
            bundles=_adam_bundles,
            counted="4 loads, 3 stores, 11 vector operations, square root 5 and division 3 per element, "
            "halves converted",
            flops=13,
            code_bytes=704,
            plain=ADAM,
        ),
    )
}


@lru_cache(maxsize=64)
def update_formula(update: Update, scheduled: bool, item_bytes: int) -> TileFormula:
    """With weight decay, elements of `item_bytes`; a rate in memory is loaded once by every context (2 bundles)."""
    plain = _per_vector(update.bundles(item_bytes), item_bytes)

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        return plain(extents, worker_contexts, vector_bytes) + (2 * worker_contexts if scheduled else 0)

    return TileFormula(
        cycles=cycles,
        kind="derived",
        source=f"fused map: {update.counted} (PopLibs operation tables, commit 7eac0f2)"
        + ("; the rate is loaded from memory, 2 bundles" if scheduled else ""),
    )


RATE = Field(name="learning_rate", access="read", box=(":",))


@lru_cache(maxsize=8)
def update_codelet(kind: str, *, scheduled: bool, decaying: bool = True) -> Codelet:
    """Of the optimiser of that kind; its rate a constant, or one number in memory where it is scheduled."""
    update = UPDATES[kind]
    if update.plain is not None and not scheduled and not decaying:
        return update.plain
    return Codelet(
        name=f"{kind.capitalize()}{'AtRate' if scheduled else 'Decaying'}",
        fields=(*UPDATE_FIELDS, *update.state, *((RATE,) if scheduled else ())),
        constants=(*(() if scheduled else ("rate",)), *update.constants),
        compute=update.at_rate if scheduled else update.compute,
        cost=update_formula(update, scheduled, 4),
        flops=(Term(bundles=update.flops, extents=("elements",)),),
        code_bytes=update.code_bytes,
        extents={"elements": Size("w")},
    )


@lru_cache(maxsize=8)
def squares_formula(item_bytes: int) -> TileFormula:
    """Sum of squares: a load and a multiply-accumulate per 64 bits, then the contexts' sums added up."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        vectors = -(-np.asarray(extents["elements"]) // (worker_contexts * (vector_bytes // item_bytes)))
        return 11 + worker_contexts * (16 + (2 if item_bytes == 4 else 3) * vectors) + 6 * worker_contexts

    return TileFormula(
        cycles=cycles,
        kind="derived",
        source="inner loop as of a contiguous reduction (PopLibs, 16 to set up), load and square-accumulate per 64 bits"
        ", halves converted; 6 per context to add up its sum",
    )


@lru_cache(maxsize=8)
def scale_all_formula(item_bytes: int) -> TileFormula:
    """One factor for all elements, in place."""
    return TileFormula(
        cycles=_per_vector(3, item_bytes),
        kind="derived",
        source="PopLibs scaled add without its second operand: load, multiply, store per 64 bits (commit 7eac0f2)",
    )


SUM_SQUARES = Codelet(
    name="SumSquares",
    fields=(
        Field(name="gradient", access="read", box=(":", "start:stop")),
        Field(name="partial", access="write", box=("part",)),
    ),
    compute=numerics.sum_squares,
    cost=squares_formula(4),
    flops=(Term(bundles=2, extents=("elements",)),),
    code_bytes=256,
    extents={"elements": Size("gradient")},
)

ADD_PARTS = Codelet(
    name="AddParts",
    fields=(
        Field(name="partial", access="read", box=(":",)),
        Field(name="totals", access="write", box=("which",)),
    ),
    compute=numerics.add_parts,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=0, vectors=2),
        terms=(Term(bundles=2, extents=("parts",), pairable=1),),
        kind="derived",
        source="a load and an add per part, on one context",
    ),
    flops=(Term(bundles=1, extents=("parts",)),),
    code_bytes=128,
    extents={"parts": Length("partial", 0)},
)

CLIP_FACTOR = Codelet(
    name="ClipFactor",
    fields=(
        Field(name="totals", access="read", box=(":",)),
        Field(name="factor", access="write", box=("place",)),
    ),
    constants=("largest_norm", "floor"),
    compute=numerics.clip_factor,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=2, vectors=2) + 5 + 3 + 3,  # square root, division; add, minimum, store
        terms=(Term(bundles=2, extents=("weights",), pairable=1),),
        kind="derived",
        source="a load and an add per weight, square root 5 and division 3 (PopLibs operation tables)",
    ),
    flops=(Term(bundles=1, extents=("weights",)),),
    code_bytes=192,
    extents={"weights": Length("totals", 0)},
)

SCALE_ALL = Codelet(
    name="ScaleAll",
    fields=(
        Field(name="gradient", access="update", box=(":", "start:stop")),
        Field(name="factor", access="read", box=(":",)),
    ),
    compute=numerics.scale_all,
    cost=scale_all_formula(4),
    flops=(Term(bundles=1, extents=("elements",)),),
    code_bytes=256,
    extents={"elements": Size("gradient")},
)

CODELETS = (
    SGD,
    ADAM,
    *(update_codelet(kind, scheduled=scheduled) for kind in UPDATES for scheduled in (False, True)),
    SUM_SQUARES,
    ADD_PARTS,
    CLIP_FACTOR,
    SCALE_ALL,
)
