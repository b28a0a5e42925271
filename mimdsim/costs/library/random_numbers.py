"""Cycles of the poprand codelets: uniform, Bernoulli, normal, truncated normal, dropout.

Source: lib/poprand/poprandCycleEstimators.cpp, graphcore/poplibs 7eac0f2. Counts may be integers or integer arrays.
The vendor's Uniform and Bernoulli divide the width of the data path in bits by 2 or 4 instead of 32 or 16 and so count
one store for 32 floats; the assembly stores one 64-bit vector per bundle. `as_vendor=True` repeats the vendor's figure.
"""

from __future__ import annotations

from mimdsim.costs.library.arithmetic import Elements, NoCycleFormula, truncated_loop_cycles, vector_elements


def _width(dtype: str, vector_bytes: int, as_vendor: bool = False) -> int:
    if dtype not in ("f32", "f16"):
        raise NoCycleFormula("random numbers", dtype, ["f32", "f16"])
    right = vector_elements(dtype, vector_bytes)
    # bits / (elements per vector) where bits / (bits per element) was meant
    return 8 * vector_bytes // right if as_vendor else right


def _ragged(n: Elements, width: int) -> Elements:
    return 1 * (n % width != 0)


def uniform_cycles(
    n: Elements, *, dtype: str = "f32", as_vendor: bool = False, worker_contexts: int = 6, vector_bytes: int = 8
) -> Elements:
    """Tile cycles to draw `n` uniform numbers (Uniform)."""
    width = _width(dtype, vector_bytes, as_vendor)
    overhead, tail = (22, 4) if dtype == "f32" else (24, 12)
    # 4 = supervisor call; 4 per vector: draw, convert, scale, store.
    return 4 + truncated_loop_cycles(n, 4, width) + overhead * worker_contexts + tail * _ragged(n, width)


def bernoulli_cycles(
    n: Elements, *, dtype: str = "f32", as_vendor: bool = False, worker_contexts: int = 6, vector_bytes: int = 8
) -> Elements:
    """Tile cycles to draw `n` zeros or ones (Bernoulli): the mask instruction and its store share a bundle."""
    width = _width(dtype, vector_bytes, as_vendor)
    overhead, tail = (23, 1) if dtype == "f32" else (21, 9)
    return 4 + truncated_loop_cycles(n, 1, width) + overhead * worker_contexts + tail * _ragged(n, width)


def normal_cycles(n: Elements, *, dtype: str = "f32", worker_contexts: int = 6, vector_bytes: int = 8) -> Elements:
    """Tile cycles to draw `n` normal numbers (Normal)."""
    width = _width(dtype, vector_bytes)
    overhead, tail = (22, 3) if dtype == "f32" else (24, 12)
    return 4 + truncated_loop_cycles(n, 4, width) + overhead * worker_contexts + tail * _ragged(n, width)


def truncated_normal_cycles(
    n: Elements, iterations: int, *, dtype: str = "f32", worker_contexts: int = 6, vector_bytes: int = 8
) -> Elements:
    """Tile cycles to draw `n` truncated normal numbers with `iterations` tries each (TruncatedNormal)."""
    width = _width(dtype, vector_bytes)
    if dtype == "f32":
        overhead, per_vector, tail = 26, 11 * iterations + 5, 13 * iterations + 2
    else:
        overhead, per_vector, tail = 28, 12 * iterations + 5, 12 * iterations + 10
    return 4 + truncated_loop_cycles(n, per_vector, width) + overhead * worker_contexts + tail * _ragged(n, width)


def dropout_cycles(n: Elements, *, dtype: str = "f32", worker_contexts: int = 6, vector_bytes: int = 8) -> Elements:
    """Tile cycles to zero a random part of `n` elements and scale the rest (Dropout)."""
    width = _width(dtype, vector_bytes)
    tail = 1 if dtype == "f32" else 9
    return 6 + 24 * worker_contexts + truncated_loop_cycles(n, 2, width) + tail * _ragged(n, width)
