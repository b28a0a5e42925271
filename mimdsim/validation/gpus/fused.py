"""Neurons whose timesteps one kernel walks through, as frameworks launch them: for validation only.

Such kernels stream: their time is their bytes. What they and the wrapper around them move is counted from the code, or
taken from a table of the same program where the count misses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mimdsim.gpu.elementwise import elementwise_seconds
from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision


@dataclass(frozen=True, kw_only=True)
class FusedNeurons:
    """Arrays of timesteps * batch * neurons values that a pass reads and writes; the backward pass with its sum."""

    name: str
    precisions: tuple[Precision, ...]
    forward: int
    backward: int
    source: str


FUSED: tuple[FusedNeurons, ...] = (
    FusedNeurons(
        name="SpikingJelly CuPy",
        precisions=("fp32",),
        forward=14,
        backward=13,
        source="derived: microseconds of the documentation's table (2021) over 0.88 of the DRAM's peak on an RTX "
        "2080 Ti; the code says 9 and, with the gradient added to an old one, 13",
    ),
    FusedNeurons(
        name="SpikingJelly CuPy",
        precisions=("fp16",),  # another kernel: pairs of values, no branches
        forward=9,
        backward=9,
        source="derived: counted from cuda_kernel/neuron_kernel/lif.py of 0.0.0.1: zeros for three arrays, potentials "
        "copied behind the first, x read, three arrays written; the sum reads the spikes, its gradient and two arrays "
        "of zeros are written, four arrays read, the gradient of x written",
    ),
    FusedNeurons(
        name="SpikingJelly Triton",
        precisions=("fp32", "fp16"),
        forward=3,
        backward=5,
        source="derived: counted from triton_kernel/neuron_kernel/lif.py of 0.0.0.1: x read, two arrays written; the "
        "sum reads the spikes, its gradient is written, two arrays read, the gradient of x written",
    ),
)


def find_fused(framework: str, precision: Precision) -> FusedNeurons | None:
    """The program that a table calls `framework`; None if it is not counted for numbers of that width."""
    for item in FUSED:
        if precision in item.precisions and all(word in framework for word in item.name.lower().split()):
            return item
    return None


def fused_seconds(
    gpu: GpuMachine,
    neurons: FusedNeurons,
    *,
    values: int,
    precision: Precision,
    direction: Literal["forward", "backward"],
) -> float:
    """One pass over `values` = timesteps * batch * neurons values. Raises ValueError when there are none."""
    if values < 1:
        raise ValueError(f"fused neurons over {values} values: must be at least 1")
    passes = neurons.forward if direction == "forward" else neurons.backward
    return elementwise_seconds(gpu, passes * values * ELEMENT_BYTES[precision], launching="stream").seconds
