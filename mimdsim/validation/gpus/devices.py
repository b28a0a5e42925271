"""From the labels of devices and number formats in tables of measurements to our descriptions, with remarks."""

from __future__ import annotations

import re
from functools import lru_cache

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
