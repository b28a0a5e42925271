"""Codelets of read-outs and losses."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from mimdsim.codelets.vertex_costs import Formula, by_vectors, cpp_cost, on_elements, on_loops
from mimdsim.numerics.sparse import losses as numerics
from mimdsim.numerics.sparse.recurrence_and_bias import add_columns
from mimdsim.program import Codelet, Length, Size, fields_of, terms_of
from mimdsim.program.loops import Mix

READ_LIST = Mix(load=3, store=1, integer=2, branch=1, loop=1)  # a list with a spike or none
# three passes: load and maximum; exponential, sum; quotient, share, store; and the rest of about 20
OF_A_CLASS = Mix(load=3, add=2, multiply=1, compare=1, divide=1, function=1, store=2, integer=2, loop=3)
COUNT_SPIKES = on_loops(
    "CountSpikes",
    "read ids[:, sample, :]; read counts[:, sample, :]; write totals[sample, :]",
    numerics.count_spikes,
    {"timesteps": READ_LIST, "classes": Mix(store=1, loop=1)},
    "about 8 bundles per timestep: loop over a short list, one read-modify-write per spike",
    scalars=1,
    kind="assumed",
    code_bytes=256,
    extents={"timesteps": Length("ids", 0), "classes": Length("totals", 1)},
)

CROSS_ENTROPY = on_loops(
    "CrossEntropy",
    "read totals[sample, :]; read labels[sample]; write losses[sample]; write gradient[sample, :]",
    numerics.cross_entropy,
    {"classes": OF_A_CLASS},
    "three passes over the classes, exponential 3 and division 3 cycles (PopLibs operation tables)",
    scalars=1,
    more=20,
    kind="assumed",
    constants=("scale",),
    flops={"classes": 6},
    code_bytes=512,
    extents={"classes": Length("totals", 1)},
)

LIST_COUNT_GRADIENT = on_loops(
    "ListCountGradient",
    "read ids[:, sample, :]; read counts[:, sample, :]; read gradient[sample, :]; write g[:, sample, :]",
    numerics.list_count_gradient,
    {"timesteps capacity": Mix(load=2, compare=1, store=1)},
    "about 4 bundles per slot: load id, load gradient, select, store",
    scalars=1,
    kind="assumed",
    code_bytes=256,
    extents={"timesteps": Length("g", 0), "capacity": Length("g", 2)},
)

COUNT_LAST = replace(
    COUNT_SPIKES,
    name="CountLast",
    constants=("first",),
    extents={**COUNT_SPIKES.extents, "timesteps": Length("ids", 0, after="first")},
)
LIST_LAST_GRADIENT = replace(LIST_COUNT_GRADIENT, name="ListLastGradient", constants=("first",))

EMITTED_ROWS = on_loops(
    "EmittedRows",
    (*COUNT_SPIKES.fields[:2], *fields_of("write rows[:, sample, :]")),
    numerics.emitted_rows,
    # timesteps: clear a row, then a load and a store per spike of a short list
    {"timesteps": READ_LIST, "timesteps neurons": Mix(store=1)},
    "about 8 bundles per timestep as for counting spikes, a store per neuron to clear",
    scalars=1,
    kind="assumed",
    code_bytes=256,
    extents={"timesteps": Length("rows", 0), "neurons": Length("rows", 2)},
)

LISTED_OF = replace(
    LIST_COUNT_GRADIENT,
    name="ListedOf",
    fields=fields_of(
        "read rows[:, sample, :]; read ids[:, sample, :]; read counts[:, sample, :]; write g[:, sample, :]"
    ),
    compute=numerics.listed_of,
)

CROSS_ENTROPY_BY_TIMESTEP = replace(
    CROSS_ENTROPY,
    name="CrossEntropyByTimestep",
    fields=fields_of(
        "read totals[:, sample, :]; read labels[sample]; write losses[sample]; write gradient[:, sample, :]"
    ),
    cost=cpp_cost(
        {"timesteps classes": OF_A_CLASS, "timesteps": 20},
        "the cross-entropy of one row, for every timestep",
        unpacked=(1, 4),
        more=20,
        kind="assumed",
    ),
    flops=terms_of({"timesteps classes": 6}),
    extents={"timesteps": Length("totals", 0), "classes": Length("totals", 2)},
)

MEAN_CROSS_ENTROPY_BY_TIMESTEP = replace(  # the weight is in the factor of the gradient, which is computed anyway
    CROSS_ENTROPY_BY_TIMESTEP,
    name="MeanCrossEntropyByTimestep",
    constants=("scale", "weight"),
)

SOFTMAX_SUM = on_loops(
    "SoftmaxSum",
    "read u[:, sample, :]; write scores[sample, :]",
    numerics.softmax_sum,
    {"timesteps classes": OF_A_CLASS, "timesteps": 20},
    "the passes of a cross-entropy over one row, and a sum instead of the gradient, for every timestep",
    scalars=1,
    kind="assumed",
    flops={"timesteps classes": 5},
    code_bytes=384,
    extents={"timesteps": Length("u", 0), "classes": Length("u", 2)},
)

SOFTMAX_SUM_GRADIENT = on_loops(
    "SoftmaxSumGradient",
    "read gradient[sample, :]; read u[:, sample, :]; write du[:, sample, :]",
    numerics.softmax_sum_gradient,
    {"timesteps classes": OF_A_CLASS + Mix(load=2, multiply=2, add=2, loop=2), "timesteps": 20},
    "the softmax of one row; its product with the gradient, and the difference from that, for every timestep",
    scalars=1,
    kind="assumed",
    flops={"timesteps classes": 9},
    code_bytes=512,
    extents={"timesteps": Length("u", 0), "classes": Length("u", 2)},
)

OF_A_SQUARE = Mix(load=1, compare=2, add=1, multiply=2, store=1, loop=1)
SQUARED_ERROR = replace(
    CROSS_ENTROPY,
    name="SquaredError",
    constants=("correct", "incorrect", "divisor"),
    compute=numerics.squared_error,
    cost=cpp_cost(
        {"classes": OF_A_SQUARE},
        "one pass over the classes: load, compare, select, subtract, square and add, scale, store, loop",
        unpacked=(4, 4),
        kind="assumed",
    ),
    flops=terms_of({"classes": 4}),
    code_bytes=320,
)
SQUARED_ERROR_BY_TIMESTEP = replace(
    CROSS_ENTROPY_BY_TIMESTEP,
    name="SquaredErrorByTimestep",
    constants=SQUARED_ERROR.constants,
    compute=numerics.squared_error,
    cost=cpp_cost(
        {"timesteps classes": OF_A_SQUARE, "timesteps": 4},
        "the squared error of one row, for every timestep",
        unpacked=(4, 4),
        kind="assumed",
    ),
    flops=terms_of({"timesteps classes": 4}),
    code_bytes=320,
)


POOLS = {"Pool": numerics.pool_classes, "Spread": numerics.spread_classes}


@lru_cache(maxsize=8)
def pool_codelet(what: str, by_timestep: bool) -> Codelet:
    """'Pool': sums over the neurons of each class; 'Spread': a class's number to each of its neurons."""
    box = ":, sample, :" if by_timestep else "sample, :"
    given, made = ("scores", "pooled") if what == "Pool" else ("gradient", "spread")
    return on_loops(
        f"{what}Classes{'ByTimestep' if by_timestep else ''}",
        f"read {given}[{box}]; write {made}[{box}]",
        POOLS[what],
        {"elements": Mix(load=1, add=1, loop=1) if what == "Pool" else Mix(load=1, store=1, loop=1)},
        "load, add or store, next address per neuron and timestep",
        scalars=1,
        kind="assumed",
        constants=("each",),
        flops={"elements": 1} if what == "Pool" else {},
        code_bytes=192,
        extents={"elements": Size(given if what == "Pool" else made)},
    )


