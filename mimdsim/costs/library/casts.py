"""Cycles of the popops casts and fills.

Source: lib/popops/PerformanceEstimation.cpp, graphcore/poplibs 7eac0f2. Counts may be integers or integer arrays.
"""

from __future__ import annotations

from collections.abc import Iterable

from mimdsim.costs.library.arithmetic import (
    Elements,
    ceil_div,
    ceil_log2,
    element_bytes,
    vector_elements,
)

FLOATS = ("f32", "f16")
CHARS = ("u8", "i8")


def _byte_cast_cycles(n: Elements, fill_drain: int, per_loop: int, tails: tuple[int, int, int, int]) -> Elements:
    # A pipelined loop over four elements and one exit path for each remainder.
    atoms, rest = n // 4, n % 4
    tail = sum(cycles * (rest == count) for count, cycles in enumerate(tails))
    return (fill_drain + (atoms - 1) * per_loop) * (atoms > 0) + tail


def _cast_core_cycles(
    n: Elements, source: str, target: str, read_ports: int, interleaved: bool, vector_bytes: int
) -> Elements:
    if target in ("i64", "u64"):
        return 3 + n * (4 + (source in ("i32", "i8", "i16")))  # signed sources: one more cycle for the sign
    if source == "u8" and target == "f16":
        return 4 + _byte_cast_cycles(n, 14, 9, (2, 12, 14, 22))
    if source == "f16" and target in CHARS:
        # 4 = entry, 4 = set up the clamp to the range of a byte
        return 4 + 4 + _byte_cast_cycles(n, 19, 16, (2, 14, 21, 29))
    load = max(1, vector_bytes // element_bytes(source))
    store = max(1, vector_bytes // element_bytes(target))
    in_float_pipe = source in FLOATS and target in FLOATS
    width = min(load * read_ports, store) if in_float_pipe else 1
    load_cycles = width // min(width, load * (read_ports if interleaved else 1))
    store_cycles = width // min(width, store)
    per_vector = max(load_cycles, store_cycles) + (not in_float_pipe)
    rest = n % width
    cycles: Elements = 19 + per_vector * (n // width)
    for bit in range(ceil_log2(width)):
        # One cycle to test the bit of the remainder; two to convert and store if set.
        cycles = cycles + 1 + 2 * ((rest >> bit) & 1)
    return cycles


def cast_1d_cycles(
    n: Elements,
    *,
    source: str,
    target: str,
    interleaved: bool = False,
    worker_contexts: int = 6,
    read_ports: int = 2,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles to convert `n` elements from format `source` to `target` (Cast1D)."""
    each = ceil_div(n, worker_contexts)
    core = _cast_core_cycles(each, source, target, read_ports, interleaved, vector_bytes)
    # 12 supervisor; 18 divide the work between contexts, call and exit.
    return 12 + worker_contexts * (core + 18)


def cast_2d_cycles(
    rows: Iterable[Elements],
    *,
    source: str,
    target: str,
    interleaved: bool = False,
    read_ports: int = 2,
    vector_bytes: int = 8,
) -> Elements:
    """Worker cycles to convert rows of the given element counts (Cast2D)."""
    return sum((11 + _cast_core_cycles(n, source, target, read_ports, interleaved, vector_bytes) for n in rows), 5)


def fill_cycles(n: Elements, *, dtype: str = "f32", vector_bytes: int = 8) -> Elements:
    """Worker cycles to write `n` equal elements on one context (Fill)."""
    size = element_bytes(dtype)
    if size == 8:
        return 5 + n
    if size == 1:
        # Short fills store 32 bits at a time, others 64.
        short = n < 64
        return (28 + n // 4) * short + (39 + n // 8) * (1 - short)
    width = vector_elements(dtype, vector_bytes)
    if size == 2:
        # Fills of one or two elements never reach the aligned loop.
        return 15 * (n == 1) + 21 * (n == 2) + (26 + n // width) * ((n != 1) & (n != 2))
    # 16 before the loop, 6 checks after it, 1 for the mean alignment; 1 for a last odd element.
    return 23 + n // width + 1 * (n % width == 1)
