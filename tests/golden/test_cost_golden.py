"""Cycle counts worked out by hand from the published instruction counts, in numbers: branches that no published figure
reaches, and every entry of the tables of operations. Right hand sides call nothing, so that they cannot err alike."""

from __future__ import annotations

import pytest

from mimdsim.base.errors import MimdsimError
from mimdsim.costs.library import arithmetic, dense, elementwise, network, operation_costs, reductions, sparse
from mimdsim.validation import vendor as formulas
from mimdsim.validation.sparse import codelets as popsparse
from mimdsim.validation.vendor import VendorParams, formats

# ---- operations: 60 elements on one context, passes of the loop x cycles of a pass with its loads and stores

BINARY = """
ADD SUBTRACT MULTIPLY: f32 30x3, f16 15x3, i32 60x7, u32 60x7
BITWISE_AND BITWISE_OR BITWISE_XOR BITWISE_XNOR SHIFT_LEFT SHIFT_RIGHT SHIFT_RIGHT_SIGN_EXTEND: i32 60x7, u32 60x7
ATAN2: f32 30x272, f16 15x578
POWER: f32 60x312, f16 60x325
DIVIDE: f32 30x10, f16 15x21, i32 60x277, u32 60x265
REMAINDER: f32 30x133, f16 15x300, i32 60x292, u32 60x282
MAXIMUM MINIMUM: f32 30x3, f16 15x4, i32 60x7, u32 60x8
LOGICAL_AND LOGICAL_OR: bool 15x5
EQUAL: f32 15x14, f16 15x9, i32 15x22, u32 15x22, bool 15x6
GREATER_THAN: f32 15x14, f16 15x9, i32 15x22, u32 15x22, bool 15x31
LESS_THAN: f32 15x14, f16 15x9, i32 15x22, u32 15x22, bool 15x28
GREATER_THAN_EQUAL LESS_THAN_EQUAL: f32 15x14, f16 15x9, i32 15x26, u32 15x26, bool 15x28
NOT_EQUAL: f32 15x20, f16 15x11, i32 15x22, u32 15x22, bool 15x5
"""
BINARY_IN_PLACE = """
ADD SUBTRACT MULTIPLY: f32 30x3, f16 15x3, i32 60x7, u32 60x7
BITWISE_AND BITWISE_OR BITWISE_XOR BITWISE_XNOR SHIFT_LEFT SHIFT_RIGHT SHIFT_RIGHT_SIGN_EXTEND: i32 60x7, u32 60x7
ATAN2: f32 30x272, f16 15x578
POWER: f32 60x312, f16 60x325
DIVIDE: f32 30x10, f16 15x21, i32 60x277, u32 60x264
REMAINDER: f32 30x133, f16 15x300, i32 60x292, u32 60x282
MAXIMUM MINIMUM: f32 30x4, f16 15x4, i32 60x7, u32 60x8
LOGICAL_AND LOGICAL_OR: bool 15x5
EQUAL: bool 15x6
GREATER_THAN: bool 15x31
GREATER_THAN_EQUAL LESS_THAN LESS_THAN_EQUAL: bool 15x28
NOT_EQUAL: bool 15x5
"""
BROADCAST = """
ADD SUBTRACT MULTIPLY: f32 30x2, f16 15x2, i32 60x6, u32 60x6
BITWISE_AND BITWISE_OR BITWISE_XOR BITWISE_XNOR SHIFT_LEFT SHIFT_RIGHT SHIFT_RIGHT_SIGN_EXTEND: i32 60x6, u32 60x6
ATAN2: f32 30x272, f16 15x578
POWER: f32 60x312, f16 60x325
DIVIDE: f32 30x6, f16 30x8, i32 60x277, u32 60x260
REMAINDER: f32 30x93, f16 15x225, i32 60x280, u32 60x267
MAXIMUM: f32 30x3, f16 15x3, i32 60x6, u32 60x7
MINIMUM: f32 30x3, f16 15x3, i32 60x6, u32 60x8
LOGICAL_AND LOGICAL_OR: bool 15x4
INV_STD_DEV_TO_VARIANCE: f32 30x11, f16 30x10
VARIANCE_TO_INV_STD_DEV: f32 30x12, f16 15x24
EQUAL: f32 15x12, f16 15x8, i32 15x16, u32 15x16, bool 15x14
GREATER_THAN: f32 15x12, f16 15x8, i32 15x16, u32 15x16, bool 15x12
GREATER_THAN_EQUAL: f32 15x12, f16 15x8, i32 15x20, u32 15x20, bool 15x12
LESS_THAN: f32 15x12, f16 15x8, i32 15x16, u32 15x16, bool 15x16
LESS_THAN_EQUAL: f32 15x12, f16 15x8, i32 15x20, u32 15x20, bool 15x16
NOT_EQUAL: f32 15x18, f16 15x10, i32 15x16, u32 15x16, bool 15x4
"""
BROADCAST_IN_PLACE = """
ADD SUBTRACT MULTIPLY: f32 30x2, f16 15x2, i32 60x6, u32 60x6
BITWISE_AND BITWISE_OR BITWISE_XOR BITWISE_XNOR SHIFT_LEFT SHIFT_RIGHT SHIFT_RIGHT_SIGN_EXTEND: i32 60x6, u32 60x6
ATAN2: f32 30x272, f16 15x578
POWER: f32 60x312, f16 60x325
DIVIDE: f32 30x6, f16 30x8, i32 60x277, u32 60x260
REMAINDER: f32 30x93, f16 15x225, i32 60x280, u32 60x267
MAXIMUM: f32 30x3, f16 15x3, i32 60x6, u32 60x7
MINIMUM: f32 30x3, f16 15x3, i32 60x6, u32 60x8
LOGICAL_AND LOGICAL_OR NOT_EQUAL: bool 15x4
INV_STD_DEV_TO_VARIANCE: f32 30x11, f16 30x10
VARIANCE_TO_INV_STD_DEV: f32 30x12, f16 15x24
EQUAL: bool 15x5
GREATER_THAN GREATER_THAN_EQUAL: bool 15x12
LESS_THAN LESS_THAN_EQUAL: bool 15x16
"""
# With 4 cycles more where the published table leaves loads and stores out; there the vendor divides by the elements of
# a vector last: 61/2x9 is 61 x 9 / 2 rounded down, for 60 elements and all but one of a vector of two.
UNARY = """
ABSOLUTE: f32 60x5, f16 60x5, i32 60x6
ASIN: f32 60x106, f16 60x106
BITWISE_NOT: i32 61/2x5, u32 61/2x5
CBRT: f32 61/2x31, f16 63/4x21
CEIL FLOOR ROUND: f32 61/2x6, f16 63/4x6
COS SIN: f32 60x2304, f16 60x26
COUNT_LEADING_ZEROS POPCOUNT: i32 60x5, u32 60x5
ERF: f32 60x41, f16 60x16
EXPONENT: f32 30x6, f16 15x4
EXPONENT_MINUS_ONE: f32 60x8, f16 63/4x9
INVERSE: f32 30x6, f16 15x15
IS_FINITE: f32 61/2x9, f16 63/4x9
IS_INF: f32 61/2x7, f16 63/4x9
IS_NAN: f32 61/2x7, f16 63/4x7
LOGARITHM: f32 30x12, f16 15x4
LOGARITHM_ONE_PLUS: f32 61/2x184, f16 63/4x184
LOGICAL_NOT: bool 60x21
NEGATE: f32 30x2, f16 15x2, i32 60x6
RELU: f32 30x3, f16 15x3
RSQRT: f32 30x8, f16 15x19
SIGMOID: f32 30x12, f16 15x6
SIGNUM: f32 61/2x9, f16 63/4x9, i32 60x9
SQRT: f32 30x10, f16 15x23, i32 60x114
SQUARE: f32 30x2, f16 15x2, i32 61/2x5, u32 61/2x5
TAN: f32 60x5100, f16 60x5700
TANH: f32 30x12, f16 15x4
"""
UNARY_IN_PLACE = """
ABSOLUTE: f32 61/2x5, f16 63/4x5, i32 60x6
ASIN: f32 60x106, f16 60x106
BITWISE_NOT: i32 61/2x5, u32 61/2x5
CBRT: f32 61/2x31, f16 63/4x21
CEIL FLOOR ROUND: f32 61/2x6, f16 63/4x6
COS SIN: f32 60x2304, f16 60x26
COUNT_LEADING_ZEROS POPCOUNT: i32 60x5, u32 60x5
ERF: f32 60x41, f16 60x16
EXPONENT: f32 30x6, f16 15x4
EXPONENT_MINUS_ONE: f32 60x8, f16 63/4x9
INVERSE: f32 30x6, f16 15x15
LOGARITHM: f32 30x14, f16 15x6
LOGARITHM_ONE_PLUS: f32 61/2x184, f16 63/4x184
LOGICAL_NOT: bool 67/8x21
NEGATE: f32 30x3, f16 15x3, i32 60x6
RELU: f32 30x2, f16 15x2
RSQRT: f32 30x8, f16 15x19
SIGMOID: f32 30x10, f16 15x4
SIGNUM: f32 61/2x9, f16 63/4x9, i32 60x9
SQRT: f32 30x10, f16 15x23, i32 60x114
SQUARE: f32 30x2, f16 15x2, i32 61/2x5, u32 61/2x5
TAN: f32 60x5100, f16 60x5700
TANH: f32 30x10, f16 15x2
"""


