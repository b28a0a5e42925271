"""Codelets of what is made of parameters before the timesteps: weights that are functions, weights at delays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mimdsim.codelets.surrogates import DIVIDE, EXPONENTIAL
from mimdsim.codelets.vertex_costs import by_item_bytes, by_runs, by_vectors, on_elements, on_loops, vectors_each
from mimdsim.graph import delays, weight_functions
from mimdsim.graph.weight_functions import WeightFunction
from mimdsim.numerics import training as numerics
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.program import Codelet, Length
from mimdsim.program.instruction_mix import Mix

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
            acting[part] = weight_functions.weights_of_function(
                about, w[part], row, *(float(one[0]) for one in largest)
            )

    fields = f"write acting{BOX}; read w{BOX}{'; read largest[:]' if scaled(about) else ''}"
    return _on_boxes("WeightFunction", about, fields, compute, 0)


def scaled(about: WeightFunction) -> bool:
    """Whether all weights share a scale."""
    return about.about.format is not None and not about.about.format.fraction


LARGEST = on_elements(
    "LargestWeight",
    "read w[:, start:stop]; write partial[part]",
    numerics.largest,
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
    numerics.largest_of,
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
            dw[part] = weight_functions.weight_function_gradient(about, gradient[part], w[part], row)

    fields = f"write dw{BOX}; read gradient{BOX}; read w{BOX}"
    return _on_boxes("WeightFunctionGradient", about, fields, compute, 1)


# ---- delays that are learned

DELAYED = ("w", "delay", "width")
READ = "read w[:, start:stop]; read delay[:, start:stop]; read width[:]"
# of an age: distance, square, scale, less the largest, exponential, sum, share, product, store
EACH = 8 + EXPONENTIAL
BESIDE = 2 + 6 + DIVIDE  # of a synapse: two loads, the largest, a quotient
COUNTED = (
    f"instruction count of our own, a guess: {EACH} for an age, with an exponential ({EXPONENTIAL}), and {BESIDE} for "
    "a synapse, one at a time, shared by all worker contexts"
)


@cache
def delayed_weights(ages: int, epsilon: float = 0.0) -> Codelet:
    """The weights of the vertex at every age."""
    matrices = "; ".join(f"write at{age}[:, start:stop]" for age in range(ages))

    def compute(*given: np.ndarray) -> None:
        for target, made in zip(given, delays.delayed_weights(ages, epsilon, *given[ages:]), strict=False):
            target[:] = made

    return _on_synapses("DelayedWeights", f"{matrices}; {READ}", compute, (ages, epsilon), EACH * ages, delays.FLOPS)


@cache
def delayed_weights_gradient(ages: int, epsilon: float = 0.0) -> Codelet:
    """The gradients of weights and delays of the vertex, whose shares are worked out anew."""
    matrices = "; ".join(f"read at{age}[:, start:stop]" for age in range(ages))
    fields = f"write dw[:, start:stop]; write ddelay[:, start:stop]; {READ}; {matrices}"

    def compute(dw: np.ndarray, ddelay: np.ndarray, *given: np.ndarray) -> None:
        dw[:], ddelay[:] = delays.delayed_weights_gradient(ages, epsilon, *given)

    # of an age more: a load, the share of the gradient, and two sums of products
    return _on_synapses("DelayGradient", fields, compute, (ages, epsilon), (EACH + 5) * ages, delays.GRADIENT_FLOPS)


def _on_synapses(
    kind: str, fields: str, compute: Callable[..., None], of: tuple[int, float], bundles: int, flops: int
) -> Codelet:
    ages, epsilon = of
    name = f"{kind}({ages}, {epsilon:g})" if epsilon else f"{kind}({ages})"
    cut = ["start" in field for field in fields.split(";")]

    mix = Mix(add=4, multiply=4, function=1) * ages + Mix(divide=1)

    @by_item_bytes("assumed", COUNTED, mix=mix)
    def formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
        each = -(-np.asarray(extents["elements"]) // contexts)
        return np.ceil(11 + contexts * (29 + (BESIDE + bundles) * each)).astype(np.int64)

    return on_elements(name, fields, by_runs(compute, cut), formula(4), "w", flops=flops * ages, code_bytes=512)
