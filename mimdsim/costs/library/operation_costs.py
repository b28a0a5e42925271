"""Inner-loop costs of element-wise operations, as data: cycles for one pass of the loop and what one pass processes.

A pass processes a fixed number of elements (an integer), one natural vector (VECTOR), or one element (SCALAR). For the
last two the formula that uses the entry adds its own loads, stores and loop decision; for an integer they are included.
Source: lib/popops/popopsCycleEstimators.hpp, graphcore/poplibs 7eac0f2. Data-dependent operations (SIN, POWER, integer
DIVIDE ...) are the vendor's averages over random inputs. Entries that no figure of 7eac0f2 covers come from an earlier
public version of that file (ERF f16 is likely out of date: f32 changed from 18 to 41 in between).
"""

from __future__ import annotations

VECTOR = -1
SCALAR = 0

Cost = tuple[int, int]  # cycles per pass, elements per pass (or VECTOR, SCALAR)
CostTable = dict[str, dict[str, Cost]]

COMPARISONS = ("EQUAL", "GREATER_THAN", "GREATER_THAN_EQUAL", "LESS_THAN", "LESS_THAN_EQUAL", "NOT_EQUAL")
# These three have hand-written assembly for floats: shorter loops than the compiled codelets.
ASSEMBLY_OPERATIONS = ("ADD", "SUBTRACT", "MULTIPLY")


def _integer(cycles: int) -> dict[str, Cost]:
    return {"i32": (cycles, 1), "u32": (cycles, 1)}


def _compare(f32: int, f16: int, i32: int, boolean: int) -> dict[str, Cost]:
    return {"f32": (f32, 4), "f16": (f16, 4), "i32": (i32, 4), "u32": (i32, 4), "bool": (boolean, 4)}


_ARITHMETIC: dict[str, Cost] = {"f32": (1, VECTOR), "f16": (1, VECTOR)}
_LONG_BINARY: CostTable = {
    "ATAN2": {"f32": (272, 2), "f16": (578, 4)},
    "POWER": {"f32": (312, 1), "f16": (325, 1)},
}

BINARY: CostTable = {
    **{op: {**_ARITHMETIC, **_integer(7)} for op in ASSEMBLY_OPERATIONS},
    **{op: _integer(7) for op in ("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR", "BITWISE_XNOR")},
    **{op: _integer(7) for op in ("SHIFT_LEFT", "SHIFT_RIGHT", "SHIFT_RIGHT_SIGN_EXTEND")},
    **_LONG_BINARY,
    "DIVIDE": {"f32": (10, 2), "f16": (21, 4), "i32": (277, 1), "u32": (265, 1)},
    "REMAINDER": {"f32": (133, 2), "f16": (300, 4), "i32": (292, 1), "u32": (282, 1)},
    "MAXIMUM": {"f32": (3, 2), "f16": (4, 4), "i32": (7, 1), "u32": (8, 1)},
    "MINIMUM": {"f32": (3, 2), "f16": (4, 4), "i32": (7, 1), "u32": (8, 1)},
    "LOGICAL_AND": {"bool": (5, 4)},
    "LOGICAL_OR": {"bool": (5, 4)},
    "EQUAL": _compare(14, 9, 22, 6),
    "GREATER_THAN": _compare(14, 9, 22, 31),
    "GREATER_THAN_EQUAL": _compare(14, 9, 26, 28),
    "LESS_THAN": _compare(14, 9, 22, 28),
    "LESS_THAN_EQUAL": _compare(14, 9, 26, 28),
    "NOT_EQUAL": _compare(20, 11, 22, 5),
}

# In place: comparisons only on booleans, since the result must fit where the operand was.
BINARY_IN_PLACE: CostTable = {
    **{op: row for op, row in BINARY.items() if op not in COMPARISONS},
    **{op: {"bool": BINARY[op]["bool"]} for op in COMPARISONS},
    "MAXIMUM": {**BINARY["MAXIMUM"], "f32": (4, 2)},
    "MINIMUM": {**BINARY["MINIMUM"], "f32": (4, 2)},
    "DIVIDE": {**BINARY["DIVIDE"], "u32": (264, 1)},
}

