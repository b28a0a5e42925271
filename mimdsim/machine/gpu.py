"""The GPU: multiprocessors with SIMT and tensor units, a shared L2 cache, DRAM, kernel launches and a host link.

Sources are in the description (`models/*.toml`), one per number. Peaks are derived (`peak_flops_per_second`), so a
what-if change of the clock or of the number of multiprocessors moves them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mimdsim.base.schema import SourcedSection
from mimdsim.base.search_path import Name
from mimdsim.machine.area_power import GpuEnergy
from mimdsim.machine.notes import NotedMachine

Precision = Literal["fp32", "tf32", "fp16"]
ELEMENT_BYTES: dict[Precision, int] = {"fp32": 4, "tf32": 4, "fp16": 2}


class Chip(SourcedSection):
    """Streaming multiprocessors and their clock."""

    streaming_multiprocessors: int = Field(gt=0, le=100_000, description="products, element-wise kernels")
    """Streaming multiprocessors of the device."""
    clock_hz: float = Field(gt=0, description="products, element-wise kernels")
    """Their clock."""
    tensor_clock_hz: float | None = Field(default=None, gt=0)
    """Clock of products on tensor units, where sustained tensor peaks are quoted lower."""
    product_share: float = Field(default=1.0, gt=0, le=1, description="products in fp32")
    """What the board's power limit leaves of the clock in long products in fp32."""
    tensor_product_share: float = Field(default=1.0, gt=0, le=1)
    """The same on tensor units."""
    tensor_tile_edge: int = Field(default=32, ge=32, le=128)
    """The shortest edge of an output tile that the library has for tensor units (32: every tile of `gpu.gemm`)."""
    tensor_k_in_flight: int = Field(default=192, ge=8, le=4096)
    """Elements of k whose operands a tile on tensor units has under way at once in fp16, half as many in TF32 (192:
    three slices of 64 behind the one in use, stages 64x4 in the names of cuBLAS kernels from Ampere on, which go from
    64x3 to 64x6)."""
    tensor_unaligned_share: float = Field(default=1.0, gt=0, le=1)
    """The rate of products on tensor units whose rows do not start at multiples of 16 bytes, over that of others."""
    cluster_multiprocessors: int = Field(default=1, ge=1, le=16)
    """How many multiprocessors read an operand of such tiles from the L2 together."""
    shared_memory_bytes: int | None = Field(default=None, gt=0, description="which weights stay on the chip")
    """Shared memory of one multiprocessor that a kernel which keeps its weights on the chip can use."""
    register_bytes: int | None = Field(default=None, gt=0, description="which weights stay on the chip")
    """Registers of one multiprocessor that a kernel which keeps its weights on the chip can use."""


class Compute(SourcedSection):
    """Dense peaks of one streaming multiprocessor per clock cycle (a multiply-add is two flops)."""

    fp32_flops_per_cycle: float = Field(gt=0)
    """Peak in fp32."""
    tf32_flops_per_cycle: float | None = Field(default=None, gt=0)
    """Peak in TF32; absent if there is no TF32 unit: such matrix products run in fp32."""
    fp16_flops_per_cycle: float = Field(gt=0)
    """Peak in fp16."""
    fp8_flops_per_cycle: float | None = Field(default=None, gt=0)
    """Peak in fp8, with sums in fp32; absent: none."""
    int8_flops_per_cycle: float | None = Field(default=None, gt=0)
    """Peak in int8, with sums in int32; absent: none."""
    fp32_library_share: float = Field(default=1.0, gt=0, le=1)
    """What the vendor's library reaches of the fp32 peak before tile effects."""
    fp32_wide_share: float | None = Field(default=None, gt=0, le=1)
    """What it reaches with output tiles of 128 x 256; absent: it has no such kernels."""


class Memory(SourcedSection):
    """DRAM and L2. On a TPU the L2 is the vector memory."""

    dram_bytes_per_second: float = Field(gt=0)
    """Peak rate of the DRAM."""
    streaming_share: float = Field(gt=0, le=1)
    """The share of the DRAM peak that a long streaming kernel reaches."""
    capacity_bytes: int = Field(gt=0)
    """DRAM of the device."""
    l2_bytes: int = Field(gt=0)
    """Size of the L2."""
    l2_bytes_per_second: float = Field(gt=0)
    """Rate of the L2 in matrix products."""
    l2_streaming_bytes_per_second: float = Field(gt=0)
    """Rate of the L2 in kernels whose data stay in it."""
    l2_latency_cycles: float = Field(gt=0)
    """Latency of one dependent load from the L2."""
    dram_latency_cycles: float = Field(gt=0)
    """Latency of one dependent load from the DRAM."""


