"""Which numbers in a machine description are treated as mistakes, usually a missing unit.

The bounds are assumed: some orders of magnitude beyond anything built, so that what-if values pass and 1.85 instead of
1.85 GHz does not.
"""

from __future__ import annotations

from collections.abc import Collection

from mimdsim.base.schema import Section, whence
from mimdsim.base.units import UNITS, dimension, show_quantity
from mimdsim.machine.mimd import MimdMachine

COUNT = (0.0, 1e7)  # of anything without a unit
TRANSISTORS = (1e3, 1e12)  # of a tile
# by unit: least (0 is always accepted if the field allows it) and greatest number in the base unit
BOUNDS: dict[str, tuple[float, float]] = {
    "hz": (1e6, 1e12),
    "bytes": (1.0, 2.0**44),
    "bytes_per_second": (1e6, 1e18),
    "bytes_per_cycle": (1e-3, 1e15),  # 1e15: effectively free
    "flops_per_cycle": (1e-3, 1e9),
    "cycles": (1e-3, 1e9),
    "seconds": (1e-12, 1.0),
    "watts": (1e-3, 1e5),
    "watts_per_mm2": (1e-4, 1e2),
    "mm2": (1e-4, 1e5),
    "volts": (0.2, 2.0),
    "joules": (1e-15, 1e-6),
    "joules_per_byte": (1e-15, 1e-6),
    "joules_per_flop": (1e-15, 1e-6),
}
NARROWER: dict[str, tuple[float, float]] = {  # fields for which a few bytes make no sense
    "tile.sram_bytes": (1024.0, 2.0**44),
    "tile.executable_bytes": (1024.0, 2.0**44),
    "memory.capacity_bytes": (1024.0, 2.0**44),
    "memory.l2_bytes": (1024.0, 2.0**44),
    "tile.vector_bytes": (4.0, 4096.0),
    "tile.issue_cycles": (1.0, 1000.0),
    "area.tile_transistors": TRANSISTORS,
}
PARTS = (  # section, part, whole
    ("tile", "executable_bytes", "sram_bytes"),
    ("chip", "grid_columns", "tiles"),  # a row of the grid has at most as many places as there are tiles
)
UNIT_MEANT = {"hz": "GHz", "bytes_per_second": "GB/s", "bytes": "KiB", "seconds": "us", "joules": "pJ"}
UNIT_MEANT |= {"joules_per_byte": "pJ/B", "joules_per_flop": "pJ/FLOP"}


def larger_parts(machine: MimdMachine, text: str, changed: Collection[str]) -> list[str]:
    """A message for every part that is larger than its whole, with both numbers."""
    found = []
    for section, part, whole in PARTS:
        values = getattr(machine, section)
        if getattr(values, part) <= getattr(values, whole):
            continue
        at, at_whole = (whence((section, key), text, changed) for key in (part, whole))
        found.append(
            f"'{section}.{part}'{at}: {show_quantity(getattr(values, part), part)} is more than '{section}.{whole}'"
            f"{at_whole}, {show_quantity(getattr(values, whole), whole)}; give at most that"
        )
    return found


def implausible(machine: Section, text: str, changed: Collection[str]) -> list[str]:
    """A message for every number out of bounds, with the bounds and the unit that may have been meant."""
    found = []
    for section in type(machine).model_fields:
        part = getattr(machine, section)
        if not isinstance(part, Section):
            continue
        for key in type(part).model_fields:
            value = getattr(part, key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value == 0:
                continue
            low, high = NARROWER.get(f"{section}.{key}") or BOUNDS.get(dimension(key) or "", COUNT)
            if not low <= value <= high:
                at = whence((section, key), text, changed)
                found.append(f"'{section}.{key}'{at}: {_out_of(value, key, low, high)}")
    return found


def _out_of(value: float, key: str, low: float, high: float) -> str:
    bounds = f"{show_quantity(low, key)} to {show_quantity(high, key)}" if low else f"at most {high:,.0f}"
    unit = UNIT_MEANT.get(dimension(key) or "", "")
    meant = unit and low <= value * UNITS[dimension(key) or ""][unit] <= high
    hint = f'; did you mean "{value:g} {unit}"?' if meant else ""
    return f"{show_quantity(value, key)} is not plausible; expected {bounds}{hint}"