def _stream_formula(bundles: int, why: str) -> Formula:
    """A loop over `elements` of a stack, `bundles` per 64 bits, spread over the contexts."""
    launch = "launch 11 and 29 to set up a context as of a PopLibs element-wise vertex (commit 7eac0f2)"
    return by_vectors(lambda _: bundles, f"{why} per 64 bits; {launch}")


ADD_FORMULA = _stream_formula(2, "load and add")
STORE_FORMULA = _stream_formula(2, "store and next address")
CHOOSE_FORMULA = _stream_formula(5, "load, compare, two selects, store")
SUM_IN_PLACE_FORMULA = _stream_formula(3, "a scaled add: two loads, add, store in 3 bundles")
READ_OUT = "read u[:, :, start:stop]; write scores[:, start:stop]"
SPREAD = "read gradient[:, start:stop]; write du[:, :, start:stop]"


def _columns(name: str, signature: str, compute: Any, formula: Formula, elements: str, *constants: str) -> Codelet:
    """One vertex per tile for the columns of its neurons, over all `elements` of a field."""
    return on_elements(name, signature, compute, formula(4), elements, constants=constants, code_bytes=256)


ADD_TIMESTEPS = _columns("AddTimesteps", READ_OUT, numerics.add_timesteps, ADD_FORMULA, "u", "factor")
TAKE_LAST = _columns("TakeLast", READ_OUT, numerics.take_last, ADD_FORMULA, "scores")
HIGHEST = _columns("Highest", READ_OUT, numerics.highest, ADD_FORMULA, "u")
SPREAD_TIMESTEPS = _columns("SpreadTimesteps", SPREAD, numerics.spread_timesteps, STORE_FORMULA, "du", "factor")
GIVE_LAST = _columns("GiveLast", SPREAD, numerics.give_last, STORE_FORMULA, "du")
GIVE_HIGHEST = _columns(
    "GiveHighest",
    "read gradient[:, start:stop]; read u[:, :, start:stop]; write du[:, :, start:stop]",
    numerics.give_highest,
    CHOOSE_FORMULA,
    "du",
)
ADD_ADJOINTS = _columns(
    "AddAdjoints",
    "update adjoint[:, start:stop]; read now[:, start:stop]",
    add_columns,
    SUM_IN_PLACE_FORMULA,
    "adjoint",
)

