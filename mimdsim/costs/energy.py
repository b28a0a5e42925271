"""Joules of one training step: static power times its seconds, plus every counted event.

Each part carries the kind of source of its coefficient; the interval is the sum of the parts' intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from mimdsim.costs.area_power import Estimate, total, voltage_at
from mimdsim.machine import MimdMachine
from mimdsim.profile import STATIC, EnergyPart, EnergyProfile, SiliconProfile

EXACT = Estimate(value=1.0)
# what the chip's own supply pays; links and host link have supplies of their own
AT_VOLTAGE = ("bundle_joules", "arithmetic_joules_per_flop", "exchange_joules_per_byte")


def energy_profile(
    section: Any,
    counted: Iterable[tuple[str, str, float]],
    *,
    factor: Estimate = EXACT,
    scaled: Collection[str] = (),
    static: EnergyPart | None = None,
) -> EnergyProfile:
    """Energy from (name, field of `section` that holds the coefficient, count) of each part.

    The coefficient times the count is joules: watts times seconds, joules per byte times bytes, and so on; the fields
    in `scaled` also times `factor`. static: a part that does not come from `section`, first. Raises KeyError for a
    coefficient without a source.
    """
    parts = [] if static is None else [static]
    for name, field, amount in counted:
        joules = Estimate.of(section, field) * amount
        if field in scaled and factor != EXACT:
            joules = joules * factor
        if joules.value:
            parts.append(EnergyPart(name=name, joules=joules.value, kind=joules.kind, half_width_joules=joules.off))
    return EnergyProfile(parts=tuple(parts))


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
        return energy_profile(section, (*given, *counted), factor=voltage.squared, scaled=AT_VOLTAGE)
    watts = [Estimate(value=part.value, off=part.half_width, kind=part.kind) for part in silicon.static]
    spent = total(watts) * chip_seconds
    static = EnergyPart(name=STATIC, joules=spent.value, kind=spent.kind, half_width_joules=spent.off)
    return energy_profile(section, counted, factor=voltage.squared, scaled=AT_VOLTAGE, static=static)
