"""Square millimetres and watts of one chip, each with its interval, from what its description says of its process; and
joules of one training step: static power times its seconds, plus every counted event.

Every sourced number is uncertain by the kind of its source (`base/units.py`). In a product the doubts of its factors
are independent and add as squares; parts of a sum share processes and sources, so theirs add plainly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

from mimdsim.base.residuals import residuals_of
from mimdsim.base.schema import SourcedSection
from mimdsim.base.units import SOURCE_KINDS, kind_of, less_certain, uncertainty
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Links
from mimdsim.profile.records import STATIC, EnergyPart, EnergyProfile, SiliconPart, SiliconProfile

PASS_CYCLES = 4  # of the matrix unit for a row of `half_channels` inputs (PopLibs, getWeightsPerConvUnit)
MM2_PER_UM2 = 1e-6
BITS = 8


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number of at least 0, how far it may be off either way, and the least certain kind of source in it."""

    value: float
    off: float = 0.0
    kind: str = SOURCE_KINDS[0]

    @staticmethod
    def of(section: SourcedSection, field: str) -> Estimate:
        """A number of a description, off by the share of its kind of source."""
        value, kind = float(getattr(section, field)), kind_of(section.sources[field])
        return Estimate(value=value, off=value * uncertainty(kind), kind=kind)

    @staticmethod
    def between(low: float, high: float, *, kind: str) -> Estimate:
        return Estimate(value=(low + high) / 2, off=(high - low) / 2, kind=kind)

    def __mul__(self, other: Estimate | float) -> Estimate:
        if not isinstance(other, Estimate):
            return Estimate(value=self.value * other, off=self.off * other, kind=self.kind)
        value = self.value * other.value
        off = hypot(self.off * other.value, other.off * self.value)
        return Estimate(value=value, off=min(off, value), kind=less_certain(self.kind, other.kind))

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            value=self.value + other.value, off=self.off + other.off, kind=less_certain(self.kind, other.kind)
        )

    def part(self, name: str) -> SiliconPart:
        return SiliconPart(name=name, value=self.value, kind=self.kind, half_width=self.off)


NOTHING = Estimate(value=0.0)


@dataclass(frozen=True, kw_only=True)
class Voltage:
    """Volts at the machine's clock; `squared` and `leakage`: factors of joules and leakage against the reference."""

    low: float
    high: float
    squared: Estimate
    leakage: Estimate


def silicon_profile(machine: MimdMachine) -> SiliconProfile | None:
    """Area and watts of one chip of the machine; None if it has no [area]. Watts are unknown without [power], or if the
    voltage that its clock needs is outside the range of its process."""
    if machine.area is None:
        return None
    area = chip_area(machine)
    mm2 = sum(area.values(), NOTHING)
    parts = tuple(each.part(name) for name, each in area.items())
    voltage = voltage_at(machine)
    if isinstance(voltage, str):
        return SiliconProfile(process=machine.area.process, area=parts, unknown=voltage)
    static = _static(machine, mm2, voltage)
    full = _full_load(machine, voltage, sum(static.values(), NOTHING))
    return SiliconProfile(
        process=machine.area.process,
        area=parts,
        static=tuple(each.part(name) for name, each in static.items()),
        volts_low=voltage.low,
        volts_high=voltage.high,
        full_load=None if full is None else full.part("fully busy"),
    )


def chip_area(machine: MimdMachine) -> dict[str, Estimate]:
    """mm2 of one chip by part. The machine must have [area]."""
    area, tiles = machine.area, machine.chip.tiles
    assert area is not None
    built = Estimate.of(area, "spare_tiles_share")
    spare = Estimate(value=1 + built.value, off=built.off, kind=built.kind) * tiles
    logic = Estimate.of(area, "logic_um2_per_transistor") * MM2_PER_UM2
    bits = machine.tile.sram_bytes * BITS * MM2_PER_UM2
    crosspoints = tiles * tiles * machine.exchange.bytes_per_cycle * BITS
    return {
        "SRAM": Estimate.of(area, "sram_um2_per_bit") * bits * spare,
        "logic of tiles": logic * Estimate.of(area, "tile_transistors") * spare,
        "exchange": logic * Estimate.of(area, "crosspoint_transistors") * crosspoints,
        "links": Estimate.of(area, "link_mm2") * links_of(machine.links),
        "host link and rim": Estimate.of(area, "io_mm2"),
    }


def links_of(links: Links) -> int:
    """Links that a chip is built with: those of a chip inside the topology, however many chips there are. In groups
    with other links than between them, every edge has as many as the wider kind: chips are alike."""
    edges = {"line": 2, "ring": 2, "ladder": 3, "torus": 4, "all_to_all": links.chips - 1, "switch": 1}
    kinds = [links.group_links_per_edge] if links.group_chips > 1 and links.topology != "switch" else []
    kinds += [links.links_per_edge] if not kinds or links.group_chips < links.chips else []
    return edges[links.topology] * max(kinds)


