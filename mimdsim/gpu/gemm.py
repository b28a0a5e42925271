"""How long one dense matrix product takes on a GPU: tiles, waves of tiles, split of the reduction, three rooflines.

C[m, n] = A[m, k] B[k, n]. The library is taken to pick the fastest of a table of output tiles and reduction splits.
One set of constants for all GPUs, fitted on a coarse grid to DeepBench (V100), LLMCompass (A100, ISCA 2024) and
PopSparse (A100); mean error 5 to 18 % on nine sets of measurements. Background: NVIDIA, Matrix Multiplication
Background User's Guide, DU-09799-001 (tile and wave quantisation, largest tile 256 x 128).

The estimate grows with m, n and k except where the fit itself jumps: between a skinny product (min(m, n) <= 32, lower
DRAM share) and a wider one, and where a longer k first permits a deeper split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision

OUTPUT_TILES = (
    (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64),
    (32, 32),
)  # fmt: skip
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
SHORTEST_SPLIT = 128  # elements of k that each part of a split keeps
OUTPUTS_AT_FULL_RATE = 16384  # outputs in flight on a multiprocessor that hide its latencies
MOST_RESIDENT = 4  # output tiles on one multiprocessor at once
INTENSITY_HALF = 10.0  # tile intensity tm*tn/(tm+tn) at which half the peak is reached
BASE_RATE = 0.6  # share of the rate with almost no outputs in flight
WAVE_SECONDS = 3e-6  # prologue and epilogue of a wave
SPLIT_SECONDS = 4e-6  # adding the parts of a split reduction
TENSOR_SLICE_SECONDS = 150e-9  # a tensor unit's least time for 32 elements of k
SKINNY = 32
DRAM_SHARE_SKINNY, DRAM_SHARE, L2_SHARE = 0.70, 0.85, 0.8
L2_RESIDENT_SHARE = 0.75  # operands up to this share of the L2 stay there between launches

MODEL_SOURCE = (
    "tile, wave and split-k model, constants fitted to DeepBench, LLMCompass and PopSparse (V100, A100); "
    "mean error 5 to 18 % on those and NeuSight's V100, A100 and H100 sets"
)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What the library runs: output tile of tile_m x tile_n, and in how many parts the reduction is split."""

    tile_m: int
    tile_n: int
    split: int


@dataclass(frozen=True, kw_only=True)
class GemmEstimate:
    """One matrix product on the device, without launch. bytes_moved: operands and result once, DRAM or L2."""

    seconds: float
    bound: str  # 'compute' or 'memory'
    flops: int
    bytes_moved: int
    candidate: Candidate


def gemm_seconds(
    gpu: GpuMachine,
    m: int,
    n: int,
    k: int,
    *,
    precision: Precision,
    batch: int = 1,
    l2_resident: bool = False,
    accumulate: bool = False,
) -> GemmEstimate:
    """`batch` products C[m, n] = A[m, k] B[k, n] in one kernel. Raises ValueError when a dimension is below 1.

    l2_resident: operands and result are in the L2 already, so the DRAM roofline is the L2's. accumulate: the product
    is added to what C held (beta = 1), so that C is read as well.
    """
    if min(m, n, k, batch) < 1:
        raise ValueError(f"matrix product {batch} x ({m} x {k}) x ({k} x {n}): every dimension must be at least 1")
    device = _Device(
        multiprocessors=gpu.chip.streaming_multiprocessors,
        flops_per_second_each=gpu.flops_per_second_each(precision)
        * (1.0 if gpu.uses_tensor_unit(precision) else gpu.compute.fp32_library_share),
        slice_seconds=TENSOR_SLICE_SECONDS if gpu.uses_tensor_unit(precision) else 0.0,
        dram_bytes_per_second=gpu.memory.dram_bytes_per_second,
        l2_bytes_per_second=gpu.memory.l2_bytes_per_second,
    )
    return _estimate(device, m, n, k, ELEMENT_BYTES[precision], batch, l2_resident, accumulate)


@dataclass(frozen=True, kw_only=True)
class _Device:
    """The numbers of a GPU that a matrix product depends on; hashable, so that estimates are computed once."""

    multiprocessors: int
    flops_per_second_each: float
    slice_seconds: float
    dram_bytes_per_second: float
    l2_bytes_per_second: float


@lru_cache(maxsize=65536)
def _estimate(
    device: _Device, m: int, n: int, k: int, element_bytes: int, batch: int, l2_resident: bool, accumulate: bool
) -> GemmEstimate:
    result_bytes = m * n * batch * element_bytes
    old_bytes = result_bytes if accumulate else 0
    bytes_moved = (m * k + k * n) * batch * element_bytes + result_bytes + old_bytes
    if l2_resident:
        feed = device.l2_bytes_per_second * L2_SHARE
    else:
        feed = device.dram_bytes_per_second * (DRAM_SHARE_SKINNY if min(m, n) <= SKINNY else DRAM_SHARE)
    once = bytes_moved / feed
    best: tuple[float, bool, Candidate] | None = None
    for split in SPLITS:
        if split > 1 and k / split < SHORTEST_SPLIT:
            break  # deeper splits are shorter still
        part = math.ceil(k / split)
        for tile_m, tile_n in OUTPUT_TILES:
            tiles = math.ceil(m / tile_m) * math.ceil(n / tile_n) * batch * split
            compute = _compute_seconds(device, tile_m, tile_n, part, tiles)
            result_passes = 1 if split == 1 else 2 * split
            traffic = tiles * (tile_m + tile_n) * part * element_bytes + result_bytes * result_passes + old_bytes
            memory = max(once, traffic / (L2_SHARE * device.l2_bytes_per_second))
            seconds = max(compute, memory) + (SPLIT_SECONDS if split > 1 else 0.0)
            if best is None or seconds < best[0]:
                best = seconds, compute >= memory, Candidate(tile_m=tile_m, tile_n=tile_n, split=split)
    assert best is not None  # split 1 is always tried
    seconds, compute_bound, candidate = best
    return GemmEstimate(
        seconds=seconds,
        bound="compute" if compute_bound else "memory",
        flops=2 * m * n * k * batch,
        bytes_moved=bytes_moved,
        candidate=candidate,
    )


def _compute_seconds(device: _Device, tile_m: int, tile_n: int, k: int, tiles: int) -> float:
    """Full waves of `resident` tiles a multiprocessor, then one wave of what is left, spread evenly."""
    outputs = tile_m * tile_n
    resident = min(max(OUTPUTS_AT_FULL_RATE // outputs, 1), MOST_RESIDENT)
    waves, left = divmod(tiles, device.multiprocessors * resident)
    seconds = waves * _wave_seconds(device, outputs, tile_m + tile_n, k, resident) + WAVE_SECONDS * waves
    if left:
        seconds += _wave_seconds(device, outputs, tile_m + tile_n, k, math.ceil(left / device.multiprocessors))
        seconds += WAVE_SECONDS
    return seconds


def _wave_seconds(device: _Device, outputs: int, edges: int, k: int, resident: int) -> float:
    """`resident` tiles of `outputs` results side by side on one multiprocessor, k padded to 16."""
    intensity = outputs / edges
    efficiency = intensity / (intensity + INTENSITY_HALF)
    hiding = min(1.0, BASE_RATE + (1 - BASE_RATE) * resident * outputs / OUTPUTS_AT_FULL_RATE)
    flops = resident * 2 * outputs * math.ceil(k / 16) * 16
    return max(
        math.ceil(k / 32) * device.slice_seconds,
        flops / (device.flops_per_second_each * efficiency * hiding),
    )
