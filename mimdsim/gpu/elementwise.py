"""How long an elementwise or fused kernel takes on a GPU: one launch period plus its bytes at the streaming rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mimdsim.machine.gpu import GpuMachine

Launching = Literal["stream", "graph", "grid"]
L2_FOOTPRINT_SHARE = 0.6  # kernels whose data fill at most this share of the L2 stream from it

MODEL_SOURCE = (
    "launch period plus bytes at the streaming rate: fit of 'repeated small kernel' of RRZE-HPC/gpu-benches "
    "(largest error 6 to 14 %), DRAM share of NeuSight's torch.add"
)


@dataclass(frozen=True, kw_only=True)
class StreamEstimate:
    """One streaming kernel, launch period included; bound is 'launch' when that is the larger part."""

    seconds: float
    bound: str  # 'launch' or 'memory'
    bytes_moved: int


def launch_seconds(gpu: GpuMachine, launching: Launching) -> float:
    """Shortest period of back-to-back kernels: from a stream, replayed as a graph, or as one whose blocks wait."""
    if launching == "grid":
        return gpu.launch.grid_period_seconds
    return gpu.launch.graph_period_seconds if launching == "graph" else gpu.launch.stream_period_seconds


def elementwise_seconds(
    gpu: GpuMachine,
    bytes_moved: int,
    *,
    launching: Launching,
    footprint_bytes: int | None = None,
    fixed_seconds: float = 0.0,
) -> StreamEstimate:
    """A kernel that reads and writes `bytes_moved` bytes in all, spread over `footprint_bytes` (default: the same).

    The bytes are added to the launch period, or to `fixed_seconds` if that is longer (start and end of a kernel
    that walks the timesteps itself). Raises ValueError when a number of bytes is negative.
    """
    footprint = bytes_moved if footprint_bytes is None else footprint_bytes
    if bytes_moved < 0 or footprint < 0:
        raise ValueError(f"streaming kernel of {bytes_moved} bytes over {footprint}: must not be negative")
    if footprint < L2_FOOTPRINT_SHARE * gpu.memory.l2_bytes:
        rate = gpu.memory.l2_streaming_bytes_per_second
    else:
        rate = gpu.memory.dram_bytes_per_second * gpu.memory.streaming_share
    period, streaming = max(launch_seconds(gpu, launching), fixed_seconds), bytes_moved / rate
    return StreamEstimate(
        seconds=period + streaming, bound="memory" if streaming > period else "launch", bytes_moved=bytes_moved
    )


def reduction_seconds(
    gpu: GpuMachine, elements: int, results: int, *, launching: Launching, element_bytes: int = 4
) -> StreamEstimate:
    """Sum `elements` numbers to `results`: one kernel if every result has its own block, else two.

    With fewer results than multiprocessors the elements are cut, and a second kernel adds the parts. Raises
    ValueError when there are fewer elements than results, or no result.
    """
    if not 1 <= results <= elements:
        raise ValueError(f"reduction of {elements} elements to {results}: needs 1 <= results <= elements")
    blocks = gpu.chip.streaming_multiprocessors
    parts = max(1, min(blocks // results, elements // results))
    first = elementwise_seconds(gpu, (elements + results * parts) * element_bytes, launching=launching)
    if parts == 1:
        return first
    second = elementwise_seconds(gpu, results * (parts + 1) * element_bytes, launching=launching)
    return StreamEstimate(
        seconds=first.seconds + second.seconds,
        bound=first.bound,
        bytes_moved=first.bytes_moved + second.bytes_moved,
    )