def voltage_at(machine: MimdMachine) -> Voltage | str:
    """The voltage at the machine's clock, or why it is unknown."""
    power = machine.power
    if power is None:
        return f"the description of {machine.name} has no [power]"
    (low, high), (least, most) = power.volts, power.range_volts
    ratio = machine.chip.clock_hz / power.volts_hz
    if power.voltage_follows == "clock":
        low, high = low * ratio, high * ratio
        if low > most:
            return (
                f"{machine.chip.clock_hz / 1e9:g} GHz would need {low:.2f} to {high:.2f} V, above the {most:g} V of "
                "power.range_volts"
            )
    elif power.voltage_follows == "unknown":
        low, high = min(low, low * ratio), max(high, high * ratio)
    low, high = (min(max(end, least), most) for end in (low, high))
    kind = kind_of(power.sources["volts"])
    shares = (low / power.reference_volts, high / power.reference_volts)
    return Voltage(
        low=low,
        high=high,
        squared=Estimate.between(*(share**2 for share in shares), kind=kind),
        leakage=Estimate.between(*(share**power.leakage_exponent for share in shares), kind=kind),
    )


def _static(machine: MimdMachine, mm2: Estimate, voltage: Voltage) -> dict[str, Estimate]:
    """Watts of one chip that does nothing, by part."""
    power = machine.power
    assert power is not None
    whole = mm2 * Estimate.of(power, "static_watts_per_mm2")
    share = Estimate.of(power, "clock_share")
    leak, turn = voltage.leakage, voltage.squared * (machine.chip.clock_hz / power.reference_hz)
    clock = whole * share.value * turn
    moved = whole.value * share.off * abs(turn.value - leak.value)  # an error of the share moves watts between parts
    clock = replace(clock, off=min(clock.off + moved, clock.value), kind=less_certain(clock.kind, share.kind))
    return {"leakage": whole * (1 - share.value) * leak, "clock tree": clock}


def _full_load(machine: MimdMachine, voltage: Voltage, static: Estimate) -> Estimate | None:
    """Watts of one chip whose contexts issue a bundle whenever they may and keep the matrix units full with halves;
    None without [energy]. What a chip can draw in a phase of compute, not what a program does."""
    power, energy = machine.power, machine.energy
    if power is None or energy is None:
        return None
    cycle = Estimate.of(energy, "bundle_joules") * (machine.tile.working_contexts / machine.tile.issue_cycles)
    if machine.matrix is not None and power.matrix_joules_per_flop is not None:
        flops = 2 * machine.matrix.half_half_units * machine.matrix.half_channels / PASS_CYCLES
        cycle = cycle + Estimate.of(power, "matrix_joules_per_flop") * flops
    return cycle * voltage.squared * (machine.chip.tiles * machine.chip.clock_hz) + static


# what the chip's own supply pays; links and host link have supplies of their own
AT_VOLTAGE = ("bundle_joules", "arithmetic_joules_per_flop", "exchange_joules_per_byte", "hop_joules_per_byte")


def energy_profile(
    section: Any,
    counted: Iterable[tuple[str, str, float]],
    *,
    voltage_factor: Estimate | None = None,
    static: EnergyPart | None = None,
    figures: str = "",
) -> EnergyProfile:
    """Energy from (name, field of `section` that holds the coefficient, count) of each part.

    The coefficient times the count is joules: watts times seconds, joules per byte times bytes, and so on; what the
    chip's own supply pays also times `voltage_factor`. static: a part that does not come from `section`, first.
    figures: the class whose residuals it has, "" where no energies were published.
    Raises KeyError for a coefficient without a source.
    """
    parts = [] if static is None else [static]
    for name, field, amount in counted:
        if field not in section.sources and not getattr(section, field):
            continue
        joules = Estimate.of(section, field) * amount
        if voltage_factor is not None and field in AT_VOLTAGE:
            joules = joules * voltage_factor
        if joules.value:
            parts.append(EnergyPart(name=name, joules=joules.value, kind=joules.kind, half_width_joules=joules.off))
    return EnergyProfile(parts=tuple(parts), residuals=residuals_of(figures) if figures else None)


def tiled_energy(
    machine: MimdMachine,
    silicon: SiliconProfile | None,
    chip_seconds: float,
    counted: Iterable[tuple[str, str, float]],
) -> EnergyProfile | None:
    """Energy of one run: static power for so many seconds of all chips together, and what was counted, at the
    machine's voltage; silicon: that of the machine. None if the machine has no energies, or its voltage is unknown."""
    section = machine.energy
    if section is None:
        return None
    given = ((STATIC, "static_watts", chip_seconds),)
    if machine.power is None or silicon is None:
        return energy_profile(section, (*given, *counted))
    voltage = voltage_at(machine)
    if isinstance(voltage, str):
        return None
    if section.static_watts is not None:
        return energy_profile(section, (*given, *counted), voltage_factor=voltage.squared)
    watts = [Estimate(value=part.value, off=part.half_width, kind=part.kind) for part in silicon.static]
    spent = sum(watts, NOTHING) * chip_seconds
    static = EnergyPart(name=STATIC, joules=spent.value, kind=spent.kind, half_width_joules=spent.off)
    return energy_profile(section, counted, voltage_factor=voltage.squared, static=static)
