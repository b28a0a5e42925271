"""Codelets of the optimisers and of clipping."""

from __future__ import annotations

from functools import cache, lru_cache

from mimdsim.codelets.vertex_costs import Formula, by_vectors, on_elements, on_loops
from mimdsim.numerics import optimisers as numerics
from mimdsim.numerics.optimisers import FORMS, Form, adam, sgd
from mimdsim.program import Codelet, Length
from mimdsim.program.loops import Mix

UPDATE = "update w[:, start:stop]; read gradient[:, start:stop]"
PROGRESS = "read progress[:]"  # the number of the training step
RATE = "read learning_rate[:]"

sgd_formula = by_vectors(lambda _: 3, "PopLibs scaled add: 3 bundles per 64-bit vector (commit 7eac0f2)")


def _adam_bundles(item_bytes: int) -> int:
    """The whole update in one pass; square roots and divisions take one float at a time, so halves are converted."""
    elements = 8 // item_bytes
    conversions = 2 * elements if item_bytes == 2 else 0  # before the root and after the quotient, two at a time
    loads_stores_arithmetic = 4 + 3 + 10
    return loads_stores_arithmetic + elements * 5 + elements * 3 + conversions // 2


WITH_MOMENTS = Mix(
    add=4, multiply=6, divide=1, function=1
)  # of a weight: two means, the square root of one, a quotient
adam_formula = by_vectors(
    _adam_bundles,
    "fused map: 4 loads, 3 stores, 10 vector operations, square root 5 and division 3 per element"
    " (PopLibs operation tables)",
    of_halves=", conversions to float and back, two at a time",
    mix=WITH_MOMENTS,
)

SGD = on_elements("Sgd", UPDATE, sgd, sgd_formula(4), "w", flops=2, constants=("rate",), joinable=True, code_bytes=320)
ADAM = on_elements(
    "Adam",
    f"{UPDATE}; update m[:, start:stop]; update v[:, start:stop]; {PROGRESS}",
    adam,
    adam_formula(4),
    "w",
    flops=12,
    constants=("rate", "beta1", "beta2", "epsilon"),
    joinable=True,
    code_bytes=640,
)


# published codelets, without weight decay and with a constant rate
PLAIN = {"sgd": SGD, "adam": ADAM}


@cache
def update_formula(form: Form, scheduled: bool) -> Formula:
    """With weight decay; a rate in memory is loaded once by every context (2 bundles)."""
    source = f"fused map: {form.counted} (PopLibs operation tables, commit 7eac0f2)"
    more = "; the rate is loaded from memory, 2 bundles" if scheduled else ""
    mix = WITH_MOMENTS if form.counts else None
    return by_vectors(form.bundles, source + more, set_up=31 if scheduled else 29, mix=mix)


@lru_cache(maxsize=16)
def update_codelet(kind: str, *, scheduled: bool, decaying: bool = True) -> Codelet:
    """The update of an optimiser; its rate is a constant, or one number in memory if it is scheduled."""
    form = FORMS[kind]
    if kind in PLAIN and not scheduled and not decaying:
        return PLAIN[kind]
    state = (f"update {name}[:, start:stop]" for name in form.state.values())
    others = (*((PROGRESS,) if form.counts else ()), *((RATE,) if scheduled else ()))
    return on_elements(
        f"{kind.title().replace('_', '')}{'AtRate' if scheduled else 'Decaying'}",
        "; ".join((UPDATE, *state, *others)),
        form.at_rate if scheduled else form.compute,
        update_formula(form, scheduled)(4),
        "w",
        flops=form.flops,
        constants=(*(() if scheduled else ("rate",)), *form.constants.values()),
        code_bytes=form.code_bytes,
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

SUM_SQUARES = on_elements(
    "SumSquares",
    "read gradient[:, start:stop]; write partial[part]",
    numerics.sum_squares,
    squares_formula(4),
    "gradient",
    flops=2,
    code_bytes=256,
)
PRUNE_GRADIENT = on_elements(
    "PruneGradient",
    "update gradient[:, start:stop]; read w[:, start:stop]",
    numerics.prune_gradient,
    by_vectors(lambda _: 5, "two loads, compare, select, store per 64 bits")(4),
    "gradient",
    flops=0,
    code_bytes=256,
)
SCALE_ALL = on_elements(
    "ScaleAll",
    "update gradient[:, start:stop]; read factor[:]",
    numerics.scale_all,
    scale_all_formula(4),
    "gradient",
    code_bytes=256,
)

ADD_PARTS = on_loops(
    "AddParts",
    "read partial[:]; write totals[which]",
    numerics.add_parts,
    {"parts": (Mix(load=1, add=1), 1)},
    "a load and an add per part, on one context",
    scalars=0,
    flops={"parts": 1},
    code_bytes=128,
    extents={"parts": Length("partial", 0)},
)

CLIP_FACTOR = on_loops(
    "ClipFactor",
    "read totals[:]; write factor[place]",
    numerics.clip_factor,
    # more: square root, division; add, minimum, store
    {"weights": (Mix(load=1, add=1), 1)},
    "a load and an add per weight, square root 5 and division 3 (PopLibs operation tables)",
    scalars=2,
    more=5 + 3 + 3,
    constants=("largest_norm", "floor"),
    flops={"weights": 1},
    code_bytes=192,
    extents={"weights": Length("totals", 0)},
)
