"""What a chip is made of: its area by bits, transistors and links, and how voltage and clock set its power.

Watts are those of one chip at its working temperature; what they come to is computed in `costs/area_power.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from mimdsim.base.schema import SourcedSection
from mimdsim.base.units import parse_quantity

VOLTS = (0.2, 2.0)  # assumed: beyond anything that is built


def _pair(value: Any) -> Any:
    """The lowest and the highest of a voltage; one number stands for both, and each may carry its unit."""
    ends = value if isinstance(value, (list, tuple)) else (value, value)
    if len(ends) != 2:
        raise ValueError("takes one voltage or two; write [lowest, highest]")
    if any(isinstance(end, bool) for end in ends):
        raise ValueError("is a boolean; a voltage is needed")
    return tuple(parse_quantity(end, "volts") if isinstance(end, str) else end for end in ends)


Volts = Annotated[tuple[float, float], BeforeValidator(_pair)]


class Area(SourcedSection):
    """Square millimetres of a chip."""

    process: str = Field(min_length=1, max_length=60, description="shown only")
    """The process, in words."""
    sram_um2_per_bit: float = Field(gt=0, le=10)
    """Area of a bit of SRAM with decoders, sense amplifiers and redundancy of the array, in um2."""
    logic_um2_per_transistor: float = Field(gt=0, le=10)
    """Area of a transistor of logic, in um2."""
    tile_transistors: float = Field(gt=0, le=1e12)
    """Transistors of one tile, without its SRAM cells and without the crossbar."""
    crosspoint_transistors: float = Field(ge=0, le=1e3)
    """Transistors of a crossbar that leads the bus of every tile to every other, for each bit of a bus and each pair of
    tiles; 0 where tiles have routers, which then count as transistors of the tile."""
    link_mm2: float = Field(ge=0)
    """Area of one link between chips, both directions."""
    io_mm2: float = Field(ge=0)
    """Area of the host link and what else lies on the rim."""
    spare_tiles_share: float = Field(ge=0, le=1)
    """Tiles that are built beyond those that are used, as a share of the used ones."""


class Power(SourcedSection):
    """What a chip draws whether it works or not, and at which voltage. The joules of [energy] too are those at
    reference_volts and go by V^2 (links and host link have supplies of their own)."""

    static_watts_per_mm2: float = Field(ge=0, description="static power")
    """Leakage and clock tree together, at reference_volts and reference_hz."""
    clock_share: float = Field(ge=0, le=1, description="static power")
    """The share of the static power that is the clock tree, which goes by V^2 f; the rest is leakage."""
    leakage_exponent: float = Field(ge=1, le=10, description="static power")
    """Leakage goes by V to this power."""
    reference_volts: float = Field(ge=VOLTS[0], le=VOLTS[1])
    """Voltage that the numbers of this section and of [energy] are for."""
    reference_hz: float = Field(gt=0, description="static power")
    """Clock that the static power is for."""
    volts: Volts
    """What the chip runs at, lowest and highest that it may be, at volts_hz; one number for both."""
    volts_hz: float = Field(gt=0)
    """Clock at which the chip runs at `volts`."""
    range_volts: Volts
    """Lowest and highest voltage that the process works at."""
    voltage_follows: Literal["clock", "nothing", "unknown"]
    """At another clock the voltage is in proportion to the 'clock', or stays ('nothing'), or is anything between
    ('unknown')."""
    matrix_joules_per_flop: float | None = Field(ge=0, default=None, description="full load")
    """Energy of an operation on halves on the matrix unit, all told; only for the watts of a chip that is fully
    busy."""

    @model_validator(mode="after")
    def _voltages_in_order(self) -> Power:
        for name in ("volts", "range_volts"):
            low, high = getattr(self, name)
            if not VOLTS[0] <= low <= high <= VOLTS[1]:
                raise ValueError(
                    f"{name} = [{low:g}, {high:g}]: give the lowest first, both from {VOLTS[0]:g} to {VOLTS[1]:g} V"
                )
            if name not in self.sources:
                raise ValueError(f"'{name}' has no entry in 'sources'")
        if not self.range_volts[0] <= self.volts[0] <= self.volts[1] <= self.range_volts[1]:
            raise ValueError(
                f"volts = [{self.volts[0]:g}, {self.volts[1]:g}] are outside range_volts = [{self.range_volts[0]:g}, "
                f"{self.range_volts[1]:g}]: widen range_volts or correct volts"
            )
        return self


class TiledEnergy(SourcedSection):
    """Energy of a tiled chip."""

    static_watts: float | None = Field(ge=0, default=None)
    """Drawn by every chip of the program for as long as the training step lasts, whatever the chip's size; left out:
    what its [area] and [power] come to."""
    bundle_joules: float = Field(ge=0, description="energy of a training step, full load")
    """Energy of what one worker context issues in one turn: its fetch, its decoding, registers and what it loads or
    stores on its own tile."""
    arithmetic_joules_per_flop: float = Field(ge=0)
    """Energy of a floating-point operation, beside that of its bundle."""
    exchange_joules_per_byte: float = Field(ge=0)
    """Paid by every tile that receives a byte."""
    hop_joules_per_byte: float = Field(ge=0, default=0.0)
    """Paid for every link between routers that a byte goes along."""
    link_joules_per_byte: float = Field(ge=0)
    """Paid for every edge between chips that a byte goes along."""
    host_joules_per_byte: float = Field(ge=0)
    """Energy of a byte over the host link."""


class GpuEnergy(SourcedSection):
    """Energy of a GPU board. A byte of DRAM or L2 is charged with everything that moves it to a multiprocessor."""

    static_watts: float = Field(ge=0)
    """Drawn for as long as the training step lasts."""
    launch_watts: float = Field(ge=0)
    """Drawn in addition while kernels wait for launches."""
    simt_joules_per_flop: float = Field(ge=0)
    """Energy of an operation outside tensor units."""
    tf32_joules_per_flop: float = Field(ge=0)
    """Energy of an operation on tensor units in TF32."""
    fp16_joules_per_flop: float = Field(ge=0)
    """Energy of an operation on tensor units in fp16."""
    dram_joules_per_byte: float = Field(ge=0)
    """Energy of a byte of DRAM."""
    l2_joules_per_byte: float = Field(ge=0)
    """Energy of a byte of the L2."""
    host_joules_per_byte: float = Field(ge=0)
    """Energy of a byte over the host link."""
