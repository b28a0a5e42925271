"""Predictions for measured matrix products on a GPU; and from the labels of devices and number formats in tables of
measurements to our descriptions, with remarks.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from mimdsim.base.errors import MimdsimError
from mimdsim.gpu.gemm import gemm_seconds, rows_aligned
from mimdsim.machine.gpu import GpuMachine, Precision
from mimdsim.machine.load import load_machine

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


def find_device(label: str) -> tuple[str, str] | None:
    """The description of the device that a table calls `label`, and a remark; None if unknown."""
    for pattern, machine, remark in RULES:
        if re.search(pattern, label.lower()):
            return (machine, remark) if machine else None
    return None


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
LARGEST_EXTENT = 10**9  # of a product's dimensions and its batch, in tables


def predict_gemm_row(row: dict[str, str]) -> tuple[float | None, str]:
    """Predicted seconds of a row with the columns gpu, dtype, batch, M, N, K and includes_host_overhead_us.

    The host overhead that the row says its time contains is added, and a launch if the host waits. A kernel named
    '..._tn' or 'TN' reads a weight stored with k innermost. The text names the model and what it leaves open; when the
    row cannot be computed the seconds are None and the text says why.
    """
    missing = [name for name in ("gpu", "dtype", "M", "N", "K") if not row.get(name)]
    if missing:
        return None, f"row has no {', '.join(missing)}"
    if row["gpu"].startswith("IPU"):
        return None, f"{row['gpu']} is a tiled machine; the GPU model does not describe it"
    device = find_device(row["gpu"])
    if device is None:
        return None, f"no description of device '{row['gpu']}'; known: {', '.join(KNOWN)}"
    precision = find_precision(row["dtype"])
    if precision is None:
        return None, f"no model for dtype '{row['dtype']}'; known: {KNOWN_FORMATS}"
    overhead = row.get("includes_host_overhead_us", "")
    overhead_us = _overhead_us(overhead)
    if overhead_us is None:
        return None, f"host overhead '{overhead}' is not a number of microseconds"
    shape = _shape(row)
    if shape is None:
        return None, f"M={row['M']} N={row['N']} K={row['K']} batch={row.get('batch')}: must be whole numbers"
    m, n, k, batch = shape
    if min(shape) < 1:
        return None, f"M={m} N={n} K={k} batch={batch}: must be at least 1"
    if max(shape) > LARGEST_EXTENT:
        return None, f"M, N, K or batch is over {LARGEST_EXTENT:,}, which no device holds"
    machine, remark = device
    try:
        gpu = described(machine)
    except MimdsimError as problem:
        return None, str(problem)
    waits = WAITING_HOST in overhead
    if waits:
        overhead_us += gpu.launch.stream_period_seconds * 1e6
    if "eager" in overhead and batch == 1:
        overhead_us += EAGER_LINEAR_SECONDS * 1e6
    transposed = re.search(r"(^|_)tn\b", row.get("kernel", ""), re.IGNORECASE) is not None
    estimate = gemm_seconds(
        gpu,
        m,
        n,
        k,
        batch=batch,
        precision=precision,
        transposed_weight=transposed,
        power_limited=not waits,
        aligned=rows_aligned(n, k, precision=precision),
    )
    reason = f"{machine}, {estimate.bound} bound, with {overhead_us:g} us of host overhead"
    return estimate.seconds + overhead_us * 1e-6, f"{reason}; {remark}" if remark else reason


def product_flops(row: dict[str, str]) -> float | None:
    """Floating-point operations of a row's product; None when its shape cannot be read."""
    shape = _shape(row)
    if shape is None or min(shape) < 1 or max(shape) > LARGEST_EXTENT:
        return None
    return 2.0 * math.prod(shape)


def _shape(row: dict[str, str]) -> tuple[int, int, int, int] | None:
    """M, N, K and batch; None when one is no whole number."""
    try:
        m, n, k, batch = (int(row.get(name) or 1) for name in ("M", "N", "K", "batch"))
    except ValueError:
        return None
    return m, n, k, batch


def _overhead_us(text: str) -> float | None:
    """The number at the head of '~20 (event pair around eager op)'; 0 for an empty cell."""
    if not text.strip():
        return 0.0
    match = re.match(r"\s*~?\s*(\d+(?:\.\d+)?)", text)
    return float(match.group(1)) if match else None
