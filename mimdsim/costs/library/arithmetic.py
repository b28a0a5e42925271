"""Integer arithmetic and number formats that all cycle formulas share; element counts may be integers or arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimdsim.base.errors import MimdsimError, suggest

# An element count: a Python integer, or an integer array of any shape, costed in one call.
Elements = int | NDArray[np.integer[Any]]

BYTES = {"f32": 4, "f16": 2, "i32": 4, "u32": 4, "i16": 2, "u16": 2, "i64": 8, "u64": 8, "u8": 1, "i8": 1, "bool": 1}


class NoCycleFormula(MimdsimError):
    """No cycle formula is known for an operation or number format."""

    def __init__(self, what: str, asked: object, known: Any):
        super().__init__(f"{what}: no cycle formula for '{asked}'{suggest(str(asked), [str(name) for name in known])}")


def ceil_div(dividend: Elements, divisor: int) -> Elements:
    """The quotient rounded up, without going through floating point or below zero."""
    return (dividend + divisor - 1) // divisor


def larger(first: Elements, second: Elements) -> Elements:
    """The larger of two counts, element by element; plain integers stay plain integers."""
    return first + (second - first) * (second > first)


def element_bytes(dtype: str) -> int:
    """Bytes of one element of `dtype`; raises NoCycleFormula for an unknown format."""
    if dtype not in BYTES:
        raise NoCycleFormula("number format", dtype, BYTES)
    return BYTES[dtype]


def check_float(dtype: str, where: str) -> None:
    """Raises NoCycleFormula for a format that is neither a float nor a half."""
    if dtype not in ("f32", "f16"):
        raise NoCycleFormula(where, dtype, ["f32", "f16"])


def vector_elements(dtype: str, vector_bytes: int = 8) -> int:
    """Elements of `dtype` that one load or store of `vector_bytes` moves, at least one."""
    return max(1, vector_bytes // element_bytes(dtype))


def truncated_loop_cycles(n: Elements, cycles_per_vector: int, elements_per_vector: int) -> Elements:
    """Worker cycles of a vector loop as the vendor rounds it: divided after multiplying, so part vectors count in part.

    Source: basicOpLoopCycles, lib/popops/PerformanceEstimation.cpp, graphcore/poplibs 7eac0f2.
    """
    return cycles_per_vector * (n + elements_per_vector - 1) // elements_per_vector


def ceil_log2(number: int) -> int:
    """The exponent of the smallest power of two that is not below `number`; 0 for 1."""
    return max(0, number - 1).bit_length()
