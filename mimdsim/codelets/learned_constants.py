"""Codelets of constants that neurons learn: the coefficients that follow from them, and their gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.codelets.elementwise import REDUCE_SOURCE, reduce_formula
from mimdsim.codelets.linear_neurons import OWN_COUNT, TOLD, compute_in_order
from mimdsim.codelets.linear_terms import CLOSE_LOOP, SELECT
from mimdsim.codelets.recurrence_and_bias import REPLICA
from mimdsim.codelets.vertex_costs import by_runs, cpp_cost, on_loops
from mimdsim.graph.learned_constants import (
    Coefficients,
    ConstantGradient,
    SharedRow,
    coefficients_of,
    grown,
    link_slope,
)
from mimdsim.graph.linear_neurons import RowGradient
from mimdsim.numerics.sparse import neurons as numerics
from mimdsim.program import Codelet, Length, fields_of, terms_of
from mimdsim.program.instruction_mix import Mix

WHENS = {"": numerics.ALWAYS, "after": numerics.AFTER, "quiet": numerics.QUIET}
# of one constant: two comparisons that choose; or exponential, addition, division
LINKS = {"": Mix(), "clamp": SELECT * 2, "sigmoid": Mix(function=1, add=2, divide=1)}
GROWN = Mix(load=1, multiply=1, add=1)  # with a coefficient
COUNTED = f"{OWN_COUNT}; of a constant, 4 to clamp it, or an exponential (3), two additions and a division (3)"
PIECE = ("piece", "row_start", "row_stop", "start", "stop")


def coefficients(about: Coefficients | SharedRow) -> Codelet:
    """Every coefficient that follows from constants that are learned, for the neurons of the vertex."""
    learned = about.learned
    shared = [len(each.value) == 1 for each in learned]
    boxes = (":" if whole else "start:stop" for whole in shared)
    fields = ["write own[:, start:stop]", *(f"read constant{at}[:, {box}]" for at, box in enumerate(boxes))]

    def compute(own: np.ndarray, *trained: np.ndarray) -> None:
        for row, made in enumerate(coefficients_of(about, own.shape[1], trained)):
            own[row] = made[0]

    slopes = sum(len(ConstantGradient(coefficients=about, constant=index).rows) for index in range(len(learned)))
    links = sum((LINKS[each.link] for each in learned), Mix(load=len(learned)))
    each = links + Mix(multiply=slopes, add=slopes, store=about.count) + CLOSE_LOOP
    return on_loops(
        f"Coefficients({about.model})",
        "; ".join(fields),
        by_runs(compute, [True, *(not one for one in shared)]),
        {"neurons": each},
        COUNTED,
        scalars=2,
        flops={"neurons": 2 * slopes},
        code_bytes=256 + 16 * int(each.bundles),
        extents={"neurons": Length("own", 1)},
    )


def _slope(about: ConstantGradient) -> Mix:
    return LINKS[about.learned.link] + Mix(load=1, multiply=1, store=1)


def constant_gradient(about: ConstantGradient) -> Codelet:
    """The gradient of a constant of every neuron, from those of the coefficients that grow with it."""
    rows = [f"row{row}" for row in about.rows]
    fields = ["write gradient[:, start:stop]", "read constant[:, start:stop]"]
    fields += [f"read {row}[:, start:stop]" for row in rows]

    def compute(gradient: np.ndarray, constant: np.ndarray, *given: np.ndarray) -> None:
        gradient[:] = link_slope(about.learned, constant) * grown(about, given)

    each = _slope(about) + GROWN * len(rows) + CLOSE_LOOP
    return on_loops(
        "ConstantGradient",
        "; ".join(fields),
        by_runs(compute, [True] * len(fields)),
        {"neurons": each},
        COUNTED,
        scalars=2,
        flops={"neurons": 2 * len(rows)},
        code_bytes=256,
        extents={"neurons": Length("gradient", 1)},
    )


def shared_constant_part(about: ConstantGradient) -> Codelet:
    """What the neurons of a vertex give to the gradient of a constant that the layer shares."""
    rows = [f"row{row}" for row in about.rows]
    fields = [*(f"read {row}[:, start:stop]" for row in rows), "write partial[part]"]

    def compute(*given: Any) -> None:
        *arrays, partial, start, stop, part = given
        for first, last, at in zip(start, stop, part, strict=True):
            partial[at] = grown(about, [array[:, first:last] for array in arrays]).sum()

    return on_loops(
        "SharedConstantPart",
        "; ".join(fields),
        compute,
        {"neurons": GROWN * len(rows) + CLOSE_LOOP},
        OWN_COUNT,
        scalars=2,
        flops={"neurons": 2 * len(rows)},
        code_bytes=256,
        extents={"neurons": Length(rows[0], 1)},
    )


def shared_constant_gradient(about: ConstantGradient) -> Codelet:
    """The gradient of a constant that the layer shares, from what its tiles have."""

    def compute(gradient: np.ndarray, constant: np.ndarray, partial: np.ndarray) -> None:
        total = gradient.dtype.type(0)
        for part in partial:
            total += part
        gradient[:] = link_slope(about.learned, constant) * total

    return on_loops(
        "SharedConstantGradient",
        "write gradient[:, :]; read constant[:, :]; read partial[:]",
        compute,
        {"parts": (Mix(load=1, add=1), 1)},
        COUNTED,
        scalars=0,
        more=_slope(about).bundles,
        flops={"parts": 1},
        code_bytes=192,
        extents={"parts": Length("partial", 0)},
    )


def _row_of_neurons(about: RowGradient, target: str, samples: str, kernel: Any, **more: Any) -> Codelet:
    boxes = dict.fromkeys(("du", "fired", "current"), f"{samples}, start:stop")
    boxes |= dict.fromkeys(("dx", "x"), f":, {samples}, start:stop")
    order = ("dx", "du", "fired", "x", "current")  # of the kernel's arrays
    reads = [f"read {name}[{boxes[name]}]" for name in order if name in about.reads]
    fields = fields_of("; ".join((target, *reads)))
    first = "dx" if "dx" in about.reads else "du"
    axis = 1 if first == "dx" else 0
    return Codelet(
        fields=fields,
        constants=("places", "threshold"),
        compute=compute_in_order(kernel, (fields[0].name, *order), fields),
        flops=terms_of({"samples neurons": 2 * len(about.places)}),
        code_bytes=320 + 16 * len(about.places),
        extents={"samples": Length(first, axis), "neurons": Length(first, axis + 1)},
        **more,
    )


def coefficient_gradient(about: RowGradient) -> Codelet:
    """The gradient of a learned coefficient, in a replica of its own for every worker context."""
    told = sum(bool(place.when) for place in about.places)
    # adjoint and operand loaded, multiplied, added; who fired loaded, compared, chosen by
    each = Mix(load=2, multiply=1, add=1) * len(about.places) + (TOLD + SELECT) * told + CLOSE_LOOP
    return _row_of_neurons(
        about,
        "update dc[replica, :, start:stop]",
        "sample_start:sample_stop",
        numerics.replica_gradient,
        name="CoefficientGradient",
        columns=REPLICA,
        joinable=True,
        cost=cpp_cost({"samples neurons": each, "samples": CLOSE_LOOP}, OWN_COUNT, unpacked=(5, 1 + len(about.reads))),
    )


def coefficient_pieces(about: RowGradient) -> Codelet:
    """The gradient of a learned coefficient, summed over the samples of a box: calls of the element-wise library."""
    told = sum(bool(place.when) for place in about.places)
    calls = ("times",) * (len(about.places) + told) + ("above scalar",) * min(told, 1)
    calls += ("plus in place",) * (len(about.places) - 1)
    source = f"element-wise products and {REDUCE_SOURCE}, a call each"
    library = reduce_formula("neurons", "samples", source, *calls)

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        elements = extents["samples"] * extents["neurons"]
        return library.cycles({**extents, "elements": elements}, worker_contexts, vector_bytes)

    return _row_of_neurons(
        about,
        "write pieces[piece, start:stop]",
        "row_start:row_stop",
        numerics.piece_gradient,
        name="CoefficientPieces",
        columns=PIECE,
        cost=replace(library, cycles=cycles),
    )