def golden(text: str) -> dict[tuple[str, str], int]:
    """Cycles of the loop by operation and format."""
    found = {}
    for line in text.strip().splitlines():
        names, entries = line.split(": ")
        for name, entry in ((name, entry) for name in names.split() for entry in entries.split(", ")):
            dtype, product = entry.split()
            passes, cycles = product.split("x")
            dividend, _, divisor = passes.partition("/")
            found[name, dtype] = int(dividend) * int(cycles) // int(divisor or 1)
    return found


TABLES = {
    "binary": (BINARY, operation_costs.BINARY, elementwise.binary_1d_cycles, False),
    "binary in place": (BINARY_IN_PLACE, operation_costs.BINARY_IN_PLACE, elementwise.binary_1d_cycles, True),
    "broadcast": (BROADCAST, operation_costs.BROADCAST, elementwise.broadcast_scalar_1d_cycles, False),
    "broadcast in place": (
        BROADCAST_IN_PLACE,
        operation_costs.BROADCAST_IN_PLACE,
        elementwise.broadcast_scalar_1d_cycles,
        True,
    ),
    "unary": (UNARY, operation_costs.UNARY, elementwise.unary_1d_cycles, False),
    "unary in place": (UNARY_IN_PLACE, operation_costs.UNARY_IN_PLACE, elementwise.unary_1d_cycles, True),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_operation_costs_its_published_loop(name: str) -> None:
    """Around the loop: 11 the supervisor, 9 more for unary ones; then what a context does before it."""
    text, table, function, in_place = TABLES[name]
    expected = golden(text)
    assert set(expected) == {(op, dtype) for op, row in table.items() for dtype in row}
    for (op, dtype), loop in expected.items():
        before = {
            "binary": 11 + (29 if dtype == "f32" else 26),
            "binary in place": 11 + 58,
            "broadcast": 11 + 20,
            "broadcast in place": 11 + 20,
            "unary": 11 + 9 + (33 if op == "EXPONENT" else 17),
            "unary in place": 11 + 9 + 55,
        }[name]
        cycles = function(60, op=op, dtype=dtype, in_place=in_place, worker_contexts=1)
        assert cycles == before + loop, (op, dtype)


# ---- points of formulas

POINTS = {
    "binary": [
        (elementwise.binary_1d_cycles(48, scaled_pointers=True), 11 + 2 + 6 * (29 + 4 * 3)),
        (elementwise.binary_1d_cycles(48, in_place=True, interleaved=True), 11 + 6 * (58 + 4 * 2)),
        (elementwise.binary_1d_cycles(48, interleaved=True), 11 + 6 * (29 + 4 * 3)),  # interleaved helps in place only
        (elementwise.binary_1d_cycles(48, worker_contexts=4, vector_bytes=16), 11 + 4 * (29 + 3 * 3)),
        (elementwise.binary_2d_cycles([7], dtype="i32", in_place=True), 20 + 7 * 7),
        (elementwise.binary_2d_cycles([7, 8], vector_bytes=16), 5 + 2 * 3 + 2 * 3),
    ],
    "unary": [
        (elementwise.unary_2d_cycles([7, 3], op="RELU"), 20 + 4 * 3 + 2 * 3),
        (elementwise.unary_2d_cycles([7], op="RELU", in_place=True), 20 + 4 * 2),
        (elementwise.unary_1d_cycles(42, op="CEIL"), 20 + 6 * (17 + 24)),  # 6 x 8 / 2 for 7 elements in pairs
    ],
    "broadcast": [
        (elementwise.broadcast_scalar_1d_cycles(48, in_place=True, interleaved=True), 11 + 6 * (20 + 4 * 1)),
        (elementwise.broadcast_scalar_1d_cycles(48, interleaved=True), 11 + 6 * (20 + 4 * 2)),
        (elementwise.broadcast_scalar_2d_cycles([7, 3]), 20 + 28 + 4 * 2 + 28 + 2 * 2),
        (elementwise.broadcast_scalar_2d_cycles([7], uniform_scalar=False), 20 + 28 + 4 * 5),
        (elementwise.broadcast_scalar_2d_cycles([7], in_place=True, interleaved=True), 20 + 28 + 4 * 1),
        (elementwise.broadcast_outer_by_row_cycles(12, 64, interleaved=True), 11 + 6 * (15 + 2 * (7 + 32))),
        (elementwise.broadcast_outer_by_row_cycles(13, 64, misaligned=True), 11 + 6 * (15 + 3 * (25 + 2 * 65 // 2))),
        (elementwise.broadcast_outer_by_column_cycles(3, 24), 11 + 6 * (15 + 3 * (7 + 5))),
        (elementwise.broadcast_outer_by_column_cycles(3, 25, op="MULTIPLY", dtype="f16"), 11 + 6 * (15 + 3 * (7 + 4))),
    ],
    "bias": [  # 13 + 6 the supervisor; 17, 19 or 26 a context with its 3; then the loop
        (elementwise.bias_add_cycles(0, 10), 19 + 6 * (20 + 2)),
        (elementwise.bias_add_cycles(12, 10, slices=2), 19 + 6 * (20 + 2 * (17 + 7 + 10 * 12))),
        (elementwise.bias_add_cycles(0, 16, dtype="f16"), 19 + 6 * (22 + 1)),
        (elementwise.bias_add_cycles(6, 16, dtype="f16"), 19 + 6 * (22 + 11 + 2 * 7)),
        (elementwise.bias_add_cycles(18, 16, dtype="f16"), 19 + 6 * (22 + 12 + 2 * (15 + 2 * 2))),
        (elementwise.bias_add_cycles(6, 4, dtype="f16"), 19 + 6 * (22 + 7 + 4 * (5 + 9) + 6)),
        (elementwise.bias_add_cycles(12, 12, dtype="f16"), 19 + 6 * (22 + 15 + 3 * 13)),
        (elementwise.bias_add_cycles(18, 12, dtype="f16"), 19 + 6 * (22 + 15 + 3 * (13 + 1))),
        (elementwise.bias_add_cycles(24, 12, dtype="f16"), 19 + 6 * (22 + 15 + 3 * (13 + 2))),
        (elementwise.bias_add_cycles(12, 6, dtype="f16"), 19 + 6 * (22 + 9 + 6 * (5 + 18) + 6)),
        (elementwise.bias_add_cycles(12, 7, dtype="f16"), 19 + 6 * (29 + 9 + 7 * (5 + 18) + 6)),
        (elementwise.bias_add_cycles(6, 2048, dtype="f16"), 19 + 6 * (22 + 11 + 256 * 7)),
        (elementwise.bias_add_cycles(6, 2049, dtype="f16"), 19 + 6 * (29 + 3 + 2049 * 14 + 6)),
        (elementwise.bias_add_cycles(6, 2056, dtype="f16"), 19 + 6 * (22 + 3 + 2056 * 14 + 6)),
    ],
    "select and clamp": [
        (elementwise.broadcast_select_cycles([9]), 10 + 8 + 4 * 9),
        (elementwise.broadcast_select_cycles([9, 8], dtype="f16"), 10 + 36 + 23 + 32 + 30),
        (elementwise.broadcast_select_cycles([9], dtype="u8"), 10 + 66 + 2 * 17),
        (elementwise.clamp_cycles([9, 4]), 5 + 6 + 10 + 6 + 5),
        (elementwise.clamp_cycles([9], dtype="i32"), 5 + 6 + 7 * 9),
    ],
    "casts": [  # 5 around casts on one context, 11 around a row
        (elementwise.cast_1d_cycles(12, source="i32", target="i64"), 12 + 6 * (3 + 2 * 5 + 18)),
        (elementwise.cast_1d_cycles(12, source="f32", target="u64"), 12 + 6 * (3 + 2 * 4 + 18)),
        (elementwise.cast_1d_cycles(13, source="i8", target="i64", worker_contexts=3), 12 + 3 * (3 + 5 * 5 + 18)),
        *(
            (elementwise.cast_2d_cycles([n], source="u8", target="f16"), 5 + 11 + 4 + by_hand)
            for n, by_hand in {0: 2, 1: 12, 2: 14, 3: 22, 4: 14 + 2, 5: 14 + 12, 10: 14 + 9 + 14}.items()
        ),
        *(
            (elementwise.cast_2d_cycles([n], source="f16", target="i8"), 5 + 11 + 8 + by_hand)
            for n, by_hand in {0: 2, 1: 14, 2: 21, 3: 29, 4: 19 + 2, 11: 19 + 16 + 29}.items()
        ),
        # f32 to f16: four at a time, two cycles to load them, one where memory serves two loads
        (elementwise.cast_2d_cycles([7], source="f32", target="f16"), 5 + 11 + 19 + 2 + (1 + 2) + (1 + 2)),
        (elementwise.cast_2d_cycles([9], source="f32", target="f16", interleaved=True), 5 + 11 + 19 + 2 + (1 + 2) + 1),
        (elementwise.cast_2d_cycles([8], source="f32", target="f16", read_ports=1), 5 + 11 + 19 + 4 + 1),
        (elementwise.cast_2d_cycles([5], source="f32", target="i32"), 5 + 11 + 19 + 5 * 2),
        (elementwise.cast_2d_cycles([5], source="u8", target="f32"), 5 + 11 + 19 + 5 * 2),
        (elementwise.cast_2d_cycles([5], source="f16", target="u16"), 5 + 11 + 19 + 5 * 2),
        (elementwise.cast_2d_cycles([3, 7], source="f16", target="f32"), 5 + 11 + 19 + 1 + 3 + 11 + 19 + 3 + 3),
    ],
    "fill": [
        (elementwise.fill_cycles(7, dtype="i64"), 5 + 7),
        (elementwise.fill_cycles(63, dtype="u8"), 28 + 15),
        (elementwise.fill_cycles(64, dtype="u8"), 39 + 8),
        (elementwise.fill_cycles(1, dtype="f16"), 15),
        (elementwise.fill_cycles(2, dtype="f16"), 21),
        (elementwise.fill_cycles(3, dtype="f16"), 26),
        (elementwise.fill_cycles(17, dtype="i16"), 26 + 4),
        (elementwise.fill_cycles(16), 23 + 8),
        (elementwise.fill_cycles(1), 23 + 1),
    ],
    "scaled addition": [  # 57 the supervisor; 1 to ask for a remainder; 6 for its branch
        (formulas.scaled_add_1d_cycles(0), 57 + 6 * (15 + 3 + 1)),
        (formulas.scaled_add_1d_cycles(25), 57 + 6 + 6 * (15 + 6 + 3 + 3 + 1 + 8)),
        (
            formulas.scaled_add_1d_cycles(26),
            57 + 6 * (15 + 6 + 2 * 3 + 3),
        ),  # a thirteenth vector: one context has 3
        (formulas.scaled_add_1d_cycles(25, dtype="f16"), 57 + 6 + 6 * (15 + 6 + 3 + 1 + 5)),
        (formulas.scaled_add_1d_cycles(26, dtype="f16"), 57 + 6 + 6 * (15 + 6 + 3 + 1 + 5 + 7)),
        (formulas.scaled_add_1d_cycles(27, dtype="f16"), 57 + 6 + 6 * (15 + 6 + 3 + 1 + 5 + 7 + 6)),
        (formulas.scaled_add_1d_cycles(24, op="SUBTRACT"), 57 + 7 + 6 * (15 + 6 + 3 + 3 + 1)),
        (formulas.scaled_add_1d_cycles(24, op="AXPLUSBY", dtype="f16"), 57 + 12 + 6 * (15 + 6 + 3 + 1)),
        (formulas.scaled_add_1d_cycles(24, op="AXMINUSBY", dtype="f16"), 57 + 6 * (15 + 6 + 3 + 1)),
        (
            formulas.scaled_add_1d_cycles(24, op="SUBTRACT", constant_scale=True),
            57 - 6 + 6 * (15 + 6 + 3 + 3 + 1),
        ),
        (formulas.scaled_add_1d_cycles(25, op="AXPLUSBY"), 69 + 6 + 6 * (16 + 6 + 3 + 1 + 1 + 5)),
        (
            formulas.scaled_add_1d_cycles(24, op="AXMINUSBY", memory_constrained=True),
            57 + 6 * (16 + 6 + 3 + 1 + 1),
        ),
        (formulas.scaled_add_1d_cycles(180, memory_constrained=True), 57 + 6 * (15 + 6 + 14 * 2 + 3 + 1)),
        (formulas.scaled_add_1d_cycles(192, memory_constrained=True), 57 + 6 * (15 + 6 + 15 * 1 + 3 + 1)),
    ],
    "slices": [
        (reductions.dynamic_slice_1d_cycles(64, 2, dtype="u8"), 25 + 6 * (76 + 2 * (72 + 2 * 2))),
        (reductions.dynamic_slice_1d_cycles(64, 2, dtype="i64"), 25 + 6 * (39 + 2 * (24 + 2 * 11))),
        (reductions.dynamic_slice_1d_cycles(64, 2, dtype="f16"), 25 + 6 * (39 + 2 * (24 + 2 * 2))),
        (reductions.dynamic_slice_2d_cycles([63, 8], 2), 27 + (29 + 32) * 2 + 13 + (29 + 4) * 2 + 13),
        (reductions.dynamic_slice_2d_cycles([63], 2, dtype="f16", update=True), 27 + (31 + 2 * 16) * 2 + 13),
        (reductions.dynamic_slice_2d_cycles([63], 2, dtype="u8"), 27 + (50 + 2 * 16) * 2 + 13),
        (reductions.dynamic_slice_2d_cycles([63], 2, dtype="u8", update=True), 27 + (50 + 23 * 16) * 2 + 13),
        (reductions.dynamic_slice_2d_cycles([63], 2, dtype="u64"), 27 + (29 + 63) * 2 + 13),
        (reductions.dynamic_slice_2d_cycles([63], 2, dtype="u64", update=True), 27 + (30 + 63) * 2 + 13),
        (reductions.dynamic_slice_2d_cycles([63], 2, update=True), 27 + (29 + 32) * 2 + 13),
        (reductions.multi_slice_cycles(10, 2, dtype="u8"), 6 * (30 + 2 * (19 + 3 * 3))),
        (reductions.multi_slice_cycles(9, 2, dtype="f16", update=True), 6 * (29 + 2 * (19 + 2 * 5))),
        (reductions.multi_slice_cycles(13, 2, split_single_region=True), 6 * (30 + 2 * (19 + 2 * 2))),
        # 16 offsets: two searches of 4 halvings at 10, 9 around them, 20 more; the other 13 are never looked at
        (reductions.multi_slice_cycles(8, 16, in_range=3, sorted_indices=True), 6 * (30 + 3 * (19 + 8) + 80 + 9 + 20)),
        (
            reductions.multi_slice_cycles(8, 17, in_range=0, sorted_indices=True, repeats_per_entry=2),
            6 * (30 + 100 + 2 * 15 + 9 + 20),
        ),
        # 32 or 33 around; 11, 12 or 13 a row and 3 for each word after the first; 5 for each index of others
        (reductions.scatter_add_cycles(8, 5), 6 * (32 + 5 * (11 + 7 * 3))),
        (reductions.scatter_add_cycles(8, 5, in_range=2), 6 * (32 + 2 * (11 + 7 * 3) + 3 * 5)),
        (reductions.scatter_add_cycles(8, 5, dtype="f16"), 6 * (33 + 5 * (12 + 3 * 3))),
        (reductions.scatter_add_cycles(8, 5, dtype="f16", scaled=True), 6 * (37 + 5 * (13 + 3 * 3))),
        (
            reductions.scatter_add_cycles(8, 5, dtype="f16", scaled=True, scale_dtype="f32"),
            6 * (37 + 5 * (13 + 3 * (3 + 1))),
        ),
        (reductions.scatter_add_cycles(8, 5, scaled=True, scale_dtype="f16"), 6 * (38 + 5 * (11 + 7 * 3))),
        (reductions.scatter_add_cycles(2, 5, scaled=True), 6 * (38 - 1 + 5 * 8)),
        (reductions.scatter_add_cycles(4, 5, scaled=True), 6 * (38 - 1 + 5 * 16)),
        (reductions.scatter_add_cycles(4, 5, scaled=True, op="MUL"), 6 * (38 + 5 * (11 + 3 * 3))),
        (reductions.scatter_add_cycles(4, 5, dtype="f16", scaled=True), 6 * (37 - 1 + 5 * 9)),
        (
            reductions.scatter_add_cycles(4, 5, dtype="f16", scaled=True, scale_dtype="f32"),
            6 * (37 - 1 + 5 * 12),
        ),
        (reductions.scatter_add_cycles(4, 5), 6 * (32 + 5 * (11 + 3 * 3))),
        (reductions.scatter_add_cycles(3, 5, dtype="f16", subword_writes=True), 6 * (33 + 5 * (12 + 20 * 3))),
        (reductions.scatter_add_cycles(8, 16, in_range=1, sorted_indices=True), 6 * (32 + 80 + 9 + 15 + 11 + 7 * 3)),
    ],
    "reductions": [
        # 16 around; a loop: 3, finish, 3 and one for each partial but the first
        (reductions.reduce_strided_cycles(8, 5, stride=4, dtype="f16"), 16 + 2 * (3 + 7 + 3 + 4)),
        (reductions.reduce_strided_cycles(8, 5, stride=2, dtype="f16"), 16 + 4 * (3 + 7 + 3 + 4)),
        (
            reductions.reduce_strided_cycles(8, 5, stride=4, dtype="f16", out_dtype="f16", update=True),
            16 + 2 * (3 + 10 + 3 + 4),
        ),
        (reductions.reduce_strided_cycles(8, 5, stride=4, dtype="f16", op="MAX"), 16 + 2 * (3 + 8 + 3 + 4)),
        (reductions.reduce_strided_cycles(8, 5, stride=4, dtype="f16", op="MIN", update=True), 16 + 2 * (14 + 3 + 4)),
        (reductions.reduce_strided_cycles(8, 5, stride=4, op="MAX"), 16 + 4 * (3 + 4 + 3 + 4)),
        (reductions.reduce_strided_cycles(8, 5, stride=4, out_dtype="f16", update=True), 16 + 4 * (3 + 7 + 3 + 4)),
        (reductions.reduce_strided_cycles(8, 5, stride=3, outer_strides=3), 16 + 8 * (3 + 5 + 3 * (3 + 4))),
        (reductions.reduce_to_scalar_cycles(65), 17 + 32 + 1),
        (reductions.reduce_to_scalar_cycles(65, out_dtype="f16"), 17 + 32 + 1 + 5),
        (reductions.reduce_to_scalar_cycles(65, op="MAX"), 17 + 32 + 1),
        (reductions.reduce_to_scalar_cycles(67, op="MUL", dtype="f16"), 17 + 16 + 3),
        (reductions.reduce_to_scalar_cycles(67, op="SQUARE_ADD", dtype="f16"), 17 + 16 + 3),
        (reductions.reduce_to_scalar_cycles(67, dtype="i32"), 17 + 67),
        (reductions.reduce_contiguous_cycles(3, 33), 3 * (16 + 12) + 2 + 17),
        (reductions.reduce_contiguous_cycles(3, 32, update=True), 3 * (16 + 12) + 17 + 1),
        # 96 outputs: 24 vectors, 4 a context
        (reductions.reduce_add_cycles(96, 8, single_input=True), 33 + 6 * (20 + (2 * 8 + 8) * 4)),
        (reductions.reduce_add_cycles(96, 8, single_input=True, out_dtype="f16"), 33 + 6 * (20 + (2 * 8 + 7) * 4)),
        (reductions.reduce_add_cycles(96, 8, dtype="f16", single_input=True), 33 + 6 * (20 + (2 * 8 + 10) * 2)),
        (reductions.reduce_add_cycles(100, 8), 6 * (32 + (3 * 8 + 7) * 5)),  # 25 vectors: one context has five
        (reductions.reduce_add_cycles(13, 8), 6 * (32 + 2 * 8 + 13)),  # three vectors and one: a round of short pieces
        (reductions.reduce_add_cycles(37, 8), 6 * (32 + 2 * 8 + 13 + (3 * 8 + 7) * 1)),
        (reductions.reduce_add_cycles(13, 8, dtype="f16"), 6 * (32 + 2 * 8 + 11)),
        (reductions.reduce_add_cycles(21, 8), 6 * (32 + (3 * 8 + 7) * 1)),  # five vectors and one: all alike
    ],
    "random numbers": [  # 4 or 6 the supervisor, then what contexts do before, then the loop, then a ragged end
        (network.uniform_cycles(96), 4 + 22 * 6 + 4 * 97 // 2),
        (network.uniform_cycles(97), 4 + 22 * 6 + 196 + 4),
        (network.uniform_cycles(97, dtype="f16"), 4 + 24 * 6 + 100 + 12),
        (network.uniform_cycles(97, dtype="f16", vector_bytes=16), 4 + 24 * 6 + 52 + 12),
        (network.bernoulli_cycles(96), 4 + 23 * 6 + 48),
        (network.bernoulli_cycles(97), 4 + 23 * 6 + 49 + 1),
        (network.bernoulli_cycles(97, dtype="f16"), 4 + 21 * 6 + 25 + 9),
        (network.normal_cycles(97), 4 + 22 * 6 + 196 + 3),
        (network.normal_cycles(97, dtype="f16"), 4 + 24 * 6 + 100 + 12),
        (network.dropout_cycles(97), 6 + 24 * 6 + 98 + 1),
        (network.dropout_cycles(97, dtype="f16"), 6 + 24 * 6 + 50 + 9),
    ],
    "network": [
        (network.nonlinearity_gradient_1d_cycles(25, op="RELU"), 9 + 6 * (20 + 4 + 3 + 1 + 4 + 4)),
        (network.nonlinearity_gradient_1d_cycles(24, op="SIGMOID"), 9 + 6 * (20 + 4 + 3 + 1 + 4)),
        (network.nonlinearity_gradient_1d_cycles(27, op="TANH", dtype="f16"), 9 + 6 * (20 + 4 + 1 + 6 + 5 + 7)),
        (network.nonlinearity_gradient_1d_cycles(2, op="TANH", dtype="f16"), 9 + 6 * (20 + 6 + 5)),
        (network.arg_max_cycles(5, 16), 9 + 6 * (30 + 3 * 4)),
        (network.arg_max_cycles(97, 16, dtype="i32"), 9 + 6 * (22 + 7 * (6 * 16 + 25))),
        (network.heap_sort_cycles(9), 8 * (19 * 9 * 3 + 6 * 9 + 2)),
        (network.heap_sort_cycles(1), 8 * (6 + 2)),
        (network.heap_sort_cycles(8, key_and_value=True), 16 * (19 * 8 * 3 + 6 * 8 + 2)),
        (network.one_hot_cycles(10, dtype="f32"), 1000),
        (network.nan_check_1d_cycles(40), 24 + 6 * (17 + 10 + 2 * 20 + 7)),
        (network.nan_check_1d_cycles(40, infinities=True), 24 + 6 * (17 + 10 + 3 * 20 + 8)),
        (network.nan_check_1d_cycles(40, rest=1), 24 + 6 * (17 + 10 + 2 * 20 + 1 + 7)),
        (network.nan_check_1d_cycles(40, extra_vector_workers=1), 24 + 6 * (17 + 10 + 2 * 20 + 2 + 7)),
        (network.nan_check_1d_cycles(40, rest=3, dtype="f16"), 24 + 6 * (17 + 12 + 3 * 40 + 2 + 1 + 11)),
        (
            network.nan_check_1d_cycles(41, rest=3, dtype="f16", infinities=True),
            24 + 6 * (17 + 12 + 2 * 20 + 2 + 2 + 2 + 12),
        ),
    ],
    "matrix unit": [
        (dense.weight_load_cycles(16, 16, 2, 8), 64),
        (dense.weight_load_cycles(16, 16, 2, 16), 32),
        (dense.weight_load_cycles(16, 16, 2, 16, 4), 64),
        (dense.weight_load_cycles(16, 16, 2, 8, 4), 64),
        *(
            (dense.amp_1x1_worker_cycles(n, zeroing=zeroing), by_hand - 7 + (1 if zeroing else 2))
            for n, by_hand in enumerate([20, 31, 40, 36, 40, 44])
            for zeroing in (False, True)
        ),
        *(
            (dense.amp_1x1_worker_cycles(n, zeroing=False, dtype="f32", partials_dtype="f32"), by_hand)
            for n, by_hand in enumerate([24, 47, 46, 46, 54, 62])
        ),
        *(
            (dense.amp_1x1_worker_cycles(n, zeroing=False, conv_units=8), by_hand)
            for n, by_hand in enumerate([24, 39, 40, 41, 45, 49])
        ),
        # as written: pointers and checks, 8 fill the pipeline, 12 more, loop, 8, ends of two positions and of one, exit
        *(
            (
                dense.amp_1x1_worker_cycles(n, zeroing=False, dtype="f32", partials_dtype="f32", assembler=True),
                by_hand,
            )
            for n, by_hand in (
                (0, 3 + 1 + 4 + 1),
                (1, 3 + 1 + 7 + 2 + 8 + 5 + 1 + 7 + 3 + 4 + 2 + 1),
                (2, 3 + 1 + 6 + 2 + 8 + 5 + 1 + 7 + 2 + 8 + 4 + 2 + 1),
                (3, 3 + 2 + 2 + 8 + 5 + 1 + 3 + 4 + 1 + 8 + 8 + 4 + 2 + 1),
                (5, 3 + 2 + 2 + 8 + 5 + 1 + 3 + 4 + 1 + 16 + 8 + 8 + 4 + 2 + 1),
            )
        ),
        *(
            (dense.amp_1x1_worker_cycles(n, zeroing=zeroing, assembler=True), by_hand)
            for n, zeroing, by_hand in (
                (0, False, 5 + 6 + 1),
                (1, False, 5 + 7 + 8 + 1 + 2 + 2 + 1),
                (2, False, 5 + 4 + 8 + 2 + 4 + 2 + 2 + 1),
                (4, False, 5 + 8 + 1 + 4 + 4 + 4 + 2 + 2 + 1),
                (0, True, 4 + 5 + 1),
                (1, True, 4 + 7 + 7 + 1 + 2 + 2 + 1),
                (2, True, 4 + 3 + 7 + 2 + 4 + 2 + 2 + 1),
                (4, True, 4 + 7 + 1 + 4 + 4 + 1 + 4 + 2 + 2 + 1),
            )
        ),
        (  # sums set to zero: two bundles and eight a position
            dense.amp_1x1_worker_cycles(3, zeroing=True, dtype="f32", partials_dtype="f32", assembler=True),
            52 + 2 + 3 * 8,
        ),
        # narrower units were not counted
        (dense.amp_1x1_worker_cycles(3, zeroing=True, conv_units=8, assembler=True), 41 + 2 + 3 * 2),
        (  # once 12 bundles a context, and 2 for each of three groups of inputs
            dense.amp_1x1_cycles(24, in_groups=3, assembler=True),
            50 + 6 * (12 + 3 * 2) + 13 + 11 + 18 + 7 + 64 + 6 * 30 + 14 + 2 * (15 + 19 + 6 + 64 + 6 * 31 + 14),
        ),
        (dense.amp_1x1_worker_cycles(3, zeroing=True, dtype="f32", partials_dtype="f32"), 46 + 2 + 3 * 8),
        (dense.amp_1x1_worker_cycles(3, zeroing=True, dtype="f32", partials_dtype="f32", conv_units=8), 46 + 2 + 3 * 4),
        (dense.amp_1x1_worker_cycles(3, zeroing=True, dtype="f32", conv_units=8), 46 + 2 + 3 * 2),
        (dense.amp_1x1_worker_cycles(3, zeroing=True, conv_units=8), 41 + 2 + 3 * 2),
        (dense.amp_1x1_worker_cycles(0, zeroing=True, conv_units=8), 24),
        (dense.amp_1x1_worker_cycles(3, zeroing=True, conv_units=8, partials_dtype="f32"), 36 - 7 + 1),
        # two positions a context: 34 or 35; all end together, so the supervisor's 14 show
        (
            dense.amp_1x1_cycles(12, conv_groups=2, in_groups=3, out_groups=2),
            50
            + 6 * (7 + 3 * 5)
            + 2 * (13 + 11 + 2 * (18 + 7 + 64 + 6 * 34 + 14) + 2 * (15 + 2 * (19 + 6 + 64 + 6 * 35 + 14))),
        ),
        (dense.amp_1x1_cycles(7), 50 + 42 + 13 + 11 + 18 + 7 + 64 + 6 * 34),  # a context with one less hides the 14
        (
            dense.amp_1x1_cycles(6, out_channels_per_group=32),
            50 + 42 + 13 + 11 + 18 + 2 * (7 + 64 + 6 * 25 + 14),
        ),
        (
            dense.amp_1x1_cycles(6, in_groups=2, conv_units=8, out_channels_per_group=8),
            50 + 12 + 11 + 19 + 7 + 32 + 6 * 43 + 14 + 16 + 19 + 6 + 32 + 6 * 39 + 14,
        ),
        (dense.zero_partials_pass_cycles(100, groups=2), (9 + 5) * 6 * 2),
        (dense.zero_partials_pass_cycles(100, partials_dtype="f16"), (5 + 5) * 6),
        *(
            (dense.amp_nx1_worker_cycles([n]), 17 + 1 + 3 + by_hand - 9)
            for n, by_hand in enumerate([17, 29, 34, 34, 38, 42])
        ),
        *(
            (dense.amp_nx1_worker_cycles([n, n], dtype="f32", partials_dtype="f32"), 17 + 2 * (3 + by_hand - 9))
            for n, by_hand in enumerate([17, 33, 44, 45, 53, 61])
        ),
        (dense.amp_nx1_worker_cycles([2], partials_dtype="f32", conv_units=8), 17 + 3 + 34 - 9),
        (dense.amp_nx1_worker_cycles([2], partials_dtype="f32"), 17 + 3 + 33 - 9),
        (dense.amp_nx1_worker_cycles([2], conv_units=8), 18 + 3 + 33 - 9),
        # a row of 8 positions takes a context 18 + 48; two of six work; pairs of filter rows; 48 sums to clear
        (
            dense.amp_nx1_cycles(
                [[8], [8]],
                kernel_outer=2,
                kernel_inner=3,
                filter_height=2,
                conv_groups=2,
                in_groups=2,
                out_groups=3,
                zeroed_elements=48,
            ),
            109
            + 6 * (9 + 10)
            + 2 * (17 * 3 + 6 * 2 + 1)
            + 6
            + 1
            + 2 * (16 + 2 * (14 + 3 * (14 + 2 * (14 + 3 * (12 + 64 + 46 + 3)) + 6 * 66 * 6)))
            + (2 + 5) * 36,
        ),
        (
            dense.amp_nx1_cycles([[1]] * 6, out_channels_per_group=32, filter_height=4, partials_dtype="f32"),
            109
            + 6 * (9 + 9)
            + 17
            + 1
            + 1
            + 16
            + 14
            + 14
            + (14 + 12 + 2 * (64 + 60 + 3))
            + 2 * (6 * (17 + 3 + 29 - 9) + 9)
            + 5 * 6,
        ),
        (  # one context has eight positions, the others one: the 9 of the supervisor hide behind it
            dense.amp_nx1_cycles([[1]] * 5 + [[8]]),
            109 + 114 + 18 + 1 + 16 + 14 + 14 + 14 + 12 + 64 + 15 + 3 + 6 * 66 + 5 * 6,
        ),
        (
            dense.amp_nx1_cycles([[1]], filter_height=3),
            109 + 114 + 18 + 1 + 16 + 14 + 14 + 14 + 12 + 64 + 60 + 3 + 6 * 41 + 5 * 6,
        ),
        (dense.outer_product_cycles(10, 12, 6), 25 + 2 * (11 + 10 * 6)),
        (dense.outer_product_cycles(10, 12, 12, dtype="f16"), 25 + 10 + 10 * 6),
        (dense.outer_product_cycles(10, 16, 16, dtype="f16"), 25 + 10 + 10 * 7),
        (dense.outer_product_cycles(10, 7, 7), 25 + 11 + 10 * (10 + 14)),
        (dense.outer_product_cycles(10, 14, 14, dtype="f16"), 25 + 10 + 10 * (10 + 35)),
        (dense.outer_product_cycles(1, 1020, 1020), 25 + 11 + 6 + 507),
        (dense.outer_product_cycles(1, 1022, 1022), 25 + 11 + 10 + 2044),  # the stride no longer fits its field
    ],
    "multiply and add": [
        (formulas.dot_product_cycles(64), 6 + 1 + 4 + 16 - 1),
        (formulas.dot_product_cycles(6), 6 + 1 + 4 + 2 + 3 * 2 - 1),
        (formulas.dot_product_cycles(5, partials_dtype="f32"), 3 + 4 + 1 + 5 * 2 - 1),
        (formulas.dot_product_cycles(3, dtype="f32", partials_dtype="f32"), 3 + 4 + 1 + 3 * 2),
        (
            formulas.horizontal_mac_cycles(
                2,
                in_channels_per_group=4,
                out_channels_per_group=3,
                kernel=2,
                conv_groups=2,
                in_groups=3,
                out_groups=2,
                zeroed_elements=24,
                dtype="f32",
                partials_dtype="f32",
            ),
            58 + 6 * 9 + 2 * (23 + 3 * (15 + 2 * (10 + 6 * (2 * (16 + 19 + 2 * (7 + 3 * 9)) + 16)))) + (2 + 5) * 6 * 4,
        ),
        (
            formulas.horizontal_mac_cycles(0, in_channels_per_group=4, out_channels_per_group=4, zeroed_elements=99),
            63 + 14 + 6 * 10 + 23 + 15 + 10 + 6 * (16 + 7 + 16) + 5 * 6,
        ),
    ],
    "sparse": [  # 30 + 47 + 46 the search of one bucket; a context: overhead, rows of overhead and products
        (sparse.sparse_dense_elementwise_cycles(3, 4, 20), 6 * (30 + 3 * (11 + 2 * 20)) + 123),
        (sparse.sparse_dense_elementwise_cycles(3, 16, 20), 6 * (33 + 3 * (12 + 16 + 2 * 3 * 20)) + 123),
        (sparse.sparse_dense_elementwise_cycles(3, 12, 20), 6 * (33 + 3 * (12 + 16 + 3 * 20 + 13 + 2 * 20)) + 123),
        (sparse.sparse_dense_elementwise_cycles(3, 3, 20), 6 * (33 + 3 * (12 + 11 + 2 * 20 * 3)) + 123),
        (sparse.sparse_dense_elementwise_cycles(3, 2, 20, dtype="f32"), 6 * (27 + 3 * (11 + 2 * 20)) + 123),
        (sparse.sparse_dense_elementwise_cycles(3, 4, 20, dtype="f32"), 6 * (25 + 3 * (13 + 3 * 20)) + 123),
        (sparse.sparse_dense_elementwise_cycles(3, 8, 20, dtype="f32"), 6 * (30 + 3 * (13 + 1 + 12 + 6 * 20)) + 123),
        (
            sparse.sparse_dense_elementwise_cycles(3, 7, 20, dtype="f32"),
            6 * (30 + 3 * (13 + 3 + 12 + 3 * 20 + 8 + 3 * 2 * 20 + 8 + 2 * 20)) + 123,
        ),
        (
            sparse.sparse_dense_elementwise_cycles(3, 4, 20, buckets=2, others=3, subgroups=4),
            6 * (30 + 3 * (11 + 2 * 20)) + 30 + 32 * 12 + 2 * (5 * 47 // 2 + 46),
        ),
        (sparse.sparse_dense_elementwise_cycles(3, 4, 20, gradient_a=True), 6 * (28 + 3 * (11 + 40)) + 30 + 46 + 46),
        (sparse.sparse_dense_elementwise_cycles(3, 8, 20, gradient_a=True), 6 * (26 + 3 * (15 + 60)) + 122),
        (sparse.sparse_dense_elementwise_cycles(3, 16, 20, gradient_a=True), 6 * (32 + 3 * (11 + 14 + 120)) + 122),
        (sparse.sparse_dense_elementwise_cycles(3, 1, 20, gradient_a=True), 6 * (32 + 3 * (11 + 10 + 40)) + 122),
        (
            sparse.sparse_dense_elementwise_cycles(3, 2, 20, dtype="f32", gradient_a=True),
            6 * (25 + 3 * (11 + 40)) + 122,
        ),
        (
            sparse.sparse_dense_elementwise_cycles(3, 4, 20, dtype="f32", gradient_a=True),
            6 * (23 + 3 * (13 + 60)) + 122,
        ),
        (
            sparse.sparse_dense_elementwise_cycles(3, 5, 20, dtype="f32", gradient_a=True),
            6 * (33 + 3 * (13 + 3 + 10 + 60 + 8 + 40)) + 122,
        ),
        # transposed: 20 nonzeros are 4 a context
        (sparse.sparse_dense_transposed_cycles(3, 4, 20), 6 * (28 + 3 * (19 + 7 * 4)) + 30 + 44 + 68),
        (sparse.sparse_dense_transposed_cycles(3, 13, 19), 6 * (34 + 3 * (21 + 8 + (2 + 15) * 4 + (5 + 3) * 4)) + 142),
        (sparse.sparse_dense_transposed_cycles(3, 2, 20, dtype="f32"), 6 * (31 + 3 * (23 + 8 + 5 * 4)) + 142),
        (sparse.sparse_dense_transposed_cycles(3, 5, 20, dtype="f32"), 6 * (31 + 3 * (23 + 8 + 8 * 4 + 4 * 4)) + 142),
        (
            sparse.sparse_dense_transposed_cycles(3, 4, 20, others=2, subgroups=3),
            6 * (28 + 3 * (19 + 7 * 4)) + 30 + 6 * 32 + 2 * 44 + 68,
        ),
        # gradient at the nonzeros: 37 + 38 + 26 the search
        (sparse.sparse_gradient_w_cycles(3, 4, 20), 6 * (36 + 3 * (9 + 4 * 20)) + 101),
        (sparse.sparse_gradient_w_cycles(3, 8, 20), 6 * (34 + 3 * (10 + 5 * 20)) + 101),
        (sparse.sparse_gradient_w_cycles(3, 15, 20), 6 * (39 + 3 * (7 + (11 + 3 + 3 + 4) * 20)) + 101),
        (sparse.sparse_gradient_w_cycles(3, 5, 20), 6 * (39 + 3 * (7 + (11 + 1 + 4) * 20)) + 101),
        (sparse.sparse_gradient_w_cycles(3, 6, 20), 6 * (39 + 3 * (7 + (11 + 1 + 3) * 20)) + 101),
        (sparse.sparse_gradient_w_cycles(3, 2, 20, dtype="f32"), 6 * (36 + 3 * (6 + 4 * 20)) + 101),
        (sparse.sparse_gradient_w_cycles(3, 4, 20, dtype="f32"), 6 * (34 + 3 * (8 + 5 * 20)) + 101),
        (sparse.sparse_gradient_w_cycles(3, 7, 20, dtype="f32"), 6 * (38 + 3 * (8 + (9 + 3 + 1) * 20)) + 101),
        (sparse.sparse_gradient_w_cycles(3, 6, 20, dtype="f32"), 6 * (38 + 3 * (8 + (9 + 3) * 20)) + 101),
        (
            sparse.sparse_gradient_w_cycles(3, 4, 20, buckets=3, subgroups=3),
            6 * (36 + 3 * (9 + 4 * 20)) + 37 + 38 + 3 * 2 * 26,
        ),
        *(
            (sparse.sparse_gather_cycles(n), 18 + 6 * (23 + by_hand))
            for n, by_hand in {0: 0, 1: 10, 2: 10, 3: 14, 24: 8, 48: 8 + 5, 49: 8 + 5 + 5, 51: 8 + 5 + 9}.items()
        ),
        *(
            (sparse.sparse_gather_cycles(n, dtype="f32"), 18 + 6 * (23 + by_hand))
            for n, by_hand in {0: 0, 1: 5, 12: 5, 24: 5 + 3, 25: 5 + 3 + 2}.items()
        ),
        (sparse.zero_partials_cycles(0), 6 * 5),
        (sparse.zero_partials_cycles(9), 6 * (5 + 10 + 5)),
        (sparse.zero_partials_cycles(9, dtype="f16", block=True), 6 * (3 + 10 + 3)),
        (sparse.transpose_cycles(6, 4, 4), 7 + 6 * 29),
        (sparse.transpose_cycles(24, 4, 4), 7 + 6 * (37 + 2 * 4)),
        (sparse.transpose_cycles(18, 2, 2, dtype="f32"), 7 + 6 * (37 + 3)),
        (sparse.transpose_cycles(12, 16, 4), 7 + 6 * (27 + 2 * (35 + 2 * 4))),
        (sparse.transpose_cycles(12, 8, 2, dtype="f32"), 7 + 6 * (27 + 2 * (35 + 2 * 3))),
        (sparse.transpose_cycles(7, 4, 16), 7 + 6 * (29 + 2 * (18 + 12 + 2 * 4))),
    ],
    "sparse blocks": [  # 40 + 46 + 56 the search; a block: weights, 3 and 12 a load; then its columns
        *(
            (
                sparse.sparse_dense_block_cycles(2, z, 5, block=block, conv_units=units, **given),
                6 * (around + 10 * loads * (column + z * each - 3))
                + (5 * (weights + 3 + 12 * loads) + 1) * 2
                + 2
                + 142,
            )
            for block, units, given, around, loads, columns, each, weights in (
                (4, 16, {}, 26, 1, (15, 16, 17), 2, 4),
                (4, 8, {"partials_dtype": "f32"}, 26, 1, (17, 18, 19), 2, 4),
                (4, 16, {"dtype": "f32", "partials_dtype": "f32"}, 26, 1, (14, 14, 14), 4, 8),
                (8, 16, {}, 23, 1, (19, 20, 20), 4, 16),
                (8, 8, {"partials_dtype": "f32"}, 20, 1, (22, 23, 23), 4, 16),
                (8, 16, {"dtype": "f32", "partials_dtype": "f32"}, 23, 1, (22, 22, 23), 8, 32),
                (16, 16, {}, 22, 1, (22, 23, 22), 4, 64),
                (16, 8, {}, 23, 2, (24, 25, 24), 4, 64),
                (16, 8, {"partials_dtype": "f32"}, 23, 2, (24, 25, 24), 4, 64),
                (16, 16, {"partials_dtype": "f32"}, 23, 1, (24, 25, 24), 4, 64),
            )
            for z, column in zip((1, 2, 7), columns, strict=True)
        ),
        (
            sparse.sparse_dense_block_cycles(2, 7, 5, block=4, retain_row=False, others=2, subgroups=3),
            6 * (26 + 10 * (17 + 14)) + 5 * (4 + 15) * 2 + 2 + 40 + 33 * 6 + 2 * 46 + 56,
        ),
        (popsparse.repeated_cycles(3, 7, dtype="f16"), 0),
        (popsparse.repeated_cycles(3, 24, dtype="f16"), 2 * 17 * 3 * 6),
        (popsparse.repeated_cycles(3, 24, dtype="f32"), 5 * 12 * 3 * 6),
        (
            sparse.sparse_dense_elementwise_cycles(3, 4, 20, buckets=3)
            + popsparse.repeated_cycles(3, 4, dtype="f16", buckets=3),
            6 * (30 + 3 * (11 + 2 * 20)) + 30 + 3 * (47 + 46) + 2 * 30 * 6,
        ),
        (
            sparse.sparse_dense_block_cycles(2, 7, 5, block=16, partials_dtype="f32", conv_units=8)
            + popsparse.repeated_cycles(2, 70, dtype="f16", block=16),
            6 * (23 + 10 * 2 * (24 + 28 - 3)) + (5 * (64 + 3 + 24) + 1) * 2 + 2 + 142,
        ),
    ],
    "static sparse": [
        (int(popsparse.static_element_cycles(3, 10, 8)), 6 * (31 + 3 * (8 + 9 * 3))),
        (int(popsparse.static_element_cycles(3, 10, 16)), 6 * (33 + 3 * (11 + 2 * (14 + 27)))),
        (int(popsparse.static_element_cycles(3, 10, 2, dtype="f32")), 6 * (29 + 3 * (5 + 18))),
        (int(popsparse.static_element_cycles(3, 10, 4, dtype="f32")), 6 * (30 + 3 * (6 + 27))),
        (
            int(popsparse.static_element_cycles(3, 10, 9, dtype="f32")),
            6 * (31 + 3 * (12 + 2 * (10 + 27) + 10 + 18)),
        ),
        *(
            (
                int(popsparse.static_block_cycles(2, 5, columns, block=block, dtype=dtype)),
                30 + 6 * first + 2 * (6 * row + 17) + 5 * (16 + load + 6 * by_hand),
            )
            for dtype, block, first, row, load, counts in (
                ("f16", 4, 17, 1, 4, {1: 8, 2: 9, 3: 14 + 2}),
                ("f32", 4, 13, 1, 8, {1: 12, 3: 12 + 8}),
                ("f16", 8, 13, 1, 16, {1: 14, 3: 14 + 4}),
                ("f32", 8, 13, 4, 32, {1: 19, 3: 19 + 16}),
                ("f16", 16, 13, 1, 64, {1: 19, 3: 19 + 8}),
                ("f32", 16, 16, 4, 128, {1: 58, 2: 74 + 16, 3: 74 + 32}),
            )
            for columns, by_hand in counts.items()
        ),
        (popsparse.static_zeroing_cycles(26, dtype="f32"), (12 + 3) * 6),
        (popsparse.static_zeroing_cycles(24, dtype="f16"), (12 + 1) * 6),
        # 40 outputs: 7 a context, one loop of eight halves or two of four floats
        (popsparse.planned_reduction_cycles(40, 5, dtype="f16"), (16 + 8 + 6 + 4) * 6),
        (popsparse.planned_reduction_cycles(40, 5, dtype="f32"), (16 + 2 * (5 + 6 + 4)) * 6),
        (popsparse.planned_reduction_cycles(40, 1, dtype="f32"), 0),
    ],
}


@pytest.mark.parametrize(
    ("of", "number"), [(of, number) for of, points in POINTS.items() for number in range(len(points))]
)
def test_points_worked_out_by_hand(of: str, number: int) -> None:
    cycles, by_hand = POINTS[of][number]
    assert cycles == by_hand


# ---- what all formulas share


def test_bytes_and_vectors_of_number_formats() -> None:
    for dtypes, size, vector in (("i64 u64", 8, 1), ("f32 i32 u32", 4, 2), ("f16 i16 u16", 2, 4), ("u8 i8 bool", 1, 8)):
        for dtype in dtypes.split():
            assert arithmetic.element_bytes(dtype) == size
            assert arithmetic.vector_elements(dtype) == vector
            assert arithmetic.vector_elements(dtype, 4) == max(1, vector // 2)
            assert arithmetic.vector_elements(dtype, 16) == 2 * vector
    assert [arithmetic.ceil_log2(number) for number in (0, 1, 2, 3, 4, 5, 8, 9)] == [0, 0, 1, 2, 2, 3, 3, 4]
    assert [reductions.accumulator_elements(dtype) for dtype in ("f16", "f32", "i32")] == [8, 4, 1]


def test_formats_and_parameters_as_the_vendor_spells_them() -> None:
    assert formats("f16/f32") == formats("f16->f32") == ("f16", "f32")
    assert formats("f16") == ("f16", "f16")
    given = VendorParams(n="4", no="0", rows="7|9", empty="")
    assert (given.count("n"), given.count("m", 3), given.counts("rows")) == (4, 3, [7, 9])
    assert (given.flag("n"), given.flag("no"), given.flag("m")) == (True, False, False)
    with pytest.raises(MimdsimError, match="parameter 'm' is missing; given: empty, n, no, rows"):
        given.count("m")


@pytest.mark.parametrize("dtype", ["i32", "u8", "f64"])
def test_formats_without_a_codelet_are_refused(dtype: str) -> None:
    calls = (
        lambda: elementwise.broadcast_outer_by_row_cycles(4, 4, dtype=dtype),
        lambda: elementwise.bias_add_cycles(4, 4, dtype=dtype),
        lambda: dense.amp_1x1_worker_cycles(4, zeroing=True, dtype=dtype),
        lambda: dense.outer_product_cycles(4, 4, 4, dtype=dtype),
        lambda: formulas.dot_product_cycles(4, dtype=dtype),
        lambda: network.nonlinearity_gradient_1d_cycles(4, op="RELU", dtype=dtype),
        lambda: network.nan_check_1d_cycles(4, dtype=dtype),
        lambda: network.uniform_cycles(4, dtype=dtype),
        lambda: reductions.reduce_add_cycles(4, 4, dtype=dtype),
        lambda: reductions.reduce_add_cycles(4, 4, out_dtype=dtype),
        lambda: formulas.scaled_add_1d_cycles(4, dtype=dtype),
        lambda: sparse.sparse_dense_elementwise_cycles(4, 4, 4, dtype=dtype),
        lambda: sparse.transpose_cycles(4, 4, 4, dtype=dtype),
        lambda: popsparse.static_element_cycles(4, 4, 4, dtype=dtype),
    )
    for call in calls:
        with pytest.raises(arithmetic.NoCycleFormula, match=f"no cycle formula for '.*{dtype}"):
            call()


def test_operations_without_a_codelet_are_refused() -> None:
    calls = (
        lambda: elementwise.broadcast_outer_by_row_cycles(4, 4, op="DIVIDE"),
        lambda: reductions.reduce_strided_cycles(4, 4, stride=4, op="MUL"),
        lambda: reductions.reduce_to_scalar_cycles(4, op="LOGICAL_AND"),
        lambda: formulas.scaled_add_1d_cycles(4, op="MULTIPLY"),
        lambda: network.nonlinearity_gradient_1d_cycles(4, op="GELU"),
        lambda: reductions.multi_slice_cycles(4, 4, dtype="i64"),
        lambda: reductions.scatter_add_cycles(4, 4, dtype="u8"),
        lambda: sparse.sparse_dense_block_cycles(4, 4, 4, block=2),
        lambda: popsparse.static_block_cycles(4, 4, 4, block=1),
    )
    for call in calls:
        with pytest.raises(arithmetic.NoCycleFormula):
            call()
