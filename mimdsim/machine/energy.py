"""Energy use of a machine: static power while it is on, and joules for everything it does."""

from __future__ import annotations

from pydantic import Field

from mimdsim.base.schema import SourcedSection


class TiledEnergy(SourcedSection):
    """Energy of a tiled chip.

    static_watts are drawn by every chip of the program for as long as the training step lasts: so many whatever the
    chip's size, or, left out, what its [area] and [power] come to. A bundle is what one worker context issues in one
    turn: its fetch, its decoding, registers and what it loads or stores on its own tile. `exchange_joules_per_byte` is
    paid by every tile that receives a byte.
    """

    static_watts: float | None = Field(ge=0, default=None)
    bundle_joules: float = Field(ge=0)
    arithmetic_joules_per_flop: float = Field(ge=0)
    exchange_joules_per_byte: float = Field(ge=0)
    link_joules_per_byte: float = Field(ge=0)
    host_joules_per_byte: float = Field(ge=0)


class GpuEnergy(SourcedSection):
    """Energy of a GPU board.

    static_watts are drawn for as long as the training step lasts, launch_watts in addition while kernels wait for
    launches. A byte of DRAM or L2 is charged with everything that moves it to a multiprocessor.
    """

    static_watts: float = Field(ge=0)
    launch_watts: float = Field(ge=0)
    simt_joules_per_flop: float = Field(ge=0)
    tf32_joules_per_flop: float = Field(ge=0)
    fp16_joules_per_flop: float = Field(ge=0)
    dram_joules_per_byte: float = Field(ge=0)
    l2_joules_per_byte: float = Field(ge=0)
    host_joules_per_byte: float = Field(ge=0)
