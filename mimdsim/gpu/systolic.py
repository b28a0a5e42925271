"""Matrix products on weight-stationary systolic arrays (TPUs): SCALE-Sim's closed form, extended by overlap and memory.

Samajdar et al., A Systematic Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim, ISPASS
2020: a fold fills rows x columns weights, then streams; it takes 2 rows + columns + streamed - 2 cycles.
"""

from __future__ import annotations

import math

from mimdsim.machine.gpu import GpuMachine, Precision


def scale_sim_cycles(streamed: int, columns_needed: int, rows_needed: int, *, rows: int, columns: int) -> int:
    """Cycles of one array that loads, streams and drains each fold of weights before it loads the next.

    C[streamed, columns_needed] with a reduction of rows_needed. Raises ValueError when an extent is below 1.
    """
    if min(streamed, columns_needed, rows_needed, rows, columns) < 1:
        raise ValueError(
            f"systolic product {streamed} x {rows_needed} x {columns_needed} on {rows} x {columns}: "
            f"every extent must be at least 1"
        )
    return _folds(columns_needed, rows_needed, rows, columns) * (2 * rows + columns + streamed - 2)


def overlapped_cycles(streamed: int, folds: int, *, rows: int, columns: int) -> int:
    """Cycles of one array with a second set of weight registers: the next fold loads while this one streams.

    A fold then takes as long as the longer of streaming and loading; the first load, and the skew of the last fold
    through the array, stay. With one fold this is `scale_sim_cycles`.
    """
    return rows + max(folds - 1, 0) * max(streamed, rows) + streamed + rows + columns - 2


def _folds(columns_needed: int, rows_needed: int, rows: int, columns: int) -> int:
    return math.ceil(columns_needed / columns) * math.ceil(rows_needed / rows)


def systolic_seconds(
    gpu: GpuMachine,
    m: int,
    n: int,
    k: int,
    *,
    batch: int,
    precision: Precision,
    bytes_moved: int,
    on_chip: bool,
) -> tuple[float, bool]:
    """Seconds of `batch` products C[m, n] = A[m, k] B[k, n] over all arrays, and whether arithmetic is the limit.

    Whole folds are dealt to the arrays; m streams. Products of wider numbers take several passes of the bf16 unit.
    """
    arrays = gpu.systolic
    assert arrays is not None  # the caller has checked
    folds = _folds(n, k, arrays.rows, arrays.columns) * batch
    passes = {"fp16": 1, "tf32": arrays.tf32_passes, "fp32": arrays.fp32_passes}[precision]
    each = math.ceil(folds * passes / arrays.arrays)
    compute = overlapped_cycles(m, each, rows=arrays.rows, columns=arrays.columns) / gpu.chip.clock_hz
    memory = gpu.memory
    feed = memory.l2_bytes_per_second if on_chip else memory.dram_bytes_per_second * memory.streaming_share
    return max(compute, bytes_moved / feed), compute >= bytes_moved / feed
