"""What the model says of a measured matrix product: one row of a table of measurements in, one prediction out."""

from __future__ import annotations

import re
from functools import lru_cache

from mimdsim.base.errors import MimdsimError
from mimdsim.gpu.gemm import gemm_seconds
from mimdsim.machine.gpu import GpuMachine, Precision
from mimdsim.machine.load import load_machine

# the table's name of a device -> our description, and what that equation leaves open
DEVICES: dict[str, tuple[str, str]] = {
    "V100-SXM2": ("v100", ""),
    "Tesla V100-PCIE-32GB": ("v100", "timed on the PCIe card, whose boost clock is about 10 % lower"),
    "NVIDIA A100-PCIE-40GB": ("a100", "timed on the PCIe card, same memory and peak"),
    "A100(DGX)": ("a100-80", "assumed the 80 GB card; the source does not say"),
    "A100-SXM4-40GB": ("a100", ""),
    "NVIDIA A100-SXM4-40GB": ("a100", ""),
    "A100-SXM4-80GB": ("a100-80", ""),
    "NVIDIA A100-SXM4-80GB": ("a100-80", ""),
    "NVIDIA A100 80GB PCIe": ("a100-80", "timed on the PCIe card, whose memory is 5 % slower"),
    "NVIDIA H100 80GB HBM3": ("h100", ""),
    "NVIDIA H200": ("h200", ""),
}
DTYPES: dict[str, Precision] = {
    "fp32": "fp32",
    "fp32 simt": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "fp16 tc": "fp16",
    "bf16": "fp16",
}


def predict_gemm_row(row: dict[str, str]) -> tuple[float | None, str]:
    """Predicted seconds of a row with the columns gpu, dtype, batch, M, N, K and includes_host_overhead_us.

    The host overhead that the row says its time contains is added. The text names the model and what it leaves open;
    when the row cannot be computed the seconds are None and the text says why.
    """
    missing = [name for name in ("gpu", "dtype", "M", "N", "K") if not row.get(name)]
    if missing:
        return None, f"row has no {', '.join(missing)}"
    if row["gpu"].startswith("IPU"):
        return None, f"{row['gpu']} is a tiled machine; the GPU model does not describe it"
    if row["gpu"] not in DEVICES:
        return None, f"no description of device '{row['gpu']}'; known: {', '.join(DEVICES)}"
    if row["dtype"].lower() not in DTYPES:
        return None, f"no model for dtype '{row['dtype']}'; known: {', '.join(DTYPES)}"
    overhead_us = _overhead_us(row.get("includes_host_overhead_us", ""))
    if overhead_us is None:
        return None, f"host overhead '{row['includes_host_overhead_us']}' is not a number of microseconds"
    try:
        m, n, k, batch = (int(row.get(name) or 1) for name in ("M", "N", "K", "batch"))
    except ValueError:
        return None, f"M={row['M']} N={row['N']} K={row['K']} batch={row.get('batch')}: must be whole numbers"
    if min(m, n, k, batch) < 1:
        return None, f"M={m} N={n} K={k} batch={batch}: must be at least 1"
    machine, remark = DEVICES[row["gpu"]]
    try:
        gpu = _gpu(machine)
    except MimdsimError as problem:
        return None, str(problem)
    estimate = gemm_seconds(gpu, m, n, k, batch=batch, precision=DTYPES[row["dtype"].lower()])
    reason = f"{machine}, {estimate.bound} bound, with {overhead_us:g} us of host overhead"
    return estimate.seconds + overhead_us * 1e-6, f"{reason}; {remark}" if remark else reason


def _overhead_us(text: str) -> float | None:
    """The number at the head of '~20 (event pair around eager op)'; 0 for an empty cell."""
    if not text.strip():
        return 0.0
    match = re.match(r"\s*~?\s*(\d+(?:\.\d+)?)", text)
    return float(match.group(1)) if match else None


@lru_cache(maxsize=16)
def _gpu(name: str) -> GpuMachine:
    machine = load_machine(name)
    assert isinstance(machine, GpuMachine)  # DEVICES lists GPUs only
    return machine
