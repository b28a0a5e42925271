"""Predictions for measured matrix products on a GPU, and for single convolutions and their gradients, rows of
`references/gpu_convolutions.csv`; and from the labels of devices and number formats in tables of measurements to our
descriptions, with remarks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import get_args

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.gpu.convolution import ConvolutionPass, Pass, convolution_seconds
from mimdsim.gpu.gemm import L2_RESIDENT_SHARE, gemm_seconds, rows_aligned
from mimdsim.graph.convolution import Patches, Planes, Window
from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision
from mimdsim.machine.load import load_machine, tiled_machine
from mimdsim.validation.products import PRODUCT_SHAPE, tiled_product
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, around, comparable, whole_numbers

# (pattern of the label, description, what stays open); the first match wins
RULES: tuple[tuple[str, str, str], ...] = (
    (r"laptop|mobile|max-?q", "", ""),  # dies of these names with fewer units, clocks and watts; not described
    (r"v100s(?!xm)", "", ""),
    (r"v100.*pci", "v100-pcie", ""),
    (r"v100", "v100", ""),
    (r"a100.*80.*pci|a100.*pci.*80", "a100-80-pcie", ""),
    (r"a100.*80", "a100-80", ""),
    (r"a100.*pci", "a100-pcie", ""),
    # its narrow products read 1377 GB/s, 0.89 of the 40 GB board's DRAM and 0.68 of the 80 GB board's
    (r"a100\(dgx\)", "a100", "assumed the 40 GB board; the source does not say"),
    (r"a100", "a100", ""),
    (r"h[12]00.*pci|h[12]00.*nvl|gh200", "", ""),  # other cards of that die; not described
    (r"h100", "h100", ""),
    (r"h200", "h200", ""),
    (r"rtx ?2070(?!.*super)", "rtx2070", ""),
    (r"rtx ?2080 ?ti", "rtx2080ti", ""),
    (r"rtx ?3090(?! ?ti)", "rtx3090", ""),
    (r"rtx ?4090(?! ?d\b)", "rtx4090", ""),
    (r"\bt4\b", "t4", ""),
    (r"tpu ?-?v3", "tpu-v3", ""),
    (r"tpu ?-?v4(?! ?i)", "tpu-v4", ""),
)
# how a number format begins, the first that matches; bf16 takes the time of fp16
FORMATS: tuple[tuple[str, Precision], ...] = (
    (r"(fp32|float32|f32)\b.*\btf32 (on|enabled|allowed)", "tf32"),
    (r"tf32\b", "tf32"),
    (r"(fp32|float32|f32)\b", "fp32"),
    (r"(fp16|float16|f16|half|bf16|bfloat16)\b", "fp16"),
)
KNOWN_FORMATS = "fp32, tf32, fp16, bf16"
KNOWN = tuple(dict.fromkeys(machine for _, machine, _ in RULES if machine))


def find_precision(label: str) -> Precision | None:
    """The precision that a table calls `label`, such as 'fp16/fp32acc' or 'fp32 SIMT'; None if unknown."""
    return next((ours for pattern, ours in FORMATS if re.match(pattern, label.strip().lower())), None)


@lru_cache(maxsize=32)
def described(name: str) -> GpuMachine:
    """The GPU `name` of models/; loaded once."""
    machine = load_machine(name)
    assert isinstance(machine, GpuMachine)  # RULES list GPUs only
    return machine


# An event pair around one eager linear layer holds more of the host than the rows say: bias, autograd and the choice of
# a kernel come on top of the 26 to 32 us that the same boxes need for torch.add (NeuSight). Kind: derived, calibrated
# on gemm_measurements.csv (V100 and A100 agree within 10 us). A batched product is no layer and has none of it.
EAGER_LINEAR_SECONDS = 20e-6
# A host that waits for every product, such as LLMCompass's (software_model/matmul.py: the median of some repeats after
# a pause of a second), starts each on an idle device, and is done before a power limit that averages over tens of
# milliseconds acts.
WAITING_HOST = "sync"
# A graph that repeats a product: what it reads is in the L2 if there is room, and each waits for the one before
REPLAYED = "replayed graph"
LARGEST_EXTENT = 10**9  # of a product's dimensions and its batch, in tables
TOLERANCE = 0.3


def device_of(label: str) -> tuple[GpuMachine, str]:
    """The description of the device that a table calls `label`, and a remark; raises MimdsimError for others."""
    found = ((machine, remark) for pattern, machine, remark in RULES if re.search(pattern, label.lower()))
    machine, remark = next(found, ("", ""))
    if not machine:
        raise MimdsimError(f"no description of device '{shortened(label)}'; known: {', '.join(KNOWN)}")
    return described(machine), remark


def precision_of(label: str) -> Precision:
    """As `find_precision`; raises MimdsimError for others."""
    found = find_precision(label)
    if found is None:
        raise MimdsimError(f"no model for dtype '{shortened(label)}'; known: {KNOWN_FORMATS}")
    return found


def check_given(row: Mapping[str, str], columns: Iterable[str]) -> None:
    """Raises MimdsimError for cells that are empty."""
    missing = [name for name in columns if not (row.get(name) or "").strip()]
    if missing:
        raise MimdsimError(f"row has no {', '.join(missing)}")


def predict_gemm_row(row: Mapping[str, str]) -> tuple[float, str]:
    """Predicted seconds of a row with the columns gpu, dtype, batch, M, N, K and includes_host_overhead_us.

    The host overhead that the row says its time contains is added, and a launch if the host waits. A kernel named
    '..._tn' or 'TN' reads a weight stored with k innermost. The text names the model and what it leaves open. Raises
    MimdsimError for a row that cannot be computed.
    """
    check_given(row, ("gpu", "dtype", "M", "N", "K"))
    if row["gpu"].startswith("IPU"):
        raise MimdsimError(f"{row['gpu']} is a tiled machine; the GPU model does not describe it")
    gpu, remark = device_of(row["gpu"])
    precision = precision_of(row["dtype"])
    overhead = row.get("includes_host_overhead_us", "")
    overhead_us = _overhead_us(overhead)
    m, n, k, batch = shape = whole_numbers(row, *PRODUCT_SHAPE, default=1)
    if min(shape) < 1:
        raise MimdsimError(f"M={m} N={n} K={k} batch={batch}: must be at least 1")
    if max(shape) > LARGEST_EXTENT:
        raise MimdsimError(f"M, N, K or batch is over {LARGEST_EXTENT:,}, which no device holds")
    waits = WAITING_HOST in overhead
    if waits:
        overhead_us += gpu.launch.stream_period_seconds * 1e6
    if "eager" in overhead and batch == 1:
        overhead_us += EAGER_LINEAR_SECONDS * 1e6
    replayed = REPLAYED in overhead
    if replayed:
        overhead_us += gpu.launch.graph_period_seconds * 1e6
    held = batch * (m * k + k * n + m * n) * ELEMENT_BYTES[precision]
    transposed = re.search(r"(^|_)tn\b", row.get("kernel", ""), re.IGNORECASE) is not None
    estimate = gemm_seconds(
        gpu,
        m,
        n,
        k,
        batch=batch,
        precision=precision,
        l2_resident=replayed and held <= L2_RESIDENT_SHARE * gpu.memory.l2_bytes,
        transposed_weight=transposed,
        power_limited=not waits,
        aligned=rows_aligned(n, k, precision=precision),
    )
    reason = f"{gpu.name}, {estimate.bound} bound, with {overhead_us:g} us of host overhead"
    return estimate.seconds + overhead_us * 1e-6, f"{reason}; {remark}" if remark else reason


def product_flops(row: Mapping[str, str]) -> float | None:
    """Floating-point operations of a row's product; None when its shape cannot be read."""
    try:
        shape = whole_numbers(row, *PRODUCT_SHAPE, default=1)
    except MimdsimError:
        return None
    return 2.0 * math.prod(shape) if min(shape) >= 1 and max(shape) <= LARGEST_EXTENT else None