BROADCAST: CostTable = {
    **{op: {**_ARITHMETIC, **_integer(6)} for op in ASSEMBLY_OPERATIONS},
    **{op: _integer(6) for op in ("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR", "BITWISE_XNOR")},
    **{op: _integer(6) for op in ("SHIFT_LEFT", "SHIFT_RIGHT", "SHIFT_RIGHT_SIGN_EXTEND")},
    **_LONG_BINARY,
    "DIVIDE": {"f32": (6, 2), "f16": (8, 2), "i32": (277, 1), "u32": (260, 1)},
    "REMAINDER": {"f32": (93, 2), "f16": (225, 4), "i32": (280, 1), "u32": (267, 1)},
    "MAXIMUM": {"f32": (3, 2), "f16": (3, 4), "i32": (6, 1), "u32": (7, 1)},
    "MINIMUM": {"f32": (3, 2), "f16": (3, 4), "i32": (6, 1), "u32": (8, 1)},
    "LOGICAL_AND": {"bool": (4, 4)},
    "LOGICAL_OR": {"bool": (4, 4)},
    "INV_STD_DEV_TO_VARIANCE": {"f32": (11, 2), "f16": (10, 2)},
    "VARIANCE_TO_INV_STD_DEV": {"f32": (12, 2), "f16": (24, 4)},
    "EQUAL": _compare(12, 8, 16, 14),
    "GREATER_THAN": _compare(12, 8, 16, 12),
    "GREATER_THAN_EQUAL": _compare(12, 8, 20, 12),
    "LESS_THAN": _compare(12, 8, 16, 16),
    "LESS_THAN_EQUAL": _compare(12, 8, 20, 16),
    "NOT_EQUAL": _compare(18, 10, 16, 4),
}

BROADCAST_IN_PLACE: CostTable = {
    **{op: row for op, row in BROADCAST.items() if op not in COMPARISONS},
    **{op: {"bool": BROADCAST[op]["bool"]} for op in COMPARISONS},
    "EQUAL": {"bool": (5, 4)},
    "INV_STD_DEV_TO_VARIANCE": {"f32": (7, VECTOR), "f16": (10, 2)},
}


def _floats(f32: Cost, f16: Cost) -> dict[str, Cost]:
    return {"f32": f32, "f16": f16}


UNARY: CostTable = {
    "ABSOLUTE": {**_floats((1, SCALAR), (1, SCALAR)), "i32": (2, SCALAR)},
    "ASIN": _floats((102, SCALAR), (102, SCALAR)),
    "BITWISE_NOT": {"i32": (1, VECTOR), "u32": (1, VECTOR)},
    "CBRT": _floats((27, VECTOR), (17, VECTOR)),
    "CEIL": _floats((2, VECTOR), (2, VECTOR)),
    "COS": _floats((2300, SCALAR), (26, 1)),
    "COUNT_LEADING_ZEROS": {"i32": (1, SCALAR), "u32": (1, SCALAR)},
    "ERF": _floats((41, 1), (16, 1)),
    "EXPONENT": _floats((6, 2), (4, 4)),
    "EXPONENT_MINUS_ONE": _floats((4, SCALAR), (5, VECTOR)),
    "FLOOR": _floats((2, VECTOR), (2, VECTOR)),
    "INVERSE": _floats((6, 2), (15, 4)),
    "IS_FINITE": _floats((5, VECTOR), (5, VECTOR)),
    "IS_INF": _floats((3, VECTOR), (5, VECTOR)),
    "IS_NAN": _floats((3, VECTOR), (3, VECTOR)),
    "LOGARITHM": _floats((12, 2), (4, 4)),
    "LOGARITHM_ONE_PLUS": _floats((180, VECTOR), (180, VECTOR)),
    "LOGICAL_NOT": {"bool": (17, SCALAR)},
    "NEGATE": {**_floats((2, 2), (2, 4)), "i32": (2, SCALAR)},
    "POPCOUNT": {"i32": (1, SCALAR), "u32": (1, SCALAR)},
    "RELU": _floats((3, 2), (3, 4)),
    "ROUND": _floats((2, VECTOR), (2, VECTOR)),
    "RSQRT": _floats((8, 2), (19, 4)),
    "SIGMOID": _floats((12, 2), (6, 4)),
    "SIGNUM": {**_floats((5, VECTOR), (5, VECTOR)), "i32": (5, SCALAR)},
    "SIN": _floats((2300, SCALAR), (26, 1)),
    "SQRT": {**_floats((10, 2), (23, 4)), "i32": (110, SCALAR)},
    "SQUARE": {**_floats((2, 2), (2, 4)), "i32": (1, VECTOR), "u32": (1, VECTOR)},
    "TAN": _floats((5100, 1), (5700, 1)),
    "TANH": _floats((12, 2), (4, 4)),
}

UNARY_IN_PLACE: CostTable = {
    **{op: row for op, row in UNARY.items() if not op.startswith("IS_")},
    "ABSOLUTE": {**_floats((1, VECTOR), (1, VECTOR)), "i32": (2, SCALAR)},
    "LOGARITHM": _floats((14, 2), (6, 4)),
    "LOGICAL_NOT": {"bool": (17, VECTOR)},
    "NEGATE": {**_floats((3, 2), (3, 4)), "i32": (2, SCALAR)},
    "RELU": _floats((2, 2), (2, 4)),
    "SIGMOID": _floats((10, 2), (4, 4)),
    "TANH": _floats((10, 2), (2, 4)),
}