class Launch(SourcedSection):
    """Shortest period of back-to-back small kernels, and a host that waits."""

    stream_period_seconds: float = Field(gt=0)
    """Period of kernels that are launched from a stream."""
    graph_period_seconds: float = Field(gt=0)
    """Period of kernels that are replayed as a graph."""
    grid_period_seconds: float = Field(gt=0)
    """Period of the same work in one kernel whose blocks wait for each other."""
    host_synchronisation_seconds: float = Field(ge=0)
    """What it costs that the host waits for the stream."""


class Host(SourcedSection):
    """The link to the host."""

    bytes_per_second: float = Field(gt=0)
    """Rate of pinned copies."""
    framework_bytes_per_second: float = Field(gt=0)
    """Rate that a framework's input pipeline sustains with dense batches."""


class Systolic(SourcedSection):
    """Weight-stationary arrays of multiply-add cells that stand in for tensor units (TPU): bf16 with fp32 sums.

    Wider numbers are split into bf16 parts and take several passes.
    """

    arrays: int = Field(gt=0, le=100_000)
    """Arrays of the device."""
    rows: int = Field(gt=0, le=100_000)
    """Rows of cells in an array."""
    columns: int = Field(gt=0, le=100_000)
    """Columns of cells in an array."""
    tf32_passes: int = Field(gt=0, le=100)
    """Passes of a product where TF32 is asked for."""
    fp32_passes: int = Field(gt=0, le=100)
    """Passes of a product in fp32."""


class GpuMachine(NotedMachine):
    """A GPU, or a TPU where `systolic` is given. `name` is its file's stem."""

    kind: Literal["gpu"]
    """That it is a GPU."""
    name: Name
    title: str
    """What the device is, in a line."""
    chip: Chip = Field(description="products on tensor units")
    compute: Compute = Field(description="products")
    memory: Memory = Field(description="products, element-wise kernels")
    launch: Launch = Field(description="launches")
    host: Host = Field(description="host transfers")
    systolic: Systolic | None = Field(default=None, description="products")
    energy: GpuEnergy | None = Field(default=None, description="energy of a training step")

    @property
    def has_bfloat16(self) -> bool:
        """Whether it multiplies bf16, at the rate of fp16: a TPU, or a GPU with TF32, which came with it."""
        return self.systolic is not None or self.compute.tf32_flops_per_cycle is not None

    def uses_tensor_unit(self, precision: Precision) -> bool:
        """Whether matrix products of `precision` run on tensor units or systolic arrays here."""
        return (
            self.systolic is not None
            or precision == "fp16"
            or (precision == "tf32" and self.compute.tf32_flops_per_cycle is not None)
        )

    def flops_per_second_each(self, precision: Precision) -> float:
        """Peak of one streaming multiprocessor for matrix products of `precision`, in flops per second."""
        if self.systolic is not None:
            cells = self.systolic.arrays * self.systolic.rows * self.systolic.columns
            passes = {"fp16": 1, "tf32": self.systolic.tf32_passes, "fp32": self.systolic.fp32_passes}[precision]
            return 2 * cells * self.chip.clock_hz / passes / self.chip.streaming_multiprocessors
        if not self.uses_tensor_unit(precision):
            return self.compute.fp32_flops_per_cycle * self.chip.clock_hz
        per_cycle = self.compute.fp16_flops_per_cycle if precision == "fp16" else self.compute.tf32_flops_per_cycle
        assert per_cycle is not None  # uses_tensor_unit has looked
        return per_cycle * (self.chip.tensor_clock_hz or self.chip.clock_hz)

    def library_share(self, precision: Precision) -> float:
        """What the library's products of `precision` reach of that peak before tiles and waves are counted."""
        return 1.0 if self.uses_tensor_unit(precision) else self.compute.fp32_library_share

    def power_share(self, precision: Precision) -> float:
        """What the board's power limit leaves of the clock in long products of `precision`."""
        return self.chip.tensor_product_share if self.uses_tensor_unit(precision) else self.chip.product_share

    def peak_flops_per_second(self, precision: Precision) -> float:
        """Dense peak of the whole chip for matrix products of `precision`, in flops per second."""
        return self.flops_per_second_each(precision) * self.chip.streaming_multiprocessors
