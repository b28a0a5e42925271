"""Cycles of popnn and the remaining popops codelets: nonlinearity gradient, arg-max, sort, one-hot, NaN check.

Sources: lib/popnn/popnnCycleEstimators.cpp and lib/popops/popopsCycleEstimators.cpp, graphcore/poplibs 7eac0f2.
Counts may be integers or integer arrays where the type says so.
"""

from __future__ import annotations

from mimdsim.costs.library.arithmetic import (
    Elements,
    NoCycleFormula,
    ceil_div,
    check_float,
    larger,
    truncated_loop_cycles,
    vector_elements,
)
from mimdsim.costs.library.elementwise import SUPERVISOR_CYCLES

# Operation cycles of the gradient loop: load the gradient, load the output, multiply and store.
GRADIENT_CYCLES = {"RELU": 3, "SIGMOID": 3, "TANH": 3}


def nonlinearity_gradient_1d_cycles(
    n: Elements, *, op: str, dtype: str = "f32", worker_contexts: int = 6, vector_bytes: int = 8
) -> Elements:
    """Tile cycles of in_gradient = out_gradient * op'(out) over `n` elements (NonLinearityGrad1D)."""
    if op not in GRADIENT_CYCLES:
        raise NoCycleFormula("nonlinearity gradient", op, GRADIENT_CYCLES)
    check_float(dtype, "nonlinearity gradient")
    per_op = GRADIENT_CYCLES[op]
    width = vector_elements(dtype, vector_bytes)
    vectors, rest = ceil_div(n // width, worker_contexts), n % width
    # 20 = state 3, split 5, context number 2, extra vectors 3, offsets 3, preload 3, branch 1.
    worker = 20 + (4 + per_op * (vectors - 1) + 1) * (vectors > 0)
    if dtype == "f32":
        worker = worker + 4 + (per_op + 1) * (rest > 0)
    else:
        worker = worker + 6 + (per_op + 2) * ((rest >> 1) & 1) + (per_op + 4) * (rest & 1)
    return 9 + worker_contexts * worker


def arg_max_cycles(
    n: Elements, elements_per_worker: Elements, *, dtype: str = "f32", worker_contexts: int = 6
) -> Elements:
    """Tile cycles to find the largest of each context's `elements_per_worker` elements (ReduceMaxClassGather)."""
    if dtype in ("f32", "f16"):
        # The first element is loaded as the maximum, hence one less; a tensor shorter than one share ends earlier.
        shortest = -larger(-(elements_per_worker - 1), -(n - 1))
        worker = 30 + 3 * shortest
    else:
        shares = (n + elements_per_worker - 1) // elements_per_worker
        worker = 22 + shares * (6 * elements_per_worker + 25)  # compiled, one context
    return 9 + worker_contexts * worker


def heap_sort_cycles(n: int, *, key_and_value: bool = False) -> int:
    """Worker cycles to sort `n` keys in place if every sift goes to the bottom (HeapSortVertex, HeapSortVertexKV)."""
    depth = max(1, n).bit_length() - 1
    return (16 if key_and_value else 8) * (19 * n * depth + 6 * n + 2)


def one_hot_cycles(indices: Elements, *, dtype: str = "f16") -> Elements:
    """Tile cycles to write a one for each index, taking the worst branch each time (EncodeOneHot)."""
    if dtype == "f16":
        return SUPERVISOR_CYCLES + (62 + 12) * indices  # 62 find and merge the half word, 12 test for ignored
    return 100 * indices  # compiled code


def _nan_loop_cycles(n: Elements, dtype: str, infinities: bool) -> Elements:
    start = 10 if dtype == "f32" else 12
    if dtype == "f16" and infinities:
        # Halves accumulate eight at a time; each shorter piece takes two.
        return start + 2 * (n // 8) + 2 * ((n >> 2) & 1) + 2 * ((n >> 1) & 1) + 2 * (n & 1)
    per_vector = 2 if dtype == "f32" and not infinities else 3
    return start + per_vector * (n // 4) + 2 * ((n >> 1) & 1) + (n & 1)


def nan_check_1d_cycles(
    vectors_per_worker: Elements,
    *,
    extra_vector_workers: int = 0,
    rest: int = 0,
    infinities: bool = False,
    dtype: str = "f32",
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles to look for a NaN (and an infinity) in what each context holds (HasNaNOrInf1D).

    The longest share has `vectors_per_worker` vectors, one more if any of `extra_vector_workers`, and `rest` elements.
    """
    check_float(dtype, "NaN check")
    longest = (vectors_per_worker + (extra_vector_workers > 0)) * vector_elements(dtype, vector_bytes) + rest
    verdict = (7 if dtype == "f32" else 11) + infinities
    # 17 = load the state and split the work; 24 = supervisor.
    return 24 + worker_contexts * (17 + _nan_loop_cycles(longest, dtype, infinities) + verdict)


def _drawing_cycles(
    n: Elements, dtype: str, vector_bytes: int, per_vector: int, tail: tuple[int, int], as_vendor: bool = False
) -> Elements:
    """The loop over vectors and, for floats or halves, the tail where one is not full."""
    check_float(dtype, "random numbers")
    width = vector_elements(dtype, vector_bytes)
    if as_vendor:  # bits / (elements per vector) where bits / (bits per element) was meant
        width = 8 * vector_bytes // width
    return truncated_loop_cycles(n, per_vector, width) + tail[dtype == "f16"] * (n % width != 0)


def uniform_cycles(
    n: Elements, *, dtype: str = "f32", as_vendor: bool = False, worker_contexts: int = 6, vector_bytes: int = 8
) -> Elements:
    """Tile cycles to draw `n` uniform numbers (Uniform)."""
    # 4 = supervisor call; 4 per vector: draw, convert, scale, store.
    drawn = _drawing_cycles(n, dtype, vector_bytes, 4, (4, 12), as_vendor)
    return 4 + (22 if dtype == "f32" else 24) * worker_contexts + drawn


def bernoulli_cycles(
    n: Elements, *, dtype: str = "f32", as_vendor: bool = False, worker_contexts: int = 6, vector_bytes: int = 8
) -> Elements:
    """Tile cycles to draw `n` zeros or ones (Bernoulli): the mask instruction and its store share a bundle."""
    drawn = _drawing_cycles(n, dtype, vector_bytes, 1, (1, 9), as_vendor)
    return 4 + (23 if dtype == "f32" else 21) * worker_contexts + drawn


def normal_cycles(n: Elements, *, dtype: str = "f32", worker_contexts: int = 6, vector_bytes: int = 8) -> Elements:
    """Tile cycles to draw `n` normal numbers (Normal)."""
    drawn = _drawing_cycles(n, dtype, vector_bytes, 4, (3, 12))
    return 4 + (22 if dtype == "f32" else 24) * worker_contexts + drawn


def dropout_cycles(n: Elements, *, dtype: str = "f32", worker_contexts: int = 6, vector_bytes: int = 8) -> Elements:
    """Tile cycles to zero a random part of `n` elements and scale the rest (Dropout)."""
    return 6 + 24 * worker_contexts + _drawing_cycles(n, dtype, vector_bytes, 2, (1, 9))