TAKE_LATE = _columns(
    "TakeLate",
    "read every[:, :, start:stop]; write late[:, :, start:stop]",
    numerics.take_late,
    STORE_FORMULA,
    "late",
    "first",
)
SPREAD_LATE = _columns("SpreadLate", SPREAD, numerics.spread_late, STORE_FORMULA, "du", "first")
GIVE_LATE = _columns(
    "GiveLate",
    "read gradient[:, :, start:stop]; write every[:, :, start:stop]",
    numerics.give_late,
    STORE_FORMULA,
    "every",
    "first",
)

COUNT_LISTED = on_loops(
    "CountListed",
    "read counts[:, sample, :]; write spikes[sample]",
    numerics.count_listed,
    {"timesteps": Mix(load=1, integer=1, loop=1)},
    "load, add, next address per timestep",
    scalars=1,
    kind="assumed",
    code_bytes=128,
    extents={"timesteps": Length("counts", 0)},
)

FIRING_PENALTY = on_loops(
    "FiringPenalty",
    "read spikes[:]; write penalty[place]; write even[place]",
    numerics.firing_penalty,
    # more: a division; subtract, square, scale, store twice
    {"samples": Mix(load=1, add=1)},
    "load and add per sample, then one division (3) and some eight operations",
    scalars=3,
    more=3 + 8,
    kind="assumed",
    constants=("target", "strength", "places"),
    flops={"samples": 1},
    code_bytes=192,
    extents={"samples": Length("spikes", 0)},
)

ADD_EVEN = on_elements(
    "AddEven",
    "read g[sample, slot_start:slot_stop]; read even[:]; write total[sample, slot_start:slot_stop]",
    numerics.add_even,
    SUM_IN_PLACE_FORMULA(4),
    "total",
    code_bytes=192,
)
