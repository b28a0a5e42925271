"""The GPU: multiprocessors with SIMT and tensor units, a shared L2 cache, DRAM, kernel launches and a host link.

Sources stand in the description (`models/*.toml`), one per number. Peaks are derived (`peak_flops_per_second`), so a
what-if change of the clock or of the number of multiprocessors moves them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mimdsim.base.schema import Section, SourcedSection
from mimdsim.machine.energy import GpuEnergy

Precision = Literal["fp32", "tf32", "fp16"]
ELEMENT_BYTES: dict[Precision, int] = {"fp32": 4, "tf32": 4, "fp16": 2}


class Chip(SourcedSection):
    """Streaming multiprocessors and their clock; `tensor_clock_hz` where sustained tensor peaks are quoted lower."""

    streaming_multiprocessors: int = Field(gt=0, le=100_000)
    clock_hz: float = Field(gt=0)
    tensor_clock_hz: float | None = Field(default=None, gt=0)


class Compute(SourcedSection):
    """Dense peaks of one streaming multiprocessor per clock cycle (a multiply-add is two flops).

    `tf32_flops_per_cycle` is absent where there is no TF32 unit: such matrix products run as fp32.
    `fp32_library_share` is what the vendor's library reaches of the fp32 peak before tile effects.
    """

    fp32_flops_per_cycle: float = Field(gt=0)
    tf32_flops_per_cycle: float | None = Field(default=None, gt=0)
    fp16_flops_per_cycle: float = Field(gt=0)
    fp32_library_share: float = Field(default=1.0, gt=0, le=1)


class Memory(SourcedSection):
    """DRAM and L2. `streaming_share` of the DRAM peak is what a long streaming kernel reaches.

    `l2_bytes_per_second` feeds matrix products, `l2_streaming_bytes_per_second` kernels whose data stay in L2.
    """

    dram_bytes_per_second: float = Field(gt=0)
    streaming_share: float = Field(gt=0, le=1)
    capacity_bytes: int = Field(gt=0)
    l2_bytes: int = Field(gt=0)
    l2_bytes_per_second: float = Field(gt=0)
    l2_streaming_bytes_per_second: float = Field(gt=0)


class Launch(SourcedSection):
    """Shortest period of back-to-back small kernels, from a stream or replayed as a graph; and a host that waits."""

    stream_period_seconds: float = Field(gt=0)
    graph_period_seconds: float = Field(gt=0)
    host_synchronisation_seconds: float = Field(ge=0)


class Host(SourcedSection):
    """The link to the host: pinned copies, and the rate a framework's input pipeline keeps up with dense batches."""

    bytes_per_second: float = Field(gt=0)
    framework_bytes_per_second: float = Field(gt=0)


class GpuMachine(Section):
    """A GPU. `name` is its file's stem."""

    kind: Literal["gpu"]
    name: str
    title: str
    chip: Chip
    compute: Compute
    memory: Memory
    launch: Launch
    host: Host
    energy: GpuEnergy | None = None

    def uses_tensor_unit(self, precision: Precision) -> bool:
        """Whether matrix products of `precision` run on tensor units here."""
        return precision == "fp16" or (precision == "tf32" and self.compute.tf32_flops_per_cycle is not None)

    def flops_per_second_each(self, precision: Precision) -> float:
        """Peak of one streaming multiprocessor for matrix products of `precision`, in flops per second."""
        if not self.uses_tensor_unit(precision):
            return self.compute.fp32_flops_per_cycle * self.chip.clock_hz
        per_cycle = self.compute.fp16_flops_per_cycle if precision == "fp16" else self.compute.tf32_flops_per_cycle
        assert per_cycle is not None  # uses_tensor_unit has looked
        return per_cycle * (self.chip.tensor_clock_hz or self.chip.clock_hz)

    def peak_flops_per_second(self, precision: Precision) -> float:
        """Dense peak of the whole chip for matrix products of `precision`, in flops per second."""
        return self.flops_per_second_each(precision) * self.chip.streaming_multiprocessors
