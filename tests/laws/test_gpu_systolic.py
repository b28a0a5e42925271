"""Systolic arrays: SCALE-Sim's closed form where its assumptions hold, and what overlap and several arrays change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimdsim.gpu.gemm import gemm_seconds, overlapped_cycles
from mimdsim.machine import GpuMachine, load_machine

extents = st.integers(1, 3000)
sides = st.integers(1, 256)


def tpu(changes: dict[str, object] | None = None) -> GpuMachine:
    machine = load_machine("tpu-v3", changes)
    assert isinstance(machine, GpuMachine)
    return machine


def scale_sim_cycles(m: int, n: int, k: int, *, rows: int, columns: int) -> int:
    """SCALE-Sim's closed form: cycles of one array that loads, streams and drains each fold before the next loads."""
    return -(-n // columns) * -(-k // rows) * (2 * rows + columns + m - 2)


@given(m=extents, n=st.integers(1, 128), k=st.integers(1, 128))
def test_one_fold_on_one_array_is_scale_sims(m: int, n: int, k: int) -> None:
    fast = {"memory.dram_bytes_per_second": "1e6 TB/s"}  # the form knows no memory
    seconds = gemm_seconds(tpu({"systolic.arrays": 1, **fast}), m, n, k, precision="fp16").seconds
    assert seconds * 0.94e9 == pytest.approx(scale_sim_cycles(m, n, k, rows=128, columns=128), rel=1e-12)


@given(m=extents, n=extents, k=extents, rows=sides, columns=sides)
def test_overlap_never_loses_and_saves_at_most_what_it_hides(m: int, n: int, k: int, rows: int, columns: int) -> None:
    folds = -(-n // columns) * -(-k // rows)
    alone = scale_sim_cycles(m, n, k, rows=rows, columns=columns)
    together = overlapped_cycles(m, folds, rows=rows, columns=columns)
    assert alone - (folds - 1) * (2 * rows + columns - 2) <= together <= alone


def test_a_small_batch_leaves_arrays_idle_while_weights_load() -> None:
    # 48 rows stream in 48 cycles, the next 128 x 128 weights take 128: at most 48 / 128 of the peak
    machine = tpu({"memory.dram_bytes_per_second": "1e6 TB/s"})
    estimate = gemm_seconds(machine, 48, 4096, 4096, precision="fp16")
    share = estimate.flops / estimate.seconds / machine.peak_flops_per_second("fp16")
    assert 0.33 < share < 48 / 128
