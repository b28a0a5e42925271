"""Joules of one training step on a GPU: static power, what it does while it waits for launches, flops and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from mimdsim.costs.energy import energy_profile
from mimdsim.gpu.elementwise import L2_FOOTPRINT_SHARE
from mimdsim.gpu.kernels import Kernel, Product, Recurrent
from mimdsim.gpu.sparse_kernels import ListKernel
from mimdsim.machine.gpu import GpuMachine, Precision
from mimdsim.profile.records import EnergyProfile, KernelSpan


def gpu_energy(
    gpu: GpuMachine,
    kernels: Sequence[Kernel],
    spans: Sequence[KernelSpan],
    *,
    precision: Precision,
    resident: bool,
    seconds: float,
    host_bytes: float,
) -> EnergyProfile | None:
    """Energy of the kernels and their `spans`, one each; None if the machine has no energies.

    resident: weights stay in the L2 between timesteps. Products count each operand once and not what their
    tiles read again from the L2, which is part of the measured energy of a flop.
    """
    if gpu.energy is None:
        return None
    simt, tensor, dram, l2, idle = 0, 0, 0, 0, 0.0
    for kernel, span in zip(kernels, spans, strict=True):
        product = isinstance(kernel, Product | Recurrent)
        if product and gpu.uses_tensor_unit(precision):
            tensor += span.flops
        else:
            simt += span.flops
        if _stays_in_l2(kernel, span, gpu, resident):
            l2 += span.bytes_moved
        else:
            dram += span.bytes_moved
        if span.bound in ("launch", "host"):
            idle += span.seconds
    per_flop = "fp16_joules_per_flop" if precision == "fp16" else "tf32_joules_per_flop"
    return energy_profile(
        gpu.energy,
        (
            ("static power", "static_watts", seconds),
            ("waiting for launches", "launch_watts", idle),
            ("arithmetic", "simt_joules_per_flop", simt),
            ("arithmetic on tensor units", per_flop, tensor),
            ("DRAM", "dram_joules_per_byte", dram),
            ("L2", "l2_joules_per_byte", l2),
            ("host link", "host_joules_per_byte", host_bytes),
        ),
    )


def _stays_in_l2(kernel: Kernel, span: KernelSpan, gpu: GpuMachine, resident: bool) -> bool:
    if isinstance(kernel, ListKernel):
        return True  # gathers from the L2; weights that are streamed completely are few in comparison
    if isinstance(kernel, Product):
        return resident and kernel.repeated
    each = span.bytes_moved / max(span.times, 1)
    return each < L2_FOOTPRINT_SHARE * gpu.memory.l2_bytes