def _overhead_us(text: str) -> float:
    """The number at the head of '~20 (event pair around eager op)'; 0 for an empty cell."""
    match = re.match(r"\s*~?\s*(\d+(?:\.\d+)?)", text)
    overhead = float(match[1]) if match else 0.0
    if (text.strip() and not match) or not comparable(overhead):
        raise MimdsimError(f"host overhead '{shortened(text)}' is not a number of microseconds")
    return overhead


def _product_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of a measured product, on a GPU or a tiled machine."""
    published = row.number("time_us")
    tiled = row["gpu"].startswith("IPU")
    batched = ", batched" if row["batch"] not in ("", "1") else ""
    shape = f"{row['M']}x{row['N']}x{row['K']}" + (f" batch {row['batch']}" if row["batch"] != "1" else "")
    what, figures = f"{row['gpu']} {row['dtype']}", "product on tiles" if tiled else "GPU kernel"
    about = {"figures": figures, "origin": origin_of(row["source"]), "size": product_flops(row)}
    yield row.figure(f"{what} {shape}", "us", published, TOLERANCE, f"{what}{batched}", **about)
    if tiled:
        machine, dtype, microseconds = tiled_product(row)
        yield row.predicted(tiled_machine(machine, ""), published, microseconds, 0.2, formula=f"product in {dtype}")
    else:
        yield around(1e6 * predict_gemm_row(row)[0], 0.2)


def origin_of(source: str) -> str:
    """Whose measurement a row is: the first word of its source, the folder where that is a file."""
    first = (source.split() or [""])[0]
    return first.rpartition("/")[0] or first


PRODUCTS = ReferenceTable(
    needed={"gpu", "dtype", "batch", "M", "N", "K", "time_us", "source"},
    also={"includes_host_overhead_us", "kernel"},
    read_row=_product_row,
    on="",
)


# Convolutions and their gradients: benchmarks/gpu/measure_convolutions.py timed cuDNN between operands on the device
PLANES_SHAPE = ("samples", "channels", "height", "width", "channels_made", "kernel", "stride", "padding")
LARGEST_SIDE = 4096  # of planes, in tables


def convolution_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of the microseconds of one pass."""
    samples, channels, height, width, made, kernel, stride, padding = whole_numbers(row, *PLANES_SHAPE, default=0)
    if max(samples, channels, made) > LARGEST_EXTENT or max(height, width, kernel, stride, padding) > LARGEST_SIDE:
        most = f"planes of over {LARGEST_SIDE:,} pixels a side, or as large a kernel, stride or padding"
        raise MimdsimError(f"over {LARGEST_EXTENT:,} samples or channels, or {most}")
    if min(samples, channels, height, width, made) < 1:
        raise MimdsimError("samples, channels, height and width must be at least 1")
    what = next((each for each in get_args(Pass) if each == row["pass"]), None)
    if what is None:
        raise MimdsimError(f"column 'pass': '{shortened(row['pass'])}' is none of {', '.join(get_args(Pass))}")
    window = Window(kernel=(kernel, kernel), stride=(stride, stride), padding=(padding, padding))
    patches = Patches(planes=Planes(channels=channels, height=height, width=width), window=window)
    each = ConvolutionPass(what=what, patches=patches, channels=made, samples=samples)
    (gpu, remark), precision = device_of(row["gpu"]), precision_of(row["dtype"])
    shape = f"{samples} x {patches.planes} to {window.over(patches.planes, made)}, kernel {kernel}, stride {stride}"
    on, published = f"{row['gpu']} {row['dtype']}", row.number("time_us", above=0)
    about = {"note": remark, "origin": origin_of(row["source"])}
    yield row.figure(f"{on} {shape}, {what}", "us", published, TOLERANCE, f"{on}, {what}", **about)
    yield around(1e6 * convolution_seconds(gpu, each, precision=precision).seconds, 0.3)


CONVOLUTIONS = ReferenceTable(
    needed={"gpu", "dtype", "pass", *PLANES_SHAPE, "time_us", "source"},
    ignored={"layout"},
    read_row=convolution_row,
    figures="GPU kernel",
    on="",
)
