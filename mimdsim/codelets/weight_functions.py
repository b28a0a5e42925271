"""Codelets of weights that are functions of parameters."""

from __future__ import annotations

from functools import cache

import numpy as np

from mimdsim.codelets.surrogates import DIVIDE, EXPONENTIAL
from mimdsim.codelets.vertex_costs import by_item_bytes, on_elements, vectors_each
from mimdsim.graph import weight_functions
from mimdsim.graph.weight_functions import WeightFunction
from mimdsim.program import Codelet
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
}


def _on_boxes(kind: str, about: WeightFunction, fields: str, compute: object, which: int) -> Codelet:
    of_vector, of_element = COUNTS[about.function][which]
    moved = 3 + which  # loads, the product with the sign, the store
    source = (
        f"instruction count of our own, a guess: {ROW} a row, {moved} and {of_vector} for a vector"
        f"{f', {of_element} for each of its elements' if of_element else ''}, shared by all worker contexts"
    )
    mix = Mix(load=1 + which, multiply=1, store=1, function=bool(of_element), divide=of_element > 2 * EXPONENTIAL)
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

    def compute(acting: np.ndarray, w: np.ndarray, *ends: np.ndarray) -> None:
        for row, last_row, first, last in zip(*ends, strict=True):
            part = slice(row, last_row), slice(first, last)
            acting[part] = weight_functions.weights_of_function(about, w[part], row)

    return _on_boxes("WeightFunction", about, f"write acting{BOX}; read w{BOX}", compute, 0)


@cache
def weight_function_gradient(about: WeightFunction) -> Codelet:
    """The gradients of the parameters of a box from those of what acts in their place."""

    def compute(dw: np.ndarray, gradient: np.ndarray, w: np.ndarray, *ends: np.ndarray) -> None:
        for row, last_row, first, last in zip(*ends, strict=True):
            part = slice(row, last_row), slice(first, last)
            dw[part] = weight_functions.weight_function_gradient(about, gradient[part], w[part], row)

    fields = f"write dw{BOX}; read gradient{BOX}; read w{BOX}"
    return _on_boxes("WeightFunctionGradient", about, fields, compute, 1)
