"""Cycles of popops scaled arithmetic: A += k B, A -= k B and A = a X + b Y on one number format.

Source: lib/popops/PerformanceEstimation.cpp, graphcore/poplibs 7eac0f2. Counts may be integers or integer arrays.
"""

from __future__ import annotations

from collections.abc import Iterable

from mimdsim.costs.library.arithmetic import (
    Elements,
    NoCycleFormula,
    cycles_if,
    larger,
    vector_elements,
    whole_and_rest,
)
from mimdsim.costs.library.elementwise import SUPERVISOR_CYCLES

OPERATIONS = ("ADD", "SUBTRACT", "AXPLUSBY", "AXMINUSBY")


def _check(op: str, dtype: str) -> None:
    if op not in OPERATIONS:
        raise NoCycleFormula("scaled arithmetic", op, OPERATIONS)
    if dtype not in ("f32", "f16"):
        raise NoCycleFormula("scaled arithmetic", dtype, ["f32", "f16"])


def scaled_add_1d_cycles(
    n: Elements,
    *,
    op: str = "ADD",
    dtype: str = "f32",
    constant_scale: bool = False,
    memory_constrained: bool = False,
    as_vendor: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles of a scaled addition of `n` elements (ScaledAddSupervisor, aXPlusbYSupervisor ...).

    `memory_constrained`: the operands lie in different memory elements, so that loads and stores overlap.
    `as_vendor` repeats the vendor's slip: a comparison of an unsigned number with zero, never true, drops the extra
    vector that some contexts process. By default that vector is counted.
    """
    _check(op, dtype)
    per_vector = vector_elements(dtype, vector_bytes)
    vectors, rest = whole_and_rest(n, per_vector)
    each, extra = whole_and_rest(vectors, worker_contexts)
    both_scaled = op in ("AXPLUSBY", "AXMINUSBY")
    wide = both_scaled and dtype == "f32"
    # Load, load, multiply-add with store: three bundles a vector; two, then one, if memory lets them overlap.
    inner: Elements = 3
    if memory_constrained and not wide:
        inner = 2 - 1 * (each >= 16)
    # 1 = exit; the common codelet also compares its context's number (2) before the remainder.
    prologue, ending = (16, 1) if wide else (15, 3)

    def worker(count: Elements) -> Elements:
        return prologue + (6 + inner * (count - 1)) * (count > 0) + ending  # 6 fills the pipeline with one vector

    if dtype == "f32":
        tail = cycles_if(rest > 0, 5 if wide else 8)
    else:
        tail = cycles_if(rest > 0, 5) + cycles_if(rest >= 2, 7) + cycles_if(rest == 3, 6)
    # +1: the context after the last one with an extra vector asks whether a remainder is left.
    slowest = worker(each) + 1 + tail
    if not as_vendor:
        slowest = larger(slowest, worker(each + 1 * (extra > 0)))
    fixed = 21 + SUPERVISOR_CYCLES + 7 + 12
    if not constant_scale:
        fixed += 6 + {"AXPLUSBY": 12, "SUBTRACT": 7}.get(op, 0)  # 6: setzi and branch around the constant
    remainder = cycles_if(rest > 0, 6)  # the branch around the remainder is not taken
    return fixed + remainder + worker_contexts * slowest


def _row_tail_cycles(rest: Elements, dtype: str) -> Elements:
    if dtype == "f32":
        return cycles_if(rest > 0, 7)
    return cycles_if(rest > 0, 4) + cycles_if(rest >= 2, 6) + 7 * (rest % 2)  # look, a pair, a single element


def scaled_add_2d_cycles(
    rows: Iterable[Elements],
    *,
    op: str = "ADD",
    dtype: str = "f32",
    constant_scale: bool = False,
    memory_constrained: bool = False,
    vector_bytes: int = 8,
) -> Elements:
    """Worker cycles of a scaled addition over rows (ScaledAdd2D, aXPlusbY2D ...; popopsCycleEstimators.cpp)."""
    _check(op, dtype)
    wide = op in ("AXPLUSBY", "AXMINUSBY") and dtype == "f32"
    inner = 2 if memory_constrained and not wide else 3
    total: Elements = 9
    if constant_scale:
        total = total + (4 if op == "AXPLUSBY" else 0)
    else:
        total = total + 1 + {"SUBTRACT": 2, "AXPLUSBY": 6}.get(op, 0)
    per_vector = vector_elements(dtype, vector_bytes)
    for n in rows:
        vectors, rest = whole_and_rest(n, per_vector)
        total = total + 15 + cycles_if(vectors > 0, 5) + inner * vectors + _row_tail_cycles(rest, dtype)
    return total
