"""Codelets of what is made of parameters before the timesteps: weights that are functions, weights at
delays, coefficients of neurons with learned constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mimdsim.codelets.elementwise import REDUCE_SOURCE, reduce_formula
from mimdsim.codelets.linear_neurons import OWN_COUNT, TOLD, compute_in_order
from mimdsim.codelets.linear_terms import CLOSE_LOOP, SELECT
from mimdsim.codelets.recurrence_and_bias import REPLICA
from mimdsim.codelets.surrogates import DIVIDE, EXPONENTIAL
from mimdsim.codelets.vertex_costs import (
    by_item_bytes,
    by_runs,
    by_vectors,
    cpp_cost,
    on_elements,
    on_loops,
    vectors_each,
)
from mimdsim.graph import derived
from mimdsim.graph.derived import WeightFunction
from mimdsim.graph.learned_constants import (
    Coefficients,
    ConstantGradient,
    SharedRow,
    coefficients_of,
    grown,
    link_slope,
)
from mimdsim.graph.linear_neurons import RowGradient
from mimdsim.numerics import optimisers
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.numerics.sparse import neurons as numerics
from mimdsim.program import Codelet, Length, fields_of, terms_of
from mimdsim.program.loops import Mix

LOGARITHM = EXPONENTIAL  # f32log, as long as an exponential; assumed
ROW = 4  # of every row: load its sign, pointers of both matrices, loop
# bundles of a vector beside its loads, the sign and its store; of an element; forward and backward
COUNTS = {
    "identity": ((0, 0), (0, 0)),
    "abs": ((1, 0), (3, 0)),  # clear the sign; compare, select, multiply
    "relu": ((1, 0), (2, 0)),  # maximum; compare, select
    "exp": ((0, EXPONENTIAL), (1, EXPONENTIAL)),
    "softplus": ((3, EXPONENTIAL + LOGARITHM), (3, EXPONENTIAL + DIVIDE)),  # absolute, add, maximum; and the product
    "square": ((1, 0), (2, 0)),  # the product; twice the product
    "sigmoid": ((1, EXPONENTIAL + DIVIDE), (3, EXPONENTIAL + DIVIDE)),  # 1 more; the products with what is left to 1
    "tanh": ((0, EXPONENTIAL), (2, EXPONENTIAL)),  # an instruction of its own; its square, and what is left to 1
    **{name: ((each.narrowed, 0), (0, 0)) for name, each in FORMATS.items()},
}


def _on_boxes(kind: str, about: WeightFunction, fields: str, compute: object, which: int) -> Codelet:
    of_vector, of_element = COUNTS[about.function][which]
    moved = 3 + which  # loads, the product with the sign, the store
    source = (
        f"instruction count of our own, a guess: {ROW} a row, {moved} and {of_vector} for a vector"
        f"{f', {of_element} for each of its elements' if of_element else ''}, shared by all worker contexts"
    )
    packing = of_vector if about.format else 0
    mix = Mix(load=1 + which, multiply=1, store=1, function=bool(of_element), divide=of_element > 2 * EXPONENTIAL)
    mix += Mix(integer=packing)
    rows = "acting" if which == 0 else "dw"

    @by_item_bytes("assumed", source, mix=mix)
    def formula(extents: dict[str, object], item_bytes: int, contexts: int, vector_bytes: int) -> object:
        vectors = vectors_each(extents["elements"], item_bytes, contexts, vector_bytes)
        each = moved + of_vector + of_element * (vector_bytes // item_bytes)
        return np.ceil(11 + contexts * (29 + ROW + each * vectors)).astype(np.int64)

    return on_elements(
        f"{kind}({about})", fields, compute, formula(4), rows, flops=about.about.flops[which],
        code_bytes=256 + 4 * len(about.signs),
    )  # fmt: skip


BOX = "[row_start:row_stop, start:stop]"


@cache
def weight_function(about: WeightFunction) -> Codelet:
    """What acts in place of the weights of a box; the sign of every row lies with the code."""

    def compute(acting: np.ndarray, w: np.ndarray, *more: np.ndarray) -> None:
        largest, ends = more[:-4], more[-4:]
        for row, last_row, first, last in zip(*ends, strict=True):
            part = slice(row, last_row), slice(first, last)
            acting[part] = derived.weights_of_function(about, w[part], row, *(float(one[0]) for one in largest))

    fields = f"write acting{BOX}; read w{BOX}{'; read largest[:]' if scaled(about) else ''}"
    return _on_boxes("WeightFunction", about, fields, compute, 0)


def scaled(about: WeightFunction) -> bool:
    """Whether all weights share a scale."""
    return about.about.format is not None and not about.about.format.fraction


LARGEST = on_elements(
    "LargestWeight",
    "read w[:, start:stop]; write partial[part]",
    optimisers.largest,
    by_vectors(
        lambda item_bytes: 3 if item_bytes == 4 else 4, "a load, two instructions per 64 bits, halves converted"
    )(4),
    "w",
    flops=1,
    code_bytes=256,
)
LARGEST_OF = on_loops(
    "LargestOf",
    "read partial[:]; write largest[which]",
    optimisers.largest_of,
    {"parts": (Mix(load=1, compare=1), 1)},
    "a load and a maximum per part, on one context",
    scalars=0,
    flops={"parts": 1},
    code_bytes=128,
    extents={"parts": Length("partial", 0)},
)


@cache
def weight_function_gradient(about: WeightFunction) -> Codelet:
    """The gradients of the parameters of a box from those of what acts in their place."""

    def compute(dw: np.ndarray, gradient: np.ndarray, w: np.ndarray, *ends: np.ndarray) -> None:
        for row, last_row, first, last in zip(*ends, strict=True):
            part = slice(row, last_row), slice(first, last)
            dw[part] = derived.weight_function_gradient(about, gradient[part], w[part], row)

    fields = f"write dw{BOX}; read gradient{BOX}; read w{BOX}"
    return _on_boxes("WeightFunctionGradient", about, fields, compute, 1)


# ---- delays that are learned

DELAYED = ("w", "delay", "width")
READ = "read w[:, start:stop]; read delay[:, start:stop]; read width[:]"
# of an age: distance, square, scale, less the largest, exponential, sum, share, product, store
EACH = 8 + EXPONENTIAL
BESIDE = 2 + 6 + DIVIDE  # of a synapse: two loads, the largest, a quotient
COUNTED_DELAYS = (
    f"instruction count of our own, a guess: {EACH} for an age, with an exponential ({EXPONENTIAL}), and {BESIDE} for "
    "a synapse, one at a time, shared by all worker contexts"
)


@cache
def delayed_weights(ages: int, epsilon: float = 0.0) -> Codelet:
    """The weights of the vertex at every age."""
    matrices = "; ".join(f"write at{age}[:, start:stop]" for age in range(ages))

    def compute(*given: np.ndarray) -> None:
        for target, made in zip(given, derived.delayed_weights(ages, epsilon, *given[ages:]), strict=False):
            target[:] = made

    return _on_synapses(
        "DelayedWeights", f"{matrices}; {READ}", compute, (ages, epsilon), EACH * ages, derived.DELAY_FLOPS
    )


@cache
def delayed_weights_gradient(ages: int, epsilon: float = 0.0) -> Codelet:
    """The gradients of weights and delays of the vertex, whose shares are worked out anew."""
    matrices = "; ".join(f"read at{age}[:, start:stop]" for age in range(ages))
    fields = f"write dw[:, start:stop]; write ddelay[:, start:stop]; {READ}; {matrices}"

    def compute(dw: np.ndarray, ddelay: np.ndarray, *given: np.ndarray) -> None:
        dw[:], ddelay[:] = derived.delayed_weights_gradient(ages, epsilon, *given)

    # of an age more: a load, the share of the gradient, and two sums of products
    return _on_synapses(
        "DelayGradient", fields, compute, (ages, epsilon), (EACH + 5) * ages, derived.DELAY_GRADIENT_FLOPS
    )


def _on_synapses(
    kind: str, fields: str, compute: Callable[..., None], of: tuple[int, float], bundles: int, flops: int
) -> Codelet:
    ages, epsilon = of
    name = f"{kind}({ages}, {epsilon:g})" if epsilon else f"{kind}({ages})"
    cut = ["start" in field for field in fields.split(";")]

    mix = Mix(add=4, multiply=4, function=1) * ages + Mix(divide=1)

    @by_item_bytes("assumed", COUNTED_DELAYS, mix=mix)
    def formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
        each = -(-np.asarray(extents["elements"]) // contexts)
        return np.ceil(11 + contexts * (29 + (BESIDE + bundles) * each)).astype(np.int64)

    return on_elements(name, fields, by_runs(compute, cut), formula(4), "w", flops=flops * ages, code_bytes=512)


# ---- constants that neurons learn: the coefficients that follow from them, and their gradients


WHENS = {"": numerics.ALWAYS, "after": numerics.AFTER, "quiet": numerics.QUIET}
# of one constant: two comparisons that choose; or exponential, addition, division
LINKS = {"": Mix(), "clamp": SELECT * 2, "sigmoid": Mix(function=1, add=2, divide=1)}
GROWN = Mix(load=1, multiply=1, add=1)  # with a coefficient
COUNTED_CONSTANTS = (
    f"{OWN_COUNT}; of a constant, 4 to clamp it, or an exponential (3), two additions and a division (3)"
)
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
        COUNTED_CONSTANTS,
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
        COUNTED_CONSTANTS,
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
        COUNTED_CONSTANTS,
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
