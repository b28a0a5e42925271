"""Library vertices that work on the parts of one variable: fill, copy, cast, element-wise operations, sort of rows.

Each is one vertex for every part of what it writes, on the tile that holds it, shared by the tile's contexts; what it
reads from other tiles is brought by the superstep's exchange. Operations have the vendor's names in lower case; the
costs are the vendor's formulas (costs/library).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.codelets.dense import copy_formula, fill_formula
from mimdsim.codelets.vertex_costs import on_elements
from mimdsim.costs.library import elementwise as library
from mimdsim.costs.library import operation_costs as tables
from mimdsim.costs.library.arithmetic import element_bytes
from mimdsim.costs.library.elementwise import cast_1d_cycles
from mimdsim.costs.library.network import heap_sort_cycles
from mimdsim.kernels.builder import Builder, Operand, at_users_line
from mimdsim.kernels.parts import POPOPS, box_of, format_of, in_number_format, parts_of, published
from mimdsim.program import Codelet, Length, TileFormula, Variable

CALL_BYTES, MOVE_BYTES = 320, 192  # code of a library codelet (assumed, as of slices, fills and copies)
Function = Callable[..., Any]


def _divide_towards_zero(one: Any, other: Any) -> Any:
    whole = np.asarray(one).dtype.kind in "iu"
    return np.trunc(np.divide(one, other, dtype=np.float64)) if whole else np.divide(one, other)


BINARY: dict[str, Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide_towards_zero,
    "remainder": np.fmod,
    "power": np.power,
    "atan2": np.arctan2,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater_than": np.greater,
    "greater_than_equal": np.greater_equal,
    "less_than": np.less,
    "less_than_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift,
}
UNARY: dict[str, Function] = {
    "absolute": np.abs,
    "asin": np.arcsin,
    "bitwise_not": np.bitwise_not,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cos": np.cos,
    "exponent": np.exp,
    "exponent_minus_one": np.expm1,
    "floor": np.floor,
    "inverse": lambda x: 1 / x,
    "is_finite": np.isfinite,
    "is_inf": np.isinf,
    "is_nan": np.isnan,
    "logarithm": np.log,
    "logarithm_one_plus": np.log1p,
    "logical_not": np.logical_not,
    "negate": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "signum": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}
TRUTHS = (*(name.lower() for name in tables.COMPARISONS), "logical_and", "logical_or", "logical_not")
TRUTHS = (*TRUTHS, "is_finite", "is_inf", "is_nan")  # these leave booleans


@at_users_line()
def fill(k: Builder, x: Operand, value: float) -> None:
    """Every element of x <- value."""
    target = k.resolve(x)
    number = in_number_format(f"fill: '{target.name}'", value, target.dtype)[()]
    _on_parts(k, f"fill {target.name}", _fill(format_of(target), len(target.shape)), target, {}, {"value": number})


@at_users_line()
def copy(k: Builder, source: Operand, *, to: Operand) -> None:
    """to <- source, of the same shape and format, with vertices on the tiles of `to`."""
    source, to = k.resolve(source), k.resolve(to)
    _same_shape("copy", source, to)
    _same_format("copy", source, to)
    _on_parts(k, f"copy {to.name}", copy_codelet(format_of(to), len(to.shape)), to, {"source": source})


@at_users_line()
def broadcast(k: Builder, x: Operand, *, to: Operand) -> None:
    """A copy of x on every tile of `to`, declared with mapping=k.everywhere or another replicated one: an exchange
    that sends every element once."""
    source, target = k.resolve(x), k.resolve(to)
    _same_shape("broadcast", source, target)
    _same_format("broadcast", source, target)
    if not target.mapping.is_replicated:
        raise MappingError(
            f"broadcast: '{target.name}' is spread over tiles; declare it with mapping=k.everywhere (a copy on every "
            "tile), or use copy"
        )
    k.move(f"broadcast {target.name}", source, target)


@at_users_line()
def cast(k: Builder, source: Operand, *, to: Operand) -> None:
    """to <- source in the number format of `to`, rounded to nearest (floats to integers: truncated)."""
    source, to = k.resolve(source), k.resolve(to)
    _same_shape("cast", source, to)
    codelet = _cast(format_of(source), format_of(to), len(to.shape))
    _on_parts(k, f"cast {to.name}", codelet, to, {"source": source})


@at_users_line()
def elementwise(k: Builder, op: str, x: Operand, other: Operand | float | None = None, *, out: Operand) -> None:
    """out <- x op other (a variable of the same shape or a number), or op(x); in place if `out` is x.

    op: an operation of the vendor's tables in lower case, such as "add", "divide", "greater_than", "exponent".
    """
    one, out = k.resolve(x), k.resolve(out)
    other = k.resolve(other) if isinstance(other, Operand) else other
    if op not in (UNARY if other is None else BINARY):
        wrong, right = (BINARY, UNARY) if other is None else (UNARY, BINARY)
        if op in wrong:
            raise MappingError(f"elementwise: '{op}' takes {'two operands' if other is None else 'one operand'}")
        raise MappingError(f"elementwise: no operation '{op}'{suggest(op, right)}")
    _same_shape(op, one, out)
    wanted = "bool" if op in TRUTHS else one.dtype
    if out.dtype != wanted:
        raise MappingError(f"elementwise: '{op}' of {one.dtype} gives {wanted}, '{out.name}' is {out.dtype}")
    form = "unary" if other is None else "binary" if isinstance(other, Variable) else "scalar"
    operands: dict[str, Variable] = {} if out is one else {"one": one}
    constants: dict[str, object] = {}
    if isinstance(other, Variable):
        _same_shape(op, other, out)
        _same_format(op, one, other)
        if other is out:
            raise MappingError(f"elementwise: '{op}' in place leaves its value in the first operand, '{one.name}'")
        operands["other"] = other
    elif other is not None:
        constants["scalar"] = in_number_format(f"elementwise: '{one.name}'", other, one.dtype)[()]
    codelet = _operation(op, form, format_of(one), out is one, len(out.shape))
    _on_parts(k, f"{op} {out.name}", codelet, out, operands, constants)


@at_users_line()
def sort(k: Builder, x: Operand) -> None:
    """Sort every row of x along its last axis in place; each row is entirely on one tile and sorted by one context."""
    keys = k.resolve(x)
    if (parts_of(keys).lengths[:, -1] != keys.shape[-1]).any():
        raise MappingError(
            f"sort: rows of '{keys.name}' are split between tiles; the time of the library's sort of such rows "
            "depends on the data, which is not modelled: spread the variable along an axis other than its last"
        )
    _on_parts(k, f"sort {keys.name}", _sort(len(keys.shape)), keys, {})


def _on_parts(
    k: Builder,
    step: str,
    codelet: Codelet,
    out: Variable,
    operands: dict[str, Variable],
    constants: dict[str, object] | None = None,
) -> None:
    """One vertex for every part of `out`, on the same boxes of all operands."""
    parts = parts_of(out)
    k.place(step, codelet, parts.tiles, {"out": out, **operands}, parts.columns(), constants=constants)


def _same_shape(what: str, one: Variable, other: Variable) -> None:
    if one.shape != other.shape:
        raise MappingError(
            f"{what}: '{one.name}' has shape {list(one.shape)}, '{other.name}' {list(other.shape)}; they must be the "
            "same"
        )


def _same_format(what: str, one: Variable, other: Variable) -> None:
    if one.dtype != other.dtype:
        raise MappingError(f"{what}: '{one.name}' is {one.dtype}, '{other.name}' {other.dtype}; cast one of them")


def _on_boxes(
    name: str, axes: int, fields: str, compute: Function, cost: TileFormula, code_bytes: int, **more: Any
) -> Codelet:
    """fields: access and name of each, all with the box of a part."""
    signature = "; ".join(f"{field}[{', '.join(box_of(axes))}]" for field in fields.split("; "))
    extents = {"keys": Length("out", axes - 1)}
    more |= {"extents": extents, "form": "vertex", "code_bytes": code_bytes}
    return on_elements(name, signature, compute, cost, "out", **({"flops": 0} | more))


@lru_cache(maxsize=32)
def _fill(dtype: str, axes: int) -> Codelet:
    def compute(out: np.ndarray, value: Any) -> None:
        out[...] = value

    formula = fill_formula(element_bytes(dtype))
    return _on_boxes(f"Fill<{dtype}>", axes, "write out", compute, formula, MOVE_BYTES, constants=("value",))


@lru_cache(maxsize=32)
def copy_codelet(dtype: str, axes: int) -> Codelet:
    """Copies a box."""

    def compute(out: np.ndarray, source: np.ndarray) -> None:
        out[...] = source

    formula = copy_formula(element_bytes(dtype))
    return _on_boxes(f"Copy<{dtype}>", axes, "write out; read source", compute, formula, MOVE_BYTES)


@lru_cache(maxsize=64)
def _cast(source: str, target: str, axes: int) -> Codelet:
    def compute(out: np.ndarray, source: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            out[...] = source.astype(out.dtype)

    formula = published(cast_1d_cycles, "Cast1D", ("elements",), source=source, target=target)
    name = f"Cast<{source},{target}>"
    return _on_boxes(name, axes, "write out; read source", compute, formula, CALL_BYTES)


@lru_cache(maxsize=256)
def _operation(op: str, form: str, dtype: str, in_place: bool, axes: int) -> Codelet:
    """Raises NoCycleFormula if the vendor's tables lack the operation for this format."""
    called, price = {
        "binary": ("BinaryOp1D", library.binary_1d_cycles),
        "scalar": ("BroadcastScalar1D", library.broadcast_scalar_1d_cycles),
        "unary": ("UnaryOp1D", library.unary_1d_cycles),
    }[form]
    called += "InPlace" if in_place else ""
    function = (UNARY if form == "unary" else BINARY)[op]
    how: dict[str, Any] = {"op": op.upper(), "dtype": dtype, "in_place": in_place}
    formula = published(price, f"{called} {op.upper()}", ("elements",), **how)

    def compute(out: np.ndarray, *operands: Any) -> None:
        given = (out, *operands) if in_place else operands
        with np.errstate(all="ignore"):
            out[...] = function(*given)

    fields = ("update out" if in_place else "write out; read one") + ("; read other" if form == "binary" else "")
    return _on_boxes(
        f"{called}<{op.upper()},{dtype}>",
        axes,
        fields,
        compute,
        formula,
        CALL_BYTES,
        constants=("scalar",) if form == "scalar" else (),
        flops=dtype in ("f32", "f16"),
    )


@lru_cache(maxsize=8)
def _sort(axes: int) -> Codelet:
    def cycles(extents: dict[str, Any], worker_contexts: int, _vector_bytes: int) -> Any:
        rows = -(-np.asarray(extents["elements"]) // (np.asarray(extents["keys"]) * worker_contexts))
        one = np.array([heap_sort_cycles(int(n)) for n in extents["keys"]], np.int64)
        return worker_contexts * rows * one

    def compute(out: np.ndarray) -> None:
        out.sort(axis=-1)

    formula = TileFormula(
        cycles=cycles, kind="published", source=f"{POPOPS}: HeapSortVertex, a worker context for each row in turn"
    )
    return _on_boxes("HeapSort", axes, "update out", compute, formula, CALL_BYTES)
