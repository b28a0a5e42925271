"""How long one dense matrix product takes on a GPU: tiles, waves of tiles, split of the reduction, three rooflines.

C[m, n] = A[m, k] B[k, n]. The library is assumed to pick the fastest of the output tiles that it ships and of a table
of reduction splits. One set of parameters for all GPUs, `CALIBRATED`; differences between devices are in their
descriptions. Background: NVIDIA, Matrix Multiplication Background User's Guide, DU-09799-001 (tile and wave
quantisation, largest tile 256 x 128). Errors per data set, and with each device left out of the calibration:
docs/gpu-model.md.

Every candidate's estimate grows with m, n, k and the bytes moved, and no larger product has a candidate that a smaller
one lacks, so the estimate grows too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision


def overlapped_cycles(streamed: int, folds: int, *, rows: int, columns: int) -> int:
    """Cycles of one array with a second set of weight registers: the next fold loads while this one streams.

    A fold then takes as long as the longer of streaming and loading; the first load, and the skew of the last fold
    through the array, stay. With one fold this is SCALE-Sim's closed form.
    """
    return rows + max(folds - 1, 0) * max(streamed, rows) + streamed + rows + columns - 2


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
    folds = math.ceil(n / arrays.columns) * math.ceil(k / arrays.rows) * batch
    passes = {"fp16": 1, "tf32": arrays.tf32_passes, "fp32": arrays.fp32_passes}[precision]
    each = math.ceil(folds * passes / arrays.arrays)
    compute = overlapped_cycles(m, each, rows=arrays.rows, columns=arrays.columns) / gpu.chip.clock_hz
    memory = gpu.memory
    feed = memory.l2_bytes_per_second if on_chip else memory.dram_bytes_per_second * memory.streaming_share
    return max(compute, bytes_moved / feed), compute >= bytes_moved / feed


# Tiles that cuBLAS has kernels for, by their names in public profiles: volta_sgemm and ampere_sgemm (128x128 to 32x32)
# for SIMT, s16816gemm (256x128 to 64x64 and sliced ones) for tensor units; either operand may be the wide one.
SIMT_TILES = (
    (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32),
)  # fmt: skip
TENSOR_TILES = ((256, 128), (128, 256), (256, 64), (64, 256), *SIMT_TILES)
# SIMT tiles of newer libraries (cutlass_80_simt_sgemm_128x256), where `Compute.fp32_wide_share` says what they reach
WIDE_TILES = ((256, 128), (128, 256))
# Of a batch that fills the device the SIMT library takes this tile, even where much of it is padding. Kind: assumed,
# from the kernels' names in the 7 batched rows of gemm_measurements_2.csv (512 x 64 and 64 x 3072 are among them).
BATCHED_SIMT_TILES = ((128, 128),)
SPLITS: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
SHORTEST_SPLIT = 128  # elements of k that a part of a split costs at least; assumed
OUTPUTS_AT_FULL_RATE = 16384  # sums in flight that hide all latency, those of a 128 x 128 tile; assumed
# A reduction is split to fill multiprocessors that would have no tile, never into more parts than run at once: half of
# the registers hold sums then. CUTLASS, efficient_gemm.md, "Parallelized Reductions"; the half is assumed.
OUTPUTS_OF_SPLIT = 32768
MOST_RESIDENT = 4  # output tiles on one multiprocessor at once; assumed
ALIGNED_BYTES = 16  # of a row, for asynchronous copies of the widest kind; CUTLASS, "Alignment" in its profiler
NARROW_TILE = 64  # kernels for narrow products; assumed
L2_SHARE = 0.8  # of the L2's read rate that products reach; assumed
L2_RESIDENT_SHARE = 0.75  # operands up to this share of the L2 stay there between launches; assumed

MODEL_SOURCE = (
    "tile, wave and split-k model, one set of parameters calibrated on gemm_measurements.csv (V100, A100); mean error "
    "5 to 8 % on its four sets of measurements, 4 to 8 % on three others, docs/gpu-model.md"
)


@dataclass(frozen=True, kw_only=True)
class ProductParameters:
    """Parameters calibrated on measurements, the same for all devices.

    simt_intensity_half, tensor_intensity_half: tile intensity tm*tn/(tm+tn) at which half the peak is reached, because
    a tile's operands pass through the shared memory. lone_tile_share: share of its rate that a multiprocessor reaches
    with almost no sums in flight. wave_seconds: start and end of a wave of tiles. split_seconds: what a split reduction
    must save before the library takes it. transposed_dram_share: share of the DRAM's peak at which narrow tiles read a
    transposed weight.
    """

    simt_intensity_half: float
    tensor_intensity_half: float
    lone_tile_share: float
    wave_seconds: float
    split_seconds: float
    transposed_dram_share: float


# kind: derived, calibrated on gemm_measurements.csv and rounded; benchmarks/gpu/calibrate_products.py shows how well
CALIBRATED = ProductParameters(
    simt_intensity_half=4.0,
    # published: 295 of 312 TFLOP/s on an A100 (zeros, 256 x 128, thonking.ai on predictable data) give 4.8, 101 of 112
    # on a V100 (128 x 128, forums.developer.nvidia.com/t/79781) give 7
    tensor_intensity_half=6.0,
    lone_tile_share=0.8,
    wave_seconds=2e-6,
    split_seconds=15e-6,
    transposed_dram_share=0.55,
)


class Candidate(NamedTuple):
    """The kernel the library runs: output tile of tile_m x tile_n, and the number of parts of the reduction."""

    tile_m: int
    tile_n: int
    split: int


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """What one kernel takes, or one round of several. bound: its larger part, 'compute', 'memory', 'launch' or 'host'.
    bytes_moved: operands and result once, DRAM or L2. candidate: of a matrix product."""

    seconds: float
    bound: str
    bytes_moved: float
    flops: int = 0
    candidate: Candidate | None = None


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
    transposed_weight: bool = False,
    power_limited: bool = True,
    aligned: bool = True,
    bytes_moved: int | None = None,
    splits: tuple[int, ...] = SPLITS,
    rate: float = 1.0,
    parameters: ProductParameters = CALIBRATED,
) -> KernelTime:
    """`batch` products C[m, n] = A[m, k] B[k, n] in one kernel, without its launch. Raises ValueError when a dimension
    is below 1.

    l2_resident: operands and result are in the L2 already, so the DRAM roofline is the L2's. accumulate: the product is
    added to what C held (beta = 1), so that C is read as well. transposed_weight: the larger operand is stored with k
    innermost, as torch.nn.Linear keeps it. power_limited: products run long enough for the board's power limit to act.
    aligned: rows start at multiples of 16 bytes (`rows_aligned`). For convolutions: bytes_moved, where they are not
    those of operands and result; splits that kernels have; rate: share of the arithmetic's.
    """
    if min(m, n, k, batch) < 1:
        raise ValueError(f"matrix product {batch} x ({m} x {k}) x ({k} x {n}): every dimension must be at least 1")
    element_bytes = ELEMENT_BYTES[precision]
    result_bytes = m * n * batch * element_bytes
    moved = (m * k + k * n) * batch * element_bytes + result_bytes * (2 if accumulate else 1)
    moved = moved if bytes_moved is None else bytes_moved
    if gpu.systolic is not None:
        seconds, compute_bound = systolic_seconds(
            gpu, m, n, k, batch=batch, precision=precision, bytes_moved=moved, on_chip=l2_resident
        )
        candidate = Candidate(m, gpu.systolic.columns, 1)
    else:
        device = _device(
            gpu, precision, l2_resident=l2_resident, transposed_weight=transposed_weight,
            power_limited=power_limited, aligned=aligned, splits=splits, rate=rate, how=parameters,
        )  # fmt: skip
        seconds, compute_bound, candidate = _fastest_kernel(device, m, n, k, element_bytes, batch, moved, accumulate)
    return KernelTime(
        seconds=seconds,
        bound="compute" if compute_bound else "memory",
        flops=2 * m * n * k * batch,
        bytes_moved=moved,
        candidate=candidate,
    )


def rows_aligned(*extents: int, precision: Precision) -> bool:
    """Whether rows of so many numbers start at multiples of 16 bytes, as copies into the shared memory need."""
    return all(extent * ELEMENT_BYTES[precision] % ALIGNED_BYTES == 0 for extent in extents)


@dataclass(frozen=True, kw_only=True)
class _Device:
    """The numbers that a matrix product depends on; hashable, so that estimates are computed once."""

    multiprocessors: int
    tensor: bool
    flops_per_second_each: float
    power_share: float
    sharing: int
    seconds_per_k: float
    intensity_half: float
    wide_gain: float  # rate of WIDE_TILES over that of others; 0: the library has none
    tile_edge: int
    feed_bytes_per_second: float
    narrow_feed_bytes_per_second: float
    l2_bytes_per_second: float
    splits: tuple[int, ...]
    how: ProductParameters


def feed_bytes_per_second(gpu: GpuMachine, *, l2_resident: bool) -> float:
    """At which products read operands and write results."""
    memory = gpu.memory
    if l2_resident:
        return memory.l2_bytes_per_second * L2_SHARE
    return memory.dram_bytes_per_second * memory.streaming_share


def _device(
    gpu: GpuMachine,
    precision: Precision,
    *,
    l2_resident: bool,
    transposed_weight: bool,
    power_limited: bool,
    aligned: bool,
    splits: tuple[int, ...],
    rate: float,
    how: ProductParameters,
) -> _Device:
    tensor, memory = gpu.uses_tensor_unit(precision), gpu.memory
    wide_share = gpu.compute.fp32_wide_share or 0.0
    clock = (gpu.chip.tensor_clock_hz or gpu.chip.clock_hz) if tensor else gpu.chip.clock_hz
    latency = memory.l2_latency_cycles if l2_resident else memory.dram_latency_cycles
    feed = narrow = feed_bytes_per_second(gpu, l2_resident=l2_resident)
    if transposed_weight and not l2_resident:
        narrow = min(feed, memory.dram_bytes_per_second * how.transposed_dram_share)
    in_flight = gpu.chip.tensor_k_in_flight * ELEMENT_BYTES["fp16"] / ELEMENT_BYTES[precision]
    return _Device(
        multiprocessors=gpu.chip.streaming_multiprocessors,
        tensor=tensor,
        flops_per_second_each=gpu.flops_per_second_each(precision)
        * gpu.library_share(precision)
        * rate
        * (1.0 if aligned or not tensor else gpu.chip.tensor_unaligned_share),
        power_share=gpu.power_share(precision) if power_limited else 1.0,
        sharing=gpu.chip.cluster_multiprocessors if tensor else 1,
        seconds_per_k=latency / in_flight / clock if tensor else 0.0,
        intensity_half=how.tensor_intensity_half if tensor else how.simt_intensity_half,
        wide_gain=0.0 if tensor else wide_share / gpu.compute.fp32_library_share,
        tile_edge=gpu.chip.tensor_tile_edge if tensor else 1,
        feed_bytes_per_second=feed,
        narrow_feed_bytes_per_second=narrow,
        l2_bytes_per_second=memory.l2_bytes_per_second * L2_SHARE,
        splits=splits,
        how=how,
    )


@lru_cache(maxsize=65536)
def _fastest_kernel(
    device: _Device, m: int, n: int, k: int, element_bytes: int, batch: int, moved: int, accumulate: bool
) -> tuple[float, bool, Candidate]:
    """Seconds, whether arithmetic is the limit, and the kernel the library runs."""
    result_bytes = m * n * batch * element_bytes
    best: tuple[float, bool, Candidate] | None = None
    for split in device.splits if batch == 1 else (1,):  # the grid's third dimension holds the splits or the batch
        part = k if split == 1 else max(math.ceil(k / split), SHORTEST_SPLIT)
        result_passes = 1 if split == 1 else 2 * split
        for tile_m, tile_n in _library_tiles(device, m, n, batch):
            tiles = math.ceil(m / tile_m) * math.ceil(n / tile_n) * batch * split
            if split > 1 and tiles * tile_m * tile_n > device.multiprocessors * OUTPUTS_OF_SPLIT:
                continue
            # rows and columns beyond the matrix are zeros, which draw so little that the power limit does not act
            filled = min(1.0, m / tile_m) * min(1.0, n / tile_n)
            clock = min(1.0, device.power_share / filled)
            compute = _compute_seconds(device, tile_m, tile_n, part, tiles, clock)
            read = min(tile_m, tile_n) + max(tile_m, tile_n) / device.sharing
            traffic = tiles * read * part * element_bytes + result_bytes * (result_passes + accumulate)
            narrow = min(tile_m, tile_n) <= NARROW_TILE
            feed = device.narrow_feed_bytes_per_second if narrow else device.feed_bytes_per_second
            memory = max(moved / feed, traffic / device.l2_bytes_per_second)
            seconds = max(compute, memory) + (device.how.split_seconds if split > 1 else 0.0)
            if best is None or seconds < best[0]:
                best = seconds, compute >= memory, Candidate(tile_m, tile_n, split)
    assert best is not None  # the tables are not empty
    return best


def _library_tiles(device: _Device, m: int, n: int, batch: int) -> tuple[tuple[int, int], ...]:
    """The output tiles that the library chooses from."""
    if device.tensor:
        return tuple(tile for tile in TENSOR_TILES if min(tile) >= device.tile_edge)
    fills = all(
        math.ceil(m / tile_m) * math.ceil(n / tile_n) * batch >= device.multiprocessors
        for tile_m, tile_n in BATCHED_SIMT_TILES
    )
    if batch > 1 and fills:
        return BATCHED_SIMT_TILES
    return (*SIMT_TILES, *WIDE_TILES) if device.wide_gain else SIMT_TILES


def _compute_seconds(device: _Device, tile_m: int, tile_n: int, k: int, tiles: int, clock: float) -> float:
    """Full waves of `resident` tiles a multiprocessor, then one wave of the rest, spread evenly; clock: a share."""
    outputs = tile_m * tile_n
    resident = min(max(OUTPUTS_AT_FULL_RATE // outputs, 1), MOST_RESIDENT)
    waves, left = divmod(tiles, device.multiprocessors * resident)
    start = device.how.wave_seconds
    seconds = waves * (_wave_seconds(device, outputs, tile_m + tile_n, k, resident) / clock + start)
    if left:
        last = math.ceil(left / device.multiprocessors)
        seconds += _wave_seconds(device, outputs, tile_m + tile_n, k, last) / clock + start
    return seconds


def _wave_seconds(device: _Device, outputs: int, edges: int, k: int, resident: int) -> float:
    """`resident` tiles of `outputs` results side by side on one multiprocessor, k padded to 16."""
    intensity = outputs / edges
    efficiency = intensity / (intensity + device.intensity_half)
    if outputs > OUTPUTS_AT_FULL_RATE and not device.tensor:
        efficiency *= device.wide_gain
    alone = device.how.lone_tile_share
    hiding = min(1.0, alone + (1 - alone) * resident * outputs / OUTPUTS_AT_FULL_RATE)
    padded = math.ceil(k / 16) * 16
    return max(
        padded * device.seconds_per_k,
        resident * 2 * outputs * padded / (device.flops_per_second_each * efficiency * hiding),
    )
