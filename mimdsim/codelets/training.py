"""Codelets of the optimisers and of clipping."""

from __future__ import annotations

from functools import cache, lru_cache

from mimdsim.codelets.vertex_costs import Formula, by_vectors, compiled
from mimdsim.numerics import training as numerics
from mimdsim.numerics.optimisers import FORMS, Form
from mimdsim.numerics.optimisers.adam import adam
from mimdsim.numerics.optimisers.sgd import sgd
from mimdsim.program import Codelet, Field, Length, Size, fields_of, terms_of

UPDATE_FIELDS = (*fields_of("update w[:, start:stop]; read gradient[:, start:stop]"),)

PROGRESS = fields_of("read progress[:]")  # the number of the training step


sgd_formula = by_vectors(lambda _: 3, "PopLibs scaled add: 3 bundles per 64-bit vector (commit 7eac0f2)")


def _adam_bundles(item_bytes: int) -> int:
    """The whole update in one pass; square roots and divisions take one float at a time, so halves are converted."""
    elements = 8 // item_bytes
    conversions = 2 * elements if item_bytes == 2 else 0  # before the root and after the quotient, two at a time
    loads_stores_arithmetic = 4 + 3 + 10
    return loads_stores_arithmetic + elements * 5 + elements * 3 + conversions // 2


adam_formula = by_vectors(
    _adam_bundles,
    "fused map: 4 loads, 3 stores, 10 vector operations, square root 5 and division 3 per element"
    " (PopLibs operation tables)",
    of_halves=", conversions to float and back, two at a time",
)

SGD = Codelet(
    name="Sgd",
    fields=UPDATE_FIELDS,
    constants=("rate",),
    compute=sgd,
    joinable=True,
    cost=sgd_formula(4),
    flops=terms_of({"elements": 2}),
    code_bytes=320,
    extents={"elements": Size("w")},
)

ADAM = Codelet(
    name="Adam",
    fields=(
        *UPDATE_FIELDS,
        *fields_of("update m[:, start:stop]; update v[:, start:stop]"),
        *PROGRESS,
    ),
    constants=("rate", "beta1", "beta2", "epsilon"),
    compute=adam,
    joinable=True,
    cost=adam_formula(4),
    flops=terms_of({"elements": 12}),
    code_bytes=640,
    extents={"elements": Size("w")},
)


# published codelets, without weight decay and with a constant rate
PLAIN = {"sgd": SGD, "adam": ADAM}


@cache
def update_formula(form: Form, scheduled: bool) -> Formula:
    """With weight decay; a rate in memory is loaded once by every context (2 bundles)."""
    source = f"fused map: {form.counted} (PopLibs operation tables, commit 7eac0f2)"
    more = "; the rate is loaded from memory, 2 bundles" if scheduled else ""
    return by_vectors(form.bundles, source + more, set_up=31 if scheduled else 29)


RATE = fields_of("read learning_rate[:]")


def _state(form: Form) -> tuple[Field, ...]:
    kept = fields_of("; ".join(f"update {name}[:, start:stop]" for name in form.state.values())) if form.state else ()
    return (*kept, *PROGRESS) if form.counts else kept


@lru_cache(maxsize=16)
def update_codelet(kind: str, *, scheduled: bool, decaying: bool = True) -> Codelet:
    """The update of an optimiser; its rate is a constant, or one number in memory if it is scheduled."""
    form = FORMS[kind]
    if kind in PLAIN and not scheduled and not decaying:
        return PLAIN[kind]
    return Codelet(
        name=f"{kind.title().replace('_', '')}{'AtRate' if scheduled else 'Decaying'}",
        fields=(*UPDATE_FIELDS, *_state(form), *(RATE if scheduled else ())),
        constants=(*(() if scheduled else ("rate",)), *form.constants.values()),
        compute=form.at_rate if scheduled else form.compute,
        cost=update_formula(form, scheduled)(4),
        flops=terms_of({"elements": form.flops}),
        code_bytes=form.code_bytes,
        extents={"elements": Size("w")},
    )


squares_formula = by_vectors(
    lambda item_bytes: 2 if item_bytes == 4 else 3,
    "inner loop as of a contiguous reduction (PopLibs, 16 to set up), load and square-accumulate per 64 bits, halves "
    "converted; 6 per context to add up its sum",
    set_up=16 + 6,
)
scale_all_formula = by_vectors(  # one factor for all elements, in place
    lambda _: 3,
    "PopLibs scaled add without its second operand: load, multiply, store per 64 bits (commit 7eac0f2)",
)

SUM_SQUARES = Codelet(
    name="SumSquares",
    fields=fields_of("read gradient[:, start:stop]; write partial[part]"),
    compute=numerics.sum_squares,
    cost=squares_formula(4),
    flops=terms_of({"elements": 2}),
    code_bytes=256,
    extents={"elements": Size("gradient")},
)

ADD_PARTS = Codelet(
    name="AddParts",
    fields=fields_of("read partial[:]; write totals[which]"),
    compute=numerics.add_parts,
    cost=compiled({"parts": (2, 1)}, "a load and an add per part, on one context", unpacked=(0, 2)),
    flops=terms_of({"parts": 1}),
    code_bytes=128,
    extents={"parts": Length("partial", 0)},
)

CLIP_FACTOR = Codelet(
    name="ClipFactor",
    fields=fields_of("read totals[:]; write factor[place]"),
    constants=("largest_norm", "floor"),
    compute=numerics.clip_factor,
    cost=compiled(
        # square root, division; add, minimum, store
        {"weights": (2, 1)},
        "a load and an add per weight, square root 5 and division 3 (PopLibs operation tables)",
        unpacked=(2, 2),
        more=5 + 3 + 3,
    ),
    flops=terms_of({"weights": 1}),
    code_bytes=192,
    extents={"weights": Length("totals", 0)},
)

SCALE_ALL = Codelet(
    name="ScaleAll",
    fields=fields_of("update gradient[:, start:stop]; read factor[:]"),
    compute=numerics.scale_all,
    cost=scale_all_formula(4),
    flops=terms_of({"elements": 1}),
    code_bytes=256,
    extents={"elements": Size("gradient")},
)
