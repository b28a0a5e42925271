"""Arithmetic of cells on boxes, calls of the element-wise library; where a result lies in one of its operands, this is
updated in place."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.dense import BOX, copy_formula, copying
from mimdsim.codelets.elementwise import CALL_BYTES, calls_formula
from mimdsim.codelets.vertex_costs import on_elements
from mimdsim.costs.library.network import nonlinearity_gradient_1d_cycles
from mimdsim.graph.elementwise import FUNCTIONS
from mimdsim.numerics.dense import elementwise as dense
from mimdsim.numerics.dense import elementwise as numerics
from mimdsim.program import Codelet, TileFormula

CALLS = {name: name for name in ("sigmoid", "tanh", "relu")}
CALLS |= {"exponential": "exponent", "sqrt": "root", "log": "logarithm", "reciprocal": "inverse"}


class InPlace:
    """`compute` whose result lies in its operand number `place`; arrays are those of the operands alone."""

    def __init__(self, compute: Any, operands: int, place: int):
        self.compute, self.operands, self.place = compute, operands, place

    def __call__(self, *given: Any) -> None:
        updated, *others = given[: self.operands]
        others.insert(self.place, updated)
        self.compute(*others, updated, *given[self.operands :])


def _codelet(
    name: str,
    operands: tuple[str, ...],
    compute: Any,
    cost: TileFormula,
    in_place: int | None,
    *,
    flops: int,
    constants: tuple[str, ...] = (),
) -> Codelet:
    """The operands of `compute`, then its result, or the operand that holds this."""
    if in_place is None:
        fields = [*(f"read {each}" for each in operands), "write target"]
    else:
        fields = [f"update {operands[in_place]}", *(f"read {each}" for each in operands if each != operands[in_place])]
        name, compute = f"{name}InPlace{in_place or ''}", InPlace(compute, len(operands), in_place)
    return on_elements(
        name,
        "; ".join(f"{each}[{BOX}]" for each in fields),
        compute,
        cost,
        "target" if in_place is None else operands[in_place],
        flops=flops,
        constants=constants,
        code_bytes=CALL_BYTES,
    )


@lru_cache(maxsize=32)
def function(name: str, in_place: int | None = None) -> Codelet:
    """target = a function of source."""
    cost = calls_formula(CALLS[name])
    compute, flops = numerics.function_boxes, FUNCTIONS[name].flops
    return _codelet(f"Function({name})", ("source",), compute, cost, in_place, flops=flops, constants=("kind",))


def _gradient_formula(name: str) -> TileFormula:
    if name == "exponential":
        return calls_formula("times")
    if name == "sqrt":
        return calls_formula("over", "times scalar")
    if name == "log":
        return calls_formula("times scalar", "exponent", "times")
    if name == "reciprocal":
        return calls_formula("square", "times", "times scalar")

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        how: dict[str, Any] = {"worker_contexts": worker_contexts, "vector_bytes": vector_bytes}
        return nonlinearity_gradient_1d_cycles(np.asarray(extents["elements"]), op=name.upper(), **how)

    source = "PopLibs popnn NonLinearityGrad1D cycle estimator (commit 7eac0f2)"
    return TileFormula(cycles=cycles, kind="published", source=source)


@lru_cache(maxsize=32)
def function_gradient(name: str, in_place: int | None = None) -> Codelet:
    """target = g times the derivative of a function where it had this value."""
    operands, compute, cost = ("g", "value"), numerics.function_gradient_boxes, _gradient_formula(name)
    return _codelet(f"FunctionGradient({name})", operands, compute, cost, in_place, flops=3, constants=("kind",))


BINARY = {
    "add": ("Sum", dense.sum_boxes, "plus"),
    "subtract": ("Difference", numerics.subtract_boxes, "minus"),
    "times": ("Product", dense.multiply_boxes, "times"),
}


@lru_cache(maxsize=16)
def binary(kind: str, in_place: int | None = None) -> Codelet:
    """target = one + other, one - other or one * other."""
    name, compute, call = BINARY[kind]
    if kind == "add" and in_place is not None:
        call = "plus in place"
    return _codelet(name, ("one", "other"), compute, calls_formula(call), in_place, flops=1)


@lru_cache(maxsize=16)
def affine(scales: bool, shifts: bool, in_place: int | None = None) -> Codelet:
    """target = scale * source + shift; what is one or zero is left out, and a copy is all that is left then."""
    calls = (*(("times scalar",) if scales else ()), *(("plus scalar",) if shifts else ()))
    cost = calls_formula(*calls) if calls else copy_formula(4)
    name, compute = f"Affine({', '.join(calls) or 'copy'})", numerics.affine_boxes
    return _codelet(name, ("source",), compute, cost, in_place, flops=len(calls), constants=("scale", "shift"))


ENDS = ("row_start", "row_stop", "start", "stop")
SHIFT_COLUMNS = copying(
    "ShiftColumns",
    f"read source[row_start:row_stop, source_start:source_stop]; write target[{BOX}]",
    numerics.shifted_columns,
    columns=("source_start", "source_stop", *ENDS),
)
REPEAT_ROW = copying("RepeatRow", f"read row[:, start:stop]; write target[{BOX}]", numerics.repeat_row, columns=ENDS)
