"""How long a convolution, or one of its gradients, takes on a GPU: implicit GEMM as cuDNN has it.

It is the product of `gemm.py` with four differences, each seen in cuDNN's times and kernels on an H100
(references/gpu_convolutions.csv): the start takes longer; on tensor units channels are padded, in memory to 16 bytes
and in the reduction to a slice of one tap; kernels for channels that are no multiple of 16 bytes gather through
registers, so arithmetic does not hide what they move; and gradients are slower in TF32 and fp32. Numbers were chosen on
four networks of benchmarks/gpu/measure_convolutions.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from mimdsim.gpu.gemm import ALIGNED_BYTES, SPLITS, KernelTime, feed_bytes_per_second, gemm_seconds
from mimdsim.graph.convolution import Patches, pixels_of
from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision

MODEL_SOURCE = (
    "implicit GEMM with padded channels and four numbers calibrated on single passes of four networks on an H100 "
    "(references/gpu_convolutions.csv), mean error 20 % on eight others; on other devices assumed, docs/gpu-model.md"
)
GROUPS_SOURCE = (
    "guess: the faster of a product for each group, in one kernel, and a kernel without tensor units that moves every "
    "value once, as depthwise ones are bound by bandwidth (pytorch/pytorch issue 1708); not measured, and several "
    "reports say that kernels of the library are slower (pytorch/pytorch issue 18631)"
)
Pass = Literal["forward", "input gradient", "weight gradient"]
# all of the kernels of one timestep take at least so much: tables of offsets, the first gather; kind: derived
START_SECONDS = 4e-6
SLICE_BYTES = 128  # of the channels of one tap in a step of the reduction: 64 of fp16, as in products (`stages 64x4`)
# Of the forward pass's rate. In TF32 wgmma reads operands with k innermost only, and those of gradients have it
# outermost: kernels use older instructions. In fp32 the cause is unknown.
RATES: dict[tuple[Precision, Pass], float] = {
    ("tf32", "input gradient"): 0.6,
    ("tf32", "weight gradient"): 0.6,
    ("fp32", "input gradient"): 0.75,
}
# of weight gradients in fp32, whose parts are added up by atomics (wgrad_alg0 in the profile); kind: derived
SIMT_SPLITS: tuple[int, ...] = (*SPLITS, 64)


@dataclass(frozen=True, kw_only=True)
class ConvolutionPass:
    """One pass over `samples` samples of the planes of `patches`, whose weights make `channels`, in `groups`."""

    what: Pass
    patches: Patches
    channels: int
    samples: int
    groups: int = 1


def convolution_seconds(
    gpu: GpuMachine, each: ConvolutionPass, *, precision: Precision, l2_resident: bool = False
) -> KernelTime:
    """Without the launch."""
    kernels = [_product_seconds, *([_direct_seconds] if each.groups > 1 else [])]
    return min((kernel(gpu, each, precision, l2_resident) for kernel in kernels), key=attrgetter("seconds"))


def _direct_seconds(gpu: GpuMachine, each: ConvolutionPass, precision: Precision, l2_resident: bool) -> KernelTime:
    """Without tensor units: operands and result once, and arithmetic at the rate of products in fp32."""
    planes, made = each.patches.planes, each.patches.made
    weights = each.patches.window.taps * planes.channels * each.channels // each.groups
    moved = each.samples * (planes.neurons + made.positions * each.channels) + weights
    moved *= ELEMENT_BYTES[precision]
    flops = 2 * each.samples * made.positions * weights
    computing = flops / (gpu.peak_flops_per_second("fp32") * gpu.library_share("fp32"))
    moving = moved / feed_bytes_per_second(gpu, l2_resident=l2_resident)
    bound = "compute" if computing > moving else "memory"
    return KernelTime(seconds=START_SECONDS + max(computing, moving), bound=bound, bytes_moved=moved, flops=flops)


def _product_seconds(gpu: GpuMachine, each: ConvolutionPass, precision: Precision, l2_resident: bool) -> KernelTime:
    """Implicit GEMM, of all groups in one kernel."""
    tensor, width = gpu.uses_tensor_unit(precision), ELEMENT_BYTES[precision]
    made, window, groups = each.patches.made, each.patches.window, each.groups
    planes = replace(each.patches.planes, channels=each.patches.planes.channels // groups)
    each = replace(each, channels=each.channels // groups)
    aligned, slice_of_tap = (ALIGNED_BYTES // width, SLICE_BYTES // width) if tensor else (1, 1)
    # registers take part where a channel is no whole copy, or where numbers of four bytes have to be transposed
    in_turn = planes.channels % (ALIGNED_BYTES // width) != 0 or (
        precision == "tf32" and each.what == "weight gradient"
    )
    read, result = _up(planes.channels, aligned), _up(each.channels, aligned)
    pixels, places = each.samples * planes.positions, each.samples * made.positions
    bytes_moved = (pixels * read + places * result + window.taps * read * result) * width * groups
    rate = RATES.get((precision, each.what), 1.0)
    splits = SIMT_SPLITS if each.what == "weight gradient" and not tensor else SPLITS
    if each.what == "forward":
        of_tap = read if planes.channels < aligned else _up(planes.channels, slice_of_tap)
        m, n, k = places, result, window.taps * of_tap
    elif each.what == "weight gradient":
        m, n, k = window.taps * read, result, places
    else:
        m, n, k = pixels, read, math.ceil(_taps_of_pixel(each.patches, tensor) * _up(each.channels, slice_of_tap))
    product = gemm_seconds(
        gpu, m, n, k, batch=groups, precision=precision, l2_resident=l2_resident, bytes_moved=0, splits=splits,
        rate=rate,
    )  # fmt: skip
    moving = bytes_moved / feed_bytes_per_second(gpu, l2_resident=l2_resident)
    seconds = product.seconds + moving if in_turn else max(product.seconds, moving)
    return replace(
        product,
        seconds=START_SECONDS + seconds,
        bound="compute" if product.seconds > moving else "memory",
        flops=2 * places * planes.channels * window.taps * each.channels * groups,
        bytes_moved=bytes_moved,
    )


def _up(number: int, multiple: int) -> int:
    return math.ceil(number / multiple) * multiple


def _taps_of_pixel(patches: Patches, tensor: bool) -> float:
    """Taps of the window that a kernel of the input gradient takes for a pixel: those of its phase of the stride; on
    tensor units also those beyond the edges."""
    window = patches.window
    taps = math.prod(math.ceil(size / stride) for size, stride in zip(window.kernel, window.stride, strict=True))
    if tensor:
        return taps
    inside = float((pixels_of(patches) >= 0).sum()) / patches.planes.positions
    return taps * inside / (window.taps / math.prod(window.stride))
